//! The handshake: the magic bytes, then one message each way.

use crate::frame::{self, MAGIC};
use crate::stream::{Incoming, StreamError};
use crate::token::{Token, TokenError};
use gt_protocol::version::PROTOCOL_VERSION_MIN;
use gt_protocol::{Hello, PROTOCOL_VERSION, Refused, VersionRange, Welcome};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::{TcpStream, ToSocketAddrs};
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
    /// The access token.
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
    /// A session over this connection.
    Session,
    /// To learn the path of the daemon's Unix socket, on the same machine.
    Socket,
}

/// The daemon's first message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum HandshakeReply {
    /// The session is open.
    Welcome(Box<Welcome>),
    /// The daemon's Unix socket.
    Socket {
        /// The path, for `GT_SOCKET`.
        path: String,
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

fn connect_failure_text(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{ConnectionRefused, TimedOut};
    match error.kind() {
        ConnectionRefused => "nobody listens there: start one with `python -m gt.server -p PORT`".into(),
        TimedOut => "the machine does not answer".into(),
        _ => error.to_string(),
    }
}

/// Connects to the daemon at `host` and `port`, sends the request and returns the connection with the daemon's reply.
///
/// # Errors
/// No daemon at that address, or one that refuses.
pub(crate) fn shake_hands(
    host: &str,
    port: u16,
    token: &Token,
    purpose: ConnectionPurpose,
    hello: Hello,
) -> Result<(Arc<TcpStream>, Incoming, HandshakeReply), ConnectError> {
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let connect = |source| ConnectError::Connect { address: address.clone(), source };
    let tcp = Arc::new(dial(host, port).map_err(connect)?);
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
    (&*tcp).write_all(&out).map_err(connect)?;
    let mut incoming = Incoming::new(tcp.clone());
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
        Ok(reply) => Ok((tcp, incoming, reply)),
        Err(error) => Err(refused(gt_protocol::ProtocolError::Malformed(error.to_string()))),
    }
}

fn dial(host: &str, port: u16) -> std::io::Result<TcpStream> {
    let mut last = None;
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_DEADLINE) {
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

/// The path of the Unix socket of the daemon at `host` and `port`, which is on this machine.
///
/// # Errors
/// No daemon at that address, or one that refuses.
pub fn ask_socket(host: &str, port: u16, token: &Token, hello: Hello) -> Result<String, ConnectError> {
    match shake_hands(host, port, token, ConnectionPurpose::Socket, hello)?.2 {
        HandshakeReply::Socket { path, .. } => Ok(path),
        reply => Err(ConnectError::Refused {
            address: format!("{host}:{port}"),
            source: gt_protocol::ProtocolError::Malformed(format!("{reply:?}")),
        }),
    }
}

/// Appends a message as JSON.
pub(crate) fn push_json<M: Serialize>(out: &mut Vec<u8>, message: &M) {
    // These types always serialize, to fewer bytes than a message may have.
    frame::push_message(out, &serde_json::to_vec(message).unwrap_or_else(|_| b"null".to_vec()));
}
