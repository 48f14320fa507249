"""The page with the table of programs, which is dated: docs/programs.md."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

from tests.programs.runner import DIFFERENCE_MAX, RATIO_MAX, ROUNDS, ROUNDS_OF_DOUBT, Outcome, summary

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
  goal is at most {ratio:g}; where it seems to be missed, {more} turns each count.

{date}, {machine}: {summary}.{untimed}

| program | with | results | difference | time | PyTorch |
|---|---|---|---|---|---|
{rows}
"""


# Results of runs by hand, which stay on the page.
PUBLISHED = Path(__file__).with_name("published.txt")


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
        more=ROUNDS_OF_DOUBT,
        ratio=RATIO_MAX,
        date=f"{today.day} {today:%B %Y}",
        machine=f"{os.cpu_count()} CPU cores, Python {platform.python_version()}",
        summary=summary(outcomes),
        untimed="" if any(outcome.ratio for outcome in outcomes) else " Times were not taken.",
        rows="\n".join(rows),
    )
    path.write_text(f"{text}\n{PUBLISHED.read_text()}")
