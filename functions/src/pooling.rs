//! Pooling: each window of a channel is reduced to one element.
//!
//! Inputs are `(N, C, *)` or, without a batch, `(C, *)`. Windows of equal size are one instruction. Maxima of others
//! are gathered (`gather_max`), and means of others are a matrix product along each axis.

use crate::common::{check_implemented, filled, in_float32, zeros};
use crate::declaration::{OptionalInts, TensorOrTuple, functions};
use crate::interpolation::{adaptive_windows, averaging_matrix, resample};
use crate::sliding_windows::{SlidingWindows, batched, bounded_per_axis, check_bounds, padded, per_axis, tuple};
use gt_ops::build::window::{self, WindowParameters};
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, module};
use gt_ops::{DType, Op, OpError, Scalar};

// Windows of equal size ----------------------------------------------------------------------------------------------

/// Windows as a user gives them.
struct WindowArguments<'a> {
    kernel_size: &'a [i64],
    stride: Option<&'a [i64]>,
    padding: &'a [i64],
    dilation: &'a [i64],
    ceil_mode: bool,
}

/// The geometry of windows of equal size: kernel, stride, padding, dilation and output size along each axis.
struct WindowGeometry {
    /// The sizes of the input.
    sizes: Vec<i64>,
    kernel: Vec<i64>,
    stride: Vec<i64>,
    /// The padding before each axis, as requested.
    low: Vec<i64>,
    /// The padding after each axis: a last window may reach further with `ceil_mode`.
    high: Vec<i64>,
    dilation: Vec<i64>,
    counts: Vec<i64>,
}

impl WindowGeometry {
    fn new(input: Expr<'_>, given: &WindowArguments<'_>) -> Result<WindowGeometry> {
        let shape = input.sizes()?;
        let rank = shape.len() - 2;
        let kernel = per_axis("kernel_size", given.kernel_size, rank)?;
        let stride = match given.stride {
            Some(stride) if !stride.is_empty() => per_axis("stride", stride, rank)?,
            _ => kernel.clone(),
        };
        let (low, dilation) = (per_axis("padding", given.padding, rank)?, per_axis("dilation", given.dilation, rank)?);
        for (what, sizes) in [("kernel", &kernel), ("stride", &stride), ("dilation", &dilation)] {
            if sizes.iter().any(|size| *size < 1) {
                return Err(OpError::runtime(format!("{what} should be greater than zero, but got {sizes:?}")));
            }
        }
        for ((k, p), d) in kernel.iter().zip(&low).zip(&dilation) {
            if *p < 0 {
                return Err(OpError::runtime(format!("pad must be non-negative, but got pad: {p}")));
            }
            if 2 * i128::from(*p) > i128::from(*d) * i128::from(k - 1) + 1 {
                return Err(OpError::runtime(format!(
                    "pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and \
                     dilation={d}"
                )));
            }
        }
        if shape[1..].contains(&0) {
            return Err(OpError::runtime(format!(
                "Expected {}D or {}D (batch mode) tensor with optional 0 dim batch size for input, but got:{shape:?}",
                rank + 1,
                rank + 2
            )));
        }
        let sizes = shape[2..].to_vec();
        // The sizes are the user's: their products may be too large for 64 bits.
        let (mut counts, mut high) = (vec![], vec![]);
        for (i, size) in sizes.iter().map(|size| i128::from(*size)).enumerate() {
            let (p, step) = (i128::from(low[i]), i128::from(stride[i]));
            let reach = i128::from(dilation[i]) * i128::from(kernel[i] - 1) + 1;
            let span = size + 2 * p - reach;
            let mut last = span.div_euclid(step);
            // With ceil_mode, a last window may be partial, as long as it starts inside.
            if given.ceil_mode && span % step != 0 && (last + 1) * step < size + p {
                last += 1;
            }
            counts.push(last + 1);
            high.push(p.max(last * step + reach - size - p));
        }
        if counts.iter().any(|count| *count < 1) {
            let by = |sizes: &[i128]| {
                let sizes = sizes.iter().map(|size| format!("x{size}"));
                std::iter::once(shape[1].to_string()).chain(sizes).collect::<String>()
            };
            let sizes: Vec<i128> = sizes.iter().map(|size| i128::from(*size)).collect();
            return Err(OpError::runtime(format!(
                "Given input size: ({}). Calculated output size: ({}). Output size is too small",
                by(&sizes),
                by(&counts)
            )));
        }
        for sizes in [&kernel, &stride, &low, &dilation] {
            check_bounds(sizes)?;
        }
        let small = |sizes: Vec<i128>| sizes.into_iter().map(|size| size as i64).collect();
        let (counts, high) = (small(counts), small(high));
        Ok(WindowGeometry { sizes, kernel, stride, low, high, dilation, counts })
    }

    /// The pool that is this instruction.
    fn reduce<'g>(&self, g: &'g Builder<'g>, op: Op, input: Expr<'g>) -> Expr<'g> {
        let parameters = WindowParameters {
            stride: &self.stride,
            low: &self.low,
            high: &self.high,
            dilation: &self.dilation,
            groups: 1,
        };
        g.on_all(&[input], |g, v| window::pool(g, op, v[0], &self.kernel, &parameters))
    }

    /// The sum of each window.
    fn sum<'g>(&self, g: &'g Builder<'g>, input: Expr<'g>) -> Result<Expr<'g>> {
        let dtype = input.dtype()?;
        if !dtype.is_int() {
            return Ok(self.reduce(g, Op::SumPool, input));
        }
        let windows = SlidingWindows { kernel: &self.kernel, dilation: &self.dilation, stride: &self.stride };
        let columns = windows.columns(g, padded(g, input, &self.low, &self.high)?, &self.counts);
        Ok(columns.sum(&[2], false).to(dtype))
    }

    /// For each axis, the indices that each window covers.
    fn places(&self) -> Vec<Vec<Vec<i64>>> {
        let axis = |i: usize| {
            let (size, step, d) = (self.sizes[i], self.stride[i], self.dilation[i]);
            let window = |n: i64| {
                let start = n * step - self.low[i];
                (0..self.kernel[i]).map(|k| start + k * d).filter(|at| (0..size).contains(at)).collect()
            };
            (0..self.counts[i]).map(window).collect()
        };
        (0..self.sizes.len()).map(axis).collect()
    }
}

/// Results without the batch axis that was added.
fn unbatched<'g>(results: Vec<Expr<'g>>, alone: bool) -> Vec<Expr<'g>> {
    results.into_iter().map(|part| if alone { part.squeeze(&[0]) } else { part }).collect()
}

/// The values, and the indices if they are asked for.
fn asked<'g>(results: Vec<Expr<'g>>, return_indices: bool) -> TensorOrTuple<'g> {
    if return_indices { TensorOrTuple::Tuple(results) } else { TensorOrTuple::Tensor(results[0]) }
}

/// Values and, if they are asked for, indices.
fn max_pool<'g>(
    g: &'g Builder<'g>,
    rank: usize,
    input: Expr<'g>,
    given: &WindowArguments<'_>,
    indices: bool,
) -> Result<Vec<Expr<'g>>> {
    let (input, alone) = batched(&format!("max_pool{rank}d"), input, rank)?;
    if rank == 1 && !indices {
        check_implemented("max_pool1d_impl", input, DType::is_float)?;
    }
    let geometry = WindowGeometry::new(input, given)?;
    let results = if input.dtype()?.is_int() {
        gather_max(g, input, geometry.places())?
    } else {
        let ops: &[Op] = if indices { &[Op::MaxPool, Op::MaxPoolIndices] } else { &[Op::MaxPool] };
        ops.iter().map(|op| geometry.reduce(g, *op, input)).collect()
    };
    Ok(unbatched(results, alone))
}

/// The maximum of arbitrary windows, given as the indices they cover along each axis, and its flat position.
fn gather_max<'g>(g: &'g Builder<'g>, input: Expr<'g>, windows: Vec<Vec<Vec<i64>>>) -> Result<Vec<Expr<'g>>> {
    let mut axes = Vec::new();
    for mut axis in windows {
        if axis.iter().any(Vec::is_empty) {
            return Err(OpError::not_implemented(format!(
                "gt.{}: a window that lies in the padding alone has no largest element",
                input.dtype()?
            )));
        }
        // Shorter windows repeat their last index, so that all have the length of the longest.
        let longest = axis.iter().map(Vec::len).max().unwrap_or(1);
        for window in &mut axis {
            let last = *window.last().unwrap_or(&0);
            window.resize(longest, last);
        }
        axes.push(g.ints(&axis.concat(), &[1, 1, axis.len() as i64, longest as i64]));
    }
    gather_max_at(input, &axes)
}

/// The maxima and their flat positions of windows given as indices `(N, C, windows, k)` for each axis.
fn gather_max_at<'g>(input: Expr<'g>, axes: &[Expr<'g>]) -> Result<Vec<Expr<'g>>> {
    let sizes = input.sizes()?;
    let mut places = axes[0];
    for (size, axis) in sizes[3..].iter().zip(&axes[1..]) {
        let mixed = places.unsqueeze(3).unsqueeze(5) * *size + axis.unsqueeze(2).unsqueeze(4);
        places = mixed.flatten(4, 5).flatten(2, 3);
    }
    let wide = [&sizes[..2], &places.sizes()?[2..]].concat();
    let index = places.expand(&wide);
    let shown = input.flatten(2, -1).gather(2, index.flatten(2, -1)).reshape(&wide);
    let which = shown.detach().argmax(Some(3), true);
    let mut shape = sizes[..2].to_vec();
    for axis in axes {
        shape.push(axis.size(2)?);
    }
    Ok(vec![shown.gather(3, which).reshape(&shape), index.gather(3, which).reshape(&shape)])
}

/// The divisors of a mean pool.
#[derive(Clone, Copy)]
struct Divisors {
    count_include_pad: bool,
    divisor_override: Option<i64>,
}

fn avg_pool<'g>(
    g: &'g Builder<'g>,
    rank: usize,
    input: Expr<'g>,
    given: &WindowArguments<'_>,
    divisors: Divisors,
) -> Result<Expr<'g>> {
    let (input, alone) = batched(&format!("avg_pool{rank}d"), input, rank)?;
    check_implemented(&format!("avg_pool{rank}d"), input, |dtype| dtype.is_float() || dtype == DType::I64)?;
    let geometry = WindowGeometry::new(input, given)?;
    if divisors.divisor_override == Some(0) {
        return Err(OpError::runtime("divisor must be not zero"));
    }
    let result = in_float32([input], |[input]| {
        let total = geometry.sum(g, input)?;
        let counts = match divisors.divisor_override {
            Some(divisor) => g.number(divisor),
            None => window_lengths(g, input, &geometry, divisors.count_include_pad)?,
        };
        let is_int = input.dtype()?.is_int();
        Ok(if is_int { (total - total.fmod(counts)).floor_divide(counts) } else { total / counts })
    })?;
    Ok(if alone { result.squeeze(&[0]) } else { result })
}

/// The number of elements of each window.
fn window_lengths<'g>(
    g: &'g Builder<'g>,
    input: Expr<'g>,
    geometry: &WindowGeometry,
    count_include_pad: bool,
) -> Result<Expr<'g>> {
    let WindowGeometry { sizes, kernel, stride, low, high, counts, .. } = geometry;
    if high.iter().all(|size| *size == 0) || (count_include_pad && high == low) {
        return Ok(g.number(kernel.iter().product::<i64>()));
    }
    let mut lengths = vec![1];
    for i in 0..sizes.len() {
        // The requested padding counts; the part of a last window beyond it does not.
        let (least, most) = if count_include_pad { (-low[i], sizes[i] + low[i]) } else { (0, sizes[i]) };
        let along: Vec<i64> = (0..counts[i])
            .map(|n| n * stride[i] - low[i])
            .map(|start| (start + kernel[i]).min(most) - start.max(least))
            .collect();
        lengths = lengths.iter().flat_map(|outer: &i64| along.iter().map(move |length| outer * length)).collect();
    }
    Ok(match input.dtype()? {
        dtype if dtype.is_float() => {
            let lengths: Vec<f64> = lengths.iter().map(|length| *length as f64).collect();
            g.floats(&lengths, counts, dtype)
        }
        dtype => g.ints(&lengths, counts).to(dtype),
    })
}

fn lp_pool<'g>(
    g: &'g Builder<'g>,
    rank: usize,
    input: Expr<'g>,
    norm_type: Scalar,
    kernel_size: &[i64],
    stride: Option<&[i64]>,
    ceil_mode: bool,
) -> Result<Expr<'g>> {
    let given = WindowArguments { kernel_size, stride, padding: &[0], dilation: &[1], ceil_mode };
    let elements: i64 = bounded_per_axis("kernel_size", kernel_size, rank)?.iter().product();
    in_float32([input], |[input]| {
        let means = avg_pool(g, rank, input.pow(norm_type), &given, MEAN)?;
        Ok((means.sign() * means.abs().relu() * elements).pow(1.0 / norm_type.to_f64()))
    })
}

const MEAN: Divisors = Divisors { count_include_pad: true, divisor_override: None };

// Windows that follow from the output's size (adaptive and fractional pooling) ---------------------------------------

/// The input with a batch axis, whether that was added, and the sizes of the output.
fn adaptive_sizes<'g>(
    name: &str,
    rank: usize,
    input: Expr<'g>,
    output_size: OptionalInts<'_>,
) -> Result<(Expr<'g>, bool, Vec<i64>)> {
    let number = output_size.len() == 1 && output_size[0] != OptionalInts::NONE;
    let wanted = if output_size.len() == 1 { vec![output_size[0]; rank] } else { output_size.to_vec() };
    let own = input.rank()?;
    if rank > 1 && !number && own <= wanted.len() {
        return Err(OpError::value(format!("Input dimension should be at least {}", wanted.len() + 1)));
    }
    if wanted.len() != rank {
        return Err(OpError::runtime(format!("{name}: output_size must be {rank}")));
    }
    if own != rank + 1 && own != rank + 2 {
        return Err(OpError::runtime(format!(
            "{name}(): Expected {}D or {}D tensor, but got {}",
            rank + 1,
            rank + 2,
            input.shape()?
        )));
    }
    let alone = own == rank + 1;
    let input = if alone { input.unsqueeze(0) } else { input };
    let shape = input.sizes()?;
    if let Some(empty) = shape[2..].iter().position(|size| *size == 0) {
        return Err(OpError::runtime(format!(
            "{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {shape:?} with \
             dimension {} being empty",
            empty + 2
        )));
    }
    let keep = |(want, size): (&i64, &i64)| if *want == OptionalInts::NONE { *size } else { *want };
    let sizes: Vec<i64> = wanted.iter().zip(&shape[2..]).map(keep).collect();
    if sizes.iter().any(|size| *size < 0) {
        return Err(OpError::runtime(format!(
            "{name}: elements of output_size must be greater than or equal to 0 but received {sizes:?}"
        )));
    }
    Ok((input, alone, bounded_per_axis("output_size", &sizes, rank)?))
}

/// The size of the windows if the input divides evenly into them.
fn uniform_kernel(input: Expr<'_>, sizes: &[i64]) -> Result<Option<Vec<i64>>> {
    let own = input.sizes()?;
    let mut pairs = own[2..].iter().zip(sizes);
    let even = pairs.clone().all(|(size, want)| *want != 0 && size % want == 0);
    Ok(even.then(|| pairs.by_ref().map(|(size, want)| size / want).collect()))
}

/// Windows of these sizes side by side.
fn side_by_side(kernel: &[i64]) -> WindowArguments<'_> {
    WindowArguments { kernel_size: kernel, stride: None, padding: &[0], dilation: &[1], ceil_mode: false }
}

fn adaptive_avg_pool<'g>(
    g: &'g Builder<'g>,
    rank: usize,
    input: Expr<'g>,
    output_size: OptionalInts<'_>,
) -> Result<Expr<'g>> {
    let name = format!("adaptive_avg_pool{rank}d");
    let (input, alone, sizes) = adaptive_sizes(&name, rank, input, output_size)?;
    check_implemented(&name, input, DType::is_float)?;
    let result = match uniform_kernel(input, &sizes)? {
        Some(_) if sizes.iter().all(|size| *size == 1) => {
            let axes: Vec<i64> = (2..2 + rank as i64).collect();
            input.mean(&axes, true)
        }
        Some(kernel) => avg_pool(g, rank, input, &side_by_side(&kernel), MEAN)?,
        None => {
            let own = input.sizes()?;
            let axes = own[2..].iter().zip(&sizes).enumerate();
            in_float32([input], |[input]| {
                Ok(axes.fold(input, |result, (i, (size, want))| {
                    resample(g, result, i as i64 + 2, &averaging_matrix(*size, *want))
                }))
            })?
        }
    };
    Ok(if alone { result.squeeze(&[0]) } else { result })
}

/// Values and indices; values alone if windows are of equal size and no indices are asked for.
fn adaptive_max_pool<'g>(
    g: &'g Builder<'g>,
    rank: usize,
    input: Expr<'g>,
    output_size: OptionalInts<'_>,
    indices: bool,
) -> Result<Vec<Expr<'g>>> {
    let name = format!("adaptive_max_pool{rank}d");
    let (input, alone, sizes) = adaptive_sizes(&name, rank, input, output_size)?;
    check_implemented(&name, input, DType::is_float)?;
    let results = match uniform_kernel(input, &sizes)? {
        Some(kernel) => max_pool(g, rank, input, &side_by_side(&kernel), indices)?,
        None => {
            let own = input.sizes()?;
            let windows = |(size, want): (&i64, &i64)| {
                adaptive_windows(*size, *want).into_iter().map(|(start, end)| (start..end).collect()).collect()
            };
            gather_max(g, input, own[2..].iter().zip(&sizes).map(windows).collect())?
        }
    };
    Ok(unbatched(results, alone))
}

/// The arguments of a fractional pool after the input.
struct Fractions<'a, 'g> {
    kernel_size: &'a [i64],
    output_size: Option<&'a [i64]>,
    output_ratio: Option<&'a [f64]>,
    samples: Option<Expr<'g>>,
}

fn fractional_max_pool<'g>(
    g: &'g Builder<'g>,
    rank: usize,
    input: Expr<'g>,
    given: &Fractions<'_, 'g>,
) -> Result<Vec<Expr<'g>>> {
    let name = format!("fractional_max_pool{rank}d");
    if given.output_size.is_none() && given.output_ratio.is_none() {
        return Err(OpError::value(format!("{name} requires specifying either an output_size or an output_ratio")));
    }
    let (input, alone) = batched(&name, input, rank)?;
    let (kernel, shape) = (bounded_per_axis("kernel_size", given.kernel_size, rank)?, input.sizes()?);
    let (lead, old) = shape.split_at(2);
    let sizes = match (given.output_size, given.output_ratio) {
        (Some(sizes), _) => sizes.to_vec(),
        (None, Some([ratio])) => old.iter().map(|size| (*size as f64 * ratio) as i64).collect(),
        (None, ratios) => {
            old.iter().zip(ratios.unwrap_or(&[])).map(|(size, ratio)| (*size as f64 * ratio) as i64).collect()
        }
    };
    let sizes = bounded_per_axis("output_size", &sizes, rank)?;
    let expected = [lead[0], lead[1], rank as i64];
    let meta = input.meta()?;
    let samples = match given.samples {
        Some(samples) => samples,
        None => g.rand(&gt_ops::build::shape_of(&expected)?, meta.dtype),
    };
    if samples.sizes()? != expected || samples.dtype()? != meta.dtype {
        return Err(OpError::runtime(format!(
            "Expect _random_samples to be {} of the same dtype as input; got {} of gt.{}",
            tuple(&expected),
            tuple(&samples.sizes()?),
            samples.dtype()?.name()
        )));
    }
    let mut axes = Vec::new();
    for (axis, ((size, want), k)) in old.iter().zip(&sizes).zip(&kernel).enumerate() {
        if *want < 1 || want + k - 1 > *size {
            return Err(OpError::runtime(format!(
                "{name}(): pool size {k} of dimension {axis} too large relative to input size {size} and output size \
                 {want}"
            )));
        }
        // In two dimensions, PyTorch's first random number is for the last axis.
        let share = samples.select(2, if rank == 2 { 1 - axis as i64 } else { axis as i64 }).unsqueeze(2);
        let step = (size - k) as f64 / (want - 1).max(1) as f64;
        let starts = ((share + g.arange(want - 1, DType::I64)) * step).trunc() - (share * step).trunc();
        let last = filled(g, &[lead[0], lead[1], 1], size - k, DType::I64);
        let starts = g.cat(&[starts.to(DType::I64), last], 2);
        axes.push(starts.unsqueeze(3) + g.arange(*k, DType::I64));
    }
    Ok(unbatched(gather_max_at(input, &axes)?, alone))
}

// Unpooling ----------------------------------------------------------------------------------------------------------

/// The arguments of an unpool after its two tensors.
struct Unpool<'a> {
    kernel_size: &'a [i64],
    stride: Option<&'a [i64]>,
    padding: &'a [i64],
    output_size: Option<&'a [i64]>,
}

fn max_unpool<'g>(
    g: &'g Builder<'g>,
    rank: usize,
    input: Expr<'g>,
    indices: Expr<'g>,
    given: &Unpool<'_>,
) -> Result<Expr<'g>> {
    let shape = input.sizes()?;
    if shape.len() != rank + 1 && shape.len() != rank + 2 {
        return Err(OpError::runtime(format!(
            "Input to max_unpooling{}d should be a {}d or {}d Tensor, but got a tensor with {} dimensions.",
            rank.max(2),
            rank + 1,
            rank + 2,
            shape.len()
        )));
    }
    if indices.dtype()? != DType::I64 {
        return Err(OpError::runtime(format!(
            "elements in indices should be type int64 but got: {}",
            indices.dtype()?.name()
        )));
    }
    if indices.sizes()? != shape {
        return Err(OpError::runtime(format!(
            "Expected shape of indices to be same as that of the input tensor ({shape:?}) but got indices tensor with \
             shape: {}",
            indices.shape()?
        )));
    }
    check_implemented(&format!("max_unpool{rank}d"), input, DType::is_float)?;
    let kernel = bounded_per_axis("kernel_size", given.kernel_size, rank)?;
    let step = given.stride.map_or_else(|| Ok(kernel.clone()), |stride| bounded_per_axis("stride", stride, rank))?;
    let low = bounded_per_axis("padding", given.padding, rank)?;
    if rank == 3 && step.iter().any(|size| *size < 1) {
        return Err(OpError::runtime(format!("strides should be greater than zero, but got stride: {step:?}")));
    }
    let (lead, old) = shape.split_at(shape.len() - rank);
    let mut sizes: Vec<i64> = (0..rank).map(|i| (old[i] - 1) * step[i] + kernel[i] - 2 * low[i]).collect();
    if let Some(wanted) = given.output_size {
        let wanted = if wanted.len() == rank + 2 { &wanted[2..] } else { wanted };
        if wanted.len() != rank {
            return Err(OpError::value(format!(
                "output_size should be a sequence containing {rank} or {} elements, but it has a length of '{}'",
                rank + 2,
                wanted.len()
            )));
        }
        for (axis, want) in wanted.iter().enumerate() {
            let (least, most) = (sizes[axis] - step[axis], sizes[axis] + step[axis]);
            if *want <= least || *want >= most {
                return Err(OpError::value(format!(
                    "invalid output_size \"{}\" (dim {axis} must be between {least} and {most})",
                    tuple(wanted)
                )));
            }
        }
        sizes = wanted.to_vec();
    }
    let flat = |x: Expr<'g>| x.flatten(-(rank as i64), -1);
    let blank = zeros(g, &[lead, &[sizes.iter().product()]].concat(), input.dtype()?);
    let spread = blank.scatter(Op::Scatter, -1, flat(indices), flat(input));
    Ok(spread.reshape(&[lead, &sizes[..]].concat()))
}

/// The two results of a pool with indices.
fn pair<'g>(results: Vec<Expr<'g>>) -> [Expr<'g>; 2] {
    [results[0], results[1]]
}

/// Declares the pools that exist for each rank, those that exist for two and three axes, and those of one axis alone.
macro_rules! pools {
    (
        $($rank:literal $max:ident $max_indices:ident $lp:ident $adaptive_avg:ident $adaptive_max:ident
          $adaptive_max_indices:ident $unpool:ident;)*
        $(spatial $spatial:literal $avg:ident $fractional:ident $fractional_indices:ident;)*
    ) => {
        functions! {
            /// Pooling of a batch by an instruction, `"max_pool"`, `"max_pool_indices"` or `"sum_pool"`, with separate
            /// padding before (`low`) and after (`high`) each axis.
            [module("_windows")]
            fn pool(g, name: &'g str, input: Expr<'g>, kernel_size: &'g [i64], stride: &'g [i64], low: &'g [i64],
                high: &'g [i64], dilation: &'g [i64]) -> Result<Expr<'g>> {
                let op = [Op::MaxPool, Op::MaxPoolIndices, Op::SumPool].into_iter().find(|op| op.name() == name);
                let op = op.ok_or_else(|| OpError::value(format!("no pool is called {name}")))?;
                let parameters = WindowParameters { stride, low, high, dilation, groups: 1 };
                Ok(g.on_all(&[input], |g, v| window::pool(g, op, v[0], kernel_size, &parameters)))
            }
        $(
            /// Maximum of each window of each channel.
            ///
            /// Args:
            ///     input: `(N, C, *)` or `(C, *)`.
            ///     kernel_size: The size of the windows, one number or one for each axis.
            ///     stride: The step between windows; `kernel_size` if not given.
            ///     padding: The minus infinities added at both ends of each axis, at most half a window.
            ///     dilation: The step between the elements of a window.
            ///     ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.
            ///     return_indices: Whether to return the flat positions of the maxima in their channel too.
            ///
            /// Example:
            ///     >>> gt.nn.functional.max_pool2d(gt.arange(16.0).reshape(1, 4, 4), 2)
            ///     tensor([[[ 5.,  7.],
            ///              [13., 15.]]])
            [module("nn.functional")]
            fn $max(g, input: Expr<'g>, kernel_size: &'g [i64], stride: Option<&'g [i64]> = None,
                padding: &'g [i64] = &[0], dilation: &'g [i64] = &[1], ceil_mode: bool = false,
                return_indices: bool = false) -> Result<TensorOrTuple<'g>> {
                let given = WindowArguments { kernel_size, stride, padding, dilation, ceil_mode };
                Ok(asked(max_pool(g, $rank, input, &given, return_indices)?, return_indices))
            }

            /// The max pool of the same rank, with the flat positions of the maxima in their channel.
            [module("nn.functional")]
            fn $max_indices(g, input: Expr<'g>, kernel_size: &'g [i64], stride: Option<&'g [i64]> = None,
                padding: &'g [i64] = &[0], dilation: &'g [i64] = &[1], ceil_mode: bool = false,
                return_indices: bool = false) -> Result<[Expr<'g>; 2]> {
                let given = WindowArguments { kernel_size, stride, padding, dilation, ceil_mode };
                Ok(pair(max_pool(g, $rank, input, &given, true)?))
            }

            /// Power-average pooling: `(sum x^p)^(1/p)` over each window of each channel, with `p = norm_type`.
            [module("nn.functional")]
            fn $lp(g, input: Expr<'g>, norm_type: Scalar, kernel_size: &'g [i64], stride: Option<&'g [i64]> = None,
                ceil_mode: bool = false) -> Result<Expr<'g>> {
                lp_pool(g, $rank, input, norm_type, kernel_size, stride, ceil_mode)
            }

            /// Mean pooling to given output sizes; a size of `None` keeps the input's.
            ///
            /// Output `i` of `n` is the mean of the elements from `floor(i size / n)` to `ceil((i + 1) size / n)`.
            ///
            /// Example:
            ///     >>> gt.nn.functional.adaptive_avg_pool2d(gt.arange(16.0).reshape(1, 4, 4), 1)
            ///     tensor([[[7.5000]]])
            [module("nn.functional")]
            fn $adaptive_avg(g, input: Expr<'g>, output_size: OptionalInts<'g>) -> Result<Expr<'g>> {
                adaptive_avg_pool(g, $rank, input, output_size)
            }

            /// Max pooling to given output sizes; a size of `None` keeps the input's.
            ///
            /// Output `i` of `n` is the maximum of the elements from `floor(i size / n)` to `ceil((i + 1) size / n)`.
            /// With `return_indices`, the flat positions of the maxima in their channel are returned too.
            [module("nn.functional")]
            fn $adaptive_max(g, input: Expr<'g>, output_size: OptionalInts<'g>,
                return_indices: bool = false) -> Result<TensorOrTuple<'g>> {
                Ok(asked(adaptive_max_pool(g, $rank, input, output_size, return_indices)?, return_indices))
            }

            /// The adaptive max pool of the same rank, with the flat positions of the maxima in their channel.
            [module("nn.functional")]
            fn $adaptive_max_indices(g, input: Expr<'g>, output_size: OptionalInts<'g>,
                return_indices: bool = false) -> Result<[Expr<'g>; 2]> {
                Ok(pair(adaptive_max_pool(g, $rank, input, output_size, true)?))
            }

            /// Inverse of a max pool: puts each maximum back where it came from, among zeros.
            ///
            /// Args:
            ///     input: The pool's output.
            ///     indices: The positions that the pool returned with `return_indices`.
            ///     kernel_size: The window's size of the pool.
            ///     stride: Its stride; `kernel_size` if not given.
            ///     padding: Its padding.
            ///     output_size: The shape of the pool's input, if it is not the smallest possible one.
            [module("nn.functional")]
            fn $unpool(g, input: Expr<'g>, indices: Expr<'g>, kernel_size: &'g [i64],
                stride: Option<&'g [i64]> = None, padding: &'g [i64] = &[0],
                output_size: Option<&'g [i64]> = None) -> Result<Expr<'g>> {
                max_unpool(g, $rank, input, indices, &Unpool { kernel_size, stride, padding, output_size })
            }
        )*
        $(
            /// Mean of each window of each channel.
            ///
            /// Args:
            ///     input: `(N, C, *)` or `(C, *)`.
            ///     kernel_size: The size of the windows, one number or one for each axis.
            ///     stride: The step between windows; `kernel_size` if not given.
            ///     padding: The zeros added at both ends of each axis, at most half a window.
            ///     ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.
            ///     count_include_pad: Whether the divisor counts the padding.
            ///     divisor_override: The divisor to use in place of the number of elements.
            ///
            /// Example:
            ///     >>> gt.nn.functional.avg_pool2d(gt.arange(16.0).reshape(1, 4, 4), 2)
            ///     tensor([[[ 2.5000,  4.5000],
            ///              [10.5000, 12.5000]]])
            [module("nn.functional").out()]
            fn $avg(g, input: Expr<'g>, kernel_size: &'g [i64], stride: Option<&'g [i64]> = None,
                padding: &'g [i64] = &[0], ceil_mode: bool = false, count_include_pad: bool = true,
                divisor_override: Option<i64> = None) -> Result<Expr<'g>> {
                let given = WindowArguments { kernel_size, stride, padding, dilation: &[1], ceil_mode };
                avg_pool(g, $spatial, input, &given, Divisors { count_include_pad, divisor_override })
            }

            /// Fractional max pooling: maxima of windows at pseudo-random positions (Graham 2014).
            ///
            /// Args:
            ///     input: `(N, C, *)` or `(C, *)`.
            ///     kernel_size: The size of the windows, one number or one for each axis.
            ///     output_size: The sizes of the output.
            ///     output_ratio: Or their ratio to the input's, between 0 and 1.
            ///     return_indices: Whether to return the flat positions of the maxima in their channel too.
            ///     _random_samples: The random numbers to use, `(N, C, axes)`.
            [module("nn.functional")]
            fn $fractional(g, input: Expr<'g>, kernel_size: &'g [i64], output_size: Option<&'g [i64]> = None,
                output_ratio: Option<&'g [f64]> = None, return_indices: bool = false,
                _random_samples: Option<Expr<'g>> = None) -> Result<TensorOrTuple<'g>> {
                let given = Fractions { kernel_size, output_size, output_ratio, samples: _random_samples };
                Ok(asked(fractional_max_pool(g, $spatial, input, &given)?, return_indices))
            }

            /// The fractional max pool of the same rank, with the flat positions of the maxima in their channel.
            [module("nn.functional")]
            fn $fractional_indices(g, input: Expr<'g>, kernel_size: &'g [i64],
                output_size: Option<&'g [i64]> = None, output_ratio: Option<&'g [f64]> = None,
                return_indices: bool = false, _random_samples: Option<Expr<'g>> = None) -> Result<[Expr<'g>; 2]> {
                let given = Fractions { kernel_size, output_size, output_ratio, samples: _random_samples };
                Ok(pair(fractional_max_pool(g, $spatial, input, &given)?))
            }
        )*

            /// Adaptive max pooling with indices: see `gt.nn.functional.adaptive_max_pool1d`.
            [function().named("adaptive_max_pool1d")]
            fn adaptive_max_pool1d_pair(g, input: Expr<'g>, output_size: &'g [i64]) -> Result<[Expr<'g>; 2]> {
                adaptive_max_pool1d_with_indices(g, input, OptionalInts(output_size), true)
            }

            /// Max pooling with indices: see `gt.nn.functional.max_pool1d`.
            [function().named("max_pool1d_with_indices")]
            fn max_pool1d_pair(g, input: Expr<'g>, kernel_size: &'g [i64], stride: Option<&'g [i64]> = None,
                padding: &'g [i64] = &[0], dilation: &'g [i64] = &[1],
                ceil_mode: bool = false) -> Result<[Expr<'g>; 2]> {
                max_pool1d_with_indices(g, input, kernel_size, stride, padding, dilation, ceil_mode, true)
            }

            /// Mean of each window of each channel of `(N, C, L)` or `(C, L)`.
            ///
            /// Args:
            ///     input: `(N, C, L)` or `(C, L)`.
            ///     kernel_size: The size of the windows.
            ///     stride: The step between windows; `kernel_size` if not given.
            ///     padding: The zeros added at both ends, at most half a window.
            ///     ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.
            ///     count_include_pad: Whether the divisor counts the padding.
            ///
            /// Example:
            ///     >>> gt.nn.functional.avg_pool1d(gt.tensor([[1.0, 3.0, 5.0, 7.0]]), kernel_size=2)
            ///     tensor([[2., 6.]])
            [module("nn.functional").out()]
            fn avg_pool1d(g, input: Expr<'g>, kernel_size: &'g [i64], stride: Option<&'g [i64]> = None,
                padding: &'g [i64] = &[0], ceil_mode: bool = false,
                count_include_pad: bool = true) -> Result<Expr<'g>> {
                let given = WindowArguments { kernel_size, stride, padding, dilation: &[1], ceil_mode };
                avg_pool(g, 1, input, &given, Divisors { count_include_pad, divisor_override: None })
            }
        }
    };
}

pools! {
    1 max_pool1d max_pool1d_with_indices lp_pool1d adaptive_avg_pool1d adaptive_max_pool1d
      adaptive_max_pool1d_with_indices max_unpool1d;
    2 max_pool2d max_pool2d_with_indices lp_pool2d adaptive_avg_pool2d adaptive_max_pool2d
      adaptive_max_pool2d_with_indices max_unpool2d;
    3 max_pool3d max_pool3d_with_indices lp_pool3d adaptive_avg_pool3d adaptive_max_pool3d
      adaptive_max_pool3d_with_indices max_unpool3d;
    spatial 2 avg_pool2d fractional_max_pool2d fractional_max_pool2d_with_indices;
    spatial 3 avg_pool3d fractional_max_pool3d fractional_max_pool3d_with_indices;
}
