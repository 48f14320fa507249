//! Tests on a real kernel: sealed segments, arenas, sessions, and processes that are killed.
#![cfg(not(loom))]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod arena;
mod broadcast;
mod port;
mod processes;
mod segment;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::time::Duration;

/// The longest wait of a test for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `fd` is readable or hung up.
fn wait_readable(fd: &impl AsFd) {
    let timeout = Timespec::try_from(PATIENCE).unwrap();
    let count = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)).unwrap();
    assert_eq!(count, 1, "nothing came");
}
