//! A worker's state: its backend, and the tensors of each session or the failures that poisoned them.
//! [`Core::start`] executes a step.

use super::device_link::GroupMember;
use super::exec_failure::{caught, defect, failure, worker_lost};
use super::fusion_window::is_large;
use super::in_flight::InFlightTransfer;
use super::rank_assignment::RankAssignment;
use super::reshard::reshard_tensor;
use super::session_tensors::{SessionShared, SessionTensors, host_range};
use gt_backend::{Backend, Cancellation, ExecError, Fence, FenceStatus, Input};
use gt_ops::failure::{Failure, Fault};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::wire::{ArenaRange, Command, Reshard};
use gt_ops::{Class, Instruction, Meta, Operand, Placement, Scalar, TensorId, Workers};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A backend, and the tensors of all sessions on it.
pub struct Core<B: Backend> {
    backend: B,
    sessions: Vec<Option<SessionTensors<B::Tensor>>>,
    groups: JoinedGroups,
    /// The worker's number, by which other workers know it.
    number: usize,
    /// A core with the backend's companion, for steps that run at preemption points of this one's; it has no sessions
    /// until it is [lent](Core::lend) those of this core.
    light: Option<Box<Core<B>>>,
}

impl<B: Backend> Core<B> {
    /// A worker without sessions. Other workers know it by `number`.
    pub fn new(backend: B, number: usize) -> Core<B> {
        let light = backend.companion().map(|companion| Box::new(Core::alone(companion, number)));
        Core { light, ..Core::alone(backend, number) }
    }

    fn alone(backend: B, number: usize) -> Core<B> {
        Core { backend, sessions: Vec::new(), groups: JoinedGroups::default(), number, light: None }
    }

    /// A core for all sessions but the one at `slot`, which may execute steps at preemption points while this one
    /// executes a step of that session, or of none. None if the backend has no such points.
    pub fn lend(&mut self, slot: Option<u32>) -> Option<Box<Core<B>>> {
        let mut light = self.light.take()?;
        std::mem::swap(&mut self.sessions, &mut light.sessions);
        slot.inspect(|slot| self.exchange(*slot, &mut light));
        Some(light)
    }

    /// Whether the instruction `origin` of the session at `slot` is cancelled.
    pub fn cancels(&self, slot: u32, origin: TensorId) -> bool {
        let session = self.sessions.get(slot as usize).and_then(Option::as_ref);
        session.is_some_and(|session| session.shared.cancellation.covers(origin))
    }

    /// Takes the sessions back that were [lent](Self::lend).
    pub fn take_back(&mut self, slot: Option<u32>, mut light: Box<Core<B>>) {
        slot.inspect(|slot| self.exchange(*slot, &mut light));
        std::mem::swap(&mut self.sessions, &mut light.sessions);
        self.light = Some(light);
    }

    fn exchange(&mut self, slot: u32, light: &mut Core<B>) {
        let slot = slot as usize;
        if slot >= self.sessions.len() {
            self.sessions.resize_with(slot + 1, || None);
        }
        if let Some(other) = light.sessions.get_mut(slot) {
            std::mem::swap(&mut self.sessions[slot], other);
        }
    }

    /// Joins the group of `workers` as `rank`, waiting for the other ranks; without one, or if that fails, leaves the
    /// group.
    pub fn join(&mut self, workers: Workers, rank: Option<RankAssignment>) {
        let failed = |error| tracing::warn!(target: "gtd::worker", %error, "a group was not joined");
        match rank.and_then(|rank| rank.join().map_err(failed).ok()) {
            Some(communicator) => {
                self.groups.gone = self.groups.gone.without(workers);
                let member = GroupMember::new(&mut self.backend, communicator, workers);
                self.groups.joined.insert(workers, member)
            }
            None => self.groups.joined.remove(&workers),
        };
    }

    /// Leaves the group of `workers`. Reshards with the workers in `gone` fail until a group with
    /// them is formed.
    pub fn leave(&mut self, workers: Workers, gone: Workers) {
        if let Some(group) = self.groups.joined.remove(&workers) {
            group.leave();
        }
        self.groups.gone = self.groups.gone.with(gone);
    }

    /// The backend.
    pub fn backend(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Bytes that the session at `slot` holds, which are also stored in [`SessionShared::held_bytes`].
    pub fn held(&self, slot: u32) -> usize {
        let Some(Some(session)) = self.sessions.get(slot as usize) else { return 0 };
        let held = self.backend.held(&session.shared.usage);
        session.shared.held_bytes.store(held, Relaxed);
        held
    }

    /// Bytes of the tensors of all sessions, of the session at `slot`, and that session's peak.
    pub fn used(&self, slot: u32) -> [usize; 3] {
        let session = self.sessions.get(slot as usize).and_then(Option::as_ref);
        let peak = session.map_or(0, |session| session.shared.usage.peak());
        [self.backend.memory().used_bytes, self.held(slot), peak]
    }

    /// Resets the peak of the session at `slot` to the bytes that it holds.
    pub fn reset_peak(&self, slot: u32) {
        if let Some(Some(session)) = self.sessions.get(slot as usize) {
            session.shared.usage.reset_peak();
        }
    }

    /// The backend, which charges new memory to the session at `slot`, and that session's tensors.
    pub(super) fn session(&mut self, slot: u32) -> Option<(&mut B, &mut SessionTensors<B::Tensor>)> {
        let session = self.sessions.get_mut(slot as usize)?.as_mut()?;
        self.backend.charge(&session.shared.usage);
        Some((&mut self.backend, session))
    }

    /// Whether an instruction takes longer than its estimate, which expects it to write in place: it has to copy its
    /// operand.
    pub fn copies_operand(&self, slot: u32, command: &Command) -> bool {
        let Command::Op(instruction) = command else { return false };
        let session = self.sessions.get(slot as usize).and_then(Option::as_ref);
        let base = instruction.inputs.as_slice().first().and_then(Operand::tensor);
        match session.zip(base.filter(|_| writes_part(instruction))).and_then(|(session, base)| session.get(base)) {
            Some(Ok(tensor)) => is_large(&self.backend.meta(tensor)) && !self.backend.is_writable(tensor),
            _ => false,
        }
    }

    /// Returns memory that is only cached.
    pub fn trim(&mut self) {
        for session in self.sessions.iter_mut().flatten() {
            session.trim();
        }
        let trim = || {
            self.backend.trim();
            Ok(())
        };
        if let Err(error) = caught(trim) {
            tracing::error!(target: "gtd::worker", %error, "memory could not be given back");
        }
    }

    /// Makes room for the session at `slot`.
    pub fn open(&mut self, slot: u32, shared: Arc<SessionShared>) {
        let slot = slot as usize;
        if slot >= self.sessions.len() {
            self.sessions.resize_with(slot + 1, || None);
        }
        self.sessions[slot] = Some(SessionTensors::new(shared));
    }

    /// Registers the new arenas of the session at `slot` with the device, which then copies from and to them faster.
    pub fn register_arenas(&mut self, slot: u32) {
        let Some(Some(session)) = self.sessions.get_mut(slot as usize) else { return };
        for number in 0..session.shared.arenas_end() {
            let Some(range) = session.shared.arena(number) else { continue };
            if session.arenas_registered.insert(number) {
                // SAFETY: `SessionShared` keeps its arenas mapped while it lives; `close` and `drop_arena` unregister
                // them before they are dropped.
                unsafe { self.backend.register_host_memory(range, true) };
            }
        }
    }

    /// Drops an arena that the session at `slot` has returned. No transfer names it.
    pub fn drop_arena(&mut self, slot: u32, number: u32) {
        let Some(Some(session)) = self.sessions.get_mut(slot as usize) else { return };
        if let (true, Some(range)) = (session.arenas_registered.remove(&number), session.shared.arena(number)) {
            // SAFETY: the arena is mapped until it is removed below; the call ends the use of the range.
            unsafe { self.backend.register_host_memory(range, false) };
        }
        drop(session.shared.drop_arena(number));
    }

    /// Frees everything of the session at `slot`.
    pub fn close(&mut self, slot: u32) {
        let Some(session) = self.sessions.get_mut(slot as usize) else { return };
        if let Some(SessionTensors { shared, arenas_registered, .. }) = session {
            for range in arenas_registered.iter().filter_map(|number| shared.arena(*number)) {
                // SAFETY: the arena is mapped, as `shared` still lives; the call ends the use of the range.
                unsafe { self.backend.register_host_memory(range, false) };
            }
        }
        *session = None;
    }

    /// Executes `command` for the session at `slot`, and waits for its transfer if it has one. Nothing else may be in
    /// flight. `out` is the shape and dtype of the result, if the caller knows them.
    ///
    /// # Errors
    /// The failure of the command, which also poisons its result and everything computed from that.
    #[inline]
    pub fn run(&mut self, slot: u32, origin: TensorId, command: &Command, out: Option<&Meta>) -> Result<(), Failure> {
        match self.start(slot, origin, command, out)? {
            None => Ok(()),
            Some(in_flight) => self.wait_for(&in_flight, origin),
        }
    }

    #[cold]
    fn wait_for(&mut self, in_flight: &InFlightTransfer, origin: TensorId) -> Result<(), Failure> {
        loop {
            match self.poll_fence(true).map_err(|error| failure(error, origin, None))? {
                Some(FenceStatus { fence, result, .. }) if fence == in_flight.fence => {
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

    /// As [`run`](Self::run), but does not wait: returns the transfer or sync that the device has still to complete.
    ///
    /// # Errors
    /// As [`run`](Self::run). The transfer may fail later.
    #[inline]
    pub fn start(
        &mut self,
        slot: u32,
        origin: TensorId,
        command: &Command,
        out: Option<&Meta>,
    ) -> Result<Option<InFlightTransfer>, Failure> {
        tracing::debug!(target: "gtd::worker", slot, origin, ?command, "does");
        let Some(Some(session)) = self.sessions.get_mut(slot as usize) else {
            return Err(defect("a step of a session that was never opened", origin, None));
        };
        self.backend.charge(&session.shared.usage);
        self.backend.label(origin);
        let label = if matches!(command, Command::Op(_)) { origin } else { Cancellation::NEVER };
        self.backend.cancelled_by(&session.shared.cancellation, label);
        if let Command::Reshard(reshard) = command {
            // The other workers wait for this one even if the session has ended.
            let moved = resharded(&mut self.backend, &mut self.groups, self.number, session, origin, reshard);
            return moved.map(|()| None);
        }
        if session.shared.cancellation.covers_all() {
            return Err(Failure { fault: Fault::Internal, instruction: origin, op: None });
        }
        let backend = &mut self.backend;
        match command {
            Command::Op(instruction) => op(backend, session, origin, instruction, out).map(|()| None),
            Command::Free { ids } => {
                for id in ids.iter().filter(|id| **id != 0) {
                    session.take(*id);
                }
                Ok(None)
            }
            Command::Fetch { id, offset_bytes, to, .. } => fetch(backend, session, origin, *id, *offset_bytes, to),
            Command::Allocate { out, meta } => {
                let made = caught(|| backend.allocate(meta)).map_err(|error| failure(error, origin, None));
                let result = made.as_ref().map(drop).map_err(|failure| *failure);
                session.put(*out, made);
                result.map(|()| None)
            }
            Command::Write { id, offset_bytes, from, .. } => write(backend, session, origin, *id, *offset_bytes, from),
            Command::Sync { .. } => {
                let fence = caught(|| backend.fence()).map_err(|error| failure(error, origin, None))?;
                Ok(fence.map(|fence| InFlightTransfer::new(fence, None)))
            }
            Command::Signal { .. } | Command::DefineSignal { .. } | Command::Reshard(_) => {
                Err(defect("a command that is for others", origin, None))
            }
        }
    }
}

fn op<B: Backend>(
    backend: &mut B,
    session: &mut SessionTensors<B::Tensor>,
    origin: TensorId,
    instruction: &Instruction,
    out: Option<&Meta>,
) -> Result<(), Failure> {
    let operands = instruction.inputs.as_slice();
    if writes_part(instruction) {
        unshare(backend, session, operands);
    }
    let made = match operands.len() {
        0 => execute(backend, instruction, &[], out, origin),
        1..=4 => {
            let mut inputs = [Input::Scalar(Scalar::Int(0)); 4];
            gather(session, instruction, origin, &mut inputs)
                .and_then(|()| execute(backend, instruction, &inputs[..operands.len()], out, origin))
        }
        many => {
            let mut inputs = vec![Input::Scalar(Scalar::Int(0)); many];
            gather(session, instruction, origin, &mut inputs)
                .and_then(|()| execute(backend, instruction, &inputs, out, origin))
        }
    };
    // Almost all instructions end well. A tensor is large, and to move it costs as much as a small kernel.
    match made {
        Ok(tensor) => {
            take_last_used(session, instruction);
            session.put(instruction.out, Ok(tensor));
            Ok(())
        }
        Err(failure) => {
            let kept = kept(backend, session, origin, instruction, &failure);
            take_last_used(session, instruction);
            put_made(session, origin, instruction.out, Err(failure), kept);
            Err(failure)
        }
    }
}

/// Drops the operands that an instruction uses for the last time.
#[inline]
fn take_last_used<T>(session: &mut SessionTensors<T>, instruction: &Instruction) {
    if instruction.last_use != 0 {
        for id in instruction.last_used() {
            session.take(id);
        }
    }
}

/// Stores the outcome of an instruction. `kept` are the elements that it has left as they were.
pub(super) fn put_made<T>(
    session: &mut SessionTensors<T>,
    origin: TensorId,
    out: TensorId,
    made: Result<T, Failure>,
    kept: Option<T>,
) {
    match (made, kept) {
        // The program that cancelled the instruction knows of it.
        (Err(_), Some(kept)) if session.shared.cancellation.covers(origin) => session.put(out, Ok(kept)),
        (Err(failure), Some(kept)) => session.put_kept(out, failure, kept),
        (made, _) => session.put(out, made),
    }
}

/// The elements of the operand that an instruction was to replace in place, if they are as before: they stay in its
/// result. A defect may have left anything.
pub(super) fn kept<B: Backend>(
    backend: &mut B,
    session: &SessionTensors<B::Tensor>,
    origin: TensorId,
    instruction: &Instruction,
    failure: &Failure,
) -> Option<B::Tensor> {
    if failure.instruction == origin && failure.fault == Fault::Internal {
        return None;
    }
    let operand = instruction.inputs.as_slice().get(usize::from(instruction.replaces?))?;
    let elements = session.elements(operand.tensor()?)?;
    if instruction.op.row().class != Class::Movement {
        return Some(elements.clone());
    }
    let out = infer(instruction.op, &[InputMeta::Tensor(backend.meta(elements))], &instruction.attrs).ok()?;
    backend.cancelled_by(&session.shared.cancellation, Cancellation::NEVER);
    caught(|| backend.execute(instruction.op, &[Input::Tensor(elements)], &instruction.attrs, &out, 0)).ok()
}

/// Whether an instruction writes part of its first operand, and uses it for the last time.
fn writes_part(instruction: &Instruction) -> bool {
    instruction.last_use & 1 == 1 && instruction.op.row().writes_part()
}

/// Makes an instruction that [writes part](writes_part) of a large tensor do so in place, if other tensors share its
/// memory but are smaller together: they get memory of their own.
#[inline]
fn unshare<B: Backend>(backend: &mut B, session: &mut SessionTensors<B::Tensor>, operands: &[Operand]) {
    let Some(base) = operands.first().and_then(Operand::tensor) else { return };
    let Some(Ok(tensor)) = session.get(base) else { return };
    if is_large(&backend.meta(tensor)) && !backend.is_writable(tensor) {
        let tensor = tensor.clone();
        unshare_from(backend, session, &tensor);
    }
}

#[cold]
fn unshare_from<B: Backend>(backend: &mut B, session: &mut SessionTensors<B::Tensor>, base: &B::Tensor) {
    let whole = backend.meta(base).bytes();
    let bytes: usize = session
        .values_mut()
        .filter(|other| backend.shares_memory(base, other))
        .map(|other| backend.meta(other).bytes())
        .fold(0, usize::saturating_add);
    // The sum counts `base` itself.
    if bytes.saturating_sub(whole) > whole / 2 {
        return;
    }
    let mut is_base_seen = false;
    for other in session.values_mut().filter(|other| backend.shares_memory(base, other)).collect::<Vec<_>>() {
        if !is_base_seen && backend.meta(other).bytes() == whole {
            is_base_seen = true;
            continue;
        }
        // Without memory for it the instruction copies its operand instead, or fails.
        if let Ok(own) = caught(|| backend.copy(other)) {
            *other = own;
        }
    }
}

/// Looks up every operand. A poisoned operand poisons the result.
#[inline]
fn gather<'a, T>(
    session: &'a SessionTensors<T>,
    instruction: &Instruction,
    origin: TensorId,
    inputs: &mut [Input<'a, T>],
) -> Result<(), Failure> {
    for (input, operand) in inputs.iter_mut().zip(instruction.inputs.as_slice()) {
        *input = match operand {
            Operand::Scalar(number) => Input::Scalar(*number),
            Operand::Tensor(id) => match session.get(*id) {
                Some(Ok(tensor)) => Input::Tensor(tensor),
                Some(Err(failure)) => return Err(*failure),
                None => {
                    return Err(session.shared.missing("an operand that was never made", origin, Some(instruction.op)));
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
    // A tensor that is two operands must keep its memory while the other operand is read.
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

/// The groups that a worker has joined, in which it reshards tensors.
#[derive(Default)]
struct JoinedGroups {
    joined: HashMap<Workers, GroupMember>,
    /// Workers that are gone: reshards with them fail.
    gone: Workers,
}

fn resharded<B: Backend>(
    backend: &mut B,
    groups: &mut JoinedGroups,
    number: usize,
    session: &mut SessionTensors<B::Tensor>,
    origin: TensorId,
    reshard: &Reshard,
) -> Result<(), Failure> {
    let workers = reshard.from.workers().with(reshard.to.workers());
    let input = reshard.from.workers().contains(number).then(|| match session.get(reshard.input) {
        Some(tensor) => tensor.as_ref().map_err(|failure| *failure),
        None => Err(session.shared.missing("a move of a tensor that was never made", origin, None)),
    });
    let made = match (groups.joined.get_mut(&workers), workers.and(groups.gone).first()) {
        (Some(group), _) => reshard_tensor(backend, group.routes(), number, origin, reshard, input),
        (None, Some(gone)) => Err(Failure { fault: worker_lost(gone), instruction: origin, op: None }),
        (None, None) => Err(defect("a move among workers that are no group", origin, None)),
    };
    let result = made.as_ref().map(drop).map_err(|failure| *failure);
    if matches!(reshard.from, Placement::Partial { .. }) {
        session.take(reshard.input);
    }
    match made {
        Ok(Some(tensor)) => session.put(reshard.out, Ok(tensor)),
        Err(failure) if reshard.to.workers().contains(number) => session.put(reshard.out, Err(failure)),
        _ => {}
    }
    result
}

fn fetch<B: Backend>(
    backend: &mut B,
    session: &mut SessionTensors<B::Tensor>,
    origin: TensorId,
    id: TensorId,
    offset_bytes: u64,
    to: &ArenaRange,
) -> Result<Option<InFlightTransfer>, Failure> {
    let range = session.shared.range(to).ok_or_else(|| defect("a fetch to no arena", origin, None))?;
    let tensor = match session.get(id) {
        Some(Ok(tensor)) => tensor,
        Some(Err(failure)) => {
            let failure = *failure;
            session.restore(&failure);
            return Err(failure);
        }
        None => return Err(session.shared.missing("a fetch of a tensor that was never made", origin, None)),
    };
    let started = caught(|| backend.start_read(tensor, offset_bytes as usize, host_range(&range)));
    let fence = started.map_err(|error| failure(error, origin, None))?;
    Ok(fence.map(|fence| InFlightTransfer::new(fence, Some(range))))
}

fn write<B: Backend>(
    backend: &mut B,
    session: &mut SessionTensors<B::Tensor>,
    origin: TensorId,
    id: TensorId,
    offset_bytes: u64,
    from: &ArenaRange,
) -> Result<Option<InFlightTransfer>, Failure> {
    let range = session.shared.range(from).ok_or_else(|| defect("a write from no arena", origin, None))?;
    let Some(tensor) = session.get_mut(id) else {
        return Err(session.shared.missing("a write to a tensor that was never made", origin, None));
    };
    let made = tensor.as_mut().map_err(|failure| *failure)?;
    let started = caught(|| backend.start_write(made, offset_bytes as usize, host_range(&range)));
    match started {
        Ok(fence) => Ok(fence.map(|fence| InFlightTransfer::new(fence, Some(range)))),
        Err(error) => {
            let failure = failure(error, origin, None);
            *tensor = Err(failure);
            Err(failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::WorkerTensor;
    use gt_backend::{HostRange, MemoryStats, MemoryUsage};
    use gt_ops::{Attrs, DType, Inputs, Op, Shape};
    use gt_shm::Arena;
    use std::ptr::NonNull;

    /// A backend whose tensors count how often they were added to themselves, and whose `exp` panics.
    #[derive(Default)]
    struct Fake {
        is_cancelled: bool,
        last_uses: Vec<u8>,
        tf32: bool,
        /// Whether TF32 was allowed for each product, in order.
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
            if self.is_cancelled {
                return Err(ExecError::Cancelled);
            }
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
            // SAFETY: `fetch` below passes a range of four bytes in an arena that it keeps mapped for writing.
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
        fn cancelled_by(&mut self, cancellation: &Arc<Cancellation>, label: u64) {
            self.is_cancelled = cancellation.covers(label);
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
        Command::Op(Instruction {
            op,
            out,
            inputs: Inputs::from_slice(&inputs),
            last_use,
            attrs,
            tf32: false,
            replaces: None,
        })
    }

    fn core() -> (Core<Fake>, Arc<SessionShared>) {
        let mut core = Core::new(Fake::default(), 0);
        let shared = Arc::new(SessionShared::new(Arc::new(MemoryUsage::new(1)), None));
        core.open(0, shared.clone());
        core.run(0, 1, &instruction(Op::Full, at(1), &[], 0), Some(&meta())).unwrap();
        (core, shared)
    }

    fn fetch(core: &mut Core<Fake>, shared: &SessionShared, id: TensorId) -> Result<u32, Failure> {
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
    fn each_product_tells_the_backend_whether_tf32_is_allowed() {
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
    fn an_operand_is_dropped_after_its_last_use_and_offered_for_reuse_unless_it_is_named_twice() {
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
    fn queued_steps_of_a_session_that_has_ended_are_skipped() {
        let (mut core, shared) = core();
        shared.cancellation.cancel_all();
        let result = core.run(0, 2, &instruction(Op::Neg, at(2), &[at(1)], 0), None);
        assert_eq!(result.unwrap_err().fault, Fault::Internal);
        assert_eq!(core.backend.last_uses, [0]);
        core.close(0);
        assert!(core.run(0, 3, &Command::Sync { token: 1 }, None).is_err());
    }

    #[test]
    fn interrupted_instructions_poison_their_results_and_later_ones_run() {
        let (mut core, shared) = core();
        shared.cancellation.cancel_below(3);
        let failure = Failure { fault: Fault::Interrupted, instruction: 2, op: Some(Op::Neg) };
        assert_eq!(core.run(0, 2, &instruction(Op::Neg, at(2), &[at(1)], 0), None), Err(failure));
        core.run(0, 3, &instruction(Op::Neg, at(3), &[at(1)], 0), None).unwrap();
        assert_eq!(core.run(0, 4, &instruction(Op::Add, at(4), &[at(2), at(3)], 0), None), Err(failure));
        // Tensors that were made before stay, and frees take effect.
        assert_eq!(fetch(&mut core, &shared, at(1)), Ok(0));
        core.run(0, 2, &Command::Free { ids: [at(1), 0, 0, 0, 0, 0, 0] }, None).unwrap();
        assert_eq!(fetch(&mut core, &shared, at(1)).unwrap_err().fault, Fault::Internal);
        assert_eq!(fetch(&mut core, &shared, at(3)), Ok(1));
    }

    /// An in-place addition to the first operand.
    fn in_place(out: TensorId, operands: &[TensorId]) -> Command {
        let mut command = instruction(Op::Add, out, operands, 1);
        if let Command::Op(instruction) = &mut command {
            instruction.replaces = Some(0);
        }
        command
    }

    #[test]
    fn an_in_place_operation_that_fails_is_reported_once_and_changes_nothing() {
        let (mut core, shared) = core();
        let failure = Failure { fault: Fault::Internal, instruction: 2, op: Some(Op::Exp) };
        core.run(0, 2, &instruction(Op::Exp, at(2), &[at(1)], 0), Some(&meta())).unwrap_err();
        assert_eq!(core.run(0, 3, &in_place(at(3), &[at(1), at(2)]), None), Err(failure));
        // The next one is not carried out before the program hears of the failure.
        assert_eq!(core.run(0, 4, &in_place(at(4), &[at(3), at(3)]), None), Err(failure));
        let derived = instruction(Op::Neg, at(5), &[at(4)], 0);
        assert_eq!(core.run(0, 5, &derived, None), Err(failure));
        assert_eq!(fetch(&mut core, &shared, at(5)), Err(failure));
        assert_eq!(fetch(&mut core, &shared, at(4)), Ok(0));
        // Only the in-place operations kept elements.
        assert_eq!(fetch(&mut core, &shared, at(5)), Err(failure));
        assert_eq!(fetch(&mut core, &shared, at(1)).unwrap_err().fault, Fault::Internal);
    }

    #[test]
    fn a_cancelled_in_place_operation_leaves_the_old_elements() {
        let (mut core, shared) = core();
        shared.cancellation.cancel_below(3);
        assert_eq!(core.run(0, 2, &in_place(at(2), &[at(1), at(1)]), None).unwrap_err().fault, Fault::Interrupted);
        assert_eq!(fetch(&mut core, &shared, at(2)), Ok(0));
        core.run(0, 3, &in_place(at(3), &[at(2), at(2)]), None).unwrap();
        assert_eq!(fetch(&mut core, &shared, at(3)), Ok(1));
    }

    #[test]
    fn an_id_of_another_generation_finds_nothing() {
        let (mut core, shared) = core();
        let reused = WorkerTensor::new(1, 2).id();
        assert_eq!(fetch(&mut core, &shared, reused).unwrap_err().fault, Fault::Internal);
        core.run(0, 2, &Command::Free { ids: [reused, 0, 0, 0, 0, 0, 0] }, None).unwrap();
        assert_eq!(fetch(&mut core, &shared, at(1)), Ok(0));
        core.run(0, 2, &Command::Free { ids: [at(1), 0, 0, 0, 0, 0, 0] }, None).unwrap();
        core.trim();
        assert!(core.sessions[0].as_ref().unwrap().is_empty());
    }
}
