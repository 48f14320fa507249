"""`Graph`: the operations of a traced program in order, and Python code for them."""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from gt import _absent, _gt
from gt.fx.node import Node, Target, map_arg, qualified_name

__all__ = ["CodeGen", "Graph", "PythonCode"]

__getattr__ = _absent.getter(__name__)


# Names that code uses for other things.
RESERVED = frozenset({"self", "torch", "inf", "nan", "device", *dir(builtins)})


class PythonCode(NamedTuple):
    """The source of `forward`, and the values of its global names."""

    src: str
    globals: dict[str, Any]


class CodeGen:
    """The way in which a graph becomes code: the only one."""


class _Nodes:
    """The nodes of a graph in order."""

    def __init__(self, graph: Graph, step: str = "_next") -> None:
        self._graph, self._step = graph, step

    def __iter__(self) -> Iterator[Node]:
        root, step = self._graph._root, self._step
        node = getattr(root, step)
        while node is not root:
            # A node may be erased, or moved, while it is visited.
            following = getattr(node, step)
            if not node._erased:
                yield node
            node = getattr(node, step) if not node._erased else following

    def __reversed__(self) -> _Nodes:
        return _Nodes(self._graph, "_prev" if self._step == "_next" else "_next")

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Graph:
    """The operations of a program in order.

    Args:
        owning_module: The module whose attributes the nodes name.
        tracer_cls: The class of the tracer that made it.

    Example:
        >>> graph = gt.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> _ = graph.output(graph.call_function(gt.relu, (x,)))
        >>> gt.fx.GraphModule(gt.nn.Module(), graph)(gt.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def __init__(self, owning_module: Any = None, tracer_cls: type | None = None, tracer_extras: Any = None) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._names: set[str] = set()
        self._insert_before = self._root
        self.owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()

    @property
    def nodes(self) -> _Nodes:
        """The nodes in order."""
        return _Nodes(self)

    def _place(self, node: Node) -> int:
        return next(i for i, own in enumerate(self.nodes) if own is node)

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes with an operation, and with a target if one is given."""
        del sort
        return [node for node in self.nodes if node.op == op and target in (None, node.target)]

    def output_node(self) -> Node:
        """The node of the result."""
        return next(iter(self.find_nodes(op="output")))

    # Making nodes -----------------------------------------------------------------------------------------------

    def _name(self, wanted: str) -> str:
        name = re.sub(r"[^0-9a-zA-Z_]+", "_", wanted).strip() or "_unnamed"
        name = f"_{name}" if name[0].isdigit() else name
        base, number = re.sub(r"_\d+$", "", name) if name in self._names else name, 1
        while name in self._names or keyword.iskeyword(name) or name in RESERVED:
            name = f"{base}_{number}"
            number += 1
        self._names.add(name)
        return name

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Adds a node at the insertion point: see `Node`.

        Args:
            op: The operation.
            target: The function, or the name of what is called.
            args: The positional arguments.
            kwargs: The named arguments.
            name: The name of the result; one that follows from the target if not given.
            type_expr: The type of the result.
        """
        if name is None:
            text = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
            name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text.replace(".", "_").strip("_") or op).lower()
        node = Node(self, self._name(name), op, target, args or (), kwargs or {}, type_expr)
        self._insert_before.prepend(node)
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        """Adds an argument of the program."""
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Adds the reading of a parameter, a buffer or a module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        type_expr: Any = None,
        name: Any = None,
    ) -> Node:
        """Adds the call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """Adds the call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        """Adds the call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        """Adds the result of the program."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda node: node) -> Node:
        """Adds a copy of a node, whose arguments a function translates."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Adds copies of all nodes of a graph but the last; returns the copy of its result.

        Args:
            g: The graph.
            val_map: The copies by node, to which these are added.
            return_output_node: Whether to return the node of the result with it.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        result = made.graph_copy(self, {}, return_output_node=True)
        if result is not None:
            made.output(result[0], result[1].type)
        if memo is not None:
            memo[id(self)] = made
        return made

    # Changing the graph -----------------------------------------------------------------------------------------

    @contextmanager
    def inserting_before(self, n: Node | None = None) -> Iterator[None]:
        """In this `with` block, nodes are added before `n`; at the beginning if it is `None`."""
        before, self._insert_before = self._insert_before, self._root._next if n is None else n
        try:
            yield
        finally:
            self._insert_before = before

    def inserting_after(self, n: Node | None = None) -> Any:
        """In this `with` block, nodes are added behind `n`; at the end if it is `None`."""
        return self.inserting_before(self._root if n is None else n._next)

    def erase_node(self, to_erase: Node) -> None:
        """Removes a node that nobody uses.

        Raises:
            RuntimeError: Other nodes use it.
        """
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase._erased:
            return
        if self._insert_before is to_erase:
            self._insert_before = to_erase._next
        to_erase._set((), {})
        to_erase._remove()
        to_erase._erased = True

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Removes the nodes that nobody uses; returns whether there were any."""
        changed = False
        for node in reversed(self.nodes):
            impure = node.is_impure() if is_impure_node is None else is_impure_node(node)
            if not impure and not node.users:
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """Checks that names are unique and that nodes use only those before them.

        Raises:
            RuntimeError: They do not.
        """
        seen: set[Node] = set()
        names: set[str] = set()
        for node in self.nodes:
            for used in node.all_input_nodes:
                if used not in seen:
                    raise RuntimeError(f"Argument '{used}' of Node '{node}' was used before it has been defined!")
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)

    # Code -------------------------------------------------------------------------------------------------------

    def python_code(self, root_module: str = "self", **_options: Any) -> PythonCode:
        """The source of a function `forward` that does what the graph does."""
        names: dict[str, Any] = {}

        def known(value: Any, name: str) -> str:
            name = re.sub(r"[^0-9a-zA-Z_]+", "_", name)
            name = f"_{name}" if not name or name[0].isdigit() else name
            base, number = name, 1
            while (name in names and names[name] is not value) or name in self._names:
                name = f"{base}_{number}"
                number += 1
            names[name] = value
            return name

        def text(value: Any) -> str:
            if isinstance(value, Node):
                return value.name
            if isinstance(value, tuple) and not hasattr(value, "_fields"):
                return f"({', '.join(map(text, value))}{',' * (len(value) == 1)})"
            if isinstance(value, list):
                return f"[{', '.join(map(text, value))}]"
            if isinstance(value, dict):
                return "{" + ", ".join(f"{text(key)}: {text(part)}" for key, part in value.items()) + "}"
            if isinstance(value, slice):
                return f"slice({text(value.start)}, {text(value.stop)}, {text(value.step)})"
            if value is None or value is ... or type(value) in (bool, int, str, bytes):
                return repr(value) if value is not ... else "..."
            if type(value) is float and math.isfinite(value):
                return repr(value)
            if isinstance(value, tuple):
                return f"{known(type(value), type(value).__name__)}({', '.join(map(text, value))})"
            if isinstance(value, _gt.dtype):
                return known(value, f"torch_{value.name}")
            return known(value, f"_{type(value).__name__}")

        def call(node: Node, args: tuple[Any, ...]) -> str:
            return ", ".join([*map(text, args), *(f"{key} = {text(part)}" for key, part in node.kwargs.items())])

        def attribute(base: str, path: str) -> str:
            for part in path.split("."):
                base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
            return base

        free: list[str] = []
        lines: list[str] = []
        last = {used: node for node in self.nodes for used in node.all_input_nodes}
        for node in self.nodes:
            if node.op == "placeholder":
                name = str(node.target)
                default = f" = {text(node.args[0])}" if node.args else ""
                free.append(name + default)
                plain = name.lstrip("*")
                if plain != node.name:
                    lines.append(f"{node.name} = {plain}")
                continue
            if node.op == "output":
                lines.append(f"return {text(node.args[0])}")
                continue
            if node.op == "call_function":
                target = node.target
                value = f"{known(target, qualified_name(target).replace('.', '_'))}({call(node, node.args)})"
                if (
                    qualified_name(target) == "getattr"
                    and isinstance(node.args[1], str)
                    and node.args[1].isidentifier()
                ):
                    value = f"{text(node.args[0])}.{node.args[1]}"
            elif node.op == "call_method":
                value = f"{text(node.args[0])}.{node.target}({call(node, node.args[1:])})"
            elif node.op == "call_module":
                value = f"{attribute(root_module, str(node.target))}({call(node, node.args)})"
            else:
                value = attribute(root_module, str(node.target))
            # A result is dropped with its last use, as it would be in a program.
            done = [used.name for used in node.all_input_nodes if last[used] is node]
            dropped = f";  {' = '.join(done)} = None" if done else ""
            lines.append(f"{node.name} = {value}{dropped}")
        body = "\n    ".join(lines or ["pass"])
        return PythonCode(f"\n\n\ndef forward({', '.join(['self', *free])}):\n    {body}\n", names)

    def print_tabular(self) -> None:
        """Prints a line for each node."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [tuple(str(part) for part in (n.op, n.name, n.target, n.args, n.kwargs)) for n in self.nodes]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())  # noqa: T201

    def __str__(self) -> str:
        arguments = ", ".join(f"%{n.name}" for n in self.nodes if n.op == "placeholder")
        lines = [n.format_node() for n in self.nodes]
        return "\n    ".join([f"graph({arguments}):", *lines])
