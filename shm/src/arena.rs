//! Arenas: shared-memory segments that carry the bytes of tensors between a client and the daemon. Both sides write
//! them.
//!
//! The daemon uses an [`Arena`]. It checks the bounds of every range, and copies through raw pointers: a reference
//! would be unsound, because the client may change the bytes at any time. The client uses an [`ArenaAllocator`], a
//! best-fit allocator of blocks from several arenas. A block returns to its allocator on drop.
//!
//! ```
//! use gt_shm::{Arena, ArenaAllocator};
//!
//! let (arena, fd) = Arena::create(1 << 20)?; // the daemon; the descriptor is sent by socket
//! let allocator = ArenaAllocator::new(); // the client
//! allocator.add(fd, arena.len())?;
//!
//! let mut block = allocator.alloc(3)?;
//! block.write(b"abc");
//! let mut copy = [0; 3];
//! arena.copy_in(block.offset(), &mut copy)?; // `offset` came through the ring, so it is checked
//! assert_eq!(&copy, b"abc");
//! assert!(arena.copy_in(u64::MAX, &mut copy).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::copy::copy_nonoverlapping;
use crate::error::{Error, Result};
use crate::fork;
use crate::segment::{Access, PAGE_BYTES, Segment};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The name of arenas in `/proc/*/maps`.
pub const ARENA_NAME: &str = "gt-arena";

/// Arenas of at least this many bytes request huge pages, which would only waste memory in smaller ones.
const HUGE_PAGES_BYTES_MIN: usize = 32 << 20;

fn advise_huge_pages(arena: &Segment) {
    if arena.len() >= HUGE_PAGES_BYTES_MIN {
        arena.advise_huge_pages();
    }
}

// ------------------------------------------------------------------------------------- daemon

/// The daemon's view of an arena. Cheap to clone: any clone or slice keeps the mapping alive, so work in flight may
/// outlive its session.
#[derive(Clone, Debug)]
pub struct Arena(Arc<Segment>);

impl Arena {
    /// Creates an arena of at least `bytes` bytes. Also returns the descriptor by which the client maps it.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn create(bytes: u64) -> Result<(Self, OwnedFd)> {
        let segment = Segment::create(ARENA_NAME, bytes, Access::ReadWrite, Access::ReadWrite)?;
        advise_huge_pages(&segment);
        let (segment, fd) = segment.detach();
        Ok((Self(Arc::new(segment)), fd))
    }

    /// Maps an arena that the daemon has sent to a worker process and announced as `len` bytes long.
    ///
    /// # Errors
    /// If the segment differs from the announcement.
    pub fn map(fd: OwnedFd, len: u64) -> Result<Self> {
        let segment = Segment::map_peer(fd, len, Access::ReadWrite)?;
        advise_huge_pages(&segment);
        Ok(Self(Arc::new(segment.detach().0)))
    }

    /// The length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an arena is never empty")]
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// The `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if they exceed the arena, or their end overflows.
    pub fn range(&self, offset: u64, len: u64) -> Result<ArenaSlice> {
        self.check(offset, len)?;
        Ok(ArenaSlice { segment: self.0.clone(), offset: offset as usize, len: len as usize })
    }

    fn check(&self, offset: u64, len: u64) -> Result<()> {
        let arena_bytes = self.len();
        match offset.checked_add(len) {
            Some(end) if end <= arena_bytes => Ok(()),
            _ => Err(Error::OutOfBounds { offset, len, arena_bytes }),
        }
    }

    /// Copies bytes at `offset` of the arena into `to`. If the client writes them meanwhile, each copied byte is the
    /// old or a new one.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the bytes exceed the arena.
    pub fn copy_in(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.range(offset, to.len() as u64)?.copy_in(to);
        Ok(())
    }

    /// Copies `from` into the arena at `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if the bytes exceed the arena.
    pub fn copy_out(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.range(offset, from.len() as u64)?.copy_out(from);
        Ok(())
    }
}

/// A range of an arena that [`Arena::range`] has checked. Keeps the mapping alive. [`split_at`](Self::split_at) and
/// [`chunks`](Self::chunks) divide it, to copy from several threads.
#[derive(Clone, Debug)]
pub struct ArenaSlice {
    segment: Arc<Segment>,
    offset: usize,
    len: usize,
}

impl ArenaSlice {
    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte, valid for reads and writes of [`len`](Self::len) bytes while the slice lives. The
    /// client may write the bytes at any time: make no reference to them, and copy them before control flow depends on
    /// them.
    pub fn as_ptr(&self) -> *mut u8 {
        self.segment.as_ptr().wrapping_add(self.offset)
    }

    /// Copies the range into `to`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_in(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "a range is copied whole");
        // SAFETY: `offset + len <= arena.len()` was checked in `Arena::range`, and `segment` keeps the mapping alive;
        // `to` has `len` bytes of private memory. The client may write the source at the same time, which the
        // language's memory model does not cover, but a copy of bytes does not depend on their values.
        unsafe { copy_nonoverlapping(self.as_ptr(), to.as_mut_ptr(), self.len) };
    }

    /// Copies `from` into the range.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_out(&self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "a range is copied whole");
        // SAFETY: `offset + len <= arena.len()` was checked in `Arena::range`, `segment` keeps the mapping alive, and
        // it was mapped with `Access::ReadWrite`; `from` has `len` bytes of private memory. The client may access the
        // destination at the same time, but nothing here depends on its contents.
        unsafe { copy_nonoverlapping(from.as_ptr(), self.as_ptr(), self.len) };
    }

    /// Divides the range at byte `at`.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        assert!(at <= self.len, "cannot split {} bytes at {at}", self.len);
        let front = Self { segment: self.segment.clone(), offset: self.offset, len: at };
        let back = Self { segment: self.segment, offset: self.offset + at, len: self.len - at };
        (front, back)
    }

    /// Divides the range into pieces of `bytes` bytes; the last may be shorter.
    ///
    /// # Panics
    /// If `bytes` is 0.
    pub fn chunks(&self, bytes: usize) -> impl Iterator<Item = Self> + '_ {
        (0..self.len).step_by(bytes).map(move |start| Self {
            segment: self.segment.clone(),
            offset: self.offset + start,
            len: bytes.min(self.len - start),
        })
    }
}

// ------------------------------------------------------------------------------------- client

/// The alignment of small blocks, bytes: a cache line.
pub const SMALL_ALIGN_BYTES: u64 = 64;

/// Blocks of at least this many bytes start and end on pages.
pub const LARGE_BYTES_MIN: u64 = 64 * 1024;

/// The most free memory that is kept for reuse instead of returned to the system, bytes. The first copy into new pages
/// runs at a tenth of the speed of a copy into resident ones, and populating them in one call (`MADV_POPULATE_WRITE`)
/// is no faster.
pub const WARM_BYTES_MAX: u64 = 512 << 20;

/// No arena has room: the client must request another from the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the arenas have no room for {bytes} bytes")]
pub struct NeedMore {
    /// The least size of the new arena, bytes.
    pub bytes: u64,
}

/// Allocates blocks of a session's arenas. Cheap to clone; threads may share it.
#[derive(Clone)]
pub struct ArenaAllocator(Arc<AllocatorShared>);

struct AllocatorShared {
    state: Mutex<AllocatorState>,
    /// Held while a free extent is taken out of the free lists to be trimmed.
    trim: Mutex<()>,
    /// The [`fork::generation`] of the process that made the allocator. A forked child has another one.
    generation: u32,
}

/// An arena, and the number of blocks that were allocated in it.
struct OwnArena {
    segment: Arc<Segment>,
    uses: u64,
}

/// An arena in which no block is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusedArena {
    /// The arena's number.
    pub number: u32,
    /// How many blocks were allocated in it so far. While that stays the same, the arena is idle.
    pub uses: u64,
}

#[derive(Default)]
struct AllocatorState {
    /// By number; none for an arena that was returned.
    arenas: Vec<Option<OwnArena>>,
    free: FreeLists,
    used_bytes: u64,
    warm_bytes_max: u64,
    /// Bytes of the large blocks freed since the last measurement of the warm memory.
    unmeasured_bytes: u64,
}

impl AllocatorState {
    /// The bytes of resident memory that no block uses. Costs a system call per arena. Too low if blocks have pages
    /// that were never touched: these count as used, but are not resident.
    fn warm_bytes(&self) -> u64 {
        let resident: u64 = self.arenas.iter().flatten().map(|arena| arena.segment.resident_bytes()).sum();
        resident.saturating_sub(self.used_bytes)
    }

    fn segment(&self, arena: u32) -> Option<Arc<Segment>> {
        Some(self.arenas.get(arena as usize)?.as_ref()?.segment.clone())
    }
}

/// Statistics of an allocator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStats {
    /// The number of arenas.
    pub arenas: usize,
    /// The bytes of all arenas.
    pub total_bytes: u64,
    /// The bytes of allocated blocks, rounding included.
    pub used_bytes: u64,
    /// The bytes of resident memory that no block uses.
    pub warm_bytes: u64,
    /// The number of free extents.
    pub free_extents: usize,
}

impl ArenaAllocator {
    /// An allocator without arenas.
    pub fn new() -> Self {
        Self::with_warm_bytes_max(WARM_BYTES_MAX)
    }

    /// An allocator that keeps at most `warm_bytes_max` bytes of free memory.
    pub fn with_warm_bytes_max(warm_bytes_max: u64) -> Self {
        let state = AllocatorState { warm_bytes_max, ..AllocatorState::default() };
        Self(Arc::new(AllocatorShared {
            state: Mutex::new(state),
            trim: Mutex::new(()),
            generation: fork::generation(),
        }))
    }

    /// Adds a received arena, announced as `len` bytes long, and returns its number. The daemon numbers arenas from 0
    /// in the order of its grants, and the caller must check that the numbers agree.
    ///
    /// # Errors
    /// If the segment differs from the announcement.
    pub fn add(&self, fd: OwnedFd, len: u64) -> Result<u32> {
        let segment = Segment::map_peer(fd, len, Access::ReadWrite)?;
        advise_huge_pages(&segment);
        let mut state = self.0.lock();
        let arena = state.arenas.len() as u32;
        state.arenas.push(Some(OwnArena { segment: Arc::new(segment), uses: 0 }));
        state.free.insert(arena, Extent { offset: 0, len });
        Ok(arena)
    }

    /// Allocates a block of `bytes` bytes, aligned to [`SMALL_ALIGN_BYTES`] or, from [`LARGE_BYTES_MIN`] on, to pages.
    /// Its contents are unspecified. O(log n) in the number of free extents.
    ///
    /// # Errors
    /// [`NeedMore`] if no arena has room.
    pub fn alloc(&self, bytes: u64) -> Result<ArenaBlock, NeedMore> {
        let unit = if bytes >= LARGE_BYTES_MIN { PAGE_BYTES as u64 } else { SMALL_ALIGN_BYTES };
        let need = NeedMore { bytes: bytes.saturating_add(unit) };
        let rounded = bytes.max(1).checked_next_multiple_of(unit).ok_or(need)?;
        if self.0.generation != fork::generation() {
            // This is a forked child. The arenas belong to its parent process, whose allocator would not know of a
            // block that is allocated here.
            return Err(need);
        }
        let mut state = self.0.lock();
        let mut found = state.free.take(rounded, unit);
        if found.is_none() {
            // The trimmer may have taken an extent with room out of the lists: wait until it is back.
            drop(state);
            let _trimmed = self.0.trim.lock().unwrap_or_else(PoisonError::into_inner);
            state = self.0.lock();
            found = state.free.take(rounded, unit);
        }
        let (arena, extent) = found.ok_or(need)?;
        let Some(Some(own)) = state.arenas.get_mut(arena as usize) else { return Err(need) };
        own.uses += 1;
        let segment = own.segment.clone();
        state.used_bytes += rounded;
        drop(state);
        Ok(ArenaBlock { shared: self.0.clone(), segment, arena, offset: extent.offset, rounded, len: bytes as usize })
    }

    /// Returns free memory to the system until at most `keep_bytes` of it remain. Returns the number of bytes released.
    ///
    /// # Errors
    /// If the system refuses to release memory.
    pub fn trim(&self, keep_bytes: u64) -> Result<u64> {
        self.0.trim(keep_bytes)
    }

    /// The arenas of more than `bytes_min` bytes in which no block is allocated, in the order of their numbers.
    pub fn unused(&self, bytes_min: u64) -> Vec<UnusedArena> {
        let state = self.0.lock();
        let all = (0..).zip(&state.arenas).filter_map(|(number, own)| Some((number, own.as_ref()?)));
        let unused = all.filter(|(number, own)| {
            let len = own.segment.len() as u64;
            len > bytes_min && state.free.by_offset.get(&(*number, 0)) == Some(&len)
        });
        unused.map(|(number, own)| UnusedArena { number, uses: own.uses }).collect()
    }

    /// Takes an arena out of use that [`unused`](Self::unused) has named, to return it to the daemon; none if a block
    /// was allocated in it since. If the result is dropped, blocks are allocated in the arena again.
    pub fn withdraw(&self, unused: UnusedArena) -> Option<WithdrawnArena> {
        let mut state = self.0.lock();
        let UnusedArena { number, uses } = unused;
        let len = state.arenas.get(number as usize)?.as_ref().filter(|own| own.uses == uses)?.segment.len() as u64;
        state.free.remove(number, 0, len).then(|| WithdrawnArena { shared: self.0.clone(), number, len })
    }

    /// The allocator's statistics.
    pub fn stats(&self) -> ArenaStats {
        let state = self.0.lock();
        ArenaStats {
            arenas: state.arenas.iter().flatten().count(),
            total_bytes: state.arenas.iter().flatten().map(|arena| arena.segment.len() as u64).sum(),
            used_bytes: state.used_bytes,
            warm_bytes: state.warm_bytes(),
            free_extents: state.free.by_len.len(),
        }
    }
}

impl Default for ArenaAllocator {
    fn default() -> Self {
        Self::new()
    }
}

impl AllocatorShared {
    fn lock(&self) -> MutexGuard<'_, AllocatorState> {
        // Poisoning is ignored: no code that can panic leaves the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trim(&self, keep_bytes: u64) -> Result<u64> {
        if self.generation != fork::generation() {
            return Ok(0);
        }
        let _trimming = self.trim.lock().unwrap_or_else(PoisonError::into_inner);
        let mut released = 0;
        // Visits the largest extents first, each once. Extents freed meanwhile are left to the next trim.
        let mut state = self.lock();
        let candidates: Vec<_> = state.free.by_len.iter().rev().copied().collect();
        for (len, arena, offset) in candidates {
            let warm = state.warm_bytes();
            if warm <= keep_bytes || len < PAGE_BYTES as u64 {
                break;
            }
            if !state.free.remove(arena, offset, len) {
                continue;
            }
            let Some(segment) = state.segment(arena) else { continue };
            // The lock is released, because punching gigabytes takes milliseconds. The extent is out of the lists, so
            // no other thread can allocate it meanwhile.
            drop(state);
            let before = segment.resident_bytes();
            let punched = segment.punch(offset, len);
            released += before.saturating_sub(segment.resident_bytes());
            state = self.lock();
            state.free.insert(arena, Extent { offset, len });
            punched?;
        }
        Ok(released)
    }
}

/// An arena that is out of use while the daemon is asked to take it back.
pub struct WithdrawnArena {
    shared: Arc<AllocatorShared>,
    number: u32,
    len: u64,
}

impl WithdrawnArena {
    /// The arena's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Unmaps the arena, which the daemon has taken back.
    pub fn release(self) {
        let released = self.shared.lock().arenas.get_mut(self.number as usize).and_then(Option::take);
        // Unmapping gigabytes takes milliseconds, so the lock is not held.
        drop(released);
    }
}

impl Drop for WithdrawnArena {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.segment(self.number).is_some() {
            state.free.insert(self.number, Extent { offset: 0, len: self.len });
        }
    }
}

/// A contiguous range of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    offset: u64,
    len: u64,
}

/// The free extents of all arenas. Invariant: no two extents of an arena are adjacent.
#[derive(Default)]
struct FreeLists {
    /// (arena, offset) → len.
    by_offset: BTreeMap<(u32, u64), u64>,
    /// (len, arena, offset): in this order, the first entry from a wanted length on is the smallest extent that fits.
    by_len: BTreeSet<(u64, u32, u64)>,
}

impl FreeLists {
    /// Adds an extent, merged with adjacent free ones.
    fn insert(&mut self, arena: u32, mut extent: Extent) {
        let before = self.by_offset.range((arena, 0)..(arena, extent.offset)).next_back();
        if let Some((&(_, offset), &len)) = before
            && offset + len == extent.offset
        {
            self.remove(arena, offset, len);
            extent = Extent { offset, len: len + extent.len };
        }
        let end = extent.offset + extent.len;
        if let Some(&len) = self.by_offset.get(&(arena, end)) {
            self.remove(arena, end, len);
            extent.len += len;
        }
        self.by_offset.insert((arena, extent.offset), extent.len);
        self.by_len.insert((extent.len, arena, extent.offset));
    }

    /// Removes an extent. False if it is not in the lists.
    fn remove(&mut self, arena: u32, offset: u64, len: u64) -> bool {
        let found = self.by_len.remove(&(len, arena, offset));
        if found {
            self.by_offset.remove(&(arena, offset));
        }
        found
    }

    /// Takes `len` bytes aligned to `align` out of a free extent. `None` if no extent is certain to have room.
    fn take(&mut self, len: u64, align: u64) -> Option<(u32, Extent)> {
        let fits = |&&(have, _, offset): &&(u64, u32, u64)| {
            (offset.next_multiple_of(align) - offset).saturating_add(len) <= have
        };
        // The smallest extent of at least `len` bytes, if it has room at this alignment; otherwise the smallest one
        // that has room wherever it starts.
        let first = self.by_len.range((len, 0, 0)..).next().filter(fits);
        let roomy = len.saturating_add(align - SMALL_ALIGN_BYTES);
        let &(have, arena, offset) = first.or_else(|| self.by_len.range((roomy, 0, 0)..).next())?;
        self.remove(arena, offset, have);
        let start = offset.next_multiple_of(align);
        let end = start + len;
        if offset < start {
            self.insert(arena, Extent { offset, len: start - offset });
        }
        if end < offset + have {
            self.insert(arena, Extent { offset: end, len: offset + have - end });
        }
        Some((arena, Extent { offset: start, len }))
    }
}

/// An allocated block of an arena, which returns to the allocator on drop. The memory is shared with the daemon: while
/// an instruction that names the block is in flight, the owner must keep the block and must not access its bytes.
pub struct ArenaBlock {
    shared: Arc<AllocatorShared>,
    segment: Arc<Segment>,
    arena: u32,
    offset: u64,
    rounded: u64,
    len: usize,
}

impl std::fmt::Debug for ArenaBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArenaBlock({}:{}+{})", self.arena, self.offset, self.len)
    }
}

impl ArenaBlock {
    /// The number of the arena that the block lies in. The daemon numbers arenas in the order of its grants.
    pub fn arena(&self) -> u32 {
        self.arena
    }

    /// The offset of its first byte in the arena.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The requested length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the requested length is 0. The block still occupies one unit of alignment.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first byte, valid for reads and writes of [`len`](Self::len) bytes while the block lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.segment.as_ptr().wrapping_add(self.offset as usize)
    }

    /// Copies `from` to the start of the block.
    ///
    /// # Panics
    /// If it is longer than the block.
    pub fn write(&mut self, from: &[u8]) {
        assert!(from.len() <= self.len, "{} bytes into a block of {}", from.len(), self.len);
        // SAFETY: `from.len() <= self.len` was just checked, and the allocator keeps the block inside its arena and
        // apart from other blocks. `&mut self` excludes other threads, and the daemon accesses only blocks that an
        // instruction names.
        unsafe { copy_nonoverlapping(from.as_ptr(), self.as_ptr(), from.len()) };
    }

    /// Copies the start of the block into `to`.
    ///
    /// # Panics
    /// If `to` is longer than the block.
    pub fn read(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len, "{} bytes out of a block of {}", to.len(), self.len);
        // SAFETY: `to.len() <= self.len` was just checked, and the allocator keeps the block inside its arena. `write`
        // needs `&mut self`, and the daemon writes only blocks that an instruction in flight names.
        unsafe { copy_nonoverlapping(self.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    /// The block's bytes.
    ///
    /// # Safety
    /// No instruction in flight may write the block while the slice lives.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the allocator keeps the block inside the mapping, which `segment` keeps alive. This function requires
        // that no instruction in flight writes the block, and `write` needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

impl Drop for ArenaBlock {
    fn drop(&mut self) {
        if self.shared.generation != fork::generation() {
            // This is a forked child's copy: the block is the parent's, and the lock may be held by a thread that does
            // not exist here.
            return;
        }
        let mut state = self.shared.lock();
        state.used_bytes -= self.rounded;
        state.free.insert(self.arena, Extent { offset: self.offset, len: self.rounded });
        if self.rounded < LARGE_BYTES_MIN {
            return;
        }
        // Measuring costs a system call per arena, so it is done rarely.
        state.unmeasured_bytes += self.rounded;
        let keep = state.warm_bytes_max;
        if state.unmeasured_bytes < keep / 8 {
            return;
        }
        state.unmeasured_bytes = 0;
        if state.warm_bytes() > keep {
            drop(state);
            // Trims to half, so that the next drops do not trim again. If the system refuses, the memory is still free.
            let _ = self.shared.trim(keep / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The size of each of the two arenas in these tests, bytes.
    const ARENA_BYTES: u64 = 64 * PAGE_BYTES as u64;

    fn fresh() -> FreeLists {
        let mut free = FreeLists::default();
        for arena in 0..2 {
            free.insert(arena, Extent { offset: 0, len: ARENA_BYTES });
        }
        free
    }

    /// Checks that free extents and blocks tile the arenas, and that adjacent free extents are merged.
    fn check(free: &FreeLists, blocks: &[(u32, Extent)]) {
        assert_eq!(free.by_offset.len(), free.by_len.len());
        for (&(arena, offset), &len) in &free.by_offset {
            assert!(free.by_len.contains(&(len, arena, offset)));
            assert!(!free.by_offset.contains_key(&(arena, offset + len)), "neighbours not joined");
        }
        let mut pieces: Vec<_> = free.by_offset.iter().map(|(&(a, o), &l)| (a, o, l)).collect();
        pieces.extend(blocks.iter().map(|&(arena, extent)| (arena, extent.offset, extent.len)));
        pieces.sort_unstable();
        for arena in 0..2 {
            let mut end = 0;
            for &(_, offset, len) in pieces.iter().filter(|piece| piece.0 == arena) {
                assert_eq!(offset, end, "a gap or an overlap");
                end += len;
            }
            assert_eq!(end, ARENA_BYTES);
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Take { units: u64, pages: bool },
        Give(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let take = (1..40u64, any::<bool>()).prop_map(|(units, pages)| Step::Take { units, pages });
        let give = any::<usize>().prop_map(Step::Give);
        prop::collection::vec(prop_oneof![3 => take, 2 => give], 1..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        #[cfg_attr(miri, ignore = "safe code, and slow there")]
        fn blocks_never_overlap_and_all_come_back(steps in steps()) {
            let mut free = fresh();
            let mut blocks = Vec::new();
            for step in steps {
                match step {
                    Step::Take { units, pages } => {
                        let unit = if pages { PAGE_BYTES as u64 } else { SMALL_ALIGN_BYTES };
                        let len = units * unit;
                        match free.take(len, unit) {
                            Some((arena, extent)) => {
                                prop_assert_eq!(extent.len, len);
                                prop_assert_eq!(extent.offset % unit, 0);
                                blocks.push((arena, extent));
                            }
                            None => {
                                let largest = free.by_len.last().map_or(0, |last| last.0);
                                prop_assert!(largest < len + unit, "{} would have fitted", largest);
                            }
                        }
                    }
                    Step::Give(which) if !blocks.is_empty() => {
                        let (arena, extent) = blocks.swap_remove(which % blocks.len());
                        free.insert(arena, extent);
                    }
                    Step::Give(_) => {}
                }
                check(&free, &blocks);
            }
            for (arena, extent) in blocks.drain(..) {
                free.insert(arena, extent);
            }
            prop_assert_eq!(free.by_len.len(), 2, "one free extent per arena is left");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs memfd_create")]
    fn an_idle_arena_is_withdrawn_and_put_back_or_released() {
        let allocator = ArenaAllocator::new();
        let arenas: Vec<_> = (0..2)
            .map(|_| {
                let (arena, fd) = Arena::create(ARENA_BYTES).unwrap();
                allocator.add(fd, arena.len()).unwrap();
                arena
            })
            .collect();
        let block = allocator.alloc(100).unwrap();
        let other = 1 - block.arena();
        let unused = allocator.unused(0);
        assert_eq!(unused, [UnusedArena { number: other, uses: 0 }]);
        assert_eq!(allocator.unused(ARENA_BYTES), []);
        // Nothing is allocated in a withdrawn arena, and it is as before if it is not returned.
        let withdrawn = allocator.withdraw(unused[0]).unwrap();
        assert!(allocator.withdraw(unused[0]).is_none());
        assert!(allocator.alloc(ARENA_BYTES).is_err());
        drop(withdrawn);
        let whole = allocator.alloc(ARENA_BYTES).unwrap();
        assert_eq!(whole.arena(), other);
        drop(whole);
        assert!(allocator.withdraw(unused[0]).is_none(), "it was used in between");
        let again = UnusedArena { number: other, uses: 1 };
        assert_eq!(allocator.unused(0), [again]);
        allocator.withdraw(again).unwrap().release();
        assert_eq!((allocator.stats().arenas, allocator.stats().total_bytes), (1, ARENA_BYTES));
        assert!(allocator.alloc(ARENA_BYTES).is_err());
        assert_eq!(allocator.unused(0), []);
        // Its number is not used again.
        let (third, fd) = Arena::create(ARENA_BYTES).unwrap();
        assert_eq!(allocator.add(fd, third.len()).unwrap(), 2);
        drop((block, arenas));
        assert_eq!(allocator.unused(0).len(), 2);
    }

    #[test]
    fn the_best_fit_is_taken() {
        let mut free = FreeLists::default();
        free.insert(0, Extent { offset: 0, len: 4096 });
        free.insert(0, Extent { offset: 8192, len: 256 });
        free.insert(0, Extent { offset: 12288, len: 512 });
        assert_eq!(free.take(192, 64).map(|(_, e)| e.offset), Some(8192));
        assert_eq!(free.take(512, 64).map(|(_, e)| e.offset), Some(12288));
        assert_eq!(free.take(u64::MAX - 63, 64), None);
        assert_eq!(free.take(u64::MAX - 4095, 4096), None);
    }
}
