"""Linear algebra under the names it has outside `gt.linalg`."""

from __future__ import annotations

import math

from gt import _gt, linalg
from gt._gt import Tensor
from gt._types import QR, SignLogAbsDet
from gt.linalg import factored
from gt.linalg.matrix_functions import matrix_exp, matrix_power


def inverse(input: Tensor) -> Tensor:
    """The inverses of matrices."""
    return linalg.inv(input)


def det(input: Tensor) -> Tensor:
    """The determinants of matrices."""
    return linalg.det(input)


def logdet(input: Tensor) -> Tensor:
    """The logarithms of determinants; NaN where one is negative."""
    sign, logarithm = linalg.slogdet(input)
    return _gt.where(sign < 0, math.nan, logarithm)


def slogdet(input: Tensor) -> SignLogAbsDet:
    """The signs of determinants, and the logarithms of their absolute values."""
    return linalg.slogdet(input)


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The triangular factors of symmetric positive-definite matrices."""
    return linalg.cholesky(input, upper=upper)


def cholesky_solve(input: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """The solution of `A @ X = input`, from the factor `input2` that `cholesky` made of `A`."""
    lower = input2.mT if upper else input2
    # One triangle is looked at; the gradient is, as PyTorch's, that of the whole.
    lower = lower - (lower - lower.tril()).detach()
    return linalg.solve(lower @ lower.mT, input)


def cholesky_inverse(input: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix, from the factor that `cholesky` made of it."""
    return cholesky_solve(_gt.eye(input.shape[-1], dtype=input.dtype), input, upper)


def qr(input: Tensor, some: bool = True) -> QR:
    """Matrices as products of orthonormal columns and an upper triangle."""
    return linalg.qr(input, "reduced" if some else "complete")


def svd(input: Tensor, some: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Matrices as products of singular vectors and values: `U`, `S` and `V`, of which a column is a vector."""
    u, s, vh = linalg.svd(input, full_matrices=not some)
    return u, s, vh.mT


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverses of matrices."""
    return linalg.pinv(input, rtol=rcond)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:  # noqa: N803 (PyTorch's name)
    """`linalg.lu_factor` under its older name, with `get_infos` its `_ex`."""
    return linalg.lu_factor_ex(A, pivot=pivot) if get_infos else linalg.lu_factor(A, pivot=pivot)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:  # noqa: N803 (PyTorch's names)
    """`linalg.lu_solve` under its older name."""
    return linalg.lu_solve(LU_data, LU_pivots, b)


def lu_unpack(
    LU_data: Tensor,  # noqa: N803 (PyTorch's names)
    LU_pivots: Tensor,  # noqa: N803
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """The `P`, `L` and `U` of what `linalg.lu_factor` packed; those not asked for are empty."""
    return factored.lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots)


def triangular_solve(
    b: Tensor,
    A: Tensor,  # noqa: N803 (PyTorch's name)
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:
    """`linalg.solve_triangular` under its older name, and a copy of the matrices."""
    return factored.triangular_solve(b, A, upper, transpose, unitriangular)


def orgqr(input: Tensor, input2: Tensor) -> Tensor:
    """`linalg.householder_product` under its older name."""
    return linalg.householder_product(input, input2)


def geqrf(input: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices as reflections and upper triangles, packed as LAPACK does; `linalg.householder_product` gives Q."""
    return factored.geqrf(input)


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """The product of a matrix with the whole Q of what `geqrf` gave, or with its transpose, from either side."""
    return factored.ormqr(input, tau, other, left, transpose)


def svd_lowrank(
    A: Tensor,  # noqa: N803 (PyTorch's names)
    q: int | None = 6,
    niter: int | None = 2,
    M: Tensor | None = None,  # noqa: N803
) -> tuple[Tensor, Tensor, Tensor]:
    """About the `q` largest singular values of `A`, or of `A - M`, and their vectors: `U`, `S` and `V`.

    Looks for where `A` takes random vectors, as by Halko, Martinsson and Tropp (2009).
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
    """`svd_lowrank` of a matrix less the mean of each column: the principal components are the columns of `V`."""
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
    matrix_exp,
)
IN_PLACE = ()
FUNCTIONS = (lu_unpack, svd_lowrank, pca_lowrank)
