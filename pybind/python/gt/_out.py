"""`out=`: the tensor that a function writes its result to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt._gt import Tensor, function_table, is_grad_enabled

# The functions whose `out` must have the dtype of the result.
_SAME_DTYPE = frozenset(row["name"] for row in function_table() if row["out_same_dtype"])


def check_tensor(name: str, word: str, position: int, value: object) -> None:
    """Raises PyTorch's TypeError unless `value` is a tensor of GT's or of another library's."""
    if not isinstance(value, Tensor):
        kind = type(value).__name__
        raise TypeError(f"{name}(): argument '{word}' (position {position}) must be Tensor, not {kind}")


def write(name: str, out: Any, result: Any) -> Any:
    """Writes a result to `out`, or a tuple of results to a tuple; `out` is resized to the result's shape."""
    if not isinstance(result, Tensor):
        if not isinstance(out, Sequence) or len(out) != len(result):
            raise TypeError(f"{name}(): argument 'out' must be tuple of Tensors, not {type(out).__name__}")
        parts = [write(name, *pair) for pair in zip(out, result, strict=True)]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    check_tensor(name, "out", 0, out)
    if name in _SAME_DTYPE and out.dtype != result.dtype:
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
        resized = out.new_empty(result.shape)
        resized._rebind(result)
        out.data = resized
        return out
    return out._rebind(result)
