"""The training curve: the same GPT, from the same weights, on the same batches, in both frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import gt
from tests.parity import gpt

TEXT = Path(__file__).resolve().parents[2] / "LICENSE"
STEPS = 40
BATCH = 4
LEARNING_RATE = 1e-4
DIFFERENCE_MAX = 1e-4


def _batches(config: gpt.Config) -> list[tuple[np.ndarray, np.ndarray]]:
    """Yields pieces of a text as bytes, with the same pieces one byte later as targets."""
    text = np.frombuffer(TEXT.read_bytes(), np.uint8).astype(np.int64)
    rng = np.random.default_rng(0)
    batches = []
    for _ in range(STEPS):
        starts = rng.integers(0, len(text) - config.context - 1, BATCH)
        pieces = np.stack([text[start : start + config.context + 1] for start in starts])
        batches.append((pieces[:, :-1].copy(), pieces[:, 1:].copy()))
    return batches


def _losses(framework: Any, model: Any, batches: list[tuple[np.ndarray, np.ndarray]]) -> list[float]:
    optimizer = framework.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    losses = []
    for tokens, targets in batches:
        loss = model(framework.from_numpy(tokens), framework.from_numpy(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses() -> tuple[list[float], list[float]]:
    """Returns PyTorch's and GT's losses of each step."""
    config = gpt.Config()
    torch.manual_seed(0)
    theirs, ours = gpt.build(torch, config), gpt.build(gt, config)
    # Small initial weights, as usual for GPTs: the first loss is that of uniform guesses.
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.ndim == 2:
                parameter.normal_(0, 0.02)
    ours.load_state_dict({name: gt.from_numpy(t.numpy()) for name, t in theirs.state_dict().items()})
    batches = _batches(config)
    return _losses(torch, theirs, batches), _losses(gt, ours, batches)


def follows() -> tuple[bool, str]:
    """Returns whether the two curves are close at each step, and a description."""
    theirs, ours = losses()
    largest = max(abs(a - b) for a, b in zip(theirs, ours, strict=True))
    good = largest <= DIFFERENCE_MAX
    return good, (
        f"Training curve of a GPT, {STEPS} steps, loss {theirs[0]:.4f} to {theirs[-1]:.4f}: the largest difference is "
        f"{largest:.1e}, {'within' if good else 'FAILED, more than'} {DIFFERENCE_MAX:.0e}."
    )
