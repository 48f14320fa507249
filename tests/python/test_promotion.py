"""The dtype of operations on mixed dtypes, by tables that PyTorch printed."""

from __future__ import annotations

from itertools import product

import pytest
from support import DTYPES, dtype_of, name_of

import gt
from gt.nn import functional as F  # noqa: N812 (PyTorch's name)

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
    for result in (t / t, t / 2, gt.exp(t), gt.sqrt(t), gt.tanh(t), t.sigmoid()):
        assert name_of(result.dtype) == floating


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_and_products_of_integers_are_int64(dtype: str) -> None:
    t = gt.ones(3, dtype=dtype_of(dtype))
    wanted = dtype if t.dtype.is_floating_point else "int64"
    assert name_of(t.sum().dtype) == name_of(t.prod(0).dtype) == wanted
    assert t.sum().item() == 3
    assert (gt.full((300,), 200, dtype=gt.uint8)).sum().item() == 60_000
    if t.dtype != gt.bool:
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


FLOATS_ONLY = """
    softmax(x,0) log_softmax(x,0) gelu(x) silu(x) mish(x) elu(x) celu(x) selu(x) softplus(x) logsigmoid(x)
    hardsigmoid(x) hardswish(x) hardshrink(x) softshrink(x) leaky_relu(x) glu(x) layer_norm(x,(2,)) rms_norm(x,(2,))
    normalize(x,dim=0) huber_loss(x,x) cross_entropy(x,x[0])
""".split()
NO_BOOLS = """
    x.argmax() x.argmin(0) x.median() x.median(0) x.nanmedian() x.topk(1) x.kthvalue(1) x.bincount() x.cumsum_(0)
    x.cumsum(0,dtype=gt.bool) x.cumprod_(0) x%x x//x x%True True//x x**x x.clamp(True) x.clamp_(max=True)
    x.clamp(False,True) x-1 1-x x-x gt.rsub(x,1) gt.sub(1,x) gt.trapezoid(x) F.threshold(x,0,0) F.tanhshrink(x)
""".split()


@pytest.mark.parametrize("call", FLOATS_ONLY)
@pytest.mark.parametrize("dtype", [gt.uint8, gt.int64, gt.bool])
def test_some_functions_are_of_floats_alone(call: str, dtype: gt.dtype) -> None:
    x = gt.tensor([[1, 0], [1, 1]]).to(dtype)
    with pytest.raises(NotImplementedError, match=r"not implemented for|Expected a floating point|not supported"):
        eval(f"F.{call}", {"F": F, "x": x})


@pytest.mark.parametrize("call", NO_BOOLS)
def test_some_functions_take_no_bools(call: str) -> None:
    with pytest.raises(NotImplementedError, match=r"not implemented for 'Bool'|not supported"):
        eval(call, {"gt": gt, "F": F, "x": gt.tensor([True, False])})


def test_a_bool_is_limited_by_bools_of_tensors_and_raised_to_a_number() -> None:
    x = gt.tensor([True, False])
    assert x.clamp(gt.tensor(True)).tolist() == [True, True]
    assert x.clamp(0, 1).dtype == gt.int64
    assert (x**True).tolist() == [True, False]
    assert (x**False).tolist() == [True, True]
    assert (x**2).tolist() == [1, 0]
    assert x[0].cumsum(0, dtype=gt.bool).item() is True
    assert x[:0].cumprod(0, dtype=gt.bool).tolist() == []
    assert x.logical_not().pow_(True).tolist() == [False, True]


def test_a_bool_as_alpha_is_of_bools() -> None:
    x = gt.tensor([True, False])
    assert gt.add(x, x, alpha=False).tolist() == [True, False]
    with pytest.raises(RuntimeError, match="Boolean alpha only supported for Boolean results"):
        gt.add(x, gt.tensor([1, 2]), alpha=True)
