//! Elementwise ops on operands of any strides: contiguous runs go straight to a kernel, others are gathered into tiles
//! in L1 first.

use crate::backend::{CpuBackend, Inputs, Result, compute_dtype, tensor};
use crate::kernels::Kernel;
use crate::memory::ALIGN_BYTES;
use crate::strided::{copy_run, copy_to_dense, stream, stream_end};
use crate::tensor::CpuTensor;
use crate::thread_pool::ThreadPool;
use crate::tile::{TILE, Tile};
use gt_backend::{ExecError, Input, Loops, Power, computed_bits, scalar_bits, simple_power};
use gt_ops::{Attrs, DType, Meta, Op, RANK_MAX, Row, Scalar, Shape};

/// Chunks start at multiples of this many elements, so that no two threads write to one cache line.
pub const CHUNK_ELEMENTS: usize = TILE;
/// Broadcast rows shorter than this are repeated in a tile first: a kernel call costs as much as a few dozen elements.
const ROW_MIN: usize = 64;
/// Runs shorter than this are gathered into a tile first, for the same reason.
const RUN_MIN: usize = 48;
/// Elements computed between non-temporal stores: few, so that the loads of the next ones overlap with the stores.
const STREAM_TILE: usize = 128;
/// Non-temporal stores are used up to this many operations per element. Heavier work is not bound by memory, and is
/// slower in steps of [`STREAM_TILE`] elements.
const STREAM_WEIGHT_MAX: usize = 2;
/// Results of at least this many bytes bypass the caches, which they would only evict.
pub const STREAM_BYTES_MIN: usize = 32 << 20;
/// A result takes over an operand's memory only if that is at most this many times what the result needs.
pub const IN_PLACE_WASTE_MAX: usize = 2;
/// A result of at most this many bytes does not take over the memory of an operand beside a broadcast one: both stay in
/// L2.
const CACHED_BYTES_MAX: usize = 1 << 20;
/// Transposed operands with fewer elements are read in place rather than copied.
const TRANSPOSED_ELEMENTS_MIN: usize = 4 << 10;
/// The estimated time of an element, in picoseconds: a fixed part for loads and stores, and a part for each operation.
/// Operands outside L1 dominate: 65 thousand products of numbers in L3 take 15 µs, of which the multiplications take 2.
const ELEMENT_PS: usize = 150;
const OPERATION_PS: usize = 20;

/// One operand: its memory, and how it is read.
#[derive(Clone, Copy, Debug)]
pub struct ElementwiseOperand {
    /// The first element.
    pub ptr: *const u8,
    /// Bytes per element.
    pub size: usize,
    /// The conversion to the kernel's compute type.
    pub widen: Option<Kernel>,
    /// How the operand is broadcast to the result's shape.
    pub pattern: AccessPattern,
}

/// How an operand is broadcast to the result's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessPattern {
    /// A single element, read for every element of the result.
    Splat,
    /// The result's shape in row-major order without gaps.
    Linear,
    /// Any other strides, which the task's loops hold.
    Strided,
}

/// One elementwise op, ready to run.
pub struct ElementwiseTask {
    /// The inner loop.
    pub kernel: Kernel,
    /// Whether the kernel accepts splat operands.
    pub takes_splat: bool,
    /// The operands; unused ones repeat the first.
    pub sources: [ElementwiseOperand; 3],
    /// The number of operands in use.
    pub operands: usize,
    /// The result's memory, in row-major order.
    pub out: *mut u8,
    /// Bytes per element of the result.
    pub out_size: usize,
    /// The conversion from the kernel's compute type to the result's dtype.
    pub narrow: Option<Kernel>,
    /// Whether the result takes over an operand's memory.
    pub in_place: bool,
    /// The operands' strides; used when one is [`AccessPattern::Strided`].
    pub loops: Option<Loops<3>>,
    /// The number of elements of the result.
    pub elements: usize,
    /// The cost of an element, in operations.
    pub weight: usize,
}

// SAFETY: a task is shared only during one call of `ThreadPool::run`, in which threads write disjoint ranges of `out`.
unsafe impl Sync for ElementwiseTask {}

impl ElementwiseTask {
    /// Computes all elements.
    ///
    /// # Errors
    /// A panic in a kernel.
    ///
    /// # Safety
    /// The sources are readable and `out` is writable for all elements. `out` overlaps no source, except that with
    /// `in_place` it may be the memory of linear sources of the same element size.
    #[inline]
    pub unsafe fn run(&self, pool: &mut ThreadPool) -> Result<()> {
        let work_ns = work_ns(self.elements, self.weight);
        if !pool.pays(work_ns) {
            // SAFETY: the contract of this function covers elements `0..self.elements`.
            unsafe { self.range(0, self.elements) };
            return Ok(());
        }
        let chunk = chunk_elements(self.elements, pool.chunks(work_ns));
        pool.run(self.elements.div_ceil(chunk), &|i| {
            // SAFETY: the contract of this function covers all elements, and each chunk writes its own range of the
            // result.
            unsafe { self.range(i * chunk, ((i + 1) * chunk).min(self.elements)) }
        })
    }

    /// Whether the result is written by non-temporal stores.
    #[inline]
    fn streams(&self) -> bool {
        self.elements * self.out_size >= STREAM_BYTES_MIN && self.weight <= STREAM_WEIGHT_MAX && !self.in_place
    }

    /// # Safety
    /// Same as for [`ElementwiseTask::run`].
    #[inline]
    unsafe fn range(&self, from: usize, to: usize) {
        let sources = &self.sources[..self.operands];
        if sources.iter().all(|s| s.pattern != AccessPattern::Strided) {
            let mut splat = 0;
            let mut operands = self.sources.map(|s| s.ptr);
            for (i, source) in sources.iter().enumerate() {
                match source.pattern {
                    AccessPattern::Splat => splat |= 1 << i,
                    // SAFETY: a linear source has all the result's elements, `from` among them.
                    _ => operands[i] = unsafe { source.ptr.add(from * source.size) },
                }
            }
            // SAFETY: `from..to` lies within the elements that `run`'s contract covers, and linear operands were
            // advanced to `from`.
            unsafe { self.contiguous_run(operands, splat, self.out.add(from * self.out_size), to - from) };
            return;
        }
        // SAFETY: `from..to` lies within the elements that `run`'s contract covers.
        unsafe { self.strided_range(from, to) }
    }

    /// # Safety
    /// Same as for [`ElementwiseTask::run`].
    #[inline(never)]
    unsafe fn strided_range(&self, from: usize, to: usize) {
        let Some(loops) = &self.loops else { return };
        let steps = loops.inner_strides();
        let mut splat = 0;
        let mut by_rows = true;
        for (i, source) in self.sources[..self.operands].iter().enumerate() {
            if steps[i] == 0 {
                splat |= 1 << i;
            } else {
                by_rows &= steps[i] == source.size as isize;
            }
        }
        let repeats = |i: usize| {
            let source = &self.sources[i];
            source.pattern == AccessPattern::Strided
                && steps[i] != 0
                && loops.strides().len() == 2
                && loops.strides()[0][i] == 0
        };
        let short = loops.inner() < RUN_MIN || loops.inner() < ROW_MIN && (0..self.operands).any(repeats);
        if by_rows && !short {
            loops.for_runs(from, to, |run| {
                let operand = |i: usize| self.sources[i].ptr.wrapping_offset(run.offsets[i]);
                let operands = [operand(0), operand(1), operand(2)];
                // SAFETY: `loops` yields only runs within the sources and the result, which `run`'s contract covers.
                unsafe { self.contiguous_run(operands, splat, self.out.add(run.at * self.out_size), run.len) };
            });
            return;
        }
        let tiles = [Tile::new(), Tile::new(), Tile::new()];
        let mut operands = self.sources.map(|s| s.ptr);
        let mut splat = 0;
        for (i, source) in self.sources[..self.operands].iter().enumerate() {
            match source.pattern {
                AccessPattern::Splat => splat |= 1 << i,
                AccessPattern::Linear => (),
                AccessPattern::Strided => operands[i] = tiles[i].start(),
            }
        }
        // The tile of a broadcast row is filled once, with as many copies as fit.
        let inner = loops.inner();
        let rows_a_tile = TILE / inner;
        let repeats = |i: usize| rows_a_tile > 1 && repeats(i);
        let mut whole_rows = false;
        for (i, source) in self.sources[..self.operands].iter().enumerate() {
            if repeats(i) {
                whole_rows = true;
                for row in 0..rows_a_tile {
                    // SAFETY: the source has a row of `inner` elements, and `rows_a_tile * inner <= TILE`.
                    unsafe {
                        let to = tiles[i].start().add(row * inner * source.size);
                        copy_run(to, source.size as isize, source.ptr, steps[i], inner, source.size);
                    }
                }
            }
        }
        let mut at = from;
        while at < to {
            // A tile of repeated rows ends at a row's end; the first may start within a row.
            let phase = if whole_rows { at % inner } else { 0 };
            let room = if whole_rows { rows_a_tile * inner - phase } else { TILE };
            let n = room.min(to - at);
            let gathers = |i: usize| self.sources[i].pattern == AccessPattern::Strided && !repeats(i);
            for (i, source) in self.sources[..self.operands].iter().enumerate().filter(|(i, _)| gathers(*i)) {
                // SAFETY: the source has these `n` elements, and the tile has room for `TILE >= n` of them.
                unsafe { copy_to_dense(tiles[i].start(), loops, i, source.ptr, (at, at + n), source.size) };
            }
            for (i, source) in self.sources[..self.operands].iter().enumerate() {
                match source.pattern {
                    // SAFETY: a linear source has all the result's elements, `at` among them.
                    AccessPattern::Linear => operands[i] = unsafe { source.ptr.add(at * source.size) },
                    AccessPattern::Strided if repeats(i) => {
                        operands[i] = tiles[i].start().wrapping_add(phase * source.size);
                    }
                    _ => (),
                }
            }
            // SAFETY: each operand is in its tile, or in a source that holds these `n` elements by `run`'s contract.
            unsafe { self.contiguous_run(operands, splat, self.out.add(at * self.out_size), n) };
            at += n;
        }
    }

    /// Computes `n` elements of contiguous operands; those whose bit is set in `splat` are a single element.
    ///
    /// # Safety
    /// Same as for [`ElementwiseTask::run`], for these `n` elements.
    #[inline]
    unsafe fn contiguous_run(&self, operands: [*const u8; 3], splat: u8, out: *mut u8, n: usize) {
        let plain = self.narrow.is_none() && !self.in_place && !self.streams() && (splat == 0 || self.takes_splat);
        if plain && self.sources[..self.operands].iter().all(|s| s.widen.is_none()) {
            // SAFETY: by this function's contract the operands hold `n` elements, or one where `splat` says so, and
            // `out` has room for `n` and overlaps none of them, since `in_place` is false.
            unsafe { (self.kernel)(out, operands, splat, n) };
            return;
        }
        // SAFETY: this function's own contract is that of `staged`.
        unsafe { self.staged(operands, splat, out, n) }
    }

    /// # Safety
    /// Same as for [`ElementwiseTask::contiguous_run`].
    #[inline(never)]
    unsafe fn staged(&self, operands: [*const u8; 3], splat: u8, out: *mut u8, n: usize) {
        let tiles = [Tile::new(), Tile::new(), Tile::new()];
        let result = Tile::new();
        let mut staged = operands;
        let mut kept_splat = 0;
        // SAFETY: at most `TILE` elements are staged at a time, for which a tile has room at any dtype; operands and
        // `out` are valid for `n` elements by this function's contract.
        unsafe {
            for (i, source) in self.sources[..self.operands].iter().enumerate() {
                if splat >> i & 1 == 0 {
                    continue;
                }
                let tile = tiles[i].start();
                let mut size = source.size;
                if let Some(widen) = source.widen {
                    widen(tile, [operands[i]; 3], 0, 1);
                    size = size_of::<f32>();
                } else {
                    tile.copy_from_nonoverlapping(operands[i], size);
                }
                staged[i] = tile;
                if self.takes_splat {
                    kept_splat |= 1 << i;
                } else if n > 1 {
                    copy_run(tile.add(size), size as isize, tile, 0, n.min(TILE) - 1, size);
                }
            }
            let mut at = 0;
            while at < n {
                let len = (if self.streams() { STREAM_TILE } else { TILE }).min(n - at);
                for (i, source) in self.sources[..self.operands].iter().enumerate() {
                    if splat >> i & 1 == 1 {
                        continue;
                    }
                    staged[i] = operands[i].add(at * source.size);
                    if let Some(widen) = source.widen {
                        let tile = tiles[i].start();
                        widen(tile, [staged[i]; 3], 0, len);
                        staged[i] = tile;
                    }
                }
                let out = out.add(at * self.out_size);
                let made = result.start();
                if let Some(narrow) = self.narrow {
                    (self.kernel)(made, staged, kept_splat, len);
                    narrow(out, [made.cast_const(); 3], 0, len);
                } else if self.in_place {
                    (self.kernel)(made, staged, kept_splat, len);
                    out.copy_from_nonoverlapping(made, len * self.out_size);
                } else if self.streams() {
                    (self.kernel)(made, staged, kept_splat, len);
                    stream(out, made, len * self.out_size);
                } else {
                    (self.kernel)(out, staged, kept_splat, len);
                }
                at += len;
            }
            if self.streams() {
                stream_end();
            }
        }
    }
}

/// The estimated time of elementwise work on one thread, in nanoseconds, with `weight` operations per element.
#[inline]
pub fn work_ns(elements: usize, weight: usize) -> usize {
    elements.saturating_mul(ELEMENT_PS + weight * OPERATION_PS) / 1000
}

/// The number of elements in each of `chunks` chunks, rounded up to [`CHUNK_ELEMENTS`].
pub fn chunk_elements(elements: usize, chunks: usize) -> usize {
    elements.div_ceil(chunks).next_multiple_of(CHUNK_ELEMENTS)
}

/// A kernel with the conversions that surround it.
pub(crate) struct ElementwiseKernel {
    pub(crate) kernel: Kernel,
    /// Whether the kernel only moves elements, so that half precisions need no widening.
    pub(crate) moves: bool,
    pub(crate) takes_splat: bool,
    /// The row whose rule gives the bits of scalar operands.
    pub(crate) row: &'static Row,
    pub(crate) dtypes: [DType; 3],
    pub(crate) narrow: Option<Kernel>,
    pub(crate) weight: usize,
}

impl ElementwiseKernel {
    /// The bits of a scalar as operand `i`, and the dtype that they are of: the type that the kernel reads.
    pub(crate) fn number(&self, scalar: Scalar, i: usize) -> (u64, DType) {
        match (self.moves, self.dtypes[i]) {
            (true, dtype) => (scalar_bits(scalar, dtype), dtype),
            (false, dtype) => (computed_bits(scalar, dtype, self.row), compute_dtype(dtype)),
        }
    }
}

impl CpuBackend {
    pub(crate) fn elementwise(
        &mut self,
        row: &'static Row,
        inputs: Inputs<'_, '_>,
        out: &Meta,
        last_use: u8,
    ) -> Result<CpuTensor> {
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
    pub(crate) fn elementwise_map(&self, row: &'static Row, dtype: DType, out: DType) -> Result<ElementwiseKernel> {
        let Some(kernel) = self.kernels.elementwise(row.op, dtype) else {
            return Err(ExecError::internal(format!("{} of {dtype} has no kernel", row.name)));
        };
        Ok(ElementwiseKernel {
            kernel,
            moves: false,
            takes_splat: row.operands >= 2,
            row,
            dtypes: [dtype; 3],
            narrow: if out == dtype { self.narrow(dtype) } else { None },
            weight: row.cost_flops as usize,
        })
    }

    /// Runs a kernel over broadcast operands.
    #[inline]
    pub(crate) fn map(
        &mut self,
        map: ElementwiseKernel,
        inputs: Inputs<'_, '_>,
        out: &Meta,
        last_use: u8,
    ) -> Result<CpuTensor> {
        let elements = out.shape.numel();
        let out_size = out.dtype.size();
        let mut slots = [0u64; 3];
        let mut in_place = None;
        let nowhere = ElementwiseOperand { ptr: std::ptr::null(), size: 0, widen: None, pattern: AccessPattern::Splat };
        let mut sources = [nowhere; 3];
        let mut any_strided = false;
        for (i, input) in inputs.iter().enumerate() {
            let (ptr, dtype, pattern) = match input {
                Input::Scalar(scalar) => {
                    let (bits, dtype) = map.number(*scalar, i);
                    slots[i] = bits;
                    (std::ptr::from_ref(&slots[i]).cast::<u8>(), dtype, AccessPattern::Splat)
                }
                Input::Tensor(t) => {
                    let pattern = if t.contiguous && t.meta.shape == out.shape {
                        if last_use >> i & 1 == 1 && t.size() == out_size && t.buffer.is_unique() {
                            in_place = Some(*t);
                        }
                        AccessPattern::Linear
                    } else if t.numel() == 1 {
                        AccessPattern::Splat
                    } else {
                        any_strided = true;
                        AccessPattern::Strided
                    };
                    (t.ptr().cast_const(), map.dtypes[i], pattern)
                }
            };
            sources[i] = ElementwiseOperand {
                ptr,
                size: dtype.size(),
                widen: if map.moves { None } else { self.widen(dtype) },
                pattern,
            };
        }
        if any_strided && inputs.iter().any(|input| matches!(input, Input::Tensor(t) if is_transposed(t, &out.shape))) {
            return self.map_transposed(map, inputs, out, last_use);
        }
        // Runs of broadcast operands that take over memory are computed in a tile and copied, each by itself.
        let small = any_strided && out.bytes() <= CACHED_BYTES_MAX;
        let fits = |t: &&CpuTensor| t.buffer.capacity_bytes() <= IN_PLACE_WASTE_MAX * out.bytes().max(ALIGN_BYTES);
        let reused = in_place.filter(|t| !small && fits(t));
        let result = match reused {
            Some(t) => {
                self.pool.watch.keep_going();
                t.reused(*out)
            }
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
        let task = ElementwiseTask {
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
        // SAFETY: the sources are tensors that broadcast to the result's shape, or `slots`, which outlive the call. The
        // result is newly allocated, or the unique handle of a linear source with elements of the same size.
        unsafe { task.run(&mut self.pool)? };
        Ok(result)
    }

    /// [`CpuBackend::map`] with transposed operands copied to row-major order first: strided reads would cost more.
    #[cold]
    pub(crate) fn map_transposed(
        &mut self,
        map: ElementwiseKernel,
        inputs: Inputs<'_, '_>,
        out: &Meta,
        last_use: u8,
    ) -> Result<CpuTensor> {
        let mut turned: [Option<CpuTensor>; 3] = [const { None }; 3];
        for (slot, input) in turned.iter_mut().zip(inputs) {
            if let Input::Tensor(t) = input
                && is_transposed(t, &out.shape)
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

    /// A product or a quotient of complex numbers, the pairs along the last axis.
    pub(crate) fn complex(
        &mut self,
        row: &'static Row,
        inputs: Inputs<'_, '_>,
        out: &Meta,
        last_use: u8,
    ) -> Result<CpuTensor> {
        let (a, b) = (tensor(&inputs[0])?, tensor(&inputs[1])?);
        let map = |kernel, dtype, takes_splat| ElementwiseKernel {
            kernel,
            moves: false,
            takes_splat,
            row,
            dtypes: [dtype; 3],
            narrow: None,
            weight: row.cost_flops as usize,
        };
        if out.dtype == DType::F32
            && !(a.contiguous && b.contiguous)
            && let (Some(a), Some(b)) = (as_pairs(a), as_pairs(b))
        {
            // Broadcast numbers are read as elements of 8 bytes, in runs twice as long as those of parts would be.
            let pairs = self.map(
                map(self.kernels.complex_pairs(row.op), DType::F64, true),
                &[Input::Tensor(&a), Input::Tensor(&b)],
                &Meta::new(a.meta.shape, DType::F64),
                0,
            )?;
            return Ok(CpuTensor::contiguous(pairs.buffer, *out));
        }
        let Some(kernel) = self.kernels.complex(row.op, out.dtype) else {
            return Err(ExecError::internal(format!("{} of {} has no kernel", row.name, out.dtype)));
        };
        // Runs, tiles and chunks have whole pairs: the axis of a pair is the innermost, and all have even sizes.
        self.map(map(kernel, out.dtype, false), inputs, out, last_use)
    }

    pub(crate) fn check_divisor(&mut self, divisor: &Input<'_, CpuTensor>, dtype: DType) -> Result<()> {
        let nonzero = match divisor {
            Input::Scalar(scalar) => scalar_bits(*scalar, dtype) != 0,
            Input::Tensor(t) => {
                let meta = Meta::new(Shape::SCALAR, DType::Bool);
                let all = self.reduce(Op::All, t, every_axis(&t.meta.shape), &meta)?;
                // SAFETY: the reduction wrote its result, one bool, there.
                unsafe { all.ptr().read() != 0 }
            }
        };
        if nonzero { Ok(()) } else { Err(ExecError::ZeroDivision) }
    }

    pub(crate) fn select(&mut self, inputs: Inputs<'_, '_>, out: &Meta, last_use: u8) -> Result<CpuTensor> {
        self.map(self.select_map(out.dtype), inputs, out, last_use)
    }

    pub(crate) fn select_map(&self, dtype: DType) -> ElementwiseKernel {
        ElementwiseKernel {
            kernel: self.kernels.select(dtype.size()),
            moves: true,
            takes_splat: true,
            row: Op::Where.row(),
            dtypes: [DType::Bool, dtype, dtype],
            narrow: None,
            weight: 1,
        }
    }

    pub(crate) fn cast(&mut self, t: &CpuTensor, out: &Meta, last_use: u8) -> Result<CpuTensor> {
        if t.meta.dtype == out.dtype {
            return Ok(t.clone());
        }
        let map = self.cast_map(t.meta.dtype, out.dtype)?;
        self.map(map, &[Input::Tensor(t)], out, last_use)
    }

    pub(crate) fn cast_map(&self, from: DType, to: DType) -> Result<ElementwiseKernel> {
        let Some(kernel) = self.kernels.cast(compute_dtype(from), compute_dtype(to)) else {
            return Err(ExecError::internal(format!("no cast from {from} to {to}")));
        };
        Ok(ElementwiseKernel {
            kernel,
            moves: false,
            takes_splat: false,
            row: Op::Cast.row(),
            dtypes: [from; 3],
            narrow: self.narrow(to),
            weight: 1,
        })
    }
}

/// A tensor of pairs of `f32` along the last axis with one element of 8 bytes there; none if the parts are not
/// neighbours, or not aligned as such elements are.
fn as_pairs(t: &CpuTensor) -> Option<CpuTensor> {
    let dims = t.meta.shape.with_dim(t.meta.shape.rank() - 1, 1);
    let layout = t.moved(Op::Bitcast, &Attrs::DType(DType::F64), &dims).ok()??;
    Some(t.with_layout(layout))
}

/// Whether `t` is large, has this shape, and is contiguous along an axis other than the last, or takes one of each pair
/// of neighbours there, as a part of complex numbers does.
pub(crate) fn is_transposed(t: &CpuTensor, shape: &Shape) -> bool {
    let (dims, size) = (shape.dims(), t.size() as isize);
    let Some(last) = dims.len().checked_sub(1) else { return false };
    let others = || t.strides[..last].iter().zip(dims);
    t.meta.shape == *shape
        && t.numel() >= TRANSPOSED_ELEMENTS_MIN
        && t.strides[last] != size
        && t.strides[last] != 0
        && dims[last] > 1
        && others()
            .any(|(stride, dim)| *dim >= 16 && (*stride == size || *stride == 2 * size && t.strides[last] != 2 * size))
}

pub(crate) fn every_axis(shape: &Shape) -> u8 {
    ((1u16 << shape.rank()) - 1) as u8
}
