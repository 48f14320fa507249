//! Attention without materialised scores (FlashAttention-2, Dao 2023), and its gradients.

use super::row_plan::{FLOATS, tensor};
use crate::backend::{CudaBackend, Inputs};
use crate::driver::{Args, Grid, Param};
use crate::error::{Result, failed};
use crate::launch::{THREADS, Walk};
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_backend::{ExecError, Input, Loops};
use gt_ops::instruction::SliceSpec;
use gt_ops::{DType, Meta, Op, RANK_MAX, Shape};

/// Which kernel of the gradient a variant selects: the softmax statistics of the queries, the gradient of the queries,
/// those of keys and values in blocks of their own, or both from the same scores.
const SOFTMAX: u32 = 0;
const QUERIES: u32 = 1;
const KEYS: u32 = 2;
const KEYS_AND_VALUES: u32 = 3;

/// The variant is the number of column tiles that a block accumulates (E of `attention.cuh`), plus, for gradients, 8
/// times the kernel's number.
pub(super) static ATTENTION: Template = Template {
    name: "attention",
    includes: &["attention.cuh"],
    code: |key| {
        let (name, t) = (key.name(), key.dtypes[0].map_or("f32", c_name));
        let (e, part) = (key.variant % 8, key.variant / 8);
        let softmax = format!("Softmax<Compute<{t}>::type>* softmax");
        let rest = format!("AttentionOperands<{t}> operands, Walk<6> batches, AttentionSizes sizes");
        // Two blocks of a multiprocessor hide each other's barriers, as long as few registers spill for it.
        let accumulated = if part == KEYS_AND_VALUES { 2 * e } else { e };
        let threads = if accumulated > 2 { "GT_KERNEL(256)" } else { "GT_KERNEL(256, 2)" };
        let pass = "operands, batches, sizes";
        let gradient = format!("{threads} {name}({t}* out, const {softmax}, {rest})");
        match (key.op, part) {
            (Some(Op::Attention), _) => {
                format!("{threads} {name}({t}* out, {rest}) {{ attention<{t}, {e}>(out, {pass}); }}")
            }
            (_, SOFTMAX) => {
                format!("{threads} {name}({softmax}, {rest}) {{ attention_softmax<{t}>(softmax, {pass}); }}")
            }
            (_, KEYS_AND_VALUES) => {
                format!("{gradient} {{ attention_keys_and_values<{t}, {e}>(out, softmax, {pass}); }}")
            }
            _ => format!("{gradient} {{ attention_backward<{t}, {e}, {}>(out, softmax, {pass}); }}", part == KEYS),
        }
    },
    catalogue: || {
        let key = |op, dtype, variant| KernelKey::new(&ATTENTION, Some(op), Some(dtype), variant);
        let of = |dtype: DType| {
            let tiles = [1, 2, 4];
            let forward = tiles.map(|e| key(Op::Attention, dtype, e));
            let queries = tiles.map(|e| key(Op::AttentionBackward, dtype, e + 8 * QUERIES));
            let keys = tiles.map(|e| key(Op::AttentionBackward, dtype, e + 8 * KEYS));
            let both = [1, 2].map(|e| key(Op::AttentionBackward, dtype, e + 8 * KEYS_AND_VALUES));
            let softmax = [key(Op::AttentionBackward, dtype, SOFTMAX)];
            [&forward[..], &queries, &keys, &both, &softmax].concat()
        };
        FLOATS.into_iter().flat_map(of).collect()
    },
};

/// The threads of a block of `attention_mma.cuh`, and the compute capability that its instructions need.
const MMA_THREADS: u32 = 128;
const MMA_CAPABILITY: u32 = 80;
/// The kernels of `attention_mma.cuh` count rows in 32 bits, with room for a tile.
const MMA_ROWS_MAX: usize = 1 << 30;

/// The kernels with tensor cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MmaKernel {
    /// The forward pass.
    Forward,
    /// The gradient of the queries, and the statistics of their softmax.
    Queries,
    /// The gradients of keys and values.
    Keys,
}

impl MmaKernel {
    const ALL: [MmaKernel; 3] = [MmaKernel::Forward, MmaKernel::Queries, MmaKernel::Keys];
}

/// The shape of a kernel's work: template parameters of `attention_mma.cuh`.
#[derive(Clone, Copy, Debug)]
struct MmaTile {
    /// R: a block has 64 R rows.
    r: usize,
    /// N: columns of a tile.
    n: usize,
    /// The block's own rows stay in registers.
    kept: bool,
    /// The blocks that a multiprocessor holds, which bounds the registers of a thread.
    blocks: u32,
}

const fn mma_tile(r: usize, n: usize, kept: bool, blocks: u32) -> MmaTile {
    MmaTile { r, n, kept, blocks }
}

/// The case that a kernel with tensor cores is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct MmaVariant {
    kernel: MmaKernel,
    /// D: the most columns of operands.
    d: usize,
    masked: bool,
    /// Operands are f32, which is rounded to tf32, rather than f16 or bf16.
    tf32: bool,
}

/// The numbers of columns that kernels with tensor cores are compiled for.
const MMA_COLUMNS: [usize; 3] = [64, 128, 256];
const MMA_COLUMNS_MAX: usize = MMA_COLUMNS[MMA_COLUMNS.len() - 1];

impl MmaVariant {
    /// The variant for operands of this dtype with up to `columns` columns.
    fn new(kernel: MmaKernel, dtype: DType, columns: usize, masked: bool) -> MmaVariant {
        let d = MMA_COLUMNS.into_iter().find(|d| columns <= *d).unwrap_or(MMA_COLUMNS_MAX);
        MmaVariant { kernel, d, masked, tf32: dtype == DType::F32 }
    }

    /// The tile. Those of halves with up to 128 columns and without a mask took the least time of up to six on an H200,
    /// for (8, 16, 2048, 64) and (8, 16, 2048, 128). Those of 256 columns and of tf32 were not measured: they have the
    /// most columns with which a multiprocessor of the H200 holds two blocks, or one if there is no such tile. None
    /// takes so many registers that they spill (`tests/nvrtc.rs`).
    fn tile(self) -> MmaTile {
        use MmaKernel::{Forward, Keys, Queries};
        match (self.tf32, self.kernel, self.d, self.masked) {
            (false, Forward, 64, false) => mma_tile(2, 128, false, 2),
            (false, Forward, 64, true) => mma_tile(1, 64, true, 3),
            (false, Forward, 128, false) => mma_tile(1, 64, true, 2),
            (false, Queries, 64, false) => mma_tile(2, 64, false, 2),
            (false, Queries, 64, true) => mma_tile(1, 32, true, 3),
            (false, Keys, 64, false) => mma_tile(2, 32, false, 2),
            (false, Keys, 128, true) => mma_tile(1, 16, false, 2),
            (false, Queries | Keys, 256, _) => mma_tile(1, 16, false, 2),
            (false, ..) => mma_tile(1, 32, false, 2),
            (true, Forward | Queries, 64, false) => mma_tile(2, 32, false, 2),
            (true, Forward, 64 | 128, _) | (true, Queries | Keys, 64, _) => mma_tile(1, 32, false, 2),
            (true, Queries | Keys, 128, _) => mma_tile(1, 16, false, 2),
            (true, ..) => mma_tile(1, 16, false, 1),
        }
    }

    /// Whether pairs of warps share the sums of the same rows, of which a block then has half as many.
    fn by_pairs(self) -> bool {
        self.kernel == MmaKernel::Keys && self.d > 128
    }

    /// The rows of a block.
    fn rows(self) -> usize {
        if self.by_pairs() { 32 } else { 64 * self.tile().r }
    }

    /// The bytes of shared memory of a block: its own rows and two tiles of the others, of two operands each (the
    /// forward pass has one of its own), and for keys two tiles of the queries' statistics and, for pairs of warps, the
    /// weights of a tile.
    fn shared_bytes(self) -> u32 {
        let n = self.tile().n;
        let own = if self.kernel == MmaKernel::Forward { 1 } else { 2 };
        let statistics = if self.kernel == MmaKernel::Keys { 2 * n * QUERY_BYTES } else { 0 };
        let weights = if self.by_pairs() { self.rows() * n * size_of::<f32>() } else { 0 };
        let row_bytes = self.d * if self.tf32 { 4 } else { 2 };
        (row_bytes * (own * self.rows() + 4 * n) + statistics + weights) as u32
    }

    fn of(key: &KernelKey) -> MmaVariant {
        let number = key.variant as usize;
        MmaVariant {
            kernel: MmaKernel::ALL[number % 4 % MmaKernel::ALL.len()],
            d: MMA_COLUMNS[number / 4 % 4 % MMA_COLUMNS.len()],
            masked: number & 16 != 0,
            tf32: key.dtypes[0] == Some(DType::F32),
        }
    }

    fn key(self, dtype: DType) -> KernelKey {
        let op = if self.kernel == MmaKernel::Forward { Op::Attention } else { Op::AttentionBackward };
        let of_columns = MMA_COLUMNS.iter().take_while(|d| **d < self.d).count();
        let number = self.kernel as usize + 4 * of_columns + 16 * self.masked as usize;
        KernelKey::new(&ATTENTION_MMA, Some(op), Some(dtype), number as u32)
    }
}

/// The dynamic shared memory of a kernel of [`ATTENTION_MMA`].
pub(super) fn mma_shared_bytes(key: &KernelKey) -> u32 {
    MmaVariant::of(key).shared_bytes()
}

/// The size of `struct Query` of `attention_mma_backward.cuh`.
const QUERY_BYTES: usize = 8;

/// Attention on tensor cores; the variant is a [`MmaVariant`].
pub(super) static ATTENTION_MMA: Template = Template {
    name: "attention_mma",
    includes: &["attention_mma_backward.cuh"],
    code: |key| {
        let (name, t, variant) = (key.name(), key.dtypes[0].map_or("f16", c_name), MmaVariant::of(key));
        let MmaTile { r, n, kept, blocks } = variant.tile();
        let (function, statistics, pass) = match variant.kernel {
            MmaKernel::Forward => ("attention_mma", "", ""),
            MmaKernel::Queries => ("attention_queries_mma", "Query* statistics, ", "statistics, "),
            MmaKernel::Keys if variant.by_pairs() => {
                ("attention_keys_by_pairs_mma", "const Query* statistics, ", "statistics, ")
            }
            MmaKernel::Keys => ("attention_keys_mma", "const Query* statistics, ", "statistics, "),
        };
        let (d, masked) = (variant.d, variant.masked);
        let shape = if variant.by_pairs() { format!("{d}, {n}") } else { format!("{d}, {r}, {n}, {kept}") };
        format!(
            "GT_KERNEL({MMA_THREADS}, {blocks}) {name}({t}* out, {statistics}AttentionOperands<{t}> operands, \
             Walk<6> batches, AttentionSizes sizes) {{
    {function}<{t}, {shape}, {masked}>(out, {pass}operands, batches, sizes);
}}"
        )
    },
    catalogue: || {
        let mut keys = Vec::new();
        for dtype in [DType::F16, DType::BF16, DType::F32] {
            for columns in MMA_COLUMNS {
                for masked in [false, true] {
                    for kernel in MmaKernel::ALL {
                        keys.push(MmaVariant::new(kernel, dtype, columns, masked).key(dtype));
                    }
                }
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
struct AttentionOperands([AttentionMatrix; 6]);
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
    walk: Walk<6>,
    sizes: AttentionSizes,
    batches: usize,
    dtype: DType,
    /// Whether tensor cores compute it, which the operands' layouts allow.
    mma: bool,
}

impl AttentionCall {
    /// The arguments for query, key and value, laid out for tensor cores if `mma`, optionally the gradient of the
    /// result and the result, and optionally a mask. No batch axis has size 0.
    fn new(
        ([query, key, value], mma): ([&CudaTensor; 3], bool),
        backward: Option<[&CudaTensor; 2]>,
        mask: Option<&CudaTensor>,
        causal: bool,
        scale: f64,
    ) -> Result<AttentionCall> {
        let [grad, result] = backward.map_or([None; 2], |both| both.map(Some));
        let all = [Some(query), Some(key), Some(value), grad, mask, result];
        let lead = query.meta.shape.rank() - 2;
        let batch = Shape::new(&query.meta.shape.dims()[..lead]).map_err(|e| ExecError::internal(e.to_string()))?;
        let mut steps = [[0; RANK_MAX]; 6];
        let mut operands = [AttentionMatrix::default(); 6];
        for ((t, steps), matrix) in all.iter().zip(&mut steps).zip(&mut operands) {
            if let Some(t) = t {
                steps[..lead].copy_from_slice(&t.strides[..lead]);
                let strides = t.element_strides();
                *matrix = AttentionMatrix { first: t.ptr(), row: strides[lead], column: strides[lead + 1] };
            }
        }
        let loops = Loops::new(&batch, steps.each_ref());
        let size = |t: &CudaTensor, axis: usize| t.meta.shape.dims()[lead + axis] as i64;
        Ok(AttentionCall {
            mma,
            operands: AttentionOperands(operands),
            walk: Walk::new(&loops, [query.size(); 6]),
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
        let (given, mask) = ([tensor(inputs, 0)?, tensor(inputs, 1)?, tensor(inputs, 2)?], optional(inputs, 3));
        let mma = self.mma_serves(&[MmaKernel::Forward], given, mask.is_some());
        let operands = self.attention_operands(given, mma)?;
        let call = AttentionCall::new((operands.each_ref(), mma), None, mask, causal, scale)?;
        let mut args = Args::new();
        args.push(result.ptr());
        if call.mma {
            self.launch_mma(&call, MmaKernel::Forward, args)?;
            return Ok(result);
        }
        let (e, blocks) = call.blocks(&[call.sizes.columns]);
        self.launch_attention(&call, Op::Attention, e, args, (call.sizes.queries, blocks))?;
        Ok(result)
    }

    pub(super) fn attention_grad(
        &mut self,
        op: Op,
        inputs: Inputs<'_, '_>,
        causal: bool,
        scale: f64,
        out: &Meta,
    ) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let grad = tensor(inputs, 0)?;
        if grad.numel() == 0 || tensor(inputs, 2)?.numel() == 0 {
            // SAFETY: the result was just allocated with `out.bytes()`.
            unsafe { self.driver.fill(result.ptr(), 0, out.bytes(), self.stream) }.map_err(failed)?;
            return Ok(result);
        }
        let (forward, mask) = match op {
            Op::AttentionGradients => (tensor(inputs, 4)?, optional(inputs, 5)),
            // The gradients need the result of attention, which older clients do not give.
            _ => (&self.attention(&inputs[1..], causal, scale, &grad.meta)?, optional(inputs, 4)),
        };
        let given = [tensor(inputs, 1)?, tensor(inputs, 2)?, tensor(inputs, 3)?];
        let mma = self.mma_serves(&[MmaKernel::Queries, MmaKernel::Keys], given, mask.is_some());
        let [query, key, value, grad, forward] =
            &self.attention_operands([given[0], given[1], given[2], grad, forward], mma)?;
        let call = AttentionCall::new(([query, key, value], mma), Some([grad, forward]), mask, causal, scale)?;
        let AttentionSizes { queries, keys, features, columns, .. } = call.sizes;
        if call.mma {
            // Two queries share 16 bytes.
            let statistics =
                self.memory.allocate(call.batches * (queries as usize).next_multiple_of(2) * QUERY_BYTES)?;
            for kernel in [MmaKernel::Queries, MmaKernel::Keys] {
                let mut args = Args::new();
                args.push(result.ptr()).push(statistics.ptr());
                self.launch_mma(&call, kernel, args)?;
            }
            return Ok(result);
        }
        // Three numbers a query, in the compute type.
        let bytes = call.batches * queries as usize * 3 * out.dtype.size().max(4);
        let softmax = self.memory.allocate(bytes)?;
        let mut args = Args::new();
        args.push(softmax.ptr());
        self.launch_attention(&call, Op::AttentionBackward, SOFTMAX, args, (queries, 1))?;
        // Where a block can accumulate all columns, one kernel computes the gradients of keys and values.
        let widest = call.blocks(&[features.max(columns)]);
        let keys_and_values = match widest {
            (e @ (1 | 2), 1) => (KEYS_AND_VALUES, keys, (e, 1)),
            _ => (KEYS, keys, call.blocks(&[columns, features])),
        };
        for (part, rows, (e, blocks)) in [(QUERIES, queries, call.blocks(&[features])), keys_and_values] {
            let mut args = Args::new();
            args.push(result.ptr()).push(softmax.ptr());
            self.launch_attention(&call, Op::AttentionBackward, e + 8 * part, args, (rows, blocks))?;
        }
        Ok(result)
    }

    /// The operands (query, key, value and perhaps the gradient and the result), of which those that only their layout
    /// keeps from tensor cores are copied, if these compute: a copy costs less than the products of the other kernels.
    /// The gradient of a sum, for one, is a number expanded to a matrix.
    fn attention_operands<const N: usize>(&mut self, operands: [&CudaTensor; N], mma: bool) -> Result<[CudaTensor; N]> {
        let mut laid_out = operands.map(CudaTensor::clone);
        for (given, t) in operands.iter().zip(&mut laid_out) {
            if mma && !lies_in_parts(given) && given.numel() > 0 {
                *t = self.in_parts(given)?;
            }
        }
        Ok(laid_out)
    }

    /// A copy whose rows begin at multiples of 16 bytes, with zeros up to the next such multiple.
    fn in_parts(&mut self, t: &CudaTensor) -> Result<CudaTensor> {
        let rank = t.meta.shape.rank();
        let mut dims = t.meta.shape.dims().to_vec();
        let in_part = PART_BYTES / t.size();
        if dims[rank - 1].is_multiple_of(in_part) {
            return self.private_copy(t, false);
        }
        dims[rank - 1] = dims[rank - 1].next_multiple_of(in_part);
        let shape = Shape::new(&dims).map_err(|e| ExecError::internal(e.to_string()))?;
        let padded = self.new_tensor(&Meta::new(shape, t.meta.dtype))?;
        // SAFETY: the tensor was just allocated with these bytes.
        unsafe { self.driver.fill(padded.ptr(), 0, padded.meta.bytes(), self.stream) }.map_err(failed)?;
        let mut out = padded.seen(padded.boxed(&SliceSpec::corner(t.meta.shape)));
        self.copy(&out, t)?;
        out.checks = t.checks.clone();
        Ok(out)
    }

    /// Whether these kernels with tensor cores support a query, key and value, once they are laid out for them.
    fn mma_serves(&self, kernels: &[MmaKernel], [query, key, value]: [&CudaTensor; 3], masked: bool) -> bool {
        let (properties, dtype) = (self.driver.properties(), query.meta.dtype);
        let from_end = |t: &CudaTensor, axis: usize| t.meta.shape.dims()[t.meta.shape.rank() - axis];
        let (features, columns, keys) = (from_end(query, 1), from_end(value, 1), from_end(key, 2));
        let fits = |kernel: &MmaKernel| {
            let variant = MmaVariant::new(*kernel, dtype, features.max(columns), masked);
            variant.shared_bytes() <= properties.shared_bytes_per_block
        };
        properties.capability >= MMA_CAPABILITY
            && (dtype.size() == 2 || dtype == DType::F32 && self.tf32)
            && features > 0
            && columns > 0
            && features.max(columns) <= MMA_COLUMNS_MAX
            && keys > 0
            && from_end(query, 2).max(keys) < MMA_ROWS_MAX
            && kernels.iter().all(fits)
    }

    /// Launches a kernel with tensor cores on `args` and the shared arguments.
    fn launch_mma(&mut self, call: &AttentionCall, kernel: MmaKernel, args: Args) -> Result<()> {
        let masked = call.operands.0[MASK].first != 0;
        let variant = MmaVariant::new(kernel, call.dtype, call.sizes.features.max(call.sizes.columns) as usize, masked);
        let rows = if kernel == MmaKernel::Keys { call.sizes.keys } else { call.sizes.queries };
        let shared_bytes = variant.shared_bytes();
        let work = TiledWork { rows, tile: variant.rows(), blocks: 1, threads: MMA_THREADS, shared_bytes };
        self.launch_tiles(call, variant.key(call.dtype), args, work)
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
        let work = TiledWork { rows, tile: call.tile(), blocks, threads: THREADS, shared_bytes: 0 };
        self.launch_tiles(call, key, args, work)
    }

    /// Launches a kernel for the tiles of rows of all batches.
    fn launch_tiles(&mut self, call: &AttentionCall, key: KernelKey, mut args: Args, work: TiledWork) -> Result<()> {
        args.push(call.operands).push(call.walk).push(call.sizes);
        let TiledWork { rows, tile, blocks, threads, shared_bytes } = work;
        let tiles = call.batches * (rows as usize).div_ceil(tile);
        let tiles = u32::try_from(tiles).map_err(|_| ExecError::internal(format!("{tiles} tiles of attention")))?;
        if tiles == 0 || blocks == 0 {
            return Ok(());
        }
        let function = self.kernels.get(&key)?;
        if shared_bytes > SHARED_BYTES_STATIC_MAX {
            self.driver.allow_shared(function, shared_bytes).map_err(failed)?;
        }
        // SAFETY: the arguments match the kernel, with the operands' sizes and strides.
        unsafe { self.launch(function, Grid { blocks: [tiles, blocks, 1], threads, shared_bytes }, &args) }
    }
}

/// The blocks of a launch: one for each `tile` of the rows, times `blocks`.
struct TiledWork {
    rows: i64,
    tile: usize,
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
}

/// The shared memory that a block may have without asking the driver.
const SHARED_BYTES_STATIC_MAX: u32 = 48 << 10;
/// The mask's place among the operands of `attention.cuh`.
const MASK: usize = 4;

/// The bytes that kernels with tensor cores copy at once to shared memory.
const PART_BYTES: usize = 16;

/// Whether each row is a multiple of 16 bytes and aligned to 16, so that kernels with tensor cores can copy it.
fn lies_in_parts(t: &CudaTensor) -> bool {
    let rank = t.meta.shape.rank();
    let (dims, strides) = (t.meta.shape.dims(), &t.strides[..rank]);
    let aligned = |axis: usize| dims[axis] == 1 || strides[axis] % PART_BYTES as isize == 0;
    let row_bytes = dims[rank - 1] * t.size();
    strides[rank - 1] == t.size() as isize
        && row_bytes > 0
        && row_bytes.is_multiple_of(PART_BYTES)
        && t.ptr().is_multiple_of(PART_BYTES as u64)
        && (0..rank - 1).all(aligned)
}

/// Operand `i`, if it is a tensor.
fn optional<'a>(inputs: Inputs<'a, '_>, i: usize) -> Option<&'a CudaTensor> {
    match inputs.get(i) {
        Some(Input::Tensor(t)) => Some(t),
        _ => None,
    }
}
