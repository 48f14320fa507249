"""Convolutions and transposed convolutions as functions; `gt.nn.functional` has them.

Inputs are `(N, C, *)` or, without a batch, `(C, *)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gt import _autocast, _gt
from gt._gt import Tensor
from gt.nn._sliding_windows import Sizes, batched, by_rank, col2im, im2col, is_integral, padded, tuple_of


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
def _conv(  # noqa: D417 (by_rank gives the rank)
    rank: int,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes | str = 0,
    dilation: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution (cross-correlation) over the axes after the channels, plus a bias.

    Args:
        input: `(N, C, *)` or `(C, *)`.
        weight: `(K, C / groups, *kernel_size)`.
        bias: `(K)`.
        stride: The step between windows, one number or one for each axis.
        padding: The zeros added at both ends of each axis; `"valid"` for none, `"same"` to keep the sizes (with stride
            1).
        dilation: The step between the elements of a window.
        groups: The number of groups that channels are split into; each output channel sees its group's inputs alone.

    Returns:
        `(N, K, *)` or `(K, *)`, of sizes `floor((size + 2 padding - dilation (kernel - 1) - 1) / stride + 1)`.

    Example:
        >>> x, weight = gt.ones(1, 1, 4, 4), gt.ones(2, 1, 3, 3)
        >>> gt.nn.functional.conv2d(x, weight)[0, 0]
        tensor([[9., 9.],
                [9., 9.]])
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
def _conv_transpose(  # noqa: D417 (by_rank gives the rank)
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
    """Transposed convolution: the gradient of the convolution with respect to its input, plus a bias.

    Args:
        input: `(N, C, *)` or `(C, *)`.
        weight: `(C, K / groups, *kernel_size)`.
        bias: `(K)`.
        stride: The step between windows of the output, one number or one for each axis.
        padding: How much is cut off at both ends of each axis of the output.
        output_padding: How much is added to the end of each axis of the output.
        groups: The number of groups that channels are split into.
        dilation: The step between the elements of a window.

    Returns:
        `(N, K, *)` or `(K, *)`, of sizes
        `(size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1`.

    Example:
        >>> x, weight = gt.ones(1, 1, 2, 2), gt.ones(1, 1, 2, 2)
        >>> gt.nn.functional.conv_transpose2d(x, weight, stride=2).shape
        gt.Size([1, 1, 4, 4])
    """
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
        # An output padding of at least one stride would make room for another window; the excess is zeros.
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


# Integer convolutions, as matrix products --------------------------------------------------------------------------


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
    shown = im2col(input, counts, kernel, dilation, stride)
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
    total = col2im(parts, wide, kernel, dilation, stride)
    return total[(..., *(slice(a, a + n) for a, n in zip(low, sizes, strict=True)))]
