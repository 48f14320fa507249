"""DLPack, under PyTorch's path: exchange of tensors with other libraries."""

from __future__ import annotations

from typing import Any

from gt import _absent, from_dlpack
from gt._gt import Tensor

__all__ = ["from_dlpack", "to_dlpack"]

__getattr__ = _absent.getter(__name__)


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of the tensor, which another library can import."""
    return tensor.__dlpack__()
