"""Splitting, rearranging and products against NumPy; functions that only PyTorch has against their definition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import assert_close

import gt

RNG = np.random.default_rng(3)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


SAME_AS_NUMPY: list[tuple[str, Callable[..., Any], Callable[..., Any], list[np.ndarray]]] = [
    ("diag", lambda a: gt.diag(a, 1), lambda a: np.diag(a, 1), [numbers(3, 4)]),
    ("diag of a vector", lambda a: gt.diag(a, -1), lambda a: np.diag(a, -1), [numbers(3)]),
    ("diagflat", gt.diagflat, np.diagflat, [numbers(2, 2)]),
    ("trace", gt.trace, np.trace, [numbers(3, 4)]),
    ("tensor_split", lambda a: a.tensor_split(3), lambda a: np.array_split(a, 3), [numbers(7, 2)]),
    ("tensor_split at", lambda a: a.tensor_split((1, 5), 1), lambda a: np.array_split(a, (1, 5), 1), [numbers(2, 7)]),
    ("hsplit", lambda a: gt.hsplit(a, 3), lambda a: np.hsplit(a, 3), [numbers(4, 6)]),
    ("vsplit", lambda a: gt.vsplit(a, [1, 2]), lambda a: np.vsplit(a, [1, 2]), [numbers(4, 6)]),
    ("dsplit", lambda a: gt.dsplit(a, 2), lambda a: np.dsplit(a, 2), [numbers(2, 3, 4)]),
    ("atleast_2d", gt.atleast_2d, np.atleast_2d, [numbers(3)]),
    ("atleast_3d", gt.atleast_3d, np.atleast_3d, [numbers(3, 2)]),
    ("dstack", lambda *a: gt.dstack(a), lambda *a: np.dstack(a), [numbers(3), numbers(3)]),
    ("column_stack", lambda *a: gt.column_stack(a), lambda *a: np.column_stack(a), [numbers(3), numbers(3, 2)]),
    ("rot90", lambda a: gt.rot90(a, 3, (1, 2)), lambda a: np.rot90(a, 3, (1, 2)), [numbers(2, 3, 4)]),
    ("rot90 twice", lambda a: gt.rot90(a, -2), lambda a: np.rot90(a, -2), [numbers(3, 4)]),
    ("fliplr", gt.fliplr, np.fliplr, [numbers(3, 4)]),
    ("flipud", gt.flipud, np.flipud, [numbers(3, 4)]),
    ("take", lambda a: a.take(gt.tensor([[1, -1]])), lambda a: np.take(a, [[1, -1]]), [numbers(3, 4)]),
    ("repeat each", lambda a: a.repeat_interleave(2, 1), lambda a: np.repeat(a, 2, 1), [numbers(3, 2)]),
    (
        "repeat by counts",
        lambda a: a.repeat_interleave(gt.tensor([1, 0, 2]), 0),
        lambda a: np.repeat(a, [1, 0, 2], 0),
        [numbers(3, 2)],
    ),
    ("kron", gt.kron, np.kron, [numbers(2, 3), numbers(3, 2)]),
    ("kron of a vector", gt.kron, np.kron, [numbers(2), numbers(3, 2)]),
    ("tensordot", gt.tensordot, np.tensordot, [numbers(2, 3, 4), numbers(3, 4, 5)]),
    (
        "tensordot along axes",
        lambda a, b: gt.tensordot(a, b, ([1, 2], [1, 0])),
        lambda a, b: np.tensordot(a, b, ([1, 2], [1, 0])),
        [numbers(2, 3, 4), numbers(4, 3, 5)],
    ),
    ("inner", gt.inner, np.inner, [numbers(2, 3), numbers(4, 3)]),
    ("cross", gt.cross, np.cross, [numbers(2, 3), numbers(2, 3)]),
    ("vander", gt.vander, np.vander, [numbers(3)]),
    ("vander rising", lambda a: gt.vander(a, 5, True), lambda a: np.vander(a, 5, True), [numbers(3)]),
    ("cov", gt.cov, np.cov, [numbers(3, 5)]),
    ("corrcoef", gt.corrcoef, np.corrcoef, [numbers(3, 5)]),
    ("diagonal of equals", lambda a: gt.einsum("ii->i", a), lambda a: np.einsum("ii->i", a), [numbers(3, 3)]),
    ("trace of equals", lambda a: gt.einsum("ii", a), lambda a: np.einsum("ii", a), [numbers(3, 3)]),
    (
        "dots",
        lambda a, b: gt.einsum("...ij,...jk->...ik", a, b),
        lambda a, b: np.einsum("...ij,...jk->...ik", a, b),
        [numbers(2, 3, 4), numbers(4, 5)],
    ),
    (
        "dots in the middle",
        lambda a, b: gt.einsum("b...c,c->b...", a, b),
        lambda a, b: np.einsum("b...c,c->b...", a, b),
        [numbers(2, 3, 2, 4), numbers(4)],
    ),
]


@pytest.mark.parametrize(
    ("function", "reference", "arrays"), [row[1:] for row in SAME_AS_NUMPY], ids=[row[0] for row in SAME_AS_NUMPY]
)
def test_functions_of_numpy(function: Callable[..., Any], reference: Callable[..., Any], arrays: list[Any]) -> None:
    tensors = [gt.tensor(array, requires_grad=True) for array in arrays]
    made, wanted = function(*tensors), reference(*arrays)
    if isinstance(made, gt.Tensor):
        made, wanted = [made], [wanted]
    for t, array in zip(made, wanted, strict=True):
        assert_close(t, array)
    weights = [RNG.standard_normal(t.shape) for t in made]
    sum((t * gt.tensor(w)).sum() for t, w in zip(made, weights, strict=True)).backward()

    def total(*inputs: np.ndarray) -> float:
        parts = reference(*inputs)
        parts = parts if isinstance(parts, list | tuple) else [parts]
        return sum(float((np.asarray(part) * w).sum()) for part, w in zip(parts, weights, strict=True))

    for i, array in enumerate(arrays):
        for place in np.ndindex(array.shape):
            up, down = ([a.copy() for a in arrays] for _ in range(2))
            up[i][place] += 1e-6
            down[i][place] -= 1e-6
            slope = (total(*up) - total(*down)) / 2e-6
            assert tensors[i].grad[place].item() == pytest.approx(slope, abs=1e-6)


def test_diagonals_at_any_axes() -> None:
    a = numbers(2, 3)
    made = gt.diag_embed(gt.tensor(a), 1, 0, 2)
    assert made.shape == (4, 2, 4)
    assert_close(made.diagonal(1, 0, 2), a)
    assert made.abs().sum().item() == pytest.approx(np.abs(a).sum())
    copy = gt.diagonal_scatter(gt.zeros(3, 3), gt.ones(2), 1)
    assert copy.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_copies_with_a_part_replaced_leave_the_tensor_as_it_is() -> None:
    t = gt.zeros(3, 4)
    assert gt.select_scatter(t, gt.ones(4), 0, -1).tolist() == [[0] * 4, [0] * 4, [1] * 4]
    assert gt.slice_scatter(t, gt.ones(3, 2), 1, 0, None, 2).tolist() == [[1, 0, 1, 0]] * 3
    assert t.sum().item() == 0
    with pytest.raises(RuntimeError, match=r"size equal to the slice of self. src size = \[3\], slice size = \[4\]"):
        gt.select_scatter(t, gt.ones(3), 0, 0)


@pytest.mark.parametrize("part", [np.s_[1:5, :, 2:], np.s_[:, 2:3], np.s_[:2, :5, 1:6], np.s_[:, :], np.s_[:, 1:7:2]])
def test_elements_beside_a_large_part_are_those_of_the_tensor(part: Any) -> None:
    a = numbers(6, 7, 8)
    want = a.copy()
    want[part] = -1.0
    for t in (gt.tensor(a), gt.tensor(a.transpose(2, 0, 1).copy()).permute(1, 2, 0)):
        got = t.clone()
        got[part] = -1.0
        np.testing.assert_array_equal(got.numpy(), want)
        np.testing.assert_array_equal(t.numpy(), a)
    padded = gt.nn.functional.pad(gt.tensor(a), (2, 1, 0, 3), value=7.0)
    np.testing.assert_array_equal(padded.numpy(), np.pad(a, ((0, 0), (0, 3), (2, 1)), constant_values=7.0))


@pytest.mark.parametrize(("size", "step"), [(2, 2), (2, 3), (3, 1), (3, 2), (8, 1)])
def test_unfold_shows_windows(size: int, step: int) -> None:
    a = numbers(2, 8)
    wanted = np.lib.stride_tricks.sliding_window_view(a, size, 1)[:, ::step]
    assert_close(gt.tensor(a).unfold(1, size, step), wanted)
    assert_close(gt.tensor(a.T.copy()).unfold(0, size, step), wanted.transpose(1, 0, 2))


def test_windows_are_a_view() -> None:
    t = gt.zeros(6)
    t.unfold(0, 2, 3)[1] += 1
    assert t.tolist() == [0, 0, 0, 1, 1, 0]
    windows = t.unfold(0, 3, 1)
    windows[0] = gt.tensor([1.0, 2.0, 3.0])
    assert t.tolist() == [1, 2, 3, 1, 1, 0]
    assert windows[2].tolist() == [3, 1, 1]
    assert windows.stride() == (1, 1)
    x = gt.ones(4, requires_grad=True)
    y = x * 1
    y.unfold(0, 3, 1)[:, 1].mul_(5)
    y.sum().backward()
    assert x.grad.tolist() == [1, 5, 5, 1]


def test_as_strided_shows_memory() -> None:
    a = numbers(3, 4)
    wanted = np.lib.stride_tricks.as_strided(a.reshape(-1)[1:], (2, 3), (5 * 8, 8))
    assert_close(gt.tensor(a).as_strided((2, 3), (5, 1), 1), wanted)
    t = gt.zeros(3, 3)
    t.as_strided((3,), (4,)).fill_(1)
    assert t.tolist() == np.eye(3).tolist()
    assert t.as_strided((2, 2), (1, 3), 1).stride() == (1, 3)
    with pytest.raises(RuntimeError, match="out of bounds"):
        gt.tensor(a).as_strided((3, 3), (5, 1))
    with pytest.raises(NotImplementedError, match="contiguous"):
        gt.tensor(a).T.as_strided((2,), (1,))
    with pytest.raises(NotImplementedError, match="before the first element of the view"):
        gt.tensor(a)[1].as_strided((2,), (1,), 1)
    assert gt.tensor(a)[1].as_strided((2,), (1,)).tolist() == a[1, :2].tolist()


def test_choices_and_blocks() -> None:
    a, b = numbers(4), numbers(3)
    assert_close(gt.combinations(gt.tensor(a), 3), list(itertools.combinations(a, 3)))
    assert_close(
        gt.combinations(gt.tensor(b), with_replacement=True), list(itertools.combinations_with_replacement(b, 2))
    )
    assert_close(gt.cartesian_prod(gt.tensor(a), gt.tensor(b)), list(itertools.product(a, b)))
    alone = gt.tensor(a)
    assert gt.cartesian_prod(alone) is alone
    assert gt.cat([alone]) is not alone
    blocks = gt.block_diag(gt.ones(1, 2), gt.full((2, 1), 2.0))
    assert blocks.tolist() == [[1, 1, 0], [0, 0, 2], [0, 0, 2]]
    assert gt.tril_indices(2, 3, 1).tolist() == [list(places) for places in np.tril_indices(2, 1, 3)]
    assert gt.triu_indices(2, 3).tolist() == [list(places) for places in np.triu_indices(2, 0, 3)]


@pytest.mark.parametrize("order", [0, 1, 2, 3, float("inf")])
@pytest.mark.parametrize("rows", [4, 30])
def test_distances(order: float, rows: int) -> None:
    a, b = numbers(rows, 3), numbers(5, 3)
    differences = np.linalg.norm(a[:, None] - b, order, axis=-1)
    assert_close(gt.cdist(gt.tensor(a), gt.tensor(b), order), differences, tolerance=1e-7)
    pairs = np.array([np.linalg.norm(x - y, order) for x, y in itertools.combinations(b, 2)])
    assert_close(gt.pdist(gt.tensor(b), order), pairs)
    assert_close(gt.dist(gt.tensor(a[0]), gt.tensor(b[0]), order), differences[0, 0])


def test_the_distance_to_itself_has_no_slope() -> None:
    x = gt.ones(2, 3, requires_grad=True)
    gt.cdist(x, x).sum().backward()
    assert x.grad.abs().sum().item() == 0


def test_sums_that_skip_nan() -> None:
    t = gt.tensor([[1.0, float("nan")], [2.0, 4.0]], requires_grad=True)
    assert t.nansum(1).tolist() == [1, 6]
    assert t.nanmean().item() == pytest.approx(7 / 3)
    t.nanmean(1).sum().backward()
    assert t.grad.tolist() == [[1, 0], [0.5, 0.5]]
    smallest, largest = gt.aminmax(gt.tensor([[1, 5], [7, 2]]), dim=1)
    assert (smallest.tolist(), largest.tolist()) == ([1, 2], [5, 7])


def test_weighted_covariances() -> None:
    a, often, weights = numbers(3, 5), np.array([1, 2, 3, 1, 1]), np.array([1.0, 2, 3, 1, 0.5])
    for options in ({"fweights": often}, {"aweights": weights}, {"fweights": often, "aweights": weights}):
        wanted = np.cov(a, **options)
        assert_close(gt.cov(gt.tensor(a), **{name: gt.tensor(w) for name, w in options.items()}), wanted)


def test_sum_to_size_undoes_broadcasting() -> None:
    t = gt.ones(2, 3, 4)
    assert t.sum_to_size(3, 1).tolist() == [[8], [8], [8]]
    assert t.sum_to_size(2, 3, 4) is t
    scalar = gt.tensor(True)
    summed = scalar.sum_to_size(())
    assert summed is not scalar
    assert summed.dtype == gt.int64
    assert summed.item() == 1
    with pytest.raises(RuntimeError, match="not expandable"):
        t.sum_to_size(5)


def test_renorm_shortens_long_vectors() -> None:
    t = gt.tensor([[3.0, 4.0], [0.3, 0.4]])
    assert_close(t.renorm(2, 0, 1.0), [[0.6, 0.8], [0.3, 0.4]], tolerance=1e-6)


def test_tensors_like_this_one() -> None:
    t = gt.zeros(2, dtype=gt.float64)
    made = [t.new_zeros(2, 3), t.new_ones((2, 3)), t.new_full((2, 3), 7), t.new_tensor([[1, 2]]), t.new_empty(1)]
    assert [m.dtype for m in made] == [gt.float64] * 5
    assert made[2].tolist() == [[7] * 3] * 2
    assert t.new_ones(1, dtype=gt.int64).dtype == gt.int64


def test_membership_and_other_protocols() -> None:
    t = gt.tensor([1.0, 3.0])
    assert 3 in t
    assert 2 not in t
    assert complex(t[0]) == 1 + 0j
    assert ["a", "b"][gt.tensor(1)] == "b"
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        "a" in t  # noqa: B015
    with pytest.raises(TypeError, match="only integer tensors of a single element"):
        ["a"][t]


def test_memory_cannot_be_shared_or_resized() -> None:
    t = gt.zeros(2)
    with pytest.raises(NotImplementedError, match="there are only 2 elements"):
        t.resize_(3)
    with pytest.raises(NotImplementedError, match="view"):
        t.set_(t)
