//! The memory of tensors: a caching allocator with size classes and a byte limit.
//!
//! Sizes are rounded up to classes, eight per power of two. A freed block waits in its class's free list for the next
//! tensor of that size, so that a training step asks the system for no memory. Blocks of [`MAP_BYTES_MIN`] and more are
//! mappings of their own, on huge pages, since page faults would otherwise cost several times what a kernel does.
//!
//! Each block is charged to the [`MemoryUsage`] of a session, which has its own limit. A freed block keeps its data and
//! its owner: an allocation of the same owner gets such a block first and uncleared; for any other owner it is cleared.
//!
//! If the backend has a shared segment, blocks of [`SHARED_BYTES_MIN`] and more lie in it while it has room, so that
//! other processes can read tensors in place.

use crate::checkpoint::in_stretches;
use crate::space::SharedSpace;
use gt_backend::{ExecError, LimitScope, MemoryStats, MemoryUsage};
use gt_shm::Segment;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The alignment of every block: a cache line, and the widest vector register.
pub const ALIGN_BYTES: usize = 64;
/// Blocks of this size and more have a mapping of their own, on huge pages.
pub const MAP_BYTES_MIN: usize = 2 << 20;
/// Blocks of this size and more lie in the shared segment, if there is one. Class sizes are whole pages from here on.
pub const SHARED_BYTES_MIN: usize = 32 << 10;
/// Whether the system can move pages between mappings (`mremap`).
const MOVES_PAGES: bool = cfg!(all(target_os = "linux", not(miri)));
/// No pages are moved while live and free blocks together take more bytes than this: each moved huge page may become a
/// mapping of its own, and Linux allows a process 65,530 mappings.
const MOVING_FOOTPRINT_BYTES_MAX: usize = 32 << 30;
/// All free blocks together hold at most the limit divided by this.
const CACHE_SHARE_OF_LIMIT: usize = 4;
/// No pages are moved while free blocks together hold at most this, nor while at most the limit divided by
/// [`WHOLE_SHARE_OF_LIMIT`]: a loop whose blocks have several sizes would move the same pages to and fro, and each move
/// loses pages that do not fill a huge page, which the system then clears one by one.
const WHOLE_BYTES_MAX: usize = 64 << 20;
const WHOLE_SHARE_OF_LIMIT: usize = 32;
/// The number of free blocks of a class that are searched for one with the same owner.
const OWN_BLOCKS_TRIED: usize = 8;
/// The number of size classes, up to blocks of 2^51 bytes: more than any shape needs.
const CLASSES: usize = 360;

/// Where a block's data lie.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockStorage {
    /// Right after the header, in one heap allocation.
    AfterHeader,
    /// In a mapping of the block's own.
    Mapped,
    /// In the heap's [`SharedSpace`].
    Shared,
}

/// The header of one block of memory.
#[repr(C, align(64))]
struct HeapBlock {
    /// The number of [`Buffer`]s that refer to the block.
    refs: AtomicUsize,
    /// The heap that the block belongs to, which outlives its live blocks.
    heap: *const Mutex<Heap>,
    data: *mut u8,
    storage: BlockStorage,
    capacity_bytes: usize,
    class: usize,
    /// The index in [`Heap::usages`] of the usage that is charged for the block.
    usage_slot: usize,
    /// The id of the [`MemoryUsage`] whose data the block contains.
    owner: u64,
    /// The next free block of the class; only used under the heap's lock.
    next_free: *mut HeapBlock,
}

struct Heap {
    /// The first free block of each class.
    free: [*mut HeapBlock; CLASSES],
    /// The time of the last request of each class, by `clock`.
    last_request: [u64; CLASSES],
    clock: u64,
    live_blocks: usize,
    /// The usages that hold blocks, and the current one.
    usages: Vec<Option<UsageEntry>>,
    slot_of_usage: HashMap<u64, usize>,
    current: usize,
    stats: MemoryStats,
    cached_bytes_max: usize,
    /// The shared segment, from which blocks are taken that other processes read.
    space: Option<SharedSpace>,
    /// The allocators of this heap. When all were dropped, freeing the last live block frees the heap.
    allocators: usize,
}

/// A usage with the memory that it holds in this heap.
struct UsageEntry {
    usage: Arc<MemoryUsage>,
    bytes: usize,
    blocks: usize,
}

// SAFETY: the raw pointers are the free lists, whose blocks no `Buffer` refers to, so they move with the heap.
unsafe impl Send for Heap {}

/// Allocates [`Buffer`]s, and keeps freed blocks for later allocations.
pub struct CachingAllocator {
    heap: NonNull<Mutex<Heap>>,
    /// The usage that allocations are charged to.
    current: RefCell<Arc<MemoryUsage>>,
}

// SAFETY: the heap is behind a mutex, and outlives its allocators.
unsafe impl Send for CachingAllocator {}

/// Shared ownership of a block. Its bytes are reached through raw pointers only.
pub struct Buffer {
    block: NonNull<HeapBlock>,
}

// SAFETY: the reference count is atomic, and the bytes are reached through raw pointers only, whose users are unsafe
// code.
unsafe impl Send for Buffer {}

/// Returns free pages of the process's heap to the system, those between blocks in use too. The C library does so by
/// itself only at the heap's end: of half a million freed tensors of 4 KiB, one that is kept can hold up all.
pub fn trim_heap() {
    #[cfg(all(target_env = "gnu", not(miri)))]
    // SAFETY: the call returns pages that no allocation uses; the C library locks its heaps meanwhile.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn class_of(bytes: usize) -> usize {
    let units = bytes.div_ceil(ALIGN_BYTES).max(1);
    // The top four bits of `units - 1` are kept: eight classes per power of two.
    let shift = (usize::BITS - (units - 1).leading_zeros()).saturating_sub(4) as usize;
    shift * 8 + ((units - 1) >> shift)
}

fn capacity_of(class: usize) -> usize {
    let shift = (class / 8).saturating_sub(1);
    ((class - shift * 8 + 1) << shift) * ALIGN_BYTES
}

/// The largest class whose blocks fit in `bytes`.
fn class_within(bytes: usize) -> usize {
    let class = class_of(bytes);
    if capacity_of(class) > bytes { class - 1 } else { class }
}

/// Clears a block that had another owner. That takes a tenth of a second a gigabyte, so there are checkpoints.
///
/// # Safety
/// The block is valid for `bytes`, and nothing else accesses it.
unsafe fn clear(data: *mut u8, bytes: usize) {
    in_stretches(0, bytes, |first, last| {
        // SAFETY: `first..last` is a part of the block of this function's contract.
        unsafe { data.add(first).write_bytes(0, last - first) };
    });
}

fn lock(heap: &Mutex<Heap>) -> MutexGuard<'_, Heap> {
    // A poisoned lock is no danger: the heap is consistent at every statement that could panic.
    heap.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachingAllocator {
    /// An allocator with a limit of `limit_bytes`, which takes blocks from the segment `shared` if there is one.
    pub fn new(limit_bytes: usize, shared: Option<Arc<Segment>>) -> CachingAllocator {
        let usage = Arc::new(MemoryUsage::new(0));
        let current = RefCell::new(usage.clone());
        let heap = Box::new(Mutex::new(Heap {
            free: [ptr::null_mut(); CLASSES],
            last_request: [0; CLASSES],
            clock: 0,
            live_blocks: 0,
            slot_of_usage: HashMap::from([(usage.id(), 0)]),
            usages: vec![Some(UsageEntry { usage, bytes: 0, blocks: 0 })],
            current: 0,
            stats: MemoryStats { limit_bytes, ..MemoryStats::default() },
            cached_bytes_max: limit_bytes / CACHE_SHARE_OF_LIMIT,
            space: shared.map(SharedSpace::new),
            allocators: 1,
        }));
        CachingAllocator { heap: NonNull::from(Box::leak(heap)), current }
    }

    fn heap(&self) -> MutexGuard<'_, Heap> {
        // SAFETY: the heap is freed only after all of its allocators are dropped.
        lock(unsafe { self.heap.as_ref() })
    }

    /// Another allocator of the same heap, with the same limit. Each charges a usage of its own.
    pub fn companion(&self) -> CachingAllocator {
        self.heap().allocators += 1;
        CachingAllocator { heap: self.heap, current: self.current.clone() }
    }

    /// Charges all later allocations of this allocator to `usage`.
    #[inline]
    pub fn charge(&self, usage: &Arc<MemoryUsage>) {
        let mut current = self.current.borrow_mut();
        if !Arc::ptr_eq(&current, usage) {
            *current = usage.clone();
        }
    }

    /// The bytes that this allocator's blocks charge to `usage`.
    pub fn held(&self, usage: &MemoryUsage) -> usize {
        let heap = self.heap();
        heap.slot_of_usage.get(&usage.id()).and_then(|slot| heap.usages[*slot].as_ref()).map_or(0, |held| held.bytes)
    }

    /// A block of at least `bytes` bytes, which are initialised: zeros, or earlier data of the current usage.
    ///
    /// # Errors
    /// [`ExecError::OutOfMemory`] beyond the allocator's limit or the usage's, or when the system has no more memory.
    #[inline]
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, ExecError> {
        let class = class_of(bytes);
        let mut heap = self.heap();
        heap.clock += 1;
        heap.last_request[class] = heap.clock;
        let capacity_bytes = capacity_of(class);
        let (slot, owner) = heap.charge_usage(&self.current.borrow(), capacity_bytes, bytes)?;
        if heap.free[class].is_null() {
            return heap.grow(self.heap, bytes, class).inspect_err(|_| heap.refund(slot, capacity_bytes));
        }
        let block = heap.free_block(class, owner);
        // SAFETY: the block was on a free list, so no `Buffer` refers to it, and the heap's lock is held.
        unsafe {
            (*block).refs = AtomicUsize::new(1);
            (*block).usage_slot = slot;
        }
        heap.stats.cached_bytes -= capacity_bytes;
        heap.count_live(capacity_bytes);
        drop(heap);
        // SAFETY: `free_block` returns a block of a list that is not empty, as was checked above.
        let buffer = Buffer { block: unsafe { NonNull::new_unchecked(block) } };
        // SAFETY: `buffer` is the block's only handle, so nothing else accesses its header.
        unsafe {
            if (*block).owner != owner {
                clear((*block).data, capacity_bytes);
                (*block).owner = owner;
            }
        }
        Ok(buffer)
    }

    /// The bytes in use and cached, with their limit.
    pub fn stats(&self) -> MemoryStats {
        self.heap().stats
    }

    /// Returns all free blocks to the system.
    pub fn trim(&self) {
        self.heap().shrink_cache_to(0);
        trim_heap();
    }
}

impl Drop for CachingAllocator {
    fn drop(&mut self) {
        let mut heap = self.heap();
        heap.allocators -= 1;
        if heap.allocators == 0 {
            heap.shrink_cache_to(0);
        }
        let last = heap.allocators == 0 && heap.live_blocks == 0;
        drop(heap);
        if last {
            // SAFETY: no other allocator and no live block is left, so nothing else points to the heap, which came
            // from `Box::leak`.
            drop(unsafe { Box::from_raw(self.heap.as_ptr()) });
        }
    }
}

impl Heap {
    /// Makes `usage` the current one.
    fn charge(&mut self, usage: &Arc<MemoryUsage>) {
        let before = self.current;
        self.current = match self.slot_of_usage.get(&usage.id()) {
            Some(slot) => *slot,
            None => {
                let held = Some(UsageEntry { usage: usage.clone(), bytes: 0, blocks: 0 });
                let slot = self.usages.iter().position(Option::is_none).unwrap_or(self.usages.len());
                if slot == self.usages.len() {
                    self.usages.push(held);
                } else {
                    self.usages[slot] = held;
                }
                self.slot_of_usage.insert(usage.id(), slot);
                slot
            }
        };
        self.forget(before);
    }

    /// Removes a usage that holds nothing, unless it is the current one.
    fn forget(&mut self, slot: usize) {
        if slot != self.current
            && let Some(held) = self.usages[slot].take_if(|held| held.blocks == 0)
        {
            self.slot_of_usage.remove(&held.usage.id());
        }
    }

    /// Makes `usage` the current one, charges it for a block, and returns its index and id.
    #[inline]
    fn charge_usage(
        &mut self,
        usage: &Arc<MemoryUsage>,
        capacity_bytes: usize,
        requested: usize,
    ) -> Result<(usize, u64), ExecError> {
        if !self.usages[self.current].as_ref().is_some_and(|held| Arc::ptr_eq(&held.usage, usage)) {
            self.charge(usage);
        }
        let slot = self.current;
        let Some(held) = &mut self.usages[slot] else { return Err(ExecError::internal("memory in nobody's name")) };
        held.usage.take(capacity_bytes, requested)?;
        held.bytes += capacity_bytes;
        held.blocks += 1;
        Ok((slot, held.usage.id()))
    }

    #[inline]
    fn refund(&mut self, slot: usize, capacity_bytes: usize) {
        let Some(held) = &mut self.usages[slot] else { return };
        held.usage.give(capacity_bytes);
        held.bytes -= capacity_bytes;
        held.blocks -= 1;
        if held.blocks == 0 {
            self.forget(slot);
        }
    }

    /// Removes a block from the class's free list, which must not be empty: a block that `owner` held before if one is
    /// among the first [`OWN_BLOCKS_TRIED`], else the first block.
    fn free_block(&mut self, class: usize, owner: u64) -> *mut HeapBlock {
        let first = self.free[class];
        let mut link: *mut *mut HeapBlock = &raw mut self.free[class];
        // SAFETY: the blocks of a free list and their links belong to the heap, which `&mut self` borrows alone.
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

    fn count_live(&mut self, capacity_bytes: usize) {
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
        let Some((block, data, storage)) = self.new_block(capacity_bytes).or_else(|| {
            self.shrink_cache_to(0);
            self.new_block(capacity_bytes)
        }) else {
            return Err(refused);
        };
        let usage_slot = self.current;
        let owner = self.usages[usage_slot].as_ref().map_or(0, |held| held.usage.id());
        let header = HeapBlock {
            refs: AtomicUsize::new(1),
            heap: heap.as_ptr(),
            data,
            storage,
            capacity_bytes,
            class,
            usage_slot,
            owner,
            next_free: ptr::null_mut(),
        };
        // SAFETY: `new_block` allocated a header there, and nothing else points to it yet.
        unsafe { block.as_ptr().write(header) };
        let footprint_bytes = self.stats.used_bytes + self.stats.cached_bytes;
        let few = self.stats.cached_bytes <= WHOLE_BYTES_MAX.min(limit_bytes / WHOLE_SHARE_OF_LIMIT);
        let moves =
            MOVES_PAGES && storage == BlockStorage::Mapped && !few && footprint_bytes <= MOVING_FOOTPRINT_BYTES_MAX;
        if moves && !self.take_cached_pages(data, capacity_bytes, owner) {
            // SAFETY: the block came from `new_block`, and nothing else points to it yet.
            unsafe { self.release(block.as_ptr()) };
            return Err(refused);
        }
        self.count_live(capacity_bytes);
        Ok(Buffer { block })
    }

    /// Moves pages of free blocks into a new mapping of `room` bytes, starting with the least recently requested class.
    ///
    /// Without this the free blocks of all classes together would grow far beyond what is ever in use at one time, and
    /// the system would have to clear new pages. With it live and free blocks together take at most
    /// [`WHOLE_BYTES_MAX`] more than live ones ever did, and pages that do not fill a huge page. Pages of owners other
    /// than `owner` are cleared. Returns false if part of the new mapping was lost.
    #[must_use]
    fn take_cached_pages(&mut self, data: *mut u8, room: usize, owner: u64) -> bool {
        let mut at = 0;
        while at + MAP_BYTES_MIN <= room {
            let stale = (class_of(MAP_BYTES_MIN)..CLASSES)
                .filter(|class| {
                    // SAFETY: the blocks of a free list belong to the heap and stay allocated while they are on it.
                    unsafe { self.free[*class].as_ref() }.is_some_and(|block| block.storage == BlockStorage::Mapped)
                })
                .min_by_key(|class| self.last_request[*class]);
            let Some(class) = stale else { return true };
            let block = self.free[class];
            let wanted = (room - at) / MAP_BYTES_MIN * MAP_BYTES_MIN;
            // SAFETY: a free block belongs to the heap, and leaves its list before its pages are moved. The new mapping
            // has `room >= at + wanted` bytes.
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
                // The remaining pages become a block of a smaller class.
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

    /// Frees blocks, those of the least recently requested classes first, until at most this many bytes are cached.
    fn shrink_cache_to(&mut self, cached_bytes_max: usize) {
        while self.stats.cached_bytes > cached_bytes_max {
            let stale =
                (0..CLASSES).filter(|class| !self.free[*class].is_null()).min_by_key(|class| self.last_request[*class]);
            let Some(class) = stale else { return };
            while !self.free[class].is_null() && self.stats.cached_bytes > cached_bytes_max {
                let block = self.free[class];
                // SAFETY: a free block belongs to the heap, and leaves its list before it is released.
                unsafe {
                    self.free[class] = (*block).next_free;
                    self.stats.cached_bytes -= (*block).capacity_bytes;
                    self.release(block);
                }
            }
        }
    }

    /// Allocates a header and `capacity_bytes` of zeroed data; small data follow their header.
    fn new_block(&mut self, capacity_bytes: usize) -> Option<(NonNull<HeapBlock>, *mut u8, BlockStorage)> {
        let align = if capacity_bytes < MAP_BYTES_MIN { SHARED_BYTES_MIN } else { MAP_BYTES_MIN };
        let space = self.space.as_mut().filter(|_| capacity_bytes >= SHARED_BYTES_MIN);
        let (data, storage) = match space.and_then(|space| space.take(capacity_bytes, align)) {
            Some(data) => (data, BlockStorage::Shared),
            None if capacity_bytes >= MAP_BYTES_MIN => (map(capacity_bytes)?, BlockStorage::Mapped),
            None => (ptr::null_mut(), BlockStorage::AfterHeader),
        };
        // SAFETY: the layout includes a header, so its size is not 0.
        let block = unsafe { alloc_zeroed(header_layout(capacity_bytes, storage)) };
        let Some(header) = NonNull::new(block.cast::<HeapBlock>()) else {
            self.release_data(data, capacity_bytes, storage);
            return None;
        };
        if storage == BlockStorage::AfterHeader {
            // SAFETY: `header_layout` has `capacity_bytes` after the header for this storage.
            return Some((header, unsafe { block.add(size_of::<HeapBlock>()) }, storage));
        }
        Some((header, data, storage))
    }

    fn release_data(&mut self, data: *mut u8, capacity_bytes: usize, storage: BlockStorage) {
        match (storage, &mut self.space) {
            (BlockStorage::Mapped, _) => unmap(data, capacity_bytes),
            (BlockStorage::Shared, Some(space)) => space.give(data, capacity_bytes),
            _ => (),
        }
    }

    /// # Safety
    /// The block came from [`Heap::new_block`] and is not used again.
    unsafe fn release(&mut self, block: *mut HeapBlock) {
        // SAFETY: the block came from `new_block`, which recorded where its data lie, and nobody uses it again, by
        // this function's contract.
        unsafe {
            let HeapBlock { data, capacity_bytes, storage, .. } = *block;
            self.release_data(data, capacity_bytes, storage);
            dealloc(block.cast(), header_layout(capacity_bytes, storage));
        }
    }
}

fn header_layout(capacity_bytes: usize, storage: BlockStorage) -> Layout {
    let data = if storage == BlockStorage::AfterHeader { capacity_bytes } else { 0 };
    // SAFETY: the alignment is a power of two, and `data` is below `MAP_BYTES_MIN`, far from overflow.
    unsafe { Layout::from_size_align_unchecked(size_of::<HeapBlock>() + data, ALIGN_BYTES) }
}

/// A new mapping of `bytes` (a multiple of 64), aligned to 2 MiB, on huge pages where the system has them.
#[cfg(all(unix, not(miri)))]
fn map(bytes: usize) -> Option<*mut u8> {
    const HUGE: usize = MAP_BYTES_MIN;
    let wide = bytes.checked_add(HUGE)?;
    // SAFETY: a new private mapping at an address of the kernel's choice overlaps no other memory.
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
    // SAFETY: `before + kept + after == wide`, so both trimmed ends lie in the new mapping and outside of what is kept;
    // `before` and `kept` are whole pages. `MADV_HUGEPAGE` changes no content, and may fail.
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

/// Moves pages from the mapping at `from` to the mapping at `to`; both are aligned to [`MAP_BYTES_MIN`]. Returns how
/// many leading bytes were moved, or an error if a part of `to` is no longer mapped.
///
/// # Safety
/// Both are mapped for `bytes`, and nothing else accesses them.
#[cfg(all(target_os = "linux", not(miri)))]
unsafe fn move_pages(from: *mut u8, to: *mut u8, bytes: usize) -> Result<usize, ()> {
    let mut moved = 0;
    // Huge pages are moved one by one, since `mremap` refuses a range that spans several mappings.
    while moved + MAP_BYTES_MIN <= bytes {
        // SAFETY: both are mapped for `bytes`, `moved + MAP_BYTES_MIN <= bytes`, and nobody uses them. A move that
        // fails may have unmapped its destination, which is then mapped again.
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
    // SAFETY: callers pass a mapping that `map` made, or its end, which no live block uses. `map` mapped whole pages,
    // so rounding up to a page stays within the mapping.
    unsafe { libc::munmap(data.cast(), bytes.next_multiple_of(PAGE_BYTES)) };
}

#[cfg(any(not(unix), miri))]
fn map(bytes: usize) -> Option<*mut u8> {
    let layout = Layout::from_size_align(bytes, ALIGN_BYTES).ok()?;
    // SAFETY: the size is that of a class from `MAP_BYTES_MIN` on, so not 0.
    let data = unsafe { alloc_zeroed(layout) };
    (!data.is_null()).then_some(data)
}

#[cfg(any(not(unix), miri))]
fn unmap(data: *mut u8, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, ALIGN_BYTES) {
        // SAFETY: `map` allocated `data` with this layout.
        unsafe { dealloc(data, layout) };
    }
}

impl Buffer {
    /// The address of the first byte; it is valid for [`Buffer::capacity_bytes`] bytes while a handle lives.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        // SAFETY: a handle keeps its block alive, and a live block's `data` never changes.
        unsafe { (*self.block.as_ptr()).data }
    }
    /// The size of the block.
    #[inline]
    pub fn capacity_bytes(&self) -> usize {
        // SAFETY: a handle keeps its block alive, and a live block's capacity never changes.
        unsafe { (*self.block.as_ptr()).capacity_bytes }
    }
    /// Whether this is the only handle.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.refs().load(Ordering::Acquire) == 1
    }
    #[inline]
    fn refs(&self) -> &AtomicUsize {
        // SAFETY: a handle keeps its block, and so the counter, alive.
        unsafe { &(*self.block.as_ptr()).refs }
    }
}

impl Clone for Buffer {
    #[inline]
    fn clone(&self) -> Buffer {
        // Relaxed suffices, as in `Arc`: `self` keeps the block alive meanwhile.
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
        // As in `Arc`, this orders the accesses through other handles before the block is used again.
        fence(Ordering::Acquire);
        let block = self.block.as_ptr();
        // SAFETY: this was the last handle, so nothing else accesses the block until it is on a free list.
        let (heap, capacity_bytes, class, usage_slot) =
            unsafe { ((*block).heap, (*block).capacity_bytes, (*block).class, (*block).usage_slot) };
        // SAFETY: a block in use keeps the heap alive: the heap is freed only when the last live block is.
        let mut locked = lock(unsafe { &*heap });
        locked.live_blocks -= 1;
        locked.stats.used_bytes -= capacity_bytes;
        locked.refund(usage_slot, capacity_bytes);
        if locked.allocators == 0 {
            let last = locked.live_blocks == 0;
            // SAFETY: this was the last handle, and the block is on no free list.
            unsafe { locked.release(block) };
            drop(locked);
            if last {
                // SAFETY: no allocator and no live block is left, so nothing else points to the heap.
                drop(unsafe { Box::from_raw(heap.cast_mut()) });
            }
            return;
        }
        // SAFETY: this was the last handle, so nothing else accesses the block, and the heap's lock is held.
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
        // SAFETY: the allocator's memory is initialised, and the test does not write while it reads.
        unsafe { std::slice::from_raw_parts(block.as_ptr(), block.capacity_bytes()) }
    }

    fn fill(block: &Buffer) {
        // SAFETY: the range is the whole block, and the test holds its only handle.
        unsafe { block.as_ptr().write_bytes(7, block.capacity_bytes()) };
    }

    #[test]
    fn memory_is_cleared_before_another_usage_gets_it() {
        let allocator = CachingAllocator::new(256 << 20, None);
        let [one, two] = [1, 2].map(|id| Arc::new(MemoryUsage::new(id)));
        // Small blocks, mapped blocks, and one whose pages come from free blocks.
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
    fn an_owner_gets_its_freed_block_back_uncleared() {
        let allocator = CachingAllocator::new(1 << 20, None);
        let [one, two] = [1, 2].map(|id| Arc::new(MemoryUsage::new(id)));
        let mut blocks = Vec::new();
        for usage in [&one, &two] {
            allocator.charge(usage);
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
    fn a_usage_is_charged_for_its_blocks_until_they_are_freed() {
        let allocator = CachingAllocator::new(1 << 20, None);
        let usage = Arc::new(MemoryUsage::new(1));
        usage.set_limit(3000);
        allocator.charge(&usage);
        let first = allocator.allocate(2000).unwrap();
        assert_eq!((usage.held(), allocator.held(&usage)), (first.capacity_bytes(), first.capacity_bytes()));
        let (held, limit, scope) = (first.capacity_bytes(), 3000, LimitScope::Usage);
        let refused = allocator.allocate(1500).err().unwrap();
        assert_eq!(refused, ExecError::OutOfMemory { requested: 1500, held, limit, scope });
        allocator.charge(&Arc::new(MemoryUsage::new(2)));
        assert!(allocator.allocate(10_000).is_ok());
        drop(first);
        assert_eq!((usage.held(), allocator.held(&usage)), (0, 0));
        // If the device has no memory left, the usage is not charged.
        usage.set_limit(0);
        allocator.charge(&usage);
        assert!(allocator.allocate(2 << 20).is_err());
        assert_eq!(usage.held(), 0);
    }

    #[test]
    fn large_blocks_are_writable_to_the_end_and_the_cache_is_bounded() {
        let allocator = CachingAllocator::new(32 << 20, None);
        let blocks: Vec<Buffer> = (1..4).map(|i| allocator.allocate(i * MAP_BYTES_MIN + 5).unwrap()).collect();
        for block in &blocks {
            // SAFETY: the last byte of the block, of which the test holds the only handle.
            unsafe { block.as_ptr().add(block.capacity_bytes() - 1).write(1) };
        }
        drop(blocks);
        assert!(allocator.stats().cached_bytes <= 8 << 20);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn the_pages_of_free_blocks_serve_blocks_of_other_sizes() {
        let limit = 256 << 20;
        let allocator = CachingAllocator::new(limit, None);
        let mut most = 0;
        for megabytes in [3, 10, 4, 25, 2, 7, 40, 5] {
            let blocks: Vec<Buffer> = (0..2).map(|_| allocator.allocate(megabytes << 20).unwrap()).collect();
            for block in &blocks {
                for at in (0..block.capacity_bytes()).step_by(64 << 10) {
                    // SAFETY: capacities of mapped blocks are multiples of 64 KiB, so the range is within the block.
                    unsafe { block.as_ptr().add(at).write_bytes(7, 64 << 10) };
                }
            }
            let stats = allocator.stats();
            most = most.max(stats.used_bytes);
            // Pages that do not fill a huge page stay in their block or are unmapped.
            let whole = limit / WHOLE_SHARE_OF_LIMIT + (4 << 20);
            assert!(stats.used_bytes + stats.cached_bytes <= most + whole, "{megabytes}: {stats:?}, {most}");
        }
        allocator.trim();
        assert_eq!(allocator.stats().cached_bytes, 0);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_loop_of_blocks_of_several_sizes_gets_no_new_pages() {
        let allocator = CachingAllocator::new(4 << 30, None);
        // A short time Fourier transform: frames, their spectrum, its parts and absolute values. A new page is zeros.
        let step = || {
            let mut new = 0;
            let mut allocate = |size: usize| {
                let block = allocator.allocate(size).unwrap();
                new += bytes(&block).iter().filter(|byte| **byte == 0).count();
                fill(&block);
                block
            };
            let frames = allocate(4_801_600);
            let spectrum = allocate(4_825_608);
            drop(frames);
            let parts = [(); 3].map(|()| allocate(2_412_000));
            drop((spectrum, parts));
            new
        };
        assert_ne!(step(), 0);
        assert_eq!([step(), step()], [0, 0]);
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
            // SAFETY: the range is the whole block, and the test holds its only handle.
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
        // SAFETY: the first byte of a block that `also_one` keeps alive.
        unsafe { also_one.as_ptr().write(7) };
    }

    #[test]
    fn companions_share_a_heap_and_charge_a_usage_each() {
        let [one, two] = [1, 2].map(|id| Arc::new(MemoryUsage::new(id)));
        let allocator = CachingAllocator::new(1 << 20, None);
        allocator.charge(&one);
        let companion = allocator.companion();
        companion.charge(&two);
        let blocks = [allocator.allocate(1000), companion.allocate(2000), allocator.allocate(3000)].map(Result::unwrap);
        let sizes = blocks.each_ref().map(Buffer::capacity_bytes);
        for all in [&allocator, &companion] {
            assert_eq!((all.held(&one), all.held(&two)), (sizes[0] + sizes[2], sizes[1]));
            assert_eq!(all.stats().used_bytes, sizes.iter().sum::<usize>());
        }
        fill(&blocks[0]);
        let place = blocks[0].as_ptr();
        drop(blocks);
        let again = companion.allocate(1000).unwrap();
        assert_eq!(again.as_ptr(), place);
        assert!(bytes(&again).iter().all(|byte| *byte == 0), "it had another owner");
        drop(allocator);
        assert!(companion.allocate(10).is_ok());
        drop((companion, again));
    }
}
