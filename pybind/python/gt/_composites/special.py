"""Elementwise functions of a few steps: of angles, of number formats, and of mathematics' special ones."""

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
    """Angles in degrees, in radians."""
    return _floating(input) * (math.pi / 180)


def rad2deg(input: Tensor) -> Tensor:
    """Angles in radians, in degrees."""
    return _floating(input) * (180 / math.pi)


def frac(input: Tensor) -> Tensor:
    """Each element less its whole part, with its sign."""
    check_floating("frac", input)
    return input - input.trunc()


def positive(input: Tensor) -> Tensor:
    """The tensor itself; bools have no sign."""
    if input.dtype == _gt.bool:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


def isposinf(input: Tensor) -> Tensor:
    """Whether each element is positive infinity."""
    return input == math.inf if input.is_floating_point() else _gt.zeros_like(input, dtype=_gt.bool)


def isneginf(input: Tensor) -> Tensor:
    """Whether each element is negative infinity."""
    return input == -math.inf if input.is_floating_point() else _gt.zeros_like(input, dtype=_gt.bool)


def isreal(input: Tensor) -> Tensor:
    """Whether each element is a real number: all are."""
    return _gt.ones_like(input, dtype=_gt.bool)


def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 below 0, 1 above it, and `values` at 0."""
    check_tensor("heaviside", "values", 2, values)
    if input.dtype != values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return _gt.where(input.detach() == 0, values.detach(), (input.detach() > 0).to(input.dtype))


def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """`input` times 2 to the power of `other`."""
    check_tensor("ldexp", "other", 2, other)
    power = _floating(other).exp2()
    return input * (power.to(input.dtype) if input.is_floating_point() and not other.is_floating_point() else power)


def frexp(input: Tensor) -> MantissaExponent:
    """Mantissas from 1/2 up to 1, and the powers of 2 (as int32) that they are to be multiplied by."""
    if not input.is_floating_point():
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    wide = input.detach().double()
    ordinary = wide.isfinite() & (wide != 0)
    exponent = _gt.where(ordinary, wide.abs().log2().floor() + 1, 0.0)
    # The logarithm may have been rounded to the next whole number, either way.
    mantissa = _scaled(wide, -exponent).abs()
    exponent = exponent + (ordinary & (mantissa >= 1)).double() - (ordinary & (mantissa < 0.5)).double()
    return MantissaExponent(_scaled(input.double(), -exponent).to(input.dtype), exponent.int())


def _scaled(t: Tensor, exponent: Tensor) -> Tensor:
    """`t` times 2 to the power of whole numbers, in two steps: at once the power may be out of range."""
    half = (exponent / 2).floor()
    return t * half.exp2() * (exponent - half).exp2()


# How many digits a number has, the leading one that is not stored included, and the smallest number.
_SPACING = {_gt.float16: (11, 2.0**-24), _gt.bfloat16: (8, 2.0**-133)}


def next_half(input: Tensor, other: Tensor) -> Tensor:
    """`nextafter` of float16 and bfloat16, in float64, which has all that is between them too."""
    digits, smallest = _SPACING[input.dtype]
    x, towards = input.double(), other.detach().double()
    fixed = x.detach()
    way = (towards > fixed).double() - (towards < fixed).double()
    mantissa, exponent = frexp(fixed)
    # Below a power of 2 numbers are half as far apart as above it.
    lower = (mantissa.abs() == 0.5) & (way * fixed < 0)
    step = (exponent.double() - digits - lower.double()).exp2().clamp(min=smallest)
    moved = _gt.where(fixed == 0, x + way * smallest, x + way * step)
    moved = _gt.where(fixed.isinf() & (way != 0), -way * _LARGEST[input.dtype], moved)
    return _gt.where(towards.isnan(), math.nan, moved).to(input.dtype)


def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Numbers in place of NaN and of infinities: the dtype's largest, unless others are given."""
    if not input.is_floating_point():
        return input.clone()
    largest = _LARGEST[input.dtype]
    result = _gt.where(input.isnan(), 0.0 if nan is None else nan, input)
    result = _gt.where(input == math.inf, largest if posinf is None else posinf, result)
    return _gt.where(input == -math.inf, -largest if neginf is None else neginf, result)


def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), and 1 at 0."""
    angle = _floating(input) * math.pi
    zero = angle == 0
    filled = _gt.where(zero, 1.0, angle)
    return _gt.where(zero, 1.0, filled.sin() / filled)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """The logarithm of x / (1 - x); with `eps`, of x kept from `eps` to `1 - eps`."""
    x = _floating(input)
    if eps is not None:
        # The lower bound goes first where both cross.
        x = _gt.where(x < eps, eps, x.clamp(max=1 - eps))
    return (x / (1 - x)).log()


def polygamma(n: int, input: Tensor) -> Tensor:
    """The `n`-th derivative of `digamma`."""
    if n < 0:
        raise RuntimeError("polygamma(n, x) does not support negative n.")
    if n == 0:
        return input.digamma()
    sign = 1 if n % 2 else -1
    return ROWS["zeta"](_gt.full((), float(n + 1), dtype=_floating(input).dtype), input) * float(
        sign * math.factorial(n)
    )


def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """The `n`-th derivative of `digamma`."""
    return polygamma(n, self)


def _polygamma_in_place(self: Tensor, n: int) -> Tensor:
    """`polygamma`, in place."""
    return self._rebind(polygamma(n, self))


_polygamma_method.__name__, _polygamma_in_place.__name__ = "polygamma", "polygamma_"


def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension `p`."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    x = _floating(input)
    total = x.lgamma() + p * (p - 1) / 4 * math.log(math.pi)
    for j in range(1, p):
        total = total + (x - j / 2).lgamma()
    return total


# `gt.special` alone --------------------------------------------------------------------------------------------------


def entr(input: Tensor) -> Tensor:
    """-x ln(x), 0 at 0, and minus infinity below it."""
    x = _floating(input)
    return _gt.where(x < 0, -math.inf, -ROWS["xlogy"](x, x.clamp(min=0)))


def ndtr(input: Tensor) -> Tensor:
    """The probability that a normal variable lies below."""
    return (_floating(input) * -math.sqrt(0.5)).erfc() * 0.5


def xlog1py(input: Tensor | complex, other: Tensor | complex) -> Tensor:
    """`input` times the logarithm of 1 + `other`; 0 where `input` is, unless `other` is NaN."""
    if not isinstance(input, Tensor) and not isinstance(other, Tensor):
        raise TypeError("special_xlog1py(): one of the arguments must be a Tensor")
    x, y = (t if isinstance(t, Tensor) else _gt.as_tensor(t) for t in (input, other))
    log = y.log1p()
    zero = (x == 0) & ~y.isnan()
    return _gt.where(zero, 0.0, x * _gt.where(zero, 0.0, log))


def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0: the spherical Bessel function of the first kind, of order 0. No gradient, as in PyTorch."""
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
