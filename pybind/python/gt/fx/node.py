"""`Node`: one operation of a graph."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gt import _absent

if TYPE_CHECKING:
    from gt.fx.graph import Graph

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

__getattr__ = _absent.getter(__name__)

Target = Callable[..., Any] | str
Argument = Any
OPERATIONS = ("placeholder", "get_attr", "call_function", "call_module", "call_method", "output", "root")

# Functions whose calls stay in a graph, also if nobody uses the result.
_side_effects: set[Callable[..., Any]] = set()


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Says that calls of a function stay in a graph, also if nobody uses the result; returns the function."""
    _side_effects.add(fn)
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """Applies a function to each part of nested tuples, lists, dicts and slices."""
    if isinstance(a, tuple):
        parts = [map_aggregate(part, fn) for part in a]
        return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
    if isinstance(a, list):
        return [map_aggregate(part, fn) for part in a]
    if isinstance(a, dict):
        return {key: map_aggregate(part, fn) for key, part in a.items()}
    if isinstance(a, slice):
        return slice(*(map_aggregate(part, fn) for part in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """Applies a function to each node in nested arguments."""
    return map_aggregate(a, lambda part: fn(part) if isinstance(part, Node) else part)


class Node:
    """One operation of a graph.

    Attributes:
        graph: The graph.
        name: The name of its result, unique in the graph.
        op: `placeholder`, `get_attr`, `call_function`, `call_module`, `call_method` or `output`.
        target: The function, or the name of the argument, attribute, module or method.
        args: The positional arguments, in which nodes stand for their results.
        kwargs: The named arguments.
        users: The nodes that use the result, as the keys of a dict.
        meta: What passes remember of the node.
        type: The type of the result, if the program says so.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        return_type: Any = None,
    ) -> None:
        if op not in OPERATIONS:
            raise AssertionError(f"Node: op is one of {', '.join(OPERATIONS)}, but got {op!r}")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._prev = self._next = self
        self._erased = False
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._set(args, dict(kwargs))

    def _set(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for old in self._input_nodes:
            old.users.pop(self, None)
        self._args, self._kwargs, self._input_nodes = args, kwargs, {}
        map_arg((args, kwargs), self._uses)

    def _uses(self, node: Node) -> Node:
        self._input_nodes[node] = None
        node.users[self] = None
        return node

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self._args

    @args.setter
    def args(self, args: tuple[Any, ...]) -> None:
        self._set(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The named arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: Mapping[str, Any]) -> None:
        self._set(self._args, dict(kwargs))

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    @property
    def next(self) -> Node:
        """The node that follows in the graph."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before in the graph."""
        return self._prev

    @property
    def stack_trace(self) -> str | None:
        """Where the program made the operation, if that was recorded."""
        return self.meta.get("stack_trace")

    def update_arg(self, idx: int, arg: Any) -> None:
        """Replaces a positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Inserts a positional argument."""
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Replaces a named argument."""
        self.kwargs = {**self.kwargs, key: arg}

    def _remove(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Moves a node before this one."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._remove()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Moves a node behind this one."""
        self._next.prepend(x)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] = lambda _: True,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Puts another node in this one's place in the arguments of its users; returns these."""
        if propagate_meta:
            replace_with.meta.update(self.meta)
        users = [user for user in self.users if delete_user_cb(user)]
        for user in users:
            user.replace_input_with(self, replace_with)
        return users

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Puts one node in another's place in the arguments."""

        def replaced(node: Node) -> Node:
            return new_input if node is old_input else node

        self._set(map_arg(self._args, replaced), map_arg(self._kwargs, replaced))

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it stays in the graph, also if nobody uses its result."""
        del impure_random
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            return self.target in _side_effects or name in ("_assert", "setitem", "setattr")
        if self.op == "call_method":
            return str(self.target).endswith("_") and not str(self.target).endswith("__")
        if self.op == "call_module" and self.graph.owning_module is not None:
            return bool(getattr(self.graph.owning_module.get_submodule(str(self.target)), "_is_impure", False))
        return False

    def format_node(self) -> str:
        """One line that describes the node."""
        if self.op == "placeholder":
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]"
        if self.op == "get_attr":
            return f"%{self.name} : [num_users={len(self.users)}] = get_attr[target={self.target}]"
        if self.op == "output":
            return f"return {self.args[0] if self.args else None}"
        target = self.target if isinstance(self.target, str) else qualified_name(self.target)
        return (
            f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target}]"
            f"(args = {self.args}, kwargs = {self.kwargs})"
        )

    def __repr__(self) -> str:
        return self.name

    def __lt__(self, other: Node) -> bool:
        return self.graph._place(self) < self.graph._place(other)


def qualified_name(func: Any) -> str:
    """The name of a function with its module, as it is printed."""
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", None) or type(func).__name__
    if getattr(builtins, name, None) is func:
        return name
    module = getattr(func, "__module__", None) or ""
    if isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        module, name = "torch", f"Tensor.{func.__name__}"
    module = "torch" + module.removeprefix("gt") if module == "gt" or module.startswith("gt.") else module
    return f"{module.replace('_operator', 'operator')}.{name}" if module else name
