//! Elementwise work of any strides: contiguous stretches go straight to a kernel, the rest by way of tiles in L1.

use crate::kernels::Kernel;
use crate::pool::Pool;
use crate::strided::{copy_run, stream, stream_end};
use gt_backend::ExecError;
use gt_backend::Loops;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// Elements of a tile: a few tiles of 8-byte elements fit in L1 together.
pub const TILE: usize = 512;
/// Chunks start at multiples of this many elements: no two threads write to one cache line.
pub const CHUNK_ELEMENTS: usize = TILE;
/// Shorter rows that repeat are written side by side first: a kernel call costs as much as a few dozen elements.
const ROW_MIN: usize = 64;
/// Elements that are computed and then stored past the caches: few, so that loads of the next go on beside the stores.
const STREAM_TILE: usize = 128;
/// Work of more operations an element does not wait for memory, and is slower in such small steps.
const STREAM_WEIGHT_MAX: usize = 2;
/// Results of at least this many bytes go past the caches, which they would only sweep.
pub const STREAM_BYTES_MIN: usize = 32 << 20;
/// What an element takes in any case, in picoseconds, and what each operation on it adds. Operands that are not in L1
/// any more decide: 65 thousand products of numbers from L3 take 15 µs, of which the multiplications are two.
const ELEMENT_PS: usize = 150;
const OPERATION_PS: usize = 20;

/// Room for [`TILE`] elements of any dtype. Its pointer stays valid while others are taken.
#[repr(C, align(64))]
pub struct Tile(UnsafeCell<[MaybeUninit<u64>; TILE]>);

impl Tile {
    /// Uninitialised room.
    #[inline(always)]
    pub const fn new() -> Tile {
        Tile(UnsafeCell::new([MaybeUninit::uninit(); TILE]))
    }
    /// Its start.
    #[inline(always)]
    pub fn start(&self) -> *mut u8 {
        self.0.get().cast()
    }
}

/// Where an operand's elements are.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The first element.
    pub ptr: *const u8,
    /// Bytes an element.
    pub size: usize,
    /// The conversion to what the kernel computes in.
    pub widen: Option<Kernel>,
    /// How its elements follow the result's.
    pub pattern: Pattern,
}

/// How an operand's elements follow the result's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One element for all.
    Splat,
    /// In the same order, without gaps.
    Linear,
    /// As the loops say.
    Strided,
}

/// One elementwise computation.
pub struct Task {
    /// The inner loop.
    pub kernel: Kernel,
    /// The kernel takes operands of one element for all.
    pub takes_splat: bool,
    /// The operands; unused ones repeat the first.
    pub sources: [Source; 3],
    /// How many are used.
    pub operands: usize,
    /// Where the result goes, in row-major order.
    pub out: *mut u8,
    /// Bytes an element of the result.
    pub out_size: usize,
    /// The conversion from what the kernel computes in.
    pub narrow: Option<Kernel>,
    /// The result takes an operand's memory.
    pub in_place: bool,
    /// The operands' strides; used when one is [`Pattern::Strided`].
    pub loops: Option<Loops<3>>,
    /// How many elements.
    pub elements: usize,
    /// Operations an element.
    pub weight: usize,
}

// SAFETY: tasks are shared only during one call of `Pool::run`, in which threads write disjoint ranges of the result.
unsafe impl Sync for Task {}

impl Task {
    /// Computes all elements.
    ///
    /// # Errors
    /// A panic in a kernel.
    ///
    /// # Safety
    /// The sources are readable and the result is writable for all elements. The result overlaps no source, except that
    /// with `in_place` it may be exactly where linear sources of the same size are.
    #[inline]
    pub unsafe fn run(&self, pool: &mut Pool) -> Result<(), ExecError> {
        let work_ns = work_ns(self.elements, self.weight);
        if !pool.pays(work_ns) {
            // SAFETY: the caller's promise.
            unsafe { self.range(0, self.elements) };
            return Ok(());
        }
        let chunk = chunk_elements(self.elements, pool.chunks(work_ns));
        pool.run(self.elements.div_ceil(chunk), &|i| {
            // SAFETY: the caller's promise; chunks are disjoint.
            unsafe { self.range(i * chunk, ((i + 1) * chunk).min(self.elements)) }
        })
    }

    /// Whether the result goes past the caches.
    #[inline]
    fn streams(&self) -> bool {
        self.elements * self.out_size >= STREAM_BYTES_MIN && self.weight <= STREAM_WEIGHT_MAX && !self.in_place
    }

    /// # Safety
    /// As [`Task::run`].
    #[inline]
    unsafe fn range(&self, from: usize, to: usize) {
        let sources = &self.sources[..self.operands];
        if sources.iter().all(|s| s.pattern != Pattern::Strided) {
            let mut splat = 0;
            let mut operands = self.sources.map(|s| s.ptr);
            for (i, source) in sources.iter().enumerate() {
                match source.pattern {
                    Pattern::Splat => splat |= 1 << i,
                    // SAFETY: within the source.
                    _ => operands[i] = unsafe { source.ptr.add(from * source.size) },
                }
            }
            // SAFETY: the caller's promise.
            unsafe { self.stretch(operands, splat, self.out.add(from * self.out_size), to - from) };
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.strided_range(from, to) }
    }

    /// # Safety
    /// As [`Task::run`].
    #[inline(never)]
    unsafe fn strided_range(&self, from: usize, to: usize) {
        let Some(loops) = &self.loops else { return };
        let steps = loops.inner_strides();
        let mut splat = 0;
        let mut by_rows = true;
        for (i, source) in self.sources[..self.operands].iter().enumerate() {
            if steps[i] == 0 {
                splat |= 1 << i;
            } else {
                by_rows &= steps[i] == source.size as isize;
            }
        }
        let repeats = |i: usize| {
            let source = &self.sources[i];
            source.pattern == Pattern::Strided
                && steps[i] != 0
                && loops.strides().len() == 2
                && loops.strides()[0][i] == 0
        };
        let short = loops.inner() < ROW_MIN && (0..self.operands).any(repeats);
        if by_rows && !short {
            loops.for_runs(from, to, |run| {
                let operands = std::array::from_fn(|i| self.sources[i].ptr.wrapping_offset(run.offsets[i]));
                // SAFETY: runs lie within the sources, and the result has room for all elements.
                unsafe { self.stretch(operands, splat, self.out.add(run.at * self.out_size), run.len) };
            });
            return;
        }
        let tiles = [Tile::new(), Tile::new(), Tile::new()];
        let mut operands = self.sources.map(|s| s.ptr);
        let mut splat = 0;
        for (i, source) in self.sources[..self.operands].iter().enumerate() {
            match source.pattern {
                Pattern::Splat => splat |= 1 << i,
                Pattern::Linear => (),
                Pattern::Strided => operands[i] = tiles[i].start(),
            }
        }
        // A row that repeats fills its tile once.
        let inner = loops.inner();
        let rows_a_tile = TILE / inner;
        let repeats = |i: usize| rows_a_tile > 1 && repeats(i);
        let mut whole_rows = false;
        for (i, source) in self.sources[..self.operands].iter().enumerate() {
            if repeats(i) {
                whole_rows = true;
                for row in 0..rows_a_tile {
                    // SAFETY: a row lies within the source, and the tile has room for this many.
                    unsafe {
                        let to = tiles[i].start().add(row * inner * source.size);
                        copy_run(to, source.size as isize, source.ptr, steps[i], inner, source.size);
                    }
                }
            }
        }
        let mut at = from;
        while at < to {
            // Tiles of repeated rows end with a row; the first may start within one.
            let phase = if whole_rows { at % inner } else { 0 };
            let room = if whole_rows { rows_a_tile * inner - phase } else { TILE };
            let n = room.min(to - at);
            let gathers = |i: usize| self.sources[i].pattern == Pattern::Strided && !repeats(i);
            if (0..self.operands).any(gathers) {
                loops.for_runs(at, at + n, |run| {
                    for (i, source) in self.sources[..self.operands].iter().enumerate() {
                        if gathers(i) {
                            // SAFETY: the run lies within the source, and the tile has room for `n` elements.
                            unsafe {
                                let to = tiles[i].start().add((run.at - at) * source.size);
                                let from = source.ptr.offset(run.offsets[i]);
                                copy_run(to, source.size as isize, from, steps[i], run.len, source.size);
                            }
                        }
                    }
                });
            }
            for (i, source) in self.sources[..self.operands].iter().enumerate() {
                match source.pattern {
                    // SAFETY: within the source.
                    Pattern::Linear => operands[i] = unsafe { source.ptr.add(at * source.size) },
                    Pattern::Strided if repeats(i) => {
                        operands[i] = tiles[i].start().wrapping_add(phase * source.size);
                    }
                    _ => (),
                }
            }
            // SAFETY: the operands are in their tiles or as the caller promises.
            unsafe { self.stretch(operands, splat, self.out.add(at * self.out_size), n) };
            at += n;
        }
    }

    /// Contiguous operands, or one element for all where `splat` says so.
    ///
    /// # Safety
    /// As [`Task::run`], for these `n` elements.
    #[inline]
    unsafe fn stretch(&self, operands: [*const u8; 3], splat: u8, out: *mut u8, n: usize) {
        let plain = self.narrow.is_none() && !self.in_place && !self.streams() && (splat == 0 || self.takes_splat);
        if plain && self.sources[..self.operands].iter().all(|s| s.widen.is_none()) {
            // SAFETY: the caller's promise.
            unsafe { (self.kernel)(out, operands, splat, n) };
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { self.staged(operands, splat, out, n) }
    }

    /// # Safety
    /// As [`Task::stretch`].
    #[inline(never)]
    unsafe fn staged(&self, operands: [*const u8; 3], splat: u8, out: *mut u8, n: usize) {
        let tiles = [Tile::new(), Tile::new(), Tile::new()];
        let result = Tile::new();
        let mut staged = operands;
        let mut kept_splat = 0;
        // SAFETY: tiles have room for `TILE` elements of any dtype; the rest is the caller's promise.
        unsafe {
            for (i, source) in self.sources[..self.operands].iter().enumerate() {
                if splat >> i & 1 == 0 {
                    continue;
                }
                let tile = tiles[i].start();
                let mut size = source.size;
                if let Some(widen) = source.widen {
                    widen(tile, [operands[i]; 3], 0, 1);
                    size = size_of::<f32>();
                } else {
                    tile.copy_from_nonoverlapping(operands[i], size);
                }
                staged[i] = tile;
                if self.takes_splat {
                    kept_splat |= 1 << i;
                } else if n > 1 {
                    copy_run(tile.add(size), size as isize, tile, 0, n.min(TILE) - 1, size);
                }
            }
            let mut at = 0;
            while at < n {
                let len = (if self.streams() { STREAM_TILE } else { TILE }).min(n - at);
                for (i, source) in self.sources[..self.operands].iter().enumerate() {
                    if splat >> i & 1 == 1 {
                        continue;
                    }
                    staged[i] = operands[i].add(at * source.size);
                    if let Some(widen) = source.widen {
                        let tile = tiles[i].start();
                        widen(tile, [staged[i]; 3], 0, len);
                        staged[i] = tile;
                    }
                }
                let out = out.add(at * self.out_size);
                let made = result.start();
                if let Some(narrow) = self.narrow {
                    (self.kernel)(made, staged, kept_splat, len);
                    narrow(out, [made.cast_const(); 3], 0, len);
                } else if self.in_place {
                    (self.kernel)(made, staged, kept_splat, len);
                    out.copy_from_nonoverlapping(made, len * self.out_size);
                } else if self.streams() {
                    (self.kernel)(made, staged, kept_splat, len);
                    stream(out, made, len * self.out_size);
                } else {
                    (self.kernel)(out, staged, kept_splat, len);
                }
                at += len;
            }
            if self.streams() {
                stream_end();
            }
        }
    }
}

/// What one thread takes for elementwise work of `weight` operations an element.
#[inline]
pub fn work_ns(elements: usize, weight: usize) -> usize {
    elements.saturating_mul(ELEMENT_PS + weight * OPERATION_PS) / 1000
}

/// How many elements each of so many chunks takes.
pub fn chunk_elements(elements: usize, chunks: usize) -> usize {
    elements.div_ceil(chunks).next_multiple_of(CHUNK_ELEMENTS)
}
