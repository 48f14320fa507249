// Copies of elements, whatever they are, between layouts.
#pragma once
#include "walk.cuh"

// What is copied together: elements of 1 to 8 bytes, or several that follow each other, up to 16 bytes.
struct alignas(16) u128 {
    u64 halves[2];
};

template <typename T>
GT_DEVICE void copy(T *__restrict__ to, const T *__restrict__ from, i64 count, const Walk<2> &walk) {
    GT_FOR_EACH(i, count) {
        i64 at[2];
        walk.offsets(i, at);
        to[at[0]] = from[at[1]];
    }
}

// A copy where the elements of a column follow each other in the source and those of a row in the destination: square
// tiles go through shared memory, so that both are accessed along what follows each other there. Threads are 256.
//
// Small elements have larger tiles, so that each warp still covers whole sectors. Rows are padded to an odd number of
// words: reading a column then touches every bank once.
template <typename T>
GT_DEVICE void transpose(T *__restrict__ to, const T *__restrict__ from, i64 width, i64 height, i64 to_step,
                         i64 from_step, i64 batches, const Walk<2> &batch) {
    constexpr int TILE = sizeof(T) < 4 ? 64 : 32, PAD = sizeof(T) < 4 ? 4 / sizeof(T) : 1, WARPS = 8;
    __shared__ T tile[TILE][TILE + PAD];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i64 across = (width + TILE - 1) / TILE, down = (height + TILE - 1) / TILE;
    for (i64 t = blockIdx.x; t < across * down * batches; t += gridDim.x) {
        i64 at[2], number = t / (across * down), place = t % (across * down);
        batch.offsets(number, at);
        i64 x0 = place % across * TILE, y0 = place / across * TILE;
        T *target = to + at[0] + y0 * to_step + x0;
        const T *source = from + at[1] + x0 * from_step + y0;
        int columns = int(min(width - x0, i64(TILE))), rows = int(min(height - y0, i64(TILE)));
#pragma unroll
        for (int x = warp; x < TILE; x += WARPS)
            for (int y = lane; y < TILE; y += 32)
                if (x < columns && y < rows) tile[x][y] = source[x * from_step + y];
        __syncthreads();
#pragma unroll
        for (int y = warp; y < TILE; y += WARPS)
            for (int x = lane; x < TILE; x += 32)
                if (x < columns && y < rows) target[y * to_step + x] = tile[x][y];
        __syncthreads();
    }
}

// Where each of several operands begins that are laid side by side, and where its share of a row of the result ends.
template <int PARTS>
struct Parts {
    const void *from[PARTS];
    i64 ends[PARTS];
};

// Rows of the result, `pitch` apart, each made of a stretch of every part; the parts' stretches follow each other.
template <typename T, int PARTS>
GT_DEVICE void concatenate(T *__restrict__ to, i64 count, i64 pitch, Divider width, int parts,
                           const Parts<PARTS> &operands) {
    GT_FOR_EACH(i, count) {
        i64 column = i, row = width.divide(column);
        int low = 0, high = parts - 1;
        while (low < high) {
            int middle = (low + high) / 2;
            if (column < operands.ends[middle]) high = middle;
            else low = middle + 1;
        }
        i64 begin = low > 0 ? operands.ends[low - 1] : 0, length = operands.ends[low] - begin;
        to[row * pitch + column] = ((const T *)operands.from[low])[row * length + column - begin];
    }
}
