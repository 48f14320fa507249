"""Convolutions and pooling, with gradients of any order, against their definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gt
from gt import _functions
from gt.nn import functional as F  # noqa: N812

WINDOWS = _functions.MODULES["_windows"]
RNG = np.random.default_rng(5)


def windows(x: np.ndarray, kernel: Any, stride: Any, low: Any, high: Any, dilation: Any, fill: float) -> np.ndarray:
    """Returns the elements of each window of a padded input, `(samples, channels, *output, *kernel)`."""
    padded = np.pad(x, [(0, 0), (0, 0), *zip(low, high, strict=True)], constant_values=fill)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    axes = tuple(range(2, x.ndim))
    seen = np.lib.stride_tricks.sliding_window_view(padded, reach, axes)
    steps = tuple(slice(None, None, s) for s in stride)
    return seen[(slice(None), slice(None), *steps, *(slice(None, None, d) for d in dilation))]


def convolution(x: np.ndarray, w: np.ndarray, stride: Any, low: Any, high: Any, dilation: Any, groups: int) -> Any:
    rank = x.ndim - 2
    seen = windows(x, w.shape[2:], stride, low, high, dilation, 0.0)
    parts = []
    for part, weight in zip(np.split(seen, groups, 1), np.split(w, groups, 0), strict=True):
        over = [1, *range(2 + rank, 2 + 2 * rank)]
        parts.append(np.moveaxis(np.tensordot(part, weight, (over, [1, *range(2, 2 + rank)])), -1, 1))
    return np.concatenate(parts, 1)


# Input, weight, stride, padding before, padding after, dilation, groups.
CASES = [
    ((2, 3, 9), (4, 3, 3), (1,), (0,), (0,), (1,), 1),
    ((2, 4, 9), (6, 2, 2), (2,), (1,), (0,), (2,), 2),
    ((2, 3, 7, 9), (5, 3, 3, 2), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    ((2, 3, 7, 9), (17, 3, 3, 3), (2, 1), (1, 2), (1, 0), (1, 2), 1),
    ((1, 4, 6, 6), (4, 1, 3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 4),
    ((2, 2, 8, 5), (3, 2, 1, 1), (3, 2), (0, 0), (0, 0), (1, 1), 1),
    ((3, 2, 4, 20), (9, 2, 4, 3), (1, 1), (0, 4), (0, 4), (1, 1), 1),
    ((2, 2, 4, 5, 6), (3, 2, 2, 3, 2), (1, 2, 1), (0, 1, 1), (1, 1, 0), (2, 1, 1), 1),
    ((0, 3, 7, 9), (5, 3, 3, 2), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    ((2, 0, 7, 9), (5, 0, 3, 2), (1, 1), (0, 0), (0, 0), (1, 1), 1),
    ((2, 3, 2, 2), (5, 3, 4, 4), (1, 1), (1, 1), (1, 1), (1, 1), 1),
]


@pytest.mark.parametrize(("shape", "weight", "stride", "low", "high", "dilation", "groups"), CASES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_convolution_sums_the_products_of_its_windows(
    shape: Any, weight: Any, stride: Any, low: Any, high: Any, dilation: Any, groups: int, dtype: str
) -> None:
    x, w, b = (gt.tensor(RNG.standard_normal(s)).to(getattr(gt, dtype)) for s in (shape, weight, weight[:1]))
    want = convolution(*(t.double().numpy() for t in (x, w)), stride, low, high, dilation, groups)
    want = want + b.double().numpy().reshape(-1, *[1] * len(stride))
    got = WINDOWS["convolution"](x, w, b, stride, low, high, dilation, groups)
    assert got.dtype == getattr(gt, dtype)
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(got.double().numpy(), want, rtol=tolerance, atol=tolerance * 10)


@pytest.mark.parametrize(("shape", "weight", "stride", "low", "high", "dilation", "groups"), CASES)
def test_a_convolution_is_linear_in_each_operand_and_its_gradients_are_its_transposes(
    shape: Any, weight: Any, stride: Any, low: Any, high: Any, dilation: Any, groups: int
) -> None:
    """Checks that the derivative of `<g, conv(x, w)>` along any x' is `<g, conv(x', w)>`, and along w' likewise."""
    x, w, b = (gt.tensor(RNG.standard_normal(s), requires_grad=True) for s in (shape, weight, weight[:1]))
    y = WINDOWS["convolution"](x, w, b, stride, low, high, dilation, groups)
    g = RNG.standard_normal(tuple(y.shape))
    y.backward(gt.tensor(g))
    for operand, at in ((x, 0), (w, 1)):
        assert operand.grad is not None
        assert operand.grad.shape == operand.shape
        along = RNG.standard_normal(tuple(operand.shape))
        moved = [x.detach().numpy(), w.detach().numpy()]
        moved[at] = along
        slope = (g * convolution(*moved, stride, low, high, dilation, groups)).sum()
        np.testing.assert_allclose((operand.grad.numpy() * along).sum(), slope, rtol=1e-10, atol=1e-10)
    assert b.grad is not None
    np.testing.assert_allclose(b.grad.numpy(), g.sum((0, *range(2, g.ndim))), rtol=1e-10, atol=1e-10)


def test_gradients_of_gradients_of_convolutions() -> None:
    x, w, g = (
        gt.tensor(RNG.standard_normal(s), requires_grad=True) for s in ((2, 4, 6, 5), (6, 2, 3, 2), (2, 6, 3, 4))
    )
    window = ((2, 1), (1, 0), (1, 0), (1, 1), 2)

    def numpy_gradients(x: Any, w: Any, g: Any) -> Any:
        """Returns the gradients of `<g, conv(x, w)>` by x and w, computed an element at a time."""
        slopes = []
        for at, like in ((0, x), (1, w)):
            slope = np.zeros_like(like)
            for i in np.ndindex(like.shape):
                unit = np.zeros_like(like)
                unit[i] = 1
                slope[i] = (g * convolution(*(unit if at == 0 else x, unit if at == 1 else w), *window)).sum()
            slopes.append(slope)
        return slopes

    y = WINDOWS["convolution"](x, w, None, *window)
    gx, gw = gt.autograd.grad(y, [x, w], g, create_graph=True)
    for got, want in zip((gx, gw), numpy_gradients(*(t.detach().numpy() for t in (x, w, g))), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-10, atol=1e-10)
    # <a, gx> = <g, conv(a, w)> and <b, gw> = <g, conv(x, b)>: their gradients are again convolutions.
    a, b = RNG.standard_normal(tuple(gx.shape)), RNG.standard_normal(tuple(gw.shape))
    of_x, of_w, of_g = gt.autograd.grad((gx * gt.tensor(a)).sum() + (gw * gt.tensor(b)).sum(), [x, w, g])
    plain = [t.detach().numpy() for t in (x, w, g)]
    np.testing.assert_allclose(of_x.numpy(), numpy_gradients(plain[0], b, plain[2])[0], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(of_w.numpy(), numpy_gradients(a, plain[1], plain[2])[1], rtol=1e-10, atol=1e-10)
    want = convolution(a, plain[1], *window) + convolution(plain[0], b, *window)
    np.testing.assert_allclose(of_g.numpy(), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("sizes", [(64, 8, 12, 12), (1, 8, 40, 40), (3, 40, 9, 9)])
def test_large_convolutions_are_shared_among_threads(sizes: tuple[int, ...]) -> None:
    x, w = RNG.standard_normal(sizes), RNG.standard_normal((24, sizes[1], 3, 3))
    xt, wt = gt.tensor(x, requires_grad=True), gt.tensor(w, requires_grad=True)
    y = F.conv2d(xt, wt, padding=1)
    window = ((1, 1), (1, 1), (1, 1), (1, 1), 1)
    np.testing.assert_allclose(y.detach().numpy(), convolution(x, w, *window), rtol=1e-9, atol=1e-9)
    g = RNG.standard_normal(tuple(y.shape))
    y.backward(gt.tensor(g))
    along = RNG.standard_normal(w.shape)
    np.testing.assert_allclose((wt.grad.numpy() * along).sum(), (g * convolution(x, along, *window)).sum(), rtol=1e-9)
    along = RNG.standard_normal(x.shape)
    np.testing.assert_allclose((xt.grad.numpy() * along).sum(), (g * convolution(along, w, *window)).sum(), rtol=1e-9)


POOLS = [
    ((2, 3, 9), (3,), (2,), (1,), (1,), (1,)),
    ((2, 3, 8, 7), (2, 2), (2, 2), (0, 0), (0, 0), (1, 1)),
    ((2, 3, 8, 7), (3, 2), (1, 3), (1, 1), (0, 1), (1, 2)),
    ((1, 2, 5, 6, 7), (2, 3, 2), (1, 2, 2), (1, 0, 1), (0, 1, 1), (1, 1, 1)),
    ((0, 3, 8, 7), (2, 2), (2, 2), (0, 0), (0, 0), (1, 1)),
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "low", "high", "dilation"), POOLS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_pools_reduce_their_windows(
    shape: Any, kernel: Any, stride: Any, low: Any, high: Any, dilation: Any, dtype: str
) -> None:
    x = gt.tensor(RNG.permutation(np.prod(shape)).reshape(shape) % 251).to(getattr(gt, dtype))
    plain = x.double().numpy()
    window = (kernel, stride, low, high, dilation)
    inside = tuple(range(-len(kernel), 0))
    if plain.size == 0:
        assert WINDOWS["pool"]("max_pool", x, *window).shape[0] == 0
        return
    largest = windows(plain, *window, -np.inf).max(inside)
    np.testing.assert_array_equal(WINDOWS["pool"]("max_pool", x, *window).double().numpy(), largest)
    indices = WINDOWS["pool"]("max_pool_indices", x, *window)
    assert indices.dtype == gt.int64
    taken = np.take_along_axis(plain.reshape(*shape[:2], -1), indices.numpy().reshape(*shape[:2], -1), 2)
    np.testing.assert_array_equal(taken.reshape(largest.shape), largest)
    sums = WINDOWS["pool"]("sum_pool", x, *window).double().numpy()
    np.testing.assert_allclose(
        sums, windows(plain, *window, 0.0).sum(inside), rtol=1e-2 if dtype != "float64" else 1e-12
    )


@pytest.mark.parametrize(("shape", "kernel", "stride", "low", "high", "dilation"), POOLS[:4])
def test_gradients_of_pools(shape: Any, kernel: Any, stride: Any, low: Any, high: Any, dilation: Any) -> None:
    x = gt.tensor(RNG.permutation(np.prod(shape)).reshape(shape).astype(float), requires_grad=True)
    window = (kernel, stride, low, high, dilation)
    inside = tuple(range(-len(kernel), 0))
    along = RNG.standard_normal(shape)
    for name, fill in (("max_pool", -np.inf), ("sum_pool", 0.0)):
        y = WINDOWS["pool"](name, x, *window)
        g = gt.tensor(RNG.standard_normal(tuple(y.shape)), requires_grad=True)
        (gx,) = gt.autograd.grad(y, x, g, create_graph=True)
        seen = windows(x.detach().numpy(), *window, fill)
        moved = windows(along, *window, 0.0)
        flat = (*seen.shape[: len(shape)], -1)
        if name == "max_pool":
            slope = np.take_along_axis(moved.reshape(flat), seen.reshape(flat).argmax(-1)[..., None], -1)[..., 0]
        else:
            slope = moved.sum(inside)
        weighted = (gx * gt.tensor(along)).sum()
        np.testing.assert_allclose(weighted.item(), (g.detach().numpy() * slope).sum(), rtol=1e-9, atol=1e-9)
        (gg,) = gt.autograd.grad(weighted, g)
        np.testing.assert_allclose(gg.numpy(), slope, rtol=1e-9, atol=1e-9)


def test_a_pool_finds_nan_and_the_first_of_equals() -> None:
    x = gt.tensor([[[1.0, 1.0, float("nan"), 0.0, -float("inf"), -float("inf")]]])
    values, indices = F.max_pool1d(x, 2, return_indices=True)
    np.testing.assert_array_equal(values.numpy(), [[[1.0, np.nan, -np.inf]]])
    np.testing.assert_array_equal(indices.numpy(), [[[0, 2, 4]]])


@pytest.mark.parametrize(
    ("name", "weight", "bias", "options"),
    [
        ("conv2d", (4, 3, 3, 2), True, {"stride": (2, 1), "padding": 1, "dilation": (1, 2)}),
        ("conv2d", (6, 1, 3, 2), False, {"padding": "same", "groups": 3}),
        ("conv_transpose2d", (3, 2, 3, 2), True, {"stride": 2, "padding": 1, "output_padding": (1, 0)}),
        ("conv_transpose2d", (3, 2, 3, 2), False, {"groups": 3, "dilation": (2, 1), "padding": (0, 1)}),
        ("max_pool2d", None, False, {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True}),
        ("max_pool2d", None, False, {"kernel_size": (2, 3)}),
        ("avg_pool2d", None, False, {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}),
        ("avg_pool2d", None, False, {"kernel_size": 2, "padding": 1, "count_include_pad": False}),
        ("avg_pool2d", None, False, {"kernel_size": 2, "divisor_override": 3}),
    ],
)
@pytest.mark.parametrize("dtype", [gt.int64, gt.int32])
def test_windows_of_integers_give_what_those_of_floating_numbers_do(
    name: str, weight: Any, bias: bool, options: Any, dtype: gt.dtype
) -> None:
    parts = [gt.tensor(RNG.integers(-9, 9, (2, 3, 7, 6)))]
    if weight:
        parts.append(gt.tensor(RNG.integers(-9, 9, weight)))
    if bias:
        channels = weight[1] if "transpose" in name else weight[0]
        parts.append(gt.tensor(RNG.integers(-9, 9, channels)))
    if name == "avg_pool2d" and dtype != gt.int64:
        with pytest.raises(NotImplementedError, match="not implemented for 'Int'"):
            F.avg_pool2d(parts[0].to(dtype), **options)
        return
    got = getattr(F, name)(*(part.to(dtype) for part in parts), **options)
    want = getattr(F, name)(*(part.double() for part in parts), **options)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got.numpy(), want.trunc().numpy())


def test_integers_are_exact_beyond_floating_numbers() -> None:
    x = gt.tensor([[[2**60 + 1, 3, 2**60 + 2]]])
    assert F.conv1d(x, gt.tensor([[[1, 1]]])).tolist() == [[[2**60 + 4, 2**60 + 5]]]
    values, indices = F.max_pool1d(x, 3, return_indices=True)
    assert (values.tolist(), indices.tolist()) == ([[[2**60 + 2]]], [[[2]]])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.max_pool1d(x[0], 2),
        lambda x: F.lp_pool2d(x, 2, 2),
        lambda x: F.adaptive_avg_pool2d(x, 2),
        lambda x: F.adaptive_avg_pool1d(x[0], 1),
        lambda x: F.adaptive_max_pool2d(x, 2),
        lambda x: F.max_unpool2d(x, gt.zeros(1, 1, 4, 4, dtype=gt.int64), 2),
        lambda x: F.unfold(x, 2),
        lambda x: F.fold(x[0], (3, 3), 2),
        lambda x: F.interpolate(x, scale_factor=2),
        lambda x: F.interpolate(x, scale_factor=1, mode="nearest-exact"),
        lambda x: F.batch_norm(x, gt.zeros(1), gt.ones(1)),
        lambda x: F.prelu(x, gt.ones(1)),
        lambda x: F.binary_cross_entropy(x, x),
        lambda x: F.local_response_norm(x, 2),
        lambda x: x.round(decimals=1),
        lambda x: gt.gradient(x[0, 0].to(gt.uint8)),
    ],
)
def test_functions_that_pytorch_has_for_floating_numbers_alone(call: Callable[[gt.Tensor], Any]) -> None:
    x = gt.ones(1, 1, 4, 4, dtype=gt.int32)
    with pytest.raises(NotImplementedError):
        call(x)


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 7, 5), (1, 2, 4, 5, 7)])
def test_adaptive_maxima_know_where_they_are(shape: Any) -> None:
    data = RNG.standard_normal(shape)
    x = gt.tensor(data, requires_grad=True)
    rank = len(shape) - 2
    sizes = (3, 2, 4)[:rank]
    values, indices = getattr(F, f"adaptive_max_pool{rank}d")(x, sizes, return_indices=True)
    want = np.empty((*shape[:2], *sizes))
    for place in np.ndindex(*sizes):
        bounds = [(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(place, shape[2:], sizes, strict=True)]
        want[(..., *place)] = data[(..., *(slice(*bound) for bound in bounds))].max(tuple(range(2, len(shape))))
    np.testing.assert_array_equal(values.detach().numpy(), want)
    there = np.take_along_axis(data.reshape(*shape[:2], -1), indices.flatten(2).numpy(), 2)
    np.testing.assert_array_equal(there.reshape(want.shape), want)
    # The gradient of an element is the number of windows whose maximum it is.
    values.sum().backward()
    for gradient, chosen in zip(x.grad.flatten(2).flatten(0, 1), indices.flatten(2).flatten(0, 1), strict=True):
        np.testing.assert_array_equal(gradient.numpy(), np.bincount(chosen.numpy(), minlength=gradient.numel()))


def test_of_equal_elements_and_nan_a_pool_takes_the_first() -> None:
    x = gt.tensor([[[1.0, float("nan"), 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]]])
    values, indices = F.adaptive_max_pool2d(x, (1, 3), return_indices=True)
    np.testing.assert_array_equal(values.numpy(), [[[np.nan, np.nan, 4.0]]])
    assert indices.tolist() == [[[1, 1, 3]]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x, w: F.conv2d(x, w, stride=0), RuntimeError, "non-positive stride is not supported"),
        (lambda x, w: F.conv2d(x, w, padding=-1), RuntimeError, "negative padding is not supported"),
        (lambda x, w: F.conv2d(x, w, dilation=0), RuntimeError, "dilation should be greater than zero"),
        (lambda x, w: F.conv2d(x, w, dilation=9), RuntimeError, "Kernel size can't be greater than actual input size"),
        (lambda x, w: F.conv2d(x, w, groups=2), RuntimeError, "Given groups=2, weight of size"),
        (lambda x, w: F.conv2d(x, w, groups=0), RuntimeError, "non-positive groups is not supported"),
        (lambda x, w: F.conv2d(x[:, :2], w), RuntimeError, r"to have 3 channels, but got 2 channels instead"),
        (lambda x, w: F.conv2d(x, w.double()), RuntimeError, "should be the same"),
        (lambda x, w: F.conv2d(x.bool(), w.bool()), RuntimeError, "not implemented for 'Bool'"),
        (lambda x, w: F.conv2d(x[0, 0], w), RuntimeError, r"Expected 3D \(unbatched\) or 4D \(batched\) input"),
        (lambda x, w: F.conv2d(x, w, gt.zeros(3)), RuntimeError, "expected bias to be 1-dimensional with 4 elements"),
        (lambda x, w: F.conv2d(x, w, padding="same", stride=2), RuntimeError, "not supported for strided"),
        (lambda x, w: F.conv2d(x, w, padding=1 << 40), ValueError, "a window's sizes are at most"),
        (lambda x, w: F.conv2d(x, w, stride=(1, 2, 3)), RuntimeError, "tuple of 2 ints"),
        (
            lambda x, _: F.max_pool2d(x, 2, padding=2),
            RuntimeError,
            "pad should be at most half of effective kernel size",
        ),
        (lambda x, _: F.max_pool2d(x, 9), RuntimeError, "Output size is too small|output size is too small"),
        (lambda x, _: F.avg_pool2d(x, 0), RuntimeError, "greater than zero"),
        (lambda x, w: F.conv_transpose2d(x, w), RuntimeError, "expected input.* to have 4 channels"),
    ],
)
def test_invalid_operands_are_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call(gt.zeros(2, 3, 6, 6), gt.zeros(4, 3, 3, 3))


def test_windows_of_hostile_sizes_are_refused_or_cost_nothing() -> None:
    x, w, huge = gt.zeros(1, 1, 4), gt.ones(1, 1, 2), 1 << 31
    for stride, low, dilation in ((huge, 0, 1), (huge, huge, 1), (huge, huge, huge)):
        assert WINDOWS["convolution"](x, w, None, stride, low, low, dilation, 1).sum().item() == 0.0
        assert WINDOWS["pool"]("sum_pool", x, 2, stride, low, low, dilation).sum().item() == 0.0
    for stride in (1, huge):
        with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
            WINDOWS["convolution"](x, w, None, stride, 0, 0, huge, 1)
    with pytest.raises(RuntimeError, match="a window has at most"):
        WINDOWS["pool"]("max_pool", gt.zeros(1, 1, 4, 4), huge, 1, huge, huge, 1)
    assert gt.ones(3).sum().item() == 3.0


@pytest.mark.parametrize("rank", [2, 3])
def test_fractional_pools_take_their_windows_where_chance_says(rank: int) -> None:
    data = RNG.standard_normal((2, 3, 9, 8, 7)[: rank + 2])
    kernel, sizes = (3, 2, 2)[:rank], (4, 5, 3)[:rank]
    draws = RNG.random((2, 3, rank))
    function = getattr(F, f"fractional_max_pool{rank}d_with_indices")
    values, indices = function(gt.tensor(data), kernel, sizes, _random_samples=gt.tensor(draws))
    for sample, channel in np.ndindex(2, 3):
        # PyTorch draws the sample of the last axis first.
        share = draws[sample, channel][::-1] if rank == 2 else draws[sample, channel]
        starts = []
        for size, k, want, u in zip(data.shape[2:], kernel, sizes, share, strict=True):
            step = (size - k) / (want - 1)
            starts.append([int((i + u) * step) - int(u * step) for i in range(want - 1)] + [size - k])
        for place in np.ndindex(*sizes):
            window = [slice(s[i], s[i] + k) for s, i, k in zip(starts, place, kernel, strict=True)]
            assert values[(sample, channel, *place)].item() == data[(sample, channel, *window)].max()
    there = np.take_along_axis(data.reshape(2, 3, -1), indices.flatten(2).numpy(), 2)
    np.testing.assert_array_equal(there.reshape(values.shape), values.numpy())


def test_fractional_pools_of_a_ratio() -> None:
    layer = gt.nn.FractionalMaxPool2d(2, output_ratio=0.5, return_indices=True)
    values, indices = layer(gt.rand(3, 9, 9))
    assert values.shape == indices.shape == (3, 4, 4)
    with pytest.raises(ValueError, match="requires specifying either an output size, or a pooling ratio"):
        gt.nn.FractionalMaxPool2d(2)
    with pytest.raises(ValueError, match="output_ratio must be between 0 and 1"):
        gt.nn.FractionalMaxPool3d(2, output_ratio=1.5)
    with pytest.raises(RuntimeError, match="too large relative to input size 5"):
        F.fractional_max_pool2d(gt.ones(1, 1, 5, 5), 3, output_size=4)
