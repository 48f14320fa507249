//! A thread that drops what takes long to drop, so that the dispatcher need not.

use crate::session::Session;
use std::sync::mpsc::{Sender, channel};

/// The dispatcher's end.
pub struct Janitor(Sender<Session>);

impl Janitor {
    /// Starts the thread. It ends when this is dropped.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start() -> std::io::Result<Janitor> {
        let (sender, receiver) = channel::<Session>();
        let drop_all = move || receiver.into_iter().for_each(drop);
        std::thread::Builder::new().name("gt-janitor".into()).spawn(drop_all)?;
        Ok(Janitor(sender))
    }

    /// Drops `session`, soon.
    pub fn dispose(&self, session: Session) {
        let _ = self.0.send(session);
    }
}
