//! Softmax, log-softmax, and their gradients.

use super::row_plan::{RowPlan, bounds, extent, keys, packs};
use crate::backend::CudaBackend;
use crate::driver::Args;
use crate::error::Result;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_ops::{Meta, Op};

pub(crate) static SOFTMAX: Template = Template {
    name: "rows",
    includes: &["rows.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let (log, packs) = (matches!(key.op, Some(Op::LogSoftmax | Op::LogSoftmaxBackward)), packs(key));
        let bounds = bounds(key);
        match key.op {
            Some(Op::Softmax | Op::LogSoftmax) => format!(
                "GT_KERNEL({bounds}) {name}({t}* to, const {t}* from, i64 rows, i64 columns, u32 size) {{
    softmax<{t}, {log}, {packs}>(to, from, rows, columns, size);
}}"
            ),
            _ => format!(
                "GT_KERNEL({bounds}) {name}({t}* to, const {t}* grad, const {t}* out, i64 rows, i64 columns, u32 size) {{
    softmax_backward<{t}, {log}, {packs}>(to, grad, out, rows, columns, size);
}}"
            ),
        }
    },
    catalogue: || keys(&SOFTMAX, &[Op::Softmax, Op::LogSoftmax, Op::SoftmaxBackward, Op::LogSoftmaxBackward]),
};

impl CudaBackend {
    /// Softmax or log-softmax, or the gradient of either.
    pub(crate) fn softmax(&mut self, op: Op, operands: &[&CudaTensor], out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        let (rows, columns) = extent(out);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let dense = operands.iter().map(|t| self.contiguous(t)).collect::<Result<Vec<_>>>()?;
        let mut args = Args::new();
        args.push(result.ptr());
        for t in &dense {
            args.push(t.ptr());
        }
        let places: Vec<u64> = dense.iter().map(CudaTensor::ptr).collect();
        let plan = RowPlan::new(out.dtype, (rows, columns), &places);
        args.push(rows as i64).push(columns as i64).push(plan.team as u32);
        let function = self.kernels.get(&KernelKey::new(&SOFTMAX, Some(op), Some(out.dtype), plan.variant))?;
        // SAFETY: the arguments match the kernel; operands and result have this shape.
        unsafe { self.launch(function, plan.grid, &args)? };
        Ok(result)
    }
}
