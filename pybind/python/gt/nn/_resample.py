"""Padding, resizing and rearranging images as functions, under PyTorch's names: `gt.nn.functional` has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import gt
from gt._gt import Tensor

# Padding ------------------------------------------------------------------------------------------------------------


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """The last axes longer: `pad` is (before, after) of the last axis, then of the one before it, and so on.

    Args:
        input: Any tensor; for modes other than "constant", one or two axes more than are padded.
        pad: How much; what is negative is cut off.
        mode: What stands there: "constant", "reflect", "replicate" or "circular".
        value: The constant, 0 if not given.
    """
    pads = [int(size) for size in pad]
    if len(pads) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    axes = len(pads) // 2
    if axes > input.ndim:
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(pads)} and input of dimension {input.ndim}"
        )
    if mode == "constant":
        return _pad_constant(input, pads, 0.0 if value is None else value)
    if value not in (None, 0, 0.0):
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    places = {"reflect": _reflected, "replicate": _replicated, "circular": _circled}.get(mode)
    if places is None:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if not 1 <= axes <= 3 or input.ndim not in (axes + 1, axes + 2):
        raise NotImplementedError(
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now, of all axes but one or two"
        )
    for i in range(axes):
        axis = input.ndim - 1 - i
        before, after = pads[2 * i : 2 * i + 2]
        if before or after:
            index = places(input, axis, before, after)
            input = input.index_select(axis, gt.tensor(index, dtype=gt.int64))
    return input


def _pad_constant(input: Tensor, pads: list[int], value: float) -> Tensor:
    sizes, inner, outer = list(input.shape), [slice(None)] * input.ndim, [slice(None)] * input.ndim
    for i in range(len(pads) // 2):
        axis = input.ndim - 1 - i
        before, after = pads[2 * i : 2 * i + 2]
        size = input.shape[axis]
        sizes[axis] = size + before + after
        if sizes[axis] < 0:
            raise RuntimeError(
                f"The input size {size}, plus negative padding {before} and {after} resulted in a negative output "
                f"size, which is invalid. Check dimension {axis} of your input."
            )
        inner[axis] = slice(max(-before, 0), size - max(-after, 0))
        outer[axis] = slice(max(before, 0), sizes[axis] - max(after, 0))
    if all(size <= 0 for size in pads):
        return input[tuple(inner)].clone()
    result = gt.full(sizes, value, dtype=input.dtype)
    result[tuple(outer)] = input[tuple(inner)]
    return result


def _reflected(input: Tensor, axis: int, before: int, after: int) -> list[int]:
    size = input.shape[axis]
    if before >= size or after >= size:
        raise RuntimeError(
            "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
            f"({before}, {after}) at dimension {axis} of input {list(input.shape)}"
        )
    return [abs(i) if i < size else 2 * (size - 1) - i for i in range(-before, size + after)]


def _replicated(input: Tensor, axis: int, before: int, after: int) -> list[int]:
    size = input.shape[axis]
    if size == 0:
        raise RuntimeError(f"Expected dimension {axis} of the input to be padded to be non-empty")
    return [min(max(i, 0), size - 1) for i in range(-before, size + after)]


def _circled(input: Tensor, axis: int, before: int, after: int) -> list[int]:
    size = input.shape[axis]
    if before > size or after > size:
        raise RuntimeError("Padding value causes wrapping around more than once.")
    # What is cut off goes first: the rest is the circle.
    cut, left = max(-before, 0), size - max(-before, 0) - max(-after, 0)
    return [cut + i % left for i in range(-max(before, 0), left + max(after, 0))]


# Resizing -----------------------------------------------------------------------------------------------------------


def resampled(input: Tensor, axis: int, rows: Sequence[Sequence[float]], wanted: int) -> Tensor:
    """Axis `axis` as `wanted` elements, each the sum of the old ones times a row of weights."""
    size = input.shape[axis]
    matrix = gt.tensor([list(row) for row in rows], dtype=input.dtype).reshape(wanted, size)
    if axis == input.ndim - 1:
        return input @ matrix.T
    lead, rest = input.shape[:axis], input.shape[axis + 1 :]
    return (matrix @ input.reshape(*lead, size, math.prod(rest))).reshape(*lead, wanted, *rest)


def shares(size: int, wanted: int) -> list[tuple[int, int]]:
    """The bounds of `wanted` windows as even as can be, which cover `size` elements and may overlap."""
    return [(i * size // wanted, -(-(i + 1) * size // wanted)) for i in range(wanted)]


def averages(size: int, wanted: int) -> list[list[float]]:
    """What `resampled` takes for the means over `shares`."""
    return [[(a <= i < b) / (b - a) for i in range(size)] for a, b in shares(size, wanted)]


def _linear(at: float, size: int) -> dict[int, float]:
    at = max(at, 0.0)
    low = min(int(at), size - 1)
    share = at - low
    return {low: 1 - share, min(low + 1, size - 1): share} if low < size - 1 else {low: 1.0}


def _cubic(at: float, size: int) -> dict[int, float]:
    """Keys' weights with a = -0.75, those past the ends going to the last element."""
    a = -0.75
    low = math.floor(at)
    weights: dict[int, float] = {}
    for i in range(low - 1, low + 3):
        x = abs(at - i)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        place = min(max(i, 0), size - 1)
        weights[place] = weights.get(place, 0.0) + (near if x <= 1 else far)
    return weights


_WEIGHTS: dict[str, Callable[[float, int], dict[int, float]]] = {
    "linear": _linear,
    "bilinear": _linear,
    "trilinear": _linear,
    "bicubic": _cubic,
}
_RANKS = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}


def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """`(samples, channels, *sizes)` resized to `size`, or by `scale_factor`.

    Args:
        input: One to three axes after the channels.
        size: The sizes wanted.
        scale_factor: Or by how much to multiply them.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic" or "area".
        align_corners: Whether the first and last elements stay where they are, for modes that mix elements.
        recompute_scale_factor: Whether the scale is that of the rounded sizes.
        antialias: Not there.
    """
    rank = input.ndim - 2
    if antialias:
        raise NotImplementedError("interpolate: antialias=True is not there; avg_pool2d before it makes images smaller")
    if mode not in ("nearest", "nearest-exact", "area", *_WEIGHTS):
        raise NotImplementedError(f"Input Error: no interpolation mode is called {mode}")
    if not 1 <= rank <= 3 or _RANKS.get(mode, rank) != rank:
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for the modes: nearest | "
            f"linear | bilinear | bicubic | trilinear | area | nearest-exact (got {mode})"
        )
    if align_corners is not None and mode not in _WEIGHTS:
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
    if mode == "area":
        for axis, (n, want) in enumerate(zip(old, sizes, strict=True), start=2):
            input = resampled(input, axis, averages(n, want), want)
        return input
    for axis, (n, want, scale) in enumerate(zip(old, sizes, scales, strict=True), start=2):
        if n == want and scale in (None, 1.0):
            continue
        step = 1 / scale if scale else n / want
        if mode.startswith("nearest"):
            shift = 0.5 if mode == "nearest-exact" else 0.0
            places = [min(math.floor((i + shift) * step), n - 1) for i in range(want)]
            input = input.index_select(axis, gt.tensor(places, dtype=gt.int64))
            continue
        if align_corners:
            step = (n - 1) / (want - 1) if want > 1 else 0.0
        rows = []
        for i in range(want):
            weights = _WEIGHTS[mode](i * step if align_corners else (i + 0.5) * step - 0.5, n)
            rows.append([weights.get(j, 0.0) for j in range(n)])
        input = resampled(input, axis, rows, want)
    return input


def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate`, by its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate`, each element of the result the nearest one, by its older name."""
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate`, mixing the four elements around, the corners staying, by its older name."""
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


# Rearranging --------------------------------------------------------------------------------------------------------


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """`(…, c·r², h, w)` as `(…, c, h·r, w·r)`: channels become pixels."""
    r = upscale_factor
    *lead, channels, height, width = _image("pixel_shuffle", input)
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, "
            f"but input.size(-3)={channels} is not divisible by {r * r}"
        )
    split = input.reshape(*lead, channels // (r * r), r, r, height, width)
    mixed = split.movedim((-4, -3), (-3, -1))
    return mixed.clone().reshape(*lead, channels // (r * r), height * r, width * r)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """`(…, c, h·r, w·r)` as `(…, c·r², h, w)`: pixels become channels."""
    r = downscale_factor
    *lead, channels, height, width = _image("pixel_unshuffle", input)
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    if height % r or width % r:
        raise RuntimeError(
            "pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
            f"({height}, {width}) are not divisible by {r}"
        )
    split = input.reshape(*lead, channels, height // r, r, width // r, r)
    mixed = split.movedim((-3, -1), (-4, -3))
    return mixed.clone().reshape(*lead, channels * r * r, height // r, width // r)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """The channels, axis 1, dealt out anew: the first of each group, then the second of each."""
    samples, channels, *sizes = input.shape
    if groups <= 0 or channels % groups:
        raise RuntimeError(
            f"Number of channels must be divisible by groups. Got {channels} channels and {groups} groups."
        )
    return input.reshape(samples, groups, channels // groups, *sizes).transpose(1, 2).reshape(input.shape)


def _image(name: str, input: Tensor) -> Sequence[int]:
    if input.ndim < 3:
        raise RuntimeError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)"
        )
    return input.shape
