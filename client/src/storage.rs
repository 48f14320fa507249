//! Storage: a value that in-place operations replace, shared by handles that would share memory in PyTorch.

use crate::error::Result;
use crate::lock::lock;
use crate::value::TensorValue;
use crate::version::Epoch;
use std::any::Any;
use std::sync::{Arc, Mutex, Weak};

/// The value that a view has computed from its base's, which it can compute again.
pub(crate) trait ViewCache: Send + Sync {
    /// Removes the value, to be dropped outside every lock.
    fn take_value(&self) -> Option<Arc<TensorValue>>;
}

/// The memory of the host language that shows elements of a storage.
pub(crate) trait HostSide: Any + Send + Sync {
    /// Replaces the storage's elements by those that the host language has written.
    fn take_over_writes(&self, storage: &Arc<Storage>) -> Result<()>;
    /// Writes the storage's elements to the memory, after an operation in place. Waits for them.
    fn show_changes(&self, storage: &Arc<Storage>) -> Result<()>;
}

/// Views of a smaller tensor keep their values when it is written: copying it takes less time than computing these.
const IN_PLACE_BYTES_MIN: usize = 128 << 10;
/// The least number of registered views at which those that are gone are removed.
const VIEWS_SWEPT_MIN: usize = 16;

/// How often the value of a storage was replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StorageVersion {
    replacements: u64,
    /// Those that the tape sees: through `x.data`, only what is recorded.
    pub(crate) on_tape: u64,
}

impl StorageVersion {
    /// The version of no storage.
    pub(crate) const NEVER: StorageVersion = StorageVersion { replacements: u64::MAX, on_tape: u64::MAX };
}

/// The current value of a base tensor, for all handles and views of it.
pub(crate) struct Storage(Mutex<StorageContents>);

/// An object of the host language that is dropped with a storage.
pub type Attachment = Arc<dyn Any + Send + Sync>;

struct StorageContents {
    attachment: Option<Attachment>,
    host_side: Option<Arc<dyn HostSide>>,
    value: Arc<TensorValue>,
    version: StorageVersion,
    /// Ends when the value is replaced, which makes saved values of its views stale.
    epoch: Epoch,
    /// The caches of its views. Those of views that are gone are removed when they would be half of all.
    views: Vec<Weak<dyn ViewCache>>,
    views_swept: usize,
}

impl Storage {
    pub(crate) fn new(value: Arc<TensorValue>) -> Arc<Storage> {
        Arc::new(Storage(Mutex::new(StorageContents {
            attachment: None,
            host_side: None,
            value,
            version: StorageVersion::default(),
            epoch: Epoch::default(),
            views: Vec::new(),
            views_swept: VIEWS_SWEPT_MIN,
        })))
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
    /// The current value, and how often it was replaced. Elements that the host language has written come first.
    ///
    /// # Errors
    /// Those of uploading them.
    #[inline]
    pub(crate) fn read(self: &Arc<Storage>) -> Result<(Arc<TensorValue>, StorageVersion)> {
        let contents = lock(&self.0);
        if let Some(side) = contents.host_side.clone() {
            drop(contents);
            side.take_over_writes(self)?;
            return Ok(self.current());
        }
        Ok((contents.value.clone(), contents.version))
    }
    /// As [`Storage::read`], without what the host language has written since the last read.
    pub(crate) fn current(&self) -> (Arc<TensorValue>, StorageVersion) {
        let contents = lock(&self.0);
        (contents.value.clone(), contents.version)
    }
    /// Whether memory of the host language shows elements.
    pub(crate) fn has_host_side(&self) -> bool {
        lock(&self.0).host_side.is_some()
    }
    /// The memory of the host language; that of `default` from now on, if there is none.
    pub(crate) fn host_side(&self, default: impl FnOnce() -> Arc<dyn HostSide>) -> Arc<dyn HostSide> {
        lock(&self.0).host_side.get_or_insert_with(default).clone()
    }
    /// Writes the elements to the memory of the host language that shows them. Waits for them.
    ///
    /// # Errors
    /// Those of fetching them.
    pub(crate) fn show_on_host(self: &Arc<Storage>) -> Result<()> {
        let side = lock(&self.0).host_side.clone();
        side.map_or(Ok(()), |side| side.show_changes(self))
    }
    /// How often the value was replaced.
    pub(crate) fn version(&self) -> StorageVersion {
        lock(&self.0).version
    }
    /// The epoch of the current value.
    pub(crate) fn epoch(&self) -> Epoch {
        lock(&self.0).epoch.clone()
    }
    /// Registers the cache of a view.
    pub(crate) fn add_view(&self, cache: Weak<dyn ViewCache>) {
        let mut contents = lock(&self.0);
        if contents.views.len() >= contents.views_swept {
            contents.views.retain(|view| view.strong_count() > 0);
            contents.views_swept = VIEWS_SWEPT_MIN.max(2 * contents.views.len());
        }
        contents.views.push(cache);
    }
    /// Removes the values that views have computed from the current one, if it is large: a worker writes it in place
    /// only where no view shares its memory.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn forget_views(&self) -> Vec<Arc<TensorValue>> {
        let contents = lock(&self.0);
        if contents.value.meta().bytes() < IN_PLACE_BYTES_MIN {
            return Vec::new();
        }
        let caches: Vec<_> = contents.views.iter().filter_map(Weak::upgrade).collect();
        drop(contents);
        caches.iter().filter_map(|cache| cache.take_value()).collect()
    }
    /// Looks at the current value without touching its reference count.
    pub(crate) fn with_value<R>(&self, look: impl FnOnce(&Arc<TensorValue>) -> R) -> R {
        look(&lock(&self.0).value)
    }
    /// Counts an in-place operation that left the value as it is. `on_tape` says whether views get new nodes.
    pub(crate) fn count_in_place(&self, on_tape: bool) {
        let mut contents = lock(&self.0);
        contents.value.version_counter().count();
        contents.version.on_tape += u64::from(on_tape);
    }
    /// Replaces the value and returns the old one, to be dropped without the lock: freeing a tensor may wait. Values of
    /// views that the tape saved before `since` become stale; if it is `None`, no value does. `on_tape` says whether
    /// views get new nodes.
    #[must_use = "to be dropped outside every lock"]
    pub(crate) fn replace(&self, value: Arc<TensorValue>, since: Option<u64>, on_tape: bool) -> Arc<TensorValue> {
        let mut contents = lock(&self.0);
        contents.version.replacements += 1;
        contents.version.on_tape += u64::from(on_tape);
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
