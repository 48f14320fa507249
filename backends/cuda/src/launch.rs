//! What every launch needs: grids, and shapes as kernels take them.

use crate::driver::{Args, Function, Grid, Param};
use crate::{CudaBackend, Result, failed};
use gt_backend::Loops;
use gt_ops::RANK_MAX;

/// Threads of a block, where nothing says otherwise.
pub const THREADS: u32 = 256;

/// Strides and sizes of the axes to walk: `struct Walk<N>` of `walk.cuh`, with neighbouring axes merged.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Walk<const N: usize> {
    rank: i64,
    sizes: [i64; RANK_MAX],
    /// In elements of each operand.
    strides: [[i64; RANK_MAX]; N],
}

// SAFETY: of 64-bit numbers alone, as in the header.
unsafe impl<const N: usize> Param for Walk<N> {}

impl<const N: usize> Walk<N> {
    /// Of loops whose strides are in bytes, over operands with elements of these sizes.
    pub fn new(loops: &Loops<N>, sizes: [usize; N]) -> Walk<N> {
        let rank = loops.sizes().len();
        let mut walk = Walk { rank: rank as i64, sizes: [1; RANK_MAX], strides: [[0; RANK_MAX]; N] };
        for (axis, (size, strides)) in loops.sizes().iter().zip(loops.strides()).enumerate() {
            walk.sizes[axis] = *size as i64;
            for operand in 0..N {
                walk.strides[operand][axis] = strides[operand] as i64 / sizes[operand] as i64;
            }
        }
        walk
    }
}

impl CudaBackend {
    /// Blocks for `items` threads that each take one item after the other, a whole grid apart.
    pub(crate) fn grid_stride(&self, items: usize) -> Grid {
        let properties = self.driver.properties();
        let resident = properties.multiprocessors * properties.threads_per_multiprocessor / THREADS;
        // A few waves even out what some blocks take longer.
        let blocks = items.div_ceil(THREADS as usize).clamp(1, resident as usize * 4);
        Grid::new(blocks as u32, THREADS)
    }

    /// Runs a kernel behind everything issued so far.
    ///
    /// # Safety
    /// As [`crate::Driver::launch`]: the arguments are the kernel's, and the tensors they name are alive and as large as
    /// the kernel goes.
    pub(crate) unsafe fn launch(&self, function: Function, grid: Grid, args: &Args) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.driver.launch(function, grid, args, self.stream) }.map_err(failed)
    }
}
