"""Adafactor and Muon against their definitions in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support import assert_close

import gt
from gt import nn, optim

GRADS = [np.random.default_rng(seed).standard_normal((4, 3)) for seed in range(3)]
START = np.random.default_rng(9).standard_normal((4, 3))


def stepped(optimizer: type, **options: object) -> gt.Tensor:
    p = nn.Parameter(gt.tensor(START))
    made = optimizer([p], **options)
    for grad in GRADS:
        p.grad = gt.tensor(grad)
        made.step()
    return p


def test_adafactor_keeps_rows_and_columns() -> None:
    p, row, column = START.copy(), np.zeros((4, 1)), np.zeros((1, 3))
    for n, grad in enumerate(GRADS, 1):
        share = n**-0.8
        size = max(1e-3, math.sqrt(np.mean(p**2)))
        p = p * (1 - 0.1 * 0.01)
        row += (np.mean(grad**2, 1, keepdims=True) - row) * share
        column += (np.mean(grad**2, 0, keepdims=True) - column) * share
        update = grad / np.sqrt(row @ column / np.mean(row))
        p = p - min(0.1, 1 / math.sqrt(n)) * size * update / max(1.0, math.sqrt(np.mean(update**2)))
    assert_close(stepped(optim.Adafactor, lr=0.1, weight_decay=0.01), p, tolerance=1e-9)


def test_adafactor_keeps_all_of_a_vector() -> None:
    p = nn.Parameter(gt.ones(3))
    made = optim.Adafactor([p])
    p.grad = gt.tensor([1.0, 2.0, -3.0])
    made.step()
    assert sorted(made.state[p]) == ["step", "variance"]
    assert_close(p, [0.99, 0.99, 1.01], tolerance=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": -1}, "Learning rate should be >= 0 but is: -1"),
        ({"beta2_decay": 1}, "beta2_decay should be <= 0 but is: 1"),
        ({"eps": (-1, 0)}, "epsilon1 should be >= 0 but is: -1"),
        ({"d": 0.5}, "Clipping threshold d should be >= 1 but is: 0.5"),
    ],
)
def test_adafactor_checks_its_options(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        optim.Adafactor([nn.Parameter(gt.ones(1))], **options)


@pytest.mark.parametrize("match", [False, True])
def test_steps_of_muon_are_near_orthogonal(match: bool) -> None:
    p = nn.Parameter(gt.tensor(START))
    made = optim.Muon([p], lr=1.0, weight_decay=0.0, adjust_lr_fn="match_rms_adamw" if match else None)
    p.grad = gt.tensor(GRADS[0])
    made.step()
    step = (START - p.detach().numpy()) / (0.2 * 2 if match else math.sqrt(4 / 3))
    u, _, vt = np.linalg.svd(GRADS[0], full_matrices=False)
    singular = np.linalg.svd(step)[1]
    assert 0.6 < singular.min() <= singular.max() < 1.3
    # The step has the singular vectors of the gradient.
    assert np.trace(u.T @ step @ vt.T) == pytest.approx(singular.sum(), rel=0.05)


def test_muon_is_for_matrices() -> None:
    with pytest.raises(ValueError, match=r"only supports 2D parameters whereas we found a parameter with size"):
        optim.Muon([nn.Parameter(gt.ones(2))])
    with pytest.raises(ValueError, match="Adjust learning rate function x is not supported"):
        optim.Muon([nn.Parameter(gt.ones(2, 2))], adjust_lr_fn="x")
