"""The operations that torchvision's extension module adds to PyTorch, so that its Python part runs on GT."""

from __future__ import annotations

from gt import _absent, ops
from gt._functions._boxes import nms, roi_align

# Calling one of these raises an error. The gradient of `roi_align` follows from its operations.
MISSING = """
    roi_pool ps_roi_align ps_roi_pool deform_conv2d box_iou_rotated qnms qroi_align _roi_align_backward
    _roi_pool_backward _ps_roi_align_backward _ps_roi_pool_backward _deform_conv2d_backward
""".split()


def _cuda_version() -> int:
    """-1: there is no extension that was compiled for CUDA."""
    return -1


def add() -> None:
    """Adds the operations to `ops.torchvision`."""
    for operation in (nms, roi_align, _cuda_version):
        ops.add(f"torchvision::{operation.__name__}", operation)
    for name in MISSING:
        ops.add(f"torchvision::{name}", _absent.stand_in(f"torchvision.{name}"))
