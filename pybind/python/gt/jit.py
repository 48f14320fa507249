"""`torch.jit` for GT: a scripted function is the function itself. Programs cannot be saved to archives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from gt import _absent

__all__ = ["export", "ignore", "is_scripting", "is_tracing", "load", "save", "script", "trace", "unused"]

__getattr__ = _absent.getter(__name__)

T = TypeVar("T", bound=Callable[..., Any])


def script(obj: T, *args: Any, **kwargs: Any) -> T:  # noqa: ARG001 (they change no result)
    """Returns the function, class or module itself."""
    return obj


def trace(func: T, *args: Any, **kwargs: Any) -> T:  # noqa: ARG001 (examples change no result)
    """Returns the function or module itself; unlike a trace, it may take other branches for other inputs."""
    return func


def ignore(drop: Any = False, **kwargs: Any) -> Any:  # noqa: ARG001
    """Returns the function itself, or a decorator that does."""
    return drop if callable(drop) else lambda function: function


def unused(fn: T) -> T:
    """Returns the function itself."""
    return fn


export = unused


def is_scripting() -> bool:
    """Whether a program is being scripted: never."""
    return False


def is_tracing() -> bool:
    """Whether a program is being traced: never."""
    return False


def save(m: Any, f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: there are no scripted programs to save."""
    raise NotImplementedError("jit.save: programs are not written to files: gt.save the state_dict() of the module")


def load(f: Any, *args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: there are no scripted programs to load."""
    raise NotImplementedError("jit.load: programs are not read from files: gt.load a state_dict into the module")
