//! File descriptors of the daemon: how many are in use, and how many are left to ordinary users.
//!
//! Users together may use the descriptors that the system allows the daemon but for a reserve. One user may use at most
//! half of those that are left, so there are always some for the next user. The reserve is for the daemon's own work
//! (files, new processes of workers), for handshakes, since only a hello tells the purpose of a connection, and for
//! administrators, who can then still see who has what, and end it.

use nix::sys::resource::{Resource, getrlimit};
use std::os::fd::{AsFd, AsRawFd};

/// The reserve of descriptors, if that is not more than [`RESERVED_PART`] of those that the system allows.
const RESERVED_MAX: u64 = 256;
/// The reserve is at most the limit divided by this.
const RESERVED_PART: u64 = 4;
/// There are at most as many open handshakes as the reserve divided by this; each has two descriptors.
const HANDSHAKES_PART: u64 = 4;
/// Descriptors of a connection: its socket, and its peer's process.
pub const OF_CONNECTION: u64 = 2;
/// Descriptors of a session besides: its doorbell and its lines, and those that are open while it is made.
pub const OF_SESSION: u64 = 2;
/// Descriptors of a connection by TCP besides: its socket, and its end of the connection to the dispatcher.
pub const OF_TCP: u64 = 3;

/// The descriptors of the process at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    in_use: u64,
    limit: u64,
}

impl Descriptors {
    /// The descriptors at present. `open` is one of them. Costs three system calls.
    pub fn now(open: impl AsFd) -> Descriptors {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
        // The kernel gives a new descriptor the lowest free number, so at least as many are in use.
        let in_use = rustix::io::fcntl_dupfd_cloexec(open, 0).map_or(limit, |probe| probe.as_raw_fd() as u64);
        Descriptors { in_use, limit }
    }

    /// The descriptors that ordinary users leave free.
    pub fn reserved(self) -> u64 {
        (self.limit / RESERVED_PART).min(RESERVED_MAX)
    }

    /// The most open handshakes, of `most` at all.
    pub fn handshakes_max(self, most: u64) -> u64 {
        (self.reserved() / HANDSHAKES_PART).clamp(1, most)
    }

    /// The reason to refuse a user who has `own` descriptors another `more`; none if there is room.
    pub fn refusal(self, own: u64, more: u64) -> Option<String> {
        let Descriptors { in_use, limit } = self;
        let reserved = self.reserved();
        let free = limit.saturating_sub(reserved).saturating_sub(in_use);
        if own + more <= free {
            return None;
        }
        Some(format!(
            "the daemon has {in_use} of {limit} descriptors open and keeps {reserved} for administrators, and this user's \
             connections have {own} of them: close some sessions (gtctl sessions lists them), or ask an administrator to \
             end some or to raise the limit (LimitNOFILE= of the daemon's unit)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_who_take_all_they_can_leave_some_to_others_and_to_administrators() {
        let limit = 1024;
        let mut in_use = 40;
        let mut of_user = Vec::new();
        for _ in 0..6 {
            let mut own = 0;
            while (Descriptors { in_use, limit }).refusal(own, 3).is_none() {
                (own, in_use) = (own + 3, in_use + 3);
            }
            of_user.push(own);
        }
        assert!(of_user[0] >= 360, "a user alone gets half: {of_user:?}");
        assert!(of_user.iter().all(|own| *own > 0), "{of_user:?}");
        assert!(in_use <= limit - 256, "{in_use}");
    }

    #[test]
    fn the_reserve_is_a_part_of_a_small_limit() {
        let reserved = |limit| Descriptors { in_use: 0, limit }.reserved();
        assert_eq!([128, 1024, 65536, u64::MAX].map(reserved), [32, 256, 256, 256]);
        let handshakes = |limit| Descriptors { in_use: 0, limit }.handshakes_max(64);
        assert_eq!([0, 128, 1024, 65536].map(handshakes), [1, 8, 64, 64]);
    }

    #[test]
    fn descriptors_in_use_are_counted() {
        let null = || std::fs::File::open("/dev/null").unwrap();
        let first = null();
        let before = Descriptors::now(&first);
        let many: Vec<_> = (0..100).map(|_| null()).collect();
        assert!(Descriptors::now(&first).in_use >= before.in_use.saturating_add(50).min(before.limit));
        drop(many);
    }
}
