"""Training on several workers: however a configuration lays tensors out, the losses are those of one worker."""

from __future__ import annotations

import re
from functools import cache

import pytest
from support import ROOT
from test_examples import run

STEPS = 12


@cache
def losses(model: str, kind: str | None = None) -> list[float]:
    """What `examples/parallel.py` prints on four workers, with one of the configurations beside it or with none."""
    config = () if kind is None else ("--config", ROOT / "examples" / "sharding" / f"{model}_{kind}.yaml")
    told = run("-m", "gt.torch", ROOT / "examples" / "parallel.py", "--model", model, "--steps", STEPS, *config)
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", told)]


@pytest.mark.parametrize("kind", ["data", "tensor", "pipeline"])
@pytest.mark.parametrize("model", ["digits", "gpt"])
def test_losses_do_not_depend_on_where_things_lie(model: str, kind: str) -> None:
    if model == "digits":
        pytest.importorskip("sklearn", reason="the handwritten digits come with scikit-learn")
        pytest.importorskip("rich", reason="the network's program shows its progress with rich")
    alone = losses(model)
    assert len(alone) == STEPS
    assert alone[-1] < alone[0]
    assert losses(model, kind) == pytest.approx(alone, rel=0, abs=1e-4)
