//! Work on the stream of computation, borrowed and stored.

use crate::blas::gemm::{Blas, Gemm, GemmPointers};
use crate::dnn::conv::{Conv, ConvPointers, Dnn};
use crate::driver::{
    Args, CudaGraph, CudaStream, DevicePtr, Driver, DriverError, GraphNode, Grid, KernelFunction, Packed, Result,
};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The libraries that compute where they are installed.
#[derive(Default)]
pub struct Libraries {
    /// The library for matrix products.
    pub blas: Option<Box<dyn Blas>>,
    /// The library for convolutions.
    pub dnn: Option<Box<dyn Dnn>>,
    /// Whether work is being captured.
    pub capturing: bool,
}

/// One call that enqueues work.
#[derive(Clone, Copy)]
pub enum GraphWork<'a> {
    /// A kernel launch.
    Launch { function: KernelFunction, grid: Grid, args: &'a Args },
    /// A fill.
    Fill { to: DevicePtr, byte: u8, bytes: usize },
    /// A copy within the device.
    Copy { to: DevicePtr, from: DevicePtr, bytes: usize },
    /// A product by the library.
    Product { gemm: &'a Gemm, pointers: GemmPointers },
    /// A convolution by the library.
    Convolution { conv: &'a Conv, pointers: ConvPointers },
}

/// Stored work.
#[derive(Clone, Debug, PartialEq)]
pub enum Kept {
    /// A kernel launch.
    Launch { function: KernelFunction, grid: Grid, args: Packed },
    /// A fill.
    Fill { to: DevicePtr, byte: u8, bytes: usize },
    /// A copy within the device.
    Copy { to: DevicePtr, from: DevicePtr, bytes: usize },
    /// A product by the library.
    Product { gemm: Gemm, pointers: GemmPointers },
    /// A convolution by the library.
    Convolution { conv: Box<Conv>, pointers: ConvPointers },
}

impl GraphWork<'_> {
    /// A hash of the call and its arguments, whatever its numbers are.
    #[inline]
    pub fn hash(&self) -> u64 {
        match *self {
            GraphWork::Launch { function, grid, args } => {
                let [x, y, z] = grid.blocks.map(u64::from);
                let shape = x ^ y << 32 ^ z << 48 ^ u64::from(grid.threads) << 16 ^ u64::from(grid.shared_bytes) << 24;
                (args.hash() ^ function.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ shape)
                    .wrapping_mul(0xff51_afd7_ed55_8ccd)
            }
            GraphWork::Fill { to, byte, bytes } => hash_of(&(1, to, byte, bytes)),
            GraphWork::Copy { to, from, bytes } => hash_of(&(2, to, from, bytes)),
            GraphWork::Product { gemm, pointers } => hash_of(&(3, gemm, pointers)),
            GraphWork::Convolution { conv, pointers } => hash_of(&(4, conv, pointers)),
        }
    }

    /// Whether a library computes it, which may not support it.
    pub fn is_of_library(&self) -> bool {
        matches!(self, GraphWork::Product { .. } | GraphWork::Convolution { .. })
    }

    /// Issues the work. Returns false, and does nothing, for what the library does not support.
    ///
    /// # Safety
    /// As the driver's or the library's method.
    pub unsafe fn issue(&self, driver: &dyn Driver, libraries: &mut Libraries, stream: CudaStream) -> Result<bool> {
        // SAFETY: the caller fulfils the contract of the method that is called.
        let issued = unsafe {
            match *self {
                GraphWork::Launch { function, grid, args } => driver.launch(function, grid, args, stream),
                GraphWork::Fill { to, byte, bytes } => driver.fill(to, byte, bytes, stream),
                GraphWork::Copy { to, from, bytes } => driver.copy(to, from, bytes, stream),
                GraphWork::Product { gemm, pointers } => match &mut libraries.blas {
                    Some(blas) => return blas.multiply(gemm, pointers, stream, libraries.capturing),
                    None => return Ok(false),
                },
                GraphWork::Convolution { conv, pointers } => match &mut libraries.dnn {
                    Some(dnn) => return dnn.convolve(conv, &pointers, stream),
                    None => return Ok(false),
                },
            }
        };
        issued.map(|()| true)
    }
}

fn hash_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl From<&GraphWork<'_>> for Kept {
    fn from(work: &GraphWork<'_>) -> Kept {
        match *work {
            GraphWork::Launch { function, grid, args } => {
                let mut packed = Packed::default();
                packed.pack(args);
                Kept::Launch { function, grid, args: packed }
            }
            GraphWork::Fill { to, byte, bytes } => Kept::Fill { to, byte, bytes },
            GraphWork::Copy { to, from, bytes } => Kept::Copy { to, from, bytes },
            GraphWork::Product { gemm, pointers } => Kept::Product { gemm: *gemm, pointers },
            GraphWork::Convolution { conv, pointers } => Kept::Convolution { conv: Box::new(*conv), pointers },
        }
    }
}

impl Kept {
    /// Stores other work, reusing the memory.
    #[inline]
    pub fn keep(&mut self, work: &GraphWork<'_>) {
        match (self, work) {
            (Kept::Launch { function, grid, args }, GraphWork::Launch { function: f, grid: g, args: a }) => {
                (*function, *grid) = (*f, *g);
                args.pack(a);
            }
            (kept, work) => *kept = Kept::from(work),
        }
    }

    /// Whether this is the same work, whatever its numbers are.
    #[inline]
    pub fn is(&self, work: &GraphWork<'_>) -> bool {
        match (self, *work) {
            (Kept::Launch { function, grid, args }, GraphWork::Launch { function: f, grid: g, args: a }) => {
                *function == f && *grid == g && args.is(a)
            }
            (Kept::Fill { to, byte, bytes }, GraphWork::Fill { to: t, byte: b, bytes: n }) => {
                (*to, *byte, *bytes) == (t, b, n)
            }
            (Kept::Copy { to, from, bytes }, GraphWork::Copy { to: t, from: f, bytes: n }) => {
                (*to, *from, *bytes) == (t, f, n)
            }
            (Kept::Product { gemm, pointers }, GraphWork::Product { gemm: g, pointers: p }) => {
                *pointers == p && gemm == g
            }
            (Kept::Convolution { conv, pointers }, GraphWork::Convolution { conv: c, pointers: p }) => {
                *pointers == p && **conv == *c
            }
            _ => false,
        }
    }

    /// Whether work that is the same otherwise has the same numbers.
    #[inline]
    pub fn has_numbers_of(&self, work: &GraphWork<'_>) -> bool {
        match (self, work) {
            (Kept::Launch { args, .. }, GraphWork::Launch { args: others, .. }) => args.has_numbers_of(others),
            _ => true,
        }
    }

    /// Whether the work has numbers, which may differ when it recurs.
    pub fn has_numbers(&self) -> bool {
        matches!(self, Kept::Launch { args, .. } if args.has_numbers())
    }

    /// Gives the launch of this work in a graph its arguments.
    ///
    /// # Safety
    /// As [`Driver::update_launch`].
    pub unsafe fn update(&self, driver: &dyn Driver, graph: CudaGraph, node: GraphNode) -> Result<()> {
        match self {
            // SAFETY: the caller fulfils the contract of `Driver::update_launch`.
            Kept::Launch { function, grid, args } => unsafe {
                driver.update_launch(graph, node, *function, *grid, &args.unpack())
            },
            _ => Ok(()),
        }
    }

    /// Whether the work will be issued by the same code each time.
    pub fn is_settled(&self, libraries: &Libraries) -> bool {
        match (self, &libraries.blas) {
            (Kept::Product { gemm, .. }, Some(blas)) => blas.is_settled(gemm),
            _ => true,
        }
    }

    /// Issues the work. A library supports its stored work, since that was issued before.
    ///
    /// # Safety
    /// As [`GraphWork::issue`].
    pub unsafe fn issue(&self, driver: &dyn Driver, libraries: &mut Libraries, stream: CudaStream) -> Result<()> {
        // SAFETY: the caller fulfils the contract of the method that is called.
        let done = unsafe {
            match self {
                Kept::Launch { function, grid, args } => {
                    driver.launch(*function, *grid, &args.unpack(), stream).map(|()| true)
                }
                Kept::Fill { to, byte, bytes } => driver.fill(*to, *byte, *bytes, stream).map(|()| true),
                Kept::Copy { to, from, bytes } => driver.copy(*to, *from, *bytes, stream).map(|()| true),
                Kept::Product { gemm, pointers } => {
                    GraphWork::Product { gemm, pointers: *pointers }.issue(driver, libraries, stream)
                }
                Kept::Convolution { conv, pointers } => {
                    GraphWork::Convolution { conv, pointers: *pointers }.issue(driver, libraries, stream)
                }
            }
        };
        match done? {
            true => Ok(()),
            false => {
                let what = "it does not support what it computed before".into();
                Err(DriverError::Failed { call: "a library of the device", what })
            }
        }
    }
}
