"""Learning rates after each step: closed formulas, and sequences computed by PyTorch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import gt
from gt.optim import SGD, Adam
from gt.optim import lr_scheduler as schedulers

STEPS = 14


def optimizer(make: type = SGD, **options: Any) -> Any:
    """Returns an optimizer of two groups, with rates 0.1 and 0.4."""
    first, second = gt.zeros(1, requires_grad=True), gt.zeros(1, requires_grad=True)
    return make([{"params": [first]}, {"params": [second], "lr": 0.4}], lr=0.1, **options)


def rates(own: Any, scheduler: Any, steps: int = STEPS, metrics: Any = None) -> list[list[float]]:
    """Returns the rates at the start and after each step."""
    seen = []
    for step in range(steps):
        seen.append([group["lr"] for group in own.param_groups])
        assert scheduler.get_last_lr() == seen[-1]
        own.step()
        scheduler.step(*([] if metrics is None else [metrics[step]]))
    return seen


def cosine(step: int, steps: int, low: float, high: float) -> float:
    return low + (high - low) * (1 + math.cos(math.pi * step / steps)) / 2


FACTORS = [
    ("LambdaLR", (lambda e: 0.9**e,), lambda e: 0.9**e),
    ("StepLR", (3, 0.5), lambda e: 0.5 ** (e // 3)),
    ("MultiStepLR", ([2, 9, 5, 5], 0.3), lambda e: 0.3 ** ((e >= 2) + 2 * (e >= 5) + (e >= 9))),
    ("ExponentialLR", (0.8,), lambda e: 0.8**e),
    ("ConstantLR", (), lambda e: 1 / 3 if e < 5 else 1),
    ("ConstantLR", (0.5, 3), lambda e: 0.5 if e < 3 else 1),
    ("LinearLR", (), lambda e: 1 / 3 + 2 / 3 * min(e, 5) / 5),
    ("LinearLR", (0.1, 0.7, 9), lambda e: 0.1 + 0.6 * min(e, 9) / 9),
    ("CosineAnnealingLR", (8,), lambda e: cosine(e, 8, 0, 1)),
]


@pytest.mark.parametrize(("name", "arguments", "factor"), FACTORS, ids=lambda v: v if isinstance(v, str) else "")
def test_factors(name: str, arguments: tuple[Any, ...], factor: Callable[[int], float]) -> None:
    own = optimizer()
    seen = rates(own, getattr(schedulers, name)(own, *arguments))
    for step, (first, second) in enumerate(seen):
        assert first == pytest.approx(0.1 * factor(step), rel=1e-9, abs=1e-15)
        assert second == pytest.approx(0.4 * factor(step), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("name", "arguments", "factor"), FACTORS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_saved_state_goes_on(name: str, arguments: tuple[Any, ...], factor: Callable[[int], float]) -> None:
    own = optimizer()
    scheduler = getattr(schedulers, name)(own, *arguments)
    rates(own, scheduler, 4)
    other = optimizer()
    resumed = getattr(schedulers, name)(other, *arguments)
    resumed.load_state_dict(scheduler.state_dict())
    other.load_state_dict(own.state_dict())
    assert resumed.last_epoch == 4
    resumed.step()
    assert other.param_groups[0]["lr"] == pytest.approx(0.1 * factor(5))


def test_the_bottom_of_a_cosine_and_a_function_a_group() -> None:
    own = optimizer()
    seen = rates(own, schedulers.CosineAnnealingLR(own, 8, eta_min=0.01))
    assert [r[1] for r in seen] == pytest.approx([cosine(e, 8, 0.01, 0.4) for e in range(STEPS)])
    own = optimizer()
    seen = rates(own, schedulers.LambdaLR(own, [lambda e: e, lambda _: 0.5]), 3)
    assert seen == [[0.0, 0.2], [0.1, 0.2], [0.2, 0.2]]


def test_one_after_the_other() -> None:
    own = optimizer()
    warm, cool = schedulers.LinearLR(own, 0.1, 1.0, 4), schedulers.CosineAnnealingLR(own, 10)
    scheduler = schedulers.SequentialLR(own, [warm, cool], [4])
    seen = [first for first, _ in rates(own, scheduler)]
    wanted = [0.1 * (0.1 + 0.9 * e / 4) for e in range(4)] + [cosine(e, 10, 0, 0.1) for e in range(10)]
    assert seen == pytest.approx(wanted)

    own = optimizer()
    parts = [schedulers.LinearLR(own, 0.1, 1.0, 4), schedulers.CosineAnnealingLR(own, 10)]
    scheduler = schedulers.SequentialLR(own, parts, [4])
    rates(own, scheduler, 6)
    other = optimizer()
    parts = [schedulers.LinearLR(other, 0.1, 1.0, 4), schedulers.CosineAnnealingLR(other, 10)]
    resumed = schedulers.SequentialLR(other, parts, [4])
    other.load_state_dict(own.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    resumed.step()
    assert other.param_groups[0]["lr"] == pytest.approx(cosine(3, 10, 0, 0.1))


def test_one_cycle() -> None:
    own = optimizer(momentum=0.9)
    scheduler = schedulers.OneCycleLR(own, 0.5, total_steps=21)
    top, bottom = 0.3 * 21 - 1, 20
    first, last = 0.5 / 25, 0.5 / 25 / 1e4
    for step in range(20):
        share = step / top if step <= top else (step - top) / (bottom - top)
        lr = cosine(share, 1, 0.5, first) if step <= top else cosine(share, 1, last, 0.5)
        momentum = cosine(share, 1, 0.85, 0.95) if step <= top else cosine(share, 1, 0.95, 0.85)
        assert [group["lr"] for group in own.param_groups] == pytest.approx([lr, lr])
        assert own.param_groups[1]["momentum"] == pytest.approx(momentum)
        scheduler.step()
    assert own.param_groups[0]["lr"] == pytest.approx(last)
    scheduler.step()
    with pytest.raises(ValueError, match="total steps is 21"):
        scheduler.step()


def test_one_cycle_in_three_phases_of_betas() -> None:
    own = optimizer(Adam)
    scheduler = schedulers.OneCycleLR(
        own, [0.5, 0.2], epochs=2, steps_per_epoch=10, pct_start=0.25, anneal_strategy="linear", three_phase=True
    )
    seen = [first for first, _ in rates(own, scheduler, 20)]
    low, end = 0.02, 0.02 / 1e4
    wanted = [low + 0.48 * e / 4 for e in range(5)] + [0.5 - 0.48 * e / 4 for e in range(1, 5)]
    wanted += [low + (end - low) * e / 11 for e in range(1, 12)]
    assert seen == pytest.approx(wanted)
    assert own.param_groups[0]["betas"][1] == 0.999


def test_a_plateau() -> None:
    own = optimizer()
    scheduler = schedulers.ReduceLROnPlateau(own, factor=0.5, patience=1, min_lr=[0.03, 0.0])
    losses = [1.0, 0.9, 0.9, 0.9, 0.5, 0.6, 0.6, 0.6, 0.6]
    seen = rates(own, scheduler, len(losses), [gt.tensor(loss) for loss in losses])
    assert [first for first, _ in seen] == pytest.approx([0.1] * 4 + [0.05] * 3 + [0.03] * 2)
    assert [second for _, second in seen] == pytest.approx([0.4] * 4 + [0.2] * 3 + [0.1] * 2)

    own = optimizer()
    scheduler = schedulers.ReduceLROnPlateau(own, "max", 0.1, 0, 0.1, "abs", cooldown=2)
    seen = rates(own, scheduler, 6, [1.0, 1.05, 1.2, 0.0, 0.0, 0.0])
    # The second value improves by less than the threshold; the two after the change are within the cooldown.
    assert [first for first, _ in seen] == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.01, 0.001])


def test_bad_arguments() -> None:
    for call, error in [
        (lambda _: schedulers.StepLR(1, 2), TypeError),
        (lambda own: schedulers.StepLR(own, 2, last_epoch=3), KeyError),
        (lambda own: schedulers.LambdaLR(own, [abs]), ValueError),
        (lambda own: schedulers.ConstantLR(own, 2.0), ValueError),
        (lambda own: schedulers.LinearLR(own, 0.0), ValueError),
        (lambda own: schedulers.LinearLR(own, 0.5, 2.0), ValueError),
        (lambda own: schedulers.SequentialLR(own, [schedulers.StepLR(own, 1)], [1]), ValueError),
        (lambda own: schedulers.SequentialLR(own, [schedulers.ReduceLROnPlateau(own)], []), ValueError),
        (lambda own: schedulers.OneCycleLR(own, 0.1), ValueError),
        (lambda own: schedulers.OneCycleLR(own, [0.1], total_steps=3), ValueError),
        (lambda own: schedulers.OneCycleLR(own, 0.1, total_steps=3, anneal_strategy="step"), ValueError),
        (lambda own: schedulers.ReduceLROnPlateau(own, "best"), ValueError),
        (lambda own: schedulers.ReduceLROnPlateau(own, factor=1.0), ValueError),
    ]:
        with pytest.raises(error):
            call(optimizer())


def _rates(make: Any, steps: int) -> list[float]:
    optimizer = gt.optim.SGD([gt.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    schedulers = make(gt.optim.lr_scheduler, optimizer)
    rates = []
    for _ in range(steps):
        rates.append(round(optimizer.param_groups[0]["lr"], 6))
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    assert schedulers[-1].get_last_lr() == [optimizer.param_groups[0]["lr"]]
    return rates


def test_a_cycle_goes_up_and_down() -> None:
    def make(s: Any, o: Any) -> list[Any]:
        return [s.CyclicLR(o, 0.1, 0.5, step_size_up=2, step_size_down=4)]

    assert _rates(make, 8) == [0.1, 0.3, 0.5, 0.4, 0.3, 0.2, 0.1, 0.3]
    optimizer = gt.optim.Adam([gt.zeros(1, requires_grad=True)])
    scheduler = gt.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, step_size_up=2, mode="triangular2")
    found = []
    for _ in range(7):
        found.append((round(optimizer.param_groups[0]["lr"], 6), round(optimizer.param_groups[0]["betas"][0], 6)))
        optimizer.step()
        scheduler.step()
    assert found == [(0.1, 0.9), (0.3, 0.85), (0.5, 0.8), (0.3, 0.85), (0.1, 0.9), (0.2, 0.875), (0.3, 0.85)]
    with pytest.raises(ValueError, match="mode is invalid"):
        gt.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, mode="square")


def test_schedulers_that_are_stepped_together_multiply() -> None:
    expected = [0.5, 0.45, 0.81, 0.729, 0.06561, 0.059049]

    def together(s: Any, o: Any) -> list[Any]:
        return [s.ConstantLR(o, 0.5, total_iters=2), s.ExponentialLR(o, 0.9), s.MultiStepLR(o, [4], 0.1)]

    assert _rates(together, 6) == expected
    assert _rates(lambda s, o: [s.ChainedScheduler(together(s, o))], 6) == expected


def test_a_rate_that_is_changed_by_hand_stays_changed() -> None:
    optimizer = gt.optim.SGD([gt.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = gt.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    optimizer.param_groups[0]["lr"] = 0.1
    for _ in range(2):
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_chained_schedulers_go_on_from_a_state() -> None:
    def make() -> Any:
        optimizer = gt.optim.SGD([gt.zeros(1, requires_grad=True)], lr=1.0)
        s = gt.optim.lr_scheduler
        return optimizer, s.ChainedScheduler(
            [s.LinearLR(optimizer, 0.5, total_iters=4), s.ExponentialLR(optimizer, 0.9)]
        )

    (one, first), (two, second) = make(), make()
    for _ in range(3):
        one.step()
        first.step()
    two.load_state_dict(one.state_dict())
    second.load_state_dict(first.state_dict())
    for optimizer, scheduler in ((one, first), (two, second)):
        optimizer.step()
        scheduler.step()
    assert one.param_groups[0]["lr"] == two.param_groups[0]["lr"]


class _Warm(schedulers.LRScheduler):
    """A schedule of the program's own: a linear warm-up, then the base rate."""

    def __init__(self, optimizer: gt.optim.Optimizer, steps: int) -> None:
        self.steps = steps
        super().__init__(optimizer)

    def get_lr(self) -> list[float]:
        return [base * min(1.0, (self.last_epoch + 1) / self.steps) for base in self.base_lrs]


class _Falling(schedulers.StepLR):
    """A step schedule with a lower bound."""

    def get_lr(self) -> list[float]:
        return [max(rate, 0.02) for rate in super().get_lr()]


def _optimizer() -> gt.optim.Optimizer:
    return gt.optim.SGD([gt.nn.Parameter(gt.ones(1))], lr=0.1)


def _followed(scheduler: schedulers.LRScheduler, steps: int) -> list[float]:
    rates = []
    for _ in range(steps):
        rates.append(scheduler.optimizer.param_groups[0]["lr"])
        scheduler.step()
    return rates


def test_a_program_s_own_schedule_says_its_rates() -> None:
    assert _followed(_Warm(_optimizer(), 4), 5) == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])
    assert _followed(_Falling(_optimizer(), 2, 0.5), 7) == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.02])
    optimizer = _optimizer()
    parts = [_Warm(optimizer, 2), schedulers.StepLR(optimizer, 1, 0.1)]
    rates = _followed(schedulers.SequentialLR(optimizer, parts, [2]), 4)
    assert rates == pytest.approx([0.05, 0.1, 0.1, 0.01])


def test_older_forms_of_schedules() -> None:
    scheduler = schedulers.StepLR(_optimizer(), 2)
    with pytest.warns(UserWarning, match="The epoch parameter in `scheduler.step"):
        scheduler.step(4)
    assert (scheduler.last_epoch, scheduler.get_last_lr()) == (4, [pytest.approx(0.001)])
    with pytest.warns(UserWarning, match="please use `get_last_lr"):
        assert scheduler.get_lr() == [pytest.approx(0.001)]
    assert schedulers._LRScheduler is schedulers.LRScheduler


COUNTED = {"base_lrs": [0.1], "last_epoch": 4, "_step_count": 5, "_is_initial": False}
# The states that PyTorch 2.15 saves after four steps, and the rates that follow there.
SAVED_BY_PYTORCH: list[tuple[Callable[[Any], Any], dict[str, Any], list[float]]] = [
    (
        lambda own: schedulers.LambdaLR(own, lambda epoch: 0.9**epoch),
        {**COUNTED, "_last_lr": [0.06561], "lr_lambdas": [None]},
        [0.059049, 0.0531441, 0.04782969],
    ),
    (
        lambda own: schedulers.MultiStepLR(own, [2, 5]),
        {**COUNTED, "milestones": Counter({2: 1, 5: 1}), "gamma": 0.1, "_last_lr": [0.01]},
        [0.001, 0.001, 0.001],
    ),
    (
        lambda own: schedulers.CyclicLR(own, 0.01, 0.1, 3),
        {**COUNTED, "base_lrs": [0.01], "max_lrs": [0.1], "_last_lr": [0.07], "_scale_fn_custom": None},
        [0.04, 0.01, 0.04],
    ),
    (
        lambda own: schedulers.CosineAnnealingWarmRestarts(own, 3, 2),
        {**COUNTED, "_step_count": 0, "T_0": 3, "T_mult": 2, "T_i": 6, "T_cur": 1, "_last_lr": [0.0933012702]},
        [0.075, 0.05, 0.025, 0.0066987298, 0.1, 0.0982962913],
    ),
    (
        lambda own: schedulers.ChainedScheduler([schedulers.ConstantLR(own), schedulers.ExponentialLR(own, 0.9)]),
        {
            "_last_lr": [0.02187],
            "_schedulers": [
                {**COUNTED, "factor": 1 / 3, "total_iters": 5, "_last_lr": [0.0243]},
                {**COUNTED, "gamma": 0.9, "_last_lr": [0.02187]},
            ],
        },
        [0.059049, 0.0531441, 0.04782969],
    ),
]


@pytest.mark.parametrize(("make", "state", "expected"), SAVED_BY_PYTORCH)
def test_a_state_that_pytorch_saved(make: Any, state: dict[str, Any], expected: list[float]) -> None:
    own = SGD([gt.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
    scheduler = make(own)
    # It needs nothing that a state of GT lacks.
    assert {name for name in state if name != "_is_initial"} <= set(scheduler.state_dict())
    scheduler.load_state_dict(state)
    own.param_groups[0]["lr"] = state["_last_lr"][0]
    found = []
    for _ in expected:
        own.step()
        scheduler.step()
        found.append(own.param_groups[0]["lr"])
    assert found == pytest.approx(expected, rel=1e-6)


class Halving:
    """A function with a state."""

    def __init__(self) -> None:
        self.base = 0.5

    def __call__(self, epoch: float) -> float:
        return self.base**epoch


@pytest.mark.parametrize(
    "make",
    [
        schedulers.LambdaLR,
        schedulers.MultiplicativeLR,
        lambda own, scale: schedulers.CyclicLR(own, 0.1, 0.2, cycle_momentum=False, scale_fn=scale),
    ],
)
def test_objects_that_are_called_keep_their_state(make: Any) -> None:
    saved, restored = Halving(), Halving()
    saved.base = 0.25
    state = make(optimizer(), saved).state_dict()
    make(optimizer(), restored).load_state_dict(state)
    assert restored.base == 0.25


def test_a_built_in_function_has_no_state() -> None:
    scheduler = schedulers.LambdaLR(optimizer(), math.exp)
    assert scheduler.state_dict()["lr_lambdas"] == [None, None]
    scheduler.load_state_dict(scheduler.state_dict())
    assert scheduler.lr_lambdas == [math.exp, math.exp]
