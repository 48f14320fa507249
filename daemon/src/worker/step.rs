//! Steps: validated commands on their way from the dispatcher to workers, and the reports of how they ended.

use gt_ops::event::Subject;
use gt_ops::failure::Failure;
use gt_ops::placement::{RequestedPlacement, Workers};
use gt_ops::wire::{Command, Slot};
use gt_ops::{Meta, TensorId};
use std::rc::Rc;
use std::sync::Arc;

/// A session as its workers know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionSlot {
    /// The session's number, never used twice.
    pub session: u64,
    /// The session's index in each worker's table of sessions. A closed session's slot is used again.
    pub slot: u32,
}

/// One validated command on its way to a worker.
#[derive(Clone, Debug)]
pub struct Step {
    /// The session that the step belongs to.
    pub owner: SessionSlot,
    /// The workers that execute it.
    pub workers: Workers,
    /// Whether each worker computes only its shard of the result, whose shape then differs from `out`.
    pub divided: bool,
    /// The placement that a signal requests for the result. Modifiers may ignore it.
    pub requested: Option<RequestedPlacement>,
    /// The client's id of the result, or of the tensor whose bytes are moved; 0 where there is none.
    pub origin: TensorId,
    /// The client's token for the completion; see [`completes`].
    pub token: u64,
    /// The command, with the worker's ids of tensors.
    pub command: Command,
    /// The shape and dtype of the result, if there is one.
    pub out: Option<Meta>,
    /// The estimated time of the arithmetic alone, nanoseconds, for an instruction that can be fused with others.
    pub fused_ns: Option<u64>,
    /// The estimated time, nanoseconds.
    pub cost_ns: u64,
    /// The estimate, corrected by how long the session's earlier steps took; set when the step is submitted.
    pub expected_ns: u64,
    /// Bytes of the command on the wire, or of the data that it moves.
    pub bytes: u64,
}

/// The parts of a step that are the same for all of its workers.
#[derive(Clone, Debug)]
pub struct SharedStep {
    /// The header and the encoded command.
    pub slots: Arc<[Slot]>,
    /// The record that the queues keep until the step is reported.
    pub sent: Rc<SentStep>,
}

/// The record that a queue keeps of a step until its report.
#[derive(Clone, Copy, Debug)]
pub struct SentStep {
    /// See [`Step::owner`].
    pub owner: SessionSlot,
    /// The step's operation; none for a step that the link itself needs.
    pub subject: Option<Subject>,
    /// See [`Step::origin`].
    pub origin: TensorId,
    /// See [`Step::token`].
    pub token: u64,
    /// See [`Step::bytes`].
    pub bytes: u64,
    /// See [`Step::cost_ns`].
    pub cost_ns: u64,
    /// See [`Step::expected_ns`].
    pub expected_ns: u64,
    /// Whether the step may overtake others.
    pub is_light: bool,
}

impl Step {
    /// The report of a step that ended with `result` without being queued.
    #[inline]
    pub fn report(&self, result: Result<(), Failure>) -> Report {
        let Step { owner, origin, token, bytes, cost_ns, expected_ns, .. } = *self;
        Report {
            owner,
            subject: subject(&self.command),
            origin,
            token,
            bytes,
            cost_ns,
            expected_ns,
            took_ns: 0,
            result,
        }
    }
}

/// The state of a step after it was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// The step was executed. If it failed, its result is poisoned.
    Done(Result<(), Failure>),
    /// The step was queued; a [`Report`] follows when it has ended.
    Queued,
}

/// The end of a queued step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The session that the step belongs to.
    pub owner: SessionSlot,
    /// The step's operation.
    pub subject: Subject,
    /// See [`Step::origin`].
    pub origin: TensorId,
    /// See [`Step::token`].
    pub token: u64,
    /// See [`Step::bytes`].
    pub bytes: u64,
    /// See [`Step::cost_ns`].
    pub cost_ns: u64,
    /// See [`Step::expected_ns`].
    pub expected_ns: u64,
    /// The measured time, nanoseconds; 0 for a step that was not queued. The first of several steps that were fused
    /// carries the time of all of them.
    pub took_ns: u64,
    /// How the step ended.
    pub result: Result<(), Failure>,
}

/// The word for a command in the instruction log.
pub fn subject(command: &Command) -> Subject {
    match command {
        Command::Op(instruction) => Subject::Op(instruction.op),
        Command::Free { .. } => Subject::Free,
        Command::Fetch { .. } => Subject::Fetch,
        Command::Allocate { .. } => Subject::Allocate,
        Command::Write { .. } => Subject::Write,
        Command::Sync { .. } => Subject::Sync,
        Command::Signal { .. } => Subject::Signal,
        Command::DefineSignal { .. } => Subject::DefineSignal,
        Command::Reshard(_) => Subject::Reshard,
    }
}

/// Whether the client is sent a completion when a command ends.
pub fn completes(subject: Subject) -> bool {
    matches!(subject, Subject::Fetch | Subject::Write | Subject::Sync)
}
