//! A thread that drops ended sessions, and returns free memory to the system: both take long for a million tensors, and
//! would hold up the dispatcher.

use crate::session::Session;
use gt_shm::Arena;
use std::sync::mpsc::{Sender, channel};

/// The dispatcher's handle of the thread.
pub struct Janitor(Sender<Chore>);

enum Chore {
    Drop(Box<Session>),
    Unmap(Arena),
    TrimHeap,
}

impl Janitor {
    /// Starts the thread, which ends when the handle is dropped.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start() -> std::io::Result<Janitor> {
        let (sender, receiver) = channel();
        let work = move || {
            for chore in receiver {
                match chore {
                    Chore::Drop(session) => drop(session),
                    Chore::Unmap(arena) => drop(arena),
                    Chore::TrimHeap => gt_cpu::trim_heap(),
                }
            }
        };
        std::thread::Builder::new().name("gt-janitor".into()).spawn(work)?;
        Ok(Janitor(sender))
    }

    /// Drops `session` in the thread.
    pub fn dispose(&self, session: Session) {
        let _ = self.0.send(Chore::Drop(Box::new(session)));
    }

    /// Unmaps a returned arena in the thread.
    pub fn unmap(&self, arena: Arena) {
        let _ = self.0.send(Chore::Unmap(arena));
    }

    /// Returns free pages of the heap to the system, in the thread.
    pub fn trim_heap(&self) {
        let _ = self.0.send(Chore::TrimHeap);
    }
}
