"""Activation layers: each is declared by its options and calls its function in `gt.nn.functional`."""

from __future__ import annotations

from typing import Any

from gt import _core as gt
from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn.function_module import FunctionModule
from gt.nn.module import Module
from gt.nn.parameter import Parameter

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax", "Softmax2d",
    "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class ReLU(FunctionModule, function="relu"):
    """Rectified linear unit: `max(x, 0)`, element by element.

    Args:
        inplace: Whether the result overwrites the input.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.ReLU()(gt.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])
    """

    inplace: bool = False


class Sigmoid(FunctionModule, function="sigmoid"):
    """Logistic sigmoid: `1 / (1 + exp(-x))`, element by element.

    Example:
        >>> gt.nn.Sigmoid()(gt.tensor([0.0]))
        tensor([0.5000])
    """


class Tanh(FunctionModule, function="tanh"):
    """Hyperbolic tangent, element by element.

    Example:
        >>> gt.nn.Tanh()(gt.tensor([0.0]))
        tensor([0.])
    """


class GELU(FunctionModule, function="gelu"):
    """Gaussian error linear unit: `x * Phi(x)`, where Phi is the standard normal CDF (Hendrycks and Gimpel 2016).

    Args:
        approximate: `"none"`, or `"tanh"` for `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))`.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.GELU()(gt.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.1587,  0.0000,  0.8413])
    """

    approximate: str = "none"

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Softmax(FunctionModule, function="softmax"):
    """Softmax along an axis: `exp(x_i) / sum_j exp(x_j)`, probabilities that sum to 1.

    Args:
        dim: The axis.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.Softmax(dim=1)(gt.tensor([[0.0, 0.0]]))
        tensor([[0.5000, 0.5000]])
    """

    dim: int | None = None


class LogSoftmax(Softmax, function="log_softmax"):
    """Logarithm of the softmax along an axis, `x_i - log sum_j exp(x_j)`, computed without overflow.

    Args:
        dim: The axis.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.LogSoftmax(dim=0)(gt.tensor([0.0, 0.0]))
        tensor([-0.6931, -0.6931])
    """


class SiLU(FunctionModule, function="silu"):
    """Sigmoid linear unit, also called swish: `x * sigmoid(x)` (Hendrycks and Gimpel 2016; Ramachandran et al. 2017).

    Args:
        inplace: Whether the result overwrites the input.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.SiLU()(gt.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.2689,  0.0000,  0.7311])
    """

    inplace: bool = False


class Mish(FunctionModule, function="mish"):
    """`x * tanh(softplus(x))`, element by element (Misra 2019).

    Args:
        inplace: Whether the result overwrites the input.
    """

    inplace: bool = False


class SELU(FunctionModule, function="selu"):
    """Scaled exponential linear unit: `scale * (max(x, 0) + min(alpha * (exp(x) - 1), 0))` (Klambauer et al. 2017).

    The constants alpha = 1.6733 and scale = 1.0507 make mean 0 and variance 1 a fixed point of a network's layers.

    Args:
        inplace: Whether the result overwrites the input.
    """

    inplace: bool = False


class ReLU6(FunctionModule, function="relu6"):
    """`min(max(x, 0), 6)`, element by element.

    Args:
        inplace: Whether the result overwrites the input.
    """

    inplace: bool = False


class Hardsigmoid(FunctionModule, function="hardsigmoid"):
    """Piecewise linear sigmoid: `min(max(x / 6 + 1/2, 0), 1)`, element by element.

    Args:
        inplace: Whether the result overwrites the input.
    """

    inplace: bool = False


class Hardswish(FunctionModule, function="hardswish"):
    """`x * hardsigmoid(x)`, element by element (Howard et al. 2019).

    Args:
        inplace: Whether the result overwrites the input.
    """

    inplace: bool = False


class LeakyReLU(FunctionModule, function="leaky_relu"):
    """Leaky rectified linear unit: `max(x, 0) + negative_slope * min(x, 0)`, element by element.

    Args:
        negative_slope: The slope for negative inputs.
        inplace: Whether the result overwrites the input.

    Example:
        >>> gt.nn.LeakyReLU(0.1)(gt.tensor([-1.0, 2.0]))
        tensor([-0.1000,  2.0000])
    """

    negative_slope: float = 0.01
    inplace: bool = False


class ELU(FunctionModule, function="elu"):
    """Exponential linear unit: `x` if `x > 0`, else `alpha * (exp(x) - 1)` (Clevert et al. 2016).

    Args:
        alpha: Minus the limit for large negative inputs.
        inplace: Whether the result overwrites the input.

    Example:
        >>> gt.nn.ELU()(gt.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """

    alpha: float = 1.0
    inplace: bool = False


class CELU(FunctionModule, function="celu"):
    """Continuously differentiable ELU: `x` if `x > 0`, else `alpha * (exp(x / alpha) - 1)` (Barron 2017).

    Args:
        alpha: Minus the limit for large negative inputs.
        inplace: Whether the result overwrites the input.
    """

    alpha: float = 1.0
    inplace: bool = False


class Hardtanh(FunctionModule, function="hardtanh"):
    """Clamps each element to `[min_val, max_val]`.

    Args:
        min_val: The lower bound.
        max_val: The upper bound.
        inplace: Whether the result overwrites the input.

    Example:
        >>> gt.nn.Hardtanh()(gt.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """

    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False

    def _set(self, **options: Any) -> None:
        if options["max_val"] <= options["min_val"]:
            raise AssertionError("max_val must be larger than min_val")
        super()._set(**options)


class Threshold(FunctionModule, function="threshold"):
    """`x` if `x > threshold`, else `value`, element by element.

    Args:
        threshold: The threshold.
        value: The value of elements that do not exceed it.
        inplace: Whether the result overwrites the input.
    """

    threshold: float
    value: float
    inplace: bool = False


class RReLU(FunctionModule, function="rrelu", also=("training",)):
    """Leaky rectified linear unit with a random negative slope (Xu et al. 2015).

    In training mode the slope of each element is uniform between `lower` and `upper`; in evaluation mode it is their
    mean.

    Args:
        lower: The smallest slope.
        upper: The largest slope.
        inplace: Whether the result overwrites the input.
    """

    lower: float = 1 / 8
    upper: float = 1 / 3
    inplace: bool = False


class PReLU(Module):
    """Leaky rectified linear unit with a learned negative slope: `max(x, 0) + weight * min(x, 0)` (He et al. 2015).

    Args:
        num_parameters: 1, for one slope, or the number of channels (axis 1), for one slope each.
        init: The initial slope.
        device: Where the parameter is.
        dtype: Its dtype.

    Example:
        >>> gt.nn.PReLU()(gt.tensor([-2.0, 3.0])).detach()
        tensor([-0.5000,  3.0000])
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        weight = gt.full((num_parameters,), init, dtype=dtype or gt.get_default_dtype())
        self.weight = Parameter(weight if device is None else weight.to(device))

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class LogSigmoid(FunctionModule, function="logsigmoid"):
    """`log(sigmoid(x)) = -log(1 + exp(-x))`, element by element, computed without overflow.

    Example:
        >>> gt.nn.LogSigmoid()(gt.tensor([0.0, 2.0]))
        tensor([-0.6931, -0.1269])
    """


class Softsign(FunctionModule, function="softsign"):
    """`x / (1 + |x|)`, element by element."""


class Tanhshrink(FunctionModule, function="tanhshrink"):
    """`x - tanh(x)`, element by element."""


class Hardshrink(FunctionModule, function="hardshrink"):
    """`x` if `|x| > lambd`, else 0, element by element.

    Args:
        lambd: The threshold.
    """

    lambd: float = 0.5

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Hardshrink, function="softshrink"):
    """Soft thresholding: `sign(x) * max(|x| - lambd, 0)`, element by element.

    Args:
        lambd: The threshold, at least 0.
    """


class Softplus(FunctionModule, function="softplus"):
    """Smooth rectifier: `log(1 + exp(beta * x)) / beta`, element by element.

    Args:
        beta: The sharpness of the bend.
        threshold: Where `beta * x` exceeds it, the result is `x`.

    Example:
        >>> gt.nn.Softplus()(gt.tensor([0.0, 30.0]))
        tensor([ 0.6931, 30.0000])
    """

    beta: float = 1.0
    threshold: float = 20.0


class GLU(FunctionModule, function="glu"):
    """Gated linear unit (Dauphin et al. 2017): `a * sigmoid(b)`, for the halves `a` and `b` of the input along `dim`.

    Args:
        dim: The axis that is halved.

    Shape:
        `(*, 2n, *)` to `(*, n, *)`.

    Example:
        >>> gt.nn.GLU()(gt.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """

    dim: int = -1


class Softmin(FunctionModule, function="softmin"):
    """Softmax of the negated input along an axis: `exp(-x_i) / sum_j exp(-x_j)`.

    Args:
        dim: The axis.
    """

    dim: int | None = None


class Softmax2d(Module):
    """Softmax over the channels of `(N, C, H, W)` or `(C, H, W)`, at each pixel."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return input.softmax(-3)
