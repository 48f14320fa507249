//! Reductions along any axes.
//!
//! Sums of floats use blocked summation (Higham 1993): partial sums in the compute type over a block, in many lanes,
//! and the sums of blocks in f64. This is as accurate as pairwise summation, and vectorisable. The order of additions
//! depends on shapes only, never on the number of threads.

use crate::backend::{CpuBackend, Result, compute_dtype};
use crate::checkpoint::checkpoint;
use crate::kernels::{Kernel, SimdLevel};
use crate::lanes::{self, LANES, Lanes, Registers, gather_over};
use crate::strided::{SharedPtr, copy_run, copy_to_dense, run_or_not};
use crate::tensor::CpuTensor;
use crate::thread_pool::ThreadPool;
use crate::tile::{TILE, Tile};
use gt_backend::ExecError;
use gt_backend::{Loops, split_axes};
use gt_ops::integers::{Int, KernelBool};
use gt_ops::math::Real;
use gt_ops::{DType, Meta, Op};
use std::mem::MaybeUninit;
use std::slice;

/// The number of partial results of a row shorter than [`LONG_ROW`].
const LANES_SHORT: usize = 16;
/// Rows of this length and more use [`LANES`] partial results, which take longer to combine.
const LONG_ROW: usize = 512;
/// Rows of at most this many elements are reduced several at a time.
const SHORT_ROW: usize = 48;
/// The lanes of a short row, at most, and those of several rows that are reduced together.
const SHORT_WIDTH: usize = 16;
const SHORT_LANES: usize = 256;
/// A column is divided into at most this many pieces.
const PIECES_MAX: usize = 64;
/// The number of elements of a block, whose partial result is added to the accumulator.
const BLOCK: usize = 8 << 10;
/// The number of rows that a column's partial result covers before it is added to the accumulator.
const BLOCK_ROWS: usize = 256;
/// The rows whose elements are added to the partial results of columns together.
const ROWS_AT_ONCE: usize = 4;
/// Results of at most so many elements are reduced several at a time.
const TOGETHER_MAX: usize = 512;
/// The columns, at most, of a matrix whose rows are added to several copies of the lanes: to so many, or a multiple.
const NARROW_MAX: usize = 16;
const NARROW_ROWS: usize = 16;
/// Shorter runs are copied together before they are reduced.
const RUN_MIN: usize = 16;
/// The number of elements of one result that one thread reduces by itself. The order of additions depends on it.
const PIECE: usize = 64 << 10;
/// The pieces of one result that are reduced before their partial results are combined, which bounds the memory of
/// these.
const PIECES_AT_ONCE: usize = 4 << 10;
/// The number of elements in a chunk of rows.
const ROWS_CHUNK_ELEMENTS: usize = 16 << 10;
/// The number of elements that are converted together before they are reduced, and the shortest run of such; shorter
/// ones are gathered first.
const STAGED: usize = 2 * TILE;
const STAGED_MIN: usize = 64;
/// The tiles of [`STAGED`] numbers of 4 bytes, and of as many of 8.
const STAGED_TILES: usize = 3;
/// The number of columns that are reduced together.
const COLUMNS: usize = TILE;

/// A reduction of elements of type `T`.
trait Fold<T: Copy> {
    /// The partial result of a block.
    type Lane: Copy;
    /// The accumulator of all blocks, of at most 8 bytes.
    type Acc: Copy;
    /// The result: the compute type, or a bool as a byte.
    type Out: Copy;
    const LANE: Self::Lane;
    const ACC: Self::Acc;
    /// An element that changes no lane.
    const FILLER: T;
    fn step(lane: Self::Lane, x: T) -> Self::Lane;
    fn join(a: Self::Lane, b: Self::Lane) -> Self::Lane;
    fn absorb(acc: Self::Acc, lane: Self::Lane) -> Self::Acc;
    fn combine(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    fn finish(acc: Self::Acc, count: usize) -> Self::Out;

    /// Reduces a block to a partial result.
    ///
    /// # Safety
    /// The CPU has the level `L`, and the caller was compiled for it.
    #[inline(always)]
    unsafe fn gather<L: Registers>(block: &[T]) -> Self::Lane
    where
        Self: Sized,
    {
        if block.len() < LONG_ROW {
            return gather::<T, Self, LANES_SHORT>(block);
        }
        gather::<T, Self, LANES>(block)
    }
}

struct Sum;
struct Mean;
struct Norm;
struct Prod;
struct Max;
struct Min;
struct Any;
struct All;

macro_rules! float_folds {
    ($t:ty, $load_wide:path) => {
        impl Fold<$t> for Sum {
            type Lane = $t;
            type Acc = f64;
            type Out = $t;
            const LANE: $t = 0.0;
            const ACC: f64 = 0.0;
            const FILLER: $t = 0.0;
            #[inline(always)]
            fn step(lane: $t, x: $t) -> $t {
                lane + x
            }
            #[inline(always)]
            unsafe fn gather<L: Registers>(block: &[$t]) -> $t {
                // SAFETY: the CPU has the level `L`, and this function is inlined into one that was compiled for it,
                // by the contract of `gather`.
                let lanes = unsafe { gather_over!($t, L::Of<$t>: x in block; so_far from 0.0 => so_far + x) };
                lanes::joined::<$t, L::Of<$t>>(lanes)
            }
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                a + b
            }
            #[inline(always)]
            fn absorb(acc: f64, lane: $t) -> f64 {
                acc + lane as f64
            }
            #[inline(always)]
            fn combine(a: f64, b: f64) -> f64 {
                a + b
            }
            #[inline(always)]
            fn finish(acc: f64, _count: usize) -> $t {
                acc as $t
            }
        }
        impl Fold<$t> for Mean {
            type Lane = $t;
            type Acc = f64;
            type Out = $t;
            const LANE: $t = 0.0;
            const ACC: f64 = 0.0;
            const FILLER: $t = 0.0;
            #[inline(always)]
            fn step(lane: $t, x: $t) -> $t {
                lane + x
            }
            #[inline(always)]
            unsafe fn gather<L: Registers>(block: &[$t]) -> $t {
                // SAFETY: the CPU has the level `L`, and this function is inlined into one that was compiled for it,
                // by the contract of `gather`.
                let lanes = unsafe { gather_over!($t, L::Of<$t>: x in block; so_far from 0.0 => so_far + x) };
                lanes::joined::<$t, L::Of<$t>>(lanes)
            }
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                a + b
            }
            #[inline(always)]
            fn absorb(acc: f64, lane: $t) -> f64 {
                acc + lane as f64
            }
            #[inline(always)]
            fn combine(a: f64, b: f64) -> f64 {
                a + b
            }
            #[inline(always)]
            fn finish(acc: f64, count: usize) -> $t {
                (acc / count as f64) as $t
            }
        }
        impl Fold<$t> for Norm {
            type Lane = $t;
            type Acc = f64;
            type Out = $t;
            const LANE: $t = 0.0;
            const ACC: f64 = 0.0;
            const FILLER: $t = 0.0;
            #[inline(always)]
            fn step(lane: $t, x: $t) -> $t {
                lane + x * x
            }
            #[inline(always)]
            unsafe fn gather<L: Registers>(block: &[$t]) -> $t {
                // SAFETY: the CPU has the level `L`, and this function is inlined into one that was compiled for it,
                // by the contract of `gather`.
                let lanes = unsafe { gather_over!($t, L::Of<$t>: x in block; so_far from 0.0 => x.mul_add(x, so_far)) };
                lanes::joined::<$t, L::Of<$t>>(lanes)
            }
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                a + b
            }
            #[inline(always)]
            fn absorb(acc: f64, lane: $t) -> f64 {
                acc + lane as f64
            }
            #[inline(always)]
            fn combine(a: f64, b: f64) -> f64 {
                a + b
            }
            #[inline(always)]
            fn finish(acc: f64, _count: usize) -> $t {
                acc.sqrt() as $t
            }
        }
        impl Fold<$t> for Prod {
            // Partial products may leave the range of f32 even if the whole product does not.
            type Lane = f64;
            type Acc = f64;
            type Out = $t;
            const LANE: f64 = 1.0;
            const ACC: f64 = 1.0;
            const FILLER: $t = 1.0;
            #[inline(always)]
            fn step(lane: f64, x: $t) -> f64 {
                lane * x as f64
            }
            #[inline(always)]
            unsafe fn gather<L: Registers>(block: &[$t]) -> f64 {
                let mut at = 0;
                // SAFETY: the CPU has the level `L`, and this function is inlined into one that was compiled for it,
                // by the contract of `gather`. Whole lanes are loaded from within the block, and the rest from `rest`.
                let lanes = unsafe {
                    let mut lanes = L::Of::<f64>::splat(1.0);
                    while at + LANES <= block.len() {
                        lanes = lanes * $load_wide(block[at..at + LANES].as_ptr());
                        at += LANES;
                    }
                    if at < block.len() {
                        let mut rest = [1.0; LANES];
                        rest[..block.len() - at].copy_from_slice(&block[at..]);
                        lanes = lanes * $load_wide(rest.as_ptr());
                    }
                    lanes
                };
                lanes::folded(lanes.array(), |x, y| x * y)
            }
            #[inline(always)]
            fn join(a: f64, b: f64) -> f64 {
                a * b
            }
            #[inline(always)]
            fn absorb(acc: f64, lane: f64) -> f64 {
                acc * lane
            }
            #[inline(always)]
            fn combine(a: f64, b: f64) -> f64 {
                a * b
            }
            #[inline(always)]
            fn finish(acc: f64, _count: usize) -> $t {
                acc as $t
            }
        }
        float_folds!(extreme Max, $t, maximum larger, -<$t>::INFINITY, >);
        float_folds!(extreme Min, $t, minimum smaller, <$t>::INFINITY, <);
        float_folds!(truth Any, $t, 0, <$t>::ZERO, |);
        float_folds!(truth All, $t, 1, <$t>::ONE, &);
    };
    (extreme $name:ident, $t:ty, $f:ident $beyond:ident, $start:expr, $beats:tt) => {
        impl Fold<$t> for $name {
            type Lane = $t;
            type Acc = $t;
            type Out = $t;
            const LANE: $t = $start;
            const ACC: $t = $start;
            const FILLER: $t = $start;
            #[inline(always)]
            fn step(lane: $t, x: $t) -> $t {
                // A NaN replaces any number, and nothing replaces it.
                if (x $beats lane) | (x != x) { x } else { lane }
            }
            #[inline(always)]
            unsafe fn gather<L: Registers>(block: &[$t]) -> $t {
                // SAFETY: the CPU has the level `L`, and this function is inlined into one that was compiled for it,
                // by the contract of `gather`.
                let lanes = unsafe { gather_over!($t, L::Of<$t>: x in block; so_far from $start => so_far.$beyond(x)) };
                lanes::folded(lanes.array(), Real::$f)
            }
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                Real::$f(a, b)
            }
            #[inline(always)]
            fn absorb(acc: $t, lane: $t) -> $t {
                Real::$f(acc, lane)
            }
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t {
                Real::$f(a, b)
            }
            #[inline(always)]
            fn finish(acc: $t, _count: usize) -> $t {
                acc
            }
        }
    };
    (truth $name:ident, $t:ty, $start:expr, $filler:expr, $op:tt) => {
        impl Fold<$t> for $name {
            type Lane = u8;
            type Acc = u8;
            type Out = u8;
            const LANE: u8 = $start;
            const ACC: u8 = $start;
            const FILLER: $t = $filler;
            #[inline(always)]
            fn step(lane: u8, x: $t) -> u8 {
                lane $op (x != <$t>::ZERO) as u8
            }
            #[inline(always)]
            fn join(a: u8, b: u8) -> u8 {
                a $op b
            }
            #[inline(always)]
            fn absorb(acc: u8, lane: u8) -> u8 {
                acc $op lane
            }
            #[inline(always)]
            fn combine(a: u8, b: u8) -> u8 {
                a $op b
            }
            #[inline(always)]
            fn finish(acc: u8, _count: usize) -> u8 {
                acc
            }
        }
    };
}
float_folds!(f32, L::load_wide);
float_folds!(f64, L::Of::<f64>::load);

macro_rules! int_folds {
    ($($t:ty, $low:expr, $high:expr;)*) => {$(
        int_folds!(one Sum, $t, <$t as Int>::ZERO, wrapping_add);
        int_folds!(one Prod, $t, <$t as Int>::ONE, wrapping_mul);
        int_folds!(one Max, $t, $low, imax);
        int_folds!(one Min, $t, $high, imin);
        float_folds!(truth Any, $t, 0, <$t>::ZERO, |);
        float_folds!(truth All, $t, 1, <$t>::ONE, &);
    )*};
    (one $name:ident, $t:ty, $start:expr, $f:ident) => {
        impl Fold<$t> for $name {
            type Lane = $t;
            type Acc = $t;
            type Out = $t;
            const LANE: $t = $start;
            const ACC: $t = $start;
            const FILLER: $t = $start;
            #[inline(always)]
            unsafe fn gather<L: Registers>(block: &[$t]) -> $t {
                // The order does not matter for integers, so the compiler chooses the lanes.
                block.iter().fold($start, |lane, x| Int::$f(lane, *x))
            }
            #[inline(always)]
            fn step(lane: $t, x: $t) -> $t {
                Int::$f(lane, x)
            }
            #[inline(always)]
            fn join(a: $t, b: $t) -> $t {
                Int::$f(a, b)
            }
            #[inline(always)]
            fn absorb(acc: $t, lane: $t) -> $t {
                Int::$f(acc, lane)
            }
            #[inline(always)]
            fn combine(a: $t, b: $t) -> $t {
                Int::$f(a, b)
            }
            #[inline(always)]
            fn finish(acc: $t, _count: usize) -> $t {
                acc
            }
        }
    };
}
int_folds! {
    KernelBool, KernelBool(0), KernelBool(1);
    u8, u8::MIN, u8::MAX;
    i8, i8::MIN, i8::MAX;
    i16, i16::MIN, i16::MAX;
    i32, i32::MIN, i32::MAX;
    i64, i64::MIN, i64::MAX;
}

/// A [`Fold`] with its types erased. Accumulators and lanes have at most 8 bytes.
#[derive(Clone, Copy)]
pub struct Reducer {
    /// Initialises `n` accumulators.
    start: unsafe fn(accs: *mut u8, n: usize),
    /// Reduces `n` contiguous elements into one accumulator.
    row: unsafe fn(from: *const u8, n: usize, acc: *mut u8),
    /// As `row`, for each of `rows` runs of `n` elements, `step` bytes apart, and as many accumulators.
    rows: unsafe fn(from: *const u8, step: isize, rows: usize, n: usize, accs: *mut u8),
    /// Reduces the `n` columns of each of several planes of some rows to an accumulator each: see [`narrow_planes`].
    narrow: unsafe fn(from: *const u8, steps: [isize; 2], sizes: [usize; 3], accs: *mut u8),
    /// Initialises `n` lanes.
    start_lanes: unsafe fn(lanes: *mut u8, n: usize),
    /// Adds `rows` elements, `step` bytes apart, of `n` neighbouring columns to each of `n` lanes.
    columns: unsafe fn(from: *const u8, step: isize, rows: usize, n: usize, lanes: *mut u8),
    /// Adds each of `n` lanes to its accumulator.
    absorb: unsafe fn(lanes: *const u8, n: usize, accs: *mut u8),
    /// Combines each of `n` accumulators with one of `n` others.
    combine: unsafe fn(others: *const u8, accs: *mut u8, n: usize),
    /// Writes the results of `n` accumulators of `count` elements each.
    finish: unsafe fn(accs: *const u8, n: usize, count: usize, out: *mut u8),
    acc_size: usize,
}

/// # Safety
/// `from` is valid for `n` elements and `acc` for an accumulator; the CPU has the level `L`, and the caller was
/// compiled for it.
#[inline(always)]
unsafe fn row<T: Copy, F: Fold<T>, L: Registers>(from: *const u8, n: usize, acc: *mut u8) {
    // SAFETY: `from` is valid for `n` elements, and `acc` points to an accumulator, which nothing else refers to.
    let (all, acc) = unsafe { (slice::from_raw_parts(from.cast::<T>(), n), &mut *acc.cast::<F::Acc>()) };
    for block in all.chunks(BLOCK) {
        // SAFETY: the CPU has the level `L`, and this function is inlined into one that was compiled for it.
        *acc = F::absorb(*acc, unsafe { F::gather::<L>(block) });
    }
}

#[inline(always)]
fn gather<T: Copy, F: Fold<T>, const N: usize>(block: &[T]) -> F::Lane {
    let mut lanes = [F::LANE; N];
    let mut groups = block.chunks_exact(N);
    for group in &mut groups {
        for (lane, x) in lanes.iter_mut().zip(group) {
            *lane = F::step(*lane, *x);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(groups.remainder()) {
        *lane = F::step(*lane, *x);
    }
    let mut width = N;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] = F::join(lanes[i], lanes[i + width]);
        }
    }
    lanes[0]
}

/// Joins each two neighbours of the first `2 * left` lanes. A loop over indices, as others here, since the compiler
/// inlines no iterators into functions of this size; of a length that the compiler does not know, since it would
/// otherwise unroll a short one before it vectorises it.
#[inline(always)]
fn halve<T: Copy, F: Fold<T>>(from: &[F::Lane; SHORT_LANES], to: &mut [F::Lane; SHORT_LANES], left: usize) {
    let left = left.min(SHORT_LANES / 2);
    let mut i = 0;
    while i < left {
        to[i] = F::join(from[2 * i], from[2 * i + 1]);
        i += 1;
    }
}

/// Reduces `rows` rows of `n` elements, `step` bytes apart and at most [`SHORT_ROW`] elements long, to an accumulator
/// each. The elements of a row are divided over [`SHORT_WIDTH`] lanes, or `n` if that is a lower power of two; the
/// lanes of several rows are joined together.
///
/// # Safety
/// `from` is valid for these rows, and `accs` for as many accumulators. The CPU has the level `L`, and the caller was
/// compiled for it.
#[inline(always)]
unsafe fn short_rows<T: Copy, F: Fold<T>, L: Registers>(
    from: *const u8,
    step: isize,
    rows: usize,
    n: usize,
    accs: *mut u8,
) {
    // Rows without gaps of so many elements are read as one long row.
    let packed = step == (n * size_of::<T>()) as isize && n.is_power_of_two() && n <= SHORT_WIDTH;
    let width = if packed { n } else { SHORT_WIDTH };
    let rows_a_group = SHORT_LANES / width;
    let mut elements = [F::FILLER; SHORT_LANES];
    let (mut lanes, mut halves) = ([F::LANE; SHORT_LANES], [F::LANE; SHORT_LANES]);
    let mut done = 0;
    while done < rows {
        let some = rows_a_group.min(rows - done);
        let first = from.wrapping_offset(done as isize * step);
        let whole = if packed { 0 } else { n / SHORT_WIDTH * SHORT_WIDTH };
        let mut i = 0;
        while whole > 0 && i < some {
            let row = first.wrapping_offset(i as isize * step).cast::<T>();
            let mut own = [F::LANE; SHORT_WIDTH];
            let mut at = 0;
            while at < whole {
                let mut j = 0;
                while j < SHORT_WIDTH {
                    // SAFETY: `at + j < whole`, which is at most `n`, and row `done + i` is one of `rows`.
                    own[j] = F::step(own[j], unsafe { row.add(at + j).read() });
                    j += 1;
                }
                at += SHORT_WIDTH;
            }
            let mut j = 0;
            while j < SHORT_WIDTH {
                lanes[i * SHORT_WIDTH + j] = own[j];
                j += 1;
            }
            i += 1;
        }
        // The rest of each row, or of the elements of all rows where these are one long row.
        let rest = if packed { some * n } else { n - whole };
        if rest > 0 {
            let parts = if packed { rest.div_ceil(SHORT_WIDTH) } else { some };
            let part_step = if packed { (SHORT_WIDTH * size_of::<T>()) as isize } else { step };
            let mut i = 0;
            while i < parts {
                let left = if packed { rest - i * SHORT_WIDTH } else { rest };
                let part = first.wrapping_offset(i as isize * part_step).cast::<T>().wrapping_add(whole);
                // SAFETY: the elements lie within row `done + i`, or within the long row; `i` is less than
                // `SHORT_LANES / SHORT_WIDTH`. The CPU has the level.
                unsafe {
                    let to = elements.as_mut_ptr().add(i * SHORT_WIDTH);
                    L::load_sixteen(part, left.min(SHORT_WIDTH), F::FILLER, to);
                }
                i += 1;
            }
            let mut i = 0;
            while i < SHORT_LANES {
                lanes[i] = F::step(if whole == 0 { F::LANE } else { lanes[i] }, elements[i]);
                i += 1;
            }
        }
        let (mut results, mut others) = (&mut lanes, &mut halves);
        let mut left = width;
        while left > 1 {
            left /= 2;
            // Whole registers: lanes beyond these rows hold fillers or results of earlier rows.
            halve::<T, F>(results, others, (some * left).next_multiple_of(SHORT_WIDTH));
            (results, others) = (others, results);
        }
        // SAFETY: `done + some` is at most `rows`, the number of accumulators, which the lanes do not overlap.
        unsafe { absorb::<T, F>(results.as_ptr().cast(), some, accs.add(done * size_of::<F::Acc>())) };
        done += some;
    }
}

/// Reduces `planes` of `rows` rows of `n` neighbouring elements along the rows, to `n` accumulators for each plane. The
/// columns are so few that the sum of one, a loop over rows, is not worth a call.
///
/// # Safety
/// `from` is valid for these planes, whose distance and that of rows are in bytes, and `accs` for all accumulators.
#[inline(always)]
unsafe fn narrow_planes<T: Copy, F: Fold<T>>(
    from: *const u8,
    [plane_step, row_step]: [isize; 2],
    [planes, rows, n]: [usize; 3],
    accs: *mut u8,
) {
    let accs = accs.cast::<F::Acc>();
    for plane in 0..planes {
        let from = from.wrapping_offset(plane as isize * plane_step);
        for column in 0..n {
            let mut lane = F::LANE;
            for row in 0..rows {
                let at = from.wrapping_offset(row as isize * row_step).cast::<T>().wrapping_add(column);
                // SAFETY: the element lies within the plane, by this function's contract.
                lane = F::step(lane, unsafe { at.read() });
            }
            // SAFETY: there is an accumulator for each column of each plane.
            unsafe {
                let acc = accs.add(plane * n + column);
                acc.write(F::absorb(F::ACC, lane));
            }
        }
    }
}

/// # Safety
/// `from` is valid for `rows` rows of `n` elements, `step` bytes apart, and `lanes` for `n` lanes.
#[inline(always)]
unsafe fn columns<T: Copy, F: Fold<T>>(from: *const u8, step: isize, rows: usize, n: usize, lanes: *mut u8) {
    // SAFETY: the lanes are a tile of the caller, which nothing else refers to.
    let lanes = unsafe { slice::from_raw_parts_mut(lanes.cast::<F::Lane>(), n) };
    // SAFETY: callers pass rows below `rows`, each of which has `n` elements.
    let row = |i: usize| unsafe { slice::from_raw_parts(from.wrapping_offset(i as isize * step).cast::<T>(), n) };
    let most = NARROW_ROWS * (NARROW_MAX / n.max(1)).max(1).next_power_of_two();
    // Rounding up may have left too little room.
    let at_once = if most * n > SHORT_LANES { most / 2 } else { most };
    if n <= NARROW_MAX && step == (n * size_of::<T>()) as isize && rows >= at_once && n > 0 {
        // Rows without gaps are one long row, whose elements go to copies of the lanes, as many as fill registers.
        let from = from.cast::<T>();
        let (width, all) = (at_once * n, rows * n);
        let mut copies = [F::LANE; SHORT_LANES];
        let mut at = 0;
        while at < all {
            let some = width.min(all - at).min(SHORT_LANES);
            let mut i = 0;
            while i < some {
                // SAFETY: by this function's contract, and as rows follow one another, `from` is valid for `rows * n`
                // elements, and `at + i` is less.
                copies[i] = F::step(copies[i], unsafe { from.add(at + i).read() });
                i += 1;
            }
            at += some;
        }
        let mut left = width;
        while left > n {
            left = (left / 2).min(SHORT_LANES / 2);
            let mut i = 0;
            while i < left {
                copies[i] = F::join(copies[i], copies[i + left]);
                i += 1;
            }
        }
        for i in 0..n {
            lanes[i] = F::join(lanes[i], copies[i]);
        }
        return;
    }
    let mut at = 0;
    // Lanes are loaded and stored once for several rows, whose elements are loaded in parallel.
    while at + ROWS_AT_ONCE <= rows {
        let (a, b, c, d) = (row(at), row(at + 1), row(at + 2), row(at + 3));
        for i in 0..n {
            lanes[i] = F::step(F::step(F::step(F::step(lanes[i], a[i]), b[i]), c[i]), d[i]);
        }
        at += ROWS_AT_ONCE;
    }
    for at in at..rows {
        let from = row(at);
        for i in 0..n {
            lanes[i] = F::step(lanes[i], from[i]);
        }
    }
}

/// # Safety
/// `lanes` and `accs` are valid for `n` elements.
#[inline(always)]
unsafe fn absorb<T: Copy, F: Fold<T>>(lanes: *const u8, n: usize, accs: *mut u8) {
    // SAFETY: `lanes` and `accs` are valid for `n` elements, and the accumulators belong to the caller alone.
    let (lanes, accs) = unsafe {
        (slice::from_raw_parts(lanes.cast::<F::Lane>(), n), slice::from_raw_parts_mut(accs.cast::<F::Acc>(), n))
    };
    for i in 0..n {
        accs[i] = F::absorb(accs[i], lanes[i]);
    }
}

unsafe fn start<T: Copy, F: Fold<T>>(accs: *mut u8, n: usize) {
    for i in 0..n {
        // SAFETY: callers pass room for `n` accumulators.
        unsafe { accs.cast::<F::Acc>().add(i).write(F::ACC) };
    }
}

unsafe fn start_lanes<T: Copy, F: Fold<T>>(lanes: *mut u8, n: usize) {
    for i in 0..n {
        // SAFETY: callers pass room for `n` lanes.
        unsafe { lanes.cast::<F::Lane>().add(i).write(F::LANE) };
    }
}

unsafe fn combine<T: Copy, F: Fold<T>>(others: *const u8, accs: *mut u8, n: usize) {
    for i in 0..n {
        // SAFETY: callers pass `n` accumulators on both sides.
        unsafe {
            let (other, acc) = (others.cast::<F::Acc>().add(i), accs.cast::<F::Acc>().add(i));
            acc.write(F::combine(acc.read(), other.read()));
        }
    }
}

/// # Safety
/// `accs` is valid for `n` accumulators and `out` for `n` results, which do not overlap.
#[inline(always)]
unsafe fn finish<T: Copy, F: Fold<T>>(accs: *const u8, n: usize, count: usize, out: *mut u8) {
    // SAFETY: by this function's contract.
    let (accs, out) = unsafe {
        let out = slice::from_raw_parts_mut(out.cast::<MaybeUninit<F::Out>>(), n);
        (slice::from_raw_parts(accs.cast::<F::Acc>(), n), out)
    };
    for i in 0..n {
        out[i].write(F::finish(accs[i], count));
    }
}

macro_rules! level {
    ($(#[$enable:meta])* $name:ident $level:ident) => {
        mod $name {
            use crate::reduce::*;
            $(#[$enable])*
            unsafe fn row<T: Copy, F: Fold<T>>(from: *const u8, n: usize, acc: *mut u8) {
                // SAFETY: `Reducer::of` chose this instance for a level that the CPU has, and the contract is that of
                // `row`.
                unsafe { crate::reduce::row::<T, F, lanes::$level>(from, n, acc) }
            }
            $(#[$enable])*
            unsafe fn rows<T: Copy, F: Fold<T>>(from: *const u8, step: isize, rows: usize, n: usize, accs: *mut u8) {
                if n <= SHORT_ROW {
                    // SAFETY: `Reducer::of` chose this instance for a level that the CPU has, and the contract is that
                    // of `short_rows`.
                    unsafe { crate::reduce::short_rows::<T, F, lanes::$level>(from, step, rows, n, accs) };
                    return;
                }
                for i in 0..rows {
                    // SAFETY: `Reducer::of` chose this instance for a level that the CPU has; row `i` is one of those
                    // that callers pass, which have `n` elements and an accumulator each.
                    unsafe {
                        let acc = accs.add(i * size_of::<F::Acc>());
                        crate::reduce::row::<T, F, lanes::$level>(from.wrapping_offset(i as isize * step), n, acc)
                    }
                }
            }
            $(#[$enable])*
            unsafe fn narrow<T: Copy, F: Fold<T>>(
                from: *const u8,
                steps: [isize; 2],
                sizes: [usize; 3],
                accs: *mut u8,
            ) {
                // SAFETY: `Reducer::of` chose this instance for a level that the CPU has, and the contract is that of
                // `narrow_planes`.
                unsafe { crate::reduce::narrow_planes::<T, F>(from, steps, sizes, accs) }
            }
            $(#[$enable])*
            unsafe fn columns<T: Copy, F: Fold<T>>(
                from: *const u8,
                step: isize,
                rows: usize,
                n: usize,
                lanes: *mut u8,
            ) {
                // SAFETY: `Reducer::of` chose this instance for a level that the CPU has, and the contract is that of
                // `columns`.
                unsafe { crate::reduce::columns::<T, F>(from, step, rows, n, lanes) }
            }
            $(#[$enable])*
            unsafe fn absorb<T: Copy, F: Fold<T>>(lanes: *const u8, n: usize, accs: *mut u8) {
                // SAFETY: `Reducer::of` chose this instance for a level that the CPU has, and the contract is that of
                // `absorb`.
                unsafe { crate::reduce::absorb::<T, F>(lanes, n, accs) }
            }
            $(#[$enable])*
            unsafe fn finish<T: Copy, F: Fold<T>>(accs: *const u8, n: usize, count: usize, out: *mut u8) {
                // SAFETY: `Reducer::of` chose this instance for a level that the CPU has, and the contract is that of
                // `finish`.
                unsafe { crate::reduce::finish::<T, F>(accs, n, count, out) }
            }
            fn reducer<T: Copy, F: Fold<T>>() -> Reducer {
                Reducer {
                    start: crate::reduce::start::<T, F>,
                    row: row::<T, F>,
                    rows: rows::<T, F>,
                    narrow: narrow::<T, F>,
                    start_lanes: crate::reduce::start_lanes::<T, F>,
                    columns: columns::<T, F>,
                    absorb: absorb::<T, F>,
                    combine: crate::reduce::combine::<T, F>,
                    finish: finish::<T, F>,
                    acc_size: size_of::<F::Acc>(),
                }
            }
            pub fn of(op: Op, dtype: DType) -> Option<Reducer> {
                fn ints<F>(dtype: DType) -> Option<Reducer>
                where
                    F: Fold<KernelBool> + Fold<u8> + Fold<i8> + Fold<i16> + Fold<i32> + Fold<i64>,
                {
                    Some(match dtype {
                        DType::Bool => reducer::<KernelBool, F>(),
                        DType::U8 => reducer::<u8, F>(),
                        DType::I8 => reducer::<i8, F>(),
                        DType::I16 => reducer::<i16, F>(),
                        DType::I32 => reducer::<i32, F>(),
                        DType::I64 => reducer::<i64, F>(),
                        _ => return None,
                    })
                }
                fn floats<F: Fold<f32> + Fold<f64>>(dtype: DType) -> Option<Reducer> {
                    Some(match dtype {
                        DType::F64 => reducer::<f64, F>(),
                        DType::F32 | DType::F16 | DType::BF16 => reducer::<f32, F>(),
                        _ => return None,
                    })
                }
                match op {
                    Op::Sum => ints::<Sum>(dtype).or_else(|| floats::<Sum>(dtype)),
                    Op::Mean => floats::<Mean>(dtype),
                    Op::Norm => floats::<Norm>(dtype),
                    Op::Prod => ints::<Prod>(dtype).or_else(|| floats::<Prod>(dtype)),
                    Op::Amax => ints::<Max>(dtype).or_else(|| floats::<Max>(dtype)),
                    Op::Amin => ints::<Min>(dtype).or_else(|| floats::<Min>(dtype)),
                    Op::Any => ints::<Any>(dtype).or_else(|| floats::<Any>(dtype)),
                    Op::All => ints::<All>(dtype).or_else(|| floats::<All>(dtype)),
                    _ => None,
                }
            }
        }
    };
}
level!(baseline Baseline);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx2,fma")]
    avx2 Avx2
);
#[cfg(target_arch = "x86_64")]
level!(
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    avx512 Avx512
);

impl Reducer {
    /// The reducer of `op` for `dtype`, if there is one; half precisions are widened to `f32` first.
    pub fn of(level: SimdLevel, op: Op, dtype: DType) -> Option<Reducer> {
        match level {
            SimdLevel::Baseline => baseline::of(op, dtype),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 => avx2::of(op, dtype),
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512 => avx512::of(op, dtype),
        }
    }
}

/// One reduction, ready to run.
pub struct ReductionTask {
    /// The inner loops.
    pub reducer: Reducer,
    /// The conversion from the operand's dtype to its compute type.
    pub widen: Option<Kernel>,
    /// The conversion from that to the compute type of the reduction.
    pub convert: Option<Kernel>,
    /// The conversion from the compute type to the result's dtype.
    pub narrow: Option<Kernel>,
    /// The first element.
    pub from: *const u8,
    /// Bytes per element of the operand.
    pub size: usize,
    /// The axes that are kept, in the result's order.
    pub kept: Loops<1>,
    /// The axes that are reduced.
    pub reduced: Loops<1>,
    /// The result's memory.
    pub out: *mut u8,
    /// Bytes per element of the result.
    pub out_size: usize,
    /// The number of results.
    pub results: usize,
    /// The number of elements that each result reduces.
    pub count: usize,
}

// SAFETY: a task is shared only during one call of `ThreadPool::run`, in which threads write disjoint results.
unsafe impl Sync for ReductionTask {}

impl ReductionTask {
    /// Computes all results.
    ///
    /// # Errors
    /// A panic in a chunk.
    ///
    /// # Safety
    /// The operand is readable for all elements and the result is writable; they do not overlap.
    pub unsafe fn run(&self, pool: &mut ThreadPool) -> Result<()> {
        let work = self.results.saturating_mul(self.count);
        let dense = |loops: &Loops<1>, least| loops.inner_strides()[0] == self.size as isize && loops.inner() >= least;
        // Short rows that are not read where they are: as columns, side by side.
        let short = self.count <= SHORT_ROW && self.kept.inner() >= 16;
        let side_by_side = short && !(self.reads_in_place(self.count) && self.reduced.inner() == self.count);
        if self.has_narrow_planes() {
            let planes = (ROWS_CHUNK_ELEMENTS / (self.count * self.kept.inner())).max(1);
            return run_or_not(pool, work.saturating_mul(4), self.kept.sizes()[0].div_ceil(planes), &|i| {
                let first = i * planes;
                // SAFETY: this function's contract covers all planes, and each chunk writes the results of its own.
                unsafe { self.narrow_planes(first, (first + planes).min(self.kept.sizes()[0])) };
            });
        }
        if self.count > 0 && (side_by_side || (dense(&self.kept, 4) && !dense(&self.reduced, 4))) {
            // SAFETY: this function's contract is that of `columns`.
            return unsafe { self.columns(pool, work) };
        }
        if self.count > PIECE && self.results < 4 * pool.threads() {
            return (0..self.results).try_for_each(|i| {
                // SAFETY: this function's contract covers all results, `i` among them.
                unsafe { self.long_row(pool, i) }
            });
        }
        let rows = (ROWS_CHUNK_ELEMENTS / self.count.max(1)).max(1);
        run_or_not(pool, work.saturating_mul(4), self.results.div_ceil(rows), &|i| {
            // SAFETY: this function's contract covers all results, and each chunk writes its own.
            unsafe { self.rows(i * rows, ((i + 1) * rows).min(self.results)) };
        })
    }

    /// Whether `count` elements of a result are reduced where they are: they are neighbours in runs that are not too
    /// short, and of the type that the reduction computes in.
    fn reads_in_place(&self, count: usize) -> bool {
        let is_dense = self.reduced.inner_strides()[0] == self.size as isize;
        is_dense && self.reduced.inner() >= RUN_MIN.min(count) && self.widen.is_none() && self.convert.is_none()
    }

    /// Whether the elements are many planes of a few rows of neighbouring columns, so few that a call for each plane
    /// would take longer than the plane.
    fn has_narrow_planes(&self) -> bool {
        let (columns, elements) = (self.kept.inner(), self.count * self.kept.inner());
        let is_plain = self.widen.is_none() && self.convert.is_none();
        let lies_so = self.kept.sizes().len() == 2
            && self.kept.inner_strides()[0] == self.size as isize
            && self.reduced.sizes().len() == 1;
        let is_small = columns < 4 && self.count <= BLOCK_ROWS || columns <= NARROW_MAX && elements <= SHORT_LANES;
        is_plain && lies_so && is_small && self.count > 1
    }

    /// Reduces planes `first..last`; see [`narrow_planes`].
    ///
    /// # Safety
    /// Same as for [`ReductionTask::run`], and [`ReductionTask::has_narrow_planes`] holds.
    unsafe fn narrow_planes(&self, first: usize, last: usize) {
        let columns = self.kept.inner();
        let (plane_step, row_step) = (self.kept.strides()[0][0], self.reduced.inner_strides()[0]);
        let at_once = TILE / columns;
        for plane in (first..last).step_by(at_once) {
            let planes = at_once.min(last - plane);
            let accs = Tile::new();
            let accs = accs.start();
            let from = self.from.wrapping_offset(plane as isize * plane_step);
            // SAFETY: a tile has room for `planes * columns` accumulators; the planes lie within the operand, and their
            // results within the result, which `run`'s contract covers.
            unsafe {
                (self.reducer.narrow)(from, [plane_step, row_step], [planes, self.count, columns], accs);
                self.finish(accs, plane * columns, planes * columns);
            }
        }
    }

    /// Reduces short rows of the innermost axis for several results at a time, so that none has calls of its own.
    ///
    /// # Safety
    /// Same as for [`ReductionTask::run`].
    unsafe fn short_rows(&self, first: usize, last: usize) {
        let across = self.kept.inner_strides()[0];
        self.kept.for_runs(first, last, |run| {
            for at in (0..run.len).step_by(TILE) {
                let n = TILE.min(run.len - at);
                let from = self.from.wrapping_offset(run.offsets[0] + at as isize * across);
                let accs = Tile::new();
                let accs = accs.start();
                // SAFETY: a tile has room for `n` accumulators; rows lie within the operand, and `first..last` within
                // the results, which `run`'s contract covers.
                unsafe {
                    (self.reducer.start)(accs, n);
                    self.reduced.for_runs(0, self.count, |row| {
                        (self.reducer.rows)(from.wrapping_offset(row.offsets[0]), across, n, row.len, accs);
                    });
                    self.finish(accs, run.at + at, n);
                }
            }
        });
    }

    /// # Safety
    /// Same as for [`ReductionTask::run`].
    unsafe fn rows(&self, first: usize, last: usize) {
        if self.count <= TOGETHER_MAX && self.reads_in_place(self.count) {
            // SAFETY: the contract is the same.
            return unsafe { self.short_rows(first, last) };
        }
        self.kept.for_runs(first, last, |run| {
            for i in 0..run.len {
                let mut acc = MaybeUninit::<u64>::uninit();
                let acc = acc.as_mut_ptr().cast::<u8>();
                let from = self.from.wrapping_offset(run.offsets[0] + i as isize * self.kept.inner_strides()[0]);
                // SAFETY: an accumulator has at most 8 bytes, so `acc` and `part` have room for one; `first..last`
                // and `0..count` lie within what `run`'s contract covers. Pieces are combined in the order of
                // `long_row`.
                unsafe {
                    (self.reducer.start)(acc, 1);
                    if self.count <= PIECE {
                        self.piece(from, 0, self.count, acc);
                    } else {
                        for piece in 0..self.count.div_ceil(PIECE) {
                            checkpoint();
                            let mut part = MaybeUninit::<u64>::uninit();
                            let part = part.as_mut_ptr().cast::<u8>();
                            (self.reducer.start)(part, 1);
                            self.piece(from, piece * PIECE, ((piece + 1) * PIECE).min(self.count), part);
                            (self.reducer.combine)(part, acc, 1);
                        }
                    }
                    self.finish(acc, run.at + i, 1);
                }
            }
        });
    }

    /// # Safety
    /// Same as for [`ReductionTask::run`].
    unsafe fn long_row(&self, pool: &mut ThreadPool, result: usize) -> Result<()> {
        let mut from = self.from;
        self.kept.for_runs(result, result + 1, |run| from = self.from.wrapping_offset(run.offsets[0]));
        let pieces = self.count.div_ceil(PIECE);
        let mut parts = vec![0u64; pieces.min(PIECES_AT_ONCE)];
        let (shared, from) = (SharedPtr::new(parts.as_mut_ptr()), SharedPtr::new(from.cast_mut()));
        let mut acc = MaybeUninit::<u64>::uninit();
        let acc = acc.as_mut_ptr().cast::<u8>();
        // SAFETY: an accumulator has at most 8 bytes.
        unsafe { (self.reducer.start)(acc, 1) };
        for first in (0..pieces).step_by(PIECES_AT_ONCE) {
            let some = PIECES_AT_ONCE.min(pieces - first);
            pool.run(some, &|i| {
                let from_element = (first + i) * PIECE;
                // SAFETY: `i < some`, so each call has its own element of `parts`; its piece lies within `0..count`.
                unsafe {
                    let part = shared.get().add(i).cast::<u8>();
                    (self.reducer.start)(part, 1);
                    self.piece(from.get(), from_element, (from_element + PIECE).min(self.count), part);
                }
            })?;
            for i in 0..some {
                // SAFETY: the first `some` parts were initialised and filled above, and nothing else refers to them.
                unsafe { (self.reducer.combine)(shared.get().add(i).cast_const().cast(), acc, 1) };
            }
        }
        // SAFETY: `acc` is an accumulator.
        unsafe { self.finish(acc, result, 1) };
        Ok(())
    }

    /// Reduces elements `first..last` of one result into an accumulator.
    ///
    /// # Safety
    /// Same as for [`ReductionTask::run`].
    unsafe fn piece(&self, from: *const u8, first: usize, last: usize, acc: *mut u8) {
        // SAFETY: runs lie within the operand, `n` is at most `STAGED`, for which `staged` has room in both types, or
        // `TILE` where elements are gathered, and `acc` points to an accumulator.
        unsafe {
            if self.reads_in_place(last - first) {
                self.reduced.for_runs(first, last, |run| {
                    (self.reducer.row)(from.wrapping_offset(run.offsets[0]), run.len, acc)
                });
                return;
            }
            let staged = [const { Tile::new() }; STAGED_TILES];
            let wide = staged.as_ptr().cast::<u8>().cast_mut();
            let converted = wide.add(size_of::<Tile>());
            let convert = |from: *const u8, n: usize| {
                let mut from = from;
                if let Some(widen) = self.widen {
                    widen(wide, [from; 3], 0, n);
                    from = wide;
                }
                if let Some(convert) = self.convert {
                    convert(converted, [from; 3], 0, n);
                    from = converted;
                }
                from
            };
            if self.reduced.inner_strides()[0] == self.size as isize && self.reduced.inner() >= STAGED_MIN {
                self.reduced.for_runs(first, last, |run| {
                    for at in (0..run.len).step_by(STAGED) {
                        let n = STAGED.min(run.len - at);
                        let from = from.wrapping_offset(run.offsets[0]).wrapping_add(at * self.size);
                        (self.reducer.row)(convert(from, n), n, acc);
                    }
                });
                return;
            }
            let raw = Tile::new();
            let mut at = first;
            while at < last {
                let n = TILE.min(last - at);
                copy_to_dense(raw.start(), &self.reduced, 0, from, (at, at + n), self.size);
                (self.reducer.row)(convert(raw.start(), n), n, acc);
                at += n;
            }
        }
    }

    /// Reduces along the innermost kept axis, a block of columns at a time.
    ///
    /// # Safety
    /// Same as for [`ReductionTask::run`].
    unsafe fn columns(&self, pool: &mut ThreadPool, work: usize) -> Result<()> {
        let columns = self.kept.inner();
        let row_bytes = (columns * self.size) as isize;
        // A contiguous matrix of few columns is treated as one of `fold` times as many columns and fewer rows; the
        // results of the copies of a column are combined at the end.
        let packed = self.kept.inner_strides()[0] == self.size as isize
            && self.reduced.sizes().len() == 1
            && self.reduced.inner_strides()[0] == row_bytes
            && self.results == columns;
        let fold = if packed && columns <= COLUMNS / 2 && self.count >= 4 * (COLUMNS / columns) {
            COLUMNS / columns
        } else {
            1
        };
        let lanes = columns * fold;
        let rows = self.count / fold;
        let reduced = if fold > 1 { Loops::line(rows, row_bytes * fold as isize) } else { self.reduced };
        let blocks = lanes.div_ceil(COLUMNS);
        let groups = self.results / columns * blocks;
        // The division into pieces depends on shapes only, so that sums do not depend on the number of threads.
        let rows_a_piece = if groups < 8 { (PIECE / lanes.min(COLUMNS)).max(rows.div_ceil(PIECES_MAX)) } else { rows };
        let pieces = rows.div_ceil(rows_a_piece);
        let mut parts = vec![0u64; if pieces > 1 { groups * pieces * COLUMNS } else { 0 }];
        let shared = SharedPtr::new(parts.as_mut_ptr());
        let first_of = |group: usize| group / blocks * columns + group % blocks * COLUMNS;
        let width_of = |group: usize| COLUMNS.min(lanes - group % blocks * COLUMNS);
        let finish = |group: usize, accs: *mut u8| {
            // SAFETY: `accs` holds the group's `width_of(group)` accumulators, `fold` copies of `columns` if folded.
            unsafe {
                for copy in 1..fold {
                    (self.reducer.combine)(accs.add(copy * columns * self.reducer.acc_size), accs, columns);
                }
                if rows * fold < self.count {
                    // The remaining rows, fewer than `fold`.
                    let from = self.from.wrapping_offset(row_bytes * (rows * fold) as isize);
                    let rest = Loops::line(self.count - rows * fold, row_bytes);
                    let tile = Tile::new();
                    let rest_accs = tile.start();
                    self.column_piece(from, columns, &rest, 0, rest.numel(), rest_accs);
                    (self.reducer.combine)(rest_accs, accs, columns);
                }
                self.finish(accs, first_of(group), width_of(group) / fold);
            }
        };
        run_or_not(pool, work.saturating_mul(4), groups * pieces, &|i| {
            let (group, piece) = (i / pieces, i % pieces);
            let mut base = self.from;
            let first = first_of(group);
            self.kept.for_runs(first, first + 1, |run| base = self.from.wrapping_offset(run.offsets[0]));
            let (from, to) = (piece * rows_a_piece, ((piece + 1) * rows_a_piece).min(rows));
            let tile = Tile::new();
            // SAFETY: each call has its own `COLUMNS` accumulators, and its rows and columns lie within the operand;
            // groups write their own results.
            unsafe {
                let accs = if pieces > 1 { shared.get().add(i * COLUMNS).cast() } else { tile.start() };
                self.column_piece(base, width_of(group), &reduced, from, to, accs);
                if pieces == 1 {
                    finish(group, accs);
                }
            }
        })?;
        if pieces > 1 {
            for group in 0..groups {
                // SAFETY: each piece wrote its accumulators at its own `COLUMNS` elements of `parts`.
                unsafe {
                    let accs = parts.as_mut_ptr().add(group * pieces * COLUMNS);
                    for piece in 1..pieces {
                        (self.reducer.combine)(accs.add(piece * COLUMNS).cast(), accs.cast(), width_of(group));
                    }
                    finish(group, accs.cast());
                }
            }
        }
        Ok(())
    }

    /// Reduces rows `first..last` of `n` columns, at most [`COLUMNS`], into fresh accumulators.
    ///
    /// # Safety
    /// Same as for [`ReductionTask::run`].
    unsafe fn column_piece(
        &self,
        base: *const u8,
        n: usize,
        rows: &Loops<1>,
        first: usize,
        last: usize,
        accs: *mut u8,
    ) {
        let (lanes, raw) = (Tile::new(), Tile::new());
        let lanes = lanes.start();
        let (wide, converted) = ([const { Tile::new() }; ROWS_AT_ONCE], [const { Tile::new() }; ROWS_AT_ONCE]);
        let (step, across) = (rows.inner_strides()[0], self.kept.inner_strides()[0]);
        let dense = across == self.size as isize;
        let plain = self.widen.is_none() && self.convert.is_none();
        let most = match (dense, plain) {
            (false, _) => 1,
            (true, false) => ROWS_AT_ONCE,
            (true, true) => BLOCK_ROWS,
        };
        let mut gathered = 0;
        // SAFETY: `n <= COLUMNS`, so tiles have room for `n` elements, lanes or accumulators; rows lie within the
        // operand, and there is a tile for each that is converted.
        unsafe {
            (self.reducer.start)(accs, n);
            (self.reducer.start_lanes)(lanes, n);
            rows.for_runs(first, last, |run| {
                let mut i = 0;
                while i < run.len {
                    let mut row = base.wrapping_offset(run.offsets[0] + i as isize * step);
                    let mut step = step;
                    let some = most.min(run.len - i).min(BLOCK_ROWS - gathered % BLOCK_ROWS);
                    if !dense {
                        copy_run(raw.start(), self.size as isize, row, across, n, self.size);
                        row = raw.start();
                    }
                    for (to, kernel) in [(&wide, self.widen), (&converted, self.convert)] {
                        let Some(kernel) = kernel else { continue };
                        for (at, tile) in to[..some].iter().enumerate() {
                            kernel(tile.start(), [row.wrapping_offset(at as isize * step); 3], 0, n);
                        }
                        (row, step) = (to.as_ptr().cast(), size_of::<Tile>() as isize);
                    }
                    (self.reducer.columns)(row, step, some, n, lanes);
                    i += some;
                    gathered += some;
                    if gathered % BLOCK_ROWS == 0 {
                        checkpoint();
                        (self.reducer.absorb)(lanes, n, accs);
                        (self.reducer.start_lanes)(lanes, n);
                    }
                }
            });
            (self.reducer.absorb)(lanes, n, accs);
        }
    }

    /// # Safety
    /// `accs` holds `n` accumulators, `n` at most [`TILE`].
    unsafe fn finish(&self, accs: *const u8, result: usize, n: usize) {
        // SAFETY: the result has `n` elements from `result` on, and a tile has room for `n`.
        unsafe {
            let out = self.out.add(result * self.out_size);
            if let Some(narrow) = self.narrow {
                let tile = Tile::new();
                (self.reducer.finish)(accs, n, self.count, tile.start());
                narrow(out, [tile.start().cast_const(); 3], 0, n);
            } else {
                (self.reducer.finish)(accs, n, self.count, out);
            }
        }
    }
}

impl CpuBackend {
    pub(crate) fn reduce(&mut self, op: Op, t: &CpuTensor, mask: u8, out: &Meta) -> Result<CpuTensor> {
        let from = t.meta.dtype;
        // `any` and `all` of numbers have bools as results; the others compute in the dtype of the result.
        let dtype = if matches!(op, Op::Any | Op::All) { from } else { out.dtype };
        let (own, computed) = (compute_dtype(from), compute_dtype(dtype));
        let convert = if own == computed { None } else { self.kernels.cast(own, computed) };
        let Some(reducer) = Reducer::of(self.level, op, dtype).filter(|_| own == computed || convert.is_some()) else {
            return Err(ExecError::internal(format!("{} of {dtype} has no kernel", op.name())));
        };
        let result = self.new_tensor(out)?;
        let results = out.shape.numel();
        if results == 0 {
            return Ok(result);
        }
        let count: usize =
            t.meta.shape.dims().iter().enumerate().filter(|(axis, _)| mask >> axis & 1 == 1).map(|(_, d)| d).product();
        let (kept, reduced) = split_axes(&t.meta.shape, &t.strides, mask);
        let reduction = ReductionTask {
            reducer,
            widen: self.widen(from),
            convert,
            narrow: if out.dtype == dtype { self.narrow(dtype) } else { None },
            from: t.ptr(),
            size: t.size(),
            kept,
            reduced,
            out: result.ptr(),
            out_size: out.dtype.size(),
            results,
            count,
        };
        // SAFETY: the axes are the tensor's, and `result` was just allocated with one element for each kept position.
        unsafe { reduction.run(&mut self.pool)? };
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sums and the largest of rows and columns of whole numbers, which are exact, at every level.
    fn check<T: Copy + PartialEq + std::fmt::Debug>(dtype: DType, number: impl Fn(usize) -> T) {
        for (level, n) in SimdLevel::available().into_iter().flat_map(|level| (1..=SHORT_ROW).map(move |n| (level, n)))
        {
            for (rows, gap) in [(1, 0), (37, 0), (37, 3)] {
                let value = |row: usize, column: usize| (row * 7 + column * 5) % 11;
                let elements: Vec<T> =
                    (0..rows * (n + gap)).map(|i| number(value(i / (n + gap), i % (n + gap)))).collect();
                let from = elements.as_ptr().cast::<u8>();
                let step = ((n + gap) * size_of::<T>()) as isize;
                for (op, along_row) in [(Op::Sum, true), (Op::Amax, true), (Op::Sum, false), (Op::Amax, false)] {
                    let fold = |all: &mut dyn Iterator<Item = usize>| {
                        if op == Op::Sum { all.sum() } else { all.max().unwrap() }
                    };
                    let wanted: Vec<T> = if along_row {
                        (0..rows).map(|row| number(fold(&mut (0..n).map(|column| value(row, column))))).collect()
                    } else {
                        (0..n).map(|column| number(fold(&mut (0..rows).map(|row| value(row, column))))).collect()
                    };
                    let reducer = Reducer::of(level, op, dtype).unwrap();
                    let (accs, lanes) = (Tile::new(), Tile::new());
                    let mut found = vec![number(0); wanted.len()];
                    // SAFETY: there are `rows` rows of `n` elements, `step` bytes apart; tiles have room for as many
                    // accumulators and lanes, and `found` for the results.
                    unsafe {
                        (reducer.start)(accs.start(), wanted.len());
                        if along_row {
                            (reducer.rows)(from, step, rows, n, accs.start());
                        } else {
                            (reducer.start_lanes)(lanes.start(), n);
                            (reducer.columns)(from, step, rows, n, lanes.start());
                            (reducer.absorb)(lanes.start(), n, accs.start());
                        }
                        (reducer.finish)(accs.start(), wanted.len(), n, found.as_mut_ptr().cast());
                    }
                    assert_eq!(found, wanted, "{level:?}: {op:?} of {dtype}, {rows} rows of {n}, gaps of {gap}");
                }
            }
        }
    }

    #[test]
    fn short_rows_and_few_columns_are_reduced_exactly_at_every_level() {
        check(DType::F32, |i| i as f32);
        check(DType::F64, |i| i as f64);
        check(DType::I64, |i| i as i64);
        check(DType::I16, |i| i as i16);
    }
}
