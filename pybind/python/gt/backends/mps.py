"""Apple's GPUs, which GT does not support."""

from __future__ import annotations

from gt import _absent

__getattr__ = _absent.getter(__name__)


def is_available() -> bool:
    """Whether there is an Apple GPU to compute on: never."""
    return False


def is_built() -> bool:
    """Whether GT is built with support for Apple GPUs: never."""
    return False
