//! Signs of life: how the daemon knows that a worker's process still runs, and how it ends one that may be anybody's.
//!
//! A thread of the process sends a beat every so often, however long the step takes that another thread is at. Where
//! steps are queued and no beat has come for long, as from a process that was stopped, the worker is ended like one
//! that failed: whoever waits for it, in a group for example, would wait for ever. While nothing is queued, nobody
//! looks.
//!
//! The daemon may not send signals to a process of another user, so each process gives it a lifeline: a socket at which
//! any word ends that process, whether it runs or is stopped, by its own right.

use gt_shm::Socket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

/// How often a process shows that it runs.
const BEAT_EVERY: Duration = Duration::from_millis(500);
/// How often the daemon looks whether one that has work did.
pub const CHECK_EVERY: Duration = Duration::from_secs(1);
/// After so many looks in a row without a beat it is said in the log,
const SILENT_CHECKS_LOGGED: u32 = 3;
/// and after so many the process is ended. What counts is looks: when the daemon was stopped too, it has time to go on.
const SILENT_CHECKS_MAX: u32 = 10;
/// Beats that are taken in at one look; more may have come while nobody looked.
const BEATS_MAX: usize = 1024;
const BEAT: &[u8] = b".";
/// Of `fcntl`: which signal tells of what happens at a descriptor.
const F_SETSIG: libc::c_int = 10;

/// The process's side: two ends of the lifeline, of which the daemon has a copy of the second.
pub struct Lifeline {
    own: Socket,
    given: Socket,
}

impl Lifeline {
    /// Makes one of this process's.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new() -> std::io::Result<Lifeline> {
        let (own, given) = Socket::pair().map_err(std::io::Error::other)?;
        let fd = own.as_fd().as_raw_fd();
        for (what, value) in [
            (libc::F_SETOWN, std::process::id() as libc::c_int),
            (F_SETSIG, libc::SIGKILL),
            (libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK),
        ] {
            // SAFETY: changes how a descriptor of this process behaves, by numbers.
            if unsafe { libc::fcntl(fd, what, value) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(Lifeline { own, given })
    }

    /// What the daemon is to have of it.
    pub fn end(&self) -> std::os::fd::BorrowedFd<'_> {
        self.given.as_fd()
    }

    /// Shows the daemon at the other end of `socket` that this process runs, from now on.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn beat(self, socket: &Socket) -> std::io::Result<()> {
        let socket = Socket::from(socket.as_fd().try_clone_to_owned()?);
        let beats = move || {
            // Both stay open: an end that nobody has any more would be a word, too.
            let _lifeline = (&self.own, &self.given);
            loop {
                // There is no room where nobody looks, and nobody listens where the daemon ends: others see to that.
                let _ = socket.send(BEAT, &[], Some(Duration::ZERO));
                std::thread::sleep(BEAT_EVERY);
            }
        };
        std::thread::Builder::new().name("gt-beats".into()).spawn(beats).map(drop)
    }
}

/// Ends the process whose lifeline's end this is.
pub fn end(lifeline: &OwnedFd) {
    // Fails if it has ended.
    let _ = rustix::io::write(lifeline, BEAT);
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Nothing to say.
    Alive,
    /// No beat for a while.
    Silent,
    /// None for so long that it is to be ended.
    Lost,
}

/// The daemon's side.
#[derive(Debug, Default)]
pub struct LifeWatch {
    silent_checks: u32,
}

impl LifeWatch {
    /// Looks whether the process at the other end of `socket`, which has something to do if it is `busy`, has beaten.
    pub fn check(&mut self, socket: &Socket, busy: bool) -> Liveness {
        let mut word = [0; 8];
        let beats = std::iter::from_fn(|| socket.recv(&mut word, 0, Some(Duration::ZERO)).ok()).take(BEATS_MAX).count();
        if beats > 0 || !busy {
            self.silent_checks = 0;
            return Liveness::Alive;
        }
        self.silent_checks += 1;
        match self.silent_checks {
            SILENT_CHECKS_LOGGED => Liveness::Silent,
            SILENT_CHECKS_MAX => Liveness::Lost,
            _ => Liveness::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_has_work_and_is_silent_is_lost() {
        let (daemon, process) = Socket::pair().unwrap();
        let mut watch = LifeWatch::default();
        let mut looks = |busy, count| (0..count).map(|_| watch.check(&daemon, busy)).collect::<Vec<_>>();
        assert_eq!(looks(false, 20), [Liveness::Alive; 20]);
        let silence = looks(true, 9);
        assert_eq!(silence.iter().filter(|seen| **seen == Liveness::Silent).count(), 1);
        assert!(!silence.contains(&Liveness::Lost));
        process.send(BEAT, &[], None).unwrap();
        assert_eq!(looks(true, 1), [Liveness::Alive]);
        assert_eq!(looks(true, 10).last(), Some(&Liveness::Lost));
    }
}
