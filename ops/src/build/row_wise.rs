//! Builders of row-wise ops: they reshape, expand and cast operands to the shapes and dtypes that the ops take.

use crate::build::{cast, expand, permute, reshape, transpose};
use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::graph::{Arg, Graph, Val};
use crate::infer::{check_accepts, matmul_mismatch};
use crate::instruction::{Attrs, LossReduction, LossSpec};
use crate::op::Op;
use crate::shape::{Meta, Shape, normalize_axis};

type G<'a> = &'a mut dyn Graph;

/// `Op::Softmax` or `Op::LogSoftmax` along any axis.
///
/// # Errors
/// An axis out of range, integers.
pub fn softmax(g: G<'_>, op: Op, v: Val, axis: i64) -> Result<Val> {
    let Meta { shape, dtype } = g.meta(v);
    let (axis, rank) = (normalize_axis(axis, shape.rank())?, shape.rank());
    check_accepts(op, dtype)?;
    if rank == 0 {
        let row = reshape(g, v, &[1])?;
        let out = g.emit(op, &[row.into()], Attrs::None)?;
        return reshape(g, out, &[]);
    }
    if axis + 1 == rank {
        return g.emit(op, &[v.into()], Attrs::None);
    }
    let turned = transpose(g, v, axis as i64, -1)?;
    let out = g.emit(op, &[turned.into()], Attrs::None)?;
    transpose(g, out, axis as i64, -1)
}

/// `Op::CrossEntropy` or `Op::NllLoss` of logits or log-probabilities of shape `(classes)`, `(samples, classes)` or
/// `(samples, classes, …)`, and class indices of that shape without the class axis.
///
/// # Errors
/// Sizes that do not fit each other, with PyTorch's messages.
pub fn class_loss(g: G<'_>, op: Op, input: Val, target: Val, weight: Option<Val>, spec: LossSpec) -> Result<Val> {
    if !(0.0..=1.0).contains(&spec.smoothing) {
        return Err(OpError::runtime(format!("label_smoothing must be between 0.0 and 1.0. Got: {}", spec.smoothing)));
    }
    let (scores, indices) = (g.meta(input), g.meta(target));
    let rank = scores.shape.rank();
    let dims = scores.shape.dims();
    if rank == 0 {
        return Err(OpError::value(
            "cross entropy: expected input of shape (classes) or (samples, classes, ...), but got a scalar",
        ));
    }
    let class_axis = rank.min(2) - 1;
    let samples: Vec<usize> =
        dims.iter().enumerate().filter(|(axis, _)| *axis != class_axis).map(|(_, d)| *d).collect();
    let wanted = indices.shape.dims();
    if samples.first() != wanted.first() {
        return Err(OpError::value(format!(
            "Expected input batch_size ({}) to match target batch_size ({}).",
            samples.first().unwrap_or(&1),
            wanted.first().unwrap_or(&1)
        )));
    }
    if samples != wanted {
        return Err(OpError::runtime(format!("Expected target size {samples:?}, got {wanted:?}")));
    }
    if !scores.dtype.is_float() {
        let name = if op == Op::CrossEntropy { "log_softmax_lastdim_kernel_impl" } else { "nll_loss_out_frame" };
        return Err(OpError::not_implemented(format!(
            "\"{name}\" not implemented for '{}'",
            scores.dtype.scalar_type_name()
        )));
    }
    let classes = dims[class_axis];
    let weight: Arg = match weight {
        Some(weight) if g.meta(weight).shape.dims() != [classes] => {
            return Err(OpError::runtime(format!(
                "weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: {}",
                g.meta(weight).shape
            )));
        }
        Some(weight) => cast(g, weight, scores.dtype)?.into(),
        None => 1.0.into(),
    };
    let target = cast(g, target, DType::I64)?;
    let (rows, index) = if rank == 2 {
        (input, target)
    } else {
        let last = if rank > 2 {
            let mut order: Vec<i64> = (0..rank as i64).filter(|axis| *axis != 1).collect();
            order.push(1);
            permute(g, input, &order)?
        } else {
            input
        };
        let count = indices.shape.numel() as i64;
        (reshape(g, last, &[count, classes as i64])?, reshape(g, target, &[count])?)
    };
    let losses = g.emit(op, &[rows.into(), index.into(), weight], Attrs::Loss(spec))?;
    if rank == 2 || spec.reduction != LossReduction::None {
        return Ok(losses);
    }
    let shape: Vec<i64> = wanted.iter().map(|d| *d as i64).collect();
    reshape(g, losses, &shape)
}

/// `Op::LayerNorm` or `Op::RmsNorm` over the last `axes` axes.
///
/// # Errors
/// Integer tensors.
pub fn norm(g: G<'_>, op: Op, v: Val, axes: usize, weight: Option<Val>, bias: Option<Val>, eps: f64) -> Result<Val> {
    let Meta { shape, dtype } = g.meta(v);
    let lead = shape.rank() - axes;
    let columns: usize = shape.dims()[lead..].iter().product();
    let mut fit = |parameter: Option<Val>, otherwise: f64| -> Result<Arg> {
        let Some(parameter) = parameter else { return Ok(otherwise.into()) };
        let flat = if axes == 1 { parameter } else { reshape(g, parameter, &[columns as i64])? };
        cast(g, flat, dtype).map(Arg::from)
    };
    let mut operands = Vec::with_capacity(4);
    operands.extend([Arg::from(v), fit(weight, 1.0)?]);
    if op == Op::LayerNorm {
        operands.push(fit(bias, 0.0)?);
    }
    operands.push(eps.into());
    if axes == 1 {
        return g.emit(op, &operands, Attrs::None);
    }
    let sizes = |dims: &[usize]| dims.iter().map(|d| *d as i64).collect::<Vec<_>>();
    let mut rows = sizes(&shape.dims()[..lead]);
    rows.push(columns as i64);
    operands[0] = reshape(g, v, &rows)?.into();
    let out = g.emit(op, &operands, Attrs::None)?;
    reshape(g, out, &sizes(shape.dims()))
}

/// `softmax(query @ key.mT * scale + mask) @ value`; leading axes broadcast. A bool mask is true where a query attends
/// to a key.
///
/// # Errors
/// Shapes or dtypes that do not fit each other.
pub fn attention(
    g: G<'_>,
    [query, key, value]: [Val; 3],
    mask: Option<Val>,
    causal: bool,
    scale: Option<f64>,
) -> Result<Val> {
    let (q, k, v) = (g.meta(query), g.meta(key), g.meta(value));
    if q.dtype != k.dtype || q.dtype != v.dtype {
        return Err(OpError::runtime(format!(
            "Expected query, key, and value to have the same dtype, but got query.dtype: {} key.dtype: {} and value.dtype: {} instead.",
            q.dtype, k.dtype, v.dtype
        )));
    }
    if [q, k, v].iter().any(|m| m.shape.rank() < 2) {
        return Err(OpError::runtime(format!(
            "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim(): {}, key.dim(): {} and value.dim(): {} instead.",
            q.shape.rank(),
            k.shape.rank(),
            v.shape.rank()
        )));
    }
    let split = |m: &Meta| {
        let (lead, last) = m.shape.dims().split_at(m.shape.rank() - 2);
        (lead.to_vec(), last[0], last[1])
    };
    let ((lead, targets, features), (key_lead, sources, key_features), (value_lead, value_sources, out)) =
        (split(&q), split(&k), split(&v));
    if features != key_features {
        return Err(matmul_mismatch(
            &q.shape,
            &k.shape.with_dim(k.shape.rank() - 2, key_features).with_dim(k.shape.rank() - 1, sources),
        ));
    }
    if sources != value_sources {
        return Err(OpError::runtime(format!(
            "Expected key and value to have the same sequence length, but got {sources} and {value_sources}."
        )));
    }
    let shape = |dims: &[usize]| Shape::new(dims);
    let common = shape(&lead)?.broadcast(&shape(&key_lead)?)?.broadcast(&shape(&value_lead)?)?;
    let sizes = |last: [usize; 2]| common.dims().iter().chain(&last).map(|d| *d as i64).collect::<Vec<_>>();
    let mut operands = Vec::with_capacity(4);
    for (tensor, own, last) in [
        (query, &lead, [targets, features]),
        (key, &key_lead, [sources, features]),
        (value, &value_lead, [sources, out]),
    ] {
        let fitted = if own[..] == *common.dims() { tensor } else { expand(g, tensor, &sizes(last))? };
        operands.push(Arg::from(fitted));
    }
    if let Some(mask) = mask {
        let added = match g.meta(mask).dtype {
            DType::Bool => {
                let dtype = q.dtype;
                g.emit(Op::Where, &[mask.into(), 0.0.into(), f64::NEG_INFINITY.into()], Attrs::DType(dtype))?
            }
            dtype if dtype.is_float() => cast(g, mask, q.dtype)?,
            other => {
                return Err(OpError::runtime(format!(
                    "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {other} and  query.dtype: {} instead.",
                    q.dtype
                )));
            }
        };
        operands.push(expand(g, added, &sizes([targets, sources]))?.into());
    }
    let scale = scale.unwrap_or(1.0 / (features as f64).sqrt());
    g.emit(Op::Attention, &operands, Attrs::Attention { causal, scale })
}
