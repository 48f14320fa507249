"""The time of common functions on small tensors, and of a step of policy gradients (REINFORCE, Williams 1992).

A function that returns before it is executed is measured alone, as in `issue.py`; one that waits for values is measured
with its wait.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import gt
from benches.harness import Row, Target
from benches.peers import torch, with_torch

# Bursts are short enough that what a call issues fits in the submission ring: the client is measured alone, without
# waiting for the daemon.
BURST_CALLS = 150
BURSTS = 40
# Calls that wait for a value have no bursts.
WAITING_CALLS = 300
STEPS = 100
SAMPLES = 16
OBSERVATIONS, HIDDEN, ACTIONS = 4, 32, 2


def _issue_s(framework: Any, work: Callable[[], object]) -> float:
    """Returns the median time of one call whose result is dropped at once."""
    one = framework.ones(1)
    times = []
    turns = range(BURST_CALLS)
    for _ in range(BURSTS):
        start = time.perf_counter()
        for _ in turns:
            work()
        times.append(time.perf_counter() - start)
        # Waits for the daemon, which a value that is fetched a second time does not.
        (one + one).item()
    return statistics.median(times) / BURST_CALLS


def _waiting_s(_: Any, work: Callable[[], object], calls: int = WAITING_CALLS) -> float:
    """Returns the median time of one call that waits for values."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _einsum(framework: Any) -> Callable[[], object]:
    a, b = framework.randn(4, 8), framework.randn(8, 4)
    return lambda: framework.einsum("ik,kj->ij", a, b)


def _cat(framework: Any) -> Callable[[], object]:
    parts = [framework.randn(4) for _ in range(3)]
    return lambda: framework.cat(parts)


def _randn(framework: Any) -> Callable[[], object]:
    return lambda: framework.randn(SAMPLES)


def _row(framework: Any) -> Callable[[], object]:
    x = framework.randn(SAMPLES, 4)
    return lambda: x[3]


def _slice(framework: Any) -> Callable[[], object]:
    x = framework.randn(SAMPLES, 4)
    return lambda: x[1:5]


def _transpose(framework: Any) -> Callable[[], object]:
    x = framework.randn(SAMPLES, 4)
    return lambda: x.transpose(0, 1)


def _max(framework: Any) -> Callable[[], object]:
    x = framework.randn(SAMPLES, 4)
    return lambda: x.max(0)


def _sum(framework: Any) -> Callable[[], object]:
    x = framework.randn(SAMPLES, 4)
    return lambda: x.sum()


def _dropout_eval(framework: Any) -> Callable[[], object]:
    x, dropout = framework.randn(SAMPLES, 4), framework.nn.functional.dropout
    return lambda: dropout(x, 0.5, False)


def _multinomial(framework: Any) -> Callable[[], object]:
    weights = framework.rand(SAMPLES) + 0.1
    return lambda: framework.multinomial(weights, 1)


def _categorical(framework: Any) -> Callable[[], object]:
    probs = framework.softmax(framework.randn(ACTIONS), -1)
    return lambda: framework.distributions.Categorical(probs=probs).sample()


def _tolist(framework: Any) -> Callable[[], object]:
    return framework.randn(1_000).tolist


def _policy_gradient(framework: Any) -> Callable[[], object]:
    """Returns one step: an action is drawn from the policy, and the policy is changed along its gradient."""
    framework.manual_seed(0)
    nn = framework.nn
    policy = nn.Sequential(nn.Linear(OBSERVATIONS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, ACTIONS), nn.Softmax(-1))
    optimizer = framework.optim.Adam(policy.parameters(), lr=1e-3)
    observation = framework.randn(OBSERVATIONS)

    def step() -> int:
        policies = framework.distributions.Categorical(probs=policy(observation))
        action = policies.sample()
        chosen = action.item()
        reward = 1.0 if chosen == 0 else -1.0
        loss = -policies.log_prob(action) * reward
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return chosen

    return step


def rows() -> Iterator[Row]:
    """Yields a row for each function, and the row of the step."""
    for what, measure, prepare in (
        ('issue einsum("ik,kj->ij")', _issue_s, _einsum),
        ("issue cat of three tensors", _issue_s, _cat),
        ("issue randn(16)", _issue_s, _randn),
        ("issue x[3]", _issue_s, _row),
        ("issue x[1:5]", _issue_s, _slice),
        ("issue x.transpose(0, 1)", _issue_s, _transpose),
        ("issue x.max(0)", _issue_s, _max),
        ("issue x.sum()", _issue_s, _sum),
        ("dropout in eval", _issue_s, _dropout_eval),
        ("multinomial of 16 weights", _waiting_s, _multinomial),
        ("Categorical(probs).sample()", _waiting_s, _categorical),
        ("tolist of 1,000 floats", _waiting_s, _tolist),
        ("policy gradient step", _waiting_s, _policy_gradient),
    ):
        contenders = {}
        ours = prepare(gt)
        contenders["GT"] = lambda measure=measure, ours=ours: measure(gt, ours)
        if torch is not None:
            theirs = prepare(torch)
            contenders |= with_torch(lambda measure=measure, theirs=theirs: measure(torch, theirs))
        yield Row(what, contenders, (Target(1.0, "PyTorch"),), rounds=5)
