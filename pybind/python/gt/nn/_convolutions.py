"""Convolutions and their transposes as functions, under PyTorch's names: `gt.nn.functional` has them.

Inputs are `(samples, channels, *sizes)` or, of one sample, `(channels, *sizes)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt import _autocast, _gt
from gt._gt import Tensor
from gt.nn._sliding_windows import Sizes, added_up, batched, by_rank, columns, is_integral, padded, tuple_of


def _check_weight(name: str, input: Tensor, weight: Tensor, bias: Tensor | None, rank: int) -> None:
    if weight.ndim != rank + 2:
        raise RuntimeError(f"{name}: expected a weight of {rank + 2} dimensions, but got {list(weight.shape)}")
    for what, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.dtype != input.dtype:
            raise RuntimeError(
                f"Input type ({str(input.dtype).removeprefix('gt.')}) and {what} type "
                f"({str(other.dtype).removeprefix('gt.')}) should be the same"
            )


@_autocast.lower
def _conv(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Sums of products of `weight`, `(out, in / groups, *kernel)`, and the windows of `(samples, in, *sizes)`.

    `padding` zeros stand before and after each axis; "same" is as many as keep the sizes, "valid" none. Channels are
    mixed within each of `groups` alone.
    """
    name = f"conv{rank}d"
    _check_weight(name, input, weight, bias, rank)
    input, alone = batched(name, input, rank)
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
    convolve = _convolved_integers if is_integral(input) else _gt.convolution
    result = convolve(input, weight, bias, stride, low, high, dilation, groups)
    return result.squeeze(0) if alone else result


@_autocast.lower
def _conv_transpose(
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    groups: int = 1,
    dilation: Sizes = 1,
) -> Tensor:
    """Each element spread over a window as `weight`, `(in, out / groups, *kernel)`, says: a convolution's gradient."""
    name = f"conv_transpose{rank}d"
    _check_weight(name, input, weight, bias, rank)
    input, alone = batched(name, input, rank)
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
    spread = _spread_integers if is_integral(input) else _gt.convolution_input
    result = spread(input, weight, sizes, stride, low, high, dilation, groups)
    result = padded(result, [0] * rank, beyond)
    if bias is not None:
        result = result + bias.reshape(-1, *[1] * rank)
    return result.squeeze(0) if alone else result


conv1d, conv2d, conv3d = by_rank(_conv, 1, 2, 3)
conv_transpose1d, conv_transpose2d, conv_transpose3d = by_rank(_conv_transpose, 1, 2, 3)


# Integers, as products of matrices ----------------------------------------------------------------------------------


def _convolved_integers(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    samples, channels = input.shape[:2]
    out, each, *kernel = weight.shape
    if groups < 1:
        raise RuntimeError("non-positive groups is not supported")
    if out % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of "
            f"size {list(weight.shape)} instead"
        )
    if channels != each * groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have "
            f"{each * groups} channels, but got {channels} channels instead"
        )
    input = padded(input, low, high)
    spans = [n - d * (k - 1) - 1 for n, d, k in zip(input.shape[2:], dilation, kernel, strict=True)]
    if min(*stride, *dilation, *kernel) < 1 or min(spans) < 0:
        raise RuntimeError(
            f"Calculated padded input size per channel: ({' x '.join(map(str, input.shape[2:]))}). Kernel size: "
            f"({' x '.join(map(str, kernel))}). Kernel size can't be greater than actual input size"
        )
    counts = [span // step + 1 for span, step in zip(spans, stride, strict=True)]
    shown = columns(input, counts, kernel, dilation, stride)
    rows = weight.reshape(groups, out // groups, math.prod(weight.shape[1:]))
    result = rows @ shown.reshape(samples, groups, rows.shape[2], math.prod(counts))
    result = result.reshape(samples, out, *counts)
    return result if bias is None else result + bias.reshape(-1, *[1] * len(kernel))


def _spread_integers(
    input: Tensor,
    weight: Tensor,
    sizes: Sequence[int],
    stride: Sequence[int],
    low: Sequence[int],
    high: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    samples, channels, *counts = input.shape
    each, *kernel = weight.shape[1:]
    if groups < 1 or channels % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0")
    rows = weight.reshape(groups, channels // groups, math.prod(weight.shape[1:]))
    parts = rows.mT @ input.reshape(samples, groups, channels // groups, math.prod(counts))
    parts = parts.reshape(samples, groups * each, math.prod(kernel), *counts)
    wide = [n + a + b for n, a, b in zip(sizes, low, high, strict=True)]
    total = added_up(parts, wide, kernel, dilation, stride)
    return total[(..., *(slice(a, a + n) for a, n in zip(low, sizes, strict=True)))]
