//! A queue between two threads of one process: a heap ring whose consumer sleeps on a futex.

use crate::futex;
use crate::mem::{HeapMem, Mem};
use crate::ring::{Consumer, Corrupt, Full, Producer, heap_ring};
use crate::slot::Slot;
use crate::spin::{WAIT_MAX, spin_until};
use std::time::{Duration, Instant};

/// A queue of `capacity` slots.
///
/// # Panics
/// If `capacity` is not a power of two.
pub fn fifo(capacity: u32) -> (FifoSender, FifoReceiver) {
    let (producer, consumer) = heap_ring(capacity);
    (FifoSender { ring: producer }, FifoReceiver { ring: consumer })
}

/// The sending end of a [`fifo`].
pub struct FifoSender {
    ring: Producer<HeapMem>,
}

impl FifoSender {
    /// Writes all of `slots`, or none; the next [`publish`](Self::publish) makes them visible to the receiver.
    ///
    /// # Errors
    /// [`Full`] if they do not fit.
    #[inline]
    pub fn push(&mut self, slots: &[Slot]) -> Result<(), Full> {
        self.ring.push(slots)
    }

    /// Makes the pushed slots visible, and wakes the receiver if it sleeps.
    #[inline]
    pub fn publish(&mut self) {
        if self.ring.publish() {
            futex::wake(self.ring.mem().tail(), 1);
        }
    }

    /// The number of slots that fit.
    #[inline]
    pub fn free_slots(&mut self) -> u32 {
        self.ring.free_slots()
    }

    /// True if the receiver has been dropped.
    pub fn is_disconnected(&self) -> bool {
        self.ring.mem().is_last()
    }
}

/// The receiving end of a [`fifo`].
pub struct FifoReceiver {
    ring: Consumer<HeapMem>,
}

impl FifoReceiver {
    /// Copies published slots into the front of `out`; returns their number.
    ///
    /// # Errors
    /// [`Corrupt`], which cannot happen: both ends are in this process.
    #[inline]
    pub fn pop(&mut self, out: &mut [Slot]) -> Result<usize, Corrupt> {
        self.ring.pop(out)
    }

    /// True if the queue is not empty.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.ring.has_work()
    }

    /// True if the sender has been dropped: no slots follow those in the queue. Dropping does not wake the receiver, so
    /// a sender should end with a slot that says so; this detects a sender that panicked.
    pub fn is_disconnected(&self) -> bool {
        self.ring.mem().is_last()
    }

    /// Waits until the queue is not empty or `timeout` has passed; spins for `spin`, then sleeps. May return early.
    /// True if the queue is not empty.
    pub fn wait(&mut self, spin: Duration, timeout: Duration) -> bool {
        if self.ring.has_work() {
            return true;
        }
        let deadline = Instant::now() + timeout.min(WAIT_MAX);
        if spin_until(spin, || self.ring.has_work()) {
            return true;
        }
        if self.ring.prepare_sleep() {
            let left = deadline.saturating_duration_since(Instant::now());
            futex::wait(self.ring.mem().tail(), self.ring.empty_tail(), Some(left));
            self.ring.cancel_sleep();
        }
        self.ring.has_work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn carry_across_threads(count: u64, spin: Duration) {
        let (mut sender, mut receiver) = fifo(8);
        let receiving = std::thread::spawn(move || {
            let mut buffer = [Slot::default(); 4];
            let mut expected = 0;
            while expected < count {
                let popped = receiver.pop(&mut buffer).unwrap();
                for slot in &buffer[..popped] {
                    assert_eq!(*slot, [expected; 8]);
                    expected += 1;
                }
                if popped == 0 {
                    receiver.wait(spin, PATIENCE);
                }
            }
        });
        for n in 0..count {
            while sender.push(&[[n; 8]]).is_err() {
                sender.publish();
                std::thread::yield_now();
            }
            if n % 3 == 0 {
                sender.publish();
            }
        }
        sender.publish();
        receiving.join().unwrap();
    }

    #[test]
    fn a_sleeping_receiver_gets_everything_in_order() {
        carry_across_threads(if cfg!(miri) { 100 } else { 100_000 }, Duration::ZERO);
    }

    #[test]
    fn a_spinning_receiver_gets_everything_in_order() {
        carry_across_threads(
            if cfg!(miri) { 100 } else { 100_000 },
            Duration::from_micros(if cfg!(miri) { 0 } else { 20 }),
        );
    }

    #[test]
    fn a_wait_ends_by_itself() {
        let (_sender, mut receiver) = fifo(8);
        assert!(!receiver.wait(Duration::from_micros(1), Duration::from_millis(1)));
        assert!(!receiver.wait(Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn each_end_sees_the_other_go() {
        let (sender, receiver) = fifo(8);
        assert!(!sender.is_disconnected() && !receiver.is_disconnected());
        drop(sender);
        assert!(receiver.is_disconnected());
        let (sender, receiver) = fifo(8);
        drop(receiver);
        assert!(sender.is_disconnected());
    }
}
