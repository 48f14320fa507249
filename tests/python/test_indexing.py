"""`x[…]` and `x[…] = y` against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import assert_close, to_numpy

import gt

SHAPES = [(), (5,), (1,), (0,), (3, 4), (2, 3, 4), (2, 1, 3, 2), (6, 0, 2)]


def _random_index(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Returns a random index of integers, slices, new axes and an ellipsis."""
    parts: list[Any] = []
    used = int(rng.integers(0, len(shape) + 1))
    for size in shape[:used]:
        if size and rng.random() < 0.3:
            parts.append(int(rng.integers(-size, size)))
        else:
            bounds = [None if rng.random() < 0.3 else int(rng.integers(-size - 2, size + 3)) for _ in range(2)]
            step = None if rng.random() < 0.4 else int(rng.choice([-3, -2, -1, 1, 2, 3]))
            parts.append(slice(*bounds, step))
    if rng.random() < 0.4:
        # The ellipsis comes last, so that all other parts index the first axes.
        parts.append(...)
    while rng.random() < 0.25 and sum(part is None for part in parts) < 2:
        parts.insert(int(rng.integers(0, len(parts) + 1)), None)
    return tuple(parts) if len(parts) != 1 or rng.random() < 0.5 else parts[0]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_basic_indexing_is_numpy_s(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape) * 100 + sum(shape))
    array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    t = gt.tensor(array)
    for _ in range(150):
        index = _random_index(rng, shape)
        assert_close(t[index], array[index]), index
        # The same again on a view.
        once = array[index]
        again = _random_index(rng, once.shape)
        assert_close(t[index][again], once[again]), (index, again)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_assignment_is_numpy_s(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(shape) * 100 + sum(shape) + 1)
    for _ in range(60):
        array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        t = gt.tensor(array)
        index = _random_index(rng, shape)
        selected = array[index].shape
        choice = rng.integers(0, 3)
        value: Any = 7.5
        if choice == 1:
            value = rng.standard_normal(selected)
        elif choice == 2:  # broadcast
            value = rng.standard_normal([1 if rng.random() < 0.5 else size for size in selected][rng.integers(0, 2) :])
        array[index] = value
        t[index] = gt.tensor(value) if isinstance(value, np.ndarray) else value
        assert_close(t, array), index


def test_after_an_ellipsis_axes_count_from_the_end() -> None:
    array = np.arange(24).reshape(2, 3, 4)
    t = gt.tensor(array)
    for index in [(..., 1), (..., slice(1, 3), 0), (0, ..., -1), (..., None), (None, ..., 2, None), (0, 1, 2, ...)]:
        assert_close(t[index], array[index], "int64")


def test_bounds_of_slices_are_read_as_by_lists() -> None:
    numbers, x = list(range(5)), gt.arange(5)
    far = 2**70
    for index in (slice(-far, far), slice(far, -far, -1), slice(1, far, far), slice(None, None, -far)):
        assert x[index].tolist() == numbers[index]
    assert x[gt.tensor(1) : np.int64(3)].tolist() == [1, 2]
    with pytest.raises(TypeError, match="slice indices must be integers or None or have an __index__ method"):
        x["a":]


def test_numpy_integers_and_scalar_tensors_are_integers() -> None:
    t = gt.arange(5)
    assert t[np.int64(2)].item() == t[gt.tensor(2)].item() == 2


# Elements picked one by one ---------------------------------------------------------------------------------------

MASK = np.arange(24).reshape(2, 3, 4) % 5 > 2
PICKS: list[Any] = [
    [1, 0],
    ([0, 1], [1, -1]),
    (slice(None), [0, 2, 2]),
    ([0, 1], slice(None), [0, 3]),
    (..., [1, 2]),
    (None, [1, 0]),
    np.array([[0], [-1]]),
    (np.array([[0], [1]]), [0, 2, 1]),
    (slice(None), slice(2, None, -1), [3, 3]),
    [],
    range(2),
    MASK,
    MASK[:, :, 0],
    MASK[0, 0, 0],
    (slice(None), MASK[0]),
    (..., MASK[0, 0]),
    (MASK[:, :, 1], [2]),
    ([True, False], [2]),
    True,
    False,
]


def _of_tensors(index: Any) -> Any:
    """Returns the same index with tensors in place of arrays and lists."""
    if isinstance(index, tuple):
        return tuple(map(_of_tensors, index))
    if isinstance(index, list | np.ndarray | np.bool_ | bool):
        return gt.tensor(np.array(index) if len(np.shape(index)) == 0 or len(index) else np.zeros(0, np.int64))
    return index


@pytest.mark.parametrize("index", PICKS, ids=str)
def test_picking_is_numpy_s(index: Any) -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    t = gt.tensor(array)
    assert_close(t[index], array[index])
    assert_close(t[_of_tensors(index)], array[index])
    # The same through a view.
    assert_close(t.transpose(0, 1).transpose(0, 1)[_of_tensors(index)], array[index])


@pytest.mark.parametrize("index", PICKS, ids=str)
def test_indexed_writes_are_numpy_s(index: Any) -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    t = gt.tensor(array)
    for value in (7.0, np.arange(array[index].size).reshape(array[index].shape) + 0.5, np.ones((1, 1, 1, 1))):
        if np.ndim(value) and array[index].ndim < np.ndim(value):
            value = np.reshape(value, value.shape[np.ndim(value) - array[index].ndim :])
        array[index] = value
        t[_of_tensors(index)] = gt.tensor(value) if isinstance(value, np.ndarray) else value
        assert_close(t, array)
    t[index] += 1
    array[index] += 1
    assert_close(t, array)


def test_an_integer_beside_an_index_is_applied_first() -> None:
    # As in PyTorch. NumPy treats the integer as an index array and moves the indexed axes to the front.
    t = gt.arange(24).reshape(2, 3, 4)
    assert t[0, :, [0, 1]].tolist() == [[0, 1], [4, 5], [8, 9]]
    assert t[gt.tensor(1), :, gt.tensor([3])].tolist() == [[15], [19], [23]]


def test_a_short_list_of_indices_is_a_tuple() -> None:
    t = gt.arange(24).reshape(2, 3, 4)
    assert t[[[0, 1], [1, 2]]].tolist() == t[[0, 1], [1, 2]].tolist()
    assert t[[gt.tensor(0), gt.tensor(1)]].tolist() == t[0, 1].tolist()


def test_indexed_writes_to_a_view_reach_its_base() -> None:
    t = gt.zeros(3, 4)
    t.T[[0, 3]] = 1
    t[1][gt.tensor([False, True, False, False])] = 2
    t[:, 1:][[2, 2], [0, 1]] = gt.tensor([5.0, 6.0])
    assert t.tolist() == [[1, 0, 0, 1], [1, 2, 0, 1], [1, 5, 6, 1]]


def test_the_last_of_several_values_for_one_place_stays_and_index_put_can_add_them() -> None:
    t = gt.zeros(3)
    t[[1, 1]] = gt.tensor([1.0, 2.0])
    assert t.tolist() == [0, 2, 0]
    places = (gt.tensor([1, 1, 0]),)
    assert t.index_put(places, gt.tensor(1.0), accumulate=True).tolist() == [1, 4, 0]
    t.index_put_(places, gt.tensor([1.0, 2.0, 3.0]))
    assert t.tolist() == [3, 2, 0]
    flags = gt.zeros(2, dtype=gt.bool)
    assert flags.index_put((gt.tensor([1, 1]),), gt.tensor(True), accumulate=True).tolist() == [False, True]


def test_gradients_flow_through_indexing() -> None:
    x = gt.ones(3, requires_grad=True)
    (x[[0, 0, 2]] * gt.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [3, 0, 3]
    x.grad = None
    source = gt.ones(2, requires_grad=True)
    y = x * 2
    y[gt.tensor([0, 2])] = source * 3
    y[gt.tensor([False, False, True])] = 7.0
    (y * gt.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad.tolist() == [0, 4, 0]
    assert source.grad.tolist() == [3, 0]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x[[0]] = 1


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ([5], "index 5 is out of bounds for dimension 0 with size 2"),
        ((0, 0, [9]), "index 9 is out of bounds for dimension 0 with size 4"),
        (([0, 1], [0, 1, 2]), r"could not be broadcast together with shapes \[2\], \[3\]"),
        (gt.float32, "valid indices"),
        ("a", "got str"),
        (1.5, "got float"),
        ([[0], [0], [0], [0]], "too many indices for tensor of dimension 3"),
        ([0.5], "must be long, int, byte or bool tensors"),
        ((slice(None), [True, False]), r"mask \[2\] at index 0 does not match .* \[2, 3, 4\] at index 1"),
        (np.ones((2, 4), bool), r"mask \[2, 4\] at index 1 does not match .* \[2, 3, 4\] at index 1"),
    ],
    ids=str,
)
def test_invalid_indices_raise_pytorch_s_errors(index: Any, message: str) -> None:
    t = gt.arange(24).reshape(2, 3, 4)
    with pytest.raises(IndexError, match=message):
        t[index]
    with pytest.raises(IndexError, match=message):
        t[index] = 0


def test_invalid_assignments_raise_pytorch_s_errors() -> None:
    t = gt.zeros(2, 3)
    with pytest.raises(RuntimeError, match=r"shape \[5\] cannot be broadcast to indexing result of shape \[2, 3\]"):
        t[[0, 1]] = gt.ones(5)
    with pytest.raises(RuntimeError, match="got Float for the destination and Long for the source"):
        t[[0, 1]] = gt.ones(3, dtype=gt.int64)
    assert t.sum().item() == 0


def test_an_index_tensor_out_of_range_is_found_when_it_runs() -> None:
    t = gt.zeros(2, 3)
    for index in (gt.tensor([1, -3]), (gt.tensor([0]), gt.tensor([4])), (slice(None), gt.tensor([3]))):
        with pytest.raises(IndexError, match=r"index (-3|4|3) is out of bounds for dimension [01] with size [23]"):
            t[index].tolist()
    assert t[gt.tensor([-2])].tolist() == [[0, 0, 0]]


def test_gather_takes_single_elements() -> None:
    t = gt.arange(4, dtype=gt.float32)
    t.requires_grad = True
    chosen = t.gather(0, gt.tensor([0, 2, 2]))
    assert chosen.tolist() == [0, 2, 2]
    chosen.sum().backward()
    assert t.grad.tolist() == [1, 0, 2, 0]


def test_an_index_out_of_range_is_found_when_it_runs() -> None:
    chosen = gt.arange(3).gather(0, gt.tensor([0, 3]))
    with pytest.raises(IndexError, match="index 3 is out of bounds for dimension 0 with size 3"):
        chosen.tolist()
    assert gt.arange(3).gather(0, gt.tensor([2])).tolist() == [2]


def test_indexing_passes_gradients_on() -> None:
    t = gt.tensor(np.zeros((3, 4)), requires_grad=True)
    (t[1:, ::-2] * gt.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=gt.float64)).sum().backward()
    assert_close(t.grad, [[0, 0, 0, 0], [0, 2, 0, 1], [0, 4, 0, 3]])


def test_assignment_passes_gradients_on() -> None:
    a = gt.ones(3, requires_grad=True)
    b = gt.ones(1, requires_grad=True)
    x = a * 2
    x[1:2] = b * 5
    x.sum().backward()
    assert a.grad.tolist() == [2, 0, 2]
    assert b.grad.tolist() == [5]


def test_assignment_casts_to_the_tensor_s_dtype() -> None:
    t = gt.zeros(3, dtype=gt.int64)
    t[0] = 2
    t[1:] = gt.tensor([3.7, 4.2])
    assert_close(t, [2, 3, 4], "int64")


def test_an_assignment_is_seen_through_views_and_nowhere_else() -> None:
    t = gt.zeros(4)
    view, same, computed = t[1:3], t, t + 0
    t[1] = 5
    assert to_numpy(same).tolist() == [0, 5, 0, 0]
    assert view.tolist() == [5, 0]
    view[1] = 7
    assert t.tolist() == [0, 5, 7, 0]
    assert computed.tolist() == [0, 0, 0, 0]


def test_an_empty_index_may_have_any_rank() -> None:
    x = gt.ones(5, requires_grad=True)
    chosen = x.gather(0, gt.empty(2, 0, dtype=gt.uint8))
    assert chosen.shape == (2, 0)
    chosen.sum().backward()
    assert x.grad.tolist() == [0] * 5


def test_bools_put_at_one_place_are_combined_by_or() -> None:
    x = gt.tensor([False, False, True])
    put = x.put(gt.tensor([-3, 0, -1]), gt.tensor([True, False, False]), accumulate=True)
    assert put.tolist() == [True, False, True]
    at = (gt.tensor([-3, 0]),)
    assert x.index_put(at, gt.tensor([True, False]), accumulate=True).tolist() == [True, False, True]
