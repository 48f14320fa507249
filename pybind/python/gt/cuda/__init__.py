"""What stands for `torch.cuda`: the daemon's CUDA devices. It has none yet, and what needs one says so.

What PyTorch leaves without effect where there is no CUDA device has none here: seeding, emptying the cache.
"""

from __future__ import annotations

from typing import NoReturn

from gt import _absent
from gt._gt import OutOfMemoryError

__all__ = [
    "OutOfMemoryError",
    "amp",
    "current_device",
    "device_count",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "reset_peak_memory_stats",
    "set_device",
    "synchronize",
]

__getattr__ = _absent.getter(__name__)


def _unavailable() -> NoReturn:
    raise RuntimeError("No CUDA GPUs are available: the daemon's devices are CPUs, so use device='cpu'")


def is_available() -> bool:
    """Whether the daemon has a CUDA device."""
    return False


def is_initialized() -> bool:
    """Whether a CUDA device has been used."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the CUDA device computes in bfloat16."""
    return False


def device_count() -> int:
    """How many CUDA devices the daemon has."""
    return 0


def current_device() -> int:
    """The number of the CUDA device in use."""
    _unavailable()


def set_device(device: object) -> None:
    """Chooses the CUDA device to use."""
    _unavailable()


def synchronize(device: object = None) -> None:
    """Waits for a CUDA device."""
    _unavailable()


def get_device_name(device: object = None) -> str:
    """The name of a CUDA device."""
    _unavailable()


def get_device_capability(device: object = None) -> tuple[int, int]:
    """The compute capability of a CUDA device."""
    _unavailable()


def get_device_properties(device: object = None) -> object:
    """What is known of a CUDA device."""
    _unavailable()


def manual_seed(seed: int) -> None:
    """Seeds a CUDA device: nothing to do without one."""


def manual_seed_all(seed: int) -> None:
    """Seeds every CUDA device: nothing to do without one."""


def empty_cache() -> None:
    """Gives memory back to CUDA devices: nothing to do without one."""


def reset_peak_memory_stats(device: object = None) -> None:
    """Forgets the peak of the memory in use: nothing to do without a CUDA device."""


def memory_allocated(device: object = None) -> int:
    """Bytes in use on a CUDA device."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated

# It comes last: it uses what gt.amp is made of.
from gt.cuda import amp  # noqa: E402
