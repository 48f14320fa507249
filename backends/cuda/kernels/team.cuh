// Threads that work on one thing together, such as a row.
#pragma once
#include "elementwise.cuh"
#include "walk.cuh"

// 2, 4, 8, 16 or 32 neighbours in a warp, a thread alone, or all threads of a block. Teams take things in turn.
struct Team {
    // Threads, and which of them this is.
    u32 size, lane;
    // Which of its block's teams, which of all, and how many there are.
    u32 place;
    i64 index, count;

    __device__ __forceinline__ explicit Team(u32 size) : size(size) {
        lane = threadIdx.x & (size - 1);
        place = threadIdx.x / size;
        index = i64(blockIdx.x) * (blockDim.x / size) + place;
        count = i64(gridDim.x) * (blockDim.x / size);
    }
};

// The thing `at` of each turn. All threads of a block take the same number of turns, as they meet to join what they
// have: in the last, `at` may be beyond the end.
#define GT_FOR_TEAMS(team, at, things) for (i64 at = team.index; at - team.place < (things); at += team.count)

template <typename S>
GT_DEVICE S shuffled_xor(S x, u32 lanes) {
    return __shfl_xor_sync(0xffffffffu, x, lanes);
}

// What all threads of the team have, joined by `F::join`; all of them get it. The order is always the same.
template <typename F>
GT_DEVICE typename F::State joined(const Team &team, typename F::State x) {
    u32 within = team.size < 32 ? team.size : 32;
    for (u32 lanes = within / 2; lanes > 0; lanes /= 2) x = F::join(x, shuffled_xor(x, lanes));
    if (team.size <= 32) return x;
    __shared__ typename F::State parts[32];
    u32 warps = team.size / 32;
    // Nobody reads any more what was joined before.
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[threadIdx.x % warps];
    for (u32 lanes = warps / 2; lanes > 0; lanes /= 2) x = F::join(x, shuffled_xor(x, lanes));
    return x;
}
