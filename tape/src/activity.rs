//! The present activity of workers and sessions: which part of the time goes to which kind of work.

use crate::steps::StepTracker;
use crate::totals::OperationTotals;
use crate::work_kind::WorkKind;
use gt_ops::event::{EventKind, LogLine, Subject};
use std::collections::HashMap;
use std::time::Duration;

/// The time constant of the exponential moving average of a worker's activity.
const SMOOTHED_OVER: Duration = Duration::from_secs(2);
/// The most workers of which activity is kept.
const WORKERS_MAX: usize = 4096;

/// A step that a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentStep {
    /// The session.
    pub session: u64,
    /// The operation.
    pub subject: Subject,
    /// How long it has run, nanoseconds.
    pub for_ns: u64,
}

#[derive(Clone, Default)]
struct WorkerActivity {
    /// The time of each kind since the last update, nanoseconds.
    busy_ns: [u64; WorkKind::ALL.len()],
    /// The part of each kind, from 0 to 1, smoothed.
    parts: [f64; WorkKind::ALL.len()],
    /// The event of the running step, and the time of it that has been counted, nanoseconds.
    counted: Option<(u64, u64)>,
}

/// The activity of a daemon, by its tape.
#[derive(Default)]
pub struct Activity {
    /// Events before this time count in the totals alone, nanoseconds.
    from_ns: u64,
    tracker: StepTracker,
    totals: OperationTotals,
    sessions: HashMap<u64, OperationTotals>,
    workers: Vec<WorkerActivity>,
    updated_ns: Option<u64>,
    events: u64,
    lost: u64,
}

impl Activity {
    /// The activity from `from_ns` on. Earlier lines are to be passed as well: they tell what runs.
    pub fn from(from_ns: u64) -> Activity {
        Activity { from_ns, ..Activity::default() }
    }

    /// Takes the next line of the tape.
    pub fn take(&mut self, line: &LogLine) {
        self.totals.take(line);
        let event = match line {
            LogLine::Event(_, event) => event,
            LogLine::Lost(events) => {
                self.lost = self.lost.saturating_add(*events);
                self.tracker.take(line);
                return;
            }
            _ => return,
        };
        self.events += 1;
        if event.kind == EventKind::Disconnect {
            self.sessions.remove(&event.session);
        } else if event.kind.ends_step() || event.kind == EventKind::Error {
            self.sessions.entry(event.session).or_default().take(line);
        }
        let Some(step) = self.tracker.take(line) else { return };
        if event.time_ns < self.from_ns {
            return;
        }
        let Some(worker) = self.worker(event.worker.into()) else { return };
        let number = step.begun.map(|begun| begun.number);
        let counted = worker.counted.take_if(|(running, _)| Some(*running) == number);
        let more_ns = step.time.ns().saturating_sub(counted.map_or(0, |(_, ns)| ns));
        worker.busy_ns[WorkKind::of(event.subject).index()] += more_ns;
    }

    fn worker(&mut self, number: usize) -> Option<&mut WorkerActivity> {
        if self.workers.len() <= number && number < WORKERS_MAX {
            self.workers.resize_with(number + 1, WorkerActivity::default);
        }
        self.workers.get_mut(number)
    }

    /// Brings the parts up to `now_ns` on the tape's clock. The time of a step that runs counts as it passes.
    pub fn update(&mut self, now_ns: u64) {
        let since_ns = self.updated_ns.unwrap_or(self.from_ns);
        let passed_ns = now_ns.saturating_sub(since_ns);
        if passed_ns == 0 {
            return;
        }
        // The first stretch of time has nothing to be smoothed with.
        let weight = match self.updated_ns {
            Some(_) => 1.0 - (-(passed_ns as f64) / SMOOTHED_OVER.as_nanos() as f64).exp(),
            None => 1.0,
        };
        for number in 0..self.tracker.workers().min(WORKERS_MAX) {
            let running = self.tracker.running(number).map(|(step, begin_ns)| {
                let counted_ns = now_ns.saturating_sub(begin_ns.max(self.from_ns));
                (step.number, WorkKind::of(step.sent.subject).index(), counted_ns)
            });
            let Some(worker) = self.worker(number) else { break };
            if let Some((step, kind, counted_ns)) = running {
                let before_ns = worker.counted.filter(|(of, _)| *of == step).map_or(0, |(_, ns)| ns);
                worker.busy_ns[kind] += counted_ns.saturating_sub(before_ns);
                worker.counted = Some((step, counted_ns));
            }
            let busy_ns: u64 = worker.busy_ns.iter().sum();
            // Reports come in batches, so a stretch can hear of more time than has passed in it.
            let whole_ns = busy_ns.max(passed_ns) as f64;
            for (part, ns) in worker.parts.iter_mut().zip(std::mem::take(&mut worker.busy_ns)) {
                *part += (ns as f64 / whole_ns - *part) * weight;
            }
        }
        self.updated_ns = Some(now_ns);
    }

    /// The part of a worker's time that goes to each kind of work, from 0 to 1, in the order of [`WorkKind::ALL`].
    pub fn parts(&self, worker: usize) -> [f64; WorkKind::ALL.len()] {
        self.workers.get(worker).map_or_else(Default::default, |worker| worker.parts)
    }

    /// The number of steps that a worker has not ended.
    pub fn depth(&self, worker: usize) -> usize {
        self.tracker.depth(worker)
    }

    /// The step that a worker runs at `now_ns`.
    pub fn running(&self, worker: usize, now_ns: u64) -> Option<PresentStep> {
        let (step, begin_ns) = self.tracker.running(worker)?;
        let for_ns = now_ns.saturating_sub(begin_ns);
        Some(PresentStep { session: step.sent.session, subject: step.sent.subject, for_ns })
    }

    /// The totals by operation.
    pub fn totals(&self) -> &OperationTotals {
        &self.totals
    }

    /// The totals of a session.
    pub fn session_totals(&self, session: u64) -> Option<&OperationTotals> {
        self.sessions.get(&session)
    }

    /// The number of events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The number of events that were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::{ended, sent};
    use gt_ops::Op;
    use gt_ops::event::StepTime;

    const SECOND_NS: u64 = 1_000_000_000;

    fn part(activity: &Activity, kind: WorkKind) -> f64 {
        (activity.parts(0)[kind.index()] * 100.0).round() / 100.0
    }

    #[test]
    fn the_time_of_a_worker_is_that_of_its_kinds_of_work() {
        let mut activity = Activity::from(SECOND_NS);
        for (time_ns, op, took_ns) in [(500, Op::Exp, 400), (SECOND_NS, Op::Matmul, SECOND_NS / 2)] {
            activity.take(&sent(time_ns, 0, 1, op, time_ns));
            activity.take(&ended(time_ns, 0, 1, op, time_ns, StepTime::Measured(took_ns)));
        }
        activity.update(2 * SECOND_NS);
        assert_eq!((part(&activity, WorkKind::Matmul), part(&activity, WorkKind::Elementwise)), (0.5, 0.0));
        activity.update(2 * SECOND_NS + SMOOTHED_OVER.as_nanos() as u64);
        assert_eq!(part(&activity, WorkKind::Matmul), (50.0 / std::f64::consts::E).round() / 100.0);
        assert_eq!(activity.totals().sorted().len(), 2);
    }

    #[test]
    fn a_step_that_runs_for_a_minute_is_shown_as_running() {
        let mut activity = Activity::from(0);
        activity.take(&sent(SECOND_NS, 0, 7, Op::Matmul, 1));
        for second in 2..=61 {
            activity.update(second * SECOND_NS);
        }
        assert_eq!(part(&activity, WorkKind::Matmul), 1.0);
        let running = activity.running(0, 61 * SECOND_NS).unwrap();
        let expected = PresentStep { session: 7, subject: Subject::Op(Op::Matmul), for_ns: 60 * SECOND_NS };
        assert_eq!(running, expected);
        // Its end adds nothing that was counted before.
        activity.take(&ended(61 * SECOND_NS, 0, 7, Op::Matmul, 1, StepTime::Measured(60 * SECOND_NS)));
        activity.update(1_000 * SECOND_NS);
        assert_eq!((part(&activity, WorkKind::Matmul), activity.running(0, 0)), (0.0, None));
        assert_eq!(activity.session_totals(7).unwrap().sorted()[0].count, 1);
    }

    #[test]
    fn a_gap_is_counted() {
        let mut activity = Activity::from(0);
        activity.take(&sent(1, 0, 7, Op::Matmul, 1));
        activity.take(&LogLine::Lost(5));
        assert_eq!((activity.events(), activity.lost(), activity.depth(0)), (1, 5, 0));
    }
}
