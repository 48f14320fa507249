"""`torch.fx`, as far as libraries use it to say how a function would be traced; programs cannot be traced yet."""

from __future__ import annotations

from typing import Any, TypeVar

from gt import _absent
from gt.nn.module import Module

__getattr__ = _absent.getter(__name__)

T = TypeVar("T")


class GraphModule(Module):
    """A module made of a traced program; making one raises NotImplementedError.

    Raises:
        NotImplementedError: Always.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"fx.GraphModule: GT traces no programs{_absent.reason('torch.fx')}")


def wrap(fn_or_name: T) -> T:
    """Returns the function or name: nothing is traced, so nothing is to be kept whole."""
    return fn_or_name


def has_side_effect(fn: T) -> T:
    """Returns the function."""
    return fn
