"""Binary search in sorted rows, histograms and membership."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt import _gt
from gt._gt import Tensor
from gt._types import Histogram, HistogramOfPoints


def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor | complex,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """The indices at which elements belong in sorted rows, so that inserting them keeps the order (binary search).

    Args:
        sorted_sequence: One sorted row for all elements, or a row for each row of `input`.
        input: A tensor or a number.
        out_int32: Whether the result is of int32 instead of int64.
        right: Of equal elements, whether the index behind the last is taken instead of that of the first.
        side: `"left"` or `"right"`, another way to write `right`.
        sorter: The indices that sort `sorted_sequence`, if it is not sorted.

    Example:
        >>> gt.searchsorted(gt.tensor([1, 3, 5, 7]), gt.tensor([3, 6, 9]))
        tensor([1, 3, 4])
    """
    if side not in (None, "left", "right"):
        raise RuntimeError(f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError(
            "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
        )
    if not isinstance(input, Tensor):
        # A number and the sequence are promoted to a common dtype.
        dtype = (sorted_sequence.new_zeros(1) + input).dtype
        input, sorted_sequence = _gt.full((), input, dtype=dtype), sorted_sequence.to(dtype)
    if input.dtype != sorted_sequence.dtype:
        raise RuntimeError(
            "torch.searchsorted(): input value tensor and boundaries tensor should have same dtype, but got "
            f"boundaries tensor dtype {sorted_sequence.dtype} and input value tensor dtype {input.dtype}"
        )
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape:
            raise RuntimeError(
                "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor "
                f"{list(sorted_sequence.shape)}and got sorter tensor {list(sorter.shape)}"
            )
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    found = _gt.search_sorted(sorted_sequence, input, right or side == "right")
    return found.int() if out_int32 else found


def bucketize(input: Tensor | complex, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The index of the bucket of each element, between sorted boundaries.

    Args:
        input: A tensor or a number.
        boundaries: A sorted vector.
        out_int32: Whether the result is of int32 instead of int64.
        right: Whether an element equal to a boundary belongs to the bucket above it.

    Example:
        >>> gt.bucketize(gt.tensor([3, 6, 9]), gt.tensor([1, 3, 5, 7, 9]))
        tensor([1, 3, 4])
    """
    if boundaries.ndim != 1:
        raise RuntimeError(f"bucketize(): boundaries tensor must be 1 dimension, but got dim({boundaries.ndim})")
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The number of occurrences of each integer from 0 to the largest, or the sums of their weights.

    Waits for the largest element, which decides the length of the result.

    Args:
        input: A vector of non-negative integers.
        weights: A weight for each element; each counts 1 if not given.
        minlength: The smallest length of the result.

    Example:
        >>> gt.bincount(gt.tensor([1, 1, 3]))
        tensor([0, 2, 0, 1])
    """
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if input.ndim != 1 or input.is_floating_point() or input.dtype == _gt.bool:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    size = minlength
    if input.numel():
        if int(input.min().item()) < 0:
            raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
        size = max(int(input.max().item()) + 1, minlength)
    if weights is None:
        weights = _gt.ones_like(input, dtype=_gt.int64)
    elif weights.dtype != _gt.float32:
        weights = weights.double()
    return _gt.zeros(size, dtype=weights.dtype).scatter_add(0, input.long(), weights.detach())


def _weighted_counts(inside: Tensor, bins: Tensor, size: int, weight: Tensor | None, dtype: _gt.dtype) -> Tensor:
    """The sum of weights in each bin; elements that are not `inside` count nothing."""
    weights = inside.to(dtype) if weight is None else _gt.where(inside, weight.reshape(-1), 0.0).to(dtype)
    return _gt.zeros(size, dtype=dtype).scatter_add(0, _gt.where(inside, bins, 0), weights)


def _bin_range(flat: Tensor, low: float, high: float, margin: float) -> tuple[float, float]:
    """The range of a histogram; if `low` equals `high`, that of the elements, widened by `margin` if empty."""
    if low == high and flat.numel() == 0:
        return low, high + 1
    if low == high:
        low, high = float(flat.min().item()), float(flat.max().item())
    if low == high:
        low, high = low - margin, high + margin
    return low, high


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """The number of elements in each of `bins` equally wide bins.

    Args:
        input: A floating-point tensor.
        bins: The number of bins.
        min: The start of the range.
        max: The end of the range. Where both are equal, the range is that of the elements.

    Example:
        >>> gt.histc(gt.tensor([1.0, 2.0, 1.0]), bins=4, min=0, max=3)
        tensor([0., 2., 1., 0.])
    """
    if bins <= 0:
        raise RuntimeError("torch.histogram(): bins must be > 0")
    if not input.is_floating_point():
        raise RuntimeError(f'"histogram_cpu" not implemented for {input.dtype}: use floating-point tensors')
    if max < min:
        raise RuntimeError("torch.histc: max must be larger than min")
    flat = input.detach().reshape(-1)
    low, high = _bin_range(flat, min, max, 1)
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise RuntimeError(f"torch.histogram: range of [{low}, {high}] is not finite")
    inside = (flat >= low) & (flat <= high)
    bin_index = ((_gt.where(inside, flat, low) - low) * bins / (high - low)).long().clamp(max=bins - 1)
    return _weighted_counts(inside, bin_index, bins, None, input.dtype)


def histogram(
    input: Tensor,
    bins: Tensor | int,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """The number of elements in each bin, and the edges of the bins.

    Args:
        input: A floating-point tensor.
        bins: The number of bins, or a tensor with their edges.
        range: The start and end of the bins; that of the elements if not given.
        weight: A weight for each element.
        density: Whether the histogram integrates to 1.

    Returns:
        A pair `(hist, bin_edges)`.

    Example:
        >>> hist, edges = gt.histogram(gt.tensor([1.0, 2.0, 1.0]), bins=4, range=(0.0, 3.0))
        >>> hist
        tensor([0., 2., 1., 0.])
    """
    if not input.is_floating_point():
        raise RuntimeError(f'"histogram_cpu" not implemented for {input.dtype}: use floating-point tensors')
    flat = input.detach().reshape(-1)
    if isinstance(bins, Tensor):
        if range is not None:
            raise TypeError("histogram() takes one of range and a tensor of edges")
        edges = bins.clone()
    else:
        low, high = _bin_range(flat, *(range or (0.0, 0.0)), 0.5)
        edges = _gt.linspace(low, high, bins + 1, dtype=input.dtype)
    size = edges.numel() - 1
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    bin_index = (_gt.search_sorted(edges, flat, True) - 1).clamp(0, size - 1)
    counts = _weighted_counts(inside, bin_index, size, weight, input.dtype)
    return Histogram(counts / counts.sum() / edges.diff() if density else counts, edges)


def histogramdd(
    input: Tensor,
    bins: int | Sequence[int | Tensor],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramOfPoints:
    """The number of points in each bin of a grid, and the edges of the bins along each axis.

    Args:
        input: Points: the last axis has their coordinates.
        bins: The number of bins along each axis, or their edges.
        range: The start and end along each axis, one after another; those of the points if not given.
        weight: A weight for each point.
        density: Whether the histogram integrates to 1.

    Returns:
        A pair `(hist, bin_edges)`.
    """
    points = input.detach().reshape(-1, input.shape[-1])
    count = points.shape[1]
    parts = [bins] * count if isinstance(bins, int) else list(bins)
    if len(parts) != count:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input. "
            f"Got {len(parts)} bins for {count} dimensions."
        )
    if range is not None and len(range) != 2 * count:
        raise RuntimeError(f"torch.histogramdd(): range must have {2 * count} elements, but got {len(range)}")
    edges, sizes = [], []
    bin_index, inside = _gt.zeros(len(points), dtype=_gt.int64), _gt.ones(len(points), dtype=_gt.bool)
    for axis, part in enumerate(parts):
        line = points[:, axis].contiguous()
        if not isinstance(part, Tensor):
            low, high = _bin_range(line, *(range[2 * axis : 2 * axis + 2] if range else (0.0, 0.0)), 0.5)
            part = _gt.linspace(low, high, part + 1, dtype=input.dtype)
        edges.append(part)
        sizes.append(part.numel() - 1)
        inside = inside & (line >= part[0]) & (line <= part[-1])
        bin_index = bin_index * sizes[-1] + (_gt.search_sorted(part, line, True) - 1).clamp(0, sizes[-1] - 1)
    counts = _weighted_counts(inside, bin_index, math.prod(sizes), weight, input.dtype).reshape(sizes)
    if density:
        counts = counts / counts.sum()
        for axis, part in enumerate(edges):
            counts = counts / part.diff().reshape([-1 if i == axis else 1 for i, _ in enumerate(sizes)])
    return HistogramOfPoints(counts, tuple(edges))


def isin(
    elements: Tensor | complex,
    test_elements: Tensor | complex,
    *,
    assume_unique: bool = False,  # noqa: ARG001
    invert: bool = False,
) -> Tensor:
    """Whether each element occurs among the elements of another tensor.

    Args:
        elements: A tensor or a number.
        test_elements: A tensor or a number.
        assume_unique: Accepted for PyTorch's sake.
        invert: Whether the answers are inverted.

    Example:
        >>> gt.isin(gt.tensor([1, 2, 3]), gt.tensor([2, 3]))
        tensor([False,  True,  True])
    """
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin(): one of the arguments must be a Tensor")
    if not isinstance(test_elements, Tensor):
        found = elements == test_elements
        return ~found if invert else found
    others = test_elements.detach().reshape(-1)
    if not isinstance(elements, Tensor):
        found = (others == elements).any()
        return ~found if invert else found
    if others.numel() == 0:
        return _gt.full(elements.shape, invert, dtype=_gt.bool)
    both = _gt.cat([elements.detach().reshape(-1), others])
    wanted, ranked = both[: elements.numel()], both[elements.numel() :].sort().values
    position = _gt.search_sorted(ranked, wanted, False).clamp(max=others.numel() - 1)
    found = (ranked.gather(0, position) == wanted).reshape(elements.shape)
    return ~found if invert else found


METHODS = (
    bincount,
    histc,
    histogram,
)
IN_PLACE = ()
FUNCTIONS = (
    searchsorted,
    bucketize,
    histogramdd,
    isin,
)
