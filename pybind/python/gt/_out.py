"""`out=`: the tensor that a function writes its result to."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from gt._gt import Tensor, is_grad_enabled


def write(name: str, out: Any, result: Any, same_dtype: bool) -> Any:
    """Writes a result to `out`, or a tuple of results to a tuple; `out` is resized to the result's shape.

    Args:
        name: The function's name, for errors.
        out: A tensor, or a tuple of tensors.
        result: A tensor, or a tuple of tensors.
        same_dtype: Whether `out` must have the dtype of the result.
    """
    if not isinstance(result, Tensor):
        if not isinstance(out, Sequence) or len(out) != len(result):
            raise TypeError(f"{name}(): argument 'out' must be tuple of Tensors, not {type(out).__name__}")
        parts = [write(name, *pair, same_dtype) for pair in zip(out, result, strict=True)]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if same_dtype and out.dtype != result.dtype:
        raise RuntimeError(
            f"{name}(): Expected the dtype for input and out to match, but got {result.dtype} for input's dtype and "
            f"{out.dtype} for out's dtype."
        )
    if is_grad_enabled() and (result.requires_grad or out.requires_grad):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if out.shape != result.shape:
        if out.numel():
            warnings.warn(
                f"{name}(): out has the shape {tuple(out.shape)} and is resized to {tuple(result.shape)}: pass one of "
                "that shape, or one without elements.",
                stacklevel=2,
            )
        resized = out.new_empty(result.shape)
        resized._rebind(result)
        out.data = resized
        return out
    return out._rebind(result)
