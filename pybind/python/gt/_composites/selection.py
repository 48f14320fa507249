"""Elements selected by a mask or by indices. Results of data-dependent shape wait for their elements to be counted."""

from __future__ import annotations

from gt import _gt
from gt._gt import Tensor
from gt._types import Size


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The indices of the nonzero elements.

    Waits for the elements: their number decides the shape of the result.

    Args:
        input: A tensor.
        as_tuple: Whether the result is a tuple with a vector for each axis.

    Returns:
        A matrix with a row of indices for each nonzero element.

    Example:
        >>> gt.nonzero(gt.tensor([[0, 1], [2, 0]]))
        tensor([[0, 1],
                [1, 0]])
    """
    if as_tuple and input.ndim == 0:
        input = input.unsqueeze(0)
    mask = input if input.dtype == _gt.bool else input != 0
    found = _gt.positions(mask, int(mask.sum().item()))
    return found.t().unbind(0) if as_tuple else found


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The indices of the first `size` nonzero elements, a row each.

    Args:
        input: A tensor.
        size: The number of rows.
        fill_value: The number that fills rows for which there is no element.

    Example:
        >>> gt.nonzero_static(gt.tensor([0, 3, 4]), size=3)
        tensor([[ 1],
                [ 2],
                [-1]])
    """
    found = nonzero(input)[:size]
    filling = _gt.full((size - len(found), input.ndim), fill_value, dtype=_gt.int64)
    return _gt.cat([found, filling], 0)


def argwhere(input: Tensor) -> Tensor:
    """The indices of the nonzero elements, a row each: `nonzero` under NumPy's name.

    Example:
        >>> gt.argwhere(gt.tensor([[0, 1], [1, 0]]))
        tensor([[0, 1],
                [1, 0]])
    """
    return nonzero(input)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where a mask is true, as a vector.

    Waits for the mask: its number of true elements decides the length of the result.

    Args:
        input: A tensor.
        mask: A tensor of bools that broadcasts with `input`.

    Example:
        >>> x = gt.tensor([1.0, -2.0, 3.0])
        >>> gt.masked_select(x, x > 0)
        tensor([1., 3.])
    """
    if mask.dtype != _gt.bool:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    input, mask = broadcast_tensors(input, mask)
    return input.flatten().gather(0, nonzero(mask.flatten()).squeeze(1))


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Views of tensors, broadcast to a common shape.

    Example:
        >>> a, b = gt.broadcast_tensors(gt.zeros(3, 1), gt.zeros(2))
        >>> a.shape, b.shape
        (gt.Size([3, 2]), gt.Size([3, 2]))
    """
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t.expand(shape) for t in tensors)


def broadcast_shapes(*shapes: tuple[int, ...] | int) -> Size:
    """The shape to which tensors of these shapes broadcast.

    Raises:
        RuntimeError: They do not broadcast.

    Example:
        >>> gt.broadcast_shapes((3, 1), (2,))
        gt.Size([3, 2])
    """
    sizes = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    rank = max(map(len, sizes), default=0)
    result = [1] * rank
    for own in sizes:
        for axis, size in enumerate(own, rank - len(own)):
            if size not in (1, result[axis]) and result[axis] != 1:
                raise RuntimeError(
                    "Shape mismatch: objects cannot be broadcast to a single shape: "
                    + ", ".join(str(list(own)) for own in sizes)
                )
            if size != 1:
                result[axis] = size
    return Size(result)


def nonnegative_index(index: Tensor, size: int) -> Tensor:
    """Indices with `size` added to the negative ones."""
    if index.dtype != _gt.int64:
        raise RuntimeError(f"expected an index of dtype int64, but got {index.dtype}")
    # An index out of range stays as it is: the op that finds it raises the error.
    return _gt.where((index < 0) & (index >= -size), index + size, index)


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with elements of `source` written at indices of the flattened tensor, or added there.

    Args:
        input: A tensor.
        index: A tensor of int64.
        source: As many elements, of the dtype of `input`.
        accumulate: Whether elements are added.

    Example:
        >>> gt.put(gt.zeros(2, 2), gt.tensor([0, 3]), gt.tensor([1.0, 2.0]))
        tensor([[1., 0.],
                [0., 2.]])
    """
    if index.numel() != source.numel():
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got source.numel() = "
            f"{source.numel()}, index.numel() = {index.numel()}"
        )
    if source.dtype != input.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = {input.dtype} "
            f"and source.dtype = {source.dtype}"
        )
    row = "scatter_add" if accumulate else "scatter"
    at = nonnegative_index(index.flatten(), input.numel())
    flat = input.flatten()
    if accumulate and input.dtype == _gt.bool:
        row = "scatter_amax"
    return _gt.along_axis(row, 0, flat, at, source.flatten()).reshape(input.shape)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy in which the elements of `source`, in order, replace those where a mask is true.

    Example:
        >>> gt.masked_scatter(gt.zeros(3), gt.tensor([True, False, True]), gt.tensor([1.0, 2.0]))
        tensor([1., 0., 2.])
    """
    if mask.dtype != _gt.bool:
        raise RuntimeError("masked_scatter_ only supports boolean masks, but got mask with dtype " + str(mask.dtype))
    if source.dtype != input.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {input.dtype} and {source.dtype}"
        )
    input, mask = broadcast_tensors(input, mask)
    at = nonzero(mask.flatten()).squeeze(1)
    if source.numel() < at.numel():
        raise RuntimeError(
            "masked_scatter: expected the number of elements in source >= number of ones in mask, but got "
            f"{source.numel()} and {at.numel()}"
        )
    chosen = source.flatten()[: at.numel()]
    return _gt.along_axis("scatter", 0, input.flatten(), at, chosen).reshape(input.shape)


METHODS = (
    nonzero,
    nonzero_static,
    argwhere,
    masked_select,
    put,
    masked_scatter,
)
IN_PLACE = (
    put,
    masked_scatter,
)
FUNCTIONS = (
    broadcast_tensors,
    broadcast_shapes,
)
