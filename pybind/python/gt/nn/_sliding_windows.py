"""Sliding windows over the spatial axes: their geometry, and their elements as columns (im2col).

Floating-point convolutions (`_convolutions.py`) and pools (`_pooling.py`) are instructions of their own. Columns do
the same for integers, and are the results of `unfold` and the inputs of `fold`.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from gt import _core as gt
from gt._composites.padding import pad
from gt._gt import Tensor

Sizes = int | Sequence[int]


def by_rank(function: Callable[..., Any], *ranks: int) -> list[Callable[..., Any]]:
    """Specializes a function whose first argument is a rank: `_conv` becomes `conv1d`, `conv2d` and `conv3d`."""
    return [_of_rank(function, rank) for rank in ranks]


def _of_rank(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    def of_rank(*args: Any, **kwargs: Any) -> Any:
        return function(rank, *args, **kwargs)

    signature = inspect.signature(function)
    name, with_indices, _ = function.__name__.strip("_").partition("_with_indices")
    of_rank.__name__ = of_rank.__qualname__ = f"{name}{rank}d{with_indices}"
    of_rank.__module__ = function.__module__
    of_rank.__doc__ = function.__doc__
    of_rank.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])  # type: ignore[attr-defined]
    return of_rank


def tuple_of(value: Sizes, rank: int, name: str = "kernel_size") -> tuple[int, ...]:
    """A size as a tuple with one number for each axis; a single number is repeated."""
    if isinstance(value, int):
        return (value,) * rank
    sizes = tuple(int(size) for size in value)
    if len(sizes) == 1:
        return sizes * rank
    if len(sizes) != rank:
        raise RuntimeError(f"{name} must either be a single int, or a tuple of {rank} ints, but got {value}")
    return sizes


def batched(name: str, input: Tensor, rank: int) -> tuple[Tensor, bool]:
    """The input with a batch axis, and whether that was added."""
    if input.ndim not in (rank + 1, rank + 2):
        raise RuntimeError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, but got input of size: "
            f"{list(input.shape)}"
        )
    return (input, False) if input.ndim == rank + 2 else (input.unsqueeze(0), True)


def is_integral(input: Tensor) -> bool:
    """Whether the dtype is an integer one, for which there is no convolution or pooling instruction."""
    return not input.dtype.is_floating_point and input.dtype != gt.bool


# Columns (im2col) ---------------------------------------------------------------------------------------------------


def window_slices(
    counts: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int]
) -> list[tuple[slice, ...]]:
    """For each element of a window, the slices that select it in all windows.

    There are `counts` windows along each axis.
    """
    axes = [
        [slice(i * apart, i * apart + (count - 1) * step + 1, step) for i in range(k)]
        for count, k, apart, step in zip(counts, kernel, dilation, stride, strict=True)
    ]
    return list(itertools.product(*axes))


def padded(input: Tensor, low: Sequence[int], high: Sequence[int], value: float = 0) -> Tensor:
    """The tensor padded at its last axes by `low` before and `high` after."""
    pads = [size for pair in zip(reversed(low), reversed(high), strict=True) for size in pair]
    return pad(input, pads, value=value) if any(pads) else input


def im2col(input: Tensor, counts: Sequence[int], *geometry: Sequence[int]) -> Tensor:
    """im2col: `(N, C, *sizes)` to `(N, C, elements of a window, *counts)`."""
    return gt.stack([input[(..., *box)] for box in window_slices(counts, *geometry)], 2)


def col2im(columns: Tensor, sizes: Sequence[int], *geometry: Sequence[int]) -> Tensor:
    """The transpose of `im2col`: adds the windows' elements where they came from in `(N, C, *sizes)`."""
    total = gt.zeros(*columns.shape[:2], *sizes, dtype=columns.dtype)
    for i, box in enumerate(window_slices(columns.shape[3:], *geometry)):
        placed = gt.zeros_like(total)
        placed[(..., *box)] = columns[:, :, i]
        total = total + placed
    return total


def _sliding(sizes: Sequence[int], *geometry: Any) -> tuple[list[tuple[int, ...]], list[int]]:
    """Kernel, dilation, padding and stride as pairs, and the number of windows along each axis."""
    kernel, apart, pads, step = pairs = [(x, x) if isinstance(x, int) else tuple(x) for x in geometry]
    counts = []
    for i in range(2):
        span = sizes[i] + 2 * pads[i] - apart[i] * (kernel[i] - 1) - 1
        if span < 0 or min(kernel[i], apart[i], step[i]) < 1:
            raise RuntimeError(
                f"Given input with spatial size ({sizes[0]}, {sizes[1]}), kernel_size={kernel}, dilation={apart}, "
                f"padding={pads}, calculated shape of the array of sliding blocks is too small"
            )
        counts.append(span // step[i] + 1)
    return pairs, counts


def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Extracts sliding windows (im2col): `(N, C, H, W)` to `(N, C prod(kernel_size), windows)`.

    Args:
        input: `(N, C, H, W)` or `(C, H, W)`.
        kernel_size: The size of the windows, one number or a pair.
        dilation: The step between the elements of a window.
        padding: The zeros added at both ends of each axis.
        stride: The step between windows.

    Example:
        >>> gt.nn.functional.unfold(gt.ones(1, 3, 4, 5), kernel_size=2).shape
        gt.Size([1, 12, 12])
    """
    if input.ndim not in (3, 4):
        raise RuntimeError(f"Expected 3D or 4D (batch mode) tensor for input, but got {list(input.shape)}")
    batch = input if input.ndim == 4 else input.unsqueeze(0)
    (kernel, apart, pads, step), counts = _sliding(batch.shape[2:], kernel_size, dilation, padding, stride)
    shown = im2col(padded(batch, pads, pads), counts, kernel, apart, step)
    shown = shown.reshape(batch.shape[0], batch.shape[1] * math.prod(kernel), math.prod(counts))
    return shown if input.ndim == 4 else shown.squeeze(0)


def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Sums sliding windows into images (col2im): `(N, C prod(kernel_size), windows)` to `(N, C, *output_size)`.

    Args:
        input: `(N, C prod(kernel_size), windows)`, or without `N`.
        output_size: The height and width of the images, one number or a pair.
        kernel_size: The size of the windows, one number or a pair.
        dilation: The step between the elements of a window.
        padding: The zeros that were added at both ends of each axis.
        stride: The step between windows.

    Example:
        >>> columns = gt.nn.functional.unfold(gt.ones(1, 1, 4, 4), kernel_size=2, stride=2)
        >>> gt.nn.functional.fold(columns, output_size=4, kernel_size=2, stride=2).shape
        gt.Size([1, 1, 4, 4])
    """
    if input.ndim not in (2, 3):
        raise RuntimeError(f"Expected 2D or 3D (batch mode) tensor for input, but got {list(input.shape)}")
    batch = input if input.ndim == 3 else input.unsqueeze(0)
    sizes = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    (kernel, apart, pads, step), counts = _sliding(sizes, kernel_size, dilation, padding, stride)
    samples, rows, windows = batch.shape
    if rows % math.prod(kernel):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            f"input.size(1)={rows} and kernel_size={kernel_size}."
        )
    if windows != math.prod(counts):
        raise RuntimeError(
            f"Given output_size={tuple(sizes)}, kernel_size={kernel_size}, dilation={dilation}, padding={padding}, "
            f"stride={stride}, expected size of input's dimension 2 to match the calculated number of sliding blocks "
            f"{counts[0]} * {counts[1]} = {math.prod(counts)}, but got input.size(2)={windows}."
        )
    parts = batch.reshape(samples, rows // math.prod(kernel), math.prod(kernel), *counts)
    total = col2im(parts, [size + 2 * p for size, p in zip(sizes, pads, strict=True)], kernel, apart, step)
    result = total[:, :, pads[0] : pads[0] + sizes[0], pads[1] : pads[1] + sizes[1]].contiguous()
    return result if input.ndim == 3 else result.squeeze(0)
