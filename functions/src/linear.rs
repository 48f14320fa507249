//! Linear and bilinear maps, distances between vectors and their normalization.

use crate::declaration::functions;
use crate::norms::norm_of_order;
use gt_ops::error::{OpError, Result};
use gt_ops::expr::Expr;
use gt_ops::forms::{Autocast, module};

functions! {
    /// Affine map `input @ weight.T + bias`.
    ///
    /// Shape:
    ///     `(*, in_features)` with a weight `(out_features, in_features)` and a bias `(out_features)` to `(*,
    ///     out_features)`.
    ///
    /// Example:
    ///     >>> gt.nn.functional.linear(gt.tensor([[1.0, 2.0]]), gt.tensor([[3.0, 4.0]]), gt.tensor([0.5]))
    ///     tensor([[11.5000]])
    [module("nn.functional").out().autocast(Autocast::Low)]
    fn linear(g, input: Expr<'g>, weight: Expr<'g>, bias: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        Ok(match bias {
            Some(bias) => input.affine(weight, bias),
            None => input.matmul(if weight.rank()? > 1 { weight.transposed() } else { weight }),
        })
    }

    /// Bilinear map: `input1^T weight[k] input2 + bias[k]` for each output feature `k`.
    ///
    /// Shape:
    ///     `(*, in1)` and `(*, in2)` with a weight `(out, in1, in2)` and a bias `(out)` to `(*, out)`.
    ///
    /// Example:
    ///     >>> x, y, weight = gt.ones(4, 2), gt.ones(4, 3), gt.ones(5, 2, 3)
    ///     >>> gt.nn.functional.bilinear(x, y, weight).shape
    ///     gt.Size([4, 5])
    [module("nn.functional").autocast(Autocast::Low).wide()]
    fn bilinear(g, input1: Expr<'g>, input2: Expr<'g>, weight: Expr<'g>, bias: Option<Expr<'g>> = None)
        -> Result<Expr<'g>> {
        let (one, two) = (input1.sizes()?, input2.sizes()?);
        let ([lead @ .., a], [lead_2 @ .., b], [out, rows, columns]) = (&one[..], &two[..], &weight.sizes()?[..]) else {
            return Err(OpError::runtime("bilinear(): expected a weight of 3 axes and inputs of at least 1"));
        };
        if lead != lead_2 {
            return Err(OpError::runtime(format!(
                "bilinear(): input batch dimensions do not match: got {one:?} and {two:?}"
            )));
        }
        let flat = weight.permute(&[1, 0, 2]).reshape(&[*rows, out * columns]);
        let half = input1.reshape(&[-1, *a]).matmul(flat).reshape(&[-1, *out, *columns]);
        let mut sizes = lead.to_vec();
        sizes.push(*out);
        let result = half.matmul(input2.reshape(&[-1, *b]).unsqueeze(-1)).reshape(&sizes);
        Ok(bias.map_or(result, |bias| result + bias))
    }

    /// Divides vectors along `dim` by their `p`-norm: `x / max(||x||_p, eps)`.
    ///
    /// Args:
    ///     input: Any tensor.
    ///     p: The order of the norm.
    ///     dim: The axis of the vectors.
    ///     eps: The smallest divisor.
    ///
    /// Example:
    ///     >>> gt.nn.functional.normalize(gt.tensor([[3.0, 4.0]]))
    ///     tensor([[0.6000, 0.8000]])
    [module("nn.functional").out().wide()]
    fn normalize(g, input: Expr<'g>, p: f64 = 2.0, dim: i64 = 1, eps: f64 = 1e-12) -> Result<Expr<'g>> {
        Ok(input / norm_of_order(input, p, &[dim], true)?.clamp_min(eps))
    }

    /// `p`-norm of `x1 - x2 + eps` along the last axis.
    ///
    /// Example:
    ///     >>> gt.nn.functional.pairwise_distance(gt.tensor([[0.0, 0.0]]), gt.tensor([[3.0, 4.0]]))
    ///     tensor([5.0000])
    [module("nn.functional").wide()]
    fn pairwise_distance(g, x1: Expr<'g>, x2: Expr<'g>, p: f64 = 2.0, eps: f64 = 1e-6, keepdim: bool = false)
        -> Result<Expr<'g>> {
        norm_of_order(x1 - x2 + eps, if p.is_infinite() { f64::INFINITY } else { p }, &[-1], keepdim)
    }
}
