//! What systemd gives and is told: the listening socket, that the daemon is ready, and that it is alive.

use gt_shm::Socket;
use rustix::net::{AddressFamily, SocketType, sockopt};
use sd_notify::NotifyState;
use std::error::Error;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Pings in the time within which one must come.
const PINGS: u32 = 3;

/// The socket that systemd listens on and gave to this process, if it did.
///
/// # Errors
/// If it is another kind of socket, or there are several.
pub fn take_listener() -> Result<Option<Socket>, Box<dyn Error>> {
    let mut fds = sd_notify::listen_fds()?;
    let Some(fd) = fds.next() else { return Ok(None) };
    if fds.next().is_some() {
        return Err("systemd gave several sockets, and one is expected: look at gtd.socket".into());
    }
    // SAFETY: systemd opened it for this process alone, says `LISTEN_PID`; nothing here knows of it yet.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let is_ours = sockopt::socket_domain(&fd)? == AddressFamily::UNIX
        && sockopt::socket_type(&fd)? == SocketType::SEQPACKET
        && sockopt::socket_acceptconn(&fd)?;
    if !is_ours {
        return Err("systemd gave a socket of another kind: gtd.socket needs ListenSequentialPacket=PATH".into());
    }
    Ok(Some(Socket::from(fd)))
}

/// Tells systemd how the daemon is; where there is none, nobody.
pub struct Notifier {
    /// How often to say that the daemon is alive, and when to do so next.
    watchdog: Option<(Duration, Instant)>,
    is_on: bool,
}

impl Notifier {
    /// For a daemon that systemd may have started.
    pub fn new() -> Notifier {
        let every = sd_notify::watchdog_enabled().map(|within| within / PINGS);
        Notifier { watchdog: every.map(|every| (every, Instant::now())), is_on: true }
    }

    /// For a daemon that a client started, maybe within a service of systemd's that is none of its business.
    pub fn silent() -> Notifier {
        Notifier { watchdog: None, is_on: false }
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if self.is_on
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::warn!(target: "gtd::dispatcher", %error, "systemd could not be told how the daemon is");
        }
    }

    /// The daemon serves; `status` is for people.
    pub fn ready(&self, status: &str) {
        self.tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The daemon reads its configuration, and says that it is ready after that.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(_) => self.tell(&[NotifyState::Reloading]),
        }
    }

    /// The daemon ends.
    pub fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]);
    }

    /// When [`Notifier::alive`] has to be called next, if ever.
    pub fn due(&self) -> Option<Instant> {
        self.watchdog.map(|(_, due)| due)
    }

    /// The loop that serves clients has come by. Says so if it is time.
    pub fn alive(&mut self, now: Instant) {
        if let Some((every, due)) = &mut self.watchdog
            && now >= *due
        {
            *due = now + *every;
            self.tell(&[NotifyState::Watchdog]);
        }
    }
}

impl Default for Notifier {
    fn default() -> Notifier {
        Notifier::new()
    }
}
