// Steps of a long short-term memory (Hochreiter and Schmidhuber 1997).
#pragma once
#include "math.cuh"
#include "walk.cuh"

template <typename C>
GT_DEVICE C gate(C x) {
    return C(1) / (C(1) + exp(-x));
}

// From rows of the sums of the gates, 4 `size` elements, and of cell states: rows of hidden states and cell states side
// by side.
template <typename T>
GT_DEVICE void lstm_cell(T *to, const T *gates, const T *cells, i64 rows, i64 size) {
    typedef typename Compute<T>::type C;
    GT_FOR_EACH(i, rows * size) {
        const i64 row = i / size, at = i % size;
        const T *sums = gates + row * 4 * size + at;
        const C after = gate(load(sums + size)) * load(cells + i) + gate(load(sums)) * tanh(load(sums + 2 * size));
        T *result = to + row * 2 * size + at;
        store(result, gate(load(sums + 3 * size)) * tanh(after));
        store(result + size, after);
    }
}
