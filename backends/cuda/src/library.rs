//! Convolutions by libraries: which of them computes which, and those that a library for convolutions computes.
//!
//! On an H200, PyTorch's 3×3 convolutions by cuDNN took a quarter of the time of im2col and cuBLASLt, and 1×1 ones as
//! long. Exact f32 and f64 go to im2col: there, cuDNN 9.19's gradients of weights differed from the exact sums of small
//! integers by up to 8 units in the last place, and one with more padding on one side was wrong. So cuDNN computes what
//! tensor cores round anyway, with the same padding on both sides.

use crate::backend::CudaBackend;
use crate::columns::Convolution;
use crate::dnn::conv::{Conv, ConvPass, ConvPointers};
use crate::error::{Result, failed};
use crate::tensor::CudaTensor;
use gt_backend::ExecError;
use gt_ops::{DType, Op};

impl CudaBackend {
    /// Computes the convolution by a library; returns false if it is not worthwhile or not supported.
    pub(crate) fn by_libraries(&mut self, c: &Convolution<'_>) -> Result<bool> {
        if c.products() < self.library_products_min {
            return Ok(false);
        }
        let tensor_cores = match c.result.meta.dtype {
            DType::F16 | DType::BF16 => true,
            DType::F32 => self.tf32,
            _ => false,
        };
        if !tensor_cores || c.spec.low != c.spec.high {
            return self.by_columns(c);
        }
        if c.spec.groups == 1 && c.is_product() {
            return Ok(self.by_columns(c)? || self.by_dnn(c)?);
        }
        Ok(self.by_dnn(c)? || self.by_columns(c)?)
    }

    /// Computes the convolution by the library for convolutions; returns false if there is none, or it does not support
    /// it.
    fn by_dnn(&mut self, c: &Convolution<'_>) -> Result<bool> {
        let (pass, [input, weight, output]) = match c.op {
            Op::Convolution => (ConvPass::Forward, [c.seen_through, c.other, c.result]),
            Op::ConvolutionInput => (ConvPass::Input, [c.result, c.other, c.seen_through]),
            _ => (ConvPass::Weight, [c.seen_through, c.result, c.other]),
        };
        let conv = Conv {
            pass,
            dtype: c.result.meta.dtype,
            tf32: self.tf32 && c.result.meta.dtype == DType::F32,
            samples: c.samples,
            seen: c.seen,
            made: c.made,
            window: *c.spec,
            output: *c.output,
            alignments: [input, weight, output].map(CudaTensor::alignment_bytes),
        };
        let Some(bytes) = self.launches.prepare(&conv).map_err(failed)? else { return Ok(false) };
        let workspace = match (bytes > 0).then(|| self.memory.allocate(bytes)).transpose() {
            Ok(workspace) => workspace,
            Err(ExecError::OutOfMemory { .. }) => {
                tracing::debug!(target: "gtd::cuda", ?conv, bytes, "there is no room for a workspace");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let pointers = ConvPointers {
            input: input.ptr(),
            weight: weight.ptr(),
            output: output.ptr(),
            workspace: workspace.as_ref().map_or(0, |workspace| workspace.ptr()),
        };
        // SAFETY: `conv` describes these contiguous tensors, whose shapes inference checked; result and workspace,
        // which is as large as `prepare` said, are new memory.
        let done = unsafe { self.launches.convolve(&conv, pointers) }.map_err(failed)?;
        if done {
            self.add_bias(c)?;
        }
        Ok(done)
    }
}
