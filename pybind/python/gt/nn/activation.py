"""Activations beyond those of `layers.py`, as modules: each calls its function in `gt.nn.functional`."""

from __future__ import annotations

from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.nn import functional
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class _InPlace(Module):
    """Written over the input if `inplace`. A subclass is called as its function, or names that."""

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
    """`x * sigmoid(x)` of each element."""


class Mish(_InPlace):
    """`x * tanh(softplus(x))` of each element."""


class SELU(_InPlace):
    """`elu` that keeps a mean of 0 and a variance of 1."""


class ReLU6(_InPlace):
    """Elements kept between 0 and 6."""


class Hardsigmoid(_InPlace):
    """A line for `sigmoid`: `x / 6 + 1/2`, kept between 0 and 1."""


class Hardswish(_InPlace):
    """`x * hardsigmoid(x)` of each element."""


class LeakyReLU(_InPlace):
    """`x` of positive elements, `negative_slope * x` of others."""

    _function = "leaky_relu"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def _arguments(self) -> tuple[Any, ...]:
        return (self.negative_slope,)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(_InPlace):
    """`x` of positive elements, `alpha * (exp(x) - 1)` of others."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def _arguments(self) -> tuple[Any, ...]:
        return (self.alpha,)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(ELU):
    """`x` of positive elements, `alpha * (exp(x / alpha) - 1)` of others."""


class Hardtanh(_InPlace):
    """Elements kept between `min_val` and `max_val`."""

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
    """`value` where `x` is not above `threshold`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def _arguments(self) -> tuple[Any, ...]:
        return (self.threshold, self.value)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class RReLU(_InPlace):
    """`LeakyReLU` whose slope is drawn for each element in training, and the mean of both bounds otherwise."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def _arguments(self) -> tuple[Any, ...]:
        return (self.lower, self.upper, self.training)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class PReLU(Module):
    """`LeakyReLU` whose slope is learnt: one, or one a channel."""

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
    """The logarithm of `sigmoid`."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.logsigmoid(input)


class Softsign(Module):
    """`x / (1 + |x|)` of each element."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softsign(input)


class Tanhshrink(Module):
    """`x - tanh(x)` of each element."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.tanhshrink(input)


class Hardshrink(Module):
    """0 where `|x|` is at most `lambd`, `x` elsewhere."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return functional.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Hardshrink):
    """`x` moved towards 0 by `lambd`, and 0 where that would pass it."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softshrink(input, self.lambd)


class Softplus(Module):
    """`log(1 + exp(beta * x)) / beta` of each element; `x` itself where `beta * x > threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class GLU(Module):
    """One half of an axis times `sigmoid` of the other."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return functional.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(Module):
    """`Softmax` of what is taken negative: the smallest gets most."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmin(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """`Softmax` over the channels of `(samples, channels, height, width)`."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return input.softmax(-3)
