//! Failures of instructions: the fault, the instruction that met it and, where a worker was lost, how it ended.

use crate::instruction::TensorId;
use crate::op::Op;
use std::fmt;

/// A reason for failure that only shows when an instruction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A tensor did not fit in memory.
    OutOfMemory {
        /// Bytes requested.
        requested: u64,
        /// Bytes in use.
        held: u64,
        /// The limit in bytes.
        limit: u64,
        /// The scope of the limit.
        scope: MemoryScope,
    },
    /// The user's sessions hold as many tensors as they may.
    TooManyTensors {
        /// Tensors held.
        held: u64,
        /// The limit.
        limit: u64,
    },
    /// An element of an index tensor is out of range.
    IndexOutOfRange {
        /// The index.
        index: i64,
        /// The axis.
        axis: u64,
        /// The size of the axis.
        size: u64,
    },
    /// Integer division by zero.
    ZeroDivision,
    /// The worker that held the tensor or was computing it has ended.
    WorkerLost {
        /// The worker.
        worker: WorkerName,
        /// How its process ended.
        end: WorkerEnd,
    },
    /// The session cancelled the instruction before it was done, as when its user interrupts a program with Ctrl-C.
    Interrupted,
    /// The instruction would take longer than the user's limit allows, by the daemon's estimate, so it was not begun.
    TooLong {
        /// The estimated time, milliseconds.
        estimate_ms: u64,
        /// The limit, milliseconds.
        limit_ms: u64,
    },
    /// A defect in GT; the daemon's log has the details.
    Internal,
}

/// The sessions that share a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryScope {
    /// All sessions of the worker together.
    Worker,
    /// One session.
    Session,
    /// All sessions of one user together.
    User,
}

/// A failed instruction: the fault, and the instruction that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reason.
    pub fault: Fault,
    /// The id of the result of the instruction that failed: its sequence number.
    pub instruction: TensorId,
    /// The op that failed; none if no op failed, as in a transfer.
    pub op: Option<Op>,
}

/// Maximum number of characters in a worker's name.
pub const WORKER_NAME_CHARACTERS_MAX: usize = 16;

/// A worker's name: at most 16 bytes of printable ASCII.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerName([u8; WORKER_NAME_CHARACTERS_MAX]);

impl WorkerName {
    /// `name`, truncated to fit; characters that are not printable ASCII become `?`.
    pub fn new(name: &str) -> WorkerName {
        let mut bytes = [0; WORKER_NAME_CHARACTERS_MAX];
        for (byte, c) in bytes.iter_mut().zip(name.chars()) {
            *byte = if c.is_ascii_graphic() { c as u8 } else { b'?' };
        }
        WorkerName(bytes)
    }

    /// The name of a worker known by its number only.
    pub fn numbered(number: usize) -> WorkerName {
        WorkerName::new(&number.to_string())
    }

    /// The number in a name made by [`WorkerName::numbered`].
    pub fn number(self) -> Option<usize> {
        self.to_string().parse().ok()
    }

    /// The name as two words of the wire.
    pub fn words(self) -> [u64; 2] {
        let [low, high] = [0, 8].map(|at| std::array::from_fn(|i| self.0[at + i]));
        [u64::from_le_bytes(low), u64::from_le_bytes(high)]
    }

    /// Decodes a name from two words of the wire.
    pub fn from_words([low, high]: [u64; 2]) -> WorkerName {
        let bytes = [low.to_le_bytes(), high.to_le_bytes()].concat();
        let text: String = bytes.iter().take_while(|byte| **byte != 0).map(|byte| *byte as char).collect();
        WorkerName::new(&text)
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take_while(|byte| **byte != 0).try_for_each(|byte| write!(f, "{}", *byte as char))
    }
}

impl fmt::Debug for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// How a worker's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// Killed by this signal.
    Signal(u8),
    /// Exited with this status.
    Exit(u8),
    /// The process could not be started.
    NotStarted,
    /// The daemon ended it for a report that breaks the protocol.
    InvalidReport,
    /// The daemon ended it because it no longer answered.
    Unresponsive,
    /// It exited because its device failed.
    DeviceLost,
    /// A worker that registered itself left the daemon or was killed; the daemon did not start it and cannot tell
    /// which.
    Left,
    /// A code that this version does not know.
    Unknown,
}

impl WorkerEnd {
    /// The exit status of a process that ended for [`WorkerEnd::DeviceLost`]: `EX_UNAVAILABLE`.
    pub const DEVICE_LOST_STATUS: u8 = 69;

    /// The end as a word of the wire: a code in bits 0-7, a signal or status in bits 8-15. Never 0.
    pub fn word(self) -> u64 {
        match self {
            WorkerEnd::Signal(signal) => 1 | (signal as u64) << 8,
            WorkerEnd::Exit(status) => 2 | (status as u64) << 8,
            WorkerEnd::NotStarted => 3,
            WorkerEnd::InvalidReport => 4,
            WorkerEnd::Unknown => 5,
            WorkerEnd::Unresponsive => 6,
            WorkerEnd::DeviceLost => 7,
            WorkerEnd::Left => 8,
        }
    }

    /// Decodes an end from a word of the wire.
    pub fn from_word(word: u64) -> WorkerEnd {
        let detail = (word >> 8) as u8;
        match word & 0xff {
            1 => WorkerEnd::Signal(detail),
            2 => WorkerEnd::Exit(detail),
            3 => WorkerEnd::NotStarted,
            4 => WorkerEnd::InvalidReport,
            6 => WorkerEnd::Unresponsive,
            7 => WorkerEnd::DeviceLost,
            8 => WorkerEnd::Left,
            _ => WorkerEnd::Unknown,
        }
    }
}

/// Signals that kill programs, with explanations for users.
const SIGNALS: [(u8, &str); 6] = [
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (9, "SIGKILL, as the system sends when memory runs out"),
    (11, "SIGSEGV"),
    (15, "SIGTERM"),
    (4, "SIGILL"),
];

impl fmt::Display for WorkerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerEnd::Signal(signal) => match SIGNALS.iter().find(|(number, _)| number == signal) {
                Some((_, name)) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            WorkerEnd::Exit(status) => write!(f, "ended with status {status}"),
            WorkerEnd::NotStarted => f.write_str("could not be started"),
            WorkerEnd::InvalidReport => f.write_str("was ended because what it reported made no sense"),
            WorkerEnd::Unresponsive => f.write_str("was ended because it did not answer, as if it were stopped"),
            WorkerEnd::DeviceLost => f.write_str("lost its device, which failed"),
            WorkerEnd::Left => f.write_str("left the daemon or was killed"),
            WorkerEnd::Unknown => f.write_str("ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_the_wire() {
        for name in ["", "cpu:0", "cuda:15", "sixteen-letters!"] {
            let name = WorkerName::new(name);
            assert_eq!(WorkerName::from_words(name.words()), name);
        }
        assert_eq!(WorkerName::new("cpu:0").to_string(), "cpu:0");
        assert_eq!([WorkerName::numbered(63), WorkerName::new("cpu:0")].map(WorkerName::number), [Some(63), None]);
        assert_eq!(WorkerName::new("a name of more than sixteen").to_string(), "a?name?of?more?t");
        assert_eq!(WorkerName::from_words([u64::MAX; 2]).to_string(), "?".repeat(16));
    }

    #[test]
    fn ends_survive_the_wire_and_are_never_zero() {
        let ends = [
            WorkerEnd::Signal(9),
            WorkerEnd::Exit(101),
            WorkerEnd::NotStarted,
            WorkerEnd::InvalidReport,
            WorkerEnd::Unresponsive,
            WorkerEnd::DeviceLost,
            WorkerEnd::Left,
            WorkerEnd::Unknown,
        ];
        for end in ends {
            assert_ne!(end.word(), 0);
            assert_eq!(WorkerEnd::from_word(end.word()), end);
        }
        assert_eq!(WorkerEnd::from_word(u64::MAX), WorkerEnd::Unknown);
        assert!(WorkerEnd::Signal(9).to_string().contains("memory"));
        assert_eq!(WorkerEnd::Signal(63).to_string(), "was killed by signal 63");
    }
}
