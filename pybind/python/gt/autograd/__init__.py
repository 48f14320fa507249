"""Gradients as functions, functions with gradients of their own, and checks of both, under PyTorch's paths.

Start at `grad`; `Function` is in `function.py`, whole derivatives in `functional.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gt import _absent, _gt
from gt._autograd import enable_grad, inference_mode, no_grad, set_grad_enabled
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


def _several(tensors: Tensors) -> list[Tensor]:
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
    inputs: Tensors | None = None,
) -> None:
    """Walks the tape back from several tensors at once, collecting gradients in the leaves, or in `inputs` alone.

    Args:
        tensors: Where to start.
        grad_tensors: The gradient of each; a scalar does without (`None`).
        retain_graph: Keep what was saved, for another pass; by default as `create_graph`.
        create_graph: Record the pass itself, for gradients of gradients.
        inputs: The only tensors to collect gradients in.
    """
    if inputs is not None and not isinstance(inputs, Tensor) and len(inputs) == 0:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    roots = _several(tensors)
    _gt.run_backward(roots, _seeds(roots, grad_tensors), retain_graph, create_graph, inputs)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Gradients = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of `outputs`, added up, with respect to each of `inputs`; collected nowhere else.

    Args:
        outputs: What to differentiate.
        inputs: With respect to what.
        grad_outputs: The gradient of each output; a scalar does without (`None`).
        retain_graph: Keep what was saved, for another pass; by default as `create_graph`.
        create_graph: Record the pass itself, for gradients of gradients.
        allow_unused: `None` for an input that the outputs do not depend on, rather than an error.
        is_grads_batched: Not there: call `grad` once for each gradient.
        materialize_grads: Zeros for an input that the outputs do not depend on.

    Raises:
        RuntimeError: An input requires no gradient, or was not used.
    """
    if is_grads_batched:
        raise NotImplementedError("autograd.grad: is_grads_batched is not there: call grad once for each gradient")
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    roots, wanted = _several(outputs), _several(inputs)
    if not wanted:
        raise ValueError("grad requires non-empty inputs.")
    found = _gt.gradients(roots, _seeds(roots, grad_outputs), wanted, retain_graph, create_graph)
    if materialize_grads:
        pairs = zip(found, wanted, strict=True)
        return tuple(_gt.zeros_like(t) if gradient is None else gradient for gradient, t in pairs)
    if not allow_unused and any(gradient is None for gradient in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if "
            "this is the desired behavior."
        )
    return found
