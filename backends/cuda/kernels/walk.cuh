// Walking strided operands of one shape in row-major order.
#pragma once
#include "types.cuh"

constexpr int RANK_MAX = 8;

// Division by a size that is known before the kernel runs; see `Divider` in `launch.rs`.
struct Divider {
    i64 size;
    // x / size is (x * multiplier >> 32) + x >> shift for x below 2^31 (Granlund and Montgomery 1994). No multiplier: x may
    // be larger.
    u32 multiplier, shift;

    // The quotient; x becomes the rest.
    __device__ __forceinline__ i64 divide(i64 &x) const {
        if (multiplier) {
            u32 small = u32(x), quotient = (__umulhi(small, multiplier) + small) >> shift;
            x = small - quotient * u32(size);
            return quotient;
        }
        i64 quotient = x / size;
        x -= quotient * size;
        return quotient;
    }
};

// Sizes of the axes, outermost first, and the strides of N operands in elements. See `Walk` in `launch.rs`.
template <int N>
struct Walk {
    i64 rank;
    Divider axes[RANK_MAX];
    i64 strides[N][RANK_MAX];

    // Where each operand's element is that comes as number `i`.
    __device__ __forceinline__ void offsets(i64 i, i64 (&at)[N]) const {
        for (int n = 0; n < N; n++) at[n] = 0;
        for (int axis = int(rank) - 1; axis > 0; axis--) {
            i64 index = i;
            i = axes[axis].divide(index);
            for (int n = 0; n < N; n++) at[n] += index * strides[n][axis];
        }
        for (int n = 0; n < N; n++) at[n] += i * strides[n][0];
    }
};

// The first item of a thread and how far it is to its next, where a grid takes all items in turn.
#define GT_FOR_EACH(i, items) \
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < (items); i += i64(gridDim.x) * blockDim.x)
