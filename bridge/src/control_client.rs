//! The client's end of a connection without a session, as `gtctl` has. It runs in the client's process and acts as a
//! local daemon there: it holds the daemon's side of a control socket, and of a ring with a copy of the tape.

use crate::channel::TcpChannel;
use crate::frame::{Frame, records_in};
use crate::handshake::{self, ConnectError, ConnectionPurpose, HandshakeReply, push_json, shake_hands};
use crate::stream::{Incoming, StreamError};
use crate::token::Token;
use gt_protocol::address::TcpAddress;
use gt_protocol::limits::TAPE_RECORDS;
use gt_protocol::tape::TapeCopy;
use gt_protocol::{ClientMessage, Connection, DaemonMessage, Hello, ProtocolError};
use gt_shm::Socket;
use gt_shm::broadcast::{self, MappedBroadcast, Writer};
use rustix::event::{PollFd, PollFlags, poll};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

struct ControlClient {
    channel: Arc<TcpChannel>,
    /// The daemon's end of the client's control socket.
    control: Socket,
}

/// Connects to the daemon at `address` for requests and commands. The connection is used like one to a local daemon.
///
/// # Errors
/// If there is no daemon at that address, or it refuses.
pub fn connect(address: &TcpAddress, token: &Token, hello: Hello) -> Result<Connection, ConnectError> {
    let (channel, incoming, reply) = shake_hands(address, None, token, ConnectionPurpose::Session, hello)?;
    let welcome = match reply {
        HandshakeReply::Welcome(welcome) => welcome.welcome,
        reply => return Err(handshake::unexpected(address, &reply)),
    };
    let (socket, control) = Socket::pair().map_err(ConnectError::Local)?;
    let end = Arc::new(ControlClient { channel, control });
    let local = |source| ConnectError::Local(gt_shm::Error::Os { what: "start a thread", source });
    let thread = |name: &str| std::thread::Builder::new().name(name.into());
    let down = end.clone();
    thread("gt-tcp-down").spawn(move || down.ended(down.receive(incoming))).map_err(local)?;
    let up = end.clone();
    thread("gt-tcp-up").spawn(move || up.ended(up.send())).map_err(|error| {
        end.ended(Ok(()));
        local(error)
    })?;
    Ok(Connection { socket, welcome, port: None })
}

impl ControlClient {
    /// Ends both directions after one of them has ended.
    fn ended(&self, how: Result<(), BoxError>) {
        if let Err(error) = how {
            tracing::info!(target: "gt_client", %error, "the connection with the daemon has ended");
        }
        let _ = self.channel.shutdown(Shutdown::Both);
        self.control.shut_down();
    }

    /// Sends the client's messages until the connection ends.
    fn send(&self) -> Result<(), BoxError> {
        let mut out = Vec::new();
        loop {
            match gt_protocol::recv_client_message(&self.control, Duration::ZERO) {
                Ok(message) => {
                    push_json(&mut out, &message);
                    self.channel.write_all(&out)?;
                    out.clear();
                    if message == ClientMessage::Bye {
                        return Ok(());
                    }
                }
                Err(ProtocolError::TimedOut(_)) => {
                    let _ = poll(&mut [PollFd::new(&self.control, PollFlags::IN)], None);
                }
                Err(ProtocolError::HungUp) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives the daemon's frames until the connection ends.
    fn receive(&self, mut incoming: Incoming) -> Result<(), BoxError> {
        let mut tape: Option<Writer<MappedBroadcast>> = None;
        loop {
            match incoming.next() {
                Ok(Frame::Message(message)) => {
                    let message: DaemonMessage = serde_json::from_slice(message)?;
                    if matches!(message, DaemonMessage::Tape { .. }) {
                        // The ring has its usual size, whatever the daemon's has.
                        let (mut writer, fd) = broadcast::create("gt-tape-copy", TAPE_RECORDS)?;
                        TapeCopy::default().begin(0, |record| writer.write(record));
                        tape = Some(writer);
                        let message = DaemonMessage::Tape { records: TAPE_RECORDS };
                        gt_protocol::send_daemon_message(&self.control, &message, &[fd.as_fd()], Duration::ZERO)?;
                    } else {
                        gt_protocol::send_daemon_message(&self.control, &message, &[], Duration::ZERO)?;
                    }
                }
                Ok(Frame::Records(payload)) => {
                    let tape = tape.as_mut().ok_or("records of a tape that was not asked for")?;
                    records_in(payload).for_each(|record| tape.write(&record));
                }
                Ok(_) => return Err("a frame of a session on a connection without one".into()),
                Err(StreamError::Ended) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
