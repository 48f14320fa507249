"""Matrix decompositions (QR, LU, eigenvalues, singular values), and functions that are computed from them."""

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
    """The factors of `A = P @ L @ U`: a permutation, a unit lower triangle and an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


class Eigen(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVD(NamedTuple):
    """The factors of `A = U @ diag(S) @ Vh`, with the singular values in descending order."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class LeastSquares(NamedTuple):
    """A least-squares solution, its residuals, the rank and the singular values; some are empty, by the driver."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def _differences(values: Tensor) -> Tensor:
    """`values[j] - values[i]` for each i and j, with ones on the diagonal."""
    return values.unsqueeze(-2) - values.unsqueeze(-1) + _gt.eye(values.shape[-1], dtype=values.dtype)


class _QR(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor]:
        q, r = lapack.run("qr", CONVERGENCE, lambda x: tuple(np.linalg.qr(x)), a)
        ctx.save_for_backward(q, r)
        return q, r

    @staticmethod
    def backward(ctx: Any, of_q: Tensor, of_r: Tensor) -> Tensor:
        # The gradient is that of Walter, Lehmann and Lamour (2012).
        q, r = ctx.saved_tensors
        inner = r @ of_r.mT - of_q.mT @ q
        symmetric = inner.tril() + inner.tril(-1).mT
        return solve_triangular(r.mT, of_q + q @ symmetric, upper=False, left=False)


def qr(A: Tensor, mode: str = "reduced") -> QR:  # noqa: N803 (PyTorch's name)
    """The QR decomposition of matrices: `A = Q @ R` with orthonormal columns Q and an upper triangle R.

    Args:
        A: A matrix, or a batch of matrices.
        mode: `"reduced"` (Q has as many columns as A has at most), `"complete"` (Q is square) or `"r"` (R alone).

    Returns:
        A pair `(Q, R)`.

    Raises:
        NotImplementedError: A gradient is needed in mode `"r"`, or in mode `"complete"` of a tall matrix.

    Example:
        >>> Q, R = gt.linalg.qr(gt.tensor([[3.0, 1.0], [4.0, 2.0]]))
        >>> gt.allclose(Q @ R, gt.tensor([[3.0, 1.0], [4.0, 2.0]]), atol=1e-5)
        True
    """
    lapack.check("qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
        )
    rows, columns = A.shape[-2:]
    if mode != "r" and rows < columns:
        # For a wide matrix, the first columns determine Q; R has the product with the others.
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
    """The permutation matrices P for which `P @ rows[order]` are the rows in their original order."""
    return np.swapaxes(np.eye(order.shape[-1])[order], -1, -2)


def pivoted(a: np.ndarray) -> tuple[np.ndarray, ...]:
    """LU decomposition of one matrix with partial pivoting: P, L, U and the exchanged rows, counted from 1."""
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
        # The part below or beside the square one follows from it: `A2 = L2 @ U` or `A2 = L @ U2`.
        (square, below), (of_square, of_below) = ((t[..., :count, :], t[..., count:, :]) for t in (lower, of_lower))
        (first, beside), (of_first, of_beside) = ((t[..., :count], t[..., count:]) for t in (upper, of_upper))
        left = square.mT @ of_square - of_beside @ beside.mT
        right = of_first @ first.mT - below.mT @ of_below
        inner = solve_triangular(first.mT, left.tril(-1) + right.triu(), upper=False, left=False)
        wide = solve_triangular(square.mT, _gt.cat([inner, of_beside], -1), upper=True, unitriangular=True)
        tall = solve_triangular(first.mT, of_below, upper=False, left=False)
        return p @ (_gt.cat([wide, tall], -2) if tall.shape[-2] else wide)


def lu_parts(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # noqa: N803 (as the callers')
    """P, L and U of matrices, and the row exchanged with each row, counted from 1."""
    return _LU.apply(A)


def lu(A: Tensor, *, pivot: bool = True) -> LU:  # noqa: N803 (PyTorch's name)
    """The LU decomposition of matrices with partial pivoting: `A = P @ L @ U`.

    Args:
        A: A matrix, or a batch of matrices.
        pivot: Must be true: there is no decomposition without pivoting.

    Returns:
        A triple `(P, L, U)`.

    Example:
        >>> P, L, U = gt.linalg.lu(gt.tensor([[1.0, 2.0], [3.0, 4.0]]))
        >>> U
        tensor([[3.0000, 4.0000],
                [0.0000, 0.6667]])
    """
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
    """The eigenvalues and eigenvectors of symmetric matrices.

    Args:
        A: A symmetric matrix, or a batch of them. Only one triangle is read.
        UPLO: The triangle: `"L"` or `"U"`.

    Returns:
        A pair `(eigenvalues, eigenvectors)`, in ascending order; the eigenvectors are columns.

    Example:
        >>> gt.linalg.eigh(gt.tensor([[2.0, 0.0], [0.0, 1.0]])).eigenvalues
        tensor([1., 2.])
    """
    lapack.check("eigh", A, square=True)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return Eigen(*_Eigen.apply(A, UPLO.upper()))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:  # noqa: N803 (PyTorch's names)
    """The eigenvalues of symmetric matrices, in ascending order; see `eigh`.

    Example:
        >>> gt.linalg.eigvalsh(gt.tensor([[2.0, 0.0], [0.0, 1.0]]))
        tensor([1., 2.])
    """
    return eigh(A, UPLO).eigenvalues


def eig(A: Tensor) -> NoReturn:  # noqa: N803 (PyTorch's name)
    """The eigenvalues of general matrices, which are complex: not supported.

    Raises:
        NotImplementedError: Always: there are no complex dtypes.
    """
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
        # The gradient is that of Townsend (2016). Vectors without a singular value are arbitrary, and have no gradient.
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
    """The singular value decomposition of matrices: `A = U @ diag(S) @ Vh`.

    Args:
        A: A matrix, or a batch of matrices.
        full_matrices: Whether U and Vh are square.

    Returns:
        A triple `(U, S, Vh)`; the singular values S are in descending order.

    Example:
        >>> U, S, Vh = gt.linalg.svd(gt.tensor([[3.0, 0.0], [0.0, 5.0]]))
        >>> S
        tensor([5., 3.])
    """
    lapack.check("svd", A)
    return SVD(*_SVD.apply(A, full_matrices))


def svdvals(A: Tensor) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The singular values of matrices, in descending order.

    Example:
        >>> gt.linalg.svdvals(gt.tensor([[3.0, 0.0], [0.0, 5.0]]))
        tensor([5., 3.])
    """
    return svd(A, full_matrices=False).S


class Polar(NamedTuple):
    """The factors of a polar decomposition: orthonormal columns, and a positive semidefinite matrix."""

    U: Tensor
    H: Tensor


def polar(A: Tensor) -> Polar:  # noqa: N803 (PyTorch's name)
    """The polar decomposition `A = U @ H` of matrices with at least as many rows as columns.

    Returns:
        A pair `(U, H)`: orthonormal columns, and a symmetric positive semidefinite matrix.
    """
    lapack.check("polar", A)
    if A.shape[-2] < A.shape[-1]:
        raise RuntimeError("linalg.polar: Expected A to have at least as many rows as columns")
    u, s, vh = svd(A, full_matrices=False)
    return Polar(u @ vh, (vh.mT * s.unsqueeze(-2)) @ vh)


def matrix_sqrth(A: Tensor) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The symmetric square root of symmetric positive-definite matrices."""
    lapack.check("matrix_sqrth", A, square=True)
    values, vectors = eigh(A)
    return (vectors * values.sqrt().unsqueeze(-2)) @ vectors.mT


class _PseudoInverse(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, rcond: Any, hermitian: bool) -> Tensor:
        # Only one triangle is read; the gradient is that of the whole matrix, as in PyTorch.
        looked_at = a.tril() + a.tril(-1).mT if hermitian else a
        inverse = lapack.run("pinv", CONVERGENCE, np.linalg.pinv, looked_at, rcond=rcond)
        ctx.save_for_backward(a, inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # The gradient is that of Golub and Pereyra (1973).
        a, p = ctx.saved_tensors
        beside = grad.mT @ p @ p.mT
        above = p.mT @ p @ grad.mT
        return beside - a @ (p @ beside) + above - above @ p @ a - p.mT @ grad @ p.mT, None, None


def _tolerance(largest: Tensor, sizes: Sequence[int], atol: Any, rtol: Any) -> Tensor:
    """The largest singular value that counts as 0: max(atol, rtol * the largest of all)."""
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
    """The Moore-Penrose pseudoinverse of matrices.

    Args:
        A: A matrix, or a batch of matrices.
        atol: The absolute tolerance: singular values of at most `max(atol, rtol * largest)` count as 0.
        rtol: The relative tolerance; by default the larger size times the dtype's epsilon, or 0 if `atol` is positive.
        hermitian: Whether the matrices are symmetric, which is faster.

    Example:
        >>> gt.linalg.pinv(gt.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
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
    """The rank of matrices: the number of singular values above `max(atol, rtol * largest)`; see `pinv`.

    Example:
        >>> gt.linalg.matrix_rank(gt.tensor([[1.0, 2.0], [2.0, 4.0]]))
        tensor(1)
    """
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
    """The least-squares solution X of `A @ X = B`: of all that minimize the residual, the one with the smallest norm.

    Args:
        A: A matrix, or a batch of matrices.
        B: The right-hand sides.
        rcond: Singular values below `rcond` times the largest count as 0.
        driver: LAPACK's driver. It decides which of the other results are not empty; the solution is the same.

    Returns:
        A tuple `(solution, residuals, rank, singular_values)`.

    Example:
        >>> A = gt.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
        >>> B = gt.tensor([[1.0], [3.0], [5.0]])
        >>> gt.linalg.lstsq(A, B).solution.round(decimals=3)
        tensor([[1.],
                [2.]])
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
