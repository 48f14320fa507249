"""Regression and classification losses as functions; `gt.nn.functional` has them all.

`input` is the model's output, `target` the desired one. `reduction` is applied to the losses of the elements or
samples:
`"mean"`, `"sum"`, or `"none"`, which returns them as they are. `size_average` and `reduce` are PyTorch's deprecated
names for the reduction.
"""

from __future__ import annotations

import math
import warnings

from gt import _autocast, _gt
from gt import _core as gt
from gt._gt import Tensor
from gt.nn._activations import linear, logsigmoid

# The lower bound of log probabilities in `binary_cross_entropy`, as in PyTorch: log(0) is minus infinity.
LOG_MIN = -100.0


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The losses reduced to their mean or sum, or as they are."""
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    raise ValueError(f"{reduction} is not a valid value for reduction")


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction, with PyTorch's deprecated arguments taken into account if they are given."""
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
    """The losses multiplied by the weights and reduced; a mean is divided by the sum of the weights."""
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
    """Mean squared error: `(input - target)^2`, reduced.

    Args:
        input: Predictions of any shape.
        target: Values of the same shape.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        weight: A weight for each element.

    Example:
        >>> gt.nn.functional.mse_loss(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 4.0]))
        tensor(2.)
    """
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
    """Mean absolute error: `|input - target|`, reduced.

    Args:
        input: Predictions of any shape.
        target: Values of the same shape.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        weight: A weight for each element.

    Example:
        >>> gt.nn.functional.l1_loss(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 4.0]))
        tensor(1.)
    """
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
    """Smooth L1 loss: `d^2 / (2 beta)` if `|d| < beta`, else `|d| - beta / 2`; d = input - target (Girshick 2015).

    Args:
        input: Predictions of any shape.
        target: Values of the same shape.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        beta: Where the quadratic part ends; 0 for the L1 loss.

    Example:
        >>> gt.nn.functional.smooth_l1_loss(gt.tensor([0.0, 0.0]), gt.tensor([1.0, 3.0]), reduction="none")
        tensor([0.5000, 2.5000])
    """
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
    """Huber loss: `d^2 / 2` if `|d| <= delta`, else `delta (|d| - delta / 2)`; d = input - target (Huber 1964).

    Args:
        input: Predictions of any shape.
        target: Values of the same shape.
        reduction: `"mean"`, `"sum"` or `"none"`.
        delta: Where the quadratic part ends.
        weight: A weight for each element.

    Example:
        >>> gt.nn.functional.huber_loss(gt.tensor([0.0, 0.0]), gt.tensor([1.0, 3.0]), reduction="none")
        tensor([0.5000, 2.5000])
    """
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    _warn_of_broadcast("huber_loss", input, target)
    difference = (input - target).abs()
    small = difference <= delta
    losses = gt.where(small, difference * difference * 0.5, (difference - 0.5 * delta) * delta)
    if weight is not None and weight.shape != losses.shape:
        raise ValueError("Weights and input must have the same size.")
    # As in PyTorch, the mean is divided by the number of elements, not by the sum of the weights.
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
    """Pointwise Kullback-Leibler divergence `target * (log(target) - input)`, reduced.

    Args:
        input: Log probabilities.
        target: Probabilities, or their logarithms if `log_target`.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"batchmean"` divides the sum by the batch size, which is the divergence's definition; `"mean"`
            divides it by the number of elements; or `"sum"`, or `"none"`.
        log_target: Whether `target` holds logarithms.

    Example:
        >>> p = gt.tensor([[0.5, 0.5]])
        >>> gt.nn.functional.kl_div(p.log(), p, reduction="batchmean")
        tensor(0.)
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
    """Binary cross entropy: `-weight * (target * log(input) + (1 - target) * log(1 - input))`, reduced.

    Args:
        input: Probabilities of any shape.
        target: Values between 0 and 1, of the same shape.
        weight: Broadcasts to the shape of `input`.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: The shapes differ.
    """
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. "
            "Please ensure they have the same size."
        )
    log_p = input.log().clamp(min=LOG_MIN)
    log_1_p = (1 - input).log().clamp(min=LOG_MIN)
    losses = (target - 1) * log_1_p - target * log_p
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
    """Binary cross entropy of `sigmoid(input)`, computed from the logits without overflow, reduced.

    Args:
        input: Logits of any shape.
        target: Values between 0 and 1, of the same shape.
        weight: Broadcasts to the shape of `input`.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        pos_weight: The factor of the positive term `target * log(sigmoid(input))`.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> gt.nn.functional.binary_cross_entropy_with_logits(gt.tensor([0.0]), gt.tensor([1.0]))
        tensor(0.6931)
    """
    if input.shape != target.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    negative_log_p = -logsigmoid(input)
    if pos_weight is not None:
        negative_log_p = negative_log_p * ((pos_weight - 1) * target + 1)
    losses = (1 - target) * input + negative_log_p
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
    """Negative log-likelihood of class indices: `-weight[target] * input[target]`, reduced.

    Args:
        input: Log probabilities; see `cross_entropy` for the shapes.
        target: Class indices.
        weight: A weight for each class, `(C)`.
        size_average: Deprecated: see `reduction`.
        ignore_index: The index of samples that are left out.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"` (divided by the sum of the samples' weights), `"sum"` or `"none"`.

    Raises:
        IndexError: A class index is out of range; raised when the loss is fetched.

    Example:
        >>> log_probs = gt.tensor([[0.25, 0.75]]).log()
        >>> gt.nn.functional.nll_loss(log_probs, gt.tensor([1]))
        tensor(0.2877)
    """
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
    """Cross entropy between `softmax(input)` and the target, reduced; also called `cross_entropy_loss`.

    For class indices it is `-weight[target] * log_softmax(input)[target]`; for probabilities,
    `-sum_c weight[c] * target[c] * log_softmax(input)[c]`.

    Args:
        input: Logits `(C)`, `(N, C)` or `(N, C, *)`.
        target: Class indices, an integer tensor of the shape of `input` without `C`; or class probabilities, a floating
            tensor of the shape of `input`.
        weight: A weight for each class, `(C)`.
        size_average: Deprecated: see `reduction`.
        ignore_index: The class index of samples that are left out.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"` (for class indices, divided by the sum of the samples' weights), `"sum"` or `"none"`.
        label_smoothing: The part of the target that is spread evenly over all classes (Szegedy et al. 2016).

    Raises:
        ValueError: The shapes do not match.
        IndexError: A class index is out of range; raised when the loss is fetched.

    Example:
        >>> logits = gt.tensor([[2.0, 0.0], [0.0, 2.0]])
        >>> gt.nn.functional.cross_entropy(logits, gt.tensor([0, 1]))
        tensor(0.1269)
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
    """Cross entropy of a linear layer's logits: `cross_entropy(linear(input, linear_weight, linear_bias), target)`.

    Args:
        input: `(N, in_features)` or `(in_features)`.
        linear_weight: `(C, in_features)`, or `(C, *, in_features)` where each sample has several targets.
        target: As `cross_entropy` takes it.
        linear_bias: `(C)` or `(C, *)`.
        weight: A weight for each class, `(C)`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        ignore_index: The class index of samples that are left out.
        label_smoothing: The part of the target that is spread evenly over all classes.
        options: Not supported: the logits are always computed at once.
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
    """Negative log-likelihood of counts under a Poisson distribution of rate `exp(input)`, reduced, up to a constant.

    Args:
        input: The logarithm of the rate; the rate if not `log_input`.
        target: Counts.
        log_input: Whether `input` is a logarithm.
        full: Whether to add the term `log(target!)`, by Stirling's approximation.
        size_average: Deprecated: see `reduction`.
        eps: Added to the rate before its logarithm.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> gt.nn.functional.poisson_nll_loss(gt.tensor([0.0]), gt.tensor([2.0]))
        tensor(1.)
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
    """Negative log-likelihood under a normal distribution, `(log(var) + (input - target)^2 / var) / 2`, reduced.

    Args:
        input: Means.
        target: Values.
        var: Variances: of the shape of `input`, or with a last axis of size 1 or none.
        full: Whether to add the constant `log(2 pi) / 2`.
        eps: The lower bound of the variances.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: A variance is negative, or the shapes do not match.

    Example:
        >>> gt.nn.functional.gaussian_nll_loss(gt.tensor([1.0]), gt.tensor([3.0]), var=gt.tensor([4.0]))
        tensor(1.1931)
    """
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
    # The bound changes the value alone: the gradient is that of the unbounded variance, as in PyTorch.
    var = gt.where(var.detach() < eps, var - var.detach() + eps, var)
    difference = input - target
    losses = (var.log() + difference * difference / var) * 0.5
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced(losses, reduction_of(None, None, reduction))
