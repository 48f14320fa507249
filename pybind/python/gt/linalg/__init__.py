"""Linear algebra: norms, decompositions, inverses and equations.

Norms are composed of other operations. Functions that need LAPACK fetch the elements, call NumPy and upload the result;
their gradients are composed of GT's operations again.
"""

from __future__ import annotations

from gt import _absent, _forms, _functions
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
from gt.linalg.matrix_functions import matrix_power
from gt.linalg.norms import cond, matrix_norm, norm
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

# The functions that take `out=`, as in PyTorch.
for _name in """
    cholesky cholesky_ex cond det eigh eigvalsh householder_product inv inv_ex lstsq lu lu_factor lu_factor_ex
    lu_solve matrix_norm matrix_power matrix_rank norm pinv polar qr slogdet solve solve_ex
    solve_triangular svd svdvals tensorinv tensorsolve
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
