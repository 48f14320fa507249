//! `gtctl status`: the status document as tables.

use crate::table::{Table, bytes, seconds};
use gt_protocol::{SessionStatus, StatusDocument, WorkerInfo, WorkerState};
use nix::unistd::{Uid, User};
use std::time::SystemTime;

/// Seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// What a person is shown at the time `now`.
pub fn text(status: &StatusDocument, now: f64) -> String {
    let StatusDocument { daemon_version, pid, uptime_s, workers, sessions, .. } = status;
    let mut text = format!("gtd {daemon_version}, process {pid}, up {}\n\n", seconds(*uptime_s));
    let mut table = Table::new(&[
        ("WORKER", false),
        ("PROCESS", true),
        ("THREADS", true),
        ("MEMORY", true),
        ("LIMIT", true),
        ("STATE", false),
    ]);
    for worker in workers {
        let WorkerInfo { name, process, threads, memory_bytes, memory_bytes_limit, .. } = worker;
        let limit = if *memory_bytes_limit == 0 { "none".into() } else { bytes(*memory_bytes_limit) };
        let process = process.map_or_else(|| "-".into(), |process| process.to_string());
        table.row(vec![name.clone(), process, threads.to_string(), bytes(*memory_bytes), limit, state(worker)]);
    }
    text.push_str(&table.text());
    text.push('\n');
    if sessions.is_empty() {
        text.push_str("no sessions\n");
        return text;
    }
    let mut table = Table::new(&[
        ("SESSION", true),
        ("USER", false),
        ("PROCESS", true),
        ("NAME", false),
        ("TENSORS", true),
        ("BYTES", true),
        ("ARENAS", true),
        ("INSTRUCTIONS", true),
        ("QUEUED", true),
        ("FOR", true),
    ]);
    for session in sessions {
        let SessionStatus { id, name, pid, tensors, tensor_bytes, arena_bytes, instructions, queued, since, .. } =
            session;
        table.row(vec![
            id.to_string(),
            user(session),
            pid.to_string(),
            name.clone().unwrap_or_else(|| "-".into()),
            tensors.to_string(),
            bytes(*tensor_bytes),
            bytes(*arena_bytes),
            instructions.to_string(),
            queued.to_string(),
            seconds(now - since),
        ]);
    }
    text.push_str(&table.text());
    text
}

/// How a worker stands, and what became of it before.
fn state(worker: &WorkerInfo) -> String {
    let mut text = match worker.state {
        WorkerState::Running => "running",
        WorkerState::Starting => "starting",
        WorkerState::Down => "down, will be tried again",
        WorkerState::Other => "unknown",
    }
    .to_string();
    if let Some(end) = &worker.last_loss {
        text.push_str(&format!("; lost {}, last it {end}", times(worker.losses)));
    }
    text
}

fn times(count: u32) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}

/// The user's name. Looked up here: that can take long, and the daemon has no time.
fn user(session: &SessionStatus) -> String {
    let known = session.user.clone();
    let looked_up = || User::from_uid(Uid::from_raw(session.uid)).ok().flatten().map(|user| user.name);
    known.or_else(looked_up).unwrap_or_else(|| session.uid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            tensor_bytes: 4096,
            arena_bytes: 1 << 20,
            instructions: 100,
            since: 1000.0,
            ..SessionStatus::default()
        };
        let mut status = StatusDocument {
            daemon_version: "0.1.0".into(),
            pid: 42,
            uptime_s: 75.0,
            workers: vec![worker],
            ..StatusDocument::default()
        };
        let head = "gtd 0.1.0, process 42, up 1 min 15 s\n\n\
                    WORKER  PROCESS  THREADS    MEMORY    LIMIT  STATE\n\
                    cpu:0         -        2  12.0 MiB  8.0 GiB  running\n\n";
        assert_eq!(text(&status, 1060.0), format!("{head}no sessions\n"));
        status.sessions.push(session);
        let sessions = [
            "SESSION  USER  PROCESS  NAME    TENSORS    BYTES   ARENAS  INSTRUCTIONS  QUEUED        FOR\n",
            "      3  ada        77  digits       12  4.0 KiB  1.0 MiB           100       0  1 min 0 s\n",
        ];
        assert_eq!(text(&status, 1060.0), format!("{head}{}", sessions.concat()));
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
