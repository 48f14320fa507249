//! The interface of a library that multiplies matrices.

use crate::driver::{CudaStream, DevicePtr, Result};
use gt_ops::DType;

/// The layout of one matrix of a product, or of a batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmMatrix {
    /// Whether columns, rather than rows, are contiguous.
    pub turned: bool,
    /// Elements between rows, or between columns if `turned` (the leading dimension).
    pub step: u64,
    /// Elements between the matrices of a batch; 0 if the batch shares one.
    pub batch_step: u64,
    /// The alignment of its address, bytes.
    pub alignment: u32,
}

/// `out = a b`, for `batches` matrices of `m` by `k` and `k` by `n`, to whose rows a bias may be added: the parameters
/// that the choice of an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// The dtype of the operands; half precisions are summed in f32.
    pub dtype: DType,
    /// The dtype of the result: the operands' or that of the sums.
    pub out_dtype: DType,
    /// Whether f32 operands may be rounded to 11 bits (TF32).
    pub tf32: bool,
    /// Rows of `out`.
    pub m: u64,
    /// Columns of `out`.
    pub n: u64,
    /// The length of the sums.
    pub k: u64,
    /// The number of products in the batch.
    pub batches: u64,
    /// The layout of the result, which is never `turned`.
    pub out: GemmMatrix,
    /// The layout of the left operand.
    pub a: GemmMatrix,
    /// The layout of the right operand.
    pub b: GemmMatrix,
    /// The alignment of the address of a bias of `n` elements of the result's dtype, bytes; none without a bias. It is
    /// added to the sums before they are rounded. A product with a bias is no batch.
    pub bias: Option<u32>,
}

/// The addresses of the operands of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmPointers {
    /// The result.
    pub out: DevicePtr,
    /// The left operand.
    pub a: DevicePtr,
    /// The right operand.
    pub b: DevicePtr,
    /// The bias; 0 without one.
    pub bias: DevicePtr,
}

/// A library that multiplies matrices of floats.
pub trait Blas: Send {
    /// Enqueues the product on the stream. Returns false, and enqueues nothing, if the library does not support the
    /// product. `is_captured` says that the stream captures the product for a graph, so that it may not be timed.
    ///
    /// # Errors
    /// Those of the driver and of the library.
    ///
    /// # Safety
    /// As for [`crate::driver::Driver::launch`]; the result overlaps no operand.
    unsafe fn multiply(
        &mut self,
        gemm: &Gemm,
        pointers: GemmPointers,
        stream: CudaStream,
        is_captured: bool,
    ) -> Result<bool>;

    /// Whether later products of this kind will be computed by the same algorithm as the next one.
    fn is_settled(&self, _gemm: &Gemm) -> bool {
        true
    }

    /// Reads the measurements that are done, and logs them; called when no more work comes for now.
    ///
    /// # Errors
    /// Those of the driver.
    fn let_go(&mut self) -> Result<()> {
        Ok(())
    }

    /// Computes each later product by the algorithm that any process with this library chooses on such a device.
    /// Returns whether that may be another algorithm than before.
    fn stop_tuning(&mut self) -> bool {
        false
    }
}
