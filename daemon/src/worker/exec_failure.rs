//! Conversion of a backend's errors to the failures that poison tensors and travel to clients.

use gt_backend::{ExecError, LimitScope};
use gt_ops::failure::{Failure, Fault, MemoryScope, WorkerEnd, WorkerName};
use gt_ops::{Op, TensorId};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// The error with which this thread's device was lost.
    static LOST: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// The error with which this thread's device was lost, if it was.
#[inline]
pub fn lost_device() -> Option<Box<str>> {
    LOST.with_borrow(Clone::clone)
}

/// Runs a call of the backend. A panic there is a defect and becomes an error; the worker goes on. The loss of the
/// device ends the worker, see [`lost_device`].
#[inline]
pub fn caught<R>(run: impl FnOnce() -> Result<R, ExecError>) -> Result<R, ExecError> {
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| Err(ExecError::internal("a kernel panicked")));
    if let Err(ExecError::Lost(why)) = &result {
        LOST.set(Some(why.clone()));
    }
    result
}

/// The failure of `instruction` by an error of its backend.
#[cold]
pub fn failure(error: ExecError, instruction: TensorId, op: Option<Op>) -> Failure {
    let fault = match error {
        ExecError::OutOfMemory { requested, held, limit, scope } => {
            let scope = match scope {
                LimitScope::Device => MemoryScope::Worker,
                LimitScope::Usage => MemoryScope::Session,
                LimitScope::Group => MemoryScope::User,
            };
            Fault::OutOfMemory { requested: requested as u64, held: held as u64, limit: limit as u64, scope }
        }
        ExecError::IndexOutOfRange { index, axis, size } => {
            Fault::IndexOutOfRange { index, axis: axis as u64, size: size as u64 }
        }
        ExecError::ZeroDivision => Fault::ZeroDivision,
        ExecError::Cancelled => Fault::Interrupted,
        // The earlier instruction failed; `instruction` only met the error.
        ExecError::Earlier { label, op, error } => return failure(*error, label, op),
        ExecError::Unreached { worker: Some(worker), .. } => worker_lost(worker),
        ExecError::Unreached { worker: None, why } => {
            tracing::error!(target: "gtd::worker", instruction, %why, "a tensor did not come");
            Fault::Internal
        }
        ExecError::Internal(what) | ExecError::Lost(what) => {
            let op = op.map_or("a transfer", Op::name);
            tracing::error!(target: "gtd::worker", instruction, op, %what, "a step failed that should not have");
            Fault::Internal
        }
    };
    Failure { fault, instruction, op }
}

/// The failure of `instruction` by a defect of the daemon itself.
#[cold]
pub fn defect(what: &'static str, instruction: TensorId, op: Option<Op>) -> Failure {
    failure(ExecError::internal(what), instruction, op)
}

/// The loss of a worker, by its number: workers know each other by number only, and the dispatcher fills in the name
/// and how the worker ended.
pub fn worker_lost(worker: usize) -> Fault {
    Fault::WorkerLost { worker: WorkerName::numbered(worker), end: WorkerEnd::Unknown }
}
