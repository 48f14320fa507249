//! The dispatcher's account of the daemon at one time, which other threads may read at leisure.

use crate::step_totals::{SessionTimes, StepTotals};
use gt_protocol::{CollectiveTraffic, SessionDetail, SessionRecord, StatusDocument, WorkerTraffic};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The users that are counted on their own. Those who come later are counted together, so that a daemon that runs for
/// years has a bounded number of label sets.
pub const USERS_MAX: usize = 100;

/// The daemon at one time.
#[derive(Default)]
pub struct DaemonSnapshot {
    /// Its status, with all sessions.
    pub status: StatusDocument,
    /// Steps that are queued or running, by worker.
    pub queued: Vec<u64>,
    /// The totals of the tape's events.
    pub totals: StepTotals,
    /// The times of the open sessions, by number.
    pub session_times: HashMap<u64, SessionTimes>,
    /// The totals of all sessions, those that have ended included.
    pub sessions: SessionTotals,
    /// The dispatcher's time for this snapshot.
    pub took: Duration,
}

/// One session in full.
pub struct SessionSnapshot {
    /// Its status, its user and its memory.
    pub detail: SessionDetail,
    /// Its operations and collectives, by worker.
    pub workers: Vec<WorkerTraffic>,
}

/// The work of the sessions of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UserTotals {
    /// Sessions.
    pub sessions: u64,
    /// The devices' time, seconds.
    pub device_s: f64,
    /// Instructions.
    pub instructions: u64,
    /// Instructions that failed.
    pub errors: u64,
    /// Tensor bytes that moved between programs and the daemon.
    pub bytes_moved: u64,
    /// Allocations that failed for want of memory, or because of a limit.
    pub out_of_memory: u64,
}

/// The collectives of workers, by the worker's number and the collective's name.
pub type CollectiveTotals = BTreeMap<(usize, &'static str), CollectiveTraffic>;

/// The work of sessions since the daemon started.
#[derive(Clone, Default)]
pub struct SessionTotals {
    /// By user id; none for all users after the first [`USERS_MAX`].
    pub users: BTreeMap<Option<u32>, UserTotals>,
    /// The collectives.
    pub collectives: CollectiveTotals,
}

impl SessionTotals {
    /// Adds a session with its record, the number of its failed allocations, and its collectives.
    pub fn add(&mut self, record: &SessionRecord, out_of_memory: u64, collectives: &CollectiveTotals) {
        let key = self.key(record.uid);
        let user = self.users.entry(key).or_default();
        user.sessions += 1;
        user.device_s += record.device_s;
        user.instructions += record.instructions;
        user.errors += record.errors;
        user.bytes_moved += record.bytes_moved;
        user.out_of_memory += out_of_memory;
        for (of, traffic) in collectives {
            *self.collectives.entry(*of).or_default() += *traffic;
        }
    }

    /// The key of a user, who is counted from now on.
    fn key(&self, uid: u32) -> Option<u32> {
        (self.users.contains_key(&Some(uid)) || self.users.len() < USERS_MAX).then_some(uid)
    }

    /// Begins to count a user, so that it has a place among the first [`USERS_MAX`].
    pub fn note_user(&mut self, uid: u32) {
        self.users.entry(self.key(uid)).or_default();
    }

    /// Forgets the collectives of a worker, whose number another one gets.
    pub fn forget_worker(&mut self, worker: usize) {
        self.collectives.retain(|(of, _), _| *of != worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_one_key_for_ever_and_late_ones_share_theirs() {
        let mut totals = SessionTotals::default();
        let record = |uid| SessionRecord { uid, device_s: 0.5, instructions: 2, ..SessionRecord::default() };
        let collectives = CollectiveTotals::from([((1, "all_reduce"), CollectiveTraffic { count: 2, bytes: 8 })]);
        for uid in 0..USERS_MAX as u32 + 5 {
            totals.note_user(uid);
        }
        for uid in (0..USERS_MAX as u32 + 5).rev() {
            totals.add(&record(uid), 1, &collectives);
        }
        assert_eq!(totals.users.len(), USERS_MAX + 1);
        let one = UserTotals { sessions: 1, device_s: 0.5, instructions: 2, out_of_memory: 1, ..UserTotals::default() };
        assert_eq!(totals.users[&Some(0)], one);
        assert_eq!(totals.users[&None].sessions, 5);
        assert_eq!(totals.collectives[&(1, "all_reduce")].count, 2 * (USERS_MAX as u64 + 5));
        totals.forget_worker(1);
        assert!(totals.collectives.is_empty());
    }
}
