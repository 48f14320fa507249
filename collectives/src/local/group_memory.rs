//! The memory that the ranks of a local group share: the barrier, announcements, channels and staging slots.
//!
//! Threads of one process share it on the heap, and processes in a sealed segment. Both have the same layout, which
//! follows from the number of ranks and the size of a slot. References into the memory are to atomics only; the bytes
//! of slots are copied through raw pointers, and the barrier and the event counts order these copies.

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

/// The most ranks of a group.
pub const RANKS_MAX: usize = 64;
/// The name of a group's segment in `/proc`.
const NAME: &str = "gt-collective";
/// Identifies a segment as a group's memory, and the version of its layout.
const MAGIC: u64 = 0x6774_636f_6c6c_0002;
/// The alignment of the parts that start on a page.
const PAGE_BYTES: usize = gt_shm::segment::PAGE_BYTES;

/// A type made of atomics, which may lie in shared memory.
///
/// # Safety
/// Any bytes are a value of the type, and it consists of atomics and padding.
pub unsafe trait SharedAtomics {}

/// The first cache line of the memory: the group's parameters and state.
#[repr(C, align(128))]
struct Head {
    magic: AtomicU64,
    ranks: AtomicU64,
    slot_bytes: AtomicU64,
    /// The reason why the group is broken, in the upper half, and the rank that it concerns, in the lower half; 0 while
    /// the group is not broken.
    pub reason: AtomicU32,
}

/// The value of [`RankState::pid`] for a rank that has left. The end of its process is then not taken for a death.
pub const LEFT: u32 = u32::MAX;

/// The shared state of a rank.
#[repr(C, align(128))]
pub struct RankState {
    /// The id of the rank's process; 0 before it has joined, [`LEFT`] after it has left.
    pub pid: AtomicU32,
    /// 1 if the rank has mapped the memory of every rank, and would notice the death of each; 0 otherwise.
    pub reaches: AtomicU32,
    /// The id of the memory that the rank shares with the others; 0 if it shares none.
    pub memory: AtomicU64,
    /// Counts the direct exchanges that the rank has finished. Aborted once the rank is known to be dead.
    pub done: EventCount,
}

/// A rank's announcement of a call, which every other rank compares with its own.
#[repr(C, align(128))]
pub struct Announcement {
    /// The call, as [`Call::encode`] encodes it.
    pub call: AtomicU64,
    /// The buffer that the others access: its address for threads, its offset in the rank's memory for processes;
    /// [`NOWHERE`] if they cannot.
    pub offered: AtomicPtr<u8>,
    /// The length of that buffer, bytes.
    pub bytes: AtomicU64,
}

/// The value of [`Announcement::offered`] for a buffer that the other ranks cannot access.
pub const NOWHERE: *mut u8 = std::ptr::without_provenance_mut(usize::MAX);

// SAFETY: `Head` consists of atomic integers and padding, for which any bytes are a value.
unsafe impl SharedAtomics for Head {}
// SAFETY: `RankState` consists of atomic integers, an event count made of atomic integers, and padding.
unsafe impl SharedAtomics for RankState {}
// SAFETY: `Announcement` consists of atomics and padding. Any bytes are a value of a raw pointer; it is dereferenced
// only if a rank of this process stored it.
unsafe impl SharedAtomics for Announcement {}
// SAFETY: `CentralBarrier` consists of atomic integers and padding.
unsafe impl SharedAtomics for CentralBarrier {}
// SAFETY: `Channel` consists of atomic integers and padding.
unsafe impl SharedAtomics for Channel {}
// SAFETY: any eight bytes are an `AtomicU64`.
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

// SAFETY: references into the memory are to atomics only (`at`); bytes of slots are reached through raw pointers, whose
// users order their accesses by the barrier or by event counts.
unsafe impl Send for GroupMemory {}
// SAFETY: the reasons for `Send` hold for shared references, too.
unsafe impl Sync for GroupMemory {}

/// The byte offsets of the parts of the memory.
#[derive(Clone, Copy)]
struct Offsets {
    barrier: usize,
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
            barrier: place(1, size_of::<CentralBarrier>(), LINE_BYTES),
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

/// The bytes that one rank's counts take: elements sent to and received from each rank, on cache lines of their own.
fn counts_bytes(ranks: usize) -> usize {
    (2 * ranks * size_of::<u64>()).next_multiple_of(LINE_BYTES)
}

impl GroupMemory {
    /// Memory on the heap, for threads of this process.
    pub fn on_heap(ranks: usize, slot_bytes: usize) -> GroupMemory {
        let offsets = Offsets::new(ranks, slot_bytes);
        let layout =
            std::alloc::Layout::from_size_align(offsets.end, PAGE_BYTES).expect("a group's memory is not that large");
        // SAFETY: `offsets.end` is at least a page, so the layout is not of zero bytes.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        GroupMemory { memory: Backing::Heap(base, layout), base, ranks, slot_bytes, offsets }
    }

    /// Memory in a new segment, for processes, and the descriptor by which they join.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn create(ranks: usize, slot_bytes: usize) -> Result<(GroupMemory, OwnedFd)> {
        let offsets = Offsets::new(ranks, slot_bytes);
        let segment = Segment::create(NAME, offsets.end as u64, Access::ReadWrite, Access::ReadWrite)
            .map_err(|error| CollectiveError::setup("make the shared memory of a group", error))?;
        let (segment, fd) = segment.detach();
        let memory = GroupMemory::mapped(segment, ranks, slot_bytes, offsets);
        memory.head().ranks.store(ranks as u64, Relaxed);
        memory.head().slot_bytes.store(slot_bytes as u64, Relaxed);
        memory.head().magic.store(MAGIC, Release);
        Ok((memory, fd))
    }

    /// Maps the memory of a group, by the descriptor that [`GroupMemory::create`] returned.
    ///
    /// # Errors
    /// If the descriptor is not that of a group of this version of GT.
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
        let mut memory = GroupMemory::mapped(segment, 0, 0, Offsets::new(0, 0));
        let head = memory.head();
        let magic = head.magic.load(Acquire);
        let (ranks, slot_bytes) = (head.ranks.load(Relaxed) as usize, head.slot_bytes.load(Relaxed) as usize);
        let sane = magic == MAGIC && (1..=RANKS_MAX).contains(&ranks) && slot_bytes as u64 <= bytes;
        if !sane || Offsets::new(ranks, slot_bytes).end as u64 != bytes {
            return Err(foreign());
        }
        memory.ranks = ranks;
        memory.slot_bytes = slot_bytes;
        memory.offsets = Offsets::new(ranks, slot_bytes);
        Ok(memory)
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
        // SAFETY: the assertion checked that the value lies inside the memory, which lives as long as `self`, and that
        // it is aligned (the memory starts on a page). Any bytes are a value of a `SharedAtomics`, and atomics may
        // change under a reference.
        unsafe { self.base.add(offset).cast::<T>().as_ref() }
    }

    fn window(&self, offset: usize, len: usize) -> Window<'_> {
        assert!(offset + len <= self.bytes());
        // SAFETY: the assertion checked that `offset` lies inside the memory.
        Window { start: unsafe { self.base.add(offset) }, len, memory: PhantomData }
    }

    fn head(&self) -> &Head {
        self.at(0, 0)
    }

    /// The number of ranks in the group.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// The bytes of a staging slot, a multiple of 64 times the number of ranks.
    pub fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The barrier at which ranks meet to compare their calls, and between rounds of staged exchanges.
    pub fn barrier(&self) -> &CentralBarrier {
        self.at(self.offsets.barrier, 0)
    }

    /// The reason why the group is broken; see [`Head::reason`].
    pub fn reason(&self) -> &AtomicU32 {
        &self.head().reason
    }

    /// The shared state of `rank`.
    pub fn rank_state(&self, rank: usize) -> &RankState {
        assert!(rank < self.ranks);
        self.at(self.offsets.seats, rank)
    }

    /// The announcement of `rank` in a generation of the barrier.
    pub fn announcement(&self, generation: u32, rank: usize) -> &Announcement {
        assert!(rank < self.ranks);
        self.at(self.offsets.notices, self.buffer_index(generation, rank))
    }

    /// The elements that `rank` sends to `peer` in a call announced in `generation`.
    pub fn send_count(&self, generation: u32, rank: usize, peer: usize) -> &AtomicU64 {
        assert!(rank < self.ranks && peer < self.ranks);
        self.at(self.offsets.counts + self.buffer_index(generation, rank) * counts_bytes(self.ranks), peer)
    }

    /// The elements that `rank` receives from `peer` in a call announced in `generation`.
    pub fn recv_count(&self, generation: u32, rank: usize, peer: usize) -> &AtomicU64 {
        assert!(rank < self.ranks && peer < self.ranks);
        self.at(self.offsets.counts + self.buffer_index(generation, rank) * counts_bytes(self.ranks), self.ranks + peer)
    }

    /// The call that `rank` announced in `generation`.
    pub fn call(&self, generation: u32, rank: usize) -> Option<Call> {
        Call::decode(self.announcement(generation, rank).call.load(Relaxed))
    }

    /// The channel from one rank to another.
    pub fn channel(&self, from: usize, to: usize) -> &Channel {
        assert!(from < self.ranks && to < self.ranks);
        self.at(self.offsets.channels, from * self.ranks + to)
    }

    /// The slot of chunk number `chunk` in the channel from one rank to another.
    pub fn channel_slot(&self, from: usize, to: usize, chunk: u32) -> Window<'_> {
        assert!(from < self.ranks && to < self.ranks);
        let slot = (from * self.ranks + to) * CHANNEL_SLOTS + chunk as usize % CHANNEL_SLOTS;
        self.window(self.offsets.channel_slots + slot * CHANNEL_SLOT_BYTES, CHANNEL_SLOT_BYTES)
    }

    /// The slot of [`GroupMemory::slot_bytes`] bytes that `rank` fills before the barrier of `generation`, and the
    /// other ranks read after it.
    pub fn stage(&self, generation: u32, rank: usize) -> Window<'_> {
        self.window(self.offsets.stages + self.buffer_index(generation, rank) * self.slot_bytes, self.slot_bytes)
    }

    /// The slot of [`GroupMemory::slot_bytes`] bytes for the elements that `rank` reduces after the barrier of
    /// `generation`.
    pub fn result(&self, generation: u32, rank: usize) -> Window<'_> {
        self.window(self.offsets.results + self.buffer_index(generation, rank) * self.slot_bytes, self.slot_bytes)
    }

    /// The index of a rank's entry in a double buffer. The ranks read the entries of one generation after its barrier,
    /// while they already write those of the next.
    fn buffer_index(&self, generation: u32, rank: usize) -> usize {
        assert!(rank < self.ranks);
        generation as usize % 2 * self.ranks + rank
    }
}

/// A range of a group's memory that one rank writes before a barrier or an event, and others read after it.
#[derive(Clone, Copy)]
pub struct Window<'a> {
    start: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a GroupMemory>,
}

impl Window<'_> {
    /// The address of `len` bytes at `offset`, readable and writable as long as the group's memory lives.
    pub fn at(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= self.len);
        // SAFETY: the assertion checked that the bytes lie in the window, and `window` that the window lies in the
        // memory.
        unsafe { self.start.add(offset) }.as_ptr()
    }

    /// Copies bytes in. If a peer breaks the protocol and accesses them meanwhile, either side may see any bytes.
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: `at` checked the length, and a private slice does not overlap shared memory. That a peer may access
        // the bytes meanwhile is outside Rust's memory model; a copy of bytes does not depend on their values.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset, bytes.len()), bytes.len()) };
    }

    /// Copies bytes out. They are part of a result of `whole` bytes; a large result is written past the caches. If a
    /// peer breaks the protocol and writes the bytes meanwhile, the copy may hold any bytes.
    pub fn get(&self, offset: usize, bytes: &mut [u8], whole: usize) {
        // SAFETY: `at` checked the length, and a private slice does not overlap shared memory; a copy of bytes does not
        // depend on their values.
        unsafe { copy(self.at(offset, bytes.len()), bytes.as_mut_ptr(), bytes.len(), whole) };
    }
}

impl Drop for GroupMemory {
    fn drop(&mut self) {
        if let Backing::Heap(base, layout) = self.memory {
            // SAFETY: `on_heap` allocated `base` with this layout, and only this drop frees it.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}
