"""Connectionist temporal classification (Graves et al. 2006): the forward-backward algorithm on log-probabilities.

The states of a sample are its labels with a blank before, between and after them.
"""

from __future__ import annotations

import math

import torch

NOWHERE = -math.inf


class Alignments:
    """The samples of a batch: `emitted` (time, samples, states), `labels` (samples, states), `sizes` (samples, 2)."""

    def __init__(self, emitted: torch.Tensor, labels: torch.Tensor, sizes: torch.Tensor) -> None:
        self.emitted = emitted
        self.time, _, states = emitted.shape
        self.state = torch.arange(states, device=emitted.device)
        # Sizes beyond the operands' are cut off, as the CPU backend does.
        self.steps = sizes[:, :1].clamp(0, self.time)
        self.last = 2 * sizes[:, 1:].clamp(0, (states - 1) // 2)
        self.within = self.state <= self.last
        # Whether a path may come to a state from the one before the last: over a blank between different labels.
        skips = (self.state % 2 == 1) & (self.state > 2) & (labels != labels.roll(2, 1))
        self.gates = torch.where(skips, 0.0, NOWHERE).to(emitted.dtype)

    def reached(self, sums: torch.Tensor) -> torch.Tensor:
        """Returns log-probabilities, with none for the states after a sample's last."""
        return torch.where(self.within, sums, NOWHERE)

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the losses, (samples, 1), and the forward variables, (time, samples, states)."""
        old = torch.full_like(self.emitted[:1].sum(0), NOWHERE)
        rows = []
        for t, emitted in enumerate(self.emitted):
            if t == 0:
                new = torch.where(self.state < 2, emitted, NOWHERE)
            else:
                ways = old, shifted(old, 1), shifted(old, 2) + self.gates
                new = emitted + torch.stack(ways).logsumexp(0)
            new, going = self.reached(new), t < self.steps
            rows.append(torch.where(going, new, NOWHERE))
            old = torch.where(going, new, old)
        ends = old.gather(1, self.last), torch.where(self.last > 0, old.gather(1, (self.last - 1).clamp(0)), NOWHERE)
        empty = torch.where(self.last == 0, 0.0, math.inf).to(old.dtype)
        losses = torch.where(self.steps == 0, empty, -torch.stack(ends).logsumexp(0))
        return losses, torch.stack(rows) if rows else self.emitted.clone()

    def posteriors(self, losses: torch.Tensor, forward: torch.Tensor) -> torch.Tensor:
        """Returns the posterior probabilities, (time, samples, states)."""
        old = torch.full_like(losses.expand(-1, len(self.state)), NOWHERE)
        rows = []
        for t in reversed(range(self.time)):
            emitted = self.emitted[t]
            ways = old, shifted(old, -1), shifted(old + self.gates, -2)
            ends = torch.where(self.state >= self.last - 1, emitted, NOWHERE)
            new = torch.where(t + 1 == self.steps, ends, emitted + torch.stack(ways).logsumexp(0))
            new, going = self.reached(new), t < self.steps
            # Both variables contain the emission of their state, so one is taken off.
            through = (forward[t] + new - emitted + losses).exp()
            found = going & self.within & (forward[t] != NOWHERE) & (new != NOWHERE)
            rows.append(torch.where(found, through, 0.0))
            old = torch.where(going, new, old)
        return torch.stack(rows[::-1]) if rows else self.emitted.clone()


def shifted(rows: torch.Tensor, by: int) -> torch.Tensor:
    """Returns what each state has of the one so many before it; states without one have no paths."""
    moved = rows.roll(by, 1)
    if by > 0:
        moved[:, :by] = NOWHERE
    else:
        moved[:, by:] = NOWHERE
    return moved


def ctc_forward(emitted: torch.Tensor, labels: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """Returns a row for each sample: its loss, then its forward variables."""
    losses, variables = Alignments(emitted, labels, sizes).forward()
    return torch.cat([losses, variables.transpose(0, 1).flatten(1)], 1)


def ctc_posteriors(
    emitted: torch.Tensor, labels: torch.Tensor, sizes: torch.Tensor, variables: torch.Tensor
) -> torch.Tensor:
    """Returns the posterior probabilities of the states, from the result of `ctc_forward`."""
    time, samples, states = emitted.shape
    rows = variables[:, 1:].reshape(samples, time, states).transpose(0, 1)
    return Alignments(emitted, labels, sizes).posteriors(variables[:, :1], rows)


OPS = {"ctc_forward": ctc_forward, "ctc_posteriors": ctc_posteriors}
