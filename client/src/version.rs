//! Version counters: they tell a backward pass that an in-place operation has replaced a value it needs.
//!
//! A value itself never changes, so a gradient computed from a replaced one is right. But PyTorch refuses such
//! programs, since they are rarely meant, and so does GT. Replacing a value records the tape's sequence number at that
//! time: what the tape saved before is stale; what the in-place operation saved itself is not.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The sequence number at which a storage's value was replaced; 0 while it is current. Views of the value share it.
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

/// A value's version, and when an in-place operation replaced the value.
#[derive(Default)]
pub(crate) struct VersionCounter {
    /// How many in-place operations led to the value.
    version: AtomicU32,
    /// The sequence number at which the value was replaced in its handle; 0 while it is current.
    replaced: AtomicU64,
    /// Whether independent handles hold the value: replacing it in one leaves it current in the others.
    shared: AtomicBool,
    /// For a view's value, the epoch of the base's value.
    base: OnceLock<Epoch>,
}

impl VersionCounter {
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Relaxed)
    }
    /// Counts an in-place operation that left the value as it is.
    pub(crate) fn count(&self) {
        self.version.fetch_add(1, Relaxed);
    }
    /// Records that an independent handle holds the value too, so replacing it in one handle does not make it stale.
    pub(crate) fn share(&self) {
        self.shared.store(true, Relaxed);
    }
    /// Makes the value stale when `epoch`, that of the base's value, ends.
    pub(crate) fn view_of(&self, epoch: Epoch) {
        let _ = self.base.set(epoch);
    }
    /// Whether it is a view's, which goes stale with the base's.
    pub(crate) fn is_of_view(&self) -> bool {
        self.base.get().is_some()
    }
    /// Records that `next` replaces the value in its handle. Nodes older than `since` have then saved a stale value,
    /// unless other handles hold it. If `since` is `None`, the operation is untracked, and the saved value stays valid.
    pub(crate) fn replace(&self, next: &VersionCounter, since: Option<u64>) {
        next.version.store(self.version() + u32::from(since.is_some()), Relaxed);
        if let Some(since) = since
            && !self.shared.load(Relaxed)
        {
            let _ = self.replaced.compare_exchange(0, since, Relaxed, Relaxed);
        }
    }
    /// Whether the value was replaced after node `number` saved it.
    pub(crate) fn is_stale(&self, number: u64) -> bool {
        self.replaced.load(Relaxed) > number || self.base.get().is_some_and(|epoch| epoch.ended_after(number))
    }
}
