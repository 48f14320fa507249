//! The daemon's end of connections: to the daemon, each is a client on a Unix socket like any other.

use crate::frame::{DATA_BYTES_MAX, Frame, MAGIC, push_data, push_slots, slots_in};
use crate::handshake::{ConnectionPurpose, HandshakeReply, HandshakeRequest, is_local, prepare, push_json};
use crate::peer;
use crate::stream::{Incoming, StreamError};
use crate::token::Token;
use gt_ops::wire::{self, Command, Completion};
use gt_protocol::limits::{HANDSHAKE_DEADLINE, HANDSHAKES_MAX};
use gt_protocol::message::OnBehalf;
use gt_protocol::{
    ClientMessage, Connection, DaemonMessage, Hello, PROTOCOL_VERSION, RefusalCode, Refused, Role, SessionGrant,
};
use gt_shm::port::spin_default;
use gt_shm::{Arena, ArenaSlice, Completions, SessionState, Slot, Socket, Submitter};
use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most connections with a session at one time. Each has two threads.
pub const CONNECTIONS_MAX: usize = 256;
/// A client that reads nothing for this long is considered gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(60);
/// The time for a client to read why its session was ended.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(2);
/// The longest wait for completions before the daemon's health is checked.
const WAIT_SLICE: Duration = Duration::from_millis(500);
/// The most slots that are pushed into the ring at one time.
const PUSH_SLOTS_MAX: usize = 64;
/// The sleep after a failed accept, for example when no descriptors are left.
const ACCEPT_NAP: Duration = Duration::from_millis(20);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A listening TCP port.
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    token: Token,
    socket: PathBuf,
    /// Connections that have not sent their request yet, oldest first.
    handshakes: Mutex<VecDeque<Arc<TcpStream>>>,
    /// The number of connections with a session.
    open: AtomicUsize,
}

/// Counts a connection in `Listener::open` until dropped.
struct ConnectionPermit<'a>(&'a AtomicUsize);

impl Drop for ConnectionPermit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Listener {
    /// Listens at `address` for clients that have `token`, on behalf of the daemon whose Unix socket is `socket`.
    ///
    /// # Errors
    /// An error of the system, for example that the address is in use.
    pub fn bind(address: SocketAddr, token: Token, socket: &Path) -> std::io::Result<Listener> {
        let tcp = TcpListener::bind(address)?;
        let (address, socket) = (tcp.local_addr()?, socket.to_owned());
        Ok(Listener { tcp, address, token, socket, handshakes: Mutex::default(), open: AtomicUsize::default() })
    }

    /// The address; for port 0, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections in threads of its own until the process ends.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(self) -> std::io::Result<()> {
        let listener = Arc::new(self);
        std::thread::Builder::new().name("gt-tcp".into()).spawn(move || listener.accept())?;
        Ok(())
    }

    fn accept(self: Arc<Self>) {
        let mut is_logged = false;
        loop {
            let (tcp, peer) = match self.tcp.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        tracing::warn!(target: "gtd::tcp", %error, "no connection can be accepted for a while");
                    }
                    std::thread::sleep(ACCEPT_NAP);
                    continue;
                }
            };
            is_logged = false;
            let tcp = Arc::new(tcp);
            self.begin_handshake(tcp.clone());
            let (listener, own) = (self.clone(), tcp.clone());
            let served = move || {
                if let Err(error) = listener.serve(own, peer) {
                    tracing::warn!(target: "gtd::tcp", %peer, "a connection was ended: {error}");
                }
            };
            if let Err(error) = std::thread::Builder::new().name("gt-tcp-up".into()).spawn(served) {
                tracing::warn!(target: "gtd::tcp", %error, "no thread for a connection");
                self.end_handshake(&tcp);
            }
        }
    }

    /// Adds a connection to those in the handshake. If there are too many, the oldest is closed, so that silent
    /// connections cannot keep others out.
    fn begin_handshake(&self, tcp: Arc<TcpStream>) {
        let mut handshakes = lock(&self.handshakes);
        if handshakes.len() >= HANDSHAKES_MAX as usize
            && let Some(oldest) = handshakes.pop_front()
        {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        handshakes.push_back(tcp);
    }

    fn end_handshake(&self, tcp: &Arc<TcpStream>) {
        lock(&self.handshakes).retain(|other| !Arc::ptr_eq(other, tcp));
    }

    fn serve(&self, tcp: Arc<TcpStream>, peer: SocketAddr) -> Result<(), BoxError> {
        let mut incoming = Incoming::new(tcp.clone());
        let prepared = prepare(&tcp).and_then(|()| tcp.set_write_timeout(Some(WRITE_DEADLINE)));
        let first = incoming.first_message(Instant::now() + HANDSHAKE_DEADLINE);
        self.end_handshake(&tcp);
        prepared?;
        let first = first?;
        let reply = |reply: &HandshakeReply| {
            let mut out = MAGIC.to_vec();
            push_json(&mut out, reply);
            (&*tcp).write_all(&out)
        };
        let (request, uid) = match self.authorize(&first, &tcp, peer) {
            Ok(authorized) => authorized,
            Err(refused) => {
                let why = refused.text.clone();
                reply(&HandshakeReply::Refused(refused))?;
                return Err(why.into());
            }
        };
        if request.purpose == ConnectionPurpose::Socket {
            let path = self.socket.display().to_string();
            return Ok(reply(&HandshakeReply::Socket { path, protocol_version: PROTOCOL_VERSION })?);
        }
        let open = self.open.fetch_add(1, Relaxed);
        let _permit = ConnectionPermit(&self.open);
        if open >= CONNECTIONS_MAX {
            let why = format!("{CONNECTIONS_MAX} sessions have come by TCP, as many as may be: end one, or come later");
            reply(&HandshakeReply::Refused(Refused::new(RefusalCode::Exhausted, why.clone())))?;
            return Err(why.into());
        }
        let on_behalf = OnBehalf { uid, pid: request.pid, from: peer.to_string(), administrator: false };
        let hello = Hello { on_behalf: Some(on_behalf), ..request.hello };
        let Connection { socket, welcome, port } = match gt_protocol::connect(&self.socket, &hello) {
            Ok(connection) => connection,
            Err(error) => {
                reply(&HandshakeReply::Refused(gt_protocol::refusal_for(&error)))?;
                return Err(error.into());
            }
        };
        let (Some(grant), Some(port)) = (welcome.session.clone(), port) else {
            return Err("a welcome without a session".into());
        };
        reply(&HandshakeReply::Welcome(Box::new(welcome)))?;
        let (submitter, completions) = port.split();
        let end = DaemonEnd {
            tcp,
            socket,
            grant,
            fetches: Mutex::default(),
            sending: Mutex::default(),
            ending: Mutex::default(),
        };
        std::thread::scope(|scope| {
            let down = || end.ended(end.send(completions));
            let Ok(down) = std::thread::Builder::new().name("gt-tcp-down".into()).spawn_scoped(scope, down) else {
                return end.ended(Err("no thread for a connection".into()));
            };
            let received = end.receive(incoming, submitter);
            let ended = end.ended(received);
            let other = down.join().unwrap_or_else(|_| Err("a defect in GT".into()));
            ended.and(other)
        })
    }

    /// Decodes the first message and checks its version, token and purpose. Also returns the client's user id.
    fn authorize(&self, first: &[u8], tcp: &TcpStream, peer: SocketAddr) -> Result<(HandshakeRequest, u32), Refused> {
        match gt_protocol::version_in(first) {
            Some(PROTOCOL_VERSION) | None => {}
            Some(client) => {
                return Err(gt_protocol::refusal_for(&gt_protocol::ProtocolError::ClientVersion { client }));
            }
        }
        let request: HandshakeRequest =
            serde_json::from_slice(first).map_err(|error| Refused::new(RefusalCode::Malformed, error.to_string()))?;
        let not_permitted = |text: &str| Err(Refused::new(RefusalCode::NotPermitted, text));
        if !self.token.matches(&request.token) {
            return not_permitted(
                "wrong token: take it from the daemon's token file, by GT_TOKEN or gt.connect(…, token=…)",
            );
        }
        match request.purpose {
            ConnectionPurpose::Socket if !is_local(peer) => {
                return not_permitted("its socket is for programs on its own machine");
            }
            ConnectionPurpose::Session if request.hello.role != Role::Client => {
                return not_permitted("only sessions travel by TCP");
            }
            _ => {}
        }
        match peer::local_user(tcp, peer) {
            Ok(uid) => Ok((request, uid.unwrap_or(peer::NOBODY))),
            Err(error) => not_permitted(&error.to_string()),
        }
    }
}

/// A connection with an open session.
struct DaemonEnd {
    tcp: Arc<TcpStream>,
    /// The control socket of the session.
    socket: Socket,
    grant: SessionGrant,
    /// The arena range of each fetch in flight, by token.
    fetches: Mutex<HashMap<u64, (wire::ArenaRange, ArenaSlice)>>,
    /// Held while frames are sent, so that those of two threads do not mix.
    sending: Mutex<()>,
    /// Held while the connection is ended.
    ending: Mutex<()>,
}

impl DaemonEnd {
    /// Ends both directions and the session, after one direction has ended.
    fn ended(&self, how: Result<(), BoxError>) -> Result<(), BoxError> {
        let _first = lock(&self.ending);
        self.forward_refusal();
        let _ = self.tcp.shutdown(Shutdown::Both);
        self.socket.shut_down();
        how
    }

    /// Passes on the daemon's reason for ending the session, if it sent one.
    fn forward_refusal(&self) {
        let Ok((refusal @ DaemonMessage::Refused(_), _)) =
            gt_protocol::recv_daemon_message(&self.socket, Duration::ZERO)
        else {
            return;
        };
        let mut out = Vec::new();
        push_json(&mut out, &refusal);
        // If the client is still sending, closing the connection would reset it and discard the message. So the
        // client's data is drained until the client has closed its side.
        if self.write(&mut out).is_ok() && self.tcp.shutdown(Shutdown::Write).is_ok() {
            let deadline = Instant::now() + REFUSAL_DEADLINE;
            let mut rest = vec![0; DATA_BYTES_MAX];
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() || self.tcp.set_read_timeout(Some(left)).is_err() {
                    return;
                }
                match (&*self.tcp).read(&mut rest) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), BoxError> {
        let _whole = lock(&self.sending);
        (&*self.tcp).write_all(out)?;
        out.clear();
        Ok(())
    }

    /// Receives the client's frames until the session ends.
    fn receive(&self, mut incoming: Incoming, mut submitter: Submitter) -> Result<(), BoxError> {
        let mut arenas: Vec<Arena> = Vec::new();
        let mut extension_slots = 0;
        let mut slots: Vec<Slot> = Vec::new();
        loop {
            let frame = match incoming.next() {
                Ok(frame) => frame,
                Err(StreamError::Ended) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            match frame {
                Frame::Slots(payload) => {
                    slots.clear();
                    slots.extend(slots_in(payload));
                    for slot in &slots {
                        if extension_slots > 0 {
                            extension_slots -= 1;
                            continue;
                        }
                        extension_slots = wire::slots_of(slot)? - 1;
                        if wire::is_transfer(slot) {
                            self.expect(slot, &arenas)?;
                        }
                    }
                    for slots in slots.chunks(PUSH_SLOTS_MAX) {
                        while submitter.push(slots).is_err() {
                            submitter.wait_space(slots.len() as u32, WAIT_SLICE);
                            if submitter.state() == SessionState::Closed || self.socket.is_hung_up() {
                                return Ok(());
                            }
                        }
                    }
                    submitter.publish();
                }
                Frame::Data { segment, offset, bytes } => {
                    let arena = usize::try_from(segment).ok().and_then(|at| arenas.get(at));
                    arena.ok_or("bytes for an arena that is not there")?.copy_out(offset, bytes)?;
                }
                Frame::Message(message) => {
                    let message: ClientMessage = serde_json::from_slice(message)?;
                    let ends = message == ClientMessage::Bye;
                    self.pass_on(message, &mut arenas)?;
                    if ends {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Remembers the arena range of a fetch, whose bytes are sent before its completion.
    fn expect(&self, slot: &Slot, arenas: &[Arena]) -> Result<(), BoxError> {
        let Command::Fetch { token, to, .. } = wire::decode(&[*slot])? else { return Ok(()) };
        let arena = usize::try_from(to.segment).ok().and_then(|at| arenas.get(at));
        let range = arena.ok_or("a fetch into an arena that is not there")?.range(to.offset_bytes, to.len_bytes)?;
        let mut fetches = lock(&self.fetches);
        if fetches.len() >= self.grant.cq_slots as usize || fetches.insert(token, (to, range)).is_some() {
            return Err("more fetches under way than may be".into());
        }
        Ok(())
    }

    /// Passes a control message to the daemon, and its reply to the client.
    fn pass_on(&self, message: ClientMessage, arenas: &mut Vec<Arena>) -> Result<(), BoxError> {
        let answer = match message {
            ClientMessage::Hello(_) => return Err("it said hello twice".into()),
            ClientMessage::TapeAttach => {
                let text = "the tape is shared memory, which does not travel by TCP";
                DaemonMessage::Refused(Refused::new(RefusalCode::NotPermitted, text))
            }
            message => {
                gt_protocol::send_client_message(&self.socket, &message, HANDSHAKE_DEADLINE)?;
                if matches!(message, ClientMessage::Bye | ClientMessage::Name { .. }) {
                    return Ok(());
                }
                let (answer, fds) =
                    gt_protocol::recv_daemon_message(&self.socket, gt_protocol::limits::REPLY_DEADLINE)?;
                if let DaemonMessage::ArenaGranted { segment, bytes } = answer {
                    let fd = fds.into_iter().next().ok_or("an arena without its memory")?;
                    if segment as usize != arenas.len() {
                        return Err("arenas out of order".into());
                    }
                    arenas.push(Arena::map(fd, bytes)?);
                }
                answer
            }
        };
        let mut out = Vec::new();
        push_json(&mut out, &answer);
        self.write(&mut out)
    }

    /// Sends completions, each after the bytes that its fetch has written, until the session ends.
    fn send(&self, mut completions: Completions) -> Result<(), BoxError> {
        let mut out = Vec::with_capacity(2 * DATA_BYTES_MAX);
        loop {
            let Some(mut slot) = completions.wait(spin_default(), WAIT_SLICE) else {
                if completions.state() == SessionState::Closed || self.socket.is_hung_up() {
                    return Ok(());
                }
                continue;
            };
            loop {
                let done = Completion::decode(&slot);
                let fetched = lock(&self.fetches).remove(&done.token);
                if let (Some((to, range)), Ok(())) = (fetched, done.result) {
                    self.send_fetched(&mut out, to, &range)?;
                }
                push_slots(&mut out, &[slot]);
                match completions.pop() {
                    Some(next) => slot = next,
                    None => break,
                }
            }
            self.write(&mut out)?;
        }
    }

    fn send_fetched(&self, out: &mut Vec<u8>, to: wire::ArenaRange, range: &ArenaSlice) -> Result<(), BoxError> {
        let mut offset = to.offset_bytes;
        for piece in range.chunks(DATA_BYTES_MAX) {
            push_data(out, to.segment, offset, piece.len(), |bytes| piece.copy_in(bytes));
            offset += piece.len() as u64;
            if out.len() >= DATA_BYTES_MAX {
                self.write(out)?;
            }
        }
        Ok(())
    }
}
