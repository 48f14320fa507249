//! A snapshot in the text format of OpenMetrics 1.0, and in the older one of Prometheus.
//!
//! Histograms are classic: the text formats have no native ones, and Prometheus reads those by protobuf alone, behind a
//! feature flag until version 3.8.
//!
//! The number of label sets is bounded: a user, a worker's operation or a session beyond [`USERS_MAX`],
//! [`OPERATIONS_MAX`] or [`SESSIONS_SHOWN_MAX`] counts as [`OTHERS`]. Counters keep their label sets for ever, since
//! the first ones to come have them; sessions, which have gauges alone, are those that hold the most memory. All in all
//! there are fewer than [`SERIES_MAX`] series.
//!
//! [`USERS_MAX`]: super::snapshot::USERS_MAX

use super::snapshot::DaemonSnapshot;
use super::user_names::UserNames;
use crate::step_totals::{TimeHistogram, WAITED_FOR};
use gt_ops::event::Subject;
use gt_protocol::limits::STATUS_NODE_LINKS_MAX;
use gt_protocol::{NodeLink, OperationCount, SessionStatus, WorkerInfo, WorkerState};
use gt_tape::work_kind::WorkKind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The operations, each at one worker, that are counted on their own.
pub const OPERATIONS_MAX: usize = 1024;
/// The sessions that are shown on their own.
pub const SESSIONS_SHOWN_MAX: usize = 100;
/// An upper bound of the number of series.
pub const SERIES_MAX: usize = 10_000;
/// The label of everything beyond these bounds. No user can have this name.
pub const OTHERS: &str = "(others)";

/// The content type of [`MetricsWriter::text`].
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of [`without_openmetrics`].
pub const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// Writes snapshots. The writer knows which label sets it has used.
#[derive(Debug, Default)]
pub struct MetricsWriter {
    /// The workers' numbers and the operations that are counted on their own.
    operations: HashSet<(usize, u16)>,
}

impl MetricsWriter {
    /// The metrics of a snapshot in the format of OpenMetrics.
    ///
    /// # Errors
    /// The encoder refuses a metric.
    pub fn text(&mut self, snapshot: &Arc<DaemonSnapshot>, names: &mut UserNames) -> Result<String, Error> {
        for uid in snapshot.sessions.users.keys().flatten() {
            names.look_up(*uid);
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(SnapshotMetrics {
            operations: self.operations(snapshot),
            users: names.clone(),
            snapshot: snapshot.clone(),
        }));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }

    /// The operations of the present workers with their labels.
    fn operations(&mut self, snapshot: &DaemonSnapshot) -> Vec<(Labels, OperationCount)> {
        let mut all = Vec::new();
        for (number, worker) in present(snapshot) {
            let mut others = OperationCount::default();
            for (subject, done) in snapshot.totals.operations.of_worker(number) {
                let key = (number, subject.code());
                if self.operations.contains(&key) || self.operations.len() < OPERATIONS_MAX {
                    self.operations.insert(key);
                    all.push((labels([("worker", &worker.name), ("operation", subject.name())]), done));
                } else {
                    others += done;
                }
            }
            if others.count + others.errors > 0 {
                all.push((labels([("worker", &worker.name), ("operation", OTHERS)]), others));
            }
        }
        all
    }
}

/// The workers that have not left, with their numbers. Their names are all different.
fn present(snapshot: &DaemonSnapshot) -> impl Iterator<Item = (usize, &WorkerInfo)> {
    snapshot.status.workers.iter().enumerate().filter(|(_, worker)| worker.state != WorkerState::Left)
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[derive(Debug)]
struct SnapshotMetrics {
    snapshot: Arc<DaemonSnapshot>,
    operations: Vec<(Labels, OperationCount)>,
    users: UserNames,
}

/// The values of a user's sessions at present.
#[derive(Clone, Copy, Debug, Default)]
struct UserPresent {
    sessions: u64,
    memory_bytes: u64,
    share: f64,
    /// The user's weight; 0 for users without sessions.
    weight: f64,
}

impl SnapshotMetrics {
    fn user(&self, uid: Option<u32>) -> &str {
        uid.and_then(|uid| self.users.get(uid)).unwrap_or(OTHERS)
    }

    /// The key of a user: none for one that is counted with others.
    fn key(&self, uid: u32) -> Option<u32> {
        self.snapshot.sessions.users.contains_key(&Some(uid)).then_some(uid)
    }

    fn daemon(&self, to: &mut Families<'_>) -> Result<(), Error> {
        let DaemonSnapshot { status, totals, took, .. } = &*self.snapshot;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        to.info("gt_build", "The version of the daemon", &labels([("version", &status.daemon_version)]))?;
        to.gauge("gt_start_time", "When the daemon started, since 1970", SECONDS, now_s - status.uptime_s)?;
        to.gauge(
            "gt_draining",
            "1 while the daemon takes no sessions and ends after the last",
            NONE,
            u8_of(status.draining),
        )?;
        to.gauge(
            "gt_snapshot",
            "The dispatcher's time for the snapshot of these metrics",
            SECONDS,
            took.as_secs_f64(),
        )?;
        to.gauge("gt_sessions", "Open sessions", NONE, status.sessions.len() as f64)?;
        to.counter("gt_sessions_begun", "Sessions that began", NONE, totals.sessions)?;
        to.counter("gt_instructions", "Instructions and requests that programs sent", NONE, totals.received)?;
        let help = "Instructions that failed before a worker had them, because of a limit or an interrupt";
        to.counter("gt_instructions_refused", help, NONE, totals.refused)?;
        to.gauge("gt_arena", "Memory that all sessions share with the daemon", BYTES, status.arena_bytes as f64)?;
        to.gauge("gt_arena_limit", "The limit of gt_arena_bytes", BYTES, status.arena_bytes_limit as f64)
    }

    fn workers(&self, to: &mut Families<'_>) -> Result<(), Error> {
        let DaemonSnapshot { queued, totals, sessions, .. } = &*self.snapshot;
        let workers = || present(&self.snapshot).map(|(number, info)| (number, info, labels([("worker", &info.name)])));
        let gauges = |value: fn(&WorkerInfo) -> f64| workers().map(move |(_, info, labels)| (labels, value(info)));
        let is_up = |info: &WorkerInfo| u8_of(info.state == WorkerState::Running);
        to.gauges("gt_worker_up", "1 while the worker executes steps", NONE, gauges(is_up))?;
        let restarts = workers().map(|(_, info, labels)| (labels, u64::from(info.losses)));
        to.counters("gt_worker_restarts", "How often the worker ended and lost its tensors", NONE, restarts)?;
        let memory = gauges(|info| info.memory_bytes as f64);
        to.gauges("gt_worker_memory", "Memory of the worker's tensors", BYTES, memory)?;
        let limit = gauges(|info| info.memory_bytes_limit as f64);
        to.gauges("gt_worker_memory_limit", "The limit of gt_worker_memory_bytes, 0 for none", BYTES, limit)?;
        let depth = workers().map(|(number, _, labels)| (labels, queued.get(number).copied().unwrap_or(0) as f64));
        to.gauges("gt_worker_queued_steps", "Steps that are queued or running", NONE, depth)?;
        let running = gauges(|info| info.running.as_ref().map_or(0.0, |running| running.since_ms as f64 / 1e3));
        to.gauges("gt_worker_step_age", "How long the running step has run, 0 if there is none", SECONDS, running)?;
        let busy = workers().flat_map(|(number, info, _)| {
            let kinds = WorkKind::ALL.into_iter().zip(totals.operations.ns_by_kind(number)).filter(|(_, ns)| *ns > 0);
            kinds.map(|(kind, ns)| (labels([("worker", &info.name), ("kind", kind.name())]), seconds(ns)))
        });
        to.counters("gt_worker_busy", "Time of the steps that ended, by kind of work", SECONDS, busy)?;
        let traffic = || {
            let known = sessions.collectives.iter();
            known.filter_map(|((number, name), traffic)| {
                let (_, info) = present(&self.snapshot).find(|(present, _)| present == number)?;
                Some((labels([("worker", &info.name), ("collective", name)]), traffic))
            })
        };
        let count = traffic().map(|(labels, traffic)| (labels, traffic.count));
        to.counters("gt_collectives", "Collectives in which the worker took part", NONE, count)?;
        let sent = traffic().map(|(labels, traffic)| (labels, traffic.bytes));
        to.counters("gt_collective", "Bytes that the worker sent in collectives", BYTES, sent)
    }

    fn node_links(&self, to: &mut Families<'_>) -> Result<(), Error> {
        let of = |value: fn(&NodeLink) -> f64| {
            let links = self.snapshot.status.node_links.iter().take(STATUS_NODE_LINKS_MAX);
            links.map(move |link| {
                let ends = [("from", link.from.as_str()), ("to", &link.to), ("transport", link.transport.name())];
                (labels(ends), value(link))
            })
        };
        let help = "Latency between two machines, as their workers measured it; the daemon's has no name";
        to.gauges("gt_node_link_latency", help, SECONDS, of(|link| seconds(link.latency_ns)))?;
        let help = "Bytes a second between two machines, as their workers measured it";
        to.gauges("gt_node_link_bandwidth", help, BYTES, of(|link| link.bytes_per_s as f64))
    }

    fn operations(&self, to: &mut Families<'_>) -> Result<(), Error> {
        let all = &self.operations;
        let of =
            |value: fn(&OperationCount) -> u64| all.iter().map(move |(labels, done)| (labels.clone(), value(done)));
        to.counters("gt_operations", "Steps that ended, by worker and operation", NONE, of(|done| done.count))?;
        let time = all.iter().map(|(labels, done)| (labels.clone(), seconds(done.time_ns)));
        to.counters("gt_operation", "Their time; the first of fused steps has the time of all", SECONDS, time)?;
        let help = "Bytes of their instructions, or of the data moved";
        to.counters("gt_operation", help, BYTES, of(|done| done.bytes))?;
        to.counters("gt_operation_errors", "Steps that failed", NONE, of(|done| done.errors))?;
        let totals = &self.snapshot.totals;
        let kinds = WorkKind::ALL.into_iter().zip(&totals.durations);
        let steps = kinds.map(|(kind, times)| (labels([("kind", kind.name())]), times));
        to.histograms("gt_step_duration", "How long steps took on their worker, by kind of work", steps)?;
        let waits = WAITED_FOR.iter().zip(&totals.waits);
        let waits = waits.map(|(request, times)| (labels([("request", Subject::name(*request))]), times));
        to.histograms("gt_wait_duration", "From a program's request to its completion", waits)
    }

    fn by_user(&self, to: &mut Families<'_>) -> Result<(), Error> {
        let users = &self.snapshot.sessions.users;
        let mut present: BTreeMap<Option<u32>, UserPresent> =
            users.keys().map(|key| (*key, UserPresent::default())).collect();
        // Users that are counted together have weights of their own.
        let mut weights: HashMap<u32, f64> = HashMap::new();
        for session in &self.snapshot.status.sessions {
            let user = present.entry(self.key(session.uid)).or_default();
            user.sessions += 1;
            user.memory_bytes += session.memory_bytes;
            user.share += session.share;
            if weights.insert(session.uid, session.weight).is_none() {
                user.weight += session.weight;
            }
        }
        let all_weights: f64 = weights.values().sum();
        let totals = || users.iter().map(|(key, totals)| (labels([("user", self.user(*key))]), totals));
        let time = totals().map(|(labels, user)| (labels, user.device_s));
        to.counters("gt_user_device", "Time of the devices that the user's sessions used", SECONDS, time)?;
        let instructions = totals().map(|(labels, user)| (labels, user.instructions));
        to.counters("gt_user_instructions", "Instructions of the user's sessions", NONE, instructions)?;
        let errors = totals().map(|(labels, user)| (labels, user.errors));
        to.counters("gt_user_errors", "Instructions that failed", NONE, errors)?;
        let failed = totals().map(|(labels, user)| (labels, user.out_of_memory));
        to.counters("gt_user_out_of_memory", "Allocations that failed", NONE, failed)?;
        let moved = totals().map(|(labels, user)| (labels, user.bytes_moved));
        to.counters("gt_user_moved", "Tensor bytes between the user's programs and the daemon", BYTES, moved)?;
        let begun = totals().map(|(labels, user)| (labels, user.sessions));
        to.counters("gt_user_sessions_begun", "Sessions that began", NONE, begun)?;
        let now = || present.iter().map(|(key, user)| (labels([("user", self.user(*key))]), user));
        to.gauges(
            "gt_user_sessions",
            "Open sessions",
            NONE,
            now().map(|(labels, user)| (labels, user.sessions as f64)),
        )?;
        let memory = now().map(|(labels, user)| (labels, user.memory_bytes as f64));
        to.gauges("gt_user_memory", "Memory of the tensors of the user's sessions", BYTES, memory)?;
        let share = now().map(|(labels, user)| (labels, user.share));
        to.gauges("gt_user_share_ratio", "The user's part of the devices' time in the last seconds", NONE, share)?;
        let fair =
            now().map(|(labels, user)| (labels, if all_weights > 0.0 { user.weight / all_weights } else { 0.0 }));
        let help = "The part that the user would have if all users with sessions had work";
        to.gauges("gt_user_fair_share_ratio", help, NONE, fair)
    }

    fn by_session(&self, to: &mut Families<'_>) -> Result<(), Error> {
        let mut sessions: Vec<&SessionStatus> = self.snapshot.status.sessions.iter().collect();
        sessions.sort_by_key(|session| (std::cmp::Reverse(session.memory_bytes), session.id));
        let (shown, others) = sessions.split_at(sessions.len().min(SESSIONS_SHOWN_MAX));
        let gauges = |value: fn(&SessionStatus) -> f64| {
            let one = |session: &&SessionStatus| {
                let (id, user) = (session.id.to_string(), self.user(self.key(session.uid)));
                (labels([("session", &id), ("user", user)]), value(session))
            };
            let all: Vec<(Labels, f64)> = shown.iter().map(one).collect();
            let rest = (!others.is_empty()).then(|| others.iter().map(|session| value(session)).sum::<f64>());
            all.into_iter().chain(rest.map(|sum| (labels([("session", OTHERS), ("user", OTHERS)]), sum)))
        };
        let memory = gauges(|session| session.memory_bytes as f64);
        to.gauges("gt_session_memory", "Memory of the session's tensors on all workers", BYTES, memory)?;
        let arenas = gauges(|session| session.arena_bytes as f64);
        to.gauges("gt_session_arena", "Memory that the session shares with the daemon", BYTES, arenas)?;
        let queued = gauges(|session| session.queued as f64);
        to.gauges("gt_session_queued_steps", "Steps of the session that are queued or running", NONE, queued)?;
        let share = gauges(|session| session.share);
        to.gauges("gt_session_share_ratio", "The session's part of the devices' time in the last seconds", NONE, share)
    }
}

impl Collector for SnapshotMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut to = Families(encoder);
        self.daemon(&mut to)?;
        self.workers(&mut to)?;
        self.node_links(&mut to)?;
        self.operations(&mut to)?;
        self.by_user(&mut to)?;
        self.by_session(&mut to)
    }
}

impl std::fmt::Debug for DaemonSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DaemonSnapshot")
    }
}

const NONE: Option<&Unit> = None;
const SECONDS: Option<&Unit> = Some(&Unit::Seconds);
const BYTES: Option<&Unit> = Some(&Unit::Bytes);

fn u8_of(is: bool) -> f64 {
    f64::from(u8::from(is))
}

/// Writes metrics with all their label sets at once.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn info(&mut self, name: &str, help: &str, labels: &Labels) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Info)?.encode_info(labels)
    }

    fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: f64) -> Result<(), Error> {
        ConstGauge::new(value).encode(self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?)
    }

    fn counter(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> Result<(), Error> {
        ConstCounter::new(value).encode(self.0.encode_descriptor(name, help, unit, MetricType::Counter)?)
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl Iterator<Item = (Labels, f64)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counters<V>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl Iterator<Item = (Labels, V)>,
    ) -> Result<(), Error>
    where
        ConstCounter<V>: EncodeMetric,
    {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (labels, value) in values {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Histograms of seconds; those without a time are left out.
    fn histograms<'h>(
        &mut self,
        name: &str,
        help: &str,
        values: impl Iterator<Item = (Labels, &'h TimeHistogram)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, SECONDS, MetricType::Histogram)?;
        for (labels, times) in values.filter(|(_, times)| times.count() > 0) {
            let mut histogram = family.encode_family(&labels)?;
            histogram.encode_histogram::<Labels>(times.sum_s(), times.count(), &times.buckets(), None)?;
        }
        Ok(())
    }
}

/// The same metrics in the older format of Prometheus, where counters and infos are named in full, and there are no
/// units and no end.
pub fn without_openmetrics(text: &str) -> String {
    let mut older = String::with_capacity(text.len());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        let Some(help) = line.strip_prefix("# HELP ") else {
            older.push_str(line);
            older.push('\n');
            continue;
        };
        // The type follows the help, and says how the samples are named.
        let kind = lines.next().and_then(|line| line.rsplit_once(' ')).map_or("untyped", |(_, kind)| kind);
        let (name, help) = help.split_once(' ').unwrap_or((help, ""));
        let (suffix, kind) = match kind {
            "counter" => ("_total", kind),
            "info" => ("_info", "gauge"),
            _ => ("", kind),
        };
        older.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
    }
    older
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step_totals::StepTotalsRecorder;
    use crate::web::snapshot::{CollectiveTotals, USERS_MAX};
    use gt_ops::Op;
    use gt_ops::event::{Event, EventKind, StepTime};
    use gt_ops::placement::WORKERS_MAX;
    use gt_protocol::limits::SESSIONS_MAX;
    use gt_protocol::{CollectiveTraffic, SessionRecord, StatusDocument};

    /// A daemon that has everything that it may have: workers, operations, users and sessions.
    fn full() -> DaemonSnapshot {
        let mut recorder = StepTotalsRecorder::default();
        let workers =
            (0..WORKERS_MAX).map(|worker| WorkerInfo { name: format!("cpu:{worker}"), ..WorkerInfo::default() });
        for worker in 0..WORKERS_MAX as u16 {
            for op in Op::ALL {
                let [left, right] = StepTime::Measured(1_000).words();
                let (kind, subject) = (EventKind::WorkerRecv, Subject::Op(*op));
                let (time_ns, session, bytes, result) = (0, 1, 64, 1);
                recorder.add(&Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns: 0 });
            }
        }
        let mut snapshot = DaemonSnapshot { totals: recorder.totals().clone(), ..DaemonSnapshot::default() };
        let names = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send", "receive"];
        let pairs =
            (0..WORKERS_MAX).flat_map(|worker| names.map(|name| ((worker, name), CollectiveTraffic::default())));
        let collectives: CollectiveTotals = pairs.collect();
        for uid in 0..2 * USERS_MAX as u32 {
            let record = SessionRecord { uid, instructions: 3, ..SessionRecord::default() };
            snapshot.sessions.add(&record, 0, &collectives);
        }
        let session = |id: u32| SessionStatus {
            id: id.into(),
            uid: id,
            memory_bytes: id.into(),
            weight: 1.0,
            name: Some("\"\n\\".into()),
            ..SessionStatus::default()
        };
        let sessions = (0..SESSIONS_MAX).map(session).collect();
        let link = |number: usize| NodeLink { from: format!("node{number}"), latency_ns: 7_000, ..NodeLink::default() };
        let node_links = (0..WORKERS_MAX).map(link).collect();
        snapshot.status =
            StatusDocument { workers: workers.collect(), sessions, node_links, ..StatusDocument::default() };
        snapshot
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let mut writer = MetricsWriter::default();
        let snapshot = Arc::new(full());
        let text = writer.text(&snapshot, &mut UserNames::default()).unwrap();
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(samples.len() < SERIES_MAX, "{}", samples.len());
        let names: HashSet<&str> = samples.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
        assert_eq!(names.len(), samples.len(), "no series is there twice");
        let count = |prefix: &str| samples.iter().filter(|line| line.starts_with(prefix)).count();
        assert_eq!(count("gt_session_memory_bytes{"), SESSIONS_SHOWN_MAX + 1);
        assert_eq!(count("gt_user_instructions_total{"), USERS_MAX + 1);
        assert_eq!(count("gt_node_link_latency_seconds{"), STATUS_NODE_LINKS_MAX);
        assert!(samples.contains(&"gt_user_instructions_total{user=\"(others)\"} 300"), "{text}");
        let others: u64 = (0..u64::from(SESSIONS_MAX) - SESSIONS_SHOWN_MAX as u64).sum();
        let line = format!("gt_session_memory_bytes{{session=\"(others)\",user=\"(others)\"}} {others}.0");
        assert!(samples.contains(&line.as_str()), "{line}");
        // Nothing is lost: the operations of a worker have all of its steps.
        let of_last = format!("gt_operations_total{{worker=\"cpu:{}\",operation=\"(others)\"}}", WORKERS_MAX - 1);
        let last = samples.iter().find_map(|line| line.strip_prefix(&of_last)?.trim().parse().ok());
        assert_eq!(last, Some(Op::ALL.len()));
        assert_eq!(writer.text(&snapshot, &mut UserNames::default()).unwrap().lines().count(), text.lines().count());
    }

    #[test]
    fn the_older_format_names_counters_in_full() {
        let text = MetricsWriter::default().text(&Arc::new(full()), &mut UserNames::default()).unwrap();
        assert!(text.contains("# TYPE gt_operations counter\n") && text.ends_with("# EOF\n"));
        let older = without_openmetrics(&text);
        assert!(older.contains("# TYPE gt_operations_total counter\n"), "{older}");
        assert!(older.contains("# TYPE gt_build_info gauge\n"), "{older}");
        assert!(!older.contains("# UNIT") && !older.contains("# EOF"));
        let samples = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples(&older), samples(&text));
    }

    #[test]
    fn workers_that_have_left_are_not_shown() {
        let mut snapshot = full();
        snapshot.status.workers[3].state = WorkerState::Left;
        // Another one has its name.
        snapshot.status.workers[4].name = "cpu:3".into();
        let text = MetricsWriter::default().text(&Arc::new(snapshot), &mut UserNames::default()).unwrap();
        assert_eq!(text.matches("gt_worker_up{worker=\"cpu:3\"}").count(), 1);
        assert_eq!(text.matches("gt_worker_up{").count(), WORKERS_MAX - 1);
    }
}
