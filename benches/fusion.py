"""Elementwise expressions of large tensors, in f32, whose intermediate results fusion keeps out of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gt
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch, with_torch

CHAIN_LIMIT = 0.7
TEMPORARIES_LIMIT = 0.4
# 100 MB of float32.
LARGE = 25_000_000


def _chain(x: Any, b: Any) -> Any:
    """A chain of twelve elementwise operations."""
    x = (x + b) * 1.5 - b
    x = (x.abs() + 1.0).sqrt()
    x = (x * b).relu() + 0.5
    return (x / 2.0 - b).tanh()


EXPRESSIONS: tuple[tuple[str, Callable[..., Any], int, int, int, float], ...] = (
    # Name, expression, number of operands, their elements, passes per measurement, target.
    ("chain of 12 operations, 1e6 elements", _chain, 2, 1_000_000, 10, CHAIN_LIMIT),
    ("chain of 12 operations, 1e7 elements", _chain, 2, 10_000_000, 2, CHAIN_LIMIT),
    ("a + b, 100 MB", lambda a, b: a + b, 2, LARGE, 2, TEMPORARIES_LIMIT),
    ("(a * b + c).relu(), 100 MB", lambda a, b, c: (a * b + c).relu(), 3, LARGE, 2, TEMPORARIES_LIMIT),
)


def _contender(expression: Callable[..., Any], operands: list[Any], passes: int) -> Callable[[], float]:
    last: list[Any] = [None]

    def work() -> None:
        last[0] = expression(*operands)

    def measured() -> float:
        seconds = seconds_per_pass(work, passes, lambda: last[0][0].item())
        last[0] = None
        return seconds

    return measured


def rows() -> Iterator[Row]:
    """Yields a row for each expression."""
    numbers = np.random.default_rng(1)
    for name, expression, count, elements, passes, limit in EXPRESSIONS:
        arrays = [numbers.standard_normal(elements, dtype=np.float32) for _ in range(count)]
        contenders = {"GT": _contender(expression, [gt.from_numpy(array) for array in arrays], passes)}
        if torch:
            contenders |= with_torch(_contender(expression, [torch.from_numpy(array) for array in arrays], passes))
        yield Row(name, contenders, (Target(limit, "PyTorch"),))
