// A detector of data races between the threads of a launch, for the emulated device.
//
// The kernels are compiled with `-fsanitize=thread`, which inserts a call before each access to memory. This library
// has those functions in place of ThreadSanitizer's runtime, which knows no blocks, warps or shared memory: it keeps
// the last four accesses of eight bytes, where a warp has 32 threads, and neither masks of warps nor copies that nobody
// has waited for can be told it.
//
// Two accesses of a byte by different threads race if at least one writes, not both are atomic, and no barrier orders
// them (happens-before, Lamport 1978): `__syncthreads` orders all threads of a block; `__syncwarp`, shuffles and votes
// those of a warp's mask; nothing orders the blocks of a launch. Each byte remembers its last write and up to three
// reads of different threads (as FastTrack does, Flanagan and Freund 2009): a write after more reads than three may
// miss a race. Shared memory that no thread of the block has written is not to be read.
//
// The first finding of a launch is kept for `races_report`.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>

namespace {
constexpr unsigned THREADS_MAX = 1024;
constexpr int READS_MAX = 3;
constexpr uintptr_t PAGE_BYTES = 4096;
constexpr int SHARED_RANGES_MAX = 2;
constexpr unsigned ATOMIC = 1u << 31;
constexpr int STEP_BITS = 21;
// The step of a copy that may not have happened yet, which no barrier orders.
constexpr unsigned PENDING = (1u << STEP_BITS) - 1;

// An access: the run, which numbers the blocks of all launches; the thread, how many barriers it had passed, and
// whether the access is atomic; and the lower half of the address of the code.
struct Stamp {
    uint32_t run, who, code;
    unsigned thread() const { return who >> STEP_BITS & (THREADS_MAX - 1); }
    unsigned step() const { return who & PENDING; }
    bool atomic() const { return who & ATOMIC; }
};

// The accesses of one byte.
struct Cell {
    Stamp write, reads[READS_MAX];
};

// Cells lie in leaves, each for 16 MiB of addresses, mapped when it is first needed.
constexpr int LEAF_BITS = 24, ADDRESS_BITS = 47;
constexpr uintptr_t LEAF_MASK = (uintptr_t(1) << LEAF_BITS) - 1;
std::atomic<Cell*> leaves[1u << (ADDRESS_BITS - LEAF_BITS)];
std::atomic<uint32_t> next_run{1};

struct Range {
    uintptr_t start, end;
    bool has(uintptr_t at) const { return at >= start && at < end; }
};

// The launch that this thread of the host executes.
struct Execution {
    const char* kernel;
    unsigned blocks[3], threads;
    Range own, stack, shared[SHARED_RANGES_MAX];
    int shared_count;
    bool running;
    uint32_t first_run, run;
    unsigned block[3];
    unsigned thread;
    // The number of barriers that each thread has passed.
    unsigned step[THREADS_MAX];
    // The steps of each thread below these numbers have been seen: by all threads of the block, at its barriers; by all
    // threads of the warp, at barriers that all of them take part in; and by each thread of the warp.
    unsigned seen_by_block[THREADS_MAX], seen_by_warp[THREADS_MAX], seen[THREADS_MAX][32];
    // The masks of the threads that a barrier of their warp releases.
    unsigned joining[THREADS_MAX];
    char report[1024];
};
thread_local Execution* execution;

Cell* leaf_at(uintptr_t at) {
    auto& leaf = leaves[at >> LEAF_BITS];
    Cell* cells = leaf.load(std::memory_order_acquire);
    if (cells) return cells;
    const size_t bytes = sizeof(Cell) << LEAF_BITS;
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        std::perror("emulator: races: mmap");
        std::abort();
    }
    if (leaf.compare_exchange_strong(cells, static_cast<Cell*>(mapped))) return static_cast<Cell*>(mapped);
    munmap(mapped, bytes);
    return cells;
}

// Forgets the accesses of a range, whose memory is given back.
void forget(Range range) {
    for (uintptr_t at = range.start; at < range.end;) {
        uintptr_t next = ((at >> LEAF_BITS) + 1) << LEAF_BITS, end = next < range.end ? next : range.end;
        if (Cell* cells = leaves[at >> LEAF_BITS].load(std::memory_order_acquire)) {
            uintptr_t first = uintptr_t(cells + (at & LEAF_MASK));
            uintptr_t last = uintptr_t(cells + ((end - 1) & LEAF_MASK) + 1);
            first = (first + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1), last &= ~(PAGE_BYTES - 1);
            if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
        }
        at = end;
    }
}

// Whether the running thread has synchronized with the thread of an access since that.
bool is_ordered(const Execution& e, Stamp stamp) {
    if (stamp.run < e.first_run) return true;
    if (stamp.run != e.run) return false;
    unsigned other = stamp.thread();
    if (other == e.thread || stamp.step() < e.seen_by_block[other]) return true;
    if (other / 32 != e.thread / 32) return false;
    return stamp.step() < e.seen_by_warp[other] || stamp.step() < e.seen[e.thread][other % 32];
}

// The line of the code that made an access, where binutils and the module's file are there. `within` is an address in
// the same module.
void describe_code(uint32_t code, const void* within, char* text, size_t bytes) {
    Dl_info module;
    text[0] = 0;
    if (!dladdr(within, &module) || !module.dli_fname) return;
    char command[600], line[400];
    const uint32_t offset = code - uint32_t(uintptr_t(module.dli_fbase)) - 1;
    const char* format = "LD_PRELOAD= addr2line -e '%s' -i 0x%x 2>/dev/null";
    std::snprintf(command, sizeof command, format, module.dli_fname, offset);
    FILE* pipe = popen(command, "r");
    if (!pipe) return;
    // The innermost line that is not the emulator's.
    while (std::fgets(line, sizeof line, pipe)) {
        line[std::strcspn(line, " \n")] = 0;
        const char* slash = std::strrchr(line, '/');
        const char* name = slash ? slash + 1 : line;
        if (std::strncmp(name, "fibers.h:", 9) == 0 || std::strncmp(name, "emulator.h:", 11) == 0) continue;
        std::snprintf(text, bytes, " (%.100s)", name);
        break;
    }
    pclose(pipe);
}

const char* verb(bool writes, bool atomic) {
    if (atomic) return writes ? "changes atomically" : "reads atomically";
    return writes ? "writes" : "reads";
}

// Keeps the first finding of a launch: `now` conflicts with `other`, or reads what nobody has written.
void report(Execution& e, bool is_shared, bool writes, Stamp now, const Stamp* other, bool other_writes,
            const void* code) {
    if (e.report[0]) return;
    char here[128], there[128], who[64];
    describe_code(now.code, code, here, sizeof here);
    const auto [x, y, z] = e.block;
    if (!other) {
        std::snprintf(e.report, sizeof e.report,
                      "%s: thread %u of block (%u, %u, %u) reads shared memory that no thread of the block has "
                      "written%s",
                      e.kernel, e.thread, x, y, z, here);
        return;
    }
    describe_code(other->code, code, there, sizeof there);
    const char* block = other->run == e.run ? "the same" : "another";
    std::snprintf(who, sizeof who, "thread %u of %s block", other->thread(), block);
    std::snprintf(e.report, sizeof e.report,
                  "%s: a race in %s memory: thread %u of block (%u, %u, %u) %s%s what %s %s%s, with no barrier between",
                  e.kernel, is_shared ? "shared" : "global", e.thread, x, y, z, verb(writes, now.atomic()), here, who,
                  verb(other_writes, other->atomic()), there);
}

// Whether the block has written shared memory that it reads: at least one byte of every eight, since the compiler
// copies a struct with the padding between its fields.
bool is_written(const Execution& e, uintptr_t at, size_t bytes) {
    for (uintptr_t word = at, end = at + bytes; word < end;) {
        uintptr_t next = (word | 7) + 1 < end ? (word | 7) + 1 : end;
        bool any = false;
        for (; word < next; word++) any = any || leaf_at(word)[word & LEAF_MASK].write.run == e.run;
        if (!any) return false;
    }
    return true;
}

void access(const void* address, size_t bytes, bool writes, bool atomic, const void* code) {
    Execution* e = execution;
    uintptr_t at = uintptr_t(address);
    if (!e || !e->running || e->stack.has(at) || e->own.has(at) || at >> ADDRESS_BITS) return;
    const uint32_t who = e->thread << STEP_BITS | e->step[e->thread] | (atomic ? ATOMIC : 0);
    const Stamp now = {e->run, who, uint32_t(uintptr_t(code))};
    bool is_shared = false;
    for (int i = 0; i < e->shared_count; i++) is_shared = is_shared || e->shared[i].has(at);
    // Every block has shared memory of its own, although here it is at the same addresses.
    const auto conflicts = [&](Stamp other) {
        return !(atomic && other.atomic()) && !(is_shared && other.run != e->run) && !is_ordered(*e, other);
    };
    if (is_shared && !writes && !is_written(*e, at, bytes))
        return report(*e, is_shared, writes, now, nullptr, false, code);
    for (size_t i = 0; i < bytes; i++, at++) {
        Cell& cell = leaf_at(at)[at & LEAF_MASK];
        if (conflicts(cell.write)) return report(*e, is_shared, writes, now, &cell.write, true, code);
        if (writes) {
            for (const Stamp& read : cell.reads)
                if (conflicts(read)) return report(*e, is_shared, writes, now, &read, false, code);
            cell.write = now;
            continue;
        }
        // This read takes the place of the thread's own last one, or of one that is ordered before it.
        Stamp* place = nullptr;
        for (Stamp& read : cell.reads) {
            if (read.run == e->run && read.thread() == e->thread) {
                place = &read;
                break;
            }
            if (!place && is_ordered(*e, read)) place = &read;
        }
        if (place) *place = now;
    }
}
}  // namespace

#define HERE __builtin_return_address(0)

extern "C" {
void races_begin(const char* kernel, const unsigned* blocks, unsigned threads, const void* own, size_t own_bytes) {
    if (!execution) execution = static_cast<Execution*>(std::calloc(1, sizeof(Execution)));
    Execution& e = *execution;
    e.kernel = kernel;
    std::memcpy(e.blocks, blocks, sizeof e.blocks);
    e.threads = threads;
    e.own = {uintptr_t(own), uintptr_t(own) + own_bytes};
    e.shared_count = 0;
    e.report[0] = 0;
    e.first_run = next_run.fetch_add(blocks[0] * blocks[1] * blocks[2]);
    e.run = e.first_run - 1;
    e.running = true;
}
void races_shared(const void* start, const void* end) {
    Execution& e = *execution;
    e.shared[e.shared_count++] = {uintptr_t(start), uintptr_t(end)};
}
void races_block(unsigned x, unsigned y, unsigned z) {
    Execution& e = *execution;
    e.run++;
    e.block[0] = x, e.block[1] = y, e.block[2] = z;
    std::memset(e.step, 0, sizeof e.step);
    std::memset(e.seen_by_block, 0, sizeof e.seen_by_block);
    std::memset(e.seen_by_warp, 0, sizeof e.seen_by_warp);
    std::memset(e.seen, 0, e.threads * sizeof e.seen[0]);
}
void races_thread(unsigned thread, const void* stack, size_t stack_bytes) {
    Execution& e = *execution;
    e.thread = thread;
    e.stack = {uintptr_t(stack), uintptr_t(stack) + stack_bytes};
}
void races_join_block() {
    Execution& e = *execution;
    for (unsigned t = 0; t < e.threads; t++) e.seen_by_block[t] = ++e.step[t];
}
// A thread is released from a barrier of its warp, for which the threads of `mask` have come.
void races_join_warp(unsigned thread, unsigned mask) { execution->joining[thread] = mask; }
// The threads that a barrier of a warp releases have been told of by `races_join_warp`; `first` begins the warp. `whole`
// if all its other threads have ended or wait for the same barrier.
void races_joined_warp(unsigned first, bool whole) {
    Execution& e = *execution;
    const unsigned end = first + 32 < e.threads ? 32 : e.threads - first;
    unsigned released = 0;
    for (unsigned lane = 0; lane < end; lane++) released |= (e.joining[first + lane] ? 1u : 0u) << lane;
    for (unsigned lane = 0; lane < end; lane++)
        if (e.joining[first + lane]) whole = whole && e.joining[first + lane] == released;
    // The steps that each thread had seen before the barrier. Masks that differ are rare, and take a pass over all triples.
    unsigned before[32][32];
    if (!whole) std::memcpy(before, e.seen[first], end * sizeof before[0]);
    for (unsigned lane = 0; lane < end; lane++) {
        const unsigned mask = e.joining[first + lane], thread = first + lane;
        if (!mask) continue;
        if (whole) {
            e.seen_by_warp[thread] = e.step[thread] + 1;
            continue;
        }
        for (unsigned other = 0; other < end; other++) {
            if (!(mask >> other & 1)) continue;
            unsigned* seen = e.seen[thread];
            for (unsigned third = 0; third < 32; third++)
                if (before[other][third] > seen[third]) seen[third] = before[other][third];
            if (e.step[first + other] + 1 > seen[other]) seen[other] = e.step[first + other] + 1;
        }
    }
    for (unsigned lane = 0; lane < end; lane++) {
        if (e.joining[first + lane]) e.step[first + lane]++;
        e.joining[first + lane] = 0;
    }
}
void races_read(const void* at, size_t bytes) { access(at, bytes, false, false, HERE); }
void races_write(const void* at, size_t bytes) { access(at, bytes, true, false, HERE); }
// A copy that its thread has begun and not waited for.
void races_pending(const void* at, size_t bytes) {
    Execution& e = *execution;
    access(at, bytes, true, false, HERE);
    for (uintptr_t byte = uintptr_t(at); byte < uintptr_t(at) + bytes; byte++)
        leaf_at(byte)[byte & LEAF_MASK].write = {e.run, e.thread << STEP_BITS | PENDING, uint32_t(uintptr_t(HERE))};
}
void races_atomic(const void* at, size_t bytes) { access(at, bytes, true, true, HERE); }
void races_end() {
    Execution& e = *execution;
    e.running = false;
    for (int i = 0; i < e.shared_count; i++) forget(e.shared[i]);
}
// The finding of the last launch of this thread of the host, empty if there is none.
const char* races_report() { return execution ? execution->report : ""; }

// The functions that the compiler calls.
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
#define ACCESS(bytes)                                                                        \
    void __tsan_read##bytes(void* at) { access(at, bytes, false, false, HERE); }             \
    void __tsan_write##bytes(void* at) { access(at, bytes, true, false, HERE); }             \
    void __tsan_unaligned_read##bytes(void* at) { access(at, bytes, false, false, HERE); }   \
    void __tsan_unaligned_write##bytes(void* at) { access(at, bytes, true, false, HERE); }   \
    void __tsan_volatile_read##bytes(void* at) { access(at, bytes, false, true, HERE); }     \
    void __tsan_volatile_write##bytes(void* at) { access(at, bytes, true, true, HERE); }     \
    void __tsan_unaligned_volatile_read##bytes(void* at) { access(at, bytes, false, true, HERE); } \
    void __tsan_unaligned_volatile_write##bytes(void* at) { access(at, bytes, true, true, HERE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* at, size_t bytes) { access(at, bytes, false, false, HERE); }
void __tsan_write_range(void* at, size_t bytes) { access(at, bytes, true, false, HERE); }
}
