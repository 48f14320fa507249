//! The client's end of a connection: a daemon, as far as the client can tell.
//!
//! Two threads: one takes instructions out of the session's ring and sends them, each after the bytes that it reads;
//! the other takes what comes, bytes into the arenas, completions into the ring.

use crate::frame::{DATA_BYTES_MAX, Frame, push_data, push_slots, slots_in};
use crate::greeting::{self, Answer, Error, Wish, push_json};
use crate::stream::Incoming;
use crate::token::Token;
use gt_ops::wire::{self, Command};
use gt_protocol::{ClientMessage, Connection, DaemonMessage, Hello, RefusalCode, Refused};
use gt_shm::port::{POP_SLOTS_MAX, spin_default};
use gt_shm::{Arena, ClientPort, DaemonPort, SessionState, Slot, Socket, fork};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

type Ended = Box<dyn std::error::Error + Send + Sync>;

struct Near {
    tcp: Arc<TcpStream>,
    /// The daemon's end of the rings that the client has.
    port: Mutex<DaemonPort>,
    /// The client's arenas, by number.
    arenas: Mutex<Vec<Arena>>,
    /// The daemon's end of the client's control socket.
    control: Socket,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins a session with the daemon at `host` and `port`, which is used as one with a daemon of this machine.
///
/// # Errors
/// Nobody there, somebody else, or a daemon that refuses.
pub fn connect(host: &str, port: u16, token: &Token, hello: Hello) -> Result<Connection, Error> {
    let (tcp, incoming, answer) = greeting::greet(host, port, token, Wish::Session, hello)?;
    let malformed = |what: String| Error::Refused {
        address: format!("{host}:{port}"),
        source: gt_protocol::Error::Malformed(what),
    };
    let Answer::Welcome(welcome) = answer else { return Err(malformed(format!("{answer:?}"))) };
    let grant = welcome.session.as_ref().ok_or_else(|| malformed("a welcome without a session".into()))?;
    gt_protocol::check_grant(grant).map_err(|error| malformed(error.to_string()))?;
    let (daemon_port, fds) = DaemonPort::create(grant.sq_slots, grant.cq_slots).map_err(Error::Local)?;
    let client_port = ClientPort::connect(fds, grant.sq_slots, grant.cq_slots).map_err(Error::Local)?;
    let (ours, control) = Socket::pair().map_err(Error::Local)?;
    // A forked child would hold the connection open after this process has ended.
    fork::close_in_child(tcp.as_raw_fd());
    fork::close_in_child(control.as_fd().as_raw_fd());
    let near = Arc::new(Near { tcp, port: Mutex::new(daemon_port), arenas: Mutex::default(), control });
    let local = |source| Error::Local(gt_shm::Error::Os { what: "start a thread", source });
    let down = near.clone();
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    thread("gt-tcp-down").spawn(move || down.ended(down.take(incoming))).map_err(local)?;
    let up = near.clone();
    thread("gt-tcp-up").spawn(move || up.ended(up.send())).map_err(|error| {
        near.ended(Ok(()));
        local(error)
    })?;
    Ok(Connection { socket: ours, welcome: *welcome, port: Some(client_port) })
}

impl Drop for Near {
    fn drop(&mut self) {
        fork::keep_in_child(self.tcp.as_raw_fd());
        fork::keep_in_child(self.control.as_fd().as_raw_fd());
    }
}

impl Near {
    /// One direction has ended: so does the other, and the client is told.
    fn ended(&self, how: Result<(), Ended>) {
        if let Err(error) = how {
            tracing::info!(target: "gt_client", %error, "the connection with the daemon has ended");
        }
        let _ = self.tcp.shutdown(Shutdown::Both);
        lock(&self.port).set_state(SessionState::Closed);
        self.control.shut_down();
    }

    /// Sends what the client submits and asks, until it ends.
    fn send(&self) -> Result<(), Ended> {
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
                    // What was submitted before it goes before it.
                    while self.ship(&mut out, &mut extension_slots)? {}
                    push_json(&mut out, &message);
                    self.write(&mut out)?;
                    if message == ClientMessage::Bye {
                        return Ok(());
                    }
                    continue;
                }
                Err(gt_protocol::Error::TimedOut(_)) => {}
                Err(gt_protocol::Error::HungUp) => return Ok(()),
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
            // Also wakes when the other direction has ended the session.
            let _ = poll(&mut [PollFd::new(&bell, PollFlags::IN), PollFd::new(&self.control, PollFlags::IN)], None);
            bell.silence();
            lock(&self.port).cancel_sleep();
        }
    }

    /// Sends what waits in the ring. False if nothing did.
    fn ship(&self, out: &mut Vec<u8>, extension_slots: &mut usize) -> Result<bool, Ended> {
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

    /// Sends the bytes of an arena that an instruction will read.
    fn push_arena(&self, out: &mut Vec<u8>, place: wire::ArenaRange) -> Result<(), Ended> {
        let arena = usize::try_from(place.segment).ok().and_then(|at| lock(&self.arenas).get(at).cloned());
        let arena = arena.ok_or("an instruction names an arena that is not there")?;
        let range = arena.range(place.offset_bytes, place.len_bytes)?;
        let mut offset = place.offset_bytes;
        for piece in range.chunks(DATA_BYTES_MAX) {
            push_data(out, place.segment, offset, piece.len(), |bytes| piece.copy_in(bytes));
            offset += piece.len() as u64;
            if out.len() >= DATA_BYTES_MAX {
                self.write(out)?;
            }
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), Ended> {
        (&*self.tcp).write_all(out)?;
        out.clear();
        Ok(())
    }

    /// Takes what the daemon sends, until it ends.
    fn take(&self, mut incoming: Incoming) -> Result<(), Ended> {
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
                Frame::Message(message) => self.answer(serde_json::from_slice(message)?)?,
            }
        }
    }

    /// Passes on what the daemon answers; an arena is made here, too.
    fn answer(&self, message: DaemonMessage) -> Result<(), Ended> {
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
