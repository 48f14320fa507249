//! Memory of tensors: a caching allocator with a byte limit.
//!
//! Sizes are rounded up to classes, eight to a doubling, and a freed block waits in its class's list for the next
//! tensor of that size: a training step then asks the system for nothing. Blocks of [`MAP_BYTES_MIN`] and more are
//! mappings of their own, on huge pages, since page faults otherwise cost several times what a kernel does.
//!
//! Each block is held in the name of an account, which has a limit of its own. A freed block remembers whose it was:
//! who held it before is given it first, and for anybody else it is cleared.
//!
//! Where other processes are to reach tensors, blocks of [`SHARED_BYTES_MIN`] and more lie in a segment that those have
//! mapped, as far as there is room.

use crate::space::SharedSpace;
use gt_backend::{ExecError, LimitScope, MemoryStats, MemoryUsage};
use gt_shm::Segment;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Every block starts at a multiple of this: a cache line, and the widest vector.
pub const ALIGN_BYTES: usize = 64;
/// Blocks from here on are mapped by themselves, on huge pages.
pub const MAP_BYTES_MIN: usize = 2 << 20;
/// Blocks from here on others reach, where they are to reach any: sizes of classes are whole pages from here on.
pub const SHARED_BYTES_MIN: usize = 32 << 10;
/// Whether pages can be moved from one mapping to another.
const MOVES_PAGES: bool = cfg!(all(target_os = "linux", not(miri)));
/// Past this nothing is moved: each huge page that was moved may be a mapping, of which a process may have 65,530.
const MOVING_FOOTPRINT_BYTES_MAX: usize = 32 << 30;
/// Free blocks together hold at most the limit divided by this.
const CACHE_SHARE_OF_LIMIT: usize = 4;
/// So many free blocks of a class are looked at for one that the account held before.
const OWN_BLOCKS_TRIED: usize = 8;
/// Classes up to blocks of 2^51 bytes: more than a shape can name.
const CLASSES: usize = 360;

/// Where the data of a block lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockStorage {
    /// Right after the header, in one heap allocation.
    AfterHeader,
    /// In a mapping of their own.
    Mapped,
    /// In the heap's [`SharedSpace`].
    Shared,
}

/// One piece of memory and who holds it.
#[repr(C, align(64))]
struct HeapBlock {
    /// How many [`Buffer`]s name the block.
    refs: AtomicUsize,
    /// Valid as long as the block is: the heap outlives its live blocks.
    heap: *const Mutex<Heap>,
    data: *mut u8,
    place: BlockStorage,
    capacity_bytes: usize,
    class: usize,
    /// The place of the account in whose name it is held.
    holder: usize,
    /// The number of the account whose data it has.
    owner: u64,
    /// The next free block of the class; only used under the heap's lock.
    next_free: *mut HeapBlock,
}

struct Heap {
    /// The first free block of each class.
    free: [*mut HeapBlock; CLASSES],
    /// When each class was last asked for.
    asked: [u64; CLASSES],
    clock: u64,
    live_blocks: usize,
    /// Accounts that hold blocks, and the current one.
    holders: Vec<Option<Held>>,
    holder_of: HashMap<u64, usize>,
    current: usize,
    stats: MemoryStats,
    cached_bytes_max: usize,
    /// What others reach.
    space: Option<SharedSpace>,
    /// The allocator is gone: the last block to be freed takes the heap with it.
    orphan: bool,
}

/// What is held in an account's name.
struct Held {
    account: Arc<MemoryUsage>,
    bytes: usize,
    blocks: usize,
}

// SAFETY: the free lists own their blocks; nobody else has pointers to them.
unsafe impl Send for Heap {}

/// Hands out [`Buffer`]s.
pub struct CachingAllocator {
    heap: NonNull<Mutex<Heap>>,
    /// The current account, which the heap keeps.
    current: Cell<*const MemoryUsage>,
}

// SAFETY: the account is only compared with, and the heap is behind a mutex.
unsafe impl Send for CachingAllocator {}

/// Shared ownership of a block. Its bytes are reached through raw pointers only.
pub struct Buffer {
    block: NonNull<HeapBlock>,
}

// SAFETY: the count is atomic, and the bytes are only reached through raw pointers by code that answers for it.
unsafe impl Send for Buffer {}

fn class_of(bytes: usize) -> usize {
    let units = bytes.div_ceil(ALIGN_BYTES).max(1);
    // The top four bits of `units - 1` stay: eight classes to a doubling.
    let shift = (usize::BITS - (units - 1).leading_zeros()).saturating_sub(4) as usize;
    shift * 8 + ((units - 1) >> shift)
}

fn capacity_of(class: usize) -> usize {
    let shift = (class / 8).saturating_sub(1);
    ((class - shift * 8 + 1) << shift) * ALIGN_BYTES
}

/// The class of the largest blocks that `bytes` hold.
fn class_within(bytes: usize) -> usize {
    let class = class_of(bytes);
    if capacity_of(class) > bytes { class - 1 } else { class }
}

fn lock(heap: &Mutex<Heap>) -> MutexGuard<'_, Heap> {
    // The heap is consistent between any two statements that could panic.
    heap.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachingAllocator {
    /// An allocator whose blocks together hold at most `limit_bytes`; in `shared`, if others are to reach them.
    pub fn new(limit_bytes: usize, shared: Option<Arc<Segment>>) -> CachingAllocator {
        let account = Arc::new(MemoryUsage::new(0));
        let current = Cell::new(Arc::as_ptr(&account));
        let heap = Box::new(Mutex::new(Heap {
            free: [ptr::null_mut(); CLASSES],
            asked: [0; CLASSES],
            clock: 0,
            live_blocks: 0,
            holder_of: HashMap::from([(account.id(), 0)]),
            holders: vec![Some(Held { account, bytes: 0, blocks: 0 })],
            current: 0,
            stats: MemoryStats { limit_bytes, ..MemoryStats::default() },
            cached_bytes_max: limit_bytes / CACHE_SHARE_OF_LIMIT,
            space: shared.map(SharedSpace::new),
            orphan: false,
        }));
        CachingAllocator { heap: NonNull::from(Box::leak(heap)), current }
    }

    fn heap(&self) -> MutexGuard<'_, Heap> {
        // SAFETY: the heap is freed only after this allocator is dropped.
        lock(unsafe { self.heap.as_ref() })
    }

    /// Blocks are held in the name of `account` from now on.
    #[inline]
    pub fn charge(&self, account: &Arc<MemoryUsage>) {
        let current = Arc::as_ptr(account);
        if self.current.replace(current) != current {
            self.heap().charge(account);
        }
    }

    /// Bytes of blocks that are held in the name of `account`.
    pub fn held(&self, account: &MemoryUsage) -> usize {
        let heap = self.heap();
        heap.holder_of.get(&account.id()).and_then(|place| heap.holders[*place].as_ref()).map_or(0, |held| held.bytes)
    }

    /// At least `bytes` bytes, which are initialized: zeros, or what the current account left there.
    ///
    /// # Errors
    /// [`ExecError::OutOfMemory`] past the limit or the account's, or when the system has no more.
    #[inline]
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, ExecError> {
        let class = class_of(bytes);
        let mut heap = self.heap();
        heap.clock += 1;
        heap.asked[class] = heap.clock;
        let capacity_bytes = capacity_of(class);
        let (place, owner) = heap.pay(capacity_bytes, bytes)?;
        if heap.free[class].is_null() {
            return heap.grow(self.heap, bytes, class).inspect_err(|_| heap.refund(place, capacity_bytes));
        }
        let block = heap.free_block(class, owner);
        // SAFETY: the block was free and is the heap's, which is locked; what it has of others is cleared.
        unsafe {
            (*block).refs = AtomicUsize::new(1);
            (*block).holder = place;
            if (*block).owner != owner {
                (*block).owner = owner;
                ptr::write_bytes((*block).data, 0, capacity_bytes);
            }
        }
        heap.stats.cached_bytes -= capacity_bytes;
        heap.took(capacity_bytes);
        // SAFETY: not null.
        Ok(Buffer { block: unsafe { NonNull::new_unchecked(block) } })
    }

    /// What is held and cached.
    pub fn stats(&self) -> MemoryStats {
        self.heap().stats
    }

    /// Returns all free blocks to the system.
    pub fn trim(&self) {
        self.heap().shrink_cache_to(0);
    }
}

impl Drop for CachingAllocator {
    fn drop(&mut self) {
        let mut heap = self.heap();
        heap.shrink_cache_to(0);
        heap.orphan = true;
        let last = heap.live_blocks == 0;
        drop(heap);
        if last {
            // SAFETY: no block is left, so nobody else has a pointer to the heap, which came from a Box.
            drop(unsafe { Box::from_raw(self.heap.as_ptr()) });
        }
    }
}

impl Heap {
    /// Blocks are held in the name of `account` from now on.
    fn charge(&mut self, account: &Arc<MemoryUsage>) {
        let before = self.current;
        self.current = match self.holder_of.get(&account.id()) {
            Some(place) => *place,
            None => {
                let held = Some(Held { account: account.clone(), bytes: 0, blocks: 0 });
                let place = self.holders.iter().position(Option::is_none).unwrap_or(self.holders.len());
                if place == self.holders.len() {
                    self.holders.push(held);
                } else {
                    self.holders[place] = held;
                }
                self.holder_of.insert(account.id(), place);
                place
            }
        };
        self.forget(before);
    }

    /// Forgets an account that holds nothing, unless it is the current one.
    fn forget(&mut self, place: usize) {
        if place != self.current
            && let Some(held) = self.holders[place].take_if(|held| held.blocks == 0)
        {
            self.holder_of.remove(&held.account.id());
        }
    }

    /// Charges the current account for a block. Its place and its number.
    #[inline]
    fn pay(&mut self, capacity_bytes: usize, requested: usize) -> Result<(usize, u64), ExecError> {
        let place = self.current;
        let Some(held) = &mut self.holders[place] else { return Err(ExecError::internal("memory in nobody's name")) };
        held.account.take(capacity_bytes, requested)?;
        held.bytes += capacity_bytes;
        held.blocks += 1;
        Ok((place, held.account.id()))
    }

    #[inline]
    fn refund(&mut self, place: usize, capacity_bytes: usize) {
        let Some(held) = &mut self.holders[place] else { return };
        held.account.give(capacity_bytes);
        held.bytes -= capacity_bytes;
        held.blocks -= 1;
        if held.blocks == 0 {
            self.forget(place);
        }
    }

    /// Takes a free block of a class that has some from its list: one that `owner` held before, if there is one near.
    fn free_block(&mut self, class: usize, owner: u64) -> *mut HeapBlock {
        let first = self.free[class];
        let mut link: *mut *mut HeapBlock = &raw mut self.free[class];
        // SAFETY: free blocks belong to the heap, which is locked, and so do the links between them.
        unsafe {
            for _ in 0..OWN_BLOCKS_TRIED {
                let block = *link;
                if block.is_null() {
                    break;
                }
                if (*block).owner == owner {
                    *link = (*block).next_free;
                    return block;
                }
                link = &raw mut (*block).next_free;
            }
            self.free[class] = (*first).next_free;
        }
        first
    }

    fn took(&mut self, capacity_bytes: usize) {
        self.live_blocks += 1;
        self.stats.used_bytes += capacity_bytes;
        self.stats.used_bytes_peak = self.stats.used_bytes_peak.max(self.stats.used_bytes);
    }

    #[cold]
    fn grow(&mut self, heap: NonNull<Mutex<Heap>>, bytes: usize, class: usize) -> Result<Buffer, ExecError> {
        let capacity_bytes = capacity_of(class);
        let MemoryStats { used_bytes, limit_bytes, .. } = self.stats;
        let refused = ExecError::OutOfMemory {
            requested: bytes,
            held: used_bytes,
            limit: limit_bytes,
            scope: LimitScope::Device,
        };
        let Some(cached_bytes_max) =
            limit_bytes.checked_sub(used_bytes).and_then(|left| left.checked_sub(capacity_bytes))
        else {
            return Err(refused);
        };
        self.shrink_cache_to(cached_bytes_max);
        let Some((block, data, place)) = self.fresh(capacity_bytes).or_else(|| {
            self.shrink_cache_to(0);
            self.fresh(capacity_bytes)
        }) else {
            return Err(refused);
        };
        let holder = self.current;
        let owner = self.holders[holder].as_ref().map_or(0, |held| held.account.id());
        let header = HeapBlock {
            refs: AtomicUsize::new(1),
            heap: heap.as_ptr(),
            data,
            place,
            capacity_bytes,
            class,
            holder,
            owner,
            next_free: ptr::null_mut(),
        };
        // SAFETY: `fresh` gave room for a header there, that nobody else knows.
        unsafe { block.as_ptr().write(header) };
        let footprint_bytes = self.stats.used_bytes + self.stats.cached_bytes;
        let moves = MOVES_PAGES && place == BlockStorage::Mapped && footprint_bytes <= MOVING_FOOTPRINT_BYTES_MAX;
        if moves && !self.furnish(data, capacity_bytes, owner) {
            // SAFETY: nobody else knows the block.
            unsafe { self.release(block.as_ptr()) };
            return Err(refused);
        }
        self.took(capacity_bytes);
        Ok(Buffer { block })
    }

    /// Moves pages of free blocks into a new mapping of `room` bytes, those of the class asked for longest ago first.
    ///
    /// Those that others than `owner` held are cleared. Otherwise the free blocks of all classes together would come
    /// to much more than what is ever held at one time; and pages that are there need not be cleared by the system.
    /// False if the new mapping is in ruins.
    #[must_use]
    fn furnish(&mut self, data: *mut u8, room: usize, owner: u64) -> bool {
        let mut at = 0;
        while at + MAP_BYTES_MIN <= room {
            let stale = (class_of(MAP_BYTES_MIN)..CLASSES)
                // SAFETY: a block on a list is the heap's.
                .filter(|class| {
                    unsafe { self.free[*class].as_ref() }.is_some_and(|block| block.place == BlockStorage::Mapped)
                })
                .min_by_key(|class| self.asked[*class]);
            let Some(class) = stale else { return true };
            let block = self.free[class];
            let wanted = (room - at) / MAP_BYTES_MIN * MAP_BYTES_MIN;
            // SAFETY: a free block belongs to the heap; it leaves the list before its pages do. The new mapping has
            // room for what is wanted from `at` on.
            unsafe {
                self.free[class] = (*block).next_free;
                let held = (*block).capacity_bytes;
                self.stats.cached_bytes -= held;
                let moved = move_pages((*block).data, data.add(at), wanted.min(held));
                let Ok(bytes) = moved else {
                    self.release(block);
                    return false;
                };
                if (*block).owner != owner {
                    ptr::write_bytes(data.add(at), 0, bytes);
                }
                at += bytes;
                let left = held - bytes;
                if left < MAP_BYTES_MIN {
                    unmap((*block).data.add(bytes), left);
                    dealloc(block.cast(), header_layout(held, BlockStorage::Mapped));
                    continue;
                }
                // The rest of the block is a smaller block.
                let class = class_within(left);
                let kept = capacity_of(class);
                (*block).data = (*block).data.add(bytes);
                (*block).capacity_bytes = kept;
                (*block).class = class;
                unmap((*block).data.add(kept), left - kept);
                (*block).next_free = self.free[class];
                self.free[class] = block;
                self.stats.cached_bytes += kept;
                if bytes == 0 {
                    return true;
                }
            }
        }
        true
    }

    /// Returns the blocks of the classes asked for longest ago until at most this much is cached.
    fn shrink_cache_to(&mut self, cached_bytes_max: usize) {
        while self.stats.cached_bytes > cached_bytes_max {
            let stale =
                (0..CLASSES).filter(|class| !self.free[*class].is_null()).min_by_key(|class| self.asked[*class]);
            let Some(class) = stale else { return };
            while !self.free[class].is_null() && self.stats.cached_bytes > cached_bytes_max {
                let block = self.free[class];
                // SAFETY: a free block belongs to the heap; it leaves the list before it is released.
                unsafe {
                    self.free[class] = (*block).next_free;
                    self.stats.cached_bytes -= (*block).capacity_bytes;
                    self.release(block);
                }
            }
        }
    }

    /// Room for a header and `capacity_bytes` of data, all zeros; small data follow their header.
    fn fresh(&mut self, capacity_bytes: usize) -> Option<(NonNull<HeapBlock>, *mut u8, BlockStorage)> {
        let align = if capacity_bytes < MAP_BYTES_MIN { SHARED_BYTES_MIN } else { MAP_BYTES_MIN };
        let space = self.space.as_mut().filter(|_| capacity_bytes >= SHARED_BYTES_MIN);
        let (data, place) = match space.and_then(|space| space.take(capacity_bytes, align)) {
            Some(data) => (data, BlockStorage::Shared),
            None if capacity_bytes >= MAP_BYTES_MIN => (map(capacity_bytes)?, BlockStorage::Mapped),
            None => (ptr::null_mut(), BlockStorage::AfterHeader),
        };
        // SAFETY: the layout is not of size 0.
        let block = unsafe { alloc_zeroed(header_layout(capacity_bytes, place)) };
        let Some(header) = NonNull::new(block.cast::<HeapBlock>()) else {
            self.release_data(data, capacity_bytes, place);
            return None;
        };
        // SAFETY: the layout has `capacity_bytes` after the header of a block without data elsewhere.
        let data = if place == BlockStorage::AfterHeader { unsafe { block.add(size_of::<HeapBlock>()) } } else { data };
        Some((header, data, place))
    }

    fn release_data(&mut self, data: *mut u8, capacity_bytes: usize, place: BlockStorage) {
        match (place, &mut self.space) {
            (BlockStorage::Mapped, _) => unmap(data, capacity_bytes),
            (BlockStorage::Shared, Some(space)) => space.give(data, capacity_bytes),
            _ => (),
        }
    }

    /// # Safety
    /// The block came from [`Heap::fresh`] and is not used again.
    unsafe fn release(&mut self, block: *mut HeapBlock) {
        // SAFETY: the caller's promise.
        unsafe {
            let HeapBlock { data, capacity_bytes, place, .. } = *block;
            self.release_data(data, capacity_bytes, place);
            dealloc(block.cast(), header_layout(capacity_bytes, place));
        }
    }
}

fn header_layout(capacity_bytes: usize, place: BlockStorage) -> Layout {
    let data = if place == BlockStorage::AfterHeader { capacity_bytes } else { 0 };
    // SAFETY: the alignment is a power of two and the size is far from overflow.
    unsafe { Layout::from_size_align_unchecked(size_of::<HeapBlock>() + data, ALIGN_BYTES) }
}

/// A mapping of `bytes` (a multiple of 64) at a multiple of 2 MiB, on huge pages where the system has them.
#[cfg(all(unix, not(miri)))]
fn map(bytes: usize) -> Option<*mut u8> {
    const HUGE: usize = MAP_BYTES_MIN;
    let wide = bytes.checked_add(HUGE)?;
    // SAFETY: a new private mapping touches no memory of ours.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            wide,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start = start.cast::<u8>();
    let before = start.align_offset(HUGE);
    let kept = bytes.next_multiple_of(PAGE_BYTES);
    let after = wide - before - kept;
    // SAFETY: both trimmed ends lie in the new mapping, outside what is kept; `before` and `kept` are whole pages. The
    // advice changes no content, and it does not matter whether it is taken.
    unsafe {
        let data = start.add(before);
        if before > 0 {
            libc::munmap(start.cast(), before);
        }
        if after > 0 {
            libc::munmap(data.add(kept).cast(), after);
        }
        #[cfg(target_os = "linux")]
        libc::madvise(data.cast(), kept, libc::MADV_HUGEPAGE);
        Some(data)
    }
}

/// Moves the pages at `from` to a mapping at `to`; both start at multiples of [`MAP_BYTES_MIN`]. Returns how many
/// bytes, from the first on, are no longer mapped at `from`; an error if some are not mapped at `to` either.
///
/// # Safety
/// Both are mapped for `bytes`, and nobody uses them.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn move_pages(from: *mut u8, to: *mut u8, bytes: usize) -> Result<usize, ()> {
    let mut moved = 0;
    // One huge page after the other: a block whose pages came from several mappings cannot be moved at once.
    while moved + MAP_BYTES_MIN <= bytes {
        // SAFETY: the caller's promise. A move that fails may have unmapped its destination, which is then mapped anew.
        unsafe {
            let (from, to) = (from.add(moved).cast::<libc::c_void>(), to.add(moved).cast::<libc::c_void>());
            let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            if libc::mremap(from, MAP_BYTES_MIN, MAP_BYTES_MIN, flags, to) == libc::MAP_FAILED {
                let access = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                let again = libc::mmap(to, MAP_BYTES_MIN, access, flags, -1, 0);
                return if again == libc::MAP_FAILED { Err(()) } else { Ok(moved) };
            }
        }
        moved += MAP_BYTES_MIN;
    }
    Ok(moved)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
unsafe fn move_pages(_from: *mut u8, _to: *mut u8, _bytes: usize) -> Result<usize, ()> {
    Ok(0)
}

#[cfg(all(unix, not(miri)))]
const PAGE_BYTES: usize = if cfg!(target_arch = "aarch64") { 64 << 10 } else { 4 << 10 };

#[cfg(all(unix, not(miri)))]
fn unmap(data: *mut u8, bytes: usize) {
    // SAFETY: exactly the range that `map` kept, and no longer in use.
    unsafe { libc::munmap(data.cast(), bytes.next_multiple_of(PAGE_BYTES)) };
}

#[cfg(any(not(unix), miri))]
fn map(bytes: usize) -> Option<*mut u8> {
    let layout = Layout::from_size_align(bytes, ALIGN_BYTES).ok()?;
    // SAFETY: not of size 0.
    let data = unsafe { alloc_zeroed(layout) };
    (!data.is_null()).then_some(data)
}

#[cfg(any(not(unix), miri))]
fn unmap(data: *mut u8, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, ALIGN_BYTES) {
        // SAFETY: the layout that `map` used.
        unsafe { dealloc(data, layout) };
    }
}

impl Buffer {
    /// The first byte; valid for [`Buffer::capacity_bytes`] while a handle lives.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: a handle keeps its block alive, and `data` never changes while it does.
        unsafe { (*self.block.as_ptr()).data }
    }
    /// The size of the block.
    #[inline]
    pub fn capacity_bytes(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.block.as_ptr()).capacity_bytes }
    }
    /// Whether this is the only handle.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.refs().load(Ordering::Acquire) == 1
    }
    #[inline]
    fn refs(&self) -> &AtomicUsize {
        // SAFETY: a handle keeps its block alive.
        unsafe { &(*self.block.as_ptr()).refs }
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Buffer {
        // As in `Arc`: the new handle is made from one that keeps the block alive.
        self.refs().fetch_add(1, Ordering::Relaxed);
        Buffer { block: self.block }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if self.refs().fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // As in `Arc`: what other handles did comes before the block is used again.
        fence(Ordering::Acquire);
        let block = self.block.as_ptr();
        // SAFETY: this was the last handle, so the block is ours until it is on a list; a live block keeps its heap.
        let (heap, capacity_bytes, class, holder) =
            unsafe { ((*block).heap, (*block).capacity_bytes, (*block).class, (*block).holder) };
        // SAFETY: as above.
        let mut locked = lock(unsafe { &*heap });
        locked.live_blocks -= 1;
        locked.stats.used_bytes -= capacity_bytes;
        locked.refund(holder, capacity_bytes);
        if locked.orphan {
            let last = locked.live_blocks == 0;
            // SAFETY: the block is on no list.
            unsafe { locked.release(block) };
            drop(locked);
            if last {
                // SAFETY: the last block takes the heap, which its allocator left to it.
                drop(unsafe { Box::from_raw(heap.cast_mut()) });
            }
            return;
        }
        // SAFETY: the block is ours.
        unsafe { (*block).next_free = locked.free[class] };
        locked.free[class] = block;
        locked.stats.cached_bytes += capacity_bytes;
        if locked.stats.cached_bytes > locked.cached_bytes_max {
            let most = locked.cached_bytes_max;
            locked.shrink_cache_to(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_what_they_are_asked_for_and_waste_an_eighth_at_most() {
        let mut last = 0;
        for bytes in
            (0..if cfg!(miri) { 500 } else { 100_000 }).chain([1 << 20, (1 << 20) + 1, 1 << 30, (1 << 40) - 1, 1 << 51])
        {
            let class = class_of(bytes);
            let capacity = capacity_of(class);
            assert!(capacity >= bytes && class >= last && class < CLASSES, "{bytes} {class} {capacity}");
            assert!(capacity <= bytes.max(ALIGN_BYTES) + (bytes / 8).max(ALIGN_BYTES - 1), "{bytes} {capacity}");
            assert_eq!(class_of(capacity), class);
            last = class;
        }
    }

    #[test]
    fn a_freed_block_serves_the_next_tensor_of_its_size() {
        let allocator = CachingAllocator::new(1 << 20, None);
        let first = allocator.allocate(1000).unwrap();
        let place = first.as_ptr();
        assert_eq!(place.align_offset(ALIGN_BYTES), 0);
        drop(first);
        let cached = allocator.stats().cached_bytes;
        assert!(cached >= 1000);
        let again = allocator.allocate(990).unwrap();
        assert_eq!(again.as_ptr(), place);
        assert_eq!(allocator.stats().cached_bytes, 0);
        assert_eq!(allocator.stats().used_bytes, cached);
        drop(again);
        allocator.trim();
        let stats = allocator.stats();
        assert_eq!((stats.used_bytes, stats.cached_bytes, stats.used_bytes_peak), (0, 0, cached));
    }

    #[test]
    fn the_limit_counts_the_cache_but_gives_it_up_first() {
        let allocator = CachingAllocator::new(64 << 10, None);
        drop(allocator.allocate(16 << 10).unwrap());
        let most = allocator.allocate(50 << 10).unwrap();
        assert_eq!(allocator.stats().cached_bytes, 0);
        let error = allocator.allocate(16 << 10).err().unwrap();
        assert_eq!(
            error,
            ExecError::OutOfMemory {
                requested: 16 << 10,
                held: most.capacity_bytes(),
                limit: 64 << 10,
                scope: LimitScope::Device
            }
        );
        drop(most);
        assert!(allocator.allocate(60 << 10).is_ok());
    }

    /// All bytes of a block.
    fn bytes(block: &Buffer) -> &[u8] {
        // SAFETY: initialized, and nobody writes while the test looks.
        unsafe { std::slice::from_raw_parts(block.as_ptr(), block.capacity_bytes()) }
    }

    fn fill(block: &Buffer) {
        // SAFETY: within the block, which is ours.
        unsafe { block.as_ptr().write_bytes(7, block.capacity_bytes()) };
    }

    #[test]
    fn memory_is_cleared_before_another_account_has_it() {
        let allocator = CachingAllocator::new(256 << 20, None);
        let [one, two] = [1, 2].map(|id| Arc::new(MemoryUsage::new(id)));
        // Small blocks, mapped ones, and one whose pages come from others.
        for (left, taken) in
            [(100, 100), (5 << 10, 5 << 10), (3 << 20, 3 << 20), (8 << 20, 40 << 20), (40 << 20, 6 << 20)]
        {
            allocator.charge(&one);
            let blocks: Vec<Buffer> = (0..3).map(|_| allocator.allocate(left).unwrap()).collect();
            blocks.iter().for_each(fill);
            drop(blocks);
            allocator.charge(&two);
            let blocks: Vec<Buffer> = (0..3).map(|_| allocator.allocate(taken).unwrap()).collect();
            for block in &blocks {
                assert!(bytes(block).iter().all(|byte| *byte == 0), "{left} {taken}");
            }
        }
    }

    #[test]
    fn who_held_a_block_gets_it_back_as_it_was() {
        let allocator = CachingAllocator::new(1 << 20, None);
        let [one, two] = [1, 2].map(|id| Arc::new(MemoryUsage::new(id)));
        let mut blocks = Vec::new();
        for account in [&one, &two] {
            allocator.charge(account);
            blocks.push(allocator.allocate(1000).unwrap());
            blocks.iter().for_each(fill);
        }
        blocks.clear();
        allocator.charge(&one);
        let own = allocator.allocate(1000).unwrap();
        assert!(bytes(&own).iter().all(|byte| *byte == 7));
        assert_eq!((allocator.held(&one), allocator.held(&two)), (own.capacity_bytes(), 0));
    }

    #[test]
    fn an_account_pays_for_its_blocks_wherever_they_are_freed() {
        let allocator = CachingAllocator::new(1 << 20, None);
        let account = Arc::new(MemoryUsage::new(1));
        account.set_limit(3000);
        allocator.charge(&account);
        let first = allocator.allocate(2000).unwrap();
        assert_eq!((account.held(), allocator.held(&account)), (first.capacity_bytes(), first.capacity_bytes()));
        let (held, limit, scope) = (first.capacity_bytes(), 3000, LimitScope::Usage);
        let refused = allocator.allocate(1500).err().unwrap();
        assert_eq!(refused, ExecError::OutOfMemory { requested: 1500, held, limit, scope });
        allocator.charge(&Arc::new(MemoryUsage::new(2)));
        assert!(allocator.allocate(10_000).is_ok());
        drop(first);
        assert_eq!((account.held(), allocator.held(&account)), (0, 0));
        // The device has no room: the account does not pay.
        account.set_limit(0);
        allocator.charge(&account);
        assert!(allocator.allocate(2 << 20).is_err());
        assert_eq!(account.held(), 0);
    }

    #[test]
    fn large_blocks_are_writable_to_the_end_and_the_cache_is_bounded() {
        let allocator = CachingAllocator::new(32 << 20, None);
        let blocks: Vec<Buffer> = (1..4).map(|i| allocator.allocate(i * MAP_BYTES_MIN + 5).unwrap()).collect();
        for block in &blocks {
            // SAFETY: within the block, which is ours.
            unsafe { block.as_ptr().add(block.capacity_bytes() - 1).write(1) };
        }
        drop(blocks);
        assert!(allocator.stats().cached_bytes <= 8 << 20);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_pages_of_free_blocks_serve_blocks_of_other_sizes() {
        let allocator = CachingAllocator::new(256 << 20, None);
        let mut most = 0;
        for megabytes in [3, 10, 4, 25, 2, 7, 40, 5] {
            let blocks: Vec<Buffer> = (0..2).map(|_| allocator.allocate(megabytes << 20).unwrap()).collect();
            for block in &blocks {
                for at in (0..block.capacity_bytes()).step_by(64 << 10) {
                    // SAFETY: within the block, which is ours.
                    unsafe { block.as_ptr().add(at).write_bytes(7, 64 << 10) };
                }
            }
            let stats = allocator.stats();
            most = most.max(stats.used_bytes);
            // What does not fill a huge page stays behind, or is given back.
            assert!(stats.used_bytes + stats.cached_bytes <= most + (4 << 20), "{megabytes}: {stats:?}, {most}");
        }
        allocator.trim();
        assert_eq!(allocator.stats().cached_bytes, 0);
    }

    #[test]
    #[cfg(not(miri))]
    fn blocks_lie_in_a_segment_as_long_as_there_is_room() {
        let access = gt_shm::Access::ReadWrite;
        let segment = Arc::new(Segment::create("test", 8 << 20, access, access).unwrap());
        let allocator = CachingAllocator::new(64 << 20, Some(segment.clone()));
        let shared = |block: &Buffer| block.as_ptr().addr().wrapping_sub(segment.as_ptr().addr()) < segment.len();
        let blocks: Vec<Buffer> =
            [100, SHARED_BYTES_MIN, 5 << 20, 5 << 20].map(|bytes| allocator.allocate(bytes).unwrap()).into();
        assert_eq!(blocks.iter().map(shared).collect::<Vec<_>>(), [false, true, true, false]);
        for block in &blocks {
            // SAFETY: within the block, which is ours.
            unsafe { block.as_ptr().write_bytes(1, block.capacity_bytes()) };
        }
        let mapped = blocks[3].as_ptr();
        drop(blocks);
        assert_ne!(segment.resident_bytes(), 0);
        allocator.trim();
        assert_eq!(segment.resident_bytes(), 0);
        let again = allocator.allocate(6 << 20).unwrap();
        assert!(shared(&again) && again.as_ptr() != mapped);
        drop(allocator);
        drop(again);
        assert_eq!(Arc::strong_count(&segment), 1);
    }

    #[test]
    fn a_buffer_may_outlive_its_allocator_on_another_thread() {
        let allocator = CachingAllocator::new(1 << 20, None);
        let (one, two) = (allocator.allocate(10).unwrap(), allocator.allocate(MAP_BYTES_MIN / 4).unwrap());
        let also_one = one.clone();
        assert!(!one.is_unique() && two.is_unique());
        drop(allocator);
        std::thread::spawn(move || drop((one, two))).join().unwrap();
        // SAFETY: within the block, which is ours.
        unsafe { also_one.as_ptr().write(7) };
    }
}
