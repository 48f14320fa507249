//! A doorbell: an eventfd that one process rings to wake another out of `epoll`.

use crate::error::{Result, os};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::ReadWriteFlags;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An eventfd, non-blocking and close-on-exec. It latches: if it was rung before the owner sleeps, the owner wakes at
/// once.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// A new doorbell.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self).map_err(os("create a doorbell (eventfd)"))
    }

    /// Rings. Never blocks: at the counter's maximum the write fails, and the bell stays rung.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Resets the bell. True if it was rung.
    ///
    /// The peer shares the open file description and could make it blocking, so the read passes `RWF_NOWAIT`.
    pub fn silence(&self) -> bool {
        let mut count = [0u8; 8];
        rustix::io::preadv2(&self.0, &mut [IoSliceMut::new(&mut count)], u64::MAX, ReadWriteFlags::NOWAIT)
            .is_ok_and(|read| read == 8)
    }

    /// Another handle on the same bell, to send to the peer.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> Result<Self> {
        self.0.try_clone().map(Self).map_err(os("duplicate a doorbell"))
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Doorbell {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<Doorbell> for OwnedFd {
    fn from(bell: Doorbell) -> Self {
        bell.0
    }
}
