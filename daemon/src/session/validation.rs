//! Validation of a client's commands, and the steps that they become.

use super::handover::keeping_replaced;
use super::violation::Violation;
use super::{COMMAND_NS, Context, STEP_NS, Session};
use crate::hot_paths::plan::{CopiedSlots, PlannedInstruction, TENSORS_MAX};
use crate::hot_paths::{PathChange, PathEnd, PathStart};
use crate::modifiers::stream_modifier::MODIFIER_ID_MIN;
use crate::table::{Content, Refusal, RefusalReason, TensorEntry, WorkerTensor};
use crate::worker::fusion_window::is_fusible;
use crate::worker::step::Step;
use crate::worker::worker_link::WorkerLink;
use gt_ops::cost::{Cost, cost, part_cost};
use gt_ops::event::{EventKind, NO_WORKER, Subject};
use gt_ops::failure::{Failure, Fault, MemoryScope};
use gt_ops::infer::{InputMeta, infer};
use gt_ops::result_meta::ResultMeta;
use gt_ops::wire::{ArenaRange, Command, FREE_IDS_MAX};
use gt_ops::{Class, Instruction, Meta, Op, Operand, TensorId, Workers};
use gt_protocol::limits::{REFUSED_TENSORS_MAX, TENSORS_PER_SESSION_MAX};

/// The estimated rate of transfers between arenas and tensors, bytes a nanosecond.
const TRANSFER_BYTES_PER_NS: u64 = 8;
/// The largest estimate of a step, nanoseconds. Without it, a step that fails at once because memory is short could be
/// charged as hours of work, and other sessions would be served first for as long.
const STEP_NS_MAX: u64 = 1_000_000_000;
/// The tensors whose free is one event.
const FREED_BY_EVENT: usize = 3;
/// The clock is read once per this many commands of a session's time slice, so that many short commands with wrong
/// estimates cannot prolong the slice.
const TICK_COMMANDS: u64 = 64;

impl Session {
    /// Validates a command of `slots` slots, and sends the steps that it becomes.
    /// An instruction whose slots were `copied` is to be planned, if it is on a hot path.
    pub(super) fn process(
        &mut self,
        command: Command,
        slots: usize,
        copied: Option<CopiedSlots>,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        tracing::debug!(target: "gtd::dispatcher", session = self.slot.session, ?command, "received");
        self.count_command(cx);
        let wire_bytes = slots as u64 * 64;
        match command {
            Command::Op(instruction) => self.op(instruction, copied, wire_bytes, cx),
            Command::Free { ids } => self.free(ids, wire_bytes, cx),
            Command::Allocate { out, meta } => {
                let refused = self.check_new(out)?;
                self.event(cx, EventKind::Recv, NO_WORKER, Subject::Allocate, wire_bytes, [out, 0, 0]);
                if refused {
                    let by = Refusal { origin: out, op: None, reason: RefusalReason::TooManyTensors };
                    self.refuse_tensor(out, meta, by, Subject::Allocate, cx);
                    return Ok(());
                }
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
                    Content::Refused(by) => return self.complete_refused(token, by, Subject::Write, cx),
                };
                let end = offset_bytes.checked_add(len).filter(|end| *end <= bytes);
                // A tensor without elements is complete from the start; an empty write to it is allowed.
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
                self.bytes_moved += len;
                let step = self.step(id, command, cost_ns, len);
                self.send(Step { token, ..step }, cx)
            }
            Command::Fetch { token, id, offset_bytes, to } => {
                self.event(cx, EventKind::Recv, NO_WORKER, Subject::Fetch, to.len_bytes, [id, 0, 0]);
                self.check_arena(&to)?;
                let tensor = self.tensors.get(id).ok_or(Violation::UnknownTensor(id))?;
                match tensor.content {
                    Content::Defined => {}
                    Content::Uploading(_) => return Err(Violation::Unwritten(id)),
                    Content::Refused(by) => return self.complete_refused(token, by, Subject::Fetch, cx),
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
                self.bytes_moved += len;
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
            Command::DefineSignal { signal, requested, compile } => {
                self.event(cx, EventKind::Recv, NO_WORKER, Subject::DefineSignal, wire_bytes, [signal.into(), 0, 0]);
                self.signals.define(signal, requested.among(self.workers), compile);
                if compile == Some(true) {
                    self.hot_paths.ask();
                }
                Ok(())
            }
            Command::Reshard(_) => Err(Violation::Reshard),
        }
    }

    /// Charges the visit for a command.
    #[inline]
    fn count_command(&mut self, cx: &mut Context<'_>) {
        self.instructions += 1;
        self.budget_ns -= COMMAND_NS;
        self.bill.commands += 1;
        if self.bill.commands.is_multiple_of(TICK_COMMANDS) {
            cx.tape.tick();
        }
    }

    /// Sends the step of an instruction that its plan has foretold: all that [`op`](Self::op) would check and compute
    /// is as in the plan, but for the ids.
    pub(super) fn process_planned(
        &mut self,
        planned: &mut PlannedInstruction,
        slots: usize,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        self.count_command(cx);
        let PlannedInstruction { step, out: meta, result, operands: [left, right, ..], .. } = planned;
        let (session, command) = (self.slot.session, &step.command);
        tracing::debug!(target: "gtd::dispatcher", session, ?command, result, "received as planned");
        let Command::Op(instruction) = &mut step.command else { unreachable!("only instructions are planned") };
        let (subject, bytes) = (Subject::Op(instruction.op), slots as u64 * 64);
        self.event(cx, EventKind::Recv, NO_WORKER, subject, bytes, [*result, *left, *right]);
        self.last_id = *result;
        instruction.out = self.tensors.insert(*result, *meta, Content::Defined).id();
        (step.origin, step.requested) = (*result, self.signals.requested());
        if cx.pipeline.is_empty() {
            if instruction.last_use != 0 {
                self.remove_last_uses(instruction, cx);
            }
            return self.submit(step, cx);
        }
        let last = self.ids_of(instruction, instruction.last_use);
        self.rewrite(step.clone(), cx)?;
        if last.is_empty() { Ok(()) } else { self.free_everywhere(&last, cx) }
    }

    /// Whether a new tensor's id has nothing about it that only [`op`](Self::op) considers, and there is room for it.
    #[inline]
    pub(super) fn is_plain(&self, id: TensorId) -> bool {
        id > self.last_id
            && id < MODIFIER_ID_MIN
            && id >= self.interrupted_below
            && self.tensors.len() < self.tensors_unchecked
    }

    /// Writes to the tape that the session has left a hot path or come to one.
    #[inline]
    pub(super) fn change_path(&mut self, change: PathChange, cx: &mut Context<'_>) {
        if !change.is_none() {
            self.tell_path(change, cx);
        }
    }

    #[cold]
    fn tell_path(&mut self, PathChange { end, start }: PathChange, cx: &mut Context<'_>) {
        let session = self.slot.session;
        if let Some(PathEnd { sequence, followed, hits }) = end {
            let about = [sequence, followed, hits];
            self.event(cx, EventKind::HotEnd, NO_WORKER, Subject::Nothing, 0, about);
            tracing::debug!(target: "gtd::compile", session, sequence, followed, hits, "leaves a hot path");
        }
        if let Some(PathStart { sequence, length, rounds }) = start {
            self.event(cx, EventKind::HotStart, NO_WORKER, Subject::Nothing, 0, [sequence, length, rounds]);
            tracing::debug!(target: "gtd::compile", session, sequence, length, rounds, "comes to a hot path");
        }
    }

    /// The longest estimate of a step that the user's limit allows, nanoseconds.
    pub(super) fn cost_ns_max(&self) -> u64 {
        match self.quota.max_step_s {
            0 => u64::MAX,
            limit_s => u64::from(limit_s) * 1_000_000_000 - 1,
        }
    }

    fn op(
        &mut self,
        mut instruction: Instruction,
        copied: Option<CopiedSlots>,
        wire_bytes: u64,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let (op, out) = (instruction.op, instruction.out);
        let reason = RefusalReason::TooManyTensors;
        let mut refused = self.check_new(out)?.then_some(Refusal { origin: out, op: Some(op), reason });
        cx.metas.clear();
        let mut operands = [0; TENSORS_MAX];
        let mut named = 0;
        for operand in instruction.inputs.as_mut_slice() {
            cx.metas.push(match operand {
                Operand::Scalar(number) => InputMeta::Scalar(*number),
                Operand::Tensor(id) => {
                    let tensor = self.tensors.get(*id).ok_or(Violation::UnknownTensor(*id))?;
                    match tensor.content {
                        Content::Defined => {}
                        Content::Uploading(_) => return Err(Violation::Unwritten(*id)),
                        // As with every failure, the result is poisoned by the first one.
                        Content::Refused(by) => refused = Some(by),
                    }
                    if named < TENSORS_MAX {
                        operands[named] = *id;
                        named += 1;
                    }
                    *id = tensor.at.id();
                    InputMeta::Tensor(tensor.meta)
                }
            });
        }
        let [left, right, ..] = operands;
        self.event(cx, EventKind::Recv, NO_WORKER, Subject::Op(op), wire_bytes, [out, left, right]);
        let meta = infer(op, cx.metas, &instruction.attrs).map_err(Violation::Rule)?;
        instruction.replaces = instruction.replaces.filter(|operand| may_replace(op, cx.metas, *operand, &meta));
        if out < self.interrupted_below
            && refused.is_none_or(|by| by.origin != out)
            && let Some((kept, replaced)) = keeping_replaced(&instruction, meta)
            && self.is_defined(replaced)
        {
            return self.keep_replaced(&instruction, kept, meta, cx);
        }
        if self.hot_paths.is_on() {
            let change = self.hot_paths.add(op, ResultMeta::words_of(&meta), out, &operands[..named]);
            self.change_path(change, cx);
        }
        let tensors = cx.metas.iter().filter_map(InputMeta::tensor);
        let (gflops, gbytes_per_s) = cx.links[self.worker as usize].rates();
        let cost = if instruction.last_use & 1 == 1 && op.row().writes_part() {
            part_cost(op, tensors.skip(1))
        } else {
            cost(op, tensors, &instruction.attrs, &meta)
        };
        let cost_ns = cost.nanoseconds(gflops, gbytes_per_s, STEP_NS);
        if refused.is_none() {
            let reason = match out < self.interrupted_below {
                true => Some(RefusalReason::Interrupted),
                false => self.too_long(cost_ns, &meta, cx),
            };
            refused = reason.map(|reason| Refusal { origin: out, op: Some(op), reason });
        }
        if let Some(by) = refused {
            self.refuse_tensor(out, meta, by, Subject::Op(op), cx);
            let last = self.ids_of(&instruction, instruction.last_use);
            return self.free_everywhere(&last, cx);
        }
        instruction.out = self.tensors.insert(out, meta, Content::Defined).id();
        // Modifiers look the operands up, so these are freed behind the instruction.
        let used_up = if cx.pipeline.is_empty() { 0 } else { instruction.last_use };
        if instruction.last_use != used_up {
            self.remove_last_uses(&instruction, cx);
        }
        let dtype = cx.metas.iter().find_map(|input| input.tensor().map(|meta| meta.dtype));
        let arithmetic = || Cost { bytes: 0, ..cost }.nanoseconds(gflops, gbytes_per_s, STEP_NS);
        let fused_ns = dtype.filter(|dtype| is_fusible(&instruction, *dtype)).map(|_| arithmetic());
        let last = self.ids_of(&instruction, used_up);
        let step = self.step(out, Command::Op(instruction), cost_ns, wire_bytes);
        let requested = self.signals.requested();
        let step = Step { out: Some(meta), fused_ns, requested, ..step };
        if let Some(slots) = copied {
            let metas = cx.metas.iter().filter_map(|input| input.tensor().copied());
            self.hot_paths.keep(&slots, metas, &operands[..named], meta, &step, cost_ns);
        }
        self.send(step, cx)?;
        if last.is_empty() { Ok(()) } else { self.free_everywhere(&last, cx) }
    }

    fn is_defined(&self, at: TensorId) -> bool {
        let tensor = self.tensors.get_at(WorkerTensor::from_id(at));
        matches!(tensor, Some(TensorEntry { content: Content::Defined, .. }))
    }

    /// Does `kept` instead of an interrupted in-place operation: the result gets the old elements.
    #[cold]
    fn keep_replaced(
        &mut self,
        instruction: &Instruction,
        mut kept: Instruction,
        meta: Meta,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let mut last = self.ids_of(instruction, instruction.last_use);
        let out = instruction.out;
        kept.out = self.tensors.insert(out, meta, Content::Defined).id();
        if cx.pipeline.is_empty() {
            self.remove_last_uses(&kept, cx);
        }
        let requested = self.signals.requested();
        let step = self.step(out, Command::Op(kept), STEP_NS, 0);
        self.send(Step { out: Some(meta), requested, ..step }, cx)?;
        last.retain(|id| self.tensors.get(*id).is_some());
        self.free_everywhere(&last, cx)
    }

    /// The reason to refuse a step that would take longer than the user's steps may. For a result that no memory has
    /// room for, that is the reason.
    #[inline]
    fn too_long(&self, cost_ns: u64, result: &Meta, cx: &mut Context<'_>) -> Option<RefusalReason> {
        let estimate_s = u32::try_from(cost_ns / 1_000_000_000).unwrap_or(u32::MAX);
        if self.quota.max_step_s == 0 || estimate_s < self.quota.max_step_s {
            return None;
        }
        let fits = result.bytes() as u64 <= memory(self.workers, cx.links).1;
        Some(if fits {
            RefusalReason::TooLong(estimate_s)
        } else {
            RefusalReason::TooLarge(u32::try_from(result.bytes() >> 20).unwrap_or(u32::MAX))
        })
    }

    /// The client's ids of the operands in `mask`, each once.
    fn ids_of(&self, instruction: &Instruction, mask: u8) -> Vec<TensorId> {
        let mut ids = Vec::new();
        if mask == 0 {
            return ids;
        }
        for (i, operand) in instruction.inputs.as_slice().iter().enumerate().take(8) {
            if let (1, Operand::Tensor(at)) = (mask >> i & 1, operand)
                && let Some(tensor) = self.tensors.get_at(WorkerTensor::from_id(*at))
                && !ids.contains(&tensor.id)
            {
                ids.push(tensor.id);
            }
        }
        ids
    }

    /// Frees tensors and their copies on all workers.
    fn free_everywhere(&mut self, ids: &[TensorId], cx: &mut Context<'_>) -> Result<(), Violation> {
        let mut freed: Vec<(Workers, TensorId)> = Vec::new();
        for id in ids {
            let tensor = self.tensors.remove(*id).ok_or(Violation::UnknownTensor(*id))?;
            self.event(cx, EventKind::Free, self.worker, Subject::Free, tensor.bytes, [*id, 0, 0]);
            freed.push((tensor.placement.workers(), tensor.at.id()));
            let mut copy = tensor.copy;
            while let Some(tensor) = self.tensors.remove(copy) {
                freed.push((tensor.placement.workers(), tensor.at.id()));
                copy = tensor.copy;
            }
        }
        freed.sort_by_key(|(workers, _)| workers.bits());
        for alike in freed.chunk_by(|one, other| one.0 == other.0) {
            for few in alike.chunks(FREE_IDS_MAX) {
                let mut ids = [0; FREE_IDS_MAX];
                ids.iter_mut().zip(few).for_each(|(id, (_, at))| *id = *at);
                let step = self.step(0, Command::Free { ids }, STEP_NS, 64);
                self.send(Step { workers: alike[0].0, ..step }, cx)?;
            }
        }
        Ok(())
    }

    /// Removes the operands that an instruction uses for the last time from the table; the worker frees them after the
    /// instruction.
    fn remove_last_uses(&mut self, instruction: &Instruction, cx: &mut Context<'_>) {
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
            return self.free_everywhere(&named, cx);
        }
        for few in ids.chunks_mut(FREED_BY_EVENT) {
            let (mut freed, mut bytes) = ([0; FREED_BY_EVENT], 0u64);
            for (id, freed) in few.iter_mut().filter(|id| **id != 0).zip(&mut freed) {
                let tensor = self.tensors.remove(*id).ok_or(Violation::UnknownTensor(*id))?;
                (*freed, bytes) = (*id, bytes.saturating_add(tensor.bytes));
                *id = tensor.at.id();
            }
            if freed[0] != 0 {
                self.event(cx, EventKind::Free, self.worker, Subject::Free, bytes, freed);
            }
        }
        self.send(self.step(first, Command::Free { ids }, STEP_NS, wire_bytes), cx)
    }

    /// A step without a result and without a completion. Inlined, since a `Step` is large and a return would copy it.
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
            command,
            out: None,
            fused_ns: None,
            cost_ns,
            expected_ns: cost_ns,
            bytes,
        }
    }

    /// Checks the id of a new tensor, and the number of tensors. True if the tensor is refused.
    #[inline]
    fn check_new(&mut self, id: TensorId) -> Result<bool, Violation> {
        if id <= self.last_id {
            return Err(Violation::IdNotIncreasing { id, last: self.last_id });
        }
        if id >= MODIFIER_ID_MIN {
            return Err(Violation::IdTooLarge(id));
        }
        self.last_id = id;
        if self.tensors.len() < self.tensors_unchecked { Ok(false) } else { self.check_limits_of_tensors() }
    }

    #[cold]
    fn check_limits_of_tensors(&mut self) -> Result<bool, Violation> {
        if self.tensors.len() >= TENSORS_PER_SESSION_MAX {
            return Err(Violation::TooManyTensors);
        }
        let held = self.count_tensors();
        let limit = self.quota.tensors;
        if limit == 0 || held < limit {
            return Ok(false);
        }
        if held - limit >= REFUSED_TENSORS_MAX { Err(Violation::TooManyRefused { limit }) } else { Ok(true) }
    }

    /// Adds a tensor that no worker has, since an instruction was refused: its own or an operand's.
    #[cold]
    fn refuse_tensor(&mut self, out: TensorId, meta: Meta, by: Refusal, subject: Subject, cx: &mut Context<'_>) {
        self.tensors.insert(out, meta, Content::Refused(by));
        if by.origin == out {
            match by.reason {
                RefusalReason::TooManyTensors => {
                    let (held, limit) = (self.account.tensors(), self.quota.tensors);
                    self.count_out_of_memory(format_args!("the user's sessions hold {held} tensors of {limit}"));
                }
                RefusalReason::TooLarge(mib) => {
                    self.count_out_of_memory(format_args!("{mib} MiB are more than all workers may hold"));
                }
                RefusalReason::TooLong(_) | RefusalReason::Interrupted => {}
            }
            self.event(cx, EventKind::Error, NO_WORKER, subject, 0, [out, 0, 0]);
        }
    }

    /// Completes the transfer of a tensor that was refused.
    #[cold]
    fn complete_refused(
        &mut self,
        token: u64,
        Refusal { origin: instruction, op, reason }: Refusal,
        subject: Subject,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        self.expect_completion()?;
        let ms = |s: u32| u64::from(s) * 1000;
        let fault = match reason {
            RefusalReason::Interrupted => Fault::Interrupted,
            RefusalReason::TooLong(s) => Fault::TooLong { estimate_ms: ms(s), limit_ms: ms(self.quota.max_step_s) },
            RefusalReason::TooManyTensors => {
                Fault::TooManyTensors { held: self.count_tensors(), limit: self.quota.tensors }
            }
            RefusalReason::TooLarge(mib) => {
                let (held, limit) = memory(self.workers, cx.links);
                Fault::OutOfMemory { requested: u64::from(mib) << 20, held, limit, scope: MemoryScope::Worker }
            }
        };
        self.complete(token, Err(Failure { fault, instruction, op }), cx.links)?;
        self.event(cx, EventKind::Send, NO_WORKER, subject, 0, [instruction, 0, 0]);
        Ok(())
    }

    fn check_arena(&self, range: &ArenaRange) -> Result<(), Violation> {
        let bytes = usize::try_from(range.segment).ok().and_then(|segment| self.arena_bytes.get(segment));
        match (bytes, range.offset_bytes.checked_add(range.len_bytes)) {
            (Some(bytes), Some(end)) if end <= *bytes => Ok(()),
            _ => Err(Violation::Arena(*range)),
        }
    }

    /// Counts one more completion in flight. The completion ring must have room for it beside the completions that the
    /// client has not read yet.
    fn expect_completion(&mut self) -> Result<(), Violation> {
        if self.completions_in_flight >= self.port.free_completions() {
            return Err(Violation::TooManyInFlight);
        }
        self.completions_in_flight += 1;
        Ok(())
    }
}

/// Whether the result of an instruction may keep the elements of an operand that it replaces: they have its shape and
/// dtype, or get it by the same movement.
fn may_replace(op: Op, inputs: &[InputMeta], operand: u8, out: &Meta) -> bool {
    let moves = op.row().class == Class::Movement && operand == 0;
    moves || matches!(inputs.get(usize::from(operand)), Some(InputMeta::Tensor(meta)) if meta == out)
}

/// Bytes that the tensors of `workers` take together, and the limit of that; the largest number if a worker has none.
#[cold]
fn memory(workers: Workers, links: &mut [Box<dyn WorkerLink>]) -> (u64, u64) {
    workers.iter().map(|worker| links[worker].info()).fold((0, 0), |(held, limit), info| {
        let own = if info.memory_bytes_limit == 0 { u64::MAX } else { info.memory_bytes_limit };
        (held + info.memory_bytes, limit.saturating_add(own))
    })
}
