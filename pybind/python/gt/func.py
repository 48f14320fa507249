"""Functions of functions: `grad`, `vjp`, `jacrev`, and `functional_call`, which gives a module its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from gt import _absent, _gt, autograd
from gt._gt import Tensor
from gt.autograd import functional

__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacrev", "vjp", "vmap"]

__getattr__ = _absent.getter(__name__)


def grad_and_value(
    func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """The function that gives the gradient of a scalar `func` by some of its arguments, and its value."""
    numbers = (argnums,) if isinstance(argnums, int) else argnums

    def gradient(*args: Any, **kwargs: Any) -> Any:
        own = list(args)
        records = _gt.set_grad_enabled(True)
        try:
            for i in numbers:
                # A place of its own on the tape, behind which it goes on.
                own[i] = args[i].view_as(args[i]) if args[i].requires_grad else args[i].detach().requires_grad_()
            found = func(*own, **kwargs)
            value, aux = found if has_aux else (found, None)
            if not isinstance(value, Tensor) or value.ndim:
                raise RuntimeError("grad: the function must return a scalar tensor, but it returned something else")
            follow = records and any(args[i].requires_grad for i in numbers)
            grads = autograd.grad(value, [own[i] for i in numbers], create_graph=follow, materialize_grads=True)
        finally:
            _gt.set_grad_enabled(records)
        result = grads[0] if isinstance(argnums, int) else tuple(grads)
        value = value if follow else value.detach()
        return (result, (value, aux)) if has_aux else (result, value)

    return gradient


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The function that gives the gradient of a scalar `func` by some of its arguments."""
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def vjp(func: Callable[..., Any], *primals: Tensor) -> tuple[Any, Callable[..., tuple[Tensor, ...]]]:
    """`func(*primals)`, and the function that multiplies a vector with its Jacobian."""
    leaves = tuple(t.detach().requires_grad_() for t in primals)
    records = _gt.set_grad_enabled(True)
    try:
        result = func(*leaves)
    finally:
        _gt.set_grad_enabled(records)

    def product(*vectors: Tensor) -> tuple[Tensor, ...]:
        several = result if isinstance(result, tuple) else (result,)
        return autograd.grad(several, leaves, vectors, retain_graph=True, materialize_grads=True)

    detached = tuple(t.detach() for t in result) if isinstance(result, tuple) else result.detach()
    return detached, product


def _of_argument(function: Callable[..., Any], func: Callable[..., Any], argnum: int) -> Callable[..., Any]:
    def derivative(*args: Any) -> Any:
        return function(lambda t: func(*args[:argnum], t, *args[argnum + 1 :]), args[argnum], create_graph=True)

    return derivative


def jacrev(func: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The function that gives the derivatives of `func` by one of its arguments."""
    return _of_argument(functional.jacobian, func, argnums)


def hessian(func: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The function that gives the second derivatives of a scalar `func` by one of its arguments."""
    return _of_argument(functional.hessian, func, argnums)


def vmap(*_args: Any, **_kwargs: Any) -> NoReturn:
    """Not there."""
    raise NotImplementedError("vmap is not there: give the function a batch, whose axis most operations let through")


def functional_call(
    module: Any, parameter_and_buffer_dicts: Mapping[str, Tensor], args: Any = None, kwargs: Any = None
) -> Any:
    """What a module computes with other parameters and buffers in place of its own, by dotted name."""
    args = args if isinstance(args, tuple) else () if args is None else (args,)
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for path, value in parameter_and_buffer_dicts.items():
            parent, _, name = path.rpartition(".")
            owner = module.get_submodule(parent)
            registry = owner._parameters if name in owner._parameters else owner._buffers
            if name not in registry:
                raise KeyError(f"the module has no parameter or buffer {path!r}")
            before.append((registry, name, registry[name]))
            registry[name] = value
        return module(*args, **(kwargs or {}))
    finally:
        for registry, name, value in reversed(before):
            registry[name] = value
