//! The layout of a picture.

use crate::chrome::TimelineNames;
use crate::timeline::{SliceOutcome, Timeline, WorkSlice};
use crate::work_kind::WorkKind;
use gt_ops::event::StepTime;

/// A colour: red, green and blue.
pub type Rgb = [u8; 3];

/// A part of a picture. Lengths are in pixels at 100 dots per inch.
#[derive(Clone, Debug, PartialEq)]
pub enum DrawnShape {
    /// A filled rectangle: left, top, width, height, colour, and a description that a reader may be shown.
    Rectangle([f64; 4], Rgb, Option<String>),
    /// A straight line: both ends, and the colour.
    Segment([f64; 4], Rgb),
    /// A filled disc: centre, radius and colour.
    Disc([f64; 3], Rgb),
    /// A text of one line: left, baseline, colour and text.
    Label([f64; 2], Rgb, String),
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// The width, pixels.
    pub width: f64,
    /// The height, pixels.
    pub height: f64,
    /// The shapes, from back to front.
    pub shapes: Vec<DrawnShape>,
}

/// The width of a character of a label, pixels.
pub const CHARACTER_WIDTH: f64 = 8.0;
const WIDTH: f64 = 1600.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 20.0;
const COLUMNS: usize = (WIDTH - LEFT - RIGHT) as usize;
const SESSION_HEIGHT: f64 = 28.0;
const DISPATCHER_HEIGHT: f64 = 18.0;
const WORKER_HEIGHT: f64 = 44.0;
const UTILISATION_HEIGHT: f64 = 8.0;
const GAP: f64 = 10.0;
/// Lanes of sessions: those with the most instructions are shown.
const SESSIONS_MAX: usize = 32;
/// Lanes of workers.
const WORKERS_MAX: usize = 64;
/// The most arrows from an instruction to its execution, for the longest steps.
const ARROWS_MAX: usize = 40;
/// The most slices of a lane that are drawn one by one.
const SLICES_MAX: usize = 2 * COLUMNS;
/// Parts of a utilisation bar.
const UTILISATION_PARTS: usize = 100;

const BLACK: Rgb = [30, 30, 30];
const GREY: Rgb = [120, 120, 120];
const PALE: Rgb = [238, 238, 238];
const RED: Rgb = [200, 30, 30];

/// The layout of a lane of a worker.
struct Columns {
    begin_ns: u64,
    ns_per_column: f64,
}

impl Columns {
    fn of(timeline: &Timeline) -> Columns {
        let length_ns = (timeline.end_ns - timeline.begin_ns).max(1);
        Columns { begin_ns: timeline.begin_ns, ns_per_column: length_ns as f64 / COLUMNS as f64 }
    }

    fn x(&self, ns: u64) -> f64 {
        LEFT + ns.saturating_sub(self.begin_ns) as f64 / self.ns_per_column
    }

    fn index(&self, ns: u64) -> usize {
        ((self.x(ns) - LEFT) as usize).min(COLUMNS - 1)
    }
}

/// The description of a slice.
pub fn describe(slice: &WorkSlice) -> String {
    let time = match slice.time {
        StepTime::Measured(0) => "fused with the one before".into(),
        StepTime::Measured(ns) => format!("{} us", ns as f64 / 1e3),
        StepTime::Estimated(ns) => format!("about {} us", ns as f64 / 1e3),
    };
    let outcome = match slice.outcome {
        SliceOutcome::Done => "",
        SliceOutcome::Failed => ", failed",
        SliceOutcome::Running => ", still running",
    };
    format!("{} #{} of session {}: {time}{outcome}", slice.subject.name(), slice.result, slice.session)
}

/// Whether no step begins or ends in a stretch of time: the longest such stretch of a worker, as begin and end.
pub fn longest_gap(slices: &[WorkSlice], begin_ns: u64, end_ns: u64) -> (u64, u64) {
    let (mut busy_until_ns, mut longest) = (begin_ns, (begin_ns, begin_ns));
    let ends = slices.iter().map(|slice| (slice.begin_ns, slice.end_ns)).chain([(end_ns, end_ns)]);
    for (next_ns, until_ns) in ends {
        if next_ns > busy_until_ns && next_ns - busy_until_ns > longest.1 - longest.0 {
            longest = (busy_until_ns, next_ns);
        }
        busy_until_ns = busy_until_ns.max(until_ns);
    }
    longest
}

/// The time in which at least one of the slices runs, in each of `parts` equal stretches, from 0 to 1.
pub fn utilisation(slices: &[WorkSlice], begin_ns: u64, end_ns: u64, parts: usize) -> Vec<f64> {
    let mut busy = vec![0.0; parts];
    let part_ns = (end_ns - begin_ns).max(1) as f64 / parts as f64;
    let mut until_ns = begin_ns;
    for slice in slices {
        let (from_ns, to_ns) = (slice.begin_ns.max(until_ns), slice.end_ns);
        if to_ns <= from_ns {
            continue;
        }
        until_ns = to_ns;
        let [from, to] = [from_ns, to_ns].map(|ns| (ns - begin_ns) as f64 / part_ns);
        for (part, sum) in busy.iter_mut().enumerate().take(to.ceil() as usize).skip(from as usize) {
            *sum += (to.min(part as f64 + 1.0) - from.max(part as f64)).max(0.0);
        }
    }
    busy
}

/// A time as a text.
fn time_text(ns: f64) -> String {
    match ns {
        0.0..1e3 => format!("{ns:.0} ns"),
        0.0..1e6 => format!("{:.1} us", ns / 1e3),
        0.0..1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

fn fit(text: &str, width: f64) -> Option<String> {
    let room = (width / CHARACTER_WIDTH) as usize;
    (room >= 3).then(|| text.chars().take(room).collect())
}

/// The scene of a timeline with the title `title`.
pub fn scene(timeline: &Timeline, names: &TimelineNames, title: &str) -> Scene {
    let columns = Columns::of(timeline);
    let mut shapes = Vec::new();
    let length_ns = (timeline.end_ns - timeline.begin_ns) as f64;
    let lost = if timeline.lost > 0 { format!(", {} events lost", timeline.lost) } else { String::new() };
    let head = format!("{title}: {} events in {}{lost}", timeline.events, time_text(length_ns));
    shapes.push(DrawnShape::Label([10.0, 20.0], BLACK, head));
    let mut x = 10.0;
    for kind in WorkKind::ALL {
        shapes.push(DrawnShape::Rectangle([x, 30.0, 12.0, 12.0], kind.color(), None));
        shapes.push(DrawnShape::Label([x + 17.0, 41.0], BLACK, kind.name().into()));
        x += 17.0 + CHARACTER_WIDTH * (kind.name().len() as f64 + 2.0);
    }
    let mut y = 70.0;
    let top = y;
    let mut sessions: Vec<_> = timeline.sessions.iter().collect();
    sessions.sort_by_key(|(number, lane)| (std::cmp::Reverse(lane.issued.len()), **number));
    let more = sessions.len().saturating_sub(SESSIONS_MAX);
    sessions.truncate(SESSIONS_MAX);
    let mut issued = std::collections::HashMap::new();
    for (number, lane) in sessions {
        lane_background(&mut shapes, y, SESSION_HEIGHT, &names.session(*number));
        let middle = y + SESSION_HEIGHT / 2.0;
        for awaited in &lane.awaited {
            let [from, to] = [awaited.begin_ns, awaited.end_ns].map(|ns| columns.x(ns));
            if to - from >= 1.0 {
                let text = format!("waits for {}", awaited.subject.name());
                shapes.push(DrawnShape::Rectangle([from, middle + 8.0, to - from, 4.0], GREY, Some(text)));
            }
        }
        // One marker a column and kind: the one of the most bytes.
        let mut largest = std::collections::BTreeMap::new();
        for instruction in &lane.issued {
            issued.insert(instruction.number, (columns.x(instruction.time_ns), middle));
            let column = (columns.index(instruction.time_ns), WorkKind::of(instruction.subject));
            let bytes: &mut u64 = largest.entry(column).or_default();
            *bytes = instruction.bytes.max(*bytes);
        }
        for ((column, kind), bytes) in largest {
            // 64 bytes, the least, have a radius of 2 pixels, and 4 GiB one of 12.
            let radius = (2.0 + ((bytes.max(64) as f64) / 64.0).log2() * 10.0 / 26.0).min(12.0);
            shapes.push(DrawnShape::Disc([LEFT + column as f64, middle, radius], kind.color()));
        }
        y += SESSION_HEIGHT + GAP;
    }
    if more > 0 {
        shapes.push(DrawnShape::Label([10.0, y + 10.0], GREY, format!("and {more} sessions with fewer instructions")));
        y += 20.0;
    }
    lane_background(&mut shapes, y, DISPATCHER_HEIGHT, "dispatcher");
    let mut last_x = f64::NEG_INFINITY;
    for visit in &timeline.visits {
        let [from, to] = [visit.begin_ns, visit.end_ns].map(|ns| columns.x(ns));
        if from - last_x >= 1.0 || to - from >= 1.0 {
            let width = (to - from).max(1.0);
            shapes.push(DrawnShape::Rectangle([from, y, width, DISPATCHER_HEIGHT], GREY, None));
            last_x = from + width - 1.0;
        }
    }
    y += DISPATCHER_HEIGHT + GAP;
    let mut longest: Vec<(u64, u64, [f64; 2])> = Vec::new();
    for (number, lane) in timeline.workers.iter().enumerate().take(WORKERS_MAX) {
        let lanes = [(&lane.slices, names.worker(number)), (&lane.copies, format!("{} copies", names.worker(number)))];
        for (slices, name) in lanes.into_iter().filter(|(slices, name)| !slices.is_empty() || !name.ends_with("copies"))
        {
            lane_background(&mut shapes, y, WORKER_HEIGHT, &name);
            draw_slices(&mut shapes, slices, &columns, y);
            for slice in slices {
                if let Some(issue) = slice.issued {
                    longest.push((slice.end_ns - slice.begin_ns, issue, [columns.x(slice.begin_ns), y]));
                }
            }
            longest.sort_by_key(|(ns, ..)| std::cmp::Reverse(*ns));
            longest.truncate(ARROWS_MAX);
            for (time_ns, ..) in &lane.failures {
                let x = columns.x(*time_ns);
                shapes.push(DrawnShape::Segment([x, y - 3.0, x, y + WORKER_HEIGHT], RED));
            }
            draw_utilisation(&mut shapes, slices, timeline, y + WORKER_HEIGHT);
            y += WORKER_HEIGHT + UTILISATION_HEIGHT + GAP;
        }
    }
    for (_, issue, [x, y]) in longest {
        if let Some((from_x, from_y)) = issued.get(&issue) {
            shapes.push(DrawnShape::Segment([*from_x, *from_y, x, y], GREY));
            shapes.push(DrawnShape::Segment([x - 3.0, y - 5.0, x, y], GREY));
            shapes.push(DrawnShape::Segment([x + 3.0, y - 5.0, x, y], GREY));
        }
    }
    for (time_ns, lost) in &timeline.gaps {
        let x = columns.x(*time_ns);
        shapes.push(DrawnShape::Segment([x, top, x, y], RED));
        shapes.push(DrawnShape::Label([x + 3.0, top - 2.0], RED, format!("{lost} lost")));
    }
    draw_axis(&mut shapes, length_ns, y);
    Scene { width: WIDTH, height: y + 40.0, shapes }
}

fn lane_background(shapes: &mut Vec<DrawnShape>, y: f64, height: f64, name: &str) {
    shapes.push(DrawnShape::Rectangle([LEFT, y, COLUMNS as f64, height], PALE, None));
    let label = fit(name, LEFT - 15.0).unwrap_or_default();
    shapes.push(DrawnShape::Label([10.0, y + height / 2.0 + 4.0], BLACK, label));
}

fn draw_slices(shapes: &mut Vec<DrawnShape>, slices: &[WorkSlice], columns: &Columns, y: f64) {
    let mut wide: Vec<(&WorkSlice, f64)> = Vec::new();
    let mut busy_ns = vec![[0.0; WorkKind::ALL.len()]; COLUMNS];
    let mut around: Vec<u64> = Vec::new();
    let by_length = |slice: &WorkSlice| slice.end_ns - slice.begin_ns;
    // The shortest slice that is drawn by itself.
    let mut lengths: Vec<u64> = slices.iter().map(by_length).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let least_ns = lengths.get(SLICES_MAX).map_or(0, |ns| ns + 1).max(columns.ns_per_column as u64);
    for slice in slices {
        while around.last().is_some_and(|end_ns| *end_ns <= slice.begin_ns) {
            around.pop();
        }
        let depth = around.len();
        around.push(slice.end_ns);
        if by_length(slice) >= least_ns.max(1) {
            wide.push((slice, depth as f64));
        } else {
            let column = columns.index(slice.begin_ns);
            // A slice without a length still leaves a trace.
            busy_ns[column][WorkKind::of(slice.subject).index()] += by_length(slice).max(1) as f64;
        }
    }
    for (slice, depth) in wide {
        let [from, to] = [slice.begin_ns, slice.end_ns].map(|ns| columns.x(ns));
        let inset = (depth * 8.0).min(WORKER_HEIGHT - 8.0);
        let kind = WorkKind::of(slice.subject);
        let rectangle = [from, y + inset, (to - from - 0.4).max(0.6), WORKER_HEIGHT - inset];
        shapes.push(DrawnShape::Rectangle(rectangle, kind.color(), Some(describe(slice))));
        if let Some(text) = fit(&format!("{} #{}", slice.subject.name(), slice.result), to - from - 6.0) {
            shapes.push(DrawnShape::Label([from + 3.0, y + inset + 14.0], [255, 255, 255], text));
        }
    }
    for (column, kinds) in busy_ns.iter().enumerate() {
        let sum: f64 = kinds.iter().sum();
        if sum > 0.0 {
            let most = WorkKind::ALL.into_iter().max_by(|a, b| kinds[a.index()].total_cmp(&kinds[b.index()]));
            let height = WORKER_HEIGHT * (sum / columns.ns_per_column).clamp(0.1, 1.0);
            let rectangle = [LEFT + column as f64, y + WORKER_HEIGHT - height, 1.0, height];
            shapes.push(DrawnShape::Rectangle(rectangle, most.unwrap_or(WorkKind::Other).color(), None));
        }
    }
}

fn draw_utilisation(shapes: &mut Vec<DrawnShape>, slices: &[WorkSlice], timeline: &Timeline, y: f64) {
    let Timeline { begin_ns, end_ns, .. } = *timeline;
    let parts = utilisation(slices, begin_ns, end_ns, UTILISATION_PARTS);
    let width = COLUMNS as f64 / UTILISATION_PARTS as f64;
    for (part, busy) in parts.iter().enumerate() {
        let shade = (245.0 - 190.0 * busy.min(1.0)) as u8;
        let rectangle = [LEFT + part as f64 * width, y + 1.0, width, UTILISATION_HEIGHT - 2.0];
        shapes.push(DrawnShape::Rectangle(rectangle, [shade; 3], None));
    }
    let busy = 100.0 * parts.iter().sum::<f64>() / UTILISATION_PARTS as f64;
    let (from_ns, to_ns) = longest_gap(slices, begin_ns, end_ns);
    let text = format!("{busy:.0} % busy");
    shapes.push(DrawnShape::Label([10.0, y + 2.0], GREY, text));
    // The longest gap, if it is worth it.
    if to_ns - from_ns > (end_ns - begin_ns) / 50 {
        let columns = Columns::of(timeline);
        let (from, to) = (columns.x(from_ns), columns.x(to_ns));
        let middle = y - WORKER_HEIGHT / 2.0;
        shapes.push(DrawnShape::Segment([from, middle, to, middle], GREY));
        if let Some(text) = fit(&format!("idle {}", time_text((to_ns - from_ns) as f64)), to - from - 8.0) {
            shapes.push(DrawnShape::Label([from + 4.0, middle - 3.0], GREY, text));
        }
    }
}

fn draw_axis(shapes: &mut Vec<DrawnShape>, length_ns: f64, y: f64) {
    const TICKS: usize = 8;
    for tick in 0..=TICKS {
        let part = tick as f64 / TICKS as f64;
        let x = LEFT + part * COLUMNS as f64;
        shapes.push(DrawnShape::Segment([x, y, x, y + 6.0], GREY));
        let text = time_text(part * length_ns);
        let left = (x - text.len() as f64 * CHARACTER_WIDTH / 2.0).min(WIDTH - text.len() as f64 * CHARACTER_WIDTH);
        shapes.push(DrawnShape::Label([left, y + 20.0], GREY, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::{ended, sent};
    use crate::timeline::TimelineBuilder;
    use gt_ops::Op;

    fn timeline(steps: u64) -> Timeline {
        let mut builder = TimelineBuilder::default();
        for step in 0..steps {
            let op = if step % 2 == 0 { Op::Matmul } else { Op::Add };
            builder.take(&sent(step * 100, 0, 1, op, step + 1));
            builder.take(&ended(step * 100 + 50, 0, 1, op, step + 1, StepTime::Measured(50)));
        }
        builder.finish(steps * 100, &[], &[])
    }

    #[test]
    fn a_picture_of_many_events_has_no_more_shapes_than_pixels_need() {
        let few = scene(&timeline(20), &TimelineNames::default(), "few");
        let is_matmul =
            |shape: &&DrawnShape| matches!(shape, DrawnShape::Rectangle(_, _, Some(text)) if text.contains("matmul"));
        assert_eq!(few.shapes.iter().filter(is_matmul).count(), 10);
        let many = scene(&timeline(200_000), &TimelineNames::default(), "many");
        assert!(many.shapes.len() < 10 * COLUMNS, "{}", many.shapes.len());
        assert_eq!(many.height, few.height);
    }

    #[test]
    fn utilisation_and_gaps_are_those_of_the_slices() {
        let timeline = timeline(4);
        let slices = &timeline.workers[0].slices;
        assert_eq!(utilisation(slices, 0, 400, 4), [0.5; 4]);
        assert_eq!(utilisation(slices, 0, 400, 8), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
        assert_eq!(longest_gap(slices, 0, 1000), (350, 1000));
    }
}
