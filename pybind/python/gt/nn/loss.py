"""Losses as modules: each is declared by its options and calls its function in `gt.nn.functional`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from gt import _core as gt
from gt._deprecated import deprecated
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn.function_module import FunctionModule
from gt.nn.layers import Linear

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss",
    "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "LinearCrossEntropyLoss", "MSELoss",
    "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss",
    "NLLLoss2d", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _Loss(FunctionModule):
    """The base of losses, whose deprecated options `size_average` and `reduce` are ways to say `reduction`."""

    _inputs = ("input", "target")
    _shown = ()
    _kept = frozenset({"size_average", "reduce"})

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction
        if size_average is not None or reduce is not None:
            self.reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
            warnings.warn(
                f"size_average and reduce args will be deprecated, please use reduction='{self.reduction}' instead.",
                stacklevel=4,
            )

    def _set(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", **options: Any
    ) -> None:
        _Loss.__init__(self, size_average, reduce, reduction)
        for name, value in options.items():
            if name in ("weight", "pos_weight"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)


class MSELoss(_Loss, function="mse_loss"):
    """Mean squared error: `(input - target)^2`, reduced.

    Args:
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Shape:
        Two tensors of the same shape to a scalar, or to that shape if `reduction="none"`.

    Example:
        >>> gt.nn.MSELoss()(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 4.0]))
        tensor(2.)
    """

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class L1Loss(_Loss, function="l1_loss"):
    """Mean absolute error: `|input - target|`, reduced.

    Args:
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> gt.nn.L1Loss()(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 4.0]))
        tensor(1.)
    """

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class SmoothL1Loss(_Loss, function="smooth_l1_loss"):
    """Smooth L1 loss: `d^2 / (2 beta)` if `|d| < beta`, else `|d| - beta / 2`; d = input - target (Girshick 2015).

    Args:
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        beta: Where the quadratic part ends.

    Example:
        >>> gt.nn.SmoothL1Loss()(gt.tensor([0.0, 0.0]), gt.tensor([1.0, 3.0]))
        tensor(1.5000)
    """

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"
    beta: float = 1.0


class HuberLoss(_Loss, function="huber_loss"):
    """Huber loss: `d^2 / 2` if `|d| <= delta`, else `delta (|d| - delta / 2)`; d = input - target (Huber 1964).

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.
        delta: Where the quadratic part ends.

    Example:
        >>> gt.nn.HuberLoss()(gt.tensor([0.0, 0.0]), gt.tensor([1.0, 3.0]))
        tensor(1.5000)
    """

    reduction: str = "mean"
    delta: float = 1.0


class KLDivLoss(_Loss, function="kl_div"):
    """Pointwise Kullback-Leibler divergence `target * (log(target) - input)`, reduced.

    Args:
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"batchmean"` for the divergence's definition, `"mean"`, `"sum"` or `"none"`.
        log_target: Whether the target holds log probabilities.

    Shape:
        Log probabilities and a target of the same shape.

    Example:
        >>> p, q = gt.tensor([[0.5, 0.5]]), gt.tensor([[0.25, 0.75]])
        >>> gt.nn.KLDivLoss(reduction="batchmean")(q.log(), p)
        tensor(0.1438)
    """

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"
    log_target: bool = False


class _WeightedLoss(_Loss):
    """A loss with weights, which are a buffer."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class BCELoss(_WeightedLoss, function="binary_cross_entropy"):
    """Binary cross entropy: `-weight * (target * log(input) + (1 - target) * log(1 - input))`, reduced.

    `BCEWithLogitsLoss` is more stable numerically.

    Args:
        weight: Broadcasts to the shape of the input.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> gt.nn.BCELoss()(gt.tensor([0.5]), gt.tensor([1.0]))
        tensor(0.6931)
    """

    weight: Tensor | None = None
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class BCEWithLogitsLoss(_Loss, function="binary_cross_entropy_with_logits"):
    """Binary cross entropy of `sigmoid(input)`, computed from the logits without overflow.

    Args:
        weight: Broadcasts to the shape of the input.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
        pos_weight: The factor of the positive term: above 1 it favours recall, below 1 precision.

    Shape:
        Logits and a target between 0 and 1, of the same shape.

    Example:
        >>> gt.nn.BCEWithLogitsLoss()(gt.tensor([0.0]), gt.tensor([1.0]))
        tensor(0.6931)
    """

    weight: Tensor | None = None
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"
    pos_weight: Tensor | None = None


class NLLLoss(_WeightedLoss, function="nll_loss"):
    """Negative log-likelihood of class indices: `-weight[target] * input[target]`, reduced.

    Args:
        weight: A weight for each class, `(C)`.
        size_average: Deprecated: see `reduction`.
        ignore_index: The index of samples that are left out.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"` (divided by the sum of the samples' weights), `"sum"` or `"none"`.

    Shape:
        Log probabilities `(C)`, `(N, C)` or `(N, C, *)`, and indices of that shape without `C`.

    Example:
        >>> log_probs = gt.tensor([[0.25, 0.75]]).log()
        >>> gt.nn.NLLLoss()(log_probs, gt.tensor([1]))
        tensor(0.2877)
    """

    weight: Tensor | None = None
    size_average: bool | None = None
    ignore_index: int = -100
    reduce: bool | None = None
    reduction: str = "mean"


class NLLLoss2d(NLLLoss):
    """`NLLLoss` for images. Deprecated: `NLLLoss` takes them."""

    @deprecated(
        "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement and see "
        "https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for more details."
    )
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class CrossEntropyLoss(_WeightedLoss, function="cross_entropy"):
    """Cross entropy between `softmax(input)` and class indices or probabilities, reduced.

    For class indices it is the negative log-likelihood `-weight[target] * log_softmax(input)[target]`.

    Args:
        weight: A weight for each class, `(C)`.
        size_average: Deprecated: see `reduction`.
        ignore_index: The class index of samples that are left out.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"` (for class indices, divided by the sum of the samples' weights), `"sum"` or `"none"`.
        label_smoothing: The part of the target that is spread evenly over all classes (Szegedy et al. 2016).

    Shape:
        Logits `(C)`, `(N, C)` or `(N, C, *)`, and either class indices of that shape without `C`, or class
        probabilities of that shape.

    Example:
        >>> loss = gt.nn.CrossEntropyLoss()
        >>> logits = gt.tensor([[2.0, 0.0], [0.0, 2.0]], requires_grad=True)
        >>> value = loss(logits, gt.tensor([0, 1]))
        >>> value
        tensor(0.1269, grad_fn=<CrossEntropyBackward0>)
        >>> value.backward()
        >>> logits.grad
        tensor([[-0.0596,  0.0596],
                [ 0.0596, -0.0596]])
    """

    weight: Tensor | None = None
    size_average: bool | None = None
    ignore_index: int = -100
    reduce: bool | None = None
    reduction: str = "mean"
    label_smoothing: float = 0.0


class PoissonNLLLoss(_Loss, function="poisson_nll_loss"):
    """Negative log-likelihood of counts under a Poisson distribution of rate `exp(input)`, up to a constant.

    Args:
        log_input: Whether the input is the logarithm of the rate rather than the rate.
        full: Whether to add the term `log(target!)`, by Stirling's approximation.
        size_average: Deprecated: see `reduction`.
        eps: Added to the rate before its logarithm.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> gt.nn.PoissonNLLLoss()(gt.tensor([0.0]), gt.tensor([2.0]))
        tensor(1.)
    """

    _inputs = ("log_input", "target")
    log_input: bool = True
    full: bool = False
    size_average: bool | None = None
    eps: float = 1e-8
    reduce: bool | None = None
    reduction: str = "mean"


class GaussianNLLLoss(_Loss, function="gaussian_nll_loss", by_name=True):
    """Negative log-likelihood under a normal distribution: `(log(var) + (input - target)^2 / var) / 2`, reduced.

    Args:
        full: Whether to add the constant `log(2 pi) / 2`.
        eps: The lower bound of the variances.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> gt.nn.GaussianNLLLoss()(gt.tensor([1.0]), gt.tensor([3.0]), gt.tensor([4.0]))
        tensor(1.1931)
    """

    _inputs = ("input", "target", "var")
    full: bool = False
    eps: float = 1e-6
    reduction: str = "mean"


class CTCLoss(_Loss, function="ctc_loss"):
    """Connectionist temporal classification: negative log-likelihood of label sequences, summed over their alignments.

    It trains a model that emits one class for each time step, such as a speech recognizer, on label sequences that are
    shorter and not aligned with the steps. An alignment spells the labels with repetitions and blanks between them
    (Graves et al. 2006).

    Args:
        blank: The class index of the blank.
        reduction: `"mean"` (each loss divided by the length of its target first), `"sum"` or `"none"`.
        zero_infinity: Whether infinite losses, of inputs that are too short for their targets, count as 0.

    Shape:
        The call is `loss(log_probs, targets, input_lengths, target_lengths)`, for `T` time steps, a batch of `N` and
        `C` classes with the blank.

        - `log_probs`: `(T, N, C)`, or `(T, C)` without a batch: the output of `log_softmax`.
        - `targets`: `(N, S)`, padded to the longest, or the labels of all samples one after the other,
          `(sum(target_lengths))`. Labels are class indices other than the blank.
        - `input_lengths`, `target_lengths`: `(N)`, tensors or lists.
        - The loss is a scalar; `(N)` if `reduction` is `"none"`.

    Example:
        >>> log_probs = gt.zeros(12, 2, 5).log_softmax(2)  # (time, batch, classes)
        >>> targets = gt.tensor([[1, 2, 3], [4, 1, 0]])
        >>> loss = gt.nn.CTCLoss()(log_probs, targets, [12, 10], [3, 2])
        >>> loss.shape
        gt.Size([])
    """

    _inputs = ("log_probs", "targets", "input_lengths", "target_lengths")
    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False


class MarginRankingLoss(_Loss, function="margin_ranking_loss"):
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

    _inputs = ("input1", "input2", "target")
    margin: float = 0.0
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class CosineEmbeddingLoss(_Loss, function="cosine_embedding_loss"):
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

    _inputs = ("input1", "input2", "target")
    margin: float = 0.0
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class HingeEmbeddingLoss(_Loss, function="hinge_embedding_loss"):
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

    margin: float = 1.0
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class TripletMarginLoss(_Loss, function="triplet_margin_loss"):
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

    _inputs = ("anchor", "positive", "negative")
    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"

    def _set(self, *, margin: float, **options: Any) -> None:  # type: ignore[override]
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin} instead")
        super()._set(margin=margin, **options)


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
    distance = distance_function or functional.pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = gt.minimum(far, distance(positive, negative))
    losses = (near - far + margin).clamp(min=0)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


class TripletMarginWithDistanceLoss(_Loss, function=triplet_margin_with_distance_loss, by_name=True):
    """Triplet loss `max(d(anchor, positive) - d(anchor, negative) + margin, 0)`, reduced, for any distance `d`.

    Args:
        distance_function: The distance `d`; the Euclidean one if not given.
        margin: The margin, greater than 0.
        swap: Whether to use `min(d(anchor, negative), d(positive, negative))` for the negative (Balntas et al. 2016).
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    _inputs = ("anchor", "positive", "negative")
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: str = "mean"


class MultiMarginLoss(_Loss, function="multi_margin_loss"):
    """Multi-class hinge loss: `sum_{j != y} max(margin - x[y] + x[j], 0)^p / C`, reduced.

    Args:
        p: 1 or 2.
        margin: The margin.
        weight: A weight for each class, `(C)`.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    p: int = 1
    margin: float = 1.0
    weight: Tensor | None = None
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class MultiLabelMarginLoss(_Loss, function="multilabel_margin_loss"):
    """Multi-label hinge loss: `sum_{y, j} max(1 - (x[y] - x[j]), 0) / C` over labels `y` and non-labels `j`, reduced.

    The target has the shape of the input, `(N, C)` or `(C)`, and holds the labels' indices up to the first -1.

    Args:
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class SoftMarginLoss(_Loss, function="soft_margin_loss"):
    """Logistic loss: `log(1 + exp(-target * input))` for targets 1 and -1, reduced.

    Args:
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class MultiLabelSoftMarginLoss(_WeightedLoss, function="multilabel_soft_margin_loss"):
    """Binary cross entropy with logits, averaged over the classes (last axis), reduced over the samples.

    Args:
        weight: A weight for each class, `(C)`.
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.
    """

    weight: Tensor | None = None
    size_average: bool | None = None
    reduce: bool | None = None
    reduction: str = "mean"


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy of the logits of a linear layer, which is part of the loss.

    Args:
        in_features: The size of the input's last axis.
        num_classes: The number of classes, `C`.
        out_features: The shape of each sample's targets, if it has several.
        bias: Whether the layer has a bias.
        device: Where the layer's parameters are.
        dtype: Their dtype.
        reduction: `"mean"`, `"sum"` or `"none"`.
        weight: A weight for each class, `(C)`.
        ignore_index: The class index of samples that are left out.
        label_smoothing: The part of the target that is spread evenly over all classes.
        options: Not supported: the logits are always computed at once.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: None = None,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        if weight is not None and weight.shape != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if options is not None:
            raise NotImplementedError("LinearCrossEntropyLoss: options are not there: the scores are computed whole")
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.options = options
        outputs = gt.Size((num_classes, *out_features)).numel()
        self.linear = Linear(in_features, outputs, bias=bias, device=device, dtype=dtype)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        outer = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return functional.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*outer, -1),
            target,
            linear_bias=None if bias is None else bias.reshape(outer),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, reduction={self.reduction}, "
            f"ignore_index={self.ignore_index}, label_smoothing={self.label_smoothing}, options={self.options}"
        )
