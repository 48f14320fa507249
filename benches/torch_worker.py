"""The worker that computes with PyTorch beside eager PyTorch in the program's own process, on the processor.

What an instruction costs on its way through daemon, worker and the process that runs PyTorch is the difference; a
program does not wait for it, so a chain measures what the slowest of these takes, and a value's way back its latency.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

from benches.harness import Row, Target
from benches.peers import torch, with_torch
from benches.workers import Session

# The worker of GT's own kernels that is a process, too.
OWN_PROCESS = {"GT_WORKERS": "proc-cpu:1"}
SETTINGS = {"GT_WORKERS": "torch-cpu:1", "GT_TORCH_PYTHON": sys.executable}
CHAIN_OPS = 20_000
ROUND_TRIPS = 500
SIDE = 1024
STEPS = 10

# Both sides run these programs; on GT's side, `torch` is `gt`.
CHAIN = f"""
b = torch.ones(1)
def round_s():
    start = time.perf_counter()
    x = b
    for _ in range({CHAIN_OPS}):
        x = torch.maximum(x, b)
    assert x.item() == 1.0
    return (time.perf_counter() - start) / {CHAIN_OPS}
"""
ROUND_TRIP = f"""
b = torch.ones(1)
def round_s():
    start = time.perf_counter()
    for _ in range({ROUND_TRIPS}):
        (b + b).item()
    return (time.perf_counter() - start) / {ROUND_TRIPS}
"""
PRODUCT = f"""
a = torch.rand({SIDE}, {SIDE})
def round_s():
    start = time.perf_counter()
    x = a
    for _ in range({STEPS}):
        x = a @ a
    x[0, 0].item()
    return (time.perf_counter() - start) / {STEPS}
"""
TRAIN = f"""
from {{torch}} import nn
F = nn.functional
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))
x, y = torch.rand(256, 256), torch.rand(256, 256)
optimizer = {{torch}}.optim.SGD(model.parameters(), lr=0.1)
def round_s():
    start = time.perf_counter()
    for _ in range({STEPS}):
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    loss.item()
    return (time.perf_counter() - start) / {STEPS}
"""


def rows() -> Iterator[Row]:
    """Yields the cost of an instruction, of a value's way back, of a product and of a training step."""
    if torch is None:
        return
    theirs, own = (Session(1, "import gt as torch\n" + ROUND_TRIP, **settings) for settings in (SETTINGS, OWN_PROCESS))
    what = "worker of PyTorch: an addition and its value (bare: proc-cpu)"
    yield Row(what, {"GT": theirs.round_s, "bare": own.round_s}, (Target(4.0, "bare"),), rounds=5)
    theirs.end()
    own.end()
    for what, program, target in (
        ("worker of PyTorch: an instruction of a chain, one element", CHAIN, 3.0),
        (f"worker of PyTorch: matmul {SIDE}×{SIDE}", PRODUCT, 1.2),
        ("worker of PyTorch: MLP step, batch 256", TRAIN, 2.0),
    ):
        session = Session(1, "import gt as torch\n" + program.replace("{torch}", "gt"), **SETTINGS)
        local: dict[str, Any] = {"torch": torch, "time": time}
        exec(program.replace("{torch}", "torch"), local)
        contenders = {"GT": session.round_s, **with_torch(local["round_s"])}
        yield Row(what, contenders, (Target(target, "PyTorch"),), rounds=5)
        session.end()
