"""oneDNN, which GT does not use."""

from __future__ import annotations

enabled = False


def is_available() -> bool:
    """Whether oneDNN is used: never."""
    return False
