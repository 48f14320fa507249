//! Warnings to the program's user: what administrators of the daemon announce.

use crate::error::{ClientError, Result};
use std::sync::OnceLock;

/// Shows a warning in the host language: `Err(())` if the call that shows it should fail.
pub type WarningHook = fn(&str) -> std::result::Result<(), ()>;
static HOOK: OnceLock<WarningHook> = OnceLock::new();

/// Installs the hook. The first one stays. Without one, warnings go to standard error.
pub fn set_warning_hook(hook: WarningHook) {
    let _ = HOOK.set(hook);
}

#[expect(clippy::print_stderr, reason = "a program without a host language still has to be warned")]
pub(crate) fn warn(text: &str) -> Result<()> {
    match HOOK.get() {
        Some(hook) => hook(text).map_err(|()| ClientError::Interrupted),
        None => {
            eprintln!("gt: warning: {text}");
            Ok(())
        }
    }
}
