"""Composites of half precision compute in float32 and round once; moments far from 0 keep their digits.

PyTorch printed the results, of the half-precision elements in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import assert_close, to_numpy

import gt
from gt.nn import functional as F  # noqa: N812 (PyTorch's name)

NAN = math.nan
BIG = [[300.0, 299.0, 301.0, -300.0], [60000.0, 59000.0, 58000.0, 60000.0], [1e-4, 2e-4, 3e-4, -1e-4]]
Call = Callable[[gt.Tensor], gt.Tensor]

# In float16, of BIG: a step of each overflows, or vanishes, in half precision.
CASES: list[tuple[Call, Any]] = [
    (lambda x: F.avg_pool1d(x[1:2], 4), [[59264.0]]),
    (lambda x: F.adaptive_avg_pool1d(x[1:2], 3), [[59520.0, 58496.0, 59008.0]]),
    (lambda x: x[0].var(), math.inf),
    (lambda x: x[0].std(), 300.0),
    (lambda x: x.std(1)[1], 963.5),
    (lambda x: x[0].norm(3), 476.25),
    (lambda x: x[2].norm(3), 0.0003330707550048828),
    (lambda x: gt.cdist(x[:1], x[:1] * 0.5), [[300.0]]),
    (lambda x: F.pdist(x[::2], 3.0), [476.25]),
    (lambda x: F.pairwise_distance(x[:1], x[:1] * 0.5), [300.0]),
    (lambda x: F.cosine_similarity(x[:1], x[:1] * 0.5 + 1), [1.0]),
    (lambda x: F.normalize(x[1:2]), [[0.50634765625, 0.498046875, 0.4892578125, 0.50634765625]]),
    (lambda x: F.mse_loss(x[2], x[2] + 0.01), 0.00010001659393310547),
    (lambda x: F.huber_loss(x[0], x[0] * 0.5, delta=400.0), 11248.0),
    (lambda x: F.smooth_l1_loss(x[0], x[0] * 0.5, beta=600.0), 18.75),
    (lambda x: F.softplus(x[0] * 0.01, 0.001), [694.5, 694.5, 694.5, 691.5]),
    (
        lambda x: F.mish(x[2]),
        [6.002187728881836e-05, 0.00012004375457763672, 0.0001800060272216797, -6.002187728881836e-05],
    ),
    (lambda x: gt.sinc(x[0] / 256), [-0.1396484375, -0.13720703125, -0.1419677734375, -0.1396484375]),
    (lambda x: gt.logsumexp(x[2], 0), 1.38671875),
    (lambda x: gt.hypot(x[0], x[0]), [424.25, 422.75, 425.75, 424.25]),
    (lambda x: gt.addcdiv(x[0], x[0], x[0] * 1e-3, value=1.5), [1800.0, 1799.0, 1801.0, 1200.0]),
    (lambda x: F.local_response_norm(x[:1].reshape(1, 1, 4), 2)[0, 0], [83.5625, 83.625, 83.4375, -83.5625]),
    (lambda x: F.l1_loss(x, -x), 39712.0),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_values(case: int) -> None:
    call, wanted = CASES[case]
    got = call(gt.tensor(BIG, dtype=gt.float16))
    assert got.dtype == gt.float16
    np.testing.assert_allclose(to_numpy(got), np.float16(wanted), rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("dtype", [gt.float16, gt.bfloat16])
def test_a_gradient_passes_through_float32(dtype: Any) -> None:
    x = gt.tensor([[0.3, -0.7, 1.0, 2.0]], dtype=dtype).requires_grad_()
    F.huber_loss(x, x.detach() * 0.5, reduction="sum").backward()
    assert x.grad.dtype == dtype
    np.testing.assert_allclose(to_numpy(x.grad.float()), [[0.15, -0.35, 0.5, 1.0]], rtol=1e-2)


@pytest.mark.parametrize("offset", [1e4, 1e6])
@pytest.mark.parametrize("axis", [0, 1])
def test_variance_far_from_zero(offset: float, axis: int) -> None:
    array = np.float32((np.arange(4096) % 13) * 0.125 + offset).reshape(64, 64)
    wanted = np.float64(array).var(axis, ddof=1)
    assert_close(gt.tensor(array).var(axis), np.float32(wanted))
    assert_close(gt.tensor(array).std(axis), np.float32(np.sqrt(wanted)))
    assert_close(gt.var_mean(gt.tensor(array), axis)[0], np.float32(wanted))


def test_the_variance_of_equal_elements_is_zero() -> None:
    assert gt.full((1000,), 0.1).var().item() == 0.0
    assert gt.full((1000,), 0.1).std().item() == 0.0


def slopes(call: Callable[..., gt.Tensor], *data: list[float]) -> list[list[float]]:
    inputs = [gt.tensor(numbers).requires_grad_() for numbers in data]
    call(*inputs).sum().backward()
    return [x.grad.tolist() for x in inputs]


TIES = [-1.0, 1.0, 0.0, 2.0, -2.0, NAN]


@pytest.mark.parametrize(
    ("call", "data", "wanted"),
    [
        (gt.atan2, [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, -1.0]]),
        (lambda x: x.clamp(-1, 1), [TIES], [[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]]),
        (lambda x: x.clamp(min=-1), [TIES], [[0.0, 1.0, 1.0, 1.0, 0.0, 0.0]]),
        (lambda x: x.clamp_max(1), [TIES], [[1.0, 0.0, 1.0, 0.0, 1.0, 0.0]]),
        (
            lambda x, low, high: x.clamp(low, high),
            [TIES, [-1.0] * 6, [1.0] * 6],
            [[0.5, 0.5, 1.0, 0.0, 0.0, 1.0], [0.5, 0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 1.0, 0.0, 0.0]],
        ),
        (
            gt.fmax,
            [[1.0, 1.0, NAN, 2.0, NAN], [1.0, NAN, 1.0, 3.0, NAN]],
            [[0.5, 1.0, 0.0, 0.0, 1.0], [0.5, 0.0, 1.0, 1.0, 0.0]],
        ),
        (
            gt.fmin,
            [[1.0, 1.0, NAN, 2.0, NAN], [1.0, NAN, 1.0, 3.0, NAN]],
            [[0.5, 1.0, 0.0, 1.0, 1.0], [0.5, 0.0, 1.0, 0.0, 0.0]],
        ),
        (gt.median, [[2.0, 1.0, 1.0, 3.0, 1.0]], [[0.0, 1 / 3, 1 / 3, 0.0, 1 / 3]]),
        (gt.nanmedian, [[2.0, NAN, 1.0, 3.0, 1.0]], [[0.0, 0.0, 0.5, 0.0, 0.5]]),
        (gt.logit, [[-1.0, 0.0, 0.5, 1.0, 2.0]], [[NAN, math.inf, 4.0, math.inf, NAN]]),
        (lambda x: gt.logit(x, 0.1), [[0.0, 0.05, 0.1, 0.5, 0.9, 2.0]], [[0.0, 0.0, 100 / 9, 4.0, 100 / 9, 0.0]]),
    ],
)
def test_gradients_at_ties_and_bounds(call: Any, data: list[list[float]], wanted: list[list[float]]) -> None:
    np.testing.assert_allclose(slopes(call, *data), wanted, rtol=1e-6)


def test_a_count_of_elements_has_no_gradient_but_takes_part() -> None:
    x = gt.tensor([0.0, 1.0, 2.0], requires_grad=True)
    (x.norm(0) + x.sum()).backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    gt.tensor([0.0, 1.0], requires_grad=True).norm(0).backward()


@pytest.mark.parametrize(("dtype", "big"), [(gt.float16, 2048.0), (gt.bfloat16, 256.0)], ids=str)
def test_a_product_and_what_is_added_to_it_are_rounded_once(dtype: gt.dtype, big: float) -> None:
    # Half precisions have every second number from `big` on: big + 1 is rounded to big, and big + 2 is not.
    one, row, column = (gt.tensor(numbers, dtype=dtype) for numbers in ([1.0], [[big, 1.0]], [[1.0], [1.0]]))
    sums = [
        gt.addmm(one, row, column),
        gt.baddbmm(one, row[None], column[None]),
        gt.addbmm(one, row[None], column[None]),
        gt.addmv(one, row, column[:, 0]),
        F.linear(row, column.T, one),
        gt.addmm(one * 2, row, column * 2, beta=0.5, alpha=0.5),
    ]
    assert [found.dtype for found in sums] == [dtype] * len(sums)
    assert [found.item() for found in sums] == [big + 2] * len(sums)
    # Each step of an outer product is rounded.
    assert gt.addr(one, one * 3, one * ((big + 1) // 3)).item() == big


def test_factors_of_half_precisions_have_the_range_of_float32() -> None:
    one = gt.ones(1, 1, dtype=gt.float16)
    assert gt.addmm(one, one * 0.001, one, alpha=1e4).item() == 11.0078125
    with pytest.raises(RuntimeError, match="cannot be converted to type float without overflow"):
        gt.addmm(one, one, one, alpha=1e39)
    for scaled in (gt.addmv, gt.addr):
        with pytest.raises(RuntimeError, match="cannot be converted to type c10::Half without overflow"):
            scaled(one, one if scaled is gt.addmv else one[0], one[0], alpha=1e6)


def test_gradients_of_an_affine_map_have_its_half_precision() -> None:
    x, weight, bias = (gt.tensor(n, dtype=gt.bfloat16, requires_grad=True) for n in ([[1.0, 2.0]], [[3.0, 4.0]], [1.0]))
    F.linear(x, weight, bias).sum().backward()
    assert [t.grad.dtype for t in (x, weight, bias)] == [gt.bfloat16] * 3
    assert [t.grad.tolist() for t in (x, weight, bias)] == [[[3.0, 4.0]], [[1.0, 2.0]], [1.0]]
    # The gradient of a bias is summed in float32 and rounded once: 256 + 1 + 1 in steps of bfloat16 would be 256.
    bias = gt.zeros(1, dtype=gt.bfloat16, requires_grad=True)
    weights = gt.tensor([[256.0], [1.0], [1.0]], dtype=gt.bfloat16)
    F.linear(gt.ones(3, 1, dtype=gt.bfloat16), gt.ones(1, 1, dtype=gt.bfloat16), bias).backward(weights)
    assert bias.grad.item() == 258.0


def test_integers_beside_half_precision_are_rounded_to_it() -> None:
    """An integer beyond float16 is infinite there; a function of integers alone is float32."""
    large, nan = gt.tensor([-(2**60)]), gt.tensor([math.nan], dtype=gt.float16)
    assert gt.hypot(nan, large).tolist() == gt.hypot(large, nan).tolist() == [math.inf]
    assert gt.special.xlog1py(gt.tensor([1.0], dtype=gt.float16), gt.tensor([70000])).tolist() == [math.inf]
    one = gt.tensor([1.5, 2.0], dtype=gt.float16)
    assert gt.addcdiv(one, one, gt.tensor([70000, 1]), value=2).tolist() == [1.5, 6.0]
    assert gt.nextafter(one, gt.tensor([1, 2])).tolist() == [1.5 - 2.0**-10, 2.0]
    assert gt.cosine_similarity(one, gt.tensor([3, 4]), dim=0).item() == 1.0
    loss = F.poisson_nll_loss(gt.tensor([1, 2]), one)
    assert loss.dtype == gt.float32
    np.testing.assert_allclose(loss.item(), (math.e - 1.5 + math.e**2 - 4) / 2, rtol=1e-3)
    with pytest.raises(RuntimeError, match="expected common dtype to be floating point, yet common dtype is Long"):
        gt.cosine_similarity(gt.tensor([1]), gt.tensor([1]), dim=0)
