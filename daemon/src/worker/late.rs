//! What a device was asked for and is not known to have done: steps in order, each to be reported when the device has
//! come to the mark behind it.

use gt_backend::{Mark, Reached};
use gt_ops::wire::{Failure, Slot};
use std::collections::VecDeque;

use super::core::UnderWay;

/// Steps behind the last mark, before there is another: a mark costs the device and the host about a microsecond.
const UNMARKED_MAX: usize = 64;

/// A step that the device may not have done.
pub struct LateStep {
    /// The head of its slots.
    pub head: Slot,
    /// What became of it so far.
    pub result: Result<(), Failure>,
    /// Its transfer, or what it waits for.
    pub under_way: Option<UnderWay>,
    /// Whether somebody waits for the report.
    pub awaited: bool,
}

impl LateStep {
    fn session(&self) -> u64 {
        self.head[2]
    }
    fn expected_ns(&self) -> u64 {
        self.head[4]
    }
}

/// See the module.
#[derive(Default)]
pub struct Late {
    steps: VecDeque<LateStep>,
    /// The marks behind steps: how many steps up to each, less those up to the one before.
    marks: VecDeque<(Mark, usize)>,
    unmarked: usize,
    unmarked_ns: u64,
    awaited: usize,
}

impl Late {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether somebody waits for one of them.
    pub fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// Whether steps without a mark should get one before a step of `session` comes: what the device computes between
    /// two marks is one session's, so that nobody pays for others.
    pub fn wants_mark_before(&self, session: u64) -> bool {
        self.unmarked > 0 && self.steps.back().is_some_and(|last| last.session() != session)
    }

    /// Whether so many steps are without a mark that they should get one. The dispatcher sends more when it hears of
    /// the steps up to a mark.
    pub fn wants_mark(&self) -> bool {
        let most_ns = self.steps.back().map_or(0, |last| last.head[5]);
        self.unmarked >= UNMARKED_MAX || self.unmarked > 0 && self.unmarked_ns >= most_ns
    }

    /// Whether there are steps without a mark.
    pub fn is_unmarked(&self) -> bool {
        self.unmarked > 0
    }

    /// A step that has been issued.
    pub fn push(&mut self, step: LateStep) {
        self.unmarked += 1;
        self.unmarked_ns += step.expected_ns();
        self.awaited += usize::from(step.awaited);
        let mark = step.under_way.as_ref().map(|under_way| under_way.mark);
        self.steps.push_back(step);
        if let Some(mark) = mark {
            self.marked(mark);
        }
    }

    /// The device comes to `mark` behind all steps so far.
    pub fn marked(&mut self, mark: Mark) {
        match self.marks.back_mut() {
            Some((last, steps)) if *last == mark => *steps += self.unmarked,
            _ => self.marks.push_back((mark, self.unmarked)),
        }
        (self.unmarked, self.unmarked_ns) = (0, 0);
    }

    /// The steps that are done now that the device has come to a mark, each with how long it took, nanoseconds.
    pub fn done(&mut self, reached: &Reached) -> Vec<(LateStep, u64)> {
        let marks = self.marks.iter().take_while(|(mark, _)| *mark <= reached.mark).count();
        let count: usize = self.marks.drain(..marks).map(|(_, steps)| steps).sum();
        let mut done: Vec<(LateStep, u64)> = self.steps.drain(..count).map(|step| (step, 0)).collect();
        self.awaited -= done.iter().filter(|(step, _)| step.awaited).count();
        share(&mut done, reached.computed_ns);
        let is_its = |step: &LateStep| step.under_way.as_ref().is_some_and(|under_way| under_way.mark == reached.mark);
        if let Some((_, took_ns)) = done.iter_mut().find(|(step, _)| is_its(step)) {
            *took_ns += reached.copied_ns;
        }
        done
    }

    /// All steps, of which the device has done what there is to do.
    pub fn drain(&mut self) -> impl Iterator<Item = LateStep> {
        self.marks.clear();
        (self.unmarked, self.unmarked_ns, self.awaited) = (0, 0, 0);
        self.steps.drain(..)
    }
}

/// Divides what the device computed among steps by what was expected of each. Transfers are no part of it.
fn share(steps: &mut [(LateStep, u64)], computed_ns: u64) {
    let computes = |step: &LateStep| step.under_way.is_none();
    let expected_ns: u64 = steps.iter().filter(|(step, _)| computes(step)).map(|(step, _)| step.expected_ns()).sum();
    if expected_ns == 0 {
        if let Some((_, took_ns)) = steps.last_mut() {
            *took_ns = computed_ns;
        }
        return;
    }
    let mut left_ns = computed_ns;
    let mut to_come_ns = expected_ns;
    for (step, took_ns) in steps.iter_mut().filter(|(step, _)| computes(step)) {
        let part = u128::from(left_ns) * u128::from(step.expected_ns()) / u128::from(to_come_ns.max(1));
        *took_ns = part as u64;
        left_ns -= *took_ns;
        to_come_ns -= step.expected_ns();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(session: u64, origin: u64, expected_ns: u64, mark: Option<u64>) -> LateStep {
        let under_way = mark.map(|mark| UnderWay::at(Mark(mark)));
        let awaited = under_way.is_some();
        LateStep { head: [1, 0, session, origin, expected_ns, 500_000, 0, 0], result: Ok(()), under_way, awaited }
    }

    fn reached(mark: u64, computed_ns: u64, copied_ns: u64) -> Reached {
        Reached { mark: Mark(mark), computed_ns, copied_ns, result: Ok(()) }
    }

    /// The names of steps and how long they took.
    fn told(done: Vec<(LateStep, u64)>) -> Vec<(u64, u64)> {
        done.into_iter().map(|(step, took_ns)| (step.head[3], took_ns)).collect()
    }

    #[test]
    fn what_was_computed_is_divided_by_what_was_expected() {
        let mut late = Late::default();
        for (origin, expected_ns) in [(1, 1000), (2, 3000), (3, 0)] {
            late.push(step(1, origin, expected_ns, None));
        }
        late.marked(Mark(7));
        assert_eq!(told(late.done(&reached(6, 0, 0))), []);
        assert_eq!(told(late.done(&reached(7, 10_000, 0))), [(1, 2500), (2, 7500), (3, 0)]);
        assert!(late.is_empty());
    }

    #[test]
    fn a_transfer_takes_what_it_is_on_its_way_and_nothing_of_what_is_computed() {
        let mut late = Late::default();
        late.push(step(1, 1, 1000, None));
        late.push(step(1, 2, 9000, Some(4)));
        assert!(late.is_awaited());
        assert_eq!(told(late.done(&reached(4, 600, 50))), [(1, 600), (2, 50)]);
        assert!(!late.is_awaited());
    }

    #[test]
    fn each_session_has_marks_of_its_own() {
        let mut late = Late::default();
        late.push(step(1, 1, 1000, None));
        assert!(!late.wants_mark_before(1) && late.wants_mark_before(2));
        late.marked(Mark(1));
        assert!(!late.wants_mark_before(2), "nothing is unmarked");
        late.push(step(2, 2, 1000, None));
        late.marked(Mark(2));
        // However wrong the estimates are.
        assert_eq!(told(late.done(&reached(1, 5, 0))), [(1, 5)]);
        assert_eq!(told(late.done(&reached(2, 900_000, 0))), [(2, 900_000)]);
    }

    #[test]
    fn marks_come_when_the_dispatcher_should_hear() {
        let mut late = Late::default();
        late.push(step(1, 1, 499_999, None));
        assert!(!late.wants_mark());
        late.push(step(1, 2, 1, None));
        assert!(late.wants_mark());
        late.marked(Mark(1));
        for origin in 0..UNMARKED_MAX as u64 {
            assert!(!late.wants_mark());
            late.push(step(1, origin, 1, None));
        }
        assert!(late.wants_mark());
        // A device that has done everything has no mark for it.
        assert_eq!(late.drain().count(), 2 + UNMARKED_MAX);
        assert!(late.is_empty() && !late.wants_mark());
    }

    #[test]
    fn steps_that_only_follow_a_mark_share_it() {
        let mut late = Late::default();
        late.push(step(1, 1, 1000, Some(3)));
        // A free: the device has nothing to do for it.
        late.push(step(1, 2, 0, None));
        late.marked(Mark(3));
        assert_eq!(told(late.done(&reached(3, 0, 70))), [(1, 70), (2, 0)]);
    }
}
