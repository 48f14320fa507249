//! The dispatcher's side of a worker: a ring of steps to it, a ring of reports back, and the steps in flight. Only the
//! [`Wire`] knows whether the worker is a thread or a process.

use super::step::{Report, SessionSlot, Step, subject};
use super::step_wire::{ReportWords, RunHeader, StepHeader, StepKind};
use gt_ops::event::Subject;
use gt_ops::failure::{Failure, Fault};
use gt_ops::wire::{Encoder, SLOTS_MAX, Slot};
use std::collections::VecDeque;

/// The most expected time of the steps that are queued at a worker, nanoseconds.
pub const QUEUED_NS_MAX: u64 = 2_000_000;
/// The same while several sessions are at work: a light session may wait this long behind heavy ones.
pub const QUEUED_SHARED_NS_MAX: u64 = 500_000;
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
    queued_ns_max: u64,
    memory_bytes: u64,
    /// The last report's session, the bytes that its tensors take, and their peak unless the step failed.
    held: Option<(u64, u64, Option<u64>)>,
    /// Boxed because it is large; [`Queue::step`] takes it out while it uses it.
    encoder: Option<Box<Encoder>>,
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
            queued_ns_max: QUEUED_NS_MAX,
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

    /// Back-pressure: true while steps of `queued_ns_max` expected nanoseconds are queued, or little room is left.
    #[inline]
    pub fn is_full(&mut self, queued_ns_max: u64) -> bool {
        if self.in_flight.is_empty() {
            return false;
        }
        self.queued_ns_max = queued_ns_max;
        self.queued_ns >= queued_ns_max
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

    fn push(&mut self, header: StepHeader, command: &[Slot], sent: SentStep) {
        self.queued_ns += sent.expected_ns;
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
            unreported_ns_max: self.queued_ns_max / REPORTS_HELD_SHARE,
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

    /// True if all queued slots are in the ring.
    pub fn has_no_backlog(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Removes all steps, because the worker is gone, and reports each as failed by `fault`.
    pub fn lose(&mut self, fault: Fault) -> impl Iterator<Item = Report> + use<W> {
        self.backlog.clear();
        (self.queued_ns, self.memory_bytes) = (0, 0);
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
