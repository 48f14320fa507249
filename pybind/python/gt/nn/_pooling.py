"""Pools as functions, under PyTorch's names: windows of each channel reduced to one element each.

Inputs are `(samples, channels, *sizes)` or, of one sample, `(channels, *sizes)`. Windows of one size are an
instruction; others are gathered (`_largest`) or averaged by a matrix for each axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt import _gt
from gt._gt import Tensor
from gt.nn._interpolation import averages, resampled, shares
from gt.nn._sliding_windows import Sizes, batched, by_rank, columns, is_integral, padded, tuple_of

# Windows of one size ------------------------------------------------------------------------------------------------


class _Layout:
    """How windows of one size lie along each axis."""

    def __init__(
        self,
        input: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None,
        padding: Sizes,
        dilation: Sizes,
        ceil_mode: bool,
    ) -> None:
        rank = input.ndim - 2
        self.kernel = tuple_of(kernel_size, rank)
        # PyTorch takes an empty stride for none.
        given = stride is not None and (isinstance(stride, int) or len(stride) > 0)
        self.stride = tuple_of(stride, rank, "stride") if given else self.kernel  # type: ignore[arg-type]
        self.low, self.dilation = tuple_of(padding, rank, "padding"), tuple_of(dilation, rank, "dilation")
        for what in ("kernel", "stride", "dilation"):
            if min(getattr(self, what)) < 1:
                raise RuntimeError(f"{what} should be greater than zero, but got {list(getattr(self, what))}")
        for k, p, d in zip(self.kernel, self.low, self.dilation, strict=True):
            if p < 0:
                raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
            if 2 * p > d * (k - 1) + 1:
                raise RuntimeError(
                    f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and "
                    f"dilation={d}"
                )
        if 0 in input.shape[1:]:
            raise RuntimeError(
                f"Expected {rank + 1}D or {rank + 2}D (batch mode) tensor with optional 0 dim batch size for input, "
                f"but got:{list(input.shape)}"
            )
        self.sizes = list(input.shape[2:])
        self.counts, self.high = [], []
        for size, k, step, p, d in zip(self.sizes, self.kernel, self.stride, self.low, self.dilation, strict=True):
            reach = d * (k - 1) + 1
            span = size + 2 * p - reach
            last = span // step
            # A last window that is not whole, but starts inside.
            if ceil_mode and span % step and (last + 1) * step < size + p:
                last += 1
            self.counts.append(last + 1)
            self.high.append(max(p, last * step + reach - size - p))
        if min(self.counts) < 1:
            channels = input.shape[1]
            raise RuntimeError(
                f"Given input size: ({'x'.join(map(str, (channels, *self.sizes)))}). Calculated output size: "
                f"({'x'.join(map(str, (channels, *self.counts)))}). Output size is too small"
            )

    def reduce(self, name: str, input: Tensor) -> Tensor:
        """One of the pools that are instructions."""
        return _gt.pool(name, input, self.kernel, self.stride, self.low, self.high, self.dilation)

    def sum(self, input: Tensor) -> Tensor:
        """The sum of each window."""
        if not is_integral(input):
            return self.reduce("sum_pool", input)
        shown = columns(padded(input, self.low, self.high), self.counts, self.kernel, self.dilation, self.stride)
        return shown.sum(2, dtype=input.dtype)

    def places(self) -> list[list[list[int]]]:
        """For each axis and window, which elements it sees."""
        axes = zip(self.sizes, self.counts, self.kernel, self.stride, self.low, self.dilation, strict=True)
        return [
            [[at for at in range(i * step - p, i * step - p + d * k, d) if 0 <= at < size] for i in range(count)]
            for size, count, k, step, p, d in axes
        ]


def _max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of each channel, and with `return_indices` where in the channel it is."""
    input, alone = batched(f"max_pool{rank}d", input, rank)
    layout = _Layout(input, kernel_size, stride, padding, dilation, ceil_mode)
    if is_integral(input):
        results = _largest(input, layout.places())
    elif return_indices:
        results = (layout.reduce("max_pool", input), layout.reduce("max_pool_indices", input))
    else:
        results = (layout.reduce("max_pool", input),)
    results = tuple(part.squeeze(0) for part in results) if alone else results
    return results if return_indices else results[0]


def _largest(input: Tensor, windows: Sequence[Sequence[Sequence[int]]]) -> tuple[Tensor, Tensor]:
    """The largest element of any windows, given as the places of each axis that they see, and where it is."""
    axes = []
    for axis in windows:
        if not all(axis):
            raise NotImplementedError(f"{input.dtype}: a window that lies in the padding alone has no largest element")
        # A window shorter than the longest sees its last element again.
        longest = max(map(len, axis), default=1)
        seen = [[*window, *[window[-1]] * (longest - len(window))] for window in axis]
        axes.append(gt.tensor(seen, dtype=gt.int64).reshape(1, 1, len(axis), longest))
    return _largest_at(input, axes)


def _largest_at(input: Tensor, axes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The largest elements and where they are, of windows that see places `(samples, channels, windows, k)` an axis."""
    places = axes[0]
    for size, seen in zip(input.shape[3:], axes[1:], strict=True):
        mixed = places[:, :, :, None, :, None] * size + seen[:, :, None, :, None, :]
        places = mixed.flatten(4, 5).flatten(2, 3)
    index = places.expand(*input.shape[:2], *places.shape[2:])
    shown = input.flatten(2).gather(2, index.flatten(2)).reshape(index.shape)
    which = shown.detach().argmax(3, keepdim=True)
    shape = (*input.shape[:2], *(seen.shape[2] for seen in axes))
    return shown.gather(3, which).reshape(shape), index.gather(3, which).reshape(shape)


def _average(
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    input, alone = batched(f"avg_pool{rank}d", input, rank)
    layout = _Layout(input, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    total = layout.sum(input)
    counts: Any = divisor_override
    if counts is None:
        counts = _counts(input, layout, count_include_pad)
    result = gt.div(total, counts, rounding_mode="trunc" if is_integral(input) else None)
    return result.squeeze(0) if alone else result


def _counts(input: Tensor, layout: _Layout, count_include_pad: bool) -> Any:
    """How many elements each window has."""
    if not any(layout.high) or (count_include_pad and layout.high == list(layout.low)):
        return math.prod(layout.kernel)
    counts: Any = 1
    for i, (size, p) in enumerate(zip(layout.sizes, layout.low, strict=True)):
        # The padding that was asked for counts, that which completes a last window does not.
        least, most = (-p, size + p) if count_include_pad else (0, size)
        starts = [n * layout.stride[i] - p for n in range(layout.counts[i])]
        lengths = [min(start + layout.kernel[i], most) - max(start, least) for start in starts]
        counts = counts * gt.tensor(lengths, dtype=input.dtype).reshape(-1, *[1] * (len(layout.sizes) - 1 - i))
    return counts


def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of each channel; the zeros of the padding count unless told not to."""
    return _average(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _avg_pool(
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of each channel, or its sum over another divisor.

    The zeros of the padding count unless told not to.
    """
    return _average(rank, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(
    rank: int,
    input: Tensor,
    norm_type: float,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The norm of each window: the root of its elements' powers' sum."""
    means = _average(rank, input**norm_type, kernel_size, stride, 0, ceil_mode)
    return (means.sign() * means.abs().relu() * math.prod(tuple_of(kernel_size, rank))) ** (1 / norm_type)


# Windows that follow from the size of the result --------------------------------------------------------------------


def _adaptive(name: str, rank: int, input: Tensor, output_size: Any) -> tuple[Tensor, bool, list[int]]:
    """A batch, whether it was one sample, and the sizes of the result."""
    wanted = [output_size] * rank if output_size is None or isinstance(output_size, int) else list(output_size)
    if rank > 1 and not isinstance(output_size, int) and input.ndim <= len(wanted):
        raise ValueError(f"Input dimension should be at least {len(wanted) + 1}")
    if len(wanted) != rank:
        raise RuntimeError(f"{name}: output_size must be {rank}")
    if input.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got {list(input.shape)}")
    alone = input.ndim == rank + 1
    input = input.unsqueeze(0) if alone else input
    if 0 in input.shape[2:]:
        raise RuntimeError(
            f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes "
            f"{list(input.shape)} with dimension {list(input.shape).index(0, 2)} being empty"
        )
    sizes = [size if want is None else int(want) for want, size in zip(wanted, input.shape[2:], strict=True)]
    if any(size < 0 for size in sizes):
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 but received {sizes}")
    return input, alone, sizes


def _even(input: Tensor, sizes: list[int]) -> list[int] | None:
    """The size of the windows if all are alike and cover the input."""
    if all(want and size % want == 0 for size, want in zip(input.shape[2:], sizes, strict=True)):
        return [size // want for size, want in zip(input.shape[2:], sizes, strict=True)]
    return None


def _adaptive_avg_pool(rank: int, input: Tensor, output_size: Any) -> Tensor:
    """Means over as many windows as asked for; a size of `None` is the input's."""
    input, alone, sizes = _adaptive(f"adaptive_avg_pool{rank}d", rank, input, output_size)
    kernel = _even(input, sizes)
    if kernel is not None:
        result = _average(rank, input, kernel)
    else:
        result = input
        for axis, (size, want) in enumerate(zip(input.shape[2:], sizes, strict=True), start=2):
            result = resampled(result, axis, averages(size, want))
    return result.squeeze(0) if alone else result


def _adaptive_max_pool(rank: int, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of as many windows as asked for, and with `return_indices` where in the channel they are.

    A size of `None` is the input's.
    """
    input, alone, sizes = _adaptive(f"adaptive_max_pool{rank}d", rank, input, output_size)
    kernel = _even(input, sizes)
    if kernel is not None:
        results = _max_pool(rank, input, kernel, return_indices=return_indices)
        results = results if return_indices else (results,)
    else:
        windows = [[range(*share) for share in shares(*pair)] for pair in zip(input.shape[2:], sizes, strict=True)]
        results = _largest(input, windows)
    results = tuple(part.squeeze(0) for part in results) if alone else tuple(results)
    return results if return_indices else results[0]


def _fractional_max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The largest elements of windows that lie where chance says, about evenly (Graham 2014).

    The result has sizes `output_size`, or those of the input times `output_ratio`.
    """
    name = f"fractional_max_pool{rank}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    input, alone = batched(name, input, rank)
    kernel, old = tuple_of(kernel_size, rank), input.shape[2:]
    if output_size is None:
        ratios = [output_ratio] * rank if isinstance(output_ratio, float) else output_ratio
        output_size = [int(size * ratio) for size, ratio in zip(old, ratios, strict=True)]
    sizes = tuple_of(output_size, rank, "output_size")
    lead = input.shape[:2]
    samples = gt.rand(*lead, rank, dtype=input.dtype) if _random_samples is None else _random_samples
    if samples.shape != (*lead, rank) or samples.dtype != input.dtype:
        raise RuntimeError(
            f"Expect _random_samples to be {(*lead, rank)} of the same dtype as input; got {tuple(samples.shape)} "
            f"of {samples.dtype}"
        )
    axes = []
    for axis, (size, want, k) in enumerate(zip(old, sizes, kernel, strict=True)):
        if want < 1 or want + k - 1 > size:
            raise RuntimeError(
                f"{name}(): pool size {k} of dimension {axis} too large relative to input size {size} and output size "
                f"{want}"
            )
        # In two dimensions, PyTorch draws the last axis first.
        share = samples[:, :, 1 - axis if rank == 2 else axis].unsqueeze(2)
        step = (size - k) / max(want - 1, 1)
        starts = ((gt.arange(want - 1) + share) * step).trunc() - (share * step).trunc()
        starts = gt.cat([starts.long(), gt.full((*lead, 1), size - k)], 2)
        axes.append(starts.unsqueeze(3) + gt.arange(k))
    results = _largest_at(input, axes)
    results = tuple(part.squeeze(0) for part in results) if alone else results
    return results if return_indices else results[0]


# Back from a pool ---------------------------------------------------------------------------------------------------


def _max_unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Each element back where a max pool took it from, among zeros; `output_size` if the pool's input was larger."""
    if input.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"Input to max_unpooling{max(rank, 2)}d should be a {rank + 1}d or {rank + 2}d Tensor, but got a tensor "
            f"with {input.ndim} dimensions."
        )
    if indices.dtype != gt.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype.name}")
    if indices.shape != input.shape:
        raise RuntimeError(
            f"Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got indices "
            f"tensor with shape: {list(indices.shape)}"
        )
    kernel = tuple_of(kernel_size, rank)
    step = kernel if stride is None else tuple_of(stride, rank, "stride")
    low = tuple_of(padding, rank, "padding")
    if rank == 3 and min(step) < 1:
        raise RuntimeError(f"strides should be greater than zero, but got stride: {list(step)}")
    old = input.shape[-rank:]
    sizes = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(old, step, kernel, low, strict=True)]
    if output_size is not None:
        wanted = list(output_size)
        if len(wanted) == rank + 2:
            wanted = wanted[2:]
        if len(wanted) != rank:
            raise ValueError(
                f"output_size should be a sequence containing {rank} or {rank + 2} elements, but it has a length of "
                f"'{len(wanted)}'"
            )
        for axis, (want, size, s) in enumerate(zip(wanted, sizes, step, strict=True)):
            if not size - s < want < size + s:
                raise ValueError(
                    f'invalid output_size "{tuple(wanted)}" (dim {axis} must be between {size - s} and {size + s})'
                )
        sizes = wanted
    lead = input.shape[:-rank]
    blank = gt.zeros(*lead, math.prod(sizes), dtype=input.dtype)
    return blank.scatter(-1, indices.flatten(-rank), input.flatten(-rank)).reshape(*lead, *sizes)


def _max_pool_with_indices(rank: int, *args: Any, **kwargs: Any) -> Any:
    """`max_pool` with `return_indices`."""
    return _max_pool(rank, *args, **{**kwargs, "return_indices": True})


def _adaptive_max_pool_with_indices(rank: int, *args: Any, **kwargs: Any) -> Any:
    """`adaptive_max_pool` with `return_indices`."""
    return _adaptive_max_pool(rank, *args, **{**kwargs, "return_indices": True})


def _fractional_max_pool_with_indices(rank: int, *args: Any, **kwargs: Any) -> Any:
    """`fractional_max_pool` with `return_indices`."""
    return _fractional_max_pool(rank, *args, **{**kwargs, "return_indices": True})


max_pool1d, max_pool2d, max_pool3d = by_rank(_max_pool, 1, 2, 3)
avg_pool2d, avg_pool3d = by_rank(_avg_pool, 2, 3)
lp_pool1d, lp_pool2d, lp_pool3d = by_rank(_lp_pool, 1, 2, 3)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = by_rank(_adaptive_avg_pool, 1, 2, 3)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = by_rank(_adaptive_max_pool, 1, 2, 3)
max_unpool1d, max_unpool2d, max_unpool3d = by_rank(_max_unpool, 1, 2, 3)
fractional_max_pool2d, fractional_max_pool3d = by_rank(_fractional_max_pool, 2, 3)
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = by_rank(_max_pool_with_indices, 1, 2, 3)
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = by_rank(
    _adaptive_max_pool_with_indices, 1, 2, 3
)
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = by_rank(
    _fractional_max_pool_with_indices, 2, 3
)
