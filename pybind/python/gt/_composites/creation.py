"""Creation functions composed of others, and the `new_*` methods."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from gt import _gt
from gt._composites.common import check_rank
from gt._forms import write
from gt._gt import Tensor
from gt._types import Size


def logspace(
    start: float, end: float, steps: int, base: float = 10.0, *, out: Tensor | None = None, **options: Any
) -> Tensor:
    """`steps` numbers from `base ** start` to `base ** end` whose logarithms are evenly spaced.

    Args:
        start: The exponent of the first number.
        end: The exponent of the last.
        steps: The number of elements.
        base: The base of the powers.
        out: The tensor to write the result to.
        options: `dtype`, `device` and `requires_grad`, as for `gt.zeros`.

    Example:
        >>> gt.logspace(0, 3, 4)
        tensor([   1.,   10.,  100., 1000.])
    """
    dtype = options.pop("dtype", None) or (_gt.get_default_dtype() if out is None else out.dtype)
    # Integer dtypes truncate the exponents, as in PyTorch.
    ends = (start, end) if dtype.is_floating_point else (int(start), int(end))
    exponents = _gt.linspace(*map(float, ends), steps, dtype=_gt.float64)
    powers = _gt.full((), base, dtype=_gt.float64) ** exponents
    made = _gt.tensor(powers, dtype=dtype, **options)
    return made if out is None else write("logspace", out, made)


def range(start: float, end: float, step: float = 1, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """Numbers from `start` to `end`, both included; deprecated in favour of `arange`, as in PyTorch."""
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
        UserWarning,
        stacklevel=2,
    )
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    dtype = options.pop("dtype", None) or (_gt.get_default_dtype() if out is None else out.dtype)
    if not dtype.is_floating_point:
        start, step = int(start), int(step)
    steps = _gt.arange(math.floor((end - start) / step) + 1)
    made = _gt.tensor((steps.double() if dtype.is_floating_point else steps) * step + start, dtype=dtype, **options)
    return made if out is None else write("range", out, made)


def tril_indices(row: int, col: int, offset: int = 0, **options: Any) -> Tensor:
    """The indices of the lower triangle of a matrix: row indices and column indices.

    Args:
        row: The number of rows.
        col: The number of columns.
        offset: The diagonal up to which elements belong to the triangle; 0 is the main one.
        options: `dtype` and `device`, as for `gt.tensor`.

    Example:
        >>> gt.tril_indices(3, 3)
        tensor([[0, 1, 1, 2, 2, 2],
                [0, 0, 1, 0, 1, 2]])
    """
    return _gt.tensor(np.stack(np.tril_indices(row, offset, col)), **options)


def triu_indices(row: int, col: int, offset: int = 0, **options: Any) -> Tensor:
    """The indices of the upper triangle of a matrix: row indices and column indices.

    Args:
        row: The number of rows.
        col: The number of columns.
        offset: The diagonal from which elements belong to the triangle; 0 is the main one.
        options: `dtype` and `device`, as for `gt.tensor`.

    Example:
        >>> gt.triu_indices(2, 3, 1)
        tensor([[0, 0, 1],
                [1, 2, 2]])
    """
    return _gt.tensor(np.stack(np.triu_indices(row, offset, col)), **options)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 (PyTorch's name)
    """The Vandermonde matrix of a vector: a column for each power of its elements.

    Args:
        x: A vector.
        N: The number of columns; the length of `x` if not given.
        increasing: Whether powers increase from left to right.

    Example:
        >>> gt.vander(gt.tensor([1, 2, 3]))
        tensor([[1, 1, 1],
                [4, 2, 1],
                [9, 3, 1]])
    """
    check_rank("vander", x=(x, 1))
    count = x.numel() if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    powers = _gt.arange(count) if increasing else _gt.arange(count - 1, -1, -1) if count else _gt.arange(0)
    return x.unsqueeze(1) ** powers


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


def randint_like(input: Tensor, *bounds: int, low: int = 0, high: int | None = None, **options: Any) -> Tensor:
    """Random integers, uniform over `low <= x < high`, with the shape and, unless given, the dtype of another tensor.

    Example:
        >>> gt.randint_like(gt.zeros(2, 3), 10).shape
        gt.Size([2, 3])
    """
    options.pop("memory_format", None)
    if len(bounds) > 2 or (high is None) != bool(bounds):
        raise TypeError("randint_like() takes one or two bounds")
    low, high = (low, high) if not bounds else (low, *bounds) if len(bounds) == 1 else bounds
    return _gt.randint(low, high, tuple(input.shape), **_like(input, options))


def _like(t: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a creation function, with the dtype of `t` unless one is given."""
    return {**options, "dtype": options.get("dtype") or t.dtype}


def new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
    """`gt.tensor` with the dtype of this tensor unless one is given."""
    return _gt.tensor(data, **_like(self, options))


def new_empty(self: Tensor, *size: int | Sequence[int], **options: Any) -> Tensor:
    """`gt.empty` with the dtype of this tensor unless one is given."""
    return _gt.empty(*size, **_like(self, options))


def new_empty_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """`gt.empty_strided` with the dtype of this tensor unless one is given."""
    return empty_strided(size, stride, **_like(self, options))


def new_zeros(self: Tensor, *size: int | Sequence[int], **options: Any) -> Tensor:
    """`gt.zeros` with the dtype of this tensor unless one is given.

    Example:
        >>> gt.ones(1, dtype=gt.int64).new_zeros(2)
        tensor([0, 0])
    """
    return _gt.zeros(*size, **_like(self, options))


def new_ones(self: Tensor, *size: int | Sequence[int], **options: Any) -> Tensor:
    """`gt.ones` with the dtype of this tensor unless one is given."""
    return _gt.ones(*size, **_like(self, options))


def new_full(self: Tensor, size: Sequence[int], fill_value: complex, **options: Any) -> Tensor:
    """`gt.full` with the dtype of this tensor unless one is given."""
    return _gt.full(size, fill_value, **_like(self, options))


def new(self: Tensor, *data: Any, device: Any = None) -> Tensor:
    """A tensor with the dtype of this one, from sizes (`new_empty`) or from data (`new_tensor`)."""
    sizes = len(data) != 1 or isinstance(data[0], int | Size)
    made = Tensor(*data, device=device) if sizes else _gt.tensor(data[0], device=device)
    return made.to(self.dtype)


METHODS = ()
TENSOR_METHODS = (new, new_tensor, new_empty, new_empty_strided, new_zeros, new_ones, new_full)
IN_PLACE = ()
FUNCTIONS = (logspace, range, empty_strided, empty_permuted, randint_like, tril_indices, triu_indices, vander)
