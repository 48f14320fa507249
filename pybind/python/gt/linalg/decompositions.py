"""Matrices as products of simpler ones: QR, LU, eigenvectors, singular values; what is computed from these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from gt import _gt
from gt._gt import Tensor
from gt._types import QR
from gt.autograd import Function
from gt.linalg import lapack
from gt.linalg.solving import solve_triangular

CONVERGENCE = "The algorithm failed to converge."


class LU(NamedTuple):
    """A permutation, a lower triangle with ones on its diagonal, and an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


class Eigen(NamedTuple):
    """Eigenvalues in rising order, and the eigenvectors, a column each."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVD(NamedTuple):
    """Left singular vectors, a column each, singular values in falling order, and right ones, a row each."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class LeastSquares(NamedTuple):
    """A least-squares solution; what it leaves over, the ranks and the singular values, or empty ones."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def _differences(values: Tensor) -> Tensor:
    """`values[j] - values[i]` for `i` and `j`, with ones on the diagonal."""
    return values.unsqueeze(-2) - values.unsqueeze(-1) + _gt.eye(values.shape[-1], dtype=values.dtype)


class _QR(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor]:
        q, r = lapack.run("qr", CONVERGENCE, lambda x: tuple(np.linalg.qr(x)), a)
        ctx.save_for_backward(q, r)
        return q, r

    @staticmethod
    def backward(ctx: Any, of_q: Tensor, of_r: Tensor) -> Tensor:
        # As by Walter, Lehmann and Lamour (2012).
        q, r = ctx.saved_tensors
        inner = r @ of_r.mT - of_q.mT @ q
        symmetric = inner.tril() + inner.tril(-1).mT
        return solve_triangular(r.mT, of_q + q @ symmetric, upper=False, left=False)


def qr(A: Tensor, mode: str = "reduced") -> QR:  # noqa: N803 (PyTorch's name)
    """Matrices as products of orthonormal columns and an upper triangle.

    Raises:
        NotImplementedError: A gradient is needed of `"r"`, or of `"complete"` where there are more rows than columns.
    """
    lapack.check("qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    rows, columns = A.shape[-2:]
    if mode != "r" and rows < columns:
        # The first columns decide what the others are multiplied with.
        q, r = _QR.apply(A[..., :rows])
        return QR(q, _gt.cat([r, q.mT @ A[..., rows:]], -1))
    if mode == "reduced" or (mode == "complete" and rows == columns):
        return QR(*_QR.apply(A))
    if A.requires_grad and _gt.is_grad_enabled():
        raise NotImplementedError("linalg.qr has a gradient only of mode 'reduced': detach() the matrix, or use that")
    if mode == "r":
        return QR(_gt.empty(0, dtype=A.dtype), lapack.run("qr", CONVERGENCE, np.linalg.qr, A, mode="r"))
    return QR(*lapack.run("qr", CONVERGENCE, lambda x: tuple(np.linalg.qr(x, mode)), A))


def permutation_of(order: np.ndarray) -> np.ndarray:
    """The matrices that put rows, which are in this order now, back."""
    return np.swapaxes(np.eye(order.shape[-1])[order], -1, -2)


def pivoted(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """One matrix by Gaussian elimination with row exchanges: `P`, `L`, `U`, and which row was exchanged, from 1 on."""
    (rows, columns), upper = a.shape, a.copy()
    count = min(rows, columns)
    order, lower, exchanges = np.arange(rows), np.zeros((rows, count), a.dtype), np.zeros(count, a.dtype)
    for k in range(count):
        pivot = k + int(np.argmax(np.abs(upper[k:, k])))
        exchanges[k] = pivot + 1
        for matrix in (upper, lower, order):
            matrix[[k, pivot]] = matrix[[pivot, k]]
        lower[k, k] = 1
        if upper[k, k] != 0:
            lower[k + 1 :, k] = upper[k + 1 :, k] / upper[k, k]
            upper[k + 1 :] -= np.outer(lower[k + 1 :, k], upper[k])
    return permutation_of(order).astype(a.dtype), lower, np.triu(upper[:count]), exchanges


def _lu_of_batch(a: np.ndarray) -> tuple[np.ndarray, ...]:
    count = math.prod(a.shape[:-2])
    if not count:
        shapes = [part.shape for part in pivoted(np.zeros(a.shape[-2:], a.dtype))]
        return tuple(np.zeros((*a.shape[:-2], *shape), a.dtype) for shape in shapes)
    parts = [pivoted(matrix) for matrix in a.reshape(count, *a.shape[-2:])]
    return tuple(np.stack(part).reshape(*a.shape[:-2], *part[0].shape) for part in zip(*parts, strict=True))


class _LU(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, ...]:
        p, lower, upper, pivots = lapack.run("lu", CONVERGENCE, _lu_of_batch, a)
        pivots = pivots.int()
        ctx.save_for_backward(p, lower, upper)
        ctx.mark_non_differentiable(p, pivots)
        return p, lower, upper, pivots

    @staticmethod
    def backward(ctx: Any, _p: Tensor, of_lower: Tensor, of_upper: Tensor, _pivots: Tensor) -> Tensor:
        p, lower, upper = ctx.saved_tensors
        count = lower.shape[-1]
        # What is below or beside the square part follows from it: `A2 = L2 @ U` or `A2 = L @ U2`.
        (square, below), (of_square, of_below) = ((t[..., :count, :], t[..., count:, :]) for t in (lower, of_lower))
        (first, beside), (of_first, of_beside) = ((t[..., :count], t[..., count:]) for t in (upper, of_upper))
        left = square.mT @ of_square - of_beside @ beside.mT
        right = of_first @ first.mT - below.mT @ of_below
        inner = solve_triangular(first.mT, left.tril(-1) + right.triu(), upper=False, left=False)
        wide = solve_triangular(square.mT, _gt.cat([inner, of_beside], -1), upper=True, unitriangular=True)
        tall = solve_triangular(first.mT, of_below, upper=False, left=False)
        return p @ (_gt.cat([wide, tall], -2) if tall.shape[-2] else wide)


def lu_parts(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # noqa: N803 (as the callers')
    """`P`, `L` and `U`, and the row exchanged with each, from 1 on."""
    return _LU.apply(A)


def lu(A: Tensor, *, pivot: bool = True) -> LU:  # noqa: N803 (PyTorch's name)
    """Matrices as `P @ L @ U`, by Gaussian elimination with row exchanges."""
    lapack.check("lu", A)
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    return LU(*lu_parts(A)[:3])


class _Eigen(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, triangle: str) -> tuple[Tensor, Tensor]:
        values, vectors = lapack.run("eigh", CONVERGENCE, lambda x: tuple(np.linalg.eigh(x, triangle)), a)
        ctx.save_for_backward(values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, of_values: Tensor, of_vectors: Tensor) -> tuple[Tensor, None]:
        values, vectors = ctx.saved_tensors
        turned = vectors.mT @ of_vectors
        inner = (turned - turned.diagonal(0, -2, -1).diag_embed()) / _differences(values)
        result = vectors @ (inner + of_values.diag_embed()) @ vectors.mT
        return (result + result.mT) / 2, None


def eigh(A: Tensor, UPLO: str = "L") -> Eigen:  # noqa: N803 (PyTorch's names)
    """The eigenvalues and eigenvectors of symmetric matrices, of which one triangle is looked at."""
    lapack.check("eigh", A, square=True)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return Eigen(*_Eigen.apply(A, UPLO.upper()))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803 (PyTorch's names)
    """The eigenvalues of symmetric matrices."""
    return eigh(A, UPLO).eigenvalues


def eig(A: Tensor) -> NoReturn:  # noqa: N803 (PyTorch's name)
    """Not there: the eigenvalues of a matrix that is not symmetric are complex numbers."""
    raise NotImplementedError(
        "linalg.eig and eigvals give complex numbers, which GT has not: use eigh for symmetric matrices, or "
        "numpy.linalg.eig(A.numpy())"
    )


eigvals = eig


class _SVD(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, full_matrices: bool) -> tuple[Tensor, Tensor, Tensor]:
        u, s, vh = lapack.run("svd", CONVERGENCE, lambda x: tuple(np.linalg.svd(x, full_matrices)), a)
        ctx.save_for_backward(u, s, vh)
        return u, s, vh

    @staticmethod
    def backward(ctx: Any, of_u: Tensor, of_s: Tensor, of_vh: Tensor) -> tuple[Tensor, None]:
        # As by Townsend (2016). The vectors that belong to no value are any, and have no gradient.
        u, s, vh = ctx.saved_tensors
        count = s.shape[-1]
        u, of_u, vh, of_vh = u[..., :count], of_u[..., :count], vh[..., :count, :], of_vh[..., :count, :]
        of_v, row, column = of_vh.mT, s.unsqueeze(-2), s.unsqueeze(-1)
        differences = _differences(s * s)
        left, right = u.mT @ of_u, vh @ of_v
        inner = (left - left.mT) / differences * row + column * ((right - right.mT) / differences)
        result = u @ (inner + of_s.diag_embed()) @ vh
        if u.shape[-2] > u.shape[-1]:
            result = result + ((of_u - u @ left) / row) @ vh
        if vh.shape[-1] > vh.shape[-2]:
            result = result + (u / row) @ (of_vh - right.mT @ vh)
        return result, None


def svd(A: Tensor, full_matrices: bool = True) -> SVD:  # noqa: N803 (PyTorch's name)
    """Matrices as products of singular vectors and values."""
    lapack.check("svd", A)
    return SVD(*_SVD.apply(A, full_matrices))


def svdvals(A: Tensor) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The singular values of matrices, in falling order."""
    return svd(A, full_matrices=False).S


class Polar(NamedTuple):
    """Orthonormal columns, and symmetric matrices without negative eigenvalues."""

    U: Tensor
    H: Tensor


def polar(A: Tensor) -> Polar:  # noqa: N803 (PyTorch's name)
    """Matrices of at least as many rows as columns as products of a turn and a stretch, `U @ H`."""
    lapack.check("polar", A)
    if A.shape[-2] < A.shape[-1]:
        raise RuntimeError("linalg.polar: Expected A to have at least as many rows as columns")
    u, s, vh = svd(A, full_matrices=False)
    return Polar(u @ vh, (vh.mT * s.unsqueeze(-2)) @ vh)


def matrix_sqrth(A: Tensor) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The symmetric matrices whose squares these symmetric positive-definite ones are."""
    lapack.check("matrix_sqrth", A, square=True)
    values, vectors = eigh(A)
    return (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT


class _PseudoInverse(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, rcond: Any, hermitian: bool) -> Tensor:
        # One triangle is looked at; the gradient is, as PyTorch's, that of the whole.
        looked_at = a.tril() + a.tril(-1).mT if hermitian else a
        inverse = lapack.run("pinv", CONVERGENCE, np.linalg.pinv, looked_at, rcond=rcond)
        ctx.save_for_backward(a, inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # As by Golub and Pereyra (1973).
        a, p = ctx.saved_tensors
        beside = grad.mT @ p @ p.mT
        above = p.mT @ p @ grad.mT
        return beside - a @ (p @ beside) + above - above @ p @ a - p.mT @ grad @ p.mT, None, None


def _tolerance(largest: Tensor, sizes: Sequence[int], atol: Any, rtol: Any) -> Tensor:
    """What singular values count as 0 up to: `max(atol, rtol * the largest)`."""
    absolute = _gt.as_tensor(0.0 if atol is None else atol, dtype=largest.dtype)
    if rtol is None:
        eps = float(np.finfo(str(largest.dtype).removeprefix("gt.")).eps)
        rtol = _gt.where(absolute > 0, 0.0, max(sizes) * eps)
    return (largest * rtol).maximum(absolute)


def _magnitudes(A: Tensor, hermitian: bool) -> Tensor:  # noqa: N803 (as the callers')
    return eigvalsh(A.detach()).abs() if hermitian else svdvals(A.detach())


def pinv(
    A: Tensor,  # noqa: N803 (PyTorch's name)
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:
    """The pseudo-inverses of matrices, singular values of at most `max(atol, rtol * the largest)` counting as 0."""
    lapack.check("pinv", A, square=hermitian)
    if 0 in A.shape:
        return A.mT.clone()
    largest = _magnitudes(A, hermitian).amax(-1)
    tolerance = _tolerance(largest, A.shape[-2:], atol, rtol)
    return _PseudoInverse.apply(A, (tolerance / _gt.where(largest > 0, largest, 1.0)).numpy(), hermitian)


def matrix_rank(
    A: Tensor,  # noqa: N803 (PyTorch's name)
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:
    """How many singular values of matrices are above `max(atol, rtol * the largest)`."""
    lapack.check("matrix_rank", A, square=hermitian)
    if 0 in A.shape:
        return _gt.zeros(A.shape[:-2], dtype=_gt.int64)
    values = _magnitudes(A, hermitian)
    return (values > _tolerance(values.amax(-1), A.shape[-2:], atol, rtol).unsqueeze(-1)).sum(-1)


def lstsq(
    A: Tensor,  # noqa: N803 (PyTorch's names)
    B: Tensor,  # noqa: N803
    rcond: float | None = None,
    *,
    driver: str | None = None,
) -> LeastSquares:
    """The solution of `A @ X = B` of the smallest squares of what is left over, and the smallest such one.

    `driver` says which of the other results are there, as with PyTorch; the solution is the same for all.
    """
    if A.ndim < 2:
        raise RuntimeError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    lapack.check("lstsq", A)
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), but got " + driver
        )
    vector = A.ndim - 1 == B.ndim
    targets = B.unsqueeze(-1) if vector else B
    solution = pinv(A, rtol=rcond) @ targets
    rows, columns = A.shape[-2:]
    ranks = matrix_rank(A, rtol=rcond) if driver != "gels" else _gt.empty(0, dtype=_gt.int64)
    empty = _gt.empty(0, dtype=A.dtype)
    full = driver == "gels" or (driver not in (None, "gelsy") and bool((ranks == columns).all()))
    residuals = (A @ solution - targets).square().sum(-2) if rows > columns and full else solution.reshape(-1)[:0]
    values = svdvals(A.detach()) if driver in ("gelsd", "gelss") else empty
    return LeastSquares(solution.squeeze(-1) if vector else solution, residuals, ranks, values)
