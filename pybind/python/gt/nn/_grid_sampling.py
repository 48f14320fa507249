"""Sampling images at the points of a grid, and affine grids, as functions; `gt.nn.functional` has them."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence

from gt import _core as gt
from gt._gt import Tensor

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")

# The taps of an interpolation along one axis: the index of each, and its weight.
Taps = list[tuple[Tensor, "Tensor | float"]]


def _corners(name: str, align_corners: bool | None) -> bool:
    if align_corners is None:
        warnings.warn(
            f"Default {name} behavior is align_corners=False: please specify align_corners=True if the corners should "
            "be those of the outer pixels' centres.",
            stacklevel=3,
        )
    return bool(align_corners)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Samples images at the points of a grid (Jaderberg et al. 2015).

    Args:
        input: `(N, C, H, W)` or `(N, C, D, H, W)`.
        grid: `(N, H', W', 2)` or `(N, D', H', W', 3)`: for each output pixel the point (x, y) or (x, y, z), where -1
            and 1 are the edges of the image.
        mode: `"bilinear"`, `"nearest"` or `"bicubic"` interpolation.
        padding_mode: The values outside the image: `"zeros"`, the nearest `"border"` pixel, or its `"reflection"`.
        align_corners: Whether -1 and 1 are the centres of the corner pixels rather than their outer edges.

    Returns:
        `(N, C, H', W')` or `(N, C, D', H', W')`.
    """
    if mode not in _MODES:
        raise ValueError(
            f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: "
            f"'{padding_mode}'"
        )
    rank = input.ndim - 2
    if rank not in (2, 3) or grid.ndim != input.ndim or grid.shape[0] != input.shape[0]:
        raise RuntimeError(
            "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions and same batch size, but "
            f"got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if grid.shape[-1] != rank:
        raise RuntimeError(
            f"grid_sampler(): expected grid to have size {rank} in last dimension, but got grid with sizes "
            f"{list(grid.shape)}"
        )
    if grid.dtype != input.dtype:
        raise RuntimeError(
            "grid_sampler(): expected input and grid to have same dtype, but input has "
            f"{input.dtype} and grid has {grid.dtype}"
        )
    for i, size in enumerate(input.shape[2:], start=2):
        if size == 0:
            raise RuntimeError(
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
                f"{list(input.shape)} with dimension {i} being empty"
            )
    corners = _corners("grid_sample", align_corners)
    if mode == "bicubic" and rank == 3 and input.dtype in (gt.float16, gt.bfloat16):  # PyTorch uses float32 here
        return grid_sample(input.float(), grid.float(), mode, padding_mode, corners).to(input.dtype)
    axes: list[Taps] = []
    for i, size in enumerate(input.shape[2:]):
        at = (grid[..., rank - 1 - i] + 1) / 2
        at = at * (size - 1) if corners else at * size - 0.5
        if mode == "bicubic":
            axes.append([(_wrap_coordinates(place, size, padding_mode, corners), share) for place, share in _cubic(at)])
            continue
        at = _wrap_coordinates(at, size, padding_mode, corners)
        axes.append([(at.detach().round(), 1.0)] if mode == "nearest" else _linear(at))
    return _interpolate(input, grid, axes)


def _wrap_coordinates(at: Tensor, size: int, padding_mode: str, corners: bool) -> Tensor:
    """Coordinates along an axis, clamped or reflected into the image; the gradient is 0 where they are clamped."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        least, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        if span == 0:
            return at * 0
        away = gt.where(at < least, least - at, at - least)
        turns = (away.detach() / span).floor()
        rest = away - turns * span
        at = gt.where(turns % 2 == 0, rest, span - rest) + least
    return gt.where(at > 0, gt.where(at < size - 1, at, size - 1.0), 0.0).to(at.dtype)


def _linear(at: Tensor) -> Taps:
    low = at.detach().floor()
    share = at - low
    return [(low, 1 - share), (low + 1, share)]


def _cubic(at: Tensor) -> Taps:
    """The four taps of Keys' cubic convolution with a = -0.75."""
    low = at.detach().floor()
    t, a = at - low, -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = [far(t + 1), near(t), near(1 - t), far(2 - t)]
    return [(low + i, weight) for i, weight in zip(range(-1, 3), weights, strict=True)]


def _interpolate(input: Tensor, grid: Tensor, axes: list[Taps]) -> Tensor:
    """The weighted sum over all combinations of the axes' taps; taps outside the image count as zeros."""
    samples, channels, *sizes = input.shape
    points = math.prod(grid.shape[1:-1])
    flat = input.flatten(2)
    total: Tensor | None = None
    for taps in itertools.product(*axes):
        index, weight, there = 0, 1.0, None
        for (place, share), size in zip(taps, sizes, strict=True):
            within = (place >= 0) & (place <= size - 1)
            there = within if there is None else there & within
            index, weight = index * size + gt.where(within, place, 0.0).long(), weight * share
        index = index.reshape(samples, 1, points).expand(samples, channels, points)
        found = flat.gather(2, index).reshape(samples, channels, *grid.shape[1:-1])
        found = gt.where(there.unsqueeze(1), found, 0.0)
        part = found * weight.unsqueeze(1) if isinstance(weight, Tensor) else found
        total = part if total is None else total + part
    return total


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The sampling grid of affine transforms, for `grid_sample`.

    Args:
        theta: Matrices `(N, 2, 3)` or `(N, 3, 4)` from output coordinates to input coordinates.
        size: The shape of the output images, `(N, C, H, W)` or `(N, C, D, H, W)`.
        align_corners: As in `grid_sample`.

    Returns:
        `(N, H, W, 2)` or `(N, D, H, W, 3)`.
    """
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    sizes = tuple(int(n) for n in size)
    rank = len(sizes) - 2
    if rank not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
            f"Got size {sizes}."
        )
    if theta.ndim != 3 or theta.shape[1:] != (rank, rank + 1):
        raise ValueError(
            f"Expected a batch of {rank}D affine matrices of shape Nx{rank}x{rank + 1} for size {sizes}. "
            f"Got {theta.shape}."
        )
    if min(sizes) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {sizes}")
    corners = _corners("affine_grid", align_corners)
    axes = []
    for n in sizes[2:]:
        steps = gt.linspace(-1, 1, n, dtype=theta.dtype) if n > 1 else gt.zeros(1, dtype=theta.dtype)
        axes.append(steps if corners else steps * ((n - 1) / n))
    places = gt.stack([*reversed(gt.meshgrid(*axes, indexing="ij")), gt.ones(*sizes[2:], dtype=theta.dtype)], -1)
    return (places.reshape(-1, rank + 1) @ theta.mT).reshape(sizes[0], *sizes[2:], rank)
