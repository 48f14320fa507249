"""Python functions called for each element: slow, and without gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt import _gt
from gt._gt import Tensor


def _apply(self: Tensor, name: str, function: Callable[..., Any], others: dict[str, Tensor]) -> Tensor:
    if self.requires_grad:
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    for word, other in others.items():
        if other.dtype != self.dtype:
            raise TypeError(f"{name}: expected {self.type()} for '{word}' (got {other.type()})")
    kind: type = bool if self.dtype == _gt.bool else float if self.is_floating_point() else int
    columns = [t.expand(self.shape).reshape(-1).tolist() for t in (self, *(t.detach() for t in others.values()))]
    values = [kind(function(*row)) for row in zip(*columns, strict=True)]
    return self.copy_(_gt.tensor(values, dtype=self.dtype).reshape(self.shape))


def apply_(self: Tensor, callable: Callable[..., Any]) -> Tensor:
    """Applies a Python function to each element in place. Slow: elements are fetched; no gradient.

    Example:
        >>> gt.tensor([1.0, 2.0]).apply_(lambda x: x + 0.5)
        tensor([1.5000, 2.5000])
    """
    return _apply(self, "apply_", callable, {})


def map_(self: Tensor, tensor: Tensor, callable: Callable[..., Any]) -> Tensor:
    """Applies a Python function to each pair of elements of two tensors, and writes the results to this one."""
    return _apply(self, "map_", callable, {"other": tensor})


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[..., Any]) -> Tensor:
    """Applies a Python function to each triple of elements of three tensors, and writes the results to this one."""
    return _apply(self, "map2_", callable, {"x": x, "y": y})


METHODS = ()
TENSOR_METHODS = (apply_, map_, map2_)
IN_PLACE = ()
FUNCTIONS = ()
