//! A connection on the control socket: who it is, and what it says.

use crate::session::Session;
use gt_protocol::message::OnBehalf;
use gt_protocol::{ClientMessage, Hello, ProtocolError, Refused, SessionStatus};
use gt_shm::Socket;
use gt_shm::socket::PeerCredentials;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What a connection's message asks for.
pub enum Asks {
    /// There was none.
    Nothing,
    /// A good hello.
    Hello(Hello),
    /// Anything later.
    Answer(ClientMessage),
    /// A refusal, then the end, and why for the log.
    Refuse(Refused, String),
    /// It has ended.
    Gone(String),
}

/// One connection.
pub struct ControlConnection {
    /// Its number, never used twice; its session's too.
    pub serial: u64,
    /// Where the dispatcher keeps it.
    pub slot: usize,
    /// Its socket.
    pub socket: Socket,
    /// Becomes readable when its process ends.
    pub pidfd: Option<OwnedFd>,
    /// Who it is, as the kernel says.
    pub peer: PeerCredentials,
    /// Its session, if it is a client.
    pub session: Option<Session>,
    name: Option<String>,
    /// Where its client is, if that is not the process at the other end.
    from: Option<String>,
    deadline: Option<Instant>,
}

impl ControlConnection {
    /// A connection that must say hello before `deadline`.
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
            name: None,
            from: None,
            deadline: Some(deadline),
        }
    }

    /// Until when it must say hello; none if it has.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// True before its hello.
    pub fn is_greeting(&self) -> bool {
        self.deadline.is_some()
    }

    /// Its next message. Does not wait.
    pub fn listen(&mut self) -> Asks {
        let received = if self.is_greeting() {
            gt_protocol::recv_hello(&self.socket, Duration::ZERO).map(Asks::Hello)
        } else {
            gt_protocol::recv_client_message(&self.socket, Duration::ZERO).map(Asks::Answer)
        };
        match received {
            Ok(asks) => {
                if let Asks::Hello(hello) = &asks {
                    self.deadline = None;
                    self.name = hello.name.clone();
                }
                asks
            }
            Err(ProtocolError::TimedOut(_)) => Asks::Nothing,
            Err(ProtocolError::HungUp) => Asks::Gone("it hung up".into()),
            Err(error) => Asks::Refuse(gt_protocol::refusal_for(&error), error.to_string()),
        }
    }

    /// It is that of another, for whom a process of the daemon's user speaks.
    pub fn speaks_for(&mut self, client: &OnBehalf) {
        (self.peer.uid, self.peer.pid) = (client.uid, client.pid);
        self.from = Some(client.from.clone());
    }

    /// Calls its session something else.
    pub fn rename(&mut self, name: Option<String>) {
        self.name = name;
    }

    /// How its session stands, if it has one.
    pub fn status(&self) -> Option<SessionStatus> {
        let status = self.session.as_ref()?.status();
        Some(SessionStatus {
            name: self.name.clone(),
            uid: self.peer.uid,
            pid: self.peer.pid,
            from: self.from.clone(),
            ..status
        })
    }
}
