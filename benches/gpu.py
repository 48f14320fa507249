"""Operations and training steps on a GPU, beside PyTorch on the same one: `gpu-kit/run bench` runs them.

Nothing is measured unless both frameworks have a GPU. Both are synchronised at the end of each measurement. They take
turns on one GPU, so each row frees the memory that it cached, for the other framework to use. The rows that tell most
come first: a run may be ended early.

Where GT's device is emulated, which is a rehearsal of this file, sizes are small and PyTorch computes on the CPU.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import gt
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch
from tests.parity.gpt import Config, build

EMULATED_DEVICE = "an emulated device"
# GT fuses operations that share an operand; rows of bandwidth measure operations that do not.
OPERAND_SETS = 8
# The parameters of the model that training is measured with.
GPT2 = Config(layers=12, heads=12, channels=768, context=1024, vocabulary=50_304, fused=True)


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    # The elements of the tensors whose bandwidth is measured: 400 MB of float32, in rows of 1,000.
    large: int = 100_000_000
    matmul: tuple[int, ...] = (8192, 4096, 2048, 1024)
    chain_ops: int = 1_000
    # Batch, heads, tokens, and features per head.
    attention: tuple[int, int, int, int] = (8, 16, 2048, 64)
    # Samples, channels, height and width.
    convolution: tuple[int, int, int, int] = (64, 128, 56, 56)
    gpt: Config = GPT2
    gpt_batch: int = 4
    mlp: int = 1024
    issues: int = 500


REHEARSED = Sizes(
    large=10_000,
    matmul=(64, 32),
    chain_ops=50,
    attention=(1, 2, 32, 16),
    convolution=(2, 4, 8, 8),
    gpt=Config(layers=1, heads=2, channels=32, context=16, vocabulary=64, fused=True),
    gpt_batch=2,
    mlp=16,
    issues=20,
)


def is_rehearsal() -> bool:
    """Returns whether GT's device is emulated."""
    return gt.cuda.is_available() and gt.cuda.get_device_name() == EMULATED_DEVICE


def is_here() -> bool:
    """Returns whether both frameworks can compute on a GPU, or rehearse it."""
    return torch is not None and gt.cuda.is_available() and (torch.cuda.is_available() or is_rehearsal())


@functools.cache
def _sizes() -> Sizes:
    return REHEARSED if is_rehearsal() else Sizes()


def _place(framework: Any) -> str:
    return "cuda" if framework.cuda.is_available() else "cpu"


def _synchronizer(framework: Any) -> Callable[[], object]:
    """Returns what waits for the framework's device; nothing waits for a processor, which PyTorch rehearses on."""
    return framework.cuda.synchronize if framework.cuda.is_available() else lambda: None


@functools.cache
def _compiles() -> bool:
    """Returns whether torch.compile works here: it needs a C compiler, which a machine may lack."""
    try:
        return torch.compile(lambda x: x * 2 + 1)(torch.ones(8, device=_place(torch))).sum().item() == 24
    except Exception as error:  # The compiler raises errors of its own, of the C compiler's and of the system's.
        first = next(iter(str(error).splitlines()), "")
        print(f"torch.compile does not work here, so its column is empty: {type(error).__name__}: {first}")
        return False


def _timed(framework: Any, work: Callable[[], object], passes: int) -> Callable[[], float]:
    """Measures the seconds of one `work()`, from issuing the first to the end of the last.

    All results are kept until the end: GT does not compute what nobody can read any more.
    """
    synchronize = _synchronizer(framework)

    def measured() -> float:
        synchronize()
        kept: list[object] = []
        return seconds_per_pass(lambda: kept.append(work()), passes, synchronize)

    return measured


def _issued(framework: Any, work: Callable[[], object], passes: int) -> Callable[[], float]:
    """Measures the seconds that issuing one `work()` takes the program, without waiting for the device."""
    synchronize = _synchronizer(framework)

    def measured() -> float:
        synchronize()
        seconds = seconds_per_pass(work, passes)
        synchronize()
        return seconds

    return measured


def _prepared_at_its_turn(prepare: Callable[[], Callable[[], float]]) -> Callable[[], float]:
    """Prepares a contender when it is first measured: an error is then one of its row, and the next row goes on."""
    prepared = functools.cache(prepare)
    return lambda: prepared()()


def _row(
    what: str,
    make: Callable[[Any], Callable[[], object]],
    passes: int,
    target: Target | None,
    timed: Callable[[Any, Callable[[], object], int], Callable[[], float]] = _timed,
    *,
    work: tuple[float, str] = (0.0, ""),
    compiled: Callable[[Any], Callable[[], object]] | None = None,
) -> Row:
    """Makes a row; `make(framework)` prepares and returns the function to measure."""
    makers = {"GT": (gt, make), "PyTorch": (torch, make)}
    if compiled is not None:
        makers["torch.compile"] = (torch, compiled)
    contenders = {
        name: _prepared_at_its_turn(lambda framework=framework, maker=maker: timed(framework, maker(framework), passes))
        for name, (framework, maker) in makers.items()
    }
    return Row(what, contenders, (target,) if target else (), work=work[0], work_unit=work[1])


def _small(framework: Any) -> tuple[Any, Any]:
    return framework.ones(64, device=_place(framework)), framework.full((64,), 1e-3, device=_place(framework))


def _issue(framework: Any) -> Callable[[], object]:
    a, b = _small(framework)
    return lambda: a + b


def _chain(framework: Any) -> Callable[[], object]:
    a, b = _small(framework)

    def work() -> None:
        x = a
        for _ in range(_sizes().chain_ops):
            x = x + b

    return work


def _matmul(size: int, dtype: str, tf32: bool) -> Callable[[Any], Callable[[], object]]:
    def make(framework: Any) -> Callable[[], object]:
        framework.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (framework.randn(size, size, device=_place(framework)).to(getattr(framework, dtype)) for _ in range(2))
        return lambda: a @ b

    return make


def _of_large(
    work: Callable[..., object], shape: tuple[int, ...], count: int = 1, compiles: bool = False
) -> Callable[[Any], Callable[[], object]]:
    def make(framework: Any) -> Callable[[], object]:
        # In turn, so that no pass finds its operands in a cache, nor in the registers of the pass before.
        sets = [[framework.randn(*shape, device=_place(framework)) for _ in range(count)] for _ in range(OPERAND_SETS)]
        turns = itertools.cycle(sets)
        function = functools.partial(work, framework)
        function = torch.compile(function) if compiles else function
        return lambda: function(*next(turns))

    return make


def _attention(
    sizes: tuple[int, int, int, int], dtype: str, tf32: bool, backward: bool
) -> Callable[[Any], Callable[[], object]]:
    def make(framework: Any) -> Callable[[], object]:
        framework.backends.cuda.matmul.allow_tf32 = tf32
        attend = framework.nn.functional.scaled_dot_product_attention
        q, k, v = (
            framework.randn(*sizes, device=_place(framework)).to(getattr(framework, dtype)).requires_grad_(backward)
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
        shape = _sizes().convolution
        x, weight = (
            framework.randn(*dims, device=_place(framework)).to(getattr(framework, dtype)).requires_grad_(backward)
            for dims in (shape, (shape[1], shape[1], side, side))
        )

        def work() -> None:
            out = framework.nn.functional.conv2d(x, weight, padding=side // 2)
            if backward:
                out.sum().backward()

        return work

    return make


def _mlp_step(framework: Any) -> Callable[[], object]:
    nn, width = framework.nn, _sizes().mlp
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)).to(_place(framework))
    optimizer = framework.optim.SGD(model.parameters(), lr=1e-3)
    x = framework.randn(256, width, device=_place(framework))

    def step() -> None:
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()

    return step


def _gpt_step(dtype: str, compiles: bool = False) -> Callable[[Any], Callable[[], object]]:
    def make(framework: Any) -> Callable[[], object]:
        config, batch = _sizes().gpt, _sizes().gpt_batch
        framework.manual_seed(1)
        model = build(framework, config).to(_place(framework))
        model = torch.compile(model) if compiles else model
        optimizer = framework.optim.AdamW(model.parameters(), lr=1e-4)
        text = np.random.default_rng(1).integers(0, config.vocabulary, (batch, config.context + 1))
        tokens, targets = (
            framework.from_numpy(part.copy()).to(_place(framework)) for part in (text[:, :-1], text[:, 1:])
        )

        def step() -> None:
            with framework.autocast(_place(framework), getattr(framework, dtype), enabled=dtype != "float32"):
                loss = model(tokens, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return step

    return make


def _gpt_flops() -> float:
    """Returns a step's operations as they are usually counted: 6 for each parameter and token, and attention's."""
    config = _sizes().gpt
    blocks = 12 * config.layers * config.channels**2
    parameters = blocks + config.vocabulary * config.channels
    attention = 12 * config.layers * config.channels * config.context
    return float((6 * parameters + attention) * _sizes().gpt_batch * config.context)


def _transfers() -> Iterator[Row]:
    """Yields the rows of uploads and downloads of NumPy's arrays, beside bare copies of memory that is pinned."""
    array = np.ones(_sizes().large // 4, np.float32)
    ours, device = gt.from_numpy(array), torch.empty(array.size, device=_place(torch))
    pinned = torch.empty(array.size, pin_memory=torch.cuda.is_available())

    def once(framework: Any, work: Callable[[], object]) -> Callable[[], float]:
        return _timed(framework, work, 1)

    up = {
        "GT": once(gt, lambda: gt.from_numpy(array)),
        "PyTorch": once(torch, lambda: torch.from_numpy(array).to(_place(torch))),
        "bare": once(torch, lambda: device.copy_(pinned, non_blocking=True)),
    }
    down = {
        "GT": once(gt, ours.numpy),
        "PyTorch": once(torch, lambda: device.cpu().numpy()),
        "bare": once(torch, lambda: pinned.copy_(device, non_blocking=True)),
    }
    target = Target(1.0, "PyTorch", speed=True)
    for direction, contenders in (("upload", up), ("download", down)):
        what = f"gpu: {direction} of an array of {array.nbytes / 1e6:,.0f} MB"
        yield Row(what, contenders, (target,), work=float(array.nbytes), work_unit="B/s")


def _matmuls() -> Iterator[Row]:
    for name, dtype, tf32 in (("bf16", "bfloat16", False), ("tf32", "float32", True), ("f32", "float32", False)):
        for size in _sizes().matmul:
            target = Target(0.97, "PyTorch", speed=True) if name != "f32" else None
            flops = (2.0 * size**3, "FLOP/s")
            # The results of all passes of a row take the same memory, 5 GB of float32 at the most.
            passes = 20 * (max(_sizes().matmul) // size) ** 2
            yield _row(f"gpu: matmul {size:,}³, {name}", _matmul(size, dtype, tf32), passes, target, work=flops)


def _bandwidths(compiled: bool) -> Iterator[Row]:
    large = _sizes().large
    flat, rows_of = (large,), (large // 1000, 1000)
    target = Target(1.0, "PyTorch", speed=True)

    def gelu(framework: Any, x: Any) -> Any:
        return framework.nn.functional.gelu(x)

    def norm(framework: Any, x: Any) -> Any:
        return framework.nn.functional.layer_norm(x, (1000,))

    # The operation, the shape and number of its operands, the tensors that it reads and writes, and whether to compile
    # it, too.
    for name, work, shape, count, moved, compiles in (
        # GT copies nothing for clone().
        ("negative", lambda _, x: -x, flat, 1, 2, False),
        ("a + b", lambda _, a, b: a + b, flat, 2, 3, False),
        ("softmax", lambda _, x: x.softmax(-1), rows_of, 1, 2, True),
        ("layer_norm", norm, rows_of, 1, 2, True),
        ("gelu", gelu, flat, 1, 2, True),
        ("sum", lambda _, x: x.sum(), flat, 1, 1, False),
    ):
        if compiled and not compiles:
            continue
        yield _row(
            f"gpu: {name}, {large:,} elements{', beside a compiler' * compiled}",
            _of_large(work, shape, count),
            20,
            target,
            work=(4.0 * large * moved, "B/s"),
            compiled=_of_large(work, shape, count, compiles=True) if compiled else None,
        )


def _attentions() -> Iterator[Row]:
    usual = _sizes().attention
    batch, heads, tokens, features = usual
    # Rows that tensor cores get with more columns, and the most features that they take.
    unaligned, wide = (batch, heads, tokens, features - 3), (batch, max(1, heads // 4), tokens, 4 * features)
    for sizes, dtype, tf32 in (
        (usual, "bfloat16", False),
        (unaligned, "bfloat16", False),
        (wide, "bfloat16", False),
        (usual, "float32", True),
        (wide, "float32", True),
        # The last: what is measured afterwards is not rounded to tf32.
        (usual, "float32", False),
    ):
        # Two products of which the mask leaves half; the gradients take five.
        forward = 2.0 * sizes[0] * sizes[1] * tokens**2 * sizes[3]
        for backward in (False, True):
            name = f"{dtype}{' (tf32)' * tf32}{', with gradient' * backward}"
            flops = (forward * (3.5 if backward else 1.0), "FLOP/s")
            row = _attention(sizes, dtype, tf32, backward)
            yield _row(f"gpu: causal attention {sizes}, {name}", row, 20, None, work=flops)


def _convolutions() -> Iterator[Row]:
    """Yields the rows of convolutions. Both frameworks round those of float32 to tf32 by default."""
    samples, channels, height, width = _sizes().convolution
    for dtype in ("bfloat16", "float32"):
        for side in (3, 1):
            forward = 2.0 * samples * height * width * channels**2 * side**2
            for backward in (False, True):
                shape = _sizes().convolution
                what = f"gpu: convolution {side} × {side} of {shape}, {dtype}{', with gradients' * backward}"
                flops = (forward * (3.0 if backward else 1.0), "FLOP/s")
                yield _row(what, _convolution(dtype, side, backward), 20, None, work=flops)


def _steps(compiled: bool) -> Iterator[Row]:
    config, batch = _sizes().gpt, _sizes().gpt_batch
    model = "GPT-2 124M" if config == GPT2 else "GPT"
    for dtype in ("bfloat16",) if compiled else ("bfloat16", "float32"):
        what = f"gpu: {model} training step, {batch} × {config.context:,}, {dtype}{', beside a compiler' * compiled}"
        by_compiler = _gpt_step(dtype, compiles=True) if compiled else None
        target, flops = Target(1.0, "PyTorch"), (_gpt_flops(), "FLOP/s")
        yield _row(what, _gpt_step(dtype), 10, target, work=flops, compiled=by_compiler)


def rows() -> Iterator[Row]:
    """Yields the rows of products, bandwidth, attention, training, issue cost, launches, convolutions and transfers.

    Compilation takes minutes, so the rows beside a compiler come last.
    """
    if not is_here():
        return
    yield from _matmuls()
    yield from _bandwidths(compiled=False)
    yield from _attentions()
    yield from _steps(compiled=False)
    yield _row("gpu: issue a + b", _issue, _sizes().issues, Target(0.3, "PyTorch"), _issued)
    yield _row(f"gpu: chain of {_sizes().chain_ops:,} adds of 64 elements", _chain, 3, Target(0.5, "PyTorch"))
    yield from _convolutions()
    yield _row("gpu: MLP training step, batch 256", _mlp_step, 20, Target(1.0, "PyTorch"))
    yield from _transfers()
    if _compiles():
        yield from _bandwidths(compiled=True)
        yield from _steps(compiled=True)
