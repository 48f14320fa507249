//! Padding by a constant, or by reflected, repeated or wrapped elements.

use crate::common::repeated;
use crate::declaration::functions;
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
    let shape = gt_ops::build::shape_of(&sizes)?;
    Ok(repeated(input.builder(), shape, value, input.dtype()?).set_index(&outer, part))
}

/// An axis padded by its own elements, or cropped where a size is negative.
fn padded_axis<'g>(
    g: &'g Builder<'g>,
    input: Expr<'g>,
    mode: &str,
    axis: usize,
    before: i64,
    after: i64,
) -> Result<Expr<'g>> {
    let sizes = input.sizes()?;
    let (size, along) = (sizes[axis], axis as i64);
    let start = (-before).max(0);
    let left = size - start - (-after).max(0);
    if left < 0 {
        return Err(OpError::runtime(format!(
            "The input size {size}, plus negative padding {before} and {after} resulted in a negative output size, \
             which is invalid. Check dimension {axis} of your input."
        )));
    }
    let (before, after) = (before.max(0), after.max(0));
    let inside = if left == size { input } else { input.narrow(along, start, left) };
    let mut parts = vec![inside];
    match mode {
        "reflect" => {
            if before >= size || after >= size {
                return Err(OpError::runtime(format!(
                    "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding \
                     ({before}, {after}) at dimension {axis} of input {sizes:?}"
                )));
            }
            if before > 0 {
                parts.insert(0, input.narrow(along, 1, before).flip(along));
            }
            if after > 0 {
                parts.push(input.narrow(along, size - 1 - after, after).flip(along));
            }
        }
        "replicate" => {
            if size == 0 {
                return Err(OpError::runtime(format!(
                    "Expected dimension {axis} of the input to be padded to be non-empty"
                )));
            }
            let repeated = |at: i64, count: i64| {
                let mut wide = sizes.clone();
                wide[axis] = count;
                input.narrow(along, at, 1).expand(&wide)
            };
            if before > 0 {
                parts.insert(0, repeated(0, before));
            }
            if after > 0 {
                parts.push(repeated(size - 1, after));
            }
        }
        _ => {
            // Negative padding crops first; the remaining elements are then repeated periodically.
            if left == 0 && before + after > 0 {
                return Err(OpError::runtime(format!(
                    "Expected dimension {axis} of the input to be padded to be non-empty after its negative padding"
                )));
            }
            if before > size || after > size {
                return Err(OpError::runtime("Padding value causes wrapping around more than once."));
            }
            let mut rest = before;
            while rest > 0 {
                let count = rest.min(left);
                parts.insert(0, inside.narrow(along, left - count, count));
                rest -= count;
            }
            rest = after;
            while rest > 0 {
                let count = rest.min(left);
                parts.push(inside.narrow(along, 0, count));
                rest -= count;
            }
        }
    }
    Ok(if parts.len() == 1 { inside } else { g.cat(&parts, along) })
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
            result = padded_axis(g, result, mode, axis, before, after)?;
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
