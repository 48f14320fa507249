//! Handing steps over to workers, alone or as a group that may be fused.

use super::violation::Violation;
use super::{Context, STEP_NS, Session};
use crate::table::{Content, Refusal, RefusalReason, WorkerTensor};
use crate::tape::Tape;
use crate::worker::fusion_window::is_large;
use crate::worker::queue::{QueueLimit, are_light, shared_step};
use crate::worker::reshard::traffic;
use crate::worker::step::{SharedStep, Step, Submission, completes, subject};
use crate::worker::worker_link::WorkerLink;
use gt_ops::event::{Event, EventKind, NO_WORKER, StepTime, Subject};
use gt_ops::failure::{Failure, Fault};
use gt_ops::result_meta::ResultMeta;
use gt_ops::wire::{Command, FREE_IDS_MAX};
use gt_ops::{Attrs, Class, Inputs, Instruction, Meta, Op, Operand, TensorId, Workers};
use std::collections::HashSet;

/// The clock is read again after a step whose estimate is at least this, nanoseconds.
const TICK_COST_NS: u64 = 2_000;

/// From this number of workers on, a step is encoded once for all; for fewer, allocating the memory takes longer.
const SHARED_MIN: usize = 3;
/// The same where there are nodes: the step is sent once to those of one node.
const SHARED_WITH_NODES_MIN: usize = 2;

impl Session {
    /// Passes a step through the modifiers and submits the steps that replace it.
    #[inline(always)]
    pub(super) fn send(&mut self, mut step: Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        if cx.pipeline.is_empty() { self.submit(&mut step, cx) } else { self.rewrite(step, cx) }
    }

    /// Submits the steps by which the modifiers replace a step.
    pub(super) fn rewrite(&mut self, step: Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        let (token, awaited) = (step.token, completes(subject(&step.command)));
        let mut steps = std::mem::take(&mut self.rewritten);
        cx.pipeline.process(step, &mut self.tensors, &mut steps);
        if let [Step { command: Command::Sync { .. }, workers, .. }] = &mut steps[..] {
            *workers = self.busy_workers(*workers);
        }
        if awaited {
            let completing = steps.iter().filter(|step| completes(subject(&step.command)));
            let parts = completing.map(|step| step.workers.len() as u32).sum();
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

    /// The part of `workers` at which the session has steps, queued or still to be handed over; one worker if there is
    /// none. A sync must not wait for the others, which may be busy for long with other sessions, or stopped.
    fn busy_workers(&self, workers: Workers) -> Workers {
        let queued = self.queued_at.iter().enumerate().filter(|(_, queued)| **queued > 0);
        let queued = queued.fold(Workers::NONE, |all, (worker, _)| all.with(Workers::one(worker)));
        let waiting = self.held.iter().flatten().chain(&self.group);
        let busy = waiting.fold(queued, |all, step| all.with(step.workers)).and(workers);
        let home = Workers::one(self.worker as usize).and(workers);
        [busy, home].into_iter().find(|some| !some.is_empty()).unwrap_or(workers)
    }

    /// Sends a step to its workers, or adds it to the group. The group is sent before the first step that does not join
    /// it, at the latest at the end of the visit.
    #[inline]
    pub(super) fn submit(&mut self, step: &mut Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        if !self.group.is_empty() {
            if self.joins_group(step) {
                let cost_ns = step.fused_ns.unwrap_or(step.cost_ns);
                self.group.push(Step { cost_ns, ..step.clone() });
                return Ok(());
            }
            self.submit_group(cx)?;
        }
        if let (Command::Op(instruction), Some(out), Some(_)) =
            (&step.command, step.out.filter(is_large), step.fused_ns)
        {
            self.window.clear();
            self.window.push(instruction, out);
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
                first.divided == step.divided && self.window.push(instruction, out)
            }
            _ => false,
        }
    }

    /// Cancels the instructions whose results have lower ids than `below`: those still to be read are refused, and
    /// those that wait for a full worker are dropped, unless the session has several workers. The workers skip those
    /// that they have, and uploads and frees are done. The results of in-place operations get the old elements.
    ///
    /// # Errors
    /// A completion does not fit: the client has overwritten the ring's cursor.
    pub fn interrupt(
        &mut self,
        below: TensorId,
        links: &mut [Box<dyn WorkerLink>],
        tape: &mut Tape,
    ) -> Result<(), Violation> {
        self.interrupted_below = self.interrupted_below.max(below);
        // An instruction that is not interrupted must find its operands at the worker, and a reshard its tensor.
        if below <= self.last_id || self.workers.len() > 1 {
            return Ok(());
        }
        let mut dropped = HashSet::new();
        for step in std::mem::take(&mut self.held).into_iter().flatten() {
            match &step.command {
                Command::Op(instruction) => {
                    let kept = step.out.and_then(|out| keeping_replaced(instruction, out));
                    if let Some((kept, replaced)) = kept.filter(|(_, replaced)| !dropped.contains(replaced)) {
                        let others = instruction.last_used().filter(|id| *id != replaced).collect();
                        let (command, fused_ns, cost_ns) = (Command::Op(kept), None, STEP_NS);
                        self.held.push_back(vec![Step { command, fused_ns, cost_ns, ..step.clone() }]);
                        self.hold_frees(&step, others);
                        continue;
                    }
                    dropped.insert(instruction.out);
                    let by = self.drop_interrupted(&step, instruction, tape);
                    if let Some(result) = self.tensors.get_at_mut(WorkerTensor::from_id(instruction.out)) {
                        result.content = Content::Refused(by);
                    }
                }
                Command::Fetch { token, id, .. } => {
                    let tensor = self.tensors.get_at(WorkerTensor::from_id(*id));
                    match tensor.map(|tensor| tensor.content) {
                        Some(Content::Refused(by)) => {
                            let failure = Failure { fault: Fault::Interrupted, instruction: by.origin, op: by.op };
                            self.complete(*token, Err(failure), links)?;
                        }
                        _ => self.held.push_back(vec![step]),
                    }
                }
                _ => self.held.push_back(vec![step]),
            }
        }
        Ok(())
    }

    /// Replaces an instruction that waits for a full worker by the free of the operands that it would use last. Returns
    /// why its result is not made.
    fn drop_interrupted(&mut self, step: &Step, instruction: &Instruction, tape: &mut Tape) -> Refusal {
        self.hold_frees(step, instruction.last_used().collect());
        // As with every failure, the result is poisoned by the first one.
        let operands = instruction.inputs.as_slice().iter().filter_map(Operand::tensor);
        let earlier =
            operands.map(WorkerTensor::from_id).find_map(|operand| match self.tensors.get_at(operand)?.content {
                Content::Refused(by) => Some(by),
                _ => None,
            });
        let (origin, op, session) = (step.origin, instruction.op, self.slot.session);
        if earlier.is_none() {
            let (subject, kind, worker) = (Subject::Op(op), EventKind::Error, NO_WORKER);
            let (time_ns, bytes, result, left, right, run_ns) = (0, 0, origin, 0, 0, 0);
            tape.write(Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns });
        }
        earlier.unwrap_or(Refusal { origin, op: Some(op), reason: RefusalReason::Interrupted })
    }

    /// Frees tensors behind the steps that wait for a full worker.
    fn hold_frees(&mut self, step: &Step, mut tensors: Vec<TensorId>) {
        tensors.sort_unstable();
        tensors.dedup();
        for few in tensors.chunks(FREE_IDS_MAX) {
            let mut ids = [0; FREE_IDS_MAX];
            ids[..few.len()].copy_from_slice(few);
            let command = Command::Free { ids };
            let (origin, out, fused_ns) = (0, None, None);
            self.held.push_back(vec![Step { command, origin, out, fused_ns, ..step.clone() }]);
        }
    }

    /// Hands over the steps that waited for full workers, as far as these have room now. True if there were any.
    ///
    /// A step of several workers waits until all of them have room. It is then queued at all of them before any other
    /// step, so the workers of a group come to its collectives in the same order.
    pub(super) fn submit_held(&mut self, cx: &mut Context<'_>) -> Result<bool, Violation> {
        let mut any = false;
        while let Some(group) = self.held.front() {
            if !self.have_room(group, cx.links, cx.queue_limit, cx.overtakes) {
                break;
            }
            let Some(mut group) = self.held.pop_front() else { break };
            any = true;
            match &mut group[..] {
                [step] => self.hand_over(step, cx)?,
                _ => self.hand_over_group(group, cx)?,
            }
        }
        Ok(any)
    }

    /// Whether steps that are handed over together must wait for earlier steps of the session or for a worker whose
    /// queue is full.
    #[inline]
    fn must_hold(&self, group: &[Step], cx: &mut Context<'_>) -> bool {
        !self.held.is_empty() || !self.have_room(group, cx.links, cx.queue_limit, cx.overtakes)
    }

    /// Whether steps that are handed over together need not wait: their workers' queues have room, or the steps may
    /// overtake what is there.
    #[inline]
    pub(super) fn have_room(
        &self,
        group: &[Step],
        links: &mut [Box<dyn WorkerLink>],
        limit: QueueLimit,
        overtakes: Workers,
    ) -> bool {
        let workers = group.first().map_or(Workers::NONE, |step| step.workers);
        !workers.iter().any(|worker| links.get_mut(worker).is_some_and(|link| link.is_full(limit)))
            || !workers.and(overtakes).is_empty() && self.may_overtake(group, links)
    }

    #[cold]
    fn may_overtake(&self, group: &[Step], links: &mut [Box<dyn WorkerLink>]) -> bool {
        let expected_ns = self.expected_ns(group);
        let worker = group.first().and_then(|step| step.workers.first());
        are_light(group, expected_ns)
            && worker.and_then(|worker| links.get_mut(worker)).is_some_and(|l| l.may_overtake(self.slot, expected_ns))
    }

    /// The expected time of steps that are handed over together, nanoseconds.
    pub(super) fn expected_ns(&self, group: &[Step]) -> u64 {
        group.iter().map(|step| self.correction.expect(step.cost_ns)).sum()
    }

    #[inline]
    fn submit_alone(&mut self, step: &mut Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        if self.must_hold(std::slice::from_ref(step), cx) {
            self.held.push_back(vec![step.clone()]);
            return Ok(());
        }
        self.hand_over(step, cx)
    }

    #[inline]
    fn hand_over(&mut self, step: &mut Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        match step.workers.first() {
            Some(worker) if step.workers == Workers::one(worker) && !matches!(step.command, Command::Reshard(_)) => {
                self.account(step, cx);
                self.submit_to(worker, step, &[], None, cx)
            }
            _ => self.hand_over_to_several(step, cx),
        }
    }

    /// Hands a step over to several workers, which get what is made once for all of them.
    #[inline(never)]
    fn hand_over_to_several(&mut self, step: &mut Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        self.account(step, cx);
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
        let shared =
            (step.workers.len() >= shared_min(cx)).then(|| shared_step(step, &mut self.encoder, cx.queue_limit));
        let result = Some(result_words(step));
        for worker in step.workers.iter() {
            self.submit_to(worker, step, shared.as_slice(), result, cx)?;
        }
        publish_if_awaited(cx);
        Ok(())
    }

    /// Submits a step to one of its workers. `result` has the words of its result if these were made already.
    #[inline(always)]
    fn submit_to(
        &mut self,
        worker: usize,
        step: &Step,
        shared: &[SharedStep],
        result: Option<[u64; 2]>,
        cx: &mut Context<'_>,
    ) -> Result<(), Violation> {
        let Some(link) = cx.links.get_mut(worker) else { return Ok(()) };
        match link.submit(step, shared) {
            Submission::Queued => {
                let words = result.unwrap_or_else(|| result_words(step));
                self.handed_over(step, words, worker as u16, cx);
                self.count_queued(step, worker, cx.workers);
            }
            Submission::Done(result) => {
                self.bill.done_ns += step.cost_ns;
                let (report, worker) = (step.report(result), worker as u16);
                match u16::try_from(step.expected_ns) {
                    // The clock has not moved on since the event before.
                    Ok(run_ns) if result.is_ok() && step.cost_ns < TICK_COST_NS => {
                        self.ran(step, worker, run_ns, cx);
                        self.settle(&report, worker, StepTime::Estimated(run_ns.into()), cx.links, cx.tape)?;
                    }
                    _ => {
                        self.handed_over(step, result_words(step), worker, cx);
                        cx.tape.tick();
                        let time = StepTime::Estimated(step.expected_ns);
                        self.finish(&report, worker, time, cx.links, cx.tape)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands the group over to its workers.
    pub(super) fn submit_group(&mut self, cx: &mut Context<'_>) -> Result<(), Violation> {
        if self.group.len() < 2 {
            return self.group.pop().map_or(Ok(()), |mut step| self.submit_alone(&mut step, cx));
        }
        let group = std::mem::take(&mut self.group);
        if self.must_hold(&group, cx) {
            self.held.push_back(group);
            return Ok(());
        }
        self.hand_over_group(group, cx)
    }

    fn hand_over_group(&mut self, mut group: Vec<Step>, cx: &mut Context<'_>) -> Result<(), Violation> {
        let mut shared = Vec::new();
        for step in &mut group {
            self.account(step, cx);
            if step.workers.len() >= shared_min(cx) {
                shared.push(shared_step(step, &mut self.encoder, cx.queue_limit));
            }
            let words = result_words(step);
            for worker in step.workers.iter() {
                self.handed_over(step, words, worker as u16, cx);
            }
        }
        let workers = group.first().map_or(Workers::NONE, |step| step.workers);
        for worker in workers.iter() {
            let Some(link) = cx.links.get_mut(worker) else { continue };
            let mut reports = Vec::new();
            if link.submit_all(&group, &shared, &mut |step, result| reports.push(step.report(result))) {
                cx.tape.tick();
                self.bill.done_ns += group.iter().map(|step| step.cost_ns).sum::<u64>();
                for report in reports {
                    let time = StepTime::Estimated(report.expected_ns);
                    self.finish(&report, worker as u16, time, cx.links, cx.tape)?;
                }
            } else {
                let workers = cx.workers;
                group.iter().for_each(|step| self.count_queued(step, worker, workers));
            }
        }
        publish_if_awaited(cx);
        // The capacity is kept for the next group.
        group.clear();
        if self.group.capacity() < group.capacity() && self.group.is_empty() {
            self.group = group;
        }
        Ok(())
    }

    /// Charges the visit for a step that is handed over.
    #[inline]
    fn account(&mut self, step: &mut Step, cx: &mut Context<'_>) {
        self.bill.served = true;
        step.expected_ns = self.correction.expect(step.cost_ns);
        // The budget counts the mean time over all workers.
        self.budget_ns -= step.expected_ns as i64 * step.workers.len() as i64 / cx.workers as i64;
    }

    /// Writes to the tape that `worker` has a step, whose result has these words.
    #[inline]
    fn handed_over(&mut self, step: &Step, [left, right]: [u64; 2], worker: u16, cx: &mut Context<'_>) {
        let subject = subject(&step.command);
        // The free of each tensor is on the tape already.
        if subject != Subject::Free {
            self.event(cx, EventKind::WorkerSend, worker, subject, step.bytes, [step.origin, left, right]);
        }
    }

    /// Writes to the tape that a step was run at once, as `worker`.
    #[inline(always)]
    fn ran(&mut self, step: &Step, worker: u16, run_ns: u16, cx: &mut Context<'_>) {
        let (subject, kind) = (subject(&step.command), EventKind::WorkerRun);
        if subject != Subject::Free {
            let [left, right] = result_words(step);
            let (time_ns, session, bytes, result) = (0, self.slot.session, step.bytes, step.origin);
            cx.tape.write(Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns });
        }
    }

    #[inline]
    fn count_queued(&mut self, step: &Step, worker: usize, workers: usize) {
        self.queued += 1;
        if worker >= self.queued_at.len() {
            self.queued_at.resize(worker + 1, 0);
        }
        self.queued_at[worker] += 1;
        self.bill.queued_ns += step.expected_ns as f64 / workers as f64;
    }
}

/// From this number of workers on, a step is encoded once for all of them.
#[inline]
fn shared_min(cx: &Context<'_>) -> usize {
    if cx.relay.is_some() { SHARED_WITH_NODES_MIN } else { SHARED_MIN }
}

/// The dtype and sizes of a step's result, as they are on the tape.
#[inline]
fn result_words(step: &Step) -> [u64; 2] {
    step.out.as_ref().map_or([0; 2], ResultMeta::words_of)
}

/// Publishes steps that all of their workers have got, if some of these are of nodes and have nothing else to do.
#[inline]
fn publish_if_awaited(cx: &mut Context<'_>) {
    if let Some(relay) = cx.relay {
        relay.borrow_mut().publish_if_awaited();
    }
}

/// The instruction that gives the result of an interrupted in-place operation the elements of the operand that it was
/// to replace, and that operand; none if it replaces none. The workers carry it out though it is interrupted.
pub(super) fn keeping_replaced(instruction: &Instruction, out: Meta) -> Option<(Instruction, TensorId)> {
    let operand = *instruction.inputs.as_slice().get(usize::from(instruction.replaces?))?;
    let replaced = operand.tensor()?;
    if instruction.op.row().class == Class::Movement {
        return Some((instruction.clone(), replaced));
    }
    let last_use = u8::from(instruction.last_used().any(|id| id == replaced));
    let (op, inputs, attrs) = (Op::Reshape, Inputs::from_slice(&[operand]), Attrs::Shape(out.shape));
    Some((Instruction { op, out: instruction.out, inputs, last_use, attrs, tf32: false, replaces: Some(0) }, replaced))
}
