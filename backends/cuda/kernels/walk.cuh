// Row-major iteration over strided operands of one shape.
#pragma once
#include "types.cuh"

constexpr int RANK_MAX = 8;

// Division by a size that is fixed at launch; see `Divider` in `launch.rs`.
struct Divider {
    i64 size;
    // x / size is ((x * multiplier >> 32) + x) >> shift for x below 2^31 (Granlund and Montgomery 1994). A multiplier
    // of 0 means that x may be larger and is divided.
    u32 multiplier, shift;

    // Returns the quotient; x becomes the remainder.
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

    // The offset of element `i`, in row-major order, in each operand.
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

// A grid-stride loop.
#define GT_FOR_EACH(i, items) \
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < (items); i += i64(gridDim.x) * blockDim.x)
