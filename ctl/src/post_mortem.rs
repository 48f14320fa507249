//! `gtctl post-mortem`: what the daemon, a worker or a program was doing when it died, from the files of the flight
//! recorder.
//!
//! No daemon is asked: the recordings are files of memory, which outlive it. A user's daemons write to a folder that
//! only the user and root may read, as with the tape.

use crate::arguments::PostMortemArguments;
use crate::failure::{CommandFailure, Exit};
use crate::output::CommandOutput;
use crate::status::user;
use crate::table::{Table, bytes, seconds};
use crate::time::stamp;
use gt_ops::event::{Event, LogLine};
use gt_tape::event_lines::{line_text, write_line};
use gt_tape::recording::{
    DeadParty, FOLDER_ENV, FOLDER_PREFIX, FOLDERS, FlightRecording, RecordingError, files, folder,
};
use gt_tape::steps::StepTracker;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The kinds of queued steps that the text shows for a worker.
const QUEUED_KINDS_SHOWN: usize = 6;

/// A recording of a death, and its file.
struct Death {
    file: PathBuf,
    recording: FlightRecording,
}

/// The recordings of deaths, newest first, and a line for each file that is none.
struct Deaths {
    found: Vec<Death>,
    unreadable: Vec<String>,
}

/// Shows a recording, or lists all.
///
/// # Errors
/// There is no recording, none of the session, it is another user's, or the file that was named is none.
pub fn output(wanted: &PostMortemArguments) -> Result<CommandOutput, CommandFailure> {
    let Deaths { found, unreadable } = match &wanted.file {
        Some(file) => Deaths { found: vec![read_named(file)?], unreadable: Vec::new() },
        None => all_deaths()?,
    };
    if wanted.list {
        return Ok(list(&found, &unreadable));
    }
    let of_session = |death: &&Death| wanted.session.is_none_or(|session| has(&death.recording, session));
    let Some(death) = found.iter().find(of_session) else {
        let session = wanted.session.unwrap_or_default();
        let text = format!("none of the {} recordings has an event of session {session}", found.len());
        return Err(CommandFailure::new(Exit::NoSession, text, "gtctl post-mortem --list shows the recordings."));
    };
    if let Some(path) = &wanted.output {
        let written = write_log(path, &death.recording);
        written.map_err(|error| {
            let text = format!("{} cannot be written: {error}", path.display());
            CommandFailure::new(Exit::Failed, text, "Name a file in a folder that you may write to.")
        })?;
    }
    Ok(shown(death, wanted, &unreadable))
}

/// Whether any event, or the death, is of this session.
fn has(recording: &FlightRecording, session: u64) -> bool {
    let party = recording.header.death.as_ref().map(|death| &death.party);
    matches!(party, Some(DeadParty::Client { session: dead, .. }) if *dead == session)
        || recording.lines.iter().any(|line| matches!(line, LogLine::Event(_, event) if event.session == session))
}

fn read_named(file: &Path) -> Result<Death, CommandFailure> {
    match FlightRecording::read(file) {
        Ok(recording) => Ok(Death { file: file.into(), recording }),
        Err(RecordingError::Read(error)) if error.kind() == ErrorKind::PermissionDenied => {
            let text = format!("{} is another user's, and you may not read it", file.display());
            Err(CommandFailure::new(Exit::NotPermitted, text, "Ask an administrator, or try again with sudo."))
        }
        Err(error) => {
            let text = format!("{} cannot be shown: {error}", file.display());
            Err(CommandFailure::new(Exit::Failed, text, "gtctl post-mortem --list shows the recordings."))
        }
    }
}

/// The folders to look into: this user's; for root, everybody's.
fn folders() -> Vec<PathBuf> {
    let uid = nix::unistd::geteuid().as_raw();
    let own = folder(uid);
    if uid != 0 || std::env::var_os(FOLDER_ENV).is_some() {
        return vec![own];
    }
    let others = others_folders().into_iter().filter(|other| *other != own);
    std::iter::once(own.clone()).chain(others).collect()
}

fn others_folders() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(FOLDERS).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(FOLDER_PREFIX))
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    ours.map(|entry| entry.path()).collect()
}

fn all_deaths() -> Result<Deaths, CommandFailure> {
    let folders = folders();
    let mut deaths = Deaths { found: Vec::new(), unreadable: Vec::new() };
    for folder in &folders {
        let files = match files(folder) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => {
                let text = format!("the recordings in {} cannot be read: {error}", folder.display());
                return Err(CommandFailure::new(Exit::NotPermitted, text, "Try again with sudo."));
            }
        };
        for file in files {
            match FlightRecording::read(&file) {
                Ok(recording) if recording.is_open && recording.header.death.is_none() => {}
                Ok(recording) => deaths.found.push(Death { file, recording }),
                Err(error) => deaths.unreadable.push(format!("{}: {error}", file.display())),
            }
        }
    }
    deaths.found.sort_by(|a, b| died_s(&b.recording).total_cmp(&died_s(&a.recording)));
    if deaths.found.is_empty() {
        return Err(nothing(&folders, &deaths.unreadable));
    }
    Ok(deaths)
}

fn nothing(folders: &[PathBuf], unreadable: &[String]) -> CommandFailure {
    let own = folders[0].display();
    if let Some(first) = unreadable.first() {
        let text = format!("there is no recording, and this file is none: {first}");
        return CommandFailure::new(Exit::Failed, text, format!("Delete what is not GT's from {own}."));
    }
    let others: Vec<PathBuf> = others_folders().into_iter().filter(|other| !folders.contains(other)).collect();
    match others.first() {
        Some(other) if std::env::var_os(FOLDER_ENV).is_none() => CommandFailure::new(
            Exit::NotPermitted,
            format!(
                "there is no recording of a daemon of yours in {own}, and those in {} are another user's",
                other.display()
            ),
            "Recordings show every session: try again with sudo, or ask an administrator.",
        ),
        _ => CommandFailure::new(
            Exit::Failed,
            format!("there is no recording in {own}: nothing has died there since this machine was started"),
            "A daemon records while it runs; recordings are lost when the machine is switched off.",
        ),
    }
}

/// When it died, seconds since 1970.
fn died_s(recording: &FlightRecording) -> f64 {
    recording.header.began_s + recording.end_ns() as f64 / 1e9
}

/// The beginning of a sentence that says which program, worker or daemon died, and how.
fn what_died(recording: &FlightRecording) -> String {
    let header = &recording.header;
    match &header.death {
        None => format!("the daemon, process {}, was killed, or it crashed", header.daemon_process),
        Some(death) => match &death.party {
            DeadParty::Client { session, process, uid } => {
                format!(
                    "the program of session {session}, process {process} of {}, ended: {}",
                    user(*uid, None),
                    death.how
                )
            }
            DeadParty::Worker { worker } => format!("worker {} {}", worker_name(recording, *worker), death.how),
        },
    }
}

fn worker_name(recording: &FlightRecording, worker: u16) -> String {
    recording.header.workers.get(usize::from(worker)).cloned().unwrap_or_else(|| format!("{worker}"))
}

fn list(deaths: &[Death], unreadable: &[String]) -> CommandOutput {
    let mut table = Table::new(&[("died", false), ("what", false), ("events", true), ("file", false)]);
    for Death { file, recording } in deaths {
        let events = recording.lines.len().to_string();
        table.row(vec![stamp(died_s(recording)), what_died(recording), events, file.display().to_string()]);
    }
    let mut text = table.text();
    unreadable.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    let documents: Vec<Value> = deaths.iter().map(document).collect();
    CommandOutput::new(text, &json!({"recordings": documents, "unreadable": unreadable}))
}

fn document(death: &Death) -> Value {
    let Death { file, recording } = death;
    let header = &recording.header;
    json!({
        "file": file, "died": died_s(recording), "what": what_died(recording), "death": header.death,
        "daemon_process": header.daemon_process, "version": header.version, "events": recording.lines.len(),
    })
}

fn write_log(path: &Path, recording: &FlightRecording) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    recording.lines.iter().try_for_each(|line| write_line(&mut file, line, &recording.sources))?;
    file.flush()
}

/// A step that had not ended.
fn step_document(recording: &FlightRecording, sent: &Event, for_ns: Option<u64>) -> Value {
    json!({
        "worker": worker_name(recording, sent.worker), "operation": sent.subject.name(), "session": sent.session,
        "result": sent.result, "bytes": sent.bytes, "for_ns": for_ns,
        "out": sent.result_meta().map(|out| out.to_string()), "line": recording.source_of(sent),
    })
}

fn shown(death: &Death, wanted: &PostMortemArguments, unreadable: &[String]) -> CommandOutput {
    let recording = &death.recording;
    let is_wanted = |event: &Event| wanted.session.is_none_or(|session| event.session == session);
    let mut tracker = StepTracker::default();
    for line in &recording.lines {
        tracker.take(line);
    }
    let end_ns = recording.end_ns();
    let mut running = Table::new(&[
        ("worker", false),
        ("runs", false),
        ("session", true),
        ("tensor", true),
        ("result", false),
        ("bytes", true),
        ("for at least", true),
        ("steps behind it", false),
        ("issued at", false),
    ]);
    let (mut runs, mut queued) = (Vec::new(), Vec::new());
    for worker in 0..tracker.workers() {
        let Some((oldest, since_ns)) = tracker.running(worker).filter(|(step, _)| is_wanted(&step.sent)) else {
            continue;
        };
        let sent = &oldest.sent;
        let for_ns = end_ns.saturating_sub(since_ns);
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for step in tracker.outstanding(worker).skip(1).filter(|step| is_wanted(&step.sent)) {
            *kinds.entry(step.sent.subject.name()).or_default() += 1;
            queued.push(step_document(recording, &step.sent, None));
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut behind: Vec<String> =
            kinds.iter().take(QUEUED_KINDS_SHOWN).map(|(name, count)| format!("{count} {name}")).collect();
        if kinds.len() > QUEUED_KINDS_SHOWN {
            behind.push("others".into());
        }
        let behind = if behind.is_empty() { "none".into() } else { behind.join(", ") };
        running.row(vec![
            worker_name(recording, sent.worker),
            sent.subject.name().into(),
            sent.session.to_string(),
            format!("#{}", sent.result),
            sent.result_meta().map(|out| out.to_string()).unwrap_or_default(),
            bytes(sent.bytes),
            seconds(for_ns as f64 / 1e9),
            behind,
            recording.source_of(sent).unwrap_or_default().into(),
        ]);
        runs.push(step_document(recording, sent, Some(for_ns)));
    }
    let events: Vec<String> = recording
        .lines
        .iter()
        .rev()
        .filter(|line| matches!(line, LogLine::Event(_, event) if is_wanted(event)))
        .take(wanted.events)
        .map(|line| line_text(line, &recording.sources))
        .collect();
    // The time of a daemon's own death is not known, only that of its last event.
    let when = if recording.header.death.is_some() { "at" } else { "after" };
    let mut text = format!("{}, {when} {}\n", what_died(recording), stamp(died_s(recording)));
    let begun_ns = recording.lines.iter().find_map(|line| match line {
        LogLine::Event(_, event) => Some(event.time_ns),
        _ => None,
    });
    let span = seconds(end_ns.saturating_sub(begun_ns.unwrap_or(end_ns)) as f64 / 1e9);
    text.push_str(&format!("{} events of the {span} before are in {}\n", recording.lines.len(), death.file.display()));
    text.push('\n');
    text.push_str(&if runs.is_empty() { "no step had begun and not ended\n".into() } else { running.text() });
    text.push('\n');
    events.iter().rev().for_each(|line| text.push_str(&format!("{line}\n")));
    unreadable.iter().for_each(|line| text.push_str(&format!("{line}\n")));
    let mut document = document(death);
    document["running"] = json!(runs);
    document["queued"] = json!(queued);
    document["last_events"] = json!(events.iter().rev().collect::<Vec<_>>());
    document["unreadable"] = json!(unreadable);
    CommandOutput::new(text, &document)
}
