"""Decorators for custom autograd functions under `autocast`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gt import _core as gt
from gt._autocast import autocast
from gt._gt import Tensor, dtype

__all__ = ["custom_bwd", "custom_fwd"]


def _cast(value: Any, device_type: str, dtype: dtype) -> Any:
    """Converts floating tensors of a device type, except float64, to a dtype; also within tuples, lists and dicts."""
    if isinstance(value, Tensor):
        wanted = value.is_floating_point() and value.device.type == device_type and value.dtype != gt.float64
        return value.to(dtype) if wanted else value
    if isinstance(value, Mapping):
        return {key: _cast(part, device_type, dtype) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_cast(part, device_type, dtype) for part in value)
    return value


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: dtype | None = None
) -> Callable[..., Any]:
    """Decorates a `forward`, so that `backward` runs with the same autocast state.

    Args:
        fwd: The `forward`; without it, a decorator is returned.
        device_type: The device type of the `autocast` context.
        cast_inputs: The dtype that floating inputs are converted to under `autocast`; `forward` then runs without it.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        ctx, on = args[0], gt.is_autocast_enabled(device_type)
        ctx._dtype = gt.get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorates a `backward`, so that it runs with the autocast state of the `forward` that `custom_fwd` decorated.

    Args:
        bwd: The `backward`; without it, a decorator is returned.
        device_type: The device type of the `autocast` context.
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return backward
