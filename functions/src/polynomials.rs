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

fn chebyshev<'g>(x: Expr<'g>, _: f64, current: Expr<'g>, below: Expr<'g>) -> Expr<'g> {
    2.0 * x * current - below
}

fn shifted<'g>(x: Expr<'g>, _: f64, current: Expr<'g>, below: Expr<'g>) -> Expr<'g> {
    2.0 * (2.0 * x - 1.0) * current - below
}

functions! {
    /// The Chebyshev polynomial T of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn chebyshev_polynomial_t(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("chebyshev_polynomial_t", *input, *n, |x| x, chebyshev)
    }

    /// The Chebyshev polynomial U of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn chebyshev_polynomial_u(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("chebyshev_polynomial_u", *input, *n, |x| 2.0 * x, chebyshev)
    }

    /// The Chebyshev polynomial V of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn chebyshev_polynomial_v(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("chebyshev_polynomial_v", *input, *n, |x| 2.0 * x - 1.0, chebyshev)
    }

    /// The Chebyshev polynomial W of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn chebyshev_polynomial_w(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("chebyshev_polynomial_w", *input, *n, |x| 2.0 * x + 1.0, chebyshev)
    }

    /// The Chebyshev polynomial T on 0 to 1, that of 2x - 1, of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn shifted_chebyshev_polynomial_t(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("shifted_chebyshev_polynomial_t", *input, *n, |x| 2.0 * x - 1.0, shifted)
    }

    /// The Chebyshev polynomial U on 0 to 1, that of 2x - 1, of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn shifted_chebyshev_polynomial_u(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("shifted_chebyshev_polynomial_u", *input, *n, |x| 2.0 * (2.0 * x - 1.0), shifted)
    }

    /// The Chebyshev polynomial V on 0 to 1, that of 2x - 1, of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn shifted_chebyshev_polynomial_v(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("shifted_chebyshev_polynomial_v", *input, *n, |x| 2.0 * (2.0 * x - 1.0) - 1.0, shifted)
    }

    /// The Chebyshev polynomial W on 0 to 1, that of 2x - 1, of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn shifted_chebyshev_polynomial_w(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("shifted_chebyshev_polynomial_w", *input, *n, |x| 2.0 * (2.0 * x - 1.0) + 1.0, shifted)
    }

    /// The physicists' Hermite polynomial of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn hermite_polynomial_h(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("hermite_polynomial_h", *input, *n, |x| 2.0 * x,
            |x, k, current, below| 2.0 * (x * current - k * below))
    }

    /// The probabilists' Hermite polynomial of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn hermite_polynomial_he(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("hermite_polynomial_he", *input, *n, |x| x, |x, k, current, below| x * current - k * below)
    }

    /// The Laguerre polynomial of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn laguerre_polynomial_l(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("laguerre_polynomial_l", *input, *n, |x| 1.0 - x,
            |x, k, current, below| ((2.0 * k + 1.0 - x) * current - k * below) / (k + 1.0))
    }

    /// The Legendre polynomial of degree `n`.
    ///
    /// There is no gradient, as in PyTorch. Waits for the largest degree.
    [module("special").out()]
    fn legendre_polynomial_p(g, input: TensorOrNumber<'g>, n: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        recurrence("legendre_polynomial_p", *input, *n, |x| x,
            |x, k, current, below| ((2.0 * k + 1.0) * x * current - k * below) / (k + 1.0))
    }
}
