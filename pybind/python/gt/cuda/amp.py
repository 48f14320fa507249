"""`torch.cuda.amp`: `autocast` and `GradScaler` for CUDA devices."""

from __future__ import annotations

from typing import Any

from gt import _absent, _gt, amp

__all__ = ["GradScaler", "autocast"]

__getattr__ = _absent.getter(__name__)


class autocast(amp.autocast):  # noqa: N801 (PyTorch's name)
    """`gt.autocast("cuda", …)`."""

    def __init__(self, enabled: bool = True, dtype: _gt.dtype = _gt.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """`gt.amp.GradScaler("cuda", …)`."""

    def __init__(self, init_scale: float = 2.0**16, *args: Any, **kwargs: Any) -> None:
        super().__init__("cuda", init_scale, *args, **kwargs)
