"""`functional_call` under its deprecated import path."""

from __future__ import annotations

from typing import Any

from gt import _absent, func
from gt._gt import Tensor

__all__ = ["functional_call"]

__getattr__ = _absent.getter(__name__)


def functional_call(
    module: Any,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a module with other parameters: see `gt.func.functional_call`."""
    return func.functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
