"""`torch.library`: operations that a program defines. In GT each is the Python function that was given for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt import _absent, ops
from gt.autograd import Function

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "impl",
    "register_autograd",
    "register_fake",
    "register_kernel",
]

__getattr__ = _absent.getter(__name__)

_Function = Callable[..., Any]


class CustomOpDef:
    """An operation that `custom_op` defines: a function, with the gradient that `register_autograd` gives it.

    Args:
        name: `namespace::name`.
        fn: The function that computes it.
    """

    def __init__(self, name: str, fn: _Function) -> None:
        self._qualname = name
        self._fn = fn
        self._backward: _Function | None = None
        self._setup_context: _Function | None = None
        self.__doc__ = fn.__doc__
        ops.add(name, self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function; its gradient is the registered one, if there is one."""
        if self._backward is None:
            return self._fn(*args, **kwargs)
        return _differentiable(self, kwargs).apply(*args)

    def register_fake(self, fn: _Function, /) -> _Function:
        """Returns the function: results have the shapes that the operation computes."""
        return fn

    def register_kernel(self, device_types: Any, func: _Function | None = None, /) -> Any:  # noqa: ARG002
        """Returns the function, or a decorator that does: one function computes on all devices."""
        return func if func is not None else lambda fn: fn

    def register_vmap(self, func: _Function | None = None, /) -> Any:
        """Returns the function, or a decorator that does: `vmap` calls the operation itself."""
        return func if func is not None else lambda fn: fn

    def register_autograd(self, backward: _Function, /, *, setup_context: _Function | None = None) -> None:
        """Gives the operation a gradient.

        Args:
            backward: Called with a context and the gradients of the results; returns those of the arguments.
            setup_context: Called with the context, the arguments and the result, to keep what `backward` needs.
        """
        self._backward, self._setup_context = backward, setup_context


def _differentiable(op: CustomOpDef, kwargs: dict[str, Any]) -> type[Function]:
    """The `autograd.Function` that computes an operation and its registered gradient."""

    class Registered(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            result = op._fn(*args, **kwargs)
            if op._setup_context is not None:
                op._setup_context(ctx, args, result)
            return result

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            assert op._backward is not None
            return op._backward(ctx, *gradients)

    return Registered


def custom_op(
    name: str,
    fn: _Function | None = None,
    /,
    *,
    mutates_args: Any = (),  # noqa: ARG001
    device_types: Any = None,  # noqa: ARG001
    schema: str | None = None,  # noqa: ARG001
    tags: Any = None,  # noqa: ARG001
) -> Any:
    """Makes an operation of a function; also a decorator. `ops.namespace.name` calls it, too.

    Example:
        >>> @gt.library.custom_op("docs::double", mutates_args=())
        ... def double(x: gt.Tensor) -> gt.Tensor:
        ...     return 2 * x
        >>> gt.ops.docs.double(gt.ones(2))
        tensor([2., 2.])
    """
    return (lambda function: CustomOpDef(name, function)) if fn is None else CustomOpDef(name, fn)


class Library:
    """The operations of a namespace.

    Args:
        ns: The namespace.
        kind: `DEF`, `IMPL` or `FRAGMENT`; changes nothing.
        dispatch_key: Ignored.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:  # noqa: ARG002
        self.ns = ns

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:  # noqa: ARG002
        """The name of the operation in a schema, as `double(Tensor x) -> Tensor`; `impl` gives its function."""
        return schema.partition("(")[0]

    def impl(self, op_name: Any, fn: _Function, dispatch_key: str = "", **kwargs: Any) -> None:  # noqa: ARG002
        """Sets the function that computes an operation, for all devices.

        Functions for `Meta`, `Autograd` and `Autocast` keys are not needed: shapes, gradients and dtypes follow from
        what the operation computes.
        """
        if not dispatch_key.startswith(("Meta", "Auto")):
            ops.add(f"{self.ns}::{str(op_name).rpartition('::')[2]}", fn)


def define(qualname: str, schema: Any = None, *, lib: Any = None, tags: Any = ()) -> Any:  # noqa: ARG001
    """Declares an operation, whose function `impl` gives; also a decorator."""
    return (lambda fn: fn) if not isinstance(schema, str) else None


def impl(qualname: str, types: Any, func: _Function | None = None, *, lib: Any = None) -> Any:  # noqa: ARG001
    """Sets the function that computes an operation, for all devices; also a decorator."""

    def add(fn: _Function) -> _Function:
        ops.add(qualname, fn)
        return fn

    return add if func is None else add(func)


def _ignored(op: Any, func: _Function | None = None, /, **kwargs: Any) -> Any:  # noqa: ARG001
    return func if func is not None else lambda fn: fn


def register_fake(op: Any, func: _Function | None = None, /, *, lib: Any = None, **kwargs: Any) -> Any:  # noqa: ARG001
    """Returns the function, or a decorator that does: results have the shapes that the operation computes."""
    return _ignored(op, func)


def register_kernel(op: Any, device_types: Any, func: _Function | None = None, /, *, lib: Any = None) -> Any:  # noqa: ARG001
    """Sets the function that computes an operation, for all devices; also a decorator."""
    return impl(str(getattr(op, "_qualname", op)), device_types, func)


def register_autograd(
    op: Any,
    backward: _Function,
    /,
    *,
    setup_context: _Function | None = None,
    lib: Any = None,  # noqa: ARG001
) -> None:
    """Gives an operation of `custom_op` a gradient: see `CustomOpDef.register_autograd`.

    The gradient of every other operation follows from what it computes.
    """
    found = ops.find(op) if isinstance(op, str) else op
    if isinstance(found, CustomOpDef):
        found.register_autograd(backward, setup_context=setup_context)


impl_abstract = register_fake
