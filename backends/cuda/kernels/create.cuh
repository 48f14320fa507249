// Kernels that fill tensors with ranges and random numbers, as `backends/cpu/src/create.rs` does. A maker's
// `four(t)` computes numbers 4 t to 4 t + 3 of the sequence: one Philox block, or two where numbers take 64-bit words.
#pragma once
#include "philox.cuh"

// A range: start + i * step.
template <typename N>
struct Steps {
    typedef N Made;
    N start, step;
    __device__ __forceinline__ void four(u64 t, N (&out)[4]) const {
        for (int k = 0; k < 4; k++) out[k] = start + N(4 * t + k) * step;
    }
};

template <int BITS>
struct Uniform {
    typedef float Made;
    u64 seed, stream;
    __device__ __forceinline__ void four(u64 t, float (&out)[4]) const {
        Words w = philox(seed, stream, t);
        for (int k = 0; k < 4; k++) out[k] = unit(w.at[k], BITS);
    }
};

struct UniformWide {
    typedef double Made;
    u64 seed, stream;
    __device__ __forceinline__ void four(u64 t, double (&out)[4]) const {
        for (int half = 0; half < 2; half++) {
            Words w = philox(seed, stream, 2 * t + half);
            out[2 * half] = unit(w.at[0], w.at[1]);
            out[2 * half + 1] = unit(w.at[2], w.at[3]);
        }
    }
};

// The Box-Muller transform (1958): two independent normal numbers from two uniform ones.
template <typename R>
GT_DEVICE void pair(R u, R v, R *out) {
    R radius = sqrt(R(-2) * log(u)), turn = R(6.283185307179586) * v;
    out[0] = radius * cos(turn);
    out[1] = radius * sin(turn);
}

struct Normal {
    typedef float Made;
    u64 seed, stream;
    __device__ __forceinline__ void four(u64 t, float (&out)[4]) const {
        Words w = philox(seed, stream, t);
        for (int k = 0; k < 4; k += 2)
            pair(float((w.at[k] >> 8) + 1) * (1.0f / float(1 << 24)), unit(w.at[k + 1], 24), out + k);
    }
};

struct NormalWide {
    typedef double Made;
    u64 seed, stream;
    __device__ __forceinline__ void four(u64 t, double (&out)[4]) const {
        for (int half = 0; half < 2; half++) {
            Words w = philox(seed, stream, 2 * t + half);
            pair(1.0 - unit(w.at[0], w.at[1]), unit(w.at[2], w.at[3]), out + 2 * half);
        }
    }
};

// Integers in [low, low + range): low + (w * range >> 64) of 64-bit words w.
struct Below {
    typedef i64 Made;
    u64 seed, stream, low, range;
    __device__ __forceinline__ void four(u64 t, i64 (&out)[4]) const {
        for (int k = 0; k < 4; k += 2) {
            Words w = philox(seed, stream, 2 * t + k / 2);
            out[k] = i64(low + __umul64hi(u64(w.at[1]) << 32 | w.at[0], range));
            out[k + 1] = i64(low + __umul64hi(u64(w.at[3]) << 32 | w.at[2], range));
        }
    }
};

template <typename T>
struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Four {
    T at[4];
};

// Writes numbers first, first + 1, ... of the maker to `out`, which is aligned to 16 bytes.
template <typename T, typename Maker>
GT_DEVICE void create(T *out, u64 elements, u64 first, Maker maker) {
    u64 before = first % 4, fours = (before + elements + 3) / 4;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < fours; i += u64(gridDim.x) * blockDim.x) {
        typename Maker::Made made[4];
        maker.four(first / 4 + i, made);
        Four<T> four;
        for (int k = 0; k < 4; k++) store(&four.at[k], typename Compute<T>::type(made[k]));
        if (before == 0 && 4 * i + 4 <= elements) {
            *(Four<T> *)(out + 4 * i) = four;
            continue;
        }
        for (int k = 0; k < 4; k++) {
            u64 at = 4 * i + k - before;
            if (at < elements) out[at] = four.at[k];
        }
    }
}
