"""Indexing, slicing, joining and rearranging."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from gt import _gt, _indexing
from gt._composites.common import axes_of, axis_of
from gt._composites.selection import nonnegative_index
from gt._composites.shape_ops import atleast_3d
from gt._gt import Tensor


def repeat(self: Tensor, *sizes: int | Sequence[int]) -> Tensor:
    """A copy repeated along each axis.

    Args:
        sizes: The number of repetitions along each axis. Further axes come in front.

    Example:
        >>> gt.tensor([1, 2]).repeat(2, 2)
        tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]])
    """
    times = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    if len(times) < self.ndim:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    shape = [1] * (len(times) - self.ndim) + list(self.shape)
    apart = self.reshape([size for own in shape for size in (1, own)])
    spread = apart.expand([size for pair in zip(times, shape, strict=True) for size in pair])
    # The result is a copy, as PyTorch's, even where nothing is repeated.
    return spread.clone().reshape([count * own for count, own in zip(times, shape, strict=True)])


def tile(input: Tensor, dims: Sequence[int]) -> Tensor:
    """A copy repeated along each axis, NumPy's way: missing counts in front are 1.

    Example:
        >>> gt.tile(gt.tensor([1, 2]), (2,))
        tensor([1, 2, 1, 2])
    """
    return repeat(input, [1] * (input.ndim - len(dims)) + list(dims))


def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Elements shifted along axes; those shifted beyond the end come in again at the start.

    Args:
        input: A tensor.
        shifts: The number of positions, one for each axis in `dims`.
        dims: The axes. Without them the tensor is rolled flattened, and gets its shape back.

    Example:
        >>> gt.roll(gt.tensor([1, 2, 3, 4]), 1)
        tensor([4, 1, 2, 3])
    """
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
    """Views of the slices along an axis, without that axis.

    Example:
        >>> gt.unbind(gt.tensor([[1, 2], [3, 4]]))
        (tensor([1, 2]), tensor([3, 4]))
    """
    axis = axis_of(input, dim)
    return tuple(input.narrow(axis, i, 1).squeeze(axis) for i in range(input.shape[axis]))


def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices picked along an axis by a vector of indices.

    Args:
        input: A tensor.
        dim: The axis.
        index: A vector of int64 or int32.

    Returns:
        A copy whose size along `dim` is the length of `index`.

    Raises:
        IndexError: An index is out of range; raised when the result is fetched.

    Example:
        >>> x = gt.tensor([[1, 2], [3, 4], [5, 6]])
        >>> gt.index_select(x, 0, gt.tensor([0, 2]))
        tensor([[1, 2],
                [5, 6]])
    """
    if index.ndim > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if index.dtype not in (_gt.int64, _gt.int32):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")
    axis = axis_of(input, dim)
    if input.ndim == 0:
        return input.reshape(1).gather(0, index.long().reshape(1)).reshape(())
    shape = [1] * input.ndim
    shape[axis] = index.numel()
    wide = [*input.shape[:axis], index.numel(), *input.shape[axis + 1 :]]
    return input.gather(axis, index.long().reshape(shape).expand(wide))


def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements picked from the flattened tensor by indices, in the shape of the indices.

    Raises:
        IndexError: An index is out of range; raised when the result is fetched.

    Example:
        >>> gt.take(gt.tensor([[1, 2], [3, 4]]), gt.tensor([0, 3]))
        tensor([1, 4])
    """
    if index.dtype != _gt.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {index.dtype}")
    return _indexing.get(input.reshape(-1), index.reshape(-1)).reshape(index.shape)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` whose input and indices broadcast along the other axes.

    Args:
        input: A tensor.
        indices: A tensor of int64 with as many axes.
        dim: The axis to index; both are flattened if not given.

    Example:
        >>> x = gt.tensor([[10, 30, 20], [60, 40, 50]])
        >>> gt.take_along_dim(x, gt.argsort(x, dim=1), dim=1)
        tensor([[10, 20, 30],
                [40, 50, 60]])
    """
    if dim is None:
        return take_along_dim(input.reshape(-1), indices.reshape(-1), 0)
    if input.ndim != indices.ndim:
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.ndim} dimensions for input, and {indices.ndim} dimensions for indices"
        )
    axis = axis_of(input, dim)
    pairs = zip(input.shape, indices.shape, strict=True)
    common = [own if other == 1 else other for own, other in pairs]
    wide = input.expand([*common[:axis], input.shape[axis], *common[axis + 1 :]])
    index = nonnegative_index(indices, input.shape[axis])
    return wide.gather(axis, index.expand([*common[:axis], indices.shape[axis], *common[axis + 1 :]]))


def repeat_interleave(
    input: Tensor, repeats: int | Tensor | None = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """A copy with each slice of an axis repeated in place.

    Args:
        input: A tensor; alone, a vector of counts, for which the result has the repeated indices.
        repeats: The number of repetitions, or one for each slice.
        dim: The axis; the tensor is flattened if not given.
        output_size: The size of the result along the axis, which is checked.

    Example:
        >>> gt.repeat_interleave(gt.tensor([1, 2]), gt.tensor([2, 1]))
        tensor([1, 1, 2])
    """
    if repeats is None:
        return _repeated_places(input)
    if dim is None:
        input, dim = input.reshape(-1), 0
    axis = axis_of(input, dim)
    size = input.shape[axis]
    if not isinstance(repeats, int) and (repeats := _gt.as_tensor(repeats)).numel() == 1:
        repeats = int(repeats.item())
    if isinstance(repeats, int):
        if repeats < 0:
            raise RuntimeError("Repeats must be non-negative")
        shape = [*input.shape[: axis + 1], repeats, *input.shape[axis + 1 :]]
        result = input.unsqueeze(axis + 1).expand(shape).clone().flatten(axis, axis + 1)
    else:
        if repeats.ndim != 1 or repeats.numel() != size:
            raise RuntimeError(
                "repeats must have the same size as input along dim, but got "
                f"repeats.size(0) = {repeats.numel()} and input.size({axis}) = {size}"
            )
        result = index_select(input, axis, _repeated_places(repeats))
    if output_size is not None and result.shape[axis] != output_size:
        raise RuntimeError(
            f"repeat_interleave: output_size is {output_size}, but the repeats make {result.shape[axis]}"
        )
    return result


def _repeated_places(repeats: Tensor) -> Tensor:
    if repeats.dtype not in (_gt.int64, _gt.int32):
        raise RuntimeError("repeats has to be Long or Int tensor")
    counts = repeats.numpy()
    if (counts < 0).any():
        raise RuntimeError("repeats can not be negative")
    return _gt.tensor(np.repeat(np.arange(len(counts)), counts))


def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy after `copy[indices] = values`.

    Args:
        input: A tensor.
        indices: An index tensor for each axis; `None` keeps an axis.
        values: A tensor that broadcasts to the indexed elements.
        accumulate: Whether values are added to the elements instead, repeated indices each time.

    Example:
        >>> gt.zeros(3).index_put((gt.tensor([0, 0, 2]),), gt.tensor(1.0), accumulate=True)
        tensor([2., 0., 1.])
    """
    return _indexing.index_put(input, indices, values, accumulate)


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """A copy or view rotated by multiples of 90 degrees in the plane of two axes.

    Args:
        input: A tensor.
        k: The number of quarter turns, from the first axis towards the second.
        dims: The two axes.

    Example:
        >>> gt.rot90(gt.tensor([[1, 2], [3, 4]]))
        tensor([[2, 4],
                [1, 3]])
    """
    if len(dims) != 2:
        raise RuntimeError(f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if input.ndim < 2:
        raise RuntimeError(f"expected total dims >= 2, but got total dims = {input.ndim}")
    first, second = axes_of(input, list(dims))
    if first == second:
        raise RuntimeError(f"expected rotation dims to be different, but got dim0 = {dims[0]} and dim1 = {dims[1]}")
    if k % 4 == 1:
        return input.flip(second).transpose(first, second)
    if k % 4 == 2:
        return input.flip([first, second])
    return input.flip(first).transpose(first, second) if k % 4 else input.clone()


def fliplr(input: Tensor) -> Tensor:
    """A copy with the columns (axis 1) in reverse order.

    Example:
        >>> gt.fliplr(gt.tensor([[1, 2], [3, 4]]))
        tensor([[2, 1],
                [4, 3]])
    """
    if input.ndim < 2:
        raise RuntimeError("Input must be >= 2-d.")
    return input.flip(1)


def flipud(input: Tensor) -> Tensor:
    """A copy with the rows (axis 0) in reverse order.

    Example:
        >>> gt.flipud(gt.tensor([[1, 2], [3, 4]]))
        tensor([[3, 4],
                [1, 2]])
    """
    if input.ndim < 1:
        raise RuntimeError("Input must be >= 1-d.")
    return input.flip(0)


def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """A view with some axes moved to other positions; the others keep their order.

    Args:
        input: A tensor.
        source: The axes to move.
        destination: Their new positions.

    Example:
        >>> gt.movedim(gt.zeros(2, 3, 4), 0, -1).shape
        gt.Size([3, 4, 2])
    """
    old, new = axes_of(input, source), axes_of(input, destination)
    if len(old) != len(new) or len(set(old)) != len(old) or len(set(new)) != len(new):
        raise RuntimeError(f"movedim: source {old} and destination {new} are as many axes, each once")
    rest = iter(axis for axis in range(input.ndim) if axis not in old)
    source_of = dict(zip(new, old, strict=True))
    return input.permute([source_of[axis] if axis in source_of else next(rest) for axis in range(input.ndim)])


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """A view broadcast to a shape: `expand` as a function.

    Example:
        >>> gt.broadcast_to(gt.tensor([1, 2]), (2, 2))
        tensor([[1, 2],
                [1, 2]])
    """
    return input.expand(size)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors concatenated horizontally: along axis 1, vectors along axis 0.

    Example:
        >>> gt.hstack([gt.tensor([1, 2]), gt.tensor([3])])
        tensor([1, 2, 3])
    """
    if not tensors:
        raise RuntimeError("hstack expects a non-empty TensorList")
    parts = [t.reshape(1) if t.ndim == 0 else t for t in tensors]
    return _gt.cat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors concatenated vertically, along axis 0; vectors become rows.

    Example:
        >>> gt.vstack([gt.tensor([1, 2]), gt.tensor([3, 4])])
        tensor([[1, 2],
                [3, 4]])
    """
    if not tensors:
        raise RuntimeError("vstack expects a non-empty TensorList")
    return _gt.cat([t.reshape(1, -1) if t.ndim < 2 else t for t in tensors], 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors concatenated along axis 2; vectors become rows, and matrices get a third axis.

    Example:
        >>> gt.dstack([gt.tensor([1, 2]), gt.tensor([3, 4])]).shape
        gt.Size([1, 2, 2])
    """
    if not tensors:
        raise RuntimeError("dstack expects a non-empty TensorList")
    return _gt.cat(list(atleast_3d(tensors)), 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors concatenated along axis 1; vectors become columns.

    Example:
        >>> gt.column_stack([gt.tensor([1, 2]), gt.tensor([3, 4])])
        tensor([[1, 3],
                [2, 4]])
    """
    if not tensors:
        raise RuntimeError("column_stack expects a non-empty TensorList")
    return _gt.cat([t.reshape(-1, 1) if t.ndim < 2 else t for t in tensors], 1)


def block_diag(*tensors: Tensor) -> Tensor:
    """The block-diagonal matrix of several matrices; elements outside the blocks are zero.

    Example:
        >>> gt.block_diag(gt.ones(1, 2), gt.ones(1, 1))
        tensor([[1., 1., 0.],
                [0., 0., 1.]])
    """
    blocks = [t.reshape(1, -1) if t.ndim < 2 else t for t in tensors]
    for i, block in enumerate(blocks):
        if block.ndim > 2:
            raise RuntimeError(
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. "
                f"Input {i} has {block.ndim} dimensions"
            )
    width, left, rows = sum(block.shape[1] for block in blocks), 0, []
    for block in blocks:
        before = _gt.zeros(block.shape[0], left, dtype=block.dtype)
        left += block.shape[1]
        rows.append(_gt.cat([before, block, _gt.zeros(block.shape[0], width - left, dtype=block.dtype)], 1))
    return _gt.cat(rows, 0) if rows else _gt.zeros(1, 0)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """The Cartesian product of vectors, a row for each combination of elements.

    Example:
        >>> gt.cartesian_prod(gt.tensor([1, 2]), gt.tensor([3, 4]))
        tensor([[1, 3],
                [1, 4],
                [2, 3],
                [2, 4]])
    """
    if len(tensors) == 1:
        return tensors[0]
    return _gt.stack([grid.reshape(-1) for grid in meshgrid(*tensors)], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """The combinations of `r` elements of a vector, a row each, in lexicographic order of their positions.

    Args:
        input: A vector.
        r: The number of elements in a combination.
        with_replacement: Whether an element may occur more than once.

    Example:
        >>> gt.combinations(gt.tensor([1, 2, 3]))
        tensor([[1, 2],
                [1, 3],
                [2, 3]])
    """
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return _gt.empty(0, dtype=input.dtype)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    positions = np.array(list(choose(range(input.numel()), r)), np.int64).reshape(-1, r)
    return index_select(input, 0, _gt.tensor(positions.reshape(-1))).reshape(positions.shape)


def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of vectors: one view for each, of the shape of the grid.

    Args:
        tensors: The vectors, as arguments or as one sequence.
        indexing: `"ij"`, the first vector along axis 0, or `"xy"`, the first two axes exchanged.

    Example:
        >>> rows, columns = gt.meshgrid(gt.tensor([1, 2]), gt.tensor([3, 4, 5]))
        >>> rows
        tensor([[1, 1, 1],
                [2, 2, 2]])
    """
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if len(tensors) == 1 and not isinstance(tensors[0], Tensor):
        tensors = tuple(tensors[0])
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
    take,
    take_along_dim,
    repeat_interleave,
    index_put,
    rot90,
    fliplr,
    flipud,
    movedim,
    broadcast_to,
)
TENSOR_METHODS = (repeat,)
IN_PLACE = (index_put,)
FUNCTIONS = (
    hstack,
    vstack,
    dstack,
    column_stack,
    block_diag,
    cartesian_prod,
    combinations,
    meshgrid,
)
