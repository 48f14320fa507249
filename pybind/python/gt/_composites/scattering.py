"""Elements put, added or otherwise joined where an index tensor says."""

from __future__ import annotations

import math

from gt import _gt
from gt._composites.common import axis_of
from gt._composites.selection import from_the_front
from gt._gt import Tensor

_ROWS = {"sum": "scatter_add", "prod": "scatter_prod", "amax": "scatter_amax", "amin": "scatter_amin"}
_JOINS = {"add": "scatter_add", "multiply": "scatter_prod"}


def _checked(name: str, input: Tensor, src: Tensor) -> None:
    if src.dtype != input.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")


def _filled(input: Tensor, index: Tensor, value: complex) -> Tensor:
    """One number, as a source for an index."""
    return _gt.full((), value, dtype=input.dtype).expand(index.shape)


def joined(row: str, input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A scatter by a row of the op table; sums of bools are "either", products "both"."""
    if input.dtype == _gt.bool:
        row = {"scatter_add": "scatter_amax", "scatter_prod": "scatter_amin"}.get(row, row)
    return _gt.along_axis(row, dim, input, index, source)


def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor | complex | None = None,
    *,
    value: complex | None = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy in which a source's elements, or one number, stand where `index` says along an axis.

    `reduce` may be `"add"` or `"multiply"`; without it, the last of several elements in one place stays.
    """
    if (src is None) == (value is None):
        raise TypeError("scatter() takes one of src and value")
    if reduce is not None and reduce not in _JOINS:
        raise RuntimeError("reduce argument must be either add or multiply.")
    source = value if src is None else src
    if not isinstance(source, Tensor):
        source = _filled(input, index, source)
    _checked("scatter", input, source)
    return joined(_JOINS[reduce] if reduce else "scatter", input, dim, index, source)


def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy to which a source's elements are added where `index` says along an axis."""
    _checked("scatter_add", input, src)
    return joined("scatter_add", input, dim, index, src)


def extreme_of(dtype: _gt.dtype, sign: int) -> float:
    """What every number of a dtype is above (1) or below (-1)."""
    if dtype.is_floating_point:
        return -sign * math.inf
    if dtype == _gt.bool:
        return sign < 0
    bits = 8 * dtype.itemsize
    if dtype == _gt.uint8:
        return 0 if sign > 0 else 255
    return -(2 ** (bits - 1)) if sign > 0 else 2 ** (bits - 1) - 1


def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy joined with a source's elements where `index` says along an axis.

    `reduce` is `"sum"`, `"prod"`, `"mean"`, `"amax"` or `"amin"`; without `include_self`, what is already in a place
    that is written takes no part.
    """
    _checked("scatter", input, src)
    if reduce not in (*_ROWS, "mean"):
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}.")
    start = {
        "sum": 0, "mean": 0, "prod": 1, "amax": extreme_of(input.dtype, 1), "amin": extreme_of(input.dtype, -1)
    }[reduce]  # fmt: skip
    base = input if include_self else scatter(input, dim, index, value=start)
    result = joined(_ROWS.get(reduce, "scatter_add"), base, dim, index, src)
    if reduce != "mean":
        return result
    ones = _gt.ones_like(input.detach())
    counts = ones if include_self else scatter(ones, dim, index, value=0)
    counts = _gt.along_axis("scatter_add", dim, counts, index, _gt.ones_like(src.detach())).clamp(min=1)
    return result / counts if input.is_floating_point() else result // counts


def _rows(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor) -> tuple[int, Tensor, Tensor]:
    """The axis, a vector of positions along it in the shape of `source`, and `source`."""
    axis = axis_of(input, dim)
    if index.ndim > 1:
        raise IndexError(f"{name}_(): Index is supposed to be a vector, but got dim: {index.ndim}")
    if index.dtype not in (_gt.int32, _gt.int64):
        raise RuntimeError(f"{name}_(): Expected dtype int32/int64 for index but got: {index.dtype}")
    if source.dtype != input.dtype:
        raise RuntimeError(
            f"{name}_(): self ({input.dtype}) and source ({source.dtype}) must have the same scalar type"
        )
    if input.ndim == 0:
        return axis, index.long().reshape(()), source.reshape(())
    if source.ndim == 0:
        source = source.reshape([1] * input.ndim)
    if index.numel() != source.shape[axis]:
        raise RuntimeError(
            f"{name}_(): Number of indices ({index.numel()}) should be equal to source.size(dim): "
            f"({source.shape[axis]}), for dim: {axis}"
        )
    own, others = list(source.shape), list(input.shape)
    del own[axis], others[axis]
    if own != others:
        raise RuntimeError(
            f"{name}_(): Source/destination tensor must have same slice shapes. Destination slice shape: {others} "
            f"at dimension {axis} and source slice shape: {own} at dimension {axis}."
        )
    shape = [1] * input.ndim
    shape[axis] = index.numel()
    return axis, index.long().reshape(shape).expand(source.shape), source


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy to whose parts along an axis, at the indices of a vector, those of `source` are added, times `alpha`."""
    axis, at, source = _rows("index_add", input, dim, index, source)
    return joined("scatter_add", input, axis, at, source if alpha == 1 else source * alpha)


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy whose parts along an axis, at the indices of a vector, are those of `source`."""
    axis, at, source = _rows("index_copy", input, dim, index, source)
    return _gt.along_axis("scatter", axis, input, at, source)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Tensor | complex) -> Tensor:
    """A copy whose parts along an axis, at the indices of a vector, are one number."""
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.ndim} dimension(s)."
        )
    axis = axis_of(input, dim)
    at = from_the_front(index.long(), input.shape[axis] if input.ndim else 1)
    # By a mask, so that a value's gradient counts each place once, however often it is named.
    mask = index_copy(_gt.zeros(input.shape, dtype=_gt.bool), axis, at, _trues(input, axis, index.numel()))
    filling = value.to(input.dtype) if isinstance(value, Tensor) else _gt.full((), value, dtype=input.dtype)
    return _gt.where(mask, filling, input)


def _trues(input: Tensor, axis: int, count: int) -> Tensor:
    """As many parts along an axis, all true."""
    shape = list(input.shape)
    if shape:
        shape[axis] = count
    return _gt.full((), True, dtype=_gt.bool).expand(shape)


def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy whose parts along an axis, at the indices of a vector, are joined with those of `source`.

    `reduce` is `"prod"`, `"mean"`, `"amax"` or `"amin"`.
    """
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    axis, at, source = _rows("index_reduce", input, dim, index, source)
    return scatter_reduce(input, axis, at, source, reduce, include_self=include_self)


METHODS = (
    scatter,
    scatter_add,
    scatter_reduce,
    index_add,
    index_copy,
    index_fill,
    index_reduce,
)
IN_PLACE = METHODS
FUNCTIONS = ()
