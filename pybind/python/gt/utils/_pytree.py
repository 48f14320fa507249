"""Pytrees: nested tuples, lists, dicts and registered types. Everything else in them, as a tensor or `None`, is a leaf.

The module's name and its functions' names are PyTorch's. The traversal is in `gt.func.trees`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gt import _absent
from gt.func.trees import NODE_TYPES, NodeType, flatten, node_type

__getattr__ = _absent.getter(__name__)


class MappingKey(NamedTuple):
    """The place of a child in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


class SequenceKey(NamedTuple):
    """The place of a child in a tuple or list."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx}]"


KeyPath = tuple[Any, ...]


@dataclass(frozen=True, eq=True)
class TreeSpec:
    """The structure of a tree: the type of its root, what that type keeps besides children, and their structures."""

    type: Any
    context: Any
    children_specs: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        return 1 if self.is_leaf() else sum(child.num_leaves for child in self.children_specs)

    @property
    def num_children(self) -> int:
        """The number of children of the root."""
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        """Whether the tree is a leaf."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Builds a tree of this structure from its leaves: see `tree_unflatten`."""
        return tree_unflatten(leaves, self)

    def _build(self, leaves: Any) -> Any:
        if self.is_leaf():
            return next(leaves)
        kind = node_type(self.type)
        assert kind is not None  # `tree_flatten` found it
        return kind.unflatten([child._build(leaves) for child in self.children_specs], self.context)


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, ())


PyTree = Any
# The types that are taken apart, apart from classes derived from these and named tuples.
SUPPORTED_NODES = NODE_TYPES


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    **options: Any,  # noqa: ARG001 (names and keys for files and messages)
) -> None:
    """Makes a type's values nodes of trees rather than leaves.

    Args:
        cls: The type.
        flatten_fn: Takes a value; returns its children, and a context that says what else it holds.
        unflatten_fn: Takes children and the context; returns a value.
        **options: PyTorch's other arguments; they change nothing.
    """
    NODE_TYPES[cls] = NodeType(flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[MappingKey, Any]], list[Any]]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _get_node_type(tree: Any) -> Any:
    return type(tree)


def _is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return _leaf(tree, is_leaf) is None


def _leaf(value: Any, is_leaf: Callable[[Any], bool] | None) -> NodeType | None:
    return None if is_leaf is not None and is_leaf(value) else node_type(type(value))


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree from left to right, and the structure to rebuild it by `tree_unflatten`.

    Args:
        tree: The tree.
        is_leaf: Says of a value whether it is a leaf in any case.

    Example:
        >>> from gt.utils import _pytree
        >>> leaves, spec = _pytree.tree_flatten({"a": 1, "b": (2, 3)})
        >>> leaves
        [1, 2, 3]
        >>> _pytree.tree_unflatten([10, 20, 30], spec)
        {'a': 10, 'b': (20, 30)}
    """
    kind = _leaf(tree, is_leaf)
    if kind is None:
        return [tree], LeafSpec()
    children, context = kind.flatten(tree)
    parts = [tree_flatten(child, is_leaf) for child in children]
    spec = TreeSpec(type(tree), context, tuple(inner for _, inner in parts))
    return [leaf for leaves, _ in parts for leaf in leaves], spec


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
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
    return treespec._build(iter(leaves))


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure of a tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree from left to right."""
    return flatten(tree)[0] if is_leaf is None else tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Applies a function to each leaf of a tree; the results form a tree of the same structure.

    Args:
        func: The function. It takes a leaf of `tree`, and the corresponding leaf of each of `rests`.
        tree: The tree.
        *rests: More trees, with the same number of leaves.
        is_leaf: Says of a value whether it is a leaf in any case.

    Example:
        >>> from gt.utils import _pytree
        >>> _pytree.tree_map(lambda a, b: a + b, {"x": 1, "y": [2]}, {"x": 10, "y": [20]})
        {'x': 11, 'y': [22]}
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    return tree_unflatten([func(*each) for each in zip(leaves, *others, strict=True)], spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Applies a function to each leaf of a tree, and returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """Applies a function to the leaves of the given types; other leaves stay as they are."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, type_or_types) else leaf, tree)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether a predicate is true for all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether a predicate is true for any leaf."""
    return any(map(pred, tree_leaves(tree)))
