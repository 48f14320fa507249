//! Shape rules of row-wise ops: softmax, normalizations, losses over classes and attention.

use crate::dtype::DType;
use crate::error::{OpError, Result};
use crate::infer::operand::{InputMeta, accept, tensor, wrong_attrs};
use crate::instruction::{Attrs, LossReduction, LossSpec};
use crate::op::Op;
use crate::row::Row;
use crate::shape::{Meta, Shape};

/// The shape and dtype of the result of a row-wise op.
///
/// # Errors
/// Operands whose shapes or dtypes do not fit each other.
pub fn infer(row: &Row, inputs: &[InputMeta], attrs: &Attrs) -> Result<Meta> {
    match (row.op, attrs) {
        (Op::Softmax | Op::LogSoftmax, Attrs::None) => rows_of(row, inputs, 0),
        (Op::Fourier | Op::InverseFourier, Attrs::None) => {
            let input = rows_of(row, inputs, 0)?;
            // Each complex number is two elements.
            if columns(&input).is_multiple_of(2) { Ok(input) } else { Err(unfit(row, 0)) }
        }
        (Op::RealFourier | Op::InverseRealFourier, Attrs::None) => {
            let input = rows_of(row, inputs, 0)?;
            let (count, is_forward) = (columns(&input), row.op == Op::RealFourier);
            if !count.is_multiple_of(2) || count < if is_forward { 2 } else { 4 } {
                return Err(unfit(row, 0));
            }
            let found = if is_forward { count.saturating_add(2) } else { count - 2 };
            let dims = input.shape.with_dim(input.shape.rank() - 1, found);
            Ok(Meta::new(Shape::new(dims.dims())?, input.dtype))
        }
        (Op::ComplexMul | Op::ComplexDiv, Attrs::None) => {
            let input = rows_of(row, inputs, 0)?;
            if columns(&input) != 2 {
                return Err(unfit(row, 0));
            }
            same(row, inputs, 1, &input)?;
            Ok(input)
        }
        (Op::SoftmaxBackward | Op::LogSoftmaxBackward, Attrs::None) => {
            let grad = rows_of(row, inputs, 0)?;
            same(row, inputs, 1, &grad)?;
            Ok(grad)
        }
        (Op::LayerNorm | Op::RmsNorm, Attrs::None) => {
            let input = rows_of(row, inputs, 0)?;
            for i in 1..inputs.len() - 1 {
                along(row, inputs, i, &input)?;
            }
            number(row, inputs, inputs.len() - 1)?;
            Ok(input)
        }
        (Op::LayerNormBackward | Op::RmsNormBackward, Attrs::None) => {
            let grad = rows_of(row, inputs, 0)?;
            same(row, inputs, 1, &grad)?;
            along(row, inputs, 2, &grad)?;
            number(row, inputs, 3)?;
            Ok(grad)
        }
        (Op::LayerNormWeightBackward | Op::RmsNormWeightBackward, Attrs::None) => {
            let grad = rows_of(row, inputs, 0)?;
            same(row, inputs, 1, &grad)?;
            number(row, inputs, 2)?;
            let results = if row.op == Op::LayerNormWeightBackward { 2 } else { 1 };
            Ok(Meta::new(Shape::new(&[results, columns(&grad)])?, grad.dtype))
        }
        (Op::CrossEntropy | Op::NllLoss, Attrs::Loss(spec)) => {
            let input = rows_of(row, inputs, 0)?;
            let rows = sample_count(row, inputs, 1)?;
            if input.shape.rank() != 2 || input.shape.dims()[0] != rows {
                return Err(unfit(row, 0));
            }
            along(row, inputs, 2, &input)?;
            Ok(Meta::new(losses_shape(rows, spec)?, input.dtype))
        }
        (Op::CrossEntropyBackward | Op::NllLossBackward, Attrs::Loss(spec)) => {
            let (grad, input) = (*tensor(row, inputs, 0)?, rows_of(row, inputs, 1)?);
            let rows = sample_count(row, inputs, 2)?;
            let fits = input.shape.rank() == 2 && input.shape.dims()[0] == rows;
            if !fits || grad.shape != losses_shape(rows, spec)? || grad.dtype != input.dtype {
                return Err(unfit(row, 0));
            }
            along(row, inputs, 3, &input)?;
            Ok(input)
        }
        (Op::Attention, Attrs::Attention { .. }) => attention(row, inputs),
        (Op::AttentionBackward | Op::AttentionGradients, Attrs::Attention { .. }) => {
            let grad = *tensor(row, inputs, 0)?;
            let forward = match row.op {
                Op::AttentionBackward => inputs[1..].to_vec(),
                _ => [&inputs[1..4], &inputs[5..]].concat(),
            };
            if attention(row, &forward)? != grad {
                return Err(unfit(row, 0));
            }
            if row.op == Op::AttentionGradients {
                same(row, inputs, 4, &grad)?;
            }
            // One row per batch, so that the batch axes can be sharded.
            let mut dims = grad.shape.dims()[..grad.shape.rank() - 2].to_vec();
            let mut columns = 0usize;
            for i in 1..4 {
                columns = columns.saturating_add(tensor(row, inputs, i)?.shape.matrix_numel());
            }
            dims.push(columns);
            Ok(Meta::new(Shape::new(&dims)?, grad.dtype))
        }
        (Op::LstmCell, Attrs::None) => {
            let (gates, cell) = (rows_of(row, inputs, 0)?, rows_of(row, inputs, 1)?);
            let last = cell.shape.rank() - 1;
            let wide = |factor: usize| cell.shape.with_dim(last, columns(&cell).saturating_mul(factor));
            same(row, inputs, 0, &Meta::new(Shape::new(wide(4).dims())?, cell.dtype))?;
            Ok(Meta::new(Shape::new(wide(2).dims())?, gates.dtype))
        }
        (Op::LstmCellBackward, Attrs::None) => {
            let grad = rows_of(row, inputs, 0)?;
            let last = grad.shape.rank() - 1;
            let wide = |factor| -> Result<Meta> {
                let dims = grad.shape.with_dim(last, columns(&grad).saturating_mul(factor));
                Ok(Meta::new(Shape::new(dims.dims())?, grad.dtype))
            };
            for i in [1, 3, 4] {
                same(row, inputs, i, &grad)?;
            }
            same(row, inputs, 2, &wide(4)?)?;
            wide(5)
        }
        (Op::CtcForward, Attrs::None) => Ok(ctc(row, inputs)?[1]),
        (Op::CtcPosteriors, Attrs::None) => {
            let [emitted, variables] = ctc(row, inputs)?;
            same(row, inputs, 3, &variables)?;
            Ok(emitted)
        }
        _ => Err(wrong_attrs(row)),
    }
}

/// The log-probabilities of states and the forward variables of connectionist temporal classification.
fn ctc(row: &Row, inputs: &[InputMeta]) -> Result<[Meta; 2]> {
    let emitted = rows_of(row, inputs, 0)?;
    let [time, samples, states] = *emitted.shape.dims() else { return Err(unfit(row, 0)) };
    if states == 0 {
        return Err(unfit(row, 0));
    }
    for (i, columns) in [(1, states), (2, 2)] {
        same(row, inputs, i, &Meta::new(Shape::new(&[samples, columns])?, DType::I64))?;
    }
    let columns = time.saturating_mul(states).saturating_add(1);
    Ok([emitted, Meta::new(Shape::new(&[samples, columns])?, emitted.dtype)])
}

fn unfit(row: &Row, i: usize) -> OpError {
    OpError::runtime(format!("{}: the shape or dtype of operand {i} does not fit the others", row.name))
}

/// Operand `i`, which must have at least one axis.
fn rows_of(row: &Row, inputs: &[InputMeta], i: usize) -> Result<Meta> {
    let meta = *tensor(row, inputs, i)?;
    accept(row, meta.dtype)?;
    if meta.shape.rank() == 0 { Err(unfit(row, i)) } else { Ok(meta) }
}

fn columns(meta: &Meta) -> usize {
    meta.shape.dims().last().copied().unwrap_or(1)
}

/// Checks that operand `i` has the shape and dtype of `other`.
fn same(row: &Row, inputs: &[InputMeta], i: usize, other: &Meta) -> Result<()> {
    if tensor(row, inputs, i)? == other { Ok(()) } else { Err(unfit(row, i)) }
}

/// Checks that operand `i` is a number or has one element per column of `rows`.
fn along(row: &Row, inputs: &[InputMeta], i: usize, rows: &Meta) -> Result<()> {
    match &inputs[i] {
        InputMeta::Scalar(_) => Ok(()),
        InputMeta::Tensor(meta) if meta.shape.dims() == [columns(rows)] && meta.dtype == rows.dtype => Ok(()),
        InputMeta::Tensor(_) => Err(unfit(row, i)),
    }
}

fn number(row: &Row, inputs: &[InputMeta], i: usize) -> Result<()> {
    match &inputs[i] {
        InputMeta::Scalar(_) => Ok(()),
        InputMeta::Tensor(_) => Err(OpError::type_(format!("{}: operand {i} must be a number", row.name))),
    }
}

/// The number of class indices in operand `i`.
fn sample_count(row: &Row, inputs: &[InputMeta], i: usize) -> Result<usize> {
    let meta = tensor(row, inputs, i)?;
    match (meta.dtype, meta.shape.dims()) {
        (DType::I64, [rows]) => Ok(*rows),
        _ => Err(unfit(row, i)),
    }
}

fn losses_shape(rows: usize, spec: &LossSpec) -> Result<Shape> {
    if spec.reduction == LossReduction::None { Shape::new(&[rows]) } else { Ok(Shape::SCALAR) }
}

/// Attention of queries `(…, m, k)`, keys `(…, n, k)`, values `(…, n, o)` and an optional mask `(…, m, n)`: `(…, m,
/// o)`.
fn attention(row: &Row, inputs: &[InputMeta]) -> Result<Meta> {
    let query = rows_of(row, inputs, 0)?;
    let rank = query.shape.rank();
    let dims = |i: usize| -> Result<(&[usize], [usize; 2])> {
        let meta = tensor(row, inputs, i)?;
        if rank < 2 || meta.shape.rank() != rank || meta.dtype != query.dtype {
            return Err(unfit(row, i));
        }
        let (lead, last) = meta.shape.dims().split_at(rank - 2);
        Ok((lead, [last[0], last[1]]))
    };
    let ((lead, [m, k]), (key_lead, [n, key_k]), (value_lead, [value_n, o])) = (dims(0)?, dims(1)?, dims(2)?);
    if key_k != k || value_n != n || key_lead != lead || value_lead != lead {
        return Err(unfit(row, 1));
    }
    if inputs.len() > 3 && dims(3)? != (lead, [m, n]) {
        return Err(unfit(row, 3));
    }
    Shape::new(query.shape.with_dim(rank - 1, o).dims()).map(|shape| Meta::new(shape, query.dtype))
}
