//! The planes of a convolution: a padded copy of a sample's channels in scratch memory, with the offset of each tap.
//!
//! With a stride of `s`, positions `s` apart form a phase, and each phase is a plane of its own (polyphase
//! decomposition), so that the operand of neighbouring results is contiguous.

use crate::backend::{CpuBackend, Result};
use crate::register_tiles::{TILE_ELEMENTS_MAX, Tiled};
use crate::tensor::CpuTensor;
use gt_backend::ExecError;
use gt_ops::window::WINDOW_AXES_MAX;
use gt_ops::{DType, Meta, Shape, WindowSpec};
use std::ops::Range;

/// One entry per axis: depth, height, width.
pub type Axes = [usize; WINDOW_AXES_MAX];

/// One axis of the planes, or of a convolution: element `i` of a phase, or of a tap, is element `starts[phase] + i *
/// step` of the source, or padding if the source has none.
#[derive(Debug)]
pub struct Axis {
    /// The place of element 0 of each phase or tap in the source.
    pub starts: Vec<isize>,
    /// The distance in the source between elements.
    pub step: usize,
    /// The number of elements.
    pub count: usize,
    /// The source's size along the axis.
    pub source: usize,
}

impl Axis {
    /// Axis `i` of a convolution, or of the gradient of its input, for which the stride is 1: the positions of the
    /// result, for each tap of the kernel.
    pub fn of_taps(spec: &WindowSpec, output: &Axes, i: usize, transposed: bool) -> Axis {
        let at = |k: usize| (k * spec.dilation[i]) as isize - spec.low[i] as isize;
        let starts = (0..spec.kernel[i]).map(|k| if transposed { -at(k) } else { at(k) }).collect();
        let (count, source) = (output[i], spec.input[i]);
        let (count, source) = if transposed { (source, count) } else { (count, source) };
        Axis { starts, step: if transposed { 1 } else { spec.stride[i] }, count, source }
    }

    /// The taps that read an element of the source for position `i`, with the element.
    pub fn sources(&self, i: usize) -> impl Iterator<Item = (usize, usize)> {
        let read = move |start: &isize| usize::try_from(start + (i * self.step) as isize).ok();
        let all = self.starts.iter().enumerate();
        all.filter_map(move |(tap, start)| Some((tap, read(start).filter(|source| *source < self.source)?)))
    }

    /// The elements of a phase or tap that are not padding.
    pub fn inside(&self, phase: usize) -> Range<usize> {
        let (start, step) = (self.starts[phase], self.step as isize);
        let first = if start < 0 { (-start).div_ceil_of(step) } else { 0 };
        let end = (self.source as isize - start).max(0).div_ceil_of(step);
        let end = (end as usize).min(self.count);
        (first as usize).min(end)..end
    }
}

trait DivCeil {
    fn div_ceil_of(self, by: Self) -> Self;
}
impl DivCeil for isize {
    /// The quotient rounded up, of numbers that are not negative.
    fn div_ceil_of(self, by: isize) -> isize {
        (self as usize).div_ceil(by as usize) as isize
    }
}

/// The layout of one sample's channels of one group in scratch memory: by channel, then phase, then position.
pub struct Planes {
    pub axes: [Axis; WINDOW_AXES_MAX],
    /// Elements from a position to the next, along each axis.
    pub pitch: Axes,
    /// Elements from a phase to the next, along each axis.
    phase: Axes,
    /// Elements from a channel to the next.
    pub channel: usize,
    pub elements: usize,
    /// The elements of each axis and phase that are not padding. Each sample's planes are filled by them.
    inside: [Vec<Range<usize>>; WINDOW_AXES_MAX],
}

impl Planes {
    /// # Errors
    /// The planes are larger than any memory.
    fn new(axes: [Axis; WINDOW_AXES_MAX], channels: usize) -> Result<Planes> {
        let (mut pitch, mut phase, mut step) = ([0; WINDOW_AXES_MAX], [0; WINDOW_AXES_MAX], Some(1usize));
        for i in (0..WINDOW_AXES_MAX).rev() {
            pitch[i] = step.unwrap_or(0);
            step = step.and_then(|step| step.checked_mul(axes[i].count));
        }
        for i in (0..WINDOW_AXES_MAX).rev() {
            phase[i] = step.unwrap_or(0);
            step = step.and_then(|step| step.checked_mul(axes[i].starts.len()));
        }
        let all = step.and_then(|step| Some((step, step.checked_mul(channels)?.checked_add(TILE_ELEMENTS_MAX)?)));
        // Scratch memory is allocated as a tensor, whose shape bounds the number of elements.
        let (channel, elements) =
            all.filter(|(_, elements)| *elements <= gt_ops::shape::ELEMENTS_MAX >> 8).ok_or_else(too_large)?;
        let inside = axes.each_ref().map(|axis| (0..axis.starts.len()).map(|phase| axis.inside(phase)).collect());
        Ok(Planes { axes, pitch, phase, channel, elements, inside })
    }

    /// Fills the planes from a sample's contiguous channels. The padding, which is that of every sample, is written
    /// only if the planes are `fresh`.
    ///
    /// # Safety
    /// The source has `channels` channels of the axes' sizes, and `to` has room for [`Planes::elements`].
    pub unsafe fn fill<E: Tiled>(&self, channels: usize, from: *const E, to: *mut E, fresh: bool) {
        let [depth, height, width] = &self.axes;
        let plane = depth.source * height.source * width.source;
        let place = |axis: &Axis, phase: usize, i: usize| (axis.starts[phase] + (i * axis.step) as isize) as usize;
        let mut at = to;
        let [inside_d, inside_h, inside_w] = &self.inside;
        for channel in 0..channels {
            let source = from.wrapping_add(channel * plane);
            for (pd, inside_d) in inside_d.iter().enumerate() {
                for (ph, inside_h) in inside_h.iter().enumerate() {
                    for (pw, inside_w) in inside_w.iter().enumerate() {
                        let size = depth.count * height.count * width.count;
                        if fresh {
                            // SAFETY: `at` advances over all `elements` once.
                            unsafe { zero(at, size) };
                        }
                        let column = place(width, pw, inside_w.start);
                        for d in inside_d.clone() {
                            for h in inside_h.clone().filter(|_| !inside_w.is_empty()) {
                                let row = place(depth, pd, d) * height.source + place(height, ph, h);
                                let to = at.wrapping_add((d * height.count + h) * width.count + inside_w.start);
                                // SAFETY: rows that are `inside` the source have elements there, and `to` is within
                                // the phase.
                                unsafe {
                                    fill_row(source.add(row * width.source + column), width.step, to, inside_w.len())
                                };
                            }
                        }
                        at = at.wrapping_add(size);
                    }
                }
            }
        }
        if fresh {
            // SAFETY: `Planes::new` added room for `TILE_ELEMENTS_MAX` elements, since a tile may read past the last
            // row.
            unsafe { zero(at, TILE_ELEMENTS_MAX) };
        }
    }
}

/// Writes `n` zeros.
///
/// # Safety
/// `to` has room for `n` elements.
#[inline(always)]
pub unsafe fn zero<E: Tiled>(to: *mut E, n: usize) {
    for i in 0..n {
        // SAFETY: `i < n`, for which `to` has room.
        unsafe { to.add(i).write(E::ZERO) };
    }
}

/// Copies `n` elements of a row that are `step` apart.
///
/// # Safety
/// `to` has room for `n` elements, and `from` is valid for `n` steps.
#[inline(always)]
pub unsafe fn fill_row<E: Tiled>(from: *const E, step: usize, to: *mut E, n: usize) {
    // Rows up to this length are copied here: for them a call of the library takes longer.
    const SHORT: usize = 64;
    // SAFETY: `to` has room for `n` elements, and `from` has an element for each step. A last block that overlaps the
    // one before lies within the row, too.
    unsafe {
        if step != 1 {
            for i in 0..n {
                to.add(i).write(from.add(i * step).read());
            }
        } else if n > SHORT {
            from.copy_to_nonoverlapping(to, n);
        } else if n >= 8 {
            copy_blocks::<E, 8>(from, to, n);
        } else if n >= 4 {
            copy_blocks::<E, 4>(from, to, n);
        } else {
            for i in 0..n {
                to.add(i).write(from.add(i).read());
            }
        }
    }
}

/// Copies `n` elements in blocks of `SIZE`, the last of which may overlap the one before.
///
/// # Safety
/// Both are valid for `n` elements, at least `SIZE`, and do not overlap.
#[inline(always)]
unsafe fn copy_blocks<E: Tiled, const SIZE: usize>(from: *const E, to: *mut E, n: usize) {
    let mut at = 0;
    while at < n {
        let first = at.min(n - SIZE);
        // SAFETY: `first + SIZE` is at most `n`.
        unsafe {
            let block = from.add(first).cast::<[E; SIZE]>().read_unaligned();
            to.add(first).cast::<[E; SIZE]>().write_unaligned(block);
        }
        at += SIZE;
    }
}

/// Copies `n` elements to positions `step` apart.
///
/// # Safety
/// Source and target are valid for `n` elements.
#[inline(always)]
pub unsafe fn put<E: Tiled>(from: *const E, to: *mut E, step: usize, n: usize) {
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

/// Divides `rows` rows into blocks of `most`, then of smaller powers of two: first row and number of rows of each.
pub fn blocks(rows: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
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

impl CpuBackend {
    /// Scratch memory for `elements` elements, freed after the instruction.
    pub(crate) fn scratch<E: Tiled>(&self, dtype: DType, elements: usize) -> Result<CpuTensor> {
        debug_assert_eq!(dtype.size(), size_of::<E>());
        let shape = Shape::new(&[elements]).map_err(|_| too_large())?;
        self.new_tensor(&Meta::new(shape, dtype))
    }
}

pub fn too_large() -> ExecError {
    ExecError::internal("a convolution's padded input is larger than any memory")
}

/// The planes of a convolution's input, and the offset of each tap within a channel.
pub fn input_planes(spec: &WindowSpec, output: &Axes, channels: usize) -> Result<(Planes, Vec<isize>)> {
    let mut places: [Vec<(usize, usize)>; WINDOW_AXES_MAX] = Default::default();
    let axes: [Axis; WINDOW_AXES_MAX] = std::array::from_fn(|i| {
        let stride = spec.stride[i];
        // Only the phases that some tap reads have planes.
        let mut residues: Vec<usize> = (0..spec.kernel[i].min(stride)).map(|k| k * spec.dilation[i] % stride).collect();
        residues.sort_unstable();
        residues.dedup();
        places[i] = (0..spec.kernel[i])
            .map(|k| {
                let at = k * spec.dilation[i];
                (residues.partition_point(|residue| *residue < at % stride), at / stride)
            })
            .collect();
        let starts = residues.iter().map(|residue| *residue as isize - spec.low[i] as isize).collect();
        Axis { starts, step: stride, count: output[i] + (spec.extent(i) - 1) / stride, source: spec.input[i] }
    });
    let planes = Planes::new(axes, channels)?;
    let mut offsets = Vec::with_capacity(spec.kernel.iter().product());
    for d in &places[0] {
        for h in &places[1] {
            for w in &places[2] {
                let each = [d, h, w].into_iter().zip(planes.phase.iter().zip(&planes.pitch));
                offsets.push(each.map(|((phase, at), (by, pitch))| phase * by + at * pitch).sum::<usize>() as isize);
            }
        }
    }
    Ok((planes, offsets))
}

/// One pass over the planes, which computes the results at positions `0..count` of each axis.
pub struct ConvolutionPass {
    /// The offset of each tap within a channel, with its index in the kernel.
    pub taps: Vec<(isize, usize)>,
    pub count: Axes,
    /// The offset of the pass's first result within a channel. `steps` are the offsets from a result to the next, along
    /// each axis.
    pub base: usize,
    pub steps: Axes,
    /// The offset of the pass's packed weights, which are ordered by blocks of rows, then by terms.
    pub weights: usize,
}

/// Input positions along one axis that are a stride apart, with the taps that reach them.
struct Phase {
    /// The first position.
    first: usize,
    /// The number of positions.
    count: usize,
    /// Each tap that reaches them, with a distance: through the tap, position `i` of the phase gets the gradient of
    /// output position `i` plus this distance.
    taps: Vec<(usize, isize)>,
}

/// The phases of the input along `axis` that some tap reaches.
fn transposed_axis(spec: &WindowSpec, axis: usize) -> Vec<Phase> {
    let (stride, low) = (spec.stride[axis], spec.low[axis] as isize);
    let at = |k: usize| (k * spec.dilation[axis]) as isize - low;
    let mut by_phase: Vec<(usize, usize)> =
        (0..spec.kernel[axis]).map(|k| (at(k).rem_euclid(stride as isize) as usize, k)).collect();
    by_phase.sort_unstable();
    by_phase
        .chunk_by(|a, b| a.0 == b.0)
        .filter(|taps| taps[0].0 < spec.input[axis])
        .map(|taps| {
            let first = taps[0].0;
            let far = |k: usize| (first as isize - at(k)) / stride as isize;
            Phase {
                first,
                count: (spec.input[axis] - first).div_ceil(stride),
                taps: taps.iter().map(|(_, k)| (*k, far(*k))).collect(),
            }
        })
        .collect()
}

/// The planes of the output's gradient for a transposed convolution, and a pass for each phase of the input's
/// positions.
pub fn transposed_planes(spec: &WindowSpec, output: &Axes, channels: usize) -> Result<(Planes, Vec<ConvolutionPass>)> {
    let each: [Vec<Phase>; WINDOW_AXES_MAX] = std::array::from_fn(|i| transposed_axis(spec, i));
    let axes: [Axis; WINDOW_AXES_MAX] = std::array::from_fn(|i| {
        let ends =
            || each[i].iter().flat_map(|phase| phase.taps.iter().map(|(_, far)| (*far, phase.count as isize + far)));
        let first = ends().map(|(first, _)| first).min().unwrap_or(0);
        let end = ends().map(|(_, end)| end).max().unwrap_or(0).max(first + 1);
        Axis { starts: vec![first], step: 1, count: (end - first) as usize, source: output[i] }
    });
    let planes = Planes::new(axes, channels)?;
    let [_, height, width] = spec.input;
    let steps = [height * width, width, 1];
    let mut passes = Vec::new();
    for phase_d in &each[0] {
        for phase_h in &each[1] {
            for phase_w in &each[2] {
                let phases = [phase_d, phase_h, phase_w];
                let mut taps = Vec::with_capacity(phases.iter().map(|phase| phase.taps.len()).product());
                for d in &phase_d.taps {
                    for h in &phase_h.taps {
                        for w in &phase_w.taps {
                            let far = [d.1, h.1, w.1].into_iter().enumerate();
                            let offset =
                                far.map(|(i, far)| (far - planes.axes[i].starts[0]) * planes.pitch[i] as isize).sum();
                            taps.push((offset, (d.0 * spec.kernel[1] + h.0) * spec.kernel[2] + w.0));
                        }
                    }
                }
                passes.push(ConvolutionPass {
                    taps,
                    count: phases.map(|phase| phase.count),
                    base: (0..WINDOW_AXES_MAX).map(|i| phases[i].first * steps[i]).sum(),
                    // The stride of a single position is never used, and its product could overflow.
                    steps: std::array::from_fn(|i| if phases[i].count > 1 { steps[i] * spec.stride[i] } else { 0 }),
                    weights: 0,
                });
            }
        }
    }
    Ok((planes, passes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_inside_the_source_are_those_with_an_element() {
        for (start, step, count, source) in
            [(-1isize, 1usize, 7usize, 7usize), (1, 1, 7, 7), (-3, 2, 5, 6), (9, 1, 4, 7), (-9, 1, 4, 7), (0, 3, 3, 8)]
        {
            let axis = Axis { starts: vec![start], step, count, source };
            let place = |i: usize| start + (i * step) as isize;
            let wanted: Vec<usize> = (0..count).filter(|i| (0..source as isize).contains(&place(*i))).collect();
            assert_eq!(axis.inside(0).collect::<Vec<_>>(), wanted, "{axis:?}");
            let read = (0..count).flat_map(|i| axis.sources(i).map(move |(_, source)| (i, source as isize)));
            assert!(read.eq(wanted.iter().map(|i| (*i, place(*i)))), "{axis:?}");
        }
    }
}
