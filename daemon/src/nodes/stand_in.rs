//! The place of a node's worker on the daemon's machine.
//!
//! A stand-in registers at the daemon's socket as a worker's process does, and has a lane of the
//! [`relay`](super::relay) in place of such a process's rings. The relay sends most steps to the node; the stand-in
//! sends those that the node gets after something else, such as the arena bytes that they read. Reports come back, each
//! after the bytes that its fetch has written. Two threads serve it: one for such steps, one for everything that must
//! not wait behind them.

use super::messages::{OfferedWorker, ToNode, complete};
use super::relay::{Lane, Relay};
use crate::worker::process::life::{BEAT, BEAT_EVERY, CANCELLATION_BYTES, cancellation_of};
use crate::worker::process::message::{Message, Ready};
use crate::worker::step_wire::{StepHeader, StepKind};
use gt_bridge::lasting_link::LastingLink;
use gt_bridge::link_frame::{DATA_BYTES_MAX, send_data, send_message, send_slots};
use gt_ops::wire::{self, Command};
use gt_protocol::limits::{HANDSHAKE_DEADLINE, REPLY_DEADLINE};
use gt_protocol::{Hello, Role, WorkerOffer};
use gt_shm::socket::MESSAGE_FDS_MAX;
use gt_shm::{Arena, Slot, Socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest wait for steps before the state of the link is checked.
const WAIT_SLICE: Duration = Duration::from_millis(500);
/// A worker whose name is still taken by its former process tries again after this, for [`NAME_DEADLINE`].
const NAME_NAP: Duration = Duration::from_millis(50);
const NAME_DEADLINE: Duration = Duration::from_secs(5);

/// The node of a worker, as the daemon sees it.
#[derive(Clone, Debug)]
pub struct NodePlace {
    /// The node's name.
    pub name: String,
    /// The node's address, as workers of other machines reach it.
    pub host: String,
}

/// An event of the node before the worker is ready.
enum StandInEvent {
    Ready(Box<Ready>),
    Ended(String),
}

/// The place of a node's worker.
pub struct StandIn {
    worker: u32,
    /// The number of the worker's process, which tells it from a former one in the same place.
    life: u64,
    link: LastingLink,
    relay: Arc<Relay>,
    events: Sender<StandInEvent>,
    state: Mutex<StandInState>,
}

#[derive(Default)]
struct StandInState {
    /// The worker's lane, once it is ready.
    lane: Option<Arc<Lane>>,
    /// The arenas of all sessions, by session and number; none for one that was given back before it came.
    arenas: HashMap<(u64, u32), Option<Arena>>,
    /// The connection with the daemon.
    socket: Option<Arc<Socket>>,
    /// The node's events before the worker is ready, until the worker's thread takes them.
    coming: Option<Receiver<StandInEvent>>,
    ended: bool,
}

impl StandIn {
    /// The place of worker `worker`, which is not registered yet. Its steps come by `relay`.
    pub fn new(link: LastingLink, worker: u32, relay: Arc<Relay>) -> Arc<StandIn> {
        static LIVES: AtomicU64 = AtomicU64::new(0);
        let life = LIVES.fetch_add(1, Relaxed);
        let (events, coming) = channel();
        let state = Mutex::new(StandInState { coming: Some(coming), ..StandInState::default() });
        Arc::new(StandIn { worker, life, link, relay, events, state })
    }

    /// Registers the worker at the daemon's socket `path`, on a thread of its own. What is returned disconnects when
    /// the worker has its number, or gets none.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        self: &Arc<Self>,
        place: NodePlace,
        offered: OfferedWorker,
        path: Arc<Path>,
    ) -> std::io::Result<Receiver<Infallible>> {
        let (own, (registering, registered)) = (self.clone(), channel());
        std::thread::Builder::new().name("gt-stands-in".into()).spawn(move || {
            let name = format!("{}/{}", place.name, offered.name);
            let end = own.run(&place, &name, &offered, (&path, registering));
            // A link that has ended is told of once, for all workers of the node.
            if let Err(error) = end
                && own.link.ended().is_none()
            {
                tracing::error!(target: "gtd::nodes", worker = name, %error, "a worker of a node ended");
            }
            own.end();
            // The node keeps no process that the daemon does not know.
            let _ = send_message(&own.link, &ToNode::End { worker: own.worker, life: own.life });
        })?;
        Ok(registered)
    }

    fn lock(&self) -> MutexGuard<'_, StandInState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The worker's process is ready.
    pub fn ready(&self, ready: Box<Ready>) {
        // A stand-in that has ended waits for nothing.
        let _ = self.events.send(StandInEvent::Ready(ready));
    }

    /// The worker's process has ended.
    pub fn ended(&self, why: String) {
        let _ = self.events.send(StandInEvent::Ended(why));
        self.end();
    }

    /// Ends the worker: for the daemon, it has left.
    pub fn end(&self) {
        let lane = {
            let mut state = self.lock();
            state.ended = true;
            state.arenas.clear();
            if let Some(socket) = &state.socket {
                socket.shut_down();
            }
            state.lane.take()
        };
        if let Some(lane) = lane {
            self.relay.close(&lane);
        }
    }

    /// Passes reports on to the dispatcher.
    ///
    /// # Errors
    /// There are more reports than steps.
    pub fn report(&self, slots: &[Slot]) -> Result<(), String> {
        let lane = self.lock().lane.clone();
        // The last reports of a worker that was given up are of no use.
        lane.map_or(Ok(()), |lane| self.relay.report(&lane, slots))
    }

    /// Writes bytes that the node has fetched.
    ///
    /// # Errors
    /// There is no such range of an arena.
    pub fn data(&self, (session, arena, offset): (u64, u32, u64), bytes: &[u8]) -> Result<(), String> {
        // The session may have ended meanwhile.
        let Some(Some(arena)) = self.lock().arenas.get(&(session, arena)).cloned() else { return Ok(()) };
        arena.copy_out(offset, bytes).map_err(|error| error.to_string())
    }

    fn run(
        self: &Arc<Self>,
        place: &NodePlace,
        name: &str,
        offered: &OfferedWorker,
        (path, registering): (&Path, Sender<Infallible>),
    ) -> Result<(), Box<dyn Error>> {
        let offer = WorkerOffer {
            pid: std::process::id(),
            threads: offered.threads,
            memory_bytes_limit: offered.memory_bytes_limit,
            device: Some(offered.device.clone()),
            node: Some(place.name.clone()),
        };
        let hello = Hello { offer: Some(offer), ..Hello::new(Role::Worker, Some(name.to_owned())) };
        let begun = Instant::now();
        let socket = loop {
            match gt_protocol::connect(path, &hello) {
                Ok(connection) => break Arc::new(connection.socket),
                Err(_) if begun.elapsed() < NAME_DEADLINE && self.link.ended().is_none() && !self.lock().ended => {
                    std::thread::sleep(NAME_NAP)
                }
                Err(error) => return Err(error.into()),
            }
        };
        {
            let mut state = self.lock();
            state.socket = Some(socket.clone());
            if state.ended {
                return Ok(());
            }
        }
        // The daemon has numbered the worker.
        drop(registering);
        let coming = self.lock().coming.take().ok_or("a stand-in runs once")?;
        let start = gt_protocol::link::recv(&socket, MESSAGE_FDS_MAX, REPLY_DEADLINE)?;
        let (Message::Start { info, device, number, lane: Some(token), .. }, _) = start else {
            return Err("the daemon said something else before it said what this worker is".into());
        };
        let lane = self.relay.open(token, number, self.link.clone(), self.worker)?;
        {
            let mut state = self.lock();
            if state.ended {
                self.relay.close(&lane);
                return Ok(());
            }
            state.lane = Some(lane.clone());
        }
        send_message(&self.link, &ToNode::Start { worker: self.worker, life: self.life, info, device, number })?;
        let mut ready = match coming.recv_timeout(device.backend.ready_deadline) {
            Ok(StandInEvent::Ready(ready)) => ready,
            Ok(StandInEvent::Ended(why)) => return Err(why.into()),
            Err(_) => return Err("the node does not say that it is ready".into()),
        };
        ready.endpoint = ready.endpoint.map(|endpoint| complete(endpoint, &place.name, &place.host));
        let ((lifeline, given), (cancellations, raised)) = (Socket::pair()?, Socket::pair()?);
        gt_protocol::link::send(&socket, &*ready, &[given.as_fd(), raised.as_fd()], HANDSHAKE_DEADLINE)?;
        // `given` stays open here: its end would be an event on `lifeline`.
        let (own, watched) = (self.clone(), socket.clone());
        let watch = move || own.watch(&watched, (&lifeline, &given), &cancellations);
        std::thread::Builder::new().name("gt-stand-in".into()).spawn(watch)?;
        drop(raised);
        self.pass_on(&socket, &lane)
    }

    /// Sends heartbeats to the daemon as long as the link lasts, and cancellations and the end to the node.
    fn watch(&self, socket: &Socket, (lifeline, _given): (&Socket, &Socket), cancellations: &Socket) {
        let worker = self.worker;
        let mut beat = Instant::now();
        while self.link.ended().is_none() && !self.lock().ended {
            let left = BEAT_EVERY.saturating_sub(beat.elapsed());
            if left.is_zero() {
                // The node itself looks after its process. This fails if unread heartbeats fill the socket.
                let _ = socket.send(BEAT, &[], Some(Duration::ZERO));
                beat = Instant::now();
                continue;
            }
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let socket_fd = socket.as_fd();
            let mut fds = [
                PollFd::new(&socket_fd, PollFlags::RDHUP),
                PollFd::from_borrowed_fd(lifeline.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(cancellations.as_fd(), PollFlags::IN),
            ];
            let _ = poll(&mut fds, Some(&timeout));
            if !fds[0].revents().is_empty() || !fds[1].revents().is_empty() {
                return self.end();
            }
            let mut message = [0; CANCELLATION_BYTES];
            while let Ok(received) = cancellations.recv(&mut message, 0, Some(Duration::ZERO)) {
                if received.len != CANCELLATION_BYTES {
                    return self.end();
                }
                let (session, below) = cancellation_of(&message);
                if send_message(&self.link, &ToNode::Cancel { worker, session, below }).is_err() {
                    return self.end();
                }
            }
        }
        self.end();
    }

    /// Sends the steps that the relay leaves to this thread, until the worker ends.
    fn pass_on(&self, socket: &Socket, lane: &Lane) -> Result<(), Box<dyn Error>> {
        let (mut slots, mut batch) = (Vec::new(), Vec::new());
        let mut reader = StepReader::default();
        loop {
            if self.link.ended().is_some() || self.lock().ended || socket.is_hung_up() {
                return Ok(());
            }
            if !lane.take_detoured(&mut slots, WAIT_SLICE) {
                continue;
            }
            for slot in &slots {
                match reader.read(slot)? {
                    StepPart::Header(StepHeader { owner, kind }) => match kind {
                        StepKind::Message => {
                            self.send(&mut batch)?;
                            self.take_arena(socket)?;
                        }
                        StepKind::Join { .. } => {
                            self.send(&mut batch)?;
                            self.take_rank(socket)?;
                        }
                        StepKind::Close => self.lock().arenas.retain(|(of, _), _| *of != owner.session),
                        StepKind::DropArena { number } => drop(self.lock().arenas.remove(&(owner.session, number))),
                        _ => {}
                    },
                    StepPart::Transfer { session } => self.send_read(session, slot)?,
                    StepPart::Other => {}
                }
                batch.push(*slot);
            }
            self.send(&mut batch)?;
        }
    }

    fn send(&self, batch: &mut Vec<Slot>) -> Result<(), Box<dyn Error>> {
        send_slots(&self.link, self.worker, batch)?;
        batch.clear();
        Ok(())
    }

    /// Sends the bytes that a write reads.
    fn send_read(&self, session: u64, slot: &Slot) -> Result<(), Box<dyn Error>> {
        let Command::Write { from, .. } = wire::decode(&[*slot])? else { return Ok(()) };
        let arena = u32::try_from(from.segment)?;
        let known = self.lock().arenas.get(&(session, arena)).cloned();
        let Some(memory) = known.ok_or("a write from an arena that is not there")? else { return Ok(()) };
        let range = memory.range(from.offset_bytes, from.len_bytes)?;
        let mut bytes = vec![0; DATA_BYTES_MAX.min(range.len())];
        let mut offset = from.offset_bytes;
        for piece in range.chunks(DATA_BYTES_MAX) {
            let bytes = &mut bytes[..piece.len()];
            piece.copy_in(bytes);
            send_data(&self.link, self.worker, (session, arena, offset), bytes)?;
            offset += bytes.len() as u64;
        }
        Ok(())
    }

    fn take_arena(&self, socket: &Socket) -> Result<(), Box<dyn Error>> {
        let worker = self.worker;
        match gt_protocol::link::recv(socket, MESSAGE_FDS_MAX, REPLY_DEADLINE)? {
            (Message::Arena { session, number, bytes }, fds) => {
                let fd = fds.into_iter().next().ok_or("an arena without its memory")?;
                self.lock().arenas.insert((session, number), Some(Arena::map(fd, bytes)?));
                Ok(send_message(&self.link, &ToNode::Arena { worker, session, number, bytes })?)
            }
            (Message::Outdated { session, number, ended }, _) => {
                self.lock().arenas.insert((session, number), None);
                Ok(send_message(&self.link, &ToNode::Outdated { worker, session, number, ended })?)
            }
            _ => Err("a message that comes at another time".into()),
        }
    }

    fn take_rank(&self, socket: &Socket) -> Result<(), Box<dyn Error>> {
        match gt_protocol::link::recv(socket, MESSAGE_FDS_MAX, REPLY_DEADLINE)? {
            // The node's agent makes the group of the node's own ranks.
            (Message::Network { rank, near: false }, _) => {
                Ok(send_message(&self.link, &ToNode::Rank { worker: self.worker, rank: Box::new(rank) })?)
            }
            _ => Err("a rank in a group of one machine".into()),
        }
    }
}

/// Finds the steps in a stream of slots.
#[derive(Default)]
pub struct StepReader {
    /// The slots of the present command that are still to come.
    left: u32,
    first: bool,
    session: u64,
}

/// The meaning of a slot of the stream.
pub enum StepPart {
    /// A step's header.
    Header(StepHeader),
    /// The one slot of a command that moves bytes of an arena.
    Transfer {
        /// The command's session.
        session: u64,
    },
    /// A slot of another command.
    Other,
}

impl StepReader {
    /// The meaning of the next slot.
    ///
    /// # Errors
    /// The slot is no header where one has to be.
    pub fn read(&mut self, slot: &Slot) -> Result<StepPart, Box<dyn Error>> {
        if self.left > 0 {
            self.left -= 1;
            let is_transfer = std::mem::take(&mut self.first) && wire::is_transfer(slot);
            return Ok(if is_transfer { StepPart::Transfer { session: self.session } } else { StepPart::Other });
        }
        let header = StepHeader::decode(slot)?;
        if let StepKind::Run(run) = header.kind {
            (self.left, self.first, self.session) = (run.command_slots, true, header.owner.session);
        }
        Ok(StepPart::Header(header))
    }
}
