"""Apple's GPUs, which GT does not know."""

from __future__ import annotations


def is_available() -> bool:
    """Whether the daemon has one."""
    return False


def is_built() -> bool:
    """Whether GT could use one."""
    return False
