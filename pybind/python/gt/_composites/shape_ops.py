"""Slices, splits, diagonals and other views, and copies with a slice replaced."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from gt import _gt
from gt._composites.common import axis_of
from gt._gt import Tensor
from gt._layouts import contiguous_format, preserve_format


def _slice_of(input: Tensor, axis: int, part: int | slice) -> Tensor:
    """`input[:, ..., part]`, with `part` as the index of an axis."""
    return input[(slice(None),) * axis + (part,)]


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """A view of the slice at one index of an axis, without that axis.

    Args:
        input: A tensor.
        dim: The axis.
        index: The index; negative ones count from the end.

    Example:
        >>> gt.select(gt.tensor([[1, 2], [3, 4]]), 1, 0)
        tensor([1, 3])
    """
    axis = _axis_of_nonscalar("select", input, dim)
    size = input.shape[axis]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {dim}"
        )
    return _slice_of(input, axis, index)


def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """A view with one axis split into several.

    Args:
        input: A tensor.
        dim: The axis.
        sizes: The sizes of the new axes, whose product is the old size. One may be -1.

    Example:
        >>> gt.unflatten(gt.zeros(3, 8), 1, (2, -1)).shape
        gt.Size([3, 2, 4])
    """
    axis = _axis_of_nonscalar("unflatten", input, dim)
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    size, known = input.shape[axis], math.prod(part for part in sizes if part != -1)
    complete = [size // known if part == -1 and known else part for part in sizes]
    if math.prod(complete) != size or list(sizes).count(-1) > 1:
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({size}) in the "
            "input tensor"
        )
    return input.view([*input.shape[:axis], *complete, *input.shape[axis + 1 :]])


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view of sliding windows along an axis; the elements of a window are in a new last axis.

    Args:
        input: A tensor.
        dimension: The axis.
        size: The length of a window.
        step: The distance between the starts of neighbouring windows.

    Example:
        >>> gt.arange(5).unfold(0, 2, 1)
        tensor([[0, 1],
                [1, 2],
                [2, 3],
                [3, 4]])
    """
    axis = axis_of(input, dimension)
    extent = input.shape[axis] if input.ndim else 1
    if size > extent:
        raise RuntimeError(
            f"maximum size for tensor at dimension {dimension} is {extent} but size is {size}",
        )
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if input.ndim == 0:
        return input.reshape(1)[:size]
    count = (extent - size) // step + 1
    if size <= step and count * step <= extent:
        blocks = unflatten(input.narrow(axis, 0, count * step), axis, (count, step))
        return blocks.narrow(axis + 1, 0, size).movedim(axis + 1, -1)
    offsets = (_gt.arange(count) * step).unsqueeze(1) + _gt.arange(size)
    shape, strides = list(input.shape), list(input.stride())
    index = offsets.reshape([-1] + [1] * (input.ndim - axis - 1)).expand([*shape[:axis], -1, *shape[axis + 1 :]])
    shape[axis : axis + 1] = [count, size]
    strides[axis : axis + 1] = [strides[axis] * step, strides[axis]]
    return _gt.gathered_view(input, axis, index, shape, strides).movedim(axis + 1, -1)


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A view of a contiguous tensor with given shape, strides and offset.

    Args:
        input: A contiguous tensor.
        size: The shape of the view.
        stride: The distance in memory between neighbours along each axis, in elements.
        storage_offset: The index of the first element in the flattened tensor.

    Raises:
        NotImplementedError: The tensor has gaps between its elements, or it is a view and `storage_offset` is given,
            which counts from the start of memory that GT does not show.

    Example:
        >>> gt.as_strided(gt.arange(6), (2, 2), (1, 2))
        tensor([[0, 2],
                [1, 3]])
    """
    if storage_offset is not None and input._is_view():
        raise NotImplementedError(
            "as_strided: the storage_offset of a view counts from the start of a storage, which GT does not show: "
            "leave it out to count from the view, or call as_strided on the tensor it is a view of"
        )
    if not input.is_contiguous():
        raise NotImplementedError("as_strided is there for contiguous tensors: call contiguous() first")
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    offsets = _gt.full([1] * len(size), storage_offset or 0, dtype=_gt.int64)
    last = storage_offset or 0
    for axis, (extent, distance) in enumerate(zip(size, stride, strict=True)):
        if distance < 0:
            raise RuntimeError(
                f"as_strided: Negative strides are not supported at the moment, got strides: {list(stride)}"
            )
        shape = [1] * len(size)
        shape[axis] = extent
        offsets = offsets + (_gt.arange(extent) * distance).reshape(shape)
        last += max(extent - 1, 0) * distance
    if last >= input.numel() and offsets.numel():
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {storage_offset or 0} are out of "
            f"bounds for {input.numel()} elements"
        )
    return _gt.gathered_view(input.reshape(-1), 0, offsets.reshape(-1), size, stride)


def tensor_split(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of the tensor cut along an axis into a number of parts, or at given indices.

    Args:
        input: A tensor.
        indices_or_sections: The number of parts, of which the first are longer by one if the size is not divisible; or
            the indices at which to cut.
        dim: The axis.

    Example:
        >>> gt.tensor_split(gt.arange(5), 2)
        (tensor([0, 1, 2]), tensor([3, 4]))
        >>> gt.tensor_split(gt.arange(5), (1, 3))
        (tensor([0]), tensor([1, 2]), tensor([3, 4]))
    """
    if input.ndim == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    axis = axis_of(input, dim)
    size = input.shape[axis]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        if indices_or_sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {indices_or_sections}")
        short, longer = divmod(size, indices_or_sections)
        cuts = [i * short + min(i, longer) for i in range(1, indices_or_sections)]
    else:
        cuts = list(indices_or_sections)
    ends = zip([0, *cuts], [*cuts, None], strict=True)
    return tuple(_slice_of(input, axis, slice(start, end)) for start, end in ends)


def _split_evenly(name: str, input: Tensor, parts: int | Sequence[int], axis: int) -> tuple[Tensor, ...]:
    if isinstance(parts, int) and (parts <= 0 or input.shape[axis] % parts):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {axis}, but the size of the dimension "
            f"{input.shape[axis]} is not divisible by the split_size {parts}!"
        )
    return tensor_split(input, parts, axis)


def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` into equal parts along axis 1, or along axis 0 of a vector.

    Example:
        >>> gt.hsplit(gt.arange(4).reshape(1, 4), 2)
        (tensor([[0, 1]]), tensor([[2, 3]]))
    """
    if input.ndim < 1:
        raise RuntimeError(
            "torch.hsplit requires a tensor with at least 1 dimension, but got a tensor with 0 dimensions!"
        )
    return _split_evenly("hsplit", input, indices_or_sections, 0 if input.ndim == 1 else 1)


def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` into equal parts along axis 0.

    Example:
        >>> gt.vsplit(gt.arange(4).reshape(2, 2), 2)
        (tensor([[0, 1]]), tensor([[2, 3]]))
    """
    if input.ndim < 2:
        raise RuntimeError(
            f"torch.vsplit requires a tensor with at least 2 dimension, but got a tensor with {input.ndim} dimensions!"
        )
    return _split_evenly("vsplit", input, indices_or_sections, 0)


def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` into equal parts along axis 2."""
    if input.ndim < 3:
        raise RuntimeError(
            f"torch.dsplit requires a tensor with at least 3 dimension, but got a tensor with {input.ndim} dimensions!"
        )
    return _split_evenly("dsplit", input, indices_or_sections, 2)


def _map_tensors(
    tensors: tuple[Tensor | Sequence[Tensor], ...], shaped: Callable[[Tensor], Tensor]
) -> Tensor | tuple[Tensor, ...]:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return shaped(tensors[0])
    many = tensors[0] if len(tensors) == 1 else tensors
    return tuple(shaped(t) for t in many)


def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Views with at least one axis, of one tensor or of several.

    Example:
        >>> gt.atleast_1d(gt.tensor(1.0)).shape
        gt.Size([1])
    """
    return _map_tensors(tensors, lambda t: t.reshape(1) if t.ndim == 0 else t)


def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Views with at least two axes; vectors become rows.

    Example:
        >>> gt.atleast_2d(gt.tensor([1.0, 2.0])).shape
        gt.Size([1, 2])
    """
    return _map_tensors(tensors, lambda t: t.reshape(1, -1) if t.ndim < 2 else t)


def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """Views with at least three axes; matrices get a new last axis.

    Example:
        >>> gt.atleast_3d(gt.zeros(2, 3)).shape
        gt.Size([2, 3, 1])
    """
    return _map_tensors(tensors, lambda t: t.reshape(1, -1, 1) if t.ndim < 2 else t.unsqueeze(-1) if t.ndim == 2 else t)


def resize_(self: Tensor, *sizes: int | Sequence[int], memory_format: Any = None) -> Tensor:
    """Gives the tensor another shape in place, with its first elements in row-major order.

    Raises:
        NotImplementedError: The shape has more elements than the tensor: there is no memory behind them.
    """
    if memory_format not in (None, contiguous_format, preserve_format):
        raise NotImplementedError(f"resize_() to {memory_format} is not there: use gt.empty_strided")
    shape = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    count = math.prod(shape)
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    if shape == list(self.shape):
        return self
    if self.numel() == 0:
        self.data = self.new_empty(shape)
        return self
    if count > self.numel():
        raise NotImplementedError(
            f"resize_({shape}): there are only {self.numel()} elements, and GT shows no memory that follows them. Use "
            "new_empty() for another tensor"
        )
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return self._become(as_strided(self, shape, strides))


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor."""
    return resize_(self, the_template.shape, memory_format=memory_format)


def resize(self: Tensor, *sizes: int | Sequence[int]) -> Tensor:
    """`reshape` under a name that PyTorch deprecates."""
    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    shape = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else list(sizes)
    if math.prod(shape) != self.numel():
        raise RuntimeError(
            f"requested resize to {'x'.join(map(str, shape))} ({math.prod(shape)} elements in total), but the given "
            f"tensor has a size of {'x'.join(map(str, self.shape))} ({self.numel()} elements). autograd's resize can "
            "only change the shape of a given tensor, while preserving the number of elements. "
        )
    return self.reshape(shape)


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """`resize` to the shape of another tensor."""
    return resize(self, tensor.shape)


def set_(self: Tensor, source: Tensor | None = None, *args: Any) -> NoReturn:
    """Sharing another tensor's memory, which GT does not support.

    Raises:
        NotImplementedError: Always; the message names what to use instead.
    """
    raise NotImplementedError(
        "set_(): GT shows no memory to share. Use x.data = y to give a tensor another's elements, or a view"
    )


# Diagonals --------------------------------------------------------------------------------------------------------


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices whose diagonals are the last axis, with zeros elsewhere.

    Args:
        input: A tensor whose last axis has the diagonals.
        offset: The diagonal: 0 is the main one, positive ones are above it.
        dim1: The axis of the rows in the result.
        dim2: The axis of the columns in the result.

    Example:
        >>> gt.diag_embed(gt.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]])
    """
    size = input.shape[-1] + abs(offset) if input.ndim else 0
    first, second = (_axis(dim, input.ndim + 1) for dim in (dim1, dim2))
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    shape = list(input.shape[:-1])
    for axis in sorted((first, second)):
        shape.insert(axis, size)
    matrices = _gt.zeros(shape, dtype=input.dtype)
    matrices.diagonal(offset, first, second).copy_(input)
    return matrices


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """The matrix with a vector on its diagonal, or a copy of the diagonal of a matrix.

    Args:
        input: A vector or a matrix.
        diagonal: The diagonal: 0 is the main one, positive ones are above it.

    Example:
        >>> gt.diag(gt.tensor([1, 2]))
        tensor([[1, 0],
                [0, 2]])
        >>> gt.diag(gt.tensor([[1, 2], [3, 4]]))
        tensor([1, 4])
    """
    if input.ndim == 1:
        return diag_embed(input, diagonal)
    if input.ndim == 2:
        return input.diagonal(diagonal).clone()
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {input.ndim}D")


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The matrix with the flattened elements on its diagonal.

    Example:
        >>> gt.diagflat(gt.tensor([[1, 2]]))
        tensor([[1, 0],
                [0, 2]])
    """
    return diag_embed(input.reshape(-1), offset)


def fill_diagonal_(self: Tensor, fill_value: Tensor | complex, wrap: bool = False) -> Tensor:
    """Sets the main diagonal to one number.

    Args:
        fill_value: The number.
        wrap: Whether the diagonal starts again below the square part of a tall matrix.

    Raises:
        RuntimeError: There are fewer than two axes, or more of different lengths.

    Example:
        >>> gt.zeros(2, 2).fill_diagonal_(5)
        tensor([[5., 0.],
                [0., 5.]])
    """
    if self.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.ndim > 2 and len(set(self.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    apart = sum(math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim))
    end = self.numel() if wrap or self.ndim > 2 else self.shape[1] * min(self.shape)
    offsets = _gt.arange(self.numel()).reshape(self.shape)
    if not isinstance(fill_value, Tensor) and not self.is_floating_point():
        fill_value = int(fill_value)
    return self.masked_fill_((offsets % apart == 0) & (offsets < end), fill_value)


def trace(input: Tensor) -> Tensor:
    """The sum of the diagonal elements of a matrix.

    Example:
        >>> gt.trace(gt.tensor([[1.0, 2.0], [3.0, 4.0]]))
        tensor(5.)
    """
    if input.ndim != 2:
        raise RuntimeError("trace: expected a matrix")
    return input.diagonal().sum()


# Copies with a part replaced --------------------------------------------------------------------------------------


def _replaced(copy: Tensor, part: Tensor, src: Tensor) -> Tensor:
    if part.shape != src.shape:
        raise RuntimeError(
            f"expected src to have a size equal to the slice of self. src size = {list(src.shape)}, "
            f"slice size = {list(part.shape)}"
        )
    part.copy_(src)
    return copy


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy with the elements of a diagonal replaced by `src`.

    Example:
        >>> gt.diagonal_scatter(gt.zeros(2, 2), gt.tensor([1.0, 2.0]))
        tensor([[1., 0.],
                [0., 2.]])
    """
    copy = input.clone()
    return _replaced(copy, copy.diagonal(offset, dim1, dim2), src)


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with the slice at one index of an axis replaced by `src`.

    Example:
        >>> gt.select_scatter(gt.zeros(2, 2), gt.tensor([1.0, 2.0]), 0, 1)
        tensor([[0., 0.],
                [1., 2.]])
    """
    copy = input.clone()
    return _replaced(copy, select(copy, dim, index), src)


def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy with a range of an axis, `start:end:step`, replaced by `src`.

    Example:
        >>> gt.slice_scatter(gt.zeros(4), gt.ones(2), start=1, end=3)
        tensor([0., 1., 1., 0.])
    """
    copy = input.clone()
    return _replaced(copy, _slice_of(copy, axis_of(copy, dim), slice(start, end, step)), src)


def as_strided_scatter(
    input: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """A copy with the elements of the view `as_strided(size, stride, storage_offset)` replaced by `src`."""
    copy = input.clone()
    return _replaced(copy, as_strided(copy, size, stride, storage_offset), src)


def _axis(dim: int, rank: int) -> int:
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return dim % rank


def _axis_of_nonscalar(name: str, input: Tensor, dim: int) -> int:
    if input.ndim == 0:
        raise IndexError(f"{name}() cannot be applied to a 0-dim tensor.")
    return _axis(dim, input.ndim)


METHODS = (
    select,
    unflatten,
    as_strided,
    tensor_split,
    hsplit,
    vsplit,
    dsplit,
    diag_embed,
    diag,
    diagflat,
    trace,
    diagonal_scatter,
    select_scatter,
    slice_scatter,
    as_strided_scatter,
)
TENSOR_METHODS = (unfold, fill_diagonal_, resize, resize_as, resize_, resize_as_, set_)
IN_PLACE = ()
FUNCTIONS = (
    atleast_1d,
    atleast_2d,
    atleast_3d,
)
