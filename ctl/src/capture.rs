//! Captures the tape of a running daemon for some time, for `gtctl trace` and `gtctl explain`.
//!
//! During the capture events are only copied, so that none is lost while they are worked on. A second connection asks
//! for the status now and then, which tells names and memory: its answers may take long, and would keep the first from
//! reading.

use crate::control::DaemonTarget;
use crate::output::complain;
use crate::status::user;
use crate::stop_signals::StopSignals;
use gt_ops::event::{EventKind, LogLine, Subject};
use gt_protocol::{ProtocolError, RunningInfo, SessionDetail, SessionStatus, StatusDocument, WorkerInfo};
use gt_tape::chrome::{MemorySample, TimelineNames};
use gt_tape::event_lines::{EventLines, LineCollector};
use gt_tape::source::{READ_EVERY, TapeObserver};
use gt_tape::timeline::KnownRunning;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A copy of the tape is read until nothing has come from it for so long.
const QUIET_AFTER: Duration = Duration::from_millis(100);
/// The longest wait for the rest of a copy.
const REST_MAX: Duration = Duration::from_secs(1);
/// The interval of status requests during a capture.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);

/// The parts of a capture that its command chooses.
pub struct CaptureRequest<'a> {
    /// The length, seconds.
    pub seconds: f64,
    /// The most events.
    pub events_max: u64,
    /// Only the events of this session are kept; none for those of all.
    pub kept_session: Option<u64>,
    /// The session that is asked for: the capture ends with it, and its user may see its events.
    pub session: Option<u64>,
    /// Whether the capture is to end for another reason.
    pub has_ended: &'a (dyn Fn() -> bool + Sync),
}

/// The lines of a capture, and the statuses beside it.
pub struct Captured {
    /// The lines, with some from before the beginning, which tell what runs.
    pub lines: Vec<LogLine>,
    /// The lines of Python that issued the instructions, as far as programs share them.
    pub sources: EventLines,
    /// The beginning on the tape's clock, nanoseconds.
    pub begin_ns: u64,
    /// The end.
    pub end_ns: u64,
    /// The zero of the tape's clock on CLOCK_MONOTONIC, nanoseconds.
    pub tape_began_ns: i64,
    /// The statuses, the first from before the beginning.
    pub statuses: Vec<StatusDocument>,
    /// The details of the session that was asked for, at the beginning and, if it is still there, at the end.
    pub details: Vec<SessionDetail>,
    /// The session whose events were kept; none for all.
    kept_session: Option<u64>,
    /// Whether the daemon ended in the midst of it.
    pub daemon_ended: bool,
}

/// Describes a session: `digits of ana, process 7`.
pub fn description(session: &SessionStatus) -> String {
    let name = session.name.as_deref().map(|name| format!("{name} of ")).unwrap_or_default();
    format!("{name}{}, process {}", user(session.uid, session.user.clone()), session.pid)
}

/// The time of this machine's CLOCK_MONOTONIC, nanoseconds.
fn monotonic_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Reads the tape until the time is over, there are enough events, the user stops it, or the daemon ends.
///
/// # Errors
/// No daemon listens, this user may not read the tape, or there is no such session.
pub fn capture(daemon: &DaemonTarget, wanted: &CaptureRequest<'_>) -> gt_protocol::Result<Captured> {
    // Before the threads of a connection by TCP begin, which would take the signals.
    let stop = StopSignals::block();
    let connection = daemon.connect()?;
    let asked_ns = monotonic_ns();
    let first = gt_protocol::ask_status(&connection.socket)?;
    let tape_began_ns = (asked_ns + monotonic_ns()) / 2 - first.tape_ns as i64;
    let mut details = Vec::new();
    if let Some(session) = wanted.session {
        details.push(gt_protocol::ask_session(&connection.socket, session)?);
    }
    let mut tape = TapeObserver::attach(&connection.socket, wanted.session)?;
    let (is_over, mut session_ended) = (AtomicBool::new(false), false);
    let begin_ns = first.tape_ns;
    let (mut lines, mut sources) = (Vec::new(), LineCollector::default());
    // Events before the beginning tell what runs.
    let (mut count, most) = (0, wanted.events_max);
    let samples = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(daemon, first, &is_over));
        let begun = Instant::now();
        complain(&format!("captures for {} s, or until Ctrl-C", wanted.seconds));
        let time = Duration::from_secs_f64(wanted.seconds);
        let (mut stopped, mut came) = (None, begun);
        loop {
            if begun.elapsed() >= time || stop.have_come() || sampler.is_finished() || (wanted.has_ended)() {
                stopped.get_or_insert_with(Instant::now);
            }
            let mut any = false;
            tape.read_new(|line| {
                any = true;
                let is_wanted = match &line {
                    LogLine::Event(_, event) => wanted.kept_session.is_none_or(|session| event.session == session),
                    _ => true,
                };
                session_ended |= matches!(&line, LogLine::Event(_, event)
                    if event.kind == EventKind::Disconnect && wanted.session == Some(event.session));
                if is_wanted && count < most {
                    if let LogLine::Event(number, event) = &line {
                        let attach = |session| gt_protocol::attach_lines(&connection.socket, session).ok();
                        sources.take(*number, event, attach);
                    }
                    count += u64::from(matches!(&line, LogLine::Event(_, event) if event.time_ns >= begin_ns));
                    lines.push(line);
                }
            });
            if any {
                came = Instant::now();
            }
            let is_quiet = |stopped: Instant| {
                !tape.is_copy() || came.max(stopped).elapsed() >= QUIET_AFTER || stopped.elapsed() >= REST_MAX
            };
            if session_ended || count == most || stopped.is_some_and(is_quiet) {
                break;
            }
            std::thread::sleep(READ_EVERY);
        }
        is_over.store(true, SeqCst);
        sampler.thread().unpark();
        sampler.join().unwrap_or_default()
    });
    let last_ns = lines.iter().rev().find_map(|line| match line {
        LogLine::Event(_, event) => Some(event.time_ns),
        _ => None,
    });
    // A session that has ended meanwhile has no details.
    details.extend(wanted.session.and_then(|session| gt_protocol::ask_session(&connection.socket, session).ok()));
    let Samples { statuses, daemon_ended } = samples;
    let ended_early = count == most || daemon_ended;
    let status_ns = statuses.last().map_or(0, |status| status.tape_ns);
    let end_ns = if ended_early { last_ns.unwrap_or(status_ns) } else { status_ns.max(last_ns.unwrap_or(0)) };
    let (end_ns, kept_session) = (end_ns.max(begin_ns), wanted.kept_session);
    let sources = sources.finish();
    Ok(Captured { lines, sources, begin_ns, end_ns, tape_began_ns, statuses, details, kept_session, daemon_ended })
}

impl Captured {
    /// The lines that issued the tensors of `session`, as far as they are known.
    pub fn lines_of_tensors(&self, session: u64) -> HashMap<u64, &str> {
        let issued = self.lines.iter().filter_map(|line| match line {
            LogLine::Event(number, event) if event.session == session && event.subject != Subject::Fetch => {
                Some((event.result, self.sources.line(*number)?))
            }
            _ => None,
        });
        issued.collect()
    }

    /// The lines where the program of `session` waits for values, by the number of the fetch's event, as far as they
    /// are known.
    pub fn wait_lines(&self, session: u64) -> HashMap<u64, String> {
        let fetches = self.lines.iter().filter_map(|line| match line {
            LogLine::Event(number, event)
                if (event.kind, event.subject, event.session) == (EventKind::Recv, Subject::Fetch, session) =>
            {
                Some((*number, self.sources.line(*number)?.to_owned()))
            }
            _ => None,
        });
        fetches.collect()
    }

    fn is_kept(&self, session: u64) -> bool {
        self.kept_session.is_none_or(|kept| kept == session)
    }

    /// The names of workers and sessions.
    pub fn names(&self) -> TimelineNames {
        let mut names = TimelineNames::default();
        for status in &self.statuses {
            names.workers = status.workers.iter().map(|worker| worker.name.clone()).collect();
            for found in &status.sessions {
                names.sessions.entry(found.id).or_insert_with(|| description(found));
            }
        }
        names
    }

    /// The memory of workers and sessions.
    pub fn memory(&self) -> Vec<MemorySample> {
        let sessions = |status: &StatusDocument| {
            let held = status.sessions.iter().map(|of| (of.id, of.memory_bytes));
            held.filter(|(id, _)| self.is_kept(*id)).collect()
        };
        let sample = |status: &StatusDocument| MemorySample {
            time_ns: status.tape_ns,
            workers: status.workers.iter().map(|worker| worker.memory_bytes).collect(),
            sessions: sessions(status),
        };
        self.statuses.iter().map(sample).collect()
    }

    /// The workers at the end.
    pub fn workers(&self) -> &[WorkerInfo] {
        self.statuses.last().map_or(&[], |status| &status.workers)
    }

    /// The steps that workers ran at the end.
    pub fn running(&self) -> Vec<KnownRunning> {
        let Some(status) = self.statuses.last() else { return Vec::new() };
        let of = |(worker, info): (usize, &WorkerInfo)| {
            let RunningInfo { session, step, since_ms } = info.running.as_ref()?;
            let begin_ns = status.tape_ns.saturating_sub(since_ms.saturating_mul(1_000_000));
            let subject = Subject::from_name(step).filter(|_| self.is_kept(*session))?;
            Some(KnownRunning { worker, session: *session, subject, begin_ns })
        };
        status.workers.iter().enumerate().filter_map(of).collect()
    }

    /// The workers whose uploads and fetches have a stream of their own.
    pub fn copy_streams(&self) -> Vec<usize> {
        let devices = self.workers().iter().enumerate().filter(|(_, worker)| worker.device.is_some());
        devices.map(|(worker, _)| worker).collect()
    }
}

/// The statuses during a capture.
#[derive(Default)]
struct Samples {
    statuses: Vec<StatusDocument>,
    daemon_ended: bool,
}

/// Asks for the status until `is_over`, or until the daemon ends.
fn sample(daemon: &DaemonTarget, first: StatusDocument, is_over: &AtomicBool) -> Samples {
    let mut samples = Samples { statuses: vec![first], daemon_ended: false };
    let gone = |error: &ProtocolError| {
        matches!(error, ProtocolError::HungUp | ProtocolError::Connect { .. } | ProtocolError::Tcp(_))
    };
    let mut connection = None;
    loop {
        let ends = is_over.load(SeqCst);
        let asked = match &connection {
            None => daemon.connect().map(|connected| connection = Some(connected)),
            Some(open) => gt_protocol::ask_status(&open.socket).map(|status| samples.statuses.push(status)),
        };
        // Other failures, such as too many connections, may pass.
        if asked.is_err_and(|error| gone(&error)) {
            samples.daemon_ended = true;
            return samples;
        }
        if ends {
            return samples;
        }
        std::thread::park_timeout(SAMPLE_EVERY);
    }
}
