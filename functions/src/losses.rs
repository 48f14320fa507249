//! Regression and classification losses.
//!
//! `input` is the model's output, `target` the desired one. `reduction` is applied to the losses of the elements or
//! samples: `"mean"`, `"sum"`, or `"none"`, which returns them as they are. `size_average` and `reduce` are PyTorch's
//! deprecated names for the reduction.

use crate::activations::logsigmoid;
use crate::common::{check_implemented, in_float32};
use crate::declaration::{TensorOrNumber, Unsupported, functions};
use crate::linear::linear;
use gt_ops::build::{self, row_wise};
use gt_ops::error::{OpError, Result};
use gt_ops::expr::{Builder, Expr};
use gt_ops::forms::{Autocast, module};
use gt_ops::instruction::{LossReduction, LossSpec};
use gt_ops::{DType, Op, Scalar};

/// The lower bound of log probabilities in `binary_cross_entropy`, as in PyTorch: log(0) is minus infinity.
const LOG_MIN: f64 = -100.0;
/// The class index that losses leave out if none is given.
const IGNORED: i64 = -100;

/// `d^2 / 2` where `|d| <= end`, else `end * (|d| - end / 2)`: with `c`, which is `d` between `-end` and `end`, it is
/// `c * (d - c / 2)`, whose gradient is `c`, also where `d` is infinite.
fn quadratic_up_to(difference: Expr<'_>, end: f64) -> Result<Expr<'_>> {
    let largest = difference.dtype()?.largest_float();
    let end = if end > largest { f64::INFINITY } else { end };
    let limited = difference.limit(Some((-end).into()), Some(end.into()));
    let builder = difference.builder();
    let inner = builder.elementwise(Op::Addcmul, &[difference.into(), limited.into(), Scalar::Float(-0.5).into()]);
    Ok(inner * limited)
}

/// The reduction of a name.
pub(crate) fn reduction_named(name: &str) -> Result<LossReduction> {
    match name {
        "mean" => Ok(LossReduction::Mean),
        "sum" => Ok(LossReduction::Sum),
        "none" => Ok(LossReduction::None),
        other => Err(OpError::value(format!("{other} is not a valid value for reduction"))),
    }
}

/// The name of the reduction that ATen enumerates as `index`.
pub(crate) fn reduction_at(index: i64) -> Result<&'static str> {
    match index {
        0 => Ok("none"),
        1 => Ok("mean"),
        2 => Ok("sum"),
        other => Err(OpError::value(format!("{other} is not a valid value for reduction: use 0, 1 or 2"))),
    }
}

/// The reduction, with PyTorch's deprecated arguments taken into account if they are given.
pub(crate) fn reduction_of(
    g: &Builder<'_>,
    size_average: Option<bool>,
    reduce: Option<bool>,
    reduction: &str,
) -> Result<LossReduction> {
    if size_average.is_none() && reduce.is_none() {
        return reduction_named(reduction);
    }
    let chosen = match (reduce, size_average) {
        (Some(false), _) => "none",
        (_, Some(false)) => "sum",
        _ => "mean",
    };
    g.warn(format!("size_average and reduce args will be deprecated, please use reduction='{chosen}' instead."));
    reduction_named(chosen)
}

/// The losses reduced to their mean or sum, or as they are.
pub(crate) fn reduced(losses: Expr<'_>, reduction: LossReduction) -> Expr<'_> {
    match reduction {
        LossReduction::Mean => losses.kept_only().mean(&[], false),
        LossReduction::Sum => losses.kept_only().sum(&[], false),
        LossReduction::None => losses,
    }
}

/// The losses multiplied by the weights, which have their shape.
fn weighted<'g>(losses: Expr<'g>, weight: Expr<'g>) -> Result<Expr<'g>> {
    if weight.shape()? != losses.shape()? {
        return Err(OpError::value("Weights and input must have the same size."));
    }
    Ok(losses * weight)
}

/// The losses multiplied by the weights and reduced; a mean is divided by the sum of the weights.
fn weighted_mean<'g>(losses: Expr<'g>, weight: Option<Expr<'g>>, reduction: LossReduction) -> Result<Expr<'g>> {
    let Some(weight) = weight else { return Ok(reduced(losses, reduction)) };
    let losses = weighted(losses, weight)?;
    Ok(match reduction {
        LossReduction::Mean => losses.sum(&[], false) / weight.sum(&[], false),
        _ => reduced(losses, reduction),
    })
}

/// The losses multiplied by the weights, if there are any, which broadcast to them.
fn times<'g>(losses: Expr<'g>, weight: Option<Expr<'g>>) -> Expr<'g> {
    weight.map_or(losses, |weight| losses * weight)
}

fn warn_of_broadcast<'g>(g: &Builder<'g>, loss: &str, input: Expr<'g>, target: Expr<'g>) -> Result<()> {
    let (input, target) = (input.shape()?, target.shape()?);
    if input != target {
        g.warn(format!(
            "{loss}: a target of size {target} differs from the input's, {input}: they are broadcast, which is rarely \
             meant. Give them the same size."
        ));
    }
    Ok(())
}

/// The loss of class indices as one instruction.
fn class_loss<'g>(
    g: &'g Builder<'g>,
    op: Op,
    [input, target]: [Expr<'g>; 2],
    weight: Option<Expr<'g>>,
    spec: LossSpec,
) -> Result<Expr<'g>> {
    if weight.is_some_and(Expr::requires_grad) {
        return Err(OpError::runtime("the derivative for 'weight' is not implemented"));
    }
    let mut operands = vec![input, target];
    operands.extend(weight);
    Ok(g.on_all(&operands, |g, v| row_wise::class_loss(g, op, v[0], v[1], v.get(2).copied(), spec)))
}

functions! {
    /// Mean squared error: `(input - target)^2`, reduced.
    ///
    /// Args:
    ///     input: Predictions of any shape.
    ///     target: Values of the same shape.
    ///     size_average: Deprecated: see `reduction`.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    ///     weight: A weight for each element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.mse_loss(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 4.0]))
    ///     tensor(2.)
    [module("nn.functional").autocast(Autocast::Float32).wide()]
    fn mse_loss(g, input: Expr<'g>, target: Expr<'g>, size_average: Option<bool> = None, reduce: Option<bool> = None,
        reduction: &'g str = "mean", weight: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        warn_of_broadcast(g, "mse_loss", input, target)?;
        weighted_mean((input - target).square(), weight, reduction_of(g, size_average, reduce, reduction)?)
    }

    /// Mean absolute error: `|input - target|`, reduced.
    ///
    /// Args:
    ///     input: Predictions of any shape.
    ///     target: Values of the same shape.
    ///     size_average: Deprecated: see `reduction`.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    ///     weight: A weight for each element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.l1_loss(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 4.0]))
    ///     tensor(1.)
    [module("nn.functional").autocast(Autocast::Float32).wide()]
    fn l1_loss(g, input: Expr<'g>, target: Expr<'g>, size_average: Option<bool> = None, reduce: Option<bool> = None,
        reduction: &'g str = "mean", weight: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        warn_of_broadcast(g, "l1_loss", input, target)?;
        weighted_mean((input - target).abs(), weight, reduction_of(g, size_average, reduce, reduction)?)
    }

    /// Smooth L1 loss: `d^2 / (2 beta)` if `|d| < beta`, else `|d| - beta / 2`; d = input - target (Girshick 2015).
    ///
    /// Args:
    ///     input: Predictions of any shape.
    ///     target: Values of the same shape.
    ///     size_average: Deprecated: see `reduction`.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    ///     beta: Where the quadratic part ends; 0 for the L1 loss.
    ///
    /// Example:
    ///     >>> gt.nn.functional.smooth_l1_loss(gt.tensor([0.0, 0.0]), gt.tensor([1.0, 3.0]), reduction="none")
    ///     tensor([0.5000, 2.5000])
    [module("nn.functional").autocast(Autocast::Float32).wide()]
    fn smooth_l1_loss(g, input: Expr<'g>, target: Expr<'g>, size_average: Option<bool> = None,
        reduce: Option<bool> = None, reduction: &'g str = "mean", beta: f64 = 1.0) -> Result<Expr<'g>> {
        if beta < 0.0 {
            return Err(OpError::runtime("smooth_l1_loss does not support negative values for beta."));
        }
        let reduction = reduction_of(g, size_average, reduce, reduction)?;
        warn_of_broadcast(g, "smooth_l1_loss", input, target)?;
        let difference = input - target;
        if beta == 0.0 {
            return Ok(reduced(difference.abs(), reduction));
        }
        check_implemented("smooth_l1_cpu", difference, DType::is_float)?;
        let losses = quadratic_up_to(difference, beta)?;
        Ok(reduced(if beta == 1.0 { losses } else { losses * (1.0 / beta) }, reduction))
    }

    /// Huber loss: `d^2 / 2` if `|d| <= delta`, else `delta (|d| - delta / 2)`; d = input - target (Huber 1964).
    ///
    /// Args:
    ///     input: Predictions of any shape.
    ///     target: Values of the same shape.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    ///     delta: Where the quadratic part ends.
    ///     weight: A weight for each element.
    ///
    /// Example:
    ///     >>> gt.nn.functional.huber_loss(gt.tensor([0.0, 0.0]), gt.tensor([1.0, 3.0]), reduction="none")
    ///     tensor([0.5000, 2.5000])
    [module("nn.functional").autocast(Autocast::Float32).wide()]
    fn huber_loss(g, input: Expr<'g>, target: Expr<'g>, reduction: &'g str = "mean", delta: f64 = 1.0,
        weight: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        if delta <= 0.0 {
            return Err(OpError::runtime("huber_loss does not support non-positive values for delta."));
        }
        warn_of_broadcast(g, "huber_loss", input, target)?;
        let difference = input - target;
        check_implemented("huber_cpu", difference, DType::is_float)?;
        let losses = quadratic_up_to(difference, delta)?;
        // As in PyTorch, the mean is divided by the number of elements, not by the sum of the weights.
        let losses = weight.map_or(Ok(losses), |weight| weighted(losses, weight))?;
        Ok(reduced(losses, reduction_named(reduction)?))
    }

    /// Pointwise Kullback-Leibler divergence `target * (log(target) - input)`, reduced.
    ///
    /// Args:
    ///     input: Log probabilities.
    ///     target: Probabilities, or their logarithms if `log_target`.
    ///     size_average: Deprecated: see `reduction`.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"batchmean"` divides the sum by the batch size, which is the divergence's definition; `"mean"`
    ///         divides it by the number of elements; or `"sum"`, or `"none"`.
    ///     log_target: Whether `target` holds logarithms.
    ///
    /// Example:
    ///     >>> p = gt.tensor([[0.5, 0.5]])
    ///     >>> gt.nn.functional.kl_div(p.log(), p, reduction="batchmean")
    ///     tensor(0.)
    [module("nn.functional").autocast(Autocast::Float32).wide()]
    fn kl_div(g, input: Expr<'g>, target: Expr<'g>, size_average: Option<bool> = None, reduce: Option<bool> = None,
        reduction: &'g str = "mean", log_target: bool = false) -> Result<Expr<'g>> {
        let losses = if log_target {
            target.exp() * (target - input)
        } else {
            // 0 * log(0) is 0.
            target.eq(0i64).where_(1.0, target).log() * target - target * input
        };
        if reduction == "batchmean" {
            let total = losses.sum(&[], false);
            return Ok(if input.rank()? == 0 { total } else { total / input.size(0)? });
        }
        let reduction = reduction_of(g, size_average, reduce, reduction)?;
        if matches!(reduction, LossReduction::Mean) {
            g.warn(
                "kl_div: reduction=\"mean\" divides by the number of elements, which is not the Kullback-Leibler \
                 divergence: reduction=\"batchmean\" divides by the batch size alone.",
            );
        }
        Ok(reduced(losses, reduction))
    }

    /// Binary cross entropy: `-weight * (target * log(input) + (1 - target) * log(1 - input))`, reduced.
    ///
    /// Args:
    ///     input: Probabilities of any shape.
    ///     target: Values between 0 and 1, of the same shape.
    ///     weight: Broadcasts to the shape of `input`.
    ///     size_average: Deprecated: see `reduction`.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    ///
    /// Raises:
    ///     ValueError: The shapes differ.
    [module("nn.functional").autocast(Autocast::Float32).wide()]
    fn binary_cross_entropy(g, input: Expr<'g>, target: Expr<'g>, weight: Option<Expr<'g>> = None,
        size_average: Option<bool> = None, reduce: Option<bool> = None, reduction: &'g str = "mean")
        -> Result<Expr<'g>> {
        let (own, wanted) = (input.shape()?, target.shape()?);
        if own != wanted {
            return Err(OpError::value(format!(
                "Using a target size (gt.Size({wanted})) that is different to the input size (gt.Size({own})) is \
                 deprecated. Please ensure they have the same size."
            )));
        }
        check_implemented("binary_cross_entropy", input, DType::is_float)?;
        let log_p = input.log().clamp_min(LOG_MIN);
        let log_1_p = (1i64 - input).log().clamp_min(LOG_MIN);
        let losses = (target - 1i64) * log_1_p - target * log_p;
        Ok(reduced(times(losses, weight), reduction_of(g, size_average, reduce, reduction)?))
    }

    /// Binary cross entropy of `sigmoid(input)`, computed from the logits without overflow, reduced.
    ///
    /// Args:
    ///     input: Logits of any shape.
    ///     target: Values between 0 and 1, of the same shape.
    ///     weight: Broadcasts to the shape of `input`.
    ///     size_average: Deprecated: see `reduction`.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    ///     pos_weight: The factor of the positive term `target * log(sigmoid(input))`.
    ///
    /// The result has the dtype of `target`, as in PyTorch.
    ///
    /// Raises:
    ///     ValueError: The shapes differ.
    ///     RuntimeError: `target` has no floating-point dtype.
    ///     NotImplementedError: `target` is of dtype bool.
    ///
    /// Example:
    ///     >>> gt.nn.functional.binary_cross_entropy_with_logits(gt.tensor([0.0]), gt.tensor([1.0]))
    ///     tensor(0.6931)
    [module("nn.functional").autocast(Autocast::Float32).wide()]
    fn binary_cross_entropy_with_logits(g, input: Expr<'g>, target: Expr<'g>, weight: Option<Expr<'g>> = None,
        size_average: Option<bool> = None, reduce: Option<bool> = None, reduction: &'g str = "mean",
        pos_weight: Option<Expr<'g>> = None) -> Result<Expr<'g>> {
        let (own, wanted) = (input.shape()?, target.shape()?);
        if own != wanted {
            return Err(OpError::value(format!(
                "Target size (gt.Size({wanted})) must be the same as input size (gt.Size({own}))"
            )));
        }
        let wanted = target.dtype()?;
        if wanted == DType::Bool {
            return Err(OpError::not_implemented(
                "binary_cross_entropy_with_logits: expected a target of a floating-point dtype, but got bool; convert it \
                 with target.to(input.dtype)",
            ));
        }
        let positive = times(-logsigmoid(g, input)?, pos_weight.map(|weight| (weight - 1i64) * target + 1i64));
        let losses = times((1i64 - target) * input + positive, weight);
        build::check_result_type(losses.dtype()?, wanted)?;
        Ok(reduced(losses.to(wanted), reduction_of(g, size_average, reduce, reduction)?))
    }

    /// Negative log-likelihood of class indices: `-weight[target] * input[target]`, reduced.
    ///
    /// Args:
    ///     input: Log probabilities; see `cross_entropy` for the shapes.
    ///     target: Class indices.
    ///     weight: A weight for each class, `(C)`.
    ///     size_average: Deprecated: see `reduction`.
    ///     ignore_index: The index of samples that are left out.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"` (divided by the sum of the samples' weights), `"sum"` or `"none"`.
    ///
    /// Raises:
    ///     IndexError: A class index is out of range; raised when the loss is fetched.
    ///
    /// Example:
    ///     >>> log_probs = gt.tensor([[0.25, 0.75]]).log()
    ///     >>> gt.nn.functional.nll_loss(log_probs, gt.tensor([1]))
    ///     tensor(0.2877)
    [module("nn.functional").autocast(Autocast::Float32)]
    fn nll_loss(g, input: Expr<'g>, target: Expr<'g>, weight: Option<Expr<'g>> = None,
        size_average: Option<bool> = None, ignore_index: i64 = IGNORED, reduce: Option<bool> = None,
        reduction: &'g str = "mean") -> Result<Expr<'g>> {
        let reduction = reduction_of(g, size_average, reduce, reduction)?;
        class_loss(g, Op::NllLoss, [input, target], weight, LossSpec { reduction, ignore_index, smoothing: 0.0 })
    }

    /// Cross entropy between `softmax(input)` and the target, reduced; also called `cross_entropy_loss`.
    ///
    /// For class indices it is `-weight[target] * log_softmax(input)[target]`; for probabilities,
    /// `-sum_c weight[c] * target[c] * log_softmax(input)[c]`.
    ///
    /// Args:
    ///     input: Logits `(C)`, `(N, C)` or `(N, C, *)`.
    ///     target: Class indices, an integer tensor of the shape of `input` without `C`; or class probabilities, a
    ///         floating tensor of the shape of `input`.
    ///     weight: A weight for each class, `(C)`.
    ///     size_average: Deprecated: see `reduction`.
    ///     ignore_index: The class index of samples that are left out.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"` (for class indices, divided by the sum of the samples' weights), `"sum"` or `"none"`.
    ///     label_smoothing: The part of the target that is spread evenly over all classes (Szegedy et al. 2016).
    ///
    /// Raises:
    ///     ValueError: The shapes do not match.
    ///     IndexError: A class index is out of range; raised when the loss is fetched.
    ///
    /// Example:
    ///     >>> logits = gt.tensor([[2.0, 0.0], [0.0, 2.0]])
    ///     >>> gt.nn.functional.cross_entropy(logits, gt.tensor([0, 1]))
    ///     tensor(0.1269)
    [module("nn.functional").aliases(&["cross_entropy_loss"]).autocast(Autocast::Float32)]
    fn cross_entropy(g, input: Expr<'g>, target: Expr<'g>, weight: Option<Expr<'g>> = None,
        size_average: Option<bool> = None, ignore_index: i64 = IGNORED, reduce: Option<bool> = None,
        reduction: &'g str = "mean", label_smoothing: f64 = 0.0) -> Result<Expr<'g>> {
        let reduction = reduction_of(g, size_average, reduce, reduction)?;
        if !target.dtype()?.is_float() {
            let spec = LossSpec { reduction, ignore_index, smoothing: label_smoothing };
            return class_loss(g, Op::CrossEntropy, [input, target], weight, spec);
        }
        let (own, wanted) = (input.sizes()?, target.sizes()?);
        if own != wanted {
            return Err(OpError::value(format!(
                "Expected floating point type for target with class probabilities to have the input's shape {own:?}, \
                 but got {wanted:?}: give int64 class indices or one probability for each class"
            )));
        }
        if !(0.0..=1.0).contains(&label_smoothing) {
            return Err(OpError::runtime(format!(
                "label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}"
            )));
        }
        let dim = i64::from(own.len() != 1);
        let classes = input.size(dim)?;
        let target = if label_smoothing == 0.0 {
            target
        } else {
            target * (1.0 - label_smoothing) + label_smoothing / classes as f64
        };
        let mut scores = input.log_softmax(dim);
        if let Some(weight) = weight {
            let mut along = vec![1; own.len()];
            along[dim as usize] = classes;
            scores = scores * weight.reshape(&along);
        }
        Ok(reduced(-(target * scores).sum(&[dim], false), reduction))
    }

    /// Cross entropy of a linear layer's logits: `cross_entropy(linear(input, linear_weight, linear_bias), target)`.
    ///
    /// Args:
    ///     input: `(N, in_features)` or `(in_features)`.
    ///     linear_weight: `(C, in_features)`, or `(C, *, in_features)` where each sample has several targets.
    ///     target: As `cross_entropy` takes it.
    ///     linear_bias: `(C)` or `(C, *)`.
    ///     weight: A weight for each class, `(C)`.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    ///     ignore_index: The class index of samples that are left out.
    ///     label_smoothing: The part of the target that is spread evenly over all classes.
    ///     options: Not supported: the logits are always computed at once.
    [module("nn.functional")]
    fn linear_cross_entropy(g, input: Expr<'g>, linear_weight: Expr<'g>, target: Expr<'g>;
        linear_bias: Option<Expr<'g>> = None, weight: Option<Expr<'g>> = None, reduction: &'g str = "mean",
        ignore_index: Option<i64> = None, label_smoothing: f64 = 0.0, options: Option<Unsupported> = None)
        -> Result<Expr<'g>> {
        if options.is_some() {
            return Err(OpError::not_implemented(
                "linear_cross_entropy: options are not there: the scores are computed whole",
            ));
        }
        let (own, weights) = (input.sizes()?, linear_weight.sizes()?);
        if !matches!(own.len(), 1 | 2) {
            return Err(OpError::runtime(format!("expected input with dimensionality 1 or 2, got {}", own.len())));
        }
        let (Some((features, outer)), true) = (weights.split_last(), weights.len() >= 2) else {
            return Err(OpError::runtime(format!(
                "expected linear_weight with dimensionality at least 2, got {}",
                weights.len()
            )));
        };
        let (lead, last) = (&own[..own.len() - 1], own[own.len() - 1]);
        if last != *features {
            return Err(OpError::runtime(format!(
                "expected equal input and linear_weight last dimensions (in_features), got {last} and {features}, \
                 respectively"
            )));
        }
        if ignore_index.is_some() && target.dtype()?.is_float() {
            return Err(OpError::runtime("ignore_index cannot be specified when target contains probabilities"));
        }
        if outer.len() > 1 && own.len() == 1 {
            return Err(OpError::runtime(format!(
                "K-dimensional loss defined by linear_weight shape {weights:?} requires batched input, \
                 (N, {features}), got unbatched input with shape {own:?}"
            )));
        }
        if let Some(bias) = linear_bias
            && bias.sizes()? != outer
        {
            return Err(OpError::runtime(format!("expected linear_bias shape {outer:?}, got {:?}", bias.sizes()?)));
        }
        let bias = linear_bias.map(|bias| bias.reshape(&[-1]));
        let mut scores = linear(g, input, linear_weight.reshape(&[-1, *features]), bias)?;
        if g.autocast().is_some() {
            scores = scores.upcast();
        }
        let scores = scores.reshape(&[lead, outer].concat());
        let ignored = ignore_index.unwrap_or(IGNORED);
        cross_entropy(g, scores, target, weight, None, ignored, None, reduction, label_smoothing)
    }

    /// Negative log-likelihood of counts under a Poisson distribution of rate `exp(input)`, reduced, up to a constant.
    ///
    /// Args:
    ///     input: The logarithm of the rate; the rate if not `log_input`.
    ///     target: Counts.
    ///     log_input: Whether `input` is a logarithm.
    ///     full: Whether to add the term `log(target!)`, by Stirling's approximation.
    ///     size_average: Deprecated: see `reduction`.
    ///     eps: Added to the rate before its logarithm.
    ///     reduce: Deprecated: see `reduction`.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    ///
    /// Example:
    ///     >>> gt.nn.functional.poisson_nll_loss(gt.tensor([0.0]), gt.tensor([2.0]))
    ///     tensor(1.)
    [module("nn.functional")]
    fn poisson_nll_loss(g, input: Expr<'g>, target: Expr<'g>, log_input: bool = true, full: bool = false,
        size_average: Option<bool> = None, eps: f64 = 1e-8, reduce: Option<bool> = None, reduction: &'g str = "mean")
        -> Result<Expr<'g>> {
        let loss = |[input, target]: [Expr<'g>; 2]| {
            let mut losses =
                if log_input { input.exp() - target * input } else { input - target * (input + eps).log() };
            if full {
                let beyond = target.gt(1i64);
                let large = beyond.where_(target, 1.0);
                let stirling = large * large.log() - large + (large * std::f64::consts::TAU).log() * 0.5;
                losses = losses + beyond.where_(stirling, 0.0);
            }
            Ok(reduced(losses, reduction_of(g, size_average, reduce, reduction)?))
        };
        // Functions of integers are float32, beside which a target of half precision counts as that.
        if input.dtype()?.is_float() { in_float32([input, target], loss) } else { loss([input, target]) }
    }

    /// Negative log-likelihood under a normal distribution, `(log(var) + (input - target)^2 / var) / 2`, reduced.
    ///
    /// Args:
    ///     input: Means.
    ///     target: Values.
    ///     var: Variances: of the shape of `input`, or with a last axis of size 1 or none.
    ///     full: Whether to add the constant `log(2 pi) / 2`.
    ///     eps: The lower bound of the variances.
    ///     reduction: `"mean"`, `"sum"` or `"none"`.
    ///
    /// Raises:
    ///     ValueError: A variance is negative, or the shapes do not match.
    ///
    /// Example:
    ///     >>> gt.nn.functional.gaussian_nll_loss(gt.tensor([1.0]), gt.tensor([3.0]), var=gt.tensor([4.0]))
    ///     tensor(1.1931)
    [module("nn.functional").wide()]
    fn gaussian_nll_loss(g, input: Expr<'g>, target: Expr<'g>, var: TensorOrNumber<'g>, full: bool = false,
        eps: f64 = 1e-6, reduction: &'g str = "mean") -> Result<Expr<'g>> {
        let own = input.sizes()?;
        let var = match var.as_number() {
            Some(number) if number.to_f64() < 0.0 => {
                return Err(OpError::value("var has negative entry/entries"));
            }
            Some(number) => g.full(&input.shape()?, number, input.dtype()?),
            None => {
                let sizes = var.sizes()?;
                let lead = &own[..own.len().saturating_sub(1)];
                if sizes == own || sizes.split_last() == Some((&1, lead)) {
                    *var
                } else if sizes == lead {
                    var.unsqueeze(-1)
                } else {
                    return Err(OpError::value("var is of incorrect size"));
                }
            }
        };
        if var.detach().lt(0.0).any(&[], false).is_true()? {
            return Err(OpError::value("var has negative entry/entries"));
        }
        // The bound changes the value alone: the gradient is that of the unbounded variance, as in PyTorch.
        let var = var.detach().lt(eps).where_(var - var.detach() + eps, var);
        let mut losses = (var.log() + (input - target).square() / var) * 0.5;
        if full {
            losses = losses + 0.5 * std::f64::consts::TAU.ln();
        }
        Ok(reduced(losses, reduction_named(reduction)?))
    }
}
