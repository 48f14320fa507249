//! Reductions: sums, extremes, moments and covariances of all elements or along axes, and softmax.

use crate::common::{axes_of, check_floating, check_learns, check_no_bools, converted, extremum};
use crate::declaration::{Sizes, functions};
use gt_ops::error::Result;
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{function, method, method_only};
use gt_ops::{DType, Op, OpError, Scalar};

/// The axes of a reduction: all if none are given.
fn axes(dim: Option<&[i64]>) -> &[i64] {
    dim.unwrap_or(&[])
}

/// The result of `any` or `all`: as in PyTorch, that of bytes is a byte.
fn truth<'g>(input: Expr<'g>, result: Expr<'g>) -> Result<Expr<'g>> {
    Ok(if input.dtype()? == DType::U8 { result.to(DType::U8) } else { result })
}

/// A sum, product or mean of elements converted to a dtype.
fn reduced<'g>(op: Op, input: Expr<'g>, axes: &[i64], keepdim: bool, dtype: Option<DType>) -> Result<Expr<'g>> {
    // The gradient of a product needs the converted elements.
    let saved = op == Op::Prod && input.requires_grad();
    check_learns(input, dtype)?;
    match dtype {
        // The instruction converts element by element: no converted copy takes memory.
        Some(dtype) if op.reduces_into(input.dtype()?, dtype) && !saved => {
            Ok(input.reduce_into(op, axes, keepdim, dtype))
        }
        _ => {
            let input = converted(input, dtype);
            Ok(match op {
                Op::Mean => input.mean(axes, keepdim),
                Op::Prod => converted(input.prod(axes, keepdim), dtype),
                _ => converted(input.sum(axes, keepdim), dtype),
            })
        }
    }
}

/// Warns of a variance of too few elements, which is NaN or infinite.
fn warn_of_few(g: &Builder<'_>, name: &str, input: Expr<'_>, dim: Option<&[i64]>, correction: f64) -> Result<()> {
    let shape = input.shape()?;
    let axes = axes_of(input, dim.unwrap_or_default())?;
    let count: usize = match axes[..] {
        [] => shape.numel(),
        // A number has an axis of size 1 for this.
        _ => axes.iter().map(|axis| shape.dims().get(*axis).copied().unwrap_or(1)).product(),
    };
    if count as f64 <= correction {
        g.warn(format!(
            "{name}(): there are {count} elements along the axes, and correction={correction} is not less: the result \
             is NaN or infinite."
        ));
    }
    Ok(())
}

/// The number subtracted from the divisor of a variance.
pub(crate) fn divisor_correction(unbiased: Option<bool>, correction: Option<f64>) -> f64 {
    correction.unwrap_or(if unbiased == Some(false) { 0.0 } else { 1.0 })
}

fn number_of(unbiased: bool) -> f64 {
    if unbiased { 1.0 } else { 0.0 }
}

functions! {
    /// The sum of all elements, or along axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given. `axis` is another name.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     dtype: The dtype to convert the input to before.
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes. Bools and integers add up as int64.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> gt.sum(x)
    ///     tensor(10.)
    ///     >>> x.sum(dim=0, keepdim=True)
    ///     tensor([[4., 6.]])
    [method().out()]
    fn sum(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false; dtype: Option<DType> = None)
        -> Result<Expr<'g>> {
        // Integers are summed as int64; the low bits are those of a sum in the narrower dtype.
        reduced(Op::Sum, input, axes(dim), keepdim, dtype)
    }

    /// The mean of all elements, or along axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given. `axis` is another name.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     dtype: The dtype to convert the input to before.
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes. Integers need `dtype`.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    ///     >>> gt.mean(x)
    ///     tensor(2.5000)
    ///     >>> x.mean(dim=1)
    ///     tensor([1.5000, 3.5000])
    [method().out()]
    fn mean(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false; dtype: Option<DType> = None)
        -> Result<Expr<'g>> {
        if let Some(dtype) = dtype.filter(|dtype| !dtype.is_inexact()) {
            return Err(OpError::not_implemented(format!(
                "mean(): could not infer output dtype. Optional dtype must be either a floating point or complex dtype. \
                 Got: {}",
                dtype.scalar_type_name()
            )));
        }
        reduced(Op::Mean, input, axes(dim), keepdim, dtype)
    }

    /// The product of all elements, or along axes.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given. `axis` is another name.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     dtype: The dtype to convert the input to before.
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes. Bools and integers multiply as int64.
    ///
    /// Example:
    ///     >>> gt.prod(gt.tensor([1.0, 2.0, 3.0]))
    ///     tensor(6.)
    [method().out()]
    fn prod(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false; dtype: Option<DType> = None)
        -> Result<Expr<'g>> {
        reduced(Op::Prod, input, axes(dim), keepdim, dtype)
    }

    /// The largest element of all, or along axes. Equal elements share the gradient.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given. `axis` is another name.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes. NaN if there is one.
    ///
    /// Example:
    ///     >>> gt.amax(gt.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=(0, 1))
    ///     tensor(7.)
    [method().out_same_dtype()]
    fn amax(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false) -> Expr<'g> {
        input.amax(axes(dim), keepdim)
    }

    /// The smallest element of all, or along axes. Equal elements share the gradient.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given. `axis` is another name.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes. NaN if there is one.
    ///
    /// Example:
    ///     >>> gt.amin(gt.tensor([[1.0, 5.0], [7.0, 2.0]]), dim=1)
    ///     tensor([1., 2.])
    [method().out_same_dtype()]
    fn amin(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false) -> Expr<'g> {
        input.amin(axes(dim), keepdim)
    }

    /// The smallest and the largest element, of all or along an axis: a pair `(min, max)`.
    ///
    /// Example:
    ///     >>> smallest, largest = gt.aminmax(gt.tensor([3.0, 1.0, 2.0]))
    ///     >>> smallest, largest
    ///     (tensor(1.), tensor(3.))
    [method().out_same_dtype().results(&["min", "max"])]
    fn aminmax(g, input: Expr<'g>; dim: Option<i64> = None, keepdim: bool = false) -> [Expr<'g>; 2] {
        let axes = dim.as_slice();
        [input.amin(axes, keepdim), input.amax(axes, keepdim)]
    }

    /// Whether any element, of all or along axes, is nonzero.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given. `axis` is another name.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///
    /// Returns:
    ///     A tensor of bools, for an input of uint8 one of uint8, of the input's shape without the reduced axes.
    ///
    /// Example:
    ///     >>> gt.any(gt.tensor([[False, True], [False, False]]), dim=1)
    ///     tensor([ True, False])
    [method().out()]
    fn any(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false) -> Result<Expr<'g>> {
        truth(input, input.any(axes(dim), keepdim))
    }

    /// Whether every element, of all or along axes, is nonzero.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given. `axis` is another name.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///
    /// Returns:
    ///     A tensor of bools, for an input of uint8 one of uint8, of the input's shape without the reduced axes.
    ///
    /// Example:
    ///     >>> gt.all(gt.tensor([[True, True], [True, False]]), dim=1)
    ///     tensor([ True, False])
    [method().out()]
    fn all(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false) -> Result<Expr<'g>> {
        truth(input, input.all(axes(dim), keepdim))
    }

    /// The largest element of all, the largest elements along an axis with their indices, or the elementwise maximum.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis. Without it, all elements are reduced.
    ///     keepdim: Whether the reduced axis stays with size 1.
    ///     other: Another tensor, instead of an axis: `x.max(other)` is `gt.maximum(x, other)`.
    ///
    /// Returns:
    ///     A tensor without axes; with `dim`, a pair `(values, indices)` of the input's shape without that axis. A NaN
    ///     is larger than any number.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> x.max()
    ///     tensor(7.)
    ///     >>> values, indices = gt.max(x, dim=1)
    ///     >>> values, indices
    ///     (tensor([5., 7.]), tensor([1, 0]))
    [method().out()]
    fn max(g, input: Expr<'g>) -> Result<Expr<'g>> {
        extremum("MaxBackward1", Op::Amax, input, &[], false)
    }

    /// The elementwise maximum.
    [method().out().named("max")]
    fn max_of_two(g, input: Expr<'g>, other: Expr<'g>) -> Expr<'g> {
        input.maximum(other)
    }

    /// The largest elements along an axis, and their indices.
    [method().out().named("max").results(&["values", "indices"])]
    fn max_along(g, input: Expr<'g>, dim: i64, keepdim: bool = false) -> (Expr<'g>, Expr<'g>) {
        input.max_along(dim, keepdim)
    }

    /// The smallest element of all, the smallest elements along an axis with their indices, or the elementwise minimum.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis. Without it, all elements are reduced.
    ///     keepdim: Whether the reduced axis stays with size 1.
    ///     other: Another tensor, instead of an axis: `x.min(other)` is `gt.minimum(x, other)`.
    ///
    /// Returns:
    ///     A tensor without axes; with `dim`, a pair `(values, indices)` of the input's shape without that axis. A NaN
    ///     is smaller than any number.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> x.min()
    ///     tensor(1.)
    ///     >>> gt.min(x, dim=0).indices
    ///     tensor([0, 1])
    [method().out()]
    fn min(g, input: Expr<'g>) -> Result<Expr<'g>> {
        extremum("MinBackward1", Op::Amin, input, &[], false)
    }

    /// The elementwise minimum.
    [method().out().named("min")]
    fn min_of_two(g, input: Expr<'g>, other: Expr<'g>) -> Expr<'g> {
        input.minimum(other)
    }

    /// The smallest elements along an axis, and their indices.
    [method().out().named("min").results(&["values", "indices"])]
    fn min_along(g, input: Expr<'g>, dim: i64, keepdim: bool = false) -> (Expr<'g>, Expr<'g>) {
        input.min_along(dim, keepdim)
    }

    /// The index of the largest element: in the flattened tensor, or along an axis.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis. Without it, the index is that in the flattened tensor.
    ///     keepdim: Whether the reduced axis stays with size 1.
    ///
    /// Returns:
    ///     A tensor of int64. Of equal elements, the first counts; a NaN is larger than any number.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> gt.argmax(x)
    ///     tensor(2)
    ///     >>> x.argmax(dim=1)
    ///     tensor([1, 0])
    [method().out()]
    fn argmax(g, input: Expr<'g>, dim: Option<i64> = None, keepdim: bool = false) -> Result<Expr<'g>> {
        check_no_bools("argmax_cpu", input)?;
        Ok(input.argmax(dim, keepdim))
    }

    /// The index of the smallest element: in the flattened tensor, or along an axis.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis. Without it, the index is that in the flattened tensor.
    ///     keepdim: Whether the reduced axis stays with size 1.
    ///
    /// Returns:
    ///     A tensor of int64. Of equal elements, the first counts; a NaN is smaller than any number.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 5.0], [7.0, 2.0]])
    ///     >>> gt.argmin(x)
    ///     tensor(0)
    ///     >>> x.argmin(dim=1)
    ///     tensor([0, 1])
    [method().out()]
    fn argmin(g, input: Expr<'g>, dim: Option<i64> = None, keepdim: bool = false) -> Result<Expr<'g>> {
        check_no_bools("argmin_cpu", input)?;
        Ok(input.argmin(dim, keepdim))
    }

    /// The variance of all elements, or along axes: sum((x - mean(x)) ** 2) / (n - correction).
    ///
    /// `n` is the number of elements over which the variance is taken. With `n <= correction` it is NaN or infinite.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given. `axis` is another name.
    ///     unbiased: An older form of `correction`: `True` is `correction=1`, `False` is `correction=0`.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     correction: The number subtracted from `n`: 1 by default, for the unbiased estimate from a sample (Bessel's
    ///         correction); 0 for the variance of a whole population.
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes, or with size 1 there if `keepdim`.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
    ///     >>> gt.var(x, dim=1)
    ///     tensor([1., 4.])
    ///     >>> x.var(correction=0)
    ///     tensor(5.6667)
    [method().out().wide()]
    fn var(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, unbiased: Option<bool> = None, keepdim: bool = false;
        correction: Option<f64> = None) -> Result<Expr<'g>> {
        let correction = divisor_correction(unbiased, correction);
        warn_of_few(g, "var", input, dim, correction)?;
        Ok(input.var(axes(dim), correction, keepdim))
    }

    /// The variance of all elements.
    [method().out().named("var").wide()]
    fn var_of_all(g, input: Expr<'g>, unbiased: bool) -> Expr<'g> {
        input.var(&[], number_of(unbiased), false)
    }

    /// The standard deviation of all elements, or along axes: the square root of `var`.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: An axis or several; all if not given. `axis` is another name.
    ///     unbiased: `False` stands for `correction=0`.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///     correction: The number subtracted from the number of elements: 1 by default (Bessel's correction).
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]])
    ///     >>> gt.std(x, dim=1)
    ///     tensor([1., 2.])
    ///     >>> x.std(dim=1, correction=0)
    ///     tensor([0.8165, 1.6330])
    [method().out().wide()]
    fn std(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, unbiased: Option<bool> = None, keepdim: bool = false;
        correction: Option<f64> = None) -> Result<Expr<'g>> {
        let correction = divisor_correction(unbiased, correction);
        warn_of_few(g, "std", input, dim, correction)?;
        Ok(input.std(axes(dim), correction, keepdim))
    }

    /// The standard deviation of all elements.
    [method().out().named("std").wide()]
    fn std_of_all(g, input: Expr<'g>, unbiased: bool) -> Expr<'g> {
        input.std(&[], number_of(unbiased), false)
    }

    /// The variance and the mean of all elements, or along axes: a pair of `var` and `mean`.
    ///
    /// Example:
    ///     >>> variance, mean = gt.var_mean(gt.tensor([1.0, 2.0, 3.0]))
    ///     >>> variance, mean
    ///     (tensor(1.), tensor(2.))
    [function().wide()]
    fn var_mean(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, unbiased: Option<bool> = None, keepdim: bool = false;
        correction: Option<f64> = None) -> Result<[Expr<'g>; 2]> {
        Ok([var(g, input, dim, unbiased, keepdim, correction)?, input.mean(axes(dim), keepdim)])
    }

    /// The variance and the mean of all elements.
    [function().named("var_mean").wide()]
    fn var_mean_of_all(g, input: Expr<'g>, unbiased: bool) -> [Expr<'g>; 2] {
        [input.var(&[], number_of(unbiased), false), input.mean(&[], false)]
    }

    /// The standard deviation and the mean of all elements, or along axes: a pair of `std` and `mean`.
    ///
    /// Example:
    ///     >>> deviation, mean = gt.std_mean(gt.tensor([1.0, 2.0, 3.0]))
    ///     >>> deviation, mean
    ///     (tensor(1.), tensor(2.))
    [function().wide()]
    fn std_mean(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, unbiased: Option<bool> = None, keepdim: bool = false;
        correction: Option<f64> = None) -> Result<[Expr<'g>; 2]> {
        Ok([std(g, input, dim, unbiased, keepdim, correction)?, input.mean(axes(dim), keepdim)])
    }

    /// The standard deviation and the mean of all elements.
    [function().named("std_mean").wide()]
    fn std_mean_of_all(g, input: Expr<'g>, unbiased: bool) -> [Expr<'g>; 2] {
        [input.std(&[], number_of(unbiased), false), input.mean(&[], false)]
    }

    /// ln(sum(exp(x))) along axes, without overflow: the largest element is subtracted first.
    ///
    /// Args:
    ///     input: A tensor; integers are converted to float32.
    ///     dim: An axis or several.
    ///     keepdim: Whether reduced axes stay with size 1.
    ///
    /// Returns:
    ///     A tensor of the input's shape without the reduced axes, or with size 1 there if `keepdim`.
    ///
    /// Example:
    ///     >>> gt.logsumexp(gt.tensor([1000.0, 1000.0]), dim=0)  # 1000 + ln(2)
    ///     tensor(1000.6932)
    ///     >>> gt.logsumexp(gt.zeros(2, 3), dim=1, keepdim=True)
    ///     tensor([[1.0986],
    ///             [1.0986]])
    [method().out().aliases(&["special.logsumexp"]).wide()]
    fn logsumexp(g, input: Expr<'g>, dim: &'g [i64], keepdim: bool = false) -> Result<Expr<'g>> {
        let wide = input.to_float();
        if wide.numel()? == 0 {
            // There is no largest element, and the sum of nothing is 0.
            return Ok(wide.exp().sum(dim, keepdim).log());
        }
        let largest = wide.detach().amax(dim, true);
        let largest = largest.isfinite().where_(largest, 0.0);
        let total = (wide - largest).exp().sum(dim, true).log() + largest;
        Ok(if keepdim { total } else { total.squeeze(dim) })
    }

    /// The number of nonzero elements, of all or along axes, as int64.
    ///
    /// Example:
    ///     >>> gt.count_nonzero(gt.tensor([[0, 1], [2, 0]]), dim=0)
    ///     tensor([1, 1])
    [method()]
    fn count_nonzero(g, input: Expr<'g>, dim: Option<&'g [i64]> = None) -> Result<Expr<'g>> {
        let mask = if input.dtype()? == DType::Bool { input } else { input.ne(0i64) };
        Ok(mask.sum(axes(dim), false))
    }

    /// The sum of all elements, or along axes, with NaN counted as 0.
    ///
    /// Example:
    ///     >>> gt.nansum(gt.tensor([1.0, float("nan"), 2.0]))
    ///     tensor(3.)
    [method().out()]
    fn nansum(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false; dtype: Option<DType> = None)
        -> Result<Expr<'g>> {
        sum(g, input.isnan().where_(Scalar::Bool(false), input), dim, keepdim, dtype)
    }

    /// The mean of all elements, or along axes, without counting NaN.
    ///
    /// Example:
    ///     >>> gt.nanmean(gt.tensor([1.0, float("nan"), 2.0]))
    ///     tensor(1.5000)
    [method().out()]
    fn nanmean(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, keepdim: bool = false; dtype: Option<DType> = None)
        -> Result<Expr<'g>> {
        check_floating("nanmean", input)?;
        let count = input.isnan().logical_not().sum(axes(dim), keepdim);
        Ok(nansum(g, input, dim, keepdim, dtype)? / count)
    }

    /// The sum along the axes that broadcasting `size` to the tensor's shape repeats: the inverse of `expand`.
    ///
    /// Example:
    ///     >>> gt.ones(2, 3).sum_to_size(1, 3)
    ///     tensor([[2., 2., 2.]])
    [method_only()]
    fn sum_to_size(g, input: Expr<'g>, size: Sizes<'g>) -> Result<Expr<'g>> {
        let own = input.sizes()?;
        let lead = own.len().checked_sub(size.len());
        let lead = lead.filter(|lead| size.iter().zip(&own[*lead..]).all(|(new, old)| *new == 1 || new == old));
        let Some(lead) = lead else {
            return Err(OpError::runtime(format!("size {{{:?}}} is not expandable to size {{{own:?}}}.", &*size)));
        };
        let reduced = |axis: &usize| *axis < lead || (size[*axis - lead] == 1 && own[*axis] != 1);
        let axes: Vec<i64> = (0..own.len()).filter(reduced).map(|axis| axis as i64).collect();
        // A tensor without axes is summed too, as in PyTorch: the result is a copy, and integers if the tensor is bool.
        Ok(if axes.is_empty() && !own.is_empty() { input } else { input.sum(&axes, true).reshape(&size) })
    }

    /// Probabilities from logits: exp(x) / sum(exp(x)) along an axis.
    ///
    /// The largest element is subtracted first, so large logits do not overflow.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis along which the result sums to 1. `axis` is another name.
    ///     dtype: The dtype that the input is converted to first; its own dtype if not given.
    ///
    /// Returns:
    ///     A tensor of the input's shape, whose elements lie between 0 and 1.
    ///
    /// Example:
    ///     >>> x = gt.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    ///     >>> gt.softmax(x, dim=1)
    ///     tensor([[0.0900, 0.2447, 0.6652],
    ///             [0.3333, 0.3333, 0.3333]])
    ///     >>> x.softmax(dim=0).sum(0)
    ///     tensor([1.0000, 1.0000, 1.0000])
    [method().out().aliases(&["special.softmax"])]
    fn softmax(g, input: Expr<'g>, dim: i64, dtype: Option<DType> = None) -> Expr<'g> {
        converted(input, dtype).softmax(dim)
    }

    /// Log-probabilities from logits: x - log(sum(exp(x))) along an axis, without overflow.
    ///
    /// Args:
    ///     input: A tensor.
    ///     dim: The axis along which the exponentials of the result sum to 1. `axis` is another name.
    ///     dtype: The dtype that the input is converted to first; its own dtype if not given.
    ///
    /// Returns:
    ///     A tensor of the input's shape, whose elements are at most 0.
    ///
    /// Example:
    ///     >>> gt.log_softmax(gt.tensor([1.0, 2.0, 3.0]), dim=0)
    ///     tensor([-2.4076, -1.4076, -0.4076])
    [method().out().aliases(&["special.log_softmax"])]
    fn log_softmax(g, input: Expr<'g>, dim: i64, dtype: Option<DType> = None) -> Expr<'g> {
        converted(input, dtype).log_softmax(dim)
    }

    /// The covariance matrix of variables.
    ///
    /// Args:
    ///     input: A matrix with a row for each variable and a column for each observation; a vector is one variable.
    ///     correction: The degrees of freedom that the divisor loses: 1 by default (Bessel's correction).
    ///     fweights: How often each observation counts: a vector of integers.
    ///     aweights: The weight of each observation: a vector of floats.
    ///
    /// Example:
    ///     >>> gt.cov(gt.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    ///     tensor([[ 1., -1.],
    ///             [-1.,  1.]])
    [method().wide()]
    fn cov(g, input: Expr<'g>; correction: i64 = 1, fweights: Option<Expr<'g>> = None,
        aweights: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let rank = input.rank()?;
        if rank > 2 {
            return Err(OpError::runtime(format!(
                "cov(): expected input to have two or fewer dimensions but got an input with {rank} dimensions"
            )));
        }
        let rows = if rank < 2 { input.reshape(&[1, -1]) } else { input }.to_float();
        let observations = rows.size(1)?;
        for (name, kind, weights) in [("fweights", "integral", fweights), ("aweights", "floating point", aweights)] {
            let Some(weights) = weights else { continue };
            let (rank, dtype, count) = (weights.rank()?, weights.dtype()?, weights.numel()? as i64);
            if rank > 1 {
                return Err(OpError::runtime(format!(
                    "cov(): expected {name} to have one or fewer dimensions but got {name} with {rank} dimensions"
                )));
            }
            if dtype.is_float() != (name == "aweights") {
                return Err(OpError::runtime(format!(
                    "cov(): expected {name} to have {kind} dtype but got {name} with gt.{dtype} dtype"
                )));
            }
            if count != observations {
                return Err(OpError::runtime(format!(
                    "cov(): expected {name} to have the same numel as there are observations in the input but got \
                     {count} != {observations}"
                )));
            }
            if weights.lt(0i64).any(&[], false).is_true()? {
                return Err(OpError::runtime(format!("cov(): {name} cannot be negative")));
            }
        }
        let weights = match (fweights, aweights) {
            (None, None) => {
                let centred = rows - rows.mean(&[1], true);
                let divisor = observations.saturating_sub(correction).max(0);
                return Ok((centred.matmul(centred.conj().transposed()) / divisor).squeeze(&[]));
            }
            (Some(one), None) | (None, Some(one)) => one,
            (Some(counts), Some(weights)) => counts * weights,
        };
        let total = weights.sum(&[], false);
        let centred = rows - (rows * weights).sum(&[1], true) / total;
        let lost = match aweights {
            None => g.number(correction),
            Some(own) => correction * (weights * own).sum(&[], false) / total,
        };
        Ok(((centred * weights).matmul(centred.conj().transposed()) / (total - lost).maximum(0i64)).squeeze(&[]))
    }

    /// The matrix of Pearson's correlation coefficients of variables, a row each.
    ///
    /// Example:
    ///     >>> gt.corrcoef(gt.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    ///     tensor([[ 1., -1.],
    ///             [-1.,  1.]])
    [method().wide()]
    fn corrcoef(g, input: Expr<'g>) -> Result<Expr<'g>> {
        let matrix = cov(g, input, 1, None, None)?;
        if matrix.rank()? == 0 {
            let variance = matrix;
            return Ok(matrix / variance);
        }
        let spread = matrix.diagonal(0, 0, 1).real().sqrt();
        let scaled = matrix / spread.unsqueeze(1) / spread;
        if !scaled.dtype()?.is_complex() {
            return Ok(scaled.clamp(-1i64, 1i64));
        }
        let bounded = |part: Expr<'g>| part.clamp(-1i64, 1i64);
        Ok(g.complex(bounded(scaled.real()), bounded(scaled.imag())))
    }
}
