//! Uploads and downloads of tensors, ordered with the stream of computation.

use crate::backend::CudaBackend;
use crate::driver::Args;
use crate::error::{Result, failed};
use crate::template::{KernelKey, Template};
use crate::tensor::CudaTensor;
use crate::transfers::Transfer;
use gt_backend::HostRange;
use gt_ops::DType;

/// Stores 1 for every bool byte other than 0.
static TRUTH: Template = Template {
    name: "truth",
    includes: &["types.cuh", "walk.cuh"],
    code: |key| {
        format!(
            "GT_KERNEL(256) {}(u8* bytes, i64 count) {{ GT_FOR_EACH(i, count) bytes[i] = bytes[i] != 0; }}",
            key.name()
        )
    },
    catalogue: || vec![truth_key()],
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&TRUTH];

fn truth_key() -> KernelKey {
    KernelKey::new(&TRUTH, None, Some(DType::Bool), 0)
}

impl CudaBackend {
    /// Starts a copy of `src` into a contiguous, unshared tensor; later work of the stream of computation waits for it.
    pub(crate) fn upload(
        &mut self,
        tensor: &CudaTensor,
        offset_bytes: usize,
        src: HostRange,
    ) -> Result<Option<Transfer>> {
        if src.is_empty() {
            return Ok(None);
        }
        let to = tensor.ptr() + offset_bytes as u64;
        let copied = (|| {
            // Earlier work may still use the memory for another tensor.
            let point = self.progress.let_wait(self.transfers.up)?;
            let transfer = Transfer { point, ..self.transfers.upload(to, src)? };
            self.progress.wait_for(transfer.end)?;
            Ok(transfer)
        })();
        let transfer = copied.map_err(failed)?;
        if tensor.meta.dtype == DType::Bool {
            let function = self.kernels.get(&truth_key())?;
            let mut args = Args::new();
            args.push(to).push(src.len() as i64);
            let grid = self.grid_stride(src.len());
            // SAFETY: the arguments match `truth`, and the bytes lie in the tensor.
            unsafe { self.launch(function, grid, &args) }?;
        }
        Ok(Some(transfer))
    }

    /// Starts a copy from a contiguous tensor to `dst`, after the tensor has been computed.
    pub(crate) fn download(&mut self, tensor: &CudaTensor, offset_bytes: usize, dst: HostRange) -> Result<Transfer> {
        let from = tensor.ptr() + offset_bytes as u64;
        let copied = (|| {
            let point = self.progress.let_wait(self.transfers.down)?;
            Ok(Transfer { point, ..self.transfers.download(from, dst)? })
        })();
        let transfer = copied.map_err(failed)?;
        let lent = self.memory.lend(&tensor.buffer, transfer.end);
        Ok(Transfer { lent: Some(lent), checks: tensor.checks.clone(), ..transfer })
    }

    /// Ends a transfer that is done. Returns its duration in nanoseconds, and the error that the device found.
    pub(crate) fn end(&mut self, transfer: Transfer) -> Result<(u64, Result<()>)> {
        if let Some(loan) = &transfer.lent {
            self.memory.take_back(loan);
        }
        let (took_ns, checks) = self.transfers.finish(transfer).map_err(failed)?;
        Ok((took_ns, checks.wait()))
    }

    /// Waits for a transfer, and for the steps before it.
    pub(crate) fn finish(&mut self, transfer: Transfer) -> Result<()> {
        self.progress.reached(transfer.point.unwrap_or(0), true).map_err(failed)?;
        self.transfers.has_ended(&transfer, true).map_err(failed)?;
        self.end(transfer)?.1
    }
}
