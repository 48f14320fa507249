//! The dispatcher: one thread, the only writer of all session state.
//!
//! Sessions that submitted something lately are *hot*: the dispatcher polls their rings. The others are *cold*: their
//! doorbells wake the dispatcher. It spins for some microseconds, then sleeps in `epoll` until a ring has work.
//!
//! Here are the loop, its sleep and its end; `time_slices` serves the sessions, `connections` handles connections and
//! their requests, `workers` the workers that come and go, `admin` requests about sessions and users, `tokens` those
//! about access tokens, `nodes` those about other machines, `notices` planned drains and stops, `records` the records
//! of sessions, and `snapshots` what is shown by HTTP.

mod admin;
mod connections;
mod nodes;
mod notices;
mod records;
mod snapshots;
mod time_slices;
mod tokens;
mod workers;

use crate::control_budget::ControlBudget;
use crate::control_connection::ControlConnection;
use crate::fair_queue::FairQueue;
use crate::hot_paths::CompilePolicy;
use crate::janitor::Janitor;
use crate::journal::LineBudget;
use crate::ledger::Ledger;
use crate::log::InstructionLog;
use crate::modifiers::links::Machine;
use crate::modifiers::pipeline::Pipelines;
use crate::nodes::relay::RelayPort;
use crate::nodes::server::Nodes;
use crate::quota::{QuotaConfig, QuotaTable};
use crate::record_keeper::RecordKeeper;
use crate::reload::Reload;
use crate::session::Session;
use crate::systemd::Notifier;
use crate::tape::Tape;
use crate::token_desk::TokenDesk;
use crate::trim_schedule::TrimSchedule;
use crate::web::desk::WebDesk;
use crate::worker::groups::Groups;
use crate::worker::process::life::CHECK_EVERY;
use crate::worker::queue::QueueLimit;
use crate::worker::worker_link::WorkerLink;
use gt_ops::Workers;
use gt_ops::infer::InputMeta;
use gt_protocol::{Notice, TcpStatus};
use gt_shm::{SessionState, Socket, Spin};
use nix::sys::signalfd::SignalFd;
use rustix::event::{Timespec, epoll};
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::{Duration, Instant};

/// The longest spin before sleeping: longer than what a program does between two questions about small tensors, and
/// than falling asleep and waking up take on a virtual machine. With a third of it, each of the 35 questions of a step
/// of Pyro's inference found the dispatcher asleep, and the step took twice as long.
const SPIN_MAX: Duration = Duration::from_micros(100);
/// The dispatcher leaves a client's core at most this often: clients that are on every core, or say so, cost it little.
const LEAVE_EVERY_NS: u64 = 1_000_000;
/// The interval of `epoll` while rings are busy, nanoseconds.
const POLL_EVERY_NS: u64 = 200_000;
/// A daemon that is idle for this long releases memory that is kept for reuse.
const TRIM_AFTER: Duration = Duration::from_secs(5);
/// When the daemon ends, it waits this long for queued steps; then it ends without them.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);
/// The time to pass on to TCP clients why the daemon stops.
const FORWARD_DEADLINE: Duration = Duration::from_millis(500);
/// The interval of looks at whether that is done.
const FORWARD_LOOK_EVERY: Duration = Duration::from_millis(1);
/// The time that a worker has to stop when the daemon ends, after the last session.
const STOP_PATIENCE: Duration = Duration::from_millis(500);
/// The most events that one `epoll` call returns.
const EVENTS_MAX: usize = 64;
/// Once connections and messages have taken this long, sessions are served before the next ones.
const MESSAGES_MAX: Duration = Duration::from_millis(1);

/// While the listener is paused, the deadline for hellos of the user with the most connections.
const CROWDED_HANDSHAKE_DEADLINE: Duration = Duration::from_millis(100);
/// A session whose last submission is more recent counts as active, nanoseconds.
const ACTIVE_WITHIN_NS: u64 = 10_000_000_000;
/// While a light step waits until its session is due time beside a running step, the dispatcher looks again at this
/// interval.
const OVERTAKING_LOOK_EVERY: Duration = Duration::from_millis(2);
/// The interval at which usage and shares are updated, nanoseconds.
const USAGE_UPDATED_EVERY_NS: u64 = 1_000_000_000;
/// The interval of periodic work, such as checking the deadlines of handshakes, nanoseconds.
const DUE_EVERY_NS: u64 = 20_000_000;

/// The system's group of administrators.
const ADMINISTRATORS: &str = "gt-admin";

/// A descriptor that can wake the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeSource {
    Listener,
    Signal,
    Reload,
    Records,
    Tokens,
    Web,
    Relay,
    Worker(usize),
    Socket(u64),
    Process(u64),
    Doorbell(u64),
}

impl WakeSource {
    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            WakeSource::Listener => 0,
            WakeSource::Signal => 1,
            WakeSource::Reload => 6,
            WakeSource::Records => 7,
            WakeSource::Tokens => 7 | 1 << 3,
            WakeSource::Web => 7 | 2 << 3,
            WakeSource::Relay => 7 | 3 << 3,
            WakeSource::Worker(index) => 2 | (index as u64) << 3,
            WakeSource::Socket(serial) => 3 | serial << 3,
            WakeSource::Process(serial) => 4 | serial << 3,
            WakeSource::Doorbell(serial) => 5 | serial << 3,
        })
    }

    fn of(data: u64) -> WakeSource {
        let number = data >> 3;
        match data & 7 {
            0 => WakeSource::Listener,
            1 => WakeSource::Signal,
            2 => WakeSource::Worker(number as usize),
            3 => WakeSource::Socket(number),
            4 => WakeSource::Process(number),
            6 => WakeSource::Reload,
            7 if number == 0 => WakeSource::Records,
            7 if number == 1 => WakeSource::Tokens,
            7 if number == 2 => WakeSource::Web,
            7 => WakeSource::Relay,
            _ => WakeSource::Doorbell(number),
        }
    }
}

/// The parts that a dispatcher is built from.
pub struct DispatcherParts {
    /// The listening socket; none if nobody may connect.
    pub listener: Option<Socket>,
    /// The connected client of a private daemon, which ends with its last client.
    pub client: Option<Socket>,
    /// SIGTERM and SIGINT, which end the daemon, and SIGHUP, which reloads the configuration.
    pub signals: SignalFd,
    /// The links to the workers.
    pub links: Vec<Box<dyn WorkerLink>>,
    /// The pipelines of modifiers.
    pub pipelines: Pipelines,
    /// The tape, on which the dispatcher records the daemon's events.
    pub tape: Tape,
    /// The instruction log, which reads the tape; none if it is off.
    pub log: Option<InstructionLog>,
    /// The configured quotas.
    pub quotas: QuotaConfig,
    /// The limit of all sessions' arenas together, bytes.
    pub arena_bytes_max: u64,
    /// The reloader of the configuration; none without a file.
    pub reload: Option<Reload>,
    /// The connection to systemd's notification socket.
    pub notifier: Notifier,
    /// The file that keeps the users' usage across restarts; none if usage is not kept.
    pub ledger: Option<Ledger>,
    /// The users' access tokens.
    pub tokens: TokenDesk,
    /// Which instructions are planned.
    pub compile: CompilePolicy,
    /// How the daemon listens by TCP; none if it does not.
    pub tcp: Option<TcpStatus>,
    /// The nodes; none if none may join.
    pub nodes: Option<Arc<Nodes>>,
    /// The keeper of session records; none if none are kept.
    pub records: Option<RecordKeeper>,
    /// The questions of the web's thread; none if nothing is shown by HTTP.
    pub web: Option<WebDesk>,
    /// The address at which that is.
    pub metrics: Option<String>,
}

/// The daemon's one thread that serves clients.
pub struct Dispatcher {
    epoll: OwnedFd,
    listener: Option<Socket>,
    listening_paused: bool,
    /// A spare descriptor, closed to accept and refuse one more connection when descriptors have run out.
    spare: Option<OwnedFd>,
    signals: SignalFd,
    links: Vec<Box<dyn WorkerLink>>,
    /// The number of workers that the daemon started itself; these never leave.
    initial_workers: usize,
    /// The workers that new sessions get.
    present: Workers,
    /// The machines; none if all workers are on the daemon's.
    machines: Vec<Machine>,
    /// How many links between machines were measured when `machines` was made.
    measured: u64,
    groups: Groups,
    pipelines: Pipelines,
    tape: Tape,
    log: Option<InstructionLog>,
    janitor: Janitor,
    /// The connections by slot, which is also the session's slot at the workers.
    connections: Vec<Option<ControlConnection>>,
    slot_of_serial: HashMap<u64, usize>,
    /// The slots of hot sessions.
    hot: Vec<usize>,
    next_serial: u64,
    metas: Vec<InputMeta>,
    /// True for a private daemon, which ends with its last client.
    private: bool,
    /// True while the daemon takes no sessions and ends after the last one.
    draining: bool,
    /// When the daemon begins to drain, if that is planned.
    drains_at: Option<Instant>,
    /// The last notice to programs.
    notice: Option<Notice>,
    quotas: QuotaTable,
    arena_bytes_max: u64,
    queue: FairQueue,
    /// The dispatcher's time for each user's messages.
    control: ControlBudget,
    /// The lines of the log about each user.
    lines: LineBudget,
    /// The time of the last update of usage and shares.
    usage_updated_ns: u64,
    /// How much a worker's queue may hold.
    queue_limit: QueueLimit,
    /// The id of the system's group of administrators.
    administrators: Option<u32>,
    /// Set by SIGTERM or SIGINT: the dispatcher reads no more commands, and the daemon ends when the queued steps are
    /// done, at this time at the latest.
    ending: Option<Instant>,
    spin: Spin,
    /// True while the dispatcher spins: its last passes found nothing to do.
    spinning: bool,
    /// The time from which the dispatcher may leave a client's core again.
    leaves_at_ns: u64,
    last_poll_ns: u64,
    /// A count of events other than those of bells.
    events_handled: usize,
    last_work_ns: u64,
    next_due_ns: u64,
    /// The time of the last check that the workers are alive.
    checked_ns: u64,
    trimmed: bool,
    trim_schedule: TrimSchedule,
    start: Instant,
    reload: Option<Reload>,
    notifier: Notifier,
    ledger: Option<Ledger>,
    tokens: TokenDesk,
    compile: CompilePolicy,
    tcp: Option<TcpStatus>,
    nodes: Option<Arc<Nodes>>,
    /// The way of steps to the workers of nodes; none if no node may join.
    relay: Option<Rc<RefCell<RelayPort>>>,
    /// True if work was done since the ledger was last written.
    ledger_stale: bool,
    records: Option<RecordKeeper>,
    web: Option<WebDesk>,
    metrics: Option<String>,
}

impl Dispatcher {
    /// A dispatcher that has not started.
    ///
    /// # Errors
    /// If the kernel refuses a descriptor.
    pub fn new(parts: DispatcherParts) -> std::io::Result<Dispatcher> {
        let DispatcherParts { listener, client, signals, links, pipelines, tape, log, quotas, .. } = parts;
        let DispatcherParts { arena_bytes_max, reload, notifier, ledger, records, tokens, tcp, web, .. } = parts;
        let DispatcherParts { nodes, metrics, compile, .. } = parts;
        let mut queue = FairQueue::default();
        if let Some((usage_s, age)) = ledger.as_ref().map(Ledger::read) {
            queue.restore_usage(usage_s, age);
        }
        let mut dispatcher = Dispatcher {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener,
            listening_paused: false,
            spare: spare_descriptor(),
            signals,
            initial_workers: links.len(),
            present: Workers::first_of(links.len()),
            machines: Vec::new(),
            measured: 0,
            links,
            groups: Groups::default(),
            pipelines,
            tape,
            log,
            janitor: Janitor::start()?,
            connections: Vec::new(),
            slot_of_serial: HashMap::new(),
            hot: Vec::new(),
            next_serial: 1,
            metas: Vec::new(),
            private: client.is_some(),
            draining: false,
            drains_at: None,
            notice: None,
            quotas: QuotaTable::new(quotas),
            arena_bytes_max,
            queue,
            control: ControlBudget::default(),
            lines: LineBudget::default(),
            usage_updated_ns: 0,
            queue_limit: QueueLimit::SOLE,
            administrators: administrators_group(),
            ending: None,
            spin: Spin::new(SPIN_MAX, 0),
            spinning: false,
            leaves_at_ns: 0,
            last_poll_ns: 0,
            events_handled: 0,
            last_work_ns: 0,
            next_due_ns: 0,
            checked_ns: 0,
            trimmed: true,
            trim_schedule: TrimSchedule::default(),
            start: Instant::now(),
            reload,
            notifier,
            ledger,
            ledger_stale: false,
            records,
            tokens,
            compile,
            tcp,
            relay: nodes.as_ref().and_then(|nodes| nodes.take_relay_port()).map(|port| Rc::new(RefCell::new(port))),
            nodes,
            web,
            metrics,
        };
        if dispatcher.web.is_some() {
            dispatcher.tape.keep_totals();
        }
        if let Some(listener) = &dispatcher.listener {
            listener.set_nonblocking(true).map_err(std::io::Error::other)?;
            dispatcher.watch(listener.as_fd(), WakeSource::Listener)?;
        }
        dispatcher.watch(dispatcher.signals.as_fd(), WakeSource::Signal)?;
        dispatcher.watch(dispatcher.tokens.bell(), WakeSource::Tokens)?;
        if let Some(reload) = &dispatcher.reload {
            dispatcher.watch(reload.bell(), WakeSource::Reload)?;
        }
        if let Some(web) = &dispatcher.web {
            dispatcher.watch(web.bell(), WakeSource::Web)?;
        }
        if let Some(relay) = &dispatcher.relay {
            dispatcher.watch(relay.borrow().bell(), WakeSource::Relay)?;
        }
        if let Some(records) = &dispatcher.records {
            dispatcher.watch(records.bell(), WakeSource::Records)?;
        }
        for (index, link) in dispatcher.links.iter().enumerate() {
            dispatcher.watch(link.bell(), WakeSource::Worker(index))?;
        }
        if let Some(client) = client {
            dispatcher.add_connection(client);
        }
        Ok(dispatcher)
    }

    fn watch(&self, fd: BorrowedFd<'_>, source: WakeSource) -> std::io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.data(), epoll::EventFlags::IN | epoll::EventFlags::RDHUP)?)
    }

    /// Stops watching a descriptor. Closing it would not be enough if the client has a copy of it.
    fn unwatch(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Serves until SIGTERM or SIGINT, until the last client of a private daemon has gone, or until a draining daemon
    /// has no sessions.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn run(mut self) -> std::io::Result<()> {
        self.notifier.ready("Serving");
        loop {
            let now_ns = self.tape.tick();
            let worked = self.take_reports(now_ns) | self.serve(now_ns);
            if self.is_over() {
                break;
            }
            if worked {
                // The clock is read again: after a pass longer than the spin, the spin would otherwise be over before
                // it began.
                self.last_work_ns = self.tape.tick();
                if std::mem::take(&mut self.spinning) {
                    self.spin.found();
                }
                (self.trimmed, self.ledger_stale) = (false, true);
                if let Some(log) = &self.log {
                    log.wake();
                }
                if now_ns.saturating_sub(self.last_poll_ns) >= POLL_EVERY_NS {
                    self.poll(Some(Duration::ZERO))?;
                }
            } else if self.may_spin() && self.spins_on(now_ns) {
                self.spinning = true;
                if gt_shm::spin::pause(self.idle(now_ns)) {
                    self.leave_client(now_ns);
                }
            } else {
                if std::mem::take(&mut self.spinning) {
                    self.spin.found_nothing();
                }
                self.sleep()?;
            }
        }
        self.end();
        Ok(())
    }

    /// The time without work.
    #[inline]
    fn idle(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(now_ns.saturating_sub(self.last_work_ns))
    }

    #[inline]
    fn spins_on(&self, now_ns: u64) -> bool {
        self.idle(now_ns) < self.spin.look()
    }

    /// Moves this thread off the core on which a client spins for its answer: see [`gt_shm::cores`].
    fn leave_client(&mut self, now_ns: u64) {
        if now_ns < self.leaves_at_ns {
            return;
        }
        let here = gt_shm::cores::current();
        let spins_here = |slot: &usize| match self.connections.get_mut(*slot) {
            Some(Some(ControlConnection { session: Some(session), .. })) => session.port().spin_core() == Some(here),
            _ => false,
        };
        if !self.hot.iter().any(spins_here) {
            return;
        }
        self.leaves_at_ns = match gt_shm::cores::leave(here) {
            Ok(()) => now_ns.saturating_add(LEAVE_EVERY_NS),
            Err(error) => {
                tracing::warn!(%error, "the dispatcher may not choose its core: it may share one with a client");
                u64::MAX
            }
        };
    }

    /// True if spinning is worth a core: a session is hot, and no worker needs the core for its kernels.
    fn may_spin(&self) -> bool {
        !self.hot.is_empty() && self.ending.is_none() && !self.links.iter().any(|link| link.is_busy())
    }

    /// Sleeps until a descriptor wakes the dispatcher, unless work has come already.
    fn sleep(&mut self) -> std::io::Result<()> {
        let connections = &mut self.connections;
        let ending = self.ending.is_some();
        let mut ready = false;
        self.hot.retain(|slot| {
            let Some(Some(ControlConnection { session: Some(session), .. })) = connections.get_mut(*slot) else {
                return false;
            };
            // A session that waits for a full worker stays hot; the worker's next report wakes the dispatcher.
            if session.blocked || ending {
                return true;
            }
            session.asleep = session.port().prepare_sleep();
            ready |= !session.asleep;
            !session.asleep
        });
        if ready {
            return Ok(());
        }
        if let Some(log) = &self.log {
            // Without the fence, the log's thread could fall asleep just before this thread's last event is visible to
            // it.
            fence(SeqCst);
            log.wake();
        }
        let awake = self.links.iter_mut().any(|link| !link.prepare_sleep());
        if !awake {
            let timeout = self.timeout();
            self.poll(timeout)?;
            let now_ns = self.tape.tick();
            self.leave_client(now_ns);
        } else if self.tape.now_ns().saturating_sub(self.last_poll_ns) >= POLL_EVERY_NS {
            self.poll(Some(Duration::ZERO))?;
        }
        for link in &mut self.links {
            link.cancel_sleep();
        }
        Ok(())
    }

    /// The longest sleep; none if no deadline is set.
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let handshakes = self.connections.iter().flatten().filter_map(ControlConnection::deadline);
        let trim = (!self.trimmed).then(|| now + TRIM_AFTER);
        let look = self.links.iter().any(|link| link.is_busy()).then(|| now + CHECK_EVERY);
        // A stopped worker, or one that runs a long step, takes nothing more: clients are served meanwhile.
        let backlog = self.links.iter().any(|link| link.has_backlog()).then_some(now);
        let crowded = self.listening_paused.then(|| now + CROWDED_HANDSHAKE_DEADLINE);
        let ledger_stale = self.ledger.as_ref().filter(|_| self.ledger_stale).map(Ledger::due);
        let records = self.records.as_ref().and_then(|records| records.due(self.last_work_ns));
        let later = (self.control.has_paused() || self.lines.is_owing()).then_some(now);
        // Deadlines are checked at this interval, so waking earlier is of no use.
        let least = Duration::from_nanos(DUE_EVERY_NS);
        let due = handshakes
            .chain(self.ending)
            .chain(self.drains_at)
            .chain(self.notifier.due())
            .chain(trim)
            .chain(look)
            .chain(backlog)
            .chain(crowded)
            .chain(ledger_stale)
            .chain(records)
            .chain(later)
            .min()
            .map(|due| due.saturating_duration_since(now).max(least));
        if self.may_overtake_soon() { Some(OVERTAKING_LOOK_EVERY) } else { due }
    }

    /// Whether a session holds a light step, which a worker could run beside a heavy one of another session.
    fn may_overtake_soon(&self) -> bool {
        let connection = |slot: &usize| self.connections.get(*slot).and_then(Option::as_ref);
        let sessions = || self.hot.iter().filter_map(connection).filter_map(|c| c.session.as_ref());
        self.links
            .iter()
            .filter_map(|link| link.preempted())
            .any(|running| sessions().any(|session| session.slot() != running.owner && session.holds_light_step()))
    }

    fn poll(&mut self, timeout: Option<Duration>) -> std::io::Result<()> {
        self.last_poll_ns = self.tape.now_ns();
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        let timespec = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos() as i64 });
        let (events, _) = match epoll::wait(&self.epoll, &mut events, timespec.as_ref()) {
            Ok(events) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        let sources = events.iter().map(|event| WakeSource::of(event.data.u64()));
        // Doorbells come first, as they cost little and programs wait behind them.
        let is_bell =
            |source: &WakeSource| matches!(source, WakeSource::Doorbell(_) | WakeSource::Worker(_) | WakeSource::Relay);
        sources.clone().filter(is_bell).for_each(|source| self.handle(source));
        let mut others: Vec<WakeSource> = sources.filter(|source| !is_bell(source)).collect();
        if !others.is_empty() {
            // Each pass goes on where the last one ended, since `epoll` returns what was left in the same order.
            let first = self.events_handled % others.len();
            others.rotate_left(first);
            let begun = Instant::now();
            for source in others {
                self.events_handled = self.events_handled.wrapping_add(1);
                self.handle(source);
                if begun.elapsed() >= MESSAGES_MAX {
                    break;
                }
            }
        }
        self.run_periodic();
        Ok(())
    }

    fn handle(&mut self, source: WakeSource) {
        match source {
            WakeSource::Listener => self.accept(),
            WakeSource::Signal => self.handle_signals(),
            WakeSource::Reload => self.reloaded(),
            WakeSource::Tokens => self.tokens_changed(),
            WakeSource::Web => self.web_asks(),
            WakeSource::Records => self.records_read(),
            WakeSource::Worker(_) => {}
            WakeSource::Relay => {
                if let Some(relay) = &self.relay {
                    relay.borrow().silence();
                }
            }
            WakeSource::Doorbell(serial) => self.doorbell_rang(serial),
            WakeSource::Process(serial) => {
                if let Some(slot) = self.slot_of_serial.get(&serial) {
                    self.client_died(*slot, "its process has ended");
                }
            }
            WakeSource::Socket(serial) => {
                if let Some(slot) = self.slot_of_serial.get(&serial) {
                    self.read_message(*slot);
                }
            }
        }
    }

    fn doorbell_rang(&mut self, serial: u64) {
        let Some(&slot) = self.slot_of_serial.get(&serial) else { return };
        let Some(Some(ControlConnection { session: Some(session), .. })) = self.connections.get_mut(slot) else {
            return;
        };
        session.port().doorbell().silence();
        if session.asleep {
            session.asleep = false;
            session.port().cancel_sleep();
            session.last_work_ns = self.tape.now_ns();
            self.hot.push(slot);
        }
    }

    /// Periodic work: deadlines of handshakes, usage, checks of workers, the ledger, records, release of idle memory.
    fn run_periodic(&mut self) {
        let now_ns = self.tape.tick();
        if now_ns < self.next_due_ns {
            return;
        }
        self.next_due_ns = now_ns + DUE_EVERY_NS;
        let now = Instant::now();
        self.notifier.alive(now);
        self.drain_when_due(now);
        let late = |c: &ControlConnection| c.deadline().is_some_and(|deadline| deadline <= now);
        let slots: Vec<usize> = self.connections.iter().flatten().filter(|c| late(c)).map(|c| c.slot).collect();
        for slot in slots {
            self.disconnect(slot, "it did not say hello in time");
        }
        if self.listening_paused {
            self.drop_slow_handshakes(now);
            // Descriptors of connections that have ended may be free again.
            self.pause_listening(false);
        }
        self.keep_spare();
        self.read_paused(now);
        self.lines.tell(now);
        let sessions = self.connections.iter().flatten().filter_map(|c| c.session.as_ref());
        let active = sessions.filter(|session| now_ns.saturating_sub(session.last_work_ns) < ACTIVE_WITHIN_NS).count();
        self.queue_limit = if active > 1 { QueueLimit::SHARED } else { QueueLimit::SOLE };
        if now_ns - self.usage_updated_ns >= USAGE_UPDATED_EVERY_NS {
            self.update_usage(now_ns);
        }
        if now_ns - self.checked_ns >= CHECK_EVERY.as_nanos() as u64 {
            self.checked_ns = now_ns;
            for link in &mut self.links {
                link.check_life();
            }
        }
        if let Some(ledger) = self.ledger.as_mut().filter(|ledger| self.ledger_stale && ledger.due() <= now) {
            ledger.write_soon(self.queue.usage());
            self.ledger_stale = false;
        }
        self.write_open_records(now, now_ns);
        self.trim_when_due(now, now_ns);
    }

    /// Releases memory that is only kept for reuse: all of it when the daemon is idle, and that of the daemon's own
    /// process when many tensors were freed although others have work.
    fn trim_when_due(&mut self, now: Instant, now_ns: u64) {
        let sessions = self.connections.iter().flatten().filter_map(|c| c.session.as_ref());
        let records = sessions.map(Session::records).sum();
        let is_due = self.trim_schedule.is_due(records, now);
        let is_idle = Duration::from_nanos(now_ns.saturating_sub(self.last_work_ns)) >= TRIM_AFTER && !self.trimmed;
        if !is_due && !is_idle {
            return;
        }
        self.trimmed |= is_idle;
        self.trim_schedule.trimmed(records, now);
        // A worker in another process keeps its memory while it is busy: a device would have to prepare its work again.
        for link in self.links.iter_mut().filter(|link| is_idle || link.is_thread()) {
            link.trim();
        }
        for session in self.connections.iter_mut().flatten().filter_map(|c| c.session.as_mut()) {
            session.trim();
        }
        self.janitor.trim_heap();
        let ms = now.elapsed().as_millis() as u64;
        tracing::debug!(target: "gtd::dispatcher", records, ms, "freed memory was given back to the system");
    }

    /// Updates usage and shares.
    fn update_usage(&mut self, now_ns: u64) {
        let elapsed = Duration::from_nanos(now_ns - std::mem::replace(&mut self.usage_updated_ns, now_ns));
        self.queue.tick(elapsed);
        for session in self.connections.iter_mut().flatten().filter_map(|c| c.session.as_mut()) {
            session.share.tick(elapsed);
        }
    }

    fn handle_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == libc::SIGHUP as u32 && self.reload.is_some() {
                self.begin_reload(None);
                continue;
            }
            tracing::info!(target: "gtd::dispatcher", "signal {}: the daemon ends", signal.ssi_signo);
            if self.ending.is_none() {
                self.notifier.stopping();
                self.ending = Some(Instant::now() + DRAIN_DEADLINE);
                self.stop_listening();
                // The sessions' clients read this once they see the new state.
                self.tell_sessions_of_the_stop(signal.ssi_signo);
                for session in self.connections.iter_mut().flatten().filter_map(|c| c.session.as_mut()) {
                    session.set_state(SessionState::Draining);
                }
            }
        }
    }

    fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.unwatch(listener.as_fd());
        }
    }

    /// True when the daemon may end: there is no client that it must wait for, or the deadline has passed.
    fn is_over(&self) -> bool {
        if self.private && self.slot_of_serial.is_empty() {
            return true;
        }
        if self.draining && !self.connections.iter().flatten().any(|c| c.session.is_some()) {
            return true;
        }
        self.ending.is_some_and(|deadline| {
            let draining = |c: &ControlConnection| c.session.as_ref().is_some_and(Session::is_draining);
            !self.connections.iter().flatten().any(draining) || Instant::now() >= deadline
        })
    }

    fn end(&mut self) {
        self.stop_listening();
        if let Some(nodes) = &self.nodes {
            nodes.begin_to_close();
        }
        let by_tcp = self.connections.iter().flatten().filter(|c| self.ending.is_some() && c.is_by_tcp());
        let forwarders: Vec<Socket> =
            by_tcp.filter_map(|c| Some(Socket::from(c.socket.as_fd().try_clone_to_owned().ok()?))).collect();
        for slot in 0..self.connections.len() {
            self.disconnect(slot, "the daemon is ending");
        }
        if let Some(ledger) = self.ledger.take() {
            ledger.close(self.queue.usage());
        }
        if let Some(records) = self.records.take() {
            records.close();
        }
        for link in &mut self.links {
            link.stop(STOP_PATIENCE);
        }
        if let Some(log) = self.log.take() {
            log.finish();
        }
        // The threads of TCP connections, which end with the process, hang up once they have passed on the reason.
        let deadline = Instant::now() + FORWARD_DEADLINE;
        while forwarders.iter().any(|socket| !socket.is_hung_up()) && Instant::now() < deadline {
            std::thread::sleep(FORWARD_LOOK_EVERY);
        }
    }
}

/// The id of the system's group of administrators, if there is one. Its members may ask of the daemon what root may.
fn administrators_group() -> Option<u32> {
    nix::unistd::Group::from_name(ADMINISTRATORS).ok().flatten().map(|group| group.gid.as_raw())
}

/// A descriptor that is closed when there is no other, so that one more connection can be accepted and told why it is
/// refused.
fn spare_descriptor() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

/// The workers' names, by number.
fn worker_names(links: &mut [Box<dyn WorkerLink>]) -> Vec<String> {
    links.iter_mut().map(|link| link.info().name).collect()
}
