"""The functions of `torch._dynamo` that libraries call: nothing is compiled, so they change nothing."""

from __future__ import annotations

from typing import Any

from gt import _absent
from gt.compiler import allow_in_graph, disable, is_compiling, reset
from gt.compiler import compile as optimize

__all__ = ["allow_in_graph", "disable", "is_compiling", "mark_dynamic", "mark_static", "optimize", "reset"]

__getattr__ = _absent.getter(__name__)

disallow_in_graph = graph_break_on = forbid_in_graph = allow_in_graph
assume_constant_result = allow_in_graph


def is_dynamo_supported() -> bool:
    """False: the daemon fuses instructions, and no Python is compiled."""
    return False


def mark_dynamic(t: Any, index: Any = None, **kwargs: Any) -> None:
    """Does nothing: all shapes may change."""


mark_static = maybe_mark_dynamic = mark_unbacked = mark_static_address = mark_dynamic


def graph_break(msg: str = "") -> None:
    """Does nothing: there is no graph."""
