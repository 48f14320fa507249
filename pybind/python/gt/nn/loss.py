"""The losses as modules, for who likes to keep one beside the model: each calls its function in `gt.nn.functional`."""

from __future__ import annotations

from gt._gt import Tensor
from gt.nn import functional
from gt.nn.module import Module


class _Loss(Module):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction


class MSELoss(_Loss):
    """`mse_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The squared differences, reduced."""
        return functional.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """`l1_loss`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The absolute differences, reduced."""
        return functional.l1_loss(input, target, self.reduction)


class BCELoss(_Loss):
    """`binary_cross_entropy`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The surprise of probabilities, reduced."""
        return functional.binary_cross_entropy(input, target, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """`binary_cross_entropy_with_logits`."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The surprise of scores, reduced."""
        return functional.binary_cross_entropy_with_logits(input, target, self.reduction)


class NLLLoss(_Loss):
    """`nll_loss`."""

    def __init__(self, ignore_index: int | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Minus the log probabilities of the right classes, reduced."""
        return functional.nll_loss(input, target, self.reduction, self.ignore_index)


class CrossEntropyLoss(_Loss):
    """`cross_entropy_loss`."""

    def __init__(self, ignore_index: int | None = None, reduction: str = "mean", label_smoothing: float = 0.0) -> None:
        super().__init__(reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The surprise of a softmax over scores, reduced."""
        return functional.cross_entropy_loss(input, target, self.reduction, self.ignore_index, self.label_smoothing)
