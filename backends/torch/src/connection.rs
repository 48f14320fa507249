//! The socket to the Python process: frames of instructions one way, answers at fences the other way.

use gt_backend::ExecError;
use gt_ops::Op;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

/// The bytes that one call reads from the socket at most.
const READ_BYTES: usize = 64 << 10;
/// The bytes of an answer without its text.
const ANSWER_BYTES: usize = 8 * 3 + 4 * 2 + 8 * 4;

/// An error that the process found in an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The label of the instruction.
    pub label: u64,
    /// The instruction's op; none for a transfer.
    pub op: Option<Op>,
    /// The error.
    pub error: FoundError,
}

/// The kinds of errors that the process finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundError {
    /// An error that carries all that is known of it.
    Exec(ExecError),
    /// The device had no room for a result of this many bytes.
    NoRoom(usize),
}

/// The process's answer when its device has passed a fence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The fence's number.
    pub fence: u64,
    /// Nanoseconds that the device computed since the fence before.
    pub computed_ns: u64,
    /// Nanoseconds that the transfer of this fence took.
    pub copied_ns: u64,
    /// The error of the tensor that was to be read, if it has one.
    pub found: Option<Found>,
}

/// The process and the socket to it.
#[derive(Debug)]
pub struct ProcessConnection {
    process: Child,
    socket: UnixStream,
    incoming: Vec<u8>,
    scratch: Box<[u8]>,
    /// Why the process is lost, once it is.
    lost: Option<Box<str>>,
}

impl ProcessConnection {
    /// The connection to a process that was just started.
    ///
    /// # Errors
    /// If the socket cannot be configured.
    pub fn new(process: Child, socket: UnixStream) -> std::io::Result<ProcessConnection> {
        socket.set_nonblocking(true)?;
        let scratch = vec![0; READ_BYTES].into();
        Ok(ProcessConnection { process, socket, incoming: Vec::new(), scratch, lost: None })
    }

    /// The process's id.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Sends whole frames. While the process is behind, this waits, and takes what the process says meanwhile, so that
    /// neither end waits for the other.
    ///
    /// # Errors
    /// [`ExecError::Lost`].
    pub fn send(&mut self, mut frames: &[u8]) -> Result<(), ExecError> {
        while !frames.is_empty() {
            match self.socket.write(frames) {
                Ok(written) => frames = &frames[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.await_socket(PollFlags::OUT | PollFlags::IN, None)?;
                    self.receive()?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(self.lose()),
            }
        }
        Ok(())
    }

    /// Takes what the process has said so far, without waiting.
    fn receive(&mut self) -> Result<(), ExecError> {
        loop {
            match self.socket.read(&mut self.scratch) {
                Ok(0) => return Err(self.lose()),
                Ok(read) => {
                    self.incoming.extend(&self.scratch[..read]);
                    if read < READ_BYTES {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(self.lose()),
            }
        }
    }

    fn await_socket(&mut self, flags: PollFlags, timeout: Option<Duration>) -> Result<(), ExecError> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut [PollFd::new(&self.socket, flags)], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(ExecError::internal(format!("the socket to PyTorch's process: {error}"))),
        }
    }

    /// The frame at the front of what was received, if all of it is there.
    fn take_frame(&mut self) -> Option<Vec<u8>> {
        let (len, rest) = self.incoming.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len) as usize;
        let frame = rest.get(..len)?.to_vec();
        self.incoming.drain(..4 + len);
        Some(frame)
    }

    /// The first frame that the process sends.
    ///
    /// # Errors
    /// [`ExecError::Lost`] if the process ends, or says nothing within `deadline`.
    pub fn first_frame(&mut self, deadline: Duration) -> Result<Vec<u8>, ExecError> {
        let end = Instant::now() + deadline;
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(frame);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ExecError::Lost(format!("PyTorch was not ready within {deadline:?}").into()));
            }
            self.await_socket(PollFlags::IN, Some(left))?;
            self.receive()?;
        }
    }

    /// The next answer; if `wait`, waits for it.
    ///
    /// # Errors
    /// [`ExecError::Lost`].
    pub fn answer(&mut self, wait: bool) -> Result<Option<Answer>, ExecError> {
        loop {
            if let Some(frame) = self.take_frame() {
                return decode(&frame).map(Some).ok_or_else(|| self.lose());
            }
            if let Some(why) = &self.lost {
                return Err(ExecError::Lost(why.clone()));
            }
            let before = self.incoming.len();
            self.receive()?;
            if self.incoming.len() == before {
                if !wait {
                    return Ok(None);
                }
                self.await_socket(PollFlags::IN, None)?;
            }
        }
    }

    /// The error of a process that does not answer any more.
    #[cold]
    fn lose(&mut self) -> ExecError {
        let why = self.lost.get_or_insert_with(|| {
            // It has hung up or broken the rules; a defect must not leave it running.
            let ended = self.process.try_wait().ok().flatten();
            let _ = self.process.kill();
            match ended.map_or_else(|| self.process.wait(), Ok) {
                Ok(status) => format!("the process that runs PyTorch has ended ({status})").into(),
                Err(error) => format!("the process that runs PyTorch has ended ({error})").into(),
            }
        });
        ExecError::Lost(why.clone())
    }
}

impl Drop for ProcessConnection {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Decodes an answer; none if it makes no sense. `python/worker.py` encodes it.
fn decode(frame: &[u8]) -> Option<Answer> {
    let (head, text) = frame.split_at_checked(ANSWER_BYTES)?;
    let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let (kind, op) = (half(24)?, half(28)?);
    let [label, first, second, third] = [word(32)?, word(40)?, word(48)?, word(56)?];
    let error = match kind {
        0 => None,
        1 => Some(FoundError::Exec(ExecError::IndexOutOfRange {
            index: first as i64,
            axis: second as usize,
            size: third as usize,
        })),
        2 => Some(FoundError::Exec(ExecError::ZeroDivision)),
        3 => Some(FoundError::NoRoom(first as usize)),
        4 => Some(FoundError::Exec(ExecError::internal(String::from_utf8_lossy(text)))),
        _ => return None,
    };
    let op = u16::try_from(op).ok().and_then(Op::from_wire);
    let found = error.map(|error| Found { label, op, error });
    Some(Answer { fence: word(0)?, computed_ns: word(8)?, copied_ns: word(16)?, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(kind: u32, op: u32, words: [u64; 4], text: &str) -> Vec<u8> {
        let mut bytes: Vec<u8> = [7u64, 1000, 20].iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend([kind, op].iter().flat_map(|half| half.to_le_bytes()));
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(text.bytes());
        bytes
    }

    #[test]
    fn an_answer_names_the_instruction_that_failed() {
        let answer = decode(&encoded(1, Op::Gather as u32, [9, -3i64 as u64, 1, 4], "")).unwrap();
        let error = FoundError::Exec(ExecError::IndexOutOfRange { index: -3, axis: 1, size: 4 });
        let found = Some(Found { label: 9, op: Some(Op::Gather), error });
        assert_eq!(answer, Answer { fence: 7, computed_ns: 1000, copied_ns: 20, found });
        assert_eq!(decode(&encoded(0, 0, [0; 4], "")).unwrap().found, None);
        let told = decode(&encoded(4, 0, [9, 0, 0, 0], "no")).unwrap().found.unwrap();
        assert_eq!((told.op, told.error), (None, FoundError::Exec(ExecError::internal("no"))));
        assert_eq!(decode(&encoded(9, 0, [0; 4], "")), None);
        assert_eq!(decode(&[0; ANSWER_BYTES - 1]), None);
    }
}
