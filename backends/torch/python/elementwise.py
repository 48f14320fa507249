"""Elementwise ops, selections and conversions.

Operands are tensors of one dtype and numbers that were converted to it. Three decorators say how a function that is
not PyTorch's own deals with half precisions and numbers:

- `wide`: half precisions are computed in float32 and rounded once.
- `precise`: float32 is computed in float64 as well, where PyTorch's float32 is less accurate than GT's.
- `tensors`: numbers become tensors, for functions of PyTorch that take no numbers.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

import torch
from torch.nn import functional as F

from gt_torch.checks import nonzero_divisor

Operand = torch.Tensor | float | int | bool
Function = Callable[..., torch.Tensor]

HALF = {torch.float16, torch.bfloat16}
# By the codes of the wire.
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
aten = torch.ops.aten
# Apple's devices have no float64.
has_double = True
# The most terms of a series, and the steps of an integral, of `gamma_slope`.
GAMMA_TERMS_MAX, GAMMA_STEPS = 10_000, 1000


def first_tensor(operands: tuple[Operand, ...]) -> torch.Tensor:
    """Returns the first operand that is a tensor."""
    return next(x for x in operands if isinstance(x, torch.Tensor))


def as_tensors(operands: tuple[Operand, ...]) -> list[torch.Tensor]:
    """Returns the operands with tensors in place of numbers."""
    like = first_tensor(operands)
    return [
        x if isinstance(x, torch.Tensor) else torch.full((), x, dtype=like.dtype, device=like.device) for x in operands
    ]


def in_dtype(function: Function, compute: dict[torch.dtype, torch.dtype]) -> Function:
    """Returns the function with operands of some dtypes converted before it and the result converted back."""

    @functools.wraps(function)
    def converted(*operands: Operand) -> torch.Tensor:
        dtype = first_tensor(operands).dtype
        to = compute.get(dtype)
        if to is None:
            return function(*operands)
        result = function(*(x.to(to) if isinstance(x, torch.Tensor) else x for x in operands))
        return result.to(dtype) if result.dtype == to else result

    return converted


def wide(function: Function) -> Function:
    """Computes half precisions in float32."""
    return in_dtype(function, dict.fromkeys(HALF, torch.float32))


def precise(function: Function) -> Function:
    """Computes all but float64 in float64, or in float32 on a device without it."""
    compute = dict.fromkeys((*HALF, torch.float32), torch.float64)
    in_double, in_single = in_dtype(function, compute), wide(function)
    return functools.wraps(function)(lambda *operands: (in_double if has_double else in_single)(*operands))


def with_numbers(function: Function) -> Function:
    """Computes half precisions in float32 if one operand is a number, which takes part as a float32."""
    in_single = wide(function)

    def op(a: Operand, b: Operand) -> torch.Tensor:
        if a.__class__ is torch.Tensor and b.__class__ is torch.Tensor:
            return function(a, b)
        return (in_single if first_tensor((a, b)).dtype in HALF else function)(a, b)

    return op


def tensors(function: Function) -> Function:
    """Passes tensors in place of numbers."""

    @functools.wraps(function)
    def converted(*operands: Operand) -> torch.Tensor:
        return function(*as_tensors(operands))

    return converted


def divides(function: Function) -> Function:
    """Checks an integer divisor, and divides by -1 without the overflow that ends a process."""

    def divided(a: Operand, b: Operand) -> torch.Tensor:
        if first_tensor((a, b)).dtype.is_floating_point:
            return function(a, b)
        if first_tensor((a, b)).numel():
            b = nonzero_divisor(b)
        a, b = as_tensors((a, b))
        negates = b == -1 if b.dtype.is_signed else None
        if negates is None:
            return function(a, b)
        result = function(a, b.masked_fill(negates, 1))
        return torch.where(negates, -a if function is operator.floordiv else torch.zeros_like(a), result)

    return divided


def remainder(a: Operand, b: Operand) -> torch.Tensor:
    """Returns the remainder with the sign of the divisor; PyTorch's is NaN where the quotient overflows."""
    if not first_tensor((a, b)).dtype.is_floating_point:
        return a % b
    a, b = as_tensors((a, b))
    rest = torch.fmod(a, b)
    return torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@wide
def power(a: Operand, b: Operand) -> torch.Tensor:
    """Returns a to the power of b; an integer to a negative power is 0, or 1 or -1 of these."""
    if not first_tensor((a, b)).dtype.is_floating_point:
        a, b = as_tensors((a, b))
    return a**b


@precise
@tensors
def zeta(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the Hurwitz zeta function, with its limits where PyTorch's is NaN; a NaN stays."""
    found = torch.special.zeta(a, b)
    limit = torch.where(b > 1, 0.0, torch.where(b == 1, 1.0, torch.inf))
    found = torch.where(torch.isnan(found) & (a > 1) & (b > 0), limit, found)
    undefined = torch.isnan(a) | torch.isnan(b) | (a == torch.inf) & (b < 0) & (b != torch.floor(b))
    return found.masked_fill(undefined, torch.nan)


def lower_gamma_by_series(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Returns P(a, x) for a above 10 by its series (DLMF 8.11.4), with Stirling's formula for the factor before it."""
    error = (1 / 12 - (1 / 360 - 1 / (1260 * a * a)) / (a * a)) / a
    away = (x - a) / a
    factor = torch.exp(-a * (away - torch.log1p(away)) - error) / torch.sqrt(2 * math.pi * a)
    term, total = torch.ones_like(x), torch.ones_like(x)
    for n in range(1, GAMMA_TERMS_MAX):
        term = term * x / (a + n)
        total = total + term
        if n % 64 == 0 and not (term > total * 1e-17).any():
            break
    return factor * total


def incomplete_gamma(function: Function, is_lower: bool) -> Function:
    """Returns an incomplete gamma function; a NaN stays.

    PyTorch's has nine digits where x is near a large a, even in float64: a series computes those.
    """

    def op(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        found = function(a, x).masked_fill(torch.isnan(a) | torch.isnan(x), torch.nan)
        a, x = torch.broadcast_tensors(a, x)
        ratio = torch.abs(x - a) / a
        is_near = (a > 20) & (a < 5e5) & (ratio < torch.where(a < 200, 0.3, 4.5 / torch.sqrt(a)))
        if has_double and is_near.any():
            lower = lower_gamma_by_series(torch.where(is_near, a, 20), torch.where(is_near, x, 20))
            found = torch.where(is_near, lower if is_lower else 1 - lower, found)
        return found

    return precise(tensors(op))


@precise
@tensors
def gamma_slope(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Returns the derivative of a gamma sample x with respect to its shape a (Figurnov et al. 2018).

    PyTorch's own has three digits. This sums the series of P(a, x) and of its derivative; in the upper tail, where the
    terms cancel, it integrates (ln(x + s) - digamma(a)) (1 + s / x)^(a - 1) e^-s over s by Simpson's rule.
    """
    a, x = torch.broadcast_tensors(a, x)
    term, total = torch.ones_like(x), torch.ones_like(x)
    harmonic, slopes = torch.zeros_like(x), torch.zeros_like(x)
    tail = x > a + 6 * torch.sqrt(a) + 6
    summed = torch.where(tail | (a > 1e6), 1.0, x)
    for n in range(1, GAMMA_TERMS_MAX):
        term = term * summed / (a + n)
        harmonic = harmonic + 1 / (a + n)
        total, slopes = total + term, slopes + term * harmonic
        if n % 64 == 0 and not (term * (harmonic + 1) >= (total + slopes) * 1e-17).any():
            break
    result = (slopes - total * (torch.log(x) - torch.digamma(a + 1))) * x / a
    if tail.any():
        end = 45 * x / (x - a + 1).clamp(min=1)
        step, mean, area = end / GAMMA_STEPS, torch.digamma(a), torch.zeros_like(x)
        for i in range(GAMMA_STEPS + 1):
            s = step * i
            height = (torch.log(x + s) - mean) * torch.exp((a - 1) * torch.log1p(s / x) - s)
            area = area + height * (1 if i in (0, GAMMA_STEPS) else 4 if i % 2 else 2)
        result = torch.where(tail, area * step / 3, result)
    result = torch.where(a > 1e6, 1 + (x - a) / (2 * a), result)
    return torch.where((a > 0) & (x > 0) & ~torch.isinf(a) & ~torch.isinf(x), result, torch.nan)


@wide
def addcmul(a: Operand, b: Operand, c: Operand) -> torch.Tensor:
    """Returns a + b * c."""
    return a + b * c


@wide
def lerp(a: Operand, b: Operand, c: Operand) -> torch.Tensor:
    """Returns the interpolation from a to b at c."""
    return torch.lerp(*as_tensors((a, b, c)))


@wide
def mean_square_step(a: Operand, b: Operand, c: Operand) -> torch.Tensor:
    """Returns the moving average of squares."""
    return (1 - c) * a + c * (b * b)


@wide
def scaled_step(a: Operand, b: Operand, c: Operand) -> torch.Tensor:
    """Returns a / (sqrt(b) + c)."""
    return a / ((torch.sqrt(b) if isinstance(b, torch.Tensor) else math.sqrt(b)) + c)


def gcd(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the greatest common divisor, in int64: the absolute value of the least integer needs one bit more."""
    return torch.gcd(a.long(), b.long()).abs().to(a.dtype)


def lcm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns the least common multiple, which wraps."""
    divisor = gcd(a, b).long()
    zero = divisor == 0
    multiple = torch.div(a.long(), divisor.masked_fill(zero, 1), rounding_mode="trunc") * b.long()
    return multiple.masked_fill(zero, 0).to(a.dtype).abs()


def clamp(a: Operand, low: Operand, high: Operand) -> torch.Tensor:
    """Returns a between two bounds; a NaN stays."""
    a, low, high = as_tensors((a, low, high))
    return torch.minimum(torch.maximum(a, low), high)


def gelu(a: torch.Tensor) -> torch.Tensor:
    """Returns gelu; of oneDNN's, which PyTorch uses on the processor, infinity is NaN."""
    if a.device.type != "cpu":
        return F.gelu(a)
    with torch.backends.mkldnn.flags(enabled=False):
        return F.gelu(a)


@wide
@tensors
def gelu_backward(grad: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of gelu; PyTorch's function subtracts near numbers where a is below -2."""
    below = 0.5 * torch.erfc(a * -math.sqrt(0.5))
    return grad * (below + a * (torch.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)))


@wide
@tensors
def gelu_tanh_backward(grad: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of gelu_tanh, with (1 + tanh(u)) / 2 as a sigmoid, which subtracts nothing.

    Beyond the bounds the slope is 0 or 1, and a square could overflow.
    """
    a = a.clamp(-30, 30)
    square, k = a * a, math.sqrt(2 / math.pi)
    below = torch.sigmoid(2 * k * a * (1 + 0.044715 * square))
    return grad * (below + 2 * a * below * (1 - below) * k * (1 + 3 * 0.044715 * square))


@wide
@tensors
def silu_backward(grad: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of silu."""
    sigmoid = torch.sigmoid(a)
    return grad * (sigmoid * (1 + a * (1 - sigmoid)))


@wide
@tensors
def hardswish_backward(grad: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of hardswish, whose slope at NaN is 1."""
    return grad * torch.where(a <= -3, 0.0, torch.where(a < 3, a / 3 + 0.5, 1.0)).to(grad.dtype)


@tensors
def relu_backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Returns the gradient where relu's result is positive or NaN."""
    return torch.where(output <= 0, torch.zeros((), dtype=grad.dtype, device=grad.device), grad)


def where(condition: torch.Tensor, a: Operand, b: Operand, dtype: int) -> torch.Tensor:
    """Returns a where the condition holds, else b."""
    if not isinstance(a, torch.Tensor) and not isinstance(b, torch.Tensor):
        a = torch.full((), a, dtype=DTYPES[dtype], device=condition.device)
    return torch.where(condition, a, b)


def cast(a: torch.Tensor, dtype: int) -> torch.Tensor:
    """Returns the elements in another dtype, in memory of their own."""
    return a.to(DTYPES[dtype], copy=True)


def flexible(function: Function) -> Function:
    """Calls PyTorch's function with a number only where it takes one, as its second argument."""
    of_tensors = tensors(function)
    return functools.wraps(function)(lambda a, b: function(a, b) if isinstance(a, torch.Tensor) else of_tensors(a, b))


OPS: dict[str, Function] = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log2": torch.log2,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "pow": power,
    "logaddexp": wide(tensors(torch.logaddexp)),
    "logaddexp2": wide(tensors(torch.logaddexp2)),
    "xlogy": wide(tensors(torch.xlogy)),
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "atan2": wide(tensors(torch.atan2)),
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erfcx": precise(torch.special.erfcx),
    "erfinv": precise(torch.erfinv),
    "ndtri": precise(torch.special.ndtri),
    "log_ndtr": precise(torch.special.log_ndtr),
    "lgamma": precise(torch.lgamma),
    "digamma": precise(torch.digamma),
    "zeta": zeta,
    "gammainc": incomplete_gamma(torch.special.gammainc, True),
    "gammaincc": incomplete_gamma(torch.special.gammaincc, False),
    "gamma_slope": gamma_slope,
    "i0": precise(lambda a: torch.where(torch.isinf(a), torch.abs(a), torch.special.i0(a))),
    "i0e": precise(torch.special.i0e),
    "i1": precise(lambda a: torch.where(torch.isinf(a), a, torch.special.i1(a))),
    "i1e": precise(torch.special.i1e),
    "add": with_numbers(operator.add),
    "sub": with_numbers(operator.sub),
    "mul": with_numbers(operator.mul),
    "div": with_numbers(operator.truediv),
    "floor_divide": wide(divides(operator.floordiv)),
    "remainder": precise(divides(remainder)),
    "fmod": precise(divides(flexible(torch.fmod))),
    "addcmul": addcmul,
    "lerp": lerp,
    "neg": torch.neg,
    "abs": torch.abs,
    "sign": torch.sign,
    "copysign": tensors(torch.copysign),
    "reciprocal": torch.reciprocal,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "minimum": tensors(torch.minimum),
    "maximum": tensors(torch.maximum),
    "fmin": tensors(torch.fmin),
    "fmax": tensors(torch.fmax),
    "clamp": clamp,
    "nextafter": tensors(torch.nextafter),
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "isfinite": torch.isfinite,
    "signbit": torch.signbit,
    "logical_not": torch.logical_not,
    "logical_and": tensors(torch.logical_and),
    "logical_or": tensors(torch.logical_or),
    "logical_xor": tensors(torch.logical_xor),
    "bitwise_not": torch.bitwise_not,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "bitwise_left_shift": operator.lshift,
    "bitwise_right_shift": operator.rshift,
    "gcd": tensors(gcd),
    "lcm": tensors(lcm),
    "relu": torch.relu,
    "relu_backward": relu_backward,
    "sigmoid": torch.sigmoid,
    "gelu": wide(gelu),
    "gelu_backward": gelu_backward,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "gelu_tanh_backward": gelu_tanh_backward,
    "silu": wide(F.silu),
    "silu_backward": silu_backward,
    "hardswish": wide(F.hardswish),
    "hardswish_backward": hardswish_backward,
    "mean_square_step": mean_square_step,
    "scaled_step": scaled_step,
    "where": where,
    "cast": cast,
}
