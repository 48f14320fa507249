"""Looks up PyTorch's operations by name in GT."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import gt


def find(name: str) -> Any:
    """Returns `gt.a.b` for `"a.b"`, or `None` if there is no such name."""
    place: Any = gt
    for part in name.split("."):
        place = getattr(place, part, None)
        if place is None:
            return None
    return place


def with_gt(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function with its global `torch` replaced by `gt`."""
    return types.FunctionType(
        function.__code__,
        {**function.__globals__, "torch": gt},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def is_lambda(function: Any) -> bool:
    return isinstance(function, types.FunctionType) and function.__name__ == "<lambda>"


def claims(name: str) -> bool:
    """Returns whether GT has the name as a function, a method or an in-place method."""
    if callable(find(name)) and not isinstance(find(name), gt.dtype):
        return True
    return "." not in name and (hasattr(gt.Tensor, name) or hasattr(gt.Tensor, name + "_"))


def function_of(op: Any) -> Callable[..., Any] | None:
    """Returns the form of an operation that its samples call; `None` if GT has the name in another form only."""
    if is_lambda(op.op):
        return with_gt(op.op)
    function = find(op.name)
    if callable(function):
        return function
    # PyTorch's samples of methods such as `__radd__` are called as unbound functions of the class.
    return None if find_torch(op) else getattr(gt.Tensor, op.name, None)


def find_torch(op: Any) -> bool:
    """Returns whether PyTorch has the operation as a function, and not only as a method."""
    import torch

    place: Any = torch
    for part in op.name.split("."):
        place = getattr(place, part, None)
    return callable(place)


def method_of(variant: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """Returns the method of GT's tensors with the name of one of PyTorch's."""
    if isinstance(variant, functools.partial):
        # A function of `nn.functional` with `inplace=True`.
        function = find(f"nn.functional.{variant.func.__name__}")
        return functools.partial(function, **variant.keywords) if function else None
    return getattr(gt.Tensor, getattr(variant, "__name__", ""), None)
