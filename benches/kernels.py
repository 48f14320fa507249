"""Matrix products in f32. NumPy is left out: OpenBLAS's threads keep spinning and would slow the next contender."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gt
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch, with_torch

SHAPES = ((512, 512, 512), (1024, 1024, 1024), (256, 768, 3072))
# Products per measurement: so many that the small fetch at the end, which waits for all of them, hardly counts.
PASSES = 20


def _contender(a: Any, b: Any, corner: Callable[[Any], object]) -> Callable[[], float]:
    last = [a @ b]

    def product() -> None:
        last[0] = a @ b

    return lambda: seconds_per_pass(product, PASSES, lambda: corner(last[0]))


def rows() -> Iterator[Row]:
    """Yields a row for each shape."""
    numbers = np.random.default_rng(1)
    for m, k, n in SHAPES:
        a = numbers.standard_normal((m, k), dtype=np.float32)
        b = numbers.standard_normal((k, n), dtype=np.float32)
        contenders = {"GT": _contender(gt.from_numpy(a), gt.from_numpy(b), lambda c: c[0, 0].item())}
        if torch:
            contenders |= with_torch(_contender(torch.from_numpy(a), torch.from_numpy(b), lambda c: c[0, 0].item()))
        yield Row(f"matmul {m} × {k} × {n}, f32", contenders, (Target(0.95, "PyTorch", speed=True),))
