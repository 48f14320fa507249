//! Waiting without holding up the host language.
//!
//! Python's global interpreter lock must be released around a wait, and pending signals checked after it. The extension
//! module installs a hook that does both; without a hook the wait just runs.

use crate::error::{ClientError, Result};
use std::sync::OnceLock;

/// Runs a wait; then, if the second argument is true, checks for signals: `Err(())` if the caller should stop waiting.
pub type BlockingHook = fn(&mut (dyn FnMut() + Send), bool) -> std::result::Result<(), ()>;

static HOOK: OnceLock<BlockingHook> = OnceLock::new();

/// Installs the hook. The first one stays.
pub fn set_hook(hook: BlockingHook) {
    let _ = HOOK.set(hook);
}

/// Runs `wait` outside the host language's lock. The caller must not hold a session's lock: the hook takes the host's
/// lock again after the wait, and the thread that holds it may be waiting for the session's lock.
///
/// # Errors
/// [`ClientError::Interrupted`] if a signal arrived.
pub fn blocking<T: Send>(wait: impl FnOnce() -> T + Send) -> Result<T> {
    run(wait, true)
}

/// As [`blocking`], but leaves signals for the next wait: for callers that cannot report an interruption.
///
/// # Errors
/// [`ClientError::Interrupted`] if the hook did not run `wait`.
pub fn blocking_quietly<T: Send>(wait: impl FnOnce() -> T + Send) -> Result<T> {
    run(wait, false)
}

fn run<T: Send>(wait: impl FnOnce() -> T + Send, signals: bool) -> Result<T> {
    let mut wait = Some(wait);
    let mut result = None;
    let mut run = || result = wait.take().map(|wait| wait());
    match HOOK.get() {
        Some(hook) => hook(&mut run, signals).map_err(|()| ClientError::Interrupted)?,
        None => run(),
    }
    result.ok_or(ClientError::Interrupted)
}
