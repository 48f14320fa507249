//! The documents that the page draws.

use super::access::WebUser;
use super::snapshot::{DaemonSnapshot, SessionSnapshot};
use super::timeline::TimelineStep;
use super::user_names::UserNames;
use gt_ops::event::Subject;
use gt_protocol::{CollectiveTraffic, OperationCount, SessionStatus, WorkerInfo, WorkerMemory, WorkerState};
use gt_tape::work_kind::WorkKind;
use serde::Serialize;
use std::collections::BTreeMap;

/// A kind of work with its colour.
#[derive(Serialize)]
pub struct PageKind {
    name: &'static str,
    color: String,
}

/// A step that a worker runs.
#[derive(Serialize)]
pub struct PageStep {
    session: u64,
    operation: String,
    for_s: f64,
}

/// A worker.
#[derive(Serialize)]
pub struct PageWorker {
    name: String,
    kind: String,
    device: Option<String>,
    state: WorkerState,
    losses: u32,
    last_loss: Option<String>,
    memory_bytes: u64,
    memory_bytes_limit: u64,
    queued: u64,
    running: Option<PageStep>,
}

/// A user with sessions.
#[derive(Default, Serialize)]
pub struct PageUser {
    share: f64,
    fair_share: f64,
    memory_bytes: u64,
    sessions: u64,
}

/// A session, as every user may see it in `gtctl status`.
#[derive(Serialize)]
pub struct PageSession {
    id: u64,
    user: String,
    name: Option<String>,
    pid: u32,
    from: Option<String>,
    share: f64,
    device_s: f64,
    memory_bytes: u64,
    memory_bytes_limit: u64,
    arena_bytes: u64,
    tensors: u64,
    instructions: u64,
    queued: u64,
    since: f64,
}

/// The daemon at present.
#[derive(Serialize)]
pub struct PageDaemon {
    host: String,
    version: String,
    pid: u32,
    uptime_s: f64,
    draining: bool,
    notice: Option<String>,
    kinds: Vec<PageKind>,
    workers: Vec<PageWorker>,
    users: BTreeMap<String, PageUser>,
    sessions: Vec<PageSession>,
}

fn page_worker(snapshot: &DaemonSnapshot, number: usize, info: &WorkerInfo) -> PageWorker {
    PageWorker {
        name: info.name.clone(),
        kind: info.kind.clone(),
        device: info.device.as_ref().map(|device| device.name.clone()),
        state: info.state,
        losses: info.losses,
        last_loss: info.last_loss.clone(),
        memory_bytes: info.memory_bytes,
        memory_bytes_limit: info.memory_bytes_limit,
        queued: snapshot.queued.get(number).copied().unwrap_or(0),
        running: info.running.as_ref().map(|running| PageStep {
            session: running.session,
            operation: running.step.clone(),
            for_s: running.since_ms as f64 / 1e3,
        }),
    }
}

fn page_session(session: &SessionStatus, user: String) -> PageSession {
    PageSession {
        id: session.id,
        user,
        name: session.name.clone(),
        pid: session.pid,
        from: session.from.clone(),
        share: session.share,
        device_s: session.device_s,
        memory_bytes: session.memory_bytes,
        memory_bytes_limit: session.memory_bytes_limit,
        arena_bytes: session.arena_bytes,
        tensors: session.tensors,
        instructions: session.instructions,
        queued: session.queued,
        since: session.since,
    }
}

/// The kinds of work, in the order of displays.
fn kinds() -> Vec<PageKind> {
    let color = |kind: WorkKind| kind.color().iter().map(|part| format!("{part:02x}")).collect::<String>();
    WorkKind::ALL.into_iter().map(|kind| PageKind { name: kind.name(), color: format!("#{}", color(kind)) }).collect()
}

impl PageDaemon {
    /// The document of a snapshot, of the machine `host` at the time `now_s` since 1970.
    pub fn new(snapshot: &DaemonSnapshot, names: &mut UserNames, host: String, now_s: f64) -> PageDaemon {
        let status = &snapshot.status;
        let mut users: BTreeMap<String, PageUser> = BTreeMap::new();
        let mut weights: BTreeMap<u32, (String, f64)> = BTreeMap::new();
        let mut sessions = Vec::new();
        for session in &status.sessions {
            let name = names.name(session.uid);
            let user = users.entry(name.clone()).or_default();
            user.share += session.share;
            user.memory_bytes += session.memory_bytes;
            user.sessions += 1;
            weights.insert(session.uid, (name.clone(), session.weight));
            sessions.push(page_session(session, name));
        }
        let all: f64 = weights.values().map(|(_, weight)| weight).sum();
        for (name, weight) in weights.values() {
            if let Some(user) = users.get_mut(name).filter(|_| all > 0.0) {
                user.fair_share += weight / all;
            }
        }
        let notice = status.notice.as_ref().filter(|notice| notice.drains_at.is_some());
        let workers = status.workers.iter().enumerate();
        PageDaemon {
            host,
            version: status.daemon_version.clone(),
            pid: status.pid,
            uptime_s: status.uptime_s,
            draining: status.draining,
            notice: notice.map(|notice| notice.text(now_s)),
            kinds: kinds(),
            workers: workers.map(|(number, info)| page_worker(snapshot, number, info)).collect(),
            users,
            sessions,
        }
    }
}

/// The operations of a session, all workers together.
#[derive(Serialize)]
pub struct PageOperation {
    operation: String,
    kind: WorkKind,
    count: u64,
    time_s: f64,
    bytes: u64,
    errors: u64,
}

/// A session in full, for its user and for administrators.
#[derive(Serialize)]
pub struct PageSessionDetail {
    session: PageSession,
    queued_limit: u64,
    arena_bytes_limit: u64,
    weight: f64,
    idle_s: f64,
    divided_tensors: u64,
    out_of_memory: u64,
    workers: Vec<WorkerMemory>,
    operations: Vec<PageOperation>,
    collectives: BTreeMap<String, CollectiveTraffic>,
    /// The names of all workers, by the numbers in `steps`.
    worker_names: Vec<String>,
    steps: Vec<TimelineStep>,
}

impl PageSessionDetail {
    /// The document of a session with its last steps; `worker_names` are the names of all workers.
    pub fn new(
        snapshot: SessionSnapshot,
        steps: Vec<TimelineStep>,
        worker_names: Vec<String>,
        names: &mut UserNames,
    ) -> PageSessionDetail {
        let SessionSnapshot { detail, workers } = snapshot;
        let mut operations: BTreeMap<String, OperationCount> = BTreeMap::new();
        let mut collectives: BTreeMap<String, CollectiveTraffic> = BTreeMap::new();
        for worker in workers {
            for (name, done) in worker.operations {
                *operations.entry(name).or_default() += done;
            }
            for (name, traffic) in worker.collectives {
                *collectives.entry(name).or_default() += traffic;
            }
        }
        let mut operations: Vec<PageOperation> = operations
            .into_iter()
            .map(|(operation, done)| PageOperation {
                kind: Subject::from_name(&operation).map_or(WorkKind::Other, WorkKind::of),
                operation,
                count: done.count,
                time_s: done.time_ns as f64 / 1e9,
                bytes: done.bytes,
                errors: done.errors,
            })
            .collect();
        operations.sort_by(|a, b| b.time_s.total_cmp(&a.time_s));
        let user = names.name(detail.session.uid);
        PageSessionDetail {
            session: page_session(&detail.session, user),
            queued_limit: detail.session.queued_limit,
            arena_bytes_limit: detail.session.arena_bytes_limit,
            weight: detail.session.weight,
            idle_s: detail.idle_s,
            divided_tensors: detail.divided_tensors,
            out_of_memory: detail.out_of_memory,
            workers: detail.workers,
            operations,
            collectives,
            worker_names,
            steps,
        }
    }
}

/// The user whom the page greets.
#[derive(Serialize)]
pub struct PageYou {
    user: String,
    administrator: bool,
}

impl PageYou {
    /// The user of a token; none without one.
    pub fn new(user: &WebUser, names: &mut UserNames) -> Option<PageYou> {
        let WebUser::User(token) = user else { return None };
        Some(PageYou { user: names.name(token.uid), administrator: token.administrator })
    }
}
