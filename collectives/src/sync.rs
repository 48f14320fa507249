//! Counts that others wait for, and the gate that ranks pass together.
//!
//! Both are plain atomics that work between processes. How a waiter spins and sleeps is a [`WaitPolicy`], so that loom runs
//! the same code as the futex does. Aborting sets a bit of the very word that waiters sleep on: it cannot be missed,
//! and since a gate opens only by a compare-and-swap from a word without that bit, either all ranks pass it or none
//! does.

use gt_shm::sync::{AtomicU32, FenceSite, fence_at, order_at, spin_hint};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Bit 0 of a signal's word; the count is in the others.
const ABORTED: u32 = 1;
/// What a count of one adds to the word.
const ONE: u32 = 2;

/// The group was aborted while this was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

/// How a waiter passes its time.
pub trait WaitPolicy {
    /// Whether to spin once more, after `spins` spins, before sleeping.
    fn spins(&self, spins: u32) -> bool;
    /// Sleeps while `word` is `expected`; returns after a while in any case, and whenever it likes.
    fn sleep(&self, word: &AtomicU32, expected: u32);
    /// Wakes all that sleep on `word`.
    fn wake(&self, word: &AtomicU32);
    /// Looks after each sleep whether there is still somebody to wait for; aborts the group otherwise.
    fn check_peers(&self);
}

/// A count that only grows (and wraps at 2³¹), which others wait for. All bytes zero: a count of nothing.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct EventCount {
    word: AtomicU32,
    sleepers: AtomicU32,
}

impl EventCount {
    /// Adds one and wakes who waits for it.
    pub fn advance(&self, kernel: &impl WaitPolicy) {
        self.word.fetch_add(ONE, order_at(FenceSite::SignalRelease, Release));
        self.wake_sleepers(kernel);
    }

    /// Makes every wait that would sleep an error, from now on.
    pub fn abort(&self, kernel: &impl WaitPolicy) {
        self.word.fetch_or(ABORTED, Release);
        self.wake_sleepers(kernel);
    }

    /// Waits until the count is `ready`. A count that is ready wins over an abort.
    ///
    /// # Errors
    /// [`Aborted`].
    pub fn wait(&self, kernel: &impl WaitPolicy, ready: impl Fn(u32) -> bool) -> Result<(), Aborted> {
        let mut spins = 0;
        loop {
            let seen = self.word.load(Acquire);
            if ready(seen / ONE) {
                return Ok(());
            }
            if seen & ABORTED != 0 {
                return Err(Aborted);
            }
            if kernel.spins(spins) {
                spins += 1;
                spin_hint();
                continue;
            }
            self.sleepers.fetch_add(1, Relaxed);
            fence_at(FenceSite::SleeperFence, SeqCst);
            kernel.sleep(&self.word, seen);
            self.sleepers.fetch_sub(1, Relaxed);
            kernel.check_peers();
        }
    }

    fn wake_sleepers(&self, kernel: &impl WaitPolicy) {
        fence_at(FenceSite::SignalFence, SeqCst);
        if self.sleepers.load(Relaxed) != 0 {
            kernel.wake(&self.word);
        }
    }
}

/// Whether a count that wraps at 2³¹ has come to `target`, which is less than 2³⁰ away.
pub fn reached(count: u32, target: u32) -> bool {
    (count.wrapping_sub(target) & (u32::MAX / ONE)) < 1 << 30
}

/// Where ranks wait for each other: the last to come opens it for all. All bytes zero: a new gate.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct CentralBarrier {
    opened: EventCount,
    arrived: AtomicU32,
}

impl CentralBarrier {
    /// Comes to the gate and waits for the other `ranks - 1`. What any rank wrote before it came is visible to all
    /// after.
    ///
    /// # Errors
    /// [`Aborted`], for all ranks or none.
    pub fn pass(&self, ranks: u32, kernel: &impl WaitPolicy) -> Result<(), Aborted> {
        // It cannot open before this rank has come.
        let before = self.opened.word.load(Relaxed);
        if before & ABORTED != 0 {
            return Err(Aborted);
        }
        if self.arrived.fetch_add(1, AcqRel) + 1 < ranks {
            return self.opened.wait(kernel, |count| count != before / ONE);
        }
        self.arrived.store(0, Relaxed);
        let open = before.wrapping_add(ONE);
        let order = order_at(FenceSite::SignalRelease, Release);
        let opened = self.opened.word.compare_exchange(before, open, order, Relaxed);
        self.opened.wake_sleepers(kernel);
        opened.map(drop).map_err(|_| Aborted)
    }

    /// Keeps it shut for ever and wakes who waits.
    pub fn abort(&self, kernel: &impl WaitPolicy) {
        self.opened.abort(kernel);
    }

    /// Whether [`CentralBarrier::abort`] was called.
    pub fn is_aborted(&self) -> bool {
        self.opened.word.load(Acquire) & ABORTED != 0
    }
}
