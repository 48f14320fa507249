//! The memory that the ranks of a local group share: gates, notices, channels and staging slots.
//!
//! Threads of one process find it on the heap, processes in a sealed segment; the layout is the same and a function of
//! two numbers. Nothing in it but what the gates guard is ever turned into a reference to plain data.

use super::channel::{CHANNEL_SLOT_BYTES, CHANNEL_SLOTS, Channel};
use crate::call::Call;
use crate::copy::copy;
use crate::error::{CollectiveError, Result};
use crate::sync::{CentralBarrier, EventCount};
use gt_shm::{Access, LINE_BYTES, Segment};
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// Ranks of a group, at most.
pub const RANKS_MAX: usize = 64;
/// What the segments of groups are called in `/proc`.
const NAME: &str = "gt-collective";
/// Says that a segment is one of ours, and in which layout.
const MAGIC: u64 = 0x6774_636f_6c6c_0002;
/// Bytes between parts that lie in pages of their own.
const PAGE_BYTES: usize = gt_shm::segment::PAGE_BYTES;

/// Types made of atomics that may lie in shared memory.
///
/// # Safety
/// Any bytes are a value of the type, and all of them are inside atomics.
pub unsafe trait SharedAtomics {}

/// The first line: what the group is.
#[repr(C, align(128))]
struct Head {
    magic: AtomicU64,
    ranks: AtomicU64,
    slot_bytes: AtomicU64,
    /// Why the group is broken: kind and rank, 0 while it is not. The first one stays.
    pub reason: AtomicU32,
}

/// In the place of a process: the rank has left, and its process may end.
pub const LEFT: u32 = u32::MAX;

/// A rank's place.
#[repr(C, align(128))]
pub struct RankState {
    /// The process that has taken it, 0 before, [`LEFT`] after.
    pub pid: AtomicU32,
    /// Whether it reaches the memory of every rank, and can tell when one dies.
    pub reaches: AtomicU32,
    /// Which memory the others reach of it; 0 if none.
    pub memory: AtomicU64,
    /// How often it was done with the others' buffers. Aborted once it is known to be dead.
    pub done: EventCount,
}

/// What a rank is about to do, for the others to compare with.
#[repr(C, align(128))]
pub struct Announcement {
    /// [`Call::encode`].
    pub call: AtomicU64,
    /// Where its part is that the others reach: its address for ranks in the same process, for others where in the
    /// rank's memory; [`NOWHERE`] if they do not.
    pub offered: AtomicPtr<u8>,
    /// Bytes of it.
    pub bytes: AtomicU64,
}

/// In the place of an address: the others do not reach it.
pub const NOWHERE: *mut u8 = std::ptr::without_provenance_mut(usize::MAX);

// SAFETY: atomics and padding only.
unsafe impl SharedAtomics for Head {}
// SAFETY: as above.
unsafe impl SharedAtomics for RankState {}
// SAFETY: as above. A pointer may be any bytes; only one that a rank of this process wrote is followed.
unsafe impl SharedAtomics for Announcement {}
// SAFETY: atomics and padding only.
unsafe impl SharedAtomics for CentralBarrier {}
// SAFETY: as above.
unsafe impl SharedAtomics for Channel {}
// SAFETY: as above.
unsafe impl SharedAtomics for AtomicU64 {}

enum Backing {
    Heap(NonNull<u8>, std::alloc::Layout),
    Mapped(Segment),
}

/// The shared memory of one group.
pub struct GroupMemory {
    memory: Backing,
    base: NonNull<u8>,
    ranks: usize,
    slot_bytes: usize,
    offsets: Offsets,
}

// SAFETY: what is shared is reached as atomics, or as raw bytes whose users answer for races.
unsafe impl Send for GroupMemory {}
// SAFETY: as above.
unsafe impl Sync for GroupMemory {}

/// Byte offsets of the parts.
#[derive(Clone, Copy)]
struct Offsets {
    enter: usize,
    seats: usize,
    notices: usize,
    counts: usize,
    channels: usize,
    channel_slots: usize,
    stages: usize,
    results: usize,
    end: usize,
}

impl Offsets {
    fn new(ranks: usize, slot_bytes: usize) -> Offsets {
        let mut at = 0usize;
        let mut place = |count: usize, bytes: usize, align: usize| {
            let start = at.next_multiple_of(align);
            at = start + count * bytes;
            start
        };
        let _head = place(1, size_of::<Head>(), LINE_BYTES);
        let offsets = Offsets {
            enter: place(1, size_of::<CentralBarrier>(), LINE_BYTES),
            seats: place(ranks, size_of::<RankState>(), LINE_BYTES),
            notices: place(2 * ranks, size_of::<Announcement>(), LINE_BYTES),
            counts: place(2 * ranks, counts_bytes(ranks), LINE_BYTES),
            channels: place(ranks * ranks, size_of::<Channel>(), LINE_BYTES),
            channel_slots: place(ranks * ranks, CHANNEL_SLOTS * CHANNEL_SLOT_BYTES, PAGE_BYTES),
            stages: place(2 * ranks, slot_bytes, PAGE_BYTES),
            results: place(2 * ranks, slot_bytes, PAGE_BYTES),
            end: 0,
        };
        Offsets { end: at.next_multiple_of(PAGE_BYTES), ..offsets }
    }
}

/// Bytes of one rank's counts: what it gives to each and what it takes from each, on lines of its own.
fn counts_bytes(ranks: usize) -> usize {
    (2 * ranks * size_of::<u64>()).next_multiple_of(LINE_BYTES)
}

impl GroupMemory {
    /// A board on the heap, for threads of this process.
    pub fn on_heap(ranks: usize, slot_bytes: usize) -> GroupMemory {
        let offsets = Offsets::new(ranks, slot_bytes);
        let layout = std::alloc::Layout::from_size_align(offsets.end, PAGE_BYTES).expect("a board is not that large");
        // SAFETY: the layout is not of zero bytes.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        GroupMemory { memory: Backing::Heap(base, layout), base, ranks, slot_bytes, offsets }
    }

    /// A board in a new segment, for processes; and the descriptor they join by.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn create(ranks: usize, slot_bytes: usize) -> Result<(GroupMemory, OwnedFd)> {
        let offsets = Offsets::new(ranks, slot_bytes);
        let segment = Segment::create(NAME, offsets.end as u64, Access::ReadWrite, Access::ReadWrite)
            .map_err(|error| CollectiveError::setup("make the shared memory of a group", error))?;
        let (segment, fd) = segment.detach();
        let board = GroupMemory::mapped(segment, ranks, slot_bytes, offsets);
        board.head().ranks.store(ranks as u64, Relaxed);
        board.head().slot_bytes.store(slot_bytes as u64, Relaxed);
        board.head().magic.store(MAGIC, Release);
        Ok((board, fd))
    }

    /// The board behind a descriptor that [`GroupMemory::create`] gave.
    ///
    /// # Errors
    /// If it is none.
    pub fn open(fd: OwnedFd) -> Result<GroupMemory> {
        let what = "map the shared memory of a group";
        let bytes = rustix::fs::fstat(&fd).map_err(|error| CollectiveError::setup(what, error))?.st_size as u64;
        let foreign = || CollectiveError::setup(what, "the descriptor is not that of a group of this version of GT");
        if bytes < size_of::<Head>() as u64 {
            return Err(foreign());
        }
        let segment = Segment::map_peer(fd, bytes, Access::ReadWrite)
            .map_err(|error| CollectiveError::setup(what, error))?
            .detach()
            .0;
        let mut board = GroupMemory::mapped(segment, 0, 0, Offsets::new(0, 0));
        let head = board.head();
        let magic = head.magic.load(Acquire);
        let (ranks, slot_bytes) = (head.ranks.load(Relaxed) as usize, head.slot_bytes.load(Relaxed) as usize);
        let sane = magic == MAGIC && (1..=RANKS_MAX).contains(&ranks) && slot_bytes as u64 <= bytes;
        if !sane || Offsets::new(ranks, slot_bytes).end as u64 != bytes {
            return Err(foreign());
        }
        board.ranks = ranks;
        board.slot_bytes = slot_bytes;
        board.offsets = Offsets::new(ranks, slot_bytes);
        Ok(board)
    }

    fn mapped(segment: Segment, ranks: usize, slot_bytes: usize, offsets: Offsets) -> GroupMemory {
        let base = NonNull::new(segment.as_ptr()).expect("a mapping is nowhere at address 0");
        GroupMemory { memory: Backing::Mapped(segment), base, ranks, slot_bytes, offsets }
    }

    fn bytes(&self) -> usize {
        match &self.memory {
            Backing::Heap(_, layout) => layout.size(),
            Backing::Mapped(segment) => segment.len(),
        }
    }

    fn at<T: SharedAtomics>(&self, start: usize, index: usize) -> &T {
        let offset = start + index * size_of::<T>();
        assert!(offset + size_of::<T>() <= self.bytes() && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the memory, which lives as long as `self`, and aligned, as just checked (the base is that of a
        // page). `SharedAtomics` says that any bytes are a value, and atomics may change under a reference.
        unsafe { self.base.add(offset).cast::<T>().as_ref() }
    }

    fn window(&self, offset: usize, len: usize) -> Window<'_> {
        assert!(offset + len <= self.bytes());
        // SAFETY: inside the memory, as just checked.
        Window { start: unsafe { self.base.add(offset) }, len, board: PhantomData }
    }

    fn head(&self) -> &Head {
        self.at(0, 0)
    }

    /// Ranks in the group.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Bytes of one staging slot, a multiple of 64 a rank.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// Where ranks meet to compare what they are about to do, and between the chunks of a stream.
    pub fn enter(&self) -> &CentralBarrier {
        self.at(self.offsets.enter, 0)
    }

    /// Why the group is broken.
    pub fn reason(&self) -> &AtomicU32 {
        &self.head().reason
    }

    /// The place of `rank`.
    pub fn rank_state(&self, rank: usize) -> &RankState {
        assert!(rank < self.ranks);
        self.at(self.offsets.seats, rank)
    }

    /// The notice of `rank` at gate number `turn`.
    pub fn announcement(&self, generation: u32, rank: usize) -> &Announcement {
        assert!(rank < self.ranks);
        self.at(self.offsets.notices, self.side(generation, rank))
    }

    /// What `rank` gives to `peer` at gate number `turn`, in elements.
    pub fn send_count(&self, generation: u32, rank: usize, peer: usize) -> &AtomicU64 {
        assert!(rank < self.ranks && peer < self.ranks);
        self.at(self.offsets.counts + self.side(generation, rank) * counts_bytes(self.ranks), peer)
    }

    /// What `rank` takes from `peer` at gate number `turn`, in elements.
    pub fn recv_count(&self, generation: u32, rank: usize, peer: usize) -> &AtomicU64 {
        assert!(rank < self.ranks && peer < self.ranks);
        self.at(self.offsets.counts + self.side(generation, rank) * counts_bytes(self.ranks), self.ranks + peer)
    }

    /// The call that `rank` has announced for gate number `turn`.
    pub fn call(&self, generation: u32, rank: usize) -> Option<Call> {
        Call::decode(self.announcement(generation, rank).call.load(Relaxed))
    }

    /// The channel from one rank to another.
    pub fn channel(&self, from: usize, to: usize) -> &Channel {
        assert!(from < self.ranks && to < self.ranks);
        self.at(self.offsets.channels, from * self.ranks + to)
    }

    /// The bytes of chunk number `chunk` in the channel from one rank to another.
    pub fn channel_slot(&self, from: usize, to: usize, chunk: u32) -> Window<'_> {
        assert!(from < self.ranks && to < self.ranks);
        let slot = (from * self.ranks + to) * CHANNEL_SLOTS + chunk as usize % CHANNEL_SLOTS;
        self.window(self.offsets.channel_slots + slot * CHANNEL_SLOT_BYTES, CHANNEL_SLOT_BYTES)
    }

    /// Where `rank` lays out what others take after gate number `turn`: [`GroupMemory::slot_bytes`] bytes.
    pub fn stage(&self, generation: u32, rank: usize) -> Window<'_> {
        self.window(self.offsets.stages + self.side(generation, rank) * self.slot_bytes, self.slot_bytes)
    }

    /// Where `rank` puts what it has reduced after gate number `turn`: [`GroupMemory::slot_bytes`] bytes.
    pub fn result(&self, generation: u32, rank: usize) -> Window<'_> {
        self.window(self.offsets.results + self.side(generation, rank) * self.slot_bytes, self.slot_bytes)
    }

    /// There are two of everything that is written at one gate and read at the next.
    fn side(&self, generation: u32, rank: usize) -> usize {
        assert!(rank < self.ranks);
        generation as usize % 2 * self.ranks + rank
    }
}

/// Bytes of the board that one rank writes before a gate or a count, and others read after it.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    start: NonNull<u8>,
    len: usize,
    board: PhantomData<&'a GroupMemory>,
}

impl Window<'_> {
    /// The address of `len` bytes at `offset`, readable and writable as long as the board lives.
    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= self.len);
        // SAFETY: inside the board, as just checked and as `window` checked.
        unsafe { self.start.add(offset) }.as_ptr()
    }

    /// Copies bytes in. If the peer breaks the protocol and touches them meanwhile, both see some bytes or others.
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: as many bytes are there; a private slice does not overlap them. That a peer may touch them is outside
        // the language's model; a copy of bytes does not depend on their values.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset, bytes.len()), bytes.len()) };
    }

    /// Copies bytes out, which are a part of `whole` bytes. As [`Window::put`].
    pub fn get(&self, offset: usize, bytes: &mut [u8], whole: usize) {
        // SAFETY: as in `put`.
        unsafe { copy(self.at(offset, bytes.len()), bytes.as_mut_ptr(), bytes.len(), whole) };
    }
}

impl Drop for GroupMemory {
    fn drop(&mut self) {
        if let Backing::Heap(base, layout) = self.memory {
            // SAFETY: allocated in `on_heap` with this layout.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}
