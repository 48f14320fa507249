//! A worker on a thread of this process.
//!
//! A short step is executed on the dispatcher's thread if the worker is idle: handing it to another thread costs
//! microseconds, where a small op takes a fraction of one. Steps keep their order, since an empty queue means that
//! nothing else runs, and the worker's lock is held meanwhile.

use super::core::Core;
use super::fused_steps::Job;
use super::queue::{InvalidReport, PreemptedStep, Queue, QueueLimit, RunningStep, STEPS_MAX, WORK_SLOTS, Wire};
use super::rank_assignment::RankAssignment;
use super::serve::{Transport, Worker};
use super::session_tensors::SessionShared;
use super::step::{Report, SessionSlot, SharedStep, Step, Submission};
use super::step_wire::{StepKind, WorkerLoss};
use super::worker_link::{Availability, WorkerLink};
use crate::nodes::data_port;
use crate::nodes::endpoint::Endpoint;
use gt_backend::{Backend, MemoryUsage};
use gt_collectives::local::SharedMemory;
use gt_ops::failure::Failure;
use gt_ops::wire::{Command, Slot};
use gt_ops::{TensorId, Workers};
use gt_protocol::WorkerInfo;
use gt_shm::mem::HeapMem;
use gt_shm::port::spin_default;
use gt_shm::{Arena, Consumer, Doorbell, FifoReceiver, FifoSender, Full, Producer, fifo, heap_ring};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest step that is executed on the dispatcher's thread, expected nanoseconds.
pub const INLINE_NS_MAX: u64 = 10_000;
/// The same where there is one worker only: while it computes, no other session's step could run anyway.
pub const INLINE_SOLE_NS_MAX: u64 = 200_000;

/// The wait between checks whether the thread has ended.
const STOP_NAP: Duration = Duration::from_micros(50);

/// Sessions that the worker has still to open, by number.
type Opening = Arc<Mutex<HashMap<u64, Arc<SessionShared>>>>;

/// The worker's ranks in the groups that it has still to join, in order.
type Joining = Arc<Mutex<VecDeque<RankAssignment>>>;

/// The link to a worker thread.
pub struct ThreadLink<B: Backend> {
    info: WorkerInfo,
    rates: (f64, f64),
    inline_ns_max: u64,
    core: Arc<Mutex<Core<B>>>,
    queue: Queue<HeapWire>,
    bell: Arc<Doorbell>,
    opening: Opening,
    joining: Joining,
    shared: HashMap<u64, Arc<SessionShared>>,
    memory: Option<Arc<SharedMemory>>,
    thread: Option<JoinHandle<()>>,
}

/// The dispatcher's ends of two rings on the heap.
struct HeapWire {
    work: FifoSender,
    reports: Consumer<HeapMem>,
}

impl Wire for HeapWire {
    #[inline]
    fn free_slots(&mut self) -> u32 {
        self.work.free_slots()
    }
    #[inline]
    fn push(&mut self, header: &Slot, command: &[Slot]) {
        // There is room: the queue has checked it.
        let _ = self.work.push(std::slice::from_ref(header));
        let _ = self.work.push(command);
    }
    #[inline]
    fn publish(&mut self) {
        self.work.publish();
    }
    #[inline]
    fn pop(&mut self) -> Result<Option<Slot>, InvalidReport> {
        let mut slot = [Slot::default()];
        Ok(matches!(self.reports.pop(&mut slot), Ok(1)).then_some(slot[0]))
    }
}

impl<B: Backend + Send + 'static> ThreadLink<B> {
    /// Starts worker `number` on `backend`. `info` describes it to users, `rates` are its gigaflops and gigabytes a
    /// second for estimates, and steps of up to `inline_ns_max` run on the caller's thread. The tensors of `backend`
    /// lie in `memory`, if workers in other processes are to map them.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn start(
        backend: B,
        number: usize,
        info: WorkerInfo,
        rates: (f64, f64),
        inline_ns_max: u64,
        memory: Option<Arc<SharedMemory>>,
    ) -> std::io::Result<ThreadLink<B>> {
        let core = Arc::new(Mutex::new(Core::new(backend, number)));
        let (work, receiver) = fifo(WORK_SLOTS);
        let (reports_out, reports) = heap_ring(STEPS_MAX as u32);
        let bell = Arc::new(Doorbell::new().map_err(std::io::Error::other)?);
        let (opening, joining) = (Opening::default(), Joining::default());
        let transport = HeapTransport {
            work: receiver,
            reports: reports_out,
            bell: bell.clone(),
            opening: opening.clone(),
            joining: joining.clone(),
        };
        let worker = Worker::new(core.clone(), transport);
        let thread = std::thread::Builder::new().name(format!("gt-{}", info.name)).spawn(|| drop(worker.run()))?;
        Ok(ThreadLink {
            info,
            rates,
            inline_ns_max,
            core,
            queue: Queue::new(HeapWire { work, reports }),
            bell,
            opening,
            joining,
            shared: HashMap::new(),
            memory,
            thread: Some(thread),
        })
    }
}

impl<B: Backend> ThreadLink<B> {
    /// The worker's core, if nothing is queued or running: the caller may use it without breaking the order of steps.
    #[inline]
    fn idle_core(&self) -> Option<MutexGuard<'_, Core<B>>> {
        if !self.queue.is_empty() {
            return None;
        }
        match self.core.try_lock() {
            Ok(core) => Some(core),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<B: Backend> WorkerLink for ThreadLink<B> {
    fn info(&mut self) -> WorkerInfo {
        // The last report's value while the worker is busy.
        let memory_bytes = match self.core.try_lock() {
            Ok(mut core) => core.backend().memory().used_bytes as u64,
            Err(_) => self.queue.memory_bytes(),
        };
        let running = self.queue.oldest().and_then(RunningStep::info);
        WorkerInfo { memory_bytes, running, ..self.info.clone() }
    }

    fn rates(&self) -> (f64, f64) {
        self.rates
    }

    fn limit(&mut self, _: SessionSlot, _: &MemoryUsage) {
        // The worker counts its memory in the same `MemoryUsage`, so it has the new limits already.
    }

    fn held(&mut self, owner: SessionSlot) -> u64 {
        let Some(shared) = self.shared.get(&owner.session) else { return 0 };
        // The last report's value while the worker is busy.
        let held = match self.core.try_lock() {
            Ok(core) => core.held(owner.slot),
            Err(_) => shared.held_bytes.load(Relaxed),
        };
        held as u64
    }

    fn peak(&mut self, owner: SessionSlot) -> u64 {
        self.shared.get(&owner.session).map_or(0, |shared| shared.usage.peak() as u64)
    }

    fn reset_peak(&mut self, owner: SessionSlot) {
        if let Some(shared) = self.shared.get(&owner.session) {
            shared.usage.reset_peak();
        }
    }

    fn open(&mut self, owner: SessionSlot, usage: &Arc<MemoryUsage>) {
        let shared = Arc::new(SessionShared::new(usage.clone(), None));
        self.shared.insert(owner.session, shared.clone());
        if let Some(mut core) = self.idle_core() {
            return core.open(owner.slot, shared);
        }
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).insert(owner.session, shared);
        self.queue.control(owner, StepKind::Open { loss: None });
    }

    fn add_arena(&mut self, owner: SessionSlot, arena: Arena, _: &Arc<OwnedFd>) {
        if let Some(shared) = self.shared.get(&owner.session) {
            shared.add_arena(arena);
        }
    }

    fn drop_arena(&mut self, owner: SessionSlot, number: u32) -> Option<Arena> {
        self.shared.get(&owner.session)?.drop_arena(number)
    }

    fn close(&mut self, owner: SessionSlot) {
        if let Some(shared) = self.shared.remove(&owner.session) {
            shared.cancellation.cancel_all();
        }
        // Freeing much memory takes long, so it always happens on the worker's thread.
        self.queue.control(owner, StepKind::Close);
    }

    fn cancel_below(&mut self, owner: SessionSlot, id: TensorId) {
        if let Some(shared) = self.shared.get(&owner.session) {
            shared.cancellation.cancel_below(id);
        }
    }

    fn is_thread(&self) -> bool {
        true
    }

    fn memory(&self) -> Option<Arc<OwnedFd>> {
        self.memory.as_ref()?.fd()?.try_clone_to_owned().ok().map(Arc::new)
    }

    fn endpoint(&self) -> Option<Endpoint> {
        data_port::of_this_process().map(|port| port.endpoint().clone())
    }

    fn losses(&self) -> u64 {
        0
    }

    fn availability(&self) -> Availability {
        Availability::Available
    }

    fn join(&mut self, workers: Workers, assignment: RankAssignment) {
        self.joining.lock().unwrap_or_else(PoisonError::into_inner).push_back(assignment);
        self.queue.control(SessionSlot::default(), StepKind::Join { workers });
    }

    fn leave(&mut self, workers: Workers, gone: Workers) {
        self.queue.control(SessionSlot::default(), StepKind::Leave { workers, gone });
    }

    fn note_time(&mut self, now_ns: u64) {
        self.queue.note_time(now_ns);
    }

    #[inline]
    fn is_full(&mut self, limit: QueueLimit) -> bool {
        self.queue.is_full(limit)
    }

    fn has_steps_of(&self, slot: u32) -> bool {
        self.queue.has_steps_of(slot)
    }

    fn preempted(&self) -> Option<PreemptedStep> {
        self.queue.preempted()
    }

    fn may_overtake(&mut self, owner: SessionSlot, expected_ns: u64) -> bool {
        self.queue.may_overtake(owner, expected_ns)
    }

    #[inline]
    fn submit(&mut self, step: &Step, shared: &[SharedStep]) -> Submission {
        // A reshard waits for other workers, so it must not run on the thread that drives them.
        if step.cost_ns <= self.inline_ns_max
            && !matches!(step.command, Command::Reshard(_))
            && let Some(mut core) = self.idle_core()
            && !core.copies_operand(step.owner.slot, &step.command)
        {
            let out = step.out.as_ref().filter(|_| !step.divided);
            return Submission::Done(core.run(step.owner.slot, step.origin, &step.command, out));
        }
        let idle = self.queue.is_empty();
        self.queue.steps(std::slice::from_ref(step), shared);
        if idle {
            self.queue.flush();
        }
        Submission::Queued
    }

    fn submit_all(
        &mut self,
        steps: &[Step],
        shared: &[SharedStep],
        done: &mut dyn FnMut(&Step, Result<(), Failure>),
    ) -> bool {
        let cost_ns: u64 = steps.iter().map(|step| step.cost_ns).sum();
        if cost_ns <= self.inline_ns_max
            && let Some(mut core) = self.idle_core()
            && !steps.iter().any(|step| core.copies_operand(step.owner.slot, &step.command))
        {
            let job = |step: &Step| Job { slot: step.owner.slot, origin: step.origin, command: step.command.clone() };
            let jobs: Vec<Job> = steps.iter().map(job).collect();
            let mut steps = steps.iter();
            core.run_all(&jobs, |result| {
                if let Some(step) = steps.next() {
                    done(step, result);
                }
            });
            return true;
        }
        self.queue.steps(steps, shared);
        self.queue.flush();
        false
    }

    #[inline]
    fn flush(&mut self) {
        self.queue.flush();
    }

    #[inline]
    fn next_report(&mut self) -> Option<Report> {
        // Both ends are this program's, so every report is valid.
        self.queue.next_report().unwrap_or(None)
    }

    #[inline]
    fn is_busy(&self) -> bool {
        !self.queue.is_empty()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.queue.flush();
        self.queue.wire.reports.prepare_sleep()
    }

    fn has_backlog(&self) -> bool {
        self.queue.has_backlog()
    }

    fn cancel_sleep(&mut self) {
        self.queue.wire.reports.cancel_sleep();
        self.bell.silence();
    }

    fn trim(&mut self) {
        self.queue.control(SessionSlot::default(), StepKind::Trim);
    }

    fn stop(&mut self, patience: Duration) {
        self.queue.control(SessionSlot::default(), StepKind::Stop);
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + patience;
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                return tracing::info!(target: "gtd::worker", "a step that takes long was left unfinished");
            }
            std::thread::sleep(STOP_NAP);
            while self.next_report().is_some() {}
            self.flush();
        }
        if thread.join().is_err() {
            tracing::error!(target: "gtd::worker", "the worker thread panicked");
        }
    }
}

/// The thread's ends of the rings.
struct HeapTransport {
    work: FifoReceiver,
    reports: Producer<HeapMem>,
    bell: Arc<Doorbell>,
    opening: Opening,
    joining: Joining,
}

impl Transport for HeapTransport {
    fn pop(&mut self, out: &mut [Slot]) -> usize {
        // Both ends are this program's, so the ring is not corrupt.
        self.work.pop(out).unwrap_or(0)
    }
    fn wait(&mut self, timeout: Duration) -> bool {
        self.work.wait(spin_default().min(timeout), timeout);
        true
    }
    fn push(&mut self, report: Slot) -> Result<(), Full> {
        self.reports.push(&[report])
    }
    fn unpublished_slots(&self) -> u32 {
        self.reports.unpublished_slots()
    }
    fn publish(&mut self) {
        if self.reports.publish() {
            self.bell.ring();
        }
    }
    fn open(&mut self, session: u64, _: Option<WorkerLoss>) -> Arc<SessionShared> {
        let opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        opening.unwrap_or_else(|| Arc::new(SessionShared::new(Arc::new(MemoryUsage::new(session)), None)))
    }
    fn close(&mut self, _: u64) {}
    fn message(&mut self) -> bool {
        // A thread shares memory with the dispatcher, so it gets no messages.
        true
    }
    fn rank(&mut self) -> Option<RankAssignment> {
        self.joining.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
