"""Types that tensors' methods return: `Size`, named tuples, exceptions."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import TYPE_CHECKING, Any, NamedTuple

from gt._layouts import package

if TYPE_CHECKING:
    from gt._gt import Tensor


class Size(tuple):
    """The shape of a tensor: a tuple of the sizes of its axes.

    Example:
        >>> gt.Size([2, 3]).numel()
        6
    """

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        return math.prod(self)

    def __getitem__(self, index: Any) -> Any:
        part = tuple.__getitem__(self, index)
        return Size(part) if isinstance(index, slice) else part

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: Any) -> Size:
        return Size(tuple(other) + tuple(self))

    def __mul__(self, times: Any) -> Size:
        return Size(tuple.__mul__(self, times))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        return f"{package()}.Size({list(self)})"


class OutOfRangeError(IndexError, RuntimeError):
    """An index that execution found out of range: an IndexError and a RuntimeError, as PyTorch raises either."""


class LinAlgError(RuntimeError):
    """A matrix that an algorithm of linear algebra cannot handle, as a singular one."""

    __module__ = "gt.linalg"


class ValuesIndices(NamedTuple):
    """Elements along an axis, and their indices."""

    values: Tensor
    indices: Tensor


def named_results(function: str, names: list[str]) -> type:
    """The class of a function's results, a named tuple; those whose results have the same names share its base.

    Args:
        function: PyTorch's name of the class, as `linalg_qr`.
        names: The names of the results.
    """
    made = RESULTS.get(function)
    if made is None:
        base = next((known for known in NAMED if list(known._fields) == names), None)
        if base is None:
            base = namedtuple(function, names)
            NAMED.append(base)
        own = {"__slots__": (), "__module__": "gt.return_types", "__repr__": _text, "__reduce__": _reduced}
        made = RESULTS[function] = type(function, (base,), own)
    return made


def _text(results: Any) -> str:
    """A line for each result, as PyTorch prints them."""
    lines = ",\n".join(f"{name}={value!r}" for name, value in zip(results._fields, results, strict=True))
    return f"{package()}.return_types.{type(results).__name__}(\n{lines})"


def _reduced(results: Any) -> tuple[Any, ...]:
    return _again, (type(results).__name__, list(results._fields), tuple(results))


def _again(function: str, names: list[str], results: tuple[Any, ...]) -> Any:
    """The results of a function, from a pickle."""
    return named_results(function, names)(*results)


class MinMax(NamedTuple):
    """The smallest and the largest element."""

    min: Tensor
    max: Tensor


class Histogram(NamedTuple):
    """The counts of a histogram, and the edges of its bins: of several axes, a tuple."""

    hist: Tensor
    bin_edges: Any


class MantissaExponent(NamedTuple):
    """Mantissas of absolute value from 1/2 to 1, and exponents to base 2."""

    mantissa: Tensor
    exponent: Tensor


NAMED: list[Any] = [ValuesIndices, MinMax, Histogram, MantissaExponent]
# The class of each function's results, by PyTorch's name.
RESULTS: dict[str, Any] = {}
