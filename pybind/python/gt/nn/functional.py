"""Activations, `linear` and losses as functions, under PyTorch's names.

Each is a composition of tensor operations, so its gradient is theirs. `input` is what a model put out, `target` what it
should have. `reduction` says what becomes of the losses of the elements or samples: their `"mean"`, their `"sum"`, or
`"none"`, which leaves them as they are.
"""

from __future__ import annotations

import warnings

import gt
from gt._gt import Tensor

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "cross_entropy_loss",
    "dropout",
    "gelu",
    "l1_loss",
    "linear",
    "log_softmax",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "relu",
    "sigmoid",
    "softmax",
    "tanh",
]

# A probability of 0 has a logarithm of minus infinity; PyTorch counts it as this.
LOG_MIN = -100.0


def relu(input: Tensor) -> Tensor:
    """`max(x, 0)` of each element."""
    return input.relu()


def sigmoid(input: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))` of each element."""
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent of each element."""
    return input.tanh()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """`x * Phi(x)` of each element; `approximate="tanh"` is the usual approximation."""
    return input.gelu(approximate=approximate)


def softmax(input: Tensor, dim: int) -> Tensor:
    """Probabilities: positive, adding up to 1 along `dim`."""
    return input.softmax(dim)


def log_softmax(input: Tensor, dim: int) -> Tensor:
    """The logarithm of `softmax`, exact where that is small."""
    return input.log_softmax(dim)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`input @ weight.T + bias`: `(…, in)` and `(out, in)` give `(…, out)`."""
    output = input @ weight.T
    return output if bias is None else output + bias


def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Each element set to 0 with probability `p`, the others divided by `1 - p`; in evaluation, `input`."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0.0
    return gt.where(gt.rand_like(input) < p, 0.0, input * (1 / (1 - p)))


def one_hot(input: Tensor, num_classes: int) -> Tensor:
    """int64 `(…, num_classes)` with a 1 at each class index of `input`."""
    return (input.unsqueeze(-1) == gt.arange(num_classes)).long()


# Losses ---------------------------------------------------------------------------------------------------------


def _reduce(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return losses.mean()
    if reduction == "sum":
        return losses.sum()
    if reduction == "none":
        return losses
    raise ValueError(f"{reduction} is not a valid value for reduction: it is 'mean', 'sum' or 'none'")


def _warn_of_broadcast(loss: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(
            f"{loss}: a target of size {target.shape} differs from the input's, {input.shape}: they are broadcast, "
            "which is rarely meant. Give them the same size.",
            stacklevel=3,
        )


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The squared differences."""
    _warn_of_broadcast("mse_loss", input, target)
    difference = input - target
    return _reduce(difference * difference, reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The absolute differences."""
    _warn_of_broadcast("l1_loss", input, target)
    return _reduce((input - target).abs(), reduction)


def binary_cross_entropy(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """How surprised probabilities `input` are by `target`, both between 0 and 1."""
    if input.shape != target.shape:
        raise ValueError(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}) is deprecated. "
            "Please ensure they have the same size."
        )
    yes = input.log().clamp(min=LOG_MIN)
    no = (1 - input).log().clamp(min=LOG_MIN)
    return _reduce((target - 1) * no - target * yes, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
) -> Tensor:
    """`binary_cross_entropy(sigmoid(input), target)`, without overflow."""
    if input.shape != target.shape:
        raise ValueError(f"Target size ({target.shape}) must be the same as input size ({input.shape})")
    # -log(sigmoid(x)) = max(-x, 0) + log(1 + exp(-|x|))
    losses = (1 - target) * input + (-input).relu() + (-input.abs()).exp().log1p()
    return _reduce(losses, reduction)


def nll_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    ignore_index: int | None = None,
) -> Tensor:
    """Minus the log probability of the right class: see `cross_entropy_loss` for shapes."""
    dim = _class_dim(input, target)
    return _of_classes(lambda index: -_pick(input, index, dim), target, reduction, ignore_index)


def cross_entropy_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """How surprised a softmax over the scores `input` is by `target`. Also called `cross_entropy`.

    Args:
        input: Scores (logits) `(classes)`, `(samples, classes)` or `(samples, classes, …)`.
        target: The right class of each sample, an integer tensor of the shape of `input` without its classes; or
            probabilities of the classes, a floating tensor of the shape of `input`.
        reduction: `"mean"` over the samples, `"sum"` or `"none"`.
        ignore_index: A class index that marks samples which do not count.
        label_smoothing: How much of the target is spread evenly over all classes.

    Raises:
        ValueError: The sizes do not belong together.
        IndexError: A class index is out of range; raised when the loss is fetched.
    """
    dim = _class_dim(input, target)
    if target.dtype.is_floating_point:
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / input.shape[dim]
        losses = -(target * input.log_softmax(dim)).sum(dim)
        return _reduce(losses, reduction)

    # log(sum(exp(x))) - x[class], the largest score taken off so that nothing overflows.
    shifted = input - input.amax(dim, keepdim=True).detach()
    total = shifted.exp().sum(dim).log()

    def losses_at(index: Tensor) -> Tensor:
        right = _pick(shifted, index, dim)
        if label_smoothing:
            right = right * (1 - label_smoothing) + shifted.mean(dim) * label_smoothing
        return total - right

    return _of_classes(losses_at, target, reduction, ignore_index)


cross_entropy = cross_entropy_loss


def _class_dim(input: Tensor, target: Tensor) -> int:
    """The axis of the classes, once the sizes are known to belong together."""
    dim = 0 if input.ndim == 1 else 1
    sizes, wanted = tuple(input.shape), tuple(target.shape)
    if input.ndim == 0:
        raise ValueError(
            "cross entropy: expected input of shape (classes) or (samples, classes, ...), but got a scalar"
        )
    if target.dtype.is_floating_point:
        if sizes != wanted:
            raise ValueError(
                f"Expected floating point type for target with class probabilities to have the input's shape {sizes}, "
                f"but got {wanted}: give int64 class indices or one probability for each class"
            )
        return dim
    samples = sizes[:dim] + sizes[dim + 1 :]
    if samples[:1] != wanted[:1]:
        raise ValueError(
            f"Expected input batch_size ({sizes[0] if dim else 1}) to match target batch_size "
            f"({wanted[0] if wanted else 1})."
        )
    if samples != wanted:
        raise RuntimeError(f"Expected target size {list(samples)}, got {list(wanted)}")
    return dim


def _pick(scores: Tensor, index: Tensor, dim: int) -> Tensor:
    """The score of each sample's class."""
    return scores.gather(dim, index.unsqueeze(dim)).squeeze(dim)


def _of_classes(losses_at, target: Tensor, reduction: str, ignore_index: int | None) -> Tensor:
    """The losses at the class indices of `target`, reduced over those that count."""
    index = target if target.dtype == gt.int64 else target.long()
    if ignore_index is None:
        return _reduce(losses_at(index), reduction)
    counts = index != ignore_index
    losses = gt.where(counts, losses_at(gt.where(counts, index, 0)), 0.0)
    return losses.sum() / counts.sum() if reduction == "mean" else _reduce(losses, reduction)
