//! The operands in the first slot of an instruction.

use crate::instruction::{Operand, Scalar};
use crate::packing::PackedLayout;
use crate::wire::layouts::{OperandWords, operand_kind};

/// Number of operands in the first slot.
pub const FIRST_OPERANDS: usize = 4;
/// The word of the first operand.
pub const OPERANDS_WORD: usize = OperandWords::FIELDS[0].word;

/// The kind of an operand and its word.
#[inline(always)]
pub fn encode_operand(operand: &Operand) -> (u8, u64) {
    match operand {
        Operand::Tensor(id) => (operand_kind::TENSOR, *id),
        Operand::Scalar(Scalar::Bool(b)) => (operand_kind::BOOL, *b as u64),
        Operand::Scalar(Scalar::Int(n)) => (operand_kind::INT, *n as u64),
        Operand::Scalar(Scalar::Unsigned(u)) => (operand_kind::INT, *u),
        // Clients compose operations on complex numbers of real ones: a complex number here has lost nothing.
        Operand::Scalar(Scalar::Float(f) | Scalar::Complex(f, _)) => (operand_kind::FLOAT, f.to_bits()),
    }
}

/// The operand of a kind and a word.
#[inline(always)]
pub fn decode_operand(kind: u8, bits: u64) -> Operand {
    match kind & 3 {
        operand_kind::TENSOR => Operand::Tensor(bits),
        operand_kind::BOOL => Operand::Scalar(Scalar::Bool(bits != 0)),
        operand_kind::INT => Operand::Scalar(Scalar::Int(bits as i64)),
        _ => Operand::Scalar(Scalar::Float(f64::from_bits(bits))),
    }
}
