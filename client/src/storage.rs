//! What handles that see each other's in-place operations share.
//!
//! A value and a place on the tape are shared separately: `detach()` gives a handle on the same value whose place on
//! the tape is its own, and views follow the handle they were taken of.

use crate::history::Epoch;
use crate::session::Value;
use crate::tape::Node;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard is replaced in one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value that in-place operations replace, for all handles and views of it.
pub(crate) struct Storage(Mutex<Bound>);

struct Bound {
    value: Arc<Value>,
    version: u64,
    /// Ends when the value is replaced: what views show of it is stale then.
    epoch: Epoch,
}

impl Storage {
    pub(crate) fn new(value: Arc<Value>) -> Arc<Storage> {
        Arc::new(Storage(Mutex::new(Bound { value, version: 0, epoch: Epoch::default() })))
    }
    /// What it is now, and how often it was replaced.
    pub(crate) fn read(&self) -> (Arc<Value>, u64) {
        let bound = lock(&self.0);
        (bound.value.clone(), bound.version)
    }
    /// What ends when the present value is replaced.
    pub(crate) fn epoch(&self) -> Epoch {
        lock(&self.0).epoch.clone()
    }
    /// Looks at the value without counting another owner.
    pub(crate) fn with_value<R>(&self, look: impl FnOnce(&Arc<Value>) -> R) -> R {
        look(&lock(&self.0).value)
    }
    /// Replaces the value and returns the old one: freeing a tensor may wait, which nobody does under the lock. What
    /// the tape saved before `since` is stale then; nothing is if there is none.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn replace(&self, value: Arc<Value>, since: Option<u64>) -> Arc<Value> {
        let mut bound = lock(&self.0);
        bound.version += 1;
        let epoch = std::mem::take(&mut bound.epoch);
        if let Some(since) = since {
            epoch.end(since);
        } else {
            // Views of the old value are as good as they were.
            bound.epoch = epoch;
        }
        std::mem::replace(&mut bound.value, value)
    }
}

/// A place on the tape, for all handles and views that gradients flow through together.
pub(crate) struct Place {
    node: Mutex<Option<Arc<Node>>>,
    /// Whether in-place operations through it are nothing that a backward pass minds: `x.data`.
    pub(crate) silent: bool,
}

impl Place {
    pub(crate) fn new(node: Option<Arc<Node>>) -> Arc<Place> {
        Arc::new(Place { node: Mutex::new(node), silent: false })
    }
    /// A place of its own, for another handle on the same value.
    pub(crate) fn apart(silent: bool) -> Arc<Place> {
        Arc::new(Place { node: Mutex::new(None), silent })
    }
    /// The place, if there is one.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        lock(&self.node).clone()
    }
    /// Replaces the place and returns the old one.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn replace(&self, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        std::mem::replace(&mut *lock(&self.node), node)
    }
}
