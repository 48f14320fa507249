"""The dtype of operations on mixed dtypes, by tables that PyTorch printed."""

from __future__ import annotations

from itertools import product

import pytest
from support import DTYPES, dtype_of, name_of

import gt

SHORT = dict(zip(["b", "u1", "i1", "i2", "i4", "i8", "f2", "bf", "f4", "f8"], DTYPES, strict=True))

# The results of torch.promote_types; rows and columns are in the order of DTYPES.
COMMON = """
    b   u1  i1  i2  i4  i8  f2  bf  f4  f8
    u1  u1  i2  i2  i4  i8  f2  bf  f4  f8
    i1  i2  i1  i2  i4  i8  f2  bf  f4  f8
    i2  i2  i2  i2  i4  i8  f2  bf  f4  f8
    i4  i4  i4  i4  i4  i8  f2  bf  f4  f8
    i8  i8  i8  i8  i8  i8  f2  bf  f4  f8
    f2  f2  f2  f2  f2  f2  f2  f4  f4  f8
    bf  bf  bf  bf  bf  bf  f4  bf  f4  f8
    f4  f4  f4  f4  f4  f4  f4  f4  f4  f8
    f8  f8  f8  f8  f8  f8  f8  f8  f8  f8
"""

# The result dtype of a tensor with axes and a number (True, 2, 2.5) or a tensor without axes (bool, int64, float64): a
# dtype of a higher category promotes, a wider one of the same category does not.
BESIDE = """
    b    b   i8  f4   b   i8  f8
    u1   u1  u1  f4   u1  u1  f8
    i1   i1  i1  f4   i1  i1  f8
    i2   i2  i2  f4   i2  i2  f8
    i4   i4  i4  f4   i4  i4  f8
    i8   i8  i8  f4   i8  i8  f8
    f2   f2  f2  f2   f2  f2  f2
    bf   bf  bf  bf   bf  bf  bf
    f4   f4  f4  f4   f4  f4  f4
    f8   f8  f8  f8   f8  f8  f8
"""


def _table(text: str) -> list[list[str]]:
    return [[SHORT[word] for word in line.split()] for line in text.strip().splitlines()]


def test_every_pair_of_dtypes() -> None:
    for (i, left), (j, right) in product(enumerate(DTYPES), repeat=2):
        a, b = gt.ones(2, dtype=dtype_of(left)), gt.ones(2, dtype=dtype_of(right))
        wanted = _table(COMMON)[i][j]
        assert name_of((a * b).dtype) == wanted, (left, right)
        assert name_of(gt.maximum(a, b).dtype) == wanted
        assert name_of(gt.where(gt.tensor([True, False]), a, b).dtype) == wanted
        assert name_of(gt.cat([a, b]).dtype) == wanted
        assert (a == b).dtype == gt.bool
        assert (a * b).tolist() == [1, 1]


@pytest.mark.parametrize("row", _table(BESIDE), ids=lambda row: row[0])
def test_numbers_and_scalars_weigh_less(row: list[str]) -> None:
    dtype, *wanted = row
    t = gt.ones(2, dtype=dtype_of(dtype))
    beside = [True, 2, 2.5, gt.tensor(True), gt.tensor(1), gt.tensor(1.0, dtype=gt.float64)]
    for other, expected in zip(beside, wanted, strict=True):
        assert name_of((t * other).dtype) == expected
        assert name_of((other * t).dtype) == expected


def test_two_scalars_are_of_equal_weight() -> None:
    assert (gt.tensor(1.0) * gt.tensor(1.0, dtype=gt.float64)).dtype == gt.float64
    assert (gt.tensor(1, dtype=gt.int8) + gt.tensor(1)).dtype == gt.int64


@pytest.mark.parametrize("dtype", DTYPES)
def test_division_and_transcendentals_are_floating(dtype: str) -> None:
    t = gt.ones(2, dtype=dtype_of(dtype))
    floating = dtype if t.dtype.is_floating_point else "float32"
    for result in (t / t, t / 2, gt.exp(t), gt.sqrt(t), gt.tanh(t), t.softmax(0)):
        assert name_of(result.dtype) == floating


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_products_of_integers_are_int64(dtype: str) -> None:
    t = gt.ones(3, dtype=dtype_of(dtype))
    wanted = dtype if t.dtype.is_floating_point else "int64"
    assert name_of(t.sum().dtype) == name_of(t.prod(0).dtype) == wanted
    assert t.sum().item() == 3
    assert (gt.full((300,), 200, dtype=gt.uint8)).sum().item() == 60_000
    assert t.argmax().dtype == gt.int64
    assert t.amax().dtype == t.dtype
    assert t.any().dtype == (gt.uint8 if dtype == "uint8" else gt.bool)


def test_a_number_is_not_rounded_to_the_tensor_s_dtype_before_its_time() -> None:
    # A bound of 0.5 lies between two integers, and distinguishes them.
    assert (gt.tensor([0, 1]) > 0.5).tolist() == [False, True]
    assert (gt.tensor([0, 1]) * 0.5).tolist() == [0, 0.5]


def test_integers_wrap_as_in_c() -> None:
    assert (gt.tensor([127], dtype=gt.int8) + 1).tolist() == [-128]
    assert (gt.tensor([250], dtype=gt.uint8) + gt.tensor([10], dtype=gt.uint8)).tolist() == [4]
    assert (gt.tensor([2**62]) * 4).tolist() == [0]


def test_half_precisions_accumulate_wider() -> None:
    """Sums 4,096 ones, which one by one in half precision would stop at 2,048."""
    for dtype in (gt.float16, gt.bfloat16):
        assert gt.ones(4096, dtype=dtype).sum().item() == 4096
        assert (gt.ones(1, 4096, dtype=dtype) @ gt.ones(4096, 1, dtype=dtype)).item() == 4096
