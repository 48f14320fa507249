//! Messages from one rank to another, through a channel.

use super::channel::{CHANNEL_SLOT_BYTES, CHANNEL_SLOTS, ChannelProgress};
use super::communicator::LocalCommunicator;
use crate::call::Call;
use crate::error::{CollectiveError, Result};
use crate::exchange::MessageBuffer;
use crate::operation::Operation;
use crate::sync::{EventCount, reached};
use gt_ops::DType;
use std::sync::atomic::Ordering::Relaxed;

impl LocalCommunicator {
    /// Sends or receives one message.
    ///
    /// # Errors
    /// The other side expects another length or dtype, or the group is broken.
    pub(super) fn message_by_channel(&mut self, peer: usize, dtype: DType, mut side: MessageBuffer<'_>) -> Result<()> {
        let rank = self.rank;
        let (operation, from, to, bytes, progress) = match &side {
            MessageBuffer::Send(data) => (Operation::Send, rank, peer, data.len(), &mut self.sending[peer]),
            MessageBuffer::Receive(data) => (Operation::Recv, peer, rank, data.len(), &mut self.receiving[peer]),
        };
        let group = &*self.group;
        let channel = group.memory.channel(from, to);
        let watch = group.watch(rank, self.outer.as_ref());
        let (mine, other, heading, answer) = match &side {
            MessageBuffer::Send(_) => (&channel.sent, &channel.taken, &channel.offered, &channel.wanted),
            MessageBuffer::Receive(_) => (&channel.taken, &channel.sent, &channel.wanted, &channel.offered),
        };
        let wait = |signal: &EventCount, steps: u32| {
            signal.wait(&watch, |count| reached(count, steps)).map_err(|_| group.broken(operation, rank))
        };
        let call = Call::new(Operation::Send, dtype);
        let (heading, answer) = (&heading[progress.messages % 2], &answer[progress.messages % 2]);
        heading.call.store(call.encode(), Relaxed);
        heading.bytes.store(bytes as u64, Relaxed);
        mine.advance(&watch);
        let first = progress.steps.wrapping_add(1);
        *progress = ChannelProgress { messages: progress.messages.wrapping_add(1), steps: first };
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
            let slot = group.memory.channel_slot(from, to, step);
            match &mut side {
                MessageBuffer::Send(data) => {
                    // The slot is free once the receiver has copied the chunk of `CHANNEL_SLOTS` steps ago out of it.
                    wait(other, step.wrapping_sub(CHANNEL_SLOTS as u32 - 1))?;
                    slot.put(0, &data[start..][..len]);
                }
                MessageBuffer::Receive(data) => {
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
