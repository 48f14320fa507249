//! The worker's loop: takes steps from its queue, executes them in order and reports, on whatever thread it runs.

use super::core::Core;
use super::exec_failure::{failure, lost_device};
use super::fused_steps::Job;
use super::fusion_window::{STAGES_MAX, is_fusible};
use super::in_flight::{InFlightStep, InFlightSteps};
use super::queue::{LIGHT_NS_MAX, WORK_SLOTS};
use super::rank_assignment::RankAssignment;
use super::session_tensors::SessionShared;
use super::step::SessionSlot;
use super::step::{completes, subject};
use super::step_wire::{MemoryLimits, ReportWords, StepHeader, StepKind, WorkerLoss};
use gt_backend::{Backend, preemptible};
use gt_ops::failure::Failure;
use gt_ops::wire::{Command, Completion, SLOTS_MAX, Slot, decode};
use gt_ops::{DType, TensorId};
use gt_shm::Full;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of reports after which they are published, if not sooner. Each publication to a sleeping dispatcher takes
/// a core from the kernels on a small machine: with 16, one training step of a small GPT woke the dispatcher a hundred
/// times, with 64 fifty times.
const REPORTS_HELD_MAX: u32 = 64;
/// The slots that the worker looks at together: a full window of instructions with a free and an extension each, or any
/// step.
const WINDOW_SLOTS: usize = 5 * STAGES_MAX + 2 * SLOTS_MAX;
/// The steps that are decoded before it is asked whether a window is whole; then twice as many, and so on.
const WINDOW_STEPS_FIRST: usize = 8;
/// The most slots of steps that the worker takes from the ring while a step runs: as many as the ring has.
const AHEAD_SLOTS: usize = WORK_SLOTS as usize;
/// The longest time that light steps take at one preemption point, beyond the last of them.
const PREEMPTION_MAX: Duration = Duration::from_nanos(LIGHT_NS_MAX);
/// The wait between attempts to write a report while the ring is full.
const REPORTS_FULL_NAP: Duration = Duration::from_micros(50);

/// Steps between polls of the device while nobody waits for a report.
const UNPOLLED_MAX: u32 = 16;
/// How long a backend may put work off to combine it with later steps, if none come.
const HOLD: Duration = Duration::from_micros(10);
/// How long an idle worker polls its device without sleeping.
const SPIN: Duration = Duration::from_micros(50);
/// After [`SPIN`], each sleep between polls lasts as long as the worker has waited, divided by this: it notices the end
/// of the device's work late by at most an eighth of the time.
const NAP_SHARE: u32 = 8;
/// The longest sleep between polls.
const NAP_MAX: Duration = Duration::from_millis(1);
/// How long to sleep while the device has nothing to do. New steps end the sleep.
const NAP: Duration = Duration::from_secs(3600);

/// The worker's ends of the two rings, and the source of the sessions and groups that come beside the rings.
pub trait Transport {
    /// Copies waiting slots to the front of `out`, and returns how many.
    fn pop(&mut self, out: &mut [Slot]) -> usize;

    /// Waits for slots, for at most `timeout`; may return early. False if no more will come.
    fn wait(&mut self, timeout: Duration) -> bool;

    /// Writes a report. The dispatcher sees it after the next [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`Full`] if there is no room.
    fn push(&mut self, report: Slot) -> Result<(), Full>;

    /// How many reports were pushed and not published.
    fn unpublished_slots(&self) -> u32;

    /// Publishes the reports to the dispatcher, and wakes it if it sleeps.
    fn publish(&mut self);

    /// The shared state of a session that begins. `loss` tells how it lost the tensors that it had before.
    fn open(&mut self, session: u64, loss: Option<WorkerLoss>) -> Arc<SessionShared>;

    /// Applies changed limits to a session's memory, unless the worker shares the dispatcher's counts.
    fn limit(&mut self, _session: u64, _limits: MemoryLimits) {}

    /// Forgets a session that has ended.
    fn close(&mut self, session: u64);

    /// Takes the next message, which comes beside the rings. False if that fails.
    fn message(&mut self) -> bool;

    /// Called when new sessions compute on this worker, which has registered itself.
    fn registered(&mut self) {}

    /// The next rank in a group that the dispatcher assigned.
    fn rank(&mut self) -> Option<RankAssignment>;
}

/// The number of slots of the first step in `slots`, if all of them are there.
pub fn whole_step(slots: &[Slot]) -> Option<usize> {
    let len = StepHeader::step_slots(slots.first()?);
    (len <= slots.len()).then_some(len)
}

/// Steps that were taken from the ring, in order. The one that runs stays in front until it has ended.
struct StepBuffer {
    slots: Vec<Slot>,
    start: usize,
    end: usize,
}

impl StepBuffer {
    fn new() -> StepBuffer {
        StepBuffer { slots: vec![[0; 8]; WINDOW_SLOTS], start: 0, end: 0 }
    }

    fn waiting(&self) -> &[Slot] {
        &self.slots[self.start..self.end]
    }

    /// Removes `len` slots from the front.
    fn advance(&mut self, len: usize) {
        self.start += len;
    }

    /// Removes `len` slots from the one at `at` on.
    fn remove(&mut self, at: usize, len: usize) {
        let at = self.start + at;
        self.slots.copy_within(at + len..self.end, at);
        self.end -= len;
    }

    /// Adds waiting slots as far as there is room, and returns how many.
    fn refill(&mut self, transport: &mut impl Transport) -> usize {
        let popped = transport.pop(&mut self.slots[self.end..]);
        self.end += popped;
        popped
    }

    /// Moves the waiting slots to the beginning.
    fn compact(&mut self) {
        if self.start > 0 {
            self.slots.copy_within(self.start..self.end, 0);
        }
        (self.start, self.end) = (0, self.end - self.start);
    }

    /// Makes room to look past the steps that wait, if all room is used.
    fn look_ahead(&mut self) {
        if self.end == self.slots.len() {
            self.compact();
            let doubled = (2 * self.slots.len()).min(AHEAD_SLOTS).max(self.slots.len());
            if 2 * self.end > self.slots.len() {
                self.slots.resize(doubled, [0; 8]);
            }
        }
    }
}

/// A worker: a core and the loop that feeds it.
pub struct Worker<B: Backend, T: Transport> {
    core: Arc<Mutex<Core<B>>>,
    transport: T,
    steps: StepBuffer,
    /// Expected time of the steps whose reports are not published.
    unreported_ns: u64,
    in_flight: InFlightSteps,
    is_asynchronous: bool,
    /// Steps since the device was last polled.
    unpolled: u32,
    /// Since when the worker has had nothing to do but wait for its device.
    waits: Option<Instant>,
}

impl<B: Backend, T: Transport> Worker<B, T> {
    /// A worker; [`run`](Self::run) starts it.
    pub fn new(core: Arc<Mutex<Core<B>>>, transport: T) -> Worker<B, T> {
        let is_asynchronous = core.lock().unwrap_or_else(PoisonError::into_inner).backend().is_asynchronous();
        let in_flight = InFlightSteps::default();
        let steps = StepBuffer::new();
        Worker { core, transport, steps, unreported_ns: 0, in_flight, is_asynchronous, unpolled: 0, waits: None }
    }

    /// Works until it is told to end, or until its device is lost. If the device was lost, returns its error: the steps
    /// without a report then count as not executed.
    pub fn run(mut self) -> Option<Box<str>> {
        loop {
            while let Some(len) = whole_step(self.steps.waiting()) {
                self.waits = None;
                let taken = self.step(len);
                if let Some(taken) = taken {
                    self.steps.advance(taken);
                    self.unpolled += 1;
                    if self.in_flight.is_awaited() || self.unpolled >= UNPOLLED_MAX {
                        self.poll(false);
                    }
                }
                if taken.is_none() || lost_device().is_some() {
                    return self.end();
                }
            }
            self.steps.compact();
            if self.steps.refill(&mut self.transport) == 0 && !self.wait() {
                return self.end();
            }
        }
    }

    /// Ends: waits for steps in flight and publishes their reports, unless the device is lost.
    fn end(mut self) -> Option<Box<str>> {
        self.poll(true);
        let lost = lost_device();
        if lost.is_none() {
            self.publish();
        }
        lost
    }

    /// Waits for more steps or for the device. False if no more steps will come.
    fn wait(&mut self) -> bool {
        if self.in_flight.is_unfenced() {
            self.fence();
        }
        if self.poll(false) {
            self.waits = None;
        }
        self.publish();
        if lost_device().is_some() {
            return false;
        }
        // A doorbell announces steps, but the device has to be polled.
        let waited = self.waits.get_or_insert_with(Instant::now).elapsed();
        if self.in_flight.is_empty() || waited >= HOLD {
            let flushed = self.core.lock().unwrap_or_else(PoisonError::into_inner).flush();
            if let Err(error) = flushed {
                tracing::error!(target: "gtd::worker", %error, "what was put off could not begin");
            }
        }
        if self.in_flight.is_empty() {
            return self.transport.wait(NAP);
        }
        if waited < SPIN {
            std::hint::spin_loop();
            return true;
        }
        self.transport.wait((waited / NAP_SHARE).min(NAP_MAX))
    }

    /// Puts a fence behind the steps that have been issued.
    fn fence(&mut self) {
        let fence = self.core.lock().unwrap_or_else(PoisonError::into_inner).fence();
        match fence {
            Ok(Some(fence)) => self.in_flight.fenced(fence),
            Ok(None) => {
                let done: Vec<_> = self.in_flight.drain().collect();
                done.into_iter().for_each(|step| self.report_in_flight(step, 0));
            }
            Err(error) => tracing::error!(target: "gtd::worker", %error, "the device could not be fenced"),
        }
    }

    /// Reports the steps that the device has completed; if `wait`, waits for all of them. True if any were complete.
    fn poll(&mut self, wait: bool) -> bool {
        if wait && self.in_flight.is_unfenced() {
            self.fence();
        }
        let mut any = false;
        self.unpolled = 0;
        while !self.in_flight.is_empty() {
            let passed = self.core.lock().unwrap_or_else(PoisonError::into_inner).poll_fence(wait);
            let Ok(Some(passed)) = passed else { break };
            any = true;
            for (step, took_ns) in self.in_flight.done(&passed) {
                let transferred = step.transfer.as_ref().is_some_and(|transfer| transfer.fence == passed.fence);
                let found = if transferred { passed.result.clone() } else { Ok(()) };
                let result = step.result.and(found.map_err(|error| failure(error, step.header.origin(), None)));
                self.report_in_flight(InFlightStep { result, ..step }, took_ns);
            }
        }
        any
    }

    fn report_in_flight(&mut self, step: InFlightStep, took_ns: u64) {
        let InFlightStep { header, result, awaited, .. } = step;
        let used = self.core.lock().unwrap_or_else(PoisonError::into_inner).used(header.owner.slot);
        self.report(&header, result, used, Duration::from_nanos(took_ns), awaited, 0);
    }

    /// Executes the step in the `len` slots in front, and those behind it that are fused with it. Returns how many
    /// slots they took; none if the worker must end or the device is lost.
    fn step(&mut self, len: usize) -> Option<usize> {
        let header = match StepHeader::decode(&self.steps.waiting()[0]) {
            Ok(header) => header,
            Err(error) => {
                tracing::error!(target: "gtd::worker", %error, "the worker ends");
                return None;
            }
        };
        let StepHeader { owner, kind } = header;
        let (slot, origin) = (owner.slot, header.origin());
        let command = match kind {
            StepKind::Run(_) => Some(decode(&self.steps.waiting()[1..len])),
            _ => None,
        };
        let reshards = matches!(command, Some(Ok(Command::Reshard(_))));
        // Other workers may keep this one waiting, so what clients wait for is reported first.
        if self.in_flight.is_awaited() && (reshards || matches!(kind, StepKind::Join { .. })) {
            self.poll(true);
        }
        if self.in_flight.is_unfenced() && (reshards || self.in_flight.wants_fence_before(owner.session)) {
            self.fence();
        }
        // Reports must not wait for a long step: the dispatcher would take the steps before it for unfinished.
        if let StepKind::Run(run) = kind
            && run.expected_ns >= run.unreported_ns_max
            && self.transport.unpublished_slots() > 0
        {
            self.publish();
        }
        let shared_core = self.core.clone();
        let mut core = shared_core.lock().unwrap_or_else(PoisonError::into_inner);
        let mut awaited = false;
        let mut transfer = None;
        let begun = Instant::now();
        let mut overtook = Duration::ZERO;
        let mut result = Ok(());
        match command.transpose() {
            Ok(None) if !self.control(&mut core, owner, kind) => return None,
            Ok(None) => {}
            Ok(Some(command)) => {
                if core.opens_window(slot, &command) {
                    self.steps.refill(&mut self.transport);
                    return self.window(core, Job { slot, origin, command }, header, len);
                }
                awaited = completes(subject(&command));
                let started;
                let start = |core: &mut Core<B>| core.start(slot, origin, &command, None);
                (started, overtook) = self.preemptible(&mut core, Some(slot), header.expected_ns(), start);
                result = started.map(|started| transfer = started);
            }
            Err(error) => tracing::error!(target: "gtd::worker", %error, "a step that makes no sense"),
        }
        if lost_device().is_some() {
            return None;
        }
        if !self.is_asynchronous {
            let used = core.used(slot);
            drop(core);
            self.report(&header, result, used, begun.elapsed().saturating_sub(overtook), awaited, 0);
            return Some(len);
        }
        drop(core);
        self.issued(InFlightStep { header, result, transfer, awaited }, reshards);
        Some(len)
    }

    /// Executes a step without a command. False if the worker must end.
    fn control(&mut self, core: &mut Core<B>, owner: SessionSlot, kind: StepKind) -> bool {
        match kind {
            StepKind::Run(_) | StepKind::Stop => return false,
            StepKind::Open { loss } => core.open(owner.slot, self.transport.open(owner.session, loss)),
            StepKind::Close => {
                self.transport.close(owner.session);
                core.close(owner.slot);
            }
            StepKind::Limit(limits) => self.transport.limit(owner.session, limits),
            StepKind::ResetPeak => core.reset_peak(owner.slot),
            StepKind::DropArena { number } => core.drop_arena(owner.slot, number),
            StepKind::Trim => core.trim(),
            StepKind::Message => {
                if !self.transport.message() {
                    return false;
                }
                core.register_arenas(owner.slot);
            }
            StepKind::Join { workers } => {
                let rank = self.transport.rank();
                self.preemptible(core, None, 0, |core| core.join(workers, rank));
            }
            StepKind::Leave { workers, gone } => core.leave(workers, gone),
            StepKind::Registered => self.transport.registered(),
        }
        true
    }

    /// Executes the step in front by `work`, and at its preemption points light steps of other sessions than the one at
    /// `slot`. Returns also how long these took.
    fn preemptible<R>(
        &mut self,
        core: &mut Core<B>,
        slot: Option<u32>,
        expected_ns: u64,
        work: impl FnOnce(&mut Core<B>) -> R,
    ) -> (R, Duration) {
        let Some(mut light) = core.lend(slot) else { return (work(core), Duration::ZERO) };
        let is_heavy = expected_ns > LIGHT_NS_MAX;
        let mut preemption = Preemption {
            worker: self,
            core: &mut light,
            slot,
            is_heavy,
            begun: Instant::now(),
            looks: true,
            ran: Duration::ZERO,
        };
        let result = preemptible(&mut || preemption.run(), || work(core));
        let ran = preemption.ran;
        core.take_back(slot, light);
        (result, ran)
    }

    /// Notes a step that was issued to the device. A fence follows at once if a client waits for the step or its time
    /// is to be measured `apart`, otherwise soon.
    fn issued(&mut self, step: InFlightStep, apart: bool) {
        let apart = apart || step.awaited;
        self.in_flight.push(step);
        if self.in_flight.wants_fence() || apart && self.in_flight.is_unfenced() {
            self.fence();
        }
    }

    /// Executes `first`, the step with `header` in the `len` slots in front, with the queued instructions that are
    /// fused with it. Returns the same as [`step`](Self::step).
    fn window(
        &mut self,
        mut core: MutexGuard<'_, Core<B>>,
        first: Job,
        header: StepHeader,
        len: usize,
    ) -> Option<usize> {
        // An instruction that is never fused gains from the frees behind it alone.
        let alone = matches!(&first.command, Command::Op(instruction) if !is_fusible(instruction, DType::F32));
        let room = 2 * WINDOW_STEPS_FIRST;
        let (mut jobs, mut headers) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let mut ends = Vec::with_capacity(room);
        jobs.push(first);
        headers.push(header);
        ends.push(len);
        let mut at = len;
        let slots = self.steps.waiting();
        let slots = &slots[..slots.len().min(WINDOW_SLOTS)];
        // Steps are decoded as far as a window may go: most windows are short, and the queue behind them is long.
        let mut enough = WINDOW_STEPS_FIRST;
        while let Some(len) = whole_step(&slots[at..]) {
            if jobs.len() == enough {
                if core.is_window_whole(&jobs) {
                    break;
                }
                enough *= 2;
            }
            let Ok(header @ StepHeader { owner, kind: StepKind::Run(run) }) = StepHeader::decode(&slots[at]) else {
                break;
            };
            let Ok(command @ (Command::Op(_) | Command::Free { .. })) = decode(&slots[at + 1..at + len]) else { break };
            if alone && matches!(command, Command::Op(_)) {
                break;
            }
            jobs.push(Job { slot: owner.slot, origin: run.origin, command });
            headers.push(header);
            at += len;
            ends.push(at);
        }
        let mut results = Vec::with_capacity(jobs.len());
        let begun = Instant::now();
        let run = |core: &mut Core<B>| core.run_window(&jobs, |result| results.push(result));
        let (count, overtook) = self.preemptible(&mut core, Some(header.owner.slot), header.expected_ns(), run);
        if lost_device().is_some() {
            return None;
        }
        let used = core.used(jobs[0].slot);
        drop(core);
        // The first report carries the time of all that were fused.
        let mut took = begun.elapsed().saturating_sub(overtook);
        for (header, result) in headers.into_iter().zip(results) {
            if self.is_asynchronous {
                self.issued(InFlightStep { header, result, transfer: None, awaited: false }, false);
            } else {
                self.report(&header, result, used, std::mem::take(&mut took), false, 0);
            }
        }
        Some(ends[count - 1])
    }

    /// Reports how a step ended. `used` has the bytes of all sessions' tensors, those of the step's session, and the
    /// session's peak. `overtaken` is the number of older steps that have not ended.
    fn report(
        &mut self,
        header: &StepHeader,
        result: Result<(), Failure>,
        used: [usize; 3],
        took: Duration,
        awaited: bool,
        overtaken: usize,
    ) {
        let [memory_bytes, held_bytes, peak_bytes] = used.map(|bytes| bytes as u64);
        let report = ReportWords {
            completion: Completion { token: header.origin(), result },
            took_ns: took.as_nanos() as u64,
            held_bytes,
            peak_bytes: result.is_ok().then_some(peak_bytes),
            memory_bytes,
            overtaken: overtaken as u16,
        };
        let slot = report.encode();
        while self.transport.push(slot).is_err() {
            self.publish();
            std::thread::sleep(REPORTS_FULL_NAP);
        }
        let mut is_due = awaited || self.transport.unpublished_slots() >= REPORTS_HELD_MAX;
        if let StepKind::Run(run) = header.kind {
            self.unreported_ns += run.expected_ns;
            is_due |= self.unreported_ns >= run.unreported_ns_max;
        }
        if is_due {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.unreported_ns = 0;
        self.transport.publish();
    }
}

/// The preemption of a step: the light steps of other sessions that run at its preemption points.
struct Preemption<'a, B: Backend, T: Transport> {
    worker: &'a mut Worker<B, T>,
    /// The core of all other sessions.
    core: &'a mut Core<B>,
    /// The slot of the step's session, if it is a session's.
    slot: Option<u32>,
    /// Whether the step is expected to take more than [`LIGHT_NS_MAX`], or took so long.
    is_heavy: bool,
    begun: Instant,
    /// Whether steps that were taken from the ring are still to be looked at.
    looks: bool,
    /// The time of the light steps so far.
    ran: Duration,
}

impl<B: Backend, T: Transport> Preemption<'_, B, T> {
    /// Runs the light steps that need not wait, in the order of the queue. Called at each preemption point, so it has
    /// little to do during a step that is not heavy, and while nothing comes.
    fn run(&mut self) {
        let begun = Instant::now();
        self.is_heavy |= (begun - self.begun).saturating_sub(self.ran) > PREEMPTION_MAX;
        if !self.is_heavy {
            return;
        }
        self.worker.steps.look_ahead();
        self.looks |= self.worker.steps.refill(&mut self.worker.transport) > 0;
        if self.looks {
            self.looks = self.overtake(begun);
            self.ran += begun.elapsed();
        }
    }

    /// As [`run`](Self::run). False if all steps that were taken from the ring must wait for the preempted one.
    fn overtake(&mut self, begun: Instant) -> bool {
        // A session's steps keep their order, and so do the messages that come beside the ring.
        let mut waiting = Vec::from_iter(self.slot);
        let (mut message_waits, mut any) = (false, false);
        // The preempted step is in front.
        let (mut at, mut overtaken) = (whole_step(self.worker.steps.waiting()).unwrap_or(0), 1);
        while let Some(len) = whole_step(&self.worker.steps.waiting()[at..]) {
            let Ok(header) = StepHeader::decode(&self.worker.steps.waiting()[at]) else { break };
            let is_ready = match header.kind {
                StepKind::Run(run) => run.is_light || self.is_cancelled(&header, at, len),
                StepKind::Message => !message_waits,
                StepKind::Open { .. } | StepKind::Close | StepKind::Limit(_) => true,
                StepKind::ResetPeak | StepKind::DropArena { .. } => true,
                StepKind::Stop => break,
                StepKind::Join { .. } | StepKind::Leave { .. } | StepKind::Trim | StepKind::Registered => false,
            };
            if !is_ready || waiting.contains(&header.owner.slot) {
                message_waits |= matches!(header.kind, StepKind::Message | StepKind::Join { .. });
                // A step without a session keeps none waiting.
                if header.owner.session != 0 {
                    waiting.push(header.owner.slot);
                }
                at += len;
                overtaken += 1;
                continue;
            }
            if begun.elapsed() >= PREEMPTION_MAX {
                self.worker.publish();
                return true;
            }
            self.light_step(&header, at, len, overtaken);
            any = true;
        }
        if any {
            self.worker.publish();
        }
        false
    }

    /// Whether the step in the `len` slots at `at` is cancelled, so that it takes no time.
    fn is_cancelled(&self, header: &StepHeader, at: usize, len: usize) -> bool {
        self.core.cancels(header.owner.slot, header.origin())
            && decode(&self.worker.steps.waiting()[at + 1..at + len]).is_ok_and(|command| match command {
                Command::Op(_) => true,
                // Other workers wait for this one.
                Command::Reshard(_) => false,
                _ => self.core.cancels(header.owner.slot, TensorId::MAX - 1),
            })
    }

    /// Executes the step in the `len` slots at `at`, before `overtaken` older ones, and removes it from the buffer.
    fn light_step(&mut self, header: &StepHeader, at: usize, len: usize, overtaken: usize) {
        let Preemption { worker, core, .. } = self;
        let begun = Instant::now();
        let slot = header.owner.slot;
        let (mut result, mut awaited) = (Ok(()), false);
        match header.kind {
            StepKind::Run(run) => match decode(&worker.steps.waiting()[at + 1..at + len]) {
                Ok(command) => {
                    awaited = completes(subject(&command));
                    result = core.run(slot, run.origin, &command, None);
                }
                Err(error) => tracing::error!(target: "gtd::worker", %error, "a step that makes no sense"),
            },
            kind => {
                if !worker.control(core, header.owner, kind) {
                    tracing::error!(target: "gtd::worker", ?kind, "a step between others failed");
                }
            }
        }
        worker.steps.remove(at, len);
        let used = core.used(slot);
        worker.report(header, result, used, begun.elapsed(), awaited, overtaken);
    }
}

#[cfg(test)]
mod tests {
    use super::super::step_wire::RunHeader;
    use super::*;
    use gt_backend::preemption_point;
    use gt_backend::{Cancellation, ExecError, Fence, FenceStatus, HostRange, Input, MemoryStats, MemoryUsage};
    use gt_ops::failure::Fault;
    use gt_ops::wire::{ArenaRange, Encoder};
    use gt_ops::{Attrs, DType, Inputs, Instruction, Meta, Op, Shape};
    use gt_shm::Arena;
    use std::collections::VecDeque;
    use std::ptr::NonNull;

    use crate::table::WorkerTensor;

    /// How often the device is polled until it has passed a fence.
    const ASKED: u32 = 100;

    type Diary = Arc<Mutex<Vec<String>>>;

    /// An asynchronous device without memory.
    struct Behind {
        diary: Diary,
        fences: VecDeque<Fence>,
        next: u64,
        asked: u32,
        /// The fence behind the first fetch.
        fetched: Option<Fence>,
        found: Result<(), ExecError>,
    }

    impl Behind {
        fn new_fence(&mut self) -> Fence {
            let fence = Fence(self.next);
            self.next += 1;
            self.fences.push_back(fence);
            fence
        }
    }

    impl Backend for Behind {
        type Tensor = Meta;

        fn execute(&mut self, _: Op, _: &[Input<'_, Meta>], _: &Attrs, out: &Meta, _: u8) -> Result<Meta, ExecError> {
            self.diary.lock().unwrap().push("op".into());
            Ok(*out)
        }
        fn is_asynchronous(&self) -> bool {
            true
        }
        fn start_read(&mut self, _: &Meta, _: usize, _: HostRange) -> Result<Option<Fence>, ExecError> {
            self.diary.lock().unwrap().push("fetch".into());
            let fence = self.new_fence();
            self.fetched.get_or_insert(fence);
            Ok(Some(fence))
        }
        fn fence(&mut self) -> Result<Option<Fence>, ExecError> {
            Ok(Some(self.new_fence()))
        }
        fn poll_fence(&mut self, wait: bool) -> Result<Option<FenceStatus>, ExecError> {
            self.asked += 1;
            if !wait && self.asked < ASKED {
                return Ok(None);
            }
            let Some(fence) = self.fences.pop_front() else { return Ok(None) };
            let is_first = self.fetched == Some(fence);
            let result = if is_first { self.found.clone() } else { Ok(()) };
            if let Err(lost @ ExecError::Lost(_)) = result {
                return Err(lost);
            }
            self.diary.lock().unwrap().push("reached".into());
            Ok(Some(FenceStatus { fence, computed_ns: 1000, copied_ns: 10, result }))
        }
        fn allocate(&mut self, meta: &Meta) -> Result<Meta, ExecError> {
            Ok(*meta)
        }
        fn write(&mut self, _: &mut Meta, _: usize, _: HostRange) -> Result<(), ExecError> {
            Ok(())
        }
        fn read(&mut self, _: &Meta, _: usize, _: HostRange) -> Result<(), ExecError> {
            Ok(())
        }
        fn bytes_of(&self, _: &Meta) -> Option<(NonNull<u8>, usize)> {
            None
        }
        fn meta(&self, tensor: &Meta) -> Meta {
            *tensor
        }
        fn cancelled_by(&mut self, _: &Arc<Cancellation>, _: u64) {}
        fn charge(&mut self, _: &Arc<MemoryUsage>) {}
        fn held(&self, _: &MemoryUsage) -> usize {
            0
        }
        fn memory(&self) -> MemoryStats {
            MemoryStats::default()
        }
        fn trim(&mut self) {}
    }

    /// A transport that has all steps from the start, and collects the reports and the sessions.
    #[derive(Default)]
    struct Script {
        slots: VecDeque<Slot>,
        reports: Arc<Mutex<Vec<Slot>>>,
        sessions: Arc<Mutex<Vec<Arc<SessionShared>>>>,
    }

    impl Transport for Script {
        fn pop(&mut self, out: &mut [Slot]) -> usize {
            let count = out.len().min(self.slots.len());
            self.slots.drain(..count).zip(out).for_each(|(slot, to)| *to = slot);
            count
        }
        fn wait(&mut self, _: Duration) -> bool {
            true
        }
        fn push(&mut self, report: Slot) -> Result<(), Full> {
            self.reports.lock().unwrap().push(report);
            Ok(())
        }
        fn unpublished_slots(&self) -> u32 {
            0
        }
        fn publish(&mut self) {}
        fn open(&mut self, _: u64, _: Option<WorkerLoss>) -> Arc<SessionShared> {
            let shared = Arc::new(SessionShared::new(Arc::new(MemoryUsage::new(1)), None));
            shared.add_arena(Arena::create(64).unwrap().0);
            self.sessions.lock().unwrap().push(shared.clone());
            shared
        }
        fn close(&mut self, _: u64) {}
        fn message(&mut self) -> bool {
            true
        }
        fn rank(&mut self) -> Option<RankAssignment> {
            None
        }
    }

    fn header(slot: u32, kind: StepKind) -> Slot {
        StepHeader { owner: SessionSlot { session: u64::from(slot) + 1, slot }, kind }.encode()
    }

    fn step(slot: u32, origin: u64, command: &Command) -> Vec<Slot> {
        let mut encoder = Encoder::default();
        let slots = encoder.encode(command);
        let command_slots = slots.len() as u32;
        let run = RunHeader { command_slots, origin, expected_ns: 1000, unreported_ns_max: 500_000, is_light: true };
        std::iter::once(header(slot, StepKind::Run(run))).chain(slots.iter().copied()).collect()
    }

    fn full(slot: u32, origin: u64) -> Vec<Slot> {
        let attrs = Attrs::Create { shape: Shape::new(&[16]).unwrap(), dtype: DType::F32 };
        let out = WorkerTensor::new(origin as u32, 1).id();
        let inputs = Inputs::from_slice(&[gt_ops::Operand::Scalar(gt_ops::Scalar::Float(1.0))]);
        step(
            slot,
            origin,
            &Command::Op(Instruction { op: Op::Full, out, inputs, last_use: 0, attrs, tf32: false, replaces: None }),
        )
    }

    fn fetch(slot: u32, of: u64, origin: u64) -> Vec<Slot> {
        let id = WorkerTensor::new(of as u32, 1).id();
        let to = ArenaRange { segment: 0, offset_bytes: 0, len_bytes: 64 };
        step(slot, origin, &Command::Fetch { token: 0, id, offset_bytes: 0, to })
    }

    /// Runs a worker with two sessions that each compute and fetch. Returns the reports, why the device was lost if it
    /// was, and the calls of the device in order. The first fetch ends with `found`.
    fn work(found: Result<(), ExecError>) -> (Vec<Completion>, Option<Box<str>>, Vec<String>) {
        let open = |slot| vec![header(slot, StepKind::Open { loss: None })];
        let stop = vec![header(0, StepKind::Stop)];
        let steps = [open(0), open(1), full(0, 1), fetch(0, 1, 2), full(1, 3), fetch(1, 3, 4), stop];
        let (diary, reports) = (Diary::default(), Arc::default());
        let script = Script { slots: steps.concat().into(), reports: Arc::clone(&reports), ..Script::default() };
        let device = Behind { diary: diary.clone(), fences: VecDeque::new(), next: 0, asked: 0, fetched: None, found };
        let core = Arc::new(Mutex::new(Core::new(device, 0)));
        // The loss of a device is kept in a thread-local, so each test has a thread of its own.
        let lost = std::thread::spawn(move || Worker::new(core, script).run()).join().unwrap();
        let reports = std::mem::take(&mut *reports.lock().unwrap());
        let completions = reports.iter().map(|report: &Slot| ReportWords::decode(report).completion);
        let diary = diary.lock().unwrap().clone();
        (completions.collect(), lost, diary)
    }

    #[test]
    fn steps_are_issued_while_a_fetch_is_in_flight_and_reports_come_in_order() {
        let (reports, lost, diary) = work(Ok(()));
        assert_eq!(lost, None);
        assert_eq!(reports.iter().map(|report| report.token).collect::<Vec<_>>(), [0, 0, 1, 2, 3, 4]);
        assert!(reports.iter().all(|report| report.result.is_ok()));
        let first = diary.iter().position(|what| what == "reached").unwrap();
        assert_eq!(diary[..first], ["op", "fetch", "op", "fetch"], "{diary:?}");
    }

    #[test]
    fn an_error_of_a_fetch_is_reported_for_that_fetch() {
        let (reports, ..) = work(Err(ExecError::ZeroDivision));
        let failed: Vec<_> = reports.iter().filter_map(|report| Some((report.token, report.result.err()?))).collect();
        assert_eq!(failed, [(2, Failure { fault: Fault::ZeroDivision, instruction: 2, op: None })]);
    }

    #[test]
    fn a_lost_device_ends_the_worker_and_steps_in_flight_are_not_reported() {
        let (reports, lost, _) = work(Err(ExecError::Lost("an illegal memory access".into())));
        assert_eq!(lost.as_deref(), Some("an illegal memory access"));
        assert!(reports.iter().all(|report| report.token < 2), "{reports:?}");
    }

    /// A backend with preemption points. `sqrt` has some, `exp` panics, and `neg` ends when it is cancelled.
    #[derive(Clone, Default)]
    struct Pausing {
        diary: Diary,
        cancellation: Arc<Cancellation>,
        label: u64,
    }

    impl Backend for Pausing {
        type Tensor = Meta;

        fn execute(&mut self, op: Op, _: &[Input<'_, Meta>], _: &Attrs, out: &Meta, _: u8) -> Result<Meta, ExecError> {
            let label = self.label;
            self.diary.lock().unwrap().push(format!("{} {label}", op.name()));
            match op {
                Op::Sqrt => {
                    (0..3).for_each(|_| preemption_point());
                    self.diary.lock().unwrap().push(format!("end {label}"));
                }
                Op::Exp => panic!("a defect"),
                Op::Neg => {
                    while !self.cancellation.covers(label) {
                        preemption_point();
                        std::thread::yield_now();
                    }
                    return Err(ExecError::Cancelled);
                }
                _ => preemption_point(),
            }
            Ok(*out)
        }
        fn companion(&self) -> Option<Pausing> {
            Some(self.clone())
        }
        fn allocate(&mut self, meta: &Meta) -> Result<Meta, ExecError> {
            Ok(*meta)
        }
        fn write(&mut self, _: &mut Meta, _: usize, _: HostRange) -> Result<(), ExecError> {
            Ok(())
        }
        fn read(&mut self, _: &Meta, _: usize, _: HostRange) -> Result<(), ExecError> {
            Ok(())
        }
        fn bytes_of(&self, _: &Meta) -> Option<(NonNull<u8>, usize)> {
            None
        }
        fn meta(&self, tensor: &Meta) -> Meta {
            *tensor
        }
        fn cancelled_by(&mut self, cancellation: &Arc<Cancellation>, label: u64) {
            (self.cancellation, self.label) = (cancellation.clone(), label);
        }
        fn charge(&mut self, _: &Arc<MemoryUsage>) {}
        fn held(&self, _: &MemoryUsage) -> usize {
            0
        }
        fn memory(&self) -> MemoryStats {
            MemoryStats::default()
        }
        fn trim(&mut self) {}
    }

    fn unary(slot: u32, origin: u64, op: Op, of: u64) -> Vec<Slot> {
        let [out, operand] = [origin, of].map(|origin| WorkerTensor::new(origin as u32, 1).id());
        let inputs = Inputs::from_slice(&[gt_ops::Operand::Tensor(operand)]);
        let attrs = Attrs::None;
        step(
            slot,
            origin,
            &Command::Op(Instruction { op, out, inputs, last_use: 0, attrs, tf32: false, replaces: None }),
        )
    }

    /// A heavy step with the same command.
    fn heavy(mut step: Vec<Slot>) -> Vec<Slot> {
        let StepHeader { owner, kind: StepKind::Run(run) } = StepHeader::decode(&step[0]).unwrap() else { panic!() };
        let run = RunHeader { expected_ns: LIGHT_NS_MAX + 1, is_light: false, ..run };
        step[0] = StepHeader { owner, kind: StepKind::Run(run) }.encode();
        step
    }

    fn run_pausing(script: Script) -> Vec<String> {
        let backend = Pausing::default();
        let diary = backend.diary.clone();
        assert_eq!(Worker::new(Arc::new(Mutex::new(Core::new(backend, 0))), script).run(), None);
        std::mem::take(&mut *diary.lock().unwrap())
    }

    /// The origin of each report's step, how many older steps had not ended, and whether it failed.
    fn told(reports: &Mutex<Vec<Slot>>) -> Vec<(u64, u16, bool)> {
        let reports: Vec<ReportWords> = reports.lock().unwrap().iter().map(ReportWords::decode).collect();
        reports.iter().map(|r| (r.completion.token, r.overtaken, r.completion.result.is_err())).collect()
    }

    #[test]
    fn light_steps_overtake_heavy_ones_of_other_sessions_and_each_session_keeps_its_order() {
        let open = |slot| vec![header(slot, StepKind::Open { loss: None })];
        let close = |slot| vec![header(slot, StepKind::Close)];
        let steps = [
            open(0),
            open(1),
            full(0, 1),
            full(1, 2),
            heavy(unary(0, 3, Op::Sqrt, 1)),
            // Their sessions have older steps that must wait.
            full(0, 4),
            heavy(unary(1, 5, Op::Sqrt, 2)),
            full(1, 6),
            // A session that begins meanwhile, fails, ends, and leaves its slot to another.
            open(2),
            full(2, 7),
            unary(2, 8, Op::Exp, 7),
            full(2, 9),
            close(2),
            open(2),
            fetch(2, 9, 10),
            heavy(full(2, 11)),
            full(2, 12),
            vec![header(0, StepKind::Stop)],
        ];
        let reports = Arc::<Mutex<Vec<Slot>>>::default();
        let script = Script { slots: steps.concat().into(), reports: reports.clone(), ..Script::default() };
        let diary = run_pausing(script);
        let nested = ["full 7", "exp 8", "full 9"];
        let expected =
            [&["full 1", "full 2", "sqrt 3"][..], &nested, &["end 3", "full 4", "sqrt 5", "end 5", "full 6"]];
        assert_eq!(diary, [&expected.concat()[..], &["full 11", "full 12"]].concat());
        let ok = |origin, overtaken| (origin, overtaken, false);
        let before = [ok(0, 0), ok(0, 0), ok(1, 0), ok(2, 0)];
        // Steps 3 to 6 had not ended. The second session of slot 2 has not got the tensor of the first.
        let overtook = [ok(0, 4), ok(7, 4), (8, 4, true), ok(9, 4), ok(0, 4), ok(0, 4), (10, 4, true)];
        let after = [ok(3, 0), ok(4, 0), ok(5, 0), ok(6, 0), ok(11, 0), ok(12, 0)];
        assert_eq!(told(&reports), [&before[..], &overtook, &after].concat());
    }

    #[test]
    fn the_step_in_between_and_the_preempted_one_are_cancelled_apart() {
        let open = |slot| vec![header(slot, StepKind::Open { loss: None })];
        let long = |slot, origin, of| heavy(unary(slot, origin, Op::Neg, of));
        let steps = [
            open(0),
            open(1),
            open(2),
            full(0, 1),
            long(0, 2, 1),
            full(1, 3),
            unary(1, 4, Op::Neg, 3),
            full(1, 5),
            // This session is ended before its step begins, which then takes no time.
            long(2, 6, 6),
            vec![header(2, StepKind::Close)],
            vec![header(0, StepKind::Stop)],
        ];
        let (reports, sessions) =
            (Arc::<Mutex<Vec<Slot>>>::default(), Arc::<Mutex<Vec<Arc<SessionShared>>>>::default());
        let script = Script { slots: steps.concat().into(), reports: reports.clone(), sessions: sessions.clone() };
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| run_pausing(script));
            let cancel = |session: usize, below: u64, reported: usize| {
                while reports.lock().unwrap().len() < reported {
                    std::thread::yield_now();
                }
                sessions.lock().unwrap()[session].cancellation.cancel_below(below);
            };
            cancel(2, u64::MAX, 3);
            // Step 3 has ended in between, and step 4 computes.
            cancel(1, 5, 5);
            // Only step 2 is left.
            cancel(0, 3, 9);
            assert_eq!(worker.join().unwrap(), ["full 1", "neg 2", "full 3", "neg 4", "full 5"]);
        });
        let failed = [(4, 1, true), (5, 1, false), (6, 1, true), (0, 1, false), (2, 0, true)];
        assert_eq!(told(&reports)[4..], [&[(3, 1, false)][..], &failed].concat());
    }
}
