//! Failures of commands: the cause, what to do, and the exit status.

use gt_protocol::{ProtocolError, RefusalCode};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::process::ExitCode;

/// An exit status. The numbers are documented and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command succeeded.
    Good = 0,
    /// Any failure without a status of its own, or the doctor found a problem.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// No daemon listens.
    NoDaemon = 3,
    /// This user is not allowed to do that.
    NotPermitted = 4,
    /// The daemon is of another version.
    Version = 5,
    /// There is no such session.
    NoSession = 6,
    /// The configuration is wrong.
    Config = 7,
}

impl Exit {
    /// The name in JSON documents.
    pub fn name(self) -> &'static str {
        match self {
            Exit::Good => "good",
            Exit::Failed => "failed",
            Exit::Usage => "usage",
            Exit::NoDaemon => "no_daemon",
            Exit::NotPermitted => "not_permitted",
            Exit::Version => "version",
            Exit::NoSession => "no_session",
            Exit::Config => "config",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// The failure of a command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}\n{next}")]
pub struct CommandFailure {
    /// The exit status.
    pub exit: Exit,
    /// The cause: a sentence that says what was asked and why it failed.
    pub text: String,
    /// The remedy: a sentence that says what to do.
    pub next: String,
}

impl CommandFailure {
    /// A failure with its status, cause and remedy.
    pub fn new(exit: Exit, text: impl Into<String>, next: impl Into<String>) -> CommandFailure {
        CommandFailure { exit, text: text.into(), next: next.into() }
    }

    /// The failure of an invalid command line.
    pub fn usage(error: &clap::Error) -> CommandFailure {
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        CommandFailure::new(
            Exit::Usage,
            lines.join(" ").trim_start_matches("error: "),
            "gtctl --help says what can be written.",
        )
    }

    /// The failure of a request to the daemon.
    pub fn of(error: &ProtocolError) -> CommandFailure {
        let what = error.to_string();
        match error {
            ProtocolError::Connect { path, source: gt_shm::Error::Os { source, .. } } => match source.kind() {
                ErrorKind::PermissionDenied => CommandFailure::new(
                    Exit::NotPermitted,
                    format!(
                        "you may not connect to the daemon at {}: its socket is for members of its group",
                        path.display()
                    ),
                    "Have an administrator add you to the group gt (usermod -aG gt NAME), and log in again.",
                ),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => CommandFailure::new(
                    Exit::NoDaemon,
                    format!("no daemon listens at {}", path.display()),
                    "Start it (systemctl start gtd, or gtd by hand), or name its socket with --socket or GT_SOCKET.",
                ),
                _ => CommandFailure::new(Exit::NoDaemon, what, "Name the daemon's socket with --socket or GT_SOCKET."),
            },
            ProtocolError::Tcp(_) => CommandFailure::new(
                Exit::NoDaemon,
                what,
                "gtctl status prints the address on the daemon's machine, and GT_TOKEN has the token.",
            ),
            ProtocolError::DaemonVersion { daemon } => CommandFailure::new(
                Exit::Version,
                format!("the daemon speaks protocol {daemon}, this gtctl {}", gt_protocol::VersionRange::OWN),
                "Use the gtctl that was installed with the daemon; after an upgrade, restart the daemon.",
            ),
            ProtocolError::UnknownRequest { .. } => CommandFailure::new(
                Exit::Version,
                what,
                "Use the gtctl that was installed with the daemon; after an upgrade, restart the daemon.",
            ),
            ProtocolError::Refused(refused) => match refused.code {
                RefusalCode::NotPermitted => {
                    CommandFailure::new(Exit::NotPermitted, what, "Ask an administrator, or try again with sudo.")
                }
                RefusalCode::ProtocolVersion => {
                    CommandFailure::new(Exit::Version, what, "Use the gtctl that was installed with the daemon.")
                }
                RefusalCode::NoSession => CommandFailure::new(Exit::NoSession, what, "It may have ended just now."),
                RefusalCode::Malformed => CommandFailure::new(
                    Exit::Failed,
                    what,
                    "Correct what was asked for: --help says what can be written.",
                ),
                // The fault may be in a file, on the daemon's command line, or a setting that is missing.
                RefusalCode::Config => CommandFailure::new(
                    Exit::Config,
                    what,
                    "Change the daemon's configuration as that says, and try again.",
                ),
                RefusalCode::TooManySessions => {
                    CommandFailure::new(Exit::Failed, what, "End other gtctl and observers.")
                }
                _ => CommandFailure::new(Exit::Failed, what, "The daemon's log may say more: journalctl -u gtd"),
            },
            ProtocolError::TimedOut(_) | ProtocolError::HungUp => {
                let text = format!("the daemon did not answer: {what}");
                CommandFailure::new(Exit::Failed, text, "See how it stands: systemctl status gtd, journalctl -u gtd")
            }
            _ => CommandFailure::new(Exit::Failed, what, "The daemon's log may say more: journalctl -u gtd"),
        }
    }

    /// The failure as a JSON document.
    pub fn json(&self) -> Value {
        json!({"error": {"code": self.exit.name(), "exit": self.exit as u8, "text": self.text, "next": self.next}})
    }
}
