//! Orthogonal polynomials of `gt.special`, by their three-term recurrences.

use crate::common::full_like;
use crate::declaration::{TensorOrNumber, functions};
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::module;
use gt_ops::{DType, OpError};

/// The polynomials whose degree 0 is 1, whose degree 1 is `first(x)`, and whose degree `k + 1` is `next` of x, k and
/// the polynomials of degrees k and k - 1.
fn recurrence<'g>(
    name: &str,
    input: Expr<'g>,
    n: Expr<'g>,
    first: impl Fn(Expr<'g>) -> Expr<'g>,
    next: impl Fn(Expr<'g>, f64, Expr<'g>, Expr<'g>) -> Expr<'g>,
) -> Result<Expr<'g>> {
    if input.as_number().is_some() && n.as_number().is_some() {
        return Err(OpError::type_(format!("special_{name}(): one of the arguments must be a Tensor")));
    }
    let x = input.to_tensor().to_float().detach();
    let degree = n.to_tensor().detach().to(DType::I64);
    let last = match n.as_number() {
        Some(number) => number.to_i64(),
        None if degree.numel()? == 0 => 0,
        None => degree.amax(&[], false).item()?.to_i64(),
    };
    let (mut below, mut current) = (full_like(x, 1.0)?, first(x));
    // Negative degrees give 0.
    let mut result = degree.eq(0i64).where_(below, full_like(x, 0.0)?);
    for k in 1..=last {
        result = degree.eq(k).where_(current, result);
        (below, current) = (current, next(x, k as f64, current, below));
    }
    Ok(result)
}

/// Declares polynomials, each by its degree 1 and its recurrence.
macro_rules! polynomials {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident |$x:ident| $first:expr, |$k:tt, $current:ident, $below:ident| $next:expr;
    )*) => {
        functions! {$(
            $(#[doc = $doc])+
            ///
            /// There is no gradient, as in PyTorch. Waits for the largest degree.
            [module("special").out()]
            fn $name(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
                recurrence(stringify!($name), *input, *n, |$x| $first, |$x, $k, $current, $below| $next)
            }
        )*}
    };
}

polynomials! {
    /// The Chebyshev polynomial T of degree `n`.
    chebyshev_polynomial_t |x| x, |_, current, below| 2.0 * x * current - below;

    /// The Chebyshev polynomial U of degree `n`.
    chebyshev_polynomial_u |x| 2.0 * x, |_, current, below| 2.0 * x * current - below;

    /// The Chebyshev polynomial V of degree `n`.
    chebyshev_polynomial_v |x| 2.0 * x - 1.0, |_, current, below| 2.0 * x * current - below;

    /// The Chebyshev polynomial W of degree `n`.
    chebyshev_polynomial_w |x| 2.0 * x + 1.0, |_, current, below| 2.0 * x * current - below;

    /// The Chebyshev polynomial T on 0 to 1, that of 2x - 1, of degree `n`.
    shifted_chebyshev_polynomial_t |x| 2.0 * x - 1.0, |_, current, below| 2.0 * (2.0 * x - 1.0) * current - below;

    /// The Chebyshev polynomial U on 0 to 1, that of 2x - 1, of degree `n`.
    shifted_chebyshev_polynomial_u |x| 2.0 * (2.0 * x - 1.0),
        |_, current, below| 2.0 * (2.0 * x - 1.0) * current - below;

    /// The Chebyshev polynomial V on 0 to 1, that of 2x - 1, of degree `n`.
    shifted_chebyshev_polynomial_v |x| 2.0 * (2.0 * x - 1.0) - 1.0,
        |_, current, below| 2.0 * (2.0 * x - 1.0) * current - below;

    /// The Chebyshev polynomial W on 0 to 1, that of 2x - 1, of degree `n`.
    shifted_chebyshev_polynomial_w |x| 2.0 * (2.0 * x - 1.0) + 1.0,
        |_, current, below| 2.0 * (2.0 * x - 1.0) * current - below;

    /// The physicists' Hermite polynomial of degree `n`.
    hermite_polynomial_h |x| 2.0 * x, |k, current, below| 2.0 * (x * current - k * below);

    /// The probabilists' Hermite polynomial of degree `n`.
    hermite_polynomial_he |x| x, |k, current, below| x * current - k * below;

    /// The Laguerre polynomial of degree `n`.
    laguerre_polynomial_l |x| 1.0 - x, |k, current, below| ((2.0 * k + 1.0 - x) * current - k * below) / (k + 1.0);

    /// The Legendre polynomial of degree `n`.
    legendre_polynomial_p |x| x, |k, current, below| ((2.0 * k + 1.0) * x * current - k * below) / (k + 1.0);
}
