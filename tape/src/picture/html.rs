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
    let mut longest = Longest::of(all().map(length).collect());
    let mut operations: Vec<&str> = Vec::new();
    let mut lanes = Vec::new();
    let mut lane = |name: String, slices: &[WorkSlice]| {
        let rows = slices.iter().filter(|slice| longest.takes(length(slice))).map(|slice| {
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
    let left_out = all().count().saturating_sub(SLICES_MAX);
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

/// Chooses the longest of many slices, at most [`SLICES_MAX`].
struct Longest {
    /// The length of the shortest slices that are taken.
    least_ns: u64,
    /// The number of slices of that length, of which so many are taken, evenly from first to last, and the number asked
    /// about.
    equal: usize,
    equal_taken: usize,
    equal_seen: usize,
}

impl Longest {
    fn of(mut lengths: Vec<u64>) -> Longest {
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let least_ns = lengths.get(SLICES_MAX - 1).copied().unwrap_or(0);
        let longer = lengths.partition_point(|ns| *ns > least_ns);
        let equal = lengths.partition_point(|ns| *ns >= least_ns) - longer;
        Longest { least_ns, equal, equal_taken: equal.min(SLICES_MAX - longer), equal_seen: 0 }
    }

    /// Whether a slice of this length is taken. Each slice is asked about once.
    fn takes(&mut self, ns: u64) -> bool {
        if ns != self.least_ns {
            return ns > self.least_ns;
        }
        let taken_before = |seen: usize| seen * self.equal_taken / self.equal;
        let is_taken = taken_before(self.equal_seen + 1) > taken_before(self.equal_seen);
        self.equal_seen += 1;
        is_taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lengths: &[u64]) -> Vec<usize> {
        let mut longest = Longest::of(lengths.to_vec());
        (0..lengths.len()).filter(|at| longest.takes(lengths[*at])).collect()
    }

    #[test]
    fn the_longest_slices_are_taken_and_of_equal_ones_some_from_each_part() {
        let few = [3, 0, 0, 7];
        assert_eq!(taken(&few), [0, 1, 2, 3]);
        let mut many = vec![5; 2 * SLICES_MAX];
        let from_each = taken(&many);
        assert_eq!(from_each.len(), SLICES_MAX);
        assert!(from_each.windows(2).all(|pair| pair[1] - pair[0] == 2));
        (many[0], many[1], many[2]) = (9, 1, 6);
        let with_longer = taken(&many);
        assert_eq!((with_longer.len(), &with_longer[..2]), (SLICES_MAX, &[0, 2][..]));
    }
}
