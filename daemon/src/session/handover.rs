//! Handing steps over to workers, alone or as a group that may be fused.

use super::violation::Violation;
use super::{Context, Session};
use crate::worker::fusion_window::is_large;
use crate::worker::reshard::traffic;
use crate::worker::step::{Step, Submission, completes, subject};
use gt_ops::Workers;
use gt_ops::event::{EventKind, Subject};
use gt_ops::wire::Command;

/// The clock is read again after a step whose estimate is at least this, nanoseconds.
const TICK_COST_NS: u64 = 2_000;

impl Session {
    /// Passes a step through the modifiers and submits the steps that replace it.
    #[inline(always)]
    pub(super) fn send(&mut self, mut step: Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        if cx.pipeline.is_empty() { self.submit(&mut step, cx) } else { self.rewrite(step, cx) }
    }

    /// Submits the steps by which the modifiers replace a step.
    fn rewrite(&mut self, step: Step, cx: &mut Context<'_>) -> Result<(), Violation> {
        let (token, awaited) = (step.token, completes(subject(&step.command)));
        let mut steps = std::mem::take(&mut self.rewritten);
        cx.pipeline.process(step, &mut self.tensors, &mut steps);
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

    /// Sends a step to its workers, or adds it to the group. The group is sent before the first step that does not join
    /// it, at the latest at the end of the visit.
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
        for worker in step.workers.iter() {
            let Some(link) = cx.links.get_mut(worker) else { continue };
            match link.submit(step) {
                Submission::Queued => self.count_queued(step, cx.workers),
                Submission::Done(result) => {
                    self.bill.done_ns += step.cost_ns;
                    if step.cost_ns >= TICK_COST_NS {
                        cx.tape.tick();
                    }
                    self.finish(&step.report(result), worker as u16, cx.links, cx.tape)?;
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
        let mut group = std::mem::take(&mut self.group);
        for step in &mut group {
            self.account(step, cx);
        }
        let workers = group.first().map_or(Workers::NONE, |step| step.workers);
        for worker in workers.iter() {
            let Some(link) = cx.links.get_mut(worker) else { continue };
            let mut reports = Vec::new();
            if link.submit_all(&group, &mut |step, result| reports.push(step.report(result))) {
                cx.tape.tick();
                self.bill.done_ns += group.iter().map(|step| step.cost_ns).sum::<u64>();
                for report in reports {
                    self.finish(&report, worker as u16, cx.links, cx.tape)?;
                }
            } else {
                let workers = cx.workers;
                group.iter().for_each(|step| self.count_queued(step, workers));
            }
        }
        group.clear();
        self.group = group;
        Ok(())
    }

    /// Charges the visit for a step that is handed over, and writes it to the tape.
    #[inline]
    fn account(&mut self, step: &mut Step, cx: &mut Context<'_>) {
        step.expected_ns = self.correction.expect(step.cost_ns);
        // The budget counts the mean time over all workers.
        self.budget_ns -= step.expected_ns as i64 * step.workers.len() as i64 / cx.workers as i64;
        let subject = subject(&step.command);
        // The free of each tensor is on the tape already.
        if subject != Subject::Free {
            let [left, right] = step.operands;
            for worker in step.workers.iter() {
                let about = [step.origin, left, right];
                self.event(cx, EventKind::WorkerSend, worker as u16, subject, step.bytes, about);
            }
        }
    }

    #[inline]
    fn count_queued(&mut self, step: &Step, workers: usize) {
        self.queued += 1;
        self.bill.queued_ns += step.expected_ns as f64 / workers as f64;
    }
}
