"""`torch.serialization`: `save` and `load`, and the names of classes that a checkpoint may contain."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ContextDecorator
from typing import Any

from gt import _absent, _checkpoint
from gt._save import File, load, save

__all__ = [
    "FILE_LIKE",
    "MAP_LOCATION",
    "SourceChangeWarning",
    "add_safe_globals",
    "clear_safe_globals",
    "get_safe_globals",
    "load",
    "safe_globals",
    "save",
]

__getattr__ = _absent.getter(__name__)

FILE_LIKE = File
MAP_LOCATION = Callable[[Any, str], Any] | str | dict[str, str] | None


class SourceChangeWarning(Warning):
    """The source of a saved class has changed; GT never raises it."""


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Adds classes and functions to those that `load` may use; each is one, or a pair with its name in the file."""
    known = _checkpoint.safe_globals
    known.extend(entry for entry in safe_globals if entry not in known)


def get_safe_globals() -> list[Any]:
    """The classes and functions that `add_safe_globals` added."""
    return list(_checkpoint.safe_globals)


def clear_safe_globals() -> None:
    """Removes all that `add_safe_globals` added."""
    _checkpoint.safe_globals.clear()


class safe_globals(ContextDecorator):  # noqa: N801 (PyTorch's name)
    """Adds classes and functions for a `with` block: see `add_safe_globals`."""

    def __init__(self, safe_globals: Iterable[Any]) -> None:
        self._added = list(safe_globals)

    def __enter__(self) -> None:
        self._before = get_safe_globals()
        add_safe_globals(self._added)

    def __exit__(self, *_error: object) -> None:
        _checkpoint.safe_globals[:] = self._before
