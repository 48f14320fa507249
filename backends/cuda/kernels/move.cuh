// Copies between layouts, of elements of any type.
#pragma once
#include "walk.cuh"

// The widest unit of a copy. A unit is an element of 1 to 8 bytes, or several consecutive elements of up to 16 bytes.
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

// A transposing copy: elements of a column are contiguous in the source, those of a row in the destination. Square
// tiles pass through shared memory, so that both global accesses are coalesced. Blocks have 256 threads.
//
// Smaller elements have larger tiles, so that each warp still covers whole 32-byte sectors. Rows are padded by a 4-byte
// word, or by an element if that is larger, so that reading a column causes no bank conflicts.
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

// The first elements of the operands of a concatenation, and the end of each one's columns in a row of the result.
template <int PARTS>
struct Parts {
    const void *from[PARTS];
    i64 ends[PARTS];
};

// Concatenates contiguous operands along the columns; rows of the result are `pitch` apart.
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
