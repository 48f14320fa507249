//! A single-producer single-consumer (SPSC) ring buffer of [`Slot`]s (Lamport 1977) whose consumer can sleep.
//!
//! The cursors are free-running counters. Each side keeps its own cursor in private memory. The producer also keeps the
//! head that it loaded last, and loads the shared head only when the ring looks full, which saves the transfer of a
//! cache line per push.
//!
//! The producer writes slots, then [publishes](Producer::publish) them all at once:
//!
//! ```text
//! producer                              consumer
//! write slots                           asleep.store(1)
//! tail.store(Release)                   fence(SeqCst)
//! fence(SeqCst)                         tail.load()        changed: stay awake
//! asleep.load()      1: wake it         sleep
//! ```
//!
//! This is Dekker's pattern: with the two fences, the producer sees the flag or the consumer sees the tail. Without
//! them, about one wake-up in two hundred is lost. The caller wakes the consumer, by an eventfd or a futex: `publish`
//! only returns whether it must.
//!
//! Neither side reads its own cursor back from shared memory, so a peer that overwrites the shared words can only cause
//! [`Full`] or [`Corrupt`].
//!
//! ```
//! let (mut producer, mut consumer) = gt_shm::heap_ring(4);
//! assert!(consumer.prepare_sleep());
//! producer.push(&[[7; 8]])?;
//! assert!(producer.publish(), "the consumer must be woken");
//! consumer.cancel_sleep();
//! let mut batch = [[0; 8]; 2];
//! assert_eq!(consumer.pop(&mut batch)?, 1);
//! assert_eq!(batch[0], [7; 8]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::mem::{HeapMem, Mem};
use crate::slot::{SLOT_WORDS, Slot};
use crate::sync::{FenceSite, fence_at, order_at};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

/// The ring has no room for the slots; none was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the ring is full")
    }
}
impl std::error::Error for Full {}

/// The peer's tail claims more slots than the ring holds: the peer is broken or hostile, and the session must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The number of slots that the peer claims to have published.
    pub claimed: u32,
    /// The number of slots in the ring.
    pub capacity: u32,
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { claimed, capacity } = self;
        write!(f, "the ring holds {capacity} slots, but its producer claims {claimed}")
    }
}
impl std::error::Error for Corrupt {}

/// A ring on the heap, for two threads of this process.
///
/// # Panics
/// If `capacity` (in slots) is not a power of two.
pub fn heap_ring(capacity: u32) -> (Producer<HeapMem>, Consumer<HeapMem>) {
    heap_ring_at(capacity, 0)
}

/// As [`heap_ring`], with cursors that start at `cursor`, to test their wrap-around.
pub fn heap_ring_at(capacity: u32, cursor: u32) -> (Producer<HeapMem>, Consumer<HeapMem>) {
    let mem = HeapMem::new(capacity, cursor);
    (Producer::new(mem.clone(), cursor), Consumer::new(mem, cursor))
}

/// The distance of the prefetched slot from the tail. Each slot takes some 100 ns in a client that issues small ops.
const PREFETCH_SLOTS: u32 = 8;

/// The writing end of a ring.
pub struct Producer<M> {
    mem: M,
    /// The number of slots written, published or not. Invariant: `tail - head_seen <= capacity`.
    tail: u32,
    /// The number of slots published: the value last stored in the shared tail.
    published: u32,
    /// The last valid value of the shared head.
    head_seen: u32,
}

impl<M: Mem> Producer<M> {
    /// The producer of the ring in `mem`, whose cursors are all at `cursor`.
    ///
    /// A ring must have only one producer: two would overwrite each other's slots.
    pub fn new(mem: M, cursor: u32) -> Self {
        Self { mem, tail: cursor, published: cursor, head_seen: cursor }
    }

    /// The number of slots that fit. Loads the shared head.
    #[inline]
    pub fn free_slots(&mut self) -> u32 {
        let head = self.mem.head().load(Relaxed);
        // A correct consumer's head is never beyond the published slots, more than a ring behind them, or behind an
        // earlier head. Ignoring any other head makes the ring look full.
        if self.published.wrapping_sub(head) <= self.mem.capacity()
            && head.wrapping_sub(self.head_seen) <= self.mem.capacity()
        {
            fence_at(FenceSite::AcquireHead, Acquire);
            self.head_seen = head;
        }
        self.free_slots_seen()
    }

    #[inline(always)]
    fn free_slots_seen(&self) -> u32 {
        self.mem.capacity() - self.tail.wrapping_sub(self.head_seen)
    }

    /// Writes all of `slots`, or none. The consumer sees them after [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`Full`] if they do not fit. More slots than the ring holds never fit.
    #[inline]
    pub fn push(&mut self, slots: &[Slot]) -> Result<(), Full> {
        if slots.len() > self.free_slots_seen() as usize && slots.len() > self.free_slots() as usize {
            return Err(Full);
        }
        for slot in slots {
            let shared = self.mem.slot(self.tail);
            for word in 0..SLOT_WORDS {
                shared[word].store(slot[word], Relaxed);
            }
            self.tail = self.tail.wrapping_add(1);
            // The slot's cache line has been in the consumer's core since the last lap, and loading it takes longer
            // than writing.
            self.mem.prefetch(self.tail.wrapping_add(PREFETCH_SLOTS));
        }
        Ok(())
    }

    /// Makes all pushed slots visible. True if the consumer sleeps and must be woken.
    ///
    /// Costs one store and one fence for any number of slots; nothing if there are none.
    #[inline]
    #[must_use = "a sleeping consumer must be woken"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.mem.tail().store(self.tail, order_at(FenceSite::PublishTail, Release));
        self.published = self.tail;
        fence_at(FenceSite::PublishFence, SeqCst);
        self.mem.asleep().load(Relaxed) != 0
    }

    /// The position that the next slot gets.
    #[inline]
    pub fn position(&self) -> u32 {
        self.tail
    }

    /// Replaces the first word of the slot at `position`. False if that slot is published already, or not pushed yet:
    /// then nothing changes.
    pub fn amend(&mut self, position: u32, word: u64) -> bool {
        let unpublished = position.wrapping_sub(self.published) < self.unpublished_slots();
        if unpublished {
            self.mem.slot(position)[0].store(word, Relaxed);
        }
        unpublished
    }

    /// The consumer's cursor, as of the last load.
    pub fn head_seen(&self) -> u32 {
        self.head_seen
    }

    /// The number of slots pushed but not yet published.
    pub fn unpublished_slots(&self) -> u32 {
        self.tail.wrapping_sub(self.published)
    }

    /// The number of slots in the ring.
    pub fn capacity(&self) -> u32 {
        self.mem.capacity()
    }

    /// The shared words.
    pub fn mem(&self) -> &M {
        &self.mem
    }
}

/// The reading end of a ring.
pub struct Consumer<M> {
    mem: M,
    /// The number of slots popped. The shared head is a copy for the producer.
    head: u32,
}

impl<M: Mem> Consumer<M> {
    /// The consumer of the ring in `mem`, whose cursors are all at `cursor`.
    ///
    /// A ring must have only one consumer.
    pub fn new(mem: M, cursor: u32) -> Self {
        Self { mem, head: cursor }
    }

    /// True if a slot is published. Only a hint: [`pop`](Self::pop) checks the tail.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.mem.tail().load(Relaxed) != self.head
    }

    /// Copies published slots into the front of `out` and frees them. Returns their number.
    ///
    /// # Errors
    /// [`Corrupt`] if the producer claims more slots than the ring holds. The ring must not be used any more.
    #[inline]
    pub fn pop(&mut self, out: &mut [Slot]) -> Result<usize, Corrupt> {
        let claimed = self.mem.tail().load(Relaxed).wrapping_sub(self.head);
        if claimed == 0 {
            return Ok(0);
        }
        let capacity = self.mem.capacity();
        if claimed > capacity {
            return Err(Corrupt { claimed, capacity });
        }
        fence_at(FenceSite::AcquireSlots, Acquire);
        let count = (claimed as usize).min(out.len());
        for slot in &mut out[..count] {
            let shared = self.mem.slot(self.head);
            for word in 0..SLOT_WORDS {
                slot[word] = shared[word].load(Relaxed);
            }
            self.head = self.head.wrapping_add(1);
        }
        self.mem.head().store(self.head, order_at(FenceSite::ReleaseHead, Release));
        Ok(count)
    }

    /// Sets the sleep flag. True if the ring is still empty: the caller may sleep, and the producer's next publication
    /// requests a wake-up. False if slots have arrived: the flag is cleared again.
    #[inline]
    #[must_use = "only sleep if the ring is still empty"]
    pub fn prepare_sleep(&self) -> bool {
        self.mem.asleep().store(1, Relaxed);
        fence_at(FenceSite::SleepFence, SeqCst);
        if self.has_work() {
            self.cancel_sleep();
            return false;
        }
        true
    }

    /// Clears the sleep flag after waking.
    #[inline]
    pub fn cancel_sleep(&self) {
        self.mem.asleep().store(0, Relaxed);
    }

    /// The value of the shared tail while the ring is empty: the expected value for a futex wait.
    pub fn empty_tail(&self) -> u32 {
        self.head
    }

    /// The number of slots in the ring.
    pub fn capacity(&self) -> u32 {
        self.mem.capacity()
    }

    /// The shared words.
    pub fn mem(&self) -> &M {
        &self.mem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(n: u64) -> Slot {
        [n, 1, 2, 3, 4, 5, 6, !n]
    }

    fn drain(consumer: &mut Consumer<HeapMem>) -> Vec<Slot> {
        let mut buffer = [Slot::default(); 16];
        let count = consumer.pop(&mut buffer).unwrap();
        buffer[..count].to_vec()
    }

    #[test]
    fn pushed_slots_are_invisible_before_they_are_published() {
        let (mut producer, mut consumer) = heap_ring(4);
        producer.push(&[slot(1), slot(2)]).unwrap();
        assert!(!consumer.has_work());
        assert_eq!(producer.unpublished_slots(), 2);
        assert!(!producer.publish(), "nobody sleeps");
        assert!(consumer.has_work());
        assert_eq!(drain(&mut consumer), [slot(1), slot(2)]);
        assert!(!consumer.has_work());
    }

    #[test]
    fn a_push_writes_all_slots_or_none() {
        let (mut producer, mut consumer) = heap_ring(4);
        assert_eq!(producer.push(&[slot(0); 5]), Err(Full), "more than the ring will ever hold");
        producer.push(&[slot(1), slot(2), slot(3)]).unwrap();
        assert_eq!(producer.push(&[slot(4), slot(5)]), Err(Full));
        assert_eq!(producer.free_slots(), 1);
        producer.push(&[slot(4)]).unwrap();
        assert_eq!(producer.push(&[slot(5)]), Err(Full));
        let _ = producer.publish();
        assert_eq!(drain(&mut consumer), [slot(1), slot(2), slot(3), slot(4)]);
        assert_eq!(producer.free_slots(), 4);
    }

    #[test]
    fn a_pop_takes_at_most_the_length_of_its_buffer() {
        let (mut producer, mut consumer) = heap_ring(4);
        producer.push(&[slot(1), slot(2), slot(3)]).unwrap();
        let _ = producer.publish();
        let mut two = [Slot::default(); 2];
        assert_eq!(consumer.pop(&mut two), Ok(2));
        assert_eq!(two, [slot(1), slot(2)]);
        assert_eq!(producer.free_slots(), 3);
        assert_eq!(consumer.pop(&mut two), Ok(1));
        assert_eq!(consumer.pop(&mut two), Ok(0));
    }

    #[test]
    fn a_slot_is_amended_until_it_is_published() {
        for start in [0, u32::MAX] {
            let (mut producer, mut consumer) = heap_ring_at(4, start);
            producer.push(&[slot(1)]).unwrap();
            let second = producer.position();
            assert!(!producer.amend(second, 9), "not pushed yet");
            producer.push(&[slot(2)]).unwrap();
            assert!(producer.amend(second, 9));
            let _ = producer.publish();
            assert!(!producer.amend(second, 8), "published");
            let mut amended = slot(2);
            amended[0] = 9;
            assert_eq!(drain(&mut consumer), [slot(1), amended]);
        }
    }

    #[test]
    fn cursors_wrap() {
        for start in [u32::MAX - 5, u32::MAX, i32::MAX as u32] {
            let (mut producer, mut consumer) = heap_ring_at(4, start);
            for n in 0..40 {
                producer.push(&[slot(n), slot(n + 100)]).unwrap();
                let _ = producer.publish();
                assert_eq!(drain(&mut consumer), [slot(n), slot(n + 100)]);
            }
        }
    }

    #[test]
    fn a_wake_up_is_requested_once_and_not_if_work_came() {
        let (mut producer, mut consumer) = heap_ring(4);
        assert!(consumer.prepare_sleep());
        producer.push(&[slot(1)]).unwrap();
        assert!(producer.publish(), "the consumer sleeps");
        assert!(!producer.publish(), "nothing new, nobody to wake");
        consumer.cancel_sleep();
        assert!(!consumer.prepare_sleep(), "there is work");
        producer.push(&[slot(2)]).unwrap();
        assert!(!producer.publish(), "the refusal took the announcement back");
        assert_eq!(drain(&mut consumer).len(), 2);
    }

    #[test]
    fn an_impossible_tail_is_reported_as_corrupt() {
        let (producer, mut consumer) = heap_ring(4);
        let mut buffer = [Slot::default(); 16];
        for (tail, claimed) in [(5, 5), (u32::MAX, u32::MAX), (1 << 31, 1 << 31)] {
            producer.mem().tail().store(tail, Relaxed);
            assert_eq!(consumer.pop(&mut buffer), Err(Corrupt { claimed, capacity: 4 }));
        }
        producer.mem().tail().store(4, Relaxed);
        assert_eq!(consumer.pop(&mut buffer), Ok(4), "possible, if never written");
    }

    #[test]
    fn an_impossible_head_makes_the_ring_look_full() {
        let (mut producer, mut consumer) = heap_ring(4);
        producer.push(&[slot(1), slot(2)]).unwrap();
        let _ = producer.publish();
        for head in [3, 5, u32::MAX, 1 << 31] {
            consumer.mem().head().store(head, Relaxed);
            assert_eq!(producer.free_slots(), 2, "head {head} is impossible");
            assert_eq!(producer.push(&[slot(9); 3]), Err(Full));
        }
        assert_eq!(drain(&mut consumer), [slot(1), slot(2)]);
        assert_eq!(producer.free_slots(), 4);
        consumer.mem().head().store(1, Relaxed);
        assert_eq!(producer.free_slots(), 4, "the head never goes back");
    }

    #[test]
    fn any_words_of_the_peer_are_survived() {
        // A fixed xorshift seed: the same words each time.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let rounds = if cfg!(miri) { 300 } else { 100_000 };
        let (mut producer, mut consumer) = heap_ring(8);
        let mut buffer = [Slot::default(); 16];
        for _ in 0..rounds {
            match random() % 6 {
                0 => consumer.mem().head().store(random() as u32, Relaxed),
                1 => consumer.mem().head().store(random() as u32 % 16, Relaxed),
                2 => producer.mem().tail().store(random() as u32, Relaxed),
                3 => {
                    let _ = producer.push(&[slot(random()); 3]);
                    let _ = producer.publish();
                }
                _ => {
                    assert!(consumer.pop(&mut buffer).is_ok_and(|n| n <= 8) || consumer.has_work());
                }
            }
            assert!(producer.free_slots() <= 8);
        }
    }
}
