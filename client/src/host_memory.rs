//! Memory of the host language that shows the elements of a tensor, as a NumPy array does, and may be written.
//!
//! In PyTorch, the array of `t.numpy()` and `t` are the same memory. Here the elements are in the daemon, where
//! instructions that were issued earlier may still read them. So each side is brought up to date when the program could
//! see a difference: an operation that reads the tensor first uploads what was written to the memory, and an operation
//! in place fetches its result into the memory before it returns. Where nothing but the tensor refers to the memory any
//! more, there is nobody to see a difference, and the storage lets it go.
//!
//! Whether the memory was written is asked at every read of the tensor. Small memory is hashed. So is large memory at
//! the first read, as most arrays are used once; from then on, the kernel notes which pages of it were written
//! ([`WrittenPages`]). Where it does not, hashing the memory each time would cost a program that takes batches from a
//! large array more than its training: memory that was not written for a while is hashed ever more rarely, and a write
//! that is found late is told in a warning.

use crate::blocking::blocking;
use crate::error::Result;
use crate::handle::{AutogradMeta, Binding, CachedView, Tensor, View};
use crate::lock::lock;
use crate::notice;
use crate::session::ClientSession;
use crate::storage::{HostSide, Storage, StorageVersion};
use crate::strides::{MemoryLayout, ViewOps};
use crate::transfer::UploadSource;
use crate::value::TensorValue;
use crate::view::Repeats;
use foldhash::quality::FixedState;
use gt_ops::Meta;
use gt_protocol::bytes_text;
use gt_shm::WrittenPages;
use std::any::Any;
use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Memory of at most this many bytes is hashed at every read, in some microseconds. The kernel takes one to say whether
/// pages were written, and as long as an upload to begin to watch them.
const HASHED_BYTES_MAX: usize = 64 << 10;
/// Larger memory that the kernel does not watch is hashed at every read until it was found unchanged this often in a
/// row, then only when that number has doubled.
const UNCHANGED_READS_MAX: u64 = 16;
/// From this many arrays of small parts of a storage on, further ones are parts of one array of all of it: whether each
/// was written is asked at every read.
const SMALL_PARTS_MAX: usize = 32;
/// How long a thread sleeps that waits for another to upload.
const UPLOAD_NAP: Duration = Duration::from_micros(100);

/// Memory of the host language.
pub trait HostMemory: Any + Send + Sync {
    /// Whether anything but this object can read or write it.
    fn is_referred_to(&self) -> bool;
    /// Calls `look` on the elements' bytes in row-major order.
    ///
    /// # Errors
    /// Memory that is no longer as it was.
    fn read(&self, look: &mut dyn FnMut(&[u8])) -> Result<()>;
    /// Writes the elements' bytes, which are in row-major order.
    ///
    /// # Errors
    /// As [`HostMemory::read`].
    fn write(&self, bytes: &[u8]) -> Result<()>;
    /// The address, if the bytes are in row-major order there.
    fn address(&self) -> Option<*const u8>;
}

/// The elements of a storage that one piece of host memory shows.
#[derive(Clone, PartialEq)]
struct Shown {
    ops: ViewOps,
    meta: Meta,
}

/// How it is found out whether host memory was written.
enum WriteDetection {
    /// Not at all: its elements were not uploaded yet.
    NotUploaded,
    /// By the hash of what it had.
    Hash(u64),
    /// By its pages.
    Pages(WrittenPages),
    /// By the hash, at some reads only: see [`UNCHANGED_READS_MAX`].
    RarelyHash { hash: u64, reads: u64, next: u64 },
}

/// Host memory that shows elements of a storage.
pub struct HostView {
    memory: Arc<dyn HostMemory>,
    shown: Shown,
    layout: MemoryLayout,
    detection: WriteDetection,
    /// Which upload of the last read of the storage was that of this memory, from 1; 0 if it was not uploaded.
    last_upload: u64,
}

/// The host memory of one storage. No lock is held while memory is read or written, which may wait for the lock of the
/// host language.
#[derive(Default)]
struct HostViews(Mutex<HostViewsState>);

#[derive(Default)]
struct HostViewsState {
    views: Vec<HostView>,
    /// The views are out, at the thread that brings them up to date.
    is_busy: bool,
}

impl HostViews {
    /// The host memory of `storage`: none yet, if it had no such list.
    fn of(storage: &Storage) -> Option<Arc<HostViews>> {
        let side: Arc<dyn Any + Send + Sync> = storage.host_side(|| Arc::new(HostViews::default()));
        side.downcast().ok()
    }

    /// How many pieces of host memory show elements of `storage`.
    fn count(storage: &Storage) -> usize {
        if !storage.has_host_side() {
            return 0;
        }
        HostViews::of(storage).map_or(0, |views| lock(&views.0).views.len())
    }

    /// Calls `update` on the views, of which it may remove some. If they are out already, which they are where `update`
    /// writes through a view, nothing is to be done.
    fn update(&self, update: impl FnOnce(&mut Vec<HostView>) -> Result<()>) -> Result<()> {
        let mut views = {
            let mut state = lock(&self.0);
            if std::mem::replace(&mut state.is_busy, true) {
                return Ok(());
            }
            std::mem::take(&mut state.views)
        };
        let outcome = update(&mut views);
        let mut state = lock(&self.0);
        state.is_busy = false;
        // Those that were added meanwhile follow.
        views.append(&mut state.views);
        state.views = views;
        outcome
    }
}

fn hash(bytes: &[u8]) -> u64 {
    FixedState::default().hash_one(bytes)
}

fn hash_of(memory: &dyn HostMemory) -> Result<u64> {
    let mut found = 0;
    memory.read(&mut |bytes| found = hash(bytes))?;
    Ok(found)
}

impl WriteDetection {
    fn rarely(hash: u64) -> WriteDetection {
        WriteDetection::RarelyHash { hash, reads: 0, next: 1 }
    }

    /// Whether the memory, of `len` bytes, was written since the last call. `last` says that it is never asked again.
    fn was_written(&mut self, memory: &dyn HostMemory, len: usize, last: bool) -> Result<bool> {
        match self {
            WriteDetection::NotUploaded => {
                if !last {
                    *self = WriteDetection::Hash(hash_of(memory)?);
                }
                Ok(true)
            }
            WriteDetection::Hash(known) => {
                let (known, is_watched) = (*known, len > HASHED_BYTES_MAX && !last);
                let address = memory.address().filter(|_| is_watched);
                let (mut pages, mut found) = (None, 0);
                memory.read(&mut |bytes| {
                    // Another thread may write to the memory while it is hashed.
                    pages = address.and_then(|address| WrittenPages::watch(address, bytes.len()));
                    found = hash(bytes);
                })?;
                *self = match pages {
                    Some(pages) => WriteDetection::Pages(pages),
                    None if is_watched => WriteDetection::rarely(found),
                    None => WriteDetection::Hash(found),
                };
                Ok(found != known)
            }
            WriteDetection::Pages(pages) => {
                let written = pages.any_written();
                if written && !last && !pages.reset() {
                    *self = WriteDetection::rarely(hash_of(memory)?);
                }
                Ok(written)
            }
            WriteDetection::RarelyHash { hash, reads, next } => {
                *reads += 1;
                if *reads < *next && !last {
                    return Ok(false);
                }
                let found = hash_of(memory)?;
                if std::mem::replace(hash, found) == found {
                    *next = if *reads < UNCHANGED_READS_MAX { *reads + 1 } else { 2 * *reads };
                    return Ok(false);
                }
                if *reads > UNCHANGED_READS_MAX {
                    notice::warn(&format!(
                        "an array of {} that shares its elements with a tensor was written after GT had found it \
                         unchanged at {UNCHANGED_READS_MAX} operations in a row, so operations since then may have read \
                         its old elements. This kernel does not tell which memory was written (userfaultfd's \
                         asynchronous write protection, Linux 6.7, which containers may forbid), so GT compares large \
                         arrays ever more rarely. Write to the tensor, or make one by gt.tensor(array) after writing",
                        bytes_text(len as u64)
                    ))?;
                }
                (*reads, *next) = (0, 1);
                Ok(true)
            }
        }
    }

    /// Takes `bytes`, which the memory has now, as known.
    fn renew(&mut self, bytes: &[u8]) {
        match self {
            WriteDetection::Pages(pages) if pages.reset() => {}
            WriteDetection::NotUploaded | WriteDetection::Hash(_) => *self = WriteDetection::Hash(hash(bytes)),
            _ => *self = WriteDetection::rarely(hash(bytes)),
        }
    }
}

impl HostView {
    fn is_whole(&self) -> bool {
        self.shown.ops.is_empty()
    }

    /// The shown elements as a view of the storage that writes through it unseen by the tape, as `x.data` does.
    fn view(&self, storage: &Arc<Storage>) -> View {
        let ops = (self.shown.ops.clone(), self.shown.ops.len());
        let cached = CachedView { value: None, node: None, version: StorageVersion::NEVER, failures: 0 };
        View::new(storage.clone(), AutogradMeta::of(None, true), ops, (self.shown.meta, self.layout), cached)
    }

    /// Uploads what was written to the memory since the last call; false if nothing was. `last` says that this is the
    /// last call.
    fn take_over_writes(&mut self, storage: &Arc<Storage>, last: bool) -> Result<bool> {
        let written = self.detection.was_written(&*self.memory, self.shown.meta.bytes(), last)?;
        if written {
            // Where this fails, the next read of the storage tries again.
            self.upload(storage).inspect_err(|_| self.detection = WriteDetection::NotUploaded)?;
        }
        Ok(written)
    }

    /// Uploads what the memory has.
    fn upload(&self, storage: &Arc<Storage>) -> Result<()> {
        let (meta, session) = (self.shown.meta, storage.with_value(|value| value.session().clone()));
        let mut uploaded = None;
        self.memory.read(&mut |bytes| uploaded = Some(session.upload(meta, UploadSource::from(bytes))))?;
        let Some(value) = uploaded.transpose()? else { return Ok(()) };
        let value = if self.is_whole() { value } else { self.view(storage).write((value, None), Repeats::Changed)?.0 };
        // Dropped without the lock: freeing a tensor may wait.
        drop(storage.replace(value, None, false));
        Ok(())
    }

    /// Fetches the shown elements into the memory.
    fn fetch(&mut self, storage: &Arc<Storage>) -> Result<()> {
        let value: Arc<TensorValue> = match self.is_whole() {
            true => storage.current().0,
            false => self.view(storage).read()?.value,
        };
        let bytes = value.session().host_bytes(&value, false)?;
        self.memory.write(&bytes)?;
        self.detection.renew(&bytes);
        Ok(())
    }
}

impl HostSide for HostViews {
    fn take_over_writes(&self, storage: &Arc<Storage>) -> Result<()> {
        // Another thread is uploading the elements, which the storage does not have before.
        while storage.with_value(|value| value.is_to_be_uploaded()) && lock(&self.0).is_busy {
            blocking(|| std::thread::sleep(UPLOAD_NAP))?;
        }
        self.update(|views| {
            // Memory that is uploaded whether or not it was written must not undo what was written to other memory, nor
            // memory of all elements, of which one was written, what was written to that of some.
            views.sort_by_key(|view| {
                (!matches!(view.detection, WriteDetection::NotUploaded), Reverse(view.shown.meta.bytes()))
            });
            let (mut outcome, mut uploads) = (Ok(()), 0);
            views.retain_mut(|view| {
                let stays = view.memory.is_referred_to();
                let taken = view.take_over_writes(storage, !stays);
                let is_uploaded = *taken.as_ref().unwrap_or(&false);
                uploads += u64::from(is_uploaded);
                view.last_upload = if is_uploaded { uploads } else { 0 };
                let failed = taken.is_err();
                if outcome.is_ok() {
                    outcome = taken.map(drop);
                }
                stays || failed
            });
            outcome?;
            // The last upload may have changed elements that other memory shows, too.
            let mut others = views.iter_mut().filter(|view| view.last_upload < uploads);
            others.try_for_each(|view| view.fetch(storage))
        })
    }

    fn show_changes(&self, storage: &Arc<Storage>) -> Result<()> {
        self.update(|views| {
            views.retain(|view| view.memory.is_referred_to());
            views.iter_mut().try_for_each(|view| view.fetch(storage))
        })
    }
}

impl Tensor {
    fn shown(&self) -> (Shown, MemoryLayout) {
        let ops = match &self.binding {
            Binding::View(view) => view.ops.clone(),
            _ => ViewOps::new(),
        };
        (Shown { ops, meta: self.meta() }, self.memory_layout())
    }

    /// Host memory that shows the tensor's elements, of which the host language has an object.
    pub fn host_memory(&self) -> Option<Arc<dyn HostMemory>> {
        let storage = match &self.binding {
            Binding::Own(..) => return None,
            Binding::Shared(storage, _) => storage,
            Binding::View(view) => &view.base,
        };
        if !storage.has_host_side() {
            return None;
        }
        let (shown, views) = (self.shown().0, HostViews::of(storage)?);
        let state = lock(&views.0);
        let found = state.views.iter().find(|view| view.shown == shown)?;
        Some(found.memory.clone())
    }

    /// For a view, the tensor that has all elements of the storage, and in whose memory those of the view are at its
    /// offset and strides. None for a small part of a large storage, unless host memory shows all of that or many parts
    /// already, and for a view that has its elements elsewhere in PyTorch's memory.
    pub fn whole(&self) -> Option<Tensor> {
        let Binding::View(view) = &self.binding else { return None };
        let bytes = view.base.with_value(|value| value.meta().bytes());
        let is_small_part = bytes > HASHED_BYTES_MAX && 2 * view.meta.bytes() < bytes;
        let whole = Tensor { binding: Binding::Shared(view.base.clone(), AutogradMeta::of(None, true)) };
        let is_shown = || whole.host_memory().is_some() || HostViews::count(&view.base) >= SMALL_PARTS_MAX;
        (view.layout.in_order && (!is_small_part || is_shown())).then_some(whole)
    }

    /// Memory that has the tensor's elements, which are `bytes` in row-major order, for [`Tensor::show_in`].
    pub fn host_view(&self, memory: Arc<dyn HostMemory>, bytes: &[u8]) -> HostView {
        let (shown, layout) = self.shown();
        let detection = WriteDetection::Hash(hash(bytes));
        HostView { memory, shown, layout, detection, last_upload: 0 }
    }

    /// A tensor whose elements `memory` has. They are uploaded when an operation first reads them.
    pub fn of_host_memory(meta: Meta, session: &Arc<ClientSession>, memory: Arc<dyn HostMemory>) -> Tensor {
        let storage = Storage::new(TensorValue::to_be_uploaded(meta, session));
        let mut tensor = Tensor { binding: Binding::Shared(storage, AutogradMeta::of(None, false)) };
        let (shown, layout) = tensor.shown();
        let detection = WriteDetection::NotUploaded;
        tensor.show_in(HostView { memory, shown, layout, detection, last_upload: 0 });
        tensor
    }

    /// From now on, what is written to the memory changes the tensor, and what is written to the tensor the memory.
    pub fn show_in(&mut self, view: HostView) {
        let storage = self.share().0;
        if let Some(views) = HostViews::of(&storage) {
            lock(&views.0).views.push(view);
        }
    }
}
