"""Questions about classes derived from `Tensor`, which libraries ask when they save tensors."""

from __future__ import annotations

from typing import Any

from gt import _absent

__getattr__ = _absent.getter(__name__)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether an object is a tensor that wraps others by PyTorch's protocol of `__tensor_flatten__`."""
    return hasattr(t, "__tensor_flatten__") and hasattr(type(t), "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether a class is of tensors that wrap others by PyTorch's protocol of `__tensor_flatten__`."""
    return hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")
