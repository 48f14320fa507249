"""What adding a hook returns: a handle whose `remove()` takes it away again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from gt import _absent

__all__ = ["RemovableHandle"]

__getattr__ = _absent.getter(__name__)

_ids = itertools.count()


class RemovableHandle:
    """The place of a hook among others, in a dict of theirs and in those that go with it."""

    def __init__(self, hooks: dict[int, Any], *marks: set[int]) -> None:
        self.id = next(_ids)
        self._hooks = hooks
        self._marks = marks

    def add(self, hook: Callable[..., Any], first: bool = False) -> RemovableHandle:
        """Puts the hook there, last or first."""
        later = dict(self._hooks) if first else {}
        if first:
            self._hooks.clear()
        self._hooks[self.id] = hook
        self._hooks.update(later)
        return self

    def remove(self) -> None:
        """Takes the hook away."""
        self._hooks.pop(self.id, None)
        for mark in self._marks:
            mark.discard(self.id)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()
