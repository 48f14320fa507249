"""Adaptive softmax: a loss for many classes of uneven frequency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gt import _core as gt
from gt._gt import Tensor
from gt.nn.containers import ModuleList, Sequential
from gt.nn.layers import Linear
from gt.nn.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    """The log probability of each target, and the mean negative log-likelihood."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Adaptive softmax (Grave et al. 2017): an approximation for many classes of uneven frequency.

    Classes are numbered by falling frequency and split into clusters at `cutoffs`. The head scores the classes of the
    first cluster and each other cluster as a whole; a cluster's own classes are scored only for samples that belong to
    it, through a projection that is `div_value` times smaller from one cluster to the next.

    Args:
        in_features: The size of the input's last axis.
        n_classes: The number of classes.
        cutoffs: Increasing class indices at which the clusters after the first begin.
        div_value: How many times smaller each projection is than the one before.
        head_bias: Whether the head has a bias.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Example:
        >>> loss = gt.nn.AdaptiveLogSoftmaxWithLoss(16, 100, cutoffs=[10, 50])
        >>> output = loss(gt.ones(4, 16), gt.tensor([0, 11, 60, 99]))
        >>> output.output.shape, output.loss.shape
        (gt.Size([4]), gt.Size([]))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        rising = cutoffs == sorted(set(cutoffs)) and all(int(c) == c for c in cutoffs)
        if not rising or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = cutoffs[0]
        self.n_clusters = len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        options = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **options)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            inner, outer = int(in_features // div_value ** (i + 1)), self.cutoffs[i + 1] - self.cutoffs[i]
            first = Linear(in_features, inner, bias=False, **options)
            self.tail.append(Sequential(first, Linear(inner, outer, bias=False, **options)))

    def reset_parameters(self) -> None:
        """Initializes all parameters anew."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """The log probability of each target, and the mean negative log-likelihood.

        Args:
            input_: `(N, in_features)` or `(in_features)`.
            target_: Class indices, `(N)` or a scalar.

        Returns:
            `output`, of the shape of the target, and the scalar `loss`.
        """
        if target_.ndim not in (0, 1):
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if target_.ndim == 1 and input_.shape[0] != target_.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input_.ndim != target_.ndim + 1:
            raise RuntimeError(
                f"{target_.ndim}D target tensor expects {target_.ndim + 1}D input tensors, but found inputs with size "
                f"{input_.shape}"
            )
        single = target_.ndim == 0
        input, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        if target.numel():
            low, high = (int(bound.item()) for bound in target.aminmax())
            if low < 0 or high >= self.n_classes:
                raise RuntimeError(
                    f"Target values should be in [0, {self.n_classes - 1}], but values in range [{low}, {high}] were "
                    "found. "
                )
        # Cluster 0 is the head's own classes (the shortlist).
        cluster = gt.bucketize(target, gt.tensor(self.cutoffs[:-1]), right=True)
        place = gt.where(cluster == 0, target, cluster + (self.shortlist_size - 1))
        output = self.head(input).log_softmax(1).gather(1, place.unsqueeze(1)).squeeze(1)
        for i, scores in enumerate(self.tail):
            rows = (cluster == i + 1).nonzero().squeeze(1)
            if rows.numel():
                within = (target[rows] - self.cutoffs[i]).unsqueeze(1)
                inside = scores(input[rows]).log_softmax(1).gather(1, within).squeeze(1)
                output = output.index_add(0, rows, inside)
        return _ASMoutput(output.squeeze(0) if single else output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probabilities of all classes, `(N, n_classes)`."""
        head = self.head(input).log_softmax(1)
        parts = [head[:, : self.shortlist_size]]
        for i, scores in enumerate(self.tail):
            parts.append(scores(input).log_softmax(1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return gt.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each sample.

        Clusters are evaluated only for samples whose most probable entry of the head is a cluster.
        """
        output = self.head(input).argmax(1)
        rows = (output >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel():
            output[rows] = self.log_prob(input[rows]).argmax(1)
        return output
