//! The arithmetic of the op table's expressions for integers and bools.

/// An integer type that kernels compute in. Arithmetic wraps.
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
    /// Division rounded down; 0 where the divisor is 0, which callers check.
    fn floor_div(self, divisor: Self) -> Self;
    /// The remainder of [`Int::floor_div`]; 0 where the divisor is 0.
    fn floor_rem(self, divisor: Self) -> Self;
    /// Power; negative exponents give 0, or ±1 for a base of ±1, as in PyTorch.
    fn pow(self, exponent: Self) -> Self;
    /// The smaller value.
    fn imin(self, other: Self) -> Self;
    /// The larger value.
    fn imax(self, other: Self) -> Self;
    /// Bitwise complement.
    fn bit_not(self) -> Self;
    /// Bitwise and.
    fn bit_and(self, other: Self) -> Self;
    /// Bitwise or.
    fn bit_or(self, other: Self) -> Self;
    /// Bitwise exclusive or.
    fn bit_xor(self, other: Self) -> Self;
    /// Left shift; 0 from the type's width on.
    fn shift_left(self, bits: Self) -> Self;
    /// Arithmetic right shift; only the sign remains from the type's width on.
    fn shift_right(self, bits: Self) -> Self;
    /// The remainder of division rounded towards 0; 0 where the divisor is 0, which callers check.
    fn trunc_rem(self, divisor: Self) -> Self;
    /// Greatest common divisor.
    fn gcd(self, other: Self) -> Self;
    /// Least common multiple.
    #[inline(always)]
    fn lcm(self, other: Self) -> Self {
        let divisor = self.gcd(other);
        if divisor == Self::ZERO {
            return divisor;
        }
        self.trunc_div(divisor).wrapping_mul(other).wrapping_abs()
    }
    /// Division rounded towards 0; the divisor is not 0.
    fn trunc_div(self, divisor: Self) -> Self;
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
            fn shift_left(self, bits: Self) -> Self {
                if bits as u64 >= <$t>::BITS as u64 { 0 } else { self << bits }
            }
            #[inline(always)]
            fn shift_right(self, bits: Self) -> Self {
                let most = (<$t>::BITS - 1) as $t;
                if bits as u64 <= most as u64 { self >> bits } else if $signed { self >> most } else { 0 }
            }
            #[inline(always)]
            fn trunc_rem(self, divisor: Self) -> Self {
                if divisor == 0 { 0 } else { self.wrapping_rem(divisor) }
            }
            #[inline(always)]
            fn trunc_div(self, divisor: Self) -> Self {
                self.wrapping_div(divisor)
            }
            #[inline(always)]
            fn gcd(self, other: Self) -> Self {
                let (mut a, mut b) = (Int::wrapping_abs(self), Int::wrapping_abs(other));
                while b != 0 {
                    (a, b) = (b, a.wrapping_rem(b));
                }
                Int::wrapping_abs(a)
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

/// A bool in kernels: one byte, 0 or 1. Addition is a logical or, multiplication a logical and.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(transparent)]
pub struct KernelBool(pub u8);

impl Int for KernelBool {
    const ZERO: Self = KernelBool(0);
    const ONE: Self = KernelBool(1);
    #[inline(always)]
    fn from_i64(x: i64) -> Self {
        KernelBool((x != 0) as u8)
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
        KernelBool(self.0 | other.0)
    }
    #[inline(always)]
    fn wrapping_sub(self, other: Self) -> Self {
        KernelBool(self.0 ^ other.0)
    }
    #[inline(always)]
    fn wrapping_mul(self, other: Self) -> Self {
        KernelBool(self.0 & other.0)
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
        KernelBool(self.0 & divisor.0)
    }
    #[inline(always)]
    fn floor_rem(self, _divisor: Self) -> Self {
        KernelBool(0)
    }
    #[inline(always)]
    fn pow(self, exponent: Self) -> Self {
        KernelBool(self.0 | (exponent.0 ^ 1))
    }
    #[inline(always)]
    fn imin(self, other: Self) -> Self {
        KernelBool(self.0 & other.0)
    }
    #[inline(always)]
    fn imax(self, other: Self) -> Self {
        KernelBool(self.0 | other.0)
    }
    #[inline(always)]
    fn bit_not(self) -> Self {
        KernelBool(self.0 ^ 1)
    }
    #[inline(always)]
    fn bit_and(self, other: Self) -> Self {
        KernelBool(self.0 & other.0)
    }
    #[inline(always)]
    fn bit_or(self, other: Self) -> Self {
        KernelBool(self.0 | other.0)
    }
    #[inline(always)]
    fn bit_xor(self, other: Self) -> Self {
        KernelBool(self.0 ^ other.0)
    }
    #[inline(always)]
    fn shift_left(self, bits: Self) -> Self {
        KernelBool(self.0 & (bits.0 ^ 1))
    }
    #[inline(always)]
    fn shift_right(self, bits: Self) -> Self {
        KernelBool(self.0 & (bits.0 ^ 1))
    }
    #[inline(always)]
    fn trunc_rem(self, _divisor: Self) -> Self {
        KernelBool(0)
    }
    #[inline(always)]
    fn trunc_div(self, _divisor: Self) -> Self {
        self
    }
    #[inline(always)]
    fn gcd(self, other: Self) -> Self {
        KernelBool(self.0 | other.0)
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
    fn integer_powers_follow_torch_for_negative_exponents() {
        assert_eq!(Int::pow(3i64, 4), 81);
        assert_eq!(Int::pow(2i64, -1), 0);
        assert_eq!(Int::pow(-1i64, -3), -1);
        assert_eq!(Int::pow(1i64, -3), 1);
        assert_eq!(Int::pow(0i64, 0), 1);
    }
}
