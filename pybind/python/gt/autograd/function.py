"""Functions with a gradient of their own: subclass `Function`, write `forward` and `backward`, call `apply`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from gt import _gt
from gt._autograd import no_grad
from gt._gt import Tensor

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class FunctionCtx:
    """What `forward` leaves for `backward`: saved tensors, and any attribute."""

    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self) -> None:
        self._to_save: tuple[Tensor | None, ...] = ()
        self._saved: list[tuple[Tensor | None, int]] | None = []
        self._fixed: tuple[Tensor, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._materialize = True
        self._node: Any = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps inputs or results for `backward`, which finds them in `saved_tensors`."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {tensors.index(t)} is of type "
                    f"{type(t).__name__}"
                )
        self._to_save = tensors

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """No gradient flows from these results."""
        self._fixed = args

    def mark_dirty(self, *args: Tensor) -> None:
        """These inputs were changed in place, and are returned."""
        self._dirty = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` is given zeros, rather than `None`, for results that nothing depends on."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What `save_for_backward` kept."""
        if self._saved is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
                "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
                "if you need to access saved tensors after calling backward."
            )
        return tuple(self._restored(t, place) for t, place in self._saved)

    def _restored(self, t: Tensor | None, place: int) -> Tensor | None:
        """A saved tensor: of a result, `place` is its number, below 0; of another, the version it had."""
        if t is None:
            return None
        if place < 0:
            return _gt.as_result(t, self._node, -1 - place) if self._node is not None else t
        if t._version != place:
            kind = str(t.type()).removeprefix("gt.")
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[gt.{kind} {list(t.shape)}] is at version {t._version}; expected version {place} instead."
            )
        return t

    def _keep(self, results: Sequence[Any]) -> None:
        """Saves what `forward` asked for. A result is saved as its number: it holds this object, not the reverse."""
        numbers = {id(t): -1 - i for i, t in enumerate(t for t in results if isinstance(t, Tensor))}
        for t in self._to_save:
            if t is None:
                self._saved.append((None, 0))
            elif id(t) in numbers:
                self._saved.append((t.detach(), numbers[id(t)]))
            else:
                self._saved.append((t, t._version))
        self._to_save = ()


def _zeros_for(grads: Sequence[Tensor | None], metas: list[tuple[Any, Any]]) -> list[Tensor]:
    return [
        _gt.zeros(tuple(shape), dtype=dtype) if grad is None else grad
        for grad, (shape, dtype) in zip(grads, metas, strict=True)
    ]


class Function:
    """An operation with a gradient of its own.

        class Exp(gt.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                result = x.exp()
                ctx.save_for_backward(result)
                return result

            @staticmethod
            def backward(ctx, grad):
                (result,) = ctx.saved_tensors
                return grad * result

        y = Exp.apply(x)

    `forward` may leave `ctx` to a `setup_context(ctx, inputs, output)`; it then takes the inputs alone. Nothing in
    `forward` is recorded; `backward` returns one gradient, or `None`, for each input, and is itself recorded where a
    gradient of the gradient is asked for.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        raise RuntimeError(
            f"{type(self).__name__} should not be instantiated. Methods on autograd functions are all static, so you "
            "should invoke them on the class itself: call apply()"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """What the function computes; a subclass says."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Fills `ctx` after a `forward` that does not take it."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the inputs, from those of the results; a subclass says."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """`backward` under another name, for a subclass that defines it so."""
        return Function.backward(ctx, *grad_outputs)

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Computes `forward`, and records it if an input requires a gradient."""
        ctx = FunctionCtx()
        needs = tuple(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
        ctx.needs_input_grad = needs
        with no_grad():
            if cls.setup_context is Function.setup_context:
                output = cls.forward(ctx, *args)
            else:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
        results = output if isinstance(output, tuple) else (output,)
        ctx._keep(results)
        if not (_gt.is_grad_enabled() and any(needs)):
            return output
        recorded = cls._record(ctx, args, results)
        return recorded if isinstance(output, tuple) else recorded[0]

    @classmethod
    def _record(cls, ctx: FunctionCtx, args: tuple[Any, ...], results: tuple[Any, ...]) -> tuple[Any, ...]:
        fixed, dirty = {id(t) for t in ctx._fixed}, {id(t) for t in ctx._dirty}
        places = [i for i, result in enumerate(results) if isinstance(result, Tensor)]
        metas = [(results[i].shape, results[i].dtype) for i in places]
        name = f"{cls.__name__}Backward"
        gradient_of = cls.backward if cls.vjp is Function.vjp else cls.vjp

        def backward(node: Any, grads: Sequence[Tensor | None], retain: bool) -> list[Tensor | None]:
            ctx._node = node
            given = _zeros_for(grads, metas) if ctx._materialize else grads
            # What is no tensor has a place among the results, and no gradient.
            of_result = dict(zip(places, given, strict=True))
            found = gradient_of(ctx, *(of_result.get(i) for i in range(len(results))))
            if not retain and ctx._saved:
                ctx._saved = None
            return _checked(name, found, args)

        tensors = [results[i] for i in places]
        flows = [id(t) not in fixed and t.dtype.is_floating_point for t in tensors]
        inputs = [arg if isinstance(arg, Tensor) else None for arg in args]
        out = list(results)
        for i, recorded in zip(places, _gt.record(name, tensors, flows, inputs, backward), strict=True):
            # A changed input stays the object that it is.
            out[i] = results[i]._rebind(recorded) if id(results[i]) in dirty else recorded
        return tuple(out)


def _checked(name: str, found: Any, args: tuple[Any, ...]) -> list[Tensor | None]:
    """What a `backward` returned, one gradient for each input."""
    grads = list(found) if isinstance(found, tuple | list) else [found]
    while len(grads) > len(args) and grads[-1] is None:
        grads.pop()
    if len(grads) != len(args):
        raise RuntimeError(
            f"function {name} returned an incorrect number of gradients (expected {len(args)}, got {len(grads)})"
        )
    for i, (gradient, arg) in enumerate(zip(grads, args, strict=True)):
        if gradient is None:
            continue
        if not isinstance(arg, Tensor):
            raise RuntimeError(
                f"function {name} returned a gradient different from None at position {i + 1}, but the corresponding "
                "forward input was not a Variable"
            )
        if not isinstance(gradient, Tensor):
            raise TypeError(f"expected Variable or None (got {type(gradient).__name__})")
    return grads


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a `backward` that is no differentiable function itself; a second derivative through it is an error."""

    @functools.wraps(function)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = function(ctx, *args)
        inputs = [arg for arg in args if isinstance(arg, Tensor) and arg.requires_grad]
        if not (_gt.is_grad_enabled() and inputs):
            return outputs

        def refuse(*_: Any) -> Any:
            raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")

        several = outputs if isinstance(outputs, tuple) else (outputs,)
        marked = tuple(
            t if t is None else _gt.record("DelayedErrorBackward", [t], [True], inputs, refuse)[0] for t in several
        )
        return marked if isinstance(outputs, tuple) else marked[0]

    return wrapper
