use crate::{PROTOCOL_VERSION, Refused};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What can go wrong on the control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Nobody listens, or this user may not connect.
    #[error("cannot connect to the daemon at {}: {}", path.display(), why_not(path, source))]
    Connect {
        /// The socket tried.
        path: PathBuf,
        /// What the kernel said.
        source: gt_shm::Error,
    },
    /// The other side speaks another version; as the client sees it.
    #[error(
        "the daemon speaks protocol {daemon}, this gt speaks {PROTOCOL_VERSION}: reinstall so that \
         gtd and gt are the same version"
    )]
    DaemonVersion {
        /// The daemon's version.
        daemon: u32,
    },
    /// The other side speaks another version; as the daemon sees it.
    #[error(
        "the client speaks protocol {client}, this daemon speaks {PROTOCOL_VERSION}: reinstall so \
         that gtd and gt are the same version"
    )]
    ClientVersion {
        /// The client's version.
        client: u32,
    },
    /// The daemon said no.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The message is not one of this protocol.
    #[error("a message that makes no sense: {0}")]
    Malformed(String),
    /// The peer closed the connection or died.
    #[error("the other side has closed the connection")]
    HungUp,
    /// No answer in time.
    #[error("no answer on the control socket within {0:?}")]
    TimedOut(Duration),
    /// Segments or descriptors are not what they should be, or the kernel refused something.
    #[error(transparent)]
    Shm(gt_shm::Error),
}

/// `Result` with this crate's [`ProtocolError`] where none is named.
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
    /// Whether there is a daemon's socket that this user may not use.
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

/// The group of the box's daemon, whose members may connect to it.
const DAEMON_GROUP: &str = "gt";
/// In a file's mode: the group may write.
const GROUP_WRITES: u32 = 0o020;

/// Why nobody answers at `path`, and what to do about it.
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
