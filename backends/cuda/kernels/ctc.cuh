// Connectionist temporal classification (Graves et al. 2006): one block per sample, one thread per state.
#pragma once
#include "rows.cuh"

// The sum of three log-probabilities.
template <typename T>
GT_DEVICE T log_sum(T a, T b, T c) {
    T most = b > a ? b : a;
    most = c > most ? c : most;
    // The difference of two infinities would be NaN.
    const T base = most == Ends<T>::low() ? T(0) : most;
    return base + log(exp(a - base) + exp(b - base) + exp(c - base));
}

// A batch of samples: `emitted` (time, samples, states), `labels` (samples, states), `sizes` (samples, 2).
template <typename T>
struct Alignments {
    const T *emitted;
    const i64 *labels, *sizes;
    i64 time, samples, states;

    // The time steps of a sample, and its last state. Sizes beyond the operands' are cut off: no one vouches for them.
    __device__ __forceinline__ i64 steps(i64 sample) const {
        const i64 n = sizes[2 * sample];
        return n < 0 ? 0 : n > time ? time : n;
    }
    __device__ __forceinline__ i64 last(i64 sample) const {
        const i64 n = sizes[2 * sample + 1], most = (states - 1) / 2;
        return 2 * (n < 0 ? 0 : n > most ? most : n);
    }
    __device__ __forceinline__ T emission(i64 t, i64 sample, i64 s) const { return emitted[(t * samples + sample) * states + s]; }
    // Whether a path may come to a state from the one before the last.
    __device__ __forceinline__ bool skips(i64 sample, i64 s) const {
        const i64 *own = labels + sample * states;
        return s >= 3 && s % 2 == 1 && own[s] != own[s - 2];
    }
};

// Writes the loss of each sample and its forward variables, one row each.
template <typename T>
GT_DEVICE void ctc_forward(T *out, const Alignments<T> all) {
    const T nowhere = Ends<T>::low();
    for (i64 n = blockIdx.x; n < all.samples; n += gridDim.x) {
        T *row = out + n * (1 + all.time * all.states), *variables = row + 1;
        const i64 steps = all.steps(n), last = all.last(n);
        for (i64 t = 0; t < all.time; t++) {
            const T *old = variables + (t - 1) * all.states;
            for (i64 s = threadIdx.x; s < all.states; s += blockDim.x) {
                T found = nowhere;
                if (t < steps && s <= last) {
                    if (t == 0) {
                        found = s < 2 ? all.emission(t, n, s) : nowhere;
                    } else {
                        const T before = s > 0 ? old[s - 1] : nowhere, skip = all.skips(n, s) ? old[s - 2] : nowhere;
                        found = all.emission(t, n, s) + log_sum(old[s], before, skip);
                    }
                }
                variables[t * all.states + s] = found;
            }
            __syncthreads();
        }
        if (threadIdx.x == 0) {
            const T *end = variables + (steps - 1) * all.states;
            if (steps == 0)
                row[0] = last == 0 ? T(0) : -nowhere;
            else
                row[0] = -log_sum(end[last], last > 0 ? end[last - 1] : nowhere, nowhere);
        }
    }
}

// Writes the posterior probability of each state at each time step. Until those of the step before are known, a row has
// the backward variables.
template <typename T>
GT_DEVICE void ctc_posteriors(T *out, const T *rows, const Alignments<T> all) {
    const T nowhere = Ends<T>::low();
    for (i64 n = blockIdx.x; n < all.samples; n += gridDim.x) {
        const T *row = rows + n * (1 + all.time * all.states), *variables = row + 1;
        const T loss = row[0];
        const i64 steps = all.steps(n), last = all.last(n);
        auto to_posterior = [&](i64 t, i64 s) {
            T *at = out + (t * all.samples + n) * all.states + s;
            const T forward = variables[t * all.states + s], back = *at;
            const bool is_reached = forward != nowhere && back != nowhere;
            *at = is_reached ? exp(forward + back - all.emission(t, n, s) + loss) : T(0);
        };
        for (i64 t = all.time - 1; t >= 0; t--) {
            T *now = out + (t * all.samples + n) * all.states;
            const T *later = now + all.samples * all.states;
            for (i64 s = threadIdx.x; s < all.states; s += blockDim.x) {
                T found = nowhere;
                if (t < steps && s <= last) {
                    if (t + 1 == steps) {
                        found = s + 1 >= last ? all.emission(t, n, s) : nowhere;
                    } else {
                        const T after = s < last ? later[s + 1] : nowhere;
                        const T skip = s + 2 <= last && all.skips(n, s + 2) ? later[s + 2] : nowhere;
                        found = all.emission(t, n, s) + log_sum(later[s], after, skip);
                    }
                }
                now[s] = found;
            }
            __syncthreads();
            // No thread reads another state of the later step from here on.
            if (t + 1 < all.time)
                for (i64 s = threadIdx.x; s < all.states; s += blockDim.x) to_posterior(t + 1, s);
        }
        if (all.time > 0)
            for (i64 s = threadIdx.x; s < all.states; s += blockDim.x) to_posterior(0, s);
    }
}
