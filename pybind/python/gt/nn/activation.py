"""Activation layers other than those of `layers.py`: each calls its function in `gt.nn.functional`."""

from __future__ import annotations

from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.nn import functional
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class _InPlace(Module):
    """An activation with the option `inplace`; its function is named by `_function`, or by the class."""

    _function: str = ""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def _arguments(self) -> tuple[Any, ...]:
        return ()

    def forward(self, input: Tensor) -> Tensor:
        function = getattr(functional, self._function or type(self).__name__.lower())
        return function(input, *self._arguments(), inplace=self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class SiLU(_InPlace):
    """Sigmoid linear unit, also called swish: `x * sigmoid(x)` (Hendrycks and Gimpel 2016; Ramachandran et al. 2017).

    Args:
        inplace: Whether the result overwrites the input.

    Shape:
        Any shape, to the same.

    Example:
        >>> gt.nn.SiLU()(gt.tensor([-1.0, 0.0, 1.0]))
        tensor([-0.2689,  0.0000,  0.7311])
    """


class Mish(_InPlace):
    """`x * tanh(softplus(x))`, element by element (Misra 2019).

    Args:
        inplace: Whether the result overwrites the input.
    """


class SELU(_InPlace):
    """Scaled exponential linear unit: `scale * (max(x, 0) + min(alpha * (exp(x) - 1), 0))` (Klambauer et al. 2017).

    The constants alpha = 1.6733 and scale = 1.0507 make mean 0 and variance 1 a fixed point of a network's layers.

    Args:
        inplace: Whether the result overwrites the input.
    """


class ReLU6(_InPlace):
    """`min(max(x, 0), 6)`, element by element.

    Args:
        inplace: Whether the result overwrites the input.
    """


class Hardsigmoid(_InPlace):
    """Piecewise linear sigmoid: `min(max(x / 6 + 1/2, 0), 1)`, element by element.

    Args:
        inplace: Whether the result overwrites the input.
    """


class Hardswish(_InPlace):
    """`x * hardsigmoid(x)`, element by element (Howard et al. 2019).

    Args:
        inplace: Whether the result overwrites the input.
    """


class LeakyReLU(_InPlace):
    """Leaky rectified linear unit: `max(x, 0) + negative_slope * min(x, 0)`, element by element.

    Args:
        negative_slope: The slope for negative inputs.
        inplace: Whether the result overwrites the input.

    Example:
        >>> gt.nn.LeakyReLU(0.1)(gt.tensor([-1.0, 2.0]))
        tensor([-0.1000,  2.0000])
    """

    _function = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def _arguments(self) -> tuple[Any, ...]:
        return (self.negative_slope,)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(_InPlace):
    """Exponential linear unit: `x` if `x > 0`, else `alpha * (exp(x) - 1)` (Clevert et al. 2016).

    Args:
        alpha: Minus the limit for large negative inputs.
        inplace: Whether the result overwrites the input.

    Example:
        >>> gt.nn.ELU()(gt.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def _arguments(self) -> tuple[Any, ...]:
        return (self.alpha,)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(ELU):
    """Continuously differentiable ELU: `x` if `x > 0`, else `alpha * (exp(x / alpha) - 1)` (Barron 2017).

    Args:
        alpha: Minus the limit for large negative inputs.
        inplace: Whether the result overwrites the input.
    """


class Hardtanh(_InPlace):
    """Clamps each element to `[min_val, max_val]`.

    Args:
        min_val: The lower bound.
        max_val: The upper bound.
        inplace: Whether the result overwrites the input.

    Example:
        >>> gt.nn.Hardtanh()(gt.tensor([-2.0, 0.5, 3.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        if max_val <= min_val:
            raise AssertionError("max_val must be larger than min_val")
        self.min_val = min_val
        self.max_val = max_val

    def _arguments(self) -> tuple[Any, ...]:
        return (self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class Threshold(_InPlace):
    """`x` if `x > threshold`, else `value`, element by element.

    Args:
        threshold: The threshold.
        value: The value of elements that do not exceed it.
        inplace: Whether the result overwrites the input.
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def _arguments(self) -> tuple[Any, ...]:
        return (self.threshold, self.value)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class RReLU(_InPlace):
    """Leaky rectified linear unit with a random negative slope (Xu et al. 2015).

    In training mode the slope of each element is uniform between `lower` and `upper`; in evaluation mode it is their
    mean.

    Args:
        lower: The smallest slope.
        upper: The largest slope.
        inplace: Whether the result overwrites the input.
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def _arguments(self) -> tuple[Any, ...]:
        return (self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


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


class LogSigmoid(Module):
    """`log(sigmoid(x)) = -log(1 + exp(-x))`, element by element, computed without overflow.

    Example:
        >>> gt.nn.LogSigmoid()(gt.tensor([0.0, 2.0]))
        tensor([-0.6931, -0.1269])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.logsigmoid(input)


class Softsign(Module):
    """`x / (1 + |x|)`, element by element."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softsign(input)


class Tanhshrink(Module):
    """`x - tanh(x)`, element by element."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.tanhshrink(input)


class Hardshrink(Module):
    """`x` if `|x| > lambd`, else 0, element by element.

    Args:
        lambd: The threshold.
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Hardshrink):
    """Soft thresholding: `sign(x) * max(|x| - lambd, 0)`, element by element.

    Args:
        lambd: The threshold, at least 0.
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.softshrink(input, self.lambd)


class Softplus(Module):
    """Smooth rectifier: `log(1 + exp(beta * x)) / beta`, element by element.

    Args:
        beta: The sharpness of the bend.
        threshold: Where `beta * x` exceeds it, the result is `x`.

    Example:
        >>> gt.nn.Softplus()(gt.tensor([0.0, 30.0]))
        tensor([ 0.6931, 30.0000])
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GLU(Module):
    """Gated linear unit: `a * sigmoid(b)`, where `a` and `b` are the halves of the input along `dim` (Dauphin et al.

    2017).

    Args:
        dim: The axis that is halved.

    Shape:
        `(*, 2n, *)` to `(*, n, *)`.

    Example:
        >>> gt.nn.GLU()(gt.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return functional.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(Module):
    """Softmax of the negated input along an axis: `exp(-x_i) / sum_j exp(-x_j)`.

    Args:
        dim: The axis.
    """

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmin(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Softmax over the channels of `(N, C, H, W)` or `(C, H, W)`, at each pixel."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return input.softmax(-3)
