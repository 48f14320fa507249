"""Convolutions and pools as functions, under PyTorch's names: `gt.nn.functional` has them.

Inputs are `(samples, channels, *sizes)` or, of one sample, `(channels, *sizes)`. Each is one instruction, or few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gt
from gt import _gt
from gt._gt import Tensor
from gt.nn._resample import averages, pad, resampled, shares

Sizes = int | Sequence[int]


def tuple_of(value: Sizes, rank: int, name: str = "kernel_size") -> tuple[int, ...]:
    """One size an axis, given as such or as one for all."""
    if isinstance(value, int):
        return (value,) * rank
    sizes = tuple(int(size) for size in value)
    if len(sizes) == 1:
        return sizes * rank
    if len(sizes) != rank:
        raise RuntimeError(f"{name} must either be a single int, or a tuple of {rank} ints, but got {value}")
    return sizes


def _batched(name: str, input: Tensor, rank: int) -> tuple[Tensor, bool]:
    """`input` with an axis of samples, and whether it had none."""
    if input.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
        )
    return (input, False) if input.ndim == rank + 2 else (input.unsqueeze(0), True)


# Convolutions -------------------------------------------------------------------------------------------------------


def _convolution(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes | str,
    dilation: Sizes,
    groups: int,
) -> Tensor:
    name = f"conv{rank}d"
    if weight.ndim != rank + 2:
        raise RuntimeError(f"{name}: expected a weight of {rank + 2} dimensions, but got {list(weight.shape)}")
    input, alone = _batched(name, input, rank)
    stride, dilation = tuple_of(stride, rank, "stride"), tuple_of(dilation, rank, "dilation")
    low = high = (0,) * rank
    if padding == "same":
        if any(step != 1 for step in stride):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        low, high = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    elif isinstance(padding, str):
        if padding != "valid":
            raise RuntimeError(f"Invalid padding string: '{padding}'")
    else:
        low = high = tuple_of(padding, rank, "padding")
    result = _gt.convolution(input, weight, bias, stride, low, high, dilation, groups)
    return result.squeeze(0) if alone else result


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Sums of products of `weight`, `(out, in / groups, k)`, and the windows of `input`, `(samples, in, length)`."""
    return _convolution(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """As `conv1d`, for `(samples, in, height, width)`."""
    return _convolution(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """As `conv1d`, for `(samples, in, depth, height, width)`."""
    return _convolution(3, input, weight, bias, stride, padding, dilation, groups)


def _transposed(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    output_padding: Sizes,
    groups: int,
    dilation: Sizes,
) -> Tensor:
    name = f"conv_transpose{rank}d"
    if weight.ndim != rank + 2:
        raise RuntimeError(f"{name}: expected a weight of {rank + 2} dimensions, but got {list(weight.shape)}")
    input, alone = _batched(name, input, rank)
    if input.shape[1] != weight.shape[0]:
        raise RuntimeError(
            f"Given transposed=1, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have "
            f"{weight.shape[0]} channels, but got {input.shape[1]} channels instead"
        )
    stride, dilation = tuple_of(stride, rank, "stride"), tuple_of(dilation, rank, "dilation")
    low, more = tuple_of(padding, rank, "padding"), tuple_of(output_padding, rank, "output_padding")
    sizes, high, beyond = [], [], []
    for i in range(rank):
        if not 0 <= more[i] < max(stride[i], dilation[i]):
            raise RuntimeError(
                "output padding must be smaller than either stride or dilation, but got "
                f"output_padding={more[i]}, stride={stride[i]}, dilation={dilation[i]}"
            )
        reach = dilation[i] * (weight.shape[i + 2] - 1) + 1
        # A stride past the last window there would be another: what is more is in no window.
        beyond.append(max(more[i] - low[i], 0) if more[i] >= stride[i] else 0)
        sizes.append((input.shape[i + 2] - 1) * stride[i] - 2 * low[i] + reach + more[i] - beyond[i])
        high.append(low[i] if more[i] < stride[i] else max(low[i] - more[i], 0))
    if any(size < 1 for size in sizes):
        raise RuntimeError(
            f"Given input size per channel: {list(input.shape[2:])}. Calculated output size per channel: {sizes}. "
            "Output size is too small"
        )
    result = _gt.convolution_input(input, weight, sizes, stride, low, high, dilation, groups)
    if any(beyond):
        result = pad(result, [size for after in reversed(beyond) for size in (0, after)])
    if bias is not None:
        result = result + bias.reshape(-1, *[1] * rank)
    return result.squeeze(0) if alone else result


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Each element spread over a window as `weight`, `(in, out / groups, k)`, says: `conv1d`'s gradient."""
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """As `conv_transpose1d`, for `(samples, in, height, width)`."""
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """As `conv_transpose1d`, for `(samples, in, depth, height, width)`."""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)


# Pools --------------------------------------------------------------------------------------------------------------


def _lay(
    input: Tensor, kernel: Sequence[int], stride: Sequence[int], low: Sequence[int], dilation: Sequence[int], up: bool
) -> list[int]:
    """The padding after each axis; with `up`, so much that a last window that starts inside is counted."""
    high = []
    for size, k, step, p, d in zip(input.shape[2:], kernel, stride, low, dilation, strict=True):
        if k < 1 or step < 1 or d < 1:
            raise RuntimeError(
                f"kernel size, stride and dilation should be greater than zero, but got {k}, {step}, {d}"
            )
        if not 0 <= 2 * p <= d * (k - 1) + 1:
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and "
                f"dilation={d}"
            )
        reach = d * (k - 1) + 1
        needed = p
        if up:
            last = -(-(size + 2 * p - reach) // step) * step
            if last >= size + p:
                last -= step
            needed = max(p, last + reach - size - p)
        if size + p + needed < reach:
            raise RuntimeError(
                f"Given input size: ({'x'.join(map(str, input.shape[1:]))}). Calculated output size is too small for "
                f"kernel size {tuple(kernel)}"
            )
        high.append(needed)
    return high


def _max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    input, alone = _batched(f"max_pool{rank}d", input, rank)
    kernel = tuple_of(kernel_size, rank)
    step = kernel if stride is None or stride == [] else tuple_of(stride, rank, "stride")
    low, apart = tuple_of(padding, rank, "padding"), tuple_of(dilation, rank, "dilation")
    high = _lay(input, kernel, step, low, apart, ceil_mode)
    result = _gt.pool("max_pool", input, kernel, step, low, high, apart)
    if not return_indices:
        return result.squeeze(0) if alone else result
    indices = _gt.pool("max_pool_indices", input, kernel, step, low, high, apart)
    return (result.squeeze(0), indices.squeeze(0)) if alone else (result, indices)


def max_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window of each channel, and with `return_indices` where in the channel it is."""
    return _max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """As `max_pool1d`, for `(samples, channels, height, width)`."""
    return _max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """As `max_pool1d`, for `(samples, channels, depth, height, width)`."""
    return _max_pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def _avg_pool(
    rank: int,
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    input, alone = _batched(f"avg_pool{rank}d", input, rank)
    kernel = tuple_of(kernel_size, rank)
    step = kernel if stride is None or stride == [] else tuple_of(stride, rank, "stride")
    low = tuple_of(padding, rank, "padding")
    high = _lay(input, kernel, step, low, (1,) * rank, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    total = _gt.pool("sum_pool", input, kernel, step, low, high, 1)
    counts: Any = divisor_override
    if counts is None and (not any(high) or (count_include_pad and list(high) == list(low))):
        counts = math.prod(kernel)
    elif counts is None:
        sizes, before, after = list(input.shape[2:]), list(low), list(high)
        if count_include_pad:  # the padding that was asked for counts, that which completes a last window does not
            sizes = [size + 2 * p for size, p in zip(sizes, low, strict=True)]
            before, after = [0] * rank, [a - p for a, p in zip(high, low, strict=True)]
        counts = _gt.pool("sum_pool", gt.ones(1, 1, *sizes, dtype=input.dtype), kernel, step, before, after, 1)
    result = total / counts
    return result.squeeze(0) if alone else result


def avg_pool1d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of each channel; the zeros of the padding count unless told not to."""
    return _avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """As `avg_pool1d`, for `(samples, channels, height, width)`; `divisor_override` is divided by instead."""
    return _avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(
    input: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """As `avg_pool2d`, for `(samples, channels, depth, height, width)`."""
    return _avg_pool(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _lp_pool(
    rank: int, input: Tensor, norm_type: float, kernel: Sizes, stride: Sizes | None, ceil_mode: bool
) -> Tensor:
    means = _avg_pool(rank, input**norm_type, kernel, stride, 0, ceil_mode, True, None)
    return (means.sign() * means.abs().relu() * math.prod(tuple_of(kernel, rank))) ** (1 / norm_type)


def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """The norm of each window: the root of its elements' powers' sum."""
    return _lp_pool(1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Sizes, stride: Sizes | None = None, ceil_mode: bool = False
) -> Tensor:
    """As `lp_pool1d`, for `(samples, channels, height, width)`."""
    return _lp_pool(2, input, norm_type, kernel_size, stride, ceil_mode)


# Pools whose windows follow from the size of the result -------------------------------------------------------------


def _adaptive(name: str, rank: int, input: Tensor, output_size: Any) -> tuple[Tensor, bool, list[int]]:
    input, alone = _batched(name, input, rank)
    wanted = [output_size] * rank if output_size is None or isinstance(output_size, int) else list(output_size)
    if len(wanted) != rank:
        raise ValueError(f"{name}: output_size must have {rank} elements, but got {output_size}")
    sizes = [size if want is None else want for want, size in zip(wanted, input.shape[2:], strict=True)]
    if any(size < 0 for size in sizes):
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 but received {sizes}")
    return input, alone, sizes


def _even(input: Tensor, sizes: list[int]) -> list[int] | None:
    """The size of the windows if all are alike and cover the input."""
    if all(want and size % want == 0 and size for size, want in zip(input.shape[2:], sizes, strict=True)):
        return [size // want for size, want in zip(input.shape[2:], sizes, strict=True)]
    return None


def _adaptive_avg_pool(rank: int, input: Tensor, output_size: Any) -> Tensor:
    input, alone, sizes = _adaptive(f"adaptive_avg_pool{rank}d", rank, input, output_size)
    kernel = _even(input, sizes)
    if kernel is not None:
        result = _avg_pool(rank, input, kernel, None, 0, False, True, None)
    else:
        result = input
        for axis, (size, want) in enumerate(zip(input.shape[2:], sizes, strict=True), start=2):
            result = resampled(result, axis, averages(size, want), want)
    return result.squeeze(0) if alone else result


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means over as many windows as asked for."""
    return _adaptive_avg_pool(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """As `adaptive_avg_pool1d`; a size of `None` is the input's."""
    return _adaptive_avg_pool(2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """As `adaptive_avg_pool2d`, for three axes."""
    return _adaptive_avg_pool(3, input, output_size)


def _adaptive_max_pool(rank: int, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    name = f"adaptive_max_pool{rank}d"
    input, alone, sizes = _adaptive(name, rank, input, output_size)
    kernel = _even(input, sizes)
    if kernel is not None:
        result = _max_pool(rank, input, kernel, None, 0, 1, False, return_indices)
        if return_indices:
            return tuple(part.squeeze(0) for part in result) if alone else result
    elif return_indices:
        raise NotImplementedError(f"{name}: indices where the output's sizes do not divide the input's")
    else:
        # A window shorter than the longest sees its last element again.
        result = input
        for axis, (size, want) in enumerate(zip(input.shape[2:], sizes, strict=True), start=2):
            windows = shares(size, want)
            longest = max((b - a for a, b in windows), default=1)
            places = [min(a + i, b - 1) for a, b in windows for i in range(longest)]
            picked = result.index_select(axis, gt.tensor(places, dtype=gt.int64))
            shape = (*picked.shape[:axis], want, longest, *picked.shape[axis + 1 :])
            result = picked.reshape(shape).amax(axis + 1)
    return result.squeeze(0) if alone else result


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest elements of as many windows as asked for."""
    return _adaptive_max_pool(1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """As `adaptive_max_pool1d`; a size of `None` is the input's."""
    return _adaptive_max_pool(2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """As `adaptive_max_pool2d`, for three axes."""
    return _adaptive_max_pool(3, input, output_size, return_indices)


def _max_unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    output_size: Sequence[int] | None,
) -> Tensor:
    input, alone = _batched(f"max_unpool{rank}d", input, rank)
    indices, _ = _batched(f"max_unpool{rank}d", indices, rank)
    kernel = tuple_of(kernel_size, rank)
    step = kernel if stride is None else tuple_of(stride, rank, "stride")
    low = tuple_of(padding, rank, "padding")
    sizes = [(n - 1) * s + k - 2 * p for n, s, k, p in zip(input.shape[2:], step, kernel, low, strict=True)]
    if output_size is not None:
        wanted = list(output_size)[-rank:]
        if any(abs(want - size) >= s for want, size, s in zip(wanted, sizes, step, strict=True)):
            raise ValueError(f"invalid output_size {wanted}: it differs from {sizes} by a stride or more")
        sizes = wanted
    blank = gt.zeros(*input.shape[:2], math.prod(sizes), dtype=input.dtype)
    result = blank.scatter(2, indices.flatten(2), input.flatten(2)).reshape(*input.shape[:2], *sizes)
    return result.squeeze(0) if alone else result


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Each element back where `max_pool1d` took it from, among zeros."""
    return _max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """As `max_unpool1d`, for `max_pool2d`."""
    return _max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """As `max_unpool1d`, for `max_pool3d`."""
    return _max_unpool(3, input, indices, kernel_size, stride, padding, output_size)
