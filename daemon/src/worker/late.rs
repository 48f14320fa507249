//! What a device was asked for and is not known to have done: steps in order, each to be reported when the device has
//! come to the fence behind it.

use gt_backend::{Fence, FenceStatus};
use gt_ops::failure::Failure;
use gt_ops::wire::Slot;
use std::collections::VecDeque;

use super::core::UnderWay;

/// Steps behind the last fence, before there is another: a fence costs the device and the host about a microsecond.
const UNFENCED_MAX: usize = 64;

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
    /// The fences behind steps: how many steps up to each, less those up to the one before.
    fences: VecDeque<(Fence, usize)>,
    unfenced: usize,
    unfenced_ns: u64,
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

    /// Whether steps without a fence should get one before a step of `session` comes: what the device computes between
    /// two fences is one session's, so that nobody pays for others.
    pub fn wants_fence_before(&self, session: u64) -> bool {
        self.unfenced > 0 && self.steps.back().is_some_and(|last| last.session() != session)
    }

    /// Whether so many steps are without a fence that they should get one. The dispatcher sends more when it hears of
    /// the steps up to a fence.
    pub fn wants_fence(&self) -> bool {
        let most_ns = self.steps.back().map_or(0, |last| last.head[5]);
        self.unfenced >= UNFENCED_MAX || self.unfenced > 0 && self.unfenced_ns >= most_ns
    }

    /// Whether there are steps without a fence.
    pub fn is_unfenced(&self) -> bool {
        self.unfenced > 0
    }

    /// A step that has been issued.
    pub fn push(&mut self, step: LateStep) {
        self.unfenced += 1;
        self.unfenced_ns += step.expected_ns();
        self.awaited += usize::from(step.awaited);
        let fence = step.under_way.as_ref().map(|under_way| under_way.fence);
        self.steps.push_back(step);
        if let Some(fence) = fence {
            self.fenced(fence);
        }
    }

    /// The device comes to `fence` behind all steps so far.
    pub fn fenced(&mut self, fence: Fence) {
        match self.fences.back_mut() {
            Some((last, steps)) if *last == fence => *steps += self.unfenced,
            _ => self.fences.push_back((fence, self.unfenced)),
        }
        (self.unfenced, self.unfenced_ns) = (0, 0);
    }

    /// The steps that are done now that the device has come to a fence, each with how long it took, nanoseconds.
    pub fn done(&mut self, reached: &FenceStatus) -> Vec<(LateStep, u64)> {
        let fences = self.fences.iter().take_while(|(fence, _)| *fence <= reached.fence).count();
        let count: usize = self.fences.drain(..fences).map(|(_, steps)| steps).sum();
        let mut done: Vec<(LateStep, u64)> = self.steps.drain(..count).map(|step| (step, 0)).collect();
        self.awaited -= done.iter().filter(|(step, _)| step.awaited).count();
        share(&mut done, reached.computed_ns);
        let is_its =
            |step: &LateStep| step.under_way.as_ref().is_some_and(|under_way| under_way.fence == reached.fence);
        if let Some((_, took_ns)) = done.iter_mut().find(|(step, _)| is_its(step)) {
            *took_ns += reached.copied_ns;
        }
        done
    }

    /// All steps, of which the device has done what there is to do.
    pub fn drain(&mut self) -> impl Iterator<Item = LateStep> {
        self.fences.clear();
        (self.unfenced, self.unfenced_ns, self.awaited) = (0, 0, 0);
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

    fn step(session: u64, origin: u64, expected_ns: u64, fence: Option<u64>) -> LateStep {
        let under_way = fence.map(|fence| UnderWay::at(Fence(fence)));
        let awaited = under_way.is_some();
        LateStep { head: [1, 0, session, origin, expected_ns, 500_000, 0, 0], result: Ok(()), under_way, awaited }
    }

    fn reached(fence: u64, computed_ns: u64, copied_ns: u64) -> FenceStatus {
        FenceStatus { fence: Fence(fence), computed_ns, copied_ns, result: Ok(()) }
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
        late.fenced(Fence(7));
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
        assert!(!late.wants_fence_before(1) && late.wants_fence_before(2));
        late.fenced(Fence(1));
        assert!(!late.wants_fence_before(2), "nothing is unfenced");
        late.push(step(2, 2, 1000, None));
        late.fenced(Fence(2));
        // However wrong the estimates are.
        assert_eq!(told(late.done(&reached(1, 5, 0))), [(1, 5)]);
        assert_eq!(told(late.done(&reached(2, 900_000, 0))), [(2, 900_000)]);
    }

    #[test]
    fn fences_come_when_the_dispatcher_should_hear() {
        let mut late = Late::default();
        late.push(step(1, 1, 499_999, None));
        assert!(!late.wants_fence());
        late.push(step(1, 2, 1, None));
        assert!(late.wants_fence());
        late.fenced(Fence(1));
        for origin in 0..UNFENCED_MAX as u64 {
            assert!(!late.wants_fence());
            late.push(step(1, origin, 1, None));
        }
        assert!(late.wants_fence());
        // A device that has done everything has no fence for it.
        assert_eq!(late.drain().count(), 2 + UNFENCED_MAX);
        assert!(late.is_empty() && !late.wants_fence());
    }

    #[test]
    fn steps_that_only_follow_a_mark_share_it() {
        let mut late = Late::default();
        late.push(step(1, 1, 1000, Some(3)));
        // A free: the device has nothing to do for it.
        late.push(step(1, 2, 0, None));
        late.fenced(Fence(3));
        assert_eq!(told(late.done(&reached(3, 0, 70))), [(1, 70), (2, 0)]);
    }
}
