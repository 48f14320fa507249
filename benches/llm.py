"""GPT-2 by `gt.llm`: a step of training beside PyTorch and llm.c; text with a cache, and many requests at a time.

`GT_LLMC=FOLDER` names a checkout of llm.c, whose program for the CPU is measured with the same weights and tokens; it
does not clip gradients. The column "bare" of texts is the plain loop, which computes all tokens again for each new one,
and that of requests and completions is one request after the other; beside data parallel steps it is one worker with
all cores.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

import gt
import gt.llm
from benches import llmc
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch, with_torch
from gt.llm import parallel
from gt.llm.serve import Server
from tests.parity.gpt import Config, build

# GPT-2 124M, and a batch of 4 × 64 tokens.
SIZES = gt.llm.Config()
BATCH, LENGTH = 4, 64
# The model that makes text, its prompt and the tokens it makes.
SMALL = gt.llm.Config(context=256, vocabulary=8192, layers=6, heads=6, channels=384)
PROMPT, TOKENS = list(range(16)), 64
REQUESTS, ROWS = 16, 8
# Clients of the server on loopback, each with two requests one after the other.
CLIENTS = 16
# Steps before time is measured.
WARMUP_STEPS = 2
# Steps before memory is read: the first one makes the optimizer's state, the second one needs all of it.
MEMORY_STEPS = 2
# The largest difference of the losses of the first step.
LOSS_TOLERANCE = 1e-4
# The sum of the most memory that the client and its daemon have while they make steps, of which each has pages of the
# shared memory. The kernel begins to record the peak again when the model is loaded.
MEMORY_PROGRAM = """
import os, sys
sys.modules["torch"] = None  # Its libraries would be measured, too.
import numpy as np
import gt, gt.llm
from benches.llm import MEMORY_STEPS, gt_step
pids = os.getpid(), gt._gt.session_info()["daemon_pid"]
model = gt.llm.load(sys.argv[1])
model.ln_f.bias.tolist()
for pid in pids:
    open(f"/proc/{pid}/clear_refs", "w").write("5")
step = gt_step(model, np.load(sys.argv[2]))
for _ in range(MEMORY_STEPS):
    step()
print(sum(int(open(f"/proc/{pid}/status").read().split("VmHWM:")[1].split()[0]) << 10 for pid in pids))
"""


# Makes a step for each line of its input, and prints the seconds.
STEPS_PROGRAM = """
import sys
sys.modules["torch"] = None  # Its threads would wait for work on the same cores.
import gt, gt.llm
from gt.llm import parallel
from benches.llm import BATCH, SIZES, gt_step, random_text
model = gt.llm.GPT2(SIZES).initialise()
for name, signal in parallel.signals(SIZES, BATCH, parallel.parse(sys.argv[1]), int(sys.argv[2])).items():
    gt.register_config(name, signal)
step = gt_step(model, random_text())
for line in sys.stdin:
    print(step(), flush=True)
"""


def random_text() -> np.ndarray:
    """Returns the tokens of a batch, each sample with the one that follows it."""
    return np.random.default_rng(0).integers(0, SIZES.vocabulary, (BATCH, LENGTH + 1))


@contextlib.contextmanager
def _steps(degrees: str, workers: int, zero: int = 0) -> Iterator[Callable[[], float]]:
    """Yields a function that makes a step in a process of its own, and returns its seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "GT_SOCKET"}
    running = subprocess.Popen(
        [sys.executable, "-c", STEPS_PROGRAM, degrees, str(zero)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment | {"GT_WORKERS": f"cpu:{workers}"},
        cwd=Path(__file__).resolve().parent.parent,
        text=True,
    )

    def step() -> float:
        running.stdin.write("\n")
        running.stdin.flush()
        return float(running.stdout.readline())

    for _ in range(WARMUP_STEPS):
        step()
    yield step
    running.stdin.close()
    running.wait()


def _parallel_rows() -> Iterator[Row]:
    """Yields the time of a step on two workers, beside one with all cores."""
    with _steps("dp=2", 2, zero=1) as divided, _steps("dp=2", 2) as replicated, _steps("", 1) as alone:
        for contender, update, target in ((divided, "ZeRO-1", 1.1), (replicated, "replicas", 1.3)):
            what = f"data parallel step on two workers, {update}, GPT-2 124M, {BATCH} × {LENGTH} tokens"
            yield Row(what, {"GT": contender, "bare": alone}, (Target(target, "bare"),), rounds=5)


def gt_step(model: gt.llm.GPT2, text: np.ndarray) -> Callable[[], float]:
    """Returns a function that trains for one step, and returns its seconds."""
    optimizer = model.optimizer(1e-4, (0.9, 0.95), 1e-8, 0.1)
    given = (gt.from_numpy(part.copy()) for part in (text[:, :-1], text[:, 1:]))
    tokens, targets = (gt.signal.tensor(part, name=parallel.BATCH) for part in given)
    return _step(gt, model.parameters, optimizer, lambda: model(tokens, targets)[1], _placed_update)


@contextlib.contextmanager
def _placed_update(parameters: Iterator[Any]) -> Iterator[None]:
    """The context of an update on several workers, as in training: gradients go to where it needs them."""
    for parameter in parameters:
        parameter.grad = gt.signal.tensor(parameter.grad, name=parallel.UPDATE)
    with gt.signal.context(parallel.UPDATE):
        yield


def _gt_memory(model: Path, text: np.ndarray) -> float:
    tokens = model.with_name("text.npy")
    np.save(tokens, text)
    environment = {name: value for name, value in os.environ.items() if name != "GT_SOCKET"}
    command = [sys.executable, "-c", MEMORY_PROGRAM, str(model), str(tokens)]
    root = Path(__file__).resolve().parent.parent
    return float(subprocess.run(command, check=True, capture_output=True, env=environment, cwd=root, text=True).stdout)


def _llmc_memory(program: Path, model: Path, text: np.ndarray) -> float:
    running = llmc.Program(program, model, text)
    for _ in range(MEMORY_STEPS):
        running.step()
    peak = running.peak_bytes()
    running.close()
    return float(peak)


def _training_rows(folder: Path) -> Iterator[Row]:
    """Yields the time and the memory of a step."""
    text = random_text()
    model, file = gt.llm.GPT2(SIZES).initialise(), folder / "model.bin"
    contenders, targets = {"GT": gt_step(model, text)}, [Target(0.33, "PyTorch")]
    if torch:
        contenders |= with_torch(_torch_step(text))
    running, program = None, llmc.compiled(folder)
    if program:
        gt.llm.write_model(file, model)
        running = llmc.Program(program, file, text)
        with gt.no_grad():
            ours = model(gt.from_numpy(text[:, :-1].copy()), gt.from_numpy(text[:, 1:].copy()))[1].item()
        theirs, _ = running.step()
        print(f"the losses of the first step: GT {ours:.6f}, llm.c {theirs:.6f}", file=sys.stderr)
        if abs(ours - theirs) > LOSS_TOLERANCE:
            raise RuntimeError(f"llm.c's first loss is {theirs}, but GT's is {ours}: they compute something else")
        contenders["llm.c"] = lambda: running.step()[1]
        targets.append(Target(0.1, "llm.c"))
    for contender in contenders.values():
        # The optimizer's state is made, and what repeats is found.
        for _ in range(WARMUP_STEPS):
            contender()
    yield Row(f"training step, GPT-2 124M, {BATCH} × {LENGTH} tokens", contenders, tuple(targets), rounds=5)
    del model, contenders
    if program and running:
        running.close()
        peaks = {"GT": lambda: _gt_memory(file, text), "llm.c": lambda: _llmc_memory(program, file, text)}
        yield Row("peak memory while such steps are made", peaks, (Target(1.0, "llm.c"),), unit="B", rounds=3)


def _torch_step(text: np.ndarray) -> Callable[[], float]:
    config = Config(SIZES.vocabulary, LENGTH, SIZES.layers, SIZES.heads, SIZES.channels)
    model = build(torch, config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    tokens, targets = torch.from_numpy(text[:, :-1].copy()), torch.from_numpy(text[:, 1:].copy())
    return _step(torch, model.parameters, optimizer, lambda: model(tokens, targets))


def _step(
    framework: Any,
    parameters: Callable[[], Any],
    optimizer: Any,
    loss_of: Callable[[], Any],
    update: Callable[[Any], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Callable[[], float]:
    last = [None]

    def step() -> None:
        optimizer.zero_grad()
        last[0] = loss_of()
        last[0].backward()
        with update(parameters()):
            framework.nn.utils.clip_grad_norm_(parameters(), 1.0)
            optimizer.step()

    return lambda: seconds_per_pass(step, 1, lambda: last[0].item())


def _plain(model: gt.llm.GPT2) -> None:
    tokens = gt.tensor([PROMPT])
    with gt.no_grad():
        for _ in range(TOKENS):
            logits, _ = model(tokens)
            tokens = gt.cat([tokens, logits[:, -1].argmax(-1, keepdim=True)], 1)
    tokens.tolist()


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _answered(engine: gt.llm.Engine) -> None:
    requests = [engine.submit(gt.llm.Request(PROMPT, TOKENS, seed=i)) for i in range(REQUESTS)]
    for request in requests:
        list(iter(request.made.get, "length"))


@contextlib.contextmanager
def _served(model: gt.llm.GPT2, rows: int) -> Iterator[int]:
    """Yields the port of a server on loopback that computes so many requests at a time."""
    engine = gt.llm.Engine(model, rows)
    tokens = [bytes([byte]) for byte in range(256)] + [b"%d " % i for i in range(model.config.vocabulary - 256)]
    server = Server(("127.0.0.1", 0), engine, gt.llm.Tokenizer(tokens, end_of_text=255), "bench")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    engine.close()


def _request_s(port: int, seed: int) -> float:
    """Returns the time of a completion by HTTP."""
    asked = {"model": "bench", "prompt": "sixteen letters.", "max_tokens": TOKENS, "seed": seed}

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("POST", "/v1/completions", json.dumps(asked))
        answer = json.loads(connection.getresponse().read())
        connection.close()
        if answer["usage"]["completion_tokens"] == 0:
            raise RuntimeError(f"the server made no text: {answer}")

    return _seconds(ask)


def _percentile_s(port: int, share: float) -> float:
    """Returns the time that a share of the requests of many clients at once do not exceed."""
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        times = sorted(pool.map(functools.partial(_request_s, port), range(2 * CLIENTS)))
    return times[min(int(share * len(times)), len(times) - 1)]


def rows() -> Iterator[Row]:
    """Yields a row for training, for text and for requests."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _training_rows(Path(folder))
    yield from _parallel_rows()
    model = gt.llm.GPT2(SMALL).initialise().eval()
    cached = lambda: _seconds(lambda: list(gt.llm.generate(model, PROMPT, TOKENS, temperature=0)))  # noqa: E731
    plain = lambda: _seconds(lambda: _plain(model))  # noqa: E731
    yield Row(f"{TOKENS} tokens of text", {"GT": cached, "bare": plain}, (Target(0.33, "bare"),), rounds=5)
    several, one = gt.llm.Engine(model, ROWS), gt.llm.Engine(model, 1)
    contenders = {"GT": lambda: _seconds(lambda: _answered(several)), "bare": lambda: _seconds(lambda: _answered(one))}
    yield Row(f"{REQUESTS} requests of {TOKENS} tokens, {ROWS} at a time", contenders, (Target(0.5, "bare"),), rounds=3)
    several.close()
    one.close()
    with _served(model, ROWS) as port, _served(model, 1) as alone:
        for name, share in (("median", 0.5), ("99th percentile", 0.99)):
            yield Row(
                f"{name} of a completion of {TOKENS} tokens, {CLIENTS} clients by HTTP",
                {"GT": lambda s=share: _percentile_s(port, s), "bare": lambda s=share: _percentile_s(alone, s)},
                (Target(0.5, "bare"),),
                rounds=3,
            )
