"""`torch.accelerator` for GT: the daemon's devices other than CPUs, which are CUDA devices."""

from __future__ import annotations

from gt import _absent, cuda
from gt._gt import device

__all__ = [
    "current_accelerator",
    "current_device_index",
    "current_stream",
    "device_count",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device_index",
    "synchronize",
]

__getattr__ = _absent.getter(__name__)

is_available = cuda.is_available
device_count = cuda.device_count
synchronize = cuda.synchronize
current_device_index = cuda.current_device
set_device_index = cuda.set_device
current_stream = cuda.current_stream
empty_cache = cuda.empty_cache
memory_allocated, max_memory_allocated = cuda.memory_allocated, cuda.max_memory_allocated
memory_reserved, max_memory_reserved = cuda.memory_reserved, cuda.max_memory_reserved
memory_stats, reset_peak_memory_stats = cuda.memory_stats, cuda.reset_peak_memory_stats


def current_accelerator(check_available: bool = False) -> device | None:  # noqa: ARG001 (an argument of PyTorch's)
    """The accelerator's device type, `cuda`; `None` if there is no such device."""
    return device("cuda") if is_available() else None
