"""What stands for `torch.accelerator`: the daemon's devices besides CPUs. There are none yet."""

from __future__ import annotations

from gt import _absent

__all__ = ["current_accelerator", "device_count", "is_available"]

__getattr__ = _absent.getter(__name__)


def is_available() -> bool:
    """Whether the daemon has another device than CPUs."""
    return False


def device_count() -> int:
    """How many such devices it has."""
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """The kind of such devices: none."""
