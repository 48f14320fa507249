"""Tensors in tuples, lists and dictionaries, one in another, under PyTorch's path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from gt import _absent
from gt.func.trees import Rebuild, flatten

__getattr__ = _absent.getter(__name__)


class TreeSpec(NamedTuple):
    """What makes a tree of leaves, and how many it takes."""

    rebuild: Rebuild
    num_leaves: int

    def unflatten(self, leaves: Any) -> Any:
        """The tree of these leaves."""
        return tree_unflatten(leaves, self)


def tree_flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree, from the left, and what makes a tree of as many."""
    leaves, rebuild = flatten(tree)
    return leaves, TreeSpec(rebuild, len(leaves))


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> Any:
    """The tree of these leaves."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
            f"holds {treespec.num_leaves} items"
        )
    return treespec.rebuild(leaves)


def tree_leaves(tree: Any) -> list[Any]:
    """The leaves of a tree, from the left."""
    return flatten(tree)[0]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any) -> Any:
    """A tree of what a function makes of each leaf, and of those in its place in other trees of the same form."""
    leaves, rebuild = flatten(tree)
    return rebuild([func(*each) for each in zip(leaves, *map(tree_leaves, rests), strict=True)])


def tree_map_only(type_or_types: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """`tree_map` of the leaves of some types; the others stay."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, type_or_types) else leaf, tree)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether all leaves are as asked."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether a leaf is as asked."""
    return any(map(pred, tree_leaves(tree)))
