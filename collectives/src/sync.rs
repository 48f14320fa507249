//! Waiting between ranks: event counts (Reed and Kanodia 1979), and a centralized barrier that counts generations
//! (Mellor-Crummey and Scott 1991).
//!
//! Both are plain atomics that work between processes. A [`WaitPolicy`] decides how a waiter spins and sleeps, so that
//! loom runs the same code as the futex does. Aborting sets a bit of the very word that waiters sleep on, so it cannot
//! be missed; and since a barrier opens only by a compare-and-swap from a word without that bit, either all ranks pass
//! it or none does.

use gt_shm::sync::{AtomicU32, FenceSite, fence_at, order_at, spin_hint};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// Bit 0 of an event count's word; the count is in the others.
const ABORTED: u32 = 1;
/// The increment of the word that adds one to the count.
const ONE: u32 = 2;

/// The wait was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

/// How a waiter spins, sleeps and checks its peers.
pub trait WaitPolicy {
    /// Whether to spin again before sleeping, after `spins` spins.
    fn spins(&self, spins: u32) -> bool;
    /// Sleeps while `word` is `expected`. May return early, and returns after a bounded time.
    fn sleep(&self, word: &AtomicU32, expected: u32);
    /// Wakes all threads that sleep on `word`.
    fn wake(&self, word: &AtomicU32);
    /// Called after each sleep: aborts the group if a peer has died or patience has run out.
    fn check_peers(&self);
}

/// An event count: a number that only grows (and wraps at 2³¹), for which others wait. All bytes zero is the number 0.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct EventCount {
    word: AtomicU32,
    sleepers: AtomicU32,
}

impl EventCount {
    /// Adds one and wakes the waiters.
    pub fn advance(&self, kernel: &impl WaitPolicy) {
        self.word.fetch_add(ONE, order_at(FenceSite::SignalRelease, Release));
        self.wake_sleepers(kernel);
    }

    /// Makes every wait that would sleep return [`Aborted`], for good.
    pub fn abort(&self, kernel: &impl WaitPolicy) {
        self.word.fetch_or(ABORTED, Release);
        self.wake_sleepers(kernel);
    }

    /// Waits until `ready` accepts the count. An accepted count is `Ok` even after an abort.
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

/// Whether a count that wraps at 2³¹ has reached `target`, which must be less than 2³⁰ away.
pub fn reached(count: u32, target: u32) -> bool {
    (count.wrapping_sub(target) & (u32::MAX / ONE)) < 1 << 30
}

/// A centralized barrier: the last rank to arrive opens it for all, which begins the next generation. All bytes zero is
/// a new barrier.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct CentralBarrier {
    opened: EventCount,
    arrived: AtomicU32,
}

impl CentralBarrier {
    /// Arrives and waits for the other `ranks - 1`. A rank's writes before it arrives are visible to all that pass.
    ///
    /// # Errors
    /// [`Aborted`], for all ranks or none.
    pub fn pass(&self, ranks: u32, kernel: &impl WaitPolicy) -> Result<(), Aborted> {
        // The barrier cannot open before this rank has arrived.
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

    /// Keeps the barrier shut for good and wakes the waiters.
    pub fn abort(&self, kernel: &impl WaitPolicy) {
        self.opened.abort(kernel);
    }

    /// Whether [`CentralBarrier::abort`] was called.
    pub fn is_aborted(&self) -> bool {
        self.opened.word.load(Acquire) & ABORTED != 0
    }
}
