"""What stands for `torch.accelerator`: the daemon's devices besides CPUs, which are CUDA devices or none."""

from __future__ import annotations

from gt import _absent, cuda
from gt._gt import device

__all__ = ["current_accelerator", "device_count", "is_available", "synchronize"]

__getattr__ = _absent.getter(__name__)

is_available = cuda.is_available
device_count = cuda.device_count
synchronize = cuda.synchronize


def current_accelerator(check_available: bool = False) -> device | None:  # noqa: ARG001 (an argument of PyTorch's)
    """The kind of such devices; `None` if there are none."""
    return device("cuda") if is_available() else None
