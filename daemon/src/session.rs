//! A session: what its client submitted, validated as if hostile, and turned into steps for its worker.
//!
//! Nothing here waits. Whatever a client may not do ends its session with a [`Violation`]; what goes wrong while
//! computing is no violation but a failure, which travels with the tensors.

use crate::fair_queue::{CostCorrection, SessionShare, VISIT_NS};
use crate::modifiers::pipeline::{Pipeline, SessionWorkers};
use crate::modifiers::stream_modifier::MODIFIER_ID_MIN;
use crate::signals::Signals;
use crate::table::{Content, TensorTable, WorkerTensor};
use crate::tape::Tape;
use crate::worker::fusion_window::{FusionWindow, is_fusible, is_large};
use crate::worker::groups::Groups;
use crate::worker::reshard::traffic;
use crate::worker::step::{Report, SessionSlot, Step, Submission, completes, subject};
use crate::worker::worker_link::WorkerLink;
use gt_backend::MemoryUsage;
use gt_ops::cost::{Cost, cost};
use gt_ops::failure::{Failure, Fault, MemoryScope, WorkerEnd, WorkerName};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::text::{Event, EventKind, NO_WORKER, Subject};
use gt_ops::wire::{ArenaRange, Command, Completion, FREE_IDS_MAX, SLOTS_MAX, Slot, WireError, decode, slots_of};
use gt_ops::{Instruction, OpError, Operand, Placement, TensorId, Workers};
use gt_protocol::limits::{ARENA_BYTES_MIN, ARENAS_PER_SESSION_MAX, TENSORS_PER_SESSION_MAX};
use gt_protocol::{CollectiveTraffic, PlacementInfo, PlacementLayout, Quota, RefusalCode, Refused, SessionStatus};
use gt_shm::port::POP_SLOTS_MAX;
use gt_shm::{Arena, Corrupt, DaemonPort, SessionState};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

/// Estimated time an instruction takes besides its arithmetic and memory traffic, nanoseconds.
const STEP_NS: u64 = 200;
/// The rate at which transfers between arenas and tensors are estimated, bytes a nanosecond.
const TRANSFER_BYTES_PER_NS: u64 = 8;
/// No step is estimated to take longer, nanoseconds: one that fails at once for want of memory would otherwise cost its
/// session its share for hours.
const STEP_NS_MAX: u64 = 1_000_000_000;
/// After a step of this estimate the clock is read again, nanoseconds.
const TICK_COST_NS: u64 = 2_000;
/// What a command takes of a turn besides, nanoseconds: even one that computes nothing takes time to read.
const COMMAND_NS: i64 = 50;
/// The clock is read after so many commands of a turn, lest many short ones that were estimated wrong make it long.
const TICK_COMMANDS: u64 = 64;
/// No turn is longer while others have work, nanoseconds, unless a single step is.
const TURN_NS_MAX: u64 = 2 * VISIT_NS;

/// What a client must not do.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// The ring's cursor.
    #[error("its submission ring is corrupt: {0}")]
    Ring(#[from] Corrupt),
    /// Slots that are no command.
    #[error("it sent slots that are no command: {0}")]
    Wire(#[from] WireError),
    /// A shape or dtype rule.
    #[error("it sent an instruction that its client library should have refused: {0}")]
    Rule(OpError),
    /// An id that names nothing.
    #[error("it named tensor {0}, which does not exist")]
    UnknownTensor(TensorId),
    /// Ids that do not grow.
    #[error("it defined tensor {id} after tensor {last}: ids must grow")]
    IdNotIncreasing {
        /// The id.
        id: TensorId,
        /// The largest so far.
        last: TensorId,
    },
    /// An id of the modifiers'.
    #[error("it defined tensor {0}: ids stay below 2^63")]
    IdTooLarge(TensorId),
    /// Use of a tensor that is not all there.
    #[error("it used tensor {0} before all its bytes were written")]
    Unwritten(TensorId),
    /// A write that no upload expects.
    #[error("it wrote {len} bytes at {offset} of tensor {id}, where {expected} was next of {bytes}")]
    Write {
        /// The tensor.
        id: TensorId,
        /// Where.
        offset: u64,
        /// How many.
        len: u64,
        /// Where the upload stands; the size if it is complete.
        expected: u64,
        /// The size.
        bytes: u64,
    },
    /// A fetch of what is not in the tensor.
    #[error("it fetched {len} bytes at {offset} of tensor {id}, which has {bytes}")]
    Fetch {
        /// The tensor.
        id: TensorId,
        /// Where.
        offset: u64,
        /// How many.
        len: u64,
        /// The size.
        bytes: u64,
    },
    /// A transfer that cuts an element.
    #[error("it transferred parts of elements of tensor {0}")]
    CutElement(TensorId),
    /// An arena range that was not granted.
    #[error("it named bytes {}..+{} of arena {}, which it does not have", .0.offset_bytes, .0.len_bytes, .0.segment)]
    Arena(ArenaRange),
    /// More tensors than a session may have.
    #[error("it holds {TENSORS_PER_SESSION_MAX} tensors, and no more are allowed: free some")]
    TooManyTensors,
    /// A completion asked for twice at one time.
    #[error("it asked for the completion {0} again before it came")]
    TokenInUse(u64),
    /// A command that only workers are sent.
    #[error("it asked where tensors should lie in the words of a worker's stream")]
    Reshard,
    /// More completions asked for than its ring holds.
    #[error("it asked for more completions than its ring holds")]
    TooManyInFlight,
    /// No completion fits though few are in flight.
    #[error("its completion ring is corrupt")]
    Completions,
}

/// What a visit needs besides the session.
pub struct Context<'a> {
    /// The workers.
    pub links: &'a mut [Box<dyn WorkerLink>],
    /// The groups in which they move tensors.
    pub groups: &'a mut Groups,
    /// What rewrites the steps.
    pub pipeline: &'a mut Pipeline,
    /// Where events go.
    pub tape: &'a mut Tape,
    /// Room for the shapes of operands.
    pub metas: &'a mut Vec<InputMeta>,
    /// How many workers there are.
    pub workers: usize,
    /// Expected time of what workers may have queued, nanoseconds.
    pub queued_ns_max: u64,
}

/// What a visit is to be charged for besides the time it took, and what is to be learned from that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bill {
    /// Expected time of what was queued, a part of all workers' time, nanoseconds.
    pub queued_ns: f64,
    /// Estimated time of what was done at once, nanoseconds.
    done_ns: u64,
    commands: u64,
}

/// Slots that were copied from the ring and not yet taken in. A command may straddle two copies.
struct SubmittedSlots {
    slots: Box<[Slot]>,
    start: usize,
    end: usize,
}

impl SubmittedSlots {
    fn new() -> SubmittedSlots {
        SubmittedSlots { slots: vec![[0; 8]; POP_SLOTS_MAX + SLOTS_MAX].into_boxed_slice(), start: 0, end: 0 }
    }
    fn len(&self) -> usize {
        self.end - self.start
    }
}

/// One client's session.
pub struct Session {
    slot: SessionSlot,
    /// Those that it computes on, since it began; some may have left.
    workers: Workers,
    /// Where its tensors are unless something says otherwise.
    worker: u16,
    port: DaemonPort,
    pending: SubmittedSlots,
    tensors: TensorTable,
    /// What it may have.
    quota: Quota,
    /// In whose name workers hold its tensors.
    usage: Arc<MemoryUsage>,
    /// How often something did not fit.
    out_of_memory: u64,
    /// Where there are several workers, for each completion: how many parts are to come, and what has failed.
    parts: HashMap<u64, (u32, Result<(), Failure>)>,
    signals: Signals,
    /// What each worker was asked to tell others.
    traffic: BTreeMap<(usize, &'static str), CollectiveTraffic>,
    last_id: TensorId,
    completions_in_flight: u32,
    arena_bytes: Vec<u64>,
    arena_bytes_total: u64,
    /// What it had of the devices, beside others.
    pub share: SessionShare,
    /// How long its steps take beside what is estimated.
    correction: CostCorrection,
    /// What is left of its turn, expected nanoseconds. Negative after a long step.
    budget_ns: i64,
    bill: Bill,
    /// When something was last submitted, in the tape's time.
    pub last_work_ns: u64,
    /// True while the doorbell is asked for.
    pub asleep: bool,
    /// True if the last visit ended because the worker has enough to do, or because as much is queued for this session
    /// as may be.
    pub blocked: bool,
    /// True if the last visit ended because the turn was over.
    pub spent: bool,
    /// Room for what modifiers make of a step.
    rewritten: Vec<Step>,
    /// Steps that are handed to the worker together, before this visit ends.
    group: Vec<Step>,
    /// The instructions among them, if they can be fused.
    window: FusionWindow,
    instructions: u64,
    queued: u64,
    since: SystemTime,
}

impl Session {
    /// A session on `workers`, which are behind `links`, at home at one of them.
    #[expect(clippy::too_many_arguments, reason = "all that the dispatcher knows of a session when it begins")]
    pub fn new(
        slot: SessionSlot,
        workers: Workers,
        worker: u16,
        port: DaemonPort,
        quota: Quota,
        usage: Arc<MemoryUsage>,
        share: SessionShare,
        links: &mut [Box<dyn WorkerLink>],
    ) -> Session {
        for worker in workers.iter() {
            links[worker].open(slot, &usage);
        }
        Session {
            slot,
            workers,
            worker,
            port,
            pending: SubmittedSlots::new(),
            tensors: TensorTable::new(worker as usize),
            quota,
            usage,
            out_of_memory: 0,
            parts: HashMap::new(),
            signals: Signals::default(),
            traffic: BTreeMap::new(),
            last_id: 0,
            completions_in_flight: 0,
            arena_bytes: Vec::new(),
            arena_bytes_total: 0,
            share,
            correction: CostCorrection::default(),
            budget_ns: 0,
            bill: Bill::default(),
            last_work_ns: 0,
            asleep: false,
            blocked: false,
            spent: false,
            rewritten: Vec::new(),
            group: Vec::new(),
            window: FusionWindow::default(),
            instructions: 0,
            queued: 0,
            since: SystemTime::now(),
        }
    }

    /// The session, as its workers know it.
    pub fn slot(&self) -> SessionSlot {
        self.slot
    }

    /// Those that it computes on, since it began; some may have left.
    pub fn workers(&self) -> Workers {
        self.workers
    }

    /// What it has of the workers that are there.
    pub fn present(&self, there: Workers) -> SessionWorkers {
        SessionWorkers { workers: self.workers.and(there), several: self.workers.len() > 1 }
    }

    /// The number of the worker where it is at home.
    pub fn worker(&self) -> u16 {
        self.worker
    }

    /// The rings.
    pub fn port(&mut self) -> &mut DaemonPort {
        &mut self.port
    }

    /// True if something waits to be taken in: two loads.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.pending.len() > 0 && !self.is_partial() || self.port.has_work()
    }

    /// True if what is left is the beginning of a command whose rest has not come.
    fn is_partial(&self) -> bool {
        let p = &self.pending;
        p.len() > 0 && slots_of(&p.slots[p.start]).is_ok_and(|needed| needed > p.len())
    }

    /// True while steps are queued at the worker.
    pub fn is_draining(&self) -> bool {
        self.queued > 0
    }

    /// Takes in what was submitted, as far as the session's share and the worker's queue allow. True if it was
    /// anything.
    ///
    /// # Errors
    /// What the client must not do: the session is over.
    pub fn visit(&mut self, cx: &mut Context<'_>) -> Result<bool, Violation> {
        self.budget_ns = VISIT_NS as i64;
        self.bill = Bill::default();
        let served = self.take_all(cx)?;
        self.submit_group(cx)?;
        Ok(served)
    }

    /// What the last visit is to be charged for, after it took so long.
    pub fn bill(&mut self, took_ns: u64) -> f64 {
        let Bill { queued_ns, done_ns, commands } = self.bill;
        if done_ns > 0 {
            self.correction.learn(done_ns, took_ns.saturating_sub(commands * COMMAND_NS as u64));
        }
        queued_ns + took_ns as f64
    }

    fn take_all(&mut self, cx: &mut Context<'_>) -> Result<bool, Violation> {
        (self.blocked, self.spent) = (false, false);
        let mut served = false;
        let begun_ns = cx.tape.now_ns();
        loop {
            if !self.fill()? {
                return Ok(served);
            }
            self.last_work_ns = cx.tape.now_ns();
            while self.pending.len() > 0 {
                let start = self.pending.start;
                let needed = slots_of(&self.pending.slots[start])?;
                if needed > self.pending.len() {
                    break;
                }
                let queue_is_long = self.quota.queued > 0 && self.queued >= self.quota.queued.into();
                if queue_is_long || cx.links.iter_mut().any(|link| link.is_full(cx.queued_ns_max)) {
                    self.blocked = true;
                    return Ok(served);
                }
                if self.budget_ns <= 0 || cx.tape.now_ns() - begun_ns >= TURN_NS_MAX {
                    self.spent = true;
                    return Ok(served);
                }
                let command = decode(&self.pending.slots[start..start + needed])?;
                self.pending.start = start + needed;
                self.take_in(command, needed, cx)?;
                served = true;
            }
        }
    }

    /// Copies more slots from the ring unless a whole command is there. False if there is no whole command.
    fn fill(&mut self) -> Result<bool, Violation> {
        let p = &mut self.pending;
        if p.start == p.end {
            (p.start, p.end) = (0, self.port.pop(&mut p.slots)?);
            return Ok(p.end > 0 && slots_of(&p.slots[0])? <= p.end);
        }
        if slots_of(&p.slots[p.start])? <= p.len() {
            return Ok(true);
        }
        p.slots.copy_within(p.start..p.end, 0);
        (p.start, p.end) = (0, p.end - p.start);
        p.end += self.port.pop(&mut p.slots[p.end..])?;
        Ok(slots_of(&p.slots[0])? <= p.end)
    }

    fn take_in(&mut self, command: Command, slots: usize, cx: &mut Context<'_>) -> Result<(), Violation> {
        tracing::debug!(target: "gtd::dispatcher", session = self.slot.session, ?command, "received");
        self.instructions += 1;
        self.budget_ns -= COMMAND_NS;
        self.bill.commands += 1;
        if self.bill.commands.is_multiple_of(TICK_COMMANDS) {
            cx.tape.tick();
        }
        let wire_bytes = slots as u64 * 64;
        match command {
            Command::Op(instruction) => self.op(instruction, wire_bytes, cx),
            Command::Free { ids } => self.free(ids, wire_bytes, cx),
            Command::Allocate { out, meta } => {
                self.check_new(out)?;
                self.event(cx, EventKind::Recv, NO_WORKER, Subject::Allocate, wire_bytes, [out, 0, 0]);
                let at = self.tensors.insert(out, meta, Content::Defined);
                if let (Some(tensor), true) = (self.tensors.get_mut(out), meta.bytes() > 0) {
                    tensor.content = Content::Uploading(0);
                }
                let command = Command::Allocate { out: at.id(), meta };
                let step = self.step(out, command, STEP_NS, wire_bytes);
                self.send(Step { out: Some(meta), requested: self.signals.requested(), ..step }, cx)
            }
            Command::Write { token, id, offset_bytes, from } => {
                self.event(cx, EventKind::Recv, NO_WORKER, Subject::Write, from.len_bytes, [id, 0, 0]);
                self.check_arena(&from)?;
                let tensor = self.tensors.get_mut(id).ok_or(Violation::UnknownTensor(id))?;
                let len = from.len_bytes;
                let (expected, bytes) = match tensor.content {
                    Content::Uploading(next) => (next, tensor.bytes),
                    Content::Defined => (tensor.bytes, tensor.bytes),
                };
                let end = offset_bytes.checked_add(len).filter(|end| *end <= bytes);
                // A tensor without elements is complete from the start; a write of nothing to it is no offence.
                let open = tensor.content != Content::Defined || bytes == 0;
                let Some(end) = end.filter(|_| offset_bytes == expected && open) else {
                    return Err(Violation::Write { id, offset: offset_bytes, len, expected, bytes });
                };
                if len % tensor.meta.dtype.size() as u64 != 0 {
                    return Err(Violation::CutElement(id));
                }
                tensor.content = if end == bytes { Content::Defined } else { Content::Uploading(end) };
                let command = Command::Write { token, id: tensor.at.id(), offset_bytes, from };
                let cost_ns = STEP_NS + len / TRANSFER_BYTES_PER_NS;
                self.expect_completion()?;
                let step = self.step(id, command, cost_ns, len);
                self.send(Step { token, ..step }, cx)
            }
            Command::Fetch { token, id, offset_bytes, to } => {
                self.event(cx, EventKind::Recv, NO_WORKER, Subject::Fetch, to.len_bytes, [id, 0, 0]);
                self.check_arena(&to)?;
                let tensor = self.tensors.get(id).ok_or(Violation::UnknownTensor(id))?;
                if tensor.content != Content::Defined {
                    return Err(Violation::Unwritten(id));
                }
                let (len, bytes) = (to.len_bytes, tensor.bytes);
                if offset_bytes.checked_add(len).is_none_or(|end| end > bytes) {
                    return Err(Violation::Fetch { id, offset: offset_bytes, len, bytes });
                }
                let size = tensor.meta.dtype.size() as u64;
                if offset_bytes % size != 0 || len % size != 0 {
                    return Err(Violation::CutElement(id));
                }
                let command = Command::Fetch { token, id: tensor.at.id(), offset_bytes, to };
                let cost_ns = STEP_NS + len / TRANSFER_BYTES_PER_NS;
                self.expect_completion()?;
                let step = self.step(id, command, cost_ns, len);
                self.send(Step { token, ..step }, cx)
            }
            Command::Sync { token } => {
                self.event(cx, EventKind::Recv, NO_WORKER, Subject::Sync, wire_bytes, [0; 3]);
                self.expect_completion()?;
                let step = self.step(0, Command::Sync { token }, STEP_NS, wire_bytes);
                self.send(Step { token, ..step }, cx)
            }
            Command::Signal { signal } => {
                self.event(cx, EventKind::Recv, NO_WORKER, Subject::Signal, wire_bytes, [signal.into(), 0, 0]);
                self.signals.enter(signal);
                Ok(())
            }
            Command::DefineSignal { signal, requested } => {
                self.event(cx, EventKind::Recv, NO_WORKER, Subject::DefineSignal, wire_bytes, [signal.into(), 0, 0]);
                self.signals.define(signal, requested.among(self.workers));
                Ok(())
            }
            Command::Reshard(_) => Err(Violation::Reshard),
        }
    }

    fn op(&mut self, mut instruction: Instruction, wire_bytes: u64, cx: &mut Context<'_>) -> Result<(), Violation> {
        let (op, out) = (instruction.op, instruction.out);
        self.check_new(out)?;
        cx.metas.clear();
        let mut operands = [0; 2];
        let mut named = 0;
        for operand in instruction.inputs.as_mut_slice() {
            cx.metas.push(match operand {
                Operand::Scalar(number) => InputMeta::Scalar(*number),
                Operand::Tensor(id) => {
                    let tensor = self.tensors.get(*id).ok_or(Violation::UnknownTensor(*id))?;
                    if tensor.content != Content::Defined {
                        return Err(Violation::Unwritten(*id));
                    }
                    if named < 2 {
                        operands[named] = *id;
                        named += 1;
                    }
                    *id = tensor.at.id();
                    InputMeta::Tensor(tensor.meta)
                }
            });
        }
        let [left, right] = operands;
        self.event(cx, EventKind::Recv, NO_WORKER, Subject::Op(op), wire_bytes, [out, left, right]);
        let meta = infer(op, cx.metas, &instruction.attrs).map_err(Violation::Rule)?;
        let tensors = cx.metas.iter().filter_map(|input| match input {
            InputMeta::Tensor(meta) => Some(meta),
            InputMeta::Scalar(_) => None,
        });
        let (gflops, gbytes_per_s) = cx.links[self.worker as usize].rates();
        let cost = cost(op, tensors, &meta);
        let cost_ns = cost.nanoseconds(gflops, gbytes_per_s, STEP_NS);
        instruction.out = self.tensors.insert(out, meta, Content::Defined).id();
        let used_up = if cx.pipeline.is_empty() { 0 } else { std::mem::take(&mut instruction.last_use) };
        if instruction.last_use != 0 {
            self.consume(&instruction, cx);
        }
        let dtype = cx.metas.iter().find_map(|input| input.tensor().map(|meta| meta.dtype));
        let arithmetic = || Cost { bytes: 0, ..cost }.nanoseconds(gflops, gbytes_per_s, STEP_NS);
        let fused_ns = dtype.filter(|dtype| is_fusible(&instruction, *dtype)).map(|_| arithmetic());
        let last = self.names_of(&instruction, used_up);
        let step = self.step(out, Command::Op(instruction), cost_ns, wire_bytes);
        let requested = self.signals.requested();
        self.send(Step { operands, out: Some(meta), fused_ns, requested, ..step }, cx)?;
        if last.is_empty() { Ok(()) } else { self.let_go(&last, cx) }
    }

    /// What the client calls the operands that `mask` marks, each once.
    fn names_of(&self, instruction: &Instruction, mask: u8) -> Vec<TensorId> {
        let mut names = Vec::new();
        for (i, operand) in instruction.inputs.as_slice().iter().enumerate().take(8) {
            if let (1, Operand::Tensor(at)) = (mask >> i & 1, operand)
                && let Some(tensor) = self.tensors.get_at(WorkerTensor::from_id(*at))
                && !names.contains(&tensor.id)
            {
                names.push(tensor.id);
            }
        }
        names
    }

    /// Frees tensors wherever they lie.
    fn let_go(&mut self, ids: &[TensorId], cx: &mut Context<'_>) -> Result<(), Violation> {
        let mut gone: Vec<(Workers, TensorId)> = Vec::new();
        for id in ids {
            let tensor = self.tensors.remove(*id).ok_or(Violation::UnknownTensor(*id))?;
            self.event(cx, EventKind::Free, self.worker, Subject::Free, tensor.bytes, [*id, 0, 0]);
            gone.push((tensor.placement.workers(), tensor.at.id()));
            let mut copy = tensor.copy;
            while let Some(tensor) = self.tensors.remove(copy) {
                gone.push((tensor.placement.workers(), tensor.at.id()));
                copy = tensor.copy;
            }
        }
        gone.sort_by_key(|(workers, _)| workers.bits());
        for alike in gone.chunk_by(|one, other| one.0 == other.0) {
            for few in alike.chunks(FREE_IDS_MAX) {
                let mut ids = [0; FREE_IDS_MAX];
                ids.iter_mut().zip(few).for_each(|(id, (_, at))| *id = *at);
                let step = self.step(0, Command::Free { ids }, STEP_NS, 64);
                self.send(Step { workers: alike[0].0, ..step }, cx)?;
            }
        }
        Ok(())
    }

    /// The last use of an operand frees it: the worker drops it after the instruction, and it has no name any more.
    fn consume(&mut self, instruction: &Instruction, cx: &mut Context<'_>) {
        for (i, operand) in instruction.inputs.as_slice().iter().enumerate().take(8) {
            if let (1, Operand::Tensor(at)) = (instruction.last_use >> i & 1, operand)
                && let Some((id, tensor)) = self.tensors.remove_at(WorkerTensor::from_id(*at))
            {
                self.event(cx, EventKind::Free, self.worker, Subject::Free, tensor.bytes, [id, 0, 0]);
            }
        }
    }

    fn free(
        &mut self,
        mut ids: [TensorId; FREE_IDS_MAX],
        wire_bytes: u64,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let first = ids[0];
        self.event(cx, EventKind::Recv, NO_WORKER, Subject::Free, wire_bytes, [first, ids[1], ids[2]]);
        if !cx.pipeline.is_empty() {
            let named = ids.iter().copied().filter(|id| *id != 0).collect::<Vec<_>>();
            return self.let_go(&named, cx);
        }
        for id in ids.iter_mut().filter(|id| **id != 0) {
            let tensor = self.tensors.remove(*id).ok_or(Violation::UnknownTensor(*id))?;
            self.event(cx, EventKind::Free, self.worker, Subject::Free, tensor.bytes, [*id, 0, 0]);
            *id = tensor.at.id();
        }
        self.send(self.step(first, Command::Free { ids }, STEP_NS, wire_bytes), cx)
    }

    /// A step that moves no bytes, makes no tensor and completes nothing. Made where it stays: it is large, and to move
    /// it is to copy it.
    #[inline(always)]
    fn step(&self, origin: TensorId, command: Command, cost_ns: u64, bytes: u64) -> Step {
        let cost_ns = cost_ns.min(STEP_NS_MAX);
        Step {
            owner: self.slot,
            workers: Workers::one(self.worker as usize),
            divided: false,
            requested: None,
            origin,
            token: 0,
            operands: [0; 2],
            command,
            out: None,
            fused_ns: None,
            cost_ns,
            expected_ns: cost_ns,
            bytes,
        }
    }

    #[inline(always)]
    fn send(&mut self, mut step: Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        if cx.pipeline.is_empty() { self.submit(&mut step, cx) } else { self.rewrite(step, cx) }
    }

    /// Sends what modifiers make of a step.
    fn rewrite(&mut self, step: Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        let (token, awaited) = (step.token, completes(subject(&step.command)));
        let mut steps = std::mem::take(&mut self.rewritten);
        cx.pipeline.process(step, &mut self.tensors, &mut steps);
        if awaited {
            let of_it = steps.iter().filter(|step| completes(subject(&step.command)));
            let parts = of_it.map(|step| step.workers.len() as u32).sum();
            if self.parts.insert(token, (parts, Ok(()))).is_some() {
                return Err(Violation::TokenInUse(token));
            }
        }
        for mut step in steps.drain(..) {
            self.submit(&mut step, cx)?;
        }
        self.rewritten = steps;
        Ok(())
    }

    /// Sends a step to the worker, or adds it to the group, which is sent before the first step that does not join it,
    /// or at the end of the visit.
    #[inline]
    fn submit(&mut self, step: &mut Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        if !self.group.is_empty() {
            if self.joins_group(step) {
                let cost_ns = step.fused_ns.unwrap_or(step.cost_ns);
                self.group.push(Step { cost_ns, ..step.clone() });
                return Ok(());
            }
            self.submit_group(cx)?;
        }
        if let (Command::Op(instruction), Some(out)) = (&step.command, step.out.filter(is_large)) {
            self.window.clear();
            if step.fused_ns.is_some() {
                self.window.push(instruction, out);
            }
            self.group.push(step.clone());
            return Ok(());
        }
        self.submit_alone(step, cx)
    }

    /// Whether a step is handed over with the group: a free, which tells that a result need not be kept, or an
    /// instruction that can be fused with those of the group.
    fn joins_group(&mut self, step: &Step) -> bool {
        let Some(first) = self.group.first().filter(|first| first.workers == step.workers) else { return false };
        match (&step.command, step.out, step.fused_ns) {
            (Command::Free { .. }, ..) => true,
            (Command::Op(instruction), Some(out), Some(_)) => {
                first.divided == step.divided && !self.window.is_empty() && self.window.push(instruction, out)
            }
            _ => false,
        }
    }

    #[inline]
    fn submit_alone(&mut self, step: &mut Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        self.sent(step, cx);
        let step = &*step;
        if let Command::Reshard(relocation) = &step.command {
            cx.groups.form(step.workers, cx.links);
            for worker in step.workers.iter() {
                if let Some((operation, bytes)) = traffic(relocation, worker) {
                    let done = self.traffic.entry((worker, operation.name())).or_default();
                    done.count += 1;
                    done.bytes += bytes;
                }
            }
        }
        for worker in step.workers.iter() {
            let Some(link) = cx.links.get_mut(worker) else { continue };
            match link.submit(step) {
                Submission::Queued => self.was_queued(step, cx.workers),
                Submission::Done(result) => {
                    self.bill.done_ns += step.cost_ns;
                    if step.cost_ns >= TICK_COST_NS {
                        cx.tape.tick();
                    }
                    self.finished(&step.report(result), worker as u16, cx.links, cx.tape)?;
                }
            }
        }
        Ok(())
    }

    /// Sends what is kept to the worker.
    fn submit_group(&mut self, cx: &mut Context<'_>) -> Result<(), Violation> {
        if self.group.len() < 2 {
            return self.group.pop().map_or(Ok(()), |mut step| self.submit_alone(&mut step, cx));
        }
        let mut group = std::mem::take(&mut self.group);
        for step in &mut group {
            self.sent(step, cx);
        }
        let workers = group.first().map_or(Workers::NONE, |step| step.workers);
        for worker in workers.iter() {
            let Some(link) = cx.links.get_mut(worker) else { continue };
            let mut reports = Vec::new();
            if link.submit_all(&group, &mut |step, result| reports.push(step.report(result))) {
                cx.tape.tick();
                self.bill.done_ns += group.iter().map(|step| step.cost_ns).sum::<u64>();
                for report in reports {
                    self.finished(&report, worker as u16, cx.links, cx.tape)?;
                }
            } else {
                let workers = cx.workers;
                group.iter().for_each(|step| self.was_queued(step, workers));
            }
        }
        group.clear();
        self.group = group;
        Ok(())
    }

    /// Accounts for a step that goes to the worker now.
    #[inline]
    fn sent(&mut self, step: &mut Step, cx: &mut Context<'_>) {
        step.expected_ns = self.correction.expect(step.cost_ns);
        // A session's share is one of all workers.
        self.budget_ns -= step.expected_ns as i64 * step.workers.len() as i64 / cx.workers as i64;
        let subject = subject(&step.command);
        // A free is on the tape already, once for each tensor.
        if subject != Subject::Free {
            let [left, right] = step.operands;
            for worker in step.workers.iter() {
                let about = [step.origin, left, right];
                self.event(cx, EventKind::WorkerSend, worker as u16, subject, step.bytes, about);
            }
        }
    }

    #[inline]
    fn was_queued(&mut self, step: &Step, workers: usize) {
        self.queued += 1;
        self.bill.queued_ns += step.expected_ns as f64 / workers as f64;
    }

    /// How much more of one worker's time a step took than it was charged for, nanoseconds.
    pub fn correction(&mut self, report: &Report) -> f64 {
        if report.result.is_ok() {
            self.correction.learn(report.cost_ns, report.took_ns);
        }
        report.took_ns as f64 - report.expected_ns as f64
    }

    /// A step queued at `worker` has ended.
    ///
    /// # Errors
    /// If its completion does not fit: the client has scribbled over its cursor.
    pub fn reported(
        &mut self,
        report: &Report,
        worker: u16,
        links: &mut [Box<dyn WorkerLink>],
        tape: &mut Tape,
    ) -> Result<(), Violation> {
        self.queued -= 1;
        self.finished(report, worker, links, tape)
    }

    #[inline]
    fn finished(
        &mut self,
        report: &Report,
        worker: u16,
        links: &mut [Box<dyn WorkerLink>],
        tape: &mut Tape,
    ) -> Result<(), Violation> {
        let Report { subject, origin, token, bytes, mut result, .. } = *report;
        if subject == Subject::Free {
            return Ok(());
        }
        let session = self.slot.session;
        let event = |kind, worker| Event {
            time_ns: 0,
            kind,
            subject,
            worker,
            session,
            bytes,
            result: origin,
            left: 0,
            right: 0,
        };
        tape.write(event(EventKind::WorkerRecv, worker));
        let completes = completes(subject);
        if let Err(failure) = result {
            // What is poisoned by another's failure is not an error of its own.
            if failure.instruction == origin && subject != Subject::Fetch {
                if let Fault::OutOfMemory { requested, held, limit, scope } = failure.fault {
                    self.out_of_memory += 1;
                    // Not every one: a program that tries again and again fills no log.
                    if self.out_of_memory.is_power_of_two() {
                        let times = self.out_of_memory;
                        tracing::info!(
                            target: "gtd::dispatcher",
                            "session {session} has met a limit of memory {times} times: it asked for {requested} bytes, \
                             and {held} of {limit} are held by {}",
                            match scope {
                                MemoryScope::Worker => "all sessions",
                                MemoryScope::Session => "the session",
                                MemoryScope::User => "its user",
                            }
                        );
                    }
                }
                tape.write(event(EventKind::Error, worker));
                tracing::debug!(target: "gtd::worker", session, %origin, ?failure, "an instruction failed");
            }
        }
        if !completes {
            return Ok(());
        }
        if !self.parts.is_empty()
            && let Some((left, so_far)) = self.parts.get_mut(&token)
        {
            // The first failure is the one that is told.
            *left -= 1;
            *so_far = so_far.and(result);
            if *left > 0 {
                return Ok(());
            }
            result = *so_far;
            self.parts.remove(&token);
        }
        self.completions_in_flight -= 1;
        let result = result.map_err(|failure| named(failure, links));
        self.port.complete(Completion { token, result }.encode()).map_err(|_| Violation::Completions)?;
        self.port.flush_completions();
        tape.write(event(EventKind::Send, NO_WORKER));
        Ok(())
    }

    #[inline]
    fn event(
        &self,
        cx: &mut Context<'_>,
        kind: EventKind,
        worker: u16,
        subject: Subject,
        bytes: u64,
        [result, left, right]: [TensorId; 3],
    ) {
        let session = self.slot.session;
        cx.tape.write(Event { time_ns: 0, kind, subject, worker, session, bytes, result, left, right });
    }

    #[inline]
    fn check_new(&mut self, id: TensorId) -> Result<(), Violation> {
        if id <= self.last_id {
            return Err(Violation::IdNotIncreasing { id, last: self.last_id });
        }
        if id >= MODIFIER_ID_MIN {
            return Err(Violation::IdTooLarge(id));
        }
        if self.tensors.len() >= TENSORS_PER_SESSION_MAX {
            return Err(Violation::TooManyTensors);
        }
        self.last_id = id;
        Ok(())
    }

    fn check_arena(&self, range: &ArenaRange) -> Result<(), Violation> {
        let bytes = usize::try_from(range.segment).ok().and_then(|segment| self.arena_bytes.get(segment));
        match (bytes, range.offset_bytes.checked_add(range.len_bytes)) {
            (Some(bytes), Some(end)) if end <= *bytes => Ok(()),
            _ => Err(Violation::Arena(*range)),
        }
    }

    /// One more completion is to come: it must fit beside those to come and those not yet read.
    fn expect_completion(&mut self) -> Result<(), Violation> {
        if self.completions_in_flight >= self.port.free_completions() {
            return Err(Violation::TooManyInFlight);
        }
        self.completions_in_flight += 1;
        Ok(())
    }

    /// One more arena with room for a block of `bytes`: its number, its length and its descriptor. All
    /// sessions' arenas together leave room for `left` bytes.
    ///
    /// # Errors
    /// The session's limit is reached, or the system has no more.
    pub fn grow_arena(
        &mut self,
        bytes: u64,
        left: u64,
        links: &mut [Box<dyn WorkerLink>],
    ) -> Result<(u32, u64, Arc<OwnedFd>), Refused> {
        let held = self.arena_bytes_total;
        let limit = self.quota.arena_bytes;
        let wanted = bytes.max(ARENA_BYTES_MIN).max(held.min(ARENA_GROWTH_BYTES_MAX));
        // At the limit, what was asked for is given if it fits, without room for more.
        let granted = [wanted, bytes.max(ARENA_BYTES_MIN)]
            .into_iter()
            .filter_map(|bytes| bytes.checked_next_multiple_of(gt_shm::segment::PAGE_BYTES as u64))
            .find(|bytes| *bytes <= left && held.checked_add(*bytes).is_some_and(|total| total <= limit));
        let Some(granted) = granted.filter(|_| self.arena_bytes.len() < ARENAS_PER_SESSION_MAX as usize) else {
            let limit = limit.min(held.saturating_add(left));
            let text = format!("{bytes} more bytes of arena were asked for; {held} of {limit} are held");
            return Err(Refused::new(RefusalCode::ArenaLimit, text).with_limit(held, limit));
        };
        let (arena, fd) = Arena::create(granted).map_err(|error| {
            Refused::new(RefusalCode::Exhausted, format!("no arena of {granted} bytes: {error}"))
                .with_limit(held, limit)
        })?;
        let segment = self.arena_bytes.len() as u32;
        let len = arena.len();
        self.arena_bytes.push(len);
        self.arena_bytes_total += len;
        let fd = Arc::new(fd);
        for link in links {
            link.add_arena(self.slot, arena.clone(), &fd);
        }
        Ok((segment, len, fd))
    }

    /// It may have this from now on.
    pub fn set_quota(&mut self, quota: Quota, links: &mut [Box<dyn WorkerLink>]) {
        self.quota = quota;
        self.usage.set_limit(quota.session_memory_bytes);
        if let Some(user) = self.usage.group() {
            user.set_limit(quota.memory_bytes);
        }
        for link in links {
            link.limit(self.slot, &self.usage);
        }
    }

    /// How often something did not fit.
    pub fn out_of_memory(&self) -> u64 {
        self.out_of_memory
    }

    /// In whose name workers hold its tensors.
    pub fn usage(&self) -> &Arc<MemoryUsage> {
        &self.usage
    }

    /// Gives memory back that is only kept for reuse.
    pub fn trim(&mut self) {
        self.tensors.trim();
    }

    /// Bytes of its arenas.
    pub fn arena_bytes(&self) -> u64 {
        self.arena_bytes_total
    }

    /// Says how the session stands to its client.
    pub fn set_state(&mut self, state: SessionState) {
        self.port.set_state(state);
    }

    /// What `worker` has told others for this session.
    pub fn traffic(&self, worker: usize) -> BTreeMap<String, CollectiveTraffic> {
        let own = self.traffic.range((worker, "")..(worker + 1, ""));
        own.map(|((_, name), traffic)| ((*name).to_owned(), *traffic)).collect()
    }

    /// How the tensor called `id` lies on workers, of which `names` are those of all.
    pub fn placement(&self, id: TensorId, names: &[String]) -> Option<PlacementInfo> {
        let placement = self.tensors.get(id)?.placement;
        let (layout, axis, join) = match placement {
            Placement::Replicated { .. } => (PlacementLayout::Replicated, None, None),
            Placement::Sharded { axis, .. } => (PlacementLayout::Sharded, Some(axis), None),
            Placement::Partial { reduce_op, .. } => (PlacementLayout::Partial, None, Some(reduce_op.name().into())),
        };
        let workers = placement.workers().iter().filter_map(|worker| names.get(worker).cloned()).collect();
        Some(PlacementInfo { layout, workers, axis, join })
    }

    /// How many of the client's tensors lie in a way.
    pub fn count(&self, lies: impl Fn(&Placement) -> bool) -> u64 {
        self.tensors.iter().filter(|tensor| tensor.id < MODIFIER_ID_MIN && lies(&tensor.placement)).count() as u64
    }

    /// For the status document; the connection adds who it is.
    pub fn status(&self) -> SessionStatus {
        let since = self.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        SessionStatus {
            id: self.slot.session,
            tensors: self.tensors.len() as u64,
            tensor_bytes: self.tensors.bytes(),
            arena_bytes: self.arena_bytes_total,
            instructions: self.instructions,
            queued: self.queued,
            share: self.share.share(),
            device_s: self.share.device_s(),
            since: since.as_secs_f64(),
            ..SessionStatus::default()
        }
    }
}

/// An arena is made as large as all before it together, so that there are few, up to this many bytes.
const ARENA_GROWTH_BYTES_MAX: u64 = 1 << 30;

/// Says the name of a lost worker of which others knew the number, and how it ended.
#[cold]
fn named(failure: Failure, links: &mut [Box<dyn WorkerLink>]) -> Failure {
    let Fault::WorkerLost { worker, end } = failure.fault else { return failure };
    let Some(link) = worker.number().and_then(|number| links.get_mut(number)) else { return failure };
    let end = if end == WorkerEnd::Unknown { link.last_end().unwrap_or(end) } else { end };
    Failure { fault: Fault::WorkerLost { worker: WorkerName::new(&link.info().name), end }, ..failure }
}
