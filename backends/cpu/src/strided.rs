//! Copies between strided places.

use crate::elementwise::TILE;
use crate::loops::Loops;
use crate::pool::Pool;
use gt_backend::ExecError;
use gt_ops::{RANK_MAX, Shape};

/// Copies of less than this are not worth waking anybody for.
const PARALLEL_BYTES_MIN: usize = 256 << 10;
/// What one chunk of a parallel copy takes.
const CHUNK_BYTES: usize = 128 << 10;

/// A pointer that chunks of one parallel region share.
#[derive(Clone, Copy)]
pub struct Shared<T>(*mut T);

// SAFETY: whoever dereferences it answers for the accesses not overlapping.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    /// `ptr`, to be used from several threads.
    pub fn new(ptr: *mut T) -> Shared<T> {
        Shared(ptr)
    }
    /// The pointer.
    #[inline]
    pub fn get(self) -> *mut T {
        self.0
    }
}

/// Copies `n` elements of `size` bytes from places `from_step` bytes apart to places `to_step` bytes apart.
///
/// # Safety
/// Source and destination are valid for these elements, aligned to `size`, and do not overlap.
#[inline]
pub unsafe fn copy_run(to: *mut u8, to_step: isize, from: *const u8, from_step: isize, n: usize, size: usize) {
    #[inline(always)]
    unsafe fn typed<T: Copy>(to: *mut u8, to_step: isize, from: *const u8, from_step: isize, n: usize) {
        let (to, from) = (to.cast::<T>(), from.cast::<T>());
        let size = size_of::<T>() as isize;
        let (to_step, from_step) = (to_step / size, from_step / size);
        // SAFETY: the caller's promise.
        unsafe {
            if to_step == 1 && from_step == 0 {
                let value = from.read();
                for i in 0..n {
                    to.add(i).write(value);
                }
            } else if to_step == 1 {
                for i in 0..n as isize {
                    to.offset(i).write(from.offset(i * from_step).read());
                }
            } else {
                for i in 0..n as isize {
                    to.offset(i * to_step).write(from.offset(i * from_step).read());
                }
            }
        }
    }
    let dense = size as isize;
    // SAFETY: the caller's promise.
    unsafe {
        if to_step == dense && from_step == dense {
            to.copy_from_nonoverlapping(from, n * size);
            return;
        }
        match size {
            1 => typed::<u8>(to, to_step, from, from_step, n),
            2 => typed::<u16>(to, to_step, from, from_step, n),
            4 => typed::<u32>(to, to_step, from, from_step, n),
            _ => typed::<u64>(to, to_step, from, from_step, n),
        }
    }
}

/// Copies the elements of `shape` from one strided place to another.
///
/// # Errors
/// A panic in a chunk.
///
/// # Safety
/// Both are valid for all elements, do not overlap, and no two elements of `to` are one.
pub unsafe fn copy(
    pool: &mut Pool,
    shape: &Shape,
    size: usize,
    to: (*mut u8, &[isize; RANK_MAX]),
    from: (*const u8, &[isize; RANK_MAX]),
) -> Result<(), ExecError> {
    let elements = shape.numel();
    if elements == 0 {
        return Ok(());
    }
    let loops = Loops::new(shape, [to.1, from.1]);
    let [to_step, from_step] = loops.inner_strides();
    let (to, from) = (Shared::new(to.0), Shared::new(from.0.cast_mut()));
    let range = |first: usize, last: usize| {
        loops.for_runs(first, last, |run| {
            // SAFETY: runs lie within both places; chunks are disjoint.
            unsafe {
                copy_run(
                    to.get().offset(run.offsets[0]),
                    to_step,
                    from.get().offset(run.offsets[1]),
                    from_step,
                    run.len,
                    size,
                );
            }
        });
    };
    in_chunks(pool, elements, size, range)
}

/// Copies bytes, by several threads when they are many.
///
/// # Errors
/// A panic in a chunk.
///
/// # Safety
/// Both ranges are valid and do not overlap.
pub unsafe fn copy_bytes(pool: &mut Pool, to: *mut u8, from: *const u8, bytes: usize) -> Result<(), ExecError> {
    let (to, from) = (Shared::new(to), Shared::new(from.cast_mut()));
    in_chunks(pool, bytes, 1, |first, last| {
        // SAFETY: the caller's promise; chunks are disjoint.
        unsafe { to.get().add(first).copy_from_nonoverlapping(from.get().add(first), last - first) }
    })
}

/// Calls `range` with parts of `0..elements`, by several threads when they are many.
///
/// # Errors
/// A panic in a call.
pub fn in_chunks(
    pool: &mut Pool,
    elements: usize,
    size: usize,
    range: impl Fn(usize, usize) + Sync,
) -> Result<(), ExecError> {
    if elements * size < PARALLEL_BYTES_MIN || pool.threads() == 1 {
        range(0, elements);
        return Ok(());
    }
    let chunk = (CHUNK_BYTES / size).max(TILE);
    pool.run(elements.div_ceil(chunk), &|i| range(i * chunk, ((i + 1) * chunk).min(elements)))
}
