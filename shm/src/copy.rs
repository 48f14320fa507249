//! Copies of bytes that take no longer at some addresses than at others.
//!
//! The C library's `memcpy` copies from some 2 KiB to 1 MiB by `rep movsb`. AMD's processors (measured on Zen 4)
//! execute that some thirty times as slowly as vectors, 3.5 bytes a nanosecond instead of 110, where the destination
//! lies 1 to 15 bytes after the source modulo a page, as in a row that is shifted by an element. Elsewhere it is
//! faster, since it does not read the lines that it writes: where these are in another core's cache, vectors took three
//! times as long.

/// Shorter copies are left to the C library, which copies them by vectors.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const VECTORS_BYTES_MIN: usize = 2 << 10;
/// The bytes of a page, and the most bytes by which a destination lies after the source, modulo a page, where
/// `rep movsb` is slow.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const PAGE_BYTES: usize = 4096;
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BEHIND_MAX: usize = 15;

/// As [`std::ptr::copy_nonoverlapping`] of bytes.
///
/// # Safety
/// `from` is valid for reads of `bytes` bytes and `to` for writes, and the two do not overlap.
#[inline]
pub unsafe fn copy_nonoverlapping(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes >= VECTORS_BYTES_MIN
        && (1..=BEHIND_MAX).contains(&((to as usize).wrapping_sub(from as usize) % PAGE_BYTES))
        && is_x86_feature_detected!("avx")
    {
        // SAFETY: the contract is the same, the CPU has AVX, and there are more bytes than in a vector.
        return unsafe { by_vectors(from, to, bytes) };
    }
    // SAFETY: the contract is the same.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
}

/// # Safety
/// Same as for [`copy_nonoverlapping`], for at least [`VECTORS_BYTES_MIN`] bytes, on a CPU with AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn by_vectors(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_store_si256, _mm256_storeu_si256};
    const STEP: usize = size_of::<__m256i>();
    // Several at a time, which the compiler does not turn into a call of `memcpy`.
    const TOGETHER: usize = 4;
    // From the last vector to the first: forwards, each load would wait for a store to the same place in another page.
    // SAFETY: every access lies within `bytes`, at least `VECTORS_BYTES_MIN`, for which both are valid; the first and
    // the last vector overlap others. Below `at`, `to` is aligned to a vector.
    unsafe {
        let first = _mm256_loadu_si256(from.cast());
        _mm256_storeu_si256(to.add(bytes - STEP).cast(), _mm256_loadu_si256(from.add(bytes - STEP).cast()));
        let mut at = bytes - (to as usize + bytes) % STEP;
        while at >= TOGETHER * STEP {
            at -= TOGETHER * STEP;
            // A closure would not be compiled for AVX, but called for each vector.
            let a = _mm256_loadu_si256(from.add(at).cast());
            let b = _mm256_loadu_si256(from.add(at + STEP).cast());
            let c = _mm256_loadu_si256(from.add(at + 2 * STEP).cast());
            let d = _mm256_loadu_si256(from.add(at + 3 * STEP).cast());
            _mm256_store_si256(to.add(at).cast(), a);
            _mm256_store_si256(to.add(at + STEP).cast(), b);
            _mm256_store_si256(to.add(at + 2 * STEP).cast(), c);
            _mm256_store_si256(to.add(at + 3 * STEP).cast(), d);
        }
        while at >= STEP {
            at -= STEP;
            _mm256_store_si256(to.add(at).cast(), _mm256_loadu_si256(from.add(at).cast()));
        }
        _mm256_storeu_si256(to.cast(), first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All bytes arrive, and none beside them is written, wherever both ranges begin and however long they are.
    #[test]
    fn copies_have_the_bytes_of_the_source() {
        const ROOM: usize = 20_000;
        let source: Vec<u8> = (0..ROOM).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut target = vec![0u8; ROOM];
        // A place in the target that lies where the first byte of the source does in its page.
        let level = (source.as_ptr() as usize).wrapping_sub(target.as_ptr() as usize) % 4096;
        for bytes in [0, 1, 31, 2047, 2048, 2049, 2080, 2175, 2176, 2300, 4096, 8191] {
            for (from, to) in [(0, level), (0, level + 1), (0, level + 12), (40, level + 55), (31, 33), (64, 1)] {
                target.fill(0);
                // SAFETY: both vectors have `ROOM` bytes, more than `bytes` beyond `from` or `to`, and are different.
                unsafe { copy_nonoverlapping(source.as_ptr().add(from), target.as_mut_ptr().add(to), bytes) };
                assert!(target[to..to + bytes] == source[from..from + bytes], "{bytes} from {from} to {to}");
                assert!(target[..to].iter().chain(&target[to + bytes..]).all(|byte| *byte == 0));
            }
        }
    }
}
