// Gather, scatter and their variants with an index tensor.
#pragma once
#include "checks.cuh"
#include "move.cuh"

// The axis that the index applies to.
struct Lookup {
    i64 size;
    // The stride of the axis, in units of T.
    i64 step;
    i64 axis;
    // The number that is added to a negative index: the size where it counts from the end, else 0.
    i64 back;

    __device__ __forceinline__ i64 place(i64 index) const { return index < 0 ? index + back : index; }
    __device__ __forceinline__ bool has(i64 place) const { return u64(place) < u64(size); }
};

// out[i] = from[.., index[i], ..]. `walk` gives the offsets of the index and of the source at index 0.
template <typename T>
GT_DEVICE void gather(T *__restrict__ out, const i64 *__restrict__ index, const T *__restrict__ from, i64 count,
                      Lookup lookup, i64 lanes, Found *found, const Walk<2> &walk) {
    bool fine = true;
    GT_FOR_EACH(i, count) {
        i64 at[2];
        walk.offsets(i, at);
        i64 given = index[at[0]], which = lookup.place(given);
        if (lookup.has(which)) {
            out[i] = from[at[1] + which * lookup.step];
        } else if (fine) {
            report(found, INDEX_OUT_OF_RANGE, given, i32(lookup.axis), lookup.size, i * lanes);
            fine = false;
        }
    }
}

// How a scattered element is combined with the one that is there.
enum Join { PUT, SUM, PRODUCT, LARGEST, SMALLEST };

template <Join JOIN, typename C>
GT_DEVICE C joined(C old, C x) {
    if constexpr (JOIN == PUT) {
        return x;
    } else if constexpr (JOIN == LARGEST || JOIN == SMALLEST) {
        // NaN propagates, as in PyTorch's amax and amin.
        bool beats = JOIN == LARGEST ? x > old : x < old;
        return beats || (x != x && old == old) ? x : old;
    } else if constexpr (C(0.5) != C(0)) {
        return JOIN == SUM ? old + x : old * x;
    } else {
        typedef typename Wrapping<C>::type W;
        return JOIN == SUM ? C(W(old) + W(x)) : C(W(old) * W(x));
    }
}

// Combines out[.., index[i], ..] with from[i]. One thread goes along a whole line of the axis, so duplicate indices are
// combined in the index's order, whatever JOIN is. `walk` gives the offsets of index, source and result at index 0;
// `inner` is the number of places after the axis, which the position of an error is computed from.
template <Join JOIN, typename T>
GT_DEVICE void scatter_lines(T *__restrict__ out, const i64 *__restrict__ index, const T *__restrict__ from, i64 lines,
                             i64 length, i64 index_step, i64 from_step, i64 inner, Lookup lookup, Found *found,
                             const Walk<3> &walk) {
    GT_FOR_EACH(line, lines) {
        i64 at[3];
        walk.offsets(line, at);
        bool fine = true;
        for (i64 k = 0; k < length; k++) {
            i64 given = index[at[0] + k * index_step], which = lookup.place(given);
            if (lookup.has(which)) {
                T *to = out + at[2] + which * lookup.step;
                store(to, joined<JOIN>(load(to), load(from + at[1] + k * from_step)));
            } else if (fine) {
                i64 position = (line / inner * length + k) * inner + line % inner;
                report(found, INDEX_OUT_OF_RANGE, given, i32(lookup.axis), lookup.size, position);
                fine = false;
            }
        }
    }
}

template <int BYTES>
struct Bits {
    typedef u32 type;
};
template <>
struct Bits<1> {
    typedef u8 type;
};
template <>
struct Bits<2> {
    typedef u16 type;
};
template <>
struct Bits<8> {
    typedef u64 type;
};

// Combines `x` with `*at` atomically: compare-and-swap of the whole 32- or 64-bit word that contains the element.
template <Join JOIN, typename T>
GT_DEVICE void join_at_once(T *at, T x) {
    typedef typename Bits<sizeof(T)>::type B;
    typedef typename Bits<(sizeof(T) < 4 ? 4 : sizeof(T))>::type Word;
    union Element {
        B bits;
        T value;
    };
    u64 within = u64(at) % sizeof(Word);
    Word *word = (Word *)(u64(at) - within);
    int shift = 8 * int(within);
    Word seen = *(volatile Word *)word, assumed;
    do {
        assumed = seen;
        Element element;
        element.bits = B(assumed >> shift);
        store(&element.value, joined<JOIN>(to_compute(element.value), to_compute(x)));
        Word next = (assumed & ~(Word(B(~B(0))) << shift)) | Word(element.bits) << shift;
        if (next == assumed) return;
        seen = atomicCAS(word, assumed, next);
    } while (seen != assumed);
}
// Sums of these types have an atomic instruction.
template <Join JOIN>
GT_DEVICE void join_at_once(float *at, float x) {
    if constexpr (JOIN == SUM) atomicAdd(at, x);
    else join_at_once<JOIN, float>(at, x);
}
template <Join JOIN>
GT_DEVICE void join_at_once(double *at, double x) {
    if constexpr (JOIN == SUM) atomicAdd(at, x);
    else join_at_once<JOIN, double>(at, x);
}
template <Join JOIN>
GT_DEVICE void join_at_once(i32 *at, i32 x) {
    if constexpr (JOIN == SUM) atomicAdd((u32 *)at, u32(x));
    else join_at_once<JOIN, i32>(at, x);
}
template <Join JOIN>
GT_DEVICE void join_at_once(i64 *at, i64 x) {
    if constexpr (JOIN == SUM) atomicAdd((u64 *)at, u64(x));
    else join_at_once<JOIN, i64>(at, x);
}

// Calls `put(element, place in the result, place in the source)` for each element of the index, in a grid-stride loop.
template <typename Put>
GT_DEVICE void each_place(const i64 *index, i64 count, Lookup lookup, Found *found, const Walk<3> &walk, Put put) {
    bool fine = true;
    GT_FOR_EACH(i, count) {
        i64 at[3];
        walk.offsets(i, at);
        i64 given = index[at[0]], which = lookup.place(given);
        if (lookup.has(which)) {
            put(i, at[2] + which * lookup.step, at[1]);
        } else if (fine && found) {
            report(found, INDEX_OUT_OF_RANGE, given, i32(lookup.axis), lookup.size, i);
            fine = false;
        }
    }
}

// Scatter with atomics, in any order: exact where JOIN does not depend on the order; sums and products of floats depend
// on it in their rounding.
template <Join JOIN, typename T>
GT_DEVICE void scatter_at_once(T *__restrict__ out, const i64 *__restrict__ index, const T *__restrict__ from, i64 count,
                               Lookup lookup, Found *found, const Walk<3> &walk) {
    each_place(index, count, lookup, found, walk,
               [&](i64, i64 to, i64 source) { join_at_once<JOIN>(out + to, from[source]); });
}

// `mark_last` writes, for each place of the result, the last element of the index that names it, counted from 1.
// `put_last` then copies only those elements, so that duplicates resolve as in a sequential loop.
GT_DEVICE void mark_last(u32 *__restrict__ last, const i64 *__restrict__ index, i64 count, Lookup lookup, Found *found,
                         const Walk<3> &walk) {
    each_place(index, count, lookup, found, walk, [&](i64 i, i64 to, i64) { atomicMax(last + to, u32(i + 1)); });
}
template <typename T>
GT_DEVICE void put_last(T *__restrict__ out, const u32 *__restrict__ last, const i64 *__restrict__ index,
                        const T *__restrict__ from, i64 count, Lookup lookup, const Walk<3> &walk) {
    each_place(index, count, lookup, nullptr, walk, [&](i64 i, i64 to, i64 source) {
        if (last[to] == u32(i + 1)) out[to] = from[source];
    });
}
