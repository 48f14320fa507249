//! A worker on a thread of this process.
//!
//! Handing a step to another thread costs microseconds where a small op takes a fraction of one. So a step that is
//! estimated to be short is done on the caller's thread, if the worker has nothing else to do: nothing queued means
//! that nothing runs, and that order is kept.

use super::core::{Core, StreamShared};
use super::{Job, Outcome, Report, STAGES_MAX, Step, Stream, WorkerLink, subject};
use gt_backend::Backend;
use gt_ops::TensorId;
use gt_ops::text::Subject;
use gt_ops::wire::{Command, Completion, Encoder, Failure, SLOTS_MAX, Slot, decode};
use gt_protocol::WorkerInfo;
use gt_shm::mem::HeapMem;
use gt_shm::port::spin_default;
use gt_shm::{Arena, Consumer, Doorbell, FifoReceiver, FifoSender, Producer, fifo, heap_ring};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Estimated time of what is queued at once, nanoseconds: how long a light session may wait behind a heavy one.
pub const QUEUED_NS_MAX: u64 = 2_000_000;
/// Steps estimated to take no longer are done on the dispatcher's thread, nanoseconds,
pub const INLINE_NS_MAX: u64 = 10_000;
/// and where there is one worker only: while it computes, nobody else's step could be done anyway.
pub const INLINE_SOLE_NS_MAX: u64 = 200_000;

/// Slots of steps on their way.
const WORK_SLOTS: u32 = 4096;
/// Steps on their way.
const STEPS_MAX: usize = 2048;
/// Reports are published after so many at most,
const REPORTS_HELD_MAX: u32 = 64;
/// and after so much estimated time, nanoseconds.
const REPORTS_HELD_NS_MAX: u64 = QUEUED_NS_MAX / 4;
/// Slots that the worker looks at together: so many instructions with a free and an extension each, or any one step.
const AHEAD_SLOTS: usize = 5 * STAGES_MAX + 2 * SLOTS_MAX;
/// How long to wait for the dispatcher to read reports that find no room.
const REPORTS_FULL_NAP: Duration = Duration::from_micros(50);
/// How long the thread sleeps at most without looking around.
const NAP: Duration = Duration::from_secs(3600);

/// The first slot of a step: what it is, how many slots follow, for whom.
mod kind {
    pub const RUN: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const TRIM: u64 = 4;
    pub const STOP: u64 = 5;
}

/// Sessions whose worker has not opened them yet.
type Opening = Arc<Mutex<HashMap<u64, Arc<StreamShared>>>>;

/// The link to a worker thread.
pub struct ThreadLink<B: Backend> {
    info: WorkerInfo,
    rates: (f64, f64),
    inline_ns_max: u64,
    core: Arc<Mutex<Core<B>>>,
    work: FifoSender,
    /// Slots that found no room in `work`.
    backlog: VecDeque<Slot>,
    reports: Consumer<HeapMem>,
    bell: Arc<Doorbell>,
    opening: Opening,
    shared: HashMap<u64, Arc<StreamShared>>,
    /// What is queued or running, oldest first: as the reports will come.
    in_flight: VecDeque<InFlight>,
    queued_ns: u64,
    used_bytes: Arc<AtomicU64>,
    encoder: Encoder,
    thread: Option<JoinHandle<()>>,
}

struct InFlight {
    stream: Stream,
    /// None for what only the link knows of.
    subject: Option<Subject>,
    origin: u64,
    token: u64,
    bytes: u64,
    cost_ns: u64,
}

impl<B: Backend + Send + 'static> ThreadLink<B> {
    /// Starts a worker on `backend`, called what `info` says, which does `rates` gigaflops and gigabytes a second.
    /// Steps up to `inline_ns_max` are done by the caller.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn start(
        backend: B,
        info: WorkerInfo,
        rates: (f64, f64),
        inline_ns_max: u64,
    ) -> std::io::Result<ThreadLink<B>> {
        let core = Arc::new(Mutex::new(Core::new(backend)));
        let (work, receiver) = fifo(WORK_SLOTS);
        let (reports_out, reports) = heap_ring(STEPS_MAX as u32);
        let bell = Arc::new(Doorbell::new().map_err(std::io::Error::other)?);
        let opening = Opening::default();
        let used_bytes = Arc::new(AtomicU64::new(0));
        let worker = Worker {
            core: core.clone(),
            work: receiver,
            reports: reports_out,
            bell: bell.clone(),
            opening: opening.clone(),
            used_bytes: used_bytes.clone(),
            held_ns: 0,
        };
        let thread = std::thread::Builder::new().name(format!("gt-{}", info.name)).spawn(|| worker.run())?;
        Ok(ThreadLink {
            info,
            rates,
            inline_ns_max,
            core,
            work,
            backlog: VecDeque::new(),
            reports,
            bell,
            opening,
            shared: HashMap::new(),
            in_flight: VecDeque::new(),
            queued_ns: 0,
            used_bytes,
            encoder: Encoder::new(),
            thread: Some(thread),
        })
    }
}

impl<B: Backend> ThreadLink<B> {
    /// The worker itself, if it has nothing to do: what is done to it now is in order.
    #[inline]
    fn idle_core(&self) -> Option<MutexGuard<'_, Core<B>>> {
        if !self.in_flight.is_empty() {
            return None;
        }
        match self.core.try_lock() {
            Ok(core) => Some(core),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn queue(&mut self, head: Slot, rest: &[Slot], in_flight: InFlight) {
        self.queued_ns += in_flight.cost_ns;
        self.in_flight.push_back(in_flight);
        if self.backlog.is_empty() && self.work.free_slots() as usize > rest.len() {
            // Cannot fail: there is room.
            let _ = self.work.push(&[head]);
            let _ = self.work.push(rest);
        } else {
            self.backlog.push_back(head);
            self.backlog.extend(rest);
        }
    }

    fn queue_control(&mut self, what: u64, stream: Stream) {
        let head = [what, stream.place as u64, stream.session, 0, 0, 0, 0, 0];
        self.queue(head, &[], InFlight { stream, subject: None, origin: 0, token: 0, bytes: 0, cost_ns: 0 });
        self.flush();
    }

    #[inline(never)]
    fn queue_step(&mut self, step: &Step) {
        let mut encoder = std::mem::take(&mut self.encoder);
        let slots = encoder.encode(&step.command);
        let Stream { place, session } = step.stream;
        let what = kind::RUN | (slots.len() as u64) << 32;
        let head = [what, place as u64, session, step.origin, step.cost_ns, 0, 0, 0];
        let in_flight = InFlight {
            stream: step.stream,
            subject: Some(subject(&step.command)),
            origin: step.origin,
            token: step.token,
            bytes: step.bytes,
            cost_ns: step.cost_ns,
        };
        self.queue(head, slots, in_flight);
        self.encoder = encoder;
    }
}

impl<B: Backend> WorkerLink for ThreadLink<B> {
    fn info(&mut self) -> WorkerInfo {
        // While the worker is busy: as of its last step.
        let memory_bytes = match self.core.try_lock() {
            Ok(mut core) => core.backend().memory().used_bytes as u64,
            Err(_) => self.used_bytes.load(Relaxed),
        };
        WorkerInfo { memory_bytes, ..self.info.clone() }
    }

    fn rates(&self) -> (f64, f64) {
        self.rates
    }

    fn open(&mut self, stream: Stream) {
        let shared = Arc::new(StreamShared::default());
        self.shared.insert(stream.session, shared.clone());
        if let Some(mut core) = self.idle_core() {
            return core.open(stream.place, shared);
        }
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).insert(stream.session, shared);
        self.queue_control(kind::OPEN, stream);
    }

    fn add_arena(&mut self, stream: Stream, arena: Arena) {
        if let Some(shared) = self.shared.get(&stream.session) {
            shared.add_arena(arena);
        }
    }

    fn close(&mut self, stream: Stream) {
        if let Some(shared) = self.shared.remove(&stream.session) {
            shared.cancelled.store(true, Relaxed);
        }
        // Freeing much memory takes long: never on the caller's thread.
        self.queue_control(kind::CLOSE, stream);
    }

    #[inline]
    fn is_full(&mut self) -> bool {
        if self.in_flight.is_empty() {
            return false;
        }
        self.queued_ns >= QUEUED_NS_MAX
            || self.in_flight.len() >= STEPS_MAX / 2
            || !self.backlog.is_empty()
            || self.work.free_slots() as usize <= 2 * SLOTS_MAX
    }

    #[inline]
    fn submit(&mut self, step: &Step) -> Outcome {
        if step.cost_ns <= self.inline_ns_max
            && let Some(mut core) = self.idle_core()
        {
            return Outcome::Done(core.run(step.stream.place, step.origin, &step.command, step.out.as_ref()));
        }
        let idle = self.in_flight.is_empty();
        self.queue_step(step);
        if idle {
            self.flush();
        }
        Outcome::Queued
    }

    fn submit_all(&mut self, steps: &[Step], done: &mut dyn FnMut(&Step, Result<(), Failure>)) -> bool {
        let cost_ns: u64 = steps.iter().map(|step| step.cost_ns).sum();
        if cost_ns <= self.inline_ns_max
            && let Some(mut core) = self.idle_core()
        {
            let job =
                |step: &Step| Job { place: step.stream.place, origin: step.origin, command: step.command.clone() };
            let jobs: Vec<Job> = steps.iter().map(job).collect();
            let mut steps = steps.iter();
            core.run_all(&jobs, |result| {
                if let Some(step) = steps.next() {
                    done(step, result);
                }
            });
            return true;
        }
        for step in steps {
            self.queue_step(step);
        }
        self.flush();
        false
    }

    #[inline]
    fn flush(&mut self) {
        while !self.backlog.is_empty() {
            let room = self.work.free_slots().min(self.backlog.len() as u32);
            if room == 0 {
                break;
            }
            for slot in self.backlog.drain(..room as usize) {
                let _ = self.work.push(&[slot]);
            }
        }
        self.work.publish();
    }

    #[inline]
    fn next_report(&mut self) -> Option<Report> {
        while !self.in_flight.is_empty() {
            let mut slot = [Slot::default()];
            if !matches!(self.reports.pop(&mut slot), Ok(1)) {
                return None;
            }
            let InFlight { stream, subject, origin, token, bytes, cost_ns } = self.in_flight.pop_front()?;
            self.queued_ns -= cost_ns;
            if let Some(subject) = subject {
                let result = Completion::decode(&slot[0]).result;
                return Some(Report { stream, subject, origin, token, bytes, result });
            }
        }
        None
    }

    #[inline]
    fn is_busy(&self) -> bool {
        !self.in_flight.is_empty()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.flush();
        self.backlog.is_empty() && self.reports.prepare_sleep()
    }

    fn cancel_sleep(&mut self) {
        self.reports.cancel_sleep();
        self.bell.silence();
    }

    fn trim(&mut self) {
        self.queue_control(kind::TRIM, Stream { session: 0, place: 0 });
    }

    fn stop(&mut self, patience: Duration) {
        self.queue_control(kind::STOP, Stream { session: 0, place: 0 });
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + patience;
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                return tracing::info!(target: "gtd::worker", "a step that takes long was left unfinished");
            }
            std::thread::sleep(REPORTS_FULL_NAP);
            while self.next_report().is_some() {}
            self.flush();
        }
        if thread.join().is_err() {
            tracing::error!(target: "gtd::worker", "the worker thread panicked");
        }
    }
}

/// How many slots the first step of `slots` takes, if it is all there.
fn whole_step(slots: &[Slot]) -> Option<usize> {
    let len = 1 + (slots.first()?[0] >> 32) as usize;
    (len <= slots.len()).then_some(len)
}

/// The thread's side.
struct Worker<B: Backend> {
    core: Arc<Mutex<Core<B>>>,
    work: FifoReceiver,
    reports: Producer<HeapMem>,
    bell: Arc<Doorbell>,
    opening: Opening,
    used_bytes: Arc<AtomicU64>,
    /// Estimated time of the steps whose reports are held back.
    held_ns: u64,
}

impl<B: Backend> Worker<B> {
    fn run(mut self) {
        let mut slots: Vec<Slot> = vec![[0; 8]; AHEAD_SLOTS];
        let (mut start, mut end) = (0, 0);
        loop {
            while let Some(len) = whole_step(&slots[start..end]) {
                let Some(taken) = self.step(&mut slots, start, &mut end, len) else {
                    return self.publish();
                };
                start += taken;
            }
            slots.copy_within(start..end, 0);
            (start, end) = (0, end - start);
            if self.refill(&mut slots, &mut end) == 0 {
                self.publish();
                self.work.wait(spin_default(), NAP);
            }
        }
    }

    /// Adds what is queued to `slots[..end]`, as far as there is room; returns how many slots that were.
    fn refill(&mut self, slots: &mut [Slot], end: &mut usize) -> usize {
        // Neither end of the fifo is hostile, so it cannot be corrupt.
        let popped = self.work.pop(&mut slots[*end..]).unwrap_or(0);
        *end += popped;
        popped
    }

    /// Does the step in the `len` slots from `start` on, and perhaps some after it. Returns how many slots they took;
    /// nothing at the end.
    fn step(&mut self, slots: &mut [Slot], start: usize, end: &mut usize, len: usize) -> Option<usize> {
        let [what, place, session, origin, cost_ns, ..] = slots[start];
        let place = place as u32;
        let shared_core = self.core.clone();
        let mut core = shared_core.lock().unwrap_or_else(PoisonError::into_inner);
        let mut awaited = false;
        let result = match what & 0xffff_ffff {
            kind::RUN => match decode(&slots[start + 1..start + len]) {
                Ok(command) => {
                    if core.looks_ahead(place, &command) {
                        self.refill(slots, end);
                        return Some(self.steps(core, Job { place, origin, command }, &slots[start..*end], len));
                    }
                    awaited = super::completes(subject(&command));
                    core.run(place, origin, &command, None)
                }
                Err(error) => {
                    tracing::error!(target: "gtd::worker", %error, "a step that makes no sense");
                    Ok(())
                }
            },
            kind::OPEN => {
                let shared = self.opening.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
                core.open(place, shared.unwrap_or_default());
                Ok(())
            }
            kind::CLOSE => {
                core.close(place);
                Ok(())
            }
            kind::TRIM => {
                core.trim();
                Ok(())
            }
            _ => return None,
        };
        self.used_bytes.store(core.backend().memory().used_bytes as u64, Relaxed);
        drop(core);
        self.report(origin, result, cost_ns, awaited);
        Some(len)
    }

    /// Does `first`, whose `len` slots begin `slots`, knowing the instructions and frees that are queued behind it.
    fn steps(&mut self, mut core: MutexGuard<'_, Core<B>>, first: Job, slots: &[Slot], len: usize) -> usize {
        let mut jobs = vec![first];
        let mut ends = vec![len];
        let mut at = len;
        while let Some(len) = whole_step(&slots[at..]) {
            let [what, place, _, origin, ..] = slots[at];
            let command = if what & 0xffff_ffff == kind::RUN { decode(&slots[at + 1..at + len]).ok() } else { None };
            let Some(command @ (Command::Op(_) | Command::Free { .. })) = command else { break };
            jobs.push(Job { place: place as u32, origin, command });
            at += len;
            ends.push(at);
        }
        let mut results = Vec::with_capacity(jobs.len());
        let count = core.run_ahead(&jobs, |result| results.push(result));
        self.used_bytes.store(core.backend().memory().used_bytes as u64, Relaxed);
        drop(core);
        let mut head = 0;
        for ((job, end), result) in jobs.iter().zip(&ends).zip(results) {
            self.report(job.origin, result, slots[head][4], false);
            head = *end;
        }
        ends[count - 1]
    }

    fn report(&mut self, origin: TensorId, result: Result<(), Failure>, cost_ns: u64, awaited: bool) {
        let report = Completion { token: origin, result }.encode();
        while self.reports.push(&[report]).is_err() {
            self.publish();
            std::thread::sleep(REPORTS_FULL_NAP);
        }
        self.held_ns += cost_ns;
        if awaited || self.held_ns >= REPORTS_HELD_NS_MAX || self.reports.unpublished_slots() >= REPORTS_HELD_MAX {
            self.publish();
        }
    }

    fn publish(&mut self) {
        self.held_ns = 0;
        if self.reports.publish() {
            self.bell.ring();
        }
    }
}
