//! `gtctl explain`: measures for some time why a session is slow, and says so in sentences.
//!
//! The analysis is [`gt_tape::explanation`]; here its figures are gathered. `gt.debug.explain()` runs this command
//! beside its program, and they exchange lines of JSON. The program says when its block began and ended, which ends the
//! capture. The command then prints the tensors whose lines it wants to know, and the program answers with the lines.

use crate::arguments::{CAPTURED_EVENTS_MAX, ExplainArguments};
use crate::capture::{CaptureRequest, Captured, capture, description};
use crate::control::DaemonTarget;
use crate::failure::{CommandFailure, Exit};
use crate::output::CommandOutput;
use gt_ops::event::LogLine;
use gt_protocol::{SessionStatus, StatusDocument, WorkerState};
use gt_tape::explanation::{Circumstances, Explanation, HeldMemory, OtherSession, SHOWN_FROM, WorkerFigures, explain};
use gt_tape::timeline::TimelineBuilder;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, Write};
use std::sync::{Arc, OnceLock, mpsc};

/// When the program's block began and ended, on CLOCK_MONOTONIC, nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
struct ExplainedBlock {
    begin_ns: i64,
    end_ns: i64,
}

/// The tensors whose lines are wanted.
#[derive(Debug, Serialize)]
struct LineQuestion {
    tensors: Vec<u64>,
}

/// The lines of tensors.
#[derive(Debug, Default, Deserialize)]
struct LineAnswer {
    lines: HashMap<u64, String>,
}

fn failed(text: String) -> CommandFailure {
    CommandFailure::new(Exit::Failed, text, "gtctl explain SESSION explains a program from outside.")
}

/// Measures the session, and explains it.
///
/// # Errors
/// No daemon listens, there is no such session, this user may not see what it does, or the daemon ends meanwhile.
pub fn output(daemon: &DaemonTarget, wanted: &ExplainArguments) -> Result<CommandOutput, CommandFailure> {
    let block: Arc<OnceLock<Option<ExplainedBlock>>> = Arc::default();
    let (answers, answered) = mpsc::channel();
    if wanted.beside_program {
        let told = block.clone();
        // The thread ends with the program or with this process.
        let listens = move || {
            let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
            let _ = told.set(lines.next().and_then(|line| serde_json::from_str(&line).ok()));
            let _ = answers.send(lines.next());
        };
        let started = std::thread::Builder::new().name("gt-program".into()).spawn(listens);
        started.map_err(|error| failed(format!("no thread to listen to the program: {error}")))?;
    }
    explained(daemon, wanted, &block, &answered)
}

fn explained(
    daemon: &DaemonTarget,
    wanted: &ExplainArguments,
    block: &OnceLock<Option<ExplainedBlock>>,
    answers: &mpsc::Receiver<Option<String>>,
) -> Result<CommandOutput, CommandFailure> {
    let request = CaptureRequest {
        seconds: wanted.seconds,
        events_max: CAPTURED_EVENTS_MAX,
        kept_session: None,
        session: Some(wanted.session),
        has_ended: &|| block.get().is_some(),
    };
    let captured = capture(daemon, &request).map_err(|error| CommandFailure::of(&error))?;
    if captured.daemon_ended {
        let text = format!("the daemon at {daemon} ended while session {} was measured", wanted.session);
        return Err(CommandFailure::new(Exit::Failed, text, "The daemon's log may say why: journalctl -u gtd"));
    }
    let on_tape = |ns: i64| u64::try_from(ns - captured.tape_began_ns).unwrap_or_default();
    let block = block.get().copied().flatten();
    // The program issues nothing in the capture before and after its block; its clock and the tape's differ a little.
    let own_times = || {
        let times = captured.lines.iter().filter_map(|line| match line {
            LogLine::Event(_, event) if event.session == wanted.session => Some(event.time_ns),
            _ => None,
        });
        times.filter(|time_ns| *time_ns >= captured.begin_ns)
    };
    let begin_ns = block.map_or(captured.begin_ns, |block| {
        on_tape(block.begin_ns).min(own_times().next().unwrap_or(u64::MAX)).clamp(captured.begin_ns, captured.end_ns)
    });
    let end_ns = block.map_or(captured.end_ns, |block| {
        on_tape(block.end_ns).max(own_times().next_back().unwrap_or_default()).clamp(begin_ns, captured.end_ns)
    });
    let is_before_end = |line: &&LogLine| !matches!(line, LogLine::Event(_, event) if event.time_ns > end_ns);
    let mut builder = TimelineBuilder::from(begin_ns);
    captured.lines.iter().filter(is_before_end).for_each(|line| builder.take(line));
    let timeline = builder.finish(end_ns, &captured.running(), &captured.copy_streams());
    let mut about = circumstances(&captured, wanted.session);
    about.ends_with_sync = block.is_some();
    let shared = captured.lines_of_tensors(wanted.session);
    let mut unknown = BTreeSet::new();
    let mut explanation = explain(&timeline, &about, &mut |_, tensor| {
        let line = shared.get(&tensor).map(|line| (*line).to_owned());
        if line.is_none() {
            unknown.insert(tensor);
        }
        line
    });
    if wanted.beside_program {
        // A program on another machine shares no lines, and the lines of long ago were issued before the capture.
        let told = ask_lines(unknown.into_iter().collect(), answers)?;
        let line = |tensor| shared.get(&tensor).map(|line| (*line).to_owned()).or_else(|| told.get(&tensor).cloned());
        explanation = explain(&timeline, &about, &mut |_, tensor| line(tensor));
    }
    let known = captured.statuses.iter().flat_map(|status| &status.sessions).find(|found| found.id == wanted.session);
    let who = known.map(|found| format!(" ({})", description(found))).unwrap_or_default();
    Ok(CommandOutput::new(text(&explanation, &who), &explanation))
}

/// Asks the program for the lines of tensors.
fn ask_lines(
    tensors: Vec<u64>,
    answers: &mpsc::Receiver<Option<String>>,
) -> Result<HashMap<u64, String>, CommandFailure> {
    let gone = || failed("the program went away before it told its lines".into());
    let question = serde_json::to_string(&LineQuestion { tensors }).map_err(|error| failed(error.to_string()))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{question}").and_then(|()| out.flush()).map_err(|_| gone())?;
    let line = answers.recv().ok().flatten().ok_or_else(gone)?;
    let answer: LineAnswer = serde_json::from_str(&line).map_err(|error| failed(error.to_string()))?;
    Ok(answer.lines)
}

/// The circumstances of a session, from the statuses during a capture.
fn circumstances(captured: &Captured, session: u64) -> Circumstances {
    let own = |status: &StatusDocument| status.sessions.iter().find(|found| found.id == session).cloned();
    // A session that has ended is in the earlier statuses alone.
    let own = captured.statuses.iter().rev().find_map(own).unwrap_or_default();
    let samples = captured.statuses.len().max(1) as f64;
    let runs_others = |worker: usize| {
        let seen = captured.statuses.iter().filter_map(|status| status.workers.get(worker)?.running.as_ref());
        seen.filter(|running| running.session != session).count() as f64 / samples
    };
    let workers = captured.workers().iter().enumerate().map(|(number, worker)| WorkerFigures {
        name: worker.name.clone(),
        is_usable: worker.state == WorkerState::Running
            && own.devices.is_none_or(|devices| devices.numbers().any(|device| device as usize == number)),
        memory_bytes: worker.memory_bytes,
        memory_bytes_limit: worker.memory_bytes_limit,
        others: runs_others(number),
    });
    let mut others: HashMap<u64, &SessionStatus> = HashMap::new();
    for found in captured.statuses.iter().flat_map(|status| &status.sessions).filter(|found| found.id != session) {
        others.insert(found.id, found);
    }
    let is_others = |line: &LogLine| matches!(line, LogLine::Event(_, event) if event.session != session);
    let memory = |bytes, limit| HeldMemory { bytes, limit };
    let (first, last) = (captured.details.first(), captured.details.last());
    let failed = |detail: Option<&gt_protocol::SessionDetail>| detail.map_or(0, |detail| detail.out_of_memory);
    Circumstances {
        session,
        has_others: captured.lines.iter().any(is_others),
        workers: workers.collect(),
        others: others
            .values()
            .map(|found| OtherSession {
                description: format!("session {} ({})", found.id, description(found)),
                session: found.id,
                share: found.share,
                weight: found.weight,
            })
            .collect(),
        weight: own.weight,
        session_memory: memory(own.memory_bytes, own.memory_bytes_limit),
        user_memory: last
            .map_or(HeldMemory::default(), |detail| memory(detail.user.memory_bytes, detail.user.allowed.memory_bytes)),
        out_of_memory: failed(last).saturating_sub(failed(first)),
        ends_with_sync: false,
        wait_lines: captured.wait_lines(session),
    }
}

/// The sentences, those of much time first.
fn text(explanation: &Explanation, who: &str) -> String {
    let Explanation { session, seconds, instructions, lost, has_ended, findings } = explanation;
    let mut text = format!("session {session}{who}: {seconds:.2} s, {instructions} instructions\n");
    let shown = findings.iter().filter(|finding| finding.fraction.is_none_or(|fraction| fraction >= SHOWN_FROM));
    for (at, finding) in shown.enumerate() {
        text.push_str(&format!("\n{}. {}\n   {}\n", at + 1, finding.sentence, finding.hint));
    }
    if *has_ended {
        text.push_str("\nThe session ended meanwhile; this is about the time until then.\n");
    }
    if *lost > 0 {
        text.push_str(&format!("\n{lost} events were lost, so the figures are those of the rest.\n"));
    }
    text
}
