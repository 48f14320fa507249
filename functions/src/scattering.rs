//! Elements written, added or combined at the places that an index tensor names.

use crate::common::{extreme_identity, single, zeros};
use crate::declaration::{TensorOrNumber, functions};
use gt_ops::build::numbers::checked;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::method;
use gt_ops::{DType, Op, OpError, Scalar, Shape};

fn check_source(name: &str, input: Expr<'_>, src: Expr<'_>) -> Result<()> {
    if src.dtype()? != input.dtype()? {
        return Err(OpError::runtime(format!("{name}(): Expected self.dtype to be equal to src.dtype")));
    }
    Ok(())
}

/// An index as ops take it: an empty one may have any dtype.
fn as_index(index: Expr<'_>) -> Result<Expr<'_>> {
    Ok(if index.numel()? == 0 { index.to(DType::I64) } else { index })
}

/// The op of a `reduce` argument of `scatter`.
fn scatter_op(reduce: Option<&str>) -> Result<Op> {
    match reduce {
        None => Ok(Op::Scatter),
        Some("add") => Ok(Op::ScatterAdd),
        Some("multiply") => Ok(Op::ScatterProd),
        Some(_) => Err(OpError::runtime("reduce argument must be either add or multiply.")),
    }
}

/// A source of the index's shape, filled with one number.
fn full_source<'g>(input: Expr<'g>, index: Expr<'g>, value: Scalar) -> Result<Expr<'g>> {
    let dtype = input.dtype()?;
    Ok(input.builder().full(&index.shape()?, checked(value, dtype)?, dtype))
}

/// The axis, the vector of indices expanded to the shape of `source`, and `source`.
fn along_index<'g>(
    name: &str,
    input: Expr<'g>,
    dim: i64,
    index: Expr<'g>,
    source: Expr<'g>,
) -> Result<(i64, Expr<'g>, Expr<'g>)> {
    let axis = input.shape()?.axis(dim)?;
    if index.rank()? > 1 {
        return Err(OpError::index(format!(
            "{name}_(): Index is supposed to be a vector, but got dim: {}",
            index.rank()?
        )));
    }
    if !matches!(index.dtype()?, DType::I32 | DType::I64) {
        return Err(OpError::runtime(format!(
            "{name}_(): Expected dtype int32/int64 for index but got: {}",
            index.dtype()?
        )));
    }
    let (own, other) = (input.dtype()?, source.dtype()?);
    if own != other {
        return Err(OpError::runtime(format!(
            "{name}_(): self ({own}) and source ({other}) must have the same scalar type"
        )));
    }
    let (index, sizes) = (index.to(DType::I64), input.sizes()?);
    if sizes.is_empty() {
        return Ok((0, index.reshape(&[]), source.reshape(&[])));
    }
    let source = if source.rank()? == 0 { source.reshape(&vec![1; sizes.len()]) } else { source };
    let (given, count) = (source.sizes()?, index.numel()? as i64);
    if given.get(axis) != Some(&count) {
        return Err(OpError::runtime(format!(
            "{name}_(): Number of indices ({count}) should be equal to source.size(dim): ({}), for dim: {axis}",
            source.size(axis as i64)?
        )));
    }
    let slice = |sizes: &[i64]| [&sizes[..axis], &sizes[axis + 1..]].concat();
    let (own, other) = (slice(&given), slice(&sizes));
    if own != other {
        return Err(OpError::runtime(format!(
            "{name}_(): Source/destination tensor must have same slice shapes. Destination slice shape: {other:?} at \
             dimension {axis} and source slice shape: {own:?} at dimension {axis}."
        )));
    }
    let mut line = vec![1; sizes.len()];
    line[axis] = count;
    Ok((axis as i64, index.reshape(&line).expand(&given), source))
}

/// A copy with the slices at the indices of a vector set to a tensor without axes.
fn filled<'g>(input: Expr<'g>, dim: i64, index: Expr<'g>, value: Expr<'g>) -> Result<Expr<'g>> {
    let g = input.builder();
    let (axis, mut sizes) = (input.shape()?.axis(dim)?, input.sizes()?);
    let at = index.to(DType::I64);
    if !value.requires_grad() {
        let mut part = sizes;
        if let Some(size) = part.get_mut(axis) {
            *size = index.numel()? as i64;
        }
        let source = value.to(input.dtype()?).expand(&part);
        let (axis, at, source) = along_index("index_fill", input, axis as i64, at, source)?;
        return Ok(input.scatter(Op::IndexPut, axis, at, source));
    }
    // A mask, so that the gradient of `value` counts each place once, even if its index is repeated.
    let nowhere = zeros(g, &sizes, DType::Bool);
    if let Some(size) = sizes.get_mut(axis) {
        *size = index.numel()? as i64;
    }
    let on = g.full(&Shape::SCALAR, true, DType::Bool).expand(&sizes);
    let (axis, at, on) = along_index("index_fill", nowhere, axis as i64, at, on)?;
    Ok(nowhere.scatter(Op::IndexPut, axis, at, on).where_(value.to(input.dtype()?), input))
}

functions! {
    /// A copy with elements written along an axis: `output[index[i][j]][j] = src[i][j]` for `dim=0` of a matrix.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     index: A tensor of int64 or int32.
    ///     src: The source elements, or one number.
    ///     value: One number, another way to give `src`.
    ///     reduce: `"add"` or `"multiply"` combines with the present elements. Without it, the last of several writes
    ///         stays.
    ///
    /// Raises:
    ///     IndexError: An index is out of range; raised when the result is fetched.
    ///
    /// Example:
    ///     >>> gt.scatter(gt.zeros(2, 3), 1, gt.tensor([[0], [2]]), gt.tensor([[1.0], [2.0]]))
    ///     tensor([[1., 0., 0.],
    ///             [0., 0., 2.]])
    [method().in_place().out()]
    fn scatter(g, input: Expr<'g>, dim: i64, index: Expr<'g>, src: Expr<'g>; reduce: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let op = scatter_op(reduce)?;
        check_source("scatter", input, src)?;
        Ok(input.scatter(op, dim, as_index(index)?, src))
    }

    /// `scatter` of one number.
    [method().in_place().out().named("scatter")]
    fn scatter_value(g, input: Expr<'g>, dim: i64, index: Expr<'g>, value: Scalar; reduce: Option<&'g str> = None)
        -> Result<Expr<'g>> {
        let op = scatter_op(reduce)?;
        Ok(input.scatter(op, dim, as_index(index)?, full_source(input, index, value)?))
    }

    /// A copy of `input`, with elements of `src` added along an axis at the positions that `index` names.
    ///
    /// For a matrix, `output[index[i][j]][j] += src[i][j]` if `dim=0`, and `output[i][index[i][j]] += src[i][j]` if
    /// `dim=1`. An index may occur several times: all its elements are added. It is the adjoint of `gather`.
    ///
    /// Args:
    ///     input: The tensor to add to.
    ///     dim: The axis that the indices count along.
    ///     index: A tensor of int64 or int32 with as many axes as `input` and `src`. Along each axis it is at most
    ///         as long as `src`, and along each but `dim` at most as long as `input`.
    ///     src: The elements to add, of the dtype of `input`. Elements beyond the shape of `index` are not used.
    ///
    /// Returns:
    ///     A tensor of the shape of `input`.
    ///
    /// Raises:
    ///     RuntimeError: The shapes or dtypes do not fit.
    ///     IndexError: An index is out of range; raised where the result is fetched.
    ///
    /// Example:
    ///     >>> gt.scatter_add(gt.zeros(3), 0, gt.tensor([0, 0, 2]), gt.tensor([1.0, 2.0, 3.0]))
    ///     tensor([3., 0., 3.])
    [method().in_place().out()]
    fn scatter_add(g, input: Expr<'g>, dim: i64, index: Expr<'g>, src: Expr<'g>) -> Result<Expr<'g>> {
        check_source("scatter_add", input, src)?;
        Ok(input.scatter(Op::ScatterAdd, dim, as_index(index)?, src))
    }

    /// A copy with elements combined along an axis by a reduction.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     index: A tensor of int64 or int32.
    ///     src: The source elements.
    ///     reduce: `"sum"`, `"prod"`, `"mean"`, `"amax"` or `"amin"`.
    ///     include_self: Whether the present elements take part.
    ///
    /// Example:
    ///     >>> gt.scatter_reduce(gt.zeros(2), 0, gt.tensor([0, 0, 1]), gt.tensor([1.0, 5.0, 3.0]), "amax")
    ///     tensor([5., 3.])
    [method().in_place().out()]
    fn scatter_reduce(g, input: Expr<'g>, dim: i64, index: Expr<'g>, src: Expr<'g>, reduce: &'g str;
        include_self: bool = true) -> Result<Expr<'g>> {
        check_source("scatter", input, src)?;
        let dtype = input.dtype()?;
        let (op, start) = match reduce {
            "sum" | "mean" => (Op::ScatterAdd, Scalar::Int(0)),
            "prod" => (Op::ScatterProd, Scalar::Int(1)),
            "amax" => (Op::ScatterAmax, extreme_identity(dtype, true)),
            "amin" => (Op::ScatterAmin, extreme_identity(dtype, false)),
            _ => {
                return Err(OpError::runtime(format!(
                    "reduce argument must be either sum, prod, mean, amax or amin, got {reduce}."
                )));
            }
        };
        let index = as_index(index)?;
        let without = |input: Expr<'g>, start| -> Result<Expr<'g>> {
            let start = full_source(input, index, start)?;
            Ok(if include_self { input } else { input.scatter(Op::Scatter, dim, index, start) })
        };
        let result = without(input, start)?.scatter(op, dim, index, src);
        if reduce != "mean" {
            return Ok(result);
        }
        let ones = |like: Expr<'g>| -> Result<Expr<'g>> { Ok(g.full(&like.shape()?, 1i64, dtype)) };
        let counts = without(ones(input)?, Scalar::Int(0))?.scatter(Op::ScatterAdd, dim, index, ones(src)?);
        let counts = counts.clamp_min(1i64);
        Ok(if dtype.is_float() { result / counts } else { result.floor_divide(counts) })
    }

    /// A copy with slices added along an axis: `output[index[i]] += alpha * source[i]`.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     index: A vector of int64 or int32.
    ///     source: The slices, of the dtype of `input`.
    ///     alpha: The factor of `source`.
    ///
    /// Example:
    ///     >>> gt.index_add(gt.zeros(3, 2), 0, gt.tensor([0, 2, 2]), gt.ones(3, 2))
    ///     tensor([[1., 1.],
    ///             [0., 0.],
    ///             [2., 2.]])
    [method().in_place().out()]
    fn index_add(g, input: Expr<'g>, dim: i64, index: Expr<'g>, source: Expr<'g>; alpha: Scalar = Scalar::Int(1))
        -> Result<Expr<'g>> {
        let (axis, at, source) = along_index("index_add", input, dim, index, source)?;
        let dtype = input.dtype()?;
        let source = if alpha.to_f64() == 1.0 { source } else { (source * checked(alpha, dtype)?).to(dtype) };
        Ok(input.scatter(Op::ScatterAdd, axis, at, source))
    }

    /// A copy with slices replaced along an axis: `output[index[i]] = source[i]`.
    ///
    /// Example:
    ///     >>> gt.index_copy(gt.zeros(3), 0, gt.tensor([0, 2]), gt.tensor([1.0, 2.0]))
    ///     tensor([1., 0., 2.])
    [method().in_place().out()]
    fn index_copy(g, input: Expr<'g>, dim: i64, index: Expr<'g>, source: Expr<'g>) -> Result<Expr<'g>> {
        let (axis, at, source) = along_index("index_copy", input, dim, index, source)?;
        Ok(input.scatter(Op::Scatter, axis, at, source))
    }

    /// A copy with the slices at the indices of a vector set to one number.
    ///
    /// Example:
    ///     >>> gt.index_fill(gt.zeros(2, 3), 1, gt.tensor([0, 2]), -1)
    ///     tensor([[-1.,  0., -1.],
    ///             [-1.,  0., -1.]])
    [method().in_place_of_parts()]
    fn index_fill(g, input: Expr<'g>, dim: i64, index: Expr<'g>, value: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        match value.as_number() {
            Some(number) => {
                let dtype = input.dtype()?;
                filled(input, dim, index, g.full(&Shape::SCALAR, checked(number, dtype)?, dtype))
            }
            None => filled(input, dim, index, single(value.0, input.dtype()?, "index_fill_")?),
        }
    }

    /// A copy with slices combined along an axis by a reduction, at the indices of a vector.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis.
    ///     index: A vector of int64 or int32.
    ///     source: The slices, of the dtype of `input`.
    ///     reduce: `"prod"`, `"mean"`, `"amax"` or `"amin"`.
    ///     include_self: Whether the present slices take part.
    ///
    /// Example:
    ///     >>> gt.index_reduce(gt.ones(2), 0, gt.tensor([0, 0]), gt.tensor([2.0, 3.0]), "prod")
    ///     tensor([6., 1.])
    [method().in_place().out()]
    fn index_reduce(g, input: Expr<'g>, dim: i64, index: Expr<'g>, source: Expr<'g>, reduce: &'g str;
        include_self: bool = true) -> Result<Expr<'g>> {
        if !["prod", "mean", "amax", "amin"].contains(&reduce) {
            return Err(OpError::runtime(format!(
                "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}."
            )));
        }
        let (axis, at, source) = along_index("index_reduce", input, dim, index, source)?;
        scatter_reduce(g, input, axis, at, source, reduce, include_self)
    }
}
