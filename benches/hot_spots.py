"""Operations that were many times PyTorch's time when researchers' programs were first tried, each beside PyTorch.

Every call waits for its result, since PyTorch's does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gt
from benches.harness import Row, Target
from benches.peers import torch, with_torch

RATIO_MAX = 1.2
# A measurement is the median of calls that together take about this long, and of a number of calls between these.
MEASURED_S = 0.1
CALLS_MIN, CALLS_MAX = 3, 300
# The threads of the peer's last call spin on the cores for some milliseconds: calls before this are not counted.
SETTLED_S = 0.03
# An array that stays alive, so that GT has to ask whether it was written.
SHARED_ARRAY = np.ones((5000, 50), np.float32)


def _call_s(work: Callable[[], object]) -> float:
    """Returns the median time of one call."""
    settled = time.perf_counter() + SETTLED_S
    while time.perf_counter() < settled:
        work()
    times: list[float] = []
    while len(times) < CALLS_MIN or (sum(times) < MEASURED_S and len(times) < CALLS_MAX):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _waits(framework: Any, compute: Callable[[], Any]) -> Callable[[], object]:
    """Returns a call that computes, and waits until a tensor is there, without fetching it whole."""
    # Arrays, lists and numbers are there when the call returns.
    if framework is not gt or isinstance(compute(), np.ndarray | list | float):
        return compute

    def call() -> object:
        found = compute()
        gt.synchronize()
        return found

    return call


def _normal(framework: Any, *shape: int, kind: type = np.float32) -> Any:
    return framework.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(kind))


def _positive_definite(framework: Any, *shape: int) -> Any:
    x = _normal(framework, *shape)
    return x @ x.mT + shape[-1] * framework.eye(shape[-1])


def _ndtri(framework: Any) -> Callable[[], Any]:
    x = _normal(framework, 100_000).sigmoid()
    return lambda: framework.special.ndtri(x)


def _lstsq(framework: Any, rows: int, columns: int) -> Callable[[], Any]:
    a, b = _normal(framework, rows, columns), _normal(framework, rows, 3)
    return lambda: framework.linalg.lstsq(a, b).solution


def _integer_product(framework: Any, size: int, kind: type = np.int64) -> Callable[[], Any]:
    x = framework.from_numpy(np.random.default_rng(0).integers(-9, 9, (size, size)).astype(kind))
    return lambda: x @ x


def _gradients_of_rows(framework: Any) -> Callable[[], Any]:
    x, w = _normal(framework, 64, 16), _normal(framework, 16)
    each = framework.func.vmap(framework.func.grad(lambda w, x: (w * x).sum().tanh()), in_dims=(None, 0))
    return lambda: each(w, x)


def _ctc(framework: Any, backward: bool) -> Callable[[], Any]:
    logits = _normal(framework, 50, 16, 20).requires_grad_(backward)
    targets = framework.from_numpy(np.random.default_rng(0).integers(1, 20, (16, 20)))
    inputs, lengths = framework.full((16,), 50), framework.full((16,), 20)

    def compute() -> Any:
        loss = framework.nn.functional.ctc_loss(logits.log_softmax(2), targets, inputs, lengths)
        if backward:
            logits.grad = None
            loss.backward()
            return logits.grad
        return loss

    return compute


def _from_numpy(framework: Any) -> Callable[[], Any]:
    array = np.ones(16, np.float32)
    return lambda: framework.from_numpy(array)


def _from_numpy_and_sum(framework: Any) -> Callable[[], Any]:
    array = np.ones(100_000, np.float32)
    return lambda: framework.from_numpy(array).sum()


def _row_of_an_array(framework: Any) -> Callable[[], Any]:
    x = framework.from_numpy(SHARED_ARRAY)
    return lambda: x[3]


def _to_numpy(framework: Any) -> Callable[[], Any]:
    x = framework.ones(16)
    return x.numpy


def _there_and_back(framework: Any) -> Callable[[], Any]:
    array = np.ones(16, np.float32)
    return lambda: framework.from_numpy(array).numpy()


def _computed_to_numpy(framework: Any) -> Callable[[], Any]:
    x = framework.ones(16)
    return lambda: (x + 1).numpy()


def _to_list(framework: Any) -> Callable[[], Any]:
    x = framework.ones(16)
    return x.tolist


def _item(framework: Any) -> Callable[[], Any]:
    x = framework.ones(16)
    return lambda: x[3].item()


def _inverse(framework: Any, *shape: int) -> Callable[[], Any]:
    x = _positive_definite(framework, *shape)
    return lambda: framework.linalg.inv(x)


def _cholesky(framework: Any, *shape: int) -> Callable[[], Any]:
    x = _positive_definite(framework, *shape)
    return lambda: framework.linalg.cholesky(x)


def _solve(framework: Any, *shape: int) -> Callable[[], Any]:
    x = _positive_definite(framework, *shape)
    return lambda: framework.linalg.solve(x, x[..., :4])


def _cummax(framework: Any) -> Callable[[], Any]:
    x = _normal(framework, 256, 1024)
    return lambda: x.cummax(1).values


def _cumulative_extreme(framework: Any, axis: int) -> Callable[[], Any]:
    x = _normal(framework, 1000, 1000)
    return lambda: x.cummin(axis).values


def _position(framework: Any, axis: int) -> Callable[[], Any]:
    x = _normal(framework, 1000, 1000)
    return lambda: x.argmax(axis)


def _scanned(framework: Any, name: str, axis: int) -> Callable[[], Any]:
    x = _normal(framework, 1000, 1000)
    return lambda: getattr(x, name)(axis)


def _convolution(framework: Any, samples: int, channels: int, side: int) -> Callable[[], Any]:
    x, weight = _normal(framework, samples, channels, side, side), _normal(framework, channels, channels, 3, 3)
    return lambda: framework.nn.functional.conv2d(x, weight, padding=1)


def _convolution_gradient(framework: Any, channels: int, side: int, groups: int, of_weight: bool) -> Callable[[], Any]:
    x = _normal(framework, 8, channels, side, side).requires_grad_(not of_weight)
    weight = _normal(framework, channels, channels // groups, 3, 3).requires_grad_(of_weight)
    y = framework.nn.functional.conv2d(x, weight, padding=1, groups=groups)
    grad, leaf = framework.ones_like(y), weight if of_weight else x
    return lambda: framework.autograd.grad(y, leaf, grad, retain_graph=True)[0]


def _of(framework: Any, compute: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Any]:
    """Returns a call that computes a function of normal tensors."""
    operands = [_normal(framework, *shape) for shape in shapes]
    return lambda: compute(*operands)


def _three_columns(a: Any, b: Any) -> Any:
    return a[:, :3] + b


def _gradient(framework: Any, layer: Callable[[Any], Any], *shape: int) -> Callable[[], Any]:
    """Returns a call that computes a layer, and the gradient of its input."""
    x = _normal(framework, *shape).requires_grad_()
    grad = framework.ones_like(layer(x))
    return lambda: framework.autograd.grad(layer(x), x, grad)[0]


def _qr(framework: Any, *shape: int) -> Callable[[], Any]:
    x = _normal(framework, *shape)
    return lambda: framework.linalg.qr(x).Q


def _svd(framework: Any, size: int) -> Callable[[], Any]:
    x = _normal(framework, size, size)
    return lambda: framework.linalg.svd(x).S


def _eigh(framework: Any, size: int) -> Callable[[], Any]:
    x = _positive_definite(framework, size, size)
    return lambda: framework.linalg.eigh(x).eigenvalues


def _eigvalsh(framework: Any, size: int) -> Callable[[], Any]:
    x = _positive_definite(framework, size, size)
    return lambda: framework.linalg.eigvalsh(x)


SPOTS: tuple[tuple[str, Callable[[Any], Callable[[], Any]]], ...] = (
    ("special.ndtri of 100,000", _ndtri),
    ("linalg.lstsq 200 × 20", lambda f: _lstsq(f, 200, 20)),
    ("linalg.lstsq 1000 × 100", lambda f: _lstsq(f, 1000, 100)),
    ("int64 matmul 64", lambda f: _integer_product(f, 64)),
    ("int8 matmul 192", lambda f: _integer_product(f, 192, np.int8)),
    ("int64 matmul 256", lambda f: _integer_product(f, 256)),
    ("int32 matmul 256", lambda f: _integer_product(f, 256, np.int32)),
    ("vmap(grad) of 64 rows", _gradients_of_rows),
    ("ctc_loss, forward", lambda f: _ctc(f, False)),
    ("ctc_loss, forward and backward", lambda f: _ctc(f, True)),
    ("from_numpy of 16 floats", _from_numpy),
    ("from_numpy and sum of 100,000 floats", _from_numpy_and_sum),
    ("a row of from_numpy of 5000 × 50 floats", _row_of_an_array),
    ("numpy() of 16 floats", _to_numpy),
    ("from_numpy and numpy() of 16 floats", _there_and_back),
    ("(x + 1).numpy() of 16 floats", _computed_to_numpy),
    ("tolist() of 16 floats", _to_list),
    ("x[3].item()", _item),
    ("linalg.inv of 64 × 4 × 4", lambda f: _inverse(f, 64, 4, 4)),
    ("linalg.inv of 512", lambda f: _inverse(f, 512, 512)),
    ("linalg.cholesky of 64", lambda f: _cholesky(f, 64, 64)),
    ("linalg.cholesky of 512", lambda f: _cholesky(f, 512, 512)),
    ("linalg.solve of 64 × 4 × 4", lambda f: _solve(f, 64, 4, 4)),
    ("linalg.solve of 64 × 16 × 16", lambda f: _solve(f, 64, 16, 16)),
    ("linalg.solve of 256", lambda f: _solve(f, 256, 256)),
    ("linalg.solve of 500", lambda f: _solve(f, 500, 500)),
    ("cummax along rows of 256 × 1024", _cummax),
    ("cummin along columns of 1000 × 1000", lambda f: _cumulative_extreme(f, 0)),
    ("argmax along columns of 1000 × 1000", lambda f: _position(f, 0)),
    ("argmax along rows of 1000 × 1000", lambda f: _position(f, 1)),
    ("cumprod along rows of 1000 × 1000", lambda f: _scanned(f, "cumprod", 1)),
    ("logcumsumexp along rows of 1000 × 1000", lambda f: _scanned(f, "logcumsumexp", 1)),
    ("conv2d 4 × 512 × 2 × 2", lambda f: _convolution(f, 4, 512, 2)),
    ("conv2d 8 × 512 × 2 × 2, gradient of the input", lambda f: _convolution_gradient(f, 512, 2, 1, False)),
    ("conv2d 8 × 512 × 2 × 2, gradient of the weight", lambda f: _convolution_gradient(f, 512, 2, 1, True)),
    ("conv2d 8 × 512 × 7 × 7", lambda f: _convolution(f, 8, 512, 7)),
    ("conv2d 8 × 512 × 7 × 7, gradient of the input", lambda f: _convolution_gradient(f, 512, 7, 1, False)),
    ("conv2d 8 × 512 × 7 × 7, gradient of the weight", lambda f: _convolution_gradient(f, 512, 7, 1, True)),
    ("depthwise 8 × 64 × 56 × 56, gradient of the input", lambda f: _convolution_gradient(f, 64, 56, 64, False)),
    ("depthwise 8 × 64 × 56 × 56, gradient of the weight", lambda f: _convolution_gradient(f, 64, 56, 64, True)),
    ("depthwise 8 × 256 × 14 × 14, gradient of the weight", lambda f: _convolution_gradient(f, 256, 14, 256, True)),
    ("differences of 300 × 1 × 4 and 300 × 4", lambda f: _of(f, lambda a, b: a - b, (300, 1, 4), (300, 4))),
    ("sum of three columns of 20,000 × 4 and 20,000 × 3", lambda f: _of(f, _three_columns, (20_000, 4), (20_000, 3))),
    ("20,000 × 4, flipped", lambda f: _of(f, lambda x: x.flip(1), (20_000, 4))),
    ("20,000 × 3 beside 20,000 × 4", lambda f: _of(f, lambda a, b: f.cat([a, b], 1), (20_000, 3), (20_000, 4))),
    ("mean of 200 × 100 × 4 along axis 1", lambda f: _of(f, lambda x: x.mean(1), (200, 100, 4))),
    ("sum of 200 × 100 × 4 along axes 0 and 2", lambda f: _of(f, lambda x: x.sum((0, 2)), (200, 100, 4))),
    ("cumsum along rows of 20,000 × 4", lambda f: _of(f, lambda x: x.cumsum(1), (20_000, 4))),
    ("products of 5,000 × 4 × 4", lambda f: _of(f, lambda a, b: a @ b, (5_000, 4, 4), (5_000, 4, 4))),
    ("hardswish of 4 × 96 × 32 × 32, and gradient", lambda f: _gradient(f, f.nn.Hardswish(), 4, 96, 32, 32)),
    ("batch norm of 4 × 96 × 32 × 32, and gradient", lambda f: _gradient(f, f.nn.BatchNorm2d(96), 4, 96, 32, 32)),
    ("batch norm of 4 × 672 × 4 × 4, and gradient", lambda f: _gradient(f, f.nn.BatchNorm2d(672), 4, 672, 4, 4)),
    (
        "mean of planes of 4 × 96 × 32 × 32, and gradient",
        lambda f: _gradient(f, f.nn.AdaptiveAvgPool2d(1), 4, 96, 32, 32),
    ),
    ("linalg.qr of 64 × 8 × 8", lambda f: _qr(f, 64, 8, 8)),
    ("linalg.qr of 64", lambda f: _qr(f, 64, 64)),
    ("linalg.qr of 128", lambda f: _qr(f, 128, 128)),
    ("linalg.qr of 512 × 256", lambda f: _qr(f, 512, 256)),
    ("linalg.svd of 128", lambda f: _svd(f, 128)),
    ("linalg.svd of 200", lambda f: _svd(f, 200)),
    ("linalg.eigh of 64", lambda f: _eigh(f, 64)),
    ("linalg.eigh of 128", lambda f: _eigh(f, 128)),
    ("linalg.eigh of 200", lambda f: _eigh(f, 200)),
    ("linalg.eigh of 512", lambda f: _eigh(f, 512)),
    ("linalg.eigvalsh of 64", lambda f: _eigvalsh(f, 64)),
    ("linalg.eigvalsh of 128", lambda f: _eigvalsh(f, 128)),
    ("linalg.eigvalsh of 200", lambda f: _eigvalsh(f, 200)),
)


# PyTorch computes in the array's own memory, while GT copies it to the daemon: nothing makes the two alike.
WITHOUT_TARGET = (_from_numpy_and_sum, _row_of_an_array)


def rows() -> Iterator[Row]:
    """Yields a row for each operation."""
    for what, prepare in SPOTS:
        # Nothing is computed for a small array: its numbers are known when the call returns.
        ours = prepare(gt) if prepare is _from_numpy else _waits(gt, prepare(gt))
        contenders = {"GT": lambda ours=ours: _call_s(ours)}
        if torch is not None:
            theirs = prepare(torch)
            contenders |= with_torch(lambda theirs=theirs: _call_s(theirs))
        targets = () if prepare in WITHOUT_TARGET else (Target(RATIO_MAX, "PyTorch"),)
        yield Row(what, contenders, targets, rounds=5)
