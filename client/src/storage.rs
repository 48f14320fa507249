//! What handles that see each other's in-place operations share.

use crate::session::Value;
use crate::tape::Node;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A value, its place on the tape, and how often it was replaced.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) value: Arc<Value>,
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) version: u64,
}

/// A value that in-place operations replace, for all handles and views of it.
pub(crate) struct Storage(Mutex<Bound>);

impl Storage {
    pub(crate) fn new(value: Arc<Value>, node: Option<Arc<Node>>) -> Arc<Storage> {
        Arc::new(Storage(Mutex::new(Bound { value, node, version: 0 })))
    }
    fn lock(&self) -> MutexGuard<'_, Bound> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// What it is now.
    pub(crate) fn read(&self) -> Bound {
        self.lock().clone()
    }
    /// Looks at the value without counting another owner.
    pub(crate) fn with_value<R>(&self, look: impl FnOnce(&Arc<Value>) -> R) -> R {
        look(&self.lock().value)
    }
    /// Replaces the value and returns the old one: freeing a tensor may wait, which nobody does under the lock.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn replace(&self, value: Arc<Value>) -> Arc<Value> {
        let mut bound = self.lock();
        bound.version += 1;
        std::mem::replace(&mut bound.value, value)
    }
    /// Replaces the place on the tape.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn set_node(&self, node: Option<Arc<Node>>) -> Option<Arc<Node>> {
        std::mem::replace(&mut self.lock().node, node)
    }
    /// The place on the tape.
    pub(crate) fn node(&self) -> Option<Arc<Node>> {
        self.lock().node.clone()
    }
}
