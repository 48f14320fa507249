//! Orthogonal polynomials of `gt.special`, by their three-term recurrences.

use crate::common::{broadcast, full_like, in_dtype};
use crate::declaration::{TensorOrNumber, functions};
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::module;
use gt_ops::{DType, OpError, Shape};
use std::ops::{Add, Div, Mul, Sub};

/// The largest degree of a polynomial that is computed on the device, by some instructions for each degree.
const DEGREE_ON_DEVICE_MAX: f64 = 16.0;
/// The largest number of steps of the recurrence for one call on the host: a second or two.
const STEPS_MAX: u64 = 1 << 28;

/// A kind of orthogonal polynomials.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Polynomial {
    ChebyshevT,
    ChebyshevU,
    ChebyshevV,
    ChebyshevW,
    HermiteH,
    HermiteHe,
    Laguerre,
    Legendre,
}

/// A number, or a tensor of numbers.
trait Field:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Add<f64, Output = Self>
    + Sub<f64, Output = Self>
    + Mul<f64, Output = Self>
    + Div<f64, Output = Self>
{
}
impl Field for f64 {}
impl Field for Expr<'_> {}

impl Polynomial {
    /// The polynomial of degree 1.
    fn first<X: Field>(self, x: X) -> X {
        match self {
            Polynomial::ChebyshevT | Polynomial::HermiteHe | Polynomial::Legendre => x,
            Polynomial::ChebyshevU | Polynomial::HermiteH => x * 2.0,
            Polynomial::ChebyshevV => x * 2.0 - 1.0,
            Polynomial::ChebyshevW => x * 2.0 + 1.0,
            Polynomial::Laguerre => x * -1.0 + 1.0,
        }
    }

    /// The polynomial of degree `k + 1` from those of degrees `k` and `k - 1`.
    fn next<X: Field>(self, x: X, k: f64, current: X, below: X) -> X {
        match self {
            Polynomial::HermiteH => (x * current - below * k) * 2.0,
            Polynomial::HermiteHe => x * current - below * k,
            Polynomial::Laguerre => ((x * -1.0 + (2.0 * k + 1.0)) * current - below * k) / (k + 1.0),
            Polynomial::Legendre => (x * (2.0 * k + 1.0) * current - below * k) / (k + 1.0),
            _ => x * 2.0 * current - below,
        }
    }

    /// The polynomial of a large degree, where it has a closed form; `round` rounds to the dtype of the result.
    fn closed(self, x: f64, n: f64, round: impl Fn(f64) -> f64) -> Option<f64> {
        let sign = if n % 2.0 == 0.0 { 1.0 } else { -1.0 };
        let (one, minus_one) = match self {
            Polynomial::ChebyshevT | Polynomial::Legendre => (1.0, sign),
            Polynomial::ChebyshevU => (n + 1.0, sign * (n + 1.0)),
            Polynomial::ChebyshevV => (1.0, sign * (2.0 * n + 1.0)),
            Polynomial::ChebyshevW => (2.0 * n + 1.0, sign),
            Polynomial::Laguerre => return (x == 0.0).then_some(1.0),
            Polynomial::HermiteH | Polynomial::HermiteHe => return None,
        };
        if x.abs() == 1.0 {
            return Some(if x > 0.0 { one } else { minus_one });
        }
        let angle = round(x.acos());
        let times = |factor: f64| round(round(factor) * angle);
        match self {
            _ if angle.is_nan() => None,
            Polynomial::ChebyshevT => Some(times(n).cos()),
            Polynomial::ChebyshevU => Some(times(n + 1.0).sin() / angle.sin()),
            Polynomial::ChebyshevV => Some(times(n + 0.5).cos() / (angle / 2.0).cos()),
            Polynomial::ChebyshevW => Some(times(n + 0.5).sin() / (angle / 2.0).sin()),
            _ => None,
        }
    }

    /// The polynomial of degree `n` of one number; each step of the recurrence takes one of `steps`, and without any
    /// left there is no result.
    fn on_host(self, x: f64, n: f64, round: impl Fn(f64) -> f64, steps: &mut u64) -> Option<f64> {
        if n <= 0.0 {
            // Negative degrees give 0.
            return Some(if n == 0.0 { 1.0 } else { 0.0 });
        }
        if n > DEGREE_ON_DEVICE_MAX
            && let Some(found) = self.closed(x, n, &round)
        {
            return Some(found);
        }
        let (mut below, mut current, mut k) = (1.0, round(self.first(x)), 1.0);
        while k < n && !current.is_nan() {
            *steps = steps.checked_sub(1)?;
            (below, current) = (current, round(self.next(x, k, current, below)));
            k += 1.0;
        }
        Some(current)
    }

    /// The polynomials of degrees `n`, rounded towards 0. Waits for the largest degree.
    fn of<'g>(self, name: &str, input: Expr<'g>, n: Expr<'g>) -> Result<Expr<'g>> {
        if input.as_number().is_some() && n.as_number().is_some() {
            return Err(OpError::type_(format!("special_{name}(): one of the arguments must be a Tensor")));
        }
        let dtype = input.builder().common_dtype(&[input, n])?.to_float();
        let x = in_dtype(input, dtype).detach();
        let number = n.as_number().map(|number| whole(rounded(number.to_f64(), dtype)));
        let degree = match number {
            Some(number) => x.builder().full(&Shape::SCALAR, number, dtype),
            None => n.detach().to(dtype),
        };
        let largest = match number {
            Some(number) => number,
            None if degree.numel()? == 0 => 0.0,
            None => degree.amax(&[], false).item()?.to_f64(),
        };
        if largest.is_nan() || largest > DEGREE_ON_DEVICE_MAX {
            return self.fetched(name, x, degree);
        }
        let degree = degree.to(DType::I64);
        let (mut below, mut current) = (full_like(x, 1.0)?, self.first(x));
        // Negative degrees give 0.
        let mut result = degree.eq(0i64).where_(below, full_like(x, 0.0)?);
        for k in 1..=largest as i64 {
            result = degree.eq(k).where_(current, result);
            (below, current) = (current, self.next(x, k as f64, current, below));
        }
        Ok(result)
    }

    /// The polynomials of elements and degrees of one dtype, computed on the host: a recurrence of many steps would be
    /// as many instructions. As in PyTorch, large degrees of Chebyshev's are cosines of multiples of an
    /// angle, and degrees beyond int64 count as negative.
    fn fetched<'g>(self, name: &str, x: Expr<'g>, degree: Expr<'g>) -> Result<Expr<'g>> {
        let (tensors, dtype) = (broadcast(&[x, degree])?, x.dtype()?);
        let (x, degree) = (tensors[0], tensors[1]);
        let round = |value: f64| rounded(value, dtype);
        let mut steps = STEPS_MAX;
        let mut found = Vec::with_capacity(x.numel()?);
        for (element, degree) in x.elements()?.into_iter().zip(degree.elements()?) {
            let n = whole(degree.to_f64());
            found.push(self.on_host(element.to_f64(), n, round, &mut steps).ok_or_else(|| {
                OpError::value(format!(
                    "special_{name}(): {} elements of degrees up to {n} take more than {STEPS_MAX} steps, which is the \
                     limit of one call: pass fewer elements or lower degrees",
                    x.numel().unwrap_or_default(),
                ))
            })?);
        }
        Ok(x.builder().floats(&found, &x.sizes()?, dtype))
    }
}

/// A degree without its fraction; -1 if int64 does not have it.
fn whole(degree: f64) -> f64 {
    if degree.abs() < i64::MAX as f64 { degree.trunc() } else { -1.0 }
}

/// A number in the precision that a dtype computes in.
fn rounded(number: f64, dtype: DType) -> f64 {
    if dtype == DType::F64 { number } else { f64::from(number as f32) }
}

/// Declares polynomials, each by its kind and the number at which that is evaluated.
macro_rules! polynomials {
    ($($(#[doc = $doc:literal])+ $name:ident $kind:ident |$x:ident| $at:expr;)*) => {
        functions! {$(
            $(#[doc = $doc])+
            ///
            /// There is no gradient, as in PyTorch. Waits for the largest degree, and for the elements if that is
            /// greater than 16.
            ///
            /// Raises:
            ///     ValueError: The recurrence takes more than 2**28 steps, the degrees of all elements together.
            [module("special").out()]
            fn $name(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
                let $x = *input;
                Polynomial::$kind.of(stringify!($name), $at, *n)
            }
        )*}
    };
}

polynomials! {
    /// The Chebyshev polynomial T of degree `n`.
    chebyshev_polynomial_t ChebyshevT |x| x;

    /// The Chebyshev polynomial U of degree `n`.
    chebyshev_polynomial_u ChebyshevU |x| x;

    /// The Chebyshev polynomial V of degree `n`.
    chebyshev_polynomial_v ChebyshevV |x| x;

    /// The Chebyshev polynomial W of degree `n`.
    chebyshev_polynomial_w ChebyshevW |x| x;

    /// The Chebyshev polynomial T on 0 to 1, that of 2x - 1, of degree `n`.
    shifted_chebyshev_polynomial_t ChebyshevT |x| 2.0 * x - 1.0;

    /// The Chebyshev polynomial U on 0 to 1, that of 2x - 1, of degree `n`.
    shifted_chebyshev_polynomial_u ChebyshevU |x| 2.0 * x - 1.0;

    /// The Chebyshev polynomial V on 0 to 1, that of 2x - 1, of degree `n`.
    shifted_chebyshev_polynomial_v ChebyshevV |x| 2.0 * x - 1.0;

    /// The Chebyshev polynomial W on 0 to 1, that of 2x - 1, of degree `n`.
    shifted_chebyshev_polynomial_w ChebyshevW |x| 2.0 * x - 1.0;

    /// The physicists' Hermite polynomial of degree `n`.
    hermite_polynomial_h HermiteH |x| x;

    /// The probabilists' Hermite polynomial of degree `n`.
    hermite_polynomial_he HermiteHe |x| x;

    /// The Laguerre polynomial of degree `n`.
    laguerre_polynomial_l Laguerre |x| x;

    /// The Legendre polynomial of degree `n`.
    legendre_polynomial_p Legendre |x| x;
}
