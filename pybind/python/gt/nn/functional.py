"""Activations, `linear` and losses as functions, under PyTorch's names.

Each is a composition of tensor operations, so its gradient is theirs. `input` is what a model put out, `target` what it
should have. `reduction` says what becomes of the losses of the elements or samples: their `"mean"`, their `"sum"`, or
`"none"`, which leaves them as they are.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import gt
from gt import _absent, _autocast, _gt
from gt._autograd import no_grad
from gt._composites.distances import cosine_similarity, pdist
from gt._gt import Tensor
from gt.nn._activations import (
    bilinear,
    celu,
    celu_,
    elu,
    elu_,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    logsigmoid,
    mish,
    normalize,
    pairwise_distance,
    prelu,
    relu6,
    rrelu,
    rrelu_,
    selu,
    selu_,
    silu,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
    threshold_,
)
from gt.nn._channels import (
    alpha_dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
    group_norm,
    instance_norm,
    local_response_norm,
)
from gt.nn._convolutions import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from gt.nn._images import channel_shuffle, pad, pixel_shuffle, pixel_unshuffle
from gt.nn._pools import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from gt.nn._resizing import interpolate, upsample, upsample_bilinear, upsample_nearest
from gt.nn._sampling import affine_grid, grid_sample
from gt.nn._windows import fold, unfold

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "cross_entropy_loss",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

__getattr__ = _absent.getter(__name__)


# A probability of 0 has a logarithm of minus infinity; PyTorch counts it as this.
LOG_MIN = -100.0


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """`max(x, 0)` of each element."""
    return input.relu_() if inplace else input.relu()


def relu_(input: Tensor) -> Tensor:
    """`relu`, written over the input."""
    return input.relu_()


def sigmoid(input: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))` of each element."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent of each element."""
    return input.tanh()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """`x * Phi(x)` of each element; `approximate="tanh"` is the usual approximation."""
    return input.gelu(approximate=approximate)


def _implicit_dim(name: str, rank: int) -> int:
    """PyTorch's choice of an axis that was not named."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if rank in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: gt.dtype | None = None) -> Tensor:
    """Probabilities: positive, adding up to 1 along `dim`; computed in `dtype` if given."""
    return input.softmax(_implicit_dim("softmax", input.ndim) if dim is None else dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: gt.dtype | None = None) -> Tensor:
    """`softmax(-input)`: the smallest gets most."""
    return (-input).softmax(_implicit_dim("softmin", input.ndim) if dim is None else dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: gt.dtype | None = None) -> Tensor:
    """The logarithm of `softmax`, exact where that is small; computed in `dtype` if given."""
    return input.log_softmax(_implicit_dim("log_softmax", input.ndim) if dim is None else dim, dtype=dtype)


@_autocast.lower
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`: `(…, in)` and `(out, in)` give `(…, out)`."""
    output = input @ weight.T
    return output if bias is None else output + bias


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element set to 0 with probability `p`, the others divided by `1 - p`; in evaluation, `input`."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    dropped = input * 0.0 if p == 1 else gt.where(gt.rand_like(input) < p, 0.0, input * (1 / (1 - p)))
    return input._rebind(dropped) if inplace else dropped


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 `(…, num_classes)` with a 1 at each class index of `input`; -1 counts up to the largest, which waits."""
    if num_classes < 0:
        if input.numel() == 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        num_classes = int(input.max()) + 1
    return (input.unsqueeze(-1) == gt.arange(num_classes)).long()


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Row `i` of `weight`, `(rows, features)`, for each index `i` of `input`: `(…)` gives `(…, features)`.

    Args:
        input: Integers of any shape, from 0 to `rows - 1`.
        weight: The rows.
        padding_idx: A row that gets no gradient.
        max_norm: Rows that are looked up are first scaled down to this norm, in place.
        norm_type: Which norm.
        scale_grad_by_freq: Whether a row's gradient is the mean over its appearances in `input`, not their sum.
        sparse: Not there: gradients are dense.

    Raises:
        IndexError: An index is out of range; raised when the result is fetched.
    """
    if sparse:
        raise NotImplementedError("embedding: sparse=True is not there: gradients are dense")
    if max_norm is not None:
        with no_grad():
            found = gt.zeros(weight.shape[0], 1, dtype=gt.bool)
            found = found.index_fill(0, input.reshape(-1).long(), True)
            norms = gt.norm(weight, norm_type, 1, keepdim=True)
            small = weight * (max_norm / (norms + 1e-7))
            weight.copy_(gt.where(found & (norms > max_norm), small, weight))
    if input.dtype.is_floating_point or input.dtype == gt.bool:
        raise RuntimeError(f"embedding: expected indices of dtype int32 or int64, but got {input.dtype}")
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, but got shape {tuple(weight.shape)}")
    features = weight.shape[1]
    index = input.long()
    rows = weight.gather(0, index.reshape(-1, 1).expand(input.numel(), features))
    rows = rows.reshape(*input.shape, features)
    if scale_grad_by_freq and rows.requires_grad:
        often = gt.bincount(index.reshape(-1), minlength=weight.shape[0])[index].unsqueeze(-1)
        rows.register_hook(lambda gradient: gradient / often)
    if padding_idx is None:
        return rows
    if not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return gt.where((index == padding_idx % weight.shape[0]).unsqueeze(-1), rows.detach(), rows)


# Normalization --------------------------------------------------------------------------------------------------


def _wide(input: Tensor) -> Tensor:
    """Half precision is too narrow for sums of squares."""
    return input.float() if input.dtype in (gt.float16, gt.bfloat16) else input


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 over the last axes, those of `normalized_shape`; then `* weight + bias`."""
    return _gt.norm(input, normalized_shape, weight, bias, eps, True)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """A mean square of 1 over the last axes, those of `normalized_shape`; then `* weight`.

    `eps` is added to the mean square; if not given it is what the dtype resolves, half precisions as float32.
    """
    if eps is None:
        eps = 2.0**-52 if input.dtype == gt.float64 else 2.0**-23
    return _gt.norm(input, normalized_shape, weight, None, eps, False)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 of each channel, axis 1 of `(samples, channels, …)`; then `* weight + bias`.

    In training by the mean and variance of the samples, which the running ones, given, take up in place by a share of
    `momentum`; otherwise by the running ones.
    """
    if not training and (running_mean is None or running_var is None):
        raise ValueError("Expected running_mean and running_var to be defined when training=False")
    if input.numel() == 0:
        scaled = input.clone() if weight is None else input * weight[0]
        return scaled if bias is None else scaled + bias[0]
    axes = tuple(axis for axis in range(input.ndim) if axis != 1)
    shape = [1] * input.ndim
    shape[1] = input.shape[1]
    wide = _wide(input)
    if training:
        count = input.numel() // input.shape[1]
        if count == 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size {list(input.shape)}"
            )
        mean = wide.mean(axes)
        centred = wide - mean.reshape(shape)
        variance = (centred * centred).mean(axes)
        with no_grad():
            if running_mean is not None:
                running_mean.copy_(running_mean * (1 - momentum) + mean.detach() * momentum)
            if running_var is not None:
                # Of all samples there are, not of these alone: divided by one less.
                unbiased = variance.detach() * (count / (count - 1))
                running_var.copy_(running_var * (1 - momentum) + unbiased * momentum)
    else:
        variance = running_var
        centred = wide - running_mean.reshape(shape)
    normal = (centred * (variance + eps).rsqrt().reshape(shape)).to(input.dtype)
    if weight is not None:
        normal = normal * weight.reshape(shape)
    return normal if bias is None else normal + bias.reshape(shape)


# Attention ------------------------------------------------------------------------------------------------------


@_autocast.lower
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`softmax(query @ key.mT * scale + mask) @ value`.

    Args:
        query: `(…, targets, features)`.
        key: `(…, sources, features)`.
        value: `(…, sources, out)`.
        attn_mask: Broadcasts to `(…, targets, sources)`: a bool tensor, true where a source is attended to, or a
            floating one that is added to the scores. A target that may attend to nothing gets zeros.
        dropout_p: The probability of dropping a weight, whatever the mode of a module.
        is_causal: Target `i` attends to sources `0` to `i` alone.
        scale: What the scores are multiplied by; 1/√features if not given.
        enable_gqa: Each head of `key` and `value`, their third axis from the right, serves several of `query`.

    Returns:
        `(…, targets, out)`.
    """
    if is_causal and attn_mask is not None:
        raise RuntimeError("Explicit attn_mask should not be set when is_causal=True")
    if enable_gqa:
        key, value = _heads_repeated(query, key), _heads_repeated(query, value)
    if not 0 < dropout_p <= 1:
        if dropout_p:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
        return _gt.attention(query, key, value, attn_mask, is_causal, scale)
    # Weights that are dropped have to be there first.
    scores = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = gt.arange(scores.shape[-2]).unsqueeze(1) >= gt.arange(scores.shape[-1])
    if attn_mask is None:
        return dropout(scores.softmax(-1), dropout_p) @ value
    if attn_mask.dtype == gt.bool:
        scores = gt.where(attn_mask, scores, -math.inf)
    else:
        scores = scores + attn_mask.to(scores.dtype)
    blind = (scores.detach() == -math.inf).all(-1, keepdim=True)
    weights = gt.where(blind, 0.0, gt.where(blind, 0.0, scores).softmax(-1))
    return dropout(weights, dropout_p) @ value


def _heads_repeated(query: Tensor, of: Tensor) -> Tensor:
    """`of` with as many heads as `query`, each repeated for as many neighbours."""
    wanted, heads = query.shape[-3], of.shape[-3]
    if heads == wanted:
        return of
    if heads == 0 or wanted % heads:
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query when enable_gqa=True, "
            f"but got {heads} and {wanted}"
        )
    *lead, _, length, features = of.shape
    spread = of.unsqueeze(-3).expand(*lead, heads, wanted // heads, length, features)
    return spread.reshape(*lead, wanted, length, features)


# Losses ---------------------------------------------------------------------------------------------------------


def _reduce(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    raise ValueError(f"{reduction} is not a valid value for reduction")


def _warn_of_broadcast(loss: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"{loss}: a target of size {target.shape} differs from the input's, {input.shape}: they are broadcast, "
            "which is rarely meant. Give them the same size.",
            stacklevel=3,
        )


@_autocast.float32
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The squared differences."""
    _warn_of_broadcast("mse_loss", input, target)
    difference = input - target
    return _reduce(difference * difference, reduction)


@_autocast.float32
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The absolute differences."""
    _warn_of_broadcast("l1_loss", input, target)
    return _reduce((input - target).abs(), reduction)


@_autocast.float32
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Differences `d` count `d² / (2 * beta)` below `beta` and `|d| - beta / 2` above."""
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    if beta == 0:
        return l1_loss(input, target, reduction)
    _warn_of_broadcast("smooth_l1_loss", input, target)
    difference = (input - target).abs()
    small = difference < beta
    return _reduce(gt.where(small, difference * difference * (0.5 / beta), difference - 0.5 * beta), reduction)


@_autocast.float32
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Differences `d` count `d² / 2` up to `delta` and `delta * (|d| - delta / 2)` above."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    _warn_of_broadcast("huber_loss", input, target)
    difference = (input - target).abs()
    small = difference <= delta
    return _reduce(gt.where(small, difference * difference * 0.5, (difference - 0.5 * delta) * delta), reduction)


@_autocast.float32
def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """`target * (log(target) - input)`: how far log probabilities `input` are from probabilities `target`.

    With `log_target`, `target` holds logarithms too. `reduction` may also be `"batchmean"`, the sum divided by the
    number of samples: the divergence as mathematics has it.
    """
    if log_target:
        losses = target.exp() * (target - input)
    else:
        some = target > 0
        entropy = gt.where(some, target, 1.0).log() * target  # 0 * log(0) is 0
        losses = entropy - target * input
    if reduction == "batchmean":
        return losses.sum() / input.shape[0] if input.ndim else losses.sum()
    return _reduce(losses, reduction)


@_autocast.float32
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
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
    return _reduce(losses if weight is None else losses * weight, reduction)


@_autocast.float32
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
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
    return _reduce(losses if weight is None else losses * weight, reduction)


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
    return _gt.class_loss(input, target, weight, ignore_index, _reduction(size_average, reduce, reduction), 0.0, False)


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
    reduction = _reduction(size_average, reduce, reduction)
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
    return _reduce(losses, reduction)


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


def _reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
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


# They are built on what is above.
from gt.nn._bags import embedding_bag  # noqa: E402
from gt.nn._ctc import ctc_loss  # noqa: E402
from gt.nn._losses import (  # noqa: E402
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
