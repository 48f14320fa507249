"""Margin losses as modules: each calls its function in `gt.nn.functional`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt._gt import Tensor
from gt.nn import functional
from gt.nn.loss import _Loss


class _MarginLoss(_Loss):
    _margin: float = 0.0

    def __init__(
        self,
        margin: float | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = self._margin if margin is None else margin


class MarginRankingLoss(_MarginLoss):
    """Margin ranking loss: `max(-target * (input1 - input2) + margin, 0)`, reduced.

    A target of 1 wants `input1` larger than `input2`, one of -1 the opposite.

    Args:
        margin: The margin.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> gt.nn.MarginRankingLoss()(gt.tensor([2.0, 1.0]), gt.tensor([1.0, 3.0]), gt.tensor([1.0, 1.0]))
        tensor(1.)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """Cosine embedding loss: `1 - cos` where the target is 1, `max(cos - margin, 0)` where it is -1, reduced.

    Args:
        margin: The margin.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> x, y = gt.tensor([[1.0, 0.0]]), gt.tensor([[0.0, 1.0]])
        >>> gt.nn.CosineEmbeddingLoss()(x, y, gt.tensor([1.0]))
        tensor(1.)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """Hinge embedding loss: `input` where the target is 1, `max(margin - input, 0)` where it is -1, reduced.

    Args:
        margin: The margin.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> gt.nn.HingeEmbeddingLoss()(gt.tensor([0.5, 0.2]), gt.tensor([1.0, -1.0]))
        tensor(0.6500)
    """

    _margin = 1.0

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """Triplet loss: `max(d(anchor, positive) - d(anchor, negative) + margin, 0)`, reduced over the batch.

    Args:
        margin: The margin, greater than 0.
        p: The order of the norm of the distance `d`.
        eps: Added to the differences, for their gradient at 0.
        swap: Whether to use `min(d(anchor, negative), d(positive, negative))` for the negative (Balntas et al. 2016).
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> anchor, positive, negative = gt.zeros(4, 3), gt.zeros(4, 3), gt.ones(4, 3)
        >>> gt.nn.TripletMarginLoss()(anchor, positive, negative)
        tensor(0.)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        options = {"margin": self.margin, "p": self.p, "eps": self.eps, "swap": self.swap}
        return functional.triplet_margin_loss(anchor, positive, negative, reduction=self.reduction, **options)


class TripletMarginWithDistanceLoss(_Loss):
    """Triplet loss `max(d(anchor, positive) - d(anchor, negative) + margin, 0)`, reduced, for any distance `d`.

    Args:
        distance_function: The distance `d`; the Euclidean one if not given.
        margin: The margin, greater than 0.
        swap: Whether to use `min(d(anchor, negative), d(positive, negative))` for the negative (Balntas et al. 2016).
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.distance_function = distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        options: dict[str, Any] = {"distance_function": self.distance_function, "margin": self.margin}
        options |= {"swap": self.swap, "reduction": self.reduction}
        return functional.triplet_margin_with_distance_loss(anchor, positive, negative, **options)


class MultiMarginLoss(_Loss):
    """Multi-class hinge loss: `sum_{j != y} max(margin - x[y] + x[j], 0)^p / C`, reduced.

    Args:
        p: 1 or 2.
        margin: The margin.
        weight: A weight for each class, `(C)`.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.p = p
        self.margin = margin
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multi_margin_loss(input, target, self.p, self.margin, self.weight, reduction=self.reduction)


class _PlainLoss(_Loss):
    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)


class MultiLabelMarginLoss(_PlainLoss):
    """Multi-label hinge loss: `sum_{y, j} max(1 - (x[y] - x[j]), 0) / C` over labels `y` and non-labels `j`, reduced.

    The target has the shape of the input, `(N, C)` or `(C)`, and holds the labels' indices up to the first -1.

    Args:
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multilabel_margin_loss(input, target, reduction=self.reduction)


class SoftMarginLoss(_PlainLoss):
    """Logistic loss: `log(1 + exp(-target * input))` for targets 1 and -1, reduced.

    Args:
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """Binary cross entropy with logits, averaged over the classes (last axis), reduced over the samples.

    Args:
        weight: A weight for each class, `(C)`.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)
