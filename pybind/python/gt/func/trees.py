"""Trees: nested tuples, lists and dicts of tensors, the arguments and results of function transforms."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Rebuild = Callable[[list[Any]], Any]


class NodeType(NamedTuple):
    """How values of a type are taken apart into children and a context, and made of them again."""

    flatten: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten: Callable[[list[Any], Any], Any]

    @property
    def flatten_fn(self) -> Callable[[Any], tuple[Iterable[Any], Any]]:
        """PyTorch's name of `flatten`."""
        return self.flatten

    @property
    def unflatten_fn(self) -> Callable[[list[Any], Any], Any]:
        """PyTorch's name of `unflatten`."""
        return self.unflatten


def _dict_of(values: Iterable[Any], keys: list[Any]) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))


# The types that `utils._pytree.register_pytree_node` adds to, apart from classes derived from these and named tuples.
NODE_TYPES: dict[type, NodeType] = {
    tuple: NodeType(lambda node: (node, None), lambda children, _: tuple(children)),
    list: NodeType(lambda node: (node, None), lambda children, _: list(children)),
    dict: NodeType(lambda node: (node.values(), list(node)), _dict_of),
    OrderedDict: NodeType(
        lambda node: (node.values(), list(node)), lambda children, keys: OrderedDict(_dict_of(children, keys))
    ),
    defaultdict: NodeType(
        lambda node: (node.values(), (node.default_factory, list(node))),
        lambda children, context: defaultdict(context[0], _dict_of(children, context[1])),
    ),
    deque: NodeType(lambda node: (node, node.maxlen), lambda children, longest: deque(children, longest)),
}


def node_type(kind: type) -> NodeType | None:
    """How values of a type are taken apart; None if they are leaves."""
    if kind in NODE_TYPES:
        return NODE_TYPES[kind]
    if issubclass(kind, tuple):
        make: Callable[[Any], Any] = getattr(kind, "_make", kind)
        return NodeType(lambda node: (node, None), lambda children, _: make(children))
    if issubclass(kind, list):
        return NodeType(lambda node: (node, None), lambda children, _: kind(children))
    if issubclass(kind, dict):
        return NodeType(
            lambda node: (node.values(), list(node)), lambda children, keys: kind(zip(keys, children, strict=True))
        )
    return None


def flatten(tree: Any) -> tuple[list[Any], Rebuild]:
    """The leaves of a tree from left to right, and a function that rebuilds such a tree from leaves."""
    kind = node_type(type(tree))
    if kind is None:
        return [tree], lambda leaves: leaves[0]
    children, context = kind.flatten(tree)
    parts = [flatten(child) for child in children]

    def rebuild(leaves: list[Any]) -> Any:
        made, start = [], 0
        for inner, build in parts:
            made.append(build(leaves[start : start + len(inner)]))
            start += len(inner)
        return kind.unflatten(made, context)

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
