//! What went wrong: what, why, what to do next, and the number that the program ends with.

use gt_protocol::{Error, RefusalCode};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::process::ExitCode;

/// How the program ends. The numbers are documented: they never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Good = 0,
    /// Failed in another way than those below; or the doctor found something.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// No daemon listens.
    NoDaemon = 3,
    /// This user may not.
    NotPermitted = 4,
    /// The daemon is of another version.
    Version = 5,
    /// There is no such session.
    NoSession = 6,
    /// The configuration is wrong.
    Config = 7,
}

impl Exit {
    /// What a JSON document calls it.
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

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}\n{next}")]
pub struct Failure {
    /// How the program ends.
    pub exit: Exit,
    /// What was asked, and why that is not to be had: a sentence.
    pub text: String,
    /// What to do: a sentence.
    pub next: String,
}

impl Failure {
    /// A failure.
    pub fn new(exit: Exit, text: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure { exit, text: text.into(), next: next.into() }
    }

    /// Of a command line.
    pub fn usage(error: &clap::Error) -> Failure {
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
        Failure::new(
            Exit::Usage,
            lines.join(" ").trim_start_matches("error: "),
            "gtctl --help says what can be written.",
        )
    }

    /// Of asking the daemon.
    pub fn of(error: &Error) -> Failure {
        let what = error.to_string();
        match error {
            Error::Connect { path, source: gt_shm::Error::Os { source, .. } } => match source.kind() {
                ErrorKind::PermissionDenied => Failure::new(
                    Exit::NotPermitted,
                    format!(
                        "you may not connect to the daemon at {}: its socket is for members of its group",
                        path.display()
                    ),
                    "Have an administrator add you to the group gt (usermod -aG gt NAME), and log in again.",
                ),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::new(
                    Exit::NoDaemon,
                    format!("no daemon listens at {}", path.display()),
                    "Start it (systemctl start gtd, or gtd by hand), or name its socket with --socket or GT_SOCKET.",
                ),
                _ => Failure::new(Exit::NoDaemon, what, "Name the daemon's socket with --socket or GT_SOCKET."),
            },
            Error::DaemonVersion { daemon } => Failure::new(
                Exit::Version,
                format!("the daemon speaks protocol {daemon}, this gtctl {}", gt_protocol::PROTOCOL_VERSION),
                "Use the gtctl that was installed with the daemon; after an upgrade, restart the daemon.",
            ),
            Error::Refused(refused) => match refused.code {
                RefusalCode::NotPermitted => {
                    Failure::new(Exit::NotPermitted, what, "Ask an administrator, or try again with sudo.")
                }
                RefusalCode::ProtocolVersion => {
                    Failure::new(Exit::Version, what, "Use the gtctl that was installed with the daemon.")
                }
                RefusalCode::NoSession => Failure::new(Exit::NoSession, what, "It may have ended just now."),
                RefusalCode::Malformed => {
                    Failure::new(Exit::Failed, what, "Correct what was asked for: --help says what can be written.")
                }
                RefusalCode::Config => Failure::new(Exit::Config, what, "Mend the file, and try again."),
                RefusalCode::TooManySessions => Failure::new(Exit::Failed, what, "End other gtctl and observers."),
                _ => Failure::new(Exit::Failed, what, "The daemon's log may say more: journalctl -u gtd"),
            },
            Error::TimedOut(_) | Error::HungUp => {
                let text = format!("the daemon did not answer: {what}");
                Failure::new(Exit::Failed, text, "See how it stands: systemctl status gtd, journalctl -u gtd")
            }
            _ => Failure::new(Exit::Failed, what, "The daemon's log may say more: journalctl -u gtd"),
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({"error": {"code": self.exit.name(), "exit": self.exit as u8, "text": self.text, "next": self.next}})
    }
}
