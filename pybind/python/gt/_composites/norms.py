"""Norms under the names they have outside `gt.linalg`."""

from __future__ import annotations

from collections.abc import Sequence

from gt import _gt, linalg
from gt._functions.linalg import vector_norm
from gt._gt import Tensor


def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: _gt.dtype | None = None,
) -> Tensor:
    """The norm of all elements, or along axes.

    Args:
        input: A floating-point tensor.
        p: The order: a number, `inf`, `-inf`, `"fro"`, which is 2, or `"nuc"`, the nuclear norm of matrices.
        dim: An axis or several; all if not given.
        keepdim: Whether reduced axes stay with size 1.
        dtype: The dtype to convert the input to before.

    Returns:
        sum(abs(input) ** p) ** (1 / p) for a number `p`; the largest absolute value for `inf`.

    Example:
        >>> gt.norm(gt.tensor([3.0, 4.0]))
        tensor(5.)
        >>> gt.norm(gt.tensor([[1.0, -2.0], [3.0, 4.0]]), p=1, dim=1)
        tensor([3., 7.])
    """
    input = input if dtype is None else input.to(dtype)
    if p is None or p == "fro":
        p = 2.0
    if isinstance(p, str):
        if not input.is_floating_point():
            raise RuntimeError(f"linalg.vector_norm: Expected a floating point tensor as input. Got {input.dtype}")
        if p != "nuc":
            raise RuntimeError(f"norm: order {p!r} is not there: use a number, inf, -inf, 'fro' or 'nuc'")
        return linalg.matrix_norm(input, "nuc", (0, 1) if dim is None else dim, keepdim)
    return vector_norm(input, p, dim, keepdim)


def nuclear_norm(input: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    """The nuclear norm of matrices: the sum of their singular values."""
    return norm(input, "nuc", dim, keepdim)


METHODS = (norm,)
IN_PLACE = ()
FUNCTIONS = (nuclear_norm,)
