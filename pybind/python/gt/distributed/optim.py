"""`torch.distributed.optim` for a group of one process, which holds the state of all parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gt import _absent
from gt.optim import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]

__getattr__ = _absent.getter(__name__)


class ZeroRedundancyOptimizer(Optimizer):
    """Another optimizer, whose state PyTorch divides among processes. Here there is one, so it has all of it.

    Args:
        params: As for that optimizer.
        optimizer_class: Its class.
        process_group: Ignored.
        parameters_as_bucket_view: Ignored.
        overlap_with_ddp: Must be false: there is no communication to overlap with.
        **defaults: Its options.

    Attributes:
        optim: That optimizer; its groups and its state are this one's.

    Example:
        >>> from gt.distributed.optim import ZeroRedundancyOptimizer
        >>> model = gt.nn.Linear(4, 2)
        >>> optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=gt.optim.AdamW, lr=1e-3)
        >>> type(optimizer.optim).__name__
        'AdamW'
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,  # noqa: ARG002 (there is one group)
        parameters_as_bucket_view: bool = False,  # noqa: ARG002 (nothing is sent)
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError(
                "ZeroRedundancyOptimizer(overlap_with_ddp=True): there is nothing to overlap with"
            )
        self.optim = optimizer_class(params, **defaults)
        self.defaults = self.optim.defaults
        self._init_hooks()
        self._share()

    def _share(self) -> None:
        self.param_groups, self.state = self.optim.param_groups, self.optim.state

    def _run_step(self, closure: Callable[[], Any] | None) -> Any:
        return self.optim.step(closure)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a parameter group: see `Optimizer.add_param_group`."""
        self.optim.add_param_group(param_group)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Has no effect: the one process has the whole state."""

    def state_dict(self) -> dict[str, Any]:
        """The state dict of the optimizer."""
        return self.optim.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state dict of the optimizer."""
        self.optim.load_state_dict(state_dict)
        self._share()
