// Binary search in sorted rows, and the positions of true elements.
#pragma once
#include "scan.cuh"

// For each wanted element, the number of sorted elements of its row that are less than it, or with RIGHT not greater.
// NaN sorts last. Each row of `count` sorted elements serves `row` wanted ones.
template <typename T, bool RIGHT>
GT_DEVICE void searchsorted(i64 *out, const T *sorted, const T *wanted, i64 elements, i64 row, i64 count) {
    GT_FOR_EACH(i, elements) {
        auto x = load(wanted + i);
        const T *first = sorted + i / row * count;
        i64 low = 0, high = count;
        while (low < high) {
            i64 middle = (low + high) / 2;
            auto y = load(first + middle);
            bool passed = x != x || (RIGHT ? y <= x : y < x);
            if (passed) low = middle + 1;
            else high = middle;
        }
        out[i] = low;
    }
}

constexpr int LOOKED_AT = 16;

// Counts the true elements of each block's 256 * LOOKED_AT.
GT_DEVICE void count_true(u64 *counts, const bool *mask, i64 elements) {
    i64 first = (i64(blockIdx.x) * 256 + threadIdx.x) * LOOKED_AT, found = 0;
    for (int k = 0; k < LOOKED_AT; k++) found += first + k < elements && mask[first + k];
    u64 all;
    before<ScanSum<i64>>(u64(found), all);
    if (threadIdx.x == 0) counts[blockIdx.x] = all;
}

// Writes the index of each true element along each axis, for the first `rows` of them; `starts` counts the true
// elements before each block.
GT_DEVICE void write_true(i64 *out, const u64 *starts, const bool *mask, i64 elements, i64 rows, const Walk<1> &shape) {
    i64 first = (i64(blockIdx.x) * 256 + threadIdx.x) * LOOKED_AT, found = 0;
    for (int k = 0; k < LOOKED_AT; k++) found += first + k < elements && mask[first + k];
    u64 all;
    i64 row = i64(starts[blockIdx.x] + before<ScanSum<i64>>(u64(found), all));
    for (int k = 0; k < LOOKED_AT && row < rows; k++) {
        if (first + k >= elements || !mask[first + k]) continue;
        i64 rest = first + k;
        for (int axis = int(shape.rank) - 1; axis >= 0; axis--) {
            i64 index = rest;
            rest = shape.axes[axis].divide(index);
            out[row * shape.rank + axis] = index;
        }
        row++;
    }
}
