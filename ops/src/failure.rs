//! Failures of instructions: the fault, the instruction that met it and, where a worker was lost, how it ended.

use crate::instruction::TensorId;
use crate::op::Op;
use std::fmt;

/// A reason for failure that only shows when an instruction runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A tensor did not fit: bytes asked for, bytes held, the limit in bytes.
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes in use.
        held: u64,
        /// The limit in bytes.
        limit: u64,
        /// What the limit applies to.
        scope: MemoryScope,
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
    /// The worker that held the tensor, or should have made it, has ended.
    WorkerLost {
        /// The worker.
        worker: WorkerName,
        /// How its process ended.
        end: WorkerEnd,
    },
    /// A defect in GT; the daemon's log has the details.
    Internal,
}

/// What a memory limit applies to.
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
    /// What happened.
    pub fault: Fault,
    /// The id of the result of the instruction that failed: its sequence number.
    pub instruction: TensorId,
    /// The op that failed; none for a transfer.
    pub op: Option<Op>,
}

/// The longest name that a worker can have.
pub const WORKER_NAME_CHARACTERS_MAX: usize = 16;

/// A worker's name, as users write it: at most 16 bytes of printable ASCII.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerName([u8; WORKER_NAME_CHARACTERS_MAX]);

impl WorkerName {
    /// `name`, as far as it fits; other characters read as `?`.
    pub fn new(name: &str) -> WorkerName {
        let mut bytes = [0; WORKER_NAME_CHARACTERS_MAX];
        for (byte, c) in bytes.iter_mut().zip(name.chars()) {
            *byte = if c.is_ascii_graphic() { c as u8 } else { b'?' };
        }
        WorkerName(bytes)
    }

    /// Of one that is known by its number only.
    pub fn numbered(number: usize) -> WorkerName {
        WorkerName::new(&number.to_string())
    }

    /// The number of one that is known by that only.
    pub fn number(self) -> Option<usize> {
        self.to_string().parse().ok()
    }

    /// As it travels.
    pub fn words(self) -> [u64; 2] {
        let [low, high] = [0, 8].map(|at| std::array::from_fn(|i| self.0[at + i]));
        [u64::from_le_bytes(low), u64::from_le_bytes(high)]
    }

    /// As it travelled.
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
    /// By a signal.
    Signal(u8),
    /// By itself, with this status.
    Exit(u8),
    /// It did not come to life.
    NotStarted,
    /// The daemon ended it for a report that breaks the protocol.
    InvalidReport,
    /// The daemon ended it because it no longer answered.
    Unresponsive,
    /// Its device does not work any more, so it ended.
    DeviceLost,
    /// It came by itself, and left the daemon or was killed: only who started it knows.
    Left,
    /// A way that this version does not know.
    Unknown,
}

impl WorkerEnd {
    /// The status of a process that ended for [`WorkerEnd::DeviceLost`]: `EX_UNAVAILABLE`.
    pub const DEVICE_LOST_STATUS: u8 = 69;

    /// As it travels; never 0.
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

    /// As it travelled.
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

/// Signals that end programs, with the words that help.
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
    fn ends_survive_the_wire_and_are_never_nothing() {
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
