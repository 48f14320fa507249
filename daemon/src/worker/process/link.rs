//! The dispatcher's link to a worker's process.

use super::keeper::{Child, Keeper, News};
use super::life::{self, CHECK_EVERY, LifeWatch, Liveness, SILENT_CHECKS_MAX};
use super::message::Message;
use super::rank_messages::messages_for;
use super::worker_device::WorkerDevice;
use crate::nodes::data_port;
use crate::nodes::endpoint::Endpoint;
use crate::nodes::relay::RelayPort;
use crate::worker::queue::{InvalidReport, PreemptedStep, Queue, QueueLimit, RunningStep, WORK_SLOTS, Wire};
use crate::worker::rank_assignment::RankAssignment;
use crate::worker::step::{Report, SessionSlot, SharedStep, Step, Submission};
use crate::worker::step_wire::{MemoryLimits, StepKind, WorkerLoss};
use crate::worker::worker_link::{Availability, WorkerLink};
use gt_backend::{MemoryUsage, Site};
use gt_ops::failure::{Failure, Fault, WorkerEnd, WorkerName};
use gt_ops::wire::{Command, Slot};
use gt_ops::{TensorId, Workers};
use gt_protocol::{ProtocolError, WorkerInfo, WorkerState};
use gt_shm::{Arena, DaemonPort, Doorbell, Socket};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// While the daemon ends, the interval of the checks whether the process has ended.
const STOP_NAP: Duration = Duration::from_micros(100);
/// The time in which a worker must end a step whose session has ended. It is as long as that for a process which sends
/// no heartbeats.
const CANCELLED_MAX: Duration = CHECK_EVERY.saturating_mul(SILENT_CHECKS_MAX);
/// The longest wait for the end of a killed process.
const KILL_PATIENCE: Duration = Duration::from_millis(500);

/// The link to a worker's process.
pub struct ProcessLink {
    info: WorkerInfo,
    rates: (f64, f64),
    name: WorkerName,
    bell: Doorbell,
    keeper: Keeper,
    queue: Queue<ProcessWire>,
    /// The lane of a worker of a node, with which it begins.
    lane: Option<LaneEnd>,
    /// The process, while there is one.
    child: Option<Child>,
    /// Messages for which the socket had no room, oldest first.
    letters: VecDeque<Letter>,
    sessions: BTreeMap<u64, OpenSession>,
    /// Reports that are still to be handed out after the process has ended: its last ones, and the failures of the
    /// steps that it did not finish.
    lost: VecDeque<Report>,
    /// How the last process ended.
    last_end: WorkerEnd,
    watch: LifeWatch,
    /// The session that had ended at the last check although the oldest step is its, and the time of the check that
    /// first found that.
    outlived: Option<(u64, Instant)>,
    /// Whether the process registered itself, instead of being started by the daemon.
    registered: bool,
    /// Whether its steps may have preemption points: an asynchronous device has none.
    preempts: bool,
    stopping: bool,
}

/// The state with which a session is opened in this process, and again in the next one.
struct OpenSession {
    owner: SessionSlot,
    /// Length and memory, by number; none for an arena that was returned.
    arenas: Vec<Option<(u64, Arc<OwnedFd>)>>,
    limits: MemoryLimits,
    /// Bytes that the session's tensors took at the last report.
    held: u64,
    /// The most bytes that they took at one time.
    peak: u64,
    /// How the last process ended that had this session open; `None` if none has ended.
    loss: Option<WorkerEnd>,
    /// Instructions with lower ids are cancelled.
    cancelled_below: TensorId,
}

struct Letter {
    message: Message,
    fd: Option<Arc<OwnedFd>>,
}

/// How steps reach a process, and reports come back.
enum ProcessWire {
    /// There is no process.
    Closed,
    /// The daemon's end of a process's rings.
    Rings(Box<DaemonPort>),
    /// The lane of a worker of a node.
    Lane(LaneEnd),
}

/// The dispatcher's end of a lane.
struct LaneEnd {
    relay: Rc<RefCell<RelayPort>>,
    number: usize,
    token: u64,
}

impl Wire for ProcessWire {
    #[inline]
    fn free_slots(&mut self) -> u32 {
        match self {
            ProcessWire::Closed => 0,
            ProcessWire::Rings(port) => port.free_completions(),
            // The list grows. The steps in flight at each worker are limited.
            ProcessWire::Lane(_) => WORK_SLOTS,
        }
    }
    #[inline]
    fn push(&mut self, header: &Slot, command: &[Slot]) {
        match self {
            ProcessWire::Closed => {}
            ProcessWire::Rings(port) => {
                for slot in std::iter::once(header).chain(command) {
                    // There is room: the queue has checked it, and only this thread writes to the ring.
                    let _ = port.complete(*slot);
                }
            }
            ProcessWire::Lane(lane) => {
                let slots: Arc<[Slot]> = std::iter::once(header).chain(command).copied().collect();
                lane.relay.borrow_mut().push(lane.number, &slots);
            }
        }
    }
    #[inline]
    fn push_shared(&mut self, slots: &Arc<[Slot]>) {
        match self {
            ProcessWire::Lane(lane) => lane.relay.borrow_mut().push(lane.number, slots),
            other => {
                if let Some((header, command)) = slots.split_first() {
                    other.push(header, command);
                }
            }
        }
    }
    #[inline]
    fn publish(&mut self) {
        match self {
            ProcessWire::Closed => {}
            ProcessWire::Rings(port) => port.flush_completions(),
            ProcessWire::Lane(lane) => lane.relay.borrow_mut().publish(),
        }
    }
    #[inline]
    fn pop(&mut self) -> Result<Option<Slot>, InvalidReport> {
        match self {
            ProcessWire::Closed => Ok(None),
            ProcessWire::Rings(port) => {
                let mut slot = [Slot::default()];
                match port.pop(&mut slot) {
                    Ok(0) => Ok(None),
                    Ok(_) => Ok(Some(slot[0])),
                    Err(_) => Err(InvalidReport),
                }
            }
            ProcessWire::Lane(lane) => Ok(lane.relay.borrow_mut().pop(lane.number)),
        }
    }
}

impl ProcessWire {
    fn close(&mut self) {
        if let ProcessWire::Lane(lane) = std::mem::replace(self, ProcessWire::Closed) {
            lane.relay.borrow_mut().end(lane.number);
        }
    }

    fn has_reports(&self) -> bool {
        match self {
            ProcessWire::Closed => false,
            ProcessWire::Rings(port) => port.has_work(),
            ProcessWire::Lane(lane) => lane.relay.borrow().has_reports(lane.number),
        }
    }

    /// Makes the next report ring the bell. False if there is one.
    fn prepare_sleep(&self) -> bool {
        match self {
            // There is nothing to poll: the keeper rings the bell when it has news.
            ProcessWire::Closed => true,
            ProcessWire::Rings(port) => port.prepare_sleep(),
            ProcessWire::Lane(lane) => lane.relay.borrow_mut().prepare_sleep(lane.number),
        }
    }
}

impl ProcessLink {
    /// Starts worker `number` on `device`, which `info` describes to users. Its process runs `program`, which is `gtd`.
    /// The call does not wait until the process has started.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn start(
        program: PathBuf,
        number: usize,
        device: WorkerDevice,
        info: WorkerInfo,
    ) -> std::io::Result<ProcessLink> {
        let bell = Doorbell::new().map_err(std::io::Error::other)?;
        let rings = bell.try_clone().map_err(std::io::Error::other)?;
        let keeper = Keeper::start(program, number, device, info.clone(), rings)?;
        Ok(ProcessLink::new(info, device, bell, keeper, false))
    }

    /// Takes in process `pid`, at the other end of `socket`, as worker `number` on `device`, which `info` describes to
    /// users. The steps of a worker of a node go by `relay`. The call does not wait until the process is ready.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn adopt(
        socket: Socket,
        pid: u32,
        number: usize,
        device: WorkerDevice,
        info: WorkerInfo,
        relay: Option<&Rc<RefCell<RelayPort>>>,
    ) -> std::io::Result<ProcessLink> {
        let bell = Doorbell::new().map_err(std::io::Error::other)?;
        let rings = bell.try_clone().map_err(std::io::Error::other)?;
        let lane = relay.filter(|_| info.node.is_some()).map(|relay| {
            let token = relay.borrow_mut().new_token();
            LaneEnd { relay: relay.clone(), number, token }
        });
        let token = lane.as_ref().map(|lane| lane.token);
        let keeper = Keeper::adopt(socket, pid, number, device, info.clone(), (rings, token))?;
        let mut link = ProcessLink::new(info, device, bell, keeper, true);
        link.lane = lane;
        Ok(link)
    }

    fn new(info: WorkerInfo, device: WorkerDevice, bell: Doorbell, keeper: Keeper, registered: bool) -> ProcessLink {
        ProcessLink {
            name: WorkerName::new(&info.name),
            rates: device.estimated(&info).rates(),
            info: WorkerInfo { state: WorkerState::Starting, ..info },
            bell,
            keeper,
            queue: Queue::new(ProcessWire::Closed),
            lane: None,
            child: None,
            letters: VecDeque::new(),
            sessions: BTreeMap::new(),
            lost: VecDeque::new(),
            last_end: WorkerEnd::NotStarted,
            watch: LifeWatch::default(),
            outlived: None,
            registered,
            preempts: device.backend.site == Site::Host,
            stopping: false,
        }
    }

    fn fault(&self) -> Fault {
        Fault::WorkerLost { worker: self.name, end: self.last_end }
    }

    /// Handles the events that the keeper, the thread that starts and watches the process, has sent.
    #[cold]
    fn read_news(&mut self) {
        // The bell falls silent first, so that it rings for what comes meanwhile.
        self.bell.silence();
        while let Some(news) = self.keeper.news() {
            match news {
                News::Started { child, port } => self.started(child, port),
                News::Ended { end, why, again, waits } => {
                    self.ended(end, why, waits);
                    if let Some(delay) = again {
                        let (name, end) = (self.name, self.last_end);
                        tracing::warn!(target: "gtd::worker", "worker {name} {end}; it is started again after {delay:?}");
                    }
                }
            }
        }
    }

    fn started(&mut self, child: Child, port: Option<Box<DaemonPort>>) {
        if self.stopping {
            return child.let_go();
        }
        self.info.state = WorkerState::Running;
        if self.info.node.is_none() {
            self.info.process = Some(child.pid);
        }
        self.info.memory_bytes_limit = child.capabilities.memory_bytes_limit;
        self.info.device = child.device.clone();
        self.rates = child.capabilities.rates();
        for (session, opened) in self.sessions.iter().filter(|(_, opened)| opened.cancelled_below > 0) {
            life::cancel_below(&child.cancellations, *session, opened.cancelled_below);
        }
        self.child = Some(child);
        self.queue.wire = match (port, self.lane.take()) {
            (Some(port), _) => ProcessWire::Rings(port),
            (None, Some(lane)) => {
                lane.relay.borrow_mut().begin(lane.number, lane.token);
                ProcessWire::Lane(lane)
            }
            (None, None) => ProcessWire::Closed,
        };
        let ProcessLink { queue, sessions, letters, name, .. } = self;
        queue.before_all(|queue| {
            for (session, opened) in sessions {
                let loss = opened.loss.map(|end| WorkerLoss { worker: *name, end });
                queue.control(opened.owner, StepKind::Open { loss });
                queue.control(opened.owner, StepKind::Limit(opened.limits));
                for (number, arena) in (0..).zip(&opened.arenas) {
                    let Some((bytes, fd)) = arena else { continue };
                    letters.push_back(Letter::arena(*session, number, *bytes, fd));
                    queue.control(opened.owner, StepKind::Message);
                }
            }
        });
        self.post();
        if self.registered {
            self.control(SessionSlot::default(), StepKind::Registered);
            self.queue.flush();
        }
    }

    fn ended(&mut self, end: WorkerEnd, why: Option<String>, waits: bool) {
        // Reports from before the end are valid.
        while let Ok(Some(report)) = self.queue.next_report() {
            self.lost.push_back(report);
        }
        // If the link ended the process itself, it knows the reason better than the exit status tells it.
        self.last_end = self.child.as_ref().and_then(|child| child.ended_for).unwrap_or(end);
        self.info.state = match waits {
            _ if self.registered => WorkerState::Left,
            true => WorkerState::Down,
            false => WorkerState::Starting,
        };
        self.info.process = None;
        self.info.losses += 1;
        self.info.last_loss = Some(why.map_or(self.last_end.to_string(), |why| format!("{}: {why}", self.last_end)));
        let fault = self.fault();
        self.lost.extend(self.queue.lose(fault));
        self.queue.wire.close();
        self.child = None;
        self.letters.clear();
        for opened in self.sessions.values_mut() {
            opened.loss = Some(self.last_end);
            (opened.held, opened.peak) = (0, 0);
        }
    }

    /// Ends a process that has sent an invalid report.
    #[cold]
    fn distrust(&mut self) {
        if let Some(child) = &mut self.child {
            tracing::error!(target: "gtd::worker", worker = %self.name, "its reports make no sense: it is ended");
            child.ended_for = Some(WorkerEnd::InvalidReport);
            child.kill();
        }
        // Nothing more is read from the process; the keeper reports its end.
        self.queue.wire.close();
    }

    /// Sends the process a message, which takes effect after the queued steps. Without a process it sends nothing: the
    /// next one is told of all sessions when it starts.
    fn tell(&mut self, owner: SessionSlot, letter: Letter) {
        if self.child.is_some() {
            self.letters.push_back(letter);
            self.post();
            self.control(owner, StepKind::Message);
        }
    }

    /// Sends messages as far as the socket has room.
    fn post(&mut self) {
        let Some(child) = &self.child else { return };
        while let Some(Letter { message, fd }) = self.letters.front() {
            let fds: Vec<BorrowedFd<'_>> = fd.iter().map(|fd| fd.as_fd()).collect();
            match gt_protocol::link::send(&child.socket, message, &fds, Duration::ZERO) {
                Ok(()) => drop(self.letters.pop_front()),
                // A process that runs a long step, or is stopped, reads its messages later.
                Err(ProtocolError::TimedOut(_)) => return,
                Err(error) => {
                    // The process has ended, or must be ended because it would miss a message.
                    tracing::warn!(target: "gtd::worker", worker = %self.name, %error, "it takes no messages: it is ended");
                    child.kill();
                    self.letters.clear();
                }
            }
        }
    }

    /// Takes the memory out of messages that are still to be sent: a process that takes none for long must not keep the
    /// memory of sessions that have ended, or have returned it.
    fn forget_arenas(&mut self, ended: bool, is_outdated: impl Fn(u64, u32) -> bool) {
        for letter in &mut self.letters {
            if let Message::Arena { session, number, .. } = letter.message
                && is_outdated(session, number)
            {
                *letter = Letter { message: Message::Outdated { session, number, ended }, fd: None };
            }
        }
    }

    /// The failure of a step whose worker is down.
    fn refused(&self, step: &Step) -> Option<Failure> {
        let op = if let Command::Op(instruction) = &step.command { Some(instruction.op) } else { None };
        self.is_down().then(|| Failure { fault: self.fault(), instruction: step.origin, op })
    }

    /// Whether steps fail because there is no process and none will start soon.
    fn is_down(&self) -> bool {
        matches!(self.info.state, WorkerState::Down | WorkerState::Left)
    }

    /// Publishes the queued steps, of which `step` is one. Those of several workers of nodes are published when all
    /// have them.
    #[inline]
    fn publish_soon(&mut self, step: &Step) {
        match &self.queue.wire {
            ProcessWire::Lane(lane) if step.workers.len() > 1 => lane.relay.borrow_mut().await_publication(),
            _ => self.queue.flush(),
        }
    }

    /// Queues a step that the link itself needs, for example to open a session.
    fn control(&mut self, owner: SessionSlot, kind: StepKind) {
        // The next process is told of all sessions when it starts.
        if self.child.is_some() {
            self.queue.control(owner, kind);
        }
    }
}

impl Letter {
    fn arena(session: u64, number: u32, bytes: u64, fd: &Arc<OwnedFd>) -> Letter {
        Letter { message: Message::Arena { session, number, bytes }, fd: Some(fd.clone()) }
    }
}

/// The memory limits of a session and of its user.
fn limits_of(usage: &MemoryUsage) -> MemoryLimits {
    let (user, user_bytes) = usage.group().map_or((0, 0), |group| (group.id(), group.limit()));
    MemoryLimits { session_bytes: usage.limit(), user, user_bytes }
}

impl WorkerLink for ProcessLink {
    fn info(&mut self) -> WorkerInfo {
        let running = self.queue.oldest().and_then(RunningStep::info);
        WorkerInfo { memory_bytes: self.queue.memory_bytes(), running, ..self.info.clone() }
    }

    fn rates(&self) -> (f64, f64) {
        self.rates
    }

    fn open(&mut self, owner: SessionSlot, usage: &Arc<MemoryUsage>) {
        let limits = limits_of(usage);
        self.sessions.insert(
            owner.session,
            OpenSession { owner, arenas: Vec::new(), limits, held: 0, peak: 0, loss: None, cancelled_below: 0 },
        );
        self.control(owner, StepKind::Open { loss: None });
        self.limit(owner, usage);
    }

    fn limit(&mut self, owner: SessionSlot, usage: &MemoryUsage) {
        let Some(opened) = self.sessions.get_mut(&owner.session) else { return };
        opened.limits = limits_of(usage);
        let limits = opened.limits;
        self.control(owner, StepKind::Limit(limits));
    }

    fn held(&mut self, owner: SessionSlot) -> u64 {
        self.sessions.get(&owner.session).map_or(0, |opened| opened.held)
    }

    fn peak(&mut self, owner: SessionSlot) -> u64 {
        self.sessions.get(&owner.session).map_or(0, |opened| opened.peak)
    }

    fn reset_peak(&mut self, owner: SessionSlot) {
        if let Some(opened) = self.sessions.get_mut(&owner.session) {
            opened.peak = opened.held;
            self.control(owner, StepKind::ResetPeak);
        }
    }

    fn add_arena(&mut self, owner: SessionSlot, arena: Arena, fd: &Arc<OwnedFd>) {
        let Some(opened) = self.sessions.get_mut(&owner.session) else { return };
        let number = opened.arenas.len() as u32;
        opened.arenas.push(Some((arena.len(), fd.clone())));
        self.tell(owner, Letter::arena(owner.session, number, arena.len(), fd));
    }

    fn drop_arena(&mut self, owner: SessionSlot, number: u32) -> Option<Arena> {
        let opened = self.sessions.get_mut(&owner.session)?;
        drop(opened.arenas.get_mut(number as usize)?.take()?);
        self.forget_arenas(false, |session, of| (session, of) == (owner.session, number));
        self.control(owner, StepKind::DropArena { number });
        None
    }

    fn close(&mut self, owner: SessionSlot) {
        if self.sessions.remove(&owner.session).is_some() {
            if let Some(child) = &self.child {
                life::cancel_below(&child.cancellations, owner.session, TensorId::MAX);
            }
            self.forget_arenas(true, |session, _| session == owner.session);
            self.control(owner, StepKind::Close);
        }
    }

    fn cancel_below(&mut self, owner: SessionSlot, id: TensorId) {
        let Some(opened) = self.sessions.get_mut(&owner.session) else { return };
        opened.cancelled_below = opened.cancelled_below.max(id);
        if let Some(child) = &self.child {
            life::cancel_below(&child.cancellations, owner.session, id);
        }
    }

    fn is_thread(&self) -> bool {
        false
    }

    fn memory(&self) -> Option<Arc<OwnedFd>> {
        self.child.as_ref()?.memory.clone()
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.child.as_ref()?.endpoint.clone()
    }

    fn last_end(&mut self) -> Option<WorkerEnd> {
        // Another worker may have noticed the end before the dispatcher.
        self.read_news();
        (self.info.losses > 0).then_some(self.last_end)
    }

    fn losses(&self) -> u64 {
        self.info.losses.into()
    }

    fn availability(&self) -> Availability {
        match self.info.state {
            WorkerState::Starting if self.registered => Availability::Registering,
            WorkerState::Left => Availability::Left,
            WorkerState::Down => Availability::Down,
            _ => Availability::Available,
        }
    }

    fn join(&mut self, workers: Workers, assignment: RankAssignment) {
        if self.child.is_none() {
            // The next process is in no group until a new one is formed.
            return;
        }
        match messages_for(assignment) {
            Ok(messages) => self.letters.extend(messages.into_iter().map(|(message, fd)| Letter { message, fd })),
            Err(error) => return tracing::error!(target: "gtd::worker", error, "a rank was not assigned"),
        }
        self.post();
        self.queue.control(SessionSlot::default(), StepKind::Join { workers });
    }

    fn leave(&mut self, workers: Workers, gone: Workers) {
        self.control(SessionSlot::default(), StepKind::Leave { workers, gone });
    }

    fn note_time(&mut self, now_ns: u64) {
        self.queue.note_time(now_ns);
    }

    #[inline]
    fn is_full(&mut self, limit: QueueLimit) -> bool {
        match self.info.state {
            WorkerState::Running => self.queue.is_full(limit) || !self.lost.is_empty(),
            WorkerState::Starting => !self.registered,
            _ => !self.lost.is_empty(),
        }
    }

    fn has_steps_of(&self, slot: u32) -> bool {
        self.queue.has_steps_of(slot)
    }

    fn preempted(&self) -> Option<PreemptedStep> {
        self.queue.preempted().filter(|_| self.preempts && self.info.state == WorkerState::Running)
    }

    fn may_overtake(&mut self, owner: SessionSlot, expected_ns: u64) -> bool {
        self.lost.is_empty() && self.queue.may_overtake(owner, expected_ns)
    }

    #[inline]
    fn submit(&mut self, step: &Step, shared: &[SharedStep]) -> Submission {
        if let Some(failure) = self.refused(step) {
            return Submission::Done(Err(failure));
        }
        let idle = self.queue.is_empty();
        self.queue.steps(std::slice::from_ref(step), shared);
        if idle {
            self.publish_soon(step);
        }
        Submission::Queued
    }

    fn submit_all(
        &mut self,
        steps: &[Step],
        shared: &[SharedStep],
        done: &mut dyn FnMut(&Step, Result<(), Failure>),
    ) -> bool {
        if self.is_down() {
            for step in steps {
                done(step, self.refused(step).map_or(Ok(()), Err));
            }
            return true;
        }
        self.queue.steps(steps, shared);
        if let Some(step) = steps.first() {
            self.publish_soon(step);
        }
        false
    }

    #[inline]
    fn flush(&mut self) {
        if !self.letters.is_empty() {
            self.post();
        }
        self.queue.flush();
    }

    #[inline]
    fn next_report(&mut self) -> Option<Report> {
        if self.keeper.has_news() {
            self.read_news();
        }
        if let Some(report) = self.lost.pop_front() {
            return Some(report);
        }
        match self.queue.next_report() {
            Ok(report) => {
                if let (Some(_), Some((session, held, peak))) = (&report, self.queue.held())
                    && let Some(opened) = self.sessions.get_mut(&session)
                {
                    opened.held = held;
                    opened.peak = peak.unwrap_or(opened.peak);
                }
                report
            }
            Err(InvalidReport) => {
                self.distrust();
                None
            }
        }
    }

    #[inline]
    fn is_busy(&self) -> bool {
        !self.queue.is_empty() || !self.lost.is_empty() || self.keeper.has_news()
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.post();
        if self.queue.is_empty() && self.queue.wire.has_reports() {
            // The process has sent a report although no step is queued, so the report is invalid.
            self.distrust();
        }
        self.queue.flush();
        self.queue.wire.prepare_sleep() && !self.keeper.has_news() && self.lost.is_empty()
    }

    fn has_backlog(&self) -> bool {
        self.child.is_some() && (!self.letters.is_empty() || self.queue.has_backlog())
    }

    fn cancel_sleep(&mut self) {
        match &self.queue.wire {
            ProcessWire::Closed => {}
            ProcessWire::Rings(port) => port.cancel_sleep(),
            // Its own bell rings for news alone, and falls silent when they are read.
            ProcessWire::Lane(lane) => return lane.relay.borrow_mut().cancel_sleep(),
        }
        self.bell.silence();
    }

    fn check_life(&mut self) {
        let oldest = self.queue.oldest().filter(|oldest| oldest.owner.session != 0);
        // A collective ends when the other workers come to it: they may be busy.
        let ended =
            |oldest: &RunningStep| !oldest.is_collective() && !self.sessions.contains_key(&oldest.owner.session);
        let outlives = oldest.filter(ended);
        // A step that ran for long before its session ended has as much time to end as any other.
        self.outlived = outlives.map(|RunningStep { owner: SessionSlot { session, .. }, .. }| {
            self.outlived.filter(|(other, _)| *other == session).unwrap_or((session, Instant::now()))
        });
        let Some(child) = &mut self.child else { return };
        // While the process was stopped, its socket may have had no room for the cancellation.
        if let Some(RunningStep { owner: SessionSlot { session, .. }, .. }) = oldest {
            let below = self.sessions.get(&session).map_or(TensorId::MAX, |opened| opened.cancelled_below);
            if below > 0 {
                life::cancel_below(&child.cancellations, session, below);
            }
        }
        let is_over = |since: Duration| since >= CANCELLED_MAX;
        if outlives.is_some_and(|oldest| is_over(oldest.since))
            && self.outlived.is_some_and(|(_, first)| is_over(first.elapsed()))
        {
            let (name, pid) = (self.name, child.pid);
            let step = outlives.and_then(RunningStep::info).map_or_else(String::new, |running| running.step);
            tracing::warn!(
                target: "gtd::worker",
                "worker {name}, process {pid}, does not end the step {step} of a session that has ended; it is ended"
            );
            child.ended_for = Some(WorkerEnd::Unresponsive);
            return child.kill();
        }
        let measured = |link| {
            if let Some(port) = data_port::of_this_process() {
                port.note(link);
            }
        };
        match self.watch.check(&child.socket, !self.queue.is_empty(), measured) {
            Liveness::Alive => {}
            Liveness::Silent => {
                let name = self.name;
                tracing::warn!(
                    target: "gtd::worker",
                    "worker {name}, process {}, does not answer, as if it were stopped; it is ended unless it goes on",
                    child.pid
                );
            }
            Liveness::Lost => {
                child.ended_for = Some(WorkerEnd::Unresponsive);
                child.kill();
            }
        }
    }

    fn trim(&mut self) {
        self.control(SessionSlot::default(), StepKind::Trim);
    }

    fn stop(&mut self, patience: Duration) {
        self.stopping = true;
        self.keeper.stop();
        self.control(SessionSlot::default(), StepKind::Stop);
        let mut deadline = Instant::now() + patience;
        let mut killed = false;
        while !self.keeper.is_finished() {
            if Instant::now() >= deadline {
                if std::mem::replace(&mut killed, true) {
                    return tracing::warn!(target: "gtd::worker", worker = %self.name, "its process does not end");
                }
                tracing::info!(target: "gtd::worker", worker = %self.name, "a step that takes long was left unfinished");
                self.read_news();
                if let Some(child) = &self.child {
                    child.kill();
                }
                deadline = Instant::now() + KILL_PATIENCE;
            }
            std::thread::sleep(STOP_NAP);
            while self.next_report().is_some() {}
            self.flush();
        }
    }
}

impl Drop for ProcessLink {
    fn drop(&mut self) {
        (self.stopping, _) = (true, self.keeper.stop());
        self.read_news();
        if let Some(child) = &self.child {
            child.let_go();
        }
    }
}
