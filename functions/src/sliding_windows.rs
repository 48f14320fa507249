//! Sliding windows over the spatial axes: their geometry, and their elements as columns (im2col).
//!
//! Floating-point convolutions and pools are instructions of their own. Columns do the same for integers, and are the
//! results of `unfold` and the inputs of `fold`.

use crate::common::{check_implemented, zeros};
use crate::declaration::functions;
use gt_ops::build::Index;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::window::WINDOW_SIZE_MAX;
use gt_ops::{DType, OpError};

/// Integers as Python writes a tuple of them.
pub(crate) fn tuple(sizes: &[i64]) -> String {
    match sizes {
        [one] => format!("({one},)"),
        all => format!("({})", all.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// One size for each axis; a single number is repeated.
pub(crate) fn per_axis(name: &str, sizes: &[i64], rank: usize) -> Result<Vec<i64>> {
    match sizes {
        [one] => Ok(vec![*one; rank]),
        all if all.len() == rank => Ok(all.to_vec()),
        all => Err(OpError::runtime(format!(
            "{name} must either be a single int, or a tuple of {rank} ints, but got {}",
            tuple(all)
        ))),
    }
}

/// [`per_axis`] for sizes whose products are computed, which must not overflow.
pub(crate) fn bounded_per_axis(name: &str, sizes: &[i64], rank: usize) -> Result<Vec<i64>> {
    let sizes = per_axis(name, sizes, rank)?;
    check_bounds(&sizes)?;
    Ok(sizes)
}

/// Checks that sizes are not larger than those of an instruction's windows.
pub(crate) fn check_bounds(sizes: &[i64]) -> Result<()> {
    match sizes.iter().all(|size| size.unsigned_abs() <= WINDOW_SIZE_MAX as u64) {
        true => Ok(()),
        false => Err(OpError::value(format!("a window's sizes are at most {WINDOW_SIZE_MAX}"))),
    }
}

/// The input with a batch axis, and whether that was added.
pub(crate) fn batched<'g>(name: &str, input: Expr<'g>, rank: usize) -> Result<(Expr<'g>, bool)> {
    match input.rank()? {
        own if own == rank + 2 => Ok((input, false)),
        own if own == rank + 1 => Ok((input.unsqueeze(0), true)),
        _ => Err(OpError::runtime(format!(
            "Expected {}D (unbatched) or {}D (batched) input to {name}, but got input of size: {}",
            rank + 1,
            rank + 2,
            input.shape()?
        ))),
    }
}

/// The index `x[..., parts]` of slices along the last axes.
pub(crate) fn last_axes(slices: impl IntoIterator<Item = (i64, i64, i64)>) -> Vec<Index> {
    let range = |(start, stop, step)| Index::Range { start: Some(start), stop: Some(stop), step: Some(step) };
    std::iter::once(Index::Ellipsis).chain(slices.into_iter().map(range)).collect()
}

/// The tensor with zeros before (`low`) and after (`high`) its last axes.
pub(crate) fn padded<'g>(g: &'g Builder<'g>, input: Expr<'g>, low: &[i64], high: &[i64]) -> Result<Expr<'g>> {
    if low.iter().chain(high).all(|size| *size == 0) {
        return Ok(input);
    }
    let mut sizes = input.sizes()?;
    let first = sizes.len() - low.len();
    let own = sizes[first..].to_vec();
    for ((size, before), after) in sizes[first..].iter_mut().zip(low).zip(high) {
        *size += before + after;
    }
    let place = last_axes(low.iter().zip(&own).map(|(before, size)| (*before, before + size, 1)));
    Ok(zeros(g, &sizes, input.dtype()?).set_index(&place, input))
}

/// The windows along the spatial axes: of sizes `kernel`, whose elements are `dilation` apart, one each `stride`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingWindows<'a> {
    pub kernel: &'a [i64],
    pub dilation: &'a [i64],
    pub stride: &'a [i64],
}

impl SlidingWindows<'_> {
    /// For each element of a window, the index that selects it in all windows, of which there are `counts`.
    fn elements(&self, counts: &[i64]) -> Vec<Vec<Index>> {
        let mut all = vec![vec![]];
        for (axis, count) in counts.iter().enumerate() {
            let (dilation, stride) = (self.dilation[axis], self.stride[axis]);
            let slices = (0..self.kernel[axis]).map(|i| {
                let start = i * dilation;
                (start, start + (count - 1) * stride + 1, stride)
            });
            let slices: Vec<_> = slices.collect();
            all = all
                .iter()
                .flat_map(|box_: &Vec<_>| slices.iter().map(|slice| [&box_[..], &[*slice]].concat()))
                .collect();
        }
        all.into_iter().map(last_axes).collect()
    }

    /// im2col: `(N, C, *sizes)` to `(N, C, elements of a window, *counts)`.
    pub fn columns<'g>(&self, g: &'g Builder<'g>, input: Expr<'g>, counts: &[i64]) -> Expr<'g> {
        let parts: Vec<_> = self.elements(counts).iter().map(|place| input.index(place)).collect();
        g.stack(&parts, 2)
    }

    /// The transpose of [`SlidingWindows::columns`]: adds the elements of windows where they came from in
    /// `(N, C, *sizes)`.
    pub fn sum_columns<'g>(&self, g: &'g Builder<'g>, columns: Expr<'g>, sizes: &[i64]) -> Result<Expr<'g>> {
        let shape = columns.sizes()?;
        let blank = zeros(g, &[&shape[..2], sizes].concat(), columns.dtype()?);
        let places = self.elements(&shape[3..]);
        let placed = (0..).zip(&places).map(|(i, place)| blank.set_index(place, columns.select(2, i)));
        Ok(placed.fold(blank, |total, part| total + part))
    }
}

/// Kernel, dilation, padding and stride as pairs, and the number of windows along each axis.
struct PairedSizes {
    kernel: Vec<i64>,
    dilation: Vec<i64>,
    padding: Vec<i64>,
    stride: Vec<i64>,
    counts: Vec<i64>,
}

impl PairedSizes {
    fn new(sizes: &[i64], kernel: &[i64], dilation: &[i64], padding: &[i64], stride: &[i64]) -> Result<PairedSizes> {
        let kernel = bounded_per_axis("kernel_size", kernel, 2)?;
        let dilation = bounded_per_axis("dilation", dilation, 2)?;
        let padding = bounded_per_axis("padding", padding, 2)?;
        let stride = bounded_per_axis("stride", stride, 2)?;
        let mut counts = Vec::new();
        for i in 0..2 {
            let span = sizes[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
            if span < 0 || kernel[i].min(dilation[i]).min(stride[i]) < 1 {
                return Err(OpError::runtime(format!(
                    "Given input with spatial size ({}, {}), kernel_size={}, dilation={}, padding={}, calculated shape \
                     of the array of sliding blocks is too small",
                    sizes[0],
                    sizes[1],
                    tuple(&kernel),
                    tuple(&dilation),
                    tuple(&padding)
                )));
            }
            counts.push(span / stride[i] + 1);
        }
        Ok(PairedSizes { kernel, dilation, padding, stride, counts })
    }

    fn windows(&self) -> SlidingWindows<'_> {
        SlidingWindows { kernel: &self.kernel, dilation: &self.dilation, stride: &self.stride }
    }
}

/// Whether PyTorch extracts windows of elements of a dtype.
fn is_unfolded(dtype: DType) -> bool {
    dtype.is_inexact() || dtype == DType::Bool
}

functions! {
    /// Extracts sliding windows (im2col): `(N, C, H, W)` to `(N, C prod(kernel_size), windows)`.
    ///
    /// Args:
    ///     input: `(N, C, H, W)` or `(C, H, W)`.
    ///     kernel_size: The size of the windows, one number or a pair.
    ///     dilation: The step between the elements of a window.
    ///     padding: The zeros added at both ends of each axis.
    ///     stride: The step between windows.
    ///
    /// Example:
    ///     >>> gt.nn.functional.unfold(gt.ones(1, 3, 4, 5), kernel_size=2).shape
    ///     gt.Size([1, 12, 12])
    [module("nn.functional").named("unfold")]
    fn im2col(g, input: Expr<'g>, kernel_size: &'g [i64], dilation: &'g [i64] = &[1], padding: &'g [i64] = &[0],
        stride: &'g [i64] = &[1]) -> Result<Expr<'g>> {
        let rank = input.rank()?;
        if rank != 3 && rank != 4 {
            return Err(OpError::runtime(format!(
                "Expected 3D or 4D (batch mode) tensor for input, but got {}",
                input.shape()?
            )));
        }
        check_implemented("im2col_out_cpu", input, is_unfolded)?;
        let batch = if rank == 4 { input } else { input.unsqueeze(0) };
        let sizes = batch.sizes()?;
        let pairs = PairedSizes::new(&sizes[2..], kernel_size, dilation, padding, stride)?;
        let wide = padded(g, batch, &pairs.padding, &pairs.padding)?;
        let elements: i64 = pairs.kernel.iter().product();
        let columns = pairs.windows().columns(g, wide, &pairs.counts);
        let columns = columns.reshape(&[sizes[0], sizes[1] * elements, pairs.counts.iter().product()]);
        Ok(if rank == 4 { columns } else { columns.squeeze(&[0]) })
    }

    /// Sums sliding windows into images (col2im): `(N, C prod(kernel_size), windows)` to `(N, C, *output_size)`.
    ///
    /// Args:
    ///     input: `(N, C prod(kernel_size), windows)`, or without `N`.
    ///     output_size: The height and width of the images, one number or a pair.
    ///     kernel_size: The size of the windows, one number or a pair.
    ///     dilation: The step between the elements of a window.
    ///     padding: The zeros that were added at both ends of each axis.
    ///     stride: The step between windows.
    ///
    /// Example:
    ///     >>> columns = gt.nn.functional.unfold(gt.ones(1, 1, 4, 4), kernel_size=2, stride=2)
    ///     >>> gt.nn.functional.fold(columns, output_size=4, kernel_size=2, stride=2).shape
    ///     gt.Size([1, 1, 4, 4])
    [module("nn.functional")]
    fn fold(g, input: Expr<'g>, output_size: &'g [i64], kernel_size: &'g [i64], dilation: &'g [i64] = &[1],
        padding: &'g [i64] = &[0], stride: &'g [i64] = &[1]) -> Result<Expr<'g>> {
        let rank = input.rank()?;
        if rank != 2 && rank != 3 {
            return Err(OpError::runtime(format!(
                "Expected 2D or 3D (batch mode) tensor for input, but got {}",
                input.shape()?
            )));
        }
        check_implemented("col2im_out_cpu", input, is_unfolded)?;
        let batch = if rank == 3 { input } else { input.unsqueeze(0) };
        let sizes = bounded_per_axis("output_size", output_size, 2)?;
        let pairs = PairedSizes::new(&sizes, kernel_size, dilation, padding, stride)?;
        let (PairedSizes { kernel, padding, counts, .. }, shape) = (&pairs, batch.sizes()?);
        let (samples, rows, windows) = (shape[0], shape[1], shape[2]);
        let elements: i64 = kernel.iter().product();
        if rows % elements != 0 {
            return Err(OpError::runtime(format!(
                "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got \
                 input.size(1)={rows} and kernel_size={}.",
                tuple(kernel)
            )));
        }
        let expected: i64 = counts.iter().product();
        if windows != expected {
            return Err(OpError::runtime(format!(
                "Given output_size={}, kernel_size={}, dilation={}, padding={}, stride={}, expected size of input's \
                 dimension 2 to match the calculated number of sliding blocks {} * {} = {expected}, but got \
                 input.size(2)={windows}.",
                tuple(&sizes),
                tuple(kernel),
                tuple(&pairs.dilation),
                tuple(padding),
                tuple(&pairs.stride),
                counts[0],
                counts[1]
            )));
        }
        let parts = batch.reshape(&[samples, rows / elements, elements, counts[0], counts[1]]);
        let wide: Vec<i64> = sizes.iter().zip(padding).map(|(size, p)| size + 2 * p).collect();
        let total = pairs.windows().sum_columns(g, parts, &wide)?;
        let result = total.index(&last_axes(padding.iter().zip(&sizes).map(|(p, size)| (*p, p + size, 1))));
        Ok(if rank == 3 { result } else { result.squeeze(&[0]) })
    }
}
