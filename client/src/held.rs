//! The instructions of in-place operations, which are published together.
//!
//! An in-place operation issues instructions and then drops the value that it replaces. Were its instructions published
//! one by one, the worker would copy the old value before it heard that nobody else needs it. So the session holds them
//! back until the operation has ended, some microseconds later. A tensor that is freed meanwhile is marked as last used
//! in the last of them that names it, and the worker writes in place.

use gt_ops::wire::amended_word;
use gt_ops::{Class, Inputs, Op, TensorId};
use gt_shm::Submitter;
use smallvec::SmallVec;

/// The most instructions that are held back; more are published, and their operands are freed after them.
const HELD_MAX: usize = 64;
/// The operands of an instruction that can be marked as last used.
const MARKED_OPERANDS: usize = 8;

struct HeldInstruction {
    /// Where its first slot is in the ring.
    position: u32,
    /// The first word of that slot.
    word: u64,
    op: Op,
    out: TensorId,
    /// The first operands; 0 for a number.
    operands: SmallVec<[TensorId; 4]>,
}

impl HeldInstruction {
    fn amend(&mut self, submitter: &mut Submitter, last_use: u8, replaces: Option<u8>) -> bool {
        let word = amended_word(self.word, last_use, replaces);
        let amended = submitter.amend(self.position, word);
        if amended {
            self.word = word;
        }
        amended
    }

    /// The operand whose elements the result has, in the same order, apart from those that the instruction changes.
    /// `replaced` are the value that the in-place operation began with and its reshapes.
    fn continues(&self, replaced: &[TensorId]) -> Option<usize> {
        match self.op.row().class {
            Class::SliceScatter | Class::Scatter => Some(0),
            Class::Movement if matches!(self.op, Op::Reshape | Op::Bitcast) => Some(0),
            Class::Elementwise | Class::Select => self.operands.iter().position(|id| replaced.contains(id)),
            _ => None,
        }
    }
}

/// The instructions that are pushed and held back.
#[derive(Default)]
pub(crate) struct HeldInstructions {
    /// The number of in-place operations under way.
    operations: u32,
    instructions: Vec<HeldInstruction>,
    /// Whether a publication was put off.
    due: bool,
}

impl HeldInstructions {
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.operations > 0
    }

    pub(crate) fn begin(&mut self) {
        self.operations += 1;
    }

    /// Ends an operation. True if a publication is due.
    pub(crate) fn end(&mut self) -> bool {
        self.operations -= 1;
        self.operations == 0 && {
            self.instructions.clear();
            std::mem::take(&mut self.due)
        }
    }

    /// Puts a publication off, if in-place operations are under way and have not issued too much. False if it must not
    /// wait.
    #[inline]
    pub(crate) fn put_off(&mut self) -> bool {
        let put_off = self.is_active() && self.instructions.len() < HELD_MAX;
        self.due |= put_off;
        put_off
    }

    /// Forgets the instructions, which are published.
    #[inline]
    pub(crate) fn published(&mut self) {
        self.due = false;
        self.instructions.clear();
    }

    /// Adds an instruction that was pushed at `position`.
    pub(crate) fn add(&mut self, position: u32, word: u64, op: Op, out: TensorId, inputs: &Inputs) {
        let operands = inputs.as_slice().iter().take(MARKED_OPERANDS).map(|operand| operand.tensor().unwrap_or(0));
        self.instructions.push(HeldInstruction { position, word, op, out, operands: operands.collect() });
    }

    /// Adds an instruction on two tensors.
    pub(crate) fn add_binary(&mut self, position: u32, word: u64, op: Op, out: TensorId, operands: [TensorId; 2]) {
        let operands = SmallVec::from_slice(&operands);
        self.instructions.push(HeldInstruction { position, word, op, out, operands });
    }

    /// Marks tensor `id`, which nothing names any more, as last used in the last instruction that names it. False if no
    /// instruction here does, or it cannot be marked: then the tensor has to be freed.
    pub(crate) fn mark_last_use(&mut self, submitter: &mut Submitter, id: TensorId) -> bool {
        let Some(last) = self.instructions.iter_mut().rev().find(|held| held.operands.contains(&id)) else {
            return false;
        };
        // A row with more operands may name the tensor again past those that can be marked: it is freed behind then.
        if last.operands.len() == MARKED_OPERANDS {
            return false;
        }
        let mask =
            last.operands.iter().enumerate().filter(|(_, own)| **own == id).fold(0, |mask, (i, _)| mask | 1 << i);
        last.amend(submitter, mask, None)
    }

    /// Notes that value `new` replaces `old` in the program: where the instructions that lead from one to the other
    /// fail, the old elements stay.
    pub(crate) fn replaced(&mut self, submitter: &mut Submitter, old: TensorId, new: TensorId) {
        let mut same: SmallVec<[TensorId; 4]> = SmallVec::from_slice(&[old]);
        for held in &self.instructions {
            if matches!(held.op, Op::Reshape | Op::Bitcast) && same.contains(&held.operands[0]) {
                same.push(held.out);
            }
        }
        let mut path: SmallVec<[(usize, u8); 4]> = SmallVec::new();
        let mut at = new;
        for (place, held) in self.instructions.iter().enumerate().rev() {
            if at == old {
                break;
            }
            if held.out != at {
                continue;
            }
            let Some(operand) = held.continues(&same) else { return };
            path.push((place, operand as u8));
            at = held.operands[operand];
        }
        if at == old {
            for (place, operand) in path {
                self.instructions[place].amend(submitter, 0, Some(operand));
            }
        }
    }
}
