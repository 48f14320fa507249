//! A broadcast ring: one writer, and any number of read-only observers that the writer never waits for.
//!
//! Each slot is a seqlock (Boehm 2012, "Can seqlocks get along with programming language memory models?"): a sequence
//! number and the record's words. To write record `n` the writer stores an odd number (`2n + 1`), the words, and an
//! even number (`2n + 2`). A reader loads the number before and after its copy. A smaller number means that record `n`
//! is not complete yet. A larger one means that the writer has overwritten it: the reader resumes half a ring behind
//! the writer and counts the records that it skips as lost.
//!
//! An observer that polls the newest record all the time slows the writer by transfers of its cache line: a record
//! takes 36 ns instead of 2. Poll every millisecond or less often, in batches.
//!
//! ```
//! use gt_shm::broadcast::{self, Reader};
//!
//! let (mut writer, fd) = broadcast::create("gt-tape", 4)?;
//! let mut reader = Reader::from_start(broadcast::open(fd, 4)?);
//! for n in 0..10 {
//!     writer.write(&[n; 7]);
//! }
//! let read: Vec<u64> = std::iter::from_fn(|| reader.read()).map(|record| record[0]).collect();
//! assert_eq!(read, [8, 9]);
//! assert_eq!(reader.lost(), 8);
//! # Ok::<(), gt_shm::Error>(())
//! ```

use crate::sync::{AtomicU64, FenceSite, fence_at, order_at};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// 64-bit words in a [`Record`]: with its sequence number, a slot is one cache line. Two under loom.
pub const RECORD_WORDS: usize = if cfg!(loom) { 2 } else { 7 };

/// One entry of the ring: plain words, which this crate does not interpret.
pub type Record = [u64; RECORD_WORDS];

/// A slot in shared memory: a record with its sequence number.
#[repr(C)]
pub struct SharedRecord {
    seq: AtomicU64,
    words: [AtomicU64; RECORD_WORDS],
}

/// The shared words of a broadcast ring.
///
/// An implementation must return the same word for the same call for as long as it lives.
pub trait BroadcastMem {
    /// The number of records written so far. Written by the writer.
    fn written(&self) -> &AtomicU64;
    /// The slot of record `n`.
    fn slot(&self, n: u64) -> &SharedRecord;
    /// The number of slots in the ring, a power of two.
    fn capacity(&self) -> u64;
}

struct HeapRecords {
    written: AtomicU64,
    slots: Box<[SharedRecord]>,
}

/// A broadcast ring on the heap, for the threads of one process. Under loom its words are loom's.
#[derive(Clone)]
pub struct HeapBroadcast(Arc<HeapRecords>);

impl HeapBroadcast {
    /// Fresh memory for `capacity` records.
    ///
    /// # Panics
    /// If `capacity` is not a power of two of at least two.
    pub fn new(capacity: u64) -> Self {
        assert_capacity(capacity);
        let slot = || SharedRecord { seq: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) };
        let slots = (0..capacity).map(|_| slot()).collect();
        Self(Arc::new(HeapRecords { written: AtomicU64::new(0), slots }))
    }
}

fn assert_capacity(capacity: u64) {
    assert!(
        capacity.is_power_of_two() && capacity >= 2,
        "a broadcast ring holds a power of two of records, not {capacity}"
    );
}

impl BroadcastMem for HeapBroadcast {
    #[inline(always)]
    fn written(&self) -> &AtomicU64 {
        &self.0.written
    }
    #[inline(always)]
    fn slot(&self, n: u64) -> &SharedRecord {
        let slots = &self.0.slots;
        &slots[n as usize & (slots.len() - 1)]
    }
    #[inline(always)]
    fn capacity(&self) -> u64 {
        self.0.slots.len() as u64
    }
}

/// The only writer of a broadcast ring.
pub struct Writer<M> {
    mem: M,
    /// The number of the next record.
    next: u64,
}

impl<M: BroadcastMem> Writer<M> {
    /// The writer of the fresh ring in `mem`. A ring must have only one.
    pub fn new(mem: M) -> Self {
        Self { mem, next: 0 }
    }

    /// Writes one record. Never waits.
    #[inline(always)]
    pub fn write(&mut self, record: &Record) {
        let n = self.next;
        let slot = self.mem.slot(n);
        slot.seq.store(2 * n + 1, Relaxed);
        fence_at(FenceSite::BroadcastMark, Release);
        for (shared, word) in slot.words.iter().zip(record) {
            shared.store(*word, Relaxed);
        }
        slot.seq.store(2 * n + 2, order_at(FenceSite::BroadcastPublish, Release));
        self.next = n + 1;
        self.mem.written().store(n + 1, Relaxed);
    }

    /// The number of records written so far.
    pub fn written(&self) -> u64 {
        self.next
    }
}

/// An observer: it reads every record in order, or counts it as lost.
pub struct Reader<M> {
    mem: M,
    /// The number of the next record to read.
    next: u64,
    lost: u64,
}

impl<M: BroadcastMem> Reader<M> {
    /// An observer that starts half a ring behind the writer; earlier records do not count as lost.
    pub fn from_oldest(mem: M) -> Self {
        let written = mem.written().load(Relaxed);
        let next = written.saturating_sub(mem.capacity() / 2);
        Self { mem, next, lost: 0 }
    }

    /// An observer of the records written from now on.
    pub fn from_newest(mem: M) -> Self {
        let next = mem.written().load(Relaxed);
        Self { mem, next, lost: 0 }
    }

    /// An observer of all records since the first; overwritten ones count as lost.
    pub fn from_start(mem: M) -> Self {
        Self { mem, next: 0, lost: 0 }
    }

    /// The next record, or `None` if there is no newer one.
    #[inline]
    pub fn read(&mut self) -> Option<Record> {
        loop {
            let n = self.next;
            let slot = self.mem.slot(n);
            let whole = 2 * n + 2;
            let before = slot.seq.load(Relaxed);
            if before < whole {
                return None;
            }
            let mut after = before;
            if before == whole {
                fence_at(FenceSite::BroadcastAcquire, Acquire);
                let record = std::array::from_fn(|i| slot.words[i].load(Relaxed));
                fence_at(FenceSite::BroadcastRecheck, Acquire);
                after = slot.seq.load(Relaxed);
                if after == whole {
                    self.next = n + 1;
                    return Some(record);
                }
            }
            self.skip(after);
        }
    }

    /// Skips records after the writer has overwritten the slot of record `next`, which now has sequence number `seq`.
    /// Resumes half a ring behind the writer, to have room to catch up.
    #[cold]
    fn skip(&mut self, seq: u64) {
        // The writer has reached the record with this sequence number, and may be further.
        let reached = ((seq - 1) / 2).max(self.mem.written().load(Relaxed));
        let resume = reached.saturating_sub(self.mem.capacity() / 2).max(self.next + 1);
        self.lost += resume - self.next;
        self.next = resume;
    }

    /// The number of records that this observer skipped because it was too far behind the writer. Exact: the records
    /// read and lost are all those from the observer's start to its position.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The number of the next record to read, counting from 0.
    pub fn position(&self) -> u64 {
        self.next
    }
}

#[cfg(not(loom))]
pub use mapped::{MappedBroadcast, create, create_in, open, open_file, segment_bytes};

#[cfg(not(loom))]
mod mapped {
    use crate::broadcast::{BroadcastMem, Reader, SharedRecord, Writer, assert_capacity};
    use crate::error::{Error, Result};
    use crate::segment::{Access, PAGE_BYTES, Segment};
    use crate::sync::AtomicU64;
    use std::os::fd::OwnedFd;
    use std::ptr::NonNull;

    /// A broadcast ring in a segment: one page of header, then the slots.
    pub struct MappedBroadcast {
        written: NonNull<AtomicU64>,
        slots: NonNull<SharedRecord>,
        mask: u64,
        _segment: Segment,
    }

    // SAFETY: `_segment` keeps the mapping of the pointers alive on any thread, and they are only used as references to
    // atomics.
    unsafe impl Send for MappedBroadcast {}

    impl MappedBroadcast {
        fn new(segment: Segment, capacity: u64) -> Self {
            let slots_bytes = capacity as usize * size_of::<SharedRecord>();
            Self {
                written: segment.at(0, PAGE_BYTES, PAGE_BYTES).cast(),
                slots: segment.at(PAGE_BYTES, slots_bytes, PAGE_BYTES).cast(),
                mask: capacity - 1,
                _segment: segment,
            }
        }
    }

    impl BroadcastMem for MappedBroadcast {
        #[inline(always)]
        fn written(&self) -> &AtomicU64 {
            // SAFETY: `new` took the pointer from `Segment::at`, which checked bounds and alignment, and `_segment`
            // keeps the mapping alive.
            unsafe { self.written.as_ref() }
        }
        #[inline(always)]
        fn slot(&self, n: u64) -> &SharedRecord {
            // SAFETY: the mask keeps the index below the capacity, `new` checked by `Segment::at` that all slots are
            // inside the segment, and `_segment` keeps the mapping alive.
            unsafe { self.slots.add((n & self.mask) as usize).as_ref() }
        }
        #[inline(always)]
        fn capacity(&self) -> u64 {
            self.mask + 1
        }
    }

    /// The bytes of the segment for a ring of `capacity` records: a page of which the ring uses the first word, and the
    /// slots.
    pub fn segment_bytes(capacity: u64) -> Option<u64> {
        capacity
            .checked_mul(size_of::<SharedRecord>() as u64)?
            .checked_add(PAGE_BYTES as u64)?
            .checked_next_multiple_of(PAGE_BYTES as u64)
    }

    /// Creates a ring of `capacity` records in a segment called `name`. Returns its writer and the descriptor for
    /// observers, who can map it only for reading.
    ///
    /// # Errors
    /// If the kernel refuses the segment.
    ///
    /// # Panics
    /// If `capacity` is not a power of two of at least two.
    pub fn create(name: &str, capacity: u64) -> Result<(Writer<MappedBroadcast>, OwnedFd)> {
        assert_capacity(capacity);
        let bytes = segment_bytes(capacity).ok_or(Error::SegmentSize { bytes: u64::MAX })?;
        let (segment, fd) = Segment::create(name, bytes, Access::ReadWrite, Access::ReadOnly)?.detach();
        Ok((Writer::new(MappedBroadcast::new(segment, capacity)), fd))
    }

    /// Creates a ring of `capacity` records in a file of this process's own, of [`segment_bytes`] zeros. Returns its
    /// writer. Every process that can write the file can change the records.
    ///
    /// # Errors
    /// If the file does not have that length, or the kernel refuses the mapping.
    ///
    /// # Panics
    /// If `capacity` is not a power of two of at least two.
    pub fn create_in(file: &OwnedFd, capacity: u64) -> Result<Writer<MappedBroadcast>> {
        assert_capacity(capacity);
        let bytes = segment_bytes(capacity).ok_or(Error::SegmentSize { bytes: u64::MAX })?;
        Ok(Writer::new(MappedBroadcast::new(Segment::of_file(file, bytes, Access::ReadWrite)?, capacity)))
    }

    /// Maps a received ring of `capacity` records, for one of [`Reader`]'s constructors.
    ///
    /// # Errors
    /// If the segment does not have the size of such a ring, or is not sealed against other writers.
    pub fn open(fd: OwnedFd, capacity: u64) -> Result<MappedBroadcast> {
        let bytes = segment_bytes(capacity)
            .filter(|_| capacity.is_power_of_two() && capacity >= 2)
            .ok_or(Error::SegmentSize { bytes: capacity })?;
        let (segment, _) = Segment::map_peer(fd, bytes, Access::ReadOnly)?.detach();
        Ok(MappedBroadcast::new(segment, capacity))
    }

    /// Maps a ring of `capacity` records in a file for reading, for one of [`Reader`]'s constructors. The file's
    /// writers are trusted not to shorten it.
    ///
    /// # Errors
    /// If the file does not have the size of such a ring.
    pub fn open_file(file: &OwnedFd, capacity: u64) -> Result<MappedBroadcast> {
        let bytes = segment_bytes(capacity)
            .filter(|_| capacity.is_power_of_two() && capacity >= 2)
            .ok_or(Error::SegmentSize { bytes: capacity })?;
        Ok(MappedBroadcast::new(Segment::of_file(file, bytes, Access::ReadOnly)?, capacity))
    }

    impl Reader<MappedBroadcast> {
        /// As [`Reader::from_oldest`], for a received ring of `capacity` records.
        ///
        /// # Errors
        /// See [`open`].
        pub fn attach(fd: OwnedFd, capacity: u64) -> Result<Self> {
            open(fd, capacity).map(Self::from_oldest)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn record(n: u64) -> Record {
        std::array::from_fn(|word| n * 10 + word as u64)
    }

    fn read_all(reader: &mut Reader<HeapBroadcast>) -> Vec<u64> {
        std::iter::from_fn(|| {
            let found = reader.read()?;
            let n = reader.position() - 1;
            assert_eq!(found, record(n), "a torn record");
            Some(n)
        })
        .collect()
    }

    #[test]
    fn every_observer_reads_everything() {
        let mem = HeapBroadcast::new(8);
        let mut writer = Writer::new(mem.clone());
        let mut readers = [Reader::from_start(mem.clone()), Reader::from_start(mem)];
        for n in 0..5 {
            writer.write(&record(n));
        }
        for reader in &mut readers {
            assert_eq!(read_all(reader), [0, 1, 2, 3, 4]);
            assert_eq!(reader.read(), None);
            assert_eq!(reader.lost(), 0);
        }
        writer.write(&record(5));
        assert_eq!(read_all(&mut readers[0]), [5]);
    }

    #[test]
    fn lost_records_are_counted_exactly() {
        let mem = HeapBroadcast::new(8);
        let mut writer = Writer::new(mem.clone());
        let mut reader = Reader::from_start(mem);
        for n in 0..8 {
            writer.write(&record(n));
        }
        assert_eq!(read_all(&mut reader).len(), 8, "a full ring is all there");
        for n in 8..100 {
            writer.write(&record(n));
        }
        assert_eq!(read_all(&mut reader), [96, 97, 98, 99], "half a ring behind");
        assert_eq!(reader.lost(), 96 - 8);
        assert_eq!(reader.position(), writer.written());
    }

    #[test]
    fn observers_start_at_the_oldest_or_newest_record() {
        let mem = HeapBroadcast::new(8);
        let mut writer = Writer::new(mem.clone());
        for n in 0..3 {
            writer.write(&record(n));
        }
        let mut oldest = Reader::from_oldest(mem.clone());
        let mut newest = Reader::from_newest(mem.clone());
        assert_eq!(read_all(&mut oldest), [0, 1, 2]);
        for n in 3..40 {
            writer.write(&record(n));
        }
        let mut late = Reader::from_oldest(mem);
        assert_eq!(read_all(&mut late), [36, 37, 38, 39]);
        assert_eq!((oldest.lost(), late.lost(), newest.position()), (0, 0, 3));
        assert_eq!(read_all(&mut newest).last(), Some(&39));
    }

    #[test]
    fn a_busy_writer_and_a_slow_observer_account_for_everything() {
        let records = if cfg!(miri) { 300 } else { 300_000 };
        let mem = HeapBroadcast::new(16);
        let mut reader = Reader::from_start(mem.clone());
        let writing = std::thread::spawn(move || {
            let mut writer = Writer::new(mem);
            for n in 0..records {
                writer.write(&record(n));
            }
        });
        let mut read = 0;
        while reader.position() < records {
            read += read_all(&mut reader).len() as u64;
            std::hint::spin_loop();
        }
        writing.join().unwrap();
        assert_eq!(read + reader.lost(), records);
    }
}
