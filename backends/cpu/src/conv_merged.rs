//! Convolutions with large weights, whose samples lie side by side.
//!
//! Tiles that run over one sample's rows drop the results between the rows, and what is left of a tile at its end: of a
//! plane of 7 by 7 a quarter of all results. Here a row of the planes has the columns of several samples one after the
//! other, and a plane for each column of the kernel, so that the positions of all results follow each other without
//! gaps. The terms of the sums are divided into blocks whose inputs stay in the caches, while partial sums wait in
//! memory.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::Pace;
use crate::conv_planes::{Axes, Axis, blocks, fill_row, put, too_large, zero};
use crate::register_tiles::{RegisterTiles, TILE_ELEMENTS_MAX, Tiled};
use crate::strided::SharedPtr;
use crate::tensor::CpuTensor;
use gt_ops::WindowSpec;

/// The bytes of the planes of the samples that are computed together, at most, unless those of one sample are more.
const PLANES_BYTES_MAX: usize = 4 << 20;
/// The number of terms in a block, roughly: a tile's inputs and weights for as many stay in L2, and mostly in L1.
const BLOCK_TERMS: usize = 256;
/// The blocks of channels of the result that one thread computes together: their tiles read the same inputs.
const BLOCKS_TOGETHER: usize = 4;

/// The rows of the planes: the place of each in the source, and for each element of the kernel its first row.
fn rows_of(axis: &Axis) -> (Vec<isize>, Vec<usize>) {
    let first = axis.starts.iter().copied().min().unwrap_or(0);
    if axis.step == 1 {
        let last = axis.starts.iter().copied().max().unwrap_or(0);
        let rows = (first..last + axis.count as isize).collect();
        return (rows, axis.starts.iter().map(|start| (start - first) as usize).collect());
    }
    let places = |start: &isize| (0..axis.count).map(|i| start + (i * axis.step) as isize).collect::<Vec<_>>();
    (axis.starts.iter().flat_map(places).collect(), (0..axis.starts.len()).map(|k| k * axis.count).collect())
}

/// The geometry of a convolution whose samples lie side by side.
pub struct MergedPlanes {
    height: Axis,
    width: Axis,
    /// The place of each row of the planes in the source.
    rows: Vec<isize>,
    /// For each element of the kernel's columns, the first of its rows.
    first_rows: Vec<usize>,
}

impl MergedPlanes {
    /// The planes of a convolution or of the gradient of its input; none where these are computed otherwise: of one
    /// sample, of volumes, and gradients of convolutions with a stride.
    pub fn new(spec: &WindowSpec, output: &Axes, transposed: bool, samples: usize) -> Option<MergedPlanes> {
        let flat = [spec.input[0], spec.kernel[0], output[0]] == [1; 3];
        if samples < 2 || !flat || (transposed && spec.stride != [1; 3]) {
            return None;
        }
        let [height, width] = [1, 2].map(|i| Axis::of_taps(spec, output, i, transposed));
        let (rows, first_rows) = rows_of(&height);
        Some(MergedPlanes { width, height, rows, first_rows })
    }

    /// Elements of one channel and sample.
    fn channel(&self) -> usize {
        self.width.starts.len().saturating_mul(self.rows.len()).saturating_mul(self.width.count)
    }

    /// Fills a channel's planes of `samples` samples, which are `distance` elements apart in the source.
    ///
    /// # Safety
    /// The source has the channel of each sample, and `to` has room for [`MergedPlanes::channel`] elements of each.
    unsafe fn fill<E: Tiled>(&self, from: *const E, distance: usize, samples: usize, to: *mut E) {
        let mut at = to;
        let (width, sources) = (&self.width, self.height.source as isize);
        for (tap, start) in width.starts.iter().enumerate() {
            let inside = width.inside(tap);
            let column = (start + (inside.start * width.step) as isize) as usize;
            for row in &self.rows {
                for sample in 0..samples {
                    // SAFETY: `at` advances over all elements once, and positions that are `inside` have elements.
                    unsafe {
                        if inside.is_empty() || !(0..sources).contains(row) {
                            zero(at, width.count);
                        } else {
                            zero(at, inside.start);
                            let source = from.add(sample * distance + *row as usize * width.source + column);
                            fill_row(source, width.step, at.add(inside.start), inside.len());
                            zero(at.add(inside.end), width.count - inside.end);
                        }
                        at = at.add(width.count);
                    }
                }
            }
        }
    }
}

/// The packed weights of a convolution.
pub struct PackedWeights<E> {
    /// For each group and block of channels of the result, for each term, the weights of the block's channels.
    pub weights: *const E,
    /// Elements of one group.
    pub group: usize,
    /// A number for each channel of the result.
    pub bias: Option<*const E>,
}

// SAFETY: the pointers are to tensors that outlive the threads' work and are only read.
unsafe impl<E: Tiled> Sync for PackedWeights<E> {}

/// The samples that are computed together.
struct Together<'a, E: Tiled> {
    tiles: RegisterTiles<E>,
    planes: &'a MergedPlanes,
    packed: &'a PackedWeights<E>,
    /// The offset of each term's input, ordered by channel, then by element of the kernel.
    offsets: &'a [isize],
    /// The number of terms in a block.
    block: usize,
    samples: usize,
    /// Channels of the result in a group, and elements from a sample's results to the next one's.
    out_channels: usize,
    distance: usize,
}

impl<E: Tiled> Together<'_, E> {
    fn positions(&self) -> usize {
        self.planes.height.count * self.planes.width.count * self.samples
    }
    fn steps(&self) -> usize {
        self.tiles.lanes * self.tiles.width
    }
    /// The partial sums of one block of channels.
    fn partial(&self) -> usize {
        self.positions().div_ceil(self.steps()) * self.steps() * self.tiles.rows
    }

    /// Computes channels of the result: `blocks` are the first and the number of each block's.
    ///
    /// # Safety
    /// `from` has the group's planes, `sums` has room for the partial sums of each block, and `to` is the group's first
    /// channel of the first sample in the result.
    unsafe fn run(&self, group: usize, blocks: &[(usize, usize)], from: *const E, sums: *mut E, to: *mut E) {
        let (terms, positions, mut pace) = (self.offsets.len(), self.positions(), Pace::default());
        let nothing = [E::ZERO; 8];
        for first in (0..terms).step_by(self.block) {
            let count = self.block.min(terms - first);
            for tile in 0..positions.div_ceil(self.steps()) {
                let at = tile * self.steps();
                let places = self.steps().min(positions - at);
                let width = places.div_ceil(self.tiles.lanes);
                for (i, (channel, rows)) in blocks.iter().enumerate() {
                    pace.advance(rows * count);
                    let loops = if first == 0 { &self.tiles.spread } else { &self.tiles.spread_onto };
                    let weights = self.packed.weights.wrapping_add(group * self.packed.group + channel * terms);
                    let bias = self.packed.bias.map(|bias| bias.wrapping_add(group * self.out_channels + channel));
                    let sums = sums.wrapping_add(i * self.partial() + at * self.tiles.rows);
                    // SAFETY: every offset plus a tile lies within the planes, which are extended by
                    // `TILE_ELEMENTS_MAX`; the packed weights have `rows` elements for each term of the block of
                    // channels, and the bias one for each channel.
                    unsafe {
                        loops[rows.ilog2() as usize][width - 1](
                            count,
                            weights.wrapping_add(first * rows),
                            self.offsets.as_ptr().add(first),
                            from.wrapping_add(at),
                            bias.unwrap_or(nothing.as_ptr()),
                            sums,
                        );
                        if first + count == terms {
                            self.put_tile(sums, (at, places), width, (*channel, *rows), to);
                        }
                    }
                }
            }
        }
    }

    /// Writes the results of a tile.
    ///
    /// # Safety
    /// `sums` has the tile, and `to` is that of [`Together::run`].
    unsafe fn put_tile(
        &self,
        sums: *const E,
        (at, places): (usize, usize),
        width: usize,
        (channel, rows): (usize, usize),
        to: *mut E,
    ) {
        let (columns, plane) = (self.planes.width.count, self.planes.height.count * self.planes.width.count);
        let mut place = at;
        while place < at + places {
            let (row, column) = (place / columns / self.samples, place % columns);
            let sample = place / columns % self.samples;
            let n = (columns - column).min(at + places - place);
            let target = sample * self.distance + row * columns + column;
            for line in 0..rows {
                let source = sums.wrapping_add(line * width * self.tiles.lanes + place - at);
                // SAFETY: the sample's channel has a result at each position, and the tile has `places` for each line.
                unsafe { put(source, to.wrapping_add((channel + line) * plane + target), 1, n) };
            }
            place += n;
        }
    }
}

impl CpuBackend {
    /// Computes a correlation with large weights. Threads divide the channels of the result, so that each weight is
    /// read by one thread, once for several samples.
    pub(crate) fn correlate_merged<E: Tiled>(
        &mut self,
        x: &CpuTensor,
        planes: &MergedPlanes,
        packed: &PackedWeights<E>,
        [groups, in_channels, out_channels]: [usize; 3],
        out: &CpuTensor,
    ) -> Result<()> {
        let tiles = E::tiles(self.level);
        let all = out.meta.shape.dims()[0];
        let sample = planes.channel().saturating_mul(groups * in_channels);
        let together = (PLANES_BYTES_MAX / sample.saturating_mul(size_of::<E>()).max(1)).clamp(1, all);
        // The samples are divided evenly, so that no part is small.
        let together = all.div_ceil(all.div_ceil(together));
        let group_elements = sample / groups * together + TILE_ELEMENTS_MAX;
        let (kernel, row) = (planes.first_rows.len() * planes.width.starts.len(), planes.width.count * together);
        let block = BLOCK_TERMS.div_ceil(kernel).max(1) * kernel;
        let channel_blocks: Vec<(usize, usize)> = blocks(out_channels, tiles.rows).collect();
        let parts: Vec<&[(usize, usize)]> = channel_blocks.chunks(BLOCKS_TOGETHER).collect();
        let plane = planes.height.count * planes.width.count;
        let partial = (plane * together).next_multiple_of(tiles.lanes * tiles.width) * tiles.rows * BLOCKS_TOGETHER;
        let sums_at = groups.checked_mul(group_elements).ok_or_else(too_large)?;
        let room = partial.checked_mul(groups * parts.len()).and_then(|sums| sums.checked_add(sums_at));
        let scratch = self.scratch::<E>(out.meta.dtype, room.ok_or_else(too_large)?)?;
        let (from, to, scratch_at) = (
            SharedPtr::new(x.ptr().cast::<E>()),
            SharedPtr::new(out.ptr().cast::<E>()),
            SharedPtr::new(scratch.ptr().cast::<E>()),
        );
        let source = planes.height.source * planes.width.source;
        for first in (0..all).step_by(together) {
            let samples = together.min(all - first);
            let row = row / together * samples;
            let channel = planes.channel() * samples;
            // The offsets of a channel's terms: a plane for each column of the kernel, and rows within it.
            let taps = planes.first_rows.iter().flat_map(|first_row| {
                (0..planes.width.starts.len()).map(move |column| (column * planes.rows.len() + first_row) * row)
            });
            let taps: Vec<usize> = taps.collect();
            let offsets: Vec<isize> =
                (0..in_channels).flat_map(|c| taps.iter().map(move |tap| (c * channel + tap) as isize)).collect();
            self.pool.run(groups * in_channels, &|i| {
                let planes_at = i / in_channels * group_elements + i % in_channels * channel;
                let from = from.get().wrapping_add((first * groups * in_channels + i) * source).cast_const();
                // SAFETY: channel `i` of each sample has `source` elements, and its planes are its own.
                unsafe {
                    let to = scratch_at.get().wrapping_add(planes_at);
                    planes.fill(from, groups * in_channels * source, samples, to);
                }
            })?;
            let work = Together {
                tiles,
                planes,
                packed,
                offsets: &offsets,
                block,
                samples,
                out_channels,
                distance: groups * out_channels * plane,
            };
            self.pool.run(groups * parts.len(), &|i| {
                let (group, part) = (i / parts.len(), i % parts.len());
                let to = to.get().wrapping_add((first * groups + group) * out_channels * plane);
                let sums = scratch_at.get().wrapping_add(sums_at + i * partial);
                let from = scratch_at.get().wrapping_add(group * group_elements).cast_const();
                // SAFETY: the planes were filled above, and each call writes its own channels and partial sums.
                unsafe { work.run(group, parts[part], from, sums, to) };
            })?;
        }
        Ok(())
    }
}
