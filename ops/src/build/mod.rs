//! Builders: turn calls with PyTorch's arguments (negative axes, Python numbers, mixed dtypes) into instructions.
//! Composites are functions over primitive ops.
//!
//! All builders emit to a [`Graph`], so that the Python package, the C library and the gradients share them.

pub mod indexing;
pub mod numbers;
pub mod row_wise;
pub mod variance;
pub mod window;

use crate::class::{Class, Promotion};
use crate::dtype::{DType, DTypeSet, Promotable, result_type};
use crate::error::{OpError, Result};
use crate::graph::{Arg, Graph, Val};
use crate::instruction::{Attrs, INPUTS_MAX, Scalar, SliceSpec};
use crate::op::Op;
use crate::shape::{Meta, RANK_MAX, Shape, normalize_axis};
use smallvec::SmallVec;

type G<'a> = &'a mut dyn Graph;

/// A tensor of one number that is written to another has memory for each of its elements up to this number of them.
const FILLED_ELEMENTS_MAX: usize = 4 << 10;

/// The permutation that leaves all axes in their places.
pub(crate) const IDENTITY: [u8; RANK_MAX] = [0, 1, 2, 3, 4, 5, 6, 7];

fn promotable(g: &dyn Graph, arg: &Arg) -> Promotable {
    match arg {
        Arg::Val(v) => {
            let meta = g.meta(*v);
            if meta.shape.rank() == 0 { Promotable::ZeroDim(meta.dtype) } else { Promotable::Dimensioned(meta.dtype) }
        }
        Arg::Scalar(s) => Promotable::Number(s.category()),
    }
}

/// The same elements as those of `dtype`: one of the two dtypes is stored as the other.
///
/// # Errors
/// Dtypes of which neither is the other's storage.
pub fn reinterpret(g: G<'_>, v: Val, dtype: DType) -> Result<Val> {
    g.emit(Op::Reinterpret, &[v.into()], Attrs::DType(dtype))
}

/// The bits of the elements as those of `dtype`: the last axis has as many bytes as before.
///
/// # Errors
/// The errors of [`Meta::resized_as`]; bool, most of whose bits mean nothing.
pub fn bitcast(g: G<'_>, v: Val, dtype: DType) -> Result<Val> {
    let from = g.meta(v);
    let to = from.resized_as(dtype)?;
    let mut bits = if from.dtype.is_composed() { reinterpret(g, v, from.dtype.storage())? } else { v };
    // The parts of a complex number are a last axis of their own. It stays one where each number is read as one
    // element, so that a distance between the numbers is one between the elements.
    let same_size = from.dtype.size() == dtype.size();
    if from.dtype.is_complex() && !same_size {
        bits = flatten(g, bits, -2, -1)?;
    } else if dtype.is_complex() && same_size && !from.dtype.is_complex() {
        bits = unsqueeze(g, bits, -1)?;
    }
    // Read as the same dtype, too, so that no gradient flows.
    bits = g.emit(Op::Bitcast, &[bits.into()], Attrs::DType(dtype.storage()))?;
    if dtype.is_composed() {
        let stored = to.stored()?;
        if g.meta(bits).shape != stored.shape {
            bits = g.emit(Op::Reshape, &[bits.into()], Attrs::Shape(stored.shape))?;
        }
        return reinterpret(g, bits, dtype);
    }
    if g.meta(bits).shape == to.shape { Ok(bits) } else { g.emit(Op::Reshape, &[bits.into()], Attrs::Shape(to.shape)) }
}

/// Checks that a result of dtype `from` may be written to an output of dtype `to`: its category is no higher.
///
/// # Errors
/// PyTorch's message, which names both.
pub fn check_result_type(from: DType, to: DType) -> Result<()> {
    if from.category() <= to.category() {
        return Ok(());
    }
    let (from, to) = (from.scalar_type_name(), to.scalar_type_name());
    Err(OpError::runtime(format!("result type {from} can't be cast to the desired output type {to}")))
}

/// `v` converted to `dtype`; `v` itself if it has that dtype.
///
/// # Errors
/// The errors of [`Graph::emit`].
pub fn cast(g: G<'_>, v: Val, dtype: DType) -> Result<Val> {
    if g.meta(v).dtype == dtype { Ok(v) } else { g.emit(Op::Cast, &[v.into()], Attrs::DType(dtype)) }
}

/// The dtype that operands are promoted to, by PyTorch's rule.
pub fn common_dtype(g: &dyn Graph, args: &[Arg]) -> DType {
    result_type(args.iter().map(|arg| promotable(g, arg)))
}

/// An operand of an elementwise op in the dtype that it computes in.
fn operand_of(g: G<'_>, arg: Arg, dtype: DType) -> Result<Arg> {
    match arg {
        Arg::Val(v) => cast(g, v, dtype).map(Arg::Val),
        Arg::Scalar(number) => Ok(Arg::Scalar(number.for_dtype(dtype))),
    }
}

/// The dtype of the tensors among `args`, if it is one floating-point dtype: then real numbers promote nothing, since
/// they only raise the category.
fn shared_float_dtype(g: &dyn Graph, args: &[Arg]) -> Option<DType> {
    let mut dtypes = args.iter().filter_map(|arg| match arg {
        Arg::Val(v) => Some(g.meta(*v).dtype),
        Arg::Scalar(_) => None,
    });
    let first = dtypes.next().filter(|dtype| dtype.is_float())?;
    dtypes.all(|dtype| dtype == first).then_some(first)
}

/// An elementwise op on tensors and numbers of any dtypes, with PyTorch's type promotion and broadcasting.
///
/// # Errors
/// Shapes that do not broadcast, a dtype that the op does not compute in, no tensor operand.
pub fn elementwise(g: G<'_>, op: Op, args: &[Arg]) -> Result<Val> {
    let row = op.row();
    if !args.iter().any(|a| matches!(a, Arg::Val(_))) {
        return Err(OpError::type_(format!("{}(): at least one argument must be a Tensor", row.name)));
    }
    let plain = |arg: &Arg| !matches!(arg, Arg::Scalar(Scalar::Unsigned(_) | Scalar::Complex(..)));
    if op != Op::Pow && shared_float_dtype(g, args).is_some() && args.iter().all(plain) {
        return g.emit(op, args, Attrs::None);
    }
    let common = common_dtype(g, args);
    let dtype = match (row.promotion, op) {
        (Promotion::Float, _) => common.to_float(),
        _ => common,
    };
    if let (Op::Pow, Some(Arg::Scalar(s))) = (op, args.get(1)) {
        if dtype == DType::Bool {
            // The power of a bool to True is the bool, and that to False is True.
            return g.emit(Op::BitwiseOr, &[args[0], Scalar::Bool(!s.to_bool()).into()], Attrs::None);
        }
        if dtype.is_int() && s.to_f64() < 0.0 {
            return Err(OpError::runtime("Integers to negative integer powers are not allowed."));
        }
        if dtype != DType::F32 {
            numbers::checked(*s, dtype)?;
        }
    }
    // PyTorch computes with a tensor without axes as with a number: a half precision may not have it.
    let wide = |arg: &Arg| matches!(promotable(g, arg), Promotable::ZeroDim(own) if own != dtype);
    let computed = if dtype.is_half() && row.wide_numbers && args.iter().any(wide) { DType::F32 } else { dtype };
    let mut operands = [Arg::Scalar(Scalar::Bool(false)); 3];
    for (to, arg) in operands.iter_mut().zip(args) {
        *to = operand_of(g, *arg, computed)?;
    }
    let result = g.emit(op, &operands[..args.len()], Attrs::None)?;
    if computed == dtype { Ok(result) } else { cast(g, result, dtype) }
}

/// `where(condition, yes, no)` with type promotion.
///
/// # Errors
/// A condition that is not bool, shapes that do not broadcast, a number out of the dtype's range.
pub fn where_(g: G<'_>, condition: Val, yes: Arg, no: Arg) -> Result<Val> {
    let dtype = common_dtype(g, &[yes, no]);
    let mut choice = |arg| match arg {
        Arg::Scalar(number) => numbers::rounded(number, dtype).map(Arg::Scalar),
        tensor => operand_of(g, tensor, dtype),
    };
    let (yes, no) = (choice(yes)?, choice(no)?);
    g.emit(Op::Where, &[condition.into(), yes, no], Attrs::DType(dtype))
}

/// Elements clamped between bounds, either of which may be absent.
///
/// # Errors
/// No bounds, shapes that do not broadcast, a number as a bound that every element of the dtype lies beyond.
pub fn clamp(g: G<'_>, v: Val, low: Option<Arg>, high: Option<Arg>) -> Result<Val> {
    let operands: SmallVec<[Arg; 3]> = [Some(v.into()), low, high].into_iter().flatten().collect();
    let dtype = common_dtype(g, &operands);
    if dtype == DType::Bool && operands[1..].iter().any(|bound| matches!(bound, Arg::Scalar(_))) {
        return Err(OpError::not_implemented("\"clamp_scalar_cpu\" not implemented for 'Bool'"));
    }
    let bound = |arg: Option<Arg>, lower: bool| match arg {
        Some(Arg::Scalar(number)) => numbers::bound(number, dtype, lower).map(|number| Some(Arg::Scalar(number))),
        other => Ok(other),
    };
    let (v, low, high) = (cast(g, v, dtype)?, bound(low, true)?, bound(high, false)?);
    match (low, high) {
        (Some(low), Some(high)) => elementwise(g, Op::Clamp, &[v.into(), low, high]),
        (Some(low), None) => elementwise(g, Op::Maximum, &[v.into(), low]),
        (None, Some(high)) => elementwise(g, Op::Minimum, &[v.into(), high]),
        (None, None) => Err(OpError::runtime("clamp: At least one of 'min' or 'max' must not be None")),
    }
}

/// The bit mask of `axes` of a tensor of `rank` dimensions; an empty list means all axes.
fn axes_mask(rank: usize, axes: Option<&[i64]>) -> Result<u8> {
    let all = ((1u16 << rank) - 1) as u8;
    let Some(axes) = axes.filter(|a| !a.is_empty()) else { return Ok(all) };
    let mut mask = 0u8;
    for &axis in axes {
        let axis = normalize_axis(axis, rank)?;
        if mask >> axis & 1 == 1 {
            return Err(OpError::runtime(format!("dim {axis} appears multiple times in the list of dims")));
        }
        mask |= 1 << axis;
    }
    // Axis 0 of a scalar is valid, as in PyTorch, but there is nothing to reduce.
    Ok(mask & all)
}

/// A reduction over `axes`; an empty list means all axes.
///
/// # Errors
/// Axes out of range or repeated, an extremum of no elements, a mean of integers.
pub fn reduce(g: G<'_>, op: Op, v: Val, axes: Option<&[i64]>, keepdim: bool) -> Result<Val> {
    let dtype = g.meta(v).dtype;
    if op.row().promotion == Promotion::Sum && !dtype.is_inexact() {
        return reduce_into(g, op, v, axes, keepdim, DType::I64);
    }
    let row = op.row();
    let meta = g.meta(v);
    let mask = axes_mask(meta.shape.rank(), axes)?;
    if matches!(op, Op::Amax | Op::Amin) && axes.is_none_or(<[i64]>::is_empty) && meta.shape.numel() == 0 {
        return Err(OpError::runtime(format!(
            "{}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
            &row.name[1..]
        )));
    }
    g.emit(op, &[v.into()], Attrs::Axes { mask, keepdim })
}

/// A sum, product or mean over axes of `v` converted to `dtype`. Where it can, the instruction converts element by
/// element, so that no converted copy of `v` takes memory.
///
/// # Errors
/// As [`reduce`].
pub fn reduce_into(g: G<'_>, op: Op, v: Val, axes: Option<&[i64]>, keepdim: bool, dtype: DType) -> Result<Val> {
    let meta = g.meta(v);
    let mask = axes_mask(meta.shape.rank(), axes)?;
    if op.reduces_into(meta.dtype, dtype) {
        return g.emit(op, &[v.into()], Attrs::AxesInto { mask, keepdim, dtype });
    }
    let v = cast(g, v, dtype)?;
    g.emit(op, &[v.into()], Attrs::Axes { mask, keepdim })
}

/// `argmax` or `argmin` along `axis`, or of the flattened tensor.
///
/// # Errors
/// An axis out of range, no elements.
pub fn arg_reduce(g: G<'_>, op: Op, v: Val, axis: Option<i64>, keepdim: bool) -> Result<Val> {
    let meta = g.meta(v);
    let rank = meta.shape.rank();
    let v = if meta.dtype == DType::Bool { cast(g, v, DType::U8)? } else { v };
    let Some(axis) = axis.map(|a| normalize_axis(a, rank)).transpose()?.filter(|_| rank > 0) else {
        if meta.shape.numel() == 0 {
            return Err(OpError::index(format!(
                "{}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
                op.name()
            )));
        }
        let flat = reshape(g, v, &[-1])?;
        let found = g.emit(op, &[flat.into()], Attrs::Axes { mask: 1, keepdim: false })?;
        return if keepdim { reshape(g, found, &vec![1; rank]) } else { Ok(found) };
    };
    g.emit(op, &[v.into()], Attrs::Axes { mask: 1 << axis, keepdim })
}

/// The matrix product of vectors, matrices or batches of them, as `torch.matmul`.
///
/// # Errors
/// Scalars, inner sizes that differ, batches that do not broadcast, dtypes that differ.
pub fn matmul(g: G<'_>, a: Val, b: Val) -> Result<Val> {
    product(g, Op::Matmul, a, b)
}

/// The matrix product as its sums are: that of half precisions in float32, for a result that is rounded once.
///
/// # Errors
/// As [`matmul`].
pub fn matmul_wide(g: G<'_>, a: Val, b: Val) -> Result<Val> {
    let half = g.meta(a).dtype.is_half() && g.meta(a).dtype == g.meta(b).dtype;
    product(g, if half { Op::MatmulWide } else { Op::Matmul }, a, b)
}

/// The affine map `input @ weight.T + bias` as a product, a sum and a conversion, for graphs without [`Op::Affine`] and
/// for operands that it does not take.
///
/// # Errors
/// As [`matmul`]; a bias that does not broadcast to the product.
pub fn affine_by_steps(g: G<'_>, input: Val, weight: Val, bias: Val) -> Result<Val> {
    let dtype = g.meta(input).dtype;
    let turned = if g.meta(weight).shape.rank() > 1 { transpose(g, weight, -2, -1)? } else { weight };
    if !dtype.is_half() || g.meta(bias).dtype != dtype {
        let product = matmul(g, input, turned)?;
        return elementwise(g, Op::Add, &[product.into(), bias.into()]);
    }
    // The sum of the product and the bias is rounded once.
    let (product, bias) = (matmul_wide(g, input, turned)?, cast(g, bias, DType::F32)?);
    let sum = elementwise(g, Op::Add, &[product.into(), bias.into()])?;
    cast(g, sum, dtype)
}

/// The activation `op`, silu or hardswish, of a floating-point tensor as several instructions, for daemons that do not
/// have it.
///
/// # Errors
/// As [`elementwise`].
pub fn activation_by_steps(g: G<'_>, op: Op, input: Val) -> Result<Val> {
    let dtype = g.meta(input).dtype;
    let wide = if dtype.is_half() { cast(g, input, DType::F32)? } else { input };
    let factor = if op == Op::Silu {
        elementwise(g, Op::Sigmoid, &[wide.into()])?
    } else {
        let moved = elementwise(g, Op::Add, &[wide.into(), 3.0.into()])?;
        let positive = elementwise(g, Op::Maximum, &[moved.into(), 0.0.into()])?;
        let bounded = elementwise(g, Op::Minimum, &[positive.into(), 6.0.into()])?;
        elementwise(g, Op::Div, &[bounded.into(), 6.0.into()])?
    };
    let result = elementwise(g, Op::Mul, &[wide.into(), factor.into()])?;
    cast(g, result, dtype)
}

/// The affine map `input @ weight.T + bias`.
///
/// # Errors
/// As [`affine_by_steps`].
pub fn affine(g: G<'_>, input: Val, weight: Val, bias: Val) -> Result<Val> {
    let metas = [input, weight, bias].map(|v| g.meta(v));
    let dtype = metas[0].dtype;
    let whole = DTypeSet::FLOAT.contains(dtype) && metas.iter().all(|meta| meta.dtype == dtype);
    let fits = |input: &[usize], weight: &[usize], bias: &[usize]| match (input, weight, bias) {
        ([_, .., own], [n, k], [columns]) => own == k && n == columns,
        _ => false,
    };
    if whole && fits(metas[0].shape.dims(), metas[1].shape.dims(), metas[2].shape.dims()) {
        return g.emit(Op::Affine, &[input.into(), weight.into(), bias.into()], Attrs::None);
    }
    affine_by_steps(g, input, weight, bias)
}

fn product(g: G<'_>, op: Op, a: Val, b: Val) -> Result<Val> {
    let (sa, sb) = (g.meta(a).shape, g.meta(b).shape);
    if sa.rank() == 0 || sb.rank() == 0 {
        return Err(OpError::runtime(format!(
            "both arguments to matmul need to be at least 1D, but they are {}D and {}D",
            sa.rank(),
            sb.rank()
        )));
    }
    let (k, k2) = (sa.dims()[sa.rank() - 1], sb.dims()[sb.rank().saturating_sub(2)]);
    if k != k2 && (sa.rank() == 1 || sb.rank() == 1) {
        return Err(OpError::runtime(match (sa.rank(), sb.rank()) {
            (1, 1) => format!(
                "inconsistent tensor size, expected tensor [{k}] and src [{k2}] to have the same number of elements, but got {k} and {k2} elements respectively"
            ),
            (_, 1) => format!(
                "size mismatch, got input ({}), mat ({}x{k}), vec ({k2})",
                sa.numel() / k.max(1),
                sa.numel() / k.max(1)
            ),
            _ => format!("mat1 and mat2 shapes cannot be multiplied (1x{k} and {k2}x{})", sb.dims()[sb.rank() - 1]),
        }));
    }
    let a2 = if sa.rank() == 1 { unsqueeze(g, a, 0)? } else { a };
    let b2 = if sb.rank() == 1 { unsqueeze(g, b, 1)? } else { b };
    let mut product = g.emit(op, &[a2.into(), b2.into()], Attrs::None)?;
    if sa.rank() == 1 {
        product = squeeze(g, product, Some(&[-2]))?;
    }
    if sb.rank() == 1 {
        product = squeeze(g, product, Some(&[-1]))?;
    }
    Ok(product)
}

/// Sizes with at most one -1, which is inferred from `numel`.
fn complete_sizes(sizes: &[i64], numel: usize) -> Result<Shape> {
    let invalid = || OpError::runtime(format!("shape '{sizes:?}' is invalid for input of size {numel}"));
    let mut known = 1usize;
    let mut open = None;
    let mut dims = [0usize; RANK_MAX];
    if sizes.len() > RANK_MAX {
        return Shape::new(&vec![1; sizes.len()]);
    }
    for (i, &size) in sizes.iter().enumerate() {
        match size {
            -1 if open.is_none() => open = Some(i),
            -1 => return Err(OpError::runtime("only one dimension can be inferred")),
            size if size < 0 => return Err(OpError::runtime(format!("invalid shape dimension {size}"))),
            size => {
                dims[i] = size as usize;
                known = known.checked_mul(size as usize).ok_or_else(invalid)?;
            }
        }
    }
    if let Some(i) = open {
        if known == 0 {
            return Err(OpError::runtime(format!(
                "cannot reshape tensor of {numel} elements into shape {sizes:?} because the unspecified dimension size -1 can be any value and is ambiguous"
            )));
        }
        if !numel.is_multiple_of(known) {
            return Err(invalid());
        }
        dims[i] = numel / known;
    } else if known != numel {
        return Err(invalid());
    }
    Shape::new(&dims[..sizes.len()])
}

/// The same elements with another shape; one size may be -1 and is inferred.
///
/// # Errors
/// Sizes whose product is not the number of elements.
pub fn reshape(g: G<'_>, v: Val, sizes: &[i64]) -> Result<Val> {
    let from = g.meta(v).shape;
    reshape_to(g, v, complete_sizes(sizes, from.numel())?)
}

/// A view of all elements in the same shape.
///
/// # Errors
/// As [`Graph::emit`].
pub fn alias(g: G<'_>, v: Val) -> Result<Val> {
    let shape = g.meta(v).shape;
    reshape_to(g, v, shape)
}

fn reshape_to(g: G<'_>, v: Val, shape: Shape) -> Result<Val> {
    g.emit(Op::Reshape, &[v.into()], Attrs::Shape(shape))
}

/// Permutes axes: axis `i` of the result is axis `axes[i]` of `v`.
///
/// # Errors
/// `axes` is not a permutation.
pub fn permute(g: G<'_>, v: Val, axes: &[i64]) -> Result<Val> {
    let rank = g.meta(v).shape.rank();
    if axes.len() != rank {
        return Err(OpError::runtime(format!(
            "permute: number of dimensions in the tensor input does not match the length of the desired ordering of dimensions i.e. input.dim() = {rank} is not equal to len(dims) = {}",
            axes.len()
        )));
    }
    let mut permutation = IDENTITY;
    for (to, &axis) in permutation.iter_mut().zip(axes) {
        *to = normalize_axis(axis, rank)? as u8;
    }
    g.emit(Op::Permute, &[v.into()], Attrs::Permutation(permutation))
}

/// Swaps two axes.
///
/// # Errors
/// An axis out of range.
pub fn transpose(g: G<'_>, v: Val, a: i64, b: i64) -> Result<Val> {
    let rank = g.meta(v).shape.rank();
    let (a, b) = (normalize_axis(a, rank)?, normalize_axis(b, rank)?);
    let mut permutation = IDENTITY;
    permutation.swap(a, b);
    g.emit(Op::Permute, &[v.into()], Attrs::Permutation(permutation))
}

/// The diagonals of the matrices that two axes form, as the last axis. A positive offset is above the main diagonal.
///
/// # Errors
/// Axes out of range or the same.
pub fn diagonal(g: G<'_>, v: Val, offset: i64, rows: i64, columns: i64) -> Result<Val> {
    let shape = g.meta(v).shape;
    let (a, b) = (normalize_axis(rows, shape.rank())?, normalize_axis(columns, shape.rank())?);
    if a == b {
        return Err(OpError::runtime(format!("diagonal dimensions cannot be identical {rows}, {columns}")));
    }
    let kept = (0..shape.rank()).filter(|axis| *axis != a && *axis != b);
    let (own, first, mut strides) = (g.strides(v), g.storage_offset(v), [0; RANK_MAX]);
    for (to, stride) in strides.iter_mut().zip(kept.clone().map(|axis| own[axis]).chain([own[a] + own[b]])) {
        *to = stride;
    }
    let order: Vec<i64> = kept.clone().chain([a, b]).map(|axis| axis as i64).collect();
    let turned = if order.is_sorted() { v } else { permute(g, v, &order)? };
    let (rows, columns) = (shape.dims()[a] as i64, shape.dims()[b] as i64);
    let count = (rows + offset.min(0)).min(columns - offset.max(0)).max(0);
    let steps = if count == 0 { 0 } else { offset as isize };
    let start = first + steps.max(0) * own[b] + (-steps).max(0) * own[a];
    let mut dims: Vec<usize> = kept.map(|axis| shape.dims()[axis]).collect();
    dims.push((rows * columns) as usize);
    // In the flattened matrix, neighbours on the diagonal are one row and one column apart.
    let flat = reshape_to(g, turned, Shape::new(&dims)?)?;
    let mut spec = SliceSpec::corner(g.meta(flat).shape);
    let last = dims.len() - 1;
    spec.start[last] = if count == 0 { 0 } else { offset.max(0) + columns * (-offset).max(0) };
    spec.step[last] = columns + 1;
    spec.sizes = spec.sizes.with_dim(last, count as usize);
    let found = g.emit(Op::Slice, &[flat.into()], Attrs::Slice(Box::new(spec)))?;
    g.set_strides(found, strides, start);
    Ok(found)
}

/// A view of a contiguous tensor's elements with given sizes, strides and offset.
///
/// # Errors
/// A tensor with gaps between its elements; strides that are negative or leave the tensor.
pub fn as_strided(g: G<'_>, v: Val, sizes: &[i64], strides: &[i64], offset: i64) -> Result<Val> {
    let shape = shape_of(sizes)?;
    let mut last = offset;
    let mut wide = [0; RANK_MAX];
    let mut places = full(g, Shape::SCALAR, Scalar::Int(offset), DType::I64)?;
    places = reshape(g, places, &vec![1; sizes.len()])?;
    for (axis, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
        if stride < 0 {
            return Err(OpError::runtime(format!(
                "as_strided: Negative strides are not supported at the moment, got strides: {strides:?}"
            )));
        }
        let mut line = vec![1; sizes.len()];
        line[axis] = size;
        let steps = count_to(g, size)?;
        let steps = elementwise(g, Op::Mul, &[steps.into(), stride.into()])?;
        let steps = reshape(g, steps, &line)?;
        places = elementwise(g, Op::Add, &[places.into(), steps.into()])?;
        last = last.saturating_add((size - 1).max(0).saturating_mul(stride));
        wide[axis] = stride as isize;
    }
    let count = g.meta(v).shape.numel();
    if shape.numel() > 0 && last >= count as i64 {
        return Err(OpError::runtime(format!(
            "setStorage: sizes {sizes:?}, strides {strides:?}, storage offset {offset} are out of bounds for {count} \
             elements"
        )));
    }
    let start = g.storage_offset(v) + offset as isize;
    let flat = reshape(g, v, &[count as i64])?;
    let places = reshape(g, places, &[shape.numel() as i64])?;
    let taken = gather(g, flat, 0, places)?;
    let found = reshape_to(g, taken, shape)?;
    g.set_strides(found, wide, start);
    Ok(found)
}

/// Windows of `size` neighbours along an axis, `step` apart, as a new last axis.
///
/// # Errors
/// An axis out of range, a window longer than it, a step that is not positive.
pub fn unfold(g: G<'_>, v: Val, axis: i64, size: i64, step: i64) -> Result<Val> {
    let shape = g.meta(v).shape;
    let at = normalize_axis(axis, shape.rank())?;
    let extent = shape.dims().get(at).map_or(1, |extent| *extent as i64);
    if size > extent {
        return Err(OpError::runtime(format!(
            "maximum size for tensor at dimension {axis} is {extent} but size is {size}"
        )));
    }
    if size < 0 {
        return Err(OpError::runtime(format!("size is {size} but must be >= 0")));
    }
    if step <= 0 {
        return Err(OpError::runtime(format!("step is {step} but must be > 0")));
    }
    if shape.rank() == 0 {
        let line = reshape(g, v, &[1])?;
        return narrow(g, line, 0, 0, size);
    }
    let own: Vec<i64> = shape.dims().iter().map(|size| *size as i64).collect();
    let count = (extent - size) / step + 1;
    let windows = if size <= step && count * step <= extent {
        let whole = narrow(g, v, at as i64, 0, count * step)?;
        let blocks = reshape(g, whole, &[&own[..at], &[count, step], &own[at + 1..]].concat())?;
        narrow(g, blocks, at as i64 + 1, 0, size)?
    } else {
        let (strides, start) = (g.strides(v), g.storage_offset(v));
        let starts = count_to(g, count)?;
        let starts = elementwise(g, Op::Mul, &[starts.into(), step.into()])?;
        let starts = unsqueeze(g, starts, 1)?;
        let along = count_to(g, size)?;
        let places = elementwise(g, Op::Add, &[starts.into(), along.into()])?;
        let narrow = [&vec![1; at][..], &[count * size], &vec![1; own.len() - at - 1]].concat();
        let places = reshape(g, places, &narrow)?;
        let places = expand(g, places, &[&own[..at], &[count * size], &own[at + 1..]].concat())?;
        let taken = gather(g, v, at as i64, places)?;
        let windows = reshape(g, taken, &[&own[..at], &[count, size], &own[at + 1..]].concat())?;
        let mut wide = [0; RANK_MAX];
        wide[..at].copy_from_slice(&strides[..at]);
        (wide[at], wide[at + 1]) = (strides[at] * step as isize, strides[at]);
        wide[at + 2..=own.len()].copy_from_slice(&strides[at + 1..own.len()]);
        g.set_strides(windows, wide, start);
        windows
    };
    let rank = own.len() as i64 + 1;
    let order: Vec<i64> = (0..rank).filter(|axis| *axis != at as i64 + 1).chain([at as i64 + 1]).collect();
    permute(g, windows, &order)
}

/// Removes axes of size 1: the given ones, or all.
///
/// # Errors
/// An axis out of range.
pub fn squeeze(g: G<'_>, v: Val, axes: Option<&[i64]>) -> Result<Val> {
    let shape = g.meta(v).shape;
    let mask = match axes {
        Some([]) => 0,
        axes => axes_mask(shape.rank(), axes)?,
    };
    let dims: Vec<usize> =
        shape.dims().iter().enumerate().filter(|(i, d)| !(**d == 1 && mask >> i & 1 == 1)).map(|(_, d)| *d).collect();
    reshape_to(g, v, Shape::new(&dims)?)
}

/// A new axis of size 1 at `axis`.
///
/// # Errors
/// An axis out of range.
pub fn unsqueeze(g: G<'_>, v: Val, axis: i64) -> Result<Val> {
    let shape = g.meta(v).shape;
    let axis = normalize_axis(axis, shape.rank() + 1)?;
    let mut dims = shape.dims().to_vec();
    dims.insert(axis, 1);
    reshape_to(g, v, Shape::new(&dims)?)
}

/// The tensor broadcast to `sizes`; -1 keeps a size.
///
/// # Errors
/// A size other than the old one, for an axis whose size is not 1.
pub fn expand(g: G<'_>, v: Val, sizes: &[i64]) -> Result<Val> {
    let from = g.meta(v).shape;
    if sizes.len() > RANK_MAX {
        return Err(Shape::new(&vec![1; sizes.len()]).err().unwrap_or_else(|| OpError::value("too many dimensions")));
    }
    let mut dims = [0usize; RANK_MAX];
    for (i, &size) in sizes.iter().enumerate() {
        dims[i] = if size >= 0 {
            size as usize
        } else if size == -1 && i + from.rank() >= sizes.len() {
            from.dims()[i + from.rank() - sizes.len()]
        } else {
            return Err(OpError::runtime(format!(
                "The expanded size of the tensor ({size}) isn't allowed in a leading, non-existing dimension {i}"
            )));
        };
    }
    let to = Shape::new(&dims[..sizes.len()])?;
    g.emit(Op::Expand, &[v.into()], Attrs::Shape(to))
}

/// Flattens the axes from `start` to `end` (inclusive) to one.
///
/// # Errors
/// Axes out of range or in the wrong order.
pub fn flatten(g: G<'_>, v: Val, start: i64, end: i64) -> Result<Val> {
    let shape = g.meta(v).shape;
    let (start, end) = (normalize_axis(start, shape.rank())?, normalize_axis(end, shape.rank())?);
    if shape.rank() == 0 {
        return reshape_to(g, v, Shape::new(&[1])?);
    }
    if start > end {
        return Err(OpError::runtime("flatten() has invalid args: start_dim cannot come after end_dim"));
    }
    if start == end {
        return Ok(v);
    }
    let mut dims = shape.dims()[..start].to_vec();
    dims.push(shape.dims()[start..=end].iter().product());
    dims.extend(&shape.dims()[end + 1..]);
    reshape_to(g, v, Shape::new(&dims)?)
}

/// One index of `x[…]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// An integer: one position, whose axis is removed.
    At(i64),
    /// Python's `start:stop:step`.
    Range {
        /// The first index.
        start: Option<i64>,
        /// The end, exclusive.
        stop: Option<i64>,
        /// The step; negative walks backwards.
        step: Option<i64>,
    },
    /// A new axis of size 1.
    NewAxis,
    /// `...`: all axes that no other index takes.
    Ellipsis,
}

/// The slice that `parts` select from `shape`, and the shape of the result.
///
/// # Errors
/// As [`index`].
pub fn resolve_index(shape: &Shape, parts: &[Index]) -> Result<(SliceSpec, Shape)> {
    let consumed = parts.iter().filter(|p| matches!(p, Index::At(_) | Index::Range { .. })).count();
    if consumed > shape.rank() {
        return Err(OpError::index(format!("too many indices for tensor of dimension {}", shape.rank())));
    }
    if parts.iter().filter(|p| **p == Index::Ellipsis).count() > 1 {
        return Err(OpError::index("an index can only have a single ellipsis ('...')"));
    }
    let mut spec = SliceSpec::corner(*shape);
    // Sizes past the last axis that a shape can have are only counted.
    let mut dims = [1; RANK_MAX];
    let mut rank = 0;
    let mut seen = |sizes: &[usize]| {
        for size in sizes {
            if let Some(dim) = dims.get_mut(rank) {
                *dim = *size;
            }
            rank += 1;
        }
    };
    let mut axis = 0;
    for part in parts {
        match *part {
            Index::NewAxis => seen(&[1]),
            Index::Ellipsis => {
                let count = shape.rank() - consumed;
                seen(&shape.dims()[axis..axis + count]);
                axis += count;
            }
            Index::At(i) => {
                let size = shape.dims()[axis] as i64;
                if i < -size || i >= size {
                    return Err(OpError::index(format!(
                        "index {i} is out of bounds for dimension {axis} with size {size}"
                    )));
                }
                spec.start[axis] = if i < 0 { i + size } else { i };
                spec.sizes = spec.sizes.with_dim(axis, 1);
                axis += 1;
            }
            Index::Range { start, stop, step } => {
                let size = shape.dims()[axis] as i64;
                let step = step.unwrap_or(1);
                if step == 0 {
                    return Err(OpError::value("slice step cannot be zero"));
                }
                let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
                let place = |i: i64| (if i < 0 { i.saturating_add(size) } else { i }).clamp(low, high);
                let start = start.map_or(if step > 0 { low } else { high }, place);
                let stop = stop.map_or(if step > 0 { high } else { low }, place);
                // A step larger than the axis selects one element, as a step of the axis's size does.
                let step = step.clamp(-size.max(1), size.max(1));
                let span = if step > 0 { stop - start } else { start - stop };
                let count = if span <= 0 { 0 } else { (span as u64).div_ceil(step.unsigned_abs()) as usize };
                // An empty slice has a place in memory, too; backwards, that may be before the axis.
                spec.start[axis] = start.max(0);
                spec.step[axis] = step;
                spec.sizes = spec.sizes.with_dim(axis, count);
                seen(&[count]);
                axis += 1;
            }
        }
    }
    seen(&shape.dims()[axis..]);
    let seen = if rank > RANK_MAX { Shape::new(&vec![1; rank]) } else { Shape::new(&dims[..rank]) };
    Ok((spec, seen?))
}

/// `v[parts]`: slices with steps and negative indices, integers, new axes and an ellipsis.
///
/// # Errors
/// An index out of range, too many indices, a step of 0.
pub fn index(g: G<'_>, v: Val, parts: &[Index]) -> Result<Val> {
    let shape = g.meta(v).shape;
    let (spec, seen) = resolve_index(&shape, parts)?;
    let sizes = spec.sizes;
    let whole = sizes == shape && spec.step[..shape.rank()].iter().all(|s| *s == 1);
    let boxed = if whole { v } else { g.emit(Op::Slice, &[v.into()], Attrs::Slice(Box::new(spec)))? };
    if seen == sizes && !whole { Ok(boxed) } else { reshape_to(g, boxed, seen) }
}

/// A copy of `v` after `v[parts] = source`.
///
/// # Errors
/// As [`index`]; a source that does not broadcast to the selection.
pub fn set_index(g: G<'_>, v: Val, parts: &[Index], source: Arg) -> Result<Val> {
    let meta = g.meta(v);
    let (spec, seen) = resolve_index(&meta.shape, parts)?;
    let source = match source {
        Arg::Scalar(number) => filled(g, number, spec.sizes, meta.dtype)?,
        Arg::Val(s) => {
            let wide = fit_source(g, s, meta.dtype, seen)?;
            reshape_to(g, wide, spec.sizes)?
        }
    };
    g.emit(Op::SliceScatter, &[v.into(), source.into()], Attrs::Slice(Box::new(spec)))
}

/// A tensor of one number, as [`full`], for an assignment: a large one takes the memory of one element.
///
/// # Errors
/// A number out of the dtype's range.
pub fn filled(g: G<'_>, number: Scalar, shape: Shape, dtype: DType) -> Result<Val> {
    let number = numbers::filling(number, shape.numel(), dtype)?;
    let small = shape.numel() <= FILLED_ELEMENTS_MAX;
    let create = Attrs::Create { shape: if small { shape } else { Shape::SCALAR }, dtype };
    let v = g.emit(Op::Full, &[number.into()], create)?;
    if small { Ok(v) } else { g.emit(Op::Expand, &[v.into()], Attrs::Shape(shape)) }
}

/// A copy of `v` with all elements set to one number. As a slice scatter it can write in place.
///
/// # Errors
/// A number out of the dtype's range.
pub fn fill(g: G<'_>, v: Val, number: Scalar) -> Result<Val> {
    let old = g.detach(v)?;
    set_index(g, old, &[Index::Ellipsis], number.into())
}

/// The shape under which a source of shape `from` broadcasts to a selection of shape `seen`, if it does: without the
/// leading axes of size 1 that it may have more than the selection, as in NumPy.
pub fn fitting_shape(from: Shape, seen: Shape) -> Option<Shape> {
    let (extra, rest) = from.dims().split_at(from.rank().saturating_sub(seen.rank()));
    let fitting = Shape::new(rest).ok().filter(|_| extra.iter().all(|size| *size == 1))?;
    (fitting.broadcast(&seen).ok() == Some(seen)).then_some(fitting)
}

/// The source of an assignment to a selection of shape `seen`, in its dtype and broadcast to it if it
/// [fits](fitting_shape).
///
/// # Errors
/// A source that does not broadcast to the selection.
pub fn fit_source(g: G<'_>, s: Val, dtype: DType, seen: Shape) -> Result<Val> {
    let s = cast(g, s, dtype)?;
    let from = g.meta(s).shape;
    let Some(fitting) = fitting_shape(from, seen) else {
        return Err(OpError::runtime(format!(
            "shape mismatch: value tensor of shape {from} cannot be broadcast to indexing result of shape {seen}"
        )));
    };
    let s = if fitting == from { s } else { reshape_to(g, s, fitting)? };
    if fitting == seen { Ok(s) } else { g.emit(Op::Expand, &[s.into()], Attrs::Shape(seen)) }
}

/// `len` positions of `axis` from `start` on.
///
/// # Errors
/// A range outside the tensor.
pub fn narrow(g: G<'_>, v: Val, axis: i64, start: i64, len: i64) -> Result<Val> {
    let shape = g.meta(v).shape;
    let axis = normalize_axis(axis, shape.rank())?;
    let extent = shape.dims().get(axis).map_or(0, |&size| size as i64);
    if start < -extent || start > extent {
        return Err(OpError::index(format!(
            "start out of range (expected to be in range of [-{extent}, {extent}], but got {start})"
        )));
    }
    let start = if start < 0 { start + extent } else { start };
    if len < 0 || axis >= shape.rank() || start.saturating_add(len) > extent {
        return Err(OpError::runtime(format!("start ({start}) + length ({len}) exceeds dimension size ({extent}).")));
    }
    let mut spec = SliceSpec::corner(shape.with_dim(axis, len as usize));
    spec.start[axis] = if len == 0 { 0 } else { start };
    g.emit(Op::Slice, &[v.into()], Attrs::Slice(Box::new(spec)))
}

/// Concatenates tensors along `axis` in their common dtype.
///
/// # Errors
/// No tensors, scalars, sizes that differ on another axis.
pub fn cat(g: G<'_>, tensors: &[Val], axis: i64) -> Result<Val> {
    if tensors.is_empty() {
        return Err(OpError::value("cat(): expected a non-empty list of Tensors"));
    }
    let dtype = result_type(tensors.iter().map(|v| promotable(g, &Arg::Val(*v))));
    let mut parts = Vec::with_capacity(tensors.len());
    for (i, v) in tensors.iter().enumerate() {
        let meta = g.meta(*v);
        if meta.shape.rank() == 0 {
            return Err(OpError::runtime(format!("zero-dimensional tensor (at position {i}) cannot be concatenated")));
        }
        // PyTorch skips empty vectors among tensors of any rank.
        if meta.shape.dims() == [0] && tensors.len() > 1 && tensors.iter().any(|t| g.meta(*t).shape.rank() > 1) {
            continue;
        }
        parts.push(cast(g, *v, dtype)?);
    }
    let rank = parts.first().map_or(1, |v| g.meta(*v).shape.rank());
    let axis = normalize_axis(axis, rank)? as u8;
    while parts.len() > INPUTS_MAX {
        let mut joined = Vec::with_capacity(parts.len().div_ceil(INPUTS_MAX));
        for chunk in parts.chunks(INPUTS_MAX) {
            joined.push(emit_cat(g, chunk, axis)?);
        }
        parts = joined;
    }
    emit_cat(g, &parts, axis)
}

fn emit_cat(g: G<'_>, parts: &[Val], axis: u8) -> Result<Val> {
    let args: Vec<Arg> = parts.iter().map(|v| Arg::Val(*v)).collect();
    g.emit(Op::Cat, &args, Attrs::Axis(axis))
}

/// Stacks tensors of one shape along a new axis.
///
/// # Errors
/// No tensors, shapes that differ.
pub fn stack(g: G<'_>, tensors: &[Val], axis: i64) -> Result<Val> {
    let Some(first) = tensors.first() else {
        return Err(OpError::runtime("stack expects a non-empty TensorList"));
    };
    let shape = g.meta(*first).shape;
    let mut wide = Vec::with_capacity(tensors.len());
    for (i, v) in tensors.iter().enumerate() {
        let other = g.meta(*v).shape;
        if other != shape {
            return Err(OpError::runtime(format!(
                "stack expects each tensor to be equal size, but got {shape} at entry 0 and {other} at entry {i}"
            )));
        }
        wide.push(unsqueeze(g, *v, axis)?);
    }
    cat(g, &wide, if axis < 0 { axis + shape.rank() as i64 + 1 } else { axis })
}

/// Checks that `sizes` add up to `axis` of `shape`.
///
/// # Errors
/// Sizes that do not add up to the axis, a scalar.
pub fn check_split(shape: Shape, sizes: &[i64], axis: i64) -> Result<()> {
    let position = normalize_axis(axis, shape.rank())?;
    let Some(&extent) = shape.dims().get(position) else {
        return Err(OpError::runtime("split expects at least a 1-dimensional tensor"));
    };
    if sizes.iter().any(|s| *s < 0) || sizes.iter().sum::<i64>() != extent as i64 {
        return Err(OpError::runtime(format!(
            "split_with_sizes expects split_sizes to sum exactly to {extent} (input tensor's size at dimension {axis}), but got split_sizes={sizes:?}"
        )));
    }
    Ok(())
}

/// The sizes of the pieces of `size` that `extent` splits into; the last has the rest.
///
/// # Errors
/// A size that is not positive.
pub fn split_sizes(extent: usize, size: i64) -> Result<Vec<i64>> {
    if size < 0 || (size == 0 && extent > 0) {
        return Err(OpError::runtime(format!(
            "split expects split_size be non-negative and nonzero, but got split_size={size}"
        )));
    }
    if extent == 0 {
        return Ok(vec![0]);
    }
    let extent = extent as i64;
    Ok((0..extent).step_by(size as usize).map(|at| size.min(extent - at)).collect())
}

/// The sizes of at most `chunks` equal pieces of `extent`, as `torch.chunk`.
///
/// # Errors
/// No chunks.
pub fn chunk_sizes(extent: usize, chunks: i64) -> Result<Vec<i64>> {
    if chunks <= 0 {
        return Err(OpError::runtime(format!("chunk expects `chunks` to be greater than 0, got: {chunks}")));
    }
    split_sizes(extent, (extent as i64 + chunks - 1) / chunks)
}

/// A tensor filled with one number.
///
/// # Errors
/// A number out of the dtype's range.
pub fn full(g: G<'_>, shape: Shape, value: Scalar, dtype: DType) -> Result<Val> {
    let value = numbers::filling(value, shape.numel(), dtype)?;
    g.emit(Op::Full, &[value.into()], Attrs::Create { shape, dtype })
}

/// `start, start + step, …` up to `end` (exclusive).
///
/// # Errors
/// A step of 0 or away from `end`.
pub fn arange(g: G<'_>, start: Scalar, end: Scalar, step: Scalar, dtype: Option<DType>) -> Result<Val> {
    if [start, end, step].iter().any(|s| s.category() > 2) {
        return Err(OpError::runtime("arange: expected real numbers, but got a complex one"));
    }
    let float = [start, end, step].iter().any(|s| s.category() == 2);
    let dtype = dtype.unwrap_or(if float { DType::default_float() } else { DType::I64 });
    // The dtype that PyTorch counts in.
    let counted = match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        dtype if dtype.is_float() || dtype == DType::U64 => dtype,
        _ => DType::I64,
    };
    for number in [start, end, step] {
        if matches!(number, Scalar::Unsigned(_)) || number.to_f64().is_finite() && dtype != DType::U64 {
            numbers::checked(number, counted)?;
        }
    }
    let (first, last, stride) = (start.to_f64(), end.to_f64(), step.to_f64());
    let integers = [start, end, step].map(Scalar::to_i128);
    let [start, end, step] = [start, end, step].map(|number| number.for_dtype(dtype));
    let float = float || [start, end, step].iter().any(|s| s.category() == 2);
    if stride == 0.0 {
        return Err(OpError::runtime("step must be nonzero"));
    }
    if !first.is_finite() || !last.is_finite() {
        return Err(OpError::runtime(format!("unsupported range: {first} -> {last}")));
    }
    if (stride > 0.0 && last < first) || (stride < 0.0 && last > first) {
        return Err(OpError::runtime("upper bound and lower bound inconsistent with step sign"));
    }
    let count = if float {
        ((last - first) / stride).ceil()
    } else {
        let (span, stride) = (integers[1] - integers[0], integers[2]);
        ((span + stride - stride.signum()) / stride) as f64
    };
    let shape = Shape::new(&[count as usize])?;
    // Computed as bools, all elements after the second would be equal.
    let compute = if dtype == DType::Bool { DType::I64 } else { dtype };
    let v = g.emit(Op::Arange, &[start.into(), step.into()], Attrs::Create { shape, dtype: compute })?;
    cast(g, v, dtype)
}

/// The integers `0, 1, …, count - 1`.
fn count_to(g: G<'_>, count: i64) -> Result<Val> {
    arange(g, Scalar::Int(0), Scalar::Int(count), Scalar::Int(1), Some(DType::I64))
}

/// `count` numbers from `start` to `end`, both exact. The second half counts back from `end`, as in PyTorch.
///
/// # Errors
/// A negative count, bounds out of the dtype's range, a line of bools.
pub fn linspace(g: G<'_>, start: f64, end: f64, count: i64, dtype: DType) -> Result<Val> {
    if count < 0 {
        return Err(OpError::runtime("number of steps must be non-negative"));
    }
    if dtype == DType::Bool {
        return Err(OpError::not_implemented("linspace: a line of bools is not defined"));
    }
    let shape = Shape::new(&[count as usize])?;
    // PyTorch converts the bounds first: those of integers are truncated, and negative ones of uint8 wrap.
    let converted = |bound: f64| {
        let whole = bound.fract() == 0.0 && (-2f64.powi(63)..2f64.powi(63)).contains(&bound);
        let number = if whole { Scalar::Int(bound as i64) } else { Scalar::Float(bound) };
        let number = numbers::checked(number, dtype)?;
        Ok(match (number, dtype.int_range()) {
            (Scalar::Int(negative @ ..0), (0, high)) => (i128::from(negative) & high) as f64,
            _ => number.to_f64(),
        })
    };
    let (start, end) = (converted(start)?, converted(end)?);
    if count < 2 {
        return full(g, shape, Scalar::Float(start), dtype);
    }
    // Computed in float64 and rounded once. Counting back from `end` makes the last element exact.
    let step = end / (count - 1) as f64 - start / (count - 1) as f64;
    let made = if dtype.is_float() { dtype } else { DType::F64 };
    let half = |g: G<'_>, start: f64, step: f64, count: i64| {
        let shape = Shape::new(&[count as usize])?;
        g.emit(Op::Arange, &[start.into(), step.into()], Attrs::Create { shape, dtype: made })
    };
    let up = half(g, start, step, count / 2)?;
    let down = half(g, end, -step, count - count / 2)?;
    let down = index(g, down, &[Index::Range { start: None, stop: None, step: Some(-1) }])?;
    let line = cat(g, &[up, down], 0)?;
    cast(g, line, dtype)
}

/// A `rows` × `columns` matrix with ones on the diagonal and zeros elsewhere.
///
/// # Errors
/// Negative sizes.
pub fn eye(g: G<'_>, rows: i64, columns: i64, dtype: DType) -> Result<Val> {
    if rows < 0 || columns < 0 {
        return Err(OpError::runtime(format!("n must be greater or equal to 0, got {}", rows.min(columns))));
    }
    let down = count_to(g, rows)?;
    let down = unsqueeze(g, down, 1)?;
    let along = count_to(g, columns)?;
    let diagonal = g.emit(Op::Eq, &[down.into(), along.into()], Attrs::None)?;
    cast(g, diagonal, dtype)
}

/// Random numbers: `Op::Rand`, `Op::Randn`, or `Op::Randint` with its bounds.
///
/// # Errors
/// A dtype that the op does not produce, bounds in the wrong order.
pub fn random(g: G<'_>, op: Op, bounds: &[Arg], shape: Shape, dtype: DType) -> Result<Val> {
    let (seed, stream) = g.next_random();
    g.emit(op, bounds, Attrs::Random { shape, dtype, seed, stream, first: 0 })
}

/// A gather, scatter, scan or sort along an axis. Scalars count as vectors of one element.
///
/// # Errors
/// An axis out of range; ranks or sizes that do not fit; an index that is neither int64 nor int32.
pub fn along(g: G<'_>, op: Op, axis: i64, operands: &[Val]) -> Result<Val> {
    let Some(&first) = operands.first() else {
        return Err(OpError::type_(format!("{}(): expected a Tensor", op.name())));
    };
    let meta = g.meta(first);
    let axis = normalize_axis(axis, meta.shape.rank())? as u8;
    // Scans of the other integers convert each element.
    let sums = op.row().promotion == Promotion::Sum && !meta.dtype.is_inexact();
    let widened = sums && !DTypeSet::NUMERIC.contains(meta.dtype);
    let first = if widened { cast(g, first, DType::I64)? } else { first };
    let mut args: Vec<Arg> = operands.iter().map(|v| Arg::Val(*v)).collect();
    args[0] = first.into();
    if let Some(&index) = operands.get(1)
        && g.meta(index).dtype == DType::I32
    {
        args[1] = cast(g, index, DType::I64)?.into();
    }
    // On bools the sum is a logical or, the product a logical and.
    let op = match op {
        Op::ScatterAdd if meta.dtype == DType::Bool => Op::ScatterAmax,
        Op::ScatterProd if meta.dtype == DType::Bool => Op::ScatterAmin,
        op => op,
    };
    let scalar = meta.shape.rank() == 0;
    for arg in args.iter_mut().filter(|_| scalar) {
        if let Arg::Val(v) = *arg
            && g.meta(v).shape.rank() == 0
        {
            *arg = reshape(g, v, &[1])?.into();
        }
    }
    let result = g.emit(op, &args, Attrs::Axis(axis))?;
    // A gather from a scalar by a vector gives a vector.
    let index_rank = operands.get(1).map_or(0, |v| g.meta(*v).shape.rank());
    let stays = scalar && !(op.row().class == Class::Gather && index_rank > 0);
    if stays { reshape(g, result, &[]) } else { Ok(result) }
}

/// Elements along `axis` at the positions in an index tensor of the same rank.
///
/// # Errors
/// Ranks or sizes that do not fit, an index that is not int64.
pub fn gather(g: G<'_>, v: Val, axis: i64, index: Val) -> Result<Val> {
    along(g, Op::Gather, axis, &[v, index])
}

/// The indices of the `count` true elements of a mask, one row each.
///
/// # Errors
/// A mask that is not bool.
pub fn nonzero(g: G<'_>, mask: Val, count: usize) -> Result<Val> {
    let shape = Shape::new(&[count, g.meta(mask).shape.rank()])?;
    g.emit(Op::Nonzero, &[mask.into()], Attrs::Shape(shape))
}

/// The largest (or smallest) elements along `axis`, and their indices.
///
/// # Errors
/// An axis that is out of range or has no elements.
pub fn extreme_along(g: G<'_>, op: Op, v: Val, axis: i64, keepdim: bool) -> Result<(Val, Val)> {
    let arg = if op == Op::Amax { Op::Argmax } else { Op::Argmin };
    let rank = g.meta(v).shape.rank();
    if rank == 0 {
        normalize_axis(axis, 0)?;
        let place = full(g, Shape::SCALAR, Scalar::Int(0), DType::I64)?;
        return Ok((v, place));
    }
    let places = arg_reduce(g, arg, v, Some(axis), true)?;
    let values = gather(g, v, axis, places)?;
    if keepdim {
        return Ok((values, places));
    }
    let (values, places) = (squeeze(g, values, Some(&[axis]))?, squeeze(g, places, Some(&[axis]))?);
    Ok((values, places))
}

/// The shape with these sizes.
///
/// # Errors
/// A negative size, too many dimensions or elements.
pub fn shape_of(sizes: &[i64]) -> Result<Shape> {
    let mut dims = [0usize; RANK_MAX];
    for (i, &size) in sizes.iter().enumerate() {
        if size < 0 {
            return Err(OpError::runtime(format!("Trying to create tensor with negative dimension {size}: {sizes:?}")));
        }
        if let Some(dim) = dims.get_mut(i) {
            *dim = size as usize;
        }
    }
    if sizes.len() > RANK_MAX {
        return Shape::new(&vec![1; sizes.len()]);
    }
    Shape::new(&dims[..sizes.len()])
}

/// The shape of `meta` with `dtype`, or with the dtype of `meta` if none is given.
pub fn like(meta: Meta, dtype: Option<DType>) -> Meta {
    Meta::new(meta.shape, dtype.unwrap_or(meta.dtype))
}
