"""Decompositions in LAPACK's packed form (LU, Householder reflections), and the `_ex` functions.

An `_ex` function reports failures in the tensor `info` instead of raising.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gt import _gt
from gt._composites.padding import pad
from gt._gt import Tensor
from gt.linalg import lapack
from gt.linalg.decompositions import LU, lu_parts, permutation_of, pivoted
from gt.linalg.solving import cholesky, inv, solve, solve_triangular


class PackedLU(NamedTuple):
    """A packed LU decomposition: L below the diagonal, U from it on, and the exchanged rows, counted from 1."""

    LU: Tensor
    pivots: Tensor


class PackedLUInfo(NamedTuple):
    """A packed LU decomposition, and the first column without a pivot, counted from 1, or 0."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class CholeskyInfo(NamedTuple):
    """Cholesky factors, and the order of the first leading minor that is not positive-definite, or 0."""

    L: Tensor
    info: Tensor


class InverseInfo(NamedTuple):
    """Inverses, and the first column without a pivot, counted from 1, or 0."""

    inverse: Tensor
    info: Tensor


class SolutionInfo(NamedTuple):
    """Solutions, and the first column without a pivot, counted from 1, or 0."""

    result: Tensor
    info: Tensor


class TriangularSolution(NamedTuple):
    """Solutions of triangular systems, and a copy of the matrices."""

    solution: Tensor
    cloned_coefficient: Tensor


class Reflections(NamedTuple):
    """A packed QR decomposition: R with the Householder vectors below its diagonal, and their factors tau."""

    a: Tensor
    tau: Tensor


# LU -----------------------------------------------------------------------------------------------------------------


def lu_factor(A: Tensor, *, pivot: bool = True) -> PackedLU:  # noqa: N803 (PyTorch's name)
    """The LU decomposition of matrices with partial pivoting, packed in one matrix.

    Args:
        A: A matrix, or a batch of matrices.
        pivot: Must be true: there is no decomposition without pivoting.

    Returns:
        A pair `(LU, pivots)` for `lu_solve`; `pivots` has the row exchanged with each, counted from 1.

    Example:
        >>> A = gt.tensor([[2.0, 0.0], [0.0, 4.0]])
        >>> gt.linalg.lu_solve(*gt.linalg.lu_factor(A), gt.tensor([[2.0], [4.0]]))
        tensor([[1.],
                [1.]])
    """
    lapack.check("lu_factor", A)
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    _, lower, upper, pivots = lu_parts(A)
    rows, columns = A.shape[-2:]
    below = pad(lower.tril(-1), (0, columns - lower.shape[-1]))
    return PackedLU(below + pad(upper, (0, 0, 0, rows - upper.shape[-2])), pivots)


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> PackedLUInfo:  # noqa: N803
    """`lu_factor` that reports the first column without a pivot in `info` instead of raising."""
    factored = lu_factor(A, pivot=pivot)
    diagonal = factored.LU.detach().diagonal(0, -2, -1) == 0
    info = _gt.where(diagonal.any(-1), diagonal.int().argmax(-1) + 1, 0).int() if 0 not in A.shape[-2:] else None
    info = _gt.zeros(A.shape[:-2], dtype=_gt.int32) if info is None else info
    if check_errors and bool((info != 0).any()):
        raise lapack.LinAlgError("linalg.lu_factor: the matrix has no LU factors: U has a 0 on its diagonal")
    return PackedLUInfo(*factored, info)


def _row_order(pivots: np.ndarray, rows: int) -> np.ndarray:
    """The order of the rows after the exchanges."""
    order = np.broadcast_to(np.arange(rows), (*pivots.shape[:-1], rows)).copy()
    for row, exchanges in (
        () if not order.size else zip(order.reshape(-1, rows), pivots.reshape(-1, pivots.shape[-1]), strict=True)
    ):
        for i, j in enumerate(exchanges - 1):
            row[[i, j]] = row[[j, i]]
    return order


def _permutation(pivots: Tensor, rows: int, dtype: _gt.dtype) -> Tensor:
    return _gt.tensor(permutation_of(_row_order(pivots.numpy(), rows)), dtype=dtype)


def lu_unpack(
    LU_data: Tensor,  # noqa: N803 (PyTorch's names)
    LU_pivots: Tensor,  # noqa: N803
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> LU:
    """The factors P, L and U of a packed LU decomposition; those not requested are empty."""
    rows, columns = LU_data.shape[-2:]
    count = min(rows, columns)
    permutation = lower = upper = _gt.empty(0, dtype=LU_data.dtype)
    if LU_pivots.dtype != _gt.int32 and unpack_pivots:
        raise RuntimeError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.")
    if unpack_pivots:
        permutation = _permutation(LU_pivots, rows, LU_data.dtype)
    if unpack_data:
        lower = LU_data[..., :count].tril(-1) + _gt.eye(rows, count, dtype=LU_data.dtype)
        upper = LU_data[..., :count, :].triu()
    return LU(permutation, lower, upper)


def lu_solve(
    LU: Tensor,  # noqa: N803 (PyTorch's names)
    pivots: Tensor,
    B: Tensor,  # noqa: N803
    *,
    left: bool = True,
    adjoint: bool = False,
) -> Tensor:
    """The solution X of `A @ X = B`, from the packed LU decomposition of A.

    Args:
        LU: The packed factors that `lu_factor` returned.
        pivots: The row exchanges that it returned.
        B: The right-hand sides.
        left: Whether A stands on the left; otherwise `X @ A = B` is solved.
        adjoint: Whether A is transposed.

    Example:
        >>> A = gt.tensor([[2.0, 0.0], [0.0, 4.0]])
        >>> LU, pivots = gt.linalg.lu_factor(A)
        >>> gt.linalg.lu_solve(LU, pivots, gt.tensor([[2.0], [4.0]]))
        tensor([[1.],
                [1.]])
    """
    if not left:
        return lu_solve(LU, pivots, B.mT, adjoint=not adjoint).mT
    permutation = _permutation(pivots, LU.shape[-1], LU.dtype)
    if adjoint:
        half = solve_triangular(LU.mT, B, upper=False)
        return permutation @ solve_triangular(LU.mT, half, upper=True, unitriangular=True)
    half = solve_triangular(LU, permutation.mT @ B, upper=False, unitriangular=True)
    return solve_triangular(LU, half, upper=True)


def triangular_solve(
    b: Tensor,
    A: Tensor,  # noqa: N803 (PyTorch's name)
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> TriangularSolution:
    """The solution of triangular systems and a copy of the matrices: `solve_triangular` under its older name."""
    matrix, upper = (A.mT, not upper) if transpose else (A, upper)
    solution = solve_triangular(matrix, b, upper=upper, unitriangular=unitriangular)
    return TriangularSolution(solution, A.expand((*solution.shape[:-2], *A.shape[-2:])).clone())


# Reflections ---------------------------------------------------------------------------------------------------------


def _apply_reflections(A: Tensor, tau: Tensor, other: Tensor, transpose: bool) -> Tensor:  # noqa: N803 (as the callers')
    """The product of Householder reflections `1 - tau[i] * v[i] @ v[i].mT` with a matrix.

    `v[i]` is column `i` of `A` below its diagonal, on which it is 1, and above which it is 0.
    """
    count = tau.shape[-1]
    v = A[..., :count].tril(-1) + _gt.eye(A.shape[-2], count, dtype=A.dtype)
    # Compact WY representation: the product is 1 - v @ t @ v.mT with a triangle t (Schreiber and Van Loan 1989).
    inverse = tau.unsqueeze(-1) * (v.mT @ v).triu(1)
    t = solve_triangular(inverse, tau.diag_embed(), upper=True, unitriangular=True)
    return other - v @ ((t.mT if transpose else t) @ (v.mT @ other))


def geqrf(input: Tensor) -> Reflections:
    """The QR decomposition as packed by LAPACK: R with the Householder vectors below it, and their factors."""
    lapack.check("geqrf", input)
    if 0 in input.shape:
        return Reflections(input.clone(), input.new_zeros((*input.shape[:-2], min(input.shape[-2:]))))
    packed, tau = lapack.run("qr", "", lambda x: tuple(np.linalg.qr(x, "raw")), input.detach())
    return Reflections(packed.mT.contiguous(), tau)


def householder_product(A: Tensor, tau: Tensor) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The first columns of a product of Householder reflections: Q of what `geqrf` returned."""
    lapack.check("householder_product", A)
    rows, columns = A.shape[-2:]
    if rows < columns:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    if tau.shape[-1] > columns or tau.shape[:-1] != A.shape[:-2]:
        raise RuntimeError(
            "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1], and the "
            f"batches must be the same, but they are of shape {list(A.shape)} and {list(tau.shape)}"
        )
    return _apply_reflections(A, tau, _gt.eye(rows, columns, dtype=A.dtype), False)


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """The product of a matrix with the whole Q of `geqrf`, or its transpose, from the left or the right."""
    if input.ndim < 2 or other.ndim < 2:
        raise RuntimeError(f"torch.ormqr: {'input' if input.ndim < 2 else 'other'} must have at least 2 dimensions.")
    across = -2 if left else -1
    if tau.shape[-1] != min(other.shape[across], input.shape[-1]):
        raise RuntimeError(f"torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{across}], input.shape[-1])")
    if left:
        return _apply_reflections(input, tau, other, transpose)
    return _apply_reflections(input, tau, other.mT, not transpose).mT


# Without raising -----------------------------------------------------------------------------------------------------


def _with_info(
    A: Tensor,  # noqa: N803 (as the callers')
    check_errors: bool,
    compute: Callable[[Tensor], Tensor],
    fault: Callable[[np.ndarray], int],
) -> tuple[Tensor, Tensor]:
    """The result for each matrix, NaN where there is none, and LAPACK's `info` for each, 0 for success."""
    shape = A.shape[:-2]
    try:
        return compute(A), _gt.zeros(shape, dtype=_gt.int32)
    except lapack.LinAlgError:
        if check_errors:
            raise
    matrices = A.numpy(force=True).reshape(-1, *A.shape[-2:])
    info = _gt.tensor(np.array([fault(matrix) for matrix in matrices], np.int32).reshape(shape))
    good = (info == 0).reshape(*shape, 1, 1)
    result = compute(_gt.where(good, A, _gt.eye(A.shape[-1], dtype=A.dtype)))
    return _gt.where(good.reshape(*shape, *[1] * (result.ndim - len(shape))), result, float("nan")), info


def _first_minor(matrix: np.ndarray) -> int:
    """The order of the first leading minor that is not positive-definite, or 0."""
    for order in range(1, len(matrix) + 1):
        try:
            np.linalg.cholesky(matrix[:order, :order])
        except np.linalg.LinAlgError:
            return order
    return 0


def _first_column(matrix: np.ndarray) -> int:
    """The first column without a pivot, counted from 1, or 0."""
    zeros = np.flatnonzero(np.diagonal(pivoted(matrix)[2]) == 0)
    return int(zeros[0]) + 1 if len(zeros) else 0


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyInfo:  # noqa: N803
    """`cholesky` whose `info` has the order of the first minor that is not positive-definite; it does not raise."""
    return CholeskyInfo(*_with_info(A, check_errors, lambda a: cholesky(a, upper=upper), _first_minor))


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseInfo:  # noqa: N803 (PyTorch's name)
    """`inv` that reports the first column without a pivot in `info` instead of raising."""
    return InverseInfo(*_with_info(A, check_errors, inv, _first_column))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolutionInfo:  # noqa: N803
    """`solve` that reports the first column without a pivot in `info` instead of raising."""
    return SolutionInfo(*_with_info(A, check_errors, lambda a: solve(a, B, left=left), _first_column))
