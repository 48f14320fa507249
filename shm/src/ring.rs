//! A single-producer single-consumer ring of [`Slot`]s that lets its consumer sleep.
//!
//! The producer fills slots, then [publishes](Producer::publish) them all at once:
//!
//! ```text
//! producer                              consumer
//! write slots                           asleep.store(1)
//! tail.store(Release)                   fence(SeqCst)
//! fence(SeqCst)                         tail.load()        new slots: stay awake
//! asleep.load()      1: wake it         sleep
//! ```
//!
//! Either the producer sees the flag, or the consumer sees the tail: the two fences forbid that both
//! miss. Without them one wake-up in some two hundred is lost. How to wake is the caller's business
//! (an eventfd, a futex): `publish` only says that it must be done.
//!
//! Each side keeps its own cursor in private memory and never reads it back, so a peer that
//! scribbles over the shared words can only make itself be told [`Full`] or [`Corrupt`].
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

/// The ring has no room for these slots; nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the ring is full")
    }
}
impl std::error::Error for Full {}

/// The peer published more slots than the ring holds: it is broken or hostile, and must be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// Slots the peer claims to have published.
    pub claimed: u32,
    /// Slots the ring holds.
    pub capacity: u32,
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { claimed, capacity } = self;
        write!(f, "the ring holds {capacity} slots, but its producer claims {claimed}")
    }
}
impl std::error::Error for Corrupt {}

/// A ring on the heap for two threads of this process.
///
/// # Panics
/// If `capacity` (in slots) is not a power of two.
pub fn heap_ring(capacity: u32) -> (Producer<HeapMem>, Consumer<HeapMem>) {
    heap_ring_at(capacity, 0)
}

/// [`heap_ring`] whose cursors start at `cursor`, to test how they wrap.
pub fn heap_ring_at(capacity: u32, cursor: u32) -> (Producer<HeapMem>, Consumer<HeapMem>) {
    let mem = HeapMem::new(capacity, cursor);
    (Producer::new(mem.clone(), cursor), Consumer::new(mem, cursor))
}

/// How far ahead of the tail lines are fetched: some 100 ns of work each in a client that issues small ops.
const PREFETCH_SLOTS: u32 = 8;

/// The writing end of a ring.
pub struct Producer<M> {
    mem: M,
    /// Slots written, published or not. `tail - head_seen <= capacity` always.
    tail: u32,
    /// Slots published: what the shared tail says unless the peer changed it.
    published: u32,
    /// The last believable value of the shared head.
    head_seen: u32,
}

impl<M: Mem> Producer<M> {
    /// The producer of the ring in `mem`, whose cursors are all at `cursor`.
    ///
    /// There must be no other producer of that ring; two would overwrite each other's slots.
    pub fn new(mem: M, cursor: u32) -> Self {
        Self { mem, tail: cursor, published: cursor, head_seen: cursor }
    }

    /// Slots that can be pushed now. Reads the consumer's progress.
    #[inline]
    pub fn free_slots(&mut self) -> u32 {
        let head = self.mem.head().load(Relaxed);
        // A head that is ahead of what was published, or further behind than the ring is long, was
        // not written by an honest consumer: keep the last good one, which can only look full.
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

    /// Writes all of `slots`, or none. The consumer sees nothing before [`publish`](Self::publish).
    ///
    /// # Errors
    /// [`Full`] if they do not fit; ever, if they are more than the ring holds.
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
        }
        // The consumer's core has these lines from the last lap; fetching one takes longer than filling it.
        self.mem.prefetch(self.tail.wrapping_add(PREFETCH_SLOTS));
        Ok(())
    }

    /// Makes all that was pushed visible. True if the consumer sleeps and must be woken.
    ///
    /// Costs one store and one fence, whatever was pushed; nothing if nothing was.
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

    /// Where the consumer was when last looked.
    pub fn head_seen(&self) -> u32 {
        self.head_seen
    }

    /// Slots pushed but not yet published.
    pub fn unpublished_slots(&self) -> u32 {
        self.tail.wrapping_sub(self.published)
    }

    /// Slots the ring holds.
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
    /// Slots popped. The shared head only repeats it to the producer.
    head: u32,
}

impl<M: Mem> Consumer<M> {
    /// The consumer of the ring in `mem`, whose cursors are all at `cursor`.
    ///
    /// There must be no other consumer of that ring.
    pub fn new(mem: M, cursor: u32) -> Self {
        Self { mem, head: cursor }
    }

    /// True if a slot is waiting. Only a hint: [`pop`](Self::pop) decides.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.mem.tail().load(Relaxed) != self.head
    }

    /// Copies waiting slots into the front of `out` and frees them. Returns how many.
    ///
    /// # Errors
    /// [`Corrupt`] if the producer claims more slots than the ring holds. The ring is then useless.
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

    /// Announces sleep. True if the ring is still empty and the caller may sleep; the producer's next
    /// publication will ask for a wake-up. False if work came meanwhile, and the flag is down again.
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

    /// Takes the announcement back after waking.
    #[inline]
    pub fn cancel_sleep(&self) {
        self.mem.asleep().store(0, Relaxed);
    }

    /// The value the shared tail has while the ring is empty: what a futex waits on.
    pub fn empty_tail(&self) -> u32 {
        self.head
    }

    /// Slots the ring holds.
    pub fn capacity(&self) -> u32 {
        self.mem.capacity()
    }

    /// The shared words.
    pub fn mem(&self) -> &M {
        &self.mem
    }
}

#[cfg(all(test, not(loom)))]
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
    fn nothing_is_seen_before_it_is_published() {
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
    fn a_push_is_whole_or_not_at_all() {
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
    fn a_pop_takes_no_more_than_asked() {
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
    fn a_sleeper_is_announced_once_and_not_if_work_came() {
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
    fn a_producer_that_claims_too_much_is_found_out() {
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
    fn a_consumer_that_scribbles_only_starves_itself() {
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
    fn any_scribbling_by_the_peer_is_survived() {
        // A fixed xorshift: the same scribbles each time.
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
