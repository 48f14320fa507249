//! Steps of a long short-term memory.

use super::row_plan::tensor;
use crate::backend::{CudaBackend, Inputs};
use crate::driver::Args;
use crate::error::Result;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_ops::{DType, Meta};

pub(crate) static LSTM: Template = Template {
    name: "lstm",
    includes: &["lstm.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        format!(
            "GT_KERNEL(256) {name}({t}* to, const {t}* gates, const {t}* cells, i64 rows, i64 size) {{
    lstm_cell<{t}>(to, gates, cells, rows, size);
}}"
        )
    },
    catalogue: || {
        let dtypes = [DType::F32, DType::F64, DType::F16, DType::BF16];
        dtypes.map(|dtype| KernelKey::new(&LSTM, None, Some(dtype), 0)).to_vec()
    },
};

pub(crate) static LSTM_GRAD: Template = Template {
    name: "lstm_grad",
    includes: &["lstm.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        format!(
            "GT_KERNEL(256) {name}({t}* to, const {t}* of_hidden, const {t}* of_cell, const {t}* gates,
                       const {t}* before, const {t}* after, i64 rows, i64 size) {{
    lstm_cell_grad<{t}>(to, of_hidden, of_cell, gates, before, after, rows, size);
}}"
        )
    },
    catalogue: || {
        let dtypes = [DType::F32, DType::F64, DType::F16, DType::BF16];
        dtypes.map(|dtype| KernelKey::new(&LSTM_GRAD, None, Some(dtype), 0)).to_vec()
    },
};

impl CudaBackend {
    /// One step for each row of gates and cell states.
    pub(crate) fn lstm_cell(&mut self, inputs: Inputs<'_, '_>, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        let size = out.shape.dims().last().map_or(0, |columns| columns / 2);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let (gates, cells) = (self.contiguous(tensor(inputs, 0)?)?, self.contiguous(tensor(inputs, 1)?)?);
        let rows = out.shape.numel() / (2 * size);
        let mut args = Args::new();
        args.push(result.ptr()).push(gates.ptr()).push(cells.ptr()).push(rows as i64).push(size as i64);
        let function = self.kernels.get(&KernelKey::new(&LSTM, None, Some(out.dtype), 0))?;
        // SAFETY: the arguments match the kernel, and shape inference checked the shapes and dtypes of the operands.
        unsafe { self.launch(function, self.grid_stride(rows * size), &args)? };
        Ok(result)
    }

    /// The gradients of one step for each row of gates and states.
    pub(crate) fn lstm_cell_grad(&mut self, inputs: Inputs<'_, '_>, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        let size = out.shape.dims().last().map_or(0, |columns| columns / 5);
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let mut operands = Vec::with_capacity(5);
        for i in 0..5 {
            operands.push(self.contiguous(tensor(inputs, i)?)?);
        }
        let rows = out.shape.numel() / (5 * size);
        let mut args = Args::new();
        args.push(result.ptr());
        operands.iter().for_each(|operand| {
            args.push(operand.ptr());
        });
        args.push(rows as i64).push(size as i64);
        let function = self.kernels.get(&KernelKey::new(&LSTM_GRAD, None, Some(out.dtype), 0))?;
        // SAFETY: the arguments match the kernel, and shape inference checked the shapes and dtypes of the operands.
        unsafe { self.launch(function, self.grid_stride(rows * size), &args)? };
        Ok(result)
    }
}
