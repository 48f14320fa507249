"""`torch.cpu.amp`: `autocast` and `GradScaler` for the CPU."""

from __future__ import annotations

import warnings
from typing import Any

from gt import _absent, _gt, amp

__all__ = ["GradScaler", "autocast"]

__getattr__ = _absent.getter(__name__)


class autocast(amp.autocast):  # noqa: N801 (PyTorch's name)
    """The context `gt.autocast("cpu", …)`. Deprecated."""

    def __init__(self, enabled: bool = True, dtype: _gt.dtype = _gt.bfloat16, cache_enabled: bool = True) -> None:
        warnings.warn(
            "`torch.cpu.amp.autocast(args...)` is deprecated: use `torch.amp.autocast('cpu', args...)`",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """The scaler `gt.amp.GradScaler("cpu", …)`. Deprecated."""

    def __init__(self, init_scale: float = 2.0**16, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            "`torch.cpu.amp.GradScaler(args...)` is deprecated: use `torch.amp.GradScaler('cpu', args...)`",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cpu", init_scale, *args, **kwargs)
