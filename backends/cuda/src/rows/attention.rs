//! Attention without materialised scores (FlashAttention-2, Dao 2023), and its gradients.

use super::row_plan::{FLOATS, tensor};
use crate::backend::{CudaBackend, Inputs};
use crate::driver::{Args, Grid, Param};
use crate::error::{Result, failed};
use crate::launch::Walk;
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_backend::{ExecError, Input, Loops};
use gt_ops::{DType, Meta, Op, RANK_MAX, Shape};

/// Which kernel of the gradient a variant selects: the softmax statistics of the queries, the gradient of the queries,
/// or those of keys and values.
const SOFTMAX: u32 = 0;
const QUERIES: u32 = 1;
const KEYS: u32 = 2;

/// The variant is the number of column tiles that a block accumulates (E of `attention.cuh`), plus, for gradients, 8
/// times the kernel's number.
pub(super) static ATTENTION: Template = Template {
    name: "attention",
    includes: &["attention.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let (e, part) = (key.variant % 8, key.variant / 8);
        let softmax = format!("Softmax<Compute<{t}>::type>* softmax");
        let rest = format!("AttentionOperands<{t}> operands, Walk<5> batches, AttentionSizes sizes");
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
        let key = |op, dtype, variant| KernelKey::new(&ATTENTION, Some(op), Some(dtype), variant);
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

/// The threads of a block of `attention_mma.cuh`, and the compute capability that its instructions need.
const MMA_THREADS: u32 = 128;
const MMA_CAPABILITY: u32 = 80;

/// Attention on tensor cores. The variant is D of `attention_mma.cuh` (the most features of operands), plus, for
/// gradients, 256 times the kernel's number, plus 1024 if there is a mask.
pub(super) static ATTENTION_MMA: Template = Template {
    name: "attention_mma",
    includes: &["attention_mma.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f16", c_name));
        let (d, part, masked) = (key.variant % 256, key.variant / 256 % 4, key.variant >= 1024);
        let rest = format!("AttentionOperands<{t}> operands, Walk<5> batches, AttentionSizes sizes");
        match key.op {
            Some(Op::Attention) => format!(
                "GT_KERNEL({MMA_THREADS}) {name}({t}* out, {rest}) {{
    attention_mma<{t}, {d}, {masked}>(out, operands, batches, sizes);
}}"
            ),
            _ => format!(
                "GT_KERNEL({MMA_THREADS}) {name}({t}* out, Query* softmax, {rest}) {{
    attention_backward_mma<{t}, {d}, Part({part}), {masked}>(out, softmax, operands, batches, sizes);
}}"
            ),
        }
    },
    catalogue: || {
        let mut keys = Vec::new();
        for dtype in [DType::F16, DType::BF16] {
            for variant in [64, 128, 64 + 1024, 128 + 1024] {
                let key = |op, part| KernelKey::new(&ATTENTION_MMA, Some(op), Some(dtype), variant + 256 * part);
                keys.push(key(Op::Attention, 0));
                keys.extend([SOFTMAX, QUERIES, KEYS].map(|part| key(Op::AttentionBackward, part)));
            }
        }
        keys
    },
};

/// `struct Matrix` of `attention.cuh`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct AttentionMatrix {
    first: u64,
    row: i64,
    column: i64,
}

/// `struct AttentionOperands` of `attention.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct AttentionOperands([AttentionMatrix; 5]);
// SAFETY: all fields are 64-bit numbers, in the header's order: no padding.
unsafe impl Param for AttentionOperands {}

/// `struct AttentionSizes` of `attention.cuh`.
#[derive(Clone, Copy)]
#[repr(C)]
struct AttentionSizes {
    queries: i64,
    keys: i64,
    features: i64,
    columns: i64,
    causal: i64,
    scale: f64,
}
// SAFETY: all fields are 64-bit numbers, in the header's order: no padding.
unsafe impl Param for AttentionSizes {}

/// The arguments that all kernels of an attention share.
struct AttentionCall {
    operands: AttentionOperands,
    walk: Walk<5>,
    sizes: AttentionSizes,
    batches: usize,
    dtype: DType,
    /// D of `attention_mma.cuh`, if tensor cores can take the operands.
    mma: Option<u32>,
}

impl AttentionCall {
    /// The arguments for query, key, value, and optionally gradient and mask. No batch axis has size 0.
    fn new(
        [query, key, value]: [&CudaTensor; 3],
        grad: Option<&CudaTensor>,
        mask: Option<&CudaTensor>,
        causal: bool,
        scale: f64,
    ) -> Result<AttentionCall> {
        let all = [Some(query), Some(key), Some(value), grad, mask];
        let lead = query.meta.shape.rank() - 2;
        let batch = Shape::new(&query.meta.shape.dims()[..lead]).map_err(|e| ExecError::internal(e.to_string()))?;
        let mut steps = [[0; RANK_MAX]; 5];
        let mut operands = [AttentionMatrix::default(); 5];
        for ((t, steps), matrix) in all.iter().zip(&mut steps).zip(&mut operands) {
            if let Some(t) = t {
                steps[..lead].copy_from_slice(&t.strides[..lead]);
                let strides = t.element_strides();
                *matrix = AttentionMatrix { first: t.ptr(), row: strides[lead], column: strides[lead + 1] };
            }
        }
        let loops = Loops::new(&batch, steps.each_ref());
        let size = |t: &CudaTensor, axis: usize| t.meta.shape.dims()[lead + axis] as i64;
        let mma = all[..4].iter().flatten().all(|t| lies_in_eighths(t)).then(|| mma_width(query, value)).flatten();
        Ok(AttentionCall {
            mma,
            operands: AttentionOperands(operands),
            walk: Walk::new(&loops, [query.size(); 5]),
            sizes: AttentionSizes {
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

    /// The column tiles that a block accumulates, and the number of blocks for these numbers of columns.
    fn blocks(&self, columns: &[i64]) -> (u32, u32) {
        let widest = columns.iter().max().map_or(1, |columns| *columns as usize);
        let e = widest.div_ceil(self.tile()).next_power_of_two().clamp(1, 4);
        (e as u32, columns.iter().map(|columns| (*columns as usize).div_ceil(e * self.tile()) as u32).sum())
    }
}

impl CudaBackend {
    pub(super) fn attention(
        &mut self,
        inputs: Inputs<'_, '_>,
        causal: bool,
        scale: f64,
        out: &Meta,
    ) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let operands = self.attention_operands([tensor(inputs, 0)?, tensor(inputs, 1)?, tensor(inputs, 2)?])?;
        let call = AttentionCall::new(operands.each_ref(), None, optional(inputs, 3), causal, scale)?;
        let mut args = Args::new();
        args.push(result.ptr());
        if let Some(d) = self.mma(&call) {
            let rows = if d == 64 { 128 } else { 64 };
            self.launch_mma(&call, Op::Attention, d, args, call.sizes.queries, rows)?;
            return Ok(result);
        }
        let (e, blocks) = call.blocks(&[call.sizes.columns]);
        self.launch_attention(&call, Op::Attention, e, args, (call.sizes.queries, blocks))?;
        Ok(result)
    }

    pub(super) fn attention_grad(
        &mut self,
        inputs: Inputs<'_, '_>,
        causal: bool,
        scale: f64,
        out: &Meta,
    ) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let operands = [tensor(inputs, 1)?, tensor(inputs, 2)?, tensor(inputs, 3)?, tensor(inputs, 0)?];
        let [query, key, value, grad] = &self.attention_operands(operands)?;
        let call = AttentionCall::new([query, key, value], Some(grad), optional(inputs, 4), causal, scale)?;
        let AttentionSizes { queries, keys, features, columns, .. } = call.sizes;
        if grad.numel() == 0 || keys == 0 {
            // SAFETY: the result was just allocated with `out.bytes()`.
            unsafe { self.driver.fill(result.ptr(), 0, out.bytes(), self.stream) }.map_err(failed)?;
            return Ok(result);
        }
        // Three numbers a query, in the compute type.
        let bytes = call.batches * queries as usize * 3 * out.dtype.size().max(4);
        let softmax = self.memory.allocate(bytes)?;
        if let Some(d) = self.mma(&call) {
            for (part, rows) in [(SOFTMAX, queries), (QUERIES, queries), (KEYS, keys)] {
                let mut args = Args::new();
                args.push(result.ptr()).push(softmax.ptr());
                self.launch_mma(&call, Op::AttentionBackward, d + 256 * part, args, rows, 64)?;
            }
            return Ok(result);
        }
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

    /// The operands (query, key, value and perhaps the gradient), of which those that only their layout keeps from
    /// tensor cores are copied: a copy costs less than the products of the other kernels. The gradient of a sum, for
    /// one, is a number expanded to a matrix.
    fn attention_operands<const N: usize>(&mut self, operands: [&CudaTensor; N]) -> Result<[CudaTensor; N]> {
        let mut laid_out = operands.map(CudaTensor::clone);
        let width = mma_width(operands[0], operands[2]);
        if width.is_none() || self.driver.properties().capability < MMA_CAPABILITY {
            return Ok(laid_out);
        }
        for (given, t) in operands.iter().zip(&mut laid_out) {
            if !lies_in_eighths(given) && given.numel() > 0 {
                *t = self.private_copy(given, false)?;
            }
        }
        Ok(laid_out)
    }

    /// D of the kernels with tensor cores, if they support this call.
    fn mma(&self, call: &AttentionCall) -> Option<u32> {
        call.mma.filter(|_| self.driver.properties().capability >= MMA_CAPABILITY && call.sizes.keys > 0)
    }

    /// Launches a kernel with tensor cores on `args` and the shared arguments, for `rows` rows, `tile` a block.
    fn launch_mma(
        &mut self,
        call: &AttentionCall,
        op: Op,
        variant: u32,
        args: Args,
        rows: i64,
        tile: usize,
    ) -> Result<()> {
        let masked = call.operands.0[4].first != 0;
        let key = KernelKey::new(&ATTENTION_MMA, Some(op), Some(call.dtype), variant + 1024 * masked as u32);
        self.launch_tiles(call, key, args, (rows, tile), 1, MMA_THREADS)
    }

    /// Launches a kernel on `args` and the shared arguments, for tiles of rows and blocks of columns.
    fn launch_attention(
        &mut self,
        call: &AttentionCall,
        op: Op,
        variant: u32,
        args: Args,
        (rows, blocks): (i64, u32),
    ) -> Result<()> {
        let key = KernelKey::new(&ATTENTION, Some(op), Some(call.dtype), variant);
        self.launch_tiles(call, key, args, (rows, call.tile()), blocks, 256)
    }

    /// Launches this many blocks for each tile of rows.
    fn launch_tiles(
        &mut self,
        call: &AttentionCall,
        key: KernelKey,
        mut args: Args,
        (rows, tile): (i64, usize),
        blocks: u32,
        threads: u32,
    ) -> Result<()> {
        args.push(call.operands).push(call.walk).push(call.sizes);
        let tiles = call.batches * (rows as usize).div_ceil(tile);
        let tiles = u32::try_from(tiles).map_err(|_| ExecError::internal(format!("{tiles} tiles of attention")))?;
        if tiles == 0 || blocks == 0 {
            return Ok(());
        }
        let function = self.kernels.get(&key)?;
        // SAFETY: the arguments match the kernel, with the operands' sizes and strides.
        unsafe { self.launch(function, Grid { blocks: [tiles, blocks, 1], threads, shared_bytes: 0 }, &args) }
    }
}

/// D of `attention_mma.cuh`, if tensor cores support operands of this dtype and these widths.
fn mma_width(query: &CudaTensor, value: &CudaTensor) -> Option<u32> {
    let columns = [query, value].map(|t| t.meta.shape.dims()[t.meta.shape.rank() - 1]);
    let widest = columns[0].max(columns[1]);
    let whole = columns.iter().all(|columns| *columns > 0 && columns.is_multiple_of(8));
    (whole && query.meta.dtype.size() == 2 && widest <= 128).then_some(if widest <= 64 { 64 } else { 128 })
}

/// Whether each row is a multiple of 16 bytes and aligned to 16, so that vector loads can read it.
fn lies_in_eighths(t: &CudaTensor) -> bool {
    let rank = t.meta.shape.rank();
    let (dims, strides) = (t.meta.shape.dims(), &t.strides[..rank]);
    let aligned = |axis: usize| dims[axis] == 1 || strides[axis] % 16 == 0;
    let row_bytes = dims[rank - 1] * t.size();
    strides[rank - 1] == t.size() as isize
        && row_bytes > 0
        && row_bytes.is_multiple_of(16)
        && t.ptr().is_multiple_of(16)
        && (0..rank - 1).all(aligned)
}

/// Operand `i`, if it is a tensor.
fn optional<'a>(inputs: Inputs<'a, '_>, i: usize) -> Option<&'a CudaTensor> {
    match inputs.get(i) {
        Some(Input::Tensor(t)) => Some(t),
        _ => None,
    }
}
