//! Layer normalization and RMS normalization, and their gradients.

use super::row_plan::{Numbers, RowPlan, bounds, extent, keys, number, packs, tensor};
use crate::backend::{CudaBackend, Inputs};
use crate::driver::{Args, Grid};
use crate::error::Result;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_ops::{Meta, Op};

/// Columns and rows of a block's tile in the gradients of weights.
const BLOCK_COLUMNS: usize = 32;
const BLOCK_ROWS: usize = 8;
/// The fewest rows of a part in the gradients of weights.
const PIECE_ROWS_MIN: usize = 8 * BLOCK_ROWS;

/// The norm, its gradient, and the moments of rows, whose key has the op of the weight's gradient.
pub(super) static NORM: Template = Template {
    name: "norm",
    includes: &["norm.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let (centre, packs) = (key.op.is_some_and(centres), packs(key));
        let bounds = bounds(key);
        let rows = "i64 rows, i64 columns, u32 size";
        match key.op {
            Some(Op::LayerNorm | Op::RmsNorm) => format!(
                "GT_KERNEL({bounds}) {name}({t}* to, const {t}* from, Numbers weight, Numbers bias, f64 eps, {rows}) {{
    norm<{t}, {centre}, {packs}>(to, from, weight, bias, eps, rows, columns, size);
}}"
            ),
            Some(Op::LayerNormBackward | Op::RmsNormBackward) => format!(
                "GT_KERNEL({bounds}) {name}({t}* to, const {t}* grad, const {t}* from, Numbers weight, f64 eps, {rows}) {{
    norm_backward<{t}, {centre}, {packs}>(to, grad, from, weight, eps, rows, columns, size);
}}"
            ),
            _ => format!(
                "GT_KERNEL({bounds}) {name}(Moments<Compute<{t}>::type>* to, const {t}* from, f64 eps, {rows}) {{
    norm_moments<{t}, {centre}, {packs}>(to, from, eps, rows, columns, size);
}}"
            ),
        }
    },
    catalogue: || {
        let layer = [Op::LayerNorm, Op::LayerNormBackward, Op::LayerNormWeightBackward];
        let rms = [Op::RmsNorm, Op::RmsNormBackward, Op::RmsNormWeightBackward];
        keys(&NORM, &[layer, rms].concat())
    },
};

pub(super) static WEIGHT_SUMS: Template = Template {
    name: "norm_weight_sums",
    includes: &["norm.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let centre = key.op.is_some_and(centres);
        format!(
            "GT_KERNEL(256) {name}(Compute<{t}>::type* parts, const {t}* grad, const {t}* from,
                      const Moments<Compute<{t}>::type>* moments, i64 rows, i64 columns, i64 each) {{
    norm_weight_sums<{t}, {centre}>(parts, grad, from, moments, rows, columns, each);
}}"
        )
    },
    catalogue: || {
        let ops = [Op::LayerNormWeightBackward, Op::RmsNormWeightBackward];
        let of = |op| super::row_plan::FLOATS.map(|dtype| KernelKey::new(&WEIGHT_SUMS, Some(op), Some(dtype), 0));
        ops.into_iter().flat_map(of).collect()
    },
};

pub(super) static WEIGHT_JOIN: Template = Template {
    name: "norm_weight_join",
    includes: &["norm.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        format!(
            "GT_KERNEL(256) {name}({t}* to, const Compute<{t}>::type* parts, i64 sums, i64 columns, i64 pieces) {{
    norm_weight_join<{t}>(to, parts, sums, columns, pieces);
}}"
        )
    },
    catalogue: || super::row_plan::FLOATS.map(|dtype| KernelKey::new(&WEIGHT_JOIN, None, Some(dtype), 0)).to_vec(),
};

/// Whether a norm subtracts the mean.
fn centres(op: Op) -> bool {
    matches!(op, Op::LayerNorm | Op::LayerNormBackward | Op::LayerNormWeightBackward)
}

impl CudaBackend {
    pub(super) fn norm(&mut self, op: Op, inputs: Inputs<'_, '_>, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let t = self.contiguous(tensor(inputs, 0)?)?;
        let (weight, _weight) = self.numbers(inputs, 1)?;
        let (bias, _bias) =
            if centres(op) { self.numbers(inputs, 2)? } else { (Numbers { first: 0, number: 0.0 }, None) };
        let mut args = Args::new();
        args.push(result.ptr()).push(t.ptr()).push(weight).push(bias).push(number(inputs, inputs.len() - 1)?);
        self.launch_norm(op, out, &[t.ptr()], args)?;
        Ok(result)
    }

    pub(super) fn norm_grad(&mut self, op: Op, inputs: Inputs<'_, '_>, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let (grad, t) = (self.contiguous(tensor(inputs, 0)?)?, self.contiguous(tensor(inputs, 1)?)?);
        let (weight, _weight) = self.numbers(inputs, 2)?;
        let mut args = Args::new();
        args.push(result.ptr()).push(grad.ptr()).push(t.ptr()).push(weight).push(number(inputs, 3)?);
        self.launch_norm(op, out, &[grad.ptr(), t.ptr()], args)?;
        Ok(result)
    }

    /// Launches a kernel of [`NORM`] over rows of operands of `meta`, on `args` and the shared arguments.
    fn launch_norm(&mut self, op: Op, meta: &Meta, places: &[u64], mut args: Args) -> Result<()> {
        let (rows, columns) = extent(meta);
        let plan = RowPlan::new(meta.dtype, (rows, columns), places);
        args.push(rows as i64).push(columns as i64).push(plan.team as u32);
        let function = self.kernels.get(&KernelKey::new(&NORM, Some(op), Some(meta.dtype), plan.variant))?;
        // SAFETY: the arguments match the kernel; operands and result have these rows.
        unsafe { self.launch(function, plan.grid, &args) }
    }

    pub(super) fn norm_weight_grad(&mut self, op: Op, inputs: Inputs<'_, '_>, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        let (grad, t) = (self.contiguous(tensor(inputs, 0)?)?, self.contiguous(tensor(inputs, 1)?)?);
        let (rows, columns) = extent(&t.meta);
        if columns == 0 {
            return Ok(result);
        }
        let dtype = t.meta.dtype;
        let size = if dtype == gt_ops::DType::F64 { 8 } else { 4 };
        let moments = self.memory.allocate(2 * rows * size)?;
        if rows > 0 {
            let mut args = Args::new();
            args.push(moments.ptr()).push(t.ptr()).push(number(inputs, 2)?);
            self.launch_norm(op, &t.meta, &[t.ptr()], args)?;
        }
        let blocks = columns.div_ceil(BLOCK_COLUMNS);
        let pieces = (2 * self.resident_blocks() / blocks).min(rows / PIECE_ROWS_MIN).max(1);
        let parts = self.memory.allocate(pieces * 2 * columns * size)?;
        let mut args = Args::new();
        args.push(parts.ptr()).push(grad.ptr()).push(t.ptr()).push(moments.ptr());
        args.push(rows as i64).push(columns as i64).push(rows.div_ceil(pieces) as i64);
        let function = self.kernels.get(&KernelKey::new(&WEIGHT_SUMS, Some(op), Some(dtype), 0))?;
        let grid = Grid { blocks: [blocks as u32, pieces as u32, 1], threads: 256, shared_bytes: 0 };
        // SAFETY: the arguments match the kernel; each part has two sums for each column.
        unsafe { self.launch(function, grid, &args)? };
        let sums = out.shape.numel();
        let mut args = Args::new();
        args.push(result.ptr()).push(parts.ptr()).push(sums as i64).push(columns as i64).push(pieces as i64);
        let function = self.kernels.get(&KernelKey::new(&WEIGHT_JOIN, None, Some(dtype), 0))?;
        // SAFETY: the arguments match the kernel; the result has at most two sums for each column.
        unsafe { self.launch(function, self.grid_stride(sums), &args)? };
        Ok(result)
    }
}
