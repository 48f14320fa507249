//! The functions that the formulas of the op table call, for floats and for integers.
//!
//! CUDA C++ has each under the same name: some are CUDA's own, as `exp`, and the others are in the CUDA backend's
//! `math.cuh` and `special.cuh`. A formula of both kinds of numbers calls functions that both modules have.

/// `yes` where the condition holds, `no` elsewhere. Both are computed, so that a loop vectorizes.
#[inline(always)]
pub fn select<T>(condition: bool, yes: T, no: T) -> T {
    if condition { yes } else { no }
}

/// Functions from their expressions: `exp(a) = a.exp();`.
macro_rules! functions {
    ($bound:ident $result:ty: $($(#[$doc:meta])* $name:ident($($x:ident),+) = $value:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<T: $bound>($($x: T),+) -> $result {
            $value
        }
    )*};
}

/// Functions of floats.
pub mod real {
    pub use crate::formula::select;
    use crate::math::Real;
    use crate::special;
    use std::f64::consts::{LN_2, LOG2_E};

    /// The number of the operands' type that is nearest to `x`: `num(x)` in a formula.
    #[inline(always)]
    pub fn literal<T: Real>(x: f64) -> T {
        T::from_f64(x)
    }

    functions! { Real T:
        exp(a) = a.exp();
        exp2(a) = a.exp2();
        expm1(a) = a.exp_m1();
        log(a) = a.ln();
        log2(a) = a.log2();
        log10(a) = a.log10();
        log1p(a) = a.ln_1p();
        sqrt(a) = a.sqrt();
        pow(a, b) = a.pow(b);
        xlogy(a, b) = a.xlogy(b);
        /// log(exp(a) + exp(b)).
        log_add(a, b) = a.log_add(b, LN_2, T::exp, T::ln_1p);
        /// log2(2^a + 2^b).
        log_add2(a, b) = a.log_add(b, 1.0, T::exp2, |x| x.ln_1p() * T::from_f64(LOG2_E));

        sin(a) = a.sin();
        cos(a) = a.cos();
        tan(a) = a.tan();
        asin(a) = a.asin();
        acos(a) = a.acos();
        atan(a) = a.atan();
        atan2(a, b) = a.atan2(b);
        sinh(a) = a.sinh();
        cosh(a) = a.cosh();
        tanh(a) = a.tanh();
        asinh(a) = a.asinh();
        acosh(a) = a.acosh();
        atanh(a) = a.atanh();

        erf(a) = a.erf();
        erfc(a) = T::from_f64(special::erfc(a.to_f64()));
        erfcx(a) = T::from_f64(special::erfcx(a.to_f64()));
        erfinv(a) = a.erfinv();
        normal_cdf(a) = a.normal_cdf();
        ndtri(a) = a.ndtri();
        log_ndtr(a) = T::from_f64(special::log_ndtr(a.to_f64()));
        log_gamma(a) = a.lgamma();
        digamma(a) = T::from_f64(special::digamma(a.to_f64()));
        zeta(a, b) = T::from_f64(special::zeta(a.to_f64(), b.to_f64()));
        gammainc(a, b) = T::from_f64(special::gammainc(a.to_f64(), b.to_f64()));
        gammaincc(a, b) = T::from_f64(special::gammaincc(a.to_f64(), b.to_f64()));
        gamma_slope(a, b) = T::from_f64(special::gamma_slope(a.to_f64(), b.to_f64()));
        i0(a) = T::from_f64(special::i0(a.to_f64()));
        i0e(a) = T::from_f64(special::i0e(a.to_f64()));
        i1(a) = T::from_f64(special::i1(a.to_f64()));
        i1e(a) = T::from_f64(special::i1e(a.to_f64()));

        fabs(a) = a.abs();
        sign(a) = a.sign();
        copysign(a, b) = a.copysign(b);
        nextafter(a, b) = a.next_after(b);
        floor(a) = a.floor();
        ceil(a) = a.ceil();
        /// The nearest integer, halves to even.
        rint(a) = a.round_even();
        trunc(a) = a.trunc();
        minimum(a, b) = a.minimum(b);
        maximum(a, b) = a.maximum(b);
        fmod(a, b) = a.fmod(b);
        floor_div(a, b) = a.floor_div(b);
        floor_rem(a, b) = a.floor_rem(b);
    }

    functions! { Real bool:
        nonzero(a) = a != T::ZERO;
        is_nan(a) = a.is_nan();
        is_inf(a) = a.abs() == T::INFINITY;
        is_finite(a) = a.abs() < T::INFINITY;
        /// Whether the sign bit is set, also that of -0.0 and of NaN.
        sign_bit(a) = T::ONE.copysign(a) < T::ZERO;
    }

    /// The derivative of gelu.
    #[inline(always)]
    pub fn gelu_slope<T: Real>(a: T) -> T {
        let half = T::from_f64(0.5);
        let density = T::from_f64(0.398_942_280_401_432_7) * (-(half * a * a)).exp();
        a.normal_cdf() + a * density
    }

    /// The derivative of silu.
    #[inline(always)]
    pub fn silu_slope<T: Real>(a: T) -> T {
        let sigmoid = T::ONE / (T::ONE + (-a).exp());
        sigmoid * (T::ONE + a * (T::ONE - sigmoid))
    }

    /// The derivative of gelu's approximation by tanh.
    #[inline(always)]
    pub fn gelu_tanh_slope<T: Real>(a: T) -> T {
        let (two, k) = (T::from_f64(2.0), T::from_f64(0.797_884_560_802_865_4));
        // Beyond the bound the derivative is 0 or 1 to the last bit; the square of x could overflow.
        let bound = T::from_f64(30.0);
        let x = a.maximum(-bound).minimum(bound);
        let square = x * x;
        let u = k * x * (T::ONE + T::from_f64(0.044715) * square);
        // (1 + tanh(u)) / 2 as a sigmoid: the sum would cancel where tanh(u) is near -1.
        let below = T::ONE / (T::ONE + (-(two * u)).exp());
        below + two * x * below * (T::ONE - below) * k * (T::ONE + T::from_f64(3.0 * 0.044715) * square)
    }
}

/// Functions of integers and bools. Arithmetic wraps.
pub mod int {
    pub use crate::formula::select;
    use crate::integers::Int;

    /// The number `x`, an integer, in the operands' type: `num(x)` in a formula.
    #[inline(always)]
    pub fn literal<T: Int>(x: f64) -> T {
        T::from_i64(x as i64)
    }

    functions! { Int T:
        wrapping_add(a, b) = a.wrapping_add(b);
        wrapping_sub(a, b) = a.wrapping_sub(b);
        wrapping_mul(a, b) = a.wrapping_mul(b);
        wrapping_neg(a) = a.wrapping_neg();
        wrapping_abs(a) = a.wrapping_abs();
        int_pow(a, b) = a.pow(b);
        sign(a) = a.sign();
        minimum(a, b) = a.imin(b);
        maximum(a, b) = a.imax(b);
        floor_div(a, b) = a.floor_div(b);
        floor_rem(a, b) = a.floor_rem(b);
        trunc_rem(a, b) = a.trunc_rem(b);
        gcd(a, b) = a.gcd(b);
        lcm(a, b) = a.lcm(b);
        bit_not(a) = a.bit_not();
        bit_and(a, b) = a.bit_and(b);
        bit_or(a, b) = a.bit_or(b);
        bit_xor(a, b) = a.bit_xor(b);
        shift_left(a, b) = a.shift_left(b);
        shift_right(a, b) = a.shift_right(b);
    }

    functions! { Int bool:
        nonzero(a) = a != T::ZERO;
        is_nan(_a) = false;
        is_inf(_a) = false;
        is_finite(_a) = true;
        sign_bit(a) = a < T::ZERO;
    }
}
