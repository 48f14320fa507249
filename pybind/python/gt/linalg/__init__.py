"""Linear algebra, under PyTorch's path.

Norms are composed of other operations. What needs LAPACK is computed by NumPy: the elements are fetched, and the result
brought back; its gradient is again made of operations of GT's.
"""

from __future__ import annotations

from gt import _absent, _forms, _gt
from gt._composites.products import cross as _cross
from gt._composites.products import multi_dot, vecdot
from gt._gt import Tensor
from gt.linalg.decompositions import (
    eig,
    eigh,
    eigvals,
    eigvalsh,
    lstsq,
    lu,
    matrix_rank,
    matrix_sqrth,
    pinv,
    polar,
    qr,
    svd,
    svdvals,
)
from gt.linalg.factored import (
    cholesky_ex,
    householder_product,
    inv_ex,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    solve_ex,
)
from gt.linalg.lapack import LinAlgError
from gt.linalg.matrix_functions import matrix_exp, matrix_power
from gt.linalg.norms import cond, matrix_norm, norm, vector_norm
from gt.linalg.solving import (
    cholesky,
    det,
    inv,
    slogdet,
    solve,
    solve_triangular,
    tensorinv,
    tensorsolve,
)


def vander(x: Tensor, N: int | None = None) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The powers of the elements of the last axis, rising, a row each."""
    if N is not None and N <= 1:
        raise RuntimeError("N must be greater than 1.")
    rows = x if x.ndim else x.reshape(1)
    return rows.unsqueeze(-1) ** _gt.arange(rows.shape[-1] if N is None else N)


def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross products of vectors of 3 along an axis."""
    return _cross(input, other, dim)


def matmul(input: Tensor, other: Tensor) -> Tensor:
    """`gt.matmul`."""
    return input @ other


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The diagonals of matrices, the last two axes: a view."""
    return A.diagonal(offset, dim1, dim2)


# The others take no `out` in PyTorch either.
for _name in """
    cholesky cholesky_ex cond cross det eigh eigvalsh householder_product inv inv_ex lstsq lu lu_factor lu_factor_ex
    lu_solve matmul matrix_norm matrix_power matrix_rank multi_dot norm pinv polar qr slogdet solve solve_ex
    solve_triangular svd svdvals tensorinv tensorsolve vecdot vector_norm
""".split():
    globals()[_name] = _forms.function_form(_name, globals()[_name])

__getattr__ = _absent.getter(__name__)

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_sqrth",
    "multi_dot",
    "norm",
    "pinv",
    "polar",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]
