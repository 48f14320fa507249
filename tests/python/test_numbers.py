"""NaN, infinities, signed zeros and the limits of integers, as in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support import FLOATS, SIGNED, assert_close, dtype_of, to_numpy

import gt
from gt.nn import functional as F  # noqa: N812

NAN, INF = float("nan"), float("inf")


def same(got: gt.Tensor, wanted: list[float]) -> None:
    np.testing.assert_array_equal(to_numpy(got), np.array(wanted))


@pytest.fixture(params=FLOATS)
def special(request: pytest.FixtureRequest) -> gt.Tensor:
    return gt.tensor([NAN, INF, -INF, 0.0, 1.0]).to(dtype_of(request.param))


def test_comparisons_with_nan_are_false(special: gt.Tensor) -> None:
    nan = special[0]
    for outcome in (special == nan, special < nan, special <= nan, special > nan, special >= nan):
        same(outcome, [False] * 5)
    same(special != nan, [True] * 5)


def test_arithmetic(special: gt.Tensor) -> None:
    same(special + 1, [NAN, INF, -INF, 1, 2])
    same(special - special, [NAN, NAN, NAN, 0, 0])
    same(special * 0, [NAN, NAN, NAN, 0, 0])
    same(1 / special, [NAN, 0, 0, INF, 1])
    same(special.abs(), [NAN, INF, INF, 0, 1])
    same(special**0, [1, 1, 1, 1, 1])
    same(gt.ones_like(special) ** special, [1, 1, 1, 1, 1])


def test_elementwise_functions_propagate_nan(special: gt.Tensor) -> None:
    same(special.relu(), [NAN, INF, 0, 0, 1])
    same(special.clamp(-2, 2), [NAN, 2, -2, 0, 1])
    same(special.clamp(min=0.5), [NAN, INF, 0.5, 0.5, 1])
    same(gt.maximum(special, gt.zeros_like(special)), [NAN, INF, 0, 0, 1])
    same(gt.minimum(gt.zeros_like(special), special), [NAN, 0, -INF, 0, 0])
    same(special.sigmoid(), [NAN, 1, 0, 0.5, special[4:].sigmoid().item()])
    same(special.tanh(), [NAN, 1, -1, 0, special[4:].tanh().item()])
    same(special.exp(), [NAN, INF, 0, 1, special[4:].exp().item()])
    same(special.isnan(), [True, False, False, False, False])
    same(special.isinf(), [False, True, True, False, False])
    same(special.isfinite(), [False, False, False, True, True])


def test_reductions(special: gt.Tensor) -> None:
    same(special.amax().reshape(1), [NAN])
    same(special.min().reshape(1), [NAN])
    same(special.sum().reshape(1), [NAN])
    same(special.mean().reshape(1), [NAN])
    same(special.argmax().reshape(1), [0])
    same(special[1:].argmax().reshape(1), [0])
    same(special[1:].argmin().reshape(1), [1])
    same(special[1:].amax().reshape(1), [INF])
    same(special[1:3].sum().reshape(1), [NAN])
    same(special.any().reshape(1), [True])
    same(special.all().reshape(1), [False])
    # A NaN at any position propagates, also in the last block.
    for size in (7, 64, 1000, 100_001):
        row = gt.cat([gt.zeros(size, dtype=special.dtype), special[:1]])
        assert math.isnan(row.amax().item())
        assert math.isnan(row.amin().item())
        assert row.argmax().item() == size
        values, indices = row.max(dim=0)
        assert math.isnan(values.item())
        assert indices.item() == size


def test_reductions_of_nothing() -> None:
    empty = gt.zeros(0)
    assert empty.sum().item() == 0
    assert empty.prod().item() == 1
    assert math.isnan(empty.mean().item())
    assert not empty.any().item()
    assert empty.all().item()
    assert gt.zeros(2, 0).sum(dim=1).tolist() == [0, 0]
    assert math.isnan(gt.zeros(1).var().item())
    assert math.isnan(gt.zeros(0).std().item())


def test_log_and_roots_at_the_edge() -> None:
    same(gt.tensor([0.0, -1.0, INF]).log(), [-INF, NAN, INF])
    same(gt.tensor([0.0, -1.0, INF]).sqrt(), [0, NAN, INF])
    same(gt.tensor([0.0, -0.0, INF]).rsqrt(), [INF, -INF, 0])
    same(gt.tensor([-1.0, -2.0]) ** 0.5, [NAN, NAN])
    same(gt.tensor([-2.0, -2.0]) ** gt.tensor([2.0, 3.0]), [4, -8])
    same(gt.tensor([0.0]) ** -1, [INF])


def test_zero_keeps_its_sign() -> None:
    negative = gt.tensor([-0.0])
    assert math.copysign(1, negative.item()) == -1
    assert math.copysign(1, (negative * 1).item()) == -1
    assert math.copysign(1, (-gt.tensor([0.0])).item()) == -1
    same(1 / negative, [-INF])


def test_floor_division_and_remainder_follow_python() -> None:
    a = [7.0, -7.0, 7.0, -7.0, 1.0, INF, 1.0, -1.0, NAN]
    b = [2.0, 2.0, -2.0, -2.0, 0.0, 2.0, INF, INF, 1.0]
    same(gt.tensor(a) // gt.tensor(b), [3, -4, -4, 3, INF, NAN, 0, -1, NAN])
    same(gt.tensor(a) % gt.tensor(b), [1, 1, -1, -1, NAN, NAN, 1, INF, NAN])
    for dtype in SIGNED:
        x, y = gt.tensor([7, -7, 7, -7], dtype=dtype_of(dtype)), gt.tensor([2, 2, -2, -2], dtype=dtype_of(dtype))
        same(x // y, [3, -4, -4, 3])
        same(x % y, [1, 1, -1, -1])


def test_integer_powers() -> None:
    same(gt.tensor([2, -2, 0, 3]) ** 3, [8, -8, 0, 27])
    same(gt.tensor([2, 3]) ** gt.tensor([0, 4]), [1, 81])
    same(gt.tensor([1, -1, 2]) ** gt.tensor([-1, -1, -1]), [1, -1, 0])


def test_large_numbers_do_not_overflow_where_they_need_not() -> None:
    same(gt.tensor([1000.0, 0.0]).softmax(0), [1, 0])
    assert gt.tensor([1000.0, 1000.0]).log_softmax(0).tolist() == gt.tensor([0.0, 0.0]).log_softmax(0).tolist()
    same(gt.tensor([-1000.0, 1000.0]).sigmoid(), [0, 1])
    same(gt.tensor([-1000.0, 1000.0]).tanh(), [-1, 1])
    same(gt.tensor([-1000.0, 1000.0]).gelu(), [0, 1000])
    same(gt.tensor([-INF, 0.0]).softmax(0), [0, 1])
    same(gt.tensor([-INF, -INF]).softmax(0), [NAN, NAN])


def test_casts_at_the_edge() -> None:
    same(gt.tensor([NAN, 0.0, -0.0, 0.5]).bool(), [True, False, False, True])
    same(gt.tensor([2.9, -2.9]).long(), [2, -2])
    same(gt.tensor([300, -1]).byte(), [44, 255])
    same(gt.tensor([65504.0, 65520.0, 1e-8]).half(), [65504, INF, 0])
    same(
        gt.tensor([1.0 + 2**-9, 1.0 + 3 * 2**-9]).bfloat16(), [1, 1 + 2**-7]
    )  # Ties round to even, others to the nearest.
    same(gt.tensor([NAN, INF, -INF]).bfloat16(), [NAN, INF, -INF])
    same(gt.tensor([3.4e38, 1e39], dtype=gt.float64).float(), [float(np.float32(3.4e38)), INF])


def test_round_goes_to_even() -> None:
    same(gt.round(gt.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 2.4])), [0, 2, 2, 0, -2, 2])


def test_subnormals_survive() -> None:
    tiny = 1e-40
    assert gt.tensor(tiny).item() == float(np.float32(tiny))
    assert (gt.tensor([tiny]) * 1).item() > 0
    assert gt.tensor([6e-8]).half().item() > 0


def grads(call: Callable[..., gt.Tensor], *values: list[float], dtype: str = "float32") -> list[gt.Tensor]:
    """Returns the gradients of the sum of `call` with respect to each operand."""
    leaves = [gt.tensor(v, dtype=dtype_of(dtype), requires_grad=True) for v in values]
    call(*leaves).sum().backward()
    return [leaf.grad for leaf in leaves]


def test_gradients_at_the_edges_are_pytorch_s() -> None:
    same(grads(gt.sqrt, [0.0])[0], [INF])
    same(grads(gt.abs, [0.0, -0.0])[0], [0, 0])
    same(grads(gt.relu, [0.0, NAN, INF, -INF])[0], [0, 1, 1, 0])
    for extreme in (gt.minimum, gt.maximum):
        for grad in grads(extreme, [NAN, 1.0, NAN, 2.0], [1.0, NAN, NAN, 2.0]):
            same(grad, [1, 1, 1, 0.5])
    base, exponent = grads(gt.pow, [0.0, 0.0, 0.0], [2.0, 0.0, -1.0])
    same(base, [0, 0, -INF])
    same(exponent, [0, 0, -INF])


def test_gradients_of_half_precision_neither_overflow_nor_underflow_on_the_way() -> None:
    _, divisor = grads(gt.div, [0.0, 1.0], [1e-5, 1e-3], dtype="float16")
    assert divisor.tolist()[0] == 0
    assert math.isinf(divisor.tolist()[1])  # -1e6 is beyond the range of float16.
    same(grads(lambda t: t.gelu(approximate="tanh"), [710.0, -710.0], dtype="float16")[0], [1, 0])
    same(grads(gt.gelu, [710.0, -710.0], dtype="float16")[0], [1, 0])
    exact = grads(lambda t: t.gelu(approximate="tanh"), [-3.0], dtype="float64")[0].item()
    for dtype, near in (("float16", 0.01), ("bfloat16", 0.05)):
        assert grads(lambda t: t.gelu(approximate="tanh"), [-3.0], dtype=dtype)[0].item() == pytest.approx(
            exact, rel=near
        )


def test_the_gradient_of_a_variance_without_degrees_of_freedom_is_nan_or_infinite() -> None:
    # Without named axes it is positive where an element is not the mean; along named axes, the formula holds.
    for values, axis, correction, slope in (
        ([3.0], -1, 1, [NAN]),
        (3.0, None, 1, NAN),
        ([3.0, 1.0], None, 2, [INF, INF]),
        ([3.0, 1.0], -1, 2, [INF, -INF]),
        ([[3.0, 1.0], [2.0, 2.0]], -1, 3, [[-2.0, 2.0], [0.0, 0.0]]),
        ([[3.0, 1.0], [2.0, 2.0]], None, 5, [[INF, INF], [NAN, NAN]]),
    ):
        x = gt.tensor(values, requires_grad=True)
        x.var(axis, correction=correction).sum().backward()
        np.testing.assert_array_equal(to_numpy(x.grad), np.array(slope))


def test_bounds_that_are_tensors_share_the_gradient_of_elements_that_equal_them() -> None:
    # Below, at the lower bound, between, at the upper bound, above, at both; then between and at one of crossed bounds.
    elements = [0.0, 1.0, 1.5, 2.0, 3.0, 5.0, 0.0, 1.5, 1.0]
    bounds = [1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0, 2.0, 5.0, 5.0, 1.0, 1.0]
    leaves = [gt.tensor(numbers, requires_grad=True) for numbers in (elements, *bounds)]
    leaves[0].clamp(*leaves[1:]).sum().backward()
    for leaf, wanted in zip(
        leaves,
        ([0, 0.5, 1, 0.5, 0, 1, 0, 0, 0], [1, 0.5, 0, 0, 0, 0, 1, 0, 0], [0, 0, 0, 0.5, 1, 0, 0, 1, 1]),
        strict=True,
    ):
        same(leaf.grad, wanted)


def test_the_gradient_of_a_hypotenuse_is_the_share_of_the_side() -> None:
    a, b = (gt.tensor(side, requires_grad=True) for side in ([3.0, 0.0, INF, 1e30], [4.0, 0.0, 1.0, 1e30]))
    gt.hypot(a, b).sum().backward()
    np.testing.assert_allclose(to_numpy(a.grad), [0.6, NAN, NAN, 0.5**0.5], rtol=1e-6)
    np.testing.assert_allclose(to_numpy(b.grad), [0.8, NAN, 0.0, 0.5**0.5], rtol=1e-6)


def test_deviations_whose_squares_are_beyond_float32() -> None:
    assert gt.tensor([1e20, -1e20, 3e20]).std().item() == pytest.approx(2e20, rel=1e-6)
    assert gt.tensor([1e-30, -1e-30]).std().item() == pytest.approx(2**0.5 * 1e-30, rel=1e-6)
    assert gt.tensor([1.8e19, 0.0, -1.8e19]).var().item() == pytest.approx(3.24e38, rel=1e-6)
    assert gt.tensor([[1e20, 2.0], [3e20, 4.0]]).std(0).tolist() == pytest.approx([2**0.5 * 1e20, 2**0.5], rel=1e-6)
    assert gt.tensor([5.0, 5.0]).std().item() == 0
    assert gt.tensor([math.inf, 1.0]).var().isnan()
    x = gt.tensor([1e20, -1e20, 3e20], requires_grad=True)
    x.std().backward()
    assert x.grad.tolist() == pytest.approx([0, -0.5, 0.5], abs=1e-6)


def test_slopes_at_the_ends_of_a_domain() -> None:
    x = gt.tensor([0.0, 0.5, 1.0], requires_grad=True)
    value = gt.special.entr(x)
    value.sum().backward()
    assert value.tolist() == pytest.approx([0, 0.5 * math.log(2), 0])
    assert math.copysign(1, value[0].item()) == 1
    assert x.grad.tolist() == pytest.approx([math.inf, math.log(2) - 1, -1])
    ends = gt.tensor([-0.0, 0.0, 1.0], requires_grad=True)
    gt.logit(ends).sum().backward()
    assert ends.grad.tolist() == [math.inf] * 3


def test_a_vector_whose_length_is_beyond_the_range_is_similar_to_none() -> None:
    x = gt.tensor([[1e20, 2e20]])
    assert gt.nn.functional.cosine_similarity(x, x).item() == 0
    assert gt.nn.functional.cosine_similarity(x / 1e5, x / 1e4).item() == pytest.approx(1)


def test_a_condition_of_bytes() -> None:
    with pytest.warns(UserWarning, match="uint8 condition"):
        assert gt.where(gt.tensor([2, 0], dtype=gt.uint8), 1.0, -1.0).tolist() == [1, -1]
    with pytest.raises(RuntimeError, match="expected condition to be a boolean tensor"):
        gt.where(gt.tensor([2, 0]), 1.0, -1.0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: gt.bincount(gt.ones(3)), NotImplementedError, "not implemented for 'Float'"),
        (lambda: gt.unravel_index(gt.ones(3), (2, 2)), TypeError, "integer dtype"),
        (lambda: gt.zeros(0).kthvalue(1), IndexError, "non-zero size"),
        (lambda: gt.trace(gt.ones(2, 2, dtype=gt.bool)), NotImplementedError, "\"trace\" not implemented for 'Bool'"),
        (lambda: gt.nn.functional.embedding(gt.ones(2, dtype=gt.int8), gt.ones(2, 2)), RuntimeError, "int32 or int64"),
        (lambda: gt.arange(1e39, 1e39 + 2, dtype=gt.int8), RuntimeError, "type int64_t without overflow"),
        (lambda: gt.arange(1e39, 1e39 + 2, dtype=gt.float16), RuntimeError, "type float without overflow"),
        (lambda: ~gt.ones(2), TypeError, "operator.invert"),
    ],
)
def test_what_has_no_result_is_an_error_of_pytorchs_class(
    call: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call()


def slope(function: Callable[[gt.Tensor], gt.Tensor], numbers: list[float]) -> list[float]:
    """The gradient of the sum of a function's results."""
    x = gt.tensor(numbers, dtype=gt.float32, requires_grad=True)
    function(x).sum().backward()
    return x.grad.tolist()


@pytest.mark.parametrize(
    ("function", "at_nan"),
    [
        (F.relu6, 1),
        (F.hardtanh, 1),
        (lambda x: F.hardtanh(x, -2, 2), 1),
        (F.elu, 1),
        (F.celu, 1),
        (lambda x: F.selu(x) / 1.0507009873554805, 1),
        (gt.max, 1),
        (gt.min, 1),
        (lambda x: gt.linalg.vector_norm(x, math.inf), 0),
        (lambda x: gt.linalg.vector_norm(x, -math.inf, dim=0), 0),
        (lambda x: x.cumprod(0), 1),
        (F.hardsigmoid, 0),
        (F.hardswish, 1),
        (lambda x: F.huber_loss(x, gt.zeros(1)), math.nan),
        (lambda x: F.smooth_l1_loss(x, gt.zeros(1)), math.nan),
    ],
)
def test_slopes_at_nan_are_those_of_pytorch(function: Callable[[gt.Tensor], gt.Tensor], at_nan: float) -> None:
    assert_close(gt.tensor(slope(function, [math.nan])), [at_nan])


def test_nan_shares_the_gradient_of_an_extremum_with_nan() -> None:
    for extremum in (gt.max, gt.min):
        assert slope(extremum, [math.nan, 1, math.nan]) == [0.5, 0, 0.5]
        assert slope(extremum, [2, 2]) == [0.5, 0.5]
    assert slope(gt.max, [1, 3, 2]) == [0, 1, 0]
    assert slope(lambda x: gt.linalg.vector_norm(x.reshape(2, 2), math.inf, dim=1), [1, -3, 2, 2]) == [0, -1, 0.5, 0.5]


@pytest.mark.parametrize("loss", [F.smooth_l1_loss, F.huber_loss])
def test_an_infinite_difference_has_the_slope_of_a_large_one(loss: Callable[..., gt.Tensor]) -> None:
    assert slope(lambda x: loss(x, gt.zeros(3), reduction="sum"), [math.inf, -math.inf, 0.25]) == [1, -1, 0.25]


def test_copysign_has_the_slope_of_the_ratio_that_pytorch_divides() -> None:
    signs = gt.tensor([1.0, -1.0, 1.0, -1.0])
    got = slope(lambda x: gt.copysign(x, signs), [2, 3, 0, math.inf])
    assert got[:3] == [1, -1, 0]
    assert math.isnan(got[3])


def test_a_zero_between_bounds_keeps_its_sign() -> None:
    zero = gt.tensor([-0.0])
    for kept in (zero.clamp(0, 1), zero.clamp(min=0), zero.clamp(max=0), F.relu6(zero), F.hardtanh(zero, 0, 1)):
        assert (1 / kept).item() == -math.inf
