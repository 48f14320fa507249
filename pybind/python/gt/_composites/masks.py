"""Elements left out or filled in by a mask."""

from __future__ import annotations

import math

from gt import _gt
from gt._composites.selection import nonzero
from gt._gt import Tensor


def _below(input: Tensor, diagonal: int) -> Tensor:
    """Where a matrix is on or below a diagonal."""
    if input.ndim < 2:
        raise RuntimeError("tril, triu: input tensor must have at least 2 dimensions")
    return _gt.arange(input.shape[-2]).unsqueeze(1) + diagonal >= _gt.arange(input.shape[-1])


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """Matrices, the last two axes, with zeros above a diagonal; 1 is the one above the main one."""
    return _gt.where(_below(input, diagonal), input, _gt.zeros((), dtype=input.dtype))


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """Matrices, the last two axes, with zeros below a diagonal; 1 is the one above the main one."""
    return _gt.where(_below(input, diagonal - 1), _gt.zeros((), dtype=input.dtype), input)


def masked_fill(input: Tensor, mask: Tensor, value: Tensor | complex) -> Tensor:
    """`value` where the bool `mask` is true, `input` elsewhere, in the dtype of `input`."""
    if mask.dtype != _gt.bool:
        raise RuntimeError(f"masked_fill only supports boolean masks, but got mask with dtype {mask.dtype}")
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                "masked_fill only supports a 0-dimensional value tensor, but got tensor with "
                f"{value.ndim} dimension(s)."
            )
        filling = value.to(input.dtype)
    else:
        if isinstance(value, float) and not input.is_floating_point():
            if not math.isfinite(value):
                raise RuntimeError(f"value cannot be converted to type {input.dtype} without overflow")
            value = int(value)
        filling = _gt.full((), value, dtype=input.dtype)
    return _gt.where(mask, filling, input)


def where(
    condition: Tensor, input: Tensor | complex | None = None, other: Tensor | complex | None = None
) -> Tensor | tuple[Tensor, ...]:
    """`input` where the bool `condition` is true, `other` elsewhere; alone, where that is: a vector for each axis."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError("where() takes a condition alone, or with both of what to choose from")
    return _gt.where(condition, input, other)


def where_method(self: Tensor, condition: Tensor, other: Tensor | complex) -> Tensor:
    """The elements where `condition` is true, those of `other` elsewhere."""
    return _gt.where(condition, self, other)


where_method.__name__ = "where"

METHODS = (
    tril,
    triu,
    masked_fill,
)
TENSOR_METHODS = (where_method,)
IN_PLACE = (
    tril,
    triu,
    masked_fill,
)
FUNCTIONS = (where,)
