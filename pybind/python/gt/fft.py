"""The functions of `torch.fft` that need no complex numbers: frequencies and their shifts."""

from __future__ import annotations

from gt import _absent, _functions

globals().update(_functions.MODULES["fft"])

__all__ = list(_functions.MODULES["fft"])
__getattr__ = _absent.getter(__name__)
