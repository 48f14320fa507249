//! The dispatcher's side of a worker: a ring of steps to it, a ring of reports back, and the steps in flight. Only the
//! [`Wire`] knows whether the worker is a thread or a process.

use super::step::{Report, SentStep, SessionSlot, SharedStep, Step, subject};
use super::step_wire::{ReportWords, RunHeader, StepHeader, StepKind};
use gt_ops::event::Subject;
use gt_ops::failure::{Failure, Fault};
use gt_ops::wire::{Command, Encoder, SLOTS_MAX, Slot};
use gt_protocol::RunningInfo;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
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

/// A step that is expected to take at most this long is *light*: it runs at preemption points of heavy steps of other
/// sessions, nanoseconds.
pub const LIGHT_NS_MAX: u64 = 5_000_000;
/// The most expected time of the light steps that are queued behind a heavy step to overtake it, unless a single one
/// takes longer, nanoseconds.
const OVERTAKING_NS_MAX: u64 = QueueLimit::SHARED.queued_ns;

/// Whether steps that are handed over together, and are expected to take `expected_ns`, are light. A reshard waits for
/// other workers, and steps of several workers have one order at all of them, so none of these is.
pub fn are_light(steps: &[Step], expected_ns: u64) -> bool {
    let alone = |step: &Step| step.workers.len() == 1 && !matches!(step.command, Command::Reshard(_));
    expected_ns <= LIGHT_NS_MAX && steps.iter().all(alone)
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

    /// Writes a step, which must fit. The worker sees it after the next [`publish`](Self::publish).
    fn push(&mut self, header: &Slot, command: &[Slot]);

    /// As [`push`](Self::push) for a step that several workers get.
    fn push_shared(&mut self, slots: &Arc<[Slot]>) {
        if let Some((header, command)) = slots.split_first() {
            self.push(header, command);
        }
    }

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
    in_flight: StepsInFlight,
    queued_ns: u64,
    /// The session of the first of them that is expected to take any time, and whether some of these are another
    /// session's: if not, its time need not be summed up.
    owner: SessionSlot,
    is_mixed: bool,
    /// The expected time of the light steps among them, nanoseconds.
    light_ns: u64,
    /// The time of the steps that have overtaken the oldest one, nanoseconds.
    overtook_ns: u64,
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
    /// Whether it may wait for other workers.
    pub fn is_collective(&self) -> bool {
        self.subject == Some(Subject::Reshard)
    }

    /// The description of the step for users; none if it is not a session's.
    pub fn info(self) -> Option<RunningInfo> {
        let RunningStep { owner, subject, since, .. } = self;
        let step = subject?.name().into();
        Some(RunningInfo { session: owner.session, step, since_ms: since.as_millis() as u64 })
    }
}

/// A heavy step that runs, which light steps of other sessions may overtake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptedStep {
    /// The session that the step belongs to.
    pub owner: SessionSlot,
    /// The expected time of that session's steps at the worker which it has not had yet, nanoseconds; negative if the
    /// step takes longer than expected.
    pub outstanding_ns: i64,
    /// The time that the step has had, nanoseconds.
    pub ran_ns: u64,
}

impl SentStep {
    fn of(step: &Step, is_light: bool) -> SentStep {
        let Step { owner, origin, token, bytes, cost_ns, expected_ns, .. } = *step;
        let subject = Some(subject(&step.command));
        SentStep { owner, subject, origin, token, bytes, cost_ns, expected_ns, is_light }
    }

    fn light_ns(&self) -> u64 {
        if self.is_light { self.expected_ns } else { 0 }
    }

    fn report(&self, took_ns: u64, result: Result<(), Failure>) -> Option<Report> {
        let SentStep { owner, subject, origin, token, bytes, cost_ns, expected_ns, .. } = *self;
        let subject = subject?;
        Some(Report { owner, subject, origin, token, bytes, cost_ns, expected_ns, took_ns, result })
    }
}

/// Makes the slots and the record of a step once for all of its workers.
pub fn shared_step(step: &Step, encoder: &mut Encoder, limit: QueueLimit) -> SharedStep {
    let command = encoder.encode(&step.command);
    // A step of several workers overtakes none, as `are_light` says.
    let header = run_header(step, command.len(), limit, false).encode();
    let slots = std::iter::once(header).chain(command.iter().copied()).collect();
    SharedStep { slots, sent: Rc::new(SentStep::of(step, false)) }
}

fn run_header(step: &Step, command_slots: usize, limit: QueueLimit, is_light: bool) -> StepHeader {
    let run = RunHeader {
        command_slots: command_slots as u32,
        origin: step.origin,
        expected_ns: step.expected_ns,
        unreported_ns_max: limit.queued_ns / REPORTS_HELD_SHARE,
        is_light,
    };
    StepHeader { owner: step.owner, kind: StepKind::Run(run) }
}

/// The steps of a queue that are not reported yet, in order. A step of many workers is in as many queues, each of which
/// touches little memory of its own for it.
#[derive(Default)]
struct StepsInFlight {
    /// None for a step that is in `own`.
    order: VecDeque<Option<Rc<SentStep>>>,
    /// The steps of this queue alone, in the same order.
    own: VecDeque<SentStep>,
}

impl StepsInFlight {
    fn len(&self) -> usize {
        self.order.len()
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn push(&mut self, sent: SentStep) {
        self.order.push_back(None);
        self.own.push_back(sent);
    }

    /// The number of own steps before position `at`.
    #[inline]
    fn own_before(&self, at: usize) -> usize {
        if at == 0 { 0 } else { self.order.iter().take(at).filter(|shared| shared.is_none()).count() }
    }

    #[inline]
    fn get(&self, at: usize) -> Option<&SentStep> {
        match self.order.get(at)? {
            Some(shared) => Some(shared),
            None => self.own.get(self.own_before(at)),
        }
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        let own = self.own_before(at);
        if let Some(None) = self.order.remove(at) {
            self.own.remove(own);
        }
    }

    fn iter(&self) -> impl Iterator<Item = &SentStep> {
        let mut own = self.own.iter();
        self.order.iter().filter_map(move |shared| shared.as_deref().or_else(|| own.next()))
    }

    fn append(&mut self, mut later: StepsInFlight) {
        self.order.append(&mut later.order);
        self.own.append(&mut later.own);
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
            in_flight: StepsInFlight::default(),
            queued_ns: 0,
            owner: SessionSlot::default(),
            is_mixed: false,
            light_ns: 0,
            overtook_ns: 0,
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

    /// Whether a step of the session at `slot` is queued or running.
    pub fn has_steps_of(&self, slot: u32) -> bool {
        self.in_flight.iter().any(|sent| sent.owner.slot == slot && sent.subject.is_some())
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
            || !self.has_room(STEPS_MAX / 2)
    }

    fn has_room(&mut self, steps_max: usize) -> bool {
        self.in_flight.len() < steps_max && self.backlog.is_empty() && self.wire.free_slots() as usize > 2 * SLOTS_MAX
    }

    /// The time that the oldest step has run at least, without that of the steps which overtook it, nanoseconds.
    fn oldest_ns(&self) -> u64 {
        let since_ns = if self.progressed { 0 } else { self.now_ns.saturating_sub(self.oldest_since_ns) };
        since_ns.saturating_sub(self.overtook_ns)
    }

    /// The oldest step, if it is heavy: expected to take more than [`LIGHT_NS_MAX`], or running for so long.
    pub fn preempted(&self) -> Option<PreemptedStep> {
        let oldest = self.in_flight.get(0)?;
        let ran_ns = self.oldest_ns();
        if oldest.expected_ns <= LIGHT_NS_MAX && ran_ns <= LIGHT_NS_MAX {
            return None;
        }
        let own_ns = if self.is_mixed || self.owner != oldest.owner {
            let own = self.in_flight.iter().filter(|sent| sent.owner == oldest.owner);
            own.map(|sent| sent.expected_ns).sum()
        } else {
            self.queued_ns
        };
        let outstanding_ns = own_ns as i64 - ran_ns as i64;
        Some(PreemptedStep { owner: oldest.owner, outstanding_ns, ran_ns })
    }

    /// Whether light steps of session `owner` that are expected to take `expected_ns` may be queued to overtake the
    /// [heavy step](Self::preempted): all of the session's steps here are light, and those that overtake have at most
    /// as much time as the heavy step itself, and [`LIGHT_NS_MAX`] more. Some room is theirs alone, as very many small
    /// steps may wait.
    pub fn may_overtake(&mut self, owner: SessionSlot, expected_ns: u64) -> bool {
        let light_ns = self.light_ns + expected_ns;
        (self.light_ns == 0 || light_ns <= OVERTAKING_NS_MAX)
            && self.overtook_ns.saturating_add(light_ns) <= self.oldest_ns() + LIGHT_NS_MAX
            && self.has_room(STEPS_MAX / 4 * 3)
            && !self.in_flight.iter().any(|sent| sent.owner == owner && sent.subject.is_some() && !sent.is_light)
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
        let SentStep { owner, subject, .. } = *self.in_flight.get(0)?;
        Some(RunningStep { owner, subject, since: Duration::from_nanos(self.oldest_ns()) })
    }

    fn push(&mut self, header: StepHeader, command: &[Slot], sent: SentStep) {
        self.note_sent(&sent);
        self.in_flight.push(sent);
        if self.backlog.is_empty() && self.wire.free_slots() as usize > command.len() {
            self.wire.push(&header.encode(), command);
        } else {
            self.backlog.push_back(header.encode());
            self.backlog.extend(command);
        }
    }

    #[inline]
    fn note_sent(&mut self, sent: &SentStep) {
        if sent.expected_ns > 0 {
            if self.queued_ns == 0 {
                (self.owner, self.is_mixed) = (sent.owner, false);
            }
            self.is_mixed |= sent.owner != self.owner;
        }
        self.queued_ns += sent.expected_ns;
        self.light_ns += sent.light_ns();
        self.progressed |= self.in_flight.is_empty();
    }

    #[inline]
    fn push_shared(&mut self, SharedStep { slots, sent }: &SharedStep) {
        self.note_sent(sent);
        self.in_flight.order.push_back(Some(sent.clone()));
        if self.backlog.is_empty() && self.wire.free_slots() as usize >= slots.len() {
            self.wire.push_shared(slots);
        } else {
            self.backlog.extend(&**slots);
        }
    }

    /// Queues a step that the link itself needs and that has no command, and publishes it at once. Its end is not
    /// reported to the dispatcher.
    pub fn control(&mut self, owner: SessionSlot, kind: StepKind) {
        let (subject, origin, token, bytes) = (None, 0, 0, 0);
        let sent = SentStep { owner, subject, origin, token, bytes, cost_ns: 0, expected_ns: 0, is_light: false };
        self.push(StepHeader { owner, kind }, &[], sent);
        self.flush();
    }

    /// Queues steps of one session that are handed over together. `shared` has what all workers of each step get, or is
    /// empty.
    #[inline(never)]
    pub fn steps(&mut self, steps: &[Step], shared: &[SharedStep]) {
        if !shared.is_empty() {
            return shared.iter().for_each(|step| self.push_shared(step));
        }
        let is_light = are_light(steps, steps.iter().map(|step| step.expected_ns).sum());
        steps.iter().for_each(|step| self.step(step, is_light));
    }

    fn step(&mut self, step: &Step, is_light: bool) {
        let mut encoder = self.encoder.take().unwrap_or_default();
        let command = encoder.encode(&step.command);
        let header = run_header(step, command.len(), self.limit, is_light);
        self.push(header, command, SentStep::of(step, is_light));
        self.encoder = Some(encoder);
    }

    /// Publishes the queued steps, as far as the ring has room.
    #[inline]
    pub fn flush(&mut self) {
        if !self.backlog.is_empty() {
            self.push_backlog();
        }
        self.wire.publish();
    }

    /// Writes the steps for which the ring had no room, as far as it has some now.
    #[cold]
    fn push_backlog(&mut self) {
        while let Some(slots) = self.backlog.front().map(StepHeader::step_slots)
            && self.wire.free_slots() as usize >= slots
        {
            let step: Vec<Slot> = self.backlog.drain(..slots.min(self.backlog.len())).collect();
            if let Some((header, command)) = step.split_first() {
                self.wire.push(header, command);
            }
        }
    }

    /// The next end of a queued step: of the oldest, or of one that has overtaken it.
    ///
    /// # Errors
    /// The report is not that of a queued step.
    #[inline]
    pub fn next_report(&mut self) -> Result<Option<Report>, InvalidReport> {
        while !self.in_flight.is_empty() {
            let Some(slot) = self.wire.pop()? else { return Ok(None) };
            let report = ReportWords::decode(&slot);
            let ReportWords { completion, took_ns, held_bytes, peak_bytes, memory_bytes, overtaken } = report;
            let at = usize::from(overtaken);
            let Some(ended) = self.in_flight.get(at).filter(|sent| completion.token == sent.origin) else {
                return Err(InvalidReport);
            };
            self.memory_bytes = memory_bytes;
            if at == 0 {
                (self.progressed, self.overtook_ns) = (true, 0);
            } else {
                self.overtook_ns = self.overtook_ns.saturating_add(took_ns);
            }
            self.queued_ns -= ended.expected_ns;
            self.light_ns -= ended.light_ns();
            if ended.subject.is_some() {
                self.held = Some((ended.owner.session, held_bytes, peak_bytes));
            }
            let report = ended.report(took_ns, completion.result);
            self.in_flight.remove(at);
            if report.is_some() {
                return Ok(report);
            }
        }
        Ok(None)
    }

    /// True if some queued slots are not in the ring, which had no room.
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Removes all steps, because the worker is gone, and reports each as failed by `fault`.
    pub fn lose(&mut self, fault: Fault) -> Vec<Report> {
        self.backlog.clear();
        (self.queued_ns, self.light_ns, self.overtook_ns) = (0, 0, 0);
        (self.memory_bytes, self.progressed) = (0, true);
        let report = move |lost: &SentStep| {
            let op = if let Some(Subject::Op(op)) = lost.subject { Some(op) } else { None };
            let failure = Failure { fault, instruction: lost.origin, op };
            lost.report(0, Err(failure))
        };
        std::mem::take(&mut self.in_flight).iter().filter_map(report).collect::<Vec<_>>()
    }

    /// Puts the steps that `first` queues before those that are queued already.
    pub fn before_all(&mut self, first: impl FnOnce(&mut Self)) {
        let (backlog, in_flight) = (std::mem::take(&mut self.backlog), std::mem::take(&mut self.in_flight));
        first(self);
        self.backlog.extend(backlog);
        self.in_flight.append(in_flight);
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::wire::Completion;
    use gt_ops::{Meta, Workers};

    const MS: u64 = 1_000_000;

    /// A ring that takes everything, and reports the steps that were told to have ended.
    #[derive(Default)]
    struct Endless(VecDeque<Slot>);

    impl Wire for Endless {
        fn free_slots(&mut self) -> u32 {
            WORK_SLOTS
        }
        fn push(&mut self, _: &Slot, _: &[Slot]) {}
        fn publish(&mut self) {}
        fn pop(&mut self) -> Result<Option<Slot>, InvalidReport> {
            Ok(self.0.pop_front())
        }
    }

    fn queue(steps: &[u64]) -> Queue<Endless> {
        let mut queue = Queue::new(Endless::default());
        for (origin, expected_ns) in steps.iter().enumerate() {
            queue.steps(&[step(origin as u64, *expected_ns)], &[]);
        }
        queue
    }

    #[test]
    fn steps_of_several_workers_and_of_one_are_reported_in_order() {
        let mut queue = queue(&[5]);
        let mut encoder = Encoder::default();
        let mut shared = |origin| {
            let step = step(origin, 7);
            let made = shared_step(&step, &mut encoder, QueueLimit::SOLE);
            (step, made)
        };
        let steps = [shared(1), shared(2)];
        steps.iter().for_each(|(step, made)| queue.steps(std::slice::from_ref(step), std::slice::from_ref(made)));
        queue.steps(&[step(3, 9)], &[]);
        queue.steps(&[step(4, 11)], &[]);
        let header = StepHeader::decode(&steps[0].1.slots[0]).unwrap();
        assert_eq!((header.origin(), header.expected_ns(), steps[0].1.slots.len()), (1, 7, 2));
        let mut end = |origin, overtaken| {
            let report = ReportWords {
                completion: Completion { token: origin, result: Ok(()) },
                took_ns: 1,
                held_bytes: 0,
                peak_bytes: None,
                memory_bytes: 0,
                overtaken,
            };
            queue.wire.0.push_back(report.encode());
            queue.next_report().map(|report| report.map(|report| (report.origin, report.expected_ns)))
        };
        assert_eq!(end(0, 0), Ok(Some((0, 5))));
        assert_eq!(end(3, 2), Ok(Some((3, 9))), "it has overtaken two");
        assert_eq!(end(2, 0), Err(InvalidReport), "the oldest is another");
        assert_eq!(end(2, 1), Ok(Some((2, 7))));
        let lost = queue.lose(Fault::ZeroDivision);
        assert_eq!(lost.iter().map(|report| report.origin).collect::<Vec<_>>(), [1, 4]);
        assert!(queue.is_empty());
    }

    fn step(origin: u64, expected_ns: u64) -> Step {
        Step {
            owner: SessionSlot::default(),
            workers: Workers::one(0),
            divided: false,
            requested: None,
            origin,
            token: 0,
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
        let report =
            ReportWords { completion, took_ns: 1, held_bytes: 0, peak_bytes: None, memory_bytes: 0, overtaken: 0 };
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
        queue.steps(&[step(2, 1)], &[]);
        queue.note_time(901 * MS);
        assert!(!queue.is_full(QueueLimit::SOLE));
    }

    fn report(queue: &mut Queue<Endless>, origin: u64, overtaken: u16) -> Result<Option<u64>, InvalidReport> {
        let completion = Completion { token: origin, result: Ok(()) };
        let report =
            ReportWords { completion, took_ns: 2 * MS, held_bytes: 0, peak_bytes: None, memory_bytes: 0, overtaken };
        queue.wire.0.push_back(report.encode());
        Ok(queue.next_report()?.map(|report| report.origin))
    }

    #[test]
    fn a_step_that_overtook_others_is_reported_before_them_and_its_time_is_not_theirs() {
        let mut queue = queue(&[30 * MS, 1, 2]);
        queue.note_time(0);
        queue.note_time(12 * MS);
        assert_eq!(report(&mut queue, 2, 2), Ok(Some(2)));
        let oldest = queue.oldest().unwrap();
        assert_eq!((oldest.since, queue.queued_ns), (Duration::from_millis(10), 30 * MS + 1));
        for (origin, overtaken) in [(0, 1), (1, 0), (7, 0), (1, 2), (1, u16::MAX)] {
            assert_eq!(report(&mut queue, origin, overtaken), Err(InvalidReport), "{origin} {overtaken}");
        }
        assert_eq!(report(&mut queue, 0, 0), Ok(Some(0)));
        assert_eq!(report(&mut queue, 1, 0), Ok(Some(1)));
        assert!(queue.is_empty() && (queue.queued_ns, queue.light_ns, queue.overtook_ns) == (0, 0, 0));
    }

    #[test]
    fn light_steps_overtake_a_heavy_step_of_another_session_within_bounds() {
        let other = SessionSlot { session: 7, slot: 1 };
        let light = |queue: &mut Queue<Endless>, origin, expected_ns| {
            queue.steps(&[Step { owner: other, ..step(origin, expected_ns) }], &[]);
        };
        let mut queue = queue(&[LIGHT_NS_MAX]);
        queue.note_time(0);
        assert_eq!(queue.preempted(), None, "a light step is not preempted");
        queue.note_time(LIGHT_NS_MAX + 1);
        let owner = SessionSlot::default();
        let outstanding_ns = -1;
        let ran_ns = LIGHT_NS_MAX + 1;
        let overdue = PreemptedStep { owner, outstanding_ns, ran_ns };
        assert_eq!(queue.preempted(), Some(overdue), "it took longer than expected");
        end(&mut queue, 0);
        queue.steps(&[step(1, 30 * MS)], &[]);
        queue.note_time(9 * MS);
        assert_eq!(queue.preempted(), Some(PreemptedStep { owner, outstanding_ns: 30 * MS as i64, ran_ns: 0 }));
        assert!(queue.is_full(QueueLimit::SHARED) && queue.may_overtake(other, LIGHT_NS_MAX));
        assert!(!queue.may_overtake(owner, 1), "the order of a session's steps is kept");
        assert!(!queue.may_overtake(other, LIGHT_NS_MAX + 1), "the heavy step has not run for so long");
        // Several are short together.
        light(&mut queue, 2, OVERTAKING_NS_MAX - 1);
        assert!(queue.may_overtake(other, 1) && !queue.may_overtake(other, 2));
        // The heavy step has at least as much time, but for the first milliseconds.
        for _ in 0..2 {
            assert_eq!(report(&mut queue, 2, 1), Ok(Some(2)));
            assert!(queue.may_overtake(other, LIGHT_NS_MAX - queue.overtook_ns));
            assert!(!queue.may_overtake(other, LIGHT_NS_MAX - queue.overtook_ns + 1));
            light(&mut queue, 2, 1);
        }
        queue.note_time(9 * MS + 20 * MS);
        assert_eq!(report(&mut queue, 2, 1), Ok(Some(2)));
        let ran_ns = 14 * MS;
        assert_eq!(queue.preempted(), Some(PreemptedStep { owner, outstanding_ns: 16 * MS as i64, ran_ns }));
        assert!(queue.may_overtake(other, LIGHT_NS_MAX));
        // A heavy step of the other session comes to wait: what follows it keeps its place.
        light(&mut queue, 3, 40 * MS);
        assert!(!queue.may_overtake(other, 1));
    }

    #[test]
    fn steps_of_several_workers_and_reshards_are_not_light() {
        assert!(are_light(&[step(1, 5), step(2, 6)], LIGHT_NS_MAX));
        assert!(!are_light(&[step(1, 5)], LIGHT_NS_MAX + 1));
        assert!(!are_light(&[step(1, 5), Step { workers: Workers::first_of(2), ..step(2, 6) }], 11));
    }
}
