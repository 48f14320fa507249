//! Futexes that work between processes. (Crates with a safe interface offer only process-private ones.)

use crate::sync::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `expected`, for at most `timeout`. Spurious wake-ups are possible: the caller must check the
/// word again. Works on read-only mappings.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
    let timespec = timeout.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: t.subsec_nanos().into(),
    });
    let timespec = timespec.as_ref().map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: FUTEX_WAIT reads `word`, which is borrowed for the call, and the timeout, which is null or points to the
    // timespec in this stack frame.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, timespec);
    }
}

/// Wakes up to `waiters_max` threads, of any process, that wait on `word`.
pub fn wake(word: &AtomicU32, waiters_max: u32) {
    // SAFETY: FUTEX_WAKE uses the address only as a key: it does not access the memory.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, waiters_max.min(i32::MAX as u32));
    }
}
