"""Optimizers against PyTorch's numbers; their hooks, state dicts and names; averaged models."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support import assert_close

import gt
from gt import nn, optim
from gt.optim import lr_scheduler, swa_utils

# Eight steps of PyTorch 2.15 on the sum of x⁴/4 plus the product of all x, from (1, -2, 3).
OF_PYTORCH = [
    (
        "SGD",
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        [1.144208747719, -1.837761477526, 2.305403632352],
    ),
    (
        "SGD",
        {"momentum": 0.9, "dampening": 0.1, "maximize": True, "lr": 0.01},
        [-8.917346255226, -7.972120541796, 40470.29796919031],
    ),
    ("AdamW", {"amsgrad": True}, [1.007916950981, -1.991845167885, 2.991762246458]),
    ("Adamax", {"weight_decay": 0.1, "maximize": True}, [0.984074438756, -2.01586156753, 3.015944963948]),
    ("NAdam", {"weight_decay": 0.1}, [1.012775741287, -1.987252010118, 2.98720970478]),
    (
        "NAdam",
        {"weight_decay": 0.1, "decoupled_weight_decay": True},
        [1.011163075548, -1.984077847226, 2.98243277387],
    ),
    ("RAdam", {"lr": 0.1}, [1.054701419248, -0.225027586132, -1.680450094041]),
    (
        "RAdam",
        {"weight_decay": 0.1, "decoupled_weight_decay": True, "lr": 0.1},
        [0.989416718568, -0.18211869871, -1.633002685718],
    ),
    ("Rprop", {"lr": 0.1}, [1.4072, -1.5064, 1.35009152]),
    ("ASGD", {"lr": 0.1, "t0": 2, "weight_decay": 0.1}, [0.959029380056, -0.958934342842, 0.930336925645]),
    ("LBFGS", {"lr": 0.5, "max_iter": 3}, [1.00105225862, -1.001676119781, 1.00159657271]),
]


def parameter() -> gt.Tensor:
    return nn.Parameter(gt.tensor([1.0, -2.0, 3.0], dtype=gt.float64))


def walk(optimizer: optim.Optimizer, p: gt.Tensor, steps: int) -> None:
    def closure() -> gt.Tensor:
        optimizer.zero_grad()
        loss = (p**4).sum() / 4 + p.prod()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize(("name", "options", "wanted"), OF_PYTORCH)
def test_steps_are_pytorch_s(name: str, options: dict[str, Any], wanted: list[float]) -> None:
    p = parameter()
    walk(getattr(optim, name)([p], **options), p, 8)
    assert_close(p, wanted, tolerance=1e-6)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "ASGD", "Adagrad"])
def test_training_goes_on_from_a_state_dict(name: str) -> None:
    p, q = parameter(), parameter()
    first, second = getattr(optim, name)([p]), getattr(optim, name)([q])
    walk(first, p, 5)
    with gt.no_grad():
        q.copy_(p)
    state = first.state_dict()
    assert (state["state"][0]["step"].dtype, state["state"][0]["step"].item()) == (gt.float32, 5.0)
    assert list(state["param_groups"][0])[-1] == "params"
    second.load_state_dict(state)
    walk(first, p, 5)
    walk(second, q, 5)
    assert_close(q, p.detach().numpy(), tolerance=1e-8)  # ASGD keeps its rate as float32, as in PyTorch.


def test_choices_among_implementations_are_kept_and_change_nothing() -> None:
    p, q = parameter(), parameter()
    walk(optim.Adam([p], foreach=True, fused=False, capturable=True), p, 3)
    walk(optim.Adam([q]), q, 3)
    assert p.tolist() == q.tolist()
    assert optim.Adam([p], fused=True).state_dict()["param_groups"][0]["fused"] is True
    with pytest.raises(NotImplementedError, match="differentiable=True is not there"):
        optim.SGD([p], differentiable=True)


def test_parameters_may_come_with_their_names() -> None:
    net = nn.Linear(2, 1)
    optimizer = optim.SGD(net.named_parameters(), lr=0.1)
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    with pytest.raises(TypeError, match="ordered collections"):
        optimizer.add_param_group({"params": {parameter()}})
    with pytest.raises(TypeError, match="param_group must be a dict"):
        optimizer.add_param_group([parameter()])


def test_hooks_come_before_and_after() -> None:
    p, seen = parameter(), []
    optimizer = optim.SGD([p], lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    handle = optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.register_state_dict_post_hook(lambda _, state: {**state, "mine": 1})
    walk(optimizer, p, 1)
    handle.remove()
    walk(optimizer, p, 1)
    assert seen == ["before", "after", "before"]
    assert optimizer.state_dict()["mine"] == 1


def test_lbfgs_finds_a_valley_s_floor() -> None:
    p = nn.Parameter(gt.tensor([-1.5, 2.0], dtype=gt.float64))
    optimizer = optim.LBFGS([p], lr=0.5, max_iter=100)

    def closure() -> gt.Tensor:
        optimizer.zero_grad()
        loss = (1 - p[0]) ** 2 + 5 * (p[1] - p[0] ** 2) ** 2
        loss.backward()
        return loss

    for _ in range(5):
        optimizer.step(closure)
    assert_close(p, [1.0, 1.0], tolerance=1e-4)
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        optim.LBFGS([p], line_search_fn="armijo")


def test_lbfgs_searches_along_each_direction() -> None:
    """Minimises Rosenbrock's function, where steps of 1 diverge; losses and counts are PyTorch's."""
    p = nn.Parameter(gt.tensor([-1.5, 2.0], dtype=gt.float64))
    optimizer = optim.LBFGS([p], max_iter=10, line_search_fn="strong_wolfe")

    def closure() -> gt.Tensor:
        optimizer.zero_grad()
        loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
        loss.backward()
        return loss

    losses = [float(optimizer.step(closure)) for _ in range(3)]
    assert_close(gt.tensor(losses), [12.5, 4.546767747883813, 1.4363331975262201], tolerance=1e-5)
    assert (optimizer.state[p]["func_evals"], optimizer.state[p]["n_iter"]) == (37, 27)


def test_further_schedules() -> None:
    def rates(name: str, steps: int, **options: Any) -> list[float]:
        optimizer = optim.SGD([parameter()], lr=1.0)
        schedule = getattr(lr_scheduler, name)(optimizer, **options)
        found = [schedule.get_last_lr()[0]]
        for _ in range(steps):
            schedule.step()
            found.append(schedule.get_last_lr()[0])
        return found

    assert rates("PolynomialLR", 3, total_iters=2, power=2.0) == [1.0, 0.25, 0.0, 0.0]
    assert rates("MultiplicativeLR", 2, lr_lambda=lambda epoch: 1 / (1 + epoch)) == [1.0, 0.5, 0.5 / 3]
    warm = rates("CosineAnnealingWarmRestarts", 6, T_0=2, T_mult=2)
    assert warm == pytest.approx([1, 0.5, 1, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 1])


def test_a_mean_of_models() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    averaged = swa_utils.AveragedModel(net)
    for value in (1.0, 2.0, 6.0):
        nn.init.constant_(net[0].weight, value)
        averaged.update_parameters(net)
    assert averaged.module[0].weight.tolist() == [[3, 3], [3, 3]]
    forgetful = swa_utils.AveragedModel(net, avg_fn=swa_utils.get_ema_avg_fn(0.5))
    for value in (1.0, 3.0):
        nn.init.constant_(net[0].weight, value)
        forgetful.update_parameters(net)
    assert forgetful.module[0].weight.tolist() == [[2, 2], [2, 2]]
    data = [gt.randn(8, 2) for _ in range(3)]
    swa_utils.update_bn(data, averaged)
    seen = gt.stack([averaged.module[0](x).mean(0) for x in data]).mean(0)
    assert_close(averaged.module[1].running_mean, seen.detach().numpy())


def test_the_rate_goes_over_to_that_of_averaging() -> None:
    optimizer = optim.SGD([parameter()], lr=1.0)
    schedule = swa_utils.SWALR(optimizer, swa_lr=0.2, anneal_epochs=2, anneal_strategy="linear")
    found = []
    for _ in range(3):
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    assert found == pytest.approx([0.6, 0.2, 0.2])


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_climbs(search: str | None) -> None:
    x = gt.nn.Parameter(gt.tensor([3.0, -2.0]))
    optimizer = gt.optim.LBFGS([x], max_iter=20, line_search_fn=search, maximize=True)

    def closure() -> gt.Tensor:
        optimizer.zero_grad()
        value = -((x - 1) ** 2).sum()
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(closure)
    assert x.tolist() == pytest.approx([1, 1], abs=1e-4)


@pytest.mark.parametrize("decay", [None, 0.9])
def test_means_of_many_parameters_at_once(decay: float | None) -> None:
    utils = gt.optim.swa_utils
    many = utils.get_swa_multi_avg_fn() if decay is None else utils.get_ema_multi_avg_fn(decay)
    one = utils.get_swa_avg_fn() if decay is None else utils.get_ema_avg_fn(decay)
    model = gt.nn.Linear(2, 1)
    together, apart = utils.AveragedModel(model, multi_avg_fn=many), utils.AveragedModel(model, avg_fn=one)
    for _ in range(3):
        model.weight.data.add_(1.0)
        together.update_parameters(model)
        apart.update_parameters(model)
    assert together.module.weight.tolist() == apart.module.weight.tolist()
    with pytest.raises(AssertionError, match="Only one of avg_fn and multi_avg_fn"):
        utils.AveragedModel(model, avg_fn=one, multi_avg_fn=many)
