"""The operations that torchvision's extension module adds to PyTorch, so that its Python part runs on GT.

`roi_align` is torchvision's own formulation in tensor operations; `nms` is the greedy algorithm of Girshick et al.,
"Rich feature hierarchies for accurate object detection and semantic segmentation" (2014).
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from gt import _absent, _gt, ops
from gt._gt import Tensor

# Calling one of these raises an error. The gradient of `roi_align` follows from its operations.
MISSING = """
    roi_pool ps_roi_align ps_roi_pool deform_conv2d box_iou_rotated qnms qroi_align _roi_align_backward
    _roi_pool_backward _ps_roi_align_backward _ps_roi_pool_backward _deform_conv2d_backward
""".split()


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of the boxes that remain when boxes that overlap a better one are left out, best first.

    Args:
        dets: Boxes as x1, y1, x2, y2: shape (N, 4).
        scores: The boxes' scores: shape (N,).
        iou_threshold: A box is left out if its intersection with a better one is more than this part of their union.

    Returns:
        Indices as int64: shape (kept,).
    """
    for name, t, dims in (("boxes", dets, 2), ("scores", scores, 1)):
        if t.dim() != dims:
            raise RuntimeError(f"{name} should be a {dims}d tensor, got {t.dim()}D")
    if dets.shape[1] != 4:
        raise RuntimeError(f"boxes should have 4 elements in dimension 1, got {dets.shape[1]}")
    if dets.shape[0] != scores.shape[0]:
        raise RuntimeError(
            "boxes and scores should have same number of elements in dimension 0, got "
            f"{dets.shape[0]} and {scores.shape[0]}"
        )
    kind = _gt.float64 if dets.dtype == _gt.float64 else _gt.float32
    boxes = dets.detach().to(kind).numpy()
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    order = np.argsort(-scores.detach().to(kind).numpy(), kind="stable")
    kept = []
    while order.size:
        best, rest = order[0], order[1:]
        kept.append(best)
        width = np.minimum(right[best], right[rest]) - np.maximum(left[best], left[rest])
        height = np.minimum(bottom[best], bottom[rest]) - np.maximum(top[best], top[rest])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            order = rest[~(shared / (areas[best] + areas[rest] - shared) > iou_threshold)]
    return _gt.copy_array(np.array(kept, np.int64))


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Averages of bilinear samples of regions: shape (regions, channels, pooled_height, pooled_width).

    Args:
        input: Feature maps: shape (batch, channels, height, width).
        rois: Regions as index in the batch, x1, y1, x2, y2: shape (regions, 5).
        spatial_scale: The factor from the regions' coordinates to the feature maps'.
        pooled_height: The height of a result.
        pooled_width: The width of a result.
        sampling_ratio: Samples along each side of an element of the result; if not positive, as many as it has pixels.
        aligned: Whether pixels' centres are at half coordinates.
    """
    # The package has a function of the module's name.
    module = import_module("torchvision.ops.roi_align")
    return module._roi_align(  # type: ignore[no-any-return]
        input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned
    )


def _cuda_version() -> int:
    """-1: there is no extension that was compiled for CUDA."""
    return -1


def add() -> None:
    """Adds the operations to `ops.torchvision`."""
    for operation in (nms, roi_align, _cuda_version):
        ops.add(f"torchvision::{operation.__name__}", operation)
    for name in MISSING:
        ops.add(f"torchvision::{name}", _absent.stand_in(f"torchvision.{name}"))
