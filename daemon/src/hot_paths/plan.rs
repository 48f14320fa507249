//! The plan of a sequence: its instructions as they came, validated and turned into steps once.

use super::hash::mix;
use crate::table::{Content, KeyedState, TensorTable};
use crate::worker::step::Step;
use gt_ops::result_meta::ResultMeta;
use gt_ops::wire::{Command, InstructionPattern, Slot};
use gt_ops::{Meta, Operand, TensorId};
use std::collections::HashMap;

/// The tensor operands of an instruction that can be planned.
pub const TENSORS_MAX: usize = 4;
/// The most slots of an instruction that can be planned: three of attributes.
const SLOTS_MAX: usize = 4;
/// The most entries of [`PlannedInstructions`].
const PLANNED_MAX: usize = 1 << 12;
/// Stands for the position of the producer of a tensor that no instruction of the sequence has made.
pub const FROM_OUTSIDE: u32 = u32::MAX;

/// The slots of an instruction, copied to plan it.
#[derive(Clone, Copy)]
pub struct CopiedSlots {
    slots: [Slot; SLOTS_MAX],
    len: usize,
}

impl CopiedSlots {
    /// A copy of `slots`; none if they are too many for an instruction that can be planned.
    pub fn of(slots: &[Slot]) -> Option<CopiedSlots> {
        let mut copied = CopiedSlots { slots: [[0; 8]; SLOTS_MAX], len: slots.len() };
        copied.slots.get_mut(..slots.len())?.copy_from_slice(slots);
        Some(copied)
    }

    fn as_slice(&self) -> &[Slot] {
        &self.slots[..self.len]
    }
}

/// An instruction as validation has found it: all that does not change when it comes again, on whatever tensors of the
/// same shapes and dtypes.
pub struct PlannedInstruction {
    pattern: InstructionPattern,
    /// The shapes and dtypes of its tensor operands. With the pattern they determine all of the step but ids and
    /// numbers.
    metas: Box<[Meta]>,
    /// The client's ids of the tensor operands of the last repetition.
    pub operands: [TensorId; TENSORS_MAX],
    /// The client's id of its result.
    pub result: TensorId,
    /// The shape and dtype of the result.
    pub out: Meta,
    /// The step that the last repetition became.
    pub step: Step,
    /// The estimated time, nanoseconds; that of the step is bounded.
    pub cost_ns: u64,
}

impl PlannedInstruction {
    /// Makes the instruction in `slots` the step's, if it is a repetition: its operands have the planned shapes and
    /// dtypes, their elements are defined, and `producers` have made them, the instructions of a sequence whose last
    /// results are `results`. The id of the result at the workers is still to be written.
    #[inline]
    pub fn bind(
        &mut self,
        slots: &[Slot],
        tensors: &TensorTable,
        producers: &[u32; TENSORS_MAX],
        results: &[TensorId],
    ) -> bool {
        if !self.pattern.matches(slots) {
            return false;
        }
        let Command::Op(instruction) = &mut self.step.command else { return false };
        let inputs = instruction.inputs.as_mut_slice();
        for (n, (position, id)) in self.pattern.tensors(&slots[0]).enumerate() {
            let (Some(tensor), Some(meta)) = (tensors.get(id), self.metas.get(n)) else { return false };
            let is_same_producer = results.get(producers[n] as usize).is_none_or(|result| *result == id);
            if tensor.content != Content::Defined || tensor.meta != *meta || !is_same_producer {
                return false;
            }
            inputs[position] = Operand::Tensor(tensor.at.id());
            self.operands[n] = id;
        }
        self.pattern.bind(&slots[0], instruction);
        self.result = InstructionPattern::out(&slots[0]);
        true
    }

    /// The client's ids of the tensor operands of the last repetition.
    pub fn tensor_operands(&self) -> &[TensorId] {
        &self.operands[..self.metas.len()]
    }
}

/// The planned instructions of a session. Those that differ in their tensors only share an entry, so that the plan of a
/// long sequence stays in the caches.
#[derive(Default)]
pub struct PlannedInstructions {
    entries: Vec<PlannedInstruction>,
    /// The numbers of entries by a hash of their slots and operands.
    by_hash: HashMap<u64, Vec<u32>, KeyedState>,
}

impl PlannedInstructions {
    /// All entries, by number. They may be taken out, and are to be put back before any other call.
    #[inline]
    pub fn entries(&mut self) -> &mut Vec<PlannedInstruction> {
        &mut self.entries
    }

    /// Whether there is no room for another entry.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= PLANNED_MAX
    }

    /// The number of the entry of an instruction with these slots, on tensor operands of these shapes and dtypes, which
    /// becomes `step` and is estimated to take `cost_ns`. None if it cannot be planned.
    pub fn add(
        &mut self,
        slots: &CopiedSlots,
        metas: impl Iterator<Item = Meta>,
        out: Meta,
        step: &Step,
        cost_ns: u64,
    ) -> Option<u32> {
        let metas: Box<[Meta]> = metas.collect();
        let [first, more @ ..] = slots.as_slice() else { return None };
        let words = more.iter().flatten().copied().chain(metas.iter().flat_map(ResultMeta::words_of));
        let alike = self.by_hash.entry(words.fold(mix(0, first[0]), mix)).or_default();
        let known = alike.iter().copied().find(|number| {
            let entry = &self.entries[*number as usize];
            entry.pattern.matches(slots.as_slice()) && entry.metas == metas && entry.cost_ns == cost_ns
        });
        if known.is_some() {
            return known;
        }
        let pattern = InstructionPattern::of(slots.as_slice())?;
        let number = self.entries.len() as u32;
        alike.push(number);
        let (operands, step) = ([0; TENSORS_MAX], step.clone());
        self.entries.push(PlannedInstruction { pattern, metas, operands, result: 0, out, step, cost_ns });
        Some(number)
    }
}

/// The positions in a sequence of the instructions that have made `operands`; see [`producer_of`].
pub fn producers_of(operands: &[TensorId], results: &[TensorId], at: usize) -> [u32; TENSORS_MAX] {
    let mut producers = [FROM_OUTSIDE; TENSORS_MAX];
    producers.iter_mut().zip(operands).for_each(|(producer, id)| *producer = producer_of(*id, results, at));
    producers
}

/// Whether operands come from these instructions of a sequence, whose last results are `results`.
pub fn come_from(operands: &[TensorId], producers: &[u32; TENSORS_MAX], results: &[TensorId]) -> bool {
    let is_same = |(producer, id): (&u32, &TensorId)| results.get(*producer as usize).is_none_or(|last| last == id);
    producers.iter().zip(operands).all(is_same)
}

/// The position in a sequence of the instruction that has made `id`; [`FROM_OUTSIDE`] if none of them has. `results`
/// are the last results of the sequence's instructions, of which the one at `at` comes next.
fn producer_of(id: TensorId, results: &[TensorId], at: usize) -> u32 {
    // Ids increase, so the results are in order from the oldest one on.
    let (newer, older) = results.split_at(at);
    let find = |results: &[TensorId]| results.binary_search(&id).ok();
    let found = find(newer).or_else(|| find(older).map(|position| at + position));
    found.map_or(FROM_OUTSIDE, |position| position as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_producer_is_found_among_the_last_results() {
        // Three instructions of this repetition and two of the last; the fourth comes next.
        let results = [21, 23, 24, 17, 18];
        let of = |id| producer_of(id, &results, 3);
        assert_eq!([21, 23, 24, 17, 18].map(of), [0, 1, 2, 3, 4]);
        assert_eq!([1, 16, 19, 20, 22, 25].map(of), [FROM_OUTSIDE; 6]);
        // None has been executed from the fourth on.
        assert_eq!(producer_of(23, &[21, 23, 24, 0, 0], 3), 1);
        assert_eq!(producer_of(3, &[0; 5], 2), FROM_OUTSIDE);
    }
}
