//! Masked reductions and scans, under the names of `torch.masked`: only elements where a bool mask is true count.
//!
//! Masked elements are replaced by the identity of the operation. A mask broadcasts to the input; without one, every
//! element counts. Where no element is left, the result is that of an empty reduction, or undefined.

use crate::common::{converted, extreme_identity};
use crate::declaration::functions;
use crate::norms::{norm_of_order, vector_norm};
use crate::reductions::divisor_correction;
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::module;
use gt_ops::{DType, Op, OpError, Scalar, Shape};

/// The input with `filling` where the mask is false.
fn filled<'g>(
    g: &'g Builder<'g>,
    input: Expr<'g>,
    mask: Option<Expr<'g>>,
    filling: impl Into<Scalar>,
) -> Result<Expr<'g>> {
    let Some(mask) = mask else { return Ok(input) };
    if mask.rank()? > input.rank()? {
        return Err(OpError::index(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)",
        ));
    }
    Ok(mask.to(DType::Bool).where_(input, g.full(&Shape::SCALAR, filling, input.dtype()?)))
}

/// The input in a dtype, or in float32 if that is no floating-point one.
fn floating(input: Expr<'_>, dtype: Option<DType>) -> Result<Expr<'_>> {
    let wide = converted(input, dtype);
    Ok(if wide.dtype()?.is_float() { wide } else { wide.to(DType::F32) })
}

/// The axes to reduce; none are all of them.
fn axes<'a>(input: Expr<'_>, dim: Option<&'a [i64]>) -> Result<&'a [i64]> {
    Ok(if input.rank()? == 0 { &[] } else { dim.unwrap_or(&[]) })
}

/// The number of elements that the mask keeps, with the reduced axes kept.
fn count<'g>(g: &'g Builder<'g>, input: Expr<'g>, dim: &[i64], mask: Option<Expr<'g>>) -> Result<Expr<'g>> {
    let ones = g.full(&input.shape()?, 1i64, DType::I64);
    Ok(filled(g, ones, mask, 0i64)?.sum(dim, true))
}

/// A reduction's result without the reduced axes, which were kept.
fn without<'g>(kept: Expr<'g>, dim: &[i64], keepdim: bool) -> Expr<'g> {
    if keepdim { kept } else { kept.squeeze(dim) }
}

functions! {
    /// The sum of the elements where a mask is true, of all or along axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     dtype: The dtype to convert the input to before.
    ///     mask: A tensor of bools that broadcasts to `input`; all elements count without it.
    ///
    /// Example:
    ///     >>> x = gt.tensor([1.0, 2.0, 4.0])
    ///     >>> gt.masked.sum(x, mask=gt.tensor([True, False, True]))
    ///     tensor(5.)
    [module("masked")]
    fn sum(g, input: Expr<'g>, dim: Option<&'g [i64]> = None; keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        Ok(converted(filled(g, converted(input, dtype), mask, 0i64)?.sum(axes(input, dim)?, keepdim), dtype))
    }

    /// The product of the elements where a mask is true, of all or along axes; see `sum`.
    ///
    /// Example:
    ///     >>> x = gt.tensor([2.0, 3.0, 4.0])
    ///     >>> gt.masked.prod(x, mask=gt.tensor([True, False, True]))
    ///     tensor(8.)
    [module("masked")]
    fn prod(g, input: Expr<'g>, dim: Option<&'g [i64]> = None; keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let kept = filled(g, converted(input, dtype), mask, 1i64)?;
        if kept.rank()? == 0 {
            // As in PyTorch, there is nothing to reduce: without a mask this is the input itself.
            return Ok(if dtype.is_some() || kept.dtype()?.is_float() { kept } else { kept.to(DType::I64) });
        }
        Ok(converted(kept.prod(axes(input, dim)?, keepdim), dtype))
    }

    /// The largest of the elements where a mask is true, of all or along axes; see `sum`.
    [module("masked")]
    fn amax(g, input: Expr<'g>, dim: Option<&'g [i64]> = None; keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let wide = converted(input, dtype);
        Ok(filled(g, wide, mask, extreme_identity(wide.dtype()?, true))?.amax(axes(input, dim)?, keepdim))
    }

    /// The smallest of the elements where a mask is true, of all or along axes; see `sum`.
    [module("masked")]
    fn amin(g, input: Expr<'g>, dim: Option<&'g [i64]> = None; keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let wide = converted(input, dtype);
        Ok(filled(g, wide, mask, extreme_identity(wide.dtype()?, false))?.amin(axes(input, dim)?, keepdim))
    }

    /// The index of the largest element where a mask is true, in the dtype of the input, as in PyTorch.
    [module("masked")]
    fn argmax(g, input: Expr<'g>, dim: Option<i64> = None; keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let wide = converted(input, dtype);
        let own = wide.dtype()?;
        Ok(filled(g, wide, mask, extreme_identity(own, true))?.argmax(dim, keepdim).to(own))
    }

    /// The index of the smallest element where a mask is true, in the dtype of the input, as in PyTorch.
    [module("masked")]
    fn argmin(g, input: Expr<'g>, dim: Option<i64> = None; keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let wide = converted(input, dtype);
        let own = wide.dtype()?;
        Ok(filled(g, wide, mask, extreme_identity(own, false))?.argmin(dim, keepdim).to(own))
    }

    /// The cumulative sum along an axis of the elements where a mask is true.
    [module("masked")]
    fn cumsum(g, input: Expr<'g>, dim: i64; dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let result = dtype.unwrap_or(input.dtype()?);
        Ok(filled(g, converted(input, dtype), mask, 0i64)?.cumsum(dim).to(result))
    }

    /// The cumulative product along an axis of the elements where a mask is true.
    [module("masked")]
    fn cumprod(g, input: Expr<'g>, dim: i64; dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let result = dtype.unwrap_or(input.dtype()?);
        Ok(filled(g, converted(input, dtype), mask, 1i64)?.along(Op::Cumprod, dim).to(result))
    }

    /// The mean of the elements where a mask is true, of all or along axes.
    ///
    /// Example:
    ///     >>> x = gt.tensor([1.0, 2.0, 4.0])
    ///     >>> gt.masked.mean(x, mask=gt.tensor([True, False, True]))
    ///     tensor(2.5000)
    [module("masked").wide()]
    fn mean(g, input: Expr<'g>, dim: Option<&'g [i64]> = None; keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let (wide, dim) = (floating(input, dtype)?, axes(input, dim)?);
        let total = filled(g, wide, mask, 0i64)?.sum(dim, true) / count(g, input, dim, mask)?;
        Ok(without(total, dim, keepdim))
    }

    /// The variance of the elements where a mask is true, of all or along axes; see `gt.var`.
    [module("masked").wide()]
    fn var(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, unbiased: Option<bool> = None;
        correction: Option<f64> = None, keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        if unbiased.is_some() && correction.is_some() {
            return Err(OpError::runtime("Only one of unbiased and correction may be given"));
        }
        let less = divisor_correction(unbiased, correction);
        let (wide, dim) = (floating(input, dtype)?, axes(input, dim)?);
        let apart = wide - mean(g, wide, Some(dim), true, None, mask)?;
        let total = filled(g, apart * apart, mask, 0i64)?.sum(dim, true);
        let count = (count(g, input, dim, mask)? - less).maximum(0i64);
        Ok(without((total / count).to(wide.dtype()?), dim, keepdim))
    }

    /// The standard deviation of the elements where a mask is true, of all or along axes; see `gt.std`.
    [module("masked").wide()]
    fn std(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, unbiased: Option<bool> = None;
        correction: Option<f64> = None, keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        Ok(var(g, input, dim, unbiased, correction, keepdim, dtype, mask)?.sqrt())
    }

    /// The vector norm of the elements where a mask is true, of all or along axes.
    [module("masked").wide()]
    fn norm(g, input: Expr<'g>, ord: f64 = 2.0, dim: Option<&'g [i64]> = None; keepdim: bool = false,
        dtype: Option<DType> = None, mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let kept = filled(g, converted(input, dtype), mask, if ord >= 0.0 { 0.0 } else { f64::INFINITY })?;
        let dim = axes(input, dim)?;
        vector_norm(g, kept, Scalar::Float(ord), (!dim.is_empty()).then_some(dim), keepdim, None)
    }

    /// The median of the elements where a mask is true, along an axis: of two middle elements the lower one.
    ///
    /// Example:
    ///     >>> x = gt.tensor([1.0, 2.0, 4.0])
    ///     >>> gt.masked.median(x, mask=gt.tensor([False, True, True]))
    ///     tensor(2.)
    [module("masked")]
    fn median(g, input: Expr<'g>, dim: i64 = -1; keepdim: bool = false, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let wide = converted(input, dtype);
        let own = wide.dtype()?;
        if !own.is_float() {
            return Err(OpError::value(format!(
                "masked median expects inputs to be of a floating dtype, not gt.{}",
                own.name()
            )));
        }
        let kept = filled(g, wide, mask, f64::NAN)?;
        if kept.rank()? == 0 {
            return Ok(kept.copied());
        }
        // NaNs are sorted to the end.
        let order = kept.detach().argsort(dim, false);
        let last = !kept.detach().isnan();
        let middle = (last.sum(&[dim], true) - 1i64).maximum(0i64).floor_divide(2i64);
        let median = kept.gather(dim, order.gather(dim, middle));
        Ok(without(median, &[dim], keepdim))
    }

    /// ln(sum(exp(x))) over the elements where a mask is true, along axes.
    [module("masked").wide()]
    fn logsumexp(g, input: Expr<'g>, dim: Option<&'g [i64]> = None; keepdim: bool = false,
        dtype: Option<DType> = None, mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let kept = filled(g, floating(input, dtype)?, mask, f64::NEG_INFINITY)?;
        let total = crate::reductions::logsumexp(g, kept, axes(input, dim)?, keepdim)?;
        Ok(total.to(dtype.unwrap_or(input.dtype()?)))
    }

    /// ln(exp(input) + exp(other)), where each operand has a mask of its own.
    [module("masked").wide()]
    fn logaddexp(g, input: Expr<'g>, other: Expr<'g>; dtype: Option<DType> = None,
        input_mask: Option<Expr<'g>> = None, other_mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let a = filled(g, floating(input, dtype)?, input_mask, f64::NEG_INFINITY)?;
        let b = filled(g, floating(other, dtype)?, other_mask, f64::NEG_INFINITY)?;
        Ok(a.logaddexp(b))
    }

    /// Softmax along an axis over the elements where a mask is true; the others get 0.
    ///
    /// Example:
    ///     >>> gt.masked.softmax(gt.zeros(3), 0, mask=gt.tensor([True, False, True]))
    ///     tensor([0.5000, 0.0000, 0.5000])
    [module("masked").wide()]
    fn softmax(g, input: Expr<'g>, dim: i64; dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        Ok(filled(g, floating(input, dtype)?, mask, f64::NEG_INFINITY)?.softmax(dim))
    }

    /// The logarithm of `softmax` along an axis over the elements where a mask is true; the others get -inf.
    [module("masked").wide()]
    fn log_softmax(g, input: Expr<'g>, dim: i64; dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        Ok(filled(g, floating(input, dtype)?, mask, f64::NEG_INFINITY)?.log_softmax(dim))
    }

    /// Softmax of the negated input along an axis over the elements where a mask is true; the others get 0.
    [module("masked").wide()]
    fn softmin(g, input: Expr<'g>, dim: i64; dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        Ok((-filled(g, floating(input, dtype)?, mask, f64::INFINITY)?).softmax(dim))
    }

    /// The elements where a mask is true, divided by their norm along an axis.
    [module("masked").wide()]
    fn normalize(g, input: Expr<'g>, ord: f64, dim: i64; eps: f64 = 1e-12, dtype: Option<DType> = None,
        mask: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let wide = converted(input, dtype);
        let filling = if ord >= 0.0 { 0.0 } else { f64::INFINITY };
        let kept = filled(g, wide, mask, filling)?;
        let size = norm_of_order(kept, ord, &[dim], true)?;
        Ok(kept / size.maximum(eps))
    }
}
