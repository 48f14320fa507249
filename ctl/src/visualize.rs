//! `gtctl visualize`: draws an instruction log, or a capture of `gtctl trace`, as a picture.

use crate::arguments::VisualizeArguments;
use crate::failure::{CommandFailure, Exit};
use crate::output::CommandOutput;
use gt_tape::chrome::TimelineNames;
use gt_tape::picture::{html, png, scene, svg};
use gt_tape::source::{LogReading, read_log};
use gt_tape::timeline::{Timeline, TimelineBuilder};
use serde_json::json;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

/// The most lines of a log that are drawn.
const LINES_MAX: u64 = 8_000_000;

/// Draws the log.
///
/// # Errors
/// The file cannot be read or is no log, or the picture cannot be written or has an unknown kind.
pub fn output(wanted: &VisualizeArguments) -> Result<CommandOutput, CommandFailure> {
    let VisualizeArguments { file, output, dpi } = wanted;
    let kind = output.extension().and_then(|kind| kind.to_str()).unwrap_or_default().to_ascii_lowercase();
    if !["png", "svg", "html"].contains(&kind.as_str()) {
        let text = format!("{} is no name of a picture: it must end in .png, .svg or .html", output.display());
        return Err(CommandFailure::new(Exit::Usage, text, "Name the picture with -o, as in -o timeline.svg."));
    }
    let mut builder = TimelineBuilder::default();
    let read = File::open(file)
        .map_err(Into::into)
        .and_then(|opened| read_log(BufReader::with_capacity(1 << 20, opened), LINES_MAX, |line| builder.take(&line)));
    let reading = read.map_err(|error| {
        let text = format!("{} cannot be drawn: {error}", file.display());
        let next = "Name a file that GT_INSTRUCTION_LOG or gtctl trace wrote.";
        CommandFailure::new(Exit::Failed, text, next)
    })?;
    let timeline = builder.finish(0, &[], &[]);
    let names = TimelineNames::default();
    let title = file.file_name().map_or_else(|| file.display().to_string(), |name| name.to_string_lossy().into_owned());
    let left_out = draw(&timeline, &names, &title, output, &kind, *dpi).map_err(|error| {
        let text = format!("{} cannot be written: {error}", output.display());
        CommandFailure::new(Exit::Failed, text, "Name a file in a folder that you may write to.")
    })?;
    let Timeline { events, instructions, lost, .. } = &timeline;
    let seconds = (timeline.end_ns - timeline.begin_ns) as f64 / 1e9;
    let mut text = format!(
        "{}: {events} events in {seconds:.3} s, {} sessions, {} workers\n",
        output.display(),
        timeline.sessions.len(),
        timeline.workers.len()
    );
    let notes = notes(&reading, *lost, left_out);
    notes.iter().for_each(|note| text.push_str(&format!("{note}\n")));
    let document = json!({
        "file": output, "events": events, "instructions": instructions, "lost": lost, "seconds": seconds, "notes": notes
    });
    Ok(CommandOutput::new(text, &document))
}

fn draw(
    timeline: &Timeline,
    names: &TimelineNames,
    title: &str,
    output: &Path,
    kind: &str,
    dpi: u32,
) -> std::io::Result<usize> {
    let mut out = BufWriter::new(File::create(output)?);
    let left_out = match kind {
        "html" => html::write(&mut out, timeline, names, title)?,
        "svg" => svg::write(&mut out, &scene::scene(timeline, names, title)).map(|()| 0)?,
        _ => png::write(&mut out, &scene::scene(timeline, names, title), dpi.into()).map(|()| 0)?,
    };
    out.flush()?;
    Ok(left_out)
}

/// Sentences about irregularities of the log.
fn notes(reading: &LogReading, lost: u64, left_out: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if reading.daemons_more > 0 {
        notes.push("several daemons wrote the log: the last one is drawn".into());
    }
    if reading.is_cut_off {
        notes.push("the last line is cut off, and was left out".into());
    }
    if reading.unreadable > 0 {
        notes.push(format!("{} lines are none of a log's, and were left out", reading.unreadable));
    }
    if reading.has_more {
        notes.push(format!("the log is longer than {LINES_MAX} lines: the first ones are drawn"));
    }
    if lost > 0 {
        notes.push(format!("{lost} events are missing in the log"));
    }
    if left_out > 0 {
        notes.push(format!("the {left_out} shortest steps were left out"));
    }
    notes
}
