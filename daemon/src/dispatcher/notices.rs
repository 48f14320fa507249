//! Planned drains and stops, and how running programs learn of them.

use super::Dispatcher;
use gt_protocol::notice::{NOTICE_AHEAD_S_MAX, check_message};
use gt_protocol::{DaemonMessage, Notice, RefusalCode, Refused};
use std::time::{Duration, Instant, SystemTime};

impl Dispatcher {
    /// Begins, plans or ends draining, for an administrator.
    pub(super) fn drain(
        &mut self,
        slot: usize,
        on: bool,
        in_s: u64,
        message: Option<String>,
    ) -> Result<DaemonMessage, Refused> {
        if !self.peer(slot).is_some_and(|(_, administrator)| administrator) {
            let text =
                "only administrators may drain the daemon: root, its own user, and members of the group gt-admin";
            return Err(Refused::new(RefusalCode::NotPermitted, text));
        }
        if in_s > NOTICE_AHEAD_S_MAX {
            let text = format!("a drain in {in_s} s was asked for; at most {NOTICE_AHEAD_S_MAX} s ahead are possible");
            return Err(Refused::new(RefusalCode::Malformed, text));
        }
        if let Some(message) = &message {
            check_message(message).map_err(|text| Refused::new(RefusalCode::Malformed, text))?;
        }
        let after = Duration::from_secs(in_s);
        (self.draining, self.drains_at) = (on && in_s == 0, (on && in_s > 0).then(|| Instant::now() + after));
        let said = message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        match (on, in_s) {
            (true, 0) => tracing::info!(
                target: "gtd::dispatcher",
                "no session begins any more, and the daemon ends with the last, as an administrator asks{said}"
            ),
            (true, _) => tracing::info!(
                target: "gtd::dispatcher",
                "in {in_s} s, no session will begin any more and the daemon will end with the last, as an administrator \
                 asks{said}"
            ),
            (false, _) => {
                tracing::info!(target: "gtd::dispatcher", "sessions may begin, as an administrator asks{said}")
            }
        }
        let was_announced = self.notice.as_ref().is_some_and(|notice| notice.drains_at.is_some());
        let notice = if on { in_s > 0 || message.is_some() } else { was_announced };
        if notice {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let number = self.notice.as_ref().map_or(0, |notice| notice.number).wrapping_add(1).max(1);
            let drains_at = on.then(|| (now + after).as_secs_f64());
            self.notice = Some(Notice { number, drains_at, message });
            for session in self.connections.iter_mut().flatten().filter_map(|c| c.session.as_mut()) {
                session.set_notice(number);
            }
        }
        let sessions = self.connections.iter().flatten().filter(|c| c.session.is_some()).count() as u32;
        Ok(DaemonMessage::Draining { on, sessions, notice: self.notice.clone().filter(|_| notice) })
    }

    /// Begins to drain, if that was planned for this time.
    pub(super) fn drain_when_due(&mut self, now: Instant) {
        if self.drains_at.is_some_and(|at| at <= now) {
            (self.draining, self.drains_at) = (true, None);
            tracing::info!(target: "gtd::dispatcher", "no session begins any more, as was announced");
        }
    }

    /// The administrator's message in the notice in force, to be added to a sentence.
    pub(super) fn announced(&self) -> String {
        let notice = self.notice.as_ref().filter(|notice| notice.drains_at.is_some());
        notice.and_then(|notice| notice.message.as_ref()).map(|message| format!(": {message}")).unwrap_or_default()
    }

    /// Tells the clients of all sessions that a signal stops the daemon.
    pub(super) fn tell_sessions_of_the_stop(&mut self, signal: u32) {
        let by = if self.private { "by a signal" } else { "by its administrator" };
        let text = format!(
            "the GT daemon (pid {}) was stopped {by} (signal {signal}){}; its tensors are lost: create new ones when a \
             daemon runs again",
            std::process::id(),
            self.announced()
        );
        let refused = DaemonMessage::Refused(Refused::new(RefusalCode::ShuttingDown, text));
        let with_session = self.connections.iter().flatten().filter(|connection| connection.session.is_some());
        for slot in with_session.map(|connection| connection.slot).collect::<Vec<_>>() {
            self.answer(slot, &refused, &[]);
        }
    }
}
