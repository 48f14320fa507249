"""Helpers around `__torch_function__` for PyTorch programs: GT does not call it, so nothing overrides operations."""

from __future__ import annotations

from typing import Any

from gt import _absent
from gt._gt import Tensor

__all__ = ["has_torch_function", "is_tensor_like"]

__getattr__ = _absent.getter(__name__)


def has_torch_function(relevant_args: Any) -> bool:  # noqa: ARG001
    """Whether an argument overrides operations by `__torch_function__`: never."""
    return False


has_torch_function_unary = has_torch_function


def has_torch_function_variadic(*args: Any) -> bool:  # noqa: ARG001
    """Whether an argument overrides operations by `__torch_function__`: never."""
    return False


def is_tensor_like(inp: Any) -> bool:
    """Whether the argument is a tensor."""
    return isinstance(inp, Tensor)
