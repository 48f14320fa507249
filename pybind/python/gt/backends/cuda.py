"""Switches of products and attention on CUDA devices. But for `matmul.allow_tf32`, they are kept without effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gt import _settings


class _Matmul:
    """How exact products of matrices must be. Sums of halves are in float32 in any case."""

    __slots__ = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")

    def __init__(self) -> None:
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True

    @property
    def allow_tf32(self) -> bool:
        """Whether the factors of products of float32 may be rounded to 11 bits, which is several times as fast."""
        return _settings.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        _settings.allow_matmul_tf32(bool(allowed))

    @property
    def fp32_precision(self) -> str:
        """`allow_tf32` by a name: "tf32" if it is set, else "ieee"."""
        return "tf32" if self.allow_tf32 else "ieee"

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("ieee", "tf32"):
            raise RuntimeError(f"fp32_precision must be one of ieee, tf32, but got {precision!r}")
        self.allow_tf32 = precision == "tf32"


matmul = _Matmul()


def _switch(name: str) -> tuple[Callable[[bool], None], Callable[[], bool]]:
    """What turns one of PyTorch's ways of computing attention on or off, and what tells which: GT has its own."""
    on = [True]

    def enable(enabled: bool) -> None:
        on[0] = bool(enabled)

    def is_enabled() -> bool:
        return on[0]

    enable.__name__, is_enabled.__name__ = f"enable_{name}_sdp", f"{name}_sdp_enabled"
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
    """A block in which these ways are on or off, which changes no result."""
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
    """Whether GT uses CUDA's libraries."""
    return False
