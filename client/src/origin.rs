//! The line of the host language that issues an instruction: for tracebacks and for anomaly detection.

use std::sync::OnceLock;

/// Returns the current position in the host language, as `file:line in function`.
pub type OriginHook = fn() -> Option<String>;
static HOOK: OnceLock<OriginHook> = OnceLock::new();

/// Installs the hook. The first one stays.
pub fn set_origin_hook(hook: OriginHook) {
    let _ = HOOK.set(hook);
}

/// Whether a hook is installed.
pub(crate) fn has_origin_hook() -> bool {
    HOOK.get().is_some()
}

pub(crate) fn origin_of_call() -> Option<String> {
    HOOK.get().and_then(|hook| hook())
}
