//! Events of the instruction log, and the line of text of each.

use crate::op::Op;
use crate::packing::{PackedLayout, layout};
use crate::row::Class;
use crate::wire::layouts::id;
use std::fmt;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// A client has connected.
    Connect = 1,
    /// A client has disconnected.
    Disconnect = 2,
    /// An instruction came from a client.
    Recv = 3,
    /// A completion went to a client.
    Send = 4,
    /// An instruction went to a worker.
    WorkerSend = 5,
    /// A worker has finished an instruction.
    WorkerRecv = 6,
    /// A tensor was freed.
    Free = 7,
    /// An instruction failed.
    Error = 8,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [EventKind; 8] = [
        EventKind::Connect,
        EventKind::Disconnect,
        EventKind::Recv,
        EventKind::Send,
        EventKind::WorkerSend,
        EventKind::WorkerRecv,
        EventKind::Free,
        EventKind::Error,
    ];
    /// The name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::Connect => "CONNECT",
            EventKind::Disconnect => "DISCONNECT",
            EventKind::Recv => "RECV",
            EventKind::Send => "SEND",
            EventKind::WorkerSend => "WORKER_SEND",
            EventKind::WorkerRecv => "WORKER_RECV",
            EventKind::Free => "FREE",
            EventKind::Error => "ERROR",
        }
    }
}

/// The subject of an event: an op of the table or a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Neither: the event is about a connection.
    Nothing,
    /// An op.
    Op(Op),
    /// [`crate::wire::Command::Free`].
    Free,
    /// [`crate::wire::Command::Fetch`].
    Fetch,
    /// [`crate::wire::Command::Allocate`].
    Allocate,
    /// [`crate::wire::Command::Write`].
    Write,
    /// [`crate::wire::Command::Sync`].
    Sync,
    /// [`crate::wire::Command::Signal`].
    Signal,
    /// [`crate::wire::Command::DefineSignal`].
    DefineSignal,
    /// [`crate::wire::Command::Reshard`].
    Reshard,
}

impl Subject {
    fn code(self) -> u16 {
        match self {
            Subject::Nothing => 0,
            Subject::Free => id::FREE,
            Subject::Fetch => id::FETCH,
            Subject::Allocate => id::ALLOCATE,
            Subject::Write => id::WRITE,
            Subject::Sync => id::SYNC,
            Subject::Signal => id::SIGNAL,
            Subject::DefineSignal => id::DEFINE_SIGNAL,
            Subject::Reshard => id::RESHARD,
            Subject::Op(op) => op as u16,
        }
    }
    fn from_code(code: u16) -> Subject {
        match code {
            id::FREE => Subject::Free,
            id::FETCH => Subject::Fetch,
            id::ALLOCATE => Subject::Allocate,
            id::WRITE => Subject::Write,
            id::SYNC => Subject::Sync,
            id::SIGNAL => Subject::Signal,
            id::DEFINE_SIGNAL => Subject::DefineSignal,
            id::RESHARD => Subject::Reshard,
            code => Op::from_wire(code).map_or(Subject::Nothing, Subject::Op),
        }
    }
    /// The category in the log, such as `BinaryOp`.
    pub fn category(self) -> &'static str {
        match self {
            Subject::Nothing => "-",
            Subject::Free => "Free",
            Subject::Fetch => "Fetch",
            Subject::Allocate => "Allocate",
            Subject::Write => "Write",
            Subject::Sync => "Sync",
            Subject::Signal => "Signal",
            Subject::DefineSignal => "DefineSignal",
            Subject::Reshard => "Reshard",
            Subject::Op(op) => match (op.row().class, op.row().operands) {
                (Class::Elementwise, 1) | (Class::Cast, _) => "UnaryOp",
                (Class::Elementwise, 2) => "BinaryOp",
                (Class::Elementwise | Class::Select, _) => "TernaryOp",
                (Class::Reduction | Class::ArgReduction, _) => "ReductionOp",
                (Class::Movement, _) => "MovementOp",
                (Class::SliceScatter | Class::Scatter, _) => "ScatterOp",
                (Class::Concatenation, _) => "ConcatenationOp",
                (Class::Convolution | Class::Pooling, _) => "WindowOp",
                (Class::Contraction, _) => "ContractionOp",
                (Class::Gather, _) => "GatherOp",
                (Class::Scan, _) => "ScanOp",
                (Class::Sort, _) => "SortOp",
                (Class::Search | Class::Positions, _) => "SearchOp",
                (Class::Creation, _) => "CreationOp",
                (Class::Random, _) => "RandomOp",
                (Class::RowWise, _) => "RowsOp",
            },
        }
    }
    /// The name in the log, such as `add`.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Nothing => "-",
            Subject::Free => "free",
            Subject::Fetch => "fetch",
            Subject::Allocate => "allocate",
            Subject::Write => "write",
            Subject::Sync => "sync",
            Subject::Signal => "signal",
            Subject::DefineSignal => "define_signal",
            Subject::Reshard => "reshard",
            Subject::Op(op) => op.name(),
        }
    }
}

/// The worker number of an event between the daemon and a client.
pub const NO_WORKER: u16 = u16::MAX;

/// One record of the instruction log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the daemon started.
    pub time_ns: u64,
    /// The kind.
    pub kind: EventKind,
    /// The op or command.
    pub subject: Subject,
    /// The worker's number, or [`NO_WORKER`].
    pub worker: u16,
    /// The session's number.
    pub session: u64,
    /// Bytes of the instruction on the wire, or of the data moved.
    pub bytes: u64,
    /// The tensor defined, fetched or freed; 0 for none.
    pub result: u64,
    /// The first tensor operand; 0 for none.
    pub left: u64,
    /// The second tensor operand; 0 for none.
    pub right: u64,
}

layout! {
    /// A record of the instruction log: seven words of the broadcast ring.
    struct EventWords {
        time_ns: u64, word 0, "nanoseconds since the daemon started";
        kind: u8, word 1 bits 0..8, "kind of the event";
        subject: u16, word 1 bits 16..32, "wire id of the op or command; 0 for a connection";
        worker: u16, word 1 bits 32..48, "number of the worker; 65535 for an event between the daemon and a client";
        session: u64, word 2, "number of the session";
        bytes: u64, word 3, "bytes of the instruction on the wire, or of the data moved";
        result: u64, word 4, "id of the tensor defined, fetched or freed; 0 for none";
        left: u64, word 5, "id of the first tensor operand; 0 for none";
        right: u64, word 6, "id of the second tensor operand; 0 for none";
    }
}

impl Event {
    /// Encodes the event as seven words of the broadcast ring.
    pub fn encode(&self) -> [u64; 7] {
        let Event { time_ns, kind, subject, worker, session, bytes, result, left, right } = *self;
        let (kind, subject) = (kind as u8, subject.code());
        let mut words = [0; 7];
        EventWords { time_ns, kind, subject, worker, session, bytes, result, left, right }.write(&mut words);
        words
    }
    /// Decodes seven words; none if a newer daemon wrote a kind that this reader does not know.
    pub fn decode(words: &[u64; 7]) -> Option<Event> {
        let EventWords { time_ns, kind, subject, worker, session, bytes, result, left, right } =
            EventWords::read(words).ok()?;
        let kind = EventKind::ALL.into_iter().find(|known| *known as u8 == kind)?;
        let subject = Subject::from_code(subject);
        Some(Event { time_ns, kind, subject, worker, session, bytes, result, left, right })
    }
    /// The event's line in the instruction log, where it is number `number`.
    pub fn line(&self, number: u64) -> impl fmt::Display + '_ {
        Line { event: self, number }
    }
}

struct Line<'a> {
    event: &'a Event,
    number: u64,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = self.event;
        let (side, who) = if e.worker == NO_WORKER {
            ("CLIENT", format!("session_{}", e.session))
        } else {
            ("WORKER", format!("worker_{}", e.worker))
        };
        write!(
            f,
            "{:>7.3}s | #{:04} | {:<12} | {side} {who:<15} | {:<15} | {}B | op={}",
            e.time_ns as f64 / 1e9,
            self.number,
            e.kind.name(),
            e.subject.category(),
            e.bytes,
            e.subject.name()
        )?;
        for (label, id) in [("result", e.result), ("left", e.left), ("right", e.right)] {
            if id != 0 {
                write!(f, " {label}={id}")?;
            }
        }
        if e.worker != NO_WORKER {
            write!(f, " session={}", e.session)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            time_ns: 125_400_000,
            kind: EventKind::WorkerSend,
            subject: Subject::Op(Op::Add),
            worker: 0,
            session: 3,
            bytes: 64,
            result: 42,
            left: 1,
            right: 2,
        }
    }

    #[test]
    fn a_line_is_one_greppable_row_of_columns() {
        assert_eq!(
            event().line(43).to_string(),
            "  0.125s | #0043 | WORKER_SEND  | WORKER worker_0        | BinaryOp        | 64B | op=add result=42 left=1 right=2 session=3"
        );
    }

    #[test]
    fn events_survive_the_ring() {
        for kind in EventKind::ALL {
            for subject in [
                Subject::Nothing,
                Subject::Free,
                Subject::Fetch,
                Subject::Allocate,
                Subject::Write,
                Subject::Sync,
                Subject::Op(Op::Matmul),
            ] {
                let event = Event { kind, subject, ..event() };
                assert_eq!(Event::decode(&event.encode()), Some(event));
            }
        }
        assert_eq!(Event::decode(&[0; 7]), None);
    }
}
