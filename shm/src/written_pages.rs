//! Detection of writes to memory of this process: the kernel notes which pages were written.
//!
//! `userfaultfd` write-protects the pages in its asynchronous mode (Linux 6.7): the first write to a page, by the
//! program or by the kernel, only clears a bit of its page table entry, and the `PAGEMAP_SCAN` request finds a cleared
//! bit. Neither a signal handler nor a thread takes part. Asking about 1 MiB takes 1 µs (measured), about 256 MiB of
//! huge pages 9 µs. Containers and older kernels may refuse it.

use crate::fork;
use rustix::param::page_size;
use std::fs::File;
use std::mem::size_of;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, OnceLock, PoisonError};

/// `UFFD_USER_MODE_ONLY` of `linux/userfaultfd.h`: every user may ask for such a descriptor. Writes by the kernel, as
/// those of `read(2)`, are noted all the same in the asynchronous mode.
const USER_MODE_ONLY: i32 = 1;
/// `UFFD_API`.
const API_VERSION: u64 = 0xAA;
/// `UFFD_FEATURE_WP_HUGETLBFS_SHMEM`: shared memory, too.
const FEATURE_SHARED_MEMORY: u64 = 1 << 12;
/// `UFFD_FEATURE_WP_UNPOPULATED`: pages that were not touched yet, too.
const FEATURE_UNPOPULATED: u64 = 1 << 13;
/// `UFFD_FEATURE_WP_ASYNC`.
const FEATURE_ASYNCHRONOUS: u64 = 1 << 15;
const FEATURES: u64 = FEATURE_SHARED_MEMORY | FEATURE_UNPOPULATED | FEATURE_ASYNCHRONOUS;
/// `UFFDIO_REGISTER_MODE_WP`.
const REGISTER_WRITES: u64 = 1 << 1;
/// `UFFDIO_WRITEPROTECT_MODE_WP`.
const PROTECT: u64 = 1;
/// `PAGE_IS_WRITTEN` of `linux/fs.h`.
const WRITTEN: u64 = 1 << 1;

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct PageRange {
    start: u64,
    len: u64,
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    range: PageRange,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_writeprotect`.
#[repr(C)]
struct WriteProtect {
    range: PageRange,
    mode: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct ScanRequest {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// A request of type `T` that the kernel reads and answers, as `_IOWR` of `asm-generic/ioctl.h` composes it.
const fn request<T>(group: u8, number: u8) -> libc::Ioctl {
    (3 << 30 | (size_of::<T>() as u32) << 16 | (group as u32) << 8 | number as u32) as libc::Ioctl
}
const REQUEST_API: libc::Ioctl = request::<Api>(0xAA, 0x3F);
const REQUEST_REGISTER: libc::Ioctl = request::<Register>(0xAA, 0x00);
/// `UFFDIO_UNREGISTER`, an `_IOR`.
const REQUEST_UNREGISTER: libc::Ioctl =
    (2 << 30 | (size_of::<PageRange>() as u32) << 16 | 0xAA << 8 | 0x01) as libc::Ioctl;
const REQUEST_WRITE_PROTECT: libc::Ioctl = request::<WriteProtect>(0xAA, 0x06);
const REQUEST_SCAN: libc::Ioctl = request::<ScanRequest>(b'f', 16);

/// The descriptors of a process, and the ranges that are watched.
struct Watcher {
    faults: OwnedFd,
    page_table: File,
    /// The fork generation of the process whose memory the descriptors mean.
    generation: u32,
    watched: Mutex<Vec<Range<usize>>>,
}

impl Watcher {
    fn open() -> Option<Watcher> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
        // SAFETY: `userfaultfd` takes flags and returns a new descriptor or -1.
        let fd = i32::try_from(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) }).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the kernel has just returned the descriptor, which nothing else owns.
        let faults = unsafe { OwnedFd::from_raw_fd(fd) };
        let page_table = File::open("/proc/self/pagemap").ok()?;
        let watcher = Watcher { faults, page_table, generation: fork::generation(), watched: Mutex::default() };
        let mut api = Api { api: API_VERSION, features: FEATURES, ioctls: 0 };
        watcher.ask(REQUEST_API, &mut api).then_some(watcher)
    }

    /// The watcher of this process; none where the kernel refuses one, or in a forked child.
    fn of_process() -> Option<&'static Watcher> {
        static WATCHER: OnceLock<Option<Watcher>> = OnceLock::new();
        let watcher = WATCHER.get_or_init(Watcher::open).as_ref()?;
        (watcher.generation == fork::generation()).then_some(watcher)
    }

    /// Whether the kernel does as the request says.
    fn ask<T>(&self, request: libc::Ioctl, argument: &mut T) -> bool {
        // SAFETY: each request of this file is passed with the structure that the kernel reads and writes for it, which
        // is valid for the call.
        unsafe { libc::ioctl(self.faults.as_raw_fd(), request, std::ptr::from_mut(argument)) == 0 }
    }

    fn forget(&self, pages: &Range<usize>) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.retain(|other| other != pages);
        self.ask(REQUEST_UNREGISTER, &mut range_of(pages));
    }
}

fn range_of(pages: &Range<usize>) -> PageRange {
    PageRange { start: pages.start as u64, len: pages.len() as u64 }
}

/// Pages of this process of which the kernel notes whether they were written. They are watched until this is dropped.
pub struct WrittenPages {
    watcher: &'static Watcher,
    pages: Range<usize>,
}

impl WrittenPages {
    /// Watches the pages that have the `len` bytes at `start`, as not written yet. None where the kernel cannot, or
    /// watches one of them already.
    pub fn watch(start: *const u8, len: usize) -> Option<WrittenPages> {
        let watcher = Watcher::of_process()?;
        let (page, start) = (page_size(), start as usize);
        let pages = start / page * page..start.checked_add(len)?.checked_next_multiple_of(page)?;
        let mut watched = watcher.watched.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.is_empty() || watched.iter().any(|other| other.start < pages.end && pages.start < other.end) {
            return None;
        }
        let mut register = Register { range: range_of(&pages), mode: REGISTER_WRITES, ioctls: 0 };
        if !watcher.ask(REQUEST_REGISTER, &mut register) {
            return None;
        }
        watched.push(pages.clone());
        drop(watched);
        let pages = WrittenPages { watcher, pages };
        pages.reset().then_some(pages)
    }

    /// Takes all pages as not written. False where the kernel cannot.
    pub fn reset(&self) -> bool {
        self.is_own()
            && self
                .watcher
                .ask(REQUEST_WRITE_PROTECT, &mut WriteProtect { range: range_of(&self.pages), mode: PROTECT })
    }

    /// Whether a page was written since the last [`WrittenPages::reset`], or the kernel does not know.
    pub fn any_written(&self) -> bool {
        let mut region = PageRegion::default();
        let mut scan = ScanRequest {
            size: size_of::<ScanRequest>() as u64,
            start: self.pages.start as u64,
            end: self.pages.end as u64,
            regions: std::ptr::from_mut(&mut region) as u64,
            regions_len: 1,
            max_pages: 1,
            category_mask: WRITTEN,
            return_mask: WRITTEN,
            ..ScanRequest::default()
        };
        let (table, scan) = (self.watcher.page_table.as_raw_fd(), std::ptr::from_mut(&mut scan));
        // SAFETY: the kernel reads the request and writes at most one region, to `region`; both outlive the call.
        !self.is_own() || unsafe { libc::ioctl(table, REQUEST_SCAN, scan) } != 0
    }

    /// Whether the descriptors mean the memory of this process, not that of the process that it was forked from.
    fn is_own(&self) -> bool {
        self.watcher.generation == fork::generation()
    }
}

impl Drop for WrittenPages {
    fn drop(&mut self) {
        if self.is_own() {
            self.watcher.forget(&self.pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::ops::{Deref, DerefMut};

    const LEN: usize = 1 << 20;

    /// As much as the largest pages of Linux have.
    #[derive(Clone)]
    #[expect(dead_code, reason = "blocks are read as bytes, by a pointer")]
    #[repr(align(65536))]
    struct PageBlock([u8; 1 << 16]);

    /// Memory whose pages have nothing else in them: other tests write to theirs meanwhile.
    struct WholePages(Vec<PageBlock>);

    impl Deref for WholePages {
        type Target = [u8];
        fn deref(&self) -> &[u8] {
            // SAFETY: blocks are arrays of bytes without gaps, and are borrowed for as long as the result.
            unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), LEN) }
        }
    }

    impl DerefMut for WholePages {
        fn deref_mut(&mut self) -> &mut [u8] {
            // SAFETY: blocks are arrays of bytes without gaps, and the result borrows them alone.
            unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), LEN) }
        }
    }

    /// Watched memory, unless the kernel refuses to watch any.
    fn watched() -> Option<(WholePages, WrittenPages)> {
        let memory = WholePages(vec![PageBlock([1; 1 << 16]); LEN >> 16]);
        let pages = WrittenPages::watch(memory.as_ptr(), LEN);
        if pages.is_none() {
            assert!(Watcher::of_process().is_none(), "memory of the heap can be watched");
            println!("skipped: the kernel has no asynchronous write protection");
        }
        pages.map(|pages| (memory, pages))
    }

    #[test]
    fn a_write_is_noted_until_the_next_reset() {
        let Some((mut memory, pages)) = watched() else { return };
        assert!(!pages.any_written());
        memory[LEN / 2] = 2;
        assert!(pages.any_written());
        assert!(pages.any_written());
        assert!(pages.reset());
        assert!(!pages.any_written());
        assert_eq!(memory.iter().map(|byte| usize::from(*byte)).sum::<usize>(), LEN + 1);
        assert!(!pages.any_written(), "reading is no write");
    }

    #[test]
    fn a_write_by_the_kernel_is_noted_and_succeeds() {
        let Some((mut memory, pages)) = watched() else { return };
        File::open("/dev/zero").unwrap().read_exact(&mut memory[7..5000]).unwrap();
        assert!(pages.any_written());
        assert_eq!(memory[6..5001].iter().filter(|byte| **byte == 0).count(), 4993);
    }

    #[test]
    fn the_first_and_the_last_byte_are_watched() {
        for at in [0, LEN - 1] {
            let Some((mut memory, pages)) = watched() else { return };
            memory[at] = 2;
            assert!(pages.any_written(), "byte {at}");
        }
    }

    #[test]
    fn pages_are_watched_once_at_a_time() {
        let Some((memory, pages)) = watched() else { return };
        assert!(WrittenPages::watch(&raw const memory[LEN / 2], 10).is_none());
        drop(pages);
        assert!(WrittenPages::watch(&raw const memory[LEN / 2], 10).is_some());
    }
}
