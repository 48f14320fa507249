//! The metadata of operands, and the checks that all shape rules share.

use crate::dtype::DType;
use crate::error::{ErrorKind, OpError, Result};
use crate::instruction::Scalar;
use crate::op::Op;
use crate::row::Row;
use crate::shape::Meta;

/// The metadata of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InputMeta {
    /// A tensor.
    Tensor(Meta),
    /// A number.
    Scalar(Scalar),
}

impl InputMeta {
    /// The tensor's shape and dtype, if the operand is a tensor.
    pub fn tensor(&self) -> Option<&Meta> {
        match self {
            InputMeta::Tensor(meta) => Some(meta),
            InputMeta::Scalar(_) => None,
        }
    }
}

pub(crate) fn wrong_attrs(row: &Row) -> OpError {
    OpError::type_(format!("{}: expects attributes of kind {:?}", row.name, row.attrs))
}

pub(crate) fn tensor<'a>(row: &Row, inputs: &'a [InputMeta], i: usize) -> Result<&'a Meta> {
    inputs
        .get(i)
        .and_then(InputMeta::tensor)
        .ok_or_else(|| OpError::type_(format!("{}: operand {i} must be a tensor", row.name)))
}

pub(crate) fn accept(row: &Row, dtype: DType) -> Result<()> {
    if row.accepts.contains(dtype) {
        return Ok(());
    }
    Err(match row.op {
        Op::Sub if dtype == DType::Bool => OpError::new(
            ErrorKind::NotImplemented,
            "Subtraction, the `-` operator, with a bool tensor is not supported. \
             If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.",
        ),
        Op::Neg if dtype == DType::Bool => OpError::new(
            ErrorKind::NotImplemented,
            "Negation, the `-` operator, on a bool tensor is not supported. \
             If you are trying to invert a mask, use the `~` or `logical_not()` operator instead.",
        ),
        Op::Mean => OpError::new(
            ErrorKind::NotImplemented,
            format!(
                "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {}",
                dtype.scalar_type_name()
            ),
        ),
        _ => OpError::new(
            ErrorKind::NotImplemented,
            format!("\"{}\" not implemented for '{}'", row.name, dtype.scalar_type_name()),
        ),
    })
}
