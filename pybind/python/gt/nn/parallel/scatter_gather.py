"""`scatter` and `gather` for the one place where a program sees its tensors."""

from __future__ import annotations

from typing import Any

from gt import _absent

__all__ = ["gather", "parallel_apply", "replicate", "scatter", "scatter_kwargs"]

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


def replicate(network: Any, devices: Any, detach: bool = False) -> list[Any]:  # noqa: ARG001
    """The network itself in a list: one copy for all devices."""
    return [network]


def parallel_apply(modules: Any, inputs: Any, kwargs_tup: Any = None, devices: Any = None) -> list[Any]:  # noqa: ARG001
    """The result of each module for its inputs, a tuple of arguments or one argument; GT runs them side by side."""
    named = kwargs_tup or [{}] * len(inputs)
    if not len(modules) == len(inputs) == len(named):
        counts = f"{len(modules)} modules, {len(inputs)} inputs and {len(named)} dicts of keyword arguments"
        raise ValueError(f"parallel_apply needs as many of each, but got {counts}")
    calls = zip(modules, inputs, named, strict=True)
    return [
        module(*(given if isinstance(given, (list, tuple)) else (given,)), **kwargs) for module, given, kwargs in calls
    ]
