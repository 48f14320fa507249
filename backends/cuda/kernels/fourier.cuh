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
        const f64 turn = f64(sign) * 6.283185307179586 / f64(parts);
        T re = 0, im = 0;
        for (i64 s = 0; s < radix; s++) {
            // The angle is below a whole turn, so that it is exact to the last bits.
            const T angle = T(turn * f64(s * k % parts));
            const T c = cos(angle), d = sin(angle);
            const Complex<T> x = first[s * distance];
            re += x.re * c - x.im * d;
            im += x.re * d + x.im * c;
        }
        to[i] = Complex<T>{re, im};
    }
}
