//! Instructions: the computations that a client requests and a worker executes.

use crate::dtype::DType;
use crate::op::Op;
use crate::shape::{RANK_MAX, Shape};
use crate::window::WindowSpec;
use std::fmt;
use std::ops::Range;

/// The id of a tensor within one session (or one worker's stream). 0 stands for no tensor; ids are never reused.
pub type TensorId = u64;

/// Maximum number of operands of one instruction.
pub const INPUTS_MAX: usize = 128;

/// A number written into the instruction itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A Python bool.
    Bool(bool),
    /// A Python int.
    Int(i64),
    /// A Python int beyond int64: [`Scalar::for_dtype`] makes it one of the others before it is sent.
    Unsigned(u64),
    /// A Python float.
    Float(f64),
    /// A Python complex number, its real part first. Instructions that a device sees have none.
    Complex(f64, f64),
}

impl Scalar {
    /// The value as a float; integers past 2^53 round, and a complex number's real part counts.
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => b as u8 as f64,
            Scalar::Int(i) => i as f64,
            Scalar::Unsigned(u) => u as f64,
            Scalar::Float(f) | Scalar::Complex(f, _) => f,
        }
    }
    /// The value as an integer; floats truncate and saturate, NaN is 0, integers beyond int64 wrap.
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(b) => b as i64,
            Scalar::Int(i) => i,
            Scalar::Unsigned(u) => u as i64,
            Scalar::Float(f) | Scalar::Complex(f, _) => f as i64,
        }
    }
    /// The value as an integer of any dtype; floats truncate and saturate, NaN is 0.
    pub fn to_i128(self) -> i128 {
        match self {
            Scalar::Unsigned(u) => i128::from(u),
            Scalar::Float(f) | Scalar::Complex(f, _) => f as i128,
            integer => i128::from(integer.to_i64()),
        }
    }
    /// An integer in the range of int64 or uint64; one beyond both wraps.
    pub fn integer(value: i128) -> Scalar {
        i64::try_from(value).map_or(Scalar::Unsigned(value as u64), Scalar::Int)
    }
    /// Whether the value is not zero.
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Unsigned(u) => u != 0,
            Scalar::Float(f) => f != 0.0,
            Scalar::Complex(re, im) => re != 0.0 || im != 0.0,
        }
    }
    /// The dtype of a tensor made of the number alone.
    pub fn natural_dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) | Scalar::Unsigned(_) => DType::I64,
            Scalar::Float(_) => DType::default_float(),
            Scalar::Complex(..) => DType::default_complex(),
        }
    }
    /// 0 bool, 1 int, 2 float, 3 complex, as [`DType::category`].
    pub fn category(self) -> u8 {
        match self {
            Scalar::Bool(_) => 0,
            Scalar::Int(_) | Scalar::Unsigned(_) => 1,
            Scalar::Float(_) => 2,
            Scalar::Complex(..) => 3,
        }
    }
    /// The real number of this value, if its imaginary part is 0.
    pub fn as_real(self) -> Option<Scalar> {
        match self {
            Scalar::Complex(re, im) => (im == 0.0).then_some(Scalar::Float(re)),
            real => Some(real),
        }
    }
    /// The real and the imaginary part.
    pub fn parts(self) -> (f64, f64) {
        match self {
            Scalar::Complex(re, im) => (re, im),
            real => (real.to_f64(), 0.0),
        }
    }
    /// The number as an operand of elements of `dtype`: an integer beyond int64 is a float among floats and keeps its
    /// bits among integers.
    #[inline]
    pub fn for_dtype(self, dtype: DType) -> Scalar {
        match self {
            Scalar::Unsigned(u) if dtype.is_inexact() => Scalar::Float(u as f64),
            Scalar::Unsigned(u) => Scalar::Int(u as i64),
            other => other,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(b) => b.fmt(f),
            Scalar::Int(i) => i.fmt(f),
            Scalar::Unsigned(u) => u.fmt(f),
            Scalar::Float(x) => write!(f, "{x:?}"),
            Scalar::Complex(re, im) => write!(f, "({re:?}{im:+?}j)"),
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
    /// The operands in `operands`.
    pub fn from_slice(operands: &[Operand]) -> Inputs {
        let mut inputs = Inputs::new();
        for operand in operands {
            inputs.push(*operand);
        }
        inputs
    }
    /// Appends an operand.
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
    /// All operands, in order.
    #[inline]
    pub fn as_slice(&self) -> &[Operand] {
        if self.len <= 4 { &self.inline[..self.len] } else { &self.spilled }
    }
    /// All operands, in order and mutable.
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
    /// The first index on each axis.
    pub start: [i64; RANK_MAX],
    /// The distance between indices; negative walks backwards. Never 0.
    pub step: [i64; RANK_MAX],
    /// The shape of the slice.
    pub sizes: Shape,
}

impl SliceSpec {
    /// The first elements along each axis.
    pub fn corner(sizes: Shape) -> SliceSpec {
        SliceSpec { start: [0; RANK_MAX], step: [1; RANK_MAX], sizes }
    }
}

/// The attributes of a slice that takes `range` of `axis` of a tensor of `shape`, and all of the other axes.
pub fn slice_along(shape: &Shape, axis: usize, range: &Range<usize>) -> Attrs {
    let mut spec = SliceSpec::corner(shape.with_dim(axis, range.len()));
    spec.start[axis] = range.start as i64;
    Attrs::Slice(Box::new(spec))
}

/// The reduction of a loss over samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LossReduction {
    /// No reduction: one loss per sample.
    None = 0,
    /// Mean, weighted by the class weights of the samples.
    Mean = 1,
    /// Sum.
    Sum = 2,
}

impl LossReduction {
    /// The reduction of a wire code.
    pub fn from_code(code: u8) -> Option<LossReduction> {
        [LossReduction::None, LossReduction::Mean, LossReduction::Sum].get(code as usize).copied()
    }
}

/// The parameters of a loss over classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossSpec {
    /// The reduction of a loss over samples.
    pub reduction: LossReduction,
    /// The class index of samples that are left out.
    pub ignore_index: i64,
    /// Label smoothing: the part of the target that is spread evenly over all classes.
    pub smoothing: f64,
}

/// The parameters of an instruction besides its operands. The op's [`crate::row::AttrKind`] determines the variant.
#[derive(Clone, Debug, PartialEq)]
pub enum Attrs {
    /// No attributes.
    None,
    /// A target dtype.
    DType(DType),
    /// A target shape.
    Shape(Shape),
    /// A permutation: axis `i` of the result is axis `p[i]` of the operand.
    Permutation([u8; RANK_MAX]),
    /// One axis.
    Axis(u8),
    /// The axes of a reduction.
    Axes {
        /// Bit `i` set: axis `i` is reduced.
        mask: u8,
        /// Reduced axes stay with size 1.
        keepdim: bool,
    },
    /// The axes of a reduction that converts its operand to another dtype, element by element.
    AxesInto {
        /// Bit `i` set: axis `i` is reduced.
        mask: u8,
        /// Reduced axes stay with size 1.
        keepdim: bool,
        /// The dtype of the computation and of the result.
        dtype: DType,
    },
    /// Start, step and size along each axis.
    Slice(Box<SliceSpec>),
    /// The geometry of windows.
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
        /// The key of the generator, see [`crate::philox`].
        seed: u64,
        /// The number of the random instruction since the seed was set: the upper half of the generator's counter.
        stream: u64,
        /// The position of the first element in the instruction's random numbers: nonzero only for a shard of a tensor.
        first: u64,
    },
    /// Parameters of a loss over classes.
    Loss(LossSpec),
    /// Parameters of attention.
    Attention {
        /// Query `i` attends to keys `0..=i` only.
        causal: bool,
        /// The factor of the scores.
        scale: f64,
    },
}

impl Attrs {
    /// The dtype that the attributes name, if they do: that of the result.
    #[inline]
    pub fn dtype(&self) -> Option<DType> {
        match self {
            Attrs::DType(dtype)
            | Attrs::Create { dtype, .. }
            | Attrs::Random { dtype, .. }
            | Attrs::AxesInto { dtype, .. } => Some(*dtype),
            _ => None,
        }
    }
}

/// One instruction of the functional stream: `out := op(inputs; attrs)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// The op to compute.
    pub op: Op,
    /// The tensor it defines.
    pub out: TensorId,
    /// Its operands.
    pub inputs: Inputs,
    /// Bit `i` set: operand `i` (of the first 8) is not used again, and its buffer may be taken for the result.
    pub last_use: u8,
    /// Its attributes.
    pub attrs: Attrs,
    /// Factors of f32 products may be rounded to TF32 (11 bits of mantissa) where that is faster; see
    /// [`crate::Row::multiplies`].
    pub tf32: bool,
    /// The operand that the result replaces in the program, if the instruction is part of an in-place operation: when
    /// the instruction fails, its result keeps that operand's elements, which are read once the failure was reported.
    pub replaces: Option<u8>,
}

impl Instruction {
    /// The operands that it uses for the last time.
    pub fn last_used(&self) -> impl Iterator<Item = TensorId> {
        let marked = self.inputs.as_slice().iter().enumerate().take(8);
        marked.filter(|(i, _)| self.last_use >> i & 1 == 1).filter_map(|(_, operand)| operand.tensor())
    }
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
