"""Whole derivatives of functions of tensors: `jacobian`, `hessian`, and products with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gt import _gt
from gt._autograd import enable_grad
from gt._gt import Tensor

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
    """The inputs as places of their own on the tape, behind which it goes on only with `create_graph`."""
    several = _tuple(inputs, "inputs", function)
    return tuple(t.view_as(t) if create_graph and t.requires_grad else t.detach().requires_grad_() for t in several)


def _gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    seeds: Sequence[Tensor | None],
    create_graph: bool,
    strict: bool,
) -> list[Tensor]:
    """One for each input: zeros, or with `strict` an error, where the outputs do not depend on it."""
    live = [(out, seed) for out, seed in zip(outputs, seeds, strict=True) if out.requires_grad]
    found: Sequence[Tensor | None] = [None] * len(inputs)
    if live:
        roots, weights = zip(*live, strict=True)
        found = _gt.gradients(roots, weights, inputs, True, create_graph)
    if strict and any(gradient is None for gradient in found):
        raise RuntimeError(
            f"Output of the user-provided function is independent of input {[g is None for g in found].index(True)}. "
            "This is not allowed in strict mode."
        )
    return [_gt.zeros_like(t) if gradient is None else gradient for gradient, t in zip(found, inputs, strict=True)]


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
    """The derivative of each element of `func(*inputs)` by each of the inputs: `(*output.shape, *input.shape)`.

    A tensor if `func` takes and gives one, else a tuple of the outputs, of tuples of the inputs. `vectorize` is a
    matter of speed in PyTorch, and changes nothing here.
    """
    del vectorize
    if strategy != "reverse-mode":
        raise NotImplementedError(f"jacobian: strategy {strategy!r} is not there: use 'reverse-mode'")
    with enable_grad():
        leaves = _leaves(inputs, "jacobian", create_graph)
        result = func(*leaves)
        outputs = _tuple(result, "outputs of the user-provided function", "jacobian")
        rows = []
        for output in outputs:
            flat = output.reshape(-1)
            columns: list[list[Tensor]] = [
                _gradients([flat[i]], leaves, [None], create_graph, strict) for i in range(flat.numel())
            ]
            rows.append(
                tuple(
                    _gt.stack([column[n] for column in columns]).reshape(*output.shape, *leaf.shape)
                    if columns
                    else _gt.zeros(*output.shape, *leaf.shape)
                    for n, leaf in enumerate(leaves)
                )
            )
    return _like(tuple(_like(row, inputs) for row in rows), result)


def hessian(
    func: Callable[..., Any],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a scalar `func(*inputs)`, as `jacobian` arranges them."""
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
    """`func(*inputs)`, and the product of the vector `v`, of its shape, with its Jacobian."""
    with enable_grad():
        leaves = _leaves(inputs, "vjp", create_graph)
        result = func(*leaves)
        outputs = _tuple(result, "outputs of the user-provided function", "vjp")
        found = _gradients(outputs, leaves, _vectors(v, outputs, "vjp"), create_graph, strict)
    return _detached(result, create_graph), _like(tuple(found), inputs)


def jvp(
    func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`func(*inputs)`, and the product of its Jacobian with the vector `v`, of the shape of the inputs.

    The product with `u` from the left is linear in `u`; its derivative by `u`, times `v`, is the one from the right.
    """
    with enable_grad():
        leaves = _leaves(inputs, "jvp", create_graph)
        result = func(*leaves)
        outputs = _tuple(result, "outputs of the user-provided function", "jvp")
        dummies = [_gt.zeros_like(output).requires_grad_() for output in outputs]
        backwards = _gradients(outputs, leaves, dummies, True, strict)
        if v is None:
            v = tuple(_gt.ones_like(t) for t in leaves) if _vectors(None, leaves, "jvp") else None
        vectors = _vectors(v, leaves, "jvp")
        found = _gradients(backwards, dummies, vectors, create_graph, False)
    return _detached(result, create_graph), _like(tuple(found), result)


def vhp(
    func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """A scalar `func(*inputs)`, and the product of the vector `v` with its Hessian."""
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
