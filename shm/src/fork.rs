//! Detection of `fork`. A forked child shares its parent's mappings and descriptors, and has copies of its cursors;
//! using them would corrupt the parent's session.

use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the process that called this first and this process. Store it with a resource, and
/// compare to see whether the resource is the parent's. Costs one relaxed load after the first call.
#[inline]
pub fn generation() -> u32 {
    static REGISTER: Once = Once::new();
    if !REGISTER.is_completed() {
        REGISTER.call_once(|| {
            // SAFETY: `in_child` only uses atomics and `close`, which are async-signal-safe, as a fork handler in a
            // multi-threaded process requires.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
    }
    GENERATION.load(Relaxed)
}

unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Relaxed);
    for entry in &CLOSED {
        let fd = entry.swap(NONE, Relaxed);
        if fd != NONE {
            // SAFETY: `close_in_child` requires that only threads of the parent use the descriptor, and the child does
            // not have those threads, so nothing in the child uses the descriptor afterwards.
            unsafe { libc::close(fd) };
        }
    }
}

/// An unused entry of `CLOSED`.
const NONE: i32 = -1;
/// The descriptors that children close. If the table is full, further ones stay open in children.
static CLOSED: [AtomicI32; 64] = [const { AtomicI32::new(NONE) }; 64];

/// Makes forked children close `fd`, which only threads of this process may use. The peer then sees a hang-up when this
/// process ends, even if it has children.
pub fn close_in_child(fd: i32) {
    generation();
    let _ = CLOSED.iter().any(|entry| entry.compare_exchange(NONE, fd, Relaxed, Relaxed).is_ok());
}

/// Undoes [`close_in_child`]. Call it before closing `fd`.
pub fn keep_in_child(fd: i32) {
    let _ = CLOSED.iter().any(|entry| entry.compare_exchange(fd, NONE, Relaxed, Relaxed).is_ok());
}
