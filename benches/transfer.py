"""Uploads and downloads of a large array, beside a copy within this process."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

import gt
from benches.harness import Row, Target

BYTES = 100_000_000


def rows() -> Iterator[Row]:
    """Yields the rows of an upload, until the daemon has used it, and a download, until NumPy has it."""
    source = np.ones(BYTES // 4, np.float32)
    copy = np.empty_like(source)
    there = gt.from_numpy(source)

    def memcpy() -> float:
        start = time.perf_counter()
        np.copyto(copy, source)
        return time.perf_counter() - start

    def up() -> float:
        start = time.perf_counter()
        tensor = gt.from_numpy(source)
        # Fetching an element waits until the daemon has the whole array.
        assert tensor[-1].item() == 1.0
        return time.perf_counter() - start

    def down() -> float:
        start = time.perf_counter()
        array = there.numpy()
        elapsed = time.perf_counter() - start
        assert array[-1] == 1.0
        return elapsed

    yield Row("100 MB up, from_numpy(); bare: memcpy", {"GT": up, "bare": memcpy}, (Target(0.7, "bare", speed=True),))
    yield Row("100 MB down, numpy(); bare: memcpy", {"GT": down, "bare": memcpy}, (Target(0.7, "bare", speed=True),))
