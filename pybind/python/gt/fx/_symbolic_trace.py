"""`Tracer` and `symbolic_trace`: a program run once with proxies in place of values gives its graph."""

from __future__ import annotations

import builtins
import functools
import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, TypeVar

from gt import _absent
from gt._gt import Tensor
from gt.fx.graph import Graph
from gt.fx.graph_module import GraphModule
from gt.fx.proxy import Proxy, TracerBase
from gt.nn.containers import Sequential
from gt.nn.module import Module

__all__ = ["ProxyableClassMeta", "Tracer", "symbolic_trace", "wrap"]

__getattr__ = _absent.getter(__name__)

T = TypeVar("T", bound=Callable[..., Any] | str)

# The global names that `wrap` keeps whole: the dict of a module's names, and the name.
_wrapped: list[tuple[dict[str, Any], str]] = []


def wrap(fn_or_name: T) -> T:
    """Keeps calls of a function in one node: it is not traced through.

    It is called at a module's top level, with the name of a function, or as a decorator.

    Raises:
        RuntimeError: The argument is neither, or it is called elsewhere.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if caller is None or caller.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped.append((caller.f_globals, name))
    return fn_or_name


class ProxyableClassMeta(type):
    """The metaclass of classes whose constructor, called with proxies, becomes a node."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxies = [part for part in (*args, *kwargs.values()) if isinstance(part, Proxy)]
        if proxies:
            return proxies[0].tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def _kept_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of which a call with proxies becomes a node."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        found: list[Proxy] = []

        def look(part: Any) -> None:
            if isinstance(part, Proxy):
                found.append(part)
            elif isinstance(part, (list, tuple)):
                for inner in part:
                    look(inner)

        look((*args, *kwargs.values()))
        if found:
            return found[0].tracer.create_proxy("call_function", function, args, kwargs)
        return function(*args, **kwargs)

    return called


class Tracer(TracerBase):
    """Traces modules and functions.

    A derived class may say which modules are not traced through (`is_leaf_module`), and what becomes of calls.

    Args:
        autowrap_modules: Modules of Python whose functions are kept whole.
        autowrap_functions: Functions that are kept whole wherever the program names them.
        param_shapes_constant: Ignored: the shape of a parameter is known.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        self._whole = {
            id(value): value
            for module in autowrap_modules
            for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")
        }
        self._whole.update((id(function), function) for function in autowrap_functions)
        self._modules = autowrap_modules
        self.param_shapes_constant = param_shapes_constant
        self.root: Any = None
        self.graph = Graph()
        self.tensor_attrs: dict[int, str] = {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a module is not traced through: those of `gt.nn`, but for `Sequential`."""
        del module_qualified_name
        return type(m).__module__.startswith(("gt.nn", "torch.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The name of a module in the one that is traced.

        Raises:
            NameError: It is not in it.
        """
        for name, module in self.root.named_modules():
            if module is mod:
                return str(name)
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """The result of the call of a submodule: a node for a leaf, else that of its `forward`."""
        name = self.path_of_module(m)
        if self.is_leaf_module(m, name):
            return self.create_proxy("call_module", name, args, kwargs)
        return forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """The value of a module's attribute: a proxy for a parameter."""
        del attr
        if isinstance(attr_val, Tensor) and (attr_val._is_parameter or self.proxy_buffer_attributes):
            tensors = self.root.named_parameters() if attr_val._is_parameter else self.root.named_buffers()
            for name, tensor in tensors:
                if tensor is attr_val:
                    if name not in parameter_proxy_cache:
                        parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
                    return parameter_proxy_cache[name]
        return attr_val

    def _constant(self, part: Any) -> Any:
        """A tensor or module among the arguments as the attribute that it is."""
        if isinstance(part, Tensor):
            name = self.tensor_attrs.get(id(part))
            if name is None:
                known = [*self.root.named_parameters(), *self.root.named_buffers()]
                name = next((name for name, tensor in known if tensor is part), None)
            if name is None:
                number = 0
                while hasattr(self.root, f"_tensor_constant{number}"):
                    number += 1
                name = f"_tensor_constant{number}"
                object.__setattr__(self.root, name, part)
                self.tensor_attrs[id(part)] = name
            return self.create_node("get_attr", name, (), {})
        if isinstance(part, Module):
            return self.create_node("get_attr", self.path_of_module(part), (), {})
        return part

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """The program, and proxies for its arguments."""
        args: list[Any] = [self.root] if is_module else []
        code = inspect.unwrap(root_fn).__code__
        names = iter(code.co_varnames)
        count = code.co_argcount + code.co_kwonlyargcount
        parameters = inspect.signature(inspect.unwrap(root_fn)).parameters
        if is_module:
            next(names)
        concrete = concrete_args or {}
        for _ in range(count - is_module):
            name = next(names)
            if isinstance(concrete, dict) and name in concrete:
                args.append(concrete[name])
                continue
            default = parameters[name].default if name in parameters else inspect.Parameter.empty
            given = () if default is inspect.Parameter.empty else (default,)
            args.append(self.create_proxy("placeholder", name, given, {}))
        if code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            if code.co_flags & inspect.CO_VARARGS:
                args.append(self.create_proxy("placeholder", f"*{next(names)}", (), {}))
            if code.co_flags & inspect.CO_VARKEYWORDS:
                args.append(self.create_proxy("placeholder", f"**{next(names)}", (), {}))
        positional = code.co_argcount
        keywords = list(code.co_varnames[positional : positional + code.co_kwonlyargcount])

        def run(*values: Any) -> Any:
            plain = list(values[:positional])
            named = dict(zip(keywords, values[positional : positional + len(keywords)], strict=True))
            rest = values[positional + len(keywords) :]
            if code.co_flags & inspect.CO_VARARGS:
                plain.extend(_few(rest[0]))
            return root_fn(*plain, **named)

        return run, args

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module or function.

        Args:
            root: The module or function.
            concrete_args: Values of arguments, which are then no arguments of the graph.

        Raises:
            TraceError: What the program does depends on values.
        """
        if isinstance(root, Module):
            self.root = root
            function = type(root).forward
        else:
            self.root = Module()
            function = root  # type: ignore[assignment]
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {
            id(value): name
            for prefix, module in self.root.named_modules()
            for key, value in vars(module).items()
            if isinstance(value, Tensor)
            for name in [f"{prefix}.{key}" if prefix else key]
        }
        run, args = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
        with self._patched(function):
            result = run(*args)
        self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph

    @contextmanager
    def _patched(self, function: Callable[..., Any]) -> Iterator[None]:
        """In this `with` block, modules that are called and functions that are kept whole become nodes."""
        call, look_up = Module.__call__, Module.__getattr__
        proxies: dict[str, Any] = {}
        tracer = self

        def called(module: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                patch(getattr(type(module).forward, "__globals__", {}))
                return call(module, *args, **kwargs)

            return tracer.call_module(module, forward, args, kwargs)

        def looked_up(module: Module, name: str) -> Any:
            return tracer.getattr(name, look_up(module, name), proxies)

        before: list[tuple[dict[str, Any], str, Any]] = []
        seen: set[int] = set()

        def replace(names: dict[str, Any], name: str, value: Any) -> None:
            before.append((names, name, names.get(name, before)))
            names[name] = _kept_whole(value)

        def patch(names: dict[str, Any]) -> None:
            """Replaces the functions among a module's names that are kept whole."""
            if id(names) in seen:
                return
            seen.add(id(names))
            for name, value in list(names.items()):
                if id(value) in tracer._whole and not name.startswith("_"):
                    replace(names, name, value)

        for names, name in _wrapped:
            value = names.get(name, getattr(builtins, name, None))
            if callable(value):
                replace(names, name, value)
        for module in self._modules:
            for name, value in list(vars(module).items()):
                if id(value) in self._whole:
                    replace(vars(module), name, value)
        if isinstance(function, FunctionType):
            patch(function.__globals__)
        Module.__call__ = called  # type: ignore[method-assign]
        Module.__getattr__ = looked_up  # type: ignore[method-assign]
        try:
            yield
        finally:
            Module.__call__ = call  # type: ignore[method-assign]
            Module.__getattr__ = look_up  # type: ignore[method-assign]
            for names, name, value in reversed(before):
                if value is before:
                    del names[name]
                else:
                    names[name] = value


def _few(rest: Any) -> list[Any]:
    return [] if isinstance(rest, Proxy) else list(rest)


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A module that does what another module or a function does, as a graph that can be changed.

    The program runs once with proxies in place of tensors, so its control flow must not depend on their values.

    Args:
        root: The module or function.
        concrete_args: Values of arguments, which are then no arguments of the result.

    Raises:
        TraceError: What the program does depends on values.

    Example:
        >>> traced = gt.fx.symbolic_trace(lambda x: gt.relu(x) + 1)
        >>> traced(gt.tensor([-1.0, 2.0]))
        tensor([1., 3.])
        >>> [node.op for node in traced.graph.nodes]
        ['placeholder', 'call_function', 'call_function', 'output']
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
