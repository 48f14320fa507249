//! The daemon's end of connections: each is a client of the daemon like any other.

use crate::frame::{DATA_BYTES_MAX, Frame, push_data, push_slots, slots_in};
use crate::greeting::{Answer, Greeting, MAGIC, Wish, is_local, prepare, push_json};
use crate::peer;
use crate::stream::{Broken, Incoming};
use crate::token::Token;
use gt_ops::wire::{self, Command, Completion};
use gt_protocol::limits::{HANDSHAKE_DEADLINE, HANDSHAKES_MAX};
use gt_protocol::message::OnBehalf;
use gt_protocol::{
    ClientMessage, Connection, DaemonMessage, Hello, PROTOCOL_VERSION, RefusalCode, Refused, Role, SessionGrant,
};
use gt_shm::port::spin_default;
use gt_shm::{Arena, ArenaRange, Completions, SessionState, Slot, Socket, Submitter};
use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Connections with a session at one time: each has two threads.
pub const CONNECTIONS_MAX: usize = 256;
/// A client that takes nothing for so long is gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(60);
/// How long a client may take to read why its session was ended.
const LAST_WORDS_DEADLINE: Duration = Duration::from_secs(2);
/// How often to look whether the daemon is there while nothing comes from it.
const WAIT_SLICE: Duration = Duration::from_millis(500);
/// Slots that are put into the ring at one time.
const PUSH_SLOTS_MAX: usize = 64;
/// After an accept that failed, as for want of descriptors.
const ACCEPT_NAP: Duration = Duration::from_millis(20);

type Ended = Box<dyn std::error::Error + Send + Sync>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port that is listened on.
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    token: Token,
    socket: PathBuf,
    /// Those who have not said yet what they want, who came first first.
    greeting: Mutex<VecDeque<Arc<TcpStream>>>,
    /// Connections with a session.
    open: AtomicUsize,
}

/// One of the connections with a session, while it is.
struct Seat<'a>(&'a AtomicUsize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Listener {
    /// Listens at `address`, for clients that know `token`, of the daemon whose Unix socket is `socket`.
    ///
    /// # Errors
    /// What the system says, for one that somebody else listens there.
    pub fn bind(address: SocketAddr, token: Token, socket: &Path) -> std::io::Result<Listener> {
        let tcp = TcpListener::bind(address)?;
        let (address, socket) = (tcp.local_addr()?, socket.to_owned());
        Ok(Listener { tcp, address, token, socket, greeting: Mutex::default(), open: AtomicUsize::default() })
    }

    /// Where; with a port of 0, the one that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves in threads of its own, until the process ends.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(self) -> std::io::Result<()> {
        let listener = Arc::new(self);
        std::thread::Builder::new().name("gt-tcp".into()).spawn(move || listener.accept())?;
        Ok(())
    }

    fn accept(self: Arc<Self>) {
        let mut is_said = false;
        loop {
            let (tcp, peer) = match self.tcp.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    if !std::mem::replace(&mut is_said, true) {
                        tracing::warn!(target: "gtd::tcp", %error, "no connection can be accepted for a while");
                    }
                    std::thread::sleep(ACCEPT_NAP);
                    continue;
                }
            };
            is_said = false;
            let tcp = Arc::new(tcp);
            self.expect_greeting(tcp.clone());
            let (listener, own) = (self.clone(), tcp.clone());
            let served = move || {
                if let Err(error) = listener.serve(own, peer) {
                    tracing::warn!(target: "gtd::tcp", %peer, "a connection was ended: {error}");
                }
            };
            if let Err(error) = std::thread::Builder::new().name("gt-tcp-up".into()).spawn(served) {
                tracing::warn!(target: "gtd::tcp", %error, "no thread for a connection");
                self.has_greeted(&tcp);
            }
        }
    }

    /// Nobody who says nothing keeps others out: where too many do, who had the longest time to speak goes.
    fn expect_greeting(&self, tcp: Arc<TcpStream>) {
        let mut greeting = lock(&self.greeting);
        if greeting.len() >= HANDSHAKES_MAX as usize
            && let Some(slow) = greeting.pop_front()
        {
            let _ = slow.shutdown(Shutdown::Both);
        }
        greeting.push_back(tcp);
    }

    fn has_greeted(&self, tcp: &Arc<TcpStream>) {
        lock(&self.greeting).retain(|other| !Arc::ptr_eq(other, tcp));
    }

    fn serve(&self, tcp: Arc<TcpStream>, peer: SocketAddr) -> Result<(), Ended> {
        let mut incoming = Incoming::new(tcp.clone());
        let prepared = prepare(&tcp).and_then(|()| tcp.set_write_timeout(Some(WRITE_DEADLINE)));
        let first = incoming.first_message(Instant::now() + HANDSHAKE_DEADLINE);
        self.has_greeted(&tcp);
        prepared?;
        let first = first?;
        let answer = |answer: &Answer| {
            let mut out = MAGIC.to_vec();
            push_json(&mut out, answer);
            (&*tcp).write_all(&out)
        };
        let greeting = match self.admit(&first, peer) {
            Ok(greeting) => greeting,
            Err(refused) => {
                let why = refused.text.clone();
                answer(&Answer::Refused(refused))?;
                return Err(why.into());
            }
        };
        if greeting.wish == Wish::Socket {
            let path = self.socket.display().to_string();
            return Ok(answer(&Answer::Socket { path, protocol_version: PROTOCOL_VERSION })?);
        }
        let taken = self.open.fetch_add(1, Relaxed);
        let _seat = Seat(&self.open);
        if taken >= CONNECTIONS_MAX {
            let why = format!("{CONNECTIONS_MAX} sessions have come by TCP, as many as may be: end one, or come later");
            answer(&Answer::Refused(Refused::new(RefusalCode::Exhausted, why.clone())))?;
            return Err(why.into());
        }
        let on_behalf = OnBehalf { uid: peer::uid(tcp.local_addr()?, peer), pid: greeting.pid, from: peer.to_string() };
        let hello = Hello { on_behalf: Some(on_behalf), ..greeting.hello };
        let Connection { socket, welcome, port } = match gt_protocol::connect(&self.socket, &hello) {
            Ok(connection) => connection,
            Err(error) => {
                answer(&Answer::Refused(gt_protocol::refusal_for(&error)))?;
                return Err(error.into());
            }
        };
        let (Some(grant), Some(port)) = (welcome.session.clone(), port) else {
            return Err("a welcome without a session".into());
        };
        answer(&Answer::Welcome(Box::new(welcome)))?;
        let (submitter, completions) = port.split();
        let far =
            Far { tcp, socket, grant, fetches: Mutex::default(), sending: Mutex::default(), ending: Mutex::default() };
        std::thread::scope(|scope| {
            let down = || far.ended(far.send(completions));
            let Ok(down) = std::thread::Builder::new().name("gt-tcp-down".into()).spawn_scoped(scope, down) else {
                return far.ended(Err("no thread for a connection".into()));
            };
            let taken = far.take(incoming, submitter);
            let ended = far.ended(taken);
            let other = down.join().unwrap_or_else(|_| Err("a defect in GT".into()));
            ended.and(other)
        })
    }

    /// Who may come in.
    fn admit(&self, first: &[u8], peer: SocketAddr) -> Result<Greeting, Refused> {
        match gt_protocol::version_in(first) {
            Some(PROTOCOL_VERSION) | None => {}
            Some(client) => return Err(gt_protocol::refusal_for(&gt_protocol::Error::ClientVersion { client })),
        }
        let greeting: Greeting =
            serde_json::from_slice(first).map_err(|error| Refused::new(RefusalCode::Malformed, error.to_string()))?;
        let not_permitted = |text: &str| Err(Refused::new(RefusalCode::NotPermitted, text));
        if !self.token.matches(&greeting.token) {
            return not_permitted(
                "wrong token: take it from the daemon's token file, by GT_TOKEN or gt.connect(…, token=…)",
            );
        }
        match greeting.wish {
            Wish::Socket if !is_local(peer) => not_permitted("its socket is for programs on its own machine"),
            Wish::Session if greeting.hello.role != Role::Client => not_permitted("only sessions travel by TCP"),
            _ => Ok(greeting),
        }
    }
}

/// A connection whose session stands.
struct Far {
    tcp: Arc<TcpStream>,
    /// The control socket of the session.
    socket: Socket,
    grant: SessionGrant,
    /// Where the bytes of fetches under way will be, by token.
    fetches: Mutex<HashMap<u64, (wire::ArenaRange, ArenaRange)>>,
    /// Held while frames are sent, which must be whole.
    sending: Mutex<()>,
    /// Held while the connection is ended.
    ending: Mutex<()>,
}

impl Far {
    /// One direction has ended: so does the other, and the session with them.
    fn ended(&self, how: Result<(), Ended>) -> Result<(), Ended> {
        let _first = lock(&self.ending);
        self.say_last_words();
        let _ = self.tcp.shutdown(Shutdown::Both);
        self.socket.shut_down();
        how
    }

    /// Passes on why the daemon has ended the session, if it said so.
    fn say_last_words(&self) {
        let Ok((words @ DaemonMessage::Refused(_), _)) = gt_protocol::recv_daemon_message(&self.socket, Duration::ZERO)
        else {
            return;
        };
        let mut out = Vec::new();
        push_json(&mut out, &words);
        // A client that is gone needs no words. One that still sends would lose them if the connection were closed
        // before it has read them.
        if self.write(&mut out).is_ok() && self.tcp.shutdown(Shutdown::Write).is_ok() {
            let deadline = Instant::now() + LAST_WORDS_DEADLINE;
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

    fn write(&self, out: &mut Vec<u8>) -> Result<(), Ended> {
        let _whole = lock(&self.sending);
        (&*self.tcp).write_all(out)?;
        out.clear();
        Ok(())
    }

    /// Takes what the client sends, until it ends.
    fn take(&self, mut incoming: Incoming, mut submitter: Submitter) -> Result<(), Ended> {
        let mut arenas: Vec<Arena> = Vec::new();
        let mut extension_slots = 0;
        let mut slots: Vec<Slot> = Vec::new();
        loop {
            let frame = match incoming.next() {
                Ok(frame) => frame,
                Err(Broken::Ended) => return Ok(()),
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

    /// Remembers where the bytes of a fetch will be, which are sent with its completion.
    fn expect(&self, slot: &Slot, arenas: &[Arena]) -> Result<(), Ended> {
        let Command::Fetch { token, to, .. } = wire::decode(&[*slot])? else { return Ok(()) };
        let arena = usize::try_from(to.segment).ok().and_then(|at| arenas.get(at));
        let range = arena.ok_or("a fetch into an arena that is not there")?.range(to.offset_bytes, to.len_bytes)?;
        let mut fetches = lock(&self.fetches);
        if fetches.len() >= self.grant.cq_slots as usize || fetches.insert(token, (to, range)).is_some() {
            return Err("more fetches under way than may be".into());
        }
        Ok(())
    }

    /// Says to the daemon what the client says, and to the client what it answers.
    fn pass_on(&self, message: ClientMessage, arenas: &mut Vec<Arena>) -> Result<(), Ended> {
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

    /// Sends what completes, each after the bytes that it tells of, until the session ends.
    fn send(&self, mut completions: Completions) -> Result<(), Ended> {
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
                if let (Some((place, range)), Ok(())) = (fetched, done.result) {
                    self.send_fetched(&mut out, place, &range)?;
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

    fn send_fetched(&self, out: &mut Vec<u8>, place: wire::ArenaRange, range: &ArenaRange) -> Result<(), Ended> {
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
}
