"""Losses as modules: each calls its function in `gt.nn.functional`. Margin losses are in `margin_loss.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._deprecated import deprecated
from gt._gt import Tensor
from gt.nn import functional
from gt.nn._losses import reduction_of
from gt.nn.layers import Linear
from gt.nn.module import Module


class _Loss(Module):
    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        older = size_average is not None or reduce is not None
        self.reduction = reduction_of(size_average, reduce, reduction) if older else reduction


class MSELoss(_Loss):
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """Mean absolute error: `|input - target|`, reduced.

    Args:
        size_average: Deprecated: see `reduction`.
        reduce: Deprecated: see `reduction`.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> gt.nn.L1Loss()(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 4.0]))
        tensor(1.)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
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

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Huber loss: `d^2 / 2` if `|d| <= delta`, else `delta (|d| - delta / 2)`; d = input - target (Huber 1964).

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.
        delta: Where the quadratic part ends.

    Example:
        >>> gt.nn.HuberLoss()(gt.tensor([0.0, 0.0]), gt.tensor([1.0, 3.0]))
        tensor(1.5000)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class KLDivLoss(_Loss):
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

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


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


class BCELoss(_WeightedLoss):
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
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

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class _ClassLoss(_WeightedLoss):
    """A loss of class indices, with weights of the classes and an index to ignore."""

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index


class NLLLoss(_ClassLoss):
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

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """`NLLLoss` for images. Deprecated: `NLLLoss` takes them."""

    @deprecated(
        "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in replacement and see "
        "https://pytorch.org/docs/main/nn.html#torch.nn.NLLLoss for more details."
    )
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


class CrossEntropyLoss(_ClassLoss):
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

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, ignore_index, reduce, reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class PoissonNLLLoss(_Loss):
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

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        options = {"log_input": self.log_input, "full": self.full, "eps": self.eps}
        return functional.poisson_nll_loss(log_input, target, reduction=self.reduction, **options)


class GaussianNLLLoss(_Loss):
    """Negative log-likelihood under a normal distribution: `(log(var) + (input - target)^2 / var) / 2`, reduced.

    Args:
        full: Whether to add the constant `log(2 pi) / 2`.
        eps: The lower bound of the variances.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Example:
        >>> gt.nn.GaussianNLLLoss()(gt.tensor([1.0]), gt.tensor([3.0]), gt.tensor([4.0]))
        tensor(1.1931)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return functional.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class CTCLoss(_Loss):
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

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self,
        log_probs: Tensor,
        targets: Tensor,
        input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:
        """The loss of a batch: see `gt.nn.functional.ctc_loss` for the arguments."""
        lengths = (input_lengths, target_lengths)
        return functional.ctc_loss(log_probs, targets, *lengths, self.blank, self.reduction, self.zero_infinity)


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
