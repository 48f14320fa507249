"""`gt.linalg` against NumPy, and its gradients against central differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import assert_close, to_numpy

import gt
from gt.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(5)
SQUARE = RNG.standard_normal((2, 3, 3))
TALL = RNG.standard_normal((4, 3))
WIDE = RNG.standard_normal((2, 4))
POSITIVE = SQUARE @ SQUARE.transpose(0, 2, 1) + np.eye(3)
SIDES = RNG.standard_normal((3, 2))


@pytest.mark.parametrize("order", [None, "fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
def test_norms_of_matrices(order: Any) -> None:
    assert_close(gt.linalg.norm(gt.tensor(TALL), order), np.linalg.norm(TALL, order))
    if order is not None:
        batch = np.stack([TALL, 2 * TALL])
        wanted = np.linalg.norm(batch, order, axis=(1, 2))
        assert_close(gt.linalg.matrix_norm(gt.tensor(batch), order), wanted)
        moved = gt.tensor(np.moveaxis(batch, 0, 1).copy())
        kept = gt.linalg.matrix_norm(moved, order, dim=(0, 2), keepdim=True)
        assert_close(kept, wanted.reshape(1, 2, 1))


@pytest.mark.parametrize("order", [0, 1, 2, 3, 2.5, math.inf, -math.inf])
def test_norms_of_vectors(order: float) -> None:
    assert_close(gt.linalg.vector_norm(gt.tensor(TALL), order, 1), np.linalg.norm(TALL, order, axis=1))
    assert_close(gt.linalg.norm(gt.tensor(TALL[0]), order), np.linalg.norm(TALL[0], order))
    assert_close(gt.linalg.vector_norm(gt.tensor(TALL), order), np.linalg.norm(TALL.reshape(-1), order))


def test_norms_of_nothing_are_0_where_there_is_a_norm() -> None:
    for order in (1, 2, math.inf, "fro", "nuc"):
        assert gt.linalg.norm(gt.zeros(0, 5), order).item() == 0
    assert gt.linalg.matrix_norm(gt.zeros(3, 2, 0), 1, keepdim=True).tolist() == [[[0]]] * 3
    assert gt.linalg.norm(gt.zeros(0, 2), 1, 0).tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="cannot compute the inf norm on the dimension 1 because"):
        gt.linalg.norm(gt.zeros(2, 0), math.inf, 1)
    with pytest.raises(RuntimeError, match="cannot compute the -1 norm on an empty tensor because"):
        gt.linalg.vector_norm(gt.zeros(0), -1)


@pytest.mark.parametrize("order", [-2, -0.5, 0.5, 3])
def test_the_slope_of_a_norm_is_0_at_elements_of_0(order: float) -> None:
    x = gt.tensor([0.0, 1.0, 2.0], requires_grad=True)
    gt.linalg.vector_norm(x, order).backward()
    array = x.detach().numpy()
    with np.errstate(divide="ignore"):
        wanted = array[1:] ** (order - 1) * (array**order).sum() ** (1 / order - 1)
    assert_close(x.grad, [0, *wanted])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inverses_determinants_and_solutions(dtype: str) -> None:
    a, b = SQUARE.astype(dtype), SIDES.astype(dtype)
    t, s = gt.tensor(a), gt.tensor(b)
    assert_close(gt.linalg.inv(t), np.linalg.inv(a), dtype)
    assert_close(gt.det(t), np.linalg.det(a), dtype)
    sign, logarithm = gt.linalg.slogdet(t[0])
    assert_close(sign, np.linalg.slogdet(a[0])[0], dtype)
    assert_close(logarithm, np.linalg.slogdet(a[0])[1], dtype)
    assert sign.shape == ()
    assert_close(gt.linalg.solve(t, s), np.linalg.solve(a, b), dtype)
    assert_close(gt.linalg.solve(t[0], s[:, 0]), np.linalg.solve(a[0], b[:, 0]), dtype)
    assert_close(gt.linalg.solve(t[0], s.T, left=False) @ t[0], b.T, dtype)
    assert_close(gt.linalg.solve_triangular(t, s, upper=True), np.linalg.solve(np.triu(a), b), dtype)
    unit = np.tril(a, -1) + np.eye(3, dtype=dtype)
    solved = gt.linalg.solve_triangular(t, s, upper=False, unitriangular=True)
    assert_close(solved, np.linalg.solve(unit, b), dtype)


def test_factors_give_the_matrix_back() -> None:
    for a in (SQUARE, TALL, WIDE):
        t = gt.tensor(a)
        assert_close(t.mH, np.swapaxes(a, -1, -2))
        q, r = gt.linalg.qr(t)
        assert_close(q @ r, a)
        assert_close(q.mT @ q, np.broadcast_to(np.eye(q.shape[-1]), (*a.shape[:-2], q.shape[-1], q.shape[-1])))
        assert_close(r, np.triu(to_numpy(r)))
        p, lower, upper = gt.linalg.lu(t)
        assert_close(p @ lower @ upper, a)
        assert np.abs(to_numpy(lower)).max() <= 1
        u, s, vh = gt.linalg.svd(t, full_matrices=False)
        assert_close((u * s.unsqueeze(-2)) @ vh, a)
        assert_close(gt.linalg.svdvals(t), np.linalg.svd(a, compute_uv=False))
        assert_close(gt.linalg.pinv(t), np.linalg.pinv(a))
        assert_close(gt.linalg.matrix_rank(t), np.linalg.matrix_rank(a), "int64")
    symmetric = gt.tensor(POSITIVE)
    values, vectors = gt.linalg.eigh(symmetric)
    assert_close((vectors * values.unsqueeze(-2)) @ vectors.mT, POSITIVE)
    factor = gt.linalg.cholesky(symmetric)
    assert_close(factor, np.linalg.cholesky(POSITIVE))
    assert_close(gt.cholesky_solve(gt.tensor(SIDES), factor), np.linalg.solve(POSITIVE, SIDES))
    assert_close(gt.cholesky_inverse(factor), np.linalg.inv(POSITIVE))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [12, 13, 70])
def test_factors_of_matrices_within_and_beyond_the_small_ones(size: int, dtype: str) -> None:
    a = np.random.default_rng(size).standard_normal((2, size, size)).astype(dtype)
    positive, sides = a @ a.transpose(0, 2, 1) + size * np.eye(size, dtype=dtype), a[0, :, :3]
    t, p = gt.tensor(a), gt.tensor(positive)
    tolerance = (1e-3 if dtype == "float32" else 1e-9) * size
    assert_close(gt.linalg.inv(p) * size, np.linalg.inv(positive) * size, dtype, tolerance)
    assert_close(gt.linalg.solve(p, gt.tensor(sides)), np.linalg.solve(positive, sides), dtype, tolerance)
    assert_close(gt.linalg.slogdet(t).logabsdet, np.linalg.slogdet(a)[1], dtype, tolerance)
    assert_close(gt.linalg.slogdet(t).sign, np.linalg.slogdet(a)[0], dtype)
    assert_close(gt.linalg.cholesky(p), np.linalg.cholesky(positive), dtype, tolerance)
    assert_close(gt.linalg.svd(t).S, np.linalg.svd(a)[1], dtype, tolerance)
    assert_close(gt.linalg.eigvalsh(p), np.linalg.eigvalsh(positive), dtype, tolerance)
    for found, wanted in zip(gt.linalg.qr(t), map(np.array, np.linalg.qr(a)), strict=True):
        assert_close(found, wanted, dtype, tolerance)
    permutation, lower, upper = gt.linalg.lu(t)
    assert_close(permutation @ lower @ upper, a, dtype, tolerance)
    assert np.abs(to_numpy(lower)).max() <= 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [0, 1, 2, 32, 33, 67, 130])
def test_eigenvectors_of_one_triangle_in_any_layout(size: int, dtype: str) -> None:
    a = np.random.default_rng(size).standard_normal((3, size, size)).astype(dtype)
    wide = np.zeros((3, size, 2 * size), dtype)
    wide[:, :, ::2] = a
    tolerance = (1e-5 if dtype == "float32" else 1e-12) * max(size, 1)
    layouts = (gt.tensor(a), gt.tensor(wide)[:, :, ::2], gt.tensor(a.transpose(0, 2, 1).copy()).mT)
    for triangle, whole in (("L", np.tril(a) + np.tril(a, -1).mT), ("U", np.triu(a) + np.triu(a, 1).mT)):
        wanted = np.linalg.eigvalsh(whole)
        for t in layouts:
            values, vectors = gt.linalg.eigh(t, triangle)
            assert_close(values, wanted, dtype, tolerance)
            assert_close(gt.linalg.eigvalsh(t, triangle), wanted, dtype, tolerance)
            assert_close(vectors.mT @ vectors, np.broadcast_to(np.eye(size), a.shape), dtype, tolerance)
            assert_close((vectors * values.unsqueeze(-2)) @ vectors.mT, whole, dtype, tolerance)
    assert gt.linalg.eigh(gt.zeros(0, size, size)).eigenvectors.shape == (0, size, size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 12, 13, 24, 25, 48, 49])
@pytest.mark.parametrize("sides", [0, 1, 2, 5])
def test_solutions_for_any_number_of_sides(size: int, sides: int, dtype: str) -> None:
    rng = np.random.default_rng(size)
    a = (rng.standard_normal((4, size, size)) + size * np.eye(size)).astype(dtype)
    b = rng.standard_normal((2, 1, size, sides)).astype(dtype)
    tolerance = 1e-4 if dtype == "float32" else 1e-11
    found = gt.linalg.solve(gt.tensor(a).mT, gt.tensor(b))
    assert_close(
        found, np.linalg.solve(a.transpose(0, 2, 1), np.broadcast_to(b, (2, 4, size, sides))), dtype, tolerance
    )
    for upper, part in ((True, np.triu(a)), (False, np.tril(a))):
        found = gt.linalg.solve_triangular(gt.tensor(a), gt.tensor(b), upper=upper)
        assert_close(found, np.linalg.solve(part, np.broadcast_to(b, found.shape)), dtype, tolerance)


@pytest.mark.parametrize("size", [4, 16, 24, 40])
def test_an_infinity_or_nan_on_the_right_is_no_error(size: int) -> None:
    a, b = np.eye(size), np.ones((size, 2))
    b[0, 0], b[1, 1] = math.nan, math.inf
    for sides in (b, b[:, :1]):
        found = gt.linalg.solve(gt.tensor(a), gt.tensor(sides)).numpy()
        assert np.isnan(found[0, 0])
    singular = gt.ones(3, size, size)
    with pytest.raises(gt.linalg.LinAlgError, match="singular"):
        gt.linalg.solve(singular, gt.tensor(b, dtype=gt.float32))


def test_a_matrix_without_numbers_has_no_factors() -> None:
    for size in (3, 40):
        for wrong in (math.nan, math.inf):
            a = gt.full((size, size), wrong)
            for function in (gt.linalg.svd, gt.linalg.eigh, gt.linalg.pinv, gt.linalg.cholesky):
                with pytest.raises(gt.linalg.LinAlgError):
                    function(a)
            for found in (gt.linalg.qr(a).Q, gt.linalg.det(a), gt.linalg.inv(a)):
                assert gt.isnan(found).all().item()


@pytest.mark.parametrize("rank_1", [np.ones((5, 3)), np.ones((5, 5)), np.outer(np.arange(1, 15), np.arange(1, 10))])
@pytest.mark.parametrize("full", [False, True])
def test_singular_values_of_matrices_of_deficient_rank(rank_1: np.ndarray, full: bool) -> None:
    for a in (rank_1.astype("float64"), rank_1.T.astype("float64")):
        u, s, vh = gt.linalg.svd(gt.tensor(a), full_matrices=full)
        assert_close(s, np.linalg.svd(a, compute_uv=False))
        assert_close((u[:, : len(s)] * s) @ vh[: len(s)], a)
        assert_close(u.mT @ u, np.eye(u.shape[-1]))
        assert_close(vh @ vh.mT, np.eye(vh.shape[0]))
    assert_close(gt.linalg.pinv(gt.tensor(a)), np.linalg.pinv(a))
    assert gt.linalg.matrix_rank(gt.tensor(a)).item() == 1


def test_least_squares_and_powers() -> None:
    solution = gt.linalg.lstsq(gt.tensor(TALL), gt.tensor(TALL[:, :2] * 2)).solution
    assert_close(solution, np.linalg.lstsq(TALL, TALL[:, :2] * 2, rcond=None)[0])
    t = gt.tensor(SQUARE)
    assert_close(gt.linalg.matrix_power(t, 3), np.linalg.matrix_power(SQUARE, 3))
    assert_close(gt.linalg.matrix_power(t, -2), np.linalg.matrix_power(SQUARE, -2))
    assert_close(gt.linalg.matrix_power(t, 0), np.broadcast_to(np.eye(3), (2, 3, 3)))
    values, vectors = np.linalg.eigh(POSITIVE[0])
    assert_close(gt.linalg.matrix_exp(gt.tensor(POSITIVE[0])), (vectors * np.exp(values)) @ vectors.T)
    parts = [RNG.standard_normal(shape) for shape in ((2, 5), (5, 3), (3, 4), (4,))]
    assert_close(gt.linalg.multi_dot([gt.tensor(part) for part in parts]), np.linalg.multi_dot(parts))
    assert_close(gt.linalg.cond(t), np.linalg.cond(SQUARE))
    assert_close(gt.linalg.cond(t[0], 1), np.linalg.cond(SQUARE[0], 1))


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (40, 30), (30, 40), (2, 6, 4)])
def test_least_squares_of_full_and_of_deficient_rank(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    full, b = rng.standard_normal(shape), rng.standard_normal((*shape[:-1], 2))
    for a in (full, full * np.array([0] + [1] * (shape[-1] - 1))):
        found = gt.linalg.lstsq(gt.tensor(a), gt.tensor(b))
        assert_close(found.solution, np.linalg.pinv(a) @ b, "float64", 1e-9)
        assert_close(found.rank, np.linalg.matrix_rank(a), "int64")
    assert_close(gt.linalg.lstsq(gt.tensor(full), gt.tensor(b), rcond=1.0).rank, np.zeros(shape[:-2]), "int64")
    operands = [gt.tensor(x, requires_grad=True) for x in (full[..., :3, :2], b[..., :3, :])]
    assert gradcheck(lambda a, b: gt.linalg.lstsq(a, b).solution, operands)
    assert gt.autograd.gradgradcheck(lambda a, b: gt.linalg.lstsq(a, b).solution, operands)


def test_tolerances_of_the_rank() -> None:
    a = np.diag([4.0, 2.0, 1.0])
    t = gt.tensor(a)
    assert gt.linalg.matrix_rank(t, atol=1.5).item() == gt.linalg.matrix_rank(t, rtol=0.3).item() == 2
    assert gt.linalg.matrix_rank(gt.stack([t, t]), atol=gt.tensor([0.5, 3.0])).tolist() == [3, 1]
    assert gt.linalg.matrix_rank(-t, atol=1.5, hermitian=True).item() == 2
    assert gt.linalg.matrix_rank(gt.zeros(0, 3)).item() == 0
    assert_close(gt.linalg.pinv(t, atol=1.5), np.diag([0.25, 0.5, 0]))
    assert gt.linalg.pinv(gt.tensor(SQUARE.astype("float32")), rtol=1.0).tolist() == np.zeros((2, 3, 3)).tolist()
    assert_close(gt.linalg.pinv(gt.stack([t, t]), rtol=gt.tensor([0.3, 0.6])).sum((1, 2)), [0.75, 0.25])
    made = gt.linalg.lstsq(t[:, :2], t[:, :1] + 1, driver="gelsd")
    assert_close(made.residuals, [1])
    assert (made.rank.item(), made.singular_values.tolist()) == (2, [4, 2])


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (gt.linalg.inv, [SQUARE]),
        (gt.linalg.det, [SQUARE]),
        (lambda a: gt.linalg.slogdet(a).logabsdet, [SQUARE]),
        (gt.linalg.solve, [SQUARE, SIDES]),
        (lambda a, b: gt.linalg.solve_triangular(a, b, upper=False), [SQUARE[0] + 3 * np.eye(3), SIDES]),
        (lambda a: gt.linalg.cholesky(a @ a.mT + gt.eye(3, dtype=gt.float64)), [SQUARE]),
        (gt.linalg.qr, [TALL]),
        (lambda a: gt.linalg.lu(a)[1:], [SQUARE]),
        (lambda a: gt.linalg.lu(a)[1:], [TALL]),
        (lambda a: gt.linalg.lu(a)[1:], [WIDE]),
        (lambda a: gt.linalg.pinv(a + a.mT, hermitian=True), [SQUARE]),
        (lambda a: gt.linalg.lstsq(a, a[:, :1] * 2 + 1).solution, [TALL]),
        (lambda a: gt.linalg.eigvalsh(a + a.mT), [SQUARE]),
        (lambda a: gt.linalg.eigh(a + a.mT).eigenvectors.abs(), [SQUARE[0]]),
        (gt.linalg.svdvals, [TALL]),
        (lambda a: [part.abs() for part in gt.linalg.svd(a, full_matrices=False)], [TALL]),
        (gt.linalg.pinv, [TALL]),
        (gt.linalg.pinv, [WIDE]),
        (lambda a: gt.linalg.matrix_norm(a, "nuc"), [WIDE]),
        (gt.linalg.matrix_exp, [SQUARE[0]]),
    ],
)
def test_gradients_are_those_of_differences(function: Callable[..., Any], arrays: list[np.ndarray]) -> None:
    tensors = [gt.tensor(array, requires_grad=True) for array in arrays]

    def outputs(*inputs: gt.Tensor) -> Any:
        made = function(*inputs)
        return made if isinstance(made, gt.Tensor) else tuple(made)

    assert gradcheck(outputs, tensors)


@pytest.mark.parametrize("function", [gt.linalg.inv, gt.linalg.det, gt.linalg.svdvals, gt.linalg.pinv])
def test_gradients_of_gradients_are_those_of_differences(function: Callable[[gt.Tensor], gt.Tensor]) -> None:
    assert gradgradcheck(function, [gt.tensor(SQUARE[0], requires_grad=True)])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gt.linalg.inv(gt.zeros(2, 2)), gt.linalg.LinAlgError, "linalg.inv: .* singular"),
        (lambda: gt.linalg.solve(gt.zeros(2, 2), gt.ones(2)), gt.linalg.LinAlgError, "linalg.solve: .* singular"),
        (lambda: gt.linalg.cholesky(-gt.eye(2)), gt.linalg.LinAlgError, "not positive-definite"),
        (lambda: gt.linalg.inv(gt.ones(2, 3)), RuntimeError, "square matrices, but they are 2 by 3 matrices"),
        (lambda: gt.linalg.det(gt.ones(3)), RuntimeError, "at least 2 dimensions"),
        (lambda: gt.linalg.inv(gt.eye(2, dtype=gt.int64)), NotImplementedError, "floating point .* Got Long"),
        (lambda: gt.linalg.inv(gt.eye(2).half()), RuntimeError, "Low precision dtypes not supported. Got Half"),
        (lambda: gt.linalg.eig(gt.full((2, 2), math.nan)), gt.linalg.LinAlgError, "failed to converge"),
        (lambda: gt.linalg.eigvals(gt.ones(2, 3)), RuntimeError, "square matrices, but they are 2 by 3 matrices"),
        (lambda: gt.linalg.qr(gt.ones(3, 2, requires_grad=True), "complete"), NotImplementedError, "reduced"),
        (lambda: gt.linalg.matrix_norm(gt.eye(2), 3), RuntimeError, "Order 3 not supported"),
        (lambda: gt.linalg.solve(gt.eye(2), gt.ones(3, 1)), RuntimeError, "Incompatible shapes"),
    ],
)
def test_invalid_arguments_are_refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_a_product_of_reflections() -> None:
    a, tau = RNG.standard_normal((2, 5, 3)), RNG.standard_normal((2, 3))
    want = np.zeros((2, 5, 3))
    for i in range(2):
        product = np.eye(5)
        for j in range(3):
            v = np.concatenate([np.zeros(j), [1.0], a[i, j + 1 :, j]])
            product = product @ (np.eye(5) - tau[i, j] * np.outer(v, v))
        want[i] = product[:, :3]
    operands = gt.tensor(a, requires_grad=True), gt.tensor(tau, requires_grad=True)
    assert_close(gt.linalg.householder_product(*operands), want, "float64", 1e-12)
    assert gt.autograd.gradcheck(gt.linalg.householder_product, operands)


@pytest.mark.parametrize("rows", [[[1.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]])
def test_the_nuclear_norm_of_a_singular_matrix_has_the_gradient_of_one_close_to_it(rows: list[list[float]]) -> None:
    for shift in (0.0, 1e-3):
        a = (gt.tensor(rows, dtype=gt.float64) + shift * gt.eye(2)).requires_grad_()
        gt.linalg.matrix_norm(a, "nuc").backward()
        assert_close(a.grad, np.eye(2), tolerance=1e-6)


def numbers(*shape: int, dtype: str) -> np.ndarray:
    made = RNG.standard_normal(shape)
    return (made + 1j * RNG.standard_normal(shape) if dtype.startswith("complex") else made).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 3, 4, 4), (60, 60), (0, 0), (2, 0, 0)])
def test_eigenvalues_of_general_matrices(shape: tuple[int, ...], dtype: str) -> None:
    a = numbers(*shape, dtype=dtype)
    values, vectors = gt.linalg.eig(gt.tensor(a))
    is_single = dtype in ("float32", "complex64")
    wanted = "complex64" if is_single else "complex128"
    assert (str(values.dtype), str(vectors.dtype)) == (f"gt.{wanted}", f"gt.{wanted}")
    values, vectors, alone = (
        np.array(x.tolist()).reshape(x.shape) for x in (values, vectors, gt.linalg.eigvals(gt.tensor(a)))
    )
    tolerance = 1e-3 if is_single else 1e-9
    assert np.allclose(a @ vectors, vectors * values[..., None, :], atol=tolerance)
    assert np.allclose(np.linalg.norm(vectors, axis=-2), 1)
    for found in (values, alone):
        # In another order than NumPy's, perhaps.
        distances = abs(found[..., :, None] - np.linalg.eigvals(a)[..., None, :])
        assert a.size == 0 or distances.min(-1).max() < tolerance


def test_gradients_of_eigenvalues_and_of_eigenvectors() -> None:
    def projections(a: gt.Tensor) -> gt.Tensor:
        values, vectors = gt.linalg.eig(a)
        # The absolute values of eigenvectors do not depend on their phases.
        return values.abs().sum() + (vectors.abs() ** 4).sum()

    for dtype in ("float64", "complex128"):
        assert gradcheck(projections, [gt.tensor(numbers(4, 4, dtype=dtype), requires_grad=True)])
    assert gradcheck(lambda a: gt.linalg.eigvals(a).abs().sum(), [gt.tensor(SQUARE, requires_grad=True)])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigenvalues_of_hermitian_matrices(dtype: str, triangle: str) -> None:
    a = numbers(2, 6, 6, dtype=dtype)
    values, vectors = gt.linalg.eigh(gt.tensor(a), triangle)
    wanted = np.linalg.eigvalsh(a, triangle)
    tolerance = 1e-4 if dtype == "complex64" else 1e-10
    assert np.allclose(to_numpy(values), wanted, atol=tolerance)
    assert np.allclose(to_numpy(gt.linalg.eigvalsh(gt.tensor(a), triangle)), wanted, atol=tolerance)
    unitary = vectors.mH @ vectors
    assert (unitary - gt.eye(6)).abs().max().item() < tolerance
    half = np.tril(a, -1) if triangle == "L" else np.triu(a, 1)
    whole = half + half.conj().swapaxes(-1, -2) + np.eye(6) * a.real
    assert (gt.tensor(whole) @ vectors - vectors * values.unsqueeze(-2)).abs().max().item() < tolerance * 10


def test_complex_matrices_without_rows_have_no_eigenvalues() -> None:
    for shape in [(0, 0), (2, 0, 0), (0, 3, 3)]:
        empty = gt.zeros(*shape, dtype=gt.complex64)
        values, vectors = gt.linalg.eigh(empty)
        assert (values.shape, values.dtype, vectors.shape) == (shape[:-1], gt.float32, shape)
        assert gt.linalg.eigvalsh(empty).shape == shape[:-1]


def test_the_other_triangle_of_a_hermitian_matrix_is_not_read() -> None:
    a = gt.tensor([[2, math.nan], [1j, 2]], dtype=gt.complex128)
    assert_close(gt.linalg.eigvalsh(a), [1.0, 3.0])
    with pytest.raises(gt.linalg.LinAlgError, match="failed to converge"):
        gt.linalg.eigvalsh(a, "U")


def test_gradients_of_hermitian_eigenvalues() -> None:
    def projections(a: gt.Tensor) -> gt.Tensor:
        values, vectors = gt.linalg.eigh(a + a.mH)
        return (values**3).sum() + (vectors.abs() ** 4).sum()

    assert gradcheck(projections, [gt.tensor(numbers(4, 4, dtype="complex128"), requires_grad=True)])
