//! The bytes that tensors hold, counted when an instruction is sent: a limit is kept without asking the device.
//!
//! PyTorch's own allocator adds what it caches and what an op needs while it runs.

use gt_backend::{ExecError, LimitScope, MemoryStats, MemoryUsage};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counts of one device.
#[derive(Debug)]
pub struct MemoryLedger {
    counts: Mutex<MemoryCounts>,
    limit_bytes: usize,
}

#[derive(Debug, Default)]
struct MemoryCounts {
    /// Bytes of each usage, by its id.
    held: HashMap<u64, usize>,
    total: usize,
    peak: usize,
}

/// The memory of a tensor and its views, which is counted until the last of them is dropped.
#[derive(Debug)]
pub struct CountedBytes {
    bytes: usize,
    usage: Option<Arc<MemoryUsage>>,
    ledger: Arc<MemoryLedger>,
}

impl MemoryLedger {
    /// The counts of a device whose tensors may take this many bytes.
    pub fn new(limit_bytes: usize) -> Arc<MemoryLedger> {
        Arc::new(MemoryLedger { counts: Mutex::default(), limit_bytes })
    }

    fn counts(&self) -> MutexGuard<'_, MemoryCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// MemoryCounts `bytes` for `usage`.
    ///
    /// # Errors
    /// [`ExecError::OutOfMemory`] if that exceeds the device's limit, the usage's or that of its group.
    pub fn take(
        self: &Arc<MemoryLedger>,
        bytes: usize,
        usage: Option<&Arc<MemoryUsage>>,
    ) -> Result<Arc<CountedBytes>, ExecError> {
        let mut counts = self.counts();
        let total = counts.total.checked_add(bytes).filter(|total| *total <= self.limit_bytes);
        let Some(total) = total else { return Err(self.refused(bytes, counts.total)) };
        if let Some(usage) = usage {
            usage.take(bytes, bytes)?;
            *counts.held.entry(usage.id()).or_default() += bytes;
        }
        counts.total = total;
        counts.peak = counts.peak.max(total);
        drop(counts);
        Ok(Arc::new(CountedBytes { bytes, usage: usage.cloned(), ledger: self.clone() }))
    }

    fn refused(&self, requested: usize, held: usize) -> ExecError {
        ExecError::OutOfMemory { requested, held, limit: self.limit_bytes, scope: LimitScope::Device }
    }

    /// The error of a device that has no room for `requested` bytes, although they are within the limit.
    pub fn exhausted(&self, requested: usize) -> ExecError {
        let held = self.counts().total;
        self.refused(requested, held)
    }

    /// The bytes that `usage` holds.
    pub fn held(&self, usage: &MemoryUsage) -> usize {
        self.counts().held.get(&usage.id()).copied().unwrap_or(0)
    }

    /// Memory statistics.
    pub fn stats(&self) -> MemoryStats {
        let MemoryCounts { total, peak, .. } = *self.counts();
        MemoryStats {
            used_bytes: total,
            used_bytes_peak: peak,
            // PyTorch caches what it frees, and gives that up before it refuses memory.
            cached_bytes: 0,
            limit_bytes: self.limit_bytes,
        }
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        let mut counts = self.ledger.counts();
        counts.total -= self.bytes;
        if let Some(usage) = &self.usage {
            usage.give(self.bytes);
            if let Some(held) = counts.held.get_mut(&usage.id()) {
                *held -= self.bytes;
                if *held == 0 {
                    counts.held.remove(&usage.id());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_until_the_last_handle_is_dropped() {
        let ledger = MemoryLedger::new(100);
        let usage = Arc::new(MemoryUsage::new(1));
        usage.set_limit(80);
        let first = ledger.take(60, Some(&usage)).unwrap();
        let view = first.clone();
        drop(first);
        assert_eq!((ledger.held(&usage), usage.held(), ledger.stats().used_bytes), (60, 60, 60));
        let (held, limit) = (60, 80);
        let error = ExecError::OutOfMemory { requested: 30, held, limit, scope: LimitScope::Usage };
        assert_eq!(ledger.take(30, Some(&usage)).err(), Some(error));
        let error = ExecError::OutOfMemory { requested: 41, held, limit: 100, scope: LimitScope::Device };
        assert_eq!(ledger.take(41, None).err(), Some(error));
        assert!(ledger.take(usize::MAX, None).is_err());
        drop(view);
        assert_eq!((ledger.held(&usage), usage.held(), ledger.stats().used_bytes), (0, 0, 0));
        assert_eq!(ledger.stats().used_bytes_peak, 60);
    }
}
