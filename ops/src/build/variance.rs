//! The variance and the standard deviation along axes, with PyTorch's gradients.
//!
//! The gradient is the closed formula that PyTorch documents in its derivatives, not that of the composition: where the
//! gradient of the result is infinite, the composition's would pass through the mean as inf - inf.

use super::{G, axes_mask, reinterpret, reshape_to};
use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::graph::{Graph, Val};
use crate::instruction::Attrs;
use crate::op::Op;
use crate::shape::{Meta, Shape};

/// The elements that a variance is taken over, and its divisor.
#[derive(Clone, Copy)]
struct Spread {
    /// The reduced axes.
    mask: u8,
    /// Whether the axes were named: without degrees of freedom, the gradient differs.
    named: bool,
    correction: f64,
    keepdim: bool,
}

impl Spread {
    fn new(shape: &Shape, axes: Option<&[i64]>, correction: f64, keepdim: bool) -> Result<Spread> {
        let named = axes.is_some_and(|axes| !axes.is_empty());
        Ok(Spread { mask: axes_mask(shape.rank(), axes)?, named, correction, keepdim })
    }

    /// The number of elements of each variance, minus the correction.
    fn freedom(&self, shape: &Shape) -> f64 {
        self.count(shape) as f64 - self.correction
    }

    /// The number of elements of each variance.
    fn count(&self, shape: &Shape) -> usize {
        shape.dims().iter().enumerate().filter(|(axis, _)| self.mask >> axis & 1 == 1).map(|(_, size)| size).product()
    }
}

/// The variance along axes, dividing by `n - correction`.
///
/// # Errors
/// As [`super::reduce`]; integers.
pub fn var(g: G<'_>, v: Val, axes: Option<&[i64]>, correction: f64, keepdim: bool) -> Result<Val> {
    let Meta { shape, dtype } = g.meta(v);
    if !dtype.is_inexact() {
        return Err(OpError::not_implemented("std and var only support floating point and complex dtypes"));
    }
    let spread = Spread::new(&shape, axes, correction, keepdim)?;
    if dtype.is_complex() {
        // The sum of the variances of the real and the imaginary parts.
        let parts = reinterpret(g, v, dtype.storage())?;
        let of_parts = var_over(g, parts, spread)?;
        let last = g.meta(of_parts).shape.rank() - 1;
        return g.emit(Op::Sum, &[of_parts.into()], Attrs::Axes { mask: 1 << last, keepdim: false });
    }
    var_over(g, v, spread)
}

/// The standard deviation along axes: the square root of [`var`]. Where it is 0, the gradient is 0, as in PyTorch.
///
/// # Errors
/// As [`var`].
pub fn std(g: G<'_>, v: Val, axes: Option<&[i64]>, correction: f64, keepdim: bool) -> Result<Val> {
    let Meta { shape, dtype } = g.meta(v);
    if !dtype.is_inexact() || dtype.is_complex() {
        let var = var(g, v, axes, correction, keepdim)?;
        return root_of_var(g, var);
    }
    let spread = Spread::new(&shape, axes, correction, keepdim)?;
    let constant = g.detach(v)?;
    let (var, scale) = scaled_var(g, constant, spread)?;
    let mut deviation = g.emit(Op::Sqrt, &[var.into()], Attrs::None)?;
    if let Some(scale) = scale {
        deviation = g.emit(Op::Mul, &[deviation.into(), scale.into()], Attrs::None)?;
    }
    if !g.requires_grad(v) {
        return Ok(deviation);
    }
    let gradient = move |g: &mut dyn Graph, vals: &[Val], grads: &[Option<Val>]| {
        let (Some(grad), deviation) = (grads[0], vals[1]) else { return Ok(vec![None]) };
        let twice = g.emit(Op::Mul, &[deviation.into(), 2.0.into()], Attrs::None)?;
        let grad = g.emit(Op::Div, &[grad.into(), twice.into()], Attrs::None)?;
        let flat = g.emit(Op::Eq, &[deviation.into(), 0.0.into()], Attrs::None)?;
        let grad = g.emit(Op::Where, &[flat.into(), 0.0.into(), grad.into()], Attrs::DType(dtype))?;
        Ok(vec![Some(gradient_of_var(g, vals[0], grad, spread)?)])
    };
    Ok(g.record_function("StdBackward0", &[v], &[deviation], Box::new(gradient))?[0])
}

/// The variance of floating-point elements.
fn var_over(g: G<'_>, v: Val, spread: Spread) -> Result<Val> {
    let constant = g.detach(v)?;
    let (mut var, scale) = scaled_var(g, constant, spread)?;
    if let Some(scale) = scale {
        // The square of the scale may be beyond float32 where the variance is not.
        let scaled = g.emit(Op::Mul, &[var.into(), scale.into()], Attrs::None)?;
        var = g.emit(Op::Mul, &[scaled.into(), scale.into()], Attrs::None)?;
    }
    if !g.requires_grad(v) {
        return Ok(var);
    }
    let gradient = move |g: &mut dyn Graph, vals: &[Val], grads: &[Option<Val>]| {
        let Some(grad) = grads[0] else { return Ok(vec![None]) };
        Ok(vec![Some(gradient_of_var(g, vals[0], grad, spread)?)])
    };
    Ok(g.record_function("VarBackward0", &[v], &[var], Box::new(gradient))?[0])
}

/// The gradient of the elements `v`, where that of their variance is `grad`: 2 / (n - correction) grad (v - mean).
///
/// Where a whole tensor has no degrees of freedom, it is infinite, and NaN at the mean.
fn gradient_of_var(g: G<'_>, v: Val, grad: Val, spread: Spread) -> Result<Val> {
    let Meta { shape, dtype } = g.meta(v);
    let mean = g.emit(Op::Mean, &[v.into()], Attrs::Axes { mask: spread.mask, keepdim: true })?;
    let kept = g.meta(mean).shape;
    let grad = reshape_to(g, grad, kept)?;
    let freedom = spread.freedom(&shape);
    if freedom <= 0.0 && !spread.named {
        let at_mean = g.emit(Op::Eq, &[v.into(), mean.into()], Attrs::None)?;
        let slope = [at_mean.into(), f64::NAN.into(), f64::INFINITY.into()];
        let slope = g.emit(Op::Where, &slope, Attrs::DType(dtype))?;
        return g.emit(Op::Mul, &[grad.into(), slope.into()], Attrs::None);
    }
    let grad = g.emit(Op::Mul, &[grad.into(), (2.0 / freedom).into()], Attrs::None)?;
    let deviations = g.emit(Op::Sub, &[v.into(), mean.into()], Attrs::None)?;
    g.emit(Op::Mul, &[grad.into(), deviations.into()], Attrs::None)
}

/// The variance of the elements divided by a scale for each, if there is one, and that.
fn scaled_var(g: G<'_>, v: Val, spread: Spread) -> Result<(Val, Option<Val>)> {
    let meta = g.meta(v);
    // In float32, whose squares PyTorch adds up in float64, and where a variance is defined.
    if meta.dtype != DType::F32 || meta.shape.numel() == 0 || spread.freedom(&meta.shape) <= 0.0 {
        return Ok((unscaled_var(g, v, spread)?, None));
    }
    let (unit, scale) = unit_deviations(g, v, spread.mask)?;
    let var = unscaled_var(g, unit, spread)?;
    let kept = g.meta(var).shape;
    Ok((var, Some(reshape_to(g, scale, kept)?)))
}

/// The float32 deviations from the mean along the axes of `mask`, divided by the largest of them, and that; where it is
/// 0 or not finite, it is 1 instead. Their squares are in float32's range where those of the deviations may not be.
fn unit_deviations(g: G<'_>, v: Val, mask: u8) -> Result<(Val, Val)> {
    let kept = Attrs::Axes { mask, keepdim: true };
    let mean = g.emit(Op::Mean, &[v.into()], kept.clone())?;
    let deviations = g.emit(Op::Sub, &[v.into(), mean.into()], Attrs::None)?;
    let sizes = g.emit(Op::Abs, &[deviations.into()], Attrs::None)?;
    let largest = g.emit(Op::Amax, &[sizes.into()], kept)?;
    let finite = g.emit(Op::Isfinite, &[largest.into()], Attrs::None)?;
    let positive = g.emit(Op::Gt, &[largest.into(), 0.0.into()], Attrs::None)?;
    let usable = g.emit(Op::LogicalAnd, &[finite.into(), positive.into()], Attrs::None)?;
    let scale = g.emit(Op::Where, &[usable.into(), largest.into(), 1.0.into()], Attrs::DType(DType::F32))?;
    let unit = g.emit(Op::Div, &[deviations.into(), scale.into()], Attrs::None)?;
    Ok((unit, scale))
}

/// The variance by the corrected two-pass algorithm (Chan, Golub and LeVeque 1983): the mean is rounded, so the
/// deviations from it have a mean of their own.
fn unscaled_var(g: G<'_>, v: Val, spread: Spread) -> Result<Val> {
    let Spread { mask, keepdim, .. } = spread;
    let meta = g.meta(v);
    let mean = g.emit(Op::Mean, &[v.into()], Attrs::Axes { mask, keepdim: true })?;
    let deviations = g.emit(Op::Sub, &[v.into(), mean.into()], Attrs::None)?;
    let squares = g.emit(Op::Mul, &[deviations.into(), deviations.into()], Attrs::None)?;
    let total = g.emit(Op::Sum, &[squares.into()], Attrs::Axes { mask, keepdim })?;
    let rest = g.emit(Op::Mean, &[deviations.into()], Attrs::Axes { mask, keepdim })?;
    let lost = g.emit(Op::Mul, &[rest.into(), rest.into()], Attrs::None)?;
    let lost = g.emit(Op::Mul, &[lost.into(), (spread.count(&meta.shape) as f64).into()], Attrs::None)?;
    // Sums that overflow stay infinite.
    let finite = g.emit(Op::Isfinite, &[lost.into()], Attrs::None)?;
    let lost = g.emit(Op::Where, &[finite.into(), lost.into(), 0.0.into()], Attrs::DType(meta.dtype))?;
    // Rounding does not make a variance negative.
    let lost = g.emit(Op::Minimum, &[lost.into(), total.into()], Attrs::None)?;
    let total = g.emit(Op::Sub, &[total.into(), lost.into()], Attrs::None)?;
    g.emit(Op::Div, &[total.into(), spread.freedom(&meta.shape).max(0.0).into()], Attrs::None)
}

/// The square root of a variance, whose gradient is 0 where it is 0.
fn root_of_var(g: G<'_>, var: Val) -> Result<Val> {
    let dtype = g.meta(var).dtype;
    // The derivative of the square root is infinite at 0: there, the root of 1 is computed and discarded.
    let flat = g.emit(Op::Eq, &[var.into(), 0.0.into()], Attrs::None)?;
    let safe = g.emit(Op::Where, &[flat.into(), 1.0.into(), var.into()], Attrs::DType(dtype))?;
    let root = g.emit(Op::Sqrt, &[safe.into()], Attrs::None)?;
    g.emit(Op::Where, &[flat.into(), 0.0.into(), root.into()], Attrs::DType(dtype))
}
