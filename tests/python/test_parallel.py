"""Training on several workers: with every sharding, the losses are those of one worker."""

from __future__ import annotations

import re
from functools import cache

import pytest
from support import ROOT
from test_examples import run

STEPS = 12


@cache
def trained(model: str, kind: str | None = None) -> tuple[list[float], dict[str, str]]:
    """Runs `examples/parallel.py`; returns its losses and the placements of its parameters.

    It runs on four workers with a configuration of `examples/sharding`, or on one worker.
    """
    config = ("--workers", 1) if kind is None else ("--config", ROOT / "examples" / "sharding" / f"{model}_{kind}.yaml")
    told = run("-m", "gt.torch", ROOT / "examples" / "parallel.py", "--model", model, "--steps", STEPS, *config)
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", told)], dict(re.findall(r"(\S+) lies (.*)", told))


ALL = "[cpu:0, cpu:1, cpu:2, cpu:3]"
LIES = {
    ("digits", "data"): {"fc1.weight": f"replicated on {ALL}", "fc2.bias": f"replicated on {ALL}"},
    ("digits", "tensor"): {
        "fc1.weight": f"sharded along axis 0 over {ALL}",
        "fc1.bias": f"sharded along axis 0 over {ALL}",
        "fc2.weight": f"sharded along axis 1 over {ALL}",
    },
    ("digits", "pipeline"): {"fc1.weight": "on cpu:0", "fc1.bias": "on cpu:0", "fc2.weight": "on cpu:1"},
    ("gpt", "data"): {"transformer.h.0.attn.c_attn.weight": f"replicated on {ALL}"},
    ("gpt", "tensor"): {
        "transformer.h.1.attn.c_attn.weight": f"sharded along axis 0 over {ALL}",
        "transformer.h.0.mlp.c_proj.weight": f"sharded along axis 1 over {ALL}",
        "transformer.h.1.mlp.c_proj.weight": f"sharded along axis 1 over {ALL}",
    },
    ("gpt", "mesh"): {
        "transformer.h.1.attn.c_attn.weight": f"replicated over 2 rows of {ALL}, sharded along axis 0 within a row",
        "transformer.h.0.mlp.c_proj.weight": f"replicated over 2 rows of {ALL}, sharded along axis 1 within a row",
    },
    ("gpt", "pipeline"): {"transformer.h.0.mlp.c_fc.weight": "on cpu:0", "transformer.h.1.mlp.c_fc.weight": "on cpu:1"},
}


@pytest.mark.parametrize(("model", "kind"), LIES)
def test_losses_do_not_depend_on_where_things_lie(model: str, kind: str) -> None:
    if model == "digits":
        pytest.importorskip("sklearn", reason="the handwritten digits come with scikit-learn")
        pytest.importorskip("rich", reason="the network's program shows its progress with rich")
    alone, _ = trained(model)
    losses, places = trained(model, kind)
    assert len(alone) == STEPS
    assert alone[-1] < alone[0]
    assert losses == pytest.approx(alone, rel=0, abs=1e-4)
    wanted = LIES[model, kind]
    assert {name: places[name] for name in wanted} == wanted
