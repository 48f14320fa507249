//! Frames out of a connection.

use crate::frame::{FRAME_BYTES_MAX, Frame, FrameError, decode};
use crate::greeting::MAGIC;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// Why no more frames come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The other side has ended the connection, perhaps in the middle of a frame.
    #[error("it has ended the connection")]
    Ended,
    /// It took too long.
    #[error("it did not speak in time")]
    TimedOut,
    /// It does not begin as GT does.
    #[error("it is no GT program")]
    NotGt,
    /// It sends what is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The system says so.
    #[error("the connection broke: {0}")]
    Io(io::Error),
}

/// The receiving side of a connection.
pub(crate) struct Incoming {
    tcp: Arc<TcpStream>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Incoming {
    pub(crate) fn new(tcp: Arc<TcpStream>) -> Incoming {
        Incoming { tcp, buffer: vec![0; 2 * FRAME_BYTES_MAX].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Waits for the next frame, which is gone at the next call.
    pub(crate) fn next(&mut self) -> Result<Frame<'_>, Broken> {
        let len = loop {
            match decode(&self.buffer[self.start..self.end])? {
                Some((_, len)) => break len,
                None => self.fill()?,
            }
        };
        let start = self.start;
        self.start += len;
        // Once more, as the first borrow may not leave the loop.
        match decode(&self.buffer[start..start + len])? {
            Some((frame, _)) => Ok(frame),
            None => Err(Broken::Ended),
        }
    }

    /// Waits until `deadline` for the bytes that GT begins with, and the first message.
    pub(crate) fn first_message(&mut self, deadline: Instant) -> Result<Vec<u8>, Broken> {
        loop {
            let bytes = &self.buffer[self.start..self.end];
            let known = bytes.len().min(MAGIC.len());
            if bytes[..known] != MAGIC[..known] {
                return Err(Broken::NotGt);
            }
            if let Some(rest) = bytes.get(MAGIC.len()..)
                && let Some((frame, len)) = decode(rest)?
            {
                let Frame::Message(message) = frame else { return Err(Broken::NotGt) };
                let message = message.to_vec();
                self.start += MAGIC.len() + len;
                self.tcp.set_read_timeout(None).map_err(Broken::Io)?;
                return Ok(message);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Broken::TimedOut);
            }
            self.tcp.set_read_timeout(Some(left)).map_err(Broken::Io)?;
            self.fill()?;
        }
    }

    /// Reads what is there, at least one byte.
    fn fill(&mut self) -> Result<(), Broken> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < FRAME_BYTES_MAX {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            match (&*self.tcp).read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(Broken::Ended),
                Ok(count) => {
                    self.end += count;
                    return Ok(());
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Err(Broken::TimedOut),
                    _ => return Err(Broken::Io(error)),
                },
            }
        }
    }
}
