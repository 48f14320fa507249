//! The signals by which a user ends a command that runs for long, so that it can finish what it does.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// SIGINT, SIGTERM and SIGHUP, blocked and waiting to be looked at.
pub struct StopSignals(Option<SignalFd>);

impl StopSignals {
    /// Blocks the signals in this thread and those that it starts. If the system refuses, they end the program as ever.
    pub fn block() -> StopSignals {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let blocked = signals.thread_block().and_then(|()| SignalFd::with_flags(&signals, flags));
        StopSignals(blocked.ok())
    }

    /// Whether one of them has come.
    pub fn have_come(&self) -> bool {
        self.0.as_ref().is_some_and(|signals| matches!(signals.read_signal(), Ok(Some(_))))
    }
}
