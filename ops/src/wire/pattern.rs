//! Patterns of instructions: the words that an instruction's repetitions have in common.

use crate::instruction::{Attrs, Instruction, Operand, TensorId};
use crate::op::Op;
use crate::packing::PackedLayout;
use crate::row::{AttrKind, Class};
use crate::wire::layouts::{Header, OpHeader, RandomAttrs, Slot, attribute_slots, operand_kind};
use crate::wire::operands::{FIRST_OPERANDS, OPERANDS_WORD, decode_operand};

/// The most slots of an instruction that has a pattern: three of attributes.
const SLOTS: usize = 4;
/// The words of a random instruction that differ each time: its seed and its number since the seed was set.
const RANDOM_WORDS: [usize; 2] = [RandomAttrs::FIELDS[1].word, RandomAttrs::FIELDS[2].word];
/// The word of the result's id.
const OUT_WORD: usize = 1;

/// An instruction as it came on the wire, to recognize its repetitions without decoding them. These have other ids of
/// tensors; other numbers, where no shape or dtype depends on a number; and another seed and position among the random
/// numbers. [`bind`](Self::bind) writes all of these but the ids into an instruction that was decoded before.
#[derive(Clone, Debug)]
pub struct InstructionPattern {
    slots: [Slot; SLOTS],
    len: usize,
    /// The bits of the first slot that repetitions have in common.
    fixed: Slot,
    /// The number of operands, and bit `i` for a tensor at operand `i`.
    operands: usize,
    tensors: u8,
    kinds: u8,
    is_random: bool,
}

impl InstructionPattern {
    /// The pattern of the instruction in `slots`, which [`crate::wire::decode`] accepts; none if they are another
    /// command, or an instruction of more than four operands.
    pub fn of(slots: &[Slot]) -> Option<InstructionPattern> {
        let first = slots.first()?;
        let op = Op::from_wire(Header::read(first).ok()?.id)?;
        let row = op.row();
        let OpHeader { operand_kinds, operand_count, .. } = OpHeader::read(first).ok()?;
        let operands = usize::from(operand_count);
        let len = 1 + attribute_slots(row.attrs);
        if operands > FIRST_OPERANDS || slots.len() != len {
            return None;
        }
        // No shape, dtype or estimate depends on the numbers of these.
        let numbers_differ = matches!(row.class, Class::Elementwise | Class::Select | Class::Creation);
        let is_random = row.attrs == AttrKind::Random;
        let mut pattern = InstructionPattern {
            slots: [[0; 8]; SLOTS],
            len,
            fixed: [u64::MAX; 8],
            operands,
            tensors: 0,
            kinds: operand_kinds,
            is_random,
        };
        pattern.slots[..len].copy_from_slice(slots);
        pattern.fixed[OUT_WORD] = 0;
        for operand in 0..operands {
            let is_tensor = operand_kinds >> (2 * operand) & 3 == operand_kind::TENSOR;
            pattern.tensors |= u8::from(is_tensor) << operand;
            if is_tensor || numbers_differ {
                pattern.fixed[OPERANDS_WORD + operand] = 0;
            }
        }
        if is_random {
            RANDOM_WORDS.iter().for_each(|word| pattern.fixed[*word] = 0);
        }
        Some(pattern)
    }

    /// Whether the instruction in `slots` is a repetition: it decodes to one that differs as described, and in nothing
    /// else.
    #[inline]
    pub fn matches(&self, slots: &[Slot]) -> bool {
        let [first, more @ ..] = slots else { return false };
        let words = first.iter().zip(&self.slots[0]).zip(&self.fixed);
        let differing = words.fold(0, |bits, ((word, own), fixed)| bits | ((word ^ own) & fixed));
        differing == 0 && more == &self.slots[1..self.len]
    }

    /// The id of the result of the instruction that begins with `first`.
    #[inline]
    pub fn out(first: &Slot) -> TensorId {
        first[OUT_WORD]
    }

    /// The tensor operands of a repetition that begins with `first`: their positions among the operands, and their ids.
    #[inline]
    pub fn tensors<'a>(&self, first: &'a Slot) -> impl Iterator<Item = (usize, TensorId)> + use<'a> {
        let (tensors, operands) = (self.tensors, self.operands);
        let position = move |operand: &usize| tensors >> operand & 1 == 1;
        (0..operands).filter(position).map(|operand| (operand, first[OPERANDS_WORD + operand]))
    }

    /// Writes the numbers of a repetition that begins with `first` into `instruction`, another repetition. Its ids are
    /// the caller's to write.
    #[inline]
    pub fn bind(&self, first: &Slot, instruction: &mut Instruction) {
        let numbers = instruction.inputs.as_mut_slice().iter_mut().take(self.operands).enumerate();
        for (position, operand) in numbers {
            if let Operand::Scalar(_) = operand {
                *operand = decode_operand(self.kinds >> (2 * position), first[OPERANDS_WORD + position]);
            }
        }
        if self.is_random
            && let Attrs::Random { seed, stream, .. } = &mut instruction.attrs
        {
            [*seed, *stream] = RANDOM_WORDS.map(|word| first[word]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::{InputMeta, infer};
    use crate::instruction::Scalar;
    use crate::wire::tests::instruction;
    use crate::wire::{Command, Encoder, decode};
    use crate::{DType, Meta, Shape};
    use proptest::prelude::*;

    /// The instruction with other ids, numbers and random numbers: `change` adds to each of their words.
    fn repetition(slots: &[Slot], pattern: &InstructionPattern, change: u64) -> Vec<Slot> {
        let mut slots = slots.to_vec();
        for (word, fixed) in slots[0].iter_mut().zip(&pattern.fixed) {
            *word = word.wrapping_add(change & !fixed);
        }
        slots
    }

    proptest! {
        #[test]
        fn a_bound_instruction_is_the_decoded_one(instruction in instruction(), change: u64) {
            let mut encoder = Encoder::new();
            let slots = encoder.instruction(&instruction);
            let Some(pattern) = InstructionPattern::of(slots) else {
                prop_assert!(instruction.inputs.as_slice().len() > FIRST_OPERANDS);
                return Ok(());
            };
            prop_assert!(pattern.matches(slots));
            let other = repetition(slots, &pattern, change);
            prop_assert!(pattern.matches(&other));
            let Ok(Command::Op(expected)) = decode(&other) else { panic!("no instruction") };
            let mut bound = instruction.clone();
            pattern.bind(&other[0], &mut bound);
            bound.out = InstructionPattern::out(&other[0]);
            for (position, id) in pattern.tensors(&other[0]) {
                bound.inputs.as_mut_slice()[position] = Operand::Tensor(id);
            }
            // NaN is not equal to itself.
            prop_assert_eq!(format!("{bound:?}"), format!("{expected:?}"));
        }

        #[test]
        fn every_other_bit_is_another_instruction(instruction in instruction(), bit in 0usize..64) {
            let mut encoder = Encoder::new();
            let slots = encoder.instruction(&instruction).to_vec();
            if let Some(pattern) = InstructionPattern::of(&slots) {
                for (slot, word) in (0..slots.len()).flat_map(|slot| (0..8).map(move |word| (slot, word))) {
                    if slot > 0 || pattern.fixed[word] != 0 {
                        let mut other = slots.clone();
                        other[slot][word] ^= 1 << bit;
                        prop_assert!(!pattern.matches(&other), "word {} of slot {}", word, slot);
                    }
                }
                prop_assert!(!pattern.matches(&slots[..slots.len() - 1]));
            }
        }
    }

    #[test]
    fn no_shape_depends_on_numbers_that_may_differ() {
        let meta = Meta::new(Shape::new(&[2, 3]).unwrap(), DType::F32);
        let mask = Meta::new(meta.shape, DType::Bool);
        let numbers = [0.0, -7.5, f64::NAN, 1e300].map(Scalar::Float);
        let numbers =
            [numbers.as_slice(), &[0, -1, i64::MAX].map(Scalar::Int), &[true, false].map(Scalar::Bool)].concat();
        let mut tried = 0;
        for row in crate::row::ROWS {
            let attrs = match row.class {
                Class::Elementwise => Attrs::None,
                Class::Select => Attrs::DType(DType::F32),
                Class::Creation => Attrs::Create { shape: Shape::new(&[5]).unwrap(), dtype: DType::F32 },
                _ => continue,
            };
            let operands = usize::from(row.operands);
            for tensors in 0..1u8 << operands {
                let metas = |number: Scalar| -> Vec<InputMeta> {
                    let operand = |i: usize| match tensors >> i & 1 {
                        0 => InputMeta::Scalar(number),
                        _ if row.class == Class::Select && i == 0 => InputMeta::Tensor(mask),
                        _ => InputMeta::Tensor(meta),
                    };
                    (0..operands).map(operand).collect()
                };
                let results: Vec<_> =
                    numbers.iter().map(|number| infer(row.op, &metas(*number), &attrs).ok()).collect();
                assert!(results.iter().all(|result| *result == results[0]), "{}: {results:?}", row.name);
                tried += usize::from(results[0].is_some());
            }
        }
        assert!(tried > 50, "{tried}");
    }
}
