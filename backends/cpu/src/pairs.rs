//! Pairs of neighbouring elements, such as the parts of complex numbers: copies of one of each pair, and pairs made of
//! two operands.
//!
//! The loops are compiled for registers of 512 bits, too, since these exchange elements of any places at once.

/// Defines a function of a generic loop that runs with the best instructions of this machine.
macro_rules! at_best_level {
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) by $loop:ident at $wide:ident) => {
        $(#[$doc])*
        #[inline]
        pub unsafe fn $name<T: Copy>($($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                // SAFETY: the CPU has these instructions, and the contract is the same.
                return unsafe { $wide::<T>($($arg),*) };
            }
            // SAFETY: the contract is the same.
            unsafe { $loop::<T>($($arg),*) }
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx512bw")]
        unsafe fn $wide<T: Copy>($($arg: $type),*) {
            // SAFETY: the contract is the same.
            unsafe { $loop::<T>($($arg),*) }
        }
    };
}

at_best_level! {
    /// Copies every second of `2 * n - 1` elements.
    ///
    /// # Safety
    /// `from` is valid for `2 * n - 1` elements and `to` for `n`, and they do not overlap.
    every_second(to: *mut T, from: *const T, n: usize) by copy_every_second at every_second_wide
}

at_best_level! {
    /// Writes `n` pairs: one element of `a` and one of `b`.
    ///
    /// # Safety
    /// `a` and `b` are valid for `n` elements and `to` for `2 * n`, which overlap neither.
    pairs_of(to: *mut T, a: *const T, b: *const T, n: usize) by copy_to_pairs at pairs_of_wide
}

#[inline(always)]
unsafe fn copy_every_second<T: Copy>(to: *mut T, from: *const T, n: usize) {
    for i in 0..n {
        // SAFETY: `i < n`, and by the contract of `every_second` both are valid for these elements.
        unsafe { to.add(i).write(from.add(2 * i).read()) };
    }
}

#[inline(always)]
unsafe fn copy_to_pairs<T: Copy>(to: *mut T, a: *const T, b: *const T, n: usize) {
    for i in 0..n {
        // SAFETY: `i < n`, and by the contract of `pairs_of` all three are valid for that many elements or pairs.
        unsafe {
            to.add(2 * i).write(a.add(i).read());
            to.add(2 * i + 1).write(b.add(i).read());
        }
    }
}

/// Writes `n` pairs of elements of `size` bytes, 4 or 8: one of each operand.
///
/// # Safety
/// The operands are valid for `n` elements, `to` is valid for `2 * n`, all are aligned to `size`, and `to` overlaps
/// neither.
pub unsafe fn interleave(to: *mut u8, [a, b]: [*const u8; 2], n: usize, size: usize) {
    // SAFETY: this function's contract is that of `pairs_of`, with elements of `size` bytes.
    unsafe {
        if size == 4 {
            pairs_of::<u32>(to.cast(), a.cast(), b.cast(), n);
        } else {
            pairs_of::<u64>(to.cast(), a.cast(), b.cast(), n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_from_pairs_and_put_back() {
        for n in [0, 1, 2, 7, 16, 31, 33, 100] {
            let pairs: Vec<u32> = (0..2 * n).collect();
            let (mut a, mut b, mut back) = (vec![0u32; n as usize], vec![0u32; n as usize], vec![0u32; pairs.len()]);
            // SAFETY: both parts have half as many elements as there are in pairs; the second begins at index 1.
            unsafe {
                every_second(a.as_mut_ptr(), pairs.as_ptr(), a.len());
                every_second(b.as_mut_ptr(), pairs.as_ptr().wrapping_add(1), b.len());
                interleave(back.as_mut_ptr().cast(), [a.as_ptr().cast(), b.as_ptr().cast()], a.len(), 4);
            }
            assert!(a.iter().zip(0..).all(|(x, i)| *x == 2 * i));
            assert!(b.iter().zip(0..).all(|(x, i)| *x == 2 * i + 1));
            assert_eq!(back, pairs);
        }
    }
}
