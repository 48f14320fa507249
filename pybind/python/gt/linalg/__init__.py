"""Linear algebra: norms, decompositions, inverses and equations.

Norms are composed of other operations. Functions that need LAPACK fetch the elements, call NumPy and upload the result;
their gradients are composed of GT's operations again.
"""

from __future__ import annotations

from gt import _absent, _forms, _functions, _gt
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
from gt.linalg.lapack import LinAlgError
from gt.linalg.matrix_functions import matrix_exp, matrix_power
from gt.linalg.norms import cond, matrix_norm, norm, vector_norm
from gt.linalg.packed import (
    cholesky_ex,
    householder_product,
    inv_ex,
    lu_factor,
    lu_factor_ex,
    lu_solve,
    solve_ex,
)
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
    """The Vandermonde matrices of vectors: powers of the elements of the last axis, increasing from left to right.

    Args:
        x: A vector, or a batch of vectors.
        N: The number of columns; the length of the vectors if not given.

    Example:
        >>> gt.linalg.vander(gt.tensor([1, 2, 3]))
        tensor([[1, 1, 1],
                [1, 2, 4],
                [1, 3, 9]])
    """
    if N is not None and N <= 1:
        raise RuntimeError("N must be greater than 1.")
    rows = x if x.ndim else x.reshape(1)
    return rows.unsqueeze(-1) ** _gt.arange(rows.shape[-1] if N is None else N)


# The functions that take `out=`, as in PyTorch.
for _name in """
    cholesky cholesky_ex cond det eigh eigvalsh householder_product inv inv_ex lstsq lu lu_factor lu_factor_ex
    lu_solve matrix_norm matrix_power matrix_rank norm pinv polar qr slogdet solve solve_ex
    solve_triangular svd svdvals tensorinv tensorsolve vector_norm
""".split():
    globals()[_name] = _forms.function_form(_name, globals()[_name])

globals().update(_functions.MODULES["linalg"])

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
