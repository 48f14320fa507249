//! A lock for a few dozen nanoseconds of work.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::Duration;

/// A mutual exclusion whose release is a plain store.
///
/// `std`'s is released by an exchange, which waits until every earlier store has left the core: with a store to the
/// ring among them, that is a trip to the daemon's core and back for each instruction. Nobody may wait while holding
/// this lock; whoever finds it held spins, then lets others run.
pub struct BriefLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `held` admits one thread at a time to the value, which may move between threads.
unsafe impl<T: Send> Sync for BriefLock<T> {}

/// Holds the lock until dropped.
pub struct BriefGuard<'a, T> {
    lock: &'a BriefLock<T>,
}

impl<T> BriefLock<T> {
    /// A free lock on `value`.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> BriefGuard<'_, T> {
        if self.held.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            self.lock_contended();
        }
        BriefGuard { lock: self }
    }

    #[cold]
    fn lock_contended(&self) {
        let mut rounds = 0u32;
        while self.held.load(Relaxed) || self.held.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            rounds += 1;
            match rounds {
                0..100 => std::hint::spin_loop(),
                100..110 => std::thread::yield_now(),
                // The holder was taken off its core.
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

impl<T> Deref for BriefGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for BriefGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock, and is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for BriefGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.held.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_one_thread_at_a_time() {
        let lock = BriefLock::new((0u64, 0u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut pair = lock.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), (80_000, 80_000));
    }
}
