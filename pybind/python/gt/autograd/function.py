"""Custom autograd functions: subclass `Function`, implement `forward` and `backward`, and call `apply`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from gt import _absent, _gt
from gt._autograd import no_grad
from gt._functions import top
from gt._gt import Tensor

__getattr__ = _absent.getter(__name__)

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


class FunctionCtx:
    """The context that `forward` fills for `backward`: saved tensors, and any other attributes."""

    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self) -> None:
        self._to_save: tuple[Tensor | None, ...] = ()
        self._saved: list[tuple[Tensor | None, int]] | None = []
        self._fixed: tuple[Tensor, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._materialize = True
        self._node: Any = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Saves inputs or outputs for `backward`, which reads them as `saved_tensors`."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {tensors.index(t)} is of type "
                    f"{type(t).__name__}"
                )
        self._to_save = tensors

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Marks outputs that have no gradient."""
        self._fixed = args

    def mark_dirty(self, *args: Tensor) -> None:
        """Marks inputs that `forward` changed in place and returns."""
        self._dirty = args

    def set_materialize_grads(self, value: bool) -> None:
        """Sets whether `backward` receives zeros rather than `None` for outputs that nothing depends on."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors that `save_for_backward` saved."""
        if self._saved is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
                "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or "
                "if you need to access saved tensors after calling backward."
            )
        return tuple(self._restore(t, place) for t, place in self._saved)

    def _restore(self, t: Tensor | None, place: int) -> Tensor | None:
        """A saved tensor: `place` is -1 minus an output's index, or the version an input had when it was saved."""
        if t is None:
            return None
        if place < 0:
            return _gt.as_result(t, self._node, -1 - place) if self._node is not None else t
        if t._version != place:
            kind = t.type()
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{kind} {list(t.shape)}] is at version {t._version}; expected version {place} instead."
            )
        return t

    def _save_tensors(self, results: Sequence[Any]) -> None:
        """Saves the tensors of `save_for_backward`.

        Outputs are saved detached with their index, to avoid a reference cycle.
        """
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
        top.zeros(tuple(shape), dtype=dtype) if grad is None else grad
        for grad, (shape, dtype) in zip(grads, metas, strict=True)
    ]


class Function:
    """A differentiable operation with its own backward pass.

    `forward` may omit `ctx` if the class has a `setup_context(ctx, inputs, output)`. Operations in `forward` are not
    recorded; `backward` returns one gradient, or `None`, for each input, and is recorded itself for higher derivatives.

    Example:
        >>> class Exp(gt.autograd.Function):
        ...     @staticmethod
        ...     def forward(ctx, x):
        ...         result = x.exp()
        ...         ctx.save_for_backward(result)
        ...         return result
        ...
        ...     @staticmethod
        ...     def backward(ctx, grad):
        ...         (result,) = ctx.saved_tensors
        ...         return grad * result
        >>> x = gt.tensor([0.0, 1.0], requires_grad=True)
        >>> Exp.apply(x).sum().backward()
        >>> x.grad
        tensor([1.0000, 2.7183])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        raise RuntimeError(
            f"{type(self).__name__} should not be instantiated. Methods on autograd functions are all static, so you "
            "should invoke them on the class itself: call apply()"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Computes the outputs; a subclass implements it.

        Args:
            *args: The context, unless the class has a `setup_context`, and the inputs of `apply`.
            **kwargs: None.
        """
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Fills the context after a `forward` that does not take it.

        Args:
            ctx: The context.
            inputs: The inputs of `apply`.
            output: What `forward` returned.
        """
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the inputs; a subclass implements it.

        Args:
            ctx: The context that `forward` filled.
            *grad_outputs: The gradient of each output.

        Returns:
            A gradient, or `None`, for each input.
        """
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """The other name of `backward`, which a subclass may implement instead."""
        return Function.backward(ctx, *grad_outputs)

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Calls `forward`, and records the operation if an input requires a gradient."""
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
        ctx._save_tensors(results)
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
            given = _zeros_for(grads, metas) if ctx._materialize else grads
            # Outputs that are not tensors keep their position, and have no gradient.
            of_result = dict(zip(places, given, strict=True))
            ctx._node = node
            try:
                found = gradient_of(ctx, *(of_result.get(i) for i in range(len(results))))
            finally:
                # The node holds this function, which holds the context: a cycle that nothing would free.
                ctx._node = None
            if not retain and ctx._saved:
                ctx._saved = None
            return _check_gradients(name, found, args)

        tensors = [results[i] for i in places]
        flows = [id(t) not in fixed and t.dtype.is_floating_point for t in tensors]
        inputs = [arg if isinstance(arg, Tensor) else None for arg in args]
        out = list(results)
        for i, recorded in zip(places, _gt.record(name, tensors, flows, inputs, backward), strict=True):
            # An input that was changed in place stays the same object.
            out[i] = results[i]._rebind(recorded) if id(results[i]) in dirty else recorded
        return tuple(out)


def _check_gradients(name: str, found: Any, args: tuple[Any, ...]) -> list[Tensor | None]:
    """The gradients that a `backward` returned, checked to be one for each input."""
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
    """Marks a `backward` that is not differentiable: a second derivative through it raises an error."""

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
