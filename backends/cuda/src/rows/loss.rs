//! Cross-entropy and negative log-likelihood of class indices, and their gradients.

use super::row_plan::{FLOATS, KEPT, Numbers, RowPlan, VARIANTS, VECTORS, bounds, extent, packs, tensor};
use crate::backend::{CudaBackend, Inputs};
use crate::driver::{Args, Grid, Param};
use crate::error::Result;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_ops::instruction::{LossReduction, LossSpec};
use gt_ops::{Meta, Op};

pub(super) static LOSS: Template = Template {
    name: "loss",
    includes: &["loss.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let (scores, packs) = (matches!(key.op, Some(Op::CrossEntropy | Op::CrossEntropyBackward)), packs(key));
        let bounds = bounds(key);
        match key.op {
            Some(Op::CrossEntropy | Op::NllLoss) => format!(
                "GT_KERNEL({bounds}) {name}({t}* to, f64* losses, const {t}* from, Targets targets, i64 rows, u32 size) {{
    class_loss<{t}, {scores}, {packs}>(to, losses, from, targets, rows, size);
}}"
            ),
            _ => format!(
                "GT_KERNEL({bounds}) {name}({t}* to, const {t}* grads, i64 step, const {t}* from, const f64* totals, bool mean,
                       Targets targets, i64 rows, u32 size) {{
    class_loss_backward<{t}, {scores}, {packs}>(to, grads, step, from, totals, mean, targets, rows, size);
}}"
            ),
        }
    },
    catalogue: || {
        let scores = super::row_plan::keys(&LOSS, &[Op::CrossEntropy, Op::CrossEntropyBackward]);
        let plain = |op| FLOATS.map(|dtype| KernelKey::new(&LOSS, Some(op), Some(dtype), 0));
        [scores, plain(Op::NllLoss).to_vec(), plain(Op::NllLossBackward).to_vec()].concat()
    },
};

/// Variant 0 reduces the losses of all samples; variant 1 computes the divisor of gradients.
pub(super) static TOTALS: Template = Template {
    name: "loss_totals",
    includes: &["loss.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let (to, made) = match key.variant {
            0 => (t, format!("store(to, Compute<{t}>::type(mean ? totals[0] / totals[1] : totals[0]))")),
            _ => ("f64", "for (int i = 0; i < 3; i++) to[i] = totals[i]".to_owned()),
        };
        format!(
            "GT_KERNEL(1024) {name}({to}* to, const f64* losses, bool mean, Targets targets, i64 samples) {{
    f64 totals[3];
    class_totals<{t}>(totals, losses, targets, samples);
    if (threadIdx.x == 0) {{ {made}; }}
}}"
        )
    },
    catalogue: || {
        FLOATS
            .iter()
            .flat_map(|dtype| [0, 1].map(|variant| KernelKey::new(&TOTALS, None, Some(*dtype), variant)))
            .collect()
    },
};

/// `struct Targets` of `loss.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Targets {
    index: u64,
    classes: i64,
    ignored: i64,
    weight: Numbers,
    smoothing: f64,
    found: u64,
}
// SAFETY: all fields are 64-bit numbers, or a struct of these, in the header's order: no padding.
unsafe impl Param for Targets {}

const ONE_BLOCK: Grid = Grid { blocks: [1, 1, 1], threads: 1024, shared_bytes: 0 };

impl CudaBackend {
    pub(super) fn class_loss(
        &mut self,
        op: Op,
        inputs: Inputs<'_, '_>,
        spec: &LossSpec,
        out: &Meta,
    ) -> Result<CudaTensor> {
        let mut result = self.new_tensor(out)?;
        let (from, index) = (self.contiguous(tensor(inputs, 0)?)?, self.contiguous(tensor(inputs, 1)?)?);
        let (samples, classes) = (index.numel(), extent(&from.meta).1);
        let (weight, _weight) = self.numbers(inputs, 2)?;
        let found = self.check(op, &mut result)?.0;
        let (ignored, smoothing) = (spec.ignore_index, spec.smoothing);
        let targets = Targets { index: index.ptr(), classes: classes as i64, ignored, weight, smoothing, found };
        let each = spec.reduction == LossReduction::None;
        let losses = self.memory.allocate(if each { 0 } else { samples * size_of::<f64>() })?;
        if samples > 0 {
            let plan = plan(op, &from.meta, &[from.ptr()]);
            let mut args = Args::new();
            args.push(if each { result.ptr() } else { 0 }).push(losses.ptr()).push(from.ptr()).push(targets);
            args.push(samples as i64).push(plan.team as u32);
            let function = self.kernels.get(&KernelKey::new(&LOSS, Some(op), Some(out.dtype), plan.variant))?;
            // SAFETY: the arguments match `loss`; each sample has a row, an index and a place for its loss.
            unsafe { self.launch(function, plan.grid, &args)? };
        }
        if !each {
            let mean = spec.reduction == LossReduction::Mean;
            self.class_totals(0, out, (result.ptr(), losses.ptr()), mean, targets, samples)?;
        }
        Ok(result)
    }

    pub(super) fn class_loss_grad(
        &mut self,
        op: Op,
        inputs: Inputs<'_, '_>,
        spec: &LossSpec,
        out: &Meta,
    ) -> Result<CudaTensor> {
        let mut result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let (samples, classes) = extent(out);
        let (grads, index) = (self.contiguous(tensor(inputs, 0)?)?, self.contiguous(tensor(inputs, 2)?)?);
        let scores = op == Op::CrossEntropyBackward;
        let from = if scores { self.contiguous(tensor(inputs, 1)?)? } else { tensor(inputs, 1)?.clone() };
        let (weight, _weight) = self.numbers(inputs, 3)?;
        let found = self.check(op, &mut result)?.0;
        let (ignored, smoothing) = (spec.ignore_index, spec.smoothing);
        let targets = Targets { index: index.ptr(), classes: classes as i64, ignored, weight, smoothing, found };
        let totals = self.memory.allocate(3 * size_of::<f64>())?;
        let mean = spec.reduction == LossReduction::Mean;
        self.class_totals(1, out, (totals.ptr(), 0), mean, targets, samples)?;
        let plan = plan(op, out, &[from.ptr(), result.ptr()]);
        let mut args = Args::new();
        args.push(result.ptr()).push(grads.ptr()).push((grads.numel() > 1) as i64).push(from.ptr()).push(totals.ptr());
        args.push(mean as u8).push(targets).push(samples as i64).push(plan.team as u32);
        let function = self.kernels.get(&KernelKey::new(&LOSS, Some(op), Some(out.dtype), plan.variant))?;
        // SAFETY: the arguments match the kernel; operands and result have these rows.
        unsafe { self.launch(function, plan.grid, &args)? };
        Ok(result)
    }

    fn class_totals(
        &mut self,
        variant: u32,
        out: &Meta,
        (to, losses): (u64, u64),
        mean: bool,
        targets: Targets,
        samples: usize,
    ) -> Result<()> {
        let mut args = Args::new();
        args.push(to).push(losses).push(mean as u8).push(targets).push(samples as i64);
        let function = self.kernels.get(&KernelKey::new(&TOTALS, None, Some(out.dtype), variant))?;
        // SAFETY: the arguments match `totals`; each sample has an index, and a loss if there are losses.
        unsafe { self.launch(function, ONE_BLOCK, &args) }
    }
}

/// The plan for rows of a loss. Without a softmax, one thread takes a sample, and a warp the row of a gradient.
fn plan(op: Op, from: &Meta, places: &[u64]) -> RowPlan {
    let (rows, columns) = extent(from);
    let mut plan = RowPlan::new(from.dtype, (rows, columns), places);
    debug_assert!(VARIANTS.contains(&plan.variant));
    if matches!(op, Op::NllLoss | Op::NllLossBackward) {
        plan.variant &= !(VECTORS | KEPT);
        plan.team = if op == Op::NllLoss { 1 } else { 32 };
        plan.grid = Grid::new(
            rows.div_ceil(super::row_plan::THREADS / plan.team).clamp(1, super::row_plan::BLOCKS_MAX) as u32,
            256,
        );
    }
    plan
}
