"""The instruction sets of the machine, by PyTorch's names."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from gt import _absent

__all__ = ["get_cpu_capability"]

__getattr__ = _absent.getter(__name__)


@cache
def get_cpu_capability() -> str:
    """`"AVX512"`, `"AVX2"` or `"DEFAULT"`: the widest vector instructions of this process's machine."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return "DEFAULT"
    if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= words:
        return "AVX512"
    return "AVX2" if "avx2" in words else "DEFAULT"
