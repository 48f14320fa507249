//! Special functions, one f64 at a time: they are too rare to be worth vectorizing.
//!
//! Relative errors are a few units of 1e-16, except near zeros of the function that no float represents.

use std::f64::consts::{FRAC_1_SQRT_2, LN_2, PI, SQRT_2};

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
        if term < f64::EPSILON * sum {
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

/// The inverse of erfc for z at most 1: Winitzki's approximation (2008), refined by Halley's method.
fn erfc_inverse(z: f64) -> f64 {
    if z == 0.0 {
        return f64::INFINITY;
    }
    if z < 0.0 || z.is_nan() {
        return f64::NAN;
    }
    const A: f64 = 0.147;
    let log = (z * (2.0 - z)).ln();
    let t = 2.0 / (PI * A) + 0.5 * log;
    let mut y = ((t * t - log / A).sqrt() - t).max(0.0).sqrt();
    for _ in 0..3 {
        let step = (erfc(y) - z) / (2.0 / PI.sqrt() * (-y * y).exp());
        if !step.is_finite() {
            break;
        }
        y += step / (1.0 - y * step);
    }
    y
}

/// The inverse error function.
pub fn erfinv(x: f64) -> f64 {
    let a = x.abs();
    if a > 0.5 {
        return erfc_inverse(1.0 - a).copysign(x);
    }
    if a.is_nan() {
        return a;
    }
    // Halley's method on erf, whose values are small here.
    let mut y = a * PI.sqrt() / 2.0;
    for _ in 0..4 {
        let step = (a - libm::erf(y)) / (2.0 / PI.sqrt() * (-y * y).exp());
        y += step / (1.0 - y * step);
    }
    y.copysign(x)
}

/// The inverse of the standard normal CDF (quantile function).
pub fn ndtri(p: f64) -> f64 {
    if p > 0.5 { SQRT_2 * erfc_inverse(2.0 * (1.0 - p)) } else { -SQRT_2 * erfc_inverse(2.0 * p) }
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

/// Maximum number of terms of the series below: for a = 1e8 and x near a, a series takes 90,000.
const TERMS_MAX: usize = 1 << 20;

/// x^a e^-x / gamma(a + 1), accurate for large a.
fn gamma_factor(a: f64, x: f64) -> f64 {
    if a < 10.0 {
        return (a * x.ln() - x - libm::lgamma(a + 1.0)).exp();
    }
    // With Stirling's formula for gamma(a + 1) the large factors cancel: the exponent needs only a, (x - a) / a and the
    // formula's error, a series.
    let error = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1260.0 * a * a)) / (a * a)) / a;
    let away = (x - a) / a;
    (-a * (away - away.ln_1p()) - error).exp() / (2.0 * PI * a).sqrt()
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
    gamma_ends(a, x)
        .map_or_else(|| if x < a + 1.0 { gamma_series(a, x) } else { 1.0 - gamma_fraction(a, x) }, |(lower, _)| lower)
}

/// The regularized upper incomplete gamma function Q(a, x).
pub fn gammaincc(a: f64, x: f64) -> f64 {
    gamma_ends(a, x)
        .map_or_else(|| if x < a + 1.0 { 1.0 - gamma_series(a, x) } else { gamma_fraction(a, x) }, |(_, upper)| upper)
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
        near(erfcx(0.5), 0.615_690_344_192_925_9);
        near(erfcx(10.0), 0.056_140_992_743_822_59);
        near(erfinv(0.5), 0.476_936_276_204_469_9);
        near(libm::erf(erfinv(-0.999)), -0.999);
        near(ndtri(0.975), 1.959_963_984_540_054);
        near(ndtri(1e-300), -37.047_096_299_361_2);
        assert!(ndtri(0.0) == f64::NEG_INFINITY && ndtri(1.0) == f64::INFINITY && ndtri(1.5).is_nan());
        near(log_ndtr(-1.5), -2.705_944_400_823_89);
        near(log_ndtr(-40.0), -804.608_442_013_754);
        near(i0(1.0), 1.266_065_877_752_008_4);
        near(i1(-1.0), -0.565_159_103_992_485);
        near(i0e(40.0), 0.063_278_279_875_235_32);
        near(gammainc(0.3, 0.01), 0.279_240_996_359_014_86);
        near(gammaincc(2.5, 30.0), 1.215_456_977_718_304e-11);
        near(gammainc(2.5, 30.0) + gammaincc(2.5, 30.0), 1.0);
        assert!(gammainc(0.0, 0.0).is_nan() && gammainc(0.0, 1.0) == 1.0 && gammaincc(3.0, 0.0) == 1.0);
        near(i1(29.9) / i1(30.1), 0.821_393_578_321_508_3);
    }
}
