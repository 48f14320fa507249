//! The lines of `gtctl top`: coloured text as wide as the terminal, or a plain text.

use super::snapshot::{RunningRow, SessionRow, Snapshot, WorkerRow, age_s};
use crate::arguments::SessionOrder;
use crate::operations::operations_table;
use crate::table::{Table, bytes, seconds};
use gt_tape::work_kind::WorkKind;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::{Line, Span};
use std::cmp::Reverse;

/// How a snapshot is shown.
#[derive(Clone, Debug, Default)]
pub struct TopView {
    /// The order of sessions.
    pub sort: SessionOrder,
    /// Shows only the sessions whose user, name or process contains this.
    pub filter: String,
    /// The selected session.
    pub selected: Option<u64>,
    /// Whether colours are shown.
    pub has_colors: bool,
    /// Whether the screen is frozen.
    pub is_frozen: bool,
}

/// The sessions that are shown, in their order.
pub fn shown<'a>(snapshot: &'a Snapshot, view: &TopView) -> Vec<&'a SessionRow> {
    let matches = |row: &&SessionRow| {
        let status = &row.status;
        let texts = [status.user.clone(), status.name.clone(), Some(status.pid.to_string())];
        texts.into_iter().flatten().any(|text| text.contains(&view.filter))
    };
    let mut rows: Vec<&SessionRow> = snapshot.sessions.iter().filter(matches).collect();
    rows.sort_by(|a, b| {
        let by = match view.sort {
            SessionOrder::Share => b.status.share.total_cmp(&a.status.share),
            SessionOrder::Rate => b.rate.total_cmp(&a.rate),
            SessionOrder::Memory => Reverse(a.status.memory_bytes).cmp(&Reverse(b.status.memory_bytes)),
            SessionOrder::User => a.status.user.cmp(&b.status.user),
            SessionOrder::Session => std::cmp::Ordering::Equal,
        };
        by.then(a.status.id.cmp(&b.status.id))
    });
    rows
}

/// The first line: the daemon.
fn heading(snapshot: &Snapshot, view: &TopView) -> String {
    let Snapshot { daemon_version, pid, uptime_s, sessions, lost, no_tape, .. } = snapshot;
    let mut text = format!("gtd {daemon_version}  process {pid}  up {}  ", seconds(*uptime_s));
    text.push_str(&format!("{} sessions  by {}", sessions.len(), view.sort.name()));
    if !view.filter.is_empty() {
        text.push_str(&format!("  only \"{}\"", view.filter));
    }
    if view.is_frozen {
        text.push_str("  FROZEN");
    }
    if *lost > 0 {
        text.push_str(&format!("  {lost} events lost"));
    }
    if let Some(why) = no_tape {
        text.push_str(&format!("  no time by operation: {why}"));
    }
    text
}

fn doing(running: &RunningRow) -> String {
    format!("{} of {} for {}", running.operation, running.session, lasting(running.for_s))
}

fn lasting(s: f64) -> String {
    if s < 1.0 { format!("{:.0} ms", s * 1e3) } else { seconds(s) }
}

fn rate(per_second: f64) -> String {
    match per_second {
        1e6.. => format!("{:.1}M/s", per_second / 1e6),
        1e3.. => format!("{:.1}k/s", per_second / 1e3),
        _ => format!("{per_second:.0}/s"),
    }
}

/// The letter of a kind of work where there are no colours.
fn letter(kind: WorkKind) -> char {
    match kind {
        WorkKind::Matmul => 'm',
        WorkKind::Attention => 'a',
        WorkKind::Elementwise => 'e',
        WorkKind::Reduction => 'r',
        WorkKind::Collective => 'l',
        WorkKind::Copy => 'c',
        WorkKind::Other => 'o',
    }
}

fn style(kind: WorkKind, view: &TopView) -> Style {
    let [red, green, blue] = kind.color();
    if view.has_colors { Style::new().fg(Color::Rgb(red, green, blue)) } else { Style::new() }
}

/// A bar of `width` cells: each kind of work has as many as its part of the time, rounded so that their sum is right.
fn bar(row: &WorkerRow, width: usize, view: &TopView) -> Vec<Span<'static>> {
    let mut spans = Vec::new();
    let (mut sum, mut filled) = (0.0, 0);
    for kind in WorkKind::ALL {
        sum += row.busy.get(&kind).copied().unwrap_or_default();
        let end = ((sum * width as f64).round() as usize).min(width);
        let cell = if view.has_colors { '█' } else { letter(kind) };
        if end > filled {
            spans.push(Span::styled(cell.to_string().repeat(end - filled), style(kind, view)));
            filled = end;
        }
    }
    spans.push(Span::raw("·".repeat(width - filled)));
    spans
}

fn legend(view: &TopView) -> Line<'static> {
    let entry = |kind: WorkKind| {
        let sign = if view.has_colors { '■' } else { letter(kind) };
        [Span::styled(format!("{sign} "), style(kind, view)), Span::raw(format!("{}  ", kind.name()))]
    };
    Line::from(WorkKind::ALL.into_iter().flat_map(entry).collect::<Vec<_>>())
}

fn worker_line(row: &WorkerRow, name_width: usize, bar_width: usize, view: &TopView) -> Line<'static> {
    let mut spans = vec![Span::raw(format!("{:<name_width$} ", row.name))];
    spans.extend(bar(row, bar_width, view));
    let busy = row.idle.map_or_else(|| "  ? %".into(), |idle| format!("{:>3.0} %", (1.0 - idle) * 100.0));
    let queue = row.queue.map_or_else(|| "?".into(), |queue| queue.to_string());
    spans.push(Span::raw(format!(" {busy}  queue {queue:<4}  {:>9}", bytes(row.memory_bytes))));
    spans.push(Span::raw(format!(" peak {:>9}", bytes(row.memory_bytes_peak))));
    if let Some(running) = &row.running {
        spans.push(Span::raw(format!("  {}", doing(running))));
    }
    Line::from(spans)
}

/// The cells of a session's row, with whether each is right-aligned and its least width. The widths add up to 80.
const COLUMNS: [(&str, bool, usize); 9] = [
    ("SESSION", true, 7),
    ("USER", false, 8),
    ("PID", true, 7),
    ("NAME", false, 12),
    ("SHARE", true, 5),
    ("RATE", true, 8),
    ("MEMORY", true, 9),
    ("QUEUE", true, 5),
    ("RUNS", false, 11),
];

fn cells(row: &SessionRow) -> [String; 9] {
    let status = &row.status;
    [
        status.id.to_string(),
        status.user.clone().unwrap_or_default(),
        status.pid.to_string(),
        status.name.clone().unwrap_or_else(|| "-".into()),
        format!("{:.0} %", status.share * 100.0),
        rate(row.rate),
        bytes(status.memory_bytes),
        status.queued.to_string(),
        match &row.running {
            Some(running) => format!("{} {} on {}", running.operation, lasting(running.for_s), running.worker),
            None if status.queued > 0 => "waits".into(),
            None => "-".into(),
        },
    ]
}

/// A text cut or filled to `width` characters.
fn fit(text: &str, width: usize, is_right: bool) -> String {
    let length = text.chars().count();
    if length > width {
        let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
        cut.push('…');
        return cut;
    }
    if is_right { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn row_text(cells: &[String; 9], width: usize) -> String {
    let least: usize = COLUMNS.iter().map(|(.., least)| least + 1).sum::<usize>() - 1;
    // Names and what runs get the room that is left.
    let more = width.saturating_sub(least);
    let (more_name, more_runs) = (more / 3, more - more / 3);
    let fitted = cells.iter().zip(COLUMNS).map(|(cell, (column, is_right, least))| {
        let more = match column {
            "NAME" => more_name,
            "RUNS" => more_runs,
            _ => 0,
        };
        fit(cell, least + more, is_right)
    });
    fitted.collect::<Vec<_>>().join(" ")
}

/// The lines of the screen of `width` columns: the daemon, workers, legend and sessions.
pub fn lines(snapshot: &Snapshot, view: &TopView, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let strong = Style::new().add_modifier(Modifier::BOLD);
    let mut lines = vec![Line::styled(heading(snapshot, view), strong), Line::default()];
    let name_width = snapshot.workers.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    // The rest of the line takes 46 columns, and what runs 30 where there is room.
    let bar_width = width.saturating_sub(name_width + 46 + if width >= 120 { 34 } else { 0 }).clamp(8, 100);
    lines.extend(snapshot.workers.iter().map(|row| worker_line(row, name_width, bar_width, view)));
    lines.extend([legend(view), Line::default()]);
    let heads = COLUMNS.map(|(name, ..)| name.to_string());
    lines.push(Line::styled(row_text(&heads, width), strong));
    for row in shown(snapshot, view) {
        let is_selected = view.selected == Some(row.status.id);
        let style = if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        lines.push(Line::styled(row_text(&cells(row), width), style));
    }
    lines
}

/// The operations of a session, for its details.
pub fn operations(row: &SessionRow, most: usize) -> String {
    if row.operations.is_empty() { String::new() } else { operations_table(&row.operations, most) }
}

/// The plain text of a snapshot.
pub fn text(snapshot: &Snapshot, view: &TopView) -> String {
    const OPERATIONS_SHOWN: usize = 12;
    let mut text = heading(snapshot, view) + "\n\n";
    let mut table = Table::new(&[
        ("WORKER", false),
        ("BUSY", true),
        ("MOSTLY", false),
        ("QUEUE", true),
        ("MEMORY", true),
        ("PEAK", true),
        ("RUNS", false),
    ]);
    for row in &snapshot.workers {
        let most = row.busy.iter().max_by(|a, b| a.1.total_cmp(b.1)).filter(|(_, part)| **part >= 0.005);
        table.row(vec![
            row.name.clone(),
            row.idle.map_or_else(|| "?".into(), |idle| format!("{:.0} %", (1.0 - idle) * 100.0)),
            most.map_or_else(|| "-".into(), |(kind, part)| format!("{} {:.0} %", kind.name(), part * 100.0)),
            row.queue.map_or_else(|| "?".into(), |queue| queue.to_string()),
            bytes(row.memory_bytes),
            bytes(row.memory_bytes_peak),
            row.running.as_ref().map_or_else(|| "-".into(), doing),
        ]);
    }
    text.push_str(&table.text());
    text.push('\n');
    let columns = COLUMNS.map(|(name, is_right, _)| (name, is_right));
    let mut table = Table::new(&[&columns[..], &[("SINCE", true)]].concat());
    for row in shown(snapshot, view) {
        let since = format!("{} ago", seconds(age_s(&row.status)));
        table.row(cells(row).into_iter().chain([since]).collect());
    }
    text.push_str(&table.text());
    if !snapshot.operations.is_empty() {
        text.push('\n');
        text.push_str(&operations_table(&snapshot.operations, OPERATIONS_SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_protocol::SessionStatus;

    pub(crate) fn snapshot() -> Snapshot {
        let running = |operation: &str, for_s| {
            Some(RunningRow { worker: "cpu:0".into(), session: 7, operation: operation.into(), for_s })
        };
        let worker = WorkerRow {
            name: "cpu:0".into(),
            busy: [(WorkKind::Matmul, 0.5), (WorkKind::Elementwise, 0.25)].into(),
            idle: Some(0.25),
            queue: Some(12),
            memory_bytes: 3 << 20,
            memory_bytes_peak: 1 << 30,
            running: running("matmul", 75.0),
            ..WorkerRow::default()
        };
        let session = |id, user: &str, share| SessionRow {
            status: SessionStatus {
                id,
                user: Some(user.into()),
                name: Some(format!("a-name-that-is-longer-than-its-column-{id}")),
                pid: 4000 + id as u32,
                share,
                memory_bytes: 1 << (10 + id),
                ..SessionStatus::default()
            },
            rate: 12_345.0,
            running: if id == 7 { running("matmul", 75.0) } else { None },
            operations: Vec::new(),
        };
        let sessions = vec![session(3, "ana", 0.25), session(7, "bob", 0.75)];
        Snapshot { daemon_version: "0.1.0".into(), workers: vec![worker], sessions, ..Snapshot::default() }
    }

    fn plain(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_fit_the_terminal() {
        for width in [80, 200] {
            let lines = plain(&lines(&snapshot(), &TopView::default(), width));
            let table: Vec<&String> = lines.iter().skip_while(|line| !line.contains("SESSION")).collect();
            assert_eq!(table.len(), 3);
            assert!(table.iter().all(|line| line.chars().count() == usize::from(width)), "{table:?}");
            assert!(table[1].contains("bob") && table[1].contains("matmul") && table[2].contains("ana"), "{table:?}");
            let bar: String = lines[2].split(' ').nth(1).unwrap_or_default().into();
            let count = |letter| bar.matches(letter).count();
            assert_eq!((count('m'), count('·')), (bar.chars().count().div_ceil(2), count('e')), "{bar}");
        }
        let wide = plain(&lines(&snapshot(), &TopView::default(), 200));
        assert!(wide[2].ends_with("matmul of 7 for 1 min 15 s"), "{}", wide[2]);
        assert!(wide.iter().any(|line| line.contains("a-name-that-is-longer-than-its-column-7")));
    }

    #[test]
    fn sessions_are_sorted_and_filtered() {
        let snapshot = snapshot();
        let ids = |view: &TopView| shown(&snapshot, view).iter().map(|row| row.status.id).collect::<Vec<_>>();
        let by = |sort| TopView { sort, ..TopView::default() };
        assert_eq!(ids(&by(SessionOrder::Share)), [7, 3]);
        assert_eq!(ids(&by(SessionOrder::User)), [3, 7]);
        assert_eq!(ids(&by(SessionOrder::Memory)), [7, 3]);
        assert_eq!(ids(&TopView { filter: "ana".into(), ..TopView::default() }), [3]);
        assert_eq!(ids(&TopView { filter: "4007".into(), ..TopView::default() }), [7]);
        let round = (0..5).fold(SessionOrder::Share, |order, _| order.next());
        assert_eq!(round, SessionOrder::Share);
    }

    #[test]
    fn the_plain_text_has_the_same() {
        let text = text(&snapshot(), &TopView::default());
        assert!(
            text.contains("cpu:0   75 %  matmul 50 %     12  3.0 MiB  1.0 GiB  matmul of 7 for 1 min 15 s"),
            "{text}"
        );
        assert!(text.contains("matmul 1 min 15 s on cpu:0"), "{text}");
    }
}
