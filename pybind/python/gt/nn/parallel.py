"""`DataParallel`, under PyTorch's path: one process sees all devices of a machine, so it calls the module itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gt import _absent, cuda
from gt.nn.module import Module

__all__ = ["DataParallel"]

__getattr__ = _absent.getter(__name__)


class DataParallel(Module):
    """A module under the name `module`, which it calls: as PyTorch's where there are no CUDA devices."""

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        """Takes the module; the devices, and the axis that would be shared out among them, change nothing."""
        super().__init__()
        if cuda.is_available():
            raise NotImplementedError("DataParallel: one process sees all devices of a machine: call the module itself")
        self.module = module
        # What PyTorch makes of them without devices, whatever is given.
        self.device_ids: list[int] = []
        del device_ids, output_device, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self.module(*inputs, **kwargs)
