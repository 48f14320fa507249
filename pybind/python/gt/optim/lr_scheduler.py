"""Learning rates that change: a scheduler's `step()`, called after the optimizer's, sets `lr` in its groups.

Each scheduler but `ReduceLROnPlateau` and those that are made of others says in `_factor` or `_rates` what the rates
are after so many steps, from the rates at the start alone: no error adds up. Start at `LRScheduler`.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gt.optim.optimizer import Optimizer

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]


_EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available."
)


class LRScheduler:
    """The base of schedulers: a subclass says in `_rates` what the rates are after `last_epoch` steps.

    One of a program's own says it in `get_lr`, from `base_lrs` and `last_epoch`, or from the rates in the groups.

    `base_lrs` holds each group's rate at the start, which the group keeps as `"initial_lr"`. A `last_epoch` other than
    -1 goes on from there, in an optimizer whose groups have an `"initial_lr"`.

    Where somebody else has changed a rate, as another scheduler that is stepped with this one, it is changed by the
    factor by which this one's own rate changes.
    """

    # The rates are what `_rates` says, whoever has changed them.
    _absolute = False
    # What the factor is of: what is above this.
    _floor = 0.0

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    f"last_epoch >= 0: load the optimizer's state first, or set it"
                )
        self.optimizer = optimizer
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._last_lr = [group["lr"] for group in optimizer.param_groups]
        absolute = self._absolute or self._is_own()
        self._own_lr = self.base_lrs if last_epoch == -1 or absolute else self._rates()
        self._step_count = 0
        self._get_lr_called_within_step = False
        self.step()

    def _is_own(self) -> bool:
        """Whether a program says in `get_lr` what the rates are."""
        return type(self).get_lr is not LRScheduler.get_lr

    def _factor(self) -> float:
        """What the rates at the start are multiplied by now."""
        raise NotImplementedError

    def _rates(self) -> list[float]:
        factor = self._factor()
        return [base * factor for base in self.base_lrs]

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = list(rates)

    def get_last_lr(self) -> list[float]:
        """The rates set last, one a group."""
        return self._last_lr

    def _next(self, current: float, before: float, own: float) -> float:
        """A rate after a step that takes this scheduler's own from `before` to `own`."""
        if self._absolute or current == before:
            return own
        if before == self._floor or own == before:
            return current + (own - before)
        return self._floor + (current - self._floor) * ((own - self._floor) / (before - self._floor))

    def get_lr(self) -> list[float]:
        """The rates of the step that is being taken; outside of one, `get_last_lr` is what to ask."""
        if not self._get_lr_called_within_step:
            message = "To get the last learning rate computed by the scheduler, please use `get_last_lr()`."
            warnings.warn(message, UserWarning, stacklevel=2)
            return self._rates()
        before, self._own_lr = self._own_lr, self._rates()
        groups = self.optimizer.param_groups
        return [self._next(g["lr"], *own) for g, *own in zip(groups, before, self._own_lr, strict=True)]

    def step(self, epoch: int | None = None) -> None:
        """One step on; or, as older programs say, to the step `epoch`."""
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            self._set(self._computed())
        else:
            warnings.warn(_EPOCH_WARNING, UserWarning, stacklevel=2)
            self._go_to(epoch)

    def _computed(self) -> list[float]:
        self._get_lr_called_within_step = True
        try:
            return self.get_lr()
        finally:
            self._get_lr_called_within_step = False

    def _go_to(self, epoch: int) -> None:
        """Sets the rates that are after so many steps, whoever has changed them."""
        self.last_epoch = epoch
        if self._is_own():
            self._set(self._computed())
        else:
            self._own_lr = self._rates()
            self._set(self._own_lr)

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer, and functions, which are not data."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self.__dict__.update(state_dict)
        self._own_lr = state_dict.get("_own_lr", self._last_lr)


_LRScheduler = LRScheduler  # its older name, which programs still derive from


class LambdaLR(LRScheduler):
    """The rates at the start times what a function, or one a group, says of the number of steps."""

    _absolute = True

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        return [base * function(self.last_epoch) for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        return {k: v for k, v in super().state_dict().items() if k != "lr_lambdas"}


class StepLR(LRScheduler):
    """Times `gamma` every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """Times `gamma` at each of the steps `milestones`."""

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = sorted(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return self.gamma ** bisect_right(self.milestones, self.last_epoch)


class ExponentialLR(LRScheduler):
    """Times `gamma` at every step."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return self.gamma**self.last_epoch


class ConstantLR(LRScheduler):
    """Times `factor` for the first `total_iters` steps."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return self.factor if self.last_epoch < self.total_iters else 1.0


class LinearLR(LRScheduler):
    """Times a factor that goes from `start_factor` to `end_factor` in `total_iters` equal steps."""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError("Starting multiplicative factor expected to be greater than 0 and less or equal to 1.")
        if not 0 <= end_factor <= 1:
            raise ValueError("Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        done = min(self.last_epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * done


class CosineAnnealingLR(LRScheduler):
    """Down to `eta_min` in `T_max` steps along half a cosine, then up again, and so on."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803
        self.T_max = T_max
        self.eta_min = self._floor = eta_min
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """The rates fall to 0 within `total_iters` steps, as a power of what is left of them."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return (1 - min(self.last_epoch, self.total_iters) / self.total_iters) ** self.power


class MultiplicativeLR(LRScheduler):
    """The rates times what a function, or one a group, says of each step so far."""

    _absolute = True

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"Expected {groups} lr_lambdas, but got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        now = [group["lr"] for group in self.optimizer.param_groups]
        if self.last_epoch <= 0:
            return now
        return [rate * function(self.last_epoch) for rate, function in zip(now, self.lr_lambdas, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().state_dict().items() if name != "lr_lambdas"}


class CosineAnnealingWarmRestarts(LRScheduler):
    """The rates fall along a cosine to `eta_min` within `T_0` steps, and start again, each time `T_mult` as long."""

    _absolute = True

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803 (PyTorch's name)
        T_mult: int = 1,  # noqa: N803 (PyTorch's name)
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if T_0 <= 0 or not isinstance(T_0, int):
            raise ValueError(f"Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or not isinstance(T_mult, int):
            raise ValueError(f"Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:
        """One step on, or to a given one, which may be a fraction."""
        if epoch is not None and epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch  # type: ignore[assignment]
        self._set(self._rates())

    def _rates(self) -> list[float]:
        at, length = self.last_epoch, self.T_0
        while at >= length:
            at, length = at - length, length * self.T_mult
        share = (1 + math.cos(math.pi * at / length)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class SequentialLR(LRScheduler):
    """One scheduler after the other: the next takes over, from its own start, at each of the steps `milestones`."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if not schedulers:
            raise ValueError("SequentialLR expects at least one scheduler")
        for i, scheduler in enumerate(schedulers):
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(f"SequentialLR does not support ReduceLROnPlateau, which is at index {i}")
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    f"SequentialLR expects all schedulers to have its optimizer; that at index {i} has not"
                )
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR expects one milestone fewer than schedulers, but got {len(schedulers)} schedulers and "
                f"{len(milestones)} milestones"
            )
        self._schedulers = list(schedulers)
        self._milestones = list(milestones)
        self.optimizer = optimizer
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch + 1
        # Each set its first rates when it was made, over those of the first.
        self._restart(schedulers[0])

    def _restart(self, scheduler: LRScheduler) -> None:
        scheduler._go_to(0)
        self._last_lr = scheduler.get_last_lr()

    def step(self) -> None:
        self.last_epoch += 1
        place = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[place]
        if place > 0 and self._milestones[place - 1] == self.last_epoch:
            self._restart(scheduler)
        else:
            scheduler.step()
            self._last_lr = scheduler.get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return {**state, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and down far below the start, once, in a known number of steps (Smith and Topin 2018).

    The momentum, or the first of an Adam's `betas`, goes the other way meanwhile.
    """

    _absolute = True

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.85,
        max_momentum: float | Sequence[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        """Takes the optimizer and the shape of the cycle.

        Args:
            optimizer: Whose rates change.
            max_lr: The rate at the top, or one a group.
            total_steps: How many steps there are; or else `epochs` times `steps_per_epoch`.
            epochs: See `total_steps`.
            steps_per_epoch: See `total_steps`.
            pct_start: The share of the steps that goes up.
            anneal_strategy: The way between two rates: `"cos"` or `"linear"`.
            cycle_momentum: Whether the momentum changes too.
            base_momentum: The momentum at the top, or one a group.
            max_momentum: The momentum at both ends, or one a group.
            div_factor: The first rate is `max_lr` divided by this.
            final_div_factor: The last rate is the first divided by this.
            three_phase: Come down to the first rate as fast as going up, and from there to the last.
            last_epoch: The step to go on from, in an optimizer that a cycle was started in.
        """
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError(
                    "You must define either total_steps OR (epochs AND steps_per_epoch), so that the number of steps "
                    "is known"
                )
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps <= 0:
            raise ValueError(f"Expected positive integer total_steps, but got {total_steps}")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self.total_steps = total_steps
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        up = pct_start * total_steps - 1
        ends = [up, 2 * up, total_steps - 1] if three_phase else [up, total_steps - 1]
        rates = ["initial_lr", "max_lr", "initial_lr", "min_lr"] if three_phase else ["initial_lr", "max_lr", "min_lr"]
        momenta = ["max_momentum", "base_momentum", "max_momentum", "max_momentum"][: len(rates)]
        self._phases = [(end, *rates[i : i + 2], *momenta[i : i + 2]) for i, end in enumerate(ends)]
        groups = optimizer.param_groups
        if cycle_momentum and not all("momentum" in group or "betas" in group for group in groups):
            raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        if last_epoch == -1:
            tops = self._of_each(groups, max_lr, "max_lr")
            lows = self._of_each(groups, base_momentum, "base_momentum")
            highs = self._of_each(groups, max_momentum, "max_momentum")
            for group, top, low, high in zip(groups, tops, lows, highs, strict=True):
                first = top / div_factor
                group.update(initial_lr=first, max_lr=top, min_lr=first / final_div_factor)
                if cycle_momentum:
                    group.update(base_momentum=low, max_momentum=high)
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _of_each(groups: list[dict[str, Any]], value: float | Sequence[float], name: str) -> list[float]:
        if not isinstance(value, list | tuple):
            return [value] * len(groups)
        if len(value) != len(groups):
            raise ValueError(f"expected {len(groups)} values for {name}, got {len(value)}")
        return list(value)

    def _between(self, start: float, end: float, share: float) -> float:
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (1 + math.cos(math.pi * share))

    def _rates(self) -> list[float]:
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        begin = 0.0
        for phase in self._phases:
            if step <= phase[0] or phase is self._phases[-1]:
                break
            begin = phase[0]
        end, lr_from, lr_to, momentum_from, momentum_to = phase
        share = (step - begin) / (end - begin)
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[lr_from], group[lr_to], share))
            if self.cycle_momentum:
                momentum = self._between(group[momentum_from], group[momentum_to], share)
                if "betas" in group:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum
        return rates


class CyclicLR(LRScheduler):
    """The rates up and down between two bounds in straight lines, again and again; momentum the other way round."""

    _absolute = True

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | Sequence[float],
        max_lr: float | Sequence[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8,
        max_momentum: float | Sequence[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        """Takes the bounds, one or one a group, and the length of a cycle.

        Args:
            optimizer: Whose rates change.
            base_lr: The lower bound, where a cycle starts.
            max_lr: The upper bound, of the first cycle.
            step_size_up: The steps to the upper bound.
            step_size_down: The steps back; as many if not given.
            mode: `"triangular"`, `"triangular2"`, whose height halves each cycle, or `"exp_range"`, `gamma ** step`.
            gamma: See `mode`.
            scale_fn: The height in place of a `mode`, by the number of the cycle or of the step.
            scale_mode: Which of them: `"cycle"` or `"iterations"`.
            cycle_momentum: Whether momentum, or `betas[0]`, moves too.
            base_momentum: Its lower bound, where the rate is highest.
            max_momentum: Its upper bound.
            last_epoch: The step to go on from.
        """
        groups = optimizer.param_groups
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        lows = OneCycleLR._of_each(groups, base_lr, "base_lr")
        if last_epoch == -1:
            for group, low in zip(groups, lows, strict=True):
                group["initial_lr"] = group["lr"] = low
        self.max_lrs = OneCycleLR._of_each(groups, max_lr, "max_lr")
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma = mode, gamma
        self._scale_fn = scale_fn
        self.scale_mode = scale_mode if scale_fn else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            if not all("momentum" in group or "betas" in group for group in groups):
                raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
            self.base_momentums = OneCycleLR._of_each(groups, base_momentum, "base_momentum")
            self.max_momentums = OneCycleLR._of_each(groups, max_momentum, "max_momentum")
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def scale_fn(self, x: float) -> float:
        """How high a cycle, or a step, is."""
        if self._scale_fn is not None:
            return self._scale_fn(x)
        return {"triangular": 1.0, "triangular2": 1 / 2.0 ** (x - 1), "exp_range": self.gamma**x}[self.mode]

    def _rates(self) -> list[float]:
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        place = 1.0 + self.last_epoch / self.total_size - cycle
        share = place / self.step_ratio if place <= self.step_ratio else (place - 1) / (self.step_ratio - 1)
        share *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for i, group in enumerate(self.optimizer.param_groups):
                momentum = self.max_momentums[i] - (self.max_momentums[i] - self.base_momentums[i]) * share
                if "betas" in group:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum
        return [low + (high - low) * share for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]


class ChainedScheduler(LRScheduler):
    """Several at every step, each changing what the one before has set."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or schedulers[0].optimizer
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise TypeError(f"ChainedScheduler at index {i} should have `optimizer` as its attribute.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError("ChainedScheduler does not support ReduceLROnPlateau: step it by itself")
            if scheduler.optimizer is not optimizer:
                raise ValueError(
                    "ChainedScheduler expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(scheduler).__name__} at index {i} for another"
                )
        self._schedulers = list(schedulers)
        self.optimizer = optimizer
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def step(self) -> None:
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._schedulers[-1].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("optimizer", "_schedulers")}
        return {**state, "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        states = state_dict["_schedulers"]
        self.__dict__.update({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, state in zip(self._schedulers, states, strict=True):
            scheduler.load_state_dict(state)


class ReduceLROnPlateau(LRScheduler):
    """Times `factor` when a number that is given at each step, such as the loss, has not improved for a while."""

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0.0,
        eps: float = 1e-8,
    ) -> None:
        """Takes the optimizer and what an improvement is.

        Args:
            optimizer: Whose rates change.
            mode: Whether a smaller number is better, `"min"`, or a larger one, `"max"`.
            factor: What the rates are multiplied by.
            patience: How many steps without improvement are allowed.
            threshold: How much better a number must be.
            threshold_mode: Whether that is a share of the best one, `"rel"`, or an amount, `"abs"`.
            cooldown: How many steps after a change do not count.
            min_lr: No rate goes below this, or one bound a group.
            eps: A change smaller than this is left out.
        """
        if factor >= 1.0:
            raise ValueError("Factor should be < 1.0.")
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if mode not in ("min", "max"):
            raise ValueError(f"mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"threshold mode {threshold_mode} is unknown!")
        groups = len(optimizer.param_groups)
        self.min_lrs = list(min_lr) if isinstance(min_lr, list | tuple) else [min_lr] * groups
        if len(self.min_lrs) != groups:
            raise ValueError(f"expected {groups} min_lrs, got {len(self.min_lrs)}")
        self.optimizer = optimizer
        self.mode = mode
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.cooldown = cooldown
        self.eps = eps
        self.last_epoch = 0
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = 0
        self.cooldown_counter = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            bound = self.best * (1 + sign * self.threshold)
        else:
            bound = self.best + sign * self.threshold
        return value > bound if self.mode == "max" else value < bound

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """One step on, at which the number is `metrics`; a tensor is waited for."""
        value = float(metrics)
        if epoch is not None:
            warnings.warn(_EPOCH_WARNING, UserWarning, stacklevel=2)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(value):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            old = [group["lr"] for group in self.optimizer.param_groups]
            new = [max(rate * self.factor, low) for rate, low in zip(old, self.min_lrs, strict=True)]
            self._set([b if a - b > self.eps else a for a, b in zip(old, new, strict=True)])
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]
