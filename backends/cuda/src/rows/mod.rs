//! Ops that do several steps over rows, the last axis, in one pass: how rows are given to threads, and softmax.

mod attention;
mod loss;
mod norm;

use crate::driver::{Args, Grid, Param};
use crate::kernels::{Key, Template, c_name};
use crate::{CudaBackend, Inputs, Result, Tensor};
use gt_backend::{ExecError, Input};
use gt_ops::{Attrs, DType, Meta, Op};

/// Threads of a block whose teams are parts of warps, and the largest team.
const THREADS: usize = 256;
const THREADS_MAX: usize = 1024;
/// Blocks of one launch; they take turns.
const BLOCKS_MAX: usize = 1 << 20;

/// Bits of a kernel's variant: packs of 16 bytes, and rows kept in registers.
const VECTORS: u32 = 1;
const KEPT: u32 = 2;
const VARIANTS: [u32; 4] = [0, VECTORS, KEPT, VECTORS | KEPT];

/// The floats.
const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

static SOFTMAX: Template = Template {
    name: "rows",
    includes: &["rows.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let (log, packs) = (matches!(key.op, Some(Op::LogSoftmax | Op::LogSoftmaxBackward)), packs(key));
        match key.op {
            Some(Op::Softmax | Op::LogSoftmax) => format!(
                "GT_KERNEL(1024) {name}({t}* to, const {t}* from, i64 rows, i64 columns, u32 size) {{
    softmax<{t}, {log}, {packs}>(to, from, rows, columns, size);
}}"
            ),
            _ => format!(
                "GT_KERNEL(1024) {name}({t}* to, const {t}* grad, const {t}* out, i64 rows, i64 columns, u32 size) {{
    softmax_backward<{t}, {log}, {packs}>(to, grad, out, rows, columns, size);
}}"
            ),
        }
    },
    catalogue: || keys(&SOFTMAX, &[Op::Softmax, Op::LogSoftmax, Op::SoftmaxBackward, Op::LogSoftmaxBackward]),
};

/// The templates of this folder.
pub(crate) static TEMPLATES: &[&Template] = &[
    &SOFTMAX,
    &norm::NORM,
    &norm::WEIGHT_SUMS,
    &norm::WEIGHT_JOIN,
    &loss::LOSS,
    &loss::TOTALS,
    &attention::ATTENTION,
    &attention::ATTENTION_MMA,
];

/// A kernel of each op, dtype and variant.
fn keys(template: &'static Template, ops: &[Op]) -> Vec<Key> {
    let of = |op: &Op| FLOATS.map(|dtype| VARIANTS.map(|variant| Key::new(template, Some(*op), Some(dtype), variant)));
    ops.iter().flat_map(of).flatten().collect()
}

/// Elements of a row that a thread keeps.
fn kept(dtype: DType) -> usize {
    if dtype == DType::F64 { 8 } else { 16 }
}

/// Elements of a pack, and packs that a thread keeps: the arguments V and PACKS of the kernels' templates.
fn packs(key: &Key) -> String {
    let dtype = key.dtypes[0].unwrap_or(DType::F32);
    let lanes = if key.variant & VECTORS != 0 { 16 / dtype.size() } else { 1 };
    format!("{lanes}, {}", if key.variant & KEPT != 0 { kept(dtype) / lanes } else { 0 })
}

/// Who computes rows.
struct Plan {
    variant: u32,
    /// Threads a row.
    team: usize,
    grid: Grid,
}

impl Plan {
    /// For rows of tensors that begin at these addresses.
    fn new(dtype: DType, (rows, columns): (usize, usize), places: &[u64]) -> Plan {
        let lanes = 16 / dtype.size();
        let vectors = columns.is_multiple_of(lanes) && places.iter().all(|place| place.is_multiple_of(16));
        let packs = if vectors { columns / lanes } else { columns };
        let kept = kept(dtype);
        let (team, threads) = if columns <= 32 * kept {
            (packs.next_power_of_two().clamp(1, 32), THREADS)
        } else {
            let team = columns.div_ceil(kept).next_power_of_two().clamp(64, THREADS_MAX);
            (team, team)
        };
        let fits = columns <= team * kept;
        let variant = if vectors { VECTORS } else { 0 } | if fits { KEPT } else { 0 };
        let blocks = rows.div_ceil(threads / team).clamp(1, BLOCKS_MAX);
        Plan { variant, team, grid: Grid::new(blocks as u32, threads as u32) }
    }
}

/// A number, or one for each column: `struct Numbers` of `rows.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Numbers {
    first: u64,
    number: f64,
}
// SAFETY: of 64-bit numbers alone, as in the header.
unsafe impl Param for Numbers {}

/// Rows and columns of a tensor with at least one axis.
fn extent(meta: &Meta) -> (usize, usize) {
    let columns = meta.shape.dims().last().copied().unwrap_or(1);
    (meta.shape.numel() / columns.max(1), columns)
}

fn tensor<'a>(inputs: Inputs<'a, '_>, i: usize) -> Result<&'a Tensor> {
    match inputs.get(i) {
        Some(Input::Tensor(t)) => Ok(t),
        _ => Err(ExecError::internal("a number where a tensor belongs")),
    }
}

fn number(inputs: Inputs<'_, '_>, i: usize) -> Result<f64> {
    match inputs.get(i) {
        Some(Input::Scalar(scalar)) => Ok(scalar.to_f64()),
        _ => Err(ExecError::internal("a tensor where a number belongs")),
    }
}

impl CudaBackend {
    /// One op on rows.
    pub(crate) fn rows(&mut self, op: Op, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<Tensor> {
        match (op, attrs) {
            (Op::Softmax | Op::LogSoftmax, _) => self.softmax(op, &[tensor(inputs, 0)?], out),
            (Op::SoftmaxBackward | Op::LogSoftmaxBackward, _) => {
                self.softmax(op, &[tensor(inputs, 0)?, tensor(inputs, 1)?], out)
            }
            (Op::LayerNorm | Op::RmsNorm, _) => self.norm(op, inputs, out),
            (Op::LayerNormBackward | Op::RmsNormBackward, _) => self.norm_grad(op, inputs, out),
            (Op::LayerNormWeightBackward | Op::RmsNormWeightBackward, _) => self.norm_weight_grad(op, inputs, out),
            (Op::CrossEntropy | Op::NllLoss, Attrs::Loss(spec)) => self.class_loss(op, inputs, spec, out),
            (Op::CrossEntropyBackward | Op::NllLossBackward, Attrs::Loss(spec)) => {
                self.class_loss_grad(op, inputs, spec, out)
            }
            (Op::Attention, Attrs::Attention { causal, scale }) => self.attention(inputs, *causal, *scale, out),
            (Op::AttentionBackward, Attrs::Attention { causal, scale }) => {
                self.attention_grad(inputs, *causal, *scale, out)
            }
            _ => Err(ExecError::internal(format!("{} carries other attributes", op.name()))),
        }
    }

    /// Softmax or its logarithm, or the gradient of either.
    fn softmax(&mut self, op: Op, operands: &[&Tensor], out: &Meta) -> Result<Tensor> {
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
        let places: Vec<u64> = dense.iter().map(Tensor::ptr).collect();
        let plan = Plan::new(out.dtype, (rows, columns), &places);
        args.push(rows as i64).push(columns as i64).push(plan.team as u32);
        let function = self.kernels.get(&Key::new(&SOFTMAX, Some(op), Some(out.dtype), plan.variant))?;
        // SAFETY: the arguments are the kernel's; operands and result have this shape.
        unsafe { self.launch(function, plan.grid, &args)? };
        Ok(result)
    }

    /// A number or a tensor of one for each column, which must be kept while a kernel may read it.
    fn numbers(&mut self, inputs: Inputs<'_, '_>, i: usize) -> Result<(Numbers, Option<Tensor>)> {
        match inputs.get(i) {
            Some(Input::Tensor(t)) => {
                let t = self.contiguous(t)?;
                Ok((Numbers { first: t.ptr(), number: 0.0 }, Some(t)))
            }
            _ => Ok((Numbers { first: 0, number: number(inputs, i)? }, None)),
        }
    }
}
