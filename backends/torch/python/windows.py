"""Convolutions and pools, over windows along the last one to three axes.

PyTorch pads both ends of an axis alike; GT's windows have a padding for each end, so where they differ the input is
padded first.
"""

from __future__ import annotations

import functools

import torch
from torch.nn import functional as F

from gt_torch.elementwise import HALF

Sizes = tuple[int, ...]
# The sizes of the kernel, then stride, dilation, padding before and after, and the sizes of the input.
Window = tuple[Sizes, Sizes, Sizes, Sizes, Sizes, Sizes]

CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
MAX_POOLS = (F.max_pool1d, F.max_pool2d, F.max_pool3d)


def wide_on_processor(function):
    """Computes half precisions in float32 on the processor, where PyTorch's convolutions round in between."""

    @functools.wraps(function)
    def converted(*operands):
        dtype = operands[0].dtype
        if dtype not in HALF or operands[0].device.type != "cpu":
            return function(*operands)
        return function(*(x.float() if isinstance(x, torch.Tensor) else x for x in operands)).to(dtype)

    return converted


def padded(a: torch.Tensor, low: Sizes, high: Sizes, value: float = 0.0) -> torch.Tensor:
    """Returns the input with elements around it."""
    ends = [end for axis in reversed(range(len(low))) for end in (low[axis], high[axis])]
    return F.pad(a, ends, value=value)


def inside(a: torch.Tensor, low: Sizes, sizes: Sizes) -> torch.Tensor:
    """Returns a padded input without its padding."""
    for axis, (begin, size) in enumerate(zip(low, sizes, strict=True)):
        a = a.narrow(axis - len(low), begin, size)
    return a


@wide_on_processor
def convolution(a: torch.Tensor, weight: torch.Tensor, *rest) -> torch.Tensor:
    """Returns the cross-correlation of an input with a weight, with an optional bias."""
    *bias, (_, stride, dilation, low, high, _), groups, out = rest
    if a.numel() == 0 or weight.numel() == 0:
        # PyTorch refuses an input without channels.
        result = a.new_zeros(out)
        return result + bias[0].view(-1, *[1] * len(low)) if bias else result
    if low != high:
        a, low = padded(a, low, high), (0,) * len(low)
    convolve = CONVOLUTIONS[len(low) - 1]
    return convolve(a, weight, bias[0] if bias else None, stride, low, dilation, groups)


def gradients(
    grad: torch.Tensor, a: torch.Tensor, weight: torch.Tensor, window: Window, groups: int, wanted: tuple[bool, bool]
) -> torch.Tensor:
    """Returns the gradient of a convolution for its padded input or its weight."""
    _, stride, dilation, low, _, _ = window
    zeros = (0,) * len(low)
    # The input is padded already.
    results = torch.ops.aten.convolution_backward(
        grad, a, weight, None, stride, zeros, dilation, False, zeros, groups, [*wanted, False]
    )
    return results[0] if wanted[0] else results[1]


@wide_on_processor
def convolution_input(
    grad: torch.Tensor, weight: torch.Tensor, window: Window, groups: int, out: Sizes
) -> torch.Tensor:
    """Returns the gradient of a convolution for its input."""
    _, _, _, low, high, sizes = window
    shape = (*out[:2], *(b + size + e for b, size, e in zip(low, sizes, high, strict=True)))
    if grad.numel() == 0 or weight.numel() == 0:
        return grad.new_zeros(out)
    like = grad.new_empty(1).expand(shape)
    return inside(gradients(grad, like, weight, window, groups, (True, False)), low, sizes)


@wide_on_processor
def convolution_weight(grad: torch.Tensor, a: torch.Tensor, window: Window, groups: int, out: Sizes) -> torch.Tensor:
    """Returns the gradient of a convolution for its weight."""
    if grad.numel() == 0 or a.numel() == 0:
        return grad.new_zeros(out)
    like = grad.new_empty(1).expand(out)
    return gradients(grad, padded(a, window[3], window[4]), like, window, groups, (False, True))


def max_pool(a: torch.Tensor, window: Window, groups: int, out: Sizes) -> torch.Tensor:  # noqa: ARG001
    """Returns the maximum of each window."""
    kernel, stride, dilation, low, high, _ = window
    rank = len(kernel)
    flat = padded(a, low, high, -torch.inf).reshape(-1, 1, *(a.shape[i - rank] + low[i] + high[i] for i in range(rank)))
    flat = flat.float() if a.dtype in HALF else flat
    return MAX_POOLS[rank - 1](flat, kernel, stride, 0, dilation).to(a.dtype).reshape(out)


def window_positions(window: Window, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, Sizes]:
    """Returns, for each window and each of its elements, its position in the flattened input, and whether it is inside.

    The third result is the sizes of the output.
    """
    kernel, stride, dilation, low, high, sizes = window
    rank = len(kernel)
    position = torch.zeros((), dtype=torch.int64, device=device)
    is_inside = torch.ones((), dtype=torch.bool, device=device)
    output = []
    for axis in range(rank):
        count = (sizes[axis] + low[axis] + high[axis] - dilation[axis] * (kernel[axis] - 1) - 1) // stride[axis] + 1
        output.append(count)
        at = torch.arange(count, device=device).view(-1, 1) * stride[axis] - low[axis]
        at = at + torch.arange(kernel[axis], device=device) * dilation[axis]
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = count, kernel[axis]
        at = at.view(shape)
        position = position * sizes[axis] + at
        is_inside = is_inside & (at >= 0) & (at < sizes[axis])
    count = 1
    for size in output:
        count *= size
    return position.reshape(count, -1), is_inside.reshape(count, -1), tuple(output)


def first_maxima(a: torch.Tensor, window: Window) -> torch.Tensor:
    """Returns the position of each window's first maximum in its flattened channel; as PyTorch, of its last NaN.

    The position is -1 for a window that has padding alone.
    """
    position, is_inside, _ = window_positions(window, a.device)
    channels = a.reshape(-1, max(1, a[0, 0].numel())) if a.numel() else a.reshape(0, 1)
    elements = channels[:, position.masked_fill(~is_inside, 0)]
    elements = elements.float() if a.dtype in HALF else elements
    # Padding is below every number; where all are minus infinity, the first element inside is the maximum.
    lowest = torch.where(is_inside, elements, -torch.inf)
    best = lowest.argmax(-1, keepdim=True)
    none = (lowest.gather(-1, best) == -torch.inf).squeeze(-1)
    best = torch.where(none, is_inside.to(torch.uint8).argmax(-1), best.squeeze(-1))
    is_none = torch.isnan(lowest)
    last = is_none.shape[-1] - 1 - is_none.flip(-1).to(torch.uint8).argmax(-1)
    best = torch.where(is_none.any(-1), last, best)
    found = position.expand(len(channels), -1, -1).gather(-1, best.unsqueeze(-1)).squeeze(-1)
    return found.masked_fill(~is_inside.any(-1), -1)


def max_pool_indices(a: torch.Tensor, window: Window, groups: int, out: Sizes) -> torch.Tensor:  # noqa: ARG001
    """Returns the index of the first maximum of each window, flattened within its channel."""
    return first_maxima(a, window).reshape(out)


def max_pool_input(
    grad: torch.Tensor,
    a: torch.Tensor,
    window: Window,
    groups: int,  # noqa: ARG001
    out: Sizes,
) -> torch.Tensor:
    """Returns the gradient of max_pool: each element added at the first maximum of its window."""
    at = first_maxima(a, window)
    wide = torch.float32 if grad.dtype in HALF else grad.dtype
    result = torch.zeros(len(at), max(1, a[0, 0].numel()) if a.numel() else 1, dtype=wide, device=grad.device)
    result.scatter_add_(1, at.clamp(min=0), grad.reshape(at.shape).to(wide).masked_fill(at < 0, 0))
    return result.to(grad.dtype).reshape(out)


def ones_of(window: Window, like: torch.Tensor) -> torch.Tensor:
    """Returns a weight of ones, with which a convolution sums."""
    return like.new_ones((1, 1, *window[0]))


def sum_pool(a: torch.Tensor, window: Window, groups: int, out: Sizes) -> torch.Tensor:  # noqa: ARG001
    """Returns the sum of each window."""
    rank = len(window[0])
    flat = (a.float() if a.dtype in HALF else a).reshape(-1, 1, *a.shape[-rank:])
    return convolution(flat, ones_of(window, flat), window, 1, out).to(a.dtype).reshape(out)


def sum_pool_input(grad: torch.Tensor, window: Window, groups: int, out: Sizes) -> torch.Tensor:  # noqa: ARG001
    """Returns the gradient of sum_pool: each element added to all of its window."""
    rank = len(window[0])
    flat = (grad.float() if grad.dtype in HALF else grad).reshape(-1, 1, *grad.shape[-rank:])
    shape = (len(flat), 1, *out[-rank:])
    return convolution_input(flat, ones_of(window, flat), window, 1, shape).to(grad.dtype).reshape(out)


OPS = {
    "convolution": convolution,
    "convolution_input": convolution_input,
    "convolution_weight": convolution_weight,
    "max_pool": max_pool,
    "max_pool_indices": max_pool_indices,
    "max_pool_input": max_pool_input,
    "sum_pool": sum_pool,
    "sum_pool_input": sum_pool_input,
}
