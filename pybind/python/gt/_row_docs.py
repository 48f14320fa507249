"""Docstrings of the elementwise functions, made of the op table's facts and of the formulas and examples here.

A row's `doc` is the first line. `document` adds the formula, the arguments, the result and the example.
"""

from __future__ import annotations

from typing import Any

# A name with its formula, and calls with what they give.
_TEXT = """\
exp: e ** input
    >>> gt.exp(gt.tensor([0.0, 1.0, 2.0]))
    tensor([1.0000, 2.7183, 7.3891])

log: ln(input)
    >>> gt.log(gt.tensor([1.0, 2.71828, 10.0]))
    tensor([0.0000, 1.0000, 2.3026])

sqrt: input ** 0.5
    >>> gt.sqrt(gt.tensor([1.0, 2.0, 9.0]))
    tensor([1.0000, 1.4142, 3.0000])

rsqrt: 1 / sqrt(input)
    >>> gt.rsqrt(gt.tensor([1.0, 4.0, 16.0]))
    tensor([1.0000, 0.5000, 0.2500])

sin: sin(input)
    >>> gt.sin(gt.tensor([0.0, 0.5, 1.0]))
    tensor([0.0000, 0.4794, 0.8415])

cos: cos(input)
    >>> gt.cos(gt.tensor([0.0, 0.5, 1.0]))
    tensor([1.0000, 0.8776, 0.5403])

tanh: (exp(input) - exp(-input)) / (exp(input) + exp(-input))
    >>> gt.tanh(gt.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.7616,  0.0000,  0.7616])

sigmoid: 1 / (1 + exp(-input))
    >>> gt.sigmoid(gt.tensor([-2.0, 0.0, 2.0]))
    tensor([0.1192, 0.5000, 0.8808])

erf: 2 / sqrt(pi) * integral of exp(-t ** 2) over t from 0 to input
    >>> gt.erf(gt.tensor([0.0, 0.5, 1.0]))
    tensor([0.0000, 0.5205, 0.8427])

gelu: input * Phi(input)
    >>> gt.gelu(gt.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])

gelu_tanh: 0.5 * input * (1 + tanh(sqrt(2 / pi) * (input + 0.044715 * input ** 3)))
    >>> gt.gelu_tanh(gt.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1588,  0.0000,  0.8412])

reciprocal: 1 / input
    >>> gt.reciprocal(gt.tensor([1.0, 2.0, 4.0]))
    tensor([1.0000, 0.5000, 0.2500])

expm1: exp(input) - 1
    >>> gt.expm1(gt.tensor([0.0, 0.5, 1.0]))
    tensor([0.0000, 0.6487, 1.7183])

log1p: ln(1 + input)
    >>> gt.log1p(gt.tensor([0.0, 0.5, 1.0]))
    tensor([0.0000, 0.4055, 0.6931])

tan: tan(input)
    >>> gt.tan(gt.tensor([0.0, 0.5, 1.0]))
    tensor([0.0000, 0.5463, 1.5574])

asin: arcsin(input)
    >>> gt.asin(gt.tensor([-1.0, 0.0, 0.5]))
    tensor([-1.5708,  0.0000,  0.5236])

acos: arccos(input)
    >>> gt.acos(gt.tensor([-1.0, 0.0, 0.5]))
    tensor([3.1416, 1.5708, 1.0472])

atan: arctan(input)
    >>> gt.atan(gt.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.7854,  0.0000,  0.7854])

sinh: (exp(input) - exp(-input)) / 2
    >>> gt.sinh(gt.tensor([-1.0, 0.0, 1.0]))
    tensor([-1.1752,  0.0000,  1.1752])

cosh: (exp(input) + exp(-input)) / 2
    >>> gt.cosh(gt.tensor([-1.0, 0.0, 1.0]))
    tensor([1.5431, 1.0000, 1.5431])

asinh: arcsinh(input)
    >>> gt.asinh(gt.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.8814,  0.0000,  0.8814])

acosh: arccosh(input)
    >>> gt.acosh(gt.tensor([1.0, 2.0, 3.0]))
    tensor([0.0000, 1.3170, 1.7627])

atanh: arctanh(input)
    >>> gt.atanh(gt.tensor([-0.5, 0.0, 0.5]))
    tensor([-0.5493,  0.0000,  0.5493])

log2: log2(input)
    >>> gt.log2(gt.tensor([1.0, 2.0, 10.0]))
    tensor([0.0000, 1.0000, 3.3219])

log10: log10(input)
    >>> gt.log10(gt.tensor([1.0, 10.0, 1000.0]))
    tensor([0., 1., 3.])

exp2: 2 ** input
    >>> gt.exp2(gt.tensor([0.0, 1.0, 3.5]))
    tensor([ 1.0000,  2.0000, 11.3137])

erfc: 1 - erf(input)
    >>> gt.erfc(gt.tensor([0.0, 0.5, 5.0]))
    tensor([1.0000e+00, 4.7950e-01, 1.5375e-12])

erfinv: y with erf(y) = input
    >>> gt.erfinv(gt.tensor([-0.5, 0.0, 0.5]))
    tensor([-0.4769,  0.0000,  0.4769])

lgamma: ln |Gamma(input)|
    >>> gt.lgamma(gt.tensor([0.5, 3.0, 5.0]))
    tensor([0.5724, 0.6931, 3.1781])

digamma: d/dx ln Gamma(x) at input
    >>> gt.digamma(gt.tensor([0.5, 1.0, 5.0]))
    tensor([-1.9635, -0.5772,  1.5061])

i0: I_0(input)
    >>> gt.i0(gt.tensor([0.0, 1.0, 2.0]))
    tensor([1.0000, 1.2661, 2.2796])

i0e: exp(-|input|) * I_0(input)
    >>> gt.special.i0e(gt.tensor([0.0, 1.0, 2.0]))
    tensor([1.0000, 0.4658, 0.3085])

i1: I_1(input)
    >>> gt.special.i1(gt.tensor([0.0, 1.0, 2.0]))
    tensor([0.0000, 0.5652, 1.5906])

i1e: exp(-|input|) * I_1(input)
    >>> gt.special.i1e(gt.tensor([0.0, 1.0, 2.0]))
    tensor([0.0000, 0.2079, 0.2153])

ndtri: y with Phi(y) = input
    >>> gt.special.ndtri(gt.tensor([0.025, 0.5, 0.975]))
    tensor([-1.9600, -0.0000,  1.9600])

log_ndtr: ln Phi(input)
    >>> gt.special.log_ndtr(gt.tensor([-10.0, 0.0, 2.0]))
    tensor([-5.3231e+01, -6.9315e-01, -2.3013e-02])

erfcx: exp(input ** 2) * (1 - erf(input))
    >>> gt.special.erfcx(gt.tensor([0.0, 1.0, 10.0]))
    tensor([1.0000, 0.4276, 0.0561])

atan2: arctan2(input, other)
    >>> gt.atan2(gt.tensor([1.0, 1.0, -1.0]), gt.tensor([1.0, -1.0, -1.0]))
    tensor([ 0.7854,  2.3562, -2.3562])

logaddexp: ln(exp(input) + exp(other))
    >>> gt.logaddexp(gt.tensor([0.0, 1000.0]), gt.tensor([0.0, 1000.0]))
    tensor([6.9315e-01, 1.0007e+03])

logaddexp2: log2(2 ** input + 2 ** other)
    >>> gt.logaddexp2(gt.tensor([0.0, 1000.0]), gt.tensor([0.0, 1000.0]))
    tensor([1.0000e+00, 1.0010e+03])

xlogy: input * ln(other), and 0 where input is 0
    >>> gt.xlogy(gt.tensor([0.0, 1.0, 2.0]), gt.tensor([0.0, 2.0, 3.0]))
    tensor([0.0000, 0.6931, 2.1972])

copysign: |input| with the sign of other
    >>> gt.copysign(gt.tensor([1.0, -2.0]), gt.tensor([-0.0, 3.0]))
    tensor([-1.,  2.])

nextafter: the neighbour of input in the direction of other
    >>> gt.nextafter(gt.tensor([1.0]), gt.tensor([2.0])) > 1
    tensor([True])

zeta: sum of (other + k) ** -input over k = 0, 1, 2, …
    >>> gt.special.zeta(gt.tensor([2.0, 4.0]), gt.tensor([1.0, 1.0]))
    tensor([1.6449, 1.0823])

gammainc: integral of t ** (input - 1) * exp(-t) over t from 0 to other, divided by Gamma(input)
    >>> gt.special.gammainc(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 1.0]))
    tensor([0.6321, 0.2642])

gammaincc: integral of t ** (input - 1) * exp(-t) over t from other to infinity, divided by Gamma(input)
    >>> gt.special.gammaincc(gt.tensor([1.0, 2.0]), gt.tensor([1.0, 1.0]))
    tensor([0.3679, 0.7358])

div: input / other
    >>> gt.div(gt.tensor([7, -7]), 2)
    tensor([ 3.5000, -3.5000])
    >>> gt.div(gt.tensor([7, -7]), 2, rounding_mode="floor")
    tensor([ 3, -4])

lerp: input + weight * (end - input)
    >>> gt.lerp(gt.tensor([0.0, 10.0]), gt.tensor([1.0, 20.0]), 0.25)
    tensor([ 0.2500, 12.5000])

neg: -input
    >>> gt.neg(gt.tensor([1.0, -2.0, 0.5]))
    tensor([-1.0000,  2.0000, -0.5000])

abs: |input|
    >>> gt.abs(gt.tensor([-1.5, 0.0, 2.0]))
    tensor([1.5000, 0.0000, 2.0000])

sign: -1 where input < 0, 0 where input is 0, 1 where input > 0
    >>> gt.sign(gt.tensor([-3.0, 0.0, 2.0]))
    tensor([-1.,  0.,  1.])

relu: max(input, 0)
    >>> gt.relu(gt.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])

floor: floor(input)
    >>> gt.floor(gt.tensor([-1.5, 0.2, 2.0]))
    tensor([-2.,  0.,  2.])

ceil: ceil(input)
    >>> gt.ceil(gt.tensor([-1.5, 0.2, 2.0]))
    tensor([-1.,  1.,  2.])

round: the integer nearest to input
    >>> gt.round(gt.tensor([0.5, 1.5, -2.7]))
    tensor([ 0.,  2., -3.])
    >>> gt.round(gt.tensor([1.2345]), decimals=2)
    tensor([1.2300])

trunc: input without its fractional part
    >>> gt.trunc(gt.tensor([-1.7, 0.2, 2.9]))
    tensor([-1.,  0.,  2.])

add: input + alpha * other
    >>> gt.add(gt.tensor([1.0, 2.0]), 10)
    tensor([11., 12.])
    >>> gt.add(gt.tensor([1.0, 2.0]), gt.tensor([[1.0], [2.0]]), alpha=10)
    tensor([[11., 12.],
            [21., 22.]])

sub: input - alpha * other
    >>> gt.sub(gt.tensor([1.0, 2.0]), gt.tensor([0.5, 0.5]))
    tensor([0.5000, 1.5000])

mul: input * other
    >>> gt.mul(gt.tensor([[1.0], [2.0]]), gt.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])

floor_divide: floor(input / other)
    >>> gt.floor_divide(gt.tensor([7, -7]), 2)
    tensor([ 3, -4])

remainder: input - floor(input / other) * other
    >>> gt.remainder(gt.tensor([7, -7]), 3)
    tensor([1, 2])

pow: input ** other
    >>> gt.pow(gt.tensor([1.0, 2.0, 3.0]), 2)
    tensor([1., 4., 9.])

minimum: min(input, other)
    >>> gt.minimum(gt.tensor([1.0, 5.0]), gt.tensor([2.0, 3.0]))
    tensor([1., 3.])

maximum: max(input, other)
    >>> gt.maximum(gt.tensor([1.0, 5.0]), gt.tensor([2.0, 3.0]))
    tensor([2., 5.])

fmod: input - trunc(input / other) * other
    >>> gt.fmod(gt.tensor([7, -7]), 3)
    tensor([ 1, -1])

fmin: min(input, other), ignoring NaN
    >>> gt.fmin(gt.tensor([1.0, float("nan")]), gt.tensor([2.0, 3.0]))
    tensor([1., 3.])

fmax: max(input, other), ignoring NaN
    >>> gt.fmax(gt.tensor([1.0, float("nan")]), gt.tensor([2.0, 3.0]))
    tensor([2., 3.])

addcmul: input + value * tensor1 * tensor2
    >>> gt.addcmul(gt.tensor([1.0, 1.0]), gt.tensor([1.0, 2.0]), gt.tensor([3.0, 4.0]), value=0.5)
    tensor([2.5000, 5.0000])

bitwise_not: ~input
    >>> gt.bitwise_not(gt.tensor([0, 1, -3]))
    tensor([-1, -2,  2])

bitwise_and: input & other
    >>> gt.bitwise_and(gt.tensor([6, 5]), 3)
    tensor([2, 1])

bitwise_or: input | other
    >>> gt.bitwise_or(gt.tensor([6, 5]), 3)
    tensor([7, 7])

bitwise_xor: input ^ other
    >>> gt.bitwise_xor(gt.tensor([6, 5]), 3)
    tensor([5, 6])

bitwise_left_shift: input << other
    >>> gt.bitwise_left_shift(gt.tensor([1, 3]), 2)
    tensor([ 4, 12])

bitwise_right_shift: input >> other
    >>> gt.bitwise_right_shift(gt.tensor([8, -8]), 2)
    tensor([ 2, -2])

gcd: gcd(input, other)
    >>> gt.gcd(gt.tensor([12, 18]), gt.tensor([8, 27]))
    tensor([4, 9])

lcm: lcm(input, other)
    >>> gt.lcm(gt.tensor([4, 6]), gt.tensor([6, 10]))
    tensor([12, 30])

logical_not: not input
    >>> gt.logical_not(gt.tensor([0, 1, 2]))
    tensor([ True, False, False])

isnan: input != input
    >>> gt.isnan(gt.tensor([1.0, float("nan"), float("inf")]))
    tensor([False,  True, False])

isinf: |input| == inf
    >>> gt.isinf(gt.tensor([1.0, float("nan"), -float("inf")]))
    tensor([False, False,  True])

isfinite: |input| < inf
    >>> gt.isfinite(gt.tensor([1.0, float("nan"), float("inf")]))
    tensor([ True, False, False])

signbit: the sign bit of input
    >>> gt.signbit(gt.tensor([1.0, -0.0, -2.0]))
    tensor([False,  True,  True])

eq: input == other
    >>> gt.eq(gt.tensor([1, 2, 3]), gt.tensor([1, 3, 3]))
    tensor([ True, False,  True])

ne: input != other
    >>> gt.ne(gt.tensor([1, 2, 3]), 2)
    tensor([ True, False,  True])

lt: input < other
    >>> gt.lt(gt.tensor([1, 2, 3]), 2)
    tensor([ True, False, False])

le: input <= other
    >>> gt.le(gt.tensor([1, 2, 3]), 2)
    tensor([ True,  True, False])

gt: input > other
    >>> gt.gt(gt.tensor([1, 2, 3]), 2)
    tensor([False, False,  True])

ge: input >= other
    >>> gt.ge(gt.tensor([1, 2, 3]), 2)
    tensor([False,  True,  True])

logical_and: input and other
    >>> gt.logical_and(gt.tensor([0, 1, 2]), gt.tensor([1, 1, 0]))
    tensor([False,  True, False])

logical_or: input or other
    >>> gt.logical_or(gt.tensor([0, 1, 0]), gt.tensor([1, 1, 0]))
    tensor([ True,  True, False])

logical_xor: input xor other
    >>> gt.logical_xor(gt.tensor([0, 1, 2]), gt.tensor([1, 1, 0]))
    tensor([ True, False,  True])
"""

_EXAMPLES: dict[str, list[str]] = {block.partition(":")[0]: block.splitlines() for block in _TEXT.split("\n\n")}

# Keyword arguments that `_ops` adds, and operands that have names of their own.
_ARGUMENTS = {
    "add": ["alpha: The factor of `other`."],
    "sub": ["alpha: The factor of `other`."],
    "div": [
        'rounding_mode: `None` divides exactly, `"trunc"` rounds the quotient towards zero and `"floor"` rounds it',
        "    down.",
    ],
    "gelu": ['approximate: `"none"`, or `"tanh"` for the approximation by tanh.'],
    "round": ["decimals: The number of decimal places; negative numbers round to tens, hundreds and so on."],
    "lerp": ["end: The value at weight 1.", "weight: The weight of `end`: a tensor or a number."],
    "addcmul": [
        "tensor1: The first factor.",
        "tensor2: The second factor.",
        "value: A number that multiplies the product.",
    ],
}
_OPERANDS = {1: "`input`", 2: "`input` and `other`", 3: "all operands"}
_FLOATS = {"float16", "bfloat16", "float32", "float64"}


def _input(row: dict[str, Any]) -> str:
    """The dtypes that the first operand may have."""
    accepted = set(row["accepts"])
    if row["promotion"] == "float":
        return "A tensor; bools and integers are converted to the default dtype."
    if not accepted & _FLOATS:
        return "A tensor of integers or bools." if "bool" in accepted else "A tensor of integers."
    return "A tensor of any dtype." if "bool" in accepted else "A tensor of any dtype but bool."


def document(row: dict[str, Any], tensors_only: bool) -> str:
    """The docstring of a row's function and method; `tensors_only` if no operand may be a number."""
    name, operands = row["name"], row["operands"]
    lines = [row["doc"], ""]
    formula, *example = _EXAMPLES.get(name, [""])
    if formula:
        lines += [f"    output = {formula.partition(': ')[2]}", ""]
    lines += ["Args:", f"    input: {_input(row)}"]
    if operands == 2:
        kind = "A tensor" if tensors_only else "A tensor or a number"
        lines.append(f"    other: {kind} that broadcasts with `input`; both are promoted to a common dtype.")
    lines += [f"    {line}" for line in _ARGUMENTS.get(name, ())]
    shape = "shape of `input`" if operands == 1 else f"shape that {_OPERANDS[operands]} broadcast to"
    dtype = ", of dtype bool" if row["result"] == "bool" else ""
    gradient = "" if row["differentiable"] else " It has no gradient."
    lines += ["", "Returns:", f"    A tensor of the {shape}{dtype}.{gradient}"]
    if example:
        lines += ["", "Example:", *example]
    return "\n".join(lines)
