"""Stochastic weight averaging (Izmailov et al. 2018): `AveragedModel`, `SWALR` and `update_bn`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from gt import _absent
from gt import _core as gt
from gt._autograd import no_grad
from gt._gt import Tensor
from gt.nn.module import Module
from gt.nn.normalization import _BatchNorm
from gt.optim.lr_scheduler import LRScheduler
from gt.optim.optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

__getattr__ = _absent.getter(__name__)

Average = Callable[[Tensor, Tensor, Tensor], Tensor]
MultiAverage = Callable[[list[Tensor], list[Tensor], Any], None]


def get_swa_avg_fn() -> Average:
    """The averaging function of equal weights: `averaged + (current - averaged) / (n + 1)`."""
    return lambda averaged, current, count: averaged + (current - averaged) / (count + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The averaging function of an exponential moving average: `decay * averaged + (1 - decay) * current`."""
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")
    return lambda averaged, current, _: averaged * decay + current * (1 - decay)


def _for_lists(average: Average) -> MultiAverage:
    @no_grad()
    def update(averaged: list[Tensor], current: list[Tensor], count: Any) -> None:
        for own, other in zip(averaged, current, strict=True):
            own.copy_(average(own, other, count))

    return update


def get_swa_multi_avg_fn() -> MultiAverage:
    """`get_swa_avg_fn` for lists of parameters, updated in place."""
    return _for_lists(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> MultiAverage:
    """`get_ema_avg_fn` for lists of parameters, updated in place."""
    return _for_lists(get_ema_avg_fn(decay))


class AveragedModel(Module):
    """A copy of a model whose parameters are averages of the model's over calls of `update_parameters`.

    Args:
        model: The model.
        device: Where the copy is.
        avg_fn: The averaging function: `avg_fn(averaged, current, count)`; equal weights if not given.
        multi_avg_fn: Or such a function of lists, which updates them in place.
        use_buffers: Whether buffers are averaged too rather than copied.

    Example:
        >>> model = gt.nn.Linear(2, 1)
        >>> averaged = gt.optim.swa_utils.AveragedModel(model)
        >>> averaged.update_parameters(model)
        >>> bool((averaged.module.weight == model.weight).all())
        True
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", gt.tensor(0, dtype=gt.int64))
        # The program's own function averages integers, too: PyTorch's do not.
        self._takes_integers = avg_fn is not None
        self.avg_fn = avg_fn or get_swa_avg_fn()
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @no_grad()
    def update_parameters(self, model: Module) -> None:
        """Includes the model's present parameters in the average."""
        pairs = list(zip(self.module.parameters(), model.parameters(), strict=True))
        buffers = list(zip(self.module.buffers(), model.buffers(), strict=True))
        seen = self.n_averaged.item()
        together = []
        for averaged, current in pairs + (buffers if self.use_buffers else []):
            if seen == 0 or not (self._takes_integers or averaged.is_floating_point()):
                averaged.copy_(current)
            elif self.multi_avg_fn is not None:
                together.append((averaged.detach(), current.detach()))
            else:
                averaged.copy_(self.avg_fn(averaged.detach(), current.detach(), self.n_averaged))
        if together and self.multi_avg_fn is not None:
            self.multi_avg_fn(*map(list, zip(*together, strict=True)), self.n_averaged)
        if not self.use_buffers:
            for own, current in buffers:
                own.copy_(current)
        self.n_averaged += 1


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Recomputes the running statistics of the model's batch normalization layers over a data set.

    Args:
        loader: Iterates over batches: tensors, or sequences whose first element is one.
        model: The model.
        device: Where to move the batches.
    """
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not layers:
        return
    was_training, momenta = model.training, [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None
    model.train()
    for batch in loader:
        x = batch[0] if isinstance(batch, list | tuple) else batch
        model(x if device is None else x.to(device))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Anneals the learning rate to `swa_lr` within `anneal_epochs` steps, and keeps it there.

    Args:
        optimizer: The optimizer.
        swa_lr: The final learning rate.
        anneal_epochs: The number of steps.
        anneal_strategy: `"cos"` or `"linear"`.
        last_epoch: The step to resume from; -1 to start.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self.swa_lr, self.anneal_epochs, self.strategy = swa_lr, anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _rates(self) -> list[float]:
        done = min(1.0, self.last_epoch / max(1, self.anneal_epochs)) if self.anneal_epochs else 1.0
        share = (1 - math.cos(math.pi * done)) / 2 if self.strategy == "cos" else done
        return [self.swa_lr * share + base * (1 - share) for base in self.base_lrs]
