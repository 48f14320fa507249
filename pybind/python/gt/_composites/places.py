"""Elements elsewhere: repeated, moved, chosen, joined."""

from __future__ import annotations

from collections.abc import Sequence

from gt import _gt
from gt._composites.common import axes_of, axis_of
from gt._gt import Tensor


def repeat(self: Tensor, *sizes: int | Sequence[int]) -> Tensor:
    """The whole, so many times along each axis; axes that are missing come in front."""
    times = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    if len(times) < self.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    shape = [1] * (len(times) - self.ndim) + list(self.shape)
    apart = self.reshape([size for own in shape for size in (1, own)])
    spread = apart.expand([size for pair in zip(times, shape, strict=True) for size in pair])
    # A copy, as PyTorch gives, even where nothing is repeated.
    return spread.clone().reshape([count * own for count, own in zip(times, shape, strict=True)])


def tile(input: Tensor, dims: Sequence[int]) -> Tensor:
    """`repeat`, where counts that are missing are ones in front."""
    return repeat(input, [1] * (input.ndim - len(dims)) + list(dims))


def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved on along axes, what falls off the end coming in at the start; without axes, flattened."""
    if dims is None:
        if not isinstance(shifts, int):
            raise RuntimeError("roll: several shifts need as many dims")
        return roll(input.flatten(), shifts, 0).reshape(input.shape)
    moves, axes = [shifts] if isinstance(shifts, int) else list(shifts), axes_of(input, dims)
    if len(moves) != len(axes):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(axes)}")
    for shift, axis in zip(moves, axes, strict=True):
        size = input.shape[axis]
        start = -shift % size if size else 0
        input = _gt.cat([input.narrow(axis, start, size - start), input.narrow(axis, 0, start)], axis)
    return input


def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The parts along an axis, without it."""
    axis = axis_of(input, dim)
    return tuple(input.narrow(axis, i, 1).squeeze(axis) for i in range(input.shape[axis]))


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The parts along an axis at the indices of a vector.

    Raises:
        IndexError: An index is out of range; raised when the result is fetched.
    """
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    axis = axis_of(input, dim)
    shape = [1] * input.ndim
    shape[axis] = index.numel()
    wide = [*input.shape[:axis], index.numel(), *input.shape[axis + 1 :]]
    return input.gather(axis, index.long().reshape(shape).expand(wide))


def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Axes at other places, the others in their order."""
    old, new = axes_of(input, source), axes_of(input, destination)
    if len(old) != len(new) or len(set(old)) != len(old) or len(set(new)) != len(new):
        raise RuntimeError(f"movedim: source {old} and destination {new} are as many axes, each once")
    rest = iter(axis for axis in range(input.ndim) if axis not in old)
    place = dict(zip(new, old, strict=True))
    return input.permute([place[axis] if axis in place else next(rest) for axis in range(input.ndim)])


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """`expand`, as a function."""
    return input.expand(size)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """One after the other along the columns: axis 1, or 0 of vectors."""
    parts = [t.reshape(1) if t.ndim == 0 else t for t in tensors]
    return _gt.cat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """One below the other: along axis 0, vectors being rows."""
    return _gt.cat([t.reshape(1, -1) if t.ndim < 2 else t for t in tensors], 0)


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: one tensor for each vector, of the sizes of all; `"xy"` swaps the first two axes."""
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    swaps = indexing == "xy" and len(tensors) > 1
    order = list(range(len(tensors)))
    if swaps:
        order[:2] = [1, 0]
    sizes = [tensors[i].numel() for i in order]
    grids = []
    for i, t in enumerate(tensors):
        shape = [1] * len(tensors)
        shape[order.index(i)] = t.numel()
        grids.append(t.reshape(shape).expand(sizes))
    return tuple(grids)


METHODS = (
    tile,
    roll,
    unbind,
    index_select,
    movedim,
    broadcast_to,
)
IN_PLACE = ()
FUNCTIONS = (
    hstack,
    vstack,
    meshgrid,
)
