"""Elementwise, searching, sorting, indexing and set functions of the standard."""

from __future__ import annotations

from typing import NamedTuple

from gt import _core as gt
from gt._gt import Tensor

__all__ = [
    "argsort", "bitwise_invert", "clip", "conj", "imag", "isin", "nonzero", "real", "round", "searchsorted", "sign",
    "sort", "take", "take_along_axis", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip


def bitwise_invert(x: Tensor, /) -> Tensor:
    """The complement of every bit; of bools, logical not."""
    return ~x


def clip(x: Tensor, /, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """Elements limited to an interval, in the dtype of `x`; a copy if there are no bounds."""
    return x.clone() if min is None and max is None else gt.clamp(x, min, max).to(x.dtype)


def conj(x: Tensor, /) -> Tensor:
    """The complex conjugate of each element."""
    return gt.conj(x)


def real(x: Tensor, /) -> Tensor:
    """The real part of each element."""
    return gt.real(x)


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part of each element, which real tensors do not have: raises RuntimeError."""
    return gt.imag(x)


def round(x: Tensor, /) -> Tensor:
    """The nearest integer, of ties the even one; of complex numbers, for each part."""
    return gt.complex(gt.round(x.real), gt.round(x.imag)) if x.dtype.is_complex else gt.round(x)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1, or NaN for NaN; of complex numbers, the number of absolute value 1 in their direction."""
    return gt.where(gt.isnan(x), x, gt.sign(x)) if x.dtype.is_floating_point else gt.sgn(x)


def isin(x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Tensor:
    """Whether each element of `x1` occurs among those of `x2`."""
    return gt.isin(x1, x2, invert=invert)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices of the nonzero elements, a vector for each axis."""
    if x.ndim == 0:
        raise ValueError("nonzero: a tensor without axes has no positions")
    return tuple(x.nonzero(as_tuple=True))


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """The indices at which elements belong in a sorted vector."""
    return gt.searchsorted(x1, x2, side=side, sorter=sorter)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements sorted along an axis."""
    return gt.sort(x, axis, descending, stable).values


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices that sort the elements along an axis."""
    return gt.argsort(x, axis, descending, stable)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Slices picked along an axis by indices; only a vector needs no `axis`."""
    if axis is None and x.ndim != 1:
        raise ValueError("take: axis must be given for a tensor of more axes than one")
    axis = 0 if axis is None else axis
    size = x.shape[axis]
    found = x.index_select(axis, gt.where(indices < 0, indices + size, indices).flatten())
    return found if indices.ndim == 1 else found.unflatten(axis, tuple(indices.shape))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements picked along an axis by indices of their own for each line."""
    return gt.take_along_dim(x, gt.where(indices < 0, indices + x.shape[axis], indices), axis)


class UniqueAll(NamedTuple):
    """Distinct elements, the index of the first occurrence of each, the index of each input element, and counts."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct elements, and the number of occurrences of each."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct elements, and for each element of the input its index among them."""

    values: Tensor
    inverse_indices: Tensor


def _unique(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct elements, sorted; for each element of the input its index among them; and counts."""
    if not x.dtype.is_complex:
        return gt.unique(x, return_inverse=True, return_counts=True)
    # Complex numbers, which PyTorch does not sort, are sorted by their real parts, and equal ones by the imaginary.
    flat = x.flatten()
    parts = flat + 0.0  # where -0.0 becomes 0.0, its equal
    order = gt.argsort(parts.imag, stable=True)
    order = order[gt.argsort(parts.real[order], stable=True)]
    ordered = flat[order]
    first = gt.ones(flat.shape, dtype=gt.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    group = first.cumsum(0) - 1
    inverse = gt.empty_like(group).index_copy_(0, order, group)
    return ordered[first], inverse.reshape(x.shape), gt.bincount(group)


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements, sorted, with first indices, inverse indices and counts."""
    values, inverse, counts = _unique(x)
    # The sort is stable, so the first occurrence of each element is at the sum of the counts before it.
    order = gt.argsort(inverse.flatten(), stable=True)
    return UniqueAll(values, order[counts.cumsum(0) - counts], inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements, sorted, and the number of occurrences of each."""
    values, _, counts = _unique(x)
    return UniqueCounts(values, counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements, sorted, and the index of each input element among them."""
    values, inverse, _ = _unique(x)
    return UniqueInverse(values, inverse)


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements, sorted."""
    return _unique(x)[0]
