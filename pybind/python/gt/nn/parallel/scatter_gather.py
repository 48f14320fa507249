"""`scatter` and `gather` for the one place where a program sees its tensors."""

from __future__ import annotations

from typing import Any

from gt import _absent

__all__ = ["gather", "scatter", "scatter_kwargs"]

__getattr__ = _absent.getter(__name__)


def scatter(inputs: Any, target_gpus: Any, dim: int = 0) -> Any:  # noqa: ARG001
    """The inputs in a tuple: one part, since the daemon divides tensors among devices."""
    return (inputs,)


def scatter_kwargs(inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Any, dim: int = 0) -> Any:  # noqa: ARG001
    """The arguments of one call, each kind in a tuple."""
    return (inputs,), (kwargs or {},)


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:  # noqa: ARG001
    """The only one of the outputs."""
    return outputs[0]
