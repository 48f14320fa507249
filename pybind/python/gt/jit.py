"""`torch.jit` for programs that use it for speed: a scripted function is the function itself. There are no archives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from gt import _absent

__all__ = ["export", "ignore", "is_scripting", "is_tracing", "load", "save", "script", "trace", "unused"]

__getattr__ = _absent.getter(__name__)

T = TypeVar("T", bound=Callable[..., Any])


def script(obj: T, *args: Any, **kwargs: Any) -> T:  # noqa: ARG001 (they change no result)
    """The function, class or module itself."""
    return obj


def trace(func: T, *args: Any, **kwargs: Any) -> T:  # noqa: ARG001 (examples change no result)
    """The function or module itself, which takes other branches for other inputs where a trace would not."""
    return func


def ignore(drop: Any = False, **kwargs: Any) -> Any:  # noqa: ARG001
    """The function itself, or a decorator that leaves it so."""
    return drop if callable(drop) else lambda function: function


def unused(fn: T) -> T:
    """The function itself."""
    return fn


export = unused


def is_scripting() -> bool:
    """Whether a program is being compiled: never."""
    return False


def is_tracing() -> bool:
    """Whether a program is being traced: never."""
    return False


def save(m: Any, f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not there: programs are not written to files."""
    raise NotImplementedError("jit.save: programs are not written to files: gt.save the state_dict() of the module")


def load(f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Not there: programs are not read from files."""
    raise NotImplementedError("jit.load: programs are not read from files: gt.load a state_dict into the module")
