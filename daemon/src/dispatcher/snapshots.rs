//! Answers to the web's thread: snapshots of the daemon and of sessions.

use super::Dispatcher;
use crate::control_connection::ControlConnection;
use crate::session::Session;
use crate::web::desk::WebQuestion;
use crate::web::snapshot::{DaemonSnapshot, SessionSnapshot, SessionTotals};
use gt_protocol::DaemonMessage;
use std::time::Instant;

impl Dispatcher {
    /// Answers the questions of the web's thread.
    pub(super) fn web_asks(&mut self) {
        while let Some(question) = self.web.as_mut().and_then(|web| web.question()) {
            // The thread may have given up on an answer, which is of no interest.
            match question {
                WebQuestion::Daemon(answer) => {
                    let _ = answer.send(self.snapshot());
                }
                WebQuestion::Session(id, answer) => {
                    let _ = answer.send(self.session_snapshot(id));
                }
            }
        }
    }

    fn snapshot(&mut self) -> DaemonSnapshot {
        let begun = Instant::now();
        let status = self.status();
        let mut queued = vec![0; self.links.len()];
        for session in self.connections.iter().flatten().filter_map(|c| c.session.as_ref()) {
            for (all, own) in queued.iter_mut().zip(session.queued_at()) {
                *all += own;
            }
        }
        let mut sessions = self.web.as_ref().map(|web| web.ended.clone()).unwrap_or_default();
        for connection in self.connections.iter().flatten() {
            add_session(&mut sessions, connection);
        }
        let (totals, session_times) = match self.tape.totals() {
            Some(recorder) => (recorder.totals().clone(), recorder.session_times()),
            None => Default::default(),
        };
        DaemonSnapshot { status, queued, totals, session_times, sessions, took: begun.elapsed() }
    }

    fn session_snapshot(&mut self, id: u64) -> Option<SessionSnapshot> {
        let Ok(DaemonMessage::Session(detail)) = self.session_detail(id) else { return None };
        let slot = *self.slot_of_serial.get(&id)?;
        let DaemonMessage::Traffic { workers, .. } = self.traffic(slot).ok()? else { return None };
        Some(SessionSnapshot { detail: *detail, workers })
    }

    /// Counts a session that begins, for a user who may be new.
    pub(super) fn count_user(&mut self, uid: u32) {
        if let Some(web) = &mut self.web {
            web.ended.note_user(uid);
        }
    }

    /// Adds a session that ends to the totals.
    pub(super) fn count_ended(&mut self, connection: &ControlConnection) {
        if let Some(web) = &mut self.web {
            add_session(&mut web.ended, connection);
        }
    }

    /// Forgets the totals of a worker, whose number another one gets.
    pub(super) fn forget_worker(&mut self, worker: usize) {
        self.tape.forget_worker(worker);
        if let Some(web) = &mut self.web {
            web.ended.forget_worker(worker);
        }
    }
}

fn add_session(totals: &mut SessionTotals, connection: &ControlConnection) {
    if let (Some(record), Some(session)) = (connection.record(), &connection.session) {
        totals.add(&record, Session::out_of_memory(session), session.collectives());
    }
}
