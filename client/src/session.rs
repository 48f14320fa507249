//! One connection to a daemon: ids, the submission ring, completions and the arena.

use crate::blocking::{blocking, blocking_quietly};
use crate::error::{Error, Result, bytes_text};
use crate::history::History;
use crate::launch::{Choice, Daemon, PrivateDaemon};
use crate::lock::{BriefGuard, BriefLock};
use crate::signal;
use gt_ops::cost::Cost;
use gt_ops::wire::{ArenaRange, Command, Completion, Encoder, FREE_IDS_MAX, SLOTS_MAX, Slot};
use gt_ops::{Instruction, Meta, OpError, TensorId};
use gt_protocol::{Address, ClientMessage, Error as ProtocolError, RefusalCode};
pub use gt_protocol::{PlacementInfo, PlacementLayout, SessionDetail, StatusDocument, WorkerInfo, WorkerTraffic};
use gt_shm::port::spin_default;
use gt_shm::{ArenaAllocator, ArenaBlock, Completions, SessionState, Socket, Spin, Submitter, fork};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Tensors up to this many bytes are freed in batches: a free then costs a seventh of a slot.
const FREE_AT_ONCE_BYTES_MIN: usize = 64 << 10;
/// Small instructions are published in batches of this many, large ones at once. Nobody can tell: whoever waits
/// publishes first. A publication costs a fence and a cache line's trip to the daemon's core.
const BATCH_COMMANDS: u32 = 16;
/// An instruction that touches this many bytes, or computes as many flops, is not small.
const SMALL_COST_MAX: u64 = 32 << 10;
/// Below this estimate of what is waited for, nanoseconds, an answer comes sooner than a sleeper wakes,
const QUICK_NS_MAX: u64 = 20_000;
/// so the waiter spins for this long: a sleeping daemon's wake-up and the work, on a virtual machine too. At half of it
/// every other answer of a daemon asleep came just too late there, and cost a second wake-up.
const QUICK_SPIN: Duration = Duration::from_micros(100);
/// Spins in vain, one after the other, until the next are shorter: others keep the daemon or the cores busy.
const QUICK_SPINS_IN_VAIN: u32 = 2;
/// Rates to estimate with: of one core of a small machine. Too slow an estimate costs a wake-up, too fast a one a spin.
const FLOPS_PER_NS: u64 = 20;
const BYTES_PER_NS: u64 = 8;
/// How long to sleep until room in the ring is looked for again: at first,
const ROOM_NAP_MIN: Duration = Duration::from_micros(20);
/// and at last, about as long again as was waited so far. The daemon has seven eighths of the ring to do meanwhile.
const ROOM_NAP_MAX: Duration = Duration::from_millis(10);
/// How long one wait lasts before the daemon's health and signals are looked at.
const WAIT_SLICE: Duration = Duration::from_millis(50);
/// Under `GT_TRACEBACK=1`, how many instructions' origins are remembered.
const ORIGINS_MAX: usize = 1 << 18;

/// A session. Threads may share one; a forked child may not (it gets [`Error::Disconnected`]).
pub struct Session {
    submit: BriefLock<Submit>,
    complete: Mutex<Complete>,
    settled: Condvar,
    socket: Socket,
    /// One question at a time on the socket.
    asking: Mutex<()>,
    arena: ArenaAllocator,
    cq_slots: usize,
    generation: u32,
    closed: AtomicBool,
    /// Why it is over, once somebody has noticed.
    lost: OnceLock<String>,
    traceback: bool,
    /// Whether there is a core to answer on while this one spins.
    spins: bool,
    info: SessionInfo,
    /// Held for its drop: the private daemon's process is waited for.
    private: Mutex<Option<PrivateDaemon>>,
}

/// What is known of the other end.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The daemon's number for this session.
    pub session_id: u64,
    /// The daemon's process.
    pub daemon_pid: u32,
    /// The daemon's version.
    pub daemon_version: String,
    /// Where it is.
    pub address: Address,
    /// Whether it is this process's own, or that of the one it was forked from.
    pub private: bool,
    /// The most bytes of arena this session may have.
    pub arena_bytes_max: u64,
    /// The names of the daemon's workers, by number.
    pub workers: Vec<String>,
    /// Those that compute on CUDA devices.
    pub cuda_workers: Vec<String>,
}

struct Submit {
    submitter: Submitter,
    encoder: Encoder,
    next_id: TensorId,
    freed: [TensorId; FREE_IDS_MAX],
    freed_len: usize,
    /// Small commands pushed since the last publication.
    unpublished: u32,
    /// What was issued since the last wait ended is estimated to take, nanoseconds.
    outstanding_ns: u64,
    /// Under `GT_TRACEBACK=1`, the line of the host language that issued each instruction.
    origins: HashMap<TensorId, String>,
    /// The signal that the next instruction in the ring is under.
    signal: u32,
    /// The signals that the daemon knows, and in which version.
    defined: HashMap<u32, u64>,
}

/// What is no signal's number: the next instruction says which it is under.
const UNKNOWN_SIGNAL: u32 = u32::MAX;

struct Complete {
    /// Taken by the one thread that waits on the ring; the others wait for what it settles.
    ring: Option<Completions>,
    /// How long to spin for what should come soon.
    spin: Spin,
    pending: HashMap<u64, Pending>,
    in_flight: usize,
    next_token: u64,
}

enum Pending {
    /// The block is being read by the daemon.
    Write {
        _block: ArenaBlock,
    },
    /// Somebody waits.
    Waited,
    /// Nobody waits any more, but the daemon may still write the block.
    Abandoned {
        _block: ArenaBlock,
    },
    Settled(std::result::Result<(), gt_ops::failure::Failure>),
}

/// Names a completion to wait for.
#[derive(Debug)]
#[must_use]
pub struct Token(pub(crate) u64);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // State is consistent between any two statements that can unwind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// Connects to the daemon that [`crate::launch`] finds, or starts, as [`crate::launch::choose`] was told.
    ///
    /// # Errors
    /// No daemon to be had, or one of another version.
    pub fn open() -> Result<Arc<Session>> {
        Self::with(crate::launch::connect_any(&crate::launch::choice())?)
    }

    /// Connects to the daemon of `choice`.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn connect(choice: &Choice) -> Result<Arc<Session>> {
        Self::with(crate::launch::connect_any(choice)?)
    }

    fn with(Daemon { connection, private, address }: Daemon) -> Result<Arc<Session>> {
        let workers: Vec<String> = connection.welcome.workers.iter().map(|worker| worker.name.clone()).collect();
        // An emulated one is as good, to a program.
        let of_cuda = connection.welcome.workers.iter().filter(|worker| worker.kind.ends_with("cuda"));
        let cuda_workers = of_cuda.map(|worker| worker.name.clone()).collect();
        let checked = crate::launch::check_workers(workers.len(), private.is_some());
        if let Err(error) = checked.and_then(|()| signal::check_workers(workers.len())) {
            drop(connection);
            private.into_iter().for_each(PrivateDaemon::reap);
            return Err(error);
        }
        let welcome = connection.welcome;
        let (Some(port), Some(grant)) = (connection.port, welcome.session) else {
            return Err(Error::Disconnected("the daemon welcomed the client without a session".into()));
        };
        let (submitter, completions) = port.split();
        tracing::info!(
            target: "gt_client",
            session = grant.session_id,
            daemon_pid = welcome.daemon_pid,
            private = private.is_some(),
            %address,
            "connected"
        );
        let traceback = std::env::var("GT_TRACEBACK").is_ok_and(|v| v != "0" && !v.is_empty());
        Ok(Arc::new(Session {
            submit: BriefLock::new(Submit {
                submitter,
                encoder: Encoder::new(),
                next_id: 1,
                freed: [0; FREE_IDS_MAX],
                freed_len: 0,
                unpublished: 0,
                outstanding_ns: 0,
                origins: HashMap::new(),
                signal: signal::NONE,
                defined: HashMap::new(),
            }),
            complete: Mutex::new(Complete {
                ring: Some(completions),
                spin: Spin::new(QUICK_SPIN, QUICK_SPINS_IN_VAIN),
                pending: HashMap::new(),
                in_flight: 0,
                next_token: 1,
            }),
            settled: Condvar::new(),
            socket: connection.socket,
            asking: Mutex::new(()),
            arena: ArenaAllocator::new(),
            cq_slots: grant.cq_slots as usize,
            generation: fork::generation(),
            closed: AtomicBool::new(false),
            lost: OnceLock::new(),
            traceback,
            spins: std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1),
            info: SessionInfo {
                session_id: grant.session_id,
                daemon_pid: welcome.daemon_pid,
                daemon_version: welcome.daemon_version,
                private: address == Address::Private,
                address,
                arena_bytes_max: grant.arena_bytes_max,
                workers,
                cuda_workers,
            },
            private: Mutex::new(private),
        }))
    }

    /// Says again what signals ask for: it has changed.
    pub fn redefine_signals(&self) {
        self.submit.lock().signal = UNKNOWN_SIGNAL;
    }

    /// How tensor `id` lies on the workers, once everything issued so far is known there.
    ///
    /// # Errors
    /// [`Error::Disconnected`], [`Error::Interrupted`].
    pub fn placement(&self, id: TensorId) -> Result<PlacementInfo> {
        self.synchronize()?;
        self.ask(|socket| gt_protocol::ask_placement(socket, id))
    }

    /// What this session's workers have told each other, once everything issued so far is done.
    ///
    /// # Errors
    /// [`Error::Disconnected`], [`Error::Interrupted`].
    pub fn traffic(&self) -> Result<Vec<WorkerTraffic>> {
        self.synchronize()?;
        self.ask(gt_protocol::ask_traffic)
    }

    /// How the daemon stands, once everything issued so far is done.
    ///
    /// # Errors
    /// [`Error::Disconnected`], [`Error::Interrupted`].
    pub fn status(&self) -> Result<StatusDocument> {
        self.synchronize()?;
        self.ask(gt_protocol::ask_status)
    }

    /// What this session holds, once everything issued so far is done.
    ///
    /// # Errors
    /// [`Error::Disconnected`], [`Error::Interrupted`].
    pub fn detail(&self) -> Result<SessionDetail> {
        self.synchronize()?;
        let id = self.info.session_id;
        self.ask(|socket| gt_protocol::ask_session(socket, id))
    }

    /// Lets the most that this session held on `worker`, or on each, count from now on, once everything issued so far
    /// is done.
    ///
    /// # Errors
    /// [`Error::Disconnected`], [`Error::Interrupted`].
    pub fn reset_peak(&self, worker: Option<String>) -> Result<()> {
        self.synchronize()?;
        self.ask(|socket| gt_protocol::ask_reset_peak(socket, worker)).map(drop)
    }

    fn ask<T: Send>(&self, question: impl FnOnce(&Socket) -> gt_protocol::Result<T> + Send) -> Result<T> {
        self.check_open()?;
        let answer = blocking(|| {
            let _asking = lock(&self.asking);
            question(&self.socket)
        })?;
        answer.map_err(|error| match error {
            ProtocolError::Refused(refused) => OpError::runtime(refused.text).into(),
            error => {
                tracing::debug!(target: "gt_client", %error, "no answer");
                self.disconnected()
            }
        })
    }

    /// What is known of the other end.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// Whether this process opened the session, and it has not ended.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.closed.load(Relaxed) && self.generation == fork::generation()
    }

    /// Whether the session is open and its daemon there: a system call.
    pub fn is_alive(&self) -> bool {
        self.is_open() && !self.is_dead()
    }

    /// Whether this process is a forked child of the one that opened the session.
    pub fn is_inherited(&self) -> bool {
        self.generation != fork::generation()
    }

    /// What to call the session from now on; [`launch::check_name`](crate::launch::check_name) has seen it.
    pub fn rename(&self, name: Option<String>) {
        if self.is_open() {
            let _asking = lock(&self.asking);
            // A daemon that does not listen any more knows it by no name.
            let _ = gt_protocol::send_client_message(&self.socket, &ClientMessage::Name { name }, Duration::ZERO);
        }
    }

    /// Waits until everything issued so far has been done, and ends the session.
    ///
    /// # Errors
    /// [`Error::Interrupted`]: the session has ended all the same.
    pub fn finish(&self) -> Result<()> {
        let done = if self.is_open() { self.synchronize() } else { Ok(()) };
        blocking_quietly(|| self.close())?;
        match done {
            Err(Error::Interrupted) => Err(Error::Interrupted),
            // A session that is over need not be ended.
            _ => Ok(()),
        }
    }

    /// Ends the session, whatever of it is still to be done: its tensors are gone, and a private daemon without other
    /// clients ends.
    pub fn close(&self) {
        if self.is_inherited() {
            return;
        }
        self.flush();
        if !self.closed.swap(true, Relaxed) {
            tracing::info!(target: "gt_client", session = self.info.session_id, "disconnecting");
            // A daemon that does not listen any more needs no goodbye.
            let _ = gt_protocol::send_client_message(&self.socket, &ClientMessage::Bye, Duration::ZERO);
            self.socket.shut_down();
        }
        if let Some(private) = lock(&self.private).take() {
            private.reap();
        }
    }

    /// Whether the session is open, as [`Session::is_open`]; why not, as an error.
    ///
    /// # Errors
    /// [`Error::Disconnected`].
    pub fn check_open(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(self.disconnected()) }
    }

    #[cold]
    fn disconnected(&self) -> Error {
        tracing::debug!(target: "gt_client", session = self.info.session_id, "the session is over");
        if self.is_inherited() {
            return Error::Disconnected(
                "this tensor belongs to the parent process's session, which a forked child cannot use: create tensors \
                 after the fork, or pass them as NumPy arrays"
                    .into(),
            );
        }
        // Whoever is the first to notice may have nobody to tell it to, as a tensor that is dropped.
        let why = self.lost.get_or_init(|| {
            if self.closed.swap(true, Relaxed) {
                return "the session is closed: its tensors are gone; create new ones".into();
            }
            self.last_words().unwrap_or_else(|| {
                let place = match &self.info.address {
                    address @ Address::Tcp { .. } => format!("at {address}"),
                    _ => format!("(pid {})", self.info.daemon_pid),
                };
                format!(
                    "the GT daemon {place} closed the session or is gone: its tensors are lost; create new ones, which \
                     connects again, and see the daemon's log"
                )
            })
        });
        Error::Disconnected(why.clone())
    }

    /// What the daemon said before it closed the session, if anything.
    fn last_words(&self) -> Option<String> {
        match gt_protocol::recv_daemon_message(&self.socket, Duration::ZERO) {
            Ok((gt_protocol::DaemonMessage::Refused(refused), _)) => Some(refused.text),
            _ => None,
        }
    }

    /// Whether the daemon has gone away without a word.
    fn is_dead(&self) -> bool {
        self.socket.is_hung_up()
    }

    /// Pushes the slots of one command, waiting for room if the ring is full. Publishes at once if `now`.
    ///
    /// `encode` is called again after each wait: what it reads of the state, such as the next id, may have changed.
    fn push<'a, T>(
        &'a self,
        mut submit: BriefGuard<'a, Submit>,
        now: bool,
        mut encode: impl FnMut(&mut Submit) -> Option<T>,
    ) -> Result<T> {
        loop {
            if submit.submitter.state() != SessionState::Running {
                drop(submit);
                return Err(self.disconnected());
            }
            if let Some(encoded) = encode(&mut submit) {
                submit.pushed(now);
                return Ok(encoded);
            }
            submit.publish();
            drop(submit);
            tracing::debug!(target: "gt_client", "the submission ring is full; waiting for the daemon");
            // The daemon is behind, and waiting here is what slows the client down. Signals wait for the next fetch.
            blocking_quietly(|| self.wait_for_room())?;
            if self.is_dead() {
                return Err(self.disconnected());
            }
            self.check_open()?;
            submit = self.submit.lock();
        }
    }

    /// Polls for room in the ring for a while, with growing naps: the daemon drains it more slowly than that. An eighth
    /// of the ring, so that the daemon keeps both its core and plenty to do while this thread sleeps.
    fn wait_for_room(&self) {
        let room = (self.submit.lock().submitter.capacity() / 8).max(2 * SLOTS_MAX as u32);
        let mut nap = ROOM_NAP_MIN;
        let mut waited = Duration::ZERO;
        while self.submit.lock().submitter.free_slots() < room && waited < WAIT_SLICE {
            std::thread::sleep(nap);
            waited += nap;
            nap = (nap * 2).min(ROOM_NAP_MAX);
        }
    }

    /// Issues an elementwise instruction on two tensors and returns the id of its result: the hot path.
    ///
    /// # Errors
    /// [`Error::Disconnected`].
    #[inline]
    pub(crate) fn issue_binary(
        &self,
        op: gt_ops::Op,
        left: TensorId,
        right: TensorId,
        bytes: usize,
    ) -> Result<TensorId> {
        self.check_open()?;
        let origin = self.origin_of_call();
        let signal = signal::current().signal();
        let mut submit = self.submit.lock();
        submit.outstanding_ns += (3 * bytes as u64) / BYTES_PER_NS;
        let now = bytes as u64 > SMALL_COST_MAX;
        let encode = |s: &mut Submit| {
            s.enter(signal)?;
            let slot = gt_ops::wire::binary_slot(op, s.next_id, left, right);
            s.submitter.push(&[slot]).is_ok().then(|| s.take_id())
        };
        let id = if submit.submitter.state() == SessionState::Running
            && let Some(id) = encode(&mut submit)
        {
            submit.pushed(now);
            drop(submit);
            id
        } else {
            self.push(submit, now, encode)?
        };
        self.remember_origin(id, origin);
        Ok(id)
    }

    /// Issues an instruction; its `out` is filled in and returned.
    ///
    /// # Errors
    /// [`Error::Disconnected`].
    pub(crate) fn issue(&self, instruction: &mut Instruction, cost: Cost) -> Result<TensorId> {
        self.check_open()?;
        let origin = self.origin_of_call();
        let signal = signal::current().signal();
        let mut submit = self.submit.lock();
        submit.outstanding_ns += cost.flops / FLOPS_PER_NS + cost.bytes / BYTES_PER_NS;
        let now = cost.flops.max(cost.bytes) > SMALL_COST_MAX;
        let id = self.push(submit, now, |s| {
            s.enter(signal)?;
            instruction.out = s.next_id;
            let slots = s.encoder.instruction(instruction);
            s.submitter.push(slots).is_ok().then(|| s.take_id())
        })?;
        self.remember_origin(id, origin);
        Ok(id)
    }

    /// Sends a command that defines no tensor.
    pub(crate) fn send(&self, command: &Command) -> Result<()> {
        self.check_open()?;
        self.push(self.submit.lock(), true, |s| {
            let slots = s.encoder.encode(command);
            s.submitter.push(slots).ok()
        })
    }

    /// A new tensor of `meta` whose bytes will be written.
    pub(crate) fn allocate(&self, meta: Meta) -> Result<TensorId> {
        self.check_open()?;
        let origin = self.origin_of_call();
        let signal = signal::current().signal();
        let id = self.push(self.submit.lock(), false, |s| {
            s.enter(signal)?;
            let slots = s.encoder.encode(&Command::Allocate { out: s.next_id, meta });
            s.submitter.push(slots).is_ok().then(|| s.take_id())
        })?;
        self.remember_origin(id, origin);
        Ok(id)
    }

    /// Says that `id` will not be named again.
    #[inline]
    fn free(&self, id: TensorId, bytes: usize) {
        if !self.is_open() {
            return;
        }
        let mut submit = self.submit.lock();
        let at = submit.freed_len;
        submit.freed[at] = id;
        submit.freed_len += 1;
        let large = bytes >= FREE_AT_ONCE_BYTES_MIN;
        if submit.freed_len == FREE_IDS_MAX || large {
            self.flush_frees(submit, large);
        }
    }

    /// Sends the frees that are still held back.
    fn flush_frees(&self, mut submit: BriefGuard<'_, Submit>, now: bool) {
        if submit.freed_len == 0 {
            if now {
                submit.publish();
            }
            return;
        }
        let ids = std::mem::replace(&mut submit.freed, [0; FREE_IDS_MAX]);
        submit.freed_len = 0;
        let f = ids;
        let slot: Slot = [gt_ops::wire::FREE_ID as u64, f[0], f[1], f[2], f[3], f[4], f[5], f[6]];
        // A session that has ended has freed everything.
        let _ = self.push(submit, now, |s| s.submitter.push(&[slot]).ok());
    }

    /// Sends and publishes everything that is held back.
    pub fn flush(&self) {
        if self.is_open() {
            self.flush_frees(self.submit.lock(), true);
        }
    }

    /// A block of the arena for a transfer, after asking the daemon for more if there is no room.
    ///
    /// # Errors
    /// [`Error::ArenaFull`] at the session's limit.
    pub(crate) fn arena_block(&self, bytes: usize) -> Result<ArenaBlock> {
        if let Ok(block) = self.arena.alloc(bytes as u64) {
            return Ok(block);
        }
        self.reap()?;
        if let Ok(block) = self.arena.alloc(bytes as u64) {
            return Ok(block);
        }
        self.check_open()?;
        blocking(|| self.grow_arena(bytes))?
    }

    fn grow_arena(&self, bytes: usize) -> Result<ArenaBlock> {
        let _asking = lock(&self.asking);
        loop {
            let need = match self.arena.alloc(bytes as u64) {
                Ok(block) => return Ok(block),
                Err(need) => need,
            };
            let granted = gt_protocol::ask_arena(&self.socket, need.bytes).map_err(|error| match error {
                ProtocolError::Refused(refused)
                    if matches!(refused.code, RefusalCode::ArenaLimit | RefusalCode::Exhausted) =>
                {
                    Error::ArenaFull(format!(
                        "the session's arena is full: {} asked for, {} held, {} allowed; drop NumPy arrays that view \
                         tensors, or copy them (gtctl session {} shows what it holds)",
                        bytes_text(bytes as u64),
                        bytes_text(refused.held),
                        bytes_text(refused.limit),
                        self.info.session_id
                    ))
                }
                error => {
                    tracing::debug!(target: "gt_client", %error, "no answer to a wish for an arena");
                    self.disconnected()
                }
            })?;
            tracing::debug!(target: "gt_client", segment = granted.segment, bytes = granted.bytes, "arena granted");
            let segment = self
                .arena
                .add(granted.fd, granted.bytes)
                .map_err(|error| Error::Disconnected(format!("an arena that cannot be used: {error}")))?;
            if segment != granted.segment {
                return Err(Error::Disconnected("arenas out of order".into()));
            }
        }
    }

    /// How much of the arena is there and in use.
    pub fn arena_stats(&self) -> gt_shm::arena::ArenaStats {
        self.arena.stats()
    }

    /// Registers a completion, waiting while as many are in flight as the ring holds.
    fn register(&self, pending: Pending) -> Result<u64> {
        let mut pending = Some(pending);
        loop {
            {
                let mut complete = lock(&self.complete);
                if complete.in_flight < self.cq_slots {
                    let token = complete.next_token;
                    complete.next_token += 1;
                    complete.in_flight += 1;
                    if let Some(pending) = pending.take() {
                        complete.pending.insert(token, pending);
                    }
                    return Ok(token);
                }
            }
            self.wait_some(None)?;
        }
    }

    /// Writes the start of `block` to bytes `offset_bytes..` of tensor `id`. The block is given back when it was read.
    pub(crate) fn write(&self, id: TensorId, offset_bytes: u64, block: ArenaBlock, len: usize) -> Result<Token> {
        let from = ArenaRange { segment: block.arena() as u64, offset_bytes: block.offset(), len_bytes: len as u64 };
        let token = self.register(Pending::Write { _block: block })?;
        self.send(&Command::Write { token, id, offset_bytes, from })?;
        Ok(Token(token))
    }

    /// Asks for bytes `offset_bytes..offset_bytes + len` of tensor `id` in `block`.
    pub(crate) fn fetch(&self, id: TensorId, offset_bytes: u64, block: &ArenaBlock, len: usize) -> Result<Token> {
        let to = ArenaRange { segment: block.arena() as u64, offset_bytes: block.offset(), len_bytes: len as u64 };
        let token = self.register(Pending::Waited)?;
        self.submit.lock().outstanding_ns += len as u64 / BYTES_PER_NS;
        self.send(&Command::Fetch { token, id, offset_bytes, to })?;
        Ok(Token(token))
    }

    /// Waits until everything issued so far has been done. Errors stay with the tensors they poisoned.
    ///
    /// # Errors
    /// [`Error::Disconnected`], [`Error::Interrupted`].
    pub fn synchronize(&self) -> Result<()> {
        self.flush();
        let token = self.register(Pending::Waited)?;
        self.send(&Command::Sync { token })?;
        self.wait(&Token(token))
    }

    /// Waits for a completion of a fetch or sync.
    ///
    /// # Errors
    /// What failed, naming the instruction; [`Error::Disconnected`]; [`Error::Interrupted`].
    pub(crate) fn wait(&self, token: &Token) -> Result<()> {
        loop {
            {
                let mut complete = lock(&self.complete);
                if let Some(Pending::Settled(result)) = complete.pending.get(&token.0) {
                    let result = *result;
                    complete.pending.remove(&token.0);
                    drop(complete);
                    self.submit.lock().outstanding_ns = 0;
                    return result.map_err(|failure| Error::Failed {
                        traceback: self.origin(failure.instruction),
                        session: self.info.session_id,
                        failure,
                    });
                }
            }
            self.wait_some(Some(token.0))?;
        }
    }

    /// Gives up waiting for a fetch into `block`, which is kept until the daemon is done with it.
    pub(crate) fn abandon(&self, token: Token, block: ArenaBlock) {
        let mut complete = lock(&self.complete);
        if let Some(Pending::Waited) = complete.pending.get(&token.0) {
            complete.pending.insert(token.0, Pending::Abandoned { _block: block });
        }
    }

    /// Waits until a write has been read, if it has not been already.
    pub(crate) fn wait_written(&self, token: &Token) -> Result<()> {
        while lock(&self.complete).pending.contains_key(&token.0) {
            self.wait_some(Some(token.0))?;
        }
        Ok(())
    }

    /// Settles whatever has completed, without waiting.
    fn reap(&self) -> Result<()> {
        let mut complete = lock(&self.complete);
        if let Some(mut ring) = complete.ring.take() {
            while let Some(slot) = ring.pop() {
                complete.settle(&slot);
            }
            complete.ring = Some(ring);
        }
        Ok(())
    }

    /// Waits one slice for completions, as the thread that looks at the ring or behind the one that does.
    fn wait_some(&self, wanted: Option<u64>) -> Result<()> {
        // What is held back may be what is waited for.
        self.flush();
        let quick = self.submit.lock().outstanding_ns <= QUICK_NS_MAX && self.spins;
        let daemon_gone = blocking(|| {
            let mut complete = lock(&self.complete);
            let done = |c: &Complete| match wanted {
                Some(token) => !matches!(c.pending.get(&token), Some(Pending::Waited | Pending::Write { .. })),
                None => c.in_flight < self.cq_slots,
            };
            if done(&complete) {
                return false;
            }
            let Some(mut ring) = complete.ring.take() else {
                // Another thread is looking: it wakes everybody when it has settled something or leaves.
                let waited = self.settled.wait_timeout(complete, WAIT_SLICE);
                drop(waited);
                return false;
            };
            let look = complete.spin.look();
            drop(complete);
            let soon = quick && ring.wait_any(look, look);
            let found = ring.wait(if quick { Duration::ZERO } else { spin_default() }, WAIT_SLICE);
            let mut complete = lock(&self.complete);
            match (quick, soon) {
                (true, true) => complete.spin.found(),
                (true, false) => complete.spin.found_nothing(),
                (false, _) => {}
            }
            let mut settled = false;
            if let Some(slot) = found {
                complete.settle(&slot);
                settled = true;
            }
            while let Some(slot) = ring.pop() {
                complete.settle(&slot);
            }
            let ended = !settled && (ring.state() == SessionState::Closed || self.is_dead());
            complete.ring = Some(ring);
            drop(complete);
            self.settled.notify_all();
            ended
        })?;
        if daemon_gone {
            return Err(self.disconnected());
        }
        self.check_open()
    }

    fn origin(&self, id: TensorId) -> Option<String> {
        self.submit.lock().origins.get(&id).cloned()
    }

    #[inline]
    fn remember_origin(&self, id: TensorId, origin: Option<String>) {
        if let Some(origin) = origin {
            let mut submit = self.submit.lock();
            if submit.origins.len() >= ORIGINS_MAX {
                submit.origins.clear();
            }
            submit.origins.insert(id, origin);
        }
    }

    /// Asked before any lock is taken: the host language may run code of its own, and drop tensors, to answer.
    #[inline]
    fn origin_of_call(&self) -> Option<String> {
        if self.traceback { crate::tape::origin_of_call() } else { None }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close();
    }
}

impl Submit {
    /// Accounts for a command that was pushed.
    #[inline]
    fn pushed(&mut self, now: bool) {
        self.unpublished += 1;
        if now || self.unpublished >= BATCH_COMMANDS {
            self.publish();
        }
    }

    #[inline]
    fn publish(&mut self) {
        self.unpublished = 0;
        self.submitter.publish();
    }

    /// Says that what follows is under `signal`, if what went before was not. None if the ring has no room.
    #[inline]
    fn enter(&mut self, signal: u32) -> Option<()> {
        if self.signal == signal { Some(()) } else { self.change_signal(signal) }
    }

    #[cold]
    fn change_signal(&mut self, signal: u32) -> Option<()> {
        if let Some((requested, version)) = signal::requested_by(signal)
            && self.defined.get(&signal) != Some(&version)
        {
            self.submitter.push(self.encoder.encode(&Command::DefineSignal { signal, requested })).ok()?;
            self.defined.insert(signal, version);
        }
        self.submitter.push(self.encoder.encode(&Command::Signal { signal })).ok()?;
        self.signal = signal;
        Some(())
    }

    /// The next id, which is from now on taken.
    #[inline]
    fn take_id(&mut self) -> TensorId {
        self.next_id += 1;
        self.next_id - 1
    }
}

impl Complete {
    fn settle(&mut self, slot: &Slot) {
        let completion = Completion::decode(slot);
        self.in_flight = self.in_flight.saturating_sub(1);
        match self.pending.remove(&completion.token) {
            // A failed write leaves its tensor poisoned: the error is raised where that is fetched.
            Some(Pending::Write { .. } | Pending::Abandoned { .. }) | None => {}
            Some(Pending::Waited | Pending::Settled(_)) => {
                self.pending.insert(completion.token, Pending::Settled(completion.result));
            }
        }
    }
}

/// A tensor that exists in the daemon, freed there when nobody here holds it.
pub struct Value {
    id: TensorId,
    meta: Meta,
    session: Arc<Session>,
    history: History,
}

impl Value {
    pub(crate) fn new(id: TensorId, meta: Meta, session: &Arc<Session>) -> Arc<Value> {
        Arc::new(Value { id, meta, session: session.clone(), history: History::default() })
    }
    /// What in-place operations did before it and after it.
    #[inline]
    pub(crate) fn history(&self) -> &History {
        &self.history
    }
    /// Its name in the session.
    #[inline]
    pub fn id(&self) -> TensorId {
        self.id
    }
    /// Its shape and dtype.
    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }
    /// The session it lives in.
    #[inline]
    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.session.free(self.id, self.meta.bytes());
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{} {} {}", self.id, self.meta.dtype, self.meta.shape)
    }
}
