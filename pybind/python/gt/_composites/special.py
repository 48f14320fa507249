"""Elementwise functions composed of others: angles, floating-point formats and special functions."""

from __future__ import annotations

import math

from gt import _gt
from gt._composites.common import check_floating
from gt._forms import check_tensor
from gt._gt import Tensor
from gt._rows import ROWS
from gt._types import MantissaExponent

_LARGEST = {
    _gt.float16: 65504.0,
    _gt.bfloat16: 255 * 2.0**120,
    _gt.float32: (2 - 2.0**-23) * 2.0**127,
    _gt.float64: (2 - 2.0**-52) * 2.0**1023,
}


def _floating(input: Tensor) -> Tensor:
    return input if input.is_floating_point() else input.float()


def deg2rad(input: Tensor) -> Tensor:
    """Angles converted from degrees to radians.

    Example:
        >>> gt.deg2rad(gt.tensor([0.0, 90.0, 180.0]))
        tensor([0.0000, 1.5708, 3.1416])
    """
    return _floating(input) * (math.pi / 180)


def rad2deg(input: Tensor) -> Tensor:
    """Angles converted from radians to degrees.

    Example:
        >>> gt.rad2deg(gt.tensor([0.0, 3.14159265]))
        tensor([  0., 180.])
    """
    return _floating(input) * (180 / math.pi)


def frac(input: Tensor) -> Tensor:
    """The fractional part of each element, with its sign: `input - trunc(input)`.

    Example:
        >>> gt.frac(gt.tensor([1.25, -2.5]))
        tensor([ 0.2500, -0.5000])
    """
    check_floating("frac", input)
    return input - input.trunc()


def positive(input: Tensor) -> Tensor:
    """The tensor itself, `+input`; an error for bools."""
    if input.dtype == _gt.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def isposinf(input: Tensor) -> Tensor:
    """Whether each element is positive infinity.

    Example:
        >>> gt.isposinf(gt.tensor([1.0, float("inf"), -float("inf")]))
        tensor([False,  True, False])
    """
    return input == math.inf if input.is_floating_point() else _gt.zeros_like(input, dtype=_gt.bool)


def isneginf(input: Tensor) -> Tensor:
    """Whether each element is negative infinity.

    Example:
        >>> gt.isneginf(gt.tensor([1.0, float("inf"), -float("inf")]))
        tensor([False, False,  True])
    """
    return input == -math.inf if input.is_floating_point() else _gt.zeros_like(input, dtype=_gt.bool)


def isreal(input: Tensor) -> Tensor:
    """Whether each element is a real number: all are, since there are no complex dtypes."""
    return _gt.ones_like(input, dtype=_gt.bool)


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """The Heaviside step function: 0 for negative elements, 1 for positive ones, `values` at 0.

    Example:
        >>> gt.heaviside(gt.tensor([-1.0, 0.0, 2.0]), gt.tensor(0.5))
        tensor([0.0000, 0.5000, 1.0000])
    """
    check_tensor("heaviside", "values", 2, values)
    if input.dtype != values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return _gt.where(input.detach() == 0, values.detach(), (input.detach() > 0).to(input.dtype))


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """`input * 2 ** other`, elementwise.

    Example:
        >>> gt.ldexp(gt.tensor([1.0, 3.0]), gt.tensor([2, 4]))
        tensor([ 4., 48.])
    """
    check_tensor("ldexp", "other", 2, other)
    power = _floating(other).exp2()
    return input * (power.to(input.dtype) if input.is_floating_point() and not other.is_floating_point() else power)


def frexp(input: Tensor) -> MantissaExponent:
    """The mantissa and exponent of each element: `input = mantissa * 2 ** exponent` with 1/2 <= abs(mantissa) < 1.

    Returns:
        A pair `(mantissa, exponent)`; the exponent is of int32.

    Example:
        >>> mantissa, exponent = gt.frexp(gt.tensor([8.0, 3.0]))
        >>> mantissa, exponent
        (tensor([0.5000, 0.7500]), tensor([4, 2], dtype=gt.int32))
    """
    if not input.is_floating_point():
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    wide = input.detach().double()
    ordinary = wide.isfinite() & (wide != 0)
    exponent = _gt.where(ordinary, wide.abs().log2().floor() + 1, 0.0)
    # The logarithm may have been rounded to an integer: the exponent is corrected by the mantissa.
    mantissa = _scaled(wide, -exponent).abs()
    exponent = exponent + (ordinary & (mantissa >= 1)).double() - (ordinary & (mantissa < 0.5)).double()
    return MantissaExponent(_scaled(input.double(), -exponent).to(input.dtype), exponent.int())


def _scaled(t: Tensor, exponent: Tensor) -> Tensor:
    """`t * 2 ** exponent` in two steps, since the power alone may overflow."""
    half = (exponent / 2).floor()
    return t * half.exp2() * (exponent - half).exp2()


# The bits of precision (with the implicit leading one) and the smallest positive number of each dtype.
_SPACING = {_gt.float16: (11, 2.0**-24), _gt.bfloat16: (8, 2.0**-133)}


def next_half(input: Tensor, other: Tensor) -> Tensor:
    """`nextafter` for float16 and bfloat16, computed in float64."""
    digits, smallest = _SPACING[input.dtype]
    x, towards = input.double(), other.detach().double()
    fixed = x.detach()
    way = (towards > fixed).double() - (towards < fixed).double()
    mantissa, exponent = frexp(fixed)
    # Numbers below a power of 2 are spaced half as far apart as those above it.
    lower = (mantissa.abs() == 0.5) & (way * fixed < 0)
    step = (exponent.double() - digits - lower.double()).exp2().clamp(min=smallest)
    moved = _gt.where(fixed == 0, x + way * smallest, x + way * step)
    moved = _gt.where(fixed.isinf() & (way != 0), -way * _LARGEST[input.dtype], moved)
    return _gt.where(towards.isnan(), math.nan, moved).to(input.dtype)


def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """A copy in which numbers replace NaN and infinities.

    Args:
        input: A tensor.
        nan: The number for NaN.
        posinf: The number for positive infinity; the largest of the dtype if not given.
        neginf: The number for negative infinity; the smallest of the dtype if not given.

    Example:
        >>> gt.nan_to_num(gt.tensor([float("nan"), float("inf"), 1.0]), posinf=100.0)
        tensor([  0., 100.,   1.])
    """
    if not input.is_floating_point():
        return input.clone()
    largest = _LARGEST[input.dtype]
    result = _gt.where(input.isnan(), 0.0 if nan is None else nan, input)
    result = _gt.where(input == math.inf, largest if posinf is None else posinf, result)
    return _gt.where(input == -math.inf, -largest if neginf is None else neginf, result)


def sinc(input: Tensor) -> Tensor:
    """The normalized sinc function: sin(pi * x) / (pi * x), and 1 at 0.

    Example:
        >>> gt.sinc(gt.tensor([0.0, 0.5, 1.5]))
        tensor([ 1.0000,  0.6366, -0.2122])
    """
    angle = _floating(input) * math.pi
    zero = angle == 0
    filled = _gt.where(zero, 1.0, angle)
    return _gt.where(zero, 1.0, filled.sin() / filled)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """The inverse of the sigmoid: ln(x / (1 - x)).

    Args:
        input: A tensor of probabilities.
        eps: Elements are first limited to `eps <= x <= 1 - eps`, if given.

    Example:
        >>> gt.logit(gt.tensor([0.1, 0.5, 0.9]))
        tensor([-2.1972,  0.0000,  2.1972])
    """
    x = _floating(input)
    if eps is not None:
        # The lower bound wins where it is above the upper one.
        x = _gt.where(x < eps, eps, x.clamp(max=1 - eps))
    return (x / (1 - x)).log()


def polygamma(n: int, input: Tensor) -> Tensor:
    """The polygamma function: the `n`-th derivative of `digamma`.

    Example:
        >>> gt.polygamma(1, gt.tensor([1.0, 2.0]))
        tensor([1.6449, 0.6449])
    """
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if n == 0:
        return input.digamma()
    sign = 1 if n % 2 else -1
    return ROWS["zeta"](_gt.full((), float(n + 1), dtype=_floating(input).dtype), input) * float(
        sign * math.factorial(n)
    )


def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """The polygamma function: the `n`-th derivative of `digamma`."""
    return polygamma(n, self)


def _polygamma_in_place(self: Tensor, n: int) -> Tensor:
    """In-place `polygamma`: writes the result to this tensor, and returns this tensor."""
    return self._rebind(polygamma(n, self))


_polygamma_method.__name__, _polygamma_in_place.__name__ = "polygamma", "polygamma_"


def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension `p`.

    Example:
        >>> gt.mvlgamma(gt.tensor([2.0, 3.0]), p=2)
        tensor([0.4516, 1.5502])
    """
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    x = _floating(input)
    total = x.lgamma() + p * (p - 1) / 4 * math.log(math.pi)
    for j in range(1, p):
        total = total + (x - j / 2).lgamma()
    return total


# `gt.special` alone --------------------------------------------------------------------------------------------------


def entr(input: Tensor) -> Tensor:
    """The entropy of each element: -x * ln(x), 0 at 0, and minus infinity for negative numbers.

    Example:
        >>> gt.special.entr(gt.tensor([0.25, 0.5]))
        tensor([0.3466, 0.3466])
    """
    x = _floating(input)
    return _gt.where(x < 0, -math.inf, -ROWS["xlogy"](x, x.clamp(min=0)))


def ndtr(input: Tensor) -> Tensor:
    """The distribution function of the standard normal distribution.

    Example:
        >>> gt.special.ndtr(gt.tensor([-2.0, 0.0, 2.0]))
        tensor([0.0228, 0.5000, 0.9772])
    """
    return (_floating(input) * -math.sqrt(0.5)).erfc() * 0.5


def xlog1py(input: Tensor | complex, other: Tensor | complex) -> Tensor:
    """`input * ln(1 + other)`, and 0 where `input` is 0, unless `other` is NaN.

    Example:
        >>> gt.special.xlog1py(gt.tensor([0.0, 2.0]), gt.tensor([-1.0, 1.0]))
        tensor([0.0000, 1.3863])
    """
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError("special_xlog1py(): one of the arguments must be a Tensor")
    x, y = (t if isinstance(t, Tensor) else _gt.as_tensor(t) for t in (input, other))
    log = y.log1p()
    zero = (x == 0) & ~y.isnan()
    return _gt.where(zero, 0.0, x * _gt.where(zero, 0.0, log))


def spherical_bessel_j0(input: Tensor) -> Tensor:
    """The spherical Bessel function of the first kind of order 0: sin(x) / x, and 1 at 0. No gradient, as in PyTorch.

    Example:
        >>> gt.special.spherical_bessel_j0(gt.tensor([0.0, 1.0]))
        tensor([1.0000, 0.8415])
    """
    x = _floating(input).detach()
    return _gt.where(x.isinf(), 0.0, _gt.where(x == 0, 1.0, x.sin() / x))


METHODS = (
    deg2rad,
    rad2deg,
    frac,
    positive,
    isposinf,
    isneginf,
    isreal,
    heaviside,
    ldexp,
    frexp,
    nan_to_num,
    sinc,
    logit,
    mvlgamma,
)
IN_PLACE = (
    deg2rad,
    rad2deg,
    frac,
    heaviside,
    ldexp,
    nan_to_num,
    sinc,
    logit,
    mvlgamma,
)
TENSOR_METHODS = (
    _polygamma_method,
    _polygamma_in_place,
)
FUNCTIONS = (polygamma,)
