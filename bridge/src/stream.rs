//! Receiving frames from a TCP connection.

use crate::channel::{Ciphertext, TcpChannel};
use crate::frame::{DataHead, FRAME_BYTES_MAX, Frame, FrameError, MAGIC, decode};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Where the data of frames is read apart from them, no more is received at one time than they need, or this many
/// bytes: what is received with a frame has to be copied.
const AHEAD_BYTES: usize = 16 << 10;

/// A frame whose data, if it has any, is read apart from it.
pub(crate) enum FramePart<'a> {
    /// The beginning of a data frame.
    Data(DataHead),
    /// Another frame.
    Whole(Frame<'a>),
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
                None => self.fill(FRAME_BYTES_MAX)?,
            }
        };
        self.frame(len)
    }

    /// The frame of `len` bytes that has come.
    fn frame(&mut self, len: usize) -> Result<Frame<'_>, StreamError> {
        let start = self.start;
        self.start += len;
        // The frame is decoded again, because the borrow checker does not let a loop return it.
        match decode(&self.buffer[start..start + len])? {
            Some((frame, _)) => Ok(frame),
            None => Err(StreamError::Ended),
        }
    }

    /// Waits for the next frame, or for the beginning of one with data, whose bytes [`some`](Self::some) and
    /// [`try_read`](Self::try_read) then return.
    pub(crate) fn next_part(&mut self) -> Result<FramePart<'_>, StreamError> {
        let len = loop {
            let bytes = &self.buffer[self.start..self.end];
            if let Some(head) = DataHead::decode(bytes)? {
                self.start += DataHead::BYTES;
                return Ok(FramePart::Data(head));
            }
            match decode(bytes)? {
                Some((_, len)) => break len,
                None => self.fill(AHEAD_BYTES)?,
            }
        };
        self.frame(len).map(FramePart::Whole)
    }

    /// The next bytes, at most `bytes_max`, waiting for at least one. [`consume`](Self::consume) takes them.
    pub(crate) fn some(&mut self, bytes_max: usize) -> Result<&[u8], StreamError> {
        if self.start == self.end {
            self.fill(bytes_max.max(AHEAD_BYTES))?;
        }
        Ok(&self.buffer[self.start..self.end.min(self.start + bytes_max)])
    }

    /// Takes bytes that were returned.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
    }

    /// Reads bytes to `to` without waiting, and returns their number: 0 if none have come.
    pub(crate) fn try_read(&mut self, to: &mut [u8]) -> Result<usize, StreamError> {
        let here = to.len().min(self.end - self.start);
        if here > 0 {
            to[..here].copy_from_slice(&self.buffer[self.start..self.start + here]);
            self.start += here;
            return Ok(here);
        }
        match self.channel.try_read(&mut self.received, to) {
            Ok(0) => Err(StreamError::Ended),
            Ok(count) => Ok(count),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(failed(error)),
        }
    }

    /// Receives bytes if some have come, without waiting. Returns whether there are some that nobody has taken.
    pub(crate) fn look(&mut self) -> Result<bool, StreamError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            match self.channel.try_read(&mut self.received, &mut self.buffer[..AHEAD_BYTES]) {
                Ok(0) => return Err(StreamError::Ended),
                Ok(count) => self.end = count,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(self.start < self.end)
    }

    /// Waits until bytes have come, perhaps until `bytes` have, after [`try_read`](Self::try_read) has found none. At
    /// least as many must still be to come.
    pub(crate) fn wait(&self, bytes: usize, timeout: Duration) -> Result<(), StreamError> {
        self.channel.wait_readable(bytes, timeout).map_err(failed)
    }

    /// Whether everything that was received was taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end && self.received.is_empty()
    }

    /// Receives from now on one record of TLS at a time, and nothing of what comes behind it; or as much as has come.
    pub(crate) fn receive_by_record(&mut self, by_record: bool) {
        self.received.receive_by_record(by_record);
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
            self.fill(FRAME_BYTES_MAX)?;
        }
    }

    /// Reads the bytes that have arrived, waiting for at least one, and at most `bytes_max`.
    fn fill(&mut self, bytes_max: usize) -> Result<(), StreamError> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < FRAME_BYTES_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let end = self.buffer.len().min(self.end + bytes_max);
        loop {
            match self.channel.read(&mut self.received, &mut self.buffer[self.end..end]) {
                Ok(0) => return Err(StreamError::Ended),
                Ok(count) => {
                    self.end += count;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn failed(error: io::Error) -> StreamError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => StreamError::TimedOut,
        // A peer that closes an encrypted connection without a word has ended it as well.
        io::ErrorKind::UnexpectedEof => StreamError::Ended,
        _ => StreamError::Io(error),
    }
}
