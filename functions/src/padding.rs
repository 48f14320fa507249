//! Padding by a constant, or by reflected, repeated or wrapped elements.

use crate::common::filled;
use crate::declaration::functions;
use crate::indexing::index_select;
use gt_ops::build::Index;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, module};
use gt_ops::{OpError, Scalar};

/// Checks that there is a pair for each of the last axes.
fn check_pairs(input: Expr<'_>, pad: &[i64]) -> Result<()> {
    if !pad.len().is_multiple_of(2) {
        return Err(OpError::runtime("Padding length must be divisible by 2"));
    }
    let rank = input.rank()?;
    if pad.len() / 2 > rank {
        return Err(OpError::runtime(format!(
            "Padding length should be less than or equal to two times the input dimension but got padding length {} \
             and input of dimension {rank}",
            pad.len()
        )));
    }
    Ok(())
}

/// The last axes padded with one number, or cropped where a size is negative.
fn constant<'g>(input: Expr<'g>, pad: &[i64], value: Scalar) -> Result<Expr<'g>> {
    let whole = Index::Range { start: None, stop: None, step: None };
    let range = |start: i64, stop: i64| Index::Range { start: Some(start), stop: Some(stop), step: None };
    let mut sizes = input.sizes()?;
    let (mut inner, mut outer) = (vec![whole; sizes.len()], vec![whole; sizes.len()]);
    for (i, pair) in pad.chunks_exact(2).enumerate() {
        let (axis, before, after) = (sizes.len() - 1 - i, pair[0], pair[1]);
        let size = sizes[axis];
        sizes[axis] = size + before + after;
        if sizes[axis] < 0 {
            return Err(OpError::runtime(format!(
                "The input size {size}, plus negative padding {before} and {after} resulted in a negative output size, \
                 which is invalid. Check dimension {axis} of your input."
            )));
        }
        inner[axis] = range((-before).max(0), size - (-after).max(0));
        outer[axis] = range(before.max(0), sizes[axis] - after.max(0));
    }
    let part = input.index(&inner);
    if pad.iter().all(|size| *size <= 0) {
        return Ok(part.copied());
    }
    Ok(filled(input.builder(), &sizes, value, input.dtype()?).set_index(&outer, part))
}

/// The index that a padded axis has at each position of the result.
fn padded_index(input: Expr<'_>, mode: &str, axis: usize, before: i64, after: i64) -> Result<Vec<i64>> {
    let sizes = input.sizes()?;
    let size = sizes[axis];
    let all = -before..size + after;
    Ok(match mode {
        "reflect" => {
            if before >= size || after >= size {
                return Err(OpError::runtime(format!(
                    "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding \
                     ({before}, {after}) at dimension {axis} of input {sizes:?}"
                )));
            }
            all.map(|i| if i < size { i.abs() } else { 2 * (size - 1) - i }).collect()
        }
        "replicate" => {
            if size == 0 {
                return Err(OpError::runtime(format!(
                    "Expected dimension {axis} of the input to be padded to be non-empty"
                )));
            }
            all.map(|i| i.clamp(0, size - 1)).collect()
        }
        _ => {
            if before > size || after > size {
                return Err(OpError::runtime("Padding value causes wrapping around more than once."));
            }
            // Negative padding crops first; the remaining elements are then repeated periodically.
            let cut = (-before).max(0);
            let left = size - cut - (-after).max(0);
            (-before.max(0)..left + after.max(0)).map(|i| cut + i.rem_euclid(left)).collect()
        }
    })
}

/// `nn.functional.pad`.
pub(crate) fn padded<'g>(
    g: &'g Builder<'g>,
    input: Expr<'g>,
    pad: &[i64],
    mode: &str,
    value: Option<f64>,
) -> Result<Expr<'g>> {
    check_pairs(input, pad)?;
    if mode == "constant" {
        return constant(input, pad, Scalar::Float(value.unwrap_or(0.0)));
    }
    if value.is_some_and(|value| value != 0.0) {
        return Err(OpError::runtime(format!("Padding mode \"{mode}\" doesn't take in value argument")));
    }
    if !["reflect", "replicate", "circular"].contains(&mode) {
        return Err(OpError::not_implemented(format!("Unrecognised padding mode {mode}")));
    }
    let (axes, rank) = (pad.len() / 2, input.rank()?);
    if !(1..=3).contains(&axes) || (rank != axes + 1 && rank != axes + 2) {
        return Err(OpError::not_implemented(
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now, of all axes but one or \
             two",
        ));
    }
    let mut result = input;
    for (i, sizes) in pad.chunks_exact(2).enumerate() {
        let (axis, before, after) = (rank - 1 - i, sizes[0], sizes[1]);
        if before != 0 || after != 0 {
            let index = padded_index(result, mode, axis, before, after)?;
            result = index_select(g, result, axis as i64, g.ints(&index, &[index.len() as i64]))?;
        }
    }
    Ok(result.copied())
}

functions! {
    /// Pads a tensor at the ends of its last axes.
    ///
    /// Args:
    ///     input: Any tensor; for modes other than `"constant"`, it has one or two axes more than are padded.
    ///     pad: (before, after) for the last axis, then for the one before it, and so on; negative sizes crop.
    ///     mode: `"constant"`, `"reflect"`, `"replicate"` (repeats the edge) or `"circular"`.
    ///     value: The constant; 0 if not given.
    ///
    /// Example:
    ///     >>> gt.nn.functional.pad(gt.tensor([1.0, 2.0]), (1, 2))
    ///     tensor([0., 1., 2., 0., 0.])
    ///     >>> gt.nn.functional.pad(gt.tensor([[1.0, 2.0, 3.0]]), (2, 0), mode="reflect")
    ///     tensor([[3., 2., 1., 2., 3.]])
    [module("nn.functional")]
    fn pad(g, input: Expr<'g>, pad_: &'g [i64], mode: &'g str = "constant", value: Option<f64> = None)
        -> Result<Expr<'g>> {
        padded(g, input, pad_, mode, value)
    }

    /// The last axes padded with one number: `nn.functional.pad` in its constant mode.
    ///
    /// Args:
    ///     input: A tensor.
    ///     pad: Pairs (before, after) for the last axis, the one before it and so on; negative numbers crop.
    ///     value: The number.
    ///
    /// Example:
    ///     >>> gt.constant_pad_nd(gt.ones(2), (1, 2))
    ///     tensor([0., 1., 1., 0., 0.])
    [function()]
    fn constant_pad_nd(g, input: Expr<'g>, pad: &'g [i64], value: Scalar = Scalar::Int(0)) -> Result<Expr<'g>> {
        check_pairs(input, pad)?;
        constant(input, pad, value)
    }
}
