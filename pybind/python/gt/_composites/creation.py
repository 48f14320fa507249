"""Creation functions composed of others, and the `new_*` methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _gt
from gt._gt import Tensor
from gt._types import Size


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """A tensor of a shape with given strides, to be written to later."""
    last = sum((extent - 1) * distance for extent, distance in zip(size, stride, strict=False))
    memory = _gt.empty(last + 1 if all(size) else 0, **options)
    return memory.detach().as_strided(size, stride).requires_grad_(memory.requires_grad)


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """A tensor to be written to later, whose axes are in the order `physical_layout` in memory."""
    if len(size) != len(physical_layout):
        raise RuntimeError(
            f"Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = "
            f"{len(size)} is not equal to len(physical_layout) = {len(physical_layout)}"
        )
    for axis in physical_layout:
        if not 0 <= axis < len(size):
            raise RuntimeError(f"Dimension out of range (expected to be between 0 and {len(size) - 1}, but got {axis})")
        if list(physical_layout).count(axis) > 1:
            raise RuntimeError("Duplicate dim not allowed")
    order = [list(physical_layout).index(axis) for axis, _ in enumerate(size)]
    memory = _gt.empty([size[axis] for axis in physical_layout], **options)
    return memory.detach().permute(order).requires_grad_(memory.requires_grad)


def _like(t: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a creation function, with the dtype of `t` unless one is given."""
    return {**options, "dtype": options.get("dtype") or t.dtype}


def new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
    """`gt.tensor` with the dtype of this tensor unless one is given."""
    return _gt.tensor(data, **_like(self, options))


def new_empty_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """`gt.empty_strided` with the dtype of this tensor unless one is given."""
    return empty_strided(size, stride, **_like(self, options))


def new(self: Tensor, *data: Any, device: Any = None) -> Tensor:
    """A tensor with the dtype of this one, from sizes (`new_empty`) or from data (`new_tensor`)."""
    sizes = len(data) != 1 or isinstance(data[0], int | Size)
    made = Tensor(*data, device=device) if sizes else _gt.tensor(data[0], device=device)
    return made.to(self.dtype)


METHODS = ()
TENSOR_METHODS = (new, new_tensor, new_empty_strided)
IN_PLACE = ()
FUNCTIONS = (empty_strided, empty_permuted)
