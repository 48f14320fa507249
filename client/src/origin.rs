//! The line of the host language that issues an instruction: for errors, profiles and anomaly detection.
//!
//! The session keeps a [`CallSite`] for each instruction, which costs a few nanoseconds, and asks the host language for
//! the line only where an error or a report names it.

use std::sync::OnceLock;

/// A place in a program of the host language, which only the host language can read. 0 where none is known.
pub type CallSite = u64;

/// A line of a program of the host language.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file's name, as the host language has it.
    pub file: String,
    /// The number of the line.
    pub line: u32,
    /// The function that the line belongs to.
    pub function: String,
}

impl std::fmt::Display for SourceLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} in {}", self.file, self.line, self.function)
    }
}

/// The functions by which the host language tells where its program is.
pub struct OriginHooks {
    /// The place that the calling thread executes. Called for each instruction, before any lock is taken.
    pub site: fn() -> CallSite,
    /// The line of a place; none if the host language has forgotten it.
    pub line: fn(CallSite) -> Option<SourceLine>,
    /// The calling thread's stack as text, one line for each call, the most recent last.
    pub stack: fn() -> Option<String>,
}

static HOOKS: OnceLock<OriginHooks> = OnceLock::new();

/// Installs the hooks. The first ones stay.
pub fn set_origin_hooks(hooks: OriginHooks) {
    let _ = HOOKS.set(hooks);
}

/// Whether the host language tells lines at all.
pub(crate) fn has_origin_hooks() -> bool {
    HOOKS.get().is_some()
}

/// The place that the calling thread executes.
#[inline]
pub(crate) fn call_site() -> CallSite {
    HOOKS.get().map_or(0, |hooks| (hooks.site)())
}

/// The line of `site`.
pub fn line_of(site: CallSite) -> Option<SourceLine> {
    let hooks = HOOKS.get().filter(|_| site != 0)?;
    (hooks.line)(site)
}

/// The calling thread's stack.
#[cold]
pub(crate) fn stack_of_call() -> Option<String> {
    HOOKS.get().and_then(|hooks| (hooks.stack)())
}

/// The line that the calling thread executes.
pub(crate) fn line_of_call() -> Option<String> {
    line_of(call_site()).map(|line| line.to_string())
}
