// Passes of discrete Fourier transforms of rows of complex numbers, and what makes those of real numbers of them.
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

// e to the power of 2 pi i part / parts.
template <typename T>
GT_DEVICE Complex<T> unit(i64 part, i64 parts) {
    const f64 angle = 6.283185307179586 * f64(part) / f64(parts);
    return Complex<T>{T(cos(angle)), T(sin(angle))};
}

// Rows of 2 half real numbers were transformed as complex ones, whose parts are the elements with even and with odd
// places. Makes their half + 1 frequencies of the half numbers of a row: with E and O the transforms of both parts, which
// the symmetry of real numbers' transforms separates, frequency k is E + w O, where w is e to the power of -pi i k / half.
template <typename T>
GT_DEVICE void fourier_separate(Complex<T> *to, const Complex<T> *from, i64 numbers, i64 half) {
    GT_FOR_EACH(i, numbers) {
        const i64 row = i / (half + 1), k = i % (half + 1);
        const Complex<T> a = from[row * half + k % half], b = from[row * half + (half - k) % half];
        const Complex<T> w = unit<T>(-k, 2 * half);
        const T even_re = (a.re + b.re) / 2, even_im = (a.im - b.im) / 2;
        const T odd_re = (a.im + b.im) / 2, odd_im = (b.re - a.re) / 2;
        const bool is_real = k == 0 || k == half;
        to[i] = Complex<T>{even_re + w.re * odd_re - w.im * odd_im,
                           is_real ? T(0) : even_im + w.re * odd_im + w.im * odd_re};
    }
}

// The inverse, not normalized: the half numbers of a row whose inverse transform has the row's real numbers as its parts.
template <typename T>
GT_DEVICE void fourier_join(Complex<T> *to, const Complex<T> *from, i64 numbers, i64 half) {
    GT_FOR_EACH(i, numbers) {
        const i64 row = i / half, k = i % half;
        Complex<T> a = from[row * (half + 1) + k], b = from[row * (half + 1) + half - k];
        if (k == 0) a.im = b.im = 0;
        const Complex<T> w = unit<T>(k, 2 * half);
        const T even_re = a.re + b.re, even_im = a.im - b.im;
        const T odd_re = a.re - b.re, odd_im = a.im + b.im;
        to[i] = Complex<T>{even_re - (w.re * odd_im + w.im * odd_re), even_im + w.re * odd_re - w.im * odd_im};
    }
}
