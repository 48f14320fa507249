"""Storages: which tensors share elements, how many bytes they take, and addresses."""

from __future__ import annotations

import copy
import ctypes
import pickle
from pathlib import Path

import numpy as np
import pytest

import gt
from gt import UntypedStorage


def at(address: int, count: int) -> np.ndarray:
    """The floats at an address."""
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (count,)).copy()


def test_tensors_that_share_elements_share_a_storage() -> None:
    x = gt.arange(6.0).reshape(2, 3)
    key = x.untyped_storage().data_ptr()
    for other in (x[1], x.T, x.detach(), x.view(-1), x.data, gt.nn.Parameter(x)):
        assert other.untyped_storage().data_ptr() == key
        assert other.untyped_storage() == x.untyped_storage()
        assert other.untyped_storage().nbytes() == 24
    for other in (x.clone(), x + 0, copy.deepcopy(x)):
        assert other.untyped_storage().data_ptr() != key
        assert other.storage() != x.storage()
    x.add_(1)
    assert x.untyped_storage().data_ptr() == key
    assert len({hash(t.untyped_storage()) for t in (x, x[0], x.T)}) == 1


def test_addresses_are_those_of_the_elements() -> None:
    x = gt.arange(6.0).reshape(2, 3)
    assert at(x.data_ptr(), 6).tolist() == [0, 1, 2, 3, 4, 5]
    assert x[1].data_ptr() == x.data_ptr() + 12
    assert at(x[1].data_ptr(), 3).tolist() == [3, 4, 5]
    x[0, 0] = 9
    assert at(x.data_ptr(), 1).tolist() == [9]
    assert x.data_ptr() == x.untyped_storage().data_ptr()
    assert gt.empty(0).data_ptr() == 0


def test_addresses_of_living_tensors_differ() -> None:
    """Each address is asked of a handle that ends at once, as programs do with the values of a state dict."""
    model = gt.nn.Sequential(*(gt.nn.Linear(3, 3) for _ in range(20)))
    addresses = [p.detach().data_ptr() for p in model.parameters()]
    storages = [p.data.untyped_storage().data_ptr() for p in model.parameters()]
    assert len(set(addresses)) == len(set(storages)) == 40
    assert addresses == storages
    assert addresses == [p.data_ptr() for p in model.parameters()]


def test_elements_of_storages() -> None:
    x = gt.tensor([1, 2, 3], dtype=gt.int16)
    typed = x[1:].storage()
    assert (typed.dtype, typed.size(), len(typed), typed.element_size(), typed.tolist()) == (
        gt.int16,
        3,
        3,
        2,
        [1, 2, 3],
    )
    assert typed.untyped().tolist() == [1, 0, 2, 0, 3, 0]
    assert typed[1] == 2
    assert gt.is_storage(typed)
    assert not gt.is_storage(x)
    with pytest.raises(NotImplementedError, match="freed with the tensors"):
        typed.resize_(0)
    with pytest.raises(NotImplementedError, match="make a tensor"):
        UntypedStorage(10)


def test_bytes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "elements"
    path.write_bytes(np.arange(4, dtype=np.float32).tobytes())
    storage = UntypedStorage.from_file(path, False, 16)
    assert storage.nbytes() == 16
    part = gt.asarray(storage[4:12], dtype=gt.uint8).view(gt.float32)
    assert part.tolist() == [1, 2]
    with pytest.raises(NotImplementedError, match="does not reach the file"):
        UntypedStorage.from_file(path, True)


@pytest.mark.parametrize("dtype", [gt.float32, gt.bfloat16, gt.bool], ids=str)
def test_dtypes_are_copied_and_pickled_as_themselves(dtype: gt.dtype) -> None:
    assert copy.deepcopy({"dtype": dtype})["dtype"] is dtype
    assert copy.copy(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
