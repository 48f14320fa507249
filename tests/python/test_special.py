"""Composed elementwise functions, and `gt.special`, against NumPy and SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as sp
from support import assert_close, numeric_gradient, to_gt, to_numpy

import gt

NAN, INF = math.nan, math.inf
RNG = np.random.default_rng(0)
EDGES = np.array([0.0, -0.0, 0.25, -1.5, 3.0, 20.5, -30.25, 1e-30, INF, -INF, NAN])
Call = tuple[Callable[[gt.Tensor], gt.Tensor], Callable[[np.ndarray], Any]]
UNARY: dict[str, Call] = {
    "deg2rad": (gt.deg2rad, np.deg2rad),
    "rad2deg": (gt.rad2deg, np.rad2deg),
    "sinc": (gt.sinc, np.sinc),
    "logit": (gt.logit, sp.logit),
    "logit with eps": (lambda t: gt.logit(t, 0.1), lambda a: sp.logit(np.clip(a, 0.1, 0.9))),
    "nan_to_num": (gt.nan_to_num, np.nan_to_num),
    "nan_to_num with numbers": (lambda t: t.nan_to_num(1, 2, 3), lambda a: np.nan_to_num(a, True, 1, 2, 3)),
    "isposinf": (gt.isposinf, np.isposinf),
    "isneginf": (gt.isneginf, np.isneginf),
    "isreal": (gt.isreal, np.isreal),
    "entr": (gt.special.entr, sp.entr),
    "ndtr": (gt.special.ndtr, sp.ndtr),
    "expit": (gt.special.expit, sp.expit),
    "xlog1py": (lambda t: gt.special.xlog1py(2.0, t), lambda a: sp.xlog1py(2.0, a)),
    "round": (lambda t: t.round(decimals=1), lambda a: np.round(a, 1)),
    "signbit": (gt.signbit, np.signbit),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    call, reference = UNARY[name]
    for array in (EDGES, RNG.uniform(-3, 3, (4, 5)), np.array(0.5), np.zeros((0, 2))):
        assert_close(call(gt.tensor(array)), reference(array))
        if array.ndim == 2:
            assert_close(call(gt.tensor(array).T), reference(array.T))
    assert_close(call(to_gt(EDGES, "float32")), reference(EDGES.astype(np.float32)), tolerance=3e-5)


@pytest.mark.parametrize(
    "name", ["asin", "atanh", "acosh", "log2", "exp2", "erfc", "erfinv", "lgamma", "digamma", "i0", "i0e", "i1", "i1e",
             "ndtri", "log_ndtr", "erfcx", "sinh", "cosh", "asinh", "atan"]
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rows_at_the_ends_of_their_domains(name: str) -> None:
    scipy_name = {"lgamma": "gammaln"}.get(name, name)
    numpy_name = {"asin": "arcsin", "atanh": "arctanh", "acosh": "arccosh", "asinh": "arcsinh", "atan": "arctan"}
    reference = getattr(sp, scipy_name, None) or getattr(np, numpy_name.get(name, name))
    array = np.array([0.0, 1.0, -1.0, 0.5, 1e-300, -0.75, 1 - 1e-12, 1e-8, 7.5, -7.25, 35.0, -25.5, 600.0, INF, NAN])
    with np.errstate(all="ignore"):
        wanted = np.asarray(reference(array))
    got = to_numpy(getattr(gt, name)(gt.tensor(array)))
    if name in ("i0", "i1"):  # SciPy has no value at infinity.
        wanted[array == INF] = INF
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-15 if name == "lgamma" else 1e-300)


def test_gradients_of_composites() -> None:
    a = RNG.uniform(0.1, 0.9, 6)
    for call, reference in [UNARY[name] for name in ("deg2rad", "sinc", "logit", "entr", "ndtr", "xlog1py")]:
        leaf = gt.tensor(a, requires_grad=True)
        call(leaf).sum().backward()
        np.testing.assert_allclose(
            to_numpy(leaf.grad), numeric_gradient(lambda x, f=reference: f(x), [a], 0), rtol=1e-5
        )
    leaf = gt.zeros(2, requires_grad=True)
    leaf.sinc().sum().backward()
    assert_close(leaf.grad, [0.0, 0.0])


def test_polygamma_and_mvlgamma() -> None:
    a = RNG.uniform(2.0, 5.0, (2, 3))
    for n in (0, 1, 2, 4):
        assert_close(gt.polygamma(n, gt.tensor(a)), sp.polygamma(n, a), tolerance=1e-10)
        assert_close(
            gt.special.polygamma(n, gt.tensor(-a)), sp.digamma(-a) if n == 0 else _polygamma(n, -a), tolerance=1e-8
        )
    for p in (1, 3):
        assert_close(gt.mvlgamma(gt.tensor(a), p), sp.multigammaln(a, p) if a.ndim == 0 else _multi(a, p))
    for n in (0, 1, 3):
        leaf = gt.tensor(a, requires_grad=True)
        gt.polygamma(n, leaf).sum().backward()
        assert_close(leaf.grad, sp.polygamma(n + 1, a), tolerance=1e-10)
    with pytest.raises(NotImplementedError, match="the derivative for 'zeta' by its first argument"):
        gt.zeta(leaf, gt.ones(3)).sum().backward()


def _polygamma(n: int, x: np.ndarray) -> np.ndarray:
    """Computes polygamma by its recurrence from values that SciPy has."""
    total, sign = np.zeros_like(x), (-1) ** (n + 1)
    shifted = x.copy()
    for _ in range(8):
        total += sign * math.factorial(n) / shifted ** (n + 1)
        shifted += 1
    return total + sp.polygamma(n, shifted)


def _multi(a: np.ndarray, p: int) -> np.ndarray:
    return np.vectorize(lambda x: sp.multigammaln(x, p))(a)


def test_numbers_in_parts() -> None:
    a = np.concatenate([EDGES[:8], [0.5, 1.0, 8.0, 1e300, -1e-310, 0.75]])
    got = gt.frexp(gt.tensor(a))
    mantissa, exponent = np.frexp(a)
    assert_close(got.mantissa, mantissa, "float64", 0.0)
    assert_close(got.exponent, exponent, "int32")
    assert_close(gt.ldexp(got.mantissa, got.exponent)[:11], a[:11], tolerance=0.0)
    assert_close(gt.tensor([1.5, -1.5]).frac(), [0.5, -0.5])
    values = gt.tensor([0.5, 0.5, 0.5])
    assert_close(gt.heaviside(gt.tensor([-1.0, 0.0, 2.0]), values), [0.0, 0.5, 1.0])
    with pytest.raises(RuntimeError, match="different dtypes"):
        gt.heaviside(gt.tensor([1]), values[:1])


def test_integers_bit_by_bit() -> None:
    a, b = gt.tensor([12, -8, 0, 7], dtype=gt.int8), gt.tensor([2, 1, 5, 9], dtype=gt.int8)
    assert_close(a << b, [48, -16, 0, 0], "int8")
    assert_close(a >> b, [3, -4, 0, 0], "int8")
    assert_close(1 << gt.tensor([0, 3]), [1, 8])
    a <<= 1
    assert_close(a, [24, -16, 0, 14])
    assert_close(gt.gcd(gt.tensor([12, -18, 0]), gt.tensor([8, 12, 5])), [4, 6, 5])
    assert_close(gt.lcm(gt.tensor([4, -6, 0]), gt.tensor([6, 4, 5])), [12, 12, 0])
    assert_close(gt.fmod(gt.tensor([-7, 7]), gt.tensor([3, -3])), [-1, 1])
    assert_close(gt.fmod(gt.tensor([-7.5, 1e20]), 2.0), np.fmod([-7.5, np.float32(1e20)], 2.0))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        gt.fmod(gt.tensor([1]), gt.tensor([0])).tolist()


def test_atan2_and_its_kin_at_the_edges() -> None:
    pairs = np.array([(x, y) for x in EDGES for y in EDGES])
    x, y = gt.tensor(pairs[:, 0]), gt.tensor(pairs[:, 1])
    with np.errstate(all="ignore"):
        for name in ("arctan2", "logaddexp", "logaddexp2", "copysign", "nextafter", "fmin", "fmax"):
            assert_close(getattr(gt, name)(x, y), getattr(np, name)(pairs[:, 0], pairs[:, 1]))
        assert_close(gt.xlogy(x, y), sp.xlogy(pairs[:, 0], pairs[:, 1]))


def test_an_unknown_special_function_is_named() -> None:
    with pytest.raises(AttributeError, match="bessel_j7"):
        gt.special.bessel_j7  # noqa: B018
    assert gt.special.psi is gt.digamma
    assert_close(gt.special.softmax(gt.zeros(2), 0), [0.5, 0.5])


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("chebyshev_polynomial_t", sp.eval_chebyt),
        ("chebyshev_polynomial_u", sp.eval_chebyu),
        ("chebyshev_polynomial_v", lambda n, x: sp.eval_chebyu(n, x) - np.where(n > 0, sp.eval_chebyu(n - 1, x), 0)),
        ("chebyshev_polynomial_w", lambda n, x: sp.eval_chebyu(n, x) + np.where(n > 0, sp.eval_chebyu(n - 1, x), 0)),
        ("shifted_chebyshev_polynomial_t", sp.eval_sh_chebyt),
        ("shifted_chebyshev_polynomial_u", sp.eval_sh_chebyu),
        ("hermite_polynomial_h", sp.eval_hermite),
        ("hermite_polynomial_he", sp.eval_hermitenorm),
        ("laguerre_polynomial_l", sp.eval_laguerre),
        ("legendre_polynomial_p", sp.eval_legendre),
    ],
)
def test_polynomials(name: str, reference: Callable[..., Any]) -> None:
    x, n = np.linspace(-1, 1, 9), np.arange(6)[:, None]
    got = getattr(gt.special, name)(gt.tensor(x), gt.tensor(n))
    assert_close(got, reference(n, x))
    assert getattr(gt.special, name)(gt.tensor([0.5]), -1).tolist() == [0]
    assert getattr(gt.special, name)(2, gt.tensor([0, 1])).dtype == gt.float32


def test_shifted_polynomials_are_those_of_twice_the_number_less_one() -> None:
    x = gt.linspace(0, 1, 5, dtype=gt.float64)
    for kind in "tuvw":
        shifted = getattr(gt.special, f"shifted_chebyshev_polynomial_{kind}")(x, 4)
        assert_close(shifted, getattr(gt.special, f"chebyshev_polynomial_{kind}")(2 * x - 1, 4).numpy())


def test_polynomials_of_large_degrees_are_computed_on_the_host() -> None:
    x, n = np.linspace(-0.99, 0.99, 7), np.array([3, 16, 17, 100, 2000])[:, None]
    for name, reference in (
        ("chebyshev_polynomial_t", sp.eval_chebyt),
        ("chebyshev_polynomial_u", sp.eval_chebyu),
        ("shifted_chebyshev_polynomial_t", sp.eval_sh_chebyt),
        ("legendre_polynomial_p", sp.eval_legendre),
    ):
        own = (x + 1) / 2 if name.startswith("shifted") else x
        assert_close(getattr(gt.special, name)(gt.tensor(own), gt.tensor(n)), reference(n, own), tolerance=1e-8)
    n = np.array([3, 17, 40, 150])[:, None]
    assert_close(gt.special.laguerre_polynomial_l(gt.tensor(x), gt.tensor(n)), sp.eval_laguerre(n, x), tolerance=1e-8)
    assert_close(
        gt.special.hermite_polynomial_he(gt.tensor(x), gt.tensor(n)), sp.eval_hermitenorm(n, x), tolerance=1e-8
    )
    # The ends of the interval, and degrees whose recurrence has more steps than a call may take.
    ends = gt.tensor([1.0, -1.0], dtype=gt.float64)
    assert gt.special.chebyshev_polynomial_t(ends, 2**40 + 1).tolist() == [1, -1]
    assert gt.special.chebyshev_polynomial_u(ends, 2**40).tolist() == [2**40 + 1, 2**40 + 1]
    assert gt.special.laguerre_polynomial_l(gt.tensor([0.0]), 2**40).tolist() == [1]
    assert gt.special.legendre_polynomial_p(gt.tensor([0.5]), float("inf")).tolist() == [0]
    assert gt.special.legendre_polynomial_p(gt.tensor([3.0]), 2**40).isnan().tolist() == [True]
    with pytest.raises(ValueError, match=r"1 elements of degrees up to 1099511627776 take more than 268435456 steps"):
        gt.special.legendre_polynomial_p(gt.tensor([0.5]), 2**40)


def test_bessel_functions_by_their_longer_names() -> None:
    x = np.array([-3.0, 0.0, 0.5, 20.0])
    assert_close(gt.special.spherical_bessel_j0(gt.tensor(x)), np.sinc(x / np.pi))
    assert gt.special.spherical_bessel_j0(gt.tensor(math.inf)).item() == 0
    assert_close(gt.special.modified_bessel_i0(gt.tensor(x)), sp.i0(x))
    assert_close(gt.special.modified_bessel_i1(gt.tensor(x)), sp.i1(x))


BESSEL = {
    "bessel_j0": sp.j0,
    "bessel_j1": sp.j1,
    "bessel_y0": sp.y0,
    "bessel_y1": sp.y1,
    "modified_bessel_k0": sp.k0,
    "modified_bessel_k1": sp.k1,
    "scaled_modified_bessel_k0": sp.k0e,
    "scaled_modified_bessel_k1": sp.k1e,
    "airy_ai": lambda x: sp.airy(x)[0],
}


@pytest.mark.parametrize("name", BESSEL)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bessel_functions_near_and_far_from_0(name: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    limits = np.array([2.0, 5.0, 8.0, 10.0, 2.09])
    x = np.concatenate([limits, rng.uniform(-30, 30, 2000), 10 ** rng.uniform(-12, 2, 2000)]).astype(dtype)
    got, want = getattr(gt.special, name)(gt.tensor(x)).numpy(), BESSEL[name](x.astype(np.float64))
    assert got.dtype == dtype
    # The functions that oscillate are as precise as their amplitude, which a zero has, too.
    precision = {"float64": 1e-14, "float32": 1e-7}[dtype]
    np.testing.assert_allclose(got, want, rtol=3 * precision, atol=precision if "modified" not in name else 1e-37)


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions_at_the_edges_are_pytorch_s(name: str) -> None:
    got = to_numpy(getattr(gt.special, name)(gt.tensor([0.0, -0.0, -1.0, INF, -INF, NAN], dtype=gt.float64)))
    at_0 = {"bessel_j0": 1.0, "bessel_j1": 0.0, "bessel_y0": -INF, "bessel_y1": -INF, "airy_ai": 0.35502805388781724}
    at_infinity = 0.0 if "_k" in name else NAN
    below_0 = BESSEL[name](-1.0)
    np.testing.assert_allclose(got, [*[at_0.get(name, INF)] * 2, below_0, at_infinity, NAN, NAN], rtol=1e-14)


@pytest.mark.parametrize("name", [name for name in BESSEL if "scaled" not in name and name != "airy_ai"])
def test_bessel_functions_have_gradients(name: str) -> None:
    function, positive = (
        getattr(gt.special, name),
        gt.tensor([0.3, 1.0, 4.0, 9.0], dtype=gt.float64, requires_grad=True),
    )
    assert gt.autograd.gradcheck(function, [positive])
    assert gt.autograd.gradgradcheck(function, [positive])
    x = gt.zeros(1, dtype=gt.float64, requires_grad=True)
    (grad,) = gt.autograd.grad(function(x).sum(), x)
    at_0 = {"bessel_j0": 0.0, "bessel_j1": 0.5, "bessel_y0": INF, "bessel_y1": INF}
    assert grad.tolist() == [at_0.get(name, -INF)]


def test_bessel_functions_take_what_pytorch_s_take() -> None:
    assert gt.special.bessel_j0(gt.tensor([True])).dtype == gt.special.airy_ai(gt.tensor([1])).dtype == gt.float32
    out = gt.empty(0, dtype=gt.float64)
    assert gt.special.modified_bessel_k0(input=gt.ones(3), out=out) is out
    assert out.shape == (3,)
    assert not gt.special.airy_ai(x=gt.ones(1, requires_grad=True)).requires_grad
    assert gt.vmap(gt.special.bessel_y1)(gt.ones(2, 3)).shape == (2, 3)
    with pytest.raises(NotImplementedError, match="\"bessel_j1_cpu\" not implemented for 'Half'"):
        gt.special.bessel_j1(gt.ones(1).half())
    with pytest.raises(TypeError, match=r"special_airy_ai\(\): argument 'x' \(position 1\) must be Tensor, not float"):
        gt.special.airy_ai(1.0)


def test_the_next_number_of_half_precision() -> None:
    x = np.array([0, 1, -1, 2.5, 6e-8, 1e-5, 65504, np.inf, -np.inf, 3, np.nan, 1], np.float16)
    y = np.array([1, 2, 0, 2.5, 0, -1, np.inf, 0, 0, -np.inf, 1, np.nan], np.float16)
    with np.errstate(all="ignore"):
        wanted = np.nextafter(x, y)
    assert_close(gt.nextafter(gt.tensor(x), gt.tensor(y)), wanted)
    one = gt.ones(3, dtype=gt.bfloat16)
    assert gt.nextafter(one, gt.tensor([2.0, 0.0, 1.0]).bfloat16()).tolist() == [1 + 2.0**-7, 1 - 2.0**-8, 1]
    leaf = one.clone().requires_grad_()
    gt.nextafter(leaf, one * 2).sum().backward()
    assert leaf.grad.tolist() == [1, 1, 1]


def test_the_next_number_of_every_float16() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for towards in (np.inf, -np.inf, 0.0, 1.0, np.nan):
        with np.errstate(all="ignore"):
            wanted = np.nextafter(x, np.float16(towards))
        np.testing.assert_array_equal(gt.nextafter(gt.tensor(x), gt.tensor(towards).half()).numpy(), wanted)


def test_the_next_number_of_every_bfloat16_has_the_next_bits() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32)
    x = (bits << 16).view(np.float32)
    # The bits of greater numbers are greater, and those of lesser ones below zero.
    for towards, above in ((np.inf, x >= 0), (-np.inf, x < 0)):
        wanted = (np.where(above & (x != 0), bits + 1, bits - 1) % (1 << 16) << 16).astype(np.uint32).view(np.float32)
        wanted = np.where(x == 0, np.copysign(np.float32(2.0**-133), towards), np.where(x == towards, x, wanted))
        found = gt.nextafter(gt.tensor(x).bfloat16(), gt.tensor(towards).bfloat16()).float().numpy()
        np.testing.assert_array_equal(found, np.where(np.isnan(x), np.nan, wanted))


def test_incomplete_gammas_of_a_large_shape() -> None:
    a = np.array([9e5, 1.1e6, 1e8, 1e10, 1e14])
    x = a + np.array([-3.0, -1.0, 0.0, 1.0, 3.0])[:, None] * np.sqrt(a)
    for name in ("gammainc", "gammaincc"):
        wanted = getattr(sp, name)(a, x)
        np.testing.assert_allclose(getattr(gt.special, name)(gt.tensor(a), gt.tensor(x)).numpy(), wanted, rtol=1e-11)
        np.testing.assert_allclose(getattr(gt.special, name)(gt.tensor([1e30]), gt.tensor([1e30])).numpy(), [0.5])


@pytest.mark.parametrize("name", ["erfinv", "lgamma"])
def test_float32_has_approximations_of_its_own(name: str) -> None:
    scipy_name = {"lgamma": "gammaln"}.get(name, name)
    x = np.random.default_rng(5).uniform(-1, 1, 20_000)
    x = np.concatenate([x, x**9, 1 - np.abs(x) ** 5]).astype(np.float32)
    if name == "lgamma":
        x = np.concatenate([x, 1 + 50 * x, 1e4 * x, 1e30 * np.abs(x), [np.inf, 0.0, -3.0, 1.0, 2.0]])
    else:
        x = np.concatenate([x, [-1.0, 1.0, 0.0, -0.0, 1.5, np.nan]])
    x = x.astype(np.float32)
    got = getattr(gt, name)(gt.from_numpy(x)).numpy()
    wanted = getattr(sp, scipy_name)(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-30 if name == "erfinv" else 1e-9)


def test_infinity_and_the_largest_numbers() -> None:
    assert_close(gt.angle(gt.tensor([math.inf, -math.inf, -1.0, 0.0], dtype=gt.float64)), [0, math.pi, math.pi, 0])
    largest = gt.tensor([1.7e308, -1.7e308], dtype=gt.float64)
    assert gt.special.i0(largest).tolist() == [math.inf, math.inf]
    assert gt.special.i1(largest).tolist() == [math.inf, -math.inf]


def test_a_number_keeps_its_value_beside_float64() -> None:
    x = gt.tensor([1.0, 0.0], dtype=gt.float64)
    assert_close(gt.special.xlog1py(x, 0.1), [math.log1p(0.1), 0.0], tolerance=1e-15)
    assert_close(gt.special.xlog1py(0.1, x), [0.1 * math.log(2), 0.0], tolerance=1e-15)
    assert gt.special.xlog1py(gt.tensor([1.0]), 1e39).tolist() == [math.inf]


def test_an_infinite_gradient_of_a_replaced_number_is_nan() -> None:
    x = gt.tensor([1.0, math.inf, math.nan], requires_grad=True)
    gt.nan_to_num(x).backward(gt.tensor([math.inf, 2.0, math.inf]))
    assert str(x.grad.tolist()) == "[inf, 0.0, nan]"
    y = (x.detach().requires_grad_() * 1).nan_to_num_()
    assert y.sum().requires_grad
    y.sum().backward()


def test_the_gradient_of_a_variance_passes_nan_on() -> None:
    x = gt.tensor([[2.5, 0.5], [-1.5, -1.5]], requires_grad=True)
    x.var(1).backward(gt.tensor([1.0, math.nan]))
    assert str(x.grad.tolist()) == "[[2.0, -2.0], [nan, nan]]"


def test_an_infinite_gradient_of_a_variance_does_not_pass_through_the_mean() -> None:
    for spread, expected in (
        (lambda x: x.var(0), "[-inf, inf]"),
        (lambda x: x.std(0), "[-inf, inf]"),
    ):
        x = gt.tensor([1.0, 4.0], requires_grad=True)
        spread(x).backward(gt.tensor(math.inf))
        assert str(x.grad.tolist()) == expected


def test_what_follows_a_zero_has_no_part_in_the_gradient_of_products() -> None:
    x = gt.tensor([3.0, 0.0, math.nan], requires_grad=True)
    x.cumprod(0).sum().backward()
    assert str(x.grad.tolist()) == "[1.0, nan, 0.0]"
