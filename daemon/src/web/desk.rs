//! Questions of the web's thread to the dispatcher. The dispatcher answers between its passes, and never waits.

use super::snapshot::{DaemonSnapshot, SessionSnapshot, SessionTotals};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

/// A question, with the place for its answer.
pub enum WebQuestion {
    /// The daemon at present.
    Daemon(oneshot::Sender<DaemonSnapshot>),
    /// The session with this number in full; none if there is no such session.
    Session(u64, oneshot::Sender<Option<SessionSnapshot>>),
}

/// The dispatcher's end.
pub struct WebDesk {
    bell: Arc<EventFd>,
    questions: Receiver<WebQuestion>,
    /// The totals of the sessions that have ended.
    pub ended: SessionTotals,
}

/// The end of the web's thread.
#[derive(Clone)]
pub struct WebAsker {
    bell: Arc<EventFd>,
    questions: Sender<WebQuestion>,
}

/// Both ends.
///
/// # Errors
/// The process has no descriptors left.
pub fn desk() -> std::io::Result<(WebDesk, WebAsker)> {
    let bell = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
    let (sender, receiver) = channel();
    let desk = WebDesk { bell: bell.clone(), questions: receiver, ended: SessionTotals::default() };
    Ok((desk, WebAsker { bell, questions: sender }))
}

impl WebDesk {
    /// A descriptor that becomes readable when [`WebDesk::question`] has a question.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The next question.
    pub fn question(&mut self) -> Option<WebQuestion> {
        // The bell falls silent first, so that it rings for a question that is sent meanwhile.
        let _ = self.bell.read();
        self.questions.try_recv().ok()
    }
}

impl WebAsker {
    /// The daemon at present; none if it ends before it answers.
    pub async fn daemon(&self) -> Option<DaemonSnapshot> {
        self.ask(WebQuestion::Daemon).await
    }

    /// A session at present; none if there is no such session, or if the daemon ends before it answers.
    pub async fn session(&self, id: u64) -> Option<SessionSnapshot> {
        self.ask(|answer| WebQuestion::Session(id, answer)).await?
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> WebQuestion) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.questions.send(question(sender)).ok()?;
        let _ = self.bell.write(1);
        receiver.await.ok()
    }
}
