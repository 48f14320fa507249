"""Helpers for layers' arguments: `_pair(3)` is `(3, 3)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gt import _absent

__all__ = ["_ntuple", "_pair", "_quadruple", "_single", "_triple", "consume_prefix_in_state_dict_if_present"]

__getattr__ = _absent.getter(__name__)


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that repeats a single value `n` times, and makes a tuple of an iterable."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: Iterable[Any], n: int) -> tuple[Any, ...]:
    """The elements in reverse order, each repeated `n` times."""
    return tuple(x for x in reversed(tuple(t)) for _ in range(n))


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Removes a prefix, such as `"module."`, from the keys of a state dict, in place."""
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key.removeprefix(prefix)] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", {})
    for key in [key for key in metadata if key]:
        if key in (prefix.rstrip("."), prefix):
            metadata[""] = metadata.pop(key)
        elif key.startswith(prefix):
            metadata[key.removeprefix(prefix)] = metadata.pop(key)
