"""Averaged stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, check_not_negative, descent_gradient, ignored_options


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (Polyak and Juditsky 1992): `ax` in the state is the mean of the iterates.

    Args:
        params: The tensors to optimize, or dicts that each describe a parameter group.
        lr: The initial learning rate.
        lambd: The decay: each step multiplies the parameter by `1 - lambd * eta`.
        alpha: The exponent of the learning rate `eta = lr / (1 + lambd * lr * t)^alpha` at step `t`.
        t0: The step from which on the mean is taken.
        weight_decay: The factor of the L2 penalty: `grad += weight_decay * p`.
        foreach: Ignored: it affects speed in PyTorch alone.
        maximize: Whether to ascend the gradient.
        differentiable: Not supported.
        capturable: Ignored.

    Example:
        >>> w = gt.nn.Parameter(gt.tensor([1.0]))
        >>> optimizer = gt.optim.ASGD([w], lr=0.1)
        >>> (3 * w).sum().backward()
        >>> optimizer.step()
        >>> w.detach()
        tensor([0.7000])
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_not_negative(**{"learning rate": lr, "weight_decay value": weight_decay})
        defaults = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        defaults |= {"maximize": maximize}
        defaults |= ignored_options(foreach=foreach, capturable=capturable, differentiable=differentiable)
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = descent_gradient(p, grad, group)
        state = self.state[p]
        if not state:
            state.update(step=0, eta=group["lr"], mu=1.0, ax=gt.zeros_like(p))
        state["step"] += 1
        p.mul_(1 - group["lambd"] * state["eta"])
        p.addcmul_(grad, -state["eta"])
        state["ax"] = p.clone() if state["mu"] == 1 else gt.addcmul(state["ax"], p - state["ax"], state["mu"])
        state["eta"] = group["lr"] / (1 + group["lambd"] * group["lr"] * state["step"]) ** group["alpha"]
        state["mu"] = 1 / max(1, state["step"] - group["t0"])
