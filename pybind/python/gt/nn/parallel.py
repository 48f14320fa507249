"""`DataParallel`, under PyTorch's path: one process sees all devices of a machine, so it calls the module itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _absent, cuda
from gt.nn.module import Module

__all__ = ["DataParallel"]

__getattr__ = _absent.getter(__name__)


class DataParallel(Module):
    """A module under the name `module`, which it calls once, with everything.

    Which devices compute that, each a part, is for `gtd` and signals to say. So it is as PyTorch's where there is at
    most one CUDA device: what depends on a whole batch, such as batch normalization, sees all of it.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        """Takes the module; the devices, and the axis that would be shared out among them, change nothing."""
        super().__init__()
        self.module = module
        # Without devices PyTorch has none of them, whatever is given.
        devices = device_ids or range(cuda.device_count())
        self.device_ids: list[Any] = list(devices) if cuda.is_available() else []
        del output_device, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
