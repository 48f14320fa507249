//! An instruction as a message: `(number, label, out, operands, attributes)`.
//!
//! The number is the op's on the wire, or that of a [`Control`]. An operand is the number of a tensor, or a tuple with
//! a number in it, which has the dtype that the op computes in. `python/worker.py` calls the op's function with the
//! operands and the attributes.

use crate::pickle::Pickler;
use gt_backend::scalar_bits;
use gt_ops::{Attrs, Class, DType, Meta, Row, Scalar};

/// Messages that are no instruction; `python/worker.py` has the same numbers. Ops begin behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum Control {
    /// Drops the tensors in the attributes.
    Free = 1,
    /// Makes a tensor of a shape and a dtype.
    Allocate = 2,
    /// Copies bytes of the shared memory into a tensor.
    Write = 3,
    /// Copies bytes of a tensor to the shared memory, and answers.
    Read = 4,
    /// Answers when all work so far is done.
    Fence = 5,
    /// Copies a tensor to memory of its own.
    Copy = 6,
    /// Gives cached memory back.
    Trim = 7,
    /// Sets whether products may round their operands to TF32.
    Precision = 8,
}

/// The first number of an op.
pub const OPS_FROM: u16 = 16;

/// A float that PyTorch's scalars stand for exactly.
fn float(bits: u64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::from_bits(bits),
        _ => f32::from_bits(bits as u32).into(),
    }
}

/// Appends a number, converted to the dtype that an op computes in. `wide`: half precisions compute with it in f32.
pub fn number(to: &mut Pickler, scalar: Scalar, dtype: DType, wide: bool) {
    to.begin_tuple();
    match dtype {
        DType::Bool => to.bool(scalar.to_bool()),
        DType::F64 | DType::F32 => to.float(float(scalar_bits(scalar, dtype), dtype)),
        DType::F16 | DType::BF16 if wide => to.float((scalar.to_f64() as f32).into()),
        DType::F16 => to.float(half::f16::from_f32(scalar.to_f64() as f32).into()),
        DType::BF16 => to.float(half::bf16::from_f32(scalar.to_f64() as f32).into()),
        DType::U8 => to.int((scalar.to_i64() as u8).into()),
        DType::I8 => to.int((scalar.to_i64() as i8).into()),
        DType::I16 => to.int((scalar.to_i64() as i16).into()),
        DType::I32 => to.int((scalar.to_i64() as i32).into()),
        _ => to.int(scalar.to_i64()),
    }
    to.end_tuple();
}

/// The dtype that the numbers among an op's operands are converted to.
pub fn number_dtype(row: &Row, first: Option<DType>, out: &Meta) -> DType {
    match row.class {
        Class::Select | Class::Creation => out.dtype,
        Class::Random | Class::Sort => DType::I64,
        // Epsilons; weights that are numbers.
        Class::RowWise => DType::F64,
        _ => first.unwrap_or(out.dtype),
    }
}

/// Appends an instruction's attributes. `in_place`: the first operand's memory may take the result, for ops that write
/// part of it.
pub fn attributes(to: &mut Pickler, row: &Row, attrs: &Attrs, out: &Meta, in_place: bool) {
    to.begin_tuple();
    match attrs {
        Attrs::None => {}
        Attrs::DType(dtype) => to.int(*dtype as i64),
        Attrs::Shape(shape) => to.sizes(shape.dims()),
        Attrs::Permutation(axes) => {
            to.begin_tuple();
            axes[..out.shape.rank()].iter().for_each(|axis| to.int((*axis).into()));
            to.end_tuple();
        }
        Attrs::Axis(axis) => {
            to.int((*axis).into());
            if row.class == Class::Scan {
                to.int(out.dtype as i64);
            }
        }
        Attrs::Axes { mask, keepdim } | Attrs::AxesInto { mask, keepdim, .. } => {
            to.begin_tuple();
            (0..8).filter(|axis| mask >> axis & 1 == 1).for_each(|axis| to.int(axis));
            to.end_tuple();
            to.bool(*keepdim);
            to.int(out.dtype as i64);
        }
        Attrs::Slice(spec) => {
            let rank = spec.sizes.rank();
            to.ints(&spec.start[..rank]);
            to.ints(&spec.step[..rank]);
            to.sizes(spec.sizes.dims());
        }
        Attrs::Window(spec) => {
            let all = [&spec.kernel, &spec.stride, &spec.dilation, &spec.low, &spec.high, &spec.input];
            to.begin_tuple();
            all.iter().for_each(|sizes| to.sizes(spec.used(sizes)));
            to.end_tuple();
            to.size(spec.groups);
            to.sizes(out.shape.dims());
        }
        Attrs::Create { shape, dtype } => {
            to.sizes(shape.dims());
            to.int(*dtype as i64);
        }
        Attrs::Random { shape, dtype, seed, stream, first } => {
            to.sizes(shape.dims());
            to.int(*dtype as i64);
            [*seed, *stream, *first].into_iter().for_each(|x| to.unsigned(x));
        }
        Attrs::Loss(spec) => {
            to.int(spec.reduction as i64);
            to.int(spec.ignore_index);
            to.float(spec.smoothing);
        }
        Attrs::Attention { causal, scale } => {
            to.bool(*causal);
            to.float(*scale);
        }
    }
    if row.writes_part() {
        to.bool(in_place);
    }
    to.end_tuple();
}

#[cfg(test)]
mod tests {
    use super::*;
    use gt_ops::row::ROWS;

    #[test]
    fn ops_have_other_numbers_than_controls() {
        assert!(ROWS.iter().all(|row| row.op as u16 >= OPS_FROM));
        assert!((Control::Precision as i64) < OPS_FROM.into());
    }
}
