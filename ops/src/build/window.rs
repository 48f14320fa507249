//! Builders of convolutions and pools: a user's stride, padding and dilation become a [`WindowSpec`].

use crate::error::{OpError, Result};
use crate::graph::{Graph, Val};
use crate::instruction::Attrs;
use crate::op::Op;
use crate::shape::Shape;
use crate::window::{WINDOW_AXES_MAX, WindowSizes, WindowSpec};

/// Expands one size for all axes, or one per axis, to [`WindowSizes`].
fn per_axis(name: &str, sizes: &[i64], rank: usize, least: i64) -> Result<WindowSizes> {
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

/// A user's parameters of windows. Each list has one entry per axis, or one for all.
#[derive(Clone, Copy, Debug)]
pub struct WindowParameters<'a> {
    /// The distance between windows.
    pub stride: &'a [i64],
    /// Elements of padding before the input.
    pub low: &'a [i64],
    /// Elements of padding after the input.
    pub high: &'a [i64],
    /// The distance between elements of a window.
    pub dilation: &'a [i64],
    /// Number of groups of channels.
    pub groups: i64,
}

impl WindowParameters<'_> {
    /// The geometry of windows of sizes `kernel` over an input of sizes `input`, both one entry per axis.
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
            stride: per_axis("stride", self.stride, rank, 1)?,
            dilation: per_axis("dilation", self.dilation, rank, 1)?,
            low: per_axis("padding", self.low, rank, 0)?,
            high: per_axis("padding", self.high, rank, 0)?,
        })
    }
}

/// Convolution of `x` with `weight` plus `bias`, as `torch.convolution`.
///
/// # Errors
/// Shapes, dtypes or sizes that do not fit.
pub fn convolution(
    g: &mut dyn Graph,
    x: Val,
    weight: Val,
    bias: Option<Val>,
    window: &WindowParameters<'_>,
) -> Result<Val> {
    let (a, b) = (g.meta(x), g.meta(weight));
    check_ranks(&a.shape, &b.shape)?;
    let spec = window.spec(&a.shape.dims()[2..], &b.shape.dims()[2..])?;
    let operands: Vec<_> = [Some(x), Some(weight), bias].into_iter().flatten().map(Into::into).collect();
    g.emit(Op::Convolution, &operands, Attrs::Window(Box::new(spec)))
}

/// Transposed convolution to spatial sizes `sizes`, as `torch.conv_transpose`: the gradient of [`convolution`] with
/// respect to its input.
///
/// # Errors
/// As [`convolution`].
pub fn transposed_convolution(
    g: &mut dyn Graph,
    y: Val,
    weight: Val,
    sizes: &[i64],
    window: &WindowParameters<'_>,
) -> Result<Val> {
    let (a, b) = (g.meta(y), g.meta(weight));
    check_ranks(&a.shape, &b.shape)?;
    let sizes = sizes
        .iter()
        .map(|size| usize::try_from(*size).map_err(|_| OpError::runtime(format!("a result of sizes {sizes:?}"))))
        .collect::<Result<Vec<_>>>()?;
    let spec = window.spec(&sizes, &b.shape.dims()[2..])?;
    g.emit(Op::ConvolutionInput, &[y.into(), weight.into()], Attrs::Window(Box::new(spec)))
}

/// Pooling: `op` over windows of sizes `kernel`.
///
/// # Errors
/// As [`convolution`].
pub fn pool(g: &mut dyn Graph, op: Op, x: Val, kernel: &[i64], window: &WindowParameters<'_>) -> Result<Val> {
    let shape = g.meta(x).shape;
    if shape.rank() < 3 {
        return Err(OpError::runtime(format!("{}: expected (samples, channels, …), but got {shape}", op.name())));
    }
    let rank = shape.rank() - 2;
    let kernel = per_axis("kernel_size", kernel, rank.min(WINDOW_AXES_MAX), 1)?;
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
