//! Arenas: segments for bulk bytes, written by client and daemon alike.
//!
//! The daemon's side is [`Arena`]: checked ranges and copies through raw pointers, never a reference
//! to bytes that the client may change meanwhile. The client's side is [`ArenaAllocator`]: blocks out
//! of several arenas, best fit, given back on drop.
//!
//! ```
//! use gt_shm::{Arena, ArenaAllocator};
//!
//! let (arena, fd) = Arena::create(1 << 20)?; // the daemon; the descriptor travels by socket
//! let allocator = ArenaAllocator::new(); // the client
//! allocator.add(fd, arena.len())?;
//!
//! let mut block = allocator.alloc(3)?;
//! block.write(b"abc");
//! let mut copy = [0; 3];
//! arena.copy_in(block.offset(), &mut copy)?; // `offset` came through the ring: it is checked
//! assert_eq!(&copy, b"abc");
//! assert!(arena.copy_in(u64::MAX, &mut copy).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::error::{Error, Result};
use crate::fork;
use crate::segment::{Access, PAGE_BYTES, Segment};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What arenas are called in `/proc`.
pub const ARENA_NAME: &str = "gt-arena";

/// Arenas of at least this many bytes ask for huge pages; smaller ones would only waste memory.
const HUGE_PAGES_BYTES_MIN: usize = 32 << 20;

fn advise_huge_pages(arena: &Segment) {
    if arena.len() >= HUGE_PAGES_BYTES_MIN {
        arena.advise_huge_pages();
    }
}

// ------------------------------------------------------------------------------------- daemon

/// The daemon's view of an arena. Cheap to clone; the mapping lives as long as any clone or range,
/// so work in flight may outlast its session.
#[derive(Clone, Debug)]
pub struct Arena(Arc<Segment>);

impl Arena {
    /// Makes an arena of at least `bytes` bytes and the descriptor for its client.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn create(bytes: u64) -> Result<(Self, OwnedFd)> {
        let segment = Segment::create(ARENA_NAME, bytes, Access::ReadWrite, Access::ReadWrite)?;
        advise_huge_pages(&segment);
        let (segment, fd) = segment.detach();
        Ok((Self(Arc::new(segment)), fd))
    }

    /// Maps an arena that the daemon sent, announced as `len` bytes long: a worker's view of it.
    ///
    /// # Errors
    /// If the segment is not what was announced.
    pub fn map(fd: OwnedFd, len: u64) -> Result<Self> {
        let segment = Segment::map_peer(fd, len, Access::ReadWrite)?;
        advise_huge_pages(&segment);
        Ok(Self(Arc::new(segment.detach().0)))
    }

    /// Bytes in the arena.
    #[expect(clippy::len_without_is_empty, reason = "an arena is never empty")]
    pub fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// The `len` bytes at `offset`, checked.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if they are not all inside, or their end overflows.
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

    /// Copies bytes from the arena at `offset` into `to`. If the client writes them meanwhile, each
    /// byte is one that was there at some time; nothing else can happen.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn copy_in(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        self.range(offset, to.len() as u64)?.copy_in(to);
        Ok(())
    }

    /// Copies `from` into the arena at `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn copy_out(&self, offset: u64, from: &[u8]) -> Result<()> {
        self.range(offset, from.len() as u64)?.copy_out(from);
        Ok(())
    }
}

/// Bytes of an arena, checked once. Keeps the mapping alive. [`split_at`](Self::split_at) or
/// [`chunks`](Self::chunks) it to copy from several threads.
#[derive(Clone, Debug)]
pub struct ArenaSlice {
    segment: Arc<Segment>,
    offset: usize,
    len: usize,
}

impl ArenaSlice {
    /// Bytes in the range.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True of a range of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte. Valid for reads and writes of [`len`](Self::len) bytes while this lives; the
    /// client may read and write them too, so make no reference to them and let no control flow
    /// depend on them before they are copied.
    pub fn as_ptr(&self) -> *mut u8 {
        self.segment.as_ptr().wrapping_add(self.offset)
    }

    /// Copies the range into `to`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_in(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "a range is copied whole");
        // SAFETY: `range` checked these bytes against the mapping, which `segment` keeps alive. The
        // destination is private memory. That the client may write the source at the same time is
        // outside the language's model; a copy of bytes does not depend on their values.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), to.as_mut_ptr(), self.len) };
    }

    /// Copies `from` into the range.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_out(&self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "a range is copied whole");
        // SAFETY: as for `copy_in`, the other way round; the arena was mapped for writing.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.as_ptr(), self.len) };
    }

    /// The range before byte `at`, and the rest.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        assert!(at <= self.len, "cannot split {} bytes at {at}", self.len);
        let front = Self { segment: self.segment.clone(), offset: self.offset, len: at };
        let back = Self { segment: self.segment, offset: self.offset + at, len: self.len - at };
        (front, back)
    }

    /// The range in pieces of `bytes` bytes, the last one perhaps shorter.
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

/// Alignment of small blocks, bytes: a cache line.
pub const SMALL_ALIGN_BYTES: u64 = 64;

/// Blocks of at least this many bytes start and end on pages.
pub const LARGE_BYTES_MIN: u64 = 64 * 1024;

/// Free memory that is kept for reuse rather than given back to the system, bytes. A first copy into
/// fresh pages runs at a tenth of the speed of a copy into warm ones, and asking the kernel for them
/// in one call (`MADV_POPULATE_WRITE`) is no faster.
pub const WARM_BYTES_MAX: u64 = 512 << 20;

/// No arena has room: ask the daemon for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the arenas have no room for {bytes} bytes")]
pub struct NeedMore {
    /// Bytes that the new arena must be able to hold, at least.
    pub bytes: u64,
}

/// Hands out blocks of a session's arenas. Cheap to clone; threads may share it.
#[derive(Clone)]
pub struct ArenaAllocator(Arc<AllocatorShared>);

struct AllocatorShared {
    state: Mutex<AllocatorState>,
    /// Held while free extents are away being trimmed.
    trim: Mutex<()>,
    /// See [`fork::generation`].
    generation: u32,
}

#[derive(Default)]
struct AllocatorState {
    arenas: Vec<Arc<Segment>>,
    free: FreeLists,
    used_bytes: u64,
    warm_bytes_max: u64,
    /// Bytes in large blocks freed since the warm memory was last measured.
    unmeasured_bytes: u64,
}

impl AllocatorState {
    /// Bytes of memory behind the arenas that no block uses. Asks the kernel once per arena; blocks
    /// that were never written make it an underestimate.
    fn warm_bytes(&self) -> u64 {
        let resident: u64 = self.arenas.iter().map(|arena| arena.resident_bytes()).sum();
        resident.saturating_sub(self.used_bytes)
    }
}

/// How an allocator stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStats {
    /// Arenas.
    pub arenas: usize,
    /// Bytes in them.
    pub total_bytes: u64,
    /// Bytes in blocks that live, rounding included.
    pub used_bytes: u64,
    /// Free bytes that may still hold memory.
    pub warm_bytes: u64,
    /// Free extents.
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

    /// Adds a received arena, announced as `len` bytes long. Its number must be the one that the
    /// daemon gave it; they count from 0 in the order of granting.
    ///
    /// # Errors
    /// If the segment is not what was announced.
    pub fn add(&self, fd: OwnedFd, len: u64) -> Result<u32> {
        let segment = Segment::map_peer(fd, len, Access::ReadWrite)?;
        advise_huge_pages(&segment);
        let mut state = self.0.lock();
        let arena = state.arenas.len() as u32;
        state.arenas.push(Arc::new(segment));
        state.free.insert(arena, Extent { offset: 0, len });
        Ok(arena)
    }

    /// A block of `bytes` bytes, aligned to [`SMALL_ALIGN_BYTES`] or, from [`LARGE_BYTES_MIN`] on,
    /// to pages. Its content is whatever was there. O(log n) in the number of free extents.
    ///
    /// # Errors
    /// [`NeedMore`] if no arena has room.
    pub fn alloc(&self, bytes: u64) -> Result<ArenaBlock, NeedMore> {
        let unit = if bytes >= LARGE_BYTES_MIN { PAGE_BYTES as u64 } else { SMALL_ALIGN_BYTES };
        let need = NeedMore { bytes: bytes.saturating_add(unit) };
        let rounded = bytes.max(1).checked_next_multiple_of(unit).ok_or(need)?;
        if self.0.generation != fork::generation() {
            // The arenas belong to the parent process, whose allocator knows nothing of ours.
            return Err(need);
        }
        let mut state = self.0.lock();
        let mut found = state.free.take(rounded, unit);
        if found.is_none() {
            // An extent with room may be away being trimmed: wait until it is back.
            drop(state);
            let _trimmed = self.0.trim.lock().unwrap_or_else(PoisonError::into_inner);
            state = self.0.lock();
            found = state.free.take(rounded, unit);
        }
        let (arena, extent) = found.ok_or(need)?;
        state.used_bytes += rounded;
        let segment = state.arenas[arena as usize].clone();
        drop(state);
        Ok(ArenaBlock { shared: self.0.clone(), segment, arena, offset: extent.offset, rounded, len: bytes as usize })
    }

    /// Gives free memory back to the system until at most `keep_bytes` of it are kept. Returns the
    /// bytes given back.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn trim(&self, keep_bytes: u64) -> Result<u64> {
        self.0.trim(keep_bytes)
    }

    /// How the allocator stands.
    pub fn stats(&self) -> ArenaStats {
        let state = self.0.lock();
        ArenaStats {
            arenas: state.arenas.len(),
            total_bytes: state.arenas.iter().map(|s| s.len() as u64).sum(),
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
        // No code that holds the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trim(&self, keep_bytes: u64) -> Result<u64> {
        if self.generation != fork::generation() {
            return Ok(0);
        }
        let _trimming = self.trim.lock().unwrap_or_else(PoisonError::into_inner);
        let mut given_back = 0;
        // The largest extents first, each looked at once: what is freed meanwhile is the next trim's.
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
            let segment = state.arenas[arena as usize].clone();
            // Punching gigabytes takes milliseconds: not under the lock. Nobody else can get the
            // extent meanwhile.
            drop(state);
            let before = segment.resident_bytes();
            let punched = segment.punch(offset, len);
            given_back += before.saturating_sub(segment.resident_bytes());
            state = self.lock();
            state.free.insert(arena, Extent { offset, len });
            punched?;
        }
        Ok(given_back)
    }
}

/// A piece of free arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    offset: u64,
    len: u64,
}

/// The free extents of all arenas. No two of one arena touch.
#[derive(Default)]
struct FreeLists {
    /// (arena, offset) → len.
    by_place: BTreeMap<(u32, u64), u64>,
    /// (len, arena, offset): the smallest that fits comes first.
    by_len: BTreeSet<(u64, u32, u64)>,
}

impl FreeLists {
    /// Adds an extent, joined with its neighbours.
    fn insert(&mut self, arena: u32, mut extent: Extent) {
        let before = self.by_place.range((arena, 0)..(arena, extent.offset)).next_back();
        if let Some((&(_, offset), &len)) = before
            && offset + len == extent.offset
        {
            self.remove(arena, offset, len);
            extent = Extent { offset, len: len + extent.len };
        }
        let end = extent.offset + extent.len;
        if let Some(&len) = self.by_place.get(&(arena, end)) {
            self.remove(arena, end, len);
            extent.len += len;
        }
        self.by_place.insert((arena, extent.offset), extent.len);
        self.by_len.insert((extent.len, arena, extent.offset));
    }

    /// Takes an extent out. False if there is none like it.
    fn remove(&mut self, arena: u32, offset: u64, len: u64) -> bool {
        let found = self.by_len.remove(&(len, arena, offset));
        if found {
            self.by_place.remove(&(arena, offset));
        }
        found
    }

    /// Takes `len` bytes aligned to `align` out of the smallest extent that surely holds them.
    fn take(&mut self, len: u64, align: u64) -> Option<(u32, Extent)> {
        let fits = |&&(have, _, offset): &&(u64, u32, u64)| {
            (offset.next_multiple_of(align) - offset).saturating_add(len) <= have
        };
        // One look at the best fit; if its alignment spoils it, an extent that fits however it lies.
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

/// Bytes of an arena that belong to whoever holds this; given back on drop. The memory is shared with
/// the daemon: while an instruction that names the block is in flight, keep the block and leave its
/// bytes alone.
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
    /// The number of its arena, as the daemon counts them.
    pub fn arena(&self) -> u32 {
        self.arena
    }

    /// Its first byte's place in the arena.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Its bytes, as asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True of a block of no bytes (which still occupies its alignment).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte: valid for reads and writes of [`len`](Self::len) bytes while the block lives.
    pub fn as_ptr(&self) -> *mut u8 {
        self.segment.as_ptr().wrapping_add(self.offset as usize)
    }

    /// Copies `from` to the start of the block.
    ///
    /// # Panics
    /// If it is longer than the block.
    pub fn write(&mut self, from: &[u8]) {
        assert!(from.len() <= self.len, "{} bytes into a block of {}", from.len(), self.len);
        // SAFETY: inside the block, which is ours alone by `&mut self` and the allocator; the daemon
        // reads it only when told to.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.as_ptr(), from.len()) };
    }

    /// Copies the start of the block into `to`.
    ///
    /// # Panics
    /// If that is longer than the block.
    pub fn read(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len, "{} bytes out of a block of {}", to.len(), self.len);
        // SAFETY: inside the block, which nobody writes while no instruction names it.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), to.as_mut_ptr(), to.len()) };
    }

    /// The block's bytes.
    ///
    /// # Safety
    /// No instruction in flight may write the block while the slice lives.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: inside the mapping that `segment` keeps alive; unchanging, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }
    }
}

impl Drop for ArenaBlock {
    fn drop(&mut self) {
        if self.shared.generation != fork::generation() {
            // A forked child's copy: the bytes are its parent's, and the lock may be held by a thread
            // that does not exist here.
            return;
        }
        let mut state = self.shared.lock();
        state.used_bytes -= self.rounded;
        state.free.insert(self.arena, Extent { offset: self.offset, len: self.rounded });
        if self.rounded < LARGE_BYTES_MIN {
            return;
        }
        // Measuring costs a system call per arena, so only now and then.
        state.unmeasured_bytes += self.rounded;
        let keep = state.warm_bytes_max;
        if state.unmeasured_bytes < keep / 8 {
            return;
        }
        state.unmeasured_bytes = 0;
        if state.warm_bytes() > keep {
            drop(state);
            // Half, so that the next drops do not trim again. Memory that the kernel will not take
            // back is still free.
            let _ = self.shared.trim(keep / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes in each of the two arenas of the model.
    const ARENA_BYTES: u64 = 64 * PAGE_BYTES as u64;

    fn fresh() -> FreeLists {
        let mut free = FreeLists::default();
        for arena in 0..2 {
            free.insert(arena, Extent { offset: 0, len: ARENA_BYTES });
        }
        free
    }

    /// The free extents and the blocks tile the arenas, and neighbours are joined.
    fn check(free: &FreeLists, blocks: &[(u32, Extent)]) {
        assert_eq!(free.by_place.len(), free.by_len.len());
        for (&(arena, offset), &len) in &free.by_place {
            assert!(free.by_len.contains(&(len, arena, offset)));
            assert!(!free.by_place.contains_key(&(arena, offset + len)), "neighbours not joined");
        }
        let mut pieces: Vec<_> = free.by_place.iter().map(|(&(a, o), &l)| (a, o, l)).collect();
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
