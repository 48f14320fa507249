//! The worker's loop: takes steps from its queue, executes them in order and reports, on whatever thread it runs.

use super::core::Core;
use super::exec_failure::{failure, lost_device};
use super::fused_steps::Job;
use super::fusion_window::STAGES_MAX;
use super::in_flight::{InFlightStep, InFlightSteps};
use super::session_tensors::SessionShared;
use super::step::{completes, subject};
use super::step_wire::{MemoryLimits, ReportWords, StepHeader, StepKind, WorkerLoss};
use gt_backend::Backend;
use gt_collectives::Communicator;
use gt_ops::failure::Failure;
use gt_ops::wire::{Command, Completion, SLOTS_MAX, Slot, decode};
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

    /// Joins a group as the next rank that the dispatcher assigned, waiting for the other ranks.
    fn communicator(&mut self) -> Option<Box<dyn Communicator>>;
}

/// The number of slots of the first step in `slots`, if all of them are there.
pub fn whole_step(slots: &[Slot]) -> Option<usize> {
    let len = StepHeader::step_slots(slots.first()?);
    (len <= slots.len()).then_some(len)
}

/// A worker: a core and the loop that feeds it.
pub struct Worker<B: Backend, T: Transport> {
    core: Arc<Mutex<Core<B>>>,
    transport: T,
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
        Worker { core, transport, unreported_ns: 0, in_flight, is_asynchronous, unpolled: 0, waits: None }
    }

    /// Works until it is told to end, or until its device is lost. If the device was lost, returns its error: the steps
    /// without a report then count as not executed.
    pub fn run(mut self) -> Option<Box<str>> {
        let mut slots: Vec<Slot> = vec![[0; 8]; WINDOW_SLOTS];
        let (mut start, mut end) = (0, 0);
        loop {
            while let Some(len) = whole_step(&slots[start..end]) {
                self.waits = None;
                let taken = self.step(&mut slots, start, &mut end, len);
                if let Some(taken) = taken {
                    start += taken;
                    self.unpolled += 1;
                    if self.in_flight.is_awaited() || self.unpolled >= UNPOLLED_MAX {
                        self.poll(false);
                    }
                }
                if taken.is_none() || lost_device().is_some() {
                    return self.end();
                }
            }
            slots.copy_within(start..end, 0);
            (start, end) = (0, end - start);
            if self.refill(&mut slots, &mut end) == 0 && !self.wait() {
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
        self.report(&header, result, used, Duration::from_nanos(took_ns), awaited);
    }

    /// Adds waiting slots to `slots[..end]`, as far as there is room, and returns how many.
    fn refill(&mut self, slots: &mut [Slot], end: &mut usize) -> usize {
        let popped = self.transport.pop(&mut slots[*end..]);
        *end += popped;
        popped
    }

    /// Executes the step in the `len` slots from `start` on, and those behind it that are fused with it. Returns how
    /// many slots they took; none if the worker must end or the device is lost.
    fn step(&mut self, slots: &mut [Slot], start: usize, end: &mut usize, len: usize) -> Option<usize> {
        let header = match StepHeader::decode(&slots[start]) {
            Ok(header) => header,
            Err(error) => {
                tracing::error!(target: "gtd::worker", %error, "the worker ends");
                return None;
            }
        };
        let StepHeader { owner, kind } = header;
        let (slot, origin) = (owner.slot, header.origin());
        let command = match kind {
            StepKind::Run(_) => Some(decode(&slots[start + 1..start + len])),
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
        let mut result = Ok(());
        match kind {
            StepKind::Run(_) => match command.transpose() {
                Ok(None) => return None,
                Ok(Some(command)) => {
                    if core.opens_window(slot, &command) {
                        self.refill(slots, end);
                        return self.window(core, Job { slot, origin, command }, &slots[start..*end], len);
                    }
                    awaited = completes(subject(&command));
                    result = core.start(slot, origin, &command, None).map(|started| transfer = started);
                }
                Err(error) => tracing::error!(target: "gtd::worker", %error, "a step that makes no sense"),
            },
            StepKind::Open { loss } => core.open(slot, self.transport.open(owner.session, loss)),
            StepKind::Close => {
                self.transport.close(owner.session);
                core.close(slot);
            }
            StepKind::Limit(limits) => self.transport.limit(owner.session, limits),
            StepKind::ResetPeak => core.reset_peak(slot),
            StepKind::Trim => core.trim(),
            StepKind::Message => {
                if !self.transport.message() {
                    return None;
                }
                core.register_arenas(slot);
            }
            StepKind::Join { workers } => core.join(workers, self.transport.communicator()),
            StepKind::Leave { workers, gone } => core.leave(workers, gone),
            StepKind::Registered => self.transport.registered(),
            StepKind::Stop => return None,
        }
        if lost_device().is_some() {
            return None;
        }
        if !self.is_asynchronous {
            let used = core.used(slot);
            drop(core);
            self.report(&header, result, used, begun.elapsed(), awaited);
            return Some(len);
        }
        drop(core);
        self.issued(InFlightStep { header, result, transfer, awaited }, reshards);
        Some(len)
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

    /// Executes `first`, whose `len` slots begin `slots`, with the queued instructions that are fused with it. Returns
    /// the same as [`step`](Self::step).
    fn window(&mut self, mut core: MutexGuard<'_, Core<B>>, first: Job, slots: &[Slot], len: usize) -> Option<usize> {
        let mut jobs = vec![first];
        let mut ends = vec![len];
        let mut at = len;
        while let Some(len) = whole_step(&slots[at..]) {
            let Ok(StepHeader { owner, kind: StepKind::Run(run) }) = StepHeader::decode(&slots[at]) else { break };
            let command = decode(&slots[at + 1..at + len]).ok();
            let Some(command @ (Command::Op(_) | Command::Free { .. })) = command else { break };
            jobs.push(Job { slot: owner.slot, origin: run.origin, command });
            at += len;
            ends.push(at);
        }
        let mut results = Vec::with_capacity(jobs.len());
        let begun = Instant::now();
        let count = core.run_window(&jobs, |result| results.push(result));
        if lost_device().is_some() {
            return None;
        }
        let used = core.used(jobs[0].slot);
        drop(core);
        // The first report carries the time of all that were fused.
        let mut took = begun.elapsed();
        let mut start = 0;
        for (end, result) in ends.iter().zip(results) {
            let header = StepHeader::decode(&slots[start]).ok()?;
            if self.is_asynchronous {
                self.issued(InFlightStep { header, result, transfer: None, awaited: false }, false);
            } else {
                self.report(&header, result, used, std::mem::take(&mut took), false);
            }
            start = *end;
        }
        Some(ends[count - 1])
    }

    /// Reports how a step ended. `used` has the bytes of all sessions' tensors, those of the step's session, and the
    /// session's peak.
    fn report(
        &mut self,
        header: &StepHeader,
        result: Result<(), Failure>,
        used: [usize; 3],
        took: Duration,
        awaited: bool,
    ) {
        let [memory_bytes, held_bytes, peak_bytes] = used.map(|bytes| bytes as u64);
        let report = ReportWords {
            completion: Completion { token: header.origin(), result },
            took_ns: took.as_nanos() as u64,
            held_bytes,
            peak_bytes: result.is_ok().then_some(peak_bytes),
            memory_bytes,
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

#[cfg(test)]
mod tests {
    use super::super::step::SessionSlot;
    use super::super::step_wire::RunHeader;
    use super::*;
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

    /// A transport that has all steps from the start, and collects the reports.
    struct Script {
        slots: VecDeque<Slot>,
        reports: Arc<Mutex<Vec<Slot>>>,
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
            shared
        }
        fn close(&mut self, _: u64) {}
        fn message(&mut self) -> bool {
            true
        }
        fn communicator(&mut self) -> Option<Box<dyn Communicator>> {
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
        let run = RunHeader { command_slots, origin, expected_ns: 1000, unreported_ns_max: 500_000 };
        std::iter::once(header(slot, StepKind::Run(run))).chain(slots.iter().copied()).collect()
    }

    fn full(slot: u32, origin: u64) -> Vec<Slot> {
        let attrs = Attrs::Create { shape: Shape::new(&[16]).unwrap(), dtype: DType::F32 };
        let out = WorkerTensor::new(origin as u32, 1).id();
        let inputs = Inputs::from_slice(&[gt_ops::Operand::Scalar(gt_ops::Scalar::Float(1.0))]);
        step(slot, origin, &Command::Op(Instruction { op: Op::Full, out, inputs, last_use: 0, attrs, tf32: false }))
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
        let script = Script { slots: steps.concat().into(), reports: Arc::clone(&reports) };
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
}
