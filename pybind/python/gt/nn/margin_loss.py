"""Losses by margins, of counts and of triples, as modules: each calls its function in `gt.nn.functional`."""

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
    """`margin_ranking_loss`."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """`cosine_embedding_loss`."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functional.cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """`hinge_embedding_loss`."""

    _margin = 1.0

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """`triplet_margin_loss`."""

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
    """`triplet_margin_with_distance_loss`."""

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
    """`multi_margin_loss`."""

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
    """`multilabel_margin_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.multilabel_margin_loss(input, target, reduction=self.reduction)


class SoftMarginLoss(_PlainLoss):
    """`soft_margin_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """`multilabel_soft_margin_loss`."""

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
