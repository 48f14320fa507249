"""Elementwise functions that the standard calls upon differently, and those that search, sort, index and make sets."""

from __future__ import annotations

from typing import NamedTuple

from gt import _core as gt
from gt._gt import Tensor

__all__ = [
    "argsort", "bitwise_invert", "clip", "conj", "imag", "isin", "nonzero", "real", "searchsorted", "sort", "take",
    "take_along_axis", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip


def bitwise_invert(x: Tensor, /) -> Tensor:
    """Every bit the other way."""
    return ~x


def clip(x: Tensor, /, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """Between bounds; without any, a copy. The dtype stays."""
    return x.clone() if min is None and max is None else gt.clamp(x, min, max).to(x.dtype)


def conj(x: Tensor, /) -> Tensor:
    """The conjugate."""
    return gt.conj(x)


def real(x: Tensor, /) -> Tensor:
    """The real part."""
    return gt.real(x)


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part, of complex numbers alone."""
    return gt.imag(x)


def isin(x1: Tensor, x2: Tensor, /, *, invert: bool = False) -> Tensor:
    """Whether each element is among others."""
    return gt.isin(x1, x2, invert=invert)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Where the elements that are not 0 are: positions along each axis."""
    if x.ndim == 0:
        raise ValueError("nonzero: a tensor without axes has no positions")
    return tuple(x.nonzero(as_tuple=True))


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where elements belong among sorted ones."""
    return gt.searchsorted(x1, x2, side=side, sorter=sorter)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """In order along an axis."""
    return gt.sort(x, axis, descending, stable).values


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions of the elements in order along an axis."""
    return gt.argsort(x, axis, descending, stable)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """What is at positions along an axis, which only a tensor of one axis need not name."""
    if axis is None and x.ndim != 1:
        raise ValueError("take: axis must be given for a tensor of more axes than one")
    axis = 0 if axis is None else axis
    size = x.shape[axis]
    found = x.index_select(axis, gt.where(indices < 0, indices + size, indices).flatten())
    return found if indices.ndim == 1 else found.unflatten(axis, tuple(indices.shape))


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """What is at positions along an axis, others for each place along the rest."""
    return gt.take_along_dim(x, gt.where(indices < 0, indices + x.shape[axis], indices), axis)


class UniqueAll(NamedTuple):
    """What differs, where each first is, where each element of the tensor is among it, and how often each is."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What differs, and how often each is."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What differs, and where each element of the tensor is among it."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAll:
    """The elements that differ, sorted, and all that is known of them."""
    values, inverse, counts = gt.unique(x, return_inverse=True, return_counts=True)
    # Sorting keeps equal elements in order: the first of each stands where the counts before it end.
    order = gt.argsort(inverse.flatten(), stable=True)
    return UniqueAll(values, order[counts.cumsum(0) - counts], inverse, counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The elements that differ, sorted, and how often each is."""
    return UniqueCounts(*gt.unique(x, return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The elements that differ, sorted, and where each element is among them."""
    return UniqueInverse(*gt.unique(x, return_inverse=True))


def unique_values(x: Tensor, /) -> Tensor:
    """The elements that differ, sorted."""
    return gt.unique(x)
