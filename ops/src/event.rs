//! Events of the instruction log, and the line of text of each, written and parsed.

use crate::op::Op;
use crate::packing::{PackedLayout, layout};
use crate::result_meta::ResultMeta;
use crate::row::Class;
use crate::wire::layouts::id;
use std::fmt;
use std::str::FromStr;

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
    /// The dispatcher ran an instruction itself, as the worker: the hand-over and the end of a small step in one event.
    WorkerRun = 9,
    /// From the next instruction on, a session follows a sequence that has repeated.
    HotStart = 10,
    /// A session has left the sequence that it followed, with the instruction before.
    HotEnd = 11,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [EventKind; 11] = [
        EventKind::Connect,
        EventKind::Disconnect,
        EventKind::Recv,
        EventKind::Send,
        EventKind::WorkerSend,
        EventKind::WorkerRecv,
        EventKind::Free,
        EventKind::Error,
        EventKind::WorkerRun,
        EventKind::HotStart,
        EventKind::HotEnd,
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
            EventKind::WorkerRun => "WORKER_RUN",
            EventKind::HotStart => "HOT_START",
            EventKind::HotEnd => "HOT_END",
        }
    }
    /// Whether it is the end of a step, and tells the step's time.
    pub const fn ends_step(self) -> bool {
        matches!(self, EventKind::WorkerRecv | EventKind::WorkerRun)
    }
    /// Whether it tells the dtype and sizes of a step's result in place of operands.
    const fn has_result_meta(self) -> bool {
        matches!(self, EventKind::WorkerSend | EventKind::WorkerRun)
    }
    /// Whether a session begins or ceases to follow a sequence.
    const fn is_about_path(self) -> bool {
        matches!(self, EventKind::HotStart | EventKind::HotEnd)
    }
    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<EventKind> {
        EventKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The subject of an event: an op of the table or a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The wire id of the op or command, below [`WIRE_ID_MAX`](crate::op::WIRE_ID_MAX); 0 for a connection.
    #[inline]
    pub fn code(self) -> u16 {
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
    /// The subject of a wire id.
    pub fn from_code(code: u16) -> Subject {
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
    /// The subject of this name.
    pub fn from_name(name: &str) -> Option<Subject> {
        COMMANDS.into_iter().find(|subject| subject.name() == name).or_else(|| Op::from_name(name).map(Subject::Op))
    }
}

/// The subjects that are no ops.
const COMMANDS: [Subject; 9] = [
    Subject::Nothing,
    Subject::Free,
    Subject::Fetch,
    Subject::Allocate,
    Subject::Write,
    Subject::Sync,
    Subject::Signal,
    Subject::DefineSignal,
    Subject::Reshard,
];

/// The time that a step took, as the event of its end tells it, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepTime {
    /// The worker's measurement; 0 for a step that was fused with the one before, which carries the time of both.
    Measured(u64),
    /// The daemon's estimate, for a step of which it measures only many together: a small one that it ran itself.
    Estimated(u64),
}

impl StepTime {
    /// The time, whether measured or estimated.
    pub fn ns(self) -> u64 {
        match self {
            StepTime::Measured(ns) | StepTime::Estimated(ns) => ns,
        }
    }
    /// The time as the last two words of an event.
    #[inline]
    pub fn words(self) -> [u64; 2] {
        match self {
            StepTime::Measured(ns) => [ns, 0],
            StepTime::Estimated(ns) => [ns, 1],
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
    /// The tensor defined or fetched, or the first one freed; 0 for none. Of a [`EventKind::HotStart`] or
    /// [`EventKind::HotEnd`], the number of the sequence in its session.
    pub result: u64,
    /// The first tensor operand, or the second tensor freed; 0 for none. With [`right`](Self::right), the
    /// [`ResultMeta`] of a [`EventKind::WorkerSend`] or [`EventKind::WorkerRun`] and the [`StepTime`] of a
    /// [`EventKind::WorkerRecv`]; also the instructions of the sequence and how often it was followed before of a
    /// [`EventKind::HotStart`], and the instructions that followed it and those taken from the plan of a
    /// [`EventKind::HotEnd`].
    pub left: u64,
    /// The second tensor operand, or the third tensor freed; 0 for none.
    pub right: u64,
    /// The estimated time of a [`EventKind::WorkerRun`], nanoseconds; 0 for other events.
    pub run_ns: u16,
}

layout! {
    /// A record of the instruction log: seven words of the broadcast ring.
    struct EventWords {
        time_ns: u64, word 0, "nanoseconds since the daemon started";
        kind: u8, word 1 bits 0..8, "kind of the event";
        subject: u16, word 1 bits 16..32, "wire id of the op or command; 0 for a connection";
        worker: u16, word 1 bits 32..48, "number of the worker; 65535 for an event between the daemon and a client";
        run_ns: u16, word 1 bits 48..64, "of a WORKER_RUN, the estimate of the step's time in nanoseconds; else 0";
        session: u64, word 2, "number of the session";
        bytes: u64, word 3, "bytes of the instruction on the wire, or of the data moved";
        result: u64, word 4, "id of the tensor defined or fetched, or of the first one freed; 0 for none; of a HOT_START or HOT_END, the number of the sequence in the session";
        left: u64, word 5, "id of the first tensor operand, or of the second one freed, 0 for none; of a WORKER_SEND or WORKER_RUN, bits 0..8: 1 + dtype of the result, 0 if there is none, 8..16: its rank, then its sizes; of a WORKER_RECV, the step's time in nanoseconds; of a HOT_START, the instructions of the sequence; of a HOT_END, those that followed it";
        right: u64, word 6, "id of the second tensor operand, or of the third one freed, 0 for none; of a WORKER_SEND or WORKER_RUN, the rest of the sizes; of a WORKER_RECV, 1 if that time is an estimate; of a HOT_START, how often the sequence was followed before; of a HOT_END, the instructions that were taken from its plan";
    }
}

impl Event {
    /// Encodes the event as seven words of the broadcast ring. Inlined, so that a writer stores the words without an
    /// event or an array in between.
    #[inline(always)]
    pub fn encode(&self) -> [u64; 7] {
        let Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns } = *self;
        let (kind, subject) = (kind as u8, subject.code());
        let mut words = [0; 7];
        EventWords { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns }.write(&mut words);
        words
    }
    /// Decodes seven words; none if a newer daemon wrote a kind that this reader does not know.
    pub fn decode(words: &[u64; 7]) -> Option<Event> {
        let EventWords { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns } =
            EventWords::read(words).ok()?;
        let kind = EventKind::ALL.into_iter().find(|known| *known as u8 == kind)?;
        let subject = Subject::from_code(subject);
        Some(Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns })
    }
    /// The dtype and sizes of the step's result; none for other events than [`EventKind::WorkerSend`] and
    /// [`EventKind::WorkerRun`], or without a result.
    pub fn result_meta(&self) -> Option<ResultMeta> {
        self.kind.has_result_meta().then(|| ResultMeta::from_words([self.left, self.right]))?
    }
    /// The time that the step took; none for an event that is no step's end.
    pub fn step_time(&self) -> Option<StepTime> {
        match self.kind {
            EventKind::WorkerRun => Some(StepTime::Estimated(self.run_ns.into())),
            EventKind::WorkerRecv if self.right == 0 => Some(StepTime::Measured(self.left)),
            EventKind::WorkerRecv => Some(StepTime::Estimated(self.left)),
            _ => None,
        }
    }
}

/// The text between a line of the instruction log and the line of the program that issued the instruction, which
/// readers of the log pass over.
pub const SOURCE: &str = "  # ";

/// A line of the instruction log; `to_string` and `parse` convert it to text and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLine {
    /// An event and its number.
    Event(u64, Event),
    /// This number of events is missing here: the reader of the tape was too slow for them.
    Lost(u64),
    /// An event that this version does not know.
    OtherVersion,
    /// Another daemon, whose process id this is, continues the file.
    OtherDaemon(u32),
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, e) = match self {
            LogLine::Event(number, event) => (number, event),
            LogLine::Lost(events) => return write!(f, "... {events} events lost"),
            LogLine::OtherVersion => return f.write_str("... an event of another version"),
            LogLine::OtherDaemon(process) => return write!(f, "... another daemon begins, process {process}"),
        };
        let (side, who) = if e.worker == NO_WORKER {
            ("CLIENT", format!("session_{}", e.session))
        } else {
            ("WORKER", format!("worker_{}", e.worker))
        };
        write!(
            f,
            "{:>7.3}s | #{number:04} | {:<12} | {side} {who:<15} | {:<15} | {}B | op={}",
            e.time_ns as f64 / 1e9,
            e.kind.name(),
            e.subject.category(),
            e.bytes,
            e.subject.name()
        )?;
        let operands = match e.step_time() {
            Some(StepTime::Measured(ns)) => [("took", ns), ("right", 0)],
            Some(StepTime::Estimated(ns)) => [("estimate", ns), ("right", 0)],
            None if e.kind.has_result_meta() => [("left", 0), ("right", 0)],
            // A search for `result=42` finds the whole life of one tensor.
            None if e.kind == EventKind::Free => [("result", e.left), ("result", e.right)],
            None if e.kind == EventKind::HotStart => [("length", e.left), ("rounds", e.right)],
            None if e.kind == EventKind::HotEnd => [("followed", e.left), ("hits", e.right)],
            None => [("left", e.left), ("right", e.right)],
        };
        let subject = if e.kind.is_about_path() { "sequence" } else { "result" };
        for (label, value) in [(subject, e.result)].into_iter().chain(operands) {
            if value != 0 {
                write!(f, " {label}={value}")?;
            }
        }
        if let Some(meta) = e.result_meta() {
            write!(f, " out={meta}")?;
        }
        if e.worker != NO_WORKER {
            write!(f, " session={}", e.session)?;
        }
        write!(f, " at={}", e.time_ns)
    }
}

/// A text that is no line of the instruction log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidLogLine;

impl FromStr for LogLine {
    type Err = InvalidLogLine;

    fn from_str(text: &str) -> Result<LogLine, InvalidLogLine> {
        let text = text.split_once(SOURCE).map_or(text, |(text, _)| text);
        match text.strip_prefix("... ") {
            Some(note) => parse_note(note),
            None => parse_event(text),
        }
        .ok_or(InvalidLogLine)
    }
}

fn parse_note(note: &str) -> Option<LogLine> {
    if note == "an event of another version" {
        return Some(LogLine::OtherVersion);
    }
    let lost = note.strip_suffix(" events lost").and_then(|events| events.parse().ok());
    let daemon = || note.strip_prefix("another daemon begins, process ")?.parse().ok();
    lost.map(LogLine::Lost).or_else(|| daemon().map(LogLine::OtherDaemon))
}

fn parse_event(text: &str) -> Option<LogLine> {
    let mut columns = text.split(" | ").map(str::trim);
    let seconds: f64 = columns.next()?.strip_suffix('s')?.parse().ok()?;
    let number = columns.next()?.strip_prefix('#')?.parse().ok()?;
    let kind = EventKind::from_name(columns.next()?)?;
    let who = columns.next()?;
    let worker = who.strip_prefix("WORKER worker_").map_or(Some(NO_WORKER), |worker| worker.parse().ok())?;
    let _category = columns.next()?;
    let bytes = columns.next()?.strip_suffix('B')?.parse().ok()?;
    let session = who.strip_prefix("CLIENT session_").map_or(Some(0), |session| session.parse().ok())?;
    let (subject, time_ns) = (Subject::Nothing, (seconds * 1e9) as u64);
    let (result, left, right, run_ns) = (0, 0, 0, 0);
    let mut event = Event { time_ns, kind, subject, worker, session, bytes, result, left, right, run_ns };
    for field in columns.next()?.split(' ') {
        let (label, value) = field.split_once('=')?;
        if label == "op" {
            event.subject = Subject::from_name(value)?;
            continue;
        }
        if label == "out" {
            // A newer daemon may know more dtypes.
            [event.left, event.right] = value.parse::<ResultMeta>().map_or([0; 2], |meta| meta.words());
            continue;
        }
        let value = value.parse().ok()?;
        match label {
            "result" if event.result == 0 => event.result = value,
            "result" if event.left == 0 => event.left = value,
            "result" => event.right = value,
            // An older daemon also told the operands of a WORKER_SEND.
            "left" | "right" if kind == EventKind::WorkerSend => {}
            "sequence" if kind.is_about_path() => event.result = value,
            "length" | "followed" if kind.is_about_path() => event.left = value,
            "rounds" | "hits" if kind.is_about_path() => event.right = value,
            "left" => event.left = value,
            "right" => event.right = value,
            "took" => [event.left, event.right] = StepTime::Measured(value).words(),
            "estimate" if kind == EventKind::WorkerRun => event.run_ns = u16::try_from(value).ok()?,
            "estimate" => [event.left, event.right] = StepTime::Estimated(value).words(),
            "session" => event.session = value,
            "at" => event.time_ns = value,
            // A newer daemon may tell more.
            _ => {}
        }
    }
    Some(LogLine::Event(number, event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Meta, Shape};

    fn event() -> Event {
        Event {
            time_ns: 125_400_000,
            kind: EventKind::WorkerSend,
            subject: Subject::Op(Op::Add),
            worker: 0,
            session: 3,
            bytes: 64,
            result: 42,
            left: 0,
            right: 0,
            run_ns: 0,
        }
    }

    fn with_result(dims: &[usize]) -> Event {
        let [left, right] = ResultMeta::words_of(&Meta::new(Shape::new(dims).unwrap(), DType::F32));
        Event { left, right, ..event() }
    }

    #[test]
    fn a_line_is_one_greppable_row_of_columns() {
        assert_eq!(
            LogLine::Event(43, Event { kind: EventKind::Recv, worker: NO_WORKER, left: 1, right: 2, ..event() })
                .to_string(),
            "  0.125s | #0043 | RECV         | CLIENT session_3       | BinaryOp        | 64B | op=add result=42 left=1 \
             right=2 at=125400000"
        );
        assert_eq!(
            LogLine::Event(44, with_result(&[64, 10])).to_string(),
            "  0.125s | #0044 | WORKER_SEND  | WORKER worker_0        | BinaryOp        | 64B | op=add result=42 \
             out=float32[64,10] session=3 at=125400000"
        );
        let run = Event { kind: EventKind::WorkerRun, run_ns: 80, ..with_result(&[64, 10]) };
        assert_eq!(
            LogLine::Event(45, run).to_string(),
            "  0.125s | #0045 | WORKER_RUN   | WORKER worker_0        | BinaryOp        | 64B | op=add result=42 \
             estimate=80 out=float32[64,10] session=3 at=125400000"
        );
    }

    #[test]
    fn lines_are_parsed_as_they_were_written() {
        let mut lines = vec![LogLine::Lost(7), LogLine::OtherVersion, LogLine::OtherDaemon(42)];
        for subject in COMMANDS.into_iter().chain(Op::ALL.iter().copied().map(Subject::Op)) {
            lines.push(LogLine::Event(12_345, Event { subject, ..event() }));
        }
        for kind in EventKind::ALL {
            lines.push(LogLine::Event(3, Event { kind, worker: NO_WORKER, left: 0, right: 0, ..event() }));
        }
        for time in [StepTime::Measured(1234), StepTime::Measured(0), StepTime::Estimated(80), StepTime::Measured(1)] {
            let [left, right] = time.words();
            let ended = Event { kind: EventKind::WorkerRecv, left, right, ..event() };
            assert_eq!(ended.step_time(), Some(time));
            lines.push(LogLine::Event(4, ended));
        }
        lines.extend([with_result(&[]), with_result(&[2, 3, 4])].map(|event| LogLine::Event(5, event)));
        let run = Event { kind: EventKind::WorkerRun, run_ns: 80, ..with_result(&[64, 10]) };
        assert_eq!(run.step_time(), Some(StepTime::Estimated(80)));
        lines.push(LogLine::Event(6, run));
        let freed = Event { kind: EventKind::Free, subject: Subject::Free, left: 43, right: 44, ..event() };
        assert!(LogLine::Event(7, freed).to_string().contains(" op=free result=42 result=43 result=44 session=3 "));
        for kind in [EventKind::HotStart, EventKind::HotEnd] {
            let about = Event { kind, subject: Subject::Nothing, worker: NO_WORKER, left: 418, right: 7, ..event() };
            lines.push(LogLine::Event(8, about));
        }
        lines.extend([freed, Event { right: 0, ..freed }].map(|event| LogLine::Event(7, event)));
        for line in lines {
            assert_eq!(line.to_string().parse(), Ok(line), "{line}");
            assert_eq!(format!("{line}{SOURCE}my | file.py:3 in f").parse(), Ok(line), "{line}");
        }
        let sent = LogLine::Event(5, with_result(&[2])).to_string();
        for unknown in [sent.replace("out=float32[2]", "left=7 right=9"), sent.replace("float32", "float4")] {
            assert_eq!(unknown.parse(), Ok(LogLine::Event(5, event())), "{unknown}");
        }
        let older = "  0.125s | #0043 | RECV         | CLIENT session_3       | Sync            | 64B | op=sync";
        let Ok(LogLine::Event(43, event)) = older.parse() else { panic!("{older}") };
        assert_eq!((event.time_ns, event.session), (125_000_000, 3));
        for foreign in ["", "...", "... many events lost", "  0.1s | #1 | RECV", "{}", &older.replace("sync", "synk")] {
            assert_eq!(foreign.parse::<LogLine>(), Err(InvalidLogLine), "{foreign}");
        }
    }

    #[test]
    fn events_survive_the_ring() {
        for kind in EventKind::ALL {
            for subject in COMMANDS.into_iter().chain([Subject::Op(Op::Matmul)]) {
                let event = Event { kind, subject, run_ns: u16::MAX, ..event() };
                assert_eq!(Event::decode(&event.encode()), Some(event));
            }
        }
        assert_eq!(Event::decode(&[0; 7]), None);
    }
}
