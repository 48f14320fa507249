//! The handshake: that of TLS if the address says so, the magic bytes, then one message each way.

use crate::channel::{Ciphertext, EncryptionError, TcpChannel};
use crate::frame::{self, MAGIC};
use crate::peer::is_within_machine;
use crate::stream::{Incoming, StreamError};
use crate::tls::{self, Certificate, TlsError};
use crate::token::{Token, TokenError};
use gt_protocol::address::{Fingerprint, TcpAddress, TcpSecurity};
use gt_protocol::version::PROTOCOL_VERSION_MIN;
use gt_protocol::{Hello, PROTOCOL_VERSION, Refused, Role, VersionRange, Welcome};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The timeout of the TCP connect.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// The timeout of the daemon's reply.
const REPLY_DEADLINE: Duration = Duration::from_secs(10);

/// The client's first message.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandshakeRequest {
    /// The oldest version that the client speaks. The one field that no version may rename.
    pub protocol_version: u32,
    /// The newest version that the client speaks; none if it speaks one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version_max: Option<u32>,
    /// The access token; to interrupt a session, its key.
    pub token: String,
    /// The purpose of the connection.
    #[serde(rename = "wish")]
    pub purpose: ConnectionPurpose,
    /// The client's process id, shown by `gtctl`.
    pub pid: u32,
    /// The handshake of the control socket.
    pub hello: Hello,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionPurpose {
    /// A session over this connection; or requests and commands, if the hello says [`Role::Control`], as `gtctl` sends.
    Session,
    /// To learn the path of the daemon's Unix socket, on the same machine.
    Socket,
    /// To interrupt the session whose key is in the place of the token, ahead of everything that its own connection
    /// still carries. Only asked of a daemon that gave the session a key.
    Interrupt {
        /// The id of the first result that is not cancelled.
        below: u64,
    },
}

/// The welcome of a session by TCP.
#[derive(Debug, Serialize, Deserialize)]
pub struct TcpWelcome {
    /// The daemon's welcome.
    #[serde(flatten)]
    pub welcome: Welcome,
    /// The secret with which another connection may interrupt the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interrupt_key: Option<String>,
}

/// The daemon's first message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum HandshakeReply {
    /// The session is open.
    Welcome(Box<TcpWelcome>),
    /// The daemon's Unix socket.
    Socket {
        /// The path, for `GT_SOCKET`.
        path: String,
        /// The protocol version that both sides use.
        protocol_version: u32,
    },
    /// The session is interrupted.
    Interrupted {
        /// The protocol version that both sides use.
        protocol_version: u32,
    },
    /// The daemon refuses and closes the connection.
    Refused(Refused),
}

/// A connection that failed before its session was open.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The TCP connection could not be made.
    #[error("cannot connect to the daemon at {address}: {}", connect_failure_text(source))]
    Connect {
        /// Host and port.
        address: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The peer is not a GT daemon.
    #[error("what listens at {0} is no GT daemon, or a very old one: is the port right?")]
    NotGt(String),
    /// The peer closed the connection without a reply.
    #[error("what listens at {0} hung up: it is a daemon that ends, or no GT daemon: is the port right?")]
    HungUp(String),
    /// The peer sent no reply in time.
    #[error("what listens at {0} does not answer: is the port right?")]
    Silent(String),
    /// The token and everything after it would travel to another machine unencrypted.
    #[error(
        "the daemon at {0} is on another machine, and the token would travel there unencrypted: connect to \
         tls://{0}#sha256:…, with the fingerprint that `gtctl status` prints there; tcp://{0} goes without encryption, \
         where nobody else can see the network"
    )]
    Unencrypted(String),
    /// The peer speaks no TLS.
    #[error(
        "what listens at {0} does not speak TLS: it is an older GT daemon, one that could make no certificate, or \
         another service: is the port right?"
    )]
    NoTls(String),
    /// The daemon has another certificate than the address says.
    #[error(
        "the daemon at {address} has another certificate than the address says, {}: if its administrator has made a new \
         one, take the address that `gtctl status` prints there; otherwise another machine may be answering in its place",
        shown_text(*shown)
    )]
    WrongCertificate {
        /// Host and port.
        address: String,
        /// The fingerprint of the daemon's certificate.
        shown: Option<Fingerprint>,
    },
    /// No authority vouches for the daemon's certificate.
    #[error(
        "the certificate of the daemon at {address} ({}) is not accepted: {why}. If that fingerprint is the one that \
         `gtctl status` prints on the daemon's machine, write it after the address: tls://{address}#sha256:…",
        shown_text(*shown)
    )]
    Untrusted {
        /// Host and port.
        address: String,
        /// The fingerprint of the daemon's certificate.
        shown: Option<Fingerprint>,
        /// The library's error.
        why: rustls::CertificateError,
    },
    /// This machine has no usable list of authorities.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no usable token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The daemon refused, or has another protocol version.
    #[error("the daemon at {address}: {source}")]
    Refused {
        /// Host and port.
        address: String,
        /// The daemon's reason.
        source: gt_protocol::ProtocolError,
    },
    /// The client's end of the session could not be created.
    #[error("a session by TCP could not be set up: {0}")]
    Local(gt_shm::Error),
}

fn shown_text(shown: Option<Fingerprint>) -> String {
    shown.map_or_else(|| "which it did not show".into(), |fingerprint| fingerprint.to_string())
}

fn connect_failure_text(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{ConnectionRefused, TimedOut};
    match error.kind() {
        ConnectionRefused => "nobody listens there: start one with `python -m gt.server -p PORT`".into(),
        TimedOut => "the machine does not answer".into(),
        _ => error.to_string(),
    }
}

/// Connects to the daemon at `address`, sends the request and returns the connection with the daemon's reply. `at` is
/// the address of the machine, if it is known.
///
/// # Errors
/// No daemon at that address, or one that refuses.
pub(crate) fn shake_hands(
    address: &TcpAddress,
    at: Option<SocketAddr>,
    token: &Token,
    purpose: ConnectionPurpose,
    hello: Hello,
) -> Result<(Arc<TcpChannel>, Incoming, HandshakeReply), ConnectError> {
    let deadline = Instant::now() + CONNECT_DEADLINE + REPLY_DEADLINE;
    let (channel, received) = open(address, at, None, deadline)?;
    let channel = Arc::new(channel);
    let address = address.authority();
    let request = HandshakeRequest {
        protocol_version: PROTOCOL_VERSION_MIN,
        protocol_version_max: Some(PROTOCOL_VERSION),
        token: token.text().to_owned(),
        purpose,
        pid: std::process::id(),
        hello,
    };
    let mut out = MAGIC.to_vec();
    push_json(&mut out, &request);
    channel.write_all(&out).map_err(|source| ConnectError::Connect { address: address.clone(), source })?;
    let mut incoming = Incoming::new(channel.clone(), received);
    let told = incoming.first_message(Instant::now() + REPLY_DEADLINE).map_err(|broken| match broken {
        StreamError::TimedOut => ConnectError::Silent(address.clone()),
        StreamError::Ended | StreamError::Io(_) => ConnectError::HungUp(address.clone()),
        _ => ConnectError::NotGt(address.clone()),
    })?;
    let refused = |source| ConnectError::Refused { address: address.clone(), source };
    if VersionRange::of_message(&told).is_none() {
        return Err(ConnectError::NotGt(address));
    }
    let reply = serde_json::from_slice(&told);
    // A refusal says itself which side has to be upgraded.
    if let Ok(HandshakeReply::Refused(refusal)) = reply {
        return Err(refused(refusal.into()));
    }
    gt_protocol::link::check_version(&told).map_err(&refused)?;
    match reply {
        Ok(reply) => Ok((channel, incoming, reply)),
        Err(error) => Err(refused(gt_protocol::ProtocolError::Malformed(error.to_string()))),
    }
}

/// Connects to the daemon at `address`, encrypted as the address says, and shows it the certificate `own`, if there is
/// one.
pub(crate) fn open(
    address: &TcpAddress,
    at: Option<SocketAddr>,
    own: Option<&Certificate>,
    deadline: Instant,
) -> Result<(TcpChannel, Ciphertext), ConnectError> {
    let name = address.authority();
    let failed = |source| ConnectError::Connect { address: name.clone(), source };
    let TcpAddress { host, port, security } = address;
    let tcp = Arc::new(
        match at {
            Some(at) => dial(&[at]),
            None => dial(&(host.as_str(), *port).to_socket_addrs().map_err(failed)?.collect::<Vec<_>>()),
        }
        .map_err(failed)?,
    );
    let expected = match *security {
        TcpSecurity::ThisMachine if !is_within_machine(&tcp).map_err(failed)? => {
            return Err(ConnectError::Unencrypted(name));
        }
        TcpSecurity::ThisMachine | TcpSecurity::Plain => return Ok((TcpChannel::plain(tcp), Ciphertext::new())),
        TcpSecurity::Tls(expected) => expected,
    };
    let (config, verifier) = tls::client(expected, own)?;
    // A host with a name that no certificate can have is known by its fingerprint alone.
    let host = ServerName::try_from(host.clone()).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED).into());
    let tls = ClientConnection::new(config, host).map_err(|source| failed(std::io::Error::other(source)))?;
    TcpChannel::encrypted(tcp, tls.into(), deadline).map_err(|error| match error {
        EncryptionError::TimedOut => ConnectError::Silent(name),
        EncryptionError::Tls(rustls::Error::InvalidCertificate(why)) => {
            let (address, shown) = (name, verifier.shown());
            match expected {
                Some(_) => ConnectError::WrongCertificate { address, shown },
                None => ConnectError::Untrusted { address, shown, why },
            }
        }
        EncryptionError::Ended | EncryptionError::Tls(_) | EncryptionError::Io(_) => ConnectError::NoTls(name),
    })
}

fn dial(addresses: &[SocketAddr]) -> std::io::Result<TcpStream> {
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECT_DEADLINE) {
            Ok(tcp) => {
                prepare(&tcp)?;
                return Ok(tcp);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::Error::other("the name has no address")))
}

/// Disables Nagle's algorithm, so that small frames travel at once, and enables keep-alive to notice a lost machine.
pub(crate) fn prepare(tcp: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    tcp.set_nodelay(true)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(tcp, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(tcp, 3)?;
    Ok(())
}

/// The path of the Unix socket of the daemon at `address`, which is on this machine.
///
/// # Errors
/// No daemon at that address, or one that refuses.
pub fn ask_socket(address: &TcpAddress, token: &Token, hello: Hello) -> Result<String, ConnectError> {
    match shake_hands(address, None, token, ConnectionPurpose::Socket, hello)?.2 {
        HandshakeReply::Socket { path, .. } => Ok(path),
        reply => Err(unexpected(address, &reply)),
    }
}

/// Interrupts the session with `key` at the daemon at `address`, which is the machine at `at`.
///
/// # Errors
/// No daemon at that address, or one that refuses.
pub(crate) fn interrupt(address: &TcpAddress, at: SocketAddr, key: &Token, below: u64) -> Result<(), ConnectError> {
    let (purpose, hello) = (ConnectionPurpose::Interrupt { below }, Hello::new(Role::Client, None));
    match shake_hands(address, Some(at), key, purpose, hello)?.2 {
        HandshakeReply::Interrupted { .. } => Ok(()),
        reply => Err(unexpected(address, &reply)),
    }
}

/// The error for a reply to another request.
pub(crate) fn unexpected(address: &TcpAddress, reply: &HandshakeReply) -> ConnectError {
    let source = gt_protocol::ProtocolError::Malformed(format!("{reply:?}"));
    ConnectError::Refused { address: address.authority(), source }
}

/// Appends a message as JSON.
pub(crate) fn push_json<M: Serialize>(out: &mut Vec<u8>, message: &M) {
    // These types always serialize, to fewer bytes than a message may have.
    frame::push_message(out, &serde_json::to_vec(message).unwrap_or_else(|_| b"null".to_vec()));
}
