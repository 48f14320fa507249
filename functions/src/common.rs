//! Checks and steps that several groups of functions share.

use crate::declaration::check_tensor;
use gt_ops::build::numbers::{checked, fits};
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::{DType, Op, OpError, Scalar, Shape};

/// A tensor of given sizes, filled with one number.
pub(crate) fn filled<'g>(g: &'g Builder<'g>, sizes: &[i64], value: impl Into<Scalar>, dtype: DType) -> Expr<'g> {
    let value = value.into();
    g.run(|g| {
        let shape = gt_ops::build::shape_of(sizes)?;
        gt_ops::build::full(g, shape, value, dtype)
    })
}

/// A number that is read as a tensor of given shape, which has no memory of its own if it is large.
pub(crate) fn repeated<'g>(g: &'g Builder<'g>, shape: Shape, value: impl Into<Scalar>, dtype: DType) -> Expr<'g> {
    let value = value.into();
    g.run(|g| gt_ops::build::filled(g, value, shape, dtype))
}

/// Zeros of given sizes.
pub(crate) fn zeros<'g>(g: &'g Builder<'g>, sizes: &[i64], dtype: DType) -> Expr<'g> {
    filled(g, sizes, Scalar::Int(0), dtype)
}

/// Whether elements of a dtype may be out of the range of another.
fn may_exceed(from: DType, to: DType) -> bool {
    let ends = if from.is_inexact() {
        [-from.largest_float(), from.largest_float()].map(Scalar::Float)
    } else {
        [from.int_range().0, from.int_range().1].map(Scalar::integer)
    };
    let special = from.is_inexact() && to.is_int() || from.is_complex() && !to.is_complex() && to != DType::Bool;
    special || ends.iter().any(|end| !fits(*end, to))
}

/// The one element that fills others of a dtype, converted to it. Waits for the element where the dtype may lack it.
///
/// # Errors
/// A tensor with axes; an element out of the dtype's range.
pub(crate) fn single<'g>(value: Expr<'g>, dtype: DType, name: &str) -> Result<Expr<'g>> {
    let rank = value.rank()?;
    if rank > 0 {
        return Err(OpError::runtime(format!(
            "{name} only supports a 0-dimensional value tensor, but got tensor with {rank} dimension(s)."
        )));
    }
    if may_exceed(value.dtype()?, dtype) {
        checked(value.item()?, dtype)?;
    }
    Ok(value.to(dtype))
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
    Err(OpError::not_implemented(format!("{name} is not there for gt.{dtype}: use floating-point tensors")))
}

/// Checks that a function computes on a dtype, as PyTorch's kernel of this name does.
///
/// # Errors
/// It does not.
pub(crate) fn check_implemented(kernel: &str, input: Expr<'_>, on: impl FnOnce(DType) -> bool) -> Result<()> {
    let dtype = input.dtype()?;
    if on(dtype) {
        return Ok(());
    }
    Err(OpError::not_implemented(format!("\"{kernel}\" not implemented for '{}'", dtype.scalar_type_name())))
}

/// Checks that a function computes on a dtype, as PyTorch's kernel of this name does, which takes no bools.
///
/// # Errors
/// A tensor of bools.
pub(crate) fn check_no_bools(kernel: &str, input: Expr<'_>) -> Result<()> {
    check_implemented(kernel, input, |dtype| dtype != DType::Bool)
}

/// Checks that a tensor that requires a gradient is not converted to a dtype that has none.
///
/// # Errors
/// It is.
pub(crate) fn check_learns(input: Expr<'_>, dtype: Option<DType>) -> Result<()> {
    match dtype.filter(|dtype| !dtype.is_inexact() && input.requires_grad()) {
        Some(dtype) => Err(OpError::runtime(format!("Autograd not support dtype: {}", dtype.scalar_type_name()))),
        None => Ok(()),
    }
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

/// An operand in a floating-point dtype. A number keeps its value until it is rounded to that.
pub(crate) fn in_dtype(operand: Expr<'_>, dtype: DType) -> Expr<'_> {
    match operand.as_number() {
        Some(number) => operand.builder().full(&Shape::SCALAR, number.to_f64(), DType::F64).to(dtype),
        None => operand.to(dtype),
    }
}

/// The gradient of a chosen element: those that equal it share it. A NaN equals another.
fn among_equals<'r>(
    _: &'r Builder<'r>,
    values: &[Expr<'r>],
    grads: &[Option<Expr<'r>>],
) -> Result<Vec<Option<Expr<'r>>>> {
    let (x, chosen) = (values[0], values[1]);
    let Some(grad) = grads[0] else { return Ok(vec![None]) };
    let equal = x.eq(chosen) | (x.isnan() & chosen.isnan());
    let sizes = [x.sizes()?, chosen.sizes()?];
    let reduced: Vec<i64> =
        (0..sizes[0].len() as i64).filter(|i| sizes[1].get(*i as usize) != sizes[0].get(*i as usize)).collect();
    let count = if reduced.is_empty() { equal.to(DType::I64) } else { equal.sum(&reduced, !sizes[1].is_empty()) };
    Ok(vec![Some(equal.where_(grad / count, 0.0))])
}

/// `found`, an element chosen of all of `input` or, with the axes kept, along some of its axes, as a result whose
/// gradient is shared by the elements that equal it.
pub(crate) fn shared_by_equals<'g>(name: &str, input: Expr<'g>, found: Expr<'g>) -> Result<Expr<'g>> {
    let [found] = input.builder().with_gradient(name, &[input], [found], among_equals)?;
    Ok(found)
}

/// The largest (`Op::Amax`) or smallest element of all, or along axes. Where it is NaN, the elements that are NaN share
/// the gradient; `amax` and `amin` have none then.
pub(crate) fn extremum<'g>(name: &str, op: Op, input: Expr<'g>, dim: &[i64], keepdim: bool) -> Result<Expr<'g>> {
    let reduce = |x: Expr<'g>, keepdim: bool| if op == Op::Amax { x.amax(dim, keepdim) } else { x.amin(dim, keepdim) };
    if !input.requires_grad() {
        return Ok(reduce(input, keepdim));
    }
    let kept = keepdim || !dim.is_empty();
    let found = shared_by_equals(name, input, reduce(input.detach(), kept))?;
    Ok(if kept && !keepdim { found.squeeze(dim) } else { found })
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

/// A function of operands whose common dtype may be a half precision: it then computes in float32, and its result is
/// rounded once. Tensors of integers are rounded to the half precision before, in which PyTorch reads them: one beyond
/// its range is infinite.
///
/// # Errors
/// The function's.
pub(crate) fn in_float32<'g, const N: usize>(
    operands: [Expr<'g>; N],
    compute: impl FnOnce([Expr<'g>; N]) -> Result<Expr<'g>>,
) -> Result<Expr<'g>> {
    let dtype = operands[0].builder().common_dtype(&operands)?;
    if !dtype.is_half() {
        return compute(operands);
    }
    let read = |operand: Expr<'g>| if operand.as_number().is_some() { operand } else { operand.to(dtype).upcast() };
    Ok(compute(operands.map(read))?.to(dtype))
}

/// The elements in a dtype, if one is given.
pub(crate) fn converted(input: Expr<'_>, dtype: Option<DType>) -> Expr<'_> {
    dtype.map_or(input, |dtype| input.to(dtype))
}

/// The identity of a maximum or a minimum of a dtype: its lowest or highest value.
pub(crate) fn extreme_identity(dtype: DType, of_maximum: bool) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(!of_maximum),
        _ if dtype.is_float() => Scalar::Float(if of_maximum { f64::NEG_INFINITY } else { f64::INFINITY }),
        _ => Scalar::integer(if of_maximum { dtype.int_range().0 } else { dtype.int_range().1 }),
    }
}

/// The least and the largest element. Waits for them.
///
/// # Errors
/// A failed computation; no elements.
pub(crate) fn extremes(input: Expr<'_>) -> Result<[Scalar; 2]> {
    let found = input.builder().stack(&[input.amin(&[], false), input.amax(&[], false)], 0).elements()?;
    Ok([found[0], found[1]])
}
