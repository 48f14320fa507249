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
    Tcp(TcpAddress),
}

/// A TCP port of a machine, and whether the bytes on the way are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpAddress {
    /// A host name or an IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The protection of the bytes.
    pub security: TcpSecurity,
}

/// The protection of the bytes that travel by TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpSecurity {
    /// No encryption, and therefore no connection to another machine: `localhost:12345`.
    ThisMachine,
    /// No encryption, wherever the daemon is: `tcp://box:12345`.
    Plain,
    /// TLS: `tls://box:12345#sha256:…`. Without a fingerprint, an authority that the client's machine trusts must have
    /// signed the daemon's certificate.
    Tls(Option<Fingerprint>),
}

/// The SHA-256 hash of a daemon's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

/// The hash function of a [`Fingerprint`] as an address names it.
const FINGERPRINT_PREFIX: &str = "sha256:";

impl FromStr for Fingerprint {
    type Err = ();

    /// Parses `sha256:` and 64 hexadecimal digits, perhaps with colons between the bytes as `openssl x509` prints them.
    fn from_str(text: &str) -> Result<Fingerprint, ()> {
        let digits = text.strip_prefix(FINGERPRINT_PREFIX).ok_or(())?.replace(':', "");
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(());
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).ok_or(())?;
        }
        Ok(Fingerprint(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FINGERPRINT_PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TcpAddress {
    /// Host and port without the protection.
    pub fn authority(&self) -> String {
        let TcpAddress { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for TcpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.authority();
        match self.security {
            TcpSecurity::ThisMachine => f.write_str(&authority),
            TcpSecurity::Plain => write!(f, "tcp://{authority}"),
            TcpSecurity::Tls(None) => write!(f, "tls://{authority}"),
            TcpSecurity::Tls(Some(fingerprint)) => write!(f, "tls://{authority}#{fingerprint}"),
        }
    }
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address of a daemon: write unix:/run/gt/gtd.sock, localhost:12345, tls://box:12345#sha256:… for another \
     machine, or private for one of your own"
)]
pub struct NoAddress(String);

/// The scheme of the address of a TCP port and what follows it; none if `text` has no such scheme.
fn tcp_scheme(text: &str) -> Option<(&'static str, &str)> {
    ["tcp", "tls"].into_iter().find_map(|scheme| {
        let rest = text.strip_prefix(scheme)?.strip_prefix(':')?;
        Some((scheme, rest.strip_prefix("//").unwrap_or(rest)))
    })
}

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
            path.is_some() || text.starts_with('@') || text.contains('/') && !is_url && tcp_scheme(text).is_none();
        if is_path {
            let path = path.unwrap_or(text);
            // `unix:///run/…` is written like a URL: the path follows two slashes.
            let path = path.strip_prefix("//").unwrap_or(path);
            let fits = (1..=SOCKET_PATH_BYTES_MAX).contains(&path.len());
            let named = fits && path != "@" && !path.contains('\0');
            return named.then(|| Address::Unix(path.into())).ok_or_else(no_address);
        }
        let (authority, security) = match tcp_scheme(text) {
            None => (text, TcpSecurity::ThisMachine),
            Some(("tls", rest)) => match rest.split_once('#') {
                None => (rest, TcpSecurity::Tls(None)),
                Some((authority, fingerprint)) => {
                    (authority, TcpSecurity::Tls(Some(fingerprint.parse().map_err(|()| no_address())?)))
                }
            },
            Some((_, rest)) => (rest, TcpSecurity::Plain),
        };
        let (host, port) = authority.rsplit_once(':').ok_or_else(no_address)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0);
        let host_named = !host.is_empty() && !host.contains(['/', '[', ']', ' ']);
        match port {
            Some(port) if host_named => Ok(Address::Tcp(TcpAddress { host: host.to_owned(), port, security })),
            _ => Err(no_address()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Private => f.write_str("private"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => address.fmt(f),
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
        with(host, port, TcpSecurity::ThisMachine)
    }

    fn with(host: &str, port: u16, security: TcpSecurity) -> Address {
        Address::Tcp(TcpAddress { host: host.into(), port, security })
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
            ("tcp:box:12345", with("box", 12345, TcpSecurity::Plain)),
            ("tcp://[::1]:12345", with("::1", 12345, TcpSecurity::Plain)),
            ("tls:box:12345", with("box", 12345, TcpSecurity::Tls(None))),
            ("tls://box:12345", with("box", 12345, TcpSecurity::Tls(None))),
        ] {
            assert_eq!(text.parse(), Ok(address), "{text}");
        }
    }

    #[test]
    fn an_address_reads_as_it_is_written() {
        let (plain, tls) = ("tcp://box:12345", "tls://[::1]:12345");
        let pinned = format!("tls://box:12345#sha256:{}", "0a".repeat(32));
        let here = ["private", "unix:/run/gt/gtd.sock", "unix:@gt-mine", "localhost:12345", "[::1]:12345"];
        for text in here.into_iter().chain([plain, tls, &pinned]) {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_fingerprint_is_read_as_openssl_prints_it() {
        let bytes: [u8; 32] = std::array::from_fn(|at| 7 * at as u8);
        let colons = bytes.map(|byte| format!("{byte:02X}")).join(":");
        assert_eq!(format!("sha256:{colons}").parse(), Ok(Fingerprint(bytes)));
        assert_eq!(Fingerprint(bytes).to_string().parse(), Ok(Fingerprint(bytes)));
        let long = format!("sha256:{}", "0".repeat(65));
        for text in ["", "sha256:", "sha256:00", &colons, &long, &format!("sha256:{}", "0g".repeat(32)), "sha256:é"] {
            assert_eq!(text.parse::<Fingerprint>(), Err(()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let long = format!("unix:/{}", "long".repeat(27));
        let short = "tls://box:12345#sha256:0a0a";
        let others = ["http://localhost:12345", "junk://x", "tls://", "tls://box", short, "tcp://box:1#x", &long];
        let texts = ["", "localhost", "localhost:", ":12345", "localhost:0", "localhost:65536", "a b:1", "unix:", "@"];
        for text in texts.into_iter().chain(others) {
            let told = text.parse::<Address>().unwrap_err().to_string();
            assert!(told.starts_with(&format!("`{text}` is no address")), "{told}");
        }
    }
}
