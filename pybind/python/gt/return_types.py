"""The classes of results with several parts, by the names that PyTorch gives them: `gt.return_types.max`."""

from __future__ import annotations

from typing import Any

from gt import _absent
from gt._types import named_results

__getattr__ = _absent.getter(__name__)

_PARTS = {
    "geqrf": "a tau",
    "linalg_cholesky_ex": "L info",
    "linalg_eig": "eigenvalues eigenvectors",
    "linalg_eigh": "eigenvalues eigenvectors",
    "linalg_inv_ex": "inverse info",
    "linalg_ldl_factor": "LD pivots",
    "linalg_ldl_factor_ex": "LD pivots info",
    "linalg_lstsq": "solution residuals rank singular_values",
    "linalg_lu": "P L U",
    "linalg_lu_factor": "LU pivots",
    "linalg_lu_factor_ex": "LU pivots info",
    "linalg_polar": "U H",
    "linalg_qr": "Q R",
    "linalg_slogdet": "sign logabsdet",
    "linalg_solve_ex": "result info",
    "linalg_svd": "U S Vh",
    "lu_unpack": "P L U",
    "slogdet": "sign logabsdet",
    "svd": "U S V",
    "triangular_solve": "solution cloned_coefficient",
}
_WITH_INDICES = "max min median nanmedian mode kthvalue sort topk cummax cummin"
_VALUES = ["values", "indices"]
_CLASSES: dict[str, Any] = {
    **{name: named_results(name, _VALUES) for name in _WITH_INDICES.split()},
    "aminmax": named_results("aminmax", ["min", "max"]),
    "frexp": named_results("frexp", ["mantissa", "exponent"]),
    "histogram": named_results("histogram", ["hist", "bin_edges"]),
    "histogramdd": named_results("histogramdd", ["hist", "bin_edges"]),
    **{name: named_results(name, parts.split()) for name, parts in _PARTS.items()},
}
all_return_types: list[Any] = []
for _name, _class in _CLASSES.items():
    # A function has another name where it is given tensors to write to.
    globals().update({_name: _class, f"{_name}_out": _class})
    if _class not in all_return_types:
        all_return_types.append(_class)


def pytree_register_structseq(cls: type) -> None:
    """Does nothing: named tuples are nodes of `gt.utils._pytree` without registration.

    Raises:
        TypeError: `cls` is not a class of this module.
    """
    if cls not in all_return_types:
        raise TypeError(f"pytree_register_structseq: {cls!r} is not one of gt.return_types")
