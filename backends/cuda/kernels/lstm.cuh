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

// The gradients of `lstm_cell`: rows of those of the sums of the gates, 4 `size` elements, and of the cell state.
template <typename T>
GT_DEVICE void lstm_cell_grad(T *to, const T *of_hidden, const T *of_cell, const T *gates, const T *before,
                              const T *after, i64 rows, i64 size) {
    typedef typename Compute<T>::type C;
    GT_FOR_EACH(i, rows * size) {
        const i64 row = i / size, at = i % size;
        const T *sums = gates + row * 4 * size + at;
        const C input = gate(load(sums)), forget = gate(load(sums + size)), output = gate(load(sums + 3 * size));
        const C candidate = tanh(load(sums + 2 * size)), squashed = tanh(load(after + i));
        const C hidden = load(of_hidden + i);
        const C cell = load(of_cell + i) + hidden * output * (C(1) - squashed * squashed);
        T *result = to + row * 5 * size + at;
        store(result, cell * candidate * input * (C(1) - input));
        store(result + size, cell * load(before + i) * forget * (C(1) - forget));
        store(result + 2 * size, cell * input * (C(1) - candidate * candidate));
        store(result + 3 * size, hidden * squashed * output * (C(1) - output));
        store(result + 4 * size, cell * forget);
    }
}
