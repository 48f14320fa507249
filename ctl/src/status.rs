//! `gtctl status`, `sessions` and `session`: the daemon's status as tables.

use crate::host::host_of;
use crate::nodes;
use crate::table::{Table, bytes, or_none, seconds};
use gt_protocol::{
    DeviceSet, RunningInfo, SessionDetail, SessionStatus, StatusDocument, TcpStatus, WorkerInfo, WorkerState,
};
use nix::unistd::{Uid, User};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

/// Whether the users are those of another machine, whose names are not known here.
static USERS_ARE_FOREIGN: AtomicBool = AtomicBool::new(false);

/// Shows the numbers of users and not their names from now on: they are those of another machine.
pub fn show_numbers_of_users() {
    USERS_ARE_FOREIGN.store(true, Relaxed);
}

/// The present time, seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The text of `gtctl status` at the time `now`.
pub fn text(status: &StatusDocument, now: f64) -> String {
    let StatusDocument { daemon_version, pid, uptime_s, workers, draining, notice, .. } = status;
    let mut text = format!("gtd {daemon_version}, process {pid}, up {}\n", seconds(*uptime_s));
    if *draining {
        text.push_str("draining: no session begins, and the daemon ends with the last (gtctl drain --undo)\n");
    }
    if let Some(notice) = notice.as_ref().filter(|notice| notice.drains_at.is_some()) {
        text.push_str(&format!("notice: {} (gtctl drain --undo)\n", notice.text(now)));
    }
    if let Some(tcp) = &status.tcp {
        text.push_str(&format!("tcp: {}\n", by_tcp(tcp, &own_host())));
    }
    if let Some(address) = &status.nodes_address {
        let warning = status.insecure_network.warning();
        let separator = if warning.is_empty() { "" } else { "; " };
        text.push_str(&format!("nodes: join at {address} (gtctl invite){separator}{warning}\n"));
    }
    if let Some(address) = &status.metrics {
        text.push_str(&format!(
            "page: http://{address}/, for browsers of this machine; metrics: http://{address}/metrics\n"
        ));
    }
    text.push('\n');
    let mut table = Table::new(&[
        ("WORKER", false),
        ("PID", true),
        ("THREADS", true),
        ("MEMORY", true),
        ("LIMIT", true),
        ("STATE", false),
    ]);
    for worker in workers {
        let WorkerInfo { name, process, threads, memory_bytes, memory_bytes_limit, .. } = worker;
        let process = process.map_or_else(|| "-".into(), |process| process.to_string());
        let limit = or_none(*memory_bytes_limit, bytes);
        table.row(vec![name.clone(), process, threads.to_string(), bytes(*memory_bytes), limit, state(worker)]);
    }
    text.push_str(&table.text());
    text.push('\n');
    if !status.nodes.is_empty() {
        text.push_str(&nodes::table(&status.nodes));
        text.push('\n');
    }
    if !status.node_links.is_empty() {
        text.push_str(&nodes::link_table(&status.node_links));
        text.push('\n');
    }
    if status.arena_bytes_limit > 0 {
        let (held, limit) = (bytes(status.arena_bytes), bytes(status.arena_bytes_limit));
        text.push_str(&format!("arenas: {held} of {limit}, all sessions together\n\n"));
    }
    text.push_str(&sessions(&status.sessions, now));
    text
}

/// The name of this machine.
pub fn own_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// How the daemon on the machine `host` listens by TCP.
fn by_tcp(tcp: &TcpStatus, host: &str) -> String {
    let address = &tcp.address;
    match (tcp.is_open, &tcp.fingerprint) {
        (true, _) => {
            let addresses = tcp.addresses(&host_of(address, host));
            format!("{address}; other machines connect to {}", addresses.join(" or "))
        }
        (false, Some(fingerprint)) => format!("{address}, for this machine alone; TLS certificate {fingerprint}"),
        (false, None) => format!("{address}, for this machine alone; no TLS"),
    }
}

/// The table of sessions.
pub fn sessions(sessions: &[SessionStatus], now: f64) -> String {
    if sessions.is_empty() {
        return "no sessions\n".into();
    }
    let mut table = Table::new(&[
        ("SESSION", true),
        ("USER", false),
        ("PID", true),
        ("NAME", false),
        ("TENSORS", true),
        ("MEMORY", true),
        ("ARENA", true),
        ("QUEUE", true),
        ("SHARE", true),
        ("SINCE", true),
    ]);
    for session in sessions {
        table.row(vec![
            session.id.to_string(),
            user(session.uid, session.user.clone()),
            session.pid.to_string(),
            session.name.clone().unwrap_or_else(|| "-".into()),
            session.tensors.to_string(),
            of_limit(session.memory_bytes, session.memory_bytes_limit, bytes),
            bytes(session.arena_bytes),
            of_limit(session.queued, session.queued_limit, |queued| queued.to_string()),
            format!("{:.0} %", session.share * 100.0),
            since(session, now),
        ]);
    }
    table.text()
}

fn since(session: &SessionStatus, now: f64) -> String {
    format!("{} ago", seconds(now - session.since))
}

fn of_limit(held: u64, limit: u64, text: impl Fn(u64) -> String) -> String {
    if limit == 0 { text(held) } else { format!("{} / {}", text(held), text(limit)) }
}

/// The text of `gtctl session`.
pub fn session(detail: &SessionDetail, now: f64) -> String {
    let SessionDetail { session, user: owner, workers, divided_tensors, out_of_memory, idle_s, .. } = detail;
    let times = |n: u64| if n == 1 { "once".into() } else { format!("{n} times") };
    let name = session.name.as_deref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let divided = if *divided_tensors == 0 { String::new() } else { format!(", {divided_tensors} divided") };
    let mut lines = vec![
        format!("session {}{name} of {}, process {}", session.id, user(session.uid, session.user.clone()), session.pid),
        format!("since      {}, idle for {}", since(session, now), seconds(*idle_s)),
        format!("tensors    {}, {} in them{divided}", session.tensors, bytes(session.tensor_bytes)),
        format!("devices    {}", session.devices.unwrap_or(DeviceSet::ALL)),
        format!("memory     {}", of_limit(session.memory_bytes, session.memory_bytes_limit, bytes)),
    ];
    lines.extend(workers.iter().map(|worker| {
        let (now, most) = (bytes(worker.memory_bytes), bytes(worker.memory_bytes_peak));
        format!("  {:<8} {now} in {} tensors, {most} at most", worker.name, worker.tensors)
    }));
    lines.extend([
        format!("arenas     {}", bytes(session.arena_bytes)),
        format!("queue      {}", of_limit(session.queued, session.queued_limit, |queued| queued.to_string())),
        format!("done       {} instructions, {:.1} s of the devices' time", session.instructions, session.device_s),
        format!("share      {:.0} % lately, weight {}", session.share * 100.0, session.weight),
        format!("no memory  {}", if *out_of_memory == 0 { "never".into() } else { times(*out_of_memory) }),
        format!(
            "its user   {} sessions of {}, memory {}",
            owner.sessions,
            owner.allowed.sessions,
            of_limit(owner.memory_bytes, owner.allowed.memory_bytes, bytes)
        ),
        format!(
            "           tensors {}, arenas {}",
            of_limit(owner.tensors, owner.allowed.tensors, |tensors| tensors.to_string()),
            of_limit(owner.arena_bytes, owner.allowed.arena_bytes, bytes)
        ),
    ]);
    lines.join("\n") + "\n"
}

/// A worker's state, and how it was last lost.
fn state(worker: &WorkerInfo) -> String {
    let mut text = match worker.state {
        WorkerState::Running => "running",
        WorkerState::Starting => "starting",
        WorkerState::Down => "down, will be tried again",
        WorkerState::Left => "left",
        WorkerState::Other => "unknown",
    }
    .to_string();
    if let Some(RunningInfo { session, step, since_ms }) = &worker.running {
        text.push_str(&format!(", {step} of session {session} for {}", seconds(*since_ms as f64 / 1e3)));
    }
    if let (WorkerState::Running, Some(device)) = (worker.state, &worker.device) {
        let (major, minor) = device.capability;
        text.push_str(&format!(" on {} (compute capability {major}.{minor})", device.name));
    }
    if let Some(end) = &worker.last_loss {
        text.push_str(&format!("; lost {}, last it {end}", times(worker.losses)));
    }
    text
}

fn times(count: u32) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

/// A user's name. It is looked up here and not in the daemon, since a lookup can take long.
pub fn user(uid: u32, known: Option<String>) -> String {
    let look_up = || User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    let looked_up = || if USERS_ARE_FOREIGN.load(Relaxed) { None } else { look_up() };
    known.or_else(looked_up).unwrap_or_else(|| uid.to_string())
}

/// Sets the name of a session's user; the number, if the user has no name.
pub fn name_user(session: &mut SessionStatus) {
    session.user = Some(user(session.uid, session.user.take()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::{DeviceInfo, WorkerMemory};

    #[test]
    fn a_status_is_two_tables() {
        let worker = WorkerInfo {
            name: "cpu:0".into(),
            kind: "cpu".into(),
            threads: 2,
            memory_bytes_limit: 8 << 30,
            memory_bytes: 12 << 20,
            ..WorkerInfo::default()
        };
        let session = SessionStatus {
            id: 3,
            name: Some("digits".into()),
            user: Some("ada".into()),
            pid: 77,
            tensors: 12,
            memory_bytes: 4096,
            memory_bytes_limit: 1 << 30,
            arena_bytes: 1 << 20,
            queued: 7,
            share: 0.25,
            since: 1000.0,
            ..SessionStatus::default()
        };
        let mut status = StatusDocument {
            daemon_version: "0.1.0".into(),
            pid: 42,
            uptime_s: 75.0,
            workers: vec![worker],
            arena_bytes: 1 << 20,
            arena_bytes_limit: 2 << 30,
            ..StatusDocument::default()
        };
        let head = "gtd 0.1.0, process 42, up 1 min 15 s\n\n\
                    WORKER  PID  THREADS    MEMORY    LIMIT  STATE\n\
                    cpu:0     -        2  12.0 MiB  8.0 GiB  running\n\n\
                    arenas: 1.0 MiB of 2.0 GiB, all sessions together\n\n";
        assert_eq!(text(&status, 1060.0), format!("{head}no sessions\n"));
        status.sessions.push(session);
        let sessions = [
            "SESSION  USER  PID  NAME    TENSORS             MEMORY    ARENA  QUEUE  SHARE          SINCE\n",
            "      3  ada    77  digits       12  4.0 KiB / 1.0 GiB  1.0 MiB      7   25 %  1 min 0 s ago\n",
        ];
        assert_eq!(text(&status, 1060.0), format!("{head}{}", sessions.concat()));
    }

    #[test]
    fn a_worker_says_on_what_it_runs() {
        let device = DeviceInfo { name: "NVIDIA H200".into(), capability: (9, 0), ..DeviceInfo::default() };
        let worker = WorkerInfo { state: WorkerState::Running, device: Some(device), ..WorkerInfo::default() };
        assert_eq!(state(&worker), "running on NVIDIA H200 (compute capability 9.0)");
    }

    #[test]
    fn a_worker_says_what_it_runs() {
        let running = Some(RunningInfo { session: 7, step: "sum".into(), since_ms: 200_400 });
        let worker = WorkerInfo { state: WorkerState::Running, running, ..WorkerInfo::default() };
        assert_eq!(state(&worker), "running, sum of session 7 for 3 min 20 s");
    }

    #[test]
    fn a_session_says_what_it_holds_and_held() {
        let worker = |memory_bytes, memory_bytes_peak| WorkerMemory {
            name: "cuda:0".into(),
            memory_bytes,
            memory_bytes_peak,
            tensors: 3,
        };
        let detail = SessionDetail { workers: vec![worker(1 << 20, 3 << 20)], ..SessionDetail::default() };
        let text = session(&detail, 0.0);
        assert!(text.contains("\n  cuda:0   1.0 MiB in 3 tensors, 3.0 MiB at most\n"), "{text}");
    }

    #[test]
    fn a_worker_that_was_lost_says_so() {
        let end = Some("was killed by signal 9".to_string());
        let worker = |state, losses| WorkerInfo { state, losses, last_loss: end.clone(), ..WorkerInfo::default() };
        let killed = "lost once, last it was killed by signal 9";
        assert_eq!(state(&worker(WorkerState::Running, 1)), format!("running; {killed}"));
        assert_eq!(state(&worker(WorkerState::Starting, 1)), format!("starting; {killed}"));
        let down = "down, will be tried again; lost 6 times, last it was killed by signal 9";
        assert_eq!(state(&worker(WorkerState::Down, 6)), down);
    }
}
