"""`torch.onnx`, as far as libraries call it when they are imported. There is no export."""

from __future__ import annotations

from typing import Any

from gt import _absent

__getattr__ = _absent.getter(__name__)


def is_in_onnx_export() -> bool:
    """False: nothing is exported."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Does nothing: the function would be used in an export."""


unregister_custom_op_symbolic = register_custom_op_symbolic
