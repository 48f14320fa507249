"""Linear algebra of the standard, computed by `gt.linalg`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gt import _core as gt
from gt import linalg as _linalg
from gt._gt import Tensor, dtype
from gt.array_api.reductions import sum
from gt.linalg import cholesky, det, eigh, eigvalsh, inv, matrix_power, pinv, qr, slogdet, svdvals

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip


class SVD(NamedTuple):
    """The factors of `A = U @ diag(S) @ Vh`."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _promoted(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    common = gt.promote_types(x1.dtype, x2.dtype)
    return x1.to(common), x2.to(common)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product; the dtypes are promoted to a common one."""
    return gt.matmul(*_promoted(x1, x2))


def matrix_transpose(x: Tensor, /) -> Tensor:
    """The matrices transposed: the last two axes exchanged."""
    return x.mT


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The outer product of two vectors."""
    return gt.outer(x1, x2)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The contraction of two tensors over several axes."""
    return gt.tensordot(*_promoted(x1, x2), dims=axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The dot products of vectors along an axis, of which the first are conjugated.

    Raises:
        ValueError: The vectors have different sizes, which are not broadcast.
    """
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: the vectors have {x1.shape[axis]} and {x2.shape[axis]} elements")
    first, second = _promoted(x1, x2)
    return (gt.conj(first) * second).sum(axis, dtype=first.dtype)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross products of vectors of 3 elements along an axis; the other axes are broadcast.

    Raises:
        ValueError: The vectors have another number of elements.
    """
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(f"cross: the vectors have {x1.shape[axis]} and {x2.shape[axis]} elements, and must have 3")
    return _linalg.cross(*gt.broadcast_tensors(*_promoted(x1, x2)), dim=axis)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solutions `x` of `x1 @ x = x2`, where `x2` is one vector or a batch of matrices, never one of vectors."""
    a, b = _promoted(x1, x2)
    # PyTorch takes a right-hand side with one axis less than the matrices for vectors; one more axis tells otherwise.
    return _linalg.solve(a, b[None] if 1 < b.ndim < a.ndim else b)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices: a view."""
    return _linalg.diagonal(x, offset=offset)


def trace(x: Tensor, /, *, offset: int = 0, dtype: dtype | None = None) -> Tensor:
    """The sums of the diagonals of matrices."""
    return sum(_linalg.diagonal(x, offset=offset), axis=-1, dtype=dtype)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """The singular value decomposition of matrices."""
    return SVD(*_linalg.svd(x, full_matrices=full_matrices))


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The number of singular values above `rtol` times the largest."""
    return _linalg.matrix_rank(x) if rtol is None else _linalg.matrix_rank(x, rtol=rtol)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """The norm of matrices, by default the Frobenius norm."""
    return _linalg.matrix_norm(x, ord, keepdim=keepdims)


def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The norm of vectors along axes, by default the Euclidean one."""
    return _linalg.vector_norm(x, ord, axis, keepdim=keepdims)
