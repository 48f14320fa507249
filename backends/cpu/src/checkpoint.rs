//! Checkpoints: the places where long loops notice that their instruction was cancelled, and where the worker may run a
//! light step of another session in between.
//!
//! Every loop that can run for more than a few milliseconds on one thread passes a checkpoint about every hundred
//! microseconds. When the instruction is cancelled, the checkpoint unwinds the stack up to the [`ThreadPool::run`]
//! that the loop belongs to, which then returns [`ExecError::Cancelled`]. Unwinding costs nothing until it happens, so
//! the loops need no results to pass the news on. Outside of `ThreadPool::run` a checkpoint does nothing: such work is
//! too short to be divided, and is not interrupted.
//!
//! On the thread that called the backend, a checkpoint is also a [preemption point](gt_backend::preemption_point).
//!
//! [`ThreadPool::run`]: crate::thread_pool::ThreadPool::run

use gt_backend::{Cancellation, ExecError, is_preemptible, preemption_point};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::sync::Arc;

/// The number of elements between two checkpoints of a loop.
pub const STRETCH: usize = 64 << 10;

thread_local! {
    /// The instruction that this thread computes.
    static WATCHED: Cell<(*const Cancellation, u64)> = const { Cell::new((std::ptr::null(), Cancellation::NEVER)) };
}

/// The payload of the unwinding.
struct Cancelled;

/// The instruction that a pool computes, and what may cancel it.
#[derive(Clone, Default)]
pub struct Watch {
    cancellation: Arc<Cancellation>,
    label: u64,
}

impl Watch {
    /// Watches `cancellation` for the instruction `label` from here on.
    #[inline]
    pub fn set(&mut self, cancellation: &Arc<Cancellation>, label: u64) {
        if !Arc::ptr_eq(&self.cancellation, cancellation) {
            self.cancellation = Arc::clone(cancellation);
        }
        self.label = label;
    }

    /// From here on only the end of the session cancels the instruction: it begins to write a tensor in place, which
    /// must not stay half written. That takes one pass over the elements.
    #[inline]
    pub fn keep_going(&mut self) {
        self.label = self.label.max(Cancellation::NEVER - 1);
    }

    /// Watches nothing from here on.
    #[inline]
    pub fn ignore(&mut self) {
        self.label = Cancellation::NEVER;
    }

    /// Whether the instruction is cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.cancellation.covers(self.label)
    }

    /// # Errors
    /// [`ExecError::Cancelled`] if the instruction is cancelled.
    #[inline]
    pub fn check(&self) -> Result<(), ExecError> {
        if self.is_cancelled() { Err(ExecError::Cancelled) } else { Ok(()) }
    }

    /// Runs part of the instruction on this thread, which unwinds at the next checkpoint if the instruction is
    /// cancelled.
    #[inline]
    pub fn during(&self, work: impl FnOnce()) {
        let _restore = RestoreWatched(WATCHED.replace((Arc::as_ptr(&self.cancellation), self.label)));
        checkpoint();
        work();
    }
}

/// Restores the instruction that this thread computes when it is dropped.
struct RestoreWatched((*const Cancellation, u64));

impl Drop for RestoreWatched {
    fn drop(&mut self) {
        WATCHED.set(self.0);
    }
}

/// Unwinds if the instruction that this thread computes is cancelled; otherwise lets the worker run a light step.
#[inline(always)]
pub fn checkpoint() {
    let (cancellation, label) = WATCHED.get();
    // SAFETY: the pointer is null, or `Watch::during` set it and is still running on this thread: it borrows the watch,
    // which keeps the cancellation alive.
    if unsafe { cancellation.as_ref() }.is_some_and(|cancellation| cancellation.covers(label)) {
        unwind();
    }
    if is_preemptible() {
        pause();
    }
}

/// Lets the worker run a light step, if this is its thread.
#[cold]
#[inline(never)]
pub fn pause() {
    // The steps in between are other instructions, which the cancellation of this one must not unwind.
    let _restore = RestoreWatched(WATCHED.replace((std::ptr::null(), Cancellation::NEVER)));
    preemption_point();
}

#[cold]
#[inline(never)]
fn unwind() -> ! {
    // Unlike a panic, this prints no message.
    resume_unwind(Box::new(Cancelled))
}

/// Counts the elements that a loop has done, and passes a checkpoint once in a [`STRETCH`].
#[derive(Default)]
pub struct Pace {
    done: usize,
}

impl Pace {
    /// Counts `elements` more.
    #[inline(always)]
    pub fn advance(&mut self, elements: usize) {
        self.done += elements;
        if self.done >= STRETCH {
            self.done = 0;
            checkpoint();
        }
    }
}

/// Calls `each` with consecutive parts of `first..last` of at most a [`STRETCH`], with a checkpoint before each.
#[inline(always)]
pub fn in_stretches(first: usize, last: usize, mut each: impl FnMut(usize, usize)) {
    let mut at = first;
    while at < last {
        checkpoint();
        let end = last.min(at + STRETCH);
        each(at, end);
        at = end;
    }
}
