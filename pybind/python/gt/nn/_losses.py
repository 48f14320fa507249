"""Reductions of losses, and the loss that calls a Python function: the other losses are declared in Rust."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from gt import _core as gt
from gt import _functions
from gt._gt import Tensor


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
    distance = distance_function or _functions.MODULES["nn.functional"]["pairwise_distance"]
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = gt.minimum(far, distance(positive, negative))
    return reduced((near - far + margin).clamp(min=0), reduction)
