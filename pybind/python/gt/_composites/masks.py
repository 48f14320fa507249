"""Triangles of matrices, and elements replaced by a mask."""

from __future__ import annotations

import math

from gt import _gt
from gt._composites.selection import nonzero
from gt._gt import Tensor


def _lower_mask(input: Tensor, diagonal: int) -> Tensor:
    """A mask of the elements on or below a diagonal of matrices."""
    if input.ndim < 2:
        raise RuntimeError("tril, triu: input tensor must have at least 2 dimensions")
    return _gt.arange(input.shape[-2]).unsqueeze(1) + diagonal >= _gt.arange(input.shape[-1])


def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangles of matrices: elements above a diagonal become zero.

    Args:
        input: A matrix, or a batch of matrices in the last two axes.
        diagonal: The diagonal above which elements become zero: 0 is the main one, 1 the one above it, -1 the one
            below.

    Example:
        >>> gt.tril(gt.ones(3, 3))
        tensor([[1., 0., 0.],
                [1., 1., 0.],
                [1., 1., 1.]])
    """
    return _gt.where(_lower_mask(input, diagonal), input, _gt.zeros((), dtype=input.dtype))


def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangles of matrices: elements below a diagonal become zero.

    Args:
        input: A matrix, or a batch of matrices in the last two axes.
        diagonal: The diagonal below which elements become zero: 0 is the main one, 1 the one above it, -1 the one
            below.

    Example:
        >>> gt.triu(gt.ones(3, 3), diagonal=1)
        tensor([[0., 1., 1.],
                [0., 0., 1.],
                [0., 0., 0.]])
    """
    return _gt.where(_lower_mask(input, diagonal - 1), _gt.zeros((), dtype=input.dtype), input)


def masked_fill(input: Tensor, mask: Tensor, value: Tensor | complex) -> Tensor:
    """A copy with `value` where the mask is true.

    Args:
        input: A tensor.
        mask: A tensor of bools that broadcasts with `input`.
        value: A number, or a tensor of one element without axes; it is converted to the dtype of `input`.

    Example:
        >>> gt.masked_fill(gt.tensor([1.0, 2.0, 3.0]), gt.tensor([True, False, True]), 0)
        tensor([0., 2., 0.])
    """
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
    """Elements of `input` where `condition` is true, and of `other` elsewhere.

    Args:
        condition: A tensor of bools.
        input: A tensor or a number, taken where the condition is true.
        other: A tensor or a number, taken elsewhere.

    Returns:
        A tensor of the shape that the three broadcast to, with the dtype that `input` and `other` promote to. If only
        `condition` is given: the indices of its true elements, as a tuple of one vector for each axis, like
        `gt.nonzero(condition, as_tuple=True)`.

    Raises:
        RuntimeError: `condition` is not a tensor of bools.

    Example:
        >>> x = gt.tensor([-1.0, 2.0, -3.0])
        >>> gt.where(x > 0, x, 0.0)
        tensor([0., 2., 0.])
        >>> gt.where(x < 0)
        (tensor([0, 2]),)
    """
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise TypeError("where() takes a condition alone, or with both of what to choose from")
    return _gt.where(condition, input, other)


def where_method(self: Tensor, condition: Tensor, other: Tensor | complex) -> Tensor:
    """Elements of this tensor where `condition` is true, and of `other` elsewhere."""
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
