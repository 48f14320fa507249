// One pass of a discrete Fourier transform of rows of complex numbers.
#pragma once
#include "walk.cuh"

template <typename T>
struct Complex {
    T re, im;
};

// Before the pass, each row has the transforms of its `done` interleaved parts: number k of part j, the elements
// j, j + length / done, …, at k * (length / done) + j. After it, the same of `done * radix` parts.
template <typename T>
GT_DEVICE void fourier_pass(Complex<T> *to, const Complex<T> *from, i64 numbers, i64 length, i64 done, i64 radix,
                            i64 sign) {
    const i64 parts = done * radix, distance = length / parts;
    GT_FOR_EACH(i, numbers) {
        const i64 at = i % length, k = at / distance, j = at % distance;
        const Complex<T> *first = from + (i - at) + k % done * (length / done) + j;
        T re = 0, im = 0;
        for (i64 s = 0; s < radix; s++) {
            // The angle is reduced to a quarter of a turn as a whole number of parts, so that it is exact to the last
            // bits, and that quarters of a turn have factors of exactly 0, 1 and -1.
            const i64 fourths = 4 * (s * k % parts), quarter = fourths / parts;
            const T angle = T(1.5707963267948966 * f64(fourths % parts) / f64(parts));
            const T cosine = cos(angle), sine = sin(angle);
            const bool is_odd = quarter % 2;
            const T c = (quarter == 1 || quarter == 2 ? T(-1) : T(1)) * (is_odd ? sine : cosine);
            const T d = T(sign) * (quarter < 2 ? T(1) : T(-1)) * (is_odd ? cosine : sine);
            const Complex<T> x = first[s * distance];
            re += x.re * c - x.im * d;
            im += x.re * d + x.im * c;
        }
        to[i] = Complex<T>{re, im};
    }
}
