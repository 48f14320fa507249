//! A caching allocator of device memory, in the order of one stream.
//!
//! A freed block may be reused at once by later work of the stream, so nothing waits. Sizes are rounded up to classes,
//! eight for each doubling of the size, and a block is kept for the next tensor of its class: a training step then
//! makes no call to the driver. A free block keeps the data of the [`MemoryUsage`] that held it; the allocator prefers
//! to reuse the block for the same usage, and clears it before it reuses it for another.

use crate::driver::{CudaEvent, CudaStream, DevicePtr, Driver, DriverError};
use gt_backend::{ExecError, LimitScope, MemoryStats, MemoryUsage};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Blocks are multiples of this size, so that the widest loads are aligned in every tensor.
pub const ALIGN_BYTES: usize = 256;
/// The bytes of the shortest atomic instruction.
const WORD_BYTES: usize = 4;
/// The byte of new allocations on a device that checks addresses: NaN in every type of floating-point numbers.
const NOISE: u8 = 0xff;
/// How many free blocks of a class are searched for one with the usage's own data.
const OWN_BLOCKS_TRIED: usize = 8;

/// A shared handle of a block.
pub type Buffer = Arc<Block>;

/// A block of device memory, freed when its last handle is dropped.
pub struct Block {
    ptr: DevicePtr,
    capacity_bytes: usize,
    account: Arc<MemoryUsage>,
    pool: Arc<Mutex<Pool>>,
}

impl Block {
    /// The address.
    #[inline]
    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }
    /// The size in bytes.
    #[inline]
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }
}

/// A free block.
struct Free {
    ptr: DevicePtr,
    /// The id of the usage whose data it has.
    owner: u64,
}

/// Free blocks of one class: address, and the id of the usage whose data each has. The lowest address is taken first,
/// so that allocations depend on which blocks are free and not on the order in which they were freed: a loop gets the
/// same memory in each iteration, and its launches can be a graph.
type FreeBlocks = BTreeMap<DevicePtr, u64>;

struct Pool {
    driver: Arc<dyn Driver>,
    /// Whether each tensor has an allocation of its own size, and freed ones are not kept: only then does a device that
    /// checks addresses find what is outside of tensors.
    is_exact: bool,
    stream: CudaStream,
    /// Free blocks by class.
    free: HashMap<usize, FreeBlocks>,
    /// Bytes that each usage holds here, by id.
    held: HashMap<u64, usize>,
    stats: MemoryStats,
}

// A block has one owner or is in one free list. Work that uses a block is on the pool's stream, or that stream waits
// for it before the block is dropped.

/// Memory that another stream uses until an event; see [`Allocator::lend`].
pub struct Loan(u64);

/// A loan: its number, the event that ends it, and the memory.
type Lent = (u64, CudaEvent, Buffer);

/// The allocator.
pub struct Allocator {
    pool: Arc<Mutex<Pool>>,
    account: Arc<MemoryUsage>,
    driver: Arc<dyn Driver>,
    /// The loans, oldest first, and the number of the next.
    lent: Mutex<(VecDeque<Lent>, u64)>,
}

/// The size of the class of `bytes`: at most an eighth more.
fn class_bytes(bytes: usize) -> usize {
    let units = bytes.div_ceil(ALIGN_BYTES).max(1);
    let shift = (usize::BITS - (units - 1).leading_zeros()).saturating_sub(4);
    ((((units - 1) >> shift) + 1) << shift) * ALIGN_BYTES
}

/// The size of an allocation for one tensor of `bytes`: whole words, since atomic instructions have no less.
fn exact_bytes(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(WORD_BYTES)
}

fn lock(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    // The pool is consistent at every point that may panic.
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Allocator {
    /// An allocator for work of `stream`, of at most `limit_bytes`.
    pub fn new(driver: Arc<dyn Driver>, stream: CudaStream, limit_bytes: usize) -> Allocator {
        let stats = MemoryStats { limit_bytes, ..MemoryStats::default() };
        let is_exact = driver.checks_addresses();
        let pool = Pool { driver: driver.clone(), is_exact, stream, free: HashMap::new(), held: HashMap::new(), stats };
        let (pool, account) = (Arc::new(Mutex::new(pool)), Arc::new(MemoryUsage::new(0)));
        Allocator { pool, account, driver, lent: Mutex::default() }
    }

    /// Keeps a buffer from reuse, even if all its tensors are dropped, until the loan ends, which is after `event` has
    /// passed. The event has been recorded, and is not recorded again before the loan is
    /// [taken back](Allocator::take_back).
    pub fn lend(&self, buffer: &Buffer, event: CudaEvent) -> Loan {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        let number = lent.1;
        lent.1 += 1;
        lent.0.push_back((number, event, buffer.clone()));
        Loan(number)
    }

    /// Ends a loan whose event has passed.
    pub fn take_back(&self, loan: &Loan) {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = lent.0.iter().position(|(number, ..)| *number == loan.0) {
            lent.0.remove(at);
        }
    }

    /// Waits for all loans; returns whether there were any.
    fn await_loans(&self) -> Result<bool, ExecError> {
        let lent = std::mem::take(&mut self.lent.lock().unwrap_or_else(PoisonError::into_inner).0);
        for (_, event, _) in &lent {
            self.driver.await_event(*event).map_err(crate::error::failed)?;
        }
        Ok(!lent.is_empty())
    }

    /// Counts allocations from here on in `account`.
    #[inline]
    pub fn charge(&mut self, account: &Arc<MemoryUsage>) {
        if !Arc::ptr_eq(&self.account, account) {
            self.account = account.clone();
        }
    }

    /// A block of at least `bytes`, without the data of another usage.
    ///
    /// # Errors
    /// [`ExecError::OutOfMemory`].
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, ExecError> {
        match self.try_allocate(bytes) {
            // Memory of pending transfers may have been dropped: it is free once they end.
            Err(ExecError::OutOfMemory { .. }) if self.await_loans()? => self.try_allocate(bytes),
            other => other,
        }
    }

    fn try_allocate(&self, bytes: usize) -> Result<Buffer, ExecError> {
        let mut pool = lock(&self.pool);
        let class = if pool.is_exact { exact_bytes(bytes) } else { class_bytes(bytes) };
        let limit = pool.stats.limit_bytes;
        if pool.stats.used_bytes.checked_add(class).is_none_or(|total| total > limit) {
            return Err(pool.full(bytes));
        }
        self.account.take(class, bytes)?;
        match pool.block(class, self.account.id()) {
            Ok(block) => {
                *pool.held.entry(self.account.id()).or_default() += class;
                let stats = &mut pool.stats;
                stats.used_bytes += class;
                stats.used_bytes_peak = stats.used_bytes_peak.max(stats.used_bytes);
                let (account, pool) = (self.account.clone(), self.pool.clone());
                Ok(Arc::new(Block { ptr: block.ptr, capacity_bytes: class, account, pool }))
            }
            Err(error) => {
                self.account.give(class);
                Err(match error {
                    // Other processes use the device too.
                    DriverError::OutOfMemory => pool.full(bytes),
                    error => crate::error::failed(error),
                })
            }
        }
    }

    /// Bytes that count in `account`.
    pub fn held(&self, account: &MemoryUsage) -> usize {
        lock(&self.pool).held.get(&account.id()).copied().unwrap_or(0)
    }

    /// Memory statistics.
    pub fn stats(&self) -> MemoryStats {
        lock(&self.pool).stats
    }

    /// Frees cached blocks, and lets the driver return memory to the system.
    pub fn trim(&self) {
        let mut pool = lock(&self.pool);
        pool.release();
        if let Err(error) = pool.driver.trim() {
            tracing::warn!(target: "gtd::cuda", %error, "memory could not be given back");
        }
    }
}

impl Pool {
    fn full(&self, requested: usize) -> ExecError {
        let MemoryStats { used_bytes: held, limit_bytes: limit, .. } = self.stats;
        ExecError::OutOfMemory { requested, held, limit, scope: LimitScope::Device }
    }

    /// A block of this class without the data of another usage.
    fn block(&mut self, class: usize, owner: u64) -> Result<Free, DriverError> {
        let kept = self.free.get_mut(&class).and_then(|free| {
            let own = free.iter().take(OWN_BLOCKS_TRIED).find(|(_, holder)| **holder == owner);
            let (ptr, owner) = own.or_else(|| free.first_key_value()).map(|(ptr, owner)| (*ptr, *owner))?;
            free.remove(&ptr);
            Some(Free { ptr, owner })
        });
        let Some(mut block) = kept else { return self.new_block(class, owner) };
        self.stats.cached_bytes -= class;
        if block.owner != owner {
            // SAFETY: the block has `class` bytes, and was taken from the free list, so that no one else uses it.
            let cleared = unsafe { self.driver.fill(block.ptr, 0, class, self.stream) };
            if let Err(error) = cleared {
                self.keep(class, block);
                return Err(error);
            }
            block.owner = owner;
        }
        Ok(block)
    }

    fn keep(&mut self, class: usize, block: Free) {
        self.stats.cached_bytes += class;
        self.free.entry(class).or_default().insert(block.ptr, block.owner);
    }

    fn new_block(&mut self, class: usize, owner: u64) -> Result<Free, DriverError> {
        // Cached blocks are freed if the limit leaves no room for them and the new block.
        if self.stats.cached_bytes + class > self.stats.limit_bytes - self.stats.used_bytes {
            self.release();
        }
        let ptr = match self.driver.allocate(class, self.stream) {
            Err(DriverError::OutOfMemory) => {
                self.release();
                self.driver.synchronize(self.stream)?;
                self.driver.trim()?;
                self.driver.allocate(class, self.stream)?
            }
            other => other?,
        };
        // The driver clears memory of other processes, but not what this process freed before. SAFETY: the memory was
        // just allocated with `class` bytes.
        unsafe { self.driver.fill(ptr, if self.is_exact { NOISE } else { 0 }, class, self.stream) }?;
        Ok(Free { ptr, owner })
    }

    /// Gives an allocation back to the driver, once the stream has completed its current work.
    fn free(&self, ptr: DevicePtr) {
        // SAFETY: the callers have taken the block out of the pool, and later work cannot use it.
        if let Err(error) = unsafe { self.driver.free(ptr, self.stream) } {
            tracing::warn!(target: "gtd::cuda", %error, "a block could not be given back");
        }
    }

    /// Frees all cached blocks.
    fn release(&mut self) {
        for ptr in std::mem::take(&mut self.free).into_values().flat_map(BTreeMap::into_keys) {
            self.free(ptr);
        }
        self.stats.cached_bytes = 0;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.release();
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let class = self.capacity_bytes;
        self.account.give(class);
        let mut pool = lock(&self.pool);
        if let Some(held) = pool.held.get_mut(&self.account.id()) {
            *held -= class;
            if *held == 0 {
                pool.held.remove(&self.account.id());
            }
        }
        pool.stats.used_bytes -= class;
        if pool.is_exact {
            pool.free(self.ptr);
        } else {
            pool.keep(class, Free { ptr: self.ptr, owner: self.account.id() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_an_eighth_at_most() {
        for bytes in [0, 1, 255, 256, 257, 4095, 4097, 1 << 20, (1 << 20) + 1, 12_345_678] {
            let class = class_bytes(bytes);
            assert!(class >= bytes && class.is_multiple_of(ALIGN_BYTES), "{bytes}");
            assert!(class <= (bytes + bytes / 8 + ALIGN_BYTES), "{bytes} in {class}");
            assert_eq!(class_bytes(class), class);
        }
    }
}
