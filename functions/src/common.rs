//! Checks and steps that several groups of functions share.

use crate::declaration::check_tensor;
use gt_ops::error::{ErrorKind, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::{DType, OpError, Scalar, Shape};

/// Zeros of given sizes.
pub(crate) fn zeros<'g>(g: &'g Builder<'g>, sizes: &[i64], dtype: DType) -> Expr<'g> {
    g.run(|g| {
        let shape = gt_ops::build::shape_of(sizes)?;
        gt_ops::build::full(g, shape, Scalar::Int(0), dtype)
    })
}

/// The axes, counted from the first.
///
/// # Errors
/// An axis out of range.
pub(crate) fn axes_of(input: Expr<'_>, dims: &[i64]) -> Result<Vec<usize>> {
    let shape = input.shape()?;
    dims.iter().map(|dim| shape.axis(*dim)).collect()
}

/// Checks that the dtype is a floating-point one.
///
/// # Errors
/// It is not.
pub(crate) fn check_floating(name: &str, input: Expr<'_>) -> Result<()> {
    let dtype = input.dtype()?;
    if dtype.is_float() {
        return Ok(());
    }
    let text = format!("{name} is not there for gt.{dtype}: use floating-point tensors");
    Err(OpError::new(ErrorKind::NotImplemented, text))
}

/// Checks the number of axes of an operand.
///
/// # Errors
/// Another number of axes.
pub(crate) fn check_rank(name: &str, operand: &str, input: Expr<'_>, rank: usize) -> Result<()> {
    let sizes = input.sizes()?;
    if sizes.len() == rank {
        return Ok(());
    }
    Err(OpError::runtime(format!(
        "{name}: expected {operand} to be {rank}D, but got {}D, of size {sizes:?}",
        sizes.len()
    )))
}

/// Checks that one of two operands is a tensor; the error is that of PyTorch about the first.
///
/// # Errors
/// Both are numbers.
pub(crate) fn check_one_tensor(name: &str, input: Expr<'_>, other: Expr<'_>) -> Result<()> {
    if other.as_number().is_some() { check_tensor(name, input) } else { Ok(()) }
}

/// An operand times a number. Two numbers give a number.
pub(crate) fn times<'g>(operand: Expr<'g>, factor: Scalar) -> Expr<'g> {
    match (operand.as_number(), factor) {
        (Some(Scalar::Float(_)), _) | (Some(_), Scalar::Float(_)) => {
            operand.builder().number(operand.as_number().map_or(0.0, Scalar::to_f64) * factor.to_f64())
        }
        (Some(number), _) => operand.builder().number(number.to_i64().wrapping_mul(factor.to_i64())),
        (None, _) => operand * factor,
    }
}

/// The tensors, broadcast to their common shape.
///
/// # Errors
/// Shapes that do not broadcast.
pub(crate) fn broadcast<'g>(tensors: &[Expr<'g>]) -> Result<Vec<Expr<'g>>> {
    let mut shape = Shape::SCALAR;
    for tensor in tensors {
        shape = shape.broadcast(&tensor.shape()?)?;
    }
    Ok(tensors.iter().map(|tensor| tensor.expand_to(&shape)).collect())
}

/// A tensor of a number, of the shape and dtype of another.
///
/// # Errors
/// The first error of the expressions so far.
pub(crate) fn full_like<'g>(like: Expr<'g>, value: impl Into<Scalar>) -> Result<Expr<'g>> {
    let meta = like.meta()?;
    Ok(like.builder().full(&meta.shape, value, meta.dtype))
}

/// Sizes that shape a vector to broadcast along one axis of a tensor of `rank` axes.
pub(crate) fn along_axis(rank: usize, axis: usize) -> Vec<i64> {
    (0..rank).map(|i| if i == axis { -1 } else { 1 }).collect()
}

/// The largest finite number of a floating-point dtype.
pub(crate) fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 255.0 * 2f64.powi(120),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    }
}

/// The indices of the true elements of a mask, one row each. Waits for their number.
///
/// # Errors
/// A failed computation.
pub(crate) fn positions<'g>(g: &'g Builder<'g>, mask: Expr<'g>) -> Result<Expr<'g>> {
    let count = mask.to(DType::I64).sum(&[], false).item()?;
    let _ = g;
    Ok(mask.nonzero(count.to_i64() as usize))
}
