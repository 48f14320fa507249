//! The client's end of a TCP connection to a daemon. It runs in the client's process and acts as a local daemon there:
//! it holds the daemon's side of the rings, the arenas and the control socket.
//!
//! It has two threads. One pops instructions from the session's submission ring and sends them; before an instruction
//! that reads arena bytes it sends these bytes. The other thread receives: it copies tensor bytes into the arenas and
//! pushes completions to the completion ring.

use crate::channel::TcpChannel;
use crate::frame::{DATA_BYTES_MAX, Frame, push_data, push_slots, slots_in};
use crate::handshake::{self, ConnectError, ConnectionPurpose, HandshakeReply, TcpWelcome, push_json, shake_hands};
use crate::stream::Incoming;
use crate::token::Token;
use gt_ops::wire::{self, Command};
use gt_protocol::address::TcpAddress;
use gt_protocol::{ClientMessage, Connection, DaemonMessage, Hello, RefusalCode, Refused};
use gt_shm::port::{POP_SLOTS_MAX, spin_default};
use gt_shm::{Arena, ClientPort, DaemonPort, SessionState, Slot, Socket, fork};
use rustix::event::{PollFd, PollFlags, poll};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

struct ClientEnd {
    channel: Arc<TcpChannel>,
    /// The daemon's end of the client's rings.
    port: Mutex<DaemonPort>,
    /// The client's arena segments, by number.
    arenas: Mutex<Vec<Arena>>,
    /// The daemon's end of the client's control socket.
    control: Socket,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session by TCP.
pub struct TcpSession {
    /// The session, which is used like a connection to a local daemon.
    pub connection: Connection,
    /// Interrupts it ahead of what its connection carries; none if the daemon is too old for that.
    pub interrupter: Option<Interrupter>,
}

/// Interrupts a session by a connection of its own, since the session's may have much to carry before.
pub struct Interrupter {
    address: TcpAddress,
    /// The address of the machine at the other end.
    at: SocketAddr,
    key: Token,
    wanted: Arc<Mutex<WantedInterrupt>>,
}

/// The interruption that is wanted.
#[derive(Debug, Default)]
struct WantedInterrupt {
    /// The id of the first result that is not cancelled.
    below: u64,
    /// True while a thread interrupts the session.
    is_running: bool,
}

impl Interrupter {
    /// Interrupts the session's instructions whose results have lower ids than `below`. Does not wait: a thread
    /// connects to the daemon.
    pub fn interrupt(&self, below: u64) {
        let mut wanted = lock(&self.wanted);
        wanted.below = wanted.below.max(below);
        if std::mem::replace(&mut wanted.is_running, true) {
            return;
        }
        let (address, at, key, shared) = (self.address.clone(), self.at, self.key.clone(), self.wanted.clone());
        let interrupt = move || {
            let mut done = 0;
            loop {
                let below = {
                    let mut wanted = lock(&shared);
                    if wanted.below <= done {
                        wanted.is_running = false;
                        return;
                    }
                    wanted.below
                };
                done = below;
                if let Err(error) = handshake::interrupt(&address, at, &key, below) {
                    // The same message is on its way in the session's own connection.
                    tracing::info!(target: "gt_client", %error, "the interrupt waits for what was sent before");
                }
            }
        };
        if std::thread::Builder::new().name("gt-tcp-interrupt".into()).spawn(interrupt).is_err() {
            wanted.is_running = false;
        }
    }
}

/// Opens a session with the daemon at `address`.
///
/// # Errors
/// If there is no daemon at that address, or it refuses.
pub fn connect(address: &TcpAddress, token: &Token, hello: Hello) -> Result<TcpSession, ConnectError> {
    let (channel, incoming, reply) = shake_hands(address, None, token, ConnectionPurpose::Session, hello)?;
    let malformed = |what: String| ConnectError::Refused {
        address: address.authority(),
        source: gt_protocol::ProtocolError::Malformed(what),
    };
    let welcome = match reply {
        HandshakeReply::Welcome(welcome) => *welcome,
        reply => return Err(handshake::unexpected(address, &reply)),
    };
    let TcpWelcome { welcome, interrupt_key } = welcome;
    let interrupter = match (interrupt_key, channel.tcp().peer_addr()) {
        (Some(key), Ok(at)) => {
            let key = Token::new(&key, "the key of the session").map_err(|error| malformed(error.to_string()))?;
            Some(Interrupter { address: address.clone(), at, key, wanted: Arc::default() })
        }
        _ => None,
    };
    let grant = welcome.session.as_ref().ok_or_else(|| malformed("a welcome without a session".into()))?;
    gt_protocol::check_grant(grant).map_err(|error| malformed(error.to_string()))?;
    let (mut daemon_port, fds) = DaemonPort::create(grant.sq_slots, grant.cq_slots).map_err(ConnectError::Local)?;
    daemon_port.set_notice(welcome.notice.as_ref().map_or(0, |notice| notice.number));
    let client_port = ClientPort::connect(fds, grant.sq_slots, grant.cq_slots).map_err(ConnectError::Local)?;
    let (ours, control) = Socket::pair().map_err(ConnectError::Local)?;
    // A forked child would hold the connection open after this process has ended.
    fork::close_in_child(channel.tcp().as_raw_fd());
    fork::close_in_child(control.as_fd().as_raw_fd());
    let end = Arc::new(ClientEnd { channel, port: Mutex::new(daemon_port), arenas: Mutex::default(), control });
    let local = |source| ConnectError::Local(gt_shm::Error::Os { what: "start a thread", source });
    let down = end.clone();
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    thread("gt-tcp-down").spawn(move || down.ended(down.receive(incoming))).map_err(local)?;
    let up = end.clone();
    thread("gt-tcp-up").spawn(move || up.ended(up.send())).map_err(|error| {
        end.ended(Ok(()));
        local(error)
    })?;
    let connection = Connection { socket: ours, welcome, port: Some(client_port) };
    Ok(TcpSession { connection, interrupter })
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        fork::keep_in_child(self.channel.tcp().as_raw_fd());
        fork::keep_in_child(self.control.as_fd().as_raw_fd());
    }
}

impl ClientEnd {
    /// Ends both directions after one of them has ended, and closes the client's session.
    fn ended(&self, how: Result<(), BoxError>) {
        if let Err(error) = how {
            tracing::info!(target: "gt_client", %error, "the connection with the daemon has ended");
        }
        let _ = self.channel.shutdown(Shutdown::Both);
        lock(&self.port).set_state(SessionState::Closed);
        self.control.shut_down();
    }

    /// Sends the client's instructions and control messages until the session ends.
    fn send(&self) -> Result<(), BoxError> {
        let mut out = Vec::with_capacity(2 * DATA_BYTES_MAX);
        let mut extension_slots = 0;
        let spin = spin_default();
        let mut last_work = Instant::now();
        loop {
            if self.ship(&mut out, &mut extension_slots)? {
                last_work = Instant::now();
                continue;
            }
            match gt_protocol::recv_client_message(&self.control, Duration::ZERO) {
                Ok(message) => {
                    // The instructions submitted before the message go first.
                    while self.ship(&mut out, &mut extension_slots)? {}
                    push_json(&mut out, &message);
                    self.write(&mut out)?;
                    if message == ClientMessage::Bye {
                        return Ok(());
                    }
                    continue;
                }
                Err(gt_protocol::ProtocolError::TimedOut(_)) => {}
                Err(gt_protocol::ProtocolError::HungUp) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            if last_work.elapsed() < spin {
                std::hint::spin_loop();
                continue;
            }
            let bell = {
                let port = lock(&self.port);
                if !port.prepare_sleep() {
                    continue;
                }
                port.doorbell().try_clone()?
            };
            // The control socket also wakes this thread when the other direction has ended the session.
            let _ = poll(&mut [PollFd::new(&bell, PollFlags::IN), PollFd::new(&self.control, PollFlags::IN)], None);
            bell.silence();
            lock(&self.port).cancel_sleep();
        }
    }

    /// Sends the slots in the submission ring. Returns false if it was empty.
    fn ship(&self, out: &mut Vec<u8>, extension_slots: &mut usize) -> Result<bool, BoxError> {
        let mut slots = [Slot::default(); POP_SLOTS_MAX];
        loop {
            let count = lock(&self.port).pop(&mut slots)?;
            for slot in &slots[..count] {
                if *extension_slots > 0 {
                    *extension_slots -= 1;
                    continue;
                }
                *extension_slots = wire::slots_of(slot)? - 1;
                if wire::is_transfer(slot)
                    && let Command::Write { from, .. } = wire::decode(&[*slot])?
                {
                    self.push_arena(out, from)?;
                }
            }
            push_slots(out, &slots[..count]);
            if count < slots.len() || out.len() >= DATA_BYTES_MAX {
                let shipped = !out.is_empty();
                self.write(out)?;
                return Ok(shipped);
            }
        }
    }

    /// Sends the arena bytes that an instruction will read.
    fn push_arena(&self, out: &mut Vec<u8>, from: wire::ArenaRange) -> Result<(), BoxError> {
        let arena = usize::try_from(from.segment).ok().and_then(|at| lock(&self.arenas).get(at).cloned());
        let arena = arena.ok_or("an instruction names an arena that is not there")?;
        let range = arena.range(from.offset_bytes, from.len_bytes)?;
        let mut offset = from.offset_bytes;
        for piece in range.chunks(DATA_BYTES_MAX) {
            push_data(out, from.segment, offset, piece.len(), |bytes| piece.copy_in(bytes));
            offset += piece.len() as u64;
            if out.len() >= DATA_BYTES_MAX {
                self.write(out)?;
            }
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), BoxError> {
        self.channel.write_all(out)?;
        out.clear();
        Ok(())
    }

    /// Receives the daemon's frames until the connection ends.
    fn receive(&self, mut incoming: Incoming) -> Result<(), BoxError> {
        loop {
            match incoming.next()? {
                Frame::Slots(payload) => {
                    let mut port = lock(&self.port);
                    for slot in slots_in(payload) {
                        port.complete(slot).map_err(|_| "more completions than the client has room for")?;
                    }
                    port.flush_completions();
                }
                Frame::Data { segment, offset, bytes } => {
                    let arena = usize::try_from(segment).ok().and_then(|at| lock(&self.arenas).get(at).cloned());
                    arena.ok_or("bytes for an arena that is not there")?.copy_out(offset, bytes)?;
                }
                Frame::Records(_) => return Err("records of a tape that was not asked for".into()),
                Frame::Message(message) => self.answer(serde_json::from_slice(message)?)?,
            }
        }
    }

    /// Passes the daemon's reply to the client. If the reply grants an arena, creates a local segment for it and sends
    /// the client its descriptor.
    fn answer(&self, message: DaemonMessage) -> Result<(), BoxError> {
        if let DaemonMessage::NewNotice { number } = message {
            // No reply: the client sees the number, and asks.
            lock(&self.port).set_notice(number);
            return Ok(());
        }
        let send = |message: &DaemonMessage, fds: &[_]| {
            gt_protocol::send_daemon_message(&self.control, message, fds, Duration::ZERO)
        };
        let DaemonMessage::ArenaGranted { segment, bytes } = message else { return Ok(send(&message, &[])?) };
        let mut arenas = lock(&self.arenas);
        if segment as usize != arenas.len() {
            return Err("arenas out of order".into());
        }
        match Arena::create(bytes) {
            Ok((arena, fd)) if arena.len() == bytes => {
                arenas.push(arena);
                Ok(send(&message, &[fd.as_fd()])?)
            }
            Ok(_) => Err("an arena that is no whole number of pages".into()),
            Err(error) => {
                let text = format!("no arena of {bytes} bytes: {error}");
                send(&DaemonMessage::Refused(Refused::new(RefusalCode::Exhausted, text)), &[])?;
                Err(error.into())
            }
        }
    }
}
