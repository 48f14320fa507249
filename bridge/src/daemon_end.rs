//! The daemon's end of connections: to the daemon, each is a client on a Unix socket like any other.

use crate::frame::{DATA_BYTES_MAX, Frame, MAGIC, push_data, push_slots, slots_in};
use crate::handshake::{ConnectionPurpose, HandshakeReply, HandshakeRequest, prepare, push_json};
use crate::peer;
use crate::stream::{Incoming, StreamError};
use crate::token::Token;
use crate::user_tokens::{TokenFailure, UserTokens};
use crate::wrong_tokens::{Guesser, Verdict, WrongTokens};
use gt_ops::wire::{self, Command, Completion};
use gt_protocol::limits::{HANDSHAKE_DEADLINE, HANDSHAKES_MAX};
use gt_protocol::message::OnBehalf;
use gt_protocol::version::NOTICES_SINCE;
use gt_protocol::{
    ClientMessage, Connection, DaemonMessage, Hello, PROTOCOL_VERSION, RefusalCode, Refused, Role, SessionGrant,
    VersionRange,
};
use gt_shm::port::spin_default;
use gt_shm::{Arena, ArenaSlice, Completions, SessionState, Slot, Socket, Submitter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most connections with a session at one time. Each has two threads.
pub const CONNECTIONS_MAX: usize = 256;
/// The most of these connections of one user.
pub const CONNECTIONS_PER_UID_MAX: usize = 64;
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
    /// The token for the users of this machine.
    token: Token,
    user_tokens: Arc<UserTokens>,
    wrong_tokens: WrongTokens,
    socket: PathBuf,
    /// Connections whose request was not answered yet, oldest first.
    handshakes: Mutex<VecDeque<Arc<TcpStream>>>,
    /// The number of connections with a session, by user.
    open: Mutex<HashMap<u32, usize>>,
}

/// A connection that counts as its user's in `Listener::open` until dropped.
struct ConnectionPermit<'a> {
    open: &'a Mutex<HashMap<u32, usize>>,
    uid: u32,
}

impl<'a> ConnectionPermit<'a> {
    fn new(open: &'a Mutex<HashMap<u32, usize>>, uid: u32) -> Result<ConnectionPermit<'a>, Refused> {
        let mut counts = lock(open);
        let (all, own) = (counts.values().sum::<usize>(), counts.get(&uid).copied().unwrap_or(0));
        let (held, limit, whose) = if own >= CONNECTIONS_PER_UID_MAX {
            (own, CONNECTIONS_PER_UID_MAX, "this user's sessions")
        } else if all >= CONNECTIONS_MAX {
            (all, CONNECTIONS_MAX, "sessions")
        } else {
            *counts.entry(uid).or_default() += 1;
            return Ok(ConnectionPermit { open, uid });
        };
        let text = format!("{held} of {whose} have come by TCP, as many as may be: end one, or come later");
        Err(Refused::new(RefusalCode::Exhausted, text).with_limit(held as u64, limit as u64))
    }
}

impl Drop for ConnectionPermit<'_> {
    fn drop(&mut self) {
        let mut counts = lock(self.open);
        if let Some(count) = counts.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.uid);
            }
        }
    }
}

/// A client that may connect, and what it asks for.
struct AuthorizedClient {
    request: HandshakeRequest,
    uid: u32,
    administrator: bool,
    /// The number of its token, if that is a user's.
    token: Option<u64>,
}

/// The refusal of a handshake, and the time that its client must wait for it.
struct DelayedRefusal {
    refused: Refused,
    delay: Duration,
}

impl From<Refused> for DelayedRefusal {
    fn from(refused: Refused) -> DelayedRefusal {
        DelayedRefusal { refused, delay: Duration::ZERO }
    }
}

impl Listener {
    /// Listens at `address` for clients that have `token` or one of `user_tokens`, on behalf of the daemon whose Unix
    /// socket is `socket`.
    ///
    /// # Errors
    /// An error of the system, for example that the address is in use.
    pub fn bind(
        address: SocketAddr,
        token: Token,
        user_tokens: Arc<UserTokens>,
        socket: &Path,
    ) -> std::io::Result<Listener> {
        let tcp = TcpListener::bind(address)?;
        let (address, socket) = (tcp.local_addr()?, socket.to_owned());
        let (wrong_tokens, handshakes, open) = (WrongTokens::default(), Mutex::default(), Mutex::default());
        Ok(Listener { tcp, address, token, user_tokens, wrong_tokens, socket, handshakes, open })
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
        let version;
        let authorized = match (prepared, first) {
            (Ok(()), Ok(first)) => {
                let versions = VersionRange::of_message(&first);
                version = versions.and_then(|client| client.common(VersionRange::OWN)).unwrap_or(PROTOCOL_VERSION);
                self.authorize(&first, &tcp, peer)
            }
            (prepared, first) => {
                self.end_handshake(&tcp);
                let why = prepared.map_or_else(|error| error.to_string(), |()| broken(first));
                tracing::debug!(target: "gtd::tcp", %peer, "a connection did not begin: {why}");
                return Ok(());
            }
        };
        if let Err(DelayedRefusal { delay, .. }) = &authorized {
            wait_unless_ended(&tcp, *delay);
        }
        self.end_handshake(&tcp);
        let reply = |reply: HandshakeReply| {
            let reply = match reply {
                HandshakeReply::Refused(refused) => {
                    HandshakeReply::Refused(Refused { protocol_version: version, ..refused })
                }
                reply => reply,
            };
            let mut out = MAGIC.to_vec();
            push_json(&mut out, &reply);
            (&*tcp).write_all(&out)
        };
        let refuse = |refused: Refused| {
            tracing::debug!(target: "gtd::tcp", %peer, "a connection was refused: {refused}");
            // The client may have gone, which is of no interest.
            let _ = reply(HandshakeReply::Refused(refused));
            Ok(())
        };
        let AuthorizedClient { request, uid, administrator, token } = match authorized {
            Ok(client) => client,
            Err(DelayedRefusal { refused, .. }) => return refuse(refused),
        };
        if request.purpose == ConnectionPurpose::Socket {
            let path = self.socket.display().to_string();
            return Ok(reply(HandshakeReply::Socket { path, protocol_version: version })?);
        }
        let _permit = match ConnectionPermit::new(&self.open, uid) {
            Ok(permit) => permit,
            Err(refused) => return refuse(refused),
        };
        let on_behalf = OnBehalf { uid, pid: request.pid, from: peer.to_string(), administrator, token };
        let hello = Hello { on_behalf: Some(on_behalf), ..request.hello };
        let Connection { socket, welcome, port } = match gt_protocol::connect(&self.socket, &hello) {
            Ok(connection) => connection,
            Err(error) => return refuse(gt_protocol::refusal_for(&error)),
        };
        let (Some(grant), Some(port)) = (welcome.session.clone(), port) else {
            return Err("a welcome without a session".into());
        };
        let takes_notices = version >= NOTICES_SINCE;
        reply(HandshakeReply::Welcome(Box::new(welcome)))?;
        let (submitter, completions) = port.split();
        let end = DaemonEnd {
            tcp,
            socket,
            takes_notices,
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

    /// Decodes the first message, checks its version, purpose and token, and finds its user.
    fn authorize(&self, first: &[u8], tcp: &TcpStream, peer: SocketAddr) -> Result<AuthorizedClient, DelayedRefusal> {
        match VersionRange::of_message(first) {
            Some(client) if client.common(VersionRange::OWN).is_none() => {
                return Err(gt_protocol::refusal_for(&gt_protocol::ProtocolError::ClientVersion { client }).into());
            }
            _ => {}
        }
        let request: HandshakeRequest =
            serde_json::from_slice(first).map_err(|error| Refused::new(RefusalCode::Malformed, error.to_string()))?;
        let not_permitted = |text: String| Refused::new(RefusalCode::NotPermitted, text);
        let local = peer::local_user(tcp, peer).map_err(|error| not_permitted(error.to_string()))?;
        let guesser = Guesser::new(local, peer.ip());
        let verdict = self.wrong_tokens.check(guesser, Instant::now(), || self.identify(&request.token, local));
        let (uid, administrator, token) = match verdict {
            Verdict::Right(identity) => identity,
            Verdict::Failed(failure, delay) => {
                return Err(DelayedRefusal { refused: not_permitted(failure.to_string()), delay });
            }
            Verdict::Refused(left) => {
                let seconds = left.as_secs() + 1;
                let text = format!("too many wrong tokens came from {guesser}: try again in {seconds} s");
                return Err(not_permitted(text).into());
            }
        };
        match request.purpose {
            ConnectionPurpose::Socket if local.is_none() => {
                Err(not_permitted("its socket is for programs on its own machine".into()).into())
            }
            ConnectionPurpose::Session if request.hello.role != Role::Client => {
                Err(not_permitted("only sessions travel by TCP".into()).into())
            }
            _ => Ok(AuthorizedClient { request, uid, administrator, token }),
        }
    }

    /// The user id of a client with the token `text`, whether it is an administrator, and the number of its token, if
    /// that is a user's. `local` is the user of the connection by the kernel, if it comes from this machine.
    fn identify(&self, text: &str, local: Option<u32>) -> Result<(u32, bool, Option<u64>), TokenFailure> {
        let unfit = |text: String| Err(TokenFailure::Unfit(text));
        match (self.user_tokens.check(text), local) {
            // Root may be any user, as a proxy in front of a container is.
            (Ok(token), Some(uid)) if uid != token.uid && uid != 0 => unfit(format!(
                "token {} is user {}'s, and the connection comes from user {uid}: use a token of your own",
                token.id, token.uid
            )),
            (Ok(token), _) => Ok((token.uid, token.administrator, Some(token.id))),
            (Err(TokenFailure::Wrong), local) if self.token.matches(text) => match local {
                Some(uid) => Ok((uid, false, None)),
                None => unfit(
                    "the daemon's own token is for programs on its machine; from elsewhere, use a token of your user's, \
                     which gtctl token create makes there"
                        .into(),
                ),
            },
            (Err(failure), _) => Err(failure),
        }
    }
}

/// The reason why no first message has come.
fn broken<T>(first: Result<T, StreamError>) -> String {
    first.err().map(|error| error.to_string()).unwrap_or_default()
}

/// Waits for `delay`, or until the connection has ended.
fn wait_unless_ended(tcp: &TcpStream, delay: Duration) {
    let timeout = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: delay.subsec_nanos().into() };
    let _ = poll(&mut [PollFd::new(tcp, PollFlags::RDHUP)], Some(&timeout));
}

/// A connection with an open session.
struct DaemonEnd {
    tcp: Arc<TcpStream>,
    /// The control socket of the session.
    socket: Socket,
    /// Whether the client knows [`DaemonMessage::NewNotice`].
    takes_notices: bool,
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
                if matches!(message, ClientMessage::Bye | ClientMessage::Name { .. } | ClientMessage::Interrupt { .. })
                {
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
        let mut noticed = completions.notice();
        loop {
            let next = completions.wait(spin_default(), WAIT_SLICE);
            let number = completions.notice();
            if number != noticed && self.takes_notices {
                noticed = number;
                push_json(&mut out, &DaemonMessage::NewNotice { number });
                self.write(&mut out)?;
            }
            let Some(mut slot) = next else {
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
