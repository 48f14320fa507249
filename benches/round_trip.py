"""The time from asking for a value to having it, with a daemon that is polling and with one that sleeps."""

from __future__ import annotations

import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import gt
from benches.harness import Row, Target
from benches.peers import torch, with_torch

HOT_PASSES = 500
IDLE_PASSES = 30
# Long enough for the daemon and its workers to stop polling and block. The example futex_pair pauses as long.
IDLE_S = 0.02


def _hot_s(a: Any, b: Any) -> float:
    """Returns the median time of `(a + b).item()` in a tight loop."""
    times = []
    for _ in range(HOT_PASSES):
        start = time.perf_counter()
        (a + b).item()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _idle_s(a: Any, b: Any) -> float:
    """Returns the median time of `(a + b).item()` after pauses in which all threads go to sleep."""
    times = []
    for _ in range(IDLE_PASSES):
        time.sleep(IDLE_S)
        start = time.perf_counter()
        (a + b).item()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _futex_pair_s() -> float:
    """Returns the time in which two idle processes wake each other, as the example program of `gt-shm` measures it."""
    command = ["cargo", "run", "--quiet", "--release", "--package", "gt-shm", "--example", "futex_pair"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    number = re.search(r"between processes, each after [^:]* idleness: ([\d.]+) (ns|µs)", printed)
    assert number, f"futex_pair printed no time: {printed!r}"
    return float(number[1]) * {"ns": 1e-9, "µs": 1e-6}[number[2]]


def rows() -> Iterator[Row]:
    """Yields the rows of a polling and of a sleeping daemon."""
    ours = gt.ones(1)
    torchs = torch.ones(1) if torch else None
    yield Row(
        "(a + b).item(), daemon hot",
        {"GT": lambda: _hot_s(ours, ours), **with_torch(lambda: _hot_s(torchs, torchs))},
        (Target(15e-6),),
    )
    yield Row(
        "(a + b).item(), daemon idle; bare: a futex wake pair",
        {
            "GT": lambda: _idle_s(ours, ours),
            **with_torch(lambda: _idle_s(torchs, torchs)),
            "bare": _futex_pair_s,
        },
        (Target(4, "bare"),),
    )
