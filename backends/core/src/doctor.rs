//! The findings of `gtctl doctor`, to which each backend adds its own.

use serde::Serialize;
use std::path::Path;

/// The arguments of [`crate::Discovery::doctor`].
#[derive(Clone, Copy, Debug)]
pub struct DoctorContext<'a> {
    /// The program `gtd`, if it is installed; `gtd probe NAME` runs [`crate::Discovery::probe`].
    pub gtd: Option<&'a Path>,
    /// The user of the system's daemon, if one is configured: device files are then for that user alone.
    pub service: Option<ServiceUser>,
    /// Formats a number of bytes for a person.
    pub bytes: fn(u64) -> String,
}

/// The user of the system's daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceUser {
    /// The user id.
    pub uid: u32,
    /// The group, whose members are the daemon's clients.
    pub gid: u32,
}

/// The verdict of a [`Finding`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    /// All is well.
    Good,
    /// A hint; programs work without following it.
    Note,
    /// A fault that keeps programs from the daemon, or the daemon from working.
    Bad,
}

/// A line of `gtctl doctor`.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The subject, as in "gpu driver".
    pub what: &'static str,
    /// The verdict.
    pub state: FindingState,
    /// The facts, as a clause.
    pub found: String,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// All that is known of a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<serde_json::Value>,
}

impl Finding {
    /// A finding that all is well.
    pub fn good(what: &'static str, found: impl Into<String>) -> Finding {
        Finding { what, state: FindingState::Good, found: found.into(), next: None, device: None }
    }

    /// A hint, with what to do about it.
    pub fn note(what: &'static str, found: impl Into<String>, next: impl Into<String>) -> Finding {
        Finding { state: FindingState::Note, next: Some(next.into()), ..Finding::good(what, found) }
    }

    /// A fault, with how to mend it.
    pub fn bad(what: &'static str, found: impl Into<String>, next: impl Into<String>) -> Finding {
        Finding { state: FindingState::Bad, next: Some(next.into()), ..Finding::good(what, found) }
    }
}

/// Findings as a table for a terminal, each fault and hint followed by a line that says what to do.
pub fn findings_text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Finding { what, state, found, next, .. } in findings {
        let label = match state {
            FindingState::Good => "ok  ",
            FindingState::Note => "note",
            FindingState::Bad => "BAD ",
        };
        text.push_str(&format!("{label}  {what:<width$}  {found}\n"));
        if let Some(next) = next {
            text.push_str(&format!("{:indent$}→ {next}\n", "", indent = width + 8));
        }
    }
    text
}
