"""Pooling as functions: each window of a channel is reduced to one element; `gt.nn.functional` has them.

Inputs are `(N, C, *)` or, without a batch, `(C, *)`. Windows of equal size are one instruction; maxima of others are
gathered (`_gather_max`), and means of others are a matrix product along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gt import _core as gt
from gt import _gt
from gt._gt import Tensor
from gt.nn._interpolation import adaptive_windows, averaging_matrix, resample
from gt.nn._sliding_windows import Sizes, batched, by_rank, im2col, is_integral, padded, tuple_of

# Windows of equal size ----------------------------------------------------------------------------------------------


class _WindowGeometry:
    """The geometry of windows of equal size: kernel, stride, padding, dilation and output size along each axis."""

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
        # PyTorch treats an empty stride like None.
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
            # With ceil_mode, a last window may be partial, as long as it starts inside.
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
        """The pool of this name that is an instruction."""
        return _gt.pool(name, input, self.kernel, self.stride, self.low, self.high, self.dilation)

    def sum(self, input: Tensor) -> Tensor:
        """The sum of each window."""
        if not is_integral(input):
            return self.reduce("sum_pool", input)
        shown = im2col(padded(input, self.low, self.high), self.counts, self.kernel, self.dilation, self.stride)
        return shown.sum(2, dtype=input.dtype)

    def places(self) -> list[list[list[int]]]:
        """For each axis, the indices that each window covers."""
        axes = zip(self.sizes, self.counts, self.kernel, self.stride, self.low, self.dilation, strict=True)
        return [
            [[at for at in range(i * step - p, i * step - p + d * k, d) if 0 <= at < size] for i in range(count)]
            for size, count, k, step, p, d in axes
        ]


def _max_pool(  # noqa: D417 (by_rank gives the rank)
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Maximum of each window of each channel.

    Args:
        input: `(N, C, *)` or `(C, *)`.
        kernel_size: The size of the windows, one number or one for each axis.
        stride: The step between windows; `kernel_size` if not given.
        padding: The minus infinities added at both ends of each axis, at most half a window.
        dilation: The step between the elements of a window.
        ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.
        return_indices: Whether to return the flat positions of the maxima in their channel too.

    Example:
        >>> gt.nn.functional.max_pool2d(gt.arange(16.0).reshape(1, 4, 4), 2)
        tensor([[[ 5.,  7.],
                 [13., 15.]]])
    """
    input, alone = batched(f"max_pool{rank}d", input, rank)
    layout = _WindowGeometry(input, kernel_size, stride, padding, dilation, ceil_mode)
    if is_integral(input):
        results = _gather_max(input, layout.places())
    elif return_indices:
        results = (layout.reduce("max_pool", input), layout.reduce("max_pool_indices", input))
    else:
        results = (layout.reduce("max_pool", input),)
    results = tuple(part.squeeze(0) for part in results) if alone else results
    return results if return_indices else results[0]


def _gather_max(input: Tensor, windows: Sequence[Sequence[Sequence[int]]]) -> tuple[Tensor, Tensor]:
    """The maximum of arbitrary windows, given as the indices they cover along each axis, and its flat position."""
    axes = []
    for axis in windows:
        if not all(axis):
            raise NotImplementedError(f"{input.dtype}: a window that lies in the padding alone has no largest element")
        # Shorter windows repeat their last index, so that all have the length of the longest.
        longest = max(map(len, axis), default=1)
        seen = [[*window, *[window[-1]] * (longest - len(window))] for window in axis]
        axes.append(gt.tensor(seen, dtype=gt.int64).reshape(1, 1, len(axis), longest))
    return _gather_max_at(input, axes)


def _gather_max_at(input: Tensor, axes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The maxima and their flat positions of windows given as indices `(N, C, windows, k)` for each axis."""
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
    layout = _WindowGeometry(input, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    total = layout.sum(input)
    counts: Any = divisor_override
    if counts is None:
        counts = _divisors(input, layout, count_include_pad)
    result = gt.div(total, counts, rounding_mode="trunc" if is_integral(input) else None)
    return result.squeeze(0) if alone else result


def _divisors(input: Tensor, layout: _WindowGeometry, count_include_pad: bool) -> Any:
    """The divisor of each window: its number of elements."""
    if not any(layout.high) or (count_include_pad and layout.high == list(layout.low)):
        return math.prod(layout.kernel)
    counts: Any = 1
    for i, (size, p) in enumerate(zip(layout.sizes, layout.low, strict=True)):
        # The requested padding counts; the part of a last window beyond it does not.
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
    """Mean of each window of each channel of `(N, C, L)` or `(C, L)`.

    Args:
        input: `(N, C, L)` or `(C, L)`.
        kernel_size: The size of the windows.
        stride: The step between windows; `kernel_size` if not given.
        padding: The zeros added at both ends, at most half a window.
        ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.
        count_include_pad: Whether the divisor counts the padding.

    Example:
        >>> gt.nn.functional.avg_pool1d(gt.tensor([[1.0, 3.0, 5.0, 7.0]]), kernel_size=2)
        tensor([[2., 6.]])
    """
    return _average(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _avg_pool(  # noqa: D417 (by_rank gives the rank)
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Mean of each window of each channel.

    Args:
        input: `(N, C, *)` or `(C, *)`.
        kernel_size: The size of the windows, one number or one for each axis.
        stride: The step between windows; `kernel_size` if not given.
        padding: The zeros added at both ends of each axis, at most half a window.
        ceil_mode: Whether a last window may reach past the end: the output's size is rounded up.
        count_include_pad: Whether the divisor counts the padding.
        divisor_override: The divisor to use in place of the number of elements.

    Example:
        >>> gt.nn.functional.avg_pool2d(gt.arange(16.0).reshape(1, 4, 4), 2)
        tensor([[[ 2.5000,  4.5000],
                 [10.5000, 12.5000]]])
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
    """Power-average pooling: `(sum x^p)^(1/p)` over each window of each channel, with `p = norm_type`."""
    means = _average(rank, input**norm_type, kernel_size, stride, 0, ceil_mode)
    return (means.sign() * means.abs().relu() * math.prod(tuple_of(kernel_size, rank))) ** (1 / norm_type)


# Windows that follow from the output's size (adaptive and fractional pooling) ---------------------------------------


def _adaptive_sizes(name: str, rank: int, input: Tensor, output_size: Any) -> tuple[Tensor, bool, list[int]]:
    """The input with a batch axis, whether that was added, and the sizes of the output."""
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


def _uniform_kernel(input: Tensor, sizes: list[int]) -> list[int] | None:
    """The size of the windows if the input divides evenly into them, else `None`."""
    if all(want and size % want == 0 for size, want in zip(input.shape[2:], sizes, strict=True)):
        return [size // want for size, want in zip(input.shape[2:], sizes, strict=True)]
    return None


def _adaptive_avg_pool(rank: int, input: Tensor, output_size: Any) -> Tensor:
    """Mean pooling to given output sizes; a size of `None` keeps the input's.

    Output `i` of `n` is the mean of the elements from `floor(i size / n)` to `ceil((i + 1) size / n)`.

    Example:
        >>> gt.nn.functional.adaptive_avg_pool2d(gt.arange(16.0).reshape(1, 4, 4), 1)
        tensor([[[7.5000]]])
    """
    input, alone, sizes = _adaptive_sizes(f"adaptive_avg_pool{rank}d", rank, input, output_size)
    kernel = _uniform_kernel(input, sizes)
    if kernel is not None:
        result = _average(rank, input, kernel)
    else:
        result = input
        for axis, (size, want) in enumerate(zip(input.shape[2:], sizes, strict=True), start=2):
            result = resample(result, axis, averaging_matrix(size, want))
    return result.squeeze(0) if alone else result


def _adaptive_max_pool(rank: int, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Max pooling to given output sizes; a size of `None` keeps the input's.

    Output `i` of `n` is the maximum of the elements from `floor(i size / n)` to `ceil((i + 1) size / n)`. With
    `return_indices`, the flat positions of the maxima in their channel are returned too.
    """
    input, alone, sizes = _adaptive_sizes(f"adaptive_max_pool{rank}d", rank, input, output_size)
    kernel = _uniform_kernel(input, sizes)
    if kernel is not None:
        results = _max_pool(rank, input, kernel, return_indices=return_indices)
        results = results if return_indices else (results,)
    else:
        windows = [
            [range(*share) for share in adaptive_windows(*pair)] for pair in zip(input.shape[2:], sizes, strict=True)
        ]
        results = _gather_max(input, windows)
    results = tuple(part.squeeze(0) for part in results) if alone else tuple(results)
    return results if return_indices else results[0]


def _fractional_max_pool(  # noqa: D417 (by_rank gives the rank)
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    output_size: Sizes | None = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """Fractional max pooling: maxima of windows at pseudo-random positions (Graham 2014).

    Args:
        input: `(N, C, *)` or `(C, *)`.
        kernel_size: The size of the windows, one number or one for each axis.
        output_size: The sizes of the output.
        output_ratio: Or their ratio to the input's, between 0 and 1.
        return_indices: Whether to return the flat positions of the maxima in their channel too.
        _random_samples: The random numbers to use, `(N, C, axes)`.
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
        # In two dimensions, PyTorch's first random number is for the last axis.
        share = samples[:, :, 1 - axis if rank == 2 else axis].unsqueeze(2)
        step = (size - k) / max(want - 1, 1)
        starts = ((gt.arange(want - 1) + share) * step).trunc() - (share * step).trunc()
        starts = gt.cat([starts.long(), gt.full((*lead, 1), size - k)], 2)
        axes.append(starts.unsqueeze(3) + gt.arange(k))
    results = _gather_max_at(input, axes)
    results = tuple(part.squeeze(0) for part in results) if alone else results
    return results if return_indices else results[0]


# Unpooling ----------------------------------------------------------------------------------------------------------


def _max_unpool(  # noqa: D417 (by_rank gives the rank)
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Inverse of a max pool: puts each maximum back where it came from, among zeros.

    Args:
        input: The pool's output.
        indices: The positions that the pool returned with `return_indices`.
        kernel_size: The window's size of the pool.
        stride: Its stride; `kernel_size` if not given.
        padding: Its padding.
        output_size: The shape of the pool's input, if it is not the smallest possible one.
    """
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
    """The max pool of the same rank with `return_indices=True`."""
    return _max_pool(rank, *args, **{**kwargs, "return_indices": True})


def _adaptive_max_pool_with_indices(rank: int, *args: Any, **kwargs: Any) -> Any:
    """The adaptive max pool of the same rank with `return_indices=True`."""
    return _adaptive_max_pool(rank, *args, **{**kwargs, "return_indices": True})


def _fractional_max_pool_with_indices(rank: int, *args: Any, **kwargs: Any) -> Any:
    """The fractional max pool of the same rank with `return_indices=True`."""
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
