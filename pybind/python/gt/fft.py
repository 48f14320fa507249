"""Frequencies, and rows of them turned round, under the names of `torch.fft`; there are no complex numbers."""

from __future__ import annotations

from collections.abc import Sequence as _Sequence
from typing import Any as _Any

from gt import _absent
from gt import _core as _gt
from gt._composites.common import axes_of as _axes_of
from gt._gt import Tensor as _Tensor


def _turned(input: _Tensor, dim: int | _Sequence[int] | None, rest: int) -> _Tensor:
    axes = list(range(input.ndim)) if dim is None else _axes_of(input, dim)
    return input.roll([(input.shape[axis] + rest) // 2 for axis in axes], axes) if axes else input.clone()


def fftshift(input: _Tensor, dim: int | _Sequence[int] | None = None) -> _Tensor:
    """The frequency 0 moved from the start of each axis to its middle."""
    return _turned(input, dim, 0)


def ifftshift(input: _Tensor, dim: int | _Sequence[int] | None = None) -> _Tensor:
    """What `fftshift` moved, moved back."""
    return _turned(input, dim, 1)


def fftfreq(n: int, d: float = 1.0, **options: _Any) -> _Tensor:
    """The frequencies of `n` samples that are `d` apart: from 0 up, then the negative ones."""
    return _gt.cat([_gt.arange(0, (n + 1) // 2, **options), _gt.arange(-(n // 2), 0, **options)]) / (n * d)


def rfftfreq(n: int, d: float = 1.0, **options: _Any) -> _Tensor:
    """The frequencies of `n` samples that are `d` apart, from 0 up."""
    return _gt.arange(0, n // 2 + 1, **options) / (n * d)


__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]
__getattr__ = _absent.getter(__name__)
