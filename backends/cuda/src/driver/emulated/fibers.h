// CUDA on the CPU, for tests: how one thread of the host executes the blocks and threads of a launch.
//
// Threads of a block are fibers that yield at barriers and shuffles. A barrier that some threads of the block never
// reach aborts the program with a message, where a device would hang. Blocks run one after another.
//
// A launch's seed shuffles the order of blocks, of threads, and of warps that wait at the same time; a seed of 0 keeps
// them in order. Shared memory, which a device leaves undefined, is overwritten before each block.
#pragma once
#define GT_EMULATED 1
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#ifndef __x86_64__
#include <ucontext.h>
#endif

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

// The emulator's own variables. They are outside .bss, which thus has nothing but the kernels' shared memory.
#define EMULATOR_DATA __attribute__((section(".data")))
// Functions of the emulator whose accesses to memory are no kernel's, and those that report their accesses themselves.
#define EMULATOR_UNCHECKED __attribute__((no_sanitize("address,thread,undefined")))
#define EMULATOR_REPORTED __attribute__((no_sanitize("thread")))

EMULATOR_DATA static uint3 threadIdx = {0, 0, 0}, blockIdx = {0, 0, 0}, blockDim = {0, 0, 0}, gridDim = {0, 0, 0};
static const int warpSize = 32;

// The beginning and the end of this module's .bss.
extern "C" char __bss_start[] __attribute__((visibility("hidden")));
extern "C" char _end[] __attribute__((visibility("hidden")));

namespace emulator {
// Code that a sanitizer has changed needs larger frames.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t STACK_BYTES = 1 << 20;
#else
constexpr size_t STACK_BYTES = 128 << 10;
#endif
constexpr unsigned THREADS_MAX = 1024;
// The most copies of a thread that are on their way at once.
constexpr unsigned COPIES_MAX = 128;
enum Wait { RUNS, AT_BLOCK, AT_WARP, ENDED };

// The arguments of a launch: `struct Launch` of `mod.rs`.
struct Launch {
    void** args;
    unsigned blocks[3], threads, shared_bytes;
    uint64_t seed;
};

// A stack that can be switched to.
struct Context {
#ifdef __x86_64__
    void* top;
#else
    ucontext_t context;
#endif
};

struct Fiber {
    Context context;
    char* stack;
    unsigned thread;
};

struct Copy {
    void* to;
    unsigned char bytes[16];
    int size;
};

struct State {
    Fiber fibers[THREADS_MAX];
    Context scheduler;
    Fiber* running;
    Wait waits[THREADS_MAX];
    unsigned warp_masks[THREADS_MAX];
    // The fiber of each thread, and the order in which threads begin.
    unsigned fiber_of[THREADS_MAX], order[THREADS_MAX];
    unsigned threads, begun;
    uint64_t random;
    void (*body)(void*);
    void* body_args;
    unsigned char* dynamic_shared;
    Copy copies[THREADS_MAX][COPIES_MAX];
    unsigned copies_count[THREADS_MAX];
    alignas(32) unsigned char slots[THREADS_MAX][32];
};
EMULATOR_DATA static State* state = nullptr;
}  // namespace emulator

#ifdef __SANITIZE_THREAD__
// The detector of races, `races.cpp`.
extern "C" {
void races_begin(const char* kernel, const unsigned* blocks, unsigned threads, const void* own, size_t own_bytes);
void races_shared(const void* start, const void* end);
void races_block(unsigned x, unsigned y, unsigned z);
void races_thread(unsigned thread, const void* stack, size_t stack_bytes);
void races_join_block();
void races_join_warp(unsigned thread, unsigned mask);
void races_joined_warp(unsigned first, bool whole);
void races_read(const void* at, size_t bytes);
void races_write(const void* at, size_t bytes);
void races_pending(const void* at, size_t bytes);
void races_atomic(const void* at, size_t bytes);
void races_end();
}
#define EMULATOR_RACES(call) call
#else
#define EMULATOR_RACES(call) (void)0
#endif

#ifdef __x86_64__
// Saves the registers that a function keeps on the stack, its top in `from`, and continues where `to` was saved.
extern "C" void emulator_switch(void** from, void* to) __attribute__((visibility("hidden")));
asm(R"(
    .pushsection .text
    .local emulator_switch
    .type emulator_switch, @function
emulator_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size emulator_switch, . - emulator_switch
    .popsection
)");
#endif

namespace emulator {
static inline void switch_to(Context* from, Context* to) {
#ifdef __x86_64__
    emulator_switch(&from->top, to->top);
#else
    swapcontext(&from->context, &to->context);
#endif
}

// A number below `count`, by xorshift64* (Vigna 2016).
EMULATOR_UNCHECKED static unsigned random_below(unsigned count) {
    uint64_t& x = state->random;
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    return unsigned(((x * 0x2545f4914f6cdd1dull >> 32) * count) >> 32);
}

EMULATOR_UNCHECKED static void enter(Fiber* fiber) {
    state->running = fiber;
    threadIdx = {fiber->thread, 0, 0};
    EMULATOR_RACES(races_thread(fiber->thread, fiber->stack, STACK_BYTES));
}

// Yields to the scheduler until the barrier of the block or of the warp's `mask` is complete.
EMULATOR_UNCHECKED __noinline__ static void give_way(Wait wait, unsigned mask = 0xffffffffu) {
    Fiber* self = state->running;
    state->waits[self->thread] = wait;
    state->warp_masks[self->thread] = mask;
    switch_to(&self->context, &state->scheduler);
}

// A fiber runs one thread after another until one of them waits; another fiber then runs the remaining threads. When
// none are left, the fiber waits for the next block.
EMULATOR_UNCHECKED static void fiber_main() {
    Fiber* self = state->running;
    for (;;) {
        while (state->begun < state->threads) {
            self->thread = state->order[state->begun++];
            state->fiber_of[self->thread] = unsigned(self - state->fibers);
            state->waits[self->thread] = RUNS;
            enter(self);
            state->body(state->body_args);
            state->waits[self->thread] = ENDED;
        }
        switch_to(&self->context, &state->scheduler);
    }
}

EMULATOR_UNCHECKED static void prepare(Fiber* fiber) {
    fiber->stack = static_cast<char*>(std::malloc(STACK_BYTES));
#ifdef __x86_64__
    // Six registers, the address to return to, and none that this returns to: a function begins 8 bytes below a
    // multiple of 16.
    void** top = reinterpret_cast<void**>(fiber->stack + STACK_BYTES) - 8;
    for (int i = 0; i < 8; i++) top[i] = nullptr;
    top[6] = reinterpret_cast<void*>(&fiber_main);
    fiber->context.top = top;
#else
    getcontext(&fiber->context.context);
    fiber->context.context.uc_stack.ss_sp = fiber->stack;
    fiber->context.context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.context.uc_link = nullptr;
    makecontext(&fiber->context.context, fiber_main, 0);
#endif
}

EMULATOR_UNCHECKED static void resume(Fiber* fiber) {
    enter(fiber);
    switch_to(&state->scheduler, &fiber->context);
}

// Releases the threads whose barrier is complete: those of warps first, of the block if no thread waits in a warp.
// Returns whether any was released. With a seed, some of the complete warps may wait longer.
EMULATOR_UNCHECKED static bool release() {
    const unsigned threads = state->threads;
    Wait* waits = state->waits;
    bool any = false, waiting = false;
    for (int attempt = 0; attempt < 2 && !any; attempt++) {
        for (unsigned warp = 0; warp < threads; warp += 32) {
            unsigned end = warp + 32 < threads ? warp + 32 : threads, there = 0, gone = 0;
            for (unsigned t = warp; t < end; t++) {
                there |= (waits[t] == AT_WARP ? 1u : 0u) << (t - warp);
                gone |= (waits[t] == ENDED ? 1u : 0u) << (t - warp);
            }
            waiting = waiting || there;
            for (unsigned t = end - warp; t < 32; t++) gone |= 1u << t;
            if (there && attempt == 0 && state->random && random_below(2)) continue;
            bool released = false;
            for (unsigned t = warp; t < end; t++) {
                if (waits[t] == AT_WARP && (state->warp_masks[t] & ~(there | gone)) == 0) {
                    waits[t] = RUNS;
                    EMULATOR_RACES(races_join_warp(t, state->warp_masks[t] & there));
                    released = true;
                }
            }
            if (released) EMULATOR_RACES(races_joined_warp(warp, (there | gone) == 0xffffffffu));
            any = any || released;
        }
    }
    if (any || waiting) return any;
    for (unsigned t = 0; t < threads; t++)
        if (waits[t] == AT_BLOCK) waits[t] = RUNS, any = true;
    if (any) EMULATOR_RACES(races_join_block());
    return any;
}

// Overwrites memory: with bytes that are NaN in every type of floating-point numbers, or with others.
EMULATOR_UNCHECKED static void poison(char* start, char* end) {
    const char byte = state->random & 1 ? char(0xa5) : char(0xff);
    // Not `memset`, which a sanitizer replaces, and which refuses the gaps that it leaves between variables.
#ifdef __x86_64__
    size_t bytes = size_t(end - start);
    asm volatile("rep stosb" : "+D"(start), "+c"(bytes) : "a"(byte) : "memory");
#else
    for (volatile char* at = start; at < end; at++) *at = byte;
#endif
}

EMULATOR_UNCHECKED static void run_block(const char* name) {
    // The linker puts a variable of one byte, of the C runtime, first.
    poison(__bss_start + 1, _end);
    state->begun = 0;
    unsigned used = 0;
    const unsigned threads = state->threads;
    for (unsigned t = 0; t < threads; t++) state->order[t] = t, state->waits[t] = RUNS;
    if (state->random)
        for (unsigned t = threads; t > 1; t--) std::swap(state->order[t - 1], state->order[random_below(t)]);
    while (state->begun < threads) {
        Fiber* fiber = &state->fibers[used++];
        if (!fiber->stack) prepare(fiber);
        resume(fiber);
    }
    for (;;) {
        bool all_ended = true;
        for (unsigned t = 0; t < threads; t++) all_ended = all_ended && state->waits[t] == ENDED;
        if (all_ended) return;
        if (!release()) {
            std::fprintf(stderr, "emulator: %s: threads wait at different barriers\n", name);
            std::abort();
        }
        for (unsigned i = 0; i < threads; i++) {
            unsigned t = state->order[i];
            if (state->waits[t] == RUNS) resume(&state->fibers[state->fiber_of[t]]);
        }
    }
}

template <class... Args, size_t... I>
EMULATOR_UNCHECKED static void unpack(void (*kernel)(Args...), void** args, std::integer_sequence<size_t, I...>) {
    kernel(*static_cast<std::remove_cv_t<std::remove_reference_t<Args>>*>(args[I])...);
}

template <auto kernel, class... Args>
EMULATOR_UNCHECKED static void call(void (*)(Args...), void* args) {
    unpack(kernel, static_cast<void**>(args), std::make_index_sequence<sizeof...(Args)>());
}

static inline unsigned common_divisor(unsigned a, unsigned b) { return b ? common_divisor(b, a % b) : a; }

template <auto kernel>
EMULATOR_UNCHECKED static void run(const char* name, const Launch& launch) {
    if (!state) state = static_cast<State*>(std::calloc(1, sizeof(State)));
    state->body = [](void* args) { call<kernel>(kernel, args); };
    state->body_args = launch.args;
    state->threads = launch.threads;
    state->random = launch.seed;
    // An allocation of its own, so that the address sanitizer finds accesses beyond its end.
    const size_t shared_bytes = launch.shared_bytes;
    void* dynamic_shared = nullptr;
    if (shared_bytes && posix_memalign(&dynamic_shared, 1024, shared_bytes)) std::abort();
    state->dynamic_shared = static_cast<unsigned char*>(dynamic_shared);
    blockDim = {launch.threads, 1, 1};
    gridDim = {launch.blocks[0], launch.blocks[1], launch.blocks[2]};
    EMULATOR_RACES(races_begin(name, launch.blocks, launch.threads, state, sizeof(State)));
    EMULATOR_RACES(races_shared(__bss_start + 1, _end));
    EMULATOR_RACES(races_shared(state->dynamic_shared, state->dynamic_shared + shared_bytes));
    // With a seed, blocks run in steps that visit each of them once.
    const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    unsigned step = 1, block = 0;
    if (state->random && blocks > 1) {
        block = random_below(blocks);
        do step = 1 + random_below(blocks - 1); while (common_divisor(step, blocks) != 1);
    }
    for (unsigned i = 0; i < blocks; i++) {
        blockIdx = {block % gridDim.x, block / gridDim.x % gridDim.y, block / gridDim.x / gridDim.y};
        block = unsigned((uint64_t(block) + step) % blocks);
        char* dynamic = reinterpret_cast<char*>(state->dynamic_shared);
        poison(dynamic, dynamic + shared_bytes);
        EMULATOR_RACES(races_block(blockIdx.x, blockIdx.y, blockIdx.z));
        run_block(name);
    }
    EMULATOR_RACES(races_end());
    std::free(state->dynamic_shared);
}

// Exchanges `value` between the lanes of a warp: `see` is called with a function that maps a lane to its value.
template <class T, class See>
EMULATOR_REPORTED static void together(T value, See see, unsigned mask = 0xffffffffu) {
    static_assert(sizeof(T) <= sizeof state->slots[0], "a lane gives no more at a time");
    unsigned t = threadIdx.x;
    std::memcpy(state->slots[t], &value, sizeof value);
    give_way(AT_WARP, mask);
    see([&](unsigned from) {
        T given;
        std::memcpy(&given, state->slots[t / 32 * 32 + from % 32], sizeof given);
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
EMULATOR_REPORTED static void copy_behind(void* to, const void* from, int size) {
    if ((uintptr_t(to) | uintptr_t(from)) % size) {
        std::fprintf(stderr, "emulator: a copy of %d bytes from %p to %p\n", size, from, to);
        std::abort();
    }
    Copy copy = {to, {}, size};
    if (from) std::memcpy(copy.bytes, from, size);
    if (from) EMULATOR_RACES(races_read(from, size));
    EMULATOR_RACES(races_pending(to, size));
    const unsigned thread = threadIdx.x;
    if (thread % 2 == 0) std::memcpy(to, copy.bytes, size);
    if (state->copies_count[thread] == COPIES_MAX) {
        std::fprintf(stderr, "emulator: a thread waits for none of %u copies\n", COPIES_MAX);
        std::abort();
    }
    state->copies[thread][state->copies_count[thread]++] = copy;
}
EMULATOR_REPORTED static void wait_for_copies() {
    const unsigned thread = threadIdx.x;
    for (unsigned i = 0; i < state->copies_count[thread]; i++) {
        const Copy& copy = state->copies[thread][i];
        if (thread % 2) std::memcpy(copy.to, copy.bytes, copy.size);
        EMULATOR_RACES(races_write(copy.to, copy.size));
    }
    state->copies_count[thread] = 0;
}
}  // namespace emulator
