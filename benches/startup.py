"""The time from starting a process to its first printed result, including the start of the private daemon."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from benches.harness import Row, Target
from benches.peers import with_torch

LIMIT_S = 0.150
RUNS = 3
# Variables that would distort the comparison: another daemon, or compiling GT's modules in each run.
LEFT_OUT = {"GT_SOCKET", "PYTHONDONTWRITEBYTECODE"}


def _process_s(program: str) -> float:
    """Returns the median wall time of a Python process that runs `program`."""
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        with tempfile.TemporaryFile() as out:
            subprocess.run([sys.executable, "-c", program], check=True, stdout=out, env=environment)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _beyond_numpy_s(program: str) -> float:
    """Returns the time of `program` beyond that of importing NumPy, which all these packages import."""
    return _process_s(program) - _process_s("import numpy")


def rows() -> Iterator[Row]:
    """Yields the row of the first result."""
    yield Row(
        "fresh process to its first printed result, beyond NumPy's import",
        {
            "GT": lambda: _beyond_numpy_s("import gt; print(gt.ones(3) + 1)"),
            **with_torch(lambda: _beyond_numpy_s("import torch; print(torch.ones(3) + 1)")),
        },
        (Target(LIMIT_S),),
        rounds=5,
    )
