"""`associative_scan`: the partial results of an associative function along an axis.

Pairs of neighbours are combined, the scan of the half as many results gives every second element, and one more step the
others: 2 log2(n) calls of the function on whole tensors (Blelloch 1990).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.func.batching import vmap
from gt.utils import _pytree

__all__ = ["associative_scan"]

Combine = Callable[[list[Tensor], list[Tensor]], list[Tensor]]


def _interleave(first: Tensor, second: Tensor) -> Tensor:
    """The rows of two tensors in turn; the first may have one more."""
    pairs = gt.stack([first[: len(second)], second], 1).flatten(0, 1)
    return gt.cat([pairs, first[-1:]]) if len(first) > len(second) else pairs


def _scan(combine: Combine, leaves: list[Tensor]) -> list[Tensor]:
    count = len(leaves[0])
    if count < 2:
        return leaves
    halves = combine([t[: count - 1 : 2] for t in leaves], [t[1::2] for t in leaves])
    odd = _scan(combine, halves)
    if count == 2:
        even: list[Tensor] = []
    else:
        even = combine([t[:-1] if count % 2 == 0 else t for t in odd], [t[2::2] for t in leaves])
    firsts = (
        [gt.cat([t[:1], later]) for t, later in zip(leaves, even, strict=True)] if even else [t[:1] for t in leaves]
    )
    return [_interleave(first, second) for first, second in zip(firsts, odd, strict=True)]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any],
    xs: Any,
    dim: int,
    reverse: bool = False,
    combine_mode: str = "pointwise",
) -> Any:
    """The partial results `x1, f(x1, x2), f(f(x1, x2), x3), …` of an associative function along an axis.

    Args:
        combine_fn: The function of two tensors, or of two pytrees of them.
        xs: A tensor, or a pytree of tensors with the same size along `dim`.
        dim: The axis.
        reverse: Whether to begin at its end.
        combine_mode: `"pointwise"` if the function works element by element, else `"generic"`: it is then called with
            tensors that lack the axis.

    Example:
        >>> from gt._higher_order_ops import associative_scan
        >>> associative_scan(lambda a, b: a * b, gt.tensor([1, 2, 3, 4]), 0)
        tensor([ 1,  2,  6, 24])
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise ValueError("xs leaves must be tensors")
    leaves = [leaf.movedim(dim, 0) for leaf in leaves]
    if any(len(leaf) != len(leaves[0]) for leaf in leaves):
        raise ValueError(f"xs leaves must have the same size along dim {dim}")
    if reverse:
        leaves = [leaf.flip(0) for leaf in leaves]
    function = vmap(combine_fn) if combine_mode == "generic" else combine_fn

    def combine(left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        return list(_pytree.tree_leaves(function(spec.unflatten(left), spec.unflatten(right))))

    results = _scan(combine, leaves)
    if reverse:
        results = [result.flip(0) for result in results]
    return spec.unflatten([result.movedim(0, dim) for result in results])
