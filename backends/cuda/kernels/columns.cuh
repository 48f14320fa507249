// im2col (Chellapilla et al. 2006): the matrix of window elements, written out, so that a library's matrix product
// computes the convolution.
#pragma once
#include "elementwise.cuh"
#include "window.cuh"

// Rows are channels by taps, columns are places: one matrix per sample or, if JOINED, one matrix with the columns of
// all samples side by side. FORWARD reads the convolution's input, and places are those of its output. INPUT reads the
// output or its gradient, and places are those of the input. Elements are only copied, so T is any type of their size.
//
// A thread writes 16 bytes and recomputes indices by division only where a plane ends.
template <Mode MODE, bool JOINED, typename T>
GT_DEVICE void write_columns(T *__restrict__ out, const T *__restrict__ from, i64 count, i64 sample_step,
                             i64 channel_step, const Divider &by_channel, const Divider &by_sample, const Windows &w) {
    constexpr int V = 16 / sizeof(T);
    const Divider(&by_place)[3] = MODE == INPUT ? w.by_input : w.by_output;
    GT_FOR_EACH(part, (count + V - 1) / V) {
        Lanes<T, V> lanes;
        i64 place[3], tap[3], row = -1;
        const T *plane = from;
        bool new_plane = true, new_row = true;
#pragma unroll
        for (int v = 0; v < V; v++) {
            i64 i = part * V + v;
            if (i >= count) break;
            if (new_plane) {
                i64 outer = split(i, by_place, place), sample;
                if (JOINED) {
                    i64 rest = outer;
                    outer = by_sample.divide(rest);
                    sample = rest;
                    plane = from + split(outer, w.by_kernel, tap) * channel_step + sample * sample_step;
                } else {
                    i64 channel = split(outer, w.by_kernel, tap);
                    sample = by_channel.divide(channel);
                    plane = from + channel * channel_step + sample * sample_step;
                }
            }
            if (new_row) {
                i64 first = along<MODE>(w, 0, place[0], tap[0]), second = along<MODE>(w, 1, place[1], tap[1]);
                const i64(&sizes)[3] = MODE == INPUT ? w.output : w.input;
                row = first < 0 || second < 0 ? -1 : (first * sizes[1] + second) * sizes[2];
            }
            i64 at = row < 0 ? -1 : along<MODE>(w, 2, place[2], tap[2]);
            lanes.at[v] = at < 0 ? T(0) : plane[row + at];
            new_plane = new_row = false;
            if (++place[2] < by_place[2].size) continue;
            new_row = true;
            place[2] = 0;
            if (++place[1] < by_place[1].size) continue;
            place[1] = 0;
            new_plane = ++place[0] == by_place[0].size;
        }
        if ((part + 1) * V <= count) *(Lanes<T, V> *)(out + part * V) = lanes;
        else
#pragma unroll
            for (int v = 0; v < V; v++)
                if (part * V + v < count) out[part * V + v] = lanes.at[v];
    }
}

template <typename T>
GT_DEVICE void add_bias(T *out, const T *bias, i64 count, const Divider &by_place, const Divider &by_channel) {
    GT_FOR_EACH(i, count) {
        i64 place = i, channel = by_place.divide(place);
        by_channel.divide(channel);
        store(out + i, load(out + i) + load(bias + channel));
    }
}
