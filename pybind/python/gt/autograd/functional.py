"""Jacobians, Hessians, and their products with vectors, of functions of tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from gt import _tape
from gt._autograd import enable_grad
from gt._functions import top
from gt._gt import Tensor
from gt.func.derivatives import rows_of_jacobian

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

Tensors = Tensor | Sequence[Tensor]


def _tuple(value: Any, name: str, function: str) -> tuple[Tensor, ...]:
    several = value if isinstance(value, tuple) else tuple(value) if isinstance(value, list) else (value,)
    for i, t in enumerate(several):
        if not isinstance(t, Tensor):
            raise TypeError(
                f"The {name} given to {function} must be either a Tensor or a tuple of Tensors but the value at index "
                f"{i} has type {type(t)}."
            )
    return several


def _leaves(inputs: Any, function: str, create_graph: bool) -> tuple[Tensor, ...]:
    """Copies of the inputs as new tape nodes, connected to the caller's graph only with `create_graph`."""
    several = _tuple(inputs, "inputs", function)
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in several)


def _gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    seeds: Sequence[Tensor | None],
    create_graph: bool,
    strict: bool,
) -> list[Tensor]:
    """The gradient of each input; zeros, or an error if `strict`, where the outputs do not depend on it."""
    live = [(out, seed) for out, seed in zip(outputs, seeds, strict=True) if out.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if live:
        roots, weights = zip(*live, strict=True)
        found = _tape.gradients(roots, weights, inputs, True, create_graph)
    if strict and any(gradient is None for gradient in found):
        raise RuntimeError(
            f"Output of the user-provided function is independent of input {[g is None for g in found].index(True)}. "
            "This is not allowed in strict mode."
        )
    return [top.zeros_like(t) if gradient is None else gradient for gradient, t in zip(found, inputs, strict=True)]


def _like(value: tuple[Any, ...], shaped_as: Any) -> Any:
    return value if isinstance(shaped_as, tuple | list) else value[0]


def jacobian(
    func: Callable[..., Any],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of a function: the derivative of each output element with respect to each input element.

    Args:
        func: A function of tensors that returns a tensor or a tuple of them.
        inputs: Its arguments: a tensor or a tuple of them.
        create_graph: Whether the result is differentiable.
        strict: Whether an input that the outputs do not depend on is an error.
        vectorize: Ignored: all output elements are computed at once where that is possible.
        strategy: `"reverse-mode"`; `"forward-mode"` gives the same values.

    Returns:
        A tensor of shape `output.shape + input.shape`; tuples for several outputs, of tuples for several inputs.

    Example:
        >>> gt.autograd.functional.jacobian(lambda x: x * x, gt.tensor([1.0, 2.0]))
        tensor([[2., 0.],
                [0., 4.]])
    """
    del vectorize
    if strategy != "reverse-mode":
        raise NotImplementedError(f"jacobian: strategy {strategy!r} is not there: use 'reverse-mode'")
    with enable_grad():
        leaves = _leaves(inputs, "jacobian", create_graph)
        result = func(*leaves)
        outputs = _tuple(result, "outputs of the user-provided function", "jacobian")
        if strict:
            for output in outputs:
                # One element tells which inputs the outputs depend on.
                _gradients([output.sum()], leaves, [None], create_graph, strict)
        gradients = functools.partial(_gradients, strict=False)
        rows = [tuple(rows_of_jacobian(output, list(leaves), gradients, create_graph)) for output in outputs]
    return _like(tuple(_like(row, inputs) for row in rows), result)


def hessian(
    func: Callable[..., Any],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a scalar function: its second derivatives, nested as by `jacobian`.

    Args:
        func: A function of tensors that returns a scalar.
        inputs: Its arguments: a tensor or a tuple of them.
        create_graph: Whether the result is differentiable.
        strict: Whether an input that the output does not depend on is an error.
        vectorize: Ignored, as by `jacobian`.
        outer_jacobian_strategy: `"reverse-mode"`; `"forward-mode"` gives the same values.

    Example:
        >>> gt.autograd.functional.hessian(lambda x: (x**3).sum(), gt.tensor([1.0, 2.0]))
        tensor([[ 6.,  0.],
                [ 0., 12.]])
    """
    several = inputs if isinstance(inputs, tuple) else (inputs,)

    def scalar(*points: Tensor) -> Tensor:
        value = func(*points)
        if not isinstance(value, Tensor):
            raise RuntimeError("The function given to hessian should return a single Tensor")
        if value.numel() != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to hessian should contain a single element: {value.shape}"
            )
        return value.reshape(())

    def slope(*points: Tensor) -> Any:
        return jacobian(scalar, points, create_graph=True)

    found = jacobian(slope, several, create_graph, strict, vectorize, outer_jacobian_strategy)
    return found if isinstance(inputs, tuple) else found[0][0]


def _vectors(v: Any, like: Sequence[Tensor], function: str) -> list[Tensor | None]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                "The vector v can only be None if the user-provided function returns a single Tensor with a single "
                "element."
            )
        return [None]
    several = _tuple(v, "v", function)
    for i, (vector, t) in enumerate(zip(several, like, strict=True)):
        if vector.shape != t.shape:
            raise RuntimeError(f"Entry {i} of v has invalid size: should be {t.shape} but got {vector.shape}.")
    return list(several)


def _detached(value: Any, create_graph: bool) -> Any:
    if create_graph:
        return value
    return tuple(t.detach() for t in value) if isinstance(value, tuple) else value.detach()


def vjp(
    func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Vector-Jacobian product: returns `func(*inputs)` and `v^T J`, for `v` of the outputs' shape."""
    with enable_grad():
        leaves = _leaves(inputs, "vjp", create_graph)
        result = func(*leaves)
        outputs = _tuple(result, "outputs of the user-provided function", "vjp")
        found = _gradients(outputs, leaves, _vectors(v, outputs, "vjp"), create_graph, strict)
    return _detached(result, create_graph), _like(tuple(found), inputs)


def jvp(
    func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Jacobian-vector product: returns `func(*inputs)` and `J v`, for `v` of the inputs' shape.

    It is computed by the double-backward trick: `u^T J` is linear in `u`, and its derivative along `v` is `J v`.
    """
    with enable_grad():
        leaves = _leaves(inputs, "jvp", create_graph)
        result = func(*leaves)
        outputs = _tuple(result, "outputs of the user-provided function", "jvp")
        dummies = [top.zeros_like(output).requires_grad_() for output in outputs]
        backwards = _gradients(outputs, leaves, dummies, True, strict)
        if v is None:
            v = tuple(top.ones_like(t) for t in leaves) if _vectors(None, leaves, "jvp") else None
        vectors = _vectors(v, leaves, "jvp")
        found = _gradients(backwards, dummies, vectors, create_graph, False)
    return _detached(result, create_graph), _like(tuple(found), result)


def vhp(
    func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Vector-Hessian product of a scalar function: returns `func(*inputs)` and `v^T H`."""
    with enable_grad():
        leaves = _leaves(inputs, "vhp", create_graph)
        result = func(*leaves)
        if not isinstance(result, Tensor) or result.numel() != 1:
            raise RuntimeError("The function given to vhp should return a single Tensor with a single element")
        slopes = _gradients([result], leaves, [None], True, strict)
        found = _gradients(slopes, leaves, _vectors(v, leaves, "vhp"), create_graph, strict)
    return _detached(result, create_graph), _like(tuple(found), inputs)


# The Hessian is symmetric.
hvp = vhp
