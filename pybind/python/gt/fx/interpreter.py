"""`Interpreter` executes a graph node by node, and `Transformer` makes another graph of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gt import _absent
from gt.fx.graph import Graph
from gt.fx.graph_module import GraphModule
from gt.fx.node import Node, map_arg
from gt.fx.proxy import Proxy, TracerBase
from gt.nn.module import Module

__all__ = ["Interpreter", "Transformer"]

__getattr__ = _absent.getter(__name__)


class Interpreter:
    """Executes the graph of a module node by node; a derived class may change what each kind of node does.

    Args:
        module: The module.
        garbage_collect_values: Whether results are dropped after their last use.
        graph: The graph; the module's if not given.

    Example:
        >>> traced = gt.fx.symbolic_trace(lambda x: x + 1)
        >>> gt.fx.Interpreter(traced).run(gt.ones(2))
        tensor([2., 2.])
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.graph: Any = module.graph if graph is None else graph
        self.submodules = dict(module.named_modules())
        self.env: dict[Node, Any] = {}
        self.garbage_collect_values = garbage_collect_values

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """The result of the graph for arguments."""
        del enable_io_processing
        self.env = dict(initial_env or {})
        self.args_iter: Iterator[Any] = iter(args)
        last = {used: node for node in self.graph.nodes for used in node.all_input_nodes}
        for node in self.graph.nodes:
            if node in self.env:
                continue
            self.env[node] = self.run_node(node)
            if node.op == "output":
                return self.env[node]
            if self.garbage_collect_values:
                for used in node.all_input_nodes:
                    if last[used] is node:
                        self.env.pop(used, None)
        return None

    def run_node(self, n: Node) -> Any:
        """The result of a node."""
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, with results in place of nodes."""
        return self.map_nodes_to_values(n.args, n), self.map_nodes_to_values(n.kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """Nested arguments with results in place of nodes."""
        del n
        return map_arg(args, lambda node: self.env[node])

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An argument of the graph."""
        del kwargs
        if str(target).startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def fetch_attr(self, target: str) -> Any:
        """The value of an attribute by its path."""
        value: Any = self.module
        for name in target.split("."):
            value = getattr(value, name)
        return value

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The value of a parameter, buffer or module."""
        del args, kwargs
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a method of the first argument."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of a submodule."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of the graph."""
        del target, kwargs
        return args[0]


class Transformer(Interpreter):
    """Makes another module of a module's graph; a derived class changes what becomes of each kind of node.

    Example:
        >>> class Negative(gt.fx.Transformer):
        ...     def call_function(self, target, args, kwargs):
        ...         return -super().call_function(target, args, kwargs)
        >>> Negative(gt.fx.symbolic_trace(lambda x: gt.exp(x))).transform()(gt.zeros(1))
        tensor([-1.])
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = TracerBase()
        self.tracer.graph = self.new_graph
        self.tracer.root = module  # type: ignore[attr-defined]

    def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
        """An argument of the new graph."""
        del kwargs
        return Proxy(self.new_graph.placeholder(target, default_value=args[0] if args else ...), self.tracer)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The reading of an attribute in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call of a function in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call of a method in the new graph."""
        return self.tracer.create_proxy("call_method", target, args, kwargs)

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call of a submodule in the new graph."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph."""
        result = super().run()
        if result is not None:
            self.new_graph.output(self.tracer.create_arg(result))
        return GraphModule(self.module, self.new_graph, type(self.module).__name__)
