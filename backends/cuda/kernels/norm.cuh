// Layer normalization (CENTRE) and RMS normalization, and their gradients.
#pragma once
#include "rows.cuh"

// The mean of a row (0 without CENTRE) and 1 / sqrt(variance + eps).
template <typename C>
struct Moments {
    C mean, factor;
};

// The moments of a row of operand 0, in two passes.
template <bool CENTRE, typename T, int N, int V, int PACKS>
GT_DEVICE Moments<typename Compute<T>::type> moments_of(const Team &team, const Rows<T, N, V, PACKS> &row, i64 columns,
                                                        f64 eps) {
    typedef typename Compute<T>::type C;
    C mean = C(0), squares = C(0);
    if (CENTRE) {
        row.each([&](i64, const C(&x)[N]) { mean += x[0]; });
        mean = joined<Sum<C>>(team, mean) / C(columns);
    }
    row.each([&](i64, const C(&x)[N]) { squares = fma(x[0] - mean, x[0] - mean, squares); });
    squares = joined<Sum<C>>(team, squares);
    return {mean, C(1) / sqrt(squares / C(columns) + C(eps))};
}

template <typename T, bool CENTRE, int V, int PACKS>
GT_DEVICE void norm(T *to, const T *from, Numbers weight, Numbers bias, f64 eps, i64 rows, i64 columns, u32 size) {
    typedef typename Compute<T>::type C;
    Team team(size);
    GT_FOR_TEAMS(team, at, rows) {
        Rows<T, 1, V, PACKS> row(team, {from + at * columns}, at < rows ? columns : 0);
        Moments<C> moments = moments_of<CENTRE>(team, row, columns, eps);
        row.write(to + at * columns, [&](i64 column, const C(&x)[1]) {
            return fma((x[0] - moments.mean) * moments.factor, number_of<T>(weight, column), number_of<T>(bias, column));
        });
    }
}

template <typename C>
struct Pulls {
    C along, level;
};
template <typename C>
GT_DEVICE Pulls<C> shuffled_xor(Pulls<C> x, u32 lanes) {
    return {shuffled_xor(x.along, lanes), shuffled_xor(x.level, lanes)};
}
template <typename C>
struct JoinPulls {
    typedef Pulls<C> State;
    GT_FOLD State join(State a, State b) { return {a.along + b.along, a.level + b.level}; }
};

template <typename T, bool CENTRE, int V, int PACKS>
GT_DEVICE void norm_backward(T *to, const T *grad, const T *from, Numbers weight, f64 eps, i64 rows, i64 columns,
                             u32 size) {
    typedef typename Compute<T>::type C;
    Team team(size);
    GT_FOR_TEAMS(team, at, rows) {
        Rows<T, 2, V, PACKS> row(team, {from + at * columns, grad + at * columns}, at < rows ? columns : 0);
        Moments<C> moments = moments_of<CENTRE>(team, row, columns, eps);
        C mean = moments.mean, factor = moments.factor, share = C(1) / C(columns);
        // The sums over the row of the gradient times the weight: multiplied with the centred input (`along`), and
        // plain (`level`). Both components are subtracted from the input's gradient, `level` with CENTRE only.
        Pulls<C> pulls = {C(0), C(0)};
        row.each([&](i64 column, const C(&x)[2]) {
            C pull = x[1] * number_of<T>(weight, column);
            pulls.along = fma(x[0] - mean, pull, pulls.along);
            pulls.level += pull;
        });
        pulls = joined<JoinPulls<C>>(team, pulls);
        C along = -(pulls.along * factor * factor * factor * share);
        C level = CENTRE ? -(pulls.level * factor * share) : C(0);
        row.write(to + at * columns, [&](i64 column, const C(&x)[2]) {
            return fma(x[0] - mean, along, fma(x[1] * number_of<T>(weight, column), factor, level));
        });
    }
}

// Writes the moments of each row.
template <typename T, bool CENTRE, int V, int PACKS>
GT_DEVICE void norm_moments(Moments<typename Compute<T>::type> *to, const T *from, f64 eps, i64 rows, i64 columns,
                            u32 size) {
    Team team(size);
    GT_FOR_TEAMS(team, at, rows) {
        Rows<T, 1, V, PACKS> row(team, {from + at * columns}, at < rows ? columns : 0);
        auto moments = moments_of<CENTRE>(team, row, columns, eps);
        if (at < rows && team.lane == 0) to[at] = moments;
    }
}

// First pass of the gradients of weight and bias: for each piece of `each` rows, a row of `columns` sums of the
// gradient times the normalized input, then one of the gradient. Blocks have 32 columns by 8 rows of threads.
template <typename T, bool CENTRE>
GT_DEVICE void norm_weight_sums(typename Compute<T>::type *parts, const T *grad, const T *from,
                                const Moments<typename Compute<T>::type> *moments, i64 rows, i64 columns, i64 each) {
    typedef typename Compute<T>::type C;
    __shared__ C weights[8][33], biases[8][33];
    u32 lane = threadIdx.x % 32, line = threadIdx.x / 32;
    i64 column = i64(blockIdx.x) * 32 + lane, first = blockIdx.y * each;
    i64 last = first + each < rows ? first + each : rows;
    C weight = C(0), bias = C(0);
    if (column < columns) {
#pragma unroll 4
        for (i64 row = first + line; row < last; row += 8) {
            C g = load(grad + row * columns + column), x = load(from + row * columns + column);
            weight = fma(g, (x - moments[row].mean) * moments[row].factor, weight);
            if (CENTRE) bias += g;
        }
    }
    weights[line][lane] = weight;
    biases[line][lane] = bias;
    __syncthreads();
    if (line > 0 || column >= columns) return;
    for (int other = 1; other < 8; other++) {
        weight += weights[other][lane];
        bias += biases[other][lane];
    }
    parts[blockIdx.y * 2 * columns + column] = weight;
    parts[(blockIdx.y * 2 + 1) * columns + column] = bias;
}

// Second pass: adds up the pieces for the first `sums` of those sums.
template <typename T>
GT_DEVICE void norm_weight_join(T *to, const typename Compute<T>::type *parts, i64 sums, i64 columns, i64 pieces) {
    typedef typename Compute<T>::type C;
    GT_FOR_EACH(i, sums) {
        f64 total = 0;
        for (i64 piece = 0; piece < pieces; piece++) total += parts[piece * 2 * columns + i];
        store(to + i, C(total));
    }
}
