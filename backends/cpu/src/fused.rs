//! Elementwise fusion: several instructions run in one pass, a tile at a time, while the tile is in L1. Intermediate
//! results that only other instructions of the group read never reach memory.
//!
//! This is vectorised execution (MonetDB/X100, Boncz et al. 2005) rather than code generation: the inner loops are
//! those of single instructions, and no element depends on its neighbours, so the results are the same bits.

use crate::backend::{CpuBackend, Result};
use crate::elementwise::{
    CHUNK_ELEMENTS, ElementwiseKernel, IN_PLACE_WASTE_MAX, STREAM_BYTES_MIN, chunk_elements, is_transposed, work_ns,
};
use crate::kernels::Kernel;
use crate::memory::ALIGN_BYTES;
use crate::strided::{copy_run, copy_to_dense, stream, stream_end};
use crate::tensor::CpuTensor;
use crate::tile::{TILE, Tile};
use gt_backend::{ExecError, Input, Loops, Power, Stage, StageInput, simple_power};
use gt_ops::{Class, DType, Op, Scalar, Shape};

/// The size of a tile in bytes: [`TILE`] elements of the widest dtype, or more of a narrower one.
const TILE_BYTES: usize = TILE * size_of::<u64>();
/// The most operands of an instruction.
const OPERANDS_MAX: usize = 3;
/// The extra tiles of a group with half precisions: for widened operands, and for a result before it is narrowed.
const SCRATCH_TILES: usize = OPERANDS_MAX + 1;

/// The origin of a step's operand.
#[derive(Clone, Copy, Debug, PartialEq)]
enum OperandSource {
    /// An operand from outside the group.
    Source(usize),
    /// The result of an earlier step.
    Step(usize),
}

/// How an external operand is broadcast to the group's shape.
enum TilePattern {
    /// The group's shape in row-major order without gaps.
    Linear,
    /// A single element, and the tile with its copies if some kernel takes no splat operands.
    Splat(Option<usize>),
    /// Any other strides, gathered into a tile, unless all of it is one element that every kernel takes as a splat one.
    Strided { loops: Box<Loops<1>>, tile: usize, takes_splat: bool },
}

/// An operand from outside the group.
struct ExternalOperand {
    ptr: *const u8,
    size: usize,
    pattern: TilePattern,
}

/// How a step's result gets to memory.
#[derive(Clone, Copy, PartialEq)]
enum ResultStore {
    /// It stays in its tile.
    No,
    /// The kernel writes to memory.
    Direct,
    /// It is copied to the memory of an operand, which it takes over, after the operand was read.
    Copied,
    /// It is copied to memory by non-temporal stores.
    Streamed,
}

/// One instruction of a group.
struct FusedStep {
    kernel: Kernel,
    takes_splat: bool,
    operands: [OperandSource; OPERANDS_MAX],
    count: usize,
    widen: [Option<Kernel>; OPERANDS_MAX],
    narrow: Option<Kernel>,
    /// Bytes per element of the result.
    size: usize,
    /// The tile that the result is computed in; unused if the kernel writes to memory.
    tile: usize,
    kept: ResultStore,
    memory: *mut u8,
}

struct FusedProgram {
    sources: Vec<ExternalOperand>,
    steps: Vec<FusedStep>,
    tiles: usize,
    tile_elements: usize,
}

// SAFETY: a program is shared only during one call of `ThreadPool::run`, in which threads write disjoint ranges.
unsafe impl Sync for FusedProgram {}

/// Tiles that may be reused, and how many there are in all.
#[derive(Default)]
struct TileAllocator {
    free: Vec<usize>,
    count: usize,
}

impl TileAllocator {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

/// The external operands of a program under construction.
struct FusedOperands<'a> {
    shape: Shape,
    tensors: Vec<(&'a CpuTensor, usize)>,
    list: Vec<ExternalOperand>,
    /// Scalar operands, as elements of the dtype they are used in.
    #[expect(clippy::vec_box, reason = "sources point at them, so they stay where they are")]
    numbers: Vec<Box<u64>>,
    tiles: TileAllocator,
}

impl<'a> FusedOperands<'a> {
    fn number(&mut self, bits: u64, dtype: DType) -> OperandSource {
        let slot = Box::new(bits);
        let ptr = std::ptr::from_ref(&*slot).cast();
        self.numbers.push(slot);
        self.list.push(ExternalOperand { ptr, size: dtype.size(), pattern: TilePattern::Splat(None) });
        OperandSource::Source(self.list.len() - 1)
    }

    /// Adds a tensor. `straight` is the tensor itself, or its copy in row-major order if it is transposed.
    fn tensor(&mut self, t: &'a CpuTensor, straight: &CpuTensor) -> OperandSource {
        if let Some((_, known)) = self.tensors.iter().find(|(known, _)| std::ptr::eq(*known, t)) {
            return OperandSource::Source(*known);
        }
        let pattern = if straight.numel() == 1 {
            TilePattern::Splat(None)
        } else if straight.contiguous && straight.meta.shape == self.shape {
            TilePattern::Linear
        } else {
            let strides = straight.broadcast_strides(&self.shape);
            let loops = Box::new(Loops::new(&self.shape, [&strides]));
            TilePattern::Strided { loops, tile: self.tiles.take(), takes_splat: true }
        };
        self.list.push(ExternalOperand { ptr: straight.ptr(), size: t.size(), pattern });
        self.tensors.push((t, self.list.len() - 1));
        OperandSource::Source(self.list.len() - 1)
    }
}

impl CpuBackend {
    /// See [`gt_backend::Backend::execute_fused`].
    pub(crate) fn fused(&mut self, stages: &[Stage<'_, CpuTensor>]) -> Result<Vec<Option<CpuTensor>>> {
        let Some(shape) = stages.first().map(|stage| stage.out.shape) else { return Ok(Vec::new()) };
        let elements = shape.numel();
        let fuses = |stage: &Stage<'_, CpuTensor>| {
            stage.out.shape == shape
                && stage.inputs.len() <= OPERANDS_MAX
                && operand_dtype(stages, stage).is_some_and(|dtype| stage.op.row().fuses(dtype))
        };
        if elements == 0 || !stages.iter().all(fuses) {
            return gt_backend::execute_one_by_one(self, stages);
        }
        let straight = self.copy_transposed(stages, &shape)?;
        let mut sources = FusedOperands {
            shape,
            tensors: Vec::new(),
            list: Vec::new(),
            numbers: Vec::new(),
            tiles: TileAllocator::default(),
        };
        let mut steps = Vec::with_capacity(stages.len());
        let mut weight = 0;
        for stage in stages {
            let (map, operands) = self.plan_stage(stages, stage)?;
            let mut from = [OperandSource::Step(0); OPERANDS_MAX];
            let mut widen = map.dtypes.map(|dtype| if map.moves { None } else { self.widen(dtype) });
            for (i, operand) in operands.iter().enumerate() {
                from[i] = match operand {
                    StageInput::Stage(earlier) => OperandSource::Step(*earlier),
                    StageInput::External(Input::Scalar(number)) => {
                        let (bits, dtype) = map.number(*number, i);
                        widen[i] = None;
                        sources.number(bits, dtype)
                    }
                    StageInput::External(Input::Tensor(t)) => {
                        let copy = straight.iter().find(|(transposed, _)| std::ptr::eq(*transposed, *t));
                        sources.tensor(t, copy.map_or(*t, |(_, copy)| copy))
                    }
                };
            }
            weight += map.weight + 1;
            steps.push(FusedStep {
                kernel: map.kernel,
                takes_splat: map.takes_splat,
                operands: from,
                count: operands.len(),
                widen,
                narrow: map.narrow,
                size: stage.out.dtype.size(),
                tile: usize::MAX,
                kept: ResultStore::No,
                memory: std::ptr::null_mut(),
            });
        }
        let results = self.allocate_results(stages, &mut steps, &sources)?;
        if steps.iter().any(|step| matches!(step.kept, ResultStore::Copied)) {
            self.pool.watch.keep_going();
        }
        let FusedOperands { list: mut sources, mut tiles, numbers, .. } = sources;
        repeat_splats(&steps, &mut sources, &mut tiles);
        share_tiles(&mut steps, &mut tiles);
        let half = steps.iter().any(|step| step.narrow.is_some() || step.widen.iter().any(Option::is_some));
        let widest = steps.iter().map(|step| step.size).chain(sources.iter().map(|source| source.size)).max();
        let tile_elements = TILE_BYTES / widest.unwrap_or(1).max(size_of::<f32>());
        let program =
            FusedProgram { sources, steps, tiles: tiles.count + if half { SCRATCH_TILES } else { 0 }, tile_elements };
        let work_ns = work_ns(elements, weight);
        let chunks = if self.pool.pays(work_ns) { self.pool.chunks(work_ns) } else { 1 };
        let chunk = chunk_elements(elements, chunks).next_multiple_of(tile_elements.max(CHUNK_ELEMENTS));
        self.pool.run(elements.div_ceil(chunk), &|i| {
            // SAFETY: sources are tensors that broadcast to `shape`, copies of such in `straight`, or `numbers`; all
            // live until after this call. A result is newly allocated, or the unique handle of a linear source that no
            // step reads after the result is written (`allocate_results`). Chunks are disjoint.
            unsafe { program.range(i * chunk, ((i + 1) * chunk).min(elements)) }
        })?;
        drop((numbers, straight));
        Ok(results)
    }

    /// The transposed operands, each with a copy in row-major order.
    fn copy_transposed<'a>(
        &mut self,
        stages: &[Stage<'a, CpuTensor>],
        shape: &Shape,
    ) -> Result<Vec<(&'a CpuTensor, CpuTensor)>> {
        let mut copies: Vec<(&CpuTensor, CpuTensor)> = Vec::new();
        for input in stages.iter().flat_map(|stage| &stage.inputs) {
            if let StageInput::External(Input::Tensor(t)) = input
                && is_transposed(t, shape)
                && !copies.iter().any(|(known, _)| std::ptr::eq(*known, *t))
            {
                copies.push((t, self.contiguous(t)?));
            }
        }
        Ok(copies)
    }

    /// The kernel of a stage and its operands; some powers and casts have a simpler kernel.
    fn plan_stage<'a>(
        &self,
        stages: &[Stage<'a, CpuTensor>],
        stage: &Stage<'a, CpuTensor>,
    ) -> Result<(ElementwiseKernel, Vec<StageInput<'a, CpuTensor>>)> {
        let (row, out, inputs) = (stage.op.row(), stage.out.dtype, &stage.inputs);
        let Some(dtype) = operand_dtype(stages, stage) else {
            return Err(ExecError::internal(format!("{} of no tensor", row.name)));
        };
        let same = || {
            let yes = StageInput::External(Input::Scalar(Scalar::Bool(true)));
            (self.select_map(out), vec![yes, inputs[0], inputs[0]])
        };
        let plain = |map: ElementwiseKernel| (map, inputs.clone());
        Ok(match row.class {
            Class::Cast if dtype == out => same(),
            Class::Cast => plain(self.cast_map(dtype, out)?),
            Class::Select => plain(self.select_map(out)),
            _ => {
                let power = match inputs[..] {
                    [_, StageInput::External(Input::Scalar(exponent))] if row.op == Op::Pow && dtype.is_float() => {
                        simple_power(exponent)
                    }
                    _ => None,
                };
                match power {
                    Some(Power::Same) => same(),
                    Some(Power::Square) => {
                        (self.elementwise_map(Op::Mul.row(), dtype, out)?, vec![inputs[0], inputs[0]])
                    }
                    Some(Power::Function(op)) => (self.elementwise_map(op.row(), dtype, out)?, vec![inputs[0]]),
                    None => plain(self.elementwise_map(row, dtype, out)?),
                }
            }
        })
    }

    /// Gives memory to every result that is kept: the memory of an operand that no later step reads, or a new block.
    fn allocate_results(
        &self,
        stages: &[Stage<'_, CpuTensor>],
        steps: &mut [FusedStep],
        sources: &FusedOperands<'_>,
    ) -> Result<Vec<Option<CpuTensor>>> {
        let last_read =
            |source: usize| steps.iter().rposition(|s| s.operands[..s.count].contains(&OperandSource::Source(source)));
        // Operands at their last use, and the step after which their memory may be taken over.
        let mut given_up: Vec<(&CpuTensor, usize)> = Vec::new();
        for &(t, source) in &sources.tensors {
            let given = stages.iter().any(|stage| {
                let marked = |i: usize| stage.last_use >> i & 1 == 1;
                let is_it = |input: &StageInput<'_, CpuTensor>| {
                    matches!(input, StageInput::External(Input::Tensor(x)) if std::ptr::eq(*x, t))
                };
                stage.inputs.iter().enumerate().any(|(i, input)| is_it(input) && marked(i))
            });
            if given && t.contiguous && t.meta.shape == sources.shape && t.buffer.is_unique() {
                given_up.extend(last_read(source).map(|step| (t, step)));
            }
        }
        let mut results = Vec::with_capacity(stages.len());
        for (at, (stage, step)) in stages.iter().zip(steps).enumerate() {
            if !stage.kept {
                results.push(None);
                continue;
            }
            let bytes = stage.out.bytes();
            let fits = |t: &CpuTensor| {
                t.size() == stage.out.dtype.size()
                    && t.buffer.capacity_bytes() <= IN_PLACE_WASTE_MAX * bytes.max(ALIGN_BYTES)
            };
            let reused = given_up.iter().position(|(t, read)| *read <= at && fits(t));
            let result = match reused {
                Some(i) => given_up.swap_remove(i).0.reused(stage.out),
                None => self.new_tensor(&stage.out)?,
            };
            step.kept = match reused {
                Some(_) => ResultStore::Copied,
                None if bytes >= STREAM_BYTES_MIN => ResultStore::Streamed,
                None => ResultStore::Direct,
            };
            step.memory = result.ptr();
            results.push(Some(result));
        }
        Ok(results)
    }
}

/// The dtype a stage computes in: that of its tensor operands, and for `where` that of the choices.
fn operand_dtype(stages: &[Stage<'_, CpuTensor>], stage: &Stage<'_, CpuTensor>) -> Option<DType> {
    if stage.op.row().class == Class::Select {
        return Some(stage.out.dtype);
    }
    stage.inputs.iter().find_map(|input| match input {
        StageInput::External(Input::Tensor(t)) => Some(t.meta.dtype),
        StageInput::External(Input::Scalar(_)) => None,
        StageInput::Stage(earlier) => stages.get(*earlier).map(|earlier: &Stage<'_, CpuTensor>| earlier.out.dtype),
    })
}

/// Gives a tile to each splat operand of a kernel that takes no splat operands.
fn repeat_splats(steps: &[FusedStep], sources: &mut [ExternalOperand], tiles: &mut TileAllocator) {
    for step in steps.iter().filter(|step| !step.takes_splat) {
        for operand in &step.operands[..step.count] {
            let OperandSource::Source(source) = operand else { continue };
            match &mut sources[*source].pattern {
                TilePattern::Splat(tile @ None) => *tile = Some(tiles.take()),
                TilePattern::Strided { takes_splat, .. } => *takes_splat = false,
                _ => {}
            }
        }
    }
}

/// Allocates tiles to the results that are not written to memory directly, reusing a tile after its last read.
fn share_tiles(steps: &mut [FusedStep], tiles: &mut TileAllocator) {
    let mut last_read = vec![0; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        for operand in &step.operands[..step.count] {
            if let OperandSource::Step(earlier) = operand {
                last_read[*earlier] = at;
            }
        }
    }
    for at in 0..steps.len() {
        if steps[at].kept != ResultStore::Direct {
            steps[at].tile = tiles.take();
        }
        for earlier in 0..=at {
            if last_read[earlier].max(earlier) == at && steps[earlier].kept != ResultStore::Direct {
                tiles.free.push(steps[earlier].tile);
            }
        }
    }
}

impl FusedProgram {
    /// # Safety
    /// Sources are readable and results writable for elements `from..to`. A result overlaps no source, except one of
    /// the same element size that no later step reads.
    unsafe fn range(&self, from: usize, to: usize) {
        let mut room = Box::<[Tile]>::new_uninit_slice(self.tiles);
        let room = room.as_mut_ptr().cast::<u8>();
        let tile = |i: usize| room.wrapping_add(i * TILE_BYTES);
        let scratch = |i: usize| tile(self.tiles - SCRATCH_TILES + i);
        let mut source_ptrs: Vec<*const u8> = self.sources.iter().map(|source| source.ptr).collect();
        // Whether a strided source is one element for all of the tile.
        let mut single = vec![false; self.sources.len()];
        let mut result_ptrs: Vec<*const u8> = vec![std::ptr::null(); self.steps.len()];
        for source in &self.sources {
            if let TilePattern::Splat(Some(t)) = source.pattern {
                // SAFETY: the source has one element, and a tile has room for `tile_elements`.
                unsafe { copy_run(tile(t), source.size as isize, source.ptr, 0, self.tile_elements, source.size) };
            }
        }
        let mut streamed = false;
        let mut at = from;
        while at < to {
            let n = self.tile_elements.min(to - at);
            for ((ptr, single), source) in source_ptrs.iter_mut().zip(&mut single).zip(&self.sources) {
                // SAFETY: sources are readable for elements `from..to`, of which this tile has `n`.
                unsafe {
                    match &source.pattern {
                        TilePattern::Linear => *ptr = source.ptr.add(at * source.size),
                        TilePattern::Splat(_) => {}
                        TilePattern::Strided { loops, tile: t, takes_splat } => {
                            let in_run = at % loops.inner() + n <= loops.inner();
                            *single = *takes_splat && loops.inner_strides() == [0] && in_run;
                            if *single {
                                loops.for_runs(at, at + 1, |run| *ptr = source.ptr.wrapping_offset(run.offsets[0]));
                            } else {
                                *ptr = gathered(source, loops, at, n, tile(*t));
                            }
                        }
                    }
                }
            }
            for (i, step) in self.steps.iter().enumerate() {
                let mut operands = [std::ptr::null::<u8>(); OPERANDS_MAX];
                let mut splat = 0;
                // SAFETY: operands and results are valid for elements `from..to`; tiles have room for
                // `tile_elements`, and `share_tiles` gives no two results that are in use at one time the same tile.
                unsafe {
                    for (o, operand) in step.operands[..step.count].iter().enumerate() {
                        let (mut ptr, mut elements) = match operand {
                            OperandSource::Source(source) => (source_ptrs[*source], n),
                            OperandSource::Step(earlier) => (result_ptrs[*earlier], n),
                        };
                        if let OperandSource::Source(source) = operand {
                            match self.sources[*source].pattern {
                                TilePattern::Splat(Some(t)) if !step.takes_splat => ptr = tile(t),
                                TilePattern::Strided { .. } if !single[*source] => {}
                                TilePattern::Linear => {}
                                _ => {
                                    splat |= 1 << o;
                                    elements = 1;
                                }
                            }
                        }
                        if let Some(widen) = step.widen[o] {
                            widen(scratch(o), [ptr; 3], 0, elements);
                            ptr = scratch(o);
                        }
                        operands[o] = ptr;
                    }
                    let memory = step.memory.wrapping_add(at * step.size);
                    let result = if step.kept == ResultStore::Direct { memory } else { tile(step.tile) };
                    if let Some(narrow) = step.narrow {
                        let wide = scratch(OPERANDS_MAX);
                        (step.kernel)(wide, operands, splat, n);
                        narrow(result, [wide.cast_const(); 3], 0, n);
                    } else {
                        (step.kernel)(result, operands, splat, n);
                    }
                    match step.kept {
                        ResultStore::No | ResultStore::Direct => {}
                        ResultStore::Copied => memory.copy_from_nonoverlapping(result, n * step.size),
                        ResultStore::Streamed => {
                            stream(memory, result, n * step.size);
                            streamed = true;
                        }
                    }
                    result_ptrs[i] = result;
                }
            }
            at += n;
        }
        if streamed {
            stream_end();
        }
    }
}

/// The address of `n` contiguous elements from the `at`-th on: in the source if they are contiguous there, else in
/// `tile`.
///
/// # Safety
/// The source is readable for these elements, and the tile has room for them.
unsafe fn gathered(source: &ExternalOperand, loops: &Loops<1>, at: usize, n: usize, tile: *mut u8) -> *const u8 {
    if loops.inner_strides() == [source.size as isize] && at % loops.inner() + n <= loops.inner() {
        let mut from = source.ptr;
        loops.for_runs(at, at + n, |run| from = source.ptr.wrapping_offset(run.offsets[0]));
        return from;
    }
    // SAFETY: this function's contract is that of `copy_to_dense`.
    unsafe { copy_to_dense(tile, loops, 0, source.ptr, (at, at + n), source.size) };
    tile
}
