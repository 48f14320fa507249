"""Several workers beside one: the dispatcher's time per instruction, and a model on two workers.

Each configuration runs in a process with its own daemon, which measures one round at a time on request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benches.harness import Row, Target

# The limits of the dispatcher's time for a client's instruction, and for each worker's instruction that it becomes.
CLIENT_INSTRUCTION_S = 1e-6
WORKER_INSTRUCTION_S = 0.3e-6
# The time of a step on two workers of one core each, relative to one worker with two cores.
SPREAD = 1.15

PRELUDE = """
import json, sys, time
import gt
from gt import ShardConfig, SignalConfig
gt.gpu_workers(WORKERS)
gt.register_config("rows", SignalConfig(shard=ShardConfig(axis=0)))
gt.register_config("copies", SignalConfig(shard=ShardConfig(replicated=True)))
"""

# The dispatcher's time per instruction on a tensor `x`; `daemon` is the daemon's process.
DISPATCHER_ROUND = """
def spent_s():
    "The processor time of the daemon's first thread, the dispatcher."
    gt.synchronize()
    with open(f"/proc/{daemon}/task/{daemon}/schedstat") as file:
        return int(file.read().split()[0]) * 1e-9

def round_s():
    before = spent_s()
    y = x
    for i in range(COUNT):
        y = y + 1.0 if i % 2 else gt.maximum(y, x)
    return (spent_s() - before) / COUNT
"""

# A step of training of `model` on `x` and `y`.
TRAINING_STEP = """
import gt.nn.functional as F
from gt.nn import Linear, ReLU, Sequential

def step():
    loss = F.mse_loss(model(x), y)
    model.zero_grad()
    loss.backward()
    with gt.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    return loss
"""

# Tensors are just large enough that the dispatcher computes nothing itself. With one worker most steps run in the
# dispatcher's thread anyway, so they are as small as possible, and the kernels' time is included.
DISPATCH = (
    """
x = gt.signal.tensor(gt.rand(1 if WORKERS == 1 else WORKERS << 15), name="rows")
daemon = gt._gt.session_info()["daemon_pid"]
COUNT = 20_000 if WORKERS == 1 else 2000
"""
    + DISPATCHER_ROUND
)

TRAIN = (
    TRAINING_STEP
    + """
model = Sequential(Linear(256, 1024), ReLU(), Linear(1024, 256))
x, y = gt.rand(1024, 256), gt.rand(1024, 256)
if WORKERS > 1:
    for p in model.parameters():
        p.data = gt.signal.tensor(p.data, name="copies")
    x, y = gt.signal.tensor(x, name="rows"), gt.signal.tensor(y, name="rows")

def round_s():
    start = time.perf_counter()
    for _ in range(10):
        step()
    gt.synchronize()
    return (time.perf_counter() - start) / 10
"""
)

ANSWER = """
round_s()
for _ in sys.stdin:
    print(json.dumps(round_s()), flush=True)
"""


class Session:
    """A process with settings in its environment, which measures a round on request."""

    def __init__(self, workers: int, program: str, **settings: str) -> None:
        """Starts the process."""
        text = PRELUDE.replace("WORKERS", str(workers)) + program.replace("WORKERS", str(workers)) + ANSWER
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **settings}
        environment.pop("GT_SOCKET", None)
        environment.setdefault("GT_DAEMON", str(Path(sys.executable).with_name("gtd")))
        self.process = subprocess.Popen(
            [sys.executable, "-c", text], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def round_s(self) -> float:
        """Returns the measurement of one round."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the session ended"
        return float(json.loads(line))

    def end(self) -> None:
        """Ends the process."""
        self.process.communicate()


def rows() -> Iterator[Row]:
    """Yields the dispatcher's time per instruction with 1, 4 and 8 workers, and a step on two workers beside one."""
    for workers in (1, 4, 8):
        session = Session(workers, DISPATCH)
        allowed = CLIENT_INSTRUCTION_S + workers * WORKER_INSTRUCTION_S
        what = f"dispatcher, an instruction on {workers} worker{'s' if workers > 1 else ''}"
        yield Row(what, {"GT": session.round_s}, (Target(allowed),), rounds=5)
        session.end()
    one, two = Session(1, TRAIN), Session(2, TRAIN)
    what = "MLP step, batch 1024, 2 workers of one core beside 1 of two"
    yield Row(what, {"GT": two.round_s, "bare": one.round_s}, (Target(SPREAD, "bare"),), rounds=9)
    one.end()
    two.end()
