//! A timeline as a page that zooms and needs nothing from outside.

use super::scene::utilisation;
use super::svg::{escaped, hex};
use crate::chrome::TimelineNames;
use crate::timeline::{Timeline, WorkSlice};
use crate::work_kind::WorkKind;
use serde_json::{Value, json};
use std::io::Write;

/// The most slices in a page; of more, the longest are taken.
const SLICES_MAX: usize = 300_000;

const SCRIPT: &str = include_str!("timeline.js");

/// Writes a timeline as an HTML document with the title `title`. Returns the number of short slices left out.
///
/// # Errors
/// The writer's.
pub fn write(out: &mut impl Write, timeline: &Timeline, names: &TimelineNames, title: &str) -> std::io::Result<usize> {
    let length = |slice: &WorkSlice| slice.end_ns - slice.begin_ns;
    let all = || timeline.workers.iter().flat_map(|lane| lane.slices.iter().chain(&lane.copies));
    let mut lengths: Vec<u64> = all().map(length).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let least_ns = lengths.get(SLICES_MAX).map_or(0, |ns| ns + 1);
    let mut operations: Vec<&str> = Vec::new();
    let mut lanes = Vec::new();
    let mut lane = |name: String, slices: &[WorkSlice]| {
        let rows = slices.iter().filter(|slice| length(slice) >= least_ns).map(|slice| {
            let name = slice.subject.name();
            let operation = operations.iter().position(|known| *known == name).unwrap_or_else(|| {
                operations.push(name);
                operations.len() - 1
            });
            let kind = WorkKind::of(slice.subject).index();
            let begin_ns = slice.begin_ns - timeline.begin_ns;
            json!([begin_ns, length(slice), operation, kind, slice.session, slice.result])
        });
        let rows: Vec<Value> = rows.collect();
        let busy = utilisation(slices, timeline.begin_ns, timeline.end_ns, 1)[0];
        lanes.push(json!({"name": name, "busy": busy, "slices": rows}));
    };
    for (number, worker) in timeline.workers.iter().enumerate() {
        lane(names.worker(number), &worker.slices);
        if !worker.copies.is_empty() {
            lane(format!("{} copies", names.worker(number)), &worker.copies);
        }
    }
    let sessions: Vec<Value> = timeline
        .sessions
        .iter()
        .filter(|(_, lane)| !lane.issued.is_empty())
        .map(|(number, lane)| {
            let mut times: Vec<u64> = lane.issued.iter().map(|issued| issued.time_ns - timeline.begin_ns).collect();
            times.dedup();
            json!({"name": names.session(*number), "instructions": lane.issued.len(), "times": times})
        })
        .collect();
    let left_out = lengths.iter().filter(|ns| **ns < least_ns).count();
    let kinds: Vec<Value> =
        WorkKind::ALL.iter().map(|kind| json!({"name": kind.name(), "color": hex(kind.color())})).collect();
    let data = json!({
        "length": timeline.end_ns - timeline.begin_ns,
        "events": timeline.events,
        "lost": timeline.lost,
        "left_out": left_out,
        "kinds": kinds,
        "operations": operations,
        "sessions": sessions,
        "workers": lanes,
    });
    // A text within the data cannot end the script.
    let data = data.to_string().replace('<', "\\u003c");
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n<style>\n\
         body {{ font: 13px monospace; margin: 10px; background: #fff; color: #1e1e1e }}\n\
         canvas {{ width: 100%; display: block; cursor: grab }}\n#told {{ min-height: 1.5em; margin: 4px 0 }}\n\
         .kind {{ display: inline-block; margin-right: 14px }}\n\
         .kind i {{ display: inline-block; width: 11px; height: 11px; margin-right: 5px }}\n</style></head>\n<body>\n\
         <h3 id=\"title\"></h3><div id=\"kinds\"></div><div id=\"told\"></div><canvas id=\"picture\"></canvas>\n\
         <script>\nconst title = {};\nconst data = {data};\n{SCRIPT}</script></body></html>\n",
        escaped(title),
        Value::from(title).to_string().replace('<', "\\u003c"),
    )?;
    Ok(left_out)
}
