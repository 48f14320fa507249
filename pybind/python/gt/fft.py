"""Discrete Fourier transforms, as `torch.fft`."""

from __future__ import annotations

from gt import _absent
from gt._functions.fft import *  # noqa: F403
from gt._functions.fft import __all__ as __all__

__getattr__ = _absent.getter(__name__)
