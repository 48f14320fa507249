// Elements looked up and put where an index tensor says.
#pragma once
#include "checks.cuh"
#include "move.cuh"

// The axis that is looked up along.
struct Lookup {
    i64 size;
    // From one of its elements to the next, in what the kernel copies.
    i64 step;
    i64 axis;

    __device__ __forceinline__ bool has(i64 index) const { return u64(index) < u64(size); }
};

// out[i] = from[.., index[i], ..]; `walk` is over the index and over the source at index 0.
template <typename T>
GT_DEVICE void gather(T *__restrict__ out, const i64 *__restrict__ index, const T *__restrict__ from, i64 count,
                      Lookup lookup, i64 lanes, Found *found, const Walk<2> &walk) {
    bool fine = true;
    GT_FOR_EACH(i, count) {
        i64 at[2];
        walk.offsets(i, at);
        i64 which = index[at[0]];
        if (lookup.has(which)) {
            out[i] = from[at[1] + which * lookup.step];
        } else if (fine) {
            report(found, INDEX_OUT_OF_RANGE, which, i32(lookup.axis), lookup.size, i * lanes);
            fine = false;
        }
    }
}

// How an element that is put joins the one that is there.
enum Join { PUT, SUM, PRODUCT, LARGEST, SMALLEST };

template <Join JOIN, typename C>
GT_DEVICE C joined(C old, C x) {
    if constexpr (JOIN == PUT) {
        return x;
    } else if constexpr (JOIN == LARGEST || JOIN == SMALLEST) {
        // NaN is more extreme than any number.
        bool beats = JOIN == LARGEST ? x > old : x < old;
        return beats || (x != x && old == old) ? x : old;
    } else if constexpr (C(0.5) != C(0)) {
        return JOIN == SUM ? old + x : old * x;
    } else {
        typedef typename Wrapping<C>::type W;
        return JOIN == SUM ? C(W(old) + W(x)) : C(W(old) * W(x));
    }
}

// out[.., index[i], ..] joined with from[i]: a thread goes along the axis in order, for one place off it after the other.
// So the result is that of going through all elements in order, whatever the join. `walk` is over index, source and
// result at index 0; `inner` the number of places after the axis, to say where in the index something is wrong.
template <Join JOIN, typename T>
GT_DEVICE void scatter_lines(T *__restrict__ out, const i64 *__restrict__ index, const T *__restrict__ from, i64 lines,
                             i64 length, i64 index_step, i64 from_step, i64 inner, Lookup lookup, Found *found,
                             const Walk<3> &walk) {
    GT_FOR_EACH(line, lines) {
        i64 at[3];
        walk.offsets(line, at);
        bool fine = true;
        for (i64 k = 0; k < length; k++) {
            i64 which = index[at[0] + k * index_step];
            if (lookup.has(which)) {
                T *to = out + at[2] + which * lookup.step;
                store(to, joined<JOIN>(load(to), load(from + at[1] + k * from_step)));
            } else if (fine) {
                i64 position = (line / inner * length + k) * inner + line % inner;
                report(found, INDEX_OUT_OF_RANGE, which, i32(lookup.axis), lookup.size, position);
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

// Joins `x` with what is at `at` in one step. The element's word is exchanged as a whole.
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
// What the device adds by itself.
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

// Calls `put(place in the result, place in the source)` for the elements of the index in a grid's order.
template <typename Put>
GT_DEVICE void each_place(const i64 *index, i64 count, Lookup lookup, Found *found, const Walk<3> &walk, Put put) {
    bool fine = true;
    GT_FOR_EACH(i, count) {
        i64 at[3];
        walk.offsets(i, at);
        i64 which = index[at[0]];
        if (lookup.has(which)) {
            put(i, at[2] + which * lookup.step, at[1]);
        } else if (fine && found) {
            report(found, INDEX_OUT_OF_RANGE, which, i32(lookup.axis), lookup.size, i);
            fine = false;
        }
    }
}

// The same in any order: for joins that do not depend on it, but for the rounding of sums and products.
template <Join JOIN, typename T>
GT_DEVICE void scatter_at_once(T *__restrict__ out, const i64 *__restrict__ index, const T *__restrict__ from, i64 count,
                               Lookup lookup, Found *found, const Walk<3> &walk) {
    each_place(index, count, lookup, found, walk,
               [&](i64, i64 to, i64 source) { join_at_once<JOIN>(out + to, from[source]); });
}

// Which element of the index is the last to name each place of the result, counted from 1; and those elements, put there.
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
