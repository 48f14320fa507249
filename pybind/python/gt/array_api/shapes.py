"""The same elements in another shape or order."""

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
    """All of them, repeated to one shape."""
    return list(gt.broadcast_tensors(*arrays))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these are repeated to."""
    return tuple(gt.broadcast_shapes(*shapes))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """Repeated to a shape."""
    return x.broadcast_to(shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """One after another along an axis; without one, flattened."""
    return gt.cat([x.flatten() for x in arrays]) if axis is None else gt.cat(list(arrays), axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """One after another along a new axis."""
    return gt.stack(list(arrays), axis)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The tensors along an axis."""
    return tuple(x.unbind(axis))


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """A new axis of size 1."""
    return x.unsqueeze(axis)


def squeeze(x: Tensor, /, axis: Axes) -> Tensor:
    """Without these axes, which are of size 1."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in axes:
        if x.shape[one] != 1:
            raise ValueError(f"squeeze: axis {one} has size {x.shape[one]}, not 1")
    return x.squeeze(axes)


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Tensor:
    """In reverse order along axes, or all."""
    return x.flip(tuple(range(x.ndim)) if axis is None else axis)


def roll(x: Tensor, /, shift: Axes, *, axis: Axes | None = None) -> Tensor:
    """Moved along axes, the last elements coming first."""
    return gt.roll(x, shift, axis) if axis is not None else gt.roll(x, shift)


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Tensor:
    """Axes at other places."""
    return gt.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order."""
    return x.permute(axes)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """In another shape; with `copy`, a tensor of its own, and without it a view."""
    if copy is False:
        return x.view(shape)
    return x.clone().reshape(shape) if copy else x.reshape(shape)


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element several times."""
    return x.repeat_interleave(repeats, dim=axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The whole several times along each axis."""
    return gt.tile(x, repetitions)
