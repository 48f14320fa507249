"""Losses by margins, of counts and of triples, as functions; `gt.nn.functional` has them all."""

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
    """What `input1` lacks to be above `input2` by a margin, where the target is 1; below it, where it is -1."""
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
    """A distance where the target is 1; what it lacks of a margin where it is -1."""
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
    """1 minus the cosine between vectors where the target is 1; the cosine above a margin where it is -1."""
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
    """What an anchor lacks to be nearer to a positive sample than to a negative one by a margin.

    With `swap`, the negative sample counts as near as it is to the nearer of the other two.
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
    """`triplet_margin_with_distance_loss` by the `p`-norm."""
    return triplet_margin_with_distance_loss(
        anchor,
        positive,
        negative,
        distance_function=lambda a, b: pairwise_distance(a, b, p, eps),
        margin=margin,
        swap=swap,
        reduction=reduction_of(size_average, reduce, reduction),
    )


def _rows(input: Tensor) -> Tensor:
    """Scores as `(samples, classes)`, of which there may be one each."""
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
    """What the score of the right class lacks to be above those of the others by a margin, to the power of `p`."""
    reduction = reduction_of(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    scores = _rows(input)
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
    """What the scores of the right classes, those before the first -1, lack to be above the others' by 1."""
    reduction = reduction_of(size_average, reduce, reduction)
    scores = _rows(input)
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
    """`binary_cross_entropy_with_logits` over the classes, the last axis."""
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
    """`log(1 + exp(-target * input))`, the target being 1 or -1."""
    return _reduced(-logsigmoid(target * input), reduction, size_average, reduce)
