//! Convolutions with large weights and few positions, as matrix products.
//!
//! A convolution is the product of the weight and a matrix whose rows are the elements that each position's window
//! reads (im2col: Chellapilla, Puri and Simard 2006). With fewer positions than channels, that matrix is smaller than
//! the weight, which is then read as it is, once: packing it for tiles, or adding to its gradient for every sample,
//! takes longer than the products.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::conv_planes::{Axes, too_large, zero};
use crate::matmul::BatchedMatmul;
use crate::matmul_few_rows::ROWS_MAX;
use crate::register_tiles::Tiled;
use crate::strided::{SharedPtr, StridedMatrix, run_or_not};
use crate::tensor::CpuTensor;
use gt_backend::ExecError;
use gt_ops::{Meta, RANK_MAX, Shape, WindowSpec};

/// The channels of a sample that one task adds gradients to.
const CHANNELS: usize = 32;

/// A convolution in one group, whose positions are those of all samples.
pub struct WindowColumns {
    /// The element of a channel that each place reads for each tap of the kernel; none in the padding.
    sources: Vec<Vec<Option<usize>>>,
    /// Elements of a channel of the input.
    plane: usize,
    samples: usize,
    in_channels: usize,
    out_channels: usize,
    /// The elements of a row: those of a window in all channels.
    terms: usize,
}

impl WindowColumns {
    /// The convolution of `samples` with a weight of `out_channels` and `in_channels`; none if it has more positions
    /// than channels of the result.
    pub fn new(
        spec: &WindowSpec,
        output: &Axes,
        [samples, out_channels, in_channels]: [usize; 3],
    ) -> Option<WindowColumns> {
        let positions = samples.saturating_mul(output.iter().product());
        if spec.groups != 1 || positions > out_channels {
            return None;
        }
        let terms = spec.kernel.iter().product::<usize>() * in_channels;
        let plane = spec.input.iter().product();
        Some(WindowColumns { sources: sources(spec, output), plane, samples, in_channels, out_channels, terms })
    }

    fn places(&self) -> usize {
        self.sources.len()
    }
    fn positions(&self) -> usize {
        self.samples * self.places()
    }
    fn kernel(&self) -> usize {
        self.terms / self.in_channels
    }
}

/// The element of a channel that each place reads for each tap of the kernel; none in the padding.
fn sources(spec: &WindowSpec, output: &Axes) -> Vec<Vec<Option<usize>>> {
    let [depth, height, width] = *output;
    let at = |axis: usize, place: usize, tap: usize| {
        let at = (place * spec.stride[axis] + tap * spec.dilation[axis]).checked_sub(spec.low[axis])?;
        (at < spec.input[axis]).then_some(at)
    };
    let taps = |place: [usize; 3]| {
        let [depths, heights, widths] = spec.kernel;
        let mut found = Vec::with_capacity(depths * heights * widths);
        for d in 0..depths {
            for h in 0..heights {
                found.extend((0..widths).map(|w| {
                    let (d, h, w) = (at(0, place[0], d)?, at(1, place[1], h)?, at(2, place[2], w)?);
                    Some((d * spec.input[1] + h) * spec.input[2] + w)
                }));
            }
        }
        found
    };
    let places = (0..depth).flat_map(|d| (0..height).flat_map(move |h| (0..width).map(move |w| [d, h, w])));
    places.map(taps).collect()
}

/// The matrix whose rows are the weights of channels of the result.
fn flat(weight: &CpuTensor, channels: usize, terms: usize) -> Result<CpuTensor> {
    let shape = Shape::new(&[channels, terms]).map_err(|_| too_large())?;
    let mut strides = [0; RANK_MAX];
    strides[..2].copy_from_slice(&[(terms * weight.size()) as isize, weight.size() as isize]);
    Ok(weight.view(shape, weight.offset_bytes, strides))
}

fn transposed(matrix: &CpuTensor) -> Result<CpuTensor> {
    let &[rows, columns] = matrix.meta.shape.dims() else { return Err(ExecError::internal("a matrix has two axes")) };
    let shape = Shape::new(&[columns, rows]).map_err(|_| too_large())?;
    let mut strides = matrix.strides;
    strides.swap(0, 1);
    Ok(matrix.view(shape, matrix.offset_bytes, strides))
}

impl CpuBackend {
    /// A matrix with contiguous rows.
    fn matrix(&self, like: &CpuTensor, rows: usize, columns: usize) -> Result<CpuTensor> {
        let shape = Shape::new(&[rows, columns]).map_err(|_| too_large())?;
        self.new_tensor(&Meta::new(shape, like.meta.dtype))
    }

    /// The matrix of what each position reads of the input `x`.
    fn columns<E: Tiled>(&mut self, x: &CpuTensor, columns: &WindowColumns) -> Result<CpuTensor> {
        let (terms, places, kernel) = (columns.terms, columns.places(), columns.kernel());
        let matrix = self.matrix(x, columns.positions(), terms)?;
        let [from, to] = [x, &matrix].map(|t| SharedPtr::new(t.ptr().cast::<E>()));
        run_or_not(&mut self.pool, matrix.meta.bytes(), columns.positions(), &|position| {
            let (sample, place) = (position / places, position % places);
            let (row, mut pace) = (to.get().wrapping_add(position * terms), Pace::default());
            // SAFETY: each call writes the row of its position, and reads elements of its sample: `sources` are less
            // than `plane`.
            unsafe {
                zero(row, terms);
                for channel in 0..columns.in_channels {
                    pace.advance(kernel);
                    let elements = from.get().wrapping_add((sample * columns.in_channels + channel) * columns.plane);
                    for (tap, source) in columns.sources[place].iter().enumerate() {
                        if let Some(source) = source {
                            row.add(channel * kernel + tap).write(elements.add(*source).read());
                        }
                    }
                }
            }
        })?;
        Ok(matrix)
    }

    /// A tensor with the layout of results, as a matrix with a row for each position.
    fn by_position<E: Tiled>(&mut self, results: &CpuTensor, columns: &WindowColumns) -> Result<CpuTensor> {
        let (channels, places) = (columns.out_channels, columns.places());
        let matrix = self.matrix(results, columns.positions(), channels)?;
        let [from, to] = [results, &matrix].map(|t| SharedPtr::new(t.ptr().cast::<E>()));
        run_or_not(&mut self.pool, matrix.meta.bytes(), columns.positions(), &|position| {
            let first = position / places * channels * places + position % places;
            for channel in 0..channels {
                // SAFETY: both have an element for each position and channel, and each call writes its own row.
                unsafe {
                    to.get().add(position * channels + channel).write(from.get().add(first + channel * places).read())
                };
            }
        })?;
        Ok(matrix)
    }

    /// Writes a convolution of `x` to `out`.
    pub(crate) fn convolution_by_columns<E: Tiled>(
        &mut self,
        x: &CpuTensor,
        weight: &CpuTensor,
        bias: Option<&CpuTensor>,
        columns: &WindowColumns,
        out: &CpuTensor,
    ) -> Result<()> {
        let (channels, places, positions) = (columns.out_channels, columns.places(), columns.positions());
        let matrix = self.columns::<E>(x, columns)?;
        let flat = flat(weight, channels, columns.terms)?;
        // A product of few rows reads the weight as it is. Of more rows, it is the columns that are to be transposed.
        let (product, [position_step, channel_step]) = if positions <= ROWS_MAX {
            let meta = Meta::new(Shape::new(&[positions, channels]).map_err(|_| too_large())?, out.meta.dtype);
            (self.matmul(&matrix, &transposed(&flat)?, &meta)?, [channels, 1])
        } else {
            let meta = Meta::new(Shape::new(&[channels, positions]).map_err(|_| too_large())?, out.meta.dtype);
            (self.matmul(&flat, &transposed(&matrix)?, &meta)?, [1, positions])
        };
        let bias = bias.map(|bias| SharedPtr::new(bias.ptr().cast::<E>()));
        let [from, to] = [&product, out].map(|t| SharedPtr::new(t.ptr().cast::<E>()));
        run_or_not(&mut self.pool, out.meta.bytes(), columns.samples, &|sample| {
            for (channel, place) in (0..channels).flat_map(|channel| (0..places).map(move |place| (channel, place))) {
                // SAFETY: both have an element for each position and channel, the bias has one for each channel, and
                // each call writes its own sample.
                unsafe {
                    let sum = from.get().add((sample * places + place) * position_step + channel * channel_step).read();
                    let result = bias.as_ref().map_or(sum, |bias| sum.plus(bias.get().add(channel).read()));
                    to.get().add((sample * channels + channel) * places + place).write(result);
                }
            }
        })
    }

    /// Writes the gradient of a convolution's input to `out`.
    pub(crate) fn input_gradient_by_columns<E: Tiled>(
        &mut self,
        grads: &CpuTensor,
        weight: &CpuTensor,
        columns: &WindowColumns,
        out: &CpuTensor,
    ) -> Result<()> {
        let (terms, kernel, places) = (columns.terms, columns.kernel(), columns.places());
        let by_position = self.by_position::<E>(grads, columns)?;
        let flat = flat(weight, columns.out_channels, terms)?;
        let meta = Meta::new(Shape::new(&[columns.positions(), terms]).map_err(|_| too_large())?, out.meta.dtype);
        let product = self.matmul(&by_position, &flat, &meta)?;
        let [from, to] = [&product, out].map(|t| SharedPtr::new(t.ptr().cast::<E>()));
        let parts = columns.in_channels.div_ceil(CHANNELS);
        run_or_not(&mut self.pool, product.meta.bytes(), columns.samples * parts, &|i| {
            let (sample, first) = (i / parts, i % parts * CHANNELS);
            let (channels, mut pace) = (first..columns.in_channels.min(first + CHANNELS), Pace::default());
            // SAFETY: each call writes its own channels of a sample, and `sources` are less than `plane`.
            unsafe {
                let own = to.get().add((sample * columns.in_channels + first) * columns.plane);
                zero(own, channels.len() * columns.plane);
                for (place, sources) in columns.sources.iter().enumerate() {
                    let row = from.get().add((sample * places + place) * terms);
                    for channel in channels.clone() {
                        pace.advance(kernel);
                        let elements = own.add((channel - first) * columns.plane);
                        for (tap, source) in sources.iter().enumerate() {
                            if let Some(source) = source {
                                let element = elements.add(*source);
                                element.write(element.read().plus(row.add(channel * kernel + tap).read()));
                            }
                        }
                    }
                }
            }
        })
    }

    /// Writes the gradient of a convolution's weight to `out`.
    pub(crate) fn weight_gradient_by_columns<E: Tiled>(
        &mut self,
        grads: &CpuTensor,
        x: &CpuTensor,
        columns: &WindowColumns,
        out: &CpuTensor,
    ) -> Result<()> {
        let (matrix, by_position) = (self.columns::<E>(x, columns)?, self.by_position::<E>(grads, columns)?);
        let row_major =
            |t: &CpuTensor, columns: usize| StridedMatrix { ptr: t.ptr(), row_step: columns as isize, column_step: 1 };
        let by_channel = row_major(&by_position, columns.out_channels).transposed();
        let matrices = [row_major(out, columns.terms), by_channel, row_major(&matrix, columns.terms)];
        let product = BatchedMatmul {
            dtype: out.meta.dtype,
            m: columns.out_channels,
            k: columns.positions(),
            n: columns.terms,
            batches: 1,
            rows_in_registers: false,
            bias: None,
            matrices: &|_| matrices,
        };
        // SAFETY: the tensors are contiguous and have the elements of the matrices, and two were allocated here.
        unsafe { product.run(&mut self.pool) }
    }
}
