"""`torch.jit` for GT: a scripted function is the function itself. Programs cannot be saved to archives."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from gt import _absent
from gt.nn.module import Module

__all__ = [
    "Attribute",
    "Final",
    "ScriptFunction",
    "ScriptModule",
    "annotate",
    "export",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "trace",
    "unused",
]

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


export = interface = script_method = script_if_tracing = _script_if_tracing = unused
_overload = _overload_method = unused

isinstance = builtins.isinstance


class ScriptModule(Module):
    """A module of a scripted program; GT makes none, so that nothing but a subclass is an instance."""


RecursiveScriptModule = ScriptModule


class ScriptFunction:
    """A scripted function; GT makes none."""


class Attribute(NamedTuple):
    """A value with its type, for a scripted module."""

    value: Any
    type: Any


def annotate(the_type: Any, the_value: Any) -> Any:  # noqa: ARG001 (there is no type checker at run time)
    """Returns the value."""
    return the_value


def freeze(mod: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
    """Returns the module itself."""
    return mod


optimize_for_inference = freeze


def trace_module(mod: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG001
    """Returns the module itself."""
    return mod


@contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:  # noqa: ARG001
    """A block in which programs are optimized: it changes nothing."""
    yield


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
