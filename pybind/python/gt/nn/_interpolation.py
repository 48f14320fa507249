"""Resizing by interpolation as functions; `gt.nn.functional` has them.

Each axis is resampled separately, by a matrix of interpolation weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from gt import _core as gt
from gt._gt import Tensor


def resample(input: Tensor, axis: int, matrix: np.ndarray) -> Tensor:
    """Multiplies an axis by a matrix. A row of it holds the weights of the inputs for one element of the output."""
    wanted, size = matrix.shape
    weights = gt.from_numpy(matrix).to(input.dtype)
    if axis == input.ndim - 1:
        return input @ weights.T
    lead, rest = input.shape[:axis], input.shape[axis + 1 :]
    return (weights @ input.reshape(*lead, size, math.prod(rest))).reshape(*lead, wanted, *rest)


def adaptive_windows(size: int, wanted: int) -> list[tuple[int, int]]:
    """The bounds of the windows of adaptive pooling: `wanted` windows that cover `size` elements and may overlap."""
    return [(i * size // wanted, -(-(i + 1) * size // wanted)) for i in range(wanted)]


def averaging_matrix(size: int, wanted: int) -> np.ndarray:
    """The matrix whose product with an axis is the means of its windows (`adaptive_windows`)."""
    first, end = np.array(adaptive_windows(size, wanted)).reshape(wanted, 2, 1).swapaxes(0, 1)
    place = np.arange(size)
    return ((first <= place) & (place < end)) / (end - first)


# Matrices of interpolation weights ----------------------------------------------------------------------------------


def _weight_matrix(places: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """The matrix that has `weights[i, j]` in row `i` and column `places[i, j]`.

    Positions beyond the ends of the axis count as its ends; weights of one position are summed.
    """
    matrix = np.zeros((len(places), size))
    np.add.at(matrix, (np.arange(len(places))[:, None], places.clip(0, size - 1)), weights)
    return matrix


def _linear_matrix(at: np.ndarray, size: int) -> np.ndarray:
    """The weights of linear interpolation at the positions `at`: two in each row."""
    at = at.clip(0)
    low = np.minimum(at.astype(np.int64), size - 1)
    share = at - low
    return _weight_matrix(np.stack([low, low + 1], 1), np.stack([1 - share, share], 1), size)


def _cubic_matrix(at: np.ndarray, size: int) -> np.ndarray:
    """The weights of cubic interpolation at the positions `at`: four in each row."""
    places = np.floor(at).astype(np.int64)[:, None] + np.arange(-1, 3)
    return _weight_matrix(places, _keys_kernel(at[:, None] - places, -0.75), size)


def _keys_kernel(x: np.ndarray, a: float) -> np.ndarray:
    """Cubic convolution kernel with the parameter `a`, its slope at 1 (Keys 1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


# The antialiasing filters: support (radius in input pixels when not downscaling) and kernel.
_FILTERS: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "bilinear": (1, lambda x: (1 - np.abs(x)).clip(0)),
    "bicubic": (2, lambda x: _keys_kernel(x, -0.5)),
    "lanczos": (3, lambda x: np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)),
}


def _antialias_matrix(mode: str, size: int, wanted: int, step: float) -> np.ndarray:
    """The weights of antialiased interpolation: a filter whose support grows with the downscaling factor `step`.

    Each row is normalized to the sum 1, also at the ends of the axis, where the filter is cut off.
    """
    reach, weight = _FILTERS[mode]
    wide = max(step, 1.0)
    centre = (np.arange(wanted)[:, None] + 0.5) * step
    place = np.arange(size)
    low, high = np.trunc(centre - reach * wide + 0.5).clip(0), np.trunc(centre + reach * wide + 0.5)
    weights = np.where((low <= place) & (place < high), weight((place - centre + 0.5) / wide), 0.0)
    return weights / weights.sum(1, keepdims=True)


# The number of spatial axes that a mode is for; the other modes take any.
_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2, "lanczos": 2}


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes the spatial axes of `(N, C, *)` to `size`, or by `scale_factor`.

    Args:
        input: A tensor `(N, C, *)` with one to three spatial axes.
        size: The output's spatial sizes: one number for all axes, or one for each. Give either `size` or
            `scale_factor`.
        scale_factor: The factors of the spatial sizes, likewise; the products are rounded down.
        mode: `"nearest"`, `"nearest-exact"` or `"area"` (adaptive mean pooling) for any number of spatial axes;
            `"linear"` for one; `"bilinear"`, `"bicubic"` or `"lanczos"` (with `antialias`) for two; `"trilinear"` for
            three.
        align_corners: Whether the centres of the corner pixels, rather than their outer edges, are aligned. For the
            modes of linear and cubic interpolation; false if not given.
        recompute_scale_factor: Whether the output's rounded size, rather than `scale_factor` itself, determines where
            the input is sampled.
        antialias: Whether a filter removes what a smaller image cannot show; for `"bilinear"`, `"bicubic"` and
            `"lanczos"`.

    Returns:
        A tensor with the input's first two sizes and the new spatial sizes.

    Raises:
        ValueError: Both or neither of `size` and `scale_factor` are given, or an option does not apply to the mode.
        NotImplementedError: The mode does not exist, or not for this number of spatial axes.

    Example:
        >>> x = gt.tensor([[[1.0, 3.0]]])
        >>> gt.nn.functional.interpolate(x, scale_factor=2)
        tensor([[[1., 1., 3., 3.]]])
        >>> gt.nn.functional.interpolate(x, size=3, mode="linear", align_corners=True)
        tensor([[[1., 2., 3.]]])
    """
    rank = input.ndim - 2
    if antialias and (mode not in _FILTERS or rank != 2):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )
    if mode == "lanczos" and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if mode not in ("nearest", "nearest-exact", "area", *_RANKS):
        raise NotImplementedError(f"Input Error: no interpolation mode is called {mode}")
    if not 1 <= rank <= 3 or _RANKS.get(mode, rank) != rank:
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the modes: nearest | "
            f"linear | bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    if align_corners is not None and mode not in _RANKS:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if (size is None) == (scale_factor is None):
        raise ValueError(
            "either size or scale_factor should be defined"
            if size is None
            else "only one of size or scale_factor should be defined"
        )
    old = list(input.shape[2:])
    scales: list[float | None] = [None] * rank
    if size is not None:
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        sizes = [size] * rank if isinstance(size, int) else [int(n) for n in size]
    else:
        factors = [float(scale_factor)] * rank if isinstance(scale_factor, int | float) else list(scale_factor or ())
        sizes = [math.floor(n * f) for n, f in zip(old, factors, strict=len(factors) == rank)]
        if not recompute_scale_factor:
            scales = list(factors)
    if len(sizes) != rank:
        raise ValueError(
            "Input and output must have the same number of spatial dimensions, but got input with spatial dimensions "
            f"of {old} and output size of {sizes}"
        )
    if any(n <= 0 for n in (*old, *sizes)):
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input {old} output {sizes}")
    for axis, (n, want, scale) in enumerate(zip(old, sizes, scales, strict=True), start=2):
        if n == want and scale in (None, 1.0):
            continue
        step = 1 / scale if scale else n / want
        if mode == "area":
            input = resample(input, axis, averaging_matrix(n, want))
        elif mode.startswith("nearest"):
            shift = 0.5 if mode == "nearest-exact" else 0.0
            places = [min(math.floor((i + shift) * step), n - 1) for i in range(want)]
            input = input.index_select(axis, gt.tensor(places, dtype=gt.int64))
        else:
            if align_corners:
                step = (n - 1) / (want - 1) if want > 1 else 0.0
            if antialias:
                matrix = _antialias_matrix(mode, n, want, step)
            else:
                at = np.arange(want) * step if align_corners else (np.arange(want) + 0.5) * step - 0.5
                matrix = _cubic_matrix(at, n) if mode == "bicubic" else _linear_matrix(at, n)
            input = resample(input, axis, matrix)
    return input


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Deprecated name of `interpolate`."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` with `mode="nearest"`. Deprecated."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` with `mode="bilinear"` and `align_corners=True`. Deprecated."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)
