//! A copy of a session's submitted slots, which the client cannot change while they are decoded.

use super::violation::Violation;
use gt_ops::wire::{SLOTS_MAX, Slot, slots_of};
use gt_shm::DaemonPort;
use gt_shm::port::POP_SLOTS_MAX;

/// Slots copied from the ring whose commands are not processed yet. A command may straddle two copies.
pub struct SubmittedSlots {
    slots: Box<[Slot]>,
    /// The slots in use are `start..end`.
    start: usize,
    end: usize,
}

impl SubmittedSlots {
    /// An empty buffer, with room for a full copy after the beginning of a command.
    pub fn new() -> SubmittedSlots {
        SubmittedSlots { slots: vec![[0; 8]; POP_SLOTS_MAX + SLOTS_MAX].into_boxed_slice(), start: 0, end: 0 }
    }
    fn len(&self) -> usize {
        self.end - self.start
    }

    /// True if a whole command is here, or a slot that cannot begin one; false if only the beginning of one is here.
    #[inline]
    pub fn has_command(&self) -> bool {
        self.len() > 0 && slots_of(&self.slots[self.start]).map_or(true, |needed| needed <= self.len())
    }

    /// Copies more slots from the ring unless a whole command is here. False if there is no whole command.
    ///
    /// # Errors
    /// A corrupt ring, or a slot that begins no command.
    pub fn fill(&mut self, port: &mut DaemonPort) -> Result<bool, Violation> {
        if self.start == self.end {
            (self.start, self.end) = (0, port.pop(&mut self.slots)?);
            return Ok(self.end > 0 && slots_of(&self.slots[0])? <= self.end);
        }
        if slots_of(&self.slots[self.start])? <= self.len() {
            return Ok(true);
        }
        self.slots.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.len());
        self.end += port.pop(&mut self.slots[self.end..])?;
        Ok(slots_of(&self.slots[0])? <= self.end)
    }

    /// The slots of the next command; none if there is no whole one.
    ///
    /// # Errors
    /// A slot that begins no command.
    #[inline]
    pub fn next_command(&self) -> Result<Option<&[Slot]>, Violation> {
        if self.len() == 0 {
            return Ok(None);
        }
        let needed = slots_of(&self.slots[self.start])?;
        Ok((needed <= self.len()).then(|| &self.slots[self.start..self.start + needed]))
    }

    /// Drops the first `slots` slots, whose command was decoded.
    #[inline]
    pub fn consume(&mut self, slots: usize) {
        self.start += slots;
    }
}
