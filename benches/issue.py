"""The time a client takes to issue a small operation, and the time of a long chain of them up to its value.

Recording the line of Python that issues an operation must take at most 15 ns of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import gt
from benches.harness import Row, Target
from benches.peers import torch, with_torch

# An `a + b` whose result is dropped takes two of the 4,096 slots of the submission ring. A burst fits in the ring, so
# that the client is measured alone, without waiting for the daemon.
BURST_OPS = 1_000
BURSTS = 50
CHAIN_OPS = 100_000


def _issue_s(a: Any, b: Any) -> float:
    """Returns the median time of an `a + b` whose result is dropped at once."""
    times = []
    turns = range(BURST_OPS)
    for _ in range(BURSTS):
        start = time.perf_counter()
        for _ in turns:
            a + b
        times.append(time.perf_counter() - start)
        # Waits for the daemon, which a value that is fetched a second time does not.
        (a + b).sum().item()
    return statistics.median(times) / BURST_OPS


def _chain_s(start_value: Any, b: Any, ops: int) -> float:
    """Returns the time of a chain of additions, from the first to the value of the last."""
    start = time.perf_counter()
    x = start_value
    for _ in range(ops):
        x = x + b
    assert x.item() == ops + 1.0
    return time.perf_counter() - start


def _without_lines_s(a: Any) -> float:
    """Returns `_issue_s` while no lines are recorded."""
    gt.debug.record_lines(False)
    try:
        return _issue_s(a, a)
    finally:
        gt.debug.record_lines(True)


def rows() -> Iterator[Row]:
    """Yields the rows of the issue cost, with and without autograd, and of the long chain."""
    ours, numpys = gt.ones(1), np.ones(1, np.float32)
    torchs = torch.ones(1) if torch else None
    yield Row(
        "issue a + b, one element",
        {
            "GT": lambda: _issue_s(ours, ours),
            "NumPy": lambda: _issue_s(numpys, numpys),
            **with_torch(lambda: _issue_s(torchs, torchs)),
        },
        (Target(0.6, "NumPy"), Target(0.15, "PyTorch")),
    )

    yield Row(
        "issue a + b with its line (bare: without)",
        {"GT": lambda: _issue_s(ours, ours), "bare": lambda: _without_lines_s(ours)},
        (Target(1.1, "bare"),),
    )

    ours_grad = gt.ones(1, requires_grad=True)
    torchs_grad = torch.ones(1, requires_grad=True) if torch else None
    yield Row(
        "issue a + b, requires_grad",
        {
            "GT": lambda: _issue_s(ours_grad, ours_grad),
            **with_torch(lambda: _issue_s(torchs_grad, torchs_grad)),
        },
        (Target(0.2, "PyTorch"),),
    )

    yield Row(
        f"{CHAIN_OPS:,} chained adds, until the value is here",
        {
            "GT": lambda: _chain_s(ours, ours, CHAIN_OPS),
            "NumPy": lambda: _chain_s(numpys, numpys, CHAIN_OPS),
            **with_torch(lambda: _chain_s(torchs, torchs, CHAIN_OPS)),
        },
        (Target(0.5, "PyTorch"),),
        rounds=5,
    )
