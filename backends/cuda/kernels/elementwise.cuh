// How elementwise kernels walk their operands. What they compute is made from the op table (`src/program.rs`).
//
// A thread computes V elements, which follow each other in the result: 16 bytes of the widest operand, if it is aligned.
#pragma once
#include "checks.cuh"
#include "special.cuh"
#include "walk.cuh"

// Elements that are read or written together.
template <typename T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Lanes {
    T at[V];
};

// An operand: its first element, or a number's bits where that is null.
struct Operand {
    const void *first;
    u64 bits;
};

// The one element of an operand that has only one.
template <typename T>
GT_DEVICE T only(Operand from) {
    if (from.first) return *(const T *)from.first;
    union {
        u64 bits;
        T value;
    } number;
    number.bits = from.bits;
    return number.value;
}

template <int V, typename T>
GT_DEVICE Lanes<T, V> repeated(T x) {
    Lanes<T, V> lanes;
#pragma unroll
    for (int k = 0; k < V; k++) lanes.at[k] = x;
    return lanes;
}

// Elements `from[0]` to `from[V - 1]`, aligned together.
template <int V, typename T>
GT_DEVICE Lanes<T, V> read(const T *from) {
    return *(const Lanes<T, V> *)from;
}
template <int V, typename T>
GT_DEVICE void write(T *to, Lanes<T, V> lanes) {
    *(Lanes<T, V> *)to = lanes;
}

// Elements `from[0]`, `from[step]`, ...
template <int V, typename T>
GT_DEVICE Lanes<T, V> read_stepped(const T *from, i64 step) {
    if (step == 0) return repeated<V>(*from);
    if (step == 1 && (u64)from % alignof(Lanes<T, V>) == 0) return read<V>(from);
    Lanes<T, V> lanes;
#pragma unroll
    for (int k = 0; k < V; k++) lanes.at[k] = from[k * step];
    return lanes;
}

// The axes that operands are walked along, innermost first, which counts in steps of V elements. All are looked at by
// numbers that the compiler knows: it would copy these structs to local memory to look at the n-th.
struct Axes {
    u32 rank;
    u32 sizes[RANK_MAX];
    // What division by a size multiplies with and shifts by; see `divider` in `launch.rs`.
    u32 multipliers[RANK_MAX];
    u32 shifts[RANK_MAX];
};
template <int N>
struct Strides {
    // In elements, from one index to the next; along the innermost axis from one step to the next.
    i64 along[RANK_MAX][N];
    // From one element to the next along the innermost axis.
    i64 inner[N];
};

// How far the elements of the `at`-th step are from the operands' first.
template <int N>
GT_DEVICE void find(i64 (&offsets)[N], const Axes &axes, const Strides<N> &strides, u32 at) {
#pragma unroll
    for (int i = 0; i < N; i++) offsets[i] = 0;
#pragma unroll
    for (int axis = 0; axis < RANK_MAX; axis++) {
        if (axis == axes.rank) break;
        u32 outer = (__umulhi(at, axes.multipliers[axis]) + at) >> axes.shifts[axis];
        u32 index = at - outer * axes.sizes[axis];
#pragma unroll
        for (int i = 0; i < N; i++) offsets[i] += index * strides.along[axis][i];
        at = outer;
    }
}
