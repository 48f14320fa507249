"""Indexing, broadcasting and views against NumPy, on whatever Hypothesis comes up with."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support import to_numpy

import gt

# The first call starts a daemon, and a machine may be busy: an example may take its time.
settings.register_profile("gt", deadline=None, max_examples=150, derandomize=True)
settings.load_profile("gt")

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def counted(shape: tuple[int, ...]) -> np.ndarray:
    """Elements that all differ."""
    return np.arange(float(np.prod(shape, dtype=int))).reshape(shape)


def same(t: gt.Tensor, array: Any) -> None:
    array = np.asarray(array)
    assert tuple(t.shape) == array.shape
    np.testing.assert_array_equal(to_numpy(t), array)


# Indexing ---------------------------------------------------------------------------------------------------------


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Slices, integers, `None`, `...`, index arrays of shapes that broadcast together, and masks, in any mix."""
    wide = draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=3))
    parts: list[Any] = []
    axis = 0
    stop = draw(st.integers(0, len(shape)))
    masks = 0
    while axis < stop:
        size = shape[axis]
        kind = draw(st.sampled_from(["slice", "slice", "int", "array", "mask"]))
        if kind == "int" and size:
            parts.append(draw(st.integers(-size, size - 1)))
        elif kind == "array" and size:
            own = tuple(draw(st.sampled_from([1, n])) for n in wide[draw(st.integers(0, len(wide))) :])
            # NumPy takes an array of no axes for an integer, as PyTorch does.
            own = own or (1,)
            parts.append(draw(hnp.arrays(np.int64, own, elements=st.integers(-size, size - 1))))
        elif kind == "mask" and not masks:
            masks = draw(st.integers(1, min(2, stop - axis)))
            mask = draw(hnp.arrays(bool, shape[axis : axis + masks]))
            parts.append(mask)
            axis += masks - 1
        else:
            parts.append(draw(st.slices(size)))
        axis += 1
    if draw(st.booleans()):
        parts.append(...)
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return tuple(parts)


def pytorch_s(array: np.ndarray, index: tuple[Any, ...]) -> np.ndarray:
    """`array[index]` in NumPy, where integers are applied before arrays, as PyTorch does: NumPy counts them as such."""
    first, second = [], []
    for part in index:
        if isinstance(part, np.ndarray):
            first += [slice(None)] * (part.ndim if part.dtype == bool else 1)
            second.append(part)
        else:
            first.append(part)
            if not isinstance(part, int):
                second.append(... if part is ... else slice(None))
    return array[tuple(first)][tuple(second)]


def fits(array: np.ndarray, index: tuple[Any, ...]) -> bool:
    """Whether the arrays of an index broadcast: a mask picks as many places as it has true elements."""
    try:
        pytorch_s(array, index)
    except IndexError:
        return False
    return True


def as_tensors(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(gt.tensor(part) if isinstance(part, np.ndarray) else part for part in index)


@given(st.data())
def test_reading_by_any_index(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    index = data.draw(indices(shape))
    array = counted(shape)
    t = gt.tensor(array)
    if not fits(array, index):
        for one in (index, as_tensors(index)):
            with pytest.raises(IndexError):
                t[one]
        return
    wanted = pytorch_s(array, index)
    same(t[index], wanted)
    same(t[as_tensors(index)], wanted)


@given(st.data())
def test_writing_by_any_index(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    index = data.draw(indices(shape))
    array = counted(shape)
    if not fits(array, index):
        return
    # Places of the elements that are written, once each.
    places = np.unique(pytorch_s(array, index)).astype(int)
    t = gt.tensor(array)
    t[as_tensors(index)] = -1
    written = array.copy()
    written.reshape(-1)[places] = -1
    same(t, written)
    # What is written is a value for each place, through a view of the tensor turned round.
    selected = pytorch_s(array, index)
    values = -selected - 1
    t = gt.tensor(array.T.copy())
    t.permute(*range(len(shape))[::-1])[index] = gt.tensor(values)
    written = array.copy()
    written.reshape(-1)[places] = -places - 1.0
    same(t, written.T)


@given(st.data())
def test_gradients_of_any_index_go_where_the_elements_came_from(data: st.DataObject) -> None:
    shape = data.draw(shapes)
    index = data.draw(indices(shape))
    array = counted(shape)
    if not fits(array, index):
        return
    x = gt.tensor(array, requires_grad=True)
    picked = x[as_tensors(index)]
    weights = np.arange(1.0, picked.numel() + 1).reshape(picked.shape)
    (picked * gt.tensor(weights)).sum().backward()
    wanted = np.zeros(array.size)
    np.add.at(wanted, pytorch_s(array, index).astype(int).reshape(-1), weights.reshape(-1))
    same(x.grad, wanted.reshape(shape))


@given(st.data())
def test_index_put_adds_as_often_as_a_place_is_named(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
    picked = [
        data.draw(hnp.arrays(np.int64, (5,), elements=st.integers(-size, size - 1)))
        for size in shape[: data.draw(st.integers(1, len(shape)))]
    ]
    array = counted(shape)
    values = np.arange(1.0, array[tuple(picked)].size + 1).reshape(array[tuple(picked)].shape)
    t = gt.tensor(array)
    t.index_put_([gt.tensor(places) for places in picked], gt.tensor(values), accumulate=True)
    np.add.at(array, tuple(picked), values)
    same(t, array)


# Broadcasting -----------------------------------------------------------------------------------------------------


@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=4))
def test_any_shapes_that_broadcast(pair: hnp.BroadcastableShapes) -> None:
    arrays = [counted(shape) for shape in pair.input_shapes]
    tensors = [gt.tensor(array, requires_grad=True) for array in arrays]
    same(operator.sub(*tensors), operator.sub(*arrays))
    same(gt.where(operator.lt(*tensors), *tensors), np.where(operator.lt(*arrays), *arrays))
    assert tuple(gt.broadcast_shapes(*pair.input_shapes)) == pair.result_shape
    same(tensors[0].expand(pair.result_shape), np.broadcast_to(arrays[0], pair.result_shape))
    # The gradient is summed over what was repeated.
    operator.mul(*tensors).sum().backward()
    for own, other in ((0, 1), (1, 0)):
        wide = np.broadcast_to(arrays[other], pair.result_shape)
        lead = wide.ndim - arrays[own].ndim
        axes = [*range(lead), *(lead + i for i, size in enumerate(arrays[own].shape) if size == 1)]
        same(tensors[own].grad, wide.sum(tuple(axes), keepdims=True).reshape(arrays[own].shape))


@given(shapes, shapes)
def test_shapes_that_do_not_broadcast_are_refused(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(RuntimeError):
            gt.zeros(a) + gt.zeros(b)
        with pytest.raises(RuntimeError):
            gt.broadcast_shapes(a, b)
    else:
        assert (gt.zeros(a) + gt.zeros(b)).shape == np.broadcast_shapes(a, b)


# Views ------------------------------------------------------------------------------------------------------------

Pair = tuple[gt.Tensor, np.ndarray]


@st.composite
def views(draw: st.DrawFn, pair: Pair) -> Pair:
    """A view of both, made in the same way."""
    t, array = pair
    rank = array.ndim
    axis = draw(st.integers(0, max(rank - 1, 0)))
    kind = draw(st.sampled_from(["slice", "permute", "unsqueeze", "select", "diagonal", "split", "reshape", "unfold"]))
    if kind == "unsqueeze" or not rank:
        return (t.unsqueeze(0), array[None]) if rank < 5 else pair
    if kind == "permute":
        order = draw(st.permutations(range(rank)))
        return t.permute(order), array.transpose(order)
    if kind == "select" and array.shape[axis] and rank > 1:
        place = draw(st.integers(0, array.shape[axis] - 1))
        return t.select(axis, place), array[(slice(None),) * axis + (place,)]
    if kind == "diagonal" and rank > 1:
        offset = draw(st.integers(-2, 2))
        # NumPy's diagonals can be written to only where the flag is lifted.
        diagonal = array.diagonal(offset, 0, rank - 1)
        diagonal.setflags(write=True)
        return t.diagonal(offset, 0, rank - 1), diagonal
    if kind == "split" and array.shape[axis]:
        part = draw(st.integers(0, 1))
        return t.tensor_split(2, axis)[part], np.array_split(array, 2, axis)[part]
    if kind == "unfold" and array.shape[axis] >= 2 and array.size and rank < 5:
        whole = array[(slice(None),) * axis + (slice(array.shape[axis] // 2 * 2),)]
        windows = whole.reshape([*whole.shape[:axis], -1, 2, *whole.shape[axis + 1 :]])
        if np.shares_memory(windows, array):
            return t.unfold(axis, 2, 2), np.moveaxis(windows, axis + 1, -1)
    if kind == "reshape" and array.flags.c_contiguous and array.size:
        return t.reshape(-1), array.reshape(-1)
    part = draw(st.slices(array.shape[axis]))
    index = (slice(None),) * axis + (part,)
    return t[index], array[index]


@given(st.data())
def test_writes_through_any_views_are_seen_in_all(data: st.DataObject) -> None:
    array = counted(data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)))
    pairs = [(gt.tensor(array), array)]
    for step in range(data.draw(st.integers(1, 8))):
        t, own = pairs[data.draw(st.integers(0, len(pairs) - 1))]
        kind = data.draw(st.sampled_from(["view", "view", "add", "fill", "copy"]))
        if kind == "view":
            pairs.append(data.draw(views((t, own))))
        elif kind == "add":
            t += step
            own += step
        elif kind == "fill":
            t[...] = step
            own[...] = step
        else:
            values = counted(own.shape) * step
            t.copy_(gt.tensor(values))
            own[...] = values
        for one, other in pairs:
            same(one, other)


@given(st.data())
def test_strides_are_those_of_memory(data: st.DataObject) -> None:
    array = counted(data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=2, max_side=4)))
    pair = (gt.tensor(array), array)
    for _ in range(data.draw(st.integers(1, 4))):
        pair = data.draw(views(pair))
    t, own = pair
    if own.size > 1:
        lengths = [
            (stride, int(other) // 8)
            for stride, other, size in zip(t.stride(), own.strides, own.shape, strict=True)
            if size > 1
        ]
        assert all(abs(stride) == abs(other) for stride, other in lengths)
        assert t.is_contiguous() == own.flags.c_contiguous
