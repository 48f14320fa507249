"""PyTorch, if it is installed: without it the benchmarks leave its column empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import torch
except ImportError:
    torch: Any = None


def with_torch(contender: Callable[[], float]) -> dict[str, Callable[[], float]]:
    """Returns the column "PyTorch" with this contender, or no column without PyTorch."""
    return {} if torch is None else {"PyTorch": contender}
