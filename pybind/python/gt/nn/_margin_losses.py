"""Margin losses as functions: hinge, ranking, triplet and multi-class margins; `gt.nn.functional` has them."""

from __future__ import annotations

from collections.abc import Callable

from gt import _core as gt
from gt._gt import Tensor
from gt.nn._activations import logsigmoid, pairwise_distance
from gt.nn._losses import reduced, reduction_of


def _reduced(losses: Tensor, reduction: str, size_average: bool | None = None, reduce: bool | None = None) -> Tensor:
    return reduced(losses, reduction_of(size_average, reduce, reduction))


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Margin ranking loss: `max(-target * (input1 - input2) + margin, 0)`, reduced.

    A target of 1 wants `input1` larger than `input2`, one of -1 the opposite.

    Example:
        >>> x, y = gt.tensor([2.0, 1.0]), gt.tensor([1.0, 3.0])
        >>> gt.nn.functional.margin_ranking_loss(x, y, target=gt.tensor([1.0, 1.0]))
        tensor(1.)
    """
    if input1.ndim != input2.ndim or input1.ndim != target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{input1.shape}, input2: {input2.shape}, target: {target.shape} "
        )
    return _reduced((target * (input2 - input1) + margin).clamp(min=0), reduction, size_average, reduce)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge embedding loss: `input` where the target is 1, `max(margin - input, 0)` where it is -1, reduced.

    `input` is usually a distance between two embeddings.

    Example:
        >>> gt.nn.functional.hinge_embedding_loss(gt.tensor([0.5, 0.2]), gt.tensor([1.0, -1.0]))
        tensor(0.6500)
    """
    near = gt.where(target == -1, 0.0, input)
    far = gt.where(target == 1, 0.0, (margin - input).clamp(min=0))
    return _reduced(near + far, reduction, size_average, reduce)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Cosine embedding loss: `1 - cos` where the target is 1, `max(cos - margin, 0)` where it is -1, reduced.

    `cos` is the cosine similarity of `input1` and `input2` along the last axis.

    Shape:
        `(N, D)` and a target `(N)`, or `(D)` and a scalar target.

    Example:
        >>> a, b = gt.tensor([[1.0, 0.0]]), gt.tensor([[0.0, 1.0]])
        >>> gt.nn.functional.cosine_embedding_loss(a, b, gt.tensor([1]))
        tensor(1.)
    """
    if not (target.ndim == 0 and input1.ndim == 1) and not (target.ndim == 1 and input1.ndim == 2):
        raise RuntimeError(
            f"{target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs "
            f"with sizes {list(input1.shape)} and {list(input2.shape)}."
        )
    epsilon = 1e-12
    squares = [(x * x).sum(-1) + epsilon for x in (input1, input2)]
    cosine = (input1 * input2).sum(-1) / (squares[0] * squares[1]).sqrt()
    losses = gt.where(target == 1, 1 - cosine, 0.0) + gt.where(target == -1, (cosine - margin).clamp(min=0), 0.0)
    return _reduced(losses, reduction, size_average, reduce)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Triplet loss `max(d(anchor, positive) - d(anchor, negative) + margin, 0)`, reduced, for any distance `d`.

    Args:
        anchor: Anchor samples.
        positive: Samples that should be near the anchors.
        negative: Samples that should be far from the anchors.
        distance_function: The distance `d`; the Euclidean one if not given.
        margin: The margin, greater than 0.
        swap: Whether to use `min(d(anchor, negative), d(positive, negative))` for the negative (Balntas et al. 2016).
        reduction: `"mean"`, `"sum"` or `"none"`.
    """
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = gt.minimum(far, distance(positive, negative))
    return _reduced((near - far + margin).clamp(min=0), reduction)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Triplet loss `max(d(anchor, positive) - d(anchor, negative) + margin, 0)`, reduced.

    `d` is the `p`-norm's distance.

    See `triplet_margin_with_distance_loss` for the arguments.

    Example:
        >>> gt.nn.functional.triplet_margin_loss(gt.zeros(4, 3), gt.zeros(4, 3), gt.ones(4, 3))
        tensor(0.)
    """
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda a, b: pairwise_distance(a, b, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction_of(size_average, reduce, reduction),
    )


def _as_batch(input: Tensor) -> Tensor:
    """Logits as a batch `(N, C)`; a single sample becomes a batch of one."""
    if input.ndim > 2 or 0 in input.shape[-1:]:
        raise RuntimeError(
            f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}"
        )
    return input if input.ndim == 2 else input.reshape(1, input.numel())


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Multi-class hinge loss: `sum_{j != y} max(margin - x[y] + x[j], 0)^p / C`, reduced.

    Args:
        input: Scores `x`, `(N, C)` or `(C)`.
        target: Class indices `y`, `(N)` or a scalar.
        p: 1 or 2.
        margin: The margin.
        weight: A weight for each class, `(C)`.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    scores = _as_batch(input)
    index = target.reshape(-1)
    if target.ndim > 1 or index.shape != scores.shape[:1]:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
            f"size). Expected target size {list(scores.shape[:1])}, but got {list(target.shape)}. Input has shape "
            f"{list(input.shape)}."
        )
    if weight is not None and weight.shape != scores.shape[1:]:
        raise RuntimeError(f"inconsistent weight size, expected {scores.shape[1]} but got {list(weight.shape)}")
    right = scores.gather(1, index.unsqueeze(1))
    missing = (scores - right + margin).relu()
    missing = missing if p == 1 else missing * missing
    if weight is not None:
        missing = missing * weight.gather(0, index).unsqueeze(1)
    others = gt.arange(scores.shape[1]) != index.unsqueeze(1)
    losses = gt.where(others, missing, 0.0).sum(1) / scores.shape[1]
    return _reduced(losses.reshape(target.shape), reduction)


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Multi-label hinge loss: `sum_{y, j} max(1 - (x[y] - x[j]), 0) / C` over labels `y` and non-labels `j`, reduced.

    Args:
        input: Scores `x`, `(N, C)` or `(C)`.
        target: The labels of each sample, of the same shape: class indices up to the first -1.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    scores = _as_batch(input)
    if target.shape != input.shape and not (max(target.ndim, input.ndim) == 1 == input.numel() == target.numel()):
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    labels = target.reshape(scores.shape)
    counts = (labels < 0).cumsum(1) == 0
    index = gt.where(counts, labels, 0)
    right = gt.zeros(*scores.shape, dtype=gt.int64).scatter_add(1, index, counts.long()) > 0
    missing = (scores.unsqueeze(1) - scores.gather(1, index).unsqueeze(2) + 1).relu()
    matters = counts.unsqueeze(2) & right.logical_not().unsqueeze(1)
    losses = gt.where(matters, missing, 0.0).sum((1, 2)) / scores.shape[1]
    return _reduced(losses.reshape(input.shape[:-1]), reduction)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Binary cross entropy with logits, averaged over the classes (last axis), reduced over the samples."""
    losses = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    losses = (losses if weight is None else losses * weight).sum(-1) / input.shape[-1]
    return _reduced(losses, reduction, size_average, reduce)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Logistic loss: `log(1 + exp(-target * input))` for targets 1 and -1, reduced."""
    return _reduced(-logsigmoid(target * input), reduction, size_average, reduce)
