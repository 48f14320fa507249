//! The shared words of a channel from one rank to another: a bounded buffer of a few slots, and an event count for each
//! side (Reed and Kanodia 1979).
//!
//! Each message begins with a heading from both sides, so that both learn of a mismatch. Its bytes follow in chunks.
//! Both sides count headings and chunks alike, so that a number names the same heading or chunk on both.

use crate::sync::EventCount;
use std::sync::atomic::AtomicU64;

/// Bytes of a chunk.
pub const CHANNEL_SLOT_BYTES: usize = 128 << 10;
/// The most chunks in a channel.
pub const CHANNEL_SLOTS: usize = 2;

/// One side's expectation of a message.
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

/// A rank's position in its channel to or from another.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChannelProgress {
    pub messages: usize,
    /// The number of headings and chunks so far.
    pub steps: u32,
}
