//! Convolutions and their gradients, computed directly rather than by im2col.
//!
//! Each sample's channels are copied once, with padding, into planes in scratch memory. For each element of the kernel
//! (a tap) the operand of neighbouring results is then contiguous, at a fixed offset. Tiles run across the ends of
//! rows, and the results computed there are dropped. With a stride, each phase is a plane of its own. `register_tiles`
//! has the inner loops.
//!
//! The gradient with respect to the input is the same computation with the weight's channels exchanged, once for each
//! phase of the input's positions. The gradient with respect to the weight sums over positions instead of taps.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::conv_planes::{Axes, ConvolutionPass, Planes, input_planes, too_large, transposed_planes, zero};
use crate::register_tiles::{OutputPositions, RegisterTiles, TILE_ELEMENTS_MAX, Tiled, WIDTH_MAX};
use crate::strided::{SharedPtr, run_or_not};
use crate::tensor::CpuTensor;
use gt_backend::ExecError;
use gt_ops::{DType, Meta, Op, Shape, WindowSpec};
use std::ops::Range;

/// Multiply-adds of one thread per nanosecond.
const PRODUCTS_PER_NS: usize = 32;
/// Chunks per thread.
const CHUNKS_PER_THREAD: usize = 4;
/// The products that count as one element between checkpoints.
const WORK_A_PACE: usize = 16;
/// Weights of more elements than the planes of a sample, and than this, which stay in L2, are read once for as many
/// samples as have planes of [`PLANES_BYTES_MAX`] together.
const WEIGHTS_MIN: usize = 64 << 10;
const PLANES_BYTES_MAX: usize = 2 << 20;
/// The bytes that a copy moves while one weight is packed, roughly.
const PACKING_BYTES: usize = 60;
/// Output positions whose gradients are processed together: they stay in L1.
const PLACES: usize = 96;

/// The packed weights, with the offsets of their terms, that each sample is correlated with.
struct Correlation<'a, E: Tiled> {
    tiles: RegisterTiles<E>,
    planes: &'a Planes,
    passes: &'a [ConvolutionPass],
    offsets: &'a [Vec<isize>],
    /// Channels of the result in one group.
    out_channels: usize,
    /// Elements of one channel of the result.
    plane: usize,
    weights: *const E,
    weights_group: usize,
    bias: Option<*const E>,
}

// SAFETY: `weights` and `bias` point to tensors that outlive the threads' work and are only read.
unsafe impl<E: Tiled> Sync for Correlation<'_, E> {}

/// Divides `rows` rows into blocks of `most`, then of smaller powers of two: first row and number of rows of each.
fn blocks(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == rows {
            return None;
        }
        let mut block = most;
        while block > rows - at {
            block /= 2;
        }
        at += block;
        Some((at - block, block))
    })
}

impl<E: Tiled> Correlation<'_, E> {
    /// The number of positions in one depth slice of a pass, with its rows laid end to end at the planes' pitch.
    fn flat(&self, pass: &ConvolutionPass) -> usize {
        let [_, rows, columns] = pass.count;
        if rows == 0 || columns == 0 { 0 } else { (rows - 1) * self.planes.pitch[1] + columns }
    }
    fn steps(&self) -> usize {
        self.tiles.lanes * self.tiles.width
    }
    /// The number of tiles of one sample and group. A tile covers all channels of the result in the group.
    fn count(&self) -> usize {
        self.passes.iter().map(|pass| pass.count[0] * self.flat(pass).div_ceil(self.steps())).sum()
    }

    /// Computes channels `rows` of the tiles `which` of one sample and group, whose planes are at `from`.
    ///
    /// # Safety
    /// `from` holds the filled planes, and `to` is the sample's first channel of this group in the result. `rows` are
    /// whole [`blocks`].
    unsafe fn run(&self, group: usize, rows: &Range<usize>, which: Range<usize>, from: *const E, to: *mut E) {
        let (mut first, mut pace) = (0, Pace::default());
        for (pass, offsets) in self.passes.iter().zip(self.offsets) {
            let slice = self.flat(pass).div_ceil(self.steps());
            let tiles = pass.count[0] * slice;
            let range = which.start.max(first)..which.end.min(first + tiles);
            for tile in range {
                let (depth, at) = ((tile - first) / slice, (tile - first) % slice * self.steps());
                // SAFETY: `from` and `to` are those of this function's contract, and `tile` counts tiles of this pass
                // only.
                unsafe { self.tile(group, rows, pass, offsets, depth, at, from, to, &mut pace) };
            }
            first += tiles;
        }
    }

    /// # Safety
    /// Same as for [`Correlation::run`].
    #[expect(clippy::too_many_arguments, reason = "the position of a tile")]
    unsafe fn tile(
        &self,
        group: usize,
        channels: &Range<usize>,
        pass: &ConvolutionPass,
        offsets: &[isize],
        depth: usize,
        at: usize,
        from: *const E,
        to: *mut E,
        pace: &mut Pace,
    ) {
        let lanes = self.tiles.lanes;
        let places = self.steps().min(self.flat(pass) - at);
        let width = places.div_ceil(lanes);
        let pitch = self.planes.pitch[1];
        // The first element of the tile.
        let from = from.wrapping_add(depth * self.planes.pitch[0] + at);
        let mut results = [E::ZERO; TILE_ELEMENTS_MAX];
        let nothing = [E::ZERO; 8];
        let weights = self.weights.wrapping_add(group * self.weights_group + pass.weights);
        let mut weights = weights.wrapping_add(channels.start * offsets.len());
        for (row, rows) in blocks(channels.len(), self.tiles.rows) {
            let row = channels.start + row;
            pace.advance(rows * offsets.len());
            let start = self.bias.map_or(nothing.as_ptr(), |bias| bias.wrapping_add(group * self.out_channels + row));
            // SAFETY: every offset plus a tile lies within the planes, which `Planes` extends by `TILE_ELEMENTS_MAX`;
            // the packed weights have `rows * offsets.len()` elements from `weights` on, and `start` has one per row.
            unsafe {
                self.tiles.spread[rows.ilog2() as usize][width - 1](
                    offsets.len(),
                    weights,
                    offsets.as_ptr(),
                    from,
                    start,
                    results.as_mut_ptr(),
                );
            }
            weights = weights.wrapping_add(rows * offsets.len());
            let mut place = at;
            while place < at + places {
                let (y, x) = (place / pitch, place % pitch);
                let end = (y * pitch + pass.count[2]).min(at + places);
                if place < end {
                    let target = pass.base + depth * pass.steps[0] + y * pass.steps[1] + x * pass.steps[2];
                    for line in 0..rows {
                        let target = to.wrapping_add((row + line) * self.plane + target);
                        let source = results[line * width * lanes + place - at..].as_ptr();
                        // SAFETY: `x < pass.count[2]` and `y < pass.count[1]`, so the targets lie in the sample's
                        // channel; `results` holds `places` elements for each line.
                        unsafe { put(source, target, pass.steps[2], end - place) };
                    }
                }
                place = (y + 1) * pitch;
            }
        }
    }
}

/// Copies `n` elements to positions `step` apart.
///
/// # Safety
/// Source and target are valid for `n` elements.
#[inline(always)]
unsafe fn put<E: Tiled>(from: *const E, to: *mut E, step: usize, n: usize) {
    // SAFETY: source and target are valid for `n` elements at their steps by this function's contract.
    unsafe {
        if step == 1 {
            from.copy_to_nonoverlapping(to, n);
        } else {
            for i in 0..n {
                to.add(i * step).write(from.add(i).read());
            }
        }
    }
}

/// Sets all elements of a newly allocated tensor to 0.
fn zero_all(t: &CpuTensor) {
    // SAFETY: the tensor is contiguous, and callers just allocated it, so nothing else refers to its memory.
    unsafe { t.ptr().write_bytes(0, t.meta.bytes()) };
}

impl CpuBackend {
    /// Computes an op of class [`gt_ops::Class::Convolution`].
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn convolution(
        &mut self,
        op: Op,
        a: &CpuTensor,
        b: &CpuTensor,
        bias: Option<&CpuTensor>,
        spec: &WindowSpec,
        out: &Meta,
    ) -> Result<CpuTensor> {
        if matches!(out.dtype, DType::F16 | DType::BF16) {
            let wide = |t: &CpuTensor| Meta::new(t.meta.shape, DType::F32);
            let (a, b) = (self.cast(a, &wide(a), 0)?, self.cast(b, &wide(b), 0)?);
            let bias = bias.map(|bias| self.cast(bias, &wide(bias), 0)).transpose()?;
            let result = self.convolution(op, &a, &b, bias.as_ref(), spec, &Meta::new(out.shape, DType::F32))?;
            return self.cast(&result, out, 0);
        }
        let (a, b) = (self.contiguous(a)?, self.contiguous(b)?);
        let bias = bias.map(|bias| self.contiguous(bias)).transpose()?;
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        if a.numel() == 0 || b.numel() == 0 {
            // The sums have no terms, so the result is the bias or zeros. The padded planes are not allocated, since no
            // memory bounds the other sizes of an empty operand.
            let mut view = [0; gt_ops::RANK_MAX];
            let Some(bias) = bias else {
                zero_all(&result);
                return Ok(result);
            };
            view[1] = bias.strides[0];
            let spread = bias.view(out.shape, bias.offset_bytes, view);
            return self.contiguous(&spread);
        }
        match out.dtype {
            DType::F64 => self.convolve::<f64>(op, &a, &b, bias.as_ref(), spec, &result)?,
            _ => self.convolve::<f32>(op, &a, &b, bias.as_ref(), spec, &result)?,
        }
        Ok(result)
    }

    fn convolve<E: Tiled>(
        &mut self,
        op: Op,
        a: &CpuTensor,
        b: &CpuTensor,
        bias: Option<&CpuTensor>,
        spec: &WindowSpec,
        out: &CpuTensor,
    ) -> Result<()> {
        let output = spec.output().map_err(|e| ExecError::internal(e.to_string()))?;
        match op {
            Op::Convolution => {
                let in_channels = b.meta.shape.dims()[1];
                let (planes, offsets) = input_planes(spec, &output, in_channels)?;
                let [_, height, width] = output;
                let pass = ConvolutionPass {
                    taps: offsets.into_iter().zip(0..).collect(),
                    count: output,
                    base: 0,
                    steps: [height * width, width, 1],
                    weights: 0,
                };
                self.correlate::<E>(a, b, bias, spec, &planes, vec![pass], false, out)
            }
            Op::ConvolutionInput => {
                let (planes, passes) = transposed_planes(spec, &output, b.meta.shape.dims()[0] / spec.groups)?;
                let phases: usize =
                    spec.input.iter().zip(&spec.stride).map(|(size, stride)| size.min(stride)).product();
                if passes.len() < phases {
                    // Positions of the other phases are in no window.
                    zero_all(out);
                }
                self.correlate::<E>(a, b, None, spec, &planes, passes, true, out)
            }
            _ => self.weight_gradient::<E>(a, b, spec, &output, out),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the operands of a convolution")]
    fn correlate<E: Tiled>(
        &mut self,
        x: &CpuTensor,
        weight: &CpuTensor,
        bias: Option<&CpuTensor>,
        spec: &WindowSpec,
        planes: &Planes,
        mut passes: Vec<ConvolutionPass>,
        transposed: bool,
        out: &CpuTensor,
    ) -> Result<()> {
        let tiles = E::tiles(self.level);
        let groups = spec.groups;
        let [rows, columns, ..] = *weight.meta.shape.dims() else { return Err(ExecError::internal("a flat weight")) };
        let kernel: usize = spec.kernel.iter().product();
        let (out_channels, in_channels) = if transposed { (columns, rows / groups) } else { (rows / groups, columns) };
        // The terms of the sums are ordered by channel, then by tap.
        let mut offsets = Vec::with_capacity(passes.len());
        let mut weights_group = 0;
        for pass in &mut passes {
            pass.weights = weights_group;
            weights_group += out_channels * in_channels * pass.taps.len();
            let channels = 0..in_channels;
            offsets.push(
                channels
                    .flat_map(|c| pass.taps.iter().map(move |(tap, _)| (c * planes.channel) as isize + tap))
                    .collect(),
            );
        }
        let packed = self.scratch::<E>(out.meta.dtype, weights_group * groups)?;
        let channel_blocks: Vec<(usize, usize)> = blocks(out_channels, tiles.rows).collect();
        let (source, packed_at) = (SharedPtr::new(weight.ptr().cast::<E>()), SharedPtr::new(packed.ptr().cast::<E>()));
        // The weights of a channel of the result and those of a channel of the operand are so far apart.
        let [row_step, channel_step] = if transposed { [kernel, columns * kernel] } else { [columns * kernel, kernel] };
        let packing_bytes = weights_group.saturating_mul(groups).saturating_mul(PACKING_BYTES);
        run_or_not(&mut self.pool, packing_bytes, groups * channel_blocks.len(), &|i| {
            let (group, (row, rows)) = (i / channel_blocks.len(), channel_blocks[i % channel_blocks.len()]);
            let first = if transposed { group * in_channels * channel_step } else { group * out_channels * row_step };
            for pass in &passes {
                let at = group * weights_group + pass.weights + row * in_channels * pass.taps.len();
                let (mut pace, mut at) = (Pace::default(), packed_at.get().wrapping_add(at));
                for channel in 0..in_channels {
                    pace.advance(rows * pass.taps.len());
                    for (_, tap) in &pass.taps {
                        for row in row..row + rows {
                            // SAFETY: `row`, `channel` and `tap` index the group's weights; `packed` has
                            // `weights_group * groups` elements, each of which is written once.
                            unsafe {
                                at.write(
                                    source.get().add(first + row * row_step + channel * channel_step + tap).read(),
                                );
                                at = at.add(1);
                            }
                        }
                    }
                }
            }
        })?;
        let correlation = Correlation::<E> {
            tiles,
            planes,
            passes: &passes,
            offsets: &offsets,
            out_channels,
            plane: out.meta.shape.dims()[2..].iter().product(),
            weights: packed.ptr().cast::<E>(),
            weights_group,
            bias: bias.map(|bias| bias.ptr().cast::<E>().cast_const()),
        };
        let items = out.meta.shape.dims()[0] * groups;
        let tiles = correlation.count();
        if weights_group > planes.elements.max(WEIGHTS_MIN) {
            return self.correlate_by_channels(x, &correlation, groups, in_channels, &channel_blocks, out);
        }
        let per_item = passes.iter().map(|pass| pass.count.iter().product::<usize>() * pass.taps.len()).sum::<usize>();
        let products = per_item.saturating_mul(out_channels * in_channels).saturating_add(planes.elements);
        let work_ns = items.saturating_mul(products) / PRODUCTS_PER_NS;
        let threads = if self.pool.pays(work_ns) { self.pool.threads() } else { 1 };
        // Threads divide the samples, or the tiles of each sample if there are few.
        let parts = if items >= 2 * threads { 1 } else { (2 * threads).div_ceil(items).min(tiles) };
        let chunks = if threads == 1 { 1 } else { items.min(threads * CHUNKS_PER_THREAD) };
        let scratch = self.scratch::<E>(out.meta.dtype, chunks * parts * planes.elements)?;
        let (from, to, scratch_at) = (
            SharedPtr::new(x.ptr().cast::<E>()),
            SharedPtr::new(out.ptr().cast::<E>()),
            SharedPtr::new(scratch.ptr().cast::<E>()),
        );
        let source = planes.axes.iter().map(|axis| axis.source).product::<usize>() * in_channels;
        self.pool.run(chunks * parts, &|i| {
            let (chunk, part) = (i / parts, i % parts);
            let which = tiles * part / parts..tiles * (part + 1) / parts;
            let scratch = scratch_at.get().wrapping_add(i * planes.elements);
            for item in items * chunk / chunks..items * (chunk + 1) / chunks {
                // SAFETY: item `item` reads its own `source` elements and writes its own `out_channels * plane`
                // elements, parts write different tiles, and each of the `chunks * parts` calls has its own scratch
                // memory.
                unsafe {
                    planes.fill(in_channels, from.get().wrapping_add(item * source).cast_const(), scratch);
                    let to = to.get().wrapping_add(item * out_channels * correlation.plane);
                    correlation.run(item % groups, &(0..out_channels), which.clone(), scratch, to);
                }
            }
        })
    }

    /// Computes a correlation with large weights: threads divide the channels of the result, so that each weight is
    /// read by one thread, once for several samples.
    fn correlate_by_channels<E: Tiled>(
        &mut self,
        x: &CpuTensor,
        correlation: &Correlation<'_, E>,
        groups: usize,
        in_channels: usize,
        channel_blocks: &[(usize, usize)],
        out: &CpuTensor,
    ) -> Result<()> {
        let &Correlation { planes, out_channels, plane, .. } = correlation;
        let (items, tiles) = (out.meta.shape.dims()[0] * groups, correlation.count());
        let sample_bytes = groups.saturating_mul(planes.elements).saturating_mul(size_of::<E>());
        let together = (PLANES_BYTES_MAX / sample_bytes.max(1)).clamp(1, items / groups) * groups;
        let scratch = self.scratch::<E>(out.meta.dtype, together * planes.elements)?;
        let (from, to, scratch_at) = (
            SharedPtr::new(x.ptr().cast::<E>()),
            SharedPtr::new(out.ptr().cast::<E>()),
            SharedPtr::new(scratch.ptr().cast::<E>()),
        );
        let source = planes.axes.iter().map(|axis| axis.source).product::<usize>() * in_channels;
        for first in (0..items).step_by(together) {
            let some = together.min(items - first);
            let plane_of = |i: usize| scratch_at.get().wrapping_add(i * planes.elements);
            self.pool.run(some, &|i| {
                // SAFETY: item `first + i` has `source` elements, and its planes have `planes.elements` of their own.
                unsafe {
                    let from = from.get().wrapping_add((first + i) * source).cast_const();
                    planes.fill(in_channels, from, plane_of(i));
                }
            })?;
            self.pool.run(groups * channel_blocks.len(), &|i| {
                let (group, (row, rows)) = (i / channel_blocks.len(), channel_blocks[i % channel_blocks.len()]);
                for item in (group..some).step_by(groups) {
                    let to = to.get().wrapping_add((first + item) * out_channels * plane);
                    // SAFETY: the planes were filled above, and each call writes its own channels.
                    unsafe { correlation.run(group, &(row..row + rows), 0..tiles, plane_of(item), to) };
                }
            })?;
        }
        Ok(())
    }

    fn weight_gradient<E: Tiled>(
        &mut self,
        grads: &CpuTensor,
        x: &CpuTensor,
        spec: &WindowSpec,
        output: &Axes,
        out: &CpuTensor,
    ) -> Result<()> {
        let tiles = E::tiles(self.level);
        let groups = spec.groups;
        let [rows, in_channels, ..] = *out.meta.shape.dims() else { return Err(ExecError::internal("a flat weight")) };
        let (out_channels, samples) = (rows / groups, grads.meta.shape.dims()[0]);
        let (planes, taps) = input_planes(spec, output, in_channels)?;
        let terms = in_channels * taps.len();
        let mut offsets: Vec<isize> =
            (0..in_channels).flat_map(|c| taps.iter().map(move |tap| (c * planes.channel) as isize + tap)).collect();
        // The last tile is padded with taps whose sums are not used.
        offsets.resize(terms.next_multiple_of(tiles.taps), 0);
        let wide = out_channels.next_multiple_of(tiles.lanes);
        let [depth, height, width] = *output;
        let places = depth * height * width;
        let work_ns = samples.saturating_mul(groups * places).saturating_mul(wide * terms) / PRODUCTS_PER_NS;
        let threads = if self.pool.pays(work_ns) { self.pool.threads() } else { 1 };
        // Threads divide the samples, or blocks of taps if there are few samples.
        let chunks = if threads == 1 { 1 } else { samples.clamp(1, 2 * threads) };
        let blocks = offsets.len() / tiles.taps;
        let parts = if chunks >= threads { 1 } else { threads.div_ceil(chunks).min(blocks) };
        let sums_group = offsets.len() * wide;
        let each = planes.elements + places * wide + sums_group * groups;
        let scratch = self.scratch::<E>(out.meta.dtype, each.checked_mul(chunks * parts).ok_or_else(too_large)?)?;
        let (from, grads_at, scratch_at) = (
            SharedPtr::new(x.ptr().cast::<E>()),
            SharedPtr::new(grads.ptr().cast::<E>()),
            SharedPtr::new(scratch.ptr().cast::<E>()),
        );
        let source = planes.axes.iter().map(|axis| axis.source).product::<usize>() * in_channels;
        let rows_at_once = (PLACES / width).clamp(1, height);
        let sums_of = |chunk: usize| scratch_at.get().wrapping_add(chunk * each + planes.elements + places * wide);
        self.pool.run(chunks * parts, &|i| {
            let (chunk, part) = (i / parts, i % parts);
            let scratch = scratch_at.get().wrapping_add(i * each);
            let by_channel = scratch.wrapping_add(planes.elements);
            let mut pace = Pace::default();
            // SAFETY: each call has its own `each` elements of scratch memory, and `item` indexes the samples' groups,
            // so all positions lie in the operands.
            unsafe {
                zero(sums_of(i), sums_group * groups);
                for item in samples * chunk / chunks * groups..samples * (chunk + 1) / chunks * groups {
                    let grads = grads_at.get().wrapping_add(item * out_channels * places).cast_const();
                    planes.fill(in_channels, from.get().wrapping_add(item * source).cast_const(), scratch);
                    transpose_padded(grads, by_channel, out_channels, places, wide);
                    let sums = sums_of(i).wrapping_add(item % groups * sums_group);
                    for d in 0..depth {
                        for h in (0..height).step_by(rows_at_once) {
                            let part_of_grads = OutputPositions {
                                from: scratch.wrapping_add(d * planes.pitch[0] + h * planes.pitch[1]).cast_const(),
                                from_row: planes.pitch[1],
                                grads: by_channel.wrapping_add((d * height + h) * width * wide).cast_const(),
                                grads_step: wide,
                                rows: rows_at_once.min(height - h),
                                columns: width,
                            };
                            for block in blocks * part / parts..blocks * (part + 1) / parts {
                                let mut vector = 0;
                                pace.advance(part_of_grads.rows * width * tiles.taps * wide / WORK_A_PACE);
                                while vector < wide / tiles.lanes {
                                    let vectors = (wide / tiles.lanes - vector).min(WIDTH_MAX);
                                    let at = vector * tiles.lanes;
                                    let places = OutputPositions {
                                        grads: part_of_grads.grads.wrapping_add(at),
                                        ..part_of_grads
                                    };
                                    tiles.collect[vectors - 1](
                                        &places,
                                        offsets.as_ptr().add(block * tiles.taps),
                                        sums.wrapping_add(block * tiles.taps * wide + at),
                                        wide,
                                    );
                                    vector += vectors;
                                }
                            }
                        }
                    }
                }
            }
        })?;
        let to = out.ptr().cast::<E>();
        for row in 0..rows {
            for term in 0..terms {
                let at = row / out_channels * sums_group + term * wide + row % out_channels;
                let mut sum = E::ZERO;
                for chunk in 0..chunks * parts {
                    // SAFETY: every call zeroed and then wrote all of its `sums_group * groups` sums.
                    sum = sum.plus(unsafe { sums_of(chunk).add(at).read() });
                }
                // SAFETY: the result has `rows * terms` elements.
                unsafe { to.add(row * terms + term).write(sum) };
            }
        }
        Ok(())
    }

    /// Scratch memory for `elements` elements, freed after the instruction.
    fn scratch<E: Tiled>(&self, dtype: DType, elements: usize) -> Result<CpuTensor> {
        debug_assert_eq!(dtype.size(), size_of::<E>());
        let shape = Shape::new(&[elements]).map_err(|_| too_large())?;
        self.new_tensor(&Meta::new(shape, dtype))
    }
}

/// Transposes gradients from `rows` channels of `places` positions to positions of `wide` channels, padded with zeros.
///
/// # Safety
/// `from` is valid for `rows * places` elements, and `to` has room for `places * wide`.
unsafe fn transpose_padded<E: Tiled>(from: *const E, to: *mut E, rows: usize, places: usize, wide: usize) {
    const BLOCK: usize = 16;
    for first in (0..places).step_by(BLOCK) {
        let n = BLOCK.min(places - first);
        for row in 0..wide {
            for place in first..first + n {
                // SAFETY: `row * places + place` and `place * wide + row` lie within what this function's contract
                // grants.
                unsafe {
                    let x = if row < rows { from.add(row * places + place).read() } else { E::ZERO };
                    to.add(place * wide + row).write(x);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuOptions;
    use crate::kernels::SimdLevel;
    use crate::test_tensors::{download, run, upload};
    use gt_ops::{Attrs, philox};

    fn noise(shape: &Shape, seed: u64) -> Vec<f64> {
        let unit = |i| philox::block(seed, 0, i)[0] as f64 / u32::MAX as f64 - 0.5;
        (0..shape.numel() as u64).map(unit).collect()
    }

    /// Calls `f` with the positions in input, weight and output of each product of a plane convolution.
    fn products(spec: &WindowSpec, x: &Shape, w: &Shape, y: &Shape, mut f: impl FnMut([usize; 3])) {
        let at = |of: &Shape, index: [usize; 4]| {
            index.iter().zip(of.dims()).fold(0, |position, (i, size)| position * size + i)
        };
        let [samples, out_channels, height, width] = *y.dims() else { panic!("a plane convolution") };
        let [_, in_channels, kernel_h, kernel_w] = *w.dims() else { panic!("a plane convolution") };
        for i in 0..samples * out_channels * height * width * in_channels * kernel_h * kernel_w {
            let (kw, i) = (i % kernel_w, i / kernel_w);
            let (kh, i) = (i % kernel_h, i / kernel_h);
            let (c, i) = (i % in_channels, i / in_channels);
            let (ow, i) = (i % width, i / width);
            let (oh, i) = (i % height, i / height);
            let (o, n) = (i % out_channels, i / out_channels);
            let place = |axis: usize, out: usize, k: usize| {
                (out * spec.stride[axis] + k * spec.dilation[axis]).checked_sub(spec.low[axis])
            };
            let channel = o / (out_channels / spec.groups) * in_channels + c;
            if let (Some(h), Some(w_)) = (place(1, oh, kh), place(2, ow, kw))
                && h < spec.input[1]
                && w_ < spec.input[2]
            {
                f([at(x, [n, channel, h, w_]), at(w, [o, c, kh, kw]), at(y, [n, o, oh, ow])]);
            }
        }
    }

    #[test]
    fn all_levels_convolve_as_defined() {
        let plain = WindowSpec {
            rank: 2,
            groups: 1,
            input: [1, 7, 9],
            kernel: [1, 3, 2],
            stride: [1; 3],
            dilation: [1; 3],
            low: [0; 3],
            high: [0; 3],
        };
        let odd =
            WindowSpec { groups: 2, stride: [1, 2, 3], dilation: [1, 2, 1], low: [0, 2, 1], high: [0, 1, 2], ..plain };
        for (spec, samples, in_channels, out_channels) in [(plain, 1, 3, 19), (odd, 5, 2, 6), (plain, 2, 1, 1)] {
            let output = spec.output().unwrap();
            let shape = |dims: &[usize]| Shape::new(dims).unwrap();
            let x = shape(&[samples, in_channels * spec.groups, spec.input[1], spec.input[2]]);
            let w = shape(&[out_channels, in_channels, spec.kernel[1], spec.kernel[2]]);
            let y = shape(&[samples, out_channels, output[1], output[2]]);
            for (op, first, second) in
                [(Op::Convolution, x, w), (Op::ConvolutionInput, y, w), (Op::ConvolutionWeight, y, x)]
            {
                let (a, b) = (noise(&first, 1), noise(&second, 2));
                for dtype in [DType::F32, DType::F64] {
                    let attrs = Attrs::Window(Box::new(spec));
                    let result = match op {
                        Op::Convolution => y,
                        Op::ConvolutionInput => x,
                        _ => w,
                    };
                    let mut want = vec![0.0; result.numel()];
                    products(&spec, &x, &w, &y, |[x, w, y]| match op {
                        Op::Convolution => want[y] += a[x] * b[w],
                        Op::ConvolutionInput => want[x] += a[y] * b[w],
                        _ => want[w] += a[y] * b[x],
                    });
                    for level in SimdLevel::available() {
                        let options = CpuOptions { threads: 2, memory_bytes_limit: 64 << 20, ..CpuOptions::default() };
                        let mut backend = CpuBackend::at_level(options, level);
                        let (a, b) = (upload(&mut backend, first, dtype, &a), upload(&mut backend, second, dtype, &b));
                        let got = run(&mut backend, op, &[&a, &b], &[], &attrs);
                        let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-4 };
                        for (got, want) in download(&mut backend, &got).iter().zip(&want) {
                            assert!((got - want).abs() < tolerance, "{} at {level:?}: {got}, not {want}", op.name());
                        }
                    }
                }
            }
        }
    }
}
