//! The arithmetic of the op table's expressions, for the float types that kernels compute in.
#![expect(clippy::excessive_precision, reason = "coefficients stand as their sources print them")]

use crate::special;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A float type that kernels compute in: `f32` or `f64`.
///
/// The functions have no branches and call nothing (except `f64`'s power), so that
/// a loop over them vectorizes. Fused multiply-adds are explicit, so that every machine computes the same bits; x86
/// processors before 2013, which lack the instruction, are slow. Errors are at most 2 units in the last place for `f32`
/// and 4 for `f64`; 6 for inverse and hyperbolic functions.
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
    /// The largest magnitude for which the trigonometric functions are accurate; larger arguments need [`Std`].
    const PERIODIC_MAX: Self;
    /// The largest quotient for which [`Real::fmod`] is exact; larger quotients need [`Std`].
    const QUOTIENT_MAX: Self;
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
    /// `self * x + y`, rounded once.
    fn mul_add(self, x: Self, y: Self) -> Self;
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
    /// The inverse tangent.
    fn atan(self) -> Self;
    /// 2 to the power of self.
    fn exp2(self) -> Self;
    /// The logarithm to base 2.
    fn log2(self) -> Self;
    /// The logarithm to base 10.
    fn log10(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// The next number towards `other`.
    fn next_after(self, other: Self) -> Self;
    /// self to the power of `exponent`.
    fn pow(self, exponent: Self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// The largest integer not above self.
    fn floor(self) -> Self;
    /// The smallest integer not below self.
    fn ceil(self) -> Self;
    /// The nearest integer, halves to even.
    fn round_even(self) -> Self;
    /// The integer part.
    fn trunc(self) -> Self;
    /// `self` with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;
    /// `self - trunc(self / other) * other`, exactly.
    fn fmod(self, other: Self) -> Self;

    /// Whether the value is NaN.
    fn is_nan(self) -> bool;

    /// The standard normal CDF.
    #[inline(always)]
    fn normal_cdf(self) -> Self {
        Self::from_f64(0.5) * (Self::ONE + (self * Self::from_f64(std::f64::consts::FRAC_1_SQRT_2)).erf())
    }
    /// The inverse error function.
    #[inline(always)]
    fn erfinv(self) -> Self {
        Self::from_f64(special::erfinv(self.to_f64()))
    }
    /// The quantile function of the standard normal distribution.
    #[inline(always)]
    fn ndtri(self) -> Self {
        Self::from_f64(special::ndtri(self.to_f64()))
    }
    /// The logarithm of the absolute value of the gamma function.
    #[inline(always)]
    fn lgamma(self) -> Self {
        Self::from_f64(special::lgamma(self.to_f64()))
    }
    /// e to the power of self, for self <= 0; results below the smallest normal number may flush to 0.
    #[inline(always)]
    fn exp_of_fall(self) -> Self {
        self.exp()
    }
    /// -1, 0 or 1; 0 for NaN, as in PyTorch.
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
    /// The smaller value; NaN if either is NaN.
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        // A comparison with NaN is false: if `other` is NaN, so is `low`.
        let low = if self < other { self } else { other };
        if self.is_nan() { self } else { low }
    }
    /// The larger value; NaN if either is NaN.
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        let high = if self > other { self } else { other };
        if self.is_nan() { self } else { high }
    }
    /// log(base^self + base^other) without overflow. `exp` is the base's exponential, `log_1p` its logarithm of 1 + x,
    /// and `two` its logarithm of 2.
    #[inline(always)]
    fn log_add(self, other: Self, two: f64, exp: impl Fn(Self) -> Self, log_1p: impl Fn(Self) -> Self) -> Self {
        let sum = self.maximum(other) + log_1p(exp(-(self - other).abs()));
        // The difference of equal infinities is NaN.
        if self == other { self + Self::from_f64(two) } else { sum }
    }
    /// The hyperbolic sine, from expm1(x), or from the square of exp(x / 2) where exp(x) may overflow.
    #[inline(always)]
    fn sinh(self) -> Self {
        let a = self.abs();
        let half = Self::from_f64(0.5);
        let t = a.exp_m1();
        let root = (half * a).exp();
        let far = half * root * root;
        let near = half * (t + t / (t + Self::ONE));
        (if a > Self::from_f64(20.0) { far } else { near }).copysign(self)
    }
    /// The hyperbolic cosine; see [`Real::sinh`].
    #[inline(always)]
    fn cosh(self) -> Self {
        let a = self.abs();
        let half = Self::from_f64(0.5);
        let e = a.exp();
        let root = (half * a).exp();
        let far = half * root * root;
        if a > Self::from_f64(20.0) { far } else { half * e + half / e }
    }
    /// The inverse hyperbolic sine.
    #[inline(always)]
    fn asinh(self) -> Self {
        let a = self.abs();
        let square = a * a;
        let near = (a + square / (Self::ONE + (Self::ONE + square).sqrt())).ln_1p();
        // Beyond this bound the square may overflow, and adding 1 to it changes nothing.
        let far = a.ln() + Self::from_f64(std::f64::consts::LN_2);
        (if a > Self::from_f64(1e9) { far } else { near }).copysign(self)
    }
    /// The inverse hyperbolic cosine.
    #[inline(always)]
    fn acosh(self) -> Self {
        let t = self - Self::ONE;
        let near = (t + t.sqrt() * (t + Self::from_f64(2.0)).sqrt()).ln_1p();
        let far = self.ln() + Self::from_f64(std::f64::consts::LN_2);
        if self > Self::from_f64(1e9) { far } else { near }
    }
    /// The inverse hyperbolic tangent.
    #[inline(always)]
    fn atanh(self) -> Self {
        let a = self.abs();
        (Self::from_f64(0.5) * ((a + a) / (Self::ONE - a)).ln_1p()).copysign(self)
    }
    /// The inverse sine, by the half-angle formula tan(y / 2) = x / (1 + cos(y)).
    #[inline(always)]
    fn asin(self) -> Self {
        let half = (self / (Self::ONE + ((Self::ONE - self) * (Self::ONE + self)).sqrt())).atan();
        half + half
    }
    /// The inverse cosine.
    #[inline(always)]
    fn acos(self) -> Self {
        let half = ((Self::ONE - self) / (Self::ONE + self)).sqrt().atan();
        half + half
    }
    /// The angle of the point (`x`, self).
    #[inline(always)]
    fn atan2(self, x: Self) -> Self {
        use std::f64::consts::{FRAC_PI_2, PI};
        let (a, b) = (self.abs(), x.abs());
        let (small, large) = if a > b { (b, a) } else { (a, b) };
        let slope = small / large;
        // The quotient of two infinities or two zeros is NaN.
        let slope = if (small == large) & (large > Self::ZERO) { Self::ONE } else { slope };
        let slope = if large == Self::ZERO { Self::ZERO } else { slope };
        let angle = slope.atan();
        let angle = if a > b { Self::from_f64(FRAC_PI_2) - angle } else { angle };
        let angle = if Self::ONE.copysign(x) < Self::ZERO { Self::from_f64(PI) - angle } else { angle };
        if self.is_nan() { self } else { angle.copysign(self) }
    }
    /// self times ln(other); 0 where self is 0 and other is not NaN.
    #[inline(always)]
    fn xlogy(self, other: Self) -> Self {
        let y = self * other.ln();
        let y = if self == Self::ZERO { Self::ZERO } else { y };
        if other.is_nan() { other } else { y }
    }
    /// The remainder of floor division, with the sign of the divisor, as Python's `%`.
    #[inline(always)]
    fn floor_rem(self, divisor: Self) -> Self {
        let r = self.fmod(divisor);
        let moved = r + divisor;
        if (r != Self::ZERO) & ((r < Self::ZERO) != (divisor < Self::ZERO)) { moved } else { r }
    }
    /// Division rounded down, computed from the exact remainder (as CPython's `float_floor_div`).
    #[inline(always)]
    fn floor_div(self, divisor: Self) -> Self {
        let r = self.fmod(divisor);
        let quotient = (self - r) / divisor;
        let lower = quotient - Self::ONE;
        let quotient = if (r != Self::ZERO) & ((divisor < Self::ZERO) != (r < Self::ZERO)) { lower } else { quotient };
        let floor = quotient.floor();
        let floor = if quotient - floor > Self::from_f64(0.5) { floor + Self::ONE } else { floor };
        let plain = self / divisor;
        let nonzero = if quotient == Self::ZERO { Self::ZERO.copysign(plain) } else { floor };
        if divisor == Self::ZERO { plain } else { nonzero }
    }
}

/// The standard library's functions, one element at a time: the reference for `f32` and `f64`, and their fallback
/// beyond [`Real::PERIODIC_MAX`] and [`Real::QUOTIENT_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
#[repr(transparent)]
pub struct Std<T>(pub T);

macro_rules! std_real {
    ($t:ty, $erf:path) => {
        impl Add for Std<$t> {
            type Output = Self;
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                Std(self.0 + other.0)
            }
        }
        impl Sub for Std<$t> {
            type Output = Self;
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                Std(self.0 - other.0)
            }
        }
        impl Mul for Std<$t> {
            type Output = Self;
            #[inline(always)]
            fn mul(self, other: Self) -> Self {
                Std(self.0 * other.0)
            }
        }
        impl Div for Std<$t> {
            type Output = Self;
            #[inline(always)]
            fn div(self, other: Self) -> Self {
                Std(self.0 / other.0)
            }
        }
        impl Neg for Std<$t> {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                Std(-self.0)
            }
        }
        impl Real for Std<$t> {
            const ZERO: Self = Std(0.0);
            const ONE: Self = Std(1.0);
            const INFINITY: Self = Std(<$t>::INFINITY);
            const PERIODIC_MAX: Self = Std(<$t>::MAX);
            const QUOTIENT_MAX: Self = Std(<$t>::INFINITY);
            #[inline(always)]
            fn from_f64(x: f64) -> Self {
                Std(x as $t)
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self.0 as f64
            }
            fn exp(self) -> Self {
                Std(self.0.exp())
            }
            fn exp_m1(self) -> Self {
                Std(self.0.exp_m1())
            }
            fn ln(self) -> Self {
                Std(self.0.ln())
            }
            fn ln_1p(self) -> Self {
                Std(self.0.ln_1p())
            }
            fn mul_add(self, x: Self, y: Self) -> Self {
                Std(self.0.mul_add(x.0, y.0))
            }
            fn sqrt(self) -> Self {
                Std(self.0.sqrt())
            }
            fn sin(self) -> Self {
                Std(self.0.sin())
            }
            fn cos(self) -> Self {
                Std(self.0.cos())
            }
            fn tan(self) -> Self {
                Std(self.0.tan())
            }
            fn tanh(self) -> Self {
                Std(self.0.tanh())
            }
            fn atan(self) -> Self {
                Std(self.0.atan())
            }
            fn exp2(self) -> Self {
                Std(self.0.exp2())
            }
            fn log2(self) -> Self {
                Std(self.0.log2())
            }
            fn log10(self) -> Self {
                Std(self.0.log10())
            }
            fn next_after(self, other: Self) -> Self {
                Std(Real::next_after(self.0, other.0))
            }
            fn erf(self) -> Self {
                Std($erf(self.0))
            }
            fn pow(self, exponent: Self) -> Self {
                Std(self.0.powf(exponent.0))
            }
            fn is_nan(self) -> bool {
                self.0.is_nan()
            }
            fn abs(self) -> Self {
                Std(self.0.abs())
            }
            fn floor(self) -> Self {
                Std(self.0.floor())
            }
            fn ceil(self) -> Self {
                Std(self.0.ceil())
            }
            fn round_even(self) -> Self {
                Std(self.0.round_ties_even())
            }
            fn trunc(self) -> Self {
                Std(self.0.trunc())
            }
            fn copysign(self, sign: Self) -> Self {
                Std(self.0.copysign(sign.0))
            }
            fn fmod(self, other: Self) -> Self {
                Std(self.0 % other.0)
            }
        }
    };
}
std_real!(f32, libm::erff);
std_real!(f64, libm::erf);

/// The functions that have the same code for `f32` and `f64`; most are one processor instruction.
macro_rules! hardware {
    ($t:ty) => {
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
        fn mul_add(self, x: Self, y: Self) -> Self {
            <$t>::mul_add(self, x, y)
        }
        #[inline(always)]
        fn sqrt(self) -> Self {
            <$t>::sqrt(self)
        }
        #[inline(always)]
        fn is_nan(self) -> bool {
            self != self
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
        fn next_after(self, other: Self) -> Self {
            let next = if self < other { self.next_up() } else { self.next_down() };
            let next = if self == other { other } else { next };
            if Real::is_nan(self) | Real::is_nan(other) { self + other } else { next }
        }
        /// Rounding can raise the quotient to the next whole number but not past it: the remainder, which the fused
        /// multiply-add computes exactly, is then one divisor too low.
        #[inline(always)]
        fn fmod(self, other: Self) -> Self {
            let (a, b) = (self.abs(), other.abs());
            let r = (-(a / b).trunc()).mul_add(b, a);
            let r = if r < 0.0 { r + b } else { r };
            // This covers an infinite b too, for which the product above is NaN.
            let r = if a < b { a } else { r };
            r.copysign(self)
        }
        /// ln(u) x / (u - 1) with u = 1 + x rounded: the rounding errors cancel (Kahan; Goldberg 1991, theorem 4).
        #[inline(always)]
        fn ln_1p(self) -> Self {
            let u = 1.0 + self;
            let ln = Real::ln(u);
            let corrected = ln * (self / (u - 1.0));
            if u == 1.0 {
                self
            } else if u == <$t>::INFINITY {
                ln
            } else {
                corrected
            }
        }
        /// expm1(2a) / (expm1(2a) + 2).
        #[inline(always)]
        fn tanh(self) -> Self {
            let a = self.abs();
            // The result is 1 to the last bit beyond this bound.
            let a = if a > 20.0 { 20.0 } else { a };
            let t = Real::exp_m1(2.0 * a);
            (t / (t + 2.0)).copysign(self)
        }
    };
}

/// c0 + x c1 + x² c2 + ..., by Horner's rule.
macro_rules! poly {
    ($x:expr; $last:expr) => { $last };
    ($x:expr; $first:expr, $($rest:expr),+) => { $x.mul_add(poly!($x; $($rest),+), $first) };
}

/// Adding this constant rounds a float of moderate size to an integer, which then lies in the low bits.
const ROUND_F32: f32 = 12_582_912.0;
/// As [`ROUND_F32`].
const ROUND_F64: f64 = 6_755_399_441_055_744.0;

/// 2 to the power of `n`, -126 to 127.
#[inline(always)]
fn exp2_f32(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// 2 to the power of `n`, -1022 to 1023.
#[inline(always)]
fn exp2_f64(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(1023) as u64) << 52)
}

/// n and exp(r) - 1 with x = n ln 2 + r and |r| at most ln 2 / 2, for |x| below 2^21.
/// The polynomial of Cephes' `expf` (Moshier 1992).
#[inline(always)]
fn exp_parts_f32(x: f32) -> (i32, f32) {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND_F32);
    let n = shifted - ROUND_F32;
    // ln 2 in two parts, the first short enough for an exact product.
    let r = n.mul_add(-0.693_359_375, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let p = poly!(r; 5.000_000_1e-1, 1.666_666_5e-1, 4.166_579_6e-2, 8.333_452e-3, 1.398_2e-3, 1.987_569_1e-4);
    (shifted.to_bits().wrapping_sub(ROUND_F32.to_bits()) as i32, (r * r).mul_add(p, r))
}

/// As [`exp_parts_f32`], for |x| below 2^20: fdlibm's split of ln 2, and Taylor's series, whose next term is 2^-58.
#[inline(always)]
fn exp_parts_f64(x: f64) -> (i64, f64) {
    let shifted = x.mul_add(std::f64::consts::LOG2_E, ROUND_F64);
    let n = shifted - ROUND_F64;
    let r = n.mul_add(-6.931_471_803_691_238_164_90e-1, x);
    let r = n.mul_add(-1.908_214_929_270_587_700_02e-10, r);
    #[rustfmt::skip]
    let p = poly!(r; 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5_040.0, 1.0 / 40_320.0, 1.0 / 362_880.0,
        1.0 / 3_628_800.0, 1.0 / 39_916_800.0, 1.0 / 479_001_600.0, 1.0 / 6_227_020_800.0);
    (shifted.to_bits().wrapping_sub(ROUND_F64.to_bits()) as i64, (r * r).mul_add(p, r))
}

/// The quadrant of `x` and the remainder, an angle of at most pi / 4, for |x| up to 2^30. With pi / 2 in three parts of
/// 53 bits, the first difference is exact and the next two are accurate to the last bit of their results (Cody and
/// Waite 1980, with fused products).
#[inline(always)]
fn quadrant_f64(x: f64) -> (u64, f64) {
    let shifted = x.mul_add(std::f64::consts::FRAC_2_PI, ROUND_F64);
    let n = shifted - ROUND_F64;
    let r = n.mul_add(-std::f64::consts::FRAC_PI_2, x);
    let r = n.mul_add(-6.123_233_995_736_766e-17, r);
    (shifted.to_bits(), n.mul_add(1.497_384_904_859_183_3e-33, r))
}

/// As [`quadrant_f64`], precise enough for f32.
#[inline(always)]
fn quadrant_f32(x: f32) -> (u64, f64) {
    let x = x as f64;
    let shifted = x.mul_add(std::f64::consts::FRAC_2_PI, ROUND_F64);
    let n = shifted - ROUND_F64;
    let r = n.mul_add(-std::f64::consts::FRAC_PI_2, x);
    (shifted.to_bits(), n.mul_add(-6.123_233_995_736_766e-17, r))
}

/// Sine and cosine of |r| up to pi / 4: fdlibm's `k_sin` and `k_cos`.
#[inline(always)]
fn sin_cos_f64(r: f64) -> (f64, f64) {
    let z = r * r;
    #[rustfmt::skip]
    let sin = poly!(z; -1.666_666_666_666_663_243_48e-1, 8.333_333_333_322_489_461_24e-3, -1.984_126_982_985_794_931_34e-4,
        2.755_731_370_707_006_767_89e-6, -2.505_076_025_340_686_341_95e-8, 1.589_690_995_211_550_102_21e-10);
    let half = 0.5 * z;
    let w = 1.0 - half;
    #[rustfmt::skip]
    let p = poly!(z; 4.166_666_666_666_660_190_37e-2, -1.388_888_888_887_410_957_49e-3, 2.480_158_728_947_672_941_78e-5,
        -2.755_731_435_139_066_330_35e-7, 2.087_572_321_298_174_827_90e-9, -1.135_964_755_778_819_482_65e-11);
    ((r * z).mul_add(sin, r), w + (z * z).mul_add(p, 1.0 - w - half))
}

/// Sine and cosine of |r| up to pi / 4, precise enough for f32: FreeBSD's `k_sinf` and `k_cosf`.
#[inline(always)]
fn sin_cos_f32(r: f64) -> (f64, f64) {
    let z = r * r;
    #[rustfmt::skip]
    let sin = poly!(z; -0.166_666_666_416_265_235_595, 0.008_333_329_385_889_463_175_6, -0.000_198_393_348_360_966_317_347,
        0.000_002_718_311_493_989_821_906_4);
    #[rustfmt::skip]
    let cos = poly!(z; 1.0, -0.499_999_997_251_031_003_120, 0.041_666_623_323_739_063_189_4, -0.001_388_676_377_460_992_946_92,
        0.000_024_390_448_796_277_409_065_4);
    ((r * z).mul_add(sin, r), cos)
}

/// The sine, from the quadrant and the sine and cosine of the remainder.
#[inline(always)]
fn turn(quadrant: u64, (sin, cos): (f64, f64)) -> f64 {
    let magnitude = if quadrant & 1 == 0 { sin } else { cos };
    f64::from_bits(magnitude.to_bits() ^ (quadrant & 2) << 62)
}

/// The logarithm to base 2 of an f32 that is not negative, to about 30 bits: fdlibm's `e_log` with a shorter series
/// (the Taylor series of atanh, whose next term is 2^-39).
#[inline(always)]
fn log2_wide(x: f64) -> f64 {
    const UNIT: f64 = 2.0 * std::f64::consts::LOG2_E;
    let bits = x.to_bits().wrapping_add((0x3ff0_0000 - 0x3fe6_a09e) << 32);
    let k = ((bits >> 52) as i32).wrapping_sub(0x3ff) as f64;
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(0x3fe6_a09e << 32));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let series = poly!(z; UNIT, UNIT / 3.0, UNIT / 5.0, UNIT / 7.0, UNIT / 9.0, UNIT / 11.0, UNIT / 13.0);
    let log = s.mul_add(series, k);
    let log = if x == 0.0 { f64::NEG_INFINITY } else { log };
    if x == f64::INFINITY { x } else { log }
}

/// The parts of fdlibm's `e_log`: k, f, s, f^2 / 2 and r, such that x = 2^k (1 + f) and the logarithm of 1 + f is
/// f - f^2 / 2 + s (f^2 / 2 + r).
#[inline(always)]
fn log_series_f64(x: f64) -> [f64; 5] {
    let subnormal = x < f64::MIN_POSITIVE;
    let bits = (if subnormal { x * (1u64 << 54) as f64 } else { x }).to_bits();
    let bits = bits.wrapping_add((0x3ff0_0000 - 0x3fe6_a09e) << 32);
    let k = ((bits >> 52) as i32).wrapping_sub(if subnormal { 0x3ff + 54 } else { 0x3ff }) as f64;
    let f = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(0x3fe6_a09e << 32)) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z
        * poly!(z; 6.666_666_666_666_735_130e-1, 3.999_999_999_940_941_908e-1, 2.857_142_874_366_239_149e-1,
        2.222_219_843_214_978_396e-1, 1.818_357_216_161_805_012e-1, 1.531_383_769_920_937_332e-1, 1.479_819_860_511_658_591e-1);
    [k, f, s, 0.5 * f * f, r]
}

/// `y`, which is the logarithm of `x` if that is positive and finite; else the value there.
#[inline(always)]
fn log_at_ends(x: f64, y: f64) -> f64 {
    let y = if x == f64::INFINITY { x } else { y };
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    // The comparison is false for NaN too.
    if x >= 0.0 { y } else { f64::NAN }
}

/// The logarithm to a base, of which `two` and `two_low` are that of 2, and `scale` that of e, each in two parts. Both
/// the logarithm of 1 + f and its product with the scale are computed in two parts, as in FreeBSD's `e_log2` and
/// `e_log10`.
#[inline(always)]
fn log_of_base(x: f64, two: f64, two_low: f64, scale: [f64; 2]) -> f64 {
    let [k, f, s, half, r] = log_series_f64(x);
    // Short enough for an exact product with the first part of the scale.
    let high = f64::from_bits((f - half).to_bits() & 0xffff_ffff_0000_0000);
    let low = (f - high) - half + s * (half + r);
    let whole = k * two;
    let (main, rest) = (high * scale[0], k * two_low + (low + high) * scale[1] + low * scale[0]);
    let sum = whole + main;
    log_at_ends(x, rest + ((whole - sum) + main) + sum)
}

/// As [`log2_wide`], of any f32.
#[inline(always)]
fn log2_f32(x: f32) -> f64 {
    let log = log2_wide(x.abs() as f64);
    // The comparison is false for NaN too.
    if x >= 0.0 { log } else { f64::NAN }
}

/// 2^(y log2 x) for x and y that are f32s, x not negative, to about 30 bits. Taylor's series, whose next term is 2^-32,
/// gives 2^f.
#[inline(always)]
fn power(x: f64, y: f64) -> f64 {
    const L: f64 = std::f64::consts::LN_2;
    let t = y * log2_wide(x);
    // The bounds are beyond f32's exponents but within f64's.
    let t = if t > 300.0 { 300.0 } else { t };
    let t = if t < -300.0 { -300.0 } else { t };
    let shifted = t + ROUND_F64;
    let f = t - (shifted - ROUND_F64);
    #[rustfmt::skip]
    let p = poly!(f; 1.0, L, L * L / 2.0, L * L * L / 6.0, L * L * L * L / 24.0, L * L * L * L * L / 120.0, L * L * L * L * L * L / 720.0,
        L * L * L * L * L * L * L / 5_040.0, L * L * L * L * L * L * L * L / 40_320.0);
    p * exp2_f64(shifted.to_bits().wrapping_sub(ROUND_F64.to_bits()) as i64)
}

/// The logarithm to base 2 of a positive, finite number, as a sum of two numbers whose error is about 2^-65 of it: the
/// Taylor series of atanh, whose first two terms are computed in two parts each (Dekker 1971, with fused products).
#[inline(always)]
fn log2_in_two_parts(x: f64) -> (f64, f64) {
    use std::f64::consts::LOG2_E;
    let subnormal = x < f64::MIN_POSITIVE;
    let bits = (if subnormal { x * (1u64 << 54) as f64 } else { x }).to_bits();
    let bits = bits.wrapping_add((0x3ff0_0000 - 0x3fe6_a09e) << 32);
    let k = ((bits >> 52) as i32).wrapping_sub(if subnormal { 0x3ff + 54 } else { 0x3ff }) as f64;
    let f = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(0x3fe6_a09e << 32)) - 1.0;
    // s = f / (2 + f), and z = s^2.
    let under = 2.0 + f;
    let inverse = 1.0 / under;
    let s = f * inverse;
    let s_low = (s.mul_add(-under, f) - s * (f - (under - 2.0))) * inverse;
    let z = s * s;
    let z_low = s.mul_add(s, -z) + 2.0 * s * s_low;
    // The logarithm of 1 + f is 2 s (1 + q).
    let third = z * (1.0 / 3.0);
    let third_low = z.mul_add(1.0 / 3.0, -third) + z * 1.850_371_707_708_594e-17 + z_low * (1.0 / 3.0);
    #[rustfmt::skip]
    let rest = z * z * poly!(z; 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0, 1.0 / 17.0, 1.0 / 19.0, 1.0 / 21.0,
        1.0 / 23.0, 1.0 / 25.0);
    let q = third + rest;
    let q_low = (third - q) + rest + third_low;
    let product = s * q;
    let product_low = s.mul_add(q, -product) + s * q_low + s_low * q;
    let log = s + product;
    let log_low = (s - log) + product + (s_low + product_low);
    let scaled = log * (2.0 * LOG2_E);
    let scaled_low =
        log.mul_add(2.0 * LOG2_E, -scaled) + log * (2.0 * 2.035_527_374_093_103_3e-17) + log_low * (2.0 * LOG2_E);
    let sum = k + scaled;
    (sum, (k - sum) + scaled + scaled_low)
}

/// x to the power of y, for x not negative: 2^(y log2 x), where the exponent has two parts.
#[inline(always)]
fn power_f64(x: f64, y: f64) -> f64 {
    use std::f64::consts::LN_2;
    // A larger exponent gives no other results, but would give products that are not finite.
    const LARGEST: f64 = (1u128 << 70) as f64;
    const FAR: f64 = 1100.0;
    let y = if y > LARGEST { LARGEST } else { y };
    let y = if y < -LARGEST { -LARGEST } else { y };
    let (log, log_low) = log2_in_two_parts(x);
    let t = y * log;
    let t_low = y.mul_add(log, -t) + y * log_low;
    let t_low = if t.abs() < FAR { t_low } else { 0.0 };
    let t = if t > FAR { FAR } else { t };
    let t = if t < -FAR { -FAR } else { t };
    let shifted = t + ROUND_F64;
    let f = t - (shifted - ROUND_F64);
    let w = f * LN_2;
    let w_low = f.mul_add(LN_2, -w) + f * 2.319_046_813_846_299_6e-17 + t_low * LN_2;
    #[rustfmt::skip]
    let p = poly!(w; 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5_040.0, 1.0 / 40_320.0, 1.0 / 362_880.0,
        1.0 / 3_628_800.0, 1.0 / 39_916_800.0, 1.0 / 479_001_600.0, 1.0 / 6_227_020_800.0);
    let p = (w * w) * p;
    let p = w_low.mul_add(1.0 + (p + w), p) + w;
    let n = shifted.to_bits().wrapping_sub(ROUND_F64.to_bits()) as i64;
    let half = (n as i32 >> 1) as i64;
    let power = (1.0 + p) * exp2_f64(half) * exp2_f64(n.wrapping_sub(half));
    let falls = y < 0.0;
    let power = if x == 0.0 { if falls { f64::INFINITY } else { 0.0 } } else { power };
    if x == f64::INFINITY { if falls { 0.0 } else { x } } else { power }
}

/// The inverse tangent: fdlibm's `s_atan`, with one quotient for all of its five ranges.
#[inline(always)]
fn atan_f64(x: f64) -> f64 {
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};
    let a = x.abs();
    // `high + low`, an angle in two parts, is the inverse tangent of 0, 1/2, 1, 3/2 or infinity, by the range of a;
    // `over / under` is the tangent of the angle of a less this one.
    let (over, under, high, low) = (a, 1.0, 0.0, 0.0);
    let c = |far: bool, yes: f64, no: f64| if far { yes } else { no };
    let far = a >= 0.4375;
    let (over, under) = (c(far, 2.0 * a - 1.0, over), c(far, 2.0 + a, under));
    let (high, low) = (c(far, 4.636_476_090_008_060_935_15e-1, high), c(far, 2.269_877_745_296_168_709_24e-17, low));
    let far = a >= 0.6875;
    let (over, under) = (c(far, a - 1.0, over), c(far, a + 1.0, under));
    let (high, low) = (c(far, FRAC_PI_4, high), c(far, 3.061_616_997_868_383_017_93e-17, low));
    let far = a >= 1.1875;
    let (over, under) = (c(far, a - 1.5, over), c(far, 1.5 * a + 1.0, under));
    let (high, low) = (c(far, 9.827_937_232_473_290_540_82e-1, high), c(far, 1.390_331_103_123_099_845_16e-17, low));
    let far = a >= 2.4375;
    let (over, under) = (c(far, -1.0, over), c(far, a, under));
    let (high, low) = (c(far, FRAC_PI_2, high), c(far, 6.123_233_995_736_766_035_87e-17, low));
    let t = over / under;
    let z = t * t;
    #[rustfmt::skip]
    let p = z * poly!(z; 3.333_333_333_333_293_180_27e-1, -1.999_999_999_987_648_324_76e-1, 1.428_571_427_250_346_637_11e-1,
        -1.111_111_040_546_235_578_80e-1, 9.090_887_133_436_506_561_96e-2, -7.691_876_205_044_829_994_95e-2,
        6.661_073_137_387_531_206_69e-2, -5.833_570_133_790_573_486_45e-2, 4.976_877_994_615_932_360_17e-2,
        -3.653_157_274_421_691_552_70e-2, 1.628_582_011_536_578_236_23e-2);
    (high - (t.mul_add(p, -low) - t)).copysign(x)
}

/// The power of a number of any sign, from that of its absolute value.
macro_rules! signed_power {
    ($t:ty, $x:expr, $y:expr, $magnitude:expr) => {{
        let (x, y): ($t, $t) = ($x, $y);
        let magnitude: $t = if x.abs() == 1.0 { 1.0 } else { $magnitude };
        let whole = y.trunc() == y;
        let odd = whole & ((0.5 * y).trunc() != 0.5 * y);
        let signed = if odd { magnitude.copysign(x) } else { magnitude };
        let no_root = (x < 0.0) & (x > <$t>::NEG_INFINITY) & !whole;
        let power = if no_root | x.is_nan() | y.is_nan() { <$t>::NAN } else { signed };
        if (y == 0.0) | (x == 1.0) { 1.0 } else { power }
    }};
}

impl Real for f32 {
    hardware!(f32);
    #[inline(always)]
    fn atan(self) -> Self {
        atan_f64(self as f64) as f32
    }
    #[inline(always)]
    fn exp2(self) -> Self {
        let x = if self > 129.0 { 129.0 } else { self };
        let x = if x < -151.0 { -151.0 } else { x };
        let shifted = x + ROUND_F32;
        let (zero, p) = exp_parts_f32((x - (shifted - ROUND_F32)) * std::f32::consts::LN_2);
        let n = (shifted.to_bits().wrapping_sub(ROUND_F32.to_bits()) as i32).wrapping_add(zero);
        let half = n >> 1;
        (1.0 + p) * exp2_f32(half) * exp2_f32(n.wrapping_sub(half))
    }
    #[inline(always)]
    fn log2(self) -> Self {
        log2_f32(self) as f32
    }
    #[inline(always)]
    fn log10(self) -> Self {
        (log2_f32(self) * std::f64::consts::LOG10_2) as f32
    }
    const PERIODIC_MAX: Self = (1 << 30) as f32;
    const QUOTIENT_MAX: Self = (1 << 22) as f32;
    #[inline(always)]
    fn exp(self) -> Self {
        let x = if self > 89.0 { 89.0 } else { self };
        let x = if x < -104.0 { -104.0 } else { x };
        let (n, p) = exp_parts_f32(x);
        // 2^n is multiplied in two steps, since it may be above or below f32's range.
        let half = n >> 1;
        (1.0 + p) * exp2_f32(half) * exp2_f32(n.wrapping_sub(half))
    }
    #[inline(always)]
    fn exp_m1(self) -> Self {
        let x = if self > 89.0 { 89.0 } else { self };
        let x = if x < -20.0 { -20.0 } else { x };
        let (n, p) = exp_parts_f32(x);
        let half = exp2_f32(n.wrapping_sub(1));
        let scaled = p.mul_add(half, half - 0.5) * 2.0;
        // The result has the sign of the argument, also where it is 0.
        (if n == 0 { p } else { scaled }).copysign(self)
    }
    /// fdlibm's `e_log` with FreeBSD's coefficients for f32.
    #[inline(always)]
    fn ln(self) -> Self {
        let subnormal = self < f32::MIN_POSITIVE;
        let bits = (if subnormal { self * (1 << 25) as f32 } else { self }).to_bits();
        let bits = bits.wrapping_add(0x3f80_0000 - 0x3f35_04f3);
        let k = ((bits >> 23) as i32).wrapping_sub(if subnormal { 0x7f + 25 } else { 0x7f }) as f32;
        let f = f32::from_bits((bits & 0x007f_ffff).wrapping_add(0x3f35_04f3)) - 1.0;
        let s = f / (2.0 + f);
        let z = s * s;
        let r = z * poly!(z; 0.666_666_6, 0.400_009_72, 0.284_987_87, 0.242_790_79);
        let half = 0.5 * f * f;
        let y = k.mul_add(0.693_138_1, s.mul_add(half + r, k * 9.058_000_6e-6) - half + f);
        let y = if self == f32::INFINITY { self } else { y };
        let y = if self == 0.0 { f32::NEG_INFINITY } else { y };
        // The comparison is false for NaN too.
        if self >= 0.0 { y } else { f32::NAN }
    }
    #[inline(always)]
    fn sin(self) -> Self {
        let (quadrant, r) = quadrant_f32(self);
        let y = turn(quadrant, sin_cos_f32(r)) as f32;
        // Keeps the sign of a zero.
        if self == 0.0 { self } else { y }
    }
    #[inline(always)]
    fn cos(self) -> Self {
        let (quadrant, r) = quadrant_f32(self);
        turn(quadrant.wrapping_add(1), sin_cos_f32(r)) as f32
    }
    #[inline(always)]
    fn tan(self) -> Self {
        let (quadrant, r) = quadrant_f32(self);
        let parts = sin_cos_f32(r);
        let y = (turn(quadrant, parts) / turn(quadrant.wrapping_add(1), parts)) as f32;
        if self == 0.0 { self } else { y }
    }
    #[inline(always)]
    fn exp_of_fall(self) -> Self {
        // Above it, the result is a normal number: one of 2^-126 or more.
        const LEAST: f32 = -87.336;
        let (n, p) = exp_parts_f32(if self < LEAST { LEAST } else { self });
        let scale = exp2_f32(n);
        let y = p.mul_add(scale, scale);
        if self < LEAST { 0.0 } else { y }
    }
    /// 1/2 + x P(x²) / Q(x²), off by at most 2e-7. P and Q are a least-squares fit of erf, with weights that level its
    /// relative error.
    #[inline(always)]
    fn normal_cdf(self) -> Self {
        const LIMIT: f32 = 5.543_717;
        let x = if self > LIMIT { LIMIT } else { self };
        let x = if x < -LIMIT { -LIMIT } else { x };
        let s = x * x;
        let p = poly!(s; 3.989_422_6e-1, 3.365_773e-2, 4.662_244_6e-3, 1.663_980_8e-4, 6.294_683_8e-6, 2.265_019_8e-8);
        let q = poly!(s; 1.0, 2.510_337_8e-1, 2.852_624_7e-2, 1.871_037_8e-3, 7.265_065_5e-5, 1.190_328_7e-6);
        let y = (x * p) / q + 0.5;
        // Below -LIMIT the result is exactly 0, so that its product with x, which is gelu, is 0 too.
        let y = if (y < 0.0) | (self < -LIMIT) { 0.0 } else { y };
        if self > LIMIT { 1.0 } else { y }
    }
    #[inline(always)]
    fn ndtri(self) -> Self {
        special::ndtri_single(f64::from(self)) as f32
    }
    /// Giles' two polynomials ("Approximating the erfinv function", 2010), which vectorize.
    #[inline(always)]
    fn erfinv(self) -> Self {
        let w = -Real::ln((1.0 - self) * (1.0 + self));
        let (s, t) = (w - 2.5, w.sqrt() - 3.0);
        let near = poly!(s; 1.501_409_4, 2.466_407_3e-1, -4.177_681_6e-3, -1.253_725e-3, 2.185_808_7e-4, -4.391_506_5e-6,
            -3.523_387_7e-6, 3.432_739_4e-7, 2.810_226_4e-8);
        let far = poly!(t; 2.832_976_8, 1.001_674_1, 9.438_87e-3, -7.622_461_3e-3, 5.739_507_7e-3, -3.673_428_4e-3,
            1.349_343_2e-3, 1.009_505_6e-4, -2.002_142_6e-4);
        let y = self * if w < 5.0 { near } else { far };
        // Outside of [-1, 1] the logarithm is NaN, and so is the result.
        if Real::abs(self) == 1.0 { self * f32::INFINITY } else { y }
    }
    /// Stirling's series (DLMF 5.11.1) from 8 on, the recurrence below 8, reflection below 0. It computes in f64, so
    /// that the logarithms can cancel without loss, and without branches, so that loops vectorize.
    #[inline(always)]
    fn lgamma(self) -> Self {
        const HALF_LN_TWO_PI: f64 = 0.918_938_533_204_672_7;
        let x = self as f64;
        let a = x.abs();
        let low = a < 8.0;
        let rising = a * (a + 1.0) * (a + 2.0) * (a + 3.0) * (a + 4.0) * (a + 5.0) * (a + 6.0) * (a + 7.0);
        let z = if low { a + 8.0 } else { a };
        let inverse = 1.0 / z;
        let s = inverse * inverse;
        let series = inverse * poly!(s; 1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0);
        let tall = (z - 0.5) * Real::ln(z) - z + HALF_LN_TWO_PI + series;
        let above = tall - Real::ln(if low { rising } else { 1.0 });
        // The sine of pi x by its series: x is reduced to at most 1/2.
        let r = std::f64::consts::PI * (a - a.round_ties_even());
        let q = r * r;
        let sine = r * poly!(q; 1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0,
            1.0 / 6_227_020_800.0, -1.0 / 1_307_674_368_000.0);
        let below = Real::ln(std::f64::consts::PI / (sine.abs() * a)) - above;
        let y = (if x < 0.0 { below } else { above }) as f32;
        if a == f64::INFINITY { f32::INFINITY } else { y }
    }
    /// Two polynomials of Juffa ("Efficient faithfully rounded error function erff", 2015).
    #[inline(always)]
    fn erf(self) -> Self {
        let t = self.abs();
        // The result is 1 to the last bit beyond this bound.
        let t = if t > 4.0 { 4.0 } else { t };
        let s = t * t;
        let far = poly!(t; -1.287_175_1e-1, -6.348_468_7e-1, -1.067_778_8e-1, 2.425_462_2e-2, -3.883_964_4e-3, 3.831_971_3e-4,
            -1.728_534_7e-5);
        let far = 1.0 - Real::exp(far.mul_add(t, -t));
        let near =
            poly!(s; 1.283_791_7e-1, -3.761_253_4e-1, 1.128_199_2e-1, -2.676_813_5e-2, 4.991_194_2e-3, -5.967_617e-4);
        let near = near.mul_add(t, t);
        (if t > 0.927_734_4 { far } else { near }).copysign(self)
    }
    /// `power` computes in f64, with an error far below f32's last bit.
    #[inline(always)]
    fn pow(self, exponent: Self) -> Self {
        signed_power!(f32, self, exponent, power(self.abs() as f64, exponent as f64) as f32)
    }
}

impl Real for f64 {
    hardware!(f64);
    #[inline(always)]
    fn atan(self) -> Self {
        atan_f64(self)
    }
    #[inline(always)]
    fn exp2(self) -> Self {
        let x = if self > 1025.0 { 1025.0 } else { self };
        let x = if x < -1080.0 { -1080.0 } else { x };
        let shifted = x + ROUND_F64;
        let (zero, p) = exp_parts_f64((x - (shifted - ROUND_F64)) * std::f64::consts::LN_2);
        let n = (shifted.to_bits().wrapping_sub(ROUND_F64.to_bits()) as i64).wrapping_add(zero);
        let half = n >> 1;
        (1.0 + p) * exp2_f64(half) * exp2_f64(n.wrapping_sub(half))
    }
    #[inline(always)]
    fn log2(self) -> Self {
        log_of_base(self, 1.0, 0.0, [1.442_695_040_721_446_275_71, 1.675_171_316_488_651_183_53e-10])
    }
    #[inline(always)]
    fn log10(self) -> Self {
        const TWO: [f64; 2] = [3.010_299_956_636_117_713_06e-1, 3.694_239_077_158_930_786_16e-13];
        log_of_base(self, TWO[0], TWO[1], [4.342_944_818_781_688_809_39e-1, 2.508_294_671_164_527_522_98e-11])
    }
    const PERIODIC_MAX: Self = (1 << 30) as f64;
    const QUOTIENT_MAX: Self = (1u64 << 51) as f64;
    #[inline(always)]
    fn exp(self) -> Self {
        let x = if self > 710.0 { 710.0 } else { self };
        let x = if x < -746.0 { -746.0 } else { x };
        let (n, p) = exp_parts_f64(x);
        let half = (n as i32 >> 1) as i64;
        (1.0 + p) * exp2_f64(half) * exp2_f64(n.wrapping_sub(half))
    }
    #[inline(always)]
    fn exp_m1(self) -> Self {
        let x = if self > 710.0 { 710.0 } else { self };
        let x = if x < -40.0 { -40.0 } else { x };
        let (n, p) = exp_parts_f64(x);
        let half = exp2_f64(n.wrapping_sub(1));
        let scaled = p.mul_add(half, half - 0.5) * 2.0;
        // The result has the sign of the argument, also where it is 0.
        (if n == 0 { p } else { scaled }).copysign(self)
    }
    /// fdlibm's `e_log`.
    #[inline(always)]
    fn ln(self) -> Self {
        let [k, f, s, half, r] = log_series_f64(self);
        let tail = s.mul_add(half + r, k * 1.908_214_929_270_587_700_02e-10) - half;
        log_at_ends(self, k.mul_add(6.931_471_803_691_238_164_90e-1, tail + f))
    }
    #[inline(always)]
    fn sin(self) -> Self {
        let (quadrant, r) = quadrant_f64(self);
        let y = turn(quadrant, sin_cos_f64(r));
        if self == 0.0 { self } else { y }
    }
    #[inline(always)]
    fn cos(self) -> Self {
        let (quadrant, r) = quadrant_f64(self);
        turn(quadrant.wrapping_add(1), sin_cos_f64(r))
    }
    #[inline(always)]
    fn tan(self) -> Self {
        let (quadrant, r) = quadrant_f64(self);
        let parts = sin_cos_f64(r);
        let y = turn(quadrant, parts) / turn(quadrant.wrapping_add(1), parts);
        if self == 0.0 { self } else { y }
    }
    /// fdlibm's `s_erf`: it computes all four ranges and selects one, without branches.
    #[inline(always)]
    fn erf(self) -> Self {
        let x = self.abs();
        let x = if x > 6.0 { 6.0 } else { x };
        // For x below 0.84375.
        let z = x * x;
        let near = poly!(z; 1.283_791_670_955_125_585_61e-1, -3.250_421_072_470_014_993_70e-1, -2.848_174_957_559_851_047_66e-2,
            -5.770_270_296_489_441_591_57e-3, -2.376_301_665_665_016_260_84e-5)
            / poly!(z; 1.0, 3.979_172_239_591_553_528_19e-1, 6.502_224_998_876_729_444_85e-2, 5.081_306_281_875_765_627_76e-3,
                1.324_947_380_043_216_445_26e-4, -3.960_228_278_775_368_123_20e-6);
        let near = x.mul_add(near, x);
        // For x below 1.25.
        let s = x - 1.0;
        let middle = poly!(s; -2.362_118_560_752_659_440_77e-3, 4.148_561_186_837_483_316_66e-1, -3.722_078_760_357_013_238_47e-1,
            3.183_466_199_011_617_536_74e-1, -1.108_946_942_823_966_774_76e-1, 3.547_830_432_561_823_593_71e-2,
            -2.166_375_594_868_790_843_00e-3)
            / poly!(s; 1.0, 1.064_208_804_008_442_282_86e-1, 5.403_979_177_021_710_489_37e-1, 7.182_865_441_419_626_628_68e-2,
                1.261_712_198_087_616_421_12e-1, 1.363_708_391_202_905_073_62e-2, 1.198_449_984_679_910_741_70e-2);
        let middle = 8.450_629_115_104_675_292_97e-1 + middle;
        // From 1.25 on: one expression with two sets of coefficients, one below 1 / 0.35 and one above.
        let s = 1.0 / z;
        let below = x < 1.0 / 0.35;
        let c = |a: f64, b: f64| if below { a } else { b };
        let r = poly!(s; c(-9.864_944_034_847_148_227_05e-3, -9.864_942_924_700_099_285_97e-3),
            c(-6.938_585_727_071_817_643_72e-1, -7.992_832_376_805_230_065_74e-1),
            c(-1.055_862_622_532_329_098_14e1, -1.775_795_491_775_475_198_89e1),
            c(-6.237_533_245_032_600_603_96e1, -1.606_363_848_558_219_160_62e2),
            c(-1.623_966_694_625_734_703_55e2, -6.375_664_433_683_896_277_22e2),
            c(-1.846_050_929_067_110_359_94e2, -1.025_095_131_611_077_249_54e3),
            c(-8.128_743_550_630_659_342_46e1, -4.835_191_916_086_513_970_19e2),
            c(-9.814_329_344_169_145_485_92, 0.0));
        let d = poly!(s; 1.0, c(1.965_127_166_743_925_712_92e1, 3.033_806_074_348_245_829_24e1),
            c(1.376_577_541_435_190_426_00e2, 3.257_925_129_965_739_189_68e2),
            c(4.345_658_774_752_292_288_21e2, 1.536_729_586_084_436_959_94e3),
            c(6.453_872_717_332_678_803_36e2, 3.199_858_219_508_595_539_08e3),
            c(4.290_081_400_275_678_333_86e2, 2.553_050_406_433_164_425_83e3),
            c(1.086_350_055_417_794_351_34e2, 4.745_285_412_069_553_672_15e2),
            c(6.570_249_770_319_281_701_35, -2.244_095_244_658_581_833_62e1),
            c(-6.042_441_521_485_809_874_38e-2, 0.0));
        // exp(-x^2) from x truncated to 21 bits, whose square is exact.
        let cut = f64::from_bits(x.to_bits() & 0xffff_ffff_0000_0000);
        let far = Real::exp(-cut * cut - 0.5625) * Real::exp((cut - x).mul_add(cut + x, r / d));
        let far = 1.0 - far / x;
        let y = if x < 1.25 { middle } else { far };
        (if x < 0.84375 { near } else { y }).copysign(self)
    }
    #[inline(always)]
    fn pow(self, exponent: Self) -> Self {
        signed_power!(f64, self, exponent, power_f64(self.abs(), exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// The error of `got` in units in the last place of `want` as an f32 (or, if `wide`, as an f64).
    fn ulps(got: f64, want: f64, wide: bool) -> f64 {
        let rounded = if wide { want } else { want as f32 as f64 };
        if got == rounded || (got.is_nan() && want.is_nan()) {
            return 0.0;
        }
        if !got.is_finite() || !rounded.is_finite() {
            return f64::INFINITY;
        }
        let (digits, least) = if wide { (53, -1074) } else { (24, -149) };
        // The exponent of `want` from its bits, without rounding.
        let exponent = ((want.abs().to_bits() >> 52) as i32 - 1023).max(-1022);
        let unit = (exponent - digits + 1).max(least);
        (got - want).abs() / 2f64.powi(unit.max(-1000)) * 2f64.powi((-1000 - unit).max(0))
    }

    /// Numbers of all magnitudes from `low` to `high`, and special values.
    fn samples(low: f64, high: f64) -> Vec<f64> {
        let count = if cfg!(miri) { 20 } else { 40_000 };
        let mut all = vec![0.0, -0.0, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        for i in 0..=count {
            let t = i as f64 / count as f64;
            all.push(low + (high - low) * t);
            // Evenly spaced exponents, with both signs.
            let size = (high.abs().max(low.abs()).ln() * (1.0 - t) + t * 1e-40f64.ln()).exp();
            all.extend([size, -size].into_iter().filter(|x| (low..=high).contains(x)));
        }
        all
    }

    #[test]
    fn functions_are_within_their_bounds() {
        type Both = (fn(f32) -> f32, fn(f64) -> f64, fn(f64) -> f64);
        type Pair = (f64, f64);
        #[rustfmt::skip]
        let cases: [(&str, Both, Pair, Pair, Pair); 20] = [
            // Name, functions, ranges of f32 and f64, bounds of their errors in units in the last place.
            ("exp", (Real::exp, Real::exp, f64::exp), (-110.0, 95.0), (-760.0, 720.0), (1.5, 2.0)),
            ("exp_m1", (Real::exp_m1, Real::exp_m1, f64::exp_m1), (-30.0, 95.0), (-50.0, 720.0), (2.0, 3.0)),
            ("ln", (Real::ln, Real::ln, f64::ln), (0.0, 3e38), (0.0, 1e308), (1.5, 2.0)),
            ("ln_1p", (Real::ln_1p, Real::ln_1p, f64::ln_1p), (-1.0, 3e38), (-1.0, 1e308), (2.5, 3.0)),
            ("sin", (Real::sin, Real::sin, f64::sin), (-1e9, 1e9), (-1e9, 1e9), (1.0, 2.0)),
            ("cos", (Real::cos, Real::cos, f64::cos), (-1e9, 1e9), (-1e9, 1e9), (1.0, 2.0)),
            ("tan", (Real::tan, Real::tan, f64::tan), (-1e9, 1e9), (-1e9, 1e9), (1.0, 4.0)),
            ("tanh", (Real::tanh, Real::tanh, f64::tanh), (-30.0, 30.0), (-30.0, 30.0), (2.0, 4.0)),
            ("erf", (Real::erf, Real::erf, libm::erf), (-7.0, 7.0), (-7.0, 7.0), (2.0, 2.0)),
            ("atan", (Real::atan, Real::atan, f64::atan), (-1e9, 1e9), (-1e9, 1e9), (1.0, 2.0)),
            ("asin", (Real::asin, Real::asin, f64::asin), (-1.0, 1.0), (-1.0, 1.0), (4.0, 4.0)),
            ("acos", (Real::acos, Real::acos, f64::acos), (-1.0, 1.0), (-1.0, 1.0), (4.0, 4.0)),
            ("exp2", (Real::exp2, Real::exp2, f64::exp2), (-152.0, 130.0), (-1080.0, 1026.0), (1.5, 2.0)),
            ("log2", (Real::log2, Real::log2, f64::log2), (0.0, 3e38), (0.0, 1e308), (1.0, 2.0)),
            ("log10", (Real::log10, Real::log10, f64::log10), (0.0, 3e38), (0.0, 1e308), (1.0, 2.0)),
            ("sinh", (Real::sinh, Real::sinh, f64::sinh), (-90.0, 90.0), (-711.0, 711.0), (5.0, 5.0)),
            ("cosh", (Real::cosh, Real::cosh, f64::cosh), (-90.0, 90.0), (-711.0, 711.0), (5.0, 5.0)),
            ("acosh", (Real::acosh, Real::acosh, |x| libm::acosh(x)), (1.5, 3e38), (1.5, 1e308), (4.0, 4.0)),
            ("atanh", (Real::atanh, Real::atanh, |x| libm::atanh(x)), (-0.99, 0.99), (-0.99, 0.99), (5.0, 6.0)),
            ("sqrt", (Real::sqrt, Real::sqrt, f64::sqrt), (0.0, 3e38), (0.0, 1e308), (0.5, 0.0)),
        ];
        for (name, (single, double, reference), narrow, wide, (bound_single, bound_double)) in cases {
            let (mut worst_single, mut worst_double) = ((0.0, 0.0), (0.0, 0.0));
            for x in samples(narrow.0, narrow.1) {
                let x = x as f32;
                let error = ulps(single(x) as f64, reference(x as f64), false);
                if error > worst_single.0 {
                    worst_single = (error, x as f64);
                }
            }
            for x in samples(wide.0, wide.1) {
                let error = ulps(double(x), reference(x), true);
                if error > worst_double.0 {
                    worst_double = (error, x);
                }
            }
            assert!(worst_single.0 <= bound_single, "{name} of f32: {worst_single:?}");
            assert!(worst_double.0 <= bound_double, "{name} of f64: {worst_double:?}");
        }
    }

    #[test]
    fn exponentials_of_negative_numbers_are_accurate_down_to_normal_numbers() {
        for x in samples(-86.9, 0.0) {
            if x <= 0.0 || x.is_nan() {
                let error = ulps(Real::exp_of_fall(x as f32) as f64, (x as f32 as f64).exp(), false);
                assert!(error <= 1.5 || x == f64::NEG_INFINITY, "{x}: {error}");
            }
        }
        assert_eq!(Real::exp_of_fall(f32::NEG_INFINITY), 0.0);
        assert_eq!(Real::exp_of_fall(-1e30f32), 0.0);
        assert!(Real::exp_of_fall(f32::NAN).is_nan());
    }

    #[test]
    fn the_normal_cdf_is_accurate_to_a_few_times_1e_7() {
        let reference = |x: f64| 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
        for x in samples(-40.0, 40.0) {
            let (got, want) = (Real::normal_cdf(x as f32), reference(x as f32 as f64));
            assert!((got as f64 - want).abs() <= 3e-7 || (got.is_nan() && want.is_nan()), "{x}: {got}, not {want}");
            assert!(got.is_nan() || (0.0..=1.000_000_2).contains(&got), "{x}: {got}");
        }
        assert_eq!(Real::normal_cdf(-6f32), 0.0);
        assert_eq!(Real::normal_cdf(6f32), 1.0);
    }

    #[test]
    fn odd_functions_keep_the_sign_of_a_zero() {
        #[rustfmt::skip]
        let single: [fn(f32) -> f32; 12] = [Real::sin, Real::tan, Real::tanh, Real::erf, Real::exp_m1, Real::ln_1p, Real::sqrt,
            Real::atan, Real::asin, Real::sinh, Real::asinh, Real::atanh];
        #[rustfmt::skip]
        let double: [fn(f64) -> f64; 12] = [Real::sin, Real::tan, Real::tanh, Real::erf, Real::exp_m1, Real::ln_1p, Real::sqrt,
            Real::atan, Real::asin, Real::sinh, Real::asinh, Real::atanh];
        for zero in [0.0f64, -0.0] {
            for (i, (single, double)) in single.iter().zip(double).enumerate() {
                assert_eq!(single(zero as f32).to_bits(), (zero as f32).to_bits(), "function {i} of f32");
                assert_eq!(double(zero).to_bits(), zero.to_bits(), "function {i} of f64");
            }
        }
    }

    #[test]
    fn remainders_are_exact_while_the_quotient_is_moderate() {
        let numbers: Vec<f64> = samples(-1e6, 1e6).into_iter().step_by(40).collect();
        for (i, a) in numbers.iter().enumerate() {
            for b in numbers.iter().skip(i % 7).step_by(7).chain(&[0.1, -3.0, f64::INFINITY]) {
                let same = |got: f64, want: f64| got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                let (x, y) = (*a as f32, *b as f32);
                if x.abs() <= f32::QUOTIENT_MAX * y.abs() {
                    assert!(same(Real::fmod(x, y) as f64, (x % y) as f64), "{x} % {y}: {}", Real::fmod(x, y));
                }
                if a.abs() <= f64::QUOTIENT_MAX * b.abs() {
                    assert!(same(Real::fmod(*a, *b), a % b), "{a} % {b}: {}", Real::fmod(*a, *b));
                }
            }
        }
    }

    #[test]
    fn powers_are_within_an_ulp_and_follow_ieee_at_the_edges() {
        let mut worst = 0f64;
        for (i, x) in samples(0.0, 1e4).into_iter().enumerate() {
            let (x, y) = (x as f32, ((i * 37) % 401) as f32 / 20.0 - 10.0);
            worst = worst.max(ulps(Real::pow(x, y) as f64, (x as f64).powf(y as f64), false));
        }
        assert!(worst <= 1.0, "{worst}");
        let mut worst = 0f64;
        for (i, x) in samples(0.0, 1e300).into_iter().enumerate() {
            for y in [((i * 37) % 4001) as f64 / 20.0 - 100.0, ((i * 37) % 401) as f64 / 200.0 - 1.0, 1.0 + 1e-9] {
                worst = worst.max(ulps(Real::pow(x, y), x.powf(y), true));
            }
        }
        for i in 0..10_000 {
            // Close to 1, to powers that are as large as they are close.
            let (x, y) = (1.0 + f64::from(i) * 1e-7, 1e6 - f64::from(i * 97));
            worst = worst.max(ulps(Real::pow(x, y), x.powf(y), true));
        }
        assert!(worst <= 1.0, "of f64: {worst}");
        let edges = [
            0.0,
            -0.0,
            0.5,
            -0.5,
            1.0,
            -1.0,
            2.0,
            -2.0,
            3.0,
            -3.0,
            2.5,
            1e10,
            1e30,
            -1e30,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        for x in edges {
            for y in edges {
                let (got, want) = (Real::pow(x, y), x.powf(y));
                assert!(
                    got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()),
                    "{x} ^ {y}: {got}, not {want}"
                );
            }
        }
        let wide = edges.map(f64::from).into_iter().chain([5e-324, -5e-324, 1e-310, 1.7e308, -1.7e308, 1.0 + 1e-15]);
        for x in wide.clone() {
            for y in wide.clone() {
                let (got, want) = (Real::pow(x, y), x.powf(y));
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(
                    same || ulps(got, want, true) <= 1.0 && got.signum() == want.signum(),
                    "{x} ^ {y}: {got}, {want}"
                );
            }
        }
    }
}
