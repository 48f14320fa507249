//! The hash functions of hot paths.

/// 2^64 divided by the golden ratio, odd.
pub const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash with another word in it: FxHash, as rustc has it.
#[inline]
pub fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER)
}

/// A hash of a hash: the upper bits depend on all bits, also where hashes are evenly spaced.
#[inline]
pub fn scatter(hash: u64) -> u64 {
    (hash ^ hash >> 29).wrapping_mul(MULTIPLIER)
}
