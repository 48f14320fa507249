//! Addresses of daemons, as users write them.

use crate::path::named_socket_path;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// The environment variable with the [`Address`] of the daemon that a client uses.
pub const CONNECT_ENV: &str = "GT_CONNECT";
/// The environment variable with the devices of the daemon that a client's sessions are pinned to.
pub const VISIBLE_DEVICES_ENV: &str = "GT_VISIBLE_DEVICES";

/// The most bytes of a Unix socket's path or of an abstract name, `sun_path` of Linux.
const SOCKET_PATH_BYTES_MAX: usize = 108;

/// The address of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A private daemon, started by the client's process.
    Private,
    /// A Unix socket; a path that starts with `@` is an abstract name.
    Unix(PathBuf),
    /// A TCP port.
    Tcp {
        /// A host name or an IP address.
        host: String,
        /// The port.
        port: u16,
    },
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address of a daemon: write unix:/run/gt/gtd.sock, localhost:12345, or private for one of your own"
)]
pub struct NoAddress(String);

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Address, NoAddress> {
        let no_address = || NoAddress(text.to_owned());
        if text == "private" {
            return Ok(Address::Private);
        }
        let path = text.strip_prefix("unix:");
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let is_url = scheme.is_some_and(|scheme| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let is_path =
            path.is_some() || text.starts_with('@') || text.contains('/') && !text.starts_with("tcp:") && !is_url;
        if is_path {
            let path = path.unwrap_or(text);
            // `unix:///run/…` is written like a URL: the path follows two slashes.
            let path = path.strip_prefix("//").unwrap_or(path);
            let fits = (1..=SOCKET_PATH_BYTES_MAX).contains(&path.len());
            let named = fits && path != "@" && !path.contains('\0');
            return named.then(|| Address::Unix(path.into())).ok_or_else(no_address);
        }
        let authority = text.strip_prefix("tcp://").or(text.strip_prefix("tcp:")).unwrap_or(text);
        let (host, port) = authority.rsplit_once(':').ok_or_else(no_address)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0);
        let host_named = !host.is_empty() && !host.contains(['/', '[', ']', ' ']);
        match port {
            Some(port) if host_named => Ok(Address::Tcp { host: host.to_owned(), port }),
            _ => Err(no_address()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Private => f.write_str("private"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// The address in the environment: [`CONNECT_ENV`], else [`SOCKET_ENV`](crate::path::SOCKET_ENV), else none.
///
/// # Errors
/// A [`CONNECT_ENV`] that is no address.
pub fn named_address() -> Result<Option<Address>, NoAddress> {
    match std::env::var_os(CONNECT_ENV).filter(|value| !value.is_empty()) {
        Some(value) => text_of(&value).parse().map(Some),
        None => Ok(named_socket_path().map(Address::Unix)),
    }
}

fn text_of(value: &OsStr) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &str) -> Address {
        Address::Unix(path.into())
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.into(), port }
    }

    #[test]
    fn addresses_are_paths_ports_or_private() {
        for (text, address) in [
            ("private", Address::Private),
            ("unix:/run/gt/gtd.sock", unix("/run/gt/gtd.sock")),
            ("unix:///run/gt/gtd.sock", unix("/run/gt/gtd.sock")),
            ("unix:gtd.sock", unix("gtd.sock")),
            ("/run/gt/gtd.sock", unix("/run/gt/gtd.sock")),
            ("./a:1", unix("./a:1")),
            ("@gt-mine", unix("@gt-mine")),
            ("unix:@gt-mine", unix("@gt-mine")),
            ("localhost:12345", tcp("localhost", 12345)),
            ("127.0.0.1:1", tcp("127.0.0.1", 1)),
            ("[::1]:65535", tcp("::1", 65535)),
            ("::1:12345", tcp("::1", 12345)),
            ("tcp:box:12345", tcp("box", 12345)),
            ("tcp://box:12345", tcp("box", 12345)),
        ] {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
    }

    #[test]
    fn an_address_reads_as_it_is_written() {
        for text in ["private", "unix:/run/gt/gtd.sock", "unix:@gt-mine", "localhost:12345", "[::1]:12345"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("unix:/{}", "long".repeat(27));
        let others = ["http://localhost:12345", "junk://x", &long];
        let texts = ["", "localhost", "localhost:", ":12345", "localhost:0", "localhost:65536", "a b:1", "unix:", "@"];
        for text in texts.into_iter().chain(others) {
            let told = text.parse::<Address>().unwrap_err().to_string();
            assert!(told.starts_with(&format!("`{text}` is no address")), "{told}");
        }
    }
}
