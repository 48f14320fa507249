//! Reductions along axes, and the positions of extremes.
//!
//! Rows are reduced by teams of threads, whose size follows from the length; if the kept axis is the contiguous one,
//! threads take neighbouring columns. A few long rows are split into parts, so that all multiprocessors are busy. The
//! split depends on shapes and device only, so that a sum is reproducible.

use crate::backend::CudaBackend;
use crate::driver::{Args, Grid};
use crate::error::Result;
use crate::launch::{THREADS, Walk};
use crate::template::{KernelKey, Template, c_name};
use crate::tensor::CudaTensor;
use gt_backend::{Loops, split_axes};
use gt_ops::{Class, DType, Meta, Op, row::ROWS};

/// Rows with more steps than the first are reduced by a whole block; if there are few rows, so are those with more
/// steps than the second.
const WARP_STEPS_MAX: usize = 2048;
const BLOCK_STEPS_MIN: usize = 256;
/// The fewest steps of a part: of a block for rows, of each thread for columns.
const PIECE_STEPS_MIN: usize = 16 * THREADS as usize;
const PIECE_ROWS_MIN: usize = 16;
/// The fewest rows that each thread reduces of columns that it reads by 16 bytes, and the threads beside each other: of
/// each row they read 128 bytes, a line of the cache.
const VECTOR_ROWS_MIN: usize = 8;
const VECTOR_WIDTH: usize = 8;
/// The most bytes of a fold's state.
const STATE_BYTES_MAX: usize = 16;

const ROWS_ONE_BY_ONE: u32 = 0;
const ROWS_BY_16_BYTES: u32 = 1;
const COLUMNS: u32 = 2;
const PARTS: u32 = 3;
const COLUMNS_BY_16_BYTES: u32 = 4;

static REDUCE: Template = Template {
    name: "reduce",
    includes: &["reduce.cuh"],
    code: |key| {
        let (Some(op), Some(dtype)) = (key.op, key.dtypes[0]) else { return String::new() };
        let (name, t) = (key.name(), c_name(dtype));
        let fold = fold(op, c_name(key.dtypes[1].unwrap_or(dtype)));
        let places = format!("{fold}::Out* out, {fold}::State* parts, const {t}* from");
        match key.variant {
            COLUMNS | COLUMNS_BY_16_BYTES => format!(
                "GT_KERNEL(256) {name}({places}, i64 outer, i64 columns, i64 count, u32 width, i64 across, i64 each,
                      Walk<1> kept, Walk<1> reduced) {{
    reduce_columns<{fold}, {t}, {}>(out, parts, from, outer, columns, count, width, across, each, kept, reduced);
}}",
                if key.variant == COLUMNS { 1 } else { lanes(dtype) }
            ),
            PARTS => format!(
                "GT_KERNEL(256) {name}({fold}::Out* out, const {fold}::State* parts, i64 results, i64 pieces, i64 count, u32 size) {{
    reduce_parts<{fold}>(out, parts, results, pieces, count, size);
}}"
            ),
            variant => {
                let lanes = if variant == ROWS_BY_16_BYTES { lanes(dtype) } else { 1 };
                format!(
                    "GT_KERNEL(256) {name}({places}, i64 results, i64 count, u32 size, i64 pieces, i64 each,
                      Walk<1> kept, Walk<1> reduced) {{
    reduce_rows<{fold}, {t}, {lanes}>(out, parts, from, results, count, size, pieces, each, kept, reduced);
}}"
                )
            }
        }
    },
    catalogue: || {
        let rows = ROWS.iter().filter(|row| matches!(row.class, Class::Reduction | Class::ArgReduction));
        let own = rows.clone().flat_map(|row| row.accepts.iter().map(move |dtype| (row.op, dtype, dtype)));
        let converting = rows.flat_map(|row| {
            let pairs = DType::STORED.into_iter().flat_map(|from| DType::STORED.into_iter().map(move |to| (from, to)));
            let fits = move |(from, to): &(DType, DType)| row.op.reduces_into(*from, *to);
            pairs.filter(fits).map(move |(from, to)| (row.op, from, to))
        });
        own.chain(converting)
            .flat_map(|(op, from, to)| {
                let variants = (0..=COLUMNS_BY_16_BYTES)
                    .filter(move |variant| *variant != COLUMNS_BY_16_BYTES || columns_by_vectors(op, from));
                variants.map(move |variant| key(op, from, to, variant))
            })
            .collect()
    },
};

/// The templates of this file.
pub(crate) static TEMPLATES: &[&Template] = &[&REDUCE];

/// The struct of `reduce.cuh` that folds an op.
fn fold(op: Op, t: &str) -> String {
    match op {
        Op::Sum => format!("Sum<{t}>"),
        Op::Mean => format!("Mean<{t}>"),
        Op::Norm => format!("Norm<{t}>"),
        Op::Prod => format!("Prod<{t}>"),
        Op::Amax => format!("Extreme<{t}, true>"),
        Op::Amin => format!("Extreme<{t}, false>"),
        Op::Any => format!("BoolReduction<{t}, false>"),
        Op::All => format!("BoolReduction<{t}, true>"),
        Op::Argmax => format!("Position<{t}, true>"),
        _ => format!("Position<{t}, false>"),
    }
}

/// Elements in 16 bytes.
fn lanes(dtype: DType) -> usize {
    16 / dtype.size()
}

/// Whether neighbouring columns are read by 16 bytes where they are aligned: those of floats, if the states of as many
/// columns fit into registers, as f64 products of half precisions do not.
fn columns_by_vectors(op: Op, from: DType) -> bool {
    let floats = matches!(from, DType::F16 | DType::BF16 | DType::F32);
    floats && op.row().class == Class::Reduction && op != Op::Prod
}

/// Whether the kernel reads by 16 bytes.
pub(crate) fn by_16_bytes(key: &KernelKey) -> bool {
    *key.template == REDUCE && matches!(key.variant, ROWS_BY_16_BYTES | COLUMNS_BY_16_BYTES)
}

/// The key of a reduction of `from` that computes in `to`.
fn key(op: Op, from: DType, to: DType, variant: u32) -> KernelKey {
    KernelKey {
        dtypes: [Some(from), (from != to).then_some(to), None],
        ..KernelKey::new(&REDUCE, Some(op), None, variant)
    }
}

/// The op of a reduction, its operand's dtype, the dtype in which it computes, its result, and the numbers of results
/// and of elements that each reduces.
struct Reduction<'a> {
    op: Op,
    dtype: DType,
    computed: DType,
    out: &'a CudaTensor,
    results: usize,
    count: usize,
}

impl CudaBackend {
    /// An op of class reduction, along the axes in `mask`.
    pub(crate) fn reduce(&mut self, op: Op, t: &CudaTensor, mask: u8, out: &Meta) -> Result<CudaTensor> {
        let result = self.new_tensor(out)?;
        let results = out.shape.numel();
        if results == 0 {
            return Ok(result);
        }
        let dims = t.meta.shape.dims().iter().enumerate();
        let count: usize = dims.filter(|(axis, _)| mask >> axis & 1 == 1).map(|(_, size)| size).product();
        let (kept, reduced) = split_axes(&t.meta.shape, &t.strides, mask);
        let size = t.size() as isize;
        let dense = |loops: &Loops<1>| loops.inner_strides()[0] == size;
        let dtype = t.meta.dtype;
        let computed = if op.reduces_into(dtype, out.dtype) { out.dtype } else { dtype };
        let reduction = Reduction { op, dtype, computed, out: &result, results, count };
        if dense(&kept) && kept.inner() > 1 && count > 1 && !dense(&reduced) {
            self.reduce_columns(&reduction, t, &kept, &reduced)?;
        } else {
            self.reduce_rows(&reduction, t, &kept, &reduced)?;
        }
        Ok(result)
    }

    fn reduce_rows(&mut self, r: &Reduction<'_>, t: &CudaTensor, kept: &Loops<1>, reduced: &Loops<1>) -> Result<()> {
        let (lanes, size) = (lanes(r.dtype), t.size() as isize);
        let aligned = |stride: &isize| stride % 16 == 0;
        let outer = reduced.strides()[..reduced.sizes().len() - 1].iter().chain(kept.strides()).flatten();
        let vectors = reduced.inner_strides()[0] == size
            && reduced.inner().is_multiple_of(lanes)
            && t.ptr().is_multiple_of(16)
            && outer.into_iter().all(aligned);
        let lanes = if vectors { lanes } else { 1 };
        let steps = r.count / lanes;
        let resident = self.resident_blocks();
        let few = r.results < resident * 8;
        let team = if steps > WARP_STEPS_MAX || (few && steps > BLOCK_STEPS_MIN) {
            THREADS as usize
        } else {
            // A few steps for each thread.
            steps.div_ceil(4).next_power_of_two().clamp(1, 32)
        };
        let pieces =
            if team == THREADS as usize { (2 * resident / r.results).min(steps / PIECE_STEPS_MIN).max(1) } else { 1 };
        let each = steps.div_ceil(pieces).max(1);
        let parts = self.memory.allocate(if pieces > 1 { r.results * pieces * STATE_BYTES_MAX } else { 0 })?;
        let variant = if vectors { ROWS_BY_16_BYTES } else { ROWS_ONE_BY_ONE };
        let function = self.kernels.get(&key(r.op, r.dtype, r.computed, variant))?;
        let mut args = Args::new();
        args.push(r.out.ptr()).push(parts.ptr()).push(t.ptr()).push(r.results as i64).push(r.count as i64);
        args.push(team as u32).push(pieces as i64).push(each as i64);
        args.push(Walk::new(kept, [t.size()])).push(Walk::by(reduced, lanes, [t.size()]));
        let grid = self.grid_stride(r.results * pieces * team);
        // SAFETY: the arguments match the kernel; the loops are those of the operand, and the result and the parts have
        // room.
        unsafe { self.launch(function, grid, &args)? };
        if pieces > 1 { self.reduce_parts(r, parts.ptr(), pieces) } else { Ok(()) }
    }

    fn reduce_columns(&mut self, r: &Reduction<'_>, t: &CudaTensor, kept: &Loops<1>, reduced: &Loops<1>) -> Result<()> {
        let columns = kept.inner();
        let outer = kept.without(kept.sizes().len() - 1);
        let aligned = |stride: &isize| stride % 16 == 0;
        let vectors = columns_by_vectors(r.op, r.dtype)
            && columns.is_multiple_of(lanes(r.dtype))
            && t.ptr().is_multiple_of(16)
            && outer.strides().iter().chain(reduced.strides()).flatten().all(aligned);
        let (variant, lanes, width_max, rows_min) = match vectors {
            true => (COLUMNS_BY_16_BYTES, lanes(r.dtype), VECTOR_WIDTH, VECTOR_ROWS_MIN),
            false => (COLUMNS, 1, 32, PIECE_ROWS_MIN),
        };
        let width = (columns / lanes).next_power_of_two().min(width_max);
        let groups = r.results / columns * columns.div_ceil(width * lanes);
        let rows = THREADS as usize / width;
        let pieces = (2 * self.resident_blocks() / groups).min(r.count / (rows * rows_min)).clamp(1, u16::MAX as usize);
        let each = r.count.div_ceil(pieces);
        let parts = self.memory.allocate(if pieces > 1 { r.results * pieces * STATE_BYTES_MAX } else { 0 })?;
        let function = self.kernels.get(&key(r.op, r.dtype, r.computed, variant))?;
        let mut args = Args::new();
        args.push(r.out.ptr()).push(parts.ptr()).push(t.ptr()).push((r.results / columns) as i64).push(columns as i64);
        args.push(r.count as i64).push(width as u32).push(1i64).push(each as i64);
        args.push(Walk::new(&outer, [t.size()])).push(Walk::new(reduced, [t.size()]));
        let blocks = [groups.min(i32::MAX as usize) as u32, pieces as u32, 1];
        // SAFETY: the arguments match the kernel; the loops are those of the operand, and the result and the parts have
        // room.
        unsafe { self.launch(function, Grid { blocks, threads: THREADS, shared_bytes: 0 }, &args)? };
        if pieces > 1 { self.reduce_parts(r, parts.ptr(), pieces) } else { Ok(()) }
    }

    fn reduce_parts(&mut self, r: &Reduction<'_>, parts: u64, pieces: usize) -> Result<()> {
        // Neighbouring results are adjacent in memory, so a team for each is worthwhile only if there are few.
        let team = if r.results >= 1024 { 1 } else { pieces.div_ceil(4).next_power_of_two().clamp(1, 32) };
        let function = self.kernels.get(&key(r.op, r.dtype, r.computed, PARTS))?;
        let mut args = Args::new();
        args.push(r.out.ptr()).push(parts).push(r.results as i64).push(pieces as i64);
        args.push(r.count as i64).push(team as u32);
        let grid = self.grid_stride(r.results * team);
        // SAFETY: the arguments match the kernel, and there is a part for each result and each piece.
        unsafe { self.launch(function, grid, &args) }
    }
}
