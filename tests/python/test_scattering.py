"""Selection by masks and positions, and scatter operations, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import assert_close, to_numpy

import gt

RNG = np.random.default_rng(0)
MASKS = [
    np.array(True),
    np.array(False),
    np.zeros((0, 3), bool),
    np.array([0.0, np.nan, -0.0, 2.0]),
    RNG.integers(0, 2, (3, 4, 5)),
    np.zeros((7,), bool),
    RNG.integers(0, 2, (300, 400)).astype(bool),
]


@pytest.mark.parametrize("array", MASKS, ids=lambda a: str(a.shape))
def test_nonzero_is_argwhere(array: np.ndarray) -> None:
    t = gt.tensor(array)
    assert_close(t.nonzero(), np.argwhere(array), "int64")
    assert_close(gt.argwhere(t), np.argwhere(array), "int64")
    if array.ndim:
        turned = t.transpose(0, -1)
        assert_close(turned.nonzero(), np.argwhere(array.swapaxes(0, -1)))
    for got, wanted in zip(t.nonzero(as_tuple=True), np.nonzero(np.atleast_1d(array)), strict=True):
        assert_close(got, wanted, "int64")


def test_masked_select_broadcasts_and_has_a_gradient() -> None:
    a, mask = RNG.standard_normal((3, 4)), np.array([True, False, True, True])
    leaf = gt.tensor(a, requires_grad=True)
    chosen = leaf.masked_select(gt.tensor(mask))
    assert_close(chosen, a[:, mask].reshape(-1))
    (chosen * chosen).sum().backward()
    assert_close(leaf.grad, np.where(mask, 2 * a, 0.0))
    with pytest.raises(RuntimeError, match="BoolTensor"):
        leaf.masked_select(gt.tensor(mask).long())


def test_take_and_put_count_from_either_end() -> None:
    a, index = RNG.standard_normal((3, 4)), np.array([[0, -1], [5, -12]])
    t = gt.tensor(a)
    assert_close(t.take(gt.tensor(index)), np.take(a, index))
    wanted = a.copy()
    np.put(wanted, index, [1.0, 2.0, 3.0, 4.0])
    source = gt.tensor([1.0, 2.0, 3.0, 4.0], dtype=gt.float64)
    assert t.put_(gt.tensor([0, -1, 5, 0]), source, accumulate=True) is t
    added = a.copy()
    np.add.at(added.reshape(-1), [0, -1, 5, 0], [1.0, 2.0, 3.0, 4.0])
    assert_close(t, added)
    assert_close(gt.tensor(a).put_(gt.tensor(index), source), wanted)


def test_take_along_dim_broadcasts_the_other_axes() -> None:
    a = RNG.standard_normal((3, 4))
    order = np.argsort(a, 1)
    assert_close(gt.take_along_dim(gt.tensor(a), gt.tensor(order), 1), np.sort(a, 1))
    assert_close(gt.tensor(a).take_along_dim(gt.tensor([[1, 3]]), 1), a[:, [1, 3]])
    assert_close(gt.tensor(a).take_along_dim(gt.tensor([5, 0])), a.reshape(-1)[[5, 0]])


@pytest.mark.parametrize("shape", [(7,), (3, 4), (0,), (2, 0)])
def test_a_mask_of_the_tensor_s_own_shape_picks_elements_and_their_gradient(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).standard_normal(shape)
    x = gt.tensor(a, requires_grad=True)
    assert_close(x[x > 0], a[a > 0])
    assert_close(x.t()[(x > 0).t()], a.T[a.T > 0])
    (x[x > 0] * 3).sum().backward()
    assert_close(x.grad, 3.0 * (a > 0))


def test_masked_scatter_puts_the_source_s_elements_in_order() -> None:
    a, mask = RNG.standard_normal((3, 4)), RNG.integers(0, 2, (3, 4)).astype(bool)
    source = RNG.standard_normal(12)
    wanted = a.copy()
    wanted[mask] = source[: mask.sum()]
    leaves = [gt.tensor(x, requires_grad=True) for x in (a, source)]
    result = leaves[0].masked_scatter(gt.tensor(mask), leaves[1])
    assert_close(result, wanted)
    result.sum().backward()
    assert_close(leaves[0].grad, (~mask).astype(float))
    assert_close(leaves[1].grad, (np.arange(12) < mask.sum()).astype(float))
    with pytest.raises(RuntimeError, match="number of elements in source"):
        gt.zeros(3).masked_scatter_(gt.ones(3, dtype=gt.bool), gt.ones(2))


INDEX = np.array([[0, 1, 1, 0], [2, 2, 2, 1]])
REDUCTIONS: dict[str, Any] = {
    "sum": np.sum, "prod": np.prod, "mean": np.mean, "amax": np.max, "amin": np.min,
}  # fmt: skip


def _reduced(a: np.ndarray, index: np.ndarray, b: np.ndarray, name: str, include_self: bool) -> np.ndarray:
    """Reduces by `index` along axis 0 in NumPy."""
    result = a.copy()
    for to in np.ndindex(a.shape):
        found = [b[i, to[1]] for i in range(index.shape[0]) if index[i, to[1]] == to[0]]
        if found:
            result[to] = REDUCTIONS[name]([a[to], *found] if include_self else found)
    return result


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_scatter_reduce(name: str, dtype: str, include_self: bool) -> None:
    a, b = (RNG.integers(1, 9, shape).astype(dtype) for shape in [(3, 4), (2, 4)])
    t = gt.tensor(a)
    got = t.scatter_reduce(0, gt.tensor(INDEX), gt.tensor(b), name, include_self=include_self)
    assert_close(got, _reduced(a, INDEX, b, name, include_self).astype(dtype), dtype)
    assert t.scatter_reduce_(0, gt.tensor(INDEX), gt.tensor(b), name, include_self=include_self) is t
    np.testing.assert_array_equal(to_numpy(t), to_numpy(got))


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_scatter_reduce_has_gradients(name: str, include_self: bool) -> None:
    a, b = RNG.standard_normal((3, 4)), RNG.standard_normal((2, 4))
    leaves = [gt.tensor(x, requires_grad=True) for x in (a, b)]
    weights = RNG.standard_normal((3, 4))
    got = leaves[0].scatter_reduce(0, gt.tensor(INDEX), leaves[1], name, include_self=include_self)
    (got * gt.tensor(weights)).sum().backward()
    for leaf, which in zip(leaves, (0, 1), strict=True):
        wanted = np.zeros(leaf.shape)
        for place in np.ndindex(*leaf.shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = [a.copy(), b.copy()]
                moved[which][place] += step
                sides.append((_reduced(moved[0], INDEX, moved[1], name, include_self) * weights).sum())
            wanted[place] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(to_numpy(leaf.grad), wanted, rtol=1e-5, atol=1e-6)


def test_scatter_takes_a_source_or_a_number() -> None:
    t, index = gt.zeros(3, 4), gt.tensor([[0, 1, 2, 0]])
    rows = gt.tensor([[1.0, 2.0, 3.0, 4.0]])
    wanted = np.zeros((3, 4))
    wanted[[0, 1, 2, 0], range(4)] = [1, 2, 3, 4]
    assert_close(t.scatter(0, index, rows), wanted)
    assert_close(gt.scatter(t, 0, index, src=rows), wanted)
    assert_close(t.scatter(0, index, 5.0), np.where(wanted, 5.0, 0.0))
    assert_close(t.scatter(0, index, value=5), np.where(wanted, 5.0, 0.0))
    assert_close((t + 1).scatter_(0, index, rows, reduce="add"), wanted + 1)
    assert_close((t + 2).scatter_(0, index, rows, reduce="multiply"), np.where(wanted, 2 * wanted, 2.0))
    # An expanded index vector selects whole rows.
    whole = gt.tensor([[2], [0]]).expand(2, 4)
    assert_close(t.scatter(0, whole, gt.ones(2, 4)), [[1.0] * 4, [0.0] * 4, [1.0] * 4])
    assert_close(gt.tensor(5.0).scatter(0, gt.tensor(0), gt.tensor(7.0)), 7.0)
    with pytest.raises(RuntimeError, match="to be equal to src"):
        t.scatter(0, index, rows.double())
    with pytest.raises(RuntimeError, match="add or multiply"):
        t.scatter(0, index, rows, reduce="mean")
    with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 3"):
        t.scatter(0, index + 1, rows).tolist()


def test_rows_by_a_vector_of_indices() -> None:
    a, source, index = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 2)), np.array([3, 0])
    t, at, s = gt.tensor(a), gt.tensor(index), gt.tensor(source)
    wanted = a.copy()
    wanted[:, index] = source
    assert_close(t.index_copy(1, at, s), wanted)
    wanted[:, index] = a[:, index] + 2 * source
    assert_close(t.index_add(1, at, s, alpha=2), wanted)
    wanted[:, index] = 7.0
    assert_close(t.index_fill(-1, gt.tensor([-1, 0]), 7), wanted)
    wanted[:, index] = np.maximum(a[:, index], source)
    assert_close(t.index_reduce(1, at, s, "amax"), wanted)
    assert t.index_add_(1, at, s) is t
    with pytest.raises(RuntimeError, match="Number of indices"):
        t.index_add(0, at, s)
    with pytest.raises(RuntimeError, match="same scalar type"):
        t.index_add(1, at, s.float())
    with pytest.raises(IndexError, match="supposed to be a vector"):
        t.index_copy(1, gt.tensor([[0, 1]]), s)


def test_sums_of_bools_are_either_and_products_both() -> None:
    t, index = gt.tensor([True, False, False]), gt.tensor([0, 1, 2])
    source = gt.tensor([False, True, False])
    assert_close(t.scatter_add(0, index, source), [True, True, False], "bool")
    assert_close(t.scatter_reduce(0, index, source, "prod"), [False, False, False], "bool")
    assert_close(t.index_add(0, index, source), [True, True, False], "bool")


def test_an_index_may_be_int32_and_of_no_elements_anything() -> None:
    t, index = gt.tensor([1.0, 2.0, 3.0]), gt.tensor([2, 0], dtype=gt.int32)
    assert_close(t.gather(0, index), [3.0, 1.0])
    assert_close(t.scatter(0, index, 9.0), [9.0, 2.0, 9.0])
    assert tuple(t.gather(0, gt.zeros(0, dtype=gt.uint8)).shape) == (0,)


def test_the_gradient_of_a_filling_counts_each_place_once() -> None:
    value = gt.tensor(2.0, requires_grad=True)
    gt.zeros(3, 2).index_fill(0, gt.tensor([1, 1, -1]), value).sum().backward()
    assert_close(value.grad, 4.0)


@pytest.mark.parametrize(
    ("dtype", "number", "given", "kind"),
    [
        (gt.int8, 300, gt.int64, "int8_t"),
        (gt.uint8, 2**53, gt.int64, "uint8_t"),
        (gt.int32, float("nan"), gt.float32, "int"),
        (gt.float16, 1e10, gt.float32, "c10::Half"),
        (gt.bfloat16, 1e300, gt.float64, "c10::BFloat16"),
    ],
    ids=str,
)
def test_one_element_beyond_a_dtype_fills_no_others(dtype: gt.dtype, number: float, given: gt.dtype, kind: str) -> None:
    x, mask = gt.ones(2, dtype=dtype), gt.tensor([True, False])
    fill = {
        "a mask": lambda value: x.__setitem__(mask, value),
        "a mask and one element": lambda value: x.__setitem__(mask, value.reshape(1)),
        "index_put_": lambda value: x.index_put_((mask,), value),
        "masked_fill_": lambda value: x.masked_fill_(mask, value),
        "index_fill_": lambda value: x.index_fill_(0, gt.tensor([0]), value),
    }
    for write in fill.values():
        with pytest.raises(RuntimeError, match=f"cannot be converted to type {kind} without overflow"):
            write(gt.tensor(number, dtype=given))
        assert x.tolist() == [1, 1]
        write(gt.tensor(7, dtype=given))
        assert x.tolist() == [7, 1]
        x.fill_(1)


def test_adding_a_negative_zero_keeps_its_sign_on_every_worker() -> None:
    places, zeros = gt.tensor([1, 0]), gt.tensor([-0.0, -0.0])
    sums = [
        zeros.index_add(0, places, zeros),
        zeros.scatter_add(0, places, zeros),
        zeros.index_put((places,), zeros, accumulate=True),
    ]
    for total in sums:
        assert (1 / total).tolist() == [-float("inf")] * 2
    assert (1 / gt.zeros(2).index_add(0, places, zeros)).tolist() == [float("inf")] * 2
