"""`torch.distributed.rpc`: there is no other process to call."""

from gt import _absent
from gt.distributed.rpc import api

__all__ = ["api", "is_available"]

__getattr__ = _absent.getter(__name__)


def is_available() -> bool:
    """False: there is no other process to call."""
    return False
