"""Pytrees: nested tuples, lists and dicts. Everything else in them, such as a tensor or `None`, is a leaf.

The module's name and its functions' names are PyTorch's. The traversal is in `gt.func.trees`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gt import _absent
from gt.func.trees import Rebuild, flatten

__getattr__ = _absent.getter(__name__)


class TreeSpec(NamedTuple):
    """The structure of a tree: a function that rebuilds it from its leaves, and the number of leaves."""

    rebuild: Rebuild
    num_leaves: int

    def unflatten(self, leaves: Any) -> Any:
        """Builds a tree of this structure from its leaves: see `tree_unflatten`."""
        return tree_unflatten(leaves, self)


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree from left to right, and the structure to rebuild it by `tree_unflatten`.

    Example:
        >>> from gt.utils import _pytree
        >>> leaves, spec = _pytree.tree_flatten({"a": 1, "b": (2, 3)})
        >>> leaves
        [1, 2, 3]
        >>> _pytree.tree_unflatten([10, 20, 30], spec)
        {'a': 10, 'b': (20, 30)}
    """
    leaves, rebuild = flatten(tree)
    return leaves, TreeSpec(rebuild, len(leaves))


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """Builds a tree from its leaves.

    Args:
        leaves: The leaves, from left to right.
        treespec: The structure, as `tree_flatten` returned it.

    Raises:
        ValueError: The structure has another number of leaves.
    """
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
            f"holds {treespec.num_leaves} items"
        )
    return treespec.rebuild(leaves)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a tree from left to right."""
    return flatten(tree)[0]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any) -> Any:
    """Applies a function to each leaf of a tree; the results form a tree of the same structure.

    Args:
        func: The function. It takes a leaf of `tree`, and the corresponding leaf of each of `rests`.
        tree: The tree.
        *rests: More trees, with the same number of leaves.

    Example:
        >>> from gt.utils import _pytree
        >>> _pytree.tree_map(lambda a, b: a + b, {"x": 1, "y": [2]}, {"x": 10, "y": [20]})
        {'x': 11, 'y': [22]}
    """
    leaves, rebuild = flatten(tree)
    return rebuild([func(*each) for each in zip(leaves, *map(tree_leaves, rests), strict=True)])


def tree_map_only(type_or_types: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """Applies a function to the leaves of the given types; other leaves stay as they are."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, type_or_types) else leaf, tree)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether a predicate is true for all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether a predicate is true for any leaf."""
    return any(map(pred, tree_leaves(tree)))
