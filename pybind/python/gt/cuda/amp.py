"""`torch.cuda.amp`: `autocast` and `GradScaler` for CUDA devices."""

from __future__ import annotations

from typing import Any

from gt import _absent, _gt, amp
from gt._deprecated import deprecated

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

__getattr__ = _absent.getter(__name__)


@deprecated(
    "`torch.cuda.amp.custom_fwd(args...)` is deprecated. Please use `torch.amp.custom_fwd(args..., "
    "device_type='cuda')` instead."
)
def custom_fwd(fwd: Any = None, *, cast_inputs: _gt.dtype | None = None) -> Any:
    """Deprecated: use `gt.amp.custom_fwd(…, device_type="cuda")`."""
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


@deprecated(
    "`torch.cuda.amp.custom_bwd(args...)` is deprecated. Please use `torch.amp.custom_bwd(args..., "
    "device_type='cuda')` instead."
)
def custom_bwd(bwd: Any) -> Any:
    """Deprecated: use `gt.amp.custom_bwd(…, device_type="cuda")`."""
    return amp.custom_bwd(bwd, device_type="cuda")


class autocast(amp.autocast):  # noqa: N801 (PyTorch's name)
    """The context `gt.autocast("cuda", …)`. Deprecated."""

    @deprecated("`torch.cuda.amp.autocast(args...)` is deprecated: use `torch.amp.autocast('cuda', args...)`")
    def __init__(self, enabled: bool = True, dtype: _gt.dtype = _gt.float16, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """The scaler `gt.amp.GradScaler("cuda", …)`. Deprecated."""

    @deprecated("`torch.cuda.amp.GradScaler(args...)` is deprecated: use `torch.amp.GradScaler('cuda', args...)`")
    def __init__(self, init_scale: float = 2.0**16, *args: Any, **kwargs: Any) -> None:
        super().__init__("cuda", init_scale, *args, **kwargs)
