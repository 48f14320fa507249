//! The shape and dtype rule of each class of op.
//!
//! The client calls [`infer`] so that a wrong shape raises at the user's line. The daemon, which trusts no client,
//! calls it again on its own copy of the instruction; a worker calls it to allocate the result.

pub mod operand;
mod row_wise;
mod window;

use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::infer::operand::{accept, tensor, wrong_attrs};
use crate::instruction::{Attrs, INPUTS_MAX, Scalar, SliceSpec};
use crate::op::Op;
use crate::row::{Class, Promotion, ResultDType, Row};
use crate::shape::{Meta, RANK_MAX, Shape};

pub use operand::InputMeta;

/// Maximum number of random numbers in one instruction; the elements of a shard are at positions below it, too.
const RANDOM_NUMBERS_MAX: u64 = 1 << 60;

/// The shape and dtype of `op(inputs; attrs)`.
///
/// # Errors
/// Operands or attributes that the op's class does not allow. The message is PyTorch's where PyTorch has one.
#[inline]
pub fn infer(op: Op, inputs: &[InputMeta], attrs: &Attrs) -> Result<Meta> {
    let row = op.row();
    // The most common instruction: elementwise on equal shapes.
    if let (Class::Elementwise, [InputMeta::Tensor(a), InputMeta::Tensor(b)], Attrs::None) = (row.class, inputs, attrs)
        && a == b
        && row.operands == 2
        && row.accepts.contains(a.dtype)
    {
        return Ok(Meta { shape: a.shape, dtype: result_dtype(row, a.dtype) });
    }
    infer_slow(row, inputs, attrs)
}

/// Checks that `op` takes operands of `dtype`, before they are promoted.
///
/// # Errors
/// PyTorch's.
pub fn check_accepts(op: Op, dtype: DType) -> Result<()> {
    accept(op.row(), dtype)
}

fn result_dtype(row: &Row, dtype: DType) -> DType {
    match row.result {
        ResultDType::Bool => DType::Bool,
        ResultDType::Index => DType::I64,
        ResultDType::Float32 => DType::F32,
        ResultDType::Same | ResultDType::Attr => dtype,
    }
}

fn infer_slow(row: &Row, inputs: &[InputMeta], attrs: &Attrs) -> Result<Meta> {
    let name = row.name;
    let most = if row.op == Op::Cat { INPUTS_MAX } else { (row.operands + row.optional) as usize };
    if inputs.len() < row.operands as usize || inputs.len() > most {
        return Err(OpError::type_(format!(
            "{name}: takes {} operands, but {} were given",
            row.operands,
            inputs.len()
        )));
    }
    match (row.class, attrs) {
        (Class::Elementwise, Attrs::None) => {
            let shape = broadcast(inputs)?;
            Ok(Meta::new(shape, result_dtype(row, common_dtype(row, inputs)?)))
        }
        (Class::Select, Attrs::DType(dtype)) => {
            let [InputMeta::Tensor(condition), choices @ ..] = inputs else {
                return Err(OpError::type_(format!("{name}: the condition must be a tensor")));
            };
            if condition.dtype != DType::Bool {
                return Err(OpError::runtime(format!(
                    "{name} expected condition to be a boolean tensor, but got a tensor with dtype {}",
                    condition.dtype.scalar_type_name()
                )));
            }
            if choices.iter().filter_map(InputMeta::tensor).any(|m| m.dtype != *dtype) {
                return Err(OpError::runtime(format!("{name}: expected choices of dtype {dtype}")));
            }
            Ok(Meta::new(broadcast(inputs)?, *dtype))
        }
        (Class::Cast, Attrs::DType(dtype)) => Ok(Meta::new(tensor(row, inputs, 0)?.shape, *dtype)),
        (Class::Reduction | Class::ArgReduction, Attrs::Axes { mask, keepdim }) => {
            let meta = tensor(row, inputs, 0)?;
            accept(row, meta.dtype)?;
            if row.class == Class::ArgReduction && mask.count_ones() != 1 {
                return Err(OpError::value(format!("{name}: reduces exactly one axis")));
            }
            let needs_elements = matches!(row.op, Op::Amax | Op::Amin | Op::Argmax | Op::Argmin);
            reduced_shape(row, &meta.shape, *mask, *keepdim, needs_elements)
                .map(|shape| Meta::new(shape, result_dtype(row, meta.dtype)))
        }
        (Class::Reduction, Attrs::AxesInto { mask, keepdim, dtype }) => {
            let meta = tensor(row, inputs, 0)?;
            accept(row, *dtype)?;
            if !row.op.reduces_into(meta.dtype, *dtype) {
                return Err(OpError::type_(format!("{name}: does not convert {} to {dtype}", meta.dtype)));
            }
            reduced_shape(row, &meta.shape, *mask, *keepdim, false).map(|shape| Meta::new(shape, *dtype))
        }
        (Class::Movement, _) => {
            let meta = tensor(row, inputs, 0)?;
            let shape = match (row.op, attrs) {
                (Op::Reshape, Attrs::Shape(to)) => {
                    if to.numel() != meta.shape.numel() {
                        return Err(OpError::runtime(format!(
                            "shape '{to}' is invalid for input of size {}",
                            meta.shape.numel()
                        )));
                    }
                    *to
                }
                (Op::Expand, Attrs::Shape(to)) => expand_shape(&meta.shape, to)?,
                (Op::Permute, Attrs::Permutation(p)) => permute_shape(&meta.shape, p)?,
                (Op::Slice, Attrs::Slice(spec)) => slice_shape(name, &meta.shape, spec)?,
                (Op::Reinterpret, Attrs::DType(to)) => return meta.reinterpreted(*to),
                (Op::Bitcast, Attrs::DType(to)) => return meta.bits_as(*to),
                _ => return Err(wrong_attrs(row)),
            };
            Ok(Meta::new(shape, meta.dtype))
        }
        (Class::SliceScatter, Attrs::Slice(spec)) => {
            let base = tensor(row, inputs, 0)?;
            let sizes = slice_shape(name, &base.shape, spec)?;
            if matches!(inputs.get(1), Some(InputMeta::Scalar(_))) {
                return Ok(*base);
            }
            let source = tensor(row, inputs, 1)?;
            if source.shape != sizes || source.dtype != base.dtype {
                return Err(OpError::runtime(format!(
                    "{name}: expected a source of shape {sizes} and dtype {}, but got {} and {}",
                    base.dtype, source.shape, source.dtype
                )));
            }
            Ok(*base)
        }
        (Class::Concatenation, Attrs::Axis(axis)) => cat(row, inputs, *axis as usize),
        (Class::Contraction, Attrs::None) if row.op == Op::Affine => affine(row, inputs),
        (Class::Contraction, Attrs::None) => matmul(row, inputs),
        (Class::Convolution, Attrs::Window(spec)) => {
            let (a, b) = (tensor(row, inputs, 0)?, tensor(row, inputs, 1)?);
            let bias = if inputs.len() > 2 { Some(tensor(row, inputs, 2)?) } else { None };
            accept(row, a.dtype)?;
            window::convolution(row.op, a, b, bias, spec)
        }
        (Class::Pooling, Attrs::Window(spec)) => {
            let a = tensor(row, inputs, 0)?;
            let other = if row.operands > 1 { Some(tensor(row, inputs, 1)?) } else { None };
            accept(row, a.dtype)?;
            window::pooling(row.op, a, other, spec)
        }
        (Class::Gather, Attrs::Axis(axis)) => {
            let (source, index) = (tensor(row, inputs, 0)?, tensor(row, inputs, 1)?);
            check_index(row, &source.shape, index, *axis as usize)?;
            Ok(Meta::new(index.shape, source.dtype))
        }
        (Class::Scatter, Attrs::Axis(axis)) => {
            let (base, index, source) = (tensor(row, inputs, 0)?, tensor(row, inputs, 1)?, tensor(row, inputs, 2)?);
            accept(row, base.dtype)?;
            check_index(row, &base.shape, index, *axis as usize)?;
            let fits = source.shape.rank() == index.shape.rank()
                && source.shape.dims().iter().zip(index.shape.dims()).all(|(s, i)| i <= s);
            if !fits || source.dtype != base.dtype {
                return Err(OpError::runtime(format!(
                    "{name}: expected a source of at least the index's shape {} and dtype {}, but got {} and {}",
                    index.shape, base.dtype, source.shape, source.dtype
                )));
            }
            Ok(*base)
        }
        (Class::Scan | Class::Sort, Attrs::Axis(axis)) => {
            let meta = tensor(row, inputs, 0)?;
            accept(row, meta.dtype)?;
            if *axis as usize >= meta.shape.rank() {
                return Err(OpError::index(format!("{name}: no axis {axis} in shape {}", meta.shape)));
            }
            let sums = row.promotion == Promotion::Sum && !meta.dtype.is_inexact();
            let shape = match inputs.get(1) {
                Some(count) => meta.shape.with_dim(*axis as usize, sorted_count(row, &meta.shape, *axis, count)?),
                None => meta.shape,
            };
            Ok(Meta::new(shape, if sums { DType::I64 } else { result_dtype(row, meta.dtype) }))
        }
        (Class::Search, Attrs::None) => {
            let (sorted, wanted) = (tensor(row, inputs, 0)?, tensor(row, inputs, 1)?);
            common_dtype(row, inputs)?;
            let Some((_, lead)) = sorted.shape.dims().split_last() else {
                return Err(OpError::runtime(format!("{name}: the sorted elements need an axis")));
            };
            if !lead.is_empty() && wanted.shape.dims().split_last().is_none_or(|(_, own)| own != lead) {
                return Err(OpError::runtime(format!(
                    "{name}(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor \
                     and input value tensor must match, but we got boundaries tensor {} and input value tensor {}",
                    sorted.shape, wanted.shape
                )));
            }
            Ok(Meta::new(wanted.shape, DType::I64))
        }
        (Class::Positions, Attrs::Shape(shape)) => {
            let mask = tensor(row, inputs, 0)?;
            accept(row, mask.dtype)?;
            if shape.rank() != 2 || shape.dims()[1] != mask.shape.rank() || shape.dims()[0] > mask.shape.numel() {
                return Err(OpError::runtime(format!("{name}: no {shape} positions in shape {}", mask.shape)));
            }
            Ok(Meta::new(*shape, DType::I64))
        }
        (Class::Creation, Attrs::Create { shape, dtype }) | (Class::Random, Attrs::Random { shape, dtype, .. }) => {
            if inputs.iter().any(|i| i.tensor().is_some()) {
                return Err(OpError::type_(format!("{name}: takes numbers, not tensors")));
            }
            accept(row, *dtype)?;
            if let Attrs::Random { first, .. } = attrs
                && first.checked_add(shape.numel() as u64).is_none_or(|end| end > RANDOM_NUMBERS_MAX)
            {
                return Err(OpError::value(format!("{name}: has no number {first} and so many after it")));
            }
            if row.op == Op::Arange && shape.rank() != 1 {
                return Err(OpError::value(format!("{name}: makes one dimension, not shape {shape}")));
            }
            if let (Op::Randint, [InputMeta::Scalar(low), InputMeta::Scalar(high)]) = (row.op, inputs)
                && low.to_i64() >= high.to_i64()
            {
                return Err(OpError::runtime(format!(
                    "random_ expects 'from' to be less than 'to', but got from={} >= to={}",
                    low.to_i64(),
                    high.to_i64()
                )));
            }
            Ok(Meta::new(*shape, *dtype))
        }
        (Class::RowWise, _) => row_wise::infer(row, inputs, attrs),
        _ => Err(wrong_attrs(row)),
    }
}

/// The number of indices that a sort along `axis` returns.
fn sorted_count(row: &Row, shape: &Shape, axis: u8, count: &InputMeta) -> Result<usize> {
    let size = shape.dims()[axis as usize];
    match count {
        InputMeta::Scalar(Scalar::Int(count)) if usize::try_from(*count).is_ok_and(|count| count <= size) => {
            Ok(*count as usize)
        }
        InputMeta::Scalar(count) => {
            Err(OpError::runtime(format!("{}: no {count:?} indices along an axis of size {size}", row.name)))
        }
        InputMeta::Tensor(_) => Err(OpError::type_(format!("{}: the count must be a number", row.name))),
    }
}

fn common_dtype(row: &Row, inputs: &[InputMeta]) -> Result<DType> {
    let mut tensors = inputs.iter().filter_map(InputMeta::tensor);
    let first = tensors.next().ok_or_else(|| OpError::type_(format!("{}: needs a tensor operand", row.name)))?.dtype;
    if let Some(other) = tensors.find(|m| m.dtype != first) {
        return Err(OpError::runtime(format!(
            "{}: expected operands of one dtype, but got {} and {}",
            row.name,
            first.scalar_type_name(),
            other.dtype.scalar_type_name()
        )));
    }
    accept(row, first)?;
    Ok(first)
}

fn broadcast(inputs: &[InputMeta]) -> Result<Shape> {
    let mut shape = Shape::SCALAR;
    for meta in inputs.iter().filter_map(InputMeta::tensor) {
        shape = shape.broadcast(&meta.shape)?;
    }
    Ok(shape)
}

fn reduced_shape(row: &Row, shape: &Shape, mask: u8, keepdim: bool, needs_elements: bool) -> Result<Shape> {
    if (mask as u32) >> shape.rank() != 0 {
        return Err(OpError::index(format!("{}: axis out of range for shape {shape}", row.name)));
    }
    let mut dims = [0; RANK_MAX];
    let mut rank = 0;
    for (axis, &size) in shape.dims().iter().enumerate() {
        let reduced = mask >> axis & 1 == 1;
        if reduced && size == 0 && needs_elements {
            return Err(OpError::index(format!(
                "{}(): Expected reduction dim {axis} to have non-zero size.",
                row.name
            )));
        }
        if !reduced || keepdim {
            dims[rank] = if reduced { 1 } else { size };
            rank += 1;
        }
    }
    Shape::new(&dims[..rank])
}

fn expand_shape(from: &Shape, to: &Shape) -> Result<Shape> {
    if to.rank() < from.rank() {
        return Err(OpError::runtime(format!(
            "expand: the number of sizes provided ({}) must be greater or equal to the number of dimensions in the tensor ({})",
            to.rank(),
            from.rank()
        )));
    }
    let lead = to.rank() - from.rank();
    for (axis, &size) in from.dims().iter().enumerate() {
        let wanted = to.dims()[lead + axis];
        if size != wanted && size != 1 {
            return Err(OpError::runtime(format!(
                "The expanded size of the tensor ({wanted}) must match the existing size ({size}) at non-singleton dimension {}.  Target sizes: {to}.  Tensor sizes: {from}",
                lead + axis
            )));
        }
    }
    Ok(*to)
}

fn permute_shape(from: &Shape, permutation: &[u8; RANK_MAX]) -> Result<Shape> {
    let rank = from.rank();
    let mut seen = 0u8;
    let mut dims = [0; RANK_MAX];
    for (to, &axis) in permutation[..rank].iter().enumerate() {
        if axis as usize >= rank || seen >> axis & 1 == 1 {
            return Err(OpError::runtime("permute(dims): duplicate or invalid dims are not allowed."));
        }
        seen |= 1 << axis;
        dims[to] = from.dims()[axis as usize];
    }
    Shape::new(&dims[..rank])
}

fn slice_shape(name: &str, from: &Shape, spec: &SliceSpec) -> Result<Shape> {
    let rank = from.rank();
    let refuse = |why: &str| Err(OpError::index(format!("{name}: {why} for shape {from}")));
    if spec.sizes.rank() != rank {
        return refuse("one range per axis is needed");
    }
    for (axis, (&extent, &count)) in from.dims().iter().zip(spec.sizes.dims()).enumerate() {
        if count == 0 {
            continue;
        }
        let (start, step) = (spec.start[axis] as i128, spec.step[axis] as i128);
        let last = start + step * (count as i128 - 1);
        let range = 0..extent as i128;
        if step == 0 || !range.contains(&start) || !range.contains(&last) {
            return refuse("a range lies outside");
        }
    }
    Ok(spec.sizes)
}

fn cat(row: &Row, inputs: &[InputMeta], axis: usize) -> Result<Meta> {
    let first = *tensor(row, inputs, 0)?;
    if axis >= first.shape.rank() {
        return Err(OpError::runtime(format!("{}: zero-dimensional tensors cannot be concatenated", row.name)));
    }
    let mut total = 0usize;
    for i in 0..inputs.len() {
        let meta = tensor(row, inputs, i)?;
        if meta.dtype != first.dtype {
            return Err(OpError::runtime(format!("{}: expected tensors of one dtype", row.name)));
        }
        if meta.shape.rank() != first.shape.rank() {
            return Err(OpError::runtime(format!(
                "Tensors must have same number of dimensions: got {} and {}",
                first.shape.rank(),
                meta.shape.rank()
            )));
        }
        for (other, (&a, &b)) in first.shape.dims().iter().zip(meta.shape.dims()).enumerate() {
            if other != axis && a != b {
                return Err(OpError::runtime(format!(
                    "Sizes of tensors must match except in dimension {axis}. Expected size {a} but got size {b} for tensor number {i} in the list."
                )));
            }
        }
        total += meta.shape.dims()[axis];
    }
    Ok(Meta::new(Shape::new(first.shape.with_dim(axis, total).dims())?, first.dtype))
}

fn matmul(row: &Row, inputs: &[InputMeta]) -> Result<Meta> {
    let (a, b) = (tensor(row, inputs, 0)?, tensor(row, inputs, 1)?);
    if a.dtype != b.dtype {
        return Err(OpError::runtime(format!(
            "expected m1 and m2 to have the same dtype, but got: {} != {}",
            a.dtype.scalar_type_name(),
            b.dtype.scalar_type_name()
        )));
    }
    accept(row, a.dtype)?;
    let (ra, rb) = (a.shape.rank(), b.shape.rank());
    if ra < 2 || rb < 2 {
        return Err(OpError::runtime(format!("matmul: operands need two axes, but got {} and {}", a.shape, b.shape)));
    }
    let (m, k) = (a.shape.dims()[ra - 2], a.shape.dims()[ra - 1]);
    let (k2, n) = (b.shape.dims()[rb - 2], b.shape.dims()[rb - 1]);
    if k != k2 {
        return Err(matmul_mismatch(&a.shape, &b.shape));
    }
    let batch = Shape::new(&a.shape.dims()[..ra - 2])?.broadcast(&Shape::new(&b.shape.dims()[..rb - 2])?)?;
    let mut dims = batch.dims().to_vec();
    dims.extend([m, n]);
    Ok(Meta::new(Shape::new(&dims)?, result_dtype(row, a.dtype)))
}

fn affine(row: &Row, inputs: &[InputMeta]) -> Result<Meta> {
    let [input, weight, bias] = [tensor(row, inputs, 0)?, tensor(row, inputs, 1)?, tensor(row, inputs, 2)?];
    if let Some(other) = [weight, bias].into_iter().find(|other| other.dtype != input.dtype) {
        return Err(OpError::runtime(format!(
            "linear: expected an input, a weight and a bias of one dtype, but got {} and {}",
            input.dtype.scalar_type_name(),
            other.dtype.scalar_type_name()
        )));
    }
    accept(row, input.dtype)?;
    let (rank, shape) = (input.shape.rank(), input.shape);
    let ([n, k], [columns]) = (weight.shape.dims(), bias.shape.dims()) else {
        return Err(OpError::runtime(format!(
            "linear: expected a weight of two axes and a bias of one, but got {} and {}",
            weight.shape, bias.shape
        )));
    };
    if rank < 2 || shape.dims()[rank - 1] != *k || columns != n {
        return Err(OpError::runtime(format!(
            "linear: an input of shape {shape} does not fit a weight of shape {} and a bias of shape {}",
            weight.shape, bias.shape
        )));
    }
    Ok(Meta::new(shape.with_dim(rank - 1, *n), input.dtype))
}

/// PyTorch's error for inner sizes that differ; like PyTorch, it folds leading axes into the first.
pub fn matmul_mismatch(a: &Shape, b: &Shape) -> OpError {
    let (a, b) = (a.dims(), b.dims());
    let rows: usize = a[..a.len() - 1].iter().product();
    OpError::runtime(format!(
        "mat1 and mat2 shapes cannot be multiplied ({rows}x{} and {}x{})",
        a[a.len() - 1],
        b[b.len() - 2],
        b[b.len() - 1]
    ))
}

fn check_index(row: &Row, of: &Shape, index: &Meta, axis: usize) -> Result<()> {
    if index.dtype != DType::I64 {
        return Err(OpError::runtime(format!("{}(): Expected dtype int64 for index", row.name)));
    }
    if index.shape.rank() != of.rank() || axis >= of.rank() {
        return Err(OpError::runtime("Index tensor must have the same number of dimensions as input tensor"));
    }
    for (other, (&i, &s)) in index.shape.dims().iter().zip(of.dims()).enumerate() {
        if other != axis && i > s {
            return Err(OpError::runtime(format!(
                "Size does not match at dimension {other} expected index {} to be no larger than self {of} apart from dimension {axis}",
                index.shape
            )));
        }
    }
    Ok(())
}
