"""Matrices as products of simpler ones: QR, LU, eigenvectors, singular values; what is computed from these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

import gt
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
        NotImplementedError: A gradient is needed of `"complete"`, of `"r"`, or of more columns than rows.
    """
    lapack.check("qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    if mode == "reduced" and A.shape[-2] >= A.shape[-1]:
        return QR(*_QR.apply(A))
    _no_gradient("qr", A, "of mode 'reduced' and at least as many rows as columns")
    if mode == "r":
        return QR(_gt.empty(0, dtype=A.dtype), lapack.run("qr", CONVERGENCE, np.linalg.qr, A, mode="r"))
    return QR(*lapack.run("qr", CONVERGENCE, lambda x: tuple(np.linalg.qr(x, mode)), A))


def householder_product(A: Tensor, tau: Tensor) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The first columns of a product of reflections `1 - tau[i] * v[i] @ v[i].mT`, one for each element of `tau`.

    `v[i]` is column `i` of `A` below its diagonal, on which it is 1, and above which it is 0: what LAPACK makes of QR.
    """
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
    one = _gt.eye(rows, columns, dtype=A.dtype)
    v = A[..., : tau.shape[-1]].tril(-1) + one[:, : tau.shape[-1]]
    # The product is 1 - v @ t @ v.mT with a triangle t (Schreiber and Van Loan 1989).
    inverse = tau.unsqueeze(-1) * (v.mT @ v).triu(1)
    t = solve_triangular(inverse, tau.diag_embed(), upper=True, unitriangular=True)
    return one - v @ (t @ v[..., :columns, :].mT)


def _no_gradient(name: str, matrix: Tensor, where: str) -> None:
    if matrix.requires_grad and _gt.is_grad_enabled():
        raise NotImplementedError(f"linalg.{name} has a gradient only {where}: detach() the matrix, or use that")


def _pivoted(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One matrix by Gaussian elimination with row exchanges."""
    (rows, columns), upper = a.shape, a.copy()
    count = min(rows, columns)
    order, lower = np.arange(rows), np.zeros((rows, count), a.dtype)
    for k in range(count):
        pivot = k + int(np.argmax(np.abs(upper[k:, k])))
        for matrix in (upper, lower, order):
            matrix[[k, pivot]] = matrix[[pivot, k]]
        lower[k, k] = 1
        if upper[k, k] != 0:
            lower[k + 1 :, k] = upper[k + 1 :, k] / upper[k, k]
            upper[k + 1 :] -= np.outer(lower[k + 1 :, k], upper[k])
    permutation = np.zeros((rows, rows), a.dtype)
    permutation[order, np.arange(rows)] = 1
    return permutation, lower, np.triu(upper[:count])


def _lu_of_batch(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = math.prod(a.shape[:-2])
    if not count:
        shapes = [part.shape for part in _pivoted(np.zeros(a.shape[-2:], a.dtype))]
        return tuple(np.zeros((*a.shape[:-2], *shape), a.dtype) for shape in shapes)
    parts = [_pivoted(matrix) for matrix in a.reshape(count, *a.shape[-2:])]
    return tuple(np.stack(part).reshape(*a.shape[:-2], *part[0].shape) for part in zip(*parts, strict=True))


class _LU(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p, lower, upper = lapack.run("lu", CONVERGENCE, _lu_of_batch, a)
        ctx.save_for_backward(p, lower, upper)
        ctx.mark_non_differentiable(p)
        return p, lower, upper

    @staticmethod
    def backward(ctx: Any, _p: Tensor, of_lower: Tensor, of_upper: Tensor) -> Tensor:
        p, lower, upper = ctx.saved_tensors
        count = lower.shape[-1]
        # What is below or beside the square part follows from it: `A2 = L2 @ U` or `A2 = L @ U2`.
        (square, below), (of_square, of_below) = ((t[..., :count, :], t[..., count:, :]) for t in (lower, of_lower))
        (first, beside), (of_first, of_beside) = ((t[..., :count], t[..., count:]) for t in (upper, of_upper))
        left = square.mT @ of_square - of_beside @ beside.mT
        right = of_first @ first.mT - below.mT @ of_below
        inner = solve_triangular(first.mT, left.tril(-1) + right.triu(), upper=False, left=False)
        wide = solve_triangular(square.mT, gt.cat([inner, of_beside], -1), upper=True, unitriangular=True)
        tall = solve_triangular(first.mT, of_below, upper=False, left=False)
        return p @ (gt.cat([wide, tall], -2) if tall.shape[-2] else wide)


def lu(A: Tensor, *, pivot: bool = True) -> LU:  # noqa: N803 (PyTorch's name)
    """Matrices as `P @ L @ U`, by Gaussian elimination with row exchanges."""
    lapack.check("lu", A)
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    return LU(*_LU.apply(A))


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
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, s, vh = lapack.run("svd", CONVERGENCE, lambda x: tuple(np.linalg.svd(x, full_matrices=False)), a)
        ctx.save_for_backward(u, s, vh)
        return u, s, vh

    @staticmethod
    def backward(ctx: Any, of_u: Tensor, of_s: Tensor, of_vh: Tensor) -> Tensor:
        # As by Townsend (2016).
        u, s, vh = ctx.saved_tensors
        of_v, row, column = of_vh.mT, s.unsqueeze(-2), s.unsqueeze(-1)
        differences = _differences(s * s)
        left, right = u.mT @ of_u, vh @ of_v
        inner = (left - left.mT) / differences * row + column * ((right - right.mT) / differences)
        result = u @ (inner + of_s.diag_embed()) @ vh
        if u.shape[-2] > u.shape[-1]:
            result = result + ((of_u - u @ left) / row) @ vh
        if vh.shape[-1] > vh.shape[-2]:
            result = result + (u / row) @ (of_vh - right.mT @ vh)
        return result


def svd(A: Tensor, full_matrices: bool = True) -> SVD:  # noqa: N803 (PyTorch's name)
    """Matrices as products of singular vectors and values.

    Raises:
        NotImplementedError: A gradient is needed with `full_matrices`.
    """
    lapack.check("svd", A)
    if full_matrices and A.shape[-1] != A.shape[-2]:
        _no_gradient("svd", A, "with full_matrices=False")
        return SVD(*lapack.run("svd", CONVERGENCE, lambda x: tuple(np.linalg.svd(x)), A))
    return SVD(*_SVD.apply(A))


def svdvals(A: Tensor) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The singular values of matrices, in falling order."""
    return svd(A, full_matrices=False).S


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
    absolute = gt.as_tensor(0.0 if atol is None else atol, dtype=largest.dtype)
    if rtol is None:
        eps = float(np.finfo(str(largest.dtype).removeprefix("gt.")).eps)
        rtol = gt.where(absolute > 0, 0.0, max(sizes) * eps)
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
    return _PseudoInverse.apply(A, (tolerance / gt.where(largest > 0, largest, 1.0)).numpy(), hermitian)


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
