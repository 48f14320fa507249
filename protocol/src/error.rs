//! Errors of the control socket.

use crate::message::Refused;
use crate::version::{VersionRange, mismatch_text};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An error of the control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// No daemon listens, or this user is not allowed to connect.
    #[error("cannot connect to the daemon at {}: {}", path.display(), why_not(path, source))]
    Connect {
        /// The socket tried.
        path: PathBuf,
        /// The kernel's error.
        source: gt_shm::Error,
    },
    /// The daemon has another protocol version.
    #[error("{}", mismatch_text(VersionRange::OWN, *.daemon))]
    DaemonVersion {
        /// The daemon's versions.
        daemon: VersionRange,
    },
    /// The client has another protocol version.
    #[error("{}", mismatch_text(*.client, VersionRange::OWN))]
    ClientVersion {
        /// The client's versions.
        client: VersionRange,
    },
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The daemon does not know the request, or a part of it: it is older than this program.
    #[error(
        "the daemon does not know the request `{request}`: it speaks protocol {daemon}, this program {}, or it is an older \
         build of the same: upgrade the daemon (gtd) to the version of this program, and restart it",
        VersionRange::OWN
    )]
    UnknownRequest {
        /// The request.
        request: String,
        /// The version that the daemon speaks with this program.
        daemon: u32,
    },
    /// The message is not valid in this protocol.
    #[error("a message that makes no sense: {0}")]
    Malformed(String),
    /// The peer closed the connection or died.
    #[error("the other side has closed the connection")]
    HungUp,
    /// No answer came in time.
    #[error("no answer on the control socket within {0:?}")]
    TimedOut(Duration),
    /// There is no connection by TCP, for this reason.
    #[error("{0}")]
    Tcp(String),
    /// Invalid segments or descriptors, or an error of the kernel.
    #[error(transparent)]
    Shm(gt_shm::Error),
}

/// `Result` with [`ProtocolError`] by default.
pub type Result<T, E = ProtocolError> = std::result::Result<T, E>;

impl From<gt_shm::Error> for ProtocolError {
    fn from(error: gt_shm::Error) -> Self {
        match error {
            gt_shm::Error::HungUp => Self::HungUp,
            gt_shm::Error::TimedOut(after) => Self::TimedOut(after),
            other => Self::Shm(other),
        }
    }
}

impl ProtocolError {
    /// True if a daemon listens on a socket that this user is not allowed to use.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, ProtocolError::Connect { source, .. } if kind(source) == Some(ErrorKind::PermissionDenied))
    }
}

fn kind(error: &gt_shm::Error) -> Option<ErrorKind> {
    match error {
        gt_shm::Error::Os { source, .. } => Some(source.kind()),
        _ => None,
    }
}

/// The group whose members may connect to the system's daemon.
const DAEMON_GROUP: &str = "gt";
/// The bit of a file's mode that allows its group to write.
const GROUP_WRITES: u32 = 0o020;

/// The reason of a failed connection to `path`, and the remedy.
fn why_not(path: &Path, error: &gt_shm::Error) -> String {
    match kind(error) {
        Some(ErrorKind::NotFound) => "there is no such socket: start gtd there, or correct the path".into(),
        Some(ErrorKind::ConnectionRefused) => {
            "nobody listens there: the daemon that did has ended; start it again".into()
        }
        Some(ErrorKind::PermissionDenied) => {
            let mode = std::fs::metadata(path).map(|file| file.mode());
            if mode.is_ok_and(|mode| mode & GROUP_WRITES == 0) {
                return "permission denied: it is its owner's alone".into();
            }
            format!(
                "permission denied: it is for members of the group {DAEMON_GROUP}; sudo usermod -aG {DAEMON_GROUP} \
                 $USER makes you one, from your next login"
            )
        }
        _ => error.to_string(),
    }
}
