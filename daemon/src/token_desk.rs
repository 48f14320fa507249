//! Requests to create and revoke access tokens, and others that write a file. Threads serve them, since that may be
//! slow.

use gt_bridge::user_tokens::UserTokens;
use gt_protocol::{DaemonMessage, RefusalCode, Refused, TokenInfo};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Requests at a time. Each has a thread.
const REQUESTS_MAX: usize = 16;

/// A request that was served.
pub struct TokenOutcome {
    /// The connection that waits for the answer.
    pub asker: u64,
    /// The created or revoked token.
    pub result: Result<TokenChange, Refused>,
}

/// A change of the tokens.
pub enum TokenChange {
    /// A token was created; its answer has the text.
    Created(Box<DaemonMessage>),
    /// A token was revoked.
    Revoked(TokenInfo),
    /// Another request was served; this is its answer.
    Other(Box<DaemonMessage>),
}

/// The users' tokens, and the requests that are being served.
pub struct TokenDesk {
    tokens: Arc<UserTokens>,
    bell: Arc<EventFd>,
    results: (Sender<TokenOutcome>, Receiver<TokenOutcome>),
    pending: usize,
}

impl TokenDesk {
    /// A desk for `tokens`.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn new(tokens: Arc<UserTokens>) -> std::io::Result<TokenDesk> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(TokenDesk { tokens, bell: Arc::new(bell), results: channel(), pending: 0 })
    }

    /// A descriptor that becomes readable when [`TokenDesk::outcome`] has an outcome.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// All tokens, by number.
    ///
    /// # Errors
    /// The file of tokens is unusable.
    pub fn list(&self) -> Result<Vec<TokenInfo>, Refused> {
        self.tokens.list().map_err(refused)
    }

    /// Begins to create a token for connection `asker`.
    ///
    /// # Errors
    /// There are too many requests, or there is no thread for one more.
    pub fn create(&mut self, asker: u64, uid: u32, lifetime_s: u64, administrator: bool) -> Result<(), Refused> {
        self.begin(asker, move |tokens| {
            let (text, token) = tokens.create(uid, lifetime_s, administrator)?;
            let created = DaemonMessage::TokenCreated { text, token, lasting: tokens.is_lasting() };
            Ok(TokenChange::Created(Box::new(created)))
        })
    }

    /// Begins to revoke a token for connection `asker`.
    ///
    /// # Errors
    /// There are too many requests, or there is no thread for one more.
    pub fn revoke(&mut self, asker: u64, id: u64) -> Result<(), Refused> {
        self.begin(asker, move |tokens| tokens.revoke(id).map(TokenChange::Revoked))
    }

    /// Begins to serve another request of connection `asker`: `serve` returns the answer, or why it is refused.
    ///
    /// # Errors
    /// There are too many requests, or there is no thread for one more.
    pub fn answer_later(
        &mut self,
        asker: u64,
        serve: impl FnOnce() -> Result<DaemonMessage, String> + Send + 'static,
    ) -> Result<(), Refused> {
        self.begin(asker, move |_| serve().map(|answer| TokenChange::Other(Box::new(answer))))
    }

    fn begin(
        &mut self,
        asker: u64,
        change: impl FnOnce(&UserTokens) -> Result<TokenChange, String> + Send + 'static,
    ) -> Result<(), Refused> {
        if self.pending >= REQUESTS_MAX {
            let text = format!("{REQUESTS_MAX} requests about tokens and nodes are being served: try again later");
            return Err(Refused::new(RefusalCode::Exhausted, text));
        }
        let (tokens, bell, sender) = (self.tokens.clone(), self.bell.clone(), self.results.0.clone());
        let serve = move || {
            let _ = sender.send(TokenOutcome { asker, result: change(&tokens).map_err(refused) });
            let _ = bell.write(1);
        };
        std::thread::Builder::new()
            .name("gt-tokens".into())
            .spawn(serve)
            .map_err(|error| Refused::new(RefusalCode::Exhausted, format!("there is no thread for that: {error}")))?;
        self.pending += 1;
        Ok(())
    }

    /// The next request that was served.
    pub fn outcome(&mut self) -> Option<TokenOutcome> {
        // The bell falls silent first, so that it rings for a result that is sent meanwhile.
        let _ = self.bell.read();
        let outcome = self.results.1.try_recv().ok()?;
        self.pending -= 1;
        Some(outcome)
    }
}

fn refused(text: String) -> Refused {
    Refused::new(RefusalCode::Malformed, text)
}
