"""Gradients as functions, functions with gradients of their own, and checks of both, under PyTorch's paths.

Start at `grad`; `Function` is in `function.py`, whole derivatives in `functional.py`.
"""

from __future__ import annotations

import warnings
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
    grad_variables: Gradients = None,
    inputs: Tensors | None = None,
) -> None:
    """Walks the tape back from several tensors at once, collecting gradients in the leaves, or in `inputs` alone.

    Args:
        tensors: Where to start.
        grad_tensors: The gradient of each; a scalar does without (`None`).
        retain_graph: Keep what was saved, for another pass; by default as `create_graph`.
        create_graph: Record the pass itself, for gradients of gradients.
        grad_variables: The older name of `grad_tensors`.
        inputs: The only tensors to collect gradients in.
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
    roots = _several(tensors)
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
    """The gradients of `outputs`, added up, with respect to each of `inputs`; collected nowhere else.

    Args:
        outputs: What to differentiate.
        inputs: With respect to what.
        grad_outputs: The gradient of each output; a scalar does without (`None`).
        retain_graph: Keep what was saved, for another pass; by default as `create_graph`.
        create_graph: Record the pass itself, for gradients of gradients.
        only_inputs: True; PyTorch ignores it.
        allow_unused: `None` for an input that the outputs do not depend on, rather than an error.
        is_grads_batched: `grad_outputs` are several along their first axis, and so are the results.
        materialize_grads: Zeros for an input that the outputs do not depend on.

    Raises:
        RuntimeError: An input requires no gradient, or was not used.
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
    roots, wanted = _several(outputs), _several(inputs)
    if not wanted:
        raise ValueError("grad requires non-empty inputs.")
    if is_grads_batched:
        seeds = _seeds(roots, grad_outputs)
        each = [
            grad(roots, wanted, row, True, create_graph, True, allow_unused, False, materialize_grads)
            for row in zip(*seeds, strict=True)
        ]
        return tuple(None if g[0] is None else _gt.stack(list(g)) for g in zip(*each, strict=True))
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
