"""`grouped_mm`: matrix products of groups of rows, as layers of experts use them."""

from __future__ import annotations

from typing import Any

from gt import _core as gt
from gt._gt import Tensor

__all__ = ["grouped_mm"]


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: Any = None,
) -> Tensor:
    """Products of groups of rows or columns with a matrix of each group. It waits for `offs`.

    Args:
        mat_a: Shape (G, M, K), or (T, K) with groups of rows, or (M, T) with groups of columns.
        mat_b: Shape (G, K, N), or (K, T) with groups of columns, or (T, N) with groups of rows.
        offs: Where each group ends along T, as int32: shape (G,). Not given if both are three-dimensional. What is
            behind the last end is 0 in the result.
        bias: A tensor that is added to each group's product.
        out_dtype: The dtype of the result; that of `mat_a` if not given.

    Returns:
        Shape (T, N), (M, T) or (G, M, N).

    Example:
        >>> x, w = gt.ones(3, 2), gt.stack([gt.eye(2), 2 * gt.eye(2)])
        >>> gt.nn.functional.grouped_mm(x, w, offs=gt.tensor([1, 3], dtype=gt.int32))
        tensor([[1., 1.],
                [2., 2.],
                [2., 2.]])
    """
    for name, t in (("mat_a", mat_a), ("mat_b", mat_b)):
        if t.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d, but has {t.ndim} axes")
    dtype = out_dtype or mat_a.dtype
    if mat_a.ndim == mat_b.ndim == 3:
        if offs is not None:
            raise RuntimeError("Have to provide offsets iff input is 2d")
        product = gt.bmm(mat_a, mat_b)
        return (product if bias is None else product + bias).to(dtype)
    if offs is None:
        raise RuntimeError("Have to provide offsets iff input is 2d")
    ends = offs.tolist()
    starts = [0, *ends[:-1]]
    groups = range(len(ends))
    if mat_a.ndim == 2 and mat_b.ndim == 2:
        parts = [mat_a[:, starts[g] : ends[g]] @ mat_b[starts[g] : ends[g]] for g in groups]
        result = gt.stack(parts)
    else:
        axis, length = (0, mat_a.shape[0]) if mat_a.ndim == 2 else (1, mat_b.shape[1])
        if axis == 0:
            parts = [mat_a[starts[g] : ends[g]] @ mat_b[g] for g in groups]
            rest = [length - ends[-1], mat_b.shape[2]]
        else:
            parts = [mat_a[g] @ mat_b[:, starts[g] : ends[g]] for g in groups]
            rest = [mat_a.shape[1], length - ends[-1]]
        if rest[axis]:
            parts.append(parts[0].new_zeros(rest))
        result = gt.cat(parts, axis)
    return (result if bias is None else result + bias).to(dtype)
