//! Ops by position: gather, scatter and its reductions, argmax and argmin.

use crate::backend::{CpuBackend, Result};
use crate::checkpoint::{Pace, STRETCH, in_stretches};
use crate::kernels::{Kernel, SimdLevel};
use crate::strided::{SharedPtr, copy_run, in_chunks, run_or_not};
use crate::tensor::CpuTensor;
use crate::tile::{TILE, Tile};
use gt_backend::ExecError;
use gt_backend::{Loops, Run, split_axes};
use gt_ops::integers::{Int, KernelBool};
use gt_ops::{DType, Meta, Op};
use half::{bf16, f16};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Calls a generic function with the Rust type of a dtype's elements.
macro_rules! with_type {
    ($dtype:expr, $f:ident($($arg:expr),*)) => {
        match $dtype {
            DType::Bool => $f::<KernelBool>($($arg),*),
            DType::U8 => $f::<u8>($($arg),*),
            DType::I8 => $f::<i8>($($arg),*),
            DType::I16 | DType::U16 => $f::<i16>($($arg),*),
            DType::I32 | DType::U32 => $f::<i32>($($arg),*),
            DType::I64 | DType::U64 => $f::<i64>($($arg),*),
            DType::F16 => $f::<f16>($($arg),*),
            DType::BF16 => $f::<bf16>($($arg),*),
            DType::F32 | DType::C64 => $f::<f32>($($arg),*),
            DType::F64 | DType::C128 => $f::<f64>($($arg),*),
        }
    };
}

/// An element type with the operations of scatter reductions and arg-reductions.
trait Number: Copy {
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Whether `self` is larger (with `MAX`) or smaller than `best`; NaN beats every number.
    fn beats<const MAX: bool>(self, best: Self) -> bool;
    /// Whether both are equal, or both NaN.
    fn same(self, other: Self) -> bool;
}

macro_rules! int_number {
    ($($t:ty)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                Int::wrapping_add(self, other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                Int::wrapping_mul(self, other)
            }
            #[inline(always)]
            fn beats<const MAX: bool>(self, best: Self) -> bool {
                if MAX { self > best } else { self < best }
            }
            #[inline(always)]
            fn same(self, other: Self) -> bool {
                self == other
            }
        }
    )*};
}
int_number!(KernelBool u8 i8 i16 i32 i64);

macro_rules! float_number {
    ($($t:ty, |$a:ident, $b:ident| $plus:expr, $times:expr;)*) => {$(
        impl Number for $t {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $plus
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                let ($a, $b) = (self, other);
                $times
            }
            #[inline(always)]
            fn beats<const MAX: bool>(self, best: Self) -> bool {
                (if MAX { self > best } else { self < best }) | (self.is_nan() & !best.is_nan())
            }
            #[inline(always)]
            fn same(self, other: Self) -> bool {
                (self == other) | (self.is_nan() & other.is_nan())
            }
        }
    )*};
}
float_number! {
    f16, |a, b| f16::from_f32(a.to_f32() + b.to_f32()), f16::from_f32(a.to_f32() * b.to_f32());
    bf16, |a, b| bf16::from_f32(a.to_f32() + b.to_f32()), bf16::from_f32(a.to_f32() * b.to_f32());
    f32, |a, b| a + b, a * b;
    f64, |a, b| a + b, a * b;
}

/// The inner loops of argmax or argmin for one element type and [`SimdLevel`].
#[derive(Clone, Copy)]
pub struct ArgReducer {
    /// Searches `n` contiguous elements from position `at` on for one that beats `best`. The element at position 0
    /// always does.
    row: unsafe fn(from: *const u8, n: usize, at: usize, best: *mut u8, position: &mut usize),
    /// Compares `n` contiguous elements, at position `at` of `n` neighbouring searches, with the best of each.
    columns: unsafe fn(from: *const u8, n: usize, at: u32, best: *mut u8, positions: *mut u32),
}

/// The number of elements that a chunk searches.
const SEARCH_CHUNK_ELEMENTS: usize = 16 << 10;
/// The bytes that a copy moves in the time in which an element is searched, or gathered, roughly.
const SEARCH_BYTES: usize = 24;
const GATHER_BYTES: usize = 36;
/// Indices that are repeated at least so often are checked once, before a gather.
const REPEATED_MIN: usize = 2;
/// The time in which an element is combined with the one at its index, roughly.
const SCATTER_NS: usize = 2;
/// A contiguous row is divided into pieces of at least so many elements: each piece reads all indices.
const DIVIDED_ROW_MIN: usize = 64;
/// Searches that proceed side by side are divided into chunks of at least this many: a call for each row of fewer
/// elements takes longer than these do.
const SIDE_BY_SIDE_MIN: usize = 128;
/// The number of partial results of a row.
const LANES: usize = 32;

/// # Safety
/// `from` is valid for `n` elements, and `best` for one.
#[inline(always)]
unsafe fn row<T: Number, const MAX: bool>(from: *const u8, n: usize, at: usize, best: *mut u8, position: &mut usize) {
    // SAFETY: `from` is valid for `n` elements and `best` for one.
    let (all, best) = unsafe { (slice::from_raw_parts(from.cast::<T>(), n), best.cast::<T>()) };
    let mut lanes = [all[0]; LANES];
    let mut groups = all.chunks_exact(LANES);
    for group in &mut groups {
        for (lane, x) in lanes.iter_mut().zip(group) {
            *lane = if x.beats::<MAX>(*lane) { *x } else { *lane };
        }
    }
    for (lane, x) in lanes.iter_mut().zip(groups.remainder()) {
        *lane = if x.beats::<MAX>(*lane) { *x } else { *lane };
    }
    let top = lanes.iter().fold(lanes[0], |top, x| if x.beats::<MAX>(top) { *x } else { top });
    // SAFETY: `best` is valid, and was written when element 0 was searched.
    if at > 0 && unsafe { !top.beats::<MAX>(best.read()) } {
        return;
    }
    // SAFETY: `best` is valid for one element.
    unsafe { best.write(top) };
    // Blocks without the maximum are skipped with one branch each.
    let mut block = 0;
    while block + LANES < n && !all[block..block + LANES].iter().fold(false, |found, x| found | x.same(top)) {
        block += LANES;
    }
    *position = at + block + all[block..].iter().position(|x| x.same(top)).unwrap_or(0);
}

/// # Safety
/// All are valid for `n` elements.
#[inline(always)]
unsafe fn columns<T: Number, const MAX: bool>(from: *const u8, n: usize, at: u32, best: *mut u8, positions: *mut u32) {
    // SAFETY: all three are valid for `n` elements, and `best` and `positions` are tiles of the caller, which nothing
    // else refers to.
    let (from, best, positions) = unsafe {
        (
            slice::from_raw_parts(from.cast::<T>(), n),
            slice::from_raw_parts_mut(best.cast::<T>(), n),
            slice::from_raw_parts_mut(positions, n),
        )
    };
    for ((x, best), position) in from.iter().zip(best).zip(positions) {
        let beats = x.beats::<MAX>(*best);
        *best = if beats { *x } else { *best };
        *position = if beats { at } else { *position };
    }
}

macro_rules! level {
    ($(#[$enable:meta])* $name:ident) => {
        mod $name {
            use crate::index::*;
            $(#[$enable])*
            unsafe fn row<T: Number, const MAX: bool>(from: *const u8, n: usize, at: usize, best: *mut u8, position: &mut usize) {
                // SAFETY: `ArgReducer::of` chose this instance for a level that the CPU has, and the contract is that
                // of `row`.
                unsafe { crate::index::row::<T, MAX>(from, n, at, best, position) }
            }
            $(#[$enable])*
            unsafe fn columns<T: Number, const MAX: bool>(from: *const u8, n: usize, at: u32, best: *mut u8, positions: *mut u32) {
                // SAFETY: `ArgReducer::of` chose this instance for a level that the CPU has, and the contract is that
                // of `columns`.
                unsafe { crate::index::columns::<T, MAX>(from, n, at, best, positions) }
            }
            fn of<T: Number>(max: bool) -> ArgReducer {
                if max {
                    ArgReducer { row: row::<T, true>, columns: columns::<T, true> }
                } else {
                    ArgReducer { row: row::<T, false>, columns: columns::<T, false> }
                }
            }
            pub fn searcher(dtype: DType, max: bool) -> ArgReducer {
                match dtype {
                    DType::Bool | DType::U8 => of::<u8>(max),
                    DType::I8 => of::<i8>(max),
                    DType::I16 | DType::U16 => of::<i16>(max),
                    DType::I32 | DType::U32 => of::<i32>(max),
                    DType::I64 | DType::U64 => of::<i64>(max),
                    DType::F16 | DType::BF16 | DType::F32 | DType::C64 => of::<f32>(max),
                    DType::F64 | DType::C128 => of::<f64>(max),
                }
            }
        }
    };
}
level!(baseline);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx2")]
    avx2
);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    avx512
);

impl ArgReducer {
    /// The loops for `dtype`; half precisions are widened to `f32` first.
    pub fn of(level: SimdLevel, dtype: DType, max: bool) -> ArgReducer {
        match level {
            SimdLevel::Baseline => baseline::searcher(dtype, max),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => avx2::searcher(dtype, max),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => avx512::searcher(dtype, max),
        }
    }
}

/// One argmax or argmin along an axis, ready to run.
pub struct ArgReduction {
    /// The inner loops.
    pub searcher: ArgReducer,
    /// The conversion from the operand's dtype to the compute type.
    pub widen: Option<Kernel>,
    /// Bytes per element.
    pub size: usize,
    /// The first element.
    pub from: *const u8,
    /// The axes that are kept.
    pub kept: Loops<1>,
    /// The stride of the searched axis, in bytes.
    pub step: isize,
    /// The size of the searched axis.
    pub count: usize,
    /// The result's memory.
    pub out: *mut i64,
}

// SAFETY: threads read the operand and write disjoint ranges of `out`.
unsafe impl Sync for ArgReduction {}

impl ArgReduction {
    /// Whether neighbouring searches proceed together. Short rows do: a kernel call for few elements costs too much.
    fn is_side_by_side(&self) -> bool {
        let dense = |step: isize| step == self.size as isize;
        u32::try_from(self.count).is_ok()
            && ((self.kept.inner() >= 8 && self.count <= LANES)
                || (self.kept.inner() >= 2 * LANES && dense(self.kept.inner_strides()[0]) && !dense(self.step)))
    }

    /// Computes results `first..last`.
    ///
    /// # Safety
    /// The operand is readable for all elements, `count` is not 0, and the result is writable.
    pub unsafe fn range(&self, first: usize, last: usize) {
        let across = self.kept.inner_strides()[0];
        let by_columns = self.is_side_by_side();
        self.kept.for_runs(first, last, |run| {
            let from = self.from.wrapping_offset(run.offsets[0]);
            let mut at = 0;
            while at < run.len {
                let from = from.wrapping_offset(at as isize * across);
                // SAFETY: `for_runs` yields positions within `first..last`, for which operand and result are valid.
                unsafe {
                    if by_columns {
                        let n = TILE.min(run.len - at);
                        self.side_by_side(from, n, run.at + at);
                        at += n;
                    } else {
                        self.one(from, run.at + at);
                        at += 1;
                    }
                }
            }
        });
    }

    /// Gathers `n` elements that are `step` apart, and widens them to the compute type.
    ///
    /// # Safety
    /// The elements are readable, and `n` at most [`TILE`].
    #[inline(always)]
    unsafe fn staged(&self, from: *const u8, step: isize, n: usize, tiles: &[Tile; 2]) -> *const u8 {
        let mut from = from;
        // SAFETY: `n <= TILE`, so tiles have room, and `from` is readable for `n` elements that are `step` apart.
        unsafe {
            if step != self.size as isize {
                copy_run(tiles[0].start(), self.size as isize, from, step, n, self.size);
                from = tiles[0].start();
            }
            if let Some(widen) = self.widen {
                widen(tiles[1].start(), [from; 3], 0, n);
                from = tiles[1].start();
            }
        }
        from
    }

    /// # Safety
    /// Same as for [`ArgReduction::range`].
    unsafe fn one(&self, from: *const u8, result: usize) {
        let tiles = [Tile::new(), Tile::new()];
        let (mut best, mut position, mut at, mut pace) = (0u64, 0, 0, Pace::default());
        let direct = self.step == self.size as isize && self.widen.is_none();
        while at < self.count {
            let n = if direct { STRETCH } else { TILE }.min(self.count - at);
            pace.advance(n);
            // SAFETY: `at + n <= self.count`, and the operand has that many elements along the axis; without
            // `direct`, `n <= TILE`.
            unsafe {
                let from = self.staged(from.wrapping_offset(at as isize * self.step), self.step, n, &tiles);
                (self.searcher.row)(from, n, at, std::ptr::from_mut(&mut best).cast(), &mut position);
            }
            at += n;
        }
        // SAFETY: the result has an element for each kept position.
        unsafe { self.out.add(result).write(position as i64) };
    }

    /// # Safety
    /// Same as for [`ArgReduction::range`], for `n` neighbouring results along the innermost kept axis.
    unsafe fn side_by_side(&self, from: *const u8, n: usize, result: usize) {
        let tiles = [Tile::new(), Tile::new()];
        let best = Tile::new();
        let mut positions = [0u32; TILE];
        let across = self.kept.inner_strides()[0];
        let mut pace = Pace::default();
        for at in 0..self.count {
            pace.advance(n);
            // SAFETY: `n <= TILE`, so tiles have room, and the operand has `self.count` rows; row 0 initialises
            // `best`.
            unsafe {
                let row = self.staged(from.wrapping_offset(at as isize * self.step), across, n, &tiles);
                if at == 0 {
                    let size = if self.widen.is_some() { size_of::<f32>() } else { self.size };
                    best.start().copy_from_nonoverlapping(row, n * size);
                } else {
                    (self.searcher.columns)(row, n, at as u32, best.start(), positions.as_mut_ptr());
                }
            }
        }
        for (i, position) in positions[..n].iter().enumerate() {
            // SAFETY: the result has `n` elements from `result` on.
            unsafe { self.out.add(result + i).write(*position as i64) };
        }
    }
}

/// The axis along which an index tensor selects elements.
pub struct IndexedAxis {
    /// The axis, for errors.
    pub axis: usize,
    /// The size of the axis.
    pub size: usize,
    /// The stride of the axis, in bytes.
    pub step: isize,
    /// The number that is added to a negative index: the size where it counts from the end, else 0.
    pub back: i64,
    /// Whether it is known that every index lies between 0 and the size.
    pub checked: bool,
}

impl IndexedAxis {
    /// An axis of `t` that `op` indexes.
    fn of(op: Op, t: &CpuTensor, axis: usize) -> IndexedAxis {
        let size = t.meta.shape.dims()[axis];
        let back = if op.without_wrapping().is_some() { size as i64 } else { 0 };
        IndexedAxis { axis, size, step: t.strides[axis], back, checked: false }
    }

    /// The place on the axis of the element at `index`, if it lies within.
    #[inline(always)]
    fn place(&self, index: i64) -> Option<usize> {
        let place = if index < 0 { index + self.back } else { index };
        ((place as u64) < self.size as u64).then_some(place as usize)
    }

    /// The offset of the element at `index`, in bytes.
    #[inline(always)]
    fn offset(&self, index: i64) -> Result<isize> {
        let out_of_range = || ExecError::IndexOutOfRange { index, axis: self.axis, size: self.size };
        self.place(index).map(|place| place as isize * self.step).ok_or_else(out_of_range)
    }

    /// Whether all indices lie between 0 and the size. The sign of `at | last - at` tells whether one does; 64-bit
    /// integers are compared slowly by the instructions that every CPU has.
    #[inline(always)]
    fn all_in_range(&self, indices: &[i64]) -> bool {
        let last = self.size as i64 - 1;
        let mut signs = if last < 0 { -1 } else { 0 };
        for at in indices {
            signs |= at | last.wrapping_sub(*at);
        }
        signs >= 0
    }

    /// `out[i] = from[.., index[i], ..]` for elements `first..last`. `loops` has the strides of index and operand, the
    /// latter 0 along the axis.
    ///
    /// # Safety
    /// Index, operand and result are valid for all elements, of `size` bytes, and the operand for every index below
    /// [`IndexedAxis::size`].
    pub unsafe fn gather(
        &self,
        loops: &Loops<2>,
        (first, last): (usize, usize),
        index: *const u8,
        from: *const u8,
        out: *mut u8,
        size: usize,
    ) -> Result<()> {
        let mut result = Ok(());
        let steps = loops.inner_strides();
        if steps[0] == 0 {
            // One index for a whole run: its elements are copied together.
            let rows = loops.row_strides();
            loops.for_planes(first, last, |plane| {
                for row in 0..plane.rows {
                    let [index_at, from_at] = std::array::from_fn(|i| plane.offsets[i] + row as isize * rows[i]);
                    // SAFETY: the index has the result's elements, and `offset` checked the index, so the source has an
                    // element there; `out` has room for the run.
                    unsafe {
                        match self.offset(index.wrapping_offset(index_at).cast::<i64>().read()) {
                            Ok(offset) => {
                                let from = from.wrapping_offset(from_at + offset);
                                let to = out.add((plane.at + row * plane.len) * size);
                                copy_run(to, size as isize, from, steps[1], plane.len, size);
                            }
                            Err(error) if result.is_ok() => result = Err(error),
                            Err(_) => {}
                        }
                    }
                }
            });
            return result;
        }
        loops.for_runs(first, last, |run| {
            let (index, from) = (index.wrapping_offset(run.offsets[0]), from.wrapping_offset(run.offsets[1]));
            // SAFETY: the index has the run's elements, the source one for each index below `size` of the axis, and
            // `out` has room for the run; all are `size` bytes large.
            let bad = unsafe {
                let to = out.add(run.at * size);
                match size {
                    1 => self.gather_run::<u8>(run.len, steps, index, from, to),
                    2 => self.gather_run::<u16>(run.len, steps, index, from, to),
                    4 => self.gather_run::<u32>(run.len, steps, index, from, to),
                    _ => self.gather_run::<u64>(run.len, steps, index, from, to),
                }
            };
            if let (Some(bad), true) = (bad, result.is_ok()) {
                result = self.offset(bad).map(drop);
            }
        });
        result
    }

    /// Gathers a run of elements of the size of `T`. Returns the first index that is out of range; the elements of such
    /// are not written.
    ///
    /// # Safety
    /// Same as for [`IndexedAxis::gather`], for `len` elements from `index`, `from` and `out` on.
    #[inline(always)]
    unsafe fn gather_run<T: Copy>(
        &self,
        len: usize,
        [across, step]: [isize; 2],
        index: *const u8,
        from: *const u8,
        out: *mut u8,
    ) -> Option<i64> {
        /// The number of indices that are checked together.
        const BLOCK: usize = 64;
        let (mut bad, mut first) = (None, 0);
        if across == size_of::<i64>() as isize && step == 0 && self.step == size_of::<T>() as isize {
            // SAFETY: the index has the run's elements, which follow each other.
            let all = unsafe { std::slice::from_raw_parts(index.cast::<i64>(), len) };
            let (blocks, rest) = all.as_chunks::<BLOCK>();
            let rest = if self.checked { rest } else { &[] };
            for block in blocks.iter().map(<[i64; BLOCK]>::as_slice).chain([rest]) {
                if !self.checked && !self.all_in_range(block) {
                    break;
                }
                for (i, at) in block.iter().enumerate() {
                    // SAFETY: the source has an element at each index below `size`, which `all_in_range` checked, here
                    // or before the gather, and `out` has room for the run.
                    unsafe { out.cast::<T>().add(first + i).write(from.cast::<T>().add(*at as usize).read()) };
                }
                first += block.len();
            }
        }
        for i in first..len {
            // SAFETY: the index has the run's elements, and an index below `size` was checked, so the source has an
            // element there; `out` has room for it.
            unsafe {
                let at = index.wrapping_offset(i as isize * across).cast::<i64>().read();
                let Some(place) = self.place(at) else {
                    bad = bad.or(Some(at));
                    continue;
                };
                let offset = i as isize * step + place as isize * self.step;
                out.cast::<T>().add(i).write(from.wrapping_offset(offset).cast::<T>().read());
            }
        }
        bad
    }

    /// Combines `out[.., index[i], ..]` with `from[i]` by `op`, for all elements in order. `loops` has the strides of
    /// index, source and result, the latter 0 along the axis.
    ///
    /// # Safety
    /// Index, source and result are valid for all elements of `dtype`, and the result for every index below
    /// [`IndexedAxis::size`].
    pub unsafe fn scatter(
        &self,
        op: Op,
        loops: &Loops<3>,
        dtype: DType,
        index: *const u8,
        from: *const u8,
        out: *mut u8,
    ) -> Result<()> {
        let places = ScatterTask { lookup: self, loops, index, from, out };
        // SAFETY: index, source and result are valid for all elements of `loops`. Source and result are accessed as the
        // dtype's type or as an integer of the same size.
        unsafe {
            match op {
                Op::Scatter | Op::IndexPut => match dtype.size() {
                    1 => places.each(|_, x: u8| x),
                    2 => places.each(|_, x: u16| x),
                    4 => places.each(|_, x: u32| x),
                    _ => places.each(|_, x: u64| x),
                },
                _ => with_type!(dtype, joined(op, &places)),
            }
        }
    }
}

/// One scatter, ready to run.
struct ScatterTask<'a> {
    lookup: &'a IndexedAxis,
    loops: &'a Loops<3>,
    index: *const u8,
    from: *const u8,
    out: *mut u8,
}

impl ScatterTask<'_> {
    /// # Safety
    /// Same as for [`IndexedAxis::scatter`], for elements of type `T`.
    #[inline(always)]
    unsafe fn each<T: Copy>(&self, join: impl Fn(T, T) -> T) -> Result<()> {
        let mut result = Ok(());
        let [across, step, to_step] = self.loops.inner_strides();
        let mut each_run = |run: Run<3>| {
            let index = |i: isize| {
                // SAFETY: `i < run.len`, and the index is valid for the whole run.
                unsafe { self.index.wrapping_offset(run.offsets[0] + i * across).cast::<i64>().read() }
            };
            let put = |i: isize, offset: isize| {
                // SAFETY: the source is valid for the run, and `offset` was checked against the axis, so the result
                // has an element there.
                unsafe {
                    let x = self.from.wrapping_offset(run.offsets[1] + i * step).cast::<T>().read();
                    let to = self.out.wrapping_offset(run.offsets[2] + i * to_step + offset).cast::<T>();
                    to.write(join(to.read(), x));
                }
            };
            let dense = size_of::<T>() as isize;
            if across == 0 && step == dense && to_step == dense {
                // One index for a whole contiguous row.
                match self.lookup.offset(index(0)) {
                    Ok(offset) => {
                        let from = self.from.wrapping_offset(run.offsets[1]).cast::<T>();
                        let to = self.out.wrapping_offset(run.offsets[2] + offset).cast::<T>();
                        for i in 0..run.len {
                            // SAFETY: `i < run.len`, the source is valid for the run, and `offset` was checked
                            // against the axis.
                            unsafe { to.add(i).write(join(to.add(i).read(), from.add(i).read())) };
                        }
                    }
                    Err(error) if result.is_ok() => result = Err(error),
                    Err(_) => {}
                }
                return;
            }
            let mut bad = None;
            if [across, step, to_step, self.lookup.step] == [size_of::<i64>() as isize, dense, 0, dense] {
                // Indices and source follow each other, and the result is indexed along neighbours.
                let indices = self.index.wrapping_offset(run.offsets[0]).cast::<i64>();
                let from = self.from.wrapping_offset(run.offsets[1]).cast::<T>();
                let to = self.out.wrapping_offset(run.offsets[2]).cast::<T>();
                for i in 0..run.len {
                    // SAFETY: `i < run.len`, and index and source are valid for the whole run; the place was checked
                    // against the axis, so the result has an element there.
                    unsafe {
                        let at = indices.add(i).read();
                        let Some(place) = self.lookup.place(at) else {
                            bad = bad.or(Some(at));
                            continue;
                        };
                        let to = to.add(place);
                        to.write(join(to.read(), from.add(i).read()));
                    }
                }
            } else {
                for i in 0..run.len as isize {
                    let at = index(i);
                    match self.lookup.place(at) {
                        Some(place) => put(i, place as isize * self.lookup.step),
                        None => bad = bad.or(Some(at)),
                    }
                }
            }
            if let (Some(bad), true) = (bad, result.is_ok()) {
                result = self.lookup.offset(bad).map(drop);
            }
        };
        in_stretches(0, self.loops.numel(), |first, last| self.loops.for_runs(first, last, &mut each_run));
        result
    }
}

/// Scatters with the reduction of `op`.
///
/// # Safety
/// Same as for [`ScatterTask::each`].
unsafe fn joined<T: Number>(op: Op, places: &ScatterTask<'_>) -> Result<()> {
    let extreme = |beats: bool, old: T, x: T| if beats { x } else { old };
    // SAFETY: the elements are of type `T`, and the contract is that of `each`.
    unsafe {
        match op {
            Op::ScatterAdd | Op::IndexPutAdd => places.each(T::plus),
            Op::ScatterProd => places.each(T::times),
            Op::ScatterAmax => places.each(|old: T, x: T| extreme(x.beats::<true>(old), old, x)),
            Op::ScatterAmin => places.each(|old: T, x: T| extreme(x.beats::<false>(old), old, x)),
            _ => Err(ExecError::internal(format!("{} scatters nothing", op.name()))),
        }
    }
}

impl CpuBackend {
    pub(crate) fn arg_reduce(&mut self, op: Op, t: &CpuTensor, mask: u8, out: &Meta) -> Result<CpuTensor> {
        let axis = mask.trailing_zeros() as usize;
        let result = self.new_tensor(out)?;
        let results = out.shape.numel();
        if results == 0 {
            return Ok(result);
        }
        let (kept, _) = split_axes(&t.meta.shape, &t.strides, mask);
        let search = ArgReduction {
            searcher: ArgReducer::of(self.level, t.meta.dtype, op == Op::Argmax),
            widen: self.widen(t.meta.dtype),
            size: t.size(),
            from: t.ptr(),
            kept,
            step: t.strides[axis],
            count: t.meta.shape.dims()[axis],
            out: result.ptr().cast(),
        };
        let least = if search.is_side_by_side() { SIDE_BY_SIDE_MIN } else { 1 };
        let chunk = (SEARCH_CHUNK_ELEMENTS / search.count).max(least);
        let bytes = (results * search.count).saturating_mul(SEARCH_BYTES);
        run_or_not(&mut self.pool, bytes, results.div_ceil(chunk), &|i| {
            // SAFETY: the axes are the tensor's, shape inference refused an empty one, and chunks of the new result are
            // disjoint.
            unsafe { search.range(i * chunk, ((i + 1) * chunk).min(results)) }
        })?;
        Ok(result)
    }

    pub(crate) fn gather(
        &mut self,
        op: Op,
        [from, index]: [&CpuTensor; 2],
        axis: usize,
        out: &Meta,
    ) -> Result<CpuTensor> {
        let result = self.new_tensor(out)?;
        let elements = out.shape.numel();
        if elements == 0 {
            return Ok(result);
        }
        let mut others = from.strides;
        others[axis] = 0;
        let loops = Loops::new(&out.shape, [&index.strides, &others]);
        let mut lookup = IndexedAxis::of(op, from, axis);
        lookup.checked = self.repeats_indices_in_range(&lookup, index)?;
        let (places, from, to, size) =
            (SharedPtr::new(index.ptr()), SharedPtr::new(from.ptr()), SharedPtr::new(result.ptr()), from.size());
        let failed = AtomicBool::new(false);
        in_chunks(&mut self.pool, elements, GATHER_BYTES, |first, last| {
            // SAFETY: inference checked that the index has the result's shape and that the source is as large along all
            // other axes; `result` was just allocated.
            let done = unsafe { lookup.gather(&loops, (first, last), places.get(), from.get(), to.get(), size) };
            failed.fetch_or(done.is_err(), Ordering::Relaxed);
        })?;
        if failed.into_inner() { Err(self.first_bad_index(op, &lookup, index)) } else { Ok(result) }
    }

    /// Whether the indices are repeated along some axes, so that to check each once is little work, and all lie between
    /// 0 and the size.
    fn repeats_indices_in_range(&mut self, lookup: &IndexedAxis, index: &CpuTensor) -> Result<bool> {
        let mut shape = index.meta.shape;
        for axis in 0..shape.rank() {
            if index.strides[axis] == 0 {
                shape = shape.with_dim(axis, 1);
            }
        }
        let loops = Loops::new(&shape, [&index.strides]);
        let is_dense = loops.inner_strides() == [size_of::<i64>() as isize];
        if !is_dense || shape.numel() > index.numel() / REPEATED_MIN {
            return Ok(false);
        }
        let (from, bad) = (SharedPtr::new(index.ptr()), AtomicBool::new(false));
        in_chunks(&mut self.pool, shape.numel(), size_of::<i64>(), |first, last| {
            loops.for_runs(first, last, |run| {
                // SAFETY: the run's indices follow each other, and lie within the index tensor.
                let indices =
                    unsafe { slice::from_raw_parts(from.get().wrapping_offset(run.offsets[0]).cast::<i64>(), run.len) };
                bad.fetch_or(!lookup.all_in_range(indices), Ordering::Relaxed);
            });
        })?;
        Ok(!bad.into_inner())
    }

    /// The error that names the first index, in order, that is out of range, whichever thread found one.
    #[cold]
    fn first_bad_index(&mut self, op: Op, lookup: &IndexedAxis, index: &CpuTensor) -> ExecError {
        let all_are_in_range = || ExecError::internal(format!("{}: no index is out of range any more", op.name()));
        self.check_indices(lookup, index).err().unwrap_or_else(all_are_in_range)
    }

    /// # Errors
    /// The first index, in order, that is out of range.
    fn check_indices(&mut self, lookup: &IndexedAxis, index: &CpuTensor) -> Result<()> {
        let loops = Loops::new(&index.meta.shape, [&index.strides]);
        let [step] = loops.inner_strides();
        let (from, found) = (SharedPtr::new(index.ptr()), Mutex::new(Ok(())));
        let each_run = |run: Run<1>| {
            let mut first_bad = None;
            if step == size_of::<i64>() as isize {
                // SAFETY: the run's indices follow each other, and lie within the index tensor.
                let indices =
                    unsafe { slice::from_raw_parts(from.get().wrapping_offset(run.offsets[0]).cast::<i64>(), run.len) };
                if lookup.all_in_range(indices) {
                    return;
                }
            }
            // A stride of 0 repeats one index.
            for i in 0..if step == 0 { 1 } else { run.len as isize } {
                // SAFETY: `i < run.len`, and the index is valid for the whole run.
                let at = unsafe { from.get().wrapping_offset(run.offsets[0] + i * step).cast::<i64>().read() };
                if lookup.offset(at).is_err() {
                    first_bad = first_bad.or(Some(at));
                }
            }
            if let Some(at) = first_bad {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                if found.is_ok() {
                    *found = lookup.offset(at).map(drop);
                }
            }
        };
        self.pool.run(1, &|_| {
            in_stretches(0, loops.numel(), |first, last| loops.for_runs(first, last, each_run));
        })?;
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn scatter(
        &mut self,
        op: Op,
        operands: [&CpuTensor; 3],
        axis: usize,
        last_use: u8,
    ) -> Result<CpuTensor> {
        let [base, index, source] = operands;
        let mut lookup = IndexedAxis::of(op, base, axis);
        let in_place = last_use & 1 == 1 && base.is_writable();
        if in_place && index.numel() > 0 {
            // A bad index is found before the first element is written.
            self.check_indices(&lookup, index)?;
        }
        let out = self.private_copy(base, in_place)?;
        if index.numel() == 0 {
            return Ok(out);
        }
        lookup.step = out.strides[axis];
        let mut others = out.strides;
        others[axis] = 0;
        let (dtype, shape) = (out.meta.dtype, index.meta.shape);
        let strides = [&index.strides, &source.strides, &others];
        let places = [index, source, &out].map(|t| SharedPtr::new(t.ptr()));
        // Elements that are combined have the same index along all other axes: threads divide the longest of these.
        let divided = (0..shape.rank()).rev().filter(|other| *other != axis).max_by_key(|other| shape.dims()[*other]);
        let chunks = |axis: usize| {
            let work_ns = shape.numel().saturating_mul(SCATTER_NS);
            let least = if strides[2][axis] == out.size() as isize { DIVIDED_ROW_MIN } else { 1 };
            let most = shape.dims()[axis] / least;
            if self.pool.pays(work_ns) { self.pool.chunks(work_ns).min(most).max(1) } else { 1 }
        };
        let (divided, chunks) = divided.map_or((axis, 1), |axis| (axis, chunks(axis)));
        let size = shape.dims().get(divided).map_or(1, |size| *size);
        let failed = AtomicBool::new(false);
        self.pool.run(chunks, &|chunk| {
            let (first, last) = (size * chunk / chunks, size * (chunk + 1) / chunks);
            let part = if chunks == 1 { shape } else { shape.with_dim(divided, last - first) };
            let loops = Loops::new(&part, strides);
            let at = |i: usize| places[i].get().wrapping_offset(first as isize * strides[i][divided]);
            // SAFETY: inference checked that the source, and the result along all other axes, are at least as large as
            // the index; `out` has the only handle of its buffer, of which each chunk has a part of its own.
            let done = unsafe { lookup.scatter(op, &loops, dtype, at(0), at(1), at(2)) };
            failed.fetch_or(done.is_err(), Ordering::Relaxed);
        })?;
        if failed.into_inner() { Err(self.first_bad_index(op, &lookup, index)) } else { Ok(out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::CpuOptions;
    use crate::test_tensors::{download, run, upload};
    use gt_backend::{Backend, Input};
    use gt_ops::{Attrs, Shape};

    const SIZES: [usize; 3] = [6, 130, 90];

    /// The base, an index along an axis with places that come several times, and the source of a scatter.
    fn operands(backend: &mut CpuBackend, axis: usize) -> [CpuTensor; 3] {
        let shape = Shape::new(&SIZES).unwrap();
        let numbers = |step: usize| (0..shape.numel()).map(move |i| (i * step % 1009) as f64 / 8.0 - 60.0).collect();
        let [base, source]: [Vec<f64>; 2] = [numbers(7919), numbers(104_729)];
        let places: Vec<f64> = (0..shape.numel()).map(|i| (i * i / 5 % SIZES[axis]) as f64).collect();
        [(DType::F32, base), (DType::I64, places), (DType::F32, source)]
            .map(|(dtype, elements)| upload(backend, shape, dtype, &elements))
    }

    /// Threads divide a scatter, whose elements are combined in order nevertheless: the bits are those of one thread.
    #[test]
    fn a_scatter_of_several_threads_has_the_result_of_one() {
        for axis in 0..SIZES.len() {
            for op in [Op::Scatter, Op::ScatterAdd, Op::ScatterAmax] {
                let [one, two] = [1, 2].map(|threads| {
                    let mut backend = CpuBackend::new(CpuOptions { threads, ..CpuOptions::default() });
                    let [base, index, source] = operands(&mut backend, axis);
                    let found = run(&mut backend, op, &[&base, &index, &source], &[], &Attrs::Axis(axis as u8));
                    download(&mut backend, &found)
                });
                assert_eq!(one, two, "{} along {axis}", op.name());
            }
        }
    }

    #[test]
    fn the_first_index_out_of_range_is_named_whichever_thread_finds_one() {
        let mut backend = CpuBackend::new(CpuOptions { threads: 2, ..CpuOptions::default() });
        let [base, index, source] = operands(&mut backend, 1);
        let mut places = download(&mut backend, &index);
        let (first, count) = (1234, places.len());
        (places[first], places[count / 2], places[count - 1]) = (500.0, 600.0, 700.0);
        let index = upload(&mut backend, index.meta.shape, DType::I64, &places);
        let inputs = [&base, &index, &source].map(Input::Tensor);
        let done = backend.execute(Op::ScatterAdd, &inputs, &Attrs::Axis(1), &base.meta, 0);
        let expected = ExecError::IndexOutOfRange { index: 500, axis: 1, size: SIZES[1] };
        assert_eq!(done.err().map(|error| error.to_string()), Some(expected.to_string()));
    }
}
