//! The dispatcher's time for messages on control sockets, by user.
//!
//! A user whose messages took more than a user's part of the dispatcher's time is read later, as long as others have
//! sessions: the messages wait in the socket, and nobody else waits for them.

use crate::account::TokenBucket;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The part of the dispatcher's time for one user's messages in the long run.
const TIME_PER_S: f64 = 0.05;
/// The time that one user's messages may take at once, seconds: some hundred messages.
const TIME_MAX_S: f64 = 0.05;

/// The time that was spent for each user, and the connections that are read later.
#[derive(Default)]
pub struct ControlBudget {
    users: HashMap<u32, TokenBucket>,
    paused: Vec<u64>,
}

impl ControlBudget {
    /// True if the messages of user `uid` have taken more than their part.
    pub fn is_spent(&mut self, uid: u32, now: Instant) -> bool {
        self.users.get_mut(&uid).is_some_and(|bucket| bucket.level(now) <= 0.0)
    }

    /// Counts that a message of user `uid` has taken `time`.
    pub fn spend(&mut self, uid: u32, time: Duration, now: Instant) {
        let bucket = self.users.entry(uid).or_insert_with(|| TokenBucket::new(TIME_MAX_S, TIME_PER_S, now));
        bucket.spend(time.as_secs_f64());
    }

    /// Notes that a connection is read later.
    pub fn pause(&mut self, serial: u64) {
        self.paused.push(serial);
    }

    /// The connections that are read later, which are no longer noted. Forgets users who spent nothing lately.
    pub fn take_paused(&mut self, now: Instant) -> Vec<u64> {
        self.users.retain(|_, bucket| !bucket.is_full(now));
        std::mem::take(&mut self.paused)
    }

    /// True if connections wait to be read.
    pub fn has_paused(&self) -> bool {
        !self.paused.is_empty()
    }
}

/// The processor's time that this thread has taken.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, which is borrowed for it, and nothing else.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
