// Reductions along any axes. `reduce_rows` gives each result to a team of threads; `reduce_columns` gives neighbouring
// results, which are contiguous in memory, to neighbouring threads. A long reduction is split into pieces whose states
// `reduce_parts` joins. The order is fixed, so results are deterministic.
//
// A fold F over elements T defines its `State`: `start` is the neutral state, `lift` the state of one element at a
// position, `join` combines two states, and `store` writes the result.
#pragma once
#include "team.cuh"

// The accumulator type of sums and products: f32 for f16 and bf16, unsigned integers, which wrap, for integers.
template <typename T>
struct Gathered {
    typedef u32 type;
};
template <>
struct Gathered<i64> {
    typedef u64 type;
};
template <>
struct Gathered<f16> {
    typedef float type;
};
template <>
struct Gathered<bf16> {
    typedef float type;
};
template <>
struct Gathered<f32> {
    typedef float type;
};
template <>
struct Gathered<f64> {
    typedef double type;
};

// The smallest and largest value of a compute type.
template <typename S>
struct Ends;
template <>
struct Ends<float> {
    static __device__ __forceinline__ float high() { return float_of(0x7f800000u); }
    static __device__ __forceinline__ float low() { return float_of(0xff800000u); }
};
template <>
struct Ends<double> {
    static __device__ __forceinline__ double high() { return double_of(0x7ff0000000000000ull); }
    static __device__ __forceinline__ double low() { return double_of(0xfff0000000000000ull); }
};
template <>
struct Ends<i32> {
    static __device__ __forceinline__ i32 high() { return 0x7fffffff; }
    static __device__ __forceinline__ i32 low() { return -0x7fffffff - 1; }
};
template <>
struct Ends<i64> {
    static __device__ __forceinline__ i64 high() { return 0x7fffffffffffffffll; }
    static __device__ __forceinline__ i64 low() { return -0x7fffffffffffffffll - 1; }
};

// The type in which elements are compared; the signed integers represent every value of the narrower types.
template <typename T>
struct Compared {
    typedef i32 type;
};
template <>
struct Compared<i64> {
    typedef i64 type;
};
template <>
struct Compared<f16> {
    typedef float type;
};
template <>
struct Compared<bf16> {
    typedef float type;
};
template <>
struct Compared<f32> {
    typedef float type;
};
template <>
struct Compared<f64> {
    typedef double type;
};

#define GT_FOLD static __device__ __forceinline__

template <typename T>
struct Sum {
    typedef typename Gathered<T>::type State;
    typedef typename Compute<T>::type C;
    typedef T Out;
    GT_FOLD State start() { return State(0); }
    GT_FOLD State lift(C x, i64) { return State(x); }
    GT_FOLD State join(State a, State b) { return a + b; }
    GT_FOLD void store(T *to, State x, i64) { ::store(to, C(x)); }
};

template <typename T>
struct Mean : Sum<T> {
    using typename Sum<T>::State;
    GT_FOLD void store(T *to, State x, i64 count) { ::store(to, x / State(count)); }
};

template <typename T>
struct Norm : Sum<T> {
    using typename Sum<T>::State;
    GT_FOLD State lift(State x, i64) { return x * x; }
    GT_FOLD void store(T *to, State x, i64) { ::store(to, sqrt(x)); }
};

// Products of f32 are accumulated in f64, since a partial product may overflow although the result does not.
template <typename S>
struct Multiplied {
    typedef S type;
};
template <>
struct Multiplied<float> {
    typedef double type;
};
template <typename T>
struct Prod {
    typedef typename Multiplied<typename Gathered<T>::type>::type State;
    typedef typename Compute<T>::type C;
    typedef T Out;
    GT_FOLD State start() { return State(1); }
    GT_FOLD State lift(C x, i64) { return State(x); }
    GT_FOLD State join(State a, State b) { return a * b; }
    GT_FOLD void store(T *to, State x, i64) { ::store(to, C(x)); }
};

// The maximum or minimum; NaN if any element is NaN.
template <typename T, bool MAX>
struct Extreme {
    typedef typename Compared<T>::type State;
    typedef typename Compute<T>::type C;
    typedef T Out;
    GT_FOLD State start() { return MAX ? Ends<State>::low() : Ends<State>::high(); }
    GT_FOLD State lift(C x, i64) { return State(x); }
    GT_FOLD State join(State a, State b) { return MAX ? maximum(a, b) : minimum(a, b); }
    GT_FOLD void store(T *to, State x, i64) { ::store(to, C(x)); }
};

// Whether any element, or with ALL every element, is not 0.
template <typename T, bool ALL>
struct BoolReduction {
    typedef u32 State;
    typedef typename Compute<T>::type C;
    typedef bool Out;
    GT_FOLD State start() { return ALL; }
    GT_FOLD State lift(C x, i64) { return x != C(0); }
    GT_FOLD State join(State a, State b) { return ALL ? a & b : a | b; }
    GT_FOLD void store(bool *to, State x, i64) { *to = x != 0; }
};

// The index of the first maximum or minimum, or of the first NaN.
template <typename S>
struct Best {
    S value;
    // -1 in the neutral state.
    i64 index;
};
template <typename S>
GT_DEVICE Best<S> shuffled_xor(Best<S> x, u32 lanes) {
    return {shuffled_xor(x.value, lanes), shuffled_xor(x.index, lanes)};
}
template <typename T, bool MAX>
struct Position {
    typedef typename Compared<T>::type S;
    typedef Best<S> State;
    typedef typename Compute<T>::type C;
    typedef i64 Out;
    GT_FOLD State start() { return {S(0), -1}; }
    GT_FOLD State lift(C x, i64 at) { return {S(x), at}; }
    GT_FOLD State join(State a, State b) {
        if (a.index < 0) return b;
        if (b.index < 0) return a;
        bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        bool equal = a.value == b.value || (a_nan && b_nan);
        bool beaten = MAX ? b.value > a.value : b.value < a.value;
        beaten = equal ? b.index < a.index : (beaten || b_nan) && !a_nan;
        return beaten ? b : a;
    }
    GT_FOLD void store(i64 *to, State x, i64) { *to = x.index; }
};

// A sum of exponentials divided by the largest one: the sum of exp(x - largest).
template <typename C>
struct Exps {
    C largest, sum;
};
template <typename C>
GT_DEVICE Exps<C> shuffled_xor(Exps<C> x, u32 lanes) {
    return {shuffled_xor(x.largest, lanes), shuffled_xor(x.sum, lanes)};
}
constexpr int UNROLLED = 4;

// One row per result, V elements at a time; `reduced` walks in steps of V elements. A row is split into `pieces` of
// `each` steps.
template <typename F, typename T, int V>
GT_DEVICE void reduce_rows(typename F::Out *out, typename F::State *parts, const T *from, i64 results, i64 count,
                           u32 size, i64 pieces, i64 each, const Walk<1> &kept, const Walk<1> &reduced) {
    typedef typename F::State State;
    Team team(size);
    GT_FOR_TEAMS(team, at, results * pieces) {
        bool there = at < results * pieces;
        i64 result = pieces == 1 ? at : at / pieces, piece = at - result * pieces;
        State state = F::start();
        if (there) {
            i64 start[1];
            kept.offsets(result, start);
            const T *row = from + start[0];
            i64 i = piece * each, last = i + each < count / V ? i + each : count / V;
            auto gather = [&](State so_far, const Lanes<T, V> &lanes, i64 step) {
#pragma unroll
                for (int k = 0; k < V; k++) so_far = F::join(so_far, F::lift(to_compute(lanes.at[k]), step * V + k));
                return so_far;
            };
            State states[UNROLLED];
#pragma unroll
            for (int u = 0; u < UNROLLED; u++) states[u] = F::start();
            i += team.lane;
            if (reduced.rank == 1) {
                i64 apart = reduced.strides[0][0];
                auto lanes_at = [&](i64 step) { return *(const Lanes<T, V> *)(row + step * apart); };
                for (; i + (UNROLLED - 1) * i64(size) < last; i += UNROLLED * i64(size)) {
                    Lanes<T, V> lanes[UNROLLED];
#pragma unroll
                    for (int u = 0; u < UNROLLED; u++) lanes[u] = lanes_at(i + u * i64(size));
#pragma unroll
                    for (int u = 0; u < UNROLLED; u++) states[u] = gather(states[u], lanes[u], i + u * i64(size));
                }
            }
            // The remainder, and reductions over several axes.
#pragma unroll 1
            for (; i < last; i += size) {
                i64 offset[1];
                reduced.offsets(i, offset);
                states[0] = gather(states[0], *(const Lanes<T, V> *)(row + offset[0]), i);
            }
            state = F::join(F::join(states[0], states[1]), F::join(states[2], states[3]));
        }
        state = joined<F>(team, state);
        if (!there || team.lane != 0) continue;
        if (pieces == 1) F::store(out + result, state, count);
        else parts[piece * results + result] = state;
    }
}

// `columns` results are neighbours, `across` elements apart in memory, and there are `outer` such groups. A thread
// reduces V neighbouring columns, which it reads by one vector load where V is not 1. A block reduces `width` times V
// columns, 256 / width rows at a time, then joins the rows by a tree reduction in shared memory. A column is split into
// `gridDim.y` pieces of `each` rows.
template <typename F, typename T, int V>
GT_DEVICE void reduce_columns(typename F::Out *out, typename F::State *parts, const T *from, i64 outer, i64 columns,
                              i64 count, u32 width, i64 across, i64 each, const Walk<1> &kept, const Walk<1> &reduced) {
    typedef typename F::State State;
    // The states of a column are neighbours, so that the threads of a warp use different banks.
    __shared__ State shared[V][256];
    i64 blocks = (columns + width * V - 1) / (width * V);
    u32 lane = threadIdx.x & (width - 1), row = threadIdx.x / width, rows = 256 / width;
    for (i64 group = blockIdx.x; group < outer * blocks; group += gridDim.x) {
        i64 at = group / blocks, column = ((group - at * blocks) * width + lane) * V;
        // With V columns there are enough sums that do not wait for each other.
        constexpr int CHAINS = V == 1 ? UNROLLED : 1;
        State states[CHAINS][V];
#pragma unroll
        for (int c = 0; c < CHAINS; c++)
#pragma unroll
            for (int k = 0; k < V; k++) states[c][k] = F::start();
        if (column < columns) {
            i64 start[1];
            kept.offsets(at, start);
            const T *first = from + start[0] + column * across;
            i64 i = blockIdx.y * each, last = i + each < count ? i + each : count;
            auto gather = [&](State(&so_far)[V], const Lanes<T, V> &lanes, i64 i) {
#pragma unroll
                for (int k = 0; k < V; k++) so_far[k] = F::join(so_far[k], F::lift(to_compute(lanes.at[k]), i));
            };
            i += row;
            if (reduced.rank == 1) {
                i64 apart = reduced.strides[0][0];
                for (; i + (UNROLLED - 1) * i64(rows) < last; i += UNROLLED * i64(rows)) {
                    Lanes<T, V> lanes[UNROLLED];
#pragma unroll
                    for (int u = 0; u < UNROLLED; u++)
                        lanes[u] = *(const Lanes<T, V> *)(first + (i + u * i64(rows)) * apart);
#pragma unroll
                    for (int u = 0; u < UNROLLED; u++) gather(states[u % CHAINS], lanes[u], i + u * i64(rows));
                }
            }
#pragma unroll 1
            for (; i < last; i += rows) {
                i64 offset[1];
                reduced.offsets(i, offset);
                gather(states[0], *(const Lanes<T, V> *)(first + offset[0]), i);
            }
        }
#pragma unroll
        for (int k = 0; k < V; k++) {
            State state = states[0][k];
            if (CHAINS == UNROLLED)
                state = F::join(F::join(state, states[1 % CHAINS][k]),
                                F::join(states[2 % CHAINS][k], states[3 % CHAINS][k]));
            shared[k][threadIdx.x] = state;
        }
        for (u32 half = rows / 2; half > 0; half /= 2) {
            __syncthreads();
            if (row < half)
#pragma unroll
                for (int k = 0; k < V; k++)
                    shared[k][threadIdx.x] = F::join(shared[k][threadIdx.x], shared[k][threadIdx.x + half * width]);
        }
        if (row == 0 && column < columns) {
            i64 result = at * columns + column;
#pragma unroll
            for (int k = 0; k < V; k++) {
                if (gridDim.y == 1) F::store(out + result + k, shared[k][lane], count);
                else parts[blockIdx.y * outer * columns + result + k] = shared[k][lane];
            }
        }
        __syncthreads();
    }
}

// Joins the pieces of each result.
template <typename F>
GT_DEVICE void reduce_parts(typename F::Out *out, const typename F::State *parts, i64 results, i64 pieces, i64 count,
                            u32 size) {
    Team team(size);
    GT_FOR_TEAMS(team, result, results) {
        typename F::State state = F::start();
        if (result < results) {
// Unrolled, so that several parts are on their way at once.
#pragma unroll 8
            for (i64 i = team.lane; i < pieces; i += size) state = F::join(state, parts[i * results + result]);
        }
        state = joined<F>(team, state);
        if (result < results && team.lane == 0) F::store(out + result, state, count);
    }
}
