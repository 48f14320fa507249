//! Noticing `fork`. A forked child shares its parent's mappings, descriptors and cursors; using any
//! of them would corrupt the parent's session.

use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the one that first asked. One relaxed load after the
/// first call; compare with the value stored when a resource was made.
#[inline]
pub fn generation() -> u32 {
    static REGISTER: Once = Once::new();
    if !REGISTER.is_completed() {
        REGISTER.call_once(|| {
            // SAFETY: the handler only touches an atomic, which is async-signal-safe.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
    }
    GENERATION.load(Relaxed)
}

unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Relaxed);
    for place in &CLOSED {
        let fd = place.swap(NONE, Relaxed);
        if fd != NONE {
            // SAFETY: a system call. Whoever owned the number was a thread, which the child has not got.
            unsafe { libc::close(fd) };
        }
    }
}

/// No descriptor.
const NONE: i32 = -1;
/// What children close; more than so many are left open in them.
static CLOSED: [AtomicI32; 64] = [const { AtomicI32::new(NONE) }; 64];

/// Has forked children close `fd`, which only threads that they have not got use: the other end then sees the end of
/// this process, whatever children it has.
pub fn close_in_child(fd: i32) {
    generation();
    let _ = CLOSED.iter().any(|place| place.compare_exchange(NONE, fd, Relaxed, Relaxed).is_ok());
}

/// Undoes [`close_in_child`], before `fd` is closed.
pub fn keep_in_child(fd: i32) {
    let _ = CLOSED.iter().any(|place| place.compare_exchange(fd, NONE, Relaxed, Relaxed).is_ok());
}
