// How elementwise kernels read and write their operands; `src/program.rs` generates their bodies from the op table.
//
// A thread computes V consecutive elements of the result: 16 bytes of the widest operand, if it is aligned.
#pragma once
#include "checks.cuh"
#include "special.cuh"
#include "walk.cuh"

// V elements that one vector instruction reads or writes.
template <typename T, int V>
struct alignas(sizeof(T) * V < 16 ? sizeof(T) * V : 16) Lanes {
    T at[V];
};

// An operand: the address of its first element or, if that is null, the bits of a scalar in the type that its dtype is
// computed in: a number need not be one that a half precision has.
struct Operand {
    const void *first;
    u64 bits;
};

// The value of a scalar operand or of a one-element one.
template <typename T>
GT_DEVICE typename Compute<T>::type only(Operand from) {
    if (from.first) return load((const T *)from.first);
    union {
        u64 bits;
        typename Compute<T>::type value;
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

// Elements `from[0]` to `from[V - 1]`, by one aligned vector access.
template <int V, typename T>
GT_DEVICE Lanes<T, V> read(const T *from) {
    return *(const Lanes<T, V> *)from;
}
template <int V, typename T>
GT_DEVICE void write(T *to, Lanes<T, V> lanes) {
    *(Lanes<T, V> *)to = lanes;
}

// The elements in the type that they are computed in.
template <typename T, int V>
GT_DEVICE Lanes<typename Compute<T>::type, V> computed(Lanes<T, V> stored) {
    Lanes<typename Compute<T>::type, V> lanes;
#pragma unroll
    for (int k = 0; k < V; k++) lanes.at[k] = to_compute(stored.at[k]);
    return lanes;
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

// The axes that operands are indexed by, innermost first; the innermost counts steps of V elements. All accesses use
// constant indices, since a dynamic index would make the compiler copy these structs to local memory.
struct Axes {
    u32 rank;
    u32 sizes[RANK_MAX];
    // The multiplier and shift that replace the division by a size; see `divider` in `launch.rs`.
    u32 multipliers[RANK_MAX];
    u32 shifts[RANK_MAX];
};
template <int N>
struct Strides {
    // Strides in elements; that of the innermost axis is for a step of V elements.
    i64 along[RANK_MAX][N];
    // The stride of a single element along the innermost axis.
    i64 inner[N];
};

// The operands' offsets at step `at`, in elements.
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
