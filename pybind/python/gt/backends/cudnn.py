"""Switches of convolutions. But for `allow_tf32` they are of cuDNN, which GT does not use, and kept without effect."""

from __future__ import annotations

import sys
from types import ModuleType

from gt import _settings

enabled = True
benchmark = False
deterministic = False


def is_available() -> bool:
    """Whether GT uses cuDNN."""
    return False


def version() -> None:
    """The version of cuDNN: none."""


class _Switches(ModuleType):
    """This module, of which one attribute does something when it is set."""

    @property
    def allow_tf32(self) -> bool:
        """Whether convolutions of float32 may round their factors to 11 bits, as they may at first."""
        return _settings.is_convolution_tf32_allowed()

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        _settings.allow_convolution_tf32(bool(allowed))


sys.modules[__name__].__class__ = _Switches
