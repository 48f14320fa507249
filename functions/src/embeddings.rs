//! Embedding look-up, embedding bags and one-hot encoding.

use crate::common::{filled, zeros};
use crate::declaration::functions;
use crate::norms::norm_of_order;
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::{DType, Op};

/// A program in Python has sparse gradients: the package computes them where this error is raised.
const SPARSE: &str = "sparse=True: the gradients of this function are dense. nn.functional.embedding and \
                      nn.Embedding of the Python package have sparse ones.";

/// `value` with the gradient of `x`, whose value is the same up to rounding.
fn with_gradient_of<'g>(value: Expr<'g>, x: Expr<'g>) -> Expr<'g> {
    value.detach() + (x - x.detach())
}

/// The matrix in which the rows that `index` names have at most a norm; it takes no part in gradients.
fn renormed<'g>(g: &'g Builder<'g>, weight: Expr<'g>, index: Expr<'g>, most: f64, p: f64) -> Result<Expr<'g>> {
    let weight = weight.detach();
    let ones = g.full(&index.shape()?, 1i64, DType::I64);
    let found = zeros(g, &[weight.size(0)?], DType::I64).scatter(Op::Scatter, 0, index, ones).gt(0i64).unsqueeze(1);
    let norms = norm_of_order(weight, p, &[1], true)?;
    Ok((found & norms.gt(most)).where_(weight * (most / (norms + 1e-7)), weight))
}

functions! {
    /// One-hot encoding of class indices: int64 `(*, num_classes)` with a 1 at each index.
    ///
    /// Args:
    ///     input: Class indices of any shape, at least 0.
    ///     num_classes: The number of classes; -1 for the largest index plus 1, which waits for the input's values.
    ///
    /// Raises:
    ///     RuntimeError: A class is negative or not smaller than `num_classes`; with `num_classes`, raised when the
    ///         result is fetched.
    ///
    /// Example:
    ///     >>> gt.nn.functional.one_hot(gt.tensor([0, 2]), 3)
    ///     tensor([[1, 0, 0],
    ///             [0, 0, 1]])
    [module("nn.functional")]
    fn one_hot(g, input: Expr<'g>, num_classes: i64 = -1) -> Result<Expr<'g>> {
        if input.dtype()? != DType::I64 {
            return Err(OpError::runtime("one_hot is only applicable to index tensor of type LongTensor."));
        }
        let (mut sizes, mut classes) = (input.sizes()?, num_classes);
        if input.numel()? == 0 {
            if classes <= 0 {
                return Err(OpError::runtime("Can not infer total number of classes from empty tensor."));
            }
        } else if classes == -1 {
            if input.amin(&[], false).item()?.to_i64() < 0 {
                return Err(OpError::runtime("Class values must be non-negative."));
            }
            classes = input.amax(&[], false).item()?.to_i64() + 1;
        } else if classes < 1 {
            return Err(OpError::runtime("Class values must be smaller than num_classes."));
        }
        sizes.push(classes);
        // A class that is out of range is found where its 1 is written.
        let index = input.unsqueeze(-1);
        let ones = g.full(&index.shape()?, 1i64, DType::I64);
        Ok(zeros(g, &sizes, DType::I64).scatter(Op::Scatter, -1, index, ones))
    }

    /// Looks up rows of an embedding matrix: `weight[input]`.
    ///
    /// Args:
    ///     input: Indices of any shape `(*)`, from 0 to `num_embeddings - 1`.
    ///     weight: `(num_embeddings, embedding_dim)`.
    ///     padding_idx: The row whose gradient is zero.
    ///     max_norm: Looked-up rows of a larger norm are first rescaled to it, in place.
    ///     norm_type: The order of that norm.
    ///     scale_grad_by_freq: Whether a row's gradient is divided by the row's number of occurrences in `input`.
    ///     sparse: Whether the gradient of the weight, if that is a leaf, is a sparse COO tensor of the rows that were
    ///         looked up.
    ///
    /// Returns:
    ///     `(*, embedding_dim)`.
    ///
    /// Raises:
    ///     IndexError: An index is out of range; raised when the result is fetched.
    ///
    /// Example:
    ///     >>> weight = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> gt.nn.functional.embedding(gt.tensor([1, 0, 1]), weight)
    ///     tensor([[3., 4.],
    ///             [1., 2.],
    ///             [3., 4.]])
    [module("nn.functional").updates(&["weight"])]
    fn embedding(g, input: Expr<'g>, weight: Expr<'g>, padding_idx: Option<i64> = None, max_norm: Option<f64> = None,
        norm_type: f64 = 2.0, scale_grad_by_freq: bool = false, sparse: bool = false) -> Result<[Expr<'g>; 2]> {
        if sparse && weight.requires_grad() {
            return Err(OpError::not_implemented(SPARSE));
        }
        let (of_index, of_weight) = (input.meta()?, weight.meta()?);
        if !matches!(of_index.dtype, DType::I32 | DType::I64) {
            return Err(OpError::runtime(format!(
                "embedding: expected indices of dtype int32 or int64, but got {}",
                of_index.dtype
            )));
        }
        let [count, features] = *of_weight.shape.dims() else {
            return Err(OpError::runtime(format!("'weight' must be 2-D, but got shape {}", of_weight.shape)));
        };
        let [count, features] = [count as i64, features as i64];
        let index = input.to(DType::I64);
        let flat = index.reshape(&[-1]);
        let wide = index.reshape(&[-1, 1]).expand(&[-1, features]);
        let mut rows = weight.gather(0, wide);
        let mut updated = weight;
        if let Some(most) = max_norm {
            updated = renormed(g, weight, flat, most, norm_type)?;
            // The gradient is that of a look-up in the rescaled matrix: the rescaling has none.
            rows = with_gradient_of(updated.gather(0, wide), rows);
        }
        if scale_grad_by_freq && rows.requires_grad() {
            let dtype = of_weight.dtype;
            let ones = g.full(&flat.shape()?, 1.0, dtype);
            let occurrences = zeros(g, &[count], dtype).scatter(Op::ScatterAdd, 0, flat, ones).gather(0, flat).unsqueeze(1);
            rows = rows.detach() + (rows - rows.detach()) / occurrences;
        }
        let mut sizes = input.sizes()?;
        sizes.push(features);
        let rows = rows.reshape(&sizes);
        let Some(padding) = padding_idx else { return Ok([rows, updated]) };
        if !(-count..count).contains(&padding) {
            return Err(OpError::assertion("Padding_idx must be within num_embeddings"));
        }
        let pads = index.eq(padding.rem_euclid(count)).unsqueeze(-1);
        Ok([pads.where_(rows.detach(), rows), updated])
    }

    /// Sum, mean or maximum of embedding vectors over each bag of indices; an empty bag gives zeros.
    ///
    /// Args:
    ///     input: `(bags, indices)`, or the indices of all bags one after the other.
    ///     weight: `(num_embeddings, embedding_dim)`.
    ///     offsets: Where each bag starts, if `input` has one axis.
    ///     max_norm: See `embedding`.
    ///     norm_type: See `embedding`.
    ///     scale_grad_by_freq: See `embedding`.
    ///     mode: `"sum"`, `"mean"` or `"max"`.
    ///     sparse: See `embedding`; not for `"max"`.
    ///     per_sample_weights: The factor of each vector, for `"sum"`.
    ///     include_last_offset: Whether the last offset is the end of the last bag.
    ///     padding_idx: An index that is skipped.
    ///
    /// Returns:
    ///     `(bags, embedding_dim)`.
    ///
    /// Example:
    ///     >>> weight = gt.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    ///     >>> gt.nn.functional.embedding_bag(gt.tensor([[0, 1], [2, 2]]), weight, mode="sum")
    ///     tensor([[ 4.,  6.],
    ///             [10., 12.]])
    [module("nn.functional").updates(&["weight"])]
    fn embedding_bag(g, input: Expr<'g>, weight: Expr<'g>, offsets: Option<Expr<'g>> = None,
        max_norm: Option<f64> = None, norm_type: f64 = 2.0, scale_grad_by_freq: bool = false, mode: &'g str = "mean",
        sparse: bool = false, per_sample_weights: Option<Expr<'g>> = None, include_last_offset: bool = false,
        padding_idx: Option<i64> = None) -> Result<[Expr<'g>; 2]> {
        if !matches!(mode, "sum" | "mean" | "max") {
            return Err(OpError::value("mode has to be one of sum, mean or max"));
        }
        if per_sample_weights.is_some() && mode != "sum" {
            return Err(OpError::not_implemented(format!(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' \
                 (got mode='{mode}')."
            )));
        }
        let (bags, bag) = match (&input.sizes()?[..], offsets) {
            ([_, _], Some(_)) => {
                return Err(OpError::value(
                    "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length \
                     sequences.",
                ));
            }
            ([bags, length], None) => {
                (*bags, g.arange(*bags, DType::I64).unsqueeze(1).expand(&[*bags, *length]).reshape(&[-1]))
            }
            ([_], None) => return Err(OpError::value("offsets has to be a 1D Tensor but got None")),
            ([count], Some(offsets)) => {
                let bags = offsets.numel()? as i64 - i64::from(include_last_offset);
                let starts = offsets.narrow(0, 0, bags);
                // The bag of an index is the number of bags that start at or before it, minus 1.
                let after = g.arange(*count, DType::I64).unsqueeze(1).ge(starts);
                (bags, after.to(DType::I64).sum(&[1], false) - 1i64)
            }
            (sizes, _) => {
                return Err(OpError::value(format!(
                    "input has to be 1D or 2D Tensor, but got Tensor of dimension {}",
                    sizes.len()
                )));
            }
        };
        let index = input.reshape(&[-1]);
        let [mut rows, updated] =
            embedding(g, index, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)?;
        let (dtype, features) = (weight.dtype()?, weight.size(1)?);
        let counts = match padding_idx {
            Some(padding) => index.ne(padding.rem_euclid(weight.size(0)?)).to(dtype),
            None => g.full(&index.shape()?, 1.0, dtype),
        };
        if let Some(shares) = per_sample_weights {
            rows = rows * shares.reshape(&[-1]).unsqueeze(1);
        }
        let into = bag.unsqueeze(1).expand(&[-1, features]);
        if mode == "max" {
            let hidden = counts.eq(0.0).unsqueeze(1).where_(f64::NEG_INFINITY, rows);
            let largest = filled(g, &[bags, features], f64::NEG_INFINITY, dtype).scatter(Op::ScatterAmax, 0, into, hidden);
            return Ok([largest.eq(f64::NEG_INFINITY).where_(0.0, largest), updated]);
        }
        let total = zeros(g, &[bags, features], dtype).scatter(Op::ScatterAdd, 0, into, rows * counts.unsqueeze(1));
        if mode == "sum" {
            return Ok([total, updated]);
        }
        let sizes = zeros(g, &[bags, 1], dtype).scatter(Op::ScatterAdd, 0, bag.unsqueeze(1), counts.unsqueeze(1));
        Ok([total / sizes.clamp_min(1i64), updated])
    }
}
