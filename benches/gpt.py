"""A training step of a small GPT: forward, loss, backward, clipping, AdamW."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gt
from benches.harness import Row, Target, seconds_per_pass
from benches.peers import torch, with_torch
from tests.parity.gpt import Config, build

# The models, with the number of steps per measurement.
MODELS = {Config(): 5, Config(layers=6, heads=6, channels=384): 1}
BATCH = 4
LIMIT = 0.9


def _stepper(framework: Any, config: Config, passes: int) -> Callable[[], float]:
    framework.manual_seed(1)
    model = build(framework, config)
    optimizer = framework.optim.AdamW(model.parameters(), lr=1e-4)
    text = np.random.default_rng(1).integers(0, config.vocabulary, (BATCH, config.context + 1))
    tokens, targets = framework.from_numpy(text[:, :-1].copy()), framework.from_numpy(text[:, 1:].copy())
    last = [None]

    def step() -> None:
        loss = model(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        framework.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        last[0] = loss

    return lambda: seconds_per_pass(step, passes, lambda: last[0].item())


def rows() -> Iterator[Row]:
    """Yields a row for each model."""
    for config, passes in MODELS.items():
        contenders = {"GT": _stepper(gt, config, passes)}
        if torch:
            contenders |= with_torch(_stepper(torch, config, passes))
        name = f"GPT of {config.layers} layers, {config.channels} channels, {BATCH} × {config.context} tokens"
        yield Row(f"training step, {name}", contenders, (Target(LIMIT, "PyTorch"),))
