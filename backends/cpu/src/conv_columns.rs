//! Convolutions with large weights and few positions, as matrix products.
//!
//! A convolution is the product of the weight and a matrix whose rows are the elements that each position's window
//! reads (im2col: Chellapilla, Puri and Simard 2006). With fewer positions than channels, that matrix is smaller than
//! the weight, which is then read as it is, once: packing it for tiles, or adding to its gradient for every sample,
//! takes longer than the products.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::conv_planes::{Axes, Axis, too_large, zero};
use crate::matmul::BatchedMatmul;
use crate::matmul_few_rows::ROWS_MAX;
use crate::register_tiles::Tiled;
use crate::strided::{SharedPtr, StridedMatrix, run_or_not};
use crate::tensor::CpuTensor;
use gt_ops::window::WINDOW_AXES_MAX;
use gt_ops::{Meta, Shape, WindowSpec};

/// The channels of a sample that one task adds gradients to.
const CHANNELS: usize = 32;

/// A convolution in one group, whose positions are those of all samples.
pub struct WindowColumns {
    axes: [Axis; WINDOW_AXES_MAX],
    /// Elements of a channel of the input.
    plane: usize,
    /// Positions of a sample.
    places: usize,
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
        let axes = std::array::from_fn(|i| Axis::of_taps(spec, output, i, false));
        let (plane, places) = (spec.input.iter().product(), output.iter().product());
        let terms = spec.kernel.iter().product::<usize>() * in_channels;
        Some(WindowColumns { axes, plane, places, samples, in_channels, out_channels, terms })
    }

    fn positions(&self) -> usize {
        self.samples * self.places
    }
    fn kernel(&self) -> usize {
        self.terms / self.in_channels
    }

    /// Calls `each` with every tap of the kernel that reads an element of a channel at a place, and the element.
    #[inline(always)]
    fn for_taps(&self, place: usize, mut each: impl FnMut(usize, usize)) {
        let [depth, height, width] = &self.axes;
        let (line, column) = (place / width.count, place % width.count);
        for (i, z) in depth.sources(line / height.count) {
            for (j, y) in height.sources(line % height.count) {
                for (k, x) in width.sources(column) {
                    let tap = (i * height.starts.len() + j) * width.starts.len() + k;
                    each(tap, (z * height.source + y) * width.source + x);
                }
            }
        }
    }
}

/// A matrix of the dtype of `like`.
fn matrix_meta(like: &CpuTensor, rows: usize, columns: usize) -> Result<Meta> {
    Ok(Meta::new(Shape::new(&[rows, columns]).map_err(|_| too_large())?, like.meta.dtype))
}

/// The matrix whose rows are the weights of channels of the result.
fn by_channel(weight: &CpuTensor, columns: &WindowColumns) -> Result<CpuTensor> {
    let Meta { shape, .. } = matrix_meta(weight, columns.out_channels, columns.terms)?;
    let strides = shape.contiguous_strides().map(|step| step * weight.size() as isize);
    Ok(weight.view(shape, weight.offset_bytes, strides))
}

impl CpuBackend {
    /// The matrix of what each position reads of the input `x`.
    fn columns<E: Tiled>(&mut self, x: &CpuTensor, columns: &WindowColumns) -> Result<CpuTensor> {
        let (terms, places, kernel) = (columns.terms, columns.places, columns.kernel());
        let matrix = self.new_tensor(&matrix_meta(x, columns.positions(), terms)?)?;
        let [from, to] = [x, &matrix].map(|t| SharedPtr::new(t.ptr().cast::<E>()));
        run_or_not(&mut self.pool, matrix.meta.bytes(), columns.positions(), &|position| {
            let (sample, place) = (position / places, position % places);
            let (row, mut pace) = (to.get().wrapping_add(position * terms), Pace::default());
            let elements = from.get().wrapping_add(sample * columns.in_channels * columns.plane);
            // SAFETY: the row of this position has `terms` elements, which this call alone writes.
            unsafe { zero(row, terms) };
            columns.for_taps(place, |tap, source| {
                pace.advance(columns.in_channels);
                for channel in 0..columns.in_channels {
                    // SAFETY: the row has `kernel` elements of each channel, of which `tap` is one, and a channel of
                    // the input has `plane` elements, of which `source` is one.
                    unsafe {
                        row.add(channel * kernel + tap).write(elements.add(channel * columns.plane + source).read())
                    };
                }
            });
        })?;
        Ok(matrix)
    }

    /// A tensor with the layout of results, as a matrix with a row for each position.
    fn by_position<E: Tiled>(&mut self, results: &CpuTensor, columns: &WindowColumns) -> Result<CpuTensor> {
        let (channels, places) = (columns.out_channels, columns.places);
        let matrix = self.new_tensor(&matrix_meta(results, columns.positions(), channels)?)?;
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
        let (channels, places, positions) = (columns.out_channels, columns.places, columns.positions());
        let matrix = self.columns::<E>(x, columns)?;
        let by_channel = by_channel(weight, columns)?;
        // A product of few rows reads the weight as it is. Of more rows, it is the columns that are to be transposed.
        let (product, [position_step, channel_step]) = if positions <= ROWS_MAX {
            let meta = matrix_meta(out, positions, channels)?;
            (self.matmul(&matrix, &by_channel.transposed()?, &meta)?, [channels, 1])
        } else {
            let meta = matrix_meta(out, channels, positions)?;
            (self.matmul(&by_channel, &matrix.transposed()?, &meta)?, [1, positions])
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
        let (terms, kernel, places) = (columns.terms, columns.kernel(), columns.places);
        let by_position = self.by_position::<E>(grads, columns)?;
        let meta = matrix_meta(out, columns.positions(), terms)?;
        let product = self.matmul(&by_position, &by_channel(weight, columns)?, &meta)?;
        let [from, to] = [&product, out].map(|t| SharedPtr::new(t.ptr().cast::<E>()));
        let parts = columns.in_channels.div_ceil(CHANNELS);
        run_or_not(&mut self.pool, product.meta.bytes(), columns.samples * parts, &|i| {
            let (sample, first) = (i / parts, i % parts * CHANNELS);
            let (channels, mut pace) = (first..columns.in_channels.min(first + CHANNELS), Pace::default());
            let own = to.get().wrapping_add((sample * columns.in_channels + first) * columns.plane);
            // SAFETY: `own` are the channels of a sample that this call alone writes.
            unsafe { zero(own, channels.len() * columns.plane) };
            for place in 0..places {
                let row = from.get().wrapping_add((sample * places + place) * terms);
                columns.for_taps(place, |tap, source| {
                    pace.advance(channels.len());
                    for channel in channels.clone() {
                        // SAFETY: `own` has `plane` elements of each channel, of which `source` is one, and the row has
                        // `kernel` of each, of which `tap` is one.
                        unsafe {
                            let element = own.add((channel - first) * columns.plane + source);
                            element.write(element.read().plus(row.add(channel * kernel + tap).read()));
                        }
                    }
                });
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
