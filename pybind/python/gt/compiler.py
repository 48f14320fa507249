"""`torch.compile` and its helpers for GT.

They change nothing: the daemon sees all instructions, finds what repeats, and fuses them itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from gt import _absent

__all__ = ["allow_in_graph", "compile", "disable", "is_compiling", "is_exporting", "reset"]

__getattr__ = _absent.getter(__name__)

T = TypeVar("T", bound=Callable[..., Any])


def compile(
    model: T | None = None,
    *,
    fullgraph: bool = False,  # noqa: ARG001
    dynamic: bool | None = None,  # noqa: ARG001
    backend: Any = "inductor",  # noqa: ARG001
    mode: str | None = None,  # noqa: ARG001
    options: dict[str, Any] | None = None,  # noqa: ARG001
    disable: bool = False,  # noqa: ARG001
) -> Any:
    """Returns the function or module itself.

    Usable as a decorator, with arguments or without, all of which are ignored.
    """
    return (lambda function: function) if model is None else model


def disable(fn: T | None = None, recursive: bool = True) -> Any:  # noqa: ARG001
    """Returns the function itself: nothing is compiled."""
    return (lambda function: function) if fn is None else fn


def reset() -> None:
    """Does nothing: there are no compiled functions to forget."""


def allow_in_graph(fn: T) -> T:
    """Returns the function itself: nothing is compiled."""
    return fn


def is_compiling() -> bool:
    """Whether a program is being compiled: never."""
    return False


def is_exporting() -> bool:
    """Whether a program is being exported: never."""
    return False
