"""Look-ups in embedding matrices with sparse gradients: `embedding` and `embedding_bag` with `sparse=True`.

The tape adds up dense gradients. So a look-up whose gradient is sparse is a custom function that returns no gradient
for the weight: its backward pass gives the rows and their indices to `_gradients.collect`, for each look-up apart.
The weight must be a leaf for that; the gradient of another weight is dense.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.autograd.function import Function
from gt.sparse import _COO, _gradients, _make

_PARAMETERS = {
    "embedding": ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
    "embedding_bag": (
        "input", "weight", "offsets", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse",
        "per_sample_weights", "include_last_offset", "padding_idx",
    ),
}  # fmt: skip
# The options of a look-up that its gradient does not depend on.
_OF_NORMS = ("max_norm", "norm_type")


class Embedding(Function):
    """The look-up of rows, which depends on the weight alone."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, input: Tensor, padding_idx: int | None, look_up: Callable[..., Any]) -> Any:
        ctx.save_for_backward(input)
        ctx.weight = weakref.ref(weight)
        ctx.padding_idx = padding_idx
        return look_up(input, weight.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, ...]:
        (input,) = ctx.saved_tensors
        weight = ctx.weight()
        # Without the tensor, no program can read its gradient.
        if weight is not None:
            indices, rows = input.reshape(-1).long(), grad.reshape(-1, grad.shape[-1])
            if ctx.padding_idx is not None:
                kept = indices != ctx.padding_idx
                indices, rows = indices[kept], rows[kept]
            _gradients.collect(weight, _make(_COO, indices.unsqueeze(0), rows, tuple(weight.shape), False))
        return None, None, None, None


class _ScaledByFrequency(Function):
    """The identity function of a result that has no gradient, as PyTorch's."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:  # noqa: ARG004 (there is nothing to save)
        return rows.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ARG004 (it refuses)
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")


def looked_up(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of `embedding` or `embedding_bag`, which refused `sparse=True` for a weight that has a gradient.

    Args:
        function: The declared function.
        args: The arguments that were given by position.
        kwargs: The arguments that were given by name.

    Returns:
        The result, or `NotImplemented` if it refused something else.
    """
    given = dict(zip(_PARAMETERS[function.__name__], args, strict=False)) | kwargs
    if not given.pop("sparse", False):
        return NotImplemented
    weight = given["weight"]
    if given.get("mode") == "max":
        raise ValueError("max mode does not support sparse weights")
    if not weight.is_leaf:
        return function(**given)
    if function.__name__ == "embedding":
        return _rows(function, **given)
    return _bags(function, **given)


def _rows(
    function: Callable[..., Any],
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    scale_grad_by_freq: bool = False,
    **norms: Any,
) -> Any:
    """The rows of the weight that the indices name."""
    padding = None if padding_idx is None else padding_idx % weight.shape[0]
    rows = Embedding.apply(
        weight, input, padding, lambda index, values: function(index, values, padding_idx=padding_idx, **norms)
    )
    return _ScaledByFrequency.apply(rows) if scale_grad_by_freq else rows


def _bags(
    function: Callable[..., Any], input: Tensor, weight: Tensor, padding_idx: int | None = None, **options: Any
) -> Any:
    """The reduced rows of each bag: those of a dense matrix, which is made of the rows that all bags name."""
    from gt.nn.functional import embedding

    norms = {name: options.pop(name) for name in _OF_NORMS if name in options}
    scaled = options.pop("scale_grad_by_freq", False)
    rows = _rows(embedding, input.reshape(-1), weight, padding_idx, scaled, **norms)
    places = gt.arange(input.numel()).reshape(input.shape)
    if padding_idx is None:
        return function(places, rows, **options)
    # A last row stands for all indices that are skipped.
    pads = input == padding_idx % weight.shape[0]
    rows = gt.cat([rows, rows.new_zeros(1, rows.shape[1])])
    return function(gt.where(pads, input.numel(), places), rows, padding_idx=input.numel(), **options)
