//! Accounts: the daemon's resources that the sessions of one user hold, besides the memory of tensors.
//!
//! Only the dispatcher changes an account, so its numbers need no atomic addition: they are atomics because ended
//! sessions, which refer to their accounts, are dropped by another thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

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

/// A token bucket: an amount that can be spent at once, and a rate at which it comes back.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    level: f64,
    size: f64,
    per_s: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket of `size`, into which `per_s` come back each second.
    pub fn new(size: f64, per_s: f64, now: Instant) -> TokenBucket {
        TokenBucket { level: size, size, per_s, at: now }
    }

    /// The amount that can be spent at the time `now`; negative if more was spent.
    pub fn level(&mut self, now: Instant) -> f64 {
        let elapsed_s = now.saturating_duration_since(self.at).as_secs_f64();
        (self.level, self.at) = ((self.level + elapsed_s * self.per_s).min(self.size), now.max(self.at));
        self.level
    }

    /// Spends `amount`.
    pub fn spend(&mut self, amount: f64) {
        self.level -= amount;
    }

    /// True if nothing was spent lately.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.level(now) >= self.size
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
    fn a_bucket_fills_at_its_rate() {
        let start = Instant::now();
        let after = |ms| start + std::time::Duration::from_millis(ms);
        let mut bucket = TokenBucket::new(10.0, 2.0, start);
        bucket.spend(12.0);
        assert_eq!(bucket.level(start), -2.0);
        assert_eq!(bucket.level(after(500)), -1.0);
        assert_eq!(bucket.level(after(2000)), 2.0);
        assert!(!bucket.is_full(after(5999)));
        assert!(bucket.is_full(after(60_000)));
    }

    #[test]
    fn users_who_take_all_they_can_leave_some_to_the_next() {
        let all = 64 << 30;
        let mut held = Vec::new();
        for _ in 0..12 {
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
