//! Ranges of host memory that backends copy from and to.

use std::ptr::NonNull;

/// Bytes of host memory that another process may write to at any time.
///
/// It is not a slice, since a Rust slice promises that nobody else writes. Code may copy the bytes and check the copy.
#[derive(Clone, Copy, Debug)]
pub struct HostRange {
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the range stays mapped in the whole process while a `HostRange` is in use (`HostRange::new`).
unsafe impl Send for HostRange {}
// SAFETY: its methods only copy the address and the size; a shared reference gives access to nothing else.
unsafe impl Sync for HostRange {}

impl HostRange {
    /// The `len_bytes` bytes from `start` on.
    ///
    /// # Safety
    /// The range stays mapped while this value or a copy of it is in use. It is readable when passed to
    /// [`crate::Backend::write`], writable when passed to [`crate::Backend::read`], and no Rust reference to it is live
    /// meanwhile.
    pub const unsafe fn new(start: NonNull<u8>, len_bytes: usize) -> HostRange {
        HostRange { start, len_bytes }
    }
    /// The first byte.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }
    /// Its size in bytes.
    pub const fn len(&self) -> usize {
        self.len_bytes
    }
    /// Whether its size is 0.
    pub const fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }
}
