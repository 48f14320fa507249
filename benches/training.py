"""A training step of a small network: forward, loss, backward, SGD."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gt
import gt.nn
import gt.optim
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch, with_torch

LAYERS = (784, 256, 10)
# The time of a step relative to PyTorch's, by batch size.
TARGETS = {32: 0.7, 512: 0.9}
STEPS = 60


def _stepper(
    framework: Any, nn: Any, optim: Any, loss_of: Callable[[Any, Any], Any], batch: int
) -> Callable[[], float]:
    """Returns a function that runs training steps, from the same source for either framework."""
    numbers = np.random.default_rng(1)
    x = framework.from_numpy(numbers.standard_normal((batch, LAYERS[0]), dtype=np.float32))
    y = framework.from_numpy(numbers.integers(0, LAYERS[-1], batch))
    model = nn.Sequential(nn.Linear(LAYERS[0], LAYERS[1]), nn.ReLU(), nn.Linear(LAYERS[1], LAYERS[2]))
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    last = [None]

    def step() -> None:
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last[0] = loss

    return lambda: seconds_per_pass(step, STEPS, lambda: last[0].item())


def rows() -> Iterator[Row]:
    """Yields a row for each batch size."""
    for batch, limit in TARGETS.items():
        contenders = {"GT": _stepper(gt, gt.nn, gt.optim, gt.nn.cross_entropy_loss, batch)}
        if torch:
            cross_entropy = torch.nn.functional.cross_entropy
            contenders |= with_torch(_stepper(torch, torch.nn, torch.optim, cross_entropy, batch))
        name = "-".join(map(str, LAYERS))
        yield Row(f"training step, MLP {name}, batch {batch}", contenders, (Target(limit, "PyTorch"),))
