"""Adam (Kingma and Ba 2015), and AdamW (Loshchilov and Hutter 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import gt
from gt._gt import Tensor
from gt.optim.optimizer import Optimizer, check_not_negative, hints


class Adam(Optimizer):
    """Steps of about `lr`, whatever the size of the gradients: their mean over the root of their mean square."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        """Takes the parameters and the options of each.

        Args:
            params: Tensors, or groups of them.
            lr: The learning rate.
            betas: How much of the running mean and of the running mean square is kept at a step.
            eps: Added to the root, so that nothing is divided by 0.
            weight_decay: How much of the parameter is added to its gradient (L2 penalty).
            amsgrad: Divide by the root of the largest mean square so far.
            foreach: Changes nothing; so do `capturable` and `fused`.
            maximize: Step up the gradient, not down.
            capturable: See `foreach`.
            differentiable: Not there.
            fused: See `foreach`.
            decoupled_weight_decay: Shrink the parameter by `lr * weight_decay` instead, as `AdamW` does.
        """
        check_not_negative(**{"learning rate": lr, "epsilon value": eps, "weight_decay value": weight_decay})
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            **hints(foreach=foreach, capturable=capturable, fused=fused, differentiable=differentiable),
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"]:
            if group["decoupled_weight_decay"]:
                p.mul_(1 - group["lr"] * group["weight_decay"])
            else:
                grad = gt.addcmul(grad, p, group["weight_decay"])
        if not self.state[p]:
            self.state[p] = {"step": 0, "exp_avg": gt.zeros_like(p), "exp_avg_sq": gt.zeros_like(p)}
            if group["amsgrad"]:
                self.state[p]["max_exp_avg_sq"] = gt.zeros_like(p)
        state = self.state[p]
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["exp_avg"] = gt.addcmul(state["exp_avg"] * beta1, grad, 1 - beta1)
        state["exp_avg_sq"] = gt.addcmul(state["exp_avg_sq"] * beta2, grad * grad, 1 - beta2)
        square = state["exp_avg_sq"]
        if group["amsgrad"]:
            square = state["max_exp_avg_sq"] = gt.maximum(state["max_exp_avg_sq"], square)
        # Both started at 0: what that takes from them is put back.
        bias1 = 1 - beta1 ** state["step"]
        bias2 = 1 - beta2 ** state["step"]
        root = square.sqrt() * (1 / math.sqrt(bias2)) + group["eps"]
        p.addcmul_(state["exp_avg"] / root, -group["lr"] / bias1)


class AdamW(Adam):
    """`Adam` whose weight decay shrinks the parameters themselves, so that it does not mix with the gradients."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        """Takes the parameters and the options of each, as `Adam`."""
        options = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable, "fused": fused}
        options |= {"maximize": maximize, "decoupled_weight_decay": True}
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **options)
