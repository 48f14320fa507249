"""Other libraries' tensors and NumPy's arrays as operands, arguments and indices."""

from __future__ import annotations

import operator
import sys
import types
from typing import Any

import numpy as np
import pytest

import gt


class Foreign:
    """A tensor of another library, with DLPack, a dtype and a rank."""

    def __init__(self, data: Any) -> None:
        self.array = np.asarray(data)
        self.dtype, self.ndim, self.shape = self.array.dtype, self.array.ndim, self.array.shape

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __index__(self) -> int:
        return int(self.array)

    def __add__(self, other: Any) -> Any:
        """Rejects GT's tensors, as PyTorch's operator does."""
        return NotImplemented

    __sub__ = __mul__ = __truediv__ = __matmul__ = __add__


DATA = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv]


@pytest.mark.parametrize("apply", OPERATORS)
def test_an_operand_on_either_side(apply: Any) -> None:
    x = gt.tensor(DATA)
    for other in (Foreign(DATA[0]), DATA[0]):
        np.testing.assert_array_equal(apply(x, other).numpy(), apply(DATA, DATA[0]))
        np.testing.assert_array_equal(apply(other, x).numpy(), apply(DATA[0], DATA))


def test_comparisons_and_products() -> None:
    x = gt.tensor(DATA)
    for other in (Foreign(DATA), DATA):
        assert (x == other).all()
        assert (x >= other).all()
    np.testing.assert_array_equal((x @ Foreign(DATA.T.copy())).numpy(), DATA @ DATA.T)
    np.testing.assert_array_equal((Foreign(DATA) @ x.T).numpy(), DATA @ DATA.T)
    x += Foreign(DATA)
    np.testing.assert_array_equal(x.numpy(), DATA * 2)


def test_numbers_of_numpy_leave_the_result_to_the_tensor() -> None:
    x = gt.ones(2, requires_grad=True)
    y = np.sqrt(4) * x - np.float32(1)
    assert isinstance(y, gt.Tensor)
    assert y.dtype is gt.float32
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_functions_of_numpy_give_tensors() -> None:
    x = gt.tensor(DATA)
    assert isinstance(np.sin(x), gt.Tensor)
    assert np.isnan(x).dtype is gt.uint8
    assert np.add(DATA, x).tolist() == (DATA + DATA).tolist()
    with pytest.raises(RuntimeError, match="requires grad"):
        np.sin(x.requires_grad_())


def test_a_tensor_from_one() -> None:
    for make in (gt.tensor, gt.as_tensor, gt.asarray, gt.from_dlpack):
        t = make(Foreign(DATA))
        assert t.dtype is gt.float32
        assert t.tolist() == DATA.tolist()
    assert gt.tensor(Foreign([True, False])).tolist() == [True, False]
    assert gt.tensor(Foreign(DATA), dtype=gt.float64).dtype is gt.float64
    assert gt.tensor([Foreign(DATA[0]), Foreign(DATA[1])][0]).shape == (3,)


def test_an_argument_of_a_function() -> None:
    x, y = gt.tensor(DATA), Foreign(DATA)
    assert gt.matmul(x, Foreign(DATA.T.copy())).shape == (2, 2)
    assert gt.exp(y).tolist() == gt.exp(x).tolist()
    assert gt.maximum(x, y).tolist() == DATA.tolist()
    assert gt.cat([x, y]).shape == (4, 3)
    assert gt.where(Foreign(DATA > 2), x, 0.0).tolist() == np.where(DATA > 2, DATA, 0).tolist()
    assert gt.reshape(y, (3, 2)).shape == (3, 2)
    assert x.gather(1, Foreign([[0], [1]])).tolist() == [[1], [5]]
    assert x.clone().copy_(y).tolist() == DATA.tolist()


def test_operands_that_are_not_tensors_are_refused() -> None:
    with pytest.raises(TypeError, match="must be Tensor, not ndarray"):
        gt.matmul(gt.ones(2, 2), np.ones((2, 2), np.float32))
    with pytest.raises(TypeError, match="must be Tensor, not ndarray"):
        gt.exp(np.ones(2))
    with pytest.raises(TypeError, match="must be Tensor, not list"):
        gt.matmul(gt.ones(2, 2), [1])


def test_an_index_and_what_is_assigned() -> None:
    x = gt.tensor(DATA)
    assert x[Foreign([1, 0])].tolist() == DATA[[1, 0]].tolist()
    assert x[Foreign(DATA > 2)].tolist() == DATA[DATA > 2].tolist()
    assert x[:, Foreign(np.array(1))].tolist() == DATA[:, 1].tolist()
    x[0] = Foreign(DATA[1])
    x[Foreign([1])] = Foreign(DATA[:1])
    assert x.tolist() == DATA[::-1].tolist()


class PyTorchs(Foreign):
    """A tensor of a PyTorch that is imported beside GT, with its `__torch_function__`."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))

    def add(self, other: Any) -> Any:
        """Calls the other operand's `__torch_function__`, as PyTorch's functions do."""
        found = other.__torch_function__(PyTorchs.add, (type(other),), (self, other), {})
        if found is NotImplemented:
            raise TypeError("no implementation found")
        return found


@pytest.mark.parametrize("derived", [False, True])
def test_a_tensor_of_pytorch_overrides_nothing(monkeypatch: pytest.MonkeyPatch, derived: bool) -> None:
    class Derived(gt.Tensor):
        """From the first such class on, GT looks for operands that override."""

    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=PyTorchs))
    monkeypatch.setattr(PyTorchs.add, "__module__", "torch._tensor")
    x, y = gt.tensor(DATA), PyTorchs(DATA)
    if derived:
        x = x.as_subclass(Derived)
    for one in (x + y, y + x, gt.stack([x, y]).sum(0)):
        assert isinstance(one, type(x))
        np.testing.assert_array_equal(one.numpy(), DATA * 2)
    with pytest.raises(TypeError, match="no implementation found"):
        y.add(x)


def test_pytorchs_own_tensors() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
    x, y = gt.tensor(DATA), torch.tensor(DATA)
    for one in (x + y, y + x, gt.tensor(y) * 2, gt.stack([x, y]).sum(0)):
        assert isinstance(one, gt.Tensor)
        np.testing.assert_array_equal(one.numpy(), DATA * 2)
    assert gt.tensor(y.bfloat16()).dtype is gt.bfloat16
    assert gt.tensor(y.bfloat16()).tolist() == DATA.tolist()
    assert x[y > 2].tolist() == DATA[DATA > 2].tolist()
    losses = [gt.nn.functional.cross_entropy(x, library.tensor([0, 2])).item() for library in (gt, torch)]
    assert losses[0] == losses[1]
    # The other library's tape ends here: a conversion that would lose a gradient raises, but an explicit copy does not.
    leaf = y.clone().requires_grad_()
    with pytest.raises(BufferError, match="detach"):
        x * leaf
    assert gt.tensor(leaf).tolist() == DATA.tolist()
