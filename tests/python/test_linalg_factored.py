"""Packed factorisations, solvers that use them, and the `_ex` functions that return errors instead of raising."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support import assert_close

import gt
from gt.autograd import gradcheck

RANDOM = np.random.default_rng(0)
SQUARE = RANDOM.normal(size=(2, 4, 4))
TALL = RANDOM.normal(size=(2, 5, 3))
RIGHT = RANDOM.normal(size=(2, 4, 3))


@pytest.mark.parametrize("array", [SQUARE, TALL, TALL.swapaxes(1, 2)])
def test_an_lu_factorization_gives_the_matrix_back(array: np.ndarray) -> None:
    packed, pivots = gt.linalg.lu_factor(gt.tensor(array))
    assert packed.shape == array.shape
    assert pivots.dtype == gt.int32
    assert bool((pivots >= gt.arange(1, pivots.shape[-1] + 1)).all())
    parts = gt.lu_unpack(packed, pivots)
    assert_close(parts.P @ parts.L @ parts.U, array)
    for got, wanted in zip(parts, gt.linalg.lu(gt.tensor(array)), strict=True):
        assert_close(got, wanted.numpy())
    assert gt.lu_unpack(packed, pivots, unpack_data=False).L.shape == (0,)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_equations_are_solved_with_it(left: bool, adjoint: bool) -> None:
    factored = gt.linalg.lu_factor(gt.tensor(SQUARE))
    matrix = gt.tensor(SQUARE).mT if adjoint else gt.tensor(SQUARE)
    right = gt.tensor(RIGHT if left else RIGHT.swapaxes(1, 2))
    solution = gt.linalg.lu_solve(*factored, right, left=left, adjoint=adjoint)
    assert_close(matrix @ solution if left else solution @ matrix, right.numpy())


def test_the_first_column_without_a_pivot_is_told() -> None:
    matrices = gt.stack([gt.eye(3), gt.tensor([[1.0, 0, 0], [0, 0, 1], [0, 0, 1]])])
    assert gt.linalg.lu_factor_ex(matrices).info.tolist() == [0, 2]
    inverse, info = gt.linalg.inv_ex(matrices)
    assert info.tolist() == [0, 2]
    assert inverse[0].tolist() == gt.eye(3).tolist()
    assert inverse[1].isnan().all()
    assert gt.linalg.solve_ex(matrices, gt.ones(2, 3)).result[0].tolist() == [1, 1, 1]
    for function in (gt.linalg.inv_ex, gt.linalg.lu_factor_ex):
        with pytest.raises(gt.linalg.LinAlgError):
            function(matrices, check_errors=True)


def test_the_first_minor_that_is_not_positive_definite_is_told() -> None:
    factor, info = gt.linalg.cholesky_ex(gt.stack([gt.eye(2) * 4, gt.tensor([[1.0, 2.0], [2.0, 1.0]])]))
    assert info.tolist() == [0, 2]
    assert factor[0].tolist() == [[2, 0], [0, 2]]
    assert factor[1].isnan().all()
    with pytest.raises(gt.linalg.LinAlgError, match="not positive-definite"):
        gt.linalg.cholesky_ex(-gt.eye(2), check_errors=True)


def test_reflections_are_those_of_a_qr_factorization() -> None:
    packed, tau = gt.geqrf(gt.tensor(TALL))
    q, r = np.linalg.qr(TALL)
    assert_close(packed[:, :3].triu(), r)
    assert_close(gt.linalg.householder_product(packed, tau), q)
    whole = np.linalg.qr(TALL, "complete")[0]
    other = gt.tensor(RANDOM.normal(size=(2, 5, 2)))
    assert_close(gt.ormqr(packed, tau, other), whole @ other.numpy())
    assert_close(gt.ormqr(packed, tau, other, transpose=True), whole.swapaxes(1, 2) @ other.numpy())
    assert_close(gt.ormqr(packed, tau, other.mT, left=False), other.numpy().swapaxes(1, 2) @ whole)
    with pytest.raises(RuntimeError, match=r"tau\.shape"):
        gt.ormqr(packed, tau, gt.ones(2, 2, 2, dtype=gt.float64))


def test_triangular_equations_by_their_older_name() -> None:
    upper, right = np.triu(SQUARE), gt.tensor(RIGHT)
    solution, copy = gt.triangular_solve(right, gt.tensor(SQUARE))
    assert_close(solution, np.linalg.solve(upper, RIGHT))
    assert copy.tolist() == SQUARE.tolist()
    assert_close(
        gt.triangular_solve(right, gt.tensor(SQUARE), transpose=True).solution,
        np.linalg.solve(upper.swapaxes(1, 2), RIGHT),
    )


def test_tensors_as_matrices() -> None:
    tensor = RANDOM.normal(size=(2, 3, 6))
    inverse = gt.linalg.tensorinv(gt.tensor(tensor), ind=2)
    assert_close(inverse, np.linalg.tensorinv(tensor, ind=2))
    right = RANDOM.normal(size=(2, 3))
    assert_close(gt.linalg.tensorsolve(gt.tensor(tensor), gt.tensor(right)), np.linalg.tensorsolve(tensor, right))
    moved = RANDOM.normal(size=(3, 4, 4, 3))
    right = RANDOM.normal(size=(4, 3))
    got = gt.linalg.tensorsolve(gt.tensor(moved), gt.tensor(right), dims=(0, 2))
    assert_close(gt.tensordot(gt.tensor(moved).movedim((0, 2), (2, 3)), got), right)
    assert gt.linalg.vander(gt.tensor([2, 3]), N=4).tolist() == [[1, 2, 4, 8], [1, 3, 9, 27]]
    with pytest.raises(RuntimeError, match=r"requirement prod\(self.shape\[ind:\]\)"):
        gt.linalg.tensorinv(gt.tensor(tensor), ind=1)


def test_turns_stretches_and_roots() -> None:
    turn, stretch = gt.linalg.polar(gt.tensor(TALL))
    assert_close(turn @ stretch, TALL)
    assert_close(turn.mT @ turn, np.broadcast_to(np.eye(3), (2, 3, 3)))
    assert bool((gt.linalg.eigvalsh(stretch) > 0).all())
    positive = SQUARE @ SQUARE.swapaxes(1, 2)
    root = gt.linalg.matrix_sqrth(gt.tensor(positive))
    assert_close(root @ root, positive)


def test_the_largest_singular_values_by_random_vectors() -> None:
    low = RANDOM.normal(size=(20, 3)) @ RANDOM.normal(size=(3, 8))
    for array in (low, low.T):
        u, s, v = gt.svd_lowrank(gt.tensor(array), q=4)
        assert_close(s[:3], np.linalg.svd(array)[1][:3])
        assert_close(u * s @ v.T, array)
    u, s, v = gt.pca_lowrank(gt.tensor(low), q=4)
    assert_close(u * s @ v.T, low - low.mean(0))
    with pytest.raises(ValueError, match="not greater than min"):
        gt.pca_lowrank(gt.ones(3, 2), q=3)


def test_gradients_are_those_of_differences() -> None:
    square, tall = gt.tensor(SQUARE[0], requires_grad=True), gt.tensor(TALL[0], requires_grad=True)
    right, tau = gt.tensor(RIGHT[0], requires_grad=True), gt.tensor([1.2, 0.7, 1.4], requires_grad=True).double()
    pivots = gt.linalg.lu_factor(square.detach()).pivots
    assert gradcheck(lambda a: gt.linalg.lu_factor(a).LU, [square])
    assert gradcheck(lambda a, b: gt.linalg.lu_solve(a, pivots, b), [square, right])
    assert gradcheck(gt.linalg.householder_product, [tall, tau.detach().requires_grad_()])
    assert gradcheck(lambda a: tuple(gt.linalg.polar(a)), [tall])
    assert gradcheck(lambda a: tuple(gt.linalg.qr(a.mT)), [tall])
    assert gradcheck(lambda a: gt.linalg.svd(a, full_matrices=True).S, [tall])
    assert math.isfinite(gt.linalg.svd(tall, full_matrices=True).Vh.sum().item())
