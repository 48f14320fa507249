//! Connections: handshakes, requests and disconnections.

use super::{CROWDED_HANDSHAKE_DEADLINE, Dispatcher, WakeSource, spare_descriptor, worker_names};
use crate::account::ArenaRoom;
use crate::control_budget::thread_time;
use crate::control_connection::{ControlConnection, ReceivedMessage};
use crate::descriptors::{Descriptors, OF_SESSION};
use crate::modifiers::stream_modifier::MODIFIER_ID_MIN;
use crate::session::Session;
use crate::session::violation::Violation;
use crate::worker::step::SessionSlot;
use gt_ops::Workers;
use gt_ops::event::{Event, EventKind, NO_WORKER, Subject};
use gt_protocol::address::VISIBLE_DEVICES_ENV;
use gt_protocol::limits::{
    CQ_SLOTS, HANDSHAKE_DEADLINE, HANDSHAKES_MAX, HANDSHAKES_PER_UID_MAX, SESSIONS_MAX, SESSIONS_RESERVED, SQ_SLOTS,
    TAPE_RECORDS,
};
use gt_protocol::{
    ClientMessage, DaemonMessage, DeviceSet, Hello, PROTOCOL_VERSION, RefusalCode, Refused, Role, SessionGrant,
    StatusDocument, Welcome, WorkerTraffic,
};
use gt_shm::{DaemonPort, SessionState, Socket};
use gt_tape::recording::DeadParty;
use rustix::event::epoll;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections accepted in one pass.
const ACCEPTS_MAX: usize = 16;
/// Connections of one user without a session: observers and `gtctl`.
const OBSERVERS_PER_UID_MAX: u32 = 32;
/// Connections of all users without a session.
const OBSERVERS_MAX: u32 = 256;
/// Connections without a session, of [`OBSERVERS_MAX`], that only administrators can open.
const OBSERVERS_RESERVED: u32 = 32;

/// Tensors in one answer, which takes at most 60 KiB.
const TENSORS_LISTED_MAX: usize = 512;
/// Operations of all workers in one answer, which takes at most 48 KiB.
const OPERATIONS_MAX: usize = 512;

fn no_session() -> Refused {
    Refused::new(RefusalCode::NotPermitted, "only a client has a session to ask about")
}

impl Dispatcher {
    pub(super) fn accept(&mut self) {
        let handshakes_max = Descriptors::now(&self.epoll).handshakes_max(HANDSHAKES_MAX.into()) as usize;
        for _ in 0..ACCEPTS_MAX {
            if self.connections.iter().flatten().filter(|c| c.awaits_hello()).count() >= handshakes_max {
                // Further connections wait in the listener's queue until some of these handshakes end.
                return self.pause_listening(true);
            }
            match self.listener.as_ref().map(Socket::accept) {
                Some(Ok(Some(socket))) => self.add_connection(socket),
                // Most likely no descriptor is left: with the spare one, the connection can be told so.
                Some(Err(error)) if self.spare.take().is_some() => {
                    tracing::warn!(target: "gtd::dispatcher", %error, "the last connection that can be taken in");
                }
                Some(Err(error)) => {
                    tracing::debug!(target: "gtd::dispatcher", %error, "a connection could not be accepted");
                    // The listener is paused until the next periodic work or disconnection, since it would wake the
                    // loop all the time.
                    return self.pause_listening(true);
                }
                _ => return,
            }
        }
    }

    /// Opens a new spare descriptor, if there is none and one is free.
    pub(super) fn keep_spare(&mut self) {
        if self.spare.is_none() {
            self.spare = spare_descriptor();
        }
    }

    /// Adds a connection whose hello is still to come.
    pub(super) fn add_connection(&mut self, socket: Socket) {
        let peer = match socket.peer_credentials() {
            Ok(peer) => peer,
            Err(error) => return tracing::warn!(target: "gtd::dispatcher", %error, "a connection without a peer"),
        };
        if self.private && peer.uid != rustix::process::getuid().as_raw() {
            return tracing::warn!(target: "gtd::dispatcher", uid = peer.uid, "another user's connection was dropped");
        }
        self.make_room_for_handshake(peer.uid, peer.pid);
        let serial = self.next_serial;
        self.next_serial += 1;
        let slot = self.free_slot();
        let pidfd = socket.peer_pidfd().ok();
        let deadline = Instant::now() + HANDSHAKE_DEADLINE;
        let connection = ControlConnection::new(serial, slot, socket, pidfd, peer, deadline);
        let watched = self.watch(connection.socket.as_fd(), WakeSource::Socket(serial)).and_then(|()| {
            connection.pidfd.as_ref().map_or(Ok(()), |fd| self.watch(fd.as_fd(), WakeSource::Process(serial)))
        });
        if let Err(error) = watched {
            return tracing::warn!(target: "gtd::dispatcher", %error, "a connection could not be watched");
        }
        if slot == self.connections.len() {
            self.connections.push(None);
        }
        self.connections[slot] = Some(connection);
        self.slot_of_serial.insert(serial, slot);
    }

    /// A slot for a connection. Steps with one slot keep their order at a worker, so a new session must not have that
    /// of one whose steps are still there: it would wait for them, however long they take.
    fn free_slot(&self) -> usize {
        let is_free = |(slot, connection): &(usize, &Option<_>)| {
            connection.is_none() && !self.links.iter().any(|link| link.has_steps_of(*slot as u32))
        };
        self.connections.iter().enumerate().find(is_free).map_or(self.connections.len(), |(slot, _)| slot)
    }

    /// Ends the oldest of a user's handshakes if it has as many as one user may have, unless its hello has come. The
    /// daemon's own process speaks for users of other machines, whose number is limited elsewhere.
    fn make_room_for_handshake(&mut self, uid: u32, pid: u32) {
        let of_user = |c: &&ControlConnection| c.awaits_hello() && c.peer.uid == uid;
        let open = || self.connections.iter().flatten().filter(of_user);
        if pid == std::process::id() || open().count() < HANDSHAKES_PER_UID_MAX as usize {
            return;
        }
        let Some((serial, slot)) = open().map(|c| (c.serial, c.slot)).min() else { return };
        self.read_message(slot);
        let still = self.connections.get(slot).and_then(Option::as_ref);
        if still.is_some_and(|c| c.serial == serial && c.awaits_hello()) {
            self.disconnect(slot, "it did not say hello while its user opened more connections");
        }
    }

    /// Receives and handles the next message of a connection, or leaves it for later if its user's messages have taken
    /// more of the dispatcher's time than one user may have beside others.
    pub(super) fn read_message(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get(slot) else { return };
        let (serial, uid) = (connection.serial, connection.peer.uid);
        // The daemon's own process speaks for users of other machines.
        let own = connection.peer.pid == std::process::id();
        if !own && self.is_read_later(uid, Instant::now()) {
            return self.pause_reading(slot, serial);
        }
        let begun = thread_time();
        self.read_now(slot);
        if !own {
            self.control.spend(uid, thread_time().saturating_sub(begun), Instant::now());
        }
    }

    fn is_read_later(&mut self, uid: u32, now: Instant) -> bool {
        let is_other = |c: &ControlConnection| c.session.is_some() && c.peer.uid != uid;
        self.control.is_spent(uid, now) && self.connections.iter().flatten().any(is_other)
    }

    /// Stops watching a connection's messages until [`read_paused`](Self::read_paused).
    fn pause_reading(&mut self, slot: usize, serial: u64) {
        let Some(Some(connection)) = self.connections.get(slot) else { return };
        if connection.socket.is_hung_up() {
            return self.client_died(slot, "it hung up");
        }
        self.control.pause(serial);
        self.watch_messages(slot, epoll::EventFlags::empty());
    }

    fn watch_messages(&self, slot: usize, flags: epoll::EventFlags) {
        let Some(Some(connection)) = self.connections.get(slot) else { return };
        let data = WakeSource::Socket(connection.serial).data();
        let _ = epoll::modify(&self.epoll, connection.socket.as_fd(), data, flags);
    }

    /// Watches the messages again of connections whose users have waited long enough.
    pub(super) fn read_paused(&mut self, now: Instant) {
        for serial in self.control.take_paused(now) {
            let Some(&slot) = self.slot_of_serial.get(&serial) else { continue };
            let Some(Some(connection)) = self.connections.get(slot) else { continue };
            let uid = connection.peer.uid;
            if self.is_read_later(uid, now) {
                self.control.pause(serial);
            } else {
                self.watch_messages(slot, epoll::EventFlags::IN | epoll::EventFlags::RDHUP);
            }
        }
    }

    /// Whether a line about user `uid` is to be logged.
    pub(super) fn may_log(&mut self, uid: u32) -> bool {
        self.lines.admits(uid, Instant::now())
    }

    fn read_now(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        match connection.receive() {
            ReceivedMessage::Nothing => {}
            ReceivedMessage::Gone(why) => self.client_died(slot, &why),
            ReceivedMessage::Refuse(refused, why) => {
                self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                self.disconnect(slot, &why);
            }
            ReceivedMessage::Hello(hello) => {
                self.pause_listening(false);
                self.welcome(slot, &hello);
            }
            ReceivedMessage::Request(message) => self.handle_request(slot, message),
        }
    }

    pub(super) fn answer(&mut self, slot: usize, message: &DaemonMessage, fds: &[BorrowedFd<'_>]) {
        let Some(Some(connection)) = self.connections.get(slot) else { return };
        let in_its_version = match message {
            DaemonMessage::Refused(refused) => {
                Some(DaemonMessage::Refused(Refused { protocol_version: connection.version, ..refused.clone() }))
            }
            _ => None,
        };
        let message = in_its_version.as_ref().unwrap_or(message);
        if let Err(error) = gt_protocol::send_daemon_message(&connection.socket, message, fds, Duration::ZERO) {
            self.disconnect(slot, &format!("it does not take answers: {error}"));
        }
    }

    fn answer_with_fd(&mut self, slot: usize, answer: Result<(DaemonMessage, Arc<OwnedFd>), Refused>) {
        match answer {
            Ok((message, fd)) => self.answer(slot, &message, &[fd.as_fd()]),
            Err(refused) => self.answer(slot, &DaemonMessage::Refused(refused), &[]),
        }
    }

    fn answer_or_refuse(&mut self, slot: usize, answer: Result<DaemonMessage, Refused>) {
        self.answer(slot, &answer.unwrap_or_else(DaemonMessage::Refused), &[]);
    }

    fn welcome(&mut self, slot: usize, hello: &Hello) {
        if let Some(client) = &hello.on_behalf {
            let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
            if connection.peer.pid != std::process::id() {
                let refused = Refused::new(RefusalCode::NotPermitted, "only the daemon itself speaks for others");
                self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                return self.disconnect(slot, "it spoke for somebody else");
            }
            connection.speaks_for(client);
        }
        if self.ending.is_some() {
            let refused = Refused::new(RefusalCode::ShuttingDown, "the daemon is ending");
            self.answer(slot, &DaemonMessage::Refused(refused), &[]);
            return self.disconnect(slot, "the daemon is ending");
        }
        if self.draining && matches!(hello.role, Role::Client | Role::Worker) {
            let text = format!(
                "the daemon takes no more sessions and ends when the last has gone{}; wait, or ask an administrator to \
                 undo it with gtctl drain --undo",
                self.announced()
            );
            self.answer(slot, &DaemonMessage::Refused(Refused::new(RefusalCode::Draining, text)), &[]);
            return self.disconnect(slot, "the daemon takes no more sessions");
        }
        if hello.role == Role::Worker && self.connections[slot].as_ref().is_some_and(|c| c.version != PROTOCOL_VERSION)
        {
            let own = PROTOCOL_VERSION;
            let text = format!("a worker has to speak the daemon's newest protocol, {own}: upgrade the worker's gtd");
            self.answer(slot, &DaemonMessage::Refused(Refused::new(RefusalCode::ProtocolVersion, text)), &[]);
            return self.disconnect(slot, "its worker speaks an older protocol");
        }
        if hello.role == Role::Worker {
            return self.register(slot, hello);
        }
        self.note_groups(slot);
        let refused = self.limit_reached(slot, hello.role).or_else(|| self.descriptors_refused(slot, hello.role));
        if let Some(refused) = refused {
            if let Some(Some(ControlConnection { peer, .. })) = self.connections.get(slot) {
                let (uid, pid) = (peer.uid, peer.pid);
                if self.may_log(uid) {
                    tracing::warn!(target: "gtd::dispatcher", "user {uid}, process {pid}, was refused: {refused}");
                }
            }
            self.answer(slot, &DaemonMessage::Refused(refused), &[]);
            return self.disconnect(slot, "as many connections as may be are there");
        }
        // Without a spare descriptor the next connection could not even be refused.
        self.keep_spare();
        if self.spare.is_none() {
            let text = "the daemon has no descriptors left: close some sessions (gtctl sessions lists them), or raise its \
                        limit (LimitNOFILE= of its unit)";
            self.answer(slot, &DaemonMessage::Refused(Refused::new(RefusalCode::Exhausted, text)), &[]);
            return self.disconnect(slot, "there are no descriptors left");
        }
        let mut welcome = self.new_welcome(slot);
        if hello.role != Role::Client {
            return self.answer(slot, &DaemonMessage::Welcome(welcome), &[]);
        }
        let (workers, devices) = match self.workers_for(slot, hello.devices) {
            Ok(found) => found,
            Err(refused) => {
                self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                return self.disconnect(slot, "it asked for devices that it may not use");
            }
        };
        welcome.workers = workers.iter().map(|worker| self.links[worker].info()).collect();
        let (port, fds) = match DaemonPort::create(SQ_SLOTS, CQ_SLOTS) {
            Ok(made) => made,
            Err(error) => {
                let text =
                    format!("the daemon has no memory or descriptors left for a session: {error}; try again later");
                self.answer(slot, &DaemonMessage::Refused(Refused::new(RefusalCode::Exhausted, text)), &[]);
                return self.disconnect(slot, "the system has no memory or descriptors for its session");
            }
        };
        let Some(serial) = self.connections[slot].as_ref().map(|connection| connection.serial) else { return };
        if let Err(error) = self.watch(port.doorbell().as_fd(), WakeSource::Doorbell(serial)) {
            return self.disconnect(slot, &format!("its doorbell cannot be watched: {error}"));
        }
        let Some(uid) = self.connections[slot].as_ref().map(|connection| connection.peer.uid) else { return };
        let by_tcp = self.connections[slot].as_ref().is_some_and(ControlConnection::is_by_tcp);
        let quota = self.quotas.quota(uid);
        welcome.session = Some(SessionGrant {
            session_id: serial,
            sq_slots: SQ_SLOTS,
            cq_slots: CQ_SLOTS,
            arena_bytes_max: quota.arena_bytes,
            devices,
            daemon_devices: self.initial_workers as u32,
            returns_arenas: !by_tcp,
            shares_lines: !by_tcp,
        });
        let worker = self.least_used_worker(workers);
        let session_slot = SessionSlot { session: serial, slot: slot as u32 };
        let share = self.queue.open(uid, quota.weight);
        let usage = self.usage(serial, uid, &quota);
        let account = self.account(uid);
        let links = &mut self.links;
        let mut session = Session::new(
            session_slot,
            workers,
            devices,
            worker,
            port,
            quota,
            usage,
            account,
            share,
            self.compile,
            links,
        );
        session.last_work_ns = self.tape.now_ns();
        if let Some(notice) = &self.notice {
            session.set_notice(notice.number);
        }
        let is_logged = tracing::enabled!(target: "gtd::dispatcher", tracing::Level::INFO) && self.may_log(uid);
        if let Some(connection) = &mut self.connections[slot] {
            let pid = connection.peer.pid;
            let name = hello.name.as_ref().map(|name| format!(" ({name:?})")).unwrap_or_default();
            if is_logged {
                tracing::info!(target: "gtd::dispatcher", "session {serial}{name} of user {uid}, process {pid}, began");
            }
            connection.session = Some(session);
        }
        if let Some(records) = &mut self.records {
            records.session_began();
        }
        self.count_user(uid);
        self.tape_connection(serial, EventKind::Connect);
        self.hot.push(slot);
        self.answer(slot, &DaemonMessage::Welcome(welcome), &fds.as_array());
    }

    /// The welcome for an accepted connection, without a session.
    pub(super) fn new_welcome(&mut self, slot: usize) -> Welcome {
        let present = self.present;
        let connection = self.connections.get(slot).and_then(Option::as_ref);
        let version = connection.map_or(PROTOCOL_VERSION, |connection| connection.version);
        Welcome {
            protocol_version: version,
            daemon_version: env!("CARGO_PKG_VERSION").into(),
            daemon_pid: std::process::id(),
            session: None,
            workers: present.iter().map(|worker| self.links[worker].info()).collect(),
            notice: self.notice.clone(),
        }
    }

    /// Notes the groups of the user who connects, on which quotas may depend.
    fn note_groups(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get(slot).filter(|_| self.quotas.has_groups()) else { return };
        if let Some(groups) = connection.groups() {
            self.quotas.set_groups(connection.peer.uid, groups);
        }
    }

    /// The refusal of one more connection for `role`, if a limit is reached.
    fn limit_reached(&self, slot: usize, role: Role) -> Option<Refused> {
        let connection = self.connections.get(slot)?.as_ref()?;
        let (uid, administrator) = (connection.peer.uid, self.is_administrator(connection));
        let of_role = |c: &&ControlConnection| {
            c.slot != slot && !c.awaits_hello() && c.session.is_some() == (role == Role::Client)
        };
        let all = self.connections.iter().flatten().filter(of_role).count() as u64;
        let own = self.connections.iter().flatten().filter(of_role).filter(|c| c.peer.uid == uid).count() as u64;
        let (what, quota, most, reserved) = match role {
            Role::Client => ("sessions", self.quotas.quota(uid).sessions, SESSIONS_MAX, SESSIONS_RESERVED),
            _ => ("observers", OBSERVERS_PER_UID_MAX, OBSERVERS_MAX, OBSERVERS_RESERVED),
        };
        let most = u64::from(if administrator { most } else { most - reserved });
        let free = most.saturating_sub(all);
        let (held, limit, whose) = if own >= quota.into() {
            (own, quota.into(), "of this user")
        } else if free == 0 {
            (all, most, "of all users")
        } else if own > free && !administrator {
            // A user alone gets half of what there is, and some is left to the next one, however many there are.
            (own, own, "of this user, and few are left to all users")
        } else {
            return None;
        };
        let text = format!(
            "{held} {what} {whose} are open and no more are allowed: close some (gtctl sessions lists them), or try \
             again later"
        );
        Some(Refused::new(RefusalCode::TooManySessions, text).with_limit(held, limit))
    }

    /// The refusal of descriptors for a user's session, or for the rest of one, if others or administrators could lack
    /// them; other connections have what sessions leave.
    fn descriptors_refused(&self, slot: usize, role: Role) -> Option<Refused> {
        let connection = self.connections.get(slot)?.as_ref()?;
        if self.is_administrator(connection) {
            return None;
        }
        let of_user = self.connections.iter().flatten().filter(|c| c.peer.uid == connection.peer.uid);
        let (own, more) = match role {
            Role::Client => (of_user.map(ControlConnection::descriptors).sum(), OF_SESSION),
            _ => (0, 1),
        };
        let text = Descriptors::now(&self.epoll).refusal(own, more)?;
        Some(Refused::new(RefusalCode::Exhausted, text))
    }

    fn tape_connection(&mut self, session: u64, kind: EventKind) {
        let subject = Subject::Nothing;
        let (time_ns, worker, bytes) = (0, NO_WORKER, 0);
        let (result, left, right, run_ns) = (0, 0, 0, 0);
        self.tape.write(Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns });
        if let Some(log) = &self.log {
            log.wake();
        }
    }

    /// The worker among `workers` that is the home worker of the fewest sessions.
    fn least_used_worker(&self, workers: Workers) -> u16 {
        // Only initial workers are candidates: they never leave, and a session keeps its home worker.
        let mut sessions = vec![0u32; self.initial_workers];
        for session in self.connections.iter().flatten().filter_map(|connection| connection.session.as_ref()) {
            sessions[session.worker() as usize] += 1;
        }
        let candidates = sessions.iter().enumerate().filter(|(worker, _)| workers.contains(*worker));
        candidates.min_by_key(|(_, sessions)| **sessions).map_or(0, |(worker, _)| worker as u16)
    }

    /// The workers of a new session, and the devices to which it is pinned: those that its hello asks for, among those
    /// that its user may use. A session that is not pinned also gets the workers that registered themselves.
    fn workers_for(&self, slot: usize, asked: Option<DeviceSet>) -> Result<(Workers, Option<DeviceSet>), Refused> {
        let Some(Some(connection)) = self.connections.get(slot) else {
            return Err(Refused::new(RefusalCode::Other, "the connection has ended"));
        };
        let uid = connection.peer.uid;
        let (allowed, count) = (self.quotas.quota(uid).devices, self.initial_workers as u32);
        let asked = asked.unwrap_or(allowed);
        let why = if let Some(complaint) = asked.complaint(count) {
            complaint
        } else if !asked.is_within(allowed) && asked != DeviceSet::ALL {
            format!("devices {asked} are asked for, but user {uid} may use {allowed} of the daemon's {count} devices")
        } else {
            let devices = asked.and(allowed);
            if devices == DeviceSet::ALL {
                return Ok((self.present, None));
            }
            let own = Workers::first_of(self.initial_workers).and(Workers::from_bits(devices.bits().into()));
            return Ok((own.and(self.present), Some(devices)));
        };
        let text = format!(
            "{why}; name others (gt.connect(devices=[…]) or {VISIBLE_DEVICES_ENV}), or ask an administrator to allow them \
             (gtctl limits set --user {uid} --devices NUMBERS)"
        );
        Err(Refused::new(RefusalCode::NotPermitted, text))
    }

    fn handle_request(&mut self, slot: usize, message: ClientMessage) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
        match message {
            ClientMessage::GrowArena { bytes } => {
                // A worker in another process needs the arena's descriptor again when it is restarted.
                let is_kept = self.links.iter().any(|link| !link.is_thread());
                let is_first = connection.session.as_ref().is_none_or(|session| session.arena_bytes() == 0);
                if let Some(refused) =
                    (is_kept && !is_first).then(|| self.descriptors_refused(slot, Role::Client)).flatten()
                {
                    return self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                }
                let free = self.arena_bytes_max.saturating_sub(self.arena_bytes());
                let Some(Some(connection)) = self.connections.get_mut(slot) else { return };
                let limit = self.quotas.quota(connection.peer.uid).arena_bytes;
                let granted = match &mut connection.session {
                    Some(session) => {
                        let room = ArenaRoom::new(session.user_account().arena_bytes(), limit, free, self.private);
                        session.grow_arena(bytes, room, &mut self.links)
                    }
                    None => Err(Refused::new(RefusalCode::NotPermitted, "only a client's session has arenas")),
                };
                match granted {
                    Ok((segment, bytes, fd)) => {
                        self.answer(slot, &DaemonMessage::ArenaGranted { segment, bytes }, &[fd.as_fd()]);
                    }
                    Err(refused) => self.answer(slot, &DaemonMessage::Refused(refused), &[]),
                }
            }
            ClientMessage::ReturnArena { segment } => {
                let by_tcp = connection.is_by_tcp();
                let answer = match &mut connection.session {
                    Some(session) if !by_tcp => session
                        .return_arena(segment, &mut self.links, |arena| self.janitor.unmap(arena))
                        .map(|()| DaemonMessage::ArenaReturned { segment }),
                    Some(_) => Err(Refused::new(RefusalCode::NotPermitted, "a session by TCP keeps its arenas")),
                    None => Err(no_session()),
                };
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::Status { after } => {
                let status = self.status().page(after);
                self.answer(slot, &DaemonMessage::Status(status), &[]);
            }
            ClientMessage::TapeAttach { session } => {
                let tape = self.tape_for(slot, session);
                self.answer_with_fd(slot, tape.map(|fd| (DaemonMessage::Tape { records: TAPE_RECORDS }, fd)));
            }
            ClientMessage::ShareLines => {
                let by_tcp = connection.is_by_tcp();
                let granted = match &mut connection.session {
                    Some(session) if !by_tcp => session.share_lines(),
                    _ => Err(no_session()),
                };
                self.answer_with_fd(slot, granted.map(|(fd, bytes)| (DaemonMessage::Lines { bytes }, fd)));
            }
            ClientMessage::LinesAttach { session } => {
                let lines = self.lines_for(slot, session);
                self.answer_with_fd(slot, lines.map(|(fd, bytes)| (DaemonMessage::Lines { bytes }, fd)));
            }
            ClientMessage::ErrorDetail { error } => {
                let text = format!("error {error} has no more words than its completion; see the daemon's log");
                self.answer(slot, &DaemonMessage::Refused(Refused::new(RefusalCode::Other, text)), &[]);
            }
            ClientMessage::Traffic => {
                let answer = self.traffic(slot);
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::Placement { id } => {
                let names = worker_names(&mut self.links);
                let answer = match &connection.session {
                    Some(session) => match session.placement(id, &names) {
                        Some(placement) => DaemonMessage::Placement(placement),
                        None => {
                            let text = format!("there is no tensor {id} in this session");
                            DaemonMessage::Refused(Refused::new(RefusalCode::Other, text))
                        }
                    },
                    None => DaemonMessage::Refused(no_session()),
                };
                self.answer(slot, &answer, &[]);
            }
            ClientMessage::Tensors { after } => {
                let listed =
                    connection.session.as_ref().map(|session| session.tensors_after(after, TENSORS_LISTED_MAX));
                let answer = listed.map(|(tensors, more)| DaemonMessage::Tensors { tensors, more });
                self.answer_or_refuse(slot, answer.ok_or_else(no_session));
            }
            ClientMessage::Session { id } => {
                let answer = self.session_detail(id);
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::ResetPeak { worker } => {
                let answer = match &connection.session {
                    Some(session) => {
                        let session_slot = session.slot();
                        self.keep_peak(slot);
                        let names = worker_names(&mut self.links);
                        for (link, name) in self.links.iter_mut().zip(names) {
                            if worker.as_ref().is_none_or(|worker| *worker == name) {
                                link.reset_peak(session_slot);
                            }
                        }
                        self.session_detail(session_slot.session)
                    }
                    None => Err(no_session()),
                };
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::Kill { session } => {
                let answer = self.kill(slot, session);
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::Limits { from } => {
                let answer = self.limits(from);
                self.answer(slot, &answer, &[]);
            }
            ClientMessage::SetLimits { uid, change } => {
                let answer = self.set_limits(slot, uid, &change);
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::Records(query) => {
                if let Err(refused) = self.ask_records(slot, query) {
                    self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                }
            }
            ClientMessage::TokenCreate { uid, lifetime_s, administrator } => {
                if let Err(refused) = self.create_token(slot, uid, lifetime_s, administrator) {
                    self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                }
            }
            ClientMessage::TokenList { after } => {
                let answer = self.list_tokens(slot, after);
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::TokenRevoke { id } => {
                if let Err(refused) = self.revoke_token(slot, id) {
                    self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                }
            }
            ClientMessage::NodeInvite { lifetime_s, workers_max } => {
                let answer = self.invite_node(slot, lifetime_s, workers_max);
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::NodeList { after } => {
                let answer = self.list_nodes(&after);
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::NodeRemove { name } => {
                if let Err(refused) = self.remove_node(slot, name) {
                    self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                }
            }
            ClientMessage::Notice => {
                self.answer(slot, &DaemonMessage::Notice { notice: self.notice.clone() }, &[]);
            }
            ClientMessage::Drain { on, in_s, text } => {
                let answer = self.drain(slot, on, in_s, text);
                self.answer_or_refuse(slot, answer);
            }
            ClientMessage::Reload => {
                if let Err(refused) = self.reload_for(slot) {
                    self.answer(slot, &DaemonMessage::Refused(refused), &[]);
                }
            }
            ClientMessage::Interrupt { below } => {
                let Some(session) = &mut connection.session else { return };
                let below = below.min(MODIFIER_ID_MIN);
                for worker in session.workers().iter() {
                    self.links[worker].cancel_below(session.slot(), below);
                }
                if let Err(violation) = session.interrupt(below, &mut self.links, &mut self.tape) {
                    self.end_violator(slot, &violation);
                }
            }
            ClientMessage::Name { name } => connection.rename(name),
            ClientMessage::Bye => self.disconnect(slot, "it said goodbye"),
            ClientMessage::Hello(_) => self.disconnect(slot, "it said hello twice"),
        }
    }

    /// The collectives and the operations of the session in `slot`, by worker.
    pub(super) fn traffic(&mut self, slot: usize) -> Result<DaemonMessage, Refused> {
        let names = worker_names(&mut self.links);
        let connection = self.connections.get(slot).and_then(Option::as_ref);
        let session = connection.and_then(|connection| connection.session.as_ref()).ok_or_else(no_session)?;
        let most = OPERATIONS_MAX / session.workers().len().max(1);
        let of = |worker: usize| {
            let name = names.get(worker).cloned().unwrap_or_default();
            let operations = session.operations(worker, most);
            WorkerTraffic { name, collectives: session.traffic(worker), operations }
        };
        let workers = session.workers().iter().map(of).collect();
        Ok(DaemonMessage::Traffic { workers, sequences: session.hot_paths.counts() })
    }

    pub(super) fn status(&mut self) -> StatusDocument {
        self.refresh_usage();
        let slots: Vec<usize> = self.slot_of_serial.values().copied().collect();
        let sessions = slots.into_iter().filter_map(|slot| self.session_status(slot)).collect();
        StatusDocument {
            daemon_version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            uptime_s: self.start.elapsed().as_secs_f64(),
            tape_ns: self.tape.tick(),
            workers: self.links.iter_mut().map(|link| link.info()).collect(),
            devices: self.initial_workers as u32,
            arena_bytes: self.arena_bytes(),
            arena_bytes_limit: self.arena_bytes_max,
            draining: self.draining,
            notice: self.notice.clone(),
            tcp: self.tcp.clone(),
            nodes_address: self.nodes.as_ref().map(|nodes| nodes.address().to_string()),
            nodes: self.nodes.as_ref().map(|nodes| nodes.list()).unwrap_or_default(),
            node_links: self.nodes.as_ref().map(|nodes| nodes.links()).unwrap_or_default(),
            insecure_network: self.nodes.as_ref().map(|nodes| nodes.insecure_network()).unwrap_or_default(),
            nodes_ucx: self.nodes.as_ref().and_then(|nodes| nodes.ucx()).map(Box::new),
            metrics: self.metrics.clone(),
            sessions,
            more: false,
        }
    }

    /// Bytes of all sessions' arenas.
    fn arena_bytes(&self) -> u64 {
        self.connections.iter().flatten().filter_map(|c| c.session.as_ref()).map(Session::arena_bytes).sum()
    }

    pub(super) fn end_violator(&mut self, slot: usize, violation: &Violation) {
        if let Some(Some(connection)) = self.connections.get(slot) {
            let (session, pid, uid) = (connection.serial, connection.peer.pid, connection.peer.uid);
            if self.may_log(uid) {
                tracing::warn!(
                    target: "gtd::dispatcher",
                    "session {session} of user {uid}, process {pid}, breaks the rules and is ended: {violation}"
                );
            }
        }
        if violation.is_limit() {
            let text = format!("the daemon ended the session: {violation}");
            self.answer(slot, &DaemonMessage::Refused(Refused::new(RefusalCode::Killed, text)), &[]);
        }
        self.disconnect(slot, &violation.to_string());
    }

    /// Ends the connection of a program that has ended without a goodbye. If steps of it had not ended, keeps the
    /// events before that: many programs end so once their work is done.
    pub(super) fn client_died(&mut self, slot: usize, how: &str) {
        if let Some(Some(connection)) = self.connections.get(slot)
            && let Some(own) = connection.session.as_ref().filter(|session| session.is_draining())
            && let Some((flight, when)) = self.tape.flight()
        {
            let (session, process, uid) = (connection.serial, connection.peer.pid, connection.peer.uid);
            let lines = own.lines().map(|lines| (session, lines)).into_iter().collect();
            flight.client_died(DeadParty::Client { session, process, uid }, how, when, lines);
        }
        self.disconnect(slot, how);
    }

    /// Keeps the events before the death of a worker, if it died since the last call.
    pub(super) fn worker_died(&mut self, worker: usize, how: &str) {
        let losses = self.links[worker].losses();
        let Some((flight, when)) = self.tape.flight() else { return };
        if flight.note_losses(worker, losses) {
            let sessions = self.connections.iter().flatten().filter_map(|c| Some((c.serial, c.session.as_ref()?)));
            let lines = sessions.filter_map(|(serial, session)| Some((serial, session.lines()?))).collect();
            flight.worker_died(worker, how, when, lines);
        }
    }

    /// Ends a connection and its session, and frees all its resources.
    pub(super) fn disconnect(&mut self, slot: usize, why: &str) {
        let Some(mut connection) = self.connections.get_mut(slot).and_then(Option::take) else { return };
        let serial = connection.serial;
        self.slot_of_serial.remove(&serial);
        self.pause_listening(false);
        self.unwatch(connection.socket.as_fd());
        if let Some(pidfd) = &connection.pidfd {
            self.unwatch(pidfd.as_fd());
        }
        if let Some(session) = &mut connection.session {
            let running = self.links.iter().filter_map(|link| link.preempted());
            let ran_ns: u64 = running.filter(|step| step.owner == session.slot()).map(|step| step.ran_ns).sum();
            self.queue.close(&mut session.share, ran_ns as f64 / self.present.len() as f64);
        }
        self.record_end(&connection, why);
        self.count_ended(&connection);
        if let Some(mut session) = connection.session.take() {
            let uid = connection.peer.uid;
            if tracing::enabled!(target: "gtd::dispatcher", tracing::Level::INFO) && self.may_log(uid) {
                tracing::info!(target: "gtd::dispatcher", "session {serial} of user {uid} ended: {why}");
            }
            self.unwatch(session.port().doorbell().as_fd());
            session.set_state(SessionState::Closed);
            session.close_account();
            self.hot.retain(|hot| *hot != slot);
            for link in &mut self.links {
                link.close(session.slot());
            }
            self.tape_connection(serial, EventKind::Disconnect);
            if self.pipelines.are_many() {
                self.drop_unused_pipelines();
            }
            // Dropping a table of a million tensors takes long.
            self.janitor.dispose(session);
        } else {
            tracing::debug!(target: "gtd::dispatcher", connection = serial, why, "closed");
        }
    }

    /// Ends slow handshakes while the listener is paused: those of the user with the most open handshakes that have
    /// lasted for [`CROWDED_HANDSHAKE_DEADLINE`].
    pub(super) fn drop_slow_handshakes(&mut self, now: Instant) {
        let handshakes = || self.connections.iter().flatten().filter(|c| c.awaits_hello());
        let open = |uid: u32| handshakes().filter(|c| c.peer.uid == uid).count();
        let Some(uid) = handshakes().map(|c| c.peer.uid).max_by_key(|uid| open(*uid)) else { return };
        let late = now + HANDSHAKE_DEADLINE - CROWDED_HANDSHAKE_DEADLINE;
        let slow = |c: &&ControlConnection| c.peer.uid == uid && c.deadline().is_some_and(|deadline| deadline <= late);
        let slots: Vec<usize> = handshakes().filter(slow).map(|c| c.slot).collect();
        for slot in slots {
            self.disconnect(slot, "it did not say hello while others waited");
        }
    }

    pub(super) fn pause_listening(&mut self, pause: bool) {
        let Some(listener) = self.listener.as_ref().filter(|_| self.listening_paused != pause) else { return };
        self.listening_paused = pause;
        let flags = if pause { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
        let _ = epoll::modify(&self.epoll, listener.as_fd(), WakeSource::Listener.data(), flags);
    }
}
