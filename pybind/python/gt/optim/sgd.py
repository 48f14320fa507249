"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, hints, prepared


class SGD(Optimizer):
    """`p -= lr * grad`, with momentum, Nesterov's momentum and weight decay as PyTorch has them.

    A plain step is one instruction for each parameter, each option one more.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        """Takes the parameters and the options of each.

        Args:
            params: Tensors, or groups of them.
            lr: The learning rate.
            momentum: How much of the last direction is kept.
            dampening: How much less the gradient adds to a direction that is kept.
            weight_decay: How much of the parameter is added to its gradient (L2 penalty).
            nesterov: Looks ahead along the kept direction (Sutskever et al. 2013).
            maximize: Climbs instead of descending.
            foreach: Changes nothing; neither does `fused`.
            differentiable: Not there.
            fused: See `foreach`.
        """
        for name, value in {
            "learning rate": lr,
            "momentum value": momentum,
            "weight_decay value": weight_decay,
        }.items():
            if value < 0.0:
                raise ValueError(f"Invalid {name}: {value}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            **hints(foreach=foreach, fused=fused, differentiable=differentiable),
        }
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        # addcmul(a, b, c) is a + b * c in one instruction.
        grad = prepared(p, grad, group)
        if momentum := group["momentum"]:
            state = self.state[p]
            direction = state.get("momentum_buffer")
            if direction is None:
                direction = grad.detach().clone()  # a copy, as the gradient may be changed in place
            else:
                gain = 1 - group["dampening"]
                direction = gt.addcmul(grad if gain == 1 else grad * gain, direction, momentum)
            state["momentum_buffer"] = direction
            grad = gt.addcmul(grad, direction, momentum) if group["nesterov"] else direction
        p.addcmul_(grad, -group["lr"])
