//! Pairs the events of each step: handed to a worker, and ended there.

use gt_ops::event::{Event, EventKind, LogLine, NO_WORKER, StepTime};
use std::collections::VecDeque;

/// The most steps that a worker can have outstanding on a tape that makes sense; of more, the oldest are forgotten.
const OUTSTANDING_MAX: usize = 1 << 16;

/// A step that was handed to a worker and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutstandingStep {
    /// The number of the event.
    pub number: u64,
    /// The event: [`EventKind::WorkerSend`], or [`EventKind::WorkerRun`] of a step that was never outstanding.
    pub sent: Event,
    /// Later steps that ended before it, and so ran in its midst.
    pub overtaken_by: Option<OvertakingSteps>,
}

/// Steps that ran in the midst of a heavy one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OvertakingSteps {
    /// When the worker's last step before the first of them had ended, nanoseconds.
    pub before_ns: u64,
    /// The time of all of them, nanoseconds.
    pub took_ns: u64,
}

/// A step that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedStep {
    /// The step as it was handed over; none if that event is missing.
    pub begun: Option<OutstandingStep>,
    /// The event of the end: [`EventKind::WorkerRecv`] or [`EventKind::WorkerRun`].
    pub ended: Event,
    /// The time that it took.
    pub time: StepTime,
    /// Whether older steps of the worker have not ended.
    pub has_overtaken: bool,
}

#[derive(Default)]
struct OutstandingSteps {
    steps: VecDeque<OutstandingStep>,
    /// When the last step ended, nanoseconds.
    ended_ns: u64,
}

impl OutstandingSteps {
    /// Notes a step that ended at `ended_ns` before the `older` oldest ones.
    fn overtake(&mut self, older: usize, ended_ns: u64, time: StepTime) {
        let before_ns = std::mem::replace(&mut self.ended_ns, ended_ns);
        for older in self.steps.iter_mut().take(older) {
            let so_far = older.overtaken_by.unwrap_or(OvertakingSteps { before_ns, took_ns: 0 });
            let took_ns = so_far.took_ns.saturating_add(time.ns());
            older.overtaken_by = Some(OvertakingSteps { took_ns, ..so_far });
        }
    }
}

/// The steps that are at the workers, by the events so far.
#[derive(Default)]
pub struct StepTracker {
    workers: Vec<OutstandingSteps>,
}

impl StepTracker {
    /// Takes the next line of the tape; returns the step that it ends, if it ends one.
    pub fn take(&mut self, line: &LogLine) -> Option<EndedStep> {
        let (number, event) = match line {
            LogLine::Event(number, event) => (*number, event),
            LogLine::OtherVersion => return None,
            // The ends of the outstanding steps may be among the missing events.
            LogLine::Lost(_) | LogLine::OtherDaemon(_) => {
                self.workers.clear();
                return None;
            }
        };
        match event.kind {
            EventKind::WorkerSend | EventKind::WorkerRecv | EventKind::WorkerRun if event.worker == NO_WORKER => None,
            EventKind::WorkerRun => {
                let (time, worker) = (event.step_time()?, self.worker(event.worker));
                worker.overtake(worker.steps.len(), event.time_ns, time);
                let begun = Some(OutstandingStep { number, sent: *event, overtaken_by: None });
                Some(EndedStep { begun, ended: *event, time, has_overtaken: !worker.steps.is_empty() })
            }
            EventKind::WorkerSend => {
                let steps = &mut self.worker(event.worker).steps;
                if steps.len() == OUTSTANDING_MAX {
                    steps.pop_front();
                }
                steps.push_back(OutstandingStep { number, sent: *event, overtaken_by: None });
                None
            }
            EventKind::WorkerRecv => {
                let time = event.step_time()?;
                let worker = self.worker(event.worker);
                let is_its = |step: &OutstandingStep| {
                    let sent = &step.sent;
                    (sent.session, sent.subject, sent.result) == (event.session, event.subject, event.result)
                };
                let position = worker.steps.iter().position(is_its);
                worker.overtake(position.unwrap_or(0), event.time_ns, time);
                let begun = position.and_then(|position| worker.steps.remove(position));
                Some(EndedStep { begun, ended: *event, time, has_overtaken: position.is_some_and(|n| n > 0) })
            }
            EventKind::Disconnect => {
                // The daemon does not report the ends of a session's steps after the session.
                for worker in &mut self.workers {
                    worker.steps.retain(|step| step.sent.session != event.session);
                }
                None
            }
            _ => None,
        }
    }

    fn worker(&mut self, number: u16) -> &mut OutstandingSteps {
        let index = number as usize;
        if self.workers.len() <= index {
            self.workers.resize_with(index + 1, OutstandingSteps::default);
        }
        &mut self.workers[index]
    }

    /// The steps of a worker that have not ended, oldest first.
    pub fn outstanding(&self, worker: usize) -> impl Iterator<Item = &OutstandingStep> {
        self.workers.get(worker).into_iter().flat_map(|worker| &worker.steps)
    }

    /// The number of steps of a worker that have not ended.
    pub fn depth(&self, worker: usize) -> usize {
        self.workers.get(worker).map_or(0, |worker| worker.steps.len())
    }

    /// The number of workers seen so far.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// The step that a worker runs, the oldest one, and since when at the latest, nanoseconds on the tape's clock.
    pub fn running(&self, worker: usize) -> Option<(&OutstandingStep, u64)> {
        let worker = self.workers.get(worker)?;
        let oldest = worker.steps.front()?;
        let before_ns = oldest.overtaken_by.map_or(worker.ended_ns, |overtaking| overtaking.before_ns);
        Some((oldest, oldest.sent.time_ns.max(before_ns)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use gt_ops::Op;
    use gt_ops::event::Subject;

    pub(crate) fn event(time_ns: u64, kind: EventKind, worker: u16, session: u64, op: Op, result: u64) -> Event {
        let subject = Subject::Op(op);
        Event { time_ns, kind, subject, worker, session, bytes: 64, result, left: 0, right: 0, run_ns: 0 }
    }

    pub(crate) fn sent(time_ns: u64, worker: u16, session: u64, op: Op, result: u64) -> LogLine {
        LogLine::Event(time_ns, event(time_ns, EventKind::WorkerSend, worker, session, op, result))
    }

    pub(crate) fn ended(time_ns: u64, worker: u16, session: u64, op: Op, result: u64, time: StepTime) -> LogLine {
        let [left, right] = time.words();
        let event = event(time_ns, EventKind::WorkerRecv, worker, session, op, result);
        LogLine::Event(time_ns, Event { left, right, ..event })
    }

    #[test]
    fn steps_end_in_order_or_in_the_midst_of_a_heavy_one() {
        let mut steps = StepTracker::default();
        assert_eq!(steps.take(&sent(10, 0, 1, Op::Matmul, 7)), None);
        steps.take(&sent(20, 0, 2, Op::Add, 7));
        assert_eq!((steps.depth(0), steps.depth(1)), (2, 0));
        assert_eq!(steps.running(0).map(|(step, since)| (step.sent.session, since)), Some((1, 10)));
        let light = steps.take(&ended(50, 0, 2, Op::Add, 7, StepTime::Measured(5))).unwrap();
        assert!(light.has_overtaken);
        assert_eq!(light.begun.map(|step| step.sent.time_ns), Some(20));
        let heavy = steps.take(&ended(90, 0, 1, Op::Matmul, 7, StepTime::Measured(70))).unwrap();
        let overtaking = heavy.begun.and_then(|step| step.overtaken_by);
        assert_eq!(overtaking, Some(OvertakingSteps { before_ns: 0, took_ns: 5 }));
        assert!(!heavy.has_overtaken && steps.running(0).is_none());
    }

    #[test]
    fn a_step_that_the_dispatcher_ran_begins_and_ends_in_one_event() {
        let run = |time_ns| {
            let event = event(time_ns, EventKind::WorkerRun, 0, 2, Op::Add, 8);
            LogLine::Event(time_ns, Event { run_ns: 80, ..event })
        };
        let mut steps = StepTracker::default();
        let alone = steps.take(&run(10)).unwrap();
        assert_eq!((alone.time, alone.has_overtaken, steps.depth(0)), (StepTime::Estimated(80), false, 0));
        assert_eq!(alone.begun.map(|step| step.sent), Some(alone.ended));
        steps.take(&sent(20, 0, 1, Op::Matmul, 7));
        assert!(steps.take(&run(30)).unwrap().has_overtaken);
        let heavy = steps.take(&ended(90, 0, 1, Op::Matmul, 7, StepTime::Measured(70))).unwrap();
        let overtaking = heavy.begun.and_then(|step| step.overtaken_by);
        assert_eq!(overtaking, Some(OvertakingSteps { before_ns: 10, took_ns: 80 }));
    }

    #[test]
    fn a_gap_and_the_end_of_a_session_end_what_is_outstanding() {
        let mut steps = StepTracker::default();
        steps.take(&sent(10, 1, 1, Op::Add, 7));
        steps.take(&sent(10, 1, 2, Op::Add, 8));
        let gone = Event { kind: EventKind::Disconnect, ..event(20, EventKind::Disconnect, NO_WORKER, 1, Op::Add, 0) };
        steps.take(&LogLine::Event(3, gone));
        assert_eq!(steps.running(1).map(|(step, _)| step.sent.session), Some(2));
        steps.take(&LogLine::Lost(9));
        assert_eq!(steps.depth(1), 0);
        let end = steps.take(&ended(50, 1, 2, Op::Add, 8, StepTime::Measured(5))).unwrap();
        assert_eq!(end.begun, None);
    }
}
