"""Switches of matrix products and attention on CUDA devices; all but `matmul.allow_tf32` are stored without effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gt import _absent, _settings

__getattr__ = _absent.getter(__name__)


class _Matmul:
    """The precision of matrix products; products of half precision always accumulate in float32."""

    __slots__ = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")

    def __init__(self) -> None:
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True

    @property
    def allow_tf32(self) -> bool:
        """Whether float32 products may round their factors to TF32 (11 significant bits), which is much faster."""
        return _settings.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        _settings.allow_matmul_tf32(bool(allowed))

    @property
    def fp32_precision(self) -> str:
        """The precision of float32 products: `"tf32"` if `allow_tf32` is set, else `"ieee"`."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("ieee", "tf32"):
            raise RuntimeError(f"fp32_precision must be one of ieee, tf32, but got {precision!r}")
        self.allow_tf32 = precision == "tf32"


matmul = _Matmul()


def _switch(name: str) -> tuple[Callable[[bool], None], Callable[[], bool]]:
    """The functions that set and read the switch of one of PyTorch's attention implementations."""
    on = [True]

    def enable(enabled: bool) -> None:
        on[0] = bool(enabled)

    def is_enabled() -> bool:
        return on[0]

    enable.__name__, is_enabled.__name__ = f"enable_{name}_sdp", f"{name}_sdp_enabled"
    enable.__doc__ = f"Turns PyTorch's {name} attention on or off; the setting is stored without effect."
    is_enabled.__doc__ = f"Whether PyTorch's {name} attention is turned on; the setting has no effect."
    return enable, is_enabled


enable_flash_sdp, flash_sdp_enabled = _switch("flash")
enable_mem_efficient_sdp, mem_efficient_sdp_enabled = _switch("mem_efficient")
enable_math_sdp, math_sdp_enabled = _switch("math")
enable_cudnn_sdp, cudnn_sdp_enabled = _switch("cudnn")


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """A context in which some of PyTorch's attention implementations are allowed; it changes no result."""
    switches = {
        enable_flash_sdp: (enable_flash, flash_sdp_enabled),
        enable_math_sdp: (enable_math, math_sdp_enabled),
        enable_mem_efficient_sdp: (enable_mem_efficient, mem_efficient_sdp_enabled),
        enable_cudnn_sdp: (enable_cudnn, cudnn_sdp_enabled),
    }
    before = {enable: is_enabled() for enable, (_, is_enabled) in switches.items()}
    for enable, (wanted, _) in switches.items():
        enable(wanted)
    try:
        yield
    finally:
        for enable, was in before.items():
            enable(was)


def is_built() -> bool:
    """Whether GT is built with CUDA support."""
    return False
