"""Reductions and cumulative functions of the standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt._gt import Tensor, dtype

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean",
    "min", "prod", "std", "sum", "var",
]  # fmt: skip

Axes = int | Sequence[int] | None


def _axes(x: Tensor, axis: Axes) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def _widened(x: Tensor, dtype: dtype | None) -> dtype | None:
    """The dtype of a sum or product: that of unsigned integers is uint64."""
    return gt.uint64 if dtype is None and x.dtype.name.startswith("uint") else dtype


def sum(x: Tensor, /, *, axis: Axes = None, dtype: dtype | None = None, keepdims: bool = False) -> Tensor:
    """The sum of the elements along axes."""
    axes, dtype = _axes(x, axis), _widened(x, dtype)
    return x.sum(axes, keepdim=keepdims, dtype=dtype) if axes else x.to(dtype or gt.sum(x).dtype, copy=True)


def prod(x: Tensor, /, *, axis: Axes = None, dtype: dtype | None = None, keepdims: bool = False) -> Tensor:
    """The product of the elements along axes."""
    found = x.to(_widened(x, dtype) or gt.prod(x).dtype, copy=True)
    dtype = found.dtype
    for one in sorted((a % x.ndim for a in _axes(x, axis)), reverse=True):
        found = found.prod(one, keepdim=keepdims, dtype=dtype)
    return found


def _reduced(name: str, x: Tensor, axis: Axes, keepdims: bool, **options: Any) -> Tensor:
    axes = _axes(x, axis)
    # An empty tuple of axes reduces each element by itself: a new axis of size 1.
    return getattr(x, name)(axes, keepdim=keepdims, **options) if axes else getattr(x[None], name)((0,), **options)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element along axes."""
    return _reduced("amax", x, axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element along axes."""
    return _reduced("amin", x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean of the elements along axes."""
    return _reduced("mean", x, axis, keepdims)


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance of the elements along axes; by default that of a population (`correction` 0)."""
    return _reduced("var", x, axis, keepdims, correction=correction)


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation of the elements along axes; by default that of a population (`correction` 0)."""
    return _reduced("std", x, axis, keepdims, correction=correction)


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements along axes are nonzero."""
    return _reduced("all", x.bool(), axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether any element along axes is nonzero."""
    return _reduced("any", x.bool(), axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The number of nonzero elements along axes."""
    return sum(x != 0, axis=axis, keepdims=keepdims)


def _place(name: str, x: Tensor, axis: int | None, keepdims: bool) -> Tensor:
    if axis is None:
        found = getattr(x.flatten(), name)()
        return found.reshape((1,) * x.ndim) if keepdims else found
    return getattr(x, name)(axis, keepdim=keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the largest element, along an axis or in the flattened tensor."""
    return _place("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest element, along an axis or in the flattened tensor."""
    return _place("argmin", x, axis, keepdims)


def _cumulative(
    name: str, x: Tensor, axis: int | None, dtype: dtype | None, include_initial: bool, first: int
) -> Tensor:
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f"cumulative_{name.removeprefix('cum')}: axis must be given for more axes than one")
        axis = 0
    x = x.flatten() if x.ndim == 0 else x
    found = getattr(x, name)(axis, dtype=_widened(x, dtype))
    if not include_initial:
        return found
    start = [1 if i == axis % x.ndim else size for i, size in enumerate(x.shape)]
    return gt.cat([gt.full(start, first, dtype=found.dtype), found], axis)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: dtype | None = None, include_initial: bool = False
) -> Tensor:
    """The cumulative sum along an axis; `include_initial` puts 0 in front."""
    return _cumulative("cumsum", x, axis, dtype, include_initial, 0)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: dtype | None = None, include_initial: bool = False
) -> Tensor:
    """The cumulative product along an axis; `include_initial` puts 1 in front."""
    return _cumulative("cumprod", x, axis, dtype, include_initial, 1)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbours along an axis, taken `n` times."""
    return gt.diff(x, n, axis, prepend, append)
