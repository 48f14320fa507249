//! Ops on composed dtypes, which no device knows, as instructions on their storage.
//!
//! A graph passes an op here if [`crate::storage::on_storage`] has no instruction for it. [`complex`] has the formulas
//! of complex numbers, over their real and imaginary parts; [`unsigned`] those of unsigned integers, over signed ones.
//! An op without a formula raises the error of its row: it does not accept the dtype.

pub mod complex;
mod unsigned;

use crate::dtype::DType;
use crate::error::{ErrorKind, OpError, Result};
use crate::expr::Builder;
use crate::graph::{Arg, Graph, Val};
use crate::infer::{InputMeta, infer};
use crate::instruction::Attrs;
use crate::op::Op;

/// Emits an op of which an operand or the result is of a composed dtype.
///
/// # Errors
/// An op that is not defined for the dtype; the errors of the instructions.
pub fn emit(g: &mut dyn Graph, op: Op, inputs: &[Arg], attrs: &Attrs) -> Result<Val> {
    let metas = operands(g, inputs);
    let wanted = attrs.dtype();
    let of_operand =
        metas.iter().filter_map(InputMeta::tensor).map(|meta| meta.dtype).find(|dtype| dtype.is_composed());
    let made = compose(&Builder::new(g), op, inputs, attrs, (of_operand, wanted));
    if let Some(made) = made {
        return made;
    }
    // The rule of shapes and dtypes accepts none of the composed dtypes, and says so.
    infer(op, &metas, attrs)?;
    let dtype = of_operand.or(wanted).unwrap_or(DType::C64).scalar_type_name();
    Err(OpError::new(ErrorKind::NotImplemented, format!("\"{}\" not implemented for '{dtype}'", op.name())))
}

fn operands(g: &dyn Graph, inputs: &[Arg]) -> Vec<InputMeta> {
    let meta = |input: &Arg| match input {
        Arg::Val(val) => InputMeta::Tensor(g.meta(*val)),
        Arg::Scalar(number) => InputMeta::Scalar(*number),
    };
    inputs.iter().map(meta).collect()
}

/// The composition, if there is one. `dtypes` are those of an operand and of the attributes.
fn compose<'g>(
    builder: &'g Builder<'g>,
    op: Op,
    inputs: &[Arg],
    attrs: &Attrs,
    dtypes: (Option<DType>, Option<DType>),
) -> Option<Result<Val>> {
    let made = match dtypes {
        (_, Some(to)) if op == Op::Cast && to.is_complex() => complex::from_real(builder, inputs, to),
        (Some(from), Some(to)) if op == Op::Cast && from.is_complex() => complex::to_real(builder, inputs, to),
        (Some(from), Some(to)) if op == Op::Cast => unsigned::to_other(builder, inputs, from, to),
        (None, Some(to)) if op == Op::Cast => unsigned::from_other(builder, inputs, to),
        (Some(dtype), _) | (None, Some(dtype)) if dtype.is_complex() => {
            complex::compose(builder, op, inputs, attrs, dtype)
        }
        (Some(dtype), _) | (None, Some(dtype)) => unsigned::compose(builder, op, inputs, attrs, dtype),
        (None, None) => None,
    };
    made.map(|expr| builder.finish(expr?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use crate::class::{AttrKind, Class};
    use crate::dtype::DType::{Bool, C64, C128, F32, F64, I16, I32, I64, U8, U16, U32, U64};
    use crate::instruction::Scalar;
    use crate::row::ROWS;
    use crate::shape::{Meta, Shape};
    use crate::storage::on_storage;

    /// A graph of shapes and dtypes that accepts instructions as a device does: of dtypes that it stores.
    #[derive(Default)]
    struct DeviceGraph {
        metas: Vec<Meta>,
        instructions: usize,
    }

    impl DeviceGraph {
        fn push(&mut self, meta: Meta) -> Val {
            self.metas.push(meta);
            Val(self.metas.len() as u32 - 1)
        }
        fn tensor(&mut self, dims: &[usize], dtype: DType) -> Val {
            self.push(Meta::new(Shape::new(dims).unwrap(), dtype))
        }
        /// Checks that the device infers, from the storage of the operands, the storage of the result.
        fn issue(&mut self, op: Op, operands: &[InputMeta], attrs: &Attrs, result: Meta) {
            let stored: Vec<InputMeta> = operands
                .iter()
                .map(|operand| match operand {
                    InputMeta::Tensor(meta) => InputMeta::Tensor(meta.stored().unwrap()),
                    InputMeta::Scalar(Scalar::Complex(_, im)) if *im != 0.0 => panic!("{}: loses {im}i", op.name()),
                    number => *number,
                })
                .collect();
            let inferred =
                infer(op, &stored, attrs).unwrap_or_else(|error| panic!("{} of {stored:?}: {error}", op.name()));
            assert_eq!(inferred, result.stored().unwrap(), "{} of {operands:?}", op.name());
            self.instructions += 1;
        }
    }

    impl Graph for DeviceGraph {
        fn emit(&mut self, op: Op, inputs: &[Arg], attrs: Attrs) -> Result<Val> {
            let operands = operands(self, inputs);
            let of_operands = operands.iter().filter_map(InputMeta::tensor).any(|meta| meta.dtype.is_composed());
            if op == Op::Reinterpret || !of_operands && !attrs.dtype().is_some_and(DType::is_composed) {
                let meta = infer(op, &operands, &attrs)?;
                if op != Op::Reinterpret {
                    self.issue(op, &operands, &attrs, meta);
                }
                return Ok(self.push(meta));
            }
            match on_storage(op, &operands, &attrs)? {
                None => emit(self, op, inputs, &attrs),
                Some(stored) => {
                    self.issue(op, &operands, &stored.attrs, stored.meta);
                    Ok(self.push(stored.meta))
                }
            }
        }
        fn meta(&self, v: Val) -> Meta {
            self.metas[v.0 as usize]
        }
        fn detach(&mut self, v: Val) -> Result<Val> {
            Ok(v)
        }
        fn next_random(&mut self) -> (u64, u64) {
            (0, 0)
        }
    }

    const COMPOSED: [DType; 5] = [U16, U32, U64, C64, C128];

    /// The dtype of an op's result on operands of `dtype` and shape 4×4, or the error.
    fn result_of(op: Op, dtype: DType) -> Result<DType> {
        let mut g = DeviceGraph::default();
        let row = op.row();
        let operands: Vec<Arg> = (0..row.operands).map(|_| g.tensor(&[4, 4], dtype).into()).collect();
        let attrs = match row.attrs {
            AttrKind::Axis => Attrs::Axis(1),
            AttrKind::Axes => Attrs::Axes { mask: 1, keepdim: false },
            _ => Attrs::None,
        };
        g.emit(op, &operands, attrs).map(|v| g.meta(v).dtype)
    }

    #[test]
    fn an_op_on_a_composed_dtype_is_instructions_of_stored_dtypes_or_an_error() {
        let classes = [
            Class::Elementwise,
            Class::Reduction,
            Class::ArgReduction,
            Class::Scan,
            Class::Sort,
            Class::Search,
            Class::Contraction,
        ];
        for row in ROWS.iter().filter(|row| classes.contains(&row.class)) {
            for dtype in COMPOSED {
                if let Err(error) = result_of(row.op, dtype) {
                    let name = dtype.scalar_type_name();
                    let says = error.message.contains(name) || error.message.contains(dtype.name());
                    assert!(says, "{} of {dtype}: {error}", row.name);
                }
            }
        }
    }

    #[test]
    fn complex_numbers_have_the_functions_of_complex_analysis_and_no_order() {
        use Op::*;
        for dtype in [C64, C128] {
            for op in [
                Add, Sub, Mul, Div, Pow, Neg, Reciprocal, Exp, Exp2, Expm1, Log, Log2, Log10, Log1p, Sqrt, Rsqrt, Sin,
                Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh, Asinh, Acosh, Atanh, Sigmoid, Sign, Addcmul, Sum, Mean,
                Prod, Cumsum, Cumprod, Matmul,
            ] {
                assert_eq!(result_of(op, dtype), Ok(dtype), "{}", op.name());
            }
            for op in [Eq, Ne, Isnan, Isinf, Isfinite, LogicalNot, LogicalAnd, LogicalOr, LogicalXor, Any, All] {
                assert_eq!(result_of(op, dtype), Ok(Bool), "{}", op.name());
            }
            for op in [Abs, Norm] {
                assert_eq!(result_of(op, dtype), Ok(dtype.to_real()), "{}", op.name());
            }
            for op in [Lt, Le, Gt, Ge, Maximum, Minimum, Floor, Remainder, FloorDivide, Amax, Argmin, Argsort, Erf] {
                assert!(result_of(op, dtype).is_err(), "{}", op.name());
            }
        }
    }

    #[test]
    fn unsigned_integers_have_the_functions_of_integers() {
        use Op::*;
        for dtype in [U16, U32, U64] {
            for op in [
                Add,
                Sub,
                Mul,
                FloorDivide,
                Remainder,
                Pow,
                Neg,
                Abs,
                Sign,
                Maximum,
                Minimum,
                Clamp,
                BitwiseAnd,
                BitwiseOr,
                BitwiseXor,
                BitwiseNot,
                BitwiseLeftShift,
                BitwiseRightShift,
                Floor,
                Amax,
                Amin,
                Cumsum,
                Cumprod,
                Matmul,
            ] {
                assert_eq!(result_of(op, dtype), Ok(dtype), "{}", op.name());
            }
            for op in [Eq, Ne, Lt, Le, Gt, Ge, LogicalAnd, LogicalNot, Isnan, Any, All] {
                assert_eq!(result_of(op, dtype), Ok(Bool), "{}", op.name());
            }
            for op in [Argmax, Argmin, Argsort] {
                assert_eq!(result_of(op, dtype), Ok(I64), "{}", op.name());
            }
        }
    }

    #[test]
    fn every_dtype_converts_to_every_other() {
        for (from, to) in DType::ALL.into_iter().flat_map(|from| DType::ALL.map(|to| (from, to))) {
            let mut g = DeviceGraph::default();
            let v = g.tensor(&[2, 3], from);
            let converted = build::cast(&mut g, v, to).unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
            assert_eq!(g.meta(converted), Meta::new(Shape::new(&[2, 3]).unwrap(), to), "{from} to {to}");
        }
        // Complex dtypes differ in their parts alone, and unsigned ones have the bits of signed ones.
        for (from, to, instructions) in [(C64, C128, 1), (U32, I32, 0), (I16, U16, 0), (U8, U16, 1)] {
            let mut g = DeviceGraph::default();
            let v = g.tensor(&[5], from);
            build::cast(&mut g, v, to).unwrap();
            assert_eq!(g.instructions, instructions, "{from} to {to}");
        }
    }

    #[test]
    fn tensors_of_composed_dtypes_are_made_and_moved() {
        for dtype in COMPOSED {
            let mut g = DeviceGraph::default();
            let dims = |g: &DeviceGraph, v: Val| g.meta(v).shape.dims().to_vec();
            let ones = build::full(&mut g, Shape::new(&[2, 3]).unwrap(), Scalar::Int(1), dtype).unwrap();
            let turned = build::permute(&mut g, ones, &[1, 0]).unwrap();
            let joined = build::cat(&mut g, &[turned, turned], 0).unwrap();
            assert_eq!(dims(&g, joined), [6, 2]);
            let index = g.tensor(&[4, 2], I64);
            let picked = build::gather(&mut g, joined, 0, index).unwrap();
            assert_eq!(dims(&g, picked), [4, 2]);
            let mask = g.tensor(&[4, 1], Bool);
            let chosen = build::where_(&mut g, mask, picked.into(), Scalar::Int(0).into()).unwrap();
            assert_eq!(g.meta(chosen), Meta::new(Shape::new(&[4, 2]).unwrap(), dtype));
            let summed = build::reduce(&mut g, Op::Sum, chosen, None, false).unwrap();
            assert_eq!(g.meta(summed).dtype, if dtype.is_complex() { dtype } else { I64 });
        }
    }

    #[test]
    fn numbers_beside_composed_dtypes_are_promoted() {
        let of = |dtype: DType, number: Scalar| {
            let mut g = DeviceGraph::default();
            let v = g.tensor(&[2], dtype);
            let sum = build::elementwise(&mut g, Op::Add, &[v.into(), number.into()]).unwrap();
            g.meta(sum).dtype
        };
        assert_eq!(of(F32, Scalar::Complex(0.0, 1.0)), C64);
        assert_eq!(of(F64, Scalar::Complex(0.0, 1.0)), C128);
        assert_eq!(of(I32, Scalar::Complex(0.0, 1.0)), C64);
        assert_eq!(of(C128, Scalar::Float(2.0)), C128);
        assert_eq!(of(C64, Scalar::Unsigned(u64::MAX)), C64);
        assert_eq!(of(U64, Scalar::Unsigned(u64::MAX)), U64);
        assert_eq!(of(U16, Scalar::Int(1)), U16);
        assert_eq!(of(U16, Scalar::Float(1.5)), F32);
    }

    #[test]
    fn the_variance_of_complex_numbers_is_real() {
        let mut g = DeviceGraph::default();
        for (axes, keepdim, dims) in
            [(None, false, &[][..]), (Some(&[1][..]), true, &[4, 1][..]), (Some(&[0][..]), false, &[3][..])]
        {
            let z = g.tensor(&[4, 3], C64);
            let var = build::variance::var(&mut g, z, axes, 1.0, keepdim).unwrap();
            assert_eq!(g.meta(var), Meta::new(Shape::new(dims).unwrap(), F32));
        }
        let point = g.tensor(&[], C128);
        let var = build::variance::var(&mut g, point, None, 1.0, false).unwrap();
        assert_eq!(g.meta(var), Meta::new(Shape::SCALAR, F64));
    }
}
