//! The memory that a session or a user holds, counted against a limit.

use crate::error::{ExecError, LimitScope};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The bytes that a session holds on all devices of this process, and their limit. Its user's usage counts them as
/// well.
#[derive(Debug)]
pub struct MemoryUsage {
    id: u64,
    held: AtomicUsize,
    peak: AtomicUsize,
    limit: AtomicUsize,
    group: OnceLock<Arc<MemoryUsage>>,
}

impl MemoryUsage {
    /// Creates a usage that holds no bytes and has no limit. An allocation may contain old data of freed tensors whose
    /// usage had the same `id`.
    pub fn new(id: u64) -> MemoryUsage {
        let (held, peak, limit) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        MemoryUsage { id, held, peak, limit, group: OnceLock::new() }
    }

    /// The number given to [`new`](MemoryUsage::new).
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Counts these bytes in `group` as well (the user's usage). Called once, before anything is held.
    pub fn join(&self, group: Arc<MemoryUsage>) {
        let _ = self.group.set(group);
    }

    /// The usage that also counts these bytes, if [`join`](MemoryUsage::join) was called.
    pub fn group(&self) -> Option<&Arc<MemoryUsage>> {
        self.group.get()
    }

    /// Sets the limit, bytes; 0 for no limit. Bytes held already stay, even above the limit.
    pub fn set_limit(&self, bytes: u64) {
        let bytes = if bytes == 0 { usize::MAX } else { usize::try_from(bytes).unwrap_or(usize::MAX) };
        self.limit.store(bytes, Relaxed);
    }

    /// The limit, bytes; 0 for no limit.
    pub fn limit(&self) -> u64 {
        match self.limit.load(Relaxed) {
            usize::MAX => 0,
            bytes => bytes as u64,
        }
    }

    /// Bytes held.
    pub fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// The most bytes held at one time, since creation or the last [`reset_peak`](MemoryUsage::reset_peak).
    pub fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }

    /// Sets the peak to the bytes held at this moment.
    pub fn reset_peak(&self) {
        self.peak.store(self.held(), Relaxed);
    }

    /// Adds `bytes`, the size of the block for an allocation of `requested` bytes.
    ///
    /// # Errors
    /// [`ExecError::OutOfMemory`] if the sum would exceed this usage's limit or the group's; both usages are then
    /// unchanged.
    #[inline]
    pub fn take(&self, bytes: usize, requested: usize) -> Result<(), ExecError> {
        let held = self.add(bytes, requested, LimitScope::Usage)?;
        if let Some(group) = self.group.get() {
            group.add(bytes, requested, LimitScope::Group).inspect_err(|_| self.subtract(bytes))?;
        }
        if held > self.peak.load(Relaxed) {
            self.peak.fetch_max(held, Relaxed);
        }
        Ok(())
    }

    /// Subtracts `bytes`, when a block is freed.
    #[inline]
    pub fn give(&self, bytes: usize) {
        self.subtract(bytes);
        if let Some(group) = self.group.get() {
            group.subtract(bytes);
        }
    }

    #[inline]
    fn add(&self, bytes: usize, requested: usize, scope: LimitScope) -> Result<usize, ExecError> {
        let held = self.held.fetch_add(bytes, Relaxed);
        let limit = self.limit.load(Relaxed);
        if let Some(total) = held.checked_add(bytes).filter(|total| *total <= limit) {
            return Ok(total);
        }
        self.subtract(bytes);
        Err(ExecError::OutOfMemory { requested, held, limit, scope })
    }

    #[inline]
    fn subtract(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_the_most_that_was_held_since_it_was_asked_for() {
        let group = Arc::new(MemoryUsage::new(9));
        let usage = MemoryUsage::new(1);
        usage.join(group.clone());
        group.set_limit(100);
        usage.take(70, 70).unwrap();
        usage.give(50);
        usage.take(30, 30).unwrap();
        assert!(usage.take(60, 60).is_err(), "what was refused was never held");
        assert_eq!((usage.held(), usage.peak()), (50, 70));
        usage.reset_peak();
        usage.give(40);
        assert_eq!((usage.held(), usage.peak()), (10, 50));
    }

    #[test]
    fn a_session_and_its_user_have_limits_and_give_back() {
        let group = Arc::new(MemoryUsage::new(9));
        let (one, two) = (MemoryUsage::new(1), MemoryUsage::new(2));
        one.join(group.clone());
        two.join(group.clone());
        one.set_limit(100);
        group.set_limit(150);
        one.take(90, 90).unwrap();
        let scope = LimitScope::Usage;
        assert_eq!(one.take(20, 17), Err(ExecError::OutOfMemory { requested: 17, held: 90, limit: 100, scope }));
        let scope = LimitScope::Group;
        assert_eq!(two.take(70, 70), Err(ExecError::OutOfMemory { requested: 70, held: 90, limit: 150, scope }));
        assert_eq!((one.held(), two.held(), group.held()), (90, 0, 90));
        one.give(50);
        two.take(70, 70).unwrap();
        assert_eq!((one.held(), two.held(), group.held()), (40, 70, 110));
        // A limit below what is held keeps the blocks and refuses new ones.
        one.set_limit(10);
        assert!(one.take(1, 1).is_err());
        one.set_limit(0);
        one.take(1, 1).unwrap();
    }
}
