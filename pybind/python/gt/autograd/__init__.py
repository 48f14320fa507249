"""Gradients as functions, custom autograd functions, and numerical gradient checks, under PyTorch's paths.

Start at `grad`; `Function` is in `function.py`, Jacobians and Hessians in `functional.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from gt import _absent, _gt, _tape
from gt._autograd import enable_grad, inference_mode, no_grad, set_grad_enabled
from gt._functions import top
from gt._gt import Tensor
from gt.autograd import functional, grad_mode, graph
from gt.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from gt.autograd.function import Function
from gt.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from gt.autograd.variable import Variable

__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]

__getattr__ = _absent.getter(__name__)

Tensors = Tensor | Sequence[Tensor]
Gradients = Tensor | None | Sequence[Tensor | None]


def _as_list(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _seeds(roots: list[Tensor], gradients: Gradients) -> list[Tensor | None]:
    """A gradient, or `None`, for each root."""
    if gradients is None:
        return [None] * len(roots)
    seeds = [gradients] if isinstance(gradients, Tensor) else list(gradients)
    if len(seeds) != len(roots):
        raise RuntimeError(f"got {len(roots)} tensors and {len(seeds)} gradients")
    return seeds


def backward(
    tensors: Tensors,
    grad_tensors: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Gradients = None,
    inputs: Tensors | None = None,
) -> None:
    """Runs the backward pass from several tensors at once, accumulating gradients in the leaves' `.grad`.

    Args:
        tensors: The tensors to differentiate.
        grad_tensors: The gradient of each tensor; `None` for a scalar.
        retain_graph: Whether saved tensors are kept for another backward pass; by default the value of `create_graph`.
        create_graph: Whether the backward pass is itself recorded, for higher derivatives.
        grad_variables: The deprecated name of `grad_tensors`.
        inputs: The only tensors to accumulate gradients in.

    Example:
        >>> x = gt.tensor([1.0, 2.0], requires_grad=True)
        >>> gt.autograd.backward((x * x).sum())
        >>> x.grad
        tensor([2., 4.])
    """
    if grad_variables is not None:
        warnings.warn("`grad_variables` is deprecated. Use `grad_tensors` instead.", FutureWarning, stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to `backward()`. Please only "
                "use `grad_tensors`."
            )
        grad_tensors = grad_variables
    if inputs is not None and not isinstance(inputs, Tensor) and len(inputs) == 0:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    roots = _as_list(tensors)
    _gt.run_backward(roots, _seeds(roots, grad_tensors), retain_graph, create_graph, inputs)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`, without accumulating them in `.grad`.

    Args:
        outputs: The tensors to differentiate.
        inputs: The tensors with respect to which they are differentiated.
        grad_outputs: The gradient of each output (the vector of a vector-Jacobian product); `None` for a scalar.
        retain_graph: Whether saved tensors are kept for another backward pass; by default the value of `create_graph`.
        create_graph: Whether the backward pass is itself recorded, for higher derivatives.
        only_inputs: Ignored, as in PyTorch.
        allow_unused: Whether an input that the outputs do not depend on has the gradient `None` rather than being an
            error.
        is_grads_batched: Whether the first axis of `grad_outputs`, and of the results, is a batch of vectors.
        materialize_grads: Whether such an input has a gradient of zeros.

    Returns:
        A tuple with a gradient for each input.

    Raises:
        RuntimeError: An input does not require a gradient, or is not used.

    Example:
        >>> x = gt.tensor(3.0, requires_grad=True)
        >>> (dx,) = gt.autograd.grad(x**3, x, create_graph=True)
        >>> (ddx,) = gt.autograd.grad(dx, x)
        >>> dx.item(), ddx.item()
        (27.0, 18.0)
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    roots, wanted = _as_list(outputs), _as_list(inputs)
    if not wanted:
        raise ValueError("grad requires non-empty inputs.")
    if is_grads_batched:
        seeds = _seeds(roots, grad_outputs)
        each = [
            grad(roots, wanted, row, True, create_graph, True, allow_unused, False, materialize_grads)
            for row in zip(*seeds, strict=True)
        ]
        return tuple(None if g[0] is None else top.stack(list(g)) for g in zip(*each, strict=True))
    found = _tape.gradients(roots, _seeds(roots, grad_outputs), wanted, retain_graph, create_graph)
    if materialize_grads:
        pairs = zip(found, wanted, strict=True)
        return tuple(top.zeros_like(t) if gradient is None else gradient for gradient, t in pairs)
    if not allow_unused and any(gradient is None for gradient in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if "
            "this is the desired behavior."
        )
    return found
