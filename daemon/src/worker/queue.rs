//! The dispatcher's side of a worker: a ring of steps to it, a ring of reports back, and the steps in flight. Only the
//! [`Wire`] knows whether the worker is a thread or a process.

use super::step::{Report, SessionSlot, Step, subject};
use super::step_wire::{ReportWords, RunHeader, StepHeader, StepKind};
use gt_ops::event::Subject;
use gt_ops::failure::{Failure, Fault};
use gt_ops::wire::{Encoder, SLOTS_MAX, Slot};
use gt_protocol::RunningInfo;
use std::collections::VecDeque;
use std::time::Duration;

/// How much may be queued at a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    /// The most expected time of the queued steps, nanoseconds.
    pub queued_ns: u64,
    /// Behind a single step that is longer than that, one more is queued if the first is expected to take less than
    /// this, nanoseconds: the worker then has work while the dispatcher wakes up.
    pub first_ns: u64,
}

impl QueueLimit {
    /// While one session is at work.
    pub const SOLE: QueueLimit = QueueLimit { queued_ns: 2_000_000, first_ns: u64::MAX };
    /// While several sessions are at work: a light session waits for what heavy ones have queued.
    pub const SHARED: QueueLimit = QueueLimit { queued_ns: 500_000, first_ns: 1_000_000 };
}

/// A worker that has reported nothing for this long takes no more steps: its step takes longer than expected, or the
/// worker was stopped, and a step of several workers would keep the others waiting, nanoseconds.
const OVERDUE_NS: u64 = 20_000_000;
/// Capacity of the ring of steps, slots.
pub const WORK_SLOTS: u32 = 4096;
/// Capacity of the ring of reports, slots, and with it the most steps in flight.
pub const STEPS_MAX: usize = 2048;

/// The worker holds reports back for at most the time that may be queued, divided by this.
const REPORTS_HELD_SHARE: u64 = 4;

/// The two rings, of steps to a worker and of reports back.
pub trait Wire {
    /// How many slots of steps fit.
    fn free_slots(&mut self) -> u32;

    /// Writes slots, which must fit. The worker sees them after the next [`publish`](Self::publish).
    fn push(&mut self, slots: &[Slot]);

    /// Publishes the slots to the worker, and wakes it if it sleeps.
    fn publish(&mut self);

    /// The next report, if there is one.
    ///
    /// # Errors
    /// The worker's ring is corrupt.
    fn pop(&mut self) -> Result<Option<Slot>, InvalidReport>;
}

/// The steps of one worker that are not reported yet, whether sent or still to be sent.
pub struct Queue<W> {
    /// The rings.
    pub wire: W,
    /// Slots for which the ring had no room.
    backlog: VecDeque<Slot>,
    /// The steps that are queued or running, in the order in which their reports will come.
    in_flight: VecDeque<SentStep>,
    queued_ns: u64,
    /// The limit that [`Queue::is_full`] was last asked about.
    limit: QueueLimit,
    /// The dispatcher's time at its last look, and when the oldest step was first seen, nanoseconds.
    now_ns: u64,
    oldest_since_ns: u64,
    /// True if the oldest step has changed since the dispatcher's last look.
    progressed: bool,
    memory_bytes: u64,
    /// The last report's session, the bytes that its tensors take, and their peak unless the step failed.
    held: Option<(u64, u64, Option<u64>)>,
    /// Boxed because it is large; [`Queue::step`] takes it out while it uses it.
    encoder: Option<Box<Encoder>>,
}

/// The step that a worker runs.
#[derive(Clone, Copy, Debug)]
pub struct RunningStep {
    /// The session that the step belongs to.
    pub owner: SessionSlot,
    /// The step's operation; none for a step that the link itself needs.
    subject: Option<Subject>,
    /// How long it has run at least.
    pub since: Duration,
}

impl RunningStep {
    /// The description of the step for users; none if it is not a session's.
    pub fn info(self) -> Option<RunningInfo> {
        let RunningStep { owner, subject, since } = self;
        let step = subject?.name().into();
        Some(RunningInfo { session: owner.session, step, since_ms: since.as_millis() as u64 })
    }
}

struct SentStep {
    owner: SessionSlot,
    /// None for a step that the link itself needs ([`Queue::control`]).
    subject: Option<Subject>,
    origin: u64,
    token: u64,
    bytes: u64,
    cost_ns: u64,
    expected_ns: u64,
}

impl SentStep {
    fn report(self, took_ns: u64, result: Result<(), Failure>) -> Option<Report> {
        let SentStep { owner, subject, origin, token, bytes, cost_ns, expected_ns } = self;
        let subject = subject?;
        Some(Report { owner, subject, origin, token, bytes, cost_ns, expected_ns, took_ns, result })
    }
}

/// A report for which no step was sent, or a corrupt ring of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidReport;

impl<W: Wire> Queue<W> {
    /// An empty queue.
    pub fn new(wire: W) -> Queue<W> {
        Queue {
            wire,
            backlog: VecDeque::new(),
            in_flight: VecDeque::new(),
            queued_ns: 0,
            limit: QueueLimit::SOLE,
            now_ns: 0,
            oldest_since_ns: 0,
            progressed: true,
            memory_bytes: 0,
            held: None,
            encoder: None,
        }
    }

    /// True if no step is queued or running.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Notes the dispatcher's time, to notice a step that takes longer than expected.
    pub fn note_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if std::mem::take(&mut self.progressed) {
            self.oldest_since_ns = now_ns;
        }
    }

    /// Back-pressure: true while as much is queued as `limit` allows, a step is overdue, or little room is left.
    #[inline]
    pub fn is_full(&mut self, limit: QueueLimit) -> bool {
        if self.in_flight.is_empty() {
            return false;
        }
        self.limit = limit;
        self.queued_ns >= limit.queued_ns && (self.in_flight.len() > 1 || self.queued_ns >= limit.first_ns)
            || !self.progressed && self.now_ns.saturating_sub(self.oldest_since_ns) >= OVERDUE_NS
            || self.in_flight.len() >= STEPS_MAX / 2
            || !self.backlog.is_empty()
            || self.wire.free_slots() as usize <= 2 * SLOTS_MAX
    }

    /// Bytes that the worker's tensors took at its last report.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// The last report's session, the bytes that its tensors take, and their peak unless the step failed.
    pub fn held(&self) -> Option<(u64, u64, Option<u64>)> {
        self.held
    }

    /// The oldest step that was sent, which runs unless the worker is about to begin or report it, as of the
    /// dispatcher's last look.
    pub fn oldest(&self) -> Option<RunningStep> {
        let SentStep { owner, subject, .. } = *self.in_flight.front()?;
        let since_ns = if self.progressed { 0 } else { self.now_ns.saturating_sub(self.oldest_since_ns) };
        Some(RunningStep { owner, subject, since: Duration::from_nanos(since_ns) })
    }

    fn push(&mut self, header: StepHeader, command: &[Slot], sent: SentStep) {
        self.queued_ns += sent.expected_ns;
        self.progressed |= self.in_flight.is_empty();
        self.in_flight.push_back(sent);
        if self.backlog.is_empty() && self.wire.free_slots() as usize > command.len() {
            self.wire.push(&[header.encode()]);
            self.wire.push(command);
        } else {
            self.backlog.push_back(header.encode());
            self.backlog.extend(command);
        }
    }

    /// Queues a step that the link itself needs and that has no command, and publishes it at once. Its end is not
    /// reported to the dispatcher.
    pub fn control(&mut self, owner: SessionSlot, kind: StepKind) {
        let (subject, origin, token, bytes) = (None, 0, 0, 0);
        let sent = SentStep { owner, subject, origin, token, bytes, cost_ns: 0, expected_ns: 0 };
        self.push(StepHeader { owner, kind }, &[], sent);
        self.flush();
    }

    /// Queues a step.
    #[inline(never)]
    pub fn step(&mut self, step: &Step) {
        let mut encoder = self.encoder.take().unwrap_or_default();
        let slots = encoder.encode(&step.command);
        let run = RunHeader {
            command_slots: slots.len() as u32,
            origin: step.origin,
            expected_ns: step.expected_ns,
            unreported_ns_max: self.limit.queued_ns / REPORTS_HELD_SHARE,
        };
        let sent = SentStep {
            owner: step.owner,
            subject: Some(subject(&step.command)),
            origin: step.origin,
            token: step.token,
            bytes: step.bytes,
            cost_ns: step.cost_ns,
            expected_ns: step.expected_ns,
        };
        self.push(StepHeader { owner: step.owner, kind: StepKind::Run(run) }, slots, sent);
        self.encoder = Some(encoder);
    }

    /// Publishes the queued steps, as far as the ring has room.
    #[inline]
    pub fn flush(&mut self) {
        while !self.backlog.is_empty() {
            let room = self.wire.free_slots().min(self.backlog.len() as u32);
            if room == 0 {
                break;
            }
            for slot in self.backlog.drain(..room as usize) {
                self.wire.push(&[slot]);
            }
        }
        self.wire.publish();
    }

    /// The end of the oldest queued step, once it has ended.
    ///
    /// # Errors
    /// The report is not that of the oldest step.
    #[inline]
    pub fn next_report(&mut self) -> Result<Option<Report>, InvalidReport> {
        while let Some(oldest) = self.in_flight.front() {
            let Some(slot) = self.wire.pop()? else { return Ok(None) };
            let ReportWords { completion, took_ns, held_bytes, peak_bytes, memory_bytes } = ReportWords::decode(&slot);
            if completion.token != oldest.origin {
                return Err(InvalidReport);
            }
            self.memory_bytes = memory_bytes;
            let Some(ended) = self.in_flight.pop_front() else { break };
            self.progressed = true;
            self.queued_ns -= ended.expected_ns;
            if ended.subject.is_some() {
                self.held = Some((ended.owner.session, held_bytes, peak_bytes));
            }
            if let Some(report) = ended.report(took_ns, completion.result) {
                return Ok(Some(report));
            }
        }
        Ok(None)
    }

    /// True if some queued slots are not in the ring, which had no room.
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Removes all steps, because the worker is gone, and reports each as failed by `fault`.
    pub fn lose(&mut self, fault: Fault) -> impl Iterator<Item = Report> + use<W> {
        self.backlog.clear();
        (self.queued_ns, self.memory_bytes, self.progressed) = (0, 0, true);
        std::mem::take(&mut self.in_flight).into_iter().filter_map(move |lost| {
            let op = if let Some(Subject::Op(op)) = lost.subject { Some(op) } else { None };
            let failure = Failure { fault, instruction: lost.origin, op };
            lost.report(0, Err(failure))
        })
    }

    /// Puts the steps that `first` queues before those that are queued already.
    pub fn before_all(&mut self, first: impl FnOnce(&mut Self)) {
        let (backlog, in_flight) = (std::mem::take(&mut self.backlog), std::mem::take(&mut self.in_flight));
        first(self);
        self.backlog.extend(backlog);
        self.in_flight.extend(in_flight);
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::wire::{Command, Completion};
    use gt_ops::{Meta, Workers};

    const MS: u64 = 1_000_000;

    /// A ring that takes everything, and reports the steps that were told to have ended.
    #[derive(Default)]
    struct Endless(VecDeque<Slot>);

    impl Wire for Endless {
        fn free_slots(&mut self) -> u32 {
            WORK_SLOTS
        }
        fn push(&mut self, _: &[Slot]) {}
        fn publish(&mut self) {}
        fn pop(&mut self) -> Result<Option<Slot>, InvalidReport> {
            Ok(self.0.pop_front())
        }
    }

    fn queue(steps: &[u64]) -> Queue<Endless> {
        let mut queue = Queue::new(Endless::default());
        for (origin, expected_ns) in steps.iter().enumerate() {
            queue.step(&step(origin as u64, *expected_ns));
        }
        queue
    }

    fn step(origin: u64, expected_ns: u64) -> Step {
        Step {
            owner: SessionSlot::default(),
            workers: Workers::one(0),
            divided: false,
            requested: None,
            origin,
            token: 0,
            operands: [0; 2],
            command: Command::Sync { token: 0 },
            out: None::<Meta>,
            fused_ns: None,
            cost_ns: expected_ns,
            expected_ns,
            bytes: 0,
        }
    }

    fn end(queue: &mut Queue<Endless>, origin: u64) {
        let completion = Completion { token: origin, result: Ok(()) };
        let report = ReportWords { completion, took_ns: 1, held_bytes: 0, peak_bytes: None, memory_bytes: 0 };
        queue.wire.0.push_back(report.encode());
        assert!(queue.next_report().unwrap().is_some());
    }

    #[test]
    fn a_long_step_has_one_behind_it_at_most_and_none_while_others_wait() {
        for (steps, sole, shared) in [
            (&[MS][..], false, true),
            (&[MS * 3 / 4], false, false),
            (&[MS, MS], true, true),
            (&[MS / 5, MS / 5], false, false),
            (&[30 * MS], false, true),
            (&[30 * MS, 1], true, true),
        ] {
            let mut queue = queue(steps);
            let full = [QueueLimit::SOLE, QueueLimit::SHARED].map(|limit| queue.is_full(limit));
            assert_eq!(full, [sole, shared], "{steps:?}");
        }
    }

    #[test]
    fn nothing_is_queued_behind_a_step_that_is_overdue() {
        let mut queue = queue(&[1, 1]);
        queue.note_time(7 * MS);
        assert!(!queue.is_full(QueueLimit::SOLE));
        queue.note_time(7 * MS + OVERDUE_NS);
        assert!(queue.is_full(QueueLimit::SOLE), "the first takes far longer than expected");
        end(&mut queue, 0);
        assert!(!queue.is_full(QueueLimit::SOLE));
        queue.note_time(8 * MS + OVERDUE_NS);
        assert!(!queue.is_full(QueueLimit::SOLE), "the second has just begun");
        end(&mut queue, 1);
        queue.note_time(900 * MS);
        assert!(!queue.is_full(QueueLimit::SOLE), "an idle worker is not overdue");
        queue.step(&step(2, 1));
        queue.note_time(901 * MS);
        assert!(!queue.is_full(QueueLimit::SOLE));
    }
}
