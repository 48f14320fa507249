// A fake libnccl that needs no devices. It implements the functions of NCCL that GT calls, for processes of one
// machine: they exchange data by files in a shared folder. Calls run in the order of their stream. A stream is that of
// `backends/cuda/src/driver/emulated/mod.rs`: it runs tasks, each of which may wait for other ranks. As with the real NCCL,
// ranks whose calls differ wait for ever. If NVIDIA's header is there, the compiler compares each function with it.
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#if __has_include(<nccl.h>)
// NCCL's header needs only this type of CUDA's header, which would in turn need the headers of CUDA's compiler.
#define __CUDA_RUNTIME_H__
typedef struct CUstream_st* cudaStream_t;
#include <nccl.h>
#elif defined(GT_COMPARED)
#error "nccl.h, with which this is to be compared, is not there: make test-headers downloads it"
#else
typedef int ncclResult_t;
typedef int ncclDataType_t;
typedef int ncclRedOp_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct ncclComm* ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
// The fields that every version has.
typedef struct { size_t size; unsigned magic, version; int blocking; } ncclConfig_t;
#endif

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };
enum { SUM, PROD, MAX, MIN, AVG };
constexpr int RANKS_MAX = 64;

// The state that the ranks of a group share.
struct Board {
    std::atomic<int> joined;
    // Whether others wait for a call that this rank has not made yet.
    std::atomic<int> wanted[RANKS_MAX];
};

// As in `driver/emulated/mod.rs`.
struct Task { void* data; int (*step)(void*); int (*wanted)(void*); void (*release)(void*); };
struct Stream { uint64_t magic; void (*enqueue)(const Stream*, const Task*); };
constexpr uint64_t STREAM_MAGIC = 0x677473747265616d;

struct Group {
    std::string folder;
    int rank, size;
    Board* board;
    std::atomic<bool> aborted{false};
    // The numbers of collectives, and of messages to and from each rank, so far.
    uint64_t collectives = 0;
    uint64_t sent[RANKS_MAX] = {}, received[RANKS_MAX] = {};
    bool complete = false;
    // The files of this rank's data for the last collectives.
    std::vector<std::string> given;

    std::string file(const char* kind, int from, int to, uint64_t number) const {
        return folder + "/" + kind + "-" + std::to_string(from) + "-" + std::to_string(to) + "-" + std::to_string(number);
    }
    ~Group() { munmap(board, sizeof(Board)); }
};

struct ncclComm { std::shared_ptr<Group> group; };

enum Kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV };

struct Call {
    Kind kind;
    const void* from;
    void* to;
    size_t count;
    int dtype, op, peer;
    uint64_t number;
    bool done;
};

static size_t size_of(int dtype) {
    const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return dtype >= 0 && dtype < 10 ? sizes[dtype] : 0;
}

// Writes a file under another name and renames it, so that readers see it whole.
static void publish(const std::string& name, const void* data, size_t bytes) {
    std::string partial = name + ".partial";
    int fd = open(partial.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
    for (size_t at = 0; fd >= 0 && at < bytes;) {
        ssize_t written = write(fd, (const char*)data + at, bytes - at);
        if (written <= 0) { perror("fake NCCL"); abort(); }
        at += written;
    }
    close(fd);
    rename(partial.c_str(), name.c_str());
}
static bool fetch(const std::string& name, std::vector<char>& data) {
    int fd = open(name.c_str(), O_RDONLY);
    if (fd < 0) return false;
    data.resize(lseek(fd, 0, SEEK_END));
    for (size_t at = 0; at < data.size();) {
        ssize_t taken = pread(fd, data.data() + at, data.size() - at, at);
        if (taken <= 0) { perror("fake NCCL"); abort(); }
        at += taken;
    }
    close(fd);
    return true;
}

static float widen(uint16_t bits, int dtype) {
    if (dtype == 9) {
        uint32_t wide = uint32_t(bits) << 16;
        float x;
        memcpy(&x, &wide, 4);
        return x;
    }
    _Float16 x;
    memcpy(&x, &bits, 2);
    return float(x);
}
static uint16_t narrow(float x, int dtype) {
    if (dtype == 9) {
        uint32_t bits;
        memcpy(&bits, &x, 4);
        if (x != x) return 0x7fc0;
        return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    _Float16 half = _Float16(x);
    uint16_t bits;
    memcpy(&bits, &half, 2);
    return bits;
}

template <typename T> static T combined(T a, T b, int op) {
    if (a != a) return a;
    if (b != b) return b;
    switch (op) {
        case PROD: return T(a * b);
        case MAX: return a > b ? a : b;
        case MIN: return a < b ? a : b;
        default: return T(a + b);
    }
}
template <typename T> static void fold(char* into, const char* other, size_t count, int op) {
    for (size_t i = 0; i < count; i++) {
        T a, b;
        memcpy(&a, into + i * sizeof(T), sizeof(T));
        memcpy(&b, other + i * sizeof(T), sizeof(T));
        a = combined(a, b, op);
        memcpy(into + i * sizeof(T), &a, sizeof(T));
    }
}
template <typename T> static void divide(char* into, size_t count, int size) {
    for (size_t i = 0; i < count; i++) {
        T a;
        memcpy(&a, into + i * sizeof(T), sizeof(T));
        a = T(a / size);
        memcpy(into + i * sizeof(T), &a, sizeof(T));
    }
}
// Folds the pieces of all ranks into the first: halves in f32, and integers as unsigned ones where the result is the same.
static void reduce(std::vector<std::vector<char>>& parts, size_t count, int dtype, int op) {
    auto wide = [&](const std::vector<char>& part) {
        std::vector<char> all(count * 4);
        for (size_t i = 0; i < count; i++) {
            uint16_t bits;
            memcpy(&bits, part.data() + 2 * i, 2);
            float x = widen(bits, dtype);
            memcpy(all.data() + 4 * i, &x, 4);
        }
        return all;
    };
    const bool half = dtype == 6 || dtype == 9;
    std::vector<char> sum = half ? wide(parts[0]) : parts[0];
    for (size_t rank = 1; rank < parts.size(); rank++) {
        std::vector<char> other = half ? wide(parts[rank]) : parts[rank];
        switch (dtype) {
            case 0: fold<int8_t>(sum.data(), other.data(), count, op); break;
            case 1: fold<uint8_t>(sum.data(), other.data(), count, op); break;
            case 2: op == MAX || op == MIN ? fold<int32_t>(sum.data(), other.data(), count, op)
                                           : fold<uint32_t>(sum.data(), other.data(), count, op); break;
            case 4: op == MAX || op == MIN ? fold<int64_t>(sum.data(), other.data(), count, op)
                                           : fold<uint64_t>(sum.data(), other.data(), count, op); break;
            case 8: fold<double>(sum.data(), other.data(), count, op); break;
            default: fold<float>(sum.data(), other.data(), count, op);
        }
    }
    if (op == AVG) dtype == 8 ? divide<double>(sum.data(), count, parts.size()) : divide<float>(sum.data(), count, parts.size());
    if (half) {
        std::vector<char> narrowed(count * 2);
        for (size_t i = 0; i < count; i++) {
            float x;
            memcpy(&x, sum.data() + 4 * i, 4);
            uint16_t bits = narrow(x, dtype);
            memcpy(narrowed.data() + 2 * i, &bits, 2);
        }
        sum = narrowed;
    }
    parts[0] = sum;
}

// One group of calls in a stream.
struct Work {
    std::shared_ptr<Group> group;
    std::vector<Call> calls;
    bool begun = false;

    // Writes this rank's data of a call.
    void give(const Call& call) {
        Group& g = *group;
        size_t bytes = call.count * size_of(call.dtype);
        switch (call.kind) {
            case SEND: publish(g.file("message", g.rank, call.peer, call.number), call.from, bytes); break;
            case RECV: break;
            case BROADCAST: publish(g.file("all", g.rank, 0, call.number), call.from, g.rank == call.peer ? bytes : 0); break;
            case REDUCE_SCATTER: publish(g.file("all", g.rank, 0, call.number), call.from, bytes * g.size); break;
            default: publish(g.file("all", g.rank, 0, call.number), call.from, bytes);
        }
    }
    bool take(const Call& call) {
        Group& g = *group;
        size_t bytes = call.count * size_of(call.dtype);
        if (call.kind == SEND) return true;
        if (call.kind == RECV) {
            std::vector<char> data;
            std::string name = g.file("message", call.peer, g.rank, call.number);
            if (!fetch(name, data)) { g.board->wanted[call.peer] = 1; return false; }
            unlink(name.c_str());
            if (data.size() != bytes) return false;
            memcpy(call.to, data.data(), bytes);
            return true;
        }
        std::vector<std::vector<char>> parts(g.size);
        bool complete = true;
        for (int rank = 0; rank < g.size; rank++)
            if (!fetch(g.file("all", rank, 0, call.number), parts[rank])) { g.board->wanted[rank] = 1; complete = false; }
        if (!complete) return false;
        size_t own = size_t(g.rank) * bytes;
        switch (call.kind) {
            case ALL_GATHER:
                for (int rank = 0; rank < g.size; rank++) memcpy((char*)call.to + rank * bytes, parts[rank].data(), bytes);
                break;
            case BROADCAST:
                if (call.to != call.from || g.rank != call.peer) memcpy(call.to, parts[call.peer].data(), bytes);
                break;
            case REDUCE_SCATTER:
                for (auto& part : parts) part.assign(part.data() + own, part.data() + own + bytes);
                // Falls through.
            default:
                if (call.kind == REDUCE && call.peer != g.rank) break;
                reduce(parts, call.count, call.dtype, call.op);
                memcpy(call.to, parts[0].data(), bytes);
        }
        return true;
    }
    int step() {
        if (group->aborted) return 1;
        if (const char* file = getenv("GT_FAKE_NCCL_DIES"); !begun && file && group->rank == 1 && unlink(file) == 0)
            kill(getpid(), SIGKILL);
        if (!begun) for (Call& call : calls) give(call);
        begun = true;
        bool done = true;
        for (Call& call : calls) done &= call.done = call.done || take(call);
        if (!done) return 0;
        group->board->wanted[group->rank] = 0;
        std::vector<std::string> given;
        for (Call& call : calls) if (call.kind < SEND) given.push_back(group->file("all", group->rank, 0, call.number));
        if (given.empty()) return 1;
        // All ranks have begun this work, so they have completed the work before it: its files are no longer read.
        for (auto& name : group->given) unlink(name.c_str());
        group->given = given;
        return 1;
    }
};

static thread_local int depth = 0;
static thread_local std::vector<std::pair<Stream*, std::shared_ptr<Work>>> gathered;
static thread_local std::string last_error;

static int fail(int status, const char* why) { last_error = why; return status; }

static ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Call call) {
    auto* s = (Stream*)stream;
    if (!s || s->magic != STREAM_MAGIC) return ncclResult_t(fail(INVALID_ARGUMENT, "this stream is of no emulated device"));
    if (!comm || (call.count && !size_of(call.dtype))) return ncclResult_t(fail(INVALID_ARGUMENT, "no such dtype"));
    Group& group = *comm->group;
    if (call.kind == SEND) call.number = group.sent[call.peer]++;
    else if (call.kind == RECV) call.number = group.received[call.peer]++;
    else call.number = group.collectives++;
    if (depth == 0) return ncclResult_t(fail(INVALID_USAGE, "a call outside of a group"));
    if (gathered.empty() || gathered.back().second->group != comm->group || gathered.back().first != s) {
        gathered.push_back({s, std::make_shared<Work>()});
        gathered.back().second->group = comm->group;
    }
    gathered.back().second->calls.push_back(call);
    return ncclResult_t(SUCCESS);
}

extern "C" {
ncclResult_t ncclGetVersion(int* version) {
    const char* told = getenv("GT_FAKE_NCCL_VERSION");
    *version = told ? atoi(told) : 22707;
    return ncclResult_t(SUCCESS);
}
const char* ncclGetErrorString(ncclResult_t result) { return result == SUCCESS ? "no error" : "an error of the stand-in"; }
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    memset(id, 0, sizeof *id);
    const char* base = getenv("GT_FAKE_NCCL_FOLDER");
    std::string path = std::string(base ? base : "/dev/shm") + "/gt-fake-nccl-" + std::string(6, 'X');
    if (path.size() >= sizeof *id || !mkdtemp(path.data())) return ncclResult_t(fail(SYSTEM_ERROR, "no folder"));
    memcpy(id->internal, path.c_str(), path.size());
    return ncclResult_t(SUCCESS);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
    // The values of the macro NCCL_CONFIG_INITIALIZER.
    if (config->magic != 0xcafebeef || config->blocking != 0 || config->size < sizeof(size_t) + 3 * sizeof(int))
        return ncclResult_t(fail(INVALID_ARGUMENT, "a configuration of another kind"));
    if (const char* refused = getenv("GT_FAKE_NCCL_REFUSES"); refused && atoi(refused) == rank)
        return ncclResult_t(fail(SYSTEM_ERROR, "this stand-in was told to refuse"));
    if (rank < 0 || rank >= size || size > RANKS_MAX) return ncclResult_t(fail(INVALID_ARGUMENT, "no such rank"));
    auto group = std::make_shared<Group>();
    group->folder = id.internal;
    group->rank = rank;
    group->size = size;
    int fd = open((group->folder + "/board").c_str(), O_CREAT | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Board)) != 0) return ncclResult_t(fail(SYSTEM_ERROR, "no board"));
    group->board = (Board*)mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    group->board->joined++;
    *comm = new ncclComm{group};
    return ncclResult_t(IN_PROGRESS);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    Group& group = *comm->group;
    group.complete = group.complete || group.board->joined >= group.size;
    *state = ncclResult_t(group.complete ? SUCCESS : IN_PROGRESS);
    return ncclResult_t(SUCCESS);
}

// Calls that are in a stream end by themselves.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
    comm->group->aborted = true;
    delete comm;
    return ncclResult_t(SUCCESS);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {ALL_REDUCE, from, to, count, int(dtype), int(op), 0, 0, false});
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t dtype, ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {REDUCE, from, to, count, int(dtype), int(op), root, 0, false});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t dtype, ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {REDUCE_SCATTER, from, to, count, int(dtype), int(op), 0, 0, false});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t dtype, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {ALL_GATHER, from, to, count, int(dtype), 0, 0, 0, false});
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {BROADCAST, from, to, count, int(dtype), 0, root, 0, false});
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {SEND, from, nullptr, count, int(dtype), 0, peer, 0, false});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {RECV, nullptr, to, count, int(dtype), 0, peer, 0, false});
}

ncclResult_t ncclGroupStart() { depth++; return ncclResult_t(SUCCESS); }
ncclResult_t ncclGroupEnd() {
    if (--depth > 0) return ncclResult_t(SUCCESS);
    for (auto& [stream, work] : gathered) {
        auto data = new std::shared_ptr<Work>(work);
        Task task = {
            data,
            [](void* data) { return (*(std::shared_ptr<Work>*)data)->step(); },
            [](void* data) { auto& g = *(*(std::shared_ptr<Work>*)data)->group; return int(g.aborted || g.board->wanted[g.rank]); },
            [](void* data) { delete (std::shared_ptr<Work>*)data; },
        };
        stream->enqueue(stream, &task);
    }
    gathered.clear();
    return ncclResult_t(SUCCESS);
}
}
