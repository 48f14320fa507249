"""`torch.accelerator` for GT: the daemon's devices other than CPUs, which are CUDA devices."""

from __future__ import annotations

from gt import _absent, cuda
from gt._gt import device

__all__ = ["current_accelerator", "device_count", "is_available", "synchronize"]

__getattr__ = _absent.getter(__name__)

is_available = cuda.is_available
device_count = cuda.device_count
synchronize = cuda.synchronize


def current_accelerator(check_available: bool = False) -> device | None:  # noqa: ARG001 (an argument of PyTorch's)
    """The accelerator's device type, `cuda`; `None` if there is no such device."""
    return device("cuda") if is_available() else None
