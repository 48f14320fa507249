//! The CPU backend of GT: kernels and memory for tensors in host memory.
//!
//! This crate must not know sessions, clients or tensor ids. Start at [`CpuBackend`]; an instruction's way leads from
//! `execute` here to the file of its class: `elementwise` over the inner loops of `kernels`, several of them together
//! in `fused`, `reduce`, `rows`, `matmul`, `index`, `scan`, `sort`, `search`, `create`, `conv` over the inner loops of
//! `tiles`, `pooling`, and `strided` for copies. Movement makes views and copies nothing. `memory` is the caching
//! allocator, over `space` where other processes are to reach tensors, and `pool` the threads.

mod conv;
mod create;
mod elementwise;
mod fused;
mod index;
mod kernels;
mod lanes;
mod matmul;
mod memory;
mod planes;
mod pool;
mod pooling;
mod reduce;
mod rows;
mod scan;
mod search;
mod sort;
mod space;
mod strided;
mod tensor;
mod tiles;

pub use tensor::Tensor;

use create::{Fill, Route, fill};
use elementwise::{Pattern, STREAM_BYTES_MIN, Source, TILE, Task, Tile, chunk_elements, work_ns};
use gt_backend::{
    Backend, ExecError, HostRange, Input, Loops, MemoryStats, MemoryUsage, Power, Stage, scalar_bits, simple_power,
    split_axes,
};
use gt_ops::instruction::SliceSpec;
use gt_ops::{Attrs, Class, DType, Meta, Op, RANK_MAX, Row, Shape};
use gt_shm::Segment;
use index::{Lookup, Search, Searcher};
use kernels::{Kernel, Kernels, Level};
use matmul::{Matrix, Product};
use memory::Allocator;
use pool::Pool;
use reduce::{Reducer, Reduction};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use strided::{Shared, copy, copy_bytes, in_chunks, run_or_not, stream_bytes};

/// A result takes an operand's memory only if that is at most this many times what it needs.
const IN_PLACE_WASTE_MAX: usize = 2;
/// Products with fewer rows read a transposed right operand once, as it is.
const TURNED_ROWS_MIN: usize = 4;
/// A product of so few rows with a transposed operand of so few bytes, which stays in L2, is made with the rows in the
/// vector registers: a row's elements are broadcast from where they are, and nothing is turned or packed.
const FEW_ROWS_MAX: usize = 32;
const FEW_ROWS_OPERAND_BYTES_MAX: usize = 1 << 20;
/// Smaller transposed operands are walked as they are.
const TURNED_ELEMENTS_MIN: usize = 4 << 10;
/// Elements that one thread searches before it takes more.
const SEARCH_CHUNK_ELEMENTS: usize = 16 << 10;

/// How a [`CpuBackend`] is set up.
#[derive(Clone, Debug)]
pub struct CpuOptions {
    /// How many threads compute, the caller of [`Backend::execute`] among them.
    pub threads: usize,
    /// What tensors may hold together, in bytes.
    pub memory_bytes_limit: usize,
    /// Where tensors lie that other processes are to reach, if there are any. It may be longer than the limit.
    pub shared: Option<Arc<Segment>>,
}

impl Default for CpuOptions {
    /// One thread a core, and three quarters of [`machine_bytes`].
    fn default() -> CpuOptions {
        CpuOptions {
            threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            memory_bytes_limit: machine_bytes() / 4 * 3,
            shared: None,
        }
    }
}

/// Memory that this process may use at most: the machine's, or what its control group leaves of that.
pub fn machine_bytes() -> usize {
    physical_bytes().min(group_bytes().unwrap_or(usize::MAX))
}

/// The least limit of the control groups that this process is in, if there is one.
fn group_bytes() -> Option<usize> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limit = |group: &std::path::Path| {
        let text =
            std::fs::read_to_string(std::path::Path::new("/sys/fs/cgroup").join(group).join("memory.max")).ok()?;
        text.trim().parse().ok()
    };
    std::path::Path::new(own).ancestors().filter_map(limit).min()
}

fn physical_bytes() -> usize {
    // SAFETY: these calls only read the system's configuration.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (usize::try_from(pages), usize::try_from(page)) {
        (Ok(pages), Ok(page)) if pages > 0 => pages.saturating_mul(page),
        // Unknown: no limit of ours.
        _ => usize::MAX / 8,
    }
}

/// Computes on the CPU.
pub struct CpuBackend {
    allocator: Allocator,
    pool: Pool,
    kernels: Kernels,
    level: Level,
    /// Steps done: whatever may write memory, or gives it to others who write it.
    step: u64,
    moments: Option<rows::Moments>,
}

type Result<T> = std::result::Result<T, ExecError>;
type Inputs<'a, 'b> = &'a [Input<'b, Tensor>];

impl CpuBackend {
    /// A backend with its own threads and memory.
    pub fn new(options: CpuOptions) -> CpuBackend {
        let level = Level::available().last().copied().unwrap_or(Level::Baseline);
        CpuBackend::at_level(options, level)
    }

    fn at_level(options: CpuOptions, level: Level) -> CpuBackend {
        CpuBackend {
            allocator: Allocator::new(options.memory_bytes_limit, options.shared),
            pool: Pool::new(options.threads),
            kernels: Kernels::of(level),
            level,
            step: 0,
            moments: None,
        }
    }

    #[inline]
    fn new_tensor(&self, meta: &Meta) -> Result<Tensor> {
        Ok(Tensor::contiguous(self.allocator.allocate(meta.bytes())?, *meta))
    }

    fn widen(&self, dtype: DType) -> Option<Kernel> {
        match dtype {
            DType::F16 => Some(self.kernels.widen[0]),
            DType::BF16 => Some(self.kernels.widen[1]),
            _ => None,
        }
    }

    fn narrow(&self, dtype: DType) -> Option<Kernel> {
        match dtype {
            DType::F16 => Some(self.kernels.narrow[0]),
            DType::BF16 => Some(self.kernels.narrow[1]),
            _ => None,
        }
    }

    fn elementwise(&mut self, row: &Row, inputs: Inputs<'_, '_>, out: &Meta, last_use: u8) -> Result<Tensor> {
        let dtype = match inputs {
            [Input::Tensor(t), ..] | [_, Input::Tensor(t), ..] | [_, _, Input::Tensor(t)] => t.meta.dtype,
            _ => return Err(ExecError::internal(format!("{} of no tensor", row.name))),
        };
        if row.divisor_nonzero && !dtype.is_float() && out.shape.numel() > 0 {
            self.check_divisor(&inputs[1], dtype)?;
        }
        if let (Op::Pow, [Input::Tensor(base), Input::Scalar(exponent)]) = (row.op, inputs)
            && dtype.is_float()
        {
            match simple_power(*exponent) {
                Some(Power::Same) => return Ok((*base).clone()),
                Some(Power::Square) => {
                    return self.elementwise(Op::Mul.row(), &[inputs[0], inputs[0]], out, last_use & 1);
                }
                Some(Power::Function(op)) => return self.elementwise(op.row(), &inputs[..1], out, last_use & 1),
                None => {}
            }
        }
        let map = self.elementwise_map(row, dtype, out.dtype)?;
        self.map(map, inputs, out, last_use)
    }

    #[inline]
    fn elementwise_map(&self, row: &Row, dtype: DType, out: DType) -> Result<Map> {
        let Some(kernel) = self.kernels.elementwise(row.op, dtype) else {
            return Err(ExecError::internal(format!("{} of {dtype} has no kernel", row.name)));
        };
        Ok(Map {
            kernel,
            moves: false,
            takes_splat: row.operands == 2,
            dtypes: [dtype; 3],
            narrow: if out == dtype { self.narrow(dtype) } else { None },
            weight: row.cost_flops as usize,
        })
    }

    /// Computes a kernel over broadcast operands.
    #[inline]
    fn map(&mut self, map: Map, inputs: Inputs<'_, '_>, out: &Meta, last_use: u8) -> Result<Tensor> {
        let elements = out.shape.numel();
        let out_size = out.dtype.size();
        let mut slots = [0u64; 3];
        let mut in_place = None;
        let nowhere = Source { ptr: std::ptr::null(), size: 0, widen: None, pattern: Pattern::Splat };
        let mut sources = [nowhere; 3];
        let mut any_strided = false;
        for (i, input) in inputs.iter().enumerate() {
            let dtype = map.dtypes[i];
            let (ptr, pattern) = match input {
                Input::Scalar(scalar) => {
                    slots[i] = scalar_bits(*scalar, dtype);
                    (std::ptr::from_ref(&slots[i]).cast::<u8>(), Pattern::Splat)
                }
                Input::Tensor(t) => {
                    let pattern = if t.contiguous && t.meta.shape == out.shape {
                        if last_use >> i & 1 == 1 && t.size() == out_size && t.buffer.is_unique() {
                            in_place = Some(*t);
                        }
                        Pattern::Linear
                    } else if t.numel() == 1 {
                        Pattern::Splat
                    } else {
                        any_strided = true;
                        Pattern::Strided
                    };
                    (t.ptr().cast_const(), pattern)
                }
            };
            sources[i] =
                Source { ptr, size: dtype.size(), widen: if map.moves { None } else { self.widen(dtype) }, pattern };
        }
        if any_strided && inputs.iter().any(|input| matches!(input, Input::Tensor(t) if is_turned(t, &out.shape))) {
            return self.map_turned(map, inputs, out, last_use);
        }
        let reused =
            in_place.filter(|t| t.buffer.capacity_bytes() <= IN_PLACE_WASTE_MAX * out.bytes().max(memory::ALIGN_BYTES));
        let result = match reused {
            Some(t) => t.reused(*out),
            None => self.new_tensor(out)?,
        };
        if elements == 0 {
            return Ok(result);
        }
        let loops = any_strided.then(|| {
            let strides: [[isize; RANK_MAX]; 3] = std::array::from_fn(|i| match inputs.get(i) {
                Some(Input::Tensor(t)) => t.broadcast_strides(&out.shape),
                _ => [0; RANK_MAX],
            });
            Loops::new(&out.shape, strides.each_ref())
        });
        let task = Task {
            kernel: map.kernel,
            takes_splat: map.takes_splat,
            sources,
            operands: inputs.len(),
            out: result.ptr(),
            out_size,
            narrow: map.narrow,
            in_place: reused.is_some(),
            loops,
            elements,
            weight: map.weight,
        };
        // SAFETY: the sources are tensors of at least the result's broadcast shape, or slots that live until here. The
        // result is new, or it is the only handle of a source that is exactly as large and in the same order.
        unsafe { task.run(&mut self.pool)? };
        Ok(result)
    }

    /// As [`CpuBackend::map`], with transposed operands turned first: walking along their columns costs more.
    #[cold]
    fn map_turned(&mut self, map: Map, inputs: Inputs<'_, '_>, out: &Meta, last_use: u8) -> Result<Tensor> {
        let mut turned: [Option<Tensor>; 3] = [const { None }; 3];
        for (slot, input) in turned.iter_mut().zip(inputs) {
            if let Input::Tensor(t) = input
                && is_turned(t, &out.shape)
            {
                *slot = Some(self.contiguous(t)?);
            }
        }
        let mut straight = [inputs[0]; 3];
        for (i, input) in inputs.iter().enumerate() {
            straight[i] = turned[i].as_ref().map_or(*input, Input::Tensor);
        }
        self.map(map, &straight[..inputs.len()], out, last_use)
    }

    fn check_divisor(&mut self, divisor: &Input<'_, Tensor>, dtype: DType) -> Result<()> {
        let nonzero = match divisor {
            Input::Scalar(scalar) => scalar_bits(*scalar, dtype) != 0,
            Input::Tensor(t) => {
                let meta = Meta::new(Shape::SCALAR, DType::Bool);
                let all = self.reduce(Op::All, t, every_axis(&t.meta.shape), &meta)?;
                // SAFETY: one byte was written there.
                unsafe { all.ptr().read() != 0 }
            }
        };
        if nonzero { Ok(()) } else { Err(ExecError::ZeroDivision) }
    }

    fn select(&mut self, inputs: Inputs<'_, '_>, out: &Meta, last_use: u8) -> Result<Tensor> {
        self.map(self.select_map(out.dtype), inputs, out, last_use)
    }

    fn select_map(&self, dtype: DType) -> Map {
        Map {
            kernel: self.kernels.select(dtype.size()),
            moves: true,
            takes_splat: false,
            dtypes: [DType::Bool, dtype, dtype],
            narrow: None,
            weight: 1,
        }
    }

    fn cast(&mut self, t: &Tensor, out: &Meta, last_use: u8) -> Result<Tensor> {
        if t.meta.dtype == out.dtype {
            return Ok(t.clone());
        }
        let map = self.cast_map(t.meta.dtype, out.dtype)?;
        self.map(map, &[Input::Tensor(t)], out, last_use)
    }

    fn cast_map(&self, from: DType, to: DType) -> Result<Map> {
        let Some(kernel) = self.kernels.cast(compute_dtype(from), compute_dtype(to)) else {
            return Err(ExecError::internal(format!("no cast from {from} to {to}")));
        };
        Ok(Map { kernel, moves: false, takes_splat: false, dtypes: [from; 3], narrow: self.narrow(to), weight: 1 })
    }

    /// The same elements in row-major order without gaps, by a copy if need be.
    fn contiguous(&mut self, t: &Tensor) -> Result<Tensor> {
        if t.contiguous {
            return Ok(t.clone());
        }
        let out = self.new_tensor(&t.meta)?;
        // SAFETY: both are tensors of this shape and dtype; the result is new.
        unsafe { copy(&mut self.pool, &t.meta.shape, t.size(), (out.ptr(), &out.strides), (t.ptr(), &t.strides))? };
        Ok(out)
    }

    fn reduce(&mut self, op: Op, t: &Tensor, mask: u8, out: &Meta) -> Result<Tensor> {
        let dtype = t.meta.dtype;
        let Some(reducer) = Reducer::of(self.level, op, dtype) else {
            return Err(ExecError::internal(format!("{} of {dtype} has no kernel", op.name())));
        };
        let result = self.new_tensor(out)?;
        let results = out.shape.numel();
        if results == 0 {
            return Ok(result);
        }
        let count: usize =
            t.meta.shape.dims().iter().enumerate().filter(|(axis, _)| mask >> axis & 1 == 1).map(|(_, d)| d).product();
        let (kept, reduced) = split_axes(&t.meta.shape, &t.strides, mask);
        let reduction = Reduction {
            reducer,
            widen: self.widen(dtype),
            narrow: if out.dtype == dtype { self.narrow(dtype) } else { None },
            from: t.ptr(),
            size: t.size(),
            kept,
            reduced,
            out: result.ptr(),
            out_size: out.dtype.size(),
            results,
            count,
        };
        // SAFETY: the axes are those of the tensor; the result is new and has one element for each kept position.
        unsafe { reduction.run(&mut self.pool)? };
        Ok(result)
    }

    fn arg_reduce(&mut self, op: Op, t: &Tensor, mask: u8, out: &Meta) -> Result<Tensor> {
        let axis = mask.trailing_zeros() as usize;
        let result = self.new_tensor(out)?;
        let results = out.shape.numel();
        if results == 0 {
            return Ok(result);
        }
        let (kept, _) = split_axes(&t.meta.shape, &t.strides, mask);
        let search = Search {
            searcher: Searcher::of(self.level, t.meta.dtype, op == Op::Argmax),
            widen: self.widen(t.meta.dtype),
            size: t.size(),
            from: t.ptr(),
            kept,
            step: t.strides[axis],
            count: t.meta.shape.dims()[axis],
            out: result.ptr().cast(),
        };
        // SAFETY: the axes are those of the tensor, and shape inference refused an empty axis; the result is new.
        let chunk = (SEARCH_CHUNK_ELEMENTS / search.count).max(1);
        run_or_not(&mut self.pool, results * search.count * 4, results.div_ceil(chunk), &|i| {
            // SAFETY: as above; chunks are disjoint.
            unsafe { search.range(i * chunk, ((i + 1) * chunk).min(results)) }
        })?;
        Ok(result)
    }

    fn movement(&mut self, op: Op, t: &Tensor, attrs: &Attrs, out: &Meta) -> Result<Tensor> {
        match t.moved(op, attrs, &out.shape)? {
            Some(layout) => Ok(t.seen(layout)),
            None => Ok(Tensor::contiguous(self.contiguous(t)?.buffer, *out)),
        }
    }

    /// A tensor of `t`'s elements that nobody else sees: `t` itself when the caller gave it up.
    fn private_copy(&mut self, t: &Tensor, given_up: bool) -> Result<Tensor> {
        if given_up && t.contiguous && t.buffer.is_unique() {
            return Ok(t.clone());
        }
        let out = self.new_tensor(&t.meta)?;
        // SAFETY: both are tensors of this shape and dtype; the result is new.
        unsafe { copy(&mut self.pool, &t.meta.shape, t.size(), (out.ptr(), &out.strides), (t.ptr(), &t.strides))? };
        Ok(out)
    }

    fn slice_scatter(&mut self, base: &Tensor, source: &Tensor, spec: &SliceSpec, last_use: u8) -> Result<Tensor> {
        let out = self.private_copy(base, last_use & 1 == 1)?;
        let hole = out.seen(out.boxed(spec));
        // SAFETY: both have the box's shape; the result is ours alone, so the source is elsewhere.
        unsafe {
            copy(
                &mut self.pool,
                &spec.sizes,
                source.size(),
                (hole.ptr(), &hole.strides),
                (source.ptr(), &source.strides),
            )?
        };
        Ok(out)
    }

    fn cat(&mut self, inputs: Inputs<'_, '_>, axis: usize, out: &Meta) -> Result<Tensor> {
        let result = self.new_tensor(out)?;
        let mut at = result.ptr();
        for input in inputs {
            let t = tensor(input)?;
            // SAFETY: the operands' sizes along the axis add up to the result's, which is new.
            unsafe { copy(&mut self.pool, &t.meta.shape, t.size(), (at, &result.strides), (t.ptr(), &t.strides))? };
            at = at.wrapping_offset(t.meta.shape.dims()[axis] as isize * result.strides[axis]);
        }
        Ok(result)
    }

    fn matmul(&mut self, a: &Tensor, b: &Tensor, out: &Meta) -> Result<Tensor> {
        if out.dtype == DType::BF16 || out.dtype == DType::F16 {
            // The conversions are a small part of the products, and sums in f32 are what PyTorch's users expect.
            let wide = |t: &Tensor| Meta::new(t.meta.shape, DType::F32);
            let (wide_a, wide_b) = (self.cast(a, &wide(a), 0)?, self.cast(b, &wide(b), 0)?);
            let product = self.matmul(&wide_a, &wide_b, &Meta::new(out.shape, DType::F32))?;
            return self.cast(&product, out, 0);
        }
        let few_rows = a.numel() / a.meta.shape.dims().last().map_or(1, |k| *k).max(1) <= FEW_ROWS_MAX
            && b.meta.bytes() <= FEW_ROWS_OPERAND_BYTES_MAX;
        let transposed = by_columns(b);
        if transposed && !few_rows && out.shape.dims()[out.shape.rank() - 2] >= TURNED_ROWS_MIN {
            // Turning it once takes less than the product's own packing does across its columns.
            let turned = self.contiguous(b)?;
            return self.matmul(a, &turned, out);
        }
        let result = self.new_tensor(out)?;
        if out.shape.numel() == 0 {
            return Ok(result);
        }
        let rank = out.shape.rank();
        let (lead, size) = (rank - 2, out.dtype.size());
        let (m, n, k) =
            (out.shape.dims()[lead], out.shape.dims()[lead + 1], a.meta.shape.dims()[a.meta.shape.rank() - 1]);
        let step = |t: &Tensor, from_right: usize| t.strides[t.meta.shape.rank() - from_right] / size as isize;
        let matrix = |t: &Tensor| Matrix { ptr: t.ptr(), row_step: step(t, 2), column_step: step(t, 1) };
        let [to, left, right] = [matrix(&result), matrix(a), matrix(b)];
        let batch = Shape::new(&out.shape.dims()[..lead]).map_err(|e| ExecError::internal(e.to_string()))?;
        let batches = batch.numel();
        let leading = |t: &Tensor| {
            let mut strides = [0; RANK_MAX];
            let own = t.meta.shape.rank() - 2;
            for axis in 0..own {
                if t.meta.shape.dims()[axis] != 1 {
                    strides[lead - own + axis] = t.strides[axis];
                }
            }
            strides
        };
        let strides = [leading(&result), leading(a), leading(b)];
        let loops = Loops::new(&batch, strides.each_ref());
        // Many matrices times one are one tall matrix, if their rows follow each other.
        let [_, left_step, right_step] = loops.inner_strides();
        let tall = batches > 1
            && loops.sizes().len() == 1
            && right_step == 0
            && left_step == left.row_step * (m * size) as isize;
        let (m, batches) = if tall { (m * batches, 1) } else { (m, batches) };
        let matrices = |i: usize| {
            let mut offsets = [0; 3];
            if batches > 1 {
                loops.for_runs(i, i + 1, |run| offsets = run.offsets);
            }
            let moved = |m: Matrix, offset: isize| Matrix { ptr: m.ptr.wrapping_offset(offset), ..m };
            [moved(to, offsets[0]), moved(left, offsets[1]), moved(right, offsets[2])]
        };
        let rows_in_registers = few_rows && transposed;
        let product = Product { dtype: out.dtype, m, n, k, batches, rows_in_registers, matrices: &matrices };
        // SAFETY: the matrices are those of the tensors, which have the shapes that inference gave; the result is new.
        unsafe { product.run(&mut self.pool)? };
        Ok(result)
    }

    fn gather(&mut self, from: &Tensor, index: &Tensor, axis: usize, out: &Meta) -> Result<Tensor> {
        let result = self.new_tensor(out)?;
        let elements = out.shape.numel();
        if elements == 0 {
            return Ok(result);
        }
        let mut others = from.strides;
        others[axis] = 0;
        let loops = Loops::new(&out.shape, [&index.strides, &others]);
        let lookup = Lookup { axis, size: from.meta.shape.dims()[axis], step: from.strides[axis] };
        let (index, from, to, size) =
            (Shared::new(index.ptr()), Shared::new(from.ptr()), Shared::new(result.ptr()), from.size());
        // The first bad index in order is the one to tell, whichever thread finds it.
        let worst: Mutex<Option<(usize, ExecError)>> = Mutex::new(None);
        in_chunks(&mut self.pool, elements, 16, |first, last| {
            // SAFETY: the index has the result's shape, and off the axis the source is as large; the result is new.
            let done = unsafe { lookup.gather(&loops, (first, last), index.get(), from.get(), to.get(), size) };
            if let Err(error) = done
                && let Ok(mut worst) = worst.lock()
                && worst.as_ref().is_none_or(|(at, _)| first < *at)
            {
                *worst = Some((first, error));
            }
        })?;
        match worst.into_inner() {
            Ok(None) => Ok(result),
            Ok(Some((_, error))) => Err(error),
            Err(_) => Err(ExecError::internal("gather panicked")),
        }
    }

    fn scatter(&mut self, op: Op, operands: [&Tensor; 3], axis: usize, last_use: u8) -> Result<Tensor> {
        let [base, index, source] = operands;
        let out = self.private_copy(base, last_use & 1 == 1)?;
        if index.numel() == 0 {
            return Ok(out);
        }
        let mut others = out.strides;
        others[axis] = 0;
        let loops = Loops::new(&index.meta.shape, [&index.strides, &source.strides, &others]);
        let lookup = Lookup { axis, size: out.meta.shape.dims()[axis], step: out.strides[axis] };
        // SAFETY: source and, off the axis, result are at least as large as the index; the result is ours alone.
        unsafe { lookup.scatter(op, &loops, out.meta.dtype, index.ptr(), source.ptr(), out.ptr())? };
        Ok(out)
    }

    fn create(&mut self, op: Op, inputs: Inputs<'_, '_>, attrs: &Attrs, out: &Meta) -> Result<Tensor> {
        let number = |i: usize| match inputs.get(i) {
            Some(Input::Scalar(scalar)) => Ok(*scalar),
            _ => Err(ExecError::internal(format!("{} of no number", op.name()))),
        };
        let (seed, stream, begin) = match attrs {
            Attrs::Random { seed, stream, first, .. } => (*seed, *stream, *first as usize),
            _ => (0, 0, 0),
        };
        let dtype = out.dtype;
        let how = match op {
            Op::Full => Fill::Same(scalar_bits(number(0)?, dtype), dtype.size()),
            Op::Arange if dtype.is_float() => Fill::Steps(number(0)?.to_f64(), number(1)?.to_f64()),
            Op::Arange => Fill::Integers(number(0)?.to_i64(), number(1)?.to_i64()),
            Op::Rand if dtype == DType::F64 => Fill::RandWide(seed, stream),
            // As many bits as the dtype holds just below 1: rounding never gives 1.
            Op::Rand if dtype == DType::F16 => Fill::Rand(seed, stream, 11),
            Op::Rand if dtype == DType::BF16 => Fill::Rand(seed, stream, 8),
            Op::Rand => Fill::Rand(seed, stream, 24),
            Op::Randn if dtype == DType::F64 => Fill::RandnWide(seed, stream),
            Op::Randn => Fill::Randn(seed, stream),
            Op::Randint => {
                let (low, high) = (number(0)?.to_i64(), number(1)?.to_i64());
                Fill::Randint(seed, stream, low, high.wrapping_sub(low) as u64)
            }
            _ => return Err(ExecError::internal(format!("{} creates nothing", op.name()))),
        };
        let made_in = how.made_in().unwrap_or(dtype);
        let cast = if made_in == compute_dtype(dtype) || made_in == dtype {
            None
        } else {
            self.kernels.cast(made_in, compute_dtype(dtype))
        };
        let route = Route { cast, narrow: self.narrow(dtype) };
        let result = self.new_tensor(out)?;
        let to = Shared::new(result.ptr());
        let elements = out.shape.numel();
        let work_ns = work_ns(elements, 4 * op.row().cost_flops as usize);
        let chunks = if self.pool.pays(work_ns) { self.pool.chunks(work_ns) } else { 1 };
        let chunk = chunk_elements(elements.max(1), chunks);
        let level = self.level;
        self.pool.run(elements.div_ceil(chunk), &|i| {
            // SAFETY: the result is new; chunks are disjoint and start at whole tiles.
            unsafe {
                fill(level, (how, begin), route, to.get(), dtype.size(), i * chunk, ((i + 1) * chunk).min(elements))
            };
        })?;
        Ok(result)
    }
}

/// Whether a tensor of this shape is a large one whose elements follow each other along another axis than the last.
fn is_turned(t: &Tensor, shape: &Shape) -> bool {
    let (dims, size) = (shape.dims(), t.size() as isize);
    let Some(last) = dims.len().checked_sub(1) else { return false };
    let others = || t.strides[..last].iter().zip(dims);
    t.meta.shape == *shape
        && t.numel() >= TURNED_ELEMENTS_MIN
        && t.strides[last] != size
        && t.strides[last] != 0
        && dims[last] > 1
        && others().any(|(stride, dim)| *stride == size && *dim >= 16)
}

/// Whether the elements of a matrix's columns follow each other, rather than those of its rows.
fn by_columns(t: &Tensor) -> bool {
    let (rank, size) = (t.meta.shape.rank(), t.size());
    let dims = t.meta.shape.dims();
    let dense = |axis: usize| t.strides[axis] == size as isize;
    size == 4 && dims[rank - 1] >= 16 && dims[rank - 2] >= 16 && dense(rank - 2) && !dense(rank - 1)
}

/// The dtype that kernels of a dtype compute in.
fn compute_dtype(dtype: DType) -> DType {
    if dtype.is_float() && dtype != DType::F64 { DType::F32 } else { dtype }
}

/// A kernel and what it needs around it.
struct Map {
    kernel: Kernel,
    /// Elements are moved as they are, of whatever dtype.
    moves: bool,
    takes_splat: bool,
    dtypes: [DType; 3],
    narrow: Option<Kernel>,
    weight: usize,
}

fn every_axis(shape: &Shape) -> u8 {
    ((1u16 << shape.rank()) - 1) as u8
}

fn tensor<'a>(input: &Input<'a, Tensor>) -> Result<&'a Tensor> {
    match input {
        Input::Tensor(t) => Ok(t),
        Input::Scalar(_) => Err(ExecError::internal("a number where a tensor belongs")),
    }
}

impl Backend for CpuBackend {
    type Tensor = Tensor;

    #[inline]
    fn execute(
        &mut self,
        op: Op,
        inputs: &[Input<'_, Tensor>],
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<Tensor> {
        self.step += 1;
        let row = op.row();
        if row.class == Class::Elementwise {
            return self.elementwise(row, inputs, out, last_use);
        }
        self.execute_other(row, inputs, attrs, out, last_use)
    }

    fn execute_fused(&mut self, stages: &[Stage<'_, Tensor>]) -> Result<Vec<Option<Tensor>>> {
        self.step += 1;
        self.fused(stages)
    }

    fn allocate(&mut self, meta: &Meta) -> Result<Tensor> {
        self.step += 1;
        self.new_tensor(meta)
    }

    fn write(&mut self, tensor: &mut Tensor, offset_bytes: usize, src: HostRange) -> Result<()> {
        self.step += 1;
        if !tensor.contiguous || !tensor.buffer.is_unique() {
            return Err(ExecError::internal("write to a tensor that is shared"));
        }
        tensor.check_range(offset_bytes, src.len())?;
        let to = tensor.ptr().wrapping_add(offset_bytes);
        // SAFETY: the range lies in the tensor, which nobody else sees; the caller of `HostRange::new` answers for it.
        unsafe {
            if tensor.meta.bytes() >= STREAM_BYTES_MIN {
                stream_bytes(&mut self.pool, to, src.as_ptr(), src.len())?;
            } else {
                copy_bytes(&mut self.pool, to, src.as_ptr(), src.len())?;
            }
        }
        if tensor.meta.dtype == DType::Bool {
            let to = Shared::new(to);
            in_chunks(&mut self.pool, src.len(), 1, |first, last| {
                for i in first..last {
                    // SAFETY: just written, and nobody else sees it.
                    unsafe {
                        let byte = to.get().add(i);
                        byte.write((byte.read() != 0) as u8);
                    }
                }
            })?;
        }
        Ok(())
    }

    fn read(&mut self, tensor: &Tensor, offset_bytes: usize, dst: HostRange) -> Result<()> {
        tensor.check_range(offset_bytes, dst.len())?;
        if tensor.contiguous {
            // SAFETY: the range lies in the tensor; the caller of `HostRange::new` answers for the other.
            return unsafe {
                copy_bytes(&mut self.pool, dst.as_ptr(), tensor.ptr().wrapping_add(offset_bytes), dst.len())
            };
        }
        let size = tensor.size();
        let loops = Loops::new(&tensor.meta.shape, [&tensor.strides]);
        let [step] = loops.inner_strides();
        let from = Shared::new(tensor.ptr());
        let skipped = offset_bytes / size;
        in_chunks(&mut self.pool, dst.len() / size, size, |first, last| {
            let tile = Tile::new();
            let mut at = first;
            while at < last {
                let n = TILE.min(last - at);
                // SAFETY: runs lie in the tensor, the tile has room for `n` elements, and `dst` for all. It may be
                // unaligned, so elements go by way of the tile.
                unsafe {
                    let tile = tile.start();
                    loops.for_runs(skipped + at, skipped + at + n, |run| {
                        let to = tile.add((run.at - skipped - at) * size);
                        strided::copy_run(
                            to,
                            size as isize,
                            from.get().wrapping_offset(run.offsets[0]),
                            step,
                            run.len,
                            size,
                        );
                    });
                    dst.as_ptr().add(at * size).copy_from_nonoverlapping(tile, n * size);
                }
                at += n;
            }
        })
    }

    fn bytes_of(&self, tensor: &Tensor) -> Option<(NonNull<u8>, usize)> {
        // Of no elements there are no bytes, wherever they would be.
        let start = if tensor.numel() == 0 { Some(NonNull::dangling()) } else { NonNull::new(tensor.ptr()) };
        start.filter(|_| tensor.contiguous || tensor.numel() == 0).map(|start| (start, tensor.meta.bytes()))
    }

    fn meta(&self, tensor: &Tensor) -> Meta {
        tensor.meta
    }

    #[inline]
    fn charge(&mut self, account: &Arc<MemoryUsage>) {
        self.allocator.charge(account);
    }

    fn held(&self, account: &MemoryUsage) -> usize {
        self.allocator.held(account)
    }

    fn memory(&self) -> MemoryStats {
        self.allocator.stats()
    }

    fn trim(&mut self) {
        self.allocator.trim();
    }
}

impl CpuBackend {
    fn execute_other(
        &mut self,
        row: &Row,
        inputs: Inputs<'_, '_>,
        attrs: &Attrs,
        out: &Meta,
        last_use: u8,
    ) -> Result<Tensor> {
        let op = row.op;
        let operand = |i: usize| inputs.get(i).map_or(Err(ExecError::internal("an operand is missing")), tensor);
        match (row.class, attrs) {
            (Class::Elementwise, _) => self.elementwise(row, inputs, out, last_use),
            (Class::Select, _) => self.select(inputs, out, last_use),
            (Class::Cast, _) => self.cast(operand(0)?, out, last_use),
            (Class::Reduction, Attrs::Axes { mask, .. }) => self.reduce(op, operand(0)?, *mask, out),
            (Class::ArgReduction, Attrs::Axes { mask, .. }) => self.arg_reduce(op, operand(0)?, *mask, out),
            (Class::Movement, _) => self.movement(op, operand(0)?, attrs, out),
            (Class::SliceScatter, Attrs::Slice(spec)) => self.slice_scatter(operand(0)?, operand(1)?, spec, last_use),
            (Class::Concatenation, Attrs::Axis(axis)) => self.cat(inputs, *axis as usize, out),
            (Class::Contraction, _) => self.matmul(operand(0)?, operand(1)?, out),
            (Class::Gather, Attrs::Axis(axis)) => self.gather(operand(0)?, operand(1)?, *axis as usize, out),
            (Class::Scatter, Attrs::Axis(axis)) => {
                self.scatter(op, [operand(0)?, operand(1)?, operand(2)?], *axis as usize, last_use)
            }
            (Class::Scan, Attrs::Axis(axis)) => self.scan(op, operand(0)?, *axis as usize, out),
            (Class::Sort, Attrs::Axis(axis)) => self.sort(op, operand(0)?, *axis as usize, out),
            (Class::Search, _) => self.search(op, operand(0)?, operand(1)?, out),
            (Class::Positions, _) => self.positions(operand(0)?, out),
            (Class::Convolution, Attrs::Window(spec)) => {
                let bias = inputs.get(2).map(tensor).transpose()?;
                self.convolution(op, operand(0)?, operand(1)?, bias, spec, out)
            }
            (Class::Pooling, Attrs::Window(spec)) => {
                let other = if row.operands > 1 { Some(operand(1)?) } else { None };
                self.pooling(op, operand(0)?, other, spec, out)
            }
            (Class::Creation | Class::Random, _) => self.create(op, inputs, attrs, out),
            (Class::Rows, _) => self.rows(row, inputs, attrs, out),
            _ => Err(ExecError::internal(format!("{} carries other attributes", row.name))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::infer::{InputMeta, infer};
    use gt_ops::philox;
    use gt_ops::table::ROWS;
    use std::ptr::NonNull;

    /// A tensor of any bits at all.
    fn noise(backend: &mut CpuBackend, dtype: DType, elements: usize, seed: u64) -> Tensor {
        let meta = Meta::new(Shape::new(&[elements]).unwrap(), dtype);
        let mut bytes: Vec<u8> =
            (0..).flat_map(|i| philox::block(seed, 0, i)).flat_map(u32::to_le_bytes).take(meta.bytes()).collect();
        let mut tensor = backend.allocate(&meta).unwrap();
        // SAFETY: the bytes live until the write is done, and nobody else refers to them meanwhile.
        let range = unsafe { HostRange::new(NonNull::from(bytes.as_mut_slice()).cast(), bytes.len()) };
        backend.write(&mut tensor, 0, range).unwrap();
        tensor
    }

    /// The bits of a tensor's elements, those of all NaNs being the same.
    fn bits(backend: &mut CpuBackend, tensor: &Tensor) -> Vec<u8> {
        let mut bytes = vec![0u8; tensor.meta.bytes()];
        // SAFETY: as above.
        let range = unsafe { HostRange::new(NonNull::from(bytes.as_mut_slice()).cast(), bytes.len()) };
        backend.read(tensor, 0, range).unwrap();
        let (size, (infinity, all)) = match tensor.meta.dtype {
            DType::F16 => (2, (0x7c00, 0x7fff)),
            DType::BF16 => (2, (0x7f80, 0x7fff)),
            DType::F32 => (4, (0x7f80_0000, 0x7fff_ffff)),
            DType::F64 => (8, (0x7ff0_0000_0000_0000, 0x7fff_ffff_ffff_ffffu64)),
            _ => return bytes,
        };
        for element in bytes.chunks_exact_mut(size) {
            let magnitude = element.iter().rev().fold(0u64, |bits, byte| bits << 8 | *byte as u64) & all;
            if magnitude > infinity {
                element.fill(0xff);
            }
        }
        bytes
    }

    #[test]
    fn all_levels_compute_the_same_bits() {
        let options = CpuOptions { threads: 1, memory_bytes_limit: 64 << 20, ..CpuOptions::default() };
        let mut backends: Vec<CpuBackend> =
            Level::available().into_iter().map(|level| CpuBackend::at_level(options.clone(), level)).collect();
        let elements = if cfg!(miri) { 20 } else { 1111 };
        for row in ROWS {
            for dtype in row.accepts.iter() {
                let attrs = match row.class {
                    Class::Elementwise => Attrs::None,
                    Class::Reduction | Class::ArgReduction => Attrs::Axes { mask: 1, keepdim: false },
                    Class::Random => {
                        Attrs::Random { shape: Shape::new(&[elements]).unwrap(), dtype, seed: 3, stream: 4, first: 0 }
                    }
                    _ => continue,
                };
                let results: Vec<Vec<u8>> = backends
                    .iter_mut()
                    .map(|backend| {
                        let operands = if row.class == Class::Random { 0 } else { row.operands as u64 };
                        let mut tensors: Vec<Tensor> =
                            (0..operands).map(|i| noise(backend, dtype, elements, i)).collect();
                        if row.divisor_nonzero && !dtype.is_float() {
                            // Of all bits but 0.
                            tensors[1] = run(backend, Op::BitwiseOr, &tensors[1..], Some(1), &Attrs::None);
                        }
                        let limit = (row.op == Op::Randint).then_some(7);
                        let result = run(backend, row.op, &tensors, limit, &attrs);
                        bits(backend, &result)
                    })
                    .collect();
                assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{} of {dtype}", row.name);
            }
        }
    }

    /// Normal numbers in rows.
    fn normal(backend: &mut CpuBackend, dtype: DType, dims: &[usize], seed: u64) -> Tensor {
        let shape = Shape::new(dims).unwrap();
        run(backend, Op::Randn, &[], None, &Attrs::Random { shape, dtype, seed, stream: 1, first: 0 })
    }

    #[test]
    fn all_levels_compute_the_same_bits_of_rows() {
        let options = CpuOptions { threads: 1, memory_bytes_limit: 64 << 20, ..CpuOptions::default() };
        let mut backends: Vec<CpuBackend> =
            Level::available().into_iter().map(|level| CpuBackend::at_level(options.clone(), level)).collect();
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            for columns in if cfg!(miri) { vec![3, 70] } else { vec![3, 64, 100, 1111, 9000] } {
                let results: Vec<Vec<Vec<u8>>> = backends
                    .iter_mut()
                    .map(|backend| {
                        let [x, g] = [1, 2].map(|seed| normal(backend, dtype, &[7, columns], seed));
                        let [w, c] = [3, 4].map(|seed| normal(backend, dtype, &[columns], seed));
                        let results = [
                            run(backend, Op::Softmax, std::slice::from_ref(&x), None, &Attrs::None),
                            run(backend, Op::LogSoftmax, std::slice::from_ref(&x), None, &Attrs::None),
                            run(backend, Op::SoftmaxBackward, &[g.clone(), x.clone()], None, &Attrs::None),
                            run(backend, Op::LogSoftmaxBackward, &[g.clone(), x.clone()], None, &Attrs::None),
                            run(backend, Op::LayerNorm, &[x.clone(), w.clone(), c], Some(1), &Attrs::None),
                            run(
                                backend,
                                Op::LayerNormBackward,
                                &[g.clone(), x.clone(), w.clone()],
                                Some(1),
                                &Attrs::None,
                            ),
                            run(backend, Op::LayerNormWeightBackward, &[g.clone(), x.clone()], Some(1), &Attrs::None),
                            run(backend, Op::RmsNorm, &[x.clone(), w.clone()], Some(1), &Attrs::None),
                            run(backend, Op::RmsNormBackward, &[g.clone(), x.clone(), w], Some(1), &Attrs::None),
                            run(backend, Op::RmsNormWeightBackward, &[g, x], Some(1), &Attrs::None),
                        ];
                        results.iter().map(|result| bits(backend, result)).collect()
                    })
                    .collect();
                assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{columns} columns of {dtype}");
            }
        }
    }

    #[test]
    fn moments_are_kept_for_the_gradient_that_comes_next_and_no_other() {
        let mut backend = CpuBackend::new(CpuOptions { threads: 1, ..CpuOptions::default() });
        let b = &mut backend;
        let dims = [40, 100];
        let [g, other] = [1, 2].map(|seed| normal(b, DType::F32, &dims, seed));
        let w = normal(b, DType::F32, &dims[1..], 3);
        let alone = run(b, Op::LayerNormWeightBackward, &[g.clone(), other.clone()], Some(1), &Attrs::None);
        let alone = bits(b, &alone);
        run(b, Op::LayerNormBackward, &[g.clone(), other.clone(), w.clone()], Some(1), &Attrs::None);
        let after = run(b, Op::LayerNormWeightBackward, &[g.clone(), other.clone()], Some(1), &Attrs::None);
        assert_eq!(bits(b, &after), alone);
        // Another tensor in the memory of the one whose moments were kept.
        let mut other_bytes = bits(b, &other);
        let x = normal(b, DType::F32, &dims, 4);
        let place = x.ptr();
        run(b, Op::LayerNormBackward, &[g.clone(), x, w], Some(1), &Attrs::None);
        let mut again = b.allocate(&other.meta).unwrap();
        // SAFETY: the bytes live until the write is done, and nobody else refers to them meanwhile.
        let range = unsafe { HostRange::new(NonNull::from(other_bytes.as_mut_slice()).cast(), other_bytes.len()) };
        b.write(&mut again, 0, range).unwrap();
        let after = run(b, Op::LayerNormWeightBackward, &[g, again.clone()], Some(1), &Attrs::None);
        assert_eq!(bits(b, &after), alone);
        assert_eq!(again.ptr(), place, "the test was to reuse the memory");
    }

    /// Runs an op on tensors and a number, or on a range of numbers.
    fn run(backend: &mut CpuBackend, op: Op, tensors: &[Tensor], number: Option<i64>, attrs: &Attrs) -> Tensor {
        let mut inputs: Vec<Input<'_, Tensor>> = tensors.iter().map(Input::Tensor).collect();
        if let Some(number) = number {
            if tensors.is_empty() {
                inputs.push(Input::Scalar(gt_ops::Scalar::Int(-number)));
            }
            inputs.push(Input::Scalar(gt_ops::Scalar::Int(number)));
        }
        let metas: Vec<InputMeta> = inputs
            .iter()
            .map(|input| match input {
                Input::Tensor(t) => InputMeta::Tensor(t.meta),
                Input::Scalar(s) => InputMeta::Scalar(*s),
            })
            .collect();
        let out = infer(op, &metas, attrs).unwrap();
        backend.execute(op, &inputs, attrs, &out, 0).unwrap()
    }

    #[test]
    fn a_backend_moves_to_the_thread_that_works_with_it() {
        fn moves<T: Send>() {}
        moves::<CpuBackend>();
        moves::<Tensor>();
    }
}
