"""Linear algebra under the names it has outside `gt.linalg`."""

from __future__ import annotations

import math

from gt import _gt, linalg
from gt._gt import Tensor
from gt._types import QR, SignLogAbsDet
from gt.linalg import packed
from gt.linalg.matrix_functions import matrix_power


def inverse(input: Tensor) -> Tensor:
    """The inverse of matrices: `gt.linalg.inv`.

    Example:
        >>> gt.inverse(gt.tensor([[2.0, 0.0], [0.0, 4.0]]))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2500]])
    """
    return linalg.inv(input)


def det(input: Tensor) -> Tensor:
    """The determinant of matrices: `gt.linalg.det`.

    Example:
        >>> gt.det(gt.tensor([[1.0, 2.0], [3.0, 5.0]])).round(decimals=4)
        tensor(-1.)
    """
    return linalg.det(input)


def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant of matrices; NaN where it is negative.

    Example:
        >>> gt.logdet(gt.eye(2) * 2)
        tensor(1.3863)
    """
    sign, logarithm = linalg.slogdet(input)
    return _gt.where(sign < 0, math.nan, logarithm)


def slogdet(input: Tensor) -> SignLogAbsDet:
    """The sign and the logarithm of the absolute value of the determinant: `gt.linalg.slogdet`."""
    return linalg.slogdet(input)


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The Cholesky factor of symmetric positive-definite matrices: `gt.linalg.cholesky`.

    Example:
        >>> gt.cholesky(gt.tensor([[4.0, 2.0], [2.0, 5.0]]))
        tensor([[2., 0.],
                [1., 2.]])
    """
    return linalg.cholesky(input, upper=upper)


def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """The solution X of `A @ X = input`, from the Cholesky factor of A.

    Args:
        input: The right-hand sides.
        input2: The factor that `cholesky` made of A.
        upper: Whether the factor is the upper one.

    Example:
        >>> a = gt.tensor([[4.0, 2.0], [2.0, 5.0]])
        >>> gt.cholesky_solve(gt.tensor([[8.0], [9.0]]), gt.cholesky(a))
        tensor([[1.3750],
                [1.2500]])
    """
    lower = input2.mT if upper else input2
    # Only one triangle is read; the gradient is that of the whole matrix, as in PyTorch.
    lower = lower - (lower - lower.tril()).detach()
    return linalg.solve(lower @ lower.mT, input)


def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix, from its Cholesky factor."""
    return cholesky_solve(_gt.eye(input.shape[-1], dtype=input.dtype), input, upper)


def qr(input: Tensor, some: bool = True) -> QR:
    """The QR decomposition of matrices: `gt.linalg.qr`, reduced if `some`."""
    return linalg.qr(input, "reduced" if some else "complete")


def svd(input: Tensor, some: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """The singular value decomposition `U @ diag(S) @ V.mT` of matrices; see `gt.linalg.svd`."""
    u, s, vh = linalg.svd(input, full_matrices=not some)
    return u, s, vh.mT


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The Moore-Penrose pseudoinverse of matrices: `gt.linalg.pinv`."""
    return linalg.pinv(input, rtol=rcond)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:  # noqa: N803 (PyTorch's name)
    """The packed LU decomposition: `gt.linalg.lu_factor`, or `lu_factor_ex` with `get_infos`."""
    return linalg.lu_factor_ex(A, pivot=pivot) if get_infos else linalg.lu_factor(A, pivot=pivot)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:  # noqa: N803 (PyTorch's names)
    """The solution X of `A @ X = b`, from the packed LU decomposition of A: `gt.linalg.lu_solve`."""
    return linalg.lu_solve(LU_data, LU_pivots, b)


def lu_unpack(
    LU_data: Tensor,  # noqa: N803 (PyTorch's names)
    LU_pivots: Tensor,  # noqa: N803
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """The factors P, L and U of a packed LU decomposition; those not requested are empty."""
    return packed.lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots)


def triangular_solve(
    b: Tensor,
    A: Tensor,  # noqa: N803 (PyTorch's name)
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:
    """The solution X of `A @ X = b` for triangular A, and a copy of A: `gt.linalg.solve_triangular`."""
    return packed.triangular_solve(b, A, upper, transpose, unitriangular)


def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """The matrix Q of Householder reflections: `gt.linalg.householder_product`."""
    return linalg.householder_product(input, input2)


def geqrf(input: Tensor) -> tuple[Tensor, Tensor]:
    """The QR decomposition as packed by LAPACK: R with the Householder vectors below it, and their factors."""
    return packed.geqrf(input)


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """The product of a matrix with the whole Q of `geqrf`, or its transpose, from the left or the right."""
    return packed.ormqr(input, tau, other, left, transpose)


def svd_lowrank(
    A: Tensor,  # noqa: N803 (PyTorch's names)
    q: int | None = 6,
    niter: int | None = 2,
    M: Tensor | None = None,  # noqa: N803
) -> tuple[Tensor, Tensor, Tensor]:
    """The `q` largest singular values of a matrix and their vectors, approximately: `U`, `S` and `V`.

    The method is the randomized range finder of Halko, Martinsson and Tropp (2009).

    Args:
        A: The matrix.
        q: The number of singular values.
        niter: The number of power iterations, which make it more exact.
        M: A matrix to subtract from `A` first.
    """
    matrix = A if M is None else A - M
    if matrix.shape[-2] < matrix.shape[-1]:
        v, s, u = svd_lowrank(matrix.mT, q, niter)
        return u, s, v
    count = 6 if q is None else q
    base = linalg.qr(matrix @ _gt.randn(matrix.shape[-1], count, dtype=matrix.dtype)).Q
    for _ in range(niter or 0):
        base = linalg.qr(matrix @ linalg.qr(matrix.mT @ base).Q).Q
    u, s, vh = linalg.svd(base.mT @ matrix, full_matrices=False)
    return base @ u, s, vh.mT


def pca_lowrank(
    A: Tensor,  # noqa: N803 (PyTorch's name)
    q: int | None = None,
    center: bool = True,
    niter: int = 2,
) -> tuple[Tensor, Tensor, Tensor]:
    """Principal component analysis by `svd_lowrank`: the principal directions are the columns of `V`.

    Args:
        A: A matrix with a row for each sample.
        q: The number of components.
        center: Whether the mean of each column is subtracted first.
        niter: The number of power iterations.
    """
    smaller = min(A.shape[-2:])
    count = min(6, smaller) if q is None else q
    if not 0 <= count <= smaller:
        raise ValueError(f"q(={count}) must be non-negative integer and not greater than min(m, n)={smaller}")
    if niter < 0:
        raise ValueError(f"niter(={niter}) must be non-negative integer")
    return svd_lowrank(A, count, niter, A.mean(-2, keepdim=True) if center else None)


METHODS = (
    inverse,
    det,
    logdet,
    slogdet,
    cholesky,
    cholesky_solve,
    cholesky_inverse,
    qr,
    svd,
    pinverse,
    lu,
    lu_solve,
    geqrf,
    orgqr,
    ormqr,
    triangular_solve,
    matrix_power,
)
IN_PLACE = ()
FUNCTIONS = (lu_unpack, svd_lowrank, pca_lowrank)
