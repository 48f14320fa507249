//! The gradient of a large weight whose convolution has few positions, as one matrix product.
//!
//! The products of a gradient and an input are summed over the positions of all samples. With fewer positions than
//! channels, a matrix of the input elements that each position's window reads (im2col: Chellapilla, Puri and Simard
//! 2006) is smaller than the weight, whose sums are then written once rather than read and written for every sample.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::conv_planes::{Axes, too_large, zero};
use crate::matmul::BatchedMatmul;
use crate::register_tiles::Tiled;
use crate::strided::{SharedPtr, StridedMatrix, run_or_not};
use crate::tensor::CpuTensor;
use gt_ops::WindowSpec;

/// The element of a channel that each position reads for each tap of the kernel; none in the padding.
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

impl CpuBackend {
    /// Writes the gradient of the weight of a convolution in one group to `out`.
    pub(crate) fn weight_gradient_by_columns<E: Tiled>(
        &mut self,
        grads: &CpuTensor,
        x: &CpuTensor,
        spec: &WindowSpec,
        output: &Axes,
        out: &CpuTensor,
    ) -> Result<()> {
        let (out_channels, terms) = (out.meta.shape.dims()[0], out.numel() / out.meta.shape.dims()[0]);
        let (channels, samples) = (x.meta.shape.dims()[1], x.meta.shape.dims()[0]);
        let (sources, plane) = (sources(spec, output), spec.input.iter().product::<usize>());
        let (places, kernel) = (sources.len(), terms / channels);
        let positions = samples * places;
        // The rows of `columns` are positions, and those of `by_channel` are the gradients' channels.
        let columns = self.scratch::<E>(out.meta.dtype, positions.checked_mul(terms).ok_or_else(too_large)?)?;
        let by_channel =
            self.scratch::<E>(out.meta.dtype, positions.checked_mul(out_channels).ok_or_else(too_large)?)?;
        let [from, grads_at, columns_at, by_channel_at] =
            [x, grads, &columns, &by_channel].map(|t| SharedPtr::new(t.ptr().cast::<E>()));
        run_or_not(&mut self.pool, columns.meta.bytes(), positions, &|position| {
            let (sample, place) = (position / places, position % places);
            let (row, mut pace) = (columns_at.get().wrapping_add(position * terms), Pace::default());
            // SAFETY: each call writes the row of its position and the column of its gradients, and reads elements of
            // its sample: `sources` are less than `plane`.
            unsafe {
                zero(row, terms);
                for channel in 0..channels {
                    pace.advance(kernel);
                    let elements = from.get().wrapping_add((sample * channels + channel) * plane);
                    for (tap, source) in sources[place].iter().enumerate() {
                        if let Some(source) = source {
                            row.add(channel * kernel + tap).write(elements.add(*source).read());
                        }
                    }
                }
                for channel in 0..out_channels {
                    let gradient = grads_at.get().add((sample * out_channels + channel) * places + place).read();
                    by_channel_at.get().add(channel * positions + position).write(gradient);
                }
            }
        })?;
        let row_major =
            |ptr: *mut u8, columns: usize| StridedMatrix { ptr, row_step: columns as isize, column_step: 1 };
        let matrices =
            [row_major(out.ptr(), terms), row_major(by_channel.ptr(), positions), row_major(columns.ptr(), terms)];
        let product = BatchedMatmul {
            dtype: out.meta.dtype,
            m: out_channels,
            k: positions,
            n: terms,
            batches: 1,
            rows_in_registers: false,
            bias: None,
            matrices: &|_| matrices,
        };
        // SAFETY: the tensors are contiguous and have the elements of the matrices, and two were allocated here.
        unsafe { product.run(&mut self.pool) }
    }
}
