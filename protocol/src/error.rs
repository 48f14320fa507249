use crate::{PROTOCOL_VERSION, Refused};
use std::path::PathBuf;
use std::time::Duration;

/// What can go wrong on the control socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nobody listens, or this user may not connect.
    #[error("cannot connect to the daemon at {}: {source}", path.display())]
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

/// `Result` with this crate's [`Error`] where none is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<gt_shm::Error> for Error {
    fn from(error: gt_shm::Error) -> Self {
        match error {
            gt_shm::Error::HungUp => Self::HungUp,
            gt_shm::Error::TimedOut(after) => Self::TimedOut(after),
            other => Self::Shm(other),
        }
    }
}
