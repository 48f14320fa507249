"""Basic layers: `Linear`, the most used activations, and reshaping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.nn import functional, init
from gt.nn.module import Module
from gt.nn.parameter import Parameter


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


class ReLU(Module):
    """Rectified linear unit: `max(x, 0)`, element by element.

    Args:
        inplace: Whether the result overwrites the input.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.ReLU()(gt.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Sigmoid(Module):
    """Logistic sigmoid: `1 / (1 + exp(-x))`, element by element.

    Example:
        >>> gt.nn.Sigmoid()(gt.tensor([0.0]))
        tensor([0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return input.sigmoid()


class Tanh(Module):
    """Hyperbolic tangent, element by element.

    Example:
        >>> gt.nn.Tanh()(gt.tensor([0.0]))
        tensor([0.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return input.tanh()


class GELU(Module):
    """Gaussian error linear unit: `x * Phi(x)`, where Phi is the standard normal CDF (Hendrycks and Gimpel 2016).

    Args:
        approximate: `"none"`, or `"tanh"` for `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.GELU()(gt.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1587,  0.0000,  0.8413])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return input.gelu(approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Softmax(Module):
    """Softmax along an axis: `exp(x_i) / sum_j exp(x_j)`, probabilities that sum to 1.

    Args:
        dim: The axis.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.Softmax(dim=1)(gt.tensor([[0.0, 0.0]]))
        tensor([[0.5000, 0.5000]])
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """Logarithm of the softmax along an axis, `x_i - log sum_j exp(x_j)`, computed without overflow.

    Args:
        dim: The axis.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.LogSoftmax(dim=0)(gt.tensor([0.0, 0.0]))
        tensor([-0.6931, -0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.log_softmax(input, self.dim)


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
