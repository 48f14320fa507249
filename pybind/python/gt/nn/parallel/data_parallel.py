"""`DataParallel`: one process addresses all devices, so it calls the wrapped module itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _absent, cuda
from gt.nn.module import Module

__all__ = ["DataParallel", "data_parallel"]

__getattr__ = _absent.getter(__name__)


class DataParallel(Module):
    """Wraps a module and calls it with the whole batch.

    The daemon and signals decide which devices compute the parts of the batch. Results equal PyTorch's on at most one
    CUDA device: batch normalization, for example, sees the whole batch.

    Args:
        module: The module, registered under the name `module`.
        device_ids: Kept as an attribute; changes nothing.
        output_device: Ignored.
        dim: Ignored.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.module = module
        # As in PyTorch, `device_ids` is empty where CUDA is not available.
        devices = device_ids or range(cuda.device_count())
        self.device_ids: list[Any] = list(devices) if cuda.is_available() else []
        del output_device, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,  # noqa: ARG001 (the daemon decides)
    output_device: Any = None,  # noqa: ARG001
    dim: int = 0,  # noqa: ARG001
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Calls the module with the whole batch: `inputs` is its argument, or a tuple of them."""
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))
