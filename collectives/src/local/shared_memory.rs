//! Memory of a rank that the other processes of a group map.
//!
//! Each rank maps the whole memory of every other once, so that an offset names the same byte in all processes. It is a
//! sparse file: unwritten pages take no memory. The file is sealed, so it cannot shrink under a mapping; but its owner
//! may write it at any time, so nothing is decided by its contents.

use crate::error::{CollectiveError, Result};
use gt_shm::{Access, Segment};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The segment's name in `/proc`.
const NAME: &str = "gt-tensors";

/// The memories that this process has mapped, each once for all groups.
static MAPPED: Mutex<Vec<Weak<SharedMemory>>> = Mutex::new(Vec::new());

/// Memory of a rank that the other ranks of its groups map.
#[derive(Debug)]
pub struct SharedMemory {
    segment: Arc<Segment>,
    id: u64,
}

impl SharedMemory {
    /// Creates memory of `bytes` bytes, all zero. The caller allocates ranges of it.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] if the kernel refuses it.
    pub fn create(bytes: u64) -> Result<Arc<SharedMemory>> {
        let refused = |error| CollectiveError::setup("make memory that ranks reach", error);
        let segment = Segment::create(NAME, bytes, Access::ReadWrite, Access::ReadWrite).map_err(refused)?;
        let stat = segment.fd().map(rustix::fs::fstat).transpose();
        let stat = stat.map_err(|error| CollectiveError::setup("look at memory that ranks reach", error))?;
        Ok(SharedMemory::known(segment, stat.map_or(0, |stat| stat.st_ino)))
    }

    /// The memory behind a descriptor that [`SharedMemory::fd`] gave.
    ///
    /// # Errors
    /// [`CollectiveError::Setup`] if the descriptor is no such memory, or cannot be mapped.
    pub fn open(fd: OwnedFd) -> Result<Arc<SharedMemory>> {
        let refused = |error: gt_shm::Error| CollectiveError::setup("map another rank's memory", error);
        let stat =
            rustix::fs::fstat(&fd).map_err(|error| CollectiveError::setup("map another rank's memory", error))?;
        let mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = mapped.iter().filter_map(Weak::upgrade).find(|memory| memory.id == stat.st_ino);
        drop(mapped);
        match known {
            Some(memory) => Ok(memory),
            None => {
                let segment = Segment::map_peer(fd, stat.st_size as u64, Access::ReadWrite).map_err(refused)?;
                // The mapping does not need the descriptor.
                Ok(SharedMemory::known(segment.detach().0, stat.st_ino))
            }
        }
    }

    /// Registers a mapping, which later calls of [`SharedMemory::open`] in this process share.
    fn known(segment: Segment, id: u64) -> Arc<SharedMemory> {
        segment.advise_huge_pages();
        segment.keep_from_core_dumps();
        let memory = Arc::new(SharedMemory { segment: Arc::new(segment), id });
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        mapped.retain(|memory| memory.strong_count() > 0);
        mapped.push(Arc::downgrade(&memory));
        memory
    }

    /// The mapped segment, for an allocator.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The descriptor by which other processes [open](SharedMemory::open) the memory; `None` unless this process
    /// created it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.segment.fd()
    }

    /// The number of the memory, the same in every process (its inode).
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// The offset of `len` bytes at an address, if they all lie in this memory.
    pub(super) fn offset_of(&self, address: *const u8, len: usize) -> Option<usize> {
        let offset = address.addr().checked_sub(self.segment.as_ptr().addr())?;
        self.holds(offset, len).then_some(offset)
    }

    /// The address of `len` bytes at `offset`, if they all lie in this memory.
    pub(super) fn at(&self, offset: usize, len: usize) -> Option<*mut u8> {
        self.holds(offset, len).then(|| self.segment.as_ptr().wrapping_add(offset))
    }

    fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.segment.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no segments")]
    fn bytes_have_an_address_and_an_offset_only_where_all_of_them_are() {
        let memory = SharedMemory::create(1 << 40).unwrap();
        let len = memory.segment().len();
        let start = memory.at(0, len).unwrap();
        assert_eq!(memory.at(len - 1, 2), None);
        assert_eq!(memory.at(usize::MAX, 2), None);
        assert_eq!(memory.offset_of(start.wrapping_add(5), len - 5), Some(5));
        assert_eq!(memory.offset_of(start.wrapping_add(5), len), None);
        assert_eq!(memory.offset_of(start.wrapping_sub(1), 1), None);
        let other = SharedMemory::open(memory.fd().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(other.at(0, 1), Some(start), "mapped once in a process");
    }
}
