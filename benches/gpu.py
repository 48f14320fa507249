"""Operations and training steps on a GPU, beside PyTorch on the same one: `make gpu-test` runs them.

Nothing is measured unless both frameworks have a GPU. Both are synchronised at the end of each measurement. They take
turns on one GPU, so each row frees the memory that it cached, for the other framework to use.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gt
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch
from tests.parity.gpt import Config, build

# The elements of the tensors whose bandwidth is measured: 400 MB of float32.
LARGE = 100_000_000
SIZES = (1024, 2048, 4096, 8192)
CHAIN_OPS = 1_000
GPT2 = Config(layers=12, heads=12, channels=768, context=1024, vocabulary=50_304)
# Batch, heads, tokens, and features per head.
ATTENTION = (8, 16, 2048, 64)
# Samples, channels, height and width.
CONVOLUTION = (64, 128, 56, 56)


def is_here() -> bool:
    """Returns whether both frameworks can compute on a GPU."""
    return torch is not None and torch.cuda.is_available() and gt.cuda.is_available()


def _timed(framework: Any, work: Callable[[], object], passes: int) -> Callable[[], float]:
    """Measures the seconds of one `work()`, from issuing the first to the end of the last."""

    def measured() -> float:
        framework.cuda.synchronize()
        return seconds_per_pass(work, passes, framework.cuda.synchronize)

    return measured


def _issued(framework: Any, work: Callable[[], object], passes: int) -> Callable[[], float]:
    """Measures the seconds that issuing one `work()` takes the program, without waiting for the device."""

    def measured() -> float:
        framework.cuda.synchronize()
        seconds = seconds_per_pass(work, passes)
        framework.cuda.synchronize()
        return seconds

    return measured


def _row(
    what: str,
    make: Callable[[Any], Callable[[], object]],
    passes: int,
    target: Target | None,
    timed: Callable[[Any, Callable[[], object], int], Callable[[], float]] = _timed,
) -> Row:
    """Makes a row; `make(framework)` prepares and returns the function to measure."""
    contenders = {"GT": timed(gt, make(gt), passes), "PyTorch": timed(torch, make(torch), passes)}
    return Row(what, contenders, (target,) if target else ())


def _small(framework: Any) -> tuple[Any, Any]:
    return framework.ones(64, device="cuda"), framework.full((64,), 1e-3, device="cuda")


def _issue(framework: Any) -> Callable[[], object]:
    a, b = _small(framework)
    return lambda: a + b


def _chain(framework: Any) -> Callable[[], object]:
    a, b = _small(framework)

    def work() -> None:
        x = a
        for _ in range(CHAIN_OPS):
            x = x + b

    return work


def _matmul(size: int, dtype: str, tf32: bool) -> Callable[[Any], Callable[[], object]]:
    def make(framework: Any) -> Callable[[], object]:
        framework.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (framework.randn(size, size, device="cuda").to(getattr(framework, dtype)) for _ in range(2))
        return lambda: a @ b

    return make


def _of_large(work: Callable[[Any, Any], object], shape: tuple[int, ...]) -> Callable[[Any], Callable[[], object]]:
    def make(framework: Any) -> Callable[[], object]:
        x = framework.randn(*shape, device="cuda")
        return lambda: work(framework, x)

    return make


def _attention(dtype: str, backward: bool) -> Callable[[Any], Callable[[], object]]:
    def make(framework: Any) -> Callable[[], object]:
        attend = framework.nn.functional.scaled_dot_product_attention
        q, k, v = (
            framework.randn(*ATTENTION, device="cuda").to(getattr(framework, dtype)).requires_grad_(backward)
            for _ in range(3)
        )

        def work() -> None:
            out = attend(q, k, v, is_causal=True)
            if backward:
                out.sum().backward()

        return work

    return make


def _convolution(dtype: str, side: int, backward: bool) -> Callable[[Any], Callable[[], object]]:
    def make(framework: Any) -> Callable[[], object]:
        x, weight = (
            framework.randn(*shape, device="cuda").to(getattr(framework, dtype)).requires_grad_(backward)
            for shape in (CONVOLUTION, (CONVOLUTION[1], CONVOLUTION[1], side, side))
        )

        def work() -> None:
            out = framework.nn.functional.conv2d(x, weight, padding=side // 2)
            if backward:
                out.sum().backward()

        return work

    return make


def _mlp_step(framework: Any) -> Callable[[], object]:
    nn = framework.nn
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).to("cuda")
    optimizer = framework.optim.SGD(model.parameters(), lr=1e-3)
    x = framework.randn(256, 1024, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()

    return step


def _gpt_step(dtype: str) -> Callable[[Any], Callable[[], object]]:
    def make(framework: Any) -> Callable[[], object]:
        framework.manual_seed(1)
        model = build(framework, GPT2).to("cuda")
        optimizer = framework.optim.AdamW(model.parameters(), lr=1e-4)
        text = np.random.default_rng(1).integers(0, GPT2.vocabulary, (4, GPT2.context + 1))
        tokens, targets = (framework.from_numpy(part.copy()).to("cuda") for part in (text[:, :-1], text[:, 1:]))

        def step() -> None:
            with framework.autocast("cuda", getattr(framework, dtype), enabled=dtype != "float32"):
                loss = model(tokens, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step

    return make


def _transfers() -> Iterator[Row]:
    """Yields the rows of uploads and downloads, beside copies between pinned memory and the device."""
    array = np.ones(LARGE // 4, np.float32)
    ours, device = gt.from_numpy(array), torch.empty(array.size, device="cuda")
    pinned = torch.empty(array.size, pin_memory=True)

    def up() -> float:
        start = time.perf_counter()
        gt.from_numpy(array)
        gt.cuda.synchronize()
        return time.perf_counter() - start

    def down() -> float:
        start = time.perf_counter()
        ours.numpy()
        return time.perf_counter() - start

    def copied(to: Any, source: Any) -> Callable[[], float]:
        return _timed(torch, lambda: to.copy_(source, non_blocking=True), 1)

    target = Target(0.9, "PyTorch", speed=True)
    yield Row("upload, 100 MB, beside a pinned copy", {"GT": up, "PyTorch": copied(device, pinned)}, (target,))
    yield Row("download, 100 MB, beside a pinned copy", {"GT": down, "PyTorch": copied(pinned, device)}, (target,))


def rows() -> Iterator[Row]:
    """Yields the rows of issue cost, launches, products, bandwidth, attention, convolutions, training and transfers."""
    if not is_here():
        return
    yield _row("gpu: issue a + b", _issue, 500, Target(0.3, "PyTorch"), _issued)
    yield _row(f"gpu: chain of {CHAIN_OPS:,} adds of 64 elements", _chain, 3, Target(0.5, "PyTorch"))
    for name, dtype, tf32 in (("bf16", "bfloat16", False), ("tf32", "float32", True), ("f32", "float32", False)):
        for size in SIZES:
            target = Target(0.97, "PyTorch", speed=True) if name != "f32" else None
            yield _row(f"gpu: matmul {size}³, {name}", _matmul(size, dtype, tf32), 20, target)
    rows_of = (LARGE // 1000, 1000)
    for name, work, shape in (
        ("copy", lambda _, x: x.clone(), (LARGE,)),
        ("a + b", lambda _, x: x + x, (LARGE,)),
        ("gelu", lambda framework, x: framework.nn.functional.gelu(x), (LARGE,)),
        ("sum", lambda _, x: x.sum(), (LARGE,)),
        ("softmax", lambda _, x: x.softmax(-1), rows_of),
        ("layer_norm", lambda framework, x: framework.nn.functional.layer_norm(x, (1000,)), rows_of),
    ):
        yield _row(f"gpu: {name}, 1e8 elements", _of_large(work, shape), 10, Target(1.0, "PyTorch", speed=True))
    for dtype in ("bfloat16", "float32"):
        for backward in (False, True):
            what = f"gpu: causal attention {ATTENTION}, {dtype}{', with gradient' * backward}"
            yield _row(what, _attention(dtype, backward), 5, None)
    # Both frameworks round convolutions of float32 to tf32 by default.
    for dtype in ("bfloat16", "float32"):
        for side in (1, 3):
            for backward in (False, True):
                what = f"gpu: convolution {side} × {side} of {CONVOLUTION}, {dtype}{', with gradients' * backward}"
                yield _row(what, _convolution(dtype, side, backward), 5, None)
    yield _row("gpu: MLP training step, batch 256", _mlp_step, 20, Target(1.0, "PyTorch"))
    for dtype in ("float32", "bfloat16"):
        yield _row(f"gpu: GPT-2 124M training step, 4 × 1,024, {dtype}", _gpt_step(dtype), 3, Target(1.0, "PyTorch"))
    yield from _transfers()
