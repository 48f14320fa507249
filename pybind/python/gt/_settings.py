"""Settings of the process: default device, threads, precision, determinism.

The daemon decides on which device and on how many threads operations run; results do not depend on it. Settings are
checked and stored, so that programs for PyTorch can read them back.
"""

from __future__ import annotations

from typing import Any

from gt import _gt
from gt._gt import device
from gt._placement import TYPED

_settings: dict[str, Any] = {
    "threads": None,
    "interop_threads": 1,
    "deterministic": False,
    "warn_only": False,
    "precision": "highest",
    "convolution_tf32": True,
    "warn_always": False,
}


def set_default_device(device: object) -> None:
    """Sets the device of tensors that are made without one. The daemon decides it; only its existence is checked.

    Raises:
        RuntimeError: The daemon has no such device.
    """
    _gt.check_device(device)


def get_default_device() -> device:
    """The device of tensors that are made without one."""
    return device("cpu")


def get_num_threads() -> int:
    """The number of threads that was set; by default, the number of CPUs this process may use."""
    import os

    return _settings["threads"] or len(os.sched_getaffinity(0))


def set_num_threads(num: int) -> None:
    """Sets a number of threads, which has no effect: the daemon shares the machine's threads among its clients."""
    _settings["threads"] = _positive(num)


def get_num_interop_threads() -> int:
    """The number of parallel operations that was set."""
    return _settings["interop_threads"]


def set_num_interop_threads(num: int) -> None:
    """Sets a number of parallel operations, which has no effect: the daemon decides."""
    _settings["interop_threads"] = _positive(num)


def _positive(num: int) -> int:
    if not isinstance(num, int) or num <= 0:
        raise RuntimeError("expected a positive number of threads")
    return num


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Requests deterministic results, which operations give in any case, except for the first products on a GPU.

    There the first uses of a large matrix product time its algorithms, which may differ in the last bits, unless `gtd`
    runs with `GT_CUDA_AUTOTUNE=0`.
    """
    _settings.update(deterministic=bool(mode), warn_only=bool(warn_only))


def are_deterministic_algorithms_enabled() -> bool:
    """Whether deterministic results were requested."""
    return _settings["deterministic"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether deterministic results were requested with `warn_only`."""
    return _settings["warn_only"]


def set_float32_matmul_precision(precision: str) -> None:
    """Sets the precision of float32 products: `"highest"`, or `"high"` or `"medium"`, which allow TF32.

    It holds for matrix products and for attention.

    TF32 rounds factors to 11 bits of mantissa, on devices that have it; CPUs do not. The setting holds for operations
    issued from now on, gradients of earlier results included.

    Args:
        precision: The name of the precision.
    """
    if precision not in ("highest", "high", "medium"):
        raise RuntimeError(f"float32 matmul precision must be one of highest, high, medium, but got {precision!r}")
    _settings["precision"] = precision
    _tell_precision()


def get_float32_matmul_precision() -> str:
    """The precision of float32 matrix products: `"highest"`, `"high"` or `"medium"`.

    Example:
        >>> gt.get_float32_matmul_precision()
        'highest'
    """
    return _settings["precision"]


def allow_matmul_tf32(allowed: bool) -> None:
    """Sets whether matrix products may use TF32: `backends.cuda.matmul.allow_tf32`."""
    if not allowed or _settings["precision"] == "highest":
        set_float32_matmul_precision("high" if allowed else "highest")


def is_convolution_tf32_allowed() -> bool:
    """Whether convolutions may use TF32: `backends.cudnn.allow_tf32`."""
    return _settings["convolution_tf32"]


def allow_convolution_tf32(allowed: bool) -> None:
    """Sets whether convolutions may use TF32: `backends.cudnn.allow_tf32`."""
    _settings["convolution_tf32"] = allowed
    _tell_precision()


def _tell_precision() -> None:
    _gt.allow_tf32(_settings["precision"] != "highest", _settings["convolution_tf32"])


def set_flush_denormal(mode: bool) -> bool:
    """Whether subnormal numbers can be flushed to zero: they cannot, so False."""
    return False


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`use_deterministic_algorithms` by a number or a name: 0 "default", 1 "warn", 2 "error"."""
    names = {"default": 0, "warn": 1, "error": 2}
    if isinstance(debug_mode, str):
        if debug_mode not in names:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = names[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode() -> int:
    """The number that `set_deterministic_debug_mode` set."""
    return 0 if not _settings["deterministic"] else 1 if _settings["warn_only"] else 2


def set_warn_always(b: bool) -> None:
    """Sets whether warnings repeat, which has no effect: Python's warning filters decide."""
    _settings["warn_always"] = bool(b)


def is_warn_always_enabled() -> bool:
    """Whether `set_warn_always` was called with True."""
    return _settings["warn_always"]


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Enables or disables anomaly detection; see `autograd.set_detect_anomaly`."""
    _gt.set_anomaly(bool(mode), bool(check_nan))


def is_anomaly_enabled() -> bool:
    """Whether anomaly detection is enabled."""
    return _gt.anomaly()[0]


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly detection raises where a gradient is NaN."""
    return _gt.anomaly()[1]


def set_default_tensor_type(t: Any) -> None:
    """`set_default_dtype` by a tensor type, as `gt.DoubleTensor`, or its name."""
    name = t if isinstance(t, str) else getattr(t, "__name__", "")
    typed = TYPED.get(name.removeprefix("torch.").removeprefix("gt."))
    if typed is None or not typed.dtype.is_floating_point:
        what = "invalid type object: " if typed is None else ""
        raise TypeError(f"{what}only floating-point types are supported as the default type")
    _gt.set_default_dtype(typed.dtype)


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
    set_deterministic_debug_mode,
    get_deterministic_debug_mode,
    set_warn_always,
    is_warn_always_enabled,
    set_anomaly_enabled,
    is_anomaly_enabled,
    is_anomaly_check_nan_enabled,
    set_default_tensor_type,
)
