//! The ends of steps: reports of workers, and completions for the client.

use super::Session;
use super::violation::Violation;
use crate::tape::Tape;
use crate::worker::step::{Report, completes};
use crate::worker::worker_link::WorkerLink;
use gt_ops::event::{Event, EventKind, NO_WORKER, StepTime, Subject};
use gt_ops::failure::{Failure, Fault, MemoryScope, WorkerEnd, WorkerName};
use gt_ops::wire::Completion;

impl Session {
    /// Learns how long a step took.
    pub fn learn(&mut self, report: &Report) {
        if report.result.is_ok() {
            self.correction.learn(report.cost_ns, report.took_ns);
        }
    }

    /// Processes the report of a step that was queued at `worker`.
    ///
    /// # Errors
    /// The completion does not fit: the client has overwritten the ring's cursor.
    pub fn reported(
        &mut self,
        report: &Report,
        worker: u16,
        links: &mut [Box<dyn WorkerLink>],
        tape: &mut Tape,
    ) -> Result<(), Violation> {
        self.queued -= 1;
        if let Some(queued) = self.queued_at.get_mut(worker as usize) {
            *queued -= 1;
        }
        self.finish(report, worker, StepTime::Measured(report.took_ns), links, tape)
    }

    /// Processes the end of a step: records it on the tape, and settles it.
    #[inline]
    pub(super) fn finish(
        &mut self,
        report: &Report,
        worker: u16,
        time: StepTime,
        links: &mut [Box<dyn WorkerLink>],
        tape: &mut Tape,
    ) -> Result<(), Violation> {
        if report.subject != Subject::Free {
            let [left, right] = time.words();
            tape.write(Event { left, right, ..self.event_of(report, EventKind::WorkerRecv, worker) });
        }
        self.settle(report, worker, time, links, tape)
    }

    /// An event about the step of a report.
    #[inline(always)]
    fn event_of(&self, report: &Report, kind: EventKind, worker: u16) -> Event {
        let Report { subject, origin, bytes, .. } = *report;
        let (time_ns, session, left, right, run_ns) = (0, self.slot.session, 0, 0, 0);
        Event { time_ns, kind, subject, worker, session, bytes, result: origin, left, right, run_ns }
    }

    /// Counts the end of a step, which is on the tape, and completes it for the client once all of its parts have
    /// ended.
    #[inline]
    pub(super) fn settle(
        &mut self,
        report: &Report,
        worker: u16,
        time: StepTime,
        links: &mut [Box<dyn WorkerLink>],
        tape: &mut Tape,
    ) -> Result<(), Violation> {
        let Report { subject, origin, token, bytes, mut result, .. } = *report;
        if subject == Subject::Free {
            return Ok(());
        }
        self.operations.add(worker.into(), subject, bytes, time);
        let completes = completes(subject);
        if let Err(failure) = result {
            // A tensor poisoned by an earlier failure is not an error of its own.
            if failure.instruction == origin && subject != Subject::Fetch {
                if let Fault::OutOfMemory { requested, held, limit, scope } = failure.fault {
                    let holder = match scope {
                        MemoryScope::Worker => "all sessions",
                        MemoryScope::Session => "the session",
                        MemoryScope::User => "its user",
                    };
                    self.count_out_of_memory(format_args!(
                        "it asked for {requested} bytes, and {held} of {limit} are held by {holder}"
                    ));
                }
                self.errors += 1;
                self.operations.add_error(worker.into(), subject);
                tape.write(self.event_of(report, EventKind::Error, worker));
                tracing::debug!(target: "gtd::worker", session = self.slot.session, %origin, ?failure, "an instruction failed");
            }
        }
        if !completes {
            return Ok(());
        }
        if !self.parts.is_empty()
            && let Some((left, so_far)) = self.parts.get_mut(&token)
        {
            // The first failure is reported.
            *left -= 1;
            *so_far = so_far.and(result);
            if *left > 0 {
                return Ok(());
            }
            result = *so_far;
            self.parts.remove(&token);
        }
        self.complete(token, result, links)?;
        tape.write(self.event_of(report, EventKind::Send, NO_WORKER));
        Ok(())
    }

    /// Sends a completion to the client.
    pub(super) fn complete(
        &mut self,
        token: u64,
        result: Result<(), Failure>,
        links: &mut [Box<dyn WorkerLink>],
    ) -> Result<(), Violation> {
        self.completions_in_flight -= 1;
        let result = result.map_err(|failure| with_worker_name(failure, links));
        self.port.complete(Completion { token, result }.encode()).map_err(|_| Violation::Completions)?;
        self.port.flush_completions();
        Ok(())
    }

    /// Counts a limit that was met. Logged at powers of two, so that a program that tries again and again does not fill
    /// the log.
    pub(super) fn count_out_of_memory(&mut self, how: std::fmt::Arguments<'_>) {
        self.out_of_memory += 1;
        if self.out_of_memory.is_power_of_two() {
            let (session, times) = (self.slot.session, self.out_of_memory);
            tracing::info!(
                target: "gtd::dispatcher",
                "session {session} has met a limit of memory {times} times: {how}"
            );
        }
    }
}

/// Replaces the number of a lost worker by its name, and adds how it ended.
#[cold]
fn with_worker_name(failure: Failure, links: &mut [Box<dyn WorkerLink>]) -> Failure {
    let Fault::WorkerLost { worker, end } = failure.fault else { return failure };
    let Some(link) = worker.number().and_then(|number| links.get_mut(number)) else { return failure };
    let end = if end == WorkerEnd::Unknown { link.last_end().unwrap_or(end) } else { end };
    Failure { fault: Fault::WorkerLost { worker: WorkerName::new(&link.info().name), end }, ..failure }
}
