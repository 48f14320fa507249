//! Notices of the daemon's administrators to running programs.

use serde::{Deserialize, Serialize};

/// Bytes of a notice's message, in UTF-8.
pub const NOTICE_BYTES_MAX: usize = 256;
/// The longest time from a notice to the drain that it announces, seconds.
pub const NOTICE_AHEAD_S_MAX: u64 = 30 * 86_400;

/// An announced drain, or its withdrawal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notice {
    /// The number of the notice, from 1. The daemon also writes it to the rings of every session, so that a program
    /// notices a new one without a request.
    pub number: u32,
    /// When the daemon stops taking sessions, seconds since 1970; none if that was withdrawn.
    pub drains_at: Option<f64>,
    /// The administrator's message.
    pub message: Option<String>,
}

impl Notice {
    /// The text for users at the time `now`, seconds since 1970.
    pub fn text(&self, now: f64) -> String {
        let message = self.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
        let Some(at) = self.drains_at else {
            return format!("the GT daemon goes on taking sessions; what was announced is withdrawn{message}");
        };
        let minute = (at.max(0.0) / 60.0) as u64;
        let (h, m) = (minute / 60 % 24, minute % 60);
        let left = (at - now).round();
        let when = match left {
            left if left <= 0.0 => "from now on".into(),
            left if left < 120.0 => format!("in {left} s, from {h:02}:{m:02} UTC on"),
            left => format!("in {} min, from {h:02}:{m:02} UTC on", (left / 60.0).round()),
        };
        format!("the GT daemon takes no new sessions {when}, and ends after the last one{message}")
    }
}

/// Checks the message of a notice, which is shown on terminals.
///
/// # Errors
/// A message that is too long or has control characters, as a sentence.
pub fn check_message(message: &str) -> Result<(), String> {
    if message.len() > NOTICE_BYTES_MAX {
        return Err(format!("the message of a notice has {} bytes; {NOTICE_BYTES_MAX} are allowed", message.len()));
    }
    if message.chars().any(char::is_control) {
        return Err("the message of a notice has control characters, such as line breaks; use one line of text".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_says_when_and_why() {
        let notice = Notice { number: 1, drains_at: Some(52_500.0), message: Some("new disks".into()) };
        let text = |now| notice.text(now);
        let end = "and ends after the last one: new disks";
        assert_eq!(text(51_900.0), format!("the GT daemon takes no new sessions in 10 min, from 14:35 UTC on, {end}"));
        assert_eq!(text(52_440.2), format!("the GT daemon takes no new sessions in 60 s, from 14:35 UTC on, {end}"));
        assert_eq!(text(52_600.0), format!("the GT daemon takes no new sessions from now on, {end}"));
        let withdrawn = Notice { number: 2, ..Notice::default() };
        assert_eq!(withdrawn.text(0.0), "the GT daemon goes on taking sessions; what was announced is withdrawn");
    }

    #[test]
    fn a_message_is_one_short_line() {
        assert!(check_message("upgrade to 0.2, ask Ana").is_ok());
        assert!(check_message(&"x".repeat(NOTICE_BYTES_MAX + 1)).is_err());
        assert!(check_message("a\nb").is_err() && check_message("\u{1b}[2J").is_err());
    }
}
