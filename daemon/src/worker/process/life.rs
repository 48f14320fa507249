//! Heartbeats, by which the daemon knows that a worker's process runs, and lifelines, by which it can kill the process
//! of any user.
//!
//! A thread of the process sends a heartbeat every half second, however long a step takes. If steps are queued and no
//! heartbeat comes for about ten seconds, as from a stopped process, the daemon kills the process; otherwise the other
//! ranks of the worker's groups would wait for ever. Missing heartbeats do not count while nothing is queued.
//!
//! The same thread takes the daemon's cancellations, since the worker's loop cannot while a step computes.
//!
//! The daemon may not send signals to a process of another user. So each process gives the daemon a lifeline: a socket
//! whose readiness raises SIGKILL in the process (`O_ASYNC` with `F_SETSIG`), whether it runs or is stopped.

use gt_ops::TensorId;
use gt_protocol::NodeLink;
use gt_shm::Socket;
use gt_shm::socket::Received;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The period of heartbeats.
pub const BEAT_EVERY: Duration = Duration::from_millis(500);
/// The interval between the daemon's checks of the heartbeats of busy workers.
pub const CHECK_EVERY: Duration = Duration::from_secs(1);
/// The number of checks in a row without a heartbeat after which a warning is logged.
const SILENT_CHECKS_LOGGED: u32 = 3;
/// The number of such checks after which the process is killed. Checks are counted and not seconds, so that a process
/// which was stopped together with the daemon has time to go on.
pub const SILENT_CHECKS_MAX: u32 = 10;
/// The most bytes of another message than a heartbeat, which is a [`NodeLink`] in JSON.
const LINK_BYTES_MAX: usize = 2048;
/// The most heartbeats that one check reads; more may have come since the last check.
const BEATS_MAX: usize = 1024;
/// A heartbeat.
pub const BEAT: &[u8] = b".";
/// A cancellation: the session and the id, each little-endian.
pub const CANCELLATION_BYTES: usize = 16;
/// The command of `fcntl` that sets the signal for events on a descriptor.
const F_SETSIG: libc::c_int = 10;

/// The two ends of a process's lifeline. The daemon holds a copy of `given`.
pub struct Lifeline {
    own: Socket,
    given: Socket,
}

impl Lifeline {
    /// A lifeline that kills this process.
    ///
    /// # Errors
    /// The system refuses to create or configure the sockets.
    pub fn new() -> std::io::Result<Lifeline> {
        let (own, given) = Socket::pair().map_err(std::io::Error::other)?;
        let fd = own.as_fd().as_raw_fd();
        for (what, value) in [
            (libc::F_SETOWN, std::process::id() as libc::c_int),
            (F_SETSIG, libc::SIGKILL),
            (libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK),
        ] {
            // SAFETY: `fd` is open, as `own` holds it, and each of these commands takes an integer argument.
            if unsafe { libc::fcntl(fd, what, value) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(Lifeline { own, given })
    }

    /// The end that the daemon gets a copy of.
    pub fn end(&self) -> std::os::fd::BorrowedFd<'_> {
        self.given.as_fd()
    }

    /// Starts to send heartbeats to the daemon at the other end of `socket`, and to call `cancel` with the session and
    /// the id in each message of [`cancel_below`]. What `measured` returns is sent as well.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn beat(
        self,
        socket: &Socket,
        cancellations: Socket,
        cancel: impl Fn(u64, TensorId) + Send + 'static,
        measured: impl Fn() -> Option<NodeLink> + Send + 'static,
    ) -> std::io::Result<()> {
        let socket = Socket::from(socket.as_fd().try_clone_to_owned()?);
        let beats = move || {
            // Both ends stay open, as closing one would be an event on the other.
            let _lifeline = (&self.own, &self.given);
            let mut unsent: Option<Vec<u8>> = None;
            loop {
                let next_link = || measured().and_then(|link| serde_json::to_vec(&link).ok());
                unsent = unsent.or_else(next_link);
                while let Some(link) = &unsent
                    && socket.send(link, &[], Some(Duration::ZERO)).is_ok()
                {
                    unsent = next_link();
                }
                // This fails if unread heartbeats fill the socket, or if the daemon has ended, which the worker notices
                // elsewhere.
                let _ = socket.send(BEAT, &[], Some(Duration::ZERO));
                let next = Instant::now() + BEAT_EVERY;
                let mut message = [0; CANCELLATION_BYTES];
                let left = || next.saturating_duration_since(Instant::now());
                while !left().is_zero() {
                    match cancellations.recv(&mut message, 0, Some(left())) {
                        Ok(Received { len: CANCELLATION_BYTES, .. }) => {
                            let (session, id) = cancellation_of(&message);
                            cancel(session, id);
                        }
                        // The time is over, or the daemon has ended, which the worker notices elsewhere.
                        _ => std::thread::sleep(left()),
                    }
                }
            }
        };
        std::thread::Builder::new().name("gt-beats".into()).spawn(beats).map(drop)
    }
}

/// Kills the process at the other end of `lifeline`.
pub fn end(lifeline: &OwnedFd) {
    // The write fails if the process has ended already.
    let _ = rustix::io::write(lifeline, BEAT);
}

/// Tells the process at the other end of `cancellations` that instructions of `session` with lower ids than `id` are
/// cancelled. Does not wait: to a process that has not read the last messages, nothing may be sent.
pub fn cancel_below(cancellations: &Socket, session: u64, id: TensorId) {
    let mut message = [0; CANCELLATION_BYTES];
    message[..8].copy_from_slice(&session.to_le_bytes());
    message[8..].copy_from_slice(&id.to_le_bytes());
    let _ = cancellations.send(&message, &[], Some(Duration::ZERO));
}

/// The session and the id in a message of [`cancel_below`].
pub fn cancellation_of(message: &[u8; CANCELLATION_BYTES]) -> (u64, TensorId) {
    let [session, id] = [0, 8].map(|at| std::array::from_fn(|i| message[at + i]));
    (u64::from_le_bytes(session), u64::from_le_bytes(id))
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The process runs or has nothing to do, or this check without a heartbeat calls for no action.
    Alive,
    /// No heartbeat for some checks in a row; a warning is due.
    Silent,
    /// No heartbeat for so long that the process must be killed.
    Lost,
}

/// The daemon's count of checks without a heartbeat.
#[derive(Debug, Default)]
pub struct LifeWatch {
    silent_checks: u32,
}

impl LifeWatch {
    /// Reads the heartbeats of the process at the other end of `socket`, which has steps queued if `busy`. Calls
    /// `measured` with the links that the process has measured.
    pub fn check(&mut self, socket: &Socket, busy: bool, measured: impl Fn(NodeLink)) -> Liveness {
        let mut message = [0; LINK_BYTES_MAX];
        let mut beats = 0;
        while beats < BEATS_MAX
            && let Ok(Received { len, .. }) = socket.recv(&mut message, 0, Some(Duration::ZERO))
        {
            beats += 1;
            if len > BEAT.len()
                && let Ok(link) = serde_json::from_slice(&message[..len])
            {
                measured(link);
            }
        }
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
    fn only_a_busy_and_silent_process_is_lost() {
        let (daemon, process) = Socket::pair().unwrap();
        let mut watch = LifeWatch::default();
        let mut looks = |busy, count| (0..count).map(|_| watch.check(&daemon, busy, |_| ())).collect::<Vec<_>>();
        assert_eq!(looks(false, 20), [Liveness::Alive; 20]);
        let silence = looks(true, 9);
        assert_eq!(silence.iter().filter(|seen| **seen == Liveness::Silent).count(), 1);
        assert!(!silence.contains(&Liveness::Lost));
        process.send(BEAT, &[], None).unwrap();
        assert_eq!(looks(true, 1), [Liveness::Alive]);
        assert_eq!(looks(true, 10).last(), Some(&Liveness::Lost));
    }

    #[test]
    fn a_link_that_a_process_has_measured_comes_with_its_heartbeats() {
        let (daemon, process) = Socket::pair().unwrap();
        let (_daemons, cancellations) = Socket::pair().unwrap();
        let link = NodeLink { from: "node1".into(), to: "node2".into(), latency_ns: 7, ..NodeLink::default() };
        let measured = std::sync::Mutex::new(vec![link.clone()]);
        let lifeline = Lifeline::new().unwrap();
        lifeline.beat(&process, cancellations, |_, _| (), move || measured.lock().unwrap().pop()).unwrap();
        let found = std::cell::RefCell::new(Vec::new());
        let begun = Instant::now();
        while found.borrow().is_empty() {
            LifeWatch::default().check(&daemon, true, |link| found.borrow_mut().push(link));
            assert!(begun.elapsed() < Duration::from_secs(60), "the link was not reported");
            std::thread::yield_now();
        }
        assert_eq!(*found.borrow(), [link]);
    }
}
