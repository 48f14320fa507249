// A fake libcuda without a device. It accepts the calls of `driver/cuda.rs` as the real driver would, refuses what that
// would refuse, and runs all work immediately on the CPU. Modules are shared objects that g++ compiled from the
// kernels. Where CUDA's header is installed, the compiler checks each function against its declaration.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <set>
#include <string>
#include <unistd.h>
#include "fake_stream.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == 16 && CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR == 39);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == 75 && CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == 76);
static_assert(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN == 97 && CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED == 115);
static_assert(CU_STREAM_NON_BLOCKING == 1 && CU_EVENT_DISABLE_TIMING == 2 && CU_MEMHOSTALLOC_PORTABLE == 1);
static_assert(CU_MEMHOSTREGISTER_PORTABLE == 1 && CU_MEMPOOL_ATTR_RELEASE_THRESHOLD == 4);
static_assert(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES == 8 && CU_STREAM_CAPTURE_MODE_THREAD_LOCAL == 1);
#elif defined(GT_COMPARED)
#error "cuda.h, with which this is to be compared, is not there: make test-headers downloads it"
#else
typedef int CUresult;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef int CUmemPool_attribute;
typedef int CUfunction_attribute;
typedef unsigned long long CUdeviceptr;
typedef struct { char bytes[16]; } CUuuid;
typedef struct CUctx_st* CUcontext;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUmemPoolHandle_st* CUmemoryPool;
typedef int CUstreamCaptureMode;
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphExec_st* CUgraphExec;
typedef struct CUgraphNode_st* CUgraphNode;
typedef struct CUkern_st* CUkernel;
typedef int CUstreamCaptureStatus;
typedef unsigned long long cuuint64_t;
struct CUgraphEdgeData;
struct CUDA_KERNEL_NODE_PARAMS_v2 {
    CUfunction func;
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    void **kernelParams, **extra;
    CUkernel kern;
    CUcontext ctx;
};
#endif

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };
enum { ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600 };
enum { CAPTURE_UNSUPPORTED = 900, ILLEGAL_STATE = 401 };

struct Event { bool timed; bool recorded; long long at_ns; };
struct Host { size_t bytes; bool registered; };
static const size_t MEMORY_BYTES = size_t(2) << 30;
static int sticky, retained, initialized, pools = 1;
static size_t held;
static char context_place, pool_place;
static std::map<CUdeviceptr, size_t> memory;
static std::map<char*, Host> host;
static std::set<void*> streams, modules;
struct Graph { std::vector<std::function<void()>> work; };
static std::set<Graph*> graphs, execs;
static long launched, updated, refused, synchronized;
static int late;
static std::map<void*, Event> events;
static thread_local CUcontext current;

static CUresult result(int status) { return CUresult(sticky ? sticky : status); }
// The checks of every call that needs a current context.
#define NEEDS_CONTEXT if (sticky || current != (CUcontext)&context_place || !retained) return result(INVALID_CONTEXT)
#define NEEDS_STREAM(s) NEEDS_CONTEXT; if (!streams.count(s)) return result(INVALID_HANDLE)
// Calls that a capture does not allow fail.
#define NEEDS_OWN_STREAM(s) NEEDS_STREAM(s); if (((FakeStream*)s)->captured) return result(CAPTURE_UNSUPPORTED)

static bool on_device(CUdeviceptr at, size_t bytes) {
    auto next = memory.upper_bound(at);
    if (next == memory.begin()) return false;
    auto block = std::prev(next);
    return at + bytes <= block->first + block->second;
}
static bool pinned(const void* at, size_t bytes) {
    auto next = host.upper_bound((char*)at);
    if (next == host.begin()) return false;
    auto block = std::prev(next);
    return (char*)at + bytes <= block->first + block->second.bytes;
}

extern "C" {
// Controls for tests: make every call fail, refuse features, and count what has not been freed.
void fake_lose(int status) { sticky = status; }
void fake_without_pools(int without) { pools = !without; }
unsigned long long fake_held() { return held + 1000000000ull * events.size() + 1000000000000ull * host.size(); }
int fake_retained() { return retained; }
void fake_refuse_graphs(int refuse) { refused = refuse; }
unsigned long long fake_graphs() { return graphs.size() + execs.size(); }
unsigned long long fake_graphs_launched() { return launched; }
unsigned long long fake_graphs_updated() { return updated; }
// Controls for tests of timing: a query finds that no event has passed; the number of calls that waited for the device.
void fake_hold_events(int hold) { late = hold; }
unsigned long long fake_waits() { return synchronized; }

CUresult cuInit(unsigned flags) { initialized = 1; return result(flags ? INVALID_VALUE : 0); }
CUresult cuDriverGetVersion(int* version) { *version = 13000; return result(0); }
CUresult cuGetErrorName(CUresult error, const char** name) {
    *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : error == 101 ? "CUDA_ERROR_INVALID_DEVICE" : nullptr;
    return CUresult(*name ? 0 : INVALID_VALUE);
}
CUresult cuGetErrorString(CUresult error, const char** text) {
    *text = error == 700 ? "an illegal memory access was encountered" : error == 101 ? "invalid device ordinal" : nullptr;
    return CUresult(*text ? 0 : INVALID_VALUE);
}
CUresult cuDeviceGetCount(int* count) { *count = 1; return result(initialized ? 0 : NOT_INITIALIZED); }
CUresult cuDeviceGetPCIBusId(char* id, int len, CUdevice device) {
    std::snprintf(id, size_t(len), "0000:01:00.0");
    return result(device == 7 ? 0 : INVALID_DEVICE);
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    if (!initialized) return result(NOT_INITIALIZED);
    *device = 7;
    return result(ordinal == 0 ? 0 : INVALID_DEVICE);
}
CUresult cuDeviceGetName(char* name, int len, CUdevice device) {
    std::snprintf(name, size_t(len), "a fake");
    return result(device == 7 ? 0 : INVALID_DEVICE);
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
    switch (int(which)) {
        case 16: *value = 2; break;
        case 39: *value = 1536; break;
        case 75: *value = 8; break;
        case 76: *value = 6; break;
        case 97: *value = 99 << 10; break;
        case 115: *value = pools; break;
        default: return result(INVALID_VALUE);
    }
    return result(device == 7 ? 0 : INVALID_DEVICE);
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { std::memset(uuid, 7, 16); return result(device == 7 ? 0 : INVALID_DEVICE); }
CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) { *bytes = MEMORY_BYTES; return result(device == 7 ? 0 : INVALID_DEVICE); }
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice) { *pool = (CUmemoryPool)&pool_place; return result(0); }
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    retained++;
    *context = (CUcontext)&context_place;
    return result(device == 7 ? 0 : INVALID_DEVICE);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return result(device == 7 && retained-- > 0 ? 0 : INVALID_VALUE); }
CUresult cuCtxSetCurrent(CUcontext context) { current = context; return result(0); }

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
    NEEDS_CONTEXT;
    *stream = (CUstream) new FakeStream;
    streams.insert(*stream);
    return result(flags == 1 ? 0 : INVALID_VALUE);
}
CUresult cuStreamSynchronize(CUstream stream) { NEEDS_OWN_STREAM(stream); synchronized++; return result(0); }
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    NEEDS_OWN_STREAM(stream);
    return result(flags == 0 && events.count(event) ? 0 : INVALID_HANDLE);
}
CUresult cuEventCreate(CUevent* event, unsigned flags) {
    NEEDS_CONTEXT;
    *event = (CUevent)std::malloc(1);
    events[*event] = {flags == 0, false, 0};
    return result(flags == 0 || flags == 2 ? 0 : INVALID_VALUE);
}
CUresult cuEventDestroy_v2(CUevent event) { NEEDS_CONTEXT; return result(events.erase(event) ? 0 : INVALID_HANDLE); }
CUresult cuEventRecord(CUevent event, CUstream stream) {
    NEEDS_OWN_STREAM(stream);
    if (!events.count(event)) return result(INVALID_HANDLE);
    events[event].recorded = true;
    events[event].at_ns = ((FakeStream*)stream)->now_ns;
    return result(0);
}
CUresult cuEventQuery(CUevent event) { NEEDS_CONTEXT; return result(!events.count(event) ? INVALID_HANDLE : late ? NOT_READY : 0); }
CUresult cuEventSynchronize(CUevent event) { NEEDS_CONTEXT; synchronized++; return result(events.count(event) ? 0 : INVALID_HANDLE); }
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
    NEEDS_CONTEXT;
    bool timed = events.count(from) && events.count(to) && events[from].timed && events[to].timed &&
                 events[from].recorded && events[to].recorded;
    if (timed) *milliseconds = float(events[to].at_ns - events[from].at_ns) / 1e6f;
    return result(timed ? 0 : INVALID_HANDLE);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void* value) {
    NEEDS_CONTEXT;
    unsigned long long keep;
    std::memcpy(&keep, value, sizeof keep);
    return result(pool == (CUmemoryPool)&pool_place && which == 4 && keep == ~0ull ? 0 : INVALID_VALUE);
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t) { NEEDS_CONTEXT; return result(pool == (CUmemoryPool)&pool_place ? 0 : INVALID_VALUE); }
static CUresult allocated(CUdeviceptr* at, size_t bytes) {
    if (bytes == 0) return result(INVALID_VALUE);
    if (held + bytes > MEMORY_BYTES) return result(OUT_OF_MEMORY);
    void* start = nullptr;
    if (posix_memalign(&start, 512, bytes)) return result(OUT_OF_MEMORY);
    std::memset(start, 0xa5, bytes);
    *at = (CUdeviceptr)start;
    memory[*at] = bytes;
    held += bytes;
    return result(0);
}
static CUresult freed(CUdeviceptr at) {
    if (!memory.count(at)) return result(INVALID_VALUE);
    held -= memory[at];
    memory.erase(at);
    std::free((void*)at);
    return result(0);
}
CUresult cuMemAllocAsync(CUdeviceptr* at, size_t bytes, CUstream stream) { NEEDS_OWN_STREAM(stream); return pools ? allocated(at, bytes) : result(801); }
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) { NEEDS_OWN_STREAM(stream); return pools ? freed(at) : result(801); }
CUresult cuMemAlloc_v2(CUdeviceptr* at, size_t bytes) { NEEDS_CONTEXT; return allocated(at, bytes); }
CUresult cuMemFree_v2(CUdeviceptr at) { NEEDS_CONTEXT; return freed(at); }
CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
    NEEDS_CONTEXT;
    *free = MEMORY_BYTES - held;
    *total = MEMORY_BYTES;
    return result(0);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream) {
    NEEDS_STREAM(stream);
    if (!on_device(to, bytes)) return result(INVALID_VALUE);
    ((FakeStream*)stream)->take([=] { std::memset((void*)to, byte, bytes); });
    return result(0);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    NEEDS_STREAM(stream);
    if (!on_device(to, bytes) || !on_device(from, bytes)) return result(INVALID_VALUE);
    ((FakeStream*)stream)->take([=] { std::memmove((void*)to, (void*)from, bytes); });
    return result(0);
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    NEEDS_OWN_STREAM(stream);
    if (!on_device(to, bytes) || !pinned(from, bytes)) return result(INVALID_VALUE);
    std::memcpy((void*)to, from, bytes);
    return result(0);
}
CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    NEEDS_OWN_STREAM(stream);
    if (!on_device(from, bytes) || !pinned(to, bytes)) return result(INVALID_VALUE);
    std::memcpy(to, (void*)from, bytes);
    return result(0);
}
CUresult cuMemHostAlloc(void** at, size_t bytes, unsigned flags) {
    NEEDS_CONTEXT;
    if (bytes == 0 || flags != 1) return result(INVALID_VALUE);
    *at = std::malloc(bytes);
    std::memset(*at, 0xa5, bytes);
    host[(char*)*at] = {bytes, false};
    return result(0);
}
CUresult cuMemFreeHost(void* at) {
    NEEDS_CONTEXT;
    if (!host.count((char*)at) || host[(char*)at].registered) return result(INVALID_VALUE);
    host.erase((char*)at);
    std::free(at);
    return result(0);
}
CUresult cuMemHostRegister_v2(void* at, size_t bytes, unsigned flags) {
    NEEDS_CONTEXT;
    if (bytes == 0 || flags != 1) return result(INVALID_VALUE);
    if (pinned(at, 1)) return result(ALREADY_REGISTERED);
    host[(char*)at] = {bytes, true};
    return result(0);
}
CUresult cuMemHostUnregister(void* at) {
    NEEDS_CONTEXT;
    if (!host.count((char*)at) || !host[(char*)at].registered) return result(NOT_REGISTERED);
    host.erase((char*)at);
    return result(0);
}

// An ELF image ends with its section table, whose offset is in the header.
CUresult cuModuleLoadData(CUmodule* module, const void* image) {
    NEEDS_CONTEXT;
    auto bytes = (const unsigned char*)image;
    if (std::memcmp(bytes, "\x7f" "ELF", 4)) return result(200);
    unsigned long long table;
    unsigned short entry, entries;
    std::memcpy(&table, bytes + 40, 8);
    std::memcpy(&entry, bytes + 58, 2);
    std::memcpy(&entries, bytes + 60, 2);
    char name[] = "/tmp/gt-fake-module-" "XX" "XX" "XX";
    int file = mkstemp(name);
    size_t size = table + size_t(entry) * entries;
    bool written = file >= 0 && write(file, bytes, size) == ssize_t(size);
    close(file);
    *module = (CUmodule)(written ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : nullptr);
    unlink(name);
    modules.insert(*module);
    return result(*module ? 0 : 200);
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    NEEDS_CONTEXT;
    if (!modules.count(module)) return result(INVALID_HANDLE);
    *function = (CUfunction)dlsym(module, (std::string("emulator_run_") + name).c_str());
    return result(*function ? 0 : NOT_FOUND);
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    NEEDS_CONTEXT;
    return result(function && which == 8 && value <= 99 << 10 ? 0 : INVALID_VALUE);
}
static bool is_launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, void** extra) {
    return f && gx && gy && gz && gy <= 65535 && gz <= 65535 && bx && bx <= 1024 && by == 1 && bz == 1 &&
           shared <= 99 << 10 && !extra;
}
static std::function<void()> launch_of(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                       unsigned shared, void** params) {
    // The real driver knows the sizes of arguments from the module. Here all arguments are in one buffer of 4 KiB, and
    // a null pointer follows the last one.
    std::vector<char> bytes(4096);
    std::vector<size_t> places;
    if (params[0]) std::memcpy(bytes.data(), params[0], bytes.size());
    for (int i = 0; i < 64 && params[i]; i++) places.push_back(size_t((char*)params[i] - (char*)params[0]));
    return [=] {
        std::vector<void*> args;
        for (size_t place : places) args.push_back((void*)(bytes.data() + place));
        // As `struct Launch` in `src/driver/emulated/fibers.h`.
        const struct { void** args; unsigned blocks[3], threads, shared_bytes; unsigned long long seed; } launch = {args.data(), {gx, gy, gz}, bx, shared, 0};
        ((void (*)(const void*))f)(&launch);
    };
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void** params, void** extra) {
    NEEDS_STREAM(stream);
    if (!is_launch(f, gx, gy, gz, bx, by, bz, shared, extra)) return result(INVALID_VALUE);
    ((FakeStream*)stream)->take(launch_of(f, gx, gy, gz, bx, shared, params));
    return result(0);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    NEEDS_STREAM(stream);
    auto s = (FakeStream*)stream;
    if (s->captured || mode != 1) return result(ILLEGAL_STATE);
    s->captured = true;
    return result(0);
}
// A node is the number of its work in the graph, from 1 on.
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*, CUgraph*,
                                   const CUgraphNode** nodes, const CUgraphEdgeData**, size_t* count) {
    NEEDS_STREAM(stream);
    auto s = (FakeStream*)stream;
    static CUgraphNode last;
    last = (CUgraphNode)s->kept.size();
    *status = CUstreamCaptureStatus(s->captured);
    *nodes = &last;
    *count = s->captured && last;
    return result(0);
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    NEEDS_STREAM(stream);
    auto s = (FakeStream*)stream;
    if (!s->captured) return result(ILLEGAL_STATE);
    s->captured = false;
    auto made = new Graph{std::move(s->kept)};
    s->kept.clear();
    graphs.insert(made);
    *graph = (CUgraph)made;
    return result(0);
}
CUresult cuGraphDestroy(CUgraph graph) {
    NEEDS_CONTEXT;
    if (!graphs.erase((Graph*)graph)) return result(INVALID_VALUE);
    delete (Graph*)graph;
    return result(0);
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
    NEEDS_CONTEXT;
    if (!graphs.count((Graph*)graph) || flags) return result(INVALID_VALUE);
    if (refused) return result(OUT_OF_MEMORY);
    auto made = new Graph(*(Graph*)graph);
    execs.insert(made);
    *exec = (CUgraphExec)made;
    return result(0);
}
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    NEEDS_OWN_STREAM(stream);
    if (!execs.count((Graph*)exec)) return result(INVALID_VALUE);
    launched++;
    for (auto& work : ((Graph*)exec)->work) work();
    return result(0);
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2* to) {
    NEEDS_CONTEXT;
    size_t number = (size_t)node;
    if (!execs.count((Graph*)exec) || !number || number > ((Graph*)exec)->work.size() || to->kern || to->ctx ||
        !is_launch(to->func, to->gridDimX, to->gridDimY, to->gridDimZ, to->blockDimX, to->blockDimY, to->blockDimZ,
                   to->sharedMemBytes, to->extra))
        return result(INVALID_VALUE);
    ((Graph*)exec)->work[number - 1] = launch_of(to->func, to->gridDimX, to->gridDimY, to->gridDimZ, to->blockDimX,
                                                 to->sharedMemBytes, to->kernelParams);
    updated++;
    return result(0);
}
CUresult cuGraphExecDestroy(CUgraphExec exec) {
    NEEDS_CONTEXT;
    if (!execs.erase((Graph*)exec)) return result(INVALID_VALUE);
    delete (Graph*)exec;
    return result(0);
}
}
