//! From one rank to another: a few slots that one side fills while the other empties them.
//!
//! Each message begins with both sides saying what they expect, so that both learn of a difference; its bytes follow in
//! chunks. Both sides count headings and chunks alike, so that a number names the same thing on both.

use crate::sync::EventCount;
use std::sync::atomic::AtomicU64;

/// Bytes of a chunk.
pub const CHANNEL_SLOT_BYTES: usize = 128 << 10;
/// Chunks on their way, at most.
pub const CHANNEL_SLOTS: usize = 2;

/// What one side expects of a message.
#[repr(C)]
#[derive(Default)]
pub struct Heading {
    pub call: AtomicU64,
    pub bytes: AtomicU64,
}

/// The shared words of a channel. There are two of each heading, since one side may be a message ahead.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Channel {
    pub sent: EventCount,
    pub taken: EventCount,
    pub offered: [Heading; 2],
    pub wanted: [Heading; 2],
}

impl Channel {
    pub fn signals(&self) -> [&EventCount; 2] {
        [&self.sent, &self.taken]
    }
}

/// Where one rank is in its channel to or from another.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChannelProgress {
    pub messages: usize,
    /// Headings and chunks, as [`EventCount`] counts them.
    pub steps: u32,
}
