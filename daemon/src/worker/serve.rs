//! What a worker does with its queue: takes steps, does them in order and reports, whoever carries them.

use super::core::Core;
use super::exec_failure::{failure, lost_device};
use super::fused_steps::Job;
use super::fusion_window::STAGES_MAX;
use super::in_flight::{InFlightStep, InFlightSteps};
use super::queue::{REPORT_HELD_WORD, REPORT_MEMORY_WORD, REPORT_PEAK_WORD, REPORT_SHIFT, REPORT_TOOK_WORD, kind};
use super::session_tensors::SessionShared;
use super::step::{completes, subject};
use gt_backend::Backend;
use gt_collectives::Communicator;
use gt_ops::Workers;
use gt_ops::failure::Failure;
use gt_ops::wire::{Command, Completion, SLOTS_MAX, Slot, decode};
use gt_shm::Full;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Reports are published after so many at most, and after as much expected time as a step's head says.
const REPORTS_HELD_MAX: u32 = 64;
/// Slots that the worker looks at together: so many instructions with a free and an extension each, or any one step.
const WINDOW_SLOTS: usize = 5 * STAGES_MAX + 2 * SLOTS_MAX;
/// How long to wait for the dispatcher to read reports that find no room.
const REPORTS_FULL_NAP: Duration = Duration::from_micros(50);

/// Steps that are issued before a look how far the device is, where nobody waits for any.
const UNLOOKED_MAX: u32 = 16;
/// How long a device may put off what would be better done together with what follows, if nothing follows.
const HOLD: Duration = Duration::from_micros(10);
/// A worker that has nothing to do but to wait for its device looks for so long whether something happens,
const LOOK: Duration = Duration::from_micros(50);
/// and then sleeps between looks for this part of what it has waited so far: so late it is at most.
const NAP_SHARE: u32 = 8;
/// No nap is longer.
const NAP_MAX: Duration = Duration::from_millis(1);
/// How long to sleep where nothing is expected but more steps.
const NAP: Duration = Duration::from_secs(3600);

/// How steps get to this worker and its reports back.
pub trait Transport {
    /// Copies waiting slots into the front of `out`; returns how many.
    fn pop(&mut self, out: &mut [Slot]) -> usize;

    /// Waits until something waits or `timeout` has passed, or returns early. False if nothing will come any more.
    fn wait(&mut self, timeout: Duration) -> bool;

    /// Writes a report, which travels with the next [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`Full`] if there is no room.
    fn push(&mut self, report: Slot) -> Result<(), Full>;

    /// Reports pushed and not yet published.
    fn unpublished_slots(&self) -> u32;

    /// Lets the dispatcher see the reports, and wakes it if it sleeps.
    fn publish(&mut self);

    /// What is shared of a session that begins, by the head of the step that says so.
    fn open(&mut self, head: &Slot) -> Arc<SessionShared>;

    /// Other limits are in force for a session, by the head of the step that says so.
    fn limit(&mut self, head: &Slot);

    /// A session has ended.
    fn close(&mut self, session: u64);

    /// Steps have come that are still to be done: their heads.
    fn arrived(&mut self, _heads: &mut dyn Iterator<Item = &Slot>) {}

    /// Does what comes next beside the ring. False if it does not come.
    fn message(&mut self) -> bool;

    /// Sessions that begin compute on this worker, which has registered itself.
    fn registered(&mut self) {}

    /// Joins a group as the next rank that the dispatcher assigned; may wait for the other ranks.
    fn communicator(&mut self) -> Option<Box<dyn Communicator>>;
}

/// How many slots the first step of `slots` takes, if it is all there.
pub fn whole_step(slots: &[Slot]) -> Option<usize> {
    let len = 1 + (slots.first()?[0] >> 32) as usize;
    (len <= slots.len()).then_some(len)
}

/// A worker at work.
pub struct Worker<B: Backend, T: Transport> {
    core: Arc<Mutex<Core<B>>>,
    transport: T,
    /// Expected time of the steps whose reports are held back.
    held_ns: u64,
    in_flight: InFlightSteps,
    is_asynchronous: bool,
    /// Steps since it was last asked how far the device is.
    unlooked: u32,
    /// Since when there has been nothing to do but to wait for the device.
    waits: Option<Instant>,
}

impl<B: Backend, T: Transport> Worker<B, T> {
    /// A worker that has not begun.
    pub fn new(core: Arc<Mutex<Core<B>>>, transport: T) -> Worker<B, T> {
        let is_asynchronous = core.lock().unwrap_or_else(PoisonError::into_inner).backend().is_asynchronous();
        Worker {
            core,
            transport,
            held_ns: 0,
            in_flight: InFlightSteps::default(),
            is_asynchronous,
            unlooked: 0,
            waits: None,
        }
    }

    /// Works until it is told to end, or until its device is lost: then it says why, and what it has not reported did
    /// not happen.
    pub fn run(mut self) -> Option<Box<str>> {
        let mut slots: Vec<Slot> = vec![[0; 8]; WINDOW_SLOTS];
        let (mut start, mut end) = (0, 0);
        loop {
            while let Some(len) = whole_step(&slots[start..end]) {
                self.waits = None;
                let taken = self.step(&mut slots, start, &mut end, len);
                if let Some(taken) = taken {
                    start += taken;
                    self.unlooked += 1;
                    if self.in_flight.is_awaited() || self.unlooked >= UNLOOKED_MAX {
                        self.look(false);
                    }
                }
                if taken.is_none() || lost_device().is_some() {
                    return self.end();
                }
            }
            slots.copy_within(start..end, 0);
            (start, end) = (0, end - start);
            if self.refill(&mut slots, start, &mut end) == 0 && !self.wait() {
                return self.end();
            }
        }
    }

    /// It ends in order, after what is under way, unless the device is lost.
    fn end(mut self) -> Option<Box<str>> {
        self.look(true);
        let lost = lost_device();
        if lost.is_none() {
            self.publish();
        }
        lost
    }

    /// Waits for more to do, or for the device. False if nothing will come any more.
    fn wait(&mut self) -> bool {
        if self.in_flight.is_unfenced() {
            self.fence();
        }
        if self.look(false) {
            self.waits = None;
        }
        self.publish();
        if lost_device().is_some() {
            return false;
        }
        // The system says when steps come, but of the device one has to ask.
        let waited = self.waits.get_or_insert_with(Instant::now).elapsed();
        if self.in_flight.is_empty() || waited >= HOLD {
            let begun = self.core.lock().unwrap_or_else(PoisonError::into_inner).flush();
            if let Err(error) = begun {
                tracing::error!(target: "gtd::worker", %error, "what was put off could not begin");
            }
        }
        if self.in_flight.is_empty() {
            return self.transport.wait(NAP);
        }
        if waited < LOOK {
            std::hint::spin_loop();
            return true;
        }
        self.transport.wait((waited / NAP_SHARE).min(NAP_MAX))
    }

    /// Marks where the steps end that have been issued.
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

    /// Reports what the device has done meanwhile. Waits until that is everything if `wait`. True if it was anything.
    fn look(&mut self, wait: bool) -> bool {
        if wait && self.in_flight.is_unfenced() {
            self.fence();
        }
        let mut any = false;
        self.unlooked = 0;
        while !self.in_flight.is_empty() {
            let reached = self.core.lock().unwrap_or_else(PoisonError::into_inner).poll_fence(wait);
            let Ok(Some(reached)) = reached else { break };
            any = true;
            for (step, took_ns) in self.in_flight.done(&reached) {
                let is_its = step.transfer.as_ref().is_some_and(|transfer| transfer.fence == reached.fence);
                let found = if is_its { reached.result.clone() } else { Ok(()) };
                let result = step.result.and(found.map_err(|error| failure(error, step.head[3], None)));
                self.report_in_flight(InFlightStep { result, ..step }, took_ns);
            }
        }
        any
    }

    fn report_in_flight(&mut self, step: InFlightStep, took_ns: u64) {
        let InFlightStep { head, result, awaited, .. } = step;
        let used = self.core.lock().unwrap_or_else(PoisonError::into_inner).used(head[1] as u32);
        self.report(&head, result, used, Duration::from_nanos(took_ns), awaited);
    }

    /// Adds what is queued to the steps in `slots[start..end]`, as far as there is room; returns how many slots that
    /// were.
    fn refill(&mut self, slots: &mut [Slot], start: usize, end: &mut usize) -> usize {
        let popped = self.transport.pop(&mut slots[*end..]);
        *end += popped;
        if popped > 0 {
            let mut rest = &slots[start..*end];
            self.transport.arrived(&mut std::iter::from_fn(|| {
                let (step, after) = rest.split_at(whole_step(rest)?);
                rest = after;
                step.first()
            }));
        }
        popped
    }

    /// Does the step in the `len` slots from `start` on, and perhaps some after it. Returns how many slots they took;
    /// nothing at the end, or when the device is lost.
    fn step(&mut self, slots: &mut [Slot], start: usize, end: &mut usize, len: usize) -> Option<usize> {
        let head = slots[start];
        let [what, slot, session, ..] = head;
        let origin = head[3];
        let slot = slot as u32;
        let what = what & 0xffff_ffff;
        let command = if what == kind::RUN { Some(decode(&slots[start + 1..start + len])) } else { None };
        let moves = matches!(command, Some(Ok(Command::Reshard(_))));
        // Others may keep this one waiting: nobody waits for them meanwhile who need not.
        if self.in_flight.is_awaited() && (moves || what == kind::JOIN) {
            self.look(true);
        }
        if self.in_flight.is_unfenced() && (moves || self.in_flight.wants_fence_before(session)) {
            self.fence();
        }
        let shared_core = self.core.clone();
        let mut core = shared_core.lock().unwrap_or_else(PoisonError::into_inner);
        let mut awaited = false;
        let mut transfer = None;
        let begun = Instant::now();
        let result = match what {
            kind::RUN => match command.transpose() {
                Ok(None) => return None,
                Ok(Some(command)) => {
                    if core.opens_window(slot, &command) {
                        self.refill(slots, start, end);
                        return self.steps(core, Job { slot, origin, command }, &slots[start..*end], len);
                    }
                    awaited = completes(subject(&command));
                    core.start(slot, origin, &command, None).map(|begun| transfer = begun)
                }
                Err(error) => {
                    tracing::error!(target: "gtd::worker", %error, "a step that makes no sense");
                    Ok(())
                }
            },
            kind::OPEN => {
                core.open(slot, self.transport.open(&slots[start]));
                Ok(())
            }
            kind::CLOSE => {
                self.transport.close(session);
                core.close(slot);
                Ok(())
            }
            kind::LIMIT => {
                self.transport.limit(&head);
                Ok(())
            }
            kind::RESET_PEAK => {
                core.reset_peak(slot);
                Ok(())
            }
            kind::TRIM => {
                core.trim();
                Ok(())
            }
            kind::MESSAGE => {
                if !self.transport.message() {
                    return None;
                }
                core.see_arenas(slot);
                Ok(())
            }
            kind::JOIN => {
                let communicator = self.transport.communicator();
                core.join(Workers::from_bits(slots[start][5]), communicator);
                Ok(())
            }
            kind::LEAVE => {
                let [workers, gone] = [5, 6].map(|word| Workers::from_bits(slots[start][word]));
                core.leave(workers, gone);
                Ok(())
            }
            kind::REGISTERED => {
                self.transport.registered();
                Ok(())
            }
            _ => return None,
        };
        if lost_device().is_some() {
            return None;
        }
        if !self.is_asynchronous {
            let used = core.used(slot);
            drop(core);
            self.report(&head, result, used, begun.elapsed(), awaited);
            return Some(len);
        }
        drop(core);
        self.issued(InFlightStep { head, result, transfer, awaited }, moves);
        Some(len)
    }

    /// The device has been asked for a step. A fence is behind it at once where somebody waits or `apart`, or soon.
    fn issued(&mut self, step: InFlightStep, apart: bool) {
        let apart = apart || step.awaited;
        self.in_flight.push(step);
        if self.in_flight.wants_fence() || apart && self.in_flight.is_unfenced() {
            self.fence();
        }
    }

    /// Does `first`, whose `len` slots begin `slots`, knowing the instructions and frees that are queued behind it.
    /// Returns as [`step`](Self::step).
    fn steps(&mut self, mut core: MutexGuard<'_, Core<B>>, first: Job, slots: &[Slot], len: usize) -> Option<usize> {
        let mut jobs = vec![first];
        let mut ends = vec![len];
        let mut at = len;
        while let Some(len) = whole_step(&slots[at..]) {
            let [what, slot, _, origin, ..] = slots[at];
            let command = if what & 0xffff_ffff == kind::RUN { decode(&slots[at + 1..at + len]).ok() } else { None };
            let Some(command @ (Command::Op(_) | Command::Free { .. })) = command else { break };
            jobs.push(Job { slot: slot as u32, origin, command });
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
        // What was done together took its time together.
        let mut took = begun.elapsed();
        let mut head = 0;
        for (end, result) in ends.iter().zip(results) {
            if self.is_asynchronous {
                self.issued(InFlightStep { head: slots[head], result, transfer: None, awaited: false }, false);
            } else {
                self.report(&slots[head], result, used, std::mem::take(&mut took), false);
            }
            head = *end;
        }
        Some(ends[count - 1])
    }

    /// Says how the step behind `head` ended, and how many bytes tensors take then: those of all sessions, and its own.
    fn report(&mut self, head: &Slot, result: Result<(), Failure>, used: [usize; 3], took: Duration, awaited: bool) {
        let [_, _, _, origin, expected_ns, held_ns_max, ..] = *head;
        let mut report = Completion { token: origin, result }.encode();
        report[REPORT_TOOK_WORD] |= (took.as_nanos() as u64) << REPORT_SHIFT;
        let [all, own, peak] = used.map(|bytes| bytes as u64);
        report[REPORT_MEMORY_WORD] = all;
        if result.is_ok() {
            report[REPORT_PEAK_WORD] = peak;
        }
        report[REPORT_HELD_WORD] |= own << REPORT_SHIFT;
        while self.transport.push(report).is_err() {
            self.publish();
            std::thread::sleep(REPORTS_FULL_NAP);
        }
        self.held_ns += expected_ns;
        // What is no step has no such limit in its head, and is seldom.
        let long = head[0] & 0xffff_ffff == kind::RUN && self.held_ns >= held_ns_max;
        if awaited || long || self.transport.unpublished_slots() >= REPORTS_HELD_MAX {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.held_ns = 0;
        self.transport.publish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_backend::{ExecError, Fence, FenceStatus, HostRange, Input, MemoryStats, MemoryUsage};
    use gt_ops::failure::Fault;
    use gt_ops::wire::{ArenaRange, Encoder};
    use gt_ops::{Attrs, DType, Inputs, Instruction, Meta, Op, Shape};
    use gt_shm::Arena;
    use std::collections::VecDeque;
    use std::ptr::NonNull;

    use crate::table::WorkerTensor;

    /// A device that comes to a fence when it has been asked for it so often.
    const ASKED: u32 = 100;

    type Diary = Arc<Mutex<Vec<String>>>;

    /// A device that does everything later, and whose tensors are nothing.
    struct Behind {
        diary: Diary,
        fences: VecDeque<Fence>,
        next: u64,
        asked: u32,
        /// What it says of the first fetch.
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
        fn charge(&mut self, _: &Arc<MemoryUsage>) {}
        fn held(&self, _: &MemoryUsage) -> usize {
            0
        }
        fn memory(&self) -> MemoryStats {
            MemoryStats::default()
        }
        fn trim(&mut self) {}
    }

    /// Steps that are all there, and what is reported of them.
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
        fn open(&mut self, _: &Slot) -> Arc<SessionShared> {
            let shared = Arc::new(SessionShared::new(Arc::new(MemoryUsage::new(1)), None));
            shared.add_arena(Arena::create(64).unwrap().0);
            shared
        }
        fn limit(&mut self, _: &Slot) {}
        fn close(&mut self, _: u64) {}
        fn message(&mut self) -> bool {
            true
        }
        fn communicator(&mut self) -> Option<Box<dyn Communicator>> {
            None
        }
    }

    fn step(slot: u64, origin: u64, command: &Command) -> Vec<Slot> {
        let mut encoder = Encoder::default();
        let slots = encoder.encode(command);
        let head = [kind::RUN | (slots.len() as u64) << 32, slot, slot + 1, origin, 1000, 500_000, 0, 0];
        std::iter::once(head).chain(slots.iter().copied()).collect()
    }

    fn full(slot: u64, origin: u64) -> Vec<Slot> {
        let attrs = Attrs::Create { shape: Shape::new(&[16]).unwrap(), dtype: DType::F32 };
        let out = WorkerTensor::new(origin as u32, 1).id();
        let inputs = Inputs::from_slice(&[gt_ops::Operand::Scalar(gt_ops::Scalar::Float(1.0))]);
        step(slot, origin, &Command::Op(Instruction { op: Op::Full, out, inputs, last_use: 0, attrs, tf32: false }))
    }

    fn fetch(slot: u64, of: u64, origin: u64) -> Vec<Slot> {
        let id = WorkerTensor::new(of as u32, 1).id();
        let to = ArenaRange { segment: 0, offset_bytes: 0, len_bytes: 64 };
        step(slot, origin, &Command::Fetch { token: 0, id, offset_bytes: 0, to })
    }

    /// What a worker reports of two sessions that each compute and fetch, how it ends, and in which order its device
    /// had to do with it.
    fn work(found: Result<(), ExecError>) -> (Vec<Completion>, Option<Box<str>>, Vec<String>) {
        let open = |slot: u64| vec![[kind::OPEN, slot, slot + 1, 0, 0, 0, 0, 0]];
        let stop = vec![[kind::STOP, 0, 0, 0, 0, 0, 0, 0]];
        let steps = [open(0), open(1), full(0, 1), fetch(0, 1, 2), full(1, 3), fetch(1, 3, 4), stop];
        let (diary, reports) = (Diary::default(), Arc::default());
        let script = Script { slots: steps.concat().into(), reports: Arc::clone(&reports) };
        let device = Behind { diary: diary.clone(), fences: VecDeque::new(), next: 0, asked: 0, fetched: None, found };
        let core = Arc::new(Mutex::new(Core::new(device, 0)));
        // A thread of its own: that a device is lost is known by thread.
        let lost = std::thread::spawn(move || Worker::new(core, script).run()).join().unwrap();
        let reports = std::mem::take(&mut *reports.lock().unwrap());
        let told = reports.iter().map(|report: &Slot| {
            let mut slot = *report;
            for word in [REPORT_TOOK_WORD, REPORT_HELD_WORD] {
                slot[word] &= (1 << REPORT_SHIFT) - 1;
            }
            Completion::decode(&slot)
        });
        let diary = diary.lock().unwrap().clone();
        (told.collect(), lost, diary)
    }

    #[test]
    fn a_fetch_holds_up_nobody_and_reports_come_in_order() {
        let (reports, lost, diary) = work(Ok(()));
        assert_eq!(lost, None);
        assert_eq!(reports.iter().map(|report| report.token).collect::<Vec<_>>(), [0, 0, 1, 2, 3, 4]);
        assert!(reports.iter().all(|report| report.result.is_ok()));
        let first = diary.iter().position(|what| what == "reached").unwrap();
        assert_eq!(diary[..first], ["op", "fetch", "op", "fetch"], "{diary:?}");
    }

    #[test]
    fn what_a_fetch_found_is_its_own() {
        let (reports, ..) = work(Err(ExecError::ZeroDivision));
        let failed: Vec<_> = reports.iter().filter_map(|report| Some((report.token, report.result.err()?))).collect();
        assert_eq!(failed, [(2, Failure { fault: Fault::ZeroDivision, instruction: 2, op: None })]);
    }

    #[test]
    fn a_device_that_is_lost_ends_the_worker_and_what_is_under_way_is_not_reported() {
        let (reports, lost, _) = work(Err(ExecError::Lost("an illegal memory access".into())));
        assert_eq!(lost.as_deref(), Some("an illegal memory access"));
        assert!(reports.iter().all(|report| report.token < 2), "{reports:?}");
    }
}
