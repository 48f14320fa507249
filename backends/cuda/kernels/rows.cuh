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
    // The packs of each operand that are loaded before the first is used; numbers of two registers leave room for fewer.
    static constexpr int AHEAD = (V == 1 ? 4 : 2) / (sizeof(T) == 8 && N == 2 ? 2 : 1);
    const Lanes<T, V> *from[N];
    i64 packs;
    u32 lane, size;
    Lanes<T, V> kept[PACKS > 0 ? PACKS : 1][N];
    C held[PACKS > 0 ? PACKS : 1][V];

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

    // Keeps `f(element)` of each element beside it, in registers, for `write_held`. Only where rows are kept.
    template <typename F>
    __device__ __forceinline__ void hold(const F &f) {
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (p * size + lane < packs)
#pragma unroll
                for (int k = 0; k < V; k++) held[p][k] = f(to_compute(kept[p][0].at[k]));
    }

    // Writes the results of `f(what is held of the element)`.
    template <typename F>
    __device__ __forceinline__ void write_held(T *to, const F &f) const {
#pragma unroll
        for (int p = 0; p < PACKS; p++)
            if (p * size + lane < packs) {
                Lanes<T, V> made;
#pragma unroll
                for (int k = 0; k < V; k++) put(&made.at[k], f(held[p][k]));
                ((Lanes<T, V> *)to)[p * size + lane] = made;
            }
    }

    template <typename F>
    __device__ __forceinline__ void packs_of(const F &f) const {
        if constexpr (PACKS > 0) {
#pragma unroll
            for (int p = 0; p < PACKS; p++)
                if (p * size + lane < packs) f(i64(p * size + lane), kept[p]);
        } else {
            // Several loads are in flight before the first is used.
            i64 pack = lane;
            for (; pack + (AHEAD - 1) * i64(size) < packs; pack += AHEAD * i64(size)) {
                Lanes<T, V> lanes[AHEAD][N];
#pragma unroll
                for (int a = 0; a < AHEAD; a++)
#pragma unroll
                    for (int n = 0; n < N; n++) lanes[a][n] = from[n][pack + a * i64(size)];
#pragma unroll
                for (int a = 0; a < AHEAD; a++) f(pack + a * i64(size), lanes[a]);
            }
#pragma unroll 1
            for (; pack < packs; pack += size) {
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
        row.packs_of([&](i64, const Lanes<T, V>(&lanes)[1]) {
            C most = exps.largest;
#pragma unroll
            for (int k = 0; k < V; k++) most = to_compute(lanes[0].at[k]) > most ? to_compute(lanes[0].at[k]) : most;
            if (most > exps.largest) {
                exps.sum *= exp(exps.largest - most);
                exps.largest = most;
            }
            // Positive infinity makes the sum NaN.
#pragma unroll
            for (int k = 0; k < V; k++) {
                C x = to_compute(lanes[0].at[k]);
                exps.sum += x == Ends<C>::low() ? C(0) : exp(x - exps.largest);
            }
        });
    }
    return joined<JoinExps<C>>(team, exps);
}

// Writes the softmax of a row in registers, with one exponential for each element: each thread divides its elements by
// the exponential of its own largest one, until it knows the row's.
template <typename T, int V, int PACKS>
GT_DEVICE void softmax_of_kept(T *to, const Team &team, Rows<T, 1, V, PACKS> &row) {
    typedef typename Compute<T>::type C;
    Exps<C> own = {Ends<C>::low(), C(0)};
    row.each([&](i64, const C(&x)[1]) { own.largest = x[0] > own.largest ? x[0] : own.largest; });
    // A thread whose elements are all negative infinity, or none, subtracts 0: their exponentials are 0, not NaN.
    C base = own.largest == Ends<C>::low() ? C(0) : own.largest;
    row.hold([&](C x) {
        C e = exp(x - base);
        own.sum += e;
        return e;
    });
    Exps<C> all = joined<JoinExps<C>>(team, own);
    C share = C(1) / all.sum, factor = own.largest == all.largest ? share : exp(own.largest - all.largest) * share;
    row.write_held(to, [&](C e) { return e * factor; });
}

template <typename T, bool LOG, int V, int PACKS>
GT_DEVICE void softmax(T *to, const T *from, i64 rows, i64 columns, u32 size) {
    typedef typename Compute<T>::type C;
    Team team(size);
    GT_FOR_TEAMS(team, at, rows) {
        Rows<T, 1, V, PACKS> row(team, {from + at * columns}, at < rows ? columns : 0);
        if constexpr (!LOG && PACKS > 0) {
            softmax_of_kept(to + at * columns, team, row);
            continue;
        }
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
