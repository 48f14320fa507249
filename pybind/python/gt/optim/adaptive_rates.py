"""Steps scaled by how large the gradients have been: Adagrad, RMSprop and Adadelta."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gt import _core as gt
from gt._gt import Tensor
from gt._rows import ROWS
from gt.optim.optimizer import Optimizer, check_not_negative, hints, prepared


class Adagrad(Optimizer):
    """The gradient over the root of the sum of all its squares (Duchi et al. 2011)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        """Takes the parameters and the options of each.

        Args:
            params: Tensors, or groups of them.
            lr: The learning rate.
            lr_decay: Step `n`, from 0, has the learning rate `lr / (1 + n * lr_decay)`.
            weight_decay: How much of the parameter is added to its gradient (L2 penalty).
            initial_accumulator_value: What the sum of squares starts with.
            eps: Added to the root, so that nothing is divided by 0.
            foreach: Changes nothing; neither does `fused`.
            maximize: Step up the gradient, not down.
            differentiable: Not there.
            fused: See `foreach`.
        """
        check_not_negative(
            **{
                "learning rate": lr,
                "lr_decay value": lr_decay,
                "weight_decay value": weight_decay,
                "initial_accumulator_value value": initial_accumulator_value,
                "epsilon value": eps,
            }
        )
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "maximize": maximize,
            **hints(foreach=foreach, fused=fused, differentiable=differentiable),
        }
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = prepared(p, grad, group)
        if not self.state[p]:
            self.state[p] = {"step": 0, "sum": gt.full_like(p, group["initial_accumulator_value"])}
        state = self.state[p]
        lr = group["lr"] / (1 + state["step"] * group["lr_decay"])
        state["step"] += 1
        state["sum"] = gt.addcmul(state["sum"], grad, grad)
        p.addcmul_(ROWS["scaled_step"](grad, state["sum"], group["eps"]), -lr)


class RMSprop(Optimizer):
    """The gradient over the root of the running mean of its squares (Hinton)."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        """Takes the parameters and the options of each.

        Args:
            params: Tensors, or groups of them.
            lr: The learning rate.
            alpha: How much of the running mean of squares is kept at a step.
            eps: Added to the root, so that nothing is divided by 0.
            weight_decay: How much of the parameter is added to its gradient (L2 penalty).
            momentum: How much of the last step's direction is kept.
            centered: Divide by the root of the variance instead: the mean of squares less the square of the mean.
            capturable: Changes nothing; neither does `foreach`.
            foreach: See `capturable`.
            maximize: Step up the gradient, not down.
            differentiable: Not there.
        """
        check_not_negative(
            **{
                "learning rate": lr,
                "epsilon value": eps,
                "momentum value": momentum,
                "weight_decay value": weight_decay,
                "alpha value": alpha,
            }
        )
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "maximize": maximize,
            **hints(foreach=foreach, capturable=capturable, differentiable=differentiable),
        }
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = prepared(p, grad, group)
        if not self.state[p]:
            self.state[p] = {"step": 0, "square_avg": gt.zeros_like(p)}
            if group["momentum"]:
                self.state[p]["momentum_buffer"] = gt.zeros_like(p)
            if group["centered"]:
                self.state[p]["grad_avg"] = gt.zeros_like(p)
        state, alpha = self.state[p], group["alpha"]
        state["step"] += 1
        square = state["square_avg"] = ROWS["mean_square_step"](state["square_avg"], grad, 1 - alpha)
        if group["centered"]:
            mean = state["grad_avg"] = gt.lerp(state["grad_avg"], grad, 1 - alpha)
            square = square - mean * mean
        direction = ROWS["scaled_step"](grad, square, group["eps"])
        if group["momentum"]:
            direction = state["momentum_buffer"] = gt.addcmul(direction, state["momentum_buffer"], group["momentum"])
        p.addcmul_(direction, -group["lr"])


class Adadelta(Optimizer):
    """The gradient in units of the parameter: times the root of its steps' mean square, over that of its own."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        """Takes the parameters and the options of each (Zeiler 2012).

        Args:
            params: Tensors, or groups of them.
            lr: What the step is multiplied by.
            rho: How much of the running means of squares is kept at a step.
            eps: Added under the roots; it sets the size of the first steps.
            weight_decay: How much of the parameter is added to its gradient (L2 penalty).
            foreach: Changes nothing; neither does `capturable`.
            capturable: See `foreach`.
            maximize: Step up the gradient, not down.
            differentiable: Not there.
        """
        check_not_negative(**{"learning rate": lr, "epsilon value": eps, "weight_decay value": weight_decay})
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        defaults = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        defaults |= hints(foreach=foreach, capturable=capturable, differentiable=differentiable)
        super().__init__(params, defaults)

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        grad = prepared(p, grad, group)
        if not self.state[p]:
            self.state[p] = {"step": 0, "square_avg": gt.zeros_like(p), "acc_delta": gt.zeros_like(p)}
        state, rho, eps = self.state[p], group["rho"], group["eps"]
        state["step"] += 1
        state["square_avg"] = ROWS["mean_square_step"](state["square_avg"], grad, 1 - rho)
        delta = (state["acc_delta"] + eps).sqrt() / (state["square_avg"] + eps).sqrt() * grad
        state["acc_delta"] = ROWS["mean_square_step"](state["acc_delta"], delta, 1 - rho)
        p.addcmul_(delta, -group["lr"])
