"""AdamW, Adam's options, Adagrad, RMSprop and Adadelta over 20 steps, against their rules in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import to_numpy

import gt
from gt.optim import Adadelta, Adagrad, Adam, AdamW, Optimizer, RMSprop

STEPS = 20
START = np.array([[1.0, -2.0], [0.5, 3.0]])


def gradient(p: np.ndarray) -> np.ndarray:
    """Returns the gradient of `(p² / 2 + sin p).sum()`."""
    return p + np.cos(p)


def adam(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, amsgrad=False, maximize=False, decoupled=False):
    p, m, v, top = START.copy(), 0.0, 0.0, 0.0
    for step in range(1, STEPS + 1):
        g = -gradient(p) if maximize else gradient(p)
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        top = np.maximum(top, v)
        mean, square = m / (1 - betas[0] ** step), (top if amsgrad else v) / (1 - betas[1] ** step)
        p = p - lr * mean / (np.sqrt(square) + eps)
    return p


def adamw(weight_decay=1e-2, **options):
    return adam(weight_decay=weight_decay, decoupled=True, **options)


def adagrad(lr=1e-2, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0, eps=1e-10, maximize=False):
    p, total = START.copy(), initial_accumulator_value
    for step in range(STEPS):
        g = (-gradient(p) if maximize else gradient(p)) + weight_decay * p
        total = total + g * g
        p = p - lr / (1 + step * lr_decay) * g / (np.sqrt(total) + eps)
    return p


def rmsprop(lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0.0, momentum=0.0, centered=False, maximize=False):
    p, square, mean, direction = START.copy(), 0.0, 0.0, 0.0
    for _ in range(STEPS):
        g = (-gradient(p) if maximize else gradient(p)) + weight_decay * p
        square, mean = alpha * square + (1 - alpha) * g * g, alpha * mean + (1 - alpha) * g
        direction = momentum * direction + g / (np.sqrt(square - mean * mean if centered else square) + eps)
        p = p - lr * direction
    return p


def adadelta(lr=1.0, rho=0.9, eps=1e-6, weight_decay=0.0, maximize=False):
    p, square, moved = START.copy(), 0.0, 0.0
    for _ in range(STEPS):
        g = (-gradient(p) if maximize else gradient(p)) + weight_decay * p
        square = rho * square + (1 - rho) * g * g
        delta = np.sqrt(moved + eps) / np.sqrt(square + eps) * g
        moved = rho * moved + (1 - rho) * delta * delta
        p = p - lr * delta
    return p


def cases() -> Iterator[Any]:
    for make, rule, options in [
        (Adam, adam, {"amsgrad": True, "lr": 0.3}),
        (Adam, adam, {"maximize": True, "weight_decay": 0.1}),
        (AdamW, adamw, {}),
        (AdamW, adamw, {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True, "maximize": True}),
        (Adagrad, adagrad, {}),
        (Adagrad, adagrad, {"lr": 0.1, "lr_decay": 0.05, "weight_decay": 0.1, "initial_accumulator_value": 0.3}),
        (Adagrad, adagrad, {"maximize": True, "eps": 0.1}),
        (RMSprop, rmsprop, {}),
        (RMSprop, rmsprop, {"momentum": 0.9, "centered": True, "weight_decay": 0.1, "alpha": 0.9}),
        (RMSprop, rmsprop, {"maximize": True}),
        (Adadelta, adadelta, {}),
        (Adadelta, adadelta, {"lr": 2.0, "rho": 0.8, "weight_decay": 0.1, "maximize": True, "eps": 1e-3}),
    ]:
        yield pytest.param(make, rule, options, id=f"{make.__name__}-{options}")


def step_often(optimizer: Optimizer, p: gt.Tensor, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        (p**2 / 2 + p.sin()).sum().backward()
        optimizer.step()


@pytest.mark.parametrize(("make", "rule", "options"), list(cases()))
def test_twenty_steps(make: type[Optimizer], rule: Callable[..., np.ndarray], options: dict[str, Any]) -> None:
    p = gt.tensor(START, requires_grad=True)
    step_often(make([p], **options), p, STEPS)
    np.testing.assert_allclose(to_numpy(p), rule(**options), rtol=1e-8)


@pytest.mark.parametrize(("make", "rule", "options"), list(cases()))
def test_steps_go_on_from_a_saved_state(
    make: type[Optimizer], rule: Callable[..., np.ndarray], options: dict[str, Any]
) -> None:
    p = gt.tensor(START, requires_grad=True)
    optimizer = make([p], **options)
    step_often(optimizer, p, 7)
    q = p.detach().clone().requires_grad_()
    resumed = make([q])
    resumed.load_state_dict(optimizer.state_dict())
    step_often(resumed, q, STEPS - 7)
    np.testing.assert_allclose(to_numpy(q), rule(**options), rtol=1e-8)


def test_groups_have_options_of_their_own() -> None:
    p, q = gt.tensor(START, requires_grad=True), gt.tensor(START, requires_grad=True)
    optimizer = AdamW([{"params": [p], "weight_decay": 0.0}, {"params": [q], "lr": 0.1}], lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        sum((t**2 / 2 + t.sin()).sum() for t in (p, q)).backward()
        optimizer.step()
    np.testing.assert_allclose(to_numpy(p), adamw(0.0, lr=0.05), rtol=1e-8)
    np.testing.assert_allclose(to_numpy(q), adamw(lr=0.1), rtol=1e-8)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (AdamW, {"lr": -1.0}, "Invalid learning rate: -1.0"),
        (AdamW, {"betas": (0.9, 1.0)}, "beta parameter at index 1"),
        (Adagrad, {"lr_decay": -1.0}, "Invalid lr_decay value"),
        (RMSprop, {"momentum": -1.0}, "Invalid momentum value"),
        (Adadelta, {"rho": 1.5}, "Invalid rho value"),
    ],
)
def test_options_out_of_range(make: type[Optimizer], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make([gt.zeros(1, requires_grad=True)], **options)
