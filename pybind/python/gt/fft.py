"""The functions of `torch.fft` that need no complex numbers: frequencies and their shifts."""

from __future__ import annotations

from collections.abc import Sequence as _Sequence
from typing import Any as _Any

from gt import _absent
from gt import _core as _gt
from gt._composites.common import axes_of as _axes_of
from gt._gt import Tensor as _Tensor


def _rolled_by_half(input: _Tensor, dim: int | _Sequence[int] | None, rest: int) -> _Tensor:
    axes = list(range(input.ndim)) if dim is None else _axes_of(input, dim)
    return input.roll([(input.shape[axis] + rest) // 2 for axis in axes], axes) if axes else input.clone()


def fftshift(input: _Tensor, dim: int | _Sequence[int] | None = None) -> _Tensor:
    """The zero frequency shifted from the start of each axis to its centre.

    Example:
        >>> gt.fft.fftshift(gt.fft.fftfreq(4))
        tensor([-0.5000, -0.2500,  0.0000,  0.2500])
    """
    return _rolled_by_half(input, dim, 0)


def ifftshift(input: _Tensor, dim: int | _Sequence[int] | None = None) -> _Tensor:
    """The inverse of `fftshift`.

    Example:
        >>> gt.fft.ifftshift(gt.fft.fftshift(gt.arange(5)))
        tensor([0, 1, 2, 3, 4])
    """
    return _rolled_by_half(input, dim, 1)


def fftfreq(n: int, d: float = 1.0, **options: _Any) -> _Tensor:
    """The frequencies of a discrete Fourier transform: 0 and the positive ones, then the negative ones.

    Args:
        n: The number of samples.
        d: The distance between samples.
        options: `dtype`, `device` and `requires_grad`, as for `gt.arange`.

    Example:
        >>> gt.fft.fftfreq(4)
        tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    return _gt.cat([_gt.arange(0, (n + 1) // 2, **options), _gt.arange(-(n // 2), 0, **options)]) / (n * d)


def rfftfreq(n: int, d: float = 1.0, **options: _Any) -> _Tensor:
    """The frequencies of a discrete Fourier transform of real samples: 0 and the positive ones.

    Args:
        n: The number of samples.
        d: The distance between samples.
        options: `dtype`, `device` and `requires_grad`, as for `gt.arange`.

    Example:
        >>> gt.fft.rfftfreq(4)
        tensor([0.0000, 0.2500, 0.5000])
    """
    return _gt.arange(0, n // 2 + 1, **options) / (n * d)


__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]
__getattr__ = _absent.getter(__name__)
