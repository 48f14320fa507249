"""The functions of `torch.xpu`, `torch.mps` and `torch.mtia`, devices that GT does not compute on."""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    """False: there is no such device."""
    return False


def device_count() -> int:
    """0: there is no such device."""
    return 0


def is_initialized() -> bool:
    """False: there is no such device."""
    return False


def empty_cache() -> None:
    """Does nothing, since there is no such device."""


def manual_seed(seed: int) -> None:
    """Does nothing, since there is no such device."""


manual_seed_all = manual_seed


def synchronize(device: Any = None) -> NoReturn:  # noqa: ARG001
    """Raises RuntimeError: there is no such device."""
    raise RuntimeError("synchronize: GT computes on CPUs and NVIDIA GPUs alone")
