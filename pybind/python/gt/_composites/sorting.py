"""Sorting, order statistics, quantiles and distinct elements."""

from __future__ import annotations

import math

from gt import _gt
from gt._composites.common import axis_of
from gt._composites.selection import nonzero
from gt._gt import Tensor
from gt._types import ValuesIndices


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:  # noqa: ARG001
    """The indices that sort a tensor along an axis.

    Sorting is stable, and NaN is larger than any number.

    Args:
        input: A tensor.
        dim: The axis.
        descending: Whether the largest element comes first.
        stable: Accepted; sorting is always stable.

    Example:
        >>> gt.argsort(gt.tensor([3.0, 1.0, 2.0]))
        tensor([1, 2, 0])
    """
    return _gt.along_axis("argsort_descending" if descending else "argsort", dim, input.detach())


def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> ValuesIndices:  # noqa: ARG001
    """A tensor sorted along an axis, and the indices of its elements in the input.

    Sorting is stable, and NaN is larger than any number.

    Args:
        input: A tensor.
        dim: The axis.
        descending: Whether the largest element comes first.
        stable: Accepted; sorting is always stable.

    Returns:
        A pair `(values, indices)`.

    Example:
        >>> values, indices = gt.sort(gt.tensor([3.0, 1.0, 2.0]))
        >>> values, indices
        (tensor([1., 2., 3.]), tensor([1, 2, 0]))
    """
    indices = argsort(input, dim, descending)
    return ValuesIndices(input.gather(dim, indices), indices)


def msort(input: Tensor) -> Tensor:
    """A tensor sorted along its first axis.

    Example:
        >>> gt.msort(gt.tensor([3, 1, 2]))
        tensor([1, 2, 3])
    """
    return sort(input, 0).values


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:  # noqa: ARG001
    """The `k` largest or smallest elements along an axis, and their indices.

    Args:
        input: A tensor.
        k: The number of elements to take, at most the size of the axis.
        dim: The axis; the last if not given.
        largest: Whether the largest elements are taken, in descending order; otherwise the smallest, in ascending
            order.
        sorted: Ignored: the result is always sorted.

    Returns:
        A named tuple `(values, indices)`. Both have the input's shape with size `k` along the axis, and
        `values = input.gather(dim, indices)`.

    Raises:
        RuntimeError: `k` is negative or larger than the axis.

    Example:
        >>> values, indices = gt.topk(gt.tensor([1.0, 4.0, 3.0, 2.0]), 2)
        >>> values, indices
        (tensor([4., 3.]), tensor([1, 2]))
        >>> gt.topk(gt.tensor([1.0, 4.0, 3.0, 2.0]), 2, largest=False).values
        tensor([1., 2.])
    """
    axis = axis_of(input, dim)
    if not 0 <= k <= (input.shape[axis] if input.ndim else 1):
        raise RuntimeError("selected index k out of range")
    indices = argsort(input, axis, largest)
    if input.ndim:
        # The copy lets the other indices be freed.
        indices = indices.narrow(axis, 0, k).clone()
    return ValuesIndices(input.gather(axis, indices), indices)


def _at_rank(input: Tensor, order: Tensor, position: Tensor, axis: int, keepdim: bool) -> ValuesIndices:
    """The elements at a rank of a sorted order, and their indices; `position` has size 1 along the axis."""
    indices = order.gather(axis, position)
    values = input.gather(axis, indices)
    return ValuesIndices(values, indices) if keepdim else ValuesIndices(values.squeeze(axis), indices.squeeze(axis))


def _at_least_1d(input: Tensor) -> Tensor:
    return input.reshape(1) if input.ndim == 0 else input


def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The `k`-th smallest element along an axis, counted from 1, and its index.

    Returns:
        A pair `(values, indices)`.

    Example:
        >>> values, indices = gt.kthvalue(gt.tensor([5.0, 1.0, 3.0]), 2)
        >>> values, indices
        (tensor(3.), tensor(2))
    """
    axis = axis_of(input, dim)
    size = input.shape[axis] if input.ndim else 1
    if not 1 <= k <= size:
        raise RuntimeError(f"kthvalue(): selected number k out of range for dimension {axis}")
    if input.ndim == 0:
        return ValuesIndices(input.clone(), _gt.zeros((), dtype=_gt.int64))
    order = argsort(input, axis)
    return _at_rank(input, order, _constant_rank(order, axis, k - 1), axis, keepdim)


def _constant_rank(order: Tensor, axis: int, position: int) -> Tensor:
    """A tensor of one rank for each line along an axis."""
    return _gt.full([1 if i == axis else size for i, size in enumerate(order.shape)], position, dtype=_gt.int64)


def _median(name: str, input: Tensor, dim: int | None, keepdim: bool, past_nan: bool) -> Tensor | ValuesIndices:
    if dim is None:
        flat = input.reshape(-1)
        if flat.numel() == 0:
            return _gt.full((), float("nan") if input.is_floating_point() else 0, dtype=input.dtype)
        return _median(name, flat, 0, False, past_nan).values
    axis = axis_of(input, dim)
    if input.ndim == 0:
        return ValuesIndices(input.clone(), _gt.zeros((), dtype=_gt.int64))
    size = input.shape[axis]
    if size == 0:
        raise IndexError(f"{name}(): Expected reduction dim {axis} to have non-zero size.")
    order = argsort(input, axis)
    if not input.is_floating_point():
        return _at_rank(input, order, _constant_rank(order, axis, (size - 1) // 2), axis, keepdim)
    # NaN is sorted behind all numbers, so the count of numbers is the rank of the first NaN.
    numbers = (input.detach() == input.detach()).sum(axis, keepdim=True)
    position = ((numbers - 1) // 2).clamp(min=0) if past_nan else _gt.where(numbers < size, numbers, (size - 1) // 2)
    return _at_rank(input, order, position, axis, keepdim)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """The median of all elements, or along an axis: of two middle elements the lower one.

    Args:
        input: A tensor.
        dim: The axis.
        keepdim: Whether the axis stays with size 1.

    Returns:
        A tensor; with `dim` a pair `(values, indices)`. NaN if an element is NaN.

    Example:
        >>> gt.median(gt.tensor([1.0, 4.0, 2.0, 3.0]))
        tensor(2.)
    """
    return _median("median", input, dim, keepdim, past_nan=False)


def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """The median of the elements that are not NaN, of all or along an axis.

    Example:
        >>> gt.nanmedian(gt.tensor([1.0, float("nan"), 3.0, 2.0]))
        tensor(2.)
    """
    return _median("nanmedian", input, dim, keepdim, past_nan=True)


def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent element along an axis, of several the smallest, and the index of its last occurrence.

    Returns:
        A pair `(values, indices)`.

    Example:
        >>> gt.mode(gt.tensor([1, 2, 2, 3])).values
        tensor(2)
    """
    axis = axis_of(input, dim)
    if input.ndim == 0:
        return ValuesIndices(input.clone(), _gt.zeros((), dtype=_gt.int64))
    size = input.shape[axis]
    if size == 0:
        raise IndexError(f"mode(): Expected reduction dim {axis} to have non-zero size.")
    order = argsort(input, axis)
    ranked = input.detach().gather(axis, order)
    changes = ranked.narrow(axis, 1, size - 1) != ranked.narrow(axis, 0, size - 1)
    position = _gt.arange(size).reshape([-1 if i == axis else 1 for i in range(input.ndim)])
    # The start of each element's run of equal elements. The longest run has its end where the distance is largest.
    starts = _gt.cat([_constant_rank(order, axis, 0), _gt.where(changes, position.narrow(axis, 1, size - 1), 0)], axis)
    run = position - starts.cummax(axis).values
    return _at_rank(input, order, run.argmax(axis, keepdim=True), axis, keepdim)


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
        lines = _at_least_1d(input).movedim(axis, -1).reshape(-1, input.shape[axis] if rank else 1)
    size = lines.shape[1]
    ranked = sort(lines, 1).values
    numbers = (lines == lines).sum(1, keepdim=True)
    if past_nan:
        positions = q.reshape(1, -1) * (numbers - 1).clamp(min=0)
    else:
        # A row with a NaN has that as its quantile.
        positions = _gt.where(numbers < size, size - 1, q.reshape(1, -1) * (size - 1))
    positions = positions.to(input.dtype)
    if interpolation in ("lower", "higher", "nearest"):
        rounded = {"lower": positions.floor, "higher": positions.ceil, "nearest": positions.round}[interpolation]()
        result = ranked.gather(1, rounded.long())
    else:
        low = positions.floor()
        weight = positions - low
        if interpolation == "midpoint":
            weight = _gt.where(weight == 0, 0.0, 0.5).to(input.dtype)
        start = ranked.gather(1, low.long())
        end = ranked.gather(1, positions.ceil().long())
        result = start.lerp(end, weight)
    # The axis of the quantiles comes first.
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
    """The quantiles of all elements, or along an axis.

    Args:
        input: A tensor of float32 or float64.
        q: A fraction from 0 to 1, or a vector of fractions.
        dim: The axis; all elements if not given.
        keepdim: Whether the axis stays with size 1.
        interpolation: The value between two elements: `"linear"`, `"lower"`, `"higher"`, `"midpoint"` or `"nearest"`.

    Returns:
        A tensor; for a vector `q`, with a first axis for the fractions. NaN if an element is NaN.

    Example:
        >>> gt.quantile(gt.tensor([1.0, 2.0, 3.0, 4.0]), 0.25)
        tensor(1.7500)
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
    """The quantiles of the elements that are not NaN, of all or along an axis; see `quantile`.

    Example:
        >>> gt.nanquantile(gt.tensor([1.0, float("nan"), 3.0]), 0.5)
        tensor(2.)
    """
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, past_nan=True)


def _runs(differs: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The runs of equal items among `count`: the first index of each run, the run of each item, and the runs' lengths.

    `differs` says of each item but the first whether it differs from the one before.
    """
    starts = _gt.cat([_gt.ones(min(count, 1), dtype=_gt.bool), differs])
    first = nonzero(starts).squeeze(1)
    sizes = _gt.cat([first, _gt.tensor([count])]).diff() if count else first
    return first, starts.cumsum(0) - 1, sizes


def _with_optional(values: Tensor, inverse: Tensor | None, counts: Tensor | None) -> Tensor | tuple[Tensor, ...]:
    rest = [t for t in (inverse, counts) if t is not None]
    return (values, *rest) if rest else values


def _slices_as_rows(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The input with an axis in front, and the same as a matrix with a row for each slice."""
    parts = _at_least_1d(input).movedim(axis_of(input, dim), 0)
    return parts, parts.reshape(parts.shape[0], math.prod(parts.shape[1:]))


def unique(
    input: Tensor,
    sorted: bool = True,  # noqa: ARG001
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The distinct elements, or the distinct slices along an axis, sorted.

    Waits for them to be counted.

    Args:
        input: A tensor.
        sorted: Accepted; the result is always sorted.
        return_inverse: Whether to return the index in the result of each element, too.
        return_counts: Whether to return the number of occurrences, too.
        dim: The axis of the slices; elements are compared if not given.

    Example:
        >>> gt.unique(gt.tensor([3, 1, 3]))
        tensor([1, 3])
        >>> gt.unique(gt.tensor([3, 1, 3]), return_counts=True)
        (tensor([1, 3]), tensor([1, 2]))
    """
    input = input.detach()
    if dim is None:
        flat = input.reshape(-1)
        ranked, order = sort(flat, 0)
        count, differs = flat.numel(), ranked[1:] != ranked[:-1]
    else:
        parts, rows = _slices_as_rows(input, dim)
        count = rows.shape[0]
        order = _gt.arange(count)
        # Radix sort by columns, the last first: each sort is stable.
        for column in reversed(range(rows.shape[1])):
            order = order.gather(0, argsort(rows[:, column].gather(0, order), 0))
        ordered = rows.index_select(0, order)
        differs = (ordered[1:] != ordered[:-1]).any(1) if rows.shape[1] else _gt.zeros(max(count - 1, 0)).bool()
    first, group, counts = _runs(differs, count)
    inverse = None
    if return_inverse:
        inverse = _gt.along_axis("scatter", 0, _gt.zeros(count, dtype=_gt.int64), order, group)
    if dim is None:
        values = ranked.gather(0, first)
        inverse = inverse if inverse is None else inverse.reshape(input.shape)
    else:
        values = parts.index_select(0, order.gather(0, first)).movedim(0, axis_of(input, dim))
    return _with_optional(values, inverse, counts if return_counts else None)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor | tuple[Tensor, ...]:
    """The elements, or the slices along an axis, without those that equal their predecessor.

    Waits for them to be counted.

    Args:
        input: A tensor.
        return_inverse: Whether to return the index in the result of each element, too.
        return_counts: Whether to return the length of each run, too.
        dim: The axis of the slices; elements are compared if not given.

    Example:
        >>> gt.unique_consecutive(gt.tensor([1, 1, 2, 1]))
        tensor([1, 2, 1])
    """
    input = input.detach()
    if dim is None:
        rows = parts = input.reshape(-1)
        differs = rows[1:] != rows[:-1]
    else:
        parts, rows = _slices_as_rows(input, dim)
        differs = (rows[1:] != rows[:-1]).any(1) if rows.numel() else _gt.zeros(max(rows.shape[0] - 1, 0)).bool()
    first, group, counts = _runs(differs, rows.shape[0])
    values = parts.index_select(0, first)
    if dim is not None:
        values = values.movedim(0, axis_of(input, dim))
    inverse = None
    if return_inverse:
        inverse = group.reshape(input.shape) if dim is None else group
    return _with_optional(values, inverse, counts if return_counts else None)


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
