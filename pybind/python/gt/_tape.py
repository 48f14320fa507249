"""Gradients that the tape computes, and the sparse ones that `gt.sparse` adds to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gt import _gt
from gt._gt import Tensor

# Calls a function that computes the gradients of tensors, and adds the sparse ones; set once `gt.sparse` is imported.
add_sparse: Callable[[Callable[[], Sequence[Any]], Sequence[Any]], Sequence[Any]] | None = None


def gradients(
    roots: Sequence[Tensor],
    seeds: Sequence[Tensor | None],
    wanted: Sequence[Any],
    retain_graph: bool | None,
    create_graph: bool,
) -> Sequence[Any]:
    """The gradient of each tensor in `wanted`, or `None` if none reaches it.

    Args:
        roots: The tensors that are differentiated.
        seeds: The gradient of each root; `None` for a scalar.
        wanted: The tensors with respect to which they are.
        retain_graph: Whether saved tensors are kept for another pass; by default the value of `create_graph`.
        create_graph: Whether the pass is itself recorded.
    """
    if add_sparse is None:
        return _gt.gradients(roots, seeds, wanted, retain_graph, create_graph)
    return add_sparse(lambda: _gt.gradients(roots, seeds, wanted, retain_graph, create_graph), wanted)
