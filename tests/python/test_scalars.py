"""Python numbers beside tensors: each keeps its value until it is used, or is refused. PyTorch printed the results."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import name_of, to_numpy

import gt
from gt.nn import functional as F  # noqa: N812 (PyTorch's name)

INF, NAN = math.inf, math.nan


def t(data: Any, dtype: Any = None) -> gt.Tensor:
    return gt.tensor(data, dtype=dtype)


def assigned(x: gt.Tensor, key: Any, value: Any) -> gt.Tensor:
    x[key] = value
    return x


Case = tuple[Callable[[], gt.Tensor], str, Any]

HALF: list[Case] = [
    (lambda: t([0.25, 3.0], gt.float16) * 65536.0, "float16", [16384.0, INF]),
    (lambda: 65536.0 * t([0.25], gt.float16), "float16", [16384.0]),
    (lambda: t([0.25, 3.0], gt.float16) * t(65536.0), "float16", [16384.0, INF]),
    (lambda: t(0.25, gt.float16) * 65536.0, "float16", 16384.0),
    (lambda: t([0.25], gt.float16).mul_(65536.0), "float16", [16384.0]),
    (lambda: t([0.25], gt.float16) / 100000.0, "float16", [2.5033950805664062e-06]),
    (lambda: t([0.25], gt.float16) / t(100000.0), "float16", [2.5033950805664062e-06]),
    (lambda: t([0.25], gt.float16) // 1e-5, "float16", [24992.0]),
    (lambda: t([0.25], gt.float16).lerp(t([0.5], gt.float16), 100000.0), "float16", [25008.0]),
    (lambda: F.leaky_relu(t([-0.25], gt.float16), 100000.0), "float16", [-24992.0]),
    (lambda: t([0.25, 0.1], gt.float16).ldexp(t(17)), "float16", [32768.0, 13104.0]),
    (
        lambda: gt.addcmul(t([0.25], gt.float16), t([0.25], gt.float16), t([0.25], gt.float16), value=1e5),
        "float16",
        [6252.0],
    ),
    (
        lambda: gt.addmm(t([[60000.0]], gt.float16), t([[300.0]], gt.float16), t([[300.0]], gt.float16), beta=-1),
        "float16",
        [[30000.0]],
    ),
    # Comparisons, powers and remainders round the number to the tensor's dtype first.
    (lambda: t([0.1], gt.float16) == 0.1, "bool", [True]),
    (lambda: t([0.1], gt.bfloat16) <= 0.1, "bool", [True]),
    (lambda: t([3.0], gt.bfloat16) ** 10.03, "bfloat16", [59136.0]),
    (lambda: t([3.0, 7.0], gt.bfloat16) % 0.1, "bfloat16", [0.09716796875, 0.09326171875]),
    (lambda: F.threshold(t([0.1, 0.05], gt.bfloat16), 0.1, 7.0), "bfloat16", [0.10009765625, 7.0]),
    (lambda: gt.where(t([True, False]), t([1.0, 2.0], gt.float16), 1e6), "float16", [1.0, INF]),
    (lambda: assigned(t([1.0, 2.0], gt.float16), 0, 1e6), "float16", [INF, 2.0]),
]

INTEGERS: list[Case] = [
    (lambda: gt.add(t([0.5]), t([1], gt.uint8), alpha=-1), "float32", [-0.5]),
    (lambda: t([0, 1, 5], gt.uint8).clamp_min(-1), "uint8", [0, 1, 5]),
    (lambda: t([0, 5, 255], gt.uint8).clamp(-1, 300), "uint8", [0, 5, 255]),
    (lambda: t([1, 2], gt.int32).clamp(-(2**40), 2**40), "int32", [1, 2]),
    (lambda: t([1, 2]).clamp(max=2**63), "int64", [1, 2]),
    (lambda: F.hardtanh(t([-5, 5], gt.int8), -1, 300), "int8", [-1, 5]),
    # Arithmetic and comparisons wrap, as PyTorch's do.
    (lambda: t([0, 5, 255], gt.uint8) == -1, "bool", [False, False, True]),
    (lambda: t([0, 5, 255], gt.uint8) + 300, "uint8", [44, 49, 43]),
    (lambda: t([1, 2]) + 2**63, "int64", [-9223372036854775807, -9223372036854775806]),
    (lambda: t([1.0, 2.0]) * 2**63, "float32", [9.223372036854776e18, 1.8446744073709552e19]),
    (lambda: t([1.0], gt.float64) + (2**64 - 1), "float64", [1.8446744073709552e19]),
    (lambda: t([2**70, 1], gt.float64), "float64", [1.1805916207174113e21, 1.0]),
    (lambda: t([1.5, 2**70]), "float32", [1.5, 1.1805916207174113e21]),
    (lambda: gt.full((1,), 2**63, dtype=gt.float32), "float32", [9.223372036854776e18]),
    # The negative of an unsigned number is its two's complement.
    (lambda: t([-1], gt.uint8), "uint8", [255]),
    (lambda: gt.full((1,), -1, dtype=gt.uint8), "uint8", [255]),
    (lambda: t([255.5], gt.uint8), "uint8", [255]),
    (lambda: gt.full((2,), 0.5, dtype=gt.bool), "bool", [True, True]),
    (lambda: t([1, 2], gt.uint8).masked_fill(t([True, False]), t(7.5)), "uint8", [7, 2]),
    (lambda: t([1, 2], gt.int16).masked_fill(t([True, False]), t(7, gt.uint8)), "int16", [7, 2]),
    (lambda: gt.ones(2, dtype=gt.bool).masked_fill(t([True, False]), 0.5), "bool", [True, True]),
    (lambda: gt.linspace(0, -1, 3, dtype=gt.uint8), "uint8", [0, 127, 255]),
    (lambda: gt.linspace(0.1, 0.7, 7, dtype=gt.float64)[-1], "float64", 0.7),
    (lambda: gt.searchsorted(t([1, 5], gt.uint8), 300), "int64", 2),
    (lambda: gt.addcmul(t([5], gt.int8), t([5], gt.int8), t([5], gt.int8), value=-1.5), "int8", [-20]),
    (lambda: gt.nan_to_num(t([NAN, INF]), nan=1e300), "float32", [INF, 3.4028234663852886e38]),
]


@pytest.mark.parametrize("case", HALF + INTEGERS)
def test_values(case: Case) -> None:
    call, dtype, wanted = case
    got = call()
    assert name_of(got.dtype) == dtype
    np.testing.assert_array_equal(to_numpy(got), np.array(wanted, to_numpy(got).dtype))


def test_a_large_factor_has_a_gradient() -> None:
    x = t([0.25, 3.0], gt.float16).requires_grad_()
    (x / 100000.0).sum().backward()
    np.testing.assert_array_equal(to_numpy(x.grad), np.float16([1.0013580322265625e-05] * 2))


BYTES = [0, 1, 5]
REFUSED: list[Callable[[], Any]] = [
    lambda: t([300], gt.uint8),
    lambda: t(-1.5, gt.uint8),
    lambda: t([[1, 2], [3, 400]], gt.int8),
    lambda: t([NAN], gt.int32),
    lambda: t(INF, gt.int64),
    lambda: t([1e30], gt.int64),
    lambda: gt.as_tensor([300], dtype=gt.uint8),
    lambda: gt.scalar_tensor(300, dtype=gt.uint8),
    lambda: gt.full((2,), 300, dtype=gt.uint8),
    lambda: gt.full((2,), 2**63),
    lambda: gt.full((2,), 1e6, dtype=gt.float16),
    lambda: gt.full((2,), 1e39, dtype=gt.float32),
    lambda: gt.full_like(t(BYTES, gt.uint8), 300),
    lambda: t(BYTES, gt.uint8).new_full((2,), 300),
    lambda: t(BYTES, gt.uint8).fill_(300),
    lambda: t(BYTES, gt.uint8).masked_fill(t([True] * 3), 300),
    lambda: t([1.0], gt.float16).masked_fill(t([True]), 1e6),
    lambda: t(BYTES, gt.uint8).masked_fill(t([True] * 3), t(300)),
    lambda: t(BYTES, gt.int8).masked_fill_(t([True] * 3), t(300.0)),
    lambda: gt.where(t([True] * 3), t(BYTES, gt.uint8), 300),
    lambda: gt.where(t([True]), t([1.0]), 1e300),
    lambda: assigned(t(BYTES, gt.uint8), 0, 300),
    lambda: assigned(t(BYTES, gt.uint8), [0], 300),
    lambda: assigned(t(BYTES, gt.uint8), t([True, False, False]), 300),
    lambda: assigned(t([1.0]), 0, 1e300),
    lambda: t(BYTES, gt.uint8).index_fill(0, t([0]), 300),
    lambda: t(BYTES, gt.uint8).scatter(0, t([0]), 300),
    lambda: F.pad(t(BYTES, gt.uint8), (1, 1), value=-1),
    lambda: gt.add(t(BYTES, gt.uint8), t(BYTES, gt.uint8), alpha=300),
    lambda: gt.add(t(BYTES), t(BYTES), alpha=0.5),
    lambda: gt.sub(t([1.0], gt.float16), 1, alpha=1e5),
    lambda: gt.rsub(t(BYTES, gt.uint8), t(BYTES, gt.uint8), alpha=300),
    lambda: gt.addcmul(t(BYTES, gt.uint8), t(BYTES, gt.uint8), t(BYTES, gt.uint8), value=300),
    lambda: gt.addmm(t([[1]], gt.uint8), t([[2]], gt.uint8), t([[3]], gt.uint8), beta=300),
    lambda: t([1.0], gt.float16).index_add(0, t([0]), t([1e-3], gt.float16), alpha=1e5),
    lambda: t(BYTES, gt.uint8) ** 300,
    lambda: t(BYTES, gt.uint8).clamp_min(300),
    lambda: t(BYTES, gt.uint8).clamp(max=-1),
    lambda: t([0.5], gt.float16).clamp(0.1, 70000.0),
    # One element of a half precision that is filled becomes infinite; several are refused.
    lambda: assigned(t([1.0, 2.0], gt.float16), ..., 1e6),
    lambda: assigned(t([[1.0, 2.0]], gt.bfloat16), 0, 1e39),
    lambda: assigned(t([1.0, 2.0], gt.float16), slice(0, 0), 1e6),
    lambda: assigned(t([1.0, 2.0], gt.float16), [0], 1e6),
    lambda: assigned(t([1.0], gt.float16), t([False]), 1e6),
    lambda: t([1.0], gt.float16).index_fill(0, t([0]), 1e6),
    lambda: t([1.0], gt.float16).scatter(0, t([0]), 1e6),
    lambda: assigned(t([1.0], gt.float16), t([0]), 1e6),
    lambda: F.threshold(t(BYTES, gt.uint8), 300, 0),
    lambda: F.hardtanh(t(BYTES, gt.uint8), 300, 400),
    lambda: F.leaky_relu(t([1.0]), 1e300),
    lambda: gt.linspace(0, 300, 3, dtype=gt.uint8),
    lambda: gt.arange(0, 2**63),
]


@pytest.mark.parametrize("call", REFUSED)
def test_what_a_dtype_does_not_have_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"without overflow|outside the representable range|floating point number"):
        call()


@pytest.mark.parametrize("data", [2**63, [2**63 - 1, 2**63], -(2**63) - 1, [True, 2**63]])
def test_integers_beyond_int64_are_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="Overflow when unpacking long long"):
        t(data)


@pytest.mark.parametrize("index", [3, -1])
def test_one_hot_of_a_class_out_of_range(index: int) -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        F.one_hot(t([index]), 2).tolist()
    with pytest.raises(RuntimeError, match="index tensor"):
        F.one_hot(t([1], gt.int32), 2)


@pytest.mark.parametrize(
    ("call", "dtype", "wanted"),
    [
        (lambda: t([1, 0], gt.uint8).any(), "uint8", 1),
        (lambda: t([[1, 0], [0, 0]], gt.uint8).any(1), "uint8", [1, 0]),
        (lambda: t([1, 0], gt.uint8).all(), "uint8", 0),
        (lambda: t([1, 0], gt.int32).any(), "bool", True),
        (lambda: gt.addbmm(t([[1]], gt.uint8), t([[[200]]], gt.uint8), t([[[3]]], gt.uint8)), "uint8", [[89]]),
        (lambda: gt.masked.cumsum(t([1, 2], gt.int32), 0), "int32", [1, 3]),
        (lambda: gt.unravel_index(t([5], gt.uint8), (2, 3))[1], "int64", [2]),
        (lambda: gt.ldexp(t([0.0, 1.0]), t([2000, 200])), "float32", [0.0, INF]),
        (lambda: gt.ldexp(t([1e-30]), t([200])), "float32", [1.6069380493547143e30]),
        (lambda: gt.ldexp(t([1.0], gt.float64), t([1023])), "float64", [8.98846567431158e307]),
    ],
)
def test_results(call: Callable[[], gt.Tensor], dtype: str, wanted: Any) -> None:
    got = call()
    assert name_of(got.dtype) == dtype
    np.testing.assert_array_equal(to_numpy(got), np.array(wanted, to_numpy(got).dtype))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"size": (3, 3), "mode": "bilinear"}, [[0, 50, 100], [100, 139, 178], [200, 228, 255]]),
        (
            {"size": (3, 5), "mode": "bilinear", "align_corners": True},
            [[0, 25, 50, 75, 100], [100, 120, 139, 158, 178], [200, 214, 228, 241, 255]],
        ),
        (
            {"size": (5, 4), "mode": "bicubic"},
            [[0, 2, 59, 95], [16, 38, 91, 123], [97, 118, 160, 183], [178, 197, 229, 243], [215, 233, 255, 255]],
        ),
        ({"size": (1, 1), "mode": "bilinear", "antialias": True}, [[139]]),
    ],
)
def test_bytes_are_interpolated_and_rounded(options: dict[str, Any], wanted: list[list[int]]) -> None:
    got = F.interpolate(t([[[[0, 100], [200, 255]]]], gt.uint8), **options)
    assert got.dtype == gt.uint8
    assert got[0, 0].tolist() == wanted


def test_integers_other_than_bytes_are_not_interpolated() -> None:
    with pytest.raises(NotImplementedError, match="floating-point"):
        F.interpolate(t([[[0, 100]]], gt.int32), size=5, mode="linear")


def test_integers_far_apart_are_not_close() -> None:
    low, high = t([-(2**63)]), t([2**63 - 1])
    assert gt.isclose(low, high).tolist() == [False]
    assert gt.isclose(low, t([0]), rtol=0, atol=0).tolist() == [False]
    assert gt.isclose(t([True]), t([False]), atol=1).tolist() == [True]


def test_sums_of_integers_inside_of_functions_do_not_overflow() -> None:
    assert gt.trapezoid(t([10, 127, 20], gt.int8)).item() == 142
    samples = t([100, 100, 100], gt.uint8)
    assert gt.einsum("...ik, ...j -> ij", samples.reshape(1, 3).expand(2, 3), samples).tolist() == [[30000] * 3] * 2
    product = gt.tensordot(t([[2]], gt.uint8), t([[3, 4]], gt.uint8), dims=([1], [1]))
    assert (product.dtype, product.tolist()) == (gt.uint8, [[14]])


@pytest.mark.parametrize(
    "compute", [lambda x: x + 2**63, lambda x: 2**63 * x, lambda x: x < 2**63, lambda x: gt.add(x, 2**63)]
)
def test_a_number_beyond_int64_beside_bools(compute: Callable[[gt.Tensor], gt.Tensor]) -> None:
    with pytest.raises(RuntimeError, match="attempted to promote Bool and UInt64"):
        compute(gt.tensor([True, False]))
