"""Norms under the names they have outside `gt.linalg`."""

from __future__ import annotations

from collections.abc import Sequence

from gt import _gt, linalg
from gt._composites.reductions import check_norm_dtype, vector_norm
from gt._gt import Tensor


def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: _gt.dtype | None = None,
) -> Tensor:
    """The norm of all elements, or along axes, of order `p`: a number, `inf`, `-inf`, `"fro"`, which is 2, `"nuc"`.

    With `dtype` the elements are converted first.
    """
    input = input if dtype is None else input.to(dtype)
    if p is None or p == "fro":
        p = 2.0
    if isinstance(p, str):
        check_norm_dtype(input)
        if p != "nuc":
            raise RuntimeError(f"norm: order {p!r} is not there: use a number, inf, -inf, 'fro' or 'nuc'")
        return linalg.matrix_norm(input, "nuc", (0, 1) if dim is None else dim, keepdim)
    return vector_norm(input, p, dim, keepdim)


def frobenius_norm(input: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> Tensor:
    """The root of the sum of squares along axes."""
    return norm(input, 2.0, dim, keepdim)


def nuclear_norm(input: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """The sum of the singular values of matrices."""
    return norm(input, "nuc", dim, keepdim)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm along all axes but one, which keep their places; -1 for all axes."""
    if dim == -1:
        return norm(v, float(pow))
    return norm(v, float(pow), [axis for axis in range(v.ndim) if axis != dim % v.ndim], True)


METHODS = (norm,)
IN_PLACE = ()
FUNCTIONS = (frobenius_norm, nuclear_norm, norm_except_dim)
