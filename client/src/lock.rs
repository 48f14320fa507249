//! Locks: a spinlock for a few dozen nanoseconds of work, and mutexes that ignore poisoning.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks a mutex of this crate. A panic does not invalidate the guarded data: they are consistent between any two
/// statements that can unwind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A spinlock (test and test-and-set) whose release is a plain store.
///
/// `std`'s mutex is released by an atomic exchange, which drains the core's store buffer: with a store to the ring in
/// it, that is a round trip to the daemon's core for each instruction. A thread must not wait for anything while it
/// holds this lock. A thread that finds it held spins, then yields, then sleeps.
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a thread reaches `value` only through a guard, and `lock` gives out one guard at a time (`held`). `T: Send`
// lets the value be used from the thread that holds it.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Access to the value; releases the lock when dropped.
pub struct SpinLockGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> SpinLock<T> {
    /// An unlocked lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        if self.held.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            self.lock_contended();
        }
        SpinLockGuard { lock: self }
    }

    #[cold]
    fn lock_contended(&self) {
        let mut rounds = 0u32;
        while self.held.load(Relaxed) || self.held.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            rounds += 1;
            match rounds {
                0..100 => std::hint::spin_loop(),
                100..110 => std::thread::yield_now(),
                // The holder has probably been preempted.
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `lock` set `held` before it made this guard, and only this guard's drop clears it, so no other
        // guard exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard while `held` is set, and `&mut self` makes this its only reference.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinLockGuard<'_, T> {
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
        let lock = SpinLock::new((0u64, 0u64));
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
