"""Basic layers: `Linear`, and reshaping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn import init
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = ["Flatten", "Identity", "Linear", "Unflatten"]


class Linear(Module):
    """Affine map `y = x W^T + b`.

    Args:
        in_features: Size of the input's last axis.
        out_features: Size of the output's last axis.
        bias: Whether there is a bias.
        device: A device, which has to exist; the daemon decides where the parameters lie.
        dtype: Their dtype.

    Attributes:
        weight: `(out_features, in_features)`, initialized uniformly within ±1/sqrt(in_features).
        bias: `(out_features,)`, initialized likewise; `None` without a bias.

    Shape:
        `(*, in_features)` to `(*, out_features)`.

    Example:
        >>> layer = gt.nn.Linear(20, 30)
        >>> layer(gt.ones(128, 20)).shape
        gt.Size([128, 30])
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(gt.empty(out_features, in_features, device=device, dtype=dtype))
        made = Parameter(gt.empty(out_features, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initializes the weight and the bias uniformly within ±1/sqrt(in_features)."""
        # kaiming_uniform_ with a = √5 is uniform within ±1/√in_features, PyTorch's default.
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Identity(Module):
    """Returns its input; takes, and ignores, any arguments. A placeholder for a layer.

    Example:
        >>> gt.nn.Identity()(gt.tensor([1.0, 2.0]))
        tensor([1., 2.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Flatten(Module):
    """Merges the axes from `start_dim` to `end_dim`, both included, into one; by default all axes but the batch.

    Example:
        >>> gt.nn.Flatten()(gt.zeros(8, 3, 4, 4)).shape
        gt.Size([8, 48])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class NonDynamicallyQuantizableLinear(Linear):
    """The affine map that ends `MultiheadAttention`, under the name that PyTorch prints and saves."""


class Unflatten(Module):
    """Splits axis `dim` into several axes of the sizes `unflattened_size`, of which one may be -1.

    Example:
        >>> gt.nn.Unflatten(1, (3, 4))(gt.zeros(8, 12)).shape
        gt.Size([8, 3, 4])
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        if not -input.ndim <= self.dim < input.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-input.ndim}, {input.ndim - 1}], "
                f"but got {self.dim})"
            )
        dim = self.dim % input.ndim
        return input.reshape(*input.shape[:dim], *self.unflattened_size, *input.shape[dim + 1 :])

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
