"""Tensors as Python objects: properties, NumPy interoperability, numbers, iteration and in-place syntax."""

from __future__ import annotations

import copy
import math
import operator
import pickle

import numpy as np
import pytest
from support import DTYPES, assert_close, dtype_of, name_of, to_gt

import gt


def test_a_tensor_tells_its_shape_dtype_and_size() -> None:
    t = gt.zeros(2, 3, 4)
    assert t.shape == (2, 3, 4)
    assert str(t.shape) == "gt.Size([2, 3, 4])"
    assert t.shape[-1] == 4
    assert t.shape.numel() == 24
    assert t.size() == t.shape
    assert t.size(1) == t.size(-2) == 3
    assert t.ndim == t.dim() == 3
    assert t.numel() == 24
    assert t.itemsize == 4
    assert t.nbytes == 96
    assert t.dtype == gt.float32
    assert len(t) == 2
    assert t.is_leaf
    assert not t.requires_grad
    assert t.grad is None
    assert t.grad_fn is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    d = dtype_of(dtype)
    assert repr(d) == f"gt.{dtype}"
    assert d.is_floating_point == ("float" in dtype)
    assert d.itemsize == to_gt(np.ones(1), dtype).itemsize
    assert d == dtype_of(dtype)
    assert len({d, dtype_of(dtype)}) == 1
    assert d != gt.int64 or dtype == "int64"


def test_dtypes_have_pytorch_s_other_names() -> None:
    assert (gt.half, gt.float, gt.double) == (gt.float16, gt.float32, gt.float64)
    assert (gt.short, gt.int, gt.long) == (gt.int16, gt.int32, gt.int64)


@pytest.mark.parametrize(
    ("method", "dtype"),
    [
        ("float", "float32"), ("double", "float64"), ("half", "float16"), ("bfloat16", "bfloat16"), ("int", "int32"),
        ("long", "int64"), ("short", "int16"), ("char", "int8"), ("byte", "uint8"), ("bool", "bool"),
    ],
)  # fmt: skip
def test_casts(method: str, dtype: str) -> None:
    t = gt.tensor([0.0, 1.0, 2.75])
    assert name_of(getattr(t, method)().dtype) == dtype
    assert name_of(t.to(dtype_of(dtype)).dtype) == dtype
    assert name_of(t.type(dtype_of(dtype)).dtype) == dtype


def test_item_float_int_bool_index() -> None:
    assert gt.tensor(2.5).item() == 2.5
    assert gt.tensor([[3]]).item() == 3
    assert gt.tensor(True).item() is True
    assert isinstance(gt.tensor(3).item(), int)
    assert float(gt.tensor(2.5)) == 2.5
    assert int(gt.tensor(2.5)) == 2
    assert bool(gt.tensor([1.0]))
    assert not gt.tensor(0)
    assert [10, 20, 30][gt.tensor(1)] == 20
    assert math.isnan(gt.tensor(float("nan")).item())
    assert f"{gt.tensor(2.5):.2f}" == "2.50"
    assert gt.tensor(2**62 + 1).item() == 2**62 + 1


def test_tolist() -> None:
    assert gt.tensor(1.5).tolist() == 1.5
    assert gt.tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert gt.zeros(0, 3).tolist() == []
    assert gt.zeros(2, 0).tolist() == [[], []]
    assert gt.tensor([1.5, 2.0]).bfloat16().tolist() == [1.5, 2.0]
    assert gt.arange(24).reshape(2, 3, 4).transpose(0, 2).tolist() == np.arange(24).reshape(2, 3, 4).T.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_tolist_has_python_s_numbers(dtype: str) -> None:
    numbers = gt.tensor([[0, 1], [1, 0]]).to(dtype_of(dtype)).tolist()
    assert numbers == [[0, 1], [1, 0]]
    assert type(numbers[0][1]) is (bool if dtype == "bool" else float if "float" in dtype else int)


def test_iteration_is_over_the_first_axis() -> None:
    assert [row.tolist() for row in gt.tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    a, b = gt.tensor([1.0, 2.0])
    assert (a.item(), b.item()) == (1.0, 2.0)
    assert [x.item() for x in reversed(gt.arange(3))] == [2, 1, 0]


def test_membership() -> None:
    assert 2 in gt.tensor([1, 2, 3])
    assert 5 not in gt.tensor([1, 2, 3])


def test_numpy_sees_a_tensor() -> None:
    t = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert np.asarray(t).dtype == np.float32
    np.testing.assert_array_equal(np.asarray(t), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(np.asarray(t, dtype=np.float64), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(np.array(t.T), [[1, 3], [2, 4]])
    np.testing.assert_array_equal(t.data.numpy(), t.numpy())
    assert np.sum(np.asarray(t)) == 10


def test_a_numpy_array_stays_when_its_tensor_goes() -> None:
    t = gt.arange(1000).float()
    array = t.numpy()
    del t
    for _ in range(50):
        gt.full((1000,), 7.0).numpy()
    np.testing.assert_array_equal(array, np.arange(1000))


def test_numbers_on_either_side() -> None:
    t = gt.tensor([1.0, 2.0, 4.0])
    assert (t + 1).tolist() == (1 + t).tolist() == [2, 3, 5]
    assert (t - 1).tolist() == [0, 1, 3]
    assert (1 - t).tolist() == [0, -1, -3]
    assert (t * 2).tolist() == (2 * t).tolist() == [2, 4, 8]
    assert (t / 2).tolist() == [0.5, 1, 2]
    assert (2 / t).tolist() == [2, 1, 0.5]
    assert (t // 2).tolist() == [0, 1, 2]
    assert (5 // t).tolist() == [5, 2, 1]
    assert (t % 3).tolist() == [1, 2, 1]
    assert (5 % t).tolist() == [0, 1, 1]
    assert (t**2).tolist() == [1, 4, 16]
    assert (2**t).tolist() == [2, 4, 16]
    assert (-t).tolist() == [-1, -2, -4]
    assert abs(gt.tensor([-1.0, 2.0])).tolist() == [1, 2]
    assert (+t).tolist() == t.tolist()
    assert (t > 1).tolist() == operator.lt(1, t).tolist() == [False, True, True]
    assert (t == 2).tolist() == [False, True, False]
    assert (t != 2).tolist() == [True, False, True]


def test_bits_and_masks() -> None:
    a, b = gt.tensor([True, True, False]), gt.tensor([True, False, False])
    assert (a & b).tolist() == [True, False, False]
    assert (a | b).tolist() == [True, True, False]
    assert (a ^ b).tolist() == [False, True, False]
    assert (~a).tolist() == [False, False, True]
    assert (~gt.tensor([0, 5])).tolist() == [-1, -6]
    assert (gt.tensor([6]) & 3).tolist() == [2]


@pytest.mark.parametrize(
    ("operation", "wanted"),
    [
        (operator.iadd, [3, 4]), (operator.isub, [-1, 0]), (operator.imul, [2, 4]), (operator.itruediv, [0.5, 1]),
        (operator.ipow, [1, 4]), (operator.ifloordiv, [0, 1]), (operator.imod, [1, 0]),
    ],
)  # fmt: skip
def test_in_place_operators_keep_the_object_and_leave_others_alone(operation: object, wanted: list[float]) -> None:
    t = gt.tensor([1.0, 2.0])
    same, computed = t, t + 0
    view = t[:1]
    result = operation(t, 2)
    assert result is t
    assert same.tolist() == wanted
    assert computed.tolist() == [1, 2]
    assert view.tolist() == wanted[:1]


def test_in_place_methods() -> None:
    t = gt.tensor([1.0, 2.0])
    assert t.zero_() is t
    assert t.tolist() == [0, 0]
    assert t.fill_(3).tolist() == [3, 3]
    assert t.copy_(gt.tensor([4, 5])).tolist() == [4, 5]
    assert t.dtype == gt.float32
    assert t.copy_(gt.tensor(1.0)).tolist() == [1, 1]


def test_in_place_keeps_the_dtype() -> None:
    t = gt.tensor([1, 2])
    t += 1
    assert_close(t, [2, 3], "int64")
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        t += 0.5
    assert t.tolist() == [2, 3]


def test_in_place_does_not_broadcast_itself() -> None:
    t = gt.zeros(3)
    with pytest.raises(RuntimeError, match="output with shape"):
        t += gt.ones(2, 3)


def test_tensors_hash_by_identity() -> None:
    a, b = gt.ones(2), gt.ones(2)
    assert len({a, b, a}) == 2
    assert {a: 1}[a] == 1


def test_deep_copies_are_apart() -> None:
    t = gt.tensor([1.0, 2.0], requires_grad=True)
    (t * 3).sum().backward()
    copied = copy.deepcopy(t)
    assert copied.requires_grad
    assert copied.tolist() == [1, 2]
    assert copied.grad.tolist() == [3, 3]
    with gt.no_grad():
        t += 1
    assert copied.tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="leaves"):
        copy.deepcopy(t * 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_pickles_hold_the_values(dtype: str, shape: tuple[int, ...]) -> None:
    t = to_gt(np.ones(shape), dtype)
    back = pickle.loads(pickle.dumps(t))
    assert back.dtype == t.dtype
    assert back.shape == t.shape
    assert back.tolist() == t.tolist()
    assert not back.requires_grad


def test_matmul_operator_and_transposes() -> None:
    a = gt.arange(6).reshape(2, 3)
    assert (a @ a.T).tolist() == [[5, 14], [14, 50]]
    assert a.t().tolist() == a.T.tolist() == a.mT.tolist() == [[0, 3], [1, 4], [2, 5]]
