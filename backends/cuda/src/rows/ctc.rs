//! Connectionist temporal classification: forward variables and posterior probabilities of the states.

use super::row_plan::{THREADS_MAX, tensor};
use crate::backend::{CudaBackend, Inputs};
use crate::driver::{Args, Grid};
use crate::error::Result;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_ops::{DType, Meta, Op};

pub(crate) static CTC: Template = Template {
    name: "ctc",
    includes: &["ctc.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let operands =
            format!("const {t}* emitted, const i64* labels, const i64* sizes, i64 time, i64 samples, i64 states");
        // The assembler does not spill numbers of two registers each for a second block.
        let bounds = if t == "f64" { "1024, 1" } else { "1024" };
        let all = format!("Alignments<{t}>{{emitted, labels, sizes, time, samples, states}}");
        match key.op {
            Some(Op::CtcForward) => format!(
                "GT_KERNEL({bounds}) {name}({t}* out, {operands}) {{
    ctc_forward<{t}>(out, {all});
}}"
            ),
            _ => format!(
                "GT_KERNEL(1024) {name}({t}* out, const {t}* rows, {operands}) {{
    ctc_posteriors<{t}>(out, rows, {all});
}}"
            ),
        }
    },
    catalogue: || {
        let of = |op| [DType::F32, DType::F64].map(|dtype| KernelKey::new(&CTC, Some(op), Some(dtype), 0));
        [of(Op::CtcForward), of(Op::CtcPosteriors)].concat()
    },
};

impl CudaBackend {
    /// The forward variables, or from them the posterior probabilities, of log-probabilities, labels and sizes.
    pub(crate) fn ctc(&mut self, op: Op, inputs: Inputs<'_, '_>, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let dense = (0..inputs.len()).map(|i| self.contiguous(tensor(inputs, i)?)).collect::<Result<Vec<_>>>()?;
        let dims = dense[0].meta.shape.dims();
        let (time, samples, states) = (dims[0], dims[1], dims[2]);
        let mut args = Args::new();
        args.push(result.ptr());
        if let Some(variables) = dense.get(3) {
            args.push(variables.ptr());
        }
        args.push(dense[0].ptr()).push(dense[1].ptr()).push(dense[2].ptr());
        args.push(time as i64).push(samples as i64).push(states as i64);
        let threads = states.next_multiple_of(32).min(THREADS_MAX);
        let function = self.kernels.get(&KernelKey::new(&CTC, Some(op), Some(out.dtype), 0))?;
        // SAFETY: the arguments match the kernel, and shape inference checked the shapes and dtypes of the operands.
        unsafe { self.launch(function, Grid::new(samples.min(i32::MAX as usize) as u32, threads as u32), &args)? };
        Ok(result)
    }
}
