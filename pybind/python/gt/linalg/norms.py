"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt import _gt
from gt._composites.common import axes_of
from gt._functions.linalg import inv, svdvals, vector_norm
from gt._gt import Tensor


def _checked_dtype(name: str, x: Tensor, dtype: _gt.dtype | None) -> Tensor:
    if not x.is_floating_point():
        kind = x.type().removeprefix("gt.").removesuffix("Tensor")
        raise NotImplementedError(f"{name}: Expected a floating point or complex tensor as input. Got {kind}")
    return x if dtype is None else x.to(dtype)


def _largest(magnitudes: Tensor, dim: int, keepdim: bool = False) -> Tensor:
    """The largest element along an axis; 0 if the axis is empty."""
    return (magnitudes.amax if magnitudes.shape[dim] else magnitudes.sum)(dim, keepdim=keepdim)


def matrix_norm(
    A: Tensor,  # noqa: N803 (PyTorch's name)
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: _gt.dtype | None = None,
) -> Tensor:
    """The norm of matrices.

    Args:
        A: A floating-point tensor.
        ord: `"fro"` (Frobenius), `"nuc"` (nuclear), 2 or -2 (largest or smallest singular value), 1 or -1 (largest or
            smallest column sum), `inf` or `-inf` (largest or smallest row sum).
        dim: The two axes of the matrices.
        keepdim: Whether reduced axes stay with size 1.
        dtype: The dtype to convert the input to before.

    Example:
        >>> gt.linalg.matrix_norm(gt.tensor([[3.0, 0.0], [0.0, 4.0]]))
        tensor(5.)
    """
    matrices = _checked_dtype("linalg.matrix_norm", A, dtype)
    if A.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor A must have at least 2 dimensions.")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {list(dim)}")
    rows, columns = axes_of(A, list(dim))
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got ({dim[0]}, {dim[1]})")
    if ord == "fro":
        return vector_norm(matrices, 2.0, [rows, columns], keepdim)
    if ord in ("nuc", 2, -2):
        values = svdvals(matrices.movedim((rows, columns), (-2, -1)))
        reduced = values.sum(-1) if ord == "nuc" else _largest(values, -1) if ord == 2 else values.amin(-1)
        for axis in sorted((rows, columns)) if keepdim else ():
            reduced = reduced.unsqueeze(axis)
        return reduced
    if isinstance(ord, str) or abs(ord) not in (1, math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    summed, kept = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = matrices.abs().sum(summed, keepdim=True)
    extreme = _largest(sums, kept, keepdim=True) if ord > 0 else sums.amin(kept, keepdim=True)
    return extreme if keepdim else extreme.squeeze((rows, columns))


def norm(
    A: Tensor,  # noqa: N803 (PyTorch's name)
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: _gt.dtype | None = None,
) -> Tensor:
    """A vector norm where `dim` is one axis or `ord` is not given, otherwise a matrix norm.

    Args:
        A: A floating-point tensor.
        ord: The order; see `vector_norm` and `matrix_norm`.
        dim: An axis, or two for a matrix norm.
        keepdim: Whether reduced axes stay with size 1.
        dtype: The dtype to convert the input to before.

    Example:
        >>> gt.linalg.norm(gt.tensor([3.0, 4.0]))
        tensor(5.)
    """
    axes = [dim] if isinstance(dim, int) else None if dim is None else list(dim)
    if ord is None:
        return vector_norm(A, 2, axes, keepdim, dtype=dtype)
    if axes is None and A.ndim not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.ndim}D."
        )
    if axes is not None and len(axes) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {axes}")
    if len(axes) == 2 if axes is not None else A.ndim == 2:
        return matrix_norm(A, ord, axes or (0, 1), keepdim, dtype=dtype)
    return vector_norm(A, ord, axes, keepdim, dtype=dtype)


def cond(A: Tensor, p: float | str | None = None) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The condition number of matrices: norm(A) * norm(inv(A)).

    Args:
        A: A matrix, or a batch of matrices.
        p: The order of the norm; 2 if not given.

    Example:
        >>> gt.linalg.cond(gt.tensor([[1.0, 0.0], [0.0, 4.0]]))
        tensor(4.)
    """
    if p is None or p in (2, -2):
        values = svdvals(A)
        ratio = values.amax(-1) / values.amin(-1)
        return ratio if p != -2 else 1 / ratio
    return matrix_norm(A, p) * matrix_norm(inv(A), p)
