//! Reductions composed of others: log-sum-exp, moments, covariances.

use crate::declaration::functions;
use gt_ops::error::Result;
use gt_ops::expr::Expr;
use gt_ops::forms::{function, method};

functions! {
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
    [method().out()]
    fn logsumexp(g, input: Expr<'g>, dim: &'g [i64], keepdim: bool = false) -> Expr<'g> {
        let wide = input.to_float();
        let largest = wide.detach().amax(dim, true);
        let largest = largest.isfinite().where_(largest, 0.0);
        let total = (wide - largest).exp().sum(dim, true).log() + largest;
        if keepdim { total } else { total.squeeze(dim) }
    }

    /// The number of nonzero elements, of all or along axes, as int64.
    ///
    /// Example:
    ///     >>> gt.count_nonzero(gt.tensor([[0, 1], [2, 0]]), dim=0)
    ///     tensor([1, 1])
    [method()]
    fn count_nonzero(g, input: Expr<'g>, dim: Option<&'g [i64]> = None) -> Expr<'g> {
        input.ne(0i64).sum(dim.unwrap_or(&[]), false)
    }

    /// The variance and the mean of all elements, or along axes: a pair of `var` and `mean`.
    ///
    /// Example:
    ///     >>> variance, mean = gt.var_mean(gt.tensor([1.0, 2.0, 3.0]))
    ///     >>> variance, mean
    ///     (tensor(1.), tensor(2.))
    [function()]
    fn var_mean(g, input: Expr<'g>, dim: Option<&'g [i64]> = None, unbiased: Option<bool> = None, keepdim: bool = false;
        correction: Option<f64> = None) -> Result<[Expr<'g>; 2]> {
        let axes = dim.unwrap_or(&[]);
        let correction = correction.unwrap_or(if unbiased == Some(false) { 0.0 } else { 1.0 });
        Ok([input.var(axes, correction, keepdim), input.mean(axes, keepdim)])
    }
}
