// Tensor cores: a warp's products of small matrices of f16, bf16 or tf32, and the copies and loads that feed them.
//
// These are the three groups of PTX instructions in use, as functions that a whole warp calls: `mma.sync` with f32
// accumulators (`m16n8k16` of halves, `m16n8k8` of tf32), `ldmatrix` and `cp.async`. T = f32 stands for tf32: f32 whose
// lower 13 bits the products ignore. In emulation, lanes read each other's registers and compute the same
// from the layouts that the PTX ISA documents (9.7.14, "Matrix multiply-accumulate operation using mma instruction").
#pragma once
#include "types.cuh"

// 1. Registers. Lane i holds four bytes of row i / 4 of a matrix of 8 rows of 16 bytes, in one register: columns
// i % 4 * 2 and i % 4 * 2 + 1 of halves, or column i % 4 of tf32. Larger fragments consist of such matrices.

template <typename T>
GT_DEVICE T narrow_to(f32 x) {
    T y;
    put(&y, x);
    return y;
}

// Two numbers rounded to T, the first in the lower 16 bits.
template <typename T>
GT_DEVICE u32 packed(f32 first, f32 second) {
    return narrow_to<T>(first).bits | u32(narrow_to<T>(second).bits) << 16;
}
#ifndef GT_EMULATED
template <>
__device__ __forceinline__ u32 packed<bf16>(f32 first, f32 second) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}
template <>
__device__ __forceinline__ u32 packed<f16>(f32 first, f32 second) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}
#endif

// The bits of a number rounded to tf32, which has 10 bits of mantissa.
GT_DEVICE u32 rounded_to_tf32(f32 x) {
#ifdef GT_EMULATED
    return (x == x ? bits_of(x) + 0x1000 : 0x7fffffffu) & 0xffffe000u;
#else
    u32 bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
#endif
}

// 2. Products: sums += a b. `sums` is 16 by 8, its upper half in the first two numbers. `a` has 16 rows of 32 bytes
// (16 halves or 8 numbers of tf32), its quarters in the order upper left, lower left, upper right, lower right. `b` has
// 8 columns as high as a row of `a` is long, its upper and lower half each transposed.

// `multiply` is the same with sums of 0, which take no registers.

#ifdef GT_EMULATED
template <typename T>
GT_DEVICE void multiply_add(f32 (&sums)[4], const u32 (&a)[4], u32 b_upper, u32 b_lower) {
    struct Given {
        u32 a[4], b[2];
    } given = {{a[0], a[1], a[2], a[3]}, {b_upper, b_lower}};
    auto half = [](u32 both, int which) { return to_compute(T{u16(both >> 16 * which)}); };
    emulator::together(given, [&](auto of) {
        // The lane's two rows of `a`, each spread over four lanes, and its two columns of `b`.
        const int lane = threadIdx.x % 32;
        f32 rows[2][16], columns[2][16];
        for (int k = 0; k < 16; k++) {
            Given left = of(lane / 4 * 4 + k % 8 / 2);
            for (int i = 0; i < 2; i++) {
                rows[i][k] = half(left.a[i + k / 8 * 2], k % 2);
                columns[i][k] = half(of((lane % 4 * 2 + i) * 4 + k % 8 / 2).b[k / 8], k % 2);
            }
        }
        for (int c = 0; c < 4; c++)
            for (int k = 0; k < 16; k++) sums[c] += rows[c / 2][k] * columns[c % 2][k];
    });
}
template <>
void multiply_add<f32>(f32 (&sums)[4], const u32 (&a)[4], u32 b_upper, u32 b_lower) {
    struct Given {
        u32 a[4], b[2];
    } given = {{a[0], a[1], a[2], a[3]}, {b_upper, b_lower}};
    emulator::together(given, [&](auto of) {
        const int lane = threadIdx.x % 32;
        auto number = [](u32 bits) { return float_of(bits & 0xffffe000u); };
        for (int c = 0; c < 4; c++)
            for (int k = 0; k < 8; k++)
                sums[c] += number(of(lane / 4 * 4 + k % 4).a[c / 2 + k / 4 * 2]) *
                           number(of((lane % 4 * 2 + c % 2) * 4 + k % 4).b[k / 4]);
    });
}
template <typename T>
GT_DEVICE void multiply(f32 (&sums)[4], const u32 (&a)[4], u32 b_upper, u32 b_lower) {
    for (f32 &sum : sums) sum = 0.0f;
    multiply_add<T>(sums, a, b_upper, b_lower);
}
#else
// The asm is volatile, so that the compiler does not move it into a divergent branch.
template <typename T>
__device__ __forceinline__ void multiply_add(f32 (&sums)[4], const u32 (&a)[4], u32 b_upper, u32 b_lower);
template <typename T>
__device__ __forceinline__ void multiply(f32 (&sums)[4], const u32 (&a)[4], u32 b_upper, u32 b_lower);
#define GT_MMA(T, SHAPE, NAME)                                                                                        \
    template <>                                                                                                       \
    __device__ __forceinline__ void multiply_add<T>(f32(&sums)[4], const u32(&a)[4], u32 b_upper, u32 b_lower) {      \
        asm volatile(                                                                                                 \
            "mma.sync.aligned." SHAPE ".row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "       \
            "{%8, %9}, {%0, %1, %2, %3};"                                                                             \
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                              \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_upper), "r"(b_lower));                                \
    }                                                                                                                 \
    template <>                                                                                                       \
    __device__ __forceinline__ void multiply<T>(f32(&sums)[4], const u32(&a)[4], u32 b_upper, u32 b_lower) {          \
        asm volatile(                                                                                                 \
            "mma.sync.aligned." SHAPE ".row.col.f32." NAME "." NAME ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "       \
            "{%8, %9}, {%10, %10, %10, %10};"                                                                         \
            : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3])                                              \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_upper), "r"(b_lower), "f"(0.0f));                     \
    }
GT_MMA(f16, "m16n8k16", "f16")
GT_MMA(bf16, "m16n8k16", "bf16")
GT_MMA(f32, "m16n8k8", "tf32")
#undef GT_MMA
#endif

// 3. Shared memory, and its addresses, which may be computed with.

#ifdef GT_EMULATED
typedef u64 Shared;
GT_DEVICE Shared shared_address(const void *at) { return (u64)at; }
GT_DEVICE void *dynamic_shared() { return emulator::state->dynamic_shared; }
#else
typedef u32 Shared;
GT_DEVICE Shared shared_address(const void *at) {
    u32 address;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(at));
    return address;
}
extern __shared__ __align__(1024) u8 gt_dynamic_shared[];
// The dynamic shared memory, which begins at a multiple of 1 KiB; each launch sets its size.
GT_DEVICE void *dynamic_shared() { return gt_dynamic_shared; }
#endif

// Loads four bytes of shared memory.
GT_DEVICE u32 load_word(Shared at) {
#ifdef GT_EMULATED
    return *(const u32 *)at;
#else
    u32 word;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(at) : "memory");
    return word;
#endif
}

// 4. `ldmatrix`: loads four matrices of 8 rows from shared memory. Lane i passes the address of row i % 8 of matrix
// i / 8, 16 aligned bytes. TURNED transposes each matrix of halves.
template <bool TURNED>
GT_DEVICE void load_matrices(u32 (&to)[4], Shared row) {
#ifdef GT_EMULATED
    emulator::together(row, [&](auto of) {
        const int lane = threadIdx.x % 32;
        for (int matrix = 0; matrix < 4; matrix++) {
            auto at = [&](int i, int j) { return u32(((const u16 *)of(matrix * 8 + i))[j]); };
            int i = lane / 4, j = lane % 4 * 2;
            to[matrix] = TURNED ? at(j, i) | at(j + 1, i) << 16 : at(i, j) | at(i, j + 1) << 16;
        }
    });
#else
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(row)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(row)
                     : "memory");
#endif
}

// 5. `cp.async`: asynchronous copies of 16 bytes to shared memory; both addresses are multiples of 16. If not `there`,
// zeros are written and `from` is not read. The copying thread sees the bytes after `wait_for_copies`, the other
// threads after the next barrier.
GT_DEVICE void copy_behind(Shared to, const void *from, bool there) {
#ifdef GT_EMULATED
    emulator::copy_behind((void *)to, there ? from : nullptr, 16);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
#endif
}
GT_DEVICE void wait_for_copies() {
#ifdef GT_EMULATED
    emulator::wait_for_copies();
#else
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
