"""Optimizers against their rules in NumPy, and training that converges."""

from __future__ import annotations

import numpy as np
import pytest
from support import to_numpy

import gt
from gt import nn
from gt.optim import SGD, Adam

START = np.array([[1.0, -2.0], [0.5, 3.0]])
STEPS = 6


def gradient(p: np.ndarray) -> np.ndarray:
    """Returns the gradient of `(p⁴ / 4 + sin p).sum()`."""
    return p**3 + np.cos(p)


def run(make: object) -> np.ndarray:
    """Returns a parameter after a few steps of an optimizer."""
    p = gt.tensor(START, requires_grad=True)
    optimizer = make([p])
    for _ in range(STEPS):
        optimizer.zero_grad()
        (p**4 / 4 + p.sin()).sum().backward()
        optimizer.step()
    return to_numpy(p)


def sgd_by_hand(lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):
    p, direction = START.copy(), None
    for _ in range(STEPS):
        g = gradient(p) * (-1 if maximize else 1) + weight_decay * p
        if momentum:
            direction = g.copy() if direction is None else momentum * direction + (1 - dampening) * g
            g = g + momentum * direction if nesterov else direction
        p = p - lr * g
    return p


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.8, "dampening": 0.3},
        {"weight_decay": 0.1},
        {"weight_decay": 0.1, "momentum": 0.5, "nesterov": True},
        {"maximize": True, "weight_decay": 0.2, "momentum": 0.9},
    ],
    ids=str,
)
def test_sgd(options: dict[str, float]) -> None:
    np.testing.assert_allclose(run(lambda p: SGD(p, lr=0.01, **options)), sgd_by_hand(0.01, **options), rtol=1e-10)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam(weight_decay: float) -> None:
    p, m, v = START.copy(), np.zeros_like(START), np.zeros_like(START)
    for step in range(1, STEPS + 1):
        g = gradient(p) + weight_decay * p
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p - 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(run(lambda q: Adam(q, lr=0.01, weight_decay=weight_decay)), p, rtol=1e-9)


def test_a_plain_step_is_one_instruction_a_parameter(tmp_path: object) -> None:
    from support import output_of

    log = tmp_path / "ops.log"
    output_of(
        "import gt\n"
        "ps = [gt.ones(3, requires_grad=True) for _ in range(4)]\n"
        "for p in ps: p.grad = gt.ones(3)\n"
        "opt = gt.optim.SGD(ps, lr=0.1)\n"
        "gt.synchronize()\n"
        "opt.step()\n"
        "assert [p.tolist()[0] for p in ps][0] < 1\n",
        GT_INSTRUCTION_LOG=str(log),
    )
    received = [line for line in log.read_text().splitlines() if "| RECV " in line]
    after = received[max(i for i, line in enumerate(received) if "op=sync" in line) + 1 :]
    steps = [line for line in after if not any(f"op={other}" in line for other in ("fetch", "free"))]
    assert len(steps) == 4
    assert all("op=addcmul" in line for line in steps)


def test_parameters_without_a_gradient_stay() -> None:
    p, q = gt.ones(2, requires_grad=True), gt.ones(2, requires_grad=True)
    optimizer = SGD([p, q], lr=0.1, momentum=0.9, weight_decay=0.1)
    p.sum().backward()
    optimizer.step()
    assert q.tolist() == [1, 1]
    assert p.tolist() != [1, 1]
    assert p.is_leaf
    assert p.requires_grad


def test_groups_have_options_of_their_own_and_may_change() -> None:
    p, q = gt.ones(1, requires_grad=True), gt.ones(1, requires_grad=True)
    optimizer = SGD([{"params": [p]}, {"params": q, "lr": 0.5}], lr=0.25)
    for t in (p, q):
        t.grad = gt.ones(1)
    optimizer.step()
    assert (p.item(), q.item()) == (0.75, 0.5)
    for group in optimizer.param_groups:
        group["lr"] = 0.125
    optimizer.step()
    assert (p.item(), q.item()) == (0.625, 0.375)
    assert "Parameter Group 1" in repr(optimizer)


def test_zero_grad() -> None:
    p = gt.ones(2, requires_grad=True)
    optimizer = SGD([p], lr=0.1)
    p.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert p.grad is None


def test_a_closure_computes_the_loss() -> None:
    p = gt.ones(1, requires_grad=True)
    optimizer = SGD([p], lr=0.1)

    def closure() -> gt.Tensor:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 1
    assert p.item() == pytest.approx(0.8)


@pytest.mark.parametrize(
    "kind", [lambda p: SGD(p, lr=0.05, momentum=0.9), lambda p: Adam(p, lr=0.05)], ids=["SGD", "Adam"]
)
def test_state_goes_on_where_it_was(kind: object) -> None:
    def steps(p: gt.Tensor, optimizer: object, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            (p**4).sum().backward()
            optimizer.step()

    p = gt.tensor(START, requires_grad=True)
    optimizer = kind([p])
    steps(p, optimizer, 3)
    q = p.detach().clone().requires_grad_()
    resumed = kind([q])
    resumed.load_state_dict(optimizer.state_dict())
    steps(p, optimizer, 3)
    steps(q, resumed, 3)
    np.testing.assert_array_equal(to_numpy(p), to_numpy(q))
    with pytest.raises(ValueError, match="different number of parameter groups"):
        kind([{"params": [q]}, {"params": [gt.ones(1, requires_grad=True)]}]).load_state_dict(optimizer.state_dict())


def test_a_gradient_that_is_changed_in_place_leaves_the_momentum_alone() -> None:
    p = gt.zeros(1, requires_grad=True)
    optimizer = SGD([p], lr=1.0, momentum=0.5)
    p.grad = gt.ones(1)
    optimizer.step()
    p.grad.zero_()
    optimizer.step()
    assert p.item() == -1.5


def test_bad_arguments() -> None:
    p = gt.ones(1, requires_grad=True)
    for bad, message in [
        ({"lr": -1.0}, "learning rate"),
        ({"momentum": -1.0}, "momentum"),
        ({"nesterov": True}, "Nesterov"),
    ]:
        with pytest.raises(ValueError, match=message):
            SGD([p], **bad)
    with pytest.raises(ValueError, match="empty parameter list"):
        SGD([])
    with pytest.raises(TypeError, match="iterable of Tensors"):
        SGD(p)
    with pytest.raises(ValueError, match="non-leaf"):
        SGD([p * 2])
    with pytest.raises(ValueError, match="more than one parameter group"):
        SGD([{"params": [p]}, {"params": [p]}])
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        SGD([1.0])


def test_an_mlp_learns_a_circle() -> None:
    gt.manual_seed(1)
    rng = np.random.default_rng(1)
    points = rng.uniform(-1, 1, (400, 2)).astype(np.float32)
    inside = ((points**2).sum(1) < 0.5).astype(np.int64)
    x, y = gt.from_numpy(points), gt.from_numpy(inside)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = SGD(model.parameters(), lr=0.5, momentum=0.9)
    for _ in range(150):
        loss = nn.cross_entropy_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    with gt.no_grad():
        assert (model(x).argmax(1) == y).float().mean().item() > 0.97
