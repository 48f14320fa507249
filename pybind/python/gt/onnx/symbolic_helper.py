"""`torch.onnx.symbolic_helper`, as far as libraries call it when they are imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gt import _absent

__getattr__ = _absent.getter(__name__)

T = TypeVar("T", bound=Callable[..., Any])


def parse_args(*descriptors: str) -> Callable[[T], T]:  # noqa: ARG001 (they matter in an export)
    """A decorator that returns the function."""
    return lambda fn: fn
