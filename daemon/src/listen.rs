//! The listening socket. It replaces the socket of a dead daemon, never of a live one, and is removed at the end.

use gt_shm::Socket;
use nix::fcntl::{Flock, FlockArg};
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An error of [`listen`].
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another daemon listens.
    #[error("a gtd is already listening on {}: stop it, or choose another path with --socket", .0.display())]
    Taken(PathBuf),
    /// A file cannot be created or removed.
    #[error("cannot make {}: {source}; choose another path with --socket", path.display())]
    Folder {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system refuses the socket.
    #[error("cannot listen on {}: {source}", path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: gt_shm::Error,
    },
}

/// The files of a listening socket, removed on drop. An abstract name has none.
pub struct SocketGuard {
    /// The socket's file, and the lock file beside it with its lock, which the kernel releases when the process ends.
    files: Option<(PathBuf, PathBuf, Flock<File>)>,
}

/// Listens at `path`; a path that starts with `@` is an abstract name.
///
/// # Errors
/// If another daemon listens there, or the path cannot be used.
pub fn listen(path: &Path) -> Result<(Socket, SocketGuard), ListenError> {
    let listening = || Socket::listen(path).map_err(|source| ListenError::Socket { path: path.into(), source });
    if gt_protocol::path::is_abstract(path) {
        let socket =
            listening().map_err(|error| if is_in_use(&error) { ListenError::Taken(path.into()) } else { error })?;
        return Ok((socket, SocketGuard { files: None }));
    }
    let mut lock_path = OsString::from(path);
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let lock = lock(path, &lock_path)?;
    let socket = match listening() {
        // The daemon that made this file either held the lock and is gone, or used none and may still listen.
        Err(error) if is_in_use(&error) => {
            if Socket::connect(path).is_ok() {
                return Err(ListenError::Taken(path.into()));
            }
            std::fs::remove_file(path).map_err(|source| ListenError::Folder { path: path.into(), source })?;
            listening()?
        }
        result => result?,
    };
    Ok((socket, SocketGuard { files: Some((path.into(), lock_path, lock)) }))
}

fn lock(path: &Path, lock_path: &Path) -> Result<Flock<File>, ListenError> {
    let failed = |source| ListenError::Folder { path: lock_path.into(), source };
    loop {
        let file = File::options().create(true).truncate(false).write(true).open(lock_path).map_err(failed)?;
        let inode = file.metadata().map_err(failed)?.ino();
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| ListenError::Taken(path.into()))?;
        // A daemon that has just ended may have removed the opened file; a lock on it would protect nothing.
        if std::fs::metadata(lock_path).is_ok_and(|found| found.ino() == inode) {
            return Ok(lock);
        }
    }
}

fn is_in_use(error: &ListenError) -> bool {
    matches!(error, ListenError::Socket { source: gt_shm::Error::Os { source, .. }, .. }
        if source.kind() == ErrorKind::AddrInUse)
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        if let Some((socket, lock, _held)) = &self.files {
            let _ = std::fs::remove_file(socket);
            let _ = std::fs::remove_file(lock);
        }
    }
}
