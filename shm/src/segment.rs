//! Segments: memfds that the daemon creates, sizes, maps and seals before it sends them to a peer.
//!
//! The seal against shrinking keeps a peer from truncating a mapped segment, which would raise SIGBUS. With the seal
//! against future writes a receiver can map it only for reading. Seals do not prevent a writer from punching holes,
//! which read as zeros; contents are never trusted anyway.

use crate::error::{Error, Result, os};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// The bytes of a page, the unit of a segment's length.
pub const PAGE_BYTES: usize = 4096;

/// The permitted accesses to a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// A sealed memfd, mapped for as long as this lives.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    len: usize,
    access: Access,
    /// `None` after [`Segment::detach`]: the mapping does not need its descriptor.
    fd: Option<OwnedFd>,
}

// SAFETY: the fields are an address and a descriptor, neither of which belongs to a thread; the mapping is the
// process's.
unsafe impl Send for Segment {}
// SAFETY: no method of `&Segment` accesses the mapped bytes; code that does goes through raw pointers and atomics.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates, maps and seals a segment of at least `bytes` bytes (rounded up to whole pages). Its bytes are zero.
    /// `own` is the access of this process, `peer` the access of a process that receives the segment. `name` shows in
    /// `/proc/*/maps` as `/memfd:name`.
    ///
    /// # Errors
    /// An error of the system at any step, sealing included.
    pub fn create(name: &str, bytes: u64, own: Access, peer: Access) -> Result<Self> {
        let len = usize::try_from(bytes)
            .ok()
            .filter(|&len| len > 0)
            .and_then(|len| len.checked_next_multiple_of(PAGE_BYTES))
            .filter(|&len| len <= isize::MAX as usize)
            .ok_or(Error::SegmentSize { bytes })?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            // Linux before 6.3 does not have NOEXEC_SEAL.
            .or_else(|_| rustix::fs::memfd_create(name, flags))
            .map_err(os("create a segment (memfd_create)"))?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(os("size a segment"))?;
        let mut segment = Self::map(&fd, len, own)?;
        rustix::fs::fcntl_add_seals(&fd, seals_for(peer)).map_err(os("seal a segment"))?;
        segment.fd = Some(fd);
        Ok(segment)
    }

    /// Maps a segment that the daemon has sent and announced as `len` bytes long, for `access`.
    ///
    /// # Errors
    /// [`Error::SegmentLength`] or [`Error::SegmentSeals`] if the segment differs from the announcement; an error of
    /// the system.
    pub fn map_peer(fd: OwnedFd, len: u64, access: Access) -> Result<Self> {
        Self::map_sealed(fd, len, seals_for(access), access)
    }

    /// Maps a segment that its peer may write, as [`map_peer`](Self::map_peer) does, for reading alone.
    ///
    /// # Errors
    /// The errors of [`map_peer`](Self::map_peer).
    pub fn map_peer_for_reading(fd: OwnedFd, len: u64) -> Result<Self> {
        Self::map_sealed(fd, len, seals_for(Access::ReadWrite), Access::ReadOnly)
    }

    fn map_sealed(fd: OwnedFd, len: u64, needed: SealFlags, access: Access) -> Result<Self> {
        let stat = rustix::fs::fstat(&fd).map_err(os("look at a received segment"))?;
        let found_bytes = stat.st_size as u64;
        if found_bytes != len || len == 0 || len > isize::MAX as u64 {
            return Err(Error::SegmentLength { name: fd_name(&fd), expected_bytes: len, found_bytes });
        }
        // Descriptors other than memfds have no seals, and are refused here too.
        let seals = rustix::fs::fcntl_get_seals(&fd).unwrap_or(SealFlags::empty());
        let missing = needed.difference(seals);
        if !missing.is_empty() {
            return Err(Error::SegmentSeals { name: fd_name(&fd), missing: format!("{missing:?}") });
        }
        let mut segment = Self::map(&fd, len as usize, access)?;
        segment.fd = Some(fd);
        Ok(segment)
    }

    /// Maps a file for `access`. It must stay as long as it is: its writers are trusted.
    ///
    /// # Errors
    /// [`Error::SegmentLength`] if the file is not `len` bytes long; an error of the system.
    pub fn of_file(fd: &OwnedFd, len: u64, access: Access) -> Result<Self> {
        let stat = rustix::fs::fstat(fd).map_err(os("look at a file to map"))?;
        let found_bytes = stat.st_size as u64;
        if found_bytes != len || len == 0 || len > isize::MAX as u64 {
            return Err(Error::SegmentLength { name: fd_name(fd), expected_bytes: len, found_bytes });
        }
        Self::map(fd, len as usize, access)
    }

    fn map(fd: &OwnedFd, len: usize, access: Access) -> Result<Self> {
        let protection = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: without MAP_FIXED the kernel chooses a free address range, so no existing mapping changes.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) }
            .map_err(os("map a segment"))?;
        let base = NonNull::new(base.cast()).ok_or(Error::SegmentSize { bytes: len as u64 })?;
        Ok(Self { base, len, access, fd: None })
    }

    /// The length in bytes, a whole number of pages.
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The descriptor, to be sent to a peer; `None` if it was detached.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Separates the mapping from its descriptor, so that a long-lived mapping does not keep one open.
    ///
    /// # Panics
    /// If the segment was detached before.
    pub fn detach(mut self) -> (Self, OwnedFd) {
        let fd = self.fd.take().expect("a segment is detached once");
        (self, fd)
    }

    /// This process's access.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The address of the first byte. The mapping has [`len`](Self::len) bytes, writable if [`access`](Self::access) is
    /// `ReadWrite`. A peer may change them at any time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The address of `len` bytes at `offset`, checked against the segment.
    ///
    /// # Panics
    /// If they are not inside the segment or not aligned to `align`.
    pub(crate) fn at(&self, offset: usize, len: usize, align: usize) -> NonNull<u8> {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "{offset}+{len} leave the segment");
        assert!(offset.is_multiple_of(align), "{offset} is not a multiple of {align}");
        // SAFETY: the assertion has checked `offset + len <= self.len`, so the result is inside the mapping.
        unsafe { self.base.add(offset) }
    }

    /// Requests huge pages, if the system allows them on shared memory. A hint: never fails.
    pub fn advise_huge_pages(&self) {
        // SAFETY: the range is this segment's mapping, and MADV_HUGEPAGE does not change its contents.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
    }

    /// Excludes the segment from core dumps. A hint: never fails.
    pub fn keep_from_core_dumps(&self) {
        // SAFETY: the range is this segment's mapping, and MADV_DONTDUMP does not change its contents.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxDontDump) };
    }

    /// The bytes of memory allocated to the segment: the pages that were accessed. 0 if it is detached.
    pub fn resident_bytes(&self) -> u64 {
        const BLOCK_BYTES: u64 = 512;
        let stat = self.fd.as_ref().and_then(|fd| rustix::fs::fstat(fd).ok());
        stat.map_or(0, |stat| stat.st_blocks as u64 * BLOCK_BYTES)
    }

    /// Returns the memory of the whole pages in `offset..offset + len` to the system; they then read as zeros.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Detached`], or an error of the system, for example for a read-only segment.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let arena_bytes = self.len as u64;
        let page = PAGE_BYTES as u64;
        let end = offset.checked_add(len).filter(|&end| end <= arena_bytes).ok_or(Error::OutOfBounds {
            offset,
            len,
            arena_bytes,
        })?;
        let first = offset.next_multiple_of(page);
        let last = end / page * page;
        if first >= last {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let Some(fd) = &self.fd else {
            return Err(Error::Detached);
        };
        rustix::fs::fallocate(fd, flags, first, last - first).map_err(os("give the memory of a segment back"))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this length, and code that keeps pointers into it (`MappedMem`,
        // `ArenaSlice`, `ArenaBlock`) keeps the segment alive with them.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The seals of a segment that its receiver maps with `peer` access.
fn seals_for(peer: Access) -> SealFlags {
    let fixed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    match peer {
        Access::ReadWrite => fixed,
        Access::ReadOnly => fixed | SealFlags::FUTURE_WRITE,
    }
}

/// The target of a descriptor's link in `/proc`, for messages.
fn fd_name(fd: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .map_or_else(|_| "unknown".into(), |path| path.display().to_string())
}
