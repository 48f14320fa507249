//! Receiving frames from a TCP connection.

use crate::channel::{Ciphertext, TcpChannel};
use crate::frame::{FRAME_BYTES_MAX, Frame, FrameError, MAGIC, decode};
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// The reason why no further frame can be received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StreamError {
    /// The peer has closed the connection, perhaps in the middle of a frame.
    #[error("it has ended the connection")]
    Ended,
    /// The deadline has passed.
    #[error("it did not speak in time")]
    TimedOut,
    /// The first bytes are not [`MAGIC`].
    #[error("it is no GT program")]
    NotGt,
    /// The peer has sent an invalid frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// An error of the system.
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

/// The receiving side of a connection.
pub(crate) struct Incoming {
    channel: Arc<TcpChannel>,
    /// The encrypted bytes that were received.
    received: Ciphertext,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Incoming {
    /// The receiving side of `channel`, of which `received` was received before.
    pub(crate) fn new(channel: Arc<TcpChannel>, received: Ciphertext) -> Incoming {
        Incoming { channel, received, buffer: vec![0; 2 * FRAME_BYTES_MAX].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Waits for the next frame, which borrows the buffer until the next call.
    pub(crate) fn next(&mut self) -> Result<Frame<'_>, StreamError> {
        let len = loop {
            match decode(&self.buffer[self.start..self.end])? {
                Some((_, len)) => break len,
                None => self.fill()?,
            }
        };
        let start = self.start;
        self.start += len;
        // The frame is decoded again, because the borrow checker does not let the loop return it.
        match decode(&self.buffer[start..start + len])? {
            Some((frame, _)) => Ok(frame),
            None => Err(StreamError::Ended),
        }
    }

    /// Waits until `deadline` for [`MAGIC`] and the first message, and returns the message.
    pub(crate) fn first_message(&mut self, deadline: Instant) -> Result<Vec<u8>, StreamError> {
        loop {
            let bytes = &self.buffer[self.start..self.end];
            let known = bytes.len().min(MAGIC.len());
            if bytes[..known] != MAGIC[..known] {
                return Err(StreamError::NotGt);
            }
            if let Some(rest) = bytes.get(MAGIC.len()..)
                && let Some((frame, len)) = decode(rest)?
            {
                let Frame::Message(message) = frame else { return Err(StreamError::NotGt) };
                let message = message.to_vec();
                self.start += MAGIC.len() + len;
                self.channel.set_read_timeout(None).map_err(StreamError::Io)?;
                return Ok(message);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StreamError::TimedOut);
            }
            self.channel.set_read_timeout(Some(left)).map_err(StreamError::Io)?;
            self.fill()?;
        }
    }

    /// Reads the bytes that have arrived, waiting for at least one.
    fn fill(&mut self) -> Result<(), StreamError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < FRAME_BYTES_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            match self.channel.read(&mut self.received, &mut self.buffer[self.end..]) {
                Ok(0) => return Err(StreamError::Ended),
                Ok(count) => {
                    self.end += count;
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(StreamError::TimedOut),
                    // A peer that closes an encrypted connection without a word has ended it as well.
                    io::ErrorKind::UnexpectedEof => return Err(StreamError::Ended),
                    _ => return Err(StreamError::Io(error)),
                },
            }
        }
    }
}
