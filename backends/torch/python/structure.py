"""New tensors, views, concatenations, and elements by index."""

from __future__ import annotations

import torch

from gt_torch.checks import index_in_range
from gt_torch.elementwise import DTYPES

Sizes = tuple[int, ...]
device = torch.device("cpu")
# Apple's devices have no float64.
step_dtype = torch.float64


def full(value: float, shape: Sizes, dtype: int) -> torch.Tensor:
    """Returns a tensor of one number."""
    return torch.full(shape, value, dtype=DTYPES[dtype], device=device)


def arange(start: float, step: float, shape: Sizes, dtype: int) -> torch.Tensor:
    """Returns start + i * step, computed in the widest type."""
    to = DTYPES[dtype]
    wide = step_dtype if to.is_floating_point else torch.int64
    return (torch.arange(shape[0], dtype=wide, device=device) * step + start).to(to)


def reshape(a: torch.Tensor, shape: Sizes) -> torch.Tensor:
    """Returns the elements under another shape: a view where strides express it."""
    try:
        return a.view(shape)
    except RuntimeError:
        return a.contiguous().view(shape)


def permute(a: torch.Tensor, axes: Sizes) -> torch.Tensor:
    """Returns the tensor with its axes in another order."""
    return a.permute(axes)


def expand(a: torch.Tensor, shape: Sizes) -> torch.Tensor:
    """Returns the tensor broadcast to a shape."""
    return a.expand(shape)


def bitcast(a: torch.Tensor, dtype: int) -> torch.Tensor:
    """Returns the bits as another dtype."""
    to = DTYPES[dtype]
    try:
        return a.view(to)
    except RuntimeError:
        return a.clone(memory_format=torch.contiguous_format).view(to)


def forwards(start: Sizes, step: Sizes, sizes: Sizes) -> tuple[tuple[slice, ...], list[int]]:
    """Returns slices that walk forwards over the same elements, and the axes along which they were to walk backwards.

    Slices of PyTorch walk forwards only. A step past an axis of one element is never taken.
    """
    slices, backwards = [], []
    for axis, (begin, distance, count) in enumerate(zip(start, step, sizes, strict=True)):
        if count == 0:
            slices.append(slice(0, 0))
        elif count == 1:
            slices.append(slice(begin, begin + 1))
        else:
            if distance < 0:
                backwards.append(axis)
                begin, distance = begin + (count - 1) * distance, -distance
            slices.append(slice(begin, begin + (count - 1) * distance + 1, distance))
    return tuple(slices), backwards


def slice_of(a: torch.Tensor, start: Sizes, step: Sizes, sizes: Sizes) -> torch.Tensor:
    """Returns the elements from a start with a step along each axis: a view, or a copy if a step is negative."""
    slices, backwards = forwards(start, step, sizes)
    view = a[slices]
    return view.flip(backwards).contiguous() if backwards else view


def slice_scatter(
    a: torch.Tensor, source: torch.Tensor | float, start: Sizes, step: Sizes, sizes: Sizes, in_place: bool
) -> torch.Tensor:
    """Returns a with a slice replaced by a tensor or one number."""
    result = a if in_place else a.clone(memory_format=torch.contiguous_format)
    slices, backwards = forwards(start, step, sizes)
    turned = backwards and isinstance(source, torch.Tensor)
    result[slices] = source.flip(backwards) if turned else source
    return result


def cat(*parts: torch.Tensor | int) -> torch.Tensor:
    """Returns the tensors side by side along an axis, the last argument."""
    *parts, axis = parts
    return torch.cat(parts, axis) if len(parts) > 1 else parts[0].clone()


def taken(a: torch.Tensor, index: torch.Tensor, axis: int, low: int) -> torch.Tensor:
    """Returns the elements at an index, which is in range from `low` on."""
    size = a.shape[axis]
    index = index_in_range(index, low, size, axis)
    if index.numel() == 0:
        return a.new_empty(index.shape)
    shape = list(index.shape)
    # The result has the index's size along the axis and a's elsewhere.
    return torch.gather(a, axis, positions(index, low, size).expand(shape))


def positions(index: torch.Tensor, low: int, size: int) -> torch.Tensor:
    """Returns the index with positions in place of what counts from the end."""
    return torch.where(index < 0, index + size, index) if low < 0 else index


def gather(a: torch.Tensor, index: torch.Tensor, axis: int) -> torch.Tensor:
    """Returns the elements at an index along an axis."""
    return taken(a, index, axis, 0)


def index(a: torch.Tensor, index: torch.Tensor, axis: int) -> torch.Tensor:
    """Returns the elements at an index along an axis; negative ones count from the end."""
    return taken(a, index, axis, -a.shape[axis])


def scattered(
    a: torch.Tensor, index: torch.Tensor, source: torch.Tensor, axis: int, in_place: bool, low: int, reduce: str
) -> torch.Tensor:
    """Returns a with the source's elements joined to those at the index, each rounded as it is joined."""
    size = a.shape[axis]
    index = positions(index_in_range(index, low, size, axis), low, size)
    result = a if in_place else a.clone(memory_format=torch.contiguous_format)
    if index.numel() == 0:
        return result
    source = source[tuple(slice(0, count) for count in index.shape)]
    if reduce == "last":
        return put_last(result, index, source, axis)
    if reduce == "sum":
        return result.scatter_add_(axis, index, source)
    return result.scatter_reduce_(axis, index, source, reduce, include_self=True)


def put_last(result: torch.Tensor, index: torch.Tensor, source: torch.Tensor, axis: int) -> torch.Tensor:
    """Writes the source's elements at the index; of several for one position the last stays.

    PyTorch promises no order on a device, so the last writer of each position is found first.
    """
    if result.device.type == "cpu":
        return result.scatter_(axis, index, source)
    shape = [1] * index.dim()
    shape[axis] = -1
    order = torch.arange(index.shape[axis], device=index.device).view(shape).expand(index.shape)
    shape = list(index.shape)
    shape[axis] = result.shape[axis]
    last = torch.full(shape, -1, dtype=torch.int64, device=index.device)
    last.scatter_reduce_(axis, index, order, "amax", include_self=True)
    rows = tuple(slice(0, count) for count in shape)
    chosen = torch.gather(source, axis, last.clamp(min=0))
    result[rows] = torch.where(last >= 0, chosen, result[rows])
    return result


def scatter(wraps: bool, reduce: str):
    """Returns the op that joins elements at an index by this reduction."""

    def op(a: torch.Tensor, index: torch.Tensor, source: torch.Tensor, axis: int, in_place: bool) -> torch.Tensor:
        return scattered(a, index, source, axis, in_place, -a.shape[axis] if wraps else 0, reduce)

    return op


def searchsorted(right: bool):
    """Returns the op that finds the insertion points on one side."""

    def op(rows: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        if rows.dtype == torch.bool:
            rows, wanted = rows.to(torch.uint8), wanted.to(torch.uint8)
        wanted = wanted.contiguous()
        if not rows.dtype.is_floating_point:
            return torch.searchsorted(rows.contiguous(), wanted, right=right)
        # NaN is the largest number: those at the end of a row are passed by NaN alone.
        none = torch.isnan(rows)
        found = torch.searchsorted(rows.masked_fill(none, torch.inf).contiguous(), wanted, right=right)
        numbers = (~none).sum(-1, keepdim=rows.dim() > 1)
        return torch.where(torch.isnan(wanted), rows.shape[-1], torch.minimum(found, numbers))

    return op


def nonzero(mask: torch.Tensor, shape: Sizes) -> torch.Tensor:
    """Returns the indices of true elements, a row each, and rows of zeros behind them."""
    if mask.dim() == 0:
        return torch.zeros(shape, dtype=torch.int64, device=mask.device)
    return torch.nonzero_static(mask, size=shape[0], fill_value=0)


# Views: their results need not be contiguous.
VIEWS = {"reshape": reshape, "permute": permute, "expand": expand, "bitcast": bitcast, "slice": slice_of}

OPS = {
    "full": full,
    "arange": arange,
    "slice_scatter": slice_scatter,
    "cat": cat,
    "gather": gather,
    "index": index,
    "scatter": scatter(False, "last"),
    "index_put": scatter(True, "last"),
    "scatter_add": scatter(False, "sum"),
    "index_put_add": scatter(True, "sum"),
    "scatter_prod": scatter(False, "prod"),
    "scatter_amax": scatter(False, "amax"),
    "scatter_amin": scatter(False, "amin"),
    "searchsorted": searchsorted(False),
    "searchsorted_right": searchsorted(True),
    "nonzero": nonzero,
}
