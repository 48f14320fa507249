"""Utilities around training: `data` (datasets and loaders), `checkpoint`, `dlpack` and `hooks`."""

from gt import _absent
from gt.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]

__getattr__ = _absent.getter(__name__)
