//! Hot paths: the sequences of instructions that a session repeats, and their plans.
//!
//! A program that trains issues the same instructions step after step: of the same operations, on operands of the same
//! dtypes and sizes that were made by the same instructions, with other numbers here and there. The [`detector`] finds
//! such a sequence when it has come twice. While the stream follows it, each instruction is compared with its place in
//! the sequence. The first time it is validated as any other and kept in the sequence's [`plan`]; from then on, one
//! that the plan foretold is not decoded, and its result, checks, estimate and step are taken from the plan. The first
//! instruction that differs leaves the path and goes on as usual. Nothing waits for an instruction that the path
//! foretells.
//!
//! Ids, numbers and lengths are still those that the client sends, and checked as always. What the plan keeps is in the
//! daemon's memory alone.

pub mod detector;
mod hash;
pub mod plan;

use crate::table::{KeyedState, TensorTable};
use crate::worker::step::Step;
use detector::{ANCHOR, Detector, anchor_of};
use gt_ops::wire::Slot;
use gt_ops::{Meta, Op, TensorId};
use gt_protocol::SequenceCounts;
use hash::{mix, scatter};
use plan::{CopiedSlots, FROM_OUTSIDE, PlannedInstruction, PlannedInstructions, TENSORS_MAX, come_from, producers_of};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The sequences that a session remembers. The one that was not used for longest makes room for another.
const SEQUENCES_MAX: usize = 64;
/// The instructions of all of them together.
const REMEMBERED_INSTRUCTIONS_MAX: usize = detector::PERIOD_MAX;
/// How many instructions before an operand was made is part of a fingerprint up to this distance.
const NEAR_MAX: TensorId = 4;
/// How often an instruction is planned again after it differed from its plan. One that always does, such as a slice of
/// the next rows of a data set, is then validated each time.
const ATTEMPTS_MAX: u8 = 4;
/// After how many rounds the log tells what is planned of a sequence.
const PLANNED_ROUNDS: u64 = ATTEMPTS_MAX as u64 + 1;

/// Which instructions are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompilePolicy {
    /// Those under signals that ask for it.
    Asked,
    /// All of sequences that have come twice, but for those under signals that forbid it.
    Repeated,
    /// As [`Repeated`](Self::Repeated), but of sequences whose beginning has come twice.
    AtOnce,
}

impl CompilePolicy {
    /// The policy in the environment: `GT_AUTO_COMPILE=0` and `GT_COMPILE=1`.
    pub fn from_environment() -> CompilePolicy {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty()).map(|value| value != "0");
        match (set("GT_COMPILE"), set("GT_AUTO_COMPILE")) {
            (Some(true), _) => CompilePolicy::AtOnce,
            (_, Some(false)) => CompilePolicy::Asked,
            _ => CompilePolicy::Repeated,
        }
    }
}

/// A sequence that has repeated.
struct Sequence {
    /// Its number in the session, from 1 on.
    number: u64,
    fingerprints: Box<[u32]>,
    /// A hash that does not depend on where the sequence begins.
    key: u64,
    /// The last result of each instruction; 0 for none.
    results: Box<[TensorId]>,
    plan: Box<[PlannedPosition]>,
    /// How often it was followed from its beginning to its end.
    rounds: u64,
}

/// The plan of one instruction of a sequence.
#[derive(Clone, Copy)]
struct PlannedPosition {
    /// The number of its entry among the planned instructions; [`UNPLANNED`] for none.
    entry: u32,
    /// For each tensor operand, the position of the instruction that has made it.
    producers: [u32; TENSORS_MAX],
    /// How often it was planned.
    attempts: u8,
}

/// Stands for the entry of an instruction that is not planned.
const UNPLANNED: u32 = u32::MAX;

impl PlannedPosition {
    const NEW: PlannedPosition =
        PlannedPosition { entry: UNPLANNED, producers: [FROM_OUTSIDE; TENSORS_MAX], attempts: 0 };
}

/// The sequence that the stream follows.
struct Path {
    sequence: Sequence,
    /// The position of the next instruction.
    at: usize,
    /// The hash of the anchor by which the stream came to it.
    entry: Option<u64>,
    /// The instructions since the stream came to the path, and those of them that were taken from the plan.
    followed: u64,
    hits: u64,
}

impl Sequence {
    /// Logs how many of the instructions are planned, and why the others are not.
    #[cold]
    fn tell_plan(&self) {
        let planned = self.plan.iter().filter(|planned| planned.entry != UNPLANNED).count();
        let differing = self.plan.iter().filter(|planned| planned.attempts >= ATTEMPTS_MAX).count();
        let unplanned = self.plan.iter().filter(|planned| planned.attempts == 0).count();
        tracing::debug!(
            target: "gtd::compile",
            sequence = self.number,
            length = self.plan.len(),
            planned,
            "a hot path is planned; {differing} instructions differ each time (in attributes such as where a slice begins, \
             or in what made an operand), and {unplanned} have more than four operands or are under a signal that forbids it"
        );
    }
}

impl Path {
    /// Goes to the next instruction, after one with this result. True if the sequence was followed as a whole for the
    /// first time.
    fn advance(&mut self, result: TensorId) -> bool {
        self.sequence.results[self.at] = result;
        self.followed += 1;
        self.at += 1;
        let is_round = self.at == self.sequence.fingerprints.len();
        if is_round {
            self.at = 0;
            self.sequence.rounds += 1;
            if self.sequence.rounds == PLANNED_ROUNDS {
                self.sequence.tell_plan();
            }
        }
        is_round && self.sequence.rounds == 1
    }
}

/// The stream has left a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathEnd {
    /// The sequence's number in the session.
    pub sequence: u64,
    /// The instructions that followed it.
    pub followed: u64,
    /// The instructions among them that were taken from the plan.
    pub hits: u64,
}

/// The stream has come to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStart {
    /// The sequence's number in the session.
    pub sequence: u64,
    /// Its instructions.
    pub length: u64,
    /// How often it was followed before, from its beginning to its end.
    pub rounds: u64,
}

/// The change of path that an instruction brings: its end comes before its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathChange {
    /// The path that the instruction left.
    pub end: Option<PathEnd>,
    /// The path that begins with the next instruction.
    pub start: Option<PathStart>,
}

impl PathChange {
    /// True if nothing has changed.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.end.is_none() && self.start.is_none()
    }
}

/// The hot paths of one session.
pub struct HotPaths {
    policy: CompilePolicy,
    /// Whether any signal asks for plans.
    is_asked: bool,
    detector: Detector,
    path: Option<Path>,
    /// The other sequences, the one that was used last at the end.
    known: Vec<Sequence>,
    /// By the hash of an anchor, the number of a sequence and the position after the anchor.
    entries: HashMap<u64, (u64, u32), KeyedState>,
    planned: PlannedInstructions,
    /// The instructions of all sequences.
    remembered: usize,
    found: u64,
    /// The gigaflops and gigabytes a second by which the estimates of plans were made.
    rates: (f64, f64),
    counts: SequenceCounts,
}

impl HotPaths {
    /// No paths yet.
    pub fn new(policy: CompilePolicy) -> HotPaths {
        HotPaths {
            policy,
            is_asked: false,
            detector: Detector::default(),
            path: None,
            known: Vec::new(),
            entries: HashMap::default(),
            planned: PlannedInstructions::default(),
            remembered: 0,
            found: 0,
            rates: (0.0, 0.0),
            counts: SequenceCounts::default(),
        }
    }

    /// Looks for sequences from now on, since a signal asks for plans.
    pub fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Whether sequences are looked for.
    #[inline]
    pub fn is_on(&self) -> bool {
        !cfg!(feature = "unobserved") && (self.policy != CompilePolicy::Asked || self.is_asked)
    }

    /// Whether the next instruction may be on a path with a plan, given what its signal says.
    #[inline]
    pub fn plans(&self, asked: Option<bool>) -> bool {
        self.path.is_some() && asked.unwrap_or(self.policy != CompilePolicy::Asked)
    }

    /// Forgets the plans if their estimates were made by other rates than these.
    #[inline]
    pub fn set_rates(&mut self, rates: (f64, f64)) {
        if self.rates != rates {
            self.rates = rates;
            self.forget_plans();
        }
    }

    #[cold]
    fn forget_plans(&mut self) {
        self.planned = PlannedInstructions::default();
        let path = self.path.iter_mut().map(|path| &mut path.sequence);
        path.chain(&mut self.known).for_each(|sequence| sequence.plan.fill(PlannedPosition::NEW));
    }

    /// The planned instructions and a number among them, if the next instruction of the present path is planned, is the
    /// one in `slots`, and its estimate is at most `cost_ns_max`: its step is then that of these slots. They are to be
    /// given back to [`followed`](Self::followed).
    #[inline]
    pub fn foretold(
        &mut self,
        slots: &[Slot],
        tensors: &TensorTable,
        cost_ns_max: u64,
    ) -> Option<(Vec<PlannedInstruction>, usize)> {
        let Path { sequence, at, .. } = self.path.as_mut()?;
        let PlannedPosition { entry, producers, .. } = &mut sequence.plan[*at];
        let entry = *entry as usize;
        let planned = self.planned.entries().get_mut(entry)?;
        if planned.cost_ns > cost_ns_max || !planned.bind(slots, tensors, producers, &sequence.results) {
            return None;
        }
        if sequence.rounds == 1 {
            // Now all instructions have results.
            *producers = producers_of(planned.tensor_operands(), &sequence.results, *at);
        }
        Some((std::mem::take(self.planned.entries()), entry))
    }

    /// Takes back what [`foretold`](Self::foretold) gave, when the instruction with this result went on its way.
    #[inline]
    pub fn followed(&mut self, planned: Vec<PlannedInstruction>, result: TensorId) -> PathChange {
        *self.planned.entries() = planned;
        let Some(path) = &mut self.path else { return PathChange::default() };
        let fingerprint = path.sequence.fingerprints[path.at];
        path.hits += 1;
        self.counts.hits += 1;
        self.counts.hot_instructions += 1;
        self.counts.hot_sequences += u64::from(path.advance(result));
        if self.detector.follow(fingerprint) { self.repeats() } else { PathChange::default() }
    }

    /// Adds an instruction that was validated as usual: its operation, the words of its result's dtype and sizes, and
    /// the ids of its result and its first tensor operands.
    pub fn add(&mut self, op: Op, words: [u64; 2], result: TensorId, operands: &[TensorId]) -> PathChange {
        let fingerprint = fingerprint(op, words, result, operands);
        if let Some(path) = &mut self.path {
            let PlannedPosition { entry, producers, .. } = &mut path.sequence.plan[path.at];
            let is_same = path.sequence.fingerprints[path.at] == fingerprint;
            if is_same && come_from(operands, producers, &path.sequence.results) {
                self.counts.misses += 1;
                self.counts.hot_instructions += 1;
                self.counts.hot_sequences += u64::from(path.advance(result));
                return if self.detector.follow(fingerprint) { self.repeats() } else { PathChange::default() };
            }
            if is_same {
                // Another instruction makes its operand now.
                (*entry, *producers) = (UNPLANNED, [FROM_OUTSIDE; TENSORS_MAX]);
            }
        }
        self.counts.cold_instructions += 1;
        let end = self.leave();
        let repeats = self.detector.add(fingerprint, self.policy == CompilePolicy::AtOnce);
        let start = if repeats { self.repeats().start } else { self.come_back() };
        PathChange { end, start }
    }

    /// Whether the next instruction, which the plan has not foretold, is to be kept in it.
    #[inline]
    pub fn learns(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.sequence.plan[path.at].attempts < ATTEMPTS_MAX)
    }

    /// Keeps the instruction that was [added](Self::add) last in the plan of its path: its slots, the shapes and dtypes
    /// of its tensor operands, their ids, its result, the step that it became, and its estimate.
    pub fn keep(
        &mut self,
        slots: &CopiedSlots,
        metas: impl Iterator<Item = Meta>,
        operands: &[TensorId],
        out: Meta,
        step: &Step,
        cost_ns: u64,
    ) {
        if self.planned.is_full() {
            self.forget_plans();
        }
        let Some(Path { sequence, at, .. }) = self.path.as_mut().filter(|path| path.followed > 0) else { return };
        let length = sequence.plan.len();
        let last = (*at + length - 1) % length;
        let Some(entry) = self.planned.add(slots, metas, out, step, cost_ns) else { return };
        let attempts = sequence.plan[last].attempts + 1;
        let producers = producers_of(operands, &sequence.results, last);
        sequence.plan[last] = PlannedPosition { entry, producers, attempts };
    }

    /// The counts so far.
    pub fn counts(&self) -> SequenceCounts {
        self.counts
    }

    /// Ends the present path.
    fn leave(&mut self) -> Option<PathEnd> {
        let Path { sequence, followed, hits, entry, .. } = self.path.take()?;
        let number = sequence.number;
        if let Some(entry) = entry.filter(|_| followed < ANCHOR as u64) {
            // The anchor comes before other instructions as well.
            self.entries.remove(&entry);
        }
        self.known.push(sequence);
        Some(PathEnd { sequence: number, followed, hits })
    }

    /// Goes to position `at` of a sequence.
    fn enter(&mut self, sequence: Sequence, at: usize, entry: Option<u64>) -> PathStart {
        let start = PathStart {
            sequence: sequence.number,
            length: sequence.fingerprints.len() as u64,
            rounds: sequence.rounds,
        };
        self.path = Some(Path { sequence, at, entry, followed: 0, hits: 0 });
        start
    }

    /// Goes to a known sequence whose anchor has just come.
    fn come_back(&mut self) -> Option<PathStart> {
        if self.entries.is_empty() {
            return None;
        }
        let anchor = self.detector.anchor()?;
        let (number, at) = *self.entries.get(&anchor)?;
        let index = self.known.iter().position(|sequence| sequence.number == number)?;
        let sequence = self.known.remove(index);
        Some(self.enter(sequence, at as usize, Some(anchor)))
    }

    /// Goes to the sequence that the detector says has come twice, or as far as is asked for.
    fn repeats(&mut self) -> PathChange {
        let period = self.detector.period();
        if self.path.as_ref().is_some_and(|path| path.followed >= period as u64) {
            // It is the present path that repeats.
            return PathChange::default();
        }
        let mut fingerprints: Vec<u32> = self.detector.last(period).collect();
        // The period may be several of a shorter one.
        let shortest = shortest_period(&fingerprints);
        fingerprints.drain(..period - shortest);
        let key = key_of(&fingerprints);
        if let Some(Path { sequence, at, .. }) = &self.path
            && sequence.key == key
            && rotation(&sequence.fingerprints, &fingerprints) == Some(*at)
        {
            // The stream came back to it within this period.
            return PathChange::default();
        }
        let end = self.leave();
        let known = self.known.iter().position(|sequence| sequence.key == key);
        if let Some(known) = known
            && let Some(at) = rotation(&self.known[known].fingerprints, &fingerprints)
        {
            let sequence = self.known.remove(known);
            return PathChange { end, start: Some(self.enter(sequence, at, None)) };
        }
        let sequence = self.remember(fingerprints, key);
        PathChange { end, start: Some(self.enter(sequence, 0, None)) }
    }

    /// Makes room for another sequence.
    fn remember(&mut self, fingerprints: Vec<u32>, key: u64) -> Sequence {
        let length = fingerprints.len();
        while !self.known.is_empty()
            && (self.known.len() >= SEQUENCES_MAX || self.remembered + length > REMEMBERED_INSTRUCTIONS_MAX)
        {
            let forgotten = self.known.remove(0);
            self.remembered -= forgotten.fingerprints.len();
            self.entries.retain(|_, (number, _)| *number != forgotten.number);
        }
        self.remembered += length;
        self.found += 1;
        self.counts.unique_sequences += 1;
        for at in 0..length {
            // Where two sequences have an anchor in common, the one that was found first is tried.
            if let Entry::Vacant(entry) = self.entries.entry(anchor_of(before(&fingerprints, at))) {
                entry.insert((self.found, at as u32));
            }
        }
        Sequence {
            number: self.found,
            fingerprints: fingerprints.into(),
            key,
            results: vec![0; length].into(),
            plan: vec![PlannedPosition::NEW; length].into(),
            rounds: 0,
        }
    }
}

/// The fingerprint of an instruction: its operation, its result's dtype and sizes, and which of its operands were made
/// just before. Of others it does not depend on when they were made, which changes for one that is never replaced.
#[inline]
fn fingerprint(op: Op, [low, high]: [u64; 2], result: TensorId, operands: &[TensorId]) -> u32 {
    let mut near = operands.len() as u64;
    for operand in operands {
        near = near << 8 | result.wrapping_sub(*operand).min(NEAR_MAX);
    }
    let hash = mix(mix(mix(mix(0, low), high), near), op as u64);
    (hash >> 32) as u32
}

/// The [`ANCHOR`] fingerprints before position `at` of a sequence that repeats.
fn before(fingerprints: &[u32], at: usize) -> impl Iterator<Item = u32> {
    let length = fingerprints.len();
    let first = at + ANCHOR * length - ANCHOR;
    (first..first + ANCHOR).map(move |position| fingerprints[position % length])
}

/// A hash of a sequence that is the same wherever the sequence begins.
fn key_of(fingerprints: &[u32]) -> u64 {
    let anchors = (0..fingerprints.len()).map(|at| anchor_of(before(fingerprints, at)));
    anchors.fold(0u64, |key, anchor| key.wrapping_add(scatter(anchor)))
}

/// For each prefix of `pattern`, the length of the longest shorter one that it ends with (Knuth, Morris, Pratt 1977).
fn borders(pattern: &[u32]) -> Vec<usize> {
    let mut borders = vec![0; pattern.len()];
    for at in 1..pattern.len() {
        let mut border = borders[at - 1];
        while border > 0 && pattern[at] != pattern[border] {
            border = borders[border - 1];
        }
        borders[at] = border + usize::from(pattern[at] == pattern[border]);
    }
    borders
}

/// The length of the shortest sequence of which `fingerprints` are a whole number of repetitions.
fn shortest_period(fingerprints: &[u32]) -> usize {
    let length = fingerprints.len();
    let period = length - borders(fingerprints).last().copied().unwrap_or(0);
    if length.is_multiple_of(period.max(1)) { period } else { length }
}

/// The position at which `wanted` begins in the repeated sequence `known`; none if it is another sequence.
fn rotation(known: &[u32], wanted: &[u32]) -> Option<usize> {
    if known.len() != wanted.len() {
        return None;
    }
    let borders = borders(wanted);
    let mut matched = 0;
    for (at, fingerprint) in known.iter().chain(known).enumerate() {
        while matched > 0 && wanted.get(matched) != Some(fingerprint) {
            matched = borders[matched - 1];
        }
        matched += usize::from(wanted[matched] == *fingerprint);
        if matched == wanted.len() {
            return Some((at + 1 - matched) % known.len());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: [u64; 2] = [0x0101, 0];

    /// A session's stream, without plans.
    struct Stream {
        paths: HotPaths,
        last: TensorId,
        starts: Vec<PathStart>,
        ends: Vec<PathEnd>,
    }

    impl Stream {
        fn new(policy: CompilePolicy) -> Stream {
            Stream { paths: HotPaths::new(policy), last: 0, starts: Vec::new(), ends: Vec::new() }
        }

        /// Adds an instruction whose result has `size` elements, on an operand that was made `distance` before.
        fn add(&mut self, size: u64, distance: TensorId) {
            self.last += 1;
            let change = self.paths.add(Op::Add, [F32[0], size], self.last, &[self.last.saturating_sub(distance)]);
            self.starts.extend(change.start);
            self.ends.extend(change.end);
        }

        fn add_all(&mut self, sizes: std::ops::Range<u64>, times: usize) {
            for size in std::iter::repeat_n(sizes, times).flatten() {
                self.add(size, 1);
            }
        }

        /// How many of the instructions of `add` follow a path.
        fn followed(&mut self, add: impl FnOnce(&mut Stream)) -> u64 {
            let before = self.paths.counts.hot_instructions;
            add(self);
            self.paths.counts.hot_instructions - before
        }
    }

    #[test]
    fn a_sequence_is_followed_from_its_third_time_on() {
        let mut stream = Stream::new(CompilePolicy::Repeated);
        stream.add_all(0..50, 6);
        let SequenceCounts { unique_sequences, hot_sequences, hot_instructions, cold_instructions, hits, misses } =
            stream.paths.counts();
        assert_eq!((unique_sequences, hot_sequences), (1, 1));
        assert_eq!((hot_instructions, cold_instructions, hits, misses), (200, 100, 0, 200));
        assert_eq!(stream.starts, [PathStart { sequence: 1, length: 50, rounds: 0 }]);
        stream.add(1000, 1);
        assert_eq!(stream.ends, [PathEnd { sequence: 1, followed: 200, hits: 0 }]);
    }

    #[test]
    fn at_once_is_when_the_beginning_has_come_twice() {
        let mut stream = Stream::new(CompilePolicy::AtOnce);
        assert_eq!(stream.followed(|stream| stream.add_all(0..50, 2)), 50 - ANCHOR as u64);
        assert_eq!(stream.followed(|stream| stream.add_all(0..50, 3)), 150);
        assert_eq!((stream.starts.len(), stream.ends.len()), (1, 0));
    }

    #[test]
    fn operands_made_by_other_instructions_make_another_sequence() {
        let mut stream = Stream::new(CompilePolicy::Repeated);
        for distance in [1, 2] {
            for size in std::iter::repeat_n(0..20, 4).flatten() {
                stream.add(size, distance);
            }
        }
        assert_eq!(stream.paths.counts().unique_sequences, 2);
    }

    #[test]
    fn an_outer_loop_replaces_the_inner_one() {
        let mut stream = Stream::new(CompilePolicy::Repeated);
        let step = |stream: &mut Stream| {
            stream.add_all(0..50, 4);
            stream.add_all(100..130, 1);
        };
        (0..4).for_each(|_| step(&mut stream));
        assert_eq!(stream.followed(step), 230);
        assert_eq!(stream.starts.last().unwrap().length, 230);
    }

    #[test]
    fn two_sequences_that_take_turns_are_both_followed() {
        let mut stream = Stream::new(CompilePolicy::Repeated);
        // The steps differ in number, so training and evaluation together are no sequence.
        let mut seed = 1u32;
        let mut times = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            3 + (seed >> 30) as usize
        };
        for _ in 0..4 {
            stream.add_all(0..100, times());
            stream.add_all(200..240, times());
        }
        let starts = stream.starts.len();
        let entering = 2 * ANCHOR as u64;
        assert!(stream.followed(|stream| stream.add_all(0..100, 3)) >= 300 - entering);
        assert!(stream.followed(|stream| stream.add_all(200..240, 3)) >= 120 - entering);
        assert!(stream.starts.len() <= starts + 3, "{:?}", &stream.starts[starts..]);
        let SequenceCounts { unique_sequences, .. } = stream.paths.counts();
        assert!((2..8).contains(&unique_sequences), "{unique_sequences}");
    }

    #[test]
    fn a_bounded_number_is_remembered() {
        let mut stream = Stream::new(CompilePolicy::Repeated);
        for n in 0..3 * SEQUENCES_MAX as u64 {
            stream.add_all(1000 * n..1000 * n + 20, 3);
        }
        assert_eq!(stream.paths.counts().unique_sequences, 3 * SEQUENCES_MAX as u64);
        assert!(stream.paths.known.len() <= SEQUENCES_MAX);
        let lengths = stream.paths.known.iter().chain(stream.paths.path.as_ref().map(|path| &path.sequence));
        assert_eq!(lengths.map(|sequence| sequence.fingerprints.len()).sum::<usize>(), stream.paths.remembered);
        for n in 0..5 {
            stream.add_all(10_000_000 * n..10_000_000 * n + 6000, 3);
        }
        assert!(stream.paths.remembered <= REMEMBERED_INSTRUCTIONS_MAX);
        assert!(stream.paths.entries.len() <= stream.paths.remembered);
    }

    #[test]
    fn sequences_are_the_same_wherever_they_begin() {
        let sequence: Vec<u32> = (0..30).map(|n| n % 7).collect();
        let mut turned = sequence.clone();
        turned.rotate_left(11);
        assert_eq!(key_of(&sequence), key_of(&turned));
        assert_eq!(rotation(&sequence, &turned), Some(11));
        assert_ne!(key_of(&sequence), key_of(&[1; 30]));
        assert_eq!(rotation(&sequence, &[1; 30]), None);
        assert_eq!([shortest_period(&[1, 2, 1, 2]), shortest_period(&[1, 2, 1]), shortest_period(&[5; 6])], [2, 3, 1]);
    }
}
