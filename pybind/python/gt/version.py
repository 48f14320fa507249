"""The version of PyTorch that GT follows and GT's own, under PyTorch's path."""

from __future__ import annotations

from gt._gt import __version__ as gt
from gt.torch_version import TorchVersion

# The version of PyTorch whose API is followed, then a plus sign and GT's own version.
__version__ = TorchVersion(f"2.15.0+gt{gt}")
git_version = "Unknown"
debug = False
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None

__all__ = ["__version__", "cuda", "debug", "git_version", "gt", "hip", "rocm", "xpu"]
