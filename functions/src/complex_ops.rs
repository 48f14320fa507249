//! Functions of complex numbers, for real ones: there are no complex dtypes.

use crate::declaration::functions;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{function, method};
use gt_ops::{DType, OpError};
use std::f64::consts::PI;

functions! {
    /// The argument of each element as a complex number: 0 for positive and pi for negative numbers, NaN for NaN.
    ///
    /// Example:
    ///     >>> gt.angle(gt.tensor([-1.0, 0.0, 2.0]))
    ///     tensor([3.1416, 0.0000, 0.0000])
    [method().out()]
    fn angle(g, input: Expr<'g>) -> Expr<'g> {
        let x = input.to_float();
        x.isnan().where_(x, x.lt(0.0).where_(PI, x.sign() * 0.0))
    }

    /// The real part: the tensor itself, since there are no complex dtypes.
    [function()]
    fn real(g, input: Expr<'g>) -> Expr<'g> {
        input
    }

    /// The imaginary part, which real tensors do not have.
    ///
    /// Raises:
    ///     RuntimeError: Always: there are no complex dtypes.
    [function()]
    fn imag(g, input: Expr<'g>) -> Result<Expr<'g>> {
        Err(OpError::runtime("imag is not implemented for tensors with non-complex dtypes."))
    }

    /// The complex conjugate: the tensor itself, since there are no complex dtypes.
    [method()]
    fn conj(g, input: Expr<'g>) -> Expr<'g> {
        input
    }

    /// The complex conjugate: the tensor itself, since there are no complex dtypes.
    [method().in_place_function().out()]
    fn conj_physical(g, input: Expr<'g>) -> Expr<'g> {
        input
    }

    /// The tensor with its lazy conjugation done: itself, since there are no complex dtypes.
    [method()]
    fn resolve_conj(g, input: Expr<'g>) -> Expr<'g> {
        input
    }

    /// The tensor with its lazy negation done: itself, since negation is never lazy.
    [method()]
    fn resolve_neg(g, input: Expr<'g>) -> Expr<'g> {
        input
    }

    /// The tensor itself, `+input`; an error for bools.
    [method()]
    fn positive(g, input: Expr<'g>) -> Result<Expr<'g>> {
        if input.dtype()? == DType::Bool {
            return Err(OpError::not_implemented("The `+` operator, on a bool tensor is not supported."));
        }
        Ok(input)
    }
}
