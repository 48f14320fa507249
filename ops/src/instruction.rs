//! An instruction: what a client asks for and a worker does.

use crate::dtype::DType;
use crate::op::Op;
use crate::shape::{RANK_MAX, Shape};
use crate::window::WindowSpec;
use std::ops::Range;

/// The name of a tensor within one session (or one worker's stream). 0 names none; ids are never reused.
pub type TensorId = u64;

/// The most operands of one instruction.
pub const INPUTS_MAX: usize = 128;

/// A number written into the instruction itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A Python bool.
    Bool(bool),
    /// A Python int.
    Int(i64),
    /// A Python float.
    Float(f64),
}

impl Scalar {
    /// The value as a float; integers past 2^53 round.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => b as u8 as f64,
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) => f,
        }
    }
    /// The value as an integer; floats truncate and saturate, NaN is 0.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(b) => b as i64,
            Scalar::Int(i) => i,
            Scalar::Float(f) => f as i64,
        }
    }
    /// Whether the value is not zero.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Float(f) => f != 0.0,
        }
    }
    /// What a tensor made of it alone holds.
    pub fn natural_dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::Float(_) => DType::default_float(),
        }
    }
    /// 0 bool, 1 int, 2 float, as [`DType::category`].
    pub fn category(self) -> u8 {
        match self {
            Scalar::Bool(_) => 0,
            Scalar::Int(_) => 1,
            Scalar::Float(_) => 2,
        }
    }
}

/// An operand: a tensor or a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A tensor that exists.
    Tensor(TensorId),
    /// An immediate number, converted to the dtype of the op.
    Scalar(Scalar),
}

impl Operand {
    /// The tensor's id, if it is one.
    pub fn tensor(&self) -> Option<TensorId> {
        match self {
            Operand::Tensor(id) => Some(*id),
            Operand::Scalar(_) => None,
        }
    }
}

/// The operands of an instruction: up to 4 inline, more (only `cat` has them) on the heap.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    inline: [Operand; 4],
    len: usize,
    spilled: Vec<Operand>,
}

impl Inputs {
    /// No operands.
    pub const fn new() -> Inputs {
        Inputs { inline: [Operand::Tensor(0); 4], len: 0, spilled: Vec::new() }
    }
    /// These operands.
    pub fn from_slice(operands: &[Operand]) -> Inputs {
        let mut inputs = Inputs::new();
        for operand in operands {
            inputs.push(*operand);
        }
        inputs
    }
    /// One more operand.
    #[inline]
    pub fn push(&mut self, operand: Operand) {
        if self.len < 4 {
            self.inline[self.len] = operand;
        } else {
            if self.len == 4 {
                self.spilled.extend_from_slice(&self.inline);
            }
            self.spilled.push(operand);
        }
        self.len += 1;
    }
    /// All of them, in order.
    #[inline]
    pub fn as_slice(&self) -> &[Operand] {
        if self.len <= 4 { &self.inline[..self.len] } else { &self.spilled }
    }
    /// All of them, to rewrite.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Operand] {
        if self.len <= 4 { &mut self.inline[..self.len] } else { &mut self.spilled }
    }
}

impl Default for Inputs {
    fn default() -> Self {
        Self::new()
    }
}

/// Start and step per axis of a `slice`; sizes are the result's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceSpec {
    /// The first index taken on each axis.
    pub start: [i64; RANK_MAX],
    /// The distance between indices; negative walks backwards, never 0.
    pub step: [i64; RANK_MAX],
    /// How many are taken: the shape of the slice.
    pub sizes: Shape,
}

/// The attributes of a slice that takes `range` of `axis` of a tensor of `shape`, and all of the other axes.
pub fn slice_along(shape: &Shape, axis: usize, range: &Range<usize>) -> Attrs {
    let mut start = [0; RANK_MAX];
    start[axis] = range.start as i64;
    Attrs::Slice(Box::new(SliceSpec { start, step: [1; RANK_MAX], sizes: shape.with_dim(axis, range.len()) }))
}

/// What becomes of the losses of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LossReduction {
    /// They stay as they are.
    None = 0,
    /// Their mean, by what the samples count.
    Mean = 1,
    /// Their sum.
    Sum = 2,
}

impl LossReduction {
    /// By its number on the wire.
    pub fn from_code(code: u8) -> Option<LossReduction> {
        [LossReduction::None, LossReduction::Mean, LossReduction::Sum].get(code as usize).copied()
    }
}

/// How a loss over classes is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSpec {
    /// What becomes of the losses of samples.
    pub reduction: LossReduction,
    /// The class index of samples that do not count.
    pub ignore_index: i64,
    /// How much of the target is spread evenly over all classes.
    pub smoothing: f64,
}

/// What an instruction says besides its operands; which variant is the op's [`crate::row::AttrKind`].
#[derive(Clone, Debug, PartialEq)]
pub enum Attrs {
    /// Nothing.
    None,
    /// A target dtype.
    DType(DType),
    /// A target shape.
    Shape(Shape),
    /// A permutation: axis `i` of the result is axis `p[i]` of the operand.
    Permutation([u8; RANK_MAX]),
    /// One axis.
    Axis(u8),
    /// Reduced axes, bit `i` for axis `i`, and whether they stay with size 1.
    Axes {
        /// Bit `i` set: axis `i` is reduced.
        mask: u8,
        /// Reduced axes stay, with size 1.
        keepdim: bool,
    },
    /// A strided box.
    Slice(Box<SliceSpec>),
    /// How windows slide.
    Window(Box<WindowSpec>),
    /// A new tensor.
    Create {
        /// Its shape.
        shape: Shape,
        /// Its dtype.
        dtype: DType,
    },
    /// A new tensor of random numbers.
    Random {
        /// Its shape.
        shape: Shape,
        /// Its dtype.
        dtype: DType,
        /// The key of the generator.
        seed: u64,
        /// Which random instruction since the seed was set: the upper half of the counter.
        stream: u64,
        /// Which of the instruction's numbers is the first element: 0, but for a stretch of a tensor.
        first: u64,
    },
    /// A loss over classes.
    Loss(LossSpec),
    /// Queries that attend to keys.
    Attention {
        /// Query `i` sees keys `0` to `i` alone.
        causal: bool,
        /// What scores are multiplied by.
        scale: f64,
    },
}

/// One instruction of the functional stream: `out := op(inputs; attrs)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// What to compute.
    pub op: Op,
    /// The tensor it defines.
    pub out: TensorId,
    /// Its operands.
    pub inputs: Inputs,
    /// Bit `i` set: operand `i` (of the first 8) is not used again, and its buffer may be taken for the result.
    pub last_use: u8,
    /// The rest of what it says.
    pub attrs: Attrs,
    /// Products of f32 may be rounded to 11 bits where a device is faster with such; see [`crate::Row::multiplies`].
    pub tf32: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_keep_order_past_the_inline_ones() {
        let many: Vec<Operand> = (1..=9).map(Operand::Tensor).collect();
        assert_eq!(Inputs::from_slice(&many).as_slice(), &many[..]);
        assert_eq!(Inputs::from_slice(&many[..4]).as_slice(), &many[..4]);
        assert_eq!(Inputs::new().as_slice(), &[]);
    }
}
