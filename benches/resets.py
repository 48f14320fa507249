"""`python -m benches.resets`, as root: trains on two nodes while their connections are reset, and once undisturbed.

`ss --kill` resets the connections of this program's own processes. After each round the loss and the parameters must
have the bits of the undisturbed run.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from benches.nodes import cluster, end_process, read_line, start_process
from benches.workers import TRAINING_STEP

STEPS_PER_ROUND = 20
RESETS_PER_ROUND = 4
# The time between two resets, in which a link is resumed and some steps run.
PAUSE_S = 0.05

TRAIN = (
    TRAINING_STEP
    + """
import sys
import gt
from gt import ShardConfig, SignalConfig
workers = list(range(5))
gt.register_config("rows", SignalConfig(shard=ShardConfig(axis=0, workers=workers)))
gt.register_config("copies", SignalConfig(shard=ShardConfig(replicated=True, workers=workers)))
gt.manual_seed(1)
model = Sequential(Linear(64, 128), ReLU(), Linear(128, 32))
for p in model.parameters():
    p.data = gt.signal.tensor(p.data, name="copies")
x, y = (gt.signal.tensor(gt.rand(320, size), name="rows") for size in (64, 32))
for line in sys.stdin:
    for _ in range(int(line)):
        loss = step()
    print(loss.item().hex(), *(p.abs().sum().item().hex() for p in model.parameters()), flush=True)
"""
)


def _descendants(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [found for child in children for found in (child, *_descendants(child))]


def _reset() -> int:
    """Resets the established connections between processes of this program, and returns their number."""
    command = ["ss", "--no-header", "--tcp", "--numeric", "--processes", "state", "established", "src", "127.0.0.1"]
    own = set(_descendants(os.getpid()))
    ports = set()
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        _, _, here, _, *users = line.split()
        if any(int(pid) in own for pid in re.findall(r"pid=(\d+)", " ".join(users))):
            ports.add(here.rpartition(":")[2])
    killed = 0
    for port in ports:
        kill = ["ss", "--kill", "--no-header", "--tcp", "--numeric", "sport", "=", f":{port}"]
        killed += len(subprocess.run(kill, check=True, capture_output=True, text=True).stdout.splitlines())
    # Each connection has two ends here.
    return killed // 2


def _results(rounds: int | None, resets: int) -> tuple[list[str], int]:
    """Trains for so many rounds, or until there were so many resets; returns each round's result, and the resets."""
    results: list[str] = []
    done = 0
    with cluster(2) as socket:
        client = start_process([sys.executable, "-c", TRAIN], GT_SOCKET=socket)
        while len(results) < rounds if rounds is not None else done < resets:
            assert client.stdin is not None
            client.stdin.write(f"{STEPS_PER_ROUND}\n")
            client.stdin.flush()
            for _ in range(RESETS_PER_ROUND if rounds is None else 0):
                time.sleep(PAUSE_S)
                done += _reset()
            results.append(read_line(client))
        end_process(client)
    return results, done


def main() -> int:
    """Returns 1 if a result differs."""
    parser = argparse.ArgumentParser(prog="python -m benches.resets", description=__doc__)
    parser.add_argument("--resets", type=int, default=1000, metavar="N", help="connections to reset [default: 1000]")
    wanted = parser.parse_args().resets
    disturbed, resets = _results(None, wanted)
    undisturbed, _ = _results(len(disturbed), 0)
    differ = [number for number, pair in enumerate(zip(disturbed, undisturbed, strict=True)) if pair[0] != pair[1]]
    steps = len(disturbed) * STEPS_PER_ROUND
    print(f"{resets} connections were reset in {steps} steps; {len(differ)} of {len(disturbed)} results differ")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
