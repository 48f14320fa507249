"""`gradient` of samples, and histograms in several dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import assert_close

import gt
from gt.autograd import gradcheck

RANDOM = np.random.default_rng(0)
FIELD = RANDOM.normal(size=(4, 5))
PLACES = [np.array([0.0, 1.0, 1.5, 4.0]), np.array([-1.0, 0.0, 2.0, 2.5, 3.0])]


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("spacing", [2.0, (0.5, 3.0), PLACES])
def test_slopes_are_numpy_s(spacing: Any, edge_order: int) -> None:
    wanted = np.gradient(FIELD, *(spacing if not isinstance(spacing, float) else [spacing]), edge_order=edge_order)
    ours = [gt.tensor(places) for places in spacing] if spacing is PLACES else spacing
    got = gt.gradient(gt.tensor(FIELD), spacing=ours, edge_order=edge_order)
    assert isinstance(got, tuple)
    for a, b in zip(got, wanted, strict=True):
        assert_close(a, b)


def test_slopes_along_some_axes() -> None:
    (got,) = gt.gradient(gt.tensor([1, 4, 9, 16]))
    assert got.tolist() == [3, 4, 6, 7]
    (got,) = gt.gradient(gt.tensor(FIELD), dim=-1)
    assert_close(got, np.gradient(FIELD, axis=-1))
    assert gradcheck(lambda f: gt.gradient(f, spacing=2.0), [gt.tensor(FIELD, requires_grad=True)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edge_order": 3}, "only supports edge_order=1 and edge_order=2"),
        ({"dim": (1, 1)}, "dim 1 appears multiple times"),
        ({"spacing": [1.0]}, "expected spacing to be unspecified, a scalar or a list"),
        ({"dim": 0, "edge_order": 2}, "each dimension size to be at least"),
    ],
)
def test_slopes_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        gt.gradient(gt.ones(2, 3), **options)


@pytest.mark.parametrize("density", [False, True])
def test_points_in_a_grid(density: bool) -> None:
    points, weights = RANDOM.normal(size=(50, 3)), RANDOM.uniform(size=50)
    edges = [np.linspace(-1, 1, 3), np.array([-2.0, 0.0, 0.5, 2.0]), np.linspace(-3, 3, 5)]
    wanted, _ = np.histogramdd(points, edges, density=density, weights=weights)
    got = gt.histogramdd(
        gt.tensor(points), [gt.tensor(edge) for edge in edges], weight=gt.tensor(weights), density=density
    )
    assert_close(got.hist, wanted)
    assert len(got.bin_edges) == 3
    wanted, ends = np.histogramdd(points, 2, [(-1, 1), (-2, 2), (-3, 3)])
    got = gt.histogramdd(gt.tensor(points), 2, range=[-1, 1, -2, 2, -3, 3])
    assert_close(got.hist, wanted)
    assert_close(got.bin_edges[2], ends[2])
    with pytest.raises(RuntimeError, match="size of bins must be equal to the innermost dimension"):
        gt.histogramdd(gt.tensor(points), [1, 2])


def test_a_given_number_of_positions() -> None:
    t = gt.tensor([[1, 0], [0, 2]])
    assert gt.nonzero_static(t, size=1).tolist() == [[0, 0]]
    assert t.nonzero_static(size=3, fill_value=7).tolist() == [[0, 0], [1, 1], [7, 7]]
