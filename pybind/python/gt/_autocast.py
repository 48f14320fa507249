"""`autocast`, automatic mixed precision: products in bfloat16 and losses in float32, as PyTorch does on a CPU.

The declaration of a function says whether its operands are cast, and the extension casts them. All other functions
compute in the dtypes of their operands.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from gt import _gt

F = TypeVar("F", bound=Callable[..., Any])

# PyTorch's default dtypes, and the dtypes that its kernels for a CPU accept.
_DEFAULTS = {"cpu": _gt.bfloat16, "cuda": _gt.float16, "mps": _gt.float16, "xpu": _gt.bfloat16}
_SUPPORTED = (_gt.bfloat16, _gt.float16)


class autocast:  # noqa: N801 (PyTorch's name)
    """Mixed precision: matrix products and convolutions inside compute in a 16-bit dtype, losses in float32.

    It is a context manager and a decorator, and holds for this thread. Backward passes belong outside, as in PyTorch.

    Args:
        device_type: The type of device: "cpu" or "cuda". Without such a device it warns, and has no effect.
        dtype: bfloat16 or float16; bfloat16 on a CPU if not given.
        enabled: Whether it has an effect.
        cache_enabled: Accepted; casts are never cached.

    Raises:
        RuntimeError: There is no such type of device.

    Example:
        >>> with gt.autocast("cpu"):
        ...     y = gt.ones(2, 2) @ gt.ones(2, 2)
        >>> y.dtype
        gt.bfloat16
    """

    def __init__(
        self,
        device_type: str,
        dtype: _gt.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,  # noqa: ARG002 (it changes no result)
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in _DEFAULTS:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        dtype = dtype or _DEFAULTS[device_type]
        available = _is_available(device_type)
        if enabled and not available:
            name = device_type.upper()
            warnings.warn(
                f"User provided device_type of '{device_type}', but {name} is not available. Disabling", stacklevel=2
            )
            enabled = False
        if enabled and dtype not in _SUPPORTED:
            warnings.warn(
                "In CPU autocast, but the target dtype is not supported. Disabling autocast. CPU Autocast only "
                "supports dtype of torch.bfloat16, torch.float16 currently.",
                stacklevel=2,
            )
            enabled = False
        self.device = device_type
        self._available = available
        self.fast_dtype = dtype
        self._enabled = enabled
        self._previous: list[_gt.dtype | None] = []

    def __enter__(self) -> autocast:
        # An autocast for a missing device leaves those of others unchanged.
        wanted = self.fast_dtype if self._enabled else None
        self._previous.append(_gt.autocast_dtype())
        if self._available:
            _gt.set_autocast_dtype(wanted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _gt.set_autocast_dtype(self._previous.pop())

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]


def _is_available(device_type: str) -> bool:
    return device_type == "cpu" or (device_type == "cuda" and bool(_gt.cuda_devices()))


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether this thread is inside an `autocast` for a type of device."""
    return _gt.autocast_dtype() is not None and _is_available(device_type)


def get_autocast_dtype(device_type: str) -> _gt.dtype:
    """The dtype of `autocast` for a type of device."""
    if device_type not in _DEFAULTS:
        raise RuntimeError(f"unsupported scalarType for device_type '{device_type}'")
    entered = _gt.autocast_dtype()
    return entered if entered and _is_available(device_type) else _DEFAULTS[device_type]


def is_autocast_cpu_enabled() -> bool:
    """Whether this thread is inside an `autocast` for the CPU."""
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> _gt.dtype:
    """The dtype of `autocast` for the CPU."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> _gt.dtype:
    """The dtype of `autocast` for CUDA devices."""
    return get_autocast_dtype("cuda")


def clear_autocast_cache() -> None:
    """Does nothing: casts are not cached."""


FUNCTIONS = (
    is_autocast_enabled,
    is_autocast_cpu_enabled,
    get_autocast_dtype,
    get_autocast_cpu_dtype,
    get_autocast_gpu_dtype,
    clear_autocast_cache,
)
