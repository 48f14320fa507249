//! Totals of the tape's events: operations, how long steps took, and how long programs waited.
//!
//! They are kept while metrics are served. The tape passes each of its events, so they agree with it.

use crate::operation_counts::OperationCounts;
use gt_ops::event::{Event, EventKind, NO_WORKER, StepTime, Subject};
use gt_protocol::limits::CQ_SLOTS;
use gt_tape::work_kind::WorkKind;
use std::collections::{HashMap, VecDeque};

/// The upper bounds of the buckets of a [`TimeHistogram`], nanoseconds, two to each power of ten: a step of one element
/// takes a microsecond, and few take minutes.
const BOUNDS_NS: [u64; 17] = [
    1_000,
    3_000,
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
    30_000_000_000,
    100_000_000_000,
];

/// A histogram of times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeHistogram {
    /// The number of times up to each bound and above the one before it; the last one is above all bounds.
    counts: [u64; BOUNDS_NS.len() + 1],
    sum_ns: u64,
}

impl TimeHistogram {
    fn add(&mut self, ns: u64) {
        self.counts[BOUNDS_NS.partition_point(|bound| *bound < ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// The number of times.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of the times, seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The upper bound of each bucket, seconds, infinite for the last, and the number of times in it.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS_NS.iter().map(|ns| *ns as f64 / 1e9).chain([f64::INFINITY]);
        bounds.zip(self.counts).collect()
    }
}

/// The requests that a program waits for.
pub const WAITED_FOR: [Subject; 3] = [Subject::Fetch, Subject::Write, Subject::Sync];

/// The totals since the daemon started.
#[derive(Clone, Default)]
pub struct StepTotals {
    /// The steps that ended, by worker and operation.
    pub operations: OperationCounts,
    /// How long steps took, by the position of their kind in [`WorkKind::ALL`]. Steps that were fused with the one
    /// before are counted with it.
    pub durations: [TimeHistogram; WorkKind::ALL.len()],
    /// The time from a program's request to its completion, for each of [`WAITED_FOR`].
    pub waits: [TimeHistogram; WAITED_FOR.len()],
    /// Instructions and requests from programs.
    pub received: u64,
    /// Instructions that failed before a worker had them: a limit was reached, or the program was interrupted.
    pub refused: u64,
    /// Connections that became sessions.
    pub sessions: u64,
}

/// The time of a session's steps that ended, by worker, nanoseconds.
pub type SessionTimes = Vec<u64>;

/// An open session.
#[derive(Default)]
struct SessionRecorder {
    /// The requests that were not completed yet, oldest first: the code of each, its tensor and its time.
    pending: VecDeque<(u16, u64, u64)>,
    times_ns: SessionTimes,
}

/// Adds the tape's events to the totals.
#[derive(Default)]
pub struct StepTotalsRecorder {
    totals: StepTotals,
    /// The open sessions by number, in ascending order.
    sessions: Vec<(u64, SessionRecorder)>,
    /// The position of the session of the last event, which most often is that of the next one, too.
    last: usize,
}

impl StepTotalsRecorder {
    /// The totals so far.
    pub fn totals(&self) -> &StepTotals {
        &self.totals
    }

    /// The times of the open sessions.
    pub fn session_times(&self) -> HashMap<u64, SessionTimes> {
        self.sessions.iter().map(|(id, session)| (*id, session.times_ns.clone())).collect()
    }

    /// Forgets the operations of a worker, whose number another one gets.
    pub fn forget_worker(&mut self, worker: usize) {
        self.totals.operations.forget(worker);
    }

    #[inline]
    fn session(&mut self, id: u64) -> Option<&mut SessionRecorder> {
        if self.sessions.get(self.last).is_none_or(|(last, _)| *last != id) {
            self.last = self.sessions.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        }
        self.sessions.get_mut(self.last).map(|(_, session)| session)
    }

    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        match event.kind {
            EventKind::WorkerRecv | EventKind::WorkerRun => {
                let Some(time) = event.step_time() else { return };
                self.totals.operations.add(event.worker.into(), event.subject, event.bytes, time);
                if time == StepTime::Measured(0) {
                    return;
                }
                self.totals.durations[WorkKind::of(event.subject).index()].add(time.ns());
                let Some(session) = self.session(event.session) else { return };
                let worker = usize::from(event.worker);
                if session.times_ns.len() <= worker {
                    session.times_ns.resize(worker + 1, 0);
                }
                session.times_ns[worker] = session.times_ns[worker].saturating_add(time.ns());
            }
            EventKind::Error if event.worker == NO_WORKER => self.totals.refused += 1,
            EventKind::Error => self.totals.operations.add_error(event.worker.into(), event.subject),
            EventKind::Connect => {
                self.totals.sessions += 1;
                // A session may begin after one that connected later.
                let position = self.sessions.partition_point(|(id, _)| *id < event.session);
                self.sessions.insert(position, (event.session, SessionRecorder::default()));
            }
            EventKind::Disconnect => {
                self.sessions.retain(|(id, _)| *id != event.session);
            }
            EventKind::Recv => {
                self.totals.received += 1;
                if WAITED_FOR.contains(&event.subject)
                    && let Some(SessionRecorder { pending, .. }) = self.session(event.session)
                {
                    // No more requests can be in flight, so the oldest one was completed without an event.
                    if pending.len() == CQ_SLOTS as usize {
                        pending.pop_front();
                    }
                    pending.push_back((event.subject.code(), event.result, event.time_ns));
                }
            }
            EventKind::Send => {
                let Some(kind) = WAITED_FOR.iter().position(|subject| *subject == event.subject) else { return };
                let Some(SessionRecorder { pending, .. }) = self.session(event.session) else { return };
                let is_its =
                    |(code, result, _): &(u16, u64, u64)| (*code, *result) == (event.subject.code(), event.result);
                let found = pending.iter().position(is_its).and_then(|position| pending.remove(position));
                if let Some((_, _, since_ns)) = found {
                    self.totals.waits[kind].add(event.time_ns.saturating_sub(since_ns));
                }
            }
            EventKind::WorkerSend | EventKind::Free | EventKind::HotStart | EventKind::HotEnd => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::Op;
    use gt_protocol::OperationCount;

    fn event(time_ns: u64, kind: EventKind, subject: Subject, worker: u16, result: u64) -> Event {
        Event { time_ns, kind, subject, worker, session: 3, bytes: 64, result, left: 0, right: 0, run_ns: 0 }
    }

    fn ended(subject: Subject, time: StepTime) -> Event {
        let [left, right] = time.words();
        Event { left, right, ..event(9, EventKind::WorkerRecv, subject, 1, 7) }
    }

    #[test]
    fn operations_have_counts_and_steps_a_histogram() {
        let mut recorder = StepTotalsRecorder::default();
        recorder.add(&event(0, EventKind::Connect, Subject::Nothing, NO_WORKER, 0));
        let add = Subject::Op(Op::Add);
        for time in [StepTime::Measured(2_000), StepTime::Measured(0)] {
            recorder.add(&ended(add, time));
        }
        recorder.add(&Event { run_ns: 1_000, ..event(9, EventKind::WorkerRun, add, 1, 7) });
        recorder.add(&ended(Subject::Op(Op::Matmul), StepTime::Measured(u64::MAX)));
        recorder.add(&event(9, EventKind::Error, add, 1, 7));
        recorder.add(&event(9, EventKind::Error, add, NO_WORKER, 7));
        let totals = recorder.totals();
        let expected = OperationCount { count: 3, time_ns: 3_000, bytes: 192, errors: 1 };
        assert_eq!(totals.operations.of_worker(1).find(|(subject, _)| *subject == add), Some((add, expected)));
        assert_eq!(totals.refused, 1);
        let elementwise = &totals.durations[WorkKind::Elementwise.index()];
        assert_eq!((elementwise.count(), elementwise.sum_s()), (2, 3e-6));
        assert_eq!(elementwise.buckets()[..3], [(1e-6, 1), (3e-6, 1), (1e-5, 0)]);
        assert_eq!(totals.durations[WorkKind::Matmul.index()].buckets()[17], (f64::INFINITY, 1));
        assert_eq!(recorder.session_times()[&3], [0, u64::MAX]);
        recorder.forget_worker(1);
        recorder.forget_worker(9);
        assert_eq!(recorder.totals().operations.of_worker(1).count(), 0);
    }

    #[test]
    fn sessions_begin_and_end_in_any_order() {
        let mut recorder = StepTotalsRecorder::default();
        let of = |session, event| Event { session, ..event };
        let connect = event(0, EventKind::Connect, Subject::Nothing, NO_WORKER, 0);
        for session in [5, 2, 9, 4] {
            recorder.add(&of(session, connect));
        }
        for session in [2, 9, 9, 4, 5, 2, 7] {
            recorder.add(&of(session, ended(Subject::Sync, StepTime::Measured(session))));
        }
        recorder.add(&of(4, event(0, EventKind::Disconnect, Subject::Nothing, NO_WORKER, 0)));
        recorder.add(&of(5, ended(Subject::Sync, StepTime::Measured(1))));
        let times: HashMap<u64, u64> = recorder.session_times().into_iter().map(|(id, times)| (id, times[1])).collect();
        assert_eq!(times, HashMap::from([(2, 4), (5, 6), (9, 18)]));
    }

    #[test]
    fn a_wait_is_from_the_request_to_its_completion() {
        let mut recorder = StepTotalsRecorder::default();
        recorder.add(&event(0, EventKind::Connect, Subject::Nothing, NO_WORKER, 0));
        recorder.add(&event(100, EventKind::Recv, Subject::Fetch, NO_WORKER, 7));
        recorder.add(&event(200, EventKind::Recv, Subject::Fetch, NO_WORKER, 8));
        recorder.add(&event(5_000, EventKind::Send, Subject::Fetch, NO_WORKER, 8));
        recorder.add(&event(5_100, EventKind::Send, Subject::Fetch, NO_WORKER, 7));
        // Nobody asked for these.
        recorder.add(&event(5_100, EventKind::Send, Subject::Fetch, NO_WORKER, 7));
        recorder.add(&event(5_100, EventKind::Send, Subject::Sync, NO_WORKER, 0));
        let [fetches, writes, syncs] = &recorder.totals().waits;
        assert_eq!((fetches.count(), fetches.sum_s()), (2, 9.8e-6));
        assert_eq!((writes.count(), syncs.count()), (0, 0));
        assert_eq!(recorder.totals().received, 2);
        for result in 0..2 * u64::from(CQ_SLOTS) {
            recorder.add(&event(6_000, EventKind::Recv, Subject::Sync, NO_WORKER, result));
        }
        assert_eq!(recorder.sessions[0].1.pending.len(), CQ_SLOTS as usize);
        recorder.add(&event(7_000, EventKind::Disconnect, Subject::Nothing, NO_WORKER, 0));
        assert!(recorder.sessions.is_empty());
    }
}
