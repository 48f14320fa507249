"""Trees: nested tuples, lists and dicts of tensors, under PyTorch's path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gt import _absent
from gt.func.trees import Rebuild, flatten

__getattr__ = _absent.getter(__name__)


class TreeSpec(NamedTuple):
    """The structure of a tree: a function that rebuilds it, and its number of leaves."""

    rebuild: Rebuild
    num_leaves: int

    def unflatten(self, leaves: Any) -> Any:
        """Builds the tree with the given leaves."""
        return tree_unflatten(leaves, self)


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree from left to right, and its structure."""
    leaves, rebuild = flatten(tree)
    return leaves, TreeSpec(rebuild, len(leaves))


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """Builds a tree of a structure with the given leaves."""
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
    """Applies a function to each leaf of a tree, and to the corresponding leaves of trees of the same structure."""
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
