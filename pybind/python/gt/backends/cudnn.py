"""Switches of cuDNN, which GT does not use. They are kept, and have no effect."""

from __future__ import annotations

enabled = True
benchmark = False
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """Whether GT uses cuDNN."""
    return False


def version() -> None:
    """The version of cuDNN: none."""
