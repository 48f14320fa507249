//! Sliding windows: their geometry as a kernel argument, and pooling.

use crate::backend::CudaBackend;
use crate::driver::{Args, Param};
use crate::error::Result;
use crate::launch::Divider;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_backend::ExecError;
use gt_ops::{DType, DTypeSet, Meta, Op, WindowSpec};

/// One result for each thread.
static POOL: Template = Template {
    name: "pool",
    includes: &["window.cuh"],
    code: |key| {
        let (Some(op), Some(dtype)) = (key.op, key.dtypes[0]) else { return String::new() };
        let (name, t, pool) = (key.name(), c_name(dtype), op.name());
        let (out, chosen) = if op == Op::MaxPoolIndices { ("i64", "") } else { (t, "const i64* chosen, ") };
        let (chosen, pass) = if op == Op::MaxPoolInput { (chosen, "chosen, ") } else { ("", "") };
        // Two blocks of a multiprocessor are enough for a gradient: the assembler spills no registers for a third.
        let bounds = if matches!(op, Op::MaxPoolInput | Op::SumPoolInput) { "256, 2" } else { "256" };
        format!(
            "GT_KERNEL({bounds}) {name}({out}* out, const {t}* from, {chosen}i64 count, Windows windows) {{
    {pool}(out, from, {pass}count, windows);
}}"
        )
    },
    catalogue: || {
        let ops = [Op::MaxPool, Op::MaxPoolIndices, Op::MaxPoolInput, Op::SumPool, Op::SumPoolInput];
        ops.into_iter().flat_map(|op| DTypeSet::FLOAT.iter().map(move |dtype| key(&POOL, Some(op), dtype))).collect()
    },
};

/// Adds the partial sums of several blocks.
static ADD_PARTS: Template = Template {
    name: "add_parts",
    includes: &["window.cuh"],
    code: |key| {
        let t = key.dtypes[0].map_or("f32", c_name);
        format!(
            "GT_KERNEL(256) {}({t}* out, const Compute<{t}>::type* partial, i64 parts, i64 count) {{
    add_parts(out, partial, parts, count);
}}",
            key.name()
        )
    },
    catalogue: || DTypeSet::FLOAT.iter().map(|dtype| key(&ADD_PARTS, None, dtype)).collect(),
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&POOL, &ADD_PARTS];

/// The kernel that adds partial sums.
pub(crate) fn add_parts_key(dtype: DType) -> KernelKey {
    key(&ADD_PARTS, None, dtype)
}

pub(crate) fn key(template: &'static Template, op: Option<Op>, dtype: DType) -> KernelKey {
    KernelKey::new(template, op, Some(dtype), 0)
}

/// `struct Windows` of `window.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Windows {
    input: [i64; 3],
    output: [i64; 3],
    kernel: [i64; 3],
    stride: [i64; 3],
    dilation: [i64; 3],
    low: [i64; 3],
    by_input: [Divider; 3],
    by_output: [Divider; 3],
    by_kernel: [Divider; 3],
    by_stride: [Divider; 3],
}

// SAFETY: 8-byte numbers and structs of 16 bytes, in the header's order: no padding.
unsafe impl Param for Windows {}

impl Windows {
    /// The geometry of the windows. The indices of positions and taps that the kernel divides are below `below`.
    pub(crate) fn new(spec: &WindowSpec, output: &[usize; 3], below: usize) -> Windows {
        let signed = |sizes: &[usize; 3]| sizes.map(|size| size as i64);
        let by = |sizes: &[usize; 3]| sizes.map(|size| Divider::new(size, below));
        let by_stride = |axis: usize| {
            let stride = spec.stride[axis];
            Divider::new(stride, spec.input[axis] + spec.low[axis] + stride)
        };
        Windows {
            input: signed(&spec.input),
            output: signed(output),
            kernel: signed(&spec.kernel),
            stride: signed(&spec.stride),
            dilation: signed(&spec.dilation),
            low: signed(&spec.low),
            by_input: by(&spec.input),
            by_output: by(output),
            by_kernel: by(&spec.kernel),
            by_stride: std::array::from_fn(by_stride),
        }
    }
}

pub(crate) fn output_of(spec: &WindowSpec) -> Result<[usize; 3]> {
    spec.output().map_err(|error| ExecError::internal(error.to_string()))
}

impl CudaBackend {
    /// An op of class pooling.
    pub(crate) fn pooling(
        &mut self,
        op: Op,
        a: &CudaTensor,
        other: Option<&CudaTensor>,
        spec: &WindowSpec,
        out: &Meta,
    ) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        let count = out.shape.numel();
        if count == 0 {
            return Ok(result);
        }
        let a = self.contiguous(a)?;
        let output = output_of(spec)?;
        let windows = Windows::new(spec, &output, count);
        let function = self.kernels.get(&key(&POOL, Some(op), a.meta.dtype))?;
        let mut args = Args::new();
        args.push(result.ptr()).push(a.ptr());
        // The index of the element that each window chose.
        let mut chosen = None;
        if op == Op::MaxPoolInput {
            let input = other.ok_or_else(|| ExecError::internal("an operand is missing"))?;
            let places = Meta::new(a.meta.shape, DType::I64);
            let places = chosen.insert(self.pooling(Op::MaxPoolIndices, input, None, spec, &places)?);
            args.push(places.ptr());
        }
        args.push(count as i64).push(windows);
        // SAFETY: the arguments match the kernel; the operands are contiguous and have the shapes that inference
        // checked.
        unsafe { self.launch(function, self.grid_stride(count), &args) }?;
        drop(chosen);
        Ok(result)
    }
}
