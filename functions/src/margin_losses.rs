//! Margin losses: hinge, ranking, triplet and multi-class margins.

use crate::activations::logsigmoid;
use crate::common::zeros;
use crate::declaration::functions;
use crate::linear::pairwise_distance;
use crate::losses::{reduced, reduction_of};
use gt_ops::error::{OpError, Result};
use gt_ops::expr::Expr;
use gt_ops::forms::module;
use gt_ops::{DType, Op, Scalar};

/// Logits as a batch `(N, C)`; a single sample becomes a batch of one.
fn as_batch(input: Expr<'_>) -> Result<Expr<'_>> {
    let shape = input.shape()?;
    if shape.rank() > 2 || shape.dims().last() == Some(&0) {
        return Err(OpError::runtime(format!(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: {shape}"
        )));
    }
    Ok(if shape.rank() == 2 { input } else { input.reshape(&[1, shape.numel() as i64]) })
}

functions! {
    /// Margin ranking loss: `max(-target * (input1 - input2) + margin, 0)`, reduced.
    ///
    /// A target of 1 wants `input1` larger than `input2`, one of -1 the opposite.
    ///
    /// Example:
    ///     >>> x, y = gt.tensor([2.0, 1.0]), gt.tensor([1.0, 3.0])
    ///     >>> gt.nn.functional.margin_ranking_loss(x, y, target=gt.tensor([1.0, 1.0]))
    ///     tensor(1.)
    [module("nn.functional").wide()]
    fn margin_ranking_loss(g, input1: Expr<'g>, input2: Expr<'g>, target: Expr<'g>, margin: f64 = 0.0,
        size_average: Option<bool> = None, reduce: Option<bool> = None, reduction: &'g str = "mean")
        -> Result<Expr<'g>> {
        let [a, b, wanted] = [input1.shape()?, input2.shape()?, target.shape()?];
        if a.rank() != b.rank() || a.rank() != wanted.rank() {
            return Err(OpError::runtime(format!(
                "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: \
                 gt.Size({a}), input2: gt.Size({b}), target: gt.Size({wanted}) "
            )));
        }
        let losses = (target * (input2 - input1) + margin).clamp_min(0i64);
        Ok(reduced(losses, reduction_of(g, size_average, reduce, reduction)?))
    }

    /// Hinge embedding loss: `input` where the target is 1, `max(margin - input, 0)` where it is -1, reduced.
    ///
    /// `input` is usually a distance between two embeddings.
    ///
    /// Example:
    ///     >>> gt.nn.functional.hinge_embedding_loss(gt.tensor([0.5, 0.2]), gt.tensor([1.0, -1.0]))
    ///     tensor(0.6500)
    [module("nn.functional").wide()]
    fn hinge_embedding_loss(g, input: Expr<'g>, target: Expr<'g>, margin: f64 = 1.0,
        size_average: Option<bool> = None, reduce: Option<bool> = None, reduction: &'g str = "mean")
        -> Result<Expr<'g>> {
        let near = target.eq(-1i64).where_(0.0, input);
        let far = target.eq(1i64).where_(0.0, (margin - input).clamp_min(0i64));
        Ok(reduced(near + far, reduction_of(g, size_average, reduce, reduction)?))
    }

    /// Cosine embedding loss: `1 - cos` where the target is 1, `max(cos - margin, 0)` where it is -1, reduced.
    ///
    /// `cos` is the cosine similarity of `input1` and `input2` along the last axis.
    ///
    /// Shape:
    ///     `(N, D)` and a target `(N)`, or `(D)` and a scalar target.
    ///
    /// Example:
    ///     >>> a, b = gt.tensor([[1.0, 0.0]]), gt.tensor([[0.0, 1.0]])
    ///     >>> gt.nn.functional.cosine_embedding_loss(a, b, gt.tensor([1]))
    ///     tensor(1.)
    [module("nn.functional").wide()]
    fn cosine_embedding_loss(g, input1: Expr<'g>, input2: Expr<'g>, target: Expr<'g>, margin: f64 = 0.0,
        size_average: Option<bool> = None, reduce: Option<bool> = None, reduction: &'g str = "mean")
        -> Result<Expr<'g>> {
        let rank = target.rank()?;
        if rank > 1 || input1.rank()? != rank + 1 {
            return Err(OpError::runtime(format!(
                "{rank}D target tensor expects {}D input tensors, but found inputs with sizes {} and {}.",
                rank + 1,
                input1.shape()?,
                input2.shape()?
            )));
        }
        let dot = |a: Expr<'g>, b: Expr<'g>| (a * b).sum(&[-1], false);
        let squares = (dot(input1, input1) + 1e-12) * (dot(input2, input2) + 1e-12);
        let cosine = dot(input1, input2) / squares.sqrt();
        let same = target.eq(1i64).where_(1i64 - cosine, 0.0);
        let different = target.eq(-1i64).where_((cosine - margin).clamp_min(0i64), 0.0);
        Ok(reduced(same + different, reduction_of(g, size_average, reduce, reduction)?))
    }

    /// Triplet loss `max(d(anchor, positive) - d(anchor, negative) + margin, 0)`, reduced.
    ///
    /// `d` is the `p`-norm's distance.
    ///
    /// See `triplet_margin_with_distance_loss` for the arguments.
    ///
    /// Example:
    ///     >>> gt.nn.functional.triplet_margin_loss(gt.zeros(4, 3), gt.zeros(4, 3), gt.ones(4, 3))
    ///     tensor(0.)
    [module("nn.functional").wide()]
    fn triplet_margin_loss(g, anchor: Expr<'g>, positive: Expr<'g>, negative: Expr<'g>, margin: f64 = 1.0, p: f64 = 2.0,
        eps: f64 = 1e-6, swap: bool = false, size_average: Option<bool> = None, reduce: Option<bool> = None,
        reduction: &'g str = "mean") -> Result<Expr<'g>> {
        let reduction = reduction_of(g, size_average, reduce, reduction)?;
        if margin <= 0.0 {
            return Err(OpError::value(format!("margin must be greater than 0, got {margin}")));
        }
        let near = pairwise_distance(g, anchor, positive, p, eps, false)?;
        let mut far = pairwise_distance(g, anchor, negative, p, eps, false)?;
        if swap {
            far = far.minimum(pairwise_distance(g, positive, negative, p, eps, false)?);
        }
        Ok(reduced((near - far + margin).clamp_min(0i64), reduction))
    }

    /// Multi-class hinge loss: `sum_{j != y} max(margin - x[y] + x[j], 0)^p / C`, reduced.
    ///
    /// Args:
    ///     input: Scores `x`, `(N, C)` or `(C)`.
    ///     target: Class indices `y`, `(N)` or a scalar.
    ///     p: 1 or 2.
    ///     margin: The margin.
    ///     weight: A weight for each class, `(C)`.
    ///     size_average: Deprecated: see `reduction`.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    [module("nn.functional").wide()]
    fn multi_margin_loss(g, input: Expr<'g>, target: Expr<'g>, p: Scalar = Scalar::Int(1), margin: f64 = 1.0,
        weight: Option<Expr<'g>> = None, size_average: Option<bool> = None, reduce: Option<bool> = None,
        reduction: &'g str = "mean") -> Result<Expr<'g>> {
        let reduction = reduction_of(g, size_average, reduce, reduction)?;
        let p = p.to_f64();
        if p != 1.0 && p != 2.0 {
            return Err(OpError::value("only p == 1 and p == 2 supported"));
        }
        if let Some(weight) = weight
            && weight.rank()? != 1
        {
            return Err(OpError::value("weight must be one-dimensional"));
        }
        let scores = as_batch(input)?;
        let (samples, classes) = (scores.size(0)?, scores.size(1)?);
        let index = target.reshape(&[-1]);
        if target.rank()? > 1 || index.sizes()? != [samples] {
            return Err(OpError::runtime(format!(
                "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch \
                 size). Expected target size [{samples}], but got {}. Input has shape {}.",
                target.shape()?,
                input.shape()?
            )));
        }
        if let Some(weight) = weight
            && weight.sizes()? != [classes]
        {
            return Err(OpError::runtime(format!(
                "inconsistent weight size, expected {classes} but got {}",
                weight.shape()?
            )));
        }
        let labels = index.unsqueeze(1);
        let mut missing = (scores - scores.gather(1, labels) + margin).relu();
        if p == 2.0 {
            missing = missing.square();
        }
        if let Some(weight) = weight {
            missing = missing * weight.gather(0, index).unsqueeze(1);
        }
        let others = g.arange(classes, DType::I64).ne(labels);
        let losses = others.where_(missing, 0.0).sum(&[1], false) / classes;
        Ok(reduced(losses.with_shape(&target.shape()?), reduction))
    }

    /// Multi-label hinge loss: `sum_{y, j} max(1 - (x[y] - x[j]), 0) / C` over labels `y` and non-labels `j`, reduced.
    ///
    /// Args:
    ///     input: Scores `x`, `(N, C)` or `(C)`.
    ///     target: The labels of each sample, of the same shape: class indices up to the first -1.
    ///     size_average: Deprecated: see `reduction`.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    [module("nn.functional").wide()]
    fn multilabel_margin_loss(g, input: Expr<'g>, target: Expr<'g>, size_average: Option<bool> = None,
        reduce: Option<bool> = None, reduction: &'g str = "mean") -> Result<Expr<'g>> {
        let reduction = reduction_of(g, size_average, reduce, reduction)?;
        let scores = as_batch(input)?;
        let (own, wanted) = (input.shape()?, target.shape()?);
        let single = own.rank().max(wanted.rank()) == 1 && own.numel() == 1 && wanted.numel() == 1;
        if own != wanted && !single {
            return Err(OpError::runtime(format!("inconsistent target size: {wanted} for input of size: {own}")));
        }
        let labels = target.with_shape(&scores.shape()?);
        let counts = labels.lt(0i64).cumsum(1).eq(0i64);
        let index = counts.where_(labels, 0i64);
        let none = zeros(g, &scores.sizes()?, DType::I64);
        let right = none.scatter(Op::ScatterAdd, 1, index, counts.to(DType::I64)).gt(0i64);
        let missing = (scores.unsqueeze(1) - scores.gather(1, index).unsqueeze(2) + 1i64).relu();
        let matters = counts.unsqueeze(2) & right.logical_not().unsqueeze(1);
        let losses = matters.where_(missing, 0.0).sum(&[1, 2], false) / scores.size(1)?;
        let sizes = input.sizes()?;
        Ok(reduced(losses.reshape(&sizes[..sizes.len().saturating_sub(1)]), reduction))
    }

    /// Binary cross entropy with logits, averaged over the classes (last axis), reduced over the samples.
    [module("nn.functional").wide()]
    fn multilabel_soft_margin_loss(g, input: Expr<'g>, target: Expr<'g>, weight: Option<Expr<'g>> = None,
        size_average: Option<bool> = None, reduce: Option<bool> = None, reduction: &'g str = "mean")
        -> Result<Expr<'g>> {
        let losses = -(target * logsigmoid(g, input)? + (1i64 - target) * logsigmoid(g, -input)?);
        let losses = weight.map_or(losses, |weight| losses * weight).sum(&[-1], false) / input.size(-1)?;
        Ok(reduced(losses, reduction_of(g, size_average, reduce, reduction)?))
    }

    /// Logistic loss: `log(1 + exp(-target * input))` for targets 1 and -1, reduced.
    [module("nn.functional").wide()]
    fn soft_margin_loss(g, input: Expr<'g>, target: Expr<'g>, size_average: Option<bool> = None,
        reduce: Option<bool> = None, reduction: &'g str = "mean") -> Result<Expr<'g>> {
        Ok(reduced(-logsigmoid(g, target * input)?, reduction_of(g, size_average, reduce, reduction)?))
    }
}
