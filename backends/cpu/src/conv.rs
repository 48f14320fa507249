//! Convolutions and their gradients, without ever writing windows out.
//!
//! Each sample's planes are copied once, padded, into scratch memory. There a term of the sums, an element of the
//! weight, is an offset: results that follow each other read elements that follow each other, rows' ends included
//! (what is computed there is dropped). For that, a stride's phases are planes of their own. `tiles` has the loops.
//!
//! The gradient with respect to the input is the same computation with the weight's channels exchanged, once for each
//! phase of the input's places; that with respect to the weight sums over places instead of terms.

use crate::planes::{Axes, Pass, Planes, input_planes, too_large, transposed_planes, zero};
use crate::strided::Shared;
use crate::tensor::Tensor;
use crate::tiles::{Places, TILE_ELEMENTS_MAX, Tiled, Tiles, WIDTH_MAX};
use crate::{CpuBackend, Result};
use gt_backend::ExecError;
use gt_ops::{DType, Meta, Op, Shape, WindowSpec};
use std::ops::Range;

/// Products that a thread adds up in a nanosecond.
const PRODUCTS_PER_NS: usize = 32;
/// Chunks a thread.
const CHUNKS_PER_THREAD: usize = 4;
/// Places whose gradients are worked on together: they stay in the first cache.
const PLACES: usize = 96;

/// Packed weights, offsets of terms and passes: what every sample of a group is multiplied by.
struct Correlation<'a, E: Tiled> {
    tiles: Tiles<E>,
    planes: &'a Planes,
    passes: &'a [Pass],
    offsets: &'a [Vec<isize>],
    /// Channels of the result, of one group.
    made: usize,
    /// The elements of a channel of the result.
    plane: usize,
    weights: *const E,
    weights_group: usize,
    bias: Option<*const E>,
}

// SAFETY: the pointers are to tensors that outlive the work, which only reads them.
unsafe impl<E: Tiled> Sync for Correlation<'_, E> {}

/// How `rows` rows are cut into blocks, largest first.
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
    /// Tiles along the places of a slice of a pass: of flat places, rows' ends included.
    fn flat(&self, pass: &Pass) -> usize {
        let [_, rows, columns] = pass.count;
        if rows == 0 || columns == 0 { 0 } else { (rows - 1) * self.planes.pitch[1] + columns }
    }
    fn steps(&self) -> usize {
        self.tiles.lanes * self.tiles.width
    }
    /// How many tiles, one row of blocks each, a sample has.
    fn count(&self) -> usize {
        self.passes.iter().map(|pass| pass.count[0] * self.flat(pass).div_ceil(self.steps())).sum()
    }

    /// Computes the tiles `which` of a sample of a group whose planes are at `from`.
    ///
    /// # Safety
    /// `from` holds the planes and `to` is the sample's first channel of this group.
    unsafe fn run(&self, group: usize, which: Range<usize>, from: *const E, to: *mut E) {
        let mut first = 0;
        for (pass, offsets) in self.passes.iter().zip(self.offsets) {
            let slice = self.flat(pass).div_ceil(self.steps());
            let tiles = pass.count[0] * slice;
            let range = which.start.max(first)..which.end.min(first + tiles);
            for tile in range {
                let (depth, at) = ((tile - first) / slice, (tile - first) % slice * self.steps());
                // SAFETY: the caller's promise.
                unsafe { self.tile(group, pass, offsets, depth, at, from, to) };
            }
            first += tiles;
        }
    }

    /// # Safety
    /// As [`Correlation::run`].
    #[expect(clippy::too_many_arguments, reason = "a tile's place")]
    unsafe fn tile(
        &self,
        group: usize,
        pass: &Pass,
        offsets: &[isize],
        depth: usize,
        at: usize,
        from: *const E,
        to: *mut E,
    ) {
        let lanes = self.tiles.lanes;
        let places = self.steps().min(self.flat(pass) - at);
        let width = places.div_ceil(lanes);
        let pitch = self.planes.pitch[1];
        // The first and last row and column of the tile.
        let from = from.wrapping_add(depth * self.planes.pitch[0] + at);
        let mut results = [E::ZERO; TILE_ELEMENTS_MAX];
        let nothing = [E::ZERO; 8];
        let mut weights = self.weights.wrapping_add(group * self.weights_group + pass.weights);
        for (row, rows) in blocks(self.made, self.tiles.rows) {
            let start = self.bias.map_or(nothing.as_ptr(), |bias| bias.wrapping_add(group * self.made + row));
            // SAFETY: the caller's promise; offsets reach elements of the planes, and past them by at most a tile.
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
                        // SAFETY: the places lie in the sample's channel.
                        unsafe { put(source, target, pass.steps[2], end - place) };
                    }
                }
                place = (y + 1) * pitch;
            }
        }
    }
}

/// # Safety
/// Source and target are valid for `n`.
#[inline(always)]
unsafe fn put<E: Tiled>(from: *const E, to: *mut E, step: usize, n: usize) {
    // SAFETY: the caller's promise.
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

/// Sets all elements of a new tensor to 0.
fn zero_all(t: &Tensor) {
    // SAFETY: nobody else sees it yet.
    unsafe { t.ptr().write_bytes(0, t.meta.bytes()) };
}

impl CpuBackend {
    /// Any op of class convolution.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn convolution(
        &mut self,
        op: Op,
        a: &Tensor,
        b: &Tensor,
        bias: Option<&Tensor>,
        spec: &WindowSpec,
        out: &Meta,
    ) -> Result<Tensor> {
        if matches!(out.dtype, DType::F16 | DType::BF16) {
            let wide = |t: &Tensor| Meta::new(t.meta.shape, DType::F32);
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
            // No terms, and sizes that no memory bounds.
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
        a: &Tensor,
        b: &Tensor,
        bias: Option<&Tensor>,
        spec: &WindowSpec,
        out: &Tensor,
    ) -> Result<()> {
        let output = spec.output().map_err(|e| ExecError::internal(e.to_string()))?;
        match op {
            Op::Convolution => {
                let seen = b.meta.shape.dims()[1];
                let (planes, offsets) = input_planes(spec, &output, seen)?;
                let [_, height, width] = output;
                let pass = Pass {
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
                    // The other places are in no window.
                    zero_all(out);
                }
                self.correlate::<E>(a, b, None, spec, &planes, passes, true, out)
            }
            _ => self.weight_gradient::<E>(a, b, spec, &output, out),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what a convolution is made of")]
    fn correlate<E: Tiled>(
        &mut self,
        x: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        spec: &WindowSpec,
        planes: &Planes,
        mut passes: Vec<Pass>,
        transposed: bool,
        out: &Tensor,
    ) -> Result<()> {
        let tiles = E::tiles(self.level);
        let groups = spec.groups;
        let [rows, columns, ..] = *weight.meta.shape.dims() else { return Err(ExecError::internal("a flat weight")) };
        let kernel: usize = spec.kernel.iter().product();
        let (made, seen) = if transposed { (columns, rows / groups) } else { (rows / groups, columns) };
        // Terms: by channel, then by tap.
        let mut offsets = Vec::with_capacity(passes.len());
        let mut weights_group = 0;
        for pass in &mut passes {
            pass.weights = weights_group;
            weights_group += made * seen * pass.taps.len();
            let channels = 0..seen;
            offsets.push(
                channels
                    .flat_map(|c| pass.taps.iter().map(move |(tap, _)| (c * planes.channel) as isize + tap))
                    .collect(),
            );
        }
        let packed = self.scratch::<E>(out.meta.dtype, weights_group * groups)?;
        let source = weight.ptr().cast::<E>().cast_const();
        let mut at = packed.ptr().cast::<E>();
        for group in 0..groups {
            for pass in &passes {
                for (row, rows) in blocks(made, tiles.rows) {
                    for channel in 0..seen {
                        for (_, tap) in &pass.taps {
                            for row in row..row + rows {
                                let (first, second) = if transposed {
                                    (group * seen + channel, row)
                                } else {
                                    (group * made + row, channel)
                                };
                                // SAFETY: the weight has `groups * …` by `columns` by `kernel` elements, and the
                                // packed one as many as are walked over.
                                unsafe {
                                    at.write(source.add((first * columns + second) * kernel + tap).read());
                                    at = at.add(1);
                                }
                            }
                        }
                    }
                }
            }
        }
        let correlation = Correlation::<E> {
            tiles,
            planes,
            passes: &passes,
            offsets: &offsets,
            made,
            plane: out.meta.shape.dims()[2..].iter().product(),
            weights: packed.ptr().cast::<E>(),
            weights_group,
            bias: bias.map(|bias| bias.ptr().cast::<E>().cast_const()),
        };
        let items = out.meta.shape.dims()[0] * groups;
        let tiles = correlation.count();
        let per_item = passes.iter().map(|pass| pass.count.iter().product::<usize>() * pass.taps.len()).sum::<usize>();
        let products = per_item.saturating_mul(made * seen).saturating_add(planes.elements);
        let work_ns = items.saturating_mul(products) / PRODUCTS_PER_NS;
        let threads = if self.pool.pays(work_ns) { self.pool.threads() } else { 1 };
        // Samples are shared out, or if they are few, each one's tiles.
        let parts = if items >= 2 * threads { 1 } else { (2 * threads).div_ceil(items).min(tiles) };
        let chunks = if threads == 1 { 1 } else { items.min(threads * CHUNKS_PER_THREAD) };
        let scratch = self.scratch::<E>(out.meta.dtype, chunks * parts * planes.elements)?;
        let (from, to, scratch_at) = (
            Shared::new(x.ptr().cast::<E>()),
            Shared::new(out.ptr().cast::<E>()),
            Shared::new(scratch.ptr().cast::<E>()),
        );
        let source = planes.axes.iter().map(|axis| axis.source).product::<usize>() * seen;
        self.pool.run(chunks * parts, &|i| {
            let (chunk, part) = (i / parts, i % parts);
            let which = tiles * part / parts..tiles * (part + 1) / parts;
            let scratch = scratch_at.get().wrapping_add(i * planes.elements);
            for item in items * chunk / chunks..items * (chunk + 1) / chunks {
                // SAFETY: items and parts are disjoint; each has the source and the result that its position says,
                // and each chunk its own scratch memory.
                unsafe {
                    planes.fill(seen, from.get().wrapping_add(item * source).cast_const(), scratch);
                    let to = to.get().wrapping_add(item * made * correlation.plane);
                    correlation.run(item % groups, which.clone(), scratch, to);
                }
            }
        })
    }

    fn weight_gradient<E: Tiled>(
        &mut self,
        grads: &Tensor,
        x: &Tensor,
        spec: &WindowSpec,
        output: &Axes,
        out: &Tensor,
    ) -> Result<()> {
        let tiles = E::tiles(self.level);
        let groups = spec.groups;
        let [rows, seen, ..] = *out.meta.shape.dims() else { return Err(ExecError::internal("a flat weight")) };
        let (made, samples) = (rows / groups, grads.meta.shape.dims()[0]);
        let (planes, taps) = input_planes(spec, output, seen)?;
        let terms = seen * taps.len();
        let mut offsets: Vec<isize> =
            (0..seen).flat_map(|c| taps.iter().map(move |tap| (c * planes.channel) as isize + tap)).collect();
        // The last tile's missing rows are computed from anything.
        offsets.resize(terms.next_multiple_of(tiles.taps), 0);
        let wide = made.next_multiple_of(tiles.lanes);
        let [depth, height, width] = *output;
        let places = depth * height * width;
        let work_ns = samples.saturating_mul(groups * places).saturating_mul(wide * terms) / PRODUCTS_PER_NS;
        let threads = if self.pool.pays(work_ns) { self.pool.threads() } else { 1 };
        // Samples are shared out, or if they are few, blocks of taps.
        let chunks = if threads == 1 { 1 } else { samples.clamp(1, 2 * threads) };
        let blocks = offsets.len() / tiles.taps;
        let parts = if chunks >= threads { 1 } else { threads.div_ceil(chunks).min(blocks) };
        let sums_group = offsets.len() * wide;
        let each = planes.elements + places * wide + sums_group * groups;
        let scratch = self.scratch::<E>(out.meta.dtype, each.checked_mul(chunks * parts).ok_or_else(too_large)?)?;
        let (from, grads_at, scratch_at) = (
            Shared::new(x.ptr().cast::<E>()),
            Shared::new(grads.ptr().cast::<E>()),
            Shared::new(scratch.ptr().cast::<E>()),
        );
        let source = planes.axes.iter().map(|axis| axis.source).product::<usize>() * seen;
        let rows_at_once = (PLACES / width).clamp(1, height);
        let sums_of = |chunk: usize| scratch_at.get().wrapping_add(chunk * each + planes.elements + places * wide);
        self.pool.run(chunks * parts, &|i| {
            let (chunk, part) = (i / parts, i % parts);
            let scratch = scratch_at.get().wrapping_add(i * each);
            let by_channel = scratch.wrapping_add(planes.elements);
            // SAFETY: each chunk has its own scratch memory; positions are those of the samples' channels.
            unsafe {
                zero(sums_of(i), sums_group * groups);
                for item in samples * chunk / chunks * groups..samples * (chunk + 1) / chunks * groups {
                    let grads = grads_at.get().wrapping_add(item * made * places).cast_const();
                    planes.fill(seen, from.get().wrapping_add(item * source).cast_const(), scratch);
                    turn(grads, by_channel, made, places, wide);
                    let sums = sums_of(i).wrapping_add(item % groups * sums_group);
                    for d in 0..depth {
                        for h in (0..height).step_by(rows_at_once) {
                            let part_of_grads = Places {
                                from: scratch.wrapping_add(d * planes.pitch[0] + h * planes.pitch[1]).cast_const(),
                                from_row: planes.pitch[1],
                                grads: by_channel.wrapping_add((d * height + h) * width * wide).cast_const(),
                                grads_step: wide,
                                rows: rows_at_once.min(height - h),
                                columns: width,
                            };
                            for block in blocks * part / parts..blocks * (part + 1) / parts {
                                let mut vector = 0;
                                while vector < wide / tiles.lanes {
                                    let vectors = (wide / tiles.lanes - vector).min(WIDTH_MAX);
                                    let at = vector * tiles.lanes;
                                    let places =
                                        Places { grads: part_of_grads.grads.wrapping_add(at), ..part_of_grads };
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
                let at = row / made * sums_group + term * wide + row % made;
                let mut sum = E::ZERO;
                for chunk in 0..chunks * parts {
                    // SAFETY: every chunk has written all its sums; the result has a row of terms for each channel.
                    sum = sum.plus(unsafe { sums_of(chunk).add(at).read() });
                }
                // SAFETY: as above.
                unsafe { to.add(row * terms + term).write(sum) };
            }
        }
        Ok(())
    }

    /// Memory for so many elements, held for one instruction.
    fn scratch<E: Tiled>(&self, dtype: DType, elements: usize) -> Result<Tensor> {
        debug_assert_eq!(dtype.size(), size_of::<E>());
        let shape = Shape::new(&[elements]).map_err(|_| too_large())?;
        self.new_tensor(&Meta::new(shape, dtype))
    }
}

/// Gradients by channels as gradients by places: `rows` rows of `places` turned, each place's padded to `wide`.
///
/// # Safety
/// `from` is valid for all and `to` has room for `places * wide`.
unsafe fn turn<E: Tiled>(from: *const E, to: *mut E, rows: usize, places: usize, wide: usize) {
    const BLOCK: usize = 16;
    for first in (0..places).step_by(BLOCK) {
        let n = BLOCK.min(places - first);
        for row in 0..wide {
            for place in first..first + n {
                // SAFETY: the caller's promise.
                unsafe {
                    let x = if row < rows { from.add(row * places + place).read() } else { E::ZERO };
                    to.add(place * wide + row).write(x);
                }
            }
        }
    }
}
