"""Adam (Kingma and Ba 2015) and what became of it: AdamW, Adamax, NAdam, RAdam.

All keep running means of the gradient and, but for Adamax, of its square: `_WithMoments`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt._rows import ROWS
from gt.optim.optimizer import Optimizer, check_not_negative, hints, prepared


class _WithMoments(Optimizer):
    """Keeps running means of the gradient and of its square; takes the options that all have."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        maximize: bool,
        options: dict[str, Any] | None = None,
        **choices: Any,
    ) -> None:
        check_not_negative(**{"learning rate": lr, "epsilon value": eps, "weight_decay value": weight_decay})
        for i, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
        all_have = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**all_have, **(options or {}), **hints(**choices)})

    def _decayed(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
        """The gradient to go down; the parameter is shrunk instead where decay is decoupled."""
        if group["weight_decay"] and group.get("decoupled_weight_decay"):
            p.mul_(1 - group["lr"] * group["weight_decay"])
            return -grad if group["maximize"] else grad
        return prepared(p, grad, group)

    def _moments(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The state, its running means and its number of steps brought up to date."""
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=gt.zeros_like(p), exp_avg_sq=gt.zeros_like(p))
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["exp_avg"] = gt.lerp(state["exp_avg"], grad, 1 - beta1)
        state["exp_avg_sq"] = ROWS["mean_square_step"](state["exp_avg_sq"], grad, 1 - beta2)
        return state


class Adam(_WithMoments):
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
        options = {"amsgrad": amsgrad, "decoupled_weight_decay": decoupled_weight_decay}
        choices = {"foreach": foreach, "capturable": capturable, "fused": fused, "differentiable": differentiable}
        super().__init__(params, lr, betas, eps, weight_decay, maximize, options, **choices)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self._moments(p, self._decayed(p, grad, group), group)
        beta1, beta2 = group["betas"]
        square = state["exp_avg_sq"]
        if group["amsgrad"]:
            most = state.get("max_exp_avg_sq")
            square = state["max_exp_avg_sq"] = square if most is None else gt.maximum(most, square)
        # Both means started at 0: what that takes from them is put back. The root's share is taken out of the quotient,
        # as the authors do it, so that the parameter changes in two instructions.
        bias1 = 1 - beta1 ** state["step"]
        root2 = math.sqrt(1 - beta2 ** state["step"])
        p.addcmul_(ROWS["scaled_step"](state["exp_avg"], square, group["eps"] * root2), -group["lr"] * root2 / bias1)


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


class Adamax(_WithMoments):
    """Adam with the largest gradient of late in place of the mean square (Kingma and Ba 2015)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        """Takes the parameters and the options of each, as `Adam`."""
        choices = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        super().__init__(params, lr, betas, eps, weight_decay, maximize, **choices)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = prepared(p, grad, group)
        state = self.state[p]
        if not state:
            state.update(step=0, exp_avg=gt.zeros_like(p), exp_inf=gt.zeros_like(p))
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["exp_avg"] = gt.lerp(state["exp_avg"], grad, 1 - beta1)
        state["exp_inf"] = gt.maximum(state["exp_inf"] * beta2, grad.abs() + group["eps"])
        p.addcmul_(state["exp_avg"] / state["exp_inf"], -group["lr"] / (1 - beta1 ** state["step"]))


class NAdam(_WithMoments):
    """Adam with Nesterov's momentum (Dozat 2016)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        """Takes the parameters and the options of each, as `Adam`; `momentum_decay` says how momentum grows."""
        check_not_negative(**{"momentum_decay value": momentum_decay})
        options = {"momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay}
        choices = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        super().__init__(params, lr, betas, eps, weight_decay, maximize, options, **choices)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = self._decayed(p, grad, group)
        state = self._moments(p, grad, group)
        beta1, beta2 = group["betas"]
        step, decay = state["step"], group["momentum_decay"]
        now, later = (beta1 * (1 - 0.5 * 0.96 ** (n * decay)) for n in (step, step + 1))
        product = state["mu_product"] = state.get("mu_product", 1.0) * now
        root = state["exp_avg_sq"].sqrt() * (1 / math.sqrt(1 - beta2**step)) + group["eps"]
        p.addcmul_(grad / root, -group["lr"] * (1 - now) / (1 - product))
        p.addcmul_(state["exp_avg"] / root, -group["lr"] * later / (1 - product * later))


class RAdam(_WithMoments):
    """Adam that is plain momentum until the mean square is known well enough (Liu et al. 2020)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        """Takes the parameters and the options of each, as `Adam`."""
        options = {"decoupled_weight_decay": decoupled_weight_decay}
        choices = {"foreach": foreach, "capturable": capturable, "differentiable": differentiable}
        super().__init__(params, lr, betas, eps, weight_decay, maximize, options, **choices)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = self._decayed(p, grad, group)
        state = self._moments(p, grad, group)
        beta1, beta2 = group["betas"]
        step = state["step"]
        bias1, bias2 = 1 - beta1**step, 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / bias2
        direction, factor = state["exp_avg"], group["lr"] / bias1
        if length > 5.0:
            share = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
            direction = ROWS["scaled_step"](direction, state["exp_avg_sq"], group["eps"])
            factor *= math.sqrt(share) * math.sqrt(bias2)
        p.addcmul_(direction, -factor)
