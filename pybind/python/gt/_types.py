"""Small types that tensors answer with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from gt._gt import Tensor


class Size(tuple):
    """The sizes of a tensor's dimensions: a tuple of ints."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements of a tensor of this size."""
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
        return f"gt.Size({list(self)})"


class OutOfRangeError(IndexError, RuntimeError):
    """An index that only execution found to be out of range: PyTorch raises one or the other, by the operation."""


class ValuesIndices(NamedTuple):
    """Extremes along an axis, and where they are."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The smallest and the largest element."""

    min: Tensor
    max: Tensor


class Histogram(NamedTuple):
    """Counts of elements, and the edges of the bins they are in."""

    hist: Tensor
    bin_edges: Tensor


class HistogramOfPoints(NamedTuple):
    """Counts of points in a grid, and the edges of its bins along each axis."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


class QR(NamedTuple):
    """Orthonormal columns, and an upper triangle."""

    Q: Tensor
    R: Tensor


class SignLogAbsDet(NamedTuple):
    """The sign of a determinant, and the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class MantissaExponent(NamedTuple):
    """Numbers from 1/2 up to 1, and powers of 2."""

    mantissa: Tensor
    exponent: Tensor
