//! The daemon's end of connections without a session: requests, commands, and copies of the tape.
//!
//! A thread of the connection reads the tape as any observer does, so the dispatcher does not wait for a peer that
//! receives slowly or not at all: the ring goes on, and the copy says how many records it lacks. What is on its way is
//! bounded by one batch here and the socket's buffers.

use crate::channel::TcpChannel;
use crate::frame::{Frame, RECORDS_MAX, push_records};
use crate::handshake::push_json;
use crate::stream::{Incoming, StreamError};
use gt_protocol::limits::{HANDSHAKE_DEADLINE, REPLY_DEADLINE};
use gt_protocol::tape::{TapeCopy, TapeReader};
use gt_protocol::{ClientMessage, DaemonMessage, RefusalCode, Refused};
use gt_shm::Socket;
use gt_shm::broadcast::{self, Reader, Record};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::Scope;
use std::time::Duration;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The interval at which the tape is read: as often as observers should.
const READ_EVERY: Duration = Duration::from_millis(1);

/// A connection without a session.
pub(crate) struct ControlRelay {
    channel: Arc<TcpChannel>,
    /// The control socket.
    socket: Arc<Socket>,
    has_ended: AtomicBool,
}

impl ControlRelay {
    /// Relays between `channel` and the daemon's control socket.
    pub(crate) fn new(channel: Arc<TcpChannel>, socket: Arc<Socket>) -> ControlRelay {
        ControlRelay { channel, socket, has_ended: AtomicBool::new(false) }
    }

    /// Relays until either side ends the connection.
    pub(crate) fn run(&self, incoming: Incoming) -> Result<(), BoxError> {
        std::thread::scope(|scope| {
            let ended = self.relay(scope, incoming);
            self.has_ended.store(true, Relaxed);
            let _ = self.channel.shutdown(Shutdown::Both);
            self.socket.shut_down();
            ended
        })
    }

    fn relay<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, mut incoming: Incoming) -> Result<(), BoxError> {
        let mut has_tape = false;
        loop {
            let message = match incoming.next() {
                Ok(Frame::Message(message)) => serde_json::from_slice(message)?,
                Ok(_) => return Err("a frame of a session on a connection without one".into()),
                Err(StreamError::Ended) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            if matches!(message, ClientMessage::Hello(_)) {
                return Err("it said hello twice".into());
            }
            if has_tape && matches!(message, ClientMessage::TapeAttach { .. }) {
                let text = "this connection carries the tape already";
                self.send(&DaemonMessage::Refused(Refused::new(RefusalCode::Malformed, text)))?;
                continue;
            }
            gt_protocol::send_client_message(&self.socket, &message, HANDSHAKE_DEADLINE)?;
            match message {
                ClientMessage::Bye => return Ok(()),
                ClientMessage::Name { .. } | ClientMessage::Interrupt { .. } => continue,
                _ => {}
            }
            let (answer, fds) = match gt_protocol::recv_daemon_message(&self.socket, REPLY_DEADLINE) {
                Err(gt_protocol::ProtocolError::HungUp) => return Ok(()),
                received => received?,
            };
            self.send(&answer)?;
            if let DaemonMessage::Tape { records } = answer {
                let fd = fds.into_iter().next().ok_or("a tape without its memory")?;
                let tape = TapeReader::new(Reader::from_oldest(broadcast::open_file(&fd, records)?));
                let thread = std::thread::Builder::new().name("gt-tcp-tape".into());
                thread.spawn_scoped(scope, || self.copy(tape))?;
                has_tape = true;
            }
        }
    }

    fn send(&self, message: &DaemonMessage) -> Result<(), BoxError> {
        let mut out = Vec::new();
        push_json(&mut out, message);
        Ok(self.channel.write_all(&out)?)
    }

    /// Sends the tape until the connection ends.
    fn copy(&self, mut tape: TapeReader) {
        let (mut copy, mut out) = (TapeCopy::default(), Vec::new());
        let mut records: Vec<Record> = Vec::with_capacity(RECORDS_MAX);
        while !self.has_ended.load(Relaxed) {
            while records.len() + 1 < RECORDS_MAX
                && let Some(numbered) = tape.read()
            {
                copy.add(&numbered, |record| records.push(*record));
            }
            if records.is_empty() {
                if self.socket.is_hung_up() {
                    break;
                }
                std::thread::sleep(READ_EVERY);
                continue;
            }
            out.clear();
            push_records(&mut out, &records);
            records.clear();
            if self.channel.write_all(&out).is_err() {
                break;
            }
        }
        // The other thread may wait for the peer.
        let _ = self.channel.shutdown(Shutdown::Both);
    }
}
