//! Waiting without holding up the host language.
//!
//! Python's global lock must be released around a wait, and pending signals looked at after it. The extension installs
//! a hook that does; everybody else just runs the wait.

use crate::error::{Error, Result};
use std::sync::OnceLock;

/// Runs a wait; then, if the second argument says so, looks at signals: `Err(())` if the caller should stop waiting
/// because one came.
pub type Hook = fn(&mut (dyn FnMut() + Send), bool) -> std::result::Result<(), ()>;

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
    run(wait, true)
}

/// As [`blocking`], leaving signals for the next wait: for callers that have nobody to tell.
///
/// # Errors
/// None that the caller can act on.
pub fn blocking_quietly<T: Send>(wait: impl FnOnce() -> T + Send) -> Result<T> {
    run(wait, false)
}

fn run<T: Send>(wait: impl FnOnce() -> T + Send, signals: bool) -> Result<T> {
    let mut wait = Some(wait);
    let mut result = None;
    let mut run = || result = wait.take().map(|wait| wait());
    match HOOK.get() {
        Some(hook) => hook(&mut run, signals).map_err(|()| Error::Interrupted)?,
        None => run(),
    }
    result.ok_or(Error::Interrupted)
}
