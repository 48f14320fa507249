"""Elementwise arithmetic composed of other operations."""

from __future__ import annotations

import math

from gt import _gt
from gt._composites.common import check_floating
from gt._forms import check_tensor
from gt._gt import Tensor


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """`input + value * tensor1 / tensor2`, elementwise.

    Args:
        input: A tensor.
        tensor1: The numerator.
        tensor2: The denominator.
        value: The factor of the quotient.

    Raises:
        RuntimeError: Both `tensor1` and `tensor2` are integers.

    Example:
        >>> gt.addcdiv(gt.ones(2), gt.tensor([1.0, 2.0]), gt.tensor([2.0, 8.0]), value=2)
        tensor([2.0000, 1.5000])
    """
    if not (tensor1.is_floating_point() or tensor2.is_floating_point()):
        raise RuntimeError(
            "Integer division with addcdiv is no longer supported: use input + value * tensor1 / tensor2, or "
            "(input + value * trunc(tensor1 / tensor2)).to(input.dtype)"
        )
    return input + (tensor1 if value == 1 else tensor1 * value) / tensor2


def hypot(input: Tensor, other: Tensor) -> Tensor:
    """The hypotenuse sqrt(input ** 2 + other ** 2), elementwise and without overflow.

    Example:
        >>> gt.hypot(gt.tensor([3.0, 1e30]), gt.tensor([4.0, 1e30]))
        tensor([5.0000e+00, 1.4142e+30])
    """
    check_floating("hypot", input)
    a, b = input.abs(), other.abs()
    large, small = _gt.where(a > b, a, b), _gt.where(a > b, b, a)
    ratio = small / _gt.where(large == 0, 1.0, large)
    return _gt.where((a == math.inf) | (b == math.inf), math.inf, large * (ratio * ratio + 1).sqrt())


def float_power(input: Tensor | complex, exponent: Tensor | complex) -> Tensor:
    """`input ** exponent`, computed in float64.

    Example:
        >>> gt.float_power(gt.tensor([2, 3]), 0.5)
        tensor([1.4142, 1.7321], dtype=gt.float64)
    """
    if not isinstance(input, Tensor):
        check_tensor("float_power", "exponent", 2, exponent)
        return input ** exponent.double()
    return input.double() ** (exponent.double() if isinstance(exponent, Tensor) else exponent)


def float_power_(self: Tensor, exponent: Tensor | complex) -> Tensor:
    """`float_power` written to the tensor itself, which must be of float64."""
    if self.dtype != _gt.float64:
        name = self.type().removeprefix("gt.").removesuffix("Tensor")
        raise RuntimeError(
            f"the base given to float_power_ has dtype {name} but the operation's result requires dtype Double"
        )
    return self.pow_(exponent)


def rsub(input: Tensor, other: Tensor | complex, *, alpha: float = 1) -> Tensor:
    """Subtraction with the operands exchanged: `other - alpha * input`."""
    check_tensor("rsub", "input", 1, input)
    return other - (input if alpha == 1 else input * alpha)


def clamp_min(input: Tensor, min: Tensor | complex) -> Tensor:
    """Elements limited from below: max(input, min).

    Example:
        >>> gt.clamp_min(gt.tensor([-1.0, 2.0]), 0)
        tensor([0., 2.])
    """
    return input.clamp(min=min)


def clamp_max(input: Tensor, max: Tensor | complex) -> Tensor:
    """Elements limited from above: min(input, max).

    Example:
        >>> gt.clamp_max(gt.tensor([-1.0, 2.0]), 0)
        tensor([-1.,  0.])
    """
    return input.clamp(max=max)


def is_tensor(obj: object) -> bool:
    """Whether an object is a `gt.Tensor`.

    Example:
        >>> gt.is_tensor(gt.zeros(1)), gt.is_tensor([0.0])
        (True, False)
    """
    return isinstance(obj, Tensor)


METHODS = (
    addcdiv,
    hypot,
    float_power,
    clamp_min,
    clamp_max,
)
TENSOR_METHODS = (float_power_,)
IN_PLACE = (
    addcdiv,
    hypot,
    clamp_min,
    clamp_max,
)
FUNCTIONS = (
    rsub,
    is_tensor,
)
