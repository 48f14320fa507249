//! Immutable tensor values: names of tensors that exist in the daemon.

use crate::session::ClientSession;
use crate::version::VersionCounter;
use gt_ops::{Meta, TensorId};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// A tensor in the daemon, which frees it when the last reference here is dropped. Its elements never change.
pub struct TensorValue {
    id: TensorId,
    meta: Meta,
    session: Arc<ClientSession>,
    version: VersionCounter,
    /// The value whose elements these are under another dtype, if it is not the daemon's own tensor.
    reinterpreted: Option<Arc<TensorValue>>,
    /// Whether a function computed it of numbers alone, and no handle has it: the positions that an `unfold` gathers.
    constant: AtomicBool,
}

impl TensorValue {
    pub(crate) fn new(id: TensorId, meta: Meta, session: &Arc<ClientSession>) -> Arc<TensorValue> {
        let (session, version) = (session.clone(), VersionCounter::default());
        Arc::new(TensorValue { id, meta, session, version, reinterpreted: None, constant: AtomicBool::new(false) })
    }
    /// The elements of `value` as those of another dtype, of which one is stored as the other: the same tensor of the
    /// daemon.
    pub(crate) fn reinterpret(value: &Arc<TensorValue>, meta: Meta) -> Arc<TensorValue> {
        let (id, session, version) = (value.id, value.session.clone(), VersionCounter::default());
        let (reinterpreted, constant) = (Some(value.clone()), AtomicBool::new(false));
        Arc::new(TensorValue { id, meta, session, version, reinterpreted, constant })
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
        if self.reinterpreted.is_none() {
            self.session.free(self.id, self.meta.bytes());
        }
    }
}

impl std::fmt::Debug for TensorValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{} {} {}", self.id, self.meta.dtype, self.meta.shape)
    }
}
