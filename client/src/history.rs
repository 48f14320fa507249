//! Versions: which values in-place operations have replaced, so that a backward pass that needs one can say so.
//!
//! A value never changes, so a gradient computed from a replaced one is right; but it is that of a program which
//! PyTorch refuses, and which was rarely meant. Replacing a value notes how far the tape had come: what was saved
//! before that is stale, and what the in-place operation saved itself is not.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// How far the tape had come when something ended; 0 while it lasts.
#[derive(Clone, Default)]
pub(crate) struct Epoch(Arc<AtomicU64>);

impl Epoch {
    pub(crate) fn end(&self, since: u64) {
        self.0.store(since, Relaxed);
    }
    fn ended_after(&self, number: u64) -> bool {
        self.0.load(Relaxed) > number
    }
}

/// What in-place operations did before a value, and after it.
#[derive(Default)]
pub(crate) struct History {
    /// How many in-place operations led to it.
    version: AtomicU32,
    /// As an [`Epoch`], of the handle that held it.
    replaced: AtomicU64,
    /// Whether handles that do not see each other's in-place operations hold it.
    shared: AtomicBool,
    /// What ends when what it is a view of is replaced.
    base: OnceLock<Epoch>,
}

impl History {
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Relaxed)
    }
    /// Another handle holds the value too, and will not see what becomes of this one.
    pub(crate) fn share(&self) {
        self.shared.store(true, Relaxed);
    }
    /// It is what a view shows until `epoch` ends.
    pub(crate) fn view_of(&self, epoch: Epoch) {
        let _ = self.base.set(epoch);
    }
    /// Its handle shows `next` from now on; what the tape saved before `since` is stale, nothing if there is none.
    pub(crate) fn replace(&self, next: &History, since: Option<u64>) {
        next.version.store(self.version() + u32::from(since.is_some()), Relaxed);
        if let Some(since) = since
            && !self.shared.load(Relaxed)
        {
            let _ = self.replaced.compare_exchange(0, since, Relaxed, Relaxed);
        }
    }
    /// Whether it was replaced after the place `number` of the tape had saved it.
    pub(crate) fn is_stale(&self, number: u64) -> bool {
        self.replaced.load(Relaxed) > number || self.base.get().is_some_and(|epoch| epoch.ended_after(number))
    }
}
