//! What is said first: eight bytes that only GT says, then one message each way.

use crate::frame;
use crate::stream::{Broken, Incoming};
use crate::token::{Token, TokenError};
use gt_protocol::{Hello, PROTOCOL_VERSION, Refused, Welcome};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How both sides begin. Never changes: what follows says its version.
pub const MAGIC: [u8; 8] = *b"GT-TCP\r\n";
/// A machine that has not answered by then is not there.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long to wait for a daemon's first words.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// The client's first message.
#[derive(Debug, Serialize, Deserialize)]
pub struct Greeting {
    /// [`PROTOCOL_VERSION`]. The one field that no version may rename.
    pub protocol_version: u32,
    /// The daemon's token.
    pub token: String,
    /// What is wanted.
    pub wish: Wish,
    /// The client's process, for those who look at the daemon.
    pub pid: u32,
    /// What the client says to the daemon.
    pub hello: Hello,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// A session over this connection.
    Session,
    /// The Unix socket of the daemon, of somebody on the same machine.
    Socket,
}

/// The daemon's first message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The session stands.
    Welcome(Box<Welcome>),
    /// The path of the daemon's Unix socket.
    Socket {
        /// As in `GT_SOCKET`.
        path: String,
        /// The daemon's.
        protocol_version: u32,
    },
    /// No; the connection ends.
    Refused(Refused),
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody answers.
    #[error("cannot connect to the daemon at {address}: {}", why_not(source))]
    Connect {
        /// Where.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody answers who is no daemon.
    #[error("what listens at {0} is no GT daemon, or a very old one: is the port right?")]
    NotGt(String),
    /// Somebody hangs up without a word.
    #[error("what listens at {0} hung up: it is a daemon that ends, or no GT daemon: is the port right?")]
    HungUp(String),
    /// Somebody listens who says nothing.
    #[error("what listens at {0} does not answer: is the port right?")]
    Silent(String),
    /// There is no token, or none that can be used.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The daemon refused, or speaks another version.
    #[error("the daemon at {address}: {source}")]
    Refused {
        /// Where.
        address: String,
        /// What it said.
        source: gt_protocol::Error,
    },
    /// The system refused.
    #[error("a session by TCP could not be set up: {0}")]
    Local(gt_shm::Error),
}

fn why_not(error: &std::io::Error) -> String {
    use std::io::ErrorKind::{ConnectionRefused, TimedOut};
    match error.kind() {
        ConnectionRefused => "nobody listens there: start one with `python -m gt.server -p PORT`".into(),
        TimedOut => "the machine does not answer".into(),
        _ => error.to_string(),
    }
}

/// Connects to the daemon at `host` and `port`, says `hello` and returns what it answers.
///
/// # Errors
/// Nobody there, somebody else, or a daemon that refuses.
pub(crate) fn greet(
    host: &str,
    port: u16,
    token: &Token,
    wish: Wish,
    hello: Hello,
) -> Result<(Arc<TcpStream>, Incoming, Answer), Error> {
    let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let connect = |source| Error::Connect { address: address.clone(), source };
    let tcp = Arc::new(dial(host, port).map_err(connect)?);
    let greeting = Greeting {
        protocol_version: PROTOCOL_VERSION,
        token: token.text().to_owned(),
        wish,
        pid: std::process::id(),
        hello,
    };
    let mut out = MAGIC.to_vec();
    push_json(&mut out, &greeting);
    (&*tcp).write_all(&out).map_err(connect)?;
    let mut incoming = Incoming::new(tcp.clone());
    let told = incoming.first_message(Instant::now() + ANSWER_DEADLINE).map_err(|broken| match broken {
        Broken::TimedOut => Error::Silent(address.clone()),
        Broken::Ended | Broken::Io(_) => Error::HungUp(address.clone()),
        _ => Error::NotGt(address.clone()),
    })?;
    let refused = |source| Error::Refused { address: address.clone(), source };
    match gt_protocol::version_in(&told) {
        Some(PROTOCOL_VERSION) => {}
        Some(daemon) => return Err(refused(gt_protocol::Error::DaemonVersion { daemon })),
        None => return Err(Error::NotGt(address)),
    }
    match serde_json::from_slice(&told) {
        Ok(Answer::Refused(no)) => Err(refused(no.into())),
        Ok(answer) => Ok((tcp, incoming, answer)),
        Err(error) => Err(refused(gt_protocol::Error::Malformed(error.to_string()))),
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

/// Small frames travel at once, and a machine that has vanished is noticed.
pub(crate) fn prepare(tcp: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    tcp.set_nodelay(true)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, Duration::from_secs(30))?;
    sockopt::set_tcp_keepintvl(tcp, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(tcp, 3)?;
    Ok(())
}

/// The Unix socket of the daemon at `host` and `port`, which is on this machine.
///
/// # Errors
/// Nobody there, somebody else, or a daemon that refuses.
pub fn ask_socket(host: &str, port: u16, token: &Token, hello: Hello) -> Result<String, Error> {
    match greet(host, port, token, Wish::Socket, hello)?.2 {
        Answer::Socket { path, .. } => Ok(path),
        answer => Err(Error::Refused {
            address: format!("{host}:{port}"),
            source: gt_protocol::Error::Malformed(format!("{answer:?}")),
        }),
    }
}

/// Appends a message as JSON.
pub(crate) fn push_json<M: Serialize>(out: &mut Vec<u8>, message: &M) {
    // A message of these types is always text, and short.
    frame::push_message(out, &serde_json::to_vec(message).unwrap_or_else(|_| b"null".to_vec()));
}

/// Whether `address` is on this machine.
pub(crate) fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}
