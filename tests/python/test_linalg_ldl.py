"""The LDL decomposition against LAPACK's, by SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.linalg import lapack
from support import assert_close

import gt

RNG = np.random.default_rng(0)
DTYPES = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


def indefinite(count: int, dtype: str, hermitian: bool = False, zero_diagonal: bool = False) -> np.ndarray:
    a = RNG.standard_normal((3, count, count))
    if dtype.startswith("complex"):
        a = a + 1j * RNG.standard_normal(a.shape)
    a = a + (a.conj() if hermitian else a).swapaxes(-1, -2)
    if zero_diagonal:
        a[:, range(count), range(count)] = 0
    return a.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("zero_diagonal", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 30])
def test_factors_and_pivots_are_lapack_s(dtype: str, hermitian: bool, zero_diagonal: bool, count: int) -> None:
    if zero_diagonal and count == 1:
        return
    a = indefinite(count, dtype, hermitian, zero_diagonal)
    packed, pivots = gt.linalg.ldl_factor(gt.tensor(a), hermitian=hermitian)
    kind = "he" if hermitian and dtype.startswith("complex") else "sy"
    reference = getattr(lapack, f"{DTYPES[dtype]}{kind}trf")
    precision = 1e-10 if dtype in ("float64", "complex128") else 1e-2
    for i, matrix in enumerate(a):
        want, known, info = reference(matrix, lower=1)
        assert info == 0
        np.testing.assert_array_equal(pivots[i], known)
        np.testing.assert_allclose(packed[i].numpy(), np.tril(want), rtol=precision, atol=precision)
    b = indefinite(count, dtype)[..., :2]
    x = gt.linalg.ldl_solve(packed, pivots, gt.tensor(b), hermitian=hermitian).numpy()
    np.testing.assert_allclose(a @ x, b, atol=10 * precision)


def test_batches_broadcast() -> None:
    a, b = indefinite(4, "float64"), RNG.standard_normal((2, 1, 4, 2))
    factors = gt.linalg.ldl_factor(gt.tensor(a))
    assert_close(gt.linalg.ldl_solve(*factors, gt.tensor(b)), np.linalg.solve(a, b), "float64", 1e-9)
    one = gt.linalg.ldl_factor(gt.tensor(a[0]))
    assert_close(gt.linalg.ldl_solve(*one, gt.tensor(b)), np.linalg.solve(a[0], b), "float64", 1e-9)
    for shape in ((0, 0), (2, 0, 0), (0, 2, 2)):
        packed, pivots = gt.linalg.ldl_factor(gt.ones(shape))
        assert (packed.shape, pivots.shape, pivots.dtype) == (shape, shape[:-1], gt.int32)
        assert gt.linalg.ldl_solve(packed, pivots, gt.ones(shape)).shape == shape


def test_the_lower_triangle_counts_and_results_have_names() -> None:
    a = gt.tensor([[0.0, 9.0, 9.0], [2.0, 0.0, 9.0], [1.0, 3.0, 1.0]])
    packed, pivots, info = found = gt.linalg.ldl_factor_ex(a)
    assert packed.tolist() == [[0, 0, 0], [2, 0, 0], [1.5, 0.5, -2]]
    assert (pivots.tolist(), info.item()) == ([-2, -2, 3], 0)
    assert type(found) is gt.return_types.linalg_ldl_factor_ex
    out = gt.empty(0), gt.empty(0, dtype=gt.int32)
    assert gt.linalg.ldl_factor(a, out=out).LD is out[0]
    assert out[1].tolist() == [-2, -2, 3]
    into = gt.empty(0)
    assert gt.linalg.ldl_solve(*out, gt.ones(3, 1), out=into) is into


def test_a_singular_factor_is_reported() -> None:
    singular = gt.tensor([[1.0, 1.0], [1.0, 1.0]])
    packed, _, info = gt.linalg.ldl_factor_ex(gt.stack([singular, gt.eye(2)]))
    assert info.tolist() == [2, 0]
    assert packed[0].tolist() == [[1, 0], [1, 0]]
    for call in (gt.linalg.ldl_factor, lambda a: gt.linalg.ldl_factor_ex(a, check_errors=True)):
        with pytest.raises(gt.linalg.LinAlgError, match="D is singular: the element 2 of its diagonal is 0"):
            call(singular)


def test_there_is_no_derivative() -> None:
    a = gt.eye(2, requires_grad=True)
    packed, pivots = gt.linalg.ldl_factor(a)
    assert packed.requires_grad
    with pytest.raises(RuntimeError, match="derivative for aten::linalg_ldl_factor_ex is not implemented"):
        packed.sum().backward()
    with pytest.raises(RuntimeError, match="derivative for aten::linalg_ldl_solve is not implemented"):
        gt.linalg.ldl_solve(packed.detach(), pivots, gt.ones(2, 1, requires_grad=True)).sum().backward()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f, _: f(gt.ones(2)), RuntimeError, "must have at least 2 dimensions"),
        (lambda f, _: f(gt.ones(2, 3)), RuntimeError, "square matrices, but they are 2 by 3 matrices"),
        (lambda f, _: f(gt.ones(2, 2, dtype=gt.int64)), NotImplementedError, "floating point or complex .* Got Long"),
        (lambda f, _: f(gt.ones(2, 2).half()), NotImplementedError, "\"ldl_.*_cpu\" not implemented for 'Half'"),
        (lambda _, s: s(gt.eye(2), gt.tensor([1, 2]), gt.ones(2)), RuntimeError, "at least 2 dimensions"),
        (lambda _, s: s(gt.eye(2), gt.tensor([1, 2]), gt.ones(3, 1)), RuntimeError, "each b matrix is 3 by 1"),
        (lambda _, s: s(gt.eye(2), gt.tensor([1, 2]), gt.ones(2, 1).double()), RuntimeError, "the same dtype"),
        (lambda _, s: s(gt.eye(2), gt.tensor([[1, 2]]), gt.ones(2, 1)), RuntimeError, "pivots.shape to be the same"),
        (lambda _, s: s(gt.eye(2), gt.ones(2), gt.ones(2, 1)), RuntimeError, "Expected pivots to be integers"),
        (lambda _, s: s(gt.eye(2), gt.tensor([1, 3]), gt.ones(2, 1)), RuntimeError, "<= LD.size"),
        (lambda _, s: s(gt.eye(2), gt.tensor([0, 1]), gt.ones(2, 1)), RuntimeError, ">= 1"),
    ],
)
def test_what_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(gt.linalg.ldl_factor, gt.linalg.ldl_solve)
