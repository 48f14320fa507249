//! Connections between machines that compute together: TLS 1.3 in which both sides show a certificate.
//!
//! Nobody signs these certificates: each side knows the other by the fingerprint of its certificate, as `ssh` knows
//! hosts and users by their keys. A [`MachinePort`] listens and takes any peer that has the key of its certificate; the
//! caller then decides by the fingerprint. [`dial`] connects to a peer whose fingerprint is known before.
//!
//! One message in each direction follows: the request of the side that dials, and the reply. If they agree there on it,
//! the two sides may then [end the encryption](MachineConnection::end_encryption).

use crate::channel::{Ciphertext, TcpChannel};
use crate::frame::MAGIC;
use crate::handshake::{self, ConnectError, push_json};
use crate::peer::PeerOrigin;
use crate::pending_handshakes::{OpenSocket, PendingHandshakes};
use crate::stream::{Incoming, StreamError};
use crate::tls::{Certificate, ServedCertificate};
use gt_protocol::address::{Fingerprint, TcpAddress, TcpSecurity};
use gt_protocol::limits::HANDSHAKES_MAX;
use rustix::net::sockopt;
use rustls::{ServerConfig, ServerConnection};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Error, ErrorKind};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time from a connection to its request, or to the reply.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// A connection breaks if bytes that were sent are not acknowledged by the peer's kernel for this long.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(8);
/// The sleep after a failed accept, for example when no descriptors are left.
const ACCEPT_NAP: Duration = Duration::from_millis(20);

/// A connection whose two sides know each other's certificate.
pub struct MachineConnection {
    pub(crate) channel: Arc<TcpChannel>,
    pub(crate) incoming: Incoming,
    /// The fingerprint of the peer's certificate.
    pub peer: Fingerprint,
    /// The peer's address.
    pub address: SocketAddr,
    /// This side's address.
    pub own_address: SocketAddr,
}

impl MachineConnection {
    fn new(channel: Arc<TcpChannel>, incoming: Incoming, peer: Fingerprint) -> std::io::Result<MachineConnection> {
        let (address, own_address) = (channel.tcp().peer_addr()?, channel.tcp().local_addr()?);
        sockopt::set_tcp_user_timeout(channel.tcp(), UNACKNOWLEDGED_MAX.as_millis() as u32)?;
        Ok(MachineConnection { channel, incoming, peer, address, own_address })
    }

    /// Sends the reply to the peer's request.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn reply<M: Serialize>(&self, message: &M) -> std::io::Result<()> {
        let mut out = MAGIC.to_vec();
        push_json(&mut out, message);
        self.channel.write_all(&out)
    }
}

impl MachineConnection {
    /// Ends the encryption, after the reply and before anything else was sent. Both sides have to do so.
    ///
    /// Afterwards nothing proves that the bytes are the peer's: an attacker on the way can read and change them.
    ///
    /// # Errors
    /// The peer has sent more than its request or its reply.
    pub fn end_encryption(&mut self) -> std::io::Result<()> {
        if !self.incoming.is_empty() {
            return Err(Error::new(ErrorKind::InvalidData, "encrypted bytes where none should be"));
        }
        self.channel = Arc::new(self.channel.to_plain());
        self.incoming = Incoming::new(self.channel.clone(), Ciphertext::new());
        Ok(())
    }
}

/// Connects to the machine at `host` and `port`, which must show the certificate `expected`, and sends it a request.
/// Returns the connection and the reply.
///
/// # Errors
/// Nobody listens there, or it is not the expected machine, or it does not reply.
pub fn dial<M: Serialize, R: DeserializeOwned>(
    (host, port): (&str, u16),
    expected: Fingerprint,
    own: &Certificate,
    request: &M,
) -> Result<(MachineConnection, R), ConnectError> {
    let security = TcpSecurity::Tls(Some(expected));
    let address = TcpAddress { host: host.to_owned(), port, security };
    let name = address.authority();
    let failed = |source| ConnectError::Connect { address: name.clone(), source };
    let (channel, received) = handshake::open(&address, None, Some(own), Instant::now() + HANDSHAKE_DEADLINE)?;
    let channel = Arc::new(channel);
    let mut out = MAGIC.to_vec();
    push_json(&mut out, request);
    channel.write_all(&out).map_err(failed)?;
    let mut incoming = Incoming::new(channel.clone(), received);
    // Bytes without encryption may follow the reply at once.
    incoming.receive_by_record(true);
    let reply = incoming.first_message(Instant::now() + HANDSHAKE_DEADLINE).map_err(|error| match error {
        StreamError::TimedOut => ConnectError::Silent(name.clone()),
        StreamError::Ended | StreamError::Io(_) => ConnectError::HungUp(name.clone()),
        StreamError::NotGt | StreamError::Frame(_) => ConnectError::NotGt(name.clone()),
    })?;
    incoming.receive_by_record(false);
    let reply = serde_json::from_slice(&reply).map_err(|_| ConnectError::NotGt(name.clone()))?;
    Ok((MachineConnection::new(channel, incoming, expected).map_err(failed)?, reply))
}

/// A port at which other machines connect.
pub struct MachinePort {
    tcp: TcpListener,
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    handshakes: PendingHandshakes<OpenSocket>,
}

impl MachinePort {
    /// Listens at `address` and shows the certificate `own`.
    ///
    /// # Errors
    /// The address is in use or not this machine's.
    pub fn bind(address: SocketAddr, own: &Certificate) -> std::io::Result<MachinePort> {
        let tcp = TcpListener::bind(address)?;
        let tls = ServedCertificate::new(own.clone()).mutual_server().map_err(Error::other)?;
        let handshakes = PendingHandshakes::new(HANDSHAKES_MAX as usize);
        Ok(MachinePort { address: tcp.local_addr()?, tcp, tls, handshakes })
    }

    /// The address; for port 0, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes connections in threads of its own until the process ends. `taken` is called on such a thread for each
    /// connection, with its request.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start<M: DeserializeOwned>(
        self,
        taken: impl Fn(MachineConnection, M) + Send + Sync + 'static,
    ) -> std::io::Result<()> {
        let (port, taken) = (Arc::new(self), Arc::new(taken));
        let accept = move || loop {
            let Ok((tcp, address)) = port.tcp.accept() else {
                std::thread::sleep(ACCEPT_NAP);
                continue;
            };
            let tcp = Arc::new(tcp);
            if let Some(closed) = port.handshakes.begin(PeerOrigin::new(None, address.ip()), OpenSocket(tcp.clone())) {
                let _ = closed.0.shutdown(Shutdown::Both);
            }
            let (own, taken, socket) = (port.clone(), taken.clone(), tcp.clone());
            let serve = move || {
                let begun = own.begin(socket.clone());
                own.handshakes.end(&OpenSocket(socket));
                match begun {
                    Ok((connection, request)) => taken(connection, request),
                    Err(error) => tracing::debug!(target: "gtd::nodes", %address, "no connection began: {error}"),
                }
            };
            if std::thread::Builder::new().name("gt-machine".into()).spawn(serve).is_err() {
                port.handshakes.end(&OpenSocket(tcp));
            }
        };
        std::thread::Builder::new().name("gt-machines".into()).spawn(accept)?;
        Ok(())
    }

    fn begin<M: DeserializeOwned>(
        &self,
        tcp: Arc<TcpStream>,
    ) -> Result<(MachineConnection, M), Box<dyn std::error::Error>> {
        let deadline = Instant::now() + HANDSHAKE_DEADLINE;
        handshake::prepare(&tcp)?;
        let tls = ServerConnection::new(self.tls.clone())?;
        let (channel, received) = TcpChannel::encrypted(tcp, tls.into(), deadline)?;
        let channel = Arc::new(channel);
        let peer = channel.peer_certificate().ok_or("it has shown no certificate")?;
        let mut incoming = Incoming::new(channel.clone(), received);
        let request = serde_json::from_slice(&incoming.first_message(deadline)?)?;
        Ok((MachineConnection::new(channel, incoming, peer)?, request))
    }
}
