//! Tensors of constants, ranges and random numbers.

use crate::backend::{CudaBackend, Inputs};
use crate::driver::Args;
use crate::error::Result;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_backend::{ExecError, Input, scalar_bits};
use gt_ops::{Attrs, DType, Meta, Op};

/// Bytes that a thread of `FULL` writes at once.
const PIECE_BYTES: usize = 16;
/// Elements that a thread of `CREATE` computes together: one block of Philox.
const FOUR: usize = 4;

/// Repeats eight bytes.
static FULL: Template = Template {
    name: "full",
    includes: &["types.cuh", "walk.cuh"],
    code: |key| {
        format!(
            "struct alignas(16) Piece {{ u64 halves[2]; }};
GT_KERNEL(256) {}(Piece* out, i64 bytes, u64 bits) {{
    GT_FOR_EACH(i, (bytes + 15) / 16) {{
        if (i * 16 + 16 <= bytes) out[i] = Piece{{{{bits, bits}}}};
        else for (i64 at = i * 16; at < bytes; at++) ((u8*)out)[at] = u8(bits >> at % 8 * 8);
    }}
}}",
            key.name()
        )
    },
    catalogue: || vec![KernelKey::new(&FULL, None, None, 0)],
};

/// Computes each element from its position.
static CREATE: Template = Template {
    name: "create",
    includes: &["create.cuh"],
    code: |key| {
        let (Some(op), Some(dtype)) = (key.op, key.dtypes[0]) else { return String::new() };
        let maker = maker(op, dtype);
        format!(
            "GT_KERNEL(256) {}({}* out, u64 elements, u64 first, {maker} maker) {{
    create(out, elements, first, maker);
}}",
            key.name(),
            c_name(dtype)
        )
    },
    catalogue: || {
        let ops = [Op::Arange, Op::Rand, Op::Randn, Op::Randint];
        ops.into_iter().flat_map(|op| op.row().accepts.iter().map(move |dtype| create_key(op, dtype))).collect()
    },
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&FULL, &CREATE];

fn create_key(op: Op, dtype: DType) -> KernelKey {
    KernelKey::new(&CREATE, Some(op), Some(dtype), 0)
}

/// The struct of `create.cuh` that computes the elements.
fn maker(op: Op, dtype: DType) -> &'static str {
    match (op, dtype) {
        (Op::Arange, dtype) if dtype.is_float() => "Steps<f64>",
        // An unsigned type, whose overflow wraps.
        (Op::Arange, _) => "Steps<u64>",
        (Op::Rand, DType::F64) => "UniformWide",
        // The dtype resolves this many bits just below 1, so rounding never gives 1.
        (Op::Rand, DType::F16) => "Uniform<11>",
        (Op::Rand, DType::BF16) => "Uniform<8>",
        (Op::Rand, _) => "Uniform<24>",
        (Op::Randn, DType::F64) => "NormalWide",
        (Op::Randn, _) => "Normal",
        _ => "Below",
    }
}

impl CudaBackend {
    /// An op of class creation or random.
    pub(crate) fn create(&mut self, op: Op, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<CudaTensor> {
        let number = |i: usize| match inputs.get(i) {
            Some(Input::Scalar(scalar)) => Ok(*scalar),
            _ => Err(ExecError::internal(format!("{} of no number", op.name()))),
        };
        let dtype = out.dtype;
        let result = self.new_tensor(out)?;
        let elements = out.shape.numel();
        if elements == 0 {
            return Ok(result);
        }
        if op == Op::Full {
            let bits = scalar_bits(number(0)?, dtype);
            let repeated = match dtype.size() {
                1 => bits * 0x0101_0101_0101_0101,
                2 => bits * 0x0001_0001_0001_0001,
                4 => bits * 0x0000_0001_0000_0001,
                _ => bits,
            };
            let function = self.kernels.get(&KernelKey::new(&FULL, None, None, 0))?;
            let mut args = Args::new();
            args.push(result.ptr()).push(out.bytes() as i64).push(repeated);
            let grid = self.grid_stride(out.bytes().div_ceil(PIECE_BYTES));
            // SAFETY: the arguments match `full`, and the result has this many bytes.
            unsafe { self.launch(function, grid, &args) }?;
            return Ok(result);
        }
        let function = self.kernels.get(&create_key(op, dtype))?;
        let mut args = Args::new();
        args.push(result.ptr()).push(elements as u64);
        match (op, attrs) {
            (Op::Arange, _) if dtype.is_float() => {
                args.push(0u64).push([number(0)?.to_f64(), number(1)?.to_f64()]);
            }
            (Op::Arange, _) => {
                args.push(0u64).push([number(0)?.to_i64(), number(1)?.to_i64()]);
            }
            (Op::Randint, Attrs::Random { seed, stream, first, .. }) => {
                let (low, high) = (number(0)?.to_i64(), number(1)?.to_i64());
                args.push(*first).push([*seed, *stream, low as u64, high.wrapping_sub(low) as u64]);
            }
            (_, Attrs::Random { seed, stream, first, .. }) => {
                args.push(*first).push([*seed, *stream]);
            }
            _ => return Err(ExecError::internal(format!("{} creates nothing", op.name()))),
        }
        // SAFETY: the arguments match `create`, with the fields of its maker; the result has room for all elements.
        unsafe { self.launch(function, self.grid_stride(elements.div_ceil(FOUR) + 1), &args) }?;
        Ok(result)
    }
}
