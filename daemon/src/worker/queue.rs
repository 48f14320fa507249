//! What lies between the dispatcher and a worker, as the dispatcher sees it: a ring of steps there and a ring of
//! reports back. Whether the worker is a thread or a process is the [`Wire`]'s business.
//!
//! Steps travel as the slots of their command behind a head; a head alone says what only the link knows of. One report
//! comes for each head, in order.

use super::step::{Report, SessionSlot, Step, subject};
use gt_ops::failure::{Failure, Fault};
use gt_ops::text::Subject;
use gt_ops::wire::{Completion, Encoder, SLOTS_MAX, Slot};
use std::collections::VecDeque;

/// Expected time of what is queued at once, nanoseconds,
pub const QUEUED_NS_MAX: u64 = 2_000_000;
/// and where several sessions are at work: how long a light one may wait behind heavy ones.
pub const QUEUED_SHARED_NS_MAX: u64 = 500_000;
/// Slots of steps on their way.
pub const WORK_SLOTS: u32 = 4096;
/// Steps on their way.
pub const STEPS_MAX: usize = 2048;

/// The first slot of a step: what it is, how many slots follow, for whom.
pub mod kind {
    /// A command, in the slots that follow.
    pub const RUN: u64 = 1;
    /// A session begins.
    pub const OPEN: u64 = 2;
    /// A session ends.
    pub const CLOSE: u64 = 3;
    /// Memory that is only kept may go.
    pub const TRIM: u64 = 4;
    /// The worker ends.
    pub const STOP: u64 = 5;
    /// What comes next beside the ring is to be done now.
    pub const MESSAGE: u64 = 6;
    /// A place in a group is to be taken; which group, and the place, as the link says.
    pub const JOIN: u64 = 7;
    /// A group is to be left: which, and who of it will be in none again.
    pub const LEAVE: u64 = 8;
    /// A session's tensors may take so many bytes: its limit, its user, and that user's limit.
    pub const LIMIT: u64 = 9;
    /// Sessions that begin compute on this worker, which has registered itself.
    pub const REGISTERED: u64 = 10;
    /// The most bytes that a session held counts from now on.
    pub const RESET_PEAK: u64 = 11;
}

/// The worker holds reports back for at most this part of what may be queued.
const REPORTS_HELD_SHARE: u64 = 4;
/// The word of a report whose upper bits say how long the step took, nanoseconds,
pub const REPORT_TOOK_WORD: usize = 1;
/// the one whose upper bits say how many bytes the session's tensors take,
pub const REPORT_HELD_WORD: usize = 3;
/// and where those bits begin; the rest is the completion's.
pub const REPORT_SHIFT: u32 = 16;
/// A step is not believed to have taken longer, nanoseconds: an hour.
const TOOK_NS_MAX: u64 = 3600 * 1_000_000_000;
/// The word of a report of what went well that says the most bytes that the session's tensors took at one time.
pub const REPORT_PEAK_WORD: usize = 4;
/// The word of a report that says how many bytes the worker's tensors take.
pub const REPORT_MEMORY_WORD: usize = 7;

/// How steps get to a worker and reports back.
pub trait Wire {
    /// Slots of steps that fit now.
    fn free_slots(&mut self) -> u32;

    /// Writes slots that fit. They travel with the next [`publish`](Self::publish).
    fn push(&mut self, slots: &[Slot]);

    /// Lets the worker see what was pushed, and wakes it if it sleeps.
    fn publish(&mut self);

    /// The next report, if there is one.
    ///
    /// # Errors
    /// The worker's ring is corrupt.
    fn pop(&mut self) -> Result<Option<Slot>, Nonsense>;
}

/// What was sent and is not yet reported, and what is still to be sent.
pub struct Queue<W> {
    /// The rings.
    pub wire: W,
    /// Slots that found no room.
    backlog: VecDeque<Slot>,
    /// What is queued or running, oldest first: as the reports will come.
    in_flight: VecDeque<SentStep>,
    queued_ns: u64,
    /// As last asked about.
    queued_ns_max: u64,
    memory_bytes: u64,
    /// The session of the last report, the bytes that its tensors took, and the most that they did if it says so.
    held: Option<(u64, u64, Option<u64>)>,
    /// Taken while it is used: it is larger than what it mostly holds.
    encoder: Option<Box<Encoder>>,
}

struct SentStep {
    owner: SessionSlot,
    /// None for what only the link knows of.
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

/// A report of what was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonsense;

impl<W: Wire> Queue<W> {
    /// Nothing queued.
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

    /// True if nothing is queued or running.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// True while as much is queued as should be at one time.
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

    /// The session of the last report, the bytes that its tensors took, and the most that they did if it says so.
    pub fn held(&self) -> Option<(u64, u64, Option<u64>)> {
        self.held
    }

    fn push(&mut self, head: Slot, rest: &[Slot], in_flight: SentStep) {
        self.queued_ns += in_flight.expected_ns;
        self.in_flight.push_back(in_flight);
        if self.backlog.is_empty() && self.wire.free_slots() as usize > rest.len() {
            self.wire.push(&[head]);
            self.wire.push(rest);
        } else {
            self.backlog.push_back(head);
            self.backlog.extend(rest);
        }
    }

    /// Queues what only the link knows of: a [`kind`] without a command. The worker sees it at once.
    pub fn control(&mut self, what: u64, owner: SessionSlot, detail: [u64; 3]) {
        let [a, b, c] = detail;
        let head = [what, owner.slot as u64, owner.session, 0, 0, a, b, c];
        let (subject, origin, token, bytes) = (None, 0, 0, 0);
        self.push(head, &[], SentStep { owner, subject, origin, token, bytes, cost_ns: 0, expected_ns: 0 });
        self.flush();
    }

    /// Queues a step.
    #[inline(never)]
    pub fn step(&mut self, step: &Step) {
        let mut encoder = self.encoder.take().unwrap_or_default();
        let slots = encoder.encode(&step.command);
        let SessionSlot { slot, session } = step.owner;
        let what = kind::RUN | (slots.len() as u64) << 32;
        // The worker reports after a part of what is queued, lest it be idle until more comes.
        let held_ns_max = self.queued_ns_max / REPORTS_HELD_SHARE;
        let head = [what, slot as u64, session, step.origin, step.expected_ns, held_ns_max, 0, 0];
        let in_flight = SentStep {
            owner: step.owner,
            subject: Some(subject(&step.command)),
            origin: step.origin,
            token: step.token,
            bytes: step.bytes,
            cost_ns: step.cost_ns,
            expected_ns: step.expected_ns,
        };
        self.push(head, slots, in_flight);
        self.encoder = Some(encoder);
    }

    /// Lets the worker see what was queued, as far as there is room.
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
    /// The worker reports what was not its turn.
    #[inline]
    pub fn next_report(&mut self) -> Result<Option<Report>, Nonsense> {
        while let Some(oldest) = self.in_flight.front() {
            let Some(mut slot) = self.wire.pop()? else { return Ok(None) };
            let [took_ns, held] = [REPORT_TOOK_WORD, REPORT_HELD_WORD].map(|word| {
                let upper = slot[word] >> REPORT_SHIFT;
                slot[word] &= (1 << REPORT_SHIFT) - 1;
                upper
            });
            let took_ns = took_ns.min(TOOK_NS_MAX);
            let Completion { token, result } = Completion::decode(&slot);
            if token != oldest.origin {
                return Err(Nonsense);
            }
            self.memory_bytes = slot[REPORT_MEMORY_WORD];
            let Some(ended) = self.in_flight.pop_front() else { break };
            self.queued_ns -= ended.expected_ns;
            if ended.subject.is_some() {
                let peak = result.is_ok().then_some(slot[REPORT_PEAK_WORD]);
                self.held = Some((ended.owner.session, held, peak));
            }
            if let Some(report) = ended.report(took_ns, result) {
                return Ok(Some(report));
            }
        }
        Ok(None)
    }

    /// True if everything that is queued found room.
    pub fn has_no_backlog(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Forgets what is queued, because the worker is gone; each step's end is a report of `fault`.
    pub fn lose(&mut self, fault: Fault) -> impl Iterator<Item = Report> + use<W> {
        self.backlog.clear();
        (self.queued_ns, self.memory_bytes) = (0, 0);
        std::mem::take(&mut self.in_flight).into_iter().filter_map(move |lost| {
            let op = if let Some(Subject::Op(op)) = lost.subject { Some(op) } else { None };
            let failure = Failure { fault, instruction: lost.origin, op };
            lost.report(0, Err(failure))
        })
    }

    /// Queues what `first` queues before everything that waits already.
    pub fn before_all(&mut self, first: impl FnOnce(&mut Self)) {
        let (backlog, in_flight) = (std::mem::take(&mut self.backlog), std::mem::take(&mut self.in_flight));
        first(self);
        self.backlog.extend(backlog);
        self.in_flight.extend(in_flight);
        self.flush();
    }
}
