//! Errors of a session, and their texts for users.

use crate::issued::{LINES_KEPT, LiveTensor};
use crate::origin::{SourceLine, line_of};
use gt_ops::failure::{Failure, Fault, MemoryScope};
use gt_ops::{ErrorKind, OpError};
use gt_protocol::bytes_text;
use std::collections::HashMap;

/// The lines that an error of memory names.
const HELD_LINES_SHOWN: usize = 3;

/// An error of a session.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Arguments that an op does not accept, raised at the call.
    #[error(transparent)]
    Op(#[from] OpError),
    /// An instruction failed when it ran.
    #[error("{}", failure_text(.failure, *.session, .origin))]
    Failed {
        /// The daemon's report.
        failure: Failure,
        /// The session's number.
        session: u64,
        /// Where the instruction was issued.
        origin: Box<FailureOrigin>,
    },
    /// The session's arena is full.
    #[error("{0}")]
    ArenaFull(String),
    /// The daemon is gone, or has closed the session.
    #[error("{0}")]
    Disconnected(String),
    /// There is no daemon and none could be started.
    #[error("{0}")]
    Launch(String),
    /// A signal arrived during a wait, or a hook of the host language failed; the host language knows which.
    #[error("interrupted")]
    Interrupted,
}

/// The result of a call on a session.
pub type Result<T> = std::result::Result<T, ClientError>;

impl ClientError {
    /// The kind of exception to raise, for errors that Python's own exceptions describe.
    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            ClientError::Op(op) => Some(op.kind),
            ClientError::Failed { failure: Failure { fault: Fault::IndexOutOfRange { .. }, .. }, .. } => {
                Some(ErrorKind::Index)
            }
            ClientError::Failed {
                failure:
                    Failure {
                        fault: Fault::ZeroDivision | Fault::Internal | Fault::Interrupted | Fault::TooLong { .. },
                        ..
                    },
                ..
            } => Some(ErrorKind::Runtime),
            _ => None,
        }
    }
    /// Whether memory ran out, in the daemon or in the arena.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(
            self,
            ClientError::ArenaFull(_)
                | ClientError::Failed {
                    failure: Failure { fault: Fault::OutOfMemory { .. } | Fault::TooManyTensors { .. }, .. },
                    ..
                }
        )
    }
}

/// The lines of the host language that have to do with a failure.
#[derive(Clone, Debug)]
pub struct FailureOrigin {
    /// Where the instruction was issued.
    pub issued_at: IssuedAt,
    /// Where memory ran out, the lines that issued what this session held before, those that hold most first.
    pub held: Vec<HeldByLine>,
}

/// Where an instruction was issued.
#[derive(Clone, Debug)]
pub enum IssuedAt {
    /// The line, without its callers.
    Line(SourceLine),
    /// The stack, under `GT_TRACEBACK=1`: a line for each call.
    Stack(String),
    /// More than [`LINES_KEPT`] instructions were issued since.
    Forgotten,
    /// The host language tells no lines, or not on this thread.
    Unknown,
}

/// The memory of the tensors that one line issued.
#[derive(Clone, Debug)]
pub struct HeldByLine {
    /// The line; none if it is not known.
    pub line: Option<SourceLine>,
    /// The number of tensors.
    pub tensors: u64,
    /// The bytes of their elements.
    pub bytes: u64,
}

/// The sums of `tensors` by line, the largest first.
pub fn lines_of(tensors: impl Iterator<Item = LiveTensor>) -> Vec<HeldByLine> {
    let mut by_site: HashMap<u64, (u64, u64)> = HashMap::new();
    for tensor in tensors {
        let sum = by_site.entry(tensor.site).or_default();
        *sum = (sum.0 + 1, sum.1 + tensor.bytes);
    }
    // Several places of a program may be on one line.
    let mut by_line: HashMap<Option<SourceLine>, (u64, u64)> = HashMap::new();
    for (site, (tensors, bytes)) in by_site {
        let sum = by_line.entry(line_of(site)).or_default();
        *sum = (sum.0 + tensors, sum.1 + bytes);
    }
    let mut lines: Vec<_> =
        by_line.into_iter().map(|(line, (tensors, bytes))| HeldByLine { line, tensors, bytes }).collect();
    lines.sort_by(|a, b| {
        let place = |held: &HeldByLine| held.line.as_ref().map(|line| (line.file.clone(), line.line));
        b.bytes.cmp(&a.bytes).then_with(|| place(a).cmp(&place(b)))
    });
    lines
}

fn failure_text(failure: &Failure, session: u64, origin: &FailureOrigin) -> String {
    let what = match failure.fault {
        Fault::OutOfMemory { requested, held, limit, scope } => {
            let [requested, held, limit] = [requested, held, limit].map(bytes_text);
            let rest = match scope {
                MemoryScope::Worker => format!(
                    "{held} held by all sessions together, {limit} allowed; free tensors, or give the daemon more with \
                     --memory (gtctl status shows who holds what)"
                ),
                MemoryScope::Session => format!(
                    "{held} held by this session, {limit} allowed; free tensors, or ask an administrator for more \
                     (gtctl session {session} shows what it holds)"
                ),
                MemoryScope::User => format!(
                    "{held} held by all sessions of this user together, {limit} allowed; free tensors, end other \
                     sessions, or ask an administrator for more (gtctl sessions shows what they hold, this one is \
                     {session})"
                ),
            };
            format!("out of memory: {requested} asked for, {rest}")
        }
        Fault::TooManyTensors { held, limit } => format!(
            "too many tensors: one more was asked for, {held} are held by all sessions of this user together, {limit} \
             allowed; free tensors, end other sessions, or ask an administrator for more (gtctl sessions shows what they \
             hold, this one is {session})"
        ),
        Fault::IndexOutOfRange { index, axis, size } => {
            format!("index {index} is out of bounds for dimension {axis} with size {size}")
        }
        Fault::ZeroDivision => "ZeroDivisionError: integer division by zero".to_owned(),
        Fault::WorkerLost { worker, end } => format!(
            "worker {worker} {end}, and the tensors it held are lost; the session goes on: make them again, from a \
             checkpoint if there is one (gtctl status says how the worker stands)"
        ),
        Fault::Interrupted => {
            "was interrupted (Ctrl-C) before it was done; tensors from before are intact: compute this one again"
                .to_owned()
        }
        Fault::TooLong { estimate_ms, limit_ms } => {
            let [estimate, limit] = [estimate_ms, limit_ms].map(duration_text);
            format!(
                "it would take about {estimate}, and no step of this user may take longer than {limit}; compute it in \
                 parts, or ask an administrator for a larger max_step (gtctl limits set --max-step)"
            )
        }
        Fault::Internal => "a defect in GT; the daemon's log has the details".to_owned(),
    };
    let op = failure.op.map_or("transfer", |op| op.name());
    let mut text = format!("{op} (instruction #{}): {what}", failure.instruction);
    match &origin.issued_at {
        IssuedAt::Line(line) => text.push_str(&format!("\nissued at: {line}")),
        IssuedAt::Stack(stack) => text.push_str(&format!("\nissued at (most recent call last):\n{stack}")),
        IssuedAt::Forgotten => text.push_str(&format!(
            "\nissued at: a line that is no longer known, since more than {LINES_KEPT} operations were issued after it"
        )),
        IssuedAt::Unknown => {}
    }
    if !origin.held.is_empty() {
        let bytes = origin.held.iter().map(|held| held.bytes).sum();
        let tensors: u64 = origin.held.iter().map(|held| held.tensors).sum();
        text.push_str(&format!(
            "\nof the {} that this session's {tensors} older tensors hold, most was issued at:",
            bytes_text(bytes)
        ));
        for held in origin.held.iter().take(HELD_LINES_SHOWN) {
            let line = held.line.as_ref().map_or("lines that are not known".into(), ToString::to_string);
            let plural = if held.tensors == 1 { "" } else { "s" };
            text.push_str(&format!("\n  {line}: {} in {} tensor{plural}", bytes_text(held.bytes), held.tensors));
        }
        text.push_str("\n(gt.debug.memory_summary() lists the tensors that are alive, by line)");
    }
    text
}

/// A time in its largest unit: `2.5 h`.
fn duration_text(ms: u64) -> String {
    let seconds = ms as f64 / 1e3;
    match seconds {
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        _ if seconds < 172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / 86400.0),
    }
}
