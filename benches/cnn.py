"""A training step of a small convolutional network for images of 28 x 28: forward, loss, backward, Adadelta."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gt
import gt.nn.functional
import gt.optim
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch, with_torch

BATCH = 64
# The time of a step relative to PyTorch's.
TARGET = 0.9
STEPS = 6


def _stepper(framework: Any) -> Callable[[], float]:
    """Returns a function that runs training steps, from the same source for either framework."""
    nn, functional = framework.nn, framework.nn.functional

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(1, 32, 3)
            self.conv2 = nn.Conv2d(32, 64, 3)
            self.dropout1 = nn.Dropout(0.25)
            self.dropout2 = nn.Dropout(0.5)
            self.fc1 = nn.Linear(9216, 128)
            self.fc2 = nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            x = functional.relu(self.conv1(x))
            x = functional.relu(self.conv2(x))
            x = self.dropout1(functional.max_pool2d(x, 2))
            x = functional.relu(self.fc1(framework.flatten(x, 1)))
            return functional.log_softmax(self.fc2(self.dropout2(x)), dim=1)

    numbers = np.random.default_rng(1)
    x = framework.from_numpy(numbers.standard_normal((BATCH, 1, 28, 28), dtype=np.float32))
    y = framework.from_numpy(numbers.integers(0, 10, BATCH))
    model = Net()
    optimizer = framework.optim.Adadelta(model.parameters(), lr=1.0)
    last = [None]

    def step() -> None:
        optimizer.zero_grad()
        loss = functional.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        last[0] = loss

    return lambda: seconds_per_pass(step, STEPS, lambda: last[0].item())


def rows() -> Iterator[Row]:
    """Yields the row of the training step."""
    contenders = {"GT": _stepper(gt)}
    if torch:
        contenders |= with_torch(_stepper(torch))
    yield Row(f"training step, CNN 28 x 28, batch {BATCH}", contenders, (Target(TARGET, "PyTorch"),))
