"""Collectives between ranks of one machine, beside copying the same bytes with as many threads.

The rows come from `collectives/examples/bandwidth.rs`, which alternates with `memcpy` on the same threads or processes
and between the same buffers. The column "bare" is a lower bound: an all-reduce of `b` bytes, like an all-gather to `b`
bytes, reads and writes at least `b` bytes per rank, which is one copy of `b` bytes by all ranks at once, from the first
start to the last end. If there are more ranks than cores, the ranks share the cores in both.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benches.harness import Row, Target

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SPEED = 0.5


class _Bandwidth:
    """One line of the example's output: GT's time, and the bound printed with it, the column "bare"."""

    def __init__(self, program: Path, *arguments: str) -> None:
        self.command = [str(program), *arguments]
        self.bound_s = 0.0

    def ours(self) -> float:
        line = subprocess.run(self.command, check=True, capture_output=True, text=True).stdout
        *_, ours_s, bound_s, _ratio = line.split()
        self.bound_s = float(bound_s)
        return float(ours_s)

    def bound(self) -> float:
        return self.bound_s


def rows() -> Iterator[Row]:
    """Yields a row for each way to share memory, operation, number of ranks and size."""
    build = ["cargo", "build", "--quiet", "--release", "--package", "gt-collectives", "--example", "bandwidth"]
    subprocess.run(build, cwd=ROOT, check=True)
    for how in ("threads", "processes"):
        for operation in ("all_reduce", "all_gather"):
            for ranks in (2, 4):
                for megabytes in (1, 16, 64):
                    program = TARGET / "release" / "examples" / "bandwidth"
                    run = _Bandwidth(program, how, operation, str(ranks), str(megabytes << 20))
                    what = f"{operation} of {megabytes} MB, {ranks} {how}"
                    yield Row(what, {"GT": run.ours, "bare": run.bound}, (Target(SPEED, "bare", speed=True),), rounds=3)
