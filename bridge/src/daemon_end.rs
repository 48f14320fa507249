//! The daemon's end of connections: to the daemon, each is a client on a Unix socket like any other.

use crate::channel::{Ciphertext, TcpChannel};
use crate::control_relay::ControlRelay;
use crate::frame::{DATA_BYTES_MAX, Frame, MAGIC, push_data, push_slots, slots_in};
use crate::handshake::{ConnectionPurpose, HandshakeReply, HandshakeRequest, TcpWelcome, prepare, push_json};
use crate::peer::{self, PeerOrigin};
use crate::pending_handshakes::{OpenSocket, PendingHandshakes};

use crate::stream::{Incoming, StreamError};
use crate::tls::ServedCertificate;
use crate::token::{Token, random_hex};
use crate::user_tokens::{TokenFailure, UserTokens};
use crate::wrong_tokens::{Verdict, WrongTokens};
use gt_ops::wire::{self, Command, Completion};
use gt_protocol::limits::{HANDSHAKE_DEADLINE, HANDSHAKES_MAX};
use gt_protocol::message::OnBehalf;
use gt_protocol::version::{INTERRUPTS_SINCE, NOTICES_SINCE};
use gt_protocol::{
    ClientMessage, Connection, DaemonMessage, Hello, PROTOCOL_VERSION, RefusalCode, Refused, Role, SessionGrant,
    VersionRange,
};
use gt_shm::port::spin_default;
use gt_shm::{Arena, ArenaSlice, Completions, SessionState, Slot, Socket, Submitter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ServerConfig, ServerConnection};
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
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
/// The first byte of a client that speaks TLS: the type of a record of its handshake.
const TLS_HANDSHAKE: u8 = 22;
/// The least time between two log lines about connections that could not be encrypted.
const TLS_LOG_INTERVAL: Duration = Duration::from_secs(60);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The options of a [`Listener`].
pub struct ListenerOptions<'a> {
    /// The address to listen at.
    pub address: SocketAddr,
    /// The token for the users of this machine.
    pub token: Token,
    /// The tokens of users.
    pub user_tokens: Arc<UserTokens>,
    /// The certificate for TLS; none if there is no TLS.
    pub certificate: Option<Arc<ServedCertificate>>,
    /// Whether clients of other machines may connect without TLS.
    pub takes_plain: bool,
    /// The daemon's Unix socket.
    pub socket: &'a Path,
}

/// A listening TCP port.
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    token: Token,
    user_tokens: Arc<UserTokens>,
    wrong_tokens: WrongTokens,
    tls: Option<Arc<ServerConfig>>,
    takes_plain: bool,
    socket: PathBuf,
    /// The control socket of each session that may be interrupted, by its key.
    interruptible: Mutex<HashMap<String, Arc<Socket>>>,
    /// The time of the last log line about a connection that could not be encrypted.
    tls_logged: Mutex<Option<Instant>>,
    handshakes: PendingHandshakes<OpenSocket>,
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

/// A session that may be interrupted until this is dropped.
struct Interruptible<'a> {
    sessions: &'a Mutex<HashMap<String, Arc<Socket>>>,
    key: String,
}

impl<'a> Interruptible<'a> {
    fn new(sessions: &'a Mutex<HashMap<String, Arc<Socket>>>, socket: &Arc<Socket>) -> std::io::Result<Self> {
        let key = random_hex()?;
        lock(sessions).insert(key.clone(), socket.clone());
        Ok(Interruptible { sessions, key })
    }
}

impl Drop for Interruptible<'_> {
    fn drop(&mut self) {
        lock(self.sessions).remove(&self.key);
    }
}

/// A client that may do what it asks for.
enum AuthorizedClient {
    /// It may open a session, or learn the path of the daemon's socket.
    User {
        request: Box<HandshakeRequest>,
        uid: u32,
        administrator: bool,
        /// The number of its token, if that is a user's.
        token: Option<u64>,
    },
    /// It may interrupt the session with this control socket.
    Interrupter { session: Arc<Socket>, below: u64 },
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
    /// Listens for clients that have one of the tokens, on behalf of the daemon.
    ///
    /// # Errors
    /// An error of the system, for example that the address is in use.
    pub fn bind(options: ListenerOptions<'_>) -> std::io::Result<Listener> {
        let ListenerOptions { address, token, user_tokens, certificate, takes_plain, socket } = options;
        let tcp = TcpListener::bind(address)?;
        let tls = certificate.map(ServedCertificate::server).transpose().map_err(std::io::Error::other)?;
        Ok(Listener {
            address: tcp.local_addr()?,
            tcp,
            token,
            user_tokens,
            wrong_tokens: WrongTokens::default(),
            tls,
            takes_plain,
            socket: socket.to_owned(),
            interruptible: Mutex::default(),
            tls_logged: Mutex::default(),
            handshakes: PendingHandshakes::new(HANDSHAKES_MAX as usize),
            open: Mutex::default(),
        })
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
            self.begin_handshake(tcp.clone(), peer);
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

    fn begin_handshake(&self, tcp: Arc<TcpStream>, peer: SocketAddr) {
        // Clients whose user is not known, since they have closed the connection for example, have one origin together.
        let origin = PeerOrigin::new(peer::local_user(&tcp, peer).unwrap_or(None), peer.ip());
        if let Some(closed) = self.handshakes.begin(origin, OpenSocket(tcp)) {
            let _ = closed.0.shutdown(Shutdown::Both);
        }
    }

    fn end_handshake(&self, tcp: &Arc<TcpStream>) {
        self.handshakes.end(&OpenSocket(tcp.clone()));
    }

    fn serve(&self, tcp: Arc<TcpStream>, peer: SocketAddr) -> Result<(), BoxError> {
        let deadline = Instant::now() + HANDSHAKE_DEADLINE;
        let begun = self.begin(&tcp, peer, deadline).and_then(|(channel, received)| {
            let channel = Arc::new(channel);
            let mut incoming = Incoming::new(channel.clone(), received);
            let first = incoming.first_message(deadline)?;
            Ok((channel, incoming, first))
        });
        let (channel, incoming, first) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                self.end_handshake(&tcp);
                tracing::debug!(target: "gtd::tcp", %peer, "a connection did not begin: {error}");
                return Ok(());
            }
        };
        let versions = VersionRange::of_message(&first);
        let version = versions.and_then(|client| client.common(VersionRange::OWN)).unwrap_or(PROTOCOL_VERSION);
        let authorized = self.authorize(&first, &channel, peer);
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
            channel.write_all(&out)
        };
        let refuse = |refused: Refused| {
            tracing::debug!(target: "gtd::tcp", %peer, "a connection was refused: {refused}");
            // The client may have gone, which is of no interest.
            let _ = reply(HandshakeReply::Refused(refused));
            Ok(())
        };
        let (request, uid, administrator, token) = match authorized {
            Ok(AuthorizedClient::User { request, uid, administrator, token }) => (request, uid, administrator, token),
            Ok(AuthorizedClient::Interrupter { session, below }) => {
                let message = ClientMessage::Interrupt { below };
                return match gt_protocol::send_client_message(&session, &message, HANDSHAKE_DEADLINE) {
                    Ok(()) => Ok(reply(HandshakeReply::Interrupted { protocol_version: version })?),
                    Err(error) => refuse(gt_protocol::refusal_for(&error)),
                };
            }
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
        let socket = Arc::new(socket);
        if hello.role == Role::Control {
            reply(HandshakeReply::Welcome(Box::new(TcpWelcome { welcome, interrupt_key: None })))?;
            return ControlRelay::new(channel, socket).run(incoming);
        }
        let (Some(grant), Some(port)) = (welcome.session.clone(), port) else {
            return Err("a welcome without a session".into());
        };
        let takes_notices = version >= NOTICES_SINCE;
        let interruptible = match version >= INTERRUPTS_SINCE {
            true => Some(Interruptible::new(&self.interruptible, &socket)?),
            false => None,
        };
        let interrupt_key = interruptible.as_ref().map(|session| session.key.clone());
        reply(HandshakeReply::Welcome(Box::new(TcpWelcome { welcome, interrupt_key })))?;
        let (submitter, completions) = port.split();
        let (fetches, ending) = (Mutex::default(), Mutex::default());
        let end = DaemonEnd { channel, socket, takes_notices, grant, fetches, ending };
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

    /// Waits for the client's first byte, and makes the handshake of TLS if the client speaks it.
    fn begin(
        &self,
        tcp: &Arc<TcpStream>,
        peer: SocketAddr,
        deadline: Instant,
    ) -> Result<(TcpChannel, Ciphertext), BoxError> {
        prepare(tcp)?;
        tcp.set_write_timeout(Some(WRITE_DEADLINE))?;
        let left = deadline.saturating_duration_since(Instant::now());
        tcp.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut first = [0];
        match tcp.peek(&mut first) {
            Ok(0) => return Err(StreamError::Ended.into()),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(StreamError::TimedOut.into());
            }
            Err(error) => return Err(error.into()),
        }
        let config = match &self.tls {
            Some(config) if first == [TLS_HANDSHAKE] => config.clone(),
            _ => return Ok((TcpChannel::plain(tcp.clone()), Ciphertext::new())),
        };
        let tls = ServerConnection::new(config)?;
        TcpChannel::encrypted(tcp.clone(), tls.into(), deadline).map_err(|error| {
            self.log_unencrypted(peer, &error.to_string());
            error.into()
        })
    }

    /// Logs that a connection could not be encrypted, once a minute: everybody who can connect can cause it.
    fn log_unencrypted(&self, peer: SocketAddr, why: &str) {
        let mut logged = lock(&self.tls_logged);
        if logged.is_none_or(|at| at.elapsed() >= TLS_LOG_INTERVAL) {
            *logged = Some(Instant::now());
            let seconds = TLS_LOG_INTERVAL.as_secs();
            tracing::warn!(
                target: "gtd::tcp",
                "TLS with {peer} failed: {why}; more such connections within {seconds} s are not logged"
            );
        }
    }

    /// Refuses a connection of another machine without TLS, unless the configuration lets them connect.
    fn check_encryption(&self, channel: &TcpChannel) -> Result<(), Refused> {
        if channel.is_encrypted() || self.takes_plain || peer::is_within_machine(channel.tcp()).unwrap_or(false) {
            return Ok(());
        }
        let text = "this daemon takes connections of other machines with TLS alone: connect to tls://HOST:PORT#sha256:…, \
                    which `gtctl status` prints on its machine; a token that was sent without TLS may have been read on \
                    the way: have it revoked, with gtctl token revoke";
        Err(Refused::new(RefusalCode::NotPermitted, text))
    }

    /// Decodes the first message, checks its version, purpose and token, and finds its user.
    fn authorize(
        &self,
        first: &[u8],
        channel: &TcpChannel,
        peer: SocketAddr,
    ) -> Result<AuthorizedClient, DelayedRefusal> {
        self.check_encryption(channel)?;
        match VersionRange::of_message(first) {
            Some(client) if client.common(VersionRange::OWN).is_none() => {
                return Err(gt_protocol::refusal_for(&gt_protocol::ProtocolError::ClientVersion { client }).into());
            }
            _ => {}
        }
        let request: HandshakeRequest =
            serde_json::from_slice(first).map_err(|error| Refused::new(RefusalCode::Malformed, error.to_string()))?;
        let not_permitted = |text: String| Refused::new(RefusalCode::NotPermitted, text);
        let local = peer::local_user(channel.tcp(), peer).map_err(|error| not_permitted(error.to_string()))?;
        if let ConnectionPurpose::Interrupt { below } = request.purpose {
            // A key is as long as a token, but nothing is to be guessed: a session that has ended has none.
            let session = lock(&self.interruptible).get(&request.token).cloned();
            let session = session.ok_or_else(|| not_permitted("there is no session with this key".into()))?;
            return Ok(AuthorizedClient::Interrupter { session, below });
        }
        let guesser = PeerOrigin::new(local, peer.ip());
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
            ConnectionPurpose::Session if !matches!(request.hello.role, Role::Client | Role::Control) => {
                Err(not_permitted("only sessions and gtctl travel by TCP".into()).into())
            }
            _ => Ok(AuthorizedClient::User { request: Box::new(request), uid, administrator, token }),
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

/// Waits for `delay`, or until the connection has ended.
fn wait_unless_ended(tcp: &TcpStream, delay: Duration) {
    let timeout = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: delay.subsec_nanos().into() };
    let _ = poll(&mut [PollFd::new(tcp, PollFlags::RDHUP)], Some(&timeout));
}

/// A connection with an open session.
struct DaemonEnd {
    channel: Arc<TcpChannel>,
    /// The control socket of the session.
    socket: Arc<Socket>,
    /// Whether the client knows [`DaemonMessage::NewNotice`].
    takes_notices: bool,
    grant: SessionGrant,
    /// The arena range of each fetch in flight, by token.
    fetches: Mutex<HashMap<u64, (wire::ArenaRange, ArenaSlice)>>,
    /// Held while the connection is ended.
    ending: Mutex<()>,
}

impl DaemonEnd {
    /// Ends both directions and the session, after one direction has ended.
    fn ended(&self, how: Result<(), BoxError>) -> Result<(), BoxError> {
        let _first = lock(&self.ending);
        self.forward_refusal();
        let _ = self.channel.shutdown(Shutdown::Both);
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
        if self.write(&mut out).is_ok() && self.channel.shutdown(Shutdown::Write).is_ok() {
            let deadline = Instant::now() + REFUSAL_DEADLINE;
            let mut rest = vec![0; DATA_BYTES_MAX];
            loop {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() || self.channel.set_read_timeout(Some(left)).is_err() {
                    return;
                }
                match self.channel.tcp().read(&mut rest) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                }
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>) -> Result<(), BoxError> {
        self.channel.write_all(out)?;
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
                Frame::Records(_) => return Err("records, which a client does not send".into()),
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
            ClientMessage::TapeAttach { .. } => {
                let text = "a session by TCP does not carry the tape: gtctl has a connection of its own for it";
                DaemonMessage::Refused(Refused::new(RefusalCode::NotPermitted, text))
            }
            ClientMessage::ShareLines | ClientMessage::LinesAttach { .. } => {
                let text = "lines are shared memory, which does not travel by TCP";
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
