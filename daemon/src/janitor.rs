//! A thread that drops ended sessions: freeing a table of a million tensors would hold up the dispatcher.

use crate::session::Session;
use std::sync::mpsc::{Sender, channel};

/// The dispatcher's handle of the thread.
pub struct Janitor(Sender<Session>);

impl Janitor {
    /// Starts the thread, which ends when the handle is dropped.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start() -> std::io::Result<Janitor> {
        let (sender, receiver) = channel::<Session>();
        let drop_all = move || receiver.into_iter().for_each(drop);
        std::thread::Builder::new().name("gt-janitor".into()).spawn(drop_all)?;
        Ok(Janitor(sender))
    }

    /// Drops `session` in the thread.
    pub fn dispose(&self, session: Session) {
        let _ = self.0.send(session);
    }
}
