"""`torch.cpu.amp`: `autocast` and `GradScaler` for the CPU."""

from __future__ import annotations

from typing import Any

from gt import _absent, _gt, amp
from gt._deprecated import deprecated

__all__ = ["GradScaler", "autocast"]

__getattr__ = _absent.getter(__name__)


class autocast(amp.autocast):  # noqa: N801 (PyTorch's name)
    """The context `gt.autocast("cpu", …)`. Deprecated."""

    @deprecated("`torch.cpu.amp.autocast(args...)` is deprecated: use `torch.amp.autocast('cpu', args...)`")
    def __init__(self, enabled: bool = True, dtype: _gt.dtype = _gt.bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """The scaler `gt.amp.GradScaler("cpu", …)`. Deprecated."""

    @deprecated("`torch.cpu.amp.GradScaler(args...)` is deprecated: use `torch.amp.GradScaler('cpu', args...)`")
    def __init__(self, init_scale: float = 2.0**16, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", init_scale, *args, **kwargs)
