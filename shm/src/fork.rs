//! Noticing `fork`. A forked child shares its parent's mappings, descriptors and cursors; using any
//! of them would corrupt the parent's session.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

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
}
