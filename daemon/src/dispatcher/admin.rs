//! Requests about sessions and users: details, kills, quotas, draining and reloads.

use super::{Dispatcher, worker_names};
use crate::account::UserAccount;
use crate::control_connection::ControlConnection;
use crate::quota::QuotaConfig;
use crate::reload::{ReloadOutcome, ReloadedConfig};
use crate::session::Session;
use crate::session_tape::{SESSION_TAPES_MAX, SESSION_TAPES_PER_UID_MAX, SessionTape};
use crate::worker::step::SessionSlot;
use gt_backend::MemoryUsage;
use gt_ops::Placement;
use gt_protocol::{
    DaemonMessage, Quota, QuotaChange, QuotaDocument, RefusalCode, Refused, SessionDetail, SessionStatus, Setting,
    UserStatus, WorkerMemory,
};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Usage that was updated less than this ago is not updated again for a request, nanoseconds.
const USAGE_FRESH_NS: u64 = 50_000_000;

pub(super) fn not_permitted(text: String) -> Refused {
    Refused::new(RefusalCode::NotPermitted, text)
}

impl Dispatcher {
    /// Whether the peer may ask what administrators may.
    pub(super) fn is_administrator(&self, connection: &ControlConnection) -> bool {
        connection.is_administrator(rustix::process::getuid().as_raw(), self.administrators)
    }

    pub(super) fn peer(&self, slot: usize) -> Option<(u32, bool)> {
        let connection = self.connections.get(slot)?.as_ref()?;
        Some((connection.peer.uid, self.is_administrator(connection)))
    }

    /// The status of the session in `slot`.
    pub(super) fn session_status(&mut self, slot: usize) -> Option<SessionStatus> {
        let connection = self.connections.get(slot)?.as_ref()?;
        let status = connection.status()?;
        let session_slot = connection.session.as_ref()?.slot();
        let quota = self.quotas.quota(connection.peer.uid);
        let usage_s = self.queue.usage_s(connection.peer.uid);
        Some(SessionStatus {
            memory_bytes: self.held(session_slot),
            memory_bytes_limit: quota.session_memory_bytes,
            arena_bytes_limit: quota.arena_bytes,
            queued_limit: quota.queued.into(),
            weight: quota.weight,
            usage_s,
            ..status
        })
    }

    /// The memory usage of the new session `session`, counted in that of user `uid`.
    pub(super) fn usage(&mut self, session: u64, uid: u32, quota: &Quota) -> Arc<MemoryUsage> {
        let sessions = self.connections.iter().flatten().filter(|c| c.peer.uid == uid);
        let user = sessions.filter_map(|c| c.session.as_ref()?.usage().group().cloned()).next();
        let user = user.unwrap_or_else(|| Arc::new(MemoryUsage::new(uid.into())));
        user.set_limit(quota.memory_bytes);
        let usage = MemoryUsage::new(session);
        usage.set_limit(quota.session_memory_bytes);
        usage.join(user);
        Arc::new(usage)
    }

    /// The account of user `uid`, which the user's sessions share.
    pub(super) fn account(&self, uid: u32) -> Arc<UserAccount> {
        let sessions = self.connections.iter().flatten().filter(|c| c.peer.uid == uid);
        sessions.filter_map(|c| Some(c.session.as_ref()?.user_account().clone())).next().unwrap_or_default()
    }

    /// Updates usage and shares for a request.
    pub(super) fn refresh_usage(&mut self) {
        let now_ns = self.tape.tick();
        if now_ns - self.usage_updated_ns >= USAGE_FRESH_NS {
            self.update_usage(now_ns);
        }
    }

    /// Bytes that a session holds on all workers.
    fn held(&mut self, session_slot: SessionSlot) -> u64 {
        self.links.iter_mut().map(|link| link.held(session_slot)).sum()
    }

    fn user_status(&mut self, uid: u32) -> UserStatus {
        let own = self.connections.iter().flatten().filter(|c| c.peer.uid == uid);
        let session_slots: Vec<SessionSlot> = own.filter_map(|c| Some(c.session.as_ref()?.slot())).collect();
        let account = self.account(uid);
        UserStatus {
            uid,
            own: self.quotas.own(uid),
            allowed: self.quotas.quota(uid),
            sessions: session_slots.len() as u32,
            memory_bytes: session_slots.iter().map(|session_slot| self.held(*session_slot)).sum(),
            tensors: account.tensors(),
            arena_bytes: account.arena_bytes(),
            usage_s: self.queue.usage_s(uid),
        }
    }

    /// The tape, for the peer in `slot`: that of all sessions if the peer may see them, else a copy with the events of
    /// `wanted`, which must be a session of the same user.
    pub(super) fn tape_for(&mut self, slot: usize, wanted: Option<u64>) -> Result<Arc<OwnedFd>, Refused> {
        if self.may_see(slot, wanted)? {
            return Ok(self.tape.fd());
        }
        let (Some(session), Some(Some(ControlConnection { peer, .. }))) = (wanted, self.connections.get(slot)) else {
            return Err(not_permitted("nobody asks".into()));
        };
        let uid = peer.uid;
        let copies = || self.connections.iter().flatten().filter(|c| c.session_tape.is_some() && c.slot != slot);
        let (own, all) = (copies().filter(|c| c.peer.uid == uid).count(), copies().count());
        if own >= SESSION_TAPES_PER_UID_MAX || all >= SESSION_TAPES_MAX {
            let (held, limit, whose) = if own >= SESSION_TAPES_PER_UID_MAX {
                (own, SESSION_TAPES_PER_UID_MAX, "of this user's")
            } else {
                (all, SESSION_TAPES_MAX, "of all users'")
            };
            let text = format!("{held} {whose} programs watch sessions, as many as may: end some, or try again later");
            return Err(Refused::new(RefusalCode::TooManySessions, text).with_limit(held as u64, limit as u64));
        }
        let begun = SessionTape::begin(&self.tape.fd(), session);
        let (session_tape, copy) = begun.map_err(|error| {
            Refused::new(RefusalCode::Exhausted, format!("no memory or descriptor for the tape: {error}"))
        })?;
        if let Some(Some(connection)) = self.connections.get_mut(slot) {
            connection.session_tape = Some(session_tape);
        }
        Ok(Arc::new(copy))
    }

    /// Whether the peer of the connection in `slot` may see what every session does. If it may only see `wanted`, a
    /// session of its own user, false.
    ///
    /// # Errors
    /// The peer may see neither, or there is no such session.
    fn may_see(&self, slot: usize, wanted: Option<u64>) -> Result<bool, Refused> {
        let Some(Some(connection)) = self.connections.get(slot) else {
            return Err(not_permitted("nobody asks".into()));
        };
        let (uid, is_by_tcp) = (connection.peer.uid, connection.is_by_tcp());
        let is_powerful = if is_by_tcp { self.is_administrator(connection) } else { uid == 0 };
        if uid == rustix::process::getuid().as_raw() || is_powerful {
            return Ok(true);
        }
        let Some(session) = wanted else {
            let mut text = "the tape shows every session: only the daemon's user and root may read it".to_owned();
            if is_by_tcp {
                text.push_str(", and by TCP who has a token of an administrator (gtctl token create --admin)");
            }
            return Err(not_permitted(text));
        };
        let user = self.session_at(session)?.peer.uid;
        if user != uid {
            let text = format!(
                "session {session} is user {user}'s: only that user, the daemon's user and root may see what it does"
            );
            return Err(not_permitted(text));
        }
        Ok(false)
    }

    /// The lines that session `id` shares, and their length, for the peer of the connection in `slot`.
    ///
    /// # Errors
    /// The peer may not see what the session does, or it shares none.
    pub(super) fn lines_for(&self, slot: usize, id: u64) -> Result<(Arc<OwnedFd>, u64), Refused> {
        self.may_see(slot, Some(id))?;
        let session = self.session_at(id)?.session.as_ref();
        session.and_then(Session::lines).ok_or_else(|| {
            let text = format!("session {id} tells no lines: it is no Python program of this machine");
            Refused::new(RefusalCode::Other, text)
        })
    }

    fn no_such(session: u64) -> Refused {
        let text = format!("there is no session {session}: gtctl sessions lists them");
        Refused::new(RefusalCode::NoSession, text)
    }

    pub(super) fn session_at(&self, session: u64) -> Result<&ControlConnection, Refused> {
        let slot = self.slot_of_serial.get(&session);
        let connection = slot.and_then(|slot| self.connections.get(*slot)?.as_ref());
        connection.filter(|connection| connection.session.is_some()).ok_or_else(|| Self::no_such(session))
    }

    /// The details of a session.
    pub(super) fn session_detail(&mut self, id: u64) -> Result<DaemonMessage, Refused> {
        self.refresh_usage();
        let names = worker_names(&mut self.links);
        let slot = self.session_at(id)?.slot;
        let now_ns = self.tape.now_ns();
        let Some(session) = self.session_status(slot) else { return Err(Self::no_such(id)) };
        let user = self.user_status(session.uid);
        let Some(own) = self.session_at(id)?.session.as_ref() else { return Err(Self::no_such(id)) };
        let (session_slot, own_workers, out_of_memory) = (own.slot(), own.workers(), own.out_of_memory());
        let idle_s = now_ns.saturating_sub(own.last_work_ns) as f64 / 1e9;
        let divided_tensors = own.count(|placement| !matches!(placement, Placement::Replicated { .. }));
        let tensors: Vec<_> =
            (0..names.len()).map(|worker| own.count(|placement| placement.workers().contains(worker))).collect();
        let held = self.links.iter_mut().map(|link| (link.held(session_slot), link.peak(session_slot))).zip(tensors);
        let memory = |(name, ((memory_bytes, memory_bytes_peak), tensors))| WorkerMemory {
            name,
            memory_bytes,
            memory_bytes_peak,
            tensors,
        };
        let is_own = |(number, named): (usize, _)| own_workers.contains(number).then_some(named);
        let workers = names.into_iter().zip(held).enumerate().filter_map(is_own).map(memory).collect();
        let detail = SessionDetail { session, user, workers, divided_tensors, out_of_memory, idle_s };
        Ok(DaemonMessage::Session(Box::new(detail)))
    }

    /// Ends a session, for its owner or an administrator.
    pub(super) fn kill(&mut self, slot: usize, id: u64) -> Result<DaemonMessage, Refused> {
        let Some((uid, administrator)) = self.peer(slot) else { return Err(Self::no_such(id)) };
        let connection = self.session_at(id)?;
        if connection.peer.uid != uid && !administrator {
            let owner = connection.peer.uid;
            let text = format!("session {id} is user {owner}'s: only that user and administrators may end it");
            return Err(not_permitted(text));
        }
        let killed = connection.slot;
        let owner = connection.peer.uid;
        let Some(status) = self.session_status(killed) else { return Err(Self::no_such(id)) };
        tracing::warn!(target: "gtd::dispatcher", "user {uid} ends session {id} of user {owner}");
        let text = format!("session {id} was ended by user {uid} (gtctl kill): its tensors are gone; create new ones");
        self.answer(killed, &DaemonMessage::Refused(Refused::new(RefusalCode::Killed, text)), &[]);
        self.disconnect(killed, "it was killed");
        Ok(DaemonMessage::Killed(Box::new(status)))
    }

    /// The quotas in force: the default, and those of users from user id `from` on, as many as one message holds.
    pub(super) fn limits(&mut self, from: u32) -> DaemonMessage {
        self.refresh_usage();
        let present = self.connections.iter().flatten().filter(|c| c.session.is_some()).map(|c| c.peer.uid);
        let uids: BTreeSet<u32> = self.quotas.users().chain(present).collect();
        let users = uids.into_iter().map(|uid| self.user_status(uid)).collect();
        let all = QuotaDocument { default: self.quotas.default_quota(), users, more: false };
        DaemonMessage::Limits(all.page(from))
    }

    /// Changes a quota. An administrator may change any quota, other users may only lower their own.
    pub(super) fn set_limits(
        &mut self,
        slot: usize,
        uid: Option<u32>,
        change: &QuotaChange,
    ) -> Result<DaemonMessage, Refused> {
        let refused = |text| Err(not_permitted(text));
        let Some((asker, administrator)) = self.peer(slot) else { return refused("nobody asks".into()) };
        let named =
            change.devices.and_then(|setting| if let Setting::To(devices) = setting { Some(devices) } else { None });
        if let Some(complaint) = named.and_then(|devices| devices.complaint(self.initial_workers as u32)) {
            return Err(Refused::new(RefusalCode::Malformed, complaint));
        }
        let before = self.quotas.clone();
        self.quotas.set(uid, change).map_err(|text| Refused::new(RefusalCode::Malformed, text))?;
        let lowers = self.quotas.quota(asker).is_within(&before.quota(asker));
        if !administrator && (uid != Some(asker) || !lowers) {
            self.quotas = before;
            return refused(match uid {
                Some(uid) if uid == asker => {
                    "only administrators may raise limits (root, the daemon's user, members of the group gt-admin); you \
                     may lower your own"
                        .into()
                }
                _ => "only administrators may change other users' limits: root, the daemon's user, and members of the \
                      group gt-admin"
                    .into(),
            });
        }
        let whose = uid.map_or_else(|| "all users without their own".into(), |uid| format!("user {uid}"));
        let change = serde_json::to_string(change).unwrap_or_default();
        tracing::info!(target: "gtd::dispatcher", "user {asker} changes the limits of {whose}: {change}");
        self.apply_quotas();
        let users = uid.into_iter().map(|uid| self.user_status(uid)).collect();
        Ok(DaemonMessage::Limits(QuotaDocument { default: self.quotas.default_quota(), users, more: false }))
    }

    /// Replaces the configured quotas. No session ends: one that holds more than its quota gets no more memory, and one
    /// that was pinned to other devices keeps these.
    pub fn configure_quotas(&mut self, configured: QuotaConfig) {
        self.quotas.configure(configured);
        self.apply_quotas();
    }

    /// Applies the quotas in force to all sessions.
    fn apply_quotas(&mut self) {
        for connection in self.connections.iter_mut().flatten() {
            let quota = self.quotas.quota(connection.peer.uid);
            if let Some(session) = &mut connection.session {
                self.queue.set_weight(connection.peer.uid, quota.weight);
                session.set_quota(quota, &mut self.links);
            }
        }
    }

    /// Begins to read the configuration again, for an administrator; the answer follows when it is done.
    pub(super) fn reload_for(&mut self, slot: usize) -> Result<(), Refused> {
        if !self.peer(slot).is_some_and(|(_, administrator)| administrator) {
            let text = "only administrators may have the configuration read again: root, the daemon's user, and members \
                        of the group gt-admin";
            return Err(not_permitted(text.into()));
        }
        if self.reload.is_none() {
            let text = "this daemon was started without a configuration file: start it with gtd --config PATH";
            return Err(Refused::new(RefusalCode::Other, text));
        }
        let serial = self.connections.get(slot).and_then(Option::as_ref).map(|connection| connection.serial);
        self.begin_reload(serial);
        Ok(())
    }

    pub(super) fn begin_reload(&mut self, asker: Option<u64>) {
        if let Some(reload) = &mut self.reload {
            self.notifier.reloading();
            reload.begin(asker);
        }
    }

    /// Applies a configuration that was read, or keeps the old one if the new one is wrong. Logs the outcome and
    /// answers the connections that requested the reload.
    pub(super) fn reloaded(&mut self) {
        let Some(reload) = &mut self.reload else { return };
        let Some(ReloadOutcome { result, waiting }) = reload.outcome() else { return };
        let path = reload.path().display().to_string();
        let answer = match result {
            Ok(ReloadedConfig { quotas, fingerprint, changed, restart }) => {
                tracing::info!(target: "gtd::dispatcher", "{path} was read again; changed: {}", listed(&changed));
                if !restart.is_empty() {
                    let restart = restart.join(", ");
                    tracing::warn!(
                        target: "gtd::dispatcher",
                        "{path} changes {restart}, which a running daemon cannot: restart it to have that too"
                    );
                }
                self.configure_quotas(quotas);
                if let (Some(tcp), Some(_)) = (&mut self.tcp, &fingerprint) {
                    tcp.fingerprint = fingerprint;
                }
                self.notifier.ready("Serving");
                DaemonMessage::Reloaded { path, changed, restart }
            }
            Err(error) => {
                tracing::error!(target: "gtd::dispatcher", "{error}; the old configuration stays in force");
                self.notifier.ready("Serving with an old configuration: the new one is wrong");
                let text = format!("{error}; the old configuration stays in force");
                DaemonMessage::Refused(Refused::new(RefusalCode::Config, text))
            }
        };
        for serial in waiting {
            if let Some(slot) = self.slot_of_serial.get(&serial) {
                self.answer(*slot, &answer, &[]);
            }
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}
