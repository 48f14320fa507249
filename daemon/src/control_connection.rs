//! A connection on the control socket: its peer, its handshake and its session.

use crate::descriptors::{OF_CONNECTION, OF_SESSION, OF_TCP};
use crate::session::Session;
use crate::session_tape::SessionTape;
use gt_protocol::message::OnBehalf;
use gt_protocol::{
    ClientMessage, Hello, PROTOCOL_VERSION, ProtocolError, Refused, SessionRecord, SessionStatus, VersionRange,
};
use gt_shm::Socket;
use gt_shm::socket::PeerCredentials;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The result of receiving on a connection.
pub enum ReceivedMessage {
    /// No message.
    Nothing,
    /// A valid hello.
    Hello(Hello),
    /// A message after the hello.
    Request(ClientMessage),
    /// An invalid message: the refusal, and the reason for the log. The connection must end.
    Refuse(Refused, String),
    /// The end of the connection, with the reason for the log.
    Gone(String),
}

/// A connection on the control socket.
pub struct ControlConnection {
    /// The connection's number, never used again, which is also the number of its session.
    pub serial: u64,
    /// The index in the dispatcher's table.
    pub slot: usize,
    /// The socket.
    pub socket: Socket,
    /// A descriptor that becomes readable when the peer's process ends.
    pub pidfd: Option<OwnedFd>,
    /// The peer's user, group and process, as the kernel reports them.
    pub peer: PeerCredentials,
    /// The session, if the peer is a client.
    pub session: Option<Session>,
    /// The copy of the tape that the peer reads, if it may not read the tape itself.
    pub session_tape: Option<SessionTape>,
    /// The protocol version that both sides use; the daemon's newest until the hello.
    pub version: u32,
    name: Option<String>,
    /// The client, if it is connected by TCP.
    on_behalf: Option<OnBehalf>,
    deadline: Option<Instant>,
}

impl ControlConnection {
    /// A connection whose hello must come before `deadline`.
    pub fn new(
        serial: u64,
        slot: usize,
        socket: Socket,
        pidfd: Option<OwnedFd>,
        peer: PeerCredentials,
        deadline: Instant,
    ) -> ControlConnection {
        ControlConnection {
            serial,
            slot,
            socket,
            pidfd,
            peer,
            session: None,
            session_tape: None,
            version: PROTOCOL_VERSION,
            name: None,
            on_behalf: None,
            deadline: Some(deadline),
        }
    }

    /// The deadline of the hello; none after it.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// True until the hello has come.
    pub fn awaits_hello(&self) -> bool {
        self.deadline.is_some()
    }

    /// Receives the next message. Does not wait.
    pub fn receive(&mut self) -> ReceivedMessage {
        let received = if self.awaits_hello() {
            gt_protocol::recv_hello(&self.socket, Duration::ZERO).map(ReceivedMessage::Hello)
        } else {
            gt_protocol::recv_client_message(&self.socket, Duration::ZERO).map(ReceivedMessage::Request)
        };
        match received {
            Ok(received) => {
                if let ReceivedMessage::Hello(hello) = &received {
                    self.deadline = None;
                    self.version = hello.versions().common(VersionRange::OWN).unwrap_or(PROTOCOL_VERSION);
                    self.name = hello.name.clone();
                }
                received
            }
            Err(ProtocolError::TimedOut(_)) => ReceivedMessage::Nothing,
            Err(ProtocolError::HungUp) => ReceivedMessage::Gone("it hung up".into()),
            Err(error) => ReceivedMessage::Refuse(gt_protocol::refusal_for(&error), error.to_string()),
        }
    }

    /// Gives the connection, which the daemon's own process opened, the user, process, address and rights of a TCP
    /// client.
    pub fn speaks_for(&mut self, client: &OnBehalf) {
        (self.peer.uid, self.peer.pid) = (client.uid, client.pid);
        self.on_behalf = Some(client.clone());
    }

    /// The daemon's descriptors that are open for the connection.
    pub fn descriptors(&self) -> u64 {
        let of_session = self.session.as_ref().map_or(0, |session| OF_SESSION + session.kept_descriptors());
        OF_CONNECTION + of_session + if self.is_by_tcp() { OF_TCP } else { 0 }
    }

    /// True if the peer is a client by TCP.
    pub fn is_by_tcp(&self) -> bool {
        self.on_behalf.is_some()
    }

    /// The number of the access token that opened the connection, if it is a user's.
    pub fn token(&self) -> Option<u64> {
        self.on_behalf.as_ref().and_then(|client| client.token)
    }

    /// True for root, the user `daemon` and members of the group `administrators`. A TCP client is an administrator
    /// only if its token says so: the groups of its connection's peer are those of the daemon.
    pub fn is_administrator(&self, daemon: u32, administrators: Option<u32>) -> bool {
        if let Some(client) = &self.on_behalf {
            return client.administrator;
        }
        let PeerCredentials { uid, gid, .. } = self.peer;
        let in_group = |group| gid == group || self.socket.peer_groups().is_ok_and(|all| all.contains(&group));
        uid == 0 || uid == daemon || administrators.is_some_and(in_group)
    }

    /// The groups of the peer, as the kernel reports them; none for a TCP client, whose peer is the daemon.
    pub fn groups(&self) -> Option<Vec<u32>> {
        if self.on_behalf.is_some() {
            return None;
        }
        let mut groups = self.socket.peer_groups().unwrap_or_default();
        groups.push(self.peer.gid);
        Some(groups)
    }

    /// Renames the session.
    pub fn rename(&mut self, name: Option<String>) {
        self.name = name;
    }

    /// The record of the session, if there is one, without its end.
    pub fn record(&self) -> Option<SessionRecord> {
        let record = self.session.as_ref()?.record();
        Some(SessionRecord {
            name: self.name.clone(),
            uid: self.peer.uid,
            pid: self.peer.pid,
            from: self.on_behalf.as_ref().map(|client| client.from.clone()),
            ..record
        })
    }

    /// The status of the session, if there is one.
    pub fn status(&self) -> Option<SessionStatus> {
        let status = self.session.as_ref()?.status();
        Some(SessionStatus {
            name: self.name.clone(),
            uid: self.peer.uid,
            pid: self.peer.pid,
            from: self.on_behalf.as_ref().map(|client| client.from.clone()),
            ..status
        })
    }
}
