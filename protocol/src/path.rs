//! The path of the control socket.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The environment variable that names another socket. A value that starts with `@` is an abstract
/// name.
pub const SOCKET_ENV: &str = "GT_SOCKET";

/// The socket of the system's daemon, which systemd starts.
pub const SYSTEM_SOCKET: &str = "/run/gt/gtd.sock";

/// The socket in [`SOCKET_ENV`], else [`SYSTEM_SOCKET`].
pub fn socket_path() -> PathBuf {
    named_socket_path().unwrap_or_else(|| SYSTEM_SOCKET.into())
}

/// The socket in [`SOCKET_ENV`], if that is set and not empty. A client whose user names a socket fails if no daemon
/// listens there; it starts no daemon.
pub fn named_socket_path() -> Option<PathBuf> {
    named_in(std::env::var_os(SOCKET_ENV))
}

/// True if `path` is an abstract name, which has no file, owner or mode.
pub fn is_abstract(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().first() == Some(&b'@')
}

fn named_in(value: Option<OsString>) -> Option<PathBuf> {
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_name_is_none() {
        assert_eq!(named_in(None), None);
        assert_eq!(named_in(Some("".into())), None);
        assert_eq!(named_in(Some("/tmp/gtd.sock".into())), Some("/tmp/gtd.sock".into()));
    }
}
