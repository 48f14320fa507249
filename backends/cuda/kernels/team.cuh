// Teams of threads that cooperate on one item, such as a row.
#pragma once
#include "elementwise.cuh"
#include "walk.cuh"

// A team: a power of two of consecutive threads of a warp, one thread, or all threads of a block.
struct Team {
    // The number of threads, and this thread's index among them.
    u32 size, lane;
    // The team's index in its block and in the grid, and the number of teams in the grid.
    u32 place;
    i64 index, count;

    __device__ __forceinline__ explicit Team(u32 size) : size(size) {
        lane = threadIdx.x & (size - 1);
        place = threadIdx.x / size;
        index = i64(blockIdx.x) * (blockDim.x / size) + place;
        count = i64(gridDim.x) * (blockDim.x / size);
    }
};

// A grid-stride loop over items, one per team. All threads of a block make the same number of iterations, since
// `joined` has barriers; in the last one `at` may be past the end.
#define GT_FOR_TEAMS(team, at, things) for (i64 at = team.index; at - team.place < (things); at += team.count)

template <typename S>
GT_DEVICE S shuffled_xor(S x, u32 lanes) {
    return __shfl_xor_sync(0xffffffffu, x, lanes);
}

// Reduces `x` over the team with `F::join`: warp shuffles in a butterfly, then across the warps of a block through
// shared memory. Every thread gets the result, and the order is fixed.
template <typename F>
GT_DEVICE typename F::State joined(const Team &team, typename F::State x) {
    u32 within = team.size < 32 ? team.size : 32;
    for (u32 lanes = within / 2; lanes > 0; lanes /= 2) x = F::join(x, shuffled_xor(x, lanes));
    if (team.size <= 32) return x;
    __shared__ typename F::State parts[32];
    u32 warps = team.size / 32;
    // Every thread has finished reading the parts of the previous call.
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[threadIdx.x % warps];
    for (u32 lanes = warps / 2; lanes > 0; lanes /= 2) x = F::join(x, shuffled_xor(x, lanes));
    return x;
}
