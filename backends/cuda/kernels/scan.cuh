// Inclusive scans (prefix sums and the like) along an axis.
//
// A scan S over elements T defines its `State`: `start` is the neutral state, `lift` the state of one element at a
// position, `join` combines the states of two consecutive stretches, and `store` writes the result. Lines that are
// neighbours in memory are scanned by one thread each. Otherwise a block scans a line or, if the line is split, one
// piece: a first pass computes the total of each piece, a scan of the totals the start of each piece, a last pass the
// results.
#pragma once
#include "reduce.cuh"

// The lines along the scanned axis: their number, their length, the strides of operand and result along a line, and the
// walk over the other axes.
struct Lines {
    i64 lines, count, from_step, to_step;
    Walk<2> kept;
};

// Sums and products of f32 are accumulated in f64, as PyTorch does on the CPU.
template <typename T>
struct Carried {
    typedef typename Gathered<T>::type type;
};
template <>
struct Carried<f32> {
    typedef f64 type;
};

// Sums and products of integers are int64.
template <typename T>
struct Summed {
    typedef i64 type;
};
template <>
struct Summed<f16> {
    typedef f16 type;
};
template <>
struct Summed<bf16> {
    typedef bf16 type;
};
template <>
struct Summed<f32> {
    typedef f32 type;
};
template <>
struct Summed<f64> {
    typedef f64 type;
};

template <typename T>
struct ScanSum {
    typedef typename Summed<T>::type Out;
    typedef typename Carried<Out>::type State;
    typedef typename Compute<T>::type C;
    GT_FOLD State start() { return State(0); }
    GT_FOLD State lift(C x, i64) { return State(x); }
    GT_FOLD State join(State a, State b) { return a + b; }
    GT_FOLD void store(Out *to, State x) { ::store(to, typename Compute<Out>::type(x)); }
};
template <typename T>
struct ScanProd : ScanSum<T> {
    using typename ScanSum<T>::State;
    GT_FOLD State start() { return State(1); }
    GT_FOLD State join(State a, State b) { return a * b; }
};

// log-cumsum-exp: the state is the maximum and the sum of exp(x - maximum). NaN propagates; equal infinities count
// once.
template <typename T>
struct ScanExps {
    typedef Exps<f64> State;
    typedef typename Compute<T>::type C;
    typedef T Out;
    GT_FOLD State start() { return {Ends<f64>::low(), 0}; }
    GT_FOLD State lift(C x, i64) { return {f64(x), f64(x) == Ends<f64>::low() ? 0.0 : 1.0}; }
    GT_FOLD State join(State a, State b) {
        if (a.largest == b.largest && is_inf(a.largest)) return {a.largest, a.largest > 0 ? 1.0 : 0.0};
        if (b.largest <= a.largest) return {a.largest, a.sum + b.sum * exp(b.largest - a.largest)};
        return {b.largest, a.sum * exp(a.largest - b.largest) + b.sum};
    }
    GT_FOLD void store(T *to, State x) { ::store(to, C(x.largest + log(x.sum))); }
};

// The index of the last maximum or minimum so far, or of the last NaN.
template <typename T, bool MAX>
struct ScanPosition {
    typedef typename Compared<T>::type S;
    typedef Best<S> State;
    typedef typename Compute<T>::type C;
    typedef i64 Out;
    GT_FOLD State start() { return {S(0), -1}; }
    GT_FOLD State lift(C x, i64 at) { return {S(x), at}; }
    GT_FOLD State join(State a, State b) {
        if (b.index < 0) return a;
        if (a.index < 0) return b;
        bool reaches = MAX ? b.value >= a.value : b.value <= a.value;
        return b.value != b.value || (a.value == a.value && reaches) ? b : a;
    }
    GT_FOLD void store(i64 *to, State x) { *to = x.index; }
};

template <typename S>
GT_DEVICE S shuffled_up(S x, u32 lanes) {
    return __shfl_up_sync(0xffffffffu, x, lanes);
}
template <typename S>
GT_DEVICE Best<S> shuffled_up(Best<S> x, u32 lanes) {
    return {shuffled_up(x.value, lanes), shuffled_up(x.index, lanes)};
}
template <typename C>
GT_DEVICE Exps<C> shuffled_up(Exps<C> x, u32 lanes) {
    return {shuffled_up(x.largest, lanes), shuffled_up(x.sum, lanes)};
}

// The exclusive scan of `x` over a block of 256 threads; `all` becomes the total.
template <typename S>
GT_DEVICE typename S::State before(typename S::State x, typename S::State &all) {
    typedef typename S::State State;
    __shared__ State warps[8];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // An inclusive scan within the warp, in log2(32) steps (Hillis and Steele 1986).
    for (u32 lanes = 1; lanes < 32; lanes *= 2) {
        State other = shuffled_up(x, lanes);
        if (lane >= lanes) x = S::join(other, x);
    }
    __syncthreads();
    if (lane == 31) warps[warp] = x;
    x = shuffled_up(x, 1);
    __syncthreads();
    State so_far = S::start();
    all = S::start();
    for (u32 i = 0; i < 8; i++) {
        if (i == warp) so_far = all;
        all = S::join(all, warps[i]);
    }
    return lane == 0 ? so_far : S::join(so_far, x);
}

constexpr int SCANNED = 4;

// Scans pieces of `each` elements of each line. With TOTALS, only the total of each piece is written, to `totals`;
// otherwise the results, beginning with the state in `starts` unless that is null.
template <typename S, typename T, bool TOTALS>
GT_DEVICE void scan_lines(typename S::Out *out, typename S::State *totals, const typename S::State *starts, const T *from,
                          Lines lines, i64 pieces, i64 each) {
    typedef typename S::State State;
    for (i64 at = blockIdx.x; at < lines.lines * pieces; at += gridDim.x) {
        i64 line = at / pieces, piece = at - line * pieces, offsets[2];
        lines.kept.offsets(line, offsets);
        const T *first = from + offsets[0];
        i64 begin = piece * each, end = begin + each < lines.count ? begin + each : lines.count;
        State so_far = starts ? starts[at] : S::start();
        for (i64 chunk = begin; chunk < end; chunk += 256 * SCANNED) {
            i64 mine = chunk + threadIdx.x * SCANNED;
            State states[SCANNED], sum = S::start(), all;
#pragma unroll
            for (int k = 0; k < SCANNED; k++) {
                if (mine + k < end) sum = S::join(sum, S::lift(load(first + (mine + k) * lines.from_step), mine + k));
                states[k] = sum;
            }
            State start = S::join(so_far, before<S>(sum, all));
            if (!TOTALS)
#pragma unroll
                for (int k = 0; k < SCANNED; k++)
                    if (mine + k < end)
                        S::store(out + offsets[1] + (mine + k) * lines.to_step, S::join(start, states[k]));
            so_far = S::join(so_far, all);
        }
        if (TOTALS && threadIdx.x == 0) totals[at] = so_far;
    }
}

// Replaces the total of each piece of a line with the state that the piece starts from (an exclusive scan).
template <typename S>
GT_DEVICE void scan_starts(typename S::State *totals, i64 lines, i64 pieces) {
    typedef typename S::State State;
    for (i64 line = blockIdx.x; line < lines; line += gridDim.x) {
        State so_far = S::start(), all;
        for (i64 chunk = 0; chunk < pieces; chunk += 256) {
            i64 piece = chunk + threadIdx.x;
            State mine = piece < pieces ? totals[line * pieces + piece] : S::start();
            State start = S::join(so_far, before<S>(mine, all));
            if (piece < pieces) totals[line * pieces + piece] = start;
            so_far = S::join(so_far, all);
        }
    }
}

// Scans lines sequentially, one thread per line.
template <typename S, typename T>
GT_DEVICE void scan_side_by_side(typename S::Out *out, const T *from, Lines lines) {
    GT_FOR_EACH(line, lines.lines) {
        i64 offsets[2];
        lines.kept.offsets(line, offsets);
        typename S::State state = S::start();
#pragma unroll 4
        for (i64 i = 0; i < lines.count; i++) {
            state = S::join(state, S::lift(load(from + offsets[0] + i * lines.from_step), i));
            S::store(out + offsets[1] + i * lines.to_step, state);
        }
    }
}
