// CUDA on the CPU, for tests: the parts of CUDA C++ that the kernels use, executed by one thread.
//
// Threads of a block are fibers that yield at barriers and shuffles. A barrier that some threads of the block never
// reach aborts the program with a message, where a device would hang. Blocks run one after another.
#pragma once
#define GT_EMULATED 1
// Fibers longjmp between stacks, which glibc's fortified longjmp reports as an error.
#undef _FORTIFY_SOURCE
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __shared__ static
#define __constant__ static const
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define INFINITY_F (__builtin_inff())

struct uint3 {
    unsigned x, y, z;
};
static uint3 threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

namespace emulator {
constexpr size_t STACK_BYTES = 128 << 10;
constexpr unsigned THREADS_MAX = 1024;
enum Wait { RUNS, AT_BLOCK, AT_WARP, ENDED };

// `setcontext` starts a fiber; `longjmp` resumes it. `_setjmp` does not save the signal mask and so needs no system
// call.
struct Fiber {
    ucontext_t context;
    jmp_buf place;
    bool begun = false;
    char* stack = nullptr;
    unsigned thread = 0;
};

static Fiber fibers[THREADS_MAX];
static Wait waits[THREADS_MAX];
static unsigned warp_masks[THREADS_MAX];
static int fiber_of[THREADS_MAX];
static jmp_buf scheduler;
static Fiber* running;
static unsigned threads, next_thread, votes;
static void (*body)(void*);
static void* body_args;
alignas(32) static unsigned char slots[THREADS_MAX][32];
alignas(1024) static unsigned char dynamic_shared[256 << 10];

// Yields to the scheduler until the barrier of the block or of the warp's `mask` is complete.
static inline void give_way(Wait wait, unsigned mask = 0xffffffffu) {
    Fiber* self = running;
    waits[self->thread] = wait;
    warp_masks[self->thread] = mask;
    if (!_setjmp(self->place)) _longjmp(scheduler, 1);
    running = self;
    threadIdx = {self->thread, 0, 0};
}

// A fiber runs one thread after another until one of them waits; another fiber then runs the remaining threads. When
// none are left, the fiber waits for the next block.
static void fiber_main() {
    Fiber* self = running;
    for (;;) {
        while (next_thread < threads) {
            self->thread = next_thread++;
            fiber_of[self->thread] = int(self - fibers);
            threadIdx = {self->thread, 0, 0};
            waits[self->thread] = RUNS;
            body(body_args);
            waits[self->thread] = ENDED;
            running = self;
        }
        if (!_setjmp(self->place)) _longjmp(scheduler, 1);
    }
}

static void resume(Fiber* fiber) {
    running = fiber;
    threadIdx = {fiber->thread, 0, 0};
    if (_setjmp(scheduler)) return;
    if (fiber->begun) _longjmp(fiber->place, 1);
    fiber->begun = true;
    setcontext(&fiber->context);
}

// Releases the threads whose barrier is complete: those of warps first, of the block if no thread waits in a warp.
// Returns whether any was released.
static bool release() {
    bool any = false;
    for (unsigned warp = 0; warp < threads; warp += 32) {
        unsigned end = warp + 32 < threads ? warp + 32 : threads, there = 0, gone = 0;
        for (unsigned t = warp; t < end; t++) {
            there |= (waits[t] == AT_WARP ? 1u : 0u) << (t - warp);
            gone |= (waits[t] == ENDED ? 1u : 0u) << (t - warp);
        }
        for (unsigned t = end - warp; t < 32; t++) gone |= 1u << t;
        for (unsigned t = warp; t < end; t++) {
            if (waits[t] == AT_WARP && (warp_masks[t] & ~(there | gone)) == 0) {
                waits[t] = RUNS;
                any = true;
            }
        }
    }
    if (any) return true;
    for (unsigned t = 0; t < threads; t++)
        if (waits[t] == AT_WARP) return false;
    for (unsigned t = 0; t < threads; t++)
        if (waits[t] == AT_BLOCK) waits[t] = RUNS, any = true;
    return any;
}

static void run_block(const char* name) {
    next_thread = 0;
    unsigned used = 0;
    std::memset(waits, 0, sizeof waits);
    while (next_thread < threads) {
        Fiber* fiber = &fibers[used++];
        if (!fiber->stack) {
            fiber->stack = static_cast<char*>(std::malloc(STACK_BYTES));
            getcontext(&fiber->context);
            fiber->context.uc_stack.ss_sp = fiber->stack;
            fiber->context.uc_stack.ss_size = STACK_BYTES;
            fiber->context.uc_link = nullptr;
            makecontext(&fiber->context, fiber_main, 0);
        }
        resume(fiber);
    }
    for (;;) {
        bool all_ended = true;
        for (unsigned t = 0; t < threads; t++) {
            if (waits[t] == ENDED) continue;
            all_ended = false;
        }
        if (all_ended) return;
        if (!release()) {
            std::fprintf(stderr, "emulator: %s: threads wait at different barriers\n", name);
            std::abort();
        }
        for (unsigned t = 0; t < threads; t++)
            if (waits[t] == RUNS) resume(&fibers[fiber_of[t]]);
    }
}

template <class... Args, size_t... I>
static void unpack(void (*kernel)(Args...), void** args, std::integer_sequence<size_t, I...>) {
    kernel(*static_cast<std::remove_cv_t<std::remove_reference_t<Args>>*>(args[I])...);
}

template <auto kernel, class... Args>
static void call(void (*)(Args...), void* args) {
    unpack(kernel, static_cast<void**>(args), std::make_index_sequence<sizeof...(Args)>());
}

template <auto kernel>
static void run(const char* name, void** args, const unsigned* blocks, unsigned block_threads) {
    body = [](void* args) { call<kernel>(kernel, args); };
    body_args = args;
    threads = block_threads;
    blockDim = {threads, 1, 1};
    gridDim = {blocks[0], blocks[1], blocks[2]};
    for (unsigned z = 0; z < blocks[2]; z++)
        for (unsigned y = 0; y < blocks[1]; y++)
            for (unsigned x = 0; x < blocks[0]; x++) {
                blockIdx = {x, y, z};
                // Fills the beginning of dynamic shared memory with noise, so that a kernel which relies on zeros
                // fails.
                std::memset(dynamic_shared, 0xa5, sizeof dynamic_shared / 16);
                run_block(name);
            }
}

// Exchanges `value` between the lanes of a warp: `see` is called with a function that maps a lane to its value.
template <class T, class See>
static void together(T value, See see, unsigned mask = 0xffffffffu) {
    static_assert(sizeof(T) <= sizeof slots[0], "a lane gives no more at a time");
    unsigned t = threadIdx.x;
    std::memcpy(slots[t], &value, sizeof value);
    give_way(AT_WARP, mask);
    see([&](unsigned from) {
        T given;
        std::memcpy(&given, slots[t / 32 * 32 + from % 32], sizeof given);
        return given;
    });
    give_way(AT_WARP, mask);
}
template <class T>
static T exchange(unsigned mask, T value, unsigned from) {
    T result;
    together(value, [&](auto of) { result = of(from); }, mask);
    return result;
}

// Asynchronous copies may complete at any time until they are waited for. Those of even threads complete at once, which
// exposes a buffer that is overwritten while others still read it; those of odd threads complete as late as possible,
// which exposes a missing wait.
struct Copy {
    void* to;
    unsigned char bytes[16];
    int size;
};
static std::vector<Copy> copies[THREADS_MAX];
static void copy_behind(void* to, const void* from, int size) {
    if ((uintptr_t(to) | uintptr_t(from)) % size) {
        std::fprintf(stderr, "emulator: a copy of %d bytes from %p to %p\n", size, from, to);
        std::abort();
    }
    Copy copy = {to, {}, size};
    if (from) std::memcpy(copy.bytes, from, size);
    if (threadIdx.x % 2) copies[threadIdx.x].push_back(copy);
    else std::memcpy(to, copy.bytes, size);
}
static void wait_for_copies() {
    for (const Copy& copy : copies[threadIdx.x]) std::memcpy(copy.to, copy.bytes, copy.size);
    copies[threadIdx.x].clear();
}
}  // namespace emulator

static inline void __syncthreads() { emulator::give_way(emulator::AT_BLOCK); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { emulator::give_way(emulator::AT_WARP, mask); }
static inline void __threadfence() {}
static inline void __threadfence_system() {}
template <class T>
static T __shfl_sync(unsigned mask, T value, int lane, int = 32) {
    return emulator::exchange(mask, value, unsigned(lane));
}
template <class T>
static T __shfl_xor_sync(unsigned mask, T value, int lanes, int = 32) {
    return emulator::exchange(mask, value, (threadIdx.x % 32) ^ unsigned(lanes));
}
template <class T>
static T __shfl_down_sync(unsigned mask, T value, unsigned by, int = 32) {
    unsigned lane = threadIdx.x % 32;
    return emulator::exchange(mask, value, lane + by < 32 ? lane + by : lane);
}
template <class T>
static T __shfl_up_sync(unsigned mask, T value, unsigned by, int = 32) {
    unsigned lane = threadIdx.x % 32;
    return emulator::exchange(mask, value, lane >= by ? lane - by : lane);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
    unsigned votes = 0;
    auto count = [&](auto of) {
        for (unsigned lane = 0; lane < 32; lane++)
            if (mask >> lane & 1) votes |= of(lane) << lane;
    };
    emulator::together(unsigned(predicate != 0), count, mask);
    return votes;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

template <class T>
static T atomicAdd(T* at, T value) { T old = *at; *at = T(old + value); return old; }
template <class T>
static T atomicMax(T* at, T value) { T old = *at; if (value > old) *at = value; return old; }
template <class T>
static T atomicMin(T* at, T value) { T old = *at; if (value < old) *at = value; return old; }
template <class T>
static T atomicExch(T* at, T value) { T old = *at; *at = value; return old; }
template <class T>
static T atomicOr(T* at, T value) { T old = *at; *at = old | value; return old; }
template <class T>
static T atomicCAS(T* at, T expected, T value) { T old = *at; if (old == expected) *at = value; return old; }

template <class To, class From>
static To emulator_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x) { return emulator_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return emulator_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return emulator_bits<float>(x); }
static inline float __int_as_float(int x) { return emulator_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emulator_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emulator_bits<double>(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
template <class T>
static T __ldg(const T* at) { return *at; }
static inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
static inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
static inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
static inline float __fdividef(float a, float b) { return a / b; }
// glibc has a function of this name.
#define __expf(x) std::exp(float(x))
using std::abs; using std::acos; using std::acosh; using std::asin; using std::asinh; using std::atan; using std::atan2;
using std::atanh; using std::ceil; using std::copysign; using std::cos; using std::cosh; using std::erf; using std::erfc;
using std::exp; using std::exp2; using std::expm1; using std::fabs; using std::floor; using std::fma; using std::fmax;
using std::fmin; using std::fmod; using std::isfinite; using std::isinf; using std::isnan; using std::lgamma;
using std::log; using std::log10; using std::log1p; using std::log2; using std::nearbyint; using std::nextafter;
using std::pow; using std::rint; using std::round; using std::signbit; using std::sin; using std::sinh; using std::sqrt;
using std::tan; using std::tanh; using std::tgamma; using std::trunc;
template <class T>
static T min(T a, T b) { return b < a ? b : a; }
template <class T>
static T max(T a, T b) { return a < b ? b : a; }
