//! The memory of a ring. Rings are generic over [`Mem`], which is on the heap, in mapped segments, or made of loom's
//! atomics.

use crate::slot::SLOT_WORDS;
use crate::sync::{AtomicU32, AtomicU64};
use std::sync::Arc;

/// A slot in shared memory.
pub type SharedSlot = [AtomicU64; SLOT_WORDS];

/// The shared words of one ring.
///
/// An implementation must return the same word for the same call for as long as it lives, and
/// `capacity` must be a power of two that never changes (it is read from private memory).
pub trait Mem {
    /// Slots pushed so far, modulo 2³². Written by the producer.
    fn tail(&self) -> &AtomicU32;
    /// Slots popped so far, modulo 2³². Written by the consumer.
    fn head(&self) -> &AtomicU32;
    /// Non-zero while the consumer sleeps or is about to. Written by the consumer.
    fn asleep(&self) -> &AtomicU32;
    /// The slot that cursor value `cursor` names; any value is in bounds.
    fn slot(&self, cursor: u32) -> &SharedSlot;
    /// Slots in the ring, a power of two.
    fn capacity(&self) -> u32;
    /// Prefetches the cache line of slot `cursor`, which will be written soon. Only a hint.
    #[inline(always)]
    fn prefetch(&self, _cursor: u32) {}
}

/// Aligns its content to [`LINE_BYTES`](crate::slot::LINE_BYTES), to avoid false sharing.
#[repr(align(128))]
#[derive(Default)]
struct CacheLine<T>(T);

struct HeapRing {
    tail: CacheLine<AtomicU32>,
    head: CacheLine<AtomicU32>,
    asleep: CacheLine<AtomicU32>,
    slots: Box<[SharedSlot]>,
}

/// A ring on the heap, for two threads of one process. Under loom its words are loom's.
#[derive(Clone)]
pub struct HeapMem(Arc<HeapRing>);

impl HeapMem {
    /// Fresh memory for `capacity` slots, whose cursors both start at `cursor`.
    ///
    /// # Panics
    /// If `capacity` is not a power of two.
    pub fn new(capacity: u32, cursor: u32) -> Self {
        assert!(capacity.is_power_of_two(), "a ring holds a power of two of slots, not {capacity}");
        let slots = (0..capacity).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect();
        Self(Arc::new(HeapRing {
            tail: CacheLine(AtomicU32::new(cursor)),
            head: CacheLine(AtomicU32::new(cursor)),
            asleep: CacheLine(AtomicU32::new(0)),
            slots,
        }))
    }

    /// True if the other end of the ring has been dropped.
    #[cfg(not(loom))]
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

impl Mem for HeapMem {
    #[inline(always)]
    fn tail(&self) -> &AtomicU32 {
        &self.0.tail.0
    }
    #[inline(always)]
    fn head(&self) -> &AtomicU32 {
        &self.0.head.0
    }
    #[inline(always)]
    fn asleep(&self) -> &AtomicU32 {
        &self.0.asleep.0
    }
    #[inline(always)]
    fn slot(&self, cursor: u32) -> &SharedSlot {
        let slots = &self.0.slots;
        &slots[cursor as usize & (slots.len() - 1)]
    }
    #[inline(always)]
    fn capacity(&self) -> u32 {
        self.0.slots.len() as u32
    }
}

#[cfg(not(loom))]
pub use mapped::{MappedMem, RingLayout};

#[cfg(not(loom))]
mod mapped {
    use crate::mem::{Mem, SharedSlot};
    use crate::segment::Segment;
    use crate::slot::{LINE_BYTES, SLOT_BYTES};
    use crate::sync::AtomicU32;
    use std::ptr::NonNull;
    use std::sync::Arc;

    /// Byte offsets of a ring's words in the two segments that hold it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RingLayout {
        /// Offset of the tail in the producer's segment.
        pub tail: usize,
        /// Offset of slot 0 in the producer's segment.
        pub slots: usize,
        /// Offset of the head in the consumer's segment.
        pub head: usize,
        /// Offset of the sleep flag in the consumer's segment.
        pub asleep: usize,
    }

    /// A ring in two mapped segments: the producer writes one, the consumer the other.
    pub struct MappedMem {
        tail: NonNull<AtomicU32>,
        head: NonNull<AtomicU32>,
        asleep: NonNull<AtomicU32>,
        slots: NonNull<SharedSlot>,
        mask: u32,
        _producer: Arc<Segment>,
        _consumer: Arc<Segment>,
    }

    // SAFETY: `_producer` and `_consumer` keep the mappings of the pointers alive on any thread.
    unsafe impl Send for MappedMem {}
    // SAFETY: the pointers are only used as references to atomics, which threads may share.
    unsafe impl Sync for MappedMem {}

    impl MappedMem {
        /// The ring of `capacity` slots that `layout` describes.
        ///
        /// # Panics
        /// If `capacity` is not a power of two, or `layout` exceeds a segment or misaligns a word. Both come from
        /// constants of this process, so a peer cannot cause it.
        pub fn new(producer: &Arc<Segment>, consumer: &Arc<Segment>, layout: RingLayout, capacity: u32) -> Self {
            assert!(capacity.is_power_of_two());
            let slots_bytes = capacity as usize * SLOT_BYTES;
            Self {
                tail: producer.at(layout.tail, LINE_BYTES, LINE_BYTES).cast(),
                slots: producer.at(layout.slots, slots_bytes, LINE_BYTES).cast(),
                head: consumer.at(layout.head, LINE_BYTES, LINE_BYTES).cast(),
                asleep: consumer.at(layout.asleep, LINE_BYTES, LINE_BYTES).cast(),
                mask: capacity - 1,
                _producer: producer.clone(),
                _consumer: consumer.clone(),
            }
        }
    }

    impl Mem for MappedMem {
        #[inline(always)]
        fn tail(&self) -> &AtomicU32 {
            // SAFETY: `new` took the pointer from `Segment::at`, which checked bounds and alignment, and `_producer`
            // keeps the mapping alive. The peer may change the word at any time, which an atomic allows.
            unsafe { self.tail.as_ref() }
        }
        #[inline(always)]
        fn head(&self) -> &AtomicU32 {
            // SAFETY: `new` took the pointer from `Segment::at`, which checked bounds and alignment, and `_consumer`
            // keeps the mapping alive. The peer may change the word at any time, which an atomic allows.
            unsafe { self.head.as_ref() }
        }
        #[inline(always)]
        fn asleep(&self) -> &AtomicU32 {
            // SAFETY: `new` took the pointer from `Segment::at`, which checked bounds and alignment, and `_consumer`
            // keeps the mapping alive. The peer may change the word at any time, which an atomic allows.
            unsafe { self.asleep.as_ref() }
        }
        #[inline(always)]
        fn slot(&self, cursor: u32) -> &SharedSlot {
            // SAFETY: the mask keeps the index below the capacity, and `new` checked by `Segment::at` that all slots
            // are inside the segment, which `_producer` keeps alive. The peer may change the words, which atomics
            // allow.
            unsafe { self.slots.add((cursor & self.mask) as usize).as_ref() }
        }
        #[cfg(target_arch = "x86_64")]
        #[inline(always)]
        fn prefetch(&self, cursor: u32) {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            let slot: *const SharedSlot = self.slot(cursor);
            // SAFETY: a prefetch neither reads nor writes memory, and every x86-64 processor has SSE, which defines it.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(slot.cast()) };
        }
        #[inline(always)]
        fn capacity(&self) -> u32 {
            self.mask + 1
        }
    }
}
