"""Tensors that get another shape in place, or another tensor's memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NoReturn

from gt._gt import Tensor
from gt._layouts import contiguous_format, preserve_format


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
    return self._become(self.as_strided(shape, strides))


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the shape of another tensor."""
    return resize_(self, the_template.shape, memory_format=memory_format)


def set_(self: Tensor, source: Tensor | None = None, *args: Any) -> NoReturn:
    """Sharing another tensor's memory, which GT does not support.

    Raises:
        NotImplementedError: Always; the message names what to use instead.
    """
    raise NotImplementedError(
        "set_(): GT shows no memory to share. Use x.data = y to give a tensor another's elements, or a view"
    )


METHODS = ()
TENSOR_METHODS = (resize_, resize_as_, set_)
IN_PLACE = ()
FUNCTIONS = ()
