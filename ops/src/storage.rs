//! How composed dtypes are stored: the tensor, and the instruction on it, that a device sees.
//!
//! An unsigned integer of more than 8 bits has the bits of the signed one of its size. A complex tensor of shape `s` is
//! a real one of shape `s + [2]`, the real and the imaginary part along the last axis, so the axes of the two have the
//! same numbers counted from the first. Many ops compute on the storage as they are: those that move elements, sums of
//! complex numbers, and the arithmetic of integers that wraps. [`on_storage`] names them; [`crate::composed`] has the
//! others.

use crate::class::{Class, ResultDType};
use crate::dtype::DType;
use crate::error::Result;
use crate::infer::{InputMeta, infer};
use crate::instruction::{Attrs, SliceSpec};
use crate::op::Op;
use crate::shape::{Meta, Shape};

/// An instruction on composed operands that computes on their storage.
pub struct StoredInstruction {
    /// The attributes of the instruction that a device sees.
    pub attrs: Attrs,
    /// The shape and dtype of its result, as the client knows them.
    pub meta: Meta,
}

/// The instruction on the storage of the operands, if that computes `op` on the operands.
///
/// # Errors
/// As [`infer`], in terms of the operands.
pub fn on_storage(op: Op, inputs: &[InputMeta], attrs: &Attrs) -> Result<Option<StoredInstruction>> {
    let first = inputs.iter().filter_map(InputMeta::tensor).find(|meta| meta.dtype.is_composed());
    let Some(&Meta { shape, dtype }) = first else { return Ok(None) };
    let computes = if dtype.is_complex() { on_parts(op, inputs, attrs, dtype) } else { on_bits(op, attrs, dtype) };
    if !computes {
        return Ok(None);
    }
    // The rule of shapes does not depend on the dtype, and the shapes of errors are those that the user knows.
    let plain: Vec<InputMeta> = inputs
        .iter()
        .map(|input| match input {
            InputMeta::Tensor(meta) => InputMeta::Tensor(Meta::new(meta.shape, meta.dtype.storage())),
            number => *number,
        })
        .collect();
    let wanted = match attrs {
        Attrs::DType(to) => Attrs::DType(to.storage()),
        attrs => attrs.clone(),
    };
    let meta = infer(op, &plain, &wanted)?;
    let result = match (op.row().result, attrs) {
        (_, Attrs::DType(to)) => *to,
        (ResultDType::Same, _) => dtype,
        _ => meta.dtype,
    };
    let meta = Meta::new(meta.shape, result);
    meta.shape.stored(dtype)?;
    let attrs = if dtype.is_complex() { with_parts(wanted, &shape)? } else { wanted };
    Ok(Some(StoredInstruction { attrs, meta }))
}

/// Whether an op on complex operands is the same op on their parts.
fn on_parts(op: Op, inputs: &[InputMeta], attrs: &Attrs, dtype: DType) -> bool {
    let all_complex = || inputs.iter().all(|input| input.tensor().is_some_and(|meta| meta.dtype == dtype));
    match (op, inputs) {
        (Op::Cast, _) => matches!(attrs, Attrs::DType(to) if to.is_complex()),
        (Op::Mul, [InputMeta::Tensor(_), InputMeta::Scalar(number)])
        | (Op::Mul, [InputMeta::Scalar(number), InputMeta::Tensor(_)])
        | (Op::Div, [InputMeta::Tensor(_), InputMeta::Scalar(number)]) => number.category() < dtype.category(),
        (Op::Add | Op::Sub | Op::Neg | Op::Sum | Op::Mean | Op::Cumsum | Op::SliceScatter | Op::Cat, _) => {
            all_complex()
        }
        (Op::Reinterpret, _) => false,
        _ => op.row().class == Class::Movement,
    }
}

/// Whether an op on unsigned integers is the same op on the signed integers of the same bits.
fn on_bits(op: Op, attrs: &Attrs, dtype: DType) -> bool {
    match op {
        Op::Reinterpret | Op::Cast => false,
        Op::Where => matches!(attrs, Attrs::DType(to) if *to == dtype),
        Op::Add | Op::Sub | Op::Mul | Op::Neg | Op::Addcmul | Op::Eq | Op::Ne => true,
        Op::BitwiseAnd | Op::BitwiseOr | Op::BitwiseXor | Op::BitwiseNot | Op::BitwiseLeftShift => true,
        Op::LogicalNot | Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor | Op::Any | Op::All => true,
        Op::Isnan | Op::Isinf | Op::Isfinite => true,
        Op::Gather | Op::Scatter | Op::ScatterAdd | Op::ScatterProd => true,
        Op::Index | Op::IndexPut | Op::IndexPutAdd => true,
        Op::Sum | Op::Prod | Op::Matmul => true,
        Op::Cumsum | Op::Cumprod => dtype == DType::U64,
        _ => matches!(op.row().class, Class::Movement | Class::SliceScatter | Class::Concatenation),
    }
}

/// The attributes of an instruction on the parts of complex operands of `shape`: the last axis stays as it is.
fn with_parts(attrs: Attrs, shape: &Shape) -> Result<Attrs> {
    Ok(match attrs {
        Attrs::Shape(to) => Attrs::Shape(to.stored(DType::C64)?),
        Attrs::Permutation(mut permutation) => {
            if let Some(last) = permutation.get_mut(shape.rank()) {
                *last = shape.rank() as u8;
            }
            Attrs::Permutation(permutation)
        }
        Attrs::Slice(spec) => {
            let (rank, SliceSpec { mut start, mut step, sizes }) = (spec.sizes.rank(), *spec);
            let sizes = sizes.stored(DType::C64)?;
            (start[rank], step[rank]) = (0, 1);
            Attrs::Slice(Box::new(SliceSpec { start, step, sizes }))
        }
        attrs => attrs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruction::Scalar;

    fn tensor(dims: &[usize], dtype: DType) -> InputMeta {
        InputMeta::Tensor(Meta::new(Shape::new(dims).unwrap(), dtype))
    }

    #[test]
    fn a_movement_of_complex_numbers_leaves_their_parts_together() {
        let z = [tensor(&[2, 3], DType::C64)];
        let mut swapped = crate::build::IDENTITY;
        swapped.swap(0, 1);
        let found = on_storage(Op::Permute, &z, &Attrs::Permutation(swapped)).unwrap().unwrap();
        assert_eq!(found.meta, Meta::new(Shape::new(&[3, 2]).unwrap(), DType::C64));
        assert!(matches!(found.attrs, Attrs::Permutation([1, 0, 2, ..])));
        let flat = on_storage(Op::Reshape, &z, &Attrs::Shape(Shape::new(&[6]).unwrap())).unwrap().unwrap();
        assert!(matches!(flat.attrs, Attrs::Shape(shape) if shape.dims() == [6, 2]));
    }

    #[test]
    fn products_of_complex_numbers_are_composed_but_a_real_factor_scales_the_parts() {
        let z = tensor(&[2], DType::C64);
        assert!(on_storage(Op::Mul, &[z, z], &Attrs::None).unwrap().is_none());
        let real = InputMeta::Scalar(Scalar::Float(2.0));
        assert!(on_storage(Op::Mul, &[z, real], &Attrs::None).unwrap().is_some());
        assert!(on_storage(Op::Add, &[z, real], &Attrs::None).unwrap().is_none());
        let number = InputMeta::Scalar(Scalar::Complex(0.0, 1.0));
        assert!(on_storage(Op::Mul, &[z, number], &Attrs::None).unwrap().is_none());
    }
}
