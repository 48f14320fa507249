"""Complex tensors, against NumPy: elements, formulas at special values, gradients, views of the parts, and errors."""

from __future__ import annotations

import cmath
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gt

RNG = np.random.default_rng(0)
COMPLEX = ("complex64", "complex128")
TOLERANCE = {"complex64": 2e-5, "complex128": 1e-11}


def drawn(dtype: str, *shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)).astype(dtype)


def assert_near(actual: gt.Tensor, expected: np.ndarray, tolerance: float) -> None:
    array = actual.detach().numpy()
    assert array.shape == expected.shape
    np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance)


UNARY = (
    "exp expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh abs "
    "angle conj square reciprocal negative isnan isinf isfinite logical_not"
).split()


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", COMPLEX)
def test_functions_of_one_number(name: str, dtype: str) -> None:
    array = drawn(dtype, 3, 5) * 2
    found = getattr(gt, name)(gt.tensor(array))
    expected = getattr(np, name)(array)
    assert str(found.dtype) == f"gt.{expected.dtype}"
    assert_near(found, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", COMPLEX)
def test_functions_of_two_numbers(dtype: str) -> None:
    a, b = drawn(dtype, 3, 4), drawn(dtype, 4)
    x, y = gt.tensor(a), gt.tensor(b)
    tolerance = TOLERANCE[dtype]
    for found, expected in [
        (x + y, a + b), (x - y, a - b), (x * y, a * b), (x / y, a / b), (x**y, a**b), (x * 2.5, a * 2.5),
        (x * 2j, a * 2j), (1j - x, 1j - a), (1 / x, 1 / a), (x / 4, a / 4), (2 ** x, 2 ** a), (x**3, a**3), (-x, -a),
    ]:  # fmt: skip
        assert str(found.dtype) == f"gt.{dtype}"
        assert_near(found, expected.astype(dtype), tolerance)
    assert (x == x.clone()).all()
    assert (x != y).all()
    assert gt.allclose(x, x + 0)
    real = gt.tensor(a.real.copy())
    assert_near(real * y, a.real * b, tolerance)
    assert (real * 1j).dtype == x.dtype


@pytest.mark.parametrize("dtype", COMPLEX)
def test_products_and_quotients_of_any_layout(dtype: str) -> None:
    a, b = drawn(dtype, 60, 70), drawn(dtype, 60, 70)
    x, y = gt.tensor(a), gt.tensor(b)
    large, again = drawn(dtype, 300_001), drawn(dtype, 300_001)
    for left, right, first, second in [
        (x, y, a, b), (x.T, y.T, a.T, b.T), (x[::2, 1::3], y[1::2, ::3][:, :23], a[::2, 1::3], b[1::2, ::3][:, :23]),
        (x[:, :1], y[:1], a[:, :1], b[:1]), (x, y[0], a, b[0]), (x, y[:, 3:4], a, b[:, 3:4]),
        (x.T, y[0, :60], a.T, b[0, :60]), (x[0, 0], y, a[0, 0], b), (x[:0], y[:0], a[:0], b[:0]),
        (x.flip(0), y.expand(2, 60, 70), a[::-1], b[None].repeat(2, 0)),
        (gt.tensor(large), gt.tensor(again), large, again), (gt.tensor(large), y[0, 0], large, b[0, 0]),
    ]:  # fmt: skip
        assert_near(left * right, first * second, TOLERANCE[dtype])
        assert_near(left / right, first / second, TOLERANCE[dtype])


def test_division_and_absolute_value_do_not_overflow() -> None:
    large = gt.tensor([1e38 + 1e38j, 1e-38 + 1e-38j])
    assert (large / large).tolist() == [1, 1]
    assert gt.abs(gt.tensor([3e30 + 4e30j])).item() == pytest.approx(5e30)
    assert gt.abs(gt.tensor([complex("inf+nanj"), complex("nan-infj")])).tolist() == [float("inf")] * 2


SPECIAL = [0.0, -0.0, 1.0, -2.5, float("inf"), -float("inf"), float("nan")]


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "sinh", "cosh", "tanh", "sin", "cos", "tan", "abs", "atanh"])
def test_special_values_are_those_of_c(name: str) -> None:
    array = np.array([complex(a, b) for a, b in itertools.product(SPECIAL, repeat=2)])
    with np.errstate(all="ignore"):
        expected = getattr(np, {"atanh": "arctanh"}.get(name, name))(array)
    found = getattr(gt, name)(gt.tensor(array)).numpy()
    for z, a, b in zip(array, found, expected, strict=True):
        # The standard leaves open which other part and signs an infinity beside NaN has.
        if np.isnan(b.real) or np.isnan(b.imag) or not np.isfinite(z):
            assert np.isinf(a) == np.isinf(b) or np.isnan(b), (name, z, a, b)
        else:
            np.testing.assert_allclose(
                [a.real, a.imag], [b.real, b.imag], rtol=1e-12, atol=1e-12, err_msg=f"{name} {z}"
            )


@pytest.mark.parametrize("dtype", COMPLEX)
def test_reductions_scans_and_products(dtype: str) -> None:
    a, b = drawn(dtype, 3, 5), drawn(dtype, 5, 2)
    x, y = gt.tensor(a), gt.tensor(b)
    tolerance = 10 * TOLERANCE[dtype]
    for found, expected in [
        (x.sum(), a.sum()), (x.sum(0), a.sum(0)), (x.mean(1, keepdim=True), a.mean(1, keepdims=True)),
        (x.prod(), a.prod()), (x.prod(1), a.prod(1)), (x.cumsum(1), a.cumsum(1)), (x.cumprod(1), a.cumprod(1)),
        (x.var(), a.var(ddof=1)), (x.std(0), a.std(0, ddof=1)), (x.norm(), np.linalg.norm(a)),
        (gt.linalg.vector_norm(x, 1, 1), np.linalg.norm(a, 1, 1)),
        (x @ y, a @ b), (x[0] @ y, a[0] @ b), (gt.vdot(x[0], x[1]), np.vdot(a[0], a[1])),
        (gt.outer(x[0], x[1]), np.outer(a[0], a[1])), (gt.tensordot(x, y, 1), np.tensordot(a, b, 1)),
        (x.diff(), np.diff(a)), (x.T, a.T), (x.mH, a.conj().T), (x.H, a.conj().T),
        (gt.einsum("ij,jk->ik", x, y), a @ b),
    ]:  # fmt: skip
        assert_near(found, np.asarray(expected), tolerance)
    assert x.any().item() is True
    assert gt.zeros(2, dtype=x.dtype).any().item() is False


def test_movements() -> None:
    a = drawn("complex64", 2, 3, 4)
    x = gt.tensor(a)
    index = gt.tensor([[[0, 1, 1, 0]]]).expand(1, 3, 4)
    for found, expected in [
        (x.reshape(6, 4), a.reshape(6, 4)), (x.permute(2, 0, 1), a.transpose(2, 0, 1)), (x[1, ::2], a[1, ::2]),
        (x.flip(1), a[:, ::-1]), (x[:, [2, 0]], a[:, [2, 0]]), (gt.cat([x, x], 1), np.concatenate([a, a], 1)),
        (gt.stack([x, x]), np.stack([a, a])), (x.expand(5, 2, 3, 4), np.broadcast_to(a, (5, 2, 3, 4))),
        (x.gather(0, index), np.take_along_axis(a, index.numpy(), 0)), (x.roll(1, 0), np.roll(a, 1, 0)),
        (gt.where(x.abs() > 1, x, 0), np.where(np.abs(a) > 1, a, 0)), (gt.tril(x), np.tril(a)),
        (gt.nn.functional.pad(x, (1, 0), value=2), np.pad(a, ((0, 0), (0, 0), (1, 0)), constant_values=2)),
        (x[x.abs() > 1], a[np.abs(a) > 1]), (x.diagonal(0, 1, 2), np.diagonal(a, 0, 1, 2)),
    ]:  # fmt: skip
        assert_near(found, expected, 1e-6)
    y = x.clone()
    y[0, 0] = 1j
    y[1] += 1
    y.mul_(2j)
    a[0, 0] = 1j
    a[1] += 1
    assert_near(y, a * 2j, 1e-6)
    assert_near(
        x[0].index_put((gt.tensor([1]),), gt.tensor(5j)), np.array([x[0, 0].tolist(), [5j] * 4, x[0, 2].tolist()]), 1e-6
    )
    assert gt.zeros(2, dtype=gt.complex64).scatter_add(0, gt.tensor([0, 0]), gt.tensor([1j, 2])).tolist() == [2 + 1j, 0]


def test_elements_come_and_go() -> None:
    z = gt.tensor([[1 + 2j, 3], [0.5j, True]])
    assert z.dtype == gt.complex64
    assert z.tolist() == [[1 + 2j, 3], [0.5j, 1]]
    assert z[0, 0].item() == complex(z[0, 0]) == 1 + 2j
    assert z.numpy().dtype == np.complex64
    assert gt.tensor(np.array([1j])).dtype == gt.complex128
    assert gt.full((2,), 1j).tolist() == [1j, 1j]
    assert gt.linspace(0, 2j, 3).tolist() == [0, 1j, 2j]
    assert gt.eye(2, dtype=gt.complex64).tolist() == [[1, 0], [0, 1]]
    assert z.to(gt.float32).tolist() == [[1, 3], [0, 1]]
    assert z.bool().tolist() == [[True, True], [True, True]]
    assert gt.tensor([1.5]).to(gt.complex128).tolist() == [1.5]
    assert gt.randn(1000, dtype=gt.complex64).abs().square().mean().item() == pytest.approx(1, rel=0.2)
    assert repr(gt.tensor([1 + 2j, 3 - 1j])) == "tensor([1.+2.j, 3.-1.j])"
    assert repr(gt.tensor([1.5 - 0.25j, -10])) == "tensor([  1.5000-0.2500j, -10.0000+0.0000j])"
    assert repr(gt.tensor(1j, dtype=gt.complex128)) == "tensor(0.+1.j, dtype=gt.complex128)"
    assert gt.is_complex(z)
    assert z.dtype.is_complex
    assert gt.finfo(gt.complex128).eps == gt.finfo(gt.float64).eps
    assert gt.promote_types(gt.complex64, gt.float64) == gt.complex128
    assert gt.result_type(gt.ones(2, dtype=gt.float64), 1j) == gt.complex128
    with pytest.raises(TypeError, match="complex"):
        gt.tensor([1j], dtype=gt.float32)


def test_the_parts_are_views() -> None:
    z = gt.tensor([1 + 2j, 3 - 1j])
    z.real = gt.tensor([5.0, 6.0])
    z.imag[0] = 1
    assert z.tolist() == [5 + 1j, 6 - 1j]
    pairs = gt.view_as_real(z)
    pairs[1] = gt.tensor([7.0, 8.0])
    assert z.tolist() == [5 + 1j, 7 + 8j]
    assert pairs.stride() == (2, 1)
    assert gt.view_as_real(z[1:]).storage_offset() == 2
    assert z.imag.stride() == (2,)
    both = gt.zeros(3, 2)
    gt.view_as_complex(both)[0] = 1 + 1j
    assert both.tolist() == [[1, 1], [0, 0], [0, 0]]
    assert gt.complex(gt.tensor([1.0]), gt.tensor([2.0])).tolist() == [1 + 2j]
    assert gt.polar(gt.tensor([2.0]), gt.tensor([0.0])).tolist() == [2]
    assert gt.real(both) is both
    for name in ("real", "imag"):
        leaf = gt.tensor([1 + 2j], requires_grad=True)
        getattr(leaf, name).sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.tolist() == [1 if name == "real" else 1j]


def test_parts_of_any_strides_become_numbers() -> None:
    re, im = np.random.default_rng(3).standard_normal((2, 40, 1026)).astype(np.float32)
    for rows, columns in ((slice(None), slice(None)), (slice(1, 4), slice(None, None, 2)), (slice(0, 0), slice(3))):
        wanted = re[rows, columns] + 1j * im[rows, columns]
        parts = [gt.tensor(part)[rows, columns] for part in (re, im)]
        np.testing.assert_array_equal(gt.complex(*parts).numpy(), wanted)
        turned = gt.complex(parts[0].contiguous().T, gt.tensor(im.T.copy())[columns, rows])
        np.testing.assert_array_equal(turned.numpy(), wanted.T)
        np.testing.assert_array_equal(gt.conj_physical(turned).numpy(), wanted.T.conj())


def test_parts_of_parts_are_written() -> None:
    z = gt.from_numpy(np.arange(12).reshape(3, 4) * (1 + 2j))
    expected = z.numpy().copy()
    parts = expected.view(np.float64).reshape(3, 4, 2)
    pairs = gt.view_as_real(z)
    pairs[1:, ::2, 0] *= 2
    parts[1:, ::2, 0] *= 2
    np.testing.assert_array_equal(z.numpy(), expected)
    # Positions that an index picks, in the numbers and in their parts.
    pairs[gt.tensor([0, 1]), gt.tensor([1, -1])] = 9
    parts[[0, 1], [1, -1]] = 9
    z[gt.tensor([2])] = 1j
    expected[[2]] = 1j
    np.testing.assert_array_equal(z.numpy(), expected)
    columns = z.imag.T.expand(2, 4, 3)
    columns[0, 1] -= 5
    parts[:, 1, 1] -= 5
    np.testing.assert_array_equal(z.numpy(), expected)
    # A part written outside of the graph has a gradient of zero.
    leaf = gt.ones(3, dtype=gt.complex64, requires_grad=True)
    doubled = leaf * 2
    doubled.real[0] = 0
    (doubled * doubled.conj()).real.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [0, 8, 8]


FUNCTIONS: list[Callable[[gt.Tensor], gt.Tensor]] = [
    lambda z: z * z, lambda z: z / (z + 2), lambda z: z.exp(), lambda z: (z + 3).log(), lambda z: z.sqrt(),
    lambda z: z.sin() * z.cos(), lambda z: z.tanh(), lambda z: z.abs(), lambda z: z.angle(), lambda z: z.sgn(),
    lambda z: z**3, lambda z: (z + 3) ** (1 + 1j), lambda z: z.conj() * z, lambda z: z @ z.mH, lambda z: z.prod(0),
    lambda z: z.cumprod(0), lambda z: z.cumsum(0), lambda z: z.real * z.imag, lambda z: z.reciprocal(),
    lambda z: gt.fft.fft(z), lambda z: z.norm(), lambda z: z[:, [1, 0]], lambda z: z.var(), lambda z: z.sigmoid(),
    lambda z: z.asin(), lambda z: z.acos(), lambda z: z.atan(), lambda z: z.acosh(),
    lambda z: (z * 0.5).expm1().log1p(),
    lambda z: gt.where(z.real > 0, z, 2 * z), lambda z: z.mean(1), lambda z: z.sinh() + z.cosh(), lambda z: z.tan(),
    lambda z: z.rsqrt(), lambda z: z.asinh(), lambda z: z.atanh(),
]  # fmt: skip


@pytest.mark.parametrize("index", range(len(FUNCTIONS)))
def test_gradients_are_those_of_the_parts(index: int) -> None:
    """A real loss has the gradient dL/dx + i dL/dy, here against differences."""
    function = FUNCTIONS[index]
    array = drawn("complex128", 3, 3)
    weights = None

    def loss(z: gt.Tensor) -> gt.Tensor:
        nonlocal weights
        result = function(z)
        if weights is None:
            weights = [gt.tensor(RNG.standard_normal(result.shape)) for _ in range(2)]
        total = (result.real * weights[0]).sum()
        return total + (result.imag * weights[1]).sum() if gt.is_complex(result) else total

    leaf = gt.tensor(array, requires_grad=True)
    loss(leaf).backward()
    assert leaf.grad is not None
    found = leaf.grad.numpy()
    step = 1e-6
    for place in [(0, 0), (1, 2)]:
        for direction in (1, 1j):
            change = np.zeros_like(array)
            change[place] = step * direction
            difference = (loss(gt.tensor(array + change)) - loss(gt.tensor(array - change))).item() / (2 * step)
            part = found[place].real if direction == 1 else found[place].imag
            assert part == pytest.approx(difference, rel=1e-5, abs=1e-6)


def test_gradients_of_real_operands_are_real() -> None:
    x = gt.tensor([1.0, 2.0], requires_grad=True)
    (x * (1 + 2j)).abs().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == gt.float32
    np.testing.assert_allclose(x.grad.numpy(), [5**0.5] * 2, rtol=1e-6)


def test_what_is_not_defined_for_complex_numbers_says_so() -> None:
    z = gt.tensor([1j, 2])
    for call in (
        lambda: z < z, lambda: z.max(), lambda: z.floor(), lambda: z // 2, lambda: z % 2, lambda: gt.sort(z),
        lambda: z.argmax(), lambda: gt.erf(z), lambda: gt.softmax(z, 0), lambda: gt.relu(z),
        lambda: gt.arange(3, dtype=gt.complex64), lambda: gt.sign(z),
    ):  # fmt: skip
        with pytest.raises((RuntimeError, TypeError), match=r"not implemented for 'ComplexFloat'|complex"):
            call()
    with pytest.raises(TypeError, match="imag is not implemented"):
        gt.ones(1).imag  # noqa: B018
    for convert in (float, int):
        with pytest.raises(RuntimeError, match=r"cannot be converted to type .* imaginary part; use .real"):
            convert(z[0])
    assert (float(z[1]), int(z[1]), complex(z[0])) == (2.0, 2, 1j)
    with pytest.raises(ValueError, match="at most 7 dimensions"):
        gt.zeros(1, 1, 1, 1, 1, 1, 1, 1, dtype=gt.complex64)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_composites(dtype: str) -> None:
    a, b = drawn(dtype, 3, 5), drawn(dtype, 3, 5)
    x, y = gt.tensor(a), gt.tensor(b)
    tolerance = TOLERANCE[dtype]
    for weight in (0.25, 0.5j):
        assert_near(gt.lerp(x, y, weight), a + np.asarray(weight, dtype) * (b - a), tolerance)
    assert_near(gt.float_power(x, 2), a.astype("complex128") ** 2, tolerance)
    assert gt.float_power(gt.tensor([2.0]), 1j).dtype == gt.complex128
    assert_near(gt.cov(x), np.cov(a).astype(dtype), tolerance)
    counts, weights = np.array([1, 2, 3, 1, 2]), np.array([0.5, 1, 2, 1, 0.25])
    weighted = gt.cov(x, fweights=gt.tensor(counts), aweights=gt.tensor(weights.astype(a.real.dtype)))
    assert_near(weighted, np.cov(a, fweights=counts, aweights=weights).astype(dtype), tolerance)
    assert_near(gt.corrcoef(x), np.corrcoef(a).astype(dtype), tolerance)
    assert_near(gt.var(x, 1), a.var(1, ddof=1), tolerance)
    assert_near(gt.std(x, correction=0), np.asarray(a.std()), tolerance)
    assert_near(gt.addcmul(x, x, y, value=2j), a + 2j * a * b, tolerance)
    assert_near(gt.ldexp(x, gt.tensor(3)), a * 8, tolerance)


def test_numbers_that_a_dtype_does_not_have_are_refused() -> None:
    for call in (
        lambda: gt.full((2,), 1 + 2j, dtype=gt.float32), lambda: gt.zeros(2).fill_(1j),
        lambda: gt.full((2,), 1e300, dtype=gt.complex64), lambda: gt.zeros(2).masked_fill(gt.tensor([True, False]), 1j),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="cannot be converted to type"):
            call()
    with pytest.raises(TypeError, match="can't convert complex numbers to float32"):
        gt.tensor([1 + 2j], dtype=gt.float32)
    assert gt.full((2,), 3 + 0j, dtype=gt.float32).tolist() == [3, 3]
    assert gt.full((2,), 1 + 2j).tolist() == [1 + 2j, 1 + 2j]


def test_saved_tensors_come_back(tmp_path: Path) -> None:
    w = gt.tensor([1j, 2, 3], dtype=gt.complex128)
    state = {"z": gt.tensor([1 + 2j, 3]), "w": w, "part": w[1:]}
    gt.save(state, tmp_path / "state.pt")
    back = gt.load(tmp_path / "state.pt")
    assert {name: (t.tolist(), t.dtype) for name, t in back.items()} == {
        name: (t.tolist(), t.dtype) for name, t in state.items()
    }


def test_square_roots_of_negative_numbers() -> None:
    z = gt.sqrt(gt.tensor([-4 + 0j, complex(-4, -0.0)], dtype=gt.complex128))
    assert z.tolist() == [cmath.sqrt(complex(-4, 0.0)), cmath.sqrt(complex(-4, -0.0))]


@pytest.mark.parametrize(
    ("parts", "error", "text"),
    [
        (lambda: gt.ones(2, 2, dtype=gt.float16), NotImplementedError, "parts of float32 or float64"),
        (
            lambda: gt.ones(2, 2, dtype=gt.int32),
            NotImplementedError,
            "only supported for half, float and double .*: Int",
        ),
        (lambda: gt.ones(2, 2, dtype=gt.complex64), TypeError, "not supported for complex tensors"),
        (lambda: gt.ones(2, 4)[:, ::2], RuntimeError, "last dimension with stride 1"),
        (lambda: gt.ones(2, 3)[:, 1:], RuntimeError, "stride divisible by 2 for all but last"),
        (lambda: gt.ones(5)[1:3], RuntimeError, "storage_offset divisible by 2"),
        (lambda: gt.ones(3), RuntimeError, "last dimension of size 2"),
    ],
)
def test_what_is_no_pairs_of_parts_side_by_side(
    parts: Callable[[], gt.Tensor], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        gt.view_as_complex(parts())
