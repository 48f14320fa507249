"""Pixel shuffle, its inverse, and channel shuffle as functions; `gt.nn.functional` has them."""

from __future__ import annotations

from collections.abc import Sequence

from gt._gt import Tensor


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Moves channels to pixels: `(*, C r^2, H, W)` to `(*, C, H r, W r)` (Shi et al. 2016).

    Example:
        >>> gt.nn.functional.pixel_shuffle(gt.tensor([1.0, 2.0, 3.0, 4.0]).reshape(4, 1, 1), 2)
        tensor([[[1., 2.],
                 [3., 4.]]])
    """
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
    """Moves pixels to channels: `(*, C, H r, W r)` to `(*, C r^2, H, W)`; the inverse of `pixel_shuffle`.

    Example:
        >>> gt.nn.functional.pixel_unshuffle(gt.ones(1, 3, 8, 8), downscale_factor=2).shape
        gt.Size([1, 12, 4, 4])
    """
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
    """Interleaves the channels (axis 1) of `groups` groups: the first of each group, then the second of each, ….

    See Zhang et al. 2018 (ShuffleNet).

    Example:
        >>> gt.nn.functional.channel_shuffle(gt.arange(4.0).reshape(1, 4, 1, 1), groups=2).flatten()
        tensor([0., 2., 1., 3.])
    """
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
