"""Switches of CUDA's libraries, which GT does not use. They are kept, and have no effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
)


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
