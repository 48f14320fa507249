"""Programs compute the same whether their hot paths are planned or not, and the statistics tell what was planned."""

from __future__ import annotations

import json
import textwrap

import pytest
from support import python

import gt

POLICIES = {"off": {"GT_AUTO_COMPILE": "0"}, "on": {}, "at once": {"GT_COMPILE": "1"}}

# Each prints a list of the bits of its results.
BEGIN = """
import json, random, threading
import numpy as np
import gt
import gt.nn.functional as F
from gt import nn
gt.manual_seed(3)
def bits(*tensors):
    return [np.asarray(t.detach().numpy()).tobytes().hex() for t in tensors]
out = []
"""
END = """
(stats, *_) = gt.debug.get_worker_stats().values()
keys = ("hot_instructions", "cold_instructions", "cache_hits", "cache_misses", "unique_sequences", "hot_sequences")
print(json.dumps([out, {key: stats[key] for key in keys}]))
"""

MODEL = """
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = gt.optim.Adam(model.parameters(), lr=1e-2)
scheduler = gt.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
data, classes = gt.rand(100, 20), gt.randint(0, 4, (100,))
def step(begin, size):
    loss = F.cross_entropy(model(data[begin : begin + size]), classes[begin : begin + size])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""

PROGRAMS = {
    "an epoch whose last batch is smaller": MODEL
    + """
for epoch in range(5):
    for begin in range(0, 100, 16):
        loss = step(begin, 16)
    scheduler.step()
out += bits(loss, *model.parameters())
""",
    "accumulated gradients and evaluations": MODEL
    + """
for n in range(12):
    optimizer.zero_grad()
    for part in range(4):
        (F.cross_entropy(model(data[16 * part : 16 * part + 16]), classes[16 * part : 16 * part + 16]) / 4).backward()
    optimizer.step()
    if n % 3 == 2:
        with gt.no_grad():
            for begin in range(0, 100, 25):
                out += bits((model(data[begin : begin + 25]).argmax(1) == classes[begin : begin + 25]).sum())
out += bits(*model.parameters())
""",
    "decisions by values, and dropout": """
layer = nn.Linear(16, 16)
x = gt.rand(8, 16)
for n in range(60):
    y = F.dropout(layer(x).tanh(), 0.3)
    x = y - y.mean() if y.sum().item() > 0 else y + 0.5
    out += bits(x.abs().max())
""",
    "exceptions in mid-step": """
x, total = gt.arange(6), gt.zeros(2)
for n in range(60):
    index = gt.tensor([n % 6, 7 if n % 20 == 19 else 1])
    try:
        total = total + x[index] * 2
        out += bits(total)
    except (IndexError, RuntimeError) as error:
        out.append(type(error).__name__)
        total = gt.zeros(2)
""",
    "several threads": """
x = gt.rand(8, 8)
results = [None] * 3
def work(n):
    y = x * (n + 1)
    for _ in range(100):
        y = (y @ x).tanh() + x
        y = y - y.mean(0)
    results[n] = y
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
out += bits(*results)
""",
    "tensors that are freed in any order": """
order = random.Random(5)
x, kept = gt.rand(4, 4), []
for n in range(200):
    kept.append((x @ x).sigmoid() * 0.9 + x * 0.1)
    x = kept[-1]
    order.shuffle(kept)
    del kept[order.randrange(1, 6) :]
out += bits(x, *sorted(kept, key=lambda tensor: tensor.sum().item()))
""",
}


def run(program: str, **env: str) -> tuple[list[str], dict[str, int]]:
    done = python(textwrap.dedent(BEGIN + program + END), **env)
    assert done.returncode == 0, done.stderr
    out, stats = json.loads(done.stdout.splitlines()[-1])
    assert stats["cache_hits"] + stats["cache_misses"] == stats["hot_instructions"]
    assert stats["hot_sequences"] <= stats["unique_sequences"] or stats["unique_sequences"] == 0
    return out, stats


@pytest.mark.parametrize("workers", ["cpu:1", "cpu:4"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_have_the_same_bits_with_and_without_plans(name: str, workers: str) -> None:
    expected, without = run(PROGRAMS[name], GT_WORKERS=workers, **POLICIES["off"])
    assert not any(without.values())
    for policy in ("on", "at once"):
        found, stats = run(PROGRAMS[name], GT_WORKERS=workers, **POLICIES[policy])
        assert found == expected, policy
        assert name == "several threads" or stats["cache_hits"] > 0, policy


def test_most_of_a_training_is_planned() -> None:
    program = MODEL + "for n in range(60): loss = step(0, 16)\nout += bits(loss)"
    _, stats = run(program)
    assert stats["cache_hits"] > 0.8 * (stats["hot_instructions"] + stats["cold_instructions"]), stats


def test_what_is_planned_is_told() -> None:
    done = python("import gt\ny = gt.ones(3)\nfor _ in range(200): y = y * 1.5\ny.sum().item()", GT_DEBUG_COMPILE="1")
    assert "comes to a hot path" in done.stderr, done.stderr
    assert "sequence=1" in done.stderr


def test_a_signal_forbids_plans() -> None:
    program = """
        gt.register_config("plain", gt.SignalConfig(compile={compile}))
        y = gt.rand(3)
        with gt.signal.context("plain"):
            for _ in range(200):
                y = y * 0.5 + 1
        out += bits(y)
    """
    program = textwrap.dedent(program)
    _, forbidden = run(program.replace("{compile}", "False"))
    _, planned = run(program.replace("{compile}", "None"))
    _, asked = run(program.replace("{compile}", "True"), **POLICIES["off"])
    assert forbidden["cache_hits"] == 0
    assert planned["cache_hits"] > 200
    assert asked["cache_hits"] > 200


def test_statistics_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    y = gt.rand(3)
    for _ in range(100):
        y = y * 0.5 + 1
    y.sum().item()
    gt.debug.print_worker_stats()
    assert "sequences that repeat" in capsys.readouterr().out
