"""Unsigned integers of 16, 32 and 64 bits, against NumPy."""

from __future__ import annotations

import operator
from pathlib import Path

import numpy as np
import pytest

import gt

DTYPES = ("uint16", "uint32", "uint64")
OPERATORS = ("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "eq", "ne", "lt", "le", "gt", "ge")


def drawn(dtype: str, *shape: int) -> np.ndarray:
    """Numbers of the whole range, more often at its ends."""
    rng = np.random.default_rng(0)
    array = rng.integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
    ends = np.array([0, 1, 2, np.iinfo(dtype).max, np.iinfo(dtype).max - 1, np.iinfo(dtype).max // 2 + 1], dtype)
    return np.where(rng.random(shape) < 0.4, rng.choice(ends, shape), array)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str, dtype: str) -> None:
    a, b = drawn(dtype, 50), drawn(dtype, 50)[::-1].copy()
    if name in ("floordiv", "mod"):
        b[b == 0] = 3
    function = getattr(operator, name)
    with np.errstate(over="ignore"):
        expected = function(a, b)
    found = function(gt.tensor(a), gt.tensor(b))
    assert str(found.dtype) == f"gt.{expected.dtype}"
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions(dtype: str) -> None:
    a, b = drawn(dtype, 4, 10), drawn(dtype, 10)
    x, y = gt.tensor(a), gt.tensor(b)
    few = np.arange(1, 5).astype(dtype)
    for found, expected in [
        (gt.maximum(x, y), np.maximum(a, b)), (gt.minimum(x, y), np.minimum(a, b)), (x.amax(1), a.max(1)),
        (x.amin(), a.min()), (x.sort(1).values, np.sort(a, 1)),
        (x.argsort(1, stable=True), np.argsort(a, 1, stable=True)),
        (x.argmax(1), a.argmax(1)), (~x, ~a), (x >> 3, a >> 3), (gt.sign(x), np.sign(a)),
        (x.abs(), a), (x[:, ::2], a[:, ::2]),
        (gt.where(x > y, x, y), np.where(a > b, a, b)), (gt.tensor(few) ** gt.tensor(few), few**few),
        (gt.tensor(few).cumsum(0), few.cumsum()), (gt.tensor(few).sum(), few.sum()),
        (gt.tensor(few).prod(), few.prod()),
        (gt.clamp(x, 5, 100), np.clip(a, 5, 100)), (x.gather(1, gt.zeros(4, 1, dtype=gt.int64)), a[:, :1]),
        (x.any(1), a.any(1)), (gt.unique(y), np.unique(b)), (gt.cat([x, x]), np.concatenate([a, a])),
        (x.to(gt.float64), a.astype(np.float64)), (x.to(gt.float32), a.astype(np.float32)),
        (x.to(gt.int32), a.astype(np.int32)), (x.to(gt.uint8), a.astype(np.uint8)), (x.bool(), a.astype(bool)),
        (x.to(gt.uint64), a.astype(np.uint64)), (x.to(gt.uint16), a.astype(np.uint16)),
        (gt.tensor([0.0, 3.7, 60000.0]).to(x.dtype), np.array([0, 3.7, 60000]).astype(dtype)),
        (gt.searchsorted(gt.tensor(np.sort(b)), y), np.searchsorted(np.sort(b), b)),
    ]:  # fmt: skip
        assert found.tolist() == expected.tolist()


def test_the_largest_numbers() -> None:
    top = 2**64 - 1
    x = gt.tensor([top, 1], dtype=gt.uint64)
    assert x.tolist() == [top, 1]
    assert x.max().item() == top
    assert gt.full((1,), 2**63, dtype=gt.uint64).item() == 2**63
    assert gt.tensor([2.0**63], dtype=gt.float64).to(gt.uint64).item() == 2**63
    assert x.to(gt.float64)[0].item() == 2.0**64
    assert (x // 2)[0].item() == 2**63 - 1
    assert gt.iinfo(gt.uint64).max == top
    assert gt.arange(3, dtype=gt.uint16).tolist() == [0, 1, 2]
    assert gt.promote_types(gt.uint16, gt.int16) == gt.int32
    assert (gt.ones(1, dtype=gt.uint32) + 1).dtype == gt.uint32
    assert x.numpy().dtype == np.uint64
    assert not x.dtype.is_signed
    assert gt.tensor([2**63 + 1, 1], dtype=gt.uint64).tolist() == [2**63 + 1, 1]
    assert gt.arange(2**63, 2**63 + 3, dtype=gt.uint64).tolist() == [2**63, 2**63 + 1, 2**63 + 2]
    assert (gt.zeros(1, dtype=gt.uint64) + top).item() == top
    assert gt.clamp(x, max=2**63).tolist() == [2**63, 1]


def test_numbers_that_a_dtype_does_not_have_are_refused() -> None:
    for numbers in ([-1], [2**64], [2**63, -1]):
        with pytest.raises(OverflowError, match="uint64 holds 0 to 18446744073709551615"):
            gt.tensor(numbers, dtype=gt.uint64)
    for call in (
        lambda: gt.tensor([70000], dtype=gt.uint16), lambda: gt.full((2,), -70000, dtype=gt.uint16),
        lambda: gt.full((2,), 2**32, dtype=gt.uint32), lambda: gt.full((2,), 2e19, dtype=gt.uint64),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="without overflow"):
            call()
    # The negative of a number stands for its two's complement, as in PyTorch.
    assert gt.tensor([-1], dtype=gt.uint16).tolist() == [65535]


def test_files_of_safetensors_have_them(tmp_path: Path) -> None:
    x = gt.tensor([1, 65535], dtype=gt.uint16)
    with pytest.raises(TypeError, match="no storage of uint16"):
        gt.save(x, tmp_path / "x.pt")
    gt.save({"x": x}, tmp_path / "x.safetensors")
    assert gt.load(tmp_path / "x.safetensors")["x"].tolist() == [1, 65535]
