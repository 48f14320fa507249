"""Switches of convolutions on CUDA devices. GT does not use cuDNN: all but `allow_tf32` are stored without effect."""

from __future__ import annotations

import sys
from types import ModuleType

from gt import _settings

enabled = True
benchmark = False
deterministic = False


def is_available() -> bool:
    """Whether cuDNN is used: never."""
    return False


def version() -> None:
    """The version of cuDNN: `None`."""


class _Switches(ModuleType):
    """The class of this module, for the property `allow_tf32`."""

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 convolutions may round their factors to TF32 (11 significant bits); true by default."""
        return _settings.is_convolution_tf32_allowed()

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        _settings.allow_convolution_tf32(bool(allowed))


sys.modules[__name__].__class__ = _Switches
