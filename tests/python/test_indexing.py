"""`x[…]` and `x[…] = y` against NumPy, which has the same rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import assert_close, to_numpy

import gt

SHAPES = [(), (5,), (1,), (0,), (3, 4), (2, 3, 4), (2, 1, 3, 2), (6, 0, 2)]


def _random_index(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Integers, slices with any bounds and steps, new axes and an ellipsis, in any mix."""
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
        # Behind an ellipsis, the parts would count from the end; all before it keep their places.
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
        # And again, on what is a view already.
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


def test_numpy_integers_and_scalar_tensors_are_integers() -> None:
    t = gt.arange(5)
    assert t[np.int64(2)].item() == t[gt.tensor(2)].item() == 2


@pytest.mark.parametrize("index", [[0, 1], np.array([0]), True], ids=str)
def test_what_cannot_index_yet_says_what_can(index: Any) -> None:
    for part in (index, gt.tensor(index)) if index is not True else (index,):
        with pytest.raises(NotImplementedError, match=r"gather\(\)"):
            gt.arange(3)[part]


def test_gather_takes_the_place_of_index_tensors() -> None:
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
