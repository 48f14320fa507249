//! From one rank to another: a few slots that one side fills while the other empties them.
//!
//! Each message begins with both sides saying what they expect, so that both learn of a difference; its bytes follow in
//! chunks. Both sides count headings and chunks alike, so that a number names the same thing on both.

use super::LocalCommunicator;
use crate::Operation;
use crate::call::Call;
use crate::error::{CollectiveError, Result};
use crate::exchange::Side;
use crate::signal::{Signal, reached};
use gt_ops::DType;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a chunk.
pub const CHANNEL_SLOT_BYTES: usize = 128 << 10;
/// Chunks on their way, at most.
pub const CHANNEL_SLOTS: usize = 2;

/// What one side expects of a message.
#[repr(C)]
#[derive(Default)]
struct Heading {
    call: AtomicU64,
    bytes: AtomicU64,
}

/// The shared words of a channel. There are two of each heading, since one side may be a message ahead.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Channel {
    sent: Signal,
    taken: Signal,
    offered: [Heading; 2],
    wanted: [Heading; 2],
}

impl Channel {
    pub fn signals(&self) -> [&Signal; 2] {
        [&self.sent, &self.taken]
    }
}

/// Where one rank is in its channel to or from another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    messages: usize,
    /// Headings and chunks, as [`Signal`] counts them.
    steps: u32,
}

impl LocalCommunicator {
    /// # Errors
    /// If the other side expects something else, or the group is broken.
    pub(super) fn message_by_channel(&mut self, peer: usize, dtype: DType, mut side: Side<'_>) -> Result<()> {
        let rank = self.rank;
        let (operation, from, to, bytes, progress) = match &side {
            Side::Sends(data) => (Operation::Send, rank, peer, data.len(), &mut self.sending[peer]),
            Side::Takes(data) => (Operation::Recv, peer, rank, data.len(), &mut self.receiving[peer]),
        };
        let group = &*self.group;
        let channel = group.board.channel(from, to);
        let watch = group.watch(rank);
        let (mine, other, heading, answer) = match &side {
            Side::Sends(_) => (&channel.sent, &channel.taken, &channel.offered, &channel.wanted),
            Side::Takes(_) => (&channel.taken, &channel.sent, &channel.wanted, &channel.offered),
        };
        let wait = |signal: &Signal, steps: u32| {
            signal.wait(&watch, |count| reached(count, steps)).map_err(|_| group.broken(operation, rank))
        };
        let call = Call::new(Operation::Send, dtype);
        let (heading, answer) = (&heading[progress.messages % 2], &answer[progress.messages % 2]);
        heading.call.store(call.encode(), Relaxed);
        heading.bytes.store(bytes as u64, Relaxed);
        mine.advance(&watch);
        let first = progress.steps.wrapping_add(1);
        *progress = Progress { messages: progress.messages.wrapping_add(1), steps: first };
        wait(other, first)?;
        let (theirs, their_bytes) = (Call::decode(answer.call.load(Relaxed)), answer.bytes.load(Relaxed));
        if theirs != Some(call) || their_bytes != bytes as u64 {
            let dtype_found = theirs.map_or("nothing", |call| call.dtype.name());
            return Err(CollectiveError::Mismatch {
                operation,
                rank,
                peer,
                expected: format!("a message of {bytes} bytes of {dtype}"),
                found: format!("it expects {their_bytes} bytes of {dtype_found}"),
            });
        }
        for start in (0..bytes).step_by(CHANNEL_SLOT_BYTES) {
            let len = CHANNEL_SLOT_BYTES.min(bytes - start);
            let step = progress.steps;
            let slot = group.board.channel_slot(from, to, step);
            match &mut side {
                Side::Sends(data) => {
                    // What was in the slot has been taken.
                    wait(other, step.wrapping_sub(CHANNEL_SLOTS as u32 - 1))?;
                    slot.put(0, &data[start..][..len]);
                }
                Side::Takes(data) => {
                    wait(other, step.wrapping_add(1))?;
                    slot.get(0, &mut data[start..][..len], bytes);
                }
            }
            mine.advance(&watch);
            progress.steps = step.wrapping_add(1);
        }
        Ok(())
    }
}
