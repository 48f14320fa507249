//! `gtctl trace`: captures the tape of a running daemon for some time, and writes it as text and for ui.perfetto.dev.

use crate::arguments::{CAPTURED_EVENTS_MAX, TraceArguments, TraceFormat};
use crate::capture::{CaptureRequest, Captured, capture};
use crate::control::DaemonTarget;
use crate::failure::{CommandFailure, Exit};
use crate::operations::{NamedTotal, named_totals, operations_table};
use crate::output::CommandOutput;
use gt_ops::event::LogLine;
use gt_tape::chrome;
use gt_tape::event_lines::write_line;
use gt_tape::timeline::{Timeline, TimelineBuilder};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The operations that the text of the command shows.
const OPERATIONS_SHOWN: usize = 12;

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

/// Captures the tape of `daemon`, and writes the files.
///
/// # Errors
/// No daemon listens, this user may not read the tape, there is no such session, the daemon ends in the midst of it, or
/// a file cannot be written.
pub fn output(daemon: &DaemonTarget, wanted: &TraceArguments) -> Result<CommandOutput, CommandFailure> {
    std::fs::create_dir_all(&wanted.output).map_err(|error| unwritable(&wanted.output, &error))?;
    let request = CaptureRequest {
        seconds: wanted.seconds,
        events_max: wanted.events.unwrap_or(CAPTURED_EVENTS_MAX),
        kept_session: wanted.session,
        session: wanted.session,
        has_ended: &|| false,
    };
    let captured = capture(daemon, &request).map_err(|error| CommandFailure::of(&error))?;
    let (names, memory) = (captured.names(), captured.memory());
    let mut builder = TimelineBuilder::from(captured.begin_ns);
    captured.lines.iter().for_each(|line| builder.take(line));
    let timeline = builder.finish(captured.end_ns, &captured.running(), &captured.copy_streams());
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
                TraceFormat::Perfetto => chrome::write(&mut file, &timeline, &names, &memory, &captured.sources)?,
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
    let operations = named_totals(timeline.totals.sorted(), &names);
    let text = summary_text(&timeline, &paths, &operations);
    let Timeline { events, instructions, lost, .. } = timeline;
    let zero_monotonic_ns = captured.tape_began_ns;
    Ok(CommandOutput::new(
        text,
        &TraceSummary { seconds, zero_monotonic_ns, events, instructions, lost, files, operations },
    ))
}

fn unwritable(path: &Path, error: &std::io::Error) -> CommandFailure {
    let text = format!("{} cannot be written: {error}", path.display());
    CommandFailure::new(Exit::Failed, text, "Name a folder that you may write to: gtctl trace -o DIR.")
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
