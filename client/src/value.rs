//! Immutable tensor values: names of tensors that exist in the daemon.

use crate::batch::BatchAxes;
use crate::session::ClientSession;
use crate::version::VersionCounter;
use gt_ops::{Meta, TensorId};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};

/// The id that no tensor has.
const NO_TENSOR: TensorId = 0;

/// A tensor in the daemon, which frees it when the last reference here is dropped. Its elements never change.
pub struct TensorValue {
    id: TensorId,
    meta: Meta,
    session: Arc<ClientSession>,
    version: VersionCounter,
    /// The value whose elements these are under another dtype or with batch axes, if it is not the daemon's own tensor.
    reinterpreted: Option<Arc<TensorValue>>,
    /// The batch axes, which `meta` does not have.
    batch: Option<Box<BatchAxes>>,
    /// Whether a function computed it of numbers alone, and no handle has it: the positions that an `unfold` gathers.
    constant: AtomicBool,
    /// The row-major bytes of a value that was uploaded or fetched, if it is small or often read in parts.
    host_copy: OnceLock<Arc<[u8]>>,
    /// How often a part of the elements was asked for.
    part_reads: AtomicU32,
}

impl TensorValue {
    pub(crate) fn new(id: TensorId, meta: Meta, session: &Arc<ClientSession>) -> Arc<TensorValue> {
        let (session, version) = (session.clone(), VersionCounter::default());
        let (reinterpreted, batch, constant, host_copy) = (None, None, AtomicBool::new(false), OnceLock::new());
        let part_reads = AtomicU32::new(0);
        Arc::new(TensorValue { id, meta, session, version, reinterpreted, batch, constant, host_copy, part_reads })
    }
    /// A value that no tensor of the daemon has yet: the first read of its storage uploads one.
    pub(crate) fn to_be_uploaded(meta: Meta, session: &Arc<ClientSession>) -> Arc<TensorValue> {
        TensorValue::new(NO_TENSOR, meta, session)
    }
    /// Whether it is of [`TensorValue::to_be_uploaded`].
    pub(crate) fn is_to_be_uploaded(&self) -> bool {
        self.id == NO_TENSOR
    }
    /// The elements of `value` as those of another dtype, of which one is stored as the other: the same tensor of the
    /// daemon.
    pub(crate) fn reinterpret(value: &Arc<TensorValue>, meta: Meta) -> Arc<TensorValue> {
        TensorValue::same_elements(value, meta, value.batch.clone())
    }
    /// `value`, whose first axes are batch axes, as a tensor of the other axes.
    pub(crate) fn batched(value: &Arc<TensorValue>, axes: BatchAxes, meta: Meta) -> Arc<TensorValue> {
        TensorValue::same_elements(value, meta, Some(Box::new(axes)))
    }
    fn same_elements(value: &Arc<TensorValue>, meta: Meta, batch: Option<Box<BatchAxes>>) -> Arc<TensorValue> {
        let (id, session, version) = (value.id, value.session.clone(), VersionCounter::default());
        // A batched value refers to the one that has its batch axes.
        let elements = if value.is_batched() { value.reinterpreted.as_ref().unwrap_or(value) } else { value };
        let (reinterpreted, constant, host_copy) = (Some(elements.clone()), AtomicBool::new(false), OnceLock::new());
        let part_reads = AtomicU32::new(0);
        Arc::new(TensorValue { id, meta, session, version, reinterpreted, batch, constant, host_copy, part_reads })
    }
    /// Whether it has batch axes.
    #[inline]
    pub(crate) fn is_batched(&self) -> bool {
        self.batch.is_some()
    }
    /// The batch axes, and the value that has them as its first axes.
    pub(crate) fn batch(&self) -> Option<(&BatchAxes, &Arc<TensorValue>)> {
        self.batch.as_deref().zip(self.reinterpreted.as_ref())
    }
    /// The value for a handle of its own, such as that of a copy: an in-place operation through other handles leaves it
    /// current. A view's value goes stale with the base's, so that the copy gets another name for the same elements.
    pub(crate) fn independent(value: Arc<TensorValue>) -> Arc<TensorValue> {
        if value.version.is_of_view() {
            return TensorValue::reinterpret(&value, value.meta);
        }
        value.version.share();
        value
    }
    /// Whether a function computed it of numbers alone, and no handle has it. A backward pass keeps such a value, which
    /// PyTorch would not have saved.
    pub(crate) fn is_constant(&self) -> bool {
        self.constant.load(Relaxed)
    }
    pub(crate) fn set_constant(&self, constant: bool) {
        self.constant.store(constant, Relaxed);
    }
    /// The row-major bytes, if they are known on the host.
    pub(crate) fn host_copy(&self) -> Option<&Arc<[u8]>> {
        self.host_copy.get()
    }
    /// Counts a read of a part of the elements: the reads so far.
    pub(crate) fn count_part_read(&self) -> u32 {
        self.part_reads.fetch_add(1, Relaxed).saturating_add(1)
    }
    /// Keeps the row-major bytes. A value that has them already has the same ones.
    pub(crate) fn keep_host_copy(&self, bytes: Arc<[u8]>) {
        let _known = self.host_copy.set(bytes);
    }
    #[inline]
    pub(crate) fn version_counter(&self) -> &VersionCounter {
        &self.version
    }
    /// The tensor's id in the session.
    #[inline]
    pub fn id(&self) -> TensorId {
        self.id
    }
    /// The shape and dtype.
    #[inline]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }
    /// The session it lives in.
    #[inline]
    pub fn session(&self) -> &Arc<ClientSession> {
        &self.session
    }
}

impl Drop for TensorValue {
    fn drop(&mut self) {
        if self.reinterpreted.is_none() && !self.is_to_be_uploaded() {
            self.session.free(self.id, self.meta.bytes());
        }
    }
}

impl std::fmt::Debug for TensorValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{} {} {}", self.id, self.meta.dtype, self.meta.shape)
    }
}
