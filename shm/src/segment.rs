//! Segments: memfds that the daemon creates, sizes, maps and seals before anybody else sees them.
//!
//! Sealed against shrinking, a segment cannot be truncated under a mapping (a SIGBUS); sealed
//! against future writes, it can be mapped only for reading by whoever receives it. What seals do not
//! stop is a writer punching holes, which reads as zeros: content is never trusted anyway.

use crate::error::{Error, Result, os};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// Bytes in a page, the unit in which segments are sized.
pub const PAGE_BYTES: usize = 4096;

/// What a mapping may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Look.
    ReadOnly,
    /// Look and change.
    ReadWrite,
}

/// A sealed memfd, mapped for as long as this lives.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    len: usize,
    access: Access,
    /// `None` once it has been [detached](Segment::detach): the mapping does not need it.
    fd: Option<OwnedFd>,
}

// SAFETY: a segment is an address range and a descriptor; every access goes through atomics or raw
// copies whose callers answer for races.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Creates, maps and seals a segment of at least `bytes` bytes (rounded up to whole pages).
    /// `own` is what this process may do with it, `peer` what a process that receives it may do.
    /// `name` shows in `/proc/*/maps` as `/memfd:name`. Its bytes are zero.
    ///
    /// # Errors
    /// If the kernel refuses any step; a segment that cannot be sealed is not made.
    pub fn create(name: &str, bytes: u64, own: Access, peer: Access) -> Result<Self> {
        let len = usize::try_from(bytes)
            .ok()
            .filter(|&len| len > 0)
            .and_then(|len| len.checked_next_multiple_of(PAGE_BYTES))
            .filter(|&len| len <= isize::MAX as usize)
            .ok_or(Error::SegmentSize { bytes })?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            // Kernels before 6.3 do not know NOEXEC_SEAL.
            .or_else(|_| rustix::fs::memfd_create(name, flags))
            .map_err(os("create a segment (memfd_create)"))?;
        rustix::fs::ftruncate(&fd, len as u64).map_err(os("size a segment"))?;
        let mut segment = Self::map(&fd, len, own)?;
        rustix::fs::fcntl_add_seals(&fd, seals_for(peer)).map_err(os("seal a segment"))?;
        segment.fd = Some(fd);
        Ok(segment)
    }

    /// Maps a segment that the daemon sent, announced as `len` bytes long and for `access`.
    ///
    /// # Errors
    /// [`Error::SegmentLength`] or [`Error::SegmentSeals`] if it is not what was announced, or what
    /// the kernel refused.
    pub fn map_peer(fd: OwnedFd, len: u64, access: Access) -> Result<Self> {
        let stat = rustix::fs::fstat(&fd).map_err(os("look at a received segment"))?;
        let found_bytes = stat.st_size as u64;
        if found_bytes != len || len == 0 || len > isize::MAX as u64 {
            return Err(Error::SegmentLength { name: fd_name(&fd), expected_bytes: len, found_bytes });
        }
        // A descriptor that is no memfd has no seals, and fails here too.
        let seals = rustix::fs::fcntl_get_seals(&fd).unwrap_or(SealFlags::empty());
        let missing = seals_for(access).difference(seals);
        if !missing.is_empty() {
            return Err(Error::SegmentSeals { name: fd_name(&fd), missing: format!("{missing:?}") });
        }
        let mut segment = Self::map(&fd, len as usize, access)?;
        segment.fd = Some(fd);
        Ok(segment)
    }

    fn map(fd: &OwnedFd, len: usize, access: Access) -> Result<Self> {
        let protection = match access {
            Access::ReadOnly => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0) }
            .map_err(os("map a segment"))?;
        let base = NonNull::new(base.cast()).ok_or(Error::SegmentSize { bytes: len as u64 })?;
        Ok(Self { base, len, access, fd: None })
    }

    /// Bytes in the segment, a whole number of pages.
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its descriptor, to send it to a peer; `None` if it was detached.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// Separates the mapping from its descriptor, so that a long-lived mapping does not hold one.
    ///
    /// # Panics
    /// If that was done before.
    pub fn detach(mut self) -> (Self, OwnedFd) {
        let fd = self.fd.take().expect("a segment is detached once");
        (self, fd)
    }

    /// What this process may do with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Its first byte. Reading is allowed up to [`len`](Self::len), writing if
    /// [`access`](Self::access) says so; whatever is read may change at any time.
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
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.add(offset) }
    }

    /// Asks for huge pages where the system allows them on shared memory. A hint: never fails.
    pub fn advise_huge_pages(&self) {
        // SAFETY: the range is this mapping; the advice changes no content.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
    }

    /// Leaves the segment out of core dumps, where it is too large for one. A hint: never fails.
    pub fn keep_from_core_dumps(&self) {
        // SAFETY: the range is this mapping; the advice changes no content.
        let _ = unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxDontDump) };
    }

    /// Bytes of memory behind the segment: pages that somebody has touched. 0 if it is detached.
    pub fn resident_bytes(&self) -> u64 {
        const BLOCK_BYTES: u64 = 512;
        let stat = self.fd.as_ref().and_then(|fd| rustix::fs::fstat(fd).ok());
        stat.map_or(0, |stat| stat.st_blocks as u64 * BLOCK_BYTES)
    }

    /// Gives the memory behind whole pages of `offset..offset + len` back; they read as zeros.
    ///
    /// # Errors
    /// If the range is outside the segment, or the kernel refuses (a read-only segment), or
    /// [`Error::Detached`].
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
        // SAFETY: this mapping is ours, and whoever holds pointers into it holds the segment too.
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

/// What `/proc` calls a descriptor, for messages.
fn fd_name(fd: &OwnedFd) -> String {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .map_or_else(|_| "unknown".into(), |path| path.display().to_string())
}
