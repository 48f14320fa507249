//! A timeline: what sessions issued, what the dispatcher did, and what ran when at each worker.
//!
//! The tape tells when the dispatcher handed a step over, when it heard of the end, and how long the step took. Reports
//! come in batches, so steps that ended at one time are laid backwards from it, one before the other. Of small steps
//! that the dispatcher ran itself it knows only the time of many together: they are laid forwards from the time at
//! which they were handed over, with their estimates, and shrunk to end before the next event.

use crate::steps::{EndedStep, StepTracker};
use crate::totals::OperationTotals;
use gt_ops::event::{Event, EventKind, LogLine, NO_WORKER, StepTime, Subject};
use gt_ops::result_meta::ResultMeta;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// An instruction as it came from a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IssuedInstruction {
    /// The number of the event.
    pub number: u64,
    /// When the dispatcher read it, nanoseconds on the tape's clock, as all times here.
    pub time_ns: u64,
    /// The operation.
    pub subject: Subject,
    /// The tensor defined, fetched or freed; 0 for none.
    pub result: u64,
    /// The first two tensor operands; 0 for none.
    pub operands: [u64; 2],
    /// Bytes of the instruction on the wire, or of the data moved.
    pub bytes: u64,
}

/// The time from an instruction that a program waits for to its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedInstruction {
    /// The number of the event of the instruction.
    pub number: u64,
    /// When the dispatcher read the instruction.
    pub begin_ns: u64,
    /// When it sent the completion.
    pub end_ns: u64,
    /// The operation.
    pub subject: Subject,
    /// The tensor fetched or written; 0 for none.
    pub result: u64,
    /// Bytes of the data moved.
    pub bytes: u64,
}

/// The outcome of the step of a [`WorkSlice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceOutcome {
    /// It ended.
    Done,
    /// It failed.
    Failed,
    /// It runs at the end of the timeline.
    Running,
}

/// The time of one step at a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkSlice {
    /// The beginning, as near as the tape tells it.
    pub begin_ns: u64,
    /// The end.
    pub end_ns: u64,
    /// The session.
    pub session: u64,
    /// The operation.
    pub subject: Subject,
    /// The tensor defined, fetched or freed; 0 for none.
    pub result: u64,
    /// Its dtype and sizes; none for a step that defines no tensor, or if the event that tells them is missing.
    pub out: Option<ResultMeta>,
    /// Bytes of the instruction on the wire, or of the data moved.
    pub bytes: u64,
    /// The number of the event of the instruction; none if the daemon made the step, or that event is missing.
    pub issued: Option<u64>,
    /// When the step was handed over; none if that event is missing.
    pub sent_ns: Option<u64>,
    /// The time it took; a measured time of 0 means that it was fused with the one before.
    pub time: StepTime,
    /// The outcome.
    pub outcome: SliceOutcome,
}

/// Events of one session that the dispatcher wrote between two looks at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DispatcherVisit {
    /// The beginning.
    pub begin_ns: u64,
    /// The end, as far as the dispatcher ran steps itself.
    pub end_ns: u64,
    /// The session.
    pub session: u64,
    /// Instructions read.
    pub received: u32,
    /// Steps handed to workers.
    pub handed_over: u32,
    /// Steps of which it heard that they ended.
    pub ended: u32,
}

/// The number of steps at a worker from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthChange {
    /// The time.
    pub time_ns: u64,
    /// Steps that are queued or running.
    pub depth: usize,
}

/// The time in which a session followed one sequence that it repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotStretch {
    /// The beginning.
    pub begin_ns: u64,
    /// The end.
    pub end_ns: u64,
    /// The number of the sequence in the session.
    pub sequence: u64,
    /// The instructions of the sequence; 0 if the event that tells them is missing.
    pub length: u64,
    /// The instructions in this time, and those of them that were taken from the plan; none if the session follows the
    /// sequence at the end of the timeline.
    pub followed: Option<[u64; 2]>,
}

/// A session's part of a timeline.
#[derive(Clone, Debug, Default)]
pub struct SessionLane {
    /// Its instructions.
    pub issued: Vec<IssuedInstruction>,
    /// Those that its program waited for.
    pub awaited: Vec<AwaitedInstruction>,
    /// When it followed sequences that it repeats.
    pub hot: Vec<HotStretch>,
    /// When it connected, if that is on the tape.
    pub connected_ns: Option<u64>,
    /// When it disconnected.
    pub disconnected_ns: Option<u64>,
}

/// A worker's part of a timeline.
#[derive(Clone, Debug, Default)]
pub struct WorkerLane {
    /// Its steps by their beginning. Two of them follow or contain each other.
    pub slices: Vec<WorkSlice>,
    /// Its uploads and fetches, if they run on a stream of their own; else they are among the others.
    pub copies: Vec<WorkSlice>,
    /// Changes of its queue.
    pub depths: Vec<DepthChange>,
    /// Failed steps: time, session and operation.
    pub failures: Vec<(u64, u64, Subject)>,
    /// Steps that have not begun at the end: the session, and when they were handed over.
    pub queued: Vec<(u64, u64)>,
}

/// A step that a worker runs according to the daemon's status, whose event may be older than the tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRunning {
    /// The worker's number.
    pub worker: usize,
    /// The session.
    pub session: u64,
    /// The operation.
    pub subject: Subject,
    /// When it began.
    pub begin_ns: u64,
}

/// The events of a stretch of time, arranged.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The first time.
    pub begin_ns: u64,
    /// The last time.
    pub end_ns: u64,
    /// The number of events.
    pub events: u64,
    /// The instructions among them.
    pub instructions: u64,
    /// The number of events that are missing.
    pub lost: u64,
    /// The gaps: the time of the event before, and how many are missing.
    pub gaps: Vec<(u64, u64)>,
    /// Sessions by number.
    pub sessions: BTreeMap<u64, SessionLane>,
    /// The dispatcher.
    pub visits: Vec<DispatcherVisit>,
    /// Workers by number.
    pub workers: Vec<WorkerLane>,
    /// Sums by operation.
    pub totals: OperationTotals,
}

/// Builds a [`Timeline`] from the lines of a tape.
#[derive(Default)]
pub struct TimelineBuilder {
    timeline: Timeline,
    /// Events before this time only tell which steps are outstanding.
    from_ns: u64,
    has_begun: bool,
    last_ns: u64,
    tracker: StepTracker,
    /// The last instruction of each session, operation and result.
    issued: HashMap<(u64, Subject, u64), u64>,
    /// Instructions that a program waits for.
    awaited: HashMap<(u64, Subject, u64), AwaitedInstruction>,
    /// Steps that ended at `last_ns`, by worker.
    ended: Vec<Vec<EndedStep>>,
    /// The end of the last slice, by worker.
    floor_ns: Vec<u64>,
    visit: Option<DispatcherVisit>,
    /// The sequences that sessions follow.
    hot: HashMap<u64, HotStretch>,
    /// The number of visits before `last_ns`.
    earlier_visits: usize,
}

impl TimelineBuilder {
    /// A builder of the timeline from `from_ns` on. Earlier lines are to be passed as well: they tell what runs.
    pub fn from(from_ns: u64) -> TimelineBuilder {
        TimelineBuilder { from_ns, ..TimelineBuilder::default() }
    }

    /// Takes the next line.
    pub fn take(&mut self, line: &LogLine) {
        let (number, event) = match line {
            LogLine::Event(number, event) => (*number, event),
            LogLine::OtherDaemon(_) => {
                // The clock of the new daemon begins at zero.
                *self = TimelineBuilder::default();
                return;
            }
            LogLine::Lost(events) => {
                self.tracker.take(line);
                self.awaited.clear();
                // A gap before the first event is one of the timeline: a reader begins where nothing is missing.
                self.timeline.lost = self.timeline.lost.saturating_add(*events);
                self.timeline.gaps.push((self.last_ns.max(self.from_ns), *events));
                return;
            }
            LogLine::OtherVersion => return,
        };
        // A daemon's clock never goes back, but a file may say anything.
        let event = Event { time_ns: event.time_ns.max(self.last_ns), ..*event };
        let line = LogLine::Event(number, event);
        if event.time_ns != self.last_ns {
            self.settle(event.time_ns);
            self.last_ns = event.time_ns;
        }
        let is_within = event.time_ns >= self.from_ns;
        if is_within {
            if !std::mem::replace(&mut self.has_begun, true) {
                self.timeline.begin_ns = if self.from_ns > 0 { self.from_ns } else { event.time_ns };
            }
            self.timeline.events += 1;
            self.timeline.totals.take(&line);
        }
        if let Some(step) = self.tracker.take(&line) {
            self.worker(event.worker);
            self.ended[event.worker as usize].push(step);
        }
        self.sort(number, &event, is_within);
    }

    fn sort(&mut self, number: u64, event: &Event, is_within: bool) {
        let Event { time_ns, subject, session, result, bytes, worker, .. } = *event;
        let key = (session, subject, result);
        match event.kind {
            EventKind::Connect | EventKind::Disconnect => {
                let lane = self.timeline.sessions.entry(session).or_default();
                if event.kind == EventKind::Connect {
                    lane.connected_ns = Some(time_ns);
                } else {
                    lane.disconnected_ns = Some(time_ns);
                    if let Some(stretch) = self.hot.remove(&session) {
                        lane.hot.push(HotStretch { end_ns: time_ns, ..stretch });
                    }
                    self.issued.retain(|(of, ..), _| *of != session);
                    self.awaited.retain(|(of, ..), _| *of != session);
                }
            }
            EventKind::Recv => {
                self.issued.insert(key, number);
                if matches!(subject, Subject::Fetch | Subject::Write | Subject::Sync) {
                    let (begin_ns, end_ns) = (time_ns, time_ns);
                    let awaited = AwaitedInstruction { number, begin_ns, end_ns, subject, result, bytes };
                    self.awaited.insert(key, awaited);
                }
                if is_within {
                    self.visit(event).received += 1;
                    self.timeline.instructions += 1;
                    let operands = [event.left, event.right];
                    let issued = IssuedInstruction { number, time_ns, subject, result, operands, bytes };
                    self.timeline.sessions.entry(session).or_default().issued.push(issued);
                }
            }
            EventKind::Send => {
                if let Some(awaited) = self.awaited.remove(&key).filter(|_| is_within) {
                    let begin_ns = awaited.begin_ns.max(self.from_ns);
                    let awaited = AwaitedInstruction { begin_ns, end_ns: time_ns, bytes, ..awaited };
                    self.timeline.sessions.entry(session).or_default().awaited.push(awaited);
                }
            }
            EventKind::WorkerSend | EventKind::WorkerRecv | EventKind::WorkerRun if worker == NO_WORKER => {}
            EventKind::WorkerSend | EventKind::WorkerRecv | EventKind::WorkerRun => {
                self.worker(worker);
                if is_within {
                    let visit = self.visit(event);
                    if event.kind != EventKind::WorkerRecv {
                        visit.handed_over += 1;
                    }
                    if event.kind.ends_step() {
                        visit.ended += 1;
                        if let Some(StepTime::Estimated(ns)) = event.step_time() {
                            visit.end_ns = visit.end_ns.saturating_add(ns);
                        }
                    }
                    let change = DepthChange { time_ns, depth: self.tracker.depth(worker as usize) };
                    let depths = &mut self.timeline.workers[worker as usize].depths;
                    match depths.last_mut() {
                        Some(last) if last.time_ns == time_ns => *last = change,
                        _ => depths.push(change),
                    }
                }
            }
            EventKind::Error => {
                if worker != NO_WORKER {
                    self.worker(worker);
                    if is_within {
                        self.timeline.workers[worker as usize].failures.push((time_ns, session, subject));
                    }
                }
            }
            EventKind::Free => {}
            EventKind::HotStart => {
                let stretch = HotStretch {
                    begin_ns: time_ns.max(self.from_ns),
                    end_ns: time_ns,
                    sequence: result,
                    length: event.left,
                    followed: None,
                };
                self.hot.insert(session, stretch);
            }
            EventKind::HotEnd => {
                let begun = self.hot.remove(&session).filter(|stretch| stretch.sequence == result);
                if is_within {
                    // Without its beginning, it began before the timeline.
                    let begin_ns = begun.map_or(self.timeline.begin_ns, |stretch| stretch.begin_ns);
                    let length = begun.map_or(0, |stretch| stretch.length);
                    let followed = Some([event.left, event.right]);
                    let stretch = HotStretch { begin_ns, end_ns: time_ns, sequence: result, length, followed };
                    self.timeline.sessions.entry(session).or_default().hot.push(stretch);
                }
            }
        }
    }

    /// The dispatcher's visit of the event's session at its time.
    fn visit(&mut self, event: &Event) -> &mut DispatcherVisit {
        let (mut begin_ns, session) = (event.time_ns, event.session);
        if let Some(last) = self.visit.take_if(|visit| visit.session != event.session) {
            begin_ns = last.end_ns;
            self.timeline.visits.push(last);
        }
        let new = || DispatcherVisit { begin_ns, end_ns: begin_ns, session, received: 0, handed_over: 0, ended: 0 };
        self.visit.get_or_insert_with(new)
    }

    fn worker(&mut self, number: u16) {
        let count = number as usize + 1;
        if number != NO_WORKER && self.timeline.workers.len() < count {
            self.timeline.workers.resize_with(count, WorkerLane::default);
            self.ended.resize_with(count, Vec::new);
            self.floor_ns.resize(count, 0);
        }
    }

    /// Lays out the steps that ended at the last time; the next event is at `next_ns`.
    fn settle(&mut self, next_ns: u64) {
        self.timeline.visits.extend(self.visit.take());
        for visit in &mut self.timeline.visits[self.earlier_visits..] {
            visit.begin_ns = visit.begin_ns.min(next_ns);
            visit.end_ns = visit.end_ns.min(next_ns).max(visit.begin_ns);
        }
        self.earlier_visits = self.timeline.visits.len();
        for worker in 0..self.ended.len() {
            if self.ended[worker].is_empty() {
                continue;
            }
            let steps = std::mem::take(&mut self.ended[worker]);
            self.lay_out_measured(worker, &steps);
            self.lay_out_estimated(worker, &steps, next_ns);
            // The capacity is kept.
            self.ended[worker] = steps;
            self.ended[worker].clear();
        }
    }

    fn lay_out_measured(&mut self, worker: usize, steps: &[EndedStep]) {
        let floor_ns = self.floor_ns[worker];
        let mut end_ns = self.last_ns;
        let mut before_outer_ns = end_ns;
        let first = self.timeline.workers[worker].slices.len();
        for step in steps.iter().rev() {
            let StepTime::Measured(took_ns) = step.time else { continue };
            let overtaken_by = step.begun.and_then(|step| step.overtaken_by);
            if !step.has_overtaken {
                end_ns = end_ns.min(before_outer_ns);
            }
            let sent_ns = step.begun.map_or(0, |step| step.sent.time_ns);
            let floor_ns = overtaken_by.map_or(floor_ns, |overtaking| overtaking.before_ns.min(floor_ns));
            let inner_ns = overtaken_by.map_or(0, |overtaking| overtaking.took_ns);
            let begin_ns = end_ns.saturating_sub(took_ns.saturating_add(inner_ns)).max(sent_ns).max(floor_ns);
            self.push(worker, step, begin_ns.min(end_ns), end_ns);
            if overtaken_by.is_some() {
                before_outer_ns = begin_ns.min(end_ns);
            } else {
                end_ns = begin_ns.min(end_ns);
                before_outer_ns = before_outer_ns.min(end_ns);
            }
        }
        if self.timeline.workers[worker].slices.len() > first {
            self.timeline.workers[worker].slices[first..].reverse();
        }
        if steps.iter().any(|step| matches!(step.time, StepTime::Measured(_))) {
            self.floor_ns[worker] = floor_ns.max(self.last_ns);
        }
    }

    fn lay_out_estimated(&mut self, worker: usize, steps: &[EndedStep], next_ns: u64) {
        let now_ns = self.last_ns;
        let is_unmeasured = |step: &&EndedStep| step.begun.is_none_or(|begun| begun.sent.time_ns >= now_ns);
        let estimated = || steps.iter().filter(|step| matches!(step.time, StepTime::Estimated(_)));
        // The dispatcher looked at the clock in the midst of these.
        for step in estimated().filter(|step| !is_unmeasured(step)) {
            let sent_ns = step.begun.map_or(now_ns, |begun| begun.sent.time_ns);
            let begin_ns = sent_ns.max(self.floor_ns[worker]).min(now_ns);
            self.push(worker, step, begin_ns, now_ns);
            self.floor_ns[worker] = self.floor_ns[worker].max(now_ns);
        }
        let mut begin_ns = self.floor_ns[worker].max(now_ns);
        let room_ns = next_ns.saturating_sub(begin_ns);
        let sum_ns = estimated().filter(is_unmeasured).fold(0u64, |sum, step| sum.saturating_add(step.time.ns()));
        for step in estimated().filter(is_unmeasured) {
            let ns = step.time.ns();
            let ns =
                if sum_ns > room_ns { (u128::from(ns) * u128::from(room_ns) / u128::from(sum_ns)) as u64 } else { ns };
            let end_ns = begin_ns.saturating_add(ns);
            self.push(worker, step, begin_ns, end_ns);
            begin_ns = end_ns;
            self.floor_ns[worker] = end_ns;
        }
    }

    fn push(&mut self, worker: usize, step: &EndedStep, begin_ns: u64, end_ns: u64) {
        if self.last_ns < self.from_ns {
            return;
        }
        let Event { session, subject, result, bytes, .. } = step.ended;
        let failures = &self.timeline.workers[worker].failures;
        let failed = failures.iter().rev().take_while(|(time_ns, ..)| *time_ns == self.last_ns);
        let has_failed = failed.into_iter().any(|(_, of, what)| (*of, *what) == (session, subject));
        let slice = WorkSlice {
            begin_ns: begin_ns.max(self.timeline.begin_ns),
            end_ns: end_ns.max(self.timeline.begin_ns),
            session,
            subject,
            result,
            out: step.begun.and_then(|begun| begun.sent.result_meta()),
            bytes,
            issued: self.issued.get(&(session, subject, result)).copied(),
            sent_ns: step.begun.map(|begun| begun.sent.time_ns),
            time: step.time,
            outcome: if has_failed { SliceOutcome::Failed } else { SliceOutcome::Done },
        };
        self.timeline.workers[worker].slices.push(slice);
    }

    /// The timeline up to `end_ns`, or to the last event if that is later. `running` is what the daemon's status says
    /// of workers; the workers of `copy_streams` have uploads and fetches on a stream of their own.
    pub fn finish(mut self, end_ns: u64, running: &[KnownRunning], copy_streams: &[usize]) -> Timeline {
        let end_ns = end_ns.max(self.last_ns);
        self.settle(end_ns);
        if !self.has_begun {
            self.timeline.begin_ns = self.from_ns.min(end_ns);
        }
        for known in running {
            self.worker(known.worker as u16);
        }
        for worker in 0..self.timeline.workers.len() {
            let outstanding = self.tracker.running(worker).map(|(step, begin_ns)| {
                let Event { session, subject, result, bytes, .. } = step.sent;
                (begin_ns, session, subject, result, bytes, Some(step.sent))
            });
            let known = || running.iter().find(|known| known.worker == worker);
            let known = || known().map(|known| (known.begin_ns, known.session, known.subject, 0, 0, None));
            if let Some((begin_ns, session, subject, result, bytes, sent)) = outstanding.or_else(known) {
                let begin_ns = begin_ns.max(self.timeline.begin_ns).min(end_ns);
                self.timeline.workers[worker].slices.push(WorkSlice {
                    begin_ns,
                    end_ns,
                    session,
                    subject,
                    result,
                    out: sent.and_then(|sent| sent.result_meta()),
                    bytes,
                    issued: self.issued.get(&(session, subject, result)).copied(),
                    sent_ns: sent.map(|sent| sent.time_ns),
                    time: StepTime::Measured(end_ns - begin_ns),
                    outcome: SliceOutcome::Running,
                });
            }
            let queued = self.tracker.outstanding(worker).skip(1).map(|step| (step.sent.session, step.sent.time_ns));
            let lane = &mut self.timeline.workers[worker];
            lane.queued = queued.collect();
            if copy_streams.contains(&worker) {
                let is_copy = |slice: &WorkSlice| matches!(slice.subject, Subject::Fetch | Subject::Write);
                (lane.copies, lane.slices) = lane.slices.iter().partition(|slice| is_copy(slice));
            }
            nest(&mut lane.slices);
            nest(&mut lane.copies);
        }
        // Programs wait for these at the end.
        let mut awaited: Vec<_> = self.awaited.drain().map(|((session, ..), awaited)| (session, awaited)).collect();
        awaited.sort_by_key(|(_, awaited)| awaited.number);
        for (session, awaited) in awaited {
            let awaited =
                AwaitedInstruction { begin_ns: awaited.begin_ns.max(self.from_ns).min(end_ns), end_ns, ..awaited };
            self.timeline.sessions.entry(session).or_default().awaited.push(awaited);
        }
        for (session, stretch) in self.hot.drain() {
            let stretch = HotStretch { begin_ns: stretch.begin_ns.min(end_ns), end_ns, ..stretch };
            self.timeline.sessions.entry(session).or_default().hot.push(stretch);
        }
        self.timeline.end_ns = end_ns.max(self.timeline.begin_ns);
        self.timeline
    }
}

/// Sorts slices by their beginning, and shortens those that would end after one in which they begin.
fn nest(slices: &mut [WorkSlice]) {
    slices.sort_by_key(|slice| (slice.begin_ns, Reverse(slice.end_ns)));
    let mut around: Vec<u64> = Vec::new();
    for slice in slices {
        while around.last().is_some_and(|end_ns| *end_ns <= slice.begin_ns) {
            around.pop();
        }
        if let Some(end_ns) = around.last() {
            slice.end_ns = slice.end_ns.min(*end_ns);
        }
        around.push(slice.end_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::{ended, sent};
    use gt_ops::Op;

    fn spans(lines: &[LogLine], end_ns: u64) -> Vec<(u64, u64)> {
        let mut builder = TimelineBuilder::default();
        lines.iter().for_each(|line| builder.take(line));
        let timeline = builder.finish(end_ns, &[], &[]);
        timeline.workers[0].slices.iter().map(|slice| (slice.begin_ns, slice.end_ns)).collect()
    }

    const fn took(ns: u64) -> StepTime {
        StepTime::Measured(ns)
    }

    #[test]
    fn steps_reported_together_ran_one_after_the_other() {
        let lines = [
            sent(100, 0, 1, Op::Add, 1),
            sent(100, 0, 1, Op::Mul, 2),
            sent(100, 0, 1, Op::Sub, 3),
            ended(1000, 0, 1, Op::Add, 1, took(200)),
            ended(1000, 0, 1, Op::Mul, 2, took(0)),
            ended(1000, 0, 1, Op::Sub, 3, took(300)),
        ];
        assert_eq!(spans(&lines, 0), [(500, 700), (700, 1000), (700, 700)]);
    }

    #[test]
    fn no_step_begins_before_it_was_handed_over_or_the_one_before_has_ended() {
        let lines = [
            sent(100, 0, 1, Op::Add, 1),
            ended(300, 0, 1, Op::Add, 1, took(900)),
            sent(300, 0, 1, Op::Add, 2),
            ended(400, 0, 1, Op::Add, 2, took(150)),
        ];
        assert_eq!(spans(&lines, 0), [(100, 300), (300, 400)]);
    }

    #[test]
    fn a_session_follows_a_sequence_until_it_leaves_it() {
        let about = |time_ns, kind, sequence, left, right| {
            let (subject, worker, session, bytes, run_ns) = (Subject::Nothing, NO_WORKER, 1, 0, 0);
            let event = Event { time_ns, kind, subject, worker, session, bytes, result: sequence, left, right, run_ns };
            LogLine::Event(time_ns, event)
        };
        let lines = [
            // Its start came before the timeline.
            about(100, EventKind::HotEnd, 1, 40, 30),
            about(200, EventKind::HotStart, 2, 9, 0),
            about(300, EventKind::HotEnd, 2, 20, 11),
            about(400, EventKind::HotStart, 3, 7, 5),
        ];
        let mut builder = TimelineBuilder::from(50);
        lines.iter().for_each(|line| builder.take(line));
        let timeline = builder.finish(500, &[], &[]);
        let stretch =
            |begin_ns, end_ns, sequence, length, followed| HotStretch { begin_ns, end_ns, sequence, length, followed };
        assert_eq!(
            timeline.sessions[&1].hot,
            [
                stretch(50, 100, 1, 0, Some([40, 30])),
                stretch(200, 300, 2, 9, Some([20, 11])),
                stretch(400, 500, 3, 7, None),
            ]
        );
    }

    #[test]
    fn light_steps_lie_in_the_midst_of_the_heavy_one() {
        let lines = [
            sent(100, 0, 1, Op::Matmul, 1),
            sent(200, 0, 2, Op::Add, 1),
            ended(500, 0, 2, Op::Add, 1, took(50)),
            sent(600, 0, 2, Op::Add, 2),
            ended(1000, 0, 2, Op::Add, 2, took(40)),
            ended(1000, 0, 1, Op::Matmul, 1, took(700)),
        ];
        assert_eq!(spans(&lines, 0), [(210, 1000), (450, 500), (960, 1000)]);
    }

    #[test]
    fn estimated_steps_end_before_the_next_event() {
        let lines = [
            sent(100, 0, 1, Op::Add, 1),
            ended(100, 0, 1, Op::Add, 1, StepTime::Estimated(30)),
            sent(100, 0, 1, Op::Add, 2),
            ended(100, 0, 1, Op::Add, 2, StepTime::Estimated(90)),
            sent(140, 0, 1, Op::Add, 3),
            ended(150, 0, 1, Op::Add, 3, StepTime::Estimated(900)),
        ];
        assert_eq!(spans(&lines, 0), [(100, 110), (110, 140), (140, 150)]);
    }

    #[test]
    fn what_runs_at_the_end_is_a_slice_to_the_end() {
        assert_eq!(spans(&[sent(100, 0, 1, Op::Matmul, 1)], 5000), [(100, 5000)]);
        let known = KnownRunning { worker: 1, session: 3, subject: Subject::Op(Op::Sum), begin_ns: 10 };
        let timeline = TimelineBuilder::from(100).finish(900, &[known], &[]);
        let slice = timeline.workers[1].slices[0];
        assert_eq!((slice.begin_ns, slice.end_ns, slice.outcome), (100, 900, SliceOutcome::Running));
    }

    #[test]
    fn any_lines_make_a_timeline() {
        // A linear congruential generator (Knuth, MMIX).
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..200 {
            let mut builder = if round % 2 == 0 { TimelineBuilder::default() } else { TimelineBuilder::from(500) };
            for number in 0..200 {
                let kind = EventKind::ALL[next(8) as usize];
                let huge = next(50) == 0;
                let mut value = |below| if huge { u64::MAX - next(2) } else { next(below) };
                let (time_ns, session, bytes, result) = (value(1000), value(3), value(9), value(4));
                let (left, right, worker) = (value(300), next(2), [0, 1, 2, NO_WORKER][next(4) as usize]);
                let subject = [Subject::Op(Op::Add), Subject::Fetch, Subject::Sync, Subject::Reshard][next(4) as usize];
                let event = Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns: 0 };
                builder.take(&if next(40) == 0 { LogLine::Lost(next(9)) } else { LogLine::Event(number, event) });
            }
            let timeline = builder.finish(next(2000), &[], &[1]);
            let within = timeline.begin_ns..=timeline.end_ns;
            for lane in &timeline.workers {
                for slice in lane.slices.iter().chain(&lane.copies) {
                    assert!(within.contains(&slice.begin_ns) && within.contains(&slice.end_ns), "{slice:?} {within:?}");
                    assert!(slice.begin_ns <= slice.end_ns, "{slice:?}");
                }
            }
            let names = crate::chrome::TimelineNames::default();
            crate::chrome::write(&mut std::io::sink(), &timeline, &names, &[], &Default::default()).unwrap();
            let scene = crate::picture::scene::scene(&timeline, &names, "any");
            crate::picture::svg::write(&mut std::io::sink(), &scene).unwrap();
            crate::picture::png::write(std::io::sink(), &scene, 20.0).unwrap();
            crate::picture::html::write(&mut std::io::sink(), &timeline, &names, "any").unwrap();
        }
    }

    #[test]
    fn slices_never_cross() {
        let mut slices = TimelineBuilder::from(0).finish(0, &[], &[]).workers;
        assert!(slices.is_empty());
        slices.push(WorkerLane::default());
        let slice = |begin_ns, end_ns| WorkSlice {
            begin_ns,
            end_ns,
            session: 1,
            subject: Subject::Sync,
            result: 0,
            out: None,
            bytes: 0,
            issued: None,
            sent_ns: None,
            time: took(0),
            outcome: SliceOutcome::Done,
        };
        let mut crossing = [slice(5, 20), slice(0, 10), slice(0, 30)];
        nest(&mut crossing);
        assert_eq!(crossing.map(|slice| (slice.begin_ns, slice.end_ns)), [(0, 30), (0, 10), (5, 10)]);
    }
}
