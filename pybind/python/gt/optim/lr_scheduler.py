"""Learning-rate schedulers: `step()`, called after the optimizer's, sets the learning rate of its parameter groups.

Most schedulers compute the rates from the initial rates and the number of steps alone (`_factor` or `_rates`), so that
rounding errors do not accumulate. Start at `LRScheduler`.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

from gt import _absent
from gt.optim.optimizer import Optimizer

__getattr__ = _absent.getter(__name__)

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


_ORDER_WARNING = (
    "lr_scheduler.step() was called before optimizer.step(), or the program replaced optimizer.step: the first "
    "learning rate of the schedule is skipped. Call optimizer.step() first."
)
_EPOCH_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from None, the closed "
    "form is used instead of the new chainable form, where available."
)


class LRScheduler:
    """The base class of schedulers: a subclass returns, in `_rates`, the learning rates after `last_epoch` steps.

    A user's subclass implements `get_lr` instead, from `base_lrs` and `last_epoch` or from the groups' present rates.
    If something else changes a rate, such as another scheduler of the same optimizer, a step multiplies it by the
    factor by which this scheduler's own rate changes.

    Args:
        optimizer: The optimizer whose rates are scheduled.
        last_epoch: The step to resume from; -1 to start. To resume, the groups need an `"initial_lr"`.

    Attributes:
        base_lrs: The initial rate of each group, which the group keeps as `"initial_lr"`.
        last_epoch: The number of steps taken.
    """

    # Whether a step sets the rates of `_rates` whatever the groups' rates are.
    _absolute = False
    # The rate from which on the factor of a step is taken: the rate less this changes by the factor.
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
        absolute = self._absolute or self._has_custom_get_lr()
        self._own_lr = self.base_lrs if last_epoch == -1 or absolute else self._rates()
        self._step_count = 0
        self._get_lr_called_within_step = False
        self.step()

    def _has_custom_get_lr(self) -> bool:
        """Whether the class implements `get_lr` itself."""
        return type(self).get_lr is not LRScheduler.get_lr

    def _factor(self) -> float:
        """The factor of the initial rates after `last_epoch` steps."""
        raise NotImplementedError

    def _rates(self) -> list[float]:
        factor = self._factor()
        return [base * factor for base in self.base_lrs]

    def _set(self, rates: Sequence[float]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._last_lr = list(rates)

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group that the last step set."""
        return self._last_lr

    def _adjusted_rate(self, current: float, before: float, own: float) -> float:
        """A group's rate after a step that changes this scheduler's own rate from `before` to `own`."""
        if self._absolute or current == before:
            return own
        if before == self._floor or own == before:
            return current + (own - before)
        return self._floor + (current - self._floor) * ((own - self._floor) / (before - self._floor))

    def get_lr(self) -> list[float]:
        """The learning rate of each group for the step that is being taken; elsewhere, use `get_last_lr`."""
        if not self._get_lr_called_within_step:
            message = "To get the last learning rate computed by the scheduler, please use `get_last_lr()`."
            warnings.warn(message, UserWarning, stacklevel=2)
            return self._rates()
        before, self._own_lr = self._own_lr, self._rates()
        groups = self.optimizer.param_groups
        return [self._adjusted_rate(g["lr"], *own) for g, *own in zip(groups, before, self._own_lr, strict=True)]

    def step(self, epoch: int | None = None) -> None:
        """Advances by one step and sets the learning rates.

        Args:
            epoch: The step to go to. Deprecated.
        """
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(_ORDER_WARNING, UserWarning, stacklevel=2)
        self._step_count += 1
        if epoch is None:
            self.last_epoch += 1
            self._set(self._call_get_lr())
        else:
            warnings.warn(_EPOCH_WARNING, UserWarning, stacklevel=2)
            self._jump_to(epoch)

    def _call_get_lr(self) -> list[float]:
        self._get_lr_called_within_step = True
        try:
            return self.get_lr()
        finally:
            self._get_lr_called_within_step = False

    def _jump_to(self, epoch: int) -> None:
        """Sets the rates after `epoch` steps, whatever the groups' present rates are."""
        self.last_epoch = epoch
        if self._has_custom_get_lr():
            self._set(self._call_get_lr())
        else:
            self._own_lr = self._rates()
            self._set(self._own_lr)

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's state, without the optimizer and functions."""
        return {k: v for k, v in self.__dict__.items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the state that `state_dict` returned, here or in PyTorch."""
        self.__dict__.update(state_dict)
        # PyTorch keeps only the rates that all schedulers of the optimizer have led to.
        if "_own_lr" in self.__dict__ and "_own_lr" not in state_dict:
            absolute = self._absolute or self._has_custom_get_lr()
            self._own_lr = self._last_lr if absolute else self._rates()


_LRScheduler = LRScheduler  # the older name, which programs still derive from


def _state_of(function: object) -> dict[str, Any] | None:
    """The state of an object that is called as a function; a function has none."""
    # A built-in function has no attributes.
    has_state = not isinstance(function, FunctionType) and hasattr(function, "__dict__")
    return vars(function).copy() if has_state else None


def _restore(function: object, state: dict[str, Any] | None) -> None:
    """Gives an object that is called as a function the state that `_state_of` returned."""
    if state:
        vars(function).update(state)


class _FunctionLR(LRScheduler):
    """The base class of schedulers whose rates are given by functions."""

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

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "lr_lambdas": [_state_of(function) for function in self.lr_lambdas]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        states = state_dict.get("lr_lambdas", [])
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "lr_lambdas"})
        for function, state in zip(self.lr_lambdas, states, strict=False):
            _restore(function, state)


class LambdaLR(_FunctionLR):
    """Multiplies the initial rates by a function of the number of steps.

    Args:
        optimizer: The optimizer.
        lr_lambda: The function, or one for each group.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def _rates(self) -> list[float]:
        return [base * function(self.last_epoch) for base, function in zip(self.base_lrs, self.lr_lambdas, strict=True)]


class StepLR(LRScheduler):
    """Multiplies the rates by `gamma` every `step_size` steps.

    Args:
        optimizer: The optimizer.
        step_size: The number of steps between changes.
        gamma: The factor.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
        >>> rates = []
        >>> for _ in range(4):
        ...     rates.append(scheduler.get_last_lr()[0])
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 1.0, 0.1, 0.1]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return self.gamma ** (self.last_epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """Multiplies the rates by `gamma` at each of the steps `milestones`.

    Args:
        optimizer: The optimizer.
        milestones: The steps.
        gamma: The factor.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3])
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.1]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return self.gamma ** sum(times for at, times in self.milestones.items() if at <= self.last_epoch)


class ExponentialLR(LRScheduler):
    """Multiplies the rates by `gamma` at every step.

    Args:
        optimizer: The optimizer.
        gamma: The factor.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return self.gamma**self.last_epoch


class ConstantLR(LRScheduler):
    """Multiplies the initial rates by `factor` for the first `total_iters` steps.

    Args:
        optimizer: The optimizer.
        factor: The factor, at most 1.
        total_iters: The number of steps.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=2)
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates.append(scheduler.get_last_lr()[0])
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [0.5, 0.5, 1.0, 1.0]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ValueError("Constant multiplicative factor expected to be between 0 and 1.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return self.factor if self.last_epoch < self.total_iters else 1.0


class LinearLR(LRScheduler):
    """Multiplies the initial rates by a factor that changes linearly from `start_factor` to `end_factor`.

    Args:
        optimizer: The optimizer.
        start_factor: The first factor.
        end_factor: The last factor.
        total_iters: The number of steps between both.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
        >>> scheduler.get_last_lr()
        [0.5]
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.75]
    """

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
    """Cosine annealing: `eta_min + (lr - eta_min) * (1 + cos(pi * t / T_max)) / 2` at step `t`.

    See Loshchilov and Hutter 2017; there are no restarts.

    Args:
        optimizer: The optimizer.
        T_max: The number of steps to the minimum.
        eta_min: The minimum rate.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
        >>> optimizer.step()
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:  # noqa: N803
        self.T_max = T_max
        self.eta_min = self._floor = eta_min
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        share = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Polynomial decay: `lr * (1 - t / total_iters)^power` at step `t`, 0 from `total_iters` on.

    Args:
        optimizer: The optimizer.
        total_iters: The number of steps.
        power: The exponent.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=4)
        >>> rates = []
        >>> for epoch in range(5):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.75, 0.5, 0.25, 0.0]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor(self) -> float:
        return (1 - min(self.last_epoch, self.total_iters) / self.total_iters) ** self.power


class MultiplicativeLR(_FunctionLR):
    """Multiplies the rates at each step by a function of the number of steps.

    Args:
        optimizer: The optimizer.
        lr_lambda: The function, or one for each group.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> rates = []
        >>> for epoch in range(3):
        ...     rates.append(scheduler.get_last_lr()[0])
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.5, 0.25]
    """

    def _rates(self) -> list[float]:
        now = [group["lr"] for group in self.optimizer.param_groups]
        if self.last_epoch <= 0:
            return now
        return [rate * function(self.last_epoch) for rate, function in zip(now, self.lr_lambdas, strict=True)]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Cosine annealing with warm restarts (SGDR, Loshchilov and Hutter 2017).

    Args:
        optimizer: The optimizer.
        T_0: The number of steps to the first restart.
        T_mult: The factor by which each period is longer than the one before.
        eta_min: The minimum rate.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
        >>> rates = []
        >>> for epoch in range(4):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [1.0, 0.5, 1.0, 0.5]
    """

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
        # The length of the present period, and how much of it has passed.
        self.T_i, self.T_cur = T_0, last_epoch
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | None = None) -> None:
        """Advances by one step, or to a given one, which may be a fraction."""
        if epoch is not None and epoch < 0:
            raise ValueError(f"Expected non-negative epoch, but got {epoch}")
        at, length = (self.T_cur + 1, self.T_i) if epoch is None else (epoch, self.T_0)
        while at >= length:
            at, length = at - length, length * self.T_mult
        self.T_cur, self.T_i = at, length  # type: ignore[assignment]
        self.last_epoch = self.last_epoch + 1 if epoch is None else math.floor(epoch)
        self._set(self._rates())

    def _rates(self) -> list[float]:
        share = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]


class SequentialLR(LRScheduler):
    """Runs schedulers one after the other: the next takes over, from its start, at each of the steps `milestones`.

    Args:
        optimizer: The optimizer of all schedulers.
        schedulers: The schedulers.
        milestones: The steps, one fewer than there are schedulers.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> warmup = gt.optim.lr_scheduler.ConstantLR(optimizer, factor=0.1, total_iters=2)
        >>> decay = gt.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        >>> scheduler = gt.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[2])
        >>> scheduler.get_last_lr()
        [0.1]
    """

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
        # Each scheduler's constructor set its own first rates; those of the first one are restored.
        self._restart(schedulers[0])

    def _restart(self, scheduler: LRScheduler) -> None:
        scheduler._jump_to(0)
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
    """The 1cycle policy (Smith and Topin 2018): up to `max_lr`, then down far below the initial rate.

    The rate rises from `max_lr / div_factor` to `max_lr`, and falls to `max_lr / div_factor / final_div_factor`.
    Momentum, or the first of Adam's `betas`, moves in the opposite direction. Call `step` after every batch, rather
    than after every epoch.

    Args:
        optimizer: The optimizer, whose rate is replaced.
        max_lr: The peak rate, or one for each group.
        total_steps: The number of batches of the whole training; or give `epochs` and `steps_per_epoch`.
        epochs: The number of epochs.
        steps_per_epoch: The number of batches in an epoch.
        pct_start: The fraction of the steps in which the rate rises.
        anneal_strategy: `"cos"` or `"linear"`.
        cycle_momentum: Whether momentum is cycled too.
        base_momentum: The momentum at the peak, or one for each group.
        max_momentum: The momentum at both ends, or one for each group.
        div_factor: The initial rate is `max_lr / div_factor`.
        final_div_factor: The final rate is the initial one divided by this.
        three_phase: Whether to fall to the initial rate first, in as many steps as the rise took, and then to the final
            rate.
        last_epoch: The last step that was done before, to resume; -1 to start.

    Raises:
        ValueError: The number of steps is not given, or `step` is called more often.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=0.1, momentum=0.9)
        >>> scheduler = gt.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
        >>> rates = []
        >>> for batch in range(5):
        ...     rates.append(round(scheduler.get_last_lr()[0], 2))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [0.04, 0.52, 1.0, 0.95, 0.81]
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
            tops = self._per_group(groups, max_lr, "max_lr")
            lows = self._per_group(groups, base_momentum, "base_momentum")
            highs = self._per_group(groups, max_momentum, "max_momentum")
            for group, top, low, high in zip(groups, tops, lows, highs, strict=True):
                first = top / div_factor
                group.update(initial_lr=first, max_lr=top, min_lr=first / final_div_factor)
                if cycle_momentum:
                    group.update(base_momentum=low, max_momentum=high)
        super().__init__(optimizer, last_epoch)

    @staticmethod
    def _per_group(groups: list[dict[str, Any]], value: float | Sequence[float], name: str) -> list[float]:
        if not isinstance(value, list | tuple):
            return [value] * len(groups)
        if len(value) != len(groups):
            raise ValueError(f"expected {len(groups)} values for {name}, got {len(value)}")
        return list(value)

    def _interpolate(self, start: float, end: float, share: float) -> float:
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
            rates.append(self._interpolate(group[lr_from], group[lr_to], share))
            if self.cycle_momentum:
                momentum = self._interpolate(group[momentum_from], group[momentum_to], share)
                if "betas" in group:
                    group["betas"] = (momentum, *group["betas"][1:])
                else:
                    group["momentum"] = momentum
        return rates


class CyclicLR(LRScheduler):
    """Cyclical learning rates (Smith 2017): linear between two bounds, up and down again and again.

    Args:
        optimizer: The optimizer.
        base_lr: The lower bound, or one for each group.
        max_lr: The upper bound of the first cycle, or one for each group.
        step_size_up: The number of steps up.
        step_size_down: The number of steps down; as many as up if not given.
        mode: `"triangular"`; `"triangular2"`, which halves the amplitude each cycle; or `"exp_range"`, which multiplies
            it by `gamma` each step.
        gamma: The factor of `"exp_range"`.
        scale_fn: A function for the amplitude in place of a mode.
        scale_mode: The argument of `scale_fn`: the number of the `"cycle"`, or of `"iterations"`.
        cycle_momentum: Whether momentum, or `betas[0]`, moves in the opposite direction.
        base_momentum: The lower bound of the momentum.
        max_momentum: The upper bound of the momentum.
        last_epoch: The step to resume from; -1 to start.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=0.1, momentum=0.9)
        >>> scheduler = gt.optim.lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=0.5, step_size_up=2)
        >>> rates = []
        >>> for batch in range(5):
        ...     rates.append(round(scheduler.get_last_lr()[0], 4))
        ...     optimizer.step()
        ...     scheduler.step()
        >>> rates
        [0.1, 0.3, 0.5, 0.3, 0.1]
    """

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
        groups = optimizer.param_groups
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        lows = OneCycleLR._per_group(groups, base_lr, "base_lr")
        if last_epoch == -1:
            for group, low in zip(groups, lows, strict=True):
                group["initial_lr"] = group["lr"] = low
        self.max_lrs = OneCycleLR._per_group(groups, max_lr, "max_lr")
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            if not all("momentum" in group or "betas" in group for group in groups):
                raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
            self.base_momentums = OneCycleLR._per_group(groups, base_momentum, "base_momentum")
            self.max_momentums = OneCycleLR._per_group(groups, max_momentum, "max_momentum")
        super().__init__(optimizer, last_epoch)
        self.base_lrs = lows

    def scale_fn(self, x: float) -> float:
        """The amplitude of cycle, or of step, `x`."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        return {"triangular": 1.0, "triangular2": 1 / 2.0 ** (x - 1), "exp_range": self.gamma**x}[self.mode]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "_scale_fn_custom": _state_of(self._scale_fn_custom)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = state_dict.get("_scale_fn_custom")
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "_scale_fn_custom"})
        if self._scale_fn_custom is not None:
            _restore(self._scale_fn_custom, state)

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
    """Steps several schedulers together; each changes the rates that the one before has set.

    Args:
        schedulers: The schedulers.
        optimizer: Their optimizer; the first scheduler's if not given.
    """

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
    """Multiplies the rates by `factor` when a metric has stopped improving.

    Args:
        optimizer: The optimizer.
        mode: Whether the metric should fall, `"min"`, or rise, `"max"`.
        factor: The factor.
        patience: The number of steps without improvement that are allowed.
        threshold: The smallest improvement that counts.
        threshold_mode: Whether the threshold is relative to the best value, `"rel"`, or absolute, `"abs"`.
        cooldown: The number of steps after a change in which the metric is not counted.
        min_lr: The lower bound of the rates, or one for each group.
        eps: The smallest change of a rate that is made.

    Example:
        >>> optimizer = gt.optim.SGD([gt.nn.Parameter(gt.zeros(1))], lr=1.0)
        >>> scheduler = gt.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
        >>> for loss in (2.0, 2.0, 2.0):
        ...     scheduler.step(loss)
        >>> scheduler.get_last_lr()
        [0.1]
    """

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
        """Takes the metric of a step; a tensor is waited for.

        Args:
            metrics: The metric.
            epoch: The step to go to. Deprecated.
        """
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
