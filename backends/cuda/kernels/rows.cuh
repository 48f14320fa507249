// Ops on contiguous rows, one team of threads per row: softmax here, normalization and losses in their own files.
//
// A row that fits in the team's registers is read once; a longer one is read again, mostly from a cache.
#pragma once
#include "reduce.cuh"

// A scalar, or a value for each column.
struct Numbers {
    const void *first;
    f64 number;
};
template <typename T>
GT_DEVICE typename Compute<T>::type number_of(const Numbers &numbers, i64 column) {
    typedef typename Compute<T>::type C;
    return numbers.first ? load((const T *)numbers.first + column) : C(numbers.number);
}

// The same row of N operands. Each thread has every `size`-th pack of V elements: up to PACKS of them in registers or,
// if PACKS is 0, any number, read from memory in each pass.
template <typename T, int N, int V, int PACKS>
struct Rows {
    typedef typename Compute<T>::type C;
    const Lanes<T, V> *from[N];
    i64 packs;
    u32 lane, size;
    Lanes<T, V> kept[PACKS > 0 ? PACKS : 1][N];

    __device__ __forceinline__ Rows(const Team &team, const T *const (&rows)[N], i64 columns)
        : packs(columns / V), lane(team.lane), size(team.size) {
#pragma unroll
        for (int n = 0; n < N; n++) from[n] = (const Lanes<T, V> *)rows[n];
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (p * size + lane < packs)
#pragma unroll
                for (int n = 0; n < N; n++) kept[p][n] = from[n][p * size + lane];
    }

    // Calls `f(column, elements)` for each column of this thread.
    template <typename F>
    __device__ __forceinline__ void each(const F &f) const {
        packs_of([&](i64 pack, const Lanes<T, V>(&lanes)[N]) {
#pragma unroll
            for (int k = 0; k < V; k++) {
                C x[N];
#pragma unroll
                for (int n = 0; n < N; n++) x[n] = to_compute(lanes[n].at[k]);
                f(pack * V + k, x);
            }
        });
    }

    // Writes the results of `f(column, elements)`.
    template <typename F>
    __device__ __forceinline__ void write(T *to, const F &f) const {
        packs_of([&](i64 pack, const Lanes<T, V>(&lanes)[N]) {
            Lanes<T, V> made;
#pragma unroll
            for (int k = 0; k < V; k++) {
                C x[N];
#pragma unroll
                for (int n = 0; n < N; n++) x[n] = to_compute(lanes[n].at[k]);
                put(&made.at[k], f(pack * V + k, x));
            }
            ((Lanes<T, V> *)to)[pack] = made;
        });
    }

    template <typename F>
    __device__ __forceinline__ void packs_of(const F &f) const {
        if constexpr (PACKS > 0) {
#pragma unroll
            for (int p = 0; p < PACKS; p++)
                if (p * size + lane < packs) f(i64(p * size + lane), kept[p]);
        } else {
            for (i64 pack = lane; pack < packs; pack += size) {
                Lanes<T, V> lanes[N];
#pragma unroll
                for (int n = 0; n < N; n++) lanes[n] = from[n][pack];
                f(pack, lanes);
            }
        }
    }
};

// Joins two sums of exponentials: the online softmax (Milakov and Gimelshein 2018).
template <typename C>
struct JoinExps {
    typedef Exps<C> State;
    GT_FOLD State join(State a, State b) {
        C most = a.largest > b.largest ? a.largest : b.largest;
        // Equal maxima need no scaling, and the difference of equal infinities is NaN.
        C scaled_a = a.largest == most ? a.sum : a.sum * exp(a.largest - most);
        C scaled_b = b.largest == most ? b.sum : b.sum * exp(b.largest - most);
        return {most, scaled_a + scaled_b};
    }
};

// The sum of a row's exponentials. It is NaN if an element is NaN or positive infinity. Negative infinity adds 0, also
// in a thread with no other elements; if the whole row is negative infinity, the sum is 0 and the softmax NaN.
template <typename T, int V, int PACKS>
GT_DEVICE Exps<typename Compute<T>::type> exps_of(const Team &team, const Rows<T, 1, V, PACKS> &row) {
    typedef typename Compute<T>::type C;
    Exps<C> exps = {Ends<C>::low(), C(0)};
    if constexpr (PACKS > 0) {
        row.each([&](i64, const C(&x)[1]) { exps.largest = x[0] > exps.largest ? x[0] : exps.largest; });
        row.each([&](i64, const C(&x)[1]) { exps.sum += x[0] == Ends<C>::low() ? C(0) : exp(x[0] - exps.largest); });
    } else {
        row.each([&](i64, const C(&x)[1]) {
            if (x[0] > exps.largest) {
                // exp(0) = 1; NaN if x is positive infinity.
                exps.sum = exps.sum * exp(exps.largest - x[0]) + (C(1) + (x[0] - x[0]));
                exps.largest = x[0];
            } else if (x[0] != Ends<C>::low()) {
                exps.sum += exp(x[0] - exps.largest);
            }
        });
    }
    return joined<JoinExps<C>>(team, exps);
}

template <typename T, bool LOG, int V, int PACKS>
GT_DEVICE void softmax(T *to, const T *from, i64 rows, i64 columns, u32 size) {
    typedef typename Compute<T>::type C;
    Team team(size);
    GT_FOR_TEAMS(team, at, rows) {
        Rows<T, 1, V, PACKS> row(team, {from + at * columns}, at < rows ? columns : 0);
        Exps<C> exps = exps_of(team, row);
        C largest = exps.largest, log_sum = log(exps.sum), share = C(1) / exps.sum;
        row.write(to + at * columns, [&](i64, const C(&x)[1]) {
            return LOG ? x[0] - largest - log_sum : exp(x[0] - largest) * share;
        });
    }
}

// The input's gradient, from the result and its gradient.
template <typename T, bool LOG, int V, int PACKS>
GT_DEVICE void softmax_backward(T *to, const T *grad, const T *out, i64 rows, i64 columns, u32 size) {
    typedef typename Compute<T>::type C;
    Team team(size);
    GT_FOR_TEAMS(team, at, rows) {
        Rows<T, 2, V, PACKS> row(team, {grad + at * columns, out + at * columns}, at < rows ? columns : 0);
        C total = C(0);
        row.each([&](i64, const C(&x)[2]) { total = LOG ? total + x[0] : fma(x[0], x[1], total); });
        total = joined<Sum<C>>(team, total);
        row.write(to + at * columns, [&](i64, const C(&x)[2]) {
            return LOG ? x[0] - exp(x[1]) * total : (x[0] - total) * x[1];
        });
    }
}
