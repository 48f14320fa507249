//! Attention without keeping its scores, and its gradients.

use super::{FLOATS, tensor};
use crate::driver::{Args, Grid, Param};
use crate::kernels::{Key, Template, c_name};
use crate::launch::Walk;
use crate::{CudaBackend, Inputs, Result, Tensor, failed};
use gt_backend::{ExecError, Input, Loops};
use gt_ops::{DType, Meta, Op, RANK_MAX, Shape};

/// Which kernel of the gradient: the queries' softmax, then their gradient, then that of keys and values.
const SOFTMAX: u32 = 0;
const QUERIES: u32 = 1;
const KEYS: u32 = 2;

/// A variant is how many tiles of columns a block gathers (E of `attention.cuh`), and for gradients, by 8, which part.
pub(super) static ATTENTION: Template = Template {
    name: "attention",
    includes: &["attention.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let (e, part) = (key.variant % 8, key.variant / 8);
        let softmax = format!("Softmax<Compute<{t}>::type>* softmax");
        let rest = format!("Operands<{t}> operands, Walk<5> batches, Sizes sizes");
        match (key.op, part) {
            (Some(Op::Attention), _) => format!(
                "GT_KERNEL(256) {name}({t}* out, {rest}) {{ attention<{t}, {e}>(out, operands, batches, sizes); }}"
            ),
            (_, SOFTMAX) => format!(
                "GT_KERNEL(256) {name}({softmax}, {rest}) {{ attention_softmax<{t}>(softmax, operands, batches, sizes); }}"
            ),
            _ => format!(
                "GT_KERNEL(256) {name}({t}* out, const {softmax}, {rest}) {{
    attention_backward<{t}, {e}, {}>(out, softmax, operands, batches, sizes);
}}",
                part == KEYS
            ),
        }
    },
    catalogue: || {
        let key = |op, dtype, variant| Key::new(&ATTENTION, Some(op), Some(dtype), variant);
        let of = |dtype: DType| {
            let tiles = [1, 2, 4];
            let forward = tiles.map(|e| key(Op::Attention, dtype, e));
            let queries = tiles.map(|e| key(Op::AttentionBackward, dtype, e + 8 * QUERIES));
            let keys = tiles.map(|e| key(Op::AttentionBackward, dtype, e + 8 * KEYS));
            let softmax = [key(Op::AttentionBackward, dtype, SOFTMAX)];
            [&forward[..], &queries, &keys, &softmax].concat()
        };
        FLOATS.into_iter().flat_map(of).collect()
    },
};

/// `struct Matrix` of `attention.cuh`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Matrix {
    first: u64,
    row: i64,
    column: i64,
}

/// `struct Operands`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Operands([Matrix; 5]);
// SAFETY: of 64-bit numbers alone, as in the header.
unsafe impl Param for Operands {}

/// `struct Sizes`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Sizes {
    queries: i64,
    keys: i64,
    features: i64,
    columns: i64,
    causal: i64,
    scale: f64,
}
// SAFETY: as above.
unsafe impl Param for Sizes {}

/// What all kernels of an attention take.
struct Call {
    operands: Operands,
    walk: Walk<5>,
    sizes: Sizes,
    batches: usize,
    dtype: DType,
}

impl Call {
    /// Of a query, key, value, gradient and mask, of which the last two may not be there. None of the others is empty
    /// but for its features.
    fn new(
        [query, key, value]: [&Tensor; 3],
        grad: Option<&Tensor>,
        mask: Option<&Tensor>,
        causal: bool,
        scale: f64,
    ) -> Result<Call> {
        let all = [Some(query), Some(key), Some(value), grad, mask];
        let lead = query.meta.shape.rank() - 2;
        let batch = Shape::new(&query.meta.shape.dims()[..lead]).map_err(|e| ExecError::internal(e.to_string()))?;
        let mut steps = [[0; RANK_MAX]; 5];
        let mut operands = [Matrix::default(); 5];
        for ((t, steps), matrix) in all.iter().zip(&mut steps).zip(&mut operands) {
            if let Some(t) = t {
                steps[..lead].copy_from_slice(&t.strides[..lead]);
                let strides = t.element_strides();
                *matrix = Matrix { first: t.ptr(), row: strides[lead], column: strides[lead + 1] };
            }
        }
        let loops = Loops::new(&batch, steps.each_ref());
        let size = |t: &Tensor, axis: usize| t.meta.shape.dims()[lead + axis] as i64;
        Ok(Call {
            operands: Operands(operands),
            walk: Walk::new(&loops, [query.size(); 5]),
            sizes: Sizes {
                queries: size(query, 0),
                keys: size(key, 0),
                features: size(query, 1),
                columns: size(value, 1),
                causal: causal as i64,
                scale,
            },
            batches: batch.numel(),
            dtype: query.meta.dtype,
        })
    }

    /// The side of a tile: N of `attention.cuh`.
    fn tile(&self) -> usize {
        if self.dtype == DType::F64 { 32 } else { 64 }
    }

    /// Tiles of columns that a block gathers, and how many blocks gather so many columns of each kind.
    fn blocks(&self, columns: &[i64]) -> (u32, u32) {
        let widest = columns.iter().max().map_or(1, |columns| *columns as usize);
        let e = widest.div_ceil(self.tile()).next_power_of_two().clamp(1, 4);
        (e as u32, columns.iter().map(|columns| (*columns as usize).div_ceil(e * self.tile()) as u32).sum())
    }
}

impl CudaBackend {
    pub(super) fn attention(&mut self, inputs: Inputs<'_, '_>, causal: bool, scale: f64, out: &Meta) -> Result<Tensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let operands = [tensor(inputs, 0)?, tensor(inputs, 1)?, tensor(inputs, 2)?];
        let call = Call::new(operands, None, optional(inputs, 3), causal, scale)?;
        let (e, blocks) = call.blocks(&[call.sizes.columns]);
        let mut args = Args::new();
        args.push(result.ptr());
        self.launch_attention(&call, Op::Attention, e, args, (call.sizes.queries, blocks))?;
        Ok(result)
    }

    pub(super) fn attention_grad(
        &mut self,
        inputs: Inputs<'_, '_>,
        causal: bool,
        scale: f64,
        out: &Meta,
    ) -> Result<Tensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let grad = tensor(inputs, 0)?;
        let operands = [tensor(inputs, 1)?, tensor(inputs, 2)?, tensor(inputs, 3)?];
        let call = Call::new(operands, Some(grad), optional(inputs, 4), causal, scale)?;
        let Sizes { queries, keys, features, columns, .. } = call.sizes;
        if grad.numel() == 0 || keys == 0 {
            // SAFETY: the result is new and has so many bytes.
            unsafe { self.driver.fill(result.ptr(), 0, out.bytes(), self.stream) }.map_err(failed)?;
            return Ok(result);
        }
        // Three numbers in the compute type.
        let bytes = call.batches * queries as usize * 3 * out.dtype.size().max(4);
        let softmax = self.memory.allocate(bytes)?;
        let mut args = Args::new();
        args.push(softmax.ptr());
        self.launch_attention(&call, Op::AttentionBackward, SOFTMAX, args, (queries, 1))?;
        for (part, rows, kinds) in [(QUERIES, queries, &[features][..]), (KEYS, keys, &[columns, features])] {
            let (e, blocks) = call.blocks(kinds);
            let mut args = Args::new();
            args.push(result.ptr()).push(softmax.ptr());
            self.launch_attention(&call, Op::AttentionBackward, e + 8 * part, args, (rows, blocks))?;
        }
        Ok(result)
    }

    /// A kernel that takes `args` and then what all do, for tiles of so many rows and blocks of columns.
    fn launch_attention(
        &mut self,
        call: &Call,
        op: Op,
        variant: u32,
        mut args: Args,
        (rows, blocks): (i64, u32),
    ) -> Result<()> {
        args.push(call.operands).push(call.walk).push(call.sizes);
        let tiles = call.batches * (rows as usize).div_ceil(call.tile());
        let tiles = u32::try_from(tiles).map_err(|_| ExecError::internal(format!("{tiles} tiles of attention")))?;
        if tiles == 0 || blocks == 0 {
            return Ok(());
        }
        let function = self.kernels.get(&Key::new(&ATTENTION, Some(op), Some(call.dtype), variant))?;
        // SAFETY: the arguments are the kernel's; the sizes and strides are those of the operands.
        unsafe { self.launch(function, Grid { blocks: [tiles, blocks, 1], threads: 256, shared_bytes: 0 }, &args) }
    }
}

/// Operand `i`, if there is one.
fn optional<'a>(inputs: Inputs<'a, '_>, i: usize) -> Option<&'a Tensor> {
    match inputs.get(i) {
        Some(Input::Tensor(t)) => Some(t),
        _ => None,
    }
}
