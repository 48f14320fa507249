// The functions that the formulas of the op table call, beside CUDA's own (exp, log, erf, ...). On the CPU they are those
// of ops/src/formula.rs.
#pragma once

#include "types.cuh"

// A literal in a formula: T is the type in which the code around it computes.
#define num(x) T(x)

// Whether a type holds integers, fractions, or neither (bool).
template <typename T>
struct Kind {
    static const bool integer = T(0.5) == T(0), fractional = T(2.5) != T(2);
};

// Functions of floats and integers.

template <typename T>
GT_DEVICE T select(bool condition, T yes, T no) {
    return condition ? yes : no;
}

template <typename T>
GT_DEVICE bool nonzero(T x) {
    return x != T(0);
}
template <typename T>
GT_DEVICE bool is_nan(T x) {
    return x != x;
}
// Whether the magnitude is at most the largest float's; integers are finite.
template <typename T>
GT_DEVICE bool is_finite(T x) {
    if constexpr (!Kind<T>::fractional) return true;
    else return fabs(x) <= (sizeof(T) == 4 ? T(3.4028234663852886e38) : T(1.7976931348623157e308));
}
template <typename T>
GT_DEVICE bool is_inf(T x) {
    return !is_finite(x) && !is_nan(x);
}
template <typename T>
GT_DEVICE bool sign_bit(T x) {
    if constexpr (Kind<T>::fractional) return copysign(T(1), x) < T(0);
    else return x < T(0);
}

// The smaller of two floats or integers; NaN if either is NaN. Integers of 16 bits are compared as `int`: of pairs of
// them in one register the assembler for 9.0 spills registers.
template <typename T>
GT_DEVICE T minimum(T a, T b) {
    if constexpr (sizeof(T) == 2 && !Kind<T>::fractional) {
        int x = a, y = b;
        return T(x < y ? x : y);
    } else {
        T low = a < b ? a : b;
        return a != a ? a : low;
    }
}
// The larger; NaN if either is NaN.
template <typename T>
GT_DEVICE T maximum(T a, T b) {
    if constexpr (sizeof(T) == 2 && !Kind<T>::fractional) {
        int x = a, y = b;
        return T(x > y ? x : y);
    } else {
        T high = a > b ? a : b;
        return a != a ? a : high;
    }
}

// The sign: -1, 0 or 1; 0 for NaN.
template <typename T>
GT_DEVICE T sign(T x) {
    return x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0);
}

// Functions of floats.

// The CDF of the standard normal distribution, and the derivatives of gelu, of its tanh approximation, and of silu.
template <typename R>
GT_DEVICE R normal_cdf(R x) {
    return R(0.5) * (R(1) + erf(x * R(0.70710678118654752)));
}
template <typename R>
GT_DEVICE R gelu_slope(R x) {
    R density = R(0.3989422804014327) * exp(-(R(0.5) * x * x));
    return normal_cdf(x) + x * density;
}
template <typename R>
GT_DEVICE R silu_slope(R x) {
    R sigmoid = R(1) / (R(1) + exp(-x));
    return sigmoid * (R(1) + x * (R(1) - sigmoid));
}
template <typename R>
GT_DEVICE R gelu_tanh_slope(R a) {
    // Beyond 30 the derivative is 0 or 1 to the last bit, and x squared could overflow.
    R x = minimum(maximum(a, R(-30)), R(30));
    R k = R(0.7978845608028654), square = x * x;
    R u = k * x * (R(1) + R(0.044715) * square);
    // (1 + tanh(u)) / 2 as a sigmoid, which does not cancel where tanh(u) is near -1.
    R below = R(1) / (R(1) + exp(-(R(2) * u)));
    return below + R(2) * x * below * (R(1) - below) * k * (R(1) + R(3.0 * 0.044715) * square);
}

// log(exp(a) + exp(b)), and the same to base 2. Equal operands are a case of their own: inf - inf is NaN.
template <typename R>
GT_DEVICE R log_add(R a, R b) {
    R sum = maximum(a, b) + log1p(exp(-fabs(a - b)));
    return a == b ? a + R(0.69314718055994531) : sum;
}
template <typename R>
GT_DEVICE R log_add2(R a, R b) {
    R sum = maximum(a, b) + log1p(exp2(-fabs(a - b))) * R(1.4426950408889634);
    return a == b ? a + R(1) : sum;
}

// a log(b); 0 where a is 0, unless b is NaN.
template <typename R>
GT_DEVICE R xlogy(R a, R b) {
    R y = a == R(0) ? R(0) : a * log(b);
    return is_nan(b) ? b : y;
}

// The remainder of floor division, with the sign of the divisor, as Python's %.
template <typename R>
GT_DEVICE R float_floor_rem(R a, R divisor) {
    R r = fmod(a, divisor);
    return r != R(0) && (r < R(0)) != (divisor < R(0)) ? r + divisor : r;
}
GT_DEVICE float floor_rem(float a, float divisor) { return float_floor_rem(a, divisor); }
GT_DEVICE double floor_rem(double a, double divisor) { return float_floor_rem(a, divisor); }

// Floor division by way of the exact remainder (CPython's float_floor_div).
template <typename R>
GT_DEVICE R float_floor_div(R a, R divisor) {
    if (divisor == R(0)) return a / divisor;
    R r = fmod(a, divisor);
    R quotient = (a - r) / divisor;
    if (r != R(0) && (divisor < R(0)) != (r < R(0))) quotient -= R(1);
    if (quotient == R(0)) return copysign(R(0), a / divisor);
    R low = floor(quotient);
    return quotient - low > R(0.5) ? low + R(1) : low;
}
GT_DEVICE float floor_div(float a, float divisor) { return float_floor_div(a, divisor); }
GT_DEVICE double floor_div(double a, double divisor) { return float_floor_div(a, divisor); }

// Functions of integers. Arithmetic wraps; division by 0 gives 0, and kernels that divide report it before.

template <typename I>
GT_DEVICE I wrapping_add(I a, I b) {
    typedef typename Wrapping<I>::type U;
    return I(U(a) + U(b));
}
template <typename I>
GT_DEVICE I wrapping_sub(I a, I b) {
    typedef typename Wrapping<I>::type U;
    return I(U(a) - U(b));
}
template <typename I>
GT_DEVICE I wrapping_mul(I a, I b) {
    typedef typename Wrapping<I>::type U;
    return I(U(a) * U(b));
}
template <typename I>
GT_DEVICE I wrapping_neg(I a) {
    return wrapping_sub(I(0), a);
}
template <typename I>
GT_DEVICE I wrapping_abs(I a) {
    return a < I(0) ? wrapping_neg(a) : a;
}

// The least integer over -1 overflows: the quotient wraps to itself, and the remainder is 0.
template <typename I>
GT_DEVICE I trunc_div(I a, I divisor) {
    if (I(-1) < I(0) && divisor == I(-1)) return wrapping_neg(a);
    return divisor == I(0) ? I(0) : I(a / divisor);
}
template <typename I>
GT_DEVICE I trunc_rem(I a, I divisor) {
    if (I(-1) < I(0) && divisor == I(-1)) return I(0);
    return divisor == I(0) ? I(0) : I(a % divisor);
}
template <typename I>
GT_DEVICE I floor_div(I a, I divisor) {
    I quotient = trunc_div(a, divisor), left = trunc_rem(a, divisor);
    return left != I(0) && (left < I(0)) != (divisor < I(0)) ? I(quotient - I(1)) : quotient;
}
template <typename I>
GT_DEVICE I floor_rem(I a, I divisor) {
    I left = trunc_rem(a, divisor);
    return left != I(0) && (left < I(0)) != (divisor < I(0)) ? I(left + divisor) : left;
}

// Integer power by repeated squaring. Negative exponents give 0, or 1 and -1 for bases of 1 and -1.
template <typename I>
GT_DEVICE I int_pow(I base, I exponent) {
    if (exponent < I(0)) {
        if (base == I(1)) return I(1);
        return base != I(-1) ? I(0) : (exponent & I(1)) != 0 ? I(-1) : I(1);
    }
    I result = I(1);
    for (u64 left = u64(exponent); left > 0; left >>= 1) {
        if (left & 1) result = wrapping_mul(result, base);
        base = wrapping_mul(base, base);
    }
    return result;
}

template <typename I>
GT_DEVICE I gcd(I a, I b) {
    a = wrapping_abs(a);
    b = wrapping_abs(b);
    while (b != I(0)) {
        I left = trunc_rem(a, b);
        a = b;
        b = left;
    }
    return wrapping_abs(a);
}
template <typename I>
GT_DEVICE I lcm(I a, I b) {
    I divisor = gcd(a, b);
    return divisor == I(0) ? I(0) : wrapping_abs(wrapping_mul(trunc_div(a, divisor), b));
}

template <typename I>
GT_DEVICE I bit_and(I a, I b) {
    return I(a & b);
}
template <typename I>
GT_DEVICE I bit_or(I a, I b) {
    return I(a | b);
}
template <typename I>
GT_DEVICE I bit_xor(I a, I b) {
    return I(a ^ b);
}
template <typename I>
GT_DEVICE I bit_not(I a) {
    return I(~a);
}
GT_DEVICE bool bit_not(bool a) { return !a; }

// Left shift, 0 if all bits are shifted out; arithmetic right shift, all sign bits if so.
template <typename I>
GT_DEVICE I shift_left(I a, I bits) {
    typedef typename Wrapping<I>::type U;
    return bits < I(0) || u64(bits) >= 8 * sizeof(I) ? I(0) : I(U(a) << bits);
}
template <typename I>
GT_DEVICE I shift_right(I a, I bits) {
    const int most = 8 * sizeof(I) - 1;
    bool within = !(bits < I(0)) && u64(bits) <= u64(most);
    return within ? I(a >> bits) : a < I(0) ? I(-1) : I(0);
}

// Conversions between compute types, as Rust's `as`: floats truncate towards 0 and saturate, NaN becomes 0, and a
// result that does not fit an integer of fewer than 32 bits wraps. A number converts to true if it is not 0.

template <typename I, typename R>
GT_DEVICE I saturated(R x, R least, I min, I max) {
    return is_nan(x) ? I(0) : x <= least ? min : x >= -least ? max : I(x);
}
template <typename R>
GT_DEVICE i32 to_i32(R x) {
    return saturated<i32>(x, R(-2147483648.0), -2147483647 - 1, 2147483647);
}
template <typename R>
GT_DEVICE i64 to_i64(R x) {
    return saturated<i64>(x, R(-9223372036854775808.0), -9223372036854775807ll - 1, 9223372036854775807ll);
}

template <typename To, typename From>
GT_DEVICE To converted(From x) {
    if constexpr (Kind<From>::fractional && Kind<To>::integer && sizeof(To) == 8) return To(to_i64(x));
    else if constexpr (Kind<From>::fractional && Kind<To>::integer) return To(to_i32(x));
    else return To(x);
}
