//! Unsigned integers of 16, 32 and 64 bits, stored as the signed ones of their bits.
//!
//! Numbers of 16 and 32 bits compute as int64, which holds them. Numbers of 64 bits are compared by their bits with the
//! sign inverted, which order as they do, and divided as in Hacker's Delight (Warren 2012, section 9-3).

use crate::class::{Class, ResultDType};
use crate::dtype::DType;
use crate::error::Result;
use crate::expr::{Builder, Expr};
use crate::graph::Arg;
use crate::instruction::{Attrs, Scalar};
use crate::op::Op;

/// 2^63, from which on an unsigned number of 64 bits is stored as a negative one.
const HALF_RANGE: f64 = 9_223_372_036_854_775_808.0;

/// The stored bits of a number.
fn bits(number: Scalar) -> i64 {
    match number {
        // Past the largest i64, the conversion to it would saturate.
        Scalar::Float(f) if f >= HALF_RANGE => f as u64 as i64,
        number => number.to_i64(),
    }
}

fn operand<'g>(g: &'g Builder<'g>, inputs: &[Arg], i: usize) -> Expr<'g> {
    inputs.get(i).map_or_else(|| g.number(0i64), |input| g.number(*input))
}

/// A tensor of an unsigned dtype in any other dtype, or its own.
pub fn to_other<'g>(g: &'g Builder<'g>, inputs: &[Arg], from: DType, to: DType) -> Option<Result<Expr<'g>>> {
    let stored = operand(g, inputs, 0).reinterpret(from.storage());
    if to.storage() == from.storage() {
        return Some(Ok(if to == from.storage() { stored } else { stored.reinterpret(to) }));
    }
    Some(Ok(match from {
        DType::U64 if to.is_float() => {
            let halved = (stored.shift_right(1i64) & i64::MAX) | (stored & 1i64);
            stored.lt(0i64).where_(halved.to(to) * 2.0, stored.to(to))
        }
        _ => widened(stored, from).to(to),
    }))
}

/// Stored bits as int64: the number itself, except for large ones of 64 bits.
fn widened<'g>(stored: Expr<'g>, dtype: DType) -> Expr<'g> {
    match dtype {
        DType::U16 => stored.to(DType::I64) & 0xffffi64,
        DType::U32 => stored.to(DType::I64) & 0xffff_ffffi64,
        _ => stored,
    }
}

/// Any tensor of a dtype that devices store as one of an unsigned dtype.
pub fn from_other<'g>(g: &'g Builder<'g>, inputs: &[Arg], to: DType) -> Option<Result<Expr<'g>>> {
    let x = operand(g, inputs, 0);
    Some(x.dtype().map(|from| {
        let whole = match to {
            DType::U64 if from.is_float() => {
                let x = x.upcast();
                let large = x.ge(HALF_RANGE);
                let high = (x - HALF_RANGE).to(DType::I64) ^ i64::MIN;
                large.where_(high, large.where_(0.0, x).to(DType::I64))
            }
            _ if from.is_float() => x.to(DType::I64),
            _ => x,
        };
        whole.to(to.storage()).reinterpret(to)
    }))
}

/// An op on tensors of an unsigned dtype; none if it is not defined.
pub fn compose<'g>(
    g: &'g Builder<'g>,
    op: Op,
    inputs: &[Arg],
    attrs: &Attrs,
    dtype: DType,
) -> Option<Result<Expr<'g>>> {
    match (op.row().class, attrs) {
        (Class::Creation | Class::Random, Attrs::Create { shape, .. }) if op == Op::Full => {
            let Some(Arg::Scalar(number)) = inputs.first() else { return None };
            let stored = Attrs::Create { shape: *shape, dtype: dtype.storage() };
            return Some(Ok(g.emit(op, &[Scalar::Int(bits(*number)).into()], stored).reinterpret(dtype)));
        }
        (Class::Creation, Attrs::Create { shape, .. }) => {
            let wide = Attrs::Create { shape: *shape, dtype: DType::I64 };
            return Some(Ok(g.emit(op, inputs, wide).to(dtype)));
        }
        (Class::Random, Attrs::Random { shape, seed, stream, first, .. }) if op == Op::Randint => {
            let (shape, seed, stream, first) = (*shape, *seed, *stream, *first);
            let wide = Attrs::Random { shape, dtype: DType::I64, seed, stream, first };
            return Some(Ok(g.emit(op, inputs, wide).to(dtype)));
        }
        _ => {}
    }
    match op {
        Op::Abs | Op::Floor | Op::Ceil | Op::Round | Op::Trunc | Op::Relu => return Some(Ok(operand(g, inputs, 0))),
        Op::Sign => return Some(Ok(operand(g, inputs, 0).ne(0i64).to(dtype))),
        Op::Signbit => return Some(operand(g, inputs, 0).shape().map(|shape| g.full(&shape, false, DType::Bool))),
        _ => {}
    }
    let computes = matches!(
        op.row().class,
        Class::Elementwise
            | Class::Reduction
            | Class::ArgReduction
            | Class::Scan
            | Class::Sort
            | Class::Search
            | Class::Scatter
            | Class::Contraction
    );
    if !computes || !op.row().accepts.contains(DType::I64) {
        return None;
    }
    if dtype != DType::U64 {
        let wide: Vec<Arg> = inputs.iter().map(|input| signed(g, *input, dtype, 0)).collect();
        return Some(Ok(narrowed(op, g.emit(op, &wide, attrs.clone()), dtype)));
    }
    let (a, b) = (operand(g, inputs, 0), operand(g, inputs, 1));
    let stored = |x: Expr<'g>| g.number(signed(g, x.into(), dtype, 0));
    match op {
        Op::BitwiseRightShift => {
            let (a, b) = (stored(a), stored(b));
            // The first bit that is shifted in is 0; then the number is not negative.
            let once = a.shift_right(1i64) & i64::MAX;
            let far = once.shift_right(b - 1i64);
            Some(Ok(b.eq(0i64).where_(a, far).reinterpret(dtype)))
        }
        Op::FloorDivide => Some(Ok(quotient(stored(a), stored(b)).reinterpret(dtype))),
        Op::Remainder | Op::Fmod => {
            let (a, b) = (stored(a), stored(b));
            Some(Ok((a - quotient(a, b) * b).reinterpret(dtype)))
        }
        Op::Pow => {
            let (a, b) = (stored(a), stored(b));
            // An exponent from 2^63 on would be negative: the power is the square of that of its half.
            let half = a.pow(b.shift_right(1i64) & i64::MAX);
            Some(Ok((half * half * a.pow(b & 1i64)).reinterpret(dtype)))
        }
        Op::Gcd | Op::Lcm => None,
        _ => {
            // The order of the bits with the sign inverted is that of the numbers.
            let counts = op.row().class == Class::Sort;
            let key = |input: &Arg| match input {
                Arg::Scalar(_) if counts => *input,
                _ => signed(g, *input, dtype, i64::MIN),
            };
            let keys: Vec<Arg> = inputs.iter().map(key).collect();
            let found = g.emit(op, &keys, attrs.clone());
            Some(Ok(match op.row().result {
                ResultDType::Same => (found ^ i64::MIN).reinterpret(dtype),
                _ => found,
            }))
        }
    }
}

/// An operand as int64, with the bits of `mask` inverted. Indices stay as they are.
fn signed<'g>(g: &'g Builder<'g>, input: Arg, dtype: DType, mask: i64) -> Arg {
    match input {
        Arg::Scalar(number) => Scalar::Int(bits(number) ^ mask).into(),
        Arg::Val(val) => match g.tensor(val).dtype() {
            Ok(own) if own == dtype => {
                let wide = widened(g.tensor(val).reinterpret(dtype.storage()), dtype);
                if mask == 0 { wide.into() } else { (wide ^ mask).into() }
            }
            _ => input,
        },
    }
}

/// A result of int64 operands in the dtype, if its op keeps the dtype of the operands.
fn narrowed<'g>(op: Op, result: Expr<'g>, dtype: DType) -> Expr<'g> {
    match op.row().result {
        ResultDType::Same => result.to(dtype.storage()).reinterpret(dtype),
        _ => result,
    }
}

/// The unsigned quotient of int64 bits.
fn quotient<'g>(a: Expr<'g>, b: Expr<'g>) -> Expr<'g> {
    let below = |x: Expr<'g>, y: Expr<'g>| (x ^ i64::MIN).lt(y ^ i64::MIN);
    let large = b.lt(0i64);
    let divisor = large.where_(1i64, b);
    let half = (a.shift_right(1i64) & i64::MAX).floor_divide(divisor);
    let doubled = half.shift_left(1i64);
    let rest = a - doubled * divisor;
    let exact = doubled + (!below(rest, divisor)).to(DType::I64);
    large.where_((!below(a, b)).to(DType::I64), exact)
}
