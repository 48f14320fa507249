//! The unit that rings carry, and the sizes that follow from cache lines.

/// 64-bit words in a [`Slot`]: eight, one cache line. Two under loom, whose cost grows with every atomic access.
pub const SLOT_WORDS: usize = if cfg!(loom) { 2 } else { 8 };

/// One entry of a ring: plain words, which this crate does not interpret.
pub type Slot = [u64; SLOT_WORDS];

/// Bytes in a [`Slot`].
pub const SLOT_BYTES: usize = size_of::<Slot>();

/// The bytes between shared fields that different sides write: two cache lines, because the adjacent-line prefetcher
/// loads lines in pairs.
pub const LINE_BYTES: usize = 128;
