//! `gtctl trace`: captures the tape of a running daemon for some time, and writes it as text and for ui.perfetto.dev.
//!
//! During the capture events are only copied, so that none is lost while files are written. A second connection asks
//! for the status now and then, which tells names and memory: its answers may take long, and would keep the first from
//! reading.

use crate::arguments::{CAPTURED_EVENTS_MAX, TraceArguments, TraceFormat};
use crate::control::connect;
use crate::failure::{CommandFailure, Exit};
use crate::operations::{NamedTotal, named_totals, operations_table};
use crate::output::{CommandOutput, complain};
use crate::status::user;
use crate::stop_signals::StopSignals;
use gt_ops::event::{EventKind, LogLine, Subject};
use gt_protocol::{ProtocolError, StatusDocument};
use gt_tape::chrome::{self, MemorySample, TimelineNames};
use gt_tape::event_lines::{EventLines, LineCollector, write_line};
use gt_tape::source::{READ_EVERY, TapeObserver};
use gt_tape::timeline::{KnownRunning, Timeline, TimelineBuilder};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The interval of status requests during a capture.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// The operations that the text of the command shows.
const OPERATIONS_SHOWN: usize = 12;

/// The lines of a capture, and the statuses beside it.
struct Captured {
    lines: Vec<LogLine>,
    /// The lines of Python that issued the instructions, as far as programs share them.
    sources: EventLines,
    /// The beginning and the end on the tape's clock, nanoseconds.
    begin_ns: u64,
    end_ns: u64,
    /// The zero of the tape's clock on CLOCK_MONOTONIC, nanoseconds.
    tape_began_ns: i64,
    names: TimelineNames,
    memory: Vec<MemorySample>,
    running: Vec<KnownRunning>,
    copy_streams: Vec<usize>,
    /// Whether the daemon ended in the midst of it.
    daemon_ended: bool,
}

/// The outcome of a capture, for programs.
#[derive(Debug, Serialize)]
struct TraceSummary {
    seconds: f64,
    /// The zero of the times in the files, on CLOCK_MONOTONIC, nanoseconds.
    zero_monotonic_ns: i64,
    events: u64,
    instructions: u64,
    lost: u64,
    files: Vec<PathBuf>,
    operations: Vec<NamedTotal>,
}

/// Captures the tape of the daemon at `socket`, and writes the files.
///
/// # Errors
/// No daemon listens, this user may not read the tape, there is no such session, the daemon ends in the midst of it, or
/// a file cannot be written.
pub fn output(socket: &Path, wanted: &TraceArguments) -> Result<CommandOutput, CommandFailure> {
    std::fs::create_dir_all(&wanted.output).map_err(|error| unwritable(&wanted.output, &error))?;
    let captured = capture(socket, wanted).map_err(|error| CommandFailure::of(&error))?;
    let mut builder = TimelineBuilder::from(captured.begin_ns);
    captured.lines.iter().for_each(|line| builder.take(line));
    let timeline = builder.finish(captured.end_ns, &captured.running, &captured.copy_streams);
    let mut files = Vec::new();
    for (format, name) in [(TraceFormat::Text, "tape.log"), (TraceFormat::Perfetto, "trace.json")] {
        if wanted.format.is_some_and(|only| only != format) {
            continue;
        }
        let path = std::path::absolute(wanted.output.join(name)).unwrap_or_else(|_| wanted.output.join(name));
        let written = File::create(&path).and_then(|file| {
            let mut file = BufWriter::with_capacity(1 << 20, file);
            match format {
                TraceFormat::Text => write_text(&mut file, &captured)?,
                TraceFormat::Perfetto => {
                    chrome::write(&mut file, &timeline, &captured.names, &captured.memory, &captured.sources)?;
                }
            }
            file.flush()
        });
        written.map_err(|error| unwritable(&path, &error))?;
        files.push(path);
    }
    let seconds = (timeline.end_ns - timeline.begin_ns) as f64 / 1e9;
    let paths: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    if captured.daemon_ended {
        let text = format!(
            "the daemon ended {seconds:.1} s into the capture; its {} events until then are in {}",
            timeline.events,
            paths.join(" and ")
        );
        return Err(CommandFailure::new(Exit::Failed, text, "The daemon's log may say why: journalctl -u gtd"));
    }
    let operations = named_totals(timeline.totals.sorted(), &captured.names);
    let text = summary_text(&timeline, &paths, &operations);
    let Timeline { events, instructions, lost, .. } = timeline;
    let zero_monotonic_ns = captured.tape_began_ns;
    Ok(CommandOutput::new(
        text,
        &TraceSummary { seconds, zero_monotonic_ns, events, instructions, lost, files, operations },
    ))
}

/// The time of this machine's CLOCK_MONOTONIC, nanoseconds.
fn monotonic_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn unwritable(path: &Path, error: &std::io::Error) -> CommandFailure {
    let text = format!("{} cannot be written: {error}", path.display());
    CommandFailure::new(Exit::Failed, text, "Name a folder that you may write to: gtctl trace -o DIR.")
}

/// Reads the tape until the time is over, there are enough events, the user stops it, or the daemon ends.
fn capture(socket: &Path, wanted: &TraceArguments) -> gt_protocol::Result<Captured> {
    let daemon = connect(socket)?;
    let asked_ns = monotonic_ns();
    let first = gt_protocol::ask_status(&daemon.socket)?;
    let tape_began_ns = (asked_ns + monotonic_ns()) / 2 - first.tape_ns as i64;
    if let Some(session) = wanted.session {
        gt_protocol::ask_session(&daemon.socket, session)?;
    }
    let mut tape = TapeObserver::attach(&daemon.socket)?;
    let stop = StopSignals::block();
    let (is_over, mut has_left) = (AtomicBool::new(false), false);
    let begin_ns = first.tape_ns;
    let mut lines = Vec::new();
    let mut sources = LineCollector::default();
    // Events before the beginning tell what runs.
    let mut count = 0;
    let most = wanted.events.unwrap_or(CAPTURED_EVENTS_MAX);
    let samples = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample(socket, first, &is_over));
        let begun = Instant::now();
        complain(&format!("captures for {} s, or until Ctrl-C", wanted.seconds));
        let time = Duration::from_secs_f64(wanted.seconds);
        loop {
            let has_stopped = begun.elapsed() >= time || stop.have_come() || sampler.is_finished();
            tape.read_new(|line| {
                let is_wanted = match &line {
                    LogLine::Event(_, event) => wanted.session.is_none_or(|session| event.session == session),
                    _ => true,
                };
                has_left |= matches!(&line, LogLine::Event(_, event)
                    if event.kind == EventKind::Disconnect && wanted.session == Some(event.session));
                if is_wanted && count < most {
                    if let LogLine::Event(number, event) = &line {
                        let attach = |session| gt_protocol::attach_lines(&daemon.socket, session).ok();
                        sources.take(*number, event, attach);
                    }
                    count += u64::from(matches!(&line, LogLine::Event(_, event) if event.time_ns >= begin_ns));
                    lines.push(line);
                }
            });
            if has_stopped || has_left || count == most {
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
    let ended_early = count == most || samples.daemon_ended;
    let status_ns = samples.statuses.last().map_or(0, |status| status.tape_ns);
    let end_ns = if ended_early { last_ns.unwrap_or(status_ns) } else { status_ns.max(last_ns.unwrap_or(0)) };
    let captured = captured(lines, sources.finish(), begin_ns, end_ns.max(begin_ns), wanted.session, samples);
    Ok(Captured { tape_began_ns, ..captured })
}

/// Arranges what the statuses during a capture tell.
fn captured(
    lines: Vec<LogLine>,
    sources: EventLines,
    begin_ns: u64,
    end_ns: u64,
    session: Option<u64>,
    samples: Samples,
) -> Captured {
    let Samples { statuses, daemon_ended } = samples;
    let mut names = TimelineNames::default();
    for status in &statuses {
        names.workers = status.workers.iter().map(|worker| worker.name.clone()).collect();
        for found in &status.sessions {
            let describe = || {
                let name = found.name.as_deref().map(|name| format!("{name} of ")).unwrap_or_default();
                format!("{name}{}, process {}", user(found.uid, found.user.clone()), found.pid)
            };
            names.sessions.entry(found.id).or_insert_with(describe);
        }
    }
    let is_wanted = |id: u64| session.is_none_or(|session| session == id);
    let memory = statuses.iter().map(|status| MemorySample {
        time_ns: status.tape_ns,
        workers: status.workers.iter().map(|worker| worker.memory_bytes).collect(),
        sessions: status.sessions.iter().map(|of| (of.id, of.memory_bytes)).filter(|(id, _)| is_wanted(*id)).collect(),
    });
    let memory = memory.collect();
    let running = statuses.last().into_iter().flat_map(|status| {
        let of = |(worker, info): (usize, &gt_protocol::WorkerInfo)| {
            let running = info.running.as_ref().filter(|running| is_wanted(running.session))?;
            let subject = Subject::from_name(&running.step)?;
            let begin_ns = status.tape_ns.saturating_sub(running.since_ms.saturating_mul(1_000_000));
            Some(KnownRunning { worker, session: running.session, subject, begin_ns })
        };
        status.workers.iter().enumerate().filter_map(of).collect::<Vec<_>>()
    });
    let running = running.collect();
    let has_copy_stream = |(_, info): &(usize, &gt_protocol::WorkerInfo)| info.device.is_some();
    let workers = || statuses.last().into_iter().flat_map(|status| status.workers.iter().enumerate());
    let copy_streams = workers().filter(has_copy_stream).map(|(worker, _)| worker).collect();
    let tape_began_ns = 0;
    Captured { lines, sources, begin_ns, end_ns, tape_began_ns, names, memory, running, copy_streams, daemon_ended }
}

/// The statuses during a capture.
#[derive(Default)]
struct Samples {
    statuses: Vec<StatusDocument>,
    daemon_ended: bool,
}

/// Asks for the status until `is_over`, or until the daemon ends.
fn sample(socket: &Path, first: StatusDocument, is_over: &AtomicBool) -> Samples {
    let mut samples = Samples { statuses: vec![first], daemon_ended: false };
    let gone = |error: &ProtocolError| matches!(error, ProtocolError::HungUp | ProtocolError::Connect { .. });
    let mut daemon = None;
    loop {
        let ends = is_over.load(SeqCst);
        let asked = match &daemon {
            None => connect(socket).map(|connection| daemon = Some(connection)),
            Some(daemon) => gt_protocol::ask_status(&daemon.socket).map(|status| samples.statuses.push(status)),
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

fn write_text(out: &mut impl Write, captured: &Captured) -> std::io::Result<()> {
    let mut has_begun = false;
    for line in &captured.lines {
        has_begun |= match line {
            LogLine::Event(_, event) => event.time_ns >= captured.begin_ns,
            LogLine::Lost(_) => true,
            _ => false,
        };
        if has_begun {
            write_line(out, line, &captured.sources)?;
        }
    }
    Ok(())
}

fn summary_text(timeline: &Timeline, paths: &[String], operations: &[NamedTotal]) -> String {
    let Timeline { events, instructions, lost, .. } = timeline;
    let seconds = (timeline.end_ns - timeline.begin_ns) as f64 / 1e9;
    let issuing = timeline.sessions.values().filter(|lane| !lane.issued.is_empty()).count();
    let lost = if *lost == 0 { "no event lost".into() } else { format!("{lost} events lost") };
    let mut text =
        format!("{seconds:.1} s: {events} events, {instructions} instructions of {issuing} sessions; {lost}\n");
    for path in paths {
        let hint = if path.ends_with(".json") { "  (open it in https://ui.perfetto.dev)" } else { "" };
        text.push_str(&format!("{path}{hint}\n"));
    }
    if operations.is_empty() {
        return text;
    }
    text.push('\n');
    text + &operations_table(operations, OPERATIONS_SHOWN)
}
