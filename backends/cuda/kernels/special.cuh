// Special functions, in f64, by the algorithms of `ops/src/special.rs`.
#pragma once
#include "math.cuh"

#define GT_PI 3.14159265358979323846
#define GT_LN_2 0.69314718055994530942
#define GT_EPSILON 2.220446049250313e-16
#define GT_INFINITY double_of(0x7ff0000000000000ull)
#define GT_NAN double_of(0x7ff8000000000000ull)

// The logarithm of the gamma function. CUDA's of f32 is right to the last digits of the largest term of its sum, which
// cancels near the roots between negative integers.
GT_DEVICE double log_gamma(double x) { return lgamma(x); }
GT_DEVICE float log_gamma(float x) { return x < 0.0f ? float(lgamma(double(x))) : lgamma(x); }

// The derivative of lgamma: the recurrence up to 10, the reflection formula below 0, then the asymptotic series (DLMF
// 5.11.2).
GT_DEVICE double digamma(double x) {
    if (x == 0.0) return copysign(GT_INFINITY, -x);
    double reflected = 0.0;
    if (x < 0.0) {
        double fraction = x - trunc(x);
        if (fraction == 0.0 || is_inf(x)) return GT_NAN;
        reflected = -GT_PI / tan(GT_PI * fraction);
        x = 1.0 - x;
    }
    double sum = 0.0;
    for (; x < 10.0; x += 1.0) sum -= 1.0 / x;
    double z = 1.0 / (x * x);
    // Bernoulli numbers B(2k) / 2k.
    const double terms[7] = {1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12};
    double series = 0.0;
    for (int i = 6; i >= 0; i--) series = series * z + terms[i];
    return sum + log(x) - 0.5 / x - z * series + reflected;
}

// The Hurwitz zeta function for q > 0, by Euler-Maclaurin summation.
GT_DEVICE double zeta_above(double x, double q) {
    if (q > 1e8) return (1.0 / (x - 1.0) + 1.0 / (2.0 * q)) * pow(q, 1.0 - x);
    // (2k)! / B(2k), where B(2k) is a Bernoulli number.
    const double terms[12] = {12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1892437580.3183792, 74724249600.0,
                              -2950130727918.164, 116467828143500.67, -4597978722407472.6, 1.8152105401943547e17,
                              -7.166165256175667e18};
    double sum = pow(q, -x), a = q, term = 0.0;
    for (int n = 0; n < 9 || a <= 9.0; n++) {
        a += 1.0;
        term = pow(a, -x);
        sum += term;
        if (term <= GT_EPSILON * sum) return sum;
    }
    sum += term * a / (x - 1.0) - 0.5 * term;
    double factor = 1.0;
    for (int i = 0; i < 12; i++) {
        double k = 2.0 * i;
        factor *= x + k;
        term /= a;
        double next = factor * term / terms[i];
        sum += next;
        if (fabs(next / sum) < GT_EPSILON) break;
        factor *= x + k + 1.0;
        term /= a;
    }
    return sum;
}

// The Hurwitz zeta function, the sum of (q + k) ^ -x over k from 0 on.
GT_DEVICE double zeta(double x, double q) {
    if (is_nan(x) || is_nan(q) || x < 1.0) return GT_NAN;
    if (x == 1.0) return GT_INFINITY;
    if (q > 0.0) return zeta_above(x, q);
    if (q == floor(q)) return GT_INFINITY;
    if (x != floor(x) || is_inf(x)) return GT_NAN;
    // The sum of the terms with q + k < 0 is, up to its sign, a difference of two zeta functions.
    double count = ceil(-q);
    double below = zeta_above(x, 1.0 - q - count) - zeta_above(x, 1.0 - q);
    return (fmod(x, 2.0) == 0.0 ? below : -below) + zeta_above(x, q + count);
}

// The inverse of erfc for z at most 1: Winitzki's approximation (2008), refined by Halley's method.
GT_DEVICE double erfc_inverse(double z) {
    if (z == 0.0) return GT_INFINITY;
    if (z < 0.0 || is_nan(z)) return GT_NAN;
    double logarithm = log(z * (2.0 - z));
    double t = 2.0 / (GT_PI * 0.147) + 0.5 * logarithm;
    double y = sqrt(fmax(sqrt(t * t - logarithm / 0.147) - t, 0.0));
    for (int i = 0; i < 3; i++) {
        double step = (erfc(y) - z) / (2.0 / sqrt(GT_PI) * exp(-y * y));
        if (!is_finite(step)) break;
        y += step / (1.0 - y * step);
    }
    return y;
}

#ifdef GT_EMULATED
// CUDA provides these two functions.
GT_DEVICE double erfcx(double x) {
    if (x < 2.0) return exp(x * x) * erfc(x);
    // For larger x, exp(x * x) overflows: a continued fraction (DLMF 7.9.1).
    double rest = 0.0;
    for (int k = 60; k > 0; k--) rest = 0.5 * k / (x + rest);
    return 1.0 / ((x + rest) * sqrt(GT_PI));
}
GT_DEVICE double erfinv(double x) {
    double a = fabs(x);
    if (a > 0.5) return copysign(erfc_inverse(1.0 - a), x);
    double y = a * sqrt(GT_PI) / 2.0;
    for (int i = 0; i < 4; i++) {
        double step = (a - erf(y)) / (2.0 / sqrt(GT_PI) * exp(-y * y));
        y += step / (1.0 - y * step);
    }
    return copysign(y, x);
}
GT_DEVICE float erfcx(float x) { return float(erfcx(double(x))); }
GT_DEVICE float erfinv(float x) { return float(erfinv(double(x))); }
#endif

// The quantile function of the standard normal distribution.
GT_DEVICE double ndtri(double p) {
    double root2 = 1.41421356237309504880;
    return p > 0.5 ? root2 * erfc_inverse(2.0 * (1.0 - p)) : -root2 * erfc_inverse(2.0 * p);
}

// The logarithm of the standard normal CDF.
GT_DEVICE double log_ndtr(double x) {
    double t = x * 0.70710678118654752440;
    return x < -1.0 ? log(erfcx(-t)) - GT_LN_2 - t * t : log1p(-0.5 * erfc(t));
}

// The modified Bessel function of the first kind, of order 0 or 1, times exp(-|x|): the power series (DLMF 10.25.2) up
// to 30, the asymptotic expansion (DLMF 10.40.1) beyond.
GT_DEVICE double bessel_scaled(double x, double order) {
    double a = fabs(x);
    if (is_inf(a)) return 0.0;
    if (is_nan(a)) return a;
    if (a <= 30.0) {
        double square = 0.25 * a * a, term = order == 0.0 ? 1.0 : 0.5 * a, sum = 0.0;
        for (double k = 1.0; term > GT_EPSILON * 0.25 * sum; k += 1.0) {
            sum += term;
            term *= square / (k * (k + order));
        }
        return sum * exp(-a);
    }
    double term = 1.0, sum = 0.0;
    for (int k = 1; k < 60; k++) {
        sum += term;
        double odd = 2 * k - 1;
        double next = -term * (4.0 * order - odd * odd) / (k * 8.0 * a);
        if (fabs(next) > fabs(term) || fabs(next) < GT_EPSILON * 0.1) break;
        term = next;
    }
    return sum / (sqrt(2.0 * GT_PI) * sqrt(a));
}
// exp(|x|) y, as two factors, since exp(|x|) alone may overflow.
GT_DEVICE double unscaled(double y, double x) {
    if (is_inf(x)) return copysign(GT_INFINITY, y);
    double root = exp(0.5 * fabs(x));
    return y * root * root;
}
GT_DEVICE double i0e(double x) { return bessel_scaled(x, 0.0); }
GT_DEVICE double i1e(double x) { return copysign(bessel_scaled(x, 1.0), x); }
GT_DEVICE double i0(double x) { return unscaled(i0e(x), x); }
GT_DEVICE double i1(double x) { return unscaled(i1e(x), x); }

// The most terms of the two expansions below; shape 1e6 takes 9,000 near its middle.
#define GT_TERMS_MAX (1 << 14)

// a (d - ln(1 + d)) for the relative distance d of x from a; near a without cancellation, from ln(1 + d) = 2 artanh(d /
// (2 + d)).
GT_DEVICE double gamma_exponent(double a, double x) {
    double away = (x - a) / a;
    if (fabs(away) > 0.1) return a * (away - log1p(away));
    double ratio = away / (2.0 + away), square = ratio * ratio, tail = 0.0;
    for (int k = 7; k >= 0; k--) tail = tail * square + 1.0 / (2 * k + 3);
    return a * ratio * (away - 2.0 * square * tail);
}
// x^a e^-x / gamma(a + 1), without cancellation for large a.
GT_DEVICE double gamma_factor(double a, double x) {
    if (a < 10.0) return exp(a * log(x) - x - lgamma(a + 1.0));
    // Stirling's formula with its error series, so that only the relative distance of x from a remains.
    double error = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * a * a)) / (a * a)) / a;
    return exp(-gamma_exponent(a, x) - error) / sqrt(2.0 * GT_PI * a);
}
// The regularized lower incomplete gamma function by its series (DLMF 8.11.4), for x < a + 1.
GT_DEVICE double gamma_series(double a, double x) {
    double term = 1.0, sum = 1.0;
    for (int n = 1; n < GT_TERMS_MAX; n++) {
        term *= x / (a + n);
        sum += term;
        if (term < sum * 1e-17) break;
    }
    return gamma_factor(a, x) * sum;
}
// The regularized upper incomplete gamma function by its continued fraction (DLMF 8.9.2, by Lentz's method), for x >= a
// + 1.
GT_DEVICE double gamma_fraction(double a, double x) {
    const double tiny = 1e-300;
    double b = x + 1.0 - a, c = 1.0 / tiny, d = 1.0 / b, product = d;
    for (int n = 1; n < GT_TERMS_MAX; n++) {
        double numerator = n * (a - n);
        b += 2.0;
        d = numerator * d + b;
        d = 1.0 / (fabs(d) < tiny ? tiny : d);
        c = b + numerator / c;
        c = fabs(c) < tiny ? tiny : c;
        product *= d * c;
        if (fabs(d * c - 1.0) < 1e-16) break;
    }
    return gamma_factor(a, x) * a * product;
}
// From this shape on, Temme's uniform expansion (DLMF 8.12.4) takes three functions, each by powers of its variable.
#define GT_LARGE_SHAPE 1e6
GT_DEVICE double gamma_of_large_shape(double a, double x, double sign) {
    double exponent = gamma_exponent(a, x);
    if (exponent > 750.0) return (x > a) == (sign > 0.0) ? 0.0 : 1.0;
    double v = copysign(sqrt(2.0 * exponent / a), x - a);
    double third = (v / 1296.0 - 139.0 / 51840.0) * v + 25.0 / 6048.0;
    double second = (((-4.018775720164609e-7 * v + 2.05761316872428e-4) * v - 77.0 / 77760.0) * v + 1.0 / 378.0) * v;
    second = (second - 1.0 / 288.0) * v - 1.0 / 540.0;
    double first = ((6.707853543401498e-9 * v - 1.7665952736826078e-7) * v + 8.296711340953087e-7) * v;
    first = ((first - 1.85406221071516e-6) * v - 2.185448510679992e-6) * v + 1.0 / 25515.0;
    first = ((first * v - 139.0 / 777600.0) * v + 1.0 / 2835.0) * v + 1.0 / 864.0;
    first = ((first * v - 2.0 / 135.0) * v + 1.0 / 12.0) * v - 1.0 / 3.0;
    double sum = (third / a + second) / a + first;
    double half = 0.5 * erfc(sign * copysign(sqrt(exponent), x - a));
    return half + sign * exp(-exponent) * sum / sqrt(2.0 * GT_PI * a);
}
// The regularized incomplete gamma function, lower if `below`, otherwise upper.
GT_DEVICE double gamma_share(double a, double x, bool below) {
    double lower;
    if (!(a >= 0.0 && x >= 0.0) || (a == 0.0 && x == 0.0) || (is_inf(a) && is_inf(x))) {
        return GT_NAN;
    } else if (a == 0.0 || is_inf(x)) {
        lower = 1.0;
    } else if (x == 0.0 || is_inf(a)) {
        lower = 0.0;
    } else if (a > GT_LARGE_SHAPE) {
        return gamma_of_large_shape(a, x, below ? -1.0 : 1.0);
    } else if (x < a + 1.0) {
        lower = gamma_series(a, x);
    } else {
        double upper = gamma_fraction(a, x);
        return below ? 1.0 - upper : upper;
    }
    return below ? lower : 1.0 - lower;
}
GT_DEVICE double gammainc(double a, double x) { return gamma_share(a, x, true); }
GT_DEVICE double gammaincc(double a, double x) { return gamma_share(a, x, false); }

// The derivative of a gamma sample by its shape, with the CDF held constant (implicit reparameterization, Figurnov et
// al. 2018): -(d gammainc / da) / (d gammainc / dx).
//
// The series of gammainc and its derivative term by term; in the upper tail, where those cancel, the integral of (ln(x
// + s) - digamma(a)) (1 + s / x)^(a - 1) e^-s over s from 0 on, by Simpson's rule.
GT_DEVICE double gamma_slope(double a, double x) {
    if (!(a > 0.0 && x > 0.0) || is_inf(a) || is_inf(x)) return GT_NAN;
    if (a > 1e6) return 1.0 + (x - a) / (2.0 * a);
    if (x > a + 6.0 * sqrt(a) + 6.0) {
        const int steps = 1000;
        double end = 45.0 * x / fmax(x - a + 1.0, 1.0), mean = digamma(a), step = end / steps, sum = 0.0;
        for (int i = 0; i <= steps; i++) {
            double s = i == steps ? end : i * step;
            double at = (log(x + s) - mean) * exp((a - 1.0) * log1p(s / x) - s);
            sum += at * (i == 0 || i == steps ? 1.0 : i % 2 == 1 ? 4.0 : 2.0);
        }
        return sum * step / 3.0;
    }
    double term = 1.0, sum = 1.0, harmonic = 0.0, slopes = 0.0;
    for (int n = 1; n < GT_TERMS_MAX; n++) {
        double next = a + n;
        term *= x / next;
        harmonic += 1.0 / next;
        sum += term;
        slopes += term * harmonic;
        if (term * (harmonic + 1.0) < (sum + slopes) * 1e-17) break;
    }
    return (slopes - sum * (log(x) - digamma(a + 1.0))) * x / a;
}
