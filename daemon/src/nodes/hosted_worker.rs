//! A worker of a node, as the node's agent sees it.
//!
//! The agent has the daemon's ends of the rings of the worker's process. Steps that come from the daemon go to the
//! process, reports go back. The arenas of sessions are memory of the node's own, with the numbers and offsets of the
//! daemon's.

use super::messages::ToDaemon;
use super::stand_in::{StepPart, StepReader};
use crate::worker::process::keeper::{Child, Keeper, News};
use crate::worker::process::life::{self, CHECK_EVERY, LifeWatch, Liveness};
use crate::worker::process::message::{Message, Ready};
use crate::worker::process::worker_device::WorkerDevice;
use crate::worker::step_wire::{ReportWords, StepHeader, StepKind};
use gt_bridge::lasting_link::LastingLink;
use gt_bridge::link_frame::{DATA_BYTES_MAX, send_data, send_message, send_slots};
use gt_ops::failure::WorkerEnd;
use gt_ops::wire::{self, ArenaRange, Command};
use gt_protocol::{ProtocolError, WorkerInfo};
use gt_shm::{Arena, ArenaSlice, DaemonPort, Doorbell, Slot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The delay before a worker whose process has ended is offered again, which doubles with each end in a row.
const AGAIN_MIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(30);
/// The end of a process that lived this long starts a new count.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// The longest wait before the state of the link is checked.
const WAIT_SLICE: Duration = Duration::from_millis(500);

/// A command of the daemon to the worker.
pub enum HostCommand {
    /// Slots of steps.
    Slots(Vec<Slot>),
    /// A message, which a step announces.
    Letter(Message, Option<Arc<OwnedFd>>),
    /// Cancels a session's instructions whose results have lower ids.
    Cancel(u64, u64),
    /// Ends the process.
    End,
}

/// The description of a worker's process.
pub struct HostedStart {
    /// The worker, as the frames number it.
    pub worker: u32,
    /// Its description for users.
    pub info: WorkerInfo,
    /// The device that it computes on.
    pub device: WorkerDevice,
    /// Its number among the daemon's workers.
    pub number: usize,
    /// How often in a row its process has ended.
    pub ends: Arc<Mutex<u32>>,
}

/// A worker of a node.
pub struct HostedWorker {
    commands: Sender<HostCommand>,
    bell: Doorbell,
    arenas: Arenas,
    memory: Memory,
}

/// The memory of the tensors of a worker's process, if others can map it, with the process's name; none until the
/// process is ready.
type Memory = Arc<Mutex<Option<(String, Arc<OwnedFd>)>>>;

/// The sessions' arenas, by session and number; none for one that was given back before it came.
type Arenas = Arc<Mutex<HashMap<(u64, u32), Option<Arena>>>>;

fn lock(arenas: &Arenas) -> MutexGuard<'_, HashMap<(u64, u32), Option<Arena>>> {
    arenas.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HostedWorker {
    /// Starts the worker's process, and a thread that serves it.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn start(link: LastingLink, start: HostedStart) -> std::io::Result<HostedWorker> {
        let bell = Doorbell::new().map_err(std::io::Error::other)?;
        let clone = || bell.try_clone().map_err(std::io::Error::other);
        let HostedStart { worker, info, device, number, ends } = start;
        let keeper = Keeper::start_once("/proc/self/exe".into(), number, device, info, clone()?)?;
        let (commands, coming) = channel();
        let (arenas, memory) = (Arenas::default(), Memory::default());
        let serving = Serving {
            worker,
            link,
            keeper,
            bell: clone()?,
            coming,
            arenas: arenas.clone(),
            memory: memory.clone(),
            process: None,
            backlog: VecDeque::new(),
            letters: VecDeque::new(),
            cancelled: Vec::new(),
            reader: StepReader::default(),
            in_flight: VecDeque::new(),
            watch: LifeWatch::default(),
            checked: Instant::now(),
            ends,
        };
        std::thread::Builder::new().name("gt-hosts".into()).spawn(move || serving.run())?;
        Ok(HostedWorker { commands, bell, arenas, memory })
    }

    /// Passes a command on to the worker's thread.
    pub fn command(&self, command: HostCommand) {
        // A thread that has ended takes no commands; the daemon knows of the end.
        let _ = self.commands.send(command);
        self.bell.ring();
    }

    /// The memory of the tensors of the worker's process, if that process is called `process` and others can map it.
    pub fn memory_of(&self, process: &str) -> Option<Arc<OwnedFd>> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().filter(|(name, _)| name == process).map(|(_, memory)| memory.clone())
    }

    /// Makes an arena.
    ///
    /// # Errors
    /// The system has no memory or descriptor left.
    pub fn add_arena(&self, session: u64, number: u32, bytes: u64) -> Result<(), String> {
        let (arena, fd) = Arena::create(bytes).map_err(|error| format!("an arena of {bytes} bytes: {error}"))?;
        lock(&self.arenas).insert((session, number), Some(arena));
        self.command(HostCommand::Letter(Message::Arena { session, number, bytes }, Some(Arc::new(fd))));
        Ok(())
    }

    /// Notes that an arena does not come, as it was given back; with `ended` because its session has ended.
    pub fn forget_arena(&self, session: u64, number: u32, ended: bool) {
        lock(&self.arenas).insert((session, number), None);
        self.command(HostCommand::Letter(Message::Outdated { session, number, ended }, None));
    }

    /// Writes bytes that a step reads.
    ///
    /// # Errors
    /// There is no such range of an arena.
    pub fn data(&self, (session, arena, offset): (u64, u32, u64), bytes: &[u8]) -> Result<(), String> {
        let Some(Some(arena)) = lock(&self.arenas).get(&(session, arena)).cloned() else { return Ok(()) };
        arena.copy_out(offset, bytes).map_err(|error| error.to_string())
    }
}

/// A fetch whose report has not come yet.
struct FetchInFlight {
    session: u64,
    to: ArenaRange,
    range: ArenaSlice,
}

/// The thread that serves a worker's process.
struct Serving {
    worker: u32,
    link: LastingLink,
    keeper: Keeper,
    bell: Doorbell,
    coming: Receiver<HostCommand>,
    arenas: Arenas,
    memory: Memory,
    process: Option<(Child, DaemonPort)>,
    /// Slots for which the ring had no room.
    backlog: VecDeque<Slot>,
    /// Messages for which the socket had no room.
    letters: VecDeque<(Message, Option<Arc<OwnedFd>>)>,
    /// Cancellations that came before the process was ready.
    cancelled: Vec<(u64, u64)>,
    reader: StepReader,
    /// The steps whose reports have not come, in order; those that fetch with their range.
    in_flight: VecDeque<Option<FetchInFlight>>,
    watch: LifeWatch,
    checked: Instant,
    ends: Arc<Mutex<u32>>,
}

impl Serving {
    fn run(mut self) {
        let begun = Instant::now();
        let end = self.serve();
        if let Some((child, _)) = &self.process {
            child.kill();
        } else {
            self.end_starting();
        }
        let why = match end {
            Ok(Some(why)) => why,
            Ok(None) => return,
            Err(error) => error.to_string(),
        };
        let worker = self.worker;
        if send_message(&self.link, &ToDaemon::Ended { worker, why }).is_err() {
            return;
        }
        let ends = {
            let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
            *ends = if begun.elapsed() >= STABLE_AFTER { 1 } else { *ends + 1 };
            *ends
        };
        std::thread::sleep((AGAIN_MIN * 2u32.pow(ends.min(10))).min(AGAIN_MAX));
        // The link may have ended meanwhile, and with it this node's part.
        let _ = send_message(&self.link, &ToDaemon::Again { worker });
    }

    /// Ends a process that is still starting.
    fn end_starting(&mut self) {
        while !self.keeper.is_finished() {
            if let Some(News::Started { child, .. }) = self.keeper.news() {
                return child.kill();
            }
            let timeout = Timespec { tv_sec: 0, tv_nsec: WAIT_SLICE.as_nanos() as i64 };
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)], Some(&timeout));
            self.bell.silence();
        }
    }

    /// Serves until the process ends: then returns how. Returns none if the daemon wants its end, or the link has
    /// ended.
    fn serve(&mut self) -> Result<Option<String>, Box<dyn Error>> {
        loop {
            // The bell falls silent first, so that it rings for what comes meanwhile.
            self.bell.silence();
            let mut ended = None;
            while let Some(news) = self.keeper.news() {
                match news {
                    News::Started { child, port } => self.started(child, *port.ok_or("a process without rings")?)?,
                    News::Ended { end, why, .. } => {
                        ended = Some(why.map_or(end.to_string(), |why| format!("{end}: {why}")))
                    }
                }
            }
            while let Ok(command) = self.coming.try_recv() {
                match command {
                    HostCommand::Slots(slots) => self.take(&slots)?,
                    HostCommand::Letter(message, fd) => self.letters.push_back((message, fd)),
                    HostCommand::Cancel(session, below) => match &self.process {
                        Some((child, _)) => life::cancel_below(&child.cancellations, session, below),
                        None => self.cancelled.push((session, below)),
                    },
                    HostCommand::End => return Ok(None),
                }
            }
            self.post()?;
            self.push();
            self.report()?;
            if ended.is_some() {
                return Ok(ended);
            }
            if self.link.ended().is_some() {
                return Ok(None);
            }
            self.check_life();
            if self.process.as_ref().is_none_or(|(_, port)| port.prepare_sleep()) && !self.keeper.has_news() {
                let timeout = Timespec { tv_sec: 0, tv_nsec: WAIT_SLICE.as_nanos() as i64 };
                let _ = poll(&mut [PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)], Some(&timeout));
            }
            if let Some((_, port)) = &self.process {
                port.cancel_sleep();
            }
        }
    }

    fn started(&mut self, child: Child, port: DaemonPort) -> Result<(), Box<dyn Error>> {
        let ready = Ready {
            version: env!("CARGO_PKG_VERSION").into(),
            capabilities: Ok(child.capabilities),
            device: child.device.clone(),
            endpoint: child.endpoint.clone(),
        };
        for (session, below) in self.cancelled.drain(..) {
            life::cancel_below(&child.cancellations, session, below);
        }
        if let (Some(endpoint), Some(memory)) = (&child.endpoint, &child.memory) {
            let memory = Some((endpoint.process.clone(), memory.clone()));
            *self.memory.lock().unwrap_or_else(PoisonError::into_inner) = memory;
        }
        self.process = Some((child, port));
        Ok(send_message(&self.link, &ToDaemon::Ready { worker: self.worker, ready: Box::new(ready) })?)
    }

    /// Notes the steps in slots that go to the process.
    fn take(&mut self, slots: &[Slot]) -> Result<(), Box<dyn Error>> {
        for slot in slots {
            match self.reader.read(slot)? {
                StepPart::Header(StepHeader { owner, kind }) => {
                    self.in_flight.push_back(None);
                    match kind {
                        StepKind::Close => lock(&self.arenas).retain(|(of, _), _| *of != owner.session),
                        StepKind::DropArena { number } => drop(lock(&self.arenas).remove(&(owner.session, number))),
                        _ => {}
                    }
                }
                StepPart::Transfer { session } => {
                    if let Command::Fetch { to, .. } = wire::decode(&[*slot])? {
                        let arena = lock(&self.arenas).get(&(session, u32::try_from(to.segment)?)).cloned();
                        let Some(arena) = arena.ok_or("a fetch into an arena that is not there")? else { continue };
                        let range = arena.range(to.offset_bytes, to.len_bytes)?;
                        if let Some(last) = self.in_flight.back_mut() {
                            *last = Some(FetchInFlight { session, to, range });
                        }
                    }
                }
                StepPart::Other => {}
            }
        }
        self.backlog.extend(slots);
        Ok(())
    }

    /// Sends messages to the process as far as its socket has room. One that hung up gets none: its end, of which the
    /// keeper tells how it came, is near.
    fn post(&mut self) -> Result<(), Box<dyn Error>> {
        let Some((child, _)) = &self.process else { return Ok(()) };
        while let Some((message, fd)) = self.letters.front() {
            let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
            match gt_protocol::link::send(&child.socket, message, &fds, Duration::ZERO) {
                Ok(()) => drop(self.letters.pop_front()),
                // A process that runs a long step reads its messages later.
                Err(ProtocolError::TimedOut(_)) => return Ok(()),
                Err(ProtocolError::HungUp) => {
                    child.kill();
                    self.letters.clear();
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Gives slots to the process as far as its ring has room.
    fn push(&mut self) {
        let Some((_, port)) = &mut self.process else { return };
        let room = (port.free_completions() as usize).min(self.backlog.len());
        for slot in self.backlog.drain(..room) {
            // There is room, as only this thread writes to the ring.
            let _ = port.complete(slot);
        }
        if room > 0 {
            port.flush_completions();
        }
    }

    /// Sends the process's reports, each after the bytes that its fetch has written.
    fn report(&mut self) -> Result<(), Box<dyn Error>> {
        let mut out = Vec::new();
        loop {
            let Some((_, port)) = &mut self.process else { return Ok(()) };
            let mut slot = [Slot::default()];
            match port.pop(&mut slot) {
                Ok(0) => break,
                Ok(_) => {}
                Err(_) => return Err("its ring of reports is corrupt".into()),
            }
            let report = ReportWords::decode(&slot[0]);
            let ended = self.in_flight.remove(usize::from(report.overtaken)).ok_or("a report of no step")?;
            if let (Some(fetch), Ok(())) = (ended, report.completion.result) {
                self.send_fetched(&fetch)?;
            }
            out.push(slot[0]);
        }
        if !out.is_empty() {
            send_slots(&self.link, self.worker, &out)?;
            // There is room for more steps.
            self.push();
        }
        Ok(())
    }

    fn send_fetched(&self, FetchInFlight { session, to, range }: &FetchInFlight) -> Result<(), Box<dyn Error>> {
        let arena = u32::try_from(to.segment)?;
        let mut bytes = vec![0; DATA_BYTES_MAX.min(range.len())];
        let mut offset = to.offset_bytes;
        for piece in range.chunks(DATA_BYTES_MAX) {
            let bytes = &mut bytes[..piece.len()];
            piece.copy_in(bytes);
            send_data(&self.link, self.worker, (*session, arena, offset), bytes)?;
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    /// Kills a process that has steps and shows no sign of life.
    fn check_life(&mut self) {
        if self.checked.elapsed() < CHECK_EVERY {
            return;
        }
        self.checked = Instant::now();
        let Some((child, _)) = &mut self.process else { return };
        let measured = |link| {
            // A link with the daemon that has ended ends this as well.
            let _ = send_message(&self.link, &ToDaemon::Measured { link });
        };
        if self.watch.check(&child.socket, !self.in_flight.is_empty(), measured) == Liveness::Lost {
            child.ended_for = Some(WorkerEnd::Unresponsive);
            child.kill();
        }
    }
}
