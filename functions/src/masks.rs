//! Triangles of matrices, and elements chosen by a mask.

use crate::common::single;
use crate::declaration::{TensorOrNumber, functions};
use crate::indexing::coordinates;
use gt_ops::build::numbers::checked;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, method, method_only};
use gt_ops::{Arg, DType, OpError, Scalar};

/// The zero of every dtype: it raises no category in a promotion.
const ZERO: Scalar = Scalar::Bool(false);

/// A mask of the elements on or below a diagonal of matrices.
fn lower_mask<'g>(g: &'g Builder<'g>, input: Expr<'g>, diagonal: i64) -> Result<Expr<'g>> {
    let sizes = input.sizes()?;
    let [.., rows, columns] = *sizes else {
        return Err(OpError::runtime("tril, triu: input tensor must have at least 2 dimensions"));
    };
    Ok((g.arange(rows, DType::I64).unsqueeze(1) + diagonal).ge(g.arange(columns, DType::I64)))
}

/// `input` where `mask` is true, and zero elsewhere. A second backward pass may use the mask again.
fn masked<'g>(g: &'g Builder<'g>, name: &str, input: Expr<'g>, mask: Expr<'g>) -> Result<Expr<'g>> {
    let result = mask.where_(input.detach(), ZERO);
    let [masked] = g.with_gradient(name, &[input, mask], [result], |_, values, grads| {
        Ok(vec![grads[0].map(|grad| values[1].where_(grad, ZERO)), None])
    })?;
    Ok(masked)
}

functions! {
    /// The lower triangles of matrices: elements above a diagonal become zero.
    ///
    /// Args:
    ///     input: A matrix, or a batch of matrices in the last two axes.
    ///     diagonal: The diagonal above which elements become zero: 0 is the main one, 1 the one above it, -1 the one
    ///         below.
    ///
    /// Example:
    ///     >>> gt.tril(gt.ones(3, 3))
    ///     tensor([[1., 0., 0.],
    ///             [1., 1., 0.],
    ///             [1., 1., 1.]])
    [method().in_place_of_parts().out()]
    fn tril(g, input: Expr<'g>, diagonal: i64 = 0) -> Result<Expr<'g>> {
        masked(g, "TrilBackward0", input, lower_mask(g, input, diagonal)?)
    }

    /// The upper triangles of matrices: elements below a diagonal become zero.
    ///
    /// Args:
    ///     input: A matrix, or a batch of matrices in the last two axes.
    ///     diagonal: The diagonal below which elements become zero: 0 is the main one, 1 the one above it, -1 the one
    ///         below.
    ///
    /// Example:
    ///     >>> gt.triu(gt.ones(3, 3), diagonal=1)
    ///     tensor([[0., 1., 1.],
    ///             [0., 0., 1.],
    ///             [0., 0., 0.]])
    [method().in_place_of_parts().out()]
    fn triu(g, input: Expr<'g>, diagonal: i64 = 0) -> Result<Expr<'g>> {
        let below = lower_mask(g, input, diagonal.saturating_sub(1))?;
        masked(g, "TriuBackward0", input, below.logical_not())
    }

    /// A copy with `value` where the mask is true.
    ///
    /// Args:
    ///     input: A tensor.
    ///     mask: A tensor of bools that broadcasts with `input`.
    ///     value: A number, or a tensor of one element without axes; it is converted to the dtype of `input`.
    ///
    /// Raises:
    ///     RuntimeError: `value` is out of the range of the dtype of `input`.
    ///
    /// Example:
    ///     >>> gt.masked_fill(gt.tensor([1.0, 2.0, 3.0]), gt.tensor([True, False, True]), 0)
    ///     tensor([0., 2., 0.])
    [method().in_place_of_parts()]
    fn masked_fill(g, input: Expr<'g>, mask: Expr<'g>, value: TensorOrNumber<'g>) -> Result<Expr<'g>> {
        let (dtype, kind) = (input.dtype()?, mask.dtype()?);
        if kind != DType::Bool {
            return Err(OpError::runtime(format!(
                "masked_fill only supports boolean masks, but got mask with dtype gt.{kind}"
            )));
        }
        let filling = match value.as_number() {
            None => single(value.0, dtype, "masked_fill")?,
            Some(number) if dtype.is_inexact() => g.number(checked(number, dtype)?),
            Some(number) => g.full(&gt_ops::Shape::SCALAR, number, dtype),
        };
        Ok(mask.where_(filling, input))
    }

    /// Elements of `input` where `condition` is true, and of `other` elsewhere.
    ///
    /// Args:
    ///     condition: A tensor of bools.
    ///     input: A tensor or a number, taken where the condition is true.
    ///     other: A tensor or a number, taken elsewhere.
    ///
    /// Returns:
    ///     A tensor of the shape that the three broadcast to, with the dtype that `input` and `other` promote to. If
    ///     only `condition` is given: the indices of its true elements, as a tuple of one vector for each axis, like
    ///     `gt.nonzero(condition, as_tuple=True)`.
    ///
    /// Raises:
    ///     RuntimeError: `condition` is not a tensor of bools.
    ///
    /// Example:
    ///     >>> x = gt.tensor([-1.0, 2.0, -3.0])
    ///     >>> gt.where(x > 0, x, 0.0)
    ///     tensor([0., 2., 0.])
    ///     >>> gt.where(x < 0)
    ///     (tensor([0, 2]),)
    [function().out().named("where")]
    fn where_(g, condition: Expr<'g>, input: TensorOrNumber<'g>, other: TensorOrNumber<'g>)
        -> Result<Expr<'g>> {
        let condition = match condition.dtype()? {
            DType::U8 => {
                g.warn("where received a uint8 condition tensor. Use a boolean condition instead.");
                condition.to(DType::Bool)
            }
            _ => condition,
        };
        Ok(condition.where_(input, other))
    }

    /// The indices of the true elements of `condition`, as a tuple of one vector for each axis. Waits for their number.
    [function().named("where")]
    fn where_true(g, condition: Expr<'g>) -> Result<Vec<Expr<'g>>> {
        coordinates(condition)
    }

    /// Elements of this tensor where `condition` is true, and of `other` elsewhere.
    ///
    /// Example:
    ///     >>> x = gt.tensor([-1.0, 2.0])
    ///     >>> x.where(x > 0, 0.0)
    ///     tensor([0., 2.])
    [method_only().named("where")]
    fn where_method(g, input: Expr<'g>, condition: Expr<'g>, other: TensorOrNumber<'g>) -> Expr<'g> {
        condition.where_(Arg::from(input), other)
    }
}
