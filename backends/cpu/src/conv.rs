//! Convolutions and their gradients, computed directly rather than by im2col, unless a large weight has few positions.
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
use crate::conv_columns::WindowColumns;
use crate::conv_merged::{MergedPlanes, PackedWeights};
use crate::conv_planes::{
    Axes, ConvolutionPass, Planes, blocks, input_planes, put, too_large, transposed_planes, zero,
};
use crate::register_tiles::{
    DOTS, GradientRows, LINES_MAX, OutputPositions, OutputRows, RegisterTiles, TILE_ELEMENTS_MAX, Tiled, WIDTH_MAX,
};
use crate::strided::{SharedPtr, run_or_not};
use crate::tensor::CpuTensor;
use gt_backend::ExecError;
use gt_ops::{DType, Meta, Op, WindowSpec};
use std::ops::Range;

/// Multiply-adds of one thread per nanosecond.
const PRODUCTS_PER_NS: usize = 32;
/// Chunks per thread.
const CHUNKS_PER_THREAD: usize = 4;
/// Rows and columns of the blocks in which the sums of a weight's gradient are brought into the order of the weight.
const TRANSPOSED: usize = 16;
/// The products that count as one element between checkpoints.
const WORK_A_PACE: usize = 16;
/// Weights of more elements than the planes of a sample, and than this, which stay in L2, are read once for as many
/// samples as have planes of [`PLANES_BYTES_MAX`] together. With few positions, they are [`WindowColumns`].
const WEIGHTS_MIN: usize = 64 << 10;
const PLANES_BYTES_MAX: usize = 2 << 20;
/// The bytes that a copy moves while one weight is packed, roughly.
const PACKING_BYTES: usize = 60;
/// Groups with at most this many channels of results are computed row by row, since tiles would be nearly empty.
const FEW_CHANNELS_MAX: usize = 2;
/// Rows of results that are sums of more products than this are computed in tiles, between which there are checkpoints.
const LINE_TERMS_MAX: usize = 4096;
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

    /// Computes all results of one sample and group, row by row.
    ///
    /// # Safety
    /// Same as for [`Correlation::run`]; the weights are packed in blocks of one row.
    unsafe fn run_lines(&self, group: usize, from: *const E, to: *mut E, pace: &mut Pace) {
        for (pass, offsets) in self.passes.iter().zip(self.offsets) {
            let [depths, rows, columns] = pass.count;
            for channel in 0..self.out_channels {
                let weights = self.weights.wrapping_add(group * self.weights_group + pass.weights);
                let bias = self.bias.map(|bias| bias.wrapping_add(group * self.out_channels + channel));
                for depth in 0..depths {
                    for (row, count) in blocks(rows, LINES_MAX) {
                        pace.advance(count * columns * offsets.len() / WORK_A_PACE);
                        let at = depth * self.planes.pitch[0] + row * self.planes.pitch[1];
                        let place = channel * self.plane + pass.base + depth * pass.steps[0] + row * pass.steps[1];
                        let lines = OutputRows {
                            terms: offsets.len(),
                            weights: weights.wrapping_add(channel * offsets.len()),
                            offsets: offsets.as_ptr(),
                            from: from.wrapping_add(at),
                            from_row: self.planes.pitch[1],
                            // SAFETY: the bias has an element for each channel of the result.
                            start: bias.map_or(E::ZERO, |bias| unsafe { bias.read() }),
                            to: to.wrapping_add(place),
                            to_row: pass.steps[1],
                            to_step: pass.steps[2],
                            columns,
                        };
                        // SAFETY: each offset plus a row and a vector lies within the planes, which `Planes` extends
                        // by `TILE_ELEMENTS_MAX`, and the results are positions of the pass in the sample's channel.
                        unsafe { self.tiles.lines[count.ilog2() as usize](&lines) };
                    }
                }
            }
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

/// Packs the weights of one channel of the operand: for each tap those of `ROWS` channels of the result.
///
/// # Safety
/// `from` has a weight for each tap in each of the rows, and `to` has room for all.
#[inline(always)]
unsafe fn pack<E: Tiled, const ROWS: usize>(taps: &[(isize, usize)], from: *const E, row_step: usize, to: *mut E) {
    for (i, (_, tap)) in taps.iter().enumerate() {
        // SAFETY: `from` has a weight for each of the taps in each of the `ROWS` rows, and `to` has room for them.
        unsafe {
            let weights: [E; ROWS] = std::array::from_fn(|row| from.add(row * row_step + tap).read());
            to.add(i * ROWS).cast::<[E; ROWS]>().write_unaligned(weights);
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
        let weight = if op == Op::ConvolutionWeight { out } else { b };
        let [out_channels, in_channels, ..] = *weight.meta.shape.dims() else {
            return Err(ExecError::internal("a flat weight"));
        };
        let sizes = [a.meta.shape.dims()[0], out_channels, in_channels];
        let columns = if weight.numel() > WEIGHTS_MIN { WindowColumns::new(spec, &output, sizes) } else { None };
        if let Some(columns) = columns {
            return match op {
                Op::Convolution => self.convolution_by_columns::<E>(a, b, bias, &columns, out),
                Op::ConvolutionInput => self.input_gradient_by_columns::<E>(a, b, &columns, out),
                _ => self.weight_gradient_by_columns::<E>(a, b, &columns, out),
            };
        }
        match op {
            Op::Convolution => {
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
                let (planes, passes) = transposed_planes(spec, &output, out_channels / spec.groups)?;
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
        let items = out.meta.shape.dims()[0] * groups;
        let by_lines = out_channels <= FEW_CHANNELS_MAX
            && items >= self.pool.threads()
            && offsets.iter().all(|of_pass: &Vec<isize>| of_pass.len() <= LINE_TERMS_MAX);
        let channel_blocks: Vec<(usize, usize)> = blocks(out_channels, if by_lines { 1 } else { tiles.rows }).collect();
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
                    let from = source.get().wrapping_add(first + row * row_step + channel * channel_step).cast_const();
                    // SAFETY: `row`, `channel` and the taps index the group's weights; `packed` has
                    // `weights_group * groups` elements, each of which is written once.
                    unsafe {
                        match rows {
                            8 => pack::<E, 8>(&pass.taps, from, row_step, at),
                            4 => pack::<E, 4>(&pass.taps, from, row_step, at),
                            2 => pack::<E, 2>(&pass.taps, from, row_step, at),
                            _ => pack::<E, 1>(&pass.taps, from, row_step, at),
                        }
                    }
                    at = at.wrapping_add(rows * pass.taps.len());
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
        let tiles = correlation.count();
        if !by_lines && weights_group > planes.elements.max(WEIGHTS_MIN) {
            let output = spec.output().map_err(|e| ExecError::internal(e.to_string()))?;
            if let Some(merged) = MergedPlanes::new(spec, &output, transposed, items / groups) {
                let packed =
                    PackedWeights { weights: correlation.weights, group: weights_group, bias: correlation.bias };
                return self.correlate_merged(x, &merged, &packed, [groups, in_channels, out_channels], out);
            }
            return self.correlate_by_channels(x, &correlation, groups, in_channels, &channel_blocks, out);
        }
        let per_item = passes.iter().map(|pass| pass.count.iter().product::<usize>() * pass.taps.len()).sum::<usize>();
        let products = per_item.saturating_mul(out_channels * in_channels).saturating_add(planes.elements);
        let work_ns = items.saturating_mul(products) / PRODUCTS_PER_NS;
        let threads = if self.pool.pays(work_ns) { self.pool.threads() } else { 1 };
        // Threads divide the samples, or the tiles of each sample if there are few.
        let parts = if by_lines || items >= 2 * threads { 1 } else { (2 * threads).div_ceil(items).min(tiles) };
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
            let (scratch, mut pace) = (scratch_at.get().wrapping_add(i * planes.elements), Pace::default());
            let first = items * chunk / chunks;
            for item in first..items * (chunk + 1) / chunks {
                // SAFETY: item `item` reads its own `source` elements and writes its own `out_channels * plane`
                // elements, parts write different tiles, and each of the `chunks * parts` calls has its own scratch
                // memory.
                unsafe {
                    let sample = from.get().wrapping_add(item * source).cast_const();
                    planes.fill(in_channels, sample, scratch, item == first);
                    let to = to.get().wrapping_add(item * out_channels * correlation.plane);
                    if by_lines {
                        correlation.run_lines(item % groups, scratch, to, &mut pace);
                    } else {
                        correlation.run(item % groups, &(0..out_channels), which.clone(), scratch, to);
                    }
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
                    planes.fill(in_channels, from, plane_of(i), first == 0);
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
        if out_channels <= FEW_CHANNELS_MAX {
            return self.weight_gradient_of_few::<E>(grads, x, spec, output, out);
        }
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
                let first = samples * chunk / chunks * groups;
                for item in first..samples * (chunk + 1) / chunks * groups {
                    let grads = grads_at.get().wrapping_add(item * out_channels * places).cast_const();
                    let sample = from.get().wrapping_add(item * source).cast_const();
                    planes.fill(in_channels, sample, scratch, item == first);
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
        let to = SharedPtr::new(out.ptr().cast::<E>());
        let term_blocks = terms.div_ceil(TRANSPOSED);
        let tasks = if threads == 1 { 1 } else { term_blocks.min(CHUNKS_PER_THREAD * threads) };
        self.pool.run(tasks, &|task| {
            for block in term_blocks * task / tasks..term_blocks * (task + 1) / tasks {
                let first_term = block * TRANSPOSED;
                let block_terms = TRANSPOSED.min(terms - first_term);
                for (group, first) in
                    (0..groups).flat_map(|group| (0..out_channels).step_by(TRANSPOSED).map(move |first| (group, first)))
                {
                    let block_channels = TRANSPOSED.min(out_channels - first);
                    let mut sums = [[E::ZERO; TRANSPOSED]; TRANSPOSED];
                    for chunk in 0..chunks * parts {
                        let own = sums_of(chunk).wrapping_add(group * sums_group + first_term * wide + first);
                        for (term, line) in sums.iter_mut().enumerate().take(block_terms) {
                            for (channel, sum) in line.iter_mut().enumerate().take(block_channels) {
                                // SAFETY: every call zeroed and then wrote all of its `sums_group * groups` sums.
                                *sum = sum.plus(unsafe { own.add(term * wide + channel).read() });
                            }
                        }
                    }
                    for channel in 0..block_channels {
                        let row = (group * out_channels + first + channel) * terms + first_term;
                        for (term, line) in sums.iter().enumerate().take(block_terms) {
                            // SAFETY: the result has `rows * terms` elements, and each task writes its own terms.
                            unsafe { to.get().add(row + term).write(line[channel]) };
                        }
                    }
                }
            }
        })
    }

    /// The gradient of a weight with few channels of results in a group: sums of products over the positions of rows.
    fn weight_gradient_of_few<E: Tiled>(
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
        let offsets: Vec<isize> =
            (0..in_channels).flat_map(|c| taps.iter().map(move |tap| (c * planes.channel) as isize + tap)).collect();
        let terms = offsets.len();
        // The first term and the loop of each block of terms.
        let mut blocks = Vec::new();
        let mut term = 0;
        while term < terms {
            let (which, size) = DOTS.iter().enumerate().find(|(_, size)| **size <= terms - term).unwrap_or((2, &1));
            blocks.push((term, which));
            term += size;
        }
        let [depth, height, width] = *output;
        let places = depth * height * width;
        let products = samples.saturating_mul(groups * places).saturating_mul(out_channels * terms);
        let work_ns = products.saturating_add(samples.saturating_mul(planes.elements * groups)) / PRODUCTS_PER_NS;
        let threads = if self.pool.pays(work_ns) { self.pool.threads() } else { 1 };
        // Threads divide the groups, or parts of the samples if there are few groups.
        let parts = if threads == 1 { 1 } else { (CHUNKS_PER_THREAD * threads).div_ceil(groups).min(samples) };
        let partial = out_channels * terms * tiles.lanes;
        let each = planes.elements.checked_add(partial).ok_or_else(too_large)?;
        // Each thread's planes are used for many groups, whose padding is the same.
        let chunks = if threads == 1 { 1 } else { (groups * parts).min(CHUNKS_PER_THREAD * threads) };
        let sums_at = chunks.checked_mul(each).ok_or_else(too_large)?;
        let sums = parts.saturating_mul(rows).checked_mul(terms).ok_or_else(too_large)?;
        let scratch = self.scratch::<E>(out.meta.dtype, sums_at.checked_add(sums).ok_or_else(too_large)?)?;
        let (from, grads_at, scratch_at) = (
            SharedPtr::new(x.ptr().cast::<E>()),
            SharedPtr::new(grads.ptr().cast::<E>()),
            SharedPtr::new(scratch.ptr().cast::<E>()),
        );
        let source = planes.axes.iter().map(|axis| axis.source).product::<usize>() * in_channels;
        let all = groups * parts;
        self.pool.run(chunks, &|chunk| {
            let scratch = scratch_at.get().wrapping_add(chunk * each);
            let vectors = scratch.wrapping_add(planes.elements);
            let (mut pace, mut fresh) = (Pace::default(), true);
            for item in all * chunk / chunks..all * (chunk + 1) / chunks {
                let (group, part) = (item / parts, item % parts);
                // SAFETY: each chunk has its own `each` elements of scratch memory, `group` and `sample` index those of
                // the operands, so all positions lie in them, and each item writes its own sums.
                unsafe {
                    zero(vectors, partial);
                    for sample in samples * part / parts..samples * (part + 1) / parts {
                        let index = sample * groups + group;
                        planes.fill(in_channels, from.get().wrapping_add(index * source).cast_const(), scratch, fresh);
                        fresh = false;
                        for channel in 0..out_channels {
                            let grads = grads_at.get().wrapping_add((index * out_channels + channel) * places);
                            for (term, which) in &blocks {
                                pace.advance(places * terms / blocks.len() / WORK_A_PACE);
                                let sums = vectors.wrapping_add((channel * terms + term) * tiles.lanes);
                                for d in 0..depth {
                                    let lines = GradientRows {
                                        grads: grads.wrapping_add(d * height * width).cast_const(),
                                        from: scratch.wrapping_add(d * planes.pitch[0]).cast_const(),
                                        from_row: planes.pitch[1],
                                        rows: height,
                                        columns: width,
                                    };
                                    tiles.dots[*which](&lines, offsets.as_ptr().add(*term), sums);
                                }
                            }
                        }
                    }
                    let to = scratch_at.get().wrapping_add(sums_at + (part * groups + group) * out_channels * terms);
                    for i in 0..out_channels * terms {
                        let lanes = vectors.wrapping_add(i * tiles.lanes);
                        let sum = (0..tiles.lanes).fold(E::ZERO, |sum, lane| sum.plus(lanes.add(lane).read()));
                        to.add(i).write(sum);
                    }
                }
            }
        })?;
        let to = out.ptr().cast::<E>();
        for i in 0..rows * terms {
            let parts_at = scratch.ptr().cast::<E>().wrapping_add(sums_at + i);
            // SAFETY: every part wrote all of its `rows * terms` sums, as many as the result has elements.
            unsafe {
                let sum =
                    (0..parts).fold(E::ZERO, |sum, part| sum.plus(parts_at.wrapping_add(part * rows * terms).read()));
                to.add(i).write(sum);
            }
        }
        Ok(())
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
    use gt_ops::{Attrs, Shape, philox};

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

    /// A product with padding, or with what lies behind a row, would make an infinite element NaN.
    #[test]
    fn infinite_elements_reach_only_their_windows() {
        let spec = WindowSpec {
            rank: 2,
            groups: 2,
            input: [1, 4, 7],
            kernel: [1, 3, 3],
            stride: [1; 3],
            dilation: [1; 3],
            low: [0, 1, 1],
            high: [0, 1, 1],
        };
        let (plane, weight) = (Shape::new(&[2, 2, 4, 7]).unwrap(), Shape::new(&[2, 1, 3, 3]).unwrap());
        let attrs = Attrs::Window(Box::new(spec));
        let mut x = vec![1.0; plane.numel()];
        // The first element of row 1 of the first channel, which follows row 0.
        x[7] = f64::INFINITY;
        for level in SimdLevel::available() {
            let mut backend = CpuBackend::at_level(CpuOptions { threads: 2, ..CpuOptions::default() }, level);
            let x = upload(&mut backend, plane, DType::F32, &x);
            let grads = upload(&mut backend, plane, DType::F32, &vec![1.0; plane.numel()]);
            let ones = upload(&mut backend, weight, DType::F32, &vec![1.0; weight.numel()]);
            let y = run(&mut backend, Op::Convolution, &[&x, &ones], &[], &attrs);
            let y = download(&mut backend, &y);
            let reached: Vec<usize> = (0..y.len()).filter(|i| !y[*i].is_finite()).collect();
            assert_eq!(reached, [0, 1, 7, 8, 14, 15], "{level:?}");
            assert!(reached.iter().all(|i| y[*i] == f64::INFINITY), "{level:?}");
            let slope = run(&mut backend, Op::ConvolutionWeight, &[&grads, &x], &[], &attrs);
            let slope = download(&mut backend, &slope);
            // The taps that reach it from some position: those of the last column would need one before the row.
            let infinite = |i: usize| i < 9 && i % 3 != 2;
            for (i, got) in slope.iter().enumerate() {
                assert_eq!(*got == f64::INFINITY, infinite(i), "tap {i}: {got} at {level:?}");
                assert!(!got.is_nan(), "tap {i} at {level:?}");
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
        // Groups of one and two channels, in rows of one, two and several vectors, with columns and rows left over.
        let depthwise =
            WindowSpec { groups: 4, input: [1, 13, 37], kernel: [1, 3, 3], low: [0, 1, 1], high: [0, 1, 1], ..plain };
        let strided = WindowSpec { stride: [1, 2, 2], kernel: [1, 5, 4], ..depthwise };
        let small = WindowSpec { groups: 3, input: [1, 7, 7], ..depthwise };
        // Weights that are too large for a sample's planes, so that samples lie side by side.
        let large =
            WindowSpec { groups: 1, input: [1, 5, 6], kernel: [1, 3, 3], low: [0, 1, 1], high: [0, 1, 2], ..plain };
        let large_strided = WindowSpec { stride: [1, 2, 1], dilation: [1, 1, 2], low: [0, 0, 3], ..large };
        for (spec, samples, in_channels, out_channels) in [
            (plain, 1, 3, 19),
            (odd, 5, 2, 6),
            (plain, 2, 1, 1),
            (depthwise, 3, 1, 4),
            (depthwise, 1, 2, 8),
            (strided, 2, 1, 4),
            (small, 5, 1, 3),
            (small, 1, 3, 6),
            (large, 3, 43, 201),
            (large, 2, 201, 44),
            (large_strided, 2, 43, 202),
        ] {
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
