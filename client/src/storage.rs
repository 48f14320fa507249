//! Storage: a value that in-place operations replace, shared by handles that would share memory in PyTorch.

use crate::lock::lock;
use crate::value::TensorValue;
use crate::version::Epoch;
use std::any::Any;
use std::sync::{Arc, Mutex};

/// The current value of a base tensor, for all handles and views of it.
pub(crate) struct Storage(Mutex<StorageContents>);

/// An object of the host language that is dropped with a storage.
pub type Attachment = Arc<dyn Any + Send + Sync>;

struct StorageContents {
    attachment: Option<Attachment>,
    value: Arc<TensorValue>,
    version: u64,
    /// Ends when the value is replaced, which makes saved values of its views stale.
    epoch: Epoch,
}

impl Storage {
    pub(crate) fn new(value: Arc<TensorValue>) -> Arc<Storage> {
        Arc::new(Storage(Mutex::new(StorageContents { attachment: None, value, version: 0, epoch: Epoch::default() })))
    }
    /// The object that was attached to the storage.
    pub(crate) fn attachment(&self) -> Option<Attachment> {
        lock(&self.0).attachment.clone()
    }
    /// Attaches an object, which is dropped with the storage; returns the former one, to be dropped without the lock.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn attach(&self, attachment: Attachment) -> Option<Attachment> {
        lock(&self.0).attachment.replace(attachment)
    }
    /// The current value, and how often it was replaced.
    pub(crate) fn read(&self) -> (Arc<TensorValue>, u64) {
        let contents = lock(&self.0);
        (contents.value.clone(), contents.version)
    }
    /// The epoch of the current value.
    pub(crate) fn epoch(&self) -> Epoch {
        lock(&self.0).epoch.clone()
    }
    /// Looks at the current value without touching its reference count.
    pub(crate) fn with_value<R>(&self, look: impl FnOnce(&Arc<TensorValue>) -> R) -> R {
        look(&lock(&self.0).value)
    }
    /// Replaces the value and returns the old one, to be dropped without the lock: freeing a tensor may wait. Values of
    /// views that the tape saved before `since` become stale; if it is `None`, no value does.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn replace(&self, value: Arc<TensorValue>, since: Option<u64>) -> Arc<TensorValue> {
        let mut contents = lock(&self.0);
        contents.version += 1;
        let epoch = std::mem::take(&mut contents.epoch);
        if let Some(since) = since {
            epoch.end(since);
        } else {
            // Saved views of the old value stay valid.
            contents.epoch = epoch;
        }
        std::mem::replace(&mut contents.value, value)
    }
}
