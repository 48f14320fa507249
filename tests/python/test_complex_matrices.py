"""Linear algebra of complex matrices, against NumPy; its gradients, against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gt

RNG = np.random.default_rng(3)


def _complex(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


A = _complex(2, 3, 3)
HERMITIAN = A @ A.conj().mT + np.eye(3)
TALL, WIDE = _complex(2, 4, 3), _complex(3, 4)
# Matrices of rank 1, of rank 2 with equal singular values, and of rank 0.
DEFICIENT = [
    np.outer(_complex(4), _complex(3)),
    np.linalg.qr(_complex(4, 4))[0][:, :2] @ np.linalg.qr(_complex(3, 3))[0][:2],
    np.zeros((2, 3), complex),
]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lambda: gt.linalg.inv(gt.tensor(A)), np.linalg.inv(A)),
        (lambda: gt.linalg.det(gt.tensor(A)), np.linalg.det(A)),
        (lambda: gt.linalg.slogdet(gt.tensor(A)).sign, np.linalg.slogdet(A).sign),
        (lambda: gt.linalg.slogdet(gt.tensor(A)).logabsdet, np.linalg.slogdet(A).logabsdet),
        (lambda: gt.logdet(gt.tensor(A)).exp(), np.linalg.det(A)),
        (lambda: gt.linalg.cholesky(gt.tensor(HERMITIAN)), np.linalg.cholesky(HERMITIAN)),
        (lambda: gt.linalg.cholesky(gt.tensor(HERMITIAN), upper=True).mH, np.linalg.cholesky(HERMITIAN)),
        (lambda: gt.linalg.solve(gt.tensor(A), gt.tensor(A[:, 0])), np.linalg.solve(A, A[:, 0][..., None])[..., 0]),
        (lambda: gt.linalg.solve(gt.tensor(A), gt.tensor(A[1])), np.linalg.solve(A, A[1])),
        (lambda: gt.linalg.matrix_power(gt.tensor(A), -2), np.linalg.matrix_power(A, -2)),
        (lambda: gt.linalg.svdvals(gt.tensor(TALL)), np.linalg.svdvals(TALL)),
        (lambda: gt.linalg.pinv(gt.tensor(TALL)), np.linalg.pinv(TALL)),
        (lambda: gt.linalg.pinv(gt.tensor(DEFICIENT[0])), np.linalg.pinv(DEFICIENT[0])),
        (lambda: gt.linalg.pinv(gt.tensor(HERMITIAN), hermitian=True), np.linalg.inv(HERMITIAN)),
        *(
            (lambda order=order: gt.linalg.matrix_norm(gt.tensor(WIDE), order), np.linalg.norm(WIDE, order))
            for order in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
        ),
    ],
)
def test_as_numpy(found: Callable[[], gt.Tensor], expected: Any) -> None:
    np.testing.assert_allclose(found().numpy(), expected, rtol=1e-10, atol=1e-12)


def test_batches_of_many_axes() -> None:
    x = gt.tensor(A.reshape(1, 1, 2, 1, 1, 3, 3))
    np.testing.assert_allclose(gt.linalg.inv(x).numpy(), np.linalg.inv(A).reshape(x.shape))
    np.testing.assert_allclose(gt.linalg.solve(x, x).numpy(), np.eye(3) + np.zeros(x.shape), atol=1e-12)


def test_ranks() -> None:
    assert [gt.linalg.matrix_rank(gt.tensor(a)).item() for a in DEFICIENT] == [1, 2, 0]
    assert gt.linalg.matrix_rank(gt.tensor(HERMITIAN), hermitian=True).tolist() == [3, 3]
    assert gt.linalg.matrix_rank(gt.tensor(np.diag([1, 1e-3j])), rtol=1e-2).item() == 1


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("a", [TALL, WIDE, *DEFICIENT, _complex(1, 1), np.zeros((3, 0), complex)])
def test_factors_are_orthonormal_and_multiply_to_the_matrix(a: np.ndarray, full: bool) -> None:
    x = gt.tensor(a)
    u, s, vh = gt.linalg.svd(x, full_matrices=full)
    count = min(a.shape[-2:])
    assert s.dtype is gt.float64
    assert (s.diff() <= 0).all()
    np.testing.assert_allclose((u[..., :count] * s[..., None, :] @ vh[..., :count, :]).numpy(), a, atol=1e-12)
    q, r = gt.linalg.qr(x, "complete" if full else "reduced")
    np.testing.assert_allclose((q @ r).numpy(), a, atol=1e-12)
    assert gt.equal(r, r.triu())
    for columns in (u, vh.mH, q):
        expected = np.broadcast_to(np.eye(columns.shape[-1]), (*a.shape[:-2], *[columns.shape[-1]] * 2))
        np.testing.assert_allclose((columns.mH @ columns).numpy(), expected, atol=1e-12)
    rows = a.shape[-2]
    assert (u.shape[-1], q.shape[-1]) == ((rows, rows) if full else (count, count))


def test_single_precision_keeps_its_dtype() -> None:
    x = gt.tensor(A, dtype=gt.complex64)
    assert gt.linalg.inv(x).dtype is gt.complex64
    assert gt.linalg.slogdet(x).logabsdet.dtype is gt.float32
    u, s, _ = gt.linalg.svd(x)
    assert (u.dtype, s.dtype) == (gt.complex64, gt.float32)


def test_matrices_without_a_result_raise_or_are_reported() -> None:
    singular = gt.zeros(2, 2, dtype=gt.complex128)
    with pytest.raises(gt.linalg.LinAlgError, match="singular"):
        gt.linalg.inv(singular)
    with pytest.raises(gt.linalg.LinAlgError, match="positive-definite"):
        gt.linalg.cholesky(-gt.tensor(HERMITIAN))
    assert gt.linalg.det(singular).item() == 0
    assert gt.linalg.slogdet(singular).logabsdet.item() == -np.inf
    second = gt.tensor([[1j, 0], [0, 0]])
    assert gt.linalg.inv_ex(second).info.item() == 2
    with pytest.raises(NotImplementedError, match="no complex matrices yet"):
        gt.linalg.lu(gt.tensor(HERMITIAN))


@pytest.mark.parametrize(
    "function",
    [
        gt.linalg.inv,
        gt.linalg.det,
        lambda a: gt.linalg.slogdet(a).sign,
        lambda a: gt.linalg.slogdet(a).logabsdet,
        lambda a: gt.linalg.cholesky(a @ a.mH + gt.eye(3, dtype=gt.complex128)),
        lambda a: gt.linalg.solve(a, a[0].conj()),
        lambda a: gt.linalg.qr(a).Q,
        lambda a: gt.linalg.qr(a).R,
        lambda a: gt.linalg.qr(a[:, :2]).R,
        gt.linalg.svdvals,
        gt.linalg.pinv,
    ],
)
def test_gradients(function: Callable[[gt.Tensor], gt.Tensor]) -> None:
    a = gt.tensor(A, requires_grad=True)

    def cost(x: gt.Tensor) -> gt.Tensor:
        found = function(x)
        weights = gt.arange(1.0, found.numel() + 1, dtype=gt.float64).reshape(found.shape)
        return (gt.view_as_real(found.to(gt.complex128)) * weights[..., None] * gt.tensor([1.0, 0.5])).sum()

    if function.__name__ == "<lambda>":
        a = gt.tensor(A[0], requires_grad=True)
    cost(a).backward()
    assert a.grad is not None
    direction = gt.tensor(_complex(*a.shape))
    step = 1e-6
    with gt.no_grad():
        slope = (cost(a + step * direction) - cost(a - step * direction)) / (2 * step)
    along = gt.view_as_real(a.grad) * gt.view_as_real(direction)
    assert along.sum().item() == pytest.approx(slope.item(), rel=1e-6)


def test_singular_vectors_have_no_gradient() -> None:
    a = gt.tensor(A, requires_grad=True)
    with pytest.raises(NotImplementedError, match="detach"):
        gt.linalg.svd(a).U.abs().sum().backward()


def test_division_by_a_complex_number_is_in_double_precision() -> None:
    number = 0.1 + 0.3j
    assert (gt.ones(1, dtype=gt.complex128) / number).item() == pytest.approx(1 / number, rel=1e-15)
    assert (gt.ones(1, dtype=gt.complex128) / complex(0, 1e300)).item() == -1e-300j
    x = gt.ones(2, dtype=gt.complex64)
    assert (x + 3.402823466385289e38).real.tolist() == [float(np.finfo(np.float32).max)] * 2
