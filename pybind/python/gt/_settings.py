"""What programs set for the whole process: devices, threads, precision, determinism.

The daemon decides where and on how many threads things run; results do not depend on it. What is set here is checked,
kept and answered.
"""

from __future__ import annotations

from typing import Any

from gt import _gt
from gt._gt import device

_settings: dict[str, Any] = {
    "threads": None,
    "interop_threads": 1,
    "deterministic": False,
    "warn_only": False,
    "precision": "highest",
}


def set_default_device(device: object) -> None:
    """Where tensors are made that name no device.

    Raises:
        RuntimeError: The daemon has no such device.
    """
    _gt.check_device(device)


def get_default_device() -> device:
    """Where tensors are made that name no device."""
    return device("cpu")


def get_num_threads() -> int:
    """How many threads were asked for; by default, one for each CPU this process may use."""
    import os

    return _settings["threads"] or len(os.sched_getaffinity(0))


def set_num_threads(num: int) -> None:
    """Asks for so many threads. The daemon shares the machine's among its clients, and decides itself."""
    _settings["threads"] = _positive(num)


def get_num_interop_threads() -> int:
    """How many operations were asked to run at a time."""
    return _settings["interop_threads"]


def set_num_interop_threads(num: int) -> None:
    """Asks for so many operations at a time; the daemon decides itself."""
    _settings["interop_threads"] = _positive(num)


def _positive(num: int) -> int:
    if not isinstance(num, int) or num <= 0:
        raise RuntimeError("expected a positive number of threads")
    return num


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Asks for the same results each time, which every operation gives in any case."""
    _settings.update(deterministic=bool(mode), warn_only=bool(warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    """Whether they were asked for."""
    return _settings["deterministic"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether they were asked for with `warn_only`."""
    return _settings["warn_only"]


def set_float32_matmul_precision(precision: str) -> None:
    """Allows float32 products of less precision, "high" or "medium"; they are "highest" in any case."""
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"float32 matmul precision must be one of highest, high, medium, but got {precision!r}")
    _settings["precision"] = precision


def get_float32_matmul_precision() -> str:
    """What was allowed."""
    return _settings["precision"]


def set_flush_denormal(mode: bool) -> bool:
    """Whether numbers too small for full precision could be made 0 on request: they cannot, so False."""
    return False


FUNCTIONS = (
    set_default_device,
    get_default_device,
    get_num_threads,
    set_num_threads,
    get_num_interop_threads,
    set_num_interop_threads,
    use_deterministic_algorithms,
    are_deterministic_algorithms_enabled,
    is_deterministic_algorithms_warn_only_enabled,
    set_float32_matmul_precision,
    get_float32_matmul_precision,
    set_flush_denormal,
)
