//! The reasons why a program is slow, from a [`Timeline`]: findings in the order of the time that they cost.
//!
//! Each instant of the interval counts for one finding, so their fractions add up to 1. While a step of the session
//! runs, that is computing, a move between workers, or one worker that computes alone while others idle. While none
//! runs, the session waits for the steps of others, for the dispatcher, or for its own program, which issues nothing.
//!
//! A program that waits for a value cannot issue meanwhile, and the workers idle while it starts to issue again. If it
//! did not wait, issuing would go on while the workers compute. So a wait costs the time in which nothing runs during
//! it, [`RESTART_NS_MAX`] at most after it, and of the time in which a step runs meanwhile as much as the workers idle
//! later for want of instructions.

use crate::spans::Spans;
use crate::timeline::{AwaitedInstruction, IssuedInstruction, SliceOutcome, Timeline, WorkSlice};
use gt_ops::event::Subject;
use gt_protocol::bytes_text;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The time that a completion takes to reach the program, and the program's next instruction to reach the dispatcher,
/// at most. A longer pause after a wait is the program's own work.
pub const RESTART_NS_MAX: u64 = 100_000;
/// A visit with at least this many instructions found them waiting: the program is ahead of the dispatcher.
const BACKLOG_INSTRUCTIONS: u32 = 32;
/// The most lines that are looked up for one finding: of more, those that took longest.
const LOOKUPS_MAX: usize = 4096;
/// The lines, operations, tensors or sessions that one finding names.
const NAMED_MAX: usize = 3;
/// The part of a limit of memory from which on it is nearly full.
const NEARLY_FULL: f64 = 0.9;
/// Findings of a smaller part of the time are left out of the text.
pub const SHOWN_FROM: f64 = 0.01;

/// A reason why a program takes the time that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowdownKind {
    /// Nothing was issued and nothing ran.
    Idle,
    /// The workers wait for instructions.
    Issuing,
    /// The workers wait for the daemon's dispatcher.
    Dispatcher,
    /// The program waits for values before it issues more.
    Fetch,
    /// One worker computes while others idle.
    OneWorker,
    /// Workers exchange data.
    Moves,
    /// The workers run other sessions' steps.
    Others,
    /// Memory is nearly full, or was.
    Memory,
    /// The workers compute.
    Operations,
}

/// One reason, with its figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowdownFinding {
    /// The kind.
    pub kind: SlowdownKind,
    /// The part of the time, from 0 to 1; none for memory, which takes none by itself.
    pub fraction: Option<f64>,
    /// The sentence that says the reason.
    pub sentence: String,
    /// The advice.
    pub hint: String,
    /// The figures of the sentence, for programs.
    pub figures: Map<String, Value>,
}

/// The findings about a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The session.
    pub session: u64,
    /// The time that they are about, seconds.
    pub seconds: f64,
    /// The instructions that the session issued in it.
    pub instructions: u64,
    /// Events that are missing, of all sessions.
    pub lost: u64,
    /// Whether the session ended in it.
    pub has_ended: bool,
    /// The findings, the most important first.
    pub findings: Vec<SlowdownFinding>,
}

/// A worker, as the daemon's status shows it.
#[derive(Clone, Debug, Default)]
pub struct WorkerFigures {
    /// The name.
    pub name: String,
    /// Whether the session may use it.
    pub is_usable: bool,
    /// Memory of all tensors there, bytes.
    pub memory_bytes: u64,
    /// The limit of that, bytes; 0 for none.
    pub memory_bytes_limit: u64,
    /// The part of the time in which it was seen to run another session's step, from 0 to 1.
    pub others: f64,
}

/// Another session.
#[derive(Clone, Debug, Default)]
pub struct OtherSession {
    /// Its description: `session 7 (digits) of ana`.
    pub description: String,
    /// The number.
    pub session: u64,
    /// Its part of the devices' time, from 0 to 1.
    pub share: f64,
    /// Its user's weight.
    pub weight: f64,
}

/// Memory that is held, and its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldMemory {
    /// Bytes held.
    pub bytes: u64,
    /// The limit, bytes; 0 for none.
    pub limit: u64,
}

/// The circumstances of a session, from the daemon's status.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// The session.
    pub session: u64,
    /// Whether the timeline has the steps of other sessions too.
    pub has_others: bool,
    /// All workers, by number.
    pub workers: Vec<WorkerFigures>,
    /// The other sessions.
    pub others: Vec<OtherSession>,
    /// The weight of the session's user.
    pub weight: f64,
    /// The session's memory.
    pub session_memory: HeldMemory,
    /// The memory of all sessions of its user.
    pub user_memory: HeldMemory,
    /// Allocations of the session that failed in the interval.
    pub out_of_memory: u64,
    /// Whether the last sync is not the program's own, but ends the measurement.
    pub ends_with_sync: bool,
    /// The lines where the program waits for values, by the number of the fetch's event, as far as they are known.
    pub wait_lines: HashMap<u64, String>,
}

/// The line of the program that issued an instruction of a session, by its tensor; none if it is not known.
pub type LineLookup<'a> = dyn FnMut(u64, u64) -> Option<String> + 'a;

/// The session's part of a timeline, as sets of times.
struct SessionTimes {
    whole: Spans,
    /// A step of the session runs that is no move, by worker.
    computes: Vec<Spans>,
    /// A step of the session runs, by worker.
    runs: Vec<Spans>,
    /// A step of any session runs, by worker.
    busy: Vec<Spans>,
    /// Another session's step runs at a worker of this session.
    others: Spans,
    /// When such steps ended that took longer than [`RESTART_NS_MAX`].
    others_ended: Vec<u64>,
    /// The program waits.
    awaited: Spans,
    /// An instruction has been read, and its step has not begun.
    outstanding: Spans,
    /// The dispatcher has left instructions of the session unread.
    backlog: Spans,
    /// When each instruction was read that does not only free tensors, and whether the program waits for it.
    issued: Vec<(u64, bool)>,
}

fn union(sets: &[Spans]) -> Spans {
    Spans::of(sets.iter().flat_map(|set| set.stretches()).copied().collect())
}

/// Why the session took the time that it took.
pub fn explain(timeline: &Timeline, about: &Circumstances, line: &mut LineLookup<'_>) -> Explanation {
    let session = about.session;
    let lane = timeline.sessions.get(&session);
    let connected_ns = lane.and_then(|lane| lane.connected_ns).unwrap_or_default();
    let ended_ns = lane.and_then(|lane| lane.disconnected_ns);
    let begin_ns = timeline.begin_ns.max(connected_ns);
    let end_ns = ended_ns.unwrap_or(timeline.end_ns).max(begin_ns);
    let instructions = lane.map_or(0, |lane| lane.issued.len() as u64);
    let mut findings = Vec::new();
    if end_ns > begin_ns {
        let times = SessionTimes::of(timeline, about, begin_ns, end_ns);
        let costs = SlowdownCosts::of(&times, about);
        let mut report = FindingWriter { timeline, about, times: &times, costs: &costs, line, findings: Vec::new() };
        report.write(instructions);
        findings = report.findings;
    }
    findings.extend(memory(about));
    // Allocations that fail stop a program, so they come first; memory that is only nearly full comes last.
    let importance = |finding: &SlowdownFinding| match finding.fraction {
        Some(fraction) => fraction,
        None if about.out_of_memory > 0 => f64::INFINITY,
        None => -1.0,
    };
    findings.sort_by(|a, b| importance(b).total_cmp(&importance(a)));
    Explanation {
        session,
        seconds: (end_ns - begin_ns) as f64 / 1e9,
        instructions,
        lost: timeline.lost,
        has_ended: ended_ns.is_some(),
        findings,
    }
}

fn of_session(timeline: &Timeline, session: u64) -> impl Iterator<Item = (usize, &WorkSlice)> {
    let all = timeline
        .workers
        .iter()
        .enumerate()
        .flat_map(|(worker, lane)| lane.slices.iter().chain(&lane.copies).map(move |slice| (worker, slice)));
    all.filter(move |(_, slice)| slice.session == session)
}

impl SessionTimes {
    fn of(timeline: &Timeline, about: &Circumstances, begin_ns: u64, end_ns: u64) -> SessionTimes {
        let session = about.session;
        let whole = Spans::one(begin_ns, end_ns);
        let within = |stretches: Vec<(u64, u64)>| Spans::of(stretches).and(&whole);
        let count = timeline.workers.len().max(about.workers.len());
        let slices = |worker: usize| {
            let lane = timeline.workers.get(worker);
            lane.into_iter().flat_map(|lane| lane.slices.iter().chain(&lane.copies))
        };
        let span = |slice: &WorkSlice| (slice.begin_ns, slice.end_ns);
        let at = |worker: usize, counts: &dyn Fn(&WorkSlice) -> bool| {
            within(slices(worker).filter(|slice| counts(slice)).map(span).collect())
        };
        let by_worker = |counts: &dyn Fn(&WorkSlice) -> bool| (0..count).map(|n| at(n, counts)).collect::<Vec<_>>();
        let runs = by_worker(&|slice| slice.session == session);
        let own = |worker: usize| {
            let has_run = !runs[worker].stretches().is_empty();
            has_run || about.workers.get(worker).is_none_or(|figures| figures.is_usable)
        };
        let others: Vec<Spans> = (0..count)
            .filter(|worker| own(*worker))
            .map(|worker| at(worker, &|slice| slice.session != session))
            .collect();
        let long = |slice: &&WorkSlice| slice.session != session && slice.end_ns - slice.begin_ns > RESTART_NS_MAX;
        let ended = (0..count).filter(|worker| own(*worker)).flat_map(|worker| slices(worker).filter(long));
        let mut others_ended: Vec<u64> = ended.map(|slice| slice.end_ns).collect();
        others_ended.sort_unstable();
        let lane = timeline.sessions.get(&session);
        let waits = lane.into_iter().flat_map(|lane| lane.awaited.iter().enumerate());
        let last = lane.map_or(0, |lane| lane.awaited.len()).wrapping_sub(1);
        let is_own = |at: usize, subject: Subject| !(about.ends_with_sync && at == last && subject == Subject::Sync);
        let waits = waits.filter(|(at, wait)| is_own(*at, wait.subject)).map(|(_, wait)| (wait.begin_ns, wait.end_ns));
        let awaited = within(waits.collect());
        // The times of instructions, by the number of their events.
        let issued: HashMap<u64, u64> = lane
            .into_iter()
            .flat_map(|lane| lane.issued.iter().map(|issued| (issued.number, issued.time_ns)))
            .collect();
        let handed_over = of_session(timeline, session).map(|(_, slice)| {
            let issued_ns = slice.issued.and_then(|number| issued.get(&number).copied());
            (issued_ns.or(slice.sent_ns).unwrap_or(slice.begin_ns), slice.begin_ns)
        });
        let queued = timeline.workers.iter().flat_map(|lane| &lane.queued);
        let queued = queued.filter(|(of, _)| *of == session).map(|(_, sent_ns)| (*sent_ns, end_ns));
        let outstanding = within(handed_over.chain(queued).collect());
        let visits =
            timeline.visits.iter().zip(timeline.visits.iter().skip(1).map(|next| next.begin_ns).chain([end_ns]));
        let behind = visits.filter(|(visit, _)| visit.session == session && visit.received >= BACKLOG_INSTRUCTIONS);
        let backlog = within(behind.map(|(visit, next_ns)| (visit.begin_ns, next_ns)).collect());
        let waits = |issued: &IssuedInstruction| {
            let waits = matches!(issued.subject, Subject::Fetch | Subject::Write | Subject::Sync);
            (issued.time_ns, waits)
        };
        let issued = lane.into_iter().flat_map(|lane| &lane.issued);
        let issued = issued.filter(|issued| issued.subject != Subject::Free).map(waits).collect();
        SessionTimes {
            issued,
            computes: by_worker(&|slice| slice.session == session && slice.subject != Subject::Reshard),
            busy: by_worker(&|_| true),
            others: union(&others),
            others_ended,
            whole,
            runs,
            awaited,
            outstanding,
            backlog,
        }
    }

    /// The part of the pauses in which instructions wait unread, since the workers are full of others' steps. The
    /// dispatcher reads a large instruction only when its worker has room: when a step of others has ended.
    fn unread_behind_others(&self, pauses: &Spans) -> Spans {
        let behind = pauses.and(&self.others);
        let (mut unread, mut at) = (Vec::new(), 0);
        let whole_end = self.whole.stretches().last().map_or(0, |(_, end)| *end);
        for (begin, end) in pauses.stretches() {
            let first = at;
            while behind.stretches().get(at).is_some_and(|(_, to)| to <= end) {
                at += 1;
            }
            let own = &behind.stretches()[first..at];
            let behind_ns: u64 = own.iter().map(|(from, to)| to - from).sum();
            let near_ns = ((end - begin) / 10).max(RESTART_NS_MAX);
            let last = self.others_ended.partition_point(|ended| ended <= end);
            let has_room = last.checked_sub(1).is_some_and(|last| end - self.others_ended[last] <= near_ns);
            // The last pause has no instruction at its end.
            let waits = if *end == whole_end { !unread.is_empty() } else { has_room };
            if waits && behind_ns >= (end - begin) / 2 {
                unread.extend_from_slice(own);
            }
        }
        Spans::of(unread)
    }

    /// The times at which one worker alone computes for the session and another one idles, by worker.
    fn alone(&self, workers: &[WorkerFigures]) -> Vec<Spans> {
        let usable: Vec<usize> =
            workers.iter().enumerate().filter(|(_, figures)| figures.is_usable).map(|(worker, _)| worker).collect();
        let alone = |worker: usize| {
            let others = || usable.iter().copied().filter(|other| *other != worker);
            if others().next().is_none() {
                return Spans::default();
            }
            let elsewhere = union(&others().map(|other| self.runs[other].clone()).collect::<Vec<_>>());
            let idle = others().map(|other| self.whole.without(&self.busy[other])).collect::<Vec<_>>();
            self.computes[worker].without(&elsewhere).and(&union(&idle))
        };
        (0..self.runs.len()).map(alone).collect()
    }
}

/// The time that each finding costs, nanoseconds. They add up to the whole.
struct SlowdownCosts {
    whole_ns: u64,
    issuing_ns: u64,
    dispatcher_ns: u64,
    fetch_ns: u64,
    one_worker_ns: u64,
    moves_ns: u64,
    others_ns: u64,
    operations_ns: u64,
    /// The times at which one worker computes alone, by worker.
    alone: Vec<Spans>,
    /// The pauses of the program.
    pauses: Spans,
}

impl SlowdownCosts {
    fn of(times: &SessionTimes, about: &Circumstances) -> SlowdownCosts {
        let SessionTimes { whole, computes, runs, others, awaited, outstanding, backlog, .. } = times;
        let running = union(runs);
        let computing = union(computes);
        let alone = times.alone(&about.workers);
        let alone_ns = union(&alone).total_ns();
        let stands = whole.without(&running);
        let pending = stands.and(&awaited.or(outstanding).or(backlog));
        let behind_others = pending.and(others);
        let free = pending.without(others);
        let waits = free.and(awaited);
        let dispatch = free.without(awaited);
        let unread = times.unread_behind_others(&stands.without(&pending));
        let behind_others = behind_others.or(&unread);
        let pauses = stands.without(&pending).without(&unread);
        // The beginning of a pause is that of a wait, if the program waited for what it issued last.
        let restart = |(begin, end): &(u64, u64)| {
            let before = times.issued.partition_point(|(time_ns, _)| time_ns < end);
            let follows = before.checked_sub(1).is_some_and(|last| times.issued[last].1);
            if follows { (end - begin).min(RESTART_NS_MAX) } else { 0 }
        };
        let restart_ns: u64 = pauses.stretches().iter().map(restart).sum();
        let starved_ns = pauses.total_ns() - restart_ns;
        let overlap_ns = running.and(awaited).total_ns().min(starved_ns);
        let mut costs = SlowdownCosts {
            whole_ns: whole.total_ns(),
            issuing_ns: starved_ns - overlap_ns,
            dispatcher_ns: dispatch.total_ns(),
            fetch_ns: waits.total_ns() + restart_ns + overlap_ns,
            one_worker_ns: alone_ns,
            moves_ns: running.without(&computing).total_ns(),
            others_ns: behind_others.total_ns(),
            operations_ns: computing.total_ns() - alone_ns,
            alone,
            pauses,
        };
        if !about.has_others {
            costs.estimate_others(about, &waits, &dispatch);
        }
        costs
    }

    /// Without the steps of others, the status tells how much of the time the workers ran some.
    fn estimate_others(&mut self, about: &Circumstances, waits: &Spans, dispatch: &Spans) {
        let seen = about.workers.iter().filter(|worker| worker.is_usable).map(|worker| worker.others);
        let seen_ns = (seen.fold(0.0, f64::max) * self.whole_ns as f64) as u64;
        let of_dispatcher_ns = seen_ns.min(dispatch.total_ns());
        let of_waits_ns = (seen_ns - of_dispatcher_ns).min(waits.total_ns());
        self.dispatcher_ns -= of_dispatcher_ns;
        self.fetch_ns -= of_waits_ns;
        self.others_ns += of_dispatcher_ns + of_waits_ns;
    }

    fn fraction(&self, ns: u64) -> f64 {
        ns as f64 / self.whole_ns as f64
    }
}

/// Writes the findings.
struct FindingWriter<'a, 'l> {
    timeline: &'a Timeline,
    about: &'a Circumstances,
    times: &'a SessionTimes,
    costs: &'a SlowdownCosts,
    line: &'a mut LineLookup<'l>,
    findings: Vec<SlowdownFinding>,
}

fn percent(fraction: f64) -> String {
    match fraction * 100.0 {
        percent if percent > 0.0 && percent < 1.0 => "less than 1 %".into(),
        percent => format!("{percent:.0} %"),
    }
}

fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn count(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{} times", count(n)) }
}

fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The sums by key, the largest first.
fn sums<K: std::hash::Hash + Eq + Ord + Clone>(parts: impl Iterator<Item = (K, u64)>) -> Vec<(K, u64)> {
    let mut sums: HashMap<K, u64> = HashMap::new();
    for (key, part) in parts {
        *sums.entry(key).or_default() += part;
    }
    let mut sums: Vec<(K, u64)> = sums.into_iter().collect();
    sums.sort_by_key(|(key, sum)| (Reverse(*sum), key.clone()));
    sums
}

impl FindingWriter<'_, '_> {
    fn write(&mut self, instructions: u64) {
        let costs = self.costs;
        let lane = self.timeline.sessions.get(&self.about.session);
        let waits = lane.is_some_and(|lane| !lane.awaited.is_empty());
        if instructions == 0 && costs.issuing_ns == costs.whole_ns && !waits {
            let sentence = format!("The session issued nothing for {}, and nothing of it ran.", time(costs.whole_ns));
            let hint = "Measure while the program works; it may wait for input, or for another program.";
            return self.found(SlowdownKind::Idle, costs.issuing_ns, sentence, hint.into(), json!({}));
        }
        self.issuing(instructions);
        self.dispatcher(instructions);
        self.fetch();
        self.one_worker();
        self.moves();
        self.others();
        self.operations();
    }

    fn found(&mut self, kind: SlowdownKind, ns: u64, sentence: String, hint: String, figures: Value) {
        let Value::Object(mut figures) = figures else { return };
        figures.insert("ns".into(), ns.into());
        let fraction = Some(self.costs.fraction(ns));
        self.findings.push(SlowdownFinding { kind, fraction, sentence, hint, figures });
    }

    fn part(&self, ns: u64) -> String {
        percent(self.costs.fraction(ns))
    }

    /// The lines of instructions with their times, the longest first. Those whose line is not known count as none.
    fn lines(&mut self, parts: impl Iterator<Item = (u64, u64)>) -> Vec<(String, u64)> {
        let mut by_tensor = sums(parts.filter(|(id, _)| *id != 0));
        by_tensor.truncate(LOOKUPS_MAX);
        let session = self.about.session;
        let known: Vec<(String, u64)> =
            by_tensor.into_iter().filter_map(|(id, part)| Some(((self.line)(session, id)?, part))).collect();
        sums(known.into_iter())
    }

    fn issuing(&mut self, instructions: u64) {
        let costs = self.costs;
        let ns = costs.issuing_ns;
        if ns == 0 {
            return;
        }
        let lane = self.timeline.sessions.get(&self.about.session);
        // The instruction that ends each pause.
        let mut issued = lane.into_iter().flat_map(|lane| &lane.issued).peekable();
        let mut ended = Vec::new();
        for (begin, end) in costs.pauses.stretches() {
            while issued.next_if(|issued| issued.time_ns < *end).is_some() {}
            let next = issued.peek().map_or(0, |issued| issued.result);
            ended.push((next, end - begin));
        }
        let longest = ended.iter().max_by_key(|(_, ns)| *ns).copied().unwrap_or_default();
        let lines = self.lines(ended.iter().copied());
        let longest_line = if longest.0 == 0 { None } else { (self.line)(self.about.session, longest.0) };
        let seconds = costs.whole_ns as f64 / 1e9;
        let before = longest_line.as_ref().map(|line| format!(", before {line}")).unwrap_or_default();
        let mut sentence = format!(
            "The workers wait for the program for {} of the time: it issues {} instructions a second, with {} pauses, the \
             longest of {}{before}.",
            self.part(ns),
            count((instructions as f64 / seconds) as u64),
            count(ended.len() as u64),
            time(longest.1)
        );
        if let Some((line, part)) = lines.first() {
            sentence.push_str(&format!(" Most of the time it pauses before {line}: {}.", self.part(*part)));
        }
        let hint = "Let Python do less between operations: compute on whole tensors rather than in loops over elements, \
                    and read data in other processes (num_workers of a DataLoader).";
        let figures = json!({
            "instructions": instructions,
            "instructions_per_s": instructions as f64 / seconds,
            "pauses": ended.len(),
            "longest_pause_ns": longest.1,
            "lines": self.named(&lines),
        });
        self.found(SlowdownKind::Issuing, ns, sentence, hint.into(), figures);
    }

    /// The first of `lines`, for programs.
    fn named(&self, lines: &[(String, u64)]) -> Value {
        lines.iter().take(NAMED_MAX).map(|(line, ns)| json!({"line": line, "ns": ns})).collect()
    }

    fn dispatcher(&mut self, instructions: u64) {
        let ns = self.costs.dispatcher_ns;
        if ns == 0 {
            return;
        }
        let each = time(ns / instructions.max(1));
        let lane = self.timeline.sessions.get(&self.about.session);
        let hot = lane.into_iter().flat_map(|lane| lane.hot.iter().map(|stretch| (stretch.begin_ns, stretch.end_ns)));
        let hot_ns = Spans::of(hot.collect()).and(&self.times.whole).total_ns();
        let mut sentence = format!(
            "The workers wait for the daemon's dispatcher for {} of the time: it read and handed over {} instructions, {each} \
             for each.",
            self.part(ns),
            count(instructions)
        );
        if hot_ns > 0 {
            sentence
                .push_str(&format!(" For {} of the time they followed a sequence that repeats.", self.part(hot_ns)));
        }
        let hint = "Issue fewer and larger operations: their cost in the dispatcher does not depend on their size.";
        let figures = json!({"instructions": instructions, "hot_ns": hot_ns});
        self.found(SlowdownKind::Dispatcher, ns, sentence, hint.into(), figures);
    }

    fn fetch(&mut self) {
        let ns = self.costs.fetch_ns;
        let Some(lane) = self.timeline.sessions.get(&self.about.session).filter(|_| ns > 0) else { return };
        let waits = &lane.awaited;
        let number = |subject| waits.iter().filter(|wait| wait.subject == subject).count() as u64;
        let (fetches, syncs, uploads) = (number(Subject::Fetch), number(Subject::Sync), number(Subject::Write));
        let waited = |wait: &AwaitedInstruction| (wait.result, (wait.end_ns - wait.begin_ns).max(1));
        let awaited_ns: u64 = waits.iter().map(|wait| waited(wait).1).sum();
        let fetched = || waits.iter().filter(|wait| wait.subject == Subject::Fetch);
        let at = |wait: &AwaitedInstruction| Some((self.about.wait_lines.get(&wait.number)?.clone(), waited(wait).1));
        let (mut lines, mut place) = (sums(fetched().filter_map(at)), "at");
        if lines.is_empty() {
            (lines, place) = (self.lines(fetched().map(waited)), "for values of");
        }
        let mut ways = Vec::new();
        for (number, way) in [(fetches, "for a value"), (syncs, "in a synchronize"), (uploads, "for an upload")] {
            if number > 0 {
                ways.push(format!("{way} {}", times(number)));
            }
        }
        let mut sentence = format!(
            "Waiting costs {} of the time, in which the workers idle: the program waits {} before it issues more.",
            self.part(ns),
            list(&ways)
        );
        if let Some((line, part)) = lines.first() {
            let part = percent(*part as f64 / awaited_ns as f64);
            sentence.push_str(&format!(" {part} of the waits are {place} {line}."));
        }
        let hint = "Fetch less often: item(), tolist(), print() and an if on a tensor wait for its value. Keep losses as \
                    tensors, and fetch them every hundred steps.";
        let figures = json!({
            "fetches": fetches,
            "synchronizes": syncs,
            "uploads": uploads,
            "waited_ns": awaited_ns,
            "lines": self.named(&lines),
        });
        self.found(SlowdownKind::Fetch, ns, sentence, hint.into(), figures);
    }

    fn worker(&self, number: usize) -> String {
        let named = self.about.workers.get(number).map(|worker| worker.name.clone());
        named.unwrap_or_else(|| format!("worker {number}"))
    }

    fn one_worker(&mut self) {
        let ns = self.costs.one_worker_ns;
        let alone = self.costs.alone.iter().enumerate().map(|(worker, alone)| (worker, alone.total_ns()));
        let Some((worker, own_ns)) = alone.max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0) else { return };
        let usable = self.about.workers.iter().enumerate().filter(|(_, worker)| worker.is_usable);
        let idle: Vec<String> =
            usable.map(|(other, _)| other).filter(|other| *other != worker).map(|n| self.worker(n)).collect();
        let name = self.worker(worker);
        let what = self.operations_of(&self.costs.alone[worker].clone(), Some(worker));
        let sentence = format!(
            "{name} computes alone for {} of the time while {} of the session's {} workers idle: {}.",
            self.part(own_ns),
            idle.len(),
            idle.len() + 1,
            list(&what.iter().map(|(name, ns)| format!("{name} {}", self.part(*ns))).collect::<Vec<_>>())
        );
        let hint = "Shard the tensors over the workers by signals and a configuration, or give each worker a part of the \
                    program that does not depend on the others' (docs/sharding.md).";
        let figures = json!({"worker": name, "worker_ns": own_ns, "idle": idle, "operations": operations(&what)});
        self.found(SlowdownKind::OneWorker, ns, sentence, hint.into(), figures);
    }

    /// The parts of `times` that the session's operations took, the longest first.
    fn operations_of(&self, times: &Spans, worker: Option<usize>) -> Vec<(&'static str, u64)> {
        let whole = times.stretches();
        let within = |slice: &WorkSlice| {
            let first = whole.partition_point(|(_, end)| *end <= slice.begin_ns);
            let overlaps = whole[first..].iter().take_while(|(begin, _)| *begin < slice.end_ns);
            overlaps.map(|(begin, end)| slice.end_ns.min(*end) - slice.begin_ns.max(*begin)).sum::<u64>()
        };
        let slices = of_session(self.timeline, self.about.session);
        let slices =
            slices.filter(|(at, slice)| worker.is_none_or(|worker| worker == *at) && slice.subject != Subject::Reshard);
        let mut all = sums(slices.map(|(_, slice)| (slice.subject.name(), within(slice))).filter(|(_, ns)| *ns > 0));
        // Several workers compute at a time, and the parts are those of the time.
        let sum_ns = all.iter().map(|(_, ns)| *ns).sum::<u64>().max(1);
        let scale = (times.total_ns() as f64 / sum_ns as f64).min(1.0);
        all.iter_mut().for_each(|(_, ns)| *ns = (*ns as f64 * scale) as u64);
        all.truncate(NAMED_MAX);
        all
    }

    fn moves(&mut self) {
        let ns = self.costs.moves_ns;
        if ns == 0 {
            return;
        }
        let moves: Vec<&WorkSlice> = of_session(self.timeline, self.about.session)
            .map(|(_, slice)| slice)
            .filter(|slice| slice.subject == Subject::Reshard)
            .collect();
        let bytes: u64 = moves.iter().map(|slice| slice.bytes).sum();
        let tensors = sums(moves.iter().map(|slice| (slice.result, slice.bytes)));
        let (most, most_bytes) = tensors.first().copied().unwrap_or_default();
        // The session's step after the move at the same worker is what needs it.
        let needs = self.timeline.workers.iter().find_map(|lane| {
            let at = lane.slices.iter().position(|slice| {
                slice.session == self.about.session && slice.subject == Subject::Reshard && slice.result == most
            })?;
            let mut later = lane.slices[at..].iter().filter(|slice| slice.session == self.about.session);
            later.find(|slice| slice.subject != Subject::Reshard).map(|slice| (slice.subject.name(), slice.result))
        });
        let session = self.about.session;
        let from = (self.line)(session, most);
        let needed_at = needs.and_then(|(_, result)| (self.line)(session, result));
        let mut sentence = format!(
            "Moves between workers take {} of the time: {} of them, with {}. The largest part is {} of tensor {most}",
            self.part(ns),
            count(moves.len() as u64),
            bytes_text(bytes),
            bytes_text(most_bytes)
        );
        if let Some(line) = &from {
            sentence.push_str(&format!(", of {line}"));
        }
        if let Some((operation, _)) = needs {
            sentence.push_str(&format!(", for {operation}"));
        }
        if let Some(line) = &needed_at {
            sentence.push_str(&format!(" at {line}"));
        }
        sentence.push('.');
        let hint = "Place what is computed together alike: shard weights and activations along the same axis, so that \
                    less is moved (docs/sharding.md).";
        let named: Vec<Value> =
            tensors.iter().take(NAMED_MAX).map(|(tensor, bytes)| json!({"tensor": tensor, "bytes": bytes})).collect();
        let figures = json!({
            "moves": moves.len(),
            "bytes": bytes,
            "tensors": named,
            "needed_by": needs.map(|(operation, _)| operation),
            "line": from,
            "needed_at": needed_at,
        });
        self.found(SlowdownKind::Moves, ns, sentence, hint.into(), figures);
    }

    fn others(&mut self) {
        let ns = self.costs.others_ns;
        if ns == 0 {
            return;
        }
        let ran = self.timeline.workers.iter().flat_map(|lane| lane.slices.iter().chain(&lane.copies));
        let ran = ran.filter(|slice| slice.session != self.about.session);
        let by_tape = sums(ran.map(|slice| (slice.session, slice.end_ns - slice.begin_ns)));
        let named: Vec<(String, u64, f64)> = if by_tape.is_empty() {
            let mut others: Vec<_> = self.about.others.iter().filter(|other| other.share > 0.0).collect();
            others.sort_by(|a, b| b.share.total_cmp(&a.share));
            others.iter().map(|other| (other.description.clone(), other.session, other.share)).collect()
        } else {
            let described = |session: u64| {
                let known = self.about.others.iter().find(|other| other.session == session);
                known.map_or_else(|| format!("session {session}"), |other| other.description.clone())
            };
            by_tape.iter().map(|(session, ns)| (described(*session), *session, self.costs.fraction(*ns))).collect()
        };
        let shown: Vec<String> = named
            .iter()
            .take(NAMED_MAX)
            .map(|(description, _, part)| format!("{description} has {}", percent(*part)))
            .collect();
        let whose = if shown.is_empty() { String::new() } else { format!(": {}", list(&shown)) };
        let sentence = format!(
            "The workers run other sessions' steps for {} of the time while this one waits for them{whose}.",
            self.part(ns)
        );
        let weights = self.about.others.iter().map(|other| other.weight).fold(self.about.weight, f64::max);
        let hint = if weights > self.about.weight {
            format!(
                "Other users have a larger weight, up to {weights} beside {}: an administrator can change that (gtctl limits \
                 set --weight). Else use other devices, or come when fewer do.",
                self.about.weight
            )
        } else {
            "Use other devices (GT_VISIBLE_DEVICES), or come when fewer others do; an administrator can give a user more \
             weight (gtctl limits set --weight)."
                .into()
        };
        let sessions: Vec<Value> =
            named.iter().map(|(_, session, part)| json!({"session": session, "fraction": part})).collect();
        self.found(
            SlowdownKind::Others,
            ns,
            sentence,
            hint,
            json!({"sessions": sessions, "is_estimate": !self.about.has_others}),
        );
    }

    fn operations(&mut self) {
        let ns = self.costs.operations_ns;
        if ns == 0 {
            return;
        }
        let computing = union(&self.times.computes).without(&union(&self.costs.alone));
        let what = self.operations_of(&computing, None);
        let parts: Vec<String> = what.iter().map(|(name, ns)| format!("{name} {}", self.part(*ns))).collect();
        let slices = of_session(self.timeline, self.about.session).map(|(_, slice)| slice);
        let first = what.first().map(|(name, _)| *name).unwrap_or_default();
        let longest: Vec<(u64, u64)> = slices
            .filter(|slice| slice.subject.name() == first && slice.outcome != SliceOutcome::Failed)
            .map(|slice| (slice.result, slice.end_ns - slice.begin_ns))
            .collect();
        let lines = self.lines(longest.into_iter());
        let mut sentence = format!("The workers compute for {} of the time: {}.", self.part(ns), list(&parts));
        if let Some((line, _)) = lines.first() {
            sentence.push_str(&format!(" Most of {first} is issued at {line}."));
        }
        let hint = "That is as it should be. To be faster, compute less, or in a shorter dtype (gt.autocast), or on more \
                    devices.";
        let figures = json!({"operations": operations(&what), "lines": self.named(&lines)});
        self.found(SlowdownKind::Operations, ns, sentence, hint.into(), figures);
    }
}

fn operations(what: &[(&'static str, u64)]) -> Value {
    what.iter().map(|(operation, ns)| json!({"operation": operation, "ns": ns})).collect()
}

/// The finding about memory, if a limit is nearly reached or allocations failed.
fn memory(about: &Circumstances) -> Option<SlowdownFinding> {
    let full = |held: &HeldMemory| held.limit > 0 && held.bytes as f64 >= NEARLY_FULL * held.limit as f64;
    let mut limits =
        vec![("the session's limit".to_owned(), about.session_memory), ("its user's limit".into(), about.user_memory)];
    limits.extend(about.workers.iter().filter(|worker| worker.is_usable).map(|worker| {
        let held = HeldMemory { bytes: worker.memory_bytes, limit: worker.memory_bytes_limit };
        (format!("the memory of {}", worker.name), held)
    }));
    limits.retain(|(_, held)| full(held));
    if limits.is_empty() && about.out_of_memory == 0 {
        return None;
    }
    let mut sentences = Vec::new();
    if about.out_of_memory > 0 {
        let failed = about.out_of_memory;
        let what = if failed == 1 { "allocation failed" } else { "allocations failed" };
        sentences.push(format!("{} {what} for want of memory", count(failed)));
    }
    for (what, held) in &limits {
        sentences.push(format!("{what} is nearly full, with {} of {}", bytes_text(held.bytes), bytes_text(held.limit)));
    }
    let mut sentence = format!("{}.", list(&sentences));
    if let Some(first) = sentence.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let hint = "gt.debug.memory_summary() shows which lines hold memory; smaller batches, checkpointing \
                (gt.utils.checkpoint) or a shorter dtype take less.";
    let limits: Vec<Value> =
        limits.iter().map(|(what, held)| json!({"of": what, "bytes": held.bytes, "limit": held.limit})).collect();
    let Value::Object(figures) = json!({"out_of_memory": about.out_of_memory, "limits": limits}) else { return None };
    Some(SlowdownFinding { kind: SlowdownKind::Memory, fraction: None, sentence, hint: hint.into(), figures })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{KnownRunning, TimelineBuilder};
    use SlowdownKind::{Dispatcher, Fetch, Idle, Issuing, Memory, Moves, OneWorker, Operations, Others};
    use gt_ops::Op;
    use gt_ops::event::{Event, EventKind, LogLine, NO_WORKER, StepTime};

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;
    const OWN: u64 = 7;
    const OTHER: u64 = 8;

    /// The events of a timeline, in any order.
    #[derive(Default)]
    struct Events(Vec<Event>);

    impl Events {
        fn add(&mut self, kind: EventKind, time_ns: u64, session: u64, worker: u16, subject: Subject, result: u64) {
            let (bytes, left, right) = (1000, 0, 0);
            self.0.push(Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns: 0 });
        }

        /// A step that was issued, and ran from `begin` to `end`.
        fn step(&mut self, session: u64, worker: u16, subject: Subject, result: u64, [issued, begin, end]: [u64; 3]) {
            self.add(EventKind::Recv, issued, session, NO_WORKER, subject, result);
            self.add(EventKind::WorkerSend, issued, session, worker, subject, result);
            self.add(EventKind::WorkerRecv, end, session, worker, subject, result);
            let last = self.0.last_mut().unwrap();
            [last.left, last.right] = StepTime::Measured(end - begin).words();
        }

        fn own(&mut self, result: u64, times: [u64; 3]) {
            self.step(OWN, 0, Subject::Op(Op::Matmul), result, times);
        }

        fn wait(&mut self, result: u64, begin: u64, end: u64) {
            self.add(EventKind::Recv, begin, OWN, NO_WORKER, Subject::Fetch, result);
            self.add(EventKind::Send, end, OWN, NO_WORKER, Subject::Fetch, result);
        }

        fn timeline(mut self, end_ns: u64) -> Timeline {
            self.0.sort_by_key(|event| event.time_ns);
            let mut builder = TimelineBuilder::from(1);
            for (number, event) in self.0.iter().enumerate() {
                builder.take(&LogLine::Event(number as u64, *event));
            }
            builder.finish(end_ns, &[], &[])
        }

        fn explain(self, end_ns: u64, about: &Circumstances) -> Explanation {
            let mut line = |session, id| (session == OWN).then(|| format!("train.py:{} in step", id % 3));
            let explanation = explain(&self.timeline(end_ns), about, &mut line);
            let whole: f64 = explanation.findings.iter().filter_map(|finding| finding.fraction).sum();
            assert!((whole - 1.0).abs() < 1e-6, "{whole}: {explanation:#?}");
            explanation
        }
    }

    fn workers(count: usize) -> Circumstances {
        let worker =
            |number| WorkerFigures { name: format!("cpu:{number}"), is_usable: true, ..WorkerFigures::default() };
        Circumstances {
            session: OWN,
            has_others: true,
            workers: (0..count).map(worker).collect(),
            ..Circumstances::default()
        }
    }

    fn kinds(explanation: &Explanation) -> Vec<SlowdownKind> {
        explanation.findings.iter().map(|finding| finding.kind).collect()
    }

    fn fraction(explanation: &Explanation, kind: SlowdownKind) -> f64 {
        let found = explanation.findings.iter().find(|finding| finding.kind == kind);
        found.and_then(|finding| finding.fraction).map_or(0.0, |fraction| (fraction * 100.0).round() / 100.0)
    }

    #[test]
    fn workers_that_compute_all_the_time_are_the_good_case() {
        let mut events = Events::default();
        for n in 0..10 {
            events.own(n + 1, [1, n * MS, (n + 1) * MS]);
        }
        let found = events.explain(10 * MS, &workers(1));
        assert_eq!((kinds(&found), fraction(&found, Operations)), (vec![Operations], 1.0));
        let said = &found.findings[0].sentence;
        assert!(said.starts_with("The workers compute for 100 % of the time: matmul 100 %."), "{said}");
        assert!(said.contains("Most of matmul is issued at train.py:1 in step"), "{said}");
    }

    #[test]
    fn small_steps_with_long_pauses_wait_for_the_program() {
        let mut events = Events::default();
        for n in 0..10 {
            events.own(n + 1, [n * MS + 990 * US, n * MS + 990 * US, (n + 1) * MS]);
        }
        let found = events.explain(10 * MS, &workers(1));
        assert_eq!(kinds(&found), [Issuing, Operations]);
        assert_eq!((fraction(&found, Issuing), fraction(&found, Operations)), (0.99, 0.01));
        let SlowdownFinding { sentence, figures, .. } = &found.findings[0];
        assert!(sentence.contains("99 % of the time: it issues 1,000 instructions a second"), "{sentence}");
        assert_eq!((figures["pauses"].as_u64(), figures["longest_pause_ns"].as_u64()), (Some(10), Some(990 * US)));
        assert!(sentence.contains("before train.py:"), "{sentence}");
    }

    #[test]
    fn a_loop_that_fetches_each_value_waits_for_it() {
        let explained = |about: &Circumstances| {
            let mut events = Events::default();
            for n in 0..100 {
                let at = 10 + n * 100 * US;
                events.own(n + 1, [at, at + 5 * US, at + 10 * US]);
                events.wait(n + 1, at + 1, at + 40 * US);
            }
            events.explain(10 * MS, about)
        };
        let found = explained(&workers(1));
        assert_eq!(kinds(&found)[0], Fetch);
        assert_eq!((fraction(&found, Fetch), fraction(&found, Operations)), (0.95, 0.05));
        let SlowdownFinding { sentence, figures, .. } = &found.findings[0];
        assert_eq!(figures["fetches"].as_u64(), Some(100));
        assert!(sentence.contains("waits for a value 100 times"), "{sentence}");
        assert!(sentence.contains("of the waits are for values of train.py:"), "{sentence}");
        // The line that waits says more than those that issued the values.
        let wait_lines = (0..1000).map(|number| (number, "train.py:9 in log".into())).collect();
        let found = explained(&Circumstances { wait_lines, ..workers(1) });
        let sentence = &found.findings[0].sentence;
        assert!(sentence.contains("100 % of the waits are at train.py:9 in log."), "{sentence}");
    }

    #[test]
    fn a_wait_that_takes_no_time_costs_the_pause_after_it() {
        let mut events = Events::default();
        for n in 0..100 {
            let at = 10 + n * 100 * US;
            events.own(n + 1, [at, at, at + 10 * US]);
            events.wait(n + 1, at, at);
            events.add(EventKind::Recv, at, OWN, NO_WORKER, Subject::Free, n + 1);
        }
        assert_eq!(fraction(&events.explain(10 * MS, &workers(1)), Fetch), 0.9);
    }

    #[test]
    fn a_wait_costs_what_the_program_could_have_issued_meanwhile() {
        let mut events = Events::default();
        for n in 0..10 {
            // Ten milliseconds of work, for which the program waits, and then twenty of its own.
            let at = 10 + n * 30 * MS;
            events.own(n + 1, [at, at, at + 10 * MS]);
            events.wait(n + 1, at, at + 10 * MS);
        }
        let found = events.explain(300 * MS, &workers(1));
        assert_eq!(kinds(&found)[..2], [Fetch, Operations]);
        assert_eq!((fraction(&found, Fetch), fraction(&found, Issuing)), (0.34, 0.33));
    }

    #[test]
    fn a_sync_that_ends_the_measurement_costs_nothing() {
        let sync = |about: &Circumstances| {
            let mut events = Events::default();
            events.own(1, [50 * MS, 50 * MS, 100 * MS]);
            events.add(EventKind::Recv, 51 * MS, OWN, NO_WORKER, Subject::Sync, 0);
            events.add(EventKind::Send, 100 * MS, OWN, NO_WORKER, Subject::Sync, 0);
            events.explain(100 * MS, about)
        };
        assert_eq!(fraction(&sync(&workers(1)), Fetch), 0.49);
        let found = sync(&Circumstances { ends_with_sync: true, ..workers(1) });
        assert_eq!((fraction(&found, Fetch), fraction(&found, Issuing)), (0.0, 0.5));
    }

    #[test]
    fn one_of_two_workers_that_computes_alone_is_found() {
        let alone = |about: &Circumstances| {
            let mut events = Events::default();
            for n in 0..9 {
                events.own(n + 1, [1, n * MS, (n + 1) * MS]);
            }
            events.step(OWN, 1, Subject::Op(Op::Exp), 10, [1, 0, MS]);
            events.explain(10 * MS, about)
        };
        let found = alone(&workers(2));
        assert_eq!(kinds(&found)[0], OneWorker);
        assert_eq!((fraction(&found, OneWorker), fraction(&found, Operations)), (0.8, 0.1));
        let said = &found.findings[0].sentence;
        assert!(
            said.starts_with("cpu:0 computes alone for 80 % of the time while 1 of the session's 2 workers"),
            "{said}"
        );
        // A worker that the session may not use does not count.
        let mut pinned = workers(2);
        pinned.workers[1].is_usable = false;
        assert_eq!(fraction(&alone(&pinned), OneWorker), 0.0);
    }

    #[test]
    fn an_idle_worker_that_computes_for_others_is_not_idle() {
        let mut events = Events::default();
        events.own(1, [1, 0, 10 * MS]);
        events.step(OTHER, 1, Subject::Op(Op::Exp), 1, [1, 0, 10 * MS]);
        assert_eq!(kinds(&events.explain(10 * MS, &workers(2))), [Operations]);
    }

    #[test]
    fn moves_name_the_tensor_and_what_needs_it() {
        let mut events = Events::default();
        for worker in 0..2 {
            events.add(EventKind::WorkerSend, 1, OWN, worker, Subject::Reshard, 31);
            events.add(EventKind::WorkerRecv, 6 * MS, OWN, worker, Subject::Reshard, 31);
            events.0.last_mut().unwrap().left = 6 * MS;
            events.step(OWN, worker, Subject::Op(Op::Matmul), 32, [1, 6 * MS, 10 * MS]);
        }
        let found = events.explain(10 * MS, &workers(2));
        assert_eq!(kinds(&found), [Moves, Operations]);
        assert_eq!(fraction(&found, Moves), 0.6);
        let SlowdownFinding { sentence, figures, .. } = &found.findings[0];
        assert!(sentence.contains("2 of them, with 1.95 KiB"), "{sentence}");
        assert!(
            sentence.contains("of tensor 31, of train.py:1 in step, for matmul at train.py:2 in step"),
            "{sentence}"
        );
        assert_eq!(figures["bytes"].as_u64(), Some(2000));
    }

    #[test]
    fn instructions_behind_others_steps_wait_for_others() {
        let mut events = Events::default();
        events.step(OTHER, 0, Subject::Op(Op::Exp), 1, [1, 0, 7 * MS]);
        events.own(1, [1, 7 * MS, 10 * MS]);
        let mut about = workers(1);
        about.weight = 1.0;
        about.others =
            vec![OtherSession { description: "session 8 (of bob)".into(), session: OTHER, share: 0.7, weight: 3.0 }];
        let found = events.explain(10 * MS, &about);
        assert_eq!((kinds(&found)[0], fraction(&found, Others)), (Others, 0.7));
        let SlowdownFinding { sentence, hint, .. } = &found.findings[0];
        assert!(sentence.ends_with("waits for them: session 8 (of bob) has 70 %."), "{sentence}");
        assert!(hint.contains("a larger weight, up to 3 beside 1"), "{hint}");
    }

    #[test]
    fn an_instruction_that_is_read_when_others_make_room_has_waited_for_them() {
        let read_at = |read_ns: u64| {
            let mut events = Events::default();
            for n in 0..4 {
                let at = n * 10 * MS;
                events.step(OTHER, 0, Subject::Op(Op::Exp), n + 1, [at + 1, at + 1, at + 8 * MS]);
                events.own(n + 1, [at + read_ns, at + 8 * MS, at + 10 * MS]);
            }
            events.explain(40 * MS, &workers(1))
        };
        let found = read_at(8 * MS);
        assert_eq!((kinds(&found)[0], fraction(&found, Others)), (Others, 0.8));
        // The program of this one issues late.
        assert_eq!(fraction(&read_at(5 * MS), Issuing), 0.5);
    }

    #[test]
    fn without_their_steps_the_status_tells_of_others() {
        let mut events = Events::default();
        events.own(1, [1, 7 * MS, 10 * MS]);
        let mut about = Circumstances { has_others: false, ..workers(1) };
        about.workers[0].others = 0.6;
        let found = events.explain(10 * MS, &about);
        assert_eq!((fraction(&found, Others), fraction(&found, Dispatcher)), (0.6, 0.1));
        assert_eq!(found.findings[0].figures["is_estimate"], json!(true));
    }

    #[test]
    fn instructions_that_nothing_runs_wait_for_the_dispatcher() {
        let mut events = Events::default();
        events.own(1, [1, 6 * MS, 10 * MS]);
        let found = events.explain(10 * MS, &workers(1));
        assert_eq!((kinds(&found), fraction(&found, Dispatcher)), (vec![Dispatcher, Operations], 0.6));
        // Many instructions that are read at one time had waited.
        let mut events = Events::default();
        for at in [1, 5 * MS] {
            for n in 0..u64::from(BACKLOG_INSTRUCTIONS) {
                events.add(EventKind::Recv, at, OWN, NO_WORKER, Subject::Op(Op::Add), at + n);
            }
        }
        assert_eq!(fraction(&events.explain(10 * MS, &workers(1)), Dispatcher), 1.0);
    }

    #[test]
    fn memory_is_found_where_it_is_short() {
        let mut about = workers(1);
        about.session_memory = HeldMemory { bytes: 95, limit: 100 };
        let ends = |about: &Circumstances| {
            let mut events = Events::default();
            events.own(1, [1, 0, 10 * MS]);
            events.explain(10 * MS, about)
        };
        let found = ends(&about);
        assert_eq!(kinds(&found), [Operations, Memory]);
        assert_eq!(found.findings[1].sentence, "The session's limit is nearly full, with 95 B of 100 B.");
        about.out_of_memory = 3;
        let found = ends(&about);
        assert_eq!(kinds(&found), [Memory, Operations]);
        assert!(found.findings[0].sentence.starts_with("3 allocations failed for want of memory"));
        about = workers(1);
        about.session_memory = HeldMemory { bytes: 80, limit: 100 };
        assert_eq!(kinds(&ends(&about)), [Operations]);
    }

    #[test]
    fn a_session_that_does_nothing_is_idle() {
        let mut events = Events::default();
        events.step(OTHER, 0, Subject::Op(Op::Exp), 1, [1, 0, 10 * MS]);
        let found = events.explain(10 * MS, &workers(1));
        assert_eq!(kinds(&found), [Idle]);
        assert_eq!(found.findings[0].sentence, "The session issued nothing for 10.0 ms, and nothing of it ran.");
        // One step that runs all the time is something.
        let running = KnownRunning { worker: 0, session: OWN, subject: Subject::Op(Op::Sum), begin_ns: 1 };
        let timeline = TimelineBuilder::from(10).finish(MS, &[running], &[]);
        assert_eq!(kinds(&explain(&timeline, &workers(1), &mut |_, _| None)), [Operations]);
    }

    #[test]
    fn a_session_that_ends_is_explained_until_then() {
        let mut events = Events::default();
        events.own(1, [1, 0, 4 * MS]);
        events.add(EventKind::Disconnect, 5 * MS, OWN, NO_WORKER, Subject::Nothing, 0);
        let found = events.explain(10 * MS, &workers(1));
        assert_eq!((found.has_ended, fraction(&found, Operations)), (true, 0.8));
        // Nothing is no time.
        assert_eq!(explain(&Timeline::default(), &workers(1), &mut |_, _| None).findings, []);
    }

    #[test]
    fn any_timeline_is_explained() {
        // A linear congruential generator (Knuth, MMIX).
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for round in 0..300 {
            let mut events = Events::default();
            for _ in 0..150 {
                let kind = EventKind::ALL[next(8) as usize];
                let kind = if kind == EventKind::Disconnect && round % 3 > 0 { EventKind::Recv } else { kind };
                let subject = [Subject::Op(Op::Add), Subject::Fetch, Subject::Sync, Subject::Reshard][next(4) as usize];
                let worker = [0, 1, 2, NO_WORKER][next(4) as usize];
                events.add(kind, 1 + next(MS), OWN + next(2), worker, subject, next(5));
                if next(2) == 0 {
                    events.0.last_mut().unwrap().left = next(MS / 10);
                }
            }
            let timeline = events.timeline(MS + next(MS));
            let about = Circumstances { has_others: next(2) == 0, ..workers(next(4) as usize) };
            let found = explain(&timeline, &about, &mut |_, _| None);
            let whole: f64 = found.findings.iter().filter_map(|finding| finding.fraction).sum();
            assert!(found.findings.is_empty() || (whole - 1.0).abs() < 1e-6, "{whole}: {found:#?}");
        }
    }
}
