//! The activity of a daemon at one time: its status, and what its tape tells of the last seconds.

use crate::control::DaemonTarget;
use crate::operations::{NamedTotal, named_totals};
use crate::status::{now, user};
use gt_protocol::{Connection, ProtocolError, RefusalCode, RunningInfo, SessionStatus, StatusDocument, WorkerInfo};
use gt_tape::activity::{Activity, PresentStep};
use gt_tape::chrome::TimelineNames;
use gt_tape::source::TapeObserver;
use gt_tape::work_kind::WorkKind;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The interval at which the tape is read: short enough for a ring at full rate.
pub const POLL_EVERY: Duration = Duration::from_millis(2);

/// A step that runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunningRow {
    /// The worker's name.
    pub worker: String,
    /// The session.
    pub session: u64,
    /// The operation.
    pub operation: String,
    /// How long it has run, seconds.
    pub for_s: f64,
}

/// A worker.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkerRow {
    /// The name.
    pub name: String,
    /// The part of its time that goes to each kind of work, from 0 to 1; empty if the tape may not be read.
    pub busy: BTreeMap<WorkKind, f64>,
    /// The rest of its time; none if the tape may not be read.
    pub idle: Option<f64>,
    /// Steps that are queued or running; none if the tape may not be read.
    pub queue: Option<usize>,
    /// Memory of its tensors, bytes.
    pub memory_bytes: u64,
    /// The most of that since it is watched, bytes.
    pub memory_bytes_peak: u64,
    /// The limit, bytes; 0 for none.
    pub memory_bytes_limit: u64,
    /// The step that it runs.
    pub running: Option<RunningRow>,
}

/// A session.
#[derive(Clone, Debug, Serialize)]
pub struct SessionRow {
    /// The daemon's status of it, with the user's name.
    #[serde(flatten)]
    pub status: SessionStatus,
    /// Instructions a second since the last snapshot.
    pub rate: f64,
    /// The step of it that runs; the one that has run longest, if there are several.
    pub running: Option<RunningRow>,
    /// The totals of its operations, those that took longest first.
    #[serde(skip)]
    pub operations: Vec<NamedTotal>,
}

/// A daemon and its activity.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// The daemon's version.
    pub daemon_version: String,
    /// Its process id.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: f64,
    /// The time that this covers, seconds.
    pub interval_s: f64,
    /// Why the tape may not be read; none if it may.
    pub no_tape: Option<String>,
    /// Events read.
    pub events: u64,
    /// Events that were overwritten before they were read.
    pub lost: u64,
    /// The workers.
    pub workers: Vec<WorkerRow>,
    /// The sessions.
    pub sessions: Vec<SessionRow>,
    /// The totals of all operations on the tape since about when it is watched.
    pub operations: Vec<NamedTotal>,
}

/// A daemon that is being watched.
pub struct Observation {
    daemon: Connection,
    tape: Result<TapeObserver, String>,
    activity: Activity,
    /// The status at the last snapshot.
    before: StatusDocument,
    peaks: HashMap<String, u64>,
}

impl Observation {
    /// Begins to watch `daemon`. If this user may not read the tape, the status alone is watched.
    ///
    /// # Errors
    /// No daemon listens, or it does not answer.
    pub fn begin(daemon: &DaemonTarget) -> gt_protocol::Result<Observation> {
        let daemon = daemon.connect()?;
        let before = gt_protocol::ask_status(&daemon.socket)?;
        let tape = match TapeObserver::attach(&daemon.socket, None) {
            Ok(tape) => Ok(tape),
            Err(ProtocolError::Refused(refused)) if refused.code == RefusalCode::NotPermitted => Err(refused.text),
            Err(error) => return Err(error),
        };
        let activity = Activity::from(before.tape_ns);
        let mut observation = Observation { daemon, tape, activity, before, peaks: HashMap::new() };
        observation.read();
        Ok(observation)
    }

    /// Reads the new events.
    pub fn read(&mut self) {
        if let Ok(tape) = &mut self.tape {
            tape.read_new(|line| self.activity.take(&line));
        }
    }

    /// The connection, for other requests.
    pub fn daemon(&self) -> &Connection {
        &self.daemon
    }

    /// The present.
    ///
    /// # Errors
    /// The daemon has ended, or does not answer.
    pub fn snapshot(&mut self) -> gt_protocol::Result<Snapshot> {
        let status = gt_protocol::ask_status(&self.daemon.socket)?;
        self.read();
        self.activity.update(status.tape_ns);
        let names = TimelineNames {
            workers: status.workers.iter().map(|w| w.name.clone()).collect(),
            sessions: BTreeMap::new(),
        };
        let workers: Vec<WorkerRow> =
            status.workers.iter().enumerate().map(|(number, info)| self.worker(number, info, status.tape_ns)).collect();
        let interval_s = status.uptime_s - self.before.uptime_s;
        let earlier: HashMap<u64, u64> = self.before.sessions.iter().map(|s| (s.id, s.instructions)).collect();
        let session = |found: &SessionStatus| {
            let done = found.instructions.saturating_sub(earlier.get(&found.id).copied().unwrap_or_default());
            let running = workers.iter().filter_map(|worker| worker.running.clone());
            let running = running.filter(|running| running.session == found.id);
            let totals = self.activity.session_totals(found.id);
            SessionRow {
                status: SessionStatus { user: Some(user(found.uid, found.user.clone())), ..found.clone() },
                rate: if interval_s > 0.0 { done as f64 / interval_s } else { 0.0 },
                running: running.max_by(|a, b| a.for_s.total_cmp(&b.for_s)),
                operations: totals.map(|totals| named_totals(totals.sorted(), &names)).unwrap_or_default(),
            }
        };
        let snapshot = Snapshot {
            daemon_version: status.daemon_version.clone(),
            pid: status.pid,
            uptime_s: status.uptime_s,
            interval_s,
            no_tape: self.tape.as_ref().err().cloned(),
            events: self.activity.events(),
            lost: self.activity.lost(),
            sessions: status.sessions.iter().map(session).collect(),
            operations: named_totals(self.activity.totals().sorted(), &names),
            workers,
        };
        self.before = status;
        Ok(snapshot)
    }

    fn worker(&mut self, number: usize, info: &WorkerInfo, now_ns: u64) -> WorkerRow {
        let peak = self.peaks.entry(info.name.clone()).or_default();
        *peak = info.memory_bytes.max(*peak);
        let memory_bytes_peak = *peak;
        let name = || info.name.clone();
        let by_status = info.running.as_ref().map(|RunningInfo { session, step, since_ms }| RunningRow {
            worker: name(),
            session: *session,
            operation: step.clone(),
            for_s: *since_ms as f64 / 1e3,
        });
        let row = WorkerRow {
            name: name(),
            memory_bytes: info.memory_bytes,
            memory_bytes_peak,
            memory_bytes_limit: info.memory_bytes_limit,
            running: by_status,
            ..WorkerRow::default()
        };
        if self.tape.is_err() {
            return row;
        }
        let parts = self.activity.parts(number);
        let by_tape = self.activity.running(number, now_ns).map(|PresentStep { session, subject, for_ns }| {
            RunningRow { worker: name(), session, operation: subject.name().into(), for_s: for_ns as f64 / 1e9 }
        });
        WorkerRow {
            busy: WorkKind::ALL.into_iter().zip(parts).collect(),
            idle: Some((1.0 - parts.iter().sum::<f64>()).max(0.0)),
            queue: Some(self.activity.depth(number)),
            running: by_tape.or(row.running),
            ..row
        }
    }
}

/// The seconds since a session began.
pub fn age_s(session: &SessionStatus) -> f64 {
    now() - session.since
}
