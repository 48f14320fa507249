"""The operations that torchvision's Python part finds in `torch.ops.torchvision`."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

import gt
from gt.torch import torchvision_ops as operations


def boxes(count: int, seed: int) -> np.ndarray:
    """Boxes as x1, y1, x2, y2, some of which reach beyond an image of 20 by 14."""
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-4, 18, (count, 2))
    return np.concatenate([corners, corners + rng.uniform(0, 14, (count, 2))], 1)


def sampled(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """The bilinear sample of an image of shape (channels, height, width); 0 more than a pixel outside."""
    _, height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(len(image))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    (top, left), total = (int(y), int(x)), np.zeros(len(image))
    for down, right in product((0, 1), (0, 1)):
        weight = (y - top if down else 1 - y + top) * (x - left if right else 1 - x + left)
        total += weight * image[:, min(top + down, height - 1), min(left + right, width - 1)]
    return total


def averages(
    maps: np.ndarray, rois: np.ndarray, scale: float, size: tuple[int, int], ratio: int, aligned: bool
) -> np.ndarray:
    """RoI Align, sample by sample."""
    found = np.zeros((len(rois), maps.shape[1], *size))
    for i, (image, *corners) in enumerate(rois):
        left, top, right, bottom = (corner * scale - (0.5 if aligned else 0) for corner in corners)
        sides = [bottom - top, right - left]
        if not aligned:
            sides = [max(side, 1) for side in sides]
        parts = [side / n for side, n in zip(sides, size, strict=True)]
        samples = [ratio if ratio > 0 else math.ceil(part) for part in parts]
        for place in product(*map(range, size)):
            for sample in product(*map(range, samples)):
                y, x = (
                    begin + part * (p + (s + 0.5) / n)
                    for begin, part, p, s, n in zip((top, left), parts, place, sample, samples, strict=True)
                )
                found[(i, slice(None), *place)] += sampled(maps[int(image)], y, x) / math.prod(samples)
    return found


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 1, 2])
def test_roi_align_averages_bilinear_samples(ratio: int, aligned: bool) -> None:
    rng = np.random.default_rng(1)
    maps = rng.standard_normal((3, 2, 7, 10))
    rois = np.concatenate([rng.integers(0, 3, (12, 1)), boxes(12, 2)], 1)
    found = operations.roi_align(gt.from_numpy(maps), gt.from_numpy(rois), 0.5, 2, 3, ratio, aligned)
    np.testing.assert_allclose(found.numpy(), averages(maps, rois, 0.5, (2, 3), ratio, aligned), atol=1e-12)


def test_roi_align_has_the_gradient_of_the_feature_maps() -> None:
    rng = np.random.default_rng(3)
    maps = gt.from_numpy(rng.standard_normal((1, 1, 4, 5))).requires_grad_()
    rois = gt.from_numpy(np.concatenate([np.zeros((3, 1)), boxes(3, 4)], 1))
    assert gt.autograd.gradcheck(lambda maps: operations.roi_align(maps, rois, 0.4, 2, 2, 2, True), (maps,))


def test_roi_align_in_parts_is_the_same() -> None:
    """One product of all regions would take 270 MB, so there are several."""
    rng = np.random.default_rng(7)
    maps = gt.from_numpy(rng.standard_normal((1, 64, 256, 8)).astype(np.float32))
    corners = rng.uniform(0, 200, (512, 2)) / [32, 1]
    rois = np.concatenate([np.zeros((512, 1)), corners, corners + rng.uniform(0, 50, (512, 2)) / [32, 1]], 1)
    regions = gt.from_numpy(rois.astype(np.float32))
    found = operations.roi_align(maps, regions, 1.0, 1, 8, 2, True)
    alone = [operations.roi_align(maps, regions[i : i + 1], 1.0, 1, 8, 2, True) for i in range(0, 512, 40)]
    gt.testing.assert_close(found[::40], gt.cat(alone))


@pytest.mark.parametrize("corners", [[5.0, 5.0, 5.0, 5.0], [6.0, 6.0, 2.0, 2.0], [-1e9, -1e9, 1e9, 1e9]])
def test_roi_align_of_boxes_without_area_or_of_any_size(corners: list[float]) -> None:
    rng = np.random.default_rng(8)
    maps, rois = rng.standard_normal((1, 2, 7, 9)), np.array([[0.0, *corners]])
    found = operations.roi_align(gt.from_numpy(maps), gt.from_numpy(rois), 1.0, 2, 2, 2, True)
    np.testing.assert_allclose(found.numpy(), averages(maps, rois, 1.0, (2, 2), 2, True), atol=1e-12)
    # There are as many samples as pixels: those of the last box are not computed one by one.
    assert operations.roi_align(gt.from_numpy(maps), gt.from_numpy(rois), 1.0, 2, 2, -1, True).isfinite().all()


def test_roi_align_refuses_integers() -> None:
    maps = gt.zeros(1, 1, 4, 4, dtype=gt.int64)
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        operations.roi_align(maps, gt.zeros(1, 5, dtype=gt.int64), 1.0, 2, 2, -1, False)


def test_roi_align_of_no_regions_is_empty_and_keeps_the_dtype() -> None:
    maps = gt.zeros(2, 3, 4, 4, dtype=gt.float16)
    found = operations.roi_align(maps, maps.new_zeros(0, 5), 1.0, 2, 2, -1, False)
    assert (found.shape, found.dtype) == ((0, 3, 2, 2), gt.float16)


@pytest.mark.parametrize(
    ("rois", "error", "words"),
    [
        (np.zeros((2, 4), np.float32), RuntimeError, r"rois of shape \(K, 5\), but got \[1, 1, 4, 4\] and \[2, 4\]"),
        (np.zeros((2, 5)), RuntimeError, "same type, but they are gt.float32 and gt.float64"),
        (np.ones((2, 5), np.float32), IndexError, "a region names image 1, but input has 1"),
        (np.full((2, 5), math.nan, np.float32), IndexError, "a region names image NaN, but input has 1"),
    ],
)
def test_roi_align_names_wrong_regions(rois: np.ndarray, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        operations.roi_align(gt.zeros(1, 1, 4, 4), gt.from_numpy(rois), 1.0, 2, 2, 2, False)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    shared = float(np.prod(np.maximum(sides, 0)))
    return shared / (np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


def test_nms_keeps_boxes_that_overlap_no_better_one() -> None:
    found, scores = boxes(60, 5), np.random.default_rng(6).uniform(size=60)
    kept: list[int] = []
    for i in np.argsort(-scores):
        if all(overlap(found[i], found[j]) <= 0.3 for j in kept):
            kept.append(int(i))
    assert 5 < len(kept) < 60
    assert operations.nms(gt.from_numpy(found), gt.from_numpy(scores), 0.3).tolist() == kept


def test_nms_names_wrong_boxes() -> None:
    with pytest.raises(RuntimeError, match="boxes should have 4 elements in dimension 1, got 5"):
        operations.nms(gt.zeros(2, 5), gt.zeros(2), 0.5)
    with pytest.raises(RuntimeError, match="same number of elements in dimension 0, got 2 and 3"):
        operations.nms(gt.zeros(2, 4), gt.zeros(3), 0.5)
