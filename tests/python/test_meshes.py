"""Meshes: workers in rows and columns, over which signals lay tensors out twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import output_of

import gt
from gt import ShardConfig, SignalConfig

START = """
import itertools
import numpy as np
import gt
from gt import ShardConfig, SignalConfig
gt.gpu_workers(4)

def mesh(name, *axes, mesh=(2, 2), workers=None, **more):
    gt.register_config(name, SignalConfig(ShardConfig(mesh=mesh, axes=axes, workers=workers), **more))

def where(x):
    return str(gt.debug.placement(x)).replace("[cpu:0, cpu:1, cpu:2, cpu:3]", "all")

numbers = np.random.default_rng(0)
"""


def told(program: str) -> list[str]:
    return output_of(START + program, GT_WORKERS="cpu:4").splitlines()


def test_a_network_is_data_parallel_over_rows_and_tensor_parallel_within_them() -> None:
    rows = "over 2 rows of all"
    assert told(
        """
mesh("batch", 0, "replicated")
mesh("out", "replicated", 0)
mesh("into", "replicated", 1)
x, w, v = (numbers.normal(size=size).astype("f4") for size in ((8, 6), (12, 6), (6, 12)))
batch = gt.signal.tensor(gt.from_numpy(x), name="batch")
first = gt.signal.tensor(gt.from_numpy(w), name="out").requires_grad_()
second = gt.signal.tensor(gt.from_numpy(v), name="into").requires_grad_()
hidden = (batch @ first.T).relu()
y = hidden @ second.T
for tensor in (batch, first, second, hidden, y):
    print(where(tensor))
loss = (y * y).sum()
loss.backward()
# The reference, by hand.
h = np.maximum(x @ w.T, 0)
dy = 2 * (h @ v.T)
np.testing.assert_allclose(loss.item(), (dy * dy).sum() / 4, rtol=1e-5)
np.testing.assert_allclose(second.grad.numpy(), dy.T @ h, rtol=1e-4, atol=1e-4)
np.testing.assert_allclose(first.grad.numpy(), ((dy @ v) * (h > 0)).T @ x, rtol=1e-4, atol=1e-4)
with gt.no_grad():
    first -= 0.1 * first.grad
print(where(first))
"""
    ) == [
        f"sharded along axis 0 {rows}, replicated within a row",
        f"replicated {rows}, sharded along axis 0 within a row",
        f"replicated {rows}, sharded along axis 1 within a row",
        f"sharded along axis 0 {rows}, sharded along axis 1 within a row",
        f"sharded along axis 0 {rows}, partial (sum) within a row",
        f"replicated {rows}, sharded along axis 0 within a row",
    ]


def test_a_tensor_moves_between_any_two_layouts_and_to_workers_outside_the_mesh() -> None:
    assert told(
        """
layouts = ["replicated", 0, 1, None]
places = {}
for axes in itertools.product(layouts, repeat=2):
    for shape, workers in (((2, 2), None), ((2, 2), (0, 2, 1, 3)), ((1, 4), None), ((4, 1), None), ((1, 2), (1, 3))):
        places[f"{axes} {shape} {workers}"] = ShardConfig(mesh=shape, axes=axes, workers=workers)
places |= {"row": ShardConfig(axis=0), "one": ShardConfig(workers=[3]), "some": ShardConfig(axis=1, workers=[1, 2])}
for name, place in places.items():
    gt.register_config(name, SignalConfig(place))
x = numbers.normal(size=(8, 12)).astype("f4")
halves = gt.signal.tensor(gt.from_numpy(x[:, :6].copy()), name="row"), gt.from_numpy(x[:, 6:].copy())
moves = 0
for name, other in itertools.product(places, repeat=2):
    if moves % 7 == 0:
        # The product of shards along their common axis is a sum of parts.
        first = gt.signal.tensor(gt.from_numpy(x), name=name)
    else:
        first = gt.cat(halves, 1) if moves % 2 else first
    with gt.signal.context(name):
        one = first * 1
    two = gt.signal.tensor(one, name=other)
    assert np.array_equal(two.numpy(), x), (name, other)
    assert np.array_equal(one.numpy(), x), (name, other)
    moves += 1
print(moves)
"""
    ) == [str(83**2)]


def test_a_sum_of_parts_is_reduced_into_any_layout() -> None:
    assert told(
        """
layouts = ["replicated", 0, 1, None]
for axes in itertools.product(layouts, repeat=2):
    mesh(str(axes), *axes)
mesh("terms first", 1, 0)
mesh("terms last", 0, 1)
mesh("rows", 0, "replicated")
x, y = (numbers.integers(-4, 5, size=(8, 8)).astype("f4") for _ in range(2))
for left, right in itertools.product(["terms first", "terms last", "rows"], repeat=2):
    for axes in itertools.product(layouts, repeat=2):
        a, b = gt.signal.tensor(gt.from_numpy(x), name=left), gt.signal.tensor(gt.from_numpy(y), name=right)
        product = a @ b
        largest = a.amax(1, keepdim=True)
        with gt.signal.context(str(axes)):
            moved, sum_, twice, top = product + 0, a.sum(0), product * 2, largest - 1
        assert np.array_equal(moved.numpy(), x @ y), (left, right, axes)
        assert np.array_equal(sum_.numpy(), x.sum(0)), (left, right, axes)
        assert np.array_equal(twice.numpy(), 2 * (x @ y)), (left, right, axes)
        assert np.array_equal(top.numpy(), x.max(1, keepdims=True) - 1), (left, right, axes)
print("equal")
"""
    ) == ["equal"]


def test_an_axis_that_does_not_fit_is_left_alone() -> None:
    assert told(
        """
mesh("both", 0, -1)
with gt.signal.context("both"):
    for size in ((), (4,), (4, 4), (2, 2, 8)):
        x = gt.full(size, 2.0)
        assert x.numpy().tolist() == np.full(size, 2.0).tolist()
        print(size, where(x))
    for size in ((6,), (4, 3)):
        # The second entry does not fit: the daemon chooses what happens within a row.
        lies = gt.debug.placement(gt.full(size, 2.0))
        assert (lies.layout, lies.axis, lies.rows) == ("sharded", 0, 2)
"""
    ) == [
        "() on cpu:0",
        "(4,) sharded along axis 0 over 2 rows of all, sharded along axis 0 within a row",
        "(4, 4) sharded along axis 0 over 2 rows of all, sharded along axis 1 within a row",
        "(2, 2, 8) sharded along axis 0 over 2 rows of all, sharded along axis 2 within a row",
    ]


def test_random_numbers_and_programs_are_those_of_one_worker() -> None:
    assert told(
        """
def program(seed):
    choose = np.random.default_rng(seed)
    gt.manual_seed(seed)
    tensors = [gt.rand(4, 8), gt.rand(8, 4), gt.randn(4, 4), gt.rand(2, 4, 8)]
    for _ in range(25):
        x = tensors[choose.integers(len(tensors))]
        y = tensors[choose.integers(len(tensors))]
        axis = int(choose.integers(-x.ndim, x.ndim)) if x.ndim else 0
        with gt.signal.context(str(choose.integers(12))):
            kind = choose.integers(14)
            if x.ndim < 2:
                made = x + y.sum()
            elif kind < 3:
                made = x @ x.mT
            elif kind == 3:
                made = x.softmax(-1)
            elif kind == 4:
                made = x.mean(axis, keepdim=True)
            elif kind == 5:
                made = x.transpose(axis, 0)
            elif kind == 6:
                made = x.flip(axis).reshape(-1, x.shape[-1])
            elif kind == 7:
                made = x.cumsum(axis)
            elif kind == 8:
                made = gt.cat([x, x + 1], axis)
            elif kind == 9:
                made = x.narrow(axis, 0, max(1, x.shape[axis] // 2)) * 2
            elif kind == 10:
                made = x.amax(axis) - x.sum(axis) / 64
            elif kind == 11:
                made = x.index_select(axis, gt.tensor([0, x.shape[axis] - 1]))
            elif kind == 12:
                made = x.clone()
                made.narrow(axis, 0, 1).fill_(0.5)
            else:
                made = gt.nn.functional.layer_norm(x, x.shape[-1:]) + gt.rand(x.shape)
        if made.numel() < 4000 and made.abs().max() < 1e4:
            tensors.append(made)
    return [tensor.numpy() for tensor in tensors]

alone = [program(seed) for seed in range(60)]
layouts = ["replicated", 0, -1, None]
for i, axes in enumerate(itertools.islice(itertools.product(layouts, repeat=2), 12)):
    mesh(str(i), *axes, mesh=[(2, 2), (1, 4), (4, 1), (2, 2)][i % 4])
for seed, wanted in enumerate(alone):
    for found, one in zip(program(seed), wanted, strict=True):
        np.testing.assert_allclose(found, one, rtol=2e-4, atol=2e-4, err_msg=str(seed))
print(sum(map(len, alone)) > 1000)
"""
    ) == ["True"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mesh": (2, 2)}, "axes: an axis, 'replicated' or null for the rows and for the columns"),
        ({"axes": (0, 1)}, "mesh: the numbers of rows and columns, as [2, 4], is expected, not None"),
        ({"mesh": 4, "axes": (0, 1)}, "mesh: the numbers of rows and columns, as [2, 4], is expected, not 4"),
        ({"mesh": (2, 0), "axes": (0, 1)}, "mesh: [2, 0] is no mesh: two numbers from 1"),
        ({"mesh": (16, 16), "axes": (0, 1)}, "of at most 128 workers together"),
        ({"mesh": (2, 2), "axes": (0, 9)}, "axes: 9 is no axis"),
        ({"mesh": (2, 2), "axes": (0, "all")}, "axes: 'all' is no axis"),
        ({"mesh": (2, 2), "axes": (0,)}, "axes: an axis, 'replicated' or null"),
        ({"mesh": (2, 2), "axes": (0, 1), "axis": 0}, "axis: with a mesh, axes has an axis"),
        ({"mesh": (2, 2), "axes": (0, 1), "replicated": True}, "replicated: with a mesh, axes has an axis"),
        ({"mesh": (2, 2), "axes": (0, 1), "workers": [0, 1, 2]}, "mesh: 2 × 2 are 4 workers, and 3 are named"),
    ],
)
def test_a_wrong_mesh_is_told(config: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        ShardConfig(**config)


def test_a_mesh_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text("a: {shard: {mesh: [1, 1], axes: [0, null]}}\nb: {shard: {mesh: [1, 1], axes: [replicated, -1]}}\n")
    gt.load_config(file)
    assert gt.get_config("a") == SignalConfig(ShardConfig(mesh=(1, 1), axes=(0, None)))
    assert gt.get_config("b").shard.workers == (0,)
    file.write_text("c:\n  shard:\n    mesh: [2, 3]\n    axes: [rows, 0]\n")
    with pytest.raises(ValueError, match=r"mesh.yaml:4:11: c.shard.axes: 'rows' is no axis"):
        gt.load_config(file)
    gt.clear_config()


def test_more_workers_than_there_are() -> None:
    assert told(
        """
try:
    mesh("wide", 0, 1, mesh=(2, 4))
    gt.signal.tensor(gt.ones(8, 8), name="wide")
except ValueError as error:
    print(error)
"""
    ) == [
        "register_config('wide'): shard.workers: there is no worker 7: the daemon has workers 0 to 3; name others, or "
        "call gt.gpu_workers(8) before the first operation"
    ]
