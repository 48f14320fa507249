//! Idle arenas go back to the daemon, so that a program that once moved a large tensor and has waited since then does
//! not hold memory that others could share.
//!
//! A thread of the session looks at the arenas while there is more than a small one. An arena is idle if it was unused
//! at several looks in a row, and no block was allocated in it from the first to the last of them. The thread ends when
//! only a small arena is left, and is started again when the session gets another.

use gt_protocol::limits::ARENA_BYTES_MIN;
use gt_shm::ArenaAllocator;
use gt_shm::arena::UnusedArena;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The interval of the looks.
const LOOK_EVERY: Duration = Duration::from_millis(1500);
/// An arena that was unused at so many looks in a row is idle.
const IDLE_LOOKS: usize = 3;

/// A session with arenas, some of which may be idle.
pub(crate) trait ArenaOwner: Send + Sync + 'static {
    /// The allocator of the arenas.
    fn arenas(&self) -> &ArenaAllocator;
    /// The state of the thread that returns them.
    fn idle_arenas(&self) -> &IdleArenas;
    /// Whether the session has not ended.
    fn is_open(&self) -> bool;
    /// Returns an arena that is out of use to the daemon. True if the daemon has taken it back.
    fn return_arena(&self, number: u32) -> bool;
}

/// The state of a session's thread for idle arenas.
pub(crate) struct IdleArenas {
    /// Whether the daemon takes arenas back.
    can_return: bool,
    /// Whether the thread runs.
    runs: AtomicBool,
}

impl IdleArenas {
    pub(crate) fn new(can_return: bool) -> IdleArenas {
        IdleArenas { can_return, runs: AtomicBool::new(false) }
    }

    /// Starts the thread, unless it runs or has nothing to do. Called when the session has got another arena.
    pub(crate) fn look_after<S: ArenaOwner>(&self, session: &Arc<S>) {
        if !self.can_return || !has_more(&**session) || self.runs.swap(true, SeqCst) {
            return;
        }
        let session = Arc::downgrade(session);
        // Without a thread, the arenas stay until the session ends.
        let _ = std::thread::Builder::new().name("gt-arenas".into()).spawn(move || run(&session));
    }
}

/// Whether the session has more than a small arena.
fn has_more<S: ArenaOwner>(session: &S) -> bool {
    session.arenas().stats().total_bytes > ARENA_BYTES_MIN
}

fn run<S: ArenaOwner>(session: &Weak<S>) {
    // The arenas that were unused at the last looks, the newest last.
    let mut seen: Vec<Vec<UnusedArena>> = Vec::new();
    loop {
        std::thread::sleep(LOOK_EVERY);
        let Some(session) = session.upgrade().filter(|session| session.is_open()) else { return };
        seen.push(session.arenas().unused(ARENA_BYTES_MIN));
        if seen.len() > IDLE_LOOKS {
            seen.remove(0);
        }
        if seen.len() == IDLE_LOOKS {
            let is_idle = |arena: &&UnusedArena| seen.iter().all(|unused| unused.contains(arena));
            seen[0].iter().filter(is_idle).for_each(|arena| return_to_daemon(&*session, *arena));
        }
        if !has_more(&*session) {
            let runs = &session.idle_arenas().runs;
            runs.store(false, SeqCst);
            // Another thread may have got an arena just before the flag was cleared.
            if !has_more(&*session) || runs.swap(true, SeqCst) {
                return;
            }
        }
    }
}

fn return_to_daemon<S: ArenaOwner>(session: &S, idle: UnusedArena) {
    let Some(withdrawn) = session.arenas().withdraw(idle) else { return };
    if session.return_arena(withdrawn.number()) {
        tracing::debug!(target: "gt_client", segment = withdrawn.number(), "an idle arena was returned");
        withdrawn.release();
    }
}
