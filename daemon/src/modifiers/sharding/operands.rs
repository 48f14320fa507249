//! The operands of an instruction with their placements.

use super::costs::satisfies;
use crate::table::TensorEntry;
use gt_ops::Placement;

/// An operand of the instruction that is being placed.
#[derive(Clone, Copy)]
pub enum PlacedOperand {
    /// A number in the instruction itself.
    Scalar,
    /// A tensor with its placement.
    Tensor(TensorEntry),
}

impl PlacedOperand {
    /// The tensor, if the operand is one.
    pub fn tensor(&self) -> Option<&TensorEntry> {
        if let PlacedOperand::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    /// True if the operand can be read in the placement `to` without a move.
    pub fn is_at(&self, to: &Placement) -> bool {
        self.tensor().is_none_or(|tensor| satisfies(&tensor.placement, to))
    }
}
