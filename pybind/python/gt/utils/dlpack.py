"""Elements shared with other libraries, under PyTorch's path."""

from __future__ import annotations

from typing import Any

from gt import _absent, from_dlpack
from gt._gt import Tensor

__all__ = ["from_dlpack", "to_dlpack"]

__getattr__ = _absent.getter(__name__)


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule of DLPack's with the elements as the daemon handed them over."""
    return tensor.__dlpack__()
