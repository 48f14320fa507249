//! The dispatcher: one thread, the only writer of all session state.
//!
//! Sessions whose rings were used lately are *hot*: the dispatcher looks at them in turn. The others are *cold*: their
//! doorbells wake it. It spins only for moments, and sleeps in `epoll` when no hot ring has work.

use crate::connection::{Connection, Step as Greeting};
use crate::janitor::Janitor;
use crate::log::InstructionLog;
use crate::modifiers::Pipeline;
use crate::session::{Context, Session, Violation};
use crate::spin::Spin;
use crate::tape::Tape;
use crate::worker::{Stream, WorkerLink};
use gt_ops::infer::InputMeta;
use gt_ops::text::{Event, EventKind, NO_WORKER, Subject};
use gt_protocol::limits::ARENA_BYTES_PER_SESSION_MAX;
use gt_protocol::limits::{
    CQ_SLOTS, HANDSHAKE_DEADLINE, HANDSHAKES_MAX, SESSIONS_MAX, SESSIONS_PER_UID_MAX, SQ_SLOTS, TAPE_RECORDS,
};
use gt_protocol::{
    ClientMessage, DaemonMessage, Hello, PROTOCOL_VERSION, RefusalCode, Refused, Role, SessionGrant, StatusDocument,
    Welcome,
};
use gt_shm::{DaemonPort, SessionState, Socket};
use nix::sys::signalfd::SignalFd;
use rustix::event::{Timespec, epoll};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::{Duration, Instant};

/// A session's share of a round, estimated nanoseconds.
const QUANTUM_NS: i64 = 50_000;
/// How often descriptors are looked at while rings are busy, nanoseconds.
const POLL_EVERY_NS: u64 = 200_000;
/// A session without work for so long goes cold even while others are busy, nanoseconds.
const HOT_NS_MAX: u64 = 2_000_000;
/// A daemon without work for so long gives kept memory back.
const TRIM_AFTER: Duration = Duration::from_secs(5);
/// At the end, what is queued may take so long; then the process ends all the same.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);
/// Nobody waits any more for what a worker still does then; the process ends soon.
const STOP_PATIENCE: Duration = Duration::from_millis(500);
/// Connections taken in at one time.
const ACCEPTS_MAX: usize = 16;
/// Descriptors that one look can report.
const EVENTS_MAX: usize = 64;

/// How often the deadlines of greetings and the like are looked at, nanoseconds.
const DUE_EVERY_NS: u64 = 20_000_000;
/// Connections of one user that only observe or ask,
const OBSERVERS_PER_UID_MAX: u32 = 32;
/// and of all users.
const OBSERVERS_MAX: u32 = 256;

/// What woke the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Listener,
    Signal,
    Worker(usize),
    Socket(u64),
    Process(u64),
    Doorbell(u64),
}

impl Source {
    fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Source::Listener => 0,
            Source::Signal => 1,
            Source::Worker(index) => 2 | (index as u64) << 3,
            Source::Socket(serial) => 3 | serial << 3,
            Source::Process(serial) => 4 | serial << 3,
            Source::Doorbell(serial) => 5 | serial << 3,
        })
    }

    fn of(data: u64) -> Source {
        let number = data >> 3;
        match data & 7 {
            0 => Source::Listener,
            1 => Source::Signal,
            2 => Source::Worker(number as usize),
            3 => Source::Socket(number),
            4 => Source::Process(number),
            _ => Source::Doorbell(number),
        }
    }
}

/// What the dispatcher is made with.
pub struct Parts {
    /// Where clients connect; none if they cannot.
    pub listener: Option<Socket>,
    /// A client that is connected already: the daemon is its, and ends with its last client.
    pub client: Option<Socket>,
    /// SIGTERM and SIGINT.
    pub signals: SignalFd,
    /// The workers.
    pub links: Vec<Box<dyn WorkerLink>>,
    /// What rewrites the stream.
    pub pipeline: Pipeline,
    /// The tape.
    pub tape: Tape,
    /// Its reader, if there is one.
    pub log: Option<InstructionLog>,
}

/// The daemon's one thread that serves clients.
pub struct Dispatcher {
    epoll: OwnedFd,
    listener: Option<Socket>,
    listening_paused: bool,
    signals: SignalFd,
    links: Vec<Box<dyn WorkerLink>>,
    pipeline: Pipeline,
    tape: Tape,
    log: Option<InstructionLog>,
    janitor: Janitor,
    /// By place, which is also the place of the session's tensors at its worker.
    connections: Vec<Option<Connection>>,
    places: HashMap<u64, usize>,
    /// Places of sessions that are looked at.
    hot: Vec<usize>,
    next_serial: u64,
    metas: Vec<InputMeta>,
    /// Ends with its last client.
    private: bool,
    /// Set by a signal: nothing new is taken in, and when everything queued is done, or by then, the daemon ends.
    ending: Option<Instant>,
    spin: Spin,
    /// True while the last passes found nothing to do.
    looking: bool,
    last_poll_ns: u64,
    last_work_ns: u64,
    next_due_ns: u64,
    trimmed: bool,
    start: Instant,
}

impl Dispatcher {
    /// A dispatcher that has not started.
    ///
    /// # Errors
    /// If the kernel refuses a descriptor.
    pub fn new(parts: Parts) -> std::io::Result<Dispatcher> {
        let Parts { listener, client, signals, links, pipeline, tape, log } = parts;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut dispatcher = Dispatcher {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            listener,
            listening_paused: false,
            signals,
            links,
            pipeline,
            tape,
            log,
            janitor: Janitor::start()?,
            connections: Vec::new(),
            places: HashMap::new(),
            hot: Vec::new(),
            next_serial: 1,
            metas: Vec::new(),
            private: client.is_some(),
            ending: None,
            spin: Spin::new(cores),
            looking: false,
            last_poll_ns: 0,
            last_work_ns: 0,
            next_due_ns: 0,
            trimmed: true,
            start: Instant::now(),
        };
        if let Some(listener) = &dispatcher.listener {
            listener.set_nonblocking(true).map_err(std::io::Error::other)?;
            dispatcher.watch(listener.as_fd(), Source::Listener)?;
        }
        dispatcher.watch(dispatcher.signals.as_fd(), Source::Signal)?;
        for (index, link) in dispatcher.links.iter().enumerate() {
            dispatcher.watch(link.bell(), Source::Worker(index))?;
        }
        if let Some(client) = client {
            dispatcher.greet(client);
        }
        Ok(dispatcher)
    }

    fn watch(&self, fd: BorrowedFd<'_>, source: Source) -> std::io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, source.data(), epoll::EventFlags::IN | epoll::EventFlags::RDHUP)?)
    }

    /// Forgets a descriptor. Closing it is not enough where the client holds a copy of it.
    fn unwatch(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Serves until a signal, or until the last client of a private daemon has gone.
    ///
    /// # Errors
    /// If the kernel refuses to wait.
    pub fn run(mut self) -> std::io::Result<()> {
        loop {
            let now_ns = self.tape.tick();
            let worked = self.take_reports() | self.serve(now_ns);
            if self.is_over() {
                break;
            }
            if worked {
                self.last_work_ns = self.tape.now_ns();
                if std::mem::take(&mut self.looking) {
                    self.spin.found();
                }
                self.trimmed = false;
                if let Some(log) = &self.log {
                    log.wake();
                }
                if now_ns.saturating_sub(self.last_poll_ns) >= POLL_EVERY_NS {
                    self.poll(Some(Duration::ZERO))?;
                }
            } else if self.may_spin() && now_ns.saturating_sub(self.last_work_ns) < self.spin.look_ns() {
                self.looking = true;
                std::hint::spin_loop();
            } else {
                if std::mem::take(&mut self.looking) {
                    self.spin.found_nothing();
                }
                self.sleep()?;
            }
        }
        self.end();
        Ok(())
    }

    /// A spinning dispatcher takes a core from the kernels.
    fn may_spin(&self) -> bool {
        !self.hot.is_empty() && self.ending.is_none() && !self.links.iter().any(|link| link.is_busy())
    }

    // ---------------------------------------------------------------------------------- rings

    /// Hands what workers have done to their sessions. True if there was something.
    fn take_reports(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.links.len() {
            if !self.links[index].is_busy() {
                continue;
            }
            while let Some(report) = self.links[index].next_report() {
                any = true;
                let place = report.stream.place as usize;
                let Some(Some(connection)) = self.connections.get_mut(place) else { continue };
                if connection.serial != report.stream.session {
                    continue;
                }
                let Some(session) = &mut connection.session else { continue };
                let ended = session.reported(&report, &mut self.tape);
                if let Err(violation) = ended {
                    self.violated(place, &violation);
                }
            }
        }
        any
    }

    /// One round over the hot sessions. True if any of them had something.
    fn serve(&mut self, now_ns: u64) -> bool {
        if self.ending.is_some() {
            return false;
        }
        let mut any = false;
        let mut starved = false;
        let mut index = 0;
        while index < self.hot.len() {
            let place = self.hot[index];
            index += 1;
            let Some(Some(connection)) = self.connections.get_mut(place) else { continue };
            let Some(session) = &mut connection.session else { continue };
            if !session.has_work() {
                // An idle session saves nothing up.
                session.deficit_ns = session.deficit_ns.min(0);
                continue;
            }
            session.deficit_ns = (session.deficit_ns + QUANTUM_NS).min(QUANTUM_NS);
            let link = &mut *self.links[session.worker() as usize];
            let mut context =
                Context { link, pipeline: &mut self.pipeline, tape: &mut self.tape, metas: &mut self.metas };
            match session.visit(&mut context) {
                Ok(served) => {
                    any |= served | session.spent;
                    starved |= session.spent;
                }
                Err(violation) => {
                    any = true;
                    self.violated(place, &violation);
                }
            }
        }
        if any {
            for link in &mut self.links {
                link.flush();
            }
        }
        if starved {
            self.forgive();
        }
        if any || now_ns.saturating_sub(self.last_poll_ns) >= HOT_NS_MAX {
            self.cool(now_ns);
        }
        any
    }

    /// Where every session with work is in debt, all debts shrink at once by as many rounds as the smallest needs.
    fn forgive(&mut self) {
        let debts = self.hot.iter().filter_map(|place| {
            let session = self.connections.get(*place)?.as_ref()?.session.as_ref()?;
            (session.has_work() && !session.blocked).then_some(-session.deficit_ns)
        });
        let Some(least) = debts.min().filter(|least| *least > 0) else { return };
        for place in &self.hot {
            if let Some(Some(connection)) = self.connections.get_mut(*place)
                && let Some(session) = &mut connection.session
                && session.deficit_ns < 0
            {
                session.deficit_ns += least.min(-session.deficit_ns);
            }
        }
    }

    /// Sessions that have long been without work go cold.
    fn cool(&mut self, now_ns: u64) {
        let connections = &mut self.connections;
        self.hot.retain(|place| {
            let Some(Some(Connection { session: Some(session), .. })) = connections.get_mut(*place) else {
                return false;
            };
            if session.has_work() || now_ns.saturating_sub(session.last_work_ns) < HOT_NS_MAX {
                return true;
            }
            session.asleep = session.port().prepare_sleep();
            !session.asleep
        });
    }

    /// Sleeps until something happens, unless something has.
    fn sleep(&mut self) -> std::io::Result<()> {
        let connections = &mut self.connections;
        let ending = self.ending.is_some();
        let mut ready = false;
        self.hot.retain(|place| {
            let Some(Some(Connection { session: Some(session), .. })) = connections.get_mut(*place) else {
                return false;
            };
            // What waits for a full worker is looked at again after the worker's next report.
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
            // Or the log's thread, falling asleep, and this one could both look too early.
            fence(SeqCst);
            log.wake();
        }
        let awake = self.links.iter_mut().any(|link| !link.prepare_sleep());
        if !awake {
            let timeout = self.timeout();
            self.poll(timeout)?;
            self.tape.tick();
        }
        for link in &mut self.links {
            link.cancel_sleep();
        }
        Ok(())
    }

    /// How long to sleep at most; for ever if nothing is due.
    fn timeout(&self) -> Option<Duration> {
        let now = Instant::now();
        let greetings = self.connections.iter().flatten().filter_map(Connection::deadline);
        let trim = (!self.trimmed).then(|| now + TRIM_AFTER);
        // What is due is looked at every so often, so there is no use in waking earlier.
        let least = Duration::from_nanos(DUE_EVERY_NS);
        greetings.chain(self.ending).chain(trim).min().map(|due| due.saturating_duration_since(now).max(least))
    }

    // ---------------------------------------------------------------------------- descriptors

    fn poll(&mut self, timeout: Option<Duration>) -> std::io::Result<()> {
        self.last_poll_ns = self.tape.now_ns();
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        let timespec = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: t.subsec_nanos() as i64 });
        let (events, _) = match epoll::wait(&self.epoll, &mut events, timespec.as_ref()) {
            Ok(events) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        for event in events.iter() {
            self.handle(Source::of(event.data.u64()));
        }
        self.overdue();
        Ok(())
    }

    fn handle(&mut self, source: Source) {
        match source {
            Source::Listener => self.accept(),
            Source::Signal => self.signalled(),
            Source::Worker(_) => {}
            Source::Doorbell(serial) => self.rung(serial),
            Source::Process(serial) => {
                if let Some(place) = self.places.get(&serial) {
                    self.disconnect(*place, "its process has ended");
                }
            }
            Source::Socket(serial) => {
                if let Some(place) = self.places.get(&serial) {
                    self.talk(*place);
                }
            }
        }
    }

    fn rung(&mut self, serial: u64) {
        let Some(&place) = self.places.get(&serial) else { return };
        let Some(Some(Connection { session: Some(session), .. })) = self.connections.get_mut(place) else { return };
        session.port().doorbell().silence();
        if session.asleep {
            session.asleep = false;
            session.port().cancel_sleep();
            session.last_work_ns = self.tape.now_ns();
            self.hot.push(place);
        }
    }

    /// Greetings that took too long, and memory that nobody has needed for a while.
    fn overdue(&mut self) {
        let now_ns = self.tape.tick();
        if now_ns < self.next_due_ns {
            return;
        }
        self.next_due_ns = now_ns + DUE_EVERY_NS;
        let now = Instant::now();
        let late = |c: &Connection| c.deadline().is_some_and(|deadline| deadline <= now);
        let places: Vec<usize> = self.connections.iter().flatten().filter(|c| late(c)).map(|c| c.place).collect();
        for place in places {
            self.disconnect(place, "it did not say hello in time");
        }
        let idle = Duration::from_nanos(now_ns.saturating_sub(self.last_work_ns));
        if !self.trimmed && idle >= TRIM_AFTER {
            self.trimmed = true;
            for link in &mut self.links {
                link.trim();
            }
            for session in self.connections.iter_mut().flatten().filter_map(|c| c.session.as_mut()) {
                session.trim();
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            if self.connections.iter().flatten().filter(|c| c.is_greeting()).count() >= HANDSHAKES_MAX as usize {
                // The others wait in the listener's queue until some of these have said hello, or have failed to.
                return self.pause_listening(true);
            }
            match self.listener.as_ref().map(Socket::accept) {
                Some(Ok(Some(socket))) => self.greet(socket),
                Some(Err(error)) => {
                    tracing::warn!(target: "gtd::dispatcher", %error, "a connection could not be accepted");
                    // Nothing is accepted until a descriptor is free again; do not ask in a loop.
                    std::thread::sleep(Duration::from_millis(1));
                    return;
                }
                _ => return,
            }
        }
    }

    /// Takes a connection in, whose hello is still to come.
    fn greet(&mut self, socket: Socket) {
        let peer = match socket.peer_credentials() {
            Ok(peer) => peer,
            Err(error) => return tracing::warn!(target: "gtd::dispatcher", %error, "a connection without a peer"),
        };
        if self.private && peer.uid != rustix::process::getuid().as_raw() {
            return tracing::warn!(target: "gtd::dispatcher", uid = peer.uid, "another user's connection was dropped");
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        let place = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        let pidfd = socket.peer_pidfd().ok();
        let deadline = Instant::now() + HANDSHAKE_DEADLINE;
        let connection = Connection::new(serial, place, socket, pidfd, peer, deadline);
        let watched = self.watch(connection.socket.as_fd(), Source::Socket(serial)).and_then(|()| {
            connection.pidfd.as_ref().map_or(Ok(()), |fd| self.watch(fd.as_fd(), Source::Process(serial)))
        });
        if let Err(error) = watched {
            return tracing::warn!(target: "gtd::dispatcher", %error, "a connection could not be watched");
        }
        if place == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[place] = Some(connection);
        self.places.insert(serial, place);
    }

    /// Reads what a connection has to say.
    fn talk(&mut self, place: usize) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        match connection.listen() {
            Greeting::Nothing => {}
            Greeting::Gone(why) => self.disconnect(place, &why),
            Greeting::Refuse(refused, why) => {
                self.answer(place, &DaemonMessage::Refused(refused), &[]);
                self.disconnect(place, &why);
            }
            Greeting::Hello(hello) => {
                self.pause_listening(false);
                self.welcome(place, &hello);
            }
            Greeting::Asks(message) => self.asked(place, message),
        }
    }

    fn answer(&mut self, place: usize, message: &DaemonMessage, fds: &[BorrowedFd<'_>]) {
        let Some(Some(connection)) = self.connections.get(place) else { return };
        if let Err(error) = gt_protocol::send_daemon_message(&connection.socket, message, fds, Duration::ZERO) {
            self.disconnect(place, &format!("it does not take answers: {error}"));
        }
    }

    fn welcome(&mut self, place: usize, hello: &Hello) {
        if self.ending.is_some() {
            let refused = Refused::new(RefusalCode::ShuttingDown, "the daemon is ending");
            self.answer(place, &DaemonMessage::Refused(refused), &[]);
            return self.disconnect(place, "the daemon is ending");
        }
        if let Some(refused) = self.limit_reached(place, hello.role) {
            self.answer(place, &DaemonMessage::Refused(refused), &[]);
            return self.disconnect(place, "as many connections as may be are there");
        }
        let mut welcome = Welcome {
            protocol_version: PROTOCOL_VERSION,
            daemon_version: env!("CARGO_PKG_VERSION").into(),
            daemon_pid: std::process::id(),
            session: None,
            workers: self.links.iter_mut().map(|link| link.info()).collect(),
        };
        if hello.role != Role::Client {
            return self.answer(place, &DaemonMessage::Welcome(welcome), &[]);
        }
        let (port, fds) = match DaemonPort::create(SQ_SLOTS, CQ_SLOTS) {
            Ok(made) => made,
            Err(error) => {
                let refused = Refused::new(RefusalCode::Exhausted, format!("no memory for a session: {error}"));
                self.answer(place, &DaemonMessage::Refused(refused), &[]);
                return self.disconnect(place, "the system has no memory for its session");
            }
        };
        let Some(serial) = self.connections[place].as_ref().map(|connection| connection.serial) else { return };
        if let Err(error) = self.watch(port.doorbell().as_fd(), Source::Doorbell(serial)) {
            return self.disconnect(place, &format!("its doorbell cannot be watched: {error}"));
        }
        welcome.session = Some(SessionGrant {
            session_id: serial,
            sq_slots: SQ_SLOTS,
            cq_slots: CQ_SLOTS,
            arena_bytes_max: ARENA_BYTES_PER_SESSION_MAX,
        });
        let worker = self.least_used_worker();
        let stream = Stream { session: serial, place: place as u32 };
        let mut session = Session::new(stream, worker, port, &mut *self.links[worker as usize]);
        session.last_work_ns = self.tape.now_ns();
        if let Some(connection) = &mut self.connections[place] {
            tracing::info!(
                target: "gtd::dispatcher",
                session = serial, pid = connection.peer.pid, uid = connection.peer.uid, name = ?hello.name, "connected"
            );
            connection.session = Some(session);
        }
        self.tape_connection(serial, EventKind::Connect);
        self.hot.push(place);
        self.answer(place, &DaemonMessage::Welcome(welcome), &fds.as_array());
    }

    /// The refusal of one more connection for `role`, if there are as many as may be.
    fn limit_reached(&self, place: usize, role: Role) -> Option<Refused> {
        let uid = self.connections.get(place)?.as_ref()?.peer.uid;
        let of_role =
            |c: &&Connection| c.place != place && !c.is_greeting() && c.session.is_some() == (role == Role::Client);
        let all = self.connections.iter().flatten().filter(of_role).count() as u64;
        let own = self.connections.iter().flatten().filter(of_role).filter(|c| c.peer.uid == uid).count() as u64;
        let limits = match role {
            Role::Client => [(own, SESSIONS_PER_UID_MAX, "sessions of this user"), (all, SESSIONS_MAX, "sessions")],
            _ => [(own, OBSERVERS_PER_UID_MAX, "observers of this user"), (all, OBSERVERS_MAX, "observers")],
        };
        let (held, limit, what) = limits.into_iter().find(|(held, limit, _)| *held >= *limit as u64)?;
        let text = format!("{held} {what} are open and no more are allowed: close some, or try again later");
        Some(Refused::new(RefusalCode::TooManySessions, text).with_limit(held, limit as u64))
    }

    fn tape_connection(&mut self, session: u64, kind: EventKind) {
        let subject = Subject::Nothing;
        let (time_ns, worker, bytes) = (0, NO_WORKER, 0);
        self.tape.write(Event { time_ns, kind, subject, worker, session, bytes, result: 0, left: 0, right: 0 });
        if let Some(log) = &self.log {
            log.wake();
        }
    }

    fn least_used_worker(&self) -> u16 {
        let mut sessions = vec![0u32; self.links.len()];
        for session in self.connections.iter().flatten().filter_map(|connection| connection.session.as_ref()) {
            sessions[session.worker() as usize] += 1;
        }
        sessions.iter().enumerate().min_by_key(|(_, sessions)| **sessions).map_or(0, |(worker, _)| worker as u16)
    }

    fn asked(&mut self, place: usize, message: ClientMessage) {
        let Some(Some(connection)) = self.connections.get_mut(place) else { return };
        match message {
            ClientMessage::GrowArena { bytes } => {
                let granted = match &mut connection.session {
                    Some(session) => session.grow_arena(bytes, &mut *self.links[session.worker() as usize]),
                    None => Err(Refused::new(RefusalCode::NotPermitted, "only a client's session has arenas")),
                };
                match granted {
                    Ok((segment, bytes, fd)) => {
                        self.answer(place, &DaemonMessage::ArenaGranted { segment, bytes }, &[fd.as_fd()]);
                    }
                    Err(refused) => self.answer(place, &DaemonMessage::Refused(refused), &[]),
                }
            }
            ClientMessage::Status { after } => {
                let status = self.status().page(after);
                self.answer(place, &DaemonMessage::Status(status), &[]);
            }
            ClientMessage::TapeAttach => {
                let owner = rustix::process::getuid().as_raw();
                if connection.peer.uid != owner && connection.peer.uid != 0 {
                    let text = "the tape shows every session: only the daemon's user and root may read it";
                    let refused = Refused::new(RefusalCode::NotPermitted, text);
                    return self.answer(place, &DaemonMessage::Refused(refused), &[]);
                }
                match self.tape.fd().try_clone_to_owned() {
                    Ok(fd) => self.answer(place, &DaemonMessage::Tape { records: TAPE_RECORDS }, &[fd.as_fd()]),
                    Err(error) => {
                        let refused = Refused::new(RefusalCode::Exhausted, format!("no descriptor: {error}"));
                        self.answer(place, &DaemonMessage::Refused(refused), &[]);
                    }
                }
            }
            ClientMessage::ErrorDetail { error } => {
                let text = format!("error {error} has no more words than its completion; see the daemon's log");
                self.answer(place, &DaemonMessage::Refused(Refused::new(RefusalCode::Other, text)), &[]);
            }
            ClientMessage::Bye => self.disconnect(place, "it said goodbye"),
            ClientMessage::Hello(_) => self.disconnect(place, "it said hello twice"),
        }
    }

    fn status(&mut self) -> StatusDocument {
        StatusDocument {
            daemon_version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.start.elapsed().as_secs_f64(),
            workers: self.links.iter_mut().map(|link| link.info()).collect(),
            sessions: self.connections.iter().flatten().filter_map(Connection::status).collect(),
            more: false,
        }
    }

    // ------------------------------------------------------------------------------------ ends

    fn violated(&mut self, place: usize, violation: &Violation) {
        if let Some(Some(connection)) = self.connections.get(place) {
            let (session, pid, uid) = (connection.serial, connection.peer.pid, connection.peer.uid);
            tracing::warn!(target: "gtd::dispatcher", session, pid, uid, "a client was disconnected: {violation}");
        }
        self.disconnect(place, "it broke the rules");
    }

    /// Ends a connection and its session, and frees all it had.
    fn disconnect(&mut self, place: usize, why: &str) {
        let Some(mut connection) = self.connections.get_mut(place).and_then(Option::take) else { return };
        let serial = connection.serial;
        self.places.remove(&serial);
        self.pause_listening(false);
        self.unwatch(connection.socket.as_fd());
        if let Some(pidfd) = &connection.pidfd {
            self.unwatch(pidfd.as_fd());
        }
        if let Some(mut session) = connection.session.take() {
            tracing::info!(target: "gtd::dispatcher", session = serial, why, "disconnected");
            self.unwatch(session.port().doorbell().as_fd());
            session.set_state(SessionState::Closed);
            self.hot.retain(|hot| *hot != place);
            self.links[session.worker() as usize].close(session.stream());
            self.tape_connection(serial, EventKind::Disconnect);
            // A table of a million tensors takes its time to go.
            self.janitor.dispose(session);
        } else {
            tracing::debug!(target: "gtd::dispatcher", connection = serial, why, "closed");
        }
    }

    fn signalled(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            tracing::info!(target: "gtd::dispatcher", signal = signal.ssi_signo, "ending");
            if self.ending.is_none() {
                self.ending = Some(Instant::now() + DRAIN_DEADLINE);
                self.stop_listening();
                for session in self.connections.iter_mut().flatten().filter_map(|c| c.session.as_mut()) {
                    session.set_state(SessionState::Draining);
                }
            }
        }
    }

    fn pause_listening(&mut self, pause: bool) {
        let Some(listener) = self.listener.as_ref().filter(|_| self.listening_paused != pause) else { return };
        self.listening_paused = pause;
        let flags = if pause { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        let _ = epoll::modify(&self.epoll, listener.as_fd(), Source::Listener.data(), flags);
    }

    fn stop_listening(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.unwatch(listener.as_fd());
        }
    }

    /// True when there is nothing left to serve.
    fn is_over(&self) -> bool {
        if self.private && self.places.is_empty() {
            return true;
        }
        self.ending.is_some_and(|deadline| {
            let draining = |c: &Connection| c.session.as_ref().is_some_and(Session::is_draining);
            !self.connections.iter().flatten().any(draining) || Instant::now() >= deadline
        })
    }

    fn end(&mut self) {
        self.stop_listening();
        for place in 0..self.connections.len() {
            self.disconnect(place, "the daemon is ending");
        }
        for link in &mut self.links {
            link.stop(STOP_PATIENCE);
        }
        if let Some(log) = self.log.take() {
            log.finish();
        }
    }
}
