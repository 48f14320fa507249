//! The last minutes of workers and users: a sample every [`SAMPLE_EVERY`], of which the last [`SAMPLES_MAX`] are kept.

use super::snapshot::DaemonSnapshot;
use super::user_names::UserNames;
use gt_ops::event::Subject;
use gt_protocol::WorkerInfo;
use gt_tape::work_kind::WorkKind;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// The interval of samples.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(2);
/// The samples that are kept: ten minutes.
pub const SAMPLES_MAX: usize = 300;
/// The sessions of a sample, those with the largest parts.
const SESSIONS_MAX: usize = 64;
/// A part is rounded to this, so that a page of samples is short.
const PART_STEP: f64 = 1e-3;

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HistorySample {
    /// The number of the sample, from 1.
    pub number: u64,
    /// Its time: seconds since the daemon started.
    pub at_s: f64,
    /// For each worker, by number, the parts of its time that went to each of [`WorkKind::ALL`].
    pub workers: Vec<Vec<f64>>,
    /// Memory of each worker's tensors, bytes.
    pub memory_bytes: Vec<u64>,
    /// For each user, by name, the part of each worker's time that the user had.
    pub users: BTreeMap<String, Vec<f64>>,
    /// For each session, the part of each worker's time that it had.
    pub sessions: BTreeMap<u64, Vec<f64>>,
}

/// The times that steps have had so far.
#[derive(Default)]
struct TimesSoFar {
    at_s: f64,
    /// By worker and kind, nanoseconds.
    kinds: Vec<[u64; WorkKind::ALL.len()]>,
    /// By session and worker, nanoseconds.
    sessions: HashMap<u64, Vec<u64>>,
}

/// The samples.
#[derive(Default)]
pub struct WorkHistory {
    samples: VecDeque<HistorySample>,
    last: u64,
    latest: TimesSoFar,
}

impl WorkHistory {
    /// Adds the present. The first time, only the times so far are noted.
    pub fn add(&mut self, snapshot: &DaemonSnapshot, names: &mut UserNames) {
        let before = std::mem::replace(&mut self.latest, times(snapshot));
        let now = &self.latest;
        let interval_ns = (now.at_s - before.at_s) * 1e9;
        if before.at_s == 0.0 || interval_ns <= 0.0 {
            return;
        }
        let part = |now_ns: u64, before_ns: u64| {
            let part = (now_ns.saturating_sub(before_ns) as f64 / interval_ns).min(1.0);
            (part / PART_STEP).round() * PART_STEP
        };
        let workers = now.kinds.iter().enumerate().map(|(worker, kinds)| {
            let earlier = before.kinds.get(worker).copied().unwrap_or_default();
            kinds.iter().zip(earlier).map(|(now_ns, before_ns)| part(*now_ns, before_ns)).collect()
        });
        let present = snapshot.status.workers.len();
        let mut users: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut sessions: Vec<(u64, Vec<f64>)> = Vec::new();
        for session in &snapshot.status.sessions {
            let earlier = before.sessions.get(&session.id);
            let times = now.sessions.get(&session.id).into_iter().flatten().enumerate();
            let parts: Vec<f64> = times
                .map(|(worker, ns)| part(*ns, earlier.and_then(|times| times.get(worker)).copied().unwrap_or(0)))
                .collect();
            if parts.iter().any(|part| *part > 0.0) {
                let user = users.entry(names.name(session.uid)).or_insert_with(|| vec![0.0; present]);
                for (user, own) in user.iter_mut().zip(&parts) {
                    *user = (*user + own).min(1.0);
                }
                sessions.push((session.id, parts));
            }
        }
        sessions.sort_by(|(_, a), (_, b)| b.iter().sum::<f64>().total_cmp(&a.iter().sum()));
        sessions.truncate(SESSIONS_MAX);
        self.last += 1;
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(HistorySample {
            number: self.last,
            at_s: now.at_s,
            workers: workers.collect(),
            memory_bytes: snapshot.status.workers.iter().map(|worker| worker.memory_bytes).collect(),
            users,
            sessions: sessions.into_iter().collect(),
        });
    }

    /// The samples with larger numbers than `after`, oldest first.
    pub fn after(&self, after: u64) -> Vec<&HistorySample> {
        self.samples.iter().filter(|sample| sample.number > after).collect()
    }
}

/// The step that a worker runs: its session, its kind, and its time so far.
fn running(worker: &WorkerInfo) -> Option<(u64, WorkKind, u64)> {
    let running = worker.running.as_ref()?;
    let kind = Subject::from_name(&running.step).map_or(WorkKind::Other, WorkKind::of);
    Some((running.session, kind, running.since_ms.saturating_mul(1_000_000)))
}

/// The times so far, those of running steps included: a step that takes a minute is not idleness and then a burst.
fn times(snapshot: &DaemonSnapshot) -> TimesSoFar {
    let mut sessions = snapshot.session_times.clone();
    let kinds = snapshot.status.workers.iter().enumerate().map(|(number, worker)| {
        let mut kinds = snapshot.totals.operations.ns_by_kind(number);
        if let Some((session, kind, ns)) = running(worker) {
            kinds[kind.index()] = kinds[kind.index()].saturating_add(ns);
            if let Some(times) = sessions.get_mut(&session) {
                times.resize(times.len().max(number + 1), 0);
                times[number] = times[number].saturating_add(ns);
            }
        }
        kinds
    });
    TimesSoFar { at_s: snapshot.status.uptime_s, kinds: kinds.collect(), sessions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::{RunningInfo, SessionStatus, StatusDocument};

    fn snapshot(at_s: f64, ended_ns: u64, running_ms: Option<u64>) -> DaemonSnapshot {
        let step = "matmul".to_owned();
        let running = running_ms.map(|since_ms| RunningInfo { session: 7, step, since_ms });
        let worker = WorkerInfo { name: "cpu:0".into(), running, ..WorkerInfo::default() };
        let session = SessionStatus { id: 7, uid: 4_000_000_001, ..SessionStatus::default() };
        DaemonSnapshot {
            status: StatusDocument {
                uptime_s: at_s,
                workers: vec![worker.clone(), WorkerInfo { running: None, ..worker }],
                sessions: vec![session],
                ..StatusDocument::default()
            },
            session_times: HashMap::from([(7, vec![ended_ns])]),
            ..DaemonSnapshot::default()
        }
    }

    #[test]
    fn a_step_counts_while_it_runs_and_not_again_when_it_ends() {
        let (mut history, mut names) = (WorkHistory::default(), UserNames::default());
        for (at_s, ended_ns, running_ms) in
            [(10.0, 0, None), (12.0, 0, Some(1_000)), (14.0, 0, Some(3_000)), (16.0, 4_000_000_000, None)]
        {
            history.add(&snapshot(at_s, ended_ns, running_ms), &mut names);
        }
        let samples = history.after(0);
        let parts: Vec<f64> = samples.iter().map(|sample| sample.sessions[&7][0]).collect();
        assert_eq!(parts, [0.5, 1.0, 0.5]);
        assert_eq!(samples[0].workers[0][WorkKind::Matmul.index()], 0.5);
        assert_eq!(samples[1].users["4000000001"], [1.0, 0.0]);
        assert_eq!((samples[2].number, history.after(2).len()), (3, 1));
    }

    #[test]
    fn ten_minutes_are_kept() {
        let (mut history, mut names) = (WorkHistory::default(), UserNames::default());
        for second in 1..=SAMPLES_MAX + 10 {
            history.add(&snapshot(second as f64, 0, None), &mut names);
        }
        assert_eq!(history.after(0).len(), SAMPLES_MAX);
        assert_eq!(history.after(0)[0].number, 10);
    }
}
