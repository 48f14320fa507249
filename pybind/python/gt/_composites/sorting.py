"""Elements in order, and what an order tells: ranks, quantiles, the elements that differ."""

from __future__ import annotations

import math

from gt import _gt
from gt._composites.common import axis_of
from gt._composites.selection import nonzero
from gt._gt import Tensor
from gt._rows import ROWS
from gt._types import ValuesIndices


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:  # noqa: ARG001
    """The positions of the elements along an axis in order; equal ones keep theirs, and NaN is the largest."""
    return _gt.along_axis("argsort_descending" if descending else "argsort", dim, input.detach())


def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> ValuesIndices:  # noqa: ARG001
    """The elements along an axis in order, and where they were. Equal ones always keep theirs."""
    indices = argsort(input, dim, descending)
    return ValuesIndices(input.gather(dim, indices), indices)


def msort(input: Tensor) -> Tensor:
    """The elements along the first axis in order."""
    return sort(input, 0).values


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:  # noqa: ARG001
    """The `k` largest or smallest elements along an axis and where they are, in order."""
    axis = axis_of(input, dim)
    if not 0 <= k <= (input.shape[axis] if input.ndim else 1):
        raise RuntimeError("selected index k out of range")
    indices = argsort(input, axis, largest)
    if input.ndim:
        # What is left out need not be kept.
        indices = indices.narrow(axis, 0, k).clone()
    return ValuesIndices(input.gather(axis, indices), indices)


def _picked(input: Tensor, order: Tensor, place: Tensor, axis: int, keepdim: bool) -> ValuesIndices:
    """The elements at a place in their order, and where they are; `place` has size 1 along the axis."""
    indices = order.gather(axis, place)
    values = input.gather(axis, indices)
    return ValuesIndices(values, indices) if keepdim else ValuesIndices(values.squeeze(axis), indices.squeeze(axis))


def _line(input: Tensor) -> Tensor:
    return input.reshape(1) if input.ndim == 0 else input


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The `k`-th smallest element along an axis, from 1 on, and where it is."""
    axis = axis_of(input, dim)
    size = input.shape[axis] if input.ndim else 1
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}")
    if input.ndim == 0:
        return ValuesIndices(input.clone(), _gt.zeros((), dtype=_gt.int64))
    order = argsort(input, axis)
    return _picked(input, order, _places(order, axis, k - 1), axis, keepdim)


def _places(order: Tensor, axis: int, place: int) -> Tensor:
    """One place along an axis for all others."""
    return _gt.full([1 if i == axis else size for i, size in enumerate(order.shape)], place, dtype=_gt.int64)


def _middle(name: str, input: Tensor, dim: int | None, keepdim: bool, past_nan: bool) -> Tensor | ValuesIndices:
    if dim is None:
        flat = input.reshape(-1)
        if flat.numel() == 0:
            return _gt.full((), float("nan") if input.is_floating_point() else 0, dtype=input.dtype)
        return _middle(name, flat, 0, False, past_nan).values
    axis = axis_of(input, dim)
    if input.ndim == 0:
        return ValuesIndices(input.clone(), _gt.zeros((), dtype=_gt.int64))
    size = input.shape[axis]
    if size == 0:
        raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
    order = argsort(input, axis)
    if not input.is_floating_point():
        return _picked(input, order, _places(order, axis, (size - 1) // 2), axis, keepdim)
    # NaN stands behind all numbers.
    numbers = (input.detach() == input.detach()).sum(axis, keepdim=True)
    place = ((numbers - 1) // 2).clamp(min=0) if past_nan else _gt.where(numbers < size, numbers, (size - 1) // 2)
    return _picked(input, order, place, axis, keepdim)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """The middle element of all, or along an axis with its position: the lower of two, NaN if there is one."""
    return _middle("median", input, dim, keepdim, past_nan=False)


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """`median` of the elements that are not NaN."""
    return _middle("nanmedian", input, dim, keepdim, past_nan=True)


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent element along an axis, the smallest of several, and the last place where it is."""
    axis = axis_of(input, dim)
    if input.ndim == 0:
        return ValuesIndices(input.clone(), _gt.zeros((), dtype=_gt.int64))
    size = input.shape[axis]
    if size == 0:
        raise IndexError(f"mode(): Expected reduction dim {axis} to have non-zero size.")
    order = argsort(input, axis)
    ranked = input.detach().gather(axis, order)
    changes = ranked.narrow(axis, 1, size - 1) != ranked.narrow(axis, 0, size - 1)
    place = _gt.arange(size).reshape([-1 if i == axis else 1 for i in range(input.ndim)])
    # Where the run of equal elements that each belongs to starts: the longest run so far ends at its last.
    starts = _gt.cat([_places(order, axis, 0), _gt.where(changes, place.narrow(axis, 1, size - 1), 0)], axis)
    run = place - starts.cummax(axis).values
    return _picked(input, order, run.argmax(axis, keepdim=True), axis, keepdim)


def _quantile(
    name: str, input: Tensor, q: Tensor | float, dim: int | None, keepdim: bool, interpolation: str, past_nan: bool
) -> Tensor:
    if input.numel() == 0:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if input.dtype not in (_gt.float32, _gt.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    ways = ("linear", "lower", "higher", "midpoint", "nearest")
    if interpolation not in ways:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        q = _gt.full((), q, dtype=input.dtype)
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype != input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if not bool(((q >= 0) & (q <= 1)).all()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    rank = input.ndim
    if dim is None:
        kept = [1] * rank
        lines = input.reshape(1, -1)
    else:
        axis = axis_of(input, dim)
        kept = [1 if i == axis else size for i, size in enumerate(input.shape)]
        lines = _line(input).movedim(axis, -1).reshape(-1, input.shape[axis] if rank else 1)
    size = lines.shape[1]
    ranked = sort(lines, 1).values
    numbers = (lines == lines).sum(1, keepdim=True)
    if past_nan:
        places = q.reshape(1, -1) * (numbers - 1).clamp(min=0)
    else:
        # A NaN is the quantile of all.
        places = _gt.where(numbers < size, size - 1, q.reshape(1, -1) * (size - 1))
    places = places.to(input.dtype)
    if interpolation in ("lower", "higher", "nearest"):
        rounded = {"lower": places.floor, "higher": places.ceil, "nearest": places.round}[interpolation]()
        result = ranked.gather(1, rounded.long())
    else:
        low = places.floor()
        weight = places - low
        if interpolation == "midpoint":
            weight = _gt.where(weight == 0, 0.0, 0.5).to(input.dtype)
        start = ranked.gather(1, low.long())
        end = ranked.gather(1, places.ceil().long())
        result = ROWS["lerp"](start, end, weight)
    # A row for each quantile, in front.
    reduced = range(rank) if dim is None else [axis_of(input, dim)]
    shape = kept if keepdim else [size for axis, size in enumerate(kept) if axis not in reduced]
    result = result.t()
    return result.reshape([q.numel(), *shape] if q.ndim else shape)


def quantile(
    input: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The elements below which the fractions `q` of all lie, of all elements or along an axis; NaN if there is one.

    Between two elements `interpolation` decides: `"linear"`, `"lower"`, `"higher"`, `"midpoint"` or `"nearest"`.
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation, past_nan=False)


def nanquantile(
    input: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """`quantile` of the elements that are not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, past_nan=True)


def _groups(differs: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of `count` things, differing from the one before or not: where groups start, which each is in, their sizes."""
    starts = _gt.cat([_gt.ones(min(count, 1), dtype=_gt.bool), differs])
    first = nonzero(starts).squeeze(1)
    sizes = _gt.cat([first, _gt.tensor([count])]).diff() if count else first
    return first, starts.cumsum(0) - 1, sizes


def _answer(values: Tensor, inverse: Tensor | None, counts: Tensor | None) -> Tensor | tuple[Tensor, ...]:
    rest = [t for t in (inverse, counts) if t is not None]
    return (values, *rest) if rest else values


def _rows_of(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The parts along an axis in front, and each of them as a row."""
    parts = _line(input).movedim(axis_of(input, dim), 0)
    return parts, parts.reshape(parts.shape[0], math.prod(parts.shape[1:]))


def unique(
    input: Tensor,
    sorted: bool = True,  # noqa: ARG001
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The elements, or the parts along an axis, without repetition and in order.

    Waits for them to be counted.

    Args:
        input: The tensor.
        sorted: The result is in order either way.
        return_inverse: Whether to tell, too, where in the result each element is.
        return_counts: Whether to tell, too, how often each is there.
        dim: The axis; without one, the elements.
    """
    input = input.detach()
    if dim is None:
        flat = input.reshape(-1)
        ranked, order = sort(flat, 0)
        count, differs = flat.numel(), ranked[1:] != ranked[:-1]
    else:
        parts, rows = _rows_of(input, dim)
        count = rows.shape[0]
        order = _gt.arange(count)
        # The last column first: each later order keeps the earlier among equals.
        for column in reversed(range(rows.shape[1])):
            order = order.gather(0, argsort(rows[:, column].gather(0, order), 0))
        ordered = rows.index_select(0, order)
        differs = (ordered[1:] != ordered[:-1]).any(1) if rows.shape[1] else _gt.zeros(max(count - 1, 0)).bool()
    first, group, counts = _groups(differs, count)
    inverse = None
    if return_inverse:
        inverse = _gt.along_axis("scatter", 0, _gt.zeros(count, dtype=_gt.int64), order, group)
    if dim is None:
        values = ranked.gather(0, first)
        inverse = inverse if inverse is None else inverse.reshape(input.shape)
    else:
        values = parts.index_select(0, order.gather(0, first)).movedim(0, axis_of(input, dim))
    return _answer(values, inverse, counts if return_counts else None)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The elements, or the parts along an axis, without those that equal the one before; see `unique`."""
    input = input.detach()
    if dim is None:
        rows = parts = input.reshape(-1)
        differs = rows[1:] != rows[:-1]
    else:
        parts, rows = _rows_of(input, dim)
        differs = (rows[1:] != rows[:-1]).any(1) if rows.numel() else _gt.zeros(max(rows.shape[0] - 1, 0)).bool()
    first, group, counts = _groups(differs, rows.shape[0])
    values = parts.index_select(0, first)
    if dim is not None:
        values = values.movedim(0, axis_of(input, dim))
    inverse = None
    if return_inverse:
        inverse = group.reshape(input.shape) if dim is None else group
    return _answer(values, inverse, counts if return_counts else None)


METHODS = (
    argsort,
    sort,
    msort,
    topk,
    kthvalue,
    median,
    nanmedian,
    mode,
    quantile,
    nanquantile,
    unique,
    unique_consecutive,
)
IN_PLACE = ()
FUNCTIONS = ()
