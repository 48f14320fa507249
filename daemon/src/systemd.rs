//! The interface to systemd: socket activation, and notifications that the daemon is ready and alive.

use gt_shm::Socket;
use rustix::net::{AddressFamily, SocketType, sockopt};
use sd_notify::NotifyState;
use std::error::Error;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Watchdog notifications per watchdog interval; one would suffice.
const PINGS: u32 = 3;

/// The listening socket that systemd passed to this process, if it did.
///
/// # Errors
/// The socket is of another kind, or there are several.
pub fn take_listener() -> Result<Option<Socket>, Box<dyn Error>> {
    let mut fds = sd_notify::listen_fds()?;
    let Some(fd) = fds.next() else { return Ok(None) };
    if fds.next().is_some() {
        return Err("systemd gave several sockets, and one is expected: look at gtd.socket".into());
    }
    // SAFETY: systemd passed the descriptor to this process, as `LISTEN_PID` confirms, and nothing else here owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let is_ours = sockopt::socket_domain(&fd)? == AddressFamily::UNIX
        && sockopt::socket_type(&fd)? == SocketType::SEQPACKET
        && sockopt::socket_acceptconn(&fd)?;
    if !is_ours {
        return Err("systemd gave a socket of another kind: gtd.socket needs ListenSequentialPacket=PATH".into());
    }
    Ok(Some(Socket::from(fd)))
}

/// Notifies systemd of the daemon's state; does nothing without systemd.
pub struct Notifier {
    /// The interval of watchdog notifications, and the time of the next one.
    watchdog: Option<(Duration, Instant)>,
    is_on: bool,
}

impl Notifier {
    /// The notifier of a daemon that systemd may have started.
    pub fn new() -> Notifier {
        let every = sd_notify::watchdog_enabled().map(|within| within / PINGS);
        Notifier { watchdog: every.map(|every| (every, Instant::now())), is_on: true }
    }

    /// A notifier that does nothing, for a private daemon: if its environment names a service, that is its client's.
    pub fn silent() -> Notifier {
        Notifier { watchdog: None, is_on: false }
    }

    fn notify(&self, states: &[NotifyState<'_>]) {
        if self.is_on
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::warn!(target: "gtd::dispatcher", %error, "systemd could not be told how the daemon is");
        }
    }

    /// Notifies that the daemon serves. `status` is a text for users.
    pub fn ready(&self, status: &str) {
        self.notify(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Notifies that the daemon reads its configuration; [`ready`](Self::ready) must follow.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.notify(&[NotifyState::Reloading, now]),
            Err(_) => self.notify(&[NotifyState::Reloading]),
        }
    }

    /// Notifies that the daemon ends.
    pub fn stopping(&self) {
        self.notify(&[NotifyState::Stopping]);
    }

    /// The time at which [`Notifier::alive`] must be called next, if a watchdog is set.
    pub fn due(&self) -> Option<Instant> {
        self.watchdog.map(|(_, due)| due)
    }

    /// Notifies the watchdog that the dispatcher's loop is alive, if a notification is due.
    pub fn alive(&mut self, now: Instant) {
        if let Some((every, due)) = &mut self.watchdog
            && now >= *due
        {
            *due = now + *every;
            self.notify(&[NotifyState::Watchdog]);
        }
    }
}

impl Default for Notifier {
    fn default() -> Notifier {
        Notifier::new()
    }
}
