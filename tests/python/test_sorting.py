"""Scans, sorting and order statistics, against NumPy, SciPy, and values from PyTorch."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from support import assert_close, numeric_gradient, to_gt, to_numpy

import gt

RNG = np.random.default_rng(0)
NAN = math.nan


def _close(got: gt.Tensor, wanted: Any, near: float = 1e-6) -> None:
    wanted = np.asarray(wanted)
    assert tuple(got.shape) == wanted.shape
    np.testing.assert_allclose(to_numpy(got), wanted, rtol=near, atol=near)


# Scans --------------------------------------------------------------------------------------------------------------


def test_sums_of_integers_are_int64_unless_asked() -> None:
    for dtype in ("bool", "uint8", "int32"):
        t = to_gt(np.array([1, 0, 1]), dtype)
        assert_close(t.cumsum(0), [1, 1, 2], "int64")
        assert_close(t.cumprod(0), [1, 0, 0], "int64")
    t = gt.tensor([200, 100], dtype=gt.uint8)
    assert_close(t.cumsum(0, dtype=gt.uint8), [200, 44], "uint8")
    assert_close(gt.cumsum(t, 0, dtype=gt.float32), [200.0, 300.0], "float32")
    assert_close(t.cumsum_(0), [200, 44], "uint8")
    assert_close(gt.tensor(3.0).cumsum(0), 3.0)
    with pytest.raises(IndexError, match="Dimension out of range"):
        gt.zeros(3).cumsum(1)


@pytest.mark.parametrize("count", [1, 16, 17, 3000])
def test_running_extremes_of_long_rows(count: int) -> None:
    rows = np.random.default_rng(count).standard_normal((3, count)).round(1)
    rows[1, count // 2] = np.nan
    for array in (rows, rows[:, ::-1].copy()):
        values, indices = gt.tensor(array).cummax(1)
        assert_close(values, np.maximum.accumulate(array, 1))
        assert_close(indices, gt.tensor(array.T.copy()).cummax(0).indices.numpy().T)
        assert_close(gt.tensor(array).cummin(1).values, np.minimum.accumulate(array, 1))


def test_cummax_and_cummin_name_the_last_of_equals() -> None:
    t = gt.tensor([1.0, 3.0, 3.0, NAN, 2.0, NAN, 5.0])
    values, indices = t.cummax(0)
    assert_close(values, [1, 3, 3, NAN, NAN, NAN, NAN])
    assert_close(indices, [0, 1, 2, 3, 3, 5, 5], "int64")
    assert_close(gt.tensor([[2, 1, 1], [0, 5, 1]]).cummin(1).indices, [[0, 1, 2], [0, 0, 0]])
    assert_close(gt.tensor(True).cummax(0).values, True)
    leaf = gt.tensor([1.0, 3.0, 2.0, 4.0], requires_grad=True)
    leaf.cummax(0).values.sum().backward()
    assert_close(leaf.grad, [1.0, 2.0, 0.0, 1.0])


def test_logcumsumexp_at_the_ends() -> None:
    a = np.array([-math.inf, -math.inf, 0.0, 800.0, -5.0, math.inf, math.inf])
    _close(gt.tensor(a).logcumsumexp(0), np.logaddexp.accumulate(a))


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_diff(n: int) -> None:
    a = RNG.standard_normal((3, 5))
    for axis in (0, -1):
        _close(gt.diff(gt.tensor(a), n, axis), np.diff(a, n, axis))
    assert_close(gt.tensor([True, False, False]).diff(), [True, False])
    _close(
        gt.diff(gt.tensor(a), prepend=gt.zeros(3, 1, dtype=gt.float64), append=gt.ones(3, 2, dtype=gt.float64)),
        np.diff(a, prepend=np.zeros((3, 1)), append=np.ones((3, 2))),
    )


def test_trapezoids() -> None:
    y, x = RNG.standard_normal((3, 5)), np.cumsum(RNG.uniform(size=5))
    t, at = gt.tensor(y), gt.tensor(x)
    _close(gt.trapezoid(t), np.trapezoid(y))
    _close(gt.trapezoid(t, dx=0.5, dim=0), np.trapezoid(y, dx=0.5, axis=0))
    _close(gt.trapz(t, at), np.trapezoid(y, x))
    _close(gt.cumulative_trapezoid(t, at), scipy.integrate.cumulative_trapezoid(y, x))
    _close(gt.trapezoid(gt.zeros(3, 0)), np.zeros(3))


# Orders -------------------------------------------------------------------------------------------------------------

LINES = [np.array(3.0), np.zeros((0,)), np.zeros((2, 0, 3)), RNG.integers(-3, 4, (4, 7)), RNG.standard_normal((3, 900)),
         np.array([2.0, NAN, -math.inf, 0.0, -0.0, math.inf, NAN, 1.0])]  # fmt: skip


@pytest.mark.parametrize("array", LINES, ids=lambda a: str(a.shape))
def test_sort_keeps_equals_in_order_and_nan_last(array: np.ndarray) -> None:
    for axis in range(array.ndim):
        wanted = np.argsort(array, axis, stable=True)
        values, indices = gt.sort(gt.tensor(array), axis)
        assert_close(indices, wanted, "int64")
        assert_close(values, np.take_along_axis(array, wanted, axis), tolerance=0.0)
        turned = np.flip(np.argsort(np.flip(array, axis), axis, stable=True), axis)
        falling = array.shape[axis] - 1 - turned
        assert_close(gt.argsort(gt.tensor(array), axis, descending=True), falling)
    if array.ndim:
        assert_close(gt.msort(gt.tensor(array)), np.sort(array, 0), tolerance=0.0)
    else:
        assert_close(gt.tensor(array).sort().indices, 0)


def test_topk() -> None:
    a = RNG.standard_normal((5, 40))
    values, indices = gt.tensor(a).topk(3)
    assert_close(values, -np.sort(-a, 1)[:, :3], tolerance=0.0)
    assert_close(indices, np.argsort(-a, 1)[:, :3])
    assert_close(gt.topk(gt.tensor(a), 2, 0, largest=False).values, np.sort(a, 0)[:2], tolerance=0.0)
    assert tuple(gt.tensor(a).topk(0).values.shape) == (5, 0)
    with pytest.raises(RuntimeError, match="selected index k out of range"):
        gt.tensor(a).topk(41)
    # Equal elements keep their order, also in long rows.
    assert_close(gt.arange(3000).remainder(7).topk(2).indices, [6, 13])
    for dtype in (gt.uint8, gt.int64, gt.float16, gt.uint64):
        assert_close(gt.tensor([3, 9, 1, 9, 4]).to(dtype).topk(3).indices, [1, 3, 4])
        assert_close(gt.tensor([3, 9, 1, 9, 4]).to(dtype).topk(2, largest=False).indices, [2, 0])
    rows = gt.tensor(np.arange(12).reshape(3, 4) % 5)
    assert_close(gt.vmap(lambda row: row.topk(2).values)(rows), [[3, 2], [4, 2], [4, 3]])
    leaf = gt.tensor([3.0, 1.0, 2.0], requires_grad=True)
    (leaf.topk(2).values * gt.tensor([10.0, 1.0])).sum().backward()
    assert_close(leaf.grad, [10.0, 0.0, 1.0])


def test_kthvalue_median_and_mode() -> None:
    a = RNG.integers(0, 5, (4, 6)).astype(float)
    for k in (1, 4, 6):
        values, indices = gt.tensor(a).kthvalue(k)
        assert_close(values, np.sort(a, 1)[:, k - 1])
        np.testing.assert_array_equal(a[range(4), to_numpy(indices)], to_numpy(values))
    with pytest.raises(RuntimeError, match="out of range for dimension"):
        gt.tensor(a).kthvalue(7)
    assert_close(gt.tensor(a).median(), np.sort(a.reshape(-1))[11])
    assert_close(gt.tensor(a).median(0, keepdim=True).values, np.sort(a, 0)[1:2])
    assert_close(gt.median(gt.tensor([1, 9, 4])), 4)
    holes = gt.tensor([[1.0, NAN, 3.0, 2.0], [4.0, 6.0, 5.0, 7.0], [NAN] * 4])
    assert_close(holes.median(1).values, [NAN, 5.0, NAN])
    assert_close(holes.median(1).indices, [1, 2, 0])
    assert_close(holes.nanmedian(1).values, [2.0, 5.0, NAN])
    assert_close(holes.nanmedian(), 4.0)
    assert math.isnan(gt.zeros(0).median().item())
    values, indices = gt.tensor([[1, 2, 2, 1, 3], [4, 4, 0, 5, 5]]).mode()
    assert_close(values, [1, 4])
    assert_close(indices, [3, 1])
    assert_close(gt.tensor(a).mode(0).values, scipy.stats.mode(a, 0).mode)


@pytest.mark.parametrize("way", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantile(way: str) -> None:
    a, q = RNG.standard_normal((3, 7)), np.array([0.0, 0.3, 0.5, 1.0])
    t = gt.tensor(a)
    _close(t.quantile(gt.tensor(q), interpolation=way), np.quantile(a, q, method=way))
    _close(t.quantile(0.3, 1, interpolation=way), np.quantile(a, 0.3, 1, method=way))
    _close(t.quantile(gt.tensor(q), 0, True, interpolation=way), np.quantile(a, q, 0, keepdims=True, method=way))
    a[0, 2] = a[2] = NAN
    t = gt.tensor(a)
    _close(t.quantile(0.4, 1, interpolation=way), np.quantile(a, 0.4, 1, method=way))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns about a row of NaN.
        _close(t.nanquantile(gt.tensor(q), 1, interpolation=way), np.nanquantile(a, q, 1, method=way))


def test_quantile_has_a_gradient_and_checks_its_words() -> None:
    a = RNG.standard_normal((3, 4))
    leaf = gt.tensor(a, requires_grad=True)
    leaf.quantile(0.3, 1).sum().backward()
    np.testing.assert_allclose(
        to_numpy(leaf.grad), numeric_gradient(lambda x: np.quantile(x, 0.3, 1), [a], 0), atol=1e-6
    )
    for call, words in [
        (lambda: gt.zeros(3).quantile(1.5), r"range \[0, 1\]"),
        (lambda: gt.zeros(3).quantile(gt.tensor([2.0])), r"range \[0, 1\]"),
        (lambda: gt.zeros(3).quantile(0.5, interpolation="best"), "interpolation must be one of"),
        (lambda: gt.zeros(3).long().quantile(0.5), "either float or double"),
        (lambda: gt.zeros(0).quantile(0.5), "non-empty"),
    ]:
        with pytest.raises(RuntimeError, match=words):
            call()


@pytest.mark.parametrize("array", [a for a in LINES if not np.isnan(a).any()], ids=lambda a: str(a.shape))
def test_unique(array: np.ndarray) -> None:
    got = gt.unique(gt.tensor(array), return_inverse=True, return_counts=True)
    wanted = np.unique(array, return_inverse=True, return_counts=True)
    for mine, theirs in zip(got, wanted, strict=True):
        assert_close(mine, theirs, tolerance=0.0)


def test_unique_of_parts_and_of_neighbours() -> None:
    a = RNG.integers(0, 2, (12, 3))
    for axis in (0, 1):
        got = gt.unique(gt.tensor(a), return_inverse=True, return_counts=True, dim=axis)
        wanted = np.unique(a, return_inverse=True, return_counts=True, axis=axis)
        for mine, theirs in zip(got, wanted, strict=True):
            assert_close(mine, theirs)
    values, inverse, counts = gt.unique_consecutive(gt.tensor([[1, 1], [2, 2], [3, 1]]), True, True)
    assert_close(values, [1, 2, 3, 1])
    assert_close(inverse, [[0, 0], [1, 1], [2, 3]])
    assert_close(counts, [2, 2, 1, 1])
    assert_close(gt.unique_consecutive(gt.tensor([[1, 2], [1, 2], [3, 2]]), dim=0), [[1, 2], [3, 2]])
    assert gt.unique_consecutive(gt.zeros(0)).numel() == 0


def test_searchsorted_and_bucketize() -> None:
    rows, wanted = np.sort(RNG.standard_normal((3, 5)), 1), RNG.standard_normal((3, 4))
    for side in ("left", "right"):
        got = gt.searchsorted(gt.tensor(rows), gt.tensor(wanted), side=side)
        assert_close(got, [np.searchsorted(r, w, side) for r, w in zip(rows, wanted, strict=True)], "int64")
    edges = gt.tensor([1, 3, 5, 7, 9])
    assert_close(gt.bucketize(gt.tensor([[3, 6, 9], [0, 10, 5]]), edges), [[1, 3, 4], [0, 5, 2]])
    assert_close(gt.bucketize(gt.tensor([3, 6, 9]), edges, right=True, out_int32=True), [2, 3, 5], "int32")
    assert_close(gt.searchsorted(edges, 4), 2)
    assert_close(gt.searchsorted(edges, 5.5), 3)
    mixed = gt.tensor([9, 1, 7, 3, 5])
    assert_close(gt.searchsorted(mixed, gt.tensor([4]), sorter=mixed.argsort()), [2])
    assert_close(gt.searchsorted(edges, gt.tensor([1.0, 4.5])), gt.searchsorted(edges.double(), gt.tensor([1.0, 4.5])))
    with pytest.raises(RuntimeError, match="opposites"):
        gt.searchsorted(edges, gt.tensor([1]), right=True, side="left")


def test_counts() -> None:
    a, weights = RNG.integers(0, 6, 50), RNG.standard_normal(50)
    assert_close(gt.bincount(gt.tensor(a)), np.bincount(a), "int64")
    assert_close(gt.tensor(a).bincount(gt.tensor(weights), 9), np.bincount(a, weights, 9), "float64")
    assert_close(gt.bincount(gt.zeros(0, dtype=gt.int64), minlength=2), [0, 0])
    with pytest.raises(RuntimeError, match="1-d non-negative integral"):
        gt.bincount(gt.tensor([-1]))
    x = RNG.standard_normal(500)
    assert_close(gt.histc(gt.tensor(x), 12, -1, 1), np.histogram(x, 12, (-1, 1))[0].astype(float))
    assert_close(gt.histc(gt.tensor([1.0, 2.0, 1.0]), 4), [2.0, 0.0, 0.0, 1.0])
    for words in [{}, {"density": True}, {"weight": x}]:
        told = {k: gt.tensor(v) if k == "weight" else v for k, v in words.items()}
        hist, edges = gt.histogram(gt.tensor(x), 9, range=(-2.0, 2.0), **told)
        wanted = np.histogram(x, 9, (-2, 2), weights=words.get("weight"), density=words.get("density"))
        _close(hist, wanted[0])
        _close(edges, wanted[1])
    steps = np.array([-1.0, 0.0, 0.25, 2.0])
    assert_close(gt.histogram(gt.tensor(x), gt.tensor(steps)).hist, np.histogram(x, steps)[0].astype(float))


def test_isin() -> None:
    a, b = RNG.integers(0, 9, (3, 4)), RNG.integers(0, 9, 5)
    assert_close(gt.isin(gt.tensor(a), gt.tensor(b)), np.isin(a, b), "bool")
    assert_close(gt.isin(gt.tensor(a), gt.tensor(b), invert=True), ~np.isin(a, b))
    assert_close(gt.isin(gt.tensor(a), 3), a == 3)
    assert_close(gt.isin(3, gt.tensor(b)), np.isin(3, b))
    assert not gt.isin(gt.tensor([NAN]), gt.tensor([NAN])).item()
    assert_close(gt.isin(gt.tensor(a), gt.zeros(0, dtype=gt.int64)), np.zeros((3, 4), bool))
