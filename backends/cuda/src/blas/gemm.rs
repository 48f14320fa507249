//! The interface of a library that multiplies matrices.

use crate::driver::{CudaStream, DevicePtr, Result};
use gt_ops::DType;

/// A matrix of a product, or one of each batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmMatrix {
    /// Its columns follow each other without gaps between elements, rather than its rows.
    pub turned: bool,
    /// Elements from a row to the next, or from a column if `turned`.
    pub step: u64,
    /// Elements from the matrix of a batch to the next's; 0 if all have the same.
    pub batch_step: u64,
    /// Bytes that its address is a multiple of.
    pub alignment: u32,
}

/// `out = a b`, for `batches` matrices of `m` by `k` and `k` by `n`: all that the choice of an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Of the operands; sums of half precisions are in f32.
    pub dtype: DType,
    /// Of the result: the operands', or that of their sums.
    pub out_dtype: DType,
    /// Products of f32 may be rounded to 11 bits.
    pub tf32: bool,
    /// Rows of the result.
    pub m: u64,
    /// Its columns.
    pub n: u64,
    /// The length of the sums.
    pub k: u64,
    /// How many.
    pub batches: u64,
    /// The result, which is never turned.
    pub out: GemmMatrix,
    /// The left operand.
    pub a: GemmMatrix,
    /// The right operand.
    pub b: GemmMatrix,
}

/// A library that multiplies matrices of floats.
pub trait Blas: Send {
    /// Computes the product behind what the stream has; false if the library cannot do this one, and nothing is done
    /// then. `pointers` are of the result, a and b.
    ///
    /// # Errors
    /// Those of the driver, and of the library.
    ///
    /// # Safety
    /// As for [`crate::driver::Driver::launch`]; the result overlaps no operand.
    unsafe fn multiply(&mut self, gemm: &Gemm, pointers: [DevicePtr; 3], stream: CudaStream) -> Result<bool>;
}
