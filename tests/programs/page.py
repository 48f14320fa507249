"""The page with the table of programs, which is dated: docs/programs.md."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

from tests.programs.runner import DIFFERENCE_MAX, RATIO_MAX, ROUNDS, Outcome, summary

TEXT = """# Programs and libraries, tried

`make test-programs` runs these programs, unmodified, in PyTorch and by `python -m gt.torch`, with the same
weights and batches. A model is built from a configuration with random weights; one step is its
forward pass, its backward pass and a step of SGD, unless the program has an optimizer or a training loop of its own.
Nothing is dropped out, since random numbers differ. Twelve models are compared in float64, as their names say: in
float32, their gradients hang on rounding. PyTorch's own differ from its float64 ones by 0.27 of the largest for
resnet50, 0.03 to 0.16 for densenet121, 0.11 for regnet_y_400mf and 0.03 for squeezenet1_1.

- **difference**: the largest difference of an element of the outputs, the gradients, or the weights after the step,
  over the largest magnitude in the same tensor. Up to {difference:g}, the program counts as equal.
- **time**: GT's time for a step over PyTorch's. The two take turns, {rounds} each, and the medians are compared. The
  goal is at most {ratio:g}.

{date}, {machine}: {summary}.{untimed}

| program | with | results | difference | time | PyTorch |
|---|---|---|---|---|---|
{rows}

## Training scripts, as published

These are no packages that could be installed, so they were run by hand, unmodified, on 29 November 2026. The texts of
makemore and llm.c are the published ones; those of minGPT, nanoGPT and PyTorch's examples are of forks, with the
forks' changes taken back. Both sides drew their random numbers (initial weights, batches, dropout, samples) from NumPy,
so that each loss that is printed can be compared; with their own random numbers, the losses fall alike.

| script | what was run | results |
|---|---|---|
| makemore | all six models, 61 steps with four workers; transformer and MLP 501 steps, resumed, sampled | losses equal (1e-7 after 501 steps), names equal |
| minGPT | adder for 101 steps, and with dropout; chargpt for 21 | losses and 500 sampled characters equal |
| nanoGPT | `prepare.py`, `train.py` 4 × 128 for 41 steps, resumed to 60, `sample.py`, each from the other's checkpoint | losses and text equal |
| llm.c | `train_gpt2.py --model d12`, 3 steps with validation and sample; `--flash 1`; `--write_tensors 1` | losses equal to 1e-6, files of weights equal to the byte |
| PyTorch's examples: MNIST, VAE, regression, DCGAN, super resolution | an epoch, or 8 to 425 batches | losses equal to 1e-6 |
| word language model | LSTM, GRU, RNN and transformer, an epoch each | LSTM equal; GRU and RNN equal in float64, where float32 is not rounded up by a rate of 5; transformer 103.42 for 103.41 |
| REINFORCE, actor-critic | until both are solved | equal for 90 and 40 episodes; then a rounded float32 changes an action |
| time sequence prediction | one step | both refuse its file under `weights_only`; without, the losses printed are equal to 1e-13 |

llm.c's vocabulary could not be downloaded, and was replaced on both sides.
"""


def write(outcomes: list[Outcome], path: Path) -> None:
    """Writes the page."""
    rows = []
    for outcome in outcomes:
        difference = "" if outcome.difference is None else f"{outcome.difference:.1e}"
        ratio = "" if outcome.ratio is None else f"{outcome.ratio:.2f}"
        seconds = "" if outcome.torch_s is None else f"{outcome.torch_s * 1e3:.{1 if outcome.torch_s < 0.1 else 0}f} ms"
        results = outcome.status + (f": {outcome.reason}" if outcome.reason else "").replace("|", "\\|")
        cells = (outcome.name, outcome.version, results, difference, ratio, seconds)
        rows.append(f"| {' | '.join(cells)} |")
    today = datetime.datetime.now(tz=datetime.timezone.utc)
    text = TEXT.format(
        difference=DIFFERENCE_MAX,
        rounds=ROUNDS,
        ratio=RATIO_MAX,
        date=f"{today.day} {today:%B %Y}",
        machine=f"{os.cpu_count()} CPU cores, Python {platform.python_version()}",
        summary=summary(outcomes),
        untimed="" if any(outcome.ratio for outcome in outcomes) else " Times were not taken.",
        rows="\n".join(rows),
    )
    path.write_text(text)
