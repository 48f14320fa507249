// Sliding windows over one to three axes: pooling, convolutions and their gradients. See `ops/src/window.rs`.
#pragma once
#include "walk.cuh"

// The geometry of windows; see `Windows` in `window.rs`. Axes without windows have size 1.
struct Windows {
    i64 input[3], output[3], kernel[3], stride[3], dilation[3], low[3];
    Divider by_input[3], by_output[3], by_kernel[3], by_stride[3];
};

// Splits index `i` into indices along three axes; returns the quotient.
GT_DEVICE i64 split(i64 i, const Divider (&by)[3], i64 (&at)[3]) {
#pragma unroll
    for (int axis = 2; axis >= 0; axis--) {
        at[axis] = i;
        i = by[axis].divide(at[axis]);
    }
    return i;
}

GT_DEVICE i64 product(const i64 (&sizes)[3]) { return sizes[0] * sizes[1] * sizes[2]; }

// Calls `each(place in the channel)` for the elements of the window at `at` that are inside the input, in row-major
// order.
template <typename Each>
GT_DEVICE void each_inside(const Windows &w, const i64 (&at)[3], Each each) {
    i64 from[3];
    for (int axis = 0; axis < 3; axis++) from[axis] = at[axis] * w.stride[axis] - w.low[axis];
    for (i64 a = 0, x = from[0]; a < w.kernel[0] && x < w.input[0]; a++, x += w.dilation[0]) {
        if (x < 0) continue;
        for (i64 b = 0, y = from[1]; b < w.kernel[1] && y < w.input[1]; b++, y += w.dilation[1]) {
            if (y < 0) continue;
            for (i64 c = 0, z = from[2]; c < w.kernel[2] && z < w.input[2]; c++, z += w.dilation[2])
                if (z >= 0) each((x * w.input[1] + y) * w.input[2] + z);
        }
    }
}

// The range of windows along an axis whose extent contains element `at`.
GT_DEVICE void covering(const Windows &w, int axis, i64 at, i64 &first, i64 &last) {
    i64 end = at + w.low[axis], begin = end - w.dilation[axis] * (w.kernel[axis] - 1);
    last = w.by_stride[axis].divide(end);
    last = min(last, w.output[axis] - 1);
    if (begin <= 0) {
        first = 0;
        return;
    }
    begin += w.stride[axis] - 1;
    first = w.by_stride[axis].divide(begin);
}
// Whether window `o` contains element `at`, which with dilation may fall between the window's elements.
GT_DEVICE bool is_in(const Windows &w, int axis, i64 at, i64 o) {
    return w.dilation[axis] == 1 || (at + w.low[axis] - o * w.stride[axis]) % w.dilation[axis] == 0;
}

// Calls `each(place in the channel of the output)` for the windows that contain element `at`, row by row, within a row
// from the last to the first if `backwards`.
template <typename Each>
GT_DEVICE void each_window(const Windows &w, const i64 (&at)[3], bool backwards, Each each) {
    i64 first[3], last[3];
    for (int axis = 0; axis < 3; axis++) covering(w, axis, at[axis], first[axis], last[axis]);
    for (i64 x = first[0]; x <= last[0]; x++) {
        if (!is_in(w, 0, at[0], x)) continue;
        for (i64 y = first[1]; y <= last[1]; y++) {
            if (!is_in(w, 1, at[1], y)) continue;
            i64 row = (x * w.output[1] + y) * w.output[2];
            for (i64 k = first[2]; k <= last[2]; k++) {
                i64 z = backwards ? last[2] - (k - first[2]) : k;
                if (is_in(w, 2, at[2], z)) each(row + z);
            }
        }
    }
}

// Pooling: one thread per result, `count` results. Sums have the same order as the CPU's.

template <typename C>
GT_DEVICE bool beats(C x, C best) {
    return x > best || x != x;
}

template <typename T>
GT_DEVICE void max_pool(T *__restrict__ out, const T *__restrict__ from, i64 count, const Windows &w) {
    typedef typename Compute<T>::type C;
    GT_FOR_EACH(i, count) {
        i64 at[3], plane = split(i, w.by_output, at) * product(w.input);
        C best = C(-1) / C(0);
        each_inside(w, at, [&](i64 place) {
            C x = load(from + plane + place);
            if (beats(x, best)) best = x;
        });
        store(out + i, best);
    }
}

// The index of the maximum in its channel; the last NaN if there are any, -1 for a window of padding alone.
template <typename T>
GT_DEVICE void max_pool_indices(i64 *__restrict__ out, const T *__restrict__ from, i64 count, const Windows &w) {
    typedef typename Compute<T>::type C;
    GT_FOR_EACH(i, count) {
        i64 at[3], plane = split(i, w.by_output, at) * product(w.input), found = -1;
        C best = 0;
        each_inside(w, at, [&](i64 place) {
            C x = load(from + plane + place);
            if (found < 0 || beats(x, best)) {
                best = x;
                found = place;
            }
        });
        out[i] = found;
    }
}

// The gradient of each input element: the sum over the windows whose maximum it is.
template <typename T>
GT_DEVICE void max_pool_input(T *__restrict__ out, const T *__restrict__ grads, const i64 *__restrict__ chosen, i64 count,
                              const Windows &w) {
    typedef typename Compute<T>::type C;
    GT_FOR_EACH(i, count) {
        i64 at[3], plane = split(i, w.by_input, at) * product(w.output);
        i64 place = (at[0] * w.input[1] + at[1]) * w.input[2] + at[2];
        C sum = 0;
        each_window(w, at, false, [&](i64 o) {
            if (chosen[plane + o] == place) sum += load(grads + plane + o);
        });
        store(out + i, sum);
    }
}

template <typename T>
GT_DEVICE void sum_pool(T *__restrict__ out, const T *__restrict__ from, i64 count, const Windows &w) {
    typedef typename Compute<T>::type C;
    GT_FOR_EACH(i, count) {
        i64 at[3], plane = split(i, w.by_output, at) * product(w.input);
        C sum = 0;
        each_inside(w, at, [&](i64 place) { sum += load(from + plane + place); });
        store(out + i, sum);
    }
}

template <typename T>
GT_DEVICE void sum_pool_input(T *__restrict__ out, const T *__restrict__ grads, i64 count, const Windows &w) {
    typedef typename Compute<T>::type C;
    GT_FOR_EACH(i, count) {
        i64 at[3], plane = split(i, w.by_input, at) * product(w.output);
        C sum = 0;
        each_window(w, at, true, [&](i64 o) { sum += load(grads + plane + o); });
        store(out + i, sum);
    }
}

// Convolutions as implicit matrix products, in which the im2col matrix is never stored (Chetlur et al. 2014):
//
//            rows                columns               depth
//   FORWARD  output channels     samples x places      input channels x taps
//   INPUT    input channels      samples x places      output channels x taps
//   WEIGHT   output channels     input channels x taps samples x places
//
// for each group of channels. Places are those of the output, for INPUT those of the input; taps are the elements of
// the window. The left matrix is the weight or, for WEIGHT, the output's gradient; the right one is gathered through
// windows.
enum Mode { FORWARD, INPUT, WEIGHT };

// The strides of a matrix; see `Product` in `window.rs`. An element of the left matrix is at group * group_step + row *
// row_step + depth / inner * outer_step + depth % inner; an element of the result is found the same way, with its
// column in place of the depth.
struct Matrix {
    i64 group_step, row_step, outer_step;
    Divider inner;
};
struct Product {
    i64 rows, columns, depth, groups;
    // The depth is split into parts: a block sums up each, and `add_parts` adds the sums (split-K).
    i64 parts, part_depth;
    Matrix left, result;
    // The strides of the gathered operand between groups, samples and channels.
    i64 group_step, sample_step, channel_step;
};

// The index along an axis that a tap of the window at `place` reads; -1 in the padding or between windows.
template <Mode MODE>
GT_DEVICE i64 along(const Windows &w, int axis, i64 place, i64 tap) {
    if (MODE == INPUT) {
        i64 rest = place + w.low[axis] - tap * w.dilation[axis];
        if (rest < 0) return -1;
        i64 o = w.by_stride[axis].divide(rest);
        return rest != 0 || o >= w.output[axis] ? -1 : o;
    }
    i64 x = place * w.stride[axis] + tap * w.dilation[axis] - w.low[axis];
    return u64(x) >= u64(w.input[axis]) ? -1 : x;
}
// The offset in the channel along all axes; -1 in the padding or between windows.
template <Mode MODE>
GT_DEVICE i64 looked_up(const Windows &w, const i64 (&place)[3], const i64 (&tap)[3]) {
    i64 at = 0;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        i64 x = along<MODE>(w, axis, place[axis], tap[axis]);
        if (x < 0) return -1;
        at = at * (MODE == INPUT ? w.output : w.input)[axis] + x;
    }
    return at;
}

// A block of 256 threads computes a 64 by 64 tile, each thread 4 by 4 of its elements, staging 16 of the depth at a
// time in shared memory. The rows of the left tile are padded, so that writing a column causes fewer bank conflicts.
template <Mode MODE, typename T>
GT_DEVICE void convolve(T *__restrict__ out, typename Compute<T>::type *__restrict__ partial, const T *__restrict__ left,
                        const T *__restrict__ right, const T *__restrict__ bias, const Product &p, const Windows &w) {
    typedef typename Compute<T>::type C;
    constexpr int TILE = 64, DEPTH = 16, SIDE = 4;
    alignas(16) __shared__ C lefts[DEPTH][TILE + 4];
    alignas(16) __shared__ C rights[DEPTH][TILE];
    const int thread = threadIdx.x, ty = thread / 16, tx = thread % 16;

    i64 block = blockIdx.x, down = (p.rows + TILE - 1) / TILE, across = (p.columns + TILE - 1) / TILE;
    i64 row0 = block % down * TILE;
    block /= down;
    i64 column0 = block % across * TILE;
    block /= across;
    i64 group = block % p.groups, part = block / p.groups;
    left += group * p.left.group_step;
    right += group * p.group_step;

    // A thread always loads the same column of the right tile and the same column of the left tile.
    const i64 column = column0 + thread % TILE;
    const bool has_column = column < p.columns;
    i64 along_column[3], outer_of_column = has_column ? split(column, MODE == WEIGHT ? w.by_kernel : MODE == INPUT ? w.by_input : w.by_output, along_column) : 0;

    C sums[SIDE][SIDE];
#pragma unroll
    for (int i = 0; i < SIDE; i++) {
        i64 row = row0 + ty * SIDE + i;
        C start = bias && part == 0 && row < p.rows ? load(bias + group * p.rows + row) : C(0);
#pragma unroll
        for (int j = 0; j < SIDE; j++) sums[i][j] = start;
    }
    const i64 end = min((part + 1) * p.part_depth, p.depth);
    for (i64 depth0 = part * p.part_depth; depth0 < end; depth0 += DEPTH) {
        i64 rest = depth0 + thread % DEPTH;
        const bool has_depth = rest < end;
        i64 outer = p.left.inner.divide(rest), place = outer * p.left.outer_step + rest;
#pragma unroll
        for (int i = 0; i < TILE; i += 256 / DEPTH) {
            i64 row = row0 + i + thread / DEPTH;
            bool there = has_depth && row < p.rows;
            lefts[thread % DEPTH][i + thread / DEPTH] = there ? load(left + row * p.left.row_step + place) : C(0);
        }
#pragma unroll
        for (int i = 0; i < DEPTH; i += 256 / TILE) {
            int k = i + thread / TILE;
            C x = C(0);
            if (has_column && depth0 + k < end) {
                i64 along_depth[3], outer = split(depth0 + k, MODE == WEIGHT ? w.by_output : w.by_kernel, along_depth);
                i64 at = MODE == WEIGHT ? looked_up<MODE>(w, along_depth, along_column)
                                        : looked_up<MODE>(w, along_column, along_depth);
                i64 sample = MODE == WEIGHT ? outer : outer_of_column, channel = MODE == WEIGHT ? outer_of_column : outer;
                if (at >= 0) x = load(right + sample * p.sample_step + channel * p.channel_step + at);
            }
            rights[k][thread % TILE] = x;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            C a[SIDE], b[SIDE];
#pragma unroll
            for (int i = 0; i < SIDE; i++) a[i] = lefts[k][ty * SIDE + i];
#pragma unroll
            for (int j = 0; j < SIDE; j++) b[j] = rights[k][tx * SIDE + j];
#pragma unroll
            for (int i = 0; i < SIDE; i++)
#pragma unroll
                for (int j = 0; j < SIDE; j++) sums[i][j] = fma(a[i], b[j], sums[i][j]);
        }
        __syncthreads();
    }

    const i64 total = p.groups * p.rows * p.columns;
#pragma unroll
    for (int j = 0; j < SIDE; j++) {
        i64 rest = column0 + tx * SIDE + j;
        if (rest >= p.columns) continue;
        i64 outer = p.result.inner.divide(rest), place = group * p.result.group_step + outer * p.result.outer_step + rest;
#pragma unroll
        for (int i = 0; i < SIDE; i++) {
            i64 row = row0 + ty * SIDE + i;
            if (row >= p.rows) continue;
            i64 at = place + row * p.result.row_step;
            if (p.parts > 1) partial[part * total + at] = sums[i][j];
            else store(out + at, sums[i][j]);
        }
    }
}

// Adds up the parts, in order.
template <typename T>
GT_DEVICE void add_parts(T *__restrict__ out, const typename Compute<T>::type *__restrict__ partial, i64 parts, i64 count) {
    GT_FOR_EACH(i, count) {
        typename Compute<T>::type sum = partial[i];
        for (i64 part = 1; part < parts; part++) sum += partial[part * count + i];
        store(out + i, sum);
    }
}
