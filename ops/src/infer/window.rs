//! Shape rules of convolutions and pools.

use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::op::Op;
use crate::shape::{Meta, Shape};
use crate::window::{POOL_WINDOW_MAX, WINDOW_AXES_MAX, WindowSpec};

fn refuse(op: Op, what: impl Into<String>) -> OpError {
    OpError::runtime(format!("{}: {}", op.name(), what.into()))
}

/// The first two sizes of a shape whose others are `sizes`.
fn lead(op: Op, shape: &Shape, sizes: &[usize]) -> Result<(usize, usize)> {
    match shape.dims() {
        [first, second, rest @ ..] if rest == sizes => Ok((*first, *second)),
        _ => Err(refuse(op, format!("expected a shape (n, c) followed by {sizes:?}, but got {shape}"))),
    }
}

fn shape_of(first: usize, second: usize, sizes: &[usize]) -> Result<Shape> {
    let mut dims = [0; 2 + WINDOW_AXES_MAX];
    dims[0] = first;
    dims[1] = second;
    dims[2..2 + sizes.len()].copy_from_slice(sizes);
    Shape::new(&dims[..2 + sizes.len()])
}

/// The result's shape and dtype of an op of class convolution.
///
/// # Errors
/// Operands whose shapes do not fit `spec` or each other, dtypes that differ.
pub fn convolution(op: Op, a: &Meta, b: &Meta, bias: Option<&Meta>, spec: &WindowSpec) -> Result<Meta> {
    let output = spec.output()?;
    let (input, kernel, output) = (spec.used(&spec.input), spec.used(&spec.kernel), spec.used(&output));
    if a.dtype != b.dtype || bias.is_some_and(|bias| bias.dtype != a.dtype) {
        let other = if a.dtype == b.dtype { bias.map_or(b.dtype, |bias| bias.dtype) } else { b.dtype };
        return Err(OpError::runtime(format!(
            "Input type ({}) and bias type ({}) should be the same",
            a.dtype.scalar_type_name(),
            other.scalar_type_name()
        )));
    }
    let groups = spec.groups;
    let divides = |channels: usize| match channels.is_multiple_of(groups) {
        true => Ok(channels / groups),
        false => Err(refuse(op, format!("{channels} channels are not divisible by {groups} groups"))),
    };
    let shape = match op {
        Op::Convolution => {
            let ((samples, channels), (made, seen)) = (lead(op, &a.shape, input)?, lead(op, &b.shape, kernel)?);
            if !made.is_multiple_of(groups) {
                return Err(OpError::runtime(format!(
                    "Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size {} instead",
                    b.shape
                )));
            }
            if seen.checked_mul(groups) != Some(channels) {
                return Err(OpError::runtime(format!(
                    "Given groups={groups}, weight of size {}, expected input{} to have {} channels, but got {channels} channels instead",
                    b.shape,
                    a.shape,
                    seen.saturating_mul(groups)
                )));
            }
            if let Some(bias) = bias
                && bias.shape.dims() != [made]
            {
                return Err(OpError::runtime(format!(
                    "Given weight of size {}, expected bias to be 1-dimensional with {made} elements, but got bias of size {} instead",
                    b.shape, bias.shape
                )));
            }
            shape_of(samples, made, output)?
        }
        _ if bias.is_some() => return Err(refuse(op, "takes two operands")),
        Op::ConvolutionInput => {
            let ((samples, made), (rows, seen)) = (lead(op, &a.shape, output)?, lead(op, &b.shape, kernel)?);
            divides(made)?;
            if rows != made {
                return Err(refuse(op, format!("expected {rows} channels, but got {made}")));
            }
            let channels = seen.checked_mul(groups).ok_or_else(|| refuse(op, "too many channels"))?;
            shape_of(samples, channels, input)?
        }
        _ => {
            let ((samples, made), (other, channels)) = (lead(op, &a.shape, output)?, lead(op, &b.shape, input)?);
            divides(made)?;
            if samples != other {
                return Err(refuse(op, format!("{samples} and {other} samples")));
            }
            shape_of(made, divides(channels)?, kernel)?
        }
    };
    Ok(Meta::new(shape, a.dtype))
}

/// The result's shape and dtype of an op of class pooling.
///
/// # Errors
/// As [`convolution`].
pub fn pooling(op: Op, a: &Meta, other: Option<&Meta>, spec: &WindowSpec) -> Result<Meta> {
    let output = spec.output()?;
    let (input, output) = (spec.used(&spec.input), spec.used(&output));
    if spec.groups != 1 {
        return Err(refuse(op, "pools have no groups"));
    }
    // A convolution's kernel is bounded by its weight's memory; a pool's kernel needs a limit of its own.
    if spec.kernel.iter().try_fold(1usize, |all, size| all.checked_mul(*size)).is_none_or(|all| all > POOL_WINDOW_MAX) {
        return Err(refuse(op, format!("a window has at most {POOL_WINDOW_MAX} elements")));
    }
    let backwards = matches!(op, Op::MaxPoolInput | Op::SumPoolInput);
    let (samples, channels) = lead(op, &a.shape, if backwards { output } else { input })?;
    let shape = shape_of(samples, channels, if backwards { input } else { output })?;
    if let Some(other) = other
        && *other != Meta::new(shape, a.dtype)
    {
        return Err(refuse(op, format!("expected an input of shape {shape} and dtype {}", a.dtype)));
    }
    Ok(Meta::new(shape, if op == Op::MaxPoolIndices { DType::I64 } else { a.dtype }))
}
