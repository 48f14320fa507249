"""Automatic mixed precision: `autocast`, and `GradScaler` against underflowing gradients."""

from gt import _absent
from gt._autocast import autocast
from gt.amp.custom import custom_bwd, custom_fwd
from gt.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

__getattr__ = _absent.getter(__name__)


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast` has an effect for a type of device."""
    return device_type == "cpu"
