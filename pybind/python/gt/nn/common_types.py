"""Type aliases for annotations of layers, `_size_2_t` is an int or a pair of them, and sizes as tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from gt import _absent
from gt._gt import Tensor

__getattr__ = _absent.getter(__name__)

_T = TypeVar("_T")
_scalar_or_tuple_any_t = _T | tuple[_T, ...]
_scalar_or_tuple_1_t = _T | tuple[_T]
_scalar_or_tuple_2_t = _T | tuple[_T, _T]
_scalar_or_tuple_3_t = _T | tuple[_T, _T, _T]
_scalar_or_tuple_4_t = _T | tuple[_T, _T, _T, _T]
_scalar_or_tuple_5_t = _T | tuple[_T, _T, _T, _T, _T]
_scalar_or_tuple_6_t = _T | tuple[_T, _T, _T, _T, _T, _T]

_size_any_t = _scalar_or_tuple_any_t[int]
_size_1_t = _scalar_or_tuple_1_t[int]
_size_2_t = _scalar_or_tuple_2_t[int]
_size_3_t = _scalar_or_tuple_3_t[int]
_size_4_t = _scalar_or_tuple_4_t[int]
_size_5_t = _scalar_or_tuple_5_t[int]
_size_6_t = _scalar_or_tuple_6_t[int]
_size_any_opt_t = _scalar_or_tuple_any_t[int | None]
_size_2_opt_t = _scalar_or_tuple_2_t[int | None]
_size_3_opt_t = _scalar_or_tuple_3_t[int | None]
_ratio_any_t = _scalar_or_tuple_any_t[float]
_ratio_2_t = _scalar_or_tuple_2_t[float]
_ratio_3_t = _scalar_or_tuple_3_t[float]
_tensor_list_t = _scalar_or_tuple_any_t[Tensor]
_maybe_indices_t = _scalar_or_tuple_2_t[Tensor]

Sizes = int | Sequence[int]


def tuple_of(value: Sizes, rank: int, name: str = "kernel_size") -> tuple[int, ...]:
    """A size as a tuple with one number for each axis; a single number is repeated."""
    if isinstance(value, int):
        return (value,) * rank
    sizes = tuple(int(size) for size in value)
    if len(sizes) == 1:
        return sizes * rank
    if len(sizes) != rank:
        raise RuntimeError(f"{name} must either be a single int, or a tuple of {rank} ints, but got {value}")
    return sizes
