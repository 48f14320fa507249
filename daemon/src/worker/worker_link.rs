//! The dispatcher's interface to a worker.

use super::queue::{PreemptedStep, QueueLimit};
use super::rank_assignment::RankAssignment;
use super::step::{Report, SessionSlot, SharedStep, Step, Submission};
use crate::nodes::endpoint::Endpoint;
use gt_backend::MemoryUsage;
use gt_ops::failure::Failure;
use gt_ops::failure::WorkerEnd;
use gt_ops::{TensorId, Workers};
use gt_protocol::WorkerInfo;
use gt_shm::Arena;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The dispatcher's end of a worker. The steps of one link are executed in the order of submission, except that light
/// steps overtake heavy ones of other sessions.
pub trait WorkerLink {
    /// The worker's description for users.
    fn info(&mut self) -> WorkerInfo;

    /// The rates of arithmetic and of memory, for estimates: gigaflops and gigabytes a second.
    fn rates(&self) -> (f64, f64);

    /// Makes room for a session's tensors, which count towards `usage`. A worker in another process counts
    /// the bytes itself, under the limits of `usage` and of its group.
    fn open(&mut self, owner: SessionSlot, usage: &Arc<MemoryUsage>);

    /// Applies changed limits of a session's usage and of its group.
    fn limit(&mut self, owner: SessionSlot, usage: &MemoryUsage);

    /// Bytes that a session's tensors take.
    fn held(&mut self, owner: SessionSlot) -> u64;

    /// The most bytes that a session's tensors took at one time.
    fn peak(&mut self, owner: SessionSlot) -> u64;

    /// Resets the peak to the bytes that the tensors take. The session must have no queued steps.
    fn reset_peak(&mut self, owner: SessionSlot);

    /// Adds a session's next arena; arenas are numbered from 0. `fd` is its memory, for a worker in another process.
    fn add_arena(&mut self, owner: SessionSlot, arena: Arena, fd: &Arc<OwnedFd>);

    /// Drops an arena that the session has returned, and that no queued step names. Returns this process's mapping, if
    /// the link has it.
    fn drop_arena(&mut self, owner: SessionSlot, number: u32) -> Option<Arena>;

    /// Checks that a busy worker sends heartbeats, and kills one that does not. The dispatcher calls it at most once
    /// every [`CHECK_EVERY`](super::process::life::CHECK_EVERY).
    fn check_life(&mut self) {}

    /// Cancels the running and the queued steps of a session, then frees its tensors and unmaps its arenas.
    fn close(&mut self, owner: SessionSlot);

    /// Cancels a session's instructions whose results have lower ids than `id`, whether they run, are queued or come
    /// later. Their results are poisoned.
    fn cancel_below(&mut self, owner: SessionSlot, id: TensorId);

    /// Whether the worker is a thread of this process.
    fn is_thread(&self) -> bool;

    /// The memory in which the worker's tensors lie, for other processes to map; none if they cannot.
    fn memory(&self) -> Option<Arc<OwnedFd>>;

    /// Where workers of other machines reach it; none without nodes.
    fn endpoint(&self) -> Option<Endpoint>;

    /// How often the worker has ended, and with that lost its tensors and its memberships in groups.
    fn losses(&self) -> u64;

    /// How the worker ended the last time, if it ever did.
    fn last_end(&mut self) -> Option<WorkerEnd> {
        None
    }

    /// Whether the worker can be used.
    fn availability(&self) -> Availability;

    /// Makes the worker a rank of the group of `workers`. Steps that are submitted later may reshard tensors in it.
    fn join(&mut self, workers: Workers, assignment: RankAssignment);

    /// Takes the worker out of the group of `workers`. Reshards with the workers in `gone` fail until a group
    /// with them is formed.
    fn leave(&mut self, workers: Workers, gone: Workers);

    /// Notes the dispatcher's time, once in each of its passes while the worker is busy.
    fn note_time(&mut self, now_ns: u64);

    /// Back-pressure: true while as much is queued as `limit` allows, a step takes far longer than expected, or the
    /// link has no room for more. The caller must not submit more meanwhile.
    fn is_full(&mut self, limit: QueueLimit) -> bool;

    /// Whether a step of the session at `slot`, or of one that had the slot before, is queued or running.
    fn has_steps_of(&self, slot: u32) -> bool;

    /// The heavy step that runs, if light steps of other sessions can overtake it.
    fn preempted(&self) -> Option<PreemptedStep>;

    /// Whether light steps of a session may be submitted although the worker [is full](Self::is_full), to overtake the
    /// [preempted](Self::preempted) step. They are expected to take `expected_ns`.
    fn may_overtake(&mut self, owner: SessionSlot, expected_ns: u64) -> bool;

    /// Executes a step at once or queues it. Never waits for queued steps. `shared` has what all workers of the step
    /// get; it is empty if that was not made.
    fn submit(&mut self, step: &Step, shared: &[SharedStep]) -> Submission;

    /// As [`submit`](Self::submit) for several steps of one session, which the worker sees all at once, so that it can
    /// fuse them. True if they were executed: then `done` was called for each, in order. False if they were queued.
    fn submit_all(
        &mut self,
        steps: &[Step],
        shared: &[SharedStep],
        done: &mut dyn FnMut(&Step, Result<(), Failure>),
    ) -> bool;

    /// Publishes the queued steps to the worker.
    fn flush(&mut self);

    /// The next end of a queued step: the oldest, or one that has overtaken it.
    fn next_report(&mut self) -> Option<Report>;

    /// True while a step is queued or running.
    fn is_busy(&self) -> bool;

    /// The descriptor that becomes readable when a report comes after [`prepare_sleep`](Self::prepare_sleep).
    fn bell(&self) -> BorrowedFd<'_>;

    /// Makes the next report ring the bell. False if the caller must not sleep, as there is a report already.
    #[must_use = "only sleep if there is no report"]
    fn prepare_sleep(&mut self) -> bool;

    /// True if steps or messages wait for room on their way to the worker. There is room after a report at the latest.
    fn has_backlog(&self) -> bool;

    /// Ends the wait for the bell, and silences it.
    fn cancel_sleep(&mut self);

    /// Makes the worker return cached memory to the system; called when the daemon is idle.
    fn trim(&mut self);

    /// Ends the worker after its queued steps, and waits for the end for at most `patience`.
    fn stop(&mut self, patience: Duration);
}

/// Whether a worker can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// The worker runs or is starting.
    Available,
    /// The worker ended too often. Its steps fail until the next attempt to start it.
    Down,
    /// The worker is registering itself.
    Registering,
    /// The worker had registered itself, and has left for good.
    Left,
}
