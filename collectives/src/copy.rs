//! Copies of bytes. Large results are written by non-temporal stores, which bypass the caches.

use gt_shm::copy::copy_nonoverlapping;

/// Results of at least this many bytes bypass the caches, because they would evict all other data from them.
const STREAM_BYTES_MIN: usize = 32 << 20;

/// Copies `bytes` bytes, which are part of a result of `whole` bytes.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, whole: usize) {
    // SAFETY: by the contract of `copy`, both ranges have `bytes` bytes and do not overlap; both calls need that alone.
    unsafe { if whole >= STREAM_BYTES_MIN { stream(from, to, bytes) } else { copy_nonoverlapping(from, to, bytes) } }
}

/// As [`copy`], by non-temporal stores: the destination is not read into the caches.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const STEP: usize = size_of::<__m128i>();
    let head = to.align_offset(STEP).min(bytes);
    let streamed = (bytes - head) / STEP;
    let done = head + streamed * STEP;
    // SAFETY: by the contract of `stream`, both ranges have `bytes` bytes, and `head + streamed * STEP <= bytes`. The
    // streaming stores are aligned, as `head` ends at a multiple of STEP. The fence orders them before this thread's
    // next stores, which may announce them to other ranks.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        let (wide_from, wide_to) = (from.add(head).cast::<__m128i>(), to.add(head).cast::<__m128i>());
        for i in 0..streamed {
            _mm_stream_si128(wide_to.add(i), _mm_loadu_si128(wide_from.add(i)));
        }
        _mm_sfence();
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), bytes - done);
    }
}

/// # Safety
/// As [`std::ptr::copy_nonoverlapping`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn stream(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the contract of `stream` is that of `copy_nonoverlapping`.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_at_any_address_are_copied() {
        let from: Vec<u8> = (0..300u16).map(|i| i as u8).collect();
        for whole in [0, STREAM_BYTES_MIN] {
            for (start, end, shift) in [(0, 0, 0), (0, 1, 3), (1, 17, 5), (3, 300, 0), (0, 300, 1), (7, 290, 15)] {
                let mut to = vec![0xa5; 320];
                let len = end - start;
                // SAFETY: `start..end` lies in the source, and `shift` bytes on there is room for as many.
                unsafe { copy(from[start..].as_ptr(), to[shift..].as_mut_ptr(), len, whole) };
                assert_eq!(to[shift..shift + len], from[start..end]);
                assert!(to[..shift].iter().chain(&to[shift + len..]).all(|x| *x == 0xa5));
            }
        }
    }
}
