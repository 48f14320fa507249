//! Waiting without holding up the host language.
//!
//! Python's global lock must be released around a wait, and pending signals looked at after it. The extension installs
//! a hook that does; everybody else just runs the wait.

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// Runs a wait; `Err(())` if the caller should stop waiting because a signal came.
pub type Hook = fn(&mut (dyn FnMut() + Send)) -> std::result::Result<(), ()>;

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Installs the hook. The first one stays.
pub fn set_hook(hook: Hook) {
    let _ = HOOK.set(hook);
}

/// Runs `wait` outside the host language's lock. Nobody may hold a lock of a session here: the wait's end may need
/// the host's lock, which another thread may hold while it wants the session's.
///
/// # Errors
/// [`Error::Interrupted`] if a signal came.
pub fn blocking<T: Send>(wait: impl FnOnce() -> T + Send) -> Result<T> {
    let mut wait = Some(wait);
    let mut result = None;
    let mut run = || result = wait.take().map(|wait| wait());
    match HOOK.get() {
        Some(hook) => hook(&mut run).map_err(|()| Error::Interrupted)?,
        None => run(),
    }
    result.ok_or(Error::Interrupted)
}
