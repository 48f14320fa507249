"""The peak memory of a training step: client and daemon together, beyond what they held before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benches.harness import Row, Target
from benches.peers import with_torch

LIMIT = 1.1
STEPS = 3

# One network whose memory is mostly activations, and one whose memory is mostly weights.
NETWORKS = {
    "MLP 1024-4096-1024, batch 4096": "nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)",
    "MLP 4 × 2048, GELU, LayerNorm, batch 1024": ", ".join(
        ["nn.Linear(2048, 2048), nn.GELU(), nn.LayerNorm(2048)"] * 4
    ),
}

# The same source for either framework. The memory held before the model is made, after a first small step, is
# subtracted from the peak, which the kernel records.
PROGRAM = """
import json, os, sys
name, layers, batch, width, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
if name == "gt":
    import gt as torch
    from gt import nn, optim
    pids = [os.getpid(), torch._gt.session_info()["daemon_pid"]]
else:
    import torch
    from torch import nn, optim
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    pids = [os.getpid()]

def train(model, x, steps):
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
    return loss.item()

def rss(field):
    texts = [open(f"/proc/{pid}/status").read() for pid in pids]
    return sum(int(text.split(field + ":")[1].split()[0]) << 10 for text in texts)

train(nn.Linear(8, 8), torch.ones(8, 8), 1)
for pid in pids:
    open(f"/proc/{pid}/clear_refs", "w").write("5")
before = rss("VmRSS")
train(eval(f"nn.Sequential({layers})"), torch.randn(batch, width), steps)
print(json.dumps(rss("VmHWM") - before))
"""


def _peak_bytes(framework: str, layers: str, batch: int, width: int) -> float:
    """Runs the training in a new process, and returns how far its memory rose, in bytes."""
    environment = {name: value for name, value in os.environ.items() if name != "GT_SOCKET"}
    command = [sys.executable, "-c", PROGRAM, framework, layers, str(batch), str(width), str(STEPS)]
    root = Path(__file__).resolve().parent.parent
    out = subprocess.run(command, check=True, capture_output=True, env=environment, cwd=root, text=True).stdout
    return float(json.loads(out))


def rows() -> Iterator[Row]:
    """Yields a row for each network."""
    for name, layers in NETWORKS.items():
        batch, width = int(name.rsplit(" ", 1)[1]), int(layers.split("(")[1].split(",")[0])
        contenders = {"GT": lambda layers=layers, batch=batch, width=width: _peak_bytes("gt", layers, batch, width)}
        contenders |= with_torch(
            lambda layers=layers, batch=batch, width=width: _peak_bytes("torch", layers, batch, width)
        )
        yield Row(f"memory of a training step, {name}", contenders, (Target(LIMIT, "PyTorch"),), unit="B", rounds=3)
