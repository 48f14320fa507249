//! Windows that slide over the last one to three axes: the geometry of convolutions and pools, and its rules.
//!
//! Every such op relates an input `(samples, channels, *input)` and an output `(samples, channels', *output)`; which of
//! the two an instruction is given and which it makes depends on its row. One [`WindowSpec`] describes both, so an
//! op and its gradients carry the same one.

use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::graph::{Graph, Val};
use crate::instruction::Attrs;
use crate::shape::{Meta, Shape};
use crate::table::Op;

/// The most axes a window slides over.
pub const WINDOW_AXES_MAX: usize = 3;
/// Strides, dilations, paddings, sizes of kernels and of inputs, and groups are at most this: sums and products of a
/// few of them stay far from overflow.
pub const WINDOW_SIZE_MAX: usize = 1 << 31;

/// The most elements in a pool's window.
pub const POOL_WINDOW_MAX: usize = 1 << 24;

type Axes = [usize; WINDOW_AXES_MAX];

/// How windows lie over an input. Axes are aligned at the right: the last entry is the last axis; those that are not
/// slid over are neutral (sizes, stride and dilation 1, no padding).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSpec {
    /// How many axes are slid over, 1 to 3.
    pub rank: u8,
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// The sizes of the input.
    pub input: Axes,
    /// The sizes of the window.
    pub kernel: Axes,
    /// From a window to the next.
    pub stride: Axes,
    /// From an element of a window to the next.
    pub dilation: Axes,
    /// Elements of padding before the input.
    pub low: Axes,
    /// Elements of padding after it.
    pub high: Axes,
}

impl WindowSpec {
    /// The sizes of the output.
    ///
    /// # Errors
    /// Sizes out of bounds, a kernel larger than the padded input.
    pub fn output(&self) -> Result<Axes> {
        let all = [&self.input, &self.kernel, &self.stride, &self.dilation, &self.low, &self.high];
        if !(1..=WINDOW_AXES_MAX).contains(&(self.rank as usize)) {
            return Err(OpError::value("a window slides over 1 to 3 axes"));
        }
        if all.iter().any(|sizes| sizes.iter().any(|size| *size > WINDOW_SIZE_MAX)) || self.groups > WINDOW_SIZE_MAX {
            return Err(OpError::value(format!("a window's sizes are at most {WINDOW_SIZE_MAX}")));
        }
        let unused = WINDOW_AXES_MAX - self.rank as usize;
        let neutral = (0..unused).all(|i| {
            (self.input[i], self.kernel[i], self.stride[i], self.dilation[i], self.low[i], self.high[i])
                == (1, 1, 1, 1, 0, 0)
        });
        if !neutral {
            return Err(OpError::value("a window's unused axes are neutral"));
        }
        if self.groups == 0 {
            return Err(OpError::runtime("non-positive groups is not supported"));
        }
        if self.stride.contains(&0) {
            return Err(OpError::runtime("non-positive stride is not supported"));
        }
        if self.dilation.contains(&0) {
            return Err(OpError::runtime("dilation should be greater than zero"));
        }
        if self.kernel.contains(&0) {
            return Err(OpError::runtime("kernel size should be greater than zero"));
        }
        let mut output = [1; WINDOW_AXES_MAX];
        for (i, size) in output.iter_mut().enumerate() {
            let padded = self.input[i] + self.low[i] + self.high[i];
            let reach = self.reach(i);
            if padded < reach {
                let list = |of: &dyn Fn(usize) -> usize| {
                    (unused..WINDOW_AXES_MAX).map(|i| of(i).to_string()).collect::<Vec<_>>().join(" x ")
                };
                return Err(OpError::runtime(format!(
                    "Calculated padded input size per channel: ({}). Kernel size: ({}). Kernel size can't be greater than actual input size",
                    list(&|i| self.input[i] + self.low[i] + self.high[i]),
                    list(&|i| self.reach(i)),
                )));
            }
            *size = (padded - reach) / self.stride[i] + 1;
        }
        Ok(output)
    }

    /// How many elements a window spans along an axis.
    pub fn reach(&self, axis: usize) -> usize {
        self.dilation[axis] * (self.kernel[axis] - 1) + 1
    }

    /// The entries of the axes that are slid over.
    pub fn used<'a>(&self, sizes: &'a Axes) -> &'a [usize] {
        &sizes[WINDOW_AXES_MAX - (self.rank as usize).min(WINDOW_AXES_MAX)..]
    }
}

fn refuse(op: Op, what: impl Into<String>) -> OpError {
    OpError::runtime(format!("{}: {}", op.name(), what.into()))
}

/// The first two sizes of a shape that ends with `sizes`.
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

/// The result of an op of class convolution.
///
/// # Errors
/// Operands that do not have the shapes that `spec` gives them.
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

/// The result of an op of class pooling.
///
/// # Errors
/// As [`convolution`].
pub fn pooling(op: Op, a: &Meta, other: Option<&Meta>, spec: &WindowSpec) -> Result<Meta> {
    let output = spec.output()?;
    let (input, output) = (spec.used(&spec.input), spec.used(&output));
    if spec.groups != 1 {
        return Err(refuse(op, "pools have no groups"));
    }
    // Nothing in memory bounds a pool's kernel, as a weight bounds a convolution's.
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

/// Sizes for each axis that is slid over: one an axis, or one for all.
fn each(name: &str, sizes: &[i64], rank: usize, least: i64) -> Result<Axes> {
    let mut axes = [if least == 0 { 0 } else { 1 }; WINDOW_AXES_MAX];
    if sizes.len() != 1 && sizes.len() != rank {
        return Err(OpError::runtime(format!(
            "expected {name} to be a single integer value or a list of {rank} values to match the convolution dimensions, but got {name}={sizes:?}"
        )));
    }
    for (i, axis) in axes[WINDOW_AXES_MAX - rank..].iter_mut().enumerate() {
        let size = sizes[if sizes.len() == 1 { 0 } else { i }];
        if size < least {
            return Err(OpError::runtime(match (name, least) {
                ("padding", _) => "negative padding is not supported".into(),
                ("stride", _) => "non-positive stride is not supported".into(),
                _ => format!("{name} should be greater than zero, but got {size}"),
            }));
        }
        *axis = usize::try_from(size).unwrap_or(usize::MAX);
    }
    Ok(axes)
}

/// What a user says of windows; each has one entry an axis, or one for all.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// From a window to the next.
    pub stride: &'a [i64],
    /// Elements of padding before the input.
    pub low: &'a [i64],
    /// Elements of padding after it.
    pub high: &'a [i64],
    /// From an element of a window to the next.
    pub dilation: &'a [i64],
    /// Groups of channels.
    pub groups: i64,
}

impl Window<'_> {
    /// The windows of sizes `kernel` over an input of sizes `input`, each one entry an axis.
    ///
    /// # Errors
    /// Sizes that are too small, lists of another length.
    pub fn spec(&self, input: &[usize], kernel: &[usize]) -> Result<WindowSpec> {
        let rank = input.len();
        if !(1..=WINDOW_AXES_MAX).contains(&rank) || kernel.len() != rank {
            return Err(OpError::runtime(format!("windows of sizes {kernel:?} over an input of sizes {input:?}")));
        }
        let right = |sizes: &[usize]| {
            let mut axes = [1; WINDOW_AXES_MAX];
            axes[WINDOW_AXES_MAX - rank..].copy_from_slice(sizes);
            axes
        };
        if self.groups < 1 {
            return Err(OpError::runtime("non-positive groups is not supported"));
        }
        Ok(WindowSpec {
            rank: rank as u8,
            groups: self.groups as usize,
            input: right(input),
            kernel: right(kernel),
            stride: each("stride", self.stride, rank, 1)?,
            dilation: each("dilation", self.dilation, rank, 1)?,
            low: each("padding", self.low, rank, 0)?,
            high: each("padding", self.high, rank, 0)?,
        })
    }
}

/// Sums of products of `weight` and the windows of `x`, and `bias`, as `torch.convolution`.
///
/// # Errors
/// Shapes, dtypes or sizes that do not fit.
pub fn build_convolution(
    g: &mut dyn Graph,
    x: Val,
    weight: Val,
    bias: Option<Val>,
    window: &Window<'_>,
) -> Result<Val> {
    let (a, b) = (g.meta(x), g.meta(weight));
    check_ranks(&a.shape, &b.shape)?;
    let spec = window.spec(&a.shape.dims()[2..], &b.shape.dims()[2..])?;
    let operands: Vec<_> = [Some(x), Some(weight), bias].into_iter().flatten().map(Into::into).collect();
    g.emit(Op::Convolution, &operands, Attrs::Window(Box::new(spec)))
}

/// The transpose of [`build_convolution`], which makes an input of sizes `sizes`: its gradient with respect to the
/// input, and `torch.conv_transpose`.
///
/// # Errors
/// As [`build_convolution`].
pub fn build_transposed(g: &mut dyn Graph, y: Val, weight: Val, sizes: &[i64], window: &Window<'_>) -> Result<Val> {
    let (a, b) = (g.meta(y), g.meta(weight));
    check_ranks(&a.shape, &b.shape)?;
    let sizes = sizes
        .iter()
        .map(|size| usize::try_from(*size).map_err(|_| OpError::runtime(format!("a result of sizes {sizes:?}"))))
        .collect::<Result<Vec<_>>>()?;
    let spec = window.spec(&sizes, &b.shape.dims()[2..])?;
    g.emit(Op::ConvolutionInput, &[y.into(), weight.into()], Attrs::Window(Box::new(spec)))
}

/// A pool: `op` over windows of sizes `kernel`.
///
/// # Errors
/// As [`build_convolution`].
pub fn build_pool(g: &mut dyn Graph, op: Op, x: Val, kernel: &[i64], window: &Window<'_>) -> Result<Val> {
    let shape = g.meta(x).shape;
    if shape.rank() < 3 {
        return Err(OpError::runtime(format!("{}: expected (samples, channels, …), but got {shape}", op.name())));
    }
    let rank = shape.rank() - 2;
    let kernel = each("kernel_size", kernel, rank.min(WINDOW_AXES_MAX), 1)?;
    let spec = window.spec(&shape.dims()[2..], &kernel[WINDOW_AXES_MAX - rank.min(WINDOW_AXES_MAX)..])?;
    g.emit(op, &[x.into()], Attrs::Window(Box::new(spec)))
}

fn check_ranks(x: &Shape, weight: &Shape) -> Result<()> {
    if x.rank() != weight.rank() || !(3..=2 + WINDOW_AXES_MAX).contains(&x.rank()) {
        return Err(OpError::runtime(format!(
            "Expected {}D (unbatched) or {}D (batched) input to conv, but got input of size: {x}",
            weight.rank().saturating_sub(1),
            weight.rank()
        )));
    }
    Ok(())
}
