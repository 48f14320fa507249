//! Advanced indexing: `v[i]`, `v[i, j]` with index tensors for the leading axes.
//!
//! The indexed axes are flattened to one, and the indices to one vector of positions along it. Reading is then a gather
//! and writing a scatter, which have gradients and whose kernels count negative indices from the end.

use crate::build::numbers::checked;
use crate::build::{along, elementwise, full, where_};
use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::graph::{Arg, Graph, Val};
use crate::instruction::{Attrs, Scalar};
use crate::op::Op;
use crate::shape::Shape;

type G<'a> = &'a mut dyn Graph;

/// Operands of the gather or scatter that implements an indexing.
struct Indexed {
    /// The tensor with the indexed axes flattened to one.
    flat: Val,
    /// Positions along the flattened axis, expanded over the other axes.
    index: Val,
    /// The shape of the indexing's result.
    shape: Shape,
}

/// Computes these operands for index tensors of one shape on the leading axes of `v`. No tensor is empty.
fn indexed(g: G<'_>, v: Val, indices: &[Val]) -> Result<Indexed> {
    let from = g.meta(v).shape;
    let (lead, rest) = from.dims().split_at(indices.len());
    let shape = g.meta(indices[0]).shape;
    let mut places = None;
    for (axis, (index, size)) in indices.iter().zip(lead).enumerate() {
        let place = if indices.len() > 1 { looked_up(g, *index, axis, *size)? } else { *index };
        places = Some(match places {
            None => place,
            Some(before) => {
                let rows = elementwise(g, Op::Mul, &[Arg::Val(before), Arg::Scalar(Scalar::Int(*size as i64))])?;
                elementwise(g, Op::Add, &[rows.into(), place.into()])?
            }
        });
    }
    let places = places.ok_or_else(|| OpError::type_("an index is missing"))?;
    let count = shape.numel();
    let with_rest = |first: usize, rest: &[usize]| Shape::new(&[&[first], rest].concat());
    let flat = if indices.len() == 1 { v } else { reshaped(g, v, with_rest(lead.iter().product(), rest)?)? };
    let narrow = reshaped(g, places, with_rest(count, &vec![1; rest.len()])?)?;
    let wide = with_rest(count, rest)?;
    let index = expanded(g, narrow, wide)?;
    Ok(Indexed { flat, index, shape: Shape::new(&[shape.dims(), rest].concat())? })
}

/// `index` with `size` added to the negative ones, for daemons whose gathers and scatters do not count these from the
/// end. Indices out of range stay as they are, so that the op that checks them reports the user's value.
///
/// # Errors
/// The errors of elementwise ops.
pub fn wrap_negative(g: G<'_>, index: Val, size: usize) -> Result<Val> {
    let size = size as i64;
    let number = |x: i64| Arg::Scalar(Scalar::Int(x));
    let behind = elementwise(g, Op::Lt, &[index.into(), number(0)])?;
    let inside = elementwise(g, Op::Ge, &[index.into(), number(-size)])?;
    let from_end = elementwise(g, Op::BitwiseAnd, &[behind.into(), inside.into()])?;
    let turned = elementwise(g, Op::Add, &[index.into(), number(size)])?;
    where_(g, from_end, turned.into(), index.into())
}

/// `index` with `size` added to the negative ones: looked up in the numbers below `size` along `axis`, so that an index
/// out of range is reported with this axis and size.
fn looked_up(g: G<'_>, index: Val, axis: usize, size: usize) -> Result<Val> {
    let shape = g.meta(index).shape;
    let along_axis = |length: usize| Shape::new(&[&vec![1; axis][..], &[length]].concat());
    let create = Attrs::Create { shape: Shape::new(&[size])?, dtype: DType::I64 };
    let table = g.emit(Op::Arange, &[Arg::Scalar(Scalar::Int(0)), Arg::Scalar(Scalar::Int(1))], create)?;
    let table = reshaped(g, table, along_axis(size)?)?;
    let line = reshaped(g, index, along_axis(shape.numel())?)?;
    let found = along(g, Op::Index, axis as i64, &[table, line])?;
    reshaped(g, found, shape)
}

fn reshaped(g: G<'_>, v: Val, shape: Shape) -> Result<Val> {
    if g.meta(v).shape == shape { Ok(v) } else { g.emit(Op::Reshape, &[v.into()], Attrs::Shape(shape)) }
}

fn expanded(g: G<'_>, v: Val, shape: Shape) -> Result<Val> {
    if g.meta(v).shape == shape { Ok(v) } else { g.emit(Op::Expand, &[v.into()], Attrs::Shape(shape)) }
}

/// `v[i, j, …]` with index tensors of dtype int64 and one shape for the leading axes of `v`. No tensor is empty.
///
/// # Errors
/// The errors of a gather.
pub fn index(g: G<'_>, v: Val, indices: &[Val]) -> Result<Val> {
    let indexed = indexed(g, v, indices)?;
    let found = along(g, Op::Index, 0, &[indexed.flat, indexed.index])?;
    reshaped(g, found, indexed.shape)
}

/// A copy of `v` after `v[i, j, …] = source`, with indices as in [`index`]. The source is a number, or a tensor of the
/// dtype of `v` that broadcasts to the selection.
///
/// # Errors
/// The errors of a scatter; a source that does not broadcast; a number that the dtype does not have.
pub fn index_put(g: G<'_>, v: Val, indices: &[Val], source: Arg) -> Result<Val> {
    let meta = g.meta(v);
    let indexed = indexed(g, v, indices)?;
    let wide = g.meta(indexed.index).shape;
    let source = match source {
        Arg::Scalar(number) => full(g, wide, checked(number, meta.dtype)?, meta.dtype)?,
        Arg::Val(source) => {
            let from = g.meta(source).shape;
            if from.broadcast(&indexed.shape).ok() != Some(indexed.shape) {
                return Err(OpError::runtime(format!(
                    "shape mismatch: value tensor of shape {from} cannot be broadcast to indexing result of shape {}",
                    indexed.shape
                )));
            }
            let expanded = expanded(g, source, indexed.shape)?;
            reshaped(g, expanded, wide)?
        }
    };
    let flat = along(g, Op::IndexPut, 0, &[indexed.flat, indexed.index, source])?;
    reshaped(g, flat, meta.shape)
}
