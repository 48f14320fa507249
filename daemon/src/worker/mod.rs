//! Workers, and the links over which the dispatcher drives them.
//!
//! A worker owns one device and does one thing after another. What it is sent is a stream of the same 64-byte slots
//! that clients send, with the worker's names for tensors; what it answers is one completion a step, in order.
//! [`thread`] runs a worker in this process, [`process`] in one of its own. Both have the same queue (`queue`) and the
//! same loop (`serve`) around the same [`Core`].
//!
//! The dispatcher knows only [`WorkerLink`]. It must not know on which thread a step runs.

mod ahead;
mod core;
pub mod groups;
mod late;
mod link;
pub mod process;
mod queue;
mod relocate;
mod serve;
pub mod thread;

pub use self::ahead::{AHEAD_BYTES_MIN, Job, STAGES_MAX};
pub use self::core::Core;
pub use self::queue::{QUEUED_NS_MAX, QUEUED_SHARED_NS_MAX};
pub use self::relocate::traffic;

use gt_backend::MemoryUsage;
use gt_collectives::local::{LocalCommunicator, Memory};
use gt_collectives::{CollectiveError, Communicator};
use gt_ops::failure::{Failure, WorkerEnd};
use gt_ops::placement::{RequestedPlacement, Workers};
use gt_ops::text::Subject;
use gt_ops::wire::Command;
use gt_ops::{Meta, TensorId};
use gt_protocol::WorkerInfo;
use gt_shm::Arena;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Which session a step belongs to, and where its worker keeps that session's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// The session's number, never used twice.
    pub session: u64,
    /// Its place in the worker's table; used again after [`WorkerLink::close`].
    pub place: u32,
}

/// One validated command on its way to a worker.
#[derive(Clone, Debug)]
pub struct Step {
    /// For whom.
    pub stream: Stream,
    /// Who does it.
    pub workers: Workers,
    /// Each of them has its part of the result only, of a shape of its own.
    pub divided: bool,
    /// Where a signal asks the result to be. Nobody need heed it.
    pub requested: Option<RequestedPlacement>,
    /// What the client calls the result, or the tensor whose bytes are moved; 0 where there is none.
    pub origin: TensorId,
    /// The client's name for the completion, of what [`completes`].
    pub token: u64,
    /// What the client calls the first two tensor operands; 0 where there is none. For the tape.
    pub operands: [TensorId; 2],
    /// What to do, in the worker's names.
    pub command: Command,
    /// The shape and dtype of the result, if there is one.
    pub out: Option<Meta>,
    /// If it may be done together with others whose results have its result's shape: how long its arithmetic may take.
    pub fused_ns: Option<u64>,
    /// How long it may take, nanoseconds.
    pub cost_ns: u64,
    /// The same by how long the session's steps took so far; known when it goes to the worker.
    pub expected_ns: u64,
    /// Bytes of the command on the wire, or of the data it moves.
    pub bytes: u64,
}

impl Step {
    /// What is told of its end.
    #[inline]
    pub fn report(&self, result: Result<(), Failure>) -> Report {
        let Step { stream, origin, token, bytes, cost_ns, expected_ns, .. } = *self;
        Report {
            stream,
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

/// What became of a step that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has been done; its result, if it failed, is poisoned.
    Done(Result<(), Failure>),
    /// A [`Report`] will come.
    Queued,
}

/// The end of a queued step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whose it was.
    pub stream: Stream,
    /// What it was.
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
    /// How long it took, or all the steps that were done together with it and are reported after it; nanoseconds. Not
    /// known of what was done at once.
    pub took_ns: u64,
    /// How it ended.
    pub result: Result<(), Failure>,
}

/// The dispatcher's end of a worker. Steps of one link are done in the order of submission.
pub trait WorkerLink {
    /// What users are told of the worker.
    fn info(&mut self) -> WorkerInfo;

    /// Floating-point and memory rates, for estimates: gigaflops and gigabytes a second.
    fn rates(&self) -> (f64, f64);

    /// Makes room for a session's tensors, which are held as `usage`. A worker in another process counts
    /// by itself, up to the limits that the usage and its group have.
    fn open(&mut self, stream: Stream, usage: &Arc<MemoryUsage>);

    /// Follows other limits of a session's usage, and of its group.
    fn limit(&mut self, stream: Stream, usage: &MemoryUsage);

    /// Bytes that a session's tensors take.
    fn held(&mut self, stream: Stream) -> u64;

    /// The most bytes that a session's tensors took at one time.
    fn peak(&mut self, stream: Stream) -> u64;

    /// Lets that begin at what they take now. Nothing of the session is queued.
    fn reset_peak(&mut self, stream: Stream);

    /// Makes the next arena of a session known; they count from 0. `fd` is its memory, for a worker elsewhere.
    fn add_arena(&mut self, stream: Stream, arena: Arena, fd: &Arc<OwnedFd>);

    /// Looks, every [`process::life::LOOK_EVERY`] at most, whether a worker that is busy still lives; ends one that
    /// does not.
    fn look(&mut self) {}

    /// Cancels what is queued for a session, then frees its tensors and lets go of its arenas.
    fn close(&mut self, stream: Stream);

    /// Whether it shares the dispatcher's memory.
    fn is_thread(&self) -> bool;

    /// What other workers reach its tensors by, where some are elsewhere.
    fn memory(&self) -> Option<Arc<OwnedFd>>;

    /// How often it lost all it held, and with it its places in groups.
    fn losses(&self) -> u64;

    /// How it ended the last time that it did.
    fn last_end(&mut self) -> Option<WorkerEnd> {
        None
    }

    /// Whether sessions that begin compute on it, too; and whether it may still, as one that has registered itself and
    /// ended never will.
    fn presence(&self) -> Presence;

    /// Offers it a place in the group of `workers`; what is submitted from now on may move tensors among them.
    fn join(&mut self, workers: Workers, place: Place);

    /// Lets it leave the group of `workers`, of whom those of `gone` are in none, unless one is formed anew.
    fn leave(&mut self, workers: Workers, gone: Workers);

    /// True while the worker has as much to do as it should have at one time, which is at most `queued_ns_max` expected
    /// nanoseconds: submit nothing now.
    fn is_full(&mut self, queued_ns_max: u64) -> bool;

    /// Does a step, or queues it. Never waits for one that is queued.
    fn submit(&mut self, step: &Step) -> Outcome;

    /// As [`submit`](Self::submit) for each of several steps of one session, which the worker sees all at once. Calls
    /// `done` for each, in order, if they have been done; false if they are queued.
    fn submit_all(&mut self, steps: &[Step], done: &mut dyn FnMut(&Step, Result<(), Failure>)) -> bool;

    /// Lets the worker see what was queued.
    fn flush(&mut self);

    /// The end of the oldest queued step, once it has ended.
    fn next_report(&mut self) -> Option<Report>;

    /// True while something is queued or running.
    fn is_busy(&self) -> bool;

    /// What becomes readable when a report comes after [`prepare_sleep`](Self::prepare_sleep).
    fn bell(&self) -> BorrowedFd<'_>;

    /// Asks for the bell. False if there is a report already.
    #[must_use = "only sleep if there is no report"]
    fn prepare_sleep(&mut self) -> bool;

    /// Silences the bell.
    fn cancel_sleep(&mut self);

    /// Nothing has run for a while: memory that is only kept for reuse may go.
    fn trim(&mut self);

    /// Ends the worker, after what is queued. Waits for it for at most `patience`.
    fn stop(&mut self, patience: Duration);
}

/// What may be expected of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It computes, or will soon.
    Here,
    /// It ended too often, and what it is sent fails until it is tried again.
    Away,
    /// It registers itself.
    Coming,
    /// It had registered itself, and has left.
    Gone,
}

/// A worker's place in a group.
pub enum Place {
    /// For a thread of this process.
    Thread(Box<dyn Communicator>),
    /// For a worker elsewhere, and for a thread among such: it joins as a rank of the group behind the descriptor.
    Shared {
        /// The group's memory.
        group: Arc<OwnedFd>,
        /// Which rank.
        rank: usize,
        /// What the ranks reach each other's tensors by, in their order; empty if one has nothing.
        memories: Vec<Arc<OwnedFd>>,
    },
}

impl Place {
    /// Takes it, waiting for the others of a shared group.
    ///
    /// # Errors
    /// The group broke before it was complete.
    pub fn take(self) -> Result<Box<dyn Communicator>, CollectiveError> {
        match self {
            Place::Thread(communicator) => Ok(communicator),
            Place::Shared { group, rank, memories } => {
                let cloned = |fd: &Arc<OwnedFd>| {
                    fd.try_clone().map_err(|error| CollectiveError::Setup {
                        what: format!("join a group as rank {rank}"),
                        why: error.to_string(),
                    })
                };
                let opened: Result<Vec<_>, _> = memories.iter().map(|fd| cloned(fd).and_then(Memory::open)).collect();
                let memories = opened.unwrap_or_else(|error| {
                    tracing::warn!(target: "gtd::worker", %error, "what moves in this group is copied once more");
                    Vec::new()
                });
                Ok(Box::new(LocalCommunicator::join_sharing(cloned(&group)?, rank, groups::PATIENCE, memories)?))
            }
        }
    }
}

/// A worker that others reach has room for so many times what its tensors may hold together, so that there is a
/// stretch for each however the others lie,
const REACHABLE_LIMITS: u64 = 4;
/// but not more bytes than this, so that a process can map those of all workers.
const REACHABLE_BYTES_MAX: u64 = 1 << 40;

/// Memory for the tensors of a worker that are to be reached from other processes; none if the system refuses it.
pub fn reachable_memory(memory_bytes_limit: u64) -> Option<Arc<Memory>> {
    let made = Memory::create(memory_bytes_limit.saturating_mul(REACHABLE_LIMITS).min(REACHABLE_BYTES_MAX));
    if let Err(error) = &made {
        tracing::warn!(target: "gtd::worker", %error, "what moves between processes is copied once more");
    }
    made.ok()
}

/// What a command is called on the tape.
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

/// Whether a completion goes to the client when it ends.
pub fn completes(subject: Subject) -> bool {
    matches!(subject, Subject::Fetch | Subject::Write | Subject::Sync)
}
