//! The bits of scalar operands in a dtype, and simpler ops for common powers.

use gt_ops::{DType, Op, Row, Scalar};
use half::{bf16, f16};

/// The scalar's bits in a dtype, in the low bytes. Half precisions are rounded by way of f32, as in PyTorch.
#[inline]
pub fn scalar_bits(scalar: Scalar, dtype: DType) -> u64 {
    match dtype {
        DType::Bool => scalar.to_bool() as u64,
        DType::U8 => scalar.to_i64() as u8 as u64,
        DType::I8 => scalar.to_i64() as u8 as u64,
        DType::I16 | DType::U16 => scalar.to_i64() as u16 as u64,
        DType::I32 | DType::U32 => scalar.to_i64() as u32 as u64,
        DType::I64 | DType::U64 => scalar.to_i64() as u64,
        DType::F16 => f16::from_f32(scalar.to_f64() as f32).to_bits() as u64,
        DType::BF16 => bf16::from_f32(scalar.to_f64() as f32).to_bits() as u64,
        DType::F32 | DType::C64 => (scalar.to_f64() as f32).to_bits() as u64,
        DType::F64 | DType::C128 => scalar.to_f64().to_bits(),
    }
    .to_le()
}

/// The bits of a scalar operand of an elementwise row in the type that kernels compute `dtype` in: f32 for half
/// precisions, whose numbers are rounded to `dtype` first unless the row has [`Row::wide_numbers`].
#[inline]
pub fn computed_bits(scalar: Scalar, dtype: DType, row: &Row) -> u64 {
    let number = scalar.to_f64() as f32;
    let rounded = match dtype {
        DType::F16 | DType::BF16 if row.wide_numbers => number,
        DType::F16 => f16::from_f32(number).to_f32(),
        DType::BF16 => bf16::from_f32(number).to_f32(),
        _ => return scalar_bits(scalar, dtype),
    };
    (rounded.to_bits() as u64).to_le()
}

/// A simpler op that computes a power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// `x`
    Same,
    /// `x * x`
    Square,
    /// A unary function of `x`.
    Function(Op),
}

/// The simpler op that computes `x ** exponent` for floats, chosen as in PyTorch; `None` if there is none.
pub fn simple_power(exponent: Scalar) -> Option<Power> {
    match exponent.to_f64() {
        1.0 => Some(Power::Same),
        2.0 => Some(Power::Square),
        0.5 => Some(Power::Function(Op::Sqrt)),
        -0.5 => Some(Power::Function(Op::Rsqrt)),
        -1.0 => Some(Power::Function(Op::Reciprocal)),
        _ => None,
    }
}
