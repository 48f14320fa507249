//! The arithmetic that rows of the table are written in, for the float and integer types kernels compute in.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A float type kernels compute in: `f32` or `f64`.
pub trait Real:
    Copy
    + PartialEq
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + Send
    + Sync
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Positive infinity.
    const INFINITY: Self;
    /// The nearest value to `x`.
    fn from_f64(x: f64) -> Self;
    /// The value as an f64, exactly.
    fn to_f64(self) -> f64;
    /// e to the power of self.
    fn exp(self) -> Self;
    /// exp(self) - 1.
    fn exp_m1(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// ln(1 + self).
    fn ln_1p(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// The sine.
    fn sin(self) -> Self;
    /// The cosine.
    fn cos(self) -> Self;
    /// The tangent.
    fn tan(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// self to the power of `exponent`.
    fn pow(self, exponent: Self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// The largest integer not above.
    fn floor(self) -> Self;
    /// The smallest integer not below.
    fn ceil(self) -> Self;
    /// The nearest integer, halves to even.
    fn round_even(self) -> Self;
    /// Without the fraction.
    fn trunc(self) -> Self;
    /// `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// `self - trunc(self / other) * other`, exactly.
    fn fmod(self, other: Self) -> Self;

    /// Whether this is not a number.
    fn is_nan(self) -> bool;

    /// -1, 0 or 1; 0 for NaN, as PyTorch.
    #[inline(always)]
    fn sign(self) -> Self {
        if self > Self::ZERO {
            Self::ONE
        } else if self < Self::ZERO {
            -Self::ONE
        } else {
            Self::ZERO
        }
    }
    /// The smaller; NaN if either is.
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        // A comparison with NaN is false: the second line then returns a NaN operand itself.
        let low = if self < other { self } else { other };
        if self.is_nan() { self } else { low }
    }
    /// The larger; NaN if either is.
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        let high = if self > other { self } else { other };
        if self.is_nan() { self } else { high }
    }
    /// What floor division leaves: the sign of the divisor, as Python's `%`.
    #[inline(always)]
    fn floor_rem(self, divisor: Self) -> Self {
        let r = self.fmod(divisor);
        if r != Self::ZERO && (r < Self::ZERO) != (divisor < Self::ZERO) { r + divisor } else { r }
    }
    /// Division rounded down, by way of the exact remainder (CPython's `float_floor_div`).
    #[inline(always)]
    fn floor_div(self, divisor: Self) -> Self {
        if divisor == Self::ZERO {
            return self / divisor;
        }
        let r = self.fmod(divisor);
        let mut quotient = (self - r) / divisor;
        if r != Self::ZERO && (divisor < Self::ZERO) != (r < Self::ZERO) {
            quotient = quotient - Self::ONE;
        }
        if quotient == Self::ZERO {
            return Self::ZERO.copysign(self / divisor);
        }
        let floor = quotient.floor();
        if quotient - floor > Self::from_f64(0.5) { floor + Self::ONE } else { floor }
    }
}

macro_rules! real {
    ($t:ty, $erf:path) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = <$t>::INFINITY;
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn exp(self) -> Self {
                <$t>::exp(self)
            }
            #[inline(always)]
            fn exp_m1(self) -> Self {
                <$t>::exp_m1(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                <$t>::ln(self)
            }
            #[inline(always)]
            fn ln_1p(self) -> Self {
                <$t>::ln_1p(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                <$t>::sqrt(self)
            }
            #[inline(always)]
            fn sin(self) -> Self {
                <$t>::sin(self)
            }
            #[inline(always)]
            fn cos(self) -> Self {
                <$t>::cos(self)
            }
            #[inline(always)]
            fn tan(self) -> Self {
                <$t>::tan(self)
            }
            #[inline(always)]
            fn tanh(self) -> Self {
                <$t>::tanh(self)
            }
            #[inline(always)]
            fn erf(self) -> Self {
                $erf(self)
            }
            #[inline(always)]
            fn pow(self, exponent: Self) -> Self {
                <$t>::powf(self, exponent)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                <$t>::abs(self)
            }
            #[inline(always)]
            fn floor(self) -> Self {
                <$t>::floor(self)
            }
            #[inline(always)]
            fn ceil(self) -> Self {
                <$t>::ceil(self)
            }
            #[inline(always)]
            fn round_even(self) -> Self {
                <$t>::round_ties_even(self)
            }
            #[inline(always)]
            fn trunc(self) -> Self {
                <$t>::trunc(self)
            }
            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                <$t>::copysign(self, sign)
            }
            #[inline(always)]
            fn fmod(self, other: Self) -> Self {
                self % other
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
        }
    };
}
real!(f32, libm::erff);
real!(f64, libm::erf);

/// An integer type kernels compute in. Arithmetic wraps.
pub trait Int: Copy + Eq + Ord + Send + Sync + 'static {
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// The value modulo 2^bits.
    fn from_i64(x: i64) -> Self;
    /// The value.
    fn to_i64(self) -> i64;
    /// Negation.
    fn wrapping_neg(self) -> Self;
    /// Sum.
    fn wrapping_add(self, other: Self) -> Self;
    /// Difference.
    fn wrapping_sub(self, other: Self) -> Self;
    /// Product.
    fn wrapping_mul(self, other: Self) -> Self;
    /// Absolute value.
    fn wrapping_abs(self) -> Self;
    /// -1, 0 or 1.
    fn sign(self) -> Self;
    /// Division rounded down; 0 where the divisor is 0, which callers check for.
    fn floor_div(self, divisor: Self) -> Self;
    /// What [`Int::floor_div`] leaves; 0 where the divisor is 0.
    fn floor_rem(self, divisor: Self) -> Self;
    /// Power; negative exponents give 0, or ±1 for a base of ±1, as PyTorch.
    fn pow(self, exponent: Self) -> Self;
    /// The smaller.
    fn imin(self, other: Self) -> Self;
    /// The larger.
    fn imax(self, other: Self) -> Self;
    /// All bits flipped.
    fn bit_not(self) -> Self;
    /// Bits set in both.
    fn bit_and(self, other: Self) -> Self;
    /// Bits set in either.
    fn bit_or(self, other: Self) -> Self;
    /// Bits set in one.
    fn bit_xor(self, other: Self) -> Self;
}

macro_rules! int {
    ($($t:ty, $signed:literal;)*) => {$(
        impl Int for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn from_i64(x: i64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                self as i64
            }
            #[inline(always)]
            fn wrapping_neg(self) -> Self {
                <$t>::wrapping_neg(self)
            }
            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                <$t>::wrapping_add(self, other)
            }
            #[inline(always)]
            fn wrapping_sub(self, other: Self) -> Self {
                <$t>::wrapping_sub(self, other)
            }
            #[inline(always)]
            fn wrapping_mul(self, other: Self) -> Self {
                <$t>::wrapping_mul(self, other)
            }
            #[inline(always)]
            fn wrapping_abs(self) -> Self {
                if $signed && (self as i64) < 0 { <$t>::wrapping_neg(self) } else { self }
            }
            #[inline(always)]
            fn sign(self) -> Self {
                if self == 0 {
                    0
                } else if $signed && (self as i64) < 0 {
                    <$t>::wrapping_neg(1)
                } else {
                    1
                }
            }
            #[inline(always)]
            fn floor_div(self, divisor: Self) -> Self {
                if divisor == 0 {
                    return 0;
                }
                let quotient = self.wrapping_div(divisor);
                let remainder = self.wrapping_rem(divisor);
                if $signed && remainder != 0 && ((remainder as i64) < 0) != ((divisor as i64) < 0) {
                    quotient.wrapping_sub(1)
                } else {
                    quotient
                }
            }
            #[inline(always)]
            fn floor_rem(self, divisor: Self) -> Self {
                if divisor == 0 {
                    return 0;
                }
                let remainder = self.wrapping_rem(divisor);
                if $signed && remainder != 0 && ((remainder as i64) < 0) != ((divisor as i64) < 0) {
                    remainder.wrapping_add(divisor)
                } else {
                    remainder
                }
            }
            #[inline(always)]
            fn pow(self, exponent: Self) -> Self {
                if $signed && (exponent as i64) < 0 {
                    let odd = exponent & 1 == 1;
                    return if self == 1 || (self == <$t>::wrapping_neg(1) && !odd) {
                        1
                    } else if self == <$t>::wrapping_neg(1) {
                        self
                    } else {
                        0
                    };
                }
                let (mut base, mut left, mut result) = (self, exponent as u64, 1 as $t);
                while left > 0 {
                    if left & 1 == 1 {
                        result = result.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    left >>= 1;
                }
                result
            }
            #[inline(always)]
            fn imin(self, other: Self) -> Self {
                if self < other { self } else { other }
            }
            #[inline(always)]
            fn imax(self, other: Self) -> Self {
                if self > other { self } else { other }
            }
            #[inline(always)]
            fn bit_not(self) -> Self {
                !self
            }
            #[inline(always)]
            fn bit_and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn bit_or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn bit_xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    )*};
}
int! { u8, false; i8, true; i16, true; i32, true; i64, true; }

/// A bool as kernels compute with it: one byte, 0 or 1. Sums are "either", products "both".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Truth(pub u8);

impl Int for Truth {
    const ZERO: Self = Truth(0);
    const ONE: Self = Truth(1);
    #[inline(always)]
    fn from_i64(x: i64) -> Self {
        Truth((x != 0) as u8)
    }
    #[inline(always)]
    fn to_i64(self) -> i64 {
        self.0 as i64
    }
    #[inline(always)]
    fn wrapping_neg(self) -> Self {
        self
    }
    #[inline(always)]
    fn wrapping_add(self, other: Self) -> Self {
        Truth(self.0 | other.0)
    }
    #[inline(always)]
    fn wrapping_sub(self, other: Self) -> Self {
        Truth(self.0 ^ other.0)
    }
    #[inline(always)]
    fn wrapping_mul(self, other: Self) -> Self {
        Truth(self.0 & other.0)
    }
    #[inline(always)]
    fn wrapping_abs(self) -> Self {
        self
    }
    #[inline(always)]
    fn sign(self) -> Self {
        self
    }
    #[inline(always)]
    fn floor_div(self, divisor: Self) -> Self {
        Truth(self.0 & divisor.0)
    }
    #[inline(always)]
    fn floor_rem(self, _divisor: Self) -> Self {
        Truth(0)
    }
    #[inline(always)]
    fn pow(self, exponent: Self) -> Self {
        Truth(self.0 | (exponent.0 ^ 1))
    }
    #[inline(always)]
    fn imin(self, other: Self) -> Self {
        Truth(self.0 & other.0)
    }
    #[inline(always)]
    fn imax(self, other: Self) -> Self {
        Truth(self.0 | other.0)
    }
    #[inline(always)]
    fn bit_not(self) -> Self {
        Truth(self.0 ^ 1)
    }
    #[inline(always)]
    fn bit_and(self, other: Self) -> Self {
        Truth(self.0 & other.0)
    }
    #[inline(always)]
    fn bit_or(self, other: Self) -> Self {
        Truth(self.0 | other.0)
    }
    #[inline(always)]
    fn bit_xor(self, other: Self) -> Self {
        Truth(self.0 ^ other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_division_rounds_down_as_python_does() {
        for (a, b, quotient, remainder) in
            [(7, 3, 2, 1), (-7, 3, -3, 2), (7, -3, -3, -2), (-7, -3, 2, -1), (6, 3, 2, 0), (5, 0, 0, 0)]
        {
            assert_eq!((Int::floor_div(a, b), Int::floor_rem(a, b)), (quotient, remainder), "{a} by {b}");
        }
        assert_eq!(Int::floor_div(i64::MIN, -1), i64::MIN);
        assert_eq!(Int::floor_div(250u8, 7), 35);
    }

    #[test]
    fn float_division_rounds_down_as_python_does() {
        assert_eq!(Real::floor_div(7.0, 3.0), 2.0);
        assert_eq!(Real::floor_div(-7.0, 3.0), -3.0);
        assert_eq!(Real::floor_rem(-7.0f32, 3.0), 2.0);
        assert_eq!(Real::floor_rem(7.0f32, -3.0), -2.0);
        assert_eq!(Real::floor_div(1.0f64, 0.1), 9.0);
        assert!(Real::floor_div(1.0f64, 0.0).is_infinite());
    }

    #[test]
    fn minimum_and_maximum_keep_nan() {
        for (a, b) in [(f32::NAN, 1.0f32), (1.0, f32::NAN)] {
            assert!(Real::minimum(a, b).is_nan() && Real::maximum(a, b).is_nan());
        }
    }

    #[test]
    fn integer_powers_follow_torch_for_negative_exponents() {
        assert_eq!(Int::pow(3i64, 4), 81);
        assert_eq!(Int::pow(2i64, -1), 0);
        assert_eq!(Int::pow(-1i64, -3), -1);
        assert_eq!(Int::pow(1i64, -3), 1);
        assert_eq!(Int::pow(0i64, 0), 1);
    }
}
