// Walking strided operands of one shape in row-major order.
#pragma once
#include "types.cuh"

constexpr int RANK_MAX = 8;

// Sizes of the axes, outermost first, and the strides of N operands in elements. See `Walk` in `launch.rs`.
template <int N>
struct Walk {
    i64 rank;
    i64 sizes[RANK_MAX];
    i64 strides[N][RANK_MAX];

    // Where each operand's element is that comes as number `i`.
    __device__ __forceinline__ void offsets(i64 i, i64 (&at)[N]) const {
        for (int n = 0; n < N; n++) at[n] = 0;
        for (int axis = int(rank) - 1; axis > 0; axis--) {
            i64 rest = i / sizes[axis], index = i - rest * sizes[axis];
            for (int n = 0; n < N; n++) at[n] += index * strides[n][axis];
            i = rest;
        }
        for (int n = 0; n < N; n++) at[n] += i * strides[n][0];
    }
};

// The first item of a thread and how far it is to its next, where a grid takes all items in turn.
#define GT_FOR_EACH(i, items) \
    for (i64 i = i64(blockIdx.x) * blockDim.x + threadIdx.x; i < (items); i += i64(gridDim.x) * blockDim.x)
