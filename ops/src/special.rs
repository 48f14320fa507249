//! Special functions, one f64 at a time: they are too rare to be worth vectorizing.
//!
//! Relative errors are a few units of 1e-16, except near zeros of the function that no float represents.

use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI};

/// The logarithm of the absolute value of the gamma function.
pub fn lgamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The complementary error function, 1 - erf(x).
pub fn erfc(x: f64) -> f64 {
    libm::erfc(x)
}

/// The digamma function, the derivative of [`lgamma`]: the recurrence up to 10, reflection below 0, then the asymptotic
/// series (DLMF 5.11.2).
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        let fraction = x - x.trunc();
        if fraction == 0.0 || x.is_infinite() {
            return f64::NAN;
        }
        return digamma(1.0 - x) - PI / (PI * fraction).tan();
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    // Bernoulli numbers of even index divided by that index.
    const TERMS: [f64; 7] =
        [1.0 / 12.0, -1.0 / 120.0, 1.0 / 252.0, -1.0 / 240.0, 1.0 / 132.0, -691.0 / 32_760.0, 1.0 / 12.0];
    let series = z * TERMS.iter().rev().fold(0.0, |sum, term| sum * z + term);
    sum + x.ln() - 0.5 / x - series
}

/// The Hurwitz zeta function, the sum of (q + k) ^ -x over k from 0 on, by the Euler-Maclaurin formula.
pub fn zeta(x: f64, q: f64) -> f64 {
    if x.is_nan() || q.is_nan() || x < 1.0 {
        return f64::NAN;
    }
    if x == 1.0 {
        return f64::INFINITY;
    }
    if q <= 0.0 {
        if q == q.floor() {
            return f64::INFINITY;
        }
        if x != x.floor() || x.is_infinite() {
            return f64::NAN;
        }
        // The absolute values of the terms with a negative base are consecutive terms of a zeta series with a positive
        // q: the difference of two zeta values is their sum.
        let count = (-q).ceil();
        let below = zeta(x, 1.0 - q - count) - zeta(x, 1.0 - q);
        let sign = if x % 2.0 == 0.0 { 1.0 } else { -1.0 };
        return sign * below + zeta(x, q + count);
    }
    if q > 1e8 {
        return (1.0 / (x - 1.0) + 1.0 / (2.0 * q)) * q.powf(1.0 - x);
    }
    // Reciprocals of the Bernoulli numbers of index 2k over (2k)!.
    const TERMS: [f64; 12] = [
        12.0,
        -720.0,
        30_240.0,
        -1_209_600.0,
        47_900_160.0,
        -1_892_437_580.318_379_2,
        74_724_249_600.0,
        -2_950_130_727_918.164,
        116_467_828_143_500.67,
        -4_597_978_722_407_472.6,
        1.815_210_540_194_354_7e17,
        -7.166_165_256_175_667e18,
    ];
    let mut sum = q.powf(-x);
    let (mut a, mut term, mut terms) = (q, 0.0, 0);
    while terms < 9 || a <= 9.0 {
        terms += 1;
        a += 1.0;
        term = a.powf(-x);
        sum += term;
        // Both are 0 if all powers underflow.
        if term <= f64::EPSILON * sum {
            return sum;
        }
    }
    sum += term * a / (x - 1.0) - 0.5 * term;
    let mut factor = 1.0;
    for (i, divisor) in TERMS.iter().enumerate() {
        let k = 2.0 * i as f64;
        factor *= x + k;
        term /= a;
        let next = factor * term / divisor;
        sum += next;
        if (next / sum).abs() < f64::EPSILON {
            break;
        }
        factor *= x + k + 1.0;
        term /= a;
    }
    sum
}

/// exp(x²) [`erfc`]\(x): a continued fraction (DLMF 7.9.1) where the factors would overflow and underflow.
pub fn erfcx(x: f64) -> f64 {
    if x < 2.0 {
        return (x * x).exp() * erfc(x);
    }
    let mut rest = 0.0;
    for k in (1..=60).rev() {
        rest = 0.5 * k as f64 / (x + rest);
    }
    1.0 / ((x + rest) * PI.sqrt())
}

/// `numerator(x) / denominator(x)`; the coefficients of both go from the constant term up.
#[inline(always)]
fn rational<const N: usize>(x: f64, numerator: &[f64; N], denominator: &[f64; N]) -> f64 {
    let value = |terms: &[f64; N]| terms.iter().rev().fold(0.0, |sum, term| sum * x + term);
    value(numerator) / value(denominator)
}

/// Numerators and denominators of a quantile: for the centre, and for tails before and beyond exp(-25).
type QuantileTerms<const N: usize> = [([f64; N], [f64; N]); 3];

/// Algorithm AS 241 (Wichura 1988), PPND16, whose relative error is about 1e-16.
const QUANTILE: QuantileTerms<8> = [
    (
        [
            3.387_132_872_796_366_5,
            133.141_667_891_784_38,
            1_971.590_950_306_551_3,
            13_731.693_765_509_46,
            45_921.953_931_549_87,
            67_265.770_927_008_7,
            33_430.575_583_588_13,
            2_509.080_928_730_122_7,
        ],
        [
            1.0,
            42.313_330_701_600_91,
            687.187_007_492_057_9,
            5_394.196_021_424_751,
            21_213.794_301_586_597,
            39_307.895_800_092_71,
            28_729.085_735_721_943,
            5_226.495_278_852_854,
        ],
    ),
    (
        [
            1.423_437_110_749_683_5,
            4.630_337_846_156_546,
            5.769_497_221_460_691,
            3.647_848_324_763_204_5,
            1.270_458_252_452_368_4,
            0.241_780_725_177_450_6,
            0.022_723_844_989_269_184,
            7.745_450_142_783_414e-4,
        ],
        [
            1.0,
            2.053_191_626_637_759,
            1.676_384_830_183_803_8,
            0.689_767_334_985_1,
            0.148_103_976_427_480_08,
            0.015_198_666_563_616_457,
            5.475_938_084_995_345e-4,
            1.050_750_071_644_416_9e-9,
        ],
    ),
    (
        [
            6.657_904_643_501_103,
            5.463_784_911_164_114,
            1.784_826_539_917_291_3,
            0.296_560_571_828_504_87,
            0.026_532_189_526_576_124,
            0.001_242_660_947_388_078_4,
            2.711_555_568_743_487_6e-5,
            2.010_334_399_292_288_1e-7,
        ],
        [
            1.0,
            0.599_832_206_555_888,
            0.136_929_880_922_735_8,
            0.014_875_361_290_850_615,
            7.868_691_311_456_133e-4,
            1.846_318_317_510_054_8e-5,
            1.421_511_758_316_446e-7,
            2.044_263_103_389_939_8e-15,
        ],
    ),
];

/// Algorithm AS 241 (Wichura 1988), PPND7, whose relative error is about 1e-7.
const QUANTILE_SINGLE: QuantileTerms<4> = [
    (
        [3.387_132_717_9, 50.434_271_938, 159.291_132_02, 59.109_374_72],
        [1.0, 17.895_169_469, 78.757_757_664, 67.187_563_6],
    ),
    ([1.423_437_277_7, 2.756_815_39, 1.306_728_481_6, 0.170_238_211_03], [1.0, 0.737_001_642_5, 0.120_211_329_75, 0.0]),
    (
        [6.657_905_115, 3.081_226_386, 0.428_682_943_37, 0.017_337_203_997],
        [1.0, 0.241_978_942_25, 0.012_258_202_635, 0.0],
    ),
];

/// The quantile of the standard normal distribution at the probability `0.5 + q`, where `tail` is the smaller of that
/// probability and its complement.
#[inline(always)]
fn normal_quantile<const N: usize>(terms: &QuantileTerms<N>, q: f64, tail: f64) -> f64 {
    let [centre, middle, far] = terms;
    if q.abs() <= 0.425 {
        q * rational(0.180_625 - q * q, &centre.0, &centre.1)
    } else {
        tail_quantile(middle, far, tail).copysign(q)
    }
}

/// The absolute value of a quantile outside the centre. It is apart from the centre, whose loops it would slow down.
#[cold]
#[inline(never)]
fn tail_quantile<const N: usize>(middle: &([f64; N], [f64; N]), far: &([f64; N], [f64; N]), tail: f64) -> f64 {
    if tail < 0.0 || tail.is_nan() {
        return f64::NAN;
    }
    let r = (-tail.ln()).sqrt();
    if r <= 5.0 {
        rational(r - 1.6, &middle.0, &middle.1)
    } else if r.is_finite() {
        rational(r - 5.0, &far.0, &far.1)
    } else {
        f64::INFINITY
    }
}

/// The inverse error function.
pub fn erfinv(x: f64) -> f64 {
    normal_quantile(&QUANTILE, 0.5 * x, 0.5 * (1.0 - x.abs())) * FRAC_1_SQRT_2
}

/// The inverse of the standard normal CDF (quantile function).
pub fn ndtri(p: f64) -> f64 {
    normal_quantile(&QUANTILE, p - 0.5, p.min(1.0 - p))
}

/// [`ndtri`] in single precision.
#[inline]
pub fn ndtri_single(p: f64) -> f64 {
    normal_quantile(&QUANTILE_SINGLE, p - 0.5, p.min(1.0 - p))
}

/// The logarithm of the standard normal CDF.
pub fn log_ndtr(x: f64) -> f64 {
    let t = x * FRAC_1_SQRT_2;
    if x < -1.0 { erfcx(-t).ln() - LN_2 - t * t } else { (-0.5 * erfc(t)).ln_1p() }
}

/// The modified Bessel function of the first kind of order 0 or 1, times exp(-|x|): the power series (DLMF 10.25.2) up
/// to 30, the asymptotic expansion (DLMF 10.40.1) beyond.
fn bessel_scaled(x: f64, order: f64) -> f64 {
    let a = x.abs();
    if a.is_infinite() {
        return 0.0;
    }
    if a <= 30.0 || a.is_nan() {
        let square = 0.25 * a * a;
        let (mut term, mut sum, mut k) = (if order == 0.0 { 1.0 } else { 0.5 * a }, 0.0, 0.0);
        while term > f64::EPSILON * 0.25 * sum {
            sum += term;
            k += 1.0;
            term *= square / (k * (k + order));
        }
        return (if a.is_nan() { a } else { sum }) * (-a).exp();
    }
    let (mut term, mut sum) = (1.0, 0.0);
    for k in 1..60 {
        sum += term;
        let odd = (2 * k - 1) as f64;
        let next = -term * (4.0 * order - odd * odd) / (k as f64 * 8.0 * a);
        if next.abs() > term.abs() || next.abs() < f64::EPSILON * 0.1 {
            break;
        }
        term = next;
    }
    sum / ((2.0 * PI).sqrt() * a.sqrt())
}

/// exp(-|x|) times [`i0`].
pub fn i0e(x: f64) -> f64 {
    bessel_scaled(x, 0.0)
}

/// exp(-|x|) times [`i1`].
pub fn i1e(x: f64) -> f64 {
    bessel_scaled(x, 1.0).copysign(x)
}

/// The modified Bessel function of the first kind of order 0.
pub fn i0(x: f64) -> f64 {
    unscaled(i0e(x), x)
}

/// The modified Bessel function of the first kind of order 1.
pub fn i1(x: f64) -> f64 {
    unscaled(i1e(x), x)
}

/// exp(|x|) y, in two steps: the exponential alone may overflow.
fn unscaled(y: f64, x: f64) -> f64 {
    if x.is_infinite() {
        return f64::INFINITY.copysign(if y == 0.0 { 1.0_f64.copysign(y) } else { y });
    }
    let root = (0.5 * x.abs()).exp();
    y * root * root
}

/// Maximum number of terms of the series below: for a = 1e6 and x near a, a series takes 9,000.
const TERMS_MAX: usize = 1 << 14;

/// a (d - ln(1 + d)) for the relative distance d of x from a.
fn gamma_exponent(a: f64, x: f64) -> f64 {
    let away = (x - a) / a;
    if away.abs() > 0.1 {
        return a * (away - away.ln_1p());
    }
    // ln(1 + away) is 2 artanh(ratio), of whose series the first term cancels.
    let ratio = away / (2.0 + away);
    let square = ratio * ratio;
    let tail = (0..8).rev().fold(0.0, |sum, k| sum * square + 1.0 / (2 * k + 3) as f64);
    a * ratio * (away - 2.0 * square * tail)
}

/// x^a e^-x / gamma(a + 1), accurate for large a.
fn gamma_factor(a: f64, x: f64) -> f64 {
    if a < 10.0 {
        return (a * x.ln() - x - libm::lgamma(a + 1.0)).exp();
    }
    // With Stirling's formula for gamma(a + 1) the large factors cancel: the exponent needs only a, (x - a) / a and the
    // formula's error, a series.
    let error = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * a * a)) / (a * a)) / a;
    (-gamma_exponent(a, x) - error).exp() / (2.0 * PI * a).sqrt()
}

/// The regularized lower incomplete gamma function by its series (DLMF 8.11.4), for x below a + 1.
fn gamma_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for n in 1..TERMS_MAX {
        term *= x / (a + n as f64);
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    gamma_factor(a, x) * sum
}

/// The regularized upper incomplete gamma function by its continued fraction (DLMF 8.9.2, by Lentz' method), for x from
/// a + 1 on.
fn gamma_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / TINY;
    let mut d = 1.0 / b;
    let mut product = d;
    for n in 1..TERMS_MAX {
        let n = n as f64;
        let numerator = n * (a - n);
        b += 2.0;
        d = 1.0 / nonzero(numerator * d + b, TINY);
        c = nonzero(b + numerator / c, TINY);
        product *= d * c;
        if (d * c - 1.0).abs() < 1e-16 {
            break;
        }
    }
    gamma_factor(a, x) * a * product
}

fn nonzero(x: f64, tiny: f64) -> f64 {
    if x.abs() < tiny { tiny } else { x }
}

/// The shape from which on the expansion below is exact, and the series and the fraction take thousands of terms.
const LARGE_SHAPE: f64 = 1e6;

/// The coefficients of the first three functions of the expansion below, by powers of its variable, from the recurrence
/// of DLMF 8.12.
const EXPANSION: [&[f64]; 3] = [
    &[
        -1.0 / 3.0,
        1.0 / 12.0,
        -2.0 / 135.0,
        1.0 / 864.0,
        1.0 / 2835.0,
        -139.0 / 777_600.0,
        1.0 / 25_515.0,
        -2.185_448_510_679_992e-6,
        -1.854_062_210_715_16e-6,
        8.296_711_340_953_087e-7,
        -1.766_595_273_682_607_8e-7,
        6.707_853_543_401_498e-9,
    ],
    &[-1.0 / 540.0, -1.0 / 288.0, 1.0 / 378.0, -77.0 / 77_760.0, 2.057_613_168_724_28e-4, -4.018_775_720_164_609e-7],
    &[25.0 / 6048.0, -139.0 / 51_840.0, 1.0 / 1296.0],
];

/// The regularized upper incomplete gamma function of a large shape by Temme's uniform expansion (DLMF 8.12.4), and the
/// lower with `sign` -1: half of an erfc, and a correction.
fn gamma_of_large_shape(a: f64, x: f64, sign: f64) -> f64 {
    let exponent = gamma_exponent(a, x);
    // The tail is below every number of float64.
    if exponent > 750.0 {
        return if (x > a) == (sign > 0.0) { 0.0 } else { 1.0 };
    }
    let variable = (2.0 * exponent / a).sqrt().copysign(x - a);
    let along = |coefficients: &[f64]| coefficients.iter().rev().fold(0.0, |sum, c| sum * variable + c);
    let sum = EXPANSION.iter().rev().fold(0.0, |sum, coefficients| sum / a + along(coefficients));
    0.5 * erfc(sign * exponent.sqrt().copysign(x - a)) + sign * (-exponent).exp() * sum / (2.0 * PI * a).sqrt()
}

/// The lower and upper incomplete gamma functions outside of their domain and at its ends.
fn gamma_ends(a: f64, x: f64) -> Option<(f64, f64)> {
    let lower = if !(a >= 0.0 && x >= 0.0) || (a == 0.0 && x == 0.0) || (a.is_infinite() && x.is_infinite()) {
        f64::NAN
    } else if a == 0.0 || x.is_infinite() {
        1.0
    } else if x == 0.0 || a.is_infinite() {
        0.0
    } else {
        return None;
    };
    Some((lower, 1.0 - lower))
}

/// The regularized lower incomplete gamma function P(a, x).
pub fn gammainc(a: f64, x: f64) -> f64 {
    match gamma_ends(a, x) {
        Some((lower, _)) => lower,
        None if a > LARGE_SHAPE => gamma_of_large_shape(a, x, -1.0),
        None if x < a + 1.0 => gamma_series(a, x),
        None => 1.0 - gamma_fraction(a, x),
    }
}

/// The regularized upper incomplete gamma function Q(a, x).
pub fn gammaincc(a: f64, x: f64) -> f64 {
    match gamma_ends(a, x) {
        Some((_, upper)) => upper,
        None if a > LARGE_SHAPE => gamma_of_large_shape(a, x, 1.0),
        None if x < a + 1.0 => 1.0 - gamma_series(a, x),
        None => gamma_fraction(a, x),
    }
}

/// The derivative of x with respect to a at constant gammainc(a, x): minus the ratio of its partial derivatives
/// (implicit reparameterization, Figurnov et al. 2018).
///
/// Sums the terms of [`gammainc`]'s series and their derivatives; in the upper tail, where those cancel, integrates
/// (ln(x + s) - digamma(a)) (1 + s / x)^(a - 1) e^-s over s from 0 on.
pub fn gamma_slope(a: f64, x: f64) -> f64 {
    if !(a > 0.0 && x > 0.0) || a.is_infinite() || x.is_infinite() {
        return f64::NAN;
    }
    if a > 1e6 {
        return 1.0 + (x - a) / (2.0 * a);
    }
    if x > a + 6.0 * a.sqrt() + 6.0 {
        const STEPS: usize = 1000;
        let end = 45.0 * x / (x - a + 1.0).max(1.0);
        let mean = digamma(a);
        let at = |s: f64| ((x + s).ln() - mean) * ((a - 1.0) * (s / x).ln_1p() - s).exp();
        let step = end / STEPS as f64;
        let inner: f64 = (1..STEPS).map(|i| at(i as f64 * step) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
        return (at(0.0) + inner + at(end)) * step / 3.0;
    }
    let (mut term, mut sum) = (1.0, 1.0);
    let (mut harmonic, mut slopes) = (0.0, 0.0);
    for n in 1..TERMS_MAX {
        let next = a + n as f64;
        term *= x / next;
        harmonic += 1.0 / next;
        sum += term;
        slopes += term * harmonic;
        if term * (harmonic + 1.0) < (sum + slopes) * 1e-17 {
            break;
        }
    }
    (slopes - sum * (x.ln() - digamma(a + 1.0))) * x / a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= 2e-14 * want.abs(), "{got}, not {want}");
    }

    /// Checks values against SciPy's.
    #[test]
    fn values_at_a_few_places() {
        near(digamma(1.0), -0.577_215_664_901_532_9);
        near(digamma(-1.5), 0.703_156_640_645_243_2);
        assert!(digamma(-2.0).is_nan() && digamma(0.0) == f64::NEG_INFINITY);
        near(zeta(2.0, 1.0), PI * PI / 6.0);
        near(zeta(3.0, -1.5), zeta(3.0, 0.5) + (-0.5f64).powi(-3) + (-1.5f64).powi(-3));
        assert!(zeta(2.0, -3.0).is_infinite() && zeta(0.5, 1.0).is_nan());
        assert_eq!((zeta(1e30, 1.5), zeta(1e30, -0.5)), (0.0, f64::INFINITY));
        near(erfcx(0.5), 0.615_690_344_192_925_9);
        near(erfcx(10.0), 0.056_140_992_743_822_59);
        near(erfinv(0.5), 0.476_936_276_204_469_9);
        near(libm::erf(erfinv(-0.999)), -0.999);
        near(ndtri(0.975), 1.959_963_984_540_054);
        near(ndtri(1e-300), -37.047_096_299_361_2);
        near(ndtri(0.1), -1.281_551_565_544_600_4);
        near(ndtri(1e-10), -6.361_340_902_404_056);
        near(erfinv(1e-20), 8.862_269_254_527_58e-21);
        assert!(erfinv(1.0) == f64::INFINITY && erfinv(-1.0) == f64::NEG_INFINITY);
        assert!(erfinv(1.5).is_nan() && erfinv(f64::NAN).is_nan() && ndtri(f64::NAN).is_nan());
        for i in 0..1000 {
            let p = f64::from((-0.05 * f64::from(i)).exp2() as f32);
            for p in [p, 1.0 - p] {
                let (single, double) = (ndtri_single(p), ndtri(p));
                assert!((single - double).abs() <= 3e-7 * double.abs() || single == double, "{p}: {single}, {double}");
            }
        }
        assert!(
            ndtri_single(0.0) == f64::NEG_INFINITY && ndtri_single(1.5).is_nan() && ndtri_single(f64::NAN).is_nan()
        );
        assert!(ndtri(0.0) == f64::NEG_INFINITY && ndtri(1.0) == f64::INFINITY && ndtri(1.5).is_nan());
        near(log_ndtr(-1.5), -2.705_944_400_823_89);
        near(log_ndtr(-40.0), -804.608_442_013_754);
        near(i0(1.0), 1.266_065_877_752_008_4);
        near(i1(-1.0), -0.565_159_103_992_485);
        near(i0e(40.0), 0.063_278_279_875_235_32);
        near(gammainc(0.3, 0.01), 0.279_240_996_359_014_86);
        near(gammaincc(2.5, 30.0), 1.215_456_977_718_304e-11);
        near(gammainc(2.5, 30.0) + gammaincc(2.5, 30.0), 1.0);
        // Shapes on both sides of `LARGE_SHAPE`, by integrating the density with 60 digits.
        for (a, x, lower, upper) in [
            (1e5, 99e3, 7.574_199_211_747_68e-4, 0.999_242_580_078_825_2),
            (1e5, 101e3, 0.999_191_578_487_074_4, 8.084_215_129_255_907e-4),
            (2e6, 2e6, 0.500_094_031_597_519_2, 0.499_905_968_402_480_84),
            (2e6, 2.001e6, 0.760_286_560_946_936_2, 0.239_713_439_053_063_76),
            (2e6, 2.02e6, 1.0, 2.023_745_988_669_138e-45),
            (2e6, 1.98e6, 5.334_632_857_915_173e-46, 1.0),
            (1e10, 1.000_03e10, 0.998_649_983_783_308, 1.350_016_216_691_906_5e-3),
            (1e14, 1e14, 0.500_000_013_298_076, 0.499_999_986_701_924),
            (1e300, 1e300, 0.5, 0.5),
            (1e30, 9e29, 0.0, 1.0),
            (1e6 + 1.0, 1e300, 1.0, 0.0),
        ] {
            near(gammainc(a, x), lower);
            near(gammaincc(a, x), upper);
        }
        assert!(gammainc(0.0, 0.0).is_nan() && gammainc(0.0, 1.0) == 1.0 && gammaincc(3.0, 0.0) == 1.0);
        near(i1(29.9) / i1(30.1), 0.821_393_578_321_508_3);
    }
}
