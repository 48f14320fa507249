//! Accounts: the daemon's resources that the sessions of one user hold, besides the memory of tensors.
//!
//! Only the dispatcher changes an account, so its numbers need no atomic addition: they are atomics because ended
//! sessions, which refer to their accounts, are dropped by another thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A user's sessions may together hold this many times the memory for arenas that is left to all users.
const ARENA_SHARE_OF_FREE: u64 = 3;

/// The resources that the sessions of one user hold.
#[derive(Debug, Default)]
pub struct UserAccount {
    tensors: AtomicU64,
    arena_bytes: AtomicU64,
}

fn change(number: &AtomicU64, counted: &mut u64, held: u64) -> u64 {
    let total = number.load(Relaxed).saturating_sub(*counted) + held;
    number.store(total, Relaxed);
    *counted = held;
    total
}

impl UserAccount {
    /// Counts that a session holds `held` tensors, after `counted` before. Returns the tensors of all sessions.
    #[inline]
    pub fn count_tensors(&self, counted: &mut u64, held: u64) -> u64 {
        if *counted == held { self.tensors() } else { change(&self.tensors, counted, held) }
    }

    /// Counts that a session's arenas have `held` bytes, after `counted` before.
    pub fn count_arena_bytes(&self, counted: &mut u64, held: u64) {
        change(&self.arena_bytes, counted, held);
    }

    /// Tensors of all sessions.
    pub fn tensors(&self) -> u64 {
        self.tensors.load(Relaxed)
    }

    /// Bytes of the arenas of all sessions.
    pub fn arena_bytes(&self) -> u64 {
        self.arena_bytes.load(Relaxed)
    }
}

/// How much the arenas of one user's sessions may grow, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaRoom {
    /// Held by the user's sessions.
    pub held: u64,
    /// The user's limit.
    pub limit: u64,
    /// The rest of the memory for all users' arenas that this user may take.
    pub left: u64,
}

impl ArenaRoom {
    /// The room of a user whose sessions hold `held` bytes and may hold `limit`, while `free` bytes are left to all
    /// users. With a *dynamic threshold* (Choudhury and Hahne 1998), a user may hold [`ARENA_SHARE_OF_FREE`] times the
    /// memory that is left then: a user alone gets three quarters of it, and some is left to the next one, however many
    /// there are. The user of a private daemon, which nobody shares, may take all.
    pub fn new(held: u64, limit: u64, free: u64, private: bool) -> ArenaRoom {
        let most = free.saturating_mul(ARENA_SHARE_OF_FREE).saturating_sub(held) / (1 + ARENA_SHARE_OF_FREE);
        ArenaRoom { held, limit, left: if private { free } else { most } }
    }

    /// True if the arenas may grow by `bytes`.
    pub fn has(self, bytes: u64) -> bool {
        bytes <= self.left && self.held.checked_add(bytes).is_some_and(|total| total <= self.limit)
    }

    /// The most that the user's arenas may hold at present.
    pub fn most(self) -> u64 {
        self.limit.min(self.held.saturating_add(self.left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_the_sum_of_its_sessions() {
        let account = UserAccount::default();
        let (mut one, mut two) = (0, 0);
        assert_eq!(account.count_tensors(&mut one, 5), 5);
        assert_eq!(account.count_tensors(&mut two, 3), 8);
        assert_eq!(account.count_tensors(&mut one, 1), 4);
        assert_eq!(account.count_tensors(&mut two, 0), 1);
        assert_eq!((one, two, account.tensors()), (1, 0, 1));
    }

    #[test]
    fn users_who_take_all_they_can_leave_some_to_the_next() {
        let all = 64 << 30;
        let mut held = Vec::new();
        for _ in 0..20 {
            let free = all - held.iter().sum::<u64>();
            let room = ArenaRoom::new(0, u64::MAX, free, false);
            assert!(room.left > 0 && !room.has(room.left + 1));
            held.push(room.left);
        }
        assert_eq!(held[0], all / 4 * 3);
        // A user who holds more than the others could get gets nothing more.
        let free = all - held.iter().sum::<u64>();
        assert_eq!(ArenaRoom::new(held[0], u64::MAX, free, false).left, 0);
        assert_eq!(ArenaRoom::new(0, u64::MAX, all, true).left, all);
    }
}
