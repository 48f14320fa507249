"""Switches of CUDA's libraries, which GT does not use. They are kept, and have no effect."""

from __future__ import annotations

from types import SimpleNamespace

matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
)


def is_built() -> bool:
    """Whether GT uses CUDA's libraries."""
    return False
