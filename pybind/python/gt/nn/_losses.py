"""Losses of numbers, probabilities and classes as functions; `gt.nn.functional` has them all.

`input` is what a model put out, `target` what it should have. `reduction` says what becomes of the losses of the
elements or samples: their `"mean"`, their `"sum"`, or `"none"`, which leaves them as they are.
"""

from __future__ import annotations

import math
import warnings

from gt import _autocast, _gt
from gt import _core as gt
from gt._gt import Tensor
from gt.nn._activations import linear, logsigmoid

# A probability of 0 has a logarithm of minus infinity; PyTorch counts it as this.
LOG_MIN = -100.0


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The losses' mean, their sum, or themselves."""
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    raise ValueError(f"{reduction} is not a valid value for reduction")


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """What PyTorch's older arguments, if given, make of the reduction."""
    if size_average is None and reduce is None:
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"{reduction} is not a valid value for reduction")
        return reduction
    chosen = "none" if reduce is False else "sum" if size_average is False else "mean"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{chosen}' instead.", stacklevel=3
    )
    return chosen


def _weighted(losses: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """`reduced`, where an element counts as much as its weight, if there are weights."""
    if weight is None:
        return reduced(losses, reduction)
    if weight.shape != losses.shape:
        raise ValueError("Weights and input must have the same size.")
    losses = losses * weight
    return losses.sum() / weight.sum() if reduction == "mean" else reduced(losses, reduction)


def _warn_of_broadcast(loss: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"{loss}: a target of size {target.shape} differs from the input's, {input.shape}: they are broadcast, "
            "which is rarely meant. Give them the same size.",
            stacklevel=3,
        )


@_autocast.float32
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The squared differences."""
    _warn_of_broadcast("mse_loss", input, target)
    difference = input - target
    return _weighted(difference * difference, weight, reduction_of(size_average, reduce, reduction))


@_autocast.float32
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The absolute differences."""
    _warn_of_broadcast("l1_loss", input, target)
    return _weighted((input - target).abs(), weight, reduction_of(size_average, reduce, reduction))


@_autocast.float32
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Differences `d` count `d² / (2 * beta)` below `beta` and `|d| - beta / 2` above."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    reduction = reduction_of(size_average, reduce, reduction)
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    _warn_of_broadcast("smooth_l1_loss", input, target)
    difference = (input - target).abs()
    small = difference < beta
    return reduced(gt.where(small, difference * difference * (0.5 / beta), difference - 0.5 * beta), reduction)


@_autocast.float32
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Differences `d` count `d² / 2` up to `delta` and `delta * (|d| - delta / 2)` above."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    _warn_of_broadcast("huber_loss", input, target)
    difference = (input - target).abs()
    small = difference <= delta
    losses = gt.where(small, difference * difference * 0.5, (difference - 0.5 * delta) * delta)
    if weight is not None and weight.shape != losses.shape:
        raise ValueError("Weights and input must have the same size.")
    # The mean is over all elements here, whatever they count: PyTorch's.
    return reduced(losses if weight is None else losses * weight, reduction)


@_autocast.float32
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """`target * (log(target) - input)`: how far log probabilities `input` are from probabilities `target`.

    With `log_target`, `target` holds logarithms too. `reduction` may also be `"batchmean"`, the sum divided by the
    number of samples: the divergence as mathematics has it.
    """
    if log_target:
        losses = target.exp() * (target - input)
    else:
        entropy = gt.where(target == 0, 1.0, target).log() * target  # 0 * log(0) is 0
        losses = entropy - target * input
    if reduction == "batchmean":
        return losses.sum() / input.shape[0] if input.ndim else losses.sum()
    return reduced(losses, reduction_of(size_average, reduce, reduction))


@_autocast.float32
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """How surprised probabilities `input` are by `target`, both between 0 and 1; `weight` multiplies the losses."""
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. "
            "Please ensure they have the same size."
        )
    yes = input.log().clamp(min=LOG_MIN)
    no = (1 - input).log().clamp(min=LOG_MIN)
    losses = (target - 1) * no - target * yes
    losses = losses if weight is None else losses * weight
    return reduced(losses, reduction_of(size_average, reduce, reduction))


@_autocast.float32
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy(sigmoid(input), target)`, without overflow; `pos_weight` multiplies what `target` adds."""
    if input.shape != target.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    surprise = -logsigmoid(input)
    if pos_weight is not None:
        surprise = surprise * ((pos_weight - 1) * target + 1)
    losses = (1 - target) * input + surprise
    losses = losses if weight is None else losses * weight
    return reduced(losses, reduction_of(size_average, reduce, reduction))


@_autocast.float32
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log probability of the right class: see `cross_entropy` for shapes."""
    return _gt.class_loss(
        input, target, weight, ignore_index, reduction_of(size_average, reduce, reduction), 0.0, False
    )


@_autocast.float32
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """How surprised a softmax over the scores `input` is by `target`. Also called `cross_entropy_loss`.

    Args:
        input: Scores (logits) `(classes)`, `(samples, classes)` or `(samples, classes, …)`.
        target: The right class of each sample, an integer tensor of the shape of `input` without its classes; or
            probabilities of the classes, a floating tensor of the shape of `input`.
        weight: What a sample of each class counts, `(classes)`; the mean is divided by what the samples count.
        size_average: PyTorch's older way to choose the reduction.
        ignore_index: A class index that marks samples which do not count.
        reduce: PyTorch's older way to choose the reduction.
        reduction: `"mean"` over the samples, `"sum"` or `"none"`.
        label_smoothing: How much of the target is spread evenly over all classes.

    Raises:
        ValueError: The sizes do not belong together.
        IndexError: A class index is out of range; raised when the loss is fetched.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if not target.dtype.is_floating_point:
        return _gt.class_loss(input, target, weight, ignore_index, reduction, label_smoothing, True)
    if input.shape != target.shape:
        raise ValueError(
            f"Expected floating point type for target with class probabilities to have the input's shape "
            f"{tuple(input.shape)}, but got {tuple(target.shape)}: give int64 class indices or one probability for "
            "each class"
        )
    if not 0 <= label_smoothing <= 1:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    dim = 0 if input.ndim == 1 else 1
    classes = input.shape[dim]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / classes
    scores = input.log_softmax(dim)
    if weight is not None:
        along = [1] * input.ndim
        along[dim] = classes
        scores = scores * weight.reshape(along)
    losses = -(target * scores).sum(dim)
    return reduced(losses, reduction)


cross_entropy_loss = cross_entropy


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: None = None,
) -> Tensor:
    """`cross_entropy` of the scores that `linear` makes of `(samples, features)`, or of one sample.

    `linear_weight` is `(classes, features)`, or `(classes, *sizes, features)` where each sample has many targets. There
    are no `options`: the scores are computed whole.
    """
    if options is not None:
        raise NotImplementedError("linear_cross_entropy: options are not there: the scores are computed whole")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}")
    *outer, features = linear_weight.shape
    if input.shape[-1] != features:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), got "
            f"{input.shape[-1]} and {features}, respectively"
        )
    if target.dtype.is_floating_point and ignore_index is not None:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    if len(outer) > 1 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    if linear_bias is not None and list(linear_bias.shape) != outer:
        raise RuntimeError(f"expected linear_bias shape {tuple(outer)}, got {tuple(linear_bias.shape)}")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    scores = linear(input, linear_weight.reshape(-1, features), bias).reshape(*input.shape[:-1], *outer)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        scores, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """How surprised a Poisson distribution of rate `exp(input)`, or `input`, is by counts.

    `full` adds Stirling's approximation of what does not depend on the input.
    """
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        large = gt.where(target > 1, target, 1.0)
        stirling = large * large.log() - large + (large * (2 * math.pi)).log() * 0.5
        losses = losses + gt.where(target > 1, stirling, 0.0)
    return reduced(losses, reduction_of(size_average, reduce, reduction))


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """How surprised normal distributions of means `input` and variances `var`, at least `eps`, are by a target."""
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = gt.full_like(input, var)
    elif var.shape != input.shape:
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif input.shape[:-1] != var.shape[:-1] or var.shape[-1] != 1:
            raise ValueError("var is of incorrect size")
    if bool((var.detach() < 0).any()):
        raise ValueError("var has negative entry/entries")
    # The bound has no slope, so that the gradient is as if there were none.
    var = gt.where(var.detach() < eps, var - var.detach() + eps, var)
    difference = input - target
    losses = (var.log() + difference * difference / var) * 0.5
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, reduction_of(None, None, reduction))
