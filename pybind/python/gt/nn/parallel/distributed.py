"""`DistributedDataParallel` for the one process that a program on GT is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gt import _absent, distributed
from gt.nn.module import Module

__all__ = ["DistributedDataParallel"]

__getattr__ = _absent.getter(__name__)


class DistributedDataParallel(Module):
    """Wraps a module and calls it with the process's batch, which is the whole batch.

    Args:
        module: The module, registered under the name `module`.
        device_ids: Kept as an attribute; changes nothing.
        **options: PyTorch's other arguments, as `find_unused_parameters`; they change nothing.

    Raises:
        ValueError: `torch.distributed.init_process_group` was not called.
        RuntimeError: No parameter requires a gradient.
    """

    def __init__(self, module: Module, device_ids: Any = None, **options: Any) -> None:
        super().__init__()
        if not distributed.is_initialized():
            raise ValueError("Default process group has not been initialized, please make sure to call "
                             "init_process_group.")  # fmt: skip
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters that require a "
                "gradient."
            )
        self.module = module
        self.device_ids = device_ids
        self.process_group = options.get("process_group") or distributed.group.WORLD
        self.require_backward_grad_sync = True

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block in which gradients are not reduced over processes; there is one process, so it changes nothing."""
        self.require_backward_grad_sync = False
        try:
            yield
        finally:
            self.require_backward_grad_sync = True

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Changes nothing: no gradients travel between processes."""
