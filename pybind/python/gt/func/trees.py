"""Trees: nested tuples, lists and dicts of tensors, the arguments and results of function transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rebuild = Callable[[list[Any]], Any]


def flatten(tree: Any) -> tuple[list[Any], Rebuild]:
    """The leaves of a tree from left to right, and a function that rebuilds such a tree from leaves."""
    if isinstance(tree, dict):
        parts = [flatten(value) for value in tree.values()]
        keys = list(tree)

        def remake(made: list[Any]) -> Any:
            return type(tree)(zip(keys, made, strict=True))
    elif isinstance(tree, tuple | list):
        parts = [flatten(value) for value in tree]

        def remake(made: list[Any]) -> Any:
            return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    else:
        return [tree], lambda leaves: leaves[0]

    def rebuild(leaves: list[Any]) -> Any:
        made, start = [], 0
        for inner, build in parts:
            made.append(build(leaves[start : start + len(inner)]))
            start += len(inner)
        return remake(made)

    return [leaf for inner, _ in parts for leaf in inner], rebuild


def broadcast_prefix(prefix: Any, tree: Any, name: str) -> list[Any]:
    """The value of a prefix tree for each leaf of a tree; one value may stand for a whole subtree."""
    if isinstance(tree, dict | tuple | list) and isinstance(prefix, dict | tuple | list):
        if type(prefix) is not type(tree) and not (isinstance(prefix, tuple | list) and isinstance(tree, tuple | list)):
            raise ValueError(f"{name}: {prefix} does not fit the structure of what it is for")
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        if len(prefix) != len(tree) or (isinstance(tree, dict) and set(prefix) != set(tree)):
            raise ValueError(f"{name}: {prefix} does not fit the structure of what it is for")
        return [one for key in keys for one in broadcast_prefix(prefix[key], tree[key], name)]
    if isinstance(prefix, dict | tuple | list):
        raise ValueError(f"{name}: {prefix} does not fit the structure of what it is for")
    return [prefix] * len(flatten(tree)[0])
