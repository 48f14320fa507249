"""`RemovableHandle`: the handle that registering a hook returns."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from gt import _absent

__all__ = ["RemovableHandle"]

__getattr__ = _absent.getter(__name__)

_ids = itertools.count()


class RemovableHandle:
    """Removes a registered hook: by `remove()`, or at the end of a `with` block.

    Args:
        hooks: The dict of hooks.
        *marks: Sets of hook ids with further properties, from which the id is removed too.
    """

    def __init__(self, hooks: dict[int, Any], *marks: set[int]) -> None:
        self.id = next(_ids)
        self._hooks = hooks
        self._marks = marks

    def add(self, hook: Callable[..., Any], first: bool = False) -> RemovableHandle:
        """Adds the hook at the end, or at the beginning if `first`; returns this handle."""
        later = dict(self._hooks) if first else {}
        if first:
            self._hooks.clear()
        self._hooks[self.id] = hook
        self._hooks.update(later)
        return self

    def remove(self) -> None:
        """Removes the hook."""
        self._hooks.pop(self.id, None)
        for mark in self._marks:
            mark.discard(self.id)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_error: object) -> None:
        self.remove()
