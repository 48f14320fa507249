"""Training of a GPT-2 in steps: gradients of several batches, clipping, AdamW, validation."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import gt
from gt import Tensor
from gt.llm import parallel
from gt.llm.model import GPT2
from gt.llm.schedules import OutlierDetector, learning_rate
from gt.llm.tokens import TokenLoader

CLIP = 1.0


@dataclass
class Settings:
    """How a model is trained; the names of `python -m gt.llm.train`."""

    steps: int
    total_batch: int
    lr: float = 3e-4
    schedule: str = "cosine"
    warmup: int = 0
    final_fraction: float = 1.0
    decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    skip_loss: float = 0.0
    skip_norm: float = 0.0
    bfloat16: bool = False
    recompute: bool = False


class Report(NamedTuple):
    """The figures of one step of training."""

    loss: float
    loss_z: float
    norm: float
    norm_z: float
    lr: float
    skipped: bool


class Trainer:
    """Steps of training.

    Args:
        model: The model, whose parameters are float32.
        loader: The batches.
        settings: How to train.

    Raises:
        ValueError: The total batch is no multiple of a batch of the loader.
    """

    def __init__(self, model: GPT2, loader: TokenLoader, settings: Settings) -> None:
        batch_tokens = loader.batch * loader.length
        if settings.total_batch % batch_tokens:
            raise ValueError(
                f"a total batch of {settings.total_batch} tokens is no multiple of {loader.batch} × {loader.length}"
            )
        self.model, self.loader, self.settings = model, loader, settings
        self.accumulated = settings.total_batch // batch_tokens
        self.optimizer = model.optimizer(settings.lr, settings.betas, settings.eps, settings.decay)
        self.step = 0
        self.losses, self.norms = OutlierDetector(), OutlierDetector()

    def advance(self) -> Report:
        """Trains one step.

        Raises:
            RuntimeError: The loss is no number: the parameters are as before.
        """
        s = self.settings
        self.optimizer.zero_grad(set_to_none=True)
        losses: list[Tensor] = []
        for _ in range(self.accumulated):
            inputs, targets = self.loader.next_batch()
            loss = self.loss(inputs, targets) / self.accumulated
            loss.backward()
            losses.append(loss.detach())
        for parameter in self.model.parameters():
            # The sums over the workers of dp go to where the update needs them.
            parameter.grad = gt.signal.tensor(parameter.grad, name=parallel.UPDATE)
        norm = gt.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        # One wait for both.
        found = gt.stack([gt.stack(losses).sum(), norm]).tolist()
        loss_z, norm_z = self.losses.update(found[0]), self.norms.update(found[1])
        rate = learning_rate(s.schedule, self.step, s.steps, s.lr, s.warmup, s.final_fraction)
        if not math.isfinite(found[0]):
            raise RuntimeError(
                f"the loss of step {self.step} is {found[0]}: lower the learning rate, or warm up longer"
            )
        # Comparisons with NaN are false.
        skipped = bool((s.skip_loss and loss_z > s.skip_loss) or (s.skip_norm and norm_z > s.skip_norm))
        if skipped:
            # AdamW's bias correction counts all steps, as in llm.c.
            for state in self.optimizer.state.values():
                state["step"] += 1
        else:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            with gt.signal.context(parallel.UPDATE):
                self.optimizer.step()
        self.step += 1
        return Report(found[0], loss_z, found[1], norm_z, rate, skipped)

    def loss(self, inputs: np.ndarray, targets: np.ndarray) -> Tensor:
        """Returns the mean loss of a batch."""
        x, y = (gt.signal.tensor(gt.tensor(part), name=parallel.BATCH) for part in (inputs, targets))
        device = "cuda" if gt.cuda.is_available() else "cpu"
        half = gt.autocast(device, dtype=gt.bfloat16) if self.settings.bfloat16 else contextlib.nullcontext()
        with half:
            _, loss = self.model(x, y, recompute=self.settings.recompute)
        return loss

    @gt.no_grad()
    def validate(self, loader: TokenLoader, batches: int) -> float:
        """Returns the mean loss of the first batches of a loader."""
        loader.reset()
        losses = [self.loss(*loader.next_batch()) for _ in range(batches)]
        return float(gt.stack(losses).mean())
