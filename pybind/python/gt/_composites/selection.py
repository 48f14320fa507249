"""Elements chosen by a mask or by positions: how many there are is known only when they have been looked at."""

from __future__ import annotations

from gt import _gt
from gt._gt import Tensor
from gt._types import Size


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The positions of the elements that are not 0, a row each; `as_tuple`, a vector for each axis.

    Waits for the elements to be counted.
    """
    if as_tuple and input.ndim == 0:
        input = input.unsqueeze(0)
    mask = input if input.dtype == _gt.bool else input != 0
    found = _gt.positions(mask, int(mask.sum().item()))
    return found.t().unbind(0) if as_tuple else found


def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first `size` positions that `nonzero` gives; where there are fewer, rows of one number follow."""
    found = nonzero(input)[:size]
    filling = _gt.full((size - len(found), input.ndim), fill_value, dtype=_gt.int64)
    return _gt.cat([found, filling], 0)


def argwhere(input: Tensor) -> Tensor:
    """`nonzero`."""
    return nonzero(input)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the bool `mask` is true, as a vector; both broadcast. Waits for them to be counted."""
    if mask.dtype != _gt.bool:
        raise RuntimeError("masked_select: expected BoolTensor for mask")
    input, mask = broadcast_tensors(input, mask)
    return input.flatten().gather(0, nonzero(mask.flatten()).squeeze(1))


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors in the shape they broadcast to."""
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return tuple(t.expand(shape) for t in tensors)


def broadcast_shapes(*shapes: tuple[int, ...] | int) -> Size:
    """The shape that tensors of these shapes broadcast to."""
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


def from_the_front(index: Tensor, size: int) -> Tensor:
    """Positions of which the negative ones count from the end."""
    if index.dtype != _gt.int64:
        raise RuntimeError(f"expected an index of dtype int64, but got {index.dtype}")
    # What is out of range stays as it is, for the op that finds it to name it.
    return _gt.where((index < 0) & (index >= -size), index + size, index)


def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """`source`'s elements at positions of the flattened tensor, or added there."""
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
    at = from_the_front(index.flatten(), input.numel())
    flat = input.flatten()
    if accumulate and input.dtype == _gt.bool:
        row = "scatter_amax"
    return _gt.along_axis(row, 0, flat, at, source.flatten()).reshape(input.shape)


def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`source`'s elements in order where the bool `mask` is true, `input` elsewhere."""
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
