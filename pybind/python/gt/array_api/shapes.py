"""Manipulation functions of the standard."""

from __future__ import annotations

from collections.abc import Sequence

from gt import _core as gt
from gt._gt import Tensor

__all__ = [
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip", "moveaxis", "permute_dims",
    "repeat", "reshape", "roll", "squeeze", "stack", "tile", "unstack",
]  # fmt: skip

Axes = int | Sequence[int]


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The tensors broadcast to a common shape."""
    return list(gt.broadcast_tensors(*arrays))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which these shapes broadcast."""
    return tuple(gt.broadcast_shapes(*shapes))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """The tensor broadcast to a shape."""
    return x.broadcast_to(shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Tensors concatenated along an axis, or flattened first if `axis` is None."""
    return gt.cat([x.flatten() for x in arrays]) if axis is None else gt.cat(list(arrays), axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Tensors stacked along a new axis."""
    return gt.stack(list(arrays), axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without it."""
    return tuple(x.unbind(axis))


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """The tensor with a new axis of size 1."""
    return x.unsqueeze(axis)


def squeeze(x: Tensor, /, axis: Axes) -> Tensor:
    """The tensor without some axes of size 1.

    Raises:
        ValueError: One of the axes has another size.
    """
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in axes:
        if x.shape[one] != 1:
            raise ValueError(f"squeeze: axis {one} has size {x.shape[one]}, not 1")
    return x.squeeze(axes)


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Tensor:
    """The elements in reverse order along axes, or along all."""
    return x.flip(tuple(range(x.ndim)) if axis is None else axis)


def roll(x: Tensor, /, shift: Axes, *, axis: Axes | None = None) -> Tensor:
    """The elements shifted along axes; those beyond the end come in again at the start."""
    return gt.roll(x, shift, axis) if axis is not None else gt.roll(x, shift)


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Tensor:
    """The tensor with some axes moved to other positions."""
    return gt.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The tensor with its axes in another order."""
    return x.permute(axes)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements under another shape: a copy, a view if `copy` is false, or either."""
    if copy is False:
        return x.view(shape)
    return x.clone().reshape(shape) if copy else x.reshape(shape)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each slice along an axis repeated, or each element of the flattened tensor."""
    return x.repeat_interleave(repeats, dim=axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The tensor repeated along each axis."""
    return gt.tile(x, repetitions)
