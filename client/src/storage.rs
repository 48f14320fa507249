//! What handles that see each other's in-place operations share.
//!
//! A value and a place on the tape are shared separately: `detach()` gives a handle on the same value whose place on
//! the tape is its own, and views follow the handle they were taken of.

use crate::session::Value;
use crate::tape::Node;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the locks guard is replaced in one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value that in-place operations replace, for all handles and views of it.
pub(crate) struct Storage(Mutex<(Arc<Value>, u64)>);

impl Storage {
    pub(crate) fn new(value: Arc<Value>) -> Arc<Storage> {
        Arc::new(Storage(Mutex::new((value, 0))))
    }
    /// What it is now, and how often it was replaced.
    pub(crate) fn read(&self) -> (Arc<Value>, u64) {
        lock(&self.0).clone()
    }
    /// Looks at the value without counting another owner.
    pub(crate) fn with_value<R>(&self, look: impl FnOnce(&Arc<Value>) -> R) -> R {
        look(&lock(&self.0).0)
    }
    /// Replaces the value and returns the old one: freeing a tensor may wait, which nobody does under the lock.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn replace(&self, value: Arc<Value>) -> Arc<Value> {
        let mut bound = lock(&self.0);
        bound.1 += 1;
        std::mem::replace(&mut bound.0, value)
    }
}

/// A place on the tape, for all handles and views that gradients flow through together.
pub(crate) struct Place(Mutex<Option<Arc<Node>>>);

impl Place {
    pub(crate) fn new(node: Option<Arc<Node>>) -> Arc<Place> {
        Arc::new(Place(Mutex::new(node)))
    }
    /// The place, if there is one.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        lock(&self.0).clone()
    }
    /// Replaces the place and returns the old one.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn replace(&self, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        std::mem::replace(&mut *lock(&self.0), node)
    }
}
