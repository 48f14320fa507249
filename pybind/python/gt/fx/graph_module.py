"""`GraphModule`: a module whose `forward` is the code of a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
from typing import Any

from gt import _absent
from gt._gt import Tensor
from gt.fx.graph import Graph, PythonCode
from gt.fx.node import map_aggregate, map_arg
from gt.nn.module import Module

__all__ = ["GraphModule"]

__getattr__ = _absent.getter(__name__)

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_sources = itertools.count()


class _CodeOnlyModule(Module):
    """A module with the attributes of another."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Gives a module the attribute of another, with modules for the names on the way to it."""
    *path, last = target.split(".")
    for name in path:
        inner, made = getattr(from_module, name), getattr(to_module, name, None)
        if inner is made:
            return
        if made is None:
            made = Module()
            setattr(to_module, name, made)
        from_module, to_module = inner, made
    value = getattr(from_module, last)
    if isinstance(value, Tensor) and not value._is_parameter:
        to_module.register_buffer(last, value)
    else:
        setattr(to_module, last, value)


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Sets an attribute by its path, with modules for the names on the way to it."""
    *path, last = target.split(".")
    for name in path:
        made = getattr(to_module, name, None)
        if made is None:
            made = Module()
            setattr(to_module, name, made)
        to_module = made
    if isinstance(value, Tensor) and not value._is_parameter:
        to_module.register_buffer(last, value)
    else:
        setattr(to_module, last, value)


class GraphModule(Module):
    """A module that executes a graph.

    Its `forward` is Python code, `code`, that follows from `graph`. After a change of the graph, call `recompile()`.

    Args:
        root: The module, or a dict, with the parameters, buffers and modules that the graph names.
        graph: The graph.
        class_name: The name of the class.

    Example:
        >>> traced = gt.fx.symbolic_trace(gt.nn.Sequential(gt.nn.Linear(2, 3), gt.nn.ReLU()))
        >>> print(traced.code.strip())
        def forward(self, input):
            input_1 = input
            _0 = getattr(self, "0")(input_1);  input_1 = None
            _1 = getattr(self, "1")(_0);  _0 = None
            return _1
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG004 (as __init__)
        """An instance of a class of its own, of which `forward` is set."""
        base = next(known for known in cls.__mro__ if "_is_generated" not in vars(known))
        made = type(base.__name__, (base,), {"_is_generated": True, "__module__": base.__module__})
        return object.__new__(made)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            self.training = root.training
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if isinstance(root, Module):
                    _copy_attr(root, self, str(node.target))
                elif node.target in root:
                    _assign_attr(root[str(node.target)], self, str(node.target))
                else:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that target was not provided in ``root``!"
                    )
        self.graph = graph
        self._tracer_cls = graph._tracer_cls
        self.meta: dict[str, Any] = {}

    @property
    def graph(self) -> Graph:
        """The graph; assigning one compiles it."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        self._graph = graph
        graph.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of `forward`."""
        return self._code

    def recompile(self) -> PythonCode:
        """Makes `forward` of the graph as it is now."""
        made = self._graph.python_code(root_module="self")
        self._code = made.src
        name = f"<gt.fx graph {next(_sources)}>"
        names = dict(made.globals)
        exec(compile(made.src, name, "exec"), names)
        # Tracebacks show the lines.
        linecache.cache[name] = (len(made.src), None, made.src.splitlines(keepends=True), name)
        type(self).forward = names["forward"]  # type: ignore[method-assign]
        return made

    def add_submodule(self, target: str, m: Module) -> bool:
        """Adds a submodule by its path; returns whether that was possible."""
        _assign_attr(m, self, target)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Deletes a submodule by its path; returns whether there was one."""
        path, _, last = target.rpartition(".")
        try:
            delattr(self.get_submodule(path), last)
        except AttributeError:
            return False
        return True

    def delete_all_unused_submodules(self) -> None:
        """Deletes the submodules that the graph does not call."""
        used = [str(node.target) for node in self.graph.nodes if node.op in ("call_module", "get_attr")]
        for name, _ in list(self.named_modules()):
            if name and not any(
                f"{path}.".startswith(f"{name}.") or f"{name}.".startswith(f"{path}.") for path in used
            ):
                self.delete_submodule(name)

    def _deepcopy_init(self) -> Any:
        return GraphModule.__init__

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        body = {name: value for name, value in self.__dict__.items() if name not in ("_graph", "_code")}
        res = type(self).__new__(type(self))
        memo[id(self)] = res
        fake = _CodeOnlyModule(copy.deepcopy(body, memo))
        self._deepcopy_init()(res, fake, copy.deepcopy(self._graph), type(self).__name__)
        res.meta = copy.deepcopy(self.meta, memo)
        return res

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, copy.deepcopy(self._graph), type(self).__name__)
        made.meta = dict(self.meta)
        return made

    def __reduce__(self) -> Any:
        # Functions that the graph calls are pickled by their names.
        body = {name: value for name, value in self.__dict__.items() if name not in ("_graph", "_code")}
        nodes = [(n.op, n.target, n.args, n.kwargs, n.name) for n in self._graph.nodes]
        return _rebuilt, (body, _Packed.of(nodes), type(self).__name__)

    def print_readable(self, print_output: bool = True, **_options: Any) -> str:
        """The class name and the code, which are printed, too."""
        text = f"class {type(self).__name__}(torch.nn.Module):" + self._code.replace("\n", "\n    ")
        if print_output:
            print(text)  # noqa: T201
        return text

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self._code}"


class _Packed:
    """The nodes of a graph with names in place of nodes, to be pickled."""

    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = nodes

    @classmethod
    def of(cls, nodes: list[Any]) -> _Packed:
        """The nodes, packed."""
        return cls(
            [
                (op, target, map_arg(args, _Name.of), map_arg(kwargs, _Name.of), name)
                for op, target, args, kwargs, name in nodes
            ]
        )


class _Name:
    """The name of a node, in place of it."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def of(cls, node: Any) -> _Name:
        """The name of a node."""
        return cls(node.name)


def _rebuilt(body: dict[str, Any], packed: _Packed, class_name: str) -> GraphModule:
    """A graph module made of its attributes and nodes."""
    graph = Graph()
    known: dict[str, Any] = {}

    def named(part: Any) -> Any:
        return known[part.name] if isinstance(part, _Name) else part

    for op, target, args, kwargs, name in packed.nodes:
        known[name] = graph.create_node(op, target, map_aggregate(args, named), map_aggregate(kwargs, named), name)
    return GraphModule(_CodeOnlyModule(body), graph, class_name)
