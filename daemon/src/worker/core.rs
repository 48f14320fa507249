//! What a worker does: executes steps on its backend and keeps their results, or why they failed.

use super::link::Joined;
use super::relocate::{lost, relocate};
use crate::table::WorkerTensor;
use gt_backend::{Backend, ExecError, Fence, FenceStatus, HostRange, Input, LimitScope, MemoryUsage};
use gt_collectives::Communicator;
use gt_ops::failure::{Failure, Fault, MemoryScope};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::wire::{ArenaRange, Command, Reshard};
use gt_ops::{Instruction, Meta, Op, Operand, Placement, Scalar, TensorId, Workers};
use gt_protocol::limits::ARENAS_PER_SESSION_MAX;
use gt_shm::Arena;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// What the dispatcher and the worker share of a session.
#[derive(Debug)]
pub struct StreamShared {
    /// In whose name the worker holds the session's tensors.
    pub usage: Arc<MemoryUsage>,
    /// Bytes of them at the last report.
    pub held_bytes: AtomicUsize,
    /// Set when the session has ended: what is still queued for it need not be done.
    pub cancelled: AtomicBool,
    /// Why a tensor that is not here is lost: what the worker held before it had to be started again.
    lost: Option<Fault>,
    arenas: Mutex<Vec<Arena>>,
}

impl StreamShared {
    /// For a session that holds its tensors as `usage`, and whose earlier tensors are lost if there is a
    /// reason.
    pub fn new(usage: Arc<MemoryUsage>, lost: Option<Fault>) -> StreamShared {
        StreamShared {
            usage,
            held_bytes: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            lost,
            arenas: Mutex::default(),
        }
    }

    /// Why a tensor is not here. That one was never made is a defect of the dispatcher's, unless its making was
    /// cancelled: moves are not, as other workers wait for them.
    #[cold]
    fn missing(&self, what: &'static str, instruction: TensorId, op: Option<Op>) -> Failure {
        match self.lost {
            Some(fault) => Failure { fault, instruction, op },
            None if self.cancelled.load(Relaxed) => Failure { fault: Fault::Internal, instruction, op },
            None => defect(what, instruction, op),
        }
    }

    /// Adds the next arena.
    pub fn add_arena(&self, arena: Arena) {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner).push(arena);
    }

    /// All arenas, each of which stays mapped as long as this lives.
    fn arenas(&self) -> impl Iterator<Item = HostRange> + use<> {
        let arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let ranges: Vec<HostRange> =
            arenas.iter().filter_map(|arena| Some(host(&arena.range(0, arena.len()).ok()?))).collect();
        ranges.into_iter()
    }

    /// The bytes that `range` names. The mapping lives while they do.
    fn range(&self, range: &ArenaRange) -> Option<gt_shm::ArenaRange> {
        let arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        let segment =
            usize::try_from(range.segment).ok().filter(|segment| *segment < ARENAS_PER_SESSION_MAX as usize)?;
        arenas.get(segment)?.range(range.offset_bytes, range.len_bytes).ok()
    }
}

enum Cell<T> {
    Vacant,
    Holds(WorkerTensor, Result<T, Failure>),
}

pub(super) struct Tensors<T> {
    cells: Vec<Cell<T>>,
    pub(super) shared: Arc<StreamShared>,
    /// How many of its arenas the device has been told of.
    arenas_told: usize,
}

impl<T> Tensors<T> {
    /// What `id` is. A tensor that was never made is a defect of the dispatcher.
    #[inline]
    pub(super) fn get(&self, id: TensorId) -> Option<&Result<T, Failure>> {
        let at = WorkerTensor::from_id(id);
        match self.cells.get(at.place()) {
            Some(Cell::Holds(found, value)) if *found == at => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn put(&mut self, id: TensorId, value: Result<T, Failure>) {
        let at = WorkerTensor::from_id(id);
        if at.place() >= self.cells.len() {
            self.cells.resize_with(at.place() + 1, || Cell::Vacant);
        }
        self.cells[at.place()] = Cell::Holds(at, value);
    }

    #[inline]
    pub(super) fn take(&mut self, id: TensorId) {
        let at = WorkerTensor::from_id(id);
        if let Some(cell @ Cell::Holds(..)) = self.cells.get_mut(at.place())
            && matches!(cell, Cell::Holds(found, _) if *found == at)
        {
            *cell = Cell::Vacant;
        }
    }
}

/// A completion that is to be reported when the device has come to a fence.
pub struct UnderWay {
    /// Which.
    pub fence: Fence,
    /// What a transfer uses until then, mapped as long as this lives.
    _range: Option<gt_shm::ArenaRange>,
}

impl UnderWay {
    /// Without a transfer.
    #[cfg(test)]
    pub(super) fn at(fence: Fence) -> UnderWay {
        UnderWay { fence, _range: None }
    }
}

/// A backend and the tensors of all sessions on it.
pub struct Core<B: Backend> {
    backend: B,
    streams: Vec<Option<Tensors<B::Tensor>>>,
    /// The groups in which this worker moves tensors, and its number.
    groups: Groups,
    number: usize,
}

impl<B: Backend> Core<B> {
    /// A worker without sessions, which others know by `number`.
    pub fn new(backend: B, number: usize) -> Core<B> {
        Core { backend, streams: Vec::new(), groups: Groups::default(), number }
    }

    /// Takes its place among `workers`; without one, leaves them.
    pub fn join(&mut self, workers: Workers, place: Option<Box<dyn Communicator>>) {
        match place {
            Some(place) => {
                self.groups.gone = self.groups.gone.without(workers);
                let joined = Joined::new(&mut self.backend, place, workers);
                self.groups.joined.insert(workers, joined)
            }
            None => self.groups.joined.remove(&workers),
        };
    }

    /// Leaves the group of `workers`, of whom those of `gone` are in none, unless one is formed anew.
    pub fn leave(&mut self, workers: Workers, gone: Workers) {
        if let Some(group) = self.groups.joined.remove(&workers) {
            group.leave();
        }
        self.groups.gone = self.groups.gone.with(gone);
    }

    /// The device.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Bytes that the session at `place` holds. Also noted where the dispatcher sees it.
    pub fn held(&self, place: u32) -> usize {
        let Some(Some(stream)) = self.streams.get(place as usize) else { return 0 };
        let held = self.backend.held(&stream.shared.usage);
        stream.shared.held_bytes.store(held, Relaxed);
        held
    }

    /// Bytes that tensors take: those of all sessions, those of the one at `place`, and the most that it held.
    pub fn used(&self, place: u32) -> [usize; 3] {
        let stream = self.streams.get(place as usize).and_then(Option::as_ref);
        let peak = stream.map_or(0, |stream| stream.shared.usage.peak());
        [self.backend.memory().used_bytes, self.held(place), peak]
    }

    /// Lets the most that the session at `place` held count from now on.
    pub fn reset_peak(&self, place: u32) {
        if let Some(Some(stream)) = self.streams.get(place as usize) {
            stream.shared.usage.reset_peak();
        }
    }

    /// The device, set to work in the name of the session at `place`, and its tensors.
    pub(super) fn stream(&mut self, place: u32) -> Option<(&mut B, &mut Tensors<B::Tensor>)> {
        let stream = self.streams.get_mut(place as usize)?.as_mut()?;
        self.backend.charge(&stream.shared.usage);
        Some((&mut self.backend, stream))
    }

    /// Gives memory back that is only kept for reuse.
    pub fn trim(&mut self) {
        for stream in self.streams.iter_mut().flatten() {
            while matches!(stream.cells.last(), Some(Cell::Vacant)) {
                stream.cells.pop();
            }
            stream.cells.shrink_to_fit();
        }
        let trim = || {
            self.backend.trim();
            Ok(())
        };
        if let Err(error) = caught(trim) {
            tracing::error!(target: "gtd::worker", %error, "memory could not be given back");
        }
    }

    /// Makes room for the session at `place`.
    pub fn open(&mut self, place: u32, shared: Arc<StreamShared>) {
        let place = place as usize;
        if place >= self.streams.len() {
            self.streams.resize_with(place + 1, || None);
        }
        self.streams[place] = Some(Tensors { cells: Vec::new(), shared, arenas_told: 0 });
    }

    /// Tells the device of the arenas that the session at `place` has got.
    pub fn see_arenas(&mut self, place: u32) {
        let Some(Some(stream)) = self.streams.get_mut(place as usize) else { return };
        for range in stream.shared.arenas().skip(stream.arenas_told) {
            stream.arenas_told += 1;
            // SAFETY: the session keeps its arenas mapped until it is closed, which takes this back.
            unsafe { self.backend.register_host_memory(range, true) };
        }
    }

    /// Frees everything of the session at `place`.
    pub fn close(&mut self, place: u32) {
        let Some(stream) = self.streams.get_mut(place as usize) else { return };
        if let Some(Tensors { shared, arenas_told, .. }) = stream {
            for range in shared.arenas().take(*arenas_told) {
                // SAFETY: it is not present any more.
                unsafe { self.backend.register_host_memory(range, false) };
            }
        }
        *stream = None;
    }

    /// Does `command` for the session at `place`. `out` is the shape and dtype of the result where the caller knows it.
    /// Nothing else is under way: what completes has ended at the return.
    ///
    /// # Errors
    /// Why it failed. A result that failed is kept as that failure, and so is what is computed from it.
    #[inline]
    pub fn run(&mut self, place: u32, origin: TensorId, command: &Command, out: Option<&Meta>) -> Result<(), Failure> {
        match self.start(place, origin, command, out)? {
            None => Ok(()),
            Some(under_way) => self.wait_for(&under_way, origin),
        }
    }

    #[cold]
    fn wait_for(&mut self, under_way: &UnderWay, origin: TensorId) -> Result<(), Failure> {
        loop {
            match self.poll_fence(true).map_err(|error| failure(error, origin, None))? {
                Some(FenceStatus { fence, result, .. }) if fence == under_way.fence => {
                    return result.map_err(|error| failure(error, origin, None));
                }
                Some(_) => {}
                None => return Err(defect("a fence that nobody comes to", origin, None)),
            }
        }
    }

    /// As [`Backend::poll_fence`].
    pub fn poll_fence(&mut self, wait: bool) -> Result<Option<FenceStatus>, ExecError> {
        caught(|| self.backend.poll_fence(wait))
    }

    /// As [`Backend::flush`].
    pub fn flush(&mut self) -> Result<(), ExecError> {
        caught(|| self.backend.flush())
    }

    /// As [`Backend::fence`].
    pub fn fence(&mut self) -> Result<Option<Fence>, ExecError> {
        caught(|| self.backend.fence())
    }

    /// Does `command` as [`run`](Self::run) does, or begins to where something completes that the device does later.
    ///
    /// # Errors
    /// As [`run`](Self::run). What is begun may fail at its end.
    #[inline]
    pub fn start(
        &mut self,
        place: u32,
        origin: TensorId,
        command: &Command,
        out: Option<&Meta>,
    ) -> Result<Option<UnderWay>, Failure> {
        tracing::debug!(target: "gtd::worker", place, origin, ?command, "does");
        let Some(Some(stream)) = self.streams.get_mut(place as usize) else {
            return Err(defect("a step of a session that was never opened", origin, None));
        };
        self.backend.charge(&stream.shared.usage);
        self.backend.label(origin);
        if let Command::Reshard(relocation) = command {
            // The others wait for this one: also where nobody wants the tensor any more.
            let moved = relocated(&mut self.backend, &mut self.groups, self.number, stream, origin, relocation);
            return moved.map(|()| None);
        }
        if stream.shared.cancelled.load(Relaxed) {
            return Err(Failure { fault: Fault::Internal, instruction: origin, op: None });
        }
        let backend = &mut self.backend;
        match command {
            Command::Op(instruction) => op(backend, stream, origin, instruction, out).map(|()| None),
            Command::Free { ids } => {
                for id in ids.iter().filter(|id| **id != 0) {
                    stream.take(*id);
                }
                Ok(None)
            }
            Command::Fetch { id, offset_bytes, to, .. } => fetch(backend, stream, origin, *id, *offset_bytes, to),
            Command::Allocate { out, meta } => {
                let made = caught(|| backend.allocate(meta)).map_err(|error| failure(error, origin, None));
                let result = made.as_ref().map(drop).map_err(|failure| *failure);
                stream.put(*out, made);
                result.map(|()| None)
            }
            Command::Write { id, offset_bytes, from, .. } => write(backend, stream, origin, *id, *offset_bytes, from),
            Command::Sync { .. } => {
                let fence = caught(|| backend.fence()).map_err(|error| failure(error, origin, None))?;
                Ok(fence.map(|fence| UnderWay { fence, _range: None }))
            }
            Command::Signal { .. } | Command::DefineSignal { .. } | Command::Reshard(_) => {
                Err(defect("a command that is for others", origin, None))
            }
        }
    }
}

fn op<B: Backend>(
    backend: &mut B,
    stream: &mut Tensors<B::Tensor>,
    origin: TensorId,
    instruction: &Instruction,
    out: Option<&Meta>,
) -> Result<(), Failure> {
    let operands = instruction.inputs.as_slice();
    let made = match operands.len() {
        0 => execute(backend, instruction, &[], out, origin),
        1..=4 => {
            let mut inputs = [Input::Scalar(Scalar::Int(0)); 4];
            gather(stream, instruction, origin, &mut inputs)
                .and_then(|()| execute(backend, instruction, &inputs[..operands.len()], out, origin))
        }
        many => {
            let mut inputs = vec![Input::Scalar(Scalar::Int(0)); many];
            gather(stream, instruction, origin, &mut inputs)
                .and_then(|()| execute(backend, instruction, &inputs, out, origin))
        }
    };
    if instruction.last_use != 0 {
        for (i, operand) in operands.iter().enumerate().take(8) {
            if let (1, Operand::Tensor(id)) = (instruction.last_use >> i & 1, operand) {
                stream.take(*id);
            }
        }
    }
    let result = made.as_ref().map(drop).map_err(|failure| *failure);
    stream.put(instruction.out, made);
    result
}

/// Looks every operand up. A poisoned one poisons the result.
#[inline]
fn gather<'a, T>(
    stream: &'a Tensors<T>,
    instruction: &Instruction,
    origin: TensorId,
    inputs: &mut [Input<'a, T>],
) -> Result<(), Failure> {
    for (input, operand) in inputs.iter_mut().zip(instruction.inputs.as_slice()) {
        *input = match operand {
            Operand::Scalar(number) => Input::Scalar(*number),
            Operand::Tensor(id) => match stream.get(*id) {
                Some(Ok(tensor)) => Input::Tensor(tensor),
                Some(Err(failure)) => return Err(*failure),
                None => {
                    return Err(stream.shared.missing("an operand that was never made", origin, Some(instruction.op)));
                }
            },
        };
    }
    Ok(())
}

#[inline]
fn execute<B: Backend>(
    backend: &mut B,
    instruction: &Instruction,
    inputs: &[Input<'_, B::Tensor>],
    out: Option<&Meta>,
    origin: TensorId,
) -> Result<B::Tensor, Failure> {
    let op = instruction.op;
    let inferred;
    let out = match out {
        Some(out) => out,
        None => {
            let metas: Vec<InputMeta> = inputs
                .iter()
                .map(|input| match input {
                    Input::Tensor(tensor) => InputMeta::Tensor(backend.meta(tensor)),
                    Input::Scalar(number) => InputMeta::Scalar(*number),
                })
                .collect();
            inferred = infer(op, &metas, &instruction.attrs)
                .map_err(|error| failure(ExecError::internal(error.to_string()), origin, Some(op)))?;
            &inferred
        }
    };
    // One tensor as two operands has one handle: its memory is not free to take while the other operand is read.
    let last_use = if instruction.last_use == 0 || repeats(instruction) { 0 } else { instruction.last_use };
    if op.row().multiplies() {
        backend.allow_tf32(instruction.tf32);
    }
    caught(|| backend.execute(op, inputs, &instruction.attrs, out, last_use))
        .map_err(|error| failure(error, origin, Some(op)))
}

fn repeats(instruction: &Instruction) -> bool {
    let operands = instruction.inputs.as_slice();
    operands.iter().enumerate().any(|(i, operand)| {
        operand.tensor().is_some() && operands[..i].iter().any(|earlier| earlier.tensor() == operand.tensor())
    })
}

/// The groups in which a worker moves tensors.
#[derive(Default)]
struct Groups {
    joined: HashMap<Workers, Joined>,
    /// Who is in none: nobody waits for them.
    gone: Workers,
}

fn relocated<B: Backend>(
    backend: &mut B,
    groups: &mut Groups,
    number: usize,
    stream: &mut Tensors<B::Tensor>,
    origin: TensorId,
    relocation: &Reshard,
) -> Result<(), Failure> {
    let workers = relocation.from.workers().with(relocation.to.workers());
    let input = relocation.from.workers().contains(number).then(|| match stream.get(relocation.input) {
        Some(tensor) => tensor.as_ref().map_err(|failure| *failure),
        None => Err(stream.shared.missing("a move of a tensor that was never made", origin, None)),
    });
    let made = match (groups.joined.get_mut(&workers), workers.and(groups.gone).first()) {
        (Some(group), _) => relocate(backend, group.ways(), number, origin, relocation, input),
        (None, Some(gone)) => Err(Failure { fault: lost(gone), instruction: origin, op: None }),
        (None, None) => Err(defect("a move among workers that are no group", origin, None)),
    };
    let result = made.as_ref().map(drop).map_err(|failure| *failure);
    if matches!(relocation.from, Placement::Partial { .. }) {
        stream.take(relocation.input);
    }
    match made {
        Ok(Some(tensor)) => stream.put(relocation.out, Ok(tensor)),
        Err(failure) if relocation.to.workers().contains(number) => stream.put(relocation.out, Err(failure)),
        _ => {}
    }
    result
}

fn fetch<B: Backend>(
    backend: &mut B,
    stream: &Tensors<B::Tensor>,
    origin: TensorId,
    id: TensorId,
    offset_bytes: u64,
    to: &ArenaRange,
) -> Result<Option<UnderWay>, Failure> {
    let range = stream.shared.range(to).ok_or_else(|| defect("a fetch to no arena", origin, None))?;
    let tensor = match stream.get(id) {
        Some(Ok(tensor)) => tensor,
        Some(Err(failure)) => return Err(*failure),
        None => return Err(stream.shared.missing("a fetch of a tensor that was never made", origin, None)),
    };
    let started = caught(|| backend.start_read(tensor, offset_bytes as usize, host(&range)));
    let fence = started.map_err(|error| failure(error, origin, None))?;
    Ok(fence.map(|fence| UnderWay { fence, _range: Some(range) }))
}

fn write<B: Backend>(
    backend: &mut B,
    stream: &mut Tensors<B::Tensor>,
    origin: TensorId,
    id: TensorId,
    offset_bytes: u64,
    from: &ArenaRange,
) -> Result<Option<UnderWay>, Failure> {
    let range = stream.shared.range(from).ok_or_else(|| defect("a write from no arena", origin, None))?;
    let at = WorkerTensor::from_id(id);
    let tensor = match stream.cells.get_mut(at.place()) {
        Some(Cell::Holds(found, value)) if *found == at => value,
        _ => return Err(stream.shared.missing("a write to a tensor that was never made", origin, None)),
    };
    let made = tensor.as_mut().map_err(|failure| *failure)?;
    let started = caught(|| backend.start_write(made, offset_bytes as usize, host(&range)));
    match started {
        Ok(fence) => Ok(fence.map(|fence| UnderWay { fence, _range: Some(range) })),
        Err(error) => {
            let failure = failure(error, origin, None);
            *tensor = Err(failure);
            Err(failure)
        }
    }
}

fn host(range: &gt_shm::ArenaRange) -> HostRange {
    let start = NonNull::new(range.as_ptr()).unwrap_or(NonNull::dangling());
    // SAFETY: the arena checked the range and keeps it mapped while `range` lives, which is longer than the call this
    // is made for, and than what that begins (see `UnderWay`); it is mapped for reading and writing, and
    // nobody makes references into an arena.
    unsafe { HostRange::new(start, range.len()) }
}

thread_local! {
    /// What became of the device that this thread uses.
    static LOST: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// Why nothing more can be done with the device that this thread uses, if so.
#[inline]
pub fn lost_device() -> Option<Box<str>> {
    LOST.with_borrow(Clone::clone)
}

/// Runs a piece of the backend. A panic there is a defect, but not the end of the worker; that the device is lost is,
/// see [`lost_device`].
#[inline]
pub(super) fn caught<R>(run: impl FnOnce() -> Result<R, ExecError>) -> Result<R, ExecError> {
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(ExecError::internal("a kernel panicked")));
    if let Err(ExecError::Lost(why)) = &result {
        LOST.set(Some(why.clone()));
    }
    result
}

#[cold]
pub(super) fn failure(error: ExecError, instruction: TensorId, op: Option<Op>) -> Failure {
    let fault = match error {
        ExecError::OutOfMemory { requested, held, limit, scope } => {
            let scope = match scope {
                LimitScope::Device => MemoryScope::Worker,
                LimitScope::Usage => MemoryScope::Session,
                LimitScope::Group => MemoryScope::User,
            };
            Fault::OutOfMemory { requested: requested as u64, held: held as u64, limit: limit as u64, scope }
        }
        ExecError::IndexOutOfRange { index, axis, size } => {
            Fault::IndexOutOfRange { index, axis: axis as u64, size: size as u64 }
        }
        ExecError::ZeroDivision => Fault::ZeroDivision,
        // It is that instruction's failure, not that of whoever came to know of it.
        ExecError::Earlier { label, op, error } => return failure(*error, label, op),
        ExecError::Unreached { worker: Some(worker), .. } => lost(worker),
        ExecError::Unreached { worker: None, why } => {
            tracing::error!(target: "gtd::worker", instruction, %why, "a tensor did not come");
            Fault::Internal
        }
        ExecError::Internal(what) | ExecError::Lost(what) => {
            let op = op.map_or("a transfer", Op::name);
            tracing::error!(target: "gtd::worker", instruction, op, %what, "a step failed that should not have");
            Fault::Internal
        }
    };
    Failure { fault, instruction, op }
}

#[cold]
fn defect(what: &'static str, instruction: TensorId, op: Option<Op>) -> Failure {
    failure(ExecError::internal(what), instruction, op)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_backend::MemoryStats;
    use gt_ops::{Attrs, DType, Inputs, Shape};

    /// A backend whose tensors are how often they were added to themselves, and whose `exp` panics.
    #[derive(Default)]
    struct Fake {
        last_uses: Vec<u8>,
        tf32: bool,
        /// Of the products, in order.
        rounded: Vec<bool>,
    }

    impl Backend for Fake {
        type Tensor = (Meta, u32);

        fn execute(
            &mut self,
            op: Op,
            inputs: &[Input<'_, (Meta, u32)>],
            _: &Attrs,
            out: &Meta,
            last_use: u8,
        ) -> Result<(Meta, u32), ExecError> {
            self.last_uses.push(last_use);
            if op == Op::Matmul {
                self.rounded.push(self.tf32);
            }
            match op {
                Op::Exp => panic!("a defect"),
                Op::Full => Ok((*out, 0)),
                _ => Ok((*out, inputs.iter().map(|i| if let Input::Tensor(t) = i { t.1 } else { 0 }).sum::<u32>() + 1)),
            }
        }
        fn allocate(&mut self, meta: &Meta) -> Result<(Meta, u32), ExecError> {
            Ok((*meta, 0))
        }
        fn write(&mut self, _: &mut (Meta, u32), _: usize, _: HostRange) -> Result<(), ExecError> {
            Err(ExecError::internal("no"))
        }
        fn read(&mut self, tensor: &(Meta, u32), _: usize, to: HostRange) -> Result<(), ExecError> {
            // SAFETY: the range is writable, and at least four bytes long in these tests.
            unsafe { to.as_ptr().cast::<u32>().write_unaligned(tensor.1) };
            Ok(())
        }
        fn bytes_of(&self, _: &(Meta, u32)) -> Option<(NonNull<u8>, usize)> {
            None
        }
        fn meta(&self, tensor: &(Meta, u32)) -> Meta {
            tensor.0
        }
        fn allow_tf32(&mut self, allowed: bool) {
            self.tf32 = allowed;
        }
        fn charge(&mut self, _: &Arc<MemoryUsage>) {}
        fn held(&self, _: &MemoryUsage) -> usize {
            0
        }
        fn memory(&self) -> MemoryStats {
            MemoryStats::default()
        }
        fn trim(&mut self) {}
    }

    fn meta() -> Meta {
        Meta::new(Shape::new(&[2]).unwrap(), DType::F32)
    }

    fn at(place: u32) -> TensorId {
        WorkerTensor::new(place, 1).id()
    }

    fn instruction(op: Op, out: TensorId, operands: &[TensorId], last_use: u8) -> Command {
        let inputs: Vec<_> = operands.iter().map(|id| Operand::Tensor(*id)).collect();
        let attrs = match op {
            Op::Full => Attrs::Create { shape: meta().shape, dtype: DType::F32 },
            _ => Attrs::None,
        };
        Command::Op(Instruction { op, out, inputs: Inputs::from_slice(&inputs), last_use, attrs, tf32: false })
    }

    fn core() -> (Core<Fake>, Arc<StreamShared>) {
        let mut core = Core::new(Fake::default(), 0);
        let shared = Arc::new(StreamShared::new(Arc::new(MemoryUsage::new(1)), None));
        core.open(0, shared.clone());
        core.run(0, 1, &instruction(Op::Full, at(1), &[], 0), Some(&meta())).unwrap();
        (core, shared)
    }

    fn fetch(core: &mut Core<Fake>, shared: &StreamShared, id: TensorId) -> Result<u32, Failure> {
        let (arena, _fd) = Arena::create(4096).unwrap();
        shared.arenas.lock().unwrap().clear();
        shared.add_arena(arena.clone());
        let to = ArenaRange { segment: 0, offset_bytes: 8, len_bytes: 4 };
        core.run(0, 99, &Command::Fetch { token: 0, id, offset_bytes: 0, to }, None)?;
        let mut bytes = [0; 4];
        arena.copy_in(8, &mut bytes).unwrap();
        Ok(u32::from_ne_bytes(bytes))
    }

    #[test]
    fn each_product_says_how_exact_it_must_be() {
        let (mut core, _shared) = core();
        for (number, tf32) in [(2, true), (3, false), (4, true)] {
            let mut command = instruction(Op::Matmul, at(number), &[at(1), at(1)], 0);
            if let Command::Op(instruction) = &mut command {
                instruction.tf32 = tf32;
            }
            core.run(0, number.into(), &command, Some(&meta())).unwrap();
        }
        assert_eq!(core.backend.rounded, [true, false, true]);
    }

    #[test]
    fn a_panic_in_a_kernel_poisons_its_result_and_the_worker_goes_on() {
        let (mut core, shared) = core();
        let failure = Failure { fault: Fault::Internal, instruction: 2, op: Some(Op::Exp) };
        assert_eq!(core.run(0, 2, &instruction(Op::Exp, at(2), &[at(1)], 0), Some(&meta())), Err(failure));
        assert_eq!(core.run(0, 3, &instruction(Op::Add, at(3), &[at(1), at(2)], 0), None), Err(failure));
        assert_eq!(fetch(&mut core, &shared, at(3)), Err(failure));
        core.run(0, 4, &instruction(Op::Add, at(4), &[at(1), at(1)], 0), None).unwrap();
        assert_eq!(fetch(&mut core, &shared, at(4)), Ok(1));
    }

    #[test]
    fn an_operand_goes_after_its_last_use_and_is_offered_for_reuse_unless_it_is_named_twice() {
        let (mut core, shared) = core();
        core.run(0, 2, &instruction(Op::Neg, at(2), &[at(1)], 1), None).unwrap();
        core.run(0, 3, &instruction(Op::Add, at(3), &[at(2), at(2)], 3), None).unwrap();
        assert_eq!(core.backend.last_uses, [0, 1, 0]);
        assert_eq!(fetch(&mut core, &shared, at(3)), Ok(3));
        for gone in [at(1), at(2)] {
            assert_eq!(fetch(&mut core, &shared, gone).unwrap_err().fault, Fault::Internal);
        }
    }

    #[test]
    fn a_failed_write_poisons_its_tensor() {
        let (mut core, shared) = core();
        core.run(0, 5, &Command::Allocate { out: at(5), meta: meta() }, None).unwrap();
        shared.add_arena(Arena::create(4096).unwrap().0);
        let from = ArenaRange { segment: 0, offset_bytes: 0, len_bytes: 8 };
        let failure = Failure { fault: Fault::Internal, instruction: 5, op: None };
        let write = Command::Write { token: 1, id: at(5), offset_bytes: 0, from };
        assert_eq!(core.run(0, 5, &write, None), Err(failure));
        assert_eq!(fetch(&mut core, &shared, at(5)), Err(failure));
    }

    #[test]
    fn what_is_queued_for_a_session_that_has_ended_is_not_done() {
        let (mut core, shared) = core();
        shared.cancelled.store(true, Relaxed);
        let result = core.run(0, 2, &instruction(Op::Neg, at(2), &[at(1)], 0), None);
        assert_eq!(result.unwrap_err().fault, Fault::Internal);
        assert_eq!(core.backend.last_uses, [0]);
        core.close(0);
        assert!(core.run(0, 3, &Command::Sync { token: 1 }, None).is_err());
    }

    #[test]
    fn another_tensors_name_finds_nothing() {
        let (mut core, shared) = core();
        let reused = WorkerTensor::new(1, 2).id();
        assert_eq!(fetch(&mut core, &shared, reused).unwrap_err().fault, Fault::Internal);
        core.run(0, 2, &Command::Free { ids: [reused, 0, 0, 0, 0, 0, 0] }, None).unwrap();
        assert_eq!(fetch(&mut core, &shared, at(1)), Ok(0));
        core.run(0, 2, &Command::Free { ids: [at(1), 0, 0, 0, 0, 0, 0] }, None).unwrap();
        core.trim();
        assert!(core.streams[0].as_ref().unwrap().cells.is_empty());
    }
}
