"""Matrix products, reductions, scans, selections and convolutions of common sizes.

NumPy is left out: OpenBLAS's threads keep spinning and would slow the next contender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gt
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch, with_torch

SHAPES = ((512, 512, 512), (1024, 1024, 1024), (256, 768, 3072))
# Tokens of GPT-2 whose logits are computed at a time when text is generated.
FEW_ROWS = (1, 4, 8)
BF16_SHAPES = ((1000, 1000, 1000), (32, 768, 3072), (64, 64, 64))
# Calls per measurement: so many that the small fetch at the end, which waits for all of them, hardly counts.
PASSES = 20
PASSES_OF_SMALL = 200


def _contender(framework: Any, prepare: Callable[[Any], Callable[[], Any]], passes: int) -> Callable[[], float]:
    """Returns a measurement of calls whose last result is kept alive, and waited for at the end."""
    compute = prepare(framework)
    last = [compute()]

    def call() -> None:
        last[0] = compute()

    finish = gt.synchronize if framework is gt else None
    return lambda: seconds_per_pass(call, passes, finish)


def _normal(framework: Any, *shape: int) -> Any:
    return framework.from_numpy(np.random.default_rng(1).standard_normal(shape, dtype=np.float32))


def _product(framework: Any, m: int, k: int, n: int, dtype: str) -> Callable[[], Any]:
    kind = getattr(framework, dtype)
    a, b = _normal(framework, m, k).to(kind), _normal(framework, k, n).to(kind)
    return lambda: a @ b


def _linear(framework: Any, m: int, k: int, n: int, dtype: str) -> Callable[[], Any]:
    kind = getattr(framework, dtype)
    x, w = _normal(framework, m, k).to(kind), _normal(framework, n, k).to(kind)
    return lambda: framework.nn.functional.linear(x, w)


def _reduced(framework: Any, shape: tuple[int, ...], axis: int | None) -> Callable[[], Any]:
    x = _normal(framework, *shape)
    return x.sum if axis is None else lambda: x.sum(axis)


def _integer_sums(framework: Any) -> Callable[[], Any]:
    x = framework.from_numpy(np.random.default_rng(1).integers(-9, 9, (1000, 1000)))
    return lambda: x.sum(1)


def _batch_norm(framework: Any, training: bool) -> Callable[[], Any]:
    x, ones = _normal(framework, 32, 16, 8, 8), framework.ones(16)
    running = (None, None) if training else (ones, ones)
    return lambda: framework.nn.functional.batch_norm(x, *running, ones, ones, training)


def _batched_products(framework: Any, batches: int, size: int) -> Callable[[], Any]:
    a, b = _normal(framework, batches, size, size), _normal(framework, batches, size, size)
    return lambda: a @ b


def _next_numbers(framework: Any) -> Callable[[], Any]:
    x = _normal(framework, 100_000).to(framework.bfloat16)
    towards = x.flip(0)
    return lambda: framework.nextafter(x, towards)


def _complex(framework: Any, compute: Callable[[Any, Any, Any], Any]) -> Callable[[], Any]:
    z = framework.complex(_normal(framework, 100_000), _normal(framework, 100_000) + 1)
    other = z.flip(0)
    return lambda: compute(framework, z, other)


def _power(framework: Any) -> Callable[[], Any]:
    x = _normal(framework, 100_000).double()
    base = x.abs() + 0.1
    return lambda: base**x


def _activation(framework: Any, name: str) -> Callable[[], Any]:
    x, function = _normal(framework, 100_000), getattr(framework.nn.functional, name)
    return lambda: function(x)


def _smooth_l1_loss(framework: Any) -> Callable[[], Any]:
    x, y = _normal(framework, 100_000), _normal(framework, 100_000) + 0.5
    return lambda: framework.nn.functional.smooth_l1_loss(x, y)


def _topk(framework: Any, rows: int, columns: int, count: int) -> Callable[[], Any]:
    x = _normal(framework, rows, columns)
    return lambda: x.topk(count)


def _scan(framework: Any, *shape: int) -> Callable[[], Any]:
    x = _normal(framework, *shape)
    return lambda: x.cumsum(-1)


def _selected(framework: Any, size: int) -> Callable[[], Any]:
    x = _normal(framework, size)
    return lambda: x[x > 0]


def _convolution(framework: Any, channels: int, side: int, out_channels: int, groups: int = 1) -> Callable[[], Any]:
    x = _normal(framework, 8, channels, side, side)
    weight = _normal(framework, out_channels, channels // groups, 3, 3)
    return lambda: framework.nn.functional.conv2d(x, weight, padding=1, groups=groups)


def _kernels() -> Iterator[tuple[str, Callable[[Any], Callable[[], Any]], int]]:
    for m, k, n in BF16_SHAPES:
        yield f"matmul {m} × {k} × {n}, bf16", lambda f, m=m, k=k, n=n: _product(f, m, k, n, "bfloat16"), PASSES
    yield "linear 256 × 768 × 3072, bf16", lambda f: _linear(f, 256, 768, 3072, "bfloat16"), PASSES
    for m in FEW_ROWS:
        for dtype in ("float32", "bfloat16"):
            what = f"linear {m} × 768 × 50304, {dtype}"
            yield what, lambda f, m=m, dtype=dtype: _linear(f, m, 768, 50304, dtype), PASSES
    yield "sum of 1e6", lambda f: _reduced(f, (1_000_000,), None), PASSES_OF_SMALL
    yield "sum of 1000 × 1000 along axis 0", lambda f: _reduced(f, (1000, 1000), 0), PASSES_OF_SMALL
    yield "sum of 1000 × 1000 along axis 1", lambda f: _reduced(f, (1000, 1000), 1), PASSES_OF_SMALL
    yield "sum of 1e4", lambda f: _reduced(f, (10_000,), None), PASSES_OF_SMALL
    yield "sum of 20,000 × 4 along rows", lambda f: _reduced(f, (20_000, 4), 1), PASSES_OF_SMALL
    yield "sum of 10,000 × 10 along rows", lambda f: _reduced(f, (10_000, 10), 1), PASSES_OF_SMALL
    yield "sum of 31,250 × 32 along rows", lambda f: _reduced(f, (31_250, 32), 1), PASSES_OF_SMALL
    yield "sum of 1000 × 1000 along rows, int64", _integer_sums, PASSES_OF_SMALL
    yield "sum of 100 × 1000 × 10 along axis 1", lambda f: _reduced(f, (100, 1000, 10), 1), PASSES_OF_SMALL
    yield "matmul 1000 × (4 × 4 × 4), float32", lambda f: _batched_products(f, 1000, 4), PASSES_OF_SMALL
    yield "batch norm 32 × 16 × 8 × 8", lambda f: _batch_norm(f, True), PASSES_OF_SMALL
    yield "batch norm 32 × 16 × 8 × 8, running statistics", lambda f: _batch_norm(f, False), PASSES_OF_SMALL
    yield "power of 1e5, float64", _power, PASSES_OF_SMALL
    yield "randn of 1e5", lambda f: lambda: f.randn(100_000), PASSES_OF_SMALL
    yield "complex64 product of 1e5", lambda f: _complex(f, lambda _, z, other: z * other), PASSES_OF_SMALL
    yield "complex64 conjugate of 1e5", lambda f: _complex(f, lambda f, z, _: f.conj_physical(z)), PASSES_OF_SMALL
    yield "nextafter of 1e5, bf16", _next_numbers, PASSES_OF_SMALL
    yield "arange of 1e5", lambda f: lambda: f.arange(100_000), PASSES_OF_SMALL
    yield "linspace of 1e5", lambda f: lambda: f.linspace(0, 1, 100_000), PASSES_OF_SMALL
    for what in ("relu6", "hardsigmoid", "leaky_relu"):
        yield f"{what} of 1e5", lambda f, what=what: _activation(f, what), PASSES_OF_SMALL
    yield "smooth L1 loss of 1e5", _smooth_l1_loss, PASSES_OF_SMALL
    yield "topk 10 of 1000 × 1000 along rows", lambda f: _topk(f, 1000, 1000, 10), PASSES
    yield "topk 50 of 8 × 50,000 along rows", lambda f: _topk(f, 8, 50_000, 50), PASSES
    yield "cumsum of 1e3", lambda f: _scan(f, 1000), PASSES_OF_SMALL
    yield "cumsum of 1e6", lambda f: _scan(f, 1_000_000), PASSES
    yield "cumsum of 1000 × 1000 along rows", lambda f: _scan(f, 1000, 1000), PASSES
    yield "masked selection from 1e3", lambda f: _selected(f, 1000), PASSES_OF_SMALL
    yield "masked selection from 1e6", lambda f: _selected(f, 1_000_000), PASSES
    yield "conv2d 8 × 512 × 7 × 7, 3 × 3", lambda f: _convolution(f, 512, 7, 512), PASSES
    yield "conv2d 8 × 64 × 56 × 56, 3 × 3", lambda f: _convolution(f, 64, 56, 64), PASSES
    yield "conv2d 8 × 64 × 56 × 56, 3 × 3, depthwise", lambda f: _convolution(f, 64, 56, 64, 64), PASSES


def rows() -> Iterator[Row]:
    """Yields a row for each shape and kernel."""
    products = [
        (f"matmul {m} × {k} × {n}, f32", lambda f, m=m, k=k, n=n: _product(f, m, k, n, "float32"), PASSES)
        for m, k, n in SHAPES
    ]
    for what, prepare, passes in [*products, *_kernels()]:
        contenders = {"GT": _contender(gt, prepare, passes)}
        if torch:
            contenders |= with_torch(_contender(torch, prepare, passes))
        target = Target(0.95, "PyTorch", speed=True) if what.endswith("f32") else Target(1.0, "PyTorch")
        yield Row(what, contenders, (target,))
