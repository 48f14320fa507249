//! The cancellation of instructions that are queued or that compute.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A mark in a session's instructions: those with lower labels are cancelled. Any thread may raise it at any time.
#[derive(Debug, Default)]
pub struct Cancellation {
    below: AtomicU64,
}

impl Cancellation {
    /// A label that no mark covers.
    pub const NEVER: u64 = u64::MAX;

    /// Cancels the instructions with labels below `label`, and none above.
    pub fn cancel_below(&self, label: u64) {
        self.below.fetch_max(label, Relaxed);
    }

    /// Cancels all instructions, including later ones.
    pub fn cancel_all(&self) {
        self.cancel_below(u64::MAX);
    }

    /// Whether the instruction with this label is cancelled.
    #[inline(always)]
    pub fn covers(&self, label: u64) -> bool {
        label < self.below.load(Relaxed)
    }

    /// Whether all instructions are cancelled.
    #[inline]
    pub fn covers_all(&self) -> bool {
        self.below.load(Relaxed) == u64::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_only_rises() {
        let cancellation = Cancellation::default();
        assert!(!cancellation.covers(0));
        cancellation.cancel_below(7);
        cancellation.cancel_below(3);
        assert!(cancellation.covers(6) && !cancellation.covers(7) && !cancellation.covers_all());
        cancellation.cancel_all();
        assert!(cancellation.covers(u64::MAX - 1) && cancellation.covers_all());
        assert!(!cancellation.covers(Cancellation::NEVER));
    }
}
