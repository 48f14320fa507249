"""Bessel functions of real numbers, and the Airy function, of `gt.special`.

Near 0 and far from it each is a rational function or a Chebyshev series, by the coefficients of the Cephes Math Library
2.8 (Moshier 2000), which PyTorch and SciPy use, too; the trigonometric ones have Hankel's asymptotic form far from 0.
All are computed in float64, and rounded once for float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from gt import _core as gt
from gt import _out
from gt._functions import special
from gt._gt import Tensor
from gt.autograd.function import Function

__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
]

# Numerators and denominators of rational functions: the coefficients of the highest power come first.
_Rational = tuple[Sequence[float], Sequence[float]]

# J0(x) / ((x^2 - r1^2) (x^2 - r2^2)) by x^2 in [0, 25], where r1 and r2 are its first zeros; and their squares.
_J0: _Rational = (
    (-4.79443220978201773821e9, 1.95617491946556577543e12, -2.49248344360967716204e14, 9.70862251047306323952e15),
    (
        1.0, 4.99563147152651017219e2, 1.73785401676374683123e5, 4.84409658339962045305e7, 1.11855537045356834862e10,
        2.11277520115489217587e12, 3.10518229857422583814e14, 3.18121955943204943306e16, 1.71086294081043136091e18,
    ),
)  # fmt: skip
_J0_ZEROS = (5.78318596294678452118e0, 3.04712623436620863991e1)
# Y0(x) - 2 / pi * ln(x) * J0(x) by x^2 in [0, 25].
_Y0: _Rational = (
    (
        1.55924367855235737965e4, -1.46639295903971606143e7, 5.43526477051876500413e9, -9.82136065717911466409e11,
        8.75906394395366999549e13, -3.46628303384729719441e15, 4.42733268572569800351e16, -1.84950800436986690637e16,
    ),
    (
        1.0, 1.04128353664259848412e3, 6.26107330137134956842e5, 2.68919633393814121987e8, 8.64002487103935000337e10,
        2.02979612750105546709e13, 3.17157752842975028269e15, 2.50596256172653059228e17,
    ),
)  # fmt: skip
# The factors of the cosine and of the sine in Hankel's form of order 0, by 25 / x^2.
_P0: _Rational = (
    (
        7.96936729297347051624e-4, 8.28352392107440799803e-2, 1.23953371646414299388e0, 5.44725003058768775090e0,
        8.74716500199817011941e0, 5.30324038235394892183e0, 9.99999999999999997821e-1,
    ),
    (
        9.24408810558863637013e-4, 8.56288474354474431428e-2, 1.25352743901058953537e0, 5.47097740330417105182e0,
        8.76190883237069594232e0, 5.30605288235394617618e0, 1.00000000000000000218e0,
    ),
)  # fmt: skip
_Q0: _Rational = (
    (
        -1.13663838898469149931e-2, -1.28252718670509318512e0, -1.95539544257735972385e1, -9.32060152123768231369e1,
        -1.77681167980488050595e2, -1.47077505154951170175e2, -5.14105326766599330220e1, -6.05014350600728481186e0,
    ),
    (
        1.0, 6.43178256118178023184e1, 8.56430025976980587198e2, 3.88240183605401609683e3, 7.24046774195652478189e3,
        5.93072701187316984827e3, 2.06209331660327847417e3, 2.42005740240291393179e2,
    ),
)  # fmt: skip
# The same of order 1: J1(x) / (x (x^2 - r1^2) (x^2 - r2^2)), and (Y1(x) - 2 / pi (ln(x) J1(x) - 1 / x)) / x.
_J1: _Rational = (
    (-8.99971225705559398224e8, 4.52228297998194034323e11, -7.27494245221818276015e13, 3.68295732863852883286e15),
    (
        1.0, 6.20836478118054335476e2, 2.56987256757748830383e5, 8.35146791431949253037e7, 2.21511595479792499675e10,
        4.74914122079991414898e12, 7.84369607876235854894e14, 8.95222336184627338078e16, 5.32278620332680085395e18,
    ),
)  # fmt: skip
_J1_ZEROS = (1.46819706421238932572e1, 4.92184563216946036703e1)
_Y1: _Rational = (
    (
        1.26320474790178026440e9, -6.47355876379160291031e11, 1.14509511541823727583e14, -8.12770255501325109621e15,
        2.02439475713594898196e17, -7.78877196265950026825e17,
    ),
    (
        1.0, 5.94301592346128195359e2, 2.35564092943068577943e5, 7.34811944459721705660e7, 1.87601316108706159478e10,
        3.88231277496238566008e12, 6.20557727146953693363e14, 6.87141087355300489866e16, 3.97270608116560655612e18,
    ),
)  # fmt: skip
_P1: _Rational = (
    (
        7.62125616208173112003e-4, 7.31397056940917570436e-2, 1.12719608129684925192e0, 5.11207951146807644818e0,
        8.42404590141772420927e0, 5.21451598682361504063e0, 1.00000000000000000254e0,
    ),
    (
        5.71323128072548699714e-4, 6.88455908754495404082e-2, 1.10514232634061696926e0, 5.07386386128601488557e0,
        8.39985554327604159757e0, 5.20982848682361821619e0, 9.99999999999999997461e-1,
    ),
)  # fmt: skip
_Q1: _Rational = (
    (
        5.10862594750176621635e-2, 4.98213872951233449420e0, 7.58238284132545283818e1, 3.66779609360150777800e2,
        7.10856304998926107277e2, 5.97489612400613639965e2, 2.11688757100572135698e2, 2.52070205858023719784e1,
    ),
    (
        1.0, 7.42373277035675149943e1, 1.05644886038262816351e3, 4.98641058337653607651e3, 9.56231892404756170795e3,
        7.99704160447350683650e3, 2.82619278517639096600e3, 3.36093607810698293419e2,
    ),
)  # fmt: skip
# Chebyshev coefficients, those of the highest degree first: of K0(x) + ln(x / 2) I0(x) and x (K1(x) - ln(x / 2) I1(x))
# by x^2 - 2 in [-2, 2], and of exp(x) sqrt(x) K0(x) and exp(x) sqrt(x) K1(x) by 8 / x - 2.
_K0_NEAR = (
    1.37446543561352307156e-16, 4.25981614279661018399e-14, 1.03496952576338420167e-11, 1.90451637722020886025e-9,
    2.53479107902614945675e-7, 2.28621210311945178607e-5, 1.26461541144692592338e-3, 3.59799365153615016266e-2,
    3.44289899924628486886e-1, -5.35327393233902768720e-1,
)  # fmt: skip
_K0_FAR = (
    5.30043377268626276149e-18, -1.64758043015242134646e-17, 5.21039150503902756861e-17, -1.67823109680541210385e-16,
    5.51205597852431940784e-16, -1.84859337734377901440e-15, 6.34007647740507060557e-15, -2.22751332699166985548e-14,
    8.03289077536357521100e-14, -2.98009692317273043925e-13, 1.14034058820847496303e-12, -4.51459788337394416547e-12,
    1.85594911495471785253e-11, -7.95748924447710747776e-11, 3.57739728140030116597e-10, -1.69753450938905987466e-9,
    8.57403401741422608519e-9, -4.66048989768794782956e-8, 2.76681363944501510342e-7, -1.83175552271911948767e-6,
    1.39498137188764993662e-5, -1.28495495816278026384e-4, 1.56988388573005337491e-3, -3.14481013119645005427e-2,
    2.44030308206595545468e0,
)  # fmt: skip
_K1_NEAR = (
    -7.02386347938628759343e-18, -2.42744985051936593393e-15, -6.66690169419932900609e-13, -1.41148839263352776110e-10,
    -2.21338763073472585583e-8, -2.43340614156596823496e-6, -1.73028895751305206302e-4, -6.97572385963986435018e-3,
    -1.22611180822657148235e-1, -3.53155960776544875667e-1, 1.52530022733894777053e0,
)  # fmt: skip
_K1_FAR = (
    -5.75674448366501715755e-18, 1.79405087314755922667e-17, -5.68946255844285935196e-17, 1.83809354436663880070e-16,
    -6.05704724837331885336e-16, 2.03870316562433424052e-15, -7.01983709041831346144e-15, 2.47715442448130437068e-14,
    -8.97670518232499435011e-14, 3.34841966607842919884e-13, -1.28917396095102890680e-12, 5.13963967348173025100e-12,
    -2.12996783842756842877e-11, 9.21831518760500529508e-11, -4.19035475934189648750e-10, 2.01504975519703286596e-9,
    -1.03457624656780970260e-8, 5.74108412545004946722e-8, -3.50196060308781257119e-7, 2.40648494783721712015e-6,
    -1.93619797416608296024e-5, 1.95215518471351631108e-4, -2.85781685962277938680e-3, 1.03923736576817238437e-1,
    2.72062619048444266945e0,
)  # fmt: skip
# Ai(x) far from 0, by 1 / zeta or its square, where zeta = 2 / 3 |x|^(3 / 2): the factor of the exponential for
# positive numbers, and the factors of the sine, less 1, and of the cosine for negative ones.
_AI: _Rational = (
    (
        3.46538101525629032477e-1, 1.20075952739645805542e1, 7.62796053615234516538e1, 1.68089224934630576269e2,
        1.59756391350164413639e2, 7.05360906840444183113e1, 1.40264691163389668864e1, 9.99999999999999995305e-1,
    ),
    (
        5.67594532638770212846e-1, 1.47562562584847203173e1, 8.45138970141474626562e1, 1.77318088145400459522e2,
        1.64234692871529701831e2, 7.14778400825575695274e1, 1.40959135607834029598e1, 1.00000000000000000470e0,
    ),
)  # fmt: skip
_AI_SINE: _Rational = (
    (
        -1.31696323418331795333e-1, -6.26456544431912369773e-1, -6.93158036036933542233e-1, -2.79779981545119124951e-1,
        -4.91900132609500318020e-2, -4.06265923594885404393e-3, -1.59276496239262096340e-4, -2.77649108155232920844e-6,
        -1.67787698489114633780e-8,
    ),
    (
        1.0, 1.33560420706553243746e1, 3.26825032795224613948e1, 2.67367040941499554804e1, 9.18707402907259625840e0,
        1.47529146771666414581e0, 1.15687173795188044134e-1, 4.40291641615211203805e-3, 7.54720348287414296618e-5,
        4.51850092970580378464e-7,
    ),
)  # fmt: skip
_AI_COSINE: _Rational = (
    (
        1.97339932091685679179e-2, 3.91103029615688277255e-1, 1.06579897599595591108e0, 9.39169229816650230044e-1,
        3.51465656105547619242e-1, 6.33888919628925490927e-2, 5.85804113048388458567e-3, 2.82851600836737019778e-4,
        6.98793669997260967291e-6, 8.11789239554389293311e-8, 3.41551784765923618484e-10,
    ),
    (
        1.0, 9.30892908077441974853e0, 1.98352928718312140417e1, 1.55646628932864612953e1, 5.47686069422975497931e0,
        9.54293611618961883998e-1, 8.64580826352392193095e-2, 4.12656523824222607191e-3, 1.01259085116509135510e-4,
        1.17166733214413521882e-6, 4.91834570062930015649e-9,
    ),
)  # fmt: skip
# Ai(0), -Ai'(0), and the terms of their power series by x^3: enough of them for |x| below 2.09 in float64.
_AI_AT_0, _AI_SLOPE = 0.35502805388781723926, 0.258819403792806798405
_AI_TERMS_COUNT = 15
_AI_FAR, _AI_ZERO_FROM = 2.09, 103.892


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Horner's scheme; the coefficient of the highest power is the first."""
    value = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        value = value * x + coefficient
    return value


def _ratio(x: Tensor, rational: _Rational) -> Tensor:
    return _polynomial(x, rational[0]) / _polynomial(x, rational[1])


def _chebyshev(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """A Chebyshev series of x / 2 by Clenshaw's recurrence; half of the last coefficient is the constant term."""
    before, last = x * 0, x * 0 + coefficients[0]
    for coefficient in coefficients[1:-1]:
        before, last = last, x * last - before + coefficient
    return x * last * 0.5 - before + 0.5 * coefficients[-1]


def _hankel(x: Tensor, p: _Rational, q: _Rational) -> tuple[Tensor, Tensor, Tensor]:
    """The parts of Hankel's form for large x: `sqrt(1 / (pi x))`, and both factors."""
    near = 5.0 / x
    square = near * near
    return (x * math.pi).rsqrt(), _ratio(square, p), near * _ratio(square, q)


def _j0(x: Tensor) -> Tensor:
    x = x.abs()
    square = x * x
    near = (square - _J0_ZEROS[0]) * (square - _J0_ZEROS[1]) * _ratio(square, _J0)
    size, p, q = _hankel(x, _P0, _Q0)
    far = size * ((p + q) * x.cos() + (p - q) * x.sin())
    return gt.where(x < 1e-5, 1 - square / 4, gt.where(x <= 5, near, far))


def _j1(x: Tensor) -> Tensor:
    absolute = x.abs()
    square = x * x
    near = x * (square - _J1_ZEROS[0]) * (square - _J1_ZEROS[1]) * _ratio(square, _J1)
    size, p, q = _hankel(absolute, _P1, _Q1)
    far = x.sign() * size * ((q - p) * absolute.cos() + (p + q) * absolute.sin())
    return gt.where(absolute < 1e-8, 0.5 * x, gt.where(absolute <= 5, near, far))


def _y0(x: Tensor) -> Tensor:
    near = _ratio(x * x, _Y0) + 2 / math.pi * x.log() * _j0(x)
    size, p, q = _hankel(x, _P0, _Q0)
    return gt.where(x <= 5, near, size * ((q - p) * x.cos() + (p + q) * x.sin()))


def _y1(x: Tensor) -> Tensor:
    near = x * _ratio(x * x, _Y1) + 2 / math.pi * (x.log() * _j1(x) - 1 / x)
    size, p, q = _hankel(x, _P1, _Q1)
    far = size * ((q - p) * x.sin() - (p + q) * x.cos())
    return gt.where(x == 0, -math.inf, gt.where(x <= 5, near, far))


def _k0(x: Tensor, scaled: bool = False) -> Tensor:
    near = _chebyshev(x * x - 2, _K0_NEAR) - (x / 2).log() * special.i0(x)
    far = _chebyshev(8 / x - 2, _K0_FAR) * x.rsqrt()
    return _scaled_where_small(x, near, far, scaled)


def _k1(x: Tensor, scaled: bool = False) -> Tensor:
    near = (x / 2).log() * special.i1(x) + _chebyshev(x * x - 2, _K1_NEAR) / x
    far = _chebyshev(8 / x - 2, _K1_FAR) * x.rsqrt()
    return gt.where(x == 0, math.inf, _scaled_where_small(x, near, far, scaled))


def _scaled_where_small(x: Tensor, near: Tensor, far: Tensor, scaled: bool) -> Tensor:
    """Both forms of K0 or K1, or both times exp(x), which the one far from 0 is already."""
    return gt.where(x <= 2, near * x.exp(), far) if scaled else gt.where(x <= 2, near, far * (-x).exp())


def _ai(x: Tensor) -> Tensor:
    even, odd = [1.0], [1.0]
    for k in range(1, _AI_TERMS_COUNT):
        even.append(even[-1] / ((3 * k - 1) * 3 * k))
        odd.append(odd[-1] / (3 * k * (3 * k + 1)))
    cube = x * x * x
    near = _AI_AT_0 * _polynomial(cube, even[::-1]) - _AI_SLOPE * x * _polynomial(cube, odd[::-1])
    root = x.abs().sqrt()
    zeta = 2 / 3 * x.abs() * root
    size, inverse = (root * math.pi).rsqrt(), 1 / zeta
    positive = 0.5 * size * _ratio(inverse, _AI) * (-zeta).exp()
    square = inverse * inverse
    sine, cosine = 1 + square * _ratio(square, _AI_SINE), inverse * _ratio(square, _AI_COSINE)
    angle = zeta + math.pi / 4
    negative = size * (angle.sin() * sine - angle.cos() * cosine)
    far = gt.where(x > _AI_ZERO_FROM, 0.0, gt.where(x > 0, positive, negative))
    return gt.where(x.isinf(), math.nan, gt.where(x.abs() < _AI_FAR, near, far))


def _less_quotient(lower: Tensor, value: Tensor, x: Tensor, limit: float) -> Tensor:
    """`lower - value / x`, the derivative of a function of order 1, with its limit at 0."""
    is_zero = x == 0
    return gt.where(is_zero, limit, lower - value / gt.where(is_zero, 1.0, x))


class _Bessel(Function):
    """A Bessel function by its name, whose derivative is composed of such functions."""

    # The derivative of each by x and the function's value.
    derivatives: ClassVar[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
        "bessel_j0": lambda x, _: -bessel_j1(x),
        "bessel_j1": lambda x, value: _less_quotient(bessel_j0(x), value, x, 0.5),
        "bessel_y0": lambda x, _: -bessel_y1(x),
        "bessel_y1": lambda x, value: _less_quotient(bessel_y0(x), value, x, math.inf),
        "modified_bessel_k0": lambda x, _: -modified_bessel_k1(x),
        "modified_bessel_k1": lambda x, value: _less_quotient(-modified_bessel_k0(x), value, x, -math.inf),
    }

    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str) -> Tensor:
        ctx.name = name
        value = _FORMULAS[name](x.detach().double()).to(x.dtype)
        ctx.save_for_backward(x, value)
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, value = ctx.saved_tensors
        return grads[0] * _Bessel.derivatives[ctx.name](x, value), None


_FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "airy_ai": _ai,
    "bessel_j0": _j0,
    "bessel_j1": _j1,
    "bessel_y0": _y0,
    "bessel_y1": _y1,
    "modified_bessel_k0": _k0,
    "modified_bessel_k1": _k1,
    "scaled_modified_bessel_k0": lambda x: _k0(x, True),
    "scaled_modified_bessel_k1": lambda x: _k1(x, True),
}


def _computed(name: str, argument: Any, out: Any, parameter: str = "input") -> Tensor:
    """The values of a function, written to `out` if it is given.

    Raises:
        TypeError: The argument is no tensor.
        NotImplementedError: It has half precision or is complex.
    """
    if not isinstance(argument, Tensor):
        kind = type(argument).__name__
        raise TypeError(f"special_{name}(): argument '{parameter}' (position 1) must be Tensor, not {kind}")
    is_float = argument.is_floating_point() or argument.is_complex()
    x = argument if is_float else argument.to(gt.get_default_dtype())
    if x.dtype not in (gt.float32, gt.float64):
        kinds = {gt.float16: "Half", gt.bfloat16: "BFloat16", gt.complex64: "ComplexFloat"}
        kind = kinds.get(x.dtype, "ComplexDouble")
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for '{kind}'")
    if name in _Bessel.derivatives:
        value: Tensor = _Bessel.apply(x, name)
    else:
        value = _FORMULAS[name](x.detach().double()).to(x.dtype)
    return value if out is None else _out.write(f"special_{name}", out, value, False)


def bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bessel function of the first kind of order 0, elementwise: `J_0(input)`.

    Example:
        >>> gt.special.bessel_j0(gt.tensor([0.0, 1.0, 5.0]))
        tensor([ 1.0000,  0.7652, -0.1776])
    """
    return _computed("bessel_j0", input, out)


def bessel_j1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bessel function of the first kind of order 1, elementwise: `J_1(input)`.

    Example:
        >>> gt.special.bessel_j1(gt.tensor([0.0, 1.0, 5.0]))
        tensor([ 0.0000,  0.4401, -0.3276])
    """
    return _computed("bessel_j1", input, out)


def bessel_y0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bessel function of the second kind of order 0, elementwise: `Y_0(input)`, and NaN below 0.

    Example:
        >>> gt.special.bessel_y0(gt.tensor([0.0, 1.0, 5.0]))
        tensor([   -inf,  0.0883, -0.3085])
    """
    return _computed("bessel_y0", input, out)


def bessel_y1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Bessel function of the second kind of order 1, elementwise: `Y_1(input)`, and NaN below 0.

    Example:
        >>> gt.special.bessel_y1(gt.tensor([0.0, 1.0, 5.0]))
        tensor([   -inf, -0.7812,  0.1479])
    """
    return _computed("bessel_y1", input, out)


def modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the second kind of order 0, elementwise: `K_0(input)`, and NaN below 0.

    Example:
        >>> gt.special.modified_bessel_k0(gt.tensor([0.0, 1.0, 5.0]))
        tensor([   inf, 0.4210, 0.0037])
    """
    return _computed("modified_bessel_k0", input, out)


def modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Modified Bessel function of the second kind of order 1, elementwise: `K_1(input)`, and NaN below 0.

    Example:
        >>> gt.special.modified_bessel_k1(gt.tensor([0.0, 1.0, 5.0]))
        tensor([   inf, 0.6019, 0.0040])
    """
    return _computed("modified_bessel_k1", input, out)


def scaled_modified_bessel_k0(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`exp(x) * K_0(x)`, elementwise, without underflow for large numbers. No gradient, as in PyTorch.

    Example:
        >>> gt.special.scaled_modified_bessel_k0(gt.tensor([0.0, 1.0, 1000.0]))
        tensor([   inf, 1.1445, 0.0396])
    """
    return _computed("scaled_modified_bessel_k0", x, out, "x")


def scaled_modified_bessel_k1(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`exp(x) * K_1(x)`, elementwise, without underflow for large numbers. No gradient, as in PyTorch.

    Example:
        >>> gt.special.scaled_modified_bessel_k1(gt.tensor([0.0, 1.0, 1000.0]))
        tensor([   inf, 1.6362, 0.0396])
    """
    return _computed("scaled_modified_bessel_k1", x, out, "x")


def airy_ai(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Airy function `Ai(x)`, elementwise: the solution of `y'' = x y` that vanishes for large numbers.

    There is no gradient, as in PyTorch.

    Example:
        >>> gt.special.airy_ai(gt.tensor([0.0, 1.0, -2.0]))
        tensor([0.3550, 0.1353, 0.2274])
    """
    return _computed("airy_ai", x, out, "x")
