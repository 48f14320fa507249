"""`Proxy`: a value of a program that is traced; each operation on it becomes a node of the graph."""

from __future__ import annotations

import dis
import inspect
import operator
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from gt import _absent, _gt, overrides
from gt.fx.graph import Graph
from gt.fx.node import Node, Target, map_aggregate

__all__ = ["Attribute", "GraphAppendingTracer", "Proxy", "TraceError", "TracerBase"]

__getattr__ = _absent.getter(__name__)


class TraceError(ValueError):
    """A program cannot be traced: what it does depends on values."""


class TracerBase:
    """The base of tracers: makes nodes of operations and proxies of nodes."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    param_shapes_constant = False

    def create_node(
        self, kind: str, target: Target, args: Any, kwargs: Any, name: str | None = None, type_expr: Any = None
    ) -> Node:
        """Adds a node to the graph."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """A proxy of a node's result."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: Any,
        kwargs: Any,
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Any:
        """Adds a node to the graph; returns a proxy of its result."""
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Any:
        """An argument as a node holds it: nodes in place of proxies."""
        return map_aggregate(a, lambda part: part.node if isinstance(part, Proxy) else self._constant(part))

    def _constant(self, part: Any) -> Any:
        return part

    def to_bool(self, obj: Proxy) -> bool:
        """Raises `TraceError`: the program branches on a value."""
        del obj
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The parts of a value that the program unpacks into a known number of names.

        Raises:
            TraceError: The program iterates otherwise, as in a loop.
        """
        frame: FrameType | None = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        if frame is not None:
            code = [one for one in dis.get_instructions(frame.f_code) if one.offset >= frame.f_lasti]
            found = next((one for one in code[:2] if one.opname == "UNPACK_SEQUENCE"), None)
            if found is not None:
                return (obj[i] for i in range(int(found.argval)))
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what "
            "types of control flow can be traced, and check out the Proxy docstring for help troubleshooting Proxy "
            "iteration errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """The keys of a value that the program passes as `**value`."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """A tracer that adds to a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


class Proxy:
    """A value of a program that is traced.

    Args:
        node: The node of which it is the result.
        tracer: The tracer.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        _gt.activate_overrides()
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k.startswith("__array") or k in ("__dlpack__", "__index__", "__torch_function__"):
            raise AttributeError(k)
        return Attribute(self, k)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a call of the value."""
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    def __index__(self) -> int:
        raise TraceError("a traced value is no index of a Python sequence: its number is not known yet")

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Adds the call of a function or of a method of tensors."""
        del types
        kwargs = kwargs or {}
        tracers: list[TracerBase] = []
        map_aggregate((args, kwargs), lambda part: tracers.append(part.tracer) if isinstance(part, Proxy) else None)
        name = getattr(func, "__name__", "")
        if overrides.is_tensor_method_or_property(func):
            return tracers[0].create_proxy("call_method", name, args, kwargs)
        return tracers[0].create_proxy("call_function", func, args, kwargs)


class Attribute(Proxy):
    """An attribute of a traced value: a method that is called, or a value that is read."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr = root, attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node that reads the attribute, which is made when it is needed."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a call of the method."""
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


_FORWARD = """
    add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor getitem eq ne lt gt le ge
""".split()
_REFLECTED = "add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor".split()
_UNARY = "neg pos invert abs".split()


def _operator(name: str, reflected: bool) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(*args: Any) -> Any:
        return args[0].tracer.create_proxy("call_function", function, args[::-1] if reflected else args, {})

    return method


for _name in (*_FORWARD, *_UNARY):
    setattr(Proxy, f"__{_name.strip('_')}__", _operator(_name, False))
for _name in _REFLECTED:
    setattr(Proxy, f"__r{_name.strip('_')}__", _operator(_name, True))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
