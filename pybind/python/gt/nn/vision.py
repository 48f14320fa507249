"""Layers for images: resizing, pixel shuffle, and sliding windows."""

from __future__ import annotations

from typing import Any

from gt._functions import nn_functional as functional
from gt._gt import Tensor
from gt.nn.function_module import FunctionModule
from gt.nn.module import Module

__all__ = [
    "ChannelShuffle", "Fold", "PixelShuffle", "PixelUnshuffle", "Unfold", "Upsample", "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]  # fmt: skip


class Upsample(Module):
    """Resizes the spatial axes of `(N, C, *)` to `size`, or by `scale_factor`.

    Args:
        size: The output's spatial sizes: one number for all axes, or one for each.
        scale_factor: Or the factors of the sizes.
        mode: `"nearest"`, `"linear"`, `"bilinear"`, `"bicubic"` or `"trilinear"`.
        align_corners: Whether the centres of the corner pixels, rather than their outer edges, are aligned.
        recompute_scale_factor: Whether the scale is recomputed from the rounded sizes.

    Example:
        >>> gt.nn.Upsample(scale_factor=2)(gt.ones(1, 3, 4, 4)).shape
        gt.Size([1, 3, 8, 8])
    """

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__()
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor: Any = tuple(float(factor) for factor in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        return functional.interpolate(
            *(input, self.size, self.scale_factor, self.mode, self.align_corners), self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        size = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """`Upsample` with `mode="nearest"`. Deprecated."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """`Upsample` with `mode="bilinear"` and `align_corners=True`. Deprecated."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)


class PixelShuffle(FunctionModule, function="pixel_shuffle"):
    """Moves channels to pixels: `(*, C r^2, H, W)` to `(*, C, H r, W r)` (Shi et al. 2016).

    Args:
        upscale_factor: The factor `r`.

    Example:
        >>> gt.nn.PixelShuffle(2)(gt.ones(1, 8, 3, 3)).shape
        gt.Size([1, 2, 6, 6])
    """

    upscale_factor: int


class PixelUnshuffle(FunctionModule, function="pixel_unshuffle"):
    """Moves pixels to channels: `(*, C, H r, W r)` to `(*, C r^2, H, W)`; the inverse of `PixelShuffle`.

    Args:
        downscale_factor: The factor `r`.
    """

    downscale_factor: int


class ChannelShuffle(FunctionModule, function="channel_shuffle"):
    """Interleaves the channels (axis 1) of groups: the first of each group, then the second of each, and so on.

    See Zhang et al. 2018 (ShuffleNet).

    Args:
        groups: The number of groups.
    """

    groups: int


class Unfold(FunctionModule, function="unfold"):
    """Extracts sliding windows (im2col): `(N, C, H, W)` to `(N, C prod(kernel_size), windows)`.

    Args:
        kernel_size: The size of the windows, one number or a pair.
        dilation: The step between the elements of a window.
        padding: The zeros added at both ends of each axis.
        stride: The step between windows.

    Example:
        >>> gt.nn.Unfold(kernel_size=2)(gt.ones(1, 3, 4, 5)).shape
        gt.Size([1, 12, 12])
    """

    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1


class Fold(FunctionModule, function="fold"):
    """Sums sliding windows into images (col2im): `(N, C prod(kernel_size), windows)` to `(N, C, *output_size)`.

    Args:
        output_size: The height and width of the images, one number or a pair.
        kernel_size: The size of the windows, one number or a pair.
        dilation: The step between the elements of a window.
        padding: The zeros that were added at both ends of each axis.
        stride: The step between windows.
    """

    output_size: Any
    kernel_size: Any
    dilation: Any = 1
    padding: Any = 0
    stride: Any = 1
