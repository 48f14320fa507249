"""Distances between vectors, and the bilinear layer."""

from __future__ import annotations

import math
from typing import Any

from gt import _core as gt
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn import init
from gt.nn.function_module import FunctionModule
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = ["Bilinear", "CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(FunctionModule, function="cosine_similarity"):
    """Cosine similarity along an axis: `x1 · x2 / max(|x1| |x2|, eps)`.

    Args:
        dim: The axis of the vectors.
        eps: The smallest divisor.

    Example:
        >>> gt.nn.CosineSimilarity()(gt.tensor([[1.0, 0.0]]), gt.tensor([[0.0, 2.0]]))
        tensor([0.])
    """

    _inputs = ("x1", "x2")
    _shown = ()
    dim: int = 1
    eps: float = 1e-8


class PairwiseDistance(Module):
    """`p`-norm of `x1 - x2 + eps` along the last axis.

    Args:
        p: The order of the norm.
        eps: Added to the differences, for their gradient at 0.
        keepdim: Whether the last axis stays, with size 1.

    Example:
        >>> gt.nn.PairwiseDistance()(gt.tensor([[0.0, 0.0]]), gt.tensor([[3.0, 4.0]]))
        tensor([5.0000])
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class Bilinear(Module):
    """Bilinear map: `x1^T weight[k] x2 + bias[k]` for each output feature `k`.

    Args:
        in1_features: The size of the first input's last axis.
        in2_features: The size of the second input's last axis.
        out_features: The size of the output's last axis.
        bias: Whether there is a bias.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Shape:
        `(*, in1_features)` and `(*, in2_features)` to `(*, out_features)`.

    Example:
        >>> gt.nn.Bilinear(2, 3, 4)(gt.ones(8, 2), gt.ones(8, 3)).shape
        gt.Size([8, 4])
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(gt.empty(out_features, in1_features, in2_features, dtype=dtype))
        self.register_parameter("bias", Parameter(gt.empty(out_features, dtype=dtype)) if bias else None)
        self.reset_parameters()
        if device is not None:
            self.to(device)

    def reset_parameters(self) -> None:
        """Initializes all parameters uniformly within ±1/sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return functional.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        sizes = (f"{name}={getattr(self, name)}" for name in ("in1_features", "in2_features", "out_features"))
        return ", ".join([*sizes, f"bias={self.bias is not None}"])
