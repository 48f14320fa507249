//! Steps that were issued to a device and may not have ended: each is reported when the device has passed the fence
//! behind it.
//!
//! A fence is recorded where another session's steps begin, after [`UNFENCED_MAX`] steps, or after a quarter of the
//! time that may be queued. The device's time between two fences is charged to the one session between them, divided
//! among its steps by their estimates; a transfer is charged its own time on its stream.

use gt_backend::{Fence, FenceStatus};
use gt_ops::failure::Failure;
use std::collections::VecDeque;

use super::step_wire::{StepHeader, StepKind};

/// The most steps without a fence: each fence costs the device and the host about a microsecond.
const UNFENCED_MAX: usize = 64;

/// A transfer or a sync, which is complete when the device has passed its fence.
pub struct InFlightTransfer {
    /// The fence behind the transfer or sync.
    pub fence: Fence,
    /// Keeps the arena mapped that the transfer uses; none for a sync.
    _range: Option<gt_shm::ArenaSlice>,
}

impl InFlightTransfer {
    /// A transfer that uses `range` until the device has passed `fence`.
    pub fn new(fence: Fence, range: Option<gt_shm::ArenaSlice>) -> InFlightTransfer {
        InFlightTransfer { fence, _range: range }
    }
}

/// A step that the device may not have executed yet.
pub struct InFlightStep {
    /// The step's header.
    pub header: StepHeader,
    /// The result so far; a transfer may still fail.
    pub result: Result<(), Failure>,
    /// The step's transfer or sync, if it is one.
    pub transfer: Option<InFlightTransfer>,
    /// Whether a client waits for the report.
    pub awaited: bool,
}

impl InFlightStep {
    fn expected_ns(&self) -> u64 {
        self.header.expected_ns()
    }
    fn unreported_ns_max(&self) -> u64 {
        if let StepKind::Run(run) = self.header.kind { run.unreported_ns_max } else { 0 }
    }
}

/// The steps in flight, in the order of issue.
#[derive(Default)]
pub struct InFlightSteps {
    steps: VecDeque<InFlightStep>,
    /// The fences, each with the number of steps since the one before.
    fences: VecDeque<(Fence, usize)>,
    unfenced: usize,
    unfenced_ns: u64,
    awaited: usize,
}

impl InFlightSteps {
    /// Whether no step is in flight.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether a client waits for one of the steps.
    pub fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// Whether a fence is due before a step of `session`: the steps between two fences belong to one session, so that
    /// none is charged for another's time.
    pub fn wants_fence_before(&self, session: u64) -> bool {
        self.unfenced > 0 && self.steps.back().is_some_and(|last| last.header.owner.session != session)
    }

    /// Whether a fence is due behind the steps so far, so that the dispatcher hears of them in time to send more.
    pub fn wants_fence(&self) -> bool {
        let most_ns = self.steps.back().map_or(0, InFlightStep::unreported_ns_max);
        self.unfenced >= UNFENCED_MAX || self.unfenced > 0 && self.unfenced_ns >= most_ns
    }

    /// Whether steps follow the last fence.
    pub fn is_unfenced(&self) -> bool {
        self.unfenced > 0
    }

    /// Adds a step that has been issued.
    pub fn push(&mut self, step: InFlightStep) {
        self.unfenced += 1;
        self.unfenced_ns += step.expected_ns();
        self.awaited += usize::from(step.awaited);
        let fence = step.transfer.as_ref().map(|transfer| transfer.fence);
        self.steps.push_back(step);
        if let Some(fence) = fence {
            self.fenced(fence);
        }
    }

    /// Notes that `fence` is behind all steps so far.
    pub fn fenced(&mut self, fence: Fence) {
        match self.fences.back_mut() {
            Some((last, steps)) if *last == fence => *steps += self.unfenced,
            _ => self.fences.push_back((fence, self.unfenced)),
        }
        (self.unfenced, self.unfenced_ns) = (0, 0);
    }

    /// Removes the steps up to a fence that the device has passed; returns each with the time it took, nanoseconds.
    pub fn done(&mut self, reached: &FenceStatus) -> Vec<(InFlightStep, u64)> {
        let fences = self.fences.iter().take_while(|(fence, _)| *fence <= reached.fence).count();
        let count: usize = self.fences.drain(..fences).map(|(_, steps)| steps).sum();
        let mut done: Vec<(InFlightStep, u64)> = self.steps.drain(..count).map(|step| (step, 0)).collect();
        self.awaited -= done.iter().filter(|(step, _)| step.awaited).count();
        share(&mut done, reached.computed_ns);
        let is_its =
            |step: &InFlightStep| step.transfer.as_ref().is_some_and(|transfer| transfer.fence == reached.fence);
        if let Some((_, took_ns)) = done.iter_mut().find(|(step, _)| is_its(step)) {
            *took_ns += reached.copied_ns;
        }
        done
    }

    /// Removes all steps, because the device has nothing left to do.
    pub fn drain(&mut self) -> impl Iterator<Item = InFlightStep> {
        self.fences.clear();
        (self.unfenced, self.unfenced_ns, self.awaited) = (0, 0, 0);
        self.steps.drain(..)
    }
}

/// Divides the device's time among steps in proportion to their estimates. Transfers have times of their own.
fn share(steps: &mut [(InFlightStep, u64)], computed_ns: u64) {
    let computes = |step: &InFlightStep| step.transfer.is_none();
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
    use super::super::step::SessionSlot;
    use super::super::step_wire::RunHeader;
    use super::*;

    fn step(session: u64, origin: u64, expected_ns: u64, fence: Option<u64>) -> InFlightStep {
        let transfer = fence.map(|fence| InFlightTransfer::new(Fence(fence), None));
        let awaited = transfer.is_some();
        let run = RunHeader { command_slots: 0, origin, expected_ns, unreported_ns_max: 500_000, is_light: false };
        let header = StepHeader { owner: SessionSlot { session, slot: 0 }, kind: StepKind::Run(run) };
        InFlightStep { header, result: Ok(()), transfer, awaited }
    }

    fn reached(fence: u64, computed_ns: u64, copied_ns: u64) -> FenceStatus {
        FenceStatus { fence: Fence(fence), computed_ns, copied_ns, result: Ok(()) }
    }

    /// The origins of steps, and how long each took.
    fn told(done: Vec<(InFlightStep, u64)>) -> Vec<(u64, u64)> {
        done.into_iter().map(|(step, took_ns)| (step.header.origin(), took_ns)).collect()
    }

    #[test]
    fn the_devices_time_is_divided_by_the_estimates() {
        let mut steps = InFlightSteps::default();
        for (origin, expected_ns) in [(1, 1000), (2, 3000), (3, 0)] {
            steps.push(step(1, origin, expected_ns, None));
        }
        steps.fenced(Fence(7));
        assert_eq!(told(steps.done(&reached(6, 0, 0))), []);
        assert_eq!(told(steps.done(&reached(7, 10_000, 0))), [(1, 2500), (2, 7500), (3, 0)]);
        assert!(steps.is_empty());
    }

    #[test]
    fn a_transfer_takes_the_time_of_its_copy_and_none_of_the_computation() {
        let mut steps = InFlightSteps::default();
        steps.push(step(1, 1, 1000, None));
        steps.push(step(1, 2, 9000, Some(4)));
        assert!(steps.is_awaited());
        assert_eq!(told(steps.done(&reached(4, 600, 50))), [(1, 600), (2, 50)]);
        assert!(!steps.is_awaited());
    }

    #[test]
    fn each_session_has_fences_of_its_own() {
        let mut steps = InFlightSteps::default();
        steps.push(step(1, 1, 1000, None));
        assert!(!steps.wants_fence_before(1) && steps.wants_fence_before(2));
        steps.fenced(Fence(1));
        assert!(!steps.wants_fence_before(2), "nothing is unfenced");
        steps.push(step(2, 2, 1000, None));
        steps.fenced(Fence(2));
        // The estimates may be arbitrarily wrong.
        assert_eq!(told(steps.done(&reached(1, 5, 0))), [(1, 5)]);
        assert_eq!(told(steps.done(&reached(2, 900_000, 0))), [(2, 900_000)]);
    }

    #[test]
    fn a_fence_is_due_when_the_dispatcher_should_hear() {
        let mut steps = InFlightSteps::default();
        steps.push(step(1, 1, 499_999, None));
        assert!(!steps.wants_fence());
        steps.push(step(1, 2, 1, None));
        assert!(steps.wants_fence());
        steps.fenced(Fence(1));
        for origin in 0..UNFENCED_MAX as u64 {
            assert!(!steps.wants_fence());
            steps.push(step(1, origin, 1, None));
        }
        assert!(steps.wants_fence());
        // A device that is idle records no fence.
        assert_eq!(steps.drain().count(), 2 + UNFENCED_MAX);
        assert!(steps.is_empty() && !steps.wants_fence());
    }

    #[test]
    fn steps_without_work_share_the_fence_before_them() {
        let mut steps = InFlightSteps::default();
        steps.push(step(1, 1, 1000, Some(3)));
        // A free gives the device nothing to do.
        steps.push(step(1, 2, 0, None));
        steps.fenced(Fence(3));
        assert_eq!(told(steps.done(&reached(3, 0, 70))), [(1, 70), (2, 0)]);
    }
}
