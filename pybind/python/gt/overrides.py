"""What asks whether arguments stand for tensors in a way of their own: none do, as tensors cannot be subclassed."""

from __future__ import annotations

from typing import Any

from gt import _absent
from gt._gt import Tensor

__all__ = ["has_torch_function", "is_tensor_like"]

__getattr__ = _absent.getter(__name__)


def has_torch_function(relevant_args: Any) -> bool:  # noqa: ARG001
    """Whether an argument has a `__torch_function__`: it is asked of none."""
    return False


has_torch_function_unary = has_torch_function


def has_torch_function_variadic(*args: Any) -> bool:  # noqa: ARG001
    """Whether an argument has a `__torch_function__`: it is asked of none."""
    return False


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(inp, Tensor)
