"""Activations beyond those of `layers.py`, as modules: each calls its function in `gt.nn.functional`."""

from __future__ import annotations

from gt._gt import Tensor
from gt.nn import functional
from gt.nn.module import Module


class SiLU(Module):
    """`x * sigmoid(x)` of each element."""

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        return functional.silu(input)


class LogSigmoid(Module):
    """The logarithm of `sigmoid`."""

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        return functional.logsigmoid(input)


class LeakyReLU(Module):
    """`x` of positive elements, `negative_slope * x` of others."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        return functional.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    """`x` of positive elements, `alpha * (exp(x) - 1)` of others."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        return functional.elu(input, self.alpha)

    def extra_repr(self) -> str:
        """The factor."""
        return f"alpha={self.alpha}"


class Softplus(Module):
    """`log(1 + exp(beta * x)) / beta` of each element; `x` itself where `beta * x > threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """The same shape."""
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Both numbers."""
        return f"beta={self.beta}, threshold={self.threshold}"
