//! Segments: the operations that the seals allow and refuse to a peer.

use gt_shm::segment::PAGE_BYTES;
use gt_shm::{Access, Error, Segment};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::OwnedFd;

const LEN: u64 = 4 * PAGE_BYTES as u64;

fn make(own: Access, peer: Access) -> (Segment, OwnedFd) {
    let segment = Segment::create("gt-test", LEN, own, peer).unwrap();
    let fd = segment.fd().unwrap().try_clone_to_owned().unwrap();
    (segment, fd)
}

fn try_map(fd: &OwnedFd, protection: ProtFlags) -> Result<(), Errno> {
    // SAFETY: without MAP_FIXED the kernel chooses a free address range, so no existing mapping changes.
    let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, fd, 0) }?;
    // SAFETY: the range is the mapping of the line above, which nothing else uses.
    unsafe { rustix::mm::munmap(base, PAGE_BYTES) }
}

#[test]
fn both_sides_see_the_same_bytes() {
    let (ours, fd) = make(Access::ReadWrite, Access::ReadOnly);
    let theirs = Segment::map_peer(fd, LEN, Access::ReadOnly).unwrap();
    // SAFETY: both mappings are alive and LEN bytes long, and only this thread uses them.
    unsafe {
        ours.as_ptr().add(5000).write_volatile(42);
        assert_eq!(theirs.as_ptr().add(5000).read_volatile(), 42);
    }
    assert_eq!((theirs.len() as u64, theirs.access()), (LEN, Access::ReadOnly));
}

#[test]
fn lengths_are_rounded_to_pages_and_bounded() {
    let one = Segment::create("gt-test", 1, Access::ReadWrite, Access::ReadWrite).unwrap();
    assert_eq!(one.len(), PAGE_BYTES);
    for bytes in [0, u64::MAX, i64::MAX as u64 + 1] {
        let made = Segment::create("gt-test", bytes, Access::ReadWrite, Access::ReadWrite);
        assert!(matches!(made, Err(Error::SegmentSize { .. })), "{bytes} bytes: {made:?}");
    }
}

#[test]
fn the_name_shows_in_proc() {
    let (_segment, fd) = make(Access::ReadWrite, Access::ReadOnly);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("/memfd:gt-test"));
    let error = Segment::map_peer(fd, 2 * LEN, Access::ReadOnly).unwrap_err();
    assert!(error.to_string().contains("gt-test"), "{error}");
}

#[test]
fn no_peer_can_resize_or_unseal() {
    for peer in [Access::ReadOnly, Access::ReadWrite] {
        let (_segment, fd) = make(Access::ReadWrite, peer);
        assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM), "shrink");
        assert_eq!(rustix::fs::ftruncate(&fd, 2 * LEN), Err(Errno::PERM), "grow");
        let more = rustix::fs::fallocate(&fd, FallocateFlags::empty(), LEN, LEN);
        assert_eq!(more, Err(Errno::PERM), "grow by fallocate");
        // A peer cannot add a seal either, which would stop the daemon's writes.
        let sealed = rustix::fs::fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE);
        assert_eq!(sealed, Err(Errno::PERM), "seal");
    }
}

#[test]
fn a_read_only_peer_cannot_write_by_any_way() {
    let (_segment, fd) = make(Access::ReadWrite, Access::ReadOnly);
    assert_eq!(try_map(&fd, ProtFlags::READ), Ok(()));
    assert_eq!(try_map(&fd, ProtFlags::READ | ProtFlags::WRITE), Err(Errno::PERM));
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::PERM));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, hole, 0, LEN), Err(Errno::PERM));
    // Opening the memfd through /proc gives no further access.
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    let again: OwnedFd = std::fs::File::options().read(true).write(true).open(path).unwrap().into();
    assert_eq!(try_map(&again, ProtFlags::READ | ProtFlags::WRITE), Err(Errno::PERM));
    // A read-only mapping cannot be made writable.
    let mapped = Segment::map_peer(fd, LEN, Access::ReadOnly).unwrap();
    // SAFETY: the range is the segment's own mapping, and more access would invalidate no reference.
    let changed = unsafe {
        rustix::mm::mprotect(
            mapped.as_ptr().cast(),
            PAGE_BYTES,
            rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE,
        )
    };
    assert_eq!(changed, Err(Errno::ACCESS));
}

#[test]
fn a_segment_that_is_not_what_was_announced_is_refused() {
    let (_segment, fd) = make(Access::ReadWrite, Access::ReadWrite);
    let unsealed = rustix::fs::memfd_create("gt-unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&unsealed, LEN).unwrap();
    let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
    let file_len = rustix::fs::fstat(&file).unwrap().st_size as u64;

    let wrong_length = Segment::map_peer(fd.try_clone().unwrap(), LEN / 2, Access::ReadWrite);
    assert!(matches!(wrong_length, Err(Error::SegmentLength { found_bytes: LEN, .. })));
    for (fd, len, access) in [
        // Other processes could write to it, so its words cannot be trusted.
        (fd, LEN, Access::ReadOnly),
        // A peer could truncate it.
        (unsealed, LEN, Access::ReadWrite),
        (file, file_len, Access::ReadOnly),
    ] {
        let mapped = Segment::map_peer(fd, len, access);
        assert!(matches!(mapped, Err(Error::SegmentSeals { .. })), "{mapped:?}");
    }
}

#[test]
fn punching_gives_memory_back_and_reads_as_zeros() {
    let (segment, _fd) = make(Access::ReadWrite, Access::ReadWrite);
    assert_eq!(segment.resident_bytes(), 0);
    // SAFETY: the mapping is LEN bytes long, and only this thread uses it.
    unsafe { segment.as_ptr().write_bytes(7, LEN as usize) };
    assert_eq!(segment.resident_bytes(), LEN);
    let page = PAGE_BYTES as u64;
    // The range contains two whole pages.
    segment.punch(page - 1, 2 * page + 1).unwrap();
    assert_eq!(segment.resident_bytes(), LEN - 2 * page);
    let byte = |offset: u64| {
        // SAFETY: the offsets below are less than LEN, the length of the mapping.
        unsafe { segment.as_ptr().add(offset as usize).read_volatile() }
    };
    assert_eq!([byte(page - 1), byte(page), byte(3 * page - 1), byte(3 * page)], [7, 0, 0, 7]);
    segment.punch(10, 20).unwrap();
    assert_eq!(byte(10), 7, "less than a page is left alone");
    assert!(matches!(segment.punch(0, LEN + 1), Err(Error::OutOfBounds { .. })));
    assert!(matches!(segment.punch(u64::MAX, 2), Err(Error::OutOfBounds { .. })));
    assert!(matches!(segment.detach().0.punch(0, LEN), Err(Error::Detached)));
}
