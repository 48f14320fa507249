//! Layers and losses of `gt.nn.functional` that are one instruction each.

use crate::convert::TensorArg;
use crate::error::{OrRaise, raise_op};
use crate::tensor::{PyTensor, build_from};
use gt_client::Tensor;
use gt_ops::build::row_wise;
use gt_ops::error::Result as OpResult;
use gt_ops::instruction::{LossReduction, LossSpec};
use gt_ops::{Graph, Op, OpError, Val};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Calls a builder on required and optional tensors.
fn build_with<const N: usize, const M: usize>(
    py: Python<'_>,
    tensors: [TensorArg<'_>; N],
    optional: [Option<TensorArg<'_>>; M],
    build: impl FnOnce(&mut dyn Graph, [Val; N], [Option<Val>; M]) -> OpResult<Val>,
) -> PyResult<PyTensor> {
    let given = tensors.each_ref().map(|t| t.get().read(py));
    let perhaps = optional.each_ref().map(|t| t.as_ref().map(|t| t.get().read(py)));
    let all: Vec<&Tensor> = given.iter().map(|t| &**t).chain(perhaps.iter().flatten().map(|t| &**t)).collect();
    build_from(
        &all,
        |g, v| {
            let mut next = N;
            let rest = std::array::from_fn(|i| {
                perhaps[i].as_ref().map(|_| {
                    next += 1;
                    v[next - 1]
                })
            });
            build(g, std::array::from_fn(|i| v[i]), rest)
        },
        |s, v| s.tensor(v),
    )
    .or_raise()
    .map(PyTensor::wrap)
}

/// Cross entropy between logits (log-probabilities if `scores` is false) and class indices.
#[pyfunction]
#[pyo3(signature = (input, target, weight, ignore_index, reduction, label_smoothing, scores))]
#[expect(clippy::too_many_arguments, reason = "PyTorch's signature")]
fn class_loss(
    py: Python<'_>,
    input: TensorArg<'_>,
    target: TensorArg<'_>,
    weight: Option<TensorArg<'_>>,
    ignore_index: i64,
    reduction: &str,
    label_smoothing: f64,
    scores: bool,
) -> PyResult<PyTensor> {
    let reduction = match reduction {
        "mean" => LossReduction::Mean,
        "sum" => LossReduction::Sum,
        "none" => LossReduction::None,
        other => return Err(PyValueError::new_err(format!("{other} is not a valid value for reduction"))),
    };
    if weight.as_ref().is_some_and(|weight| weight.get().read(py).requires_grad()) {
        return Err(PyRuntimeError::new_err("the derivative for 'weight' is not implemented"));
    }
    let spec = LossSpec { reduction, ignore_index, smoothing: label_smoothing };
    let op = if scores { Op::CrossEntropy } else { Op::NllLoss };
    build_with(py, [input, target], [weight], |g, [input, target], [weight]| {
        row_wise::class_loss(g, op, input, target, weight, spec)
    })
}

/// Layer normalization (RMS normalization if `centre` is false) over the last axes, whose sizes are
/// `normalized_shape`.
#[pyfunction]
#[pyo3(signature = (input, normalized_shape, weight, bias, eps, centre))]
fn norm(
    py: Python<'_>,
    input: TensorArg<'_>,
    normalized_shape: Vec<usize>,
    weight: Option<TensorArg<'_>>,
    bias: Option<TensorArg<'_>>,
    eps: f64,
    centre: bool,
) -> PyResult<PyTensor> {
    let meta = input.get().read(py).meta();
    if normalized_shape.is_empty() {
        return Err(PyRuntimeError::new_err(
            "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = []",
        ));
    }
    for (name, parameter) in [("weight", &weight), ("bias", &bias)] {
        let Some(parameter) = parameter else { continue };
        let shape = parameter.get().read(py).meta().shape;
        if shape.dims() != normalized_shape {
            return Err(PyRuntimeError::new_err(format!(
                "Expected {name} to be of same shape as normalized_shape, but got {name} of shape {shape} and normalized_shape = {normalized_shape:?}"
            )));
        }
    }
    if !meta.shape.dims().ends_with(&normalized_shape) {
        let sizes = normalized_shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        return Err(PyRuntimeError::new_err(format!(
            "Given normalized_shape={normalized_shape:?}, expected input with shape [*, {sizes}], but got input of size{}",
            meta.shape
        )));
    }
    if !meta.dtype.is_float() {
        let name = if centre { "LayerNormKernelImpl" } else { "RMSNormKernelImpl" };
        return Err(raise_op(OpError::runtime(format!(
            "\"{name}\" not implemented for '{}'",
            meta.dtype.scalar_type_name()
        ))));
    }
    let op = if centre { Op::LayerNorm } else { Op::RmsNorm };
    build_with(py, [input], [weight, bias], |g, [input], [weight, bias]| {
        row_wise::norm(g, op, input, normalized_shape.len(), weight, bias, eps)
    })
}

/// Scaled dot-product attention without dropout.
#[pyfunction]
#[pyo3(signature = (query, key, value, attn_mask, is_causal, scale))]
fn attention(
    py: Python<'_>,
    query: TensorArg<'_>,
    key: TensorArg<'_>,
    value: TensorArg<'_>,
    attn_mask: Option<TensorArg<'_>>,
    is_causal: bool,
    scale: Option<f64>,
) -> PyResult<PyTensor> {
    build_with(py, [query, key, value], [attn_mask], |g, operands, [mask]| {
        row_wise::attention(g, operands, mask, is_causal, scale)
    })
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(class_loss, module)?)?;
    module.add_function(wrap_pyfunction!(norm, module)?)?;
    module.add_function(wrap_pyfunction!(attention, module)?)
}
