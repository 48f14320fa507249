"""Advanced indexing: `x[index]` with index tensors, arrays, lists or masks among its parts.

An index is a tuple of parts, one for each axis or more. Numbers, slices, `None` and `...` are basic parts; the others
are advanced, and make the result a copy. The extension calls `get` and `set` here for an index with advanced parts,
unless it is made of index tensors only, for which it issues the same instructions itself.

The basic parts are applied first and give a view. The axes of the advanced parts are then merged into one, and the
picked elements' positions along it into one int64 vector. Reading is then a gather along that axis and writing a
scatter, whose gradients are known.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np

from gt import _gt
from gt._functions import top
from gt._gt import Tensor

# An advanced part of an index: indices or a mask. It is an array if this process knows its elements, and a tensor if
# only the daemon does.
Part = Tensor | np.ndarray


class MergedAxes(NamedTuple):
    """A view whose indexed axes are merged into one, and the indices along that axis."""

    flat: Tensor
    axis: int
    positions: Tensor
    # The shape of the indices, which replaces the merged axis in the result.
    shape: tuple[int, ...]
    # The sizes and axes of the view, in the order of `flat`.
    sizes: list[int]
    order: list[int]

    def result_shape(self) -> list[int]:
        sizes = list(self.flat.shape)
        sizes[self.axis : self.axis + 1] = self.shape
        return sizes

    def index(self) -> Tensor:
        """The indices, broadcast to the shape of the elements that they pick."""
        wide = list(self.flat.shape)
        if len(wide) == 1:
            return self.positions
        wide[self.axis] = self.positions.numel()
        narrow = [1] * len(wide)
        narrow[self.axis] = -1
        return self.positions.reshape(narrow).expand(wide) if self.positions.numel() else self.positions.new_zeros(wide)

    def values(self) -> Tensor:
        """The picked elements."""
        found = _gt.along_axis("index", self.axis, self.flat, self.index())
        return found if len(self.shape) == 1 else found.reshape(self.result_shape())

    def restore(self, flat: Tensor) -> Tensor:
        """A tensor of the shape of `flat`, in the shape and axis order of the view."""
        return flat.reshape(self.sizes).permute([self.order.index(axis) for axis in range(len(self.order))])


def get(x: Tensor, index: Any) -> Tensor:
    """`x[index]` for an advanced index: a copy."""
    if isinstance(index, Tensor) and index.dtype is _gt.bool and index.ndim > 0 and index.shape == x.shape:
        return top.masked_select(x, index)
    view, parts = _split(x, index)
    if not parts:
        return view
    return _merge_axes(view, parts).values()


def set(x: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value` for an advanced index; if `x` is a view, its base changes, too."""
    view, parts = _split(x, index)
    if isinstance(value, Tensor):
        source = value
    elif isinstance(value, int | float):
        if view.dtype in (_gt.float16, _gt.bfloat16):
            # A number that a half precision does not have is an error, even for a single element.
            top.full((0,), value, dtype=view.dtype)
        source = top.full((), value, dtype=view.dtype)
    else:
        source = _gt.as_tensor(value, dtype=view.dtype)
    if parts:
        with view._in_place():
            view._rebind_part(_put(view, parts, source))
    else:
        view.copy_(source)


def index_put(input: Tensor, indices: Sequence[Any], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of the input after `copy[indices] = values`, or after `copy[indices] += values` if `accumulate`.

    An index that occurs several times then adds each of its values.
    """
    view, parts = _split(input, tuple(slice(None) if part is None else part for part in indices))
    return _put(view, parts, values, accumulate)


def _put(view: Tensor, parts: list[tuple[int, Part]], source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of the view with `source` written, or added if `accumulate`, at the advanced parts of an index."""
    masked = len(parts) == 1 and _is_mask(parts[0][1]) and not accumulate
    if source.dtype != view.dtype and not (masked and source.numel() == 1):
        names = [t.type().rpartition(".")[2].removesuffix("Tensor") for t in (view, source)]
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, "
            f"got {names[0]} for the destination and {names[1]} for the source."
        )
    if masked:
        axis, mask = parts[0]
        trail = list(view.shape[axis + mask.ndim :])
        # A source that does not vary along the masked axes needs no indices: `where` selects by the mask.
        if source.numel() == 1 or source.ndim <= len(trail):
            _check_mask(view, axis, mask)
            wide = _gt.as_tensor(mask).reshape([*mask.shape] + [1] * len(trail))
            if source.numel() == 1:
                return top.masked_fill(view, wide, source.reshape(()))
            return top.where(wide, _broadcast_source(source, trail), view)
    picked = _merge_axes(view, parts)
    source = _broadcast_source(source, picked.result_shape()).reshape(picked.index().shape)
    if accumulate and view.dtype == _gt.bool:
        flat, source = picked.flat.byte(), source.byte()
        return picked.restore(_gt.along_axis("index_put_add", picked.axis, flat, picked.index(), source)).bool()
    scatter = "index_put_add" if accumulate else "index_put"
    return picked.restore(_gt.along_axis(scatter, picked.axis, picked.flat, picked.index(), source))


def _broadcast_source(source: Tensor, shape: list[int]) -> Tensor:
    """The source, broadcast to the shape that is written."""
    sizes = list(source.shape)
    while len(sizes) > len(shape) and sizes[0] == 1:
        del sizes[0]
    if len(sizes) > len(shape) or any(
        own not in (1, size) for own, size in zip(reversed(sizes), reversed(shape), strict=False)
    ):
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(source.shape)} cannot be broadcast to indexing result of "
            f"shape {shape}"
        )
    return source.reshape(sizes).expand(shape)


# Parsing of indices --------------------------------------------------------------------------------------------


def _split(x: Tensor, index: Any) -> tuple[Tensor, list[tuple[int, Part]]]:
    """The view of the basic parts of an index, and the advanced parts, each with its first axis in that view."""
    if isinstance(index, Tensor) and index.dtype == _gt.int64 and index.ndim and x.ndim:
        return x, [(0, index)]
    if isinstance(index, list) and len(index) < 32 and not all(np.isscalar(part) for part in index):
        # As in PyTorch, a short list counts as a tuple unless all its items are numbers.
        index = tuple(index)
    parts = [_part(part) for part in (index if isinstance(index, tuple) else (index,))]
    free = x.ndim - sum(_axes_of(part) for part in parts)
    if free < 0:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    if sum(part is Ellipsis for part in parts) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    selected: list[Any] = []
    advanced: list[tuple[int, Part]] = []
    axis = 0
    for part in parts:
        if isinstance(part, Tensor | np.ndarray):
            if part.ndim == 0:
                # A single bool makes a new axis of size 1 or 0.
                selected.append(None)
                advanced.append((axis, part.reshape(1)))
                axis += 1
            else:
                selected += [slice(None)] * _axes_of(part)
                advanced.append((axis, part))
                axis += _axes_of(part)
        else:
            selected.append(part)
            axis += free if part is Ellipsis else 0 if isinstance(part, int) else 1
    whole = all(part is Ellipsis or (isinstance(part, slice) and part == slice(None)) for part in selected)
    return x if whole else x[tuple(selected)], advanced


def _part(part: Any) -> int | slice | EllipsisType | Part | None:
    """One part of an index: basic ones as they are, others as an index tensor or a mask."""
    if hasattr(part, "__dlpack__") and not isinstance(part, Tensor | np.ndarray | np.generic):
        part = np.from_dlpack(part)  # another library's tensor
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, bool | np.bool_):
        return np.array(part)
    if isinstance(part, Tensor):
        if part.dtype == _gt.uint8:
            return part.bool()
        if part.dtype not in (_gt.int64, _gt.int32, _gt.bool):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        return part if part.ndim or part.dtype == _gt.bool else int(part)
    if isinstance(part, np.ndarray | list | tuple | range):
        array = part if isinstance(part, np.ndarray) else _array(part)
        if array.dtype.kind not in "iub":
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        return array if array.ndim or array.dtype == bool else int(array)
    return part.__index__()


def _array(part: list[Any] | tuple[Any, ...] | range) -> np.ndarray:
    if any(isinstance(item, Tensor) for item in part):
        return _gt.tensor(part).numpy()
    array = np.array(part)
    return array if array.size else array.astype(np.int64)


def _is_mask(part: Part) -> bool:
    return part.dtype in (_gt.bool, np.bool_)


def _axes_of(part: Any) -> int:
    """The number of axes that a part of an index consumes."""
    if isinstance(part, Tensor | np.ndarray):
        return part.ndim if _is_mask(part) else 1
    return 0 if part is None or part is Ellipsis else 1


# The picked elements ----------------------------------------------------------------------------------------


def _merge_axes(view: Tensor, parts: list[tuple[int, Part]]) -> MergedAxes:
    """The view with the axes of the advanced parts merged into one.

    As in NumPy, the merged axis is where the parts are if they are adjacent, and otherwise the first.
    """
    if len(parts) == 1 and not _is_mask(parts[0][1]):
        axis, part = parts[0]
        positions = _positions(view, axis, part)
        shape, combined = tuple(positions.shape), positions if positions.ndim == 1 else positions.reshape(-1)
        return MergedAxes(view, axis, combined, shape, list(view.shape), list(range(view.ndim)))
    axes = [axis + i for axis, part in parts for i in range(_axes_of(part))]
    sizes = [math.prod(view.shape[axis : axis + _axes_of(part)]) for axis, part in parts]
    positions = [_positions(view, axis, part) for axis, part in parts]
    shape = _broadcast([tuple(part.shape) for part in positions])
    if len(positions) == 1:
        (combined,) = positions
    else:
        terms = []
        stride = math.prod(sizes)
        for (axis, part), size, position in zip(parts, sizes, positions, strict=True):
            stride //= max(size, 1)
            known = _looked_up(position, size, axis, isinstance(part, Tensor) and not _is_mask(part))
            terms.append(known if stride == 1 else known * stride)
        combined = functools.reduce(operator.add, terms)
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    lead = list(range(axes[0])) if together else []
    order = [*lead, *axes, *(axis for axis in range(view.ndim) if axis not in axes and axis not in lead)]
    moved = view.permute(order) if order != list(range(view.ndim)) else view
    flat = moved.reshape([*moved.shape[: len(lead)], math.prod(sizes), *moved.shape[len(lead) + len(axes) :]])
    return MergedAxes(flat, len(lead), combined.reshape(-1), shape, list(moved.shape), order)


def _positions(view: Tensor, axis: int, part: Part) -> Tensor:
    """The indices that a part picks along the axes that it consumes. Those of a tensor may count from the end."""
    if _is_mask(part):
        _check_mask(view, axis, part)
        return part.flatten().nonzero().squeeze(1) if isinstance(part, Tensor) else _gt.tensor(np.flatnonzero(part))
    size = view.shape[axis]
    if size == 0 and math.prod(part.shape):
        raise IndexError("index is out of bounds for dimension with size 0")
    if isinstance(part, Tensor):
        return part.long()
    part = part.astype(np.int64)
    outside = part[(part < -size) | (part >= size)]
    if outside.size:
        raise IndexError(f"index {outside.flat[0]} is out of bounds for dimension {axis} with size {size}")
    return _gt.tensor(np.where(part < 0, part + size, part))


def _check_mask(view: Tensor, axis: int, mask: Part) -> None:
    for i, (own, size) in enumerate(zip(mask.shape, view.shape[axis:], strict=False)):
        if own != size:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {i} does not match the shape of the indexed "
                f"tensor {list(view.shape)} at index {axis + i}"
            )


def _looked_up(positions: Tensor, size: int, axis: int, unknown: bool) -> Tensor:
    """The indices, looked up in `arange(size)` if only the daemon knows their values.

    The lookup makes negative indices nonnegative and raises for one that is out of range. Once merged, these could pick
    an element of another row instead.
    """
    if not unknown:
        return positions
    lead = [1] * axis
    table = top.arange(size).reshape([*lead, size])
    line = positions.reshape([*lead, positions.numel()])
    return _gt.along_axis("index", axis, table, line).reshape(positions.shape)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            + ", ".join(str(list(shape)) for shape in shapes)
        ) from None
