//! One connection to a daemon: tensor ids, the submission ring, completions and the arena.
//!
//! Two costs decide how this file works: that of publishing an instruction and that of waking a sleeping thread.
//! Publishing to the ring needs a full fence, which waits until the store has reached the daemon's core and takes about
//! 170 ns. So small instructions are published in batches, large ones at once, and all of them before a wait. Frees are
//! batched too, seven to a slot; the free of a large tensor is published at once. A waiting thread spins if the answer
//! should come soon: the session adds up the estimated cost of the instructions issued since the last wait. Up to
//! `QUICK_NS_MAX` the thread spins for `QUICK_SPIN`, otherwise it soon sleeps on the futex.

use crate::blocking::{blocking, blocking_quietly};
use crate::error::{ClientError, FailureOrigin, IssuedAt, Result, lines_of};
use crate::held::HeldInstructions;
use crate::idle_arenas::{ArenaOwner, IdleArenas};
use crate::issued::{IssuedTensors, LINES_KEPT, LiveTensor};
use crate::launch::{ConnectOptions, Daemon, PrivateDaemon, check_workers, connect_any, connect_options};
use crate::lock::{SpinLock, SpinLockGuard, lock};
use crate::notice;
use crate::origin::{self, CallSite};
use crate::run_ahead::{INSTRUCTION_NS, RunAhead, RunAheadSync};
use crate::shared_lines::SharedLines;
use crate::signal;
use crate::visible_workers::VisibleWorkers;
use gt_bridge::client_end::Interrupter;
use gt_ops::cost::Cost;
use gt_ops::failure::{Failure, Fault};
use gt_ops::placement::{RequestedLayout, RequestedPlacement};
use gt_ops::wire::{ArenaRange, Command, Completion, Encoder, FREE_IDS_MAX, SLOTS_MAX, Slot};
use gt_ops::{Instruction, Meta, OpError, TensorId};
use gt_protocol::version::{
    ACTIVATIONS_SINCE, AFFINE_MAPS_SINCE, ATTENTION_RESULTS_SINCE, BITCASTS_SINCE, COMPLEX_PRODUCTS_SINCE,
    CONVERTING_REDUCTIONS_SINCE, FOURIER_TRANSFORMS_SINCE, INTERRUPTS_SINCE, LABEL_ALIGNMENTS_SINCE, LSTM_CELLS_SINCE,
    MESHES_SINCE, WIDE_PRODUCTS_SINCE, WRAPPED_INDICES_SINCE,
};
use gt_protocol::{Address, ClientMessage, Notice, ProtocolError, RefusalCode, bytes_text};
pub use gt_protocol::{
    PlacementInfo, PlacementLayout, SequenceCounts, SessionDetail, StatusDocument, WorkerInfo, WorkerTraffic,
};
use gt_shm::port::spin_default;
use gt_shm::{ArenaAllocator, ArenaBlock, Completions, SessionState, Socket, Spin, Submitter, fork};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Smaller tensors are freed in batches: a free then costs a seventh of a slot.
const FREE_AT_ONCE_BYTES_MIN: usize = 64 << 10;
/// Small instructions are published in batches of this many, large ones at once. Programs do not notice, because every
/// wait publishes first. A publication costs a fence and the transfer of a cache line to the daemon's core.
const BATCH_COMMANDS: u32 = 16;
/// An instruction that touches more bytes, or computes more flops, is large.
const SMALL_COST_MAX: u64 = 32 << 10;
/// If the outstanding work is estimated to take at most this, nanoseconds, the answer comes before the spin ends:
/// kernels are several times as fast as the estimate. To be woken up takes 30 µs on a virtual machine, as long as a
/// product of 128 × 128.
const QUICK_NS_MAX: u64 = 400_000;
/// The spin before sleeping on quick work: it covers the wake-up of a sleeping daemon and the work. After two
/// microseconds it offers its core, which the daemon's kernels may need.
const QUICK_SPIN: Duration = Duration::from_micros(200);
/// After this many spins in a row without an answer, spins get shorter: the daemon or the cores are busy with other
/// work.
const QUICK_SPINS_IN_VAIN: u32 = 2;
/// The rates for estimates of cost, those of one core of a small machine. A rate that is too low makes the thread sleep
/// and be woken up where a spin would do; one that is too high makes it spin for nothing.
const FLOPS_PER_NS: u64 = 20;
const BYTES_PER_NS: u64 = 8;
/// The first sleep while the ring is full; the sleeps double up to [`ROOM_NAP_MAX`].
const ROOM_NAP_MIN: Duration = Duration::from_micros(20);
/// The longest sleep while the ring is full. The daemon has up to seven eighths of the ring to execute meanwhile.
const ROOM_NAP_MAX: Duration = Duration::from_millis(10);
/// The length of one wait. After each, the thread checks whether the daemon is alive and whether Unix signals, such as
/// Ctrl-C, have arrived.
const WAIT_SLICE: Duration = Duration::from_millis(50);
/// After a Unix signal such as Ctrl-C has ended a wait, the time that the work has to end by itself before it is
/// cancelled: a program with short steps, as in training, then keeps the tensors that it was about to make.
const INTERRUPT_GRACE: Duration = Duration::from_millis(20);
/// The same where a program only waits because it is ahead: as long as a program may be ahead, so that one with short
/// steps loses nothing. Steps that are expected to take longer are cancelled at once.
const RUN_AHEAD_GRACE: Duration = Duration::from_millis(250);
/// The interval of looks at the completions in this time.
const INTERRUPT_NAP: Duration = Duration::from_millis(1);
/// [`ClientSession::was_alive`] asks the kernel at most once in this time: a system call costs as much as several
/// instructions.
const ALIVE_CHECK_INTERVAL: Duration = Duration::from_micros(100);

/// A session with a daemon. Threads may share it; a forked child may not (it gets [`ClientError::Disconnected`]).
pub struct ClientSession {
    submission: SpinLock<SubmissionState>,
    completion: Mutex<CompletionState>,
    /// Whether the daemon knows requests for tensors, which came with shared lines.
    lists_tensors: bool,
    /// The lines of the newest instructions, for observers.
    lines: SharedLines,
    run_ahead: Mutex<RunAhead>,
    /// Notified when completions have arrived, and when the polling thread stops polling the ring.
    completed: Condvar,
    socket: Socket,
    /// Held during a request on the socket, which can have only one request in flight.
    asking: Mutex<()>,
    arena: ArenaAllocator,
    /// The state of the thread that returns idle arenas.
    idle_arenas: IdleArenas,
    cq_slots: usize,
    generation: u32,
    closed: AtomicBool,
    /// The number of fetches that reported a failure, and of interrupts.
    failures: AtomicU64,
    /// When the session began.
    begun: Instant,
    /// When [`ClientSession::was_alive`] asks the kernel again, nanoseconds after `begun`.
    next_alive_check_ns: AtomicU64,
    /// Whether the daemon understands [`ClientMessage::Interrupt`].
    interrupts: bool,
    /// Whether the daemon knows reductions that convert their operand, Fourier transforms, wrapped indices, bits read
    /// as another dtype, products of half precisions in float32 and alignments of labels (CTC).
    pub(crate) newest_instructions: bool,
    /// Interrupts the session ahead of its stream; none where the control socket does.
    interrupter: Option<Interrupter>,
    /// The number of the last notice that the program was warned of; 0 for none.
    noticed: AtomicU32,
    /// The reason why the session ended, once a thread has noticed the end.
    lost: OnceLock<String>,
    traceback: bool,
    /// Whether the daemon has another core to answer on while this one spins.
    spins: bool,
    info: SessionInfo,
    /// The private daemon's process, for whose end `close` waits a while.
    private: Mutex<Option<PrivateDaemon>>,
}

/// The daemon, and the session's limits.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The daemon's number for this session.
    pub session_id: u64,
    /// The daemon's process id.
    pub daemon_pid: u32,
    /// The daemon's version.
    pub daemon_version: String,
    /// The daemon's address.
    pub address: Address,
    /// Whether it is a private daemon, started by this process or by the one that it was forked from.
    pub private: bool,
    /// The limit of the arenas of all sessions of the user together, bytes.
    pub arena_bytes_max: u64,
    /// The names of the session's workers, by number.
    pub workers: Vec<String>,
    /// How many these are, and of which devices.
    pub visible: VisibleWorkers,
    /// The backends of the workers, by number, as in `gtd --workers`.
    pub worker_backends: Vec<String>,
}

struct SubmissionState {
    submitter: Submitter,
    encoder: Encoder,
    next_id: TensorId,
    freed: [TensorId; FREE_IDS_MAX],
    freed_len: usize,
    /// The instructions of in-place operations under way.
    held: HeldInstructions,
    /// Small commands pushed since the last publication.
    unpublished: u32,
    /// The estimated duration of the instructions issued since the last wait, nanoseconds.
    outstanding_ns: u64,
    /// The estimated duration of the instructions issued since the last sync or fetch, nanoseconds; at `chunk_ns`,
    /// the next instruction waits as [`RunAhead`] says.
    ahead_ns: u64,
    chunk_ns: u64,
    /// When the first of them was issued.
    ahead_begun: Instant,
    /// Where the newest instructions were issued, and which tensors are alive.
    issued: IssuedTensors,
    /// Under `GT_TRACEBACK=1`, the stacks of the newest [`LINES_KEPT`] instructions.
    stacks: HashMap<TensorId, String>,
    /// The placement signal that was last sent; [`UNKNOWN_SIGNAL`] if the next instruction must send its signal again.
    signal: u32,
    /// The version of each signal's definition that the daemon has.
    defined: HashMap<u32, u64>,
    /// Whether the daemon knows requests for layouts on a mesh.
    meshes: bool,
}

/// When a pushed command is published.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Publication {
    /// With the next commands, once they are a batch.
    Batched,
    /// Now, or with the other instructions of the in-place operation that it belongs to.
    Soon,
    /// Now.
    Now,
}

impl Publication {
    /// The publication of an instruction, which is `large` or not.
    #[inline]
    fn of(large: bool) -> Publication {
        if large { Publication::Soon } else { Publication::Batched }
    }
}

/// An in-place operation under way: until it ends, the session holds back the instructions that it issues, since what
/// they use for the last time shows only then.
#[must_use = "the operation ends when this is dropped"]
pub struct InPlaceOperation(Arc<ClientSession>);

impl Drop for InPlaceOperation {
    fn drop(&mut self) {
        let mut submission = self.0.submission.lock();
        if submission.held.end() {
            submission.publish();
        }
    }
}

/// A number that differs from every signal's, so that the next instruction sends its signal.
const UNKNOWN_SIGNAL: u32 = u32::MAX;

struct CompletionState {
    /// Taken by the one thread that polls the ring; other threads wait on `completed`.
    ring: Option<Completions>,
    /// The adaptive spin for quick work.
    spin: Spin,
    pending: HashMap<u64, PendingCompletion>,
    in_flight: usize,
    next_token: u64,
}

enum PendingCompletion {
    /// The daemon is reading the block.
    Write {
        _block: ArenaBlock,
    },
    /// A thread waits for it.
    Waited,
    /// No thread waits any more, but the daemon may still write the block.
    Abandoned {
        _block: Option<ArenaBlock>,
    },
    Done(std::result::Result<(), Failure>),
}

/// The number of a completion to wait for.
#[derive(Debug)]
#[must_use]
pub struct CompletionToken(pub(crate) u64);

impl ClientSession {
    /// Connects to the daemon that [`crate::launch`] finds or starts, by the process's [`connect_options`].
    ///
    /// # Errors
    /// If no daemon can be reached or started, or the daemon has another version.
    pub fn open() -> Result<Arc<ClientSession>> {
        Self::with(connect_any(&connect_options())?)
    }

    /// Connects to the daemon of `options`.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn connect(options: &ConnectOptions) -> Result<Arc<ClientSession>> {
        Self::with(connect_any(options)?)
    }

    fn with(Daemon { connection, private, address, interrupter }: Daemon) -> Result<Arc<ClientSession>> {
        let workers: Vec<String> = connection.welcome.workers.iter().map(|worker| worker.name.clone()).collect();
        let worker_backends = connection.welcome.workers.iter().map(|worker| worker.kind.clone()).collect();
        let visible = connection.welcome.session.as_ref().map(|grant| VisibleWorkers::new(workers.len(), grant));
        let visible = visible.unwrap_or(VisibleWorkers { count: workers.len(), pinned: None });
        let checked = check_workers(&visible, private.is_some());
        if let Err(error) = checked.and_then(|()| signal::check_workers(&visible)) {
            drop(connection);
            private.into_iter().for_each(PrivateDaemon::reap);
            return Err(error);
        }
        let welcome = connection.welcome;
        let (Some(port), Some(grant)) = (connection.port, welcome.session) else {
            return Err(ClientError::Disconnected("the daemon welcomed the client without a session".into()));
        };
        let (submitter, completions) = port.split();
        let lines = if grant.shares_lines && origin::has_origin_hooks() {
            SharedLines::granted(&connection.socket)
        } else {
            SharedLines::default()
        };
        tracing::info!(
            target: "gt_client",
            session = grant.session_id,
            daemon_pid = welcome.daemon_pid,
            private = private.is_some(),
            %address,
            "connected"
        );
        let traceback = std::env::var("GT_TRACEBACK").is_ok_and(|v| v != "0" && !v.is_empty());
        let session = Arc::new(ClientSession {
            submission: SpinLock::new(SubmissionState {
                submitter,
                encoder: Encoder::new(),
                next_id: 1,
                freed: [0; FREE_IDS_MAX],
                freed_len: 0,
                held: HeldInstructions::default(),
                unpublished: 0,
                outstanding_ns: 0,
                ahead_ns: 0,
                chunk_ns: RunAhead::new().chunk_ns(),
                ahead_begun: Instant::now(),
                issued: if origin::has_origin_hooks() {
                    IssuedTensors::new(LINES_KEPT)
                } else {
                    IssuedTensors::default()
                },
                stacks: HashMap::new(),
                signal: signal::NONE,
                defined: HashMap::new(),
                meshes: welcome.protocol_version >= MESHES_SINCE,
            }),
            completion: Mutex::new(CompletionState {
                ring: Some(completions),
                spin: Spin::new(QUICK_SPIN, QUICK_SPINS_IN_VAIN),
                pending: HashMap::new(),
                in_flight: 0,
                next_token: 1,
            }),
            lists_tensors: grant.shares_lines,
            lines,
            run_ahead: Mutex::new(RunAhead::new()),
            completed: Condvar::new(),
            socket: connection.socket,
            asking: Mutex::new(()),
            arena: ArenaAllocator::new(),
            idle_arenas: IdleArenas::new(grant.returns_arenas),
            cq_slots: grant.cq_slots as usize,
            generation: fork::generation(),
            closed: AtomicBool::new(false),
            failures: AtomicU64::new(0),
            begun: Instant::now(),
            next_alive_check_ns: AtomicU64::new(0),
            interrupts: welcome.protocol_version >= INTERRUPTS_SINCE,
            newest_instructions: welcome.protocol_version
                >= CONVERTING_REDUCTIONS_SINCE
                    .max(ATTENTION_RESULTS_SINCE)
                    .max(FOURIER_TRANSFORMS_SINCE)
                    .max(LABEL_ALIGNMENTS_SINCE)
                    .max(AFFINE_MAPS_SINCE)
                    .max(ACTIVATIONS_SINCE)
                    .max(LSTM_CELLS_SINCE)
                    .max(COMPLEX_PRODUCTS_SINCE)
                    .max(WRAPPED_INDICES_SINCE)
                    .max(BITCASTS_SINCE)
                    .max(WIDE_PRODUCTS_SINCE),
            interrupter,
            noticed: AtomicU32::new(welcome.notice.as_ref().map_or(0, |notice| notice.number)),
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
                visible,
                worker_backends,
            },
            private: Mutex::new(private),
        });
        if let Some(notice) = welcome.notice.filter(|notice| notice.drains_at.is_some()) {
            warn_of(&notice)?;
        }
        Ok(session)
    }

    /// Warns the program of a new notice, if there is one.
    #[cold]
    fn warn_of_notice(&self, number: u32) -> Result<()> {
        // Only the first thread that sees the number asks.
        if self.noticed.swap(number, Relaxed) == number {
            return Ok(());
        }
        match self.ask(gt_protocol::ask_notice) {
            Ok(Some(notice)) => warn_of(&notice),
            Err(ClientError::Interrupted) => Err(ClientError::Interrupted),
            // If the daemon is gone, the next call reports it.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Sends the definition of the current signal again with the next instruction, after definitions have changed.
    pub fn redefine_signals(&self) {
        self.submission.lock().signal = UNKNOWN_SIGNAL;
    }

    /// The placement of tensor `id` on the workers, after everything issued so far is done.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`], [`ClientError::Interrupted`].
    pub fn placement(&self, id: TensorId) -> Result<PlacementInfo> {
        self.synchronize()?;
        self.ask(|socket| gt_protocol::ask_placement(socket, id))
    }

    /// The collectives and operations of this session's workers, and its sequences of instructions, after everything
    /// issued so far is done.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`], [`ClientError::Interrupted`].
    pub fn traffic(&self) -> Result<(Vec<WorkerTraffic>, SequenceCounts)> {
        self.synchronize()?;
        self.ask(gt_protocol::ask_traffic)
    }

    /// The dtypes and sizes of this session's tensors, after everything issued so far is done; empty if the daemon
    /// lists none.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`], [`ClientError::Interrupted`].
    pub fn tensors(&self) -> Result<Vec<(TensorId, String)>> {
        self.synchronize()?;
        if !self.lists_tensors {
            return Ok(Vec::new());
        }
        self.ask(gt_protocol::ask_tensors)
    }

    /// The daemon's status, after everything issued so far is done.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`], [`ClientError::Interrupted`].
    pub fn status(&self) -> Result<StatusDocument> {
        self.synchronize()?;
        self.ask(gt_protocol::ask_status)
    }

    /// The memory and tensors of this session, after everything issued so far is done.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`], [`ClientError::Interrupted`].
    pub fn detail(&self) -> Result<SessionDetail> {
        self.synchronize()?;
        let id = self.info.session_id;
        self.ask(|socket| gt_protocol::ask_session(socket, id))
    }

    /// Resets the session's peak memory on `worker`, or on all workers, to the current usage, after everything issued
    /// so far is done.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`], [`ClientError::Interrupted`].
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

    /// The daemon, and the session's limits.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// Whether this process opened the session, and has not closed it or noticed its end.
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.closed.load(Relaxed) && self.generation == fork::generation()
    }

    /// Whether the session is open and its daemon is connected. Costs a system call.
    pub fn is_alive(&self) -> bool {
        self.is_open() && !self.is_dead()
    }

    /// Whether the session is open and its daemon was connected within the last [`ALIVE_CHECK_INTERVAL`]. A daemon that
    /// ended the session is noticed at once, one that was killed after the interval.
    pub fn was_alive(&self) -> bool {
        if !self.is_open() || self.submission.lock().submitter.state() != SessionState::Running {
            return false;
        }
        let now_ns = self.begun.elapsed().as_nanos() as u64;
        if now_ns < self.next_alive_check_ns.load(Relaxed) {
            return true;
        }
        let alive = !self.is_dead();
        if alive {
            self.next_alive_check_ns.store(now_ns + ALIVE_CHECK_INTERVAL.as_nanos() as u64, Relaxed);
        }
        alive
    }

    /// Whether this process is a forked child of the one that opened the session.
    pub fn is_inherited(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Sets the session's name, which [`launch::check_name`](crate::launch::check_name) has accepted.
    pub fn rename(&self, name: Option<String>) {
        if self.is_open() {
            let _asking = lock(&self.asking);
            // If the daemon is gone, the next instruction reports it.
            let _ = gt_protocol::send_client_message(&self.socket, &ClientMessage::Name { name }, Duration::ZERO);
        }
    }

    /// Waits until everything issued so far has been done, and ends the session.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`] if a Unix signal ended the wait; the session has ended nevertheless.
    pub fn finish(&self) -> Result<()> {
        let done = if self.is_open() { self.synchronize() } else { Ok(()) };
        blocking_quietly(|| self.close())?;
        match done {
            Err(ClientError::Interrupted) => Err(ClientError::Interrupted),
            // Other errors mean that the session has ended already.
            _ => Ok(()),
        }
    }

    /// Ends the session without waiting for its work. Its tensors are freed, and a private daemon without other clients
    /// ends.
    pub fn close(&self) {
        if self.is_inherited() {
            return;
        }
        self.flush();
        if !self.closed.swap(true, Relaxed) {
            tracing::info!(target: "gt_client", session = self.info.session_id, "disconnecting");
            // An error means that the daemon is gone already.
            let _ = gt_protocol::send_client_message(&self.socket, &ClientMessage::Bye, Duration::ZERO);
            self.socket.shut_down();
        }
        if let Some(private) = lock(&self.private).take() {
            private.reap();
        }
    }

    /// Checks that the session is open ([`ClientSession::is_open`]); the error says why it is not.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`].
    pub fn check_open(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(self.disconnected()) }
    }

    #[cold]
    fn disconnected(&self) -> ClientError {
        tracing::debug!(target: "gt_client", session = self.info.session_id, "the session is over");
        if self.is_inherited() {
            return ClientError::Disconnected(
                "this tensor belongs to the parent process's session, which a forked child cannot use: create tensors \
                 after the fork, or pass them as NumPy arrays"
                    .into(),
            );
        }
        // The reason is kept for later calls, because the first call that notices the end may be a drop, which cannot
        // raise an error.
        let why = self.lost.get_or_init(|| {
            if self.closed.swap(true, Relaxed) {
                return "the session is closed: its tensors are gone; create new ones".into();
            }
            self.refusal_text().unwrap_or_else(|| {
                let place = match &self.info.address {
                    Address::Tcp(address) => format!("at {}", address.authority()),
                    _ => format!("(pid {})", self.info.daemon_pid),
                };
                format!(
                    "the GT daemon {place} closed the session or is gone: its tensors are lost; create new ones, which \
                     connects again, and see the daemon's log"
                )
            })
        });
        ClientError::Disconnected(why.clone())
    }

    /// The daemon's last message before it closed the session, if it sent one.
    fn refusal_text(&self) -> Option<String> {
        match gt_protocol::recv_daemon_message(&self.socket, Duration::ZERO) {
            Ok((gt_protocol::DaemonMessage::Refused(refused), _)) => Some(refused.text),
            _ => None,
        }
    }

    /// Whether the daemon has closed the control socket.
    fn is_dead(&self) -> bool {
        self.socket.is_hung_up()
    }

    /// Pushes the slots of one command; waits if the ring is full (back-pressure). A Unix
    /// signal ends the wait if the caller `reports` it, which drops cannot; the next wait does then.
    ///
    /// `encode` returns none if the ring has no room, and is called again after each wait: the state that it reads,
    /// such as the next id, may have changed.
    fn push<'a, T>(
        &'a self,
        mut submission: SpinLockGuard<'a, SubmissionState>,
        publication: Publication,
        reports: bool,
        mut encode: impl FnMut(&mut SubmissionState) -> Option<T>,
    ) -> Result<T> {
        loop {
            if submission.submitter.state() != SessionState::Running {
                drop(submission);
                return Err(self.disconnected());
            }
            if let Some(encoded) = encode(&mut submission) {
                submission.pushed(publication);
                return Ok(encoded);
            }
            submission.publish();
            drop(submission);
            tracing::debug!(target: "gt_client", "the submission ring is full; waiting for the daemon");
            if reports {
                let full = self.submission.lock().submitter.free_slots();
                if let Err(error) = blocking(|| self.wait_for_room()) {
                    // While the daemon reads the ring, its steps are short, and the queue is soon done.
                    self.interrupt(INTERRUPT_GRACE, || self.submission.lock().submitter.free_slots() > full);
                    return Err(error);
                }
            } else {
                blocking_quietly(|| self.wait_for_room())?;
            }
            if self.is_dead() {
                return Err(self.disconnected());
            }
            self.check_open()?;
            submission = self.submission.lock();
        }
    }

    /// Sleeps, with exponential back-off, until an eighth of the ring is free or [`WAIT_SLICE`] has passed. Waiting for
    /// an eighth leaves the core to the daemon, which has enough instructions to execute meanwhile.
    fn wait_for_room(&self) {
        let room = (self.submission.lock().submitter.capacity() / 8).max(2 * SLOTS_MAX as u32);
        let mut nap = ROOM_NAP_MIN;
        let mut waited = Duration::ZERO;
        while self.submission.lock().submitter.free_slots() < room && waited < WAIT_SLICE {
            std::thread::sleep(nap);
            waited += nap;
            nap = (nap * 2).min(ROOM_NAP_MAX);
        }
    }

    /// Issues an elementwise instruction on two tensors of `bytes` and returns the id of its result. This is the hot
    /// path: the slot is encoded without an [`Instruction`].
    ///
    /// # Errors
    /// [`ClientError::Disconnected`].
    #[inline]
    pub(crate) fn issue_binary(
        &self,
        op: gt_ops::Op,
        left: TensorId,
        right: TensorId,
        bytes: usize,
    ) -> Result<TensorId> {
        self.check_open()?;
        let (site, stack) = self.origin_of_call();
        let signal = signal::current().signal();
        let mut submission = self.submission.lock();
        if submission.ahead_ns >= submission.chunk_ns {
            submission = self.wait_behind(submission)?;
        }
        submission.estimate((3 * bytes as u64) / BYTES_PER_NS);
        let publication = Publication::of(bytes as u64 > SMALL_COST_MAX);
        let encode = |s: &mut SubmissionState| {
            s.enter(signal)?;
            let slot = gt_ops::wire::binary_slot(op, s.next_id, left, right);
            let position = s.submitter.position();
            s.submitter.push(&[slot]).ok()?;
            if s.held.is_active() {
                s.held.add_binary(position, slot[0], op, s.next_id, [left, right]);
            }
            Some(s.take_id(site, bytes, &self.lines))
        };
        let id = if submission.submitter.state() == SessionState::Running
            && let Some(id) = encode(&mut submission)
        {
            submission.pushed(publication);
            drop(submission);
            id
        } else {
            self.push(submission, publication, true, encode)?
        };
        self.remember_stack(id, stack);
        Ok(id)
    }

    /// Issues an instruction for a result of `bytes`; sets its `out` to the id of the result and returns that.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`].
    pub(crate) fn issue(&self, instruction: &mut Instruction, cost: Cost, bytes: usize) -> Result<TensorId> {
        self.check_open()?;
        let (site, stack) = self.origin_of_call();
        let signal = signal::current().signal();
        let mut submission = self.submission.lock();
        if submission.ahead_ns >= submission.chunk_ns {
            submission = self.wait_behind(submission)?;
        }
        submission.estimate(cost.flops / FLOPS_PER_NS + cost.bytes / BYTES_PER_NS);
        let publication = Publication::of(cost.flops.max(cost.bytes) > SMALL_COST_MAX);
        if submission.held.is_active() && submission.freed_len > 0 {
            // A view that is freed behind the instruction would keep it from writing in place.
            self.flush_frees(submission, Publication::Batched);
            submission = self.submission.lock();
        }
        let id = self.push(submission, publication, true, |s| {
            s.enter(signal)?;
            instruction.out = s.next_id;
            let position = s.submitter.position();
            let slots = s.encoder.instruction(instruction);
            let word = slots[0][0];
            s.submitter.push(slots).ok()?;
            if s.held.is_active() {
                s.held.add(position, word, instruction.op, instruction.out, &instruction.inputs);
            }
            Some(s.take_id(site, bytes, &self.lines))
        })?;
        self.remember_stack(id, stack);
        Ok(id)
    }

    /// Ends a chunk of instructions with a sync, and waits until the chunk before is done ([`RunAhead`]).
    ///
    /// # Errors
    /// [`ClientError::Disconnected`], [`ClientError::Interrupted`].
    #[cold]
    #[inline(never)]
    fn wait_behind<'a>(
        &'a self,
        mut submission: SpinLockGuard<'a, SubmissionState>,
    ) -> Result<SpinLockGuard<'a, SubmissionState>> {
        let estimated_ns = std::mem::take(&mut submission.ahead_ns);
        let begun = std::mem::replace(&mut submission.ahead_begun, Instant::now());
        drop(submission);
        self.reap()?;
        let token = self.register(PendingCompletion::Waited)?;
        self.send(&Command::Sync { token })?;
        let mut run_ahead = lock(&self.run_ahead);
        let before = run_ahead.synced(RunAheadSync { token, estimated_ns, begun });
        let expected = before.as_ref().map(|before| run_ahead.expected(before));
        drop(run_ahead);
        if let Some(before) = before {
            let grace = if expected > Some(RUN_AHEAD_GRACE) { Duration::ZERO } else { RUN_AHEAD_GRACE };
            let waited = !self.is_done(before.token);
            while !self.is_done(before.token) {
                if let Err(error) = self.wait_some_with(Some(before.token), grace) {
                    self.abandon(CompletionToken(before.token), None);
                    return Err(error);
                }
            }
            // A failure is raised where a result is fetched.
            lock(&self.completion).pending.remove(&before.token);
            let mut run_ahead = lock(&self.run_ahead);
            run_ahead.passed(&before, waited, Instant::now());
            let chunk_ns = run_ahead.chunk_ns();
            drop(run_ahead);
            self.submission.lock().chunk_ns = chunk_ns;
        }
        Ok(self.submission.lock())
    }

    /// Sends a command that makes no tensor.
    pub(crate) fn send(&self, command: &Command) -> Result<()> {
        self.check_open()?;
        self.push(self.submission.lock(), Publication::Now, false, |s| {
            let slots = s.encoder.encode(command);
            s.submitter.push(slots).ok()
        })
    }

    /// Issues the allocation of a tensor of `meta`, to be filled by [`ClientSession::write`].
    pub(crate) fn allocate(&self, meta: Meta) -> Result<TensorId> {
        self.check_open()?;
        let meta = meta.stored()?;
        let (site, stack) = self.origin_of_call();
        let signal = signal::current().signal();
        let id = self.push(self.submission.lock(), Publication::Batched, true, |s| {
            s.enter(signal)?;
            let slots = s.encoder.encode(&Command::Allocate { out: s.next_id, meta });
            s.submitter.push(slots).is_ok().then(|| s.take_id(site, meta.bytes(), &self.lines))
        })?;
        self.remember_stack(id, stack);
        Ok(id)
    }

    /// Frees tensor `id` of `bytes`, which no later command may name.
    #[inline]
    pub(crate) fn free(&self, id: TensorId, bytes: usize) {
        if !self.is_open() {
            return;
        }
        let mut guard = self.submission.lock();
        let submission = &mut *guard;
        submission.issued.freed(id);
        if submission.held.is_active() && submission.held.mark_last_use(&mut submission.submitter, id) {
            return;
        }
        let at = submission.freed_len;
        submission.freed[at] = id;
        submission.freed_len += 1;
        let large = bytes >= FREE_AT_ONCE_BYTES_MIN;
        if submission.freed_len == FREE_IDS_MAX || large {
            self.flush_frees(guard, Publication::of(large));
        }
    }

    /// Sends the batched frees; publishes everything if `publication` says so.
    fn flush_frees(&self, mut submission: SpinLockGuard<'_, SubmissionState>, publication: Publication) {
        if submission.freed_len == 0 {
            if publication == Publication::Now {
                submission.publish();
            }
            return;
        }
        let ids = std::mem::replace(&mut submission.freed, [0; FREE_IDS_MAX]);
        submission.freed_len = 0;
        let f = ids;
        let slot: Slot = [gt_ops::wire::FREE_ID as u64, f[0], f[1], f[2], f[3], f[4], f[5], f[6]];
        // An error means that the session has ended, which frees all its tensors.
        let _ = self.push(submission, publication, false, |s| s.submitter.push(&[slot]).ok());
    }

    /// Sends the batched frees and publishes all instructions.
    pub fn flush(&self) {
        if self.is_open() {
            self.flush_frees(self.submission.lock(), Publication::Now);
        }
    }

    /// The number of fetches that reported a failure, and of interrupts: values of views that were computed before may
    /// be among what failed.
    #[inline]
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Notes that a fetch has reported a failure, or that instructions were interrupted.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Relaxed);
    }

    /// The id that the next tensor will have.
    pub fn next_id(&self) -> TensorId {
        self.submission.lock().next_id
    }

    /// Begins an in-place operation.
    pub fn begin_in_place(self: &Arc<Self>) -> InPlaceOperation {
        self.submission.lock().held.begin();
        InPlaceOperation(self.clone())
    }

    /// Notes that an in-place operation replaces value `old` by `new`.
    pub(crate) fn replaced(&self, old: TensorId, new: TensorId) {
        let mut guard = self.submission.lock();
        let submission = &mut *guard;
        submission.held.replaced(&mut submission.submitter, old, new);
    }

    /// Allocates a block of the arena for a transfer; asks the daemon for a larger arena if it is full.
    ///
    /// # Errors
    /// [`ClientError::ArenaFull`] at the session's limit.
    pub(crate) fn arena_block(self: &Arc<ClientSession>, bytes: usize) -> Result<ArenaBlock> {
        if let Ok(block) = self.arena.alloc(bytes as u64) {
            return Ok(block);
        }
        self.reap()?;
        if let Ok(block) = self.arena.alloc(bytes as u64) {
            return Ok(block);
        }
        self.check_open()?;
        let block = blocking(|| self.grow_arena(bytes))?;
        self.idle_arenas.look_after(self);
        block
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
                    ClientError::ArenaFull(format!(
                        "the session's arena is full: {} asked for; {} (gtctl session {} shows what it holds)",
                        bytes_text(bytes as u64),
                        refused.text,
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
                .map_err(|error| ClientError::Disconnected(format!("an arena that cannot be used: {error}")))?;
            if segment != granted.segment {
                return Err(ClientError::Disconnected("arenas out of order".into()));
            }
        }
    }

    /// The size of the arena and the part in use.
    pub fn arena_stats(&self) -> gt_shm::arena::ArenaStats {
        self.arena.stats()
    }

    /// Registers a completion to expect; waits while as many are in flight as the completion ring holds.
    fn register(&self, pending: PendingCompletion) -> Result<u64> {
        let mut pending = Some(pending);
        loop {
            {
                let mut completion = lock(&self.completion);
                if completion.in_flight < self.cq_slots {
                    let token = completion.next_token;
                    completion.next_token += 1;
                    completion.in_flight += 1;
                    if let Some(pending) = pending.take() {
                        completion.pending.insert(token, pending);
                    }
                    return Ok(token);
                }
            }
            self.wait_some(None)?;
        }
    }

    /// Writes the first `len` bytes of `block` to bytes `offset_bytes..` of tensor `id`. The block returns to the arena
    /// when the daemon has read it.
    pub(crate) fn write(
        &self,
        id: TensorId,
        offset_bytes: u64,
        block: ArenaBlock,
        len: usize,
    ) -> Result<CompletionToken> {
        let from = ArenaRange { segment: block.arena() as u64, offset_bytes: block.offset(), len_bytes: len as u64 };
        let token = self.register(PendingCompletion::Write { _block: block })?;
        self.send(&Command::Write { token, id, offset_bytes, from })?;
        Ok(CompletionToken(token))
    }

    /// Fetches bytes `offset_bytes..offset_bytes + len` of tensor `id` into `block`.
    pub(crate) fn fetch(
        &self,
        id: TensorId,
        offset_bytes: u64,
        block: &ArenaBlock,
        len: usize,
    ) -> Result<CompletionToken> {
        let to = ArenaRange { segment: block.arena() as u64, offset_bytes: block.offset(), len_bytes: len as u64 };
        let token = self.register(PendingCompletion::Waited)?;
        let (site, _) = self.origin_of_call();
        let mut submission = self.submission.lock();
        submission.outstanding_ns += len as u64 / BYTES_PER_NS;
        self.lines.waited(id, site);
        drop(submission);
        self.send(&Command::Fetch { token, id, offset_bytes, to })?;
        Ok(CompletionToken(token))
    }

    /// Waits until everything issued so far is done. An instruction that fails poisons its result, and the error is
    /// raised when the result, or a tensor computed from it, is fetched.
    ///
    /// # Errors
    /// [`ClientError::Disconnected`], [`ClientError::Interrupted`].
    pub fn synchronize(&self) -> Result<()> {
        self.flush();
        let token = self.register(PendingCompletion::Waited)?;
        self.send(&Command::Sync { token })?;
        self.wait(&CompletionToken(token))
    }

    /// Waits for the completion of a fetch or sync.
    ///
    /// # Errors
    /// [`ClientError::Failed`] with the instruction that failed; [`ClientError::Disconnected`];
    /// [`ClientError::Interrupted`].
    pub(crate) fn wait(&self, token: &CompletionToken) -> Result<()> {
        loop {
            {
                let mut completion = lock(&self.completion);
                if let Some(PendingCompletion::Done(result)) = completion.pending.get(&token.0) {
                    let result = *result;
                    completion.pending.remove(&token.0);
                    drop(completion);
                    let mut submission = self.submission.lock();
                    submission.outstanding_ns = 0;
                    (submission.ahead_ns, submission.ahead_begun) = (0, Instant::now());
                    let notice = submission.submitter.notice();
                    drop(submission);
                    if notice != self.noticed.load(Relaxed) {
                        self.warn_of_notice(notice)?;
                    }
                    return result.map_err(|failure| ClientError::Failed {
                        origin: Box::new(self.origin_of(&failure)),
                        session: self.info.session_id,
                        failure,
                    });
                }
            }
            self.wait_some(Some(token.0))?;
        }
    }

    /// Whether the completion of a fetch or sync has arrived.
    fn is_done(&self, token: u64) -> bool {
        !matches!(lock(&self.completion).pending.get(&token), Some(PendingCompletion::Waited))
    }

    /// Stops waiting for a sync, or for a fetch into `block`. The block is kept until the daemon has completed the
    /// fetch.
    pub(crate) fn abandon(&self, token: CompletionToken, block: Option<ArenaBlock>) {
        let mut completion = lock(&self.completion);
        if let Some(PendingCompletion::Waited) = completion.pending.get(&token.0) {
            completion.pending.insert(token.0, PendingCompletion::Abandoned { _block: block });
        }
    }

    /// Waits until the daemon has read the block of a write.
    pub(crate) fn wait_written(&self, token: &CompletionToken) -> Result<()> {
        while lock(&self.completion).pending.contains_key(&token.0) {
            self.wait_some(Some(token.0))?;
        }
        Ok(())
    }

    /// Handles the completions that have arrived, without waiting.
    fn reap(&self) -> Result<()> {
        let mut completion = lock(&self.completion);
        if let Some(mut ring) = completion.ring.take() {
            while let Some(slot) = ring.pop() {
                completion.finish(&slot);
            }
            completion.ring = Some(ring);
        }
        Ok(())
    }

    /// Waits for completions for at most [`WAIT_SLICE`]. One thread at a time polls the ring; the others wait for it.
    fn wait_some(&self, wanted: Option<u64>) -> Result<()> {
        self.wait_some_with(wanted, INTERRUPT_GRACE)
    }

    /// As [`wait_some`](Self::wait_some). After a Unix signal, everything is cancelled if the wanted completion does
    /// not come within `grace`.
    fn wait_some_with(&self, wanted: Option<u64>, grace: Duration) -> Result<()> {
        // The awaited command may still be unpublished.
        self.flush();
        let quick = self.submission.lock().outstanding_ns <= QUICK_NS_MAX && self.spins;
        let daemon_gone = blocking(|| {
            let mut completion = lock(&self.completion);
            let done = |c: &CompletionState| match wanted {
                Some(token) => {
                    !matches!(c.pending.get(&token), Some(PendingCompletion::Waited | PendingCompletion::Write { .. }))
                }
                None => c.in_flight < self.cq_slots,
            };
            if done(&completion) {
                return false;
            }
            let Some(mut ring) = completion.ring.take() else {
                // Another thread polls the ring. It notifies when completions have arrived, and when it leaves.
                let waited = self.completed.wait_timeout(completion, WAIT_SLICE);
                drop(waited);
                return false;
            };
            let look = completion.spin.look();
            drop(completion);
            ring.tell_spin(quick);
            let soon = quick && ring.wait_any(look, look);
            let found = ring.wait(if quick { Duration::ZERO } else { spin_default() }, WAIT_SLICE);
            let mut completion = lock(&self.completion);
            match (quick, soon) {
                (true, true) => completion.spin.found(),
                (true, false) => completion.spin.found_nothing(),
                (false, _) => {}
            }
            let mut any = false;
            if let Some(slot) = found {
                completion.finish(&slot);
                any = true;
            }
            while let Some(slot) = ring.pop() {
                completion.finish(&slot);
            }
            let ended = !any && (ring.state() == SessionState::Closed || self.is_dead());
            completion.ring = Some(ring);
            drop(completion);
            self.completed.notify_all();
            ended
        });
        let daemon_gone = match daemon_gone {
            Ok(daemon_gone) => daemon_gone,
            Err(error) => {
                self.interrupt(grace, || wanted.is_some_and(|token| self.is_complete(token)));
                return Err(error);
            }
        };
        if daemon_gone {
            return Err(self.disconnected());
        }
        self.check_open()
    }

    /// Whether nobody has to wait for the completion `wanted` any more.
    fn is_complete(&self, wanted: u64) -> bool {
        let _ = self.reap();
        let completion = lock(&self.completion);
        !matches!(
            completion.pending.get(&wanted),
            Some(PendingCompletion::Waited | PendingCompletion::Write { .. } | PendingCompletion::Abandoned { .. })
        )
    }

    /// Cancels everything issued so far, after a wait was interrupted, unless `is_done` within `grace`. Results that
    /// are not made are poisoned.
    #[cold]
    fn interrupt(&self, grace: Duration, is_done: impl Fn() -> bool + Sync) {
        let deadline = Instant::now() + grace;
        let done = blocking_quietly(|| {
            while !is_done() {
                if Instant::now() >= deadline {
                    return false;
                }
                std::thread::sleep(INTERRUPT_NAP);
            }
            true
        });
        if self.interrupts && !done.unwrap_or(false) && self.is_open() {
            let below = self.submission.lock().next_id;
            tracing::debug!(target: "gt_client", below, "interrupting");
            if let Some(interrupter) = &self.interrupter {
                interrupter.interrupt(below);
            }
            // If the daemon is gone, the next instruction reports it.
            let message = ClientMessage::Interrupt { below };
            let _ = gt_protocol::send_client_message(&self.socket, &message, Duration::ZERO);
            self.failed();
        }
    }

    /// The line that issued the instruction of `failure`, and, where memory ran out, the lines that hold most.
    #[cold]
    fn origin_of(&self, failure: &Failure) -> FailureOrigin {
        let id = failure.instruction;
        let mut submission = self.submission.lock();
        let (site, stack) = (submission.issued.site(id), submission.stacks.remove(&id));
        drop(submission);
        let issued_at = match (stack, site) {
            (Some(stack), _) => IssuedAt::Stack(stack),
            (None, Some(site)) => origin::line_of(site).map_or(IssuedAt::Unknown, IssuedAt::Line),
            (None, None) if origin::has_origin_hooks() => IssuedAt::Forgotten,
            (None, None) => IssuedAt::Unknown,
        };
        // The failed instruction's result, and what depends on it, take no memory.
        let held = match failure.fault {
            Fault::OutOfMemory { .. } | Fault::TooManyTensors { .. } => {
                lines_of(self.live_tensors().into_iter().filter(|tensor| tensor.id < id))
            }
            _ => Vec::new(),
        };
        FailureOrigin { issued_at, held }
    }

    /// The tensors of this session that are alive, in no order. Empty if the host language tells no lines.
    pub fn live_tensors(&self) -> Vec<LiveTensor> {
        self.submission.lock().issued.live()
    }

    /// Where instruction `id` was issued; none if that is no longer known.
    pub fn site_of(&self, id: TensorId) -> Option<CallSite> {
        self.submission.lock().issued.site(id)
    }

    #[inline]
    fn remember_stack(&self, id: TensorId, stack: Option<String>) {
        if let Some(stack) = stack {
            let mut submission = self.submission.lock();
            submission.stacks.remove(&id.saturating_sub(LINES_KEPT as u64));
            submission.stacks.insert(id, stack);
        }
    }

    /// Where an instruction is issued, and under `GT_TRACEBACK=1` the stack. Called before any lock is taken: the hooks
    /// run code of the host language, which may drop tensors.
    #[inline]
    fn origin_of_call(&self) -> (CallSite, Option<String>) {
        let site = origin::call_site();
        self.lines.tell(site);
        (site, if self.traceback { origin::stack_of_call() } else { None })
    }
}

/// Shows a notice to the program's user.
fn warn_of(notice: &Notice) -> Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    notice::warn(&notice.text(now.as_secs_f64()))
}

impl ArenaOwner for ClientSession {
    fn arenas(&self) -> &ArenaAllocator {
        &self.arena
    }

    fn idle_arenas(&self) -> &IdleArenas {
        &self.idle_arenas
    }

    fn is_open(&self) -> bool {
        ClientSession::is_open(self)
    }

    fn return_arena(&self, number: u32) -> bool {
        let _asking = lock(&self.asking);
        self.is_open() && gt_protocol::ask_return_arena(&self.socket, number).is_ok()
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        self.close();
    }
}

impl SubmissionState {
    /// Adds the estimated duration of an instruction that is issued next.
    #[inline]
    fn estimate(&mut self, ns: u64) {
        self.outstanding_ns += ns;
        self.ahead_ns += ns + INSTRUCTION_NS;
    }

    /// Counts a pushed command, and publishes when a batch is full.
    #[inline]
    fn pushed(&mut self, publication: Publication) {
        self.unpublished += 1;
        let due = publication != Publication::Batched || self.unpublished >= BATCH_COMMANDS;
        if due && (publication == Publication::Now || !self.held.put_off()) {
            self.publish();
        }
    }

    #[inline]
    fn publish(&mut self) {
        self.unpublished = 0;
        self.held.published();
        self.submitter.publish();
    }

    /// Puts the next instruction under `signal`, if the last one was not. None if the ring has no room.
    #[inline]
    fn enter(&mut self, signal: u32) -> Option<()> {
        if self.signal == signal { Some(()) } else { self.change_signal(signal) }
    }

    #[cold]
    fn change_signal(&mut self, signal: u32) -> Option<()> {
        if let Some((requested, compile, version)) = signal::requested_by(signal)
            && self.defined.get(&signal) != Some(&version)
        {
            // A daemon that knows no meshes places the results itself.
            let mesh = matches!(requested.layout, RequestedLayout::Mesh { .. });
            let layout = if mesh && !self.meshes { RequestedLayout::Any } else { requested.layout };
            let requested = RequestedPlacement { layout, ..requested };
            self.submitter.push(self.encoder.encode(&Command::DefineSignal { signal, requested, compile })).ok()?;
            self.defined.insert(signal, version);
        }
        self.submitter.push(self.encoder.encode(&Command::Signal { signal })).ok()?;
        self.signal = signal;
        Some(())
    }

    /// Returns the next tensor id, for a tensor of `bytes` that is issued at `site`, and advances it.
    #[inline]
    fn take_id(&mut self, site: CallSite, bytes: usize, lines: &SharedLines) -> TensorId {
        let id = self.next_id;
        self.issued.issued(id, site, bytes);
        lines.issued(id, site);
        self.next_id = id + 1;
        id
    }
}

impl CompletionState {
    fn finish(&mut self, slot: &Slot) {
        let completion = Completion::decode(slot);
        self.in_flight = self.in_flight.saturating_sub(1);
        match self.pending.remove(&completion.token) {
            // A failed write poisons its tensor: the error is raised where the tensor is fetched.
            Some(PendingCompletion::Write { .. } | PendingCompletion::Abandoned { .. }) | None => {}
            Some(PendingCompletion::Waited | PendingCompletion::Done(_)) => {
                self.pending.insert(completion.token, PendingCompletion::Done(completion.result));
            }
        }
    }
}
