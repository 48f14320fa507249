//! Launches: grids, and strided loops as kernel arguments.

use crate::backend::CudaBackend;
use crate::driver::{Args, Grid, KernelFunction, Param};
use crate::error::{Result, failed};
use gt_backend::Loops;
use gt_ops::{RANK_MAX, Shape};

/// The usual number of threads in a block.
pub const THREADS: u32 = 256;

/// Numbers below this are divided by a multiplication and a shift.
const NARROW_MAX: usize = 1 << 31;

/// The constants of a division by an invariant (Granlund and Montgomery 1994): `struct Divider` of `walk.cuh`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Divider {
    size: i64,
    multiplier: u32,
    shift: u32,
}

// SAFETY: an `i64` and two `u32`s, in the header's order: no padding.
unsafe impl Param for Divider {}

impl Divider {
    /// The divider of numbers below `below` by `size`.
    pub fn new(size: usize, below: usize) -> Divider {
        let size = size.max(1);
        if below > NARROW_MAX || size > NARROW_MAX {
            return Divider { size: size as i64, multiplier: 0, shift: 0 };
        }
        let (multiplier, shift) = divider(size as u32);
        Divider { size: size as i64, multiplier, shift }
    }
}

/// The multiplier and shift that divide numbers below 2^31 by `size`, as `Divider` in `walk.cuh` uses them.
pub fn divider(size: u32) -> (u32, u32) {
    let size = size.max(1) as u64;
    let shift = size.next_power_of_two().trailing_zeros();
    let multiplier = (((1u64 << shift) - size) << 32) / size + 1;
    (multiplier as u32, shift)
}

/// Sizes and strides of strided loops: `struct Walk<N>` of `walk.cuh`, with neighbouring axes merged.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Walk<const N: usize> {
    rank: i64,
    axes: [Divider; RANK_MAX],
    /// Strides of each operand, in its elements.
    strides: [[i64; RANK_MAX]; N],
}

// SAFETY: 8-byte numbers and structs of 16 bytes, in the header's order: no padding.
unsafe impl<const N: usize> Param for Walk<N> {}

impl<const N: usize> Walk<N> {
    /// Loops whose strides are in bytes, over operands with elements of these sizes.
    pub fn new(loops: &Loops<N>, sizes: [usize; N]) -> Walk<N> {
        Walk::by(loops, 1, sizes)
    }

    /// Loops over items of `lanes` elements along the innermost axis; `units` are the bytes of an item of each operand.
    pub fn by(loops: &Loops<N>, lanes: usize, units: [usize; N]) -> Walk<N> {
        let rank = loops.sizes().len();
        let items = loops.numel() / lanes;
        let mut walk = Walk { rank: rank as i64, axes: [Divider::new(1, 1); RANK_MAX], strides: [[0; RANK_MAX]; N] };
        for (axis, (size, strides)) in loops.sizes().iter().zip(loops.strides()).enumerate() {
            let lanes = if axis + 1 == rank { lanes } else { 1 };
            walk.axes[axis] = Divider::new(size / lanes, items);
            for operand in 0..N {
                walk.strides[operand][axis] = strides[operand] as i64 * lanes as i64 / units[operand] as i64;
            }
        }
        walk
    }

    /// The sizes of all axes, without strides.
    pub fn sizes(shape: &Shape) -> Walk<N> {
        let (rank, items) = (shape.rank() as i64, shape.numel());
        let mut walk = Walk { rank, axes: [Divider::new(1, 1); RANK_MAX], strides: [[0; RANK_MAX]; N] };
        for (axis, size) in walk.axes.iter_mut().zip(shape.dims()) {
            *axis = Divider::new(*size, items);
        }
        walk
    }
}

impl CudaBackend {
    /// A grid for `items` in a grid-stride loop.
    pub(crate) fn grid_stride(&self, items: usize) -> Grid {
        let properties = self.driver.properties();
        let resident = properties.multiprocessors * properties.threads_per_multiprocessor / THREADS;
        // A few waves balance blocks of different duration.
        let blocks = items.div_ceil(THREADS as usize).clamp(1, resident as usize * 4);
        Grid::new(blocks as u32, THREADS)
    }

    /// The number of blocks that the device runs at the same time.
    pub(crate) fn resident_blocks(&self) -> usize {
        let properties = self.driver.properties();
        (properties.multiprocessors * properties.threads_per_multiprocessor / THREADS) as usize
    }

    /// Enqueues a kernel on the stream of computation.
    ///
    /// # Safety
    /// As [`crate::driver::Driver::launch`]: the arguments match the kernel, and their tensors are alive and as large
    /// as the kernel assumes.
    pub(crate) unsafe fn launch(&self, function: KernelFunction, grid: Grid, args: &Args) -> Result<()> {
        // SAFETY: the caller fulfils the same contract.
        unsafe { self.driver.launch(function, grid, args, self.stream) }.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_are_divided_by_multiplying() {
        let sizes =
            (1..300).chain([641, 65_535, 65_536, 65_537, 1_000_003, (1 << 30) - 1, (1 << 30) + 1, (1 << 31) - 1]);
        for size in sizes {
            let (multiplier, shift) = divider(size as u32);
            let numbers = [0, 1, size / 2, size - 1, size, size + 1, 2 * (size >> 2) + 1, (1 << 31) - 1, 123_456_789];
            for x in numbers.into_iter().filter(|x| *x < NARROW_MAX) {
                let quotient = (((x as u64 * multiplier as u64) >> 32) as u32 + x as u32) >> shift;
                assert_eq!(quotient as usize, x / size, "{x} / {size}");
            }
        }
    }
}
